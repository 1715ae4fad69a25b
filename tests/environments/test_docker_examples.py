"""The examples, sealed in containers: reward 1 with both agents, and of each call the same as on this machine."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harbor_tasks.environments.base import RunOptions, read_job, read_trials
from harbor_tasks.environments.jobs import run_job
from harbor_tasks.resources import resource
from harbor_tasks.tasks.build import build
from harbor_tasks.tasks.manifest import read_manifest
from tests.kit import what_became

pytestmark = pytest.mark.engine

EXAMPLES = sorted(path.parent.name for path in resource("examples").glob("*/eval.yaml"))


@pytest.fixture(scope="module", params=EXAMPLES)
def example(
    request: pytest.FixtureRequest, base_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """The example, built; its image is made from the base image that needs no registry, and goes with the module."""
    folder = tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARBOR_PACK_BASE", base_image)
        built = build(resource("examples", request.param), folder / "out").out
        known = images(built)
        yield built
        for image in images(built) - known:
            subprocess.run(["docker", "rmi", "-f", image], capture_output=True, check=True)


def images(built: Path) -> set[str]:
    """The engine's images of this eval."""
    name = read_manifest(built).image.partition(":")[0]
    return set(
        subprocess.run(["docker", "images", "-q", name], capture_output=True, text=True, check=True).stdout.split()
    )


def run(built: Path, agent: str, environment: str) -> Path:
    job = run_job(built, RunOptions(environment, agent, parallel=2, jobs_dir=built.parent / environment / agent))
    faults = {trial.case_id: trial.error.message for trial in read_trials(job) if trial.error is not None}
    assert faults == {}
    assert {trial.reward for trial in read_trials(job)} == {1.0}
    if environment == "docker":
        assert read_job(job).sealed
        for kind in (["ps", "-aq"], ["network", "ls", "-q"]):
            label = f"label=harbor-pack.job={job.name}"
            assert subprocess.run(["docker", *kind, "--filter", label], capture_output=True, check=True).stdout == b""
    return job


def test_every_solution_gets_reward_1(example: Path) -> None:
    run(example, "oracle", "docker")


def test_every_recording_gets_reward_1_and_the_same_decisions_as_on_this_machine(example: Path) -> None:
    sealed, here = what_became(run(example, "replay", "docker")), what_became(run(example, "replay", "local"))
    assert sealed == here
    assert any(decision != ("none",) for calls in sealed.values() for _tool, decision, _error in calls)
