"""What `harbor-pack doctor` finds on this machine and on a bare one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harbor_tasks.agents import claude_code, codex
from harbor_tasks.doctor import BASE_IMAGE, Finding, diagnose
from harbor_tasks.environments.harbor_command import find_harbor, how_to_get
from harbor_tasks.errors import MachineError


def found() -> dict[str, Finding]:
    return {finding.name: finding for finding in diagnose()}


def test_what_runs_this_test_is_found_with_its_version() -> None:
    findings = found()
    assert findings["python"].ok
    assert sys.executable in findings["python"].detail
    assert findings["git"].ok
    assert "git version" in findings["git"].detail


def test_on_a_bare_machine_everything_else_is_missing_and_each_line_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HARBOR_PACK_CACHE", str(tmp_path))
    findings = found()
    assert [name for name, finding in findings.items() if finding.ok] == ["python"]
    assert all(finding.how and "\n" not in finding.detail + finding.how for finding in findings.values())
    assert "engine.sh start" in findings["docker engine"].how


def test_an_engine_that_does_not_answer_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2\nexit 1\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    findings = found()
    assert not findings["docker engine"].ok
    assert "Cannot connect" in findings["docker engine"].detail


@pytest.mark.parametrize(
    ("version", "ok"), [("0.26.3", True), ("0.25.9", False), ("0.27.0", False), ("nonsense", False)]
)
def test_harbor_counts_only_in_the_range_that_the_tasks_are_tested_with(
    version: str, ok: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    harbor = tmp_path / "harbor"
    harbor.write_text(f"#!/bin/sh\necho {version}\n")
    harbor.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert found()["harbor"].ok is ok


def test_its_image_and_range_are_those_of_the_helpers(repo_root: Path) -> None:
    assert f"image={BASE_IMAGE.replace('bookworm', '$suite')}" in (repo_root / "docker" / "base-image.sh").read_text()
    assert "'harbor>=0.26,<0.27'" in how_to_get()
    assert "requirement='harbor>=0.26,<0.27'" in (repo_root / "docker" / "harbor.sh").read_text()


# ---- what doctor finds is what the commands start ----


AGENTS = {"claude": claude_code.PROGRAM, "codex": codex.PROGRAM}


def program(file: Path, says: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\necho {says}\n")
    file.chmod(0o755)
    return file


def started(name: str) -> Path:
    """The program that `run` would start."""
    return Path(AGENTS[name].find(os.environ)) if name in AGENTS else find_harbor(None, os.environ).path


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without the programs, and with an empty cache."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("HARBOR_PACK_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "helper", "says"),
    [("harbor", "harbor.sh", "0.26.3"), ("claude", "agents.sh", "2.1.280"), ("codex", "agents.sh", "0.171.0")],
)
def test_what_a_helper_installed_is_found_and_started_without_being_on_path(
    name: str, helper: str, says: str, bare: Path, repo_root: Path
) -> None:
    told = subprocess.run(
        ["sh", repo_root / "docker" / helper, "--path"], capture_output=True, text=True, check=True
    ).stdout.strip()
    own = program(Path(told) if name == "harbor" else Path(told, name), says)
    assert found()[name].detail.startswith(f"{says} ({own})")
    assert started(name) == own
    users = program(bare / "bin" / name, says)
    assert str(users) in found()[name].detail
    assert started(name) == users


@pytest.mark.parametrize("name", ["harbor", *AGENTS])
def test_where_it_is_missing_both_say_the_same_to_do(name: str, bare: Path) -> None:
    finding = found()[name]
    assert not finding.ok
    assert finding.how
    with pytest.raises(MachineError, match=re.escape(finding.how)) as error:
        started(name)
    assert f"on PATH, nor in {bare}/cache" in str(error.value)


def test_an_agent_of_another_version_is_said_with_the_tested_one(bare: Path) -> None:
    tested = {name: one.pinned_version() for name, one in AGENTS.items()}
    program(bare / "bin/claude", "9.0.0")
    program(bare / "bin/codex", "0.100.0")
    findings = found()
    assert findings["claude"].ok
    assert findings["claude"].detail.endswith(f", tested with {tested['claude']}")
    assert not findings["codex"].ok
    assert findings["codex"].detail.endswith(f", too old; tested is {tested['codex']}")
