"""What a trial of recorded calls must say of them: those that were not played, and those that could not be."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from harbor_tasks.agents.replay import ReplayAgent
from harbor_tasks.endpoint import codex_items
from harbor_tasks.environments.base import TrialPlan
from harbor_tasks.environments.evidence import calls_of
from harbor_tasks.environments.scripted import recorded_calls, recorded_calls_of_codex, recorded_entries
from harbor_tasks.errors import AuthorError

_NO_TOOL = (
    "<tool_use_error>Error: No such tool available: ", "unsupported call: ", "unsupported custom tool call: ",
    "request_user_input is unavailable in ",
)  # fmt: skip
"""How the result begins of a call of a tool that the program does not have, or was not given."""
_NO_PATCH, _NO_PLACE = "apply_patch verification failed: ", "Failed to find expected lines"


def notes(plan: TrialPlan, step: str | None, transcript: Path, *, runner: str) -> Iterator[str]:
    """One text for each kind of recorded call that came to nothing; none for an agent that works by itself.

    ``runner``: the program that the eval is written for.
    """
    if not _is_recorded(plan):
        return
    where = "replay.yaml" if step is None else f"replay.yaml, step {step}"
    if runner == "codex":
        try:
            _, left_out = codex_items.own_entries(recorded_entries(plan.task, step))
        except AuthorError:  # said before the job
            left_out = []
        if left_out:
            yield f"{where}: not played: {_counted(left_out)} (codex has no such tool)"
    calls = [call for call in calls_of(transcript) if call.result is not None and call.is_error]
    unknown = [call.tool for call in calls if str(call.result).startswith(_NO_TOOL)]
    if unknown:
        yield f"{where}: no such tool here, nothing was done: {_counted(unknown)}"
    unfit = [str(call.result) for call in calls if str(call.result).startswith(_NO_PATCH)]
    for why in dict.fromkeys(unfit):
        told = " ".join(re.sub(r"(?:/\S*)?/workspace/", "", why.removeprefix(_NO_PATCH)).split())[:200]
        hint = " (a patch, and an Edit that becomes one, takes whole lines)" if _NO_PLACE in told else ""
        yield f"{where}: a patch was not applied: {told}{hint}"


def _is_recorded(plan: TrialPlan) -> bool:
    """Does the trial play replay.yaml: by the agent `replay`, or by a model that follows it?"""
    if plan.model is None:
        return plan.agent.name == ReplayAgent.name
    return plan.model.scripts in (recorded_calls, recorded_calls_of_codex)


def _counted(tools: Iterable[str]) -> str:
    counts = Counter(tools)
    return "; ".join(f"{tool}, {count} call{'s' if count > 1 else ''}" for tool, count in counts.items())
