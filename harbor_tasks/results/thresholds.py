"""A job's judges over all its trials, and the thresholds that `eval.yaml` sets for them (DESIGN.md, Job)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from harbor_tasks.environments.base import JudgeResult, Trial
from harbor_tasks.environments.costs import all_judges


@dataclass(frozen=True)
class JudgeSummary:
    """One judge over a job's trials, on its own scale (a boolean counts 1 or 0). Rates are shares, 0 to 1.

    ``pending`` are the trials whose model has still to be asked; they are no part of a rate. ``errors`` are the other
    trials without a result although the judge was not skipped: it failed, or its trial never came that far. None: there
    was nothing to count.
    """

    name: str
    trials: int
    reported: int
    skipped: int
    pending: int
    errors: int
    mean: float | None
    pass_rate: float | None
    error_rate: float | None


@dataclass(frozen=True)
class ThresholdResult:
    """One limit of a threshold and whether it was kept; ``actual`` is None when there is nothing to compare.

    While verdicts are ``pending`` it is not met, whatever those are that came.
    """

    judge: str
    limit: str
    wanted: float
    actual: float | None
    met: bool
    pending: int = 0
    why: str = ""
    """Why it is not met, and what to do where the number alone does not say it."""

    @property
    def word(self) -> str:
        """What became of it."""
        return "met" if self.met else "not known yet" if self.pending else "missed"

    def as_json(self) -> dict[str, Any]:
        """As plain data; `why` stands among the job's faults."""
        return {name: value for name, value in asdict(self).items() if name != "why"}

    def __str__(self) -> str:
        why = f": {self.why}" if self.why else ""
        return f"threshold {self.judge}.{self.limit} {self.wanted:g} is {self.word}{why}"


def judges_of(trial: Trial) -> dict[str, JudgeResult]:
    """Name → result of all judges of a trial, those of its steps included."""
    return {judge.name: judge for judge in all_judges(trial)}


def judge_summaries(manifest: Mapping[str, Any], trials: Iterable[Trial]) -> Iterator[JudgeSummary]:
    """Each judge of the eval over all expected trials."""
    results = [judges_of(trial) for trial in trials]
    declared = [str(judge["name"]) for judge in manifest.get("judges") or []]
    names = dict.fromkeys([*declared, *(name for found in results for name in found)])
    for name in names:
        found = [result[name] for result in results if name in result]
        status = Counter(judge.status for judge in found)
        values = [
            float(judge.value) for judge in found if judge.status == "ok" and isinstance(judge.value, int | float)
        ]
        passed = [judge.passed for judge in found if judge.status == "ok" and judge.passed is not None]
        counted = len(results) - status["skipped"] - status["pending"]
        yield JudgeSummary(
            name=name, trials=len(results), reported=status["ok"], skipped=status["skipped"],
            pending=status["pending"], errors=counted - status["ok"], mean=mean(values),
            pass_rate=mean([float(value) for value in passed]),
            error_rate=(counted - status["ok"]) / counted if counted else None,
        )  # fmt: skip


def check_thresholds(thresholds: Mapping[str, Any], judges: Iterable[JudgeSummary]) -> Iterator[ThresholdResult]:
    """Each limit against the judge's own scale; a judge that never reported keeps none."""
    by_name = {judge.name: judge for judge in judges}
    for name, limits in thresholds.items():
        judge = by_name.get(name)
        for limit, what in (("min_mean", "mean"), ("min_pass_rate", "pass_rate"), ("max_error_rate", "error_rate")):
            wanted = limits.get(limit)
            if wanted is not None:
                actual: float | None = None if judge is None else getattr(judge, what)
                pending = 0 if judge is None else judge.pending
                met = judge is not None and judge.reported > 0 and not pending and _kept(limit, actual, wanted)
                why = "" if met else _why_missed(judge, limit, actual)
                yield ThresholdResult(name, limit, wanted, actual, met, pending, why)


def mean(values: list[float]) -> float | None:
    """The mean; None of nothing."""
    return math.fsum(values) / len(values) if values else None


def _why_missed(judge: JudgeSummary | None, limit: str, actual: float | None) -> str:
    """It never reported, reported something else than the limit asks about, or missed it: three different things."""
    if judge is not None and judge.pending:
        return f"{judge.pending} pending"
    if judge is None or not judge.reported:
        return _why_silent(judge)
    if actual is None and limit == "min_pass_rate":
        said = f"its {judge.reported} verdicts are numbers" if judge.reported > 1 else "its verdict is a number"
        mean = "" if judge.mean is None else f", mean {judge.mean:.4g}"
        return f"{said}{mean}, and a number neither passes nor fails; use min_mean, or let it return true or false"
    return "it gave no number" if actual is None else f"it is {actual:.4g}"


def _why_silent(judge: JudgeSummary | None) -> str:
    """Why a judge never reported."""
    if judge is None or not judge.trials:
        return "nothing was reported"
    if judge.skipped == judge.trials:
        return "it never reported: its `if` left it out of every trial; change its `if`, or remove the threshold"
    errors = f"{judge.errors} of {judge.trials - judge.skipped} trials brought no verdict of it"
    return f"it never reported: {errors}; the faults of the trials, and of the judge in them, say why"


def _kept(limit: str, actual: float | None, wanted: float) -> bool:
    if actual is None:
        return False
    near = math.isclose(actual, wanted, rel_tol=1e-9, abs_tol=1e-12)
    return near or (actual < wanted if limit.startswith("max_") else actual > wanted)
