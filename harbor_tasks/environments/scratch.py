"""Temporary folders that are held while they are used, so that what a killed process left can be told from them."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from harbor_tasks.environments.staging import remove_tree

_PREFIX = "hp-"
_BESIDE = ".hp-"
_LOCK = ".held"
_MARK = b"a temporary folder of harbor-pack\n"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder, removed on the way out; a SIGKILL leaves it to `clean`."""
    with _held(Path(tempfile.mkdtemp(prefix=_PREFIX)).resolve()) as folder:
        yield folder


@contextmanager
def folder_beside(target: Path) -> Iterator[Path]:
    """A new folder on the file system of ``target``, whose folder is there; removed on the way out.

    What killed processes have left there is removed first. OSError when it cannot be made.
    """
    for left in left_beside(target.parent):
        with suppress(OSError):
            remove_tree(left)
    with _held(Path(tempfile.mkdtemp(prefix=f"{_BESIDE}{target.name[:40]}-", dir=target.parent))) as folder:
        yield folder


@contextmanager
def _held(folder: Path) -> Iterator[Path]:
    try:
        with (folder / f"{_LOCK}.new").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lock.write(_MARK)
            lock.flush()
            (folder / f"{_LOCK}.new").rename(folder / _LOCK)  # it is never there and not held
            yield folder
    finally:
        remove_tree(folder)


def left_folders() -> Iterator[Path]:
    """This user's temporary folders that no process holds any more."""
    yield from _left(sorted(Path(tempfile.gettempdir()).glob(f"{_PREFIX}*")))


def left_beside(parent: Path) -> Iterator[Path]:
    """This user's folders that `folder_beside` made in this one, and that no process holds any more."""
    with suppress(OSError):
        yield from _left(sorted(parent.glob(f"{_BESIDE}*")), _MARK)


def _left(folders: Iterable[Path], mark: bytes = b"") -> Iterator[Path]:
    for folder in folders:
        with suppress(OSError):  # gone meanwhile, or another user's
            if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
                continue
            handle = os.open(folder / _LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(handle, "rb") as lock:
                if not lock.read(len(_MARK)).startswith(mark):
                    continue
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                yield folder
