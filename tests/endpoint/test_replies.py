"""Single replies, and all that may go wrong with one, over HTTP."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from harbor_tasks.endpoint import Endpoint, Replies, Reply, fails, says, uses


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as one:
        yield one


def ask(endpoint: Endpoint, path: str = "/r/v1/messages", **more: Any) -> tuple[int, dict[str, str], bytes]:
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "q"}], **more}
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=10)
    try:
        connection.request("POST", path, json.dumps(body))
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def test_replies_come_in_their_order_and_the_last_one_again(endpoint: Endpoint) -> None:
    endpoint.add("r", Replies(says("one"), uses("answer", {"a": 1}, usage={"input_tokens": 7, "output_tokens": 3})))
    first, second, third = (json.loads(ask(endpoint)[2]) for _ in range(3))
    assert first["content"] == [{"type": "text", "text": "one"}]
    assert (first["stop_reason"], second["stop_reason"]) == ("end_turn", "tool_use")
    assert second["content"][0]["input"] == third["content"][0]["input"] == {"a": 1}
    assert (second["usage"]["input_tokens"], second["usage"]["output_tokens"]) == (7, 3)


def test_a_function_chooses_by_the_request(endpoint: Endpoint) -> None:
    endpoint.add("r", Replies(choose=lambda body: says(body["model"])))
    assert json.loads(ask(endpoint, model="big")[2])["content"][0]["text"] == "big"


def test_a_stream_of_a_reply(endpoint: Endpoint) -> None:
    endpoint.add("r", Replies(says("one", stop_reason="max_tokens")))
    _, headers, body = ask(endpoint, stream=True)
    assert headers["content-type"].startswith("text/event-stream")
    assert b'"stop_reason": "max_tokens"' in body


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "invalid_request_error"), (429, "rate_limit_error"), (529, "overloaded_error"), (500, "api_error")],
)
def test_errors_have_their_type_and_headers(endpoint: Endpoint, status: int, kind: str) -> None:
    endpoint.add("r", Replies(fails(status, "why", headers={"retry-after": "2"})))
    got, headers, body = ask(endpoint)
    assert (got, headers["retry-after"]) == (status, "2")
    assert json.loads(body)["error"] == {"type": kind, "message": "why"}


def test_a_cut_reply_ends_the_connection(endpoint: Endpoint) -> None:
    endpoint.add("r", Replies(says("one", cut=10)))
    with pytest.raises(http.client.IncompleteRead):
        ask(endpoint)


def test_a_slow_reply_comes_whole_and_holds_nobody_else_up(endpoint: Endpoint) -> None:
    endpoint.add("r", Replies(says("one", delay_s=0.2, pause_s=0.2)))
    endpoint.add("s", Replies(says("two")))
    slow: list[dict[str, Any]] = []
    began = time.monotonic()
    thread = threading.Thread(target=lambda: slow.append(json.loads(ask(endpoint)[2])))
    thread.start()
    ask(endpoint, "/s/v1/messages")
    assert thread.is_alive()
    thread.join()
    assert time.monotonic() - began >= 0.4
    assert slow[0]["content"][0]["text"] == "one"


def test_a_body_as_it_is(endpoint: Endpoint) -> None:
    endpoint.add("r", Replies(Reply(body=b"<html>")))
    assert ask(endpoint)[2] == b"<html>"


def test_the_other_wire_has_no_single_replies(endpoint: Endpoint) -> None:
    endpoint.add("r", Replies(says("one")))
    assert ask(endpoint, "/r/v1/responses", input="q")[0] == 404


def test_what_was_asked_is_recorded(endpoint: Endpoint) -> None:
    endpoint.add("r", Replies(fails(401)))
    ask(endpoint)
    [one] = endpoint.recorded("r")
    assert (one.status, one.body["model"]) == (401, "m")


def test_no_replies_at_all() -> None:
    with pytest.raises(ValueError, match="no replies"):
        Replies()
