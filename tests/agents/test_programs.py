"""What claude-code and codex need of this machine before a job: their program, in a version that says so, and a key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from harbor_tasks.agents import claude_code, codex
from harbor_tasks.agents.programs import Program
from harbor_tasks.errors import AuthorError, HarborPackError, MachineError

from . import kit


@dataclass(frozen=True)
class Case:
    """An agent, its program, what that says of its version, and the keys that it takes."""

    agent: Callable[..., claude_code.ClaudeCodeAgent | codex.CodexAgent]
    program: Program
    says: str
    version: str
    how: str
    key: str
    other_keys: tuple[str, ...]
    no_key: str

    @property
    def name(self) -> str:
        return self.program.name

    @property
    def caller(self) -> dict[str, str]:
        """The variables of somebody who has a key."""
        return {self.key: "k"}


CLAUDE = Case(
    kit.claude_code, claude_code.PROGRAM, "2.1.250 (Claude Code)", "2.1.250", r"npm install -g .*@2\.\d+\.\d+",
    "ANTHROPIC_API_KEY", ("ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
    "export ANTHROPIC_API_KEY, or CLAUDE_CODE_OAUTH_TOKEN",
)  # fmt: skip
CODEX = Case(
    kit.codex, codex.PROGRAM, "codex-cli 0.172.1", "0.172.1", r"npm install -g .*@0\.\d+\.\d+",
    "OPENAI_API_KEY", ("CODEX_API_KEY",), r"export OPENAI_API_KEY \(a login of yours, `codex login`, is not used\)",
)  # fmt: skip
PathWith = Callable[[Case, str], str]

pytestmark = pytest.mark.parametrize("case", [CLAUDE, CODEX], ids=lambda case: case.name)


@pytest.fixture
def path_with(on_path: Callable[[str, str], str]) -> PathWith:
    """The PATH with a program of the agent's name that says this when it is asked for its version."""
    return lambda case, says: on_path(case.name, says)


def test_its_program_and_version_are_those_on_path(case: Case, path_with: PathWith) -> None:
    found = case.agent(kit.QUESTIONS)
    found.prepare("local", {**case.caller, "PATH": path_with(case, f"echo '{case.says}'")}, scripted=False)
    assert found.version == case.version


@pytest.mark.parametrize(
    ("says", "what"), [("exit 1", "does not run"), ("echo hello", "does not say its version, but 'hello'")]
)
def test_a_program_that_is_something_else_is_said(case: Case, path_with: PathWith, says: str, what: str) -> None:
    with pytest.raises(MachineError, match=what):
        case.agent().prepare("local", {**case.caller, "PATH": path_with(case, says)}, scripted=True)


def test_no_program_is_said_with_how_to_get_it(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARBOR_PACK_CACHE", "/nowhere")
    with pytest.raises(MachineError, match=rf"no `{case.name}` on PATH, nor in .*; {case.how}, or .*agents\.sh"):
        case.agent().prepare("local", {**case.caller, "PATH": "/nowhere"}, scripted=False)


@pytest.mark.parametrize("environment", ["local", "docker"])
def test_no_key_is_said_with_how_to_get_one(case: Case, path_with: PathWith, environment: str) -> None:
    caller = {"PATH": path_with(case, f"echo {case.version}")}
    with pytest.raises(MachineError, match=case.no_key):
        case.agent().prepare(environment, caller, scripted=False)
    case.agent().prepare(environment, caller, scripted=True)
    for name in (case.key, *case.other_keys):
        case.agent().prepare(environment, {**caller, name: "k"}, scripted=False)


def test_an_eval_for_another_program_or_without_a_network_is_the_authors_error(case: Case) -> None:
    other = next(one for one in ("claude-code", "codex") if one != case.program.agent)
    with pytest.raises(AuthorError, match=f"written for {other}"):
        case.agent(type=other).prepare("docker", case.caller, scripted=False)
    for environment in ("docker", "harbor"):
        with pytest.raises(AuthorError, match=r"use sandbox\.network: model"):
            case.agent(network="none").prepare(environment, case.caller, scripted=False)


def test_the_version_of_images_is_known_without_one(case: Case) -> None:
    assert case.agent().version == case.program.pinned_version()
    assert case.program.pinned_version().count(".") == 2


def test_an_error_of_it_ends_the_command_without_a_traceback(case: Case) -> None:
    with pytest.raises(HarborPackError):
        case.agent().prepare("local", {"PATH": ""}, scripted=False)
