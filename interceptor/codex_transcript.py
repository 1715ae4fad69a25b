#!/usr/bin/env python3
"""Codex's record of its sessions (``sessions/**/rollout-*.jsonl``) as a transcript in the common form.

    codex_transcript.py SESSIONS >transcript.jsonl

The common form is Claude Code's stream-json. Calls bear the names and inputs that hooks are shown, and results are what
the model read. A subagent has a session of its own; its calls name the call that started it.

A hook sees a command as `Bash`, a patch as `apply_patch` with the text in ``command``, an MCP tool as
``mcp__server__tool``. The model calls `exec_command`, a tool of free text, and ``tool`` of a namespace. Newer models
also call `exec` with a program that calls the other tools: hooks see those calls only. A tool of a namespace of the
program's own has both names in one there: `clocksleep`, `collaborationspawn_agent`. Standard library only, Python 3.8
or newer.
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

Json = Dict[str, Any]
CALLS = ("function_call", "custom_tool_call")
OUTPUTS = ("function_call_output", "custom_tool_call_output")
BLOCKED = ("Command blocked by PreToolUse hook: ", "Tool call blocked by PreToolUse hook: ")
"""How the text begins that the model reads of a denied call; a command's own output stands below a head."""
NEVER_RAN = (
    *BLOCKED,
    "unsupported call: ",
    "unsupported custom tool call: ",
    "failed to parse function arguments: ",
    "TTY execution is disabled by config",
    "write_stdin failed: ",
    "request_user_input is unavailable in ",
    "environment `remote` only supports ",
    "apply_patch verification failed: ",  # no hook is asked about a patch that cannot be read
)
"""How the program's own refusals begin: no tool ran."""
NO_NAMESPACE = ("", "functions")
SPAWN = "spawn_agent"
SHELL = "exec_command"
EXIT_CODE = re.compile(r"^Process exited with code (-?\d+)$", re.MULTILINE)
FAILED = re.compile(r"Exit code: [1-9]|apply_patch verification failed")
ASKED = ('{"answers":', '{"accepted":')
"""How the result of a question begins that was answered, or put to nobody."""
SCRIPTS = ("exec", "wait")
"""Tools that run a program of the model's, which reaches nothing but other tools: those calls stand for themselves."""


def transcript_of(folder: str) -> Iterator[Json]:
    """The lines of all sessions, the agent's own first."""
    found = [os.path.join(place, name) for place, _, names in os.walk(folder) for name in names]
    files = [path for path in sorted(found) if re.fullmatch(r"rollout-.*\.jsonl", os.path.basename(path))]
    sessions = [Session(path) for path in files if os.path.isfile(path) and not os.path.islink(path)]
    if os.path.islink(folder):
        sessions = []
    starts = {agent: call for session in sessions for agent, call in session.started.items()}
    for session in sorted(sessions, key=lambda one: one.parent is not None):
        parent = None if session.parent is None else starts.get(session.id, starts.get(session.path, session.id))
        for line in session.lines:
            yield line if parent is None else {**line, "parent_tool_use_id": parent}


class Session:
    """One file: what its items say, in order."""

    def __init__(self, path: str) -> None:
        self.id = self.path = ""
        self.parent: Optional[str] = None
        self.started: Dict[str, str] = {}
        """Subagent, by its session or in newer versions by its path -> the call that started it."""
        self.lines: List[Json] = []
        self._proposed: Set[str] = set()
        self._quiet: Set[str] = set()
        self._asked: Set[str] = set()
        self._error: Optional[str] = None
        self._model, self._tokens = "", {}  # type: str, Dict[str, int]
        for item in json_lines(path):
            payload = item.get("payload")
            if isinstance(payload, dict):
                self._read(str(item.get("type")), payload)
        if any(self._tokens.values()):
            usage = {"session_id": self.id, "model": self._model, "usage": self._tokens}
            self.lines.append({"type": "system", "subtype": "usage", **usage})

    def _read(self, kind: str, payload: Mapping[str, Any]) -> None:
        what = payload.get("type")
        if kind == "session_meta":
            self._begin(payload)
        elif kind == "response_item" and what == "message":
            self._message(payload)
        elif kind == "response_item" and what in CALLS:
            self._call(payload)
        elif kind == "response_item" and what in OUTPUTS:
            self._output(payload)
        elif kind == "response_item" and what == "web_search_call":
            ident = str(payload.get("id"))
            self._use(ident, "WebSearch", payload.get("action"))
            self._result(ident, str(payload.get("status")), failed=False)
        elif kind == "event_msg" and what == "item_completed":
            self._completed(payload.get("item"))
        elif kind == "event_msg" and what == "error":
            self._error = str(payload.get("message"))
        elif kind == "event_msg" and what in ("task_complete", "turn_aborted"):
            self._end(payload)
        elif kind == "event_msg" and what == "token_count":
            self._count(payload.get("info"))
        elif kind == "turn_context":
            self._model = str(payload.get("model"))

    def _begin(self, payload: Mapping[str, Any]) -> None:
        self.id = str(payload.get("id"))
        source = payload.get("source")
        spawn = source.get("subagent") if isinstance(source, dict) else None
        if spawn is not None:
            self.parent = str(payload.get("parent_thread_id") or spawn)
            found = spawn.get("thread_spawn") if isinstance(spawn, dict) else None
            self.path = str(found.get("agent_path")) if isinstance(found, dict) else ""
            return
        known = {"session_id": self.id, "cwd": payload.get("cwd"), "codex_version": payload.get("cli_version")}
        self.lines.append({"type": "system", "subtype": "init", **known})

    def _message(self, payload: Mapping[str, Any]) -> None:
        texts = [part for part in payload.get("content") or () if isinstance(part, dict)]
        blocks = [{"type": "text", "text": str(part.get("text", ""))} for part in texts]
        if payload.get("role") == "assistant":
            self._say(blocks)
        elif payload.get("role") == "user" and blocks:
            self.lines.append({"type": "user", "message": {"role": "user", "content": blocks}})

    def _call(self, payload: Mapping[str, Any]) -> None:
        ident = str(payload.get("call_id"))
        name, given = call_of(payload)
        self._proposed.add(ident)
        if name in SCRIPTS or (name == "write_stdin" and not given.get("chars")):  # waiting for output is no call
            self._quiet.add(ident)
            self._say([{"type": "text", "text": f"[{name}] {given.get('command') or json.dumps(given)}"}])
        else:
            self._use(ident, name, given)
        if name in ("request_user_input", "request_user_input_async"):
            self._asked.add(ident)

    def _output(self, payload: Mapping[str, Any]) -> None:
        ident, text = str(payload.get("call_id")), output_text(payload.get("output"))
        if ident in self._quiet:
            content = [{"type": "text", "text": text}]
            self.lines.append({"type": "user", "message": {"role": "user", "content": content}})
            return
        try:
            told = json.loads(text)
            agent = told.get("agent_id", told.get("task_name"))
        except (ValueError, AttributeError):
            agent = None
        if isinstance(agent, str):
            self.started[agent] = ident
        # in place of answers stands the reason of a deny
        failed = has_failed(text) or (ident in self._asked and not text.startswith(ASKED))
        self._result(ident, text, failed=failed)

    def _completed(self, item: Any) -> None:
        """What ran; of a program of the model's this is all that tells of the calls in it."""
        if not isinstance(item, dict) or str(item.get("id")) in self._proposed:
            return
        ident, kind = str(item.get("id")), item.get("type")
        failed = item.get("status") not in ("completed", None)
        if kind == "CommandExecution" and isinstance(item.get("command"), list):
            self._use(ident, "Bash", {"command": item["command"][-1]})
            self._result(ident, str(item.get("aggregated_output") or ""), failed=failed)
        elif kind == "FileChange":
            self._use(ident, "apply_patch", {"changes": item.get("changes")})
            self._result(ident, str(item.get("stdout") or item.get("stderr") or ""), failed=failed)
        elif kind == "McpToolCall":
            self._use(ident, hook_name(f"mcp__{item.get('server')}__{item.get('tool')}"), item.get("arguments"))
            self._result(ident, output_text(item.get("result") or item.get("error")), failed=failed)

    def _count(self, info: Any) -> None:
        """The tokens of the session so far; what came from the cache, or went there, is part of its input."""
        told = info.get("total_token_usage") if isinstance(info, dict) else None
        names = ("input_tokens", "output_tokens", "cached_input_tokens", "cache_write_input_tokens")
        counts = [told.get(name) if isinstance(told, dict) else None for name in names]
        given, written, read, kept = (count if type(count) is int and count > 0 else 0 for count in counts)
        self._tokens = {
            "input_tokens": max(0, given - read - kept), "output_tokens": written, "cache_read_input_tokens": read,
            "cache_creation_input_tokens": kept,
        }  # fmt: skip

    def _end(self, payload: Mapping[str, Any]) -> None:
        if self.parent is not None:
            return
        error, self._error = self._error, None
        failed = error is not None or payload.get("type") == "turn_aborted"
        line = {"type": "result", "subtype": "error" if failed else "success", "is_error": failed}
        said = error or payload.get("last_agent_message") or payload.get("reason")
        known = {"result": said, "duration_ms": payload.get("duration_ms"), "session_id": self.id}
        self.lines.append({**line, **{name: value for name, value in known.items() if value is not None}})

    def _say(self, blocks: Sequence[Json]) -> None:
        self.lines.append({"type": "assistant", "message": {"role": "assistant", "content": list(blocks)}})

    def _use(self, ident: str, name: str, given: Any) -> None:
        self._say([{"type": "tool_use", "id": ident, "name": name, "input": given}])

    def _result(self, ident: str, text: str, *, failed: bool) -> None:
        block = {"type": "tool_result", "tool_use_id": ident, "content": text, "is_error": failed}
        self.lines.append({"type": "user", "message": {"role": "user", "content": [block]}})


def json_lines(path: str) -> Iterator[Json]:
    """The objects of a file; what a killed program left of a line is passed over."""
    with open(path, "rb") as file:
        for raw in file:
            try:
                data = json.loads(raw)
            except (ValueError, RecursionError):
                continue
            if isinstance(data, dict):
                yield data


def call_of(item: Mapping[str, Any]) -> Tuple[str, Json]:
    """Name and input of an item's call, as its hooks are shown them."""
    name, namespace = str(item.get("name")), str(item.get("namespace") or "")
    if item.get("type") == "custom_tool_call":
        return name, {"command": item.get("input")}
    try:
        given = json.loads(item.get("arguments") or "{}")
    except ValueError:
        given = None
    if not isinstance(given, dict):
        given = {"arguments": item.get("arguments")}
    if name == SHELL:
        return "Bash", {"command": given.get("cmd")}
    return tool_name(name, namespace), given


def tool_name(name: str, namespace: str) -> str:
    """The name of a tool of a namespace, as hooks are shown it."""
    if name == SHELL:
        return "Bash"
    if namespace.startswith("mcp__"):
        return f"{namespace.rstrip('_')}__{name}"
    bare = namespace in NO_NAMESPACE or (name == SPAWN and namespace == "multi_agent_v1")
    return name if bare else f"{namespace}{name}"


def hook_name(tool: str) -> str:
    """The name of an MCP tool as Codex makes it: of letters, digits and ``_`` only; any other name as it is."""
    return re.sub(r"[^A-Za-z0-9_]", "_", tool) if tool.startswith("mcp__") else tool


def output_text(output: Any) -> str:
    """What the model reads as a call's output."""
    if isinstance(output, list):
        return "\n".join(str(part.get("text", "")) for part in output if isinstance(part, dict))
    if isinstance(output, dict):
        return output_text(output.get("content", output.get("output")))
    return "" if output is None else str(output)


def has_failed(text: str) -> bool:
    """Does an output say that the call was refused, or that its command failed? Nothing but the text tells."""
    head, found, _ = text.partition("\nOutput:\n")
    code = EXIT_CODE.search(head) if found else None
    return text.startswith(NEVER_RAN) or (code is not None and code[1] != "0") or FAILED.match(text) is not None


if __name__ == "__main__":
    for one in transcript_of(sys.argv[1]):
        print(json.dumps(one))
