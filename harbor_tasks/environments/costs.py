"""What trials spent: on the agent's model, on the hook's answers, on judges, each from what was written down of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harbor_tasks.environments.base import JudgeResult, Trial, trial_dir
from harbor_tasks.environments.evidence import json_lines
from harbor_tasks.environments.records import read_record
from harbor_tasks.pricing import CACHE_READ, CACHE_WRITE, INPUT, KINDS, OUTPUT, cost_usd

Usage = dict[str, int]
"""Tokens by kind (`pricing.KINDS`)."""
ByModel = dict[str, Usage]

_CLAUDE = {"inputTokens": INPUT, "outputTokens": OUTPUT, "cacheCreationInputTokens": CACHE_WRITE,
           "cacheReadInputTokens": CACHE_READ}  # fmt: skip
"""Claude Code's names in `modelUsage`."""
_SAME = {kind: kind for kind in KINDS}
"""The API's own."""
_MOST = 1 << 53
"""Beyond it a number of tokens is none that anybody used."""


@dataclass(frozen=True)
class Spent:
    """Something that was spent: ``usd`` as far as prices are known (None: nothing of it), and all tokens by kind.

    ``unpriced`` are the models whose tokens ``usd`` does not hold.
    """

    usd: float | None = None
    tokens: tuple[tuple[str, int], ...] = ()
    unpriced: tuple[str, ...] = ()

    def __add__(self, other: Spent) -> Spent:
        known = [usd for usd in (self.usd, other.usd) if usd is not None]
        tokens = dict(self.tokens)
        _add(tokens, dict(other.tokens))
        both = tuple(dict.fromkeys((*self.unpriced, *other.unpriced)))
        usd = math.fsum(known) if any(known) or (known and not both) else None  # 0 and something unknown is no 0
        return Spent(usd, tuple(tokens.items()), both)

    @property
    def total_tokens(self) -> int:
        """Tokens of all kinds."""
        return sum(count for _, count in self.tokens)

    @property
    def nothing(self) -> bool:
        """No money and no token."""
        return not self.usd and not self.total_tokens

    def as_json(self) -> dict[str, Any]:
        """As plain data."""
        return {"usd": self.usd, "tokens": dict(self.tokens), "unpriced": list(self.unpriced)}


NOTHING = Spent()


def total(spent: Iterable[Spent]) -> Spent:
    """All together."""
    return sum(spent, NOTHING)


def agent_spent(trial: Trial) -> Spent:
    """What the agent's own model cost: the sum that the program gave, else its tokens by the list."""
    tokens: Usage = {}
    for usage in trial.tokens.values():
        _add(tokens, usage)
    return Spent(trial.cost_usd, tuple(tokens.items()), trial.unpriced)


def hook_spent(lines: Iterable[Mapping[str, Any]]) -> Spent:
    """What the answers of the hook's model cost, by the lines of an interception log."""
    return total(_priced(str(found["model"]), _tokens(found, _SAME), 1) for found in asked(lines))


def judges_spent(judges: Iterable[JudgeResult]) -> Spent:
    """What model judges cost."""
    named = ((judge, judge.model) for judge in judges)
    return total(
        _priced(model, _tokens(judge.usage, _SAME), judge.replies or len(judge.samples) or None)
        for judge, model in named
        if model is not None
    )


def trial_spent(trial: Trial, log: Iterable[Mapping[str, Any]]) -> Spent:
    """All that a trial cost."""
    return agent_spent(trial) + hook_spent(log) + judges_spent(all_judges(trial))


def all_judges(trial: Trial) -> Iterator[JudgeResult]:
    """The judges of a trial and of its steps, each once."""
    found = {judge.name: judge for step in trial.steps for judge in step.judges}
    yield from (found | {judge.name: judge for judge in trial.judges}).values()


def folder_spent(folder: Path) -> Spent:
    """All that the trial of a folder cost, as far as it is known: an unfinished one has no trial.json to be trusted."""
    try:
        trial = read_record(folder / "trial.json", Trial)
    except (OSError, ValueError):
        return NOTHING
    if not trial.tokens and trial.cost_usd is None:  # it, or the whole job, was ended before it could tell
        tokens = tokens_of(folder / "transcript.jsonl") or told_in_output(folder)
        cost, unpriced = priced(tokens)
        trial = trial.model_copy(update={"tokens": tokens, "cost_usd": cost, "unpriced": unpriced})
    return trial_spent(trial, json_lines(folder / "interceptions.jsonl"))


def job_spent(job: Path) -> Spent:
    """All that the trials in a job's folder cost so far."""
    return total(map(folder_spent, sorted(trial_dir(job, "").glob("*/"))))


def asked(lines: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """What the log says of each time that the hook's model was asked."""
    for line in lines:
        found = line.get("model")
        if isinstance(found, dict) and isinstance(found.get("model"), str):
            yield found


def priced(tokens: Mapping[str, Usage]) -> tuple[float | None, tuple[str, ...]]:
    """What tokens cost by the list, and the models that are not in it."""
    found = total(_priced(model, usage, None) for model, usage in tokens.items())
    return found.usd, found.unpriced


def tokens_of(transcript: Path) -> ByModel:
    """The tokens of an agent's run by model, as its program told them.

    Of a Claude Code session the last summary counts, which holds its subagents'; one that was ended before it tells
    them with each message, and less than were used. Codex tells them for each session.
    """
    summaries: dict[Any, ByModel] = {}
    messages: dict[Any, dict[Any, tuple[str, Usage]]] = {}
    for line in json_lines(transcript):
        session = str(line.get("session_id"))
        if line.get("type") == "result" and isinstance(line.get("modelUsage"), dict):
            summaries[session] = {
                str(model): _tokens(usage, _CLAUDE)
                for model, usage in line["modelUsage"].items()
                if isinstance(usage, dict)
            }
        elif line.get("type") == "system" and line.get("subtype") == "usage":
            summaries[session] = {str(line.get("model")): _tokens(line.get("usage"), _SAME)}
        elif line.get("type") == "assistant" and isinstance(message := line.get("message"), dict):
            usage = _tokens(message.get("usage"), _SAME)
            messages.setdefault(session, {})[str(message.get("id"))] = (str(message.get("model")), usage)
    found: ByModel = {}
    for by_model in summaries.values():
        for model, usage in by_model.items():
            _add(found.setdefault(model, {}), usage)
    for session, told in messages.items():
        for model, usage in told.values() if session not in summaries else ():
            _add(found.setdefault(model, {}), usage)
    return {model: usage for model, usage in found.items() if any(usage.values())}


def told_in_output(folder: Path) -> ByModel:
    """The tokens of a run without a transcript: where a program prints one (Claude Code), this is what it printed."""
    found: ByModel = {}
    for path in (folder / "stdout.txt", *sorted(folder.glob("steps/*/stdout.txt"))):
        for model, usage in tokens_of(path).items():
            _add(found.setdefault(model, {}), usage)
    return found


def _priced(model: str, usage: Usage, requests: int | None) -> Spent:
    if not any(usage.values()):
        return NOTHING
    usd = cost_usd(model, usage, requests=requests)
    return Spent(usd, tuple(usage.items()), () if usd is not None else (model,))


def _tokens(usage: Any, names: Mapping[str, str]) -> Usage:
    """Tokens by kind, of whatever an endpoint or an agent may have written."""
    found: Usage = {}
    for name, kind in names.items():
        count = usage.get(name) if isinstance(usage, Mapping) else None
        if type(count) is int and 0 < count < _MOST:
            found[kind] = count
    return found


def _add(tokens: Usage, more: Mapping[str, int]) -> None:
    for kind, count in more.items():
        tokens[kind] = tokens.get(kind, 0) + count
