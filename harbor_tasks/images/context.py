"""Build contexts: an archive from an explicit list of files, the same bytes for the same list.

No folder is walked and no ignore file is read here, so none can leave a file out.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from harbor_tasks.errors import AuthorError
from harbor_tasks.tasks.plan import TaskFile

IN_MEMORY_BYTES = 32 << 20
MODIFIED = 315532800
"""The time of every file, 1980-01-01: what is older, some formats cannot name."""


def archive(files: Iterable[TaskFile]) -> IO[bytes]:
    """A tar archive of the files and of the folders above them, all of root's; at its beginning, to be closed."""
    target: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY_BYTES)  # noqa: SIM115
    made: set[str] = set()
    with tarfile.open(mode="w", fileobj=target, format=tarfile.PAX_FORMAT) as tar:
        for file in sorted(files, key=lambda file: file.path):
            folders = file.path.split("/")[: None if file.content is None else -1]
            for depth in range(1, len(folders) + 1):
                folder = "/".join(folders[:depth])
                if folder not in made:
                    made.add(folder)
                    tar.addfile(_entry(folder, tarfile.DIRTYPE, 0o755, 0))
            if isinstance(file.content, bytes):
                tar.addfile(_entry(file.path, tarfile.REGTYPE, file.mode, len(file.content)), io.BytesIO(file.content))
            elif file.content is not None:
                with file.content.open("rb") as stream:
                    size = os.fstat(stream.fileno()).st_size
                    tar.addfile(_entry(file.path, tarfile.REGTYPE, file.mode, size), stream)
    target.seek(0)
    return target


def _entry(path: str, kind: bytes, mode: int, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path)
    entry.type, entry.mode, entry.size, entry.mtime = kind, mode, size, MODIFIED
    return entry


def listed(folder: Path) -> tuple[TaskFile, ...]:
    """The files of a folder that `build` wrote, with their hashes; AuthorError for what it never writes."""
    found: list[TaskFile] = []
    if not folder.is_dir():
        return ()
    for current, folders, names in os.walk(folder):
        place = Path(current)
        if not folders and not names and place != folder:
            found.append(TaskFile(place.relative_to(folder).as_posix(), None, 0o755))
        for name in [*names, *(name for name in folders if (place / name).is_symlink())]:
            path = place / name
            status = path.lstat()
            if not stat.S_ISREG(status.st_mode):
                raise AuthorError(f"{path}: not a regular file; build the eval again")
            with path.open("rb") as stream:
                sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
            mode = 0o755 if status.st_mode & 0o100 else 0o644
            found.append(TaskFile(path.relative_to(folder).as_posix(), path, mode, sha256))
    return tuple(sorted(found, key=lambda file: file.path))
