"""`init` writes a complete small eval, and only where nothing is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harbor_tasks.errors import AuthorError, MachineError
from harbor_tasks.resources import resource
from harbor_tasks.scaffold import init


def content(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_it_writes_the_starter_and_says_which_files(tmp_path: Path) -> None:
    target = tmp_path / "new" / "eval"
    written = init(target)
    assert content(target) == content(resource("examples", "starter"))
    assert [p.relative_to(target).as_posix() for p in written] == sorted(
        content(target), key=lambda name: Path(name).parts
    )
    assert {"eval.yaml", "tool_handlers.yaml", "cases/ada/input.yaml"} <= set(content(target))


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    assert init(tmp_path)


def test_solutions_can_be_run_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        init(tmp_path / "e")
    finally:
        os.umask(before)
    assert (tmp_path / "e/cases/ada/solution/solve.sh").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("there", ["notes.txt", ".git/HEAD"])
def test_a_folder_that_holds_something_is_refused_and_left_alone(tmp_path: Path, there: str) -> None:
    (tmp_path / there).parent.mkdir(exist_ok=True)
    (tmp_path / there).write_text("mine")
    with pytest.raises(AuthorError, match="not empty"):
        init(tmp_path)
    assert content(tmp_path) == {there: b"mine"}


def test_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "e").write_text("mine")
    with pytest.raises(AuthorError, match="not a folder"):
        init(tmp_path / "e")
    with pytest.raises(MachineError, match="cannot be written"):
        init(tmp_path / "e" / "below")


def test_a_dangling_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "e").symlink_to(tmp_path / "nowhere")
    with pytest.raises(AuthorError, match="leads nowhere"):
        init(tmp_path / "e")
