"""Codex's tool calls: as its hooks name them, and as they stand in its conversation with the model (facts/codex.md).

A hook sees a command as `Bash`, a patch as `apply_patch` with the text in ``command``, an MCP tool as
``mcp__server__tool``. The model calls `exec_command`, a tool of free text, and ``tool`` of a namespace. Newer models
also call `exec` with a program that calls the other tools: hooks see those calls only. A tool of a namespace of the
program's own has both names in one there: `clocksleep`, `collaborationspawn_agent`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from harbor_tasks.endpoint.script import SUBAGENT_TOOLS

CALLS = ("function_call", "custom_tool_call")
OUTPUTS = ("function_call_output", "custom_tool_call_output")
BLOCKED = ("Command blocked by PreToolUse hook: ", "Tool call blocked by PreToolUse hook: ")
"""How the text begins that the model reads of a denied call; a command's own output stands below a head."""
NEVER_RAN = (
    *BLOCKED,
    "unsupported call: ",
    "unsupported custom tool call: ",
    "failed to parse function arguments: ",
    "TTY execution is disabled by config",
    "write_stdin failed: ",
    "request_user_input is unavailable in ",
    "environment `remote` only supports ",
)
"""How the program's own refusals begin: no tool ran."""
NAMESPACES = ("clock", "collaboration", "multi_agent_v1")
"""Of the program's own tools, as its models are told of them."""
_NO_NAMESPACE = ("", "functions")
_FREE_TEXT = {"apply_patch": "command", "exec": "code"}
_SPAWN = "spawn_agent"
_SHELL = "exec_command"
_SHELL_FIELDS = ("login", "max_output_tokens", "shell", "tty", "workdir", "yield_time_ms")
_EXIT_CODE = re.compile(r"^Process exited with code (-?\d+)$", re.MULTILINE)
_FAILED = re.compile(r"Exit code: [1-9]|apply_patch verification failed")
_MCP = re.compile(r"(mcp__.+?)__(.+)", re.DOTALL)


def item_of(tool: str, given: Mapping[str, Any], ident: str, offered: Collection[str] = ()) -> dict[str, Any]:
    """A call, named as hooks name it, as an item of the model's message.

    ``offered`` are the program's tools: newer models start subagents in another way.
    """
    return {**_item(tool, given, ident, offered), "call_id": ident}


def _item(tool: str, given: Mapping[str, Any], ident: str, offered: Collection[str]) -> dict[str, Any]:
    if tool in _FREE_TEXT:
        return {"type": "custom_tool_call", "name": tool, "input": str(given.get(_FREE_TEXT[tool], ""))}
    if tool in SUBAGENT_TOOLS:
        item = {"type": "function_call", "name": _SPAWN}
        told = {"message": given.get("prompt")}
        if "collaborationfollowup_task" not in offered:
            return {**item, "namespace": "multi_agent_v1", "arguments": json.dumps(told)}
        named = {"task_name": re.sub(r"[^a-z0-9_]", "_", ident.lower()), "fork_turns": "none", **told}
        return {**item, "namespace": "collaboration", "arguments": json.dumps(named)}
    if tool == "Bash":
        given = {"cmd": given.get("command"), **{name: given[name] for name in _SHELL_FIELDS if name in given}}
        return {"type": "function_call", "name": _SHELL, "arguments": json.dumps(given)}
    item = {"type": "function_call", "name": tool, "arguments": json.dumps(dict(given))}
    server = _MCP.fullmatch(hook_name(tool))
    if server is not None:
        return {**item, "namespace": server[1], "name": server[2]}
    space = next((one for one in NAMESPACES if tool.startswith(one)), None)
    return item if space is None else {**item, "namespace": space, "name": tool.removeprefix(space)}


def call_of(item: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Name and input of an item's call, as its hooks are shown them."""
    name, namespace = str(item.get("name")), str(item.get("namespace") or "")
    if item.get("type") == "custom_tool_call":
        return name, {"command": item.get("input")}
    try:
        given = json.loads(item.get("arguments") or "{}")
    except ValueError:
        given = None
    if not isinstance(given, dict):
        given = {"arguments": item.get("arguments")}
    if name == _SHELL:
        return "Bash", {"command": given.get("cmd")}
    return tool_name(name, namespace), given


def tool_name(name: str, namespace: str) -> str:
    """The name of a tool of a namespace, as hooks are shown it."""
    if name == _SHELL:
        return "Bash"
    if namespace.startswith("mcp__"):
        return f"{namespace.rstrip('_')}__{name}"
    bare = namespace in _NO_NAMESPACE or (name == _SPAWN and namespace == "multi_agent_v1")
    return name if bare else f"{namespace}{name}"


def hook_name(tool: str) -> str:
    """The name of an MCP tool as Codex makes it: of letters, digits and ``_`` only; any other name as it is."""
    return re.sub(r"[^A-Za-z0-9_]", "_", tool) if tool.startswith("mcp__") else tool


def output_text(output: Any) -> str:
    """What the model reads as a call's output."""
    if isinstance(output, list):
        return "\n".join(str(part.get("text", "")) for part in output if isinstance(part, dict))
    if isinstance(output, dict):
        return output_text(output.get("content", output.get("output")))
    return "" if output is None else str(output)


def has_failed(text: str) -> bool:
    """Does an output say that the call was refused, or that its command failed? Nothing but the text tells."""
    head, found, _ = text.partition("\nOutput:\n")
    code = _EXIT_CODE.search(head) if found else None
    return text.startswith(NEVER_RAN) or (code is not None and code[1] != "0") or _FAILED.match(text) is not None
