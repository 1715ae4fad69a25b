"""One `harbor run`: its configuration, its process, and its trials as they finish."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import tomli_w

from harbor_tasks.environments.base import SandboxError, Stop, TrialPlan
from harbor_tasks.environments.harbor_command import Harbor, last_lines
from harbor_tasks.environments.harbor_results import HarborTrial, load, read_harbor_trial
from harbor_tasks.environments.plan import task_digest
from harbor_tasks.environments.records import read_toml
from harbor_tasks.environments.staging import copy_tree, remove_tree
from harbor_tasks.errors import display_path

JOB = "job"
"""The name of Harbor's job, and of its folder."""
LOG = "harbor.log"
_TICK = 0.2
_SETTLED = 1.0
"""Seconds after which Harbor has blacked out the keys in what it collected."""
ORDERLY = 3.0
"""Seconds after Ctrl-C in which Harbor may end its containers itself."""
PATIENCE = 10.0
"""Seconds after Ctrl-C until its process is ended."""
_PIDS = 512
_WITH_US = """
import ctypes, os, signal, sys
try:
    ctypes.CDLL(None).prctl(1, signal.SIGINT, 0, 0, 0)  # PR_SET_PDEATHSIG
except (OSError, AttributeError):  # not Linux
    pass
if os.getppid() != int(sys.argv[1]):
    sys.exit("harbor-pack has ended")
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Becomes Harbor, which then gets a Ctrl-C when harbor-pack is killed: it ends its machines, wherever they are."""


class Run(Protocol):
    """A job of Harbor's that is at work somewhere, in a folder of ours."""

    def write(
        self, plans: Sequence[TrialPlan], config: Mapping[str, Any], compose: Mapping[str, Any] | None,
        own: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:  # fmt: skip
        """Put in place what it works from."""

    def start(self) -> None:
        """Let it begin."""

    def watch(
        self, stop: Stop, started: Callable[[str], None], finished: Callable[[HarborTrial], None],
        abandon: Callable[[], None],
    ) -> str | None:  # fmt: skip
        """Until it has ended: tell of trials, by their id; what went wrong with the job as a whole."""

    def kill(self) -> None:
        """End it, if it still runs."""

    def clear(self) -> None:
        """Remove what is not kept."""


class JobFolder:
    """What a job of Harbor's works from: ``tasks/<trial>`` (copies), ``config.json``; its trials come to ``job/``."""

    folder: Path

    def write(
        self, plans: Sequence[TrialPlan], config: Mapping[str, Any], compose: Mapping[str, Any] | None,
        own: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:  # fmt: skip
        """Copy each trial's task to a place named after the trial: its name is all that the sandbox may show of it.

        ``own``: by trial, variables that its container alone gets. SandboxError when the copy is not the task of
        job.json.
        """
        tasks = self.folder / "tasks"
        for plan in plans:
            copy_tree(plan.task, tasks / plan.expected.trial)
            if task_digest(tasks / plan.expected.trial) != plan.expected.digest:
                raise SandboxError(f"{display_path(plan.task)} was changed since the job started")
            more = (own or {}).get(plan.expected.trial)
            if more:
                _add_variables(tasks / plan.expected.trial / "task.toml", more)
        data = {**config, "jobs_dir": str(self.folder), "job_name": JOB}
        data["tasks"] = [{"path": str(tasks / plan.expected.trial)} for plan in plans]
        if compose is not None:
            (self.folder / "compose.json").write_text(json.dumps(compose, indent=1), encoding="utf-8")
            environment = dict(data.get("environment") or {})
            others = environment.get("extra_docker_compose") or []
            environment["extra_docker_compose"] = [str(self.folder / "compose.json"), *others]
            data["environment"] = environment
        (self.folder / "config.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")

    def clear(self) -> None:
        """The copies of the tasks are not kept."""
        remove_tree(self.folder / "tasks")


@dataclass
class HarborRun(JobFolder):
    """A process of Harbor's that does the job; what it prints is in ``harbor.log``."""

    harbor: Harbor
    folder: Path
    env: Mapping[str, str]
    options: Sequence[str] = ()
    process: subprocess.Popen[bytes] | None = None
    _known: set[str] = field(default_factory=set)

    def start(self) -> None:
        """Start Harbor, away from the terminal: Ctrl-C reaches it from us alone."""
        config = self.folder / "config.json"
        command: list[str | Path] = [sys.executable, "-I", "-S", "-c", _WITH_US, str(os.getpid()), self.harbor.path]
        command += ["run", "--config", config, "--yes", "--quiet", *self.options]
        with (self.folder / LOG).open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=self.folder, env=dict(self.env), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def watch(
        self, stop: Stop, started: Callable[[str], None], finished: Callable[[HarborTrial], None],
        abandon: Callable[[], None],
    ) -> str | None:  # fmt: skip
        """Until Harbor has ended: tell of trials, by their id; what it complained of when its exit code is not 0.

        A trial with an exception is told of only at the end, since Harbor may try it again. ``abandon`` is called when
        the user wants the end and Harbor has not come to it in good order: whatever holds it up goes.
        """
        assert self.process is not None
        asked: float | None = None
        abandoned = False
        while self.process.poll() is None:
            self._tell(started, finished, final=False)
            if stop.wanted:
                now = time.monotonic()
                if asked is None:
                    asked = now
                    self._signal(signal.SIGINT)
                if not abandoned and (stop.now or now - asked > ORDERLY):
                    abandoned = True
                    abandon()
                if now - asked > (ORDERLY if stop.now else PATIENCE):
                    self.kill()
            time.sleep(_TICK)
        self._tell(started, finished, final=True)
        code = self.process.returncode
        if not code or stop.wanted:
            return None
        return f"harbor run ended with exit code {code}: {self.complaint()}; see {display_path(self.folder / LOG)}"

    def kill(self) -> None:
        """End Harbor and all that it started, if it still runs."""
        if self.process is not None and self.process.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def complaint(self) -> str:
        """The end of what Harbor printed."""
        try:
            text = (self.folder / LOG).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return "it printed nothing"
        found = re.findall(r"(?:^|[│\s])((?:[A-Z]\w*)?(?:Error|Exception)\b: .+)", text)
        return last_lines(found[-1]) if found else last_lines(text)

    def _signal(self, number: int) -> None:
        assert self.process is not None
        with contextlib.suppress(OSError):
            self.process.send_signal(number)

    def _tell(self, started: Callable[[str], None], finished: Callable[[HarborTrial], None], *, final: bool) -> None:
        for folder in self._trials():
            trial = trial_of(folder)
            if trial is None:
                continue
            if f"started {trial}" not in self._known:
                self._known.add(f"started {trial}")
                started(trial)
            if trial not in self._known and (final or _settled(folder)):
                found = read_harbor_trial(folder)
                if found is not None and (final or not found.exceptions):
                    self._known.add(trial)
                    finished(found)

    def _trials(self) -> Iterator[Path]:
        with contextlib.suppress(OSError):
            yield from sorted(path for path in (self.folder / JOB).iterdir() if (path / "config.json").is_file())


def _add_variables(path: Path, more: Mapping[str, str]) -> None:
    data = read_toml(path)
    environment = data.setdefault("environment", {})
    environment["env"] = {**environment.get("env", {}), **more}
    for table in (data, *data.get("steps", [])):  # where a script stands in for the model, judges are not paid for
        table.get("verifier", {}).pop("env", None)
    path.write_text(tomli_w.dumps(data), encoding="utf-8")


def trial_of(folder: Path) -> str | None:
    """The id of our trial that Harbor's folder belongs to: the name of its task's copy."""
    path = (load(folder / "config.json").get("task") or {}).get("path")
    return Path(path).name if isinstance(path, str) else None


def compose_overlay(
    labels: Mapping[str, str], variables: Sequence[str], capabilities: Sequence[str] | None
) -> dict[str, Any]:
    """What Harbor's containers on a container engine get besides: the job's labels, and the limits of --env docker.

    ``variables`` are those of [environment].env: with an overlay Harbor sets them in its compose process only, and a
    name without a value takes it from there. ``capabilities`` are all that root keeps, None what the engine gives.
    """
    main: dict[str, Any] = {"labels": dict(labels), "pids_limit": _PIDS}
    if variables:
        main["environment"] = sorted(variables)
    if capabilities is not None:
        main |= {"cap_drop": ["ALL"], "cap_add": list(capabilities)}
    return {"services": {"main": main}, "networks": {"default": {"labels": dict(labels)}}}


def _settled(folder: Path) -> bool:
    try:
        return time.time() - (folder / "result.json").stat().st_mtime > _SETTLED
    except OSError:
        return False
