"""Claude Code itself plays the recordings of the examples: the decisions are those that the agent `replay` gets."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.environments.base import RunOptions, read_trials, trial_dir
from harbor_tasks.environments.evidence import json_lines
from harbor_tasks.environments.jobs import run_job
from harbor_tasks.policy.tools import REACHING
from harbor_tasks.resources import resource
from harbor_tasks.results.collect import collect_job
from harbor_tasks.results.transcript import ToolCall, read_transcript
from harbor_tasks.tasks.build import build
from harbor_tasks.tasks.manifest import read_manifest

pytestmark = pytest.mark.claude

EXAMPLES = sorted(path.parent.name for path in resource("examples").glob("*/eval.yaml"))
Calls = dict[tuple[str, int], ToolCall]
REMOVED = "<tool_use_error>Error: No such tool available: "
"""A tool that a rule denies as a whole is not offered, so a call of it is none of a tool."""


@pytest.fixture(scope="module", params=EXAMPLES)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, claude_bin: Path) -> Iterator[Path]:
    """An example, built; the program is on PATH, the user's key and login are not there."""
    out = build(resource("examples", request.param), tmp_path_factory.mktemp("built") / "out").out
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{claude_bin}{os.pathsep}{os.environ['PATH']}")
        for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_BASE_URL"):
            patch.delenv(name, raising=False)
        yield out


@pytest.fixture(scope="module")
def replayed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Calls:
    """What the agent `replay` makes of the example."""
    return calls(played(built, tmp_path_factory.mktemp("jobs"), "replay", "local"))


@pytest.fixture(scope="module")
def job_here(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The job of the program on this machine."""
    return played(built, tmp_path_factory.mktemp("jobs"), "claude-code", "local")


def played(built: Path, jobs: Path, agent: str, environment: str) -> Path:
    """A job in which every case scored 1."""
    job = run_job(built, RunOptions(environment, agent, parallel=2, jobs_dir=jobs, scripted=agent != "replay"))
    assert [(trial.case_id, trial.reward, trial.error) for trial in read_trials(job) if trial.reward != 1] == []
    assert collect_job(job).exit_code == 0
    return job


def calls(job: Path) -> Calls:
    """Each call of a job by case and number."""
    found = {}
    for trial in read_trials(job):
        folder = trial_dir(job, trial.id)
        seen = read_transcript(folder / "transcript.jsonl", folder / "interceptions.jsonl")
        assert (seen.not_logged, seen.changed, seen.not_seen) == ((), (), ())
        found.update({(trial.case_id, number): call for number, call in enumerate(seen.calls)})
    return found


def plain(given: dict[str, Any]) -> dict[str, Any]:
    """An input in which a number in quotes is that number."""
    return {key: float(value) if re.fullmatch(r"-?\d+(\.\d+)?", str(value)) else value for key, value in given.items()}


def assert_same(replayed: Calls, real: Calls) -> None:
    """The program has the same calls, with the same decision and reason."""
    assert set(replayed) == set(real)
    for place, call in real.items():
        other = replayed[place]
        # a number in quotes becomes one where the tool's schema asks for a number, before any hook sees it
        assert (call.name, plain(call.input)) == (other.name, plain(other.input)), place
        if not (other.decision == "deny" and other.tier is None and str(call.result).startswith(REMOVED)):
            assert (call.decision, call.tier, call.answers) == (other.decision, other.tier, other.answers), place
        if call.logged and other.logged:
            assert call.reason == other.reason, place


def test_on_this_machine(replayed: Calls, job_here: Path) -> None:
    assert_same(replayed, calls(job_here))


@pytest.mark.engine
def test_in_sealed_containers(
    built: Path, replayed: Calls, tmp_path: Path, base_image: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setenv("HARBOR_PACK_BASE", base_image)
    before = images()
    try:
        assert_same(replayed, calls(played(built, tmp_path, "claude-code", "docker")))
    finally:
        for name in {read_manifest(built).image} & (images() - before):
            subprocess.run(["docker", "rmi", "--force", name], capture_output=True, check=True)


def images() -> set[str]:
    command = ["docker", "images", "--format", "{{.Repository}}:{{.Tag}}"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def test_the_program_offers_the_tools_of_the_routes_but_for_those_that_a_rule_removed(
    built: Path, job_here: Path
) -> None:
    removed = {rule for rule in read_manifest(built).permissions.deny if "(" not in rule}
    for path in job_here.rglob("model.jsonl"):
        offered = set(next(line for line in json_lines(path) if line["kind"] == "turn")["tools"])
        assert not removed & offered
        assert {"Bash", "Read", "Write", "Edit", "Skill", "Agent"} - removed <= offered & set(REACHING["claude-code"])
