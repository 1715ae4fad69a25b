#!/usr/bin/env python3
"""The verifier of a task: looks at what a run left behind, asks the judges, writes the reward.

It lies in the task's ``tests/`` beside ``judges.json`` (what to ask; written by the build) and needs nothing but the
standard library of Python 3.8 or newer. Read it from `main` on: `take_over` (sealed sandboxes only), `gather` (what the
judges see), `ask` (one judge), `compose` (the reward), `put` (files by rename, reward.json last).

    verify.py [--workspace DIR] [--logs DIR] [--home DIR] [--transcript FILE] [--interceptions FILE] [--run FILE]
              [--model FILE]

Writes into ``--logs``: ``judges.json``, always; ``reward.json``, a flat object of finite numbers, only when every judge
that the reward needs reported (of a step before the last also without a reward, since Harbor ends the trial
where the file is missing); with judges that are models (judge.py, beside this file) also what they are asked, and what
they replied. Without ``--interceptions`` also ``interceptions.jsonl`` and, of a sealed sandbox, ``settings.json``:
copies of the log (of a step its own lines) and of the settings in force, which Harbor then brings home with the rest.
Exit code: 0 reward.json was written, 1 it was not (a judge failed to report, or there is none), 2 the verifier itself
failed; judges.json then holds ``error``.

Models are asked here if the caller gave a key, by ``--model`` (a JSON file with base_url, api_key, auth_token, which is
removed) or by the variables HARBOR_PACK_JUDGE_KEY (_TOKEN, _BASE_URL); else by `harbor-pack score`.

What a judge sees as ``outputs`` (keys that are not known in a run are left out):

    files           path -> text: what lies below the eval's `outputs` paths, and what the agent made or changed;
                    without the settings that carry the policy
    modified_files  path -> text of the files that the agent made or changed; also found by the bare file name
    deleted_files   paths of starting files that are gone
    unread          path -> why the text is missing or not the whole one (binary, too big, a link out of the workspace)
    main_content    the first declared output that was made, else the one changed file, else the final message
    tool_calls      [{id, name, input, input_as_run, decision, result, is_error, tier, reason, answers, agent, logged}];
                    ``input`` is as the agent proposed it, ``input_as_run`` what the tool got of it: after a rewrite or
                    an answer another one, None when the call was refused
    events          [{type: assistant|tool_result|user|result, text, tools: [{id, name, input}], agent}]
    conversation    what the agent said, subagents aside
    interceptions   the lines of the interception log
    questions       [{question, options, answer, decision, tier, free_text}]
    annotations, input, references (path -> text of the case's reference files)
    exit_code, duration_s, cost_usd, num_turns, stdout
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import fnmatch
import hashlib
import importlib
import importlib.util
import inspect
import io
import json
import math
import os
import pwd
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import traceback
from typing import Any, BinaryIO, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

HERE = os.path.dirname(os.path.abspath(__file__))
SEALED_HOME = "/opt/harbor-pack"
AGENT_LOGS = "/logs/agent"
MANAGED_SETTINGS = "/etc/claude-code/managed-settings.json"
JUDGE_SECONDS = 60
JUDGE_VARIABLES = {
    "base_url": "HARBOR_PACK_JUDGE_BASE_URL", "api_key": "HARBOR_PACK_JUDGE_KEY",
    "auth_token": "HARBOR_PACK_JUDGE_TOKEN",
}  # fmt: skip
JUDGE_FILES = ("judge_requests.json", "judge_replies.jsonl")  # judge.py says what is in them
SCORED_BY = ("name", "kind", "feedback_type", "score_range", "samples", "model", "timeout")  # of a judge, in the first
MAX_FILES = 20_000  # files that the agent made where no output is declared; as many more that are declared
MAX_ENTRIES = 1_000_000  # files and folders that are looked at
MAX_LINKS = 1_000
MAX_HASHED = 2 << 30  # bytes of starting files that are read to see whether they changed
MAX_TEXT = 1 << 20  # bytes of one file, of standard output
MAX_TEXTS = 32 << 20  # bytes of all files together
MAX_RESULT = 50_000  # characters of one tool's result
MAX_REASON = 2_000  # characters
MAX_OUTPUT = 64 << 10  # bytes kept of what a judge prints
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER, linux/prctl.h
NOT_WALKED = {".git", "__pycache__", "node_modules"}
POLICY_FILES = re.compile(
    r"\.claude/settings[^/]*\.json|\.codex/hooks\.json"
)  # may lie in the workspace; nobody's output

Json = Dict[str, Any]


class VerifierError(Exception):
    """Something that the verifier needs is missing or wrong; the text says what."""


# ---- the run: transcript and interception log ----


def json_lines(path: Optional[str], offset: int = 0) -> Tuple[List[Json], int]:
    """The objects of a file with one JSON object a line, and how many lines were none. No file: no objects."""
    found, bad = [], 0
    try:
        opened = open_log(path)
    except OSError:
        return [], 0
    with opened as file:
        file.seek(offset)
        for raw in file:
            line = raw.strip()
            if not line:
                continue
            try:
                value = json.loads(line.decode("utf-8", "replace"))
            except (ValueError, RecursionError):
                value = None
            if isinstance(value, dict):
                found.append(value)
            else:
                bad += 1
    return found, bad


def open_log(path: Optional[str]) -> BinaryIO:
    """A file that a run left, and nothing that was put in its place: no link is followed, no FIFO waited for."""
    handle = os.open(path or "", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise FileNotFoundError("%s is no regular file" % path)
    return open(handle, "rb")


def block_text(content: Any) -> str:
    """The text of a message's or a tool result's content: one text, or blocks of which some are texts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return "" if content is None else json.dumps(content, default=str)
    texts = []
    for block in content:
        if isinstance(block, str):
            texts.append(block)
        elif isinstance(block, dict) and block.get("type") == "text":
            texts.append(str(block.get("text", "")))
        elif isinstance(block, dict) and block.get("type") not in ("tool_use", "tool_result", "thinking"):
            texts.append("[%s]" % block.get("type", "block"))
    return "\n".join(texts)


class Run:
    """What Claude Code's stream-json tells of a run.

    A subagent's messages carry ``parent_tool_use_id``: their calls count, what they say is not the conversation. A file
    may hold several sessions (steps): their costs add up, within a session the cost given last is the whole.
    """

    def __init__(self, lines: Iterable[Json]) -> None:
        self.events: List[Json] = []
        self.by_id: Dict[str, Json] = {}
        self.said: List[str] = []
        self.denials: List[Json] = []
        self.costs: Dict[Any, float] = {}
        self.totals: Dict[str, float] = {}
        self.result = ""
        self.sessions = 0
        for line in lines:
            self.read(line)

    @property
    def calls(self) -> List[Json]:
        """The tool calls in their order."""
        return list(self.by_id.values())

    @property
    def final_message(self) -> str:
        """What the agent said last."""
        return self.result or (self.said[-1] if self.said else "")

    @property
    def cost_usd(self) -> Optional[float]:
        """What the run cost; None when the agent program did not say."""
        return math.fsum(self.costs.values()) if self.costs else None

    @property
    def duration_s(self) -> Optional[float]:
        """Seconds; None when the agent program did not say."""
        return self.totals["duration_ms"] / 1000 if "duration_ms" in self.totals else None

    @property
    def num_turns(self) -> Optional[int]:
        """Turns; None when the agent program did not say."""
        return int(self.totals["num_turns"]) if "num_turns" in self.totals else None

    def says_denied(self, call: Json) -> bool:
        """Does the agent program's own summary name this call as denied?"""
        return any(
            denied.get("tool_use_id") == call["id"] and denied.get("tool_input", call["input"]) == call["input"]
            for denied in self.denials
        )

    def read(self, line: Json) -> None:
        """Take in one line."""
        kind, agent = line.get("type"), line.get("parent_tool_use_id")
        message = line.get("message")
        content = message.get("content") if isinstance(message, dict) else None
        blocks = [b for b in content if isinstance(b, dict)] if isinstance(content, list) else []
        if kind == "assistant":
            self.read_assistant(block_text(content), [b for b in blocks if b.get("type") == "tool_use"], agent)
        elif kind == "user":
            results = [b for b in blocks if b.get("type") == "tool_result"]
            for block in results:
                self.read_result(block, agent)
            if not results:
                self.events.append({"type": "user", "text": block_text(content), "tools": [], "agent": agent})
        elif kind == "system":
            self.sessions += line.get("subtype") == "init"
        elif kind == "result":
            self.read_end(line)

    def read_assistant(self, text: str, blocks: List[Json], agent: Any) -> None:
        """A message of the model. The same call told twice (a resumed session repeats itself) counts once."""
        tools: List[Json] = [
            {"id": str(b.get("id", "")), "name": str(b.get("name", "")), "input": b.get("input")} for b in blocks
        ]
        self.events.append({"type": "assistant", "text": text, "tools": tools, "agent": agent})
        if text.strip() and agent is None:
            self.said.append(text)
        for tool in tools:
            known = self.by_id.get(tool["id"])
            if known is None or (known["name"], known["input"]) != (tool["name"], tool["input"]):
                key = tool["id"] if known is None else "%s#%d" % (tool["id"], len(self.by_id))
                self.by_id[key] = dict(tool, result=None, is_error=False, agent=agent)

    def read_result(self, block: Json, agent: Any) -> None:
        """The result of a call."""
        ident, text, failed = str(block.get("tool_use_id", "")), block_text(block.get("content")), block.get("is_error")
        if len(text) > MAX_RESULT:
            text = text[:MAX_RESULT] + "\n[%d more characters]" % (len(text) - MAX_RESULT)
        event = {"type": "tool_result", "text": text, "tools": [], "agent": agent, "tool_use_id": ident}
        self.events.append(dict(event, is_error=bool(failed)))
        call = self.by_id.get(ident)
        if call is not None and call["result"] is None:
            call.update(result=text, is_error=bool(failed))

    def read_end(self, line: Json) -> None:
        """The agent program's own summary."""
        text = block_text(line.get("result"))
        self.events.append({"type": "result", "text": text, "tools": [], "agent": None})
        self.result = text or self.result
        for key in ("duration_ms", "num_turns"):
            if number(line.get(key)) is not None:
                self.totals[key] = self.totals.get(key, 0.0) + float(line[key])
        cost, session = number(line.get("total_cost_usd")), line.get("session_id") or self.sessions
        if cost is not None:
            self.costs[session] = max(self.costs.get(session, 0.0), cost)
        denied = line.get("permission_denials")
        self.denials += [d for d in denied or [] if isinstance(d, dict)]


def number(value: Any) -> Optional[float]:
    """The value as a float when it is a finite number; a bool is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


CODEX_QUESTIONS = ("request_user_input", "request_user_input_async")
SAME_TOOL = ({"Agent", "Task"}, {"AskUserQuestion", *CODEX_QUESTIONS}, {"apply_patch", "Write", "Edit"})
STRENGTH = ("none", "allow", "rewrite", "answer", "ask", "deny")


def by_call(log: Iterable[Json]) -> Dict[str, Json]:
    """tool_use_id -> what the log says of the call: the strongest decision of its lines."""
    found: Dict[str, Json] = {}
    for line in log:
        ident, decision = line.get("tool_use_id"), line.get("decision")
        if not isinstance(ident, str) or decision not in STRENGTH:
            continue
        old = found.get(ident)
        if old is None or STRENGTH.index(decision) > STRENGTH.index(old["decision"]):
            found[ident] = line
    return found


def join_log(run: Run, log: Dict[str, Json]) -> List[Json]:
    """The transcript's calls with the log's decision. A deny by a permission rule is no line of the log."""
    joined = []
    for call in run.calls:
        line = log.get(call["id"])
        decision = line["decision"] if line else "none"
        by_rule = run.says_denied(call) or (call["is_error"] and str(call["result"]).startswith(DENIED_BY_RULE))
        if by_rule and decision in ("none", "allow", "rewrite"):
            decision = "deny"
        said = line or {}
        reason = said.get("reason") or (call["result"] if decision == "deny" else None)
        more = {"tier": said.get("tier"), "reason": reason, "answers": said.get("answers"), "logged": line is not None}
        told = dict(call, decision=decision, **more)
        joined.append(dict(told, input_as_run=input_as_run(told, said)))
    return joined


def input_as_run(call: Json, line: Json) -> Any:
    """What the tool got: what the hook made of the input, else the input; None when the call was refused.

    A call that the run ended before its result may have run.
    """
    if call["decision"] in ("deny", "ask") or was_refused(call):
        return None
    changed = call["decision"] in ("rewrite", "answer") and isinstance(line.get("updated_input"), dict)
    return line["updated_input"] if changed else call["input"]


DENIED_BY_RULE = "<tool_use_error>File is in a directory that is denied by your permission settings"
FILE_TOOLS = ("Read", "Write", "Edit", "MultiEdit", "NotebookEdit", "Glob", "Grep")
PATH_FIELDS = ("file_path", "notebook_path", "path")
REFUSED = (
    "<tool_use_error>", "Permission to use ", "Claude requested permissions ", "PreToolUse:",
    "Command blocked by PreToolUse hook: ", "Tool call blocked by PreToolUse hook: ",  # Codex, from here on
    "unsupported call: ", "unsupported custom tool call: ", "failed to parse function arguments: ",
    "TTY execution is disabled by config", "write_stdin failed: ", "request_user_input is unavailable in ",
    "environment `remote` only supports ", "apply_patch verification failed: ",
)  # fmt: skip


def never_ran(call: Json) -> bool:
    """Was the call refused before any tool ran: by the hook, a permission rule, the tool's schema, an unknown name?"""
    return call["decision"] in ("deny", "ask") or call["result"] is None or was_refused(call)


def was_refused(call: Json, reason: Optional[str] = None) -> bool:
    """Does its result say so itself, be it by the ``reason`` of a deny? The failure of a tool begins otherwise."""
    said = (reason or "").strip()[:100]
    return bool(call["is_error"]) and call["result"].startswith((*REFUSED, *([said] if said else [])))


def covered(tool: str, patterns: Iterable[str]) -> bool:
    """Does a handler's pattern (exact or glob) name this tool, under any of its names?"""
    names = next((group for group in SAME_TOOL if tool in group), {tool})
    regexes = [re.escape(p).replace(r"\*", ".*").replace(r"\?", ".") for p in patterns]
    return any(re.fullmatch(regex, name, re.DOTALL) for regex in regexes for name in names)


def other_tool(one: Any, other: str) -> bool:
    """Are these the names of two different tools?"""
    return isinstance(one, str) and one != other and not any(one in group and other in group for group in SAME_TOOL)


def is_about(line: Json, tool: str, given: Any) -> bool:
    """Is a line of the log about a call with this input, as the transcript has it?

    Its hash says so. Claude Code shows a hook some inputs otherwise than its transcript: a file's path is absolute and
    without ``..``, and a question says whether it takes several answers. Where the path is restated, and where the hook
    was asked under another tool's name and input (Monitor as Bash), the call's id has to do. Of calls that a program of
    the model's makes, Codex's record has what the hook made of their input.
    """
    if line.get("input_sha256") in (input_sha256(given), input_sha256(with_defaults(given))):
        return True
    if line.get("decision") == "rewrite" and isinstance(given, dict) and line.get("updated_input") == given:
        return True
    if other_tool(line.get("tool"), tool):
        return True
    path = next((given[key] for key in PATH_FIELDS if key in given), None) if isinstance(given, dict) else None
    return (
        tool in FILE_TOOLS and isinstance(path, str) and not (path.startswith("/") and path == os.path.normpath(path))
    )


def input_sha256(given: Any) -> str:
    """The hash by which the log names an input."""
    text = json.dumps(given, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def with_defaults(given: Any) -> Any:
    """The input of a question with what it leaves out; any other input as it is."""
    questions = given.get("questions") if isinstance(given, dict) else None
    if not isinstance(questions, list) or not all(isinstance(question, dict) for question in questions):
        return given
    return dict(given, questions=[dict({"multiSelect": False}, **question) for question in questions])


def gone_around(run: Run, log: Iterable[Json], patterns: Iterable[str]) -> List[Json]:
    """Calls that a handler covers and that ran although the hook did not let them: it denied, or never saw them."""
    wanted, lines = list(patterns), {}  # type: Tuple[List[str], Dict[Any, List[Json]]]
    for line in log:
        lines.setdefault(line.get("tool_use_id"), []).append(line)
    found = []
    for call in run.calls:
        if call["result"] is None or not covered(call["name"], wanted):
            continue
        seen = [line for line in lines.get(call["id"], ()) if is_about(line, call["name"], call["input"])]
        denied = next((line for line in seen if line.get("decision") in ("deny", "ask")), None)
        if denied is not None and not was_refused(call, denied.get("reason")):
            why = "ran although it was denied"
        elif not seen and not was_refused(call) and not run.says_denied(call):
            why = "ran without passing the interceptor"
        else:
            continue
        found.append({"tool_use_id": call["id"], "tool": call["name"], "why": why})
    return found


def count_calls(calls: List[Json], log: Dict[str, Json]) -> Json:
    """How many calls there were and what became of them, subagents' calls that only the log has included."""
    decisions = {ident: (line["decision"], line.get("tier")) for ident, line in log.items()}
    decisions.update({c["id"]: (c["decision"], c["tier"]) for c in calls})
    kinds = [decision for decision, _ in decisions.values()]
    return {
        "total": len(kinds), "denied": kinds.count("deny") + kinds.count("ask"), "answered": kinds.count("answer"),
        "guessed": sum(tier == "guessed" for _, tier in decisions.values()), "rewritten": kinds.count("rewrite"),
    }  # fmt: skip


def asked_questions(calls: List[Json], log: Dict[str, Json]) -> List[Json]:
    """Every question that the agent put, and its answer; None when it got none."""
    asked = []
    by_id = {c["id"]: c for c in calls if c["name"] in ("AskUserQuestion", *CODEX_QUESTIONS)}
    for ident in list(by_id) + [i for i, line in log.items() if i not in by_id and line.get("answers")]:
        call = by_id.get(ident, {})
        given = {a.get("question"): a for a in log.get(ident, {}).get("answers") or [] if isinstance(a, dict)}
        asked_input = call.get("input")
        put = asked_input.get("questions") if isinstance(asked_input, dict) else None
        put = [q for q in put if isinstance(q, dict)] if isinstance(put, list) else []
        for question in put or [{"question": text} for text in given]:
            text = question.get("question", question.get("title"))
            answer = given.get(text, {})
            options = question.get("options")
            asked.append({
                "question": text,
                "options": [o.get("label") if isinstance(o, dict) else o for o in options or []],
                "answer": answer.get("answer"), "tier": answer.get("tier"), "free_text": bool(answer.get("free_text")),
                "decision": call.get("decision", log.get(ident, {}).get("decision")),
            })  # fmt: skip
    return asked


# ---- the workspace ----


class Workspace:
    """What lies in the agent's folder at the end, against what it started with. Nothing outside of it is read."""

    def __init__(
        self, root: str, initial: Dict[str, str], mark: Optional[int], outputs: Iterable[str] = ()
    ) -> None:  # fmt: skip
        self.root = os.path.realpath(root)
        self.initial = initial
        self.mark = mark
        self.outputs = list(outputs)
        self.unread: Dict[str, str] = {}
        self.left, self.hashable, self.links = MAX_TEXTS, MAX_HASHED, MAX_LINKS
        self.paths = dict(self.walk())
        self.modified = [path for path, info in self.paths.items() if self.is_modified(path, info)]
        self.deleted = sorted(p for p in initial if not os.path.lexists(os.path.join(self.root, p)))

    def walk(self) -> Iterator[Tuple[str, os.stat_result]]:
        """Regular files and links to files, by path, in order; links to folders are not followed, depth is no limit.

        Files in masses do not hide the others: starting files count in any case, declared outputs on their own.
        """
        rest, entries, folders = {False: MAX_FILES, True: MAX_FILES}, MAX_ENTRIES, [""]
        while folders:
            above = folders.pop()
            below: List[str] = []
            for place, info in self.listed(above):
                entries -= 1
                if not entries:
                    self.unread["..."] = "more than %d files and folders" % MAX_ENTRIES
                    return
                if stat.S_ISDIR(info.st_mode) and os.path.basename(place) not in NOT_WALKED:
                    below.append(place)
                elif stat.S_ISDIR(info.st_mode) or (stat.S_ISLNK(info.st_mode) and self.leads_to_folder(place)):
                    self.unread[place + "/"] = "not looked into"
                elif not (stat.S_ISREG(info.st_mode) or stat.S_ISLNK(info.st_mode)):
                    self.unread[place] = "not a regular file"
                elif not POLICY_FILES.fullmatch(place):
                    if place not in self.initial:
                        declared = self.is_declared(place)
                        rest[declared] -= 1
                        if rest[declared] < 0:
                            self.unread["..."] = "more than %d files" % MAX_FILES
                            continue
                    yield place, info
            folders += reversed(below)

    def listed(self, folder: str) -> Iterator[Tuple[str, os.stat_result]]:
        """What is in a folder, in order: the path from the workspace's root, and the status."""
        try:
            handle = open_own(os.path.join(self.root, folder), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            self.note_error(error)
            return
        try:
            with os.scandir(handle) as entries:
                inside = sorted(entries, key=lambda entry: entry.name)
            for entry in inside:
                with contextlib.suppress(OSError):
                    yield os.path.join(folder, entry.name), entry.stat(follow_symlinks=False)
        finally:
            os.close(handle)

    def leads_to_folder(self, link: str) -> bool:
        """Does this link lead to a folder?"""
        return os.path.isdir(os.path.join(self.root, link))

    def is_declared(self, path: str) -> bool:
        """Does the eval name this path as an output?"""
        return any(under(path, output) for output in self.outputs)

    def note_error(self, error: OSError) -> None:
        """A folder that cannot be listed."""
        self.unread[self.relative(str(error.filename)) + "/"] = "cannot be read: %s" % error.strerror

    def relative(self, full: str) -> str:
        """The path from the workspace's root."""
        return os.path.relpath(full, self.root)

    def is_modified(self, path: str, info: os.stat_result) -> bool:
        """Made or changed by the agent? Starting files are known by content, others by when they came."""
        if path not in self.initial:
            return self.mark is None or info.st_ctime_ns > self.mark
        if stat.S_ISLNK(info.st_mode):
            return True
        self.hashable -= info.st_size
        if self.hashable < 0:  # a file without an end must not keep the verifier from its verdict
            return self.mark is None or info.st_ctime_ns > self.mark
        digest = hashlib.sha256()
        try:
            with open(open_own(os.path.join(self.root, path), os.O_RDONLY | os.O_CLOEXEC), "rb") as file:
                for chunk in iter(lambda: file.read(1 << 20), b""):
                    digest.update(chunk)
        except OSError:
            return True
        return digest.hexdigest() != self.initial[path]

    def text(self, path: str) -> Optional[str]:
        """The text of a file; what is no text gets a placeholder, and ``unread`` says why."""
        full = os.path.join(self.root, path)
        if stat.S_ISLNK(self.paths[path].st_mode):
            self.links -= 1
            if self.links < 0:  # to see where one leads takes the longer the deeper it lies
                self.unread[path] = "one of more than %d links" % MAX_LINKS
                return None
            full = os.path.realpath(full)
            if full != self.root and not full.startswith(self.root.rstrip("/") + "/"):
                self.unread[path] = "a link that leaves the workspace"
                return None
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with open(open_own(full, flags), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    self.unread[path] = "not a regular file"
                    return None
                size = os.fstat(file.fileno()).st_size
                data = file.read(min(MAX_TEXT, max(self.left, 0)))
        except OSError as error:
            self.unread[path] = "cannot be read: %s" % error.strerror
            return None
        if b"\0" in data:
            self.unread[path] = "binary"
            return "[binary file, %d bytes]" % size
        self.left -= len(data)
        text = data.decode("utf-8", "replace")
        if size > len(data):
            self.unread[path] = "only the first %d of %d bytes were read" % (len(data), size)
        elif "\ufffd" in text and b"\xef\xbf\xbd" not in data:
            self.unread[path] = "not UTF-8: some characters are replaced"
        return text

    def texts(self, paths: Iterable[str]) -> Dict[str, str]:
        """path -> text of those that may be read."""
        read = {path: self.text(path) for path in paths}
        return {path: text for path, text in read.items() if text is not None}


def open_own(path: str, flags: int) -> int:
    """Open a file or folder, also one that its owner, who is judging, had closed: root in a sandbox may do that anyway.

    A folder stays open to its owner, a file gets its mode back.
    """
    try:
        return os.open(path, flags)
    except PermissionError:
        info = os.lstat(path)
        if info.st_uid != os.geteuid() or not (stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode)):
            raise
        os.chmod(path, stat.S_IMODE(info.st_mode) | (0o700 if stat.S_ISDIR(info.st_mode) else 0o400))
        handle = os.open(path, flags)
        if stat.S_ISREG(info.st_mode):
            os.fchmod(handle, stat.S_IMODE(info.st_mode))
        return handle


def under(path: str, output: str) -> bool:
    """Is the path the declared output, below it, or matched by it as a glob?"""
    wanted = os.path.normpath(output).strip("/")
    return wanted in (".", path) or path.startswith(wanted + "/") or fnmatch.fnmatchcase(path, wanted)


def main_text(readable: Dict[str, str], modified: List[str], outputs: List[str], final: str) -> str:
    """What the run is about: the longest text of the first declared output that was made, else the final message.

    An eval that declares no output path: the longest changed file, else the final message.
    """
    for output in outputs:
        found = [text for path, text in readable.items() if under(path, output)]
        if any(found):
            return max(found, key=len)
    changed = [readable[path] for path in modified if path in readable]
    return max(changed, key=len) if any(changed) and not outputs else final


def reference_texts(folder: str) -> Dict[str, str]:
    """The case's reference files, which lie with the verifier only."""
    if not os.path.isdir(folder):
        return {}
    space = Workspace(folder, {}, None)
    return space.texts(space.paths)


def codex_record(logs: str) -> Optional[str]:
    """Codex's record of its sessions, where Harbor keeps it, as a transcript in the verifier's own folder."""
    sessions, script = os.path.join(AGENT_LOGS, "sessions"), os.path.join(HERE, "codex_transcript.py")
    if not os.path.isdir(sessions) or not os.path.isfile(script):
        return None
    spec = importlib.util.spec_from_file_location("codex_transcript", script)
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    path = os.path.join(logs, "transcript.jsonl")
    with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:
        for line in module.transcript_of(sessions):
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
    return path


def load_json(path: Optional[str], default: Any) -> Any:
    """A JSON file's content, or the default when there is no such file; VerifierError when it is none."""
    if path is None or not os.path.exists(path):
        return default
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (ValueError, OSError, RecursionError) as error:
        raise VerifierError("%s cannot be read: %s" % (os.path.basename(path), error)) from None


def gather(config: Json, args: argparse.Namespace) -> Tuple[Json, Json]:
    """What the judges see, and what the verifier itself says of the run (calls, not_logged, notes)."""
    lines, bad = json_lines(args.transcript)
    log_lines, bad_log = json_lines(args.interceptions, bring_home(args) if args.in_place else 0)
    run, log = Run(lines), by_call(log_lines)
    calls = join_log(run, log)
    facts = load_json(args.run, {}) or {} if args.run else oracle_run() if args.in_place else {}
    paths = [o["path"] for o in config.get("outputs") or [] if o.get("path")]
    space = Workspace(args.workspace, load_json(os.path.join(HERE, "initial.json"), {}), started(args.home), paths)
    changed = set(space.modified)
    wanted = [p for p in space.paths if p in changed or space.is_declared(p)]
    # what there is room for is read first of what was declared, then of the starting files
    found = space.texts(sorted(wanted, key=lambda p: (not space.is_declared(p), p not in space.initial)))
    texts = {path: found[path] for path in wanted if path in found}
    readable = {p: t for p, t in texts.items() if space.unread.get(p) != "binary"}
    modified = [p for p in space.modified if p in texts]
    outputs = {
        "files": texts,
        "modified_files": {p: texts[p] for p in modified},
        "deleted_files": space.deleted,
        "unread": space.unread,
        "main_content": main_text(readable, modified, paths, run.final_message),
        "tool_calls": calls,
        "events": run.events,
        "conversation": "\n\n".join(run.said),
        "interceptions": log_lines,
        "questions": asked_questions(calls, log),
        "annotations": annotations_of(config),
        "input": config.get("input"),
        "references": reference_texts(os.path.join(HERE, "references")),
        "stdout": head(facts.get("stdout_file") or args.transcript),
    }
    measured = {
        "exit_code": facts.get("exit_code"),
        "duration_s": number(facts.get("duration_s")) or run.duration_s,
        "cost_usd": run.cost_usd if number(facts.get("cost_usd")) is None else number(facts["cost_usd"]),
        "num_turns": run.num_turns,
    }
    outputs.update((key, value) for key, value in measured.items() if value is not None)
    notes = ["%d lines of the transcript are no JSON objects" % bad] if bad else []
    notes += ["%d lines of the interception log are no JSON objects" % bad_log] if bad_log else []
    forged = [ident for ident in log if ident not in {call["id"] for call in calls}] if run.events else []
    if "..." in space.unread:
        notes.append("judges did not see all of the workspace: %s" % space.unread["..."])
    if forged:
        notes.append("%d calls of the interception log are not in the transcript: %s" % (len(forged), forged[:5]))
    around = gone_around(run, log_lines, config.get("handlers") or [])
    return outputs, {"calls": count_calls(calls, log), "not_logged": around, "notes": notes}


def bring_home(args: argparse.Namespace) -> int:
    """Copy the log and the settings in force to where the reward goes; returns where the lines of this step begin.

    Root's own note says how far the log went when the step before was verified. Whoever may not write the note (a
    verifier that is not root) sees the whole log.
    """
    note, offset = os.path.join(args.home, "log-seen"), 0
    with contextlib.suppress(OSError, ValueError), open(note, encoding="ascii") as file:
        offset = int(file.read())
    with contextlib.suppress(FileNotFoundError):
        size = copy_file(args.interceptions, os.path.join(args.logs, "interceptions.jsonl"), offset)
        with contextlib.suppress(OSError), open(note, "w", encoding="ascii") as file:
            file.write(str(size))
    if is_sealed(args.home) and os.path.isfile(MANAGED_SETTINGS):
        copy_file(MANAGED_SETTINGS, os.path.join(args.logs, "settings.json"))
    return offset


def copy_file(source: str, target: str, offset: int = 0) -> int:
    """Copy a file from ``offset`` on over whatever is there; where it ended."""
    with open_log(source) as given:
        given.seek(offset)
        remove(target)
        with open(target, "xb") as out:
            shutil.copyfileobj(given, out)
        return given.tell()


def oracle_run() -> Json:
    """How the solution ended under Harbor's own oracle: it keeps the output, and the exit code when that is not 0."""
    said, code = left("oracle.txt"), 0
    if said is None:
        return {}
    with contextlib.suppress(OSError, ValueError), open(left("exit-code.txt") or os.devnull, encoding="ascii") as file:
        code = int(file.read())
    return {"exit_code": code, "stdout_file": said}


def annotations_of(config: Json) -> Any:
    """The case's annotations; a case without any has an empty mapping."""
    found = config.get("annotations")
    return {} if found is None else found


def started(home: str) -> Optional[int]:
    """When the agent was let in, in ns: files that came later are its own. None when nobody wrote it down."""
    try:
        return os.stat(os.path.join(home, "started")).st_mtime_ns
    except OSError:
        return None


def head(path: Optional[str]) -> str:
    """The first part of a text file; nothing when there is none."""
    try:
        with open_log(path) as file:
            return file.read(MAX_TEXT).decode("utf-8", "replace")
    except OSError:
        return ""


# ---- one judge, in a process of its own ----


class Tail(threading.Thread):
    """Reads a pipe to its end, so that nobody blocks, and keeps the last part."""

    def __init__(self, pipe: Any, keep: int = MAX_OUTPUT) -> None:
        super().__init__(daemon=True)
        self.pipe, self.keep, self.data = pipe, keep, bytearray()
        self.start()

    def run(self) -> None:
        """Thread body."""
        try:
            for chunk in iter(lambda: os.read(self.pipe.fileno(), 1 << 16), b""):
                self.data += chunk
                if len(self.data) > self.keep:
                    del self.data[: -self.keep]
        except (OSError, ValueError):
            pass

    def text(self) -> str:
        """What was kept; a process that outlives its group may hold the pipe, so the wait is short."""
        self.join(2)
        return bytes(self.data).decode("utf-8", "replace")


def limited(argv: List[str], seconds: float, **options: Any) -> Tuple[Optional[int], Tail, Tail]:
    """Run a program; all that it started is ended with it. Exit code None: out of time.

    It is a process group of its own; what has left the group would meet the next judge, or write over the reward.
    """
    process = subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, **options
    )  # fmt: skip
    out, err = Tail(process.stdout), Tail(process.stderr)
    try:
        code: Optional[int] = process.wait(seconds)
    except subprocess.TimeoutExpired:
        code = None
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        process.wait()
        if ADOPTS:
            end_below(time.monotonic() + 20)
    return code, out, err


def judge_env(user: Optional[pwd.struct_passwd] = None) -> Dict[str, str]:
    """What a judge's process finds in its environment: never the caller's keys."""
    env = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "TMPDIR", "TZ", "USER", "LOGNAME")}
    env.setdefault("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    if user is not None:
        env.update(HOME=user.pw_dir, USER=user.pw_name, LOGNAME=user.pw_name)
    env.update(LANG="C.UTF-8", LC_ALL="C.UTF-8", PYTHONDONTWRITEBYTECODE="1")
    return env


def in_child(judge: Json, data: Any, workspace: str, home: str) -> Json:
    """Run a judge's Python in a child: {"value", "reason"}, {"skipped"} or {"error"}, and {"output"}.

    The answer comes through a pipe of its own, which neither what the judge prints nor what it starts can reach, and
    begins with a word that was drawn for it: whatever else is written there is none. In a sealed sandbox the child is
    `worker`: a check may start what the agent left.
    """
    seconds, word = judge.get("timeout") or JUDGE_SECONDS, os.urandom(16).hex()
    read_end, write_end = os.pipe()
    data.seek(0)
    with tempfile.TemporaryFile() as request, open(read_end, "rb") as pipe:
        request.write(json.dumps([word, judge]).encode())
        request.seek(0)
        answer = Tail(pipe, 1 << 20)
        argv = [sys.executable or "python3", "-I", "-B", "-X", "utf8", os.path.abspath(__file__)]
        argv += ["--home", home, "--judge", str(write_end), str(data.fileno())]
        try:
            code, out, err = limited(
                argv, seconds, stdin=request, cwd=workspace, env=judge_env(judge_user(home)),
                pass_fds=(write_end, data.fileno()),
            )  # fmt: skip
        finally:
            os.close(write_end)
        _, told, rest = answer.text().rpartition(word + " ")
        line = rest.partition("\n")[0] if told else ""
    printed = (out.text() + err.text()).strip()
    if code is None:
        return {"error": "took longer than %s s" % seconds, "output": printed}
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = {"error": "its process ended (exit code %s) without an answer" % code}
    return dict(found, output=printed)


def child(result: int, data: int, home: str) -> None:
    """The child's side: judge, then write the word and one line of JSON to the result pipe and be gone.

    It turns into `worker` without starting another program: so the kernel keeps what worker runs from its memory.
    """
    os.set_inheritable(result, False)
    word, judge = json.loads(sys.stdin.buffer.read().decode())
    pid = os.getpid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    with open(data, "rb") as file:
        outputs = json.loads(file.read().decode())
    outputs["modified_files"] = ByName(outputs["modified_files"])
    user = judge_user(home)
    try:
        if user is not None:
            become(user)
        answer = evaluate(judge, outputs)
    except BaseException as error:
        answer = {"error": fault(error, judge)}
    if os.getpid() != pid:  # the judge has forked: only its own process answers
        os._exit(0)
    with contextlib.suppress(Exception):  # the judge may have closed or replaced them
        sys.stdout.flush()
        sys.stderr.flush()
    line = ("\n%s %s\n" % (word, json.dumps(answer))).encode()
    while line:
        line = line[os.write(result, line) :]
    os._exit(0)


class ByName(Dict[str, str]):
    """Path -> text; a file is also found by its bare name, when only one file has it (evals in use ask so)."""

    def _path(self, key: Any) -> Any:
        if super().__contains__(key):
            return key
        found = [path for path in self if path.rpartition("/")[2] == key]
        return found[0] if len(found) == 1 else key

    def __getitem__(self, key: str) -> str:
        return super().__getitem__(self._path(key))

    def __contains__(self, key: object) -> bool:
        return super().__contains__(self._path(key))

    def get(self, key: str, default: Any = None) -> Any:
        """As of a dict."""
        return super().get(self._path(key), default)


def evaluate(judge: Json, outputs: Json) -> Json:
    """The answer of a judge whose work is Python: its `if`, then a check's body or a module's function."""
    annotations, arguments = outputs["annotations"], judge.get("arguments") or {}
    names = {"outputs": outputs, "arguments": arguments, "annotations": annotations}
    if judge.get("if") is not None:
        try:
            wanted = eval(compile("(\n%s\n)" % judge["if"].strip(), "<if>", "eval"), dict(names))  # noqa: S307 - the author's own
        except Exception as error:
            return {"error": "if: %s" % fault(error, judge)}
        if not wanted:
            return {"skipped": True}
    if judge["kind"] == "check":
        returned = check_function(judge["code"], judge["name"])(outputs, arguments, annotations)
    elif judge["kind"] == "module":
        sys.path.insert(0, os.path.join(HERE, "lib"))
        returned = call_judge(getattr(importlib.import_module(judge["module"]), judge["function"]), names)
    else:
        return {}
    value, reason = returned if isinstance(returned, tuple) and len(returned) == 2 else (returned, None)
    if value is None and reason is None:
        return {"error": "returned nothing; it must return true or false, a number, or (value, reason)"}
    for kind in (bool, int, float):
        if isinstance(value, kind):
            return {"value": kind(value), "reason": None if reason is None else str(reason)[:MAX_REASON]}
    return {"error": "returned %s; it must return true or false, a number, or (value, reason)" % type(value).__name__}


def check_function(code: str, name: str) -> Callable[..., Any]:
    """A check's body as a function; its lines keep their numbers, its texts their white space."""
    body = ast.parse(textwrap.dedent(code), "<check>")
    tree = ast.parse("def check(outputs, arguments, annotations): pass", "<check>")
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    function.body = body.body or function.body
    space: Json = {"__name__": "check_" + re.sub(r"\W", "_", name)}
    exec(compile(tree, "<check>", "exec"), space)  # noqa: S102 - the author's own
    found: Callable[..., Any] = space["check"]
    return found


def call_judge(function: Callable[..., Any], names: Json) -> Any:
    """Call a module's function: ``(outputs, **arguments)``, or with parameters named arguments and annotations."""
    wanted = inspect.signature(function).parameters
    given = {key: names[key] for key in ("arguments", "annotations") if key in wanted}
    if "arguments" not in wanted:
        given.update(names["arguments"])
    if "outputs" in wanted and wanted["outputs"].kind is not inspect.Parameter.POSITIONAL_ONLY:
        return function(outputs=names["outputs"], **given)
    return function(names["outputs"], **given)


def fault(error: BaseException, judge: Json) -> str:
    """What went wrong in a judge, with the place in the author's own text."""
    said = "%s: %s" % (type(error).__name__, error) if str(error) else type(error).__name__
    if isinstance(error, SystemExit):
        said = "it called exit(%r); a judge returns its verdict" % (error.code,)
    lines = textwrap.dedent(judge.get("code") or "").splitlines()
    place = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == "<check>" and frame.lineno and frame.lineno <= len(lines):
            place = " (line %d: %s)" % (frame.lineno, lines[frame.lineno - 1].strip())
        elif frame.filename.startswith(os.path.join(HERE, "lib") + os.sep):
            place = " (%s, line %s)" % (os.path.relpath(frame.filename, os.path.join(HERE, "lib")), frame.lineno)
    if isinstance(error, SyntaxError) and error.filename == "<check>" and error.lineno:
        said, place = "SyntaxError: %s" % error.msg, " (line %d)" % error.lineno
    return (said + place)[:MAX_REASON]


def run_command(judge: Json, workspace: str, home: str) -> Json:
    """A shell command in the workspace: exit code 0 is true, the end of what it prints is the reason.

    126 and 127 (cannot be run, not found) are the judge's error: a missing program is no verdict on the run.
    """
    seconds = judge.get("timeout") or JUDGE_SECONDS
    user = judge_user(home)
    options: Json = {} if user is None else {"preexec_fn": lambda: become(user)}
    code, out, err = limited(
        ["/bin/sh", "-c", judge["command"]], seconds, stdin=subprocess.DEVNULL, cwd=workspace, env=judge_env(user),
        **options,
    )  # fmt: skip
    printed, complained = out.text().strip(), err.text().strip()
    last = (printed or complained).splitlines()[-1:]
    if code is None:
        return {"error": "took longer than %s s" % seconds, "output": printed + complained}
    if code in (126, 127) or code < 0:
        return {"error": "cannot be run (exit code %d): %s" % (code, (complained or printed)[-300:])}
    reason = last[0][:MAX_REASON] if last else "exit code %d" % code
    return {"value": code == 0, "reason": reason, "output": printed + complained}


def judge_user(home: str) -> Optional[pwd.struct_passwd]:
    """As whom judges' own code runs: in a sealed sandbox as `worker`, since it may run what the agent left."""
    return pwd.getpwnam("worker") if is_sealed(home) else None


def become(user: Any) -> None:
    """Turn the process into this user, for good."""
    os.initgroups(user.pw_name, user.pw_gid)
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)


# ---- judges that come with the product ----


def cost_budget(outputs: Json, max_cost_usd: float) -> Tuple[bool, str]:
    """True when the run cost no more. VerifierError when nobody knows what it cost."""
    cost = outputs.get("cost_usd")
    if cost is None:
        raise VerifierError("nobody knows what this run cost; `if: \"'cost_usd' in outputs\"` skips the judge then")
    return cost <= max_cost_usd, "%.4f USD, at most %g" % (cost, max_cost_usd)


def documents_consulted(
    outputs: Json, paths: Optional[List[str]] = None, annotation: Optional[str] = None, min_coverage: float = 1.0
) -> Tuple[bool, str]:
    """True when enough of the documents were read: by a Read or Grep call, or named in a Bash command.

    ``paths`` are the documents of every case; ``annotation`` names the key of annotations.yaml that lists a case's own.
    """
    wanted = list(paths or [])
    if annotation is not None:
        found = outputs["annotations"].get(annotation) if isinstance(outputs["annotations"], dict) else None
        if not isinstance(found, list):
            raise VerifierError("annotations.yaml has no list %r" % annotation)
        wanted += [str(path) for path in found]
    missing = [path for path in wanted if not any(consults(call, path) for call in outputs["tool_calls"])]
    if not wanted:
        return True, "no documents were asked for"
    share = 1 - len(missing) / len(wanted)
    said = "%d of %d read" % (len(wanted) - len(missing), len(wanted))
    return share >= min_coverage - 1e-9, said + ("; not: " + ", ".join(missing) if missing else "")


def consults(call: Json, path: str) -> bool:
    """Did this call read the document? Paths are compared by whole parts from their end."""
    if never_ran(call) or call["is_error"]:
        return False
    given = call["input"] if isinstance(call["input"], dict) else {}
    wanted = os.path.normpath(path).lstrip("/")
    if call["name"] in ("Read", "NotebookRead", "Grep"):
        read = [str(given.get(key, "")) for key in ("file_path", "notebook_path", "path")]
        return any(p == wanted or p.endswith("/" + wanted) for p in map(os.path.normpath, filter(None, read)))
    if call["name"] == "Bash":
        return bool(re.search(r"(?<![\w.-])" + re.escape(wanted) + r"(?![\w/-]|\.\w)", str(given.get("command", ""))))
    return False


def tool_calls_valid(outputs: Json, allow_denied: bool = False) -> Tuple[bool, str]:
    """True when no call named an unknown tool or broke a tool's schema, and none was denied, unless that is allowed."""
    bad = []
    for call in outputs["tool_calls"]:
        if call["is_error"] and (call["result"] or "").startswith("<tool_use_error>"):
            bad.append("%s: %s" % (call["name"], call["result"][16:116].split("<")[0].strip()))
        elif call["decision"] in ("deny", "ask") and not allow_denied:
            bad.append("%s: denied" % call["name"])
    return not bad, "; ".join(bad) if bad else "%d calls" % len(outputs["tool_calls"])


BUILTINS: Dict[str, Callable[..., Tuple[bool, str]]] = {
    "cost_budget": cost_budget,
    "documents_consulted": documents_consulted,
    "tool_calls_valid": tool_calls_valid,
}


# ---- verdicts and the reward ----


def ask(judge: Json, outputs: Json, data: Any, args: argparse.Namespace) -> Json:
    """One judge's line of judges.json; whatever happens in the judge becomes its ``error``."""
    begun = time.monotonic()
    kind = judge.get("kind")
    try:
        answer: Json = {}
        if kind in ("check", "module") or judge.get("if") is not None:
            answer = in_child(judge, data, args.workspace, args.home)
        if not answer.get("skipped") and not answer.get("error") and kind not in ("check", "module"):
            answer = ask_other(judge, outputs, args)
        line = verdict(judge, answer)
    except Exception as error:
        line = verdict(judge, {"error": str(error) if isinstance(error, VerifierError) else fault(error, judge)})
    line["seconds"] = round(time.monotonic() - begun, 3)
    return line


def ask_other(judge: Json, outputs: Json, args: argparse.Namespace) -> Json:
    """A judge that is no Python of the author's: a command, a builtin, a model (which is asked later)."""
    if judge["kind"] == "command":
        return run_command(judge, args.workspace, args.home)
    if judge["kind"] == "builtin":
        value, reason = BUILTINS[judge["builtin"]](outputs, **(judge.get("arguments") or {}))
        return {"value": value, "reason": reason}
    if judge["kind"] == "prompt":
        return ask_model(judge, outputs, args)
    raise VerifierError("unknown kind of judge: %r" % judge["kind"])


def ask_model(judge: Json, outputs: Json, args: argparse.Namespace) -> Json:
    """A model's answer, or ``pending`` where none can be asked; its request is kept, for `score` to ask later."""
    models = judge_module()
    try:
        body, cut = models.request(judge, outputs)
    except models.JudgeError as error:
        raise VerifierError(str(error)) from None
    args.requests[judge["name"]] = {"digest": models.digest(body), "cut": cut, "body": body}
    given = args.endpoint or {}
    endpoint = models.endpoint_of(given.get("base_url"), given.get("api_key"), given.get("auth_token"))
    if endpoint is not None and is_sealed(args.home) and models.on_loopback(endpoint):
        endpoint = None  # the caller's own machine, where this sandbox does not reach
    return dict(models.answered(judge, body, models.Replies(args.logs), endpoint, mismatch, number=1), cut=cut)


def judge_module() -> Any:
    """judge.py beside this file, which only tasks with model judges have."""
    path, name = os.path.join(HERE, "judge.py"), "harbor_pack_judge"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None or not os.path.isfile(path):
            raise VerifierError("judge.py is missing beside verify.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


def model_given(path: Optional[str]) -> Json:
    """Where and with which key model judges are asked: read before anything of the run is started, and then gone."""
    given = {key: os.environ.pop(name, None) for key, name in JUDGE_VARIABLES.items()}
    if path is None:
        return given
    try:
        return load_json(path, {}) or {}
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)


def verdict(judge: Json, answer: Json) -> Json:
    """An answer as a line of judges.json, checked against the judge's own type and range."""
    line: Json = {
        "name": judge["name"], "kind": judge["kind"], "status": "ok", "value": None, "normalized": None,
        "passed": None, "reason": whole(answer.get("reason")), "error": None, "seconds": None,
    }  # fmt: skip
    if answer.get("output"):
        line["output"] = whole(answer["output"][-4000:])
    told = "model", "usage", "replies", "unmetered", "samples", "cut"
    line.update({key: answer[key] for key in told if answer.get(key)})
    if answer.get("skipped") or answer.get("pending"):
        return dict(line, status="skipped" if answer.get("skipped") else "pending")
    value, error = answer.get("value"), answer.get("error")
    if error is None and "samples" not in answer:  # the median of whole numbers may be none
        error = mismatch(judge, value)
    if error is not None:
        return dict(line, status="error", error=whole(error), reason=None)
    if isinstance(value, bool):
        return dict(line, value=value, normalized=float(value), passed=value)
    low, high = judge.get("score_range") or (0, 1)
    score: Any = value
    return dict(line, value=score, normalized=(score - low) / (high - low))


def whole(text: Optional[str]) -> Optional[str]:
    """The text without halves of surrogate pairs, which no UTF-8 file can hold."""
    return None if text is None else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def mismatch(judge: Json, value: Any) -> Optional[str]:
    """Why the value is not one of this judge's; None when it is. A bool is no number."""
    wanted, scale = judge.get("feedback_type"), judge.get("score_range")
    shown = ("%s %r" % (type(value).__name__, value))[:80]
    if wanted == "bool" and not isinstance(value, bool):
        return "returned %s, but feedback_type is bool" % shown
    if isinstance(value, bool):
        asks = "score_range asks for a number" if scale else "feedback_type is %s" % wanted
        return "returned %s, but %s" % (shown, asks) if scale or wanted in ("int", "float") else None
    if number(value) is None:
        return "returned %s, which is no finite number" % shown
    if wanted == "int" and not isinstance(value, int):
        return "returned %s, but feedback_type is int" % shown
    low, high = scale or (0, 1)
    if not low <= value <= high:
        hint = "" if scale else "; set score_range"
        return "returned %s, which is outside %g to %g%s" % (repr(value)[:80], low, high, hint)
    return None


def is_number(judge: Json) -> bool:
    """Is it known before it reports that this judge gives a number?"""
    if judge.get("feedback_type") is not None:
        return bool(judge["feedback_type"] != "bool")
    return bool(judge.get("score_range")) or judge.get("kind") == "prompt"


def compose(judges: List[Json], lines: List[Json], reward: Json) -> Tuple[Optional[float], List[str]]:
    """The reward, and the judges that it needs and that did not report (then it is None).

    Numbers: the weighted mean of the normalised values (weight 1 unless given). Booleans: one that failed makes it 0;
    they are part of the mean only when ``weights`` names them, when ``gate`` is off, or when there are no numbers.
    ``judge``: that judge alone. A skipped judge does not count; when none reported there is no reward.
    """
    weights, gate, single = reward.get("weights") or {}, reward.get("gate", True), reward.get("judge")
    needed = []
    for judge, line in zip(judges, lines):  # noqa: B905 - no strict= in Python 3.8
        gates = gate and not is_number(judge)
        weighs = weights.get(judge["name"], 1) > 0
        if line["status"] != "skipped" and (judge["name"] == single if single else gates or weighs):
            needed.append(line)
    missing = [line["name"] for line in needed if line["status"] != "ok"]
    if missing or not needed:
        return None, missing
    if single:
        return needed[0]["normalized"], []
    if gate and any(line["passed"] is False for line in needed):
        return 0.0, []
    numbers = any(line["passed"] is None for line in needed)
    parts = [
        (float(line["normalized"]), float(weights.get(line["name"], 1)))
        for line in needed
        if line["passed"] is None or line["name"] in weights or not gate or not numbers
    ]
    total = math.fsum(weight for _, weight in parts)
    if not total:  # only weights of 0 are left: the booleans decide, and they passed
        return (1.0, []) if any(line["passed"] for line in needed) else (None, [])
    return min(1.0, max(0.0, math.fsum(value * weight for value, weight in parts) / total)), []


# ---- files, and the sealed sandbox ----


def remove(path: str) -> bool:
    """Remove whatever is there: file, link or folder. Was there something?

    A folder that is too odd to be removed is moved out of the way.
    """
    try:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            os.unlink(path)
            return True
    except FileNotFoundError:
        return False
    remove_tree(path)
    if os.path.lexists(path):
        os.rename(path, os.path.join(tempfile.mkdtemp(prefix=".odd.", dir=os.path.dirname(path)), "folder"))
    return True


def remove_tree(path: str) -> None:
    """Remove a folder, however deep it is, whatever its modes are, and following no link that is put into it meanwhile.

    A folder in a folder is first moved to the top: no path grows long, and two open folders are enough. Nothing is
    raised; what cannot be removed (another's, a mount) stays.
    """
    with contextlib.suppress(OSError):
        top = open_folder(path)
        try:
            prefix, count, pending = ".%s-" % os.urandom(8).hex(), 0, [""]
            while pending:
                name = pending.pop()
                folder = open_folder(name, top) if name else top
                try:
                    with os.scandir(folder) as entries:
                        inside = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
                    for inner, is_folder in inside:
                        with contextlib.suppress(OSError):
                            if not is_folder:
                                os.unlink(inner, dir_fd=folder)
                                continue
                            if name:
                                os.close(open_folder(inner, folder))  # its owner must be able to write in it
                                count += 1
                                moved = prefix + str(count)
                                os.rename(inner, moved, src_dir_fd=folder, dst_dir_fd=top)
                                inner = moved
                            pending.append(inner)
                finally:
                    if name:
                        os.close(folder)
                if name:
                    with contextlib.suppress(OSError):
                        os.rmdir(name, dir_fd=top)
        finally:
            os.close(top)
        os.rmdir(path)


def open_folder(name: str, above: Optional[int] = None) -> int:
    """Open a folder, never a link to one, and give its owner all rights to it."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        folder = os.open(name, flags, dir_fd=above)
    except PermissionError:
        os.chmod(name, 0o700, dir_fd=above)
        folder = os.open(name, flags, dir_fd=above)
    with contextlib.suppress(OSError):
        os.fchmod(folder, 0o700)
    return folder


def put(folder: str, name: str, value: Json, mode: int = 0o644) -> None:
    """Write a JSON file beside its place and rename it there, over whatever somebody has put in the way."""
    handle, beside = tempfile.mkstemp(prefix=".%s." % name, dir=folder)
    try:
        with open(handle, "w", encoding="ascii") as file:
            os.fchmod(file.fileno(), mode)
            json.dump(value, file, indent=1, allow_nan=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        for last in (False, False, True):
            try:
                remove(os.path.join(folder, name))
                os.replace(beside, os.path.join(folder, name))
                break
            except OSError:
                if last:
                    raise
    except BaseException:
        remove(beside)
        raise


def is_sealed(home: str) -> bool:
    """Is this a sealed sandbox, where other users' processes may be ended? Root's own mark at the fixed place says so.

    Never on a host: a mark anywhere else, or of another owner, does not count.
    """
    if os.geteuid() != 0 or os.path.abspath(home) != SEALED_HOME or os.path.realpath(home) != SEALED_HOME:
        return False
    try:
        info = os.lstat(os.path.join(home, "sealed"))
    except OSError:
        return False
    return stat.S_ISREG(info.st_mode) and info.st_uid == 0


def take_over(home: str, logs: str) -> None:
    """In a sealed sandbox: take the folder of the reward and end every process of the other users.

    The folder first, so that it is closed even if a process does not end; and again when nobody is left who could have
    put something in its place meanwhile.
    """
    if not is_sealed(home):
        return
    with contextlib.suppress(OSError, RecursionError):
        take_folder(logs)
    end_others(time.monotonic() + 20)
    take_folder(logs)
    close_tests()


def close_tests() -> None:
    """Of the verifier's folder only the modules of judges are for `worker`: it runs judges and what the agent left."""
    for entry in os.scandir(HERE):
        os.chmod(entry.path, 0o755 if entry.name == "lib" else 0o700)
    for folder, folders, names in os.walk(os.path.join(HERE, "lib")):
        for name in (*folders, *names):
            os.chmod(os.path.join(folder, name), 0o755)  # noqa: S103
    os.chmod(HERE, 0o711)  # noqa: S103


def take_folder(path: str) -> None:
    """Make it a folder of root's that is closed to everybody else, whatever is there; a link is not followed."""
    if os.path.islink(path) or not os.path.isdir(path):
        remove(path)
        os.makedirs(path)
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchown(folder, 0, 0)
        os.fchmod(folder, 0o700)
    finally:
        os.close(folder)


def end_others(deadline: float) -> None:
    """End the processes of all users but root, until none is left.

    One signal to all processes of a user, sent as this user, outruns forks; a stopped process ends like any other.
    What is left then (a setuid program halfway to another user) is ended one by one.
    """
    while True:
        others = {pid: ids for pid, ids in processes() if any(ids) and pid not in (1, os.getpid())}
        if not others:
            return
        if time.monotonic() > deadline:
            raise VerifierError("processes of the agent's users cannot be ended (%s)" % sorted(others)[:10])
        for uid in {uid for ids in others.values() for uid in ids} - {0}:
            end_all_of(uid)
        for pid in others:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def end_all_of(uid: int) -> None:
    """Send SIGKILL to every process that this user may signal."""
    try:
        helper = os.fork()
    except OSError:  # the processes of the container are used up: this one becomes the user, for one moment
        os.setresuid(uid, uid, 0)
        with contextlib.suppress(OSError):
            os.kill(-1, signal.SIGKILL)
        os.setresuid(0, 0, 0)
        return
    if helper == 0:
        try:
            os.setgroups([])
            os.setresuid(uid, uid, uid)
            os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)
    os.waitpid(helper, 0)


ADOPTS = False
"""Whether every process below this one is a judge's, and is found wherever it went."""


def adopt_orphans() -> None:
    """Become the parent of every orphan below this process (Linux), so that what leaves its session is found."""
    global ADOPTS
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        ADOPTS = ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0) == 0


def end_below(deadline: float) -> None:
    """End every process below this one, however it has left its group; stopped first, so that none forks away."""
    while time.monotonic() < deadline:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        found = below()
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in found:
                with contextlib.suppress(OSError):
                    os.kill(pid, number)
        if not found:
            return
        time.sleep(0.005)


def below() -> List[int]:
    """All live processes below this one; none where there is no /proc."""
    children: Dict[int, List[int]] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else []:
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open("/proc/%d/stat" % int(name), "rb") as file:
                state, parent = file.read().rpartition(b")")[2].split()[:2]
            if state not in (b"Z", b"X"):
                children.setdefault(int(parent), []).append(int(name))
    found = [os.getpid()]
    for pid in found:
        found += children.get(pid, [])
    return found[1:]


def processes() -> Iterator[Tuple[int, List[int]]]:
    """(pid, real, effective and saved user) of every live process; one that waits to be reaped does no more harm."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open("/proc/%s/status" % name, encoding="ascii", errors="replace") as file:
                fields = dict(line.split(":", 1) for line in file if ":" in line)
        except OSError:
            continue
        if fields.get("State", "").strip()[:1] not in ("Z", "X"):
            yield int(name), [int(number) for number in fields["Uid"].split()[:3]]


# ---- the whole ----


def whole_workspace(path: str, home: str) -> Optional[str]:
    """An agent may remove its own folder, or put something else there: then it is judged on an empty one. The note."""
    mark = started(home)
    try:
        info = os.lstat(path)
        put_there = stat.S_ISLNK(info.st_mode) and mark is not None and info.st_ctime_ns > mark
        if os.path.isdir(path) and not put_there:
            return None
        what = "a link" if stat.S_ISLNK(info.st_mode) else "no folder"
    except (FileNotFoundError, NotADirectoryError):
        what = "gone"
    remove(path)
    os.makedirs(path)
    user = judge_user(home)
    if user is not None:
        os.chown(path, user.pw_uid, user.pw_gid)
    return "the workspace is %s: judged on an empty one" % what


def judge_all(config: Json, args: argparse.Namespace, report: Json) -> Optional[Json]:
    """Fill the report; returns the content of reward.json, or None when there is no reward."""
    note = whole_workspace(args.workspace, args.home)
    if note is not None:
        report["notes"].append(note)
    outputs, facts = gather(config, args)
    report.update(facts, notes=report["notes"] + facts["notes"])
    judges = config.get("judges") or []
    with tempfile.TemporaryFile() as data:
        data.write(json.dumps(outputs).encode())
        data.flush()
        for judge in judges:
            whole_workspace(args.workspace, args.home)  # what a judge starts may remove it, too
            report["judges"].append(ask(judge, outputs, data, args))
            if is_sealed(args.home):  # what it left running would meet the next one
                end_others(time.monotonic() + 20)
    if any(judge.get("kind") == "prompt" for judge in judges):
        put(args.logs, JUDGE_FILES[0], kept_requests(config, args.requests), 0o600)
    return rewarded(config, report)


def kept_requests(config: Json, requests: Json) -> Json:
    """What `harbor-pack score` needs when the sandbox is gone: of all judges what the reward is made with."""
    judges = [{key: judge[key] for key in SCORED_BY if key in judge} for judge in config["judges"]]
    more = {"final": config.get("final", True), "reward": config.get("reward") or {}}
    return dict(more, schema=1, judges=judges, requests=requests)


def rewarded(config: Json, report: Json) -> Optional[Json]:
    """Compose the reward of the report's lines, in place; the content of reward.json, None when there is none."""
    judges = config.get("judges") or []
    report["reward"], report["unjudged"] = compose(judges, report["judges"], config.get("reward") or {})
    scores = {line["name"]: line["normalized"] for line in report["judges"] if line["status"] == "ok"}
    if report["reward"] is not None:
        return dict(scores, reward=report["reward"])
    if config.get("final", True) or any(line["status"] == "error" for line in report["judges"]):
        return None
    # A step before the last without a verdict of its own: Harbor goes on only if it finds a file, and the last counts.
    return scores


def main(argv: Optional[List[str]] = None) -> int:
    """Judge a run; see the module's text."""
    parser = argparse.ArgumentParser(description="judge what a run left behind", allow_abbrev=False)
    for option in ("workspace", "transcript", "interceptions", "run", "model"):
        parser.add_argument("--" + option)
    parser.add_argument("--logs", default="/logs/verifier")
    parser.add_argument("--home", default=SEALED_HOME)
    parser.add_argument("--judge", nargs=2, type=int, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.judge:
        child(args.judge[0], args.judge[1], args.home)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside (SIGTERM)"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a C locale must not turn a judge's text into a crash
            stream.reconfigure(errors="backslashreplace")
    report: Json = {
        "schema": 1, "judges": [], "reward": None, "unjudged": [],
        "calls": dict.fromkeys(("total", "denied", "answered", "guessed", "rewritten"), 0),
        "not_logged": [], "notes": [], "sealed": is_sealed(args.home), "error": None,
    }  # fmt: skip
    reward = None
    try:
        args.endpoint, args.requests = model_given(args.model), {}
        adopt_orphans()
        take_over(args.home, args.logs)
        os.makedirs(args.logs, exist_ok=True)
        for name in ("reward.json", "reward.txt", "judges.json", *JUDGE_FILES):
            if remove(os.path.join(args.logs, name)):
                report["notes"].append("%s was there before the verifier; removed" % name)
        config = load_json(os.path.join(HERE, "judges.json"), None)
        if not isinstance(config, dict):
            raise VerifierError("judges.json is missing beside verify.py")
        reward = judge_all(config, defaults(args, config), report)
        if report["not_logged"]:
            calls = ["%(tool)s (%(tool_use_id)s) %(why)s" % call for call in report["not_logged"]]
            report["reward"] = None
            raise VerifierError("this run does not count: " + "; ".join(calls[:5]))
    except BaseException as error:
        shown = str(error) if isinstance(error, (VerifierError, SystemExit)) else traceback.format_exc(limit=-3)
        report["error"] = shown
        print("verifier: %s" % shown, file=sys.stderr)
    return finish(args.logs, report, reward)


def write_verdict(logs: str, report: Json, reward: Optional[Json]) -> None:
    """Write what was found: judges.json always, reward.json last and only when there is one."""
    put(logs, "judges.json", report)
    for name in ("reward.json", "reward.txt"):
        remove(os.path.join(logs, name))
    if reward is not None and report["error"] is None:
        put(logs, "reward.json", reward)
        remove(os.path.join(logs, "reward.txt"))


def finish(logs: str, report: Json, reward: Optional[Json]) -> int:
    """Write the verdict and print it. Returns the exit code."""
    try:
        write_verdict(logs, report, reward)
    except Exception as error:
        print("verifier: %s cannot be written: %s" % (logs, error), file=sys.stderr)
        return 2
    for line in report["judges"]:
        said = line["error"] or line["reason"] or ("" if line["value"] is None else line["value"])
        print("%-8s %s: %s" % (line["status"], line["name"], said))
    print("reward: %s" % (report["reward"] if report["reward"] is not None else "none"))
    return 2 if report["error"] else 0 if reward is not None else 1


def defaults(args: argparse.Namespace, config: Json) -> argparse.Namespace:
    """The places of a container, where the caller named none."""
    args.workspace = os.path.abspath(args.workspace or config.get("workspace") or "/workspace")
    args.transcript = args.transcript or left("transcript.jsonl", "claude-code.txt") or codex_record(args.logs)
    args.in_place = args.interceptions is None
    if args.in_place:
        args.interceptions = "/var/log/harbor-pack/interceptions.jsonl"
        args.run = args.run or left("run.json")
    return args


def left(*names: str) -> Optional[str]:
    """The first of these files that the agent program left."""
    return next((path for path in (os.path.join(AGENT_LOGS, name) for name in names) if os.path.isfile(path)), None)


if __name__ == "__main__":
    sys.exit(main())
