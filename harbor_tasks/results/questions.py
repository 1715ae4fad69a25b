"""The questions that agents asked, and who answered: the case, a model, or nobody (a guess)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from harbor_tasks.environments.base import Trial
from harbor_tasks.environments.costs import asked
from harbor_tasks.evalspec.fields import folded

Tier = Literal["override", "model", "guessed"]
WORDS: Mapping[str, str] = {"override": "overridden", "model": "modelled", "guessed": "guessed"}
"""Tiers as the tables name them."""


@dataclass(frozen=True)
class Answered:
    """One question of one call, as the interception log has it.

    ``answer`` is what the tool got. ``model``, tokens and ``ms`` are those of the request that was made for it, without
    an answer where the tier is guessed; it was about ``shared`` questions. None: no model was asked, or it did not say.
    """

    trial: str
    task: str
    case_id: str
    attempt: int
    question: str
    answer: str | list[str]
    tier: Tier
    free_text: bool
    model: str | None
    input_tokens: int | None
    output_tokens: int | None
    ms: float | None
    shared: int


@dataclass(frozen=True)
class QuestionSummary:
    """All times that a question got an answer in one way. ``tokens`` are its part of those of the requests."""

    question: str
    answer: str
    tier: Tier
    model: str | None
    count: int
    tokens: int | None
    mean_ms: float | None


def questions_of(trial: Trial, log: Iterable[Mapping[str, Any]]) -> Iterator[Answered]:
    """The questions of a trial that got an answer, in the order of its log."""
    for line in log:
        given = line.get("answers")
        if line.get("decision") != "answer" or not isinstance(given, list):
            continue
        told = [one for one in given if isinstance(one, dict) and _can_be_read(one)]
        figures: dict[str, Any] = next(asked([line]), {})
        for one in told:
            model = figures if one["tier"] != "override" else {}
            yield Answered(
                trial=trial.id, task=trial.task, case_id=trial.case_id, attempt=trial.attempt,
                question=one["question"], answer=one["answer"], tier=one["tier"],
                free_text=one.get("free_text") is True, model=model.get("model"),
                input_tokens=_whole(model.get("input_tokens")), output_tokens=_whole(model.get("output_tokens")),
                ms=_number(model.get("ms")), shared=sum(other["tier"] != "override" for other in told) or 1,
            )  # fmt: skip


def question_table(answered: Iterable[Answered]) -> list[QuestionSummary]:
    """Equal questions with equal answers from the same source in a row, in the order in which they first came."""
    groups: dict[tuple[Any, ...], list[Answered]] = {}
    for one in answered:
        key = (folded(one.question), folded(shown_answer(one.answer)), one.tier, one.model)
        groups.setdefault(key, []).append(one)
    found = []
    for same in groups.values():
        first = same[0]
        parts = [((one.input_tokens or 0) + (one.output_tokens or 0)) / one.shared for one in same if _told(one)]
        times = [one.ms for one in same if one.ms is not None]
        found.append(QuestionSummary(
            first.question, shown_answer(first.answer), first.tier, first.model, len(same),
            tokens=round(math.fsum(parts)) if parts else None,
            mean_ms=round(math.fsum(times) / len(times), 1) if times else None,
        ))  # fmt: skip
    return found


def shown_answer(answer: str | list[str]) -> str:
    """An answer on one line; labels of a list apart."""
    return ", ".join(answer) if isinstance(answer, list) else answer


def _told(one: Answered) -> bool:
    return one.input_tokens is not None or one.output_tokens is not None


def _can_be_read(one: Mapping[str, Any]) -> bool:
    """The log lies within the reach of an agent that is not sealed: what is in it may be anything."""
    answer = one.get("answer")
    texts = answer if isinstance(answer, list) and answer else [answer]
    named = isinstance(one.get("question"), str) and one.get("tier") in get_args(Tier)
    return named and all(isinstance(text, str) for text in texts)


def _whole(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 53 else None


def _number(value: Any) -> float | None:
    fine = type(value) in (int, float) and 0 <= value < 1e12
    return float(value) if fine else None
