"""The files below a folder, by the rules for all that is packed: regular files and folders, nothing from outside."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec.portable import MAX_CASE_PATH_BYTES, length_fault, name_fault, twins
from harbor_tasks.tasks.plan import TaskFile, sha256_of

Skip = Callable[[Path], bool]
NEVER_PACKED = frozenset({".git", ".hg", ".svn", "__pycache__", ".DS_Store", ".venv", ".mypy_cache", ".pytest_cache"})
MANY_BYTES = 200 << 20
"""More than this is seldom meant: a warning says so."""


def nothing(_path: Path) -> bool:
    """Skip no file."""
    return False


def collect(
    root: Path, problems: Problems, *, inside: Path | None = None, skip: Skip = nothing, case: str | None = None,
    visited: list[Path] | None = None, limit: int = MAX_CASE_PATH_BYTES,
) -> list[TaskFile]:  # fmt: skip
    """All files and empty folders below ``root``, sorted; paths are relative to it, modes 0644 or 0755.

    Links that stay in ``inside`` (default: ``root``) become what they point to. Links that leave it, special files and
    names that cannot be written everywhere are errors by path, as are paths of more than ``limit`` bytes. ``visited``
    gets the folders that were looked into.
    """
    walk = _Walk((inside or root).resolve(), skip, problems, case, [] if visited is None else visited, limit)
    return sorted(walk.below(root, "", ()), key=lambda file: file.path)


def with_digest(file: TaskFile, problems: Problems) -> TaskFile:
    """The file with the SHA-256 of its content; without one, and an error in ``problems``, when it cannot be read."""
    if file.content is None:
        return file
    if isinstance(file.content, bytes):
        return replace(file, sha256=sha256_of(file.content))
    try:
        with file.content.open("rb") as stream:
            return replace(file, sha256=hashlib.file_digest(stream, "sha256").hexdigest())
    except OSError as error:
        problems.error(f"cannot be read ({error.strerror})", file.content, code="not-packable")
        return file


@dataclass(frozen=True)
class _Walk:
    inside: Path
    skip: Skip
    problems: Problems
    case: str | None
    visited: list[Path]
    limit: int

    def below(self, folder: Path, prefix: str, above: tuple[tuple[int, int], ...]) -> Iterator[TaskFile]:
        """The files of one folder; ``above`` are the folders on the way to it, for links in a circle."""
        try:
            own = folder.stat()
            names = sorted(os.listdir(folder))  # noqa: PTH208 - names, not paths
        except OSError as error:
            self._error(folder, f"cannot be read ({error.strerror})")
            return
        if (own.st_dev, own.st_ino) in above:
            self._error(folder, "a link leads back to a folder above it")
            return
        self.visited.append(folder)
        names = [name for name in names if not self.skip(folder / name)]
        for name, first in twins(names):
            says = f"differs from {first} by case or accents only"
            self._error(folder / name, says, "rename one of them: on other machines they are one")
        for name in names:
            yield from self._entry(folder / name, prefix + name, (*above, (own.st_dev, own.st_ino)))
        if not names and prefix:
            yield TaskFile(prefix.rstrip("/"), None, 0o755)

    def _entry(self, path: Path, relative: str, above: tuple[tuple[int, int], ...]) -> Iterator[TaskFile]:
        fault = name_fault(path.name)
        if fault:
            self._error(path, fault)
            return
        fault = length_fault(relative, self.limit)
        if fault:
            self._error(path, fault, "shorten it")
            return
        try:
            if path.is_symlink() and not path.resolve(strict=True).is_relative_to(self.inside):
                self._error(path, "a link that leaves the folder that is packed", "copy the file to where it is needed")
                return
            mode = path.stat().st_mode
        except (OSError, RuntimeError) as error:
            self._error(path, f"cannot be read ({getattr(error, 'strerror', None) or 'a link in a circle'})")
            return
        if stat.S_ISDIR(mode):
            yield from self.below(path, relative + "/", above)
        elif stat.S_ISREG(mode):
            if not os.access(path, os.R_OK):
                self._error(path, "cannot be read (permission denied)")
                return
            yield TaskFile(relative, path, 0o755 if mode & 0o111 else 0o644)
        else:
            self._error(path, "not a regular file or folder (a pipe, socket or device)", "only files can be packed")

    def _error(self, path: Path, message: str, hint: str = "") -> None:
        self.problems.error(message, path, case=self.case, hint=hint, code="not-packable")
