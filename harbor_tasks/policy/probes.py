"""Probes as data, and which tools no handler guards (DESIGN.md, Probes)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from harbor_tasks.policy.handlers import Handlers

if TYPE_CHECKING:
    from harbor_tasks.evalspec.load import Eval

Expectation = Literal["deny", "allow", "none", "answer", "rewrite"]


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
    line: int | None = None


@dataclass(frozen=True)
class Route:
    """A tool that the agent may use, and what the policy does about it."""

    tool: str
    state: Literal["guarded", "partly guarded", "unguarded"]
    reason: str
    handler: int | None = None


def probes_of(ev: Eval, handlers: Handlers | None) -> tuple[Probe, ...]:
    """The eval's own probes, in its order."""
    raise NotImplementedError


def routes(
    handlers: Handlers | None, tools: Iterable[str] | None = None, mcp_servers: Iterable[str] = (),
    deny: Iterable[str] = (),
) -> tuple[Route, ...]:  # fmt: skip
    """One route per tool and MCP server, from the handlers and the permission rules alone."""
    raise NotImplementedError
