"""docs/shipping.md: its commands work, in their order, as they stand there."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harbor_tasks.resources import resource

from .kit import environ

pytestmark = pytest.mark.registry


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A project with the eval of the page, by a name that no other test has an image of."""
    shutil.copytree(resource("examples") / "starter", tmp_path / "evals/desk")
    (tmp_path / ".git").mkdir()
    path = tmp_path / "evals/desk/eval.yaml"
    path.write_text(path.read_text().replace("name: starter", f"name: desk {secrets.token_hex(4)}", 1))
    return tmp_path


def blocks(repo_root: Path) -> list[str]:
    text = (repo_root / "docs/shipping.md").read_text()
    return re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def run(script: str, folder: Path, registry: str) -> str:
    (folder / "home").mkdir()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = environ(PATH=path, REGISTRY=f"{registry}/docs", HOME=str(folder / "home"))
    done = subprocess.run(
        ["sh", "-eu"], input=script, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_push_and_pull(repo_root: Path, desk: Path, open_registry: str) -> None:
    out = run(blocks(repo_root)[0], desk, open_registry)
    assert out.count("nothing uploaded") == 1
    assert "2 of 2 trials scored, mean reward 1.00" in out


@pytest.mark.engine
def test_with_its_image(
    repo_root: Path, desk: Path, open_registry: str, base_image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARBOR_PACK_BASE", base_image)
    [_, script] = blocks(repo_root)
    try:
        out = run(script, desk, open_registry)
    finally:
        name = re.search(r"^name: desk (\w+)$", (desk / "evals/desk/eval.yaml").read_text(), re.MULTILINE)
        assert name is not None
        found = subprocess.run(
            ["docker", "images", "--quiet", f"harbor-pack/desk-{name[1]}"], capture_output=True, text=True, check=True
        ).stdout.split()
        subprocess.run(["docker", "image", "rm", "--force", *found], capture_output=True, check=True)
    assert out.count("2 of 2 trials scored, mean reward 1.00") == 1
