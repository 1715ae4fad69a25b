"""What an earlier build saw and wrote: enough to tell, without reading one YAML file, that nothing has changed.

``.harbor-pack/state.json`` has one JSON value per line: the header, then one line per task. A *unit* is what is
compared as a whole: a case's folder, a task's folder, the files that belong to the eval, harbor-pack itself. Its
*stamp* covers the status of every file in it (size, times, inode, mode) and all names, so that new and removed files
are seen.

A status is trusted only if the file was not changed shortly before the stamp was taken: within the grain of the file
system's clock a later change could leave the same status. Such a unit also has a *seal*, a hash of all contents.
Only the standard library is imported here: a build with nothing to do is over before anything else is loaded.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harbor_tasks import __version__
from harbor_tasks.errors import Problem, Where
from harbor_tasks.tasks.plan import BUILD_DIR

VERSION = 3
FINE_GRAIN_NS = 50_000_000
COARSE_GRAIN_NS = 2_100_000_000
_SECOND = 1_000_000_000
_NEVER_SAME = "changed meanwhile"
_CACHES = frozenset({"__pycache__"})
FOLDER_MODE = 0o755
"""Of every folder that a build writes."""

Watch = tuple[str, str]
"""How a path is watched, and the path. ``tree``: all that is below it, caches of Python aside; ``whole``: caches too;
``built``: the modes of folders too, its own included; ``names``: what a folder lists; ``there``: whether it exists."""

Entry = tuple[str, os.stat_result | None, str]
"""A name below a watched path, its status if it is a file, and what else is to be compared."""


@dataclass(frozen=True, slots=True)
class Unit:
    """The stamp of a unit, and its seal where the stamp alone cannot be trusted (else empty)."""

    stamp: str
    seal: str = ""


@dataclass(frozen=True)
class Request:
    """What a build was asked for, as far as its result depends on it. Paths are absolute."""

    eval: str
    only: tuple[str, ...]
    strict: bool
    runner: str | None = None
    """The agent program that it was built for, in place of the eval's own."""


@dataclass(frozen=True)
class TaskState:
    """One task of an earlier build: its case's folder, its digest, and the problems (as JSON) that were reported."""

    case_id: str
    directory: str
    source: str
    digest: str
    inputs: Unit
    outputs: Unit
    problems: list[list[Any]] = field(default_factory=list)


@dataclass(frozen=True)
class State:
    """An earlier build."""

    request: Request
    tool: Unit
    watched: tuple[Watch, ...]
    shared: Unit
    cwd: str | None
    """The folder the command ran in, when the project depends on it."""
    always: bool
    """Whether a build must be done again although nothing seems to have changed: commands make its files."""
    meta: Unit
    report: dict[str, Any]
    tasks: tuple[TaskState, ...]

    def eval_is_same(self) -> bool:
        """Whether harbor-pack and everything that the tasks share are as they were."""
        if self.cwd is not None and self.cwd != os.getcwd():  # noqa: PTH109
            return False
        return is_same(self.tool, own_watches()) and is_same(self.shared, self.watched)

    def task_is_same(self, task: TaskState, out: str) -> bool:
        """Whether a case and its task directory are as they were."""
        return is_same(task.inputs, case_watches(task.source)) and is_same(
            task.outputs, built_watches(out, task.directory)
        )

    def nothing_changed(self, request: Request, out: Path) -> bool:
        """Whether a build that is asked for now would do what was done."""
        if self.always or self.request != request or not self.eval_is_same():
            return False
        if not is_same(self.meta, meta_watches(str(out))):
            return False
        return all(self.task_is_same(task, str(out)) for task in self.tasks)


def request_of(eval_path: Path, only: Iterable[str], *, strict: bool, runner: str | None = None) -> Request:
    """The request in the form that is compared."""
    path = os.path.abspath(eval_path)  # noqa: PTH100 - no link is followed: the eval lies where it was named
    if os.path.isdir(path):  # noqa: PTH112
        path = f"{path}/eval.yaml"
    return Request(path, tuple(sorted(set(only))), strict, runner)


def read_state(out: Path) -> State | None:
    """The state of the last build into this folder; None when there is none or another version wrote it."""
    try:
        with (out / BUILD_DIR / "state.json").open("rb") as file:
            head = json.loads(next(file, b""))
            if head["version"] != VERSION or head["harbor_pack"] != __version__:
                return None
            tasks = tuple(_task(json.loads(line)) for line in file)
        return State(
            request=Request(head["eval"], tuple(head["only"]), head["strict"], head["runner"]),
            tool=Unit(*head["tool"]),
            watched=tuple((how, path) for how, path in head["watched"]), shared=Unit(*head["shared"]),
            cwd=head["cwd"], always=head["always"], meta=Unit(*head["meta"]), report=head["report"], tasks=tasks,
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def state_lines(state: State) -> Iterator[bytes]:
    """The lines of state.json."""
    request = state.request
    head = {
        "version": VERSION, "harbor_pack": __version__, "eval": request.eval, "only": request.only,
        "strict": request.strict, "runner": request.runner,
        "tool": _pair(state.tool), "watched": state.watched, "shared": _pair(state.shared),
        "cwd": state.cwd, "always": state.always, "meta": _pair(state.meta), "report": state.report,
    }  # fmt: skip
    yield _line(head)
    for t in state.tasks:
        yield _line([t.case_id, t.directory, t.source, t.digest, _pair(t.inputs), _pair(t.outputs), t.problems])


def problem_to_json(problem: Problem) -> list[Any]:
    """A problem as it is kept."""
    where = problem.where
    path = None if where.path is None else str(where.path)
    return [problem.level, problem.code, problem.message, problem.hint, path, where.line, where.case]


def problem_from_json(kept: list[Any]) -> Problem:
    """The problem that was kept."""
    level, code, message, hint, path, line, case = kept
    return Problem(message, Where(None if path is None else Path(path), line, case), hint, level, code)


def _task(line: list[Any]) -> TaskState:
    case_id, directory, source, digest, inputs, outputs, problems = line
    return TaskState(case_id, directory, source, digest, Unit(*inputs), Unit(*outputs), problems)


def _pair(unit: Unit) -> list[str]:
    return [unit.stamp, unit.seal] if unit.seal else [unit.stamp]


def _line(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n"


def own_watches() -> list[Watch]:
    """The files of harbor-pack that a build depends on."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    top = f"{package}/data" if os.path.isdir(f"{package}/data") else os.path.dirname(package)  # noqa: PTH112, PTH120
    folders = (f"{top}/templates", f"{top}/interceptor", f"{top}/docker/sandbox", f"{top}/docker/Dockerfile")
    return [("tree", package), *(("tree", folder) for folder in folders)]


def meta_watches(out: str) -> list[Watch]:
    """What a build writes beside the tasks, and the names of all that lies in the output folder."""
    meta = f"{out}/{BUILD_DIR}"
    folders = [("built", f"{meta}/{name}") for name in ("build.json", "layer", "base", "probe")]
    return [*folders, ("names", out)]


def case_watches(directory: str) -> list[Watch]:
    """A case's folder."""
    return [("whole", directory)]


def built_watches(out: str, directory: str) -> list[Watch]:
    """A task directory of an output folder."""
    return [("built", f"{out}/{directory}")]


def folder_entry(name: str, mode: int = FOLDER_MODE) -> Entry:
    """The entry of a folder, with its mode if that matters."""
    return name, None, f"/{mode & 0o777:o}"


def is_same(unit: Unit, watches: Iterable[Watch]) -> bool:
    """Whether a unit is as it was: by its stamp, or by its contents where that cannot be trusted."""
    watches = list(watches)
    if not unit.seal:
        return stamp_of(watches)[0] == unit.stamp
    return _seal(watches) == unit.seal


def unit_of(watches: Iterable[Watch], *, since: int | None = None) -> Unit:
    """The unit as it is now, or, with ``since`` (nanoseconds since the epoch), as it was then.

    What was changed after ``since`` may have been read before that change: such a unit is never the same again.
    """
    watches = list(watches)
    began = time.time_ns() if since is None else since
    stamp, changed = stamp_of(watches)
    return Unit(
        stamp, _NEVER_SAME if since is not None and changed > since else seal_if_needed(watches, changed, began)
    )


def seal_if_needed(watches: Iterable[Watch], changed: int, at: int) -> str:
    """The seal of a unit that was changed shortly before ``at``, by the clock's grain; else empty."""
    grain = COARSE_GRAIN_NS if changed % _SECOND == 0 else FINE_GRAIN_NS
    return _seal(list(watches)) if changed >= at - grain else ""


def stamp_of(watches: Iterable[Watch]) -> tuple[str, int]:
    """The stamp of a unit and the time of its latest change, in nanoseconds since the epoch."""
    return stamp_of_entries((how, _entries(how, path)) for how, path in watches)


def stamp_of_entries(watched: Iterable[tuple[str, Iterable[Entry]]]) -> tuple[str, int]:
    """As `stamp_of`, for what is known to be there: how each is watched, and its entries in any order."""
    found = hashlib.blake2b(digest_size=16)
    changed = 0
    for how, entries in watched:
        lines = [how]
        for name, s, more in entries:
            if s is None:
                lines.append(f"{name}\0{more}")
                continue
            changed = max(changed, s.st_ctime_ns)  # nobody can set this time, and every change of a file moves it
            lines.append(f"{name}\0{s.st_size} {s.st_mtime_ns} {s.st_ctime_ns} {s.st_ino} {s.st_mode}{more}")
        lines.sort()
        found.update("\n".join(lines).encode("utf-8", "surrogateescape"))
    return found.hexdigest(), changed


def _seal(watches: list[Watch]) -> str:
    found = hashlib.blake2b(digest_size=16)
    for how, path in watches:
        found.update(f"{how}\0\0".encode())
        for name, status, more in sorted(_entries(how, path), key=lambda entry: entry[0]):
            mode = 0 if status is None else status.st_mode
            found.update(f"{name}\0{mode}{more}\0".encode("utf-8", "surrogateescape"))
            if status is not None and stat.S_ISREG(status.st_mode):
                found.update(_content_hash(f"{path}/{name}" if name else path))
    return found.hexdigest()


def _content_hash(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            return hashlib.file_digest(file, "blake2b").digest()
    except OSError:
        return b"unreadable"


def _entries(how: str, path: str) -> list[Entry]:
    """What a watch looks at: names below the path in any order, the status of each file, and where a link leads."""
    try:
        if how == "there":
            return [("", None, str(os.path.lexists(path)))]
        if how == "names":
            return [("", None, "\n".join(sorted(os.listdir(path))))]  # noqa: PTH208
        status = os.lstat(path)
    except (OSError, ValueError):
        return [("", None, "-")]
    if stat.S_ISREG(status.st_mode):
        return [("", status, "")]
    if stat.S_ISLNK(status.st_mode):
        return [("", status, _target(path)), *_below(os.path.realpath(path), how)]
    return [*([folder_entry("", status.st_mode)] if how == "built" else []), *_below(path, how)]


def _below(root: str, how: str) -> list[Entry]:
    found: list[Entry] = []
    skipped = _CACHES if how == "tree" else frozenset()
    pending = [""]
    while pending:
        prefix = pending.pop()
        try:
            with os.scandir(f"{root}/{prefix}") as entries:
                for entry in entries:
                    name = prefix + entry.name
                    if not entry.is_dir(follow_symlinks=False):
                        found.append(_file(entry, name))
                    elif entry.name not in skipped:
                        mode = entry.stat(follow_symlinks=False).st_mode if how == "built" else 0
                        found.append(folder_entry(name, mode))
                        pending.append(name + "/")
        except NotADirectoryError:
            continue  # a link to a file: its own status says all
        except OSError:
            found.append((prefix, None, "-"))
    return found


def _file(entry: os.DirEntry[str], name: str) -> Entry:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return name, None, "-"
    return name, status, _target(entry.path) if stat.S_ISLNK(status.st_mode) else ""


def _target(path: str) -> str:
    """Where a link leads and the status of what is there."""
    try:
        status = os.stat(path)  # noqa: PTH116
        return f">{os.readlink(path)} {status.st_size} {status.st_mtime_ns} {status.st_ino}"  # noqa: PTH115
    except OSError:
        return ">"
