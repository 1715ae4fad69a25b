"""What the commands print: reports to standard output, problems and progress to standard error."""

from __future__ import annotations

import json
import math
import shlex
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harbor_tasks.errors import Problem, display_path, printable

if TYPE_CHECKING:
    from harbor_tasks.environments.base import Event

documents: list[object] = []
"""What was printed as JSON by the command that runs."""
MAX_PLACES = 5
"""Failed trials whose folders are named."""


def complain(text: str) -> None:
    """One line on standard error, safe for a terminal."""
    print(printable(text), file=sys.stderr)


def print_problems(problems: Iterable[Problem]) -> None:
    """All problems, notes first, so that what stops the command is read last; then the count of errors."""
    found = sorted(problems, key=lambda p: ("note", "warning", "error").index(p.level))
    for problem in found:
        complain(f"{problem.level}: {problem}")
    errors = sum(p.level == "error" for p in found)
    if errors > 1:
        complain(f"{errors} errors")


def print_json(data: object) -> None:
    """The command's one JSON document, on standard output; a second one is not printed."""
    if documents:
        return
    documents.append(data)
    try:
        text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)
    except ValueError:  # an agent's input, as its program wrote it, may hold what JSON does not have
        text = json.dumps(_finite(data), indent=2, ensure_ascii=False, allow_nan=False)
    print(text)


def _finite(data: Any) -> Any:
    """The data with null for each number that is none (NaN) or has no end."""
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def warn(text: str) -> None:
    """A warning on standard error."""
    complain(f"warning: {text}")


def building() -> progress_bar:
    """What shows that an eval is built before it is used."""
    return progress_bar("build")


def print_matches(matches: Iterable[tuple[str, tuple[str, ...]]]) -> None:
    """What each `match` text became: its tool patterns."""
    for match, patterns in matches:
        words = " ".join(match.split())
        short = words if len(words) <= 60 else words[:59] + "…"
        print(printable(f"match {short!r} -> {', '.join(patterns)}"))


def print_lines(lines: Iterable[str]) -> None:
    """Lines on standard output, safe for a terminal."""
    for line in lines:
        print(printable(line))


def print_event(event: Event) -> None:
    """One line of a running job on standard error."""
    complain(str(event))


def print_job(job: Path, as_json: bool, *, faults: Iterable[str] = ()) -> int:
    """Print a job's table or JSON, with ``faults`` of the command itself; returns its exit code."""
    from harbor_tasks.results.collect import collect_job
    from harbor_tasks.results.report import job_json, job_tables

    summary = collect_job(job, faults)
    if as_json:
        print_json(job_json(summary))
    else:
        print_rich(job_tables(summary))
    return summary.exit_code


def print_place(job: Path) -> None:
    """Where a job and its failed trials are kept, on standard error."""
    from harbor_tasks.environments.base import read_trials, trial_dir
    from harbor_tasks.results.collect import trial_label
    from harbor_tasks.results.judges import score_hint

    trials = read_trials(job)
    failed = [trial for trial in trials if trial.error is not None]
    for trial in failed[:MAX_PLACES]:
        complain(f"{trial_label(trial)}: its logs are in {display_path(trial_dir(job, trial.id))}")
    if len(failed) > MAX_PLACES:
        complain(f"… and {len(failed) - MAX_PLACES} more trials with errors")
    hint = score_hint(job, trials)
    if hint is not None:
        complain(hint)
    complain(f"kept in {display_path(job)}; as a page: harbor-pack report {shlex.quote(display_path(job))}")


def print_rich(renderables: Iterable[Any]) -> None:
    """Tables on standard output, as wide as the terminal; plain text when it is no terminal."""
    from rich.console import Console

    console = Console(highlight=False, width=None if sys.stdout.isatty() else 100, emoji=False, markup=False)
    for renderable in renderables:
        console.print(renderable)


class progress_bar:  # noqa: N801 - reads as a function in a with statement
    """A Rich progress bar on a terminal's standard error; elsewhere nothing at all."""

    def __init__(self, label: str) -> None:
        self.label = label
        self._progress: Any = None
        self._bar: Any = None

    def __enter__(self) -> Callable[[int, int], None] | None:
        return self._advance if sys.stderr.isatty() else None

    def _advance(self, done: int, total: int) -> None:
        if self._progress is None:  # not before there is progress: the bar's thread would keep a build from forking
            from rich.console import Console
            from rich.progress import Progress

            self._progress = Progress(console=Console(stderr=True), transient=True)
            self._progress.start()
            self._bar = self._progress.add_task(self.label, total=total)
        self._progress.update(self._bar, completed=done, total=total)

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()


def plural(count: int, word: str) -> str:
    """`1 case`, `2 cases`."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
