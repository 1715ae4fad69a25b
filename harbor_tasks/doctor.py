"""What this machine has of what harbor-pack's commands need, and how to get the rest."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from harbor_tasks.errors import display_path
from harbor_tasks.resources import resource

PYTHON = (3, 11)
"""The oldest Python that runs this package (pyproject.toml, ``requires-python``)."""

HARBOR = ((0, 26), (0, 27))
"""The versions of Harbor that the tasks are tested with: from the first up to, not including, the second."""

BASE_IMAGE = "harbor-pack-base:bookworm"
"""What docker/base-image.sh makes."""

_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a command needs: is it here (``ok``), what was found, and how to get it if it is not."""

    name: str
    ok: bool
    detail: str
    how: str = ""


def diagnose() -> list[Finding]:
    """All findings, in the order in which a new user needs them; takes a second or two, and changes nothing."""
    looks: list[Callable[[], Finding]] = [
        _python,
        partial(_program, "git", "for tasks that use it", "install git (Debian: apt-get install git)"),
        partial(_program, "make", "to work on harbor-pack itself", "install make (Debian: apt-get install make)"),
        partial(
            _program,
            "docker",
            "to run tasks in containers",
            "install Docker (Debian: apt-get install docker.io iptables)",
        ),
        _engine,
        _compose,
        _base_image,
        _harbor,
        partial(
            _program, "node", "for claude and codex", "install Node.js 20 or newer with this system's package manager"
        ),
        partial(
            _program,
            "claude",
            "for the agent claude-code on this machine",
            f"{_helper('agents.sh')}, and put what it prints on PATH",
        ),
        partial(_program, "codex", "for the agent codex", "npm install -g @openai/codex"),
    ]
    with ThreadPoolExecutor(len(looks)) as pool:
        return list(pool.map(lambda look: look(), looks))


def _python() -> Finding:
    wanted = ".".join(map(str, PYTHON))
    ok = sys.version_info[:2] >= PYTHON
    return Finding("python", ok, f"{platform.python_version()} ({sys.executable})", f"install Python {wanted} or newer")


def _engine() -> Finding:
    how = f"start Docker, or on a machine without a service manager: {_helper('engine.sh')} start"
    if shutil.which("docker") is None:
        return Finding("docker engine", False, "no docker command to ask it with", how)
    code, out = _ask(["docker", "version", "--format", "{{.Server.Version}}"])
    return Finding("docker engine", code == 0, out if code == 0 else f"does not answer: {out}", how)


def _compose() -> Finding:
    how = f"install Docker's compose plug-in (Debian: {_helper('plugins.sh')})"
    if shutil.which("docker") is None:
        return Finding("docker compose", False, "no docker command", how)
    code, out = _ask(["docker", "compose", "version", "--short"])
    return Finding("docker compose", code == 0, out if code == 0 else "no such plug-in", how)


def _base_image() -> Finding:
    how = f"where no registry can be reached: {_helper('base-image.sh')}"
    code, _ = _ask(["docker", "image", "inspect", "--format", "{{.Id}}", BASE_IMAGE])
    return Finding("base image", code == 0, BASE_IMAGE if code == 0 else f"no {BASE_IMAGE}", how)


def _harbor() -> Finding:
    low, high = (".".join(map(str, version)) for version in HARBOR)
    how = f"pip install 'harbor>={low},<{high}' with Python 3.12 or newer, or {_helper('harbor.sh')}"
    # The helper's own environment is not on PATH; the helper knows where it is.
    _, own = _ask(["sh", str(resource("docker", "harbor.sh")), "--path"])
    found = shutil.which("harbor") or shutil.which(own)
    if found is None:
        return Finding("harbor", False, "not found", how)
    code, out = _ask([found, "--version"])
    numbers = re.search(r"\d+(?:\.\d+)+", out)
    if code != 0 or numbers is None:
        return Finding("harbor", False, f"{found} does not run: {out}", how)
    version = tuple(map(int, numbers[0].split(".")))
    return Finding("harbor", HARBOR[0] <= version < HARBOR[1], f"{numbers[0]} ({found})", how)


def _program(name: str, use: str, how: str) -> Finding:
    """A program on PATH is there if it runs and names its version."""
    if shutil.which(name) is None:
        return Finding(name, False, f"not found ({use})", how)
    code, out = _ask([name, "--version"])
    return Finding(name, code == 0, out if code == 0 else f"does not run: {out}", how)


def _ask(command: Sequence[str]) -> tuple[int, str]:
    """Exit code and first line of what a command says; a command that is missing or hangs has code 127 or 124."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 124, f"no answer in {_SECONDS:.0f} s"
    except OSError as error:
        return 127, str(error)
    lines = (done.stdout.strip() or done.stderr.strip()).splitlines()
    return done.returncode, lines[0] if lines else f"exit code {done.returncode}"


def _helper(name: str) -> str:
    """A helper of ``docker/`` as the user would call it from here."""
    return f"sh {display_path(resource('docker', name))}"
