"""What a task's verifier gets to know: the content of ``tests/judges.json``, and the modules of ``tests/lib/``.

What is the same for all cases (prompt files, modules, checked arguments) is read once for an eval by `judging_of`;
`judges_config` then only puts one case's data to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec import Case, Eval


@dataclass(frozen=True)
class LibFile:
    """One file of a judge's module: its place below ``tests/lib`` (posix) and where it is now."""

    path: str
    source: Path


@dataclass(frozen=True)
class Judging:
    """The judges of an eval, ready to be written into each task.

    ``judges`` are the entries of judges.json, in the eval's order; ``lib`` is what belongs into ``tests/lib``;
    ``inputs`` are all files that were read for it (a change of one changes every task).
    """

    judges: tuple[dict[str, Any], ...]
    lib: tuple[LibFile, ...]
    inputs: tuple[Path, ...]


def judging_of(ev: Eval, problems: Problems) -> Judging:
    """Read and check all that the eval's judges name; errors carry the line in eval.yaml or in the module."""
    raise NotImplementedError


def judges_config(
    ev: Eval, case: Case, step: str | None = None, *, judging: Judging | None = None, patterns: Iterable[str] = ()
) -> dict[str, Any]:
    """The content of ``tests/judges.json`` for a case, or for one of its steps.

    ``step`` is None for an eval without steps. ``patterns`` are the tool patterns of all handlers, which say what calls
    the interception log must hold. Without ``judging`` the eval's judges are read again.
    """
    raise NotImplementedError
