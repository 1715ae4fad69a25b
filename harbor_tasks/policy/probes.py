"""Probes as data, and which tools no handler guards (DESIGN.md, Probes)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from harbor_tasks.evalspec.load import Eval
from harbor_tasks.evalspec.schema import ProbeSpec
from harbor_tasks.policy.handlers import Handler, Handlers, for_runtime
from harbor_tasks.policy.matchers import covered, named, overlap, subsumed
from harbor_tasks.policy.tools import CODEX_SEEN, CODEX_UNSEEN, REACHING, Runtime

Expectation = Literal["deny", "allow", "none", "answer", "rewrite"]
State = Literal["guarded", "partly guarded", "unguarded"]


@dataclass(frozen=True)
class Probe:
    """A forced tool call and the decision that it must get."""

    name: str
    tool: str
    input: dict[str, Any]
    expect: Expectation
    env: dict[str, str] = field(default_factory=dict)
    result: Any = None
    reason_has: tuple[str, ...] = ()
    answers: dict[str, Any] = field(default_factory=dict)
    input_after: dict[str, Any] | None = None
    result_after: Any = None


@dataclass(frozen=True)
class Route:
    """A tool that the agent may use, or all tools of an MCP server, and what the policy does about it.

    ``handler`` is the index of the first handler that catches it.
    """

    tool: str
    state: State
    reason: str
    handler: int | None = None


def probes_of(ev: Eval, handlers: Handlers | None) -> tuple[Probe, ...]:
    """The eval's own probes, in its order, then those that its tool_handlers.yaml brings."""
    return tuple(map(probe_of, (*ev.spec.probes, *(handlers.probes if handlers else ()))))


def probe_of(spec: ProbeSpec) -> Probe:
    """A probe as it is forced."""
    return Probe(
        name=spec.name, tool=spec.tool, input=spec.input, expect=spec.expect, env=spec.env, result=spec.result,
        reason_has=tuple(spec.reason_has), answers=spec.answers, input_after=spec.input_after,
        result_after=spec.result_after,
    )  # fmt: skip


def routes(
    handlers: Handlers | None, tools: Iterable[str] | None = None, mcp_servers: Iterable[str] = (),
    deny: Iterable[str] = (), runtime: Runtime = "claude-code",
) -> tuple[Route, ...]:  # fmt: skip
    """One route per tool and MCP server, from the handlers and the permission rules alone.

    ``tools`` are the program's that reach something, when none are given. ``deny`` are rule texts: one without brackets
    guards its tool as a handler would. On Codex, which has no such rules, no handler guards a tool that its hooks are
    not known to see.
    """
    rules = for_runtime(handlers, runtime).handlers if handlers else ()
    denied = tuple(rule for rule in deny if "(" not in rule and runtime != "codex")
    names = REACHING[runtime] if tools is None else tuple(tools)
    unseen = {tool: _unseen_by_codex(tool) if runtime == "codex" else None for tool in names}
    found = [
        _of_tool(tool, rules, denied) if (why := unseen[tool]) is None else Route(tool, "unguarded", why)
        for tool in names
    ]
    return (*found, *(_of_server(server, rules, denied) for server in dict.fromkeys(mcp_servers)))


def _unseen_by_codex(tool: str) -> str | None:
    """Why no handler can guard it there, or None."""
    if tool in CODEX_SEEN:
        return None
    return CODEX_UNSEEN.get(tool, "not known here: nothing has shown that a hook sees it")


def _of_tool(tool: str, rules: tuple[Handler, ...], denied: tuple[str, ...]) -> Route:
    if covered(tool, denied):
        return Route(tool, "guarded", "permissions.deny")
    skipped = None
    for at, rule in enumerate(rules):
        if not covered(tool, rule.patterns):
            continue
        if tool != "Bash":
            return Route(tool, "guarded", _effect(tool, rule), at)
        if rule.input_filters:
            return Route(tool, "partly guarded", "only commands that a filter finds, and not what text cannot show", at)
        if rule.enforced:
            return Route(tool, "guarded", _effect(tool, rule), at)
        skipped = at if skipped is None else skipped
    if skipped is not None:
        reason = f"handlers[{skipped}] names Bash without input_filters and is not enforced"
        return Route(tool, "unguarded", reason, skipped)
    return Route(tool, "unguarded", "no handler catches it")


def _effect(tool: str, rule: Handler) -> str:
    """What becomes of a call that this handler catches."""
    if tool in ("AskUserQuestion", "request_user_input", "request_user_input_async"):
        return "answered" if named(tool, rule.patterns) else "denied: questions are answered only when they are named"
    if rule.rewrite:
        return "rewritten" if not (rule.env_checks or rule.input_checks) else "checked and rewritten"
    return "checked" if rule.gates else "denied"


def _of_server(server: str, rules: tuple[Handler, ...], denied: tuple[str, ...]) -> Route:
    glob = f"mcp__{server}__*"
    if subsumed(glob, _whole_servers(denied)):
        return Route(glob, "guarded", "permissions.deny")
    patterns: list[str] = []
    some: int | None = None
    for at, rule in enumerate(rules):
        if some is None and any(overlap(pattern, glob) for pattern in rule.patterns):
            some = at
        patterns += rule.patterns
        if some is not None and subsumed(glob, patterns):
            reason = _effect("mcp", rule) if some == at else "by several handlers"
            return Route(glob, "guarded", reason, some)
    if some is not None:
        caught = ", ".join(pattern for pattern in patterns if overlap(pattern, glob))
        return Route(glob, "partly guarded", f"only {caught}", some)
    return Route(glob, "unguarded", "no handler catches its tools")


def _whole_servers(rules: tuple[str, ...]) -> tuple[str, ...]:
    """Permission rules as globs: ``mcp__server`` there means all tools of the server."""
    return tuple(f"{rule}__*" if rule.startswith("mcp__") and rule.count("__") == 1 else rule for rule in rules)
