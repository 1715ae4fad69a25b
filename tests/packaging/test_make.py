"""The two commands of the README and the lines that `make` says on a machine that lacks something."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest


def make(where: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run make as a user would: no variables of the make that runs these tests, no key, no engine."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MAKE", "MFLAGS", "ANTHROPIC_", "OPENAI_")) and name != "CI"
    }
    env = {"DOCKER_HOST": f"unix://{where}/none"} | env
    return subprocess.run(
        ["make", *arguments],
        cwd=where,
        env=inherited | env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def demo(checkout: Path) -> subprocess.CompletedProcess[str]:
    """`make demo` in a fresh clone."""
    return make(checkout, "demo")


def test_demo_needs_nothing_but_python_and_make(demo: subprocess.CompletedProcess[str], checkout: Path) -> None:
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert (checkout / ".venv" / "bin" / "harbor-pack").is_file()
    assert "making .venv with" in demo.stdout


def test_demo_prints_what_the_readme_shows(demo: subprocess.CompletedProcess[str], checkout: Path) -> None:
    shown = re.search(r"^```text\n(.*?)^```", (checkout / "README.md").read_text(), re.M | re.S)
    assert shown
    printed = [line.rstrip() for line in demo.stdout.splitlines()]
    assert [line for line in shown[1].splitlines() if line != "..." and line not in printed] == []


@pytest.mark.usefixtures("demo")
def test_what_is_installed_is_not_installed_again(checkout: Path) -> None:
    again = make(checkout, "-n", "demo")
    assert "pip" not in again.stdout
    assert "harbor_tasks.cli run" in again.stdout


@pytest.mark.usefixtures("demo")
def test_a_venv_that_came_along_from_another_folder_is_made_again(checkout: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    (copy / ".venv").mkdir(parents=True)
    for name in ["Makefile", "pyproject.toml"]:
        (copy / name).write_bytes((checkout / name).read_bytes())
    for name in ["bin", "checkout", "run.stamp"]:
        (copy / ".venv" / name).symlink_to(checkout / ".venv" / name)
    assert "-m venv .venv" in make(copy, "-n", "demo").stdout
    (copy / ".venv" / "checkout").unlink()
    (copy / ".venv" / "checkout").write_text(f"{copy.resolve()}\n")
    assert "-m venv .venv" not in make(copy, "-n", "demo").stdout


def test_test_runs_lint_types_and_every_test(repo_root: Path) -> None:
    planned = make(repo_root, "-n", "test").stdout
    for step in ["-m ruff check .", "-m ruff format --check .", "-m mypy", "-m pytest"]:
        assert step in planned
    assert "\nstep make test\n" in (repo_root / ".ci" / "run").read_text()


@pytest.mark.parametrize("python", ["no-such-python", "old-python", "python-without-venv"])
def test_a_machine_without_a_suitable_python_gets_one_line(repo_root: Path, tmp_path: Path, python: str) -> None:
    (tmp_path / "Makefile").write_bytes((repo_root / "Makefile").read_bytes())
    (tmp_path / "pyproject.toml").touch()
    if python != "no-such-python":
        (tmp_path / python).write_text("#!/bin/sh\necho 'no module named venv' >&2\nexit 1\n")
        (tmp_path / python).chmod(0o755)
    done = make(tmp_path, f"PYTHON={python}", "test", PATH=f"{tmp_path}:/usr/bin:/bin")
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "no Python 3.11 or newer with its venv module" in done.stderr
    assert "apt-get install python3-venv" in done.stderr


def test_help_names_every_target(repo_root: Path) -> None:
    listed = make(repo_root, "help").stdout
    for target in ["demo", "test", "lint", "types", "bench", "clean", "help"]:
        assert f"make {target} " in listed
