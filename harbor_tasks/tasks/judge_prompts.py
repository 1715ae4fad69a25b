"""Prompts of model judges, checked before anything runs: what they name, against the eval and against each case.

The reading itself is the judges' own (``interceptor/judge.py``), so what `check` accepts can be asked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec import Case, Eval
from harbor_tasks.evalspec.dataset import ANNOTATIONS
from harbor_tasks.evalspec.schema import Judge
from harbor_tasks.resources import script_module

CODE = "judge-prompt"
_SCALE = re.compile(r"\b(\d)\s*(?:-|\u2013|to|and)\s*(\d{1,3})\b")


def model_of(ev: Eval, judge: Judge) -> str:
    """The model that a judge asks."""
    return judge.model or ev.spec.models.judge or str(script_module("judge").DEFAULT_MODEL)


def check_prompt(ev: Eval, at: int, texts: Sequence[tuple[str, Path | None]], problems: Problems) -> None:
    """What is wrong with the prompt of the judge ``at``. ``texts``: its parts, and the file of one from a file."""
    judge = ev.spec.judges[at]
    named = False
    for text, file in texts:
        parts, faults = script_module("judge").parsed(text)
        named = named or any(not isinstance(part, str) for part in parts) or bool(faults)
        for fault in faults:
            path, line = (file, fault.row) if file is not None else (ev.file, _line(ev, at, fault.row))
            message = f"judge {judge.name!r}: {fault.message}"
            problems.error(message, path, line, hint=fault.hint, code=CODE)
    key = "prompt" if judge.prompt is not None else "prompt_file"
    if not named and texts:
        problems.warn(
            f"judge {judge.name!r}: the prompt names nothing of the run, so the model sees nothing of it",
            ev.file, ev.line("judges", at, key), hint="add {{ outputs }} or {{ conversation }}", code=CODE,
        )  # fmt: skip
    if any(ev.is_faulty("judges", at, key) for key in ("score_range", "feedback_type")):  # the scale is not known
        return
    if judge.score_range is None and judge.feedback_type != "bool":
        scale = next((found.group() for text, _ in texts for found in _SCALE.finditer(text) if _is_scale(found)), None)
        if scale is not None:
            problems.warn(
                f"judge {judge.name!r}: the prompt speaks of {' '.join(scale.split())}, but the score is from 0 to 1",
                ev.file, ev.line("judges", at, key), hint="set score_range", code=CODE,
            )  # fmt: skip


def _is_scale(found: re.Match[str]) -> bool:
    """`1 to 5`, `0-10`; not `0 to 1`, which is the scale without a score_range."""
    low, high = int(found[1]), int(found[2])
    return low in (0, 1) and high in (3, 4, 5, 6, 7, 10, 100)


def _line(ev: Eval, at: int, row: int) -> int | None:
    return ev.document.line_of_text(row, *ev.where("judges", at, "prompt"))


def check_case(ev: Eval, judges: Iterable[dict[str, Any]], case: Case, problems: Problems) -> None:
    """Values of the case that a prompt names and the case lacks. A judge with `if` may be one of other cases."""
    given = {"annotations": {} if case.annotations is None else case.annotations, "input": case.input}
    if case.annotations_file is None and os.path.lexists(case.directory / ANNOTATIONS):  # it cannot be read, as is said
        del given["annotations"]
    for judge in judges:
        if judge["kind"] == "prompt" and "if" not in judge:
            at = next(i for i, one in enumerate(ev.spec.judges) if one.name == judge["name"])
            if any(ev.is_faulty("judges", at, key) for key in ("if", "arguments")):  # what was said is enough
                continue
            for fault, row in _missing(judge, given):
                hint = "add it there, or give the judge an `if` that skips such cases"
                message = f"judge {judge['name']!r}: {fault}"
                in_text = ev.spec.judges[at].prompt_file is None
                line = _line(ev, at, row) if in_text else ev.line("judges", at, "prompt_file")
                problems.error(message, ev.file, line, case=case.id, hint=hint, code=CODE)


def _missing(judge: dict[str, Any], given: dict[str, Any]) -> Iterator[tuple[str, int]]:
    module = script_module("judge")
    for part in module.parsed(judge["prompt"])[0]:
        if not isinstance(part, str) and part.path[0] in (*given, "arguments"):
            try:
                module.look_up(part.path, judge, given)
            except module.JudgeError as error:
                yield str(error), part.row
