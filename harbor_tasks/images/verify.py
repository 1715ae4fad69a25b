"""Looks into a new image: what was put into its context must be in it, all of it and unchanged."""

from __future__ import annotations

import hashlib
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from harbor_tasks.errors import MachineError
from harbor_tasks.images.builder import Engine, engine_errors
from harbor_tasks.tasks.plan import TaskFile


def verify_layer(engine: Engine, image: str, place: str, files: tuple[TaskFile, ...]) -> None:
    """MachineError unless the folder ``place`` of the image holds exactly these files, with their modes."""
    if not files:
        return
    found = dict(_in_image(engine, image, place))
    wanted = {file.path: (file.mode, file.sha256) for file in files if file.content is not None}
    wrong = sorted(path for path in wanted.keys() | found.keys() if wanted.get(path) != found.get(path))
    if wrong:
        raise MachineError(
            f"the engine built an image whose {place} differs from what it was given ({len(wrong)} files, first "
            f"{wrong[0]}); this engine's builder cannot be used"
        )


def _in_image(engine: Engine, image: str, place: str) -> Iterator[tuple[str, tuple[int, str]]]:
    with _container(engine, image) as container, tempfile.TemporaryFile() as spool:
        with engine_errors(f"read {place} of the new image"):
            pieces, _status = engine.client.api.get_archive(container, place)
            for piece in pieces:
                spool.write(piece)
        spool.seek(0)
        with tarfile.open(fileobj=spool) as tar:
            for entry in tar:
                if entry.isfile():
                    stream = tar.extractfile(entry)
                    sha256 = "" if stream is None else hashlib.sha256(stream.read()).hexdigest()
                    yield entry.name.partition("/")[2], (entry.mode & 0o777, sha256)


@contextmanager
def _container(engine: Engine, image: str) -> Iterator[str]:
    """A container that is never started."""
    api = engine.client.api
    with engine_errors("make a container of the new image"):
        made = api.create_container(image, ["true"], labels={"harbor-pack": "1", "harbor-pack.kind": "check"})
    try:
        yield made["Id"]
    finally:
        with engine_errors("remove a container"):
            api.remove_container(made["Id"], force=True)
