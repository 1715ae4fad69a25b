"""Calls in a program of the model's, which Codex has its newer models write (its tool `exec`, "code mode").

Hooks see such calls under ids of the program's own, and the model reads what its program writes: here one JSON object,
which also tells the tools that a program finds (docs/codex.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from harbor_tasks.endpoint import Call
from harbor_tasks.endpoint.codex_items import hook_name, output_text, tool_name
from harbor_tasks.environments.evidence import input_hash

TOOL = "exec"
IDS = "exec-"
"""How the ids begin that calls in programs have in hooks."""
Results = Mapping[str, tuple[str, bool]]
"""Call -> what the model read of it, and whether that is an error."""
_OWN = ("Bash", "apply_patch", "view_image", "get_goal", "create_goal", "update_goal")
_PROGRAM = """const calls = %s;
const made = async ([id, name, given]) => {
  try {
    if (typeof tools[name] !== "function") throw "unsupported call: " + name;
    return [id, true, await tools[name](given)];
  } catch (error) {
    return [id, false, String(error)];
  }
};
%s
%s(JSON.stringify({tools: ALL_TOOLS.map((tool) => tool.name), calls: found}));
"""
_AT_ONCE = "const found = await Promise.all(calls.map(made));"
_GOES_ON = """yield_control();
await new Promise((go) => setTimeout(go, 1000));
const found = [];
for (const one of calls) found.push(await made(one));"""


def nested(call: Call) -> bool:
    """Whether a program can make it: questions and subagents are called by themselves."""
    return call.tool in _OWN or call.tool.startswith("mcp__")


def program(calls: Sequence[Call], *, goes_on: bool = False) -> Call:
    """One program that makes all calls at the same time, under the id of the last.

    ``goes_on``: the agent goes on, and then the program makes them one after the other.
    """
    given = json.dumps([[call.id, *_in_program(call)] for call in calls])
    how = (_GOES_ON, "notify") if goes_on else (_AT_ONCE, "text")
    return Call(calls[-1].id, TOOL, {"code": _PROGRAM % (given, *how)})


def _in_program(call: Call) -> tuple[str, Any]:
    """The name of the call's tool in a program, and what it is given there."""
    if call.tool == "Bash":
        return "exec_command", {"cmd": call.input.get("command"), **_without(call.input, "command", "description")}
    if call.tool == "apply_patch":
        return call.tool, str(call.input.get("command", ""))
    return hook_name(call.tool), dict(call.input)


def _without(given: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name not in names}


def told(results: Results) -> tuple[dict[str, tuple[str, bool]], tuple[str, ...]]:
    """The results by call, also of those in programs, and the tools that these found, as hooks name them."""
    found: dict[str, tuple[str, bool]] = {}
    tools: dict[str, None] = {}
    for ident, (text, failed) in results.items():
        said = _said(text)
        if said is None:
            found[ident] = (text, failed)
            continue
        tools.update(dict.fromkeys(map(in_hooks, said["tools"])))
        found.update({one: _result(done, value) for one, done, value in said["calls"]})
    return found, tuple(tools)


def _said(text: str) -> dict[str, Any] | None:
    """What a program of ours wrote, or None where that is no program's."""
    for part in (text, text.partition("\nOutput:\n")[2]):
        try:
            data = json.loads(part)
        except ValueError:
            continue
        if isinstance(data, dict) and data.keys() == {"tools", "calls"}:
            return data
    return None


def _result(done: bool, value: Any) -> tuple[str, bool]:
    """A call's result as the model would read it had it made the call by itself."""
    if not done or not isinstance(value, dict):
        return str(value), not done
    if "exit_code" in value:
        return str(value.get("output")), value["exit_code"] != 0
    if "content" in value:
        return output_text(value), value.get("isError") is True
    return json.dumps(value), False


def in_hooks(name: str) -> str:
    """How hooks name a tool of programs: a namespace stands before two underscores, but for servers'."""
    space, between, own = name.partition("__")
    return tool_name(own, space) if between and space != "mcp" else tool_name(name, "")


def made(line: Mapping[str, Any], turns: Sequence[tuple[float, Call]]) -> str:
    """The id of the call that a line of the interception log is about; ``turns`` are the calls, and when they were.

    The last that had been proposed by then and is alike; where there is none, the line's own.
    """
    ident = str(line.get("tool_use_id"))
    if not ident.startswith(IDS):
        return ident
    when = datetime.fromisoformat(str(line.get("time"))).timestamp() + 0.001  # it has no smaller parts of a second
    fitting = [call.id for at, call in turns if at <= when and line.get("input_sha256") in _hashes(call)]
    return fitting[-1] if fitting else ident


def _hashes(call: Call) -> tuple[str, str]:
    """Of what a hook may be shown of it: of a command nothing else."""
    return input_hash(dict(call.input)), input_hash({"command": call.input.get("command")})
