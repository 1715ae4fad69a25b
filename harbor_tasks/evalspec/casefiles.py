"""Walks the folders of a case: regular files and empty folders come out, anything else is an error by path.

Nothing is opened here: a FIFO would block, a device would answer. Links inside the case become what they lead to.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec.fields import shown
from harbor_tasks.evalspec.portable import MAX_CASE_PATH_BYTES, bad_name, name_fault, path_fault

MAX_FILES = 100_000
MAX_DEPTH = 60

JUNK = frozenset({"__pycache__", ".git", ".DS_Store", "Thumbs.db"})
"""Names that no case means to have beside its files."""

_KINDS = {
    stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CaseFile:
    """A file of a case and its place (posix, relative); ``is_dir`` for an empty folder, ``mode`` 0o644 or 0o755."""

    path: str
    source: Path
    mode: int
    is_dir: bool
    size: int


class CaseFolder:
    """One case while its files are collected."""

    def __init__(self, directory: Path, case: str, problems: Problems) -> None:
        self.directory, self.case, self.problems = directory, case, problems
        self._top = str(directory)
        self._real: str | None = None
        self._count = 0

    @property
    def real(self) -> str:
        """The folder of the case without links."""
        if self._real is None:
            self._real = os.path.realpath(self._top)
        return self._real

    def error(self, path: str, says: str, hint: str = "", code: str = "case-file") -> None:
        """An error about a path of the case (absolute)."""
        relative = os.path.relpath(path, self._top)
        if bad_name(relative):
            self.problems.error(f"{shown(relative)} {says}", self.directory, case=self.case, hint=hint, code=code)
        else:
            self.problems.error(says, Path(path), case=self.case, hint=hint, code=code)

    def collect(
        self, path: str, place: str, *, skip: Container[str] = (), hidden: Sequence[str] = ()
    ) -> list[CaseFile]:
        """The files at or below ``path`` (absolute), with ``place`` as their path or the folder of their paths.

        Names in ``skip`` are left out; no link may lead to a path (relative to the case) in ``hidden``.
        """
        found: list[CaseFile] = []
        pending: list[tuple[str, str, int, tuple[str, ...]]] = [(path, place, 0, ())]
        while pending:
            at, name, depth, through = pending.pop()
            status, through = self._status(at, hidden, through)
            if status is None:
                continue
            if not stat.S_ISDIR(status.st_mode):
                mode = 0o755 if status.st_mode & 0o111 else 0o644
                found.append(CaseFile(name, Path(at), mode, is_dir=False, size=status.st_size))
                continue
            entries = self._entries(at, depth)
            if entries is None:
                return found
            for entry in entries:
                if entry not in skip:
                    pending.append((f"{at}/{entry}", f"{name}/{entry}" if name else entry, depth + 1, through))
            if not entries and name:
                found.append(CaseFile(name, Path(at), 0o755, is_dir=True, size=0))
        found.sort(key=lambda file: file.path)
        for file in found:
            fault = path_fault(file.path, MAX_CASE_PATH_BYTES) if len(file.path) > MAX_CASE_PATH_BYTES // 4 else ""
            if fault:
                self.error(str(file.source), fault, "shorten it", "file-name")
        return found

    def _entries(self, at: str, depth: int) -> list[str] | None:
        """The names in a folder; None when the case holds more than can be meant."""
        try:
            names = sorted(os.listdir(at), reverse=True)  # noqa: PTH208 - names, without an object for each
        except OSError as error:
            self.error(at, f"cannot be read: {error.strerror}", code="unreadable")
            return []
        self._count += len(names)
        if self._count > MAX_FILES or depth > MAX_DEPTH:
            limit = f"more than {MAX_FILES} files" if depth <= MAX_DEPTH else f"folders deeper than {MAX_DEPTH} levels"
            self.error(at, f"holds {limit}", "a link to a folder above, or too much for one case", "too-large")
            return None
        return names

    def _status(
        self, path: str, hidden: Sequence[str], through: tuple[str, ...]
    ) -> tuple[os.stat_result | None, tuple[str, ...]]:
        """What is at a path, through a link that stays in the case; None with an error if it cannot be used.

        ``through`` are the real folders of the links that led here; the second result has that of this link too.
        """
        fault = name_fault(path.rpartition("/")[2])
        if fault:
            self.error(path, fault, "rename it", "file-name")
            return None, through
        try:
            status = os.lstat(path)
            if stat.S_ISLNK(status.st_mode):
                through = (*through, os.path.realpath(os.path.dirname(path)))  # noqa: PTH120 - texts, as above
                target = self._target(path, hidden, through)
                if target is None:
                    return None, through
                status = os.stat(target)  # noqa: PTH116
        except OSError as error:
            self.error(path, f"cannot be read: {error.strerror}", code="unreadable")
            return None, through
        return status if self._is_usable(path, status.st_mode) else None, through

    def _is_usable(self, path: str, mode: int) -> bool:
        """Whether a mode is that of a readable file or folder; else there is an error."""
        if stat.S_ISDIR(mode) and path.endswith("/Dockerfile"):
            self.error(path, "is a folder, where tools expect a file", "rename it", "special-file")
        elif not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            self.error(path, f"is {_KINDS.get(stat.S_IFMT(mode), 'no regular file')}", "remove it", "special-file")
        elif mode & 0o444 != 0o444 and (not mode & 0o444 or not os.access(path, os.R_OK)):
            self.error(path, f"is not readable (mode {mode & 0o7777:04o})", "chmod +r it", "unreadable")
        else:
            return True
        return False

    def _target(self, path: str, hidden: Sequence[str], through: tuple[str, ...]) -> str | None:
        """Where a link leads, if the case may have it; else there is an error."""
        target = os.path.realpath(path)
        place = target[len(self.real) + 1 :]
        if target != self.real and not target.startswith(self.real + "/"):
            self.error(path, "is a link that leaves the case", "copy what it leads to", "link")
        elif not os.path.lexists(target) or os.path.islink(target):  # noqa: PTH114 - one call
            self.error(path, "is a link that leads nowhere", "remove it", "link")
        elif any(f"{folder}/".startswith(f"{target}/") for folder in through):
            self.error(path, "is a link to a folder that it lies in", "remove it", "link")
        elif any(place == one or place.startswith(one + "/") for one in hidden):
            self.error(path, f"is a link to {place}", "the agent must not see that", "link")
        else:
            return target
        return None
