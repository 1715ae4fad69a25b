"""What a pulled bundle may not do on this machine unless the user trusts it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from harbor_tasks.environments.variables import taken_variables
from harbor_tasks.errors import AuthorError
from harbor_tasks.tasks.manifest import BuildManifest
from harbor_tasks.tasks.pulled import bundle_origin

HERE = "local"
"""The environment that runs everything as the user."""


def require_trust(tasks: Path, manifest: BuildManifest, environment: str, *, trusted: bool) -> None:
    """AuthorError when tasks of a bundle would run something as this user: the trial itself, or commands after it."""
    if trusted or bundle_origin(tasks) is None:
        return
    if environment == HERE:
        raise AuthorError(refusal(manifest.name))
    hooks = manifest.hooks_after
    after = [f"hooks.after_each: {hook.command}" for hook in hooks.after_each]
    after += [f"hooks.after_all: {hook.command}" for hook in hooks.after_all]
    if after:
        raise AuthorError(
            f"the bundle of {manifest.name} would run commands on this machine, as you, after its trials "
            f"({'; '.join(after)[:300]}); --trust lets it"
        )


def refusal(what: str) -> str:
    """Why a bundle does not run here."""
    return (
        f"{what} came in a bundle, and --env {HERE} would run it on this machine as you: --env docker gives each trial "
        "a container of its own; --trust runs it here all the same"
    )


def warnings(tasks: Path, manifest: BuildManifest, caller: Mapping[str, str]) -> list[str]:
    """What a bundle gets of this user's without being asked for: the variables that its eval refers to."""
    names = [] if bundle_origin(tasks) is None else taken_variables(manifest, caller)
    return [f"this bundle takes from your environment: {', '.join(names)}"] if names else []
