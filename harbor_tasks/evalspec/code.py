"""Looks at Python in eval.yaml without running it: bodies of `check`, expressions of `if`."""

from __future__ import annotations

import ast
import textwrap
import warnings
from dataclasses import dataclass

_HEAD = "def judge(outputs, arguments, annotations):\n"


@dataclass(frozen=True, slots=True)
class PythonFault:
    """A syntax error: what, and the row of the text (from 1)."""

    message: str
    row: int


def body_faults(text: str) -> list[PythonFault]:
    """Why a text cannot be the body of a function of `outputs, arguments, annotations`; empty when it can."""
    body = textwrap.dedent(text.expandtabs(8) if "\t" in text else text)
    if not any(line.strip() and not line.lstrip().startswith("#") for line in body.splitlines()):
        return [PythonFault("it holds no statement", 1)]
    # One space is enough to make it a body, and moves no line.
    indented = "".join(f" {line}" if line.strip() else line for line in body.splitlines(keepends=True))
    return _faults(_HEAD + indented, "exec", rows_above=1)


def expression_faults(text: str) -> list[PythonFault]:
    """Why a text cannot be an expression; empty when it can."""
    return _faults(f"(\n{text.strip()}\n)", "eval", rows_above=1)


def _faults(source: str, mode: str, *, rows_above: int) -> list[PythonFault]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, "<eval.yaml>", mode, ast.PyCF_ONLY_AST)
            compile(source, "<eval.yaml>", mode, dont_inherit=True)
    except SyntaxError as error:
        return [PythonFault(error.msg, max((error.lineno or 1) - rows_above, 1))]
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        return [PythonFault(f"it cannot be compiled ({type(error).__name__})", 1)]
    return []
