"""The wire form of OpenAI's Responses: what of a request matters, and replies as one JSON object or as events.

Calls are proposed in the form of Codex's tools, which hooks know by other names (codex_items.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from harbor_tasks.endpoint.codex_items import CALLS, OUTPUTS, has_failed, item_of, output_text, tool_name
from harbor_tasks.endpoint.script import Asked, Turn

PATH = "/v1/responses"
_CHARACTERS = 4
"""Of a token, for numbers that only have to look like some."""


def read(body: Mapping[str, Any]) -> Asked:
    """What a request asks for; ValueError when it is none."""
    items = body.get("input")
    if isinstance(items, str):
        items = [{"type": "message", "role": "user", "content": items}]
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ValueError("input must be a text or a list of objects")
    # newer models are told of their tools in the conversation
    offered = [body, *(item for item in items if item.get("type") == "additional_tools")]
    tools = tuple(dict.fromkeys(name for one in offered for name in _tools(one.get("tools"))))
    forced = isinstance(body.get("tool_choice"), dict) or body.get("tool_choice") == "required"
    # newer subagents are told what to do in another kind of message, which OpenAI's own endpoint would encrypt
    users = [item for item in items if item.get("role") == "user" or item.get("type") == "agent_message"]
    outputs = {str(item.get("call_id")): output_text(item.get("output")) for item in items if _is(item, OUTPUTS)}
    return Asked(
        kind="forced" if forced else "turn" if tools else "side",
        model=str(body.get("model", "")), stream=body.get("stream") is True, tools=tools,
        first=tuple(text for item in users for text in _texts(item)),
        made=tuple(str(item.get("call_id")) for item in items if _is(item, CALLS)),
        results={call: (text, has_failed(text)) for call, text in outputs.items()},
        texts=tuple(text for item in ({"content": body.get("instructions")}, *items) for text in _texts(item)),
    )  # fmt: skip


def reply(turn: Turn, asked: Asked, number: int, size: int) -> tuple[str, bytes]:
    """Content type and body of the answer; ``size`` is that of the request in characters, 0 to count no tokens."""
    output: list[dict[str, Any]] = [_message(turn.say, number)] if turn.say else []
    output += [item_of(one.tool, one.input, one.id, asked.tools) for one in turn.calls]
    written = sum(len(json.dumps(item)) for item in output) // _CHARACTERS if size else 0
    given = size // _CHARACTERS
    response = {
        "id": f"resp_{number:06d}", "object": "response", "status": "completed", "model": asked.model,
        "output": output,
        "usage": {
            "input_tokens": given, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": written,
            "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": given + written,
        },
    }  # fmt: skip
    if not asked.stream:
        return "application/json", json.dumps(response).encode()
    events = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in _events(response))
    return "text/event-stream; charset=utf-8", "".join(events).encode()


def error(status: int, text: str) -> bytes:
    """The body of a refusal."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    return json.dumps({"error": {"message": text, "type": kind, "param": None, "code": None}}).encode()


def _message(text: str, number: int) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {
        "type": "message",
        "id": f"msg_{number:06d}",
        "role": "assistant",
        "status": "completed",
        "content": content,
    }


def _events(response: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A finished response as the events of a stream."""
    yield {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}}
    for index, item in enumerate(response["output"]):
        for what in ("added", "done"):
            yield {"type": f"response.output_item.{what}", "output_index": index, "item": item}
    yield {"type": "response.completed", "response": response}


def _is(item: Mapping[str, Any], kinds: tuple[str, ...]) -> bool:
    return item.get("type") in kinds


def _tools(tools: Any) -> Iterator[str]:
    for tool in tools if isinstance(tools, list) else ():
        if not isinstance(tool, dict):
            continue
        own = str(tool.get("name") or tool.get("type"))
        if tool.get("type") == "namespace":
            yield from (tool_name(name, own) for name in _tools(tool.get("tools")))
        else:
            yield tool_name(own, "")


def _texts(item: Mapping[str, Any]) -> Iterator[str]:
    content = item.get("content")
    if isinstance(content, str):
        yield content
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and part.get("type") in ("input_text", "output_text"):
            yield str(part.get("text", ""))
        elif isinstance(part, dict) and part.get("type") == "encrypted_content":
            yield str(part.get("encrypted_content", ""))
