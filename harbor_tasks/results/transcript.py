"""What an agent did, from its transcript and the interception log.

The reading itself is the verifier's own (``interceptor/verify.py``), so a report and a judge see the same calls.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from harbor_tasks.resources import script_module


@dataclass(frozen=True)
class ToolCall:
    """One tool call of the transcript, with what the interception log says of it.

    ``input`` is what the agent proposed, ``input_as_run`` what the tool got: after a rewrite or an answer another one,
    None when the call was refused (of a run without our hook's log there are no rewrites to tell of).
    ``decision`` is ``none`` both for a call that the hook let pass and for one that it never saw (``logged`` tells).
    ``agent`` is the tool use that started the subagent which made this call. ``answers`` are the log's, one a question.
    """

    id: str
    name: str
    input: Any
    input_as_run: Any
    result: str | None
    is_error: bool
    agent: str | None
    decision: str
    tier: str | None
    reason: str | None
    answers: list[dict[str, Any]] | None
    logged: bool


@dataclass(frozen=True)
class Transcript:
    """A transcript in Claude Code's stream-json form, joined with the log on ``tool_use_id``.

    ``log`` are the log's lines. ``not_logged`` are executed calls that a handler's pattern covers and that have no line
    in the log for their input, or were denied in it; ``not_seen`` the log's calls that the transcript lacks (a
    subagent's may be), ``changed`` calls whose input is not the one that the hook saw.
    """

    calls: tuple[ToolCall, ...]
    events: tuple[dict[str, Any], ...]
    conversation: str
    final_message: str
    cost_usd: float | None
    duration_s: float | None
    turns: int | None
    bad_lines: int
    log: tuple[dict[str, Any], ...]
    bad_log_lines: int
    not_logged: tuple[ToolCall, ...]
    not_seen: tuple[dict[str, Any], ...]
    changed: tuple[ToolCall, ...]


def read_transcript(path: Path, log: Path | None = None, patterns: Iterable[str] = ()) -> Transcript:
    """Read a transcript and its interception log; a file that is not there is an empty one.

    Lines that are no JSON objects (a program's own noise, a line cut off by a kill) are counted and left out.
    ``patterns`` are the tool patterns of the handlers: their calls must be in the log.
    """
    verify = script_module("verify")
    lines, bad = verify.json_lines(str(path))
    log_lines, bad_log = verify.json_lines(None if log is None else str(log))
    run, by_id = verify.Run(lines), verify.by_call(log_lines)
    joined = verify.join_log(run, by_id)
    calls = [_call(call) for call in joined]
    around = {call["tool_use_id"] for call in verify.gone_around(run, log_lines, patterns)}
    known = {call.id for call in calls}
    return Transcript(
        calls=tuple(calls),
        events=tuple(run.events),
        conversation="\n\n".join(run.said),
        final_message=run.final_message,
        cost_usd=run.cost_usd,
        duration_s=run.duration_s,
        turns=run.num_turns,
        bad_lines=bad,
        log=tuple(log_lines),
        bad_log_lines=bad_log,
        not_logged=tuple(call for call in calls if call.id in around),
        not_seen=tuple(line for ident, line in by_id.items() if ident not in known),
        changed=tuple(call for call in calls if call.logged and _changed(call, by_id[call.id])),
    )


def input_sha256(tool_input: Any) -> str:
    """The hash by which the log names a call's input: SHA-256 of its sorted, compact, pure ASCII JSON, in hex."""
    text = json.dumps(tool_input, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _call(call: Mapping[str, Any]) -> ToolCall:
    return ToolCall(**{field.name: call[field.name] for field in fields(ToolCall)})


def _changed(call: ToolCall, line: Mapping[str, Any]) -> bool:
    return isinstance(line.get("input_sha256"), str) and not script_module("verify").is_about(
        line, call.name, call.input
    )
