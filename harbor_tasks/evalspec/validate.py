"""Checks plain data against the models, and says what is wrong in an author's words: key, line, value, nearest key.

All faults are reported, and what is faulty is left out, so that everything else can be checked too.
"""

from __future__ import annotations

from typing import Any, TypeVar, get_args, get_origin

from pydantic import ValidationError

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec import keys
from harbor_tasks.evalspec.fields import shown
from harbor_tasks.evalspec.reader import Document
from harbor_tasks.evalspec.schema import Table, keys_of

Key = str | int
T = TypeVar("T", bound=Table)

_STAND_IN: dict[str, Any] = {"name": "unnamed", "dataset": {"path": "cases"}}
_ROUNDS = 20


class Checked:
    """Data of a document while it is checked; what is faulty is taken out of it, and lines are still found.

    ``at`` is where the data stands in the document.
    """

    def __init__(self, data: Any, document: Document, problems: Problems, at: tuple[Key, ...] = ()) -> None:
        self.data = _copy(data)
        self.document, self.problems, self.at = document, problems, at
        self.faulty: list[tuple[Key, ...]] = []
        self.stood_in: set[str] = set()  # required top-level keys that were missing or faulty
        self._kept: dict[int, list[int]] = {}  # of a list from which items were taken: where the others stood

    def where(self, *path: Key) -> tuple[Key, ...]:
        """The path in the author's file of a path in the data."""
        node, found = self.data, list(self.at)
        for key in path:
            kept = self._kept.get(id(node))
            found.append(kept[key] if kept is not None and isinstance(key, int) and key < len(kept) else key)
            node = _child(node, key)
        return tuple(found)

    def name(self, *path: Key) -> str:
        """The key as messages name it: `execution.steps[0].id`."""
        return dotted(self.where(*path))

    def line(self, *path: Key) -> int | None:
        """The line of the key in the author's file."""
        return self.document.line(*self.where(*path))

    def error(self, *path: Key, says: str, hint: str = "", code: str = "schema", row: int | None = None) -> None:
        """An error at this key; ``says`` follows its name. ``row`` counts lines of its text, from 1."""
        line = self.line(*path) if row is None else self.document.line_of_text(row, *self.where(*path))
        self.problems.error(f"{self.name(*path)} {says}".strip(), self.document.path, line, hint=hint, code=code)

    def warn(self, *path: Key, says: str, hint: str = "", code: str = "schema") -> None:
        """A warning at this key; ``says`` follows its name."""
        message = f"{self.name(*path)} {says}".strip()
        self.problems.warn(message, self.document.path, self.line(*path), hint=hint, code=code)

    def is_faulty(self, *path: Key) -> bool:
        """Whether something at, below or above this key was taken out, so that its absence is no news."""
        at = self.where(*path)
        return any(taken[: len(at)] == at[: len(taken)] for taken in self.faulty)

    def take_out(self, path: tuple[Key, ...]) -> None:
        """Take a value out of the data."""
        if not path:
            return
        *above, key = path
        node = self.data
        for step in above:
            node = _child(node, step)
        if isinstance(node, list) and isinstance(key, int) and key < len(node):
            self._kept.setdefault(id(node), list(range(len(node)))).pop(key)
            node.pop(key)
        elif isinstance(node, dict):
            node.pop(key, None)


def checked_model(table: type[T], checked: Checked) -> T | None:
    """The model of the data; what is faulty is reported and left out. None when nothing is left of it."""
    if not isinstance(checked.data, dict):
        says = f"must be a mapping, not {shown(checked.data)}"
        checked.error(says="is empty" if checked.data is None and not checked.at else says)
        return None
    for _ in range(_ROUNDS):
        try:
            return table.model_validate(checked.data)
        except ValidationError as error:
            faults = [_Fault(fault, checked.data) for fault in error.errors(include_url=False)]
        faults.sort(key=lambda fault: fault.kind != "extra_forbidden")  # a misspelt key is not missing, too
        for fault in faults:
            if _report(fault, table, checked):
                checked.faulty.append(checked.where(*fault.path))
        for path in sorted({fault.to_take_out() for fault in faults}, key=_last_first, reverse=True):
            checked.take_out(path)
        for fault in faults:
            if fault.kind == "missing" and len(fault.path) == 1 and fault.path[0] in _STAND_IN:
                key = str(fault.path[0])
                checked.data[key] = _copy(_STAND_IN[key])
                checked.stood_in.add(key)
    return None


class _Fault:
    """One error of pydantic, with the path that the data has (its own also names members of unions)."""

    def __init__(self, error: Any, data: Any) -> None:
        self.kind: str = error["type"]
        self.input: Any = error["input"]
        self.context: dict[str, Any] = error.get("ctx", {})
        self.message: str = error["msg"]
        location = list(error["loc"])
        missing = location.pop() if self.kind == "missing" else None
        path: list[Key] = []
        for step in location:
            if _has(data, step):
                path.append(step)
                data = _child(data, step)
        self.path = tuple(path) if missing is None else (*path, missing)

    def words(self) -> str:
        """What is wrong, to follow the key."""
        if self.kind == "value_error":
            return str(self.context["error"])
        if self.kind == "literal_error":
            return f"must be one of {self.context['expected']}, not {shown(self.input)}"
        wanted = {
            "string_type": "a string",
            "bool_type": "a boolean (true or false)",
            "list_type": "a list",
            "dict_type": "a mapping",
            "model_type": "a mapping",
            "model_attributes_type": "a mapping",
        }.get(self.kind)
        if wanted:
            return f"must be {wanted}, not {shown(self.input)}"
        simple = {"missing": "is missing", "too_short": "must not be empty"}
        return simple.get(self.kind, f"is not accepted: {self.message[:1].lower()}{self.message[1:]}")

    def to_take_out(self) -> tuple[Key, ...]:
        """What has to go for the rest to be valid: the value, or what lacks a key."""
        return self.path[:-1] if self.kind == "missing" else self.path


def _report(fault: _Fault, table: type[Table], checked: Checked) -> bool:
    """Report a fault; whether it is an error."""
    if fault.kind == "extra_forbidden":
        return _report_unknown(fault.path, table, checked)
    if fault.kind != "missing":
        hint = "put it in quotes" if fault.kind == "string_type" and isinstance(fault.input, (bool, int, float)) else ""
        checked.error(*fault.path, says=fault.words(), hint=hint)
    elif not checked.is_faulty(*fault.path):
        checked.error(*fault.path, says=fault.words())
    return True


def _report_unknown(path: tuple[Key, ...], table: type[Table], checked: Checked) -> bool:
    """Report an unknown key; whether it is an error."""
    key, holder = str(path[-1]), table_at(table, path[:-1])
    known = list(keys_of(holder))
    value = checked.data
    for step in path:
        value = _child(value, step)
    if not path[:-1] and not checked.at and key.startswith(keys.OWN_PREFIX):
        return False
    promised = [] if checked.at else keys.protection(path[:-1], key, value, known)
    for below, right in promised:
        checked.error(*path, *below, says="would protect nothing", hint=f"use {right}", code="wrong-key")
    if promised and not promised[0][0]:
        return True
    place = f" in {checked.name(*path[:-1])}" if checked.where(*path[:-1]) else ""
    nearest = keys.nearest(key, known)
    message = f"unknown key {shown(key)}{place}"
    line = checked.line(*path)
    if nearest:
        hint = f"did you mean {shown(nearest)}?"
        checked.problems.error(message, checked.document.path, line, hint=hint, code="unknown-key")
        checked.faulty.append((*checked.where(*path[:-1]), nearest))  # that it is missing is no second fault
        return True
    elsewhere = keys.elsewhere(key) if not checked.at else ""
    hint = f"did you mean {elsewhere}?" if elsewhere else "it has no effect"
    checked.problems.warn(message, checked.document.path, line, hint=hint, code="unknown-key")
    return False


def table_at(table: type[Table], path: tuple[Key, ...]) -> type[Table]:
    """The table that stands at this path below another one."""
    annotation: Any = table
    for key in path:
        annotation = _below(annotation, key)
    return _first_table(annotation) or table


def _below(annotation: Any, key: Key) -> Any:
    """The type of what stands at a key or index of a value of this type; None when it is not known."""
    if isinstance(annotation, type) and issubclass(annotation, Table):
        return keys_of(annotation).get(str(key))
    parts = get_args(annotation)
    if get_origin(annotation) in (list, dict):
        return parts[-1]
    return next((found for part in parts if (found := _below(part, key)) is not None), None)


def _first_table(annotation: Any) -> type[Table] | None:
    if isinstance(annotation, type) and issubclass(annotation, Table):
        return annotation
    if get_origin(annotation) in (list, dict):
        return None
    return next((found for part in get_args(annotation) if (found := _first_table(part))), None)


def dotted(path: tuple[Key, ...]) -> str:
    """A path as messages name it: `execution.steps[0].id`; keys that are no words stand in brackets."""
    name = ""
    for key in path:
        if isinstance(key, int):
            name += f"[{key}]"
        elif key.replace("-", "_").isidentifier():
            name += f".{key}" if name else key
        else:
            name += f"[{shown(key)}]"
    return name


def _copy(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _copy(value) for key, value in node.items()}
    return [_copy(value) for value in node] if isinstance(node, list) else node


def _has(node: Any, key: Key) -> bool:
    if isinstance(node, dict):
        return key in node
    return isinstance(node, list) and isinstance(key, int) and key < len(node)


def _child(node: Any, key: Key) -> Any:
    return node[key] if _has(node, key) else None


def _last_first(path: tuple[Key, ...]) -> tuple[tuple[int, str, int], ...]:
    return tuple((0, "", key) if isinstance(key, int) else (1, key, 0) for key in path)
