"""The life of a trial's container: made with its limits and labels, attached, started, removed on every way out."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import docker.errors
import requests.exceptions

from harbor_tasks.environments.base import Stop
from harbor_tasks.environments.docker_line import Line
from harbor_tasks.environments.engine import Engine
from harbor_tasks.errors import MachineError
from harbor_tasks.evalspec.schema import Sandbox
from harbor_tasks.resources import resource

PIDS = 512
"""Processes and threads of a container: a fork loop stays in it."""
CAPABILITIES = ("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID")
"""What root keeps in a sealed sandbox: to hand files over (CHOWN, DAC_OVERRIDE, FOWNER, FSETID for the setgid bit of
folders), to end other users' processes (KILL), to become them (SETUID, SETGID), and sudo's entry in the audit log."""
AGENT_HOME = "/opt/harbor-pack-agent"
"""Root's folder of what runs in the sandbox and belongs to no eval: the agent's program and its input."""
BOOT = """
import os, sys
script, size = b"", int(sys.argv[1])
while len(script) < size:
    script += os.read(0, size - len(script)) or os._exit(0)
exec(compile(script, "conductor.py", "exec"))
"""
"""The first process takes its script from the line: no request to the engine for it, and no file in the sandbox."""
LABEL, JOB, TRIAL, HOST, FOLDER = (
    "harbor-pack", "harbor-pack.job", "harbor-pack.trial", "harbor-pack.host", "harbor-pack.folder"
)  # fmt: skip
_GONE = (404, 409)
"""Not there any more, or being removed by somebody else."""


@contextmanager
def engine_errors(doing: str) -> Iterator[None]:
    """An engine that refuses or does not answer is a MachineError that says what was tried."""
    try:
        yield
    except docker.errors.APIError as error:
        said = " ".join(str(error.explanation or error).split())
        raise MachineError(f"the container engine cannot {doing}: {said[:400]}") from error
    except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
        raise MachineError(f"the container engine does not answer (tried to {doing}): {error}") from error


@cache
def this_host() -> str:
    """A name for this machine, which tells whose job a container belongs to on an engine that several use.

    Containers that were started from one image share the machine's id, and cloned machines the name.
    """
    try:
        machine = Path("/etc/machine-id").read_text(encoding="ascii").strip()[:12]
    except (OSError, UnicodeDecodeError):
        machine = ""
    return f"{socket.gethostname()}-{machine}".rstrip("-")


def job_labels(job: str, folder: Path) -> dict[str, str]:
    """The labels of everything that a job makes on the engine."""
    return {LABEL: "1", JOB: job, HOST: this_host(), FOLDER: str(folder.absolute())}


@dataclass(frozen=True)
class Access:
    """What the containers of a job can reach, as the engine is told it."""

    kind: Literal["public", "model", "none"]
    network: str
    ways: tuple[tuple[str, int], ...] = ()
    """The names and ports that are the only way out of `model`."""
    hosts: Mapping[str, str] = field(default_factory=dict)
    """For their /etc/hosts: name → address."""
    dns: tuple[str, ...] = ()


@cache
def _script() -> bytes:
    return resource("interceptor", "conductor.py").read_bytes()


@dataclass(frozen=True)
class Recipe:
    """What all containers of a job have in common."""

    engine: Engine
    image: str
    sandbox: Sandbox
    labels: Mapping[str, str]
    access: Access

    @property
    def python(self) -> str:
        """The Python of the image: of the runtime image's own when it is one."""
        return "/usr/bin/python3" if self.sandbox.sealed else "python3"

    def host_config(self, api: Any) -> Any:
        """Limits and rights. no-new-privileges is not set: the users are kept apart by sudo, which could not work."""
        sandbox, limits = self.sandbox, dict[str, Any]()
        if sandbox.cpus is not None:
            limits["nano_cpus"] = round(sandbox.cpus * 1e9)
        if sandbox.memory_mb is not None:
            limits["mem_limit"] = limits["memswap_limit"] = sandbox.memory_mb << 20
        if sandbox.sealed:
            limits.update(cap_drop=["ALL"], cap_add=list(CAPABILITIES))
        return api.create_host_config(
            network_mode=self.access.network, extra_hosts=dict(self.access.hosts), dns=list(self.access.dns) or None,
            pids_limit=PIDS, init=False, log_config={"Type": "none"},
            **limits,
        )  # fmt: skip


class Container:
    """A trial's container, from nothing to nothing. ``line`` is there once it was started."""

    def __init__(self, recipe: Recipe, trial: str) -> None:
        self._recipe, self._trial = recipe, trial
        self._api: Any = recipe.engine.client.api
        self.id = ""
        self.python, self.access = recipe.python, recipe.access
        self.line: Line

    def create(self) -> None:
        """Make it. The engine makes the working directory too, if the image has none."""
        recipe = self._recipe
        with engine_errors(f"make a container of {recipe.image}"):
            made = self._api.create_container(
                recipe.image, [recipe.python, "-I", "-S", "-c", BOOT, str(len(_script()))], entrypoint=[], user="0:0",
                stdin_open=True, working_dir=recipe.sandbox.workdir, hostname=self._trial,
                name=f"harbor-pack-{self._trial}-{secrets.token_hex(3)}",
                labels={**recipe.labels, TRIAL: self._trial}, healthcheck={"test": ["NONE"]},
                host_config=recipe.host_config(self._api),
            )  # fmt: skip
        self.id = made["Id"]

    def default_user(self) -> str:
        """The user that the image names for its programs; empty is root."""
        with engine_errors(f"look at the image {self._recipe.image}"):
            config = self._api.inspect_image(self._recipe.image).get("Config") or {}
        return str(config.get("User") or "")

    def start(self, stop: Stop) -> None:
        """Start it, with its first process on the line."""
        with engine_errors("attach to a container"):
            params = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
            self.line = Line(self._api.attach_socket(self.id, params), stop)
        try:
            with engine_errors(f"start a container of {self._recipe.image}"):
                self._api.start(self.id)
        except MachineError as error:
            if self.python in str(error) and ("not found" in str(error) or "no such file" in str(error)):
                raise MachineError(f"the image has no {self.python}, which hook and verifier need: {error}") from error
            raise
        self.line.send(_script())

    def why_ended(self) -> str:
        """What the engine knows of the end of its first process."""
        try:
            state = self._api.inspect_container(self.id)["State"]
        except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
            return f"the container engine does not answer: {error}"
        if state.get("Running"):
            return "its first process does not answer"
        memory = " (out of memory)" if state.get("OOMKilled") else ""
        return f"the container ended with exit code {state.get('ExitCode')}{memory}"

    def remove(self) -> None:
        """End it at once and remove it with its volumes; nothing happens when there is none."""
        if hasattr(self, "line"):
            self.line.close()
        if self.id:
            with engine_errors("remove a container"):
                remove_container(self._api, self.id)


def remove_container(api: Any, container: str) -> bool:
    """End and remove a container with its volumes; False when it was gone already."""
    try:
        api.remove_container(container, v=True, force=True)
    except docker.errors.APIError as error:
        if error.status_code not in _GONE:
            raise
        return False
    return True


def remove_labelled(api: Any, job: str, warn: Callable[[str], None]) -> list[str]:
    """Remove all containers and networks of a job; what they were. What resists is said, and does not stop the rest."""
    removed = []
    label = {"label": [f"{LABEL}=1", f"{JOB}={job}"]}
    for found in api.containers(all=True, filters=label):
        name = (found.get("Names") or [found["Id"][:12]])[0].lstrip("/")
        try:
            if remove_container(api, found["Id"]):
                removed.append(f"container {name}")
        except docker.errors.APIError as error:
            warn(f"container {name} cannot be removed: {error.explanation or error}")
    for found in api.networks(filters=label):
        try:
            api.remove_network(found["Id"])
            removed.append(f"network {found['Name']}")
        except docker.errors.APIError as error:
            if error.status_code not in _GONE:
                warn(f"network {found['Name']} cannot be removed: {error.explanation or error}")
    return removed
