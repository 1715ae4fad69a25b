"""What the tests of this room share: texts read as the product reads them, small evals written and loaded."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec import Document, Eval, load_eval, parse_yaml

BASE = {"name": "shop", "execution": {"skill": "tidy"}, "dataset": {"path": "cases"}}


@dataclass
class Read:
    """What reading gave: the document (if any) and the problems as printed texts."""

    document: Document | None
    problems: Problems

    @property
    def data(self) -> Any:
        assert self.document is not None, self.said
        assert not self.problems.errors, self.said
        return self.document.data

    @property
    def said(self) -> list[str]:
        return [str(problem) for problem in self.problems]

    @property
    def error(self) -> str:
        """The one error."""
        (problem,) = self.problems.errors
        return str(problem)


@dataclass
class Loaded:
    """What loading an eval gave."""

    eval: Eval | None
    problems: Problems
    root: Path

    @property
    def errors(self) -> list[str]:
        return [str(problem).removeprefix(f"{self.root}/") for problem in self.problems.errors]

    @property
    def warnings(self) -> list[str]:
        return [str(problem).removeprefix(f"{self.root}/") for problem in self.problems.warnings]

    @property
    def ok(self) -> Eval:
        assert self.eval is not None, self.errors
        assert not self.errors, self.errors
        return self.eval


@pytest.fixture
def read() -> Callable[..., Read]:
    """Read a text as `notes.yaml`."""

    def reader(text: str | bytes, name: str = "notes.yaml", **options: Any) -> Read:
        problems = Problems()
        return Read(parse_yaml(text, Path(name), problems, **options), problems)

    return reader


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Loaded]:
    """Write eval.yaml and load it: a YAML text, or keys (as JSON) that replace those of a minimal eval."""

    def loader(text: str | None = None, **keys: Any) -> Loaded:
        content = text if text is not None else json.dumps({**BASE, **keys})
        (tmp_path / "eval.yaml").write_text(content, encoding="utf-8")
        problems = Problems()
        return Loaded(load_eval(tmp_path / "eval.yaml", problems), problems, tmp_path)

    return loader
