"""The cases of an eval: which folders are cases, what of them goes where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec.load import Eval


@dataclass(frozen=True, slots=True)
class CaseFile:
    """A file of a case and its place in the workspace (posix, relative); ``is_dir`` for an empty folder."""

    path: str
    source: Path
    mode: int
    is_dir: bool
    size: int


@dataclass(frozen=True, slots=True)
class Case:
    """One case: its data, and its files by where they go."""

    id: str
    directory: Path
    input: Any
    input_file: Path
    answers_file: Path | None
    overrides: dict[str, str | list[str]]
    annotations_file: Path | None
    annotations: Any
    files: tuple[CaseFile, ...]
    solution: tuple[CaseFile, ...]
    replay_file: Path | None
    references: tuple[CaseFile, ...]


def list_cases(ev: Eval, problems: Problems, only: Sequence[str] = ()) -> list[Path]:
    """The case folders, sorted by name; an id in ``only`` that is no case is an error."""
    raise NotImplementedError


def read_case(ev: Eval, directory: Path, problems: Problems) -> Case | None:
    """Read one case; None when it cannot be used."""
    raise NotImplementedError


def inputs_of(ev: Eval, directory: Path) -> Iterator[Path]:
    """Every path that belongs to a case: what must be unchanged for its task to be unchanged."""
    raise NotImplementedError
