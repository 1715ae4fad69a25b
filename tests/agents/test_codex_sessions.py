"""Codex's record of its sessions as a transcript; the forms are those of version 0.171."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from harbor_tasks.agents.codex_sessions import transcript_of
from harbor_tasks.environments.costs import tokens_of
from harbor_tasks.environments.evidence import calls_of, end_of, keep_sessions, version_in
from harbor_tasks.environments.staging import collect_sessions
from harbor_tasks.results.transcript import read_transcript

SHELL = "Chunk ID: 1\nWall time: 0.1 seconds\nProcess exited with code {}\nOutput:\n{}"


def item(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": "response_item", "payload": {"type": kind, **more}}


def call(ident: str, name: str, given: Any, **more: Any) -> dict[str, Any]:
    return item("function_call", call_id=ident, name=name, arguments=json.dumps(given), **more)


def output(ident: str, text: Any, kind: str = "function_call_output") -> dict[str, Any]:
    return item(kind, call_id=ident, output=text)


def event(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": "event_msg", "payload": {"type": kind, **more}}


def meta(ident: str, **more: Any) -> dict[str, Any]:
    return {"type": "session_meta", "payload": {"id": ident, "cli_version": "0.171.0", "source": "exec", **more}}


def record(folder: Path, name: str, *lines: dict[str, Any]) -> None:
    path = folder / "2026" / "11" / f"rollout-{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"cut off')


def kept(folder: Path) -> Path:
    keep_sessions(folder, folder / "transcript.jsonl")
    return folder / "transcript.jsonl"


def test_calls_bear_the_names_and_inputs_of_hooks_and_what_the_model_read(tmp_path: Path) -> None:
    record(
        tmp_path, "a", meta("s1"),
        call("1", "exec_command", {"cmd": "ls", "workdir": "/"}), output("1", SHELL.format(2, "no")),
        item("custom_tool_call", call_id="2", name="apply_patch", input="*** Begin Patch"),
        output("2", "Exit code: 0\nWall time: 0 seconds\nOutput:\nfine", "custom_tool_call_output"),
        call("3", "send", {"a": 1}, namespace="mcp__my_desk"), output("3", [{"type": "input_text", "text": "sent"}]),
        call("4", "exec_command", {"cmd": "echo Process exited with code 3"}),
        output("4", SHELL.format(0, "Process exited with code 3")),
        call("5", "exec_command", {"cmd": "rm"}), output("5", "Command blocked by PreToolUse hook: No.. Command: rm"),
    )  # fmt: skip
    found = calls_of(kept(tmp_path))
    assert [(one.tool, one.input, one.is_error) for one in found] == [
        ("Bash", {"command": "ls"}, True), ("apply_patch", {"command": "*** Begin Patch"}, False),
        ("mcp__my_desk__send", {"a": 1}, False), ("Bash", {"command": "echo Process exited with code 3"}, False),
        ("Bash", {"command": "rm"}, True),
    ]  # fmt: skip
    assert found[2].result == "sent"
    assert version_in(tmp_path / "transcript.jsonl") == "0.171.0"


def test_what_is_said_how_it_ended_and_how_long_it_took(tmp_path: Path) -> None:
    record(
        tmp_path, "a", meta("s1"),
        item("message", role="developer", content=[{"type": "input_text", "text": "RULES"}]),
        item("message", role="user", content=[{"type": "input_text", "text": "do it"}]),
        item("message", role="assistant", content=[{"type": "output_text", "text": "Done."}]),
        event("task_complete", last_agent_message="Done.", duration_ms=1500),
    )  # fmt: skip
    found = read_transcript(kept(tmp_path))
    assert (found.conversation, found.final_message, found.duration_s) == ("Done.", "Done.", 1.5)
    assert "RULES" not in json.dumps(found.events)
    assert end_of(tmp_path / "transcript.jsonl") == ""


def test_an_error_of_the_program_is_the_end(tmp_path: Path) -> None:
    record(tmp_path, "a", meta("s1"), event("error", message="no such model"), event("task_complete"))
    assert end_of(kept(tmp_path)) == "error: no such model"


def test_a_program_of_the_models_stands_for_the_calls_in_it(tmp_path: Path) -> None:
    run = {"type": "CommandExecution", "id": "exec-1", "command": ["/bin/bash", "-c", "ls"], "aggregated_output": "x",
           "status": "completed"}  # fmt: skip
    record(
        tmp_path, "a", meta("s1"), item("custom_tool_call", call_id="1", name="exec", input="await tools.x()"),
        event("item_completed", item=run),
        event("item_completed", item={"type": "McpToolCall", "id": "exec-2", "server": "my-desk", "tool": "send",
                                      "arguments": {"a": 1}, "status": "failed", "error": {"content": "down"}}),
        output("1", "Script completed", "custom_tool_call_output"),
        call("2", "exec_command", {"cmd": "ls"}), event("item_completed", item={**run, "id": "2"}),
        output("2", SHELL.format(0, "")),
    )  # fmt: skip
    found = calls_of(kept(tmp_path))
    assert [(one.id, one.tool, one.is_error) for one in found] == [
        ("exec-1", "Bash", False), ("exec-2", "mcp__my_desk__send", True), ("2", "Bash", False)
    ]  # fmt: skip
    assert "await tools.x()" in read_transcript(tmp_path / "transcript.jsonl").conversation


def test_waiting_for_output_is_no_call_and_typing_is_one(tmp_path: Path) -> None:
    record(
        tmp_path, "a", meta("s1"), call("1", "write_stdin", {"session_id": 1, "chars": ""}), output("1", "more"),
        call("2", "write_stdin", {"session_id": 1, "chars": "rm x\n"}), output("2", SHELL.format(0, "")),
    )  # fmt: skip
    assert [one.id for one in calls_of(kept(tmp_path))] == ["2"]


def test_a_search_at_the_provider_is_a_call_that_ran(tmp_path: Path) -> None:
    record(tmp_path, "a", meta("s1"), item("web_search_call", id="w1", status="completed", action={"query": "q"}))
    found = read_transcript(kept(tmp_path), None, ["WebSearch"])
    assert [(one.name, one.input) for one in found.not_logged] == [("WebSearch", {"query": "q"})]


def test_a_question_in_place_of_whose_answers_a_reason_stands_did_not_work(tmp_path: Path) -> None:
    record(
        tmp_path, "a", meta("s1"), call("1", "request_user_input", {"questions": []}), output("1", '{"answers":{}}'),
        call("2", "request_user_input", {"questions": []}), output("2", "Nobody is here."),
    )  # fmt: skip
    assert [one.is_error for one in calls_of(kept(tmp_path))] == [False, True]


def test_subagents_calls_name_the_call_that_started_them(tmp_path: Path) -> None:
    source = {"subagent": {"thread_spawn": {"parent_thread_id": "s1"}}}
    record(tmp_path, "0-child", meta("s2", source=source, parent_thread_id="s1"),
           call("11", "exec_command", {"cmd": "ls"}), output("11", SHELL.format(0, "")))  # fmt: skip
    record(tmp_path, "1-main", meta("s1"), call("1", "spawn_agent", {"message": "go"}, namespace="multi_agent_v1"),
           output("1", '{"agent_id": "s2"}'))  # fmt: skip
    found = read_transcript(kept(tmp_path))
    assert [(one.id, one.name, one.agent) for one in found.calls] == [("1", "spawn_agent", None), ("11", "Bash", "1")]


def test_newer_subagents_are_known_by_their_path(tmp_path: Path) -> None:
    source = {"subagent": {"thread_spawn": {"parent_thread_id": "s1", "agent_path": "/root" + "/beans"}}}
    record(tmp_path, "0-child", meta("s2", source=source, parent_thread_id="s1"),
           call("11", "exec_command", {"cmd": "ls"}), output("11", SHELL.format(0, "")))  # fmt: skip
    record(tmp_path, "1-main", meta("s1"), call("1", "spawn_agent", {"message": "go"}, namespace="collaboration"),
           output("1", '{"task_name": "/root' + '/beans"}'))  # fmt: skip
    assert [one.agent for one in read_transcript(kept(tmp_path)).calls] == [None, "1"]


def test_no_record_is_an_empty_transcript(tmp_path: Path) -> None:
    assert list(transcript_of(tmp_path / "none")) == []


def test_what_the_agent_made_of_the_record_is_not_followed_or_waited_for(tmp_path: Path) -> None:
    given, target = tmp_path / "given", tmp_path / "sessions"
    record(given, "a", meta("s1"), call("1", "exec_command", {"cmd": "ls"}), output("1", "a"))
    os.mkfifo(given / "rollout-b.jsonl")
    (given / "rollout-c.jsonl").symlink_to("/dev/zero")
    (given / "rollout-d.jsonl").write_text("[" * 100_000 + "\n")
    target.symlink_to(tmp_path / "elsewhere")
    assert collect_sessions(given, target) == ("not kept of the program's own record: 1 files or folders",)
    assert not (tmp_path / "elsewhere").exists()
    assert [one.id for one in calls_of(kept(target))] == ["1"]
    given.rename(tmp_path / "away")
    given.symlink_to(tmp_path / "away")
    collect_sessions(given, target)
    keep_sessions(target, tmp_path / "transcript.jsonl")
    assert calls_of(tmp_path / "transcript.jsonl") == []
    given.unlink()
    assert collect_sessions(given, target) == ()
    keep_sessions(target, tmp_path / "transcript.jsonl")


def test_tokens_of_each_session_are_told_with_its_model(tmp_path: Path) -> None:
    def used(given: int, cached: int, written: int) -> dict[str, Any]:
        total = {"input_tokens": given, "cached_input_tokens": cached, "output_tokens": written}
        return event("token_count", info={"total_token_usage": total})

    model = {"type": "turn_context", "payload": {"model": "gpt-5.5"}}
    record(tmp_path, "a", meta("s1"), model, used(10, 0, 1), event("token_count", info=None), used(100, 40, 7))
    record(tmp_path, "b", meta("s2"), {"type": "turn_context", "payload": {"model": "mini"}}, used(5, 9, 0))
    record(tmp_path, "c", meta("s3"), event("token_count", info={"total_token_usage": {"input_tokens": "9"}}))
    assert tokens_of(kept(tmp_path)) == {
        "gpt-5.5": {"input_tokens": 60, "output_tokens": 7, "cache_read_input_tokens": 40},
        "mini": {"cache_read_input_tokens": 9},
    }
