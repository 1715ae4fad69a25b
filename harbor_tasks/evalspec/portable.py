"""Names that every machine takes: what `check`, `bundle` and `pull` refuse alike.

A file system may fold upper and lower case, or the ways to write an accent: two names that differ in nothing else are
one file there. A path may not leave the folder that it is unpacked into, by any system's rules.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator

MAX_NAME_BYTES = 255
MAX_PATH_BYTES = 1024
"""Of a path in a build; a case's own may be shorter by what stands before it there."""
MAX_CASE_PATH_BYTES = 900

_BAD_NAME = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def bad_name(name: str) -> str:
    """Why a name cannot be used, or ""."""
    if (name.isascii() and name.isprintable()) or not _BAD_NAME.search(name):
        return ""
    if any("\ud800" <= ch <= "\udfff" for ch in name):
        return "has bytes in its name that are not UTF-8"
    return "has a control character in its name"


def name_fault(name: str) -> str:
    """Why a file or folder cannot have this name everywhere, or ""."""
    if name in ("", ".", ".."):
        return "has no name"
    fault = bad_name(name)
    if fault:
        return fault
    if "/" in name or "\\" in name:
        return "has a slash or backslash in its name, which other systems take for a folder"
    if _is_longer(name, MAX_NAME_BYTES):
        return f"has a name longer than {MAX_NAME_BYTES} bytes"
    return ""


def path_fault(path: str, limit: int = MAX_PATH_BYTES) -> str:
    """Why a relative path cannot be unpacked, or ""."""
    if path.startswith("/"):
        return "is an absolute path"
    for part in path.split("/"):
        fault = "leads out of its folder" if part == ".." else name_fault(part)
        if fault:
            return fault
    return length_fault(path, limit)


def length_fault(path: str, limit: int = MAX_PATH_BYTES) -> str:
    """Why a path whose parts are good names is too long, or ""."""
    return f"has a path longer than {limit} bytes" if _is_longer(path, limit) else ""


def fold_name(name: str) -> str:
    """A name as a file system sees it that tells neither case nor ways to write an accent apart."""
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())


def twins(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Names of one folder that are one where case is folded: the later one, and the one before it."""
    seen: dict[str, str] = {}
    for name in names:
        first = seen.setdefault(fold_name(name), name)
        if first != name:
            yield name, first


def twin_paths(paths: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Of each path that is a twin of an earlier one, or lies in a folder that is: it, the twin, and its twin."""
    seen: dict[str, str] = {}
    good: set[str] = {""}  # folders that were looked at
    for path in paths:
        for place in (*_new_folders(path, good), path):
            first = seen.setdefault(fold_name(place), place)
            if first != place:
                yield path, place, first
                break
            if place is not path:
                good.add(place)


def _new_folders(path: str, known: Collection[str]) -> list[str]:
    """The folders that a path lies in and that are not known, the outer ones first."""
    found = []
    folder = path.rpartition("/")[0]
    while folder not in known:
        found.append(folder)
        folder = folder.rpartition("/")[0]
    return found[::-1]


def _is_longer(text: str, limit: int) -> bool:
    return len(text) * 4 > limit and len(text.encode("utf-8", "surrogatepass")) > limit
