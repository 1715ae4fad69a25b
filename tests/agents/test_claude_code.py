"""What the agent claude-code needs of its program's version, and how that is started."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harbor_tasks.errors import MachineError

from .kit import QUESTIONS, places
from .kit import claude_code as agent


def test_a_program_whose_hooks_cannot_answer_is_refused_where_they_must(on_path: Callable[[str, str], str]) -> None:
    caller = {"PATH": on_path("claude", "echo '2.1.281 (Claude Code)'"), "ANTHROPIC_API_KEY": "k"}
    agent().prepare("local", caller, scripted=False)
    with pytest.raises(MachineError, match=r"cannot answer questions in version 2\.1\.281.*claude-code@2\.1\.280"):
        agent(QUESTIONS).prepare("local", caller, scripted=False)


@pytest.mark.parametrize("sealed", [True, False])
def test_in_a_container_the_launcher_does_what_the_seal_needs(sealed: bool) -> None:
    made = agent(QUESTIONS, budget=0.5, permission_mode="dontAsk", effort="high", system_prompt="Be brief.")
    launch = made.launch(places(sealed))
    line = " ".join(launch.argv)
    for words in (
        "-p --output-format stream-json --verbose --permission-mode dontAsk --", "--strict-mcp-config --mcp-config /m ",
        "--effort high", "--append-system-prompt Be brief.",
        "--max-budget-usd 0.5",
    ):  # fmt: skip
        assert words in line
    assert ("--permission-prompt-tool stdio" in line) is not sealed
    assert ("--plugin-dir /h/layer/plugins/docs" in line) is not sealed
    assert "--setting-sources" not in line
    assert "CLAUDE_CONFIG_DIR" not in launch.env
    assert launch.stdin == Path("/i")
