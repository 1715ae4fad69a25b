"""What a job may cost: past it no new trial is started, those that run finish (`run --max-cost`)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

from harbor_tasks.environments.base import Job
from harbor_tasks.environments.costs import NOTHING, Spent, folder_spent, job_spent


class CostLimit:
    """Counts what the trials of a job cost, those of its earlier runs too. Shared between threads."""

    def __init__(self, job: Job, folder: Path) -> None:
        self.most = job.max_cost_usd
        self._lock = threading.Lock()
        self._spent = NOTHING if self.most is None else job_spent(folder) + Spent(job.earlier_usd or None)
        self._said: set[str] = set()

    @property
    def reached(self) -> bool:
        """May no trial be started any more?"""
        return self.most is not None and self.usd >= self.most

    @property
    def usd(self) -> float:
        """What the job cost so far, as far as prices are known."""
        return self._spent.usd or 0.0

    def add(self, folder: Path) -> Iterator[str]:
        """Count the trial of a folder, which has ended; what the limit cannot count is said once."""
        if self.most is None:
            return
        spent = folder_spent(folder)
        with self._lock:
            self._spent += spent
            new = [model for model in spent.unpriced if model not in self._said]
            self._said.update(new)
        for model in new:
            yield f"the price of {model} is not known: --max-cost cannot count its tokens"
