"""Did every covered call pass the interceptor? Compared afterwards, since nothing here keeps the agent from its user.

A call that the registered matchers cover and that ran must have a line in the interception log with its tool_use_id
and the hash of its input, and must not have been denied in it (DESIGN.md, "It must not fail open": a hook that was
killed fails open; then the trial is void).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harbor_tasks.agents.codex_sessions import transcript_of
from harbor_tasks.endpoint import codex_items
from harbor_tasks.resources import script_module

NEVER_RAN = (
    "<tool_use_error>",  # not registered, or an input that breaks the schema
    "Permission to use ",
    "Claude requested permissions to use ",
    "PreToolUse:",  # a hook that ended with 2
    *codex_items.NEVER_RAN,
)
"""How the agent program's own refusals begin: the call did not reach the tool. A tool's failure begins otherwise."""


@dataclass(frozen=True)
class Call:
    """One tool call of a transcript; ``result`` is None when the run ended before there was one."""

    id: str
    tool: str
    input: Any
    result: str | None
    is_error: bool


def gone_around(transcript: Path, log: Path, settings: dict[str, Any]) -> list[str]:
    """What is wrong with each covered call that ran although the interceptor did not let it, one text a call."""
    registered = script_module("replay").registered
    logged: dict[str, list[dict[str, Any]]] = {}
    for line in json_lines(log):
        logged.setdefault(str(line.get("tool_use_id")), []).append(line)
    found = []
    for call in calls_of(transcript):
        if call.result is None or not registered(settings, "PreToolUse", call.tool):
            continue
        never_ran = call.is_error and call.result.startswith(NEVER_RAN)
        asked = logged.get(call.id, [])
        lines = [line for line in asked if _about(line, call)]
        if not lines and not never_ran:
            found.append(f"{call.tool} ({call.id}) ran without passing the interceptor")
        refusal = next((line for line in lines if line.get("decision") in ("deny", "ask")), None)
        if refusal is not None and not never_ran and not _shows(call, refusal):
            found.append(f"{call.tool} ({call.id}) ran although the interceptor denied it")
    return found


def input_hash(tool_input: Any) -> str:
    """The hash under which the interceptor logs an input."""
    text = json.dumps(tool_input, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def cost_of(transcript: Path) -> float | None:
    """What the agent program says that the run cost, in USD."""
    cost: float | None = script_module("verify").Run(json_lines(transcript)).cost_usd
    return cost


def version_in(transcript: Path) -> str | None:
    """The version that the agent program names at its start."""
    starts = (line for line in json_lines(transcript) if line.get("type") == "system" and line.get("subtype") == "init")
    start = next(starts, {})
    version = start.get("claude_code_version", start.get("codex_version"))
    return version if isinstance(version, str) else None


def end_of(transcript: Path) -> str:
    """Why the agent program says that it failed, or nothing: it ends with a code that does not tell."""
    ends = [line for line in json_lines(transcript) if line.get("type") == "result"]
    if not ends or ends[-1].get("is_error") is not True:
        return ""
    said = ends[-1].get("result")
    return f"{ends[-1].get('subtype', 'error')}{f': {said[:300]}' if isinstance(said, str) and said else ''}"


def keep_transcript(output: Path, transcript: Path) -> None:
    """The JSON lines that a program printed, as its transcript; what else it printed stays in its output."""
    with transcript.open("w", encoding="utf-8", errors="backslashreplace") as target:
        for line in json_lines(output):
            target.write(json.dumps(line, ensure_ascii=False) + "\n")


def keep_sessions(sessions: Path, transcript: Path) -> None:
    """Codex's record of its sessions, as a transcript in the common form."""
    with transcript.open("w", encoding="utf-8", errors="backslashreplace") as target:
        for line in transcript_of(sessions):
            target.write(json.dumps(line, ensure_ascii=False) + "\n")


def calls_of(transcript: Path) -> list[Call]:
    """The tool calls of a stream-json transcript, in order."""
    uses: list[dict[str, Any]] = []
    results: dict[str, dict[str, Any]] = {}
    for line in json_lines(transcript):
        for block in _blocks(line):
            if line.get("type") == "assistant" and block.get("type") == "tool_use":
                uses.append(block)
            elif line.get("type") == "user" and block.get("type") == "tool_result":
                results[str(block.get("tool_use_id"))] = block
    return [_call(use, results.get(str(use.get("id")))) for use in uses]


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON objects of a file with one a line; other lines, which a killed program leaves, are passed over."""
    try:
        with path.open("rb") as file:
            for line in file:
                try:
                    data = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if isinstance(data, dict):
                    yield data
    except OSError:
        return


def _blocks(line: dict[str, Any]) -> list[dict[str, Any]]:
    message = line.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _call(use: dict[str, Any], result: dict[str, Any] | None) -> Call:
    shown = None if result is None else _text(result.get("content"))
    is_error = result is not None and result.get("is_error") is True
    return Call(str(use.get("id")), str(use.get("name")), use.get("input"), shown, is_error)


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(block.get("text", "")) for block in content if isinstance(block, dict))
    return "" if content is None else str(content)


def _about(line: dict[str, Any], call: Call) -> bool:
    found: bool = script_module("verify").is_about(line, call.tool, call.input)
    return found


def _shows(call: Call, refusal: dict[str, Any]) -> bool:
    """Is the call's result the refusal itself? A command that fails after printing the reason starts otherwise."""
    reason = str(refusal.get("reason") or "").strip()[:100]
    return call.is_error and bool(reason) and str(call.result).strip().startswith(reason)
