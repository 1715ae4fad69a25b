"""Reads what a job or a trial wrote of itself, and task.toml, and says why one cannot be read: was it edited?"""

from __future__ import annotations

import json
import math
import tomllib
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from harbor_tasks.errors import display_path

_R = TypeVar("_R", bound=BaseModel)


def read_record(path: Path, model: type[_R]) -> _R:
    """The record in a file; OSError or ValueError (of pydantic, too) when there is none that can be read.

    A number that is none (NaN) or has no end is refused: nothing can be counted with it, and JSON does not have it.
    """
    try:
        return model.model_validate(json.loads(path.read_bytes(), parse_constant=_finite, parse_float=_finite))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is no number that can be counted with")
    return value


def why_unreadable(error: Exception) -> str:
    """What is wrong with a record's file, on one line."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, json.JSONDecodeError):
        return f"it is not valid JSON: line {error.lineno} column {error.colno}" if error.doc.strip() else "it is empty"
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return ": ".join([*filter(None, [".".join(map(str, first["loc"]))]), first["msg"]])
    return str(error)


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a task.toml; OSError, or ValueError that names it."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{display_path(path)} cannot be read ({error}); build the task again") from None
