"""MCP servers over stdio: a real server process, found by its tools, ended with the session."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.resources import script_module

SERVER = """
import json, os, sys, time
mode = sys.argv[1] if len(sys.argv) > 1 else ""
print("booting", file=sys.stderr, flush=True)
if mode == "chatty":
    print("not json", flush=True)
if mode == "dead":
    sys.exit(1)
open("server.pid", "w").write(str(os.getpid()))
def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
TOOLS = ["refund", "fail", "hang", "structured"]
for line in sys.stdin:
    request = json.loads(line)
    method, ident = request.get("method"), request.get("id")
    if method == "initialize":
        send(id="s1", method="ping")
        send(id="s2", method="sampling/createMessage", params={})
        version = request["params"]["protocolVersion"]
        send(id=ident, result={"protocolVersion": version, "capabilities": {}, "serverInfo": {}})
    elif method == "tools/list":
        page = int(request["params"].get("cursor") or 0)
        more = {"nextCursor": str(page + 1)} if page + 1 < len(TOOLS) else {}
        send(id=ident, result={"tools": [{"name": TOOLS[page], "inputSchema": {"type": "object"}}], **more})
    elif method == "tools/call":
        name, given = request["params"]["name"], request["params"]["arguments"]
        if name == "hang":
            time.sleep(60)
        with open("record.jsonl", "a") as record:
            record.write(json.dumps([name, given, os.environ.get("TOKEN")]) + "\\n")
        if name == "structured":
            send(id=ident, result={"structuredContent": {"ok": True}})
        else:
            text = [{"type": "text", "text": f"{name} of {given.get('amount')}"}]
            send(id=ident, result={"content": text, "isError": name == "fail"})
    elif method is None:
        open("answers.jsonl", "a").write(line)
"""


@pytest.fixture
def desk(player: Any) -> dict[str, Any]:
    """The server's configuration, under a name with a character that tool names cannot have."""
    script: Path = player.folder / "server.py"
    script.write_text(SERVER)
    return {"support.desk": {"command": sys.executable, "args": ["-I", str(script)], "env": {"TOKEN": "t-1"}}}


def test_a_permitted_call_reaches_the_server_once(player: Any, call: Any, desk: Any) -> None:
    played = player.play(call("mcp__support_desk__refund", amount=5), servers=desk)
    assert played.result == (False, "refund of 5")
    assert (player.workspace / "record.jsonl").read_text() == '["refund", {"amount": 5}, "t-1"]\n'
    assert "booting" in (player.folder / "mcp-support_desk.log").read_text()


def test_a_denied_call_never_reaches_it(player: Any, call: Any, desk: Any) -> None:
    played = player.play(call("mcp__support_desk__refund", amount=500), servers=desk, settings=player.deny("mcp__.*"))
    assert played.result == (True, "no")
    assert not (player.workspace / "record.jsonl").exists()


def test_a_rewrite_goes_to_the_server_unchecked(player: Any, call: Any, desk: Any) -> None:
    rewrite = player.pre('say("allow", updatedInput={"amount": 1, "extra": True})')
    assert (
        player.play(call("mcp__support_desk__refund", amount=5), servers=desk, settings=rewrite).result[1]
        == "refund of 1"
    )
    assert '"extra": true' in (player.workspace / "record.jsonl").read_text()


def test_the_tools_own_failure_is_an_error(player: Any, call: Any, desk: Any) -> None:
    assert player.play(call("mcp__support_desk__fail", amount=2), servers=desk).result == (True, "fail of 2")


def test_a_structured_result_is_shown_as_json(player: Any, call: Any, desk: Any) -> None:
    assert player.play(call("mcp__support_desk__structured"), servers=desk).result == (False, '{"ok":true}')


def test_a_tool_that_the_server_does_not_have_is_not_registered(player: Any, call: Any, desk: Any) -> None:
    played = player.play(call("mcp__support_desk__delete"), servers=desk, settings=player.deny("*"))
    assert "No such tool" in played.result[1]
    assert player.seen() is None


def test_a_server_that_dies_offers_nothing_and_the_session_goes_on(player: Any, call: Any, desk: Any) -> None:
    desk["support.desk"]["args"].append("dead")
    played = player.play(call("mcp__support_desk__refund"), call("Bash", command="echo on"), servers=desk)
    assert "No such tool" in played.results[0][1]
    assert played.results[1] == (False, "on")
    assert "support.desk" in played.stderr


def test_a_server_that_is_reached_by_url_is_said_not_to_be_played(player: Any, call: Any) -> None:
    played = player.play(call("mcp__web__get"), servers={"web": {"type": "http", "url": "http://127.0.0.1:9/mcp"}})
    assert "No such tool" in played.result[1]
    assert "stdio" in played.stderr


def test_what_the_server_asks_meanwhile_is_answered(player: Any, call: Any, desk: Any) -> None:
    desk["support.desk"]["args"].append("chatty")
    player.play(call("mcp__support_desk__refund", amount=1), servers=desk)
    answers = (player.workspace / "answers.jsonl").read_text()
    assert '"id": "s1", "result": {}' in answers
    assert "-32601" in answers


def test_the_server_is_ended_with_the_session(player: Any, call: Any, desk: Any) -> None:
    started = time.monotonic()
    player.play(call("mcp__support_desk__refund"), servers=desk)
    assert time.monotonic() - started < 10
    pid = (player.workspace / "server.pid").read_text()
    assert not Path(f"/proc/{pid}").exists()


def test_a_server_that_does_not_answer_is_not_waited_for_without_end(player: Any, desk: Any) -> None:
    replay = script_module("replay")
    server = replay.McpServer("desk", desk["support.desk"], str(player.workspace), str(player.folder / "log"))
    server.CALL = 0.4
    try:
        assert server.has("hang", player.env)
        with pytest.raises(replay.ToolError, match="did not answer"):
            server.call("hang", {})
    finally:
        server.end()


def test_a_hook_after_the_call_may_give_text_or_blocks_and_nothing_else(player: Any, call: Any, desk: Any) -> None:
    def shown(output: str) -> tuple[bool, str]:
        reply = f'{{"hookSpecificOutput": {{"hookEventName": "PostToolUse", "updatedToolOutput": {output}}}}}'
        settings = {"hooks": {"PostToolUse": [{"hooks": [player.hook(f"print(json.dumps({reply}))")]}]}}
        result: tuple[bool, str] = player.play(
            call("mcp__support_desk__refund"), servers=desk, settings=settings
        ).result
        return result

    assert shown('"canned"') == (False, "canned")
    assert shown('[{"type": "text", "text": "block"}]') == (False, "block")
    assert shown('{"a": 1}')[0] is True
