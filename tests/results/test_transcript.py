"""Transcripts and interception logs, put together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.results.transcript import input_sha256, read_transcript

from .kit import write_lines


def use(ident: str, name: str, parent: str | None = None, **given: Any) -> dict[str, Any]:
    """A message with one tool call, in Claude Code's form."""
    block = {"type": "tool_use", "id": ident, "name": name, "input": given}
    return {"type": "assistant", "message": {"role": "assistant", "content": [block]}, "parent_tool_use_id": parent}


def got(ident: str, content: Any = "done", *, failed: bool = False) -> dict[str, Any]:
    """Its result."""
    block = {"type": "tool_result", "tool_use_id": ident, "content": content, "is_error": failed}
    return {"type": "user", "message": {"role": "user", "content": [block]}}


def line(ident: str, tool: str, decision: str, given: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A line of the log."""
    return {"tool_use_id": ident, "tool": tool, "decision": decision, "input_sha256": input_sha256(given), **more}


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Where the transcript and the log lie."""
    return tmp_path / "transcript.jsonl", tmp_path / "interceptions.jsonl"


def test_what_is_not_there_is_empty(files: tuple[Path, Path]) -> None:
    found = read_transcript(*files)
    assert (found.calls, found.log, found.cost_usd, found.bad_lines, found.conversation) == ((), (), None, 0, "")


def test_a_call_is_joined_with_its_line_in_the_log(files: tuple[Path, Path]) -> None:
    write_lines(
        files[0],
        {"type": "system", "subtype": "init", "session_id": "s", "tools": ["Bash"]},
        use("t1", "Bash", command="git push"), got("t1", "Not permitted here: pushes", failed=True),
        use("t2", "Agent", prompt="x"), use("t3", "Read", "t2", file_path="a"),
        got("t3", [{"type": "text", "text": "A"}]),
        {"type": "result", "total_cost_usd": 0.25, "num_turns": 2, "duration_ms": 500, "result": "over"},
    )  # fmt: skip
    write_lines(files[1], line("t1", "Bash", "deny", {"command": "git push"}, reason="Not permitted here: pushes"))
    found = read_transcript(*files)
    shown = [(c.name, c.decision, c.logged, c.agent, c.result) for c in found.calls]
    assert shown == [
        ("Bash", "deny", True, None, "Not permitted here: pushes"),
        ("Agent", "none", False, None, None),
        ("Read", "none", False, "t2", "A"),
    ]
    assert (found.cost_usd, found.turns, found.duration_s, found.final_message) == (0.25, 2, 0.5, "over")


def test_an_input_is_shown_as_proposed_and_as_the_tool_got_it(files: tuple[Path, Path]) -> None:
    asked: dict[str, Any] = {"questions": [{"question": "Go on?"}]}
    refused = "<tool_use_error>InputValidationError: Bash failed</tool_use_error>"
    write_lines(
        files[0], use("t1", "mcp__a__note", text="hi"), got("t1"), use("t2", "AskUserQuestion", **asked), got("t2"),
        use("t3", "Bash", command="ls"), got("t3"), use("t4", "Bash", command="git push"), got("t4", "no", failed=True),
        use("t5", "Bash", cmd="ls"), got("t5", refused, failed=True), use("t6", "Bash", command="sleep 9"),
        use("t7", "Bash", command="false"), got("t7", "exit code 1", failed=True),
    )  # fmt: skip
    write_lines(
        files[1], line("t1", "mcp__a__note", "rewrite", {"text": "hi"}, updated_input={"text": "[bot] hi"}),
        line("t2", "AskUserQuestion", "answer", asked, updated_input={**asked, "answers": {"Go on?": "No"}}),
        line("t3", "Bash", "none", {"command": "ls"}), line("t4", "Bash", "deny", {"command": "git push"}),
    )  # fmt: skip
    found = read_transcript(*files)
    assert [call.input_as_run for call in found.calls] == [
        {"text": "[bot] hi"}, {**asked, "answers": {"Go on?": "No"}}, {"command": "ls"}, None, None,
        {"command": "sleep 9"}, {"command": "false"},
    ]  # fmt: skip
    assert [call.input for call in found.calls][:2] == [{"text": "hi"}, asked]
    assert found.changed == ()


def test_a_record_that_has_the_input_as_run_alone_is_about_the_rewritten_call(files: tuple[Path, Path]) -> None:
    """As Codex's, of the calls that a program of its model's makes."""
    rewritten = line("t1", "Bash", "rewrite", {"command": "ls"}, updated_input={"command": "ls -l"})
    write_lines(files[0], use("t1", "Bash", command="ls -l"), got("t1"), use("t2", "Bash", command="rm x"), got("t2"))
    write_lines(files[1], rewritten, {**rewritten, "tool_use_id": "t2"})
    found = read_transcript(*files, patterns=["Bash"])
    assert [call.id for call in found.not_logged] == ["t2"]
    assert [call.id for call in found.changed] == ["t2"]


def test_a_covered_call_without_a_line_and_a_line_without_a_call_are_flagged(files: tuple[Path, Path]) -> None:
    write_lines(files[0], use("t1", "Bash", command="ls"), got("t1"), use("t2", "Read", file_path="a"), got("t2"))
    write_lines(files[1], line("t9", "mcp__x__y", "deny", {}), line("t8", "Bash", "none", {}))
    found = read_transcript(*files, patterns=["Bash"])
    assert [c.id for c in found.not_logged] == ["t1"]
    assert [entry["tool_use_id"] for entry in found.not_seen] == ["t9", "t8"]
    assert read_transcript(*files).not_logged == ()


def test_a_call_whose_input_is_not_the_one_that_the_hook_saw_is_flagged(files: tuple[Path, Path]) -> None:
    write_lines(files[0], use("t1", "Bash", command="rm -r x"), use("t2", "Bash", command="Größe"))
    logged = [line("t1", "Bash", "none", {"command": "ls"}), line("t2", "Bash", "none", {"command": "Größe"})]
    write_lines(files[1], *logged)
    assert [c.id for c in read_transcript(*files).changed] == ["t1"]


def test_lines_that_cannot_be_read_are_counted(files: tuple[Path, Path]) -> None:
    write_lines(files[0], "npm notice", use("t1", "Bash", command="ls"), '{"type": "assistant", "mess')
    write_lines(files[1], "", "null", line("t1", "Bash", "none", {"command": "ls"}))
    found = read_transcript(*files)
    assert (found.bad_lines, found.bad_log_lines, len(found.calls)) == (2, 1, 1)


def test_the_strongest_of_several_lines_of_a_call_counts(files: tuple[Path, Path]) -> None:
    write_lines(files[0], use("t1", "Bash", command="ls"))
    write_lines(files[1], *(line("t1", "Bash", decision, {"command": "ls"}) for decision in ("none", "deny", "allow")))
    assert read_transcript(*files).calls[0].decision == "deny"


def test_a_file_that_a_rule_keeps_the_program_from_is_a_denied_call(files: tuple[Path, Path]) -> None:
    """Claude Code refuses it before any hook is asked, and its summary does not name it."""
    refusal = "<tool_use_error>File is in a directory that is denied by your permission settings.</tool_use_error>"
    write_lines(
        files[0], use("t1", "Read", file_path="a"), got("t1", refusal, failed=True),
        use("t2", "Bash", command="cat a"), got("t2", refusal),
    )  # fmt: skip
    assert [call.decision for call in read_transcript(*files).calls] == ["deny", "none"]
