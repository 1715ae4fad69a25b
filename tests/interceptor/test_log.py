"""One line for each call, whatever the decision; a log that cannot be written changes none."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.interceptor.conftest import Hook


def test_a_line_says_when_what_and_why(hook: Hook) -> None:
    hook.write({"match": "one", "patterns": ["a"]}, {"match": "no ö", "patterns": ["mcp__*"], "reason": "because"})
    given = {"b": [1, 2.5, None, True, "ö\ud800"], "a": {"y": 1, "x": {}}}
    payload = {
        "tool_name": "mcp__x",
        "tool_input": given,
        "tool_use_id": "toolu_7",
        "agent_id": "ag",
        "agent_type": "t",
    }
    hook.send(json.dumps({"hook_event_name": "PreToolUse", **payload}).encode())
    hook.call("Read", {"file_path": "a"})
    first, second = hook.log
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first.pop("time"))
    assert 0 < first.pop("ms") < 60_000
    text = json.dumps(given, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    assert first == {
        "event": "PreToolUse", "tool_use_id": "toolu_7", "tool": "mcp__x", "agent_id": "ag", "decision": "deny",
        "handler": 1,
        "match": "no ö", "tier": None, "reason": "because", "notes": [],
        "input_sha256": hashlib.sha256(text.encode()).hexdigest(),
    }  # fmt: skip
    assert [second[key] for key in ("decision", "handler", "match", "reason")] == ["none", None, None, None]
    assert "agent_id" not in second


def test_what_the_tool_gets_in_place_of_its_input_is_in_the_line(hook: Hook) -> None:
    hook.write(
        {"match": "questions", "patterns": ["AskUserQuestion"]},
        {"match": "notes", "patterns": ["mcp__a__note"], "rewrite": {"text": {"prefix": "[bot] "}}},
        {"match": "free", "patterns": ["mcp__a__read"], "input_checks": [{"field": "at", "op": "le", "value": 5}]},
        case_overrides={"Go on?": "No"},
    )
    asked = {"questions": [{"question": "Go on?", "options": [{"label": "Yes"}, {"label": "No"}]}]}
    hook.call("mcp__a__note", {"text": "hi", "to": "b"})
    hook.call("AskUserQuestion", asked)
    hook.call("mcp__a__read", {"at": 5})
    hook.call("mcp__a__read", {"at": 6})
    hook.call("mcp__a__note", {"text": 1})  # which cannot be rewritten
    lines = [(line["decision"], line.get("updated_input")) for line in hook.log]
    assert lines == [
        ("rewrite", {"text": "[bot] hi", "to": "b"}), ("answer", {**asked, "answers": {"Go on?": "No"}}),
        ("none", None), ("deny", None), ("deny", None),
    ]  # fmt: skip
    assert "updated_input" not in hook.log[2]


def test_faults_are_logged_too(hook: Hook) -> None:
    hook.send(b"nonsense")
    hook.call("Bash", {"command": 5})
    hook.handlers_file.write_text("nonsense")
    hook.call("Read", {})
    assert [(line["decision"], line["tool"]) for line in hook.log] == [
        ("deny", None),
        ("deny", "Bash"),
        ("deny", "Read"),
    ]
    assert hook.log[0]["input_sha256"] is None


def test_parallel_calls_do_not_mix_their_lines(hook: Hook) -> None:
    hook.write({"match": "m", "patterns": ["x"], "reason": "r" * 100_000})
    running = [hook.start() for _ in range(6)]
    for i, process in enumerate(running):
        assert process.stdin is not None
        process.stdin.write(json.dumps({"tool_name": "x", "tool_input": {}, "tool_use_id": f"t{i}"}).encode())
        process.stdin.close()
    for process in running:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.read()
        process.stdout.close()
        process.stderr.close()
        assert process.wait(60) == 0
    assert {line["tool_use_id"] for line in hook.log} == {f"t{i}" for i in range(6)}


def folder(path: Path) -> None:
    path.mkdir()


def fifo(path: Path) -> None:
    os.mkfifo(path)


def full(path: Path) -> None:
    path.symlink_to("/dev/full")


def missing(path: Path) -> None:
    path.symlink_to(path.parent / "no" / "such" / "folder")


@pytest.mark.parametrize("spoil", [folder, fifo, full, missing])
def test_a_log_that_cannot_be_written_leaves_the_decision(spoil: Any, hook: Hook) -> None:
    hook.write({"match": "m", "patterns": ["x"]})
    log = hook.home / "log"
    spoil(log)
    hook.options = ["--log", str(log)]
    denied, free = hook.call("x", {}), hook.call("Read", {"file_path": "a"})
    assert (denied.decision, free.decision) == ("deny", "none")
    assert "interception log" in denied.stderr
    assert "interception log" in free.stderr


def test_a_lock_that_is_never_given_back_delays_and_no_more(hook: Hook) -> None:
    import fcntl

    hook.write({"match": "m", "patterns": ["x"]})
    with (hook.home / "interceptions.jsonl").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert hook.call("x", {}).decision == "deny"
    assert len(hook.log) == 1


def test_a_relative_log_lies_beside_the_handlers_wherever_the_agent_went(hook: Hook, tmp_path: Path) -> None:
    hook.write()
    hook.options = ["--log", "calls.jsonl"]
    (tmp_path / "elsewhere").mkdir()
    hook.call("Read", {}, cwd=tmp_path / "elsewhere")
    assert (hook.home / "calls.jsonl").exists()
