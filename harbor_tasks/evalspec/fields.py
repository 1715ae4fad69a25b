"""Types of single keys of eval.yaml: texts, numbers, paths and maps with their own rules.

A validator raises ValueError with words that follow the key: `execution.steps[0].id` "cannot contain path separators".
"""

from __future__ import annotations

import re
import sys
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

from harbor_tasks.evalspec import envrefs

MAX_SAMPLES = 50
"""How often one judge may ask about one run: a median of more says little more, and takes up to 50 minutes."""
_SYSTEM_FOLDERS = (
    "bin", "boot", "dev", "etc", "lib", "lib64", "logs", "proc", "run", "sbin", "solution", "sys", "tests", "usr",
)  # fmt: skip
_BUILTIN_SPELLINGS = {"consulted_docs": "documents_consulted", "tool_call_validation": "tool_calls_valid"}


def shown(value: Any) -> str:
    """A value as a message shows it: short, in the author's notation."""
    if isinstance(value, str):
        return repr(value if len(value) <= 60 else value[:57] + "...")
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = "null" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def folded(question: str) -> str:
    """A question as it is compared: white space and case folded, nothing else."""
    return " ".join(question.split()).casefold()


def _not_empty(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    if "\0" in text:
        raise ValueError("must not contain a NUL")
    return text


def _model_name(text: str) -> str:
    if not text.isprintable() or any(map(str.isspace, text)):
        raise ValueError(f"must be the name of a model, without white space, not {shown(text)}")
    return text


def is_number(value: Any) -> bool:
    """A finite number, also as a float: not NaN, and no whole number of hundreds of digits. A bool is none."""
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def _positive_int(value: Any) -> Any:
    if type(value) is not int or not 0 < value <= 10**9:
        raise ValueError(f"must be a positive integer, not {shown(value)}")
    return value


def _count(value: Any) -> Any:
    if type(value) is not int or not 0 <= value <= 10**12:
        raise ValueError(f"must be a whole number from 0 on, not {shown(value)}")
    return value


def _samples(value: Any) -> Any:
    if type(value) is not int or not 1 <= value <= MAX_SAMPLES:
        raise ValueError(f"must be a whole number from 1 to {MAX_SAMPLES} (each is a paid request), not {shown(value)}")
    return value


def _positive_number(value: Any) -> Any:
    if not is_number(value) or value <= 0:
        raise ValueError(f"must be a positive number, not {shown(value)}")
    return value


def _non_negative(value: Any) -> Any:
    if not is_number(value) or value < 0:
        raise ValueError(f"must be a non-negative number, not {shown(value)}")
    return value


def _number(value: Any) -> Any:
    if not is_number(value):
        raise ValueError(f"must be a number, not {shown(value)}")
    return value


def _fraction(value: Any) -> Any:
    if not is_number(value) or not 0 <= value <= 1:
        raise ValueError(f"must be a number from 0 to 1, not {shown(value)}")
    return value


def _score_range(value: Any) -> Any:
    is_pair = isinstance(value, (list, tuple)) and len(value) == 2 and all(map(is_number, value))
    if not is_pair or value[0] >= value[1] or not is_number(value[1] - value[0]):
        raise ValueError("must be [lowest, highest]: two numbers, the lower one first")
    return tuple(value)


def _project_path(text: str) -> str:
    """A path of the project: relative, without `..`, without control characters."""
    if text.startswith(("/", "~", "\\")) or re.match(r"[A-Za-z]:[\\/]", text):
        raise ValueError(f"must be a relative path, not {shown(text)}")
    if ".." in re.split(r"[\\/]", text):
        raise ValueError(f"must not contain '..', as {shown(text)} does")
    if any(ord(ch) < 32 or ord(ch) == 127 for ch in text):
        raise ValueError("must not contain control characters")
    return text


def _step_id(text: str) -> str:
    """A step's id names a folder in the task."""
    if text in (".", ".."):
        raise ValueError(f"must not be a relative directory reference, as {shown(text)} is")
    if "/" in text or "\\" in text:
        raise ValueError(f"cannot contain path separators, as {shown(text)} does")
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,62}", text, re.ASCII):
        raise ValueError(f"must be 1 to 63 letters, digits, '_' and '-' (it names a folder), not {shown(text)}")
    return text


def _image_path(text: str) -> str:
    """A plain absolute path in the image: it stands in scripts, so no shell metacharacters."""
    parts = text.split("/")[1:]
    if not re.fullmatch(r"(/[A-Za-z0-9._-]+)+/?", text, re.ASCII) or "." in parts or ".." in parts:
        raise ValueError(f"must be a plain absolute path (letters, digits, . _ - and slashes), not {shown(text)}")
    if parts[0] in _SYSTEM_FOLDERS or parts[:2] == ["opt", "harbor-pack"]:
        raise ValueError(f"must not lie in a folder of the system or of the harness, as {shown(text)} does")
    return text.rstrip("/")


def _image_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*", text, re.ASCII):
        raise ValueError(f"must be the name of an image, as 'debian:bookworm', not {shown(text)}")
    return text


def _builtin_name(text: str) -> str:
    """The name of a builtin judge without a category before it, and by one of its spellings."""
    name = text.rpartition("/")[2].replace("-", "_")
    return _BUILTIN_SPELLINGS.get(name, name)


def _env_name(name: str) -> str:
    fault = envrefs.name_fault(name)
    if fault:
        raise ValueError(fault)
    return name


def _env_value(value: str) -> str:
    fault = envrefs.value_fault(value)
    if fault:
        raise ValueError(fault)
    return value


def one_or_more(value: Any) -> Any:
    """One item in place of a list of one."""
    return [value] if isinstance(value, (str, dict)) else value


NonEmptyText = Annotated[str, AfterValidator(_not_empty)]
ModelName = Annotated[str, AfterValidator(_not_empty), AfterValidator(_model_name)]
ProjectPath = Annotated[str, AfterValidator(_not_empty), AfterValidator(_project_path)]
ImagePath = Annotated[str, AfterValidator(_image_path)]
ImageName = Annotated[str, AfterValidator(_not_empty), AfterValidator(_image_name)]
StepId = Annotated[str, AfterValidator(_not_empty), AfterValidator(_step_id)]
PositiveInt = Annotated[int, BeforeValidator(_positive_int)]
Samples = Annotated[int, BeforeValidator(_samples)]
Count = Annotated[int, BeforeValidator(_count)]
PositiveNumber = Annotated[float, BeforeValidator(_positive_number)]
Weight = Annotated[float, BeforeValidator(_non_negative)]
Number = Annotated[float, BeforeValidator(_number)]
Fraction = Annotated[float, BeforeValidator(_fraction)]
ScoreRange = Annotated[tuple[float, float], BeforeValidator(_score_range)]
BuiltinName = Annotated[str, AfterValidator(_not_empty), AfterValidator(_builtin_name)]
EnvMap = dict[Annotated[str, AfterValidator(_env_name)], Annotated[str, AfterValidator(_env_value)]]
