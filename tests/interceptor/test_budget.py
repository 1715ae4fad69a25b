"""How much of the model a trial may use for answers: counted beside the log, under a lock, for all of its hooks."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from harbor_tasks.evalspec.schema import HookBudget

if TYPE_CHECKING:
    from tests.interceptor.conftest import Endpoint, Hook

Ask = Callable[..., dict[str, Any]]
HANDLER: dict[str, Any] = {"match": "Questions", "patterns": ["AskUserQuestion"], "prompt": "p"}
USED_UP = "model: not asked: the budget of this trial, {}, is used up"


@pytest.fixture
def which(asking: Hook, endpoint: Endpoint, question: Ask) -> Callable[[], tuple[str, list[str]]]:
    """Asks: the tier of the answer, and the notes. The model takes the second option, for 18 tokens."""
    endpoint.use({"answer_1": "b"})

    def run() -> tuple[str, list[str]]:
        done = asking.ask(question("Which?", "a", "b"))
        assert done.decision == "allow"
        return done.log[-1]["tier"], done.log[-1]["notes"]

    return run


def test_the_hook_and_the_eval_have_the_same_default(tools: Any) -> None:
    assert HookBudget().model_dump() == tools.DEFAULT_BUDGET
    config = tools.load_handlers(b'{"handlers": [], "hook_budget": {"calls": 5}}')
    assert config["hook_budget"] == {"calls": 5, "tokens": tools.DEFAULT_BUDGET["tokens"]}


def test_so_many_calls_and_no_more(asking: Hook, endpoint: Endpoint, which: Any) -> None:
    asking.write(HANDLER, hook_budget={"calls": 2})
    assert [which()[0] for _ in range(4)] == ["model", "model", "guessed", "guessed"]
    assert len(endpoint.requests) == 2
    _, notes = which()
    assert notes[0] == USED_UP.format("2 calls")
    assert "model" not in asking.log[-1], "nothing was asked, so there are no figures"


def test_it_is_said_on_stderr_and_the_handler_decides_what_follows(
    asking: Hook, endpoint: Endpoint, question: Ask
) -> None:
    asking.write({**HANDLER, "on_unanswered": "deny"}, hook_budget={"calls": 0})
    done = asking.ask(question("Overwrite?", "Yes", "No"))
    assert (done.decision, endpoint.requests) == ("deny", [])
    assert "'Overwrite?'" in done.reason
    assert USED_UP.format("0 calls") in done.stderr


def test_when_the_tokens_are_used_no_more_is_asked(asking: Hook, endpoint: Endpoint, which: Any) -> None:
    asking.write(HANDLER, hook_budget={"tokens": 36})
    assert [which()[0] for _ in range(3)] == ["model", "model", "guessed"]
    assert which()[1][0] == USED_UP.format("36 tokens")
    assert len(endpoint.requests) == 2


def test_what_the_log_has_of_other_calls_and_of_odd_lines_does_not_count(asking: Hook, which: Any) -> None:
    asking.write(HANDLER, hook_budget={"tokens": 20})
    odd = [
        '{"model":{"input_tokens":"9"', '{"model":{"input_tokens":"99","output_tokens":-99}}',
        '{"model":{"input_tokens":true,"output_tokens":1.5}}', '{"reason":"\\"model\\":{\\"input_tokens\\":99}"}',
        '{"model":{"model":"m"}}', '["model":{', '{"model":{"input_tokens":1e99}}',
    ]  # fmt: skip
    (asking.home / "interceptions.jsonl").write_text("\n".join(odd) + "\n", encoding="utf-8")
    lines = (asking.home / "interceptions.jsonl").read_text().count("\n")
    process = asking.start()
    payload = {"hook_event_name": "PreToolUse", "tool_name": "AskUserQuestion", "tool_use_id": "1", "tool_input": {
        "questions": [{"question": "Which?", "options": ["a", "b"]}]}}  # fmt: skip
    out, _ = process.communicate(json.dumps(payload).encode(), timeout=60)
    assert b'"Which?":"b"' in out
    assert (asking.home / "interceptions.jsonl").read_text().count("\n") == lines + 1


def test_a_question_that_fails_counts_and_its_tries_count_once(asking: Hook, endpoint: Endpoint, question: Ask) -> None:
    asking.write(HANDLER, hook_budget={"calls": 2})
    endpoint.replies += [{"status": 529, "error": {}}] * 3
    endpoint.replies.append({"content": [{"type": "tool_use", "input": {"answer_1": "b"}}]})
    tiers = [asking.ask(question("Which?", "a", "b")).log[-1]["tier"] for _ in range(3)]
    assert (tiers, len(endpoint.requests)) == (["guessed", "model", "guessed"], 4)


def test_overrides_cost_nothing(asking: Hook, endpoint: Endpoint, question: Ask) -> None:
    asking.write(HANDLER, hook_budget={"calls": 0}, case_overrides={"Which?": "b"})
    assert asking.ask(question("Which?", "a", "b")).log[-1]["tier"] == "override"
    assert not (asking.home / "interceptions.jsonl.asked").exists()
    assert endpoint.requests == []


def test_hooks_at_the_same_time_share_one_budget(asking: Hook, endpoint: Endpoint) -> None:
    asking.write(HANDLER, hook_budget={"calls": 3})
    endpoint.replies.append({"content": [{"type": "tool_use", "input": {"answer_1": "b"}}], "wait": 0.3})
    processes = [asking.start() for _ in range(8)]
    payload = {"hook_event_name": "PreToolUse", "tool_name": "AskUserQuestion", "tool_input": {
        "questions": [{"question": "Which?", "options": ["a", "b"]}]}}  # fmt: skip
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(json.dumps(payload).encode())
        process.stdin.close()
        process.stdin = None
    answers = sorted(json.loads(process.communicate(timeout=60)[0])["hookSpecificOutput"]["updatedInput"]["answers"][
        "Which?"] for process in processes)  # fmt: skip
    assert (answers, len(endpoint.requests)) == (["a"] * 5 + ["b"] * 3, 3)


def test_a_count_that_cannot_be_kept_leads_to_the_next_tier(asking: Hook, endpoint: Endpoint, which: Any) -> None:
    (asking.home / "interceptions.jsonl.asked").mkdir()
    tier, notes = which()
    assert (tier, endpoint.requests) == ("guessed", [])
    assert notes[0].startswith("model: no answer: ")


@pytest.mark.parametrize(
    "budget", [None, {}, [], 5, {"calls": -1}, {"calls": True}, {"calls": "9"}, {"calls": 1.5}, {"usd": 1}]
)
def test_a_budget_of_another_shape_denies(asking: Hook, endpoint: Endpoint, question: Ask, budget: Any) -> None:
    asking.write(HANDLER, hook_budget=budget)
    done = asking.ask(question("Which?", "a", "b"))
    assert (done.decision, endpoint.requests) == ("deny", [])
    assert "hook_budget" in done.reason


def test_the_count_is_protected_as_the_log_is(hook: Hook) -> None:
    hook.write(HANDLER)
    path = str(hook.home / "interceptions.jsonl.asked")
    for done in (
        hook.call("Write", {"file_path": path, "content": ""}),
        hook.bash(f"rm {path}"),
        hook.bash(f": >{path}"),
    ):
        assert done.decision == "deny"
        assert "interceptions.jsonl" in done.reason
