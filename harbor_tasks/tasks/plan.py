"""What a build will write, as data: names first, then the files of one task after the other."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harbor_tasks.evalspec import Eval


@dataclass(frozen=True, slots=True)
class TaskName:
    """The names of a case's task: its folder in the output folder, and ``org/name`` of task.toml."""

    case_id: str
    directory: str
    name: str


@dataclass(frozen=True, slots=True)
class TaskFile:
    """A file of a task directory: its place (posix, relative) and its bytes, or where these are copied from.

    ``content`` None is an empty folder. ``sha256`` is that of the bytes, in hex; empty for a folder.
    """

    path: str
    content: bytes | Path | None
    mode: int = 0o644
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """One task, ready to be written; ``digest`` is Harbor's digest of the directory."""

    name: TaskName
    files: tuple[TaskFile, ...]
    digest: str


@dataclass(frozen=True)
class BuildPlan:
    """What all tasks of an eval share."""

    ev: Eval
    image: str
    tasks: tuple[TaskName, ...]
