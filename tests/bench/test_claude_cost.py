"""What a hook adds to a call as Claude Code sees it: ours against `/bin/true` and against none, in alternating runs."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.agents.claude_code import _QUIET
from harbor_tasks.endpoint import Call, Endpoint, Script, Turn
from harbor_tasks.endpoint.script import Asked
from harbor_tasks.environments.local import real_python_first
from harbor_tasks.environments.staging import staged_settings
from harbor_tasks.tasks.build import build
from harbor_tasks.tasks.manifest import BUILD_DIR

pytestmark = pytest.mark.claude

CALLS, ROUNDS = 20, 3
LIMIT = 150.0
"""Milliseconds that our hook may add to a call, more than `/bin/true` does."""
HANDLERS = [{"match": "Pushing", "patterns": ["Bash"], "input_filters": [r"\bgit push\b"]}]


@dataclass(frozen=True)
class Timed(Script):
    """Bash calls, and when each was proposed."""

    at: list[float] = field(default_factory=list)

    def answer(self, asked: Asked) -> Turn:
        """The next call."""
        self.at.append(time.monotonic())
        return super().answer(asked)


def hook_of(tmp_path: Path) -> str:
    """The registered command of a small policy, staged as for a trial here."""
    folder = tmp_path / "eval"
    (folder / "cases" / "one").mkdir(parents=True)
    (folder / "cases" / "one" / "input.yaml").write_text("prompt: go\n")
    (folder / "tool_handlers.yaml").write_text(json.dumps({"handlers": HANDLERS}))
    spec = {"name": "cost", "dataset": {"path": "cases"}, "execution": {"prompt": "go"}}
    (folder / "eval.yaml").write_text(json.dumps(spec))
    home = build(folder, tmp_path / "out").out / BUILD_DIR / "probe"
    settings = json.loads(staged_settings(home / ".claude" / "settings.json", home, tmp_path / "log"))
    command: str = settings["hooks"]["PreToolUse"][0]["hooks"][0]["command"]
    return command


def milliseconds(command: str | None, tmp_path: Path, claude: Path) -> float:
    """The median of a call, from its proposal to the request that has its result."""
    hooks = {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": command, "timeout": 45}]}]}
    settings: dict[str, Any] = {} if command is None else {"hooks": hooks}
    calls = [Call(f"toolu_{n:04d}", "Bash", {"command": "true", "description": "x"}) for n in range(CALLS)]
    script = Timed(tuple(Turn(calls=(call,)) for call in calls))
    user, workspace = tmp_path / "user", tmp_path / "workspace"
    for folder in (user, workspace):
        folder.mkdir(exist_ok=True)
    with Endpoint() as endpoint:
        env = {
            "PATH": real_python_first(os.environ), "HOME": str(user), "ANTHROPIC_API_KEY": "none-needed",
            "ANTHROPIC_BASE_URL": endpoint.add("cost", script), **_QUIET,
        }  # fmt: skip
        line: list[str | Path] = [
            claude / "claude",
            "-p",
            "go",
            "--permission-mode",
            "bypassPermissions",
            "--setting-sources",
            "user",
        ]
        subprocess.run(
            [*line, "--settings", json.dumps(settings)], cwd=workspace, env=env, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=120, check=True,
        )  # fmt: skip
    assert len(script.at) == CALLS + 1
    return 1000 * statistics.median(after - before for before, after in zip(script.at, script.at[1:], strict=False))


def test_what_the_hook_adds_to_a_call(tmp_path: Path, claude_bin: Path) -> None:
    ours = hook_of(tmp_path)
    kinds: dict[str, str | None] = {"no hook": None, "/bin/true": "/bin/true", "the interceptor": ours}
    found: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(ROUNDS):
        for name, command in kinds.items():
            found[name].append(milliseconds(command, tmp_path, claude_bin))
    medians = {name: statistics.median(times) for name, times in found.items()}
    for name, median in medians.items():
        print(f"{name:16}{median:7.1f} ms a call  (rounds: {', '.join(f'{one:.1f}' for one in found[name])})")
    added = medians["the interceptor"] - medians["/bin/true"]
    print(f"the interceptor adds {added:.1f} ms to a call that a hook of /bin/true is asked about, too")
    assert (tmp_path / "log").read_text().count("\n") == CALLS * ROUNDS
    assert added < LIMIT
