"""The HTTP server of the scripted endpoint: each script below a URL of its own, every request recorded.

On loopback by default; containers reach it by the address of their bridge's gateway. It knows no key and asks for none;
what a client sends as one is not recorded.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import ModuleType, TracebackType
from typing import Any, Self

from harbor_tasks.endpoint import anthropic, openai
from harbor_tasks.endpoint.replies import Replies, Reply
from harbor_tasks.endpoint.script import MAIN, Asked, Script, Turn
from harbor_tasks.errors import MachineError

WIRES: Mapping[str, ModuleType] = {anthropic.PATH: anthropic, openai.PATH: openai}
"""Path below a script's URL -> the module that knows its wire form: ``read``, ``reply``, ``error``."""
SIDE = "ok"
"""The answer to what is no part of an agent's conversation."""
FRUITLESS = 20
"""How often a turn is given out before it is believed that the agent does not take it."""
_BYTES = 64 << 20
_SECRET_HEADERS = ("x-api-key", "authorization")
_HIDDEN = "(key)"
_PHRASES = {status.value: status.phrase for status in HTTPStatus}
AS_IT_IS = Reply()
"""At once, and whole."""


@dataclass(frozen=True)
class Recorded:
    """One request and what it got. ``conversation`` is ``main``, a subagent's prompt, or empty when it is no turn."""

    number: int
    script: str
    path: str
    body: Mapping[str, Any]
    asked: Asked | None
    conversation: str
    status: int
    answer: Turn | None

    @property
    def kind(self) -> str:
        """turn, forced or side; ``other`` for what asks for no message."""
        return "other" if self.asked is None else self.asked.kind


@dataclass(frozen=True)
class Sent:
    """An answer as it goes out; ``how`` says when, and how much of it."""

    status: int
    content_type: str
    body: bytes
    how: Reply = AS_IT_IS


class Endpoint:
    """A running server; used as a context manager.

    ``host`` is where it listens; ``port`` 0 takes a free one. It says that nothing was read or written, since nothing
    is paid for; with ``tokens`` it counts them as if a model had.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 0, *, tokens: bool = False) -> None:
        self._tokens = tokens
        self._scripts: dict[str, Script | Replies] = {}
        self._recorded: list[Recorded] = []
        self._count = 0
        self._given: dict[tuple[str, str, tuple[str, ...]], int] = {}
        self._lock = threading.Lock()
        try:
            self._server = _Server((host, port), self)
        except OSError as error:
            raise MachineError(f"the scripted endpoint cannot listen on {host}, port {port}: {error}") from None
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, _kind: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def add(self, name: str, script: Script | Replies) -> str:
        """The base URL under which an agent follows this script; ``name`` is a word."""
        with self._lock:
            self._scripts[name] = script
        host = str(self._server.server_address[0])
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/{name}"

    def remove(self, name: str) -> list[Recorded]:
        """Forget a script; what was asked of it."""
        with self._lock:
            self._scripts.pop(name, None)
            mine = [one for one in self._recorded if one.script == name]
            self._recorded = [one for one in self._recorded if one.script != name]
        return mine

    def recorded(self, name: str | None = None) -> list[Recorded]:
        """What was asked so far, in order, of all scripts or of one."""
        with self._lock:
            return [one for one in self._recorded if name is None or one.script == name]

    def read_by_model(self, name: str) -> dict[str, tuple[str, bool]]:
        """What the model of this script read of each of its calls: the text, and whether it is an error."""
        found: dict[str, tuple[str, bool]] = {}
        for one in self.recorded(name):
            if one.asked is not None:
                found.update(one.asked.results)
        return found

    def offered(self, name: str) -> tuple[str, ...]:
        """The tools that the agent offered its model, over all turns of its own conversation."""
        turns = [one.asked for one in self.recorded(name) if one.conversation == MAIN and one.asked is not None]
        return tuple(dict.fromkeys(tool for asked in turns for tool in asked.tools))

    def handle(self, path: str, raw: bytes, secrets: tuple[str, ...]) -> Sent:
        """The answer to a POST; it is recorded without ``secrets``."""
        name, _, rest = path.partition("?")[0].lstrip("/").partition("/")
        with self._lock:
            script = self._scripts.get(name)
        wire = WIRES.get(f"/{rest}", anthropic)
        try:
            body = _object(_without(raw.decode("utf-8"), secrets))
            if script is None:
                return self._refuse(wire, 404, f"there is no script {name!r} here", name, path, body)
            if f"/{rest}" == anthropic.COUNT:
                self._record(name, path, body, None, "", 200, None)
                return Sent(200, "application/json", anthropic.count(body))
            if f"/{rest}" not in WIRES:
                return self._refuse(wire, 404, f"this endpoint knows {', '.join(WIRES)}", name, path, body)
            asked = wire.read(body)
        except (ValueError, RecursionError) as error:
            return self._refuse(wire, 400, f"the request cannot be read: {error}", name, path, {})
        return self._answer(name, script, wire, path, body, asked, len(raw))

    def _answer(
        self, name: str, script: Script | Replies, wire: ModuleType, path: str, body: Mapping[str, Any], asked: Asked,
        size: int,
    ) -> Sent:  # fmt: skip
        if isinstance(script, Replies):
            if wire is not anthropic:
                return self._refuse(wire, 404, "single replies are Anthropic's Messages", name, path, body, asked)
            reply = script.answer(body)
            number = self._record(name, path, body, asked, "", reply.status, None)
            return Sent(reply.status, *anthropic.single(reply, asked, number), reply)
        if asked.kind == "forced":  # a script has no answers to questions: whoever asks takes the next best thing
            return self._refuse(wire, 400, "the script says nothing of this", name, path, body, asked)
        where, turn = "", Turn(SIDE)
        if asked.kind == "turn":
            where, turn = script.conversation(asked), script.answer(asked)
            with self._lock:
                key = (name, where, tuple(call.id for call in turn.calls))
                self._given[key] = self._given.get(key, 0) + 1
                fruitless = bool(turn.calls) and self._given[key] > FRUITLESS
            if fruitless:
                turn = Turn(f"The calls {', '.join(key[2])} were proposed {FRUITLESS} times, and are not taken.")
        number = self._record(name, path, body, asked, where, 200, turn)
        content_type, answer = wire.reply(turn, asked, number, size if self._tokens else 0)
        return Sent(200, content_type, answer)

    def _refuse(
        self, wire: ModuleType, status: int, text: str, name: str, path: str, body: Mapping[str, Any],
        asked: Asked | None = None,
    ) -> Sent:  # fmt: skip
        self._record(name, path, body, asked, "", status, None)
        return Sent(status, "application/json", wire.error(status, text))

    def _record(
        self, name: str, path: str, body: Mapping[str, Any], asked: Asked | None, where: str, status: int,
        answer: Turn | None,
    ) -> int:  # fmt: skip
        with self._lock:
            self._count += 1
            number = self._count
            self._recorded.append(Recorded(number, name, path, body, asked, where, status, answer))
        return number


def _object(text: str) -> dict[str, Any]:
    data = json.loads(text)
    if not isinstance(data, dict):
        raise ValueError("not an object")  # noqa: TRY004 - what is wrong with a body is one kind of fault
    return data


def _without(text: str, secrets: tuple[str, ...]) -> str:
    for secret in secrets:
        text = text.replace(secret, _HIDDEN)
    return text


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60
    server: _Server

    def do_HEAD(self) -> None:
        """Agents look whether somebody is there."""
        self._send(200, "application/json", b"")

    def do_GET(self) -> None:
        """Nothing is here to be fetched. Codex, of OpenAI's own provider, asks for a WebSocket first."""
        if (self.headers.get("upgrade") or "").lower() == "websocket":
            self._send(426, "application/json", openai.error(426, "this endpoint speaks HTTP without WebSockets"))
            return
        self._send(404, "application/json", anthropic.error(404, "this endpoint answers POST only"))

    def do_POST(self) -> None:
        """A request for a message, or something like it."""
        try:
            size = int(self.headers.get("content-length") or 0)
        except ValueError:
            size = -1
        if not 0 <= size <= _BYTES:
            self.close_connection = True
            self._send(413, "application/json", anthropic.error(413, "a body of known length, at most 64 MB"))
            return
        raw = self.rfile.read(size)
        given = [self.headers.get(name) or "" for name in _SECRET_HEADERS]
        secrets = tuple(text.removeprefix("Bearer ").strip() for text in given)
        sent = self.server.endpoint.handle(self.path, raw, tuple(text for text in secrets if len(text) >= 8))
        time.sleep(sent.how.delay_s)
        self._send(sent.status, sent.content_type, sent.body, sent.how)

    def _send(self, status: int, content_type: str, body: bytes, how: Reply = AS_IT_IS) -> None:
        self.send_response_only(status, _PHRASES.get(status, ""))
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        for name, value in how.headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if how.cut is not None:
            self.close_connection, body = True, body[: how.cut]
        half = len(body) // 2 if how.pause_s else len(body)
        self.wfile.write(body[:half])
        time.sleep(how.pause_s)
        self.wfile.write(body[half:])

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        """What was asked is recorded, not printed."""
