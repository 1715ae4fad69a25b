"""The ways that an agent has, and what handlers and permission rules make of each (DESIGN.md, Probes).

A route is a tool, or all tools of an MCP server. Two things decide about its calls: the handlers, in the hook, and the
program's own permission rules in its permission mode. What the modes do was observed in Claude Code 2.1 without a
terminal: nobody is there to be asked, so what asks is refused. Codex has no such rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast

from harbor_tasks.policy.handlers import Handler, Handlers, for_runtime
from harbor_tasks.policy.matchers import covered, named, overlap, subsumed
from harbor_tasks.policy.permissions import DEFAULT_MODE, RULES_OF, PermissionRules
from harbor_tasks.policy.tools import CLAUDE_TOOLS, CODEX_SEEN, CODEX_UNSEEN, REACHING, Runtime

if TYPE_CHECKING:
    from rich.table import Table

    from harbor_tasks.evalspec.schema import Runner

State = Literal["guarded", "partly guarded", "unguarded"]
Permission = Literal["removed", "refused", "asks", "judged", "runs", "not pre-approved", "pre-approved", "none"]
"""What the program itself does with a call: it does not offer the tool; refuses; would ask somebody, and so refuses;
lets a model of its own decide; runs it by itself; runs it although no rule allows it; was allowed it by a rule or a
handler. ``none``: it has no such rules, or it is not known what it does."""

_READERS = ("Read", "Glob", "Grep", "LS", "NotebookRead")
_EDITORS = ("Write", "Edit", "MultiEdit", "NotebookEdit")
_FREE = ("Agent", "Task", "Skill")
_QUESTIONS = ("AskUserQuestion", "request_user_input", "request_user_input_async")
_WITHIN = ("in the workspace",)
_READS, _EDITS = "but for commands that only read", "or that edit files"
_ALIKE = {
    "WebFetch": ("Bash",), "WebSearch": ("WebFetch", "Bash"), "Read": ("Grep", "Bash"), "Grep": ("Read", "Bash"),
    "Glob": ("Bash",), "Write": ("Edit", "Bash"), "Edit": ("Write", "Bash"), "MultiEdit": ("Edit", "Write", "Bash"),
    "NotebookEdit": ("Write", "Edit", "Bash"), "apply_patch": ("Bash",), "Bash": ("PowerShell", "Monitor"),
}  # fmt: skip
"""Tools with which an agent reaches the same, by tool."""
_CAPTIONS: dict[Permission, str] = {
    "not pre-approved": "only not pre-approved: no rule allows it, and in mode bypassPermissions it runs all the same",
    "asks": "asks: nobody is there to say yes, so it is refused",
    "refused": "refused: the permission mode runs nothing of it that no rule allows",
    "judged": "judged: a model of the program's own decides",
}
_REQUESTS = ("curl http://host.example/", "wget http://host.example/", "http GET http://host.example/")
"""Commands by which a filter shows that it is about requests, which WebFetch makes, too."""


@dataclass(frozen=True)
class Permits:
    """Permission rules as they stand in settings.json, and the mode in which the program applies them."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    mode: str = DEFAULT_MODE
    runtime: Runtime = "claude-code"


@dataclass(frozen=True)
class Route:
    """A tool that the agent may use, or all tools of an MCP server, and what becomes of its calls."""

    tool: str
    state: State
    reason: str
    handler: int | None = None
    """The index of the first handler that catches it."""
    permission: Permission = "none"
    rules: tuple[str, ...] = ()
    """The permission rules that are about it, or what else decides."""
    also_by: tuple[str, ...] = ()
    """Of a route that is guarded: open routes by which the same can be reached."""

    @property
    def is_open(self) -> bool:
        """Whether some of its calls run that do more than read."""
        shut = self.permission == "removed" or (self.permission in ("refused", "asks") and not self._in_part)
        return self.state != "guarded" and not shut

    @property
    def _in_part(self) -> bool:
        return any(rule.startswith("pre-approved ") for rule in self.rules)

    @property
    def said_of_permission(self) -> str:
        """The permission side in a few words, for a table."""
        words = {"not pre-approved": "only not pre-approved", "none": ""}
        rules = [rule for rule in self.rules if rule != self.tool]
        return ": ".join(filter(None, (words.get(self.permission, self.permission), ", ".join(rules))))


def permits_of(runner: Runner, rules: PermissionRules) -> Permits:
    """The permission side of an eval."""
    more = (runner.settings or {}).get("permissions")
    ask = more.get("ask") if isinstance(more, dict) else None
    texts = tuple(one for one in ask if isinstance(one, str)) if isinstance(ask, list) else ()
    return Permits(rules.allow, rules.deny, texts, runner.permission_mode or DEFAULT_MODE, runner.type)


def routes(
    handlers: Handlers | None, permits: Permits, tools: Iterable[str] | None = None, mcp_servers: Iterable[str] = ()
) -> tuple[Route, ...]:
    """One route per tool and MCP server, those that are removed included.

    ``tools`` are those that the program offered; without them those that it has, as far as they reach something.
    On Codex no handler guards a tool that its hooks are not known to see.
    """
    rules = for_runtime(handlers, permits.runtime).handlers if handlers else ()
    removed = [rule for rule in permits.deny if rule in CLAUDE_TOOLS and permits.runtime != "codex"]
    names = dict.fromkeys((*(REACHING[permits.runtime] if tools is None else tools), *removed))
    found = [_of_tool(tool, rules, permits, offered=tools is not None) for tool in names]
    found += [_of_server(server, rules, permits) for server in dict.fromkeys(mcp_servers)]
    return tuple(replace(route, also_by=_also_by(route, found, rules)) for route in found)


def routes_table(found: Iterable[Route]) -> Table:
    """The routes for a terminal; tools of which all is the same share a row."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from harbor_tasks.errors import printable

    rows: dict[tuple[str, ...], list[str]] = {}
    words: dict[Permission, None] = {}
    for route in found:
        same = (route.state, route.reason, route.said_of_permission, ", ".join(route.also_by))
        rows.setdefault(same, []).append(route.tool)
        words[route.permission] = None
    caption = "\n".join(_CAPTIONS[word] for word in words if word in _CAPTIONS)
    table = Table(
        title="routes", caption=caption or None, box=SIMPLE_HEAD, pad_edge=False, title_justify="left",
        title_style="bold", caption_justify="left", caption_style="",
    )  # fmt: skip
    for head in ("tool", "state", "by", "permission", "also reached by"):
        table.add_column(head, overflow="fold")
    for cells, tools in rows.items():
        table.add_row(*map(printable, (", ".join(tools), *cells)))
    return table


def _of_tool(tool: str, rules: tuple[Handler, ...], permits: Permits, *, offered: bool) -> Route:
    unseen = _unseen_by_codex(tool) if permits.runtime == "codex" else None
    if unseen is not None:
        return Route(tool, "unguarded", unseen)
    state, reason, at = _guard(tool, rules)
    permission, texts = _permission(tool, rules, permits)
    if not offered and tool == "AskUserQuestion" and not any(named(tool, rule.patterns) for rule in rules):
        permission, texts = "removed", ("no handler answers it",)
    if permission == "removed":
        state, reason = "guarded", "it is not offered"
    return Route(tool, state, reason, at, permission, texts)


def _unseen_by_codex(tool: str) -> str | None:
    """Why no handler can guard it there, or None."""
    if tool in CODEX_SEEN:
        return None
    return CODEX_UNSEEN.get(tool, "not known here: nothing has shown that a hook sees it")


def _guard(tool: str, rules: tuple[Handler, ...]) -> tuple[State, str, int | None]:
    """What the handlers do about a tool: the state, the reason, and the index of the handler."""
    skipped = None
    for at, rule in enumerate(rules):
        if not covered(tool, rule.patterns):
            continue
        if tool != "Bash":
            return "guarded", _effect(tool, rule), at
        if rule.input_filters:
            return "partly guarded", "only commands that a filter finds, and not what text cannot show", at
        if rule.enforced:
            return "guarded", _effect(tool, rule), at
        skipped = at if skipped is None else skipped
    if skipped is not None:
        reason = f"handlers[{skipped}] names Bash without input_filters and is not enforced"
        return "unguarded", reason, skipped
    return "unguarded", "no handler catches it", None


def _effect(tool: str, rule: Handler) -> str:
    """What becomes of a call that this handler catches."""
    if tool in _QUESTIONS:
        return "answered" if named(tool, rule.patterns) else "denied: questions are answered only when they are named"
    if rule.rewrite:
        return "rewritten" if not (rule.env_checks or rule.input_checks) else "checked and rewritten"
    return "checked" if rule.gates else "denied"


def _permission(tool: str, rules: Sequence[Handler], permits: Permits) -> tuple[Permission, tuple[str, ...]]:
    """What the program does with a call that no handler stops, and by which rules."""
    if permits.runtime == "codex":
        return "none", ()
    deny, ask, allow = (_rules_of(tool, texts) for texts in (permits.deny, permits.ask, permits.allow))
    if deny.whole:
        return "removed", deny.whole
    but = (*(f"not {text}" for text in deny.parts), *(f"asks for {text}" for text in ask.parts))
    at = next((at for at, rule in enumerate(rules) if covered(tool, rule.patterns)), None)
    if at is not None and (rules[at].approves or (tool in _QUESTIONS and named(tool, rules[at].patterns))):
        return "pre-approved", (f"handlers[{at}]", *but)
    for word, found in (("asks", ask), ("pre-approved", allow)):
        if found.whole:
            return cast("Permission", word), (*found.whole, *but)
    permission, why = _by_mode(tool, permits.mode)
    return permission, (*why, *(f"pre-approved {text}" for text in allow.parts), *but)


@dataclass(frozen=True)
class _Rules:
    """The rules of one list that are about a tool: for all of its calls, and for some."""

    whole: tuple[str, ...]
    parts: tuple[str, ...]


def _rules_of(tool: str, texts: Iterable[str]) -> _Rules:
    """Of paths the program asks the rules of two tools alone (permissions.py)."""
    name = RULES_OF.get(tool, tool)
    found = tuple(texts)
    return _Rules(
        tuple(text for text in found if "(" not in text and _is_of(text, tool)),
        tuple(text for text in found if "(" in text and text.partition("(")[0] == name),
    )


def _by_mode(tool: str, mode: str) -> tuple[Permission, tuple[str, ...]]:
    """What the permission mode does with a tool that no rule names as a whole."""
    careful = mode in ("plan", "auto")
    refusal: Permission = "judged" if mode == "auto" else "refused" if mode == "dontAsk" else "asks"
    found: tuple[Permission, tuple[str, ...]] = ("none", ())
    if mode == "bypassPermissions":
        found = ("not pre-approved", ())
    elif tool in _READERS:
        found = ("runs", () if careful else _WITHIN)
    elif tool in _EDITORS:
        found = ("runs", _WITHIN) if mode in ("acceptEdits", "auto") else ("refused" if careful else refusal, ())
    elif tool in _FREE:
        found = ("asks" if careful else "runs", ())
    elif tool == "Bash":
        found = ("judged", ()) if careful else (refusal, (_READS, *(_EDITS,) * (mode == "acceptEdits")))
    elif tool in ("WebFetch", "WebSearch") or tool.startswith("mcp__"):
        found = (refusal, ())
    return found


def _is_of(rule: str, tool: str) -> bool:
    """Whether a rule without brackets is about all calls of a tool, or of a server's tools."""
    if tool.startswith("mcp__"):
        return subsumed(tool, _whole_servers((rule,)))
    return covered(tool, (rule,))


def _of_server(server: str, rules: tuple[Handler, ...], permits: Permits) -> Route:
    glob = f"mcp__{server}__*"
    permission, texts = _permission(glob, [rule for rule in rules if subsumed(glob, rule.patterns)], permits)
    if permission == "removed":
        return Route(glob, "guarded", "it is not offered", None, permission, texts)
    named_tools = (*permits.allow, *permits.deny, *permits.ask)
    texts += tuple(
        f"{'not ' if text in permits.deny else 'asks for ' if text in permits.ask else 'pre-approved '}{text}"
        for text in named_tools if text not in texts and overlap(text, glob)
    ) if permits.runtime != "codex" else ()  # fmt: skip
    state, reason, at = _guard_of_server(glob, rules)
    return Route(glob, state, reason, at, permission, texts)


def _guard_of_server(glob: str, rules: tuple[Handler, ...]) -> tuple[State, str, int | None]:
    patterns: list[str] = []
    some: int | None = None
    for at, rule in enumerate(rules):
        if some is None and any(overlap(pattern, glob) for pattern in rule.patterns):
            some = at
        patterns += rule.patterns
        if some is not None and subsumed(glob, patterns):
            return "guarded", _effect("mcp", rule) if some == at else "by several handlers", some
    if some is not None:
        caught = ", ".join(pattern for pattern in patterns if overlap(pattern, glob))
        return "partly guarded", f"only {caught}", some
    return "unguarded", "no handler catches its tools", None


def _whole_servers(rules: tuple[str, ...]) -> tuple[str, ...]:
    """Permission rules as globs: ``mcp__server`` there means all tools of the server."""
    return tuple(f"{rule}__*" if rule.startswith("mcp__") and rule.count("__") == 1 else rule for rule in rules)


def _also_by(route: Route, every: Iterable[Route], rules: Sequence[Handler]) -> tuple[str, ...]:
    """The open routes to what a guarded one guards."""
    kept = any(text.startswith("not ") for text in route.rules)
    if route.tool in _QUESTIONS or not (route.state != "unguarded" or kept):
        return ()
    opened = {one.tool for one in every if one.is_open}
    if route.tool in _READERS:  # which commands do without being asked
        opened |= {one.tool for one in every if one.state != "guarded" and _READS in one.rules}
    if route.tool.startswith("mcp__"):
        own = ("its other tools",) if route.state == "partly guarded" else ()
        return (*own, *(name for name in ("Bash", "WebFetch") if name in opened))
    alike = _ALIKE.get(route.tool, ())
    if route.tool == "Bash" and any(map(_is_about_requests, rules)):
        alike = ("WebFetch", *alike)
    if route.state == "unguarded":  # but for a rule of paths, by which the program judges these alike
        alike = tuple(name for name in alike if RULES_OF.get(name, name) != RULES_OF.get(route.tool, route.tool))
    return tuple(name for name in alike if name in opened)


def _is_about_requests(rule: Handler) -> bool:
    """Whether a filter of the handler finds commands that make a request."""
    filters: Any = rule.input_filters if covered("Bash", rule.patterns) else ()
    return any(re.search(one, command, re.IGNORECASE) for one in filters or () for command in _REQUESTS)
