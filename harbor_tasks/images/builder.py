"""Builds one image from an explicit context: by the engine's own builder, or by `docker buildx` where it must."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from harbor_tasks.errors import MachineError
from harbor_tasks.images.context import archive
from harbor_tasks.images.output import BuildFailedError, Lines, OnLine, read_answer
from harbor_tasks.tasks.plan import TaskFile

if TYPE_CHECKING:
    import docker

SILENCE_SECONDS = 3600
"""How long a build may say nothing: a step that compiles or downloads is silent for long."""
_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "no_proxy", "all_proxy")

OnEvent = Callable[[str], None]
"""Gets one line for each thing that is done."""


class Engine(Protocol):
    """A container engine, as far as images need it."""

    @property
    def client(self) -> docker.DockerClient:
        """The SDK's client."""

    @property
    def environ(self) -> dict[str, str]:
        """The environment in which the `docker` command speaks to this same engine."""


@dataclass(frozen=True)
class Recipe:
    """What an image is built from: the context, the name of the Dockerfile in it, arguments, labels, the new tag."""

    tag: str
    files: tuple[TaskFile, ...]
    dockerfile: str = "Dockerfile"
    args: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def engine_errors(doing: str) -> Iterator[None]:
    """An engine that refuses or goes away is a MachineError that says what was tried."""
    from docker.errors import DockerException

    try:
        yield
    except (DockerException, OSError) as error:
        said = getattr(error, "explanation", None) or error
        raise MachineError(f"the container engine cannot {doing}: {' '.join(str(said).split())[:400]}") from None


def labels_of(found: Mapping[str, Any] | None) -> dict[str, str]:
    """The labels of an inspected image."""
    return {} if found is None else dict((found.get("Config") or {}).get("Labels") or {})


def inspect(engine: Engine, reference: str) -> dict[str, Any] | None:
    """What the engine knows of an image, None when it has none of that name."""
    from docker.errors import NotFound

    with engine_errors(f"look for the image {reference}"):
        found: dict[str, Any] | None = None
        with suppress(NotFound):
            found = engine.client.api.inspect_image(reference)  # type: ignore[no-untyped-call]
        return found


def image_id(engine: Engine, reference: str) -> str:
    """The id of an image that was just built."""
    found = inspect(engine, reference)
    if found is None:
        raise MachineError(f"the container engine says that it built {reference}, but does not have it")
    return str(found["Id"])


def build(engine: Engine, recipe: Recipe, on_line: OnLine | None = None) -> str:
    """Build with the engine's own builder; the id of the image. BuildFailedError when a step of it fails.

    The request is made here and not by the SDK's `build`, which asks all credential helpers first: every image that a
    Dockerfile starts from is here already.
    """
    api = engine.client.api
    parameters = {
        "t": recipe.tag, "dockerfile": recipe.dockerfile, "rm": "1", "forcerm": "1",
        "buildargs": json.dumps(proxies() | dict(recipe.args)), "labels": json.dumps(dict(recipe.labels)),
    }  # fmt: skip
    headers = {"Content-Type": "application/x-tar", "X-Registry-Config": "e30="}
    url = f"{api.base_url}/v{api.api_version}/build"
    with archive(recipe.files) as context, engine_errors(f"build {recipe.tag}"):
        response = api.post(
            url, data=context, params=parameters, headers=headers, stream=True, timeout=(60, SILENCE_SECONDS)
        )
        with closing(response):
            if not response.ok:
                raise BuildFailedError(refusal(response.text))
            read_answer(response.iter_content(None), on_line)
    return image_id(engine, recipe.tag)


def refusal(text: str) -> str:
    """What an engine says in an answer that is an error."""
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text


def proxies() -> dict[str, str]:
    """The proxies that Docker's configuration names for builds; the engine keeps them out of the image."""
    from docker.utils.config import load_general_config

    found = load_general_config().get("proxies")
    default = found.get("default") if isinstance(found, dict) else None
    if not isinstance(default, dict):
        return {}
    named = {name: default.get(name.partition("_")[0] + "Proxy") for name in _PROXIES}
    return {key: str(value) for name, value in named.items() if value for key in (name, name.upper())}


def has_buildx(engine: Engine) -> bool:
    """Whether the `docker` command and its buildx plug-in are here."""
    if shutil.which("docker") is None:
        return False
    command = ["docker", "buildx", "version"]
    try:
        done = subprocess.run(command, env=engine.environ, capture_output=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def build_with_buildx(engine: Engine, recipe: Recipe, on_line: OnLine | None = None) -> str:
    """Build with `docker buildx build`; the id of the image. BuildFailedError when a step of it fails."""
    command = ["docker", "buildx", "build", "--load", "--progress", "plain", "--tag", recipe.tag]
    command += ["--file", recipe.dockerfile]
    command += [word for name, value in recipe.labels.items() for word in ("--label", f"{name}={value}")]
    command += [word for name, value in recipe.args.items() for word in ("--build-arg", f"{name}={value}")]
    lines = Lines(on_line)
    with archive(recipe.files) as context:
        context.fileno()  # a process reads from a file, not from memory
        process = subprocess.Popen(
            [*command, "-"], stdin=context, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=engine.environ
        )
        with process:
            try:
                assert process.stdout is not None
                while data := os.read(process.stdout.fileno(), 1 << 16):
                    lines.feed_bytes(data)
            except BaseException:
                process.terminate()
                raise
    lines.close()
    if process.returncode != 0:
        said = next((line for line in reversed(lines.tail) if line.startswith("ERROR")), "")
        raise BuildFailedError(said or f"docker buildx ended with exit code {process.returncode}", lines.tail)
    return image_id(engine, recipe.tag)
