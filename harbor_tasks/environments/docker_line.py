"""The line to a container's first process (interceptor/conductor.py): requests out, what programs print and replies in.

Bytes stay bytes: what a program prints goes to its sink as it comes, however the engine cuts it into pieces.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from harbor_tasks.environments.base import InterruptedTrialError, SandboxError, Stop
from harbor_tasks.environments.contained import OUTPUT_BYTES, Ended

Sink = Callable[[bytes], object]
_STDOUT, _STDERR = 1, 2
_ENGINE_HEADER = struct.Struct(">BxxxI")
_FRAME_HEADER = struct.Struct(">cI")
_TICK = 0.1
_PATIENCE = 60.0
"""Seconds that the line may be silent beyond what a request may take."""
_BLOCK = 1 << 16
_PIECE = 64 << 20
"""No piece is larger: in a sandbox that is not sealed, root could write to the line, and must not fill our memory."""


class LineClosedError(Exception):
    """The container's first process, or the way to it, is gone; the text is the end of what it said."""


class RefusedError(Exception):
    """A request could not be done inside the container; the text says why."""


class Demultiplexer:
    """What comes through the engine's stream (stdout and stderr in pieces of its own), as the conductor's frames.

    ``feed`` takes bytes cut anywhere and gives (letter, content) of each complete frame.
    """

    def __init__(self) -> None:
        self._outer = bytearray()
        self._inner = bytearray()
        self.complaints = bytearray()
        """The end of what the conductor itself wrote to standard error."""

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """All frames that these bytes complete."""
        self._outer += data
        for stream, content in _pieces(self._outer, _ENGINE_HEADER):
            if stream == _STDOUT:
                self._inner += content
            elif stream == _STDERR:
                self.complaints += content
                del self.complaints[:-2000]
        return list(_pieces(self._inner, _FRAME_HEADER))


def _pieces(buffer: bytearray, header: struct.Struct) -> list[tuple[Any, bytes]]:
    """The complete pieces at the beginning of the buffer, which are taken out of it."""
    found, at = [], 0
    while len(buffer) - at >= header.size:
        kind, length = header.unpack_from(buffer, at)
        if length > _PIECE:
            raise LineClosedError("what comes from the container makes no sense")
        end = at + header.size + length
        if len(buffer) < end:
            break
        found.append((kind, bytes(buffer[at + header.size : end])))
        at = end
    del buffer[:at]
    return found


def socket_of(attached: Any) -> Any:
    """The socket behind what the Docker SDK gives for an attached container: its form depends on the way there."""
    return getattr(attached, "_sock", attached)


def close_attached(attached: Any, socket: Any) -> None:
    """End the attachment; both ends of it, or the socket stays open."""
    for one in (socket, attached):
        with suppress(OSError, AttributeError):
            one.close()


class Line:
    """Requests to one container, one after the other. Every call may raise LineClosedError and, when the job is to end,
    InterruptedTrialError: then the container is given up, with whatever runs in it.
    """

    def __init__(self, attached: Any, stop: Stop) -> None:
        """``attached``: what the Docker SDK gives for an attached container."""
        self._attached = attached  # kept: the SDK closes the connection with its last reference
        self._socket = socket_of(attached)
        self._socket.settimeout(_TICK)
        self._stop = stop
        self._stream = Demultiplexer()

    def close(self) -> None:
        """Let go; the container's first process ends with it."""
        close_attached(self._attached, self._socket)

    def run(
        self, argv: tuple[str, ...], *, out: Sink, err: Sink, user: str = "", cwd: str = "/", timeout: float,
        env: dict[str, str] | None = None, given: bytes = b"", umask: int = 0o022, limit: int = OUTPUT_BYTES,
    ) -> Ended:  # fmt: skip
        """Run a program to its end, then end all other processes of the container; RefusedError if it cannot start."""
        request = {"do": "run", "argv": argv, "env": env or {}, "cwd": cwd, "user": user, "umask": umask,
                   "timeout": timeout, "limit": limit}  # fmt: skip
        reply = self._ask(request, given, seconds=timeout, out=out, err=err)
        return Ended(reply["why"], reply["exit_code"], reply["seconds"], reply["left"])

    def put(self, archive: bytes | IO[bytes], size: int, *, clear: tuple[str, ...] = ()) -> None:
        """Unpack a tar archive at ``/``, after the paths of ``clear`` were removed."""
        self._ask({"do": "put", "clear": clear}, archive, size)

    def folder(self, path: str, user: str, mode: int) -> None:
        """Make an empty folder of this user's; what was there is removed."""
        self._ask({"do": "folder", "path": path, "user": user, "mode": mode})

    def listing(self, path: str, names: Iterable[str]) -> dict[str, tuple[int, int]]:
        """(mode with the kind of file, size) of those names that are below a folder; links are not followed."""
        reply = self._ask({"do": "list", "path": path, "names": list(names)})
        return {name: (mode, size) for name, mode, size in reply["entries"]}

    def read(self, path: str, sink: Sink, *, limit: int, offset: int = 0) -> int | None:
        """Pass on a regular file from an offset; its size, None when there is none."""
        reply = self._ask({"do": "read", "path": path, "offset": offset, "limit": limit}, data=sink)
        size: int | None = reply["size"]
        return size

    def pack(self, path: str, sink: Sink, *, limit: int) -> list[str]:
        """Pass on a folder as a tar archive of at most ``limit`` bytes of content; what was left out."""
        reply = self._ask({"do": "pack", "path": path, "limit": limit}, data=sink)
        left_out: list[str] = reply["left_out"]  # the first of them
        return left_out + ["…"] * (reply["count"] - len(left_out))

    def _ask(
        self, request: dict[str, Any], payload: bytes | IO[bytes] = b"", size: int | None = None,
        *, seconds: float = 0, **sinks: Sink,
    ) -> dict[str, Any]:  # fmt: skip
        size = len(payload) if isinstance(payload, bytes) else size
        self.send(json.dumps({**request, "bytes": size}).encode() + b"\n")
        if isinstance(payload, bytes):
            self.send(payload)
        else:
            while block := payload.read(_BLOCK):
                self.send(block)
        reply = self._reply(seconds + _PATIENCE, {name[:1].encode(): sink for name, sink in sinks.items()})
        if "error" in reply:
            raise RefusedError(str(reply["error"]))
        return reply

    def send(self, data: bytes) -> None:
        """Bytes as they are."""
        silent = time.monotonic() + _PATIENCE
        view = memoryview(data)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except TimeoutError:
                self._check(silent)
            except OSError as error:
                raise self._closed(error) from None

    def _reply(self, silence: float, sinks: dict[bytes, Sink]) -> dict[str, Any]:
        deadline = time.monotonic() + silence
        while True:
            try:
                data = self._socket.recv(_BLOCK)
            except TimeoutError:
                self._check(deadline)
                continue
            except OSError as error:
                raise self._closed(error) from None
            if not data:
                raise self._closed()
            deadline = max(deadline, time.monotonic() + _PATIENCE)
            for kind, content in self._stream.feed(data):
                if kind == b"r":
                    found: dict[str, Any] = json.loads(content)
                    return found
                sinks[kind](content)
            if self._stop.wanted:
                raise InterruptedTrialError

    def _check(self, deadline: float) -> None:
        if self._stop.wanted:
            raise InterruptedTrialError
        if time.monotonic() > deadline:
            raise LineClosedError("the container does not answer")

    def _closed(self, error: OSError | None = None) -> LineClosedError:
        said = bytes(self._stream.complaints).decode("utf-8", "replace").strip()
        return LineClosedError(said or (str(error) if error is not None else ""))


class File:
    """A sink that appends to a file on this machine; SandboxError when more comes than was asked for."""

    def __init__(self, file: Path | IO[bytes], limit: int) -> None:
        self._file = file.open("ab", buffering=0) if isinstance(file, Path) else file
        self._room = limit

    def __call__(self, data: bytes) -> None:
        self._room -= len(data)
        if self._room < 0:
            raise SandboxError("the container sends more than it may")
        self._file.write(data)

    def __enter__(self) -> File:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
