"""The wheel, installed where nothing of the checkout is near, does the demo's work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

SHIPPED = ["templates", "interceptor", "docker", "examples"]


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that `python -m build` makes of a clone."""
    out = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "build", "--wheel", "--outdir", out, checkout], cwd=out)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a new environment that holds the wheel and what it depends on, and nothing else."""
    home = tmp_path_factory.mktemp("installed") / "venv"
    run([sys.executable, "-m", "venv", home], cwd=home.parent)
    run([home / "bin" / "python", "-m", "pip", "install", "-qq", wheel], cwd=home.parent)
    return home / "bin"


def run(command: list[str | Path], cwd: Path) -> str:
    """Run a command far from the checkout; what it prints on standard output."""
    env = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    done = subprocess.run(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_it_holds_every_shipped_file_and_nothing_of_the_tests(wheel: Path, checkout: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in SHIPPED:
        files = [path for path in (checkout / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
        assert files, folder
        missing = {f"harbor_tasks/data/{path.relative_to(checkout)}" for path in files} - names
        assert not missing
    assert not [name for name in names if name.startswith("tests/") or "__pycache__" in name]
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_it_does_the_demos_work_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    command = installed / "harbor-pack"
    run([command, "init", "first"], cwd=tmp_path)
    assert "0 errors" in run([command, "check", "first"], cwd=tmp_path)
    run([command, "build", "first", "-o", "tasks"], cwd=tmp_path)
    job = run([command, "run", "tasks", "--env", "local", "--agent", "replay", "--json"], cwd=tmp_path)
    report = json.loads(job)
    assert (report["scored"], report["mean_reward"], report["denied"]) == (2, 1.0, 1)


def test_it_runs_the_example_of_the_demo(installed: Path, tmp_path: Path) -> None:
    where = "from harbor_tasks.resources import resource; print(resource('examples', 'support-desk'))"
    example = run([installed / "python", "-I", "-c", where], cwd=tmp_path).strip()
    assert str(tmp_path) not in example
    table = run([installed / "harbor-pack", "run", example, "--env", "local", "--agent", "replay"], cwd=tmp_path)
    assert "mcp__desk__process_refund" in table


def test_it_knows_its_version_and_where_its_helpers_are(installed: Path, checkout: Path, tmp_path: Path) -> None:
    version = run([installed / "harbor-pack", "--version"], cwd=tmp_path).split()[-1]
    assert f'version = "{version}"' in (checkout / "pyproject.toml").read_text()
    findings = json.loads(run([installed / "harbor-pack", "doctor", "--json"], cwd=tmp_path))
    how = next(finding["how"] for finding in findings if finding["name"] == "docker engine")
    helper = Path(how.rpartition(": sh ")[2].removesuffix(" start"))
    assert helper.name == "engine.sh"
    assert (tmp_path / helper).is_file()
