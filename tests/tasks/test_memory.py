"""What a CLAUDE.md takes in, and what of it is packed."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec.load import load_eval
from harbor_tasks.resources import resource, script_module
from harbor_tasks.tasks.layer import layer_of
from harbor_tasks.tasks.memory import imported
from tests.kit import write_files


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("@a.md", ["a.md"]),
        ("see @a.md and @b/c.md\n- @./d.md", ["a.md", "b/c.md", "./d.md"]),
        ("mail me@a.md or `@a.md`", []),
        ("```\n@a.md\n```\n@b.md", ["b.md"]),
        ("~~~\n@a.md", []),
        ("@with\\ space.md", ["with space.md"]),
        ("@~/own.md @/etc/x.md @../up.md", ["~/own.md", "/etc/x.md", "../up.md"]),
    ],
)
def test_which_words_are_imports(text: str, paths: list[str]) -> None:
    assert [path for path, _ in script_module("memory").imports_of(text)] == paths


def test_they_are_followed_five_deep_and_each_once(tmp_path: Path) -> None:
    for number in range(8):
        (tmp_path / f"{number}.md").write_text(f"@{number + 1}.md @0.md")
    assert [one.path for one in imported(tmp_path, "0.md") if one.found] == [f"{n}.md" for n in range(1, 6)]


def test_the_line_and_the_file_that_name_it(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "CLAUDE.md").write_text("\n@docs/a.md\n")
    (tmp_path / "docs" / "a.md").write_text("\n\n@gone.md @../../up.md\n")
    found = {one.written: one for one in imported(tmp_path, "CLAUDE.md")}
    assert (found["docs/a.md"].line, found["docs/a.md"].found) == (2, True)
    gone, up = found["gone.md"], found["../../up.md"]
    assert (gone.path, gone.by, gone.line, gone.found) == ("docs/gone.md", "docs/a.md", 3, False)
    assert up.path is None


def test_the_sandbox_puts_behind_the_memory_what_is_packed_and_no_link_that_leaves(tmp_path: Path) -> None:
    text = "see @docs/a.md @..b.md @../secret @away.md @gone.md `@code.md`\n```\n@code.md\n```\n"
    files = {"CLAUDE.md": text, "docs/a.md": "A @c.md", "docs/c.md": "C @../CLAUDE.md", "..b.md": "B", "code.md": "X"}
    workspace, target = tmp_path / "workspace", tmp_path / "memory.md"
    write_files(workspace, files)
    write_files(tmp_path, {"secret": "SECRET", "memory.md": text})
    (workspace / "away.md").symlink_to(tmp_path / "secret")
    script = resource("interceptor", "memory.py").read_text()
    ast.parse(script, feature_version=(3, 8))
    command = [sys.executable, "-I", "-S", "-E", "-", str(workspace), str(target)]  # as `setup` starts it
    subprocess.run(command, input=script, text=True, check=True)
    parts = target.read_text().removeprefix(text).split("\n\nContents of ")[1:]
    assert [part.partition(":\n\n")[::2] for part in parts] == [
        ("docs/a.md", "A @c.md"), ("..b.md", "B"), ("docs/c.md", "C @../CLAUDE.md"),
    ]  # fmt: skip
    packed = [one.path for one in imported(workspace, "CLAUDE.md") if one.found and one.path != "away.md"]
    assert packed == ["docs/a.md", "..b.md", "docs/c.md"]
    (workspace / "CLAUDE.md").unlink()
    target.write_text("")
    subprocess.run(command, input=script, text=True, check=True)
    assert not target.exists()


Write = Callable[[dict[str, str]], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def make(files: dict[str, str]) -> Path:
        texts = {
            ".git/HEAD": "", "eval.yaml": "name: e\ndataset: {path: cases}\nexecution: {prompt: p}\n",
            "cases/one/input.yaml": "prompt: p\n", "cases/one/annotations.yaml": "secret: 1\n", **files,
        }  # fmt: skip
        write_files(tmp_path, texts)
        return tmp_path

    return make


def packed(root: Path) -> tuple[set[str], list[str]]:
    problems = Problems()
    ev = load_eval(root / "eval.yaml", problems)
    assert ev is not None
    layer = layer_of(ev, problems)
    return set(layer.workspace), [str(problem) for problem in problems.warnings]


def test_what_the_memory_takes_in_is_packed(write: Write) -> None:
    files = {"CLAUDE.md": "@docs/a.md @AGENTS.md", "docs/a.md": "@b.md", "docs/b.md": "b", "docs/c.md": "c",
             ".claude/CLAUDE.md": "@../notes.txt", "notes.txt": "n", "AGENTS.md": "a"}  # fmt: skip
    names, warnings = packed(write(files))
    assert names == {"CLAUDE.md", "AGENTS.md", ".claude/CLAUDE.md", "docs/a.md", "docs/b.md", "notes.txt"}
    assert not [text for text in warnings if "@" in text]


def test_what_cannot_be_packed_is_said_with_its_line(write: Write) -> None:
    text = "one\n@gone.md @../up.md\n@cases/one/annotations.yaml @cases/one/notes.md @someone @types/node\n"
    names, warnings = packed(write({"CLAUDE.md": text, "cases/one/notes.md": "n"}))
    assert names == {"CLAUDE.md"}
    said = "\n".join(warnings)
    for line in ("CLAUDE.md:2: @gone.md is not found", "CLAUDE.md:2: @../up.md leads out of the project",
                 "CLAUDE.md:3: @cases/one/notes.md is not for the agent to see"):  # fmt: skip
        assert line in said
    assert "@someone" not in said
    assert "@types" not in said
