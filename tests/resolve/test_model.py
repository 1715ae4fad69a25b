"""The request to the model, and all that can go wrong with it: one line each, no key, no header, in bounded time."""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from typing import Any

import pytest

from harbor_tasks.endpoint import Endpoint, Replies, Reply, fails, says, uses
from harbor_tasks.errors import AuthorError, MachineError
from harbor_tasks.policy.resolve import model as module
from harbor_tasks.policy.resolve.model import Limits, Model, model_name
from harbor_tasks.policy.resolve.proposal import schema

from . import kit

FAST = Limits(total=20, wait=5, silence=5, retries=1)


def ask(limits: Limits = FAST) -> Any:
    model = Model("claude-test", limits)
    try:
        return model.ask("system", "data", schema())
    finally:
        model.close()


def fault(limits: Limits = FAST) -> str:
    with pytest.raises(MachineError) as caught:
        ask(limits)
    text = str(caught.value)
    assert "\n" not in text
    assert kit.KEY not in text
    return text


def test_one_request_for_structured_output_without_sampling_parameters(endpoint: Endpoint) -> None:
    kit.replies(endpoint, says('{"a": 1}'))
    assert ask() == '{"a": 1}'
    [body] = kit.asked(endpoint)
    assert set(body) == {"model", "max_tokens", "system", "messages", "output_config", "stream"}
    form = body["output_config"]["format"]
    assert form["type"] == "json_schema"
    assert form["schema"]["additionalProperties"] is False
    assert body["messages"] == [{"role": "user", "content": "data"}]


def every_object(node: Any) -> list[dict[str, Any]]:
    if isinstance(node, list):
        return [found for item in node for found in every_object(item)]
    if not isinstance(node, dict):
        return []
    own = [node] if node.get("type") == "object" else []
    return own + [found for item in node.values() for found in every_object(item)]


def test_the_schema_is_one_that_structured_output_takes(endpoint: Endpoint) -> None:
    kit.replies(endpoint, says("{}"))
    ask()
    sent = kit.asked(endpoint)[0]["output_config"]["format"]["schema"]
    objects = every_object(sent)
    assert len(objects) == 7
    for one in objects:  # no maps, nothing optional, no unions
        assert one["additionalProperties"] is False
        assert set(one["required"]) == set(one["properties"])
    assert "anyOf" not in json.dumps(sent)


@pytest.mark.parametrize(
    "said", ["output_config: Extra inputs are not permitted", "this model has no structured outputs"]
)
def test_an_endpoint_without_the_parameter_is_asked_for_a_tool_call(endpoint: Endpoint, said: str) -> None:
    kit.replies(endpoint, fails(400, said), uses("propose", {"rules": []}))
    assert ask() == {"rules": []}
    first, second = kit.asked(endpoint)
    assert "output_config" in first
    assert "output_config" not in second
    assert second["tool_choice"] == {"type": "tool", "name": "propose"}
    assert second["tools"][0]["input_schema"]["properties"]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "refuses the request (400)"), (401, "key is not accepted (401)"), (403, "may not do this (403)"),
        (404, "no such model"), (413, "too large (413)"), (418, "refused (418)"),
    ],
)  # fmt: skip
def test_what_is_refused_is_said_once(endpoint: Endpoint, status: int, words: str) -> None:
    kit.replies(endpoint, fails(status, f"max_tokens: no, {kit.KEY}\nand\x1b[31m more"))
    text = fault()
    assert words in text
    assert "max_tokens: no, (key) and\\x1b[31m more" in text
    assert len(kit.asked(endpoint)) == 1


@pytest.mark.parametrize(
    ("status", "words"), [(429, "too many requests (429)"), (529, "overloaded (529)"), (500, "(500)")]
)
def test_what_passes_is_asked_again_and_no_longer_than_that(endpoint: Endpoint, status: int, words: str) -> None:
    kit.replies(endpoint, fails(status, headers={"retry-after": "0.05"}), says("{}"))
    assert ask() == "{}"
    endpoint.remove(kit.NAME)
    kit.replies(endpoint, fails(status, headers={"retry-after": "0.05"}))
    assert words in fault()
    assert len(kit.asked(endpoint)) == 2


@pytest.mark.parametrize("asked_for", ["3600", "Fri, 31 Dec 2100 23:59:59 GMT"])
@pytest.mark.parametrize("status", [429, 529])
def test_a_wait_that_is_too_long_is_not_waited_for(endpoint: Endpoint, asked_for: str, status: int) -> None:
    kit.replies(endpoint, fails(status, headers={"retry-after": asked_for}))
    began = time.monotonic()
    text = fault()
    assert f"({status})" in text
    assert "asks to wait" in text
    assert time.monotonic() - began < 5
    assert len(kit.asked(endpoint)) == 1


@pytest.mark.parametrize("cut", [0, 40, 900])
def test_a_stream_that_breaks_off(endpoint: Endpoint, cut: int) -> None:
    kit.replies(endpoint, kit.answer(), kit.answer())
    endpoint.add(kit.NAME, Replies(says(json.dumps(kit.PROPOSAL), cut=cut)))
    text = fault()
    assert "broke off" in text or "cannot be reached" in text


def test_a_stream_that_ends_too_early_as_if_it_were_whole(endpoint: Endpoint) -> None:
    body = b'event: message_start\ndata: {"type": "message_start", "message": {"id": "m", "type": "message", "role": '
    body += b'"assistant", "model": "m", "content": [], "stop_reason": null, "stop_sequence": null, "usage": '
    body += b'{"input_tokens": 1, "output_tokens": 1}}}\n\n'
    kit.replies(endpoint, Reply(body=body))
    assert "claude-test" in fault()


@pytest.mark.parametrize(
    "body", [b"", b"<html>hello</html>", b"\xff\xfe", b"data: {\n\n", b"event: error\ndata: {}\n\n"]
)
def test_an_answer_that_is_no_message(endpoint: Endpoint, body: bytes) -> None:
    kit.replies(endpoint, Reply(body=body))
    assert "claude-test" in fault()


@pytest.mark.parametrize("slow", [{"delay_s": 3.0}, {"pause_s": 3.0}])
def test_a_slow_answer_has_a_limit(endpoint: Endpoint, slow: dict[str, float]) -> None:
    kit.replies(endpoint, says("{}", **slow))
    began = time.monotonic()
    assert "no whole answer within 1 s" in fault(Limits(total=1, silence=30))
    assert time.monotonic() - began < 2.5


def test_a_silent_endpoint_has_a_limit_of_its_own(endpoint: Endpoint) -> None:
    kit.replies(endpoint, says("{}", delay_s=3.0))
    assert "silent for 0.5 s" in fault(Limits(total=30, silence=0.5, retries=0))


def test_a_refusal_is_said_in_plain_words(endpoint: Endpoint) -> None:
    kit.replies(endpoint, says("I will not.", stop_reason="refusal"))
    assert "claude-test refused to propose rules; try another --model" in fault()


@pytest.mark.parametrize("stop", ["max_tokens", "model_context_window_exceeded"])
def test_an_answer_without_its_end(endpoint: Endpoint, stop: str) -> None:
    kit.replies(endpoint, says('{"rules": [', stop_reason=stop))
    text = fault()
    assert "did not come to the end" in text
    assert stop in text


def test_an_empty_answer(endpoint: Endpoint) -> None:
    kit.replies(endpoint, says(" "))
    assert "empty answer" in fault()


def test_an_answer_without_measure(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ANSWER", 1000)
    kit.replies(endpoint, says("x" * 2000))
    assert "does not stop" in fault()


def test_nobody_listens(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("ANTHROPIC_BASE_URL", f"http://127.0.0.1:{free.getsockname()[1]}")
    assert "cannot be reached" in fault()


@pytest.mark.parametrize("url", ["", "no url", "ftp://x", "http://"])
def test_an_address_that_is_none(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # whatever is meant, nothing leaves this machine
    assert "claude-test" in fault()


@pytest.mark.parametrize("url", ["http://[::", "http://me:pass-word@[::", "http://x:port"])
def test_an_address_that_the_transport_does_not_take(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
    text = fault()
    assert "Invalid port" in text
    assert "pass-word" not in text
    assert kit.asked(endpoint) == []


@pytest.mark.parametrize("name", ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"])
def test_white_space_around_a_key_is_not_sent(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    monkeypatch.setenv(name, " gateway-key\r\n")
    kit.replies(endpoint, says("{}"), fails(401, "not gateway-key"))
    assert ask() == "{}"
    assert "gateway-key" not in fault()


@pytest.mark.parametrize("name", ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"])
def test_a_key_that_cannot_be_sent_is_not_told(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "gateway-key\nsecond-line")
    text = fault()
    assert f"{name} has characters that cannot be sent" in text
    assert "gateway-key" not in text
    assert "second-line" not in text
    assert kit.asked(endpoint) == []


def test_without_a_key_one_line_says_what_to_do_by_hand(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    text = fault()
    assert "ANTHROPIC_API_KEY" in text
    assert "tool_handlers.yaml by hand" in text
    assert "nothing was written" in text
    monkeypatch.setenv("ANTHROPIC_PROFILE", "gone")
    assert "tool_handlers.yaml by hand" in fault()
    assert kit.asked(endpoint) == []


def test_a_token_in_place_of_a_key(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "a-token-of-some-length")
    kit.replies(endpoint, says("{}"), fails(401, "not a-token-of-some-length"))
    assert ask() == "{}"
    assert "a-token-of-some-length" not in fault()


def test_headers_of_the_users_are_not_told(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Gateway: very-secret-value")
    kit.replies(endpoint, fails(400, "bad header very-secret-value"))
    assert "very-secret-value" not in fault()


def test_a_password_in_the_address_is_not_told(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    kit.replies(endpoint, fails(400, "bad address with pass-word"))
    url = os.environ["ANTHROPIC_BASE_URL"].replace("://", "://me:pass-word@")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
    assert "pass-word" not in fault()


def test_no_log_tells_what_is_sent(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ANTHROPIC_LOG", "debug")
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Gateway: very-secret-value")
    with caplog.at_level(logging.DEBUG):
        kit.replies(endpoint, fails(529, headers={"retry-after": "0.05"}), says("{}"))
        ask()
    for secret in (kit.KEY, "very-secret-value", "data", "system"):
        assert secret not in caplog.text


@pytest.mark.parametrize("name", ["", " ", "a b", "x\n# made: 1", "-x", "m" * 300])
def test_what_is_no_name_of_a_model(name: str) -> None:
    with pytest.raises(AuthorError, match="not the name of a model"):
        model_name(name)


@pytest.mark.parametrize("name", [module.DEFAULT_MODEL, "anthropic.claude-x-v1:0", "claude-opus-4-1@20250805", "a[1m]"])
def test_names_of_models(name: str) -> None:
    assert model_name(name) == name
