"""Find the container engine as the `docker` command finds it, and say which one was tried.

Order: the ``--host`` option, ``DOCKER_HOST``, ``DOCKER_CONTEXT``, the current context of the Docker configuration, the
default socket. A context that does not exist, or a configuration that cannot be read, is an error, never a silent way
to another machine's engine. The configuration is read here and not by the Docker SDK, which takes the default socket
when it cannot read the file.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from harbor_tasks.errors import MachineError, display_path
from harbor_tasks.resources import resource

if TYPE_CHECKING:
    import docker
    from docker.tls import TLSConfig

DEFAULT_ENDPOINT = "unix:///var/run/docker.sock"
CALL_TIMEOUT = 600
"""Seconds for one request: committing, loading and removing an image answer late."""
CONNECT_TIMEOUT = 15
"""Seconds for the first request: does anybody answer?"""


@dataclass(frozen=True)
class Tls:
    """The certificates of an endpoint: files, and whether the engine's own certificate is verified."""

    ca: Path | None
    cert: Path | None
    key: Path | None
    verify: bool


@dataclass(frozen=True)
class Endpoint:
    """Where an engine is: its address, what named it, and how to speak to it."""

    address: str
    source: str
    """What named the address: ``--host``, ``DOCKER_HOST``, ``context 'lab' (DOCKER_CONTEXT)``, ``default socket``."""
    context: str | None = None
    """The context that named it."""
    tls: Tls | None = None

    def __str__(self) -> str:
        return f"{self.address} (from {self.source})"


@dataclass(frozen=True)
class Engine:
    """An engine that answered; as a context manager it closes its connections."""

    client: docker.DockerClient
    endpoint: Endpoint
    version: str
    info: Mapping[str, Any]

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self.client.close()

    @property
    def environ(self) -> dict[str, str]:
        """The environment in which the `docker` command speaks to this same engine."""
        env = {name: value for name, value in os.environ.items() if name not in {"DOCKER_HOST", "DOCKER_CONTEXT"}}
        if self.endpoint.context is not None:
            return env | {"DOCKER_CONTEXT": self.endpoint.context}
        return env | {"DOCKER_HOST": self.endpoint.address}


def find_endpoint(host: str | None = None) -> Endpoint:
    """The engine's address, found as the `docker` command finds it; MachineError for a context that cannot be used."""
    for address, source in ((host, "--host"), (os.environ.get("DOCKER_HOST"), "DOCKER_HOST")):
        if address:
            return Endpoint(address, source, tls=_tls_of_environment())
    name, source = os.environ.get("DOCKER_CONTEXT"), "DOCKER_CONTEXT"
    if not name:
        name, source = _current_context(), "the current context"
    if name == "default":
        return Endpoint(DEFAULT_ENDPOINT, "the default socket")
    return _of_context(name, f"context {name!r} ({source})")


def config_folder() -> Path:
    """Where the `docker` command keeps its configuration."""
    return Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker")


def docker_config() -> dict[str, Any]:
    """The content of Docker's config.json, empty when there is none; MachineError when it cannot be read."""
    path = config_folder() / "config.json"
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise MachineError(
            f"{path}: cannot be read, so the docker context is not known ({error}); mend it, or name the engine with "
            "--host or DOCKER_HOST"
        ) from None
    if not isinstance(data, dict):
        raise MachineError(f"{path}: must hold a JSON object; mend it, or name the engine with --host or DOCKER_HOST")
    return data


def _current_context() -> str:
    name = docker_config().get("currentContext")
    return name if isinstance(name, str) and name else "default"


def _of_context(name: str, source: str) -> Endpoint:
    folder = config_folder() / "contexts"
    key = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()
    path = folder / "meta" / key / "meta.json"
    try:
        found = json.loads(path.read_bytes())["Endpoints"]["docker"]
        address, skip_verify = found["Host"], bool(found.get("SkipTLSVerify"))
    except FileNotFoundError:
        raise MachineError(
            f"docker {source} does not exist (no {path}); `docker context ls` lists those that do, "
            "`docker context use default` goes back to this machine's own engine"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise MachineError(f"docker {source} cannot be used: {path} names no engine ({error!r})") from None
    if not isinstance(address, str) or not address:
        raise MachineError(f"docker {source} cannot be used: {path} names no engine")
    return Endpoint(address, source, name, _tls_below(folder / "tls" / key / "docker", verify=not skip_verify))


def _tls_of_environment() -> Tls | None:
    """The certificates of ``DOCKER_CERT_PATH`` and ``DOCKER_TLS_VERIFY``, as the `docker` command reads them."""
    verify, folder = bool(os.environ.get("DOCKER_TLS_VERIFY")), os.environ.get("DOCKER_CERT_PATH")
    if not verify and not folder:
        return None
    return _tls_below(Path(folder) if folder else config_folder(), verify=verify) or Tls(None, None, None, verify)


def _tls_below(folder: Path, *, verify: bool) -> Tls | None:
    ca, cert, key = (path if (path := folder / name).is_file() else None for name in ("ca.pem", "cert.pem", "key.pem"))
    return Tls(ca, cert, key, verify) if ca or cert or key else None


def find_engine(host: str | None = None) -> Engine:
    """The engine that the `docker` command would use; MachineError that says what was tried when none answers."""
    import docker
    from docker.errors import DockerException

    endpoint = find_endpoint(host)
    _require_sdk_config()
    client = None
    try:
        _knock(endpoint.address)
        client = docker.DockerClient(
            base_url=endpoint.address, tls=_tls_config(endpoint.tls) or False, timeout=CONNECT_TIMEOUT
        )
        version = client.version()
        info = client.info()
        client.api.timeout = CALL_TIMEOUT
    except (DockerException, OSError, ValueError) as error:
        if client is not None:
            client.close()
        raise MachineError(_nobody(endpoint, error)) from None
    return Engine(client, endpoint, str(version.get("Version", "")), info)


def _require_sdk_config() -> None:
    """MachineError for a configuration that the SDK fails at; it reads it with every client, and asks nobody."""
    from docker.auth import load_config
    from docker.errors import DockerException

    try:
        load_config()
    except (DockerException, ValueError, AttributeError, TypeError) as error:  # other types than it looks for
        raise MachineError(f"{config_folder() / 'config.json'}: the Docker SDK cannot use it ({error})") from None


def _knock(address: str) -> None:
    """OSError or ValueError when nobody listens at a socket; the SDK would leave its own open, or take another one."""
    scheme, _, path = address.partition("://")
    if scheme == "unix":
        if not path:
            raise ValueError("the address names no socket")
        with socket.socket(socket.AF_UNIX) as caller:
            caller.settimeout(CONNECT_TIMEOUT)
            caller.connect(path)


def _tls_config(tls: Tls | None) -> TLSConfig | None:
    from docker.tls import TLSConfig

    if tls is None:
        return None
    own = (str(tls.cert), str(tls.key)) if tls.cert and tls.key else None
    return TLSConfig(client_cert=own, ca_cert=str(tls.ca) if tls.ca else None, verify=tls.verify)


def _nobody(endpoint: Endpoint, error: Exception) -> str:
    """Nobody answered: what was tried, and where an engine might be instead."""
    cause = _cause(error)
    if isinstance(cause, PermissionError):
        hints = ["this user may not use it: become a member of the socket's group, or use a rootless engine"]
    else:
        hints = [f"start it, or one of this machine's own: sh {display_path(resource('docker', 'engine.sh'))} start"]
    podman = _runtime_folder() / "podman" / "podman.sock"
    others = [path for path in _other_sockets() if f"unix://{path}" != endpoint.address]
    hints += [f"there is a socket {path}: DOCKER_HOST=unix://{path} takes it" for path in others]
    if podman not in others and endpoint.address != f"unix://{podman}":
        hints.append(f"rootless Podman would be at unix://{podman} (systemctl --user start podman.socket)")
    said = " ".join(str(cause).split())[:200] or type(cause).__name__
    return f"no container engine answers at {endpoint}: {said}; {'; '.join(hints)}"


def _runtime_folder() -> Path:
    return Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}")


def _other_sockets() -> list[Path]:
    """Sockets that exist here: the default one, a rootless engine's, Podman's."""
    places = [
        Path("/var/run/docker.sock"), _runtime_folder() / "docker.sock", _runtime_folder() / "podman" / "podman.sock",
        Path("/run/podman/podman.sock"),
    ]  # fmt: skip
    found = []
    for path in places:
        try:
            if path.is_socket():
                found.append(path)
        except OSError:  # a folder that this user may not look into
            continue
    return found


def _cause(error: BaseException) -> BaseException:
    """What the system said at the bottom of a chain of errors, if it said something; else the error itself."""
    found, inner = error, error.__cause__ or error.__context__
    while inner is not None:
        if isinstance(inner, OSError) and inner.errno is not None:
            found = inner
        inner = inner.__cause__ or inner.__context__
    return found
