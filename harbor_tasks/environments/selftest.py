"""Before the agent: does the registered hook command really decide, with this policy, in this place?

A hook that cannot start fails open or denies everything; either way the trial would say nothing about the agent. So the
exact command of the settings is run with payloads whose decision is known, and a fault is an environment error.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harbor_tasks.environments.base import SandboxError
from harbor_tasks.environments.evidence import json_lines
from harbor_tasks.resources import script_module

UNKNOWN_TOOL = "SelfTest"
"""No agent has such a tool: a sound policy has no opinion on it, or one of its handlers (`*`) decides."""
_SECONDS = 45


class SelfTestError(SandboxError):
    """The hook does not do what it must; the text says which command and what it did."""


def self_test(settings: dict[str, Any], home: Path, log: Path, cwd: Path, env: Mapping[str, str]) -> None:
    """Run each registered PreToolUse command; raise SelfTestError. Its lines in the log are removed again."""
    replay = script_module("replay")
    hooks = replay.hooks_of(settings).get("PreToolUse", [])
    if settings.get("hooks") and not replay.hooks_of(settings):
        raise SelfTestError("the agent program would drop all hooks of settings.json: a value in it is invalid")
    commands = dict.fromkeys(hook["command"] for group in hooks for hook in group["hooks"])
    environment = {**env, **replay.settings_env(settings), "CLAUDE_PROJECT_DIR": str(cwd)}
    target = str(home / "tool_handlers.yaml")
    guarded = {hook["command"] for hook in replay.registered(settings, "PreToolUse", "Write")}
    try:
        for command in commands:
            _knows_the_policy(command, log, cwd, environment)
            if command in guarded:
                _guards_the_policy(command, target, cwd, environment)
    finally:
        log.unlink(missing_ok=True)


def _knows_the_policy(command: str, log: Path, cwd: Path, env: Mapping[str, str]) -> None:
    """The handlers were read (a fault denies without one) and the call stands in the log."""
    out, err = _call(command, UNKNOWN_TOOL, {}, cwd, env)
    line = next((line for line in json_lines(log) if line.get("tool_use_id") == f"toolu_{UNKNOWN_TOOL}"), None)
    if line is None:
        raise SelfTestError(f"the hook left no line in its log; {_said(command, out, err)}")
    if line.get("decision") != "none" and line.get("handler") is None:
        raise SelfTestError(f"the hook cannot use its policy: {line.get('reason')}; {_said(command, out, err)}")


def _guards_the_policy(command: str, target: str, cwd: Path, env: Mapping[str, str]) -> None:
    """Writing the handlers is denied, in the form that the agent program understands."""
    out, err = _call(command, "Write", {"file_path": target, "content": ""}, cwd, env)
    try:
        decision = json.loads(out)["hookSpecificOutput"]["permissionDecision"]
    except (ValueError, LookupError, TypeError):
        decision = None
    if decision != "deny":
        raise SelfTestError(f"the hook does not guard the policy; {_said(command, out, err)}")


def _call(command: str, tool: str, tool_input: dict[str, Any], cwd: Path, env: Mapping[str, str]) -> tuple[str, str]:
    payload = {
        "session_id": "selftest", "transcript_path": "", "cwd": str(cwd), "permission_mode": "bypassPermissions",
        "hook_event_name": "PreToolUse", "tool_name": tool, "tool_input": tool_input, "tool_use_id": f"toolu_{tool}",
    }  # fmt: skip
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", command], input=json.dumps(payload).encode(), capture_output=True, cwd=cwd,
            env=dict(env), timeout=_SECONDS, start_new_session=True, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SelfTestError(f"the hook did not end: {error}") from error
    out, err = (text.decode("utf-8", "replace").strip() for text in (done.stdout, done.stderr))
    if done.returncode:
        raise SelfTestError(f"the hook ended with exit code {done.returncode}; {_said(command, out, err)}")
    return out, err


def _said(command: str, out: str, err: str) -> str:
    shown = "; ".join(f"{name}: {text[-300:]}" for name, text in (("stdout", out), ("stderr", err)) if text)
    return f"command: {command}" + (f"; {shown}" if shown else "")
