"""`network: model`: a network without a way out, and HAProxy beside it, which leads to the model and nowhere else.

The endpoint's name stands in the containers' /etc/hosts with the proxy's address, so programs need no setting: they
speak to the endpoint itself, TLS from end to end. The proxy passes on what is for exactly that name (SNI) and port.
"""

from __future__ import annotations

import hashlib
import io
import ipaddress
import os
import re
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from harbor_tasks.environments.docker_container import Access, engine_errors, remove_container
from harbor_tasks.environments.docker_line import close_attached, socket_of
from harbor_tasks.environments.engine import Engine
from harbor_tasks.errors import MachineError
from harbor_tasks.images.bases import find_base
from harbor_tasks.images.builder import Recipe, build, inspect
from harbor_tasks.images.ensure import BASE_VARIABLE
from harbor_tasks.images.output import BuildFailedError
from harbor_tasks.resources import resource
from harbor_tasks.tasks.manifest import BuildManifest
from harbor_tasks.tasks.plan import made
from harbor_tasks.tasks.runtime import DEFAULT_BASE

ANTHROPIC, OPENAI = ("ANTHROPIC_BASE_URL", "https://api.anthropic.com"), ("OPENAI_BASE_URL", "https://api.openai.com")
"""The variable of the caller that names an endpoint, and the endpoint of everybody else."""
STAND_IN = "model.harbor-pack.internal"
"""The name that containers use for an endpoint that has none."""
_CONFIG = "harbor-pack-proxy.cfg"
_NO_DNS = "127.0.0.1"
"""Where no name server listens: the engine's own passes on no question, and says so at once."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


@dataclass(frozen=True)
class Endpoint:
    """Where a model is asked: the name under which containers know it, the host behind that, the port."""

    variable: str
    name: str
    host: str
    port: int
    tls: bool


def endpoints_of(manifest: BuildManifest, caller: Mapping[str, str]) -> tuple[Endpoint, ...]:
    """The endpoints of the agent and of the interceptor; MachineError for one that no proxy could lead to."""
    wanted = {OPENAI} if manifest.runner.type == "codex" else {ANTHROPIC}
    wanted |= {ANTHROPIC} if manifest.handlers else set()
    found = [_endpoint(variable, caller.get(variable) or default) for variable, default in sorted(wanted)]
    for one in found:
        if any(other != one and other.port == one.port and not (one.tls and other.tls) for other in found):
            raise MachineError(f"sandbox.network: model: two endpoints on port {one.port}, and not both speak TLS")
    return tuple(found)


def _endpoint(variable: str, url: str) -> Endpoint:
    parts = urlsplit(url)
    host, tls = (parts.hostname or "").lower(), parts.scheme == "https"
    try:
        port = parts.port or (443 if tls else 80)
        address = ipaddress.ip_address(host) if (host and not _NAME.fullmatch(host)) or host[-1:].isdigit() else None
    except ValueError:
        raise MachineError(f"sandbox.network: model: {variable} names no host that can be reached: {url}") from None
    if parts.scheme not in ("http", "https") or not host or host == "localhost" or (address and address.is_loopback):
        raise MachineError(f"sandbox.network: model: {variable} must name a host that containers can reach, not {url}")
    if address is not None and tls:
        raise MachineError(f"sandbox.network: model: {variable}: https needs a host's name, not its address ({url})")
    return Endpoint(variable, host if address is None else STAND_IN, host, port, tls)


def through_proxy(caller: Mapping[str, str], endpoints: tuple[Endpoint, ...]) -> dict[str, str]:
    """The caller's variables as containers have to see them: an endpoint without a name gets one."""
    found = dict(caller)
    for one in endpoints:
        if one.name != one.host:
            found[one.variable] = urlunsplit(urlsplit(caller[one.variable])._replace(netloc=f"{one.name}:{one.port}"))
    return found


def proxy_config(endpoints: tuple[Endpoint, ...]) -> str:
    """HAProxy's configuration. With TLS the name that the client asks for decides, and another one is refused."""
    lines = [
        "global", "    maxconn 512", "defaults", "    mode tcp", "    timeout connect 15s", "    timeout client 1h",
        "    timeout server 1h", "resolvers engine", "    parse-resolv-conf", "    hold valid 30s",
    ]  # fmt: skip
    for port in sorted({one.port for one in endpoints}):
        lines += [f"frontend port-{port}", f"    bind :{port}"]
        here = [(number, one) for number, one in enumerate(endpoints) if one.port == port]
        if any(one.tls for _, one in here):
            names = " ".join(one.name for _, one in here)
            lines += [
                "    tcp-request inspect-delay 10s", f"    tcp-request content accept if {{ req.ssl_sni -i {names} }}",
                "    tcp-request content reject",
            ]  # fmt: skip
            lines += [f"    use_backend model-{number} if {{ req.ssl_sni -i {one.name} }}" for number, one in here]
        else:
            lines += [f"    default_backend model-{number}" for number, _ in here]
    for number, one in enumerate(endpoints):
        host = f"[{one.host}]" if ":" in one.host else one.host
        named = " resolvers engine resolve-prefer ipv4 init-addr libc,none" if one.name == one.host else ""
        lines += [f"backend model-{number}", f"    server model {host}:{one.port}{named}"]
    return "\n".join(lines) + "\n"


def proxy_image(engine: Engine, say: Callable[[str], None]) -> str:
    """The proxy's image, made when it is not there."""
    base = find_base(engine, os.environ.get(BASE_VARIABLE) or DEFAULT_BASE, say)
    dockerfile = resource("docker", "proxy", "Dockerfile").read_bytes()
    content = hashlib.sha256(f"{base.id}\0".encode() + dockerfile).hexdigest()
    tag = f"harbor-pack/proxy:{content[:16]}"
    found = inspect(engine, tag)
    if found is not None:
        return str(found["Id"])
    say(f"building {tag} (the proxy of network: model)")
    labels = {"harbor-pack": "1", "harbor-pack.kind": "proxy", "harbor-pack.content": content}
    try:
        return build(engine, Recipe(tag, (made("Dockerfile", dockerfile),), args={"BASE": base.id}, labels=labels))
    except BuildFailedError as error:
        said = "; ".join((error.message, *error.tail[-3:]))
        raise MachineError(f"the proxy of network: model cannot be made: {said}") from None


@contextmanager
def model_access(
    engine: Engine, image: str, endpoints: tuple[Endpoint, ...], job: str, labels: Mapping[str, str]
) -> Iterator[Access]:
    """The job's network and its proxy, while trials run. What is left of them is removed with the job's label."""
    api: Any = engine.client.api
    with engine_errors("make the network of a job"):
        # No address for the engine's machine in it: its own services are no model.
        options = {"com.docker.network.bridge.inhibit_ipv4": "true"}
        network = api.create_network(
            f"harbor-pack-{job}", driver="bridge", internal=True, options=options, labels=dict(labels)
        )["Id"]
    with engine_errors("start the proxy of a job"):
        # As its first process it waits for the end of its input: when harbor-pack is gone, so is the proxy.
        serve = f"haproxy -db -f /etc/{_CONFIG} & exec cat"
        limits = api.create_host_config(
            network_mode="bridge", init=False, cap_drop=["ALL"], cap_add=["NET_BIND_SERVICE"], pids_limit=64,
            log_config={"Type": "none"},
        )  # fmt: skip
        proxy = api.create_container(
            image, ["/bin/sh", "-c", serve], entrypoint=[], stdin_open=True, host_config=limits, labels=dict(labels),
            name=f"harbor-pack-{job}-proxy",
        )["Id"]  # fmt: skip
        api.put_archive(proxy, "/etc", _archive(proxy_config(endpoints)))
        api.connect_container_to_network(proxy, network)
        attached = api.attach_socket(proxy, {"stdin": 1, "stream": 1})
        held = socket_of(attached)
        api.start(proxy)
        networks = api.inspect_container(proxy)["NetworkSettings"]["Networks"]
        address = next(found["IPAddress"] for found in networks.values() if found["NetworkID"] == network)
    try:
        ways = tuple((one.name, one.port) for one in endpoints)
        yield Access("model", network, ways, {one.name: address for one in endpoints}, (_NO_DNS,))
    finally:
        close_attached(attached, held)
        with engine_errors("remove the proxy of a job"):
            remove_container(api, proxy)


def _archive(config: str) -> bytes:
    content, target = config.encode(), io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as tar:
        entry = tarfile.TarInfo(_CONFIG)
        entry.size, entry.mode = len(content), 0o644
        tar.addfile(entry, io.BytesIO(content))
    return target.getvalue()
