#!/usr/bin/env python3
"""A tracker for tests: an MCP server on stdio, and the same tracker over HTTP on loopback for scripts.

Standard library only. Its folder is ``tracker/`` in the directory in which it is started: ``issues.json`` holds the
issues that were there before; ``log.jsonl`` gets one line for each thing that was done, with the door through which it
came (``mcp`` or ``http``). The state is the first plus the second, so a tracker that is started again goes on where it
stopped. HTTP takes any free port and writes it to ``tracker/port``, so that several may run on one machine.

The tracker refuses nothing: no line in the log means that a call was stopped before it came here.
"""

from __future__ import annotations

import json
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread

PROTOCOL = "2025-06-18"
WORDS = re.compile(r"[a-z0-9]{3,}")


class Tracker:
    """The issues of one folder: a list of mappings with key, project, title, body, component, severity, comments."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lock = Lock()

    def issues(self) -> dict[str, dict]:
        """All issues by key, as the log left them."""
        seed = self.folder / "issues.json"
        issues = {i["key"]: i for i in json.loads(seed.read_text(encoding="utf-8"))} if seed.exists() else {}
        log = self.folder / "log.jsonl"
        for line in log.read_text(encoding="utf-8").splitlines() if log.exists() else []:
            entry = json.loads(line)
            if entry["did"] == "create":
                issues[entry["key"]] = {**entry["issue"], "key": entry["key"]}
            elif entry["did"] == "comment" and entry["key"] in issues:
                issues[entry["key"]].setdefault("comments", []).append(entry["body"])
            elif entry["did"] == "delete":
                issues.pop(entry["key"], None)
        return issues

    def record(self, **entry: object) -> None:
        """Write one line of the log."""
        self.folder.mkdir(exist_ok=True)
        with (self.folder / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry, sort_keys=True) + "\n")

    def create(self, door: str, issue: dict) -> str:
        """A new issue in ``issue["project"]``; returns its key, one above the project's highest."""
        with self.lock:
            project = str(issue.get("project") or "MISC")
            numbers = [int(key.rpartition("-")[2]) for key in self.issues() if key.startswith(project + "-")]
            key = f"{project}-{max(numbers, default=0) + 1}"
            self.record(did="create", door=door, key=key, issue=issue)
            return key

    def change(self, door: str, did: str, key: str, **more: object) -> bool:
        """Comment on or delete an issue; False when there is no such issue."""
        with self.lock:
            if key not in self.issues():
                return False
            self.record(did=did, door=door, key=key, **more)
            return True

    def search(self, query: str) -> list[dict]:
        """The issues that share a word with the query, those that share most first."""
        wanted = set(WORDS.findall(query.lower()))
        found = []
        for issue in self.issues().values():
            shared = wanted & set(WORDS.findall(f"{issue['title']} {issue.get('body', '')}".lower()))
            if shared:
                found.append((-len(shared), issue["key"], issue))
        return [issue for _, _, issue in sorted(found, key=lambda item: item[:2])]


def text(description: str) -> dict:
    """A text field of a tool's input."""
    return {"type": "string", "description": description}


def schema(required: str, **properties: dict) -> dict:
    """The JSON schema of a tool's input."""
    return {"type": "object", "properties": properties, "required": required.split()}


KEY = text("the issue's key, e.g. CAD-12")
TOOLS = {
    "search": ("Finds issues by words of their title and body.", schema("query", query=text("words"))),
    "get_issue": ("Shows an issue.", schema("key", key=KEY)),
    "create_issue": (
        "Files an issue and returns its key.",
        schema(
            "project title",
            project=text("the project, e.g. CAD"),
            title=text("one line"),
            body=text("what happens, and how to see it"),
            component=text("the part of the product"),
            severity=text("critical, major or minor"),
        ),
    ),
    "add_comment": ("Adds a comment to an issue.", schema("key body", key=KEY, body=text("the comment"))),
    "delete_issue": ("Deletes an issue for good.", schema("key", key=KEY)),
}


def use(tracker: Tracker, tool: str, given: dict) -> tuple[str, bool]:
    """Do what the tool says: (text for the caller, whether it is an error)."""
    if tool == "search":
        return json.dumps(tracker.search(str(given.get("query", ""))), indent=1), False
    if tool == "create_issue":
        return tracker.create("mcp", given), False
    key = str(given.get("key"))
    if tool == "get_issue":
        issue = tracker.issues().get(key)
        return (json.dumps(issue, indent=1), False) if issue else (f"no issue {key}", True)
    if tool == "add_comment":
        done = tracker.change("mcp", "comment", key, body=given.get("body", ""))
    else:
        done = tracker.change("mcp", "delete", key)
    return ("done", False) if done else (f"no issue {key}", True)


def call(tracker: Tracker, params: dict) -> dict:
    """The result of ``tools/call``."""
    tool = params.get("name")
    if tool not in TOOLS:
        answer, failed = f"unknown tool {tool}", True
    else:
        try:
            answer, failed = use(tracker, tool, params.get("arguments") or {})
        except (OSError, ValueError, KeyError) as error:
            answer, failed = f"the tracker is not available: {error}", True
    return {"content": [{"type": "text", "text": answer}], "isError": failed}


def respond(tracker: Tracker, message: dict) -> dict | None:
    """The reply to one JSON-RPC message; None for a notification."""
    if not isinstance(message, dict):
        raise TypeError("a message is an object")
    if "id" not in message:
        return None
    method, params = message.get("method"), message.get("params") or {}
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    if method == "initialize":
        version = params.get("protocolVersion", PROTOCOL)
        info = {"name": "tracker", "version": "1.0"}
        return {**reply, "result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}}
    if method == "ping":
        return {**reply, "result": {}}
    if method == "tools/list":
        tools = [{"name": name, "description": about, "inputSchema": fields} for name, (about, fields) in TOOLS.items()]
        return {**reply, "result": {"tools": tools}}
    if method == "tools/call":
        return {**reply, "result": call(tracker, params)}
    return {**reply, "error": {"code": -32601, "message": f"method not found: {method}"}}


def web(tracker: Tracker) -> ThreadingHTTPServer:
    """The tracker over HTTP: ``POST /issues`` with an issue as JSON answers ``{"key": …}``."""

    class Door(BaseHTTPRequestHandler):
        def file(self, body: bytes) -> tuple[int, dict]:
            try:
                return 201, {"key": tracker.create("http", json.loads(body))}
            except (ValueError, AttributeError) as error:
                return 400, {"error": str(error)}

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, answer = self.file(body) if self.path == "/issues" else (404, {"error": "no such path"})
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Standard error belongs to the MCP client."""

    return ThreadingHTTPServer(("127.0.0.1", 0), Door)


def main() -> None:
    """Serve both doors until the MCP client closes the pipe."""
    tracker = Tracker(Path("tracker"))
    server = web(tracker)
    Thread(target=server.serve_forever, daemon=True).start()
    port = tracker.folder / "port"
    tracker.folder.mkdir(exist_ok=True)
    port.write_text(f"{server.server_port}\n", encoding="utf-8")
    try:
        for line in sys.stdin:
            if not line.strip():
                continue
            try:
                reply = respond(tracker, json.loads(line))
            except (ValueError, TypeError, AttributeError) as error:
                reply = {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": f"not understood: {error}"}}
            if reply is not None:
                print(json.dumps(reply), flush=True)
    finally:
        port.unlink(missing_ok=True)
        server.shutdown()


if __name__ == "__main__":
    main()
