"""Packs a build: lists and hashes it, then writes each distinct content once into one compressed archive."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from harbor_tasks import __version__
from harbor_tasks.bundles.format import (
    BLOCK,
    CHUNK,
    DATASET,
    END,
    HEAD,
    INDEX,
    REGISTRY,
    SCHEMA,
    WINDOW_LOG,
    BundleInfo,
    Entry,
    PackedImage,
    canonical,
    checksum_of,
    content_name,
    header,
    padding,
    trailer,
)
from harbor_tasks.bundles.harbor_set import dataset_toml, registry_json
from harbor_tasks.bundles.listing import list_build, stamp_of
from harbor_tasks.errors import AuthorError, MachineError
from harbor_tasks.tasks.manifest import BuildManifest, read_manifest

LEVEL = 3
Say = Callable[[str], None]


def pack(tasks: Path, out: Path, *, images: Sequence[PackedImage] = (), say: Say | None = None) -> BundleInfo:
    """Write the bundle of a folder of built tasks to ``out``, which is replaced when it is complete.

    ``say`` gets a line for what is worth knowing. AuthorError for what cannot be packed, by path; MachineError when
    the disk or a changing file is in the way.
    """
    manifest = read_manifest(tasks)
    say = say or (lambda _line: None)
    with tempfile.TemporaryFile(prefix="hp-") as index, tempfile.TemporaryFile(prefix="hp-") as blobs:
        counts = _list(tasks, manifest, index, blobs)
        index_digest, index_size = _digest(index)
        registry, dataset = registry_json(manifest), dataset_toml(manifest)
        head = canonical(
            _head(manifest, images, counts)
            | {
                "members": {
                    INDEX: {"sha256": index_digest, "size": index_size},
                    REGISTRY: {"sha256": hashlib.sha256(registry).hexdigest(), "size": len(registry)},
                    DATASET: {"sha256": hashlib.sha256(dataset).hexdigest(), "size": len(dataset)},
                }
            }
        )
        with _beside(out) as file:
            writer = _Writer(file)
            writer.member(HEAD, [head], len(head))
            writer.member(DATASET, [dataset], len(dataset))
            writer.member(INDEX, _chunks(index), index_size)
            writer.member(REGISTRY, [registry], len(registry))
            blobs.seek(0)
            for number, line in enumerate(blobs):
                path, digest, *stamp = line.decode("utf-8").rstrip("\n").split("\0")
                size, changed, inode = map(int, stamp)
                content = _content(tasks / path, (size, changed, inode))
                writer.member(content_name(number, digest), content, size)
            digest = writer.close(hashlib.sha256(head).digest())
    data = json.loads(head)
    return BundleInfo(
        out, f"sha256:{digest}", out.stat().st_size, manifest.name, manifest.version, len(manifest.tasks),
        counts["files"], counts["blobs"], tuple(images), data,
    )  # fmt: skip


def _head(manifest: BuildManifest, images: Sequence[PackedImage], counts: dict[str, int]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "kind": "harbor-pack bundle",
        "eval": {"name": manifest.name, "version": manifest.version, "description": manifest.description},
        "image": manifest.image,
        "images": [{"name": one.name, "digest": one.digest} for one in sorted(images, key=lambda one: one.name)],
        "counts": {"tasks": len(manifest.tasks)} | counts,
        "tools": {"built by": manifest.tool, "packed by": f"harbor-pack {__version__}"},
        "probes": manifest.model_dump(mode="json", include={"probes"})["probes"],
    }


def _list(tasks: Path, manifest: BuildManifest, index: IO[bytes], blobs: IO[bytes]) -> dict[str, int]:
    seen: dict[bytes, int] = {}
    counts = {"files": 0, "folders": 0, "bytes": 0, "blobs": 0}
    for found in list_build(tasks, manifest):
        if not found.sha256:
            counts["folders"] += 1
            index.write(Entry(found.path, found.mode, 0, "", -1).line())
            continue
        key = bytes.fromhex(found.sha256)
        number = seen.setdefault(key, len(seen))
        if number == counts["blobs"]:
            counts["blobs"] += 1
            stamp = "\0".join(map(str, found.stamp))
            blobs.write(f"{found.path}\0{found.sha256}\0{stamp}\n".encode())
        counts["files"] += 1
        counts["bytes"] += found.size
        index.write(Entry(found.path, found.mode, found.size, found.sha256, number).line())
    return counts


def _digest(file: IO[bytes]) -> tuple[str, int]:
    file.flush()
    file.seek(0)
    digest = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    return digest, file.tell()


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    file.seek(0)
    while chunk := file.read(CHUNK):
        yield chunk


def _content(path: Path, stamp: tuple[int, int, int]) -> Iterator[bytes]:
    try:
        with path.open("rb", buffering=0) as file:
            if stamp_of(os.fstat(file.fileno())) != stamp:
                raise MachineError(f"{path}: was changed while it was packed; bundle again")
            while chunk := file.read(CHUNK):
                yield chunk
            if stamp_of(os.fstat(file.fileno())) != stamp:
                raise MachineError(f"{path}: was changed while it was packed; bundle again")
    except OSError as error:
        raise MachineError(f"{path}: cannot be read ({error.strerror})") from error


@contextmanager
def _beside(out: Path) -> Iterator[IO[bytes]]:
    """A new file beside its place, which takes it when all went well."""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{out.name}-", dir=out.parent)
    except OSError as error:
        raise AuthorError(f"{out}: cannot be written there ({error.strerror})") from error
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        Path(name).chmod(0o644)
        Path(name).replace(out)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


class _Writer:
    """Writes members, compresses, and hashes what goes in and what comes out."""

    def __init__(self, file: IO[bytes]) -> None:
        import zstandard

        parameters = zstandard.ZstdCompressionParameters.from_level(
            LEVEL, window_log=WINDOW_LOG, write_checksum=1, write_content_size=0, threads=2
        )
        self._file = file
        self._zstd = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
        self._hash = hashlib.sha256()
        self._checksum = 1

    def member(self, name: str, chunks: Iterator[bytes] | list[bytes], size: int) -> None:
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

    def close(self, head: bytes) -> str:
        """End the archive; its digest in hex."""
        self._feed(END)
        self._out(self._zstd.flush())
        self._file.write(trailer(self._hash.digest(), head, self._checksum))
        return self._hash.hexdigest()

    def _feed(self, data: bytes) -> None:
        self._hash.update(data)
        self._out(self._zstd.compress(data))

    def _out(self, data: bytes) -> None:
        if data:
            self._checksum = checksum_of(data, self._checksum)
            self._file.write(data)
