"""`task.toml` of Harbor's schema 1.4 (facts/harbor.md): written by a TOML library, read back, compared.

All but the names is the same for every task of an eval: it is made and checked once.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tomli_w

from harbor_tasks import __version__
from harbor_tasks.errors import Problems
from harbor_tasks.evalspec import Eval, env_references
from harbor_tasks.evalspec.schema import DEFAULT_JUDGE_TIMEOUT, McpServer, Step
from harbor_tasks.tasks.plan import SANDBOX_HOME, TaskName
from harbor_tasks.tasks.sealing import MODEL_BASE_URL, MODEL_KEY

JUDGE_VARIABLES = {
    "HARBOR_PACK_JUDGE_BASE_URL": "ANTHROPIC_BASE_URL", "HARBOR_PACK_JUDGE_KEY": "ANTHROPIC_API_KEY",
    "HARBOR_PACK_JUDGE_TOKEN": "ANTHROPIC_AUTH_TOKEN",
}  # fmt: skip
"""Variables of the verifier alone, from which it takes the endpoint and key of model judges: and the caller's."""

SCHEMA_VERSION = "1.4"
TOOL = f"harbor-pack {__version__}"
VERIFIER_SECONDS = 600
SETUP_SECONDS = 120
MODEL_HOSTS = {"claude-code": "api.anthropic.com", "codex": "api.openai.com"}
_NETWORK = {"public": "public", "none": "no-network", "model": "allowlist"}
_HARBOR_TEMPLATE = re.compile(r"\$\{[^}:]+(?::-.*)?\}")
_CREDENTIAL_HEADER = re.compile(r"KEY|SECRET|TOKEN(?!S)|PASSWORD|CREDENTIAL|AUTH|\A(?:set-)?cookie\Z", re.IGNORECASE)
_REFERENCE_ONLY = re.compile(r"\s*(?:[A-Za-z]+\s+)?\$\{\w+(?::-)?\}(?:[\s:-]*\$\{\w+(?::-)?\})*\s*", re.ASCII)


class NotWritableError(Exception):
    """What was to be written is not what a TOML reader makes of it."""


@dataclass(frozen=True)
class TaskToml:
    """What the task.toml files of an eval share: values at the top, of two tables, and the other tables.

    All of it is kept as text too, so that only the two values that differ are written for each task.
    """

    top: Mapping[str, Any]
    task: Mapping[str, Any]
    metadata: Mapping[str, Any]
    tables: Mapping[str, Any]
    texts: tuple[str, str, str, str]

    @classmethod
    def of(
        cls, top: Mapping[str, Any], task: Mapping[str, Any], metadata: Mapping[str, Any], tables: Mapping[str, Any]
    ) -> TaskToml:
        """The parts, written once; NotWritableError when they do not make a whole."""
        shared = cls(top, task, metadata, tables, (written(top), written(task), written(metadata), written(tables)))
        example = TaskName("a case", "task", "org/task")
        if tomllib.loads(shared.text(example)) != shared.data(example):
            raise NotWritableError("the parts of task.toml do not make a whole")
        return shared

    def data(self, name: TaskName) -> dict[str, Any]:
        """The whole content for one task."""
        task = {"name": name.name, **self.task}
        return {**self.top, "task": task, "metadata": {"case_id": name.case_id, **self.metadata}, **self.tables}

    def text(self, name: TaskName) -> str:
        """The whole text for one task; NotWritableError when a value does not survive."""
        top, task, metadata, tables = self.texts
        named, case = written({"name": name.name}), written({"case_id": name.case_id})
        return f"{top}\n[task]\n{named}{task}\n[metadata]\n{case}{metadata}\n{tables}"


def written(data: Mapping[str, Any]) -> str:
    """A part of task.toml, read back and compared."""
    text = tomli_w.dumps(data)
    if tomllib.loads(text) != data:
        raise NotWritableError("a value of task.toml does not survive being written")
    return text


def task_toml(
    ev: Eval, servers: tuple[McpServer, ...], image: str, *, hook_model: bool, problems: Problems
) -> TaskToml:
    """The shared part for an eval. ``hook_model``: the interceptor may ask a model; matters for ``network: model``."""
    spec = ev.spec
    task: dict[str, Any] = {"description": spec.description}
    if spec.version:
        task["version"] = spec.version
    verifier: dict[str, Any] = {"timeout_sec": _verifier_seconds(ev), "environment_mode": "shared"}
    agent: dict[str, Any] = {} if spec.execution.timeout is None else {"timeout_sec": float(spec.execution.timeout)}
    if spec.sandbox.sealed:
        agent, verifier = {**agent, "user": "agent"}, {**verifier, "user": "root"}
        asks = any(judge.prompt or judge.prompt_file for judge in spec.judges)
        if asks and reaches_anthropic(spec.sandbox.network, spec.runner.type, handlers=hook_model):
            # What model judges are asked with; an empty key is none, and `score` asks them after the job.
            verifier["env"] = {name: f"${{{taken}:-}}" for name, taken in JUDGE_VARIABLES.items()}
    tables: dict[str, Any] = {
        "agent": agent,
        "verifier": verifier,
        "environment": _environment(ev, servers, image, hook_model=hook_model, problems=problems),
    }
    top: dict[str, Any] = {"schema_version": SCHEMA_VERSION}
    if spec.execution.steps:
        top["multi_step_reward_strategy"] = "final"
        own_env = has_step_env(ev)
        tables["steps"] = [_step(ev, step, verifier, own_env=own_env) for step in spec.execution.steps]
    tables = {name: table for name, table in tables.items() if table}
    return TaskToml.of(top, task, {"eval": spec.name, "tool": TOOL}, tables)


def reaches_anthropic(network: str, runner: str, *, handlers: bool) -> bool:
    """Whether a sandbox reaches the endpoint of Anthropic's models: judges open no way that the agent would not have.

    ``handlers``: the interceptor may ask a model there.
    """
    return network == "public" or (network == "model" and (runner != "codex" or handlers))


def has_step_env(ev: Eval) -> bool:
    """Whether steps set literal variables: then each step gets settings of its own."""
    return any(env_references(v) is None for step in ev.spec.execution.steps for v in step.env.values())


def step_settings(step: Step) -> str:
    """Where the settings of a step lie in the sandbox, below the home."""
    return f"steps/{step.id}/settings.json"


def _verifier_seconds(ev: Eval) -> float:
    """Harbor's own default, or what the judges may take if that is more."""
    judges = sum((judge.timeout or DEFAULT_JUDGE_TIMEOUT) * judge.samples for judge in ev.spec.judges)
    return float(max(VERIFIER_SECONDS, judges + 60))


def _step(ev: Eval, step: Step, verifier: dict[str, Any], *, own_env: bool) -> dict[str, Any]:
    table: dict[str, Any] = {"name": step.id}
    if step.timeout is not None:
        table["agent"] = {"timeout_sec": float(step.timeout)}
    table["verifier"] = dict(verifier)  # a step's own defaults would beat the task's values
    if ev.spec.sandbox.sealed:
        # Harbor runs it as the agent's user, for whom sudo has a rule.
        table["healthcheck"] = {"command": f"/bin/sh {SANDBOX_HOME}/setup --step {step.id}", "retries": 1}
    elif own_env:
        settings = f"{ev.spec.sandbox.workdir}/.claude/settings.json"
        table["healthcheck"] = {"command": f"cp {SANDBOX_HOME}/{step_settings(step)} {settings}", "retries": 1}
    return table


def _environment(
    ev: Eval, servers: tuple[McpServer, ...], image: str, *, hook_model: bool, problems: Problems
) -> dict[str, Any]:
    sandbox = ev.spec.sandbox
    table: dict[str, Any] = {"docker_image": image, "workdir": sandbox.workdir}
    if sandbox.cpus is not None:
        table["cpus"] = int(sandbox.cpus) if sandbox.cpus == int(sandbox.cpus) else sandbox.cpus
    if sandbox.memory_mb is not None:
        table["memory_mb"] = sandbox.memory_mb
    table["network_mode"] = _NETWORK[sandbox.network]
    if sandbox.network == "model":
        hosts = {MODEL_HOSTS[ev.spec.runner.type]} | ({MODEL_HOSTS["claude-code"]} if hook_model else set())
        table["allowed_hosts"] = sorted(hosts)
    env = _env(ev, servers, problems)
    if hook_model and sandbox.sealed:
        # What the interceptor asks its model with: setup takes it, the launchers take it away from the agent.
        env = {**env, MODEL_BASE_URL: "${ANTHROPIC_BASE_URL:-}", MODEL_KEY: "${ANTHROPIC_API_KEY:-}"}
    if env:
        table["env"] = env
    # A second run finds the script in the home, where the first one put it.
    moved, fresh = f"{SANDBOX_HOME}/setup", f"{sandbox.workdir}/setup"
    table["healthcheck"] = {
        "command": f"if [ -e {moved} ]; then /bin/sh {moved}; else /bin/sh {fresh}; fi",
        "timeout_sec": float(SETUP_SECONDS),
        "retries": 1,  # it does not get better by waiting
    }
    if servers:
        table["mcp_servers"] = [_server(ev, index, server, problems) for index, server in enumerate(servers)]
    return table


def _env(ev: Eval, servers: tuple[McpServer, ...], problems: Problems) -> dict[str, str]:
    """Variables of the container: the eval's, then those that steps and servers take from the caller.

    Harbor's tables of steps and servers have no variables of their own; literals reach them by other ways.
    """
    env: dict[str, str] = {}

    def add(name: str, value: str, *where: str | int) -> None:
        written = harbor_value(value)
        if written is None:
            message = f"{'.'.join(map(str, where))}: Harbor would take {value!r} for a reference to a variable"
            problems.error(message, ev.file, ev.line(*where), code="env-value")
        elif env.setdefault(name, written) != written:
            message = f"{'.'.join(map(str, where))} differs from another value of {name}; Harbor knows one for all"
            problems.warn(message, ev.file, ev.line(*where), code="env-clash")

    for name, value in ev.spec.execution.env.items():
        add(name, value, "execution", "env", name)
    for index, step in enumerate(ev.spec.execution.steps):
        for name, value in step.env.items():
            if env_references(value) is not None:
                add(name, value, "execution", "steps", index, "env", name)
    for index, server in enumerate(servers):
        for name, value in server.env.items():
            if env_references(value) is not None:
                add(name, value, "mcp_servers", index, "env", name)
    return env


def harbor_value(value: str) -> str | None:
    """A value of an env map as Harbor reads it; None for a literal that Harbor would not leave alone."""
    reference = env_references(value)
    if reference is None:
        return None if _HARBOR_TEMPLATE.fullmatch(value) else value
    return f"${{{reference.name}}}" if reference.default is None else f"${{{reference.name}:-{reference.default}}}"


def _server(ev: Eval, index: int, server: McpServer, problems: Problems) -> dict[str, Any]:
    if server.command is None:
        transport = "sse" if (server.url or "").rstrip("/").endswith("/sse") else "streamable-http"
        table: dict[str, Any] = {"name": server.name, "transport": transport, "url": server.url or ""}
        for name, value in server.headers.items():
            written = harbor_value(value) or value
            if _CREDENTIAL_HEADER.search(name) and not _REFERENCE_ONLY.fullmatch(written):
                problems.error(
                    f"mcp_servers: the header {name} of {server.name} must take its secret from the caller",
                    ev.file, ev.line("mcp_servers", index, "headers", name),
                    hint="write it as ${VAR} or Bearer ${VAR}", code="mcp-secret",
                )  # fmt: skip
        if server.headers:
            table["headers"] = {name: harbor_value(value) or value for name, value in server.headers.items()}
        return table
    command, args = server.command, list(server.args)
    literals = [f"{name}={value}" for name, value in server.env.items() if env_references(value) is None]
    if literals:
        command, args = "env", [*literals, command, *args]
    return {"name": server.name, "transport": "stdio", "command": command, "args": args}
