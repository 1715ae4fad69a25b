"""What tests need besides Python, and what happens where it is missing.

On a user's machine a test that needs an engine, Harbor or another interpreter is left out, and one line at the end says
how many were, why, and how to get it. Where ``CI`` is set nothing is left out: there a skip, whatever its reason, is a
failure.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Generator
from functools import cache
from pathlib import Path

import pytest

from harbor_tasks.agents.claude_code import PROGRAM as CLAUDE
from harbor_tasks.agents.codex import PROGRAM as CODEX
from harbor_tasks.agents.programs import Program
from harbor_tasks.output import documents

ROOT = Path(__file__).resolve().parents[1]
BASE_IMAGE = "harbor-pack-base:bookworm"


def in_ci() -> bool:
    """Is this a run that must leave nothing out?"""
    return os.environ.get("CI", "").lower() not in {"", "0", "false"}


def answer(*command: str | Path) -> str | None:
    """The first line that a command prints; None if it is missing, fails or hangs."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.partition("\n")[0]


@cache
def no_engine() -> str | None:
    """Why tests with the marker `engine` cannot run here."""
    if answer("docker", "version", "--format", "{{.Server.Version}}"):
        return None
    return "no Docker engine answers; docker/engine.sh start"


@cache
def no_base_image() -> str | None:
    """Why tests that start containers cannot run here."""
    if no_engine() or answer("docker", "image", "inspect", "--format", "{{.Id}}", BASE_IMAGE):
        return no_engine()
    return f"no image {BASE_IMAGE}; docker/base-image.sh"


@cache
def find_harbor() -> str | None:
    """The Harbor command: the one of docker/harbor.sh, else the one on PATH."""
    own = answer("sh", ROOT / "docker" / "harbor.sh", "--path") or ""
    return shutil.which(own) or shutil.which("harbor")


@cache
def no_harbor() -> str | None:
    """Why tests with the marker `harbor` cannot run here."""
    if no_base_image():
        return no_base_image()
    if not answer("docker", "compose", "version"):
        return "docker has no compose plug-in; docker/plugins.sh"
    return None if find_harbor() else "Harbor is not installed; docker/harbor.sh"


@cache
def other_pythons() -> tuple[Path, ...]:
    """The interpreters from 3.8 on of this machine, one a version, oldest first: those on PATH and of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    names: list[str | Path] = [f"python3.{minor}" for minor in range(8, 20)]
    versions: dict[tuple[int, ...], Path] = {}
    for name in [sys.executable, *names, *sorted(pyenv.glob("3.*/bin/python"))]:
        # A name on PATH may be a shim, slow or for an interpreter that is not there: ask for the real one.
        said = answer(name, "-I", "-c", "import sys; print('%d.%d' % sys.version_info[:2], sys.executable)")
        number, _, executable = (said or "").partition(" ")
        if executable and (version := tuple(map(int, number.split(".")))) >= (3, 8):
            versions.setdefault(version, Path(executable))
    return tuple(path for _, path in sorted(versions.items()))


def no_pythons() -> str | None:
    """Why tests with the marker `pythons` cannot run here."""
    return None if len(other_pythons()) > 1 else "no other Python (3.8 or newer) than this one; install one, or pyenv"


@cache
def find_agent(program: Program) -> str | None:
    """An agent's program in the version of images: what docker/agents.sh fetched, else the one on PATH."""
    own = answer("sh", ROOT / "docker" / "agents.sh", "--path") or ""
    for found in (shutil.which(program.name, path=own), shutil.which(program.name)):
        if found and program.pinned_version() in (answer(found, "--version") or "").split():
            return found
    return None


def no_agent(program: Program) -> str | None:
    """Why tests with that program cannot run here."""
    missing = f"no {program.name} of the runtime image's version; docker/agents.sh"
    return None if find_agent(program) else missing


def agent_folder(program: Program) -> Path:
    """The folder that holds the program itself; the test is left out where there is none."""
    if why := no_agent(program):
        pytest.skip(why)
    return Path(find_agent(program) or program.name).parent


def no_registry() -> str | None:
    """Why tests with the marker `registry` cannot run here."""
    for program, package in (("docker-registry", "docker-registry"), ("openssl", "openssl")):
        if shutil.which(program) is None:
            return f"no {program}; apt-get install {package}"
    return None


NEEDS: dict[str, Callable[[], str | None]] = {
    "claude": lambda: no_agent(CLAUDE), "codex": lambda: no_agent(CODEX), "engine": no_engine, "harbor": no_harbor,
    "pythons": no_pythons, "registry": no_registry,
}  # fmt: skip


def pytest_configure() -> None:
    """A job in the background ignores Ctrl-C, and so would all that tests start: they could not be interrupted."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def a_command_of_its_own() -> None:
    """Each test is a process of its own to `--json`, which prints one document in each."""
    documents.clear()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out a test whose marker names what is not here."""
    for marker in item.iter_markers():
        why = NEEDS[marker.name]() if marker.name in NEEDS else None
        if why:
            pytest.skip(why)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a skipped test is a failed one."""
    report = yield
    if in_ci() and report.skipped and not hasattr(report, "wasxfail"):
        fail(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """In CI a skipped module is a failed one."""
    report = yield
    if in_ci() and report.skipped:
        fail(report)
    return report


def fail(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip into a failure that gives its reason."""
    report.outcome = "failed"
    report.longrepr = f"nothing may be left out where CI is set: {skip_reason(report)}"


def skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """The reason given to a skip."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    return str(report.longrepr)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One counted line for each thing that tests were left out for."""
    reasons = Counter(skip_reason(report) for report in terminalreporter.stats.get("skipped", []))
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"left out: {count} {'test' if count == 1 else 'tests'} ({reason})", yellow=True)


@pytest.fixture(scope="session")
def repo_root() -> Path:
    """The checkout's top folder."""
    return ROOT


@pytest.fixture(scope="session")
def engine() -> str:
    """The docker command, with an engine that answers."""
    if why := no_engine():
        pytest.skip(why)
    return shutil.which("docker") or "docker"


@pytest.fixture(scope="session")
def base_image() -> str:
    """An image with Python, PyYAML, git and sudo that containers can be started from; needs no registry."""
    if why := no_base_image():
        pytest.skip(why)
    return BASE_IMAGE


@pytest.fixture(scope="session")
def harbor_bin() -> Path:
    """Harbor's command, on a machine where it can run tasks in containers."""
    if why := no_harbor():
        pytest.skip(why)
    return Path(find_harbor() or "harbor")


@pytest.fixture(scope="session")
def claude_bin() -> Path:
    """The folder that holds Claude Code, the program itself, as `claude`."""
    return agent_folder(CLAUDE)


@pytest.fixture(scope="session")
def codex_bin() -> Path:
    """The folder that holds Codex, the program itself, as `codex`."""
    return agent_folder(CODEX)


@pytest.fixture(scope="session")
def pythons() -> tuple[Path, ...]:
    """Every Python from 3.8 on that this machine has, this one included."""
    if why := no_pythons():
        pytest.skip(why)
    return other_pythons()


@pytest.fixture(scope="session")
def tracked_names() -> list[str]:
    """What git tracks or would add, relative, without what is deleted in the work tree: what a user gets by a clone."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
    return sorted({name for name in names if name and (ROOT / name).is_file()})


@pytest.fixture(scope="session")
def checkout(tracked_names: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of those files in another folder."""
    copy = tmp_path_factory.mktemp("clone") / "harbor-pack"
    for name in tracked_names:
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target, follow_symlinks=False)
    return copy
