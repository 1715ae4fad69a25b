"""`score`: model judges are asked about what a job collected, and its trials scored anew with their verdicts.

What a judge is asked was written down when the trial was verified, with the workspace as it was then (see
interceptor/judge.py); neither the sandbox nor the built tasks are needed. Replies are recorded beside it, one line each
as it comes: asked again, the same table is made of them. The reward is the verifier's own rule (interceptor/verify.py).
Judges that are not models ran in the sandbox, with the trial, and stay as they are.
"""

from __future__ import annotations

import difflib
import json
import queue
import shlex
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harbor_tasks.environments.base import (
    Job,
    StepResult,
    Stop,
    Trial,
    read_job,
    read_trials,
    trial_dir,
    write_record,
)
from harbor_tasks.environments.contained import Ended
from harbor_tasks.environments.lock import job_lock
from harbor_tasks.environments.signals import signals_ask
from harbor_tasks.environments.staging import copy_tree, remove_tree
from harbor_tasks.environments.variables import MODEL
from harbor_tasks.environments.verdict import Verdict, read_verdict
from harbor_tasks.errors import AuthorError, InterruptedRun, MachineError, Problem, Where, display_path
from harbor_tasks.resources import script_module
from harbor_tasks.results.collect import trial_label
from harbor_tasks.results.judge_files import NotWholeError, Part, read_part

PARALLEL = 4
"""Judges that are asked at a time."""
_RAN = ("scored", "unjudged", "error")
_TICK = 0.1


@dataclass(frozen=True)
class Asked:
    """What a `score` did: verdicts that were asked for, those made of recorded replies, and those that failed."""

    asked: int = 0
    recorded: int = 0
    failed: int = 0
    refused: tuple[str, ...] = ()
    """Trials whose files cannot be judged by, a line each: what, where, what to do."""

    def __str__(self) -> str:
        if self.refused and not self.asked and not self.recorded:
            return "no model judge was asked"
        if not self.asked and not self.recorded:
            return "no model judge had anything to judge"
        failed = f", {self.failed} without a verdict" if self.failed else ""
        return f"model judges: {self.asked} asked{failed}, {self.recorded} from recorded replies"


@dataclass(frozen=True)
class _Todo:
    """One judge of one part; ``number`` is the round of its replies."""

    part: Part
    judge: dict[str, Any]
    number: int

    def lines(self) -> list[dict[str, Any]]:
        """The replies that are recorded."""
        name = self.judge["name"]
        found: list[dict[str, Any]] = self.part.replies.of(
            name, self.part.kept["requests"][name]["digest"], self.number
        )
        return found

    def is_complete(self) -> bool:
        """Is there nothing to ask?"""
        return not script_module("judge").missing(self.judge, self.lines(), script_module("verify").mismatch)


def score_job(
    folder: Path, caller: Mapping[str, str], *, names: Sequence[str] = (), fresh: bool = False,
    parallel: int = PARALLEL, say: Callable[[str], None] = lambda _line: None,
) -> Asked:  # fmt: skip
    """Ask the model judges of a job that have no verdict (or those of ``names``), and score its trials with them.

    ``fresh``: recorded replies do not count, all are asked. ``caller`` is the environment with the key, which is needed
    only when something is asked (MachineError without). AuthorError for an unknown judge, or while the job runs.
    Trials whose files are not what the job asks are refused, and stay as they are. Interrupted (InterruptedRun), it
    leaves every verdict and every reply that it got.
    """
    job = read_job(folder)
    _check_names(job, names)
    with job_lock(folder):
        trials = {trial.id: trial for trial in read_trials(folder)}
        refused: list[str] = []
        parts = list(_parts(folder, job, trials.values(), refused))
        todo = [_todo(part, judge, fresh=fresh) for part in parts for judge in part.judges(names)]
        endpoint = _endpoint(caller)
        waiting = [one for one in todo if not one.is_complete()]
        if waiting and endpoint is None:
            for fault in refused:
                say(fault)
            what = ", ".join(dict.fromkeys(one.judge["name"] for one in waiting))
            raise MachineError(f"no key for the model of {what}; export ANTHROPIC_API_KEY (or ANTHROPIC_AUTH_TOKEN)")
        taken, failed, stop = 0, 0, Stop()
        with signals_ask(stop):
            for one, answer, seconds in _answers(todo, endpoint, parallel, stop):
                line = one.part.take(one.judge, answer, seconds)
                taken, failed = taken + 1, failed + (line["status"] != "ok")
                if seconds is not None:
                    said = line["error"] or _shown(line)
                    say(f"{one.part.label}: {one.judge['name']}: {said}")
                trials[one.part.trial] = _rejudged(folder, job, trials[one.part.trial])
        if taken < len(todo):
            raise InterruptedRun("interrupted")
        return Asked(len(waiting), len(todo) - len(waiting), failed, tuple(refused))


def waiting_judges(trials: Sequence[Trial]) -> list[str]:
    """The model judges without a verdict that `score` would ask, by name, each once."""
    names = (
        judge.name
        for trial in trials
        if trial.status in _RAN and not _is_void(trial)
        for judge in trial.judges
        if judge.kind == "prompt" and judge.status in ("pending", "error")
    )
    return list(dict.fromkeys(names))


def _check_names(job: Job, names: Sequence[str]) -> None:
    kinds = {str(judge["name"]): str(judge["kind"]) for judge in job.manifest.get("judges") or []}
    faults = []
    for name in names:
        if name not in kinds:
            close = difflib.get_close_matches(name, kinds, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"judges of this job: {', '.join(kinds) or 'none'}"
            faults.append(Problem(f"--judge: the job has no judge {name!r}", Where(), hint, code="no-such-judge"))
        elif kinds[name] != "prompt":
            hint = "it runs again with its trial, in a new job"
            said = f"--judge: {name!r} is no model judge ({kinds[name]}): it ran with the trial, where the agent worked"
            faults.append(Problem(said, Where(), hint, code="no-model-judge"))
    if faults:
        raise AuthorError(faults)


def _endpoint(caller: Mapping[str, str]) -> Any:
    key, token, url = (caller.get(name) for name in MODEL)
    return script_module("judge").endpoint_of(url, key, token)


def _todo(part: Part, judge: dict[str, Any], *, fresh: bool) -> _Todo:
    """With ``fresh`` a round of its own, unless nothing was ever asked."""
    name = judge["name"]
    known = any(line["judge"] == name for line in part.replies.lines)
    return _Todo(part, judge, part.replies.round(name) + (1 if fresh and known else 0))


def _parts(folder: Path, job: Job, trials: Iterable[Trial], refused: list[str]) -> Iterator[Part]:
    """What verifiers left of all trials that came so far. One that must not count is not worth a request.

    Of a trial of which a part is not whole there is none, and ``refused`` gets a line.
    """
    has_models = any(judge["kind"] == "prompt" for judge in job.manifest.get("judges") or [])
    for trial in trials:
        if has_models and trial.error is not None and trial.error.kind == "record":
            refused.append(f"{trial_label(trial)}: model judges were not asked: {trial.error.message}")
        if not has_models or trial.status not in _RAN or _is_void(trial):
            continue
        try:
            parts = []
            for step, place in _places(folder, trial):
                label = trial_label(trial) + (f", step {step}" if step is not None else "")
                parts.append(read_part(job, trial, step, label, place / "verifier"))
        except NotWholeError as error:
            refused.append(f"{label}: model judges were not asked: {error}")
            continue
        yield from (part for part in parts if part is not None)


def _is_void(trial: Trial) -> bool:
    """Must it not count, or is what it left not to be written over?"""
    return trial.error is not None and trial.error.kind in ("tampered", "record")


def _places(folder: Path, trial: Trial) -> list[tuple[str | None, Path]]:
    """The folder of the trial, or those of its steps that ran."""
    top = trial_dir(folder, trial.id)
    if not trial.steps:
        return [(None, top)]
    return [(step.id, top / "steps" / step.id) for step in trial.steps if step.status != "pending"]


def _shown(line: Mapping[str, Any]) -> str:
    value = line["value"]
    return f"{value:g}" if isinstance(value, float) else json.dumps(value)


# ---- asking, several at a time ----


_Answer = tuple[_Todo, dict[str, Any], float | None]
"""A judge, its answer, and how long it took; None: it was made of recorded replies."""


def _answers(todo: Sequence[_Todo], endpoint: Any, parallel: int, stop: Stop) -> Iterator[_Answer]:
    """The answers as they come; asked to stop, those that have come. Left early, nothing more is begun.

    The threads are daemons: a request that runs must not keep an interrupted command from returning.
    """
    given: queue.SimpleQueue[_Todo] = queue.SimpleQueue()
    found: queue.Queue[_Answer | BaseException] = queue.Queue()
    stopped = threading.Event()
    for one in todo:
        given.put(one)

    def is_over() -> bool:
        return stopped.is_set() or stop.wanted

    def work() -> None:
        while not is_over():
            try:
                one = given.get_nowait()
            except queue.Empty:
                return
            try:
                answer = _answer(one, endpoint, is_over)
                if one.is_complete() or not is_over():  # else it is of fewer samples than wanted
                    found.put(answer)
            except BaseException as error:  # noqa: BLE001 - the main thread raises it
                found.put(error)

    for _ in range(min(parallel, len(todo))):
        threading.Thread(target=work, daemon=True).start()
    try:
        for _ in todo:
            while True:
                try:
                    got = found.get(timeout=_TICK)  # not without a limit: signals must come through
                    break
                except queue.Empty:
                    if stop.wanted:
                        return
            if isinstance(got, BaseException):
                raise got
            yield got
    finally:
        stopped.set()


def _answer(one: _Todo, endpoint: Any, stop: Callable[[], bool]) -> _Answer:
    module, mismatch = script_module("judge"), script_module("verify").mismatch
    is_complete, seconds = one.is_complete(), None
    if is_complete:
        answer: dict[str, Any] = module.answer_of(one.judge, one.lines(), mismatch)
    else:
        try:
            body = one.part.body(one.judge["name"])
            answer = module.answered(
                one.judge, body, one.part.replies, endpoint, mismatch, number=one.number, stop=stop
            )
        except NotWholeError as error:
            answer = {"error": str(error)}
        except OSError as error:  # this judge's: the others are asked
            answer = {"error": f"{display_path(Path(one.part.replies.path))}: cannot be written ({error.strerror})"}
        except (ValueError, RecursionError, OverflowError) as error:  # a reply of a form that nobody thought of
            answer = {"error": f"the reply cannot be kept ({type(error).__name__})"}
        seconds = sum(float(line.get("seconds") or 0) for line in one.lines())
    paid = [line for line in list(one.part.replies.lines) if line["judge"] == one.judge["name"]]
    return one, {**answer, **module.spent(paid)}, seconds  # of the rounds before, too


# ---- the trial ----


def _rejudged(folder: Path, job: Job, trial: Trial) -> Trial:
    """The trial with what its verifiers' folders say now, written to trial.json (as `TrialRun` does it)."""
    top = trial_dir(folder, trial.id)
    verdicts = {step: _verdict(place) for step, place in _places(folder, trial)}
    own = trial.error if trial.error is not None and trial.error.kind != "verifier" else None
    steps = tuple(_step(step, verdicts[step.id]) if step.id in verdicts else step for step in trial.steps)
    if trial.steps:
        last = verdicts.get(trial.steps[-1].id)
        error = own or _first_error(job, steps, verdicts)
        if last is not None:
            remove_tree(top / "verifier")
            copy_tree(top / "steps" / trial.steps[-1].id / "verifier", top / "verifier")
    else:
        last = verdicts[None]
        error = own or last.error
    judges = [judge for verdict in verdicts.values() for judge in verdict.judges]
    status = "error" if error is not None else last.status if last is not None else trial.status
    scored = trial.model_copy(
        update={
            "status": status, "error": error, "judges": tuple(judges), "steps": steps,
            "reward": last.reward if last is not None and last.error is None else None,
            "unjudged": tuple(name for verdict in verdicts.values() for name in verdict.unjudged),
        }
    )  # fmt: skip
    write_record(top / "trial.json", scored)
    return scored


def _verdict(place: Path) -> Verdict:
    return read_verdict(place / "verifier", place / "verifier.log", Ended("exited", None, 0.0, 0))


def _step(step: StepResult, verdict: Verdict) -> StepResult:
    own = step.error if step.error is not None and step.error.kind in ("agent", "timeout", "environment") else None
    error = own or verdict.error
    status = "error" if error is not None else verdict.status
    found = {"status": status, "error": error, "reward": verdict.reward, "judges": verdict.judges}
    return step.model_copy(update=found)


def _first_error(job: Job, steps: Sequence[StepResult], verdicts: Mapping[str | None, Verdict]) -> Any:
    """The first error of a step that may not fail, or of a verifier, by the step's name."""
    lenient = {step["id"] for step in job.manifest.get("steps") or [] if step.get("on_failure") == "continue"}
    for step in steps:
        verdict = verdicts.get(step.id)
        own = step.error if verdict is None or step.error != verdict.error else None
        error = own if own is not None and step.id not in lenient else verdict.error if verdict is not None else None
        if error is not None:
            return error.model_copy(update={"message": f"step {step.id}: {error.message}"})
    return None


def score_hint(folder: Path, trials: Sequence[Trial]) -> str | None:
    """What to do about judges that wait for a model; None when none does."""
    names = waiting_judges(trials)
    if not names:
        return None
    ask = f"harbor-pack score {shlex.quote(display_path(folder))}"
    return f"no verdict yet of the model judge{'s' if len(names) > 1 else ''} {', '.join(names)}; to ask: {ask}"
