"""Unpacks a bundle into a fresh folder beside its place, which takes it only when every byte was checked."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from harbor_tasks.bundles.format import DATASET, HEAD, INDEX, REGISTRY, BundleInfo, Entry, Limits, canonical
from harbor_tasks.bundles.index import Index
from harbor_tasks.bundles.reader import read_bundle
from harbor_tasks.environments.scratch import folder_beside
from harbor_tasks.errors import AuthorError, MachineError, display_path
from harbor_tasks.tasks.manifest import PULLED
from harbor_tasks.tasks.plan import BUILD_DIR
from harbor_tasks.tasks.state import FOLDER_MODE

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_KEPT_BYTES = 16 << 20


def unpack(file: Path, into: Path, *, expect: str | None = None, limits: Limits | None = None) -> BundleInfo:
    """Check a bundle and lay out its tasks as ``into``, a folder that is not there yet or is empty.

    ``expect`` is the digest that the bundle must have. AuthorError naming what of it is broken, and then nothing is
    left behind; MachineError when the disk cannot take it.
    """
    into = Path(os.path.abspath(into))  # noqa: PTH100 - where it was named
    made = [folder for folder in into.parents if not folder.exists()]
    try:
        into.parent.mkdir(parents=True, exist_ok=True)
        if into.is_symlink() or (into.exists() and (not into.is_dir() or any(into.iterdir()))):
            raise AuthorError(f"{display_path(into)}: is there already; name a new or empty folder")
        with folder_beside(into) as room:
            fresh = room / "tasks"
            fresh.mkdir(0o700)
            layout = _Layout(str(fresh))
            info = read_bundle(file, layout, expect=expect, limits=limits or Limits())
            layout.finish(info)
            fresh.chmod(FOLDER_MODE)
            fresh.rename(into)
    except OSError as error:
        raise MachineError(f"{display_path(into)}: cannot be written ({error.strerror})") from error
    finally:
        with contextlib.suppress(OSError):  # the first that holds something ends it
            for folder in made:
                folder.rmdir()
    return info


class _Layout:
    """Writes files below a new folder; takes them from `read_bundle`."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._way: list[str] = []
        self._kept: OrderedDict[int, bytes] = OrderedDict()
        self._kept_bytes = 0
        self._members: dict[str, bytes] = {}
        self._index: IO[bytes] | None = None

    def begin(self, members: dict[str, bytes], index: Index, index_file: IO[bytes]) -> None:
        """Look for room; keep what is written last."""
        free = shutil.disk_usage(self._base).free
        if index.total > free:
            raise MachineError(f"{index.total} bytes are to be unpacked, and {free} are free; make room")
        self._members = members
        self._enter(BUILD_DIR)
        index_file.seek(0)
        with os.fdopen(self._open(f"{BUILD_DIR}/{INDEX}", 0o644), "wb") as copy:
            shutil.copyfileobj(index_file, copy, 1 << 20)

    def folder(self, entry: Entry) -> None:
        """An empty folder."""
        self._enter(entry.path)

    def small(self, entry: Entry, content: bytes) -> None:
        """A file of a content in memory, which may be wanted again."""
        self._write(entry, content)
        self._keep(entry.blob, content)

    def large(self, entry: Entry, chunks: Iterator[bytes]) -> None:
        """A file whose content comes in pieces."""
        self._enter(entry.path.rpartition("/")[0])
        handle = self._open(entry.path, entry.mode)
        try:
            for chunk in chunks:
                _write_all(handle, chunk)
        finally:
            os.close(handle)

    def copy(self, entry: Entry, first: Entry) -> None:
        """A file with the content of one that was written."""
        content = self._kept.get(entry.blob)
        if content is not None:
            self._kept.move_to_end(entry.blob)
            self._write(entry, content)
            return
        with open(f"{self._base}/{first.path}", "rb", buffering=0) as source:  # noqa: PTH123
            self.large(entry, iter(lambda: source.read(1 << 20), b""))

    def finish(self, info: BundleInfo) -> None:
        """What tells that these tasks were pulled, and what Harbor takes the set from."""
        members = self._members
        files = {f"{BUILD_DIR}/{HEAD}": members[HEAD], DATASET: members[DATASET], REGISTRY: members[REGISTRY]}
        files[f"{BUILD_DIR}/{PULLED}"] = canonical({"schema": 1, "digest": info.digest})
        for path, content in files.items():
            handle = self._open(path, 0o644)
            try:
                _write_all(handle, content)
            finally:
                os.close(handle)

    def _keep(self, blob: int, content: bytes) -> None:
        self._kept[blob] = content
        self._kept_bytes += len(content)
        while self._kept_bytes > _KEPT_BYTES:
            self._kept_bytes -= len(self._kept.popitem(last=False)[1])

    def _write(self, entry: Entry, content: bytes) -> None:
        self._enter(entry.path.rpartition("/")[0])
        handle = self._open(entry.path, entry.mode)
        try:
            _write_all(handle, content)
        finally:
            os.close(handle)

    def _open(self, path: str, mode: int) -> int:
        handle = os.open(f"{self._base}/{path}", _NEW, 0o600)
        os.fchmod(handle, mode)
        return handle

    def _enter(self, folder: str) -> None:
        """Make a folder and those above it; paths come in order, so those of the way here are there."""
        parts = folder.split("/") if folder else []
        depth = 0
        while depth < min(len(parts), len(self._way)) and parts[depth] == self._way[depth]:
            depth += 1
        path = "/".join([self._base, *parts[:depth]])
        for part in parts[depth:]:
            path = f"{path}/{part}"
            os.mkdir(path, 0o700)  # noqa: PTH102
            os.chmod(path, FOLDER_MODE)  # noqa: PTH101
        if depth < len(parts) or depth < len(self._way):
            self._way = parts


def _write_all(handle: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(handle, view) :]
