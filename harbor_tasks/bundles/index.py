"""files.jsonl of a bundle: checked line by line before any file is written, and read again for that."""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import PurePosixPath
from typing import IO

from harbor_tasks.bundles.format import Entry, Limits
from harbor_tasks.bundles.listing import SHARED
from harbor_tasks.errors import AuthorError
from harbor_tasks.evalspec.portable import fold_name, path_fault
from harbor_tasks.tasks.plan import BUILD_DIR, TaskFile, digest_of

MAX_LINE = 64 << 10


class Index:
    """The lines of files.jsonl in a file on disk; in memory are eight bytes for each content, whatever their number."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._starts = array("Q")
        self.files = self.folders = self.total = 0
        self.digests: dict[str, str] = {}
        """Harbor's digest of each task directory."""
        self.first = lru_cache(maxsize=2048)(self._first)

    def __iter__(self) -> Iterator[Entry]:
        self._file.seek(0)
        for line in self._file:
            yield _parse(line)

    @property
    def blobs(self) -> int:
        """How many distinct contents there are."""
        return len(self._starts)

    def _first(self, blob: int) -> Entry:
        """The first entry with a content."""
        line = os.pread(self._file.fileno(), MAX_LINE, self._starts[blob])
        return _parse(line[: line.index(b"\n") + 1])

    def check(self, limits: Limits, broken: Callable[[str, str], AuthorError]) -> None:
        """Refuse what may not be unpacked; ``broken`` makes the error for a path and what is wrong with it."""
        self._file.flush()
        self._file.seek(0)
        order = _Order()
        task: list[TaskFile] = []
        current, offset = "", 0
        while line := self._file.readline(MAX_LINE):
            try:
                entry = _parse(line)
                if entry.line() != line:
                    raise ValueError("is not written as it should be")  # noqa: TRY301
                self._check(entry)
                order.add(entry.path)
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise broken(_path_in(line), f"line {self.files + self.folders + 1} of the list {error}") from None
            top = entry.path.partition("/")[0]
            if top != current:
                self._close(current, task)
                current = top
            if entry.is_folder:
                self.folders += 1
            else:
                if entry.blob == self.blobs:
                    self._starts.append(offset)
                self.files += 1
                self.total += entry.size
                if current != BUILD_DIR:
                    task.append(TaskFile(entry.path[len(top) + 1 :], b"", entry.mode, entry.sha256))
            offset += len(line)
            if self.files + self.folders > limits.files:
                raise broken(entry.path, f"more than {limits.files} files are listed, which is the limit")
            if self.total > limits.total:
                raise broken(entry.path, f"the files are larger than {limits.total} bytes, which is the limit")
        self._close(current, task)

    def _close(self, directory: str, task: list[TaskFile]) -> None:
        if directory and directory != BUILD_DIR:
            self.digests[directory] = digest_of(task)
        task.clear()

    def _check(self, entry: Entry) -> None:
        """ValueError for an entry that no build makes."""
        fault = path_fault(entry.path)
        if fault:
            raise ValueError(fault)
        parts = PurePosixPath(entry.path).parts
        if len(parts) < 2 or (parts[0] == BUILD_DIR and parts[1] not in SHARED):
            raise ValueError("lies where no build writes a file")
        if entry.mode not in ((0o755,) if entry.is_folder else (0o644, 0o755)):
            raise ValueError(f"has the mode {entry.mode:o}")
        if entry.is_folder:
            return
        if entry.blob > self.blobs:
            raise ValueError("names a content out of its order")
        if entry.blob < self.blobs:
            first = self.first(entry.blob)
            if (first.sha256, first.size) != (entry.sha256, entry.size):
                raise ValueError(f"names the content of {first.path}, but not its digest")


class _Order:
    """Holds paths to their order, each once, and no two that are one where case is folded; keeps one way down only."""

    def __init__(self) -> None:
        self._way: list[tuple[str, set[str]]] = []
        self._last: tuple[bytes, ...] = ()
        self._file = ""

    def add(self, path: str) -> None:
        """ValueError when this path may not follow those before it."""
        parts = path.split("/")
        key = tuple(part.encode("utf-8") for part in parts)
        if key <= self._last:
            raise ValueError("is out of order, or there twice")
        if self._file and path.startswith(self._file + "/"):
            raise ValueError(f"lies in {self._file}, which is no folder")
        depth = 0
        while depth < min(len(parts), len(self._way)) and self._way[depth][0] == parts[depth]:
            depth += 1
        del self._way[depth + 1 :]
        for level in range(depth, len(parts)):
            if level == len(self._way):
                self._way.append(("", set()))
            seen = self._way[level][1]
            folded = fold_name(parts[level])
            if folded in seen:
                raise ValueError("differs from another path by case or accents only")
            seen.add(folded)
            self._way[level] = (parts[level], seen)
        self._last, self._file = key, path


def _parse(line: bytes) -> Entry:
    data = json.loads(line.decode("utf-8"))
    mode = int(data["mode"], 8)
    if type(data["path"]) is not str:
        raise ValueError("has a path that is none")
    if "blob" not in data:
        return Entry(data["path"], mode, 0, "", -1)
    blob, size, sha256 = data["blob"], data["size"], data["sha256"]
    if type(blob) is not int or type(size) is not int or blob < 0 or size < 0:
        raise ValueError("has a number that cannot be")
    if len(sha256) != 64 or sha256.strip("0123456789abcdef"):
        raise ValueError("has no SHA-256")
    return Entry(data["path"], mode, size, sha256, blob)


def _path_in(line: bytes) -> str:
    """The path that a faulty line seems to be about."""
    try:
        path = json.loads(line)["path"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return "files.jsonl"
    return path[:200] if isinstance(path, str) else "files.jsonl"
