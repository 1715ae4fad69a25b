"""Single replies, for who asks a model for one message: answers and verdicts, and whatever else an endpoint may say.

A `Replies` stands at an endpoint in the place of a script. It speaks Anthropic's Messages.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

KINDS = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    413: "request_too_large", 429: "rate_limit_error", 529: "overloaded_error",
}  # fmt: skip
"""Status -> the type of the error in the body."""


@dataclass(frozen=True)
class Reply:
    """One reply, or one fault. ``usage`` is in tokens, times are in seconds, sizes in bytes.

    ``content`` are the blocks of the message; ``body`` stands in place of all of it, as it is. ``delay_s`` passes
    before the first byte, ``pause_s`` between two halves of the body; after ``cut`` bytes of it the connection ends.
    """

    content: tuple[Mapping[str, Any], ...] = ()
    stop_reason: str = "end_turn"
    usage: Mapping[str, int] = field(default_factory=lambda: {"input_tokens": 100, "output_tokens": 20})
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    delay_s: float = 0
    pause_s: float = 0
    cut: int | None = None


def says(text: str, **more: Any) -> Reply:
    """A message with a text, as structured output is one, too."""
    return Reply(({"type": "text", "text": text},), **more)


def uses(tool: str, given: Mapping[str, Any], **more: Any) -> Reply:
    """A message that calls a tool."""
    block = {"type": "tool_use", "id": "toolu_reply", "name": tool, "input": dict(given)}
    return Reply((block,), stop_reason="tool_use", **more)


def fails(status: int, message: str = "no", **more: Any) -> Reply:
    """An error in the form of Anthropic's."""
    body = {"type": "error", "error": {"type": KINDS.get(status, "api_error"), "message": message}}
    return Reply(status=status, body=json.dumps(body).encode(), **more)


class Replies:
    """Replies in their order, the last one again and again; or what a function makes of each request's body."""

    def __init__(self, *replies: Reply, choose: Callable[[Mapping[str, Any]], Reply] | None = None) -> None:
        if not replies and choose is None:
            raise ValueError("no replies")
        self._replies, self._choose, self._at, self._lock = replies, choose, 0, threading.Lock()

    def answer(self, body: Mapping[str, Any]) -> Reply:
        """The reply to a request."""
        if self._choose is not None:
            return self._choose(body)
        with self._lock:
            reply = self._replies[min(self._at, len(self._replies) - 1)]
            self._at += 1
        return reply
