"""`check` and `build`: from an eval.yaml to task directories, or to all that is wrong with it.

Heavy libraries are imported where they are used: a build with nothing to do does not load them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from harbor_tasks.errors import Problems
from harbor_tasks.tasks.state import State, problem_from_json, read_state, request_of

if TYPE_CHECKING:
    from harbor_tasks.policy.routes import Route

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
    routes: tuple[Route, ...] = ()
    """What handlers and permission rules make of each tool; of an eval without errors."""


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
    from harbor_tasks.tasks.assemble import check_eval

    return check_eval(eval_path, only, strict=strict)


def build(
    eval_path: Path, out: Path, *, only: Sequence[str] = (), strict: bool = False, jobs: int | None = None,
    progress: Progress | None = None, runner: str | None = None,
) -> BuildReport:  # fmt: skip
    """Render each case into ``out``; AuthorError with all errors, and then nothing was written.

    ``only`` names the cases that ``out`` will hold; without it all. ``jobs`` is the number of processes that render.
    ``runner``: as if the eval were written for this agent program (variant.py).
    Tasks that would not differ are left as they are; when nothing changed at all, no file is even read.
    """
    began = time.monotonic()
    out = Path(os.path.abspath(out))  # noqa: PTH100 - where the author named it, whatever links are on the way
    request = request_of(eval_path, only, strict=strict, runner=runner)
    stored = read_state(out)
    if stored is not None and stored.nothing_changed(request, out):
        report = _same_again(out, stored)
    else:
        from harbor_tasks.tasks.assemble import assemble

        report = assemble(eval_path, out, request, stored, jobs=jobs, progress=progress)
    report.seconds = time.monotonic() - began
    return report


def _same_again(out: Path, stored: State) -> BuildReport:
    """The report of a build that had nothing to do: what was said before still holds."""
    problems = Problems()
    problems.extend(map(problem_from_json, stored.report["problems"]))
    for task in stored.tasks:
        problems.extend(map(problem_from_json, task.problems))
    count = len(stored.tasks)
    matches = [(match, tuple(patterns)) for match, patterns in stored.report["matches"]]
    return BuildReport(out, tasks=count, unchanged=count, problems=problems, matches=matches)
