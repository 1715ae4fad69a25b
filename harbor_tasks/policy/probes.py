"""Probes as data (DESIGN.md, Probes)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from harbor_tasks.evalspec.load import Eval
from harbor_tasks.evalspec.schema import ProbeSpec
from harbor_tasks.policy.handlers import Handlers

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
