#!/usr/bin/env python3
"""Stands in for an eval's MCP server while probes go through the agent program: has its tools, does nothing, tells.

    instrument.py TOOLS MARKS

``TOOLS`` is a JSON list of the names of its tools. Each call becomes a line of ``MARKS``: ``{"tool", "input",
"time"}``.
Standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

ANSWER = "The stand-in of this tool has run."


def main(arguments: list[str]) -> int:
    tools, marks = json.loads(arguments[0]), arguments[1]
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            answer = {"jsonrpc": "2.0", "id": request["id"], **answered(request, tools, marks)}
            print(json.dumps(answer), flush=True)
    return 0


def answered(request: dict[str, Any], tools: list[str], marks: str) -> dict[str, Any]:
    """The result of a request, or an error."""
    method, params = request.get("method"), request.get("params") or {}
    if method == "initialize":
        version = params.get("protocolVersion", "2025-06-18")
        name = {"name": "stand-in", "version": "1"}
        return {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": name}}
    if method == "tools/list":
        schema = {"type": "object"}
        return {"result": {"tools": [{"name": n, "description": n, "inputSchema": schema} for n in tools]}}
    if method == "tools/call":
        with open(marks, "a", encoding="utf-8") as file:
            mark = {"tool": params.get("name"), "input": params.get("arguments"), "time": time.time()}
            file.write(json.dumps(mark) + "\n")
        return {"result": {"content": [{"type": "text", "text": ANSWER}]}}
    if method == "ping":
        return {"result": {}}
    return {"error": {"code": -32601, "message": "there is no %s here" % method}}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
