"""Regexes of the author: valid on every Python that may run the interceptor (3.8 and newer), and searches that end."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import warnings
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from harbor_tasks.policy import regex_timer

_TIMER = Path(regex_timer.__file__)
#: The timer counts CPU time by itself; these only end a search that cannot be interrupted.
_SECONDS_EACH = 20.0
_SECONDS_TO_START = 60.0
#: With so few repeats, and none around another, a search cannot explode: no process is started for those.
_HARMLESS_REPEATS = 3
_MAX_DEPTH = 50

_TOKEN = re.compile(
    r"""\\(?P<escape>.)
      | \[\^?\]?(?:\\.|[^\]\\])*\]                                 # a class is one token
      | (?P<atomic>\(\?>)
      | \(\?(?:\#[^)]*|[aiLmsux]+)\)                               # a comment, flags
      | (?P<group>\()(?:\?(?:[aiLmsux-]*:|<?[=!]|P<\w+>|P=\w+|\(\w+\)))?      # the start of a group
      | (?P<repeat>[*+?]|\{\d*,?\d*\})(?P<mode>[+?]?)
      | .""",
    re.VERBOSE | re.DOTALL,
)


def regex_fault(regex: str, flags: int = 0) -> str | None:
    """Why the interceptor could not use this regex, in words that follow "the regex …"; None when it can."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            re.compile(regex, flags)
    except re.error as error:
        return f"is not valid: {error}"
    except Warning as warning:
        return f"is ambiguous: {str(warning)[:1].lower()}{str(warning)[1:]}"
    except (OverflowError, RecursionError, ValueError) as error:
        return f"is too large: {error}"
    return _not_everywhere(regex)


def _not_everywhere(regex: str) -> str | None:
    """What in this regex the oldest Python of a sandbox does not have, or has no room for."""
    depth = 0
    for token in _TOKEN.finditer(regex):
        if token["mode"] == "+":
            return f"uses {token[0]!r}, which only Python 3.11 and newer read (the sandbox may have 3.8)"
        if token["atomic"]:
            return "uses an atomic group '(?>', which only Python 3.11 and newer read (the sandbox may have 3.8)"
        if token["escape"] == "z":
            return "uses '\\z', which only Python 3.14 and newer read (write '\\Z')"
        depth += {"(": 1, ")": -1}.get(token["group"] or token[0], 0)
        if depth > _MAX_DEPTH:
            return f"nests more than {_MAX_DEPTH} groups"
    return None


def slow_texts(regexes: Sequence[tuple[str, int]]) -> list[str | None]:
    """For each valid regex (with flags) a text on which a search practically does not end, or None."""
    doubtful = tuple(dict.fromkeys(entry for entry in regexes if _may_explode(entry[0])))
    found = dict(zip(doubtful, _timed(doubtful), strict=True)) if doubtful else {}
    return [found.get(entry) for entry in regexes]


def _may_explode(regex: str) -> bool:
    """Whether the regex repeats something that repeats, or repeats often enough that it has to be tried."""
    repeats, previous = 0, ""
    for token in _TOKEN.finditer(regex):
        if token["repeat"]:
            repeats += 1
            if previous == ")" or repeats > _HARMLESS_REPEATS:
                return True
        previous = token[0]
    return False


@lru_cache(maxsize=64)
def _timed(regexes: tuple[tuple[str, int], ...]) -> tuple[str | None, ...]:
    """Run the timer; the regex that it did not answer in time counts as not ending, as do those after it."""
    limit = _SECONDS_TO_START + _SECONDS_EACH * len(regexes)
    argv, work = [sys.executable, "-I", "-S", str(_TIMER)], json.dumps(regexes).encode()
    try:
        out = subprocess.run(argv, input=work, stdout=subprocess.PIPE, timeout=limit, check=True).stdout
    except subprocess.TimeoutExpired as expired:
        out = expired.stdout or b""
    answers: list[str | None] = [json.loads(line) for line in out.splitlines()]
    return (*answers, *[regexes[at][0] for at in range(len(answers), len(regexes))])
