"""Codex's record of its sessions (``sessions/**/rollout-*.jsonl``) as a transcript in the common form.

The common form is Claude Code's stream-json. Calls bear the names and inputs that hooks are shown, and results are what
the model read. A subagent has a session of its own; its calls name the call that started it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harbor_tasks.endpoint.codex_items import CALLS, OUTPUTS, call_of, has_failed, hook_name, output_text

Line = dict[str, Any]
_SCRIPTS = ("exec", "wait")
"""Tools that run a program of the model's, which reaches nothing but other tools: those calls stand for themselves."""


def transcript_of(folder: Path) -> Iterator[Line]:
    """The lines of all sessions, the agent's own first."""
    files = [path for path in sorted(folder.rglob("rollout-*.jsonl")) if path.is_file() and not path.is_symlink()]
    sessions = [_Session(path) for path in files if not folder.is_symlink()]
    starts = {agent: call for session in sessions for agent, call in session.started.items()}
    for session in sorted(sessions, key=lambda one: one.parent is not None):
        parent = None if session.parent is None else starts.get(session.id, starts.get(session.path, session.id))
        for line in session.lines:
            yield line if parent is None else {**line, "parent_tool_use_id": parent}


class _Session:
    """One file: what its items say, in order."""

    def __init__(self, path: Path) -> None:
        self.id = self.path = ""
        self.parent: str | None = None
        self.started: dict[str, str] = {}
        """Subagent, by its session or in newer versions by its path -> the call that started it."""
        self.lines: list[Line] = []
        self._proposed: set[str] = set()
        self._quiet: set[str] = set()
        self._asked: set[str] = set()
        self._error: str | None = None
        self._model, self._tokens = "", dict[str, int]()
        for item in _json_lines(path):
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
        if name in _SCRIPTS or (name == "write_stdin" and not given.get("chars")):  # waiting for output is no call
            self._quiet.add(ident)
            self._say([{"type": "text", "text": f"[{name}] {given.get('command') or json.dumps(given)}"}])
        else:
            self._use(ident, name, given)
        if name == "request_user_input":
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
        failed = has_failed(text) or (ident in self._asked and not text.startswith('{"answers":'))
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

    def _say(self, blocks: Sequence[Line]) -> None:
        self.lines.append({"type": "assistant", "message": {"role": "assistant", "content": list(blocks)}})

    def _use(self, ident: str, name: str, given: Any) -> None:
        self._say([{"type": "tool_use", "id": ident, "name": name, "input": given}])

    def _result(self, ident: str, text: str, *, failed: bool) -> None:
        block = {"type": "tool_result", "tool_use_id": ident, "content": text, "is_error": failed}
        self.lines.append({"type": "user", "message": {"role": "user", "content": [block]}})


def _json_lines(path: Path) -> Iterator[Line]:
    """The objects of a file; what a killed program left of a line is passed over."""
    with path.open("rb") as file:
        for raw in file:
            try:
                data = json.loads(raw)
            except (ValueError, RecursionError):
                continue
            if isinstance(data, dict):
                yield data
