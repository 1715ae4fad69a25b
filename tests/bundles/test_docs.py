"""docs/bundles.md: its commands work, its excerpt of eval.yaml is valid, its rules and members are the real ones."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from harbor_tasks.bundles import BundleInfo
from harbor_tasks.cli import answer
from harbor_tasks.evalspec.schema import Bundle

from .kit import members_of


@pytest.fixture
def page(repo_root: Path) -> str:
    return (repo_root / "docs/bundles.md").read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


def test_the_commands_work(
    page: str, repo_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "examples").symlink_to(repo_root / "examples")
    monkeypatch.chdir(tmp_path)
    for line in "".join(blocks(page, "sh")).splitlines():
        name, *arguments = shlex.split(line)
        assert name == "harbor-pack"
        assert answer(arguments) == 0, capsys.readouterr().err
    packed, verified = re.findall(r"sha256:[0-9a-f]{64}", capsys.readouterr().out)
    assert packed == verified


def test_the_excerpt_is_valid(page: str) -> None:
    (text,) = blocks(page, "yaml")
    assert Bundle.model_validate(yaml.safe_load(text)["bundle"]).allow_secrets[0].rule == "secret-keyword"


def test_the_members_are_named(page: str, packed: BundleInfo) -> None:
    for name, _content in members_of(packed.file):
        assert f"`{name}`" in page or name.startswith("sha256/")
