"""Plays scripts with the replay program itself, as a process of its own, and reads its transcript."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.resources import resource

Entry = dict[str, Any]


@dataclass
class Played:
    """What a script came to."""

    exit_code: int
    lines: list[dict[str, Any]]
    stderr: str

    @property
    def results(self) -> list[tuple[bool, str]]:
        """(is it an error, the text that the model sees) of each call that has a result."""
        blocks = [block for line in self.lines if line["type"] == "user" for block in line["message"]["content"]]
        return [(block["is_error"], as_text(block["content"])) for block in blocks]

    @property
    def result(self) -> tuple[bool, str]:
        """Of the only call."""
        [one] = self.results
        return one


def as_text(content: Any) -> str:
    """Text, or the text of MCP blocks."""
    return content if isinstance(content, str) else "\n".join(block["text"] for block in content)


@dataclass
class Player:
    """A workspace outside of which settings, script, hooks and transcript lie."""

    folder: Path
    hooks: int = 0
    env: dict[str, str] = field(default_factory=lambda: {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"})

    @property
    def workspace(self) -> Path:
        """Where the calls are made."""
        return self.folder / "workspace"

    def hook(self, body: str, **more: Any) -> dict[str, Any]:
        """A hook that is a Python script: `payload` is what it read; its input is kept in seen/<tool_use_id>.json."""
        self.hooks += 1
        script = self.folder / f"hook{self.hooks}.py"
        head = f"""
            import json, os, pathlib, sys, time
            payload = json.load(sys.stdin)
            seen = pathlib.Path({str(self.folder / "seen")!r})
            seen.mkdir(exist_ok=True)
            name = payload["hook_event_name"] + "-" + payload["tool_use_id"] + ".json"
            (seen / name).write_text(json.dumps(payload))
            def say(decision, reason="because", event=payload["hook_event_name"], **inner):
                print(json.dumps({{"hookSpecificOutput": {{"hookEventName": event, "permissionDecision": decision,
                                  "permissionDecisionReason": reason, **inner}}}}))
            """
        script.write_text(textwrap.dedent(head) + textwrap.dedent(body))
        return {"type": "command", "command": f"{sys.executable} -I -S {script}", "timeout": 20, **more}

    def deny(self, matcher: str | None = "Bash") -> dict[str, Any]:
        """Settings with one hook that denies what the matcher covers."""
        group: dict[str, Any] = {"hooks": [self.hook('say("deny", "no")')]}
        if matcher is not None:
            group["matcher"] = matcher
        return {"hooks": {"PreToolUse": [group]}}

    def pre(self, body: str, matcher: str = "*", **more: Any) -> dict[str, Any]:
        """Settings with one PreToolUse hook."""
        return {"hooks": {"PreToolUse": [{"matcher": matcher, "hooks": [self.hook(body, **more)]}]}}

    def seen(self, tool_use_id: str = "toolu_replay_0001", event: str = "PreToolUse") -> dict[str, Any] | None:
        """What the hook was given for a call; None when it was not asked."""
        path = self.folder / "seen" / f"{event}-{tool_use_id}.json"
        return json.loads(path.read_text()) if path.exists() else None

    def play(
        self, *entries: Entry, settings: Any = None, servers: Any = None, options: tuple[str, ...] = (),
        python: Path | str = sys.executable, script: Any = None, timeout: float = 60,
    ) -> Played:  # fmt: skip
        """Play entries; ``settings`` may be a text, for a file that is no JSON."""
        files = {"script": entries if script is None else script, "settings": settings or {}}
        if servers is not None:
            files["mcp-config"] = {"mcpServers": servers}
        argv = [str(python), "-I", "-S", str(resource("interceptor", "replay.py"))]
        for name, content in files.items():
            path = self.folder / f"{name}.json"
            path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
            argv += [f"--{name}", str(path)]
        transcript = self.folder / "transcript.jsonl"
        transcript.unlink(missing_ok=True)
        argv += ["--workspace", str(self.workspace), "--transcript", str(transcript), *options]
        done = subprocess.run(argv, capture_output=True, encoding="utf-8", env=self.env, timeout=timeout, check=False)
        text = transcript.read_text(encoding="utf-8") if transcript.exists() else ""
        return Played(done.returncode, [json.loads(line) for line in text.splitlines()], done.stderr)


@pytest.fixture
def player(tmp_path: Path) -> Player:
    (tmp_path / "workspace").mkdir()
    return Player(tmp_path)


def call(tool: str, **given: Any) -> Entry:
    """An entry of a script."""
    return {"tool": tool, "input": given}


@pytest.fixture(name="call")
def call_fixture() -> Any:
    return call


@pytest.fixture
def on_path(tmp_path: Path) -> Callable[[str, str], str]:
    """Make a program of a name and a shell text; the PATH by which it is found."""

    def make(name: str, text: str) -> str:
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
        return f"{program.parent}:/usr/bin:/bin"

    return make
