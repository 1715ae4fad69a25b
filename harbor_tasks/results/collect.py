"""A job's trials put together: rewards, judges, thresholds, and the exit code that follows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harbor_tasks.environments.base import Job, Trial


@dataclass(frozen=True)
class JudgeSummary:
    """One judge over a job's trials, on its own scale. Rates are shares in 0 to 1; None: nothing to count."""

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
    """One limit of a threshold and whether it was kept; ``actual`` is None when the judge never reported."""

    judge: str
    limit: str
    wanted: float
    actual: float | None
    met: bool


@dataclass(frozen=True)
class Intercepted:
    """One call that the hook decided: what was called, what became of it, and why."""

    trial: str
    task: str
    attempt: int
    tool: str
    decision: str
    tier: str | None
    reason: str


@dataclass(frozen=True)
class TaskSummary:
    """All attempts of one task; ``mean_reward`` is over those that were scored."""

    task: str
    case_id: str
    trials: tuple[Trial, ...]
    mean_reward: float | None


@dataclass(frozen=True)
class JobSummary:
    """A job as it stands, ready to be shown."""

    folder: Path
    job: Job
    tasks: tuple[TaskSummary, ...]
    scored: int
    mean_reward: float | None
    judges: tuple[JudgeSummary, ...]
    thresholds: tuple[ThresholdResult, ...]
    calls: tuple[Intercepted, ...]
    not_enforced: int
    exit_code: int

    @property
    def expected(self) -> int:
        """How many trials the job has to bring."""
        return len(self.job.expected)


def collect_job(folder: Path) -> JobSummary:
    """Put the trials of a job together; AuthorError when the folder holds no job."""
    raise NotImplementedError
