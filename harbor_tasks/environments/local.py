"""The environment on this machine: the agent runs as the author's own user, in a temporary workspace, without a seal.

Phases of a trial (DESIGN.md, "A trial"): stage → self-test → agent → end its processes → verifier → collect → remove;
with steps, agent to verifier once for each, on one workspace.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harbor_tasks import __version__
from harbor_tasks.agents.base import Places
from harbor_tasks.environments.base import (
    Calls,
    JudgeResult,
    StepResult,
    Stop,
    Trial,
    TrialError,
    TrialPlan,
    new_trial,
    now,
    write_record,
)
from harbor_tasks.environments.contained import Ended, end_marked, run_contained
from harbor_tasks.environments.evidence import cost_of, gone_around
from harbor_tasks.environments.selftest import SelfTestError, self_test
from harbor_tasks.environments.staging import (
    Staged,
    StagingError,
    collect,
    copy_tree,
    open_for_agent,
    remove_tree,
    scratch_folder,
    stage,
    stage_solution,
    stage_tests,
)
from harbor_tasks.environments.variables import MODEL, resolve_value, unset_variables
from harbor_tasks.environments.verdict import Verdict, read_verdict
from harbor_tasks.errors import AuthorError, MachineError, Problem, Where
from harbor_tasks.tasks.manifest import BuildManifest, StepPart

AGENT_SECONDS = 3600.0
VERIFIER_SECONDS = 600.0
"""Limits of a task that names none."""
NEEDED = {"bash": "package bash", "python3": "package python3"}


class _InterruptedTrialError(Exception):
    """The user wants the job to end."""


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
        missing = unset_variables(self._manifest, self._caller)
        if missing:
            raise AuthorError(
                Problem(f"${name} is not set, and {where} needs it", Where(), "export it before the run", code="unset")
                for name, where in dict.fromkeys(missing)
            )
        for program, how in NEEDED.items():
            if shutil.which(program, path=self._caller.get("PATH")) is None:
                raise MachineError(f"{program} is not on PATH, and trials need it; install the {how}")
        self._caller["PATH"] = real_python_first(self._caller)

    def run(self, plan: TrialPlan, stop: Stop) -> Trial:
        """One trial, from an empty folder to a finished trial.json; nothing is left running or in /tmp."""
        run = _Run(plan, self._manifest, self._caller, stop)
        trial = run.run()
        write_record(plan.folder / "trial.json", trial)
        return trial


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


@dataclass
class _Part:
    """What is known of a task that has no steps, or of one step."""

    step: StepPart | None
    folder: Path
    ended: Ended | None = None
    verdict: Verdict = field(default_factory=Verdict)
    error: TrialError | None = None
    cost: float | None = None

    def result(self) -> StepResult:
        """As it stands in trial.json."""
        error = self.error or self.verdict.error
        status = "error" if error is not None else self.verdict.status if self.ended is not None else "pending"
        return StepResult(
            id=self.step.id if self.step is not None else "", status=status, reward=self.verdict.reward,
            judges=self.verdict.judges, error=error, exit_code=self.ended.exit_code if self.ended else None,
            duration_s=_seconds(self.ended.seconds if self.ended else None),
        )  # fmt: skip


class _Run:
    """One trial while it runs."""

    def __init__(self, plan: TrialPlan, manifest: BuildManifest, caller: Mapping[str, str], stop: Stop) -> None:
        self.plan, self.manifest, self.caller, self.stop = plan, manifest, caller, stop
        steps = manifest.steps or (None,)
        self.parts = [_Part(step, plan.folder / "steps" / step.id if step else plan.folder) for step in steps]
        self.toml: dict[str, Any] = {}
        self.error: TrialError | None = None
        self.warnings: list[str] = []
        self.void = False
        self.settings: dict[Path, dict[str, Any]] = {}
        """Of each part's folder: as they were staged."""

    def run(self) -> Trial:
        """All phases; whatever goes wrong becomes the trial's error."""
        started = now()
        blank = new_trial(self.plan.expected, self.plan.agent.name, LocalEnvironment.name, sealed=False)
        blank = blank.model_copy(update={"started": started, "versions": self._versions()})
        write_record(self.plan.folder / "trial.json", blank)
        interrupted = False
        try:
            self.toml = tomllib.loads((self.plan.task / "task.toml").read_text(encoding="utf-8"))
            with scratch_folder(self.plan.folder) as scratch:
                self._in_scratch(scratch)
        except _InterruptedTrialError:
            interrupted = True
        except (StagingError, SelfTestError, OSError, ValueError) as error:
            self.error = TrialError(kind="environment", message=str(error))
        return self._trial(blank, interrupted)

    def _in_scratch(self, scratch: Path) -> None:
        staged = stage(self.plan.task, self.plan.folder, scratch, self.manifest, self.caller)
        try:
            self.settings = {part.folder: _load_settings(staged, part.step) for part in self.parts}
            for settings in {json.dumps(one): one for one in self.settings.values()}.values():
                self_test(settings, staged.home, staged.log, staged.workspace, staged.env)
            open_for_agent(staged)
            for part in self.parts:
                self._play(staged, part)
                if part.error is not None and (part.step is None or part.step.on_failure == "fail"):
                    break
        finally:
            end_marked(str(scratch))
            remove_tree(staged.home / "layer")  # the build still has it
            if not self.stop.now:
                self.warnings += collect(staged)

    def _play(self, staged: Staged, part: _Part) -> None:
        """Agent, the end of its processes, verifier: of the task or of one step."""
        if self.stop.wanted:
            raise _InterruptedTrialError
        part.folder.mkdir(parents=True, exist_ok=True)
        seen = staged.log.stat().st_size if staged.log.exists() else 0
        part.ended = self._agent(staged, part)
        if end_marked(str(staged.scratch)):
            self.warnings.append("processes that had left the agent's tree were ended")
        if part.ended.why == "stopped":
            raise _InterruptedTrialError
        part.error = self._agent_error(part.ended, part)
        transcript = part.folder / "transcript.jsonl"
        part.cost = cost_of(transcript)
        if part.step is not None:
            _append(transcript, self.plan.folder / "transcript.jsonl")
            _append(staged.log, part.folder / "interceptions.jsonl", seen)
        around = gone_around(transcript, staged.log, self.settings[part.folder])
        if around:
            self.void = True
            self.error = TrialError(kind="tampered", message="; ".join(around))
        self._verify(staged, part)

    def _agent(self, staged: Staged, part: _Part) -> Ended:
        step = part.step.id if part.step is not None else None
        instruction = self.plan.task / ("instruction.md" if step is None else f"steps/{step}/instruction.md")
        places = Places(
            workspace=staged.workspace, home=staged.home, settings=staged.settings(step),
            transcript=part.folder / "transcript.jsonl", mcp_config=staged.mcp_config, step=step,
            solution=stage_solution(staged, step) if self.plan.agent.needs_solution else staged.scratch / "solution",
            instruction=staged.scratch / "instruction.md",
        )  # fmt: skip
        if instruction.is_file():
            shutil.copyfile(instruction, places.instruction)
        launch = self.plan.agent.launch(places)
        own = {name: resolve_value(value, self.caller) for name, value in (part.step.env if part.step else {}).items()}
        if self.plan.agent.asks_hooks:  # which may ask a model
            own |= {name: self.caller[name] for name in MODEL if name in self.caller}
        return run_contained(
            launch.argv, cwd=staged.workspace, env={**staged.env, **own, **launch.env}, stdin=launch.stdin,
            stdout=part.folder / "stdout.txt", stderr=part.folder / "agent.log", timeout=self._agent_seconds(part.step),
            stop=self.stop,
        )  # fmt: skip

    def _agent_error(self, ended: Ended, part: _Part) -> TrialError | None:
        if ended.why == "timeout":
            return TrialError(kind="timeout", message=f"the agent was ended after {ended.seconds:.0f} s")
        if ended.why == "flooded":
            return TrialError(kind="agent", message="the agent was ended: it printed without end")
        if ended.exit_code is None:
            return TrialError(kind="environment", message="the process that watches the agent was ended from outside")
        if ended.exit_code:
            said = _last_line(part.folder / "agent.log") or _last_line(part.folder / "stdout.txt")
            return TrialError(kind="agent", message=f"exit code {ended.exit_code}" + (f": {said}" if said else ""))
        return None

    def _verify(self, staged: Staged, part: _Part) -> None:
        """tests/test.sh on what the agent left; also after a timeout, as Harbor does it."""
        assert part.ended is not None
        logs = part.folder / "verifier"
        for name in ("verifier", "run.json", "verifier.log"):  # whatever the agent may have put there
            remove_tree(part.folder / name)
        logs.mkdir(mode=0o700)
        run = {
            "exit_code": part.ended.exit_code, "duration_s": part.ended.seconds, "cost_usd": part.cost,
            "stdout_file": str(part.folder / "stdout.txt"),
        }  # fmt: skip
        (part.folder / "run.json").write_text(json.dumps(run), encoding="utf-8")
        step = part.step.id if part.step is not None else None
        tests = stage_tests(staged, step)
        log = part.folder / ("interceptions.jsonl" if step is not None else staged.log.name)
        argv = [
            "sh", str(tests / "test.sh"), "--workspace", str(staged.workspace), "--logs", str(logs),
            "--home", str(staged.home), "--transcript", str(part.folder / "transcript.jsonl"),
            "--interceptions", str(log), "--run", str(part.folder / "run.json"),
        ]  # fmt: skip
        shown = part.folder / "verifier.log"
        ended = run_contained(
            argv, cwd=staged.workspace, env=self._verifier_env(staged), stdout=shown, stderr=shown,
            timeout=self._verifier_seconds(part.step), stop=self.stop,
        )  # fmt: skip
        if ended.why == "stopped":
            raise _InterruptedTrialError
        part.verdict = read_verdict(logs, shown, ended)
        self.warnings += part.verdict.notes

    def _verifier_env(self, staged: Staged) -> dict[str, str]:
        """The agent's, with folders that the agent has not touched; Python is first the one that harbor-pack runs with.

        Judges may import PyYAML, as in the runtime image: this one has it.
        """
        fresh = {name: staged.scratch / f"verifier-{name.lower()}" for name in ("HOME", "TMPDIR")}
        for folder in fresh.values():
            folder.mkdir(exist_ok=True)
        path = f"{Path(sys.executable).parent}{os.pathsep}{staged.env.get('PATH', os.defpath)}"
        return {**staged.env, **{name: str(folder) for name, folder in fresh.items()}, "PATH": path}

    def _agent_seconds(self, step: StepPart | None) -> float:
        own = _number(self._step_toml(step).get("agent")) if step is not None else None
        return own or _number(self.toml.get("agent")) or AGENT_SECONDS

    def _verifier_seconds(self, step: StepPart | None) -> float:
        own = _number(self._step_toml(step).get("verifier")) if step is not None else None
        return own or _number(self.toml.get("verifier")) or VERIFIER_SECONDS

    def _step_toml(self, step: StepPart) -> dict[str, Any]:
        return next((table for table in self.toml.get("steps", []) if table.get("name") == step.id), {})

    def _versions(self) -> dict[str, str]:
        python = ".".join(map(str, sys.version_info[:3]))
        return {"harbor-pack": __version__, "agent": self.plan.agent.version, "python": python}

    def _trial(self, blank: Trial, interrupted: bool) -> Trial:
        """The finished trial: its last part's reward, all parts' judges, the first error."""
        last, done = self.parts[-1], [part for part in self.parts if part.ended is not None]
        error = self.error or self._part_error()
        complete = last.verdict.error is None and last.ended is not None
        status = "interrupted" if interrupted else "error" if error is not None else last.verdict.status
        judges: list[JudgeResult] = [judge for part in self.parts for judge in part.verdict.judges]
        if last.step is not None and last.ended is not None:
            with contextlib.suppress(OSError):
                copy_tree(last.folder / "verifier", self.plan.folder / "verifier")
        return blank.model_copy(
            update={
                "status": status, "error": None if interrupted else error, "judges": tuple(judges),
                "reward": last.verdict.reward if complete and not self.void and not interrupted else None,
                "unjudged": tuple(name for part in self.parts for name in part.verdict.unjudged),
                "warnings": tuple(dict.fromkeys(self.warnings)), "finished": now(),
                "duration_s": _seconds(sum(part.ended.seconds for part in done if part.ended) if done else None),
                "exit_code": done[-1].ended.exit_code if done and done[-1].ended else None,
                "cost_usd": sum(costs) if (costs := [p.cost for p in done if p.cost is not None]) else None,
                "calls": _sum_calls([part.verdict.calls for part in done]),
                "steps": tuple(part.result() for part in self.parts if part.step is not None),
            }
        )  # fmt: skip

    def _part_error(self) -> TrialError | None:
        """The first error of a part that is not allowed to fail; the last part's verifier has to report."""
        for part in self.parts:
            if part.error is not None and (part.step is None or part.step.on_failure == "fail"):
                return _named(part, part.error)
            if part.verdict.error is not None:
                return _named(part, part.verdict.error)
        return None


def _named(part: _Part, error: TrialError) -> TrialError:
    if part.step is None:
        return error
    return TrialError(kind=error.kind, message=f"step {part.step.id}: {error.message}")


def _load_settings(staged: Staged, step: StepPart | None) -> dict[str, Any]:
    """The settings as they were staged: what the agent makes of the file later does not count."""
    path = staged.settings(step.id if step is not None else None)
    if not path.is_file():
        path.write_text("{}\n", encoding="utf-8")
    data: dict[str, Any] = json.loads(path.read_bytes())
    return data


def _append(source: Path, target: Path, offset: int = 0) -> None:
    """Append a file, from ``offset`` on, to another."""
    if source.is_file():
        with source.open("rb") as given, target.open("ab") as out:
            given.seek(offset)
            shutil.copyfileobj(given, out)


def _last_line(path: Path) -> str:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1][:300] if lines else ""


def _number(table: Any) -> float | None:
    value = table.get("timeout_sec") if isinstance(table, dict) else None
    return float(value) if isinstance(value, int | float) and value > 0 else None


def _seconds(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _sum_calls(calls: list[Calls]) -> Calls:
    return Calls(**{name: sum(getattr(one, name) for one in calls) for name in Calls.model_fields})
