"""Codex's settings for an eval, the same wherever it runs: in the home of a trial, and in /etc/codex of a sandbox."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harbor_tasks.evalspec.schema import Models, Runner, Sandbox
from harbor_tasks.policy.lint_codex import SEARCHES
from harbor_tasks.policy.matchers import covered, named

KEYS = ("OPENAI_API_KEY", "CODEX_API_KEY")
_NOT_FOR_COMMANDS = (*KEYS, "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL")
"""Of the program and its hooks alone; MCP servers get none of its variables in any case."""


def codex_settings(
    runner: Runner, models: Models, sandbox: Sandbox, patterns: Sequence[str], deny: Sequence[str]
) -> dict[str, Any]:
    """The content of config.toml, but for what only a trial knows.

    ``patterns`` are those of all handlers, ``deny`` the texts of the permission rules.
    """
    chosen = {
        "model": models.skill, "model_reasoning_effort": runner.effort, "developer_instructions": runner.system_prompt
    }  # fmt: skip
    return {
        **{name: value for name, value in chosen.items() if value is not None},
        "features": {
            # a command could be started that runs what is typed later, and no hook sees what is typed
            "unified_exec_tty": False,
            "default_mode_request_user_input": named("request_user_input", patterns),
            "shell_snapshot": False, "apps": False, "plugins": False,
        },
        "web_search": "live" if _may_search(sandbox, patterns, deny) else "disabled",
        "shell_environment_policy": {"inherit": "all", "exclude": list(_NOT_FOR_COMMANDS)},
        "allow_login_shell": False,  # its start-up files would set another PATH
        "project_doc_fallback_filenames": ["CLAUDE.md"],
        "suppress_unstable_features_warning": True, "check_for_update_on_startup": False,
        "analytics": {"enabled": False},
    }  # fmt: skip


def _may_search(sandbox: Sandbox, patterns: Sequence[str], deny: Sequence[str]) -> bool:
    """The search runs at the provider, unseen by hooks: not when a rule is about it, or the network is closed."""
    denied = {rule.partition("(")[0] for rule in deny}
    ruled = any(covered(tool, patterns) or tool in denied for tool in SEARCHES)
    return sandbox.network == "public" and not ruled
