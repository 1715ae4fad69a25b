"""Evals for real Harbor, in sealed containers made from the base image; and what became of a job."""

from __future__ import annotations

import json
import secrets
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from harbor_tasks.environments.base import Event, RunOptions, Trial, read_job, read_trials, trial_dir
from harbor_tasks.environments.jobs import run_job
from harbor_tasks.tasks.build import build
from harbor_tasks.tasks.manifest import read_manifest
from tests.kit import SOLVE, small_eval, write_files


@dataclass
class Desk:
    """A small eval: written, built, run by Harbor."""

    folder: Path
    harbor: Path
    spec: dict[str, Any] = field(default_factory=lambda: small_eval(f"desk {secrets.token_hex(3)}"))

    @property
    def out(self) -> Path:
        """The built tasks."""
        return self.folder / "out"

    def case(self, name: str, *, solve: str = SOLVE, replay: Any = None, **files: str) -> None:
        """A case; other keywords are more of its files."""
        case = self.folder / "eval" / "cases" / name
        written = {"input.yaml": "prompt: do it\n", "solution/solve.sh": solve, **files}
        if replay is not None:
            written["replay.yaml"] = yaml.safe_dump(replay)
        write_files(case, written)

    def handlers(self, *handlers: dict[str, Any]) -> None:
        """The author's own tool_handlers.yaml."""
        (self.folder / "eval").mkdir(exist_ok=True)
        (self.folder / "eval" / "tool_handlers.yaml").write_text(yaml.safe_dump({"handlers": list(handlers)}))

    def build(self) -> Path:
        """Build it; the folder of tasks."""
        (self.folder / "eval" / ".git").mkdir(parents=True, exist_ok=True)
        (self.folder / "eval" / "eval.yaml").write_text(json.dumps(self.spec))
        return build(self.folder / "eval", self.out).out

    def run(self, agent: str = "oracle", *, harbor: Path | None = None, **options: Any) -> Ran:
        """Run what was built, two trials at a time."""
        events: list[Event] = []
        asked = {"parallel": 2, "jobs_dir": self.folder / "jobs", "harbor": harbor or self.harbor, **options}
        job = run_job(self.out, RunOptions("harbor", agent, **asked), on_event=events.append)
        return Ran(job, events)

    def forget(self) -> None:
        """Remove the eval's images."""
        if self.out.exists():
            remove_images(images(self.out))


@dataclass
class Ran:
    """A job that was run."""

    folder: Path
    events: list[Event]

    @property
    def trials(self) -> Mapping[str, Trial]:
        """By case."""
        return {trial.case_id: trial for trial in read_trials(self.folder)}

    def kept(self, case: str, name: str) -> Path:
        """A file of a trial's folder."""
        return trial_dir(self.folder, self.trials[case].id) / name


def wrapper(folder: Path, harbor: Path, before: str) -> Path:
    """A `harbor` that does something to the job's folder (``$job``) first, unless it is only asked or tried."""
    script = f"""#!/bin/sh
for word in "$@"; do
    case $word in
    --version | --dry-run) exec {harbor} "$@" ;;
    */config.json) job=${{word%/*}} ;;
    esac
done
{before}
exec {harbor} "$@"
"""
    path = folder / "harbor-that-meddles"
    path.write_text(script)
    path.chmod(0o755)
    return path


def left_behind(job: Path) -> list[str]:
    """What of a job is still on the engine: by its label, and by the name that Harbor gives to what it makes."""
    found = []
    for kind, form in (("ps --all", "{{.Names}}"), ("network ls", "{{.Name}}")):
        listed = subprocess.run(
            ["docker", *kind.split(), "--format", form + " {{.Labels}}"], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        ids = [one.trial for one in read_job(job).expected]
        found += [line for line in listed if job.name in line or any(trial in line for trial in ids)]
    return found


def images(built: Path) -> set[str]:
    """The engine's images of an eval; none where it uses an image of its own as it is."""
    name = read_manifest(built).image.partition(":")[0]
    if not name.startswith("harbor-pack/"):
        return set()
    listed = subprocess.run(["docker", "images", "-q", name], capture_output=True, text=True, check=True)
    return set(listed.stdout.split())


def remove_images(ids: set[str]) -> None:
    """Remove images, whatever they are tagged."""
    if ids:
        subprocess.run(["docker", "rmi", "--force", *ids], capture_output=True, check=True)


def verdicts(job: Path) -> dict[str, Any]:
    """By case: the reward, and each judge's value."""
    return {
        trial.case_id: (trial.status, trial.reward, {judge.name: (judge.status, judge.value) for judge in trial.judges})
        for trial in read_trials(job)
    }


MakeDesk = Callable[[], Desk]
