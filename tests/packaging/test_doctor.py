"""What `harbor-pack doctor` finds on this machine and on a bare one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harbor_tasks.doctor import BASE_IMAGE, Finding, diagnose


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
    assert "requirement='harbor>=0.26,<0.27'" in (repo_root / "docker" / "harbor.sh").read_text()
