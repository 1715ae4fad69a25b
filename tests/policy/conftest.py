"""What the tests of this room share: an eval or a handlers file from a text, read as the product reads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec import Eval, load_eval
from harbor_tasks.policy.handlers import Handlers, read_handlers

MakeEval = Callable[..., Eval]
Read = Callable[[str], "tuple[Handlers | None, Problems]"]

_EVAL = "name: shop\ndataset: {path: cases}\n"
_RUN = "execution: {prompt: do it}\n"


@pytest.fixture
def make_eval(tmp_path: Path) -> MakeEval:
    """Write eval.yaml (these keys and those that it needs), maybe tool_handlers.yaml and other files, and load it."""

    def make(more: str = "", handlers: str | None = None, **files: str) -> Eval:
        case = tmp_path / "cases" / "c1"
        case.mkdir(parents=True, exist_ok=True)
        (case / "input.yaml").write_text("prompt: hello\n")
        for name, content in files.items():
            (tmp_path / name).write_text(content, encoding="utf-8")
        (tmp_path / "eval.yaml").write_text(_EVAL + more + ("" if "execution:" in more else _RUN), encoding="utf-8")
        if handlers is not None:
            (tmp_path / "tool_handlers.yaml").write_text(handlers, encoding="utf-8")
        problems = Problems()
        ev = load_eval(tmp_path, problems)
        assert ev is not None, [str(problem) for problem in problems]
        assert not problems.errors, [str(problem) for problem in problems]
        return ev

    return make


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Read a text as the author's tool_handlers.yaml."""

    def read_text(text: str) -> tuple[Handlers | None, Problems]:
        path = tmp_path / "tool_handlers.yaml"
        path.write_text(text, encoding="utf-8")
        problems = Problems()
        return read_handlers(path, problems), problems

    return read_text
