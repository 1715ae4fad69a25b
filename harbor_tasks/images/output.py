"""Reads what an engine or a builder says while it works: as bytes that come in pieces cut anywhere.

The engine sends JSON documents, one a line. Neither a piece that ends inside a character or a document, nor bytes that
are no UTF-8, nor a line without an end, nor what moves a terminal's cursor may break the reading: what a build prints
decides nothing.
"""

from __future__ import annotations

import codecs
import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from harbor_tasks.errors import printable

TAIL_LINES = 12
"""How many of its last lines a failed build shows."""
SHOWN_WIDTH = 300
"""Characters of a line that are shown."""
_KEPT_WIDTH = 64 << 10
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-Z\\^-~])")
_NOISE = re.compile(r" ?---> |Removing intermediate container ")
_REACHED = re.compile(r" ---> ([0-9a-f]{12,64})\n")

OnLine = Callable[[str], None]


class BuildFailedError(Exception):
    """A build or a pull went wrong: what the engine said, and the last lines that were printed before.

    ``reached`` is the id of the image of the last step that went well: the engine keeps it, without a name.
    """

    def __init__(self, message: str, tail: Iterable[str] = (), reached: str | None = None) -> None:
        self.message = " ".join(message.split())
        self.tail = tuple(tail)
        self.reached = reached
        super().__init__(self.message)


class Lines:
    """Puts printed text together into lines as a terminal would show them, and keeps the last ones."""

    def __init__(self, on_line: OnLine | None = None) -> None:
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._on_line = on_line
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending = ""

    def feed_bytes(self, data: bytes) -> None:
        """More of what was printed; may end inside a character."""
        self.feed(self._decoder.decode(data))

    def feed(self, text: str) -> None:
        """More of what was printed; may end anywhere."""
        *lines, rest = text.split("\n")
        for line in lines:
            self._emit(self._pending + line)
            self._pending = ""
        # Of a line that never ends only the beginning is kept, and of progress only what stands there last.
        self._pending = (self._pending + rest)[:_KEPT_WIDTH]
        if "\r" in rest.rstrip("\r"):
            self._pending = rest.rpartition("\r")[2][:_KEPT_WIDTH]

    def close(self) -> None:
        """Nothing more is printed: what has no end of line is a line too."""
        self.feed(self._decoder.decode(b"", final=True))
        if self._pending:
            self._emit(self._pending)
            self._pending = ""

    def _emit(self, line: str) -> None:
        shown = plain(line)
        if shown.strip() and not _NOISE.match(shown):
            self.tail.append(shown)
            if self._on_line is not None:
                self._on_line(shown)


def plain(line: str) -> str:
    """One line as it can be shown: without escape sequences and control characters, of overwritten text the last."""
    line = _ESCAPES.sub("", line.rstrip("\r\n"))
    line = printable(line.rpartition("\r")[2].replace("\n", " "))
    return line if len(line) <= SHOWN_WIDTH else line[: SHOWN_WIDTH - 1] + "…"


def documents(pieces: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The JSON objects of an engine's answer; a line that is none comes as ``{"stream": line}``."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    held: list[str] = []
    for piece in pieces:
        text = decoder.decode(piece)
        if "\n" not in text:
            held.append(text)
            continue
        *lines, rest = ("".join(held) + text).split("\n")
        held = [rest]
        for line in lines:
            yield from _objects(line)
    yield from _objects("".join(held) + decoder.decode(b"", final=True))


def _objects(line: str) -> Iterator[dict[str, Any]]:
    """What one line holds: an object, or several without anything between them."""
    rest = line.strip()
    while rest:
        try:
            found, end = json.JSONDecoder().raw_decode(rest)
        except (ValueError, RecursionError):
            found, end = rest + "\n", len(rest)
        yield found if isinstance(found, dict) else {"stream": str(found)}
        rest = rest[end:].lstrip()


def read_answer(pieces: Iterable[bytes], on_line: OnLine | None = None) -> str | None:
    """Read a build's or a pull's answer to its end; the id of the image, if one was named.

    BuildFailedError for an error that the engine reports within the stream, which it does with status 200.
    """
    lines = Lines(on_line)
    image = reached = None
    for document in documents(pieces):
        detail = document.get("errorDetail")
        message = (detail.get("message") if isinstance(detail, dict) else None) or document.get("error")
        if message is not None or detail is not None:
            lines.close()
            raise BuildFailedError(str(message or detail), lines.tail, reached)
        if isinstance(document.get("stream"), str):
            lines.feed(document["stream"])
            step = _REACHED.fullmatch(document["stream"])
            reached = step[1] if step else reached
        elif isinstance(document.get("status"), str) and not document.get("progressDetail"):
            prefix = f"{document['id']}: " if document.get("id") else ""
            lines.feed(f"{prefix}{document['status']}\n")
        aux = document.get("aux")
        if isinstance(aux, dict) and isinstance(aux.get("ID"), str):
            image = aux["ID"]
    lines.close()
    return image
