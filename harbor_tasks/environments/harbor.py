"""The environment `harbor`: the user's own Harbor runs the built tasks, on any kind of machine that it knows.

One `harbor run` takes the whole job. Its exit code says nothing about trials and it drops what it cannot read without a
word, so the job is tried before it starts, and what is expected is compared with what is found (harbor_results.py).
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harbor_tasks.agents.claude_code import ClaudeCodeAgent
from harbor_tasks.agents.codex import CodexAgent
from harbor_tasks.agents.oracle import OracleAgent
from harbor_tasks.agents.probe import ProbeAgent
from harbor_tasks.environments.base import (
    Job,
    RunOptions,
    Stop,
    Trial,
    TrialPlan,
    new_trial,
    now,
    write_record,
)
from harbor_tasks.environments.docker_container import CAPABILITIES, engine_errors, job_labels, remove_labelled
from harbor_tasks.environments.engine import Engine, find_engine
from harbor_tasks.environments.gateway import gateway_of
from harbor_tasks.environments.harbor_command import (
    Harbor,
    check_kind,
    check_options,
    dry_run,
    environ,
    find_harbor,
    kind_of,
)
from harbor_tasks.environments.harbor_guard import require_harmless
from harbor_tasks.environments.harbor_kinds import DEFAULT_KIND
from harbor_tasks.environments.harbor_process import HarborRun, Run, compose_overlay
from harbor_tasks.environments.harbor_results import HarborSandbox, HarborTrial
from harbor_tasks.environments.records import read_toml
from harbor_tasks.environments.scratch import scratch_folder
from harbor_tasks.environments.scripted import KEY, ScriptedModel
from harbor_tasks.environments.trial import Sandbox, TrialRun
from harbor_tasks.environments.variables import MODEL, MODEL_URL, fill_in, require_variables
from harbor_tasks.errors import AuthorError, MachineError, Problem, Where, display_path
from harbor_tasks.images import image_for_run
from harbor_tasks.policy.permissions import DEFAULT_MODE
from harbor_tasks.resources import resource
from harbor_tasks.tasks.manifest import BuildManifest

_CHOICES: tuple[str, ...] = ("DOCKER_HOST", "DOCKER_CONTEXT")
RUNS = "harbor"
"""The folder of a job that holds its runs of Harbor, a numbered one each."""
SWEEP_SECONDS = 20.0
"""How long the end of a job waits until the engine has removed everything."""
_MODELS = (*MODEL, "OPENAI_API_KEY", "OPENAI_BASE_URL", "CLAUDE_CODE_OAUTH_TOKEN")
_COMPOSES_OWN = {
    "CONTEXT_DIR", "MAIN_IMAGE_NAME", "PREBUILT_IMAGE_NAME", "CPUS", "MEMORY", "DOCKER_CONFIG", "PATH", "HOME",
}  # fmt: skip
"""Variables that mean something else in Harbor's compose process; an eval that sets one gets no overlay."""


class HarborEnvironment:
    """Trials of one build, run by Harbor."""

    name: str = "harbor"

    def __init__(
        self, source: Path, manifest: BuildManifest, caller: Mapping[str, str], options: RunOptions,
        tasks: Mapping[str, Path],
    ) -> None:  # fmt: skip
        """``tasks``: the directories that the job runs, by case."""
        self._source, self._manifest, self._caller, self._tasks = source, manifest, dict(caller), tasks
        self._named, self._options, self._host = options.harbor, options.harbor_options, options.host
        self._kind = kind_of(self._options)
        self._agent = _agent_config(options.agent, manifest)
        as_it_is = not manifest.sandbox.sealed and manifest.sandbox.image is not None  # the program is the author's
        self._programs = (
            (options.agent,) if options.agent in (ClaudeCodeAgent.name, CodexAgent.name) and not as_it_is else ()
        )
        self.sealed: bool = manifest.sandbox.sealed
        self._harbor: Harbor | None = None
        self._engine: Engine | None = None
        self._notes: list[str] = []
        self._job: tuple[Job, Path] | None = None
        self._run: Run | None = None

    def not_enforced(self) -> tuple[str, ...]:
        """The seal that the author switched off; Harbor holds limits and the network, or refuses the job."""
        return () if self.sealed else ("sandbox.sealed: false (the policy lies within the agent's reach)",)

    def prepare(self) -> None:
        """All variables are set, Harbor and what it needs are here, and it takes the job."""
        check_options(self._options)
        require_harmless(self._source, self._manifest, self._tasks, at_server=False)
        require_variables(self._manifest, self._caller)
        self._harbor = find_harbor(self._named, self._caller)
        if not self._harbor.tested:
            self._notes.append(f"warning: harbor-pack is tested with Harbor 0.26, and this is {self._harbor.version}")
        note = check_kind(self._kind, sealed=self.sealed)
        if note is not None:
            self._notes.append(f"warning: {note}")
        if self._kind == DEFAULT_KIND:
            self._engine = find_engine(self._host)
            _check_compose(self._environ())
        self._check_job()

    def _check_job(self) -> None:
        """Harbor drops an invalid task, or aborts the whole job for it: it is asked before."""
        assert self._harbor is not None
        with scratch_folder() as folder:
            config = folder / "config.json"
            tasks = [{"path": str(path)} for path in self._tasks.values()]
            config.write_text(json.dumps({**self._config(1), "tasks": tasks}), encoding="utf-8")
            said = dry_run(self._harbor, config, self._options, self._environ())
        if said is not None:
            case = next((case for case, path in self._tasks.items() if str(path) in said), None)
            where = Where(None if case is None else self._tasks[case], case=case)
            raise AuthorError([Problem(f"Harbor does not take the job: {said}", where, code="harbor")])

    def model_host(self) -> str:
        """The address that this machine has in the network of containers; machines elsewhere could not reach it."""
        if self._kind != DEFAULT_KIND:
            raise AuthorError(f"--scripted works with Harbor's environment {DEFAULT_KIND} alone, not {self._kind}")
        if self._manifest.sandbox.network != "public":
            raise AuthorError(
                f"--scripted with --env harbor needs sandbox.network: public, not {self._manifest.sandbox.network}: "
                "Harbor's way out leads to the model's own hosts; use --env docker"
            )
        assert self._engine is not None
        return gateway_of(self._engine)

    def use_model(self, url: str) -> None:  # noqa: ARG002
        """Each trial is told its own script's URL; Harbor's agents want a key all the same. Hooks have none to ask."""
        kept = {name: text for name, text in self._caller.items() if name not in _MODELS}
        self._caller = {**kept, "ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": KEY}

    def ready(self, say: Callable[[str], None]) -> None:
        """The eval's image is on this machine's engine; elsewhere it has to be where the machines fetch it."""
        self._say_who(say)
        for note in self._notes:
            say(note)
        if self._engine is not None:
            image_for_run(self._source, self._engine, agents=self._programs, by_name=True, on_event=say)
        else:
            say(f"warning: the image {self._manifest.image} must be where Harbor's environment {self._kind} fetches it")

    def _say_who(self, say: Callable[[str], None]) -> None:
        assert self._harbor is not None
        say(f"harbor {self._harbor.version}: {self._harbor.path}")

    @contextmanager
    def opened(self, job: Job, folder: Path) -> Iterator[None]:
        """While it is open, Harbor may run; afterwards neither its process nor what it made on this engine is left."""
        self._job = (job, folder.resolve())
        try:
            yield
        finally:
            if self._run is not None:
                self._run.kill()
            self._sweep(time.monotonic() + SWEEP_SECONDS)
            if self._engine is not None:
                self._engine.close()

    def _sweep(self, until: float = 0.0) -> None:
        """Remove what bears the job's label, until nothing is left; with no time given once, whatever remains."""
        if self._engine is None or self._job is None:
            return
        job, complaints = self._job[0].id, list[str]()
        with engine_errors(f"remove what the job made (harbor-pack clean --job {job} does it later)"):
            while remove_labelled(self._engine.client.api, job, complaints.append) or complaints:
                if time.monotonic() > until:
                    if until:
                        raise MachineError("; ".join(complaints) or "containers of the job come back")
                    return
                complaints.clear()
                time.sleep(0.2)

    def run(self, plan: TrialPlan, stop: Stop) -> Trial:
        """One trial alone."""
        found: list[Trial] = []
        self.run_all([plan], 1, stop, lambda _plan: None, lambda _plan, trial: found.append(trial))
        return found[0] if found else self._vanished(plan, "Harbor was interrupted")

    def run_all(
        self, plans: Sequence[TrialPlan], parallel: int, stop: Stop, started: Callable[[TrialPlan], None],
        finished: Callable[[TrialPlan, Trial], None],
    ) -> list[str]:  # fmt: skip
        """Run all trials; ``finished`` is told of each, unless the user ended the job. Returns faults of the job."""
        assert self._job is not None
        job, folder = self._job
        left = {plan.expected.trial: plan for plan in plans}
        place = next(path for n in range(1, 10_000) if not (path := folder / RUNS / str(n)).exists())
        place.mkdir(parents=True)
        run = self._new_run(place, job)

        def begin() -> None:
            variables = _variables(plans[0].task)
            scripted = {plan.expected.trial: self._scripted(plan, plan.model) for plan in plans if plan.model}
            overlay = self._overlay(job, folder, {**variables, **scripted.get(plans[0].expected.trial, {})})
            config = self._config(parallel, self._with_dollar(variables) if overlay else {})
            run.write(plans, config, overlay, scripted)
            run.start()

        fault = self._follow(run, begin, left, stop, started, finished)
        if stop.wanted:
            return [] if fault is None else [fault]
        for plan in left.values():
            finished(plan, self._unfinished(plan, fault))
        return [] if fault is None else [fault]

    def _new_run(self, place: Path, job: Job) -> Run:  # noqa: ARG002 - a server is told the job's name
        assert self._harbor is not None
        return HarborRun(self._harbor, place, self._environ(), self._options)

    def _follow(
        self, run: Run, begin: Callable[[], None], left: dict[str, TrialPlan], stop: Stop,
        started: Callable[[TrialPlan], None], finished: Callable[[TrialPlan, Trial], None],
    ) -> str | None:  # fmt: skip
        """Let a run begin and follow it to its end: what it brings is taken out of ``left``. The fault of the run."""
        self._run = run

        def began(trial: str) -> None:
            if trial in left:
                started(left[trial])

        def collected(found: HarborTrial) -> None:
            plan = left.pop(Path(found.result["config"]["task"]["path"]).name, None)
            if plan is not None:
                finished(plan, self._collected(found, plan, stop))

        try:
            begin()
            return run.watch(stop, began, collected, self._sweep)
        finally:
            run.kill()
            run.clear()

    def _unfinished(self, plan: TrialPlan, fault: str | None) -> Trial:
        """A trial of which the run brought nothing."""
        return self._vanished(plan, fault or "Harbor left nothing of it")

    def _scripted(self, plan: TrialPlan, model: ScriptedModel) -> dict[str, str]:
        """The variable by which the agent program finds the trial's script."""
        variables = model.joined_variables(plan.expected.trial, plan.task, [step.id for step in self._manifest.steps])
        name = MODEL_URL[self._manifest.runner.type]
        return {name: variables[name]}

    def _collected(self, found: HarborTrial, plan: TrialPlan, stop: Stop) -> Trial:
        steps = tuple(step.id for step in self._manifest.steps) or (None,)
        sealed = found.sealed(steps)
        versions = {"harbor": self._version(), "image": self._manifest.image}
        trial_run = TrialRun(plan, self._manifest, stop, environment=self.name, sealed=sealed, versions=versions)

        @contextmanager
        def entered(warnings: list[str]) -> Iterator[Sandbox]:
            sandbox = HarborSandbox(found, plan, self._manifest, stop, warnings)
            yield sandbox
            if self.sealed and not sealed:
                warnings.append("not sealed: the image is not harbor-pack's runtime image")
            sandbox.collect()

        trial = trial_run.run(entered)
        began, ended = found.times
        trial = trial.model_copy(update={"started": began or trial.started, "finished": ended or trial.finished})
        write_record(plan.folder / "trial.json", trial)
        return trial

    def _version(self) -> str:
        assert self._harbor is not None
        return self._harbor.version

    def _vanished(self, plan: TrialPlan, why: str) -> Trial:
        """A trial that was asked for, and of which Harbor left no result."""
        blank = new_trial(plan.expected, plan.agent.name, self.name, sealed=False)
        return blank.model_copy(update={"status": "vanished", "warnings": (why,), "finished": now()})

    def _config(self, parallel: int, variables: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Harbor's job, but for its tasks and places."""
        agent = {**self._agent, "env": {**self._agent.get("env", {}), **variables}} if variables else self._agent
        return {
            "n_attempts": 1, "n_concurrent_trials": parallel, "quiet": True, "agents": [agent],
            "artifacts": [self._manifest.sandbox.workdir],
        }  # fmt: skip

    def _overlay(self, job: Job, folder: Path, variables: Mapping[str, str]) -> dict[str, Any] | None:
        if self._engine is None or _COMPOSES_OWN & set(variables):
            return None
        return compose_overlay(job_labels(job.id, folder), tuple(variables), CAPABILITIES if self.sealed else None)

    def _with_dollar(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Those whose value has a dollar sign: compose would read it as a reference, so the agent is told them itself.

        Only those, since Harbor blacks out what it takes for a secret of the agent's in all that it collects.
        """
        return {name: text for name, text in variables.items() if "$" in fill_in(text, self._caller)}

    def _environ(self) -> dict[str, str]:
        if self._engine is None:
            return environ(self._caller, {})
        caller = {name: text for name, text in self._caller.items() if name not in _CHOICES}
        engine = self._engine.environ
        chosen = {name: engine[name] for name in _CHOICES if name in engine}
        return environ(caller, chosen)


def _agent_config(agent: str, manifest: BuildManifest) -> dict[str, Any]:
    """Harbor's own oracle, or one of our agents for it."""
    if agent == OracleAgent.name:
        return {"name": "oracle"}
    if agent == ProbeAgent.name:
        return {"import_path": "harbor_replay:ProbeAgent"}
    if agent == ClaudeCodeAgent.name:
        return _claude_config(manifest)
    if agent == CodexAgent.name:  # all else is the launcher's and the seal's
        return {"name": "codex", "model_name": _model_name(str(manifest.models.skill), "openai")}
    mode = manifest.runner.permission_mode or DEFAULT_MODE
    options = {"permission_mode": mode, "plugins": ",".join(manifest.plugins)}
    options |= {"runner": "codex"} if manifest.runner.type == "codex" else {}
    return {"import_path": "harbor_replay:ReplayAgent", "kwargs": options}


def _claude_config(manifest: BuildManifest) -> dict[str, Any]:
    """Harbor's own claude-code, with the eval's flags; mode, questions and plugins are the launcher's in the image.

    It takes the model's key and address from the environment of Harbor's process.
    """
    runner, models = manifest.runner, manifest.models
    options = {
        "reasoning_effort": runner.effort, "append_system_prompt": runner.system_prompt,
        "max_budget_usd": None if (most := manifest.execution.max_budget_usd) is None else f"{most:g}",
    }  # fmt: skip
    config: dict[str, Any] = {
        "name": "claude-code", "kwargs": {name: value for name, value in options.items() if value is not None}
    }  # fmt: skip
    if models.skill is not None:
        config["model_name"] = _model_name(models.skill, "anthropic")
    if models.subagent is not None:
        config["env"] = {"CLAUDE_CODE_SUBAGENT_MODEL": models.subagent}
    return config


def _model_name(model: str, provider: str) -> str:
    """As Harbor takes it, with the provider before it."""
    return model if "/" in model else f"{provider}/{model}"


def _variables(task: Path) -> dict[str, str]:
    """The variables of a task's container, as task.toml has them: literals, or references to the caller's."""
    toml = read_toml(task / "task.toml")
    found: dict[str, str] = toml["environment"].get("env", {})
    return found


def _check_compose(env: Mapping[str, str]) -> None:
    """Harbor starts containers by `docker compose`, and would fail in each trial."""
    try:
        subprocess.run(
            ["docker", "compose", "version"], env=dict(env), stdin=subprocess.DEVNULL, capture_output=True, timeout=60,
            check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        raise MachineError(
            "Harbor needs the docker command with its compose plug-in; install it with this system's package manager "
            f"(docker-compose-plugin), or sh {display_path(resource('docker', 'plugins.sh'))} compose"
        ) from None
