"""Types of single keys of eval.yaml: texts, numbers, paths and maps with their own rules.

A validator raises ValueError with words that follow the key: `execution.steps[0].id` "cannot contain path separators".
"""

from __future__ import annotations

import math
import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from harbor_tasks.evalspec import envrefs


def _not_empty(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    if "\0" in text:
        raise ValueError("must not contain a NUL")
    return text


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("must be a finite number")
    return value


def _project_path(text: str) -> str:
    """A path of the project: relative, without `..`, with no control characters."""
    if text.startswith(("/", "~")) or re.match(r"[A-Za-z]:[\\/]", text):
        raise ValueError(f"must be a relative path, not {text!r}")
    if ".." in re.split(r"[\\/]", text):
        raise ValueError(f"must not contain '..', as {text!r} does")
    if any(ord(ch) < 32 or ord(ch) == 127 for ch in text):
        raise ValueError("must not contain control characters")
    return text


def _step_id(text: str) -> str:
    """A step's id names a folder in the task."""
    if text in (".", "..") or set(text) == {"."}:
        raise ValueError(f"must not be a relative directory reference, as {text!r} is")
    if "/" in text or "\\" in text:
        raise ValueError(f"cannot contain path separators, as {text!r} does")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", text, re.ASCII):
        raise ValueError(f"must be letters, digits, '_' and '-' (it names a folder), not {text!r}")
    if len(text) > 63:
        raise ValueError("must not be longer than 63 characters")
    return text


def _image_path(text: str) -> str:
    """A plain absolute path in the image: it is used in scripts, so no shell metacharacters."""
    if not re.fullmatch(r"(/[A-Za-z0-9._-]+)+/?", text, re.ASCII) or any(p in (".", "..") for p in text.split("/")):
        raise ValueError(f"must be a plain absolute path (letters, digits and . _ - between slashes), not {text!r}")
    return text.rstrip("/")


def _env_map(env: dict[str, str]) -> dict[str, str]:
    for name, value in env.items():
        fault = envrefs.name_fault(name)
        if fault:
            raise PydanticCustomError("env_key", "{name} {fault}", {"name": repr(name), "fault": fault, "key": name})
        fault = envrefs.value_fault(value)
        if fault:
            raise PydanticCustomError("env_value", "{fault}", {"fault": fault, "key": name})
    return env


def _pair(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _ordered(pair: tuple[float, float]) -> tuple[float, float]:
    if not pair[0] < pair[1]:
        raise ValueError("must be [lowest, highest] with lowest below highest")
    return pair


def OneOrMore(value: Any) -> Any:  # noqa: N802 - used as the name of a type
    """One item in place of a list of one."""
    return [value] if isinstance(value, (str, dict)) else value


NonEmptyText = Annotated[str, AfterValidator(_not_empty)]
ProjectPath = Annotated[str, AfterValidator(_not_empty), AfterValidator(_project_path)]
WorkspacePath = ProjectPath
ImagePath = Annotated[str, AfterValidator(_image_path)]
StepId = Annotated[str, AfterValidator(_not_empty), AfterValidator(_step_id)]
PositiveInt = Annotated[int, Field(gt=0, le=10**9)]
PositiveNumber = Annotated[float, Field(gt=0), AfterValidator(_finite)]
Fraction = Annotated[float, Field(ge=0, le=1)]
TextMap = dict[str, str]
EnvMap = Annotated[dict[str, str], AfterValidator(_env_map)]
ScoreRange = Annotated[tuple[float, float], BeforeValidator(_pair), AfterValidator(_ordered)]
