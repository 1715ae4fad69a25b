#!/usr/bin/env python3
"""MCP servers that are programs, behind URLs: for an agent program that starts none by itself (Codex, when another
process runs its commands).

`start` forks a process that listens on loopback, and returns what the agent program is to be told. Each session has a
server process of its own. Who asks without the token, which stands in a private file of the agent program's, gets
nothing. Notifications of a server are dropped and its own requests refused: there is no way back to the client but
answers. Standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import hmac
import json
import os
import queue
import secrets
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Dict, List, Mapping, Optional

Json = Dict[str, Any]
MAX_BYTES = 64 << 20
NO_METHOD = -32601
GONE = -32000


def start(servers: Mapping[str, List[str]]) -> Dict[str, Json]:
    """Name -> url and headers, for name -> command line. The process that listens ends with its parent."""
    token = secrets.token_hex(32)
    parent = os.getpid()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    told = {
        name: {
            "url": "http://127.0.0.1:%d/%d" % (server.server_address[1], number),
            "http_headers": {"Authorization": "Bearer " + token},
        }
        for number, name in enumerate(servers)
    }
    if os.fork():
        server.socket.close()
        return told
    os.environ.pop("OPENAI_API_KEY", None)
    os.environ.pop("CODEX_API_KEY", None)
    with open(os.devnull, "r+b") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(nothing.fileno(), 1)
    Handler.token, Handler.commands = token, list(servers.values())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    gone = threading.Event()
    while os.getppid() == parent:
        gone.wait(1)
    for session in list(Handler.sessions.values()):
        session.end()
    os._exit(0)


class Session:
    """One server process, and who waits for its answers."""

    def __init__(self, command: List[str]) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.waiting: Dict[str, "queue.Queue[Json]"] = {}
        self.lock = threading.Lock()
        self.ended = False
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self) -> None:
        """Pass each answer to who waits for it; at the end nobody waits any longer."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                message = json.loads(line.decode("utf-8"))
            except ValueError:
                continue
            if not isinstance(message, dict) or "id" not in message:
                continue
            if "method" in message:
                error = {"code": NO_METHOD, "message": "nobody answers here"}
                self.send({"jsonrpc": "2.0", "id": message["id"], "error": error})
                continue
            with self.lock:
                waits = self.waiting.pop(json.dumps(message["id"]), None)
            if waits is not None:
                waits.put(message)
        with self.lock:
            self.ended = True
            for key, waits in self.waiting.items():
                error = {"code": GONE, "message": "the server has ended"}
                waits.put({"jsonrpc": "2.0", "id": json.loads(key), "error": error})

    def send(self, message: Json) -> None:
        """One line for the server; what it no longer reads is lost."""
        assert self.process.stdin is not None
        try:
            with self.lock:
                self.process.stdin.write(json.dumps(message).encode() + b"\n")
                self.process.stdin.flush()
        except OSError:
            pass

    def ask(self, message: Json) -> Json:
        """A request, and its answer."""
        waits: "queue.Queue[Json]" = queue.Queue()
        with self.lock:
            if self.ended:
                error = {"code": GONE, "message": "the server has ended"}
                return {"jsonrpc": "2.0", "id": message["id"], "error": error}
            self.waiting[json.dumps(message["id"])] = waits
        self.send(message)
        return waits.get()

    def end(self) -> None:
        """A server ends when its input does."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
        except OSError:
            pass


class Handler(BaseHTTPRequestHandler):
    """The transport that MCP calls streamable HTTP, without streams."""

    protocol_version = "HTTP/1.1"
    token = ""
    commands: ClassVar[List[List[str]]] = []
    sessions: ClassVar[Dict[str, Session]] = {}

    def do_POST(self) -> None:
        """A message of the client's."""
        try:
            size = int(self.headers.get("content-length") or 0)
            number = int(self.path.strip("/"))
            body = self.rfile.read(size) if 0 <= size <= MAX_BYTES else b""
            message = json.loads(body.decode("utf-8"))
        except ValueError:
            return self.reply(400)
        given = self.headers.get("authorization") or ""
        if not hmac.compare_digest(given.encode(), b"Bearer " + self.token.encode()):
            return self.reply(401)
        if not isinstance(message, dict) or not 0 <= number < len(self.commands):
            return self.reply(400)
        name = self.headers.get("mcp-session-id") or ""
        if message.get("method") == "initialize":
            name = secrets.token_hex(16)
            try:
                self.sessions[name] = Session(self.commands[number])
            except OSError:
                return self.reply(500)
        session = self.sessions.get(name)
        if session is None:
            return self.reply(404)
        if "id" in message and "method" in message:
            return self.reply(200, session.ask(message), name)
        session.send(message)
        return self.reply(202)

    def do_DELETE(self) -> None:
        """The end of a session, by who knows its name."""
        session = self.sessions.pop(self.headers.get("mcp-session-id") or "", None)
        if session is not None:
            session.end()
        self.reply(200 if session is not None else 404)

    def do_GET(self) -> None:
        """No stream of notifications."""
        self.reply(405)

    def reply(self, status: int, message: Optional[Json] = None, session: str = "") -> None:
        """An answer as JSON, or none."""
        body = b"" if message is None else json.dumps(message).encode()
        self.send_response(status)
        if session:
            self.send_header("mcp-session-id", session)
        if body:
            self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        """Nobody reads it."""
