"""Probes through Claude Code itself: what the policy says is what happens in the program, and what differs is found."""

from __future__ import annotations

import json
import os
import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from harbor_tasks.agents.base import Launch, Places
from harbor_tasks.agents.claude_code import ClaudeCodeAgent
from harbor_tasks.endpoint import Call
from harbor_tasks.errors import AuthorError, MachineError
from harbor_tasks.policy.probes import Probe
from harbor_tasks.proving import ProbeReport, prove
from harbor_tasks.proving.calls import Forced
from harbor_tasks.proving.through import Passage, misses
from harbor_tasks.proving.through.claude_code import ClaudeCode
from harbor_tasks.resources import resource
from harbor_tasks.tasks.build import build

EXAMPLES = sorted(path.parent.name for path in resource("examples").glob("*/eval.yaml"))
HANDLERS: list[dict[str, Any]] = [
    {"match": "Questions", "patterns": ["AskUserQuestion"]},
    {"match": "Refunds", "patterns": ["mcp__desk__refund"], "reason": "at most 50",
     "input_checks": [{"field": "amount", "op": "le", "value": 50}]},
    {"match": "Notes", "patterns": ["mcp__desk__note"], "rewrite": {"text": {"prefix": "[bot] "}}},
    {"match": "Filing", "patterns": ["Bash"], "input_filters": ["submit"], "reason": "not there",
     "env_checks": {"TRACKER": {"must_contain": ["localhost"]}}},
]  # fmt: skip
QUESTION = {"question": "Go on?", "options": ["Yes", "No"]}
CANARY = "touch /tmp/harbor-pack-canary-that-no-probe-may-make"


def probe(name: str, tool: str, expect: str, given: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "tool": tool, "input": given, "expect": expect, **more}


PROBES = [
    probe("refund", "mcp__desk__refund", "none", {"amount": 50}),
    probe("too much", "mcp__desk__refund", "deny", {"amount": 51}),
    probe("note", "mcp__desk__note", "rewrite", {"text": "hi"}, input_after={"text": "[bot] hi"}),
    probe("question", "AskUserQuestion", "answer", {"questions": [QUESTION]}, answers={"Go on?": "No"}),
    probe("filing here", "Bash", "none", {"command": "submit a"}, env={"TRACKER": "http://localhost/"}),
    probe("filing there", "Bash", "deny", {"command": "submit a"}, env={"TRACKER": "http://elsewhere.example/"}),
    probe("canary", "Bash", "none", {"command": CANARY}),
    probe("no such tool for it", "WebFetch", "none", {"url": "http://a.example/", "prompt": "x"}),
    probe("out of the workspace", "Write", "none", {"file_path": "/etc/harbor-pack-canary", "content": "x"}),
    probe("in the workspace", "Write", "none", {"file_path": "made.txt", "content": "x"}),
    probe("in a closed folder", "Write", "deny", {"file_path": "closed/made.txt", "content": "x"}),
]


@pytest.fixture(scope="module")
def on_path(claude_bin: Path) -> Any:
    """Claude Code is the `claude` on PATH; there is no key."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{claude_bin}{os.pathsep}{os.environ['PATH']}")
        for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_BASE_URL"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An eval with these handlers and probes, built."""
    folder = tmp_path_factory.mktemp("desk")
    (folder / "cases" / "c1").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / "cases" / "c1" / "input.yaml").write_text("prompt: go\n")
    handlers = {"handlers": HANDLERS, "case_overrides": {"Go on?": "No"}}
    (folder / "tool_handlers.yaml").write_text(yaml.safe_dump(handlers))
    data = {
        "name": "desk", "dataset": {"path": "cases"}, "execution": {"prompt": "go"}, "probes": PROBES,
        "permissions": {"deny": ["WebFetch", {"path": "closed/", "tools": ["Write"]}]},
        "mcp_servers": [{"name": "desk", "command": "false"}],
    }  # fmt: skip
    (folder / "eval.yaml").write_text(json.dumps(data))
    return build(folder, folder / "out").out


@pytest.fixture(scope="module")
def report(desk: Path, on_path: None) -> ProbeReport:
    return prove(desk, agent="claude-code")


def by_name(report: ProbeReport, mode: str = "bypassPermissions") -> dict[str, Passage]:
    return {seen.name: seen for seen in report.through if seen.mode == mode}


@pytest.mark.claude
def test_every_call_of_an_example_gets_its_decision_in_the_program(on_path: None, tmp_path: Path) -> None:
    for name in EXAMPLES:
        built = build(resource("examples", name), tmp_path / name).out
        found = prove(built, agent="claude-code", modes=("bypassPermissions", "dontAsk"), standard=False)
        assert [(seen.name, seen.mode, seen.notes) for seen in found.through if not seen.ok] == []
        assert found.exit_code == 0
        assert any(seen.hook for seen in found.through), name


@pytest.mark.claude
def test_the_table_says_hook_decision_tool_and_what_the_model_read(report: ProbeReport) -> None:
    assert [(seen.name, seen.notes) for seen in report.through if not seen.ok] == []
    seen = {name: (one.hook, one.decision, one.entered) for name, one in by_name(report).items()}
    assert seen["refund"] == (True, "none", True)
    assert seen["too much"] == (True, "deny", False)
    assert seen["note"] == (True, "rewrite", True)
    assert seen["question"] == (True, "answer", True)
    assert seen["filing here"] == (True, "none", True)
    assert seen["filing there"] == (True, "deny", False)
    found = by_name(report)
    assert found["too much"].read == "at most 50"
    assert found["note"].given == {"tool": "note", "input": {"text": "[bot] hi"}}
    effects = {name: one.effect for name, one in found.items()}
    assert [effects[name] for name in ("refund", "too much", "filing here", "in the workspace", "question")] == [
        True, False, True, True, None
    ]  # fmt: skip
    assert '"Go on?"="No"' in found["question"].read
    assert "submit a" in found["filing here"].given["command"]
    console = Console(file=StringIO(), width=300)
    for part in report.tables():
        console.print(part)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "through the agent program" in text
    assert f"{len(report.through)} calls through the agent program, 0 missed" in text
    assert report.as_json()["through"][0]["hook"] is True


@pytest.mark.claude
def test_a_path_rule_denies_what_it_names_in_the_program(report: ProbeReport) -> None:
    """Rules of Write are none that it asks: those of Edit are."""
    seen = by_name(report)["in a closed folder"]
    assert (seen.decision, seen.entered, seen.effect, seen.notes) == (
        "none", False, False, ("a permission rule denies it",)
    )  # fmt: skip


@pytest.mark.claude
def test_a_sample_is_forced_in_the_other_modes_too(report: ProbeReport) -> None:
    for mode in ("default", "acceptEdits"):
        seen = by_name(report, mode)
        shown = {name: (one.hook, one.decision, one.entered) for name, one in seen.items()}
        assert shown["refund"] == (True, "none", False)  # a mode that would ask somebody
        assert seen["refund"].notes == ("the permission mode refuses it",)
        assert shown["too much"] == (True, "deny", False)
        assert shown["note"] == (True, "rewrite", True)
        assert shown["question"] == (True, "answer", True)
        assert len(shown) == 4


@pytest.mark.claude
def test_what_nothing_keeps_from_the_hook_on_this_machine_is_found_afterwards(report: ProbeReport) -> None:
    found = by_name(report)
    for place in ("killed", "stopped"):
        seen = found[f"too much: when the hook is {place}"]
        assert (seen.verdict, seen.hook, seen.entered, seen.ok) == ("found", False, True, True)
        assert seen.notes[0] == "not held on this machine, and found afterwards: such a trial is void"
        assert re.fullmatch(r"[1-9]\d* signals reached the hook, 0 were refused", seen.notes[1])
    late = found["too much: when the hook's time is up"]
    assert (late.hook, late.decision, late.entered, late.verdict) == (True, "deny", False, "ok")
    assert late.read == "Not permitted here: it took too long"
    nested = found["too much: by a nested claude --bare"]
    assert (nested.hook, nested.entered, nested.effect, nested.verdict) == (False, False, False, "ok")
    assert nested.notes[0].startswith("that program had no model: Not logged in")
    assert all(seen.ok for seen in report.through)


@pytest.mark.claude
def test_a_denied_call_is_denied_wherever_a_program_might_not_ask(report: ProbeReport) -> None:
    places = ("beside another call", "after cd", "after settings were written", "by a subagent")
    found = by_name(report)
    for place in places:
        seen = found[f"too much: {place}"]
        assert (seen.hook, seen.decision, seen.entered, seen.read) == (True, "deny", False, "at most 50"), place


@pytest.mark.claude
def test_no_command_runs_and_no_file_outside_is_touched(report: ProbeReport) -> None:
    found = by_name(report)
    assert found["canary"].entered is True
    assert CANARY in found["canary"].given["command"]
    assert not Path(CANARY.split()[1]).exists()
    assert found["in the workspace"].entered is True
    assert found["out of the workspace"].notes == ("not forced: it is about a file outside the workspace",)
    assert not Path("/etc/harbor-pack-canary").exists()
    assert found["no such tool for it"].notes == ("the program does not offer the tool",)


@pytest.mark.claude
def test_a_mode_that_asks_is_told_from_a_hook_that_denies(report: ProbeReport) -> None:
    found = by_name(report, "dontAsk")
    assert (found["refund"].decision, found["refund"].entered) == ("none", False)
    assert found["refund"].notes == ("the permission mode refuses it",)
    assert (found["note"].decision, found["note"].entered) == ("rewrite", True)  # a rewrite approves the call


@pytest.mark.claude
def test_the_routes_are_those_of_the_tools_that_the_program_offers(report: ProbeReport) -> None:
    found = {route.tool: route for route in report.routes}
    assert {"Bash", "AskUserQuestion", "mcp__desk__*"} <= set(found)
    assert (found["WebFetch"].permission, found["WebFetch"].also_by) == ("removed", ("Bash",))
    assert "CronCreate" in found  # of which nothing is known beforehand


@pytest.mark.claude
def test_a_program_that_does_not_ask_its_hook_is_found(
    desk: Path, on_path: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = ClaudeCodeAgent.launch

    def without_settings(self: ClaudeCodeAgent, places: Places) -> Launch:
        found = launch(self, places)
        at = found.argv.index("--settings")
        return Launch(found.argv[:at] + found.argv[at + 2 :], found.env, found.stdin)

    monkeypatch.setattr(ClaudeCodeAgent, "launch", without_settings)
    found = by_name(prove(desk, agent="claude-code", modes=("bypassPermissions",)))
    assert "the hook was never entered" in found["too much: by a subagent"].notes
    assert "the hook was never entered" in found["too much"].notes
    assert "the tool ran although the call was denied" in found["too much"].notes
    assert "the hook was never entered" in found["refund"].notes
    assert "the hook was never entered" in found["in the workspace"].notes  # it has to guard the policy


def test_another_agent_is_refused(desk: Path) -> None:
    with pytest.raises(AuthorError, match="probes go through claude-code"):
        prove(desk, agent="oracle")
    with pytest.raises(AuthorError, match="works with --env local and docker, not harbor"):
        prove(desk, agent="claude-code", environments=("local", "harbor"))


def test_no_program_is_said(desk: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", "/usr/bin:/bin")
        patch.setenv("HARBOR_PACK_CACHE", "/nowhere")
        with pytest.raises(MachineError, match="no `claude` on PATH"):
            prove(desk, agent="claude-code")


ALONE = {"got": "deny", "reason": "no", "updated_input": None}


@pytest.mark.parametrize(
    ("expected", "alone", "seen", "says"),
    [
        ("deny", ALONE, {"hook": True, "decision": "deny", "entered": True, "read": "no"}, "ran although"),
        ("deny", ALONE, {"hook": True, "decision": "deny", "entered": False, "read": "other"}, "not the reason"),
        ("deny", ALONE, {"hook": True, "decision": "none", "entered": True, "read": "ok"}, "expected deny, got none"),
        ("deny", ALONE, {"hook": True, "decision": "deny", "entered": False, "read": "no"}, None),
        (
            "none", {"got": "none", "reason": "", "updated_input": None},
            {"hook": True, "decision": "none", "entered": False, "read": "a reason of nobody's"},
            "the tool did not run",
        ),
        (
            "none", {"got": "none", "reason": "no hook covers the tool", "updated_input": None},
            {"hook": False, "decision": "none", "entered": True, "read": "ok"}, None,
        ),
        (
            "rewrite", {"got": "rewrite", "reason": "", "updated_input": {"a": 1}},
            {"hook": True, "decision": "rewrite", "entered": True, "read": "ok", "given": {"input": {"a": 2}}},
            'called with {"a": 2}',
        ),
    ],
)  # fmt: skip
def test_what_differs_is_named(expected: str, alone: dict[str, Any], seen: dict[str, Any], says: str | None) -> None:
    forced = Forced("toolu_1", Probe("p", "mcp__a__b", {}, "none"), expected)
    passage = Passage("p", "mcp__a__b", "bypassPermissions", expected, **seen)
    found = list(misses(forced, passage, failed=seen["decision"] == "deny", alone=alone))
    assert (found == []) is (says is None)
    assert says is None or any(says in one for one in found)


def test_an_answer_is_one_that_the_model_reads() -> None:
    program, call = ClaudeCode(), Call("toolu_1", "AskUserQuestion", {})
    told = 'Your questions have been answered: "Which?"="Tin", "Which ones?"="Lead,Tin". You can go on.'
    assert program.answered(call, told, "Which?", "Tin")
    assert program.answered(call, told, "Which ones?", ["Lead", "Tin"])
    assert not program.answered(call, told, "Which?", "Lead")
    assert not program.answered(call, told, "What?", "Tin")
    assert not program.answered(call, "The user did not answer.", "Which?", "Tin")
