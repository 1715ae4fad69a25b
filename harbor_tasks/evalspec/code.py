"""Looks at Python in eval.yaml without running it: bodies of `check`, expressions of `if`."""

from __future__ import annotations

import ast
import textwrap
import warnings
from collections.abc import Iterator
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


def returns_nothing(text: str) -> bool:
    """Whether a valid body can never return a value: it has no `return` of its own with one, or is a generator.

    One that raises says something else than a verdict on purpose, and is left alone.
    """
    body = textwrap.dedent(text.expandtabs(8) if "\t" in text else text)
    indented = "".join(f" {line}" if line.strip() else line for line in body.splitlines(keepends=True))
    own = list(_own_nodes(ast.parse(_HEAD + indented).body))
    generates = any(isinstance(node, ast.Yield | ast.YieldFrom) for node in own)
    said = any(isinstance(node, ast.Raise) or (isinstance(node, ast.Return) and node.value) for node in own)
    return generates or not said


def _own_nodes(function: list[ast.stmt]) -> Iterator[ast.AST]:
    """What stands in a function's body, without what stands in functions and classes in it."""
    pending: list[ast.AST] = list(function[0].body) if isinstance(function[0], ast.FunctionDef) else []
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            pending.extend(ast.iter_child_nodes(node))


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
