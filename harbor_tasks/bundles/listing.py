"""Lists what of a build is packed: the tasks that build.json names, and what they share in ``.harbor-pack``."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import IO

from harbor_tasks.bundles.format import Entry
from harbor_tasks.errors import AuthorError, MachineError, display_path
from harbor_tasks.evalspec.portable import length_fault, name_fault, twins
from harbor_tasks.tasks.manifest import BuildManifest, pulled_digest, read_manifest
from harbor_tasks.tasks.plan import BUILD_DIR, TaskFile, digest_of
from harbor_tasks.tasks.runtime import image_tag

SHARED = ("base", "build.json", "layer", "probe")
"""What of ``.harbor-pack`` belongs to the eval; the rest is this machine's own."""
SMALL = 1 << 20
"""Files up to this size are read as a whole."""
Stamp = tuple[int, int, int]
_HASHING = 2
"""Large files that are hashed at a time."""
_AHEAD = 256
"""Files that may be listed while a large one before them is hashed."""


@dataclass(frozen=True, slots=True)
class Found:
    """A file or empty folder of a build; a file has a digest, and the stamp that it had when it was read."""

    path: str
    mode: int
    size: int
    sha256: str
    stamp: Stamp


@dataclass(frozen=True, slots=True)
class Content:
    """A content: where it was first found, and the stamp of that file."""

    path: str
    sha256: str
    stamp: Stamp

    @property
    def size(self) -> int:
        """Bytes."""
        return self.stamp[0]


@dataclass
class Listing:
    """A build as it was read: its manifest, and on disk the lines of files.jsonl and the contents, each once."""

    tasks: Path
    manifest: BuildManifest
    index: IO[bytes]
    contents: IO[bytes]
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("files", "folders", "bytes", "blobs"), 0))

    def each_content(self) -> Iterator[Content]:
        """The contents, in the order in which they are packed."""
        self.contents.flush()
        self.contents.seek(0)
        for line in self.contents:
            yield content_of(line)


def content_of(line: bytes) -> Content:
    """A line of the file of contents."""
    path, sha256, size, changed, inode = line.decode("utf-8").rstrip("\n").split("\0")
    return Content(path, sha256, (int(size), int(changed), int(inode)))


@contextmanager
def listed(tasks: Path, *, as_built: bool = True) -> Iterator[Listing]:
    """Read and hash a build, which must be what its build.json says; nobody builds into it meanwhile.

    AuthorError by path for what no other machine would take, or is not what was built (unless not ``as_built``: then
    the caller compares).
    """
    manifest = read_manifest(tasks)
    with ExitStack() as stack:
        stack.enter_context(_at_rest(tasks))
        index = stack.enter_context(tempfile.TemporaryFile(prefix="hp-"))
        contents = stack.enter_context(tempfile.TemporaryFile(prefix="hp-"))
        listing = Listing(tasks, manifest, index, contents)
        try:
            _read(listing, _Checks(tasks, manifest) if as_built else None)
            index.flush()
            contents.flush()
        except OSError as error:
            raise no_temporary_room(error) from error
        yield listing


def no_temporary_room(error: OSError) -> MachineError:
    """The error when the list of files finds no room among the temporary files."""
    return MachineError(f"{tempfile.gettempdir()}: cannot be written ({error.strerror}); TMPDIR names another place")


@contextmanager
def _at_rest(tasks: Path) -> Iterator[None]:
    """Hold the lock that a build holds alone."""
    handle = os.open(tasks / BUILD_DIR, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise AuthorError(f"{display_path(tasks)}: a build is writing here; wait for it") from None
    finally:
        os.close(handle)


def _read(listing: Listing, checks: _Checks | None) -> None:
    seen: dict[bytes, int] = {}
    counts = listing.counts
    for found in list_build(listing.tasks, listing.manifest):
        if checks is not None:
            checks.add(found)
        if not found.sha256:
            counts["folders"] += 1
            listing.index.write(Entry(found.path, found.mode, 0, "", -1).line())
            continue
        number = seen.setdefault(bytes.fromhex(found.sha256), len(seen))
        if number == counts["blobs"]:
            counts["blobs"] += 1
            stamp = "\0".join(map(str, found.stamp))
            listing.contents.write(f"{found.path}\0{found.sha256}\0{stamp}\n".encode())
        counts["files"] += 1
        counts["bytes"] += found.size
        listing.index.write(Entry(found.path, found.mode, found.size, found.sha256, number).line())
    if checks is not None:
        checks.close()


class _Checks:
    """Compares what is there with what was built: each task by its digest, what the image is made of by its tag."""

    def __init__(self, tasks: Path, manifest: BuildManifest) -> None:
        self._tasks, self._manifest = tasks, manifest
        self._digests = {task.directory: task.digest for task in manifest.tasks}
        self._current = ""
        self._files: list[TaskFile] = []
        self._parts: dict[str, list[TaskFile]] = {"layer": [], "base": []}

    def add(self, found: Found) -> None:
        """The next file or folder, in order."""
        top, _, rest = found.path.partition("/")
        if top != self._current:
            self.close()
            self._current = top
        if top != BUILD_DIR:
            self._files.append(TaskFile(rest, b"" if found.sha256 else None, found.mode, found.sha256))
            return
        part, _, place = rest.partition("/")
        if part in self._parts and place:
            content = b"" if found.sha256 else None
            self._parts[part].append(TaskFile(place, content, found.mode, found.sha256))

    def close(self) -> None:
        """A task, or what all share, is complete; AuthorError when it is not what was built."""
        if self._current == BUILD_DIR:
            self._check_image()
        elif self._current and digest_of(self._files) != self._digests[self._current]:
            raise AuthorError(
                f"{display_path(self._tasks / self._current)}: its files are not those that were built; "
                "build the eval again"
            )
        self._files.clear()
        self._current = ""

    def _check_image(self) -> None:
        manifest = self._manifest
        if not manifest.sandbox.sealed and manifest.sandbox.image is not None:
            return  # the author's own image, used as it is
        if pulled_digest(self._tasks) is not None:
            return  # maybe another version's; its tasks have digests, and `verify` compares all of it
        layer, base = (sorted(self._parts[name], key=lambda file: file.path) for name in ("layer", "base"))
        if image_tag(manifest.name, manifest.sandbox, layer, base) != manifest.image:
            raise AuthorError(
                f"{display_path(self._tasks / BUILD_DIR)}: its files are not those that the image is named after "
                "(changed since, or built by another version of harbor-pack); build the eval again"
            )


def list_build(tasks: Path, manifest: BuildManifest) -> Iterator[Found]:
    """All files and empty folders of a build, sorted by the parts of their paths; each file is read and hashed.

    AuthorError by path for what no other machine would take: links, special files, names, twins.
    """
    base = str(tasks)
    directories = sorted({task.directory for task in manifest.tasks} | {BUILD_DIR})
    for name in directories:
        if name_fault(name):
            raise AuthorError(f"{BUILD_DIR}/build.json: a task directory {name!r} {name_fault(name)}")
    refuse_twins("", directories)
    with ThreadPoolExecutor(_HASHING) as pool:  # starts threads only for large files
        waiting: deque[Found | Future[Found]] = deque()
        for directory in directories:
            if os.path.islink(f"{base}/{directory}"):  # noqa: PTH114 - texts
                raise AuthorError(f"{base}/{directory}: is a link, which no build makes; build the eval again")
            for found in _below(base, directory, SHARED if directory == BUILD_DIR else None, pool):
                waiting.append(found)
                while waiting and (isinstance(waiting[0], Found) or waiting[0].done() or len(waiting) > _AHEAD):
                    yield _result(waiting.popleft())
        while waiting:
            yield _result(waiting.popleft())


def _result(found: Found | Future[Found]) -> Found:
    return found if isinstance(found, Found) else found.result()


def refuse_twins(folder: str, names: list[str]) -> None:
    """AuthorError when two names of a folder are one where case is folded."""
    for name, first in twins(names):
        place = f"{folder}/" if folder else ""
        raise AuthorError(
            f"{place}{name}: differs from {place}{first} by case or accents only; on other machines they are one file; "
            "rename one of them"
        )


def _below(
    base: str, folder: str, only: tuple[str, ...] | None, pool: ThreadPoolExecutor
) -> Iterator[Found | Future[Found]]:
    entries = _entries(f"{base}/{folder}")
    if only is not None:
        entries = [entry for entry in entries if entry.name in only]
    refuse_twins(folder, [entry.name for entry in entries])
    for entry in entries:
        path = f"{folder}/{entry.name}"
        fault = name_fault(entry.name) or length_fault(path)
        if fault:
            raise AuthorError(f"{path!r}: {fault}; rename it")
        if entry.is_dir(follow_symlinks=False):
            yield from _below(base, path, None, pool)
        elif entry.is_file(follow_symlinks=False):
            yield _file(base, path, pool)
        else:
            what = "a link" if entry.is_symlink() else "a pipe, socket or device"
            raise AuthorError(f"{base}/{path}: is {what}, which no build makes; build the eval again")
    if not entries:
        yield Found(folder, 0o755, 0, "", (0, 0, 0))


def _entries(path: str) -> list[os.DirEntry[str]]:
    """What a folder holds, sorted by the names (by code points, which is the order of their bytes in UTF-8)."""
    try:
        with os.scandir(path) as entries:
            return sorted(entries, key=attrgetter("name"))
    except NotADirectoryError:
        raise AuthorError(f"{path}: is no folder, though build.json names it; build the eval again") from None
    except FileNotFoundError:
        raise AuthorError(f"{path}: is not there, though build.json names it; build the eval again") from None
    except OSError as error:
        raise MachineError(f"{path}: cannot be read ({error.strerror})") from error


def _file(base: str, path: str, pool: ThreadPoolExecutor) -> Found | Future[Found]:
    """A file, read and hashed; a large one is hashed by another thread."""
    try:
        handle = os.open(f"{base}/{path}", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise MachineError(f"{base}/{path}: cannot be read ({error.strerror})") from error
    try:
        status = os.fstat(handle)
        if status.st_size > SMALL:
            return pool.submit(_large, base, path)
        return _found(path, status, hashlib.sha256(os.read(handle, SMALL + 1)).hexdigest())
    finally:
        os.close(handle)


def _large(base: str, path: str) -> Found:
    try:
        handle = os.open(f"{base}/{path}", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(handle, "rb", buffering=0) as file:
            return _found(path, os.fstat(handle), hashlib.file_digest(file, "sha256").hexdigest())
    except OSError as error:
        raise MachineError(f"{base}/{path}: cannot be read ({error.strerror})") from error


def _found(path: str, status: os.stat_result, sha256: str) -> Found:
    return Found(path, 0o755 if status.st_mode & 0o111 else 0o644, status.st_size, sha256, stamp_of(status))


def stamp_of(status: os.stat_result) -> Stamp:
    """What changes whenever a file's content does."""
    return status.st_size, status.st_ctime_ns, status.st_ino
