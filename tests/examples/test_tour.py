"""docs/writing-evals.md: its commands work in their order, its excerpts stand in the examples."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from harbor_tasks.resources import resource


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)


def test_the_commands_work_as_a_reader_types_them(repo_root: Path, tmp_path: Path) -> None:
    shutil.copytree(resource("examples"), tmp_path / "examples")
    env = os.environ | {"PYTHONPATH": str(repo_root)}
    lines = [line for text in blocks(repo_root / "docs" / "writing-evals.md", "sh") for line in text.splitlines()]
    commands = [shlex.split(line, comments=True) for line in lines]
    assert [command[:2] for command in commands] == [
        ["harbor-pack", word] for word in ("init", "check", "run", "probe", "build")
    ]
    for _, *arguments in commands:
        done = subprocess.run(
            [sys.executable, "-m", "harbor_tasks.cli", *arguments],
            cwd=tmp_path, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    assert len(list((tmp_path / "tasks").glob("*/task.toml"))) == 2
    assert len(list((tmp_path / "jobs").glob("*/trials/*/verifier/reward.json"))) == 2


def test_the_excerpts_stand_in_the_examples(repo_root: Path) -> None:
    sources = "\n".join(p.read_text(encoding="utf-8") for p in sorted(resource("examples").glob("*/*.yaml")))
    excerpts = blocks(repo_root / "docs" / "writing-evals.md", "yaml")
    assert len(excerpts) == 2
    for excerpt in excerpts:
        assert excerpt in sources
