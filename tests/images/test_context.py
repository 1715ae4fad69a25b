"""Archives that are sent to an engine: an explicit list, the same bytes, nothing left out."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from harbor_tasks.errors import AuthorError
from harbor_tasks.images.context import archive, listed
from harbor_tasks.tasks.plan import TaskFile, made


def test_the_same_files_make_the_same_bytes_in_any_order(tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(b"x" * 100)
    files = [made("b/.dot", "1"), made("a", "2", 0o755), TaskFile("c/empty", None, 0o755), TaskFile("large", large)]
    with archive(files) as first:
        os.utime(large, (5, 5))
        with archive(reversed(files)) as second:
            assert first.read() == second.read()


def test_dotfiles_an_ignore_file_modes_and_empty_folders_are_in_it() -> None:
    files = [
        made("layer/.dockerignore", "**/.*\n*\n"), made("layer/.env.sample", "A=1\n"), made("layer/run", "", 0o755),
        TaskFile("layer/keep", None, 0o755), made("layer/näme with blanks", "x"),
    ]  # fmt: skip
    with archive(files) as data, tarfile.open(fileobj=data) as tar:
        entries = {entry.name: (entry.isdir(), entry.mode, entry.uid, entry.uname) for entry in tar}
    assert entries == {
        "layer": (True, 0o755, 0, ""), "layer/.dockerignore": (False, 0o644, 0, ""),
        "layer/.env.sample": (False, 0o644, 0, ""), "layer/run": (False, 0o755, 0, ""),
        "layer/keep": (True, 0o755, 0, ""), "layer/näme with blanks": (False, 0o644, 0, ""),
    }  # fmt: skip


def test_a_folder_is_listed_with_its_empty_folders_and_the_modes_that_count(tmp_path: Path) -> None:
    (tmp_path / "a/empty").mkdir(parents=True)
    (tmp_path / "a/.x").write_text("1")
    (tmp_path / "a/run").write_text("2")
    (tmp_path / "a/run").chmod(0o700)
    assert [(file.path, file.mode, file.content is None) for file in listed(tmp_path)] == [
        ("a/.x", 0o644, False), ("a/empty", 0o755, True), ("a/run", 0o755, False),
    ]  # fmt: skip
    assert listed(tmp_path / "none") == ()


@pytest.mark.parametrize("kind", ["pipe", "link", "link to a folder"])
def test_what_a_build_never_writes_is_refused_by_path_and_not_opened(kind: str, tmp_path: Path) -> None:
    if kind == "pipe":
        os.mkfifo(tmp_path / "odd")
    else:
        (tmp_path / "odd").symlink_to("/etc/passwd" if kind == "link" else "/etc")
    with pytest.raises(AuthorError, match="odd: not a regular file"):
        listed(tmp_path)
