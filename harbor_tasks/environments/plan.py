"""What a job will run, decided and checked before its folder exists; nothing here writes."""

from __future__ import annotations

import difflib
import hashlib
import math
import os
import re
import secrets
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harbor_tasks.agents.base import Agent, make_agent, require_known
from harbor_tasks.agents.codex import CodexAgent
from harbor_tasks.environments import strangers
from harbor_tasks.environments.base import (
    FINISHED,
    Environment,
    Expected,
    Job,
    RunOptions,
    Trial,
    now,
    read_job,
    read_trials,
)
from harbor_tasks.environments.costs import job_spent
from harbor_tasks.environments.local import LocalEnvironment
from harbor_tasks.environments.lock import is_running
from harbor_tasks.environments.scripted import ScriptedModel, Scripts, recorded_calls, recorded_calls_of_codex
from harbor_tasks.errors import AuthorError, MachineError, Problem, Where, display_path
from harbor_tasks.policy.matchers import named
from harbor_tasks.tasks.manifest import BuildManifest, TaskPart, read_manifest
from harbor_tasks.tasks.names import slug
from harbor_tasks.tasks.plan import TaskFile, digest_of

KNOWN = ("local", "docker", "harbor")
_FOR_REPORTS = {
    "tool", "name", "description", "runner", "models", "steps", "judges", "reward", "thresholds", "handlers", "sandbox"
}  # fmt: skip


@dataclass(frozen=True)
class JobPlan:
    """A job that can start: ``todo`` of the expected trials, the others are finished already."""

    job: Job
    folder: Path
    source: Path
    manifest: BuildManifest
    environment: Environment
    agent: Agent
    todo: tuple[Expected, ...]
    model: ScriptedModel | None
    """What stands in for the agent's model."""
    warnings: tuple[str, ...]
    parallel: int

    def label(self, wanted: Expected) -> str:
        """How a trial of the job is named in a line."""
        return f"{wanted.case_id} (attempt {wanted.attempt})" if self.job.attempts > 1 else wanted.case_id

    def as_json(self) -> dict[str, Any]:
        """What would run, as plain data; ``kept`` trials have their result already."""
        todo = {one.trial for one in self.todo}
        trials = [
            one.model_dump(include={"task", "name", "case_id", "attempt", "digest"}) | {"kept": one.trial not in todo}
            for one in self.job.expected
        ]
        return {
            "dry_run": True, "name": self.job.name, "agent": self.agent.name, "scripted": self.job.scripted,
            "environment": self.environment.name, "sealed": self.job.sealed, "attempts": self.job.attempts,
            "parallel": self.parallel, "max_cost_usd": self.job.max_cost_usd,
            "not_enforced": list(self.job.not_enforced), "warnings": list(self.warnings),
            "trials": trials,
        }  # fmt: skip


def where_and_who(
    environment: str | None, agent: str | None, resume: Path | None, *, scripted: bool = False
) -> tuple[str, str, bool]:  # fmt: skip
    """Environment, agent and whether a script stands in for its model; AuthorError for a name that is not known.

    They are those that were named, else those of the job that is gone on with, else the defaults.
    """
    if agent is not None:
        require_known(agent)
    if environment is not None:
        _require_environment(environment)
    job = RunOptions() if resume is None else read_job(resume)
    return environment or job.environment, agent or job.agent, scripted or job.scripted


def plan_job(
    source: Path, options: RunOptions, caller: Mapping[str, str], folder: Path | None = None, *,
    scripts: Scripts | None = None, agent: Agent | None = None, of: Path | None = None,
) -> JobPlan:  # fmt: skip
    """The job that these options ask for; AuthorError or MachineError when it cannot start.

    ``folder`` is the job's own, when it has one already: its name is the job's id. ``scripts``: what a scripted
    endpoint proposes in place of a model, when it is not the recorded calls; ``agent``: when it is none by name;
    ``of``: the eval that the tasks were built from for this job.
    """
    source = source.resolve()
    manifest = read_manifest(source)
    strangers.require_trust(source, manifest, options.environment, trusted=options.trust)
    agent = agent or make_agent(options.agent, manifest)
    if scripts is None and options.scripted:
        scripts = recorded_calls_of_codex if agent.name == CodexAgent.name else recorded_calls
    model = ScriptedModel(scripts) if scripts is not None else None
    old = old_job(options, agent.name, scripted=model is not None) if options.resume is not None else None
    tasks = _tasks(source, manifest, options.cases, old)
    digests = {task.case_id: task_digest(source / task.directory) for task in tasks}
    warnings = [
        f"case {task.case_id}: its task was changed after it was built"
        for task in tasks
        if digests[task.case_id] != task.digest
    ]
    if old is not None and options.resume is not None:
        require_same_eval(old, manifest.name, options.resume)
        warnings += [*_changes(old, digests), *_added(old, manifest, options)]
    warnings += strangers.warnings(source, manifest, caller if options.server is None else {})
    _check_max_cost(options, manifest, agent)
    environment = _environment(options, source, manifest, caller, tasks, agent)
    # a server gives the agent its own key: what is not known here is taken to be set there
    keys = dict.fromkeys(agent.model_variables, options.server) if options.server is not None else {}
    agent.prepare(environment.name, {**caller, **keys}, scripted=model is not None)
    steps = tuple(step.id for step in manifest.steps)
    lacking = {}
    for task in tasks:
        directory = source / task.directory
        lack = agent.lacks(directory, steps) or (model.lacks(directory, steps) if model is not None else None)
        if lack is not None:
            lacking[task.case_id] = lack
    if len(lacking) == len(tasks):
        raise AuthorError(
            Problem(f"the agent {agent.name} cannot run it: {lack}", Where(case=case)) for case, lack in lacking.items()
        )
    environment.prepare()
    attempts = max(options.attempts, old.attempts if old is not None else 1)
    job_id = old.id if old is not None else folder.name if folder is not None else new_job_id(manifest.name)
    expected = tuple(
        _expected(job_id, task, attempt, digests[task.case_id]) for task in tasks for attempt in range(1, attempts + 1)
    )
    folder = (options.resume or folder or options.jobs_dir / job_id).absolute()
    trials = read_trials(folder) if old is not None else []
    kept = {trial.id for trial in trials if _keeps(trial, agent)}
    unenforced = tuple(f"handler {h.match!r} (Bash without input_filters)" for h in manifest.handlers if not h.enforced)
    job = Job(
        id=job_id, name=manifest.name, source=str(source), agent=agent.name, environment=environment.name,
        scripted=model is not None, server=options.server, attempts=attempts, status="running",
        created=old.created if old is not None else now(), sealed=environment.sealed,
        cases=old.cases if old is not None else options.cases, expected=expected, max_cost_usd=options.max_cost,
        eval=str(of.resolve()) if of is not None else old.eval if old is not None else None,
        earlier_usd=old.earlier_usd if old is not None else 0,
        not_enforced=(*environment.not_enforced(), *unenforced),
        manifest=manifest.model_dump(mode="json", by_alias=True, include=_FOR_REPORTS),
    )  # fmt: skip
    todo = tuple(
        one for one in expected if one.trial not in kept and (not options.cases or one.case_id in options.cases)
    )
    if options.max_cost is not None and environment.name == "harbor":
        spent = (job_spent(folder).usd or 0) + job.earlier_usd if old is not None else 0.0
        _check_sum(options.max_cost, manifest, len(todo), spent)
    warnings += [f"case {case}: {lack}" for case, lack in lacking.items()]
    again = {one.trial for one in todo}
    warnings += [
        f"case {trial.case_id}: {trial.error.message}: it is run again"
        for trial in trials
        if trial.id in again and trial.error is not None and trial.error.kind == "record"
    ]
    parallel = max(1, min(options.parallel or manifest.execution.parallelism, len(todo)))
    return JobPlan(job, folder, source, manifest, environment, agent, todo, model, tuple(warnings), parallel)


def task_digest(task: Path) -> str:
    """Harbor's digest of a task directory as it is now."""
    files = []
    for path in task.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            files.append(TaskFile(path.relative_to(task).as_posix(), path, sha256=sha256))
    return digest_of(files)


def _check_max_cost(options: RunOptions, manifest: BuildManifest, agent: Agent) -> None:
    """AuthorError for a limit that cannot be kept."""
    if options.max_cost is None:
        return
    if not (math.isfinite(options.max_cost) and options.max_cost > 0):
        raise AuthorError(f"--max-cost {options.max_cost:g}: name a positive number of US dollars")
    why = _unbounded(options, manifest, agent)
    if options.environment == "harbor" and why is not None:
        raise AuthorError(
            "--max-cost with --env harbor: Harbor takes all trials of a job at once, so it must be known beforehand "
            f"what each may cost: {why}; or use --env docker"
        )


def _unbounded(options: RunOptions, manifest: BuildManifest, agent: Agent) -> str | None:
    """Why nothing says what a trial under Harbor costs at most, or None."""
    if agent.name != "claude-code":
        return f"the agent {agent.name} takes no budget (claude-code does)"
    if manifest.execution.max_budget_usd is None:
        return "set execution.max_budget_usd in eval.yaml"
    asked = [f"judge {judge.name!r}" for judge in manifest.judges if judge.kind == "prompt"]
    if any(named("AskUserQuestion", handler.patterns) for handler in manifest.handlers):
        asked.append("answers to questions")
    if asked:
        return f"a model may be asked for {', '.join(asked)}, which execution.max_budget_usd does not hold"
    if options.harbor_options:
        return f"with {' '.join(options.harbor_options)} it may run more of them"
    return None


def _check_sum(most: float, manifest: BuildManifest, trials: int, spent: float) -> None:
    """AuthorError when trials that all start at once may cost more together: each step has the whole budget there."""
    each = (manifest.execution.max_budget_usd or 0) * max(1, len(manifest.steps))
    if spent + trials * each > most:
        before = f"{spent:.4g} USD are spent, and " if spent else ""
        raise AuthorError(
            f"--max-cost {most:g}: {before}Harbor takes all trials at once, {trials} of at most {each:g} USD each "
            f"(execution.max_budget_usd): {spent + trials * each:.4g} USD; lower that, or take fewer cases by --case"
        )


def _environment(
    options: RunOptions, source: Path, manifest: BuildManifest, caller: Mapping[str, str], tasks: Sequence[TaskPart],
    agent: Agent,
) -> Environment:  # fmt: skip
    name = options.environment
    if options.harbor_options and name != "harbor":
        raise AuthorError(
            f"{' '.join(options.harbor_options)}: only --env harbor takes more arguments, those of Harbor"
        )
    if name == LocalEnvironment.name:
        return LocalEnvironment(manifest, caller)
    if name == "docker":
        from harbor_tasks.environments.docker import DockerEnvironment

        return DockerEnvironment(source, manifest, caller, options.host, agent.program)
    if name == "harbor" and options.server is not None:
        from harbor_tasks.environments.harbor_server import HarborServerEnvironment

        directories = {task.case_id: source / task.directory for task in tasks}
        return HarborServerEnvironment(source, manifest, caller, options, directories)
    if name == "harbor":
        from harbor_tasks.environments.harbor import HarborEnvironment

        directories = {task.case_id: source / task.directory for task in tasks}
        return HarborEnvironment(source, manifest, caller, options, directories)
    _require_environment(name)
    raise AssertionError(name)


def _require_environment(name: str) -> None:
    if name not in KNOWN:
        raise AuthorError(f"environment {name!r} is not known; use --env {' or '.join(KNOWN)}")


def old_job(options: RunOptions, agent: str, *, scripted: bool) -> Job:
    """The job to go on with: it must be at rest, and its agent and environment are not changed halfway."""
    assert options.resume is not None
    job = read_job(options.resume)
    for what, was, asked in (("agent", job.agent, agent), ("environment", job.environment, options.environment)):
        if was != asked:
            option = "--env" if what == "environment" else f"--{what}"
            raise AuthorError(
                f"{display_path(options.resume)}: this job ran with the {what} {was}, not {asked}; go on with it by "
                f"{option} {was}, or start a new job"
            )
    if (job.server is None) != (options.server is None):
        how = "at no server" if job.server is None else "at a Harbor server"
        where = f"run {job.source} --env {job.environment}"
        where = where if job.server is None else f"runner {job.source} --server {job.server}"
        by = f"harbor-pack {where} --resume {display_path(options.resume)}"
        raise AuthorError(f"{display_path(options.resume)}: this job ran {how}; go on with it by {by}")
    if job.scripted != scripted:
        how, go_on = ("with", "by it") if job.scripted else ("without", "without it")
        raise AuthorError(
            f"{display_path(options.resume)}: this job ran {how} --scripted; go on with it {go_on}, or start a new job"
        )
    require_at_rest(options.resume)
    return job


def require_place(folder: Path, option: str) -> None:
    """MachineError when no folder can be made in this one, which an option names."""
    nearest = next(path for path in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(path))
    why = "Not a directory" if not nearest.is_dir() else ""
    why = why or ("" if os.access(nearest, os.W_OK | os.X_OK) else "Permission denied")
    if why:
        raise MachineError(f"{display_path(folder)}: no folder can be made there ({why}); name another place: {option}")


def require_at_rest(folder: Path) -> None:
    """AuthorError while the job in ``folder`` runs."""
    if is_running(folder):
        raise AuthorError(f"{display_path(folder)}: this job is running; wait for it, or end it")


def _tasks(source: Path, manifest: BuildManifest, cases: tuple[str, ...], old: Job | None) -> list[TaskPart]:
    """The tasks of the job in the build's order. ``cases`` and an old job's cases limit them."""
    by_case = {task.case_id: task for task in manifest.tasks}
    faults = []
    for case in cases:
        if case not in by_case:
            close = difflib.get_close_matches(case, by_case, n=1)
            hint = f"did you mean {close[0]}?" if close else f"built cases: {', '.join(list(by_case)[:10])}"
            faults.append(Problem(f"no built case {case!r}", Where(source), hint, code="no-such-case"))
    wanted = {*cases, *(one.case_id for one in old.expected)} if old is not None else {*(cases or by_case)}
    tasks = [task for task in manifest.tasks if task.case_id in wanted]
    for task in tasks:
        if not (source / task.directory / "task.toml").is_file():
            faults.append(
                Problem("its task directory is gone", Where(source / task.directory, case=task.case_id), "build it")
            )
    if not tasks and not faults:
        faults.append(Problem("no tasks to run", Where(source), "build the eval with at least one case"))
    if faults:
        raise AuthorError(faults)
    return tasks


def require_same_eval(job: Job, name: str, folder: Path) -> None:
    """AuthorError unless the job in ``folder`` is one of the eval ``name``: two evals have no common score."""
    if job.name != name:
        what = f"this job is one of the eval {job.name!r}, not of {name!r}"
        raise AuthorError([Problem(what, Where(folder), "start a new job", code="other-tasks")])


def _changes(job: Job, digests: Mapping[str, str]) -> list[str]:
    """What became of the job's tasks (case → digest as it is now): other tasks have no results yet."""
    found = {}
    for one in job.expected:
        if one.case_id not in digests:
            found[one.case_id] = f"case {one.case_id} of this job is no longer built: its trials are left out"
        elif one.digest != digests[one.case_id]:
            found[one.case_id] = f"case {one.case_id} has changed since this job started: it is run again"
    return list(found.values())


def _added(job: Job, manifest: BuildManifest, options: RunOptions) -> Iterator[str]:
    """The cases that the eval has now and a job on all cases did not start with: nothing of the job will tell of them.

    A job keeps the cases that it started with: with more of them its mean reward would be of something else.
    """
    known = {*options.cases, *(one.case_id for one in job.expected)}
    folder = shlex.quote(display_path(options.resume)) if options.resume is not None else ""
    for task in manifest.tasks if not job.cases else ():
        if task.case_id not in known:
            add = f"--case {shlex.quote(task.case_id)} --resume {folder} adds it to this job"
            yield f"case {task.case_id} is none of this job's cases: it is left out; {add}, or start a new job"


def _expected(job: str, task: TaskPart, attempt: int, digest: str) -> Expected:
    # an opaque name: the agent may see it, and must not learn which case it works on
    trial = hashlib.sha256(f"{job}\0{task.name}\0{attempt}\0{digest}".encode()).hexdigest()[:12]
    return Expected(
        trial=trial, task=task.directory, name=task.name, case_id=task.case_id, attempt=attempt, digest=digest
    )


def _keeps(trial: Trial, agent: Agent) -> bool:
    """Is there nothing to do again? The trial's id already stands for task digest and attempt."""
    return trial.status in FINISHED and trial.agent == agent.name


def new_job_id(name: str) -> str:
    """An id for a job on the eval ``name`` that no other job has."""
    return f"{slug(name) or 'job'}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def is_job_id(name: str) -> bool:
    """Does it look like one that `new_job_id` made?"""
    return re.fullmatch(r".+-\d{8}-\d{6}-[0-9a-f]{6}", name) is not None
