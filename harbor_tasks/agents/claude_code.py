"""The agent `claude-code`: Anthropic's own program, headless, under the eval's hooks, permissions and servers.

In a container the launcher of the runtime image starts it. On this machine it is the user's own `claude`, with settings
from outside the workspace: those of the project, which the model may write, are not read. So the project's skills,
commands, agents and CLAUDE.md are given to it as the user's own, in a config folder of the trial (tests/agents shows
that they load).
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from harbor_tasks.agents.base import Launch, Places, require_network
from harbor_tasks.agents.programs import Program
from harbor_tasks.errors import AuthorError, MachineError
from harbor_tasks.policy.matchers import named
from harbor_tasks.policy.permissions import DEFAULT_MODE
from harbor_tasks.resources import script_module
from harbor_tasks.tasks.memory import MEMORY, imported

if TYPE_CHECKING:
    from harbor_tasks.tasks.manifest import BuildManifest

KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
NEWEST_ANSWERED = (2, 1, 280)
"""The newest version in which a hook answers AskUserQuestion; later ones ask a person all the same."""
_LAUNCHER = "/usr/local/bin/claude"
_QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_TELEMETRY": "1", "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "MCP_CONNECTION_NONBLOCKING": "0",  # the first turn has all tools
    "IS_SANDBOX": "1",  # as root it does not start without
}  # fmt: skip
_HOOKS_ON = {"CLAUDE_CODE_SIMPLE": "0", "CLAUDE_CODE_SAFE_MODE": "0"}
"""Variables that would switch hooks off, in the middle of a session too, when other settings name them."""
_PREFIX = """#!/bin/sh
# Claude Code starts this with a whole command as its one argument (CLAUDE_CODE_SHELL_PREFIX). The hook keeps the key of
# the model, which it may ask; the model's own commands and the MCP servers do not get it.
while IFS= read -r registered <&3; do
    [ "$1" = "$registered" ] && exec /bin/sh -c "$1" 3<&-
done 3<{registered}
unset {keys}
exec /bin/bash -c "$1"
"""
PROGRAM = Program("claude-code", "claude", "@anthropic-ai/claude-code")


class ClaudeCodeAgent:
    """Claude Code. Its version is the image's, or what the program on this machine says."""

    name: str = "claude-code"
    needs_solution: bool = False
    solution_files: tuple[str, ...] | None = ()
    programs: tuple[str, ...] = ()
    asks_hooks: bool = True
    program: str | None = "claude-code"
    model_variables: tuple[str, ...] = (*KEYS, "ANTHROPIC_BASE_URL")
    transcript_from: Literal["file", "output", "sessions"] = "output"

    def __init__(self, manifest: BuildManifest) -> None:
        self._manifest = manifest
        self.version: str = PROGRAM.pinned_version()
        self._command = _LAUNCHER if manifest.sandbox.sealed else "claude"

    @property
    def answers_questions(self) -> bool:
        """Whether a handler names the question tool, which is offered only then."""
        return any(named("AskUserQuestion", handler.patterns) for handler in self._manifest.handlers)

    def lacks(self, task: Path, steps: tuple[str, ...]) -> str | None:  # noqa: ARG002 - an instruction is all it needs
        """Every task has an instruction."""
        return None

    def prepare(self, environment: str, caller: Mapping[str, str], *, scripted: bool) -> None:
        """A program whose hooks can do what the handlers need, a key, a network."""
        if self._manifest.runner.type != "claude-code":
            raise AuthorError(
                f"agent claude-code: the eval is written for {self._manifest.runner.type}; set runner.type: "
                "claude-code in eval.yaml, and models.skill to a model of Anthropic's"
            )
        require_network(self.name, self._manifest, environment, scripted=scripted)
        if environment == "local":
            self._command = PROGRAM.find(caller)
            self.version = PROGRAM.version_of(self._command)
            self._check_version()
        if not scripted and not any(caller.get(name) for name in KEYS):
            raise MachineError(
                "agent claude-code: no key for its model; export ANTHROPIC_API_KEY, or CLAUDE_CODE_OAUTH_TOKEN "
                "(`claude setup-token` makes one from a subscription; a login of yours is not used). Without a model: "
                "--scripted proposes the recorded calls of each case"
            )

    def _check_version(self) -> None:
        numbers = tuple(map(int, re.findall(r"\d+", self.version)[:3]))
        if self.answers_questions and numbers > NEWEST_ANSWERED:
            newest = ".".join(map(str, NEWEST_ANSWERED))
            raise MachineError(
                f"agent claude-code: a hook cannot answer questions in version {self.version} ({self._command}), and a "
                f"handler of this eval does; {PROGRAM.how_to_get(newest)}, or use --env docker"
            )

    def launch(self, places: Places) -> Launch:
        """The program with the eval's flags; on this machine its config folder is made first."""
        runner, execution = self._manifest.runner, self._manifest.execution
        argv = [self._command, "-p", "--output-format", "stream-json", "--verbose"]
        argv += ["--permission-mode", runner.permission_mode or DEFAULT_MODE]
        env = dict(_QUIET)
        if places.user is not None:
            env |= stage_config(places, places.user)
            argv += ["--setting-sources", "user", "--settings", str(own_settings(places))]
        if self.answers_questions and not places.sealed:  # there the launcher offers it, and names the plugins
            argv += ["--permission-prompt-tool", "stdio"]
        argv += ["--strict-mcp-config", *_option("--mcp-config", places.mcp_config)]
        for plugin in () if places.sealed else self._manifest.plugins:
            argv += ["--plugin-dir", str(places.home / "layer" / "plugins" / plugin)]
        argv += _option("--model", self._manifest.models.skill)
        argv += _option("--effort", runner.effort)
        argv += _option("--append-system-prompt", runner.system_prompt)
        argv += _option("--max-budget-usd", places.budget_usd or execution.max_budget_usd)
        if self._manifest.models.subagent is not None:
            env["CLAUDE_CODE_SUBAGENT_MODEL"] = self._manifest.models.subagent
        return Launch(tuple(argv), env, stdin=places.instruction)


def _option(name: str, value: object) -> list[str]:
    return [] if value is None else [name, f"{value:.12g}" if isinstance(value, float) else str(value)]


def stage_config(places: Places, user: Path) -> dict[str, str]:
    """Make the trial's config folder, once for all steps; the variables by which the program finds it.

    It bears the name that the interceptor guards against writes of settings.
    """
    config, home = user / ".claude", places.home / ".claude"
    if not config.is_dir():
        config.mkdir()
        for name in ("skills", "commands", "agents"):
            if (places.workspace / ".claude" / name).is_dir():
                shutil.copytree(places.workspace / ".claude" / name, config / name, symlinks=True)
        _stage_memory(places.workspace, config)
    home.mkdir(exist_ok=True)
    (home / "registered").write_text("".join(f"{command}\n" for command in _registered(places)), encoding="utf-8")
    keys = " ".join((*KEYS, "ANTHROPIC_BASE_URL", "CLAUDE_CODE_SHELL_PREFIX"))
    prefix = _PREFIX.format(registered=shlex.quote(str(home / "registered")), keys=keys)
    (home / "prefix").write_text(prefix, encoding="utf-8")
    (home / "prefix").chmod(0o755)
    return {"CLAUDE_CONFIG_DIR": str(config), "CLAUDE_CODE_SHELL_PREFIX": str(home / "prefix")}


def own_settings(places: Places) -> Path:
    """The settings of the task, with what no other settings may turn on: they win over those of the config folder."""
    settings = _json(places.settings)
    path = places.home / ".claude" / "settings.json"
    prefix = str(places.home / ".claude" / "prefix")
    env = {**settings.get("env", {}), **_HOOKS_ON, "CLAUDE_CODE_SHELL_PREFIX": prefix}
    settings = {**settings, "env": env, "disableAllHooks": False, "disableWorkflows": True}
    path.write_text(json.dumps(settings, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def _stage_memory(workspace: Path, config: Path) -> None:
    """The workspace's memory as the user's own, with all that it takes in beside it."""
    memory = [workspace / name for name in MEMORY if (workspace / name).is_file()]
    if memory:
        (config / "CLAUDE.md").write_bytes(b"\n".join(path.read_bytes() for path in memory))
    for name in MEMORY:
        for one in imported(workspace, name):
            source = workspace / str(one.path)
            target = config / os.path.relpath(source, (workspace / name).parent)
            inside = os.path.normpath(target).startswith(f"{config}{os.sep}")
            if one.found and inside and source.resolve().is_relative_to(workspace.resolve()) and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)


def _registered(places: Places) -> dict[str, None]:
    groups = script_module("replay").hooks_of(_json(places.settings))
    hooks = (hook for event in groups.values() for group in event for hook in group["hooks"])
    return dict.fromkeys(hook["command"] for hook in hooks if "\n" not in hook.get("command", "\n"))


def _json(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(path.read_bytes()) if path.is_file() else {}
    return data
