"""Of every tool that Codex offers its models, by itself or in their programs, it is known whether hooks see it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.policy.tools import CODEX_SEEN, CODEX_UNSEEN
from harbor_tasks.proving.through.programs import in_hooks

from .kit import SERVER
from .test_codex import FREE, MODELS, QUESTION, bash, codex, patch, play, program

__all__ = ["codex"]

pytestmark = pytest.mark.codex

KINDS = ("gpt-5.5", "gpt-5.6-luna", "gpt-6-sol", "gpt-6.2-sol", "house-model")
"""A model of each kind that the program knows, and one that it does not know."""
NEVER_OFFERED = {"update_plan"}
"""Known, but by a setting that no eval has."""
TO = {"target": "/root", "message": "hey"}
ENOUGH: dict[str, dict[str, Any]] = {
    "Bash": bash("true")["input"],
    "apply_patch": patch("a.txt")["input"],
    "request_user_input": {"questions": [QUESTION, FREE]},
    "request_user_input_async": {"questions": [{"title": "Which?", "options": ["Lead", "Tin"]}]},
    "send_message_to_user_async": {"message": "hey"},
    "view_image": {"path": "a.png"},
    "create_goal": {"objective": "beans"},
    "update_goal": {"status": "complete"},
    "read_mcp_resource": {"server": "desk", "uri": "file:///x"},
    "tool_search": {"query": "send"},
    "clocksleep": {"duration_ms": 1},
    "spawn_agent": {"message": "hey"},
    "multi_agent_v1close_agent": {"target": "a"},
    "multi_agent_v1resume_agent": {"id": "a"},
    "multi_agent_v1send_input": {"target": "a", "message": "hey"},
    "multi_agent_v1wait_agent": {"targets": ["a"]},
    "collaborationspawn_agent": {"task_name": "a", "message": "hey"},
    "collaborationsend_message": TO,
    "collaborationfollowup_task": TO,
    "collaborationinterrupt_agent": {"target": "a"},
    "collaborationwait_agent": {"timeout_ms": 10000},
}
"""Input that each tool takes; the others take none."""
EVERY = """const given = %s;
const made = async ({name}) => {
  try { await tools[name](given[name] ?? {}); return name + " ran"; } catch (error) { return name + " " + error; }
};
text(JSON.stringify(await Promise.all(ALL_TOOLS.map(made))));
"""
LISTING = 'text(JSON.stringify(ALL_TOOLS.map(({name}) => name + " ran")))'


def in_programs(tool: str) -> str:
    """The name of a tool in a program."""
    if tool == "Bash":
        return "exec_command"
    space = "multi_agent_v1" if tool == "spawn_agent" else next(
        (one for one in ("clock", "multi_agent_v1") if tool.startswith(one)), "")  # fmt: skip
    return f"{space}__{tool.removeprefix(space)}" if space else tool


def inputs_in_programs() -> dict[str, Any]:
    given: dict[str, Any] = {in_programs(tool): one for tool, one in ENOUGH.items()}
    return {**given, "exec_command": {"cmd": "true"}, "apply_patch": ENOUGH["apply_patch"]["command"]}


def listed(text: str) -> dict[str, str]:
    """What a program wrote of each tool in it."""
    found = re.search(r"^\[.*\]$", text, re.MULTILINE)
    return dict(one.split(" ", 1) for one in json.loads(found[0])) if found else {}


@pytest.mark.parametrize("model", KINDS)
def test_hooks_are_told_of_every_tool_that_is_offered_but_for_those_known_not_to_be(codex: Any, model: str) -> None:
    """Fails when another version offers something that is not in the lists, which are the product's."""
    (codex.folder / "eval" / "server.py").write_text(SERVER)
    codex.spec |= {
        "models": {"skill": model}, "mcp_servers": [{"name": "desk", "command": "python3", "args": ["server.py"]}]
    }  # fmt: skip
    codex.handlers({"match": "All", "patterns": ["*", "request_user_input"], "reason": "Nothing."})
    tools = sorted(CODEX_SEEN - NEVER_OFFERED - {"spawn_agent", "collaborationspawn_agent"})
    found = play(codex, program(EVERY % json.dumps(inputs_in_programs())),
                 *({"tool": tool, "input": ENOUGH.get(tool, {})} for tool in tools),
                 {"tool": "mcp__desk__send", "input": {"note": "x"}},
                 {"tool": "Agent", "input": {"prompt": "hey"}})  # fmt: skip
    offered = set(found.offered)
    nested = listed(found.read_by_model(1))
    assert ("exec" in offered) == bool(nested)
    own = {tool for tool in (*offered, *map(in_hooks, nested)) if not tool.startswith("mcp__")}
    assert own <= CODEX_SEEN | CODEX_UNSEEN.keys(), "offered, and not known to the routes"
    assert not {name for name, said in nested.items() if "Nothing." not in said} - {"write_stdin"}
    told = {str(line["tool"]) for line in found.log}
    assert own - CODEX_UNSEEN.keys() <= told
    assert not told & CODEX_UNSEEN.keys()
    decided = {str(line["tool"]): line["decision"] for line in found.log}
    assert {tool for tool, one in decided.items() if one != "deny"} == {tool for tool in told if "user_input" in tool}
    assert not (found.folder / "workspace" / "a.txt").exists()


@pytest.mark.parametrize("model", MODELS)
def test_a_search_is_offered_under_a_name_that_is_known(codex: Any, model: str) -> None:
    """Where no rule is about it, since a rule switches it off."""
    codex.spec["models"] = {"skill": model}
    codex.handlers({"match": "Some", "patterns": ["Bash"], "reason": "Nothing."})
    found = play(codex, program(LISTING))
    nested = {in_hooks(name) for name in listed(found.read_by_model(1))}
    assert ("webrun" in nested) == ("web_search" not in found.offered) == (model == MODELS[1])
    assert {*found.offered, *nested} <= CODEX_SEEN | CODEX_UNSEEN.keys()


def test_most_of_the_programs_models_write_programs(codex_bin: Path, tmp_path: Path) -> None:
    """So what holds in programs is what holds at all; without a list of models this test would show nothing."""
    listing = subprocess.run(
        [codex_bin / "codex", "debug", "models"], env={**os.environ, "CODEX_HOME": str(tmp_path)}, check=True,
        capture_output=True,
    )  # fmt: skip
    modes = {one["slug"]: one.get("tool_mode") for one in json.loads(listing.stdout)["models"]}
    assert modes[MODELS[0]] is None
    assert modes[MODELS[1]] == "code_mode_only"
    assert set(modes.values()) == {None, "code_mode_only"}
