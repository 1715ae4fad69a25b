"""Agents for Harbor: `ReplayAgent` plays a task's recorded calls, `ProbeAgent` forces a list of probes.

    PYTHONPATH=<this folder> harbor run -a harbor_replay:ReplayAgent -p TASKS

They run on Harbor's side and import only Harbor and the standard library. What works in the sandbox is ``replay.py``
and ``prober.py`` of this folder: put into a folder of root's and started as the task's agent user, under the managed
settings and the command prefix when `setup` sealed the sandbox, else under the workspace's settings. What they leave
lies in ``/logs/agent``: transcript.jsonl (of probes their outcomes), stdout.txt, stderr.txt, run.json for the verifier.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from harbor.agents.base import BaseAgent
from harbor.agents.capabilities import AgentCapabilities
from harbor.agents.installed.base import NonZeroAgentExitCodeError
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext

HERE = Path(__file__).resolve().parent
PROGRAMS = "/opt/harbor-pack-agent"
GIVEN = PROGRAMS + "/given"  # what the program works from; for the agent's user only, as far as that is known
HOME = "/opt/harbor-pack"
LOG = "/var/log/harbor-pack/interceptions.jsonl"
UNTESTED = 97  # the self-test failed; in a sealed sandbox `setup` has made it
MODEL = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL")
PLACE = """
chown -R 0:0 {programs} && chmod 0755 {programs} && chmod 0644 {programs}/*.py || exit 1
if [ -n {user} ]; then chgrp -R "$(id -g {user})" {given} && chmod 0750 {given} && chmod 0640 {given}/*
else chmod 0755 {given} && chmod 0644 {given}/*; fi || exit 1
if [ -e {home}/sealed ]; then echo sealed; fi
"""
RUN = """
umask 002
logs={logs}
if [ -e {home}/sealed ]; then
    settings=/etc/claude-code/managed-settings.json python=/usr/bin/python3
    export CLAUDE_CODE_SHELL_PREFIX=/usr/local/lib/harbor-pack/prefix
    unset HARBOR_PACK_MODEL_BASE_URL HARBOR_PACK_MODEL_KEY
else
    settings=$PWD/.claude/settings.json python=python3 log={log}
    if [ ! -e "$log" ]; then
        "$python" -I -S {programs}/prober.py --self-test --settings "$settings" --workspace "$PWD" \\
            2>"$logs/stderr.txt" || {{ tail -n 3 "$logs/stderr.txt"; exit {untested}; }}
        rm -f "$log"
    fi
fi
"$python" -I -S {arguments} --settings "$settings" --workspace "$PWD" >"$logs/stdout.txt" 2>"$logs/stderr.txt"
code=$?
printf '{{"exit_code": %d, "stdout_file": "%s/stdout.txt"}}\\n' "$code" "$logs" >"$logs/run.json"
tail -n 1 "$logs/stderr.txt"
exit "$code"
"""


class SandboxAgent(BaseAgent):
    """What the two agents share: programs in, one of them run as the task's agent user, its exit code."""

    capabilities = AgentCapabilities(mcp_servers=True, mcp_http_headers=True)
    programs: tuple[str, ...] = ()
    given: tuple[str, ...] = ()  # variables of Harbor's own process that an unsealed hook asks its model with

    def version(self) -> str:
        return "1"

    async def setup(self, environment: BaseEnvironment) -> None:
        """Nothing yet: all comes with the run, since each call into a sandbox takes its time."""

    async def start(self, environment: BaseEnvironment, files: dict[str, Any], arguments: list[str]) -> None:
        """Run a program of ours with ``files`` (name -> JSON value) in its folder; NonZeroAgentExitCodeError."""
        with tempfile.TemporaryDirectory() as folder:
            for name in self.programs:
                shutil.copyfile(HERE / name, Path(folder) / name)
            given = Path(folder) / "given"
            given.mkdir()
            for name, content in files.items():
                (given / name).write_text(json.dumps(content), encoding="utf-8")
            await environment.upload_dir(folder, PROGRAMS)
        user = shlex.quote(str(environment.default_user or ""))
        place = PLACE.format(programs=PROGRAMS, given=GIVEN, user=user, home=HOME)
        placed = await environment.exec(place, cwd="/", user="root")
        if placed.return_code:
            raise RuntimeError("the agent's files cannot be put in place: %s" % said(placed))
        # sealed: the hook's key came with the task's own variables, and root has taken it over
        sealed = "sealed" in (placed.stdout or "")
        model = {} if sealed else {name: os.environ[name] for name in self.given if name in os.environ}
        words = " ".join(map(shlex.quote, arguments))
        run = RUN.format(
            home=HOME, programs=PROGRAMS, log=LOG, untested=UNTESTED, arguments=words,
            logs=shlex.quote(str(self.environment_logs_dir)),
        )  # fmt: skip
        done = await environment.exec(run, env=model)
        if done.return_code == UNTESTED:
            raise RuntimeError("the policy does not work in this sandbox: %s" % said(done))
        if done.return_code:
            raise NonZeroAgentExitCodeError("exit code %d: %s" % (done.return_code, said(done)))

    def mcp_config(self) -> dict[str, Any]:
        """The task's MCP servers in Claude Code's form. Variables of theirs are variables of the container."""
        servers: dict[str, Any] = {}
        for server in self.mcp_servers:
            if server.command is not None:
                servers[server.name] = {"type": "stdio", "command": server.command, "args": server.args, "env": {}}
            else:
                known = self.mcp_header_env
                headers = {header: known.env[name] for header, name in known.refs.get(server.name, {}).items()}
                servers[server.name] = {"type": "http", "url": server.url, "headers": headers}
        return {"mcpServers": servers}


class ReplayAgent(SandboxAgent):
    """Plays ``solution/replay.json``, with steps each one's own.

    Options, which are the eval's: ``permission_mode``; ``plugins``, folders of the layer, separated by commas;
    ``runner``, the program that the eval is written for.
    """

    programs = ("replay.py", "codex_tools.py", "codex_transcript.py", "prober.py")
    given = MODEL

    def __init__(
        self, *args: Any, permission_mode: str = "bypassPermissions", plugins: str = "", runner: str = "claude-code",
        **more: Any,
    ) -> None:  # fmt: skip
        super().__init__(*args, **more)
        self.runner = runner
        self.permission_mode = permission_mode
        self.plugins = [name for name in plugins.split(",") if name]
        self.played = 0

    @staticmethod
    def name() -> str:
        return "replay"

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:  # noqa: ARG002
        """Play the script of the task, or of its next step."""
        task = environment.environment_dir.parent
        step = self.next_step(task)
        files = {"replay.json": json.loads(script_of(task, step).read_bytes())}
        arguments = [
            "%s/replay.py" % PROGRAMS, "--script", "%s/replay.json" % GIVEN, "--transcript",
            "%s/transcript.jsonl" % self.environment_logs_dir, "--permission-mode", self.permission_mode,
            "--runner", self.runner,
        ]  # fmt: skip
        if self.mcp_servers:
            files["mcp.json"] = self.mcp_config()
            arguments += ["--mcp-config", "%s/mcp.json" % GIVEN]
        for plugin in self.plugins:
            arguments += ["--plugin-dir", "%s/layer/plugins/%s" % (HOME, plugin)]
        if step is not None:
            arguments += ["--step", step]
        await self.start(environment, files, arguments)

    def next_step(self, task: Path) -> str | None:
        """The step that this run is for: Harbor runs them in order, and does not say which one it is."""
        steps = tomllib.loads((task / "task.toml").read_text(encoding="utf-8")).get("steps") or []
        self.played += 1
        return str(steps[self.played - 1]["name"]) if steps else None


class ProbeAgent(SandboxAgent):
    """Forces the probes of ``solution/probes.json``."""

    programs = ("replay.py", "prober.py")

    @staticmethod
    def name() -> str:
        return "probe"

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:  # noqa: ARG002
        """Ask the registered hooks about each probe's call."""
        probes = environment.environment_dir.parent / "solution" / "probes.json"
        out = "%s/transcript.jsonl" % self.environment_logs_dir
        arguments = ["%s/prober.py" % PROGRAMS, "--probes", "%s/probes.json" % GIVEN, "--out", out]
        await self.start(environment, {"probes.json": json.loads(probes.read_bytes())}, arguments)


def script_of(task: Path, step: str | None) -> Path:
    """Where the script of a task or step lies: in the step's own solution, if there is one, as for Harbor's oracle."""
    own = task / "steps" / step / "solution" if step is not None else None
    return (own if own is not None and own.is_dir() else task / "solution") / "replay.json"


def said(done: Any) -> str:
    """The end of what a command printed."""
    return (done.stderr or done.stdout or "").strip()[-500:] or "it said nothing"
