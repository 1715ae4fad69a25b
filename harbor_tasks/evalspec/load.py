"""Reads eval.yaml: strict YAML, models, rules, the project's `.mcp.json`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec.reader import Document
from harbor_tasks.evalspec.schema import EvalSpec


@dataclass(frozen=True)
class Eval:
    """One eval.yaml that was read: its content, and where it and its project are."""

    spec: EvalSpec
    document: Document
    file: Path
    root: Path
    project: Path
    handlers_file: Path | None = None
    not_packed: tuple[str, ...] = ()

    def line(self, *keys: str | int) -> int | None:
        """The line of this key in eval.yaml, or of the nearest one above it."""
        return self.document.line(*keys)

    def resolve(self, text: str, problems: Problems, *keys: str | int, what: str) -> Path | None:
        """The file or folder that a path of eval.yaml names, or None with an error at ``keys``."""
        raise NotImplementedError


def load_eval(path: Path, problems: Problems) -> Eval | None:
    """Read an eval (its file or its folder). There may be errors in ``problems`` although an Eval is returned."""
    raise NotImplementedError
