"""Where paths of eval.yaml lead: from the file's folder, then from the project's root, never out of the project."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from harbor_tasks.errors import display_path


@dataclass(frozen=True, slots=True)
class Found:
    """What a path leads to: the file or folder, or why there is none; and a place that was passed over."""

    path: Path | None
    fault: str = ""
    hint: str = ""
    passed_over: Path | None = None


def project_root(folder: Path) -> Path:
    """The project of an eval: the nearest folder above with `.git`, else the current folder if the eval lies in it.

    An eval outside the current folder is its own project: its paths do not depend on where the command was started.
    """
    for above in (folder, *folder.parents):
        if is_there(above / ".git"):
            return above
    current = Path.cwd()
    return current if folder.is_relative_to(current) else folder


def find_path(text: str, root: Path, project: Path) -> Found:
    """Follow a path: from ``root``, then from ``project``. It has no `..` and may not lead out through links."""
    if not text.strip() or "\0" in text:
        return Found(None, "is not a path")
    if text.startswith(("/", "~")):
        return Found(None, f"must be a relative path, not {text!r}", "write it from the folder of eval.yaml")
    if ".." in Path(text).parts or "..\\" in text:
        return Found(None, f"must not contain '..', as {text!r} does", "write it from the project's root")
    places = [root / text] if root == project else [root / text, project / text]
    found = [place for place in places if is_there(place)]
    if not found:
        looked = " nor in ".join(display_path(place) for place in places)
        return Found(None, f"does not exist: not in {looked}" if len(places) > 1 else f"does not exist: {looked}")
    taken = found[0]
    real = taken.resolve()
    if not any(real.is_relative_to(home.resolve()) for home in (root, project)):
        return Found(None, f"leads out of the project, to {real}", "keep it in the project")
    other = found[1] if len(found) > 1 and found[1].resolve() != real else None
    return Found(taken, passed_over=other)


def is_there(path: Path) -> bool:
    """Whether there is something at a path; what may not be looked at is not. So for the two below."""
    return os.path.exists(path)  # noqa: PTH110 - pathlib's raise where a folder may not be read


def is_file(path: Path) -> bool:
    """Whether there is a regular file at a path, or a link to one."""
    return os.path.isfile(path)  # noqa: PTH113


def is_folder(path: Path) -> bool:
    """Whether there is a folder at a path, or a link to one."""
    return os.path.isdir(path)  # noqa: PTH112
