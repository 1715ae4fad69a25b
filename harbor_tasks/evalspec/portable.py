"""Names that every machine takes: what `check`, `bundle` and `pull` refuse alike.

A file system may fold upper and lower case, or the ways to write an accent: two names that differ in nothing else are
one file there. A path may not leave the folder that it is unpacked into, by any system's rules.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator

from harbor_tasks.evalspec.casefiles import bad_name

MAX_NAME_BYTES = 255
MAX_PATH_BYTES = 1024


def fold_name(name: str) -> str:
    """A name as a file system sees it that tells neither case nor ways to write an accent apart."""
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())


def name_fault(name: str) -> str:
    """Why a file or folder cannot have this name everywhere, or ""."""
    if name in ("", ".", ".."):
        return "is no name"
    fault = bad_name(name)
    if fault:
        return fault
    if "/" in name or "\\" in name:
        return "has a slash or backslash in its name, which other systems take for a folder"
    if len(name) * 4 > MAX_NAME_BYTES and len(name.encode("utf-8")) > MAX_NAME_BYTES:
        return f"has a name longer than {MAX_NAME_BYTES} bytes"
    return ""


def path_fault(path: str) -> str:
    """Why a relative path cannot be unpacked, or ""."""
    if path.startswith("/"):
        return "is an absolute path"
    for part in path.split("/"):
        fault = name_fault(part)
        if fault:
            return fault
    if len(path) * 4 > MAX_PATH_BYTES and len(path.encode("utf-8", "surrogatepass")) > MAX_PATH_BYTES:
        return f"has a path longer than {MAX_PATH_BYTES} bytes"
    return ""


def twins(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Names of one folder that are one where case is folded: the later one, and the one before it."""
    seen: dict[str, str] = {}
    for name in names:
        first = seen.setdefault(fold_name(name), name)
        if first != name:
            yield name, first
