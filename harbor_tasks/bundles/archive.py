"""Packs a build: lists and hashes it, looks for secrets, then writes each distinct content once into one archive."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from harbor_tasks import __version__
from harbor_tasks.bundles.aside import Aside
from harbor_tasks.bundles.format import (
    BLOCK,
    CHUNK,
    DATASET,
    END,
    HEAD,
    INDEX,
    REGISTRY,
    SCHEMA,
    TRAILER_SIZE,
    WINDOW_LOG,
    BundleInfo,
    PackedImage,
    canonical,
    checksum_of,
    content_name,
    header,
    padding,
    read_trailer,
    trailer,
)
from harbor_tasks.bundles.harbor_set import dataset_toml, registry_json
from harbor_tasks.bundles.listing import Content, Listing, listed, stamp_of
from harbor_tasks.bundles.scan import refuse_secrets
from harbor_tasks.environments.scratch import folder_beside
from harbor_tasks.errors import AuthorError, MachineError, display_path

LEVEL = 1
"""Of the compression: a tenth larger than level 3, in two thirds of its time; the identity does not depend on it."""
Say = Callable[[str], None]


def pack(
    tasks: Path, out: Path, *, images: Sequence[PackedImage] = (), say: Say | None = None,
    environ: Mapping[str, str] | None = None,
) -> BundleInfo:  # fmt: skip
    """Write the bundle of a folder of built tasks to ``out``, which is replaced when it is complete.

    ``say`` gets a line for what is worth knowing; ``environ`` (default: this process's) has the values of variables
    that must not be in it. AuthorError for what cannot be packed, by path, and for what looks like a secret and is not
    allowed, by line; MachineError when the disk or a changing file is in the way.
    """
    _check_place(out)
    with listed(tasks) as listing:
        refuse_secrets(listing, os.environ if environ is None else environ, say or (lambda _line: None))
        return write(listing, out, images)


def _check_place(out: Path) -> None:
    """AuthorError when what lies at the place of the bundle is something else, which nobody wants to lose."""
    is_bundle = False
    if not out.exists() or out.is_dir():
        return
    if out.is_file():  # and no pipe or device, which would block
        with contextlib.suppress(OSError), out.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TRAILER_SIZE))
            is_bundle = not size or read_trailer(file.read(TRAILER_SIZE)) is not None
    if not is_bundle:
        raise AuthorError(f"{display_path(out)}: is there and is no bundle; name another file, or remove it")


def write(listing: Listing, out: Path, images: Sequence[PackedImage] = ()) -> BundleInfo:
    """Write the archive of a build that was read."""
    manifest = listing.manifest
    head = head_of(listing, images)
    with _beside(out) as file, Archive(file) as archive:
        feed(archive, listing, head)
        archive.end(hashlib.sha256(head).digest())
    return BundleInfo(
        out, f"sha256:{archive.digest.hexdigest()}", out.stat().st_size, manifest.name, manifest.version,
        len(manifest.tasks), listing.counts["files"], listing.counts["blobs"], tuple(images), json.loads(head),
    )  # fmt: skip


def head_of(listing: Listing, images: Sequence[PackedImage]) -> bytes:
    """bundle.json: nothing in it depends on who packs, where and when."""
    manifest = listing.manifest
    return canonical(
        {
            "schema": SCHEMA,
            "kind": "harbor-pack bundle",
            "eval": {"name": manifest.name, "version": manifest.version, "description": manifest.description},
            "image": manifest.image,
            "images": [{"name": one.name, "digest": one.digest} for one in sorted(images, key=lambda one: one.name)],
            "counts": {"tasks": len(manifest.tasks)} | listing.counts,
            "tools": {"built by": manifest.tool, "packed by": f"harbor-pack {__version__}"},
            "probes": manifest.model_dump(mode="json", include={"probes"})["probes"],
            "members": {
                INDEX: _member(_chunks(listing.index)),
                REGISTRY: _member([registry_json(manifest)]),
                DATASET: _member([dataset_toml(manifest)]),
            },
        }
    )


def feed(archive: Archive, listing: Listing, head: bytes) -> None:
    """All members of a bundle, in their order."""
    members: list[tuple[str, Iterable[bytes], int]] = [
        (HEAD, [head], len(head)),
        (DATASET, [dataset := dataset_toml(listing.manifest)], len(dataset)),
        (INDEX, _chunks(listing.index), listing.index.seek(0, os.SEEK_END)),
        (REGISTRY, [registry := registry_json(listing.manifest)], len(registry)),
    ]
    for name, chunks, size in members:
        archive.member(name, chunks, size)
    for number, content in enumerate(listing.each_content()):
        archive.member(content_name(number, content.sha256), _read(listing.tasks, content), content.size)


def _member(chunks: Iterable[bytes]) -> dict[str, Any]:
    digest, size = hashlib.sha256(), 0
    for chunk in chunks:
        digest.update(chunk)
        size += len(chunk)
    return {"sha256": digest.hexdigest(), "size": size}


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    file.flush()
    file.seek(0)
    while chunk := file.read(CHUNK):
        yield chunk


def _read(tasks: Path, content: Content) -> Iterator[bytes]:
    """A content, which must be what it was when it was hashed."""
    path = f"{tasks}/{content.path}"
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            found = stamp_of(os.fstat(handle))
            while found == content.stamp and (chunk := os.read(handle, CHUNK)):
                yield chunk
            if found != content.stamp or stamp_of(os.fstat(handle)) != content.stamp:
                raise MachineError(f"{path}: was changed while it was packed; bundle again")
        finally:
            os.close(handle)
    except OSError as error:
        raise MachineError(f"{path}: cannot be read ({error.strerror})") from error


@contextmanager
def _beside(out: Path) -> Iterator[IO[bytes]]:
    """A new file beside its place, which takes it when all went well."""
    if out.is_dir():
        raise AuthorError(f"{display_path(out)}: is a folder; name a file for the bundle")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(out.parent, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise AuthorError(f"{display_path(out)}: cannot be written ({error.strerror})") from error
    try:
        with folder_beside(out) as room:
            with (room / "bundle").open("xb") as file:
                yield file
            (room / "bundle").chmod(0o644)
            (room / "bundle").replace(out)
    except OSError as error:
        raise MachineError(f"{display_path(out)}: cannot be written ({error.strerror})") from error


class Archive:
    """Writes members, compresses, and hashes what goes in and what comes out; without a file it only hashes."""

    def __init__(self, file: IO[bytes] | None) -> None:
        self.digest = hashlib.sha256()
        self._aside = Aside(self.digest.update)
        self._file = file
        self._checksum = 1
        self._zstd: Any = None
        if file is not None:
            import zstandard

            parameters = zstandard.ZstdCompressionParameters.from_level(
                LEVEL, window_log=WINDOW_LOG, write_checksum=1, write_content_size=0, threads=2
            )
            self._zstd = zstandard.ZstdCompressor(compression_params=parameters).compressobj()

    def member(self, name: str, chunks: Iterable[bytes], size: int) -> None:
        """One member; MachineError when its content is not of this size."""
        self._feed(header(name, size))
        written = 0
        for chunk in chunks:
            written += len(chunk)
            self._feed(chunk)
        if written != size:
            raise MachineError(f"{name}: was changed while it was packed; bundle again")
        if size % BLOCK:
            self._feed(padding(size))

    def __enter__(self) -> Archive:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self._aside.finish()

    def end(self, head: bytes) -> None:
        """End the archive; ``head`` is the digest of bundle.json."""
        self._feed(END)
        self._aside.finish()
        if self._file is not None:
            self._out(self._zstd.flush())
            self._file.write(trailer(self.digest.digest(), head, self._checksum))

    def _feed(self, data: bytes) -> None:
        self._aside.add(data)
        if self._file is not None:
            self._out(self._zstd.compress(data))

    def _out(self, data: bytes) -> None:
        if data and self._file is not None:
            self._checksum = checksum_of(data, self._checksum)
            self._file.write(data)
