"""Codex's tool calls, as they stand in its conversation with the model; hooks know them by other names.

How the program's own record names them is said in interceptor/codex_transcript.py, and what another program's calls
become there in interceptor/codex_tools.py; both also run in sandboxes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from harbor_tasks.endpoint.script import SUBAGENT_TOOLS
from harbor_tasks.resources import script_module

_RECORD = script_module("codex_transcript")
_TOOLS = script_module("codex_tools")
CALLS: tuple[str, ...] = _RECORD.CALLS
OUTPUTS: tuple[str, ...] = _RECORD.OUTPUTS
BLOCKED: tuple[str, ...] = _RECORD.BLOCKED
"""How the text begins that the model reads of a denied call; a command's own output stands below a head."""
NEVER_RAN: tuple[str, ...] = _RECORD.NEVER_RAN
"""How the program's own refusals begin: no tool ran."""
NAMESPACES = ("clock", "collaboration", "multi_agent_v1")
"""Of the program's own tools, as its models are told of them."""
_FREE_TEXT = {"apply_patch": "command", "exec": "code"}
_SPAWN = "spawn_agent"
_SHELL = "exec_command"
_SHELL_FIELDS = ("login", "max_output_tokens", "shell", "tty", "workdir", "yield_time_ms")
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


def own_call(tool: str, given: Mapping[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """The call that Codex makes in place of this one, as its hooks are shown it; None when it has none like it."""
    found: tuple[str, dict[str, Any]] | None = _TOOLS.own_call(tool, given)
    return found


def proposed(tool: str, given: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """A call of `own_call` as a script proposes it: how subagents are started depends on the model (`item_of`)."""
    return ("Agent", {"prompt": given["message"]}) if tool == _SPAWN else (tool, given)


def own_entries(entries: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """Recorded calls as a script proposes them to Codex, and the tools of those that it has no call for."""
    kept, left_out = _TOOLS.own_entries(entries)
    for entry in kept:
        if "tool" in entry:
            entry["tool"], entry["input"] = proposed(entry["tool"], entry["input"])
    return kept, left_out


def call_of(item: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Name and input of an item's call, as its hooks are shown them."""
    found: tuple[str, dict[str, Any]] = _RECORD.call_of(item)
    return found


def tool_name(name: str, namespace: str) -> str:
    """The name of a tool of a namespace, as hooks are shown it."""
    return str(_RECORD.tool_name(name, namespace))


def hook_name(tool: str) -> str:
    """The name of an MCP tool as Codex makes it: of letters, digits and ``_`` only; any other name as it is."""
    return str(_RECORD.hook_name(tool))


def output_text(output: Any) -> str:
    """What the model reads as a call's output."""
    return str(_RECORD.output_text(output))


def has_failed(text: str) -> bool:
    """Does an output say that the call was refused, or that its command failed? Nothing but the text tells."""
    return bool(_RECORD.has_failed(text))
