#!/usr/bin/env python3
"""The agent program `replay`: plays recorded tool calls as Claude Code would run them, hooks and permissions included.

    replay.py --script replay.json --settings FILE --workspace DIR --transcript FILE
              [--mcp-config FILE] [--plugin-dir DIR]... [--permission-mode MODE] [--step ID]
              [--runner claude-code|codex]

The script is a list of entries, or ``{"steps": {id: [entries]}}``. An entry is ``{"tool", "input", "id"?, "agent"?}``
(``agent``: the subagent that makes the call) or ``{"say": text}``. ``parallel: true``, proposed together with the call
before, has a meaning for agent programs that a scripted model drives; here calls come one after the other.

Exit 0: the script was played; 2: it, or the command line, is wrong; 3: a hook ended the session. The transcript is
stream-json, written line by line; tool_use ids are ``toolu_replay_0001`` and so on, with the step's id in them when
there is one.

What is reproduced was observed with Claude Code 2.1 (facts on hooks, matchers, settings and AskUserQuestion), and
that includes what fails open there: a hook that crashes, is late or prints the wrong thing does not stop the call.

- Matchers: ``matches``. Settings: ``hooks_of``; the file is read again when it changes. Decisions: ``call_hooks``.
- Permission rules that hold: ``Tool``; ``Bash(text*)`` on each part of the line; path globs for Read, Glob, Grep,
  Write, Edit, MultiEdit, NotebookEdit, ``//abs`` and ``~/`` included; ``mcp__server``, ``mcp__server__tool`` and globs
  of them; ``WebFetch(domain:host)``; ``Agent(type)``; ``Skill(name)``. Other rules with parentheses match nothing.
- Tools that work: Bash, Read, Write, Edit, MultiEdit, Glob, Grep, AskUserQuestion, Agent (its calls are the entries
  with ``agent``), Skill, TodoWrite, MCP tools over stdio. NotebookEdit, WebFetch and WebSearch pass the hooks and
  the permissions, and then are errors. Any other name is not registered: no hook runs.

With ``--runner codex`` the calls become those that Codex makes, and are played as it would (codex_tools.py, beside this
file); one that it has nothing for is not played, and stderr says so.

Standard library only, Python 3.8 or newer. ``call_hooks`` is also used by the package to force probes through a policy.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import importlib.util
import itertools
import json
import os
import queue
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

VERSION = "1"
HOOK_SECONDS = 60  # a hook's limit when its settings name none
SHOWN = 30000  # characters of a tool's output that the transcript keeps
KEPT = 1 << 20  # bytes of a command's output that are kept at all
FILE_BYTES = 10 << 20  # no tool reads more of one file
WALKED = 20000  # files that Glob and Grep look at
EDITORS = ("Write", "Edit", "MultiEdit", "NotebookEdit")
READERS = ("Read", "Glob", "Grep")
KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL")  # reach hooks, never commands or servers
PREFIX = "CLAUDE_CODE_SHELL_PREFIX"  # names a program that is started with a whole command, of Bash or a hook
DECISIONS = ("allow", "ask", "defer", "deny")  # the later one wins
HOOK_TYPES = ("command", "http", "prompt", "agent", "mcp_tool")
SCHEMAS: dict[str, dict[str, Any]] = {  # required fields and their types
    "Bash": {"command": str},
    "Read": {"file_path": str},
    "Write": {"file_path": str, "content": str},
    "Edit": {"file_path": str, "old_string": str, "new_string": str},
    "MultiEdit": {"file_path": str, "edits": list},
    "NotebookEdit": {"notebook_path": str, "new_source": str},
    "Glob": {"pattern": str},
    "Grep": {"pattern": str},
    "AskUserQuestion": {"questions": list},
    "Agent": {"prompt": str},
    "Skill": {"skill": str},
    "TodoWrite": {"todos": list},
    "WebFetch": {"url": str},
    "WebSearch": {"query": str},
}


class ToolError(Exception):
    """A tool's own failure: its text is the error that the model sees."""


class ScriptError(Exception):
    """The script or the command line is wrong."""


# ---------------------------------------------------------------------------------------------------------- hooks


class Outcome(NamedTuple):
    """What the hooks of one call came to. ``decision`` None: no hook had an opinion, or what it said fails open."""

    decision: str | None
    reason: str
    updated_input: dict[str, Any] | None
    updated_output: Any
    fired: int
    notes: list[str]


def matches(matcher: Any, tool: str) -> bool:
    """Claude Code's rule: plain characters are exact names, anything else an unanchored JavaScript regex."""
    if matcher in (None, "", "*"):
        return True
    names = [tool, "Task"] if tool == "Agent" else [tool]
    if re.fullmatch(r"[A-Za-z0-9_|, -]+", matcher):
        wanted = [m.strip() for m in re.split(r"[|,]", matcher)]
        return any(name in wanted for name in names)
    pattern = js_regex(matcher)
    return pattern is not None and any(pattern.search(name) for name in names)


_JS = re.compile(
    r"""(?P<same>\\(?:[dDwWsSbBnrtfv1-9]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4})|\(\?(?:[:=!]|<[=!])|\((?!\?))
    |(?P<escape>\\.)|(?P<empty>\[\^?\])|(?P<set>\[(?:\\.|[^\]\\])*\])|(?P<named>\(\?<[A-Za-z_]\w*>)|(?P<bad>\(\?)
    |(?P<times>(?:[*+?]|\{\d+(?:,\d*)?\})\??)|(?P<text>.)""",
    re.S | re.X,
)


def js_regex(source: str) -> Any:
    """A JavaScript regex (no flags) as a compiled Python one; None when JavaScript would refuse it."""
    out, last = [], None
    for token in _JS.finditer(source):
        kind, text = token.lastgroup, token.group()
        if kind == "bad" or kind == last == "times":
            return None  # (?P<…>, (?i), and the possessive and doubled quantifiers that Python takes
        if kind == "escape":  # an identity escape: \A is the letter A
            text = re.escape("\0" if text == "\\0" else text[1])
        elif kind == "empty":
            text = "(?!)" if text == "[]" else r"[\s\S]"
        elif kind == "set":
            plain = re.sub(r"\\(?![dDwWsSbnrtfv])([A-Za-z])", r"\1", text[1:])
            text = "[" + re.sub(r"(?<!\\)([\[&~|])", r"\\\1", plain)
        elif kind == "named":
            text = "(?P" + text[2:]
        elif kind == "text" and text in "{$":
            text = {"{": r"\{", "$": r"\Z"}[text]
        out.append(text)
        last = kind
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return re.compile("".join(out))
    except (re.error, OverflowError, RecursionError):
        return None


def hooks_of(settings: Any) -> dict[str, list[dict[str, Any]]]:
    """The hook groups by event; none at all when one value of the file is invalid, or hooks are switched off."""
    if not isinstance(settings, dict) or settings.get("disableAllHooks") is True:
        return {}
    hooks = settings.get("hooks", {})
    if not isinstance(hooks, dict):
        return {}
    for groups in hooks.values():
        if not isinstance(groups, list) or not all(_valid_group(group) for group in groups):
            return {}
    return hooks


def _valid_group(group: Any) -> bool:
    if not isinstance(group, dict) or not isinstance(group.get("hooks"), list):
        return False
    if not isinstance(group.get("matcher", ""), str):
        return False
    for hook in group["hooks"]:
        if not isinstance(hook, dict) or hook.get("type") not in HOOK_TYPES:
            return False
        if hook["type"] == "command" and not isinstance(hook.get("command"), str):
            return False
        limit = hook.get("timeout", 1)
        if isinstance(limit, bool) or not isinstance(limit, (int, float)) or limit <= 0:
            return False
    return True


def registered(settings: Any, event: str, tool: str) -> list[dict[str, Any]]:
    """The command hooks that answer a call of this tool: the mappings of settings.json, in their order."""
    groups = hooks_of(settings).get(event, [])
    found = [hook for group in groups if matches(group.get("matcher"), tool) for hook in group["hooks"]]
    return [hook for hook in found if hook["type"] == "command"]


def call_hooks(settings: Any, event: str, payload: dict[str, Any], cwd: str, env: dict[str, str]) -> Outcome:
    """Run the hooks that ``settings`` registers for this call, all at once, and combine what they say.

    They start in ``cwd``, or in / when the agent has removed it: that must not keep them from deciding.

    ``payload`` is written to their stdin as it is. ``env`` is the agent program's environment and must hold
    CLAUDE_PROJECT_DIR; the env of the settings is added. Nothing is raised: a hook that fails, fails open.
    """
    hooks = registered(settings, event, str(payload.get("tool_name", "")))
    environment = {**env, **settings_env(settings)}
    cwd = cwd if os.path.isdir(cwd) else "/"
    said: list[Outcome] = []  # in the order in which the hooks finish

    def work(hook: dict[str, Any]) -> None:
        said.append(_run_hook(hook, event, payload, cwd, environment))

    threads = [threading.Thread(target=work, args=(hook,)) for hook in hooks[1:]]
    for thread in threads:
        thread.start()
    if hooks:
        work(hooks[0])
    for thread in threads:
        thread.join()
    winner: Outcome = max(said, key=lambda o: DECISIONS.index(o.decision) if o.decision else -1, default=_open())
    inputs = [o.updated_input for o in said if o.updated_input is not None]
    outputs = [o.updated_output for o in said if o.updated_output is not None]
    return Outcome(
        winner.decision,
        winner.reason,
        inputs[-1] if inputs and winner.decision != "deny" else None,
        outputs[-1] if outputs else None,
        len(hooks),
        [note for o in said for note in o.notes],
    )


def settings_env(settings: Any) -> dict[str, str]:
    """The env of the settings: it reaches hooks and Bash."""
    env = settings.get("env") if isinstance(settings, dict) else None
    return {str(k): str(v) for k, v in env.items()} if isinstance(env, dict) else {}


def _open(note: str = "") -> Outcome:
    return Outcome(None, "", None, None, 0, [note] if note else [])


def _run_hook(hook: dict[str, Any], event: str, payload: dict[str, Any], cwd: str, env: dict[str, str]) -> Outcome:
    limit = hook.get("timeout", HOOK_SECONDS)
    try:
        process = subprocess.Popen(
            [env[PREFIX], hook["command"]] if env.get(PREFIX) else ["/bin/sh", "-c", hook["command"]],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd, env=env,
            start_new_session=True,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        return _open("hook did not start: %s" % error)
    try:
        # waits for the end of its output, not only of the process: so does Claude Code
        out, err = process.communicate(dumps(payload).encode("utf-8", "replace"), timeout=limit)
    except subprocess.TimeoutExpired:
        end_group(process)
        return _open("hook took more than %s s: the call goes on" % limit)
    tool = payload.get("tool_name")
    if process.returncode == 2:
        text = err.decode("utf-8", "replace").strip()
        return Outcome("deny", "%s:%s hook error: [%s]: %s" % (event, tool, hook["command"], text), None, None, 1, [])
    if process.returncode < 0:
        return _open("hook ended by signal %d: the call goes on" % -process.returncode)
    return _verdict(out, event, str(tool), process.returncode)


def _verdict(out: bytes, event: str, tool: str, code: int) -> Outcome:
    """What one hook's output says; anything but one well-formed JSON object says nothing."""
    try:
        said = json.loads(out.decode("utf-8"))
    except ValueError:
        return _open("hook printed no JSON (exit %d): the call goes on" % code if out.strip() or code else "")
    if event == "PostToolUse" and isinstance(said, dict) and said.get("decision") == "block":
        return Outcome(None, str(said.get("reason") or ""), None, None, 1, [])  # Codex puts it in the result's place
    inner = said.get("hookSpecificOutput") if isinstance(said, dict) else None
    if inner is None and isinstance(said, dict):
        return _open("hook printed no hookSpecificOutput: the call goes on" if "permissionDecision" in said else "")
    if not isinstance(inner, dict) or inner.get("hookEventName") != event:
        return _open("hook output without hookEventName %s: the call goes on" % event)
    decision, reason = inner.get("permissionDecision"), inner.get("permissionDecisionReason", "")
    updated = inner.get("updatedInput")
    if (
        (decision is not None and decision not in DECISIONS)
        or not isinstance(reason, str)
        or not (updated is None or isinstance(updated, dict))
    ):
        return _open("hook output of the wrong shape: the call goes on")
    if decision == "deny" and not reason:
        reason = "Hook %s:%s denied this tool" % (event, tool)
    return Outcome(decision, reason, updated, inner.get("updatedToolOutput"), 1, [])


def end_group(process: Any) -> None:
    """End a process that was started in a session of its own, and whatever is still in that session."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except PermissionError:  # the prefix made it another user's: this user has to end it
        prefix = os.environ.get(PREFIX)
        if prefix:
            with contextlib.suppress(OSError):  # no process can be had: whoever ends the sandbox ends it
                subprocess.call([prefix, "kill -KILL -- -%d" % process.pid], stderr=subprocess.DEVNULL)
    except OSError:
        pass
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:  # not ours to end: a hook that hangs, as another user
        pass


# ---------------------------------------------------------------------------------------------------- permissions


class Permissions:
    """The permission rules of the settings, on one workspace. Globs are taken from the workspace, as gitignore does."""

    def __init__(self, settings: Any, mode: str, workspace: str) -> None:
        rules = settings.get("permissions") if isinstance(settings, dict) else None
        self.rules = rules if isinstance(rules, dict) else {}
        self.mode = mode
        self.workspace = workspace

    def refusal(self, tool: str, given: dict[str, Any], cwd: str, approved: bool) -> str | None:
        """Why the call may not run, or None. ``approved``: a hook allowed it, which a deny rule still beats."""
        if self._any("deny", tool, given, cwd):
            return "Permission to use %s has been denied." % tool
        asked = "Claude requested permissions to use %s, but you haven't granted it yet." % tool
        if approved:
            return None
        if self._any("ask", tool, given, cwd):
            return asked
        if self.mode == "bypassPermissions" or self._allowed(tool, given, cwd):
            return None
        return asked

    def _allowed(self, tool: str, given: dict[str, Any], cwd: str) -> bool:
        if tool in ("Agent", "Skill", "TodoWrite"):
            return True
        if tool in READERS or (tool in EDITORS and self.mode == "acceptEdits"):
            inside = os.path.join(os.path.realpath(self.workspace), "")
            if all((path + os.sep).startswith(inside) for path in _paths(given, cwd)):
                return True
        return self._any("allow", tool, given, cwd)

    def _any(self, which: str, tool: str, given: dict[str, Any], cwd: str) -> bool:
        rules = [rule for rule in self.rules.get(which) or [] if isinstance(rule, str)]
        if tool == "Bash":
            parts = command_parts(str(given.get("command", "")))
            hit = [any(_bash_rule(rule, part) for rule in rules) for part in parts]
            return all(hit) if which == "allow" else any(hit)
        return any(self._hits(rule, tool, given, cwd) for rule in rules)

    def _hits(self, rule: str, tool: str, given: dict[str, Any], cwd: str) -> bool:
        name, detail = split_rule(rule)
        name = "Agent" if name == "Task" else name
        if tool.startswith("mcp__"):
            return detail is None and (fnmatch.fnmatchcase(tool, name) or tool.startswith(name + "__"))
        if detail is None:
            return name == tool or name == "*"
        if tool == "WebFetch" and name == tool and detail.startswith("domain:"):
            return fnmatch.fnmatch(urlsplit(str(given.get("url", ""))).hostname or "", detail[7:].strip())
        if tool in ("Agent", "Skill") and name == tool:
            return fnmatch.fnmatchcase(str(given.get("subagent_type" if tool == "Agent" else "skill", "")), detail)
        covers = {"Edit": EDITORS, "Read": READERS}.get(name, ())  # the program asks no path rules but these
        if tool not in covers:
            return False
        return any(self._path_hit(detail, path) for path in _paths(given, cwd))

    def _path_hit(self, pattern: str, path: str) -> bool:
        root = os.path.realpath(self.workspace)
        if pattern.startswith("//"):
            root, pattern = "/", pattern[1:]
        elif pattern.startswith("~/"):
            root, pattern = os.path.realpath(os.path.expanduser("~")), pattern[1:]
        elif pattern.startswith("./"):
            pattern = pattern[1:]
        if not (path + os.sep).startswith(os.path.join(root, "")):
            return False
        relative = os.path.relpath(path, root)
        anchored = "/" in pattern.rstrip("/")
        regex = glob_regex(pattern.strip("/") if anchored else "**/" + pattern.strip("/"))
        return any(regex.fullmatch(part) for part in _ancestors(relative))


def split_rule(rule: str) -> tuple[str, str | None]:
    """``Bash(git *)`` is ("Bash", "git *"), ``Bash`` is ("Bash", None)."""
    found = re.fullmatch(r"([^()]+)\((.*)\)", rule.strip(), re.S)
    return (found.group(1), found.group(2)) if found else (rule.strip(), None)


def _bash_rule(rule: str, part: str) -> bool:
    name, detail = split_rule(rule)
    if name != "Bash":
        return name == "*" and detail is None
    if detail is None or detail == "*":
        return True
    if detail.endswith(":*"):
        return part.startswith(detail[:-2])
    if detail.endswith(" *") and part == detail[:-2]:
        return True
    return re.fullmatch(".*".join(re.escape(text) for text in detail.split("*")), part, re.S) is not None


def command_parts(line: str) -> list[str]:
    """The commands of a line, cut at ``; & |`` and newlines outside quotes."""
    tokens = re.findall(r"\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"|[;&|\n]|[^\\'\";&|\n]+|.", line, re.S)
    parts, current = [], ""
    for token in tokens:
        if token in (";", "&", "|", "\n"):
            parts.append(current.strip())
            current = ""
        else:
            current += token
    parts.append(current.strip())
    return [part for part in parts if part] or [""]


def _paths(given: dict[str, Any], cwd: str) -> list[str]:
    """The files that a call is about: as named and with links resolved."""
    path = str(given.get("file_path") or given.get("notebook_path") or given.get("path") or cwd)
    full = os.path.normpath(os.path.join(cwd, os.path.expanduser(path)))
    return [full, os.path.realpath(full)]


def _ancestors(relative: str) -> Iterator[str]:
    """The path and the folders above it: a rule for a folder covers what is in it."""
    while relative and relative != ".":
        yield relative
        relative = os.path.dirname(relative)


def glob_regex(pattern: str) -> Any:
    """A path glob as a regex: ``*`` and ``?`` stay in one name, ``**`` does not, ``{a,b}`` is a choice."""
    out = []
    depth = 0
    for token in re.findall(r"\*\*/|/\*\*$|\*\*|\*|\?|\[[^\]]+\]|[{},]|.", pattern, re.S):
        if token in ("**/", "/**", "**", "*", "?"):
            out.append({"**/": "(?:.*/)?", "/**": "(?:/.*)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}[token])
        elif len(token) > 2:
            out.append("[" + token[1:-1].replace("!", "^", 1).replace("\\", "\\\\").replace("[", "\\[") + "]")
        elif token == "{":
            depth += 1
            out.append("(?:")
        elif token == "}" and depth:
            depth -= 1
            out.append(")")
        else:
            out.append("|" if token == "," and depth else re.escape(token))
    try:
        return re.compile("".join(out) + ")" * depth, re.S)
    except re.error:
        return re.compile(re.escape(pattern))


# ---------------------------------------------------------------------------------------------------------- tools


class Result(NamedTuple):
    """What a tool gave: the structure that hooks see, and the text (or MCP blocks) that the model sees."""

    response: Any
    shown: Any
    is_error: bool = False


class Tools:
    """The built-in tools, on one workspace; ``cwd`` follows the commands' `cd`."""

    def __init__(self, workspace: str, plugins: list[str]) -> None:
        self.workspace = workspace
        self.cwd = workspace
        self.plugins = plugins
        self.background: list[Any] = []

    def path(self, name: str) -> str:
        return os.path.normpath(os.path.join(self.cwd, os.path.expanduser(name)))

    def run(self, tool: str, given: dict[str, Any], env: dict[str, str]) -> Result:
        """Execute a built-in tool; ToolError is its failure."""
        try:
            if tool == "Bash":
                return self.bash(given, env)
            work = getattr(self, tool.lower(), None)
            if work is None:
                raise ToolError("replay does not run this tool; the hooks and permissions let the call through")
            return work(given)
        except OSError as error:
            where = given.get("file_path") or given.get("path") or self.cwd
            raise ToolError("%s: %s" % (error.strerror or error, where)) from None
        except (TypeError, ValueError, AttributeError) as error:  # an optional field of another type
            raise ToolError("the input of %s cannot be used: %s" % (tool, error)) from None

    def bash(self, given: dict[str, Any], env: dict[str, str]) -> Result:
        limit = min(max(float(given.get("timeout") or 120000), 1.0), 600000.0) / 1000
        if given.get("run_in_background"):
            self.background.append(self._shell(given["command"], env)[0])
            text = "Command running in background with ID: bash_%d" % len(self.background)
            return Result({"stdout": "", "stderr": "", "interrupted": False, "isImage": False}, text)
        folder = tempfile.mkdtemp()
        note = os.path.join(folder, "cwd")
        if env.get(PREFIX):
            os.chmod(folder, 0o777)  # noqa: S103 - the command may run as another user
        try:
            leave = "trap %s EXIT; " % shlex.quote("pwd -P >%s" % shlex.quote(note))
            process, streams = self._shell(given["command"], env, leave)
            try:
                code = process.wait(limit)
            except subprocess.TimeoutExpired:
                end_group(process)
                text = "".join(stream.text() for stream in streams)
                raise ToolError("Command timed out after %gs\n%s" % (limit, text)) from None
            self._follow(note)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        out, err = (stream.text().rstrip("\n") for stream in streams)
        if code:
            text = "\n".join(part for part in (out, err) if part)
            raise ToolError(("Exit code %d\n%s" % (code if code > 0 else 128 - code, text)).rstrip("\n")[:SHOWN])
        return shown_bash({"stdout": out, "stderr": err, "interrupted": False, "isImage": False})

    def _shell(self, command: str, env: dict[str, str], before: str = "") -> tuple[Any, list[Drain]]:
        argv = ["bash", "-c", before + 'eval "$1"', "bash", command]
        if env.get(PREFIX):
            argv = [env[PREFIX], before + "eval " + shlex.quote(command)]
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.cwd, env=env,
            start_new_session=True,
        )  # fmt: skip
        return process, [Drain(process.stdout), Drain(process.stderr)]

    def _follow(self, note: str) -> None:
        try:
            where = read_text(note, "surrogateescape").rstrip("\n")
        except (OSError, ToolError):  # the command ended its shell by a signal, or closed its files
            where = ""
        if where and os.path.isdir(where):
            self.cwd = where
        if not os.path.isdir(self.cwd):
            self.cwd = self.workspace

    def read(self, given: dict[str, Any]) -> Result:
        text = read_text(self.path(given["file_path"]))
        lines = text.split("\n")
        start = max(int(given.get("offset") or 1), 1)
        part = lines[start - 1 : start - 1 + int(given.get("limit") or 2000)]
        file = {"filePath": given["file_path"], "content": "\n".join(part), "numLines": len(part),
                "startLine": start, "totalLines": len(lines)}  # fmt: skip
        return shown_file({"type": "text", "file": file})

    def write(self, given: dict[str, Any]) -> Result:
        path = self.path(given["file_path"])
        new = not os.path.lexists(path)
        write_text(path, given["content"])
        text = ("File created successfully at: %s" if new else "The file %s has been updated.") % path
        return Result({"type": "create" if new else "update", "filePath": path, "content": given["content"]}, text)

    def edit(self, given: dict[str, Any]) -> Result:
        return self.multiedit({"file_path": given["file_path"], "edits": [given]})

    def multiedit(self, given: dict[str, Any]) -> Result:
        path = self.path(given["file_path"])
        fresh = not os.path.lexists(path) and bool(given["edits"]) and given["edits"][0].get("old_string") == ""
        text = "" if fresh else read_text(path)
        for edit in given["edits"]:
            old, new = edit.get("old_string"), edit.get("new_string")
            if not isinstance(old, str) or not isinstance(new, str):
                raise ToolError("an edit needs old_string and new_string")
            if old == new:
                raise ToolError("No changes to make: old_string and new_string are exactly the same.")
            count = text.count(old) if old else int(text == "")
            if not count:
                raise ToolError("String to replace not found in file.\nString: %s" % old)
            if count > 1 and not edit.get("replace_all"):
                raise ToolError("Found %d matches of the string to replace, but replace_all is false." % count)
            text = text.replace(old, new) if old else new
        write_text(path, text)
        return Result({"filePath": path, "edits": given["edits"]}, "The file %s has been updated." % path)

    def glob(self, given: dict[str, Any]) -> Result:
        root = self.path(str(given.get("path") or "."))
        wanted = glob_regex(given["pattern"].lstrip("/") if given["pattern"].startswith("/") else given["pattern"])
        base = "/" if given["pattern"].startswith("/") else root
        found = [path for path in walk(root) if wanted.fullmatch(os.path.relpath(path, base))]
        shown = "\n".join(found[:100]) or "No files found"
        return Result({"filenames": found[:100], "numFiles": len(found), "truncated": len(found) > 100}, shown)

    def grep(self, given: dict[str, Any]) -> Result:
        try:
            pattern = re.compile(given["pattern"], re.I if given.get("-i") else 0)
        except re.error as error:
            raise ToolError("regex parse error: %s" % error) from None
        root = self.path(str(given.get("path") or "."))
        glob = glob_regex("**/" + str(given.get("glob") or "*"))
        files = [root] if os.path.isfile(root) else [p for p in walk(root) if glob.fullmatch(os.path.relpath(p, root))]
        lines: list[str] = []
        names: list[str] = []
        for path in files:
            hits = [(n, line) for n, line in enumerate(_lines(path), 1) if pattern.search(line)]
            if hits:
                names.append(path)
                number = given.get("-n", True)
                lines += ["%s:%s%s" % (path, "%d:" % n if number else "", line) for n, line in hits]
        mode = given.get("output_mode") or "files_with_matches"
        found = {"content": lines, "count": ["%s:%d" % (n, sum(x.startswith(n + ":") for x in lines)) for n in names]}
        out = found.get(mode, names)[: int(given.get("head_limit") or 250)]
        content = "\n".join(out)
        return Result({"mode": mode, "filenames": names, "content": content}, content[:SHOWN] or "No matches found")

    def askuserquestion(self, given: dict[str, Any]) -> Result:
        answers = given.get("answers")
        answers = answers if isinstance(answers, dict) else {}
        shown = []
        for question in given["questions"]:
            text = question.get("question") if isinstance(question, dict) else None
            answer = answers.get(text)
            if isinstance(answer, list) and all(isinstance(a, str) for a in answer):
                answer = ",".join(answer)
            if isinstance(answer, str):
                shown.append('"%s"="%s"' % (text, answer))
        if not shown:
            raise ToolError("The questions were not answered: no one is there to ask.")
        text = "User has answered your questions: %s. You can now continue with the user's answers in mind."
        return Result({"questions": given["questions"], "answers": answers}, text % ", ".join(shown))

    def agent(self, _given: dict[str, Any]) -> Result:
        return Result({"content": []}, "The subagent's own calls, if it made any, follow in the script.")

    def todowrite(self, given: dict[str, Any]) -> Result:
        return Result({"newTodos": given["todos"]}, "Todos have been modified successfully.")

    def skill(self, given: dict[str, Any]) -> Result:
        plugin, _, name = given["skill"].lstrip("/").rpartition(":")
        roots = [os.path.join(self.workspace, ".claude")]
        if plugin:
            roots = [root for root in self.plugins if plugin in (plugin_name(root), os.path.basename(root.rstrip("/")))]
        for root in roots:
            for file in (os.path.join(root, "skills", name, "SKILL.md"), os.path.join(root, "commands", name + ".md")):
                if name and os.path.isfile(file):
                    done = {"success": True, "commandName": given["skill"]}
                    return Result(done, "Launching skill: %s" % given["skill"])
        raise ToolError("Unknown skill: %s" % given["skill"])


def plugin_name(root: str) -> str | None:
    """The name that a plugin's manifest gives it."""
    try:
        with open(os.path.join(root, ".claude-plugin", "plugin.json"), encoding="utf-8") as file:
            name = json.load(file).get("name")
    except (OSError, ValueError, AttributeError):
        return None
    return name if isinstance(name, str) else None


class Drain(threading.Thread):
    """Reads a stream to its end, keeps its beginning: a command that prints for ever fills neither pipe nor memory."""

    def __init__(self, stream: Any) -> None:
        super().__init__(daemon=True)
        self.stream = stream
        self.kept = bytearray()
        self.start()

    def run(self) -> None:
        while True:
            try:
                block = os.read(self.stream.fileno(), 65536)
            except (OSError, ValueError):
                return
            if not block:
                self.stream.close()
                return
            self.kept += block[: max(KEPT - len(self.kept), 0)]

    def text(self) -> str:
        """What was kept; a child in the background that holds the stream open is not waited for."""
        self.join(0.3)
        text = bytes(self.kept).decode("utf-8", "replace")
        return text if len(text) <= SHOWN else text[:SHOWN] + "\n... [%d characters cut]" % (len(text) - SHOWN)


def shown_bash(response: dict[str, Any]) -> Result:
    text = "\n".join(str(response[k]) for k in ("stdout", "stderr") if response[k])
    return Result(response, text or "(Bash completed with no output)")


def shown_file(response: dict[str, Any]) -> Result:
    file = response["file"]
    lines = str(file["content"]).split("\n")
    text = "\n".join("%6d\u2192%s" % (n, line[:2000]) for n, line in enumerate(lines, int(file.get("startLine", 1))))
    return Result(response, text[:SHOWN])


def read_text(path: str, errors: str = "replace") -> str:
    """A file as text; only regular files are opened, so a FIFO cannot hang the session."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        raise ToolError("File does not exist. %s" % path) from None
    if not stat.S_ISREG(mode):
        raise ToolError("Not a regular file: %s" % path)
    with open(path, "rb") as file:
        return file.read(FILE_BYTES).decode("utf-8", errors)


def write_text(path: str, text: str) -> None:
    if os.path.exists(path) and not os.path.isfile(path):
        raise ToolError("Not a regular file: %s" % path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(text.encode("utf-8", "surrogatepass"))


def walk(root: str) -> Iterator[str]:
    """The regular files below ``root``, sorted, at most WALKED; no link to a folder is followed, depth is no limit."""

    def files() -> Iterator[str]:
        folders = [root]
        while folders:
            try:
                with os.scandir(folders.pop()) as entries:
                    inside = sorted(entries, key=lambda entry: entry.name)
            except OSError:
                continue
            below = [entry for entry in inside if entry.is_dir(follow_symlinks=False)]
            yield from (entry.path for entry in inside if not entry.is_dir())
            folders += [e.path for e in reversed(below) if e.name not in (".git", "node_modules")]

    for path in itertools.islice(files(), WALKED):
        if os.path.isfile(path):
            yield path


def _lines(path: str) -> list[str]:
    try:
        text = read_text(path)
    except (OSError, ToolError):
        return []
    return [] if "\0" in text[:4096] else text.splitlines()


# ------------------------------------------------------------------------------------------------------------ MCP


class McpServer:
    """A stdio MCP server: started when its first tool is called, ended with the session."""

    START, CALL = 30.0, 60.0  # seconds

    def __init__(self, name: str, config: dict[str, Any], cwd: str, log: str) -> None:
        self.name, self.config, self.cwd, self.log = name, config, cwd, log
        self.process: Any = None
        self.listener: threading.Thread | None = None
        self.tools: list[str] | None = None
        self.lines: queue.Queue[bytes | None] = queue.Queue()
        self.count = 0

    def has(self, tool: str, env: dict[str, str]) -> bool:
        """Does the server offer this tool? A server that does not start offers none."""
        if self.tools is None:
            self.tools = []
            try:
                self._start(env)
            except (ToolError, OSError, ValueError) as error:
                print("mcp server %s: %s" % (self.name, error), file=sys.stderr)
                self.end()
        return tool in self.tools

    def _start(self, env: dict[str, str]) -> None:
        if not isinstance(self.config.get("command"), str):
            raise ToolError("replay speaks to stdio servers only; its tools are not registered")
        own = {str(k): str(v) for k, v in (self.config.get("env") or {}).items()}
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [self.config["command"], *map(str, self.config.get("args") or [])],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self.cwd,
                env={**env, **own},
                start_new_session=True,
            )
        self.listener = threading.Thread(target=self._listen, daemon=True)
        self.listener.start()
        self.request(
            "initialize",
            {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "replay", "version": VERSION}},
            self.START,
        )
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        cursor: Any = None
        for _ in range(100):
            page = self.request("tools/list", {"cursor": cursor} if cursor else {}, self.START)
            self.tools = (self.tools or []) + [str(tool.get("name")) for tool in page.get("tools", [])]
            cursor = page.get("nextCursor")
            if not cursor:
                break

    def _listen(self) -> None:
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()
        except (OSError, ValueError):
            raise ToolError("the server %s has ended" % self.name) from None

    def request(self, method: str, params: dict[str, Any], limit: float) -> dict[str, Any]:
        """One JSON-RPC request and its result; what the server asks meanwhile is answered."""
        self.count += 1
        self._send({"jsonrpc": "2.0", "id": self.count, "method": method, "params": params})
        end = time.monotonic() + limit
        while True:
            try:
                line = self.lines.get(timeout=max(end - time.monotonic(), 0.01))
            except queue.Empty:
                raise ToolError("the server %s did not answer %s within %g s" % (self.name, method, limit)) from None
            if line is None:
                self.lines.put(None)
                raise ToolError("the server %s has ended" % self.name)
            try:
                message = json.loads(line.decode("utf-8", "replace"))
            except ValueError:
                continue  # some servers print words on stdout
            if not isinstance(message, dict):
                continue
            if "method" in message:
                self._answer(message)
            elif message.get("id") == self.count:
                if isinstance(message.get("error"), dict):
                    fault = message["error"]
                    raise ToolError("MCP error %s: %s" % (fault.get("code"), fault.get("message")))
                result = message.get("result")
                return result if isinstance(result, dict) else {}

    def _answer(self, message: dict[str, Any]) -> None:
        known: dict[str, Any] = {"ping": {}, "roots/list": {"roots": [{"uri": "file://" + self.cwd}]}}
        if "id" not in message:
            return
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] in known:
            reply["result"] = known[message["method"]]
        else:
            reply["error"] = {"code": -32601, "message": "not supported"}
        self._send(reply)

    def call(self, tool: str, given: dict[str, Any]) -> Result:
        result = self.request("tools/call", {"name": tool, "arguments": given}, self.CALL)
        content = result.get("content")
        if not isinstance(content, list):
            content = [{"type": "text", "text": dumps(result.get("structuredContent", result))}]
        if result.get("isError") is True:
            words = [str(block.get("text", "")) for block in content if isinstance(block, dict)]
            raise ToolError("\n".join(words) or "the tool failed")
        return Result(content, content)

    def end(self) -> None:
        if self.process is None:
            return
        try:
            self.process.stdin.close()
            self.process.wait(2)
        except (OSError, ValueError, subprocess.TimeoutExpired):
            pass
        end_group(self.process)
        if self.listener is not None:
            self.listener.join(1)  # its end of the pipe closed with the process
            self.process.stdout.close()


# ---------------------------------------------------------------------------------------------------- the session


class Session:
    """One run of the agent program: plays entries, one after the other."""

    def __init__(self, options: Any) -> None:
        self.options = options
        self.workspace = os.path.realpath(options.workspace)
        self.settings_file = options.settings
        self.seen: Any = None
        self.settings: Any = {}
        self.tools = Tools(self.workspace, options.plugin_dir)
        self.servers = self._servers(options.mcp_config)
        self.transcript = open(options.transcript, "a", encoding="utf-8", errors="backslashreplace")  # noqa: SIM115
        self.session = "00000000-0000-4000-8000-000000000000"
        self.count = self.turns = 0
        self.agents: dict[str, str] = {}  # subagent type -> id of the Agent call that started it, "": it was refused
        self.denials: list[dict[str, Any]] = []
        self.started = time.monotonic()
        self.said = ""
        self.codex: Any = None
        if options.runner == "codex":
            self.codex = sibling("codex_tools")
            self.player = self.codex.CodexPlayer(sys.modules[__name__], sibling("codex_transcript"))

    def _servers(self, file: str | None) -> dict[str, McpServer]:
        if not file:
            return {}
        config = load_json(file, "--mcp-config")
        found = config.get("mcpServers") if isinstance(config, dict) else None
        if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):
            raise ScriptError("--mcp-config %s: no mapping mcpServers of mappings" % file)
        logs = os.path.dirname(os.path.abspath(self.options.transcript))
        out = {}
        for name, config in found.items():
            plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)
            out[plain] = McpServer(name, config, self.workspace, os.path.join(logs, "mcp-%s.log" % plain))
        return out

    def write(self, **line: Any) -> None:
        """One line of the transcript, at once: an interrupted run keeps what happened."""
        self.transcript.write(dumps({**line, "session_id": self.session}) + "\n")
        self.transcript.flush()

    def read_settings(self) -> None:
        """Read the settings again when the file changed, as Claude Code does; a broken file counts as empty."""
        try:
            mark = os.stat(self.settings_file)
            if self.seen == (mark.st_mtime_ns, mark.st_size, mark.st_ino):
                return
            self.seen = (mark.st_mtime_ns, mark.st_size, mark.st_ino)
            with open(self.settings_file, encoding="utf-8") as file:
                self.settings = json.load(file)
        except (OSError, ValueError):
            self.settings = {}

    def play(self, entries: list[dict[str, Any]]) -> int:
        """Play the entries; the exit code of the program."""
        self.read_settings()
        if self.codex is not None:
            entries, left_out = self.codex.own_entries(entries)
            for tool in left_out:
                print("%s: not played, codex has no such tool" % tool, file=sys.stderr)
        self.write(
            type="system",
            subtype="init",
            cwd=self.workspace,
            model="replay",
            apiKeySource="none",
            permissionMode=self.options.permission_mode,
            tools=sorted(SCHEMAS if self.codex is None else self.codex.REGISTERED),
            claude_code_version="replay " + VERSION,
            mcp_servers=[{"name": name, "status": "pending"} for name in self.servers],
        )
        ended = False
        for entry in entries:
            if "say" in entry:
                self.said = entry["say"]
                self._assistant({"type": "text", "text": entry["say"]}, None)
            elif not self.call(entry):
                ended = True
                break
        self.write(
            type="result",
            subtype="success",
            is_error=False,
            num_turns=self.turns,
            result=self.said,
            duration_ms=int((time.monotonic() - self.started) * 1000),
            permission_denials=self.denials,
            total_cost_usd=0.0,
            **({"stop_reason": "tool_deferred"} if ended else {}),
        )
        return 3 if ended else 0

    def _assistant(self, block: dict[str, Any], parent: str | None) -> None:
        self.turns += 1
        message = {
            "id": "msg_replay_%04d" % self.turns, "type": "message", "role": "assistant", "model": "replay",
            "content": [block], "stop_reason": None, "usage": {"input_tokens": 0, "output_tokens": 0},
        }  # fmt: skip
        self.write(type="assistant", message=message, parent_tool_use_id=parent)

    def call(self, entry: dict[str, Any]) -> bool:
        """Play one tool call; False when a hook ended the session."""
        tool = "Agent" if entry["tool"] == "Task" else entry["tool"]
        self.count += 1
        step = re.sub(r"[^A-Za-z0-9_-]", "_", self.options.step) + "_" if self.options.step else ""
        use = entry.get("id") or "toolu_replay_%s%04d" % (step, self.count)
        agent, parent = entry.get("agent"), None
        if agent is not None:
            parent = self.agents.setdefault(agent, "toolu_replay_agent_%s" % re.sub(r"[^A-Za-z0-9_-]", "_", agent))
            if not parent:
                print("%s: not played, its subagent %s was refused" % (tool, agent), file=sys.stderr)
                return True
        self.read_settings()
        given = entry["input"]
        if self.codex is not None:
            tool, given = self.player.record.hook_name(tool), self.player.shown_input(tool, given)
        self._assistant({"type": "tool_use", "id": use, "name": tool, "input": given}, parent)
        play = self.attempt if self.codex is None else self.as_codex
        refused, result = play(tool, entry["input"], use, agent)
        if refused and agent is None:
            self.denials.append({"tool_name": tool, "tool_use_id": use, "tool_input": given})
        if tool == "Agent" and agent is None:
            self.agents[str(given.get("subagent_type", "general-purpose"))] = "" if refused else use
        if self.codex is not None and tool == self.codex.SPAWN and agent is None:
            self.agents[str(entry.get("id"))] = "" if refused else use
        if result is None:
            print("%s: deferred, the session ends" % tool)
            return False
        block = {"type": "tool_result", "tool_use_id": use, "content": result.shown, "is_error": result.is_error}
        self.write(
            type="user",
            message={"role": "user", "content": [block]},
            parent_tool_use_id=parent,
            tool_use_result=result.response,
        )
        print("%s: %s" % (tool, "refused" if refused else "failed" if result.is_error else "done"), flush=True)
        return True

    def attempt(self, tool: str, given: dict[str, Any], use: str, agent: str | None) -> tuple[bool, Result | None]:
        """Hooks, permissions, execution: (was it refused, its result); no result when a hook deferred."""
        env = {name: value for name, value in os.environ.items() if name not in KEYS}
        env.update(settings_env(self.settings))
        server = self.server_of(tool, env)
        if tool not in SCHEMAS and server is None:
            return False, error("<tool_use_error>Error: No such tool available: %s</tool_use_error>" % tool)
        broken = schema_error(tool, given)
        if broken:
            return False, error(broken)
        outcome = self.hooks("PreToolUse", tool, given, use, agent)
        if outcome.decision == "defer":
            return True, None
        if outcome.decision == "deny":
            return True, error(outcome.reason)
        if outcome.decision == "ask":
            return True, error("Claude requested permissions to use %s, but you haven't granted it yet." % tool)
        now = outcome.updated_input if outcome.updated_input is not None else given
        broken = schema_error(tool, now)
        if broken:
            return True, error(broken)
        rules = Permissions(self.settings, self.options.permission_mode, self.workspace)
        refusal = rules.refusal(tool, now, self.tools.cwd, outcome.decision == "allow")
        if refusal:
            return True, error(refusal)
        try:
            result = self.tools.run(tool, now, env) if server is None else server.call(tool.split("__", 2)[2], now)
        except ToolError as failure:
            self.hooks("PostToolUseFailure", tool, now, use, agent, error=str(failure))
            return False, error(str(failure))
        after = self.hooks("PostToolUse", tool, now, use, agent, tool_response=result.response)
        return False, replaced(tool, result, after.updated_output)

    def as_codex(self, tool: str, given: dict[str, Any], use: str, agent: str | None) -> tuple[bool, Result | None]:
        """The same as Codex does it."""
        return self.player.attempt(self, tool, given, use, agent)

    def server_of(self, tool: str, env: dict[str, str]) -> McpServer | None:
        """The server that offers an MCP tool: the longest name that fits."""
        for name in sorted(self.servers, key=len, reverse=True):
            start = "mcp__%s__" % name
            if tool.startswith(start) and self.servers[name].has(tool[len(start) :], env):
                return self.servers[name]
        return None

    def hooks(self, event: str, tool: str, given: dict[str, Any], use: str, agent: str | None, **more: Any) -> Outcome:
        payload: dict[str, Any] = {
            "session_id": self.session, "transcript_path": os.path.abspath(self.options.transcript),
            "cwd": self.tools.cwd, "prompt_id": "prompt_replay_1", "permission_mode": self.options.permission_mode,
            "effort": {"level": "medium"}, "hook_event_name": event, "tool_name": tool, "tool_input": given,
            "tool_use_id": use, **more,
        }  # fmt: skip
        if agent is not None:
            payload.update(agent_id="agent_replay_%s" % agent, agent_type=agent)
        if self.codex is not None:  # by what the two programs' payloads differ
            del payload["prompt_id"], payload["effort"]
            payload.update(turn_id="turn_replay_1", model="replay")
        env = {**os.environ, "CLAUDE_PROJECT_DIR": self.workspace}
        outcome = call_hooks(self.settings, event, payload, self.tools.cwd, env)
        for note in outcome.notes:
            print("%s %s: %s" % (event, tool, note), file=sys.stderr, flush=True)
        return outcome

    def close(self) -> None:
        for server in self.servers.values():
            server.end()
        for process in self.tools.background:
            end_group(process)
        self.transcript.close()


def sibling(name: str) -> Any:
    """A script of this one's own folder, which an isolated Python does not look into."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".py")
    spec = importlib.util.spec_from_file_location("harbor_pack_replay_" + name, path)
    if spec is None or spec.loader is None:
        raise ScriptError("%s is missing" % path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    return module


def error(text: str) -> Result:
    """A result that the model sees as an error."""
    return Result("Error: " + text, text, True)


def schema_error(tool: str, given: dict[str, Any]) -> str | None:
    """Why a built-in tool would not take this input; MCP tools take any."""
    for name, kind in SCHEMAS.get(tool, {}).items():
        if not isinstance(given.get(name), kind):
            what = "`%s` is missing" % name if name not in given else "`%s` has the wrong type" % name
            return "<tool_use_error>InputValidationError: %s failed: the parameter %s</tool_use_error>" % (tool, what)
    return None


def replaced(tool: str, result: Result, output: Any) -> Result:
    """The result with what a PostToolUse hook put in its place; a shape that the tool does not have changes nothing."""
    if output is None:
        return result
    if tool.startswith("mcp__"):
        if isinstance(output, (str, list)):
            return Result(output, output)
        return error("the replaced output of %s is neither text nor a list of blocks" % tool)
    if isinstance(output, dict) and isinstance(result.response, dict):
        if tool == "Bash" and {"stdout", "stderr", "interrupted"} <= set(output):
            return shown_bash(output)
        if tool == "Read" and isinstance(output.get("file"), dict) and "content" in output["file"]:
            return shown_file(output)
    return result


def dumps(value: Any) -> str:
    """Compact JSON; text that is not valid Unicode stays escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        text = json.dumps(value, separators=(",", ":"))
    return text


def load_json(path: str, what: str) -> Any:
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as problem:
        raise ScriptError("%s %s: %s" % (what, path, problem)) from None


def entries_of(script: Any, step: str | None) -> list[dict[str, Any]]:
    """The entries to play, checked as a whole before the first one runs."""
    if isinstance(script, dict) and set(script) == {"steps"} and isinstance(script["steps"], dict):
        if step is None or step not in script["steps"]:
            raise ScriptError("the script has steps (%s); name one with --step" % ", ".join(script["steps"]))
        script = script["steps"][step]
    if not isinstance(script, list):
        raise ScriptError("a script is a list of entries, or {steps: {id: [entries]}}")
    wrong = []
    for number, entry in enumerate(script, 1):
        why = entry_error(entry)
        if why:
            wrong.append("entry %d: %s" % (number, why))
    if wrong:
        raise ScriptError("; ".join(wrong))
    return script


ENTRY_KEYS = ("tool", "input", "id", "agent", "parallel")
"""Of a recorded call."""


def entry_error(entry: Any) -> str | None:
    """What is wrong with an entry of a script, or None."""
    if not isinstance(entry, dict):
        return "not a mapping"
    if "say" in entry:
        return None if isinstance(entry["say"], str) and len(entry) == 1 else "`say` is a text and stands alone"
    unknown = sorted(set(entry) - set(ENTRY_KEYS))
    if unknown:
        return "unknown key %s (%s, or say)" % (", ".join(unknown), ", ".join(ENTRY_KEYS))
    if not isinstance(entry.get("parallel", False), bool):
        return "`parallel` must be true or false"
    if not isinstance(entry.get("tool"), str) or not entry["tool"]:
        return "`tool` must name a tool"
    if not isinstance(entry.get("input"), dict):
        return "`input` must be a mapping"
    for key in ("id", "agent"):
        if key in entry and (not isinstance(entry[key], str) or not entry[key]):
            return "`%s` must be a text" % key
    return None


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="replay.py", description="plays recorded tool calls")
    for name in ("script", "settings", "workspace", "transcript"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--mcp-config")
    parser.add_argument("--plugin-dir", action="append", default=[])
    parser.add_argument("--permission-mode", default="bypassPermissions")
    parser.add_argument("--step")
    parser.add_argument("--runner", choices=("claude-code", "codex"), default="claude-code")
    options = parser.parse_args(arguments)
    try:
        entries = entries_of(load_json(options.script, "--script"), options.step)
        session = Session(options)
    except (ScriptError, OSError) as problem:
        print("replay: %s" % problem, file=sys.stderr)
        return 2
    try:
        return session.play(entries)
    finally:
        session.close()


if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main(sys.argv[1:]))
