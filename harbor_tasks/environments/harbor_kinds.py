"""Harbor's kinds of machines, and which of them can hold the seal.

The seal keeps users apart with sudo, a setuid program, and `setup` has to run as root in the eval's own image. What is
said here comes from how Harbor 0.26 starts each kind; only ``docker`` is run in the tests of this project. It does not
have to be believed: where users cannot be kept apart, `setup` fails before the agent starts, and the trial is an
environment error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Kind:
    """What one kind of machine can do for a sealed trial, and why."""

    seals: Literal["yes", "untried", "no"]
    why: str


DEFAULT_KIND = "docker"
_CONTAINER = "containers of an engine that allows setuid programs"
_POD = "root in a pod; the cluster's policy must allow privilege escalation"
_MACHINE = "root in a machine of its own, made from the image"
_SANDBOX = "root in the provider's sandbox, made from the image; whether it allows setuid is the provider's"

KINDS: dict[str, Kind] = {
    "docker": Kind("yes", "containers of an engine that allows setuid programs; run in this project's tests"),
    "podman": Kind("untried", f"{_CONTAINER}; rootless ones map the image's users"),
    "sbx": Kind("untried", _CONTAINER),
    "kata": Kind("untried", "as docker, each container in a machine of its own"),
    "apple-container": Kind("untried", _MACHINE),
    "gke": Kind("untried", _POD),
    "ack": Kind("untried", _POD),
    "openshift": Kind("untried", f"{_POD} (allowPrivilegeEscalation in the SCC, and its capabilities)"),
    "ec2": Kind("untried", "docker on a machine of its own"),
    "boxd": Kind("untried", "docker on a machine of its own"),
    "kernel": Kind("untried", "docker on a machine of its own"),
    "cwsandbox": Kind("untried", _SANDBOX),
    **dict.fromkeys(
        (
            "daytona", "e2b", "modal", "runloop", "langsmith", "novita", "islo", "tensorlake", "blaxel", "opensandbox",
            "beam", "skypilot", "hyperbrowser", "vercel", "runta", "prime", "mosaic", "smol", "sail",
            "superserve", "aca-sandbox",
        ),
        Kind("untried", _SANDBOX),
    ),
    "singularity": Kind("no", "one user (--fakeroot); setuid programs have no effect, and sudo is a stub"),
    "hf-sandbox": Kind("no", "it does not change users: the agent would be root"),
    "snowflake": Kind("no", "its sandboxes block changes of the user"),
    "use-computer": Kind("no", "a desktop of the provider's, not the eval's image"),
    "cua-cloud": Kind("no", "a desktop of the provider's, not the eval's image"),
}  # fmt: skip
