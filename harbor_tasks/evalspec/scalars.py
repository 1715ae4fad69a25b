"""What scalars mean: typed as they were written, or their source text; and characters that PyYAML would misread."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

TAG = "tag:yaml.org,2002:"
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?", re.ASCII)
TYPES: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "bool": (bool,), "null": (type(None),)}
_WORDS = {"true": True, "false": False, "null": None, "": None}
# Characters that YAML 1.2 and JSON take as they are, but PyYAML as a line break or as an error.
_SPECIAL = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


class ReadError(Exception):
    """One fault of a file: what, on which line (from 1), what to do, and a stable word for programs."""

    def __init__(self, message: str, line: int | None, hint: str = "", code: str = "yaml") -> None:
        super().__init__(message)
        self.message, self.line, self.hint, self.code = message, line, hint, code


@dataclass(frozen=True, slots=True)
class Mode:
    """How scalars are read at one place: as source text, or typed; and which keys below differ."""

    texts: bool = False
    keys: dict[str, Mode] = field(default_factory=dict)
    may_be_null: bool = False

    TYPED: ClassVar[Mode]
    TEXTS: ClassVar[Mode]

    @classmethod
    def under(cls, paths: tuple[str, ...], *, texts: bool) -> Mode:
        """The mode of a whole file; a path names keys with dots between, `*` is any key and each item of a list.

        What a path names by a word is null when nothing stands there; everything below it, and what `*` names, is text.
        """
        if texts or not paths:
            return cls.TEXTS if texts else cls.TYPED
        root = cls(False, {})
        for path in paths:
            at = root
            *above, last = path.split(".")
            for key in above:
                at = at.keys.setdefault(key, cls(False, {}))
            at.keys[last] = cls.TEXTS if last == "*" else cls(True, {"*": cls.TEXTS}, may_be_null=True)
        return root

    def below(self, key: str) -> Mode:
        """The mode of the value of this key."""
        if not self.keys:
            return self
        return self.keys.get(key) or self.keys.get("*") or Mode.TYPED

    def read(self, text: str, value: Any) -> Any:
        """The source text or the typed value of a scalar."""
        return text if self.texts and not (self.may_be_null and value is None) else value


Mode.TYPED = Mode()
Mode.TEXTS = Mode(texts=True)


def typed_number(text: str) -> int | float:
    """A number in JSON's form; raises ReadError (without a line) when it cannot be held."""
    if text.lstrip("-").isdigit():
        if len(text) > 4000:
            raise ReadError("holds a number of more than 4000 digits", None, "put it in quotes", "number")
        return int(text)
    value = float(text)
    if math.isinf(value):
        raise ReadError(f"holds the number {text[:40]}, which is out of range", None, "put it in quotes", "number")
    return value


def typed_at(text: str, line: int) -> Any:
    """What a plain scalar on this line means."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "-0123456789" or not _NUMBER.fullmatch(text):
        return text
    try:
        return typed_number(text)
    except ReadError as fault:
        raise ReadError(fault.message, line, fault.hint, fault.code) from None


def tagged(tag: str, text: str, line: int) -> Any:
    """What a scalar with a tag means: the core tags only."""
    kind = tag.removeprefix(TAG)
    if kind in ("str", "!"):
        return text
    if kind not in TYPES:
        raise tag_fault(tag, line)
    value = typed_at(text, line)
    if not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind != "bool"):
        raise ReadError(f"{text[:40]!r} is not a value for the tag !!{kind}", line, "remove the tag", "yaml-tag")
    return float(value) if kind == "float" and isinstance(value, int) else value


def tag_fault(tag: str, line: int) -> ReadError:
    shown = "!!" + tag.removeprefix(TAG) if tag.startswith(TAG) else tag
    return ReadError(f"holds the tag {shown[:60]}", line, "only plain data is read; remove the tag", "yaml-tag")


def hide_special(text: str) -> tuple[str, Callable[[str], str] | None]:
    """The text with characters that PyYAML would misread replaced by unused private ones, and the way back."""
    found = sorted(set(_SPECIAL.findall(text)))
    if not found:
        return text, None
    used = set(text)
    free = (chr(code) for code in range(0xE000, 0xF900) if chr(code) not in used)
    there = dict(zip(map(ord, found), free, strict=False))
    back = {ord(private): chr(special) for special, private in there.items()}
    return text.translate(there), lambda part: part.translate(back)
