"""Before the agent: does the registered hook command really decide, with this policy, in this place?

A hook that cannot start fails open or denies everything; either way the trial would say nothing about the agent. So the
exact command of the settings is run with payloads whose decision is known, and a fault is an environment error.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from harbor_tasks.environments.base import SandboxError
from harbor_tasks.environments.evidence import json_lines
from harbor_tasks.resources import script_module

UNKNOWN_TOOL = "SelfTest"
"""No agent has such a tool: a sound policy has no opinion on it, or one of its handlers (`*`) decides."""
SECONDS = 45


class SelfTestError(SandboxError):
    """The hook does not do what it must; the text says which command and what it did."""


class Hooks(Protocol):
    """How a registered command is run and what it logged, where the trial is."""

    def call(self, command: str, payload: bytes) -> tuple[int, bytes, bytes]:
        """Run it as the agent program would: exit code, output, errors. SelfTestError when it does not end."""

    def logged(self) -> Iterable[dict[str, Any]]:
        """The lines of the interceptor's log."""

    def forget(self) -> None:
        """Remove the log."""


@dataclass(frozen=True)
class LocalHooks:
    """Hooks that run on this machine."""

    settings: dict[str, Any]
    log: Path
    cwd: Path
    env: Mapping[str, str]

    def call(self, command: str, payload: bytes) -> tuple[int, bytes, bytes]:
        """As a shell's command, with the environment of the settings."""
        env = {**self.env, **script_module("replay").settings_env(self.settings), "CLAUDE_PROJECT_DIR": str(self.cwd)}
        try:
            done = subprocess.run(
                ["/bin/sh", "-c", command], input=payload, capture_output=True, cwd=self.cwd, env=env,
                timeout=SECONDS, start_new_session=True, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SelfTestError(f"the hook did not end: {error}") from error
        return done.returncode, done.stdout, done.stderr

    def logged(self) -> Iterable[dict[str, Any]]:
        """As the file says."""
        return json_lines(self.log)

    def forget(self) -> None:
        """The file goes."""
        self.log.unlink(missing_ok=True)


def self_test(settings: dict[str, Any], hooks: Hooks, *, cwd: str, home: str | None) -> None:
    """Run each registered PreToolUse command; raise SelfTestError. Its lines in the log are removed again.

    ``home`` is where the policy lies within the agent's reach, and must be guarded; None in a sealed sandbox.
    """
    replay = script_module("replay")
    groups = replay.hooks_of(settings).get("PreToolUse", [])
    if settings.get("hooks") and not replay.hooks_of(settings):
        raise SelfTestError("the agent program would drop all hooks of settings.json: a value in it is invalid")
    commands = dict.fromkeys(hook["command"] for group in groups for hook in group["hooks"])
    guarded = {hook["command"] for hook in replay.registered(settings, "PreToolUse", "Write")}
    try:
        for command in commands:
            _knows_the_policy(hooks, command, cwd)
            if home is not None and command in guarded:
                _guards_the_policy(hooks, command, cwd, f"{home}/tool_handlers.yaml")
    finally:
        hooks.forget()


def _knows_the_policy(hooks: Hooks, command: str, cwd: str) -> None:
    """The handlers were read (a fault denies without one) and the call stands in the log."""
    out, err = _call(hooks, command, UNKNOWN_TOOL, {}, cwd)
    line = next((line for line in hooks.logged() if line.get("tool_use_id") == f"toolu_{UNKNOWN_TOOL}"), None)
    if line is None:
        raise SelfTestError(f"the hook left no line in its log; {_said(command, out, err)}")
    if line.get("decision") != "none" and line.get("handler") is None:
        raise SelfTestError(f"the hook cannot use its policy: {line.get('reason')}; {_said(command, out, err)}")


def _guards_the_policy(hooks: Hooks, command: str, cwd: str, target: str) -> None:
    """Writing the handlers is denied, in the form that the agent program understands."""
    out, err = _call(hooks, command, "Write", {"file_path": target, "content": ""}, cwd)
    try:
        decision = json.loads(out)["hookSpecificOutput"]["permissionDecision"]
    except (ValueError, LookupError, TypeError):
        decision = None
    if decision != "deny":
        raise SelfTestError(f"the hook does not guard the policy; {_said(command, out, err)}")


def _call(hooks: Hooks, command: str, tool: str, tool_input: dict[str, Any], cwd: str) -> tuple[str, str]:
    payload = {
        "session_id": "selftest", "transcript_path": "", "cwd": cwd, "permission_mode": "bypassPermissions",
        "hook_event_name": "PreToolUse", "tool_name": tool, "tool_input": tool_input, "tool_use_id": f"toolu_{tool}",
    }  # fmt: skip
    code, *streams = hooks.call(command, json.dumps(payload).encode())
    out, err = (text.decode("utf-8", "replace").strip() for text in streams)
    if code:
        raise SelfTestError(f"the hook ended with exit code {code}; {_said(command, out, err)}")
    return out, err


def _said(command: str, out: str, err: str) -> str:
    shown = "; ".join(f"{name}: {text[-300:]}" for name, text in (("stdout", out), ("stderr", err)) if text)
    return f"command: {command}" + (f"; {shown}" if shown else "")
