"""What this machine has of what harbor-pack's commands need, and how to get the rest."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from harbor_tasks.agents import claude_code, codex
from harbor_tasks.agents.programs import Program
from harbor_tasks.environments.harbor_command import Harbor, harbor_here, how_to_get
from harbor_tasks.errors import MachineError
from harbor_tasks.helpers import call_of

PYTHON = (3, 11)
"""The oldest Python that runs this package (pyproject.toml, ``requires-python``)."""

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
        partial(_agent, claude_code.PROGRAM),
        partial(_agent, codex.PROGRAM),
    ]
    with ThreadPoolExecutor(len(looks)) as pool:
        return list(pool.map(lambda look: look(), looks))


def _python() -> Finding:
    wanted = ".".join(map(str, PYTHON))
    ok = sys.version_info[:2] >= PYTHON
    return Finding("python", ok, f"{platform.python_version()} ({sys.executable})", f"install Python {wanted} or newer")


def _engine() -> Finding:
    how = f"start Docker, or on a machine without a service manager: {call_of('engine.sh')} start"
    if shutil.which("docker") is None:
        return Finding("docker engine", False, "no docker command to ask it with", how)
    code, out = _ask(["docker", "version", "--format", "{{.Server.Version}}"])
    return Finding("docker engine", code == 0, out if code == 0 else f"does not answer: {out}", how)


def _compose() -> Finding:
    how = f"install Docker's compose plug-in (Debian: {call_of('plugins.sh')})"
    if shutil.which("docker") is None:
        return Finding("docker compose", False, "no docker command", how)
    code, out = _ask(["docker", "compose", "version", "--short"])
    return Finding("docker compose", code == 0, out if code == 0 else "no such plug-in", how)


def _base_image() -> Finding:
    how = f"where no registry can be reached: {call_of('base-image.sh')}"
    code, _ = _ask(["docker", "image", "inspect", "--format", "{{.Id}}", BASE_IMAGE])
    return Finding("base image", code == 0, BASE_IMAGE if code == 0 else f"no {BASE_IMAGE}", how)


def _harbor() -> Finding:
    found = harbor_here(os.environ)
    if found is None:
        return Finding("harbor", False, "not found (for --env harbor)", how_to_get())
    code, out = _ask([found, "--version"])
    numbers = re.search(r"\d+(?:\.\d+)+", out)
    if code != 0 or numbers is None:
        return Finding("harbor", False, f"{found} does not run: {out}", how_to_get())
    tested = Harbor(Path(found), numbers[0]).tested
    detail = f"{numbers[0]} ({found})" + ("" if tested else ", which is not tested")
    return Finding("harbor", tested, detail, how_to_get())


def _agent(program: Program) -> Finding:
    """The program of an agent, as `run` looks it up."""
    pinned = program.pinned_version()
    how, found = program.how_to_get(pinned), program.here(os.environ)
    if found is None:
        return Finding(program.name, False, f"not found (for the agent {program.agent} on this machine)", how)
    try:
        version = program.version_of(found)
    except MachineError as error:
        return Finding(program.name, False, str(error).partition(": ")[2], how)
    ok, detail = not program.is_too_old(version), f"{version} ({found})"
    if version != pinned:
        detail += f", {'tested with' if ok else 'too old; tested is'} {pinned}"
    return Finding(program.name, ok, detail, how)


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
