#!/usr/bin/env python3
"""What a CLAUDE.md takes in besides its own text: `@path` anywhere but in code, as Claude Code reads it.

    memory.py WORKSPACE FILE

Puts what the workspace's memory takes in behind it in FILE, where an agent program finds it that takes in nothing from
elsewhere unasked; an empty FILE is removed. A path is taken from the folder of the file that names it; what is taken in
may take in more, five files deep; links that leave the workspace are not followed.

The text of this script is part of a task's `setup`; what is packed is found by its functions, too (tasks/memory.py).
Standard library only, Python 3.8 or newer.
"""

import os
import posixpath
import re
import sys
from typing import Iterator, Tuple

MEMORY = ("CLAUDE.md", ".claude/CLAUDE.md")
DEPTH = 5
_CODE = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1|\Z)|(`+)[^`\n]+?\2", re.DOTALL | re.MULTILINE)
_IMPORT = re.compile(r"(?<!\S)@((?:[^\s\\]|\\ )+)")
_BYTES = 1 << 20


def imports_of(text: str) -> Iterator[Tuple[str, int]]:
    """Each path that a text takes in, with its line."""
    plain = _CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    for found in _IMPORT.finditer(plain):
        yield found[1].replace("\\ ", " "), plain.count("\n", 0, found.start()) + 1


def place_of(written: str, by: str) -> str:
    """The path that is ``written`` in the file ``by``, from the folder of the project."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(by), written))


def is_inside(path: str) -> bool:
    """Whether such a path stays in the project."""
    return not path.startswith(("../", "/", "~")) and path not in ("..", ".")


def text_of(path: str) -> str:
    """The text of a memory file, as much of it as is read."""
    with open(path, "rb") as file:
        return file.read(_BYTES).decode("utf-8-sig", "replace")


def main(workspace: str, target: str) -> None:
    root = os.path.realpath(workspace)
    todo, seen = [(name, 0) for name in MEMORY], set()
    with open(target, "a", encoding="utf-8") as out:
        while todo:
            name, depth = todo.pop(0)
            source = os.path.realpath(os.path.join(root, name))
            if name in seen or not source.startswith(root + os.sep) or not os.path.isfile(source):
                continue
            seen.add(name)
            text = text_of(source)
            if name not in MEMORY:
                out.write("\n\nContents of %s:\n\n%s" % (name, text))
            places = [place_of(written, name) for written, _line in imports_of(text)] if depth < DEPTH else []
            todo += [(place, depth + 1) for place in places if is_inside(place)]
    if not os.path.getsize(target):
        os.unlink(target)


if __name__ == "__main__":
    main(*sys.argv[1:])
