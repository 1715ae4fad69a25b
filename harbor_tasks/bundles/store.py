"""Where the tasks of a bundle lie on a shared runner: below one folder, by the bundle's digest, fetched once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from harbor_tasks.bundles.reader import inspect
from harbor_tasks.bundles.unpack import unpack
from harbor_tasks.errors import AuthorError, display_path
from harbor_tasks.tasks.manifest import manifest_path

Say = Callable[[str], None]


def stored_tasks(source: str, keep: Path, *, say: Say) -> Path:
    """The folder of built tasks that ``source`` names: a bundle's file, or such a folder, which is left where it is.

    A bundle goes to ``keep/<the digits of its digest>``; one that lies there already is taken as it is. AuthorError
    when ``source`` names nothing, or a broken bundle.
    """
    path = Path(source)
    if path.is_dir():
        return path
    if path.is_file():
        digest = inspect(path).digest
        return _kept(keep, digest, say, lambda into: unpack(path, into, expect=digest))
    raise AuthorError(f"{display_path(path)}: no such bundle or folder")


def _kept(keep: Path, digest: str, say: Say, fetch: Callable[[Path], object]) -> Path:
    """The folder for this digest, fetched when it is not there."""
    folder = keep / digest.removeprefix("sha256:")
    if manifest_path(folder).is_file():
        say(f"{display_path(folder)}: there already")
    else:
        fetch(folder)
        say(f"{display_path(folder)}: fetched")
    return folder
