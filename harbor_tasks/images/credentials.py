"""Credentials for registries, from Docker's configuration, without letting a missing helper stop what needs none.

The SDK asks every configured helper before each build and pull, and fails when one is not installed, even for an image
that is public or local. Here a helper is asked for its own registry only; one that is missing is said once, and only a
registry that refuses us makes it an error. What a helper says is never shown.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harbor_tasks.errors import MachineError

if TYPE_CHECKING:
    from docker.auth import AuthConfig

DOCKER_HUB = "docker.io"


@dataclass(frozen=True)
class Credentials:
    """What to send to a registry (empty: nothing, we are anonymous), and the helper that should have known more."""

    registry: str
    auth: dict[str, Any]
    missing_helper: str | None = None

    def refused(self, doing: str, said: str) -> MachineError:
        """The registry wants credentials."""
        if self.missing_helper is not None:
            return MachineError(
                f"{doing}: {self.registry} refuses ({said}), and its credential helper {self.missing_helper} is not "
                "installed or fails; install it, or take it out of Docker's config.json and run docker login"
            )
        return MachineError(f"{doing}: {self.registry} refuses ({said}); run docker login {self.registry}")


def registry_of(reference: str) -> str:
    """The registry that a reference of an image names."""
    first, slash, _ = reference.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else DOCKER_HUB


def credentials_for(reference: str) -> Credentials:
    """The credentials for the registry of this image."""
    from docker.credentials.errors import StoreError
    from docker.errors import DockerException

    registry = registry_of(reference)
    missing = missing_helper(reference)
    if missing is not None:
        return Credentials(registry, {}, missing)
    config = _config()
    try:
        found = config.resolve_authconfig(registry)
    except (DockerException, StoreError, OSError, ValueError, KeyError):  # the last two: an answer of another shape
        return Credentials(registry, {}, f"docker-credential-{config.get_credential_store(registry)}")
    return Credentials(registry, dict(found or {}))


def missing_helper(reference: str) -> str | None:
    """The helper that is configured for the registry of this image and is not installed."""
    helper = _config().get_credential_store(registry_of(reference))
    program = f"docker-credential-{helper}"
    return program if helper and shutil.which(program) is None else None


def _config() -> AuthConfig:
    from docker.auth import AuthConfig
    from docker.errors import DockerException

    try:
        return AuthConfig.load_config(None, None)
    except (DockerException, OSError, ValueError, AttributeError):  # not readable: the docker command takes it for none
        return AuthConfig({})
