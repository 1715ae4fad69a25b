"""A strict reader of YAML and JSON: every value keeps its line, every fault of the file is a Problem.

Scalars mean what was typed (DESIGN.md, eval.yaml): plain `true`, `false`, `null` and numbers in JSON's form are typed,
an empty value is null, anything else is text, and so is every key. Where ``texts`` is asked for, a scalar is its source
text.
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec.compose import MAX_DEPTH, Composer
from harbor_tasks.evalspec.scalars import Mode, ReadError, typed_number

MAX_BYTES = 16 * 1024 * 1024

_NOT_ALLOWED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f]")
_SURROGATES = re.compile(r"\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})", re.IGNORECASE)
_LONE_SURROGATE = re.compile(r"\\ud[89a-f]", re.IGNORECASE)


class Places(NamedTuple):
    """Where the parts of some data stand: lines of keys and items, and texts that are blocks, by the container's id."""

    data: Any
    lines: dict[int, Any]
    blocks: set[tuple[int, Any]]


@dataclass(frozen=True, eq=False)
class Document:
    """What a file holds: plain data, and the line of each key and item."""

    path: Path
    data: Any
    _places: Callable[[], Places] = field(repr=False)

    def line(self, *keys: str | int) -> int | None:
        """The line of this key or item, or of the nearest one above it; counted from 1."""
        return self._find(keys)[0]

    def line_of_text(self, row: int, *keys: str | int) -> int | None:
        """The line of a row (from 1) of the text at this key; the key's line unless the text is a `|` block."""
        line, is_block = self._find(keys)
        return line + row if line is not None and is_block else line

    def _find(self, keys: tuple[str | int, ...]) -> tuple[int | None, bool]:
        node, lines, blocks = self._places()
        line = 1 if node is not None else None
        is_block = False
        for key in keys:
            try:
                line = lines[id(node)][key]
                is_block = (id(node), key) in blocks
                node = node[key]
            except (TypeError, LookupError):
                return line, False
        return line, is_block


def load_yaml(
    path: Path, problems: Problems, *, texts: bool = False, text_under: tuple[str, ...] = (), case: str | None = None,
    json_only: bool = False,
) -> Document | None:  # fmt: skip
    """Read a file; None when it cannot be used (the reason is in ``problems``). See `parse_yaml`."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            problems.error("is not a regular file", path, case=case, code="special-file")
            return None
        if status.st_size > MAX_BYTES:
            message = f"is larger than {MAX_BYTES // 2**20} MiB"
            problems.error(message, path, case=case, hint="put large data into files/", code="too-large")
            return None
        content = path.read_bytes()
    except OSError as error:
        problems.error(f"cannot be read: {error.strerror or error}", path, case=case, code="unreadable")
        return None
    return parse_yaml(content, path, problems, texts=texts, text_under=text_under, case=case, json_only=json_only)


def parse_yaml(
    text: str | bytes, path: Path, problems: Problems, *, texts: bool = False, text_under: tuple[str, ...] = (),
    case: str | None = None, json_only: bool = False,
) -> Document | None:  # fmt: skip
    """Read a text that came from ``path``: YAML, or JSON as a part of it; ``json_only``: JSON, or nothing at all.

    With ``texts`` every scalar is its source text ("" for an empty one); ``text_under`` names the keys below which that
    holds, as `("case_overrides", "probes.*.env")`. A document with duplicate keys is returned (the error is in
    ``problems``), so that the rest of it can be checked; with any other fault the result is None.
    """

    faults: list[ReadError] = []
    document = _read(text, path, Mode.under(text_under, texts=texts), faults, json_only=json_only)
    for fault in faults:
        problems.error(fault.message, path, fault.line, case=case, hint=fault.hint, code=fault.code)
    return document


def _read(
    text: str | bytes, path: Path, mode: Mode, faults: list[ReadError], *, json_only: bool
) -> Document | None:  # fmt: skip
    try:
        content = _decode(text)
    except ReadError as fault:
        faults.append(fault)
        return None
    if content.lstrip(" \t\r\n")[:1] in ("{", "[", '"'):
        data = _from_json(content, mode)
        if data is not _NOT_JSON:
            return Document(path, data, _PlacesInJson(content, path.name))
    not_json = _json_fault(content) if json_only and content.strip() else None
    if not_json is not None:
        faults.append(not_json)
        return None
    composer = Composer(content, path.name, mode)
    try:
        data = composer.compose()
    except ReadError as fault:
        faults.extend([*composer.duplicates, fault])
        return None
    faults.extend(composer.duplicates)
    places = Places(data, composer.lines, composer.blocks)
    return Document(path, data, lambda: places)


def _decode(text: str | bytes) -> str:
    """The text of a file: UTF-8, with or without a byte order mark, without control characters."""
    if isinstance(text, bytes):
        if text[:2] in (b"\xff\xfe", b"\xfe\xff") or text[:4] == b"\x00\x00\xfe\xff":
            raise ReadError("is encoded in UTF-16 or UTF-32, not in UTF-8", None, "save the file as UTF-8", "encoding")
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            message = f"is not encoded in UTF-8 (byte 0x{error.object[error.start]:02x})"
            raise ReadError(message, line, "save the file as UTF-8", "encoding") from None
    text = text.removeprefix("\ufeff")
    bad = _NOT_ALLOWED.search(text)
    if bad:
        line = text.count("\n", 0, bad.start()) + 1
        if bad[0] == "\0" and text.count("\0") * 3 > len(text):
            raise ReadError("is encoded in UTF-16 or UTF-32, not in UTF-8", line, "save the file as UTF-8", "encoding")
        name = "a NUL" if bad[0] == "\0" else f"the control character 0x{ord(bad[0]):02x}"
        raise ReadError(f"holds {name}", line, r'write an escape in double quotes, as "\x1b"', "control-character")
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            line = text.count("\n", 0, error.start) + 1
            raise ReadError("holds half of a surrogate pair", line, "", "encoding") from None
    return text


class _NotJsonError(Exception):
    """The text is not JSON, or is JSON with a fault that the YAML reader reports with its line."""


_NOT_JSON = object()


class _Number(str):
    """A number as it was written."""

    __slots__ = ()


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        raise _NotJsonError
    return data


def _constant(_: str) -> Any:
    raise _NotJsonError


def _from_json(text: str, mode: Mode) -> Any:
    """The data, if the text is JSON without a fault; else _NOT_JSON.

    JSON is read as such because PyYAML refuses some of it: escaped surrogate pairs, long keys, DEL.
    """
    number = typed_number if mode is Mode.TYPED else _Number
    try:
        data = json.loads(
            text, object_pairs_hook=_pairs, parse_constant=_constant, parse_int=number, parse_float=number
        )
        if _LONE_SURROGATE.search(text):
            json.dumps(data, ensure_ascii=False).encode()
    except (_NotJsonError, ValueError, RecursionError, ReadError):
        return _NOT_JSON
    if text.count("[") + text.count("{") > MAX_DEPTH and _too_deep(data):
        return _NOT_JSON
    return data if mode is Mode.TYPED else _in_mode(data, mode)


def _json_fault(text: str) -> ReadError | None:
    """Why a text is no JSON, which other readers of the file would not take for the same as we would; None when it is.

    What else is wrong with it is found when it is read as YAML.
    """
    hint = "write it as JSON, or rename the file to input.yaml"
    try:
        json.loads(text, parse_constant=_constant)
    except json.JSONDecodeError as error:
        said = f"{error.msg[:1].lower()}{error.msg[1:]} at column {error.colno}"
        return ReadError(f"is not valid JSON: {said}", error.lineno, hint, "json-syntax")
    except _NotJsonError:
        line = next(n for n, row in enumerate(text.split("\n"), 1) if re.search("NaN|Infinity", row))
        return ReadError("is not valid JSON: it holds NaN or Infinity", line, hint, "json-syntax")
    except (ValueError, RecursionError):
        return None
    return None


def _too_deep(data: Any) -> bool:
    level = [data]
    for _ in range(MAX_DEPTH):
        containers = [node for node in level if isinstance(node, (dict, list))]
        level = [item for node in containers for item in (node.values() if isinstance(node, dict) else node)]
    return any(isinstance(node, (dict, list)) for node in level)


def _in_mode(node: Any, mode: Mode) -> Any:
    """The scalars of JSON data as their source text, where the mode asks for it."""
    if isinstance(node, dict):
        return {key: _in_mode(value, mode.below(key)) for key, value in node.items()}
    if isinstance(node, list):
        below = mode.below("*")
        return [_in_mode(value, below) for value in node]
    if isinstance(node, _Number):
        return str(node) if mode.texts else typed_number(node)
    return node if isinstance(node, str) else mode.read(json.dumps(node), node)


class _PlacesInJson:
    """Finds the lines of JSON data when the first is asked for: it takes a second reading, and is only for messages."""

    def __init__(self, text: str, name: str) -> None:
        self._text, self._name = text, name
        self._found: Places | None = None

    def __call__(self) -> Places:
        if self._found is None:
            # A pair of escapes that PyYAML refuses stands for one character; which one does not matter for lines.
            composer = Composer(_SURROGATES.sub("x", self._text), self._name, Mode.TYPED)
            try:
                self._found = Places(composer.compose(), composer.lines, composer.blocks)
            except ReadError:
                self._found = Places(None, {}, set())
        return self._found
