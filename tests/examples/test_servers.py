"""The examples' own programs: MCP servers over real pipes, and the script that files an issue."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from harbor_tasks.resources import resource

DESK = resource("examples", "support-desk", "servers", "desk.py")
TRACKER = resource("examples", "issue-tracker", "servers", "tracker.py")
SUBMIT = resource("examples", "issue-tracker", ".claude", "skills", "file-issue", "scripts", "submit.py")


class Server:
    """One MCP server as a process; ``ask`` sends a request and returns the whole reply."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.sent = 0

    def send(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        reply = json.loads(self.process.stdout.readline())
        assert isinstance(reply, dict)
        return reply

    def ask(self, method: str, **params: object) -> dict[str, Any]:
        self.sent += 1
        self.send(json.dumps({"jsonrpc": "2.0", "id": self.sent, "method": method, "params": params}))
        reply = self.read()
        assert (reply["jsonrpc"], reply["id"]) == ("2.0", self.sent)
        return reply

    def use(self, tool: str, **arguments: object) -> tuple[str, bool]:
        result = self.ask("tools/call", name=tool, arguments=arguments)["result"]
        return result["content"][0]["text"], result["isError"]


@contextmanager
def started(script: Path, folder: Path) -> Iterator[Server]:
    command = [sys.executable, "-I", str(script)]
    with subprocess.Popen(
        command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
    ) as process:
        server = Server(process)
        watchdog = Timer(30, process.kill)  # a server that does not answer ends the test, not the day
        watchdog.start()
        try:
            assert server.ask("initialize", protocolVersion="2025-03-26", capabilities={})["result"] == {
                "protocolVersion": "2025-03-26",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": script.stem, "version": "1.0"},
            }
            server.send('{"jsonrpc": "2.0", "method": "notifications/initialized"}')
            yield server
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(10) == 0
        finally:
            watchdog.cancel()
            process.kill()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


@pytest.mark.parametrize("script", [DESK, TRACKER], ids=["desk", "tracker"])
def test_a_server_speaks_the_protocol(script: Path, tmp_path: Path) -> None:
    with started(script, tmp_path) as server:
        assert server.ask("ping")["result"] == {}
        tools = server.ask("tools/list")["result"]["tools"]
        assert all(tool["description"] and tool["inputSchema"]["type"] == "object" for tool in tools)
        for tool in tools:
            assert set(tool["inputSchema"]["required"]) <= set(tool["inputSchema"]["properties"])
        assert server.ask("resources/list")["error"]["code"] == -32601
        assert server.use("no_such_tool")[1]
        server.send("this is not JSON")
        assert server.read()["error"]["code"] == -32700
        server.send("[]")
        assert server.read()["error"]["code"] == -32700
        assert server.ask("ping")["result"] == {}


def test_the_desk_records_each_thing_that_it_does(tmp_path: Path) -> None:
    (tmp_path / "desk").mkdir()
    (tmp_path / "desk/orders.json").write_text('{"A-1": {"total": 10}}')
    refund = {"order_id": "A-1", "amount": 900.0, "currency": "USD"}
    with started(DESK, tmp_path) as server:
        assert server.use("lookup_order", order_id="A-1") == ('{\n "total": 10\n}', False)
        assert server.use("lookup_order", order_id="A-2") == ("No such order.", True)
        assert lines(tmp_path / "desk/refunds.jsonl") == []
        assert server.use("process_refund", **refund) == ("Refunded.", False)
        assert server.use("process_refund", **refund) == ("Refunded.", False)
        server.use("add_note", order_id="A-1", body="b")
        server.use("escalate_to_human", order_id="A-1", summary="s")
        server.use("close_account", customer="c")
    assert lines(tmp_path / "desk/refunds.jsonl") == [refund, refund], "the desk itself must refuse nothing"
    assert lines(tmp_path / "desk/notes.jsonl") == [{"order_id": "A-1", "body": "b"}]
    assert lines(tmp_path / "desk/escalations.jsonl") == [{"order_id": "A-1", "summary": "s"}]
    assert lines(tmp_path / "desk/closed.jsonl") == [{"customer": "c"}]


def test_a_desk_without_orders_says_so_and_goes_on(tmp_path: Path) -> None:
    with started(DESK, tmp_path) as server:
        text, failed = server.use("lookup_order", order_id="A-1")
        assert failed
        assert "not available" in text
        assert server.ask("ping")["result"] == {}


def seed(folder: Path) -> None:
    (folder / "tracker").mkdir()
    issue = {"key": "CAD-7", "project": "CAD", "title": "Export of plans fails", "body": "PDF only"}
    (folder / "tracker/issues.json").write_text(json.dumps([issue]))


def test_the_tracker_goes_on_where_it_stopped(tmp_path: Path) -> None:
    seed(tmp_path)
    with started(TRACKER, tmp_path) as server:
        assert [i["key"] for i in json.loads(server.use("search", query="pdf export hangs")[0])] == ["CAD-7"]
        assert server.use("search", query="colours")[0] == "[]"
        assert lines(tmp_path / "tracker/log.jsonl") == [], "reading leaves no line"
        assert server.use("create_issue", project="CAD", title="Undo lost") == ("CAD-8", False)
        assert server.use("create_issue", project="NEW", title="First") == ("NEW-1", False)
        assert server.use("add_comment", key="CAD-7", body="me too") == ("done", False)
        assert server.use("add_comment", key="CAD-99", body="x") == ("no issue CAD-99", True)
    with started(TRACKER, tmp_path) as server:
        assert json.loads(server.use("get_issue", key="CAD-7")[0])["comments"] == ["me too"]
        assert server.use("delete_issue", key="CAD-8") == ("done", False)
        assert server.use("get_issue", key="CAD-8") == ("no issue CAD-8", True)
    did = [(entry["did"], entry["door"], entry["key"]) for entry in lines(tmp_path / "tracker/log.jsonl")]
    assert did == [
        ("create", "mcp", "CAD-8"),
        ("create", "mcp", "NEW-1"),
        ("comment", "mcp", "CAD-7"),
        ("delete", "mcp", "CAD-8"),
    ]


def submit(folder: Path, url: str | None) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if k != "TRACKER_URL"} | ({} if url is None else {"TRACKER_URL": url})
    command = [sys.executable, str(SUBMIT), "CAD"]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, encoding="utf-8", timeout=60, check=False)


def test_the_script_files_through_the_other_door(tmp_path: Path) -> None:
    seed(tmp_path)
    (tmp_path / "triage.json").write_text(json.dumps({"title": "Küche", "severity": "minor", "duplicate_of": None}))
    with started(TRACKER, tmp_path) as server:
        done = submit(tmp_path, "http://localhost")
        assert (done.stdout, done.stderr, done.returncode) == ("CAD-8\n", "", 0)
        assert json.loads(server.use("get_issue", key="CAD-8")[0])["title"] == "Küche"
    issue = {"project": "CAD", "title": "Küche", "severity": "minor"}
    assert lines(tmp_path / "tracker/log.jsonl") == [
        {"did": "create", "door": "http", "key": "CAD-8", "issue": issue},
    ]
    assert lines(tmp_path / "tracker/requests.jsonl") == [{"host": "localhost", "issue": issue}]
    assert not (tmp_path / "tracker/port").exists(), "a stopped tracker leaves no address behind"


def test_a_request_elsewhere_is_on_record_before_it_is_sent(tmp_path: Path) -> None:
    (tmp_path / "triage.json").write_text('{"title": "t"}')
    done = submit(tmp_path, "http://nowhere.invalid:1")
    assert done.returncode == 1
    assert done.stderr.startswith("submit.py: ")
    assert [line["host"] for line in lines(tmp_path / "tracker/requests.jsonl")] == ["nowhere.invalid"]


def test_the_script_needs_an_address_and_a_triage(tmp_path: Path) -> None:
    assert "No such file" in submit(tmp_path, "http://localhost").stderr
    (tmp_path / "triage.json").write_text('{"title": "t"}')
    done = submit(tmp_path, None)
    assert (done.returncode, "TRACKER_URL" in done.stderr) == (1, True)
    assert not (tmp_path / "tracker").exists()


def test_the_tracker_answers_bad_requests_without_filing(tmp_path: Path) -> None:
    with started(TRACKER, tmp_path) as server:
        assert server.ask("ping")["result"] == {}
        port = int((tmp_path / "tracker/port").read_text())
        for path, body, status in (("/issues", "no", 400), ("/issues", "[]", 400), ("/other", '{"title": "t"}', 404)):
            to = HTTPConnection("127.0.0.1", port, timeout=10)
            to.request("POST", path, body)
            answer = to.getresponse()
            assert (answer.status, "error" in json.loads(answer.read())) == (status, True)
            to.close()
    assert lines(tmp_path / "tracker/log.jsonl") == []
