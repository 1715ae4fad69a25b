"""What a build will write, as data: names, files, and the places that are the same in every sandbox."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

SANDBOX_HOME = "/opt/harbor-pack"
"""Where `setup` puts the policy, the answers and the layer in a sandbox."""
INTERCEPTION_LOG = "/var/log/harbor-pack/interceptions.jsonl"
"""Where the interceptor logs in a sandbox."""
BUILD_DIR = ".harbor-pack"
"""The folder of an output folder that holds what belongs to all its tasks."""
FILES = "environment/files/"
"""Where a task carries the case's own workspace."""

_HARBOR_IGNORES = re.compile(
    r"(?:^|/)(?:__pycache__/|[^/]*\.pyc(?:/|$)|\.DS_Store(?:/|$)|[^/]*\.sw[po](?:/|$)|[^/]*~(?:/|$)|\.harborignore$)"
)


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
    """One task, ready to be written: its files sorted by path; ``digest`` is Harbor's digest of the directory."""

    name: TaskName
    files: tuple[TaskFile, ...]
    digest: str


def made(path: str, content: bytes | str, mode: int = 0o644) -> TaskFile:
    """A file with this content; ValueError (UnicodeEncodeError) for text that cannot be written as UTF-8."""
    data = content.encode("utf-8") if isinstance(content, str) else content
    return TaskFile(path, data, mode, sha256_of(data) if len(data) < _WORTH_KEEPING else _kept_sha256(data))


def sha256_of(data: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


_WORTH_KEEPING = 4096
_kept_sha256 = lru_cache(maxsize=16)(sha256_of)  # large files that are made are scripts, the same in every task


def digest_of(files: Iterable[TaskFile]) -> str:
    """Harbor's digest of a task directory: SHA-256 over its paths and hashes, sorted (facts/harbor.md).

    As Harbor's packager does it, files that are never published (``*.pyc``, ``*~`` …) do not count.
    """
    lines = sorted((f.path, f.sha256) for f in files if f.content is not None and not _HARBOR_IGNORES.search(f.path))
    return hashlib.sha256("".join(f"{path}\0{sha256}\n" for path, sha256 in lines).encode("utf-8")).hexdigest()
