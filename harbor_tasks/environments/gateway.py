"""Where on this machine a server listens, so that containers of its engine reach it."""

from __future__ import annotations

import ipaddress
import socket

from harbor_tasks.environments.docker_container import engine_errors
from harbor_tasks.environments.engine import Engine
from harbor_tasks.errors import MachineError


def gateway_of(engine: Engine) -> str:
    """The address that this machine has in the network of containers; MachineError when the engine is elsewhere."""
    with engine_errors("look at the network bridge"):
        found = engine.client.api.inspect_network("bridge")
    for config in (found.get("IPAM") or {}).get("Config") or ():
        address = address_in(str(config.get("Subnet")))
        if address is not None:
            return address
    raise MachineError(
        f"the engine at {engine.endpoint} is not on this machine; its containers could not reach a scripted model"
    )


def address_in(network: str) -> str | None:
    """The address that this machine itself has in an IPv4 network; nothing is sent to find out."""
    try:
        within = ipaddress.IPv4Network(network)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((str(within.broadcast_address - 1), 9))
            address: str = probe.getsockname()[0]
    except (OSError, ValueError):
        return None
    return address if ipaddress.IPv4Address(address) in within else None
