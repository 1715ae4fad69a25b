"""What a trial's container can reach: everything, or nothing, and the proof of it."""

from __future__ import annotations

from harbor_tasks.environments.base import SandboxError
from harbor_tasks.environments.docker_line import Line
from harbor_tasks.errors import MachineError
from harbor_tasks.tasks.manifest import BuildManifest

_LOOK = """
import socket
for address in (("1.1.1.1", 443), ("1.1.1.1", 53), ("2606:4700:4700::1111", 443), ("169.254.169.254", 80)):
    try:
        socket.create_connection(address, 2).close()
        print("a connection to %s, port %d" % address)
    except OSError:
        pass
try:
    socket.getaddrinfo("example.com", 443)
    print("the name example.com")
except OSError:
    pass
for name in sorted({line.split()[0] for line in open("/proc/net/route").read().splitlines()[1:]}):
    print("a route by", name)
"""


def job_network(manifest: BuildManifest) -> str:
    """The network of a job's containers, by the name that the engine knows."""
    wanted = manifest.sandbox.network
    if wanted == "model":
        raise MachineError("sandbox.network: model is not held by --env docker yet; use none, public, or --env harbor")
    return "none" if wanted == "none" else "bridge"


def check_closed(line: Line, python: str, user: str) -> None:
    """Before the agent starts: nothing can be reached from inside, not even a name; SandboxError says what can."""
    found = bytearray()
    line.run((python, "-I", "-S", "-c", _LOOK), out=found.extend, err=found.extend, user=user, timeout=60)
    if found:
        said = "; ".join(found.decode("utf-8", "replace").splitlines()[-3:])
        raise SandboxError(f"sandbox.network: none, but from inside there is {said}")
