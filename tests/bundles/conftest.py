"""What the tests of bundles share: a small build, its bundle, and the parts to make a broken one of."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harbor_tasks.bundles import BundleInfo, pack
from harbor_tasks.tasks.build import build

from .kit import IMAGE, Forge, members_of, write_project


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tasks of that eval."""
    root = write_project(tmp_path_factory.mktemp("project"))
    return build(root, root / "out").out


@pytest.fixture(scope="module")
def packed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> BundleInfo:
    """Their bundle."""
    return pack(built, tmp_path_factory.mktemp("packed") / "shop.hpb", images=[IMAGE], environ={})


@pytest.fixture
def tasks(built: Path, tmp_path: Path) -> Path:
    """A copy of the tasks that a test may change."""
    return Path(shutil.copytree(built, tmp_path / "tasks"))


@pytest.fixture
def forge(packed: BundleInfo) -> Forge:
    """The bundle's members, to be changed."""
    return Forge(members_of(packed.file))
