"""The scripted endpoint over HTTP, as an agent program speaks to it."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

from harbor_tasks.endpoint import Call, Endpoint, Script, Turn, script_of
from harbor_tasks.errors import AuthorError, MachineError

KEY = "sk-of-somebody-0123"
TOOLS = [{"name": "Bash", "input_schema": {}}, {"name": "Agent", "input_schema": {}}]
BASH: dict[str, Any] = {"tool": "Bash", "input": {"command": "echo one"}}


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as one:
        yield one


def post(endpoint: Endpoint, path: str, body: Any, headers: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Status, content type and body of the answer."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=10)
    try:
        connection.request("POST", path, raw, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.getheader("content-type") or "", answer.read().decode()
    finally:
        connection.close()


class Agent:
    """As much of an agent program as keeps a conversation."""

    def __init__(self, endpoint: Endpoint, *prompt: str, name: str = "t") -> None:
        self.endpoint, self.name = endpoint, name
        texts = [{"type": "text", "text": text} for text in prompt or ["do it"]]
        self.messages: list[dict[str, Any]] = [{"role": "user", "content": texts}]

    def ask(self, **more: Any) -> dict[str, Any]:
        body = {"model": "m", "messages": self.messages, "tools": TOOLS, **more}
        status, _, text = post(self.endpoint, f"/{self.name}/v1/messages?beta=true", body)
        assert status == 200, text
        message: dict[str, Any] = json.loads(text)
        return message

    def turn(self, result: str = "ran", **more: Any) -> dict[str, Any]:
        """Ask, and answer every call."""
        message = self.ask(**more)
        self.messages.append({"role": "assistant", "content": message["content"]})
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": [{"type": "text", "text": result}]}
            for block in message["content"]
            if block["type"] == "tool_use"
        ]
        if results:
            self.messages.append({"role": "user", "content": results})
        return message


def calls(message: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(block["name"], block["input"]) for block in message["content"] if block["type"] == "tool_use"]


def text(message: dict[str, Any]) -> str:
    return "".join(block["text"] for block in message["content"] if block["type"] == "text")


def test_the_calls_come_in_order_and_then_the_turn_ends(endpoint: Endpoint) -> None:
    entries = [{"say": "First."}, BASH, {"tool": "Read", "input": {"file_path": "a"}}, {"say": "All done."}]
    endpoint.add("t", script_of(entries))
    agent = Agent(endpoint)
    first, second, third = (agent.turn() for _ in range(3))
    assert (text(first), calls(first), first["stop_reason"]) == ("First.", [("Bash", BASH["input"])], "tool_use")
    assert calls(second) == [("Read", {"file_path": "a"})]
    assert (text(third), calls(third), third["stop_reason"]) == ("All done.", [], "end_turn")


def test_a_script_without_a_last_word_ends_all_the_same(endpoint: Endpoint) -> None:
    endpoint.add("t", script_of([BASH]))
    agent = Agent(endpoint)
    agent.turn()
    assert agent.turn()["stop_reason"] == "end_turn"
    endpoint.add("empty", Script(()))
    assert Agent(endpoint, name="empty").ask()["stop_reason"] == "end_turn"


def test_a_request_sent_twice_gets_the_same_call_twice(endpoint: Endpoint) -> None:
    endpoint.add("t", script_of([BASH, {"tool": "Read", "input": {}}]))
    agent = Agent(endpoint)
    assert agent.ask()["content"] == agent.ask()["content"]
    agent.turn()
    assert calls(agent.ask()) == [("Read", {})]


def test_side_requests_use_nothing_up(endpoint: Endpoint) -> None:
    endpoint.add("t", script_of([BASH]))
    agent = Agent(endpoint)
    assert calls(agent.ask(tools=[])) == []
    status, _, said = post(endpoint, "/t/v1/messages/count_tokens", {"model": "m", "messages": agent.messages})
    assert status == 200
    assert json.loads(said)["input_tokens"] > 0
    status, _, _ = post(
        endpoint, "/t/v1/messages",
        {"messages": agent.messages, "tools": TOOLS, "tool_choice": {"type": "tool", "name": "answer"}},
    )  # fmt: skip
    assert status == 400  # a hook that asks its model goes on without an answer
    assert calls(agent.ask()) == [("Bash", BASH["input"])]
    assert [one.kind for one in endpoint.recorded("t")] == ["side", "other", "forced", "turn"]


def test_calls_of_one_message_are_proposed_together(endpoint: Endpoint) -> None:
    endpoint.add("t", script_of([BASH, {**BASH, "parallel": True}, BASH]))
    agent = Agent(endpoint)
    assert [len(calls(agent.turn())) for _ in range(3)] == [2, 1, 0]


def test_a_subagent_gets_its_own_calls_whoever_asks_first(endpoint: Endpoint) -> None:
    entries = [
        {"tool": "Agent", "id": "beans", "input": {"prompt": "count the beans"}},
        {"tool": "Agent", "id": "more", "input": {"prompt": "count the beans twice"}},
        {"tool": "Read", "agent": "beans", "input": {"file_path": "beans"}},
        {"tool": "Read", "agent": "more", "input": {"file_path": "more"}},
        BASH,
    ]
    endpoint.add("t", script_of(entries))
    main, beans = Agent(endpoint, "go and count the beans"), Agent(endpoint, "a reminder", "count the beans\n")
    assert calls(main.turn()) == [("Agent", {"prompt": "count the beans"})]
    assert calls(Agent(endpoint, "count the beans twice").ask()) == [("Read", {"file_path": "more"})]
    assert calls(main.turn()) == [("Agent", {"prompt": "count the beans twice"})]
    assert calls(beans.turn()) == [("Read", {"file_path": "beans"})]
    assert calls(beans.turn()) == []
    assert calls(main.turn()) == [("Bash", BASH["input"])]
    asked = {one.conversation for one in endpoint.recorded("t")}
    assert asked == {"main", "count the beans", "count the beans twice"}


def test_a_subagent_without_recorded_calls_says_something_and_takes_none_of_the_others(endpoint: Endpoint) -> None:
    endpoint.add("t", script_of([{"tool": "Task", "input": {"prompt": "look around"}}, BASH]))
    Agent(endpoint).turn()
    assert Agent(endpoint, "look around").ask()["stop_reason"] == "end_turn"


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ([{**BASH, "agent": "a"}], "no Agent call"),
        ([{"tool": "Agent", "id": "a", "input": {}}, {**BASH, "agent": "a"}], "no Agent call"),
        ([*[{"tool": "Agent", "id": "a", "input": {"prompt": "x"}}] * 2, {**BASH, "agent": "a"}], "two Agent calls"),
    ],
)
def test_calls_of_a_subagent_that_could_not_be_told_apart_are_refused(entries: Any, says: str) -> None:
    with pytest.raises(AuthorError, match=says):
        script_of(entries)


def test_two_scripts_at_once_do_not_mix(endpoint: Endpoint) -> None:
    url = endpoint.add("t", script_of([BASH], "one"))
    endpoint.add("other", script_of([{"tool": "Read", "input": {}}], "two"))
    assert url == f"http://127.0.0.1:{endpoint.port}/t"
    assert calls(Agent(endpoint).turn()) == [("Bash", BASH["input"])]
    assert calls(Agent(endpoint, name="other").turn()) == [("Read", {})]
    assert len(endpoint.remove("other")) == 1
    assert endpoint.recorded("other") == []
    assert len(endpoint.recorded()) == 1
    assert post(endpoint, "/other/v1/messages", {"messages": []})[0] == 404


def test_a_stream_holds_what_the_message_holds(endpoint: Endpoint) -> None:
    given = {"command": 'printf "ü\\n\u2028"', "nested": [{"a": None, "b": 1.5}]}
    endpoint.add("t", Script((Turn("Zuerst:", (Call("toolu_1", "Bash", given), Call("toolu_2", "Bash", {}))),)))
    whole = Agent(endpoint).ask()
    body = {"model": "m", "stream": True, "tools": TOOLS, "messages": [{"role": "user", "content": "x"}]}
    status, kind, stream = post(endpoint, "/t/v1/messages", body)
    assert (status, kind.partition(";")[0]) == (200, "text/event-stream")
    events = []
    for part in stream.strip().split("\n\n"):
        name, data = part.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    kinds = [event["type"] for event in events]
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert kinds == ["message_start", *block * 3, "message_delta", "message_stop"]
    content = [dict(event["content_block"]) for event in events if event["type"] == "content_block_start"]
    for event in events:
        if event["type"] == "content_block_delta" and event["delta"]["type"] == "text_delta":
            content[event["index"]]["text"] += event["delta"]["text"]
        elif event["type"] == "content_block_delta":
            content[event["index"]]["input"] = json.loads(event["delta"]["partial_json"])
    assert content == whole["content"]
    assert events[-2]["delta"]["stop_reason"] == whole["stop_reason"] == "tool_use"


def test_what_was_asked_is_recorded_and_no_key(endpoint: Endpoint) -> None:
    endpoint.add("t", script_of([BASH]))
    body = {"model": "m", "tools": TOOLS, "messages": [{"role": "user", "content": f"my key is {KEY}"}]}
    for headers in ({"x-api-key": KEY}, {"authorization": f"Bearer {KEY}"}):
        post(endpoint, "/t/v1/messages", body, headers)
    first, second = endpoint.recorded("t")
    assert (first.number, second.number) == (1, 2)
    assert first.asked is not None
    assert (first.asked.model, first.asked.tools, first.conversation) == ("m", ("Bash", "Agent"), "main")
    assert KEY not in repr(endpoint.recorded())
    assert "my key is" in json.dumps(first.body)


def test_what_the_model_read_and_was_offered_is_known(endpoint: Endpoint) -> None:
    endpoint.add("t", script_of([BASH, BASH]))
    agent = Agent(endpoint)
    agent.turn("Not permitted here")
    agent.messages[-1]["content"][0]["is_error"] = True
    agent.turn("fine")
    agent.turn()
    assert endpoint.read_by_model("t") == {
        "toolu_script_0001": ("Not permitted here", True), "toolu_script_0002": ("fine", False),
    }  # fmt: skip
    assert endpoint.offered("t") == ("Bash", "Agent")


def test_an_agent_that_never_takes_its_calls_is_not_asked_for_ever(endpoint: Endpoint) -> None:
    endpoint.add("t", script_of([BASH]))
    agent = Agent(endpoint)
    ends = [agent.ask()["stop_reason"] for _ in range(30)]
    assert ends[0] == "tool_use"
    assert ends[-1] == "end_turn"


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/t/v1/messages", b"{", 400),
        ("/t/v1/messages", b"[]", 400),
        ("/t/v1/messages", b"\xff", 400),
        ("/t/v1/messages", b'{"messages": "x"}', 400),
        ("/t/v1/messages", b"[" * 100_000, 400),
        ("/t/v1/other", b"{}", 404),
        ("/nobody/v1/messages", b'{"messages": []}', 404),
        ("/", b"{}", 404),
    ],
)
def test_what_is_no_request_is_refused_in_the_form_of_the_wire(
    endpoint: Endpoint, path: str, body: bytes, status: int
) -> None:
    endpoint.add("t", Script(()))
    got, _, said = post(endpoint, path, body)
    assert got == status
    assert json.loads(said)["type"] == "error"
    assert post(endpoint, "/t/v1/messages", {"messages": [], "tools": TOOLS})[0] == 200


def test_a_body_of_no_length_is_refused(endpoint: Endpoint) -> None:
    assert post(endpoint, "/t/v1/messages", b"", {"content-length": "9999999999"})[0] == 413
    assert post(endpoint, "/t/v1/messages", b"", {"content-length": "many"})[0] == 413


def test_tokens_cost_nothing_unless_they_are_counted() -> None:
    for tokens in (False, True):
        with Endpoint(tokens=tokens) as endpoint:
            endpoint.add("t", script_of([BASH]))
            usage = Agent(endpoint).ask()["usage"]
            assert (usage["input_tokens"] > 0, usage["output_tokens"] > 0) == (tokens, tokens)


def test_a_place_where_it_cannot_listen_is_said(endpoint: Endpoint) -> None:
    with pytest.raises(MachineError, match="cannot listen on 127"):
        Endpoint(port=endpoint.port)
