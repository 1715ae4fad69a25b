"""Writes a build: beside its place first, then renamed into it, so that no reader ever sees half a task.

An output folder holds task directories and ``.harbor-pack/`` (build.json, state.json, layer/, probe/). All that a
build writes goes to ``.harbor-pack/new-…`` on the same file system. Only when everything is there is it moved into
place, task by task; until then, and after any error, the folder is as it was.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType

from harbor_tasks.errors import AuthorError, MachineError
from harbor_tasks.tasks.plan import BUILD_DIR, TaskFile
from harbor_tasks.tasks.state import (
    FOLDER_MODE,
    Entry,
    TaskState,
    built_watches,
    folder_entry,
    read_state,
    stamp_of,
    stamp_of_entries,
)

_NEW = "new-"
_PENDING = "pending.json"
_CHUNK = 1 << 20
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class ChangedMeanwhileError(Exception):
    """A file of the author was changed while it was packed."""


class Output:
    """An output folder while a build works on it: a context manager that holds it alone and cleans up after itself."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.meta = out / BUILD_DIR
        self.staging = self.meta / _NEW
        self._made: list[Path] = []
        self._dropped: list[str] = []
        self._lock = -1
        self._umask: int | None = None

    def __enter__(self) -> Output:
        try:
            self._make()
            self._hold()
            self._check_ours()
            for left in self.meta.glob(f"{_NEW}*"):
                shutil.rmtree(left, ignore_errors=True)
            self.staging = Path(tempfile.mkdtemp(prefix=_NEW, dir=self.meta))
            self.staging.chmod(0o755)
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self._leave()

    def _make(self) -> None:
        try:
            self._made = [p for p in (self.meta, self.out, *self.out.parents) if not p.exists()]
            self.out.parent.mkdir(parents=True, exist_ok=True)
            self._umask = os.umask(0o022)  # the modes of what is written do not depend on who builds
            self.out.mkdir(exist_ok=True)
            self.meta.mkdir(exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise AuthorError(f"{self.out}: a file is in the way; name a folder for the tasks") from None
        except OSError as error:
            raise MachineError(f"{self.out}: cannot be written ({error.strerror})") from error

    def _leave(self) -> None:
        """Remove what was not moved into place, and the folders that were made for nothing."""
        if self.staging.name != _NEW:
            shutil.rmtree(self.staging, ignore_errors=True)
        for path in self._made:  # the inner ones first; those that hold something now stay
            try:
                path.rmdir()
            except OSError:
                break
        if self._umask is not None:
            os.umask(self._umask)
        if self._lock >= 0:
            os.close(self._lock)

    def _hold(self) -> None:
        self._lock = os.open(self.meta, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AuthorError(f"{self.out}: another build is writing here; wait for it, or build elsewhere") from None

    def _check_ours(self) -> None:
        """Never write into a folder of somebody else's files."""
        known = any((self.meta / name).exists() for name in ("build.json", "state.json", _PENDING))
        others = [name for name in os.listdir(self.out) if name != BUILD_DIR]  # noqa: PTH208
        if others and not known:
            raise AuthorError(
                f"{self.out}: is not empty and was not written by harbor-pack (it holds {sorted(others)[0]});"
                " name a new or empty folder"
            )

    def owned(self) -> set[str]:
        """The task directories of earlier builds, a broken off one included."""
        names: set[str] = set()
        for file, key in (("build.json", "tasks"), (_PENDING, "directories")):
            try:
                data = json.loads((self.meta / file).read_bytes())
                found = [d["directory"] if isinstance(d, dict) else d for d in data[key]]
            except (OSError, ValueError, KeyError, TypeError):
                continue
            names.update(name for name in found if isinstance(name, str))
        names.update(task.directory for task in self._state_tasks())
        return {name for name in names if os.sep not in name and name[:1] != "."}

    def _state_tasks(self) -> tuple[TaskState, ...]:
        state = read_state(self.out)
        return () if state is None else state.tasks

    def strangers(self, owned: set[str]) -> list[str]:
        """What lies in the folder and belongs to no build of ours."""
        return sorted(name for name in os.listdir(self.out) if name != BUILD_DIR and name not in owned)  # noqa: PTH208

    def put(self, directory: str, files: Sequence[TaskFile], *, owned: bool) -> tuple[bool, tuple[str, int]]:
        """Write a task into the staging folder, unless the one that is in place is the same already.

        Whether it was written, and its stamp with the time of its latest change.
        """
        place = self.out / directory
        if owned and same(place, files):
            return False, stamp_of(built_watches(str(self.out), directory))
        return True, stamp_of_entries([("built", write_files(self.staging / "tasks" / directory, files))])

    def put_meta(self, name: str, files: Iterable[TaskFile]) -> None:
        """Write a folder of ``.harbor-pack`` into the staging folder, unless it is there already or is to be none."""
        files = tuple(files)
        if not files:
            if (self.meta / name).exists():
                self._dropped.append(name)
            return
        if not same(self.meta / name, files):
            write_files(self.staging / "meta" / name, files)

    def commit(self, manifest: bytes, *, keep: set[str], remove: set[str]) -> None:
        """Move into place what was put: the only step that changes what was there.

        ``keep`` are all task directories of this build, ``remove`` those of earlier ones that are no longer wanted.
        """
        old = self.staging / "old"
        moves: list[tuple[Path, Path | None]] = []
        for place, new, gone in (
            (self.out, self.staging / "tasks", sorted(remove)),
            (self.meta, self.staging / "meta", self._dropped),
        ):
            moves += [(place / name, new / name) for name in (sorted(os.listdir(new)) if new.is_dir() else ())]  # noqa: PTH208
            moves += [(place / name, None) for name in gone]
        if not moves and _content(self.meta / "build.json") == manifest:
            return
        old.mkdir()
        self._replace(_PENDING, json.dumps({"directories": sorted(keep | remove)}).encode())
        for name in ("state.json", "build.json"):
            (self.meta / name).unlink(missing_ok=True)
        for number, (target, source) in enumerate(moves):
            if target.is_symlink() or target.exists():
                target.rename(old / str(number))
            if source is not None:
                source.rename(target)
        self._replace("build.json", manifest)
        (self.meta / _PENDING).unlink()
        self._made.clear()

    def replace_state(self, lines: Iterator[bytes]) -> None:
        """Write state.json, line by line."""
        beside = self.staging / "state.json"
        with beside.open("wb") as file:
            file.writelines(lines)
        beside.replace(self.meta / "state.json")

    def _replace(self, name: str, content: bytes) -> None:
        beside = self.staging / name
        beside.write_bytes(content)
        beside.replace(self.meta / name)


def write_files(root: Path, files: Iterable[TaskFile]) -> list[Entry]:
    """Write files below a new folder, with exactly their modes (given a umask of 022); what is there now."""
    base = str(root)
    root.parent.mkdir(parents=True, exist_ok=True)
    os.mkdir(base, FOLDER_MODE)  # noqa: PTH102 - this loop makes tens of thousands of files
    made = {""}
    entries: list[Entry] = []
    for file in files:
        folder = file.path if file.content is None else file.path.rpartition("/")[0]
        if folder not in made:
            _make_folder(base, folder, made)
        if file.content is None:
            continue
        handle = os.open(f"{base}/{file.path}", _CREATE, file.mode)
        try:
            if isinstance(file.content, bytes):
                _write_all(handle, file.content)
            else:
                _copy(file.content, handle, file.sha256)
            entries.append((file.path, os.fstat(handle), ""))
        finally:
            os.close(handle)
    entries += map(folder_entry, made)
    return entries


def _make_folder(base: str, folder: str, made: set[str]) -> None:
    """Make a folder and those above it, unless they were made."""
    above = folder.rpartition("/")[0]
    if above not in made:
        _make_folder(base, above, made)
    os.mkdir(f"{base}/{folder}", FOLDER_MODE)  # noqa: PTH102
    made.add(folder)


def same(root: Path, files: Iterable[TaskFile]) -> bool:
    """Whether a folder holds exactly these files: paths, contents, modes, empty folders, and nothing else."""
    files = list(files)
    base = str(root)
    if not _is_folder(base):
        return False
    return all(_same_file(f"{base}/{file.path}", file) for file in files) and _nothing_else(
        base, "", {file.path for file in files}
    )


def _same_file(path: str, file: TaskFile) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    if file.content is None:
        return _is_folder(path)
    if not stat.S_ISREG(status.st_mode) or stat.S_IMODE(status.st_mode) != file.mode:
        return False
    if isinstance(file.content, bytes):
        return status.st_size == len(file.content) and _content(path) == file.content
    return _sha256(path) == file.sha256


def _is_folder(path: str) -> bool:
    """Whether there is a folder, no link to one, of the mode that a build gives it."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False
    return stat.S_ISDIR(mode) and mode & 0o777 == FOLDER_MODE  # a set group id comes from the folder above


def _nothing_else(base: str, prefix: str, wanted: set[str]) -> bool:
    """Whether every file and empty folder below ``base`` is wanted, and every folder of the right mode."""
    entries = list(os.scandir(f"{base}/{prefix}"))
    if not entries and prefix and prefix.rstrip("/") not in wanted:
        return False
    for entry in entries:
        path = prefix + entry.name
        if entry.is_dir(follow_symlinks=False):
            if not _is_folder(entry.path) or not _nothing_else(base, path + "/", wanted):
                return False
        elif path not in wanted:
            return False
    return True


def _write_all(handle: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(handle, view) :]


def _copy(source: Path, handle: int, sha256: str) -> None:
    """Copy a large file; what is copied must be what was hashed."""
    found = hashlib.sha256()
    with source.open("rb", buffering=0) as stream:
        while chunk := stream.read(_CHUNK):
            found.update(chunk)
            _write_all(handle, chunk)
    if found.hexdigest() != sha256:
        raise ChangedMeanwhileError(str(source))


def _content(path: Path | str) -> bytes | None:
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return None


def _sha256(path: str) -> str | None:
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
