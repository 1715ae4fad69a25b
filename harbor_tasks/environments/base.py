"""Trials and jobs as data, where they lie on disk, and the contract of an environment.

A job's folder (DESIGN.md, "Verifier, judges, reward, job")::

    jobs/<id>/job.json  trials/<opaque>/{trial.json, transcript.jsonl, interceptions.jsonl, verifier/, workspace/,
                        home/, agent.log, verifier.log}
              tasks/    (the built tasks of a job on an eval)

With steps, ``steps/<step>/`` in the trial's folder holds each step's transcript, run.json, logs and verifier/; what
lies at the top is the whole transcript and the last step's verifier.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field

from harbor_tasks.agents.base import Agent
from harbor_tasks.environments.lock import is_running
from harbor_tasks.environments.records import read_record, why_unreadable
from harbor_tasks.environments.scripted import ScriptedModel
from harbor_tasks.errors import AuthorError, MachineError, display_path

TrialStatus = Literal["pending", "scored", "unjudged", "error", "interrupted", "vanished"]
ErrorKind = Literal["agent", "environment", "verifier", "timeout", "tampered", "record"]
"""``record``: its trial.json cannot be read, so that nothing is known of it; it is never written."""
JobStatus = Literal["running", "finished", "interrupted", "partial"]
"""``partial``: it cost what it may, and trials were not started."""
FINISHED: frozenset[TrialStatus] = frozenset({"scored", "unjudged"})
"""What `--resume` keeps: the agent worked and the verifier reported."""


_R = TypeVar("_R", bound="Record")


class Record(BaseModel):
    """A part of a job's or trial's file: not changed once made; keys of a later version are left alone."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class TrialError(Record):
    """Why a trial has no score, or none to trust: whose fault it was and what happened."""

    kind: ErrorKind
    message: str


class JudgeResult(Record):
    """What one judge said, as the verifier wrote it: ``value`` on its own scale, ``normalized`` in 0 to 1."""

    name: str
    kind: str = ""
    status: Literal["ok", "error", "skipped", "pending"]
    value: Any = None
    normalized: float | None = None
    passed: bool | None = None
    reason: str | None = None
    error: str | None = None
    seconds: float | None = None
    model: str | None = Field(default=None, description="the one that was asked, by a model judge")
    usage: dict[str, int] = Field(default={}, description="tokens by kind (input_tokens …), over all samples and tries")
    replies: int | None = Field(default=None, description="how many replies of a model `usage` is of")
    unmetered: int = Field(default=0, description="replies of a model that do not say how many tokens they took")
    samples: tuple[Any, ...] = Field(default=(), description="the value of each sample of a model judge")
    cut: tuple[str, ...] = Field(default=(), description="what a model judge was not shown: texts that were too long")


class Calls(Record):
    """How many tool calls a trial made, and what became of the intercepted ones."""

    total: int = 0
    denied: int = 0
    answered: int = 0
    guessed: int = 0
    rewritten: int = 0


class StepResult(Record):
    """One step of a trial; a step that was never reached is ``pending``."""

    id: str
    status: TrialStatus
    reward: float | None = None
    judges: tuple[JudgeResult, ...] = ()
    error: TrialError | None = None
    exit_code: int | None = None
    duration_s: float | None = None


class Trial(Record):
    """One run of one task by one agent: the content of ``trial.json``. Times are ISO 8601 in UTC."""

    id: str
    task: str = Field(description="the task's directory, below the job's source")
    name: str = Field(description="org/id, as in task.toml")
    case_id: str
    agent: str
    environment: str
    attempt: int
    digest: str
    status: TrialStatus
    reward: float | None = None
    judges: tuple[JudgeResult, ...] = ()
    unjudged: tuple[str, ...] = Field(default=(), description="judges that the reward needs and that did not report")
    error: TrialError | None = None
    sealed: bool = False
    warnings: tuple[str, ...] = ()
    started: str | None = None
    finished: str | None = None
    duration_s: float | None = Field(default=None, description="the agent's own time")
    exit_code: int | None = None
    cost_usd: float | None = Field(default=None, description="of the agent's model: as its program says, else by list")
    tokens: dict[str, dict[str, int]] = Field(default={}, description="the agent's, by model and kind (pricing.KINDS)")
    unpriced: tuple[str, ...] = Field(default=(), description="models of `tokens` that `cost_usd` does not hold")
    calls: Calls = Calls()
    versions: dict[str, str] = {}
    steps: tuple[StepResult, ...] = ()


class Expected(Record):
    """A trial that the job has to bring: known before the first one starts."""

    trial: str
    task: str
    name: str
    case_id: str
    attempt: int
    digest: str


class Job(Record):
    """A set of trials: the content of ``job.json``."""

    schema_: int = Field(default=1, alias="schema")
    id: str
    name: str
    source: str = Field(description="the folder of built tasks")
    eval: str | None = Field(default=None, description="the eval.yaml, or its folder, of a job that ran on an eval")
    agent: str
    scripted: bool = Field(default=False, description="a script stood in for the agent's model")
    environment: str
    server: str | None = Field(default=None, description="the URL of the Harbor server that ran it")
    attempts: int
    created: str
    status: JobStatus
    sealed: bool = False
    cases: tuple[str, ...] = Field(default=(), description="those that `--case` named when the job was new")
    expected: tuple[Expected, ...]
    not_enforced: tuple[str, ...] = Field(default=(), description="what the eval asks for and this environment lacks")
    errors: tuple[str, ...] = Field(default=(), description="faults of the job itself, as a failed after_all hook")
    max_cost_usd: float | None = Field(default=None, description="past it no trial is started")
    earlier_usd: float = Field(default=0, description="what trials cost that were run again since")
    manifest: dict[str, Any] = Field(default={}, description="what reports need of build.json: judges, thresholds …")

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    @property
    def who(self) -> str:
        """The agent, and whether it had no model."""
        return f"{self.agent} (scripted)" if self.scripted else self.agent


@dataclass(frozen=True)
class RunOptions:
    """What the user asked of `run`."""

    environment: str = "local"
    agent: str = "replay"
    parallel: int | None = None
    """Trials at a time; without it the eval's ``execution.parallelism``."""
    attempts: int = 1
    cases: tuple[str, ...] = ()
    resume: Path | None = None
    """The folder of a job to go on with."""
    jobs_dir: Path = Path("jobs")
    host: str | None = None
    """The container engine's address; without it the engine is found as the `docker` command finds it."""
    harbor: Path | None = None
    """Harbor's command; without it the one on PATH."""
    harbor_options: tuple[str, ...] = ()
    """Options for `harbor run` itself."""
    server: str | None = None
    """With the environment `harbor`: the URL of the `harbor serve` that runs the job."""
    server_key: str | None = field(default=None, repr=False)
    scripted: bool = False
    """No model: the agent program is made to propose the recorded calls of each case."""
    max_cost: float | None = None
    """USD: when the job has cost as much, no new trial is started."""
    trust: bool = False
    """Tasks that came in a bundle may do on this machine what the user's own may."""
    project: Path | None = None
    """The author's project, for hooks after the run; without it the nearest folder above the current one with .git."""


@dataclass(frozen=True)
class Event:
    """Something that the user may want to see while a job runs; the text is one line."""

    kind: Literal["job", "warning", "ready", "started", "finished", "interrupted"]
    text: str
    trial: Trial | None = None
    done: int = 0
    total: int = 0

    def __str__(self) -> str:
        return f"warning: {self.text}" if self.kind == "warning" else self.text


class InterruptedTrialError(Exception):
    """The user wants the job to end, so this trial has no result."""


class SandboxError(Exception):
    """The place of a trial does not do what it must: an environment error, never a score."""


class Stop:
    """The wish to end what runs: first in good order, then at once. Shared between threads."""

    def __init__(self) -> None:
        self._wanted = threading.Event()
        self._now = threading.Event()

    def ask(self) -> None:
        """End the running trials in good order; asked a second time: at once."""
        if self._wanted.is_set():
            self._now.set()
        self._wanted.set()

    @property
    def wanted(self) -> bool:
        """Nothing new may start, what runs has to end."""
        return self._wanted.is_set()

    @property
    def now(self) -> bool:
        """No more grace."""
        return self._now.is_set()


@dataclass(frozen=True)
class TrialPlan:
    """All that an environment needs to run one trial."""

    expected: Expected
    task: Path
    """The built task directory."""
    folder: Path
    """The trial's own folder in the job; exists and is empty but for trial.json."""
    agent: Agent
    model: ScriptedModel | None = None
    """What stands in for the agent's model."""


class Environment(Protocol):
    """A place where trials run: stage → seal → self-test → agent → end its processes → verifier → collect → remove."""

    name: str
    sealed: bool

    def not_enforced(self) -> tuple[str, ...]:
        """What the eval asks for and this environment cannot hold, one line each."""

    def prepare(self) -> None:
        """Check what trials need of the caller and this machine, before a job exists; AuthorError or MachineError."""

    def model_host(self) -> str:
        """Where on this machine a scripted endpoint listens, so that trials reach it; AuthorError if they cannot."""

    def use_model(self, url: str) -> None:
        """A scripted endpoint at this URL stands in for the model of the agents, before `ready`."""

    def ready(self, say: Callable[[str], None]) -> None:
        """Make what trials need and takes its time, before a job exists; ``say`` gets lines of progress."""

    def opened(self, job: Job, folder: Path) -> AbstractContextManager[None]:
        """While it is open, trials of the job may run; afterwards nothing of them is left outside its folder."""

    def run(self, plan: TrialPlan, stop: Stop) -> Trial:
        """Run one trial to its end and leave nothing behind; faults become the trial's error, never an exception."""


@runtime_checkable
class JobEnvironment(Protocol):
    """An environment that takes all trials of a job at once, and runs them in its own order."""

    def run_all(
        self, plans: Sequence[TrialPlan], parallel: int, stop: Stop, started: Callable[[TrialPlan], None],
        finished: Callable[[TrialPlan, Trial], None],
    ) -> list[str]:  # fmt: skip
        """Run all trials; ``finished`` is told of each, unless the user ended the job. Returns faults of the job."""


def now() -> str:
    """This moment, as it stands in job.json and trial.json."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def trial_dir(job: Path, trial: str) -> Path:
    """The folder of a trial in the job's folder."""
    return job / "trials" / trial


def new_folder(path: Path) -> None:
    """Make a folder that was not there; MachineError when it cannot be made."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir()
    except OSError as error:
        raise MachineError(
            f"{display_path(path.parent)}: no folder can be made there ({error.strerror}); name another place for jobs "
            "with --jobs-dir"
        ) from None


def write_record(path: Path, record: Record) -> None:
    """Write a record as JSON beside its place and rename it into place: a reader sees the old or the new one."""
    text = json.dumps(record.model_dump(mode="json", by_alias=True), indent=1, ensure_ascii=False)
    beside = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        beside.write_text(text + "\n", encoding="utf-8", errors="backslashreplace")
        beside.replace(path)
    except OSError as error:
        error.filename = error.filename or str(path)  # a full disk does not say where
        with suppress(OSError):
            beside.unlink()
        raise


def read_job(folder: Path) -> Job:
    """The job of a folder; AuthorError when it is none."""
    return _read(folder / "job.json", Job, "not the folder of a job: name one below jobs/")


def read_trials(folder: Path) -> list[Trial]:
    """One trial for each expected one, in the order of job.json.

    One without a result is ``pending`` while the job runs, and when a partial job did not start it; else it was
    ``interrupted`` with the job, or it ``vanished`` (DESIGN: counts as failed). One whose trial.json cannot be read has
    an error of the kind ``record``, which names the file.
    """
    job = read_job(folder)
    running = is_running(folder)
    return [_settled(_read_trial(folder, job, wanted), job, running=running) for wanted in job.expected]


def _read_trial(folder: Path, job: Job, wanted: Expected) -> Trial:
    path = trial_dir(folder, wanted.trial) / "trial.json"
    blank = new_trial(wanted, job.agent, job.environment, sealed=job.sealed)
    try:
        return read_record(path, Trial)
    except FileNotFoundError:
        return blank
    except (OSError, ValueError) as error:
        message = f"{display_path(path)} cannot be read ({why_unreadable(error)})"
        return blank.model_copy(update={"status": "error", "error": TrialError(kind="record", message=message)})


def _settled(trial: Trial, job: Job, *, running: bool) -> Trial:
    if trial.status != "pending" or running:
        return trial
    if job.status == "partial" and trial.started is None:  # it was not to start
        return trial
    return trial.model_copy(update={"status": "interrupted" if job.status == "interrupted" else "vanished"})


def new_trial(wanted: Expected, agent: str, environment: str, *, sealed: bool) -> Trial:
    """The trial of which nothing is known yet."""
    return Trial(
        id=wanted.trial, task=wanted.task, name=wanted.name, case_id=wanted.case_id, attempt=wanted.attempt,
        digest=wanted.digest, agent=agent, environment=environment, sealed=sealed, status="pending",
    )  # fmt: skip


def _read(path: Path, model: type[_R], what: str) -> _R:
    try:
        return read_record(path, model)
    except OSError:
        raise AuthorError(f"{path.parent}: {what}") from None
    except ValueError as error:
        raise AuthorError(f"{path}: cannot be read ({why_unreadable(error)}); was it edited?") from None
