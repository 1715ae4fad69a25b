"""All that a model's endpoint may do instead of answering, over HTTP: the next tier answers, and no secret is told."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from harbor_tasks.endpoint import Endpoint, Replies, Reply, fails, says, uses

if TYPE_CHECKING:
    from tests.interceptor.conftest import Hook, Outcome

KEY = "sk-ant-TELLTALE-4711"
GOOD = uses("answer", {"answer_1": "b"})
NOT_FORCED = fails(400, "tool_choice: this model does not support being forced to use a tool")
Play = Callable[..., "tuple[Outcome, list[Any]]"]


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as one:
        yield one


@pytest.fixture
def play(hook: Hook, endpoint: Endpoint) -> Play:
    """One question to a model that gives these replies: what came of it, and what was asked of the endpoint."""

    def run(*replies: Reply, seconds: int = 30, **handler: Any) -> tuple[Outcome, list[Any]]:
        script = hook.home / "hooks" / "tools.py"
        text, count = re.subn(r"(?m)^MODEL_S = \d+\b", f"MODEL_S = {seconds}", script.read_text(encoding="utf-8"))
        assert count == 1
        script.write_text(text, encoding="utf-8")
        url = endpoint.add("m", Replies(*replies))
        hook.env |= {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": KEY, "NO_PROXY": "127.0.0.1"}
        hook.write({"match": "Questions", "patterns": ["AskUserQuestion"], "prompt": "p", **handler})
        done = hook.ask({"question": "Which?", "options": ["a", "b"]})
        shown = done.stderr + done.out + (hook.home / "interceptions.jsonl").read_text(encoding="utf-8")
        assert KEY not in shown
        return done, endpoint.recorded("m")

    return run


def test_white_space_around_a_key_is_not_sent(hook: Hook, endpoint: Endpoint) -> None:
    url = endpoint.add("m", Replies(uses("answer", {"answer_1": "b"})))
    hook.env |= {"ANTHROPIC_BASE_URL": f"{url}\n", "ANTHROPIC_API_KEY": f" {KEY}\r\n", "NO_PROXY": "127.0.0.1"}
    hook.write({"match": "Questions", "patterns": ["AskUserQuestion"], "prompt": "p"})
    done = hook.ask({"question": "Which?", "options": ["a", "b"]})
    assert (done.answers, done.log[0]["tier"]) == ({"Which?": "b"}, "model")


@pytest.mark.parametrize("name", ["input.yaml", "answers.yaml", "model.json"])
def test_a_file_of_the_case_without_an_end_leaves_the_answer_to_the_next_tier(
    name: str, hook: Hook, play: Play
) -> None:
    (hook.home / name).symlink_to("/dev/zero")
    began = time.monotonic()
    done, asked = play(GOOD)
    assert (done.answers, done.log[0]["tier"], asked) == ({"Which?": "a"}, "guessed", [])
    assert "no answer: OSError" in done.stderr
    assert time.monotonic() - began < 25  # the limit of the model's tier is 30


AT_ONCE: dict[str, tuple[Reply, str]] = {
    "400 for a parameter": (fails(400, f"max_tokens: too many for {KEY}"), "HTTP 400"),
    "401": (fails(401, f"invalid x-api-key {KEY}"), "HTTP 401"),
    "403": (fails(403), "HTTP 403"),
    "404 for the model": (fails(404, "model: claude-none"), "HTTP 404"),
    "413": (fails(413), "HTTP 413"),
    "429 for an hour": (fails(429, headers={"retry-after": "3600"}), "HTTP 429"),
    "529 for an hour": (fails(529, headers={"retry-after": "3600"}), "HTTP 529"),
    "a refusal": (says("I can't help with that.", stop_reason="refusal"), "the reply ended with refusal"),
    "cut off by max_tokens": (
        uses("answer", {"answer_1": "b"}, usage={"input_tokens": 9, "output_tokens": 2048}), "max_tokens",
    ),
    "an empty text": (says(""), "fallback"),
    "another tool": (uses("delete", {"answer_1": "z"}), "fallback"),
}  # fmt: skip


@pytest.mark.parametrize(("reply", "said"), AT_ONCE.values(), ids=AT_ONCE)
def test_the_next_tier_answers_at_once(play: Play, reply: Reply, said: str) -> None:
    if said == "max_tokens":
        reply = Reply(reply.content, stop_reason="max_tokens", usage=reply.usage)
    done, asked = play(reply)
    assert (done.answers, done.log[0]["tier"], len(asked)) == ({"Which?": "a"}, "guessed", 1)
    assert said in done.stderr
    assert "fallback: the question 'Which?' was answered 'a', a guess" in done.stderr
    assert done.log[0]["model"]["model"] == "claude-haiku-4-5-20251001"


def test_what_was_cut_off_or_refused_was_paid_all_the_same(play: Play) -> None:
    usage = {"input_tokens": 9, "output_tokens": 2048}
    done, _ = play(Reply(GOOD.content, stop_reason="max_tokens", usage=usage))
    assert {key: done.log[0]["model"][key] for key in usage} == usage


@pytest.mark.parametrize(
    "fault",
    [
        fails(429, headers={"retry-after": "0"}), fails(529), fails(500), Reply(GOOD.content, cut=40),
        Reply(GOOD.content, cut=0), Reply(status=503, headers={"retry-after": "0.1"}),
    ],
    ids=["429", "529", "500", "cut in the middle", "cut at once", "503"],
)  # fmt: skip
def test_what_may_pass_is_tried_again(play: Play, fault: Reply) -> None:
    done, asked = play(fault, GOOD)
    assert (done.answers, done.log[0]["tier"], len(asked)) == ({"Which?": "b"}, "model", 2)


def test_a_stream_that_is_always_cut_is_given_up(play: Play) -> None:
    done, asked = play(Reply(GOOD.content, cut=40))
    assert (done.log[0]["tier"], len(asked)) == ("guessed", 3)
    assert done.stderr.count("model: IncompleteRead") == 3


@pytest.mark.parametrize("slow", [{"delay_s": 30}, {"pause_s": 30}], ids=["no first byte", "a pause in the body"])
def test_a_slow_body_ends_with_the_models_time(play: Play, slow: dict[str, Any]) -> None:
    start = time.monotonic()
    done, _ = play(Reply(GOOD.content, **slow), seconds=1)
    assert time.monotonic() - start < 12
    assert "model: no answer within 1 s" in done.stderr
    assert done.log[0]["tier"] == "guessed"
    assert done.log[0]["model"]["ms"] >= 900


def test_a_body_that_is_slow_but_comes_is_an_answer(play: Play) -> None:
    assert play(Reply(GOOD.content, pause_s=0.5))[0].answers == {"Which?": "b"}


def test_a_model_that_is_not_to_be_forced_is_asked_without(play: Play) -> None:
    done, asked = play(NOT_FORCED, GOOD)
    assert (done.answers, done.log[0]["tier"]) == ({"Which?": "b"}, "model")
    first, second = (one.body for one in asked)
    assert first["tool_choice"] == {"type": "tool", "name": "answer"}
    assert "tool_choice" not in second
    assert (second["tools"], second["messages"]) == (first["tools"], first["messages"])
    assert second["max_tokens"] > first["max_tokens"]


def test_it_may_then_answer_in_words(play: Play) -> None:
    assert play(NOT_FORCED, says("**b**"))[0].answers == {"Which?": "b"}


def test_it_is_not_asked_a_third_time_for_that(play: Play) -> None:
    done, asked = play(NOT_FORCED)
    assert (done.log[0]["tier"], len(asked)) == ("guessed", 2)


@pytest.mark.parametrize("reply", [fails(401), Reply(GOOD.content, stop_reason="refusal")], ids=["401", "a refusal"])
def test_with_no_answer_the_call_is_denied_where_the_handler_says_so(play: Play, reply: Reply) -> None:
    done, _ = play(reply, on_unanswered="deny")
    assert done.decision == "deny"
    assert "'Which?'" in done.reason


HOSTILE: list[Any] = [
    {"input_tokens": KEY, "output_tokens": "7"}, {"input_tokens": -5, "output_tokens": True},
    {"input_tokens": 1 << 60, "output_tokens": 1.5}, KEY, [KEY],
]  # fmt: skip


@pytest.mark.parametrize("usage", HOSTILE)
def test_figures_that_are_none_are_not_logged(play: Play, usage: Any) -> None:
    body = json.dumps({"content": list(GOOD.content), "usage": usage}).encode()
    done, _ = play(Reply(body=body))
    assert done.answers == {"Which?": "b"}
    assert (done.log[0]["model"]["input_tokens"], done.log[0]["model"]["output_tokens"]) == (None, None)
