"""Reads the compressed tar of a bundle: bounded pieces, every byte counted in the digests, nothing kept."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from harbor_tasks.bundles.aside import Aside
from harbor_tasks.bundles.format import (
    BLOCK,
    CHUNK,
    END,
    TRAILER_SIZE,
    WINDOW_LOG,
    checksum_of,
    header,
    read_trailer,
)
from harbor_tasks.bundles.frame import frame_end
from harbor_tasks.errors import AuthorError, MachineError, display_path


class BrokenBundleError(AuthorError):
    """A bundle is not what it should be; ``member`` is what of it is broken, as far as that can be told."""

    def __init__(self, file: Path, member: str, says: str) -> None:
        self.member = member
        place = f"{display_path(file)}: {member}: " if member else f"{display_path(file)}: "
        super().__init__(f"{place}{says}; the bundle is refused")


class _Source:
    """The compressed bytes without the trailer, as a file to read from."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self.left, self.checksum = file, size, 1
        self.aside = Aside(self._count)

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(self.left if size < 0 else min(size, self.left))
        self.left -= len(data)
        self.aside.add(data)
        return data

    def _count(self, data: bytes) -> None:
        self.checksum = checksum_of(data, self.checksum)


class Stream:
    """The members of a bundle, one after the other: a context manager. ``at`` is the member that is read."""

    def __init__(self, path: Path) -> None:
        self.path, self.at = path, ""
        self._hash = hashlib.sha256()
        self._aside = Aside(self._hash.update)
        self._file: IO[bytes] | None = None
        self._source: _Source | None = None
        self.size = 0

    def __enter__(self) -> Stream:
        import zstandard

        try:
            handle = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            self._file = os.fdopen(handle, "rb", buffering=0)
            self.size = os.fstat(handle).st_size
            self._file.seek(max(0, self.size - TRAILER_SIZE))
            found = read_trailer(self._file.read(TRAILER_SIZE))
            self._file.seek(0)
        except IsADirectoryError:
            self.close()
            raise AuthorError(f"{display_path(self.path)}: is a folder, not a bundle") from None
        except OSError as error:
            self.close()
            raise AuthorError(f"{display_path(self.path)}: cannot be read ({error.strerror})") from error
        if found is None:
            self.close()
            raise self.broken("is no bundle, or its end is missing or broken")
        end = frame_end(self._file.fileno(), self.size - TRAILER_SIZE)
        if end != self.size - TRAILER_SIZE:
            self.close()
            raise self.broken(
                "its compression is broken, or not that of a bundle"
                if end is None or end > self.size
                else "bytes follow the end of the archive"
            )
        self.digest, self.head_digest, self._checksum = found
        self._source = _Source(self._file, self.size - TRAILER_SIZE)
        decompressor = zstandard.ZstdDecompressor(max_window_size=1 << WINDOW_LOG)
        self._zstd: Any = decompressor.stream_reader(self._source, read_size=CHUNK, read_across_frames=False)  # type: ignore[arg-type]
        self._fault: type[Exception] = zstandard.ZstdError
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._finish()
        if self._file is not None:
            self._file.close()

    def _finish(self) -> None:
        self._aside.finish()
        if self._source is not None:
            self._source.aside.finish()

    def broken(self, says: str, member: str | None = None) -> BrokenBundleError:
        """The error for this bundle, at the member that is read or another one."""
        return BrokenBundleError(self.path, self.at if member is None else member, says)

    def read(self, size: int) -> bytes:
        """Exactly this many bytes; BrokenBundleError when they are not there."""
        try:
            data: bytes = self._zstd.read(size)
            if len(data) < size:
                parts = [data]
                left = size - len(data)
                while left and (more := self._zstd.read(left)):
                    parts.append(more)
                    left -= len(more)
                data = b"".join(parts)
        except self._fault as error:
            raise self.broken(f"cannot be decompressed ({error})") from None
        except OSError as error:
            raise MachineError(f"{display_path(self.path)}: cannot be read ({error.strerror})") from error
        self._aside.add(data)
        if len(data) < size:
            raise self.broken("ends too early")
        return data

    def begin(self, name: str, size: int | None = None, limit: int | None = None) -> int:
        """Go on to the member of this name; its size, which must be this one, or at most ``limit``."""
        self.at = name
        found = self.read(BLOCK)
        if size is None:
            size = _size_of(found)
        if found != header(name, size):
            raise self.broken(f"another member stands in its place: {describe(found)}")
        if limit is not None and size > limit:
            raise self.broken(f"is larger than the limit of {limit} bytes")
        return size

    def chunks(self, size: int) -> Iterator[bytes]:
        """The content of the member, and over its padding, which must be empty."""
        left = size
        while left:
            chunk = self.read(min(CHUNK, left))
            left -= len(chunk)
            yield chunk
        self.skip_padding(size)

    def content(self, size: int) -> bytes:
        """The content of a small member as a whole."""
        if not size:
            return b""
        data = self.read(size)
        self.skip_padding(size)
        return data

    def skip_padding(self, size: int) -> None:
        """Over what fills the last block of a content of this size."""
        rest = -size % BLOCK
        if rest and self.read(rest).strip(b"\0"):
            raise self.broken("bytes follow its end")

    def end(self) -> str:
        """The end of the archive, after which there must be nothing; its digest in hex."""
        self.at = ""
        if self.read(len(END)) != END:
            raise self.broken("more members follow than its list names")
        try:
            more = self._zstd.read(1)
        except self._fault as error:
            raise self.broken(f"cannot be decompressed ({error})") from None
        if more or self._source is None or self._source.left:
            raise self.broken("bytes follow the end of the archive")
        self._finish()
        if self._hash.digest() != self.digest or self._source.checksum != self._checksum:
            raise self.broken("its bytes are not those that its trailer was written for")
        return self._hash.hexdigest()


def describe(block: bytes) -> str:
    """What a tar header is of, for a message."""
    import tarfile

    try:
        member = tarfile.TarInfo.frombuf(block, "utf-8", "backslashreplace")
    except tarfile.HeaderError as error:
        return f"no tar header ({error})"
    kinds = {
        tarfile.SYMTYPE: "a link", tarfile.LNKTYPE: "a hard link", tarfile.CHRTYPE: "a device",
        tarfile.BLKTYPE: "a device", tarfile.FIFOTYPE: "a pipe", tarfile.DIRTYPE: "a folder",
    }  # fmt: skip
    what = kinds.get(member.type, "a file" if member.isreg() else "a member of an unknown type")
    return f"{what} named {member.name!r}"


def _size_of(block: bytes) -> int:
    """The size in a tar header; what it means is settled when the header is compared as a whole."""
    field = block[124:136]
    if field[:1] == b"\x80":
        return int.from_bytes(field[1:], "big")
    try:
        return int(field.rstrip(b"\0 ") or b"0", 8)
    except ValueError:
        return 0
