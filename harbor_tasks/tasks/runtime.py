"""The runtime image as data: its files, and the tag of an eval's image, which is a pure function of the plan.

What builds it is in ``harbor_tasks.images``; here is what `build` and `check` need, without an engine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from harbor_tasks.evalspec.schema import Sandbox
from harbor_tasks.resources import resource
from harbor_tasks.tasks.names import image_reference, org_name
from harbor_tasks.tasks.plan import SANDBOX_HOME, TaskFile, made

DEFAULT_BASE = "debian:bookworm-slim"
"""The base of an eval that names none; the same as in docker/Dockerfile."""
AGENTS = ("claude-code", "codex")
"""The agent programs that the runtime image may hold."""
RUNTIME_FILES = {
    "Dockerfile": 0o644,
    "sandbox/bin/git": 0o755,
    "sandbox/build/agents": 0o644,
    "sandbox/build/packages": 0o644,
    "sandbox/build/unprivilege.py": 0o644,
    "sandbox/build/users": 0o644,
    "sandbox/launchers/claude": 0o755,
    "sandbox/launchers/codex": 0o755,
    "sandbox/prefix": 0o755,
    "sandbox/runtime": 0o644,
    "sandbox/serve": 0o755,
}
"""What of ``docker/`` the runtime image is built from, with the modes that it has there."""
SCRIPTS = ("codex_start.py", "mcp_bridge.py")
"""What of ``interceptor/`` lies there too, for a launcher that Harbor starts."""


def runtime_files() -> tuple[TaskFile, ...]:
    """The files of the runtime image's build context, sorted by path."""
    files = [made(path, resource("docker", path).read_bytes(), mode) for path, mode in RUNTIME_FILES.items()]
    files += [made(f"sandbox/{name}", resource("interceptor", name).read_bytes()) for name in SCRIPTS]
    return tuple(sorted(files, key=lambda file: file.path))


def files_digest(files: Iterable[TaskFile]) -> bytes:
    """A hash of files that have their own hashes: paths, modes and contents."""
    lines = (f"{f.path}\0{f.mode:o}\0{f.sha256}\n" for f in files)
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).digest()


def image_tag(eval_name: str, sandbox: Sandbox, layer: Iterable[TaskFile], context: Iterable[TaskFile]) -> str:
    """The reference of an eval's image: the same runtime, base, layer and workspace, the same reference.

    ``context`` are the files beside the author's Dockerfile, if the base is one.
    """
    parts = [
        (sandbox.image or "").encode(), (sandbox.dockerfile or "").rpartition("/")[2].encode(), files_digest(context),
        files_digest(layer), SANDBOX_HOME.encode(), sandbox.workdir.encode(), files_digest(runtime_files()),
    ]  # fmt: skip
    return image_reference(org_name(eval_name), parts)
