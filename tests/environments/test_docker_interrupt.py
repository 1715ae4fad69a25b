"""Nothing stays on the engine: after Ctrl-C twice, after SIGTERM, and, by `clean`, after SIGKILL."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.environments.base import read_job, read_trials
from harbor_tasks.environments.cleaning import clean

pytestmark = pytest.mark.engine
SECONDS = 30.0
"""How long the engine may take to be empty again."""


def containers(*filters: str) -> list[str]:
    """Ids of all containers with these filters, ended ones too."""
    asked = ["docker", "ps", "-aq", "--no-trunc", *(word for one in filters for word in ("--filter", one))]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()


@pytest.fixture
def bystander(base_image: str) -> Iterator[str]:
    """A container of somebody else's, and one of another job of harbor-pack's that runs on another machine."""
    started = []
    for labels in (
        [],
        ["--label", "harbor-pack=1", "--label", "harbor-pack.job=other", "--label", "harbor-pack.host=x"],
    ):
        asked = ["docker", "run", "-d", *labels, base_image, "sleep", "600"]
        started.append(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())
    yield " ".join(started)
    subprocess.run(["docker", "rm", "-f", *started], capture_output=True, check=True)


@pytest.fixture
def sleepers(engine_author: Callable[[], Any], base_image: str) -> Any:
    """An eval of three cases that take very long unless NAP says otherwise, in the plain base image."""
    author = engine_author()
    author.spec["execution"]["env"] = {"NAP": "${NAP:-600}"}
    author.spec["sandbox"] = {"image": base_image, "sealed": False}
    for name in ("a", "b", "c"):
        author.case(name, solve="trap '' TERM INT HUP; sleep $NAP; sleep $NAP; echo yes > done.txt")
    author.build()
    return author


def start(author: Any) -> tuple[subprocess.Popen[bytes], Path]:
    """`run -n 3` as a user starts it; returns when all three agents are at work."""
    command = [sys.executable, "-m", "harbor_tasks.cli", "run", "--env", "docker", "--agent", "oracle", "-n", "3"]
    process = subprocess.Popen(
        [*command, "--jobs-dir", str(author.jobs), str(author.folder / "out")],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        for job in author.jobs.glob("desk-*"):
            if len([one for one in containers(f"label=harbor-pack.job={job.name}") if asleep(one)]) == 3:
                return process, job
        time.sleep(0.2)
    process.kill()
    raise AssertionError(f"no three trials: {process.communicate()[1].decode()}")


def asleep(container: str) -> bool:
    """Does the agent's sleep run in it?"""
    seen = subprocess.run(["docker", "top", container], capture_output=True, text=True, check=False)
    return "sleep 600" in seen.stdout


def wait_until(condition: Callable[[], bool], seconds: float = SECONDS) -> bool:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.2)
    return True


@pytest.mark.parametrize(("first", "second"), [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM, None)])
def test_an_interrupted_job_leaves_nothing_and_others_alone(
    sleepers: Any, bystander: str, first: signal.Signals, second: signal.Signals | None
) -> None:
    process, job = start(sleepers)
    process.send_signal(first)
    if second is not None:
        process.send_signal(second)
    _, said = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert f"--env docker --agent oracle --resume {job}" in said.decode()
    assert containers(f"label=harbor-pack.job={job.name}") == []
    assert read_job(job).status == "interrupted"
    assert [trial.status for trial in read_trials(job)] == ["interrupted"] * 3
    assert set(bystander.split()) <= set(containers("status=running"))


def test_clean_removes_what_a_killed_run_left_and_never_a_running_jobs(sleepers: Any, bystander: str) -> None:
    killed, left = start(sleepers)
    killed.kill()
    killed.communicate()
    label = f"label=harbor-pack.job={left.name}"
    # the agents end with it: nothing works on, unseen and paid for
    assert wait_until(lambda: containers(label, "status=running") == [])
    assert len(containers(label)) == 3
    assert [trial.status for trial in read_trials(left)] == ["vanished"] * 3
    running, alive = start(sleepers)
    try:
        report = clean(jobs_dir=sleepers.jobs)
        assert containers(label) == []
        assert len([line for line in report.removed if line.startswith("container")]) >= 3
        assert f"job {alive.name}: is running" in report.left
        assert "job other: is running on another machine (x)" in report.left
        assert len(containers(f"label=harbor-pack.job={alive.name}", "status=running")) == 3
        assert set(bystander.split()) <= set(containers("status=running"))
        named = clean(alive.name, jobs_dir=sleepers.jobs)
        assert (named.removed, named.left) == ([], [f"job {alive.name}: is running"])
    finally:
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=SECONDS)
    assert containers(f"label=harbor-pack.job={alive.name}") == []


def test_a_killed_run_is_gone_on_with(sleepers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    killed, job = start(sleepers)
    killed.kill()
    killed.communicate()
    monkeypatch.setenv("NAP", "0")
    out = sleepers.build()
    ran = sleepers.run_built(out, "oracle", environment="docker", resume=job, parallel=3)
    assert [trial.reward for trial in ran.trials] == [1, 1, 1]
    assert containers(f"label=harbor-pack.job={job.name}") == []


def test_clean_is_a_command_that_reports(sleepers: Any) -> None:
    (sleepers.jobs / "job-x" / "trials" / "t1").mkdir(parents=True)
    note = sleepers.jobs / "job-x" / "trials" / "t1" / "scratch"
    note.write_text("/tmp/hp-not-there-any-more")
    command = [sys.executable, "-m", "harbor_tasks.cli", "clean", "--json", "--job", "job-x"]
    done = subprocess.run(
        [*command, "--jobs-dir", str(sleepers.jobs)], capture_output=True, text=True, check=True, env=os.environ
    )
    assert json.loads(done.stdout) == {"removed": ["folder /tmp/hp-not-there-any-more"], "left": []}
    assert not note.exists()
