"""The environment on this machine: the agent runs as the author's own user, in a temporary workspace, not sealed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from harbor_tasks.agents.base import Places
from harbor_tasks.environments.base import InterruptedTrialError, Job, Stop, Trial, TrialPlan
from harbor_tasks.environments.contained import Ended, end_marked, run_contained
from harbor_tasks.environments.judge_model import judge_model
from harbor_tasks.environments.selftest import LocalHooks, self_test
from harbor_tasks.environments.staging import (
    POLICY_FILES,
    Staged,
    collect,
    collect_sessions,
    open_for_agent,
    private,
    reclaim,
    remove_tree,
    scratch_folder,
    stage,
    stage_solution,
    stage_tests,
)
from harbor_tasks.environments.trial import Part, Sandbox, TamperedError, TrialRun, run_record
from harbor_tasks.environments.variables import MODEL, require_variables, resolve_value
from harbor_tasks.errors import MachineError
from harbor_tasks.tasks.manifest import BuildManifest
from harbor_tasks.tasks.state import stamp_of

NEEDED = {"bash": "package bash", "python3": "package python3"}


class LocalEnvironment:
    """Trials of one build on this machine."""

    name: str = "local"
    sealed: bool = False

    def __init__(self, manifest: BuildManifest, caller: Mapping[str, str]) -> None:
        """``caller``: the environment of the user, from which references are filled in."""
        self._manifest = manifest
        self._caller = dict(caller)

    def not_enforced(self) -> tuple[str, ...]:
        """What the sandbox section asks for and nothing holds here."""
        sandbox = self._manifest.sandbox
        lines = (
            [] if sandbox.network == "public" else [f"sandbox.network: {sandbox.network} (the network is open here)"]
        )
        limits = {"cpus": sandbox.cpus, "memory_mb": sandbox.memory_mb}
        lines += [f"sandbox.{name}: {value}" for name, value in limits.items() if value is not None]
        image = sandbox.image or sandbox.dockerfile
        return (*lines, *([f"the image {image} (trials use this machine's programs)"] if image else []))

    def prepare(self) -> None:
        """Everything that references name is set, and the programs that hooks and commands need are there."""
        require_variables(self._manifest, self._caller)
        for program, how in NEEDED.items():
            if shutil.which(program, path=self._caller.get("PATH")) is None:
                raise MachineError(f"{program} is not on PATH, and trials need it; install the {how}")
        self._caller["PATH"] = real_python_first(self._caller)

    def model_host(self) -> str:
        """The loopback device."""
        return "127.0.0.1"

    def use_model(self, url: str) -> None:
        """Trials are told one by one."""

    def ready(self, say: Callable[[str], None]) -> None:
        """This machine is as ready as it will be."""

    def opened(self, job: Job, folder: Path) -> AbstractContextManager[None]:  # noqa: ARG002 - as the others
        """Trials here share nothing."""
        return nullcontext()

    def run(self, plan: TrialPlan, stop: Stop) -> Trial:
        """One trial, from an empty folder to a finished trial.json; nothing is left running or in /tmp."""
        python = ".".join(map(str, sys.version_info[:3]))
        run = TrialRun(
            plan, self._manifest, stop, environment=self.name, sealed=self.sealed, versions={"python": python}
        )
        return run.run(lambda warnings: self._staged(plan, stop, warnings))

    @contextmanager
    def _staged(self, plan: TrialPlan, stop: Stop, warnings: list[str]) -> Iterator[Sandbox]:
        """The trial in its temporary folder, of which nothing stays."""
        with scratch_folder(plan.folder) as scratch:
            staged = stage(plan.task, plan.folder, scratch, self._manifest, self._caller)
            try:
                yield LocalSandbox(staged, plan, self._manifest, self._caller, stop, warnings)
            finally:
                end_marked(str(scratch))
                remove_tree(staged.home / "layer")  # the build still has it
                if not stop.now:
                    warnings += collect(staged)


def real_python_first(caller: Mapping[str, str]) -> str:
    """The caller's PATH, with the folder of the Python that its `python3` starts in front.

    A shim of a version manager looks its choice up in the user's HOME, which trials do not have, and takes its time.
    """
    path = caller.get("PATH", os.defpath)
    found = shutil.which("python3", path=path)
    try:
        asked = [found or "python3", "-I", "-S", "-c", "import sys; print(sys.executable)"]
        said = subprocess.run(asked, env=dict(caller), capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise MachineError(f"python3 on PATH does not start: {error}") from None
    real = Path(said.strip()).parent
    return path if found is None or Path(found).parent == real else f"{real}{os.pathsep}{path}"


class LocalSandbox:
    """One trial's phases on this machine."""

    def __init__(
        self, staged: Staged, plan: TrialPlan, manifest: BuildManifest, caller: Mapping[str, str], stop: Stop,
        warnings: list[str],
    ) -> None:  # fmt: skip
        self.staged, self.plan, self.manifest, self.caller = staged, plan, manifest, caller
        self.stop, self.warnings = stop, warnings
        self.log = staged.log
        self._opened, self._policy = 0, ""
        steps = tuple(step.id for step in manifest.steps) or (None,)
        self.settings: Mapping[str | None, dict[str, Any]] = {step: _load_settings(staged, step) for step in steps}

    def self_test(self) -> None:
        """The registered commands of all settings, in the workspace."""
        staged = self.staged
        for settings in {json.dumps(one): one for one in self.settings.values()}.values():
            hooks = LocalHooks(settings, staged.log, staged.workspace, staged.env)
            self_test(settings, hooks, cwd=str(staged.workspace), home=str(staged.home))

    def open(self) -> None:
        """The mark that tells the agent's files from the others."""
        open_for_agent(self.staged)
        self._opened = (self.staged.home / "started").stat().st_mtime_ns
        self._policy = self._policy_stamp()

    def agent(self, part: Part, seconds: float) -> Ended:
        """The agent's program, then the end of all that bears the trial's mark."""
        staged, agent, step = self.staged, self.plan.agent, part.id
        reclaim(staged)
        instruction = self.plan.task / ("instruction.md" if step is None else f"steps/{step}/instruction.md")
        places = Places(
            workspace=staged.workspace, home=staged.home, settings=staged.settings(step),
            transcript=part.transcript, mcp_config=staged.mcp_config, step=step,
            solution=stage_solution(staged, step) if agent.needs_solution else staged.scratch / "solution",
            instruction=staged.scratch / "instruction.md", user=staged.scratch / "user", budget_usd=part.budget,
        )  # fmt: skip
        remove_tree(places.instruction)
        if instruction.is_file():
            shutil.copyfile(instruction, places.instruction)
        launch = agent.launch(places)
        own = {name: resolve_value(value, self.caller) for name, value in (part.step.env if part.step else {}).items()}
        if self.plan.model is not None:
            own |= self.plan.model.variables(self.plan.expected.trial, self.plan.task, step)
        else:
            known = (*(MODEL if agent.asks_hooks else ()), *agent.model_variables)  # hooks may ask a model, too
            own |= {name: self.caller[name] for name in known if name in self.caller}
        ended = run_contained(
            launch.argv, cwd=staged.workspace, env={**staged.env, **own, **launch.env}, stdin=launch.stdin,
            stdout=part.folder / "stdout.txt", stderr=part.folder / "agent.log", timeout=seconds, stop=self.stop,
        )  # fmt: skip
        if launch.sessions is not None:
            self.warnings += collect_sessions(launch.sessions, part.folder / "sessions")
            remove_tree(launch.sessions)  # a step has its own
        if end_marked(str(staged.scratch)):
            self.warnings.append("processes that had left the agent's tree were ended")
        return self._ended(ended)

    def verify(self, part: Part, log: Path, seconds: float) -> Ended:
        """tests/test.sh, told by options where everything is."""
        staged, logs = self.staged, part.folder / "verifier"
        if self._policy_stamp() != self._policy:
            raise TamperedError("the policy in the trial's folder was changed while the agent worked")
        reclaim(staged)
        self._mark_again()
        tests = stage_tests(staged, part.id)
        (part.folder / "run.json").write_bytes(run_record(part, str(part.folder / "stdout.txt")))
        argv = [
            "sh", str(tests / "test.sh"), "--workspace", str(staged.workspace),
            "--logs", str(logs), "--home", str(staged.home), "--transcript", str(part.transcript),
            "--interceptions", str(log), "--run", str(part.folder / "run.json"),
        ]  # fmt: skip
        # with a scripted agent nothing is paid for
        model = None if self.plan.model else judge_model(self.manifest, self.caller, in_sandbox=False)
        given = staged.scratch / "model.json"
        remove_tree(given)
        if model is not None:  # the verifier removes it before it starts anything
            private(given, model)
            argv += ["--model", str(given)]
        shown = part.folder / "verifier.log"
        try:
            ended = run_contained(
                argv, cwd=tests, env=self._verifier_env(), stdout=shown, stderr=shown, timeout=seconds,
                stop=self.stop,
            )  # fmt: skip
        finally:
            remove_tree(given)
        return self._ended(ended)

    def _policy_stamp(self) -> str:
        """Of what decides on the agent's calls, within its reach: a change moves times that it cannot set back."""
        names = [*POLICY_FILES, "settings.json", *(f"steps/{step}/settings.json" for step in self.settings if step)]
        return stamp_of([("tree", str(self.staged.home / name)) for name in names])[0]

    def _mark_again(self) -> None:
        """The mark as it was made: it lies within the agent's reach."""
        mark = self.staged.home / "started"
        mark.parent.mkdir(exist_ok=True)
        remove_tree(mark)
        mark.write_bytes(b"")
        os.utime(mark, ns=(self._opened, self._opened))

    def _verifier_env(self) -> dict[str, str]:
        """The agent's, with folders that the agent has not touched; Python is first the one that harbor-pack runs with.

        Judges may import PyYAML, as in the runtime image: this one has it.
        """
        staged = self.staged
        fresh = {name: staged.scratch / f"verifier-{name.lower()}" for name in ("HOME", "TMPDIR")}
        for folder in fresh.values():
            remove_tree(folder)
            folder.mkdir()
        path = f"{Path(sys.executable).parent}{os.pathsep}{staged.env.get('PATH', os.defpath)}"
        return {**staged.env, **{name: str(folder) for name, folder in fresh.items()}, "PATH": path}

    def _ended(self, ended: Ended) -> Ended:
        if ended.why == "stopped":
            raise InterruptedTrialError
        return ended


def _load_settings(staged: Staged, step: str | None) -> dict[str, Any]:
    """The settings as they were staged: what the agent makes of the file later does not count."""
    path = staged.settings(step)
    if not path.is_file():
        path.write_text("{}\n", encoding="utf-8")
    data: dict[str, Any] = json.loads(path.read_bytes())
    return data
