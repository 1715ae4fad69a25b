"""What a verifier wrote, read back: judges, reward, or why there is none."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harbor_tasks.environments.base import Calls, JudgeResult, TrialError, TrialStatus
from harbor_tasks.environments.contained import Ended


@dataclass(frozen=True)
class Verdict:
    """The verifier's word on a task or step: ``reward`` is None unless the verifier itself put one in place."""

    judges: tuple[JudgeResult, ...] = ()
    reward: float | None = None
    unjudged: tuple[str, ...] = ()
    calls: Calls = field(default_factory=Calls)
    notes: tuple[str, ...] = ()
    error: TrialError | None = None

    @property
    def status(self) -> TrialStatus:
        """Scored, unjudged (a judge that the reward needs has still to report, or there is none), or an error."""
        if self.error is not None:
            return "error"
        return "unjudged" if self.reward is None else "scored"


def read_verdict(folder: Path, log: Path, ended: Ended) -> Verdict:
    """Read ``judges.json`` and ``reward.json`` of a verifier's folder."""
    if ended.why == "timeout":
        return Verdict(error=TrialError(kind="verifier", message=f"not done after {ended.seconds:.0f} s"))
    try:
        data = json.loads((folder / "judges.json").read_bytes())
        judges = tuple(JudgeResult.model_validate(judge) for judge in data["judges"])
        calls = Calls.model_validate(data.get("calls") or {})
    except (OSError, ValueError, LookupError, TypeError, RecursionError, ValidationError) as error:
        why = f"no judges.json that can be read ({type(error).__name__}), exit code {ended.exit_code}{_tail(log)}"
        return Verdict(error=TrialError(kind="verifier", message=why))
    reward = _reward(folder / "reward.json")
    unjudged = tuple(str(name) for name in data.get("unjudged") or ())
    notes = tuple(str(note) for note in data.get("notes") or ())
    return Verdict(
        judges, reward, unjudged, calls, notes, None if reward is not None else _fault(data, judges, unjudged)
    )


def _fault(data: dict[str, Any], judges: tuple[JudgeResult, ...], unjudged: tuple[str, ...]) -> TrialError | None:
    """Why there is no reward, when it is a fault; a judge that was never asked (pending) is none."""
    if data.get("error"):
        return TrialError(kind="tampered" if data.get("not_logged") else "verifier", message=str(data["error"]))
    failed = [judge for judge in judges if judge.status == "error" and (judge.name in unjudged or not unjudged)]
    if failed:
        texts = [f"judge {judge.name}: {judge.error or judge.reason or 'no reason given'}" for judge in failed]
        return TrialError(kind="verifier", message="; ".join(texts))
    return None


def _reward(path: Path) -> float | None:
    try:
        value = json.loads(path.read_bytes())["reward"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and math.isfinite(value) else None


def _tail(log: Path) -> str:
    try:
        text = log.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
    return f": {text[-300:]}" if text else ""
