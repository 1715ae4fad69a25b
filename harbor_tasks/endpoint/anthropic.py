"""The wire form of Anthropic's Messages: what of a request matters, and replies as one JSON object or as events."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from harbor_tasks.endpoint.replies import KINDS, Reply
from harbor_tasks.endpoint.script import Asked, Turn

PATH = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
_CHARACTERS = 4
"""Of a token, for numbers that only have to look like some."""


def read(body: Mapping[str, Any]) -> Asked:
    """What a request asks for; ValueError when it is none."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise ValueError("messages must be a list of objects")
    tools = tuple(str(tool.get("name", tool.get("type"))) for tool in body.get("tools") or () if isinstance(tool, dict))
    choice = body.get("tool_choice")
    forced = isinstance(choice, dict) and choice.get("type") in ("tool", "any")
    asked_by_user = [message for message in messages if message.get("role") == "user"]
    return Asked(
        kind="forced" if forced else "turn" if tools else "side",
        model=str(body.get("model", "")), stream=body.get("stream") is True, tools=tools,
        first=tuple(_texts(asked_by_user[0])) if asked_by_user else (),
        made=tuple(
            str(block.get("id")) for message in messages if message.get("role") == "assistant"
            for block in _blocks(message) if block.get("type") == "tool_use"
        ),
        results={
            str(block.get("tool_use_id")): (result_text(block.get("content")), block.get("is_error") is True)
            for message in asked_by_user for block in _blocks(message) if block.get("type") == "tool_result"
        },
        texts=tuple(text for message in ({"content": body.get("system")}, *messages) for text in _texts(message)),
    )  # fmt: skip


def reply(turn: Turn, asked: Asked, number: int, size: int) -> tuple[str, bytes]:
    """Content type and body of the answer; ``size`` is that of the request in characters, 0 to count no tokens."""
    content: list[dict[str, Any]] = [{"type": "text", "text": turn.say}] if turn.say else []
    content += [{"type": "tool_use", "id": one.id, "name": one.tool, "input": dict(one.input)} for one in turn.calls]
    written = sum(len(json.dumps(block)) for block in content)
    usage = {"input_tokens": size // _CHARACTERS, "output_tokens": written // _CHARACTERS if size else 0}
    return _message(content, "tool_use" if turn.calls else "end_turn", usage, asked, number)


def single(reply: Reply, asked: Asked, number: int) -> tuple[str, bytes]:
    """Content type and body of one of `Replies`."""
    if reply.body is not None:
        return "application/json", reply.body
    return _message([dict(block) for block in reply.content], reply.stop_reason, reply.usage, asked, number)


def _message(
    content: list[dict[str, Any]], stop_reason: str, usage: Mapping[str, int], asked: Asked, number: int
) -> tuple[str, bytes]:  # fmt: skip
    message = {
        "id": f"msg_{number:06d}", "type": "message", "role": "assistant", "model": asked.model, "content": content,
        "stop_reason": stop_reason, "stop_sequence": None,
        "usage": {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, **usage},
    }  # fmt: skip
    if not asked.stream:
        return "application/json", json.dumps(message).encode()
    events = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in _events(message))
    return "text/event-stream; charset=utf-8", "".join(events).encode()


def count(body: Mapping[str, Any]) -> bytes:
    """The answer to a count of tokens."""
    return json.dumps({"input_tokens": len(json.dumps(body)) // _CHARACTERS + 1}).encode()


def error(status: int, text: str) -> bytes:
    """The body of a refusal."""
    return json.dumps({"type": "error", "error": {"type": KINDS.get(status, "api_error"), "message": text}}).encode()


def result_text(content: Any) -> str:
    """What the model reads of a tool's result."""
    if isinstance(content, list):
        return "\n".join(str(block.get("text", "")) for block in content if isinstance(block, dict))
    return "" if content is None else str(content)


def _blocks(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _texts(message: Mapping[str, Any]) -> Iterator[str]:
    content = message.get("content")
    if isinstance(content, str):
        yield content
    for block in _blocks(message):
        if block.get("type") == "text":
            yield str(block.get("text", ""))


def _events(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A finished message as the events of a stream, in the order in which clients expect them."""
    usage = message["usage"]
    begun = {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 0}}
    yield {"type": "message_start", "message": begun}
    for index, block in enumerate(message["content"]):
        if block["type"] == "text":
            empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            empty = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    ended = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": ended, "usage": {"output_tokens": usage["output_tokens"]}}
    yield {"type": "message_stop"}
