"""What lies beside the author's Dockerfile, packed with the tasks when they are built."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from harbor_tasks.errors import AuthorError, Problems
from harbor_tasks.evalspec import load_eval
from harbor_tasks.tasks.build import build
from harbor_tasks.tasks.manifest import read_manifest
from harbor_tasks.tasks.own_base import ignore_rules, own_base

MakeEval = Callable[..., Path]


def packed(folder: Path) -> tuple[list[str], Problems]:
    problems = Problems()
    ev = load_eval(folder, problems)
    assert ev is not None
    return [file.path for file in own_base(ev, problems).files], problems


@pytest.mark.parametrize(
    ("rules", "out", "stays"),
    [
        (["*.md"], ["a.md"], ["d/a.md", "a.mdx"]),
        (["**/*.md"], ["a.md", "d/e/a.md"], ["a.txt"]),
        (["d"], ["d", "d/x", "d/e/x"], ["dd", "e/d"]),
        (["/d/"], ["d/x"], ["e/d/x"]),
        (["**/d"], ["d/x", "e/d/x"], ["e/x"]),
        (["d/**"], ["d/x", "d/e/x"], ["d", "x"]),
        (["*", "!keep", "!d/keep*"], ["x", "d/x"], ["keep", "keep/x", "d/keep1"]),
        (["!x", "x"], ["x"], []),
        (["# x", "", " "], [], ["x", "# x"]),
        (["**/.*"], [".a", "d/.a"], ["a"]),
        (["?.t", "[ab]x", "c\\*"], ["q.t", "ax", "c*"], ["qq.t", "cx", "d/q.t"]),
        (["./a", "a+b"], ["a", "a+b"], ["aab"]),
    ],
)
def test_an_ignore_file_leaves_out_what_the_docker_command_leaves_out(
    rules: list[str], out: list[str], stays: list[str]
) -> None:
    found = ignore_rules(rules)
    assert {path: found.leave_out(path) for path in out + stays} == dict.fromkeys(out, True) | dict.fromkeys(
        stays, False
    )


def test_the_dockerfiles_folder_is_packed_without_what_no_sandbox_may_see(make_eval: MakeEval) -> None:
    folder = make_eval(sandbox={"dockerfile": "Dockerfile"}, handlers="handlers: []\n")
    for name in ["Dockerfile", "tool/run", ".profile", ".env", "skip/x", "skip/keep", "eval2/eval.yaml", ".git/config"]:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("FROM x\n")
    (folder / ".dockerignore").write_text("skip\n!skip/keep\n")
    files, problems = packed(folder)
    assert files == [".profile", "Dockerfile", "skip/keep", "tool/run"]
    assert [problem.code for problem in problems.warnings if problem.where.path == folder / ".env"] == ["secret"]


def test_rules_of_the_dockerfiles_own_name_come_first(make_eval: MakeEval) -> None:
    folder = make_eval(sandbox={"dockerfile": "image/Base.Dockerfile"})
    (folder / "image").mkdir()
    for name in ["Base.Dockerfile", "a", "b"]:
        (folder / "image" / name).write_text("FROM x\n")
    (folder / "image/.dockerignore").write_text("a\n")
    (folder / "image/Base.Dockerfile.dockerignore").write_text("b\n")
    assert packed(folder)[0] == ["Base.Dockerfile", "a"]


def test_special_files_beside_it_are_errors_by_path_unless_they_are_left_out(
    make_eval: MakeEval, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_eval(sandbox={"dockerfile": "image/Dockerfile"})
    (folder / "image/run").mkdir(parents=True)
    (folder / "image/Dockerfile").write_text("FROM x\n")
    os.mkfifo(folder / "image/pipe")
    monkeypatch.chdir(folder)  # the path of a socket may have 107 bytes only
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("image/run/s")
        _files, problems = packed(folder)
    named = {problem.where.path for problem in problems.errors}
    assert named == {folder / "image/pipe", folder / "image/run/s"}
    (folder / "image/.dockerignore").write_text("pipe\nrun\n")
    assert not packed(folder)[1].errors


def test_a_build_carries_it_and_a_change_of_it_changes_the_images_name(make_eval: MakeEval, tmp_path: Path) -> None:
    folder = make_eval(sandbox={"dockerfile": "image/Dockerfile"})
    (folder / "image").mkdir()
    (folder / "image/Dockerfile").write_text("FROM x\n")
    (folder / "image/tool").write_text("1")
    out = tmp_path / "out"
    build(folder, out)
    first = read_manifest(out).image
    assert sorted(path.name for path in (out / ".harbor-pack/base").iterdir()) == ["Dockerfile", "tool"]
    assert build(folder, out).written == 0
    (folder / "image/tool").write_text("2")
    build(folder, out)
    assert read_manifest(out).image != first
    assert (out / ".harbor-pack/base/tool").read_text() == "2"


def test_a_dockerfile_that_is_a_folder_is_an_error(make_eval: MakeEval, tmp_path: Path) -> None:
    folder = make_eval(sandbox={"dockerfile": "image"})
    (folder / "image").mkdir()
    with pytest.raises(AuthorError, match="dockerfile"):
        build(folder, tmp_path / "out")
