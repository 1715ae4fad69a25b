"""Which variables a trial on this machine gets, and how references to the caller's environment are filled in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from harbor_tasks.errors import AuthorError, Problem, Where
from harbor_tasks.evalspec.envrefs import env_references
from harbor_tasks.tasks.manifest import BuildManifest

MACHINE = (
    "PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "USER", "LOGNAME",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
)  # fmt: skip
"""What the agent is told of the caller's environment: where programs lie, the language, the way to the network."""

MODEL = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL")
"""Where, and with which key, the interceptor's model is asked: for an agent that runs hooks."""

MODEL_URL = {"claude-code": "ANTHROPIC_BASE_URL", "codex": "OPENAI_BASE_URL"}
"""By the program that the eval is written for: the variable that names its model's endpoint."""

_EMBEDDED = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^{}\n]*))?\}")


class UnsetError(LookupError):
    """A variable that is referred to is not set and has no default; its name is the first argument."""


def resolve_value(value: str, caller: Mapping[str, str]) -> str:
    """A value of ``execution.env``: what its reference gives, or itself when it is a literal."""
    reference = env_references(value)
    return value if reference is None else _look_up(reference.name, reference.default, caller)


def fill_in(text: str, caller: Mapping[str, str]) -> str:
    """A text of an MCP server: ``${VAR}`` and ``${VAR:-default}`` anywhere in it, or as a whole ``$VAR``."""
    if env_references(text) is not None:
        return resolve_value(text, caller)
    return _EMBEDDED.sub(lambda found: _look_up(found[1], found[2], caller), text)


def _look_up(name: str, default: str | None, caller: Mapping[str, str]) -> str:
    value = caller.get(name)
    if value or (value is not None and default is None):  # as in a shell, `:-` also stands in for an empty one
        return value
    if default is None:
        raise UnsetError(name)
    return default


def require_variables(manifest: BuildManifest, caller: Mapping[str, str]) -> None:
    """AuthorError that names every variable that a reference needs and nobody has set."""
    missing = unset_variables(manifest, caller)
    if missing:
        raise AuthorError(
            Problem(f"${name} is not set, and {where} needs it", Where(), "export it before the run", code="unset")
            for name, where in dict.fromkeys(missing)
        )


def unset_variables(manifest: BuildManifest, caller: Mapping[str, str]) -> list[tuple[str, str]]:
    """(variable, where it is used) for every reference that nobody fills."""
    missing = []
    for where, text, read in _texts(manifest):
        try:
            read(text, caller)
        except UnsetError as unset:
            missing.append((str(unset.args[0]), where))
    return missing


def taken_variables(manifest: BuildManifest, caller: Mapping[str, str]) -> list[str]:
    """The variables of the caller's that the eval takes, sorted."""
    names = set[str]()
    for _where, text, _read in _texts(manifest):
        reference = env_references(text)
        names |= {reference.name} if reference else {found[1] for found in _EMBEDDED.finditer(text)}
    return sorted(name for name in names if caller.get(name))


Read = Callable[[str, Mapping[str, str]], str]


def _texts(manifest: BuildManifest) -> Iterator[tuple[str, str, Read]]:
    for name, value in manifest.execution.env.items():
        yield f"execution.env.{name}", value, resolve_value
    for step in manifest.steps:
        for name, value in step.env.items():
            yield f"env.{name} of the step {step.id}", value, resolve_value
    for server in manifest.mcp_servers:
        where = f"the MCP server {server.name}"
        for text in (server.command, server.url, *server.args, *server.env.values(), *server.headers.values()):
            if text is not None:
                yield where, text, fill_in
