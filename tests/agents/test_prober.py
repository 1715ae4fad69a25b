"""The script that forces probes in a sandbox: as a program, on every Python that a sandbox may have."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.agents.base import make_agent
from harbor_tasks.resources import resource, script_module

PROBER = resource("interceptor", "prober.py")
PROBER_MODULE = script_module("prober")


def hook(event: str, matcher: str, **decision: Any) -> dict[str, Any]:
    """A hook that always decides so, and keeps what it was asked in asked.jsonl."""
    said = json.dumps({"hookSpecificOutput": {"hookEventName": event, **decision}})
    command = f"cat >> asked.jsonl; echo >> asked.jsonl; echo \"$HP_WORD\" >> words; cat <<'END'\n{said}\nEND"
    return {"matcher": matcher, "hooks": [{"type": "command", "command": command, "timeout": 20}]}


SETTINGS = {
    "env": {"HP_WORD": "of the settings"},
    "permissions": {"deny": ["Read(secret/**)"]},
    "hooks": {
        "PreToolUse": [
            hook("PreToolUse", "Bash", permissionDecision="deny", permissionDecisionReason="no commands"),
            hook("PreToolUse", "mcp__t__note", permissionDecision="allow", updatedInput={"text": "changed"}),
            hook("PreToolUse", "Agent", permissionDecision="allow", permissionDecisionReason="go on"),
        ]
    },
}  # fmt: skip


def forced(folder: Path, *probes: dict[str, Any], python: str | Path = "python3") -> list[dict[str, Any]]:
    """The outcomes of these probes."""
    (folder / "settings.json").write_text(json.dumps(SETTINGS))
    whole = [{"id": f"toolu_{n}", "input": {}, "env": {}, **probe} for n, probe in enumerate(probes)]
    (folder / "probes.json").write_text(json.dumps(whole))
    argv: list[str | Path] = [python, "-I", "-S", PROBER, "--workspace", folder]
    for name in ("probes", "settings"):
        argv += [f"--{name}", folder / f"{name}.json"]
    done = subprocess.run([*argv, "--out", folder / "out.jsonl"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]


def test_codexs_questions_are_asked_about_as_those_that_are_answered_at_once(tmp_path: Path) -> None:
    """There the same rules decide, but only when the tool has run."""
    settings = {"hooks": {"PreToolUse": [hook("PreToolUse", "AskUserQuestion", permissionDecision="deny",
                                              permissionDecisionReason="no questions")]}}  # fmt: skip
    for tool, word in (("request_user_input", "question"), ("request_user_input_async", "title")):
        given = {"questions": [{word: "Which?", "options": ["a"]}]}
        probe = {"id": "t", "tool": tool, "input": given, "env": {}}
        found = PROBER_MODULE.force(script_module("replay"), probe, settings, str(tmp_path), {"PATH": os.defpath})
        assert (found["got"], found["reason"]) == ("deny", "no questions")
    asked = [json.loads(line) for line in (tmp_path / "asked.jsonl").read_text().splitlines()]
    assert {(one["tool_name"], one["tool_input"]["questions"][0]["question"]) for one in asked} == {
        ("AskUserQuestion", "Which?")
    }


def test_each_call_gets_what_hooks_and_deny_rules_say_of_it(tmp_path: Path) -> None:
    outcomes = forced(
        tmp_path, {"tool": "Bash", "input": {"command": "ls"}}, {"tool": "mcp__t__note", "input": {"text": "a"}},
        {"tool": "Task"}, {"tool": "Read", "input": {"file_path": "secret/key"}},
        {"tool": "Read", "input": {"file_path": "open"}},
    )  # fmt: skip
    assert [(one["got"], one["reason"]) for one in outcomes] == [
        ("deny", "no commands"), ("rewrite", ""), ("allow", "go on"),
        ("deny", "Permission to use Read has been denied."), ("none", "no hook covers the tool"),
    ]  # fmt: skip
    assert outcomes[1]["updated_input"] == {"text": "changed"}
    asked = [json.loads(line) for line in (tmp_path / "asked.jsonl").read_text().splitlines() if line]
    assert [(one["tool_name"], one["tool_use_id"]) for one in asked] == [
        ("Bash", "toolu_0"), ("mcp__t__note", "toolu_1"), ("Agent", "toolu_2"),
    ]  # fmt: skip


def test_a_probes_variables_stand_in_place_of_the_settings(tmp_path: Path) -> None:
    forced(tmp_path, {"tool": "Bash"}, {"tool": "Bash", "env": {"HP_WORD": "of the probe"}})
    assert (tmp_path / "words").read_text().splitlines() == ["of the settings", "of the probe"]


def test_without_settings_nothing_is_registered(tmp_path: Path) -> None:
    (tmp_path / "probes.json").write_text(json.dumps([{"id": "a", "tool": "Bash", "input": {}}]))
    argv: list[str | Path] = ["python3", "-I", "-S", PROBER, "--settings", tmp_path / "none.json"]
    argv += ["--workspace", tmp_path]
    subprocess.run([*argv, "--probes", tmp_path / "probes.json", "--out", tmp_path / "out.jsonl"], check=True)
    assert json.loads((tmp_path / "out.jsonl").read_text())["got"] == "none"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("cat >/dev/null", ""),
        ("exit 1", "hook printed no JSON"),
        ("echo broken >&2; exit 2", "broken"),
        ("nothing-like-it", "hook printed no JSON"),
    ],
)
def test_the_self_test_tells_a_hook_that_works_from_one_that_does_not(tmp_path: Path, command: str, says: str) -> None:
    hooks = [{"matcher": "Bash", "hooks": [{"type": "command", "command": command}]}]
    (tmp_path / "settings.json").write_text(json.dumps({"hooks": {"PreToolUse": hooks}}))
    argv: list[str | Path] = ["python3", "-I", "-S", PROBER, "--settings", tmp_path / "settings.json"]
    done = subprocess.run([*argv, "--workspace", tmp_path, "--self-test"], capture_output=True, text=True, check=False)
    assert done.returncode == bool(says)
    assert says in done.stderr


@pytest.mark.pythons
def test_it_runs_on_every_python(tmp_path: Path, pythons: tuple[Path, ...]) -> None:
    for python in pythons:
        [one] = forced(tmp_path, {"tool": "Bash", "input": {"command": "ls"}}, python=python)
        assert one["got"] == "deny", python


def test_the_agent_of_probes_has_nothing_to_do_in_a_task_of_the_author(tmp_path: Path) -> None:
    agent = make_agent("probe", None)  # type: ignore[arg-type]
    assert "harbor-pack probe" in (agent.lacks(tmp_path, ()) or "")
