"""A job: trials in parallel, each in its own thread; Ctrl-C ends what runs and keeps what is finished."""

from __future__ import annotations

import contextlib
import os
import queue
import shlex
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from harbor_tasks.agents.base import Agent
from harbor_tasks.environments.after_hooks import AfterHooks
from harbor_tasks.environments.base import (
    Event,
    Expected,
    JobEnvironment,
    RunOptions,
    Stop,
    Trial,
    TrialError,
    TrialPlan,
    new_folder,
    new_trial,
    now,
    read_trials,
    trial_dir,
    write_record,
)
from harbor_tasks.environments.costs import folder_spent
from harbor_tasks.environments.limit import CostLimit
from harbor_tasks.environments.lock import job_lock
from harbor_tasks.environments.plan import JobPlan, plan_job, task_digest
from harbor_tasks.environments.scripted import Scripts
from harbor_tasks.environments.signals import signals_ask
from harbor_tasks.environments.sources import Building, job_tasks
from harbor_tasks.environments.staging import forget_scratch, remove_tree
from harbor_tasks.errors import InterruptedRun, MachineError, display_path

PATIENCE = 15.0
"""Seconds that running trials get to end after Ctrl-C; a second one makes it a fraction."""


def run_job(
    source: Path, options: RunOptions, *, on_event: Callable[[Event], None] | None = None,
    building: Building = contextlib.nullcontext, scripts: Scripts | None = None, agent: Agent | None = None,
) -> Path:  # fmt: skip
    """Run the job that ``options`` ask for on the built tasks in ``source``, or on the eval that it is; its folder.

    Everything that can be known beforehand is an AuthorError or MachineError before there is a job. A fault of a trial
    is in its trial.json. Ctrl-C, SIGTERM and SIGHUP (when this is the main thread) end the running trials and raise
    InterruptedJob. ``building`` is entered while an eval is built. ``scripts``: what a scripted endpoint makes the
    agent program propose, in place of a model; ``agent``: who works, when it is none by name.
    """
    say = on_event or _silent
    with job_tasks(source, options, _warnings(say), building) as (tasks, own):
        of = source if own is not None and tasks != source else None
        plan = plan_job(tasks, options, os.environ, own, scripts=scripts, agent=agent, of=of)
        _announce(f"job {display_path(plan.folder)}", plan, say)
        with _model(plan):
            plan.environment.ready(lambda line: say(Event("ready", line)))
            stop = Stop()
            with signals_ask(stop):
                if own is None and options.resume is None:
                    new_folder(plan.folder)
                with job_lock(plan.folder):
                    write_record(plan.folder / "job.json", plan.job)
                    (plan.folder / "trials").mkdir(exist_ok=True)
                    _Runner(plan, _project(options), stop).run(say)
        return plan.folder


@contextlib.contextmanager
def _model(plan: JobPlan) -> Iterator[None]:
    """The scripted endpoint, where trials reach it, for as long as the job runs."""
    if plan.model is None:
        yield
        return
    with plan.model.listening(plan.environment.model_host()) as url:
        plan.environment.use_model(url)
        yield


def dry_run(
    source: Path, options: RunOptions, *, on_event: Callable[[Event], None] | None = None,
    building: Building = contextlib.nullcontext,
) -> JobPlan:  # fmt: skip
    """What `run_job` would run, said and checked as there; nothing is left of it, not the tasks of an eval either."""
    say = on_event or _silent
    with job_tasks(source, options, _warnings(say), building, dry=True) as (tasks, _):
        plan = plan_job(tasks, options, os.environ)
    _announce("a new job" if options.resume is None else f"job {display_path(plan.folder)}", plan, say)
    return plan


def _warnings(say: Callable[[Event], None]) -> Callable[[str], None]:
    return lambda line: say(Event("warning", line))


def _announce(job: str, plan: JobPlan, say: Callable[[Event], None]) -> None:
    kept = len(plan.job.expected) - len(plan.todo)
    trials = f"{len(plan.todo)} trial{'s' if len(plan.todo) != 1 else ''}" + (f", {kept} kept" if kept else "")
    unsealed = " (not sealed: the agent runs as you)" if plan.environment.name == "local" else " (not sealed)"
    place = plan.environment.name + ("" if plan.environment.sealed else unsealed)
    say(Event("job", f"{job}: {trials}, agent {plan.job.who}, {place}", total=len(plan.todo)))
    if plan.job.not_enforced:
        count = len(plan.job.not_enforced)
        what = f"{count} rule{'s are' if count != 1 else ' is'} not enforced here"
        say(Event("warning", f"{what}: {'; '.join(plan.job.not_enforced)}"))
    for warning in plan.warnings:
        say(Event("warning", warning))


class InterruptedJob(InterruptedRun):
    """The user ended a job; ``folder`` holds what was finished, and can be gone on with."""

    def __init__(self, folder: Path, text: str) -> None:
        self.folder = folder
        super().__init__(text)


class _Runner:
    """The threads of a job and what they report."""

    def __init__(self, plan: JobPlan, project: Path, stop: Stop) -> None:
        self.plan, self.stop = plan, stop
        self.hooks = AfterHooks(plan.manifest.hooks_after, project, plan.folder, stop)
        self.events: queue.Queue[Event] = queue.Queue()
        self.todo: queue.SimpleQueue[Expected] = queue.SimpleQueue()
        self.done = 0
        self.errors: list[str] = []
        self.keeping = threading.Lock()
        self.job, self.limit = plan.job, CostLimit(plan.job, plan.folder)

    def run(self, say: Callable[[Event], None]) -> None:
        """All trials; raises InterruptedJob when the user ended them."""
        for wanted in self.plan.todo:
            self.todo.put(wanted)
        # daemons: a trial that cannot be ended must not keep an interrupted command from returning
        at_once = isinstance(self.plan.environment, JobEnvironment)
        works = [self._all_at_once] if at_once else [self._work] * self.plan.parallel
        threads = [threading.Thread(target=work, daemon=True) for work in works]
        fault: MachineError | None = None
        try:
            with self.plan.environment.opened(self.plan.job, self.plan.folder):
                self._run(threads, say)
        except MachineError as error:  # the environment could not be opened, or not emptied
            fault = error
            self.errors.append(str(error))
        started = any(thread.ident is not None for thread in threads)
        left = self.todo.qsize() if self.limit.reached and started and not self.stop.wanted else 0
        if left:
            self.errors.append(self._partial(left))
        self._finish("interrupted" if self.stop.wanted or not started else "partial" if left else "finished")
        if self.stop.wanted:
            if fault is not None:
                say(Event("warning", str(fault)))
            self._raise_interrupted()
        if fault is not None:
            raise fault

    def _run(self, threads: list[threading.Thread], say: Callable[[Event], None]) -> None:
        try:
            for thread in threads:
                thread.start()
            self._watch(threads, say)
        except BaseException:  # the listener failed (a closed pipe): nothing may run on unseen
            self.stop.ask()
            self.stop.ask()
            self._watch(threads, _silent)
            self._finish("interrupted")
            raise
        if not self.stop.wanted and self.plan.todo and (not self.limit.reached or not self.todo.qsize()):
            fault = self.hooks.after_all()
            self.errors += [fault] if fault is not None else []

    def _watch(self, threads: list[threading.Thread], say: Callable[[Event], None]) -> None:
        """Pass on what the threads report until all have ended, or have not within the time for it."""
        asked: float | None = None
        while any(thread.is_alive() for thread in threads) or not self.events.empty():
            with contextlib.suppress(queue.Empty):
                say(self.events.get(timeout=0.1))
            if self.stop.wanted:
                asked = asked or time.monotonic()
                if time.monotonic() - asked > (PATIENCE / 3 if self.stop.now else PATIENCE):
                    return

    def _work(self) -> None:
        while not (self.stop.wanted or self.limit.reached):
            try:
                wanted = self.todo.get_nowait()
            except queue.Empty:
                return
            self._started(wanted)
            trial = self._trial(wanted)
            for line in self.limit.add(trial_dir(self.plan.folder, wanted.trial)):
                self.events.put(Event("warning", line))
            self._finished(wanted, trial)

    def _all_at_once(self) -> None:
        """For an environment that takes the whole job; what it says nothing of has failed."""
        assert isinstance(self.plan.environment, JobEnvironment)
        left: dict[str, Expected] = {}
        plans: list[TrialPlan] = []
        fault = "nothing is known of it"

        def started(plan: TrialPlan) -> None:
            self._started(plan.expected)

        def finished(plan: TrialPlan, trial: Trial) -> None:
            if not self.stop.wanted:
                trial = self._after_each(plan.folder, trial)
            self._written(plan.folder, trial)
            self._finished(left.pop(trial.id), trial)

        try:
            for wanted in self.plan.todo:
                plan = self._prepared(wanted)
                left[wanted.trial] = wanted
                if isinstance(plan, TrialPlan):
                    plans.append(plan)
                else:
                    self._written(trial_dir(self.plan.folder, wanted.trial), plan)
                    self._finished(left.pop(wanted.trial), plan)
            if plans:
                self.errors += self.plan.environment.run_all(plans, self.plan.parallel, self.stop, started, finished)
        except Exception as error:  # noqa: BLE001 - said of every trial that it leaves without a result
            with contextlib.suppress(OSError):
                (self.plan.folder / "error.txt").write_text(traceback.format_exc(), encoding="utf-8")
            fault = f"{type(error).__name__}: {error} (see error.txt in the job's folder)"
        if self.stop.wanted:
            return
        for wanted in left.values():
            trial = _failed(self._blank(wanted), TrialError(kind="environment", message=fault))
            self._written(trial_dir(self.plan.folder, wanted.trial), trial)
            self._finished(wanted, trial)

    def _started(self, wanted: Expected) -> None:
        self._report("started", f"started {self.plan.label(wanted)}", None)

    def _finished(self, wanted: Expected, trial: Trial) -> None:
        self.done += 1  # only a number that is shown: two threads at once do no harm
        text = f"{self.plan.label(wanted)}: {_outcome(trial)}"
        self._report("interrupted" if trial.status == "interrupted" else "finished", text, trial)

    def _report(self, kind: Literal["started", "finished", "interrupted"], text: str, trial: Trial | None) -> None:
        self.events.put(Event(kind, text, trial, self.done, len(self.plan.todo)))

    def _blank(self, wanted: Expected) -> Trial:
        return new_trial(wanted, self.plan.agent.name, self.plan.environment.name, sealed=self.plan.job.sealed)

    def _prepared(self, wanted: Expected) -> TrialPlan | Trial:
        """The trial's empty folder; a failed trial when the task was changed, or lacks what the agent needs."""
        folder = trial_dir(self.plan.folder, wanted.trial)
        if folder.exists():  # an earlier run of this job did not finish it
            self._keep_cost(folder)
            forget_scratch(folder)
            remove_tree(folder)
        folder.mkdir()
        task = self.plan.source / wanted.task
        changed = self._changed(wanted)
        if changed is not None:
            return _failed(self._blank(wanted), changed)
        steps, model = tuple(step.id for step in self.plan.manifest.steps), self.plan.model
        lack = self.plan.agent.lacks(task, steps) or (model.lacks(task, steps) if model is not None else None)
        if lack is not None:
            return _failed(self._blank(wanted), TrialError(kind="agent", message=lack))
        return TrialPlan(wanted, task, folder, self.plan.agent, model)

    def _keep_cost(self, folder: Path) -> None:
        """What a trial cost that is run again was paid all the same."""
        usd = folder_spent(folder).usd
        if usd:
            with self.keeping:
                self.job = self.job.model_copy(update={"earlier_usd": self.job.earlier_usd + usd})
                write_record(self.plan.folder / "job.json", self.job)

    def _changed(self, wanted: Expected) -> TrialError | None:
        """The task is to be the one that job.json names: a score would be recorded under another task's digest."""
        task = self.plan.source / wanted.task
        try:
            if task_digest(task) == wanted.digest:
                return None
            what = "was changed" if task.exists() else "is gone"
        except OSError as error:
            what = f"cannot be read ({error.strerror})"
        message = f"{display_path(task)} {what} since the job started; while a job runs, build elsewhere"
        return TrialError(kind="environment", message=message)

    def _trial(self, wanted: Expected) -> Trial:
        folder = trial_dir(self.plan.folder, wanted.trial)
        try:
            plan = self._prepared(wanted)
            if isinstance(plan, Trial):
                trial = plan
            else:
                trial = self.plan.environment.run(plan, self.stop)
                changed = self._changed(wanted)  # the verifier is taken from there after the agent
                if changed is not None and trial.status != "interrupted":
                    trial = trial.model_copy(update={"status": "error", "error": changed, "reward": None})
                if not self.stop.wanted:
                    trial = self._after_each(folder, trial)
        except Exception as error:  # noqa: BLE001 - one trial's fault must not end the others
            with contextlib.suppress(OSError):
                (folder / "error.txt").write_text(traceback.format_exc(), encoding="utf-8")
            message = f"{type(error).__name__}: {error} (see error.txt in the trial's folder)"
            trial = _failed(self._blank(wanted), TrialError(kind="environment", message=message))
        self._written(folder, trial)
        return trial

    def _written(self, folder: Path, trial: Trial) -> None:
        with contextlib.suppress(OSError):
            write_record(folder / "trial.json", trial)

    def _after_each(self, folder: Path, trial: Trial) -> Trial:
        """The trial, after the eval's commands for it."""
        fault = self.hooks.after_each(folder)
        if fault is None:
            return trial
        error = trial.error or TrialError(kind="environment", message=fault)
        return trial.model_copy(update={"status": "error", "error": error})

    def _finish(self, status: Literal["finished", "interrupted", "partial"]) -> None:
        job = self.job.model_copy(update={"status": status, "errors": tuple(self.errors)})
        write_record(self.plan.folder / "job.json", job)
        if status == "interrupted":
            self._mark_interrupted()

    def _mark_interrupted(self) -> None:
        """What never started, or could not be ended in time, is neither a failure nor lost."""
        for wanted in self.plan.todo:
            path = trial_dir(self.plan.folder, wanted.trial) / "trial.json"
            blank = self._blank(wanted)
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                write_record(path, blank.model_copy(update={"status": "interrupted", "finished": now()}))

    def _raise_interrupted(self) -> None:
        trials = read_trials(self.plan.folder)
        done = sum(trial.status not in ("pending", "interrupted") for trial in trials)
        text = f"interrupted: {done} of {len(trials)} trials are done; to go on: {self._go_on()}"
        raise InterruptedJob(self.plan.folder, text)

    def _go_on(self) -> str:
        """The command that goes on with this job."""
        where = "" if self.plan.environment.name == "local" else f"--env {self.plan.environment.name} "
        if (server := self.plan.job.server) is not None:
            where = f"--server {server} "
        source, folder = (shlex.quote(display_path(path)) for path in (self.plan.source, self.plan.folder))
        scripted = "--scripted " if self.plan.job.scripted else ""
        command = "run" if self.plan.job.server is None else "runner"
        return f"harbor-pack {command} {source} {where}--agent {self.plan.agent.name} {scripted}--resume {folder}"

    def _partial(self, left: int) -> str:
        """Why the job has not started all its trials."""
        cost = f"it has cost {self.limit.usd:.4g} USD, and may cost {self.limit.most:g}"
        trials = f"{left} trials were" if left != 1 else "1 trial was"
        return f"the job is partial: {cost}; {trials} not started; to go on: {self._go_on()} --max-cost USD"


def _silent(_event: Event) -> None:
    """Nobody listens."""


def _failed(blank: Trial, error: TrialError) -> Trial:
    return blank.model_copy(update={"status": "error", "error": error, "started": now(), "finished": now()})


def _outcome(trial: Trial) -> str:
    if trial.error is not None:
        return f"{trial.error.kind} error: {trial.error.message}"
    return trial.status if trial.reward is None else f"reward {trial.reward:g}"


def _project(options: RunOptions) -> Path:
    """The author's project: told, or the nearest folder above this one with .git, else this one (facts)."""
    if options.project is not None:
        return options.project.resolve()
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)
