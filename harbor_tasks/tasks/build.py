"""`check` and `build`: from an eval.yaml to task directories, or to all that is wrong with it.

Heavy libraries are imported where they are used: a build with nothing to do does not load them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harbor_tasks.errors import Problems

Matches = list[tuple[str, tuple[str, ...]]]
Progress = Callable[[int, int], None]
"""Called with the number of tasks that are done and of all."""


@dataclass
class CheckReport:
    """What `check` found: problems, what each ``match`` became, how many cases, top-level keys that are not packed."""

    problems: Problems = field(default_factory=Problems)
    matches: Matches = field(default_factory=list)
    cases: int = 0
    not_packed: tuple[str, ...] = ()


@dataclass
class BuildReport:
    """What `build` did: tasks in ``out``, how many of them were written, left as they were, removed; warnings."""

    out: Path
    tasks: int = 0
    written: int = 0
    unchanged: int = 0
    removed: int = 0
    problems: Problems = field(default_factory=Problems)
    matches: Matches = field(default_factory=list)
    seconds: float = 0.0


def check(eval_path: Path, *, strict: bool = False, only: Sequence[str] = ()) -> CheckReport:
    """Everything that `build` would find: all cases are rendered in memory, nothing is written, no hook is run.

    Never raises for the author's errors: they are in the report.
    """
    raise NotImplementedError


def build(
    eval_path: Path, out: Path, *, only: Sequence[str] = (), strict: bool = False, jobs: int | None = None,
    progress: Progress | None = None,
) -> BuildReport:  # fmt: skip
    """Render each case into ``out``; AuthorError with all errors, and then nothing was written.

    ``only`` names the cases that ``out`` will hold; without it all. ``jobs`` is the number of processes that render.
    """
    raise NotImplementedError
