"""`init`: a small working eval in a new folder, copied from ``examples/starter``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from harbor_tasks.errors import AuthorError, MachineError, display_path
from harbor_tasks.resources import resource


def init(directory: Path) -> list[Path]:
    """Write the starter eval into ``directory``, which is made if it is missing; returns the written files, sorted.

    AuthorError when something other than an empty folder is there, MachineError when it cannot be written.
    """
    try:
        if directory.is_symlink() and not directory.exists():
            raise AuthorError(f"{display_path(directory)}: a link that leads nowhere; name a new or an empty folder")
        if directory.exists() and not directory.is_dir():
            raise AuthorError(f"{display_path(directory)}: not a folder; name a new or an empty one")
        if directory.is_dir() and any(directory.iterdir()):
            raise AuthorError(f"{display_path(directory)}: not empty; name a new or an empty folder")
        return list(_copy(resource("examples", "starter"), directory))
    except OSError as error:
        where = display_path(Path(error.filename)) if isinstance(error.filename, str) else display_path(directory)
        raise MachineError(f"{where}: cannot be written ({error.strerror or error})") from error


def _copy(source: Path, target: Path) -> Iterator[Path]:
    """Copy all files below ``source``. Modes are set here: neither a wheel nor a read-only checkout decides them."""
    for file in sorted(source.rglob("*")):
        inside = file.relative_to(source)
        if not file.is_file() or "__pycache__" in inside.parts:
            continue
        written = target / inside
        written.parent.mkdir(parents=True, exist_ok=True)
        written.write_bytes(file.read_bytes())
        if written.suffix == ".sh":
            mode = written.stat().st_mode
            written.chmod(mode | (mode & 0o444) >> 2)  # who may read it may run it
        yield written
