"""What a verifier wrote, read back: judges, reward, or why there is none."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harbor_tasks.environments.base import Calls, JudgeResult, TrialError, TrialStatus
from harbor_tasks.environments.contained import Ended
from harbor_tasks.evalspec.fields import is_number
from harbor_tasks.resources import script_module

_MOST = 256 << 20
"""Bytes of one file; one that is longer is cut off, and so cannot be read."""


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
        data = json.loads(_content(folder / "judges.json"))
        judges = tuple(JudgeResult.model_validate(judge) for judge in data["judges"])
        calls = Calls.model_validate(data.get("calls") or {})
        unjudged = tuple(str(name) for name in data.get("unjudged") or ())
        notes = tuple(str(note) for note in data.get("notes") or ())
    except (OSError, ValueError, LookupError, TypeError, RecursionError, ValidationError) as error:
        why = f"no judges.json that can be read ({type(error).__name__}), exit code {ended.exit_code}{_tail(log)}"
        return Verdict(error=TrialError(kind="verifier", message=why))
    reward = _reward(folder / "reward.json")
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
        value = json.loads(_content(path))["reward"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    return float(value) if is_number(value) else None


def _content(path: Path) -> bytes:
    """A file of a verifier: no link is followed, no FIFO waited for, since outside the seal it may be the agent's."""
    with script_module("verify").open_log(str(path)) as file:
        found: bytes = file.read(_MOST)
    return found


def _tail(log: Path) -> str:
    try:
        text = log.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
    return f": {text[-300:]}" if text else ""
