"""The zstd frame around a bundle's tar, seen from outside: one frame of the form that `bundle` writes (RFC 8878)."""

from __future__ import annotations

import os

from harbor_tasks.bundles.format import WINDOW_LOG

HEADER = b"\x28\xb5\x2f\xfd" + bytes([0b00000100, (WINDOW_LOG - 10) << 3])
"""Magic; a checksum, no size, no dictionary; the window."""
_CHECKSUM_BYTES = 4
_RLE, _RESERVED = 1, 3


def frame_end(handle: int, limit: int) -> int | None:
    """Where the frame at the start of a file ends; None when there is none of this form within ``limit`` bytes.

    Only the headers of its blocks are read. A decompressor would not say: it takes what follows for another frame.
    """
    if os.pread(handle, len(HEADER), 0) != HEADER:
        return None
    at = len(HEADER)
    while at + 3 <= limit:
        header = int.from_bytes(os.pread(handle, 3, at), "little")
        is_last, kind, size = header & 1, header >> 1 & 3, header >> 3
        if kind == _RESERVED:
            return None
        at += 3 + (1 if kind == _RLE else size)
        if is_last:
            return at + _CHECKSUM_BYTES
    return None
