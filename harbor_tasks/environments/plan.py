"""What a job will run, decided and checked before its folder exists; nothing here writes."""

from __future__ import annotations

import difflib
import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from harbor_tasks.agents.base import Agent, make_agent
from harbor_tasks.environments.base import (
    FINISHED,
    Environment,
    Expected,
    Job,
    RunOptions,
    Trial,
    is_running,
    now,
    read_job,
    read_trials,
)
from harbor_tasks.environments.local import LocalEnvironment
from harbor_tasks.environments.scripted import ScriptedModel, Scripts, recorded_calls
from harbor_tasks.errors import AuthorError, Problem, Where, display_path
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


def plan_job(
    source: Path, options: RunOptions, caller: Mapping[str, str], scripts: Scripts | None = None,
    agent: Agent | None = None,
) -> JobPlan:  # fmt: skip
    """The job that these options ask for; AuthorError or MachineError when it cannot start.

    ``scripts``: what a scripted endpoint proposes in place of a model, when it is not the recorded calls.
    """
    source = source.resolve()
    manifest = read_manifest(source)
    agent = agent or make_agent(options.agent, manifest)
    scripts = scripts or (recorded_calls if options.scripted else None)
    model = ScriptedModel(scripts) if scripts is not None else None
    old = _old_job(options, agent, scripted=model is not None) if options.resume is not None else None
    tasks, warnings = _tasks(source, manifest, options.cases, old)
    environment = _environment(options, source, manifest, caller, tasks, agent)
    agent.prepare(environment.name, caller, scripted=model is not None)
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
    job_id = old.id if old is not None else _job_id(manifest.name)
    expected = tuple(
        _expected(source, job_id, task, attempt, warnings) for task in tasks for attempt in range(1, attempts + 1)
    )
    folder = (options.resume if options.resume is not None else options.jobs_dir / job_id).absolute()
    kept = {trial.id for trial in read_trials(folder) if _keeps(trial, agent)} if old is not None else set()
    unenforced = tuple(f"handler {h.match!r} (Bash without input_filters)" for h in manifest.handlers if not h.enforced)
    job = Job(
        id=job_id, name=manifest.name, source=str(source), agent=agent.name, environment=environment.name,
        scripted=model is not None, attempts=attempts, status="running",
        created=old.created if old is not None else now(),
        sealed=environment.sealed, expected=expected, not_enforced=(*environment.not_enforced(), *unenforced),
        manifest=manifest.model_dump(mode="json", by_alias=True, include=_FOR_REPORTS),
    )  # fmt: skip
    todo = tuple(
        one for one in expected if one.trial not in kept and (not options.cases or one.case_id in options.cases)
    )
    warnings += [f"case {case}: {lack}" for case, lack in lacking.items()]
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
    if name == "harbor":
        from harbor_tasks.environments.harbor import HarborEnvironment

        directories = {task.case_id: source / task.directory for task in tasks}
        return HarborEnvironment(source, manifest, caller, options, directories)
    raise AuthorError(f"environment {name!r} is not known; use --env {' or '.join(KNOWN)}")


def _old_job(options: RunOptions, agent: Agent, *, scripted: bool) -> Job:
    """The job to go on with: it must be at rest, and its agent and environment are not changed halfway."""
    assert options.resume is not None
    job = read_job(options.resume)
    for what, was, asked in (("agent", job.agent, agent.name), ("environment", job.environment, options.environment)):
        if was != asked:
            raise AuthorError(
                f"{display_path(options.resume)}: ran with the {what} {was}, not {asked}; start a new job"
            )
    if job.scripted != scripted:
        how = "with --scripted" if job.scripted else "with a model"
        raise AuthorError(f"{display_path(options.resume)}: ran {how}; go on in the same way, or start a new job")
    if is_running(options.resume):
        raise AuthorError(f"{display_path(options.resume)}: this job is running; wait for it, or end it")
    return job


def _tasks(
    source: Path, manifest: BuildManifest, cases: tuple[str, ...], old: Job | None
) -> tuple[list[TaskPart], list[str]]:
    """The tasks of the job in the build's order, and warnings. ``cases`` and an old job's cases limit them."""
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
    gone = sorted(case for case in wanted if case not in by_case)
    return tasks, [f"case {case} of this job is no longer built: its trials are left out" for case in gone]


def _expected(source: Path, job: str, task: TaskPart, attempt: int, warnings: list[str]) -> Expected:
    digest = task_digest(source / task.directory)
    if digest != task.digest and attempt == 1:
        warnings.append(f"case {task.case_id}: {task.directory} was changed after it was built")
    # an opaque name: the agent may see it, and must not learn which case it works on
    trial = hashlib.sha256(f"{job}\0{task.name}\0{attempt}\0{digest}".encode()).hexdigest()[:12]
    return Expected(
        trial=trial, task=task.directory, name=task.name, case_id=task.case_id, attempt=attempt, digest=digest
    )


def _keeps(trial: Trial, agent: Agent) -> bool:
    """Is there nothing to do again? The trial's id already stands for task digest and attempt."""
    return trial.status in FINISHED and trial.agent == agent.name


def _job_id(name: str) -> str:
    return f"{slug(name) or 'job'}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
