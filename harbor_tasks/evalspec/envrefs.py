"""Names and values of environment variables: what a name may be, what is a reference to the caller's environment."""

from __future__ import annotations

import re
from dataclasses import dataclass

ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_REFERENCE = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^\n\0]*))?\})", re.ASCII)

_LOOKS_LIKE_ONE = re.compile(r"(?<![\\$])\$(\{?)([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)

_REFUSED_PREFIXES = ("LD_", "DYLD_", "PYTHON", "CLAUDE_CODE_")
_REFUSED = frozenset({
    "PATH", "BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS", "IFS", "PROMPT_COMMAND", "NODE_OPTIONS", "GCONV_PATH",
    "CLAUDE_CONFIG_DIR", "CLAUDE_PROJECT_DIR", "CLAUDE_ENV_FILE",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class EnvRef:
    """A value that is taken from the caller's environment when the eval runs."""

    name: str
    default: str | None = None


def env_references(value: str) -> EnvRef | None:
    """The reference that the whole value is: `$VAR`, `${VAR}` or `${VAR:-default}`; None for a literal."""
    found = _REFERENCE.fullmatch(value)
    return EnvRef(found[1] or found[2], found[3]) if found else None


def named_inside(value: str, *, braces: bool = True) -> str:
    """What looks like a reference inside a longer text, where it is none: `$VAR`; "" when nothing does.

    Without ``braces`` one in braces does not count: an MCP server's texts may hold those.
    """
    if env_references(value):
        return ""
    found = (one for one in _LOOKS_LIKE_ONE.finditer(value) if braces or not one[1])
    return next((f"${{{one[2]}}}" if one[1] else f"${one[2]}" for one in found), "")


def name_fault(name: str) -> str | None:
    """Why this cannot be the name of a variable that an eval sets; None when it can."""
    if not ENV_NAME.fullmatch(name):
        return "is not the name of an environment variable (letters, digits and _, not starting with a digit)"
    if name in _REFUSED or name.startswith(_REFUSED_PREFIXES):
        return "may not be set: it switches how programs, the agent or its hooks are loaded"
    return None


def value_fault(value: str) -> str | None:
    """Why this cannot be the value of a variable; None when it can."""
    if "\0" in value:
        return "must not contain a NUL"
    if "\n" in value or "\r" in value:
        return "must not contain a newline"
    if value.startswith("${") and not _REFERENCE.fullmatch(value) and value.find("}") in (-1, len(value) - 1):
        return "looks like a reference but is none (write $VAR, ${VAR} or ${VAR:-default})"
    return None
