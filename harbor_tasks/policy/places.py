"""Places in the author's file: errors say which entry, on which line, and the nearest word that was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec.keys import OWN_PREFIX
from harbor_tasks.evalspec.reader import Document


@dataclass(frozen=True)
class Place:
    """One entry of a document, by the keys that lead to it."""

    document: Document
    problems: Problems
    keys: tuple[str | int, ...] = ()

    def at(self, *keys: str | int) -> Place:
        """The entry below this one."""
        return replace(self, keys=(*self.keys, *keys))

    @property
    def line(self) -> int | None:
        """Its line, counted from 1."""
        return self.document.line(*self.keys)

    @property
    def label(self) -> str:
        """How messages name it: ``handlers[0].env_checks.JIRA_SERVER``."""
        text = ""
        for key in self.keys:
            text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else key
        return text or "the file"

    def error(self, message: str, hint: str = "", code: str = "bad-handlers") -> None:
        """An error; ``message`` follows the entry's name."""
        self.problems.error(f"{self.label} {message}", self.document.path, self.line, hint=hint, code=code)

    def warn(self, message: str, hint: str = "", code: str = "") -> None:
        """A warning; ``message`` follows the entry's name."""
        self.problems.warn(f"{self.label} {message}", self.document.path, self.line, hint=hint, code=code)

    def unknown_keys(self, data: dict[str, Any], known: Iterable[str]) -> None:
        """An error for each key that is not known, with the one that was probably meant.

        At the top of a file, keys that begin as the author's own (`x-`, for YAML anchors) are left alone.
        """
        known = tuple(known)
        for key in data:
            if key not in known and not (not self.keys and key.startswith(OWN_PREFIX)):
                self.at(key).error("is an unknown key", meant(key, known), "unknown-key")


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant, or None."""
    folded = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower(), folded, 1, cutoff=0.6)
    return folded[found[0]] if found else None


def meant(word: str, known: Iterable[str]) -> str:
    """A hint: the word that was probably meant, else all of them."""
    known = tuple(known)
    near = nearest(word, known)
    return f"did you mean {near!r}?" if near else f"known are {', '.join(known)}"


def kind_of(value: Any) -> str:
    """What a value is, in the author's words."""
    if value is None or value in ([], {}):
        return "empty"
    if isinstance(value, bool):
        return "true or false"
    names = ((str, "a text"), (int | float, "a number"), (list, "a list"), (dict, "a mapping"))
    return next((name for kind, name in names if isinstance(value, kind)), type(value).__name__)
