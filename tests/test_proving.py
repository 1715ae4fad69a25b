"""Probes through the built policy: the decision that they get, and how a miss shows."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from harbor_tasks.errors import AuthorError, MachineError
from harbor_tasks.proving import ProbeReport, ProbeRow, prove
from harbor_tasks.tasks.build import build

HANDLERS: list[dict[str, Any]] = [
    {"match": "Questions", "patterns": ["AskUserQuestion"]},
    {
        "match": "Refunds", "patterns": ["mcp__desk__refund"], "reason": "at most 50",
        "input_checks": [{"field": "amount", "op": "le", "value": 50}],
    },
    {"match": "Notes", "patterns": ["mcp__desk__note"], "rewrite": {"text": {"prefix": "[bot] "}}},
    {
        "match": "Filing", "patterns": ["Bash"], "input_filters": ["submit"],
        "env_checks": {"TRACKER": {"must_contain": ["localhost"]}},
    },
]  # fmt: skip
QUESTION = {"question": "Go on?", "header": "Go", "multiSelect": False, "options": [{"label": "Yes"}, {"label": "No"}]}


@pytest.fixture(autouse=True)
def _this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hooks start with this Python itself, not with the slow shim of a version manager."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


def built(tmp_path: Path, *probes: dict[str, Any], **spec: Any) -> Path:
    """An eval with these handlers and probes, built."""
    folder = tmp_path / "eval"
    (folder / "cases" / "c1").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / "cases" / "c1" / "input.yaml").write_text("prompt: go\n")
    (folder / "tool_handlers.yaml").write_text(
        yaml.safe_dump({"handlers": HANDLERS, "case_overrides": {"Go on?": "No"}})
    )
    data = {"name": "desk", "dataset": {"path": "cases"}, "execution": {"prompt": "go"}, "probes": list(probes), **spec}
    (folder / "eval.yaml").write_text(json.dumps(data))
    return build(folder, tmp_path / "out").out


def probe(tool: str, expect: str, given: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"name": f"{tool} {expect}", "tool": tool, "input": given or {}, "expect": expect, **more}


def met(report: ProbeReport) -> list[bool]:
    return [row.ok for row in report.rows]


def test_each_kind_of_decision_is_met(tmp_path: Path) -> None:
    out = built(
        tmp_path,
        probe("mcp__desk__refund", "none", {"amount": 50}),
        probe("mcp__desk__refund", "deny", {"amount": 51}, reason_has=["At most"]),
        probe("AskUserQuestion", "answer", {"questions": [QUESTION]}, answers={"Go on?": "No"}),
        probe("mcp__desk__note", "rewrite", {"text": "hi"}, input_after={"text": "[bot] hi"}),
        probe("Read", "none", {"file_path": "a"}),
        probe("Bash", "none", {"command": "submit"}, env={"TRACKER": "http://localhost"}),
        probe("Bash", "deny", {"command": "submit"}, env={"TRACKER": "https://live.example"}),
    )
    report = prove(out)
    assert [(row.got, row.misses) for row in report.rows] == [
        ("none", ()), ("deny", ()), ("answer", ()), ("rewrite", ()), ("none", ()), ("none", ()), ("deny", ()),
    ]  # fmt: skip
    assert report.exit_code == 0
    assert report.rows[2].tier == "override"


def test_a_probes_values_beat_those_of_the_eval(tmp_path: Path) -> None:
    execution = {"prompt": "go", "env": {"TRACKER": "http://localhost", "OTHER": "$NOBODY_SET_THIS"}}
    report = prove(
        built(
            tmp_path, probe("Bash", "none", {"command": "submit"}),
            probe("Bash", "deny", {"command": "submit"}, env={"TRACKER": "https://live.example"}), execution=execution,
        )
    )  # fmt: skip
    assert met(report) == [True, True]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (probe("mcp__desk__refund", "none", {"amount": 51}), "expected none, got deny (at most 50"),
        (probe("mcp__desk__refund", "deny", {"amount": 51}, reason_has=["supervisor"]), "lacks 'supervisor'"),
        (probe("AskUserQuestion", "answer", {"questions": [QUESTION]}, answers={"Go on?": "Yes"}), "'Go on?': 'No'"),
        (probe("mcp__desk__note", "rewrite", {"text": "hi"}, input_after={"text": "hi"}), "[bot] hi"),
        (probe("Read", "deny", {"file_path": "a"}), "no hook covers the tool"),
        (probe("mcp__desk__refund", "none", {"amount": 1}, result_after="x"), "not supported yet"),
    ],
)
def test_a_miss_says_what_differs(tmp_path: Path, wrong: dict[str, Any], says: str) -> None:
    report = prove(built(tmp_path, wrong))
    assert report.exit_code == 1
    assert says in "; ".join(report.rows[0].misses)
    text = StringIO()
    for part in report.tables():
        Console(file=text, width=200).print(part)
    assert "MISSED" in text.getvalue()
    assert "1 probe, 1 missed" in text.getvalue()


def test_several_environments_fit_into_a_narrow_terminal() -> None:
    tool, places = "mcp__a_server_of_a_long_name__process_refund", ("local", "docker", "harbor")
    row = ProbeRow("a refund above the ceiling", tool, "local", "deny", "deny", "at most 50", True, call="1")
    missed = replace(row, environment="harbor", got="none", ok=False, misses=("expected deny, got none",))
    rows = (row, replace(row, environment="docker"), missed)
    report = ProbeReport(rows, (), {"docker": True, "harbor": True})
    text = StringIO()
    for part in report.tables():
        Console(file=text, width=60).print(part)
    lines = text.getvalue().splitlines()
    assert any(all(place in line for place in ("expected", "local *", *places[1:])) for line in lines)
    assert any(line.split()[-5:] == ["deny", "deny", "deny", "none", "MISSED"] for line in lines)
    assert "a refund above the ceiling: expected deny, got none" in lines


def test_deny_rules_of_the_eval_count_too(tmp_path: Path) -> None:
    rules = {"deny": ["Bash(git push*)"]}
    report = prove(
        built(
            tmp_path, probe("Bash", "deny", {"command": "git push"}), probe("Bash", "none", {"command": "git pull"}),
            permissions=rules,
        )
    )  # fmt: skip
    assert met(report) == [True, True]


def test_a_question_that_only_a_model_could_answer_shows_as_guessed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-must-not-be-used")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
    other = {**QUESTION, "question": "Which one?"}
    [row] = prove(built(tmp_path, probe("AskUserQuestion", "answer", {"questions": [other]}))).rows
    assert (row.ok, row.tier) == (True, "guessed")


def test_routes_name_what_no_handler_covers(tmp_path: Path) -> None:
    server = {"name": "desk", "command": "python3", "args": ["-c", "pass"]}
    report = prove(built(tmp_path, mcp_servers=[server]))
    states = {route.tool: route.state for route in report.routes}
    assert states["AskUserQuestion"] == "guarded"
    assert states["WebFetch"] == "unguarded"
    assert states["mcp__desk__*"] == "partly guarded"
    assert report.as_json()["ok"] is True
    assert json.dumps(report.as_json())


def test_a_policy_that_does_not_work_is_a_fault_of_the_machine_not_a_miss(tmp_path: Path) -> None:
    out = built(tmp_path, probe("Read", "none", {"file_path": "a"}))
    (out / ".harbor-pack" / "probe" / "hooks" / "tools.py").write_text("import nothing_like_it\n")
    with pytest.raises(MachineError, match="does not work here"):
        prove(out)


def test_an_environment_that_does_not_exist_is_said(tmp_path: Path) -> None:
    with pytest.raises(AuthorError, match="local, docker, harbor"):
        prove(tmp_path, environments=("local", "moon"))


def test_a_build_without_any_policy_has_only_routes(tmp_path: Path) -> None:
    folder = tmp_path / "eval"
    (folder / "cases" / "c1").mkdir(parents=True)
    (folder / "cases" / "c1" / "input.yaml").write_text("prompt: go\n")
    data = {"name": "plain", "dataset": {"path": "cases"}, "execution": {"prompt": "go"}}
    for runner, own in (("claude-code", "WebFetch"), ("codex", "apply_patch")):
        (folder / "eval.yaml").write_text(json.dumps({**data, "runner": {"type": runner}}))
        report = prove(build(folder, tmp_path / runner).out)
        assert report.rows == ()
        assert {route.tool for route in report.routes if route.state != "unguarded"} <= {
            "AskUserQuestion", "request_user_input",
        }  # fmt: skip
        assert {"Bash", own} <= {route.tool for route in report.routes}
    assert "WebFetch" not in {route.tool for route in report.routes}
