"""A job's trials put together: rewards, judges, thresholds, and the exit code that follows (DESIGN.md, Job)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harbor_tasks.environments.base import Job, Trial, read_job, read_trials, trial_dir
from harbor_tasks.environments.costs import NOTHING, Spent, agent_spent, all_judges, hook_spent, judges_spent
from harbor_tasks.errors import InterruptedRun, MachineError
from harbor_tasks.results.questions import Answered, questions_of
from harbor_tasks.results.thresholds import (
    JudgeSummary,
    ThresholdResult,
    check_thresholds,
    judge_summaries,
    judges_of,
    mean,
)
from harbor_tasks.results.transcript import Transcript, read_transcript

FAULT = 1
"""Exit code: a trial errored, vanished or is unjudged, or a threshold was missed."""
_SHOWN, _DEPTH = 200, 40
"""Of a rewritten field: characters that are shown; of an input: how deep it is kept."""


@dataclass(frozen=True)
class Intercepted:
    """One call that a handler caught, or that a permission rule denied: what was called, what became of it, and why."""

    trial: str
    task: str
    attempt: int
    tool: str
    decision: str
    tier: str | None
    reason: str
    input: Any = field(default=None, compare=False)
    """As the agent proposed it; None when only the log tells of the call."""
    input_as_run: Any = field(default=None, compare=False)
    """As the tool got it; None when the call was refused."""


@dataclass(frozen=True)
class Costs:
    """What a job cost: the agent's model, the answers of the hook's, the judges'.

    ``earlier_usd`` is what trials cost that were run again since, whose details are gone.
    """

    agent: Spent = NOTHING
    hook: Spent = NOTHING
    judges: Spent = NOTHING
    earlier_usd: float = 0.0

    @property
    def total(self) -> Spent:
        """All together, earlier runs of trials too."""
        return self.agent + self.hook + self.judges + Spent(self.earlier_usd or None)


@dataclass(frozen=True)
class TaskSummary:
    """All attempts of one task; ``mean_reward`` is over those that were scored."""

    task: str
    case_id: str
    trials: tuple[Trial, ...]
    mean_reward: float | None


@dataclass(frozen=True)
class JobSummary:
    """A job as it stands, ready to be shown. ``faults`` say, a line each, why the exit code is not 0.

    ``mean_reward`` is over the ``scored`` trials; with fewer of them than ``expected`` it is only a part of the truth.
    """

    folder: Path
    job: Job
    tasks: tuple[TaskSummary, ...]
    scored: int
    mean_reward: float | None
    judges: tuple[JudgeSummary, ...]
    thresholds: tuple[ThresholdResult, ...]
    calls: tuple[Intercepted, ...]
    questions: tuple[Answered, ...]
    costs: Costs
    not_enforced: tuple[str, ...]
    warnings: tuple[str, ...]
    faults: tuple[str, ...]
    exit_code: int

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All trials, task by task."""
        return tuple(trial for task in self.tasks for trial in task.trials)

    @property
    def expected(self) -> int:
        """How many trials the job has to bring."""
        return len(self.job.expected)

    @property
    def partial(self) -> bool:
        """Are there trials without a reward?"""
        return self.scored < self.expected

    @property
    def guessed(self) -> int:
        """Answers that nobody had given: neither the case nor a model."""
        return sum(trial.calls.guessed for trial in self.trials)

    @property
    def denied(self) -> int:
        """Calls that were denied."""
        return sum(trial.calls.denied for trial in self.trials)


def collect_job(folder: Path, faults: Iterable[str] = ()) -> JobSummary:
    """Put the trials of a job together, with ``faults`` of the caller; AuthorError when the folder holds no job."""
    job, trials = read_job(folder), read_trials(folder)
    rewards = [trial.reward for trial in trials if is_scored(trial) and trial.reward is not None]
    judges = tuple(judge_summaries(job.manifest, trials))
    thresholds = tuple(check_thresholds(job.manifest.get("thresholds") or {}, judges))
    calls: list[Intercepted] = []
    questions: list[Answered] = []
    costs = Costs(earlier_usd=job.earlier_usd)
    warnings = list(job.not_enforced)
    for trial in trials:
        transcript = _read(folder, trial)
        calls += intercepted(trial, transcript)
        questions += questions_of(trial, transcript.log)
        costs = replace(
            costs, agent=costs.agent + agent_spent(trial), hook=costs.hook + hook_spent(transcript.log),
            judges=costs.judges + judges_spent(all_judges(trial)),
        )  # fmt: skip
        warnings += _warnings(trial, transcript)
    found = (*job_faults(job, trials, thresholds), *faults)
    return JobSummary(
        folder=folder,
        job=job,
        tasks=tuple(_by_task(trials)),
        scored=len(rewards),
        mean_reward=mean(rewards),
        judges=judges,
        thresholds=thresholds,
        calls=tuple(calls),
        questions=tuple(questions),
        costs=costs,
        not_enforced=tuple(h["match"] for h in job.manifest.get("handlers") or [] if not h.get("enforced", True)),
        warnings=tuple(warnings),
        faults=found,
        exit_code=exit_code(job, trials, found),
    )


def is_scored(trial: Trial) -> bool:
    """Does the trial have a reward that counts?"""
    return trial.status == "scored" and trial.reward is not None


def missing_steps(trial: Trial) -> tuple[str, ...]:
    """The steps that brought no result. One without judges of its own that just ran is none of them."""
    return tuple(step.id for step in trial.steps if step.status != "scored" and (step.judges or not _ran(step.status)))


def job_faults(job: Job, trials: Iterable[Trial], thresholds: Iterable[ThresholdResult]) -> Iterator[str]:
    """Everything that was asked for and did not happen, a line each."""
    if job.status == "interrupted":
        yield "the job was interrupted"
    for trial in trials:
        if not is_scored(trial) and not (job.status == "partial" and trial.status == "pending"):
            yield f"{trial_label(trial)}: {outcome(trial)}"
    yield from (str(threshold) for threshold in thresholds if not threshold.met)
    yield from job.errors
    if not job.expected:
        yield "the job has no trials"


def trial_label(trial: Trial) -> str:
    """How a trial is named in a line: its task, and the attempt when there are several."""
    return trial.task if trial.attempt == 1 else f"{trial.task} (attempt {trial.attempt})"


def outcome(trial: Trial) -> str:
    """What became of a trial without a reward, in words."""
    if trial.error is not None and trial.status not in ("interrupted", "pending"):
        return f"{trial.error.kind} error: {trial.error.message}"
    details = {
        "unjudged": f"unjudged, {_why_unjudged(trial)}",
        "vanished": "vanished, the job expected it and it left nothing",
        "interrupted": "interrupted",
        "pending": "not finished",
    }
    missing = f"; without a result: step {', '.join(missing_steps(trial))}" if missing_steps(trial) else ""
    return details.get(trial.status, f"{trial.status} without a reward") + missing


def _why_unjudged(trial: Trial) -> str:
    """Why there is no reward although nothing failed, and what to do."""
    if trial.unjudged:  # what to do is said once for all trials: `score` asks them
        return f"no verdict of {', '.join(trial.unjudged)}"
    judges = list(all_judges(trial))
    skipped = ", ".join(judge.name for judge in judges if judge.status == "skipped")
    if not judges:
        return "the eval has no judges for it; add judges to eval.yaml, and start a new job"
    if skipped and all(judge.status == "skipped" for judge in judges):
        return f"its judges were left out by their `if` ({skipped}); give the eval one that judges every case"
    left = f" ({skipped} was left out by `if`)" if skipped else ""
    return f"no judge that the reward counts reported{left}; see `reward` in eval.yaml"


def exit_code(job: Job, trials: Iterable[Trial], faults: Iterable[str]) -> int:
    """The first that applies: 130 interrupted, 3 the machine or the sandbox, 1 any other fault, 0 none.

    The author's input (2) stops a job before it has trials.
    """
    found = list(trials)
    if job.status == "interrupted" or any(trial.status == "interrupted" for trial in found):
        return InterruptedRun.exit_code
    if any(trial.error is not None and trial.error.kind == "environment" for trial in found):
        return MachineError.exit_code
    return FAULT if any(faults) else 0


def intercepted(trial: Trial, transcript: Transcript) -> Iterator[Intercepted]:
    """The calls of a trial that a handler caught or a permission rule denied, in the order of the transcript."""
    caught = {line.get("tool_use_id") for line in transcript.log if line.get("handler") is not None}
    for call in transcript.calls:
        if call.decision != "none" or call.id in caught:
            shown = _intercepted(trial, call.name, call.decision, call.tier, call.reason, call.answers)
            given, run = _cut(call.input), _cut(call.input_as_run)
            if call.decision == "rewrite" and run != given:
                shown = replace(shown, reason="; ".join(_changes(given, run)))
            yield replace(shown, input=given, input_as_run=run)
    for line in transcript.not_seen:
        if line["decision"] != "none" or line.get("tool_use_id") in caught:
            tool, answers = str(line.get("tool", "")), line.get("answers")
            shown = _intercepted(trial, tool, line["decision"], line.get("tier"), line.get("reason"), answers)
            yield replace(shown, input_as_run=_cut(line.get("updated_input")))


def _intercepted(
    trial: Trial, tool: str, decision: str, tier: Any, reason: Any, answers: Any
) -> Intercepted:  # fmt: skip
    said = [f"{a.get('question')} → {_answer(a.get('answer'))}" for a in answers or [] if isinstance(a, dict)]
    shown = "; ".join(said) or str(reason or "")
    return Intercepted(trial.id, trial.task, trial.attempt, tool, decision, tier if tier is None else str(tier), shown)


def _changes(before: Any, after: Any, at: str = "") -> Iterator[str]:
    """What a rewrite made of each field, a text each."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        yield f"{at}: {_brief(before)} → {_brief(after)}"
        return
    for name in dict.fromkeys((*before, *after)):
        here = f"{at}.{name}" if at else str(name)
        if name not in before:
            yield f"{here}: {_brief(after[name])}"
        elif before[name] != after.get(name):
            yield from _changes(before[name], after.get(name), here)


def _cut(value: Any, depth: int = _DEPTH) -> Any:
    """An input without what lies so deep that whoever goes through it would fail: a model may nest at will."""
    if isinstance(value, dict | list) and not depth:
        return "…"
    if isinstance(value, dict):
        return {name: _cut(item, depth - 1) for name, item in value.items()}
    return [_cut(item, depth - 1) for item in value] if isinstance(value, list) else value


def _brief(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _answer(answer: Any) -> str:
    return ", ".join(map(str, answer)) if isinstance(answer, list) else str(answer)


def _ran(status: str) -> bool:
    return status in ("scored", "unjudged")


def _by_task(trials: Iterable[Trial]) -> Iterator[TaskSummary]:
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(trial.task, []).append(trial)
    for task, found in groups.items():
        rewards = [trial.reward for trial in found if is_scored(trial) and trial.reward is not None]
        yield TaskSummary(task, found[0].case_id, tuple(found), mean(rewards))


def _read(folder: Path, trial: Trial) -> Transcript:
    place = trial_dir(folder, trial.id)
    return read_transcript(place / "transcript.jsonl", place / "interceptions.jsonl")


def _warnings(trial: Trial, transcript: Transcript) -> Iterator[str]:
    """What a reader of the numbers must know of a trial, a line each."""
    label = trial_label(trial)
    yield from (f"{label}: {warning}" for warning in trial.warnings)
    for judge in judges_of(trial).values():
        if judge.cut:
            yield f"{label}: judge {judge.name} was not shown all: {'; '.join(judge.cut)}"
        if judge.unmetered:
            yield f"{label}: judge {judge.name}: replies that tell no tokens, which no cost includes: {judge.unmetered}"
    if is_scored(trial) and missing_steps(trial):
        yield f"{label}: without a result: step {', '.join(missing_steps(trial))}"
    if transcript.bad_lines:
        yield f"{label}: {transcript.bad_lines} lines of the transcript cannot be read"
    if transcript.bad_log_lines:
        yield f"{label}: {transcript.bad_log_lines} lines of the interception log cannot be read"
    for call in transcript.changed:
        yield f"{label}: the input of {call.name} ({call.id}) is not the one that the hook saw"
