"""Evals that attack their sandbox, built once for a module; their images are made from the base image."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .kit import CASES, KEY, SERVER, STEPS, built_eval, spec


@pytest.fixture(scope="module")
def sandboxes(base_image: str) -> Iterator[None]:
    """The environment that images and the hook's model need."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARBOR_PACK_BASE", base_image)
        patch.setenv("ANTHROPIC_API_KEY", KEY)
        patch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
        yield


@pytest.fixture(scope="module")
def attacks(sandboxes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An eval of one run a case."""
    with built_eval(tmp_path_factory.mktemp("attacks"), spec(), CASES) as built:
        yield built


@pytest.fixture(scope="module")
def attacks_in_steps(sandboxes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An eval of two steps, each with a variable of its own, that the handlers check."""
    folder = tmp_path_factory.mktemp("steps")
    steps = [{"id": name, "prompt": "do it", "env": {"MODE": name}} for name in STEPS]
    (folder / "eval" / "servers").mkdir(parents=True)
    (folder / "eval" / "servers" / "desk.py").write_text(SERVER)
    server = {"name": "desk", "command": "python3", "args": ["servers/desk.py"]}
    with built_eval(folder, {**spec(steps=steps), "mcp_servers": [server]}, {"steps": {"steps": STEPS}}) as built:
        yield built
