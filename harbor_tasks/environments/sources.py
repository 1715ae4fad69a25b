"""Where the tasks of a command come from: a folder that `build` wrote, or an eval that is built for this command alone.

A job on an eval has its tasks in its own folder (``tasks/``), which nothing else writes: not another run, not another
eval in a folder of the same name, not a dry run. Every other build here is temporary.
"""

from __future__ import annotations

import contextlib
import secrets
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from harbor_tasks.environments.base import RunOptions, new_folder, read_job
from harbor_tasks.environments.lock import job_lock
from harbor_tasks.environments.plan import new_job_id, require_at_rest, require_same_eval
from harbor_tasks.environments.scratch import scratch_folder
from harbor_tasks.environments.staging import remove_tree
from harbor_tasks.errors import AuthorError, display_path
from harbor_tasks.tasks.build import Progress, build
from harbor_tasks.tasks.manifest import manifest_path, read_manifest

TASKS = "tasks"
"""The folder of a job that holds the tasks that were built for it."""

ROOM = ".new-"
"""How folders begin in which the tasks of a new job are built."""

Say = Callable[[str], None]
"""Gets the build's warnings, a line each."""
Building = Callable[[], AbstractContextManager[Progress | None]]
"""Entered while an eval is built; gives what is told of the progress."""


def is_eval(source: Path) -> bool:
    """Is it an eval, or the folder of one? Else it is a folder of built tasks. AuthorError when it is neither."""
    what = "name an eval.yaml, its folder, or a folder that harbor-pack build wrote"
    if not source.exists():
        raise AuthorError(f"{display_path(source)}: no such file or folder; {what}")
    if source.is_file() or (source / "eval.yaml").is_file():
        return True
    if not manifest_path(source).is_file():
        if (source / "job.json").is_file():
            raise AuthorError(
                f"{display_path(source)}: this is a job; to go on with it name what it ran, and it by --resume: "
                f"harbor-pack run {shlex.quote(read_job(source).source)} --resume {shlex.quote(display_path(source))}"
            )
        below = ", ".join(display_path(path.parent) for path in sorted(source.glob("*/eval.yaml"))[:5])
        hint = f"did you mean one of {below}?" if below else what
        raise AuthorError(f"{display_path(source)}: neither an eval nor built tasks are in this folder; {hint}")
    return False


@contextmanager
def built_tasks(
    source: Path, say: Say, building: Building = nullcontext, *, cases: Sequence[str] = (), runner: str | None = None
) -> Iterator[Path]:  # fmt: skip
    """The built tasks of a folder, or of an eval, which are gone afterwards. AuthorError as of `build`.

    ``runner``: an eval is built as if it were written for this agent program.
    """
    if not is_eval(source):
        yield source
        return
    with scratch_folder() as scratch:
        yield _build(source, scratch / TASKS, say, building, cases, runner)


@contextmanager
def job_tasks(
    source: Path, options: RunOptions, say: Say, building: Building = nullcontext, *, dry: bool = False
) -> Iterator[tuple[Path, Path | None]]:  # fmt: skip
    """The tasks of the job that ``options`` ask for, and the job's folder when there is one already.

    The folder of a new job on an eval holds nothing but its tasks, and is removed on the way out when no job.json has
    come to them; with ``dry`` there is none. ``--resume`` with an eval brings the job's tasks to what the eval gives
    now; AuthorError when it is another eval, or when the job runs.
    """
    if options.resume is not None and is_eval(source):
        with _tasks_again(options.resume, source, say, building, dry=dry) as tasks:
            yield tasks, options.resume
    elif dry or not is_eval(source):
        with built_tasks(source, say, building, cases=options.cases) as tasks:
            yield tasks, options.resume
    else:
        with _room(options.jobs_dir) as room:
            built = _build(source, room / TASKS, say, building, options.cases)
            folder = options.jobs_dir.absolute() / new_job_id(read_manifest(built).name)
            new_folder(folder)
            try:
                built.rename(folder / TASKS)
                yield folder / TASKS, folder
            finally:
                if not (folder / "job.json").exists():
                    remove_tree(folder)


@contextmanager
def _tasks_again(resume: Path, source: Path, say: Say, building: Building, *, dry: bool) -> Iterator[Path]:
    """The tasks of a job on an eval that is gone on with, as the eval gives them now."""
    job, own = read_job(resume), resume / TASKS
    if not manifest_path(own).is_file():
        raise AuthorError(
            f"{display_path(resume)}: this job ran built tasks, not an eval; in place of {display_path(source)} name "
            f"{display_path(Path(job.source))}"
        )
    require_at_rest(resume)
    with built_tasks(source, say, building, cases=job.cases) as tasks:
        require_same_eval(job, read_manifest(tasks).name, resume)
        if dry:
            yield tasks
            return
    yield _build(source, own, lambda _: None, nullcontext, job.cases)  # its warnings were said


def _build(
    source: Path, out: Path, say: Say, building: Building, cases: Sequence[str], runner: str | None = None
) -> Path:  # fmt: skip
    with building() as progress:
        report = build(source, out, only=cases, progress=progress, runner=runner)
    for problem in report.problems:
        say(str(problem))
    return out


@contextmanager
def _room(jobs_dir: Path) -> Iterator[Path]:
    """A new folder beside the jobs, with no name of a job's; no trace of it, nor of folders made for it, is left.

    While its lock is held, a job's folder in which there is no job yet may be in use (`clean` asks).
    """
    made = [path for path in (jobs_dir, *jobs_dir.parents) if not path.exists()]
    room = jobs_dir.absolute() / f"{ROOM}{secrets.token_hex(6)}"
    try:
        new_folder(room)  # which may be interrupted half-way
        with job_lock(room):
            yield room
    finally:
        if room.exists():
            remove_tree(room)
        with contextlib.suppress(OSError):  # the first that holds something ends it
            for path in made:
                path.rmdir()
