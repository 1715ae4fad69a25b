"""A recording for Codex means the same to both agents that need no key: to `replay`, and to Codex that follows it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .codex_recording import Came, came_of, prepare
from .test_codex import MODELS, codex

__all__ = ["codex"]

pytestmark = pytest.mark.codex


@pytest.mark.parametrize("model", MODELS)
def test_both_agents_get_the_same_decisions_and_leave_the_same_files(codex: Any, model: str) -> None:
    prepare(codex, model)
    built = codex.build()
    _compare(came_of(codex.run_built(built, "replay")), came_of(codex.run_built(built, "codex", scripted=True)))


@pytest.mark.engine
def test_so_they_do_in_a_sealed_container(engine_author: Callable[[], Any], codex_bin: Path) -> None:
    author = engine_author()
    prepare(author, MODELS[0])
    built = author.build()
    replayed = came_of(author.run_built(built, "replay", environment="docker"))
    _compare(replayed, came_of(author.run_built(built, "codex", environment="docker", scripted=True)))


def _compare(replayed: Came, proposed: Came) -> None:
    assert replayed == proposed
    assert replayed.score == ("scored", 1, 25, 5, 2, 0)
    assert replayed.files["poem.txt"] == "ROSES\nare\nblue\npansies\nand more\nare too\n"
    assert {"reply.md", "empty.txt", "helped.txt", "deep/er/note.txt", "deep/er/here.txt"} < set(replayed.files)
    assert not {"secret.txt", "old.txt", "forbidden", "spied"} & set(replayed.files)
    assert [name for name, decision, *_ in replayed.calls if decision == "deny"] == [
        "apply_patch", "request_user_input", "Bash", "spawn_agent", "Bash"
    ]  # fmt: skip
    assert replayed.warnings[0] == "c1: replay.yaml: not played: Read, 2 calls; Glob, 1 call (codex has no such tool)"
    assert replayed.warnings[1] == "c1: replay.yaml: no such tool here, nothing was done: mcp__my_desk__lose, 1 call"
    assert "lines in poem.txt: olet (a patch, and an Edit that becomes one, takes whole lines)" in replayed.warnings[2]
