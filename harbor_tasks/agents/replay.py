"""The agent `replay`: plays the calls of the case's replay.yaml through interceptor/replay.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from harbor_tasks.agents.base import Launch, OwnProgram, Places, solution_dir
from harbor_tasks.policy.permissions import DEFAULT_MODE
from harbor_tasks.resources import script_module

if TYPE_CHECKING:
    from harbor_tasks.tasks.manifest import BuildManifest


class ReplayAgent(OwnProgram):
    """Recorded tool calls, under the hooks, permissions and MCP servers of the eval; needs no model."""

    name: str = "replay"
    version: str = script_module("replay").VERSION
    needs_solution: bool = True
    solution_files: tuple[str, ...] | None = ("replay.json",)
    programs: tuple[str, ...] = ("replay.py", "codex_tools.py", "codex_transcript.py")
    asks_hooks: bool = True

    def __init__(self, manifest: BuildManifest) -> None:
        self._mode = manifest.runner.permission_mode or DEFAULT_MODE
        self._plugins = manifest.plugins
        self._runner = manifest.runner.type

    def lacks(self, task: Path, steps: tuple[str, ...]) -> str | None:
        """Every step needs a script that can be played."""
        replay = script_module("replay")
        for step in steps or (None,):
            path = solution_dir(task, step) / "replay.json"
            what = f" for the step {step}" if step is not None else ""
            if not path.is_file():
                return f"no replay.yaml{what}"
            try:
                replay.entries_of(json.loads(path.read_bytes()), step)
            except (OSError, ValueError, replay.ScriptError) as error:
                return f"a replay.yaml that cannot be played{what}: {error}"
        return None

    def launch(self, places: Places) -> Launch:
        """The script with a Python of its own: what the agent's PATH holds is the eval's business."""
        argv = [
            places.python, "-I", "-S", str(places.programs / "replay.py"),
            "--script", str(places.solution / "replay.json"), "--settings", str(places.settings),
            "--workspace", str(places.workspace), "--transcript", str(places.transcript),
            "--permission-mode", self._mode, "--runner", self._runner,
        ]  # fmt: skip
        if places.mcp_config is not None:
            argv += ["--mcp-config", str(places.mcp_config)]
        for plugin in self._plugins:
            argv += ["--plugin-dir", str(places.home / "layer" / "plugins" / plugin)]
        if places.step is not None:
            argv += ["--step", places.step]
        return Launch(argv=tuple(argv))
