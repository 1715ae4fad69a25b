"""Lists what of a build is packed: the tasks that build.json names, and what they share in ``.harbor-pack``."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harbor_tasks.errors import AuthorError, MachineError
from harbor_tasks.evalspec.portable import name_fault, path_fault, twins
from harbor_tasks.tasks.manifest import BuildManifest
from harbor_tasks.tasks.plan import BUILD_DIR

SHARED = ("base", "build.json", "layer", "probe")
"""What of ``.harbor-pack`` belongs to the eval; the rest is this machine's own."""
SMALL = 1 << 20
"""Files up to this size are read as a whole."""


@dataclass(frozen=True, slots=True)
class Found:
    """A file or empty folder of a build; a file has a digest, and the stamp that it had when it was read."""

    path: str
    mode: int
    size: int
    sha256: str
    stamp: tuple[int, int, int]


def list_build(tasks: Path, manifest: BuildManifest) -> Iterator[Found]:
    """All files and empty folders of a build, sorted by the parts of their paths; each file is read and hashed.

    AuthorError by path for what no other machine would take: links, special files, names, twins.
    """
    base = str(tasks)
    directories = sorted({task.directory for task in manifest.tasks} | {BUILD_DIR})
    refuse_twins("", directories)
    for directory in directories:
        yield from _below(base, directory, SHARED if directory == BUILD_DIR else None)


def refuse_twins(folder: str, names: list[str]) -> None:
    """AuthorError when two names of a folder are one where case is folded."""
    for name, first in twins(names):
        place = f"{folder}/" if folder else ""
        raise AuthorError(
            f"{place}{name}: differs from {place}{first} by case or accents only; on other machines they are one file; "
            "rename one of them"
        )


def _below(base: str, folder: str, only: tuple[str, ...] | None) -> Iterator[Found]:
    names = sorted(_names(f"{base}/{folder}") if only is None else _shared(base, folder, only), key=os.fsencode)
    refuse_twins(folder, names)
    for name in names:
        path = f"{folder}/{name}"
        fault = name_fault(name) or path_fault(path)
        if fault:
            raise AuthorError(f"{path!r}: {fault}; rename it")
        status = os.lstat(f"{base}/{path}")
        if stat.S_ISDIR(status.st_mode):
            yield from _below(base, path, None)
        elif stat.S_ISREG(status.st_mode):
            yield _file(base, path)
        else:
            raise AuthorError(f"{path}: is a link or special file, which no build makes; build the eval again")
    if not names:
        yield Found(folder, 0o755, 0, "", (0, 0, 0))


def _names(path: str) -> list[str]:
    try:
        return os.listdir(path)  # noqa: PTH208
    except FileNotFoundError:
        raise AuthorError(f"{path}: is not there, though build.json names it; build the eval again") from None
    except OSError as error:
        raise MachineError(f"{path}: cannot be read ({error.strerror})") from error


def _shared(base: str, folder: str, only: tuple[str, ...]) -> list[str]:
    return [name for name in only if os.path.lexists(f"{base}/{folder}/{name}")]


def _file(base: str, path: str) -> Found:
    try:
        handle = os.open(f"{base}/{path}", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise MachineError(f"{base}/{path}: cannot be read ({error.strerror})") from error
    try:
        status = os.fstat(handle)
        mode = 0o755 if status.st_mode & 0o111 else 0o644
        if status.st_size <= SMALL:
            digest = hashlib.sha256(os.read(handle, SMALL + 1)).hexdigest()
        else:
            with os.fdopen(os.dup(handle), "rb", buffering=0) as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        return Found(path, mode, status.st_size, digest, stamp_of(status))
    finally:
        os.close(handle)


def stamp_of(status: os.stat_result) -> tuple[int, int, int]:
    """What changes whenever a file's content does."""
    return status.st_size, status.st_ctime_ns, status.st_ino
