"""What `setup` writes when it seals a sandbox: rendered here, at build, as a pure function of the eval.

Who may do what then is in the text of ``templates/task/environment/setup``; the names of users and places are fixed by
the runtime image (``docker/``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tomli_w

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec.envrefs import env_references, name_fault
from harbor_tasks.evalspec.load import Eval
from harbor_tasks.evalspec.schema import McpServer
from harbor_tasks.policy.handlers import Handlers
from harbor_tasks.policy.matchers import named
from harbor_tasks.policy.permissions import permissions_of
from harbor_tasks.tasks.codex import codex_settings
from harbor_tasks.tasks.interception import CODEX_HOOKS, SCRIPT, SETTINGS, prepare
from harbor_tasks.tasks.plan import INTERCEPTION_LOG, SANDBOX_HOME

MANAGED_SETTINGS = "/etc/claude-code/managed-settings.json"
RUNTIME = "/usr/local/lib/harbor-pack"
"""The runtime image's own programs; its file ``runtime`` marks the image."""
HOOK = f"/usr/bin/python3 -I -S -E {SANDBOX_HOME}/{SCRIPT} --sealed --log {INTERCEPTION_LOG}"
"""The one command that sudo lets `agent` run as `interceptor`."""
SEALED_COMMAND = f"/usr/bin/sudo -n -u interceptor {HOOK}"
MODEL_BASE_URL, MODEL_KEY = "HARBOR_PACK_MODEL_BASE_URL", "HARBOR_PACK_MODEL_KEY"
"""Variables of the sandbox from which `setup`, and nothing else, takes the endpoint and key of the hook's model."""

SERVERS_FILE = f"{SANDBOX_HOME}/servers.json"
"""What the servers are started with; only root and the user `services` read it."""

_QUESTIONS = "AskUserQuestion"
#: The worst that a variable could do to the seal; managed settings beat those that anything else may bring.
_PINNED_ENV = {
    "CLAUDE_CODE_SHELL_PREFIX": f"{RUNTIME}/prefix", "CLAUDE_CODE_SIMPLE": "0", "LD_PRELOAD": "", "LD_AUDIT": "",
    "LD_LIBRARY_PATH": "", "BASH_ENV": "", "ENV": "",
}  # fmt: skip
#: What is the agent program's own, or tells of it: its tools work as `agent`, and would let the model at its transcript
#: and start-up files and, by the kernel, its variables. The rules see through links.
_OWN_PLACES = ("/logs", "/home/agent", "/opt/harbor-pack-agent", "/proc/self", "/proc/thread-self", "/proc/[0-9]*")
_DENIED = [f"{tool}(/{place}/**)" for place in _OWN_PLACES for tool in ("Read", "Edit")]
#: Keys of models are the agent program's; what the model runs does not get them, whatever the eval asks for.
_MODEL_KEY = re.compile(r"(?:ANTHROPIC|CLAUDE|OPENAI|CODEX|HARBOR_PACK)_\w*(?:KEY|TOKEN)")


@dataclass(frozen=True)
class Seal:
    """Contents of the files that seal a sandbox; settings are JSON on one line."""

    registered: str | None
    """The command line of the hook as it stands in the settings; None when nothing is intercepted."""
    managed: str
    steps: Mapping[str, str]
    """Step -> its managed settings; empty when all steps have the same variables."""
    step_ids: tuple[str, ...]
    codex_hooks: str | None
    codex_config: str | None
    """Codex's own settings, TOML; None for an eval of another program."""
    sudoers: str
    servers: str
    """The commands that start the eval's own MCP servers, one a line."""
    own_servers: str | None
    """What they are started with, by name (`SERVERS_FILE`); a variable that is null is the sandbox's own."""
    told_servers: str | None
    """What the agent program is told of them where nobody else tells it, in Claude Code's form."""
    agent_env: str
    """What the launchers read, one ``name=value`` a line."""
    hook_model: bool
    """Whether the hook may ask a model."""


def seal_of(ev: Eval, handlers: Handlers | None, servers: Sequence[McpServer]) -> Seal:
    """The seal of an eval's sandboxes. Raises AuthorError when permissions or settings are wrong.

    ``servers`` are the eval's MCP servers with their places in the sandbox.
    """
    programs = [server for server in servers if server.command is not None]
    prepared = prepare(ev, handlers, SEALED_COMMAND, protect=False)
    settings = json.loads(prepared.pinned.get(SETTINGS, b"{}"))
    managed = _managed(settings, {})
    steps = ev.spec.execution.steps
    own = {step.id: _managed(settings, _literals(step.env)) for step in steps}
    codex = prepared.pinned.get(CODEX_HOOKS)
    return Seal(
        registered=_registered(settings), managed=managed,
        steps=own if any(text != managed for text in own.values()) else {}, step_ids=tuple(step.id for step in steps),
        codex_hooks=None if codex is None else _line(json.loads(codex)), codex_config=_codex_config(ev, handlers),
        sudoers=_sudoers(ev, handlers), servers="\n".join(" ".join(server_command(server.name)) for server in programs),
        own_servers=_line({server.name: _started_with(server) for server in programs}) if programs else None,
        told_servers=_line({"mcpServers": {one.name: _told(one.name) for one in programs}}) if programs else None,
        agent_env=_agent_env(ev, handlers, programs), hook_model=answers_questions(handlers),
    )  # fmt: skip


def _codex_config(ev: Eval, handlers: Handlers | None) -> str | None:
    """What a program that Harbor starts is told by no other way; where we start it, it is told the same twice."""
    spec = ev.spec
    if spec.runner.type != "codex":
        return None
    patterns = [pattern for handler in (handlers.handlers if handlers else ()) for pattern in handler.patterns]
    deny = permissions_of(ev, Problems()).deny  # what is wrong with them was said when they were prepared
    return tomli_w.dumps(codex_settings(spec.runner, spec.models, spec.sandbox, patterns, deny)).rstrip("\n")


def server_command(name: str) -> tuple[str, ...]:
    """The words by which the agent program starts an MCP server of the eval in a sealed sandbox."""
    return ("/usr/bin/sudo", "-n", "-u", "services", f"{RUNTIME}/serve", name)


def _started_with(server: McpServer) -> dict[str, Any]:
    env = {name: value if env_references(value) is None else None for name, value in server.env.items()}
    return {"command": server.command, "args": list(server.args), "env": env}


def _told(name: str) -> dict[str, Any]:
    command, *args = server_command(name)
    return {"type": "stdio", "command": command, "args": args}


def _servers(ev: Eval) -> list[str]:
    """The names of the servers that are programs in the sandbox."""
    return [server.name for server in ev.spec.mcp_servers if server.command is not None]


def answers_questions(handlers: Handlers | None) -> bool:
    """Whether a handler names the question tool; a mere glob denies questions."""
    return handlers is not None and any(named(_QUESTIONS, handler.patterns) for handler in handlers.handlers)


def _managed(settings: Mapping[str, Any], env: Mapping[str, str]) -> str:
    """Managed settings: those of an unsealed sandbox with the sealed command, and no hooks but these."""
    pinned = {**settings.get("env", {}), **env, **_PINNED_ENV}
    permissions = settings.get("permissions", {})
    permissions = {**permissions, "deny": [*permissions.get("deny", []), *_DENIED]}
    # A workflow is a program of the model's that runs within the agent program, as its user.
    own = {"allowManagedHooksOnly": True, "disableWorkflows": True}
    return _line({**own, **settings, "permissions": permissions, "env": pinned})


def _registered(settings: Mapping[str, Any]) -> str | None:
    groups = settings.get("hooks", {}).get("PreToolUse", [])
    commands = {hook["command"] for group in groups for hook in group["hooks"]}
    return commands.pop() if commands else None


def _literals(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if env_references(value) is None}


def _sudoers(ev: Eval, handlers: Handlers | None) -> str:
    """sudo's rules. Later lines beat those of the image. `worker` has no rule.

    Without PAM sessions and a terminal of its own sudo becomes the command, in place of waiting for it: one process
    less that could be ended.
    """
    execution = ev.spec.execution
    checked = {name for handler in (handlers.handlers if handlers else ()) for name in handler.env_checks or ()}
    given = {*execution.env, *(name for step in execution.steps for name in step.env)}
    lines = [
        "Defaults env_reset, !use_pty, !requiretty, !pam_session, !pam_setcred, !fqdn, !syslog, !lecture",
        "Defaults>interceptor !env_keep",
        'Defaults>interceptor secure_path="/usr/sbin:/usr/bin:/sbin:/bin"',
        *_env_keep("interceptor", checked),
        *_env_keep("worker", (name for name in given if not _MODEL_KEY.fullmatch(name))),
        "Defaults>services !env_keep",
        f"agent ALL=(interceptor) NOPASSWD: {HOOK}",
        *(f"agent ALL=(services) NOPASSWD: {RUNTIME}/serve {name}" for name in _servers(ev)),
        "agent ALL=(worker) NOPASSWD: ALL",
        *(f"agent ALL=(root) NOPASSWD: /bin/sh {SANDBOX_HOME}/setup --step {step.id}" for step in execution.steps),
    ]
    return "\n".join(lines)


def _env_keep(user: str, names: Iterable[str]) -> list[str]:
    """Names that change how programs are loaded are left out: a check of such a variable finds none, and denies."""
    return [f'Defaults>{user} env_keep += "{name}"' for name in sorted(names) if name_fault(name) is None]


def _agent_env(ev: Eval, handlers: Handlers | None, servers: Sequence[McpServer]) -> str:
    lines = ["questions=yes"] if answers_questions(handlers) else []
    if ev.spec.runner.permission_mode is not None:
        lines.append(f"permission_mode={ev.spec.runner.permission_mode}")
    execution = ev.spec.execution
    given = {*execution.env, *(name for step in execution.steps for name in step.env)}
    own = {name for server in servers for name, value in server.env.items() if env_references(value) is not None}
    lines += [f"unset={name}" for name in sorted(own - given)]
    return "\n".join(lines)


def _line(data: Mapping[str, Any]) -> str:
    """JSON on one line of ASCII: it fits into a script between two lines of its own."""
    return json.dumps(data, separators=(",", ":"))
