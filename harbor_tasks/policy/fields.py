"""The fields of one handler, checked one by one: each takes its place and value, and returns it or adds errors.

Shapes follow DESIGN.md, tool_handlers.yaml. A value that is wrong is an error and never guessed at: a check that is
read otherwise than it was meant lets calls through.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from harbor_tasks.evalspec.fields import is_number
from harbor_tasks.policy.matchers import is_glob
from harbor_tasks.policy.places import Place, kind_of, meant
from harbor_tasks.policy.regexes import regex_fault, slow_texts
from harbor_tasks.policy.tools import misspelt

OPERATORS = ("lt", "le", "gt", "ge", "eq", "ne", "in", "not_in", "matches", "glob", "exists")
ENV_CHECKS = ("must_contain", "equals", "host_in", "matches")
REWRITES = ("prefix", "suffix", "replace")
CHOICES = {
    "on_pass": ("none", "allow"),
    "on_fail": ("deny", "ask"),
    "on_unanswered": ("first_option", "deny"),
}
QUOTE_IT = "put it in quotes"

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_NO_HOST = re.compile(r"[/@\[\]\s]|\A[^:]*:\d*\Z")  # an IPv6 address is a host too: ::1
_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?", re.ASCII)


@dataclass
class Regexes:
    """All regexes of a file, so that they are timed together at the end."""

    found: list[tuple[Place, str, int]] = field(default_factory=list)

    def take(self, place: Place, value: Any, flags: int = 0) -> str | None:
        """The regex, if it is one that every supported Python compiles."""
        regex = text(place, value)
        if regex is None:
            return None
        fault = regex_fault(regex, flags)
        if fault:
            place.error(f"{fault} (in {regex!r})", code="bad-regex")
            return None
        self.found.append((place, regex, flags))
        return regex

    def report_slow(self) -> None:
        """An error for each regex whose search practically does not end on some text."""
        slow = slow_texts([(regex, flags) for _place, regex, flags in self.found])
        for (place, regex, _flags), example in zip(self.found, slow, strict=True):
            if example is not None:
                shown = example if len(example) <= 40 else f"{example[:40]}…"
                place.error(
                    f"takes too long to search (in {regex!r}, on a text like {shown!r})",
                    "do not repeat what repeats itself: (a+)+ is a+", "slow-regex",
                )  # fmt: skip


def text(place: Place, value: Any) -> str | None:
    """A text with something in it."""
    if not isinstance(value, str):
        scalar = isinstance(value, (int, float))
        place.error(f"must be a text, and is {kind_of(value)}", QUOTE_IT if scalar else "")
        return None
    if not value.strip():
        place.error("must not be empty")
        return None
    return value


def optional_text(place: Place, value: Any) -> str | None:
    """A text, or nothing for an empty value."""
    return None if value is None else text(place, value)


def texts(place: Place, value: Any) -> tuple[str, ...] | None:
    """A list of texts, at least one."""
    if not isinstance(value, list):
        hint = f"write [{value}]" if isinstance(value, str) and len(value) < 60 else ""
        place.error(f"must be a list of texts, and is {kind_of(value)}", hint)
        return None
    if not value:
        place.error("must not be an empty list")
        return None
    taken = [text(place.at(at), item) for at, item in enumerate(value)]
    return tuple(item for item in taken if item is not None) if None not in taken else None


def patterns(place: Place, value: Any) -> tuple[str, ...] | None:
    """Tool names or globs. What cannot be a tool's name is an error: it would guard nothing."""
    taken = texts(place, value)
    for at, pattern in enumerate(taken or ()):
        here = place.at(at)
        if "(" in pattern:
            hint = "put what it says into input_filters or input_checks"
            here.error(f"is a permission rule, not the name of a tool: {pattern!r}", hint)
        elif re.search(r"[|,;\s]", pattern):
            here.error(f"is not the name of one tool: {pattern!r}", "write each tool as an item of its own")
        elif re.search(r"\.\*|[\^$\\\[\]{}+]", pattern):
            here.warn(f"is read as a name with * and ?, not as a regex: {pattern!r}", code="odd-pattern")
        elif re.fullmatch(r"mcp__(?:(?!__)[^*?])+", pattern):
            message = f"names a server, which is no tool: {pattern!r} catches nothing"
            here.warn(message, f"write {pattern}__*", "odd-pattern")
        elif not is_glob(pattern) and (near := misspelt(pattern)):
            here.warn(f"is no tool that is known here: {pattern!r}", f"did you mean {near!r}?", "odd-pattern")
    return taken


def input_filters(place: Place, value: Any, regexes: Regexes) -> tuple[str, ...] | None:
    """Regexes for Bash commands. An empty value or list is no filter, which `lint` reports where one is needed."""
    if value is None or value == []:
        return None
    taken = texts(place, value)
    if taken is None:
        return None
    for at, regex in enumerate(taken):
        regexes.take(place.at(at), regex, re.IGNORECASE)
    return taken


def env_checks(place: Place, value: Any, regexes: Regexes) -> dict[str, dict[str, Any]] | None:
    """Variable -> checks of its value."""
    if not isinstance(value, dict) or not value:
        place.error(f"must be a mapping of variables to checks, and is {kind_of(value)}")
        return None
    for name, checks in value.items():
        here = place.at(name)
        if not _VARIABLE.fullmatch(name):
            here.error("is not the name of an environment variable")
        if not isinstance(checks, dict) or not checks:
            here.error(f"must hold one of {', '.join(ENV_CHECKS)}, and is {kind_of(checks)}")
            continue
        here.unknown_keys(checks, ENV_CHECKS)
        for key, wanted in checks.items():
            if key in ("must_contain", "host_in"):
                items = texts(here.at(key), wanted)
                if key == "host_in":
                    _hosts(here.at(key), items or ())
            elif key == "equals" and not isinstance(wanted, str):
                text(here.at(key), wanted)
            elif key == "matches":
                regexes.take(here.at(key), wanted)
    return value


def _hosts(place: Place, items: tuple[str, ...]) -> None:
    for at, host in enumerate(items):
        if _NO_HOST.search(host):
            place.at(at).error(f"must be a host alone, without scheme, port or path: {host!r}")


def input_checks(place: Place, value: Any, regexes: Regexes) -> tuple[dict[str, Any], ...] | None:
    """A list of ``{field, op, value}``."""
    if not isinstance(value, list) or not value:
        place.error(f"must be a list of {{field, op, value}}, and is {kind_of(value)}")
        return None
    return tuple(_input_check(place.at(at), check, regexes) for at, check in enumerate(value))


def _input_check(place: Place, check: Any, regexes: Regexes) -> dict[str, Any]:
    if not isinstance(check, dict):
        place.error(f"must be a mapping of field, op, value, and is {kind_of(check)}")
        return {}
    place.unknown_keys(check, ("field", "op", "value"))
    path = text(place.at("field"), check.get("field")) if "field" in check else None
    if "field" not in check:
        place.error("has no field")
    elif path is not None and not _is_path(path):
        place.at("field").error(f"is not a dotted path: {path!r}")
    op = check.get("op")
    if "op" not in check:
        place.error("has no op", f"write one of {', '.join(OPERATORS)}")
    elif not isinstance(op, str) or op not in OPERATORS:
        place.at("op").error(f"is not known: {op!r}", meant(str(op), OPERATORS))
    elif "value" in check:
        _OPERANDS[op](place.at("value"), check["value"], regexes)
    elif op != "exists":
        place.error(f"has no value for {op!r}")
    return {"field": path, "op": op, "value": check.get("value", True)}


def _is_path(text: str) -> bool:
    return all(part.strip() for part in text.split("."))


def _number(place: Place, value: Any, _regexes: Regexes) -> None:
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        return
    if not is_number(value):
        hint = "write it without a sign of currency and without separators"
        place.error(f"must be a number, and is {kind_of(value)}", hint)


def _scalar(place: Place, value: Any, _regexes: Regexes) -> None:
    if not isinstance(value, (str, int, float, bool)):
        place.error(f"must be a text, a number, true or false, and is {kind_of(value)}")


def _scalars(place: Place, value: Any, regexes: Regexes) -> None:
    if not isinstance(value, list) or not value:
        place.error(f"must be a list, and is {kind_of(value)}")
        return
    for at, item in enumerate(value):
        _scalar(place.at(at), item, regexes)


def _yes_or_no(place: Place, value: Any, _regexes: Regexes) -> None:
    if not isinstance(value, bool):
        place.error(f"must be true or false, and is {kind_of(value)}")


def _regex(place: Place, value: Any, regexes: Regexes) -> None:
    regexes.take(place, value)


def _glob(place: Place, value: Any, _regexes: Regexes) -> None:
    text(place, value)


_OPERANDS: dict[str, Callable[[Place, Any, Regexes], None]] = {
    "lt": _number, "le": _number, "gt": _number, "ge": _number, "eq": _scalar, "ne": _scalar,
    "in": _scalars, "not_in": _scalars, "matches": _regex, "glob": _glob, "exists": _yes_or_no,
}  # fmt: skip


def rewrite(place: Place, value: Any, regexes: Regexes) -> dict[str, Any] | None:
    """Field of the input -> literal, or one of prefix, suffix, replace."""
    if not isinstance(value, dict) or not value:
        place.error(f"must be a mapping of fields to values, and is {kind_of(value)}")
        return None
    for name, new in value.items():
        here = place.at(name)
        if not _is_path(name):
            here.error(f"is not a dotted path: {name!r}")
        if new is None:
            here.error("has no value")
        elif isinstance(new, dict):
            _rewrite_form(here, new, regexes)
    return value


def _rewrite_form(place: Place, form: dict[str, Any], regexes: Regexes) -> None:
    place.unknown_keys(form, REWRITES)
    if len(form) != 1:
        place.error(f"must hold exactly one of {', '.join(REWRITES)}")
    for key in ("prefix", "suffix"):
        if key in form and not (isinstance(form[key], str) and form[key]):  # white space is something to add
            text(place.at(key), form[key])
    if "replace" in form:
        _replacement(place.at("replace"), form["replace"], regexes)


def _replacement(place: Place, pair: Any, regexes: Regexes) -> None:
    if not isinstance(pair, list) or len(pair) != 2:
        place.error("must be a list of a regex and a text: [regex, text]")
        return
    regex, new = regexes.take(place.at(0), pair[0]), pair[1]
    if not isinstance(new, str):
        text(place.at(1), new)
    elif regex is not None:
        try:
            re.sub(regex, new, "")
        except (re.error, IndexError) as error:
            place.at(1).error(f"does not fit the regex: {error} (in {new!r})", code="bad-regex")


def choice(place: Place, value: Any, allowed: tuple[str, ...]) -> str:
    """One of the allowed words."""
    if isinstance(value, str) and value in allowed:
        return value
    place.error(f"must be {' or '.join(map(repr, allowed))}, and is {value!r}")
    return allowed[0]
