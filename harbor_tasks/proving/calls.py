"""The calls that are forced, and the variables under which they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harbor_tasks.environments.variables import UnsetError, resolve_value
from harbor_tasks.policy.handlers import Handlers
from harbor_tasks.policy.own_cases import own_cases
from harbor_tasks.policy.probes import Probe
from harbor_tasks.tasks.manifest import BuildManifest

SAME = "the same"
"""What is expected of a handler's own case: no certain decision, but one in all environments."""

Outcome = Mapping[str, Any]
"""What interceptor/prober.py says of a call, and the ``tier`` of the log's line."""


@dataclass(frozen=True)
class Forced:
    """A probe with the id of its call, and what is expected: a decision, or `SAME`."""

    id: str
    probe: Probe
    expected: str

    @property
    def call(self) -> dict[str, Any]:
        """As interceptor/prober.py takes it."""
        return {"id": self.id, "tool": self.probe.tool, "input": self.probe.input, "env": self.probe.env}


def forced_calls(manifest: BuildManifest, handlers: Handlers | None) -> list[Forced]:
    """The eval's probes, then the handlers' own cases (None: without them)."""
    calls = [(probe, str(probe.expect)) for probe in manifest.probes]
    calls += [(probe, SAME) for probe in own_cases(handlers)]
    return [Forced(f"toolu_probe_{n:04d}", probe, expected) for n, (probe, expected) in enumerate(calls, 1)]


def set_variables(manifest: BuildManifest, caller: Mapping[str, str]) -> dict[str, str]:
    """The eval's variables, without those that refer to one that nobody set."""
    return filled(manifest.execution.env, caller)


def filled(variables: Mapping[str, str], caller: Mapping[str, str]) -> dict[str, str]:
    """The variables with the values that their references give, without those that refer to one that nobody set."""
    env = {}
    for name, value in variables.items():
        try:
            env[name] = resolve_value(value, caller)
        except UnsetError:
            continue
    return env
