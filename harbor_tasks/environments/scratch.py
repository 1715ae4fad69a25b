"""Temporary folders that are held while they are used, so that what a killed process left can be told from them."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from harbor_tasks.environments.staging import remove_tree

_PREFIX = "hp-"
_LOCK = ".held"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder, removed on the way out; a SIGKILL leaves it to `clean`."""
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX)).resolve()
    try:
        with (folder / f"{_LOCK}.new").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            (folder / f"{_LOCK}.new").rename(folder / _LOCK)  # it is never there and not held
            yield folder
    finally:
        remove_tree(folder)


def left_folders() -> Iterator[Path]:
    """This user's folders of the kind that no process holds any more."""
    for folder in sorted(Path(tempfile.gettempdir()).glob(f"{_PREFIX}*")):
        with suppress(OSError):  # gone meanwhile, or another user's
            if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
                continue
            with (folder / _LOCK).open("rb") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                yield folder
