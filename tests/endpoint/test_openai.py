"""The scripted endpoint in the form of OpenAI's Responses, as Codex speaks it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import pytest

from harbor_tasks.endpoint import Endpoint, Script, script_of

from .test_endpoint import BASH, endpoint, post

__all__ = ["endpoint"]

TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "exec_command"}, {"type": "custom", "name": "apply_patch"},
    {"type": "namespace", "name": "mcp__my_desk", "tools": [{"type": "function", "name": "send"}]},
    {"type": "namespace", "name": "multi_agent_v1", "tools": [{"type": "function", "name": "spawn_agent"}]},
    {"type": "web_search"},
]  # fmt: skip
PATCH: dict[str, Any] = {"tool": "apply_patch", "input": {"command": "*** Begin Patch\n*** End Patch\n"}}


class Agent:
    """As much of Codex as keeps a conversation."""

    def __init__(self, endpoint: Endpoint, prompt: str = "do it") -> None:
        self.endpoint = endpoint
        content = [{"type": "input_text", "text": prompt}]
        self.input: list[dict[str, Any]] = [{"type": "message", "role": "user", "content": content}]

    def ask(self, **more: Any) -> dict[str, Any]:
        body = {"model": "m", "instructions": "RULES", "input": self.input, "tools": TOOLS, **more}
        status, _, text = post(self.endpoint, "/t/v1/responses", body)
        assert status == 200, text
        response: dict[str, Any] = json.loads(text)
        return response

    def turn(self, output: Any = "ran", **more: Any) -> list[dict[str, Any]]:
        """Ask, and answer every call; the items."""
        items: list[dict[str, Any]] = self.ask(**more)["output"]
        self.input += items
        self.input += [
            {"type": f"{item['type']}_output", "call_id": item["call_id"], "output": output}
            for item in items
            if "call_id" in item
        ]
        return items


def kinds(items: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    return [(item["type"], item.get("name")) for item in items]


def test_calls_are_proposed_in_the_form_of_its_tools_and_then_the_turn_ends(endpoint: Endpoint) -> None:
    send = {"tool": "mcp__my-desk__send", "input": {"a": 1}}
    endpoint.add("t", script_of([{"say": "First."}, BASH, PATCH, {**send, "parallel": True}]))
    agent = Agent(endpoint)
    first, second, third, again = (agent.turn() for _ in range(4))
    assert kinds(first) == [("message", None), ("function_call", "exec_command")]
    assert first[0]["content"][0]["text"] == "First."
    assert json.loads(first[1]["arguments"]) == {"cmd": "echo one"}
    assert kinds(second) == [("custom_tool_call", "apply_patch"), ("function_call", "send")]
    assert second[0]["input"] == PATCH["input"]["command"]
    assert (second[1]["namespace"], json.loads(second[1]["arguments"])) == ("mcp__my_desk", {"a": 1})
    assert kinds(third) == kinds(again) == [("message", None)]


def test_a_subagent_is_known_by_its_prompt(endpoint: Endpoint) -> None:
    start = {"tool": "Agent", "id": "beans", "input": {"prompt": "count the beans"}}
    endpoint.add("t", script_of([start, {**BASH, "agent": "beans"}, PATCH]))
    main, other = Agent(endpoint), Agent(endpoint, "count the beans")
    assert kinds(main.turn()) == [("function_call", "spawn_agent")]
    assert kinds(other.turn()) == [("function_call", "exec_command")]
    assert kinds(main.turn()) == [("custom_tool_call", "apply_patch")]


def test_newer_subagents_are_started_and_told_in_another_way(endpoint: Endpoint) -> None:
    start = {"tool": "Agent", "id": "beans", "input": {"prompt": "count the beans"}}
    endpoint.add("t", script_of([start, {**BASH, "agent": "beans"}]))
    newer = [{"type": "namespace", "name": "collaboration", "tools": [
        {"type": "function", "name": name} for name in ("spawn_agent", "followup_task")]}]  # fmt: skip
    begun = Agent(endpoint).turn(tools=newer)[0]
    assert (begun["name"], begun["namespace"]) == ("spawn_agent", "collaboration")
    assert json.loads(begun["arguments"]).keys() == {"task_name", "fork_turns", "message"}
    other = Agent(endpoint, "you are one of many")
    told = {"type": "encrypted_content", "encrypted_content": "count the beans"}
    other.input.append({"type": "agent_message", "content": [told]})
    assert kinds(other.turn(tools=newer)) == [("function_call", "exec_command")]


def test_a_stream_holds_the_same_items_in_the_order_that_clients_expect(endpoint: Endpoint) -> None:
    endpoint.add("t", script_of([BASH]))
    agent = Agent(endpoint)
    body = {"model": "m", "input": agent.input, "tools": TOOLS, "stream": True}
    status, kind, text = post(endpoint, "/t/v1/responses", body)
    assert (status, kind.partition(";")[0]) == (200, "text/event-stream")
    events = [json.loads(block.partition("\ndata: ")[2]) for block in text.split("\n\n") if block]
    assert [event["type"].removeprefix("response.") for event in events] == [
        "created", "output_item.added", "output_item.done", "completed"
    ]  # fmt: skip
    assert [event["item"] for event in events if event["type"].endswith("done")] == agent.ask()["output"]


@pytest.mark.parametrize(
    ("output", "failed"),
    [
        ("Chunk ID: 1\nProcess exited with code 0\nOutput:\nProcess exited with code 1", False),
        ("Chunk ID: 1\nProcess exited with code 1\nOutput:\nx", True),
        ("Command blocked by PreToolUse hook: No.. Command: x", True),
        ([{"type": "input_text", "text": "fine"}], False),
    ],
)
def test_what_the_model_read_is_told_by_call_with_whether_it_failed(
    endpoint: Endpoint, output: Any, failed: bool
) -> None:
    endpoint.add("t", script_of([BASH]))
    agent = Agent(endpoint)
    call = agent.turn(output)[0]["call_id"]
    agent.turn()
    text, is_error = endpoint.read_by_model("t")[call]
    assert (text, is_error) == (output if isinstance(output, str) else "fine", failed)


def test_tools_are_told_by_the_names_that_hooks_know_also_from_within_the_conversation(endpoint: Endpoint) -> None:
    wanted = ("Bash", "apply_patch", "mcp__my_desk__send", "spawn_agent", "web_search")
    for more in ({}, {"tools": None}):
        endpoint.add("t", script_of([]))
        agent = Agent(endpoint)
        if more:
            agent.input.insert(0, {"type": "additional_tools", "role": "developer", "tools": TOOLS})
        agent.ask(**more)
        assert endpoint.offered("t") == wanted
        assert endpoint.remove("t")[0].kind == "turn"


def test_other_requests_use_nothing_up(endpoint: Endpoint) -> None:
    endpoint.add("t", script_of([BASH]))
    agent = Agent(endpoint)
    assert kinds(agent.ask(tools=[])["output"]) == [("message", None)]
    forced = {"model": "m", "input": "choose", "tools": TOOLS, "tool_choice": {"type": "function", "name": "f"}}
    assert post(endpoint, "/t/v1/responses", forced)[0] == 400
    assert kinds(agent.turn()) == [("function_call", "exec_command")]
    assert "RULES" in endpoint.recorded("t")[0].asked.texts  # type: ignore[union-attr]


def test_what_is_no_request_is_refused_in_its_own_form(endpoint: Endpoint) -> None:
    endpoint.add("t", script_of([]))
    bodies: tuple[Any, ...] = ({"model": "m"}, {"input": [1]}, [], b"{")
    for body in bodies:
        status, _, text = post(endpoint, "/t/v1/responses", body)
        assert (status, json.loads(text)["error"]["type"]) == (400, "invalid_request_error")


def test_a_websocket_is_refused_in_the_way_that_codex_understands(endpoint: Endpoint) -> None:
    """It goes on without one; of any other refusal it would try again for seconds, in each conversation."""
    asked = urllib.request.Request(endpoint.add("w", Script(())) + "/v1/responses", headers={"Upgrade": "websocket"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(asked, timeout=5)
    with refused.value:
        assert refused.value.code == 426
