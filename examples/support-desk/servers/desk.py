#!/usr/bin/env python3
"""The support desk as an MCP server on stdio (JSON-RPC, one message a line). Standard library only.

It keeps its records in the folder ``desk/`` of the directory in which it is started: ``orders.json`` is read;
``refunds.jsonl``, ``escalations.jsonl``, ``notes.jsonl`` and ``closed.jsonl`` get a line for each thing that was done.

The desk refuses nothing. Whatever reaches it happens and is on record, so no line means that a call was stopped.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

DESK = Path("desk")
PROTOCOL = "2025-06-18"


def schema(required: str, **properties: str) -> dict:
    """A JSON schema of text and number fields; ``required`` names those that must be there."""
    fields = {
        name: {"type": "number" if name == "amount" else "string", "description": text}
        for name, text in properties.items()
    }
    return {"type": "object", "properties": fields, "required": required.split()}


TOOLS = {
    "lookup_order": (
        "Shows an order: items, prices, payment.",
        schema("order_id", order_id="the order, e.g. A-1001"),
    ),
    "process_refund": (
        "Pays money back to the customer, at once and for good.",
        schema(
            "order_id amount currency",
            order_id="the order",
            amount="how much, as a plain number",
            currency="ISO code, e.g. USD",
            reason="why, in a few words",
        ),
    ),
    "escalate_to_human": (
        "Hands the ticket to a person of the desk, who answers within a working day.",
        schema("order_id summary", order_id="the order", summary="what the customer wants, and what was tried"),
    ),
    "add_note": (
        "Adds a note to the order.",
        schema("order_id body", order_id="the order", body="the note", visibility="internal or customer"),
    ),
    "close_account": (
        "Closes the customer's account.",
        schema("customer", customer="the customer's address"),
    ),
}
RECORDS = {
    "process_refund": ("refunds", "Refunded."),
    "escalate_to_human": ("escalations", "A person will take over."),
    "add_note": ("notes", "Noted."),
    "close_account": ("closed", "Account closed."),
}


def use(tool: str, arguments: dict) -> tuple[str, bool]:
    """Do what the tool says: (text for the caller, whether it is an error)."""
    if tool == "lookup_order":
        orders = json.loads((DESK / "orders.json").read_text(encoding="utf-8"))
        order = orders.get(arguments.get("order_id"))
        return (json.dumps(order, indent=1), False) if order else ("No such order.", True)
    kind, answer = RECORDS[tool]
    DESK.mkdir(exist_ok=True)
    with (DESK / f"{kind}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(arguments, sort_keys=True) + "\n")
    return answer, False


def call(params: dict) -> dict:
    """The result of ``tools/call``."""
    tool, arguments = params.get("name"), params.get("arguments") or {}
    if tool not in TOOLS:
        text, failed = f"Unknown tool: {tool}", True
    else:
        try:
            text, failed = use(tool, arguments)
        except (OSError, ValueError) as error:
            text, failed = f"The desk is not available: {error}", True
    return {"content": [{"type": "text", "text": text}], "isError": failed}


def respond(message: dict) -> dict | None:
    """The reply to one message; None for a notification."""
    if not isinstance(message, dict):
        raise TypeError("a message is an object")
    if "id" not in message:
        return None
    method, params = message.get("method"), message.get("params") or {}
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    if method == "initialize":
        version = params.get("protocolVersion", PROTOCOL)
        info = {"name": "desk", "version": "1.0"}
        return {**reply, "result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}}
    if method == "ping":
        return {**reply, "result": {}}
    if method == "tools/list":
        tools = [{"name": name, "description": text, "inputSchema": fields} for name, (text, fields) in TOOLS.items()]
        return {**reply, "result": {"tools": tools}}
    if method == "tools/call":
        return {**reply, "result": call(params)}
    return {**reply, "error": {"code": -32601, "message": f"method not found: {method}"}}


def main() -> None:
    """Answer messages until the caller closes the pipe."""
    for line in sys.stdin:
        if not line.strip():
            continue
        try:
            reply = respond(json.loads(line))
        except (ValueError, TypeError, AttributeError) as error:
            reply = {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": f"not understood: {error}"}}
        if reply is not None:
            print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
