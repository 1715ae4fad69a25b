#!/usr/bin/env python3
"""Codex's own tools: what a call of Claude Code's becomes there, and how the agent program `replay` plays them.

``own_call`` is the one translation: of recorded calls (`replay`, and a Codex that a script drives) and of probes. Names
and inputs are those that Codex's hooks are shown. What is reproduced was observed with Codex 0.171:

- The hook is asked before a patch is compared with its files, and not asked about a call that cannot be parsed or a
  tool that is not there. It is shown a command alone; ``workdir`` is its ``cwd``. Permission rules do not exist.
- Commands start in the workspace, each anew. Patches take whole lines, and leave a newline at the end.
- A question is answered by what a PostToolUse hook says of its result; where none is registered, it is unavailable.

Loaded by replay.py, with codex_transcript.py beside it. Standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import os
import re
import time
from typing import Any, Iterable, Mapping, NamedTuple, Optional, Sequence

SHELL, PATCH, ASK, SPAWN = "Bash", "apply_patch", "request_user_input", "spawn_agent"
REGISTERED = (SHELL, PATCH, ASK, SPAWN, "view_image")
QUESTIONS = ("AskUserQuestion", ASK)
SUBAGENTS = ("Agent", "Task", SPAWN, "collaborationspawn_agent")
HEADERS = ("*** Add File: ", "*** Delete File: ", "*** Update File: ")
MOVE, END_OF_FILE = "*** Move to: ", "*** End of File"
UNFIT = "apply_patch verification failed: "


# ------------------------------------------------------------------------------------------------- translation


def own_call(tool: str, given: Mapping[str, Any]) -> Optional[tuple[str, dict[str, Any]]]:
    """The call that Codex makes in place of this one, as name and input; None when it has none like it.

    Claude Code's tools begin with a capital and Codex's do not: a name of the latter kind stays as it is.
    """
    if tool in QUESTIONS:
        return ASK, _complete(given)
    if tool in SUBAGENTS:
        return SPAWN, {"message": str(given.get("message", given.get("prompt", "")))}
    if tool in ("Write", "Edit"):
        patch = _patch(tool, given)
        return None if patch is None else (PATCH, {"command": patch})
    return None if tool[:1].isupper() and tool != SHELL else (tool, dict(given))


def own_entries(entries: Iterable[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """Recorded calls as Codex makes them, and the tools of those that it cannot make, one a call."""
    kept, left_out = [], []
    for entry in entries:
        found = own_call(entry["tool"], entry["input"]) if "tool" in entry else ("", {})
        if found is None:
            left_out.append(str(entry["tool"]))
        else:
            kept.append(dict(entry, tool=found[0], input=found[1]) if "tool" in entry else dict(entry))
    return kept, left_out


def _patch(tool: str, given: Mapping[str, Any]) -> Optional[str]:
    """What Codex would write in place of a call of another program's tool for files. A patch has lines as a whole."""
    path = given.get("file_path")
    if not isinstance(path, str):
        return None
    if tool == "Write":
        body = ["*** Add File: " + path, *("+" + line for line in _lines(str(given.get("content", ""))))]
    else:
        old, new = str(given.get("old_string", "")), str(given.get("new_string", ""))
        lines = _lines if old.endswith("\n") else _between_newlines
        gone, come = lines(old), lines(new)
        body = ["*** Update File: " + path, "@@", *("-" + line for line in gone), *("+" + line for line in come)]
    return "\n".join(["*** Begin Patch", *body, "*** End Patch", ""])


def _lines(text: str) -> list[str]:
    """The lines of a text; the newline at its end ends the last one."""
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _between_newlines(text: str) -> list[str]:
    return text.split("\n")


def _complete(given: Mapping[str, Any]) -> dict[str, Any]:
    """Questions with all that the program demands of one, and no more: an author need not spell one out."""
    questions = given.get("questions")
    if not isinstance(questions, list) or not all(isinstance(one, dict) for one in questions):
        return dict(given)
    whole = []
    for number, question in enumerate(questions, 1):
        options = [{"label": one} if isinstance(one, str) else one for one in question.get("options") or ()]
        options = [dict({"description": str(one.get("label"))}, **one) for one in options if isinstance(one, dict)]
        known = dict({"id": "q%d" % number, "header": "Choice"}, **question)
        known["options"] = options
        whole.append({name: known[name] for name in ("id", "header", "question", "options") if name in known})
    return {"questions": whole}


# ------------------------------------------------------------------------------------------------------ patches


class PatchError(Exception):
    """Why a patch is not applied, in the program's words."""


class Hunk(NamedTuple):
    """What becomes of one file: ``lines`` of a new one, or ``chunks`` (context, old, new, at the end) of another."""

    kind: str
    path: str
    move: Optional[str]
    lines: list[str]
    chunks: list[Any]


def parse_patch(text: str) -> list[Hunk]:
    """The hunks of a patch; PatchError when it is none."""
    lines = text.strip().split("\n")
    if lines[0].strip() != "*** Begin Patch":
        raise PatchError("invalid patch: The first line of the patch must be '*** Begin Patch'")
    if lines[-1].strip() != "*** End Patch":
        raise PatchError("invalid patch: The last line of the patch must be '*** End Patch'")
    hunks, at = [], 1
    while at < len(lines) - 1:
        head = lines[at].strip()
        kind = next((one for one in HEADERS if head.startswith(one)), None)
        if kind is None:
            known = ", ".join("'%s{path}'" % one for one in HEADERS)
            raise PatchError(
                "invalid hunk at line %d, '%s' is not a valid hunk header. Valid hunk headers: %s"
                % (at + 1, head, known)
            )
        end = at + 1
        while end < len(lines) - 1 and not lines[end].startswith(HEADERS):
            if kind == HEADERS[0] and not lines[end].startswith("+"):
                break
            end += 1
        hunks.append(_hunk(kind, head[len(kind) :], lines[at + 1 : end], at + 1))
        at = end
    return hunks


def _hunk(kind: str, path: str, body: list[str], number: int) -> Hunk:
    if kind == HEADERS[0]:
        return Hunk("A", path, None, [line[1:] for line in body], [])
    if kind == HEADERS[1]:
        if any(line.strip() for line in body):
            raise PatchError("invalid hunk at line %d, '%s' is not a valid hunk header" % (number + 1, body[0]))
        return Hunk("D", path, None, [], [])
    move = body.pop(0)[len(MOVE) :].strip() if body and body[0].startswith(MOVE) else None
    chunks: list[Any] = []
    for line in body:
        if line.startswith("@@"):
            chunks.append([line[2:].strip() or None, [], [], False])
            continue
        if not chunks:
            chunks.append([None, [], [], False])
        if line.strip() == END_OF_FILE:
            chunks[-1][3] = True
        elif line[:1] in (" ", "-", "+", ""):
            for mark, side in (("-", chunks[-1][1]), ("+", chunks[-1][2])):
                if line[:1] in (mark, " ", ""):
                    side.append(line[1:])
        else:
            raise PatchError("invalid hunk at line %d, Unexpected line found in update hunk: '%s'" % (number + 1, line))
    if not chunks and move is None:
        raise PatchError("invalid hunk at line %d, Update file hunk for path '%s' is empty" % (number, path))
    return Hunk("M", path, move, [], chunks)


def updated(text: str, chunks: Sequence[Any], path: str) -> str:
    """A file's text with the chunks of an update in their places; PatchError when one has no place."""
    lines = _lines(text)
    places, at = [], 0
    for context, old, new, at_end in chunks:
        if context is not None:
            found = _seek(lines, [context], at, False)
            if found is None:
                raise PatchError("Failed to find context '%s' in %s" % (context, path))
            at = found + 1
        if not old:
            places.append((len(lines), 0, new))
            continue
        found = _seek(lines, old, at, at_end)
        if found is None and old[-1] == "":  # the newline at the end of the file
            old, new = old[:-1], new[:-1] if new and new[-1] == "" else new
            found = _seek(lines, old, at, at_end)
        if found is None:
            raise PatchError("Failed to find expected lines in %s:\n%s" % (path, "\n".join(old)))
        places.append((found, len(old), new))
        at = found + len(old)
    for start, count, new in sorted(places, key=lambda place: place[0], reverse=True):
        lines[start : start + count] = new
    return "\n".join(lines) + "\n"


def _seek(lines: Sequence[str], wanted: Sequence[str], at: int, at_end: bool) -> Optional[int]:
    """Where these lines begin: as they are, else but for white space at their ends, else around them."""
    first = max(at, len(lines) - len(wanted)) if at_end else at
    for same in (str, str.rstrip, str.strip):
        sought = [same(line) for line in wanted]
        for start in range(first, len(lines) - len(wanted) + 1):
            if [same(line) for line in lines[start : start + len(wanted)]] == sought:
                return start
    return None


# --------------------------------------------------------------------------------------------------------- play


class CodexPlayer:
    """Plays the calls of a session as Codex would: hooks, then the tool. ``replay`` is the module replay.py."""

    def __init__(self, replay: Any, record: Any) -> None:
        self.replay, self.record = replay, record

    def shown_input(self, tool: str, given: dict[str, Any]) -> dict[str, Any]:
        """The input as hooks and the transcript have it."""
        return {"command": given.get("command")} if tool == SHELL else given

    def attempt(self, session: Any, tool: str, given: dict[str, Any], use: str, agent: Optional[str]) -> Any:
        """Hooks, execution: (was it refused, its result)."""
        env = {name: value for name, value in os.environ.items() if name not in self.replay.KEYS}
        env.update(self.replay.settings_env(session.settings))
        server = self.server_of(session, tool, env)
        broken = None if server else self.fault(tool, given)
        if broken:
            return False, self.replay.error(broken)
        cwd = session.tools.cwd = session.workspace
        workdir = given.get("workdir") if tool == SHELL else None
        if isinstance(workdir, str):
            cwd = session.tools.cwd = session.tools.path(workdir)
        shown = self.shown_input(tool, given)
        outcome = session.hooks("PreToolUse", tool, shown, use, agent)
        if outcome.decision == "deny":
            session.tools.cwd = session.workspace
            command, other = self.record.BLOCKED
            told = (command, "Command", shown["command"]) if tool in (SHELL, PATCH) else (other, "Tool", tool)
            return True, self.replay.error("%s%s. %s: %s" % (told[0], outcome.reason, told[1], told[2]))
        # `ask` and `defer` let the call through here, so the hook itself denies in their place
        now = given if outcome.updated_input is None else dict(given, **outcome.updated_input)
        text, ran = self.run(session, tool, now, env, server)
        if ran:
            session.tools.cwd = cwd
            after = session.hooks("PostToolUse", tool, self.shown_input(tool, now), use, agent, tool_response=text)
            text = after.reason or text
        session.tools.cwd = session.workspace
        failed = self.record.has_failed(text) or (tool == ASK and not text.startswith(self.record.ASKED))
        return False, self.replay.Result(text, text, failed)

    def fault(self, tool: str, given: dict[str, Any]) -> Optional[str]:
        """Why no hook is asked about the call, in the program's words."""
        if tool not in REGISTERED:
            return "unsupported call: " + tool
        if tool in (SHELL, PATCH) and not isinstance(given.get("command"), str):
            return "failed to parse function arguments: `command` is not a text"
        if tool == ASK and not isinstance(given.get("questions"), list):
            return "failed to parse function arguments: missing field `questions`"
        if tool == PATCH:
            try:
                parse_patch(given["command"])
            except PatchError as problem:
                return UNFIT + str(problem)
        return None

    def run(self, session: Any, tool: str, given: dict[str, Any], env: dict[str, str], server: Any) -> tuple[str, bool]:
        """What the model reads, and whether the tool ran, so that a hook is shown its result."""
        if server is not None:
            try:
                return self.record.output_text(server[0].call(server[1], given).shown), True
            except self.replay.ToolError as failure:
                return str(failure), True
        if tool == SHELL:
            return self.bash(session, given, env)
        if tool == PATCH:
            return self.apply(session, given["command"])
        if tool == ASK:
            return self.ask(session, given["questions"])
        if tool == SPAWN:
            return '{"agent_id":"agent_replay","nickname":null}', True
        return "replay does not run this tool; the hooks let the call through", False

    def bash(self, session: Any, given: dict[str, Any], env: dict[str, str]) -> tuple[str, bool]:
        """A command; its head is the program's."""
        begun, code = time.monotonic(), 0
        if not os.path.isdir(session.tools.cwd):
            return "exec_command failed: No such file or directory", False
        try:
            done = session.tools.bash({"command": given["command"]}, env).response
            out = "\n".join(part for part in (done["stdout"], done["stderr"]) if part)
        except self.replay.ToolError as failure:
            found = re.match(r"Exit code (\d+)\n?", str(failure))
            code, out = (int(found[1]), str(failure)[found.end() :]) if found else (1, str(failure))
        head = "Wall time: %.4f seconds\nProcess exited with code %d\nOutput:\n" % (time.monotonic() - begun, code)
        return head + (out + "\n" if out else ""), True

    def apply(self, session: Any, text: str) -> tuple[str, bool]:
        """A patch: all of it is compared with the files before one of them is written."""
        told: dict[str, list[str]] = {"A": [], "M": [], "D": []}
        try:
            hunks = parse_patch(text)
            made = [self.made(session, hunk) for hunk in hunks]
        except PatchError as problem:  # also of a patch that a hook has changed
            return UNFIT + str(problem), False
        if not hunks:
            return "patch rejected: empty patch", False
        try:
            for hunk, content in zip(hunks, made):  # noqa: B905 - Python 3.8
                self.write(session, hunk, content)
                told[hunk.kind].append(hunk.move or hunk.path)
        except (OSError, self.replay.ToolError) as problem:
            return "Exit code: 1\nWall time: 0 seconds\nOutput:\nFailed to write file: %s\n" % problem, True
        files = "".join("%s %s\n" % (kind, path) for kind, paths in told.items() for path in paths)
        return "Exit code: 0\nWall time: 0 seconds\nOutput:\nSuccess. Updated the following files:\n" + files, True

    def write(self, session: Any, hunk: Hunk, content: Optional[str]) -> None:
        """Put a file in place, or take it away."""
        path, target = session.tools.path(hunk.path), session.tools.path(hunk.move or hunk.path)
        if content is not None:
            self.replay.write_text(target, content)
        if content is None or target != path:
            os.remove(path)

    def made(self, session: Any, hunk: Hunk) -> Optional[str]:
        """The text that a file gets; None for one that goes."""
        if hunk.kind == "A":
            return "".join(line + "\n" for line in hunk.lines)
        path = session.tools.path(hunk.path)
        try:
            text = self.replay.read_text(path)
        except (OSError, self.replay.ToolError) as failure:
            problem = failure if os.path.exists(path) else "No such file or directory (os error 2)"
            what = "Failed to read file to update" if hunk.kind == "M" else "Failed to read"
            raise PatchError("%s %s: %s" % (what, path, problem)) from None
        return updated(text, hunk.chunks, path) if hunk.kind == "M" else None

    def ask(self, session: Any, questions: list[Any]) -> tuple[str, bool]:
        """A question, which nobody here answers: a hook does, afterwards."""
        if not self.replay.registered(session.settings, "PostToolUse", ASK):
            return "request_user_input is unavailable in Default mode", False
        if not all(isinstance(one, dict) and one.get("options") for one in questions):
            return "request_user_input requires non-empty options for every question", False
        return '{"answers":{}}', True

    def server_of(self, session: Any, tool: str, env: dict[str, str]) -> Any:
        """The server and its own name of an MCP tool, whose name here has letters, digits and ``_`` only."""
        if not tool.startswith("mcp__"):
            return None
        wanted = self.record.hook_name(tool)
        for name in sorted(session.servers, key=len, reverse=True):
            start = self.record.hook_name("mcp__%s__" % name)
            if not wanted.startswith(start):
                continue
            server = session.servers[name]
            server.has("", env)  # it is started by its first question
            own = [one for one in server.tools if self.record.hook_name("mcp__" + one)[5:] == wanted[len(start) :]]
            if own:
                return server, own[0]
        return None
