"""Removes what killed runs left: containers and networks by label, and temporary folders. Never a running job's.

A run that ends, even by Ctrl-C or SIGTERM, removes its own things; these are left by SIGKILL, a power cut, or an engine
that was gone at the end. Whether a job runs is asked through the lock of its folder (`lock.is_running`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harbor_tasks.environments.lock import is_running
from harbor_tasks.environments.plan import is_job_id
from harbor_tasks.environments.scratch import left_folders
from harbor_tasks.environments.sources import ROOM, TASKS
from harbor_tasks.environments.staging import forget_scratch, remove_tree
from harbor_tasks.errors import AuthorError, Problem, Where, display_path

if TYPE_CHECKING:
    from harbor_tasks.environments.engine import Engine

_ABANDONED_SECONDS = 3600.0
"""Another machine's containers that have ended are taken for left ones after this time."""


@dataclass
class Cleaned:
    """What was removed, and what was left where it is, with the reason: one line each."""

    removed: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, list[str]]:
        """The report as plain data."""
        return {"removed": self.removed, "left": self.left}


def clean(job: str | None = None, *, jobs_dir: Path = Path("jobs"), host: str | None = None) -> Cleaned:
    """Remove what jobs left on this machine and on the engine; only of ``job`` (its id) when it is given.

    ``jobs_dir`` is where this machine's jobs are kept; ``host`` names the engine. MachineError when an engine that was
    named does not answer; a machine without one has nothing there to be removed. AuthorError for a job of which there
    is nothing, not even its folder.
    """
    report = Cleaned()
    known = job is None or job in {folder.name for folder in jobs_dir.glob("*")}
    for folder in sorted(jobs_dir.glob("*/trials")):
        if job in (None, folder.parent.name):
            _clean_folder(folder, report)
    if job is None:
        _clean_beginnings(jobs_dir, report)
        for folder in left_folders():
            remove_tree(folder)
            report.removed.append(f"folder {folder}")
    engine = _engine(host)
    if engine is None:
        report.left.append("no container engine here: only folders were looked for")
    else:
        with engine:
            known = _clean_engine(engine, job, report) or known
    if not known:
        where = f"not in {display_path(jobs_dir)}, " + ("and no engine here" if engine is None else "nor on the engine")
        hint = "name the job's folder as `run` printed it, less the path; --jobs-dir says where jobs are kept"
        raise AuthorError([Problem(f"nothing of a job {job} was found, {where}", Where(), hint, code="no-such-job")])
    return report


def _clean_folder(trials: Path, report: Cleaned) -> None:
    """The temporary folders of a job that ran here."""
    notes = sorted(trials.glob("*/scratch"))
    if notes and is_running(trials.parent):
        report.left.append(f"job {trials.parent.name}: is running")
        return
    for note in notes:
        try:
            where = note.read_text(encoding="utf-8")
            forget_scratch(note.parent)
            note.unlink()
        except OSError as error:
            report.left.append(f"{note}: {error.strerror}")
            continue
        report.removed.append(f"folder {where}")


def _clean_beginnings(jobs_dir: Path, report: Cleaned) -> None:
    """What runs left that were killed before there was a job: tasks that were built for it."""
    folders = [path.parent for path in sorted(jobs_dir.glob(f"*/{TASKS}")) if is_job_id(path.parent.name)]
    rooms = sorted(jobs_dir.glob(f"{ROOM}*"))
    if any(map(is_running, rooms)):  # which of the folders it has taken is not known yet
        return
    # only now: a run gives its room up when there is a job
    for path in (*rooms, *(folder for folder in folders if not (folder / "job.json").exists())):
        remove_tree(path)
        report.removed.append(f"folder {path}")


def _engine(host: str | None) -> Engine | None:
    """The engine; None where there is none and nobody named one."""
    from harbor_tasks.environments.engine import DEFAULT_ENDPOINT, find_endpoint, find_engine

    endpoint = find_endpoint(host)
    if endpoint.address == DEFAULT_ENDPOINT and not Path(DEFAULT_ENDPOINT.removeprefix("unix://")).exists():
        return None
    return find_engine(host)


def _clean_engine(engine: Engine, job: str | None, report: Cleaned) -> bool:
    """Whether there was anything of the job, or of any."""
    from harbor_tasks.environments.docker_container import engine_errors, remove_labelled

    with engine_errors("list what jobs left"):
        found = _by_job(engine.client.api, job)
        for name, things in found.items():
            why = _alive(things)
            if why is None:
                report.removed += remove_labelled(engine.client.api, name, report.left.append)
            else:
                report.left.append(f"job {name}: {why}")
    return bool(found)


def _by_job(api: Any, job: str | None) -> Mapping[str, list[dict[str, Any]]]:
    """The containers and networks of each job."""
    from harbor_tasks.environments.docker_container import JOB, LABEL

    labels = {"label": [f"{LABEL}=1", JOB if job is None else f"{JOB}={job}"]}
    found: dict[str, list[dict[str, Any]]] = {}
    for thing in (*api.containers(all=True, filters=labels), *api.networks(filters=labels)):
        found.setdefault(thing["Labels"][JOB], []).append(thing)
    return found


def _alive(things: list[dict[str, Any]]) -> str | None:
    """Why these things of one job are not to be touched; None when they were left."""
    from harbor_tasks.environments.docker_container import FOLDER, HOST, this_host

    labels = things[0]["Labels"]
    if labels.get(HOST) == this_host():
        return "is running" if is_running(Path(labels.get(FOLDER, ""))) else None
    # The first process of a container ends with the run that made it, wherever that was.
    if any(thing.get("State") == "running" for thing in things):
        return f"is running on another machine ({labels.get(HOST)})"
    if time.time() - max(_created(things), default=0.0) < _ABANDONED_SECONDS:
        return f"was started on another machine ({labels.get(HOST)}) less than an hour ago"
    return None


def _created(things: list[dict[str, Any]]) -> Iterator[float]:
    """When the containers were made; a network alone says it in another form, and is not in use without one."""
    return (float(thing["Created"]) for thing in things if isinstance(thing.get("Created"), int | float))
