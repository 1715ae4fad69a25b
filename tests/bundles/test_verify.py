"""`verify`: a bundle, a folder that was unpacked, a folder that was built."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.bundles import BundleInfo, pack, unpack, verify
from harbor_tasks.errors import AuthorError


@pytest.fixture
def pulled(packed: BundleInfo, tmp_path: Path) -> Path:
    unpack(packed.file, tmp_path / "pulled")
    return tmp_path / "pulled"


def test_what_is_whole_has_the_digest_of_its_bundle(packed: BundleInfo, pulled: Path) -> None:
    assert verify(packed.file) == packed
    found = verify(pulled, expect=packed.digest)
    assert (found.digest, found.images, found.manifest) == (packed.digest, packed.images, packed.manifest)


def test_a_build_has_the_digest_that_its_bundle_would_have(built: Path, tmp_path: Path) -> None:
    assert verify(built).digest == pack(built, tmp_path / "x.hpb", environ={}).digest


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: (d / "one/task.toml").write_text("x"), "one/task.toml: is not what was unpacked"),
        (lambda d: (d / "one/task.toml").unlink(), "one/task.toml: is gone"),
        (lambda d: (d / "one/more.txt").touch(), "one/more.txt: was not in the bundle"),
        (lambda d: (d / "one/environment/files/bin/run").chmod(0o644), "bin/run: is not what was unpacked"),
        (lambda d: (d / "two/environment/files/nothing/here").rmdir(), "nothing/here: is gone"),
        (lambda d: (d / "registry.json").write_text("[]"), "registry.json: is not what was unpacked"),
        (lambda d: (d / "dataset.toml").unlink(), "dataset.toml: cannot be read"),
        (lambda d: (d / ".harbor-pack/files.jsonl").write_text("{}\n"), "is not what was unpacked|is gone|was not in"),
        (lambda d: (d / ".harbor-pack/files.jsonl").unlink(), "files.jsonl: cannot be read"),
        (lambda d: (d / ".harbor-pack/pulled.json").write_text("{"), "pulled.json: cannot be read"),
        (lambda d: (d / ".harbor-pack/probe").mkdir(), "probe: was not in the bundle"),
    ],
)
def test_what_differs_is_named(pulled: Path, change: Callable[[Path], Any], says: str) -> None:
    change(pulled)
    with pytest.raises(AuthorError, match=says):
        verify(pulled)


def test_another_head_is_found(pulled: Path) -> None:
    path = pulled / ".harbor-pack/bundle.json"
    head = json.loads(path.read_bytes())
    head["images"][0]["digest"] = "sha256:" + "6" * 64
    path.write_text(json.dumps(head))
    with pytest.raises(AuthorError, match=r"bundle[.]json: is not that of the bundle sha256:"):
        verify(pulled)
    path.write_text("{}")
    with pytest.raises(AuthorError, match=r"bundle[.]json: cannot be read"):
        verify(pulled)


def test_another_digest_than_the_one_asked_for_is_refused(built: Path, packed: BundleInfo, pulled: Path) -> None:
    for source in (built, packed.file, pulled):
        with pytest.raises(AuthorError, match="not sha256:00"):
            verify(source, expect="sha256:" + "0" * 64)


def test_a_changed_build_is_refused(tasks: Path) -> None:
    (tasks / "one/instruction.md").write_text("something else")
    with pytest.raises(AuthorError, match="tasks/one: its files are not those that were built"):
        verify(tasks)
