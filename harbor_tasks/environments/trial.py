"""One trial, wherever it runs: its phases in order, and what becomes of them in trial.json.

stage → self-test → agent → end its processes → verifier → collect → remove (DESIGN.md, "A trial"); with steps, agent to
verifier once for each, on one workspace. The sandbox of an environment does each of them.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import stat
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from harbor_tasks import __version__
from harbor_tasks.environments import recordings
from harbor_tasks.environments.base import (
    Calls,
    ErrorKind,
    InterruptedTrialError,
    JudgeResult,
    SandboxError,
    StepResult,
    Stop,
    Trial,
    TrialError,
    TrialPlan,
    new_trial,
    now,
    write_record,
)
from harbor_tasks.environments.contained import Ended
from harbor_tasks.environments.costs import ByModel, hook_spent, priced, tokens_of, told_in_output
from harbor_tasks.environments.evidence import (
    cost_of,
    end_of,
    gone_around,
    json_lines,
    keep_sessions,
    keep_transcript,
    version_in,
)
from harbor_tasks.environments.records import read_toml
from harbor_tasks.environments.scripted import REQUESTS
from harbor_tasks.environments.staging import copy_tree, remove_tree
from harbor_tasks.environments.verdict import Verdict, read_verdict
from harbor_tasks.tasks.manifest import BuildManifest, StepPart

AGENT_SECONDS = 3600.0
VERIFIER_SECONDS = 600.0
"""Limits of a task that names none."""


@dataclass
class Part:
    """What is known of a task that has no steps, or of one step."""

    step: StepPart | None
    folder: Path
    """Where it is kept: the trial's own folder, or one below it."""
    ended: Ended | None = None
    verdict: Verdict = field(default_factory=Verdict)
    error: TrialError | None = None
    cost: float | None = None
    """As the program says."""
    tokens: ByModel = field(default_factory=dict)
    budget: float | None = None
    """What earlier steps left of the trial's budget, in USD; None: all of it."""

    @property
    def id(self) -> str | None:
        """The step's id."""
        return self.step.id if self.step is not None else None

    @property
    def transcript(self) -> Path:
        """Where its transcript is kept."""
        return self.folder / "transcript.jsonl"

    def result(self) -> StepResult:
        """As it stands in trial.json."""
        error = self.error or self.verdict.error
        status = "error" if error is not None else self.verdict.status if self.ended is not None else "pending"
        return StepResult(
            id=self.id or "", status=status, reward=self.verdict.reward,
            judges=self.verdict.judges, error=error, exit_code=self.ended.exit_code if self.ended else None,
            duration_s=_seconds(self.ended.seconds if self.ended else None),
        )  # fmt: skip


class TamperedError(SandboxError):
    """What decides or judges was changed while the agent worked: the trial is void."""


class Sandbox(Protocol):
    """A staged place for one trial. Its methods may raise SandboxError and InterruptedTrialError."""

    log: Path
    """The interceptor's log, as far as this machine has it; complete after `agent`."""
    settings: Mapping[str | None, dict[str, Any]]
    """What was registered for the task (None) and its steps: read before the agent could change it."""

    def self_test(self) -> None:
        """SelfTestError when a registered hook does not do what it must."""

    def open(self) -> None:
        """The last touch before the agent."""

    def agent(self, part: Part, seconds: float) -> Ended:
        """Let the agent work and end all that it started; transcript and output are in the part's folder then."""

    def verify(self, part: Part, log: Path, seconds: float) -> Ended:
        """Run tests/test.sh; what it wrote is in ``verifier/`` of the part's folder then. ``log``: the part's lines."""


Enter = Callable[[list[str]], AbstractContextManager[Sandbox]]
"""Stages the trial; on every way out it collects what was left and removes the rest. The list takes warnings."""


class TrialRun:
    """One trial while it runs."""

    def __init__(
        self, plan: TrialPlan, manifest: BuildManifest, stop: Stop, *, environment: str, sealed: bool,
        versions: Mapping[str, str],
    ) -> None:  # fmt: skip
        self.plan, self.stop = plan, stop
        steps = manifest.steps or (None,)
        self.parts = [Part(step, plan.folder / "steps" / step.id if step else plan.folder) for step in steps]
        self.max_usd, self.runner = manifest.execution.max_budget_usd, manifest.runner.type
        self.toml: dict[str, Any] = {}
        self.error: TrialError | None = None
        self.warnings: list[str] = []
        self.void = False
        versions = {"harbor-pack": __version__, "agent": plan.agent.version, **versions}
        blank = new_trial(plan.expected, plan.agent.name, environment, sealed=sealed)
        self.blank = blank.model_copy(update={"started": now(), "versions": versions})

    def run(self, enter: Enter) -> Trial:
        """All phases; whatever goes wrong becomes the trial's error. The finished trial.json is written."""
        write_record(self.plan.folder / "trial.json", self.blank)
        interrupted = False
        try:
            self.toml = read_toml(self.plan.task / "task.toml")
            with enter(self.warnings) as sandbox:
                self._phases(sandbox)
        except InterruptedTrialError:
            interrupted = True
        except (SandboxError, OSError, ValueError) as error:
            kind: ErrorKind = "tampered" if isinstance(error, TamperedError) else "environment"
            self.error = self.error or TrialError(kind=kind, message=str(error))
        for part in self.parts:  # what was cut short was paid, too
            part.tokens = part.tokens or (told_in_output(part.folder) if self.plan.agent.program else {})
        self._note_budget()
        trial = self._trial(interrupted)
        write_record(self.plan.folder / "trial.json", trial)
        return trial

    def _phases(self, sandbox: Sandbox) -> None:
        sandbox.self_test()
        sandbox.open()
        for part in self.parts:
            if self._is_spent(part):
                break
            self._play(sandbox, part)
            if part.error is not None and (part.step is None or part.step.on_failure == "fail"):
                break

    def _play(self, sandbox: Sandbox, part: Part) -> None:
        """Agent, the end of its processes, verifier: of the task or of one step."""
        if self.stop.wanted:
            raise InterruptedTrialError
        part.folder.mkdir(parents=True, exist_ok=True)
        seen = sandbox.log.stat().st_size if sandbox.log.exists() else 0
        part.ended = sandbox.agent(part, self._seconds(part, "agent") or AGENT_SECONDS)
        names = ("stdout.txt", "agent.log", part.transcript.name, REQUESTS)
        for path in (*(part.folder / name for name in names), sandbox.log):
            _only_a_file(path)
        if self.plan.model is not None:
            self.plan.model.keep(self.plan.expected.trial, part.id, part.folder)
        if self.plan.agent.transcript_from == "output":
            keep_transcript(part.folder / "stdout.txt", part.transcript)
        elif self.plan.agent.transcript_from == "sessions":
            keep_sessions(part.folder / "sessions", part.transcript)
        part.error = _agent_error(part.ended, part)
        self.warnings += recordings.notes(self.plan, part.id, part.transcript, runner=self.runner)
        self._note_version(part)
        part.cost, part.tokens = cost_of(part.transcript), tokens_of(part.transcript)
        log = sandbox.log
        if part.step is not None:
            log = part.folder / "interceptions.jsonl"
            _append(part.transcript, self.plan.folder / "transcript.jsonl")
            _append(sandbox.log, log, seen)
        around = gone_around(part.transcript, sandbox.log, sandbox.settings[part.id])
        if around:
            self.void = True
            self.error = TrialError(kind="tampered", message="; ".join(around))
        self._verify(sandbox, part, log)

    def _is_spent(self, part: Part) -> bool:
        """Has the trial no budget left for a step? Else the step gets what is left."""
        cost, most = self._cost()[0], self.max_usd
        if most is None or cost is None or part is self.parts[0]:
            return False
        if cost < most:
            part.budget = most - cost
            return False
        message = f"execution.max_budget_usd {most:g} is used up ({cost:.4g} USD)"
        part.error = TrialError(kind="agent", message=f"{message}; the step was not started")
        return True

    def _note_budget(self) -> None:
        """Say what went over the budget: a program ends after the message that used it up, and not every one ends."""
        cost, unpriced = self._cost()
        if self.max_usd is None:
            return
        if unpriced:
            models = ", ".join(unpriced)
            self.warnings.append(f"execution.max_budget_usd cannot be compared: the price of {models} is not known")
        hook = hook_spent(json_lines(self.plan.folder / "interceptions.jsonl")).usd or 0.0
        if (cost or 0) + hook > self.max_usd:
            answers = f" and {hook:.4g} USD for answers" if hook else ""
            over = f"execution.max_budget_usd {self.max_usd:g} was passed: {cost or 0:.4g} USD for the agent{answers}"
            self.warnings.append(over)

    def _cost(self) -> tuple[float | None, tuple[str, ...]]:
        """What the agent cost so far, and the models that this does not hold."""
        known, unpriced = list[float](), list[str]()
        for part in self.parts:
            cost, more = (part.cost, ()) if part.cost is not None else priced(part.tokens)
            known += [] if cost is None else [cost]
            unpriced += more
        return (sum(known) if known else None), tuple(dict.fromkeys(unpriced))

    def _tokens(self) -> ByModel:
        """The agent's tokens, all parts together."""
        found: ByModel = {}
        for model, usage in (item for part in self.parts for item in part.tokens.items()):
            known = found.setdefault(model, {})
            known.update({kind: known.get(kind, 0) + count for kind, count in usage.items()})
        return found

    def _note_version(self, part: Part) -> None:
        """What the program says of itself beats what was known before."""
        version = version_in(part.transcript)
        if version is not None:
            self.blank = self.blank.model_copy(update={"versions": {**self.blank.versions, "agent": version}})

    def _verify(self, sandbox: Sandbox, part: Part, log: Path) -> None:
        """tests/test.sh on what the agent left; also after a timeout, as Harbor does it."""
        assert part.ended is not None
        for name in ("verifier", "run.json", "verifier.log"):  # whatever the agent may have put there
            remove_tree(part.folder / name)
        (part.folder / "verifier").mkdir(mode=0o700)
        ended = sandbox.verify(part, log, self._seconds(part, "verifier") or VERIFIER_SECONDS)
        part.verdict = read_verdict(part.folder / "verifier", part.folder / "verifier.log", ended)
        self.warnings += part.verdict.notes

    def _seconds(self, part: Part, phase: str) -> float | None:
        """The limit of task.toml for a phase: a step's own beats the task's."""
        steps = [
            table for table in self.toml.get("steps", []) if part.step is not None and table.get("name") == part.id
        ]
        return next((found for table in (*steps, self.toml) if (found := _number(table.get(phase)))), None)

    def _trial(self, interrupted: bool) -> Trial:
        """The finished trial: its last part's reward, all parts' judges, the first error."""
        last, done = self.parts[-1], [part for part in self.parts if part.ended is not None]
        error = self.error or self._part_error()
        complete = last.verdict.error is None and last.ended is not None
        cost, unpriced = self._cost()
        status = "interrupted" if interrupted else "error" if error is not None else last.verdict.status
        judges: list[JudgeResult] = [judge for part in self.parts for judge in part.verdict.judges]
        if last.step is not None and last.ended is not None:
            with contextlib.suppress(OSError):
                copy_tree(last.folder / "verifier", self.plan.folder / "verifier")
        return self.blank.model_copy(
            update={
                "status": status, "error": None if interrupted else error, "judges": tuple(judges),
                "reward": last.verdict.reward if complete and not self.void and not interrupted else None,
                "unjudged": tuple(name for part in self.parts for name in part.verdict.unjudged),
                "warnings": tuple(dict.fromkeys(self.warnings)), "finished": now(),
                "duration_s": _seconds(sum(part.ended.seconds for part in done if part.ended) if done else None),
                "exit_code": done[-1].ended.exit_code if done and done[-1].ended else None,
                "cost_usd": cost, "tokens": self._tokens(), "unpriced": unpriced,
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


def _agent_error(ended: Ended, part: Part) -> TrialError | None:
    if ended.why == "timeout":
        return TrialError(kind="timeout", message=f"the agent was ended after {ended.seconds:.0f} s")
    if ended.why == "flooded":
        return TrialError(kind="agent", message="the agent was ended: it printed without end")
    if ended.exit_code is None:
        return TrialError(kind="environment", message="the process that watches the agent was ended from outside")
    if ended.exit_code:
        said = end_of(part.transcript) or _last_line(part.folder / "agent.log")
        said = said or _last_line(part.folder / "stdout.txt")
        return TrialError(kind="agent", message=f"exit code {ended.exit_code}" + (f": {said}" if said else ""))
    return None


def _named(part: Part, error: TrialError) -> TrialError:
    if part.step is None:
        return error
    return TrialError(kind=error.kind, message=f"step {part.step.id}: {error.message}")


def run_record(part: Part, stdout: str) -> bytes:
    """What the verifier is told of the agent's run (its ``--run`` file); ``stdout`` is where it finds the output."""
    assert part.ended is not None
    run = {
        "exit_code": part.ended.exit_code, "duration_s": part.ended.seconds, "cost_usd": part.cost,
        "stdout_file": stdout,
    }  # fmt: skip
    return json.dumps(run).encode()


def _only_a_file(path: Path) -> None:
    """Where an agent could put something else in a log's place: nothing is followed, or waited for without end."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(path.lstat().st_mode):
            remove_tree(path)


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
