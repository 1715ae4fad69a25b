"""Permission rules of eval.yaml in the form that the agent program reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from harbor_tasks.errors import Problems

if TYPE_CHECKING:
    from harbor_tasks.evalspec.load import Eval


@dataclass(frozen=True)
class PermissionRules:
    """Rule texts (``Tool`` or ``Tool(spec)``) as they stand in settings.json."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


def permission_rules(
    entries: Sequence[Any] | None, which: Literal["allow", "deny"], problems: Problems,
    *, path: Path | None = None, line: Callable[[int], int | None] = lambda _index: None,
) -> list[str]:  # fmt: skip
    """The rule texts of one list; an entry is a rule text, or has ``path`` and ``tools``."""
    raise NotImplementedError


def permissions_of(ev: Eval, problems: Problems) -> PermissionRules:
    """Both lists of an eval."""
    raise NotImplementedError
