"""References of bundles in a registry: ``registry/repository[:tag][@sha256:…]``, in the grammar of the distribution
specification. The registry is always named: a bundle is nobody's default.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, replace

from harbor_tasks.errors import AuthorError

DEFAULT_TAG = "latest"
"""The tag of a reference that names none, as everywhere else."""
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:.]+\])(?::([0-9]{{1,5}}))?")
_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_LONGEST = 255
_SCHEME = re.compile(r"([a-z]+):/{1,2}")
_FORM = "write registry/repository[:tag][@sha256:…]"


@dataclass(frozen=True)
class Reference:
    """A place in a registry. As text it is what a user would type; a digest beats the tag beside it."""

    registry: str
    """Host, with its port when there is one."""
    repository: str
    tag: str | None = None
    digest: str | None = None

    def __str__(self) -> str:
        tag, digest = f":{self.tag}" if self.tag else "", f"@{self.digest}" if self.digest else ""
        return f"{self.registry}/{self.repository}{tag}{digest}"

    @property
    def name(self) -> str:
        """Registry and repository."""
        return f"{self.registry}/{self.repository}"

    @property
    def asked(self) -> str:
        """What a registry is asked for: the digest, else the tag."""
        return self.digest or self.tag or DEFAULT_TAG

    @property
    def api_host(self) -> str:
        """Where the registry's interface is: for Docker Hub not at its name."""
        from oras.defaults import registry as hub  # what Docker's own tools know of it

        hosts = {hub.index_name, hub.index_hostname}
        return str(hub.default_v2_registry["host"]) if self.registry in hosts else self.registry

    @property
    def is_loopback(self) -> bool:
        """Whether the registry is on this machine, where plain http is nobody else's to read."""
        host = re.sub(r":[0-9]+$", "", self.registry).strip("[]")
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host.lower() == "localhost"

    def at(self, digest: str) -> Reference:
        """The same repository by a digest alone."""
        return replace(self, tag=None, digest=digest)


def is_reference(text: str) -> bool:
    """Could the text mean a place in a registry, rather than a path? Its first part looks like a host."""
    first, slash, rest = without_scheme(text).partition("/")
    host = _HOST.fullmatch(first)
    if not slash or not rest or host is None or int(host[1] or 1) not in range(1, 1 << 16):
        return False
    return "." in first or ":" in first or first == "localhost"


def without_scheme(text: str) -> str:
    """The text without a leading ``oci://`` (of which a path makes ``oci:/``)."""
    return re.sub(r"\Aoci:/{1,2}", "", text)


def parse(text: str) -> Reference:
    """The reference that a user typed; AuthorError that says what is wrong with it."""
    rest = without_scheme(text.strip())
    scheme = _SCHEME.match(rest)
    if scheme is not None:
        how = "a registry over http is named without it, with --plain-http" if scheme[1] == "http" else _FORM
        raise AuthorError(f"a reference has no {scheme[1]}:// in front; {how}")
    if "@" in rest.partition("/")[0]:  # not shown: it may hold a password
        raise AuthorError(f"a reference holds no user and no password; docker login keeps them; {_FORM}")
    name, at, digest = rest.partition("@")
    if at and DIGEST.fullmatch(digest) is None:
        raise AuthorError(f"{_shown(text)}: what follows @ must be sha256: and 64 hexadecimal digits; {_FORM}")
    registry, slash, path = name.partition("/")
    if not slash or not is_reference(name):
        raise AuthorError(f"{_shown(text)}: names no registry (a host with a dot, a port, or localhost); {_FORM}")
    repository, colon, tag = path.partition(":")
    if colon and _TAG.fullmatch(tag) is None:
        raise AuthorError(
            f"{_shown(text)}: {_shown(tag)} cannot be a tag (at most 128 letters, digits, _ . -, no . or - first)"
        )
    if _REPOSITORY.fullmatch(repository) is None or len(name) > _LONGEST:
        small = " (small letters only)" if repository != repository.lower() else ""
        raise AuthorError(f"{_shown(text)}: {_shown(repository)} cannot be the name of a repository{small}; {_FORM}")
    return Reference(registry, repository, tag or None, digest or None)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 100 else text[:99] + "…")
