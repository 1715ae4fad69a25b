"""Agents by name: what they need of a task, and how they are started."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.agents.base import Places, make_agent
from harbor_tasks.agents.oracle import OracleAgent
from harbor_tasks.agents.replay import ReplayAgent
from harbor_tasks.errors import AuthorError
from harbor_tasks.evalspec.schema import Runner, Sandbox


class Manifest:
    """As much of a build as the agent reads."""

    def __init__(self, **runner: Any) -> None:
        self.runner = Runner(**runner)
        self.plugins = ("docs-tools",)


def replay(**runner: Any) -> ReplayAgent:
    return ReplayAgent(Manifest(**runner))  # type: ignore[arg-type]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize("agent", ["claude-code", "codex"])
def test_an_agent_with_a_model_does_not_run_without_a_network(agent: str) -> None:
    manifest: Any = Manifest(type=agent)
    manifest.sandbox = Sandbox(network="none")
    for environment, scripted in (("local", False), ("docker", False), ("docker", True)):
        with pytest.raises(AuthorError, match=r"sandbox.network is none, but the agent .* needs its model"):
            make_agent(agent, manifest).prepare(environment, {}, scripted=scripted)
    make_agent("oracle", manifest).prepare("docker", {}, scripted=False)


def test_a_step_takes_its_own_solution_or_the_tasks(tmp_path: Path) -> None:
    assert OracleAgent().lacks(tmp_path, ()) == "no solution/solve.sh"
    write(tmp_path / "steps" / "one" / "solution" / "solve.sh", "true")
    assert OracleAgent().lacks(tmp_path, ("one", "two")) == "no solution/solve.sh for the step two"
    write(tmp_path / "solution" / "solve.sh", "true")
    assert OracleAgent().lacks(tmp_path, ("one", "two")) is None


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "no replay.yaml"), ("[", "cannot be played"), ('[{"tool": "Bash"}]', "entry 1"), ("[]", None)],
)
def test_a_script_that_cannot_be_played_is_known_beforehand(
    tmp_path: Path, content: str | None, says: str | None
) -> None:
    if content is not None:
        write(tmp_path / "solution" / "replay.json", content)
    lack = replay().lacks(tmp_path, ())
    assert (lack is None) is (says is None)
    assert says is None or says in str(lack)


def test_a_script_of_steps_must_have_each(tmp_path: Path) -> None:
    write(tmp_path / "solution" / "replay.json", json.dumps({"steps": {"one": []}}))
    assert replay().lacks(tmp_path, ("one",)) is None
    assert "two" in str(replay().lacks(tmp_path, ("one", "two")))


def test_the_replay_agent_is_told_mode_plugins_servers_and_step(tmp_path: Path) -> None:
    places = Places(
        workspace=Path("/w"), home=Path("/h"), settings=Path("/h/settings.json"), transcript=Path("/t"),
        solution=Path("/s"), instruction=Path("/i"), mcp_config=Path("/m"), step="one",
    )  # fmt: skip
    argv = " ".join(replay(permission_mode="dontAsk").launch(places).argv)
    for words in (
        "--permission-mode dontAsk",
        "--plugin-dir /h/layer/plugins/docs-tools",
        "--mcp-config /m",
        "--step one",
    ):
        assert words in argv
    assert "--permission-mode bypassPermissions" in " ".join(replay().launch(places).argv)
