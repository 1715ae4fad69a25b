"""Tool patterns: which names they catch, and the one hook matcher that covers them.

A pattern is a tool name in which ``*`` stands for any text and ``?`` for any one character; nothing else is special.
A matcher is what the agent programs read (facts/claude-code.md, Matchers; facts/codex.md): plain characters are exact
names joined by ``|``, anything else is an unanchored regular expression of JavaScript (Claude Code) or Rust (Codex).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from functools import lru_cache

from harbor_tasks.policy.tools import Runtime

#: Names of one tool in one or another agent program: a pattern for one catches calls under all of them.
_SAME: tuple[frozenset[str], ...] = (
    frozenset({"Agent", "Task"}),
    frozenset({"AskUserQuestion", "request_user_input", "request_user_input_async"}),
)
#: Codex edits files with one tool, whatever the change is called elsewhere.
EDITS = ("Write", "Edit")
_PATCH = "apply_patch"
_CODEX = ("request_user_input", "request_user_input_async", _PATCH)
#: The tool that starts subagents there; newer models have it in a namespace.
_SPAWN = ("spawn_agent", "collaborationspawn_agent")
#: Of a pattern for MCP tools, what Codex writes as `_`.
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_*?]")
#: Tools that can reach the policy's own files where these are not sealed away.
PROTECTED = ("Bash", *EDITS, "MultiEdit", "NotebookEdit")

#: Names that both programs take as exact; with a hyphen Codex already reads a regular expression.
_PLAIN = re.compile(r"[A-Za-z0-9_]+", re.ASCII)
#: Characters with a meaning in a regular expression of JavaScript and of Rust. A hyphen has none outside brackets.
_SPECIAL = re.compile(r"[\\^$.*+?()\[\]{}|]")
_MAX_STATES = 20_000


def is_glob(pattern: str) -> bool:
    """Whether the pattern can catch more than one name."""
    return "*" in pattern or "?" in pattern


def names_of(tool: str) -> frozenset[str]:
    """All names under which a call of this tool is caught, its own included."""
    for same in _SAME:
        if tool in same:
            return same
    if tool == _PATCH:
        return frozenset({_PATCH, *EDITS})
    if tool in EDITS:
        return frozenset({tool, _PATCH})
    return frozenset({tool})


def covered(tool: str, patterns: Iterable[str]) -> bool:
    """Whether one of the patterns catches a call of ``tool`` under any of its names (``Task`` is ``Agent``)."""
    names = names_of(tool)
    return any(_regex(pattern).fullmatch(name) for pattern in patterns for name in names)


def named(tool: str, patterns: Iterable[str]) -> bool:
    """Whether one of the patterns is a name of the tool itself, not a mere glob."""
    return not names_of(tool).isdisjoint(patterns)


def with_aliases(patterns: Iterable[str], runtime: Runtime = "claude-code") -> tuple[str, ...]:
    """The patterns and, after them, the other names that this program has for the tools that they catch."""
    found = dict.fromkeys(patterns)
    for name in ("Agent", "Task", "AskUserQuestion", *EDITS, *(_CODEX if runtime == "codex" else ())):
        if covered(name, tuple(found)) and not any(_regex(pattern).fullmatch(name) for pattern in found):
            found[name] = None
    return tuple(found)


def codex_names(patterns: Iterable[str]) -> tuple[str, ...]:
    """The patterns and, after them, what their tools are called in Codex, where the interceptor does not know it.

    A server's name and its tools' have letters, digits and ``_`` only; a subagent is started by `spawn_agent`, which
    has another name with newer models.
    """
    found = dict.fromkeys(patterns)
    found |= dict.fromkeys(_NOT_IN_NAMES.sub("_", one) for one in patterns if one.startswith("mcp__"))
    if any(covered(name, patterns) for name in ("Agent", *_SPAWN)):
        found |= dict.fromkeys(name for name in _SPAWN if not covered(name, patterns))
    return tuple(found)


def hook_matcher(patterns: Iterable[str], *, protect: bool, runtime: Runtime = "claude-code") -> str | None:
    """The matcher of the one PreToolUse group; None when there is nothing to cover.

    ``protect`` adds the tools that could change the policy where it lies within the agent's reach.
    """
    wanted = with_aliases(map(squeezed, patterns), runtime)
    if not wanted:
        return None
    if "*" in wanted:
        return "*"
    if protect:
        more = (*PROTECTED, _PATCH) if runtime == "codex" else PROTECTED
        wanted += tuple(tool for tool in more if not any(_regex(pattern).fullmatch(tool) for pattern in wanted))
    if all(map(_PLAIN.fullmatch, wanted)):
        return "|".join(wanted)
    return f"^(?:{'|'.join(map(_source, wanted))})$"


def squeezed(pattern: str) -> str:
    """The same pattern with each run of wildcards written once: ``**`` is ``*``, ``*?`` is ``?*``."""
    return re.sub(r"[*?]*\*[*?]*", lambda run: "?" * run[0].count("?") + "*", pattern)


def subsumed(pattern: str, others: Iterable[str], *, apart: Iterable[str] = ()) -> bool:
    """Whether every name that ``pattern`` catches is also caught by one of ``others``; names in ``apart`` do not count.

    Exact for globs: both sides run as automata over the characters that they name and one that neither does.
    A pair that would need an unreasonable number of states counts as not subsumed.
    """
    rivals = tuple(map(squeezed, (*others, *apart)))
    pattern = squeezed(pattern)
    alphabet = {ch for text in (pattern, *rivals) for ch in text if ch not in "*?"} | {"\0"}
    start = (_closure(pattern, {0}), tuple(_closure(rival, {0}) for rival in rivals))
    seen, queue = {start}, deque([start])
    while queue:
        mine, theirs = queue.popleft()
        if len(pattern) in mine and not any(len(rival) in at for rival, at in zip(rivals, theirs, strict=True)):
            return False
        for ch in alphabet:
            step = _step(pattern, mine, ch)
            if not step:
                continue
            state = (step, tuple(_step(rival, at, ch) for rival, at in zip(rivals, theirs, strict=True)))
            if state not in seen:
                if len(seen) >= _MAX_STATES:
                    return False
                seen.add(state)
                queue.append(state)
    return True


def overlap(pattern: str, other: str) -> bool:
    """Whether some name is caught by both patterns."""
    seen: set[tuple[int, int]] = set()
    todo = [(0, 0)]
    while todo:
        at = todo.pop()
        if at in seen:
            continue
        seen.add(at)
        i, j = at
        a, b = pattern[i : i + 1], other[j : j + 1]
        if not a and not b:
            return True
        if a == "*":
            todo.append((i + 1, j))
            todo += [(i, j + 1)] if b else []
        elif b == "*":
            todo.append((i, j + 1))
            todo += [(i + 1, j)] if a else []
        elif a and b and (a == b or "?" in (a, b)):
            todo.append((i + 1, j + 1))
    return False


def _closure(pattern: str, positions: set[int]) -> frozenset[int]:
    """The positions and those that a ``*`` leads to without reading a character."""
    reached = set(positions)
    for position in positions:
        at = position
        while at < len(pattern) and pattern[at] == "*":
            at += 1
            reached.add(at)
    return frozenset(reached)


def _step(pattern: str, positions: frozenset[int], ch: str) -> frozenset[int]:
    """The positions after one more character."""
    after = set()
    for at in positions:
        if at < len(pattern):
            if pattern[at] == "*":
                after.add(at)
            elif pattern[at] in ("?", ch):
                after.add(at + 1)
    return _closure(pattern, after)


@lru_cache(maxsize=1024)
def _regex(pattern: str) -> re.Pattern[str]:
    return re.compile(_source(squeezed(pattern)), re.DOTALL)


def _source(pattern: str) -> str:
    """The pattern as a regular expression that Python, JavaScript and Rust read alike."""
    return _SPECIAL.sub(lambda ch: {"*": ".*", "?": "."}.get(ch[0], "\\" + ch[0]), pattern)
