"""What Harbor left of a trial, read as the phases of a trial of ours.

Harbor's exit code says nothing about trials, so everything comes from its files (facts/harbor.md): ``result.json`` with
the exceptions of the trial and its steps, and what the sandbox brought home: the agent's transcript in ``agent/``, and
in ``verifier/`` the verdict, the interceptor's log and the settings in force. With steps, below ``steps/<id>/``.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from harbor_tasks.environments.base import InterruptedTrialError, SandboxError, Stop, TrialPlan
from harbor_tasks.environments.contained import Ended
from harbor_tasks.environments.staging import collect_sessions, copy_tree, remove_tree
from harbor_tasks.environments.trial import Part
from harbor_tasks.tasks.manifest import BuildManifest

TRANSCRIPTS = ("transcript.jsonl", "claude-code.txt")
"""What the agents leave: ours, and Harbor's own claude-code. Its codex leaves a record of its sessions."""
_OUTPUTS = ("stdout.txt", "oracle.txt", "codex.txt")
_BROUGHT = ("interceptions.jsonl", "settings.json", "test-stdout.txt", "transcript.jsonl")
_CANCELLED = "CancelledError"
_AGENT_TIMEOUT, _VERIFIER_TIMEOUT = "AgentTimeoutError", "VerifierTimeoutError"
_Phase = Literal["before", "agent", "verifier", "after"]
_SANDBOX_FAULTS = {
    "RuntimeError", "OSError", "EnvironmentStartTimeoutError", "SandboxBuildFailedError", "HealthcheckError",
    "SandboxLikelyOutOfMemoryError", "MemoryLimitExceededError", "SSHAccessError", "GKEExecStreamClosedError",
    "GKEPodNotFoundError", "RuntimeRequestError",
}  # fmt: skip
"""Exceptions of an agent's run that are not the agent's."""


@dataclass(frozen=True)
class HarborTrial:
    """One trial's folder of Harbor's job, finished: its ``result.json`` is there."""

    folder: Path
    result: Mapping[str, Any]

    @property
    def exceptions(self) -> list[Mapping[str, Any]]:
        """Of the trial and of its steps."""
        parts = [self.result, *(self.result.get("step_results") or [])]
        return [part["exception_info"] for part in parts if part.get("exception_info")]

    @property
    def cancelled(self) -> bool:
        """Was it ended from outside, before it was done?"""
        return any(error.get("exception_type") == _CANCELLED for error in self.exceptions)

    @property
    def times(self) -> tuple[str | None, str | None]:
        """When it started and finished, ISO 8601 in UTC."""
        return self.result.get("started_at"), self.result.get("finished_at")

    def place(self, step: str | None) -> Path:
        """The folder that holds ``agent/`` and ``verifier/`` of the task or of a step."""
        return self.folder if step is None else self.folder / "steps" / step

    def part(self, step: str | None) -> Mapping[str, Any] | None:
        """Harbor's result of the task or of a step; None when the step was not reached."""
        if step is None:
            return self.result
        found: list[Mapping[str, Any]] = self.result.get("step_results") or []
        return next((one for one in found if one.get("step_name") == step), None)

    def sealed(self, steps: tuple[str | None, ...]) -> bool:
        """Did every verifier that ran find root's own mark of a sealed sandbox?"""
        said = [load(self.place(step) / "verifier" / "judges.json").get("sealed") for step in steps]
        known = [one for one in said if one is not None]
        return bool(known) and all(one is True for one in known)


def read_harbor_trial(folder: Path) -> HarborTrial | None:
    """The trial of this folder, None while it runs (or when its result was cut off)."""
    result = load(folder / "result.json")
    return HarborTrial(folder, result) if result.get("finished_at") else None


class HarborSandbox:
    """The phases of `trial.Sandbox`, all over already: each only puts in place what Harbor brought home."""

    def __init__(
        self, found: HarborTrial, plan: TrialPlan, manifest: BuildManifest, stop: Stop, warnings: list[str]
    ) -> None:
        self._found, self._plan, self._workdir, self._warnings = found, plan, manifest.sandbox.workdir, warnings
        self._stop = stop
        self._steps: tuple[str | None, ...] = tuple(step.id for step in manifest.steps) or (None,)
        sealed = found.sealed(self._steps)
        self.log = plan.folder / "interceptions.jsonl"
        self.settings: Mapping[str | None, dict[str, Any]] = {
            step: self._settings(step, sealed=sealed) for step in self._steps
        }

    def _settings(self, step: str | None, *, sealed: bool) -> dict[str, Any]:
        """What was registered. Where no verifier brought the log home there is nothing to compare calls with."""
        verifier = self._found.place(step) / "verifier"
        if not (verifier / "judges.json").is_file():
            return {}
        if sealed:
            return load(verifier / "settings.json")
        environment = self._plan.task / "environment"
        own = environment / "steps" / str(step) / "settings.json"
        return load(own if own.is_file() else environment / ".claude" / "settings.json")

    def self_test(self) -> None:
        """It was `setup`'s, in Harbor's health check; what came of it is seen where the agent should have begun."""
        if self._found.cancelled and self._stop.wanted:
            raise InterruptedTrialError
        if self._found.cancelled:
            raise SandboxError("Harbor gave the trial up when it aborted the job")

    def open(self) -> None:
        """Done by `setup`."""

    def agent(self, part: Part, seconds: float) -> Ended:  # noqa: ARG002 - Harbor kept the limit of task.toml
        """How the agent ended."""
        result, place = self._found.part(part.id), self._found.place(part.id)
        error = (self._found.result if result is None else result).get("exception_info")
        if result is None or not result.get("agent_execution"):
            why = f": {self._said(error, part.id)}" if error else ""
            raise SandboxError(f"Harbor ended the trial before the agent's turn{why}")
        agent = place / "agent"
        if self._plan.agent.transcript_from == "sessions":  # of which TrialRun makes the transcript, as of the next
            self._warnings += collect_sessions(agent / "sessions", part.folder / "sessions")
            _copy_first(agent, _OUTPUTS, part.folder / "stdout.txt")
        elif self._plan.agent.transcript_from == "output":
            _copy_first(agent, TRANSCRIPTS, part.folder / "stdout.txt")
        else:
            _copy_first(agent, TRANSCRIPTS, part.transcript)
            _copy_first(agent, _OUTPUTS, part.folder / "stdout.txt")
        _copy_first(agent, ("stderr.txt",), part.folder / "agent.log")
        brought = place / "verifier" / "interceptions.jsonl"
        if brought.is_file():
            with brought.open("rb") as lines, self.log.open("ab") as log:
                shutil.copyfileobj(lines, log)
        lasted, code = _seconds(result["agent_execution"]), _exit_code(agent)
        if error and _phase(result, error) == "agent":
            kind = error.get("exception_type")
            if kind in _SANDBOX_FAULTS:
                raise SandboxError(self._said(error, part.id))
            if kind == _AGENT_TIMEOUT:
                return Ended("timeout", None, lasted, 0)
            if not code:  # an agent of Harbor's, which keeps no exit code
                (part.folder / "agent.log").write_text(self._said(error, part.id), encoding="utf-8")
                code = 1
        return Ended("exited", code, lasted, 0)

    def verify(self, part: Part, log: Path, seconds: float) -> Ended:  # noqa: ARG002 - read from what it wrote
        """What the verifier wrote."""
        result, verifier = self._found.part(part.id) or {}, self._found.place(part.id) / "verifier"
        error, target = result.get("exception_info"), part.folder / "verifier"
        if error and _phase(result, error) == "after":
            self._warnings.append(f"after the trial: {self._said(error, part.id)}")
        if verifier.is_dir():
            for path in sorted(verifier.iterdir()):
                if path.name not in _BROUGHT:
                    copy_tree(path, target / path.name)
        with (part.folder / "verifier.log").open("w", encoding="utf-8") as shown:
            with contextlib.suppress(OSError):
                shown.write((verifier / "test-stdout.txt").read_text(encoding="utf-8", errors="replace"))
            if error and _phase(result, error) == "verifier":
                shown.write(f"\n{self._said(error, part.id)}\n")
        timed_out = error is not None and error.get("exception_type") == _VERIFIER_TIMEOUT
        code = 0 if (target / "reward.json").is_file() else 1
        return Ended("timeout" if timed_out else "exited", code, _seconds(result.get("verifier")), 0)

    def collect(self) -> None:
        """The workspace as the agent left it (after its last step), which Harbor kept as an artifact."""
        for step in reversed(self._steps):
            kept = self._found.place(step) / "artifacts" / self._workdir.strip("/")
            if kept.is_dir():
                remove_tree(self._plan.folder / "workspace")
                kept.rename(self._plan.folder / "workspace")
                return
        self._warnings.append("Harbor kept no copy of the workspace")

    def _said(self, error: Mapping[str, Any], step: str | None) -> str:
        """An exception of Harbor's in a line, with what `setup` complained about when it was that."""
        message = " ".join(str(error.get("exception_message")).split())
        if len(message) > 700:  # a command line that ends with what went wrong
            message = f"{message[:150]} … {message[-500:]}"
        text = f"{error.get('exception_type')}: {message}"
        complaints = [place / "agent" / "setup.txt" for place in (self._found.place(step), self._found.folder)]
        found = next((path for path in complaints if path.is_file()), None)
        return text if found is None else f"{text}; {found.read_text(encoding='utf-8', errors='replace').strip()[:600]}"


def _phase(result: Mapping[str, Any], error: Mapping[str, Any]) -> _Phase:
    """When an exception of the task or of a step happened."""
    if not result.get("agent_execution"):
        return "before"
    at, judged = _moment(error.get("occurred_at")), _moment((result.get("verifier") or {}).get("started_at"))
    if at is None or judged is None or at < judged:
        return "agent"
    return "verifier" if result.get("verifier_result") is None else "after"


def _exit_code(agent: Path) -> int:
    """Of our own agents from run.json, of Harbor's oracle from what it writes when it is not 0."""
    code = load(agent / "run.json").get("exit_code")
    if isinstance(code, int):
        return code
    try:
        return int((agent / "exit-code.txt").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


def _copy_first(folder: Path, names: tuple[str, ...], target: Path) -> None:
    source = next((folder / name for name in names if (folder / name).is_file()), None)
    if source is not None:
        shutil.copyfile(source, target)


def _seconds(timing: Mapping[str, Any] | None) -> float:
    """How long a phase of Harbor's took."""
    began, ended = (_moment((timing or {}).get(name)) for name in ("started_at", "finished_at"))
    return 0.0 if began is None or ended is None else (ended - began).total_seconds()


def _moment(text: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None


def load(path: Path) -> dict[str, Any]:
    """The JSON object of a file; empty when there is none that can be read."""
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}
