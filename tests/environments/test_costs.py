"""What trials spent, from what programs, logs and judges wrote of it; and what a program that was cut short did not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.environments.base import Expected, Job, JudgeResult, Trial, new_trial, trial_dir, write_record
from harbor_tasks.environments.costs import (
    NOTHING,
    Spent,
    agent_spent,
    folder_spent,
    hook_spent,
    job_spent,
    judges_spent,
    priced,
    tokens_of,
    total,
)
from harbor_tasks.environments.limit import CostLimit

HAIKU, SONNET = "claude-haiku-4-5-20251001", "claude-sonnet-4-5"
WANTED = Expected(trial="t", task="c", name="n/c", case_id="c", attempt=1, digest="d")


def lines(path: Path, *found: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in found) + '{"cut off')
    return path


def summary(session: str, cost: float, **models: tuple[int, int, int, int]) -> dict[str, Any]:
    names = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
    used = {model.replace("_", "-"): dict(zip(names, counts, strict=True)) for model, counts in models.items()}
    return {"type": "result", "session_id": session, "total_cost_usd": cost, "modelUsage": used}


def message(session: str, ident: str, model: str = SONNET, **usage: Any) -> dict[str, Any]:
    return {"type": "assistant", "session_id": session, "message": {"id": ident, "model": model, "usage": usage}}


def test_of_a_session_the_last_summary_counts_and_sessions_add_up(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "t", message("a", "1", input_tokens=99), summary("a", 0.1, claude_sonnet_4_5=(1, 2, 3, 4)),
        summary("a", 0.2, claude_sonnet_4_5=(10, 20, 30, 40), claude_haiku_4_5=(5, 0, 0, 0)),
        summary("b", 0.1, claude_sonnet_4_5=(1, 1, 0, 0)),
    )  # fmt: skip
    assert tokens_of(path) == {
        SONNET: {
            "input_tokens": 11, "output_tokens": 21, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 40,
        },
        "claude-haiku-4-5": {"input_tokens": 5},
    }  # fmt: skip


def test_a_session_without_a_summary_is_told_by_its_messages_each_once(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "t", message("a", "1", input_tokens=10, output_tokens=1),
        message("a", "1", input_tokens=10, output_tokens=8), message("a", "2", input_tokens=20, output_tokens=2),
        message("a", "3", HAIKU, input_tokens=7), message("a", "4", "<synthetic>", input_tokens=0),
    )  # fmt: skip
    found = tokens_of(path)
    assert found == {SONNET: {"input_tokens": 30, "output_tokens": 10}, HAIKU: {"input_tokens": 7}}
    usd, unpriced = priced(found)
    assert usd == pytest.approx((30 * 3 + 10 * 15 + 7) / 1e6)
    assert not unpriced


@pytest.mark.parametrize(
    "odd",
    [
        None, 5, "x", [], {"modelUsage": 5}, {"modelUsage": {"m": None}}, {"modelUsage": {"m": {"inputTokens": "9"}}},
        {"modelUsage": {"m": {"inputTokens": -9, "outputTokens": True, "cacheReadInputTokens": 1e9}}},
        {"modelUsage": {"m": {"inputTokens": 1 << 60}}}, {"type": "assistant", "message": {"usage": [1]}},
        {"type": "system", "subtype": "usage", "usage": "all"},
    ],
)  # fmt: skip
def test_figures_that_are_none_count_nothing(tmp_path: Path, odd: Any) -> None:
    given = {"type": "result", "session_id": "a", **odd} if isinstance(odd, dict) else odd
    assert tokens_of(lines(tmp_path / "t", given)) == {}


def test_the_programs_own_sum_is_the_agents_cost() -> None:
    trial = new_trial(WANTED, "claude-code", "local", sealed=False)
    told = trial.model_copy(update={"cost_usd": 0.5, "tokens": {SONNET: {"input_tokens": 9}}})
    assert agent_spent(told) == Spent(0.5, (("input_tokens", 9),))
    unknown = trial.model_copy(update={"tokens": {"gpt-5": {"input_tokens": 9}}, "unpriced": ("gpt-5",)})
    assert agent_spent(unknown) == Spent(None, (("input_tokens", 9),), ("gpt-5",))


def test_answers_and_judges_are_priced_by_the_list() -> None:
    asked = {"model": HAIKU, "input_tokens": 1000, "output_tokens": 100, "ms": 5}
    log: list[dict[str, Any]] = [
        {"model": asked}, {"tool": "Bash"}, {"model": None}, {"model": {**asked, "model": "house-1"}}, {"model": "x"},
        {"model": {"model": HAIKU, "input_tokens": None, "output_tokens": None}},
    ]  # fmt: skip
    found = hook_spent(log)
    assert found.usd == pytest.approx(0.0015)
    assert (found.unpriced, found.total_tokens) == (("house-1",), 2200)
    usage = {"input_tokens": 1000, "cache_read_input_tokens": 10_000}
    one = JudgeResult(name="j", status="ok", model=SONNET, usage=usage, samples=(1, 2))
    silent = JudgeResult(name="k", status="error", model=SONNET)
    own = JudgeResult(name="l", status="ok")
    spent = judges_spent([one, silent, own])
    assert spent.usd == pytest.approx(0.006)
    assert (spent.tokens, spent.unpriced) == (tuple(usage.items()), ())


def test_nothing_and_something_unknown_is_not_zero() -> None:
    assert total([]) == NOTHING
    assert (Spent(0.0) + Spent(None, (("input_tokens", 1),), ("m",))).usd is None
    assert (Spent(0.1) + Spent(None, (("input_tokens", 1),), ("m",))).usd == 0.1
    assert (Spent(0.0) + Spent(0.0)).usd == 0
    assert (Spent(0.0).nothing, Spent(0.1).nothing, Spent(None, (("input_tokens", 1),)).nothing) == (True, False, False)


def record(folder: Path, **more: Any) -> Path:
    folder.mkdir(parents=True)
    blank = new_trial(WANTED, "claude-code", "local", sealed=False).model_dump()
    write_record(folder / "trial.json", Trial.model_validate({**blank, **more}))
    return folder


def test_a_trial_that_was_killed_with_its_job_is_told_by_what_its_program_printed(tmp_path: Path) -> None:
    folder = record(trial_dir(tmp_path, "t1"))
    lines(folder / "stdout.txt", message("a", "1", input_tokens=1000))
    lines(folder / "interceptions.jsonl", {"model": {"model": HAIKU, "input_tokens": 1000, "output_tokens": 0}})
    assert folder_spent(folder).usd == pytest.approx(0.004)
    (trial_dir(tmp_path, "t2")).mkdir()
    assert job_spent(tmp_path).usd == pytest.approx(0.004)
    assert job_spent(tmp_path / "none") == NOTHING


def test_the_limit_counts_what_was_there_before_and_says_what_it_cannot_count_once(tmp_path: Path) -> None:
    record(trial_dir(tmp_path, "t1"), cost_usd=0.5, tokens={SONNET: {"input_tokens": 9}})
    job = Job.model_validate({
        "id": "j", "name": "n", "source": "s", "agent": "claude-code", "environment": "local", "attempts": 1,
        "created": "c", "status": "running", "expected": (), "max_cost_usd": 1.0, "earlier_usd": 0.25,
    })  # fmt: skip
    limit = CostLimit(job, tmp_path)
    assert (limit.usd, limit.reached) == (0.75, False)
    more = record(trial_dir(tmp_path, "t2"), cost_usd=0.25, unpriced=("gpt-5",), tokens={"gpt-5": {"input_tokens": 9}})
    assert list(limit.add(more)) == ["the price of gpt-5 is not known: --max-cost cannot count its tokens"]
    assert list(limit.add(record(trial_dir(tmp_path, "t3"), unpriced=("gpt-5",), tokens={"gpt-5": {"a": 1}}))) == []
    assert (limit.usd, limit.reached) == (1.0, True)
    without = CostLimit(job.model_copy(update={"max_cost_usd": None}), tmp_path)
    assert (list(without.add(more)), without.reached) == ([], False)
