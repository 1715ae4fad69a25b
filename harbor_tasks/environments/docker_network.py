"""What a trial's container can reach: everything, nothing, or the model endpoint only; and the proof of it."""

from __future__ import annotations

import json

from harbor_tasks.environments.base import SandboxError
from harbor_tasks.environments.docker_container import Access
from harbor_tasks.environments.docker_line import Line

# Prints what can be reached and should not, and what should and cannot. All at once: an address that does not answer
# keeps nobody waiting for the next one.
_LOOK = """
import json, socket, struct, sys, threading
endpoints = json.loads(sys.argv[1])
routes = [line.split() for line in open("/proc/net/route").read().splitlines()[1:]]
gateways = {socket.inet_ntoa(struct.pack("=L", int(route[2], 16))) for route in routes} - {"0.0.0.0"}
far = [("1.1.1.1", 443), ("2606:4700:4700::1111", 443), ("169.254.169.254", 80)]
far += [(gateway, port) for gateway in sorted(gateways) for port in (22, 53, 80, 443, 2375)]
if not endpoints:
    for name in sorted({route[0] for route in routes}):
        print("there is a route by", name)

def connects(address, port):
    try:
        socket.create_connection((address, port), 2).close()
    except OSError:
        return False
    return True

def tried(address, port):
    if connects(address, port):
        print("there is a connection to %s, port %d" % (address, port))

def named(name):
    try:
        socket.getaddrinfo(name, 443)
    except OSError:
        return
    print("there is the name", name)

def wanted(address, port):
    if not any(connects(address, port) for _ in range(5)):
        print("there is no way to the model at %s, port %d" % (address, port))

threads = [threading.Thread(target=tried, args=one) for one in far]
threads += [threading.Thread(target=named, args=("example.com",))]
threads += [threading.Thread(target=wanted, args=one) for one in endpoints]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def close_names(line: Line, access: Access) -> None:
    """Without the engine's name server, which has nobody to ask, a look-up fails at once and not after 20 seconds."""
    if access.kind == "model":
        said = bytearray()
        ended = line.run(("/bin/sh", "-c", ": >/etc/resolv.conf"), out=said.extend, err=said.extend, timeout=30)
        if ended.exit_code:
            raise SandboxError(f"/etc/resolv.conf cannot be emptied: {said.decode('utf-8', 'replace').strip()}")


def check_network(line: Line, access: Access, python: str, user: str) -> None:
    """Before the agent starts: from inside nothing else can be reached, not even a name; SandboxError says what can."""
    if access.kind == "public":
        return
    found = bytearray()
    line.run(
        (python, "-I", "-S", "-c", _LOOK, json.dumps(access.ways)),
        out=found.extend,
        err=found.extend,
        user=user,
        timeout=60,
    )
    if found:
        said = "; ".join(found.decode("utf-8", "replace").splitlines()[-4:])
        raise SandboxError(f"sandbox.network: {access.kind}, but from inside {said}")
