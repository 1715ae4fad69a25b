"""What a CLAUDE.md takes in besides its own text, to be packed with it, or to be brought to where it is found.

Which words take in what, the script knows that puts it behind the memory in a sealed sandbox (interceptor/memory.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harbor_tasks.resources import script_module

_script = script_module("memory")
MEMORY: tuple[str, ...] = _script.MEMORY


@dataclass(frozen=True)
class Import:
    """One `@path`: ``path`` below the root, or None when it leads out of it; ``written`` in ``line`` of ``by``."""

    path: str | None
    written: str
    by: str
    line: int
    found: bool


def imported(root: Path, name: str) -> Iterator[Import]:
    """What the memory file ``name`` below ``root`` takes in, each once; what is not there is said, too."""
    todo, seen = [(name, 0)], {name}
    while todo:
        at, depth = todo.pop(0)
        for written, line in _script.imports_of(_text(root / at)) if depth < _script.DEPTH else ():
            path = _script.place_of(written, at)
            if path in seen:
                continue
            seen.add(path)
            inside = _script.is_inside(path)
            there = inside and (root / path).is_file()
            yield Import(path if inside else None, written, at, line, there)
            if there:
                todo.append((path, depth + 1))


def _text(path: Path) -> str:
    try:
        return str(_script.text_of(path)) if path.is_file() else ""  # a pipe would be waited for
    except OSError:
        return ""
