"""What the agent claude-code needs before a job, and how its program is started."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harbor_tasks.agents.base import Places
from harbor_tasks.agents.claude_code import PROGRAM, ClaudeCodeAgent
from harbor_tasks.errors import AuthorError, HarborPackError, MachineError
from harbor_tasks.evalspec.schema import Models, Runner, Sandbox

QUESTIONS = (SimpleNamespace(patterns=("AskUserQuestion",)),)


def agent(handlers: Any = (), budget: float | None = None, network: str = "public", **runner: Any) -> ClaudeCodeAgent:
    """The agent for as much of a build as it reads."""
    build = SimpleNamespace(
        runner=Runner(**runner), models=Models(), plugins=("docs",), handlers=handlers,
        execution=SimpleNamespace(max_budget_usd=budget), sandbox=Sandbox(network=network),  # type: ignore[arg-type]
    )  # fmt: skip
    return ClaudeCodeAgent(build)  # type: ignore[arg-type]


@pytest.fixture
def path_with(on_path: Callable[[str, str], str]) -> Callable[[str], dict[str, str]]:
    """The caller's variables, with a program named claude that says this when it is asked for its version."""
    return lambda says: {"PATH": on_path("claude", says), "ANTHROPIC_API_KEY": "k"}


def test_its_program_and_version_are_those_on_path(path_with: Callable[[str], dict[str, str]]) -> None:
    caller = path_with("echo '2.1.250 (Claude Code)'")
    found = agent(QUESTIONS)
    found.prepare("local", caller, scripted=False)
    assert found.version == "2.1.250"


def test_a_program_whose_hooks_cannot_answer_is_refused_where_they_must(
    path_with: Callable[[str], dict[str, str]],
) -> None:
    caller = path_with("echo '2.1.281 (Claude Code)'")
    agent().prepare("local", caller, scripted=False)
    with pytest.raises(MachineError, match=r"cannot answer questions in version 2\.1\.281.*claude-code@2\.1\.280"):
        agent(QUESTIONS).prepare("local", caller, scripted=False)


@pytest.mark.parametrize(
    ("says", "what"),
    [("exit 1", "does not run"), ("echo hello", "does not say its version, but 'hello'")],
)
def test_a_program_that_is_something_else_is_said(
    path_with: Callable[[str], dict[str, str]], says: str, what: str
) -> None:
    with pytest.raises(MachineError, match=what):
        agent().prepare("local", path_with(says), scripted=True)


def test_no_program_is_said_with_how_to_get_it() -> None:
    with pytest.raises(MachineError, match=r"no `claude` on PATH; npm install -g .*@2\.\d+\.\d+, or .*agents\.sh"):
        agent().prepare("local", {"PATH": "/nowhere", "ANTHROPIC_API_KEY": "k"}, scripted=False)


@pytest.mark.parametrize("environment", ["local", "docker"])
def test_no_key_is_said_with_how_to_get_one(path_with: Callable[[str], dict[str, str]], environment: str) -> None:
    caller = {"PATH": path_with("echo 2.1.250")["PATH"]}
    with pytest.raises(MachineError, match="export ANTHROPIC_API_KEY, or CLAUDE_CODE_OAUTH_TOKEN"):
        agent().prepare(environment, caller, scripted=False)
    agent().prepare(environment, caller, scripted=True)
    for name in ("ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"):
        agent().prepare(environment, {**caller, name: "k"}, scripted=False)


@pytest.mark.parametrize(
    ("made", "environment", "says"),
    [
        (agent(type="codex"), "docker", "written for codex"),
        (agent(network="none"), "docker", "use sandbox.network: model"),
        (agent(network="none"), "harbor", "use sandbox.network: model"),
    ],
)
def test_what_cannot_work_is_the_authors_error_before_the_job(
    made: ClaudeCodeAgent, environment: str, says: str
) -> None:
    with pytest.raises(AuthorError, match=says):
        made.prepare(environment, {"ANTHROPIC_API_KEY": "k"}, scripted=False)


def places(sealed: bool) -> Places:
    return Places(
        workspace=Path("/w"), home=Path("/opt/harbor-pack"), settings=Path("/s"), transcript=Path("/t"),
        solution=Path("/x"), instruction=Path("/i"), mcp_config=Path("/m"), sealed=sealed,
    )  # fmt: skip


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
    assert ("--plugin-dir /opt/harbor-pack/layer/plugins/docs" in line) is not sealed
    assert "--setting-sources" not in line
    assert "CLAUDE_CONFIG_DIR" not in launch.env
    assert launch.stdin == Path("/i")


def test_the_version_of_images_is_known_without_one() -> None:
    assert agent().version == PROGRAM.pinned_version()
    assert PROGRAM.pinned_version().count(".") == 2


def test_an_error_of_it_ends_the_command_without_a_traceback() -> None:
    with pytest.raises(HarborPackError):
        agent().prepare("local", {"PATH": ""}, scripted=False)
