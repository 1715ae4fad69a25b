"""The environment `harbor` by a server: a `harbor serve` on this machine runs the built tasks, for a whole team.

It is `--env harbor` with another way to submit and to follow (harbor.py). The server takes tasks from its own disk, so
this is for its own machine; variables and model keys are those of the server's environment, not of the caller's.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from harbor_tasks.environments.base import Job, RunOptions, Stop, Trial, TrialError, TrialPlan, new_trial, now
from harbor_tasks.environments.engine import find_engine
from harbor_tasks.environments.harbor import RUNS, HarborEnvironment
from harbor_tasks.environments.harbor_api import SUBMISSION_SECONDS, ServerApi, ServerError
from harbor_tasks.environments.harbor_command import (
    check_kind,
    check_options,
    environ,
    find_harbor,
    kind_of,
    last_lines,
)
from harbor_tasks.environments.harbor_guard import named_variables, require_harmless
from harbor_tasks.environments.harbor_kinds import DEFAULT_KIND
from harbor_tasks.environments.harbor_server_run import RECORD, ServerRun
from harbor_tasks.environments.plan import old_job, require_place
from harbor_tasks.environments.scratch import scratch_folder
from harbor_tasks.environments.variables import UnsetError, fill_in
from harbor_tasks.errors import AuthorError, MachineError, Problem, Where
from harbor_tasks.resources import resource
from harbor_tasks.tasks.manifest import BuildManifest

_SECONDS = 120
_HIDDEN = "****"
"""What Harbor shows in place of a secret."""


def check_here(options: RunOptions) -> None:
    """What speaks against a job at a server and is known without it and without the tasks: an error of ours."""
    check_options(options.harbor_options)
    if options.resume is not None:
        old_job(options, options.agent, scripted=False)
    else:
        require_place(options.jobs_dir, "--jobs-dir")
    if options.harbor is not None or options.harbor_options:
        find_harbor(options.harbor, os.environ)
    if kind_of(options.harbor_options) == DEFAULT_KIND:
        find_engine(options.host).close()


class HarborServerEnvironment(HarborEnvironment):
    """Trials of one build, run by a Harbor server."""

    def __init__(
        self, source: Path, manifest: BuildManifest, caller: Mapping[str, str], options: RunOptions,
        tasks: Mapping[str, Path],
    ) -> None:  # fmt: skip
        """``tasks``: the directories that the job runs, by case."""
        super().__init__(source, manifest, caller, options, tasks)
        assert options.server is not None
        self._api = ServerApi(options.server, options.server_key)
        self._say: Callable[[str], None] = lambda _: None
        self._at: ServerRun | None = None
        self._taken: dict[str, Any] = {}
        self._earlier: list[ServerRun] = []

    def prepare(self) -> None:
        """The server answers, takes our key and the job, and this machine has an engine for the eval's image."""
        check_options(self._options)
        require_harmless(self._source, self._manifest, self._tasks, at_server=True)
        self._api.check()
        names = named_variables(self._manifest)
        if names:
            self._notes.append(f"{', '.join(f'${name}' for name in names)}: taken from the environment of harbor serve")
        note = check_kind(self._kind, sealed=self.sealed)
        if note is not None:
            self._notes.append(f"warning: {note}")
        self._check_job()
        if self._kind == DEFAULT_KIND:
            self._engine = find_engine(self._host)

    def _check_job(self) -> None:
        """The server finds every task, and nothing wrong with the job."""
        tasks = [{"path": str(path)} for path in self._tasks.values()]
        try:
            config = {**self._config(1), "tasks": tasks}
            answer = self._api.ask(
                "POST", "/jobs/submit", {"config": config, "dry_run": True}, seconds=SUBMISSION_SECONDS
            )
        except ServerError as error:
            raise self._refused(error) from None
        if answer.get("n_trials") != len(tasks):
            raise MachineError(f"{self._api.url}: of {len(tasks)} tasks it would run {answer.get('n_trials')}")

    def _refused(self, error: ServerError) -> AuthorError | MachineError:
        """What the server has against the job, and whose it is to mend."""
        words = error.words
        case = next((case for case, path in self._tasks.items() if str(path) in words), None)
        if case is not None and "not found" in words:
            return MachineError(
                f"the server at {self._api.url} does not find {self._tasks[case]}: it takes tasks from its own disk. "
                "Run this on the server's machine, and let its user read the folder"
            )
        if "harbor_replay" in words:
            return MachineError(
                f"the server at {self._api.url} does not know harbor-pack's agents ({words}); start harbor serve with "
                f"PYTHONPATH={agents_folder()}"
            )
        if error.status >= 500:
            return MachineError(f"the server at {self._api.url} fails: {error}")
        where = Where(None if case is None else self._tasks[case], case=case)
        return AuthorError([Problem(f"the server does not take the job: {words}", where, code="harbor")])

    def model_host(self) -> str:
        """A script belongs to the process that runs it, a server's job does not."""
        raise AuthorError("--scripted works with --env local, docker and harbor, not at a server")

    def _say_who(self, say: Callable[[str], None]) -> None:
        self._say = say
        say(f"harbor server {self._api.url}")

    def _sweep(self, until: float = 0.0) -> None:
        """As for `harbor run`; but what an earlier process submitted may be at work still, and bears the same label."""
        if not any(run.goes_on for run in self._earlier):
            super()._sweep(until)

    def _new_run(self, place: Path, job: Job) -> ServerRun:
        self._at = ServerRun(place, self._api, job.id, self._say)
        return self._at

    def run_all(
        self, plans: Sequence[TrialPlan], parallel: int, stop: Stop, started: Callable[[TrialPlan], None],
        finished: Callable[[TrialPlan, Trial], None],
    ) -> list[str]:  # fmt: skip
        """As `HarborEnvironment.run_all`; first what the server did of this job while nobody followed it is fetched."""
        assert self._job is not None
        left = {plan.expected.trial: plan for plan in plans}
        faults = []
        for record in sorted((self._job[1] / RUNS).glob(f"*/{RECORD}"), key=lambda path: int(path.parent.name)):
            if left and not stop.wanted:
                run = self._at = ServerRun(record.parent, self._api, self._job[0].id, self._say)
                self._earlier.append(run)
                fault = self._follow(run, partial(run.again, left), left, stop, started, finished)
                if fault is not None:
                    faults.append(fault)
        if not left or stop.wanted:
            return faults
        return [*faults, *super().run_all(list(left.values()), parallel, stop, started, finished)]

    def _unfinished(self, plan: TrialPlan, fault: str | None) -> Trial:
        """The server, or the way to it, failed the trial; without a fault nothing is known of it."""
        if fault is None:
            return self._vanished(plan, "the server left nothing of it")
        blank = new_trial(plan.expected, plan.agent.name, self.name, sealed=False)
        error = TrialError(kind="environment", message=fault)
        return blank.model_copy(update={"status": "error", "error": error, "started": now(), "finished": now()})

    def _version(self) -> str:
        return (self._at.version if self._at is not None else "") or "unknown"

    def _config(self, parallel: int, variables: Mapping[str, str] | None = None) -> dict[str, Any]:
        config = super()._config(parallel)
        if self._options:
            self._taken = self._taken or self._with_options(config)
            config = {**self._taken, "n_concurrent_trials": parallel}
        if variables:
            for agent in config["agents"]:
                agent["env"] = {**(agent.get("env") or {}), **variables}
        return config

    def _with_options(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """What `harbor run` makes of its own options: the server knows configurations only."""
        harbor = find_harbor(self._named, self._caller)
        with scratch_folder() as folder:
            path = folder / "config.json"
            tasks = [{"path": str(task)} for task in self._tasks.values()]
            path.write_text(json.dumps({**config, "tasks": tasks}), encoding="utf-8")
            command: list[str | Path] = [
                harbor.path,
                "run",
                "--config",
                path,
                "--print-config",
                "--yes",
                *self._options,
            ]
            try:
                done = subprocess.run(
                    command, env=environ(self._caller, {}), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                    errors="replace", timeout=_SECONDS, check=False,
                )  # fmt: skip
            except (OSError, subprocess.SubprocessError) as error:
                raise MachineError(f"{harbor.path} run --print-config does not work: {error}") from None
        try:
            found = json.loads(done.stdout)
        except ValueError:
            found = None
        if done.returncode or not isinstance(found, dict):
            said = last_lines(done.stderr or done.stdout)
            raise AuthorError([Problem(f"Harbor does not take its options: {said}", Where(), code="harbor")])
        if _HIDDEN in json.dumps(found):
            raise AuthorError(
                "a secret in Harbor's options would not reach the server; set the variable where harbor serve runs, "
                "and name it: --ae 'NAME=${NAME}'"
            )
        return {name: value for name, value in found.items() if name not in ("tasks", "jobs_dir", "job_name")}

    def _with_dollar(self, variables: Mapping[str, str]) -> dict[str, str]:
        """As for `harbor run`, but the server fills the references in, from its own environment."""
        return {name: text for name, text in variables.items() if "$" in _without_caller(text)}


def _without_caller(text: str) -> str:
    try:
        return fill_in(text, {})
    except UnsetError:
        return ""


def agents_folder() -> str:
    """The folder that `harbor serve` needs in its PYTHONPATH for harbor-pack's own agents."""
    return str(resource("interceptor"))
