"""A job's folder, written with the package's own models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harbor_tasks.environments.base import Expected, Job, Trial, new_trial, trial_dir, write_record

Judge = dict[str, Any]


class JobFolder:
    """A job whose trials are added one by one."""

    def __init__(self, folder: Path, **job: Any) -> None:
        self.folder = folder
        self.job = {
            "id": "job-1", "name": "demo", "source": "/built", "agent": "replay", "environment": "local", "attempts": 1,
            "created": "2026-01-02T03:04:05.000Z", "status": "finished", "sealed": True, **job,
        }  # fmt: skip
        self.expected: list[Expected] = []
        self._write()

    def _write(self) -> None:
        write_record(self.folder / "job.json", Job.model_validate({**self.job, "expected": self.expected}))

    def trial(self, task: str = "c1", *, attempt: int = 1, recorded: bool = True, **found: Any) -> Path:
        """A trial that the job expects, and what became of it; with ``recorded=False`` it left nothing."""
        ident = f"t{len(self.expected)}"
        wanted = Expected(
            trial=ident, task=task, name=f"demo/{task}", case_id=f"case {task}", attempt=attempt, digest="d"
        )
        self.expected.append(wanted)
        self._write()
        place = trial_dir(self.folder, ident)
        place.mkdir(parents=True)
        if recorded:
            blank = new_trial(wanted, "replay", "local", sealed=True).model_dump()
            status = "scored" if found.get("reward") is not None else "error"
            write_record(place / "trial.json", Trial.model_validate({**blank, "status": status, **found}))
        return place


def judge(name: str, value: object = None, *, status: str = "ok", **more: Any) -> Judge:
    """A line of what a verifier wrote."""
    passed = value if isinstance(value, bool) else None
    normalized = float(value) if isinstance(value, int | float) else None
    return {"name": name, "status": status, "value": value, "passed": passed, "normalized": normalized, **more}


def error(kind: str, message: str = "it broke") -> dict[str, str]:
    """A trial's error."""
    return {"kind": kind, "message": message}


def write_lines(path: Path, *lines: object) -> None:
    """One JSON value a line; a text is written as it is."""
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
