"""Archives into a container, always the same bytes for the same files, and out of it, trusting nothing."""

from __future__ import annotations

import contextlib
import io
import os
import stat
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

_MTIME = 946684800
"""2000-01-01: no file of a trial is older than its container."""
_IN_MEMORY = 8 << 20
_DEPTH = 100
"""Folders in folders that are kept: deeper ones only keep programs here from removing them."""


class Outgoing:
    """An archive to be unpacked at ``/``. Folders of the container that exist keep their own mode and owner."""

    def __init__(self) -> None:
        self.file: IO[bytes] = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - closed by __exit__
        self._tar = tarfile.open(fileobj=self.file, mode="w", format=tarfile.PAX_FORMAT)  # noqa: SIM115
        self.size = 0

    def __enter__(self) -> Outgoing:
        return self

    def __exit__(self, *_: object) -> None:
        self._tar.close()
        self.file.close()

    def tree(self, source: Path, place: str) -> dict[str, tuple[int, int]]:
        """Add a file, or what is in a folder, as root's; (mode, size) of what was in the folder, by relative path.

        Modes are 0644 or 0755, whatever the umask was under which the task was written.
        """
        added: dict[str, tuple[int, int]] = {}
        if not source.is_dir():
            self._from_disk(source, place)
            return added
        for path, name in _below(source, ""):
            entry = self._from_disk(path, f"{place}/{name}")
            kind = stat.S_IFDIR if entry.isdir() else stat.S_IFREG
            added[name] = (kind | entry.mode, entry.size)
        return added

    def folder(self, place: str, mode: int = 0o755, uid: int = 0, gid: int = 0) -> None:
        """Add a folder of its own mode and owner."""
        entry = _entry(place, mode, uid, gid)
        entry.type = tarfile.DIRTYPE
        self._tar.addfile(entry)

    def content(self, place: str, content: bytes, mode: int = 0o644, uid: int = 0, gid: int = 0) -> None:
        """Add a file with this content."""
        entry = _entry(place, mode, uid, gid)
        entry.size = len(content)
        self._tar.addfile(entry, io.BytesIO(content))

    def finish(self) -> IO[bytes]:
        """The archive, ready to be read from its beginning."""
        self._tar.close()
        self.size = self.file.tell()
        self.file.seek(0)
        return self.file

    def _from_disk(self, path: Path, place: str) -> tarfile.TarInfo:
        info = path.lstat()
        executable = stat.S_ISDIR(info.st_mode) or info.st_mode & 0o100
        entry = _entry(place, 0o755 if executable else 0o644)
        if stat.S_ISDIR(info.st_mode):
            entry.type = tarfile.DIRTYPE
            self._tar.addfile(entry)
        elif stat.S_ISREG(info.st_mode):
            entry.size = info.st_size
            with path.open("rb") as file:
                self._tar.addfile(entry, file)
        else:
            raise ValueError(f"{path}: neither a file nor a folder")
        return entry


def _entry(place: str, mode: int, uid: int = 0, gid: int = 0) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(place.strip("/"))
    entry.mode, entry.uid, entry.gid, entry.mtime = mode, uid, gid, _MTIME
    return entry


def _below(folder: Path, prefix: str) -> Iterator[tuple[Path, str]]:
    """Everything below a folder, each folder before what is in it, in an order that does not depend on the disk."""
    for name in sorted(os.listdir(folder)):  # noqa: PTH208 - names, not paths
        path = folder / name
        yield path, prefix + name
        if path.is_dir() and not path.is_symlink():
            yield from _below(path, f"{prefix}{name}/")


def unpack(archive: IO[bytes], target: Path) -> list[str]:
    """Unpack what came out of a container into the empty folder ``target``; what was left out.

    Trusts nothing: only files, folders and links, only below ``target``, never through a link, never over a file;
    without owners and without setuid. Links are kept as they are and point where they pointed in the container.
    """
    made, left_out = {PurePosixPath()}, []
    try:
        with tarfile.open(fileobj=archive, mode="r:") as tar:
            for entry in tar:
                name = PurePosixPath(entry.name)
                plain = ".." not in name.parts and 0 < len(name.parts) <= _DEPTH and name.parent in made
                if not plain or not _unpacked(tar, entry, target / name):
                    left_out.append(entry.name)
                elif entry.isdir():
                    made.add(name)
    except (tarfile.TarError, EOFError) as error:
        left_out.append(f"the rest ({error})")
    return left_out


def _unpacked(tar: tarfile.TarFile, entry: tarfile.TarInfo, path: Path) -> bool:
    with contextlib.suppress(OSError, ValueError):
        if entry.isdir():
            path.mkdir()
            path.chmod(entry.mode & 0o777 | 0o700)
        elif entry.issym():
            path.symlink_to(entry.linkname)
        elif entry.isreg():
            content = tar.extractfile(entry)
            assert content is not None
            with path.open("xb") as file:
                while block := content.read(1 << 16):
                    file.write(block)
            path.chmod(entry.mode & 0o777 | 0o600)
        else:
            return False
        return True
    return False
