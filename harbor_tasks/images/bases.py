"""Base images: found here, else pulled; by digest where one is known."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from harbor_tasks.errors import AuthorError, HarborPackError, MachineError, display_path
from harbor_tasks.images.builder import Engine, OnEvent, inspect
from harbor_tasks.images.credentials import Credentials, credentials_for
from harbor_tasks.images.moving import fault_of
from harbor_tasks.resources import resource

LOCAL_BASE = "harbor-pack-base:bookworm"
"""What docker/base-image.sh makes where no registry can be reached."""
_PINNED = re.compile(r"(?:.+@)?sha256:[0-9a-f]{64}")
_UNREACHABLE = re.compile(
    r"dial |lookup |no such host|timeout|timed out|connection (?:refused|reset)|unreachable|TLS|x509|proxyconnect"
    r"|\bEOF\b|server gave HTTP response|Client\.Timeout|deadline",
    re.IGNORECASE,
)
_REFUSED = re.compile(
    r"unauthorized|authentication required|no basic auth|forbidden|access denied(?! for)", re.IGNORECASE
)


@dataclass(frozen=True)
class Base:
    """A base image that is here: what was asked for, the image's id, its digest in a registry if it has one."""

    reference: str
    id: str
    digest: str | None

    def __str__(self) -> str:
        if self.digest is None:
            return f"{self.reference} ({short(self.id)}; it has no digest of a registry)"
        return self.digest if self.digest == self.reference else f"{self.reference} ({self.digest})"


def short(identity: str) -> str:
    """An image's id, short enough for a line."""
    return identity.removeprefix("sha256:")[:12]


def is_pinned(reference: str) -> bool:
    """Whether a reference can only ever mean one image."""
    return _PINNED.fullmatch(reference) is not None


def local_base(engine: Engine, reference: str) -> Base | None:
    """The base if it is here."""
    found = inspect(engine, reference)
    return None if found is None else Base(reference, str(found["Id"]), _digest(reference, found))


def find_base(engine: Engine, reference: str, on_event: OnEvent) -> Base:
    """The base, pulled if it is not here; an error that says what to do when there is none to be had."""
    base = local_base(engine, reference)
    if base is None:
        if reference.startswith("sha256:"):
            raise MachineError(f"base image {reference}: the engine has no such image, and an id cannot be pulled")
        on_event(f"pulling {reference}")
        _pull(engine, reference)
        base = local_base(engine, reference)
    if base is None:
        raise MachineError(f"base image {reference} was pulled, but the engine does not have it")
    return base


def _digest(reference: str, found: dict[str, Any]) -> str | None:
    """Its digest in the repository that was asked for, else in any."""
    digests = [str(digest) for digest in found.get("RepoDigests") or ()]
    own = f"{repository(reference)}@"
    return next((digest for digest in digests if digest.startswith(own)), digests[0] if digests else None)


def repository(reference: str) -> str:
    """A reference without its tag and digest."""
    name = reference.partition("@")[0]
    head, colon, tag = name.rpartition(":")
    return head if colon and "/" not in tag else name


def _pull(engine: Engine, reference: str) -> None:
    credentials = credentials_for(reference)
    name, at, digest = reference.partition("@")
    tag = digest if at else name[len(repository(name)) + 1 :] or "latest"
    said = fault_of(engine, "images/create", {"fromImage": repository(reference), "tag": tag}, credentials.auth)
    if said is not None:
        raise _not_pulled(reference, said, credentials, engine)


def _not_pulled(reference: str, said: str, credentials: Credentials, engine: Engine) -> HarborPackError:
    if _REFUSED.search(said):
        return credentials.refused(f"base image {reference}", said)
    if _UNREACHABLE.search(said):
        if inspect(engine, LOCAL_BASE) is None:
            how = f"sh {display_path(resource('docker', 'base-image.sh'))} makes {LOCAL_BASE} without one; then"
        else:
            how = f"{LOCAL_BASE} is here:"
        return MachineError(
            f"base image {reference} is not here and its registry {credentials.registry} cannot be reached ({said}); "
            f"{how} --base {LOCAL_BASE}, or HARBOR_PACK_BASE={LOCAL_BASE} for all evals that name no base"
        )
    if credentials.fault is not None:
        return credentials.refused(f"base image {reference}", said)
    return AuthorError(f"base image {reference} is not here and cannot be pulled: {said}")
