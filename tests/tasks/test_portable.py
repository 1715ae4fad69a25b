"""Names that no other machine could unpack are refused by `check` and `build` already."""

from __future__ import annotations

from pathlib import Path

import pytest

from harbor_tasks.bundles import pack
from harbor_tasks.evalspec.portable import fold_name, name_fault, path_fault, twin_paths, twins
from harbor_tasks.tasks.build import check

from .conftest import Author


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("files/Readme.md", "files/README.md"),
        ("files/Src/a.py", "files/src/b.py"),
        ("files/\xe9.txt", "files/e\u0301.txt"),
        ("files/stra\xdfe.txt", "files/STRASSE.txt"),
        ("Notes.md", "notes.md"),
        ("solution/solve.sh", "solution/Solve.sh"),
    ],
)
def test_files_that_differ_by_case_or_accents_only_are_errors(author: Author, first: str, second: str) -> None:
    author.case("c1")
    for path in (first, second):
        author.write(f"cases/c1/{path}", "echo\n")
    errors = author.refused()
    assert len(errors) == 1
    assert "by case or accents only" in errors[0]
    assert "(case c1)" in errors[0]
    assert [str(p) for p in check(author.root).problems.errors] == errors
    assert any(path.rpartition("/")[2] in errors[0].partition(" (case")[0] for path in (first, second))


def test_a_file_beside_one_that_the_build_makes_is_an_error(author: Author) -> None:
    author.case("c1")
    author.write("cases/c1/replay.yaml", "- {tool: Read, input: {file_path: a}}\n")
    author.write("cases/c1/solution/Replay.json", "[]")
    assert "solution/replay.json differs from solution/Replay.json by case" in author.refused()[0]


def test_files_given_to_the_agent_meet_those_of_files(author: Author) -> None:
    author.case("c1", files__notes_md="x")
    author.write("cases/c1/files/notes.md", "x")
    author.write("cases/c1/Notes.md", "y")
    author.eval(dataset={"path": "cases", "workspace": {"files": ["Notes.md"]}})
    assert "by case or accents only" in author.refused()[0]


def test_twins_of_a_skill_are_errors(author: Author) -> None:
    author.case("c1")
    author.write(".git/HEAD", "")
    author.write(".claude/skills/pay/SKILL.md", "---\nname: pay\ndescription: pays\n---\n")
    author.write(".claude/skills/pay/Refs.md", "x")
    author.write(".claude/skills/pay/refs.md", "y")
    assert any("refs.md" in error and "by case or accents only" in error for error in author.refused())


def long_path(size: int) -> str:
    return "/".join(["d" * 99] * (size // 100)) + "/" + "f" * (size % 100)


@pytest.mark.parametrize("part", ["skill", "base"])
def test_a_path_that_no_bundle_could_hold_is_an_error_and_one_that_just_fits_is_none(
    author: Author, part: str, tmp_path: Path
) -> None:
    author.case("c1")
    author.write(".git/HEAD", "")
    author.write(".claude/skills/pay/SKILL.md", "---\nname: pay\ndescription: pays\n---\n")
    author.write("base/Dockerfile", "FROM debian:bookworm-slim\n")
    author.eval(sandbox={"dockerfile": "base/Dockerfile"})
    folder, in_build = {
        "skill": (".claude/skills/pay", ".harbor-pack/layer/workspace/.claude/skills/pay/"),
        "base": ("base", ".harbor-pack/base/"),
    }[part]
    fits = 1024 - len(in_build)
    author.write(f"{folder}/{long_path(fits)}", "x")
    tasks = author.build().out
    assert pack(tasks, tmp_path / "a.hpb").tasks == 1
    (author.root / folder / long_path(fits)).unlink()
    author.write(f"{folder}/{long_path(fits + 1)}", "x")
    [error] = author.refused()
    assert "has a path longer than" in error
    assert [str(problem) for problem in check(author.root).problems.errors] == [error]


@pytest.mark.parametrize(
    ("name", "says"),
    [("a\\b", "backslash"), ("n" * 250 + "/" + "m" * 250 + "/" + "o" * 250 + "/" + "p" * 250, "longer than 900 bytes")],
)
def test_names_that_other_systems_read_otherwise_are_errors(author: Author, name: str, says: str) -> None:
    author.case("c1")
    author.write(f"cases/c1/files/{name}", "x")
    assert says in author.refused()[0]


def test_names_that_are_fine_stay_fine(author: Author) -> None:
    author.case("c1")
    for name in ("ä.txt", "Ä2.txt", "a b.txt", "x:y.txt", "A/a.txt", "A/A2.txt", "日本.md", "ß"):
        author.write(f"cases/c1/files/{name}", "x")
    assert author.build().tasks == 1


def test_how_names_are_compared() -> None:
    assert fold_name("ABC") == fold_name("abc")
    assert fold_name("e\u0301") == fold_name("\xc9") != fold_name("e")
    assert list(twins(["a", "b", "A", "B "])) == [("A", "a")]
    assert list(twin_paths(["A/x", "A/y", "a/z", "b"])) == [("a/z", "a", "A")]
    assert list(twin_paths(["a/b/c", "a/b/d", "e"])) == []
    assert not name_fault("x" * 255)
    assert name_fault("x" * 256)
    assert path_fault("a/../b") == "leads out of its folder"
    assert path_fault("/a") == "is an absolute path"
    assert not path_fault("a/.b/..c/d..")
