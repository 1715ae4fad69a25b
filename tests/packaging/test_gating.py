"""What tests/conftest.py does with tests that this machine cannot run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import pytest

@pytest.mark.engine
def test_that_needs_an_engine() -> None:
    pass

@pytest.mark.engine
def test_that_needs_one_too() -> None:
    pass

def test_that_needs_the_image(base_image: str) -> None:
    pass

def test_that_gives_up() -> None:
    pytest.skip("not today")

def test_that_runs() -> None:
    pass

@pytest.mark.xfail(reason="a known fault")
def test_that_is_expected_to_fail() -> None:
    assert False
"""
SKIPPED_MODULE = "import pytest\npytest.skip('the whole module', allow_module_level=True)\n"


@pytest.fixture
def project(tmp_path: Path, repo_root: Path) -> Path:
    """A project of its own with our conftest.py and tests that need an engine."""
    (tmp_path / "tests").mkdir()
    shutil.copy(repo_root / "tests" / "conftest.py", tmp_path / "tests")
    shutil.copy(repo_root / "pyproject.toml", tmp_path)
    (tmp_path / "tests" / "test_some.py").write_text(TESTS)
    return tmp_path


def run_without_engine(project: Path, ci: str) -> subprocess.CompletedProcess[str]:
    """Run the project's tests where no engine answers."""
    env = os.environ | {"CI": ci, "DOCKER_HOST": f"unix://{project}/no-engine.sock"}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests"]
    return subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, check=False)


def test_on_a_users_machine_they_are_left_out_and_counted(project: Path) -> None:
    done = run_without_engine(project, ci="")
    assert done.returncode == 0, done.stdout
    assert "left out: 3 tests (no Docker engine answers; docker/engine.sh start)" in done.stdout
    assert "left out: 1 test (not today)" in done.stdout
    assert "1 passed, 4 skipped, 1 xfailed" in done.stdout


def test_in_ci_each_of_them_fails_with_the_reason(project: Path) -> None:
    done = run_without_engine(project, ci="true")
    assert done.returncode == 1
    assert "4 failed, 1 passed, 1 xfailed" in done.stdout or "1 failed, 1 passed, 1 xfailed, 3 errors" in done.stdout
    assert done.stdout.count("may be left out where CI is set: no Docker engine answers") >= 3
    assert "may be left out where CI is set: not today" in done.stdout


def test_in_ci_a_module_that_skips_itself_fails(project: Path) -> None:
    (project / "tests" / "test_none.py").write_text(SKIPPED_MODULE)
    assert run_without_engine(project, ci="").returncode == 0
    done = run_without_engine(project, ci="1")
    assert done.returncode != 0
    assert "the whole module" in done.stdout
