"""Which calls went around the interceptor: the transcript against the log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.environments.evidence import (
    calls_of,
    cost_of,
    end_of,
    gone_around,
    input_hash,
    keep_transcript,
    version_in,
)
from harbor_tasks.results.transcript import read_transcript

SETTINGS = {
    "hooks": {"PreToolUse": [{"matcher": "Bash|mcp__desk__.*", "hooks": [{"type": "command", "command": "x"}]}]}
}
USE = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "curl -X POST größe"}}
PASSED = {"tool_use_id": "t1", "decision": "none", "input_sha256": input_hash(USE["input"])}
DENIED = {**PASSED, "decision": "deny", "reason": "Not permitted here: uploads"}


def around(
    tmp_path: Path, result: Any = None, *log: dict[str, Any], use: dict[str, Any] = USE, is_error: bool = False
) -> list[str]:
    """What is found for one call with this result and these lines in the log."""
    lines: list[Any] = [{"type": "assistant", "message": {"content": [use]}}]
    if result is not None:
        block = {"type": "tool_result", "tool_use_id": use["id"], "content": result, "is_error": is_error}
        lines.append({"type": "user", "message": {"content": [block]}})
    for name, content in (("transcript", lines), ("log", log)):
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in content))
    return gone_around(tmp_path / "transcript", tmp_path / "log", SETTINGS)


def test_a_call_that_passed_the_interceptor_is_in_order(tmp_path: Path) -> None:
    assert around(tmp_path, "ok", PASSED) == []
    assert around(tmp_path, [{"type": "text", "text": "ok"}], {**PASSED, "decision": "allow"}) == []


def test_a_call_that_ran_without_a_line_is_named(tmp_path: Path) -> None:
    [text] = around(tmp_path, "ok")
    assert "t1" in text
    assert "without passing" in text


@pytest.mark.parametrize("change", [{"tool_use_id": "t2"}, {"input_sha256": input_hash({"command": "ls"})}])
def test_another_calls_line_does_not_count(tmp_path: Path, change: dict[str, str]) -> None:
    assert len(around(tmp_path, "ok", {**PASSED, **change})) == 1


def test_a_failing_command_counts_as_one_that_ran(tmp_path: Path) -> None:
    assert len(around(tmp_path, "Exit code 1\nPreToolUse: no", is_error=True)) == 1


@pytest.mark.parametrize(
    "refusal",
    [
        "<tool_use_error>Error: No such tool available: Bash</tool_use_error>",
        "Permission to use Bash has been denied.",
        "PreToolUse:Bash hook error: [python3 …]: refused",
    ],
)
def test_a_call_that_the_program_itself_refused_needs_no_line(tmp_path: Path, refusal: str) -> None:
    assert around(tmp_path, refusal, is_error=True) == []
    assert len(around(tmp_path, refusal, is_error=False)) == 1  # a tool that prints it did run


def test_a_call_without_a_result_is_not_known_to_have_run(tmp_path: Path) -> None:
    assert around(tmp_path) == []


def test_a_denied_call_shows_the_denial_or_it_ran(tmp_path: Path) -> None:
    assert around(tmp_path, DENIED["reason"], DENIED, is_error=True) == []
    [text] = around(tmp_path, "uploaded", DENIED)
    assert "although" in text
    assert len(around(tmp_path, f"Exit code 1\n{DENIED['reason']}", DENIED, is_error=True)) == 1


def test_a_tool_that_no_matcher_covers_needs_no_line(tmp_path: Path) -> None:
    assert around(tmp_path, "text", use={**USE, "name": "Read"}) == []


def test_lines_that_are_no_json_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "transcript"
    path.write_bytes(b'\xff\xfe\n[1]\n"a"\n{"type": "result", "total_cost_usd": 0.25}\n{"type": "assis')
    assert calls_of(path) == []
    assert cost_of(path) == 0.25
    assert cost_of(tmp_path / "missing") is None


def test_the_hash_is_of_the_input_whatever_the_order_of_its_keys() -> None:
    assert input_hash({"a": 1, "b": "ü"}) == input_hash({"b": "ü", "a": 1}) != input_hash({"a": 1, "b": "u"})


@pytest.mark.parametrize(
    ("tool", "told", "seen", "fits"),
    [
        ("Write", {"file_path": "a", "content": "x"}, {"file_path": "/w/a", "content": "x"}, True),
        ("Write", {"file_path": "/w/b/../a", "content": "x"}, {"file_path": "/w/a", "content": "x"}, True),
        ("Read", {"file_path": "~/a"}, {"file_path": "/home/a"}, True),
        ("Write", {"file_path": "/w/a", "content": "x"}, {"file_path": "/w/a", "content": "y"}, False),
        ("Bash", {"command": "a", "file_path": "a"}, {"command": "b"}, False),
        (
            "AskUserQuestion", {"questions": [{"question": "Q"}]},
            {"questions": [{"question": "Q", "multiSelect": False}]}, True,
        ),
        (
            "AskUserQuestion", {"questions": [{"question": "Q"}]},
            {"questions": [{"question": "Other", "multiSelect": False}]}, False,
        ),
    ],
)  # fmt: skip
def test_an_input_that_the_program_restates_for_its_hooks_is_the_same_input(
    tmp_path: Path, tool: str, told: dict[str, Any], seen: dict[str, Any], fits: bool
) -> None:
    settings = {"hooks": {"PreToolUse": [{"matcher": "*", "hooks": [{"type": "command", "command": "x"}]}]}}
    use = {"type": "tool_use", "id": "t1", "name": tool, "input": told}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "ok"}
    lines = [{"type": "assistant", "message": {"content": [use]}}, {"type": "user", "message": {"content": [result]}}]
    (tmp_path / "transcript").write_text("".join(json.dumps(line) + "\n" for line in lines))
    line = {"tool_use_id": "t1", "tool": tool, "decision": "none", "input_sha256": input_hash(seen)}
    (tmp_path / "log").write_text(json.dumps(line) + "\n")
    assert (gone_around(tmp_path / "transcript", tmp_path / "log", settings) == []) is fits
    seen_by_report = read_transcript(tmp_path / "transcript", tmp_path / "log", [tool])
    assert (not seen_by_report.changed, not seen_by_report.not_logged) == (fits, fits)


def test_what_the_program_says_of_itself_is_read(tmp_path: Path) -> None:
    lines = [
        {"type": "system", "subtype": "init", "claude_code_version": "2.1.250", "session_id": "s"},
        {"type": "result", "subtype": "success", "total_cost_usd": 0.25, "session_id": "s"},
        {"type": "system", "subtype": "init", "claude_code_version": "2.1.250", "session_id": "s"},
        {
            "type": "result", "subtype": "error_max_budget_usd", "is_error": True, "total_cost_usd": 0.5,
            "session_id": "s",
        },
    ]  # fmt: skip
    output, path = tmp_path / "stdout.txt", tmp_path / "transcript.jsonl"
    output.write_text("a warning\n" + "".join(json.dumps(line) + "\n" for line in lines) + '{"type": "cut o')
    keep_transcript(output, path)
    assert [json.loads(line) for line in path.read_text().splitlines()] == lines
    assert version_in(path) == "2.1.250"
    assert cost_of(path) == 0.5  # within a session the last is the whole
    assert end_of(path) == "error_max_budget_usd"
    path.write_text(json.dumps(lines[1]))
    assert end_of(path) == ""
    assert version_in(path) is None
