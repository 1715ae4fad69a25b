"""The form of a bundle: one tar in one zstd frame, the same bytes for the same eval on any machine.

Members, in this order, all regular files of mode 0644, owner 0, time 0::

    bundle.json         what is packed: the head
    dataset.toml        Harbor's manifest of the set, with the digest of every task
    files.jsonl         one line for each file and empty folder, sorted by the parts of their paths
    registry.json       Harbor's registry, with paths from the unpacked folder
    sha256/NNNNNNNN-HEX the contents, each once, in the order in which files.jsonl first names them

After the frame stands a trailer (a skippable frame, which zstd passes over): the digests of the archive and of its
head, and a checksum of the compressed bytes. The bundle's identity is the SHA-256 of the tar.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCHEMA = 1
HEAD, DATASET, INDEX, REGISTRY = "bundle.json", "dataset.toml", "files.jsonl", "registry.json"
CONTENT = "sha256/"
SUFFIX = ".hpb"
BLOCK = 512
CHUNK = 1 << 20
END = bytes(2 * BLOCK)
WINDOW_LOG = 21
"""Of the compression: what unpacking needs in memory, whatever the bundle's size."""
_SKIPPABLE = 0x184D2A5B
_TRAILER = struct.Struct("<II8s32s32sI")
TRAILER_SIZE = _TRAILER.size
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode  # made once: many thousand lines
_MARK = b"hp-bndl1"


@dataclass(frozen=True)
class PackedImage:
    """An image that the tasks run in: its content tag (build.json's ``image``) and the digest of its configuration.

    ``digest`` is ``sha256:<hex>``, the Id that an engine shows, the same on every engine.
    """

    name: str
    digest: str


@dataclass(frozen=True)
class BundleInfo:
    """A bundle: its file, its identity (``sha256:<hex>`` of the uncompressed archive), its size on disk in bytes.

    ``manifest`` is the content of bundle.json; ``files`` are counted without empty folders, ``blobs`` are distinct
    contents.
    """

    file: Path
    digest: str
    size: int
    eval: str
    version: str | None
    tasks: int
    files: int
    blobs: int
    images: tuple[PackedImage, ...]
    manifest: dict[str, Any] = field(repr=False)

    def as_json(self) -> dict[str, Any]:
        """The bundle as plain data, without its manifest."""
        return {
            "file": str(self.file), "digest": self.digest, "size": self.size, "eval": self.eval,
            "version": self.version, "tasks": self.tasks, "files": self.files, "blobs": self.blobs,
            "images": [{"name": image.name, "digest": image.digest} for image in self.images],
        }  # fmt: skip


@dataclass(frozen=True)
class Limits:
    """What a bundle may hold at most; what goes beyond is refused before it is written."""

    files: int = 5_000_000
    """Files and empty folders."""
    total: int = 256 << 30
    """Bytes of all files as they are laid out, copies counted."""
    head: int = 16 << 20
    """Bytes of bundle.json."""
    index: int = 2 << 30
    """Bytes of files.jsonl, which is kept on disk."""
    held: int = 128 << 20
    """Bytes of dataset.toml, registry.json, build.json, each: they are held in memory."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of files.jsonl: a file, or an empty folder (``blob`` -1, no digest). ``blob`` counts contents from 0."""

    path: str
    mode: int
    size: int
    sha256: str
    blob: int

    @property
    def is_folder(self) -> bool:
        """Whether this is an empty folder."""
        return self.blob < 0

    def line(self) -> bytes:
        """The one form of this line."""
        data: dict[str, Any] = {"path": self.path, "mode": f"{self.mode:04o}"}
        if not self.is_folder:
            data |= {"size": self.size, "sha256": self.sha256, "blob": self.blob}
        return _encode(data).encode("utf-8") + b"\n"


def canonical(data: Any) -> bytes:
    """JSON in one form."""
    return (json.dumps(data, indent=1, ensure_ascii=False, sort_keys=True) + "\n").encode("utf-8")


def content_name(blob: int, sha256: str) -> str:
    """The member that holds a content."""
    return f"{CONTENT}{blob:08d}-{sha256}"


def header(name: str, size: int) -> bytes:
    """The tar header of a member: everything in it but name and size is the same for all."""
    digits = b"%011o\0" % size if size < 8 << 30 else b"\x80" + size.to_bytes(11, "big")
    owner = b"%07o\0" % 0
    start = name.encode("ascii").ljust(100, b"\0") + b"%07o\0" % 0o644 + owner + owner + digits + b"%011o\0" % 0
    end = b"0" + bytes(100) + b"ustar\x00" + b"%02d" % 0 + bytes(64) + owner + owner + bytes(167)
    checksum = sum(start) + sum(end) + 8 * ord(" ")
    return start + b"%06o\0 " % checksum + end


def padding(size: int) -> bytes:
    """What fills a member up to whole blocks."""
    return bytes(-size % BLOCK)


def trailer(digest: bytes, head: bytes, checksum: int) -> bytes:
    """The trailer: digests of the archive and of bundle.json, and the checksum (adler32) of the compressed bytes."""
    return _TRAILER.pack(_SKIPPABLE, TRAILER_SIZE - 8, _MARK, digest, head, checksum)


def read_trailer(data: bytes) -> tuple[bytes, bytes, int] | None:
    """The digests and the checksum of a trailer; None when it is none."""
    if len(data) != TRAILER_SIZE:
        return None
    magic, size, mark, digest, head, checksum = _TRAILER.unpack(data)
    if (magic, size, mark) != (_SKIPPABLE, TRAILER_SIZE - 8, _MARK):
        return None
    return digest, head, checksum


def checksum_of(data: bytes | memoryview, before: int = 1) -> int:
    """The checksum of the compressed bytes, which sees every single byte that changed."""
    return zlib.adler32(data, before)
