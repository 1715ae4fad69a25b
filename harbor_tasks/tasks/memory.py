"""What a CLAUDE.md takes in besides its own text: `@path` anywhere but in code, as Claude Code reads it.

A path is taken from the folder of the file that names it. What is taken in may take in more, five files deep. In the
sandbox the agent program finds its memory in a place of its own, so what it takes in has to be brought there, too
(here for this machine, in ``templates/task/environment/setup`` for a sealed sandbox).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DEPTH = 5
MEMORY = ("CLAUDE.md", ".claude/CLAUDE.md")
_CODE = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1|\Z)|(`+)[^`\n]+?\2", re.DOTALL | re.MULTILINE)
_IMPORT = re.compile(r"(?<!\S)@((?:[^\s\\]|\\ )+)")
_BYTES = 1 << 20


@dataclass(frozen=True)
class Import:
    """One `@path`: ``path`` below the root, or None when it leads out of it; ``written`` in ``line`` of ``by``."""

    path: str | None
    written: str
    by: str
    line: int
    found: bool


def imports_of(text: str) -> Iterator[tuple[str, int]]:
    """Each path that a text takes in, with its line."""
    plain = _CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    for found in _IMPORT.finditer(plain):
        yield found[1].replace("\\ ", " "), plain.count("\n", 0, found.start()) + 1


def imported(root: Path, name: str) -> Iterator[Import]:
    """What the memory file ``name`` below ``root`` takes in, each once; what is not there is said, too."""
    todo, seen = [(name, 0)], {name}
    while todo:
        at, depth = todo.pop(0)
        for written, line in imports_of(_text(root / at)) if depth < DEPTH else ():
            path = posixpath.normpath(posixpath.join(posixpath.dirname(at), written))
            inside = not path.startswith(("../", "/", "~")) and path not in ("..", ".")
            there = inside and (root / path).is_file()
            if path in seen:
                continue
            seen.add(path)
            yield Import(path if inside else None, written, at, line, there)
            if there:
                todo.append((path, depth + 1))


def _text(path: Path) -> str:
    try:
        if not path.is_file():  # a pipe would be waited for
            return ""
        with path.open("rb") as file:
            return file.read(_BYTES).decode("utf-8-sig", "replace")
    except OSError:
        return ""
