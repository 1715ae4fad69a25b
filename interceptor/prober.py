#!/usr/bin/env python3
"""Forces probes through the registered hooks: each call with the decision that it gets, where the policy really lies.

    prober.py --settings FILE --workspace DIR --probes probes.json --out outcomes.jsonl
    prober.py --settings FILE --workspace DIR --self-test

``probes.json`` is a list of ``{"id", "tool", "input", "env"}``. Each becomes a line of the outcomes: ``{"id", "got",
"reason", "updated_input", "notes"}``, where ``got`` is deny, allow, none, answer or rewrite. No tool runs; matchers,
hooks and deny rules are those of the settings, asked as the agent program asks them (``replay.py``, beside this file).
The self-test asks each registered command about a tool that no agent has, and ends with 1 when one does not work.
Standard library only, Python 3.8 or newer; the package runs ``force`` itself for the environment on this machine.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from typing import Any

QUESTION_TOOLS = ("AskUserQuestion", "request_user_input", "request_user_input_async")


def load_replay() -> Any:
    """``replay.py`` of this script's own folder, which an isolated Python does not look into."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "replay.py")
    spec = importlib.util.spec_from_file_location("harbor_pack_prober_replay", path)
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return module


def force(replay: Any, probe: dict[str, Any], settings: Any, workspace: str, env: dict[str, str]) -> dict[str, Any]:
    """Ask about one call; ``env`` is the agent program's environment."""
    tool, given = asked_as(probe["tool"], probe["input"])
    payload = {
        "session_id": "probe", "transcript_path": "", "cwd": workspace, "prompt_id": "probe",
        "permission_mode": "bypassPermissions", "effort": {"level": "medium"}, "hook_event_name": "PreToolUse",
        "tool_name": tool, "tool_input": given, "tool_use_id": probe["id"],
    }  # fmt: skip
    # the settings' env would win over the process's: the probe's own values stand in its place
    told = dict(settings, env=dict(replay.settings_env(settings), **(probe.get("env") or {})))
    environment = dict(env, CLAUDE_PROJECT_DIR=workspace)
    outcome = replay.call_hooks(told, "PreToolUse", payload, workspace, environment)
    rules = replay.Permissions(settings, "bypassPermissions", workspace)
    got, reason = decided(tool, given, outcome, rules, workspace)
    return {
        "id": probe["id"], "got": got, "reason": reason, "updated_input": outcome.updated_input,
        "notes": outcome.notes,
    }  # fmt: skip


def asked_as(tool: str, given: Any) -> tuple[str, Any]:
    """A call as the hook is asked about it. Codex's questions are answered only when they have run: as Claude Code's
    the same rules answer them at once.
    """
    if tool not in QUESTION_TOOLS or tool == "AskUserQuestion":
        return ("Agent" if tool == "Task" else tool), given
    if tool.endswith("_async") and isinstance(given, dict) and isinstance(given.get("questions"), list):
        put = [dict(one, question=one.get("title")) for one in given["questions"] if isinstance(one, dict)]
        given = dict(given, questions=put)
    return "AskUserQuestion", given


def decided(tool: str, given: Any, outcome: Any, rules: Any, workspace: str) -> tuple[str, str]:
    """What becomes of the call, and the text that goes with it."""
    if outcome.decision in ("deny", "ask", "defer"):  # nobody is there to be asked
        return "deny", outcome.reason
    now = given if outcome.updated_input is None else outcome.updated_input
    refusal = rules.refusal(tool, now, workspace, outcome.decision == "allow")
    if refusal is not None:
        return "deny", refusal
    if outcome.updated_input is not None:
        answered = tool in QUESTION_TOOLS and "answers" in outcome.updated_input
        return ("answer" if answered else "rewrite"), outcome.reason
    if outcome.decision == "allow":
        return "allow", outcome.reason
    return "none", outcome.reason if outcome.fired else "no hook covers the tool"


def self_test(replay: Any, settings: Any, workspace: str, env: dict[str, str]) -> list[str]:
    """What is wrong with each registered command; nothing when all decide."""
    groups = replay.hooks_of(settings).get("PreToolUse", [])
    if settings.get("hooks") and not groups:
        return ["the agent program would drop all hooks of the settings: a value in them is invalid"]
    commands = dict.fromkeys(hook["command"] for group in groups for hook in group["hooks"] if "command" in hook)
    wrong = []
    for command in commands:
        alone = dict(settings, hooks={"PreToolUse": [{"hooks": [{"type": "command", "command": command}]}]})
        call = {"id": "toolu_SelfTest", "tool": "SelfTest", "input": {}}
        outcome = force(replay, call, alone, workspace, env)
        if outcome["notes"] or outcome["reason"].startswith("PreToolUse:"):
            wrong.append("the hook does not work: %s" % "; ".join([*outcome["notes"], outcome["reason"]]))
    return wrong


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="prober.py", description="forces probes through the registered hooks")
    for name in ("settings", "workspace"):
        parser.add_argument("--" + name, required=True)
    for name in ("probes", "out"):
        parser.add_argument("--" + name)
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args(arguments)
    replay = load_replay()
    settings = {}
    if os.path.exists(options.settings):
        settings = replay.load_json(options.settings, "--settings")
    workspace, env = os.path.realpath(options.workspace), dict(os.environ)
    if options.self_test:
        wrong = self_test(replay, settings, workspace, env)
        for line in wrong:
            print(line, file=sys.stderr)
        return 1 if wrong else 0
    with open(options.out, "w", encoding="utf-8") as out:
        for probe in replay.load_json(options.probes, "--probes"):
            out.write(replay.dumps(force(replay, probe, settings, workspace, env)) + "\n")
            out.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
