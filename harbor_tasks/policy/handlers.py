"""The author's tool_handlers.yaml, and the mapping that a task carries of it (DESIGN.md, tool_handlers.yaml)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harbor_tasks.errors import Problems

if TYPE_CHECKING:
    from harbor_tasks.evalspec.load import Eval

Overrides = Mapping[str, "str | list[str]"]


@dataclass(frozen=True)
class Handler:
    """One rule: which calls it catches and what becomes of them. ``line`` counts from 1 in the author's file."""

    match: str
    patterns: tuple[str, ...]
    input_filters: tuple[str, ...] | None = None
    env_checks: dict[str, dict[str, Any]] | None = None
    prompt: str | None = None
    prompt_text: str | None = None
    prompt_file: str | None = None
    reason: str | None = None
    input_checks: tuple[dict[str, Any], ...] | None = None
    rewrite: dict[str, Any] | None = None
    on_pass: str = "none"
    on_fail: str = "deny"
    on_unanswered: str = "first_option"
    line: int | None = None

    @property
    def enforced(self) -> bool:
        """False when the handler names Bash without filters: the interceptor skips it for Bash and says so."""
        return "Bash" not in self.patterns or bool(self.input_filters)


@dataclass(frozen=True)
class Handlers:
    """All rules of an eval. ``source`` is the author's file, or None when stage 1 made them from ``inputs.tools``."""

    handlers: tuple[Handler, ...]
    hook_model: str | None = None
    case_overrides: dict[str, str | list[str]] = field(default_factory=dict)
    source: Path | None = None


def read_handlers(path: Path, problems: Problems, *, ev: Eval | None = None) -> Handlers | None:
    """Read the author's tool_handlers.yaml; every fault goes to ``problems`` with its line, and the result is None."""
    raise NotImplementedError


def handlers_of(ev: Eval, problems: Problems) -> Handlers | None:
    """The eval's handlers: the resolved file as it is, else stage 1 from ``inputs.tools``; None when it has neither."""
    raise NotImplementedError


def task_handlers(h: Handlers, overrides: Overrides) -> dict[str, Any]:
    """The pure-JSON mapping of one task; the case's own overrides beat the eval's."""
    raise NotImplementedError
