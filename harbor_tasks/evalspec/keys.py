"""Keys that eval.yaml does not know: the nearest known one, and those that promise protection they do not give."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from harbor_tasks.evalspec.schema import EvalSpec, Table, keys_of

OWN_PREFIX = ("x-", "x_", ".")
"""Top-level keys that start so are the author's own: a place for YAML anchors."""

_NETWORK = (
    "network", "networks", "network_mode", "network_access", "networking", "allow_internet", "allow_network",
    "internet", "internet_access", "disable_internet", "disable_network", "no_internet", "no_network", "offline",
    "air_gapped", "allowed_hosts", "allowed_domains", "blocked_hosts", "egress", "firewall", "isolation",
    "isolated",
)  # fmt: skip
_DENY = (
    "deny", "denied", "denies", "denylist", "deny_list", "deny_rules", "deny_paths", "denied_tools", "disallow",
    "disallowed", "disallowed_tools", "disallowedtools", "forbid", "forbidden", "forbidden_tools", "blocked",
    "blocklist", "blocked_tools", "blacklist", "protected_paths",
)  # fmt: skip
_ALLOW = (
    "allow", "allowed", "allow_list", "allowlist", "allowed_tools", "allowedtools", "whitelist",
)  # fmt: skip
_BUDGET = (
    "max_cost", "max_cost_usd", "max_usd", "budget", "budget_usd", "cost_limit", "max_budget", "max_spend",
)  # fmt: skip
_HANDLER = (
    "patterns", "input_filters", "env_checks", "input_checks", "on_pass", "on_fail", "on_unanswered", "action",
    "decision", "rewrite", "requires", "max_calls", "respond", "handlers", "tool_handlers", "interceptors", "block",
    "pretooluse", "posttooluse",
)  # fmt: skip
_ANYWHERE: dict[str, str] = {
    **dict.fromkeys(_NETWORK, "sandbox.network"),
    **dict.fromkeys(_DENY, "permissions.deny"),
    **dict.fromkeys(_ALLOW, "permissions.allow"),
    **dict.fromkeys(_BUDGET, "execution.max_budget_usd"),
    **dict.fromkeys(("seal", "sealed", "read_only", "readonly", "rootless"), "sandbox.sealed"),
    **dict.fromkeys(("memory_limit", "mem_limit"), "sandbox.memory_mb"),
    "cpu_limit": "sandbox.cpus",
}
# Words that promise something only in these sections ("" is the top level).
# Judges promise nothing: those that are agents bring tools and limits of their own.
_NO_PROMISES = ("judges", "outputs", "traces", "mlflow", "generation")
_IN_SECTION: dict[str, dict[str, str]] = {
    **dict.fromkeys(("", "inputs", "hooks"), dict.fromkeys(_HANDLER, "tool_handlers.yaml beside eval.yaml")),
    "permissions": {"ask": "permissions.deny", "block": "permissions.deny"},
    "models": {
        **dict.fromkeys(("max_calls", "requests", "max_requests"), "models.hook_budget.calls"),
        **dict.fromkeys(("max_tokens", "usd", "cost", "seconds", "timeout"), "models.hook_budget.tokens"),
    },
}


def _folded(key: str) -> str:
    return key.strip().lower().replace("-", "_").replace(" ", "_")


def protection(
    above: tuple[Any, ...], key: str, value: Any, known: Sequence[str]
) -> list[tuple[tuple[str | int, ...], str]]:
    """What an unknown key, or a key in its value, promises: its path below the key, and the key that keeps the promise.

    The result is empty when nothing is promised, or when the key is a mere misspelling of one that stands here.
    """
    section = str(above[0]) if above else ""
    if section in _NO_PROMISES:
        return []
    right = _right_key(section, key)
    if right:
        misspelt = right.rpartition(".")[2]
        return [] if misspelt in known and nearest(key, [misspelt]) else [((), right)]
    if not isinstance(value, dict):
        return []
    return [((name,), below) for name in value if (below := _right_key(section or key, name))]


def _right_key(section: str, key: str) -> str:
    folded = _folded(key)
    return _IN_SECTION.get(section, {}).get(folded) or _ANYWHERE.get(folded, "")


def nearest(key: str, known: Sequence[str]) -> str:
    """The known key that this one is a misspelling of, or ""."""
    folded = _folded(key)
    if folded in known:
        return folded
    # Half of a two-letter swap still passes 0.75 ("naem"); words of another meaning stay below it.
    return next(iter(difflib.get_close_matches(folded, known, n=1, cutoff=0.75)), "")


def nearest_word(value: str, known: Sequence[str]) -> str:
    """The known value, in its own case, that this one is a misspelling of, or ""."""
    return next((word for word in known if nearest(value.replace(" ", ""), [word.lower()])), "")


def elsewhere(key: str) -> str:
    """The key of this name in another section, as `execution.timeout`; "" when there is none or several."""
    found = [f"{section}.{key}" for section, names in _sections() if key in names]
    return found[0] if len(found) == 1 else ""


def _sections() -> list[tuple[str, Sequence[str]]]:
    sections: list[tuple[str, Sequence[str]]] = []
    for name, annotation in keys_of(EvalSpec).items():
        if isinstance(annotation, type) and issubclass(annotation, Table):
            sections.append((name, tuple(keys_of(annotation))))
    return sections
