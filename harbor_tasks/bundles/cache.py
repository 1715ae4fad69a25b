"""Bundles that `run` uses, unpacked once: a folder for each, named after its digest."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from harbor_tasks.bundles import inspect, unpack, verify
from harbor_tasks.bundles import reference as references
from harbor_tasks.bundles.format import SUFFIX
from harbor_tasks.environments.scratch import left_beside
from harbor_tasks.environments.staging import remove_tree
from harbor_tasks.errors import AuthorError, MachineError, display_path
from harbor_tasks.helpers import cache_folder

Say = Callable[[str], None]
_ZSTD = bytes.fromhex("28b52ffd")


def bundles_folder() -> Path:
    """Where unpacked bundles lie."""
    return cache_folder("bundles")


def remove_left() -> Iterator[Path]:
    """What killed processes left where bundles are unpacked, here and in the cache, removed one after the other."""
    for place in (Path(), bundles_folder()):
        for folder in left_beside(place):
            with contextlib.suppress(OSError):
                remove_tree(folder)
                yield folder


def is_bundle(source: Path) -> bool:
    """Whether a path is a bundle's file: by its name, or its first bytes; AuthorError when it cannot be read."""
    try:
        if not source.is_file():
            return False
        if source.suffix == SUFFIX:
            return True
        with source.open("rb") as stream:
            return stream.read(len(_ZSTD)) == _ZSTD
    except OSError as error:
        raise AuthorError(f"{display_path(source)}: cannot be read ({error.strerror})") from None


def tasks_of_file(file: Path, *, keep: Path | None = None) -> Path:
    """The built tasks of a bundle's file; ``keep`` is another place for them than the cache."""
    info = inspect(file)
    with _place(info.digest, keep) as folder:
        if not _is_there(folder):
            unpack(file, folder, expect=info.digest)
        return folder


def tasks_of_reference(
    ref: str, *, images: bool, host: str | None = None, plain_http: bool = False, ca: Path | None = None,
    keep: Path | None = None, say: Say | None = None,
) -> Path:  # fmt: skip
    """The built tasks of a bundle in a registry; with ``images`` its images are on the engine afterwards.

    A tag is looked up each time. A digest whose bundle is here needs no registry, as long as no image is missing.
    """
    from harbor_tasks.bundles import oci

    digest = references.parse(ref).digest
    if digest is None:
        place, artifact = oci.look(ref, plain_http=plain_http, ca=ca)
        digest, ref = artifact.digest, str(place)
    with _place(digest, keep) as folder:
        if not _is_there(folder):
            oci.pull(ref, folder, images=images, host=host, plain_http=plain_http, ca=ca, say=say)
        elif images:
            oci.pull_images(ref, folder, host=host, plain_http=plain_http, ca=ca, say=say)
        return folder


def _is_there(folder: Path) -> bool:
    """Whether the bundle is unpacked there, every file of it as it was; AuthorError naming the one that is not."""
    if not folder.exists():
        return False
    try:
        verify(folder)
    except AuthorError as error:
        raise AuthorError(f"{error} (it is a cache: remove {display_path(folder)}, and it is pulled again)") from None
    return True


@contextmanager
def _place(digest: str, keep: Path | None) -> Iterator[Path]:
    """The folder of a digest, this process's alone while it is filled."""
    folder = (keep.absolute() if keep is not None else bundles_folder()) / digest.replace(":", "-")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(f"{folder}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        how = "HARBOR_PACK_CACHE names another place" if keep is None else "--keep names another place"
        raise MachineError(f"{folder.parent}: cannot be written ({error.strerror}); {how}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
    finally:
        os.close(lock)
