"""The recorded calls of a case, replay.yaml: checked as the agent `replay` will, with the line of each fault."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec import Document
from harbor_tasks.evalspec.fields import shown
from harbor_tasks.evalspec.keys import nearest
from harbor_tasks.resources import script_module

_NAMED = re.compile("`([a-z]+)`")
"""The key that a fault of an entry is about."""


def script_of(document: Document, steps: Sequence[str], problems: Problems, case: str) -> Any:
    """What is to be played: a list of entries, or with steps a list for each; None with errors in ``problems``."""
    data, before = document.data, len(problems.errors)
    if not steps:
        _check_entries(data, document, (), problems, case)
    elif not isinstance(data, dict) or set(data) != {"steps"} or not isinstance(data["steps"], dict):
        message = f"must be {{steps: {{id: [calls]}}}} with the steps {', '.join(steps)}"
        problems.error(message, document.path, document.line(), case=case, code="replay")
    else:
        for step, entries in data["steps"].items():
            if step in steps:
                _check_entries(entries, document, ("steps", step), problems, case)
                continue
            near = nearest(step, steps)
            hint = f"did you mean {shown(near)}?" if near else f"the steps are {', '.join(steps)}"
            line = document.line("steps", step)
            problems.error(f"unknown step {shown(step)}", document.path, line, case=case, hint=hint, code="replay")
    if len(problems.errors) > before:
        return None
    return data["steps"] if steps else data


def _check_entries(
    entries: Any, document: Document, at: tuple[str, ...], problems: Problems, case: str
) -> None:  # fmt: skip
    """Report what the agent `replay` would refuse of a list of recorded calls."""

    def error(says: str, *keys: str | int, hint: str = "") -> None:
        problems.error(says, document.path, document.line(*at, *keys), case=case, hint=hint, code="replay")

    if not isinstance(entries, list):
        error("must be a list of calls")
        return
    module = script_module("replay")
    known = (*module.ENTRY_KEYS, "say")
    for index, entry in enumerate(entries):
        unknown = [key for key in entry if key not in known] if isinstance(entry, dict) else []
        for key in unknown:
            near = nearest(key, known)
            hint = f"did you mean {shown(near)}?" if near else f"known are {', '.join(known)}"
            error(f"entry {index + 1}: unknown key {shown(key)}", index, key, hint=hint)
        fault = None if unknown else module.entry_error(entry)
        if fault:
            named = _NAMED.search(fault)
            error(f"entry {index + 1}: {fault}", index, *([named[1]] if named else []))
