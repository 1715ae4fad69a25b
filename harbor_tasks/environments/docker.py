"""The environment on a container engine: one container a trial, from the eval's image, sealed by the task's own setup.

The container's first process (interceptor/conductor.py) does what is asked over one line; see docker_line.py. All that
a job makes on the engine bears its label and is removed by it on every way out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from harbor_tasks.environments.base import Job, SandboxError, Stop, Trial, TrialPlan
from harbor_tasks.environments.docker_container import (
    Access,
    Container,
    Recipe,
    engine_errors,
    job_labels,
    remove_labelled,
)
from harbor_tasks.environments.docker_line import LineClosedError, RefusedError
from harbor_tasks.environments.docker_proxy import (
    Endpoint,
    endpoints_of,
    model_access,
    proxy_image,
    through_proxy,
)
from harbor_tasks.environments.docker_trial import DockerSandbox
from harbor_tasks.environments.engine import Engine, find_engine
from harbor_tasks.environments.gateway import gateway_of
from harbor_tasks.environments.trial import Sandbox, TrialRun
from harbor_tasks.environments.variables import MODEL, MODEL_URL, require_variables
from harbor_tasks.errors import MachineError
from harbor_tasks.images import ImageRef, image_for_run
from harbor_tasks.tasks.manifest import BuildManifest

SWEEP_SECONDS = 20.0
"""How long the end of a job waits until the engine has removed everything."""


class DockerEnvironment:
    """Trials of one build in containers."""

    name: str = "docker"

    def __init__(
        self, source: Path, manifest: BuildManifest, caller: Mapping[str, str], host: str | None,
        program: str | None = None,
    ) -> None:  # fmt: skip
        """``host``: the engine's address as the user named it, None to find it as the `docker` command does.

        ``program``: the agent program that the image must hold.
        """
        self._programs = () if program is None else (program,)
        self._scripted: str | None = None
        self._source, self._manifest, self._caller, self._host = source, manifest, dict(caller), host
        self.sealed: bool = manifest.sandbox.sealed
        self._engine: Engine | None = None
        self._info: Mapping[str, Any] = {}
        self._image: ImageRef | None = None
        self._recipe: Recipe | None = None
        self._endpoints: tuple[Endpoint, ...] = ()
        self._proxy_image = ""
        self._making = threading.Lock()
        self._closed = False

    def not_enforced(self) -> tuple[str, ...]:
        """Limits that the engine's kernel lacks, and the seal that the author switched off."""
        sandbox, info = self._manifest.sandbox, self._info
        lines = [] if sandbox.sealed else ["sandbox.sealed: false (the policy lies within the agent's reach)"]
        if sandbox.memory_mb is not None and info.get("MemoryLimit") is False:
            lines.append("sandbox.memory_mb (the engine's kernel has no memory limit)")
        if sandbox.cpus is not None and info.get("CpuCfsQuota") is False:
            lines.append("sandbox.cpus (the engine's kernel has no CPU quota)")
        return tuple(lines)

    def prepare(self) -> None:
        """All variables are set, an engine answers, and it has what the sandbox asks for."""
        require_variables(self._manifest, self._caller)
        if self._manifest.sandbox.network == "model" and self._scripted is None:
            self._endpoints = endpoints_of(self._manifest, self._caller)
        with find_engine(self._host) as engine:
            self._info, cpus = engine.info, self._manifest.sandbox.cpus
        has = self._info.get("NCPU")
        if cpus is not None and isinstance(has, int) and 0 < has < cpus:
            raise MachineError(f"sandbox.cpus: {cpus:g}, but the engine at {engine.endpoint} has {has}")

    def model_host(self) -> str:
        """The address that this machine has in the network of containers."""
        with find_engine(self._host) as engine:
            return gateway_of(engine)

    def use_model(self, url: str) -> None:
        """The way out is to the endpoint, in place of the model's own; hooks have no model to ask."""
        self._scripted = url
        kept = {name: text for name, text in self._caller.items() if name not in MODEL}
        self._caller = {**kept, MODEL_URL[self._manifest.runner.type]: url}
        if self._manifest.sandbox.network == "model":
            self._endpoints = endpoints_of(self._manifest, self._caller)

    def ready(self, say: Callable[[str], None]) -> None:
        """The images are there, made if they have to be."""
        self._engine = find_engine(self._host)
        self._image = image_for_run(
            self._source, self._engine, agents=() if self._as_it_is else self._programs, on_event=_without_steps(say)
        )
        if self._endpoints:
            self._proxy_image = proxy_image(self._engine, say)

    @property
    def _as_it_is(self) -> bool:
        """The author's image is used unchanged: the agent program in it is the author's."""
        return not self._manifest.sandbox.sealed and self._manifest.sandbox.image is not None

    @contextmanager
    def opened(self, job: Job, folder: Path) -> Iterator[None]:
        """While it is open, trials may run; afterwards nothing that bears the job's label is left."""
        assert self._engine is not None
        assert self._image is not None
        labels = job_labels(job.id, folder)
        with engine_errors("remove what an earlier run of the job left"):
            remove_labelled(self._engine.client.api, job.id, _ignore)
        try:
            with self._access(job.id, labels) as access:
                self._recipe = Recipe(self._engine, self._image.id, self._manifest.sandbox, labels, access)
                yield
        finally:
            self._close(job.id)

    @contextmanager
    def _access(self, job: str, labels: Mapping[str, str]) -> Iterator[Access]:
        """What `sandbox.network` lets containers reach."""
        assert self._engine is not None
        if not self._endpoints:
            public = self._manifest.sandbox.network == "public"
            yield Access("public", "bridge") if public else Access("none", "none")
            return
        with model_access(self._engine, self._proxy_image, self._endpoints, job, labels) as access:
            yield access

    def _close(self, job: str) -> None:
        """Nothing new may be made; then everything goes, and stays gone."""
        assert self._engine is not None
        made = self._making.acquire(timeout=SWEEP_SECONDS)
        self._closed = True
        if made:
            self._making.release()
        until, complaints = time.monotonic() + SWEEP_SECONDS, list[str]()
        with engine_errors(f"remove what the job made (harbor-pack clean --job {job} does it later)"):
            api = self._engine.client.api
            while True:
                complaints.clear()
                left = remove_labelled(api, job, complaints.append)
                if not left and not complaints:
                    break
                if time.monotonic() > until:
                    raise MachineError("; ".join(complaints) or "containers of the job come back")
                time.sleep(0.2)
        self._engine.client.close()

    def run(self, plan: TrialPlan, stop: Stop) -> Trial:
        """One trial in a container of its own, which is gone afterwards."""
        assert self._recipe is not None
        assert self._engine is not None
        assert self._image is not None
        versions = {"image": self._image.id, "engine": self._engine.version}
        run = TrialRun(plan, self._manifest, stop, environment=self.name, sealed=self.sealed, versions=versions)
        return run.run(lambda warnings: self._entered(plan, stop, warnings))

    @contextmanager
    def _entered(self, plan: TrialPlan, stop: Stop, warnings: list[str]) -> Iterator[Sandbox]:
        """The trial in its container. What is wrong with container or engine becomes a SandboxError."""
        assert self._recipe is not None
        container = Container(self._recipe, plan.expected.trial)
        try:
            with self._making:
                if self._closed:
                    raise SandboxError("the job has ended")
                container.create()
            caller = through_proxy(self._caller, self._endpoints)
            sandbox = DockerSandbox(container, plan, self._manifest, caller, warnings)
            sandbox.stage(stop)
            yield sandbox
            sandbox.collect()
        except LineClosedError as error:
            said = f": {error}" if str(error) else ""
            raise SandboxError(f"{container.why_ended()}{said}") from error
        except (MachineError, RefusedError) as error:
            raise SandboxError(str(error)) from error
        finally:
            # what cannot be removed now is tried again at the end of the job, which says so
            with suppress(MachineError):
                container.remove()


def _without_steps(say: Callable[[str], None]) -> Callable[[str], None]:
    """Who runs a job wants to know that an image is built, not each line of its Dockerfile."""

    def chosen(line: str) -> None:
        if not line.startswith("Step "):
            say(line)

    return chosen


def _ignore(_text: str) -> None:
    """Said again when it matters."""
