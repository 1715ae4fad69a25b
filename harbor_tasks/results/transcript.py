"""What an agent did, from its transcript and the interception log."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class ToolCall:
    """One tool call of the transcript, with what the interception log says of it.

    ``decision`` is ``none`` both for a call that the hook let pass and for one that it never saw (``logged`` tells).
    ``agent`` is the tool use that started the subagent which made this call.
    """

    id: str
    name: str
    input: Any
    result: str | None
    is_error: bool
    agent: str | None
    decision: str
    tier: str | None
    reason: str | None
    logged: bool


@dataclass(frozen=True)
class Transcript:
    """A transcript in Claude Code's stream-json form, joined with the log on ``tool_use_id``.

    ``not_logged`` are executed calls that a handler's pattern covers and that have no line in the log, ``not_seen``
    the log's calls that the transcript lacks, ``changed`` calls whose input is not the one that the hook saw.
    """

    calls: tuple[ToolCall, ...]
    conversation: str
    final_message: str
    cost_usd: float | None
    duration_s: float | None
    turns: int | None
    bad_lines: int
    not_logged: tuple[ToolCall, ...]
    not_seen: tuple[str, ...]
    changed: tuple[ToolCall, ...]


def read_transcript(path: Path, log: Path | None = None, patterns: tuple[str, ...] = ()) -> Transcript:
    """Read a transcript and its interception log; a file that is not there is an empty one."""
    raise NotImplementedError
