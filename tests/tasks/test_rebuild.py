"""Building again: what did not change is neither rendered nor written, and nothing that changed is missed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from harbor_tasks.tasks.build import BuildReport

if TYPE_CHECKING:
    from pathlib import Path

    from tests.tasks.conftest import Author

HEAVY = ("pydantic", "jinja2", "yaml", "rich", "harbor_tasks.evalspec", "harbor_tasks.policy")
REBUILD = """
import sys
from pathlib import Path
from harbor_tasks.tasks.build import build
report = build(Path(sys.argv[1]), Path(sys.argv[2]))
print(report.written, report.unchanged, *(name for name in sys.argv[3].split(",") if name in sys.modules))
"""


@pytest.fixture
def shop(author: Author) -> Author:
    """Three cases, a skill, a handlers file, a prompt file; built once."""
    author.write("tool_handlers.yaml", "handlers:\n- {match: ask, patterns: [AskUserQuestion], prompt_file: more.md}\n")
    author.write("more.md", "answer shortly\n")
    author.write(".claude/skills/tidy/SKILL.md", "# tidy\n")
    author.write("judges/helpful.py", "def judge(outputs, arguments, annotations):\n    return True\n")
    author.eval(judges=[{"name": "m", "module": "judges.helpful", "function": "judge"}])
    for number in range(3):
        author.case(f"c{number}", f"order {number}")
        author.write(f"cases/c{number}/files/data.txt", str(number))
        author.write(f"cases/c{number}/files/.config", "x")
    author.build()
    return author


def rebuilt(author: Author, **options: Any) -> BuildReport:
    """Build again, and prove that the result is what a fresh build would have been."""
    report = author.build(**options)
    fresh = author.out.with_name("fresh")
    shutil.rmtree(fresh, ignore_errors=True)
    kept, author.out = author.out, fresh
    author.build(**options)
    author.out = kept
    assert author.contents() == author.contents(fresh)
    return report


def test_without_changes_nothing_is_written_not_even_the_notes(shop: Author) -> None:
    before = shop.snapshot()
    for _ in range(2):
        report = shop.build()
        assert (report.written, report.unchanged, report.removed) == (0, 3, 0)
    assert shop.snapshot() == before


def test_without_changes_no_heavy_library_is_loaded(shop: Author) -> None:
    command = [sys.executable, "-c", REBUILD, str(shop.root), str(shop.out), ",".join(HEAVY)]
    env = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "3"]


def test_without_changes_warnings_and_matches_are_said_again(shop: Author) -> None:
    shop.eval(mlflow={})
    shop.write("cases/c1/files/.env", "X=1\n")
    first = shop.build()
    again = shop.build()
    assert again.written == 0
    assert list(map(str, first.problems)) == list(map(str, again.problems))
    assert len(first.problems.warnings) == 2
    assert first.matches == again.matches == [("ask", ("AskUserQuestion",))]


def test_warnings_of_cases_that_did_not_change_are_said_with_those_that_did(shop: Author) -> None:
    shop.write("cases/c1/files/.env", "X=1\n")
    shop.build()
    shop.write("cases/c2/files/new.txt", "x")
    report = shop.build()
    assert report.written == 1
    assert any(".env" in str(problem) for problem in report.problems.warnings)


CHANGES: dict[str, Callable[[Author], object]] = {
    "a case's input": lambda a: a.case("c1", "another order"),
    "a file of a case": lambda a: a.write("cases/c1/files/data.txt", "9"),
    "a dotfile of a case": lambda a: a.write("cases/c1/files/.config", "y"),
    "a new file": lambda a: a.write("cases/c1/files/new", ""),
    "a new empty folder": lambda a: (a.root / "cases/c1/files/empty").mkdir(),
    "a removed file": lambda a: (a.root / "cases/c1/files/data.txt").unlink(),
    "a mode": lambda a: (a.root / "cases/c1/files/data.txt").chmod(0o755),
    "a cache in its workspace": lambda a: a.write("cases/c1/files/__pycache__/a.pyc", "x"),
    "answers": lambda a: a.write("cases/c1/answers.yaml", "Q?: A\n"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_change_of_one_case_writes_its_task_alone(shop: Author, change: Callable[[Author], object]) -> None:
    others = {path: entry for path, entry in shop.snapshot().items() if path.startswith(("c0/", "c2/"))}
    change(shop)
    report = rebuilt(shop)
    assert (report.written, report.unchanged) == (1, 2)
    after = shop.snapshot()
    assert {path: after[path] for path in others} == others


SHARED: dict[str, Callable[[Author], object]] = {
    "eval.yaml": lambda a: a.eval(description="another"),
    "the handlers": lambda a: a.write(
        "tool_handlers.yaml", "handlers:\n- {match: ask us, patterns: [AskUserQuestion]}\n"
    ),
    "a prompt file": lambda a: a.write("more.md", "answer at length\n"),
    "a judge's module": lambda a: a.write(
        "judges/helpful.py", "def judge(outputs, arguments, annotations):\n    return False\n"
    ),
    "a skill": lambda a: a.write(".claude/skills/tidy/SKILL.md", "# tidier\n"),
    "a new skill": lambda a: a.write(".claude/skills/other/SKILL.md", "# other\n"),
    "a CLAUDE.md that was not there": lambda a: a.write("CLAUDE.md", "notes\n"),
    "a .mcp.json that was not there": lambda a: a.write(
        ".mcp.json", '{"mcpServers": {"x": {"command": "srv", "args": []}}}'
    ),
}


@pytest.mark.parametrize("change", SHARED.values(), ids=SHARED.keys())
def test_a_change_of_what_all_tasks_share_writes_them_all(shop: Author, change: Callable[[Author], object]) -> None:
    change(shop)
    assert rebuilt(shop).written == 3
    assert rebuilt(shop).written == 0


def test_a_file_that_would_be_found_first_is_noticed(shop: Author) -> None:
    inner = shop.root / "inner"
    inner.mkdir()
    for name in ("eval.yaml", "tool_handlers.yaml", "cases"):
        (shop.root / name).rename(inner / name)
    project, shop.root = shop.root, inner
    shop.build()
    (inner / "more.md").write_text("the nearer one\n")
    assert rebuilt(shop).written == 3
    assert "the nearer one" in shop.text("environment/tool_handlers.yaml")
    (inner / ".git").mkdir()
    (project / "judges").rename(inner / "judges")
    rebuilt(shop)
    assert not list(shop.out.rglob("SKILL.md"))


def test_cases_that_come_and_go(shop: Author) -> None:
    shop.case("c3", "new")
    report = rebuilt(shop)
    assert (report.tasks, report.written, report.removed) == (4, 1, 0)
    shutil.rmtree(shop.root / "cases/c0")
    report = rebuilt(shop)
    assert (report.tasks, report.written, report.removed) == (3, 0, 1)
    (shop.root / "cases/no-case").mkdir()
    assert rebuilt(shop).tasks == 3
    shop.write("cases/no-case/input.yaml", "prompt: now it is one\n")
    assert rebuilt(shop).tasks == 4


def test_files_of_an_earlier_build_do_not_stay(shop: Author) -> None:
    assert (shop.task("c1") / "environment/hooks/tools.py").exists()
    (shop.root / "tool_handlers.yaml").unlink()
    shutil.rmtree(shop.root / ".claude")
    assert rebuilt(shop).written == 3
    assert not list(shop.out.rglob("hooks"))
    assert not list(shop.out.rglob("tool_handlers.yaml"))
    assert not list(shop.out.rglob("layer"))


def linked(task: Path) -> None:
    task.rename(task.with_name("moved"))
    task.symlink_to("moved")


def same_size_and_time(path: Path) -> None:
    status = path.stat()
    path.write_bytes(path.read_bytes().swapcase())
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def cache(folder: Path) -> None:
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "verify.cpython-311.pyc").write_bytes(b"stale")


DAMAGES: dict[str, Callable[[Path], object]] = {
    "changed": lambda task: (task / "instruction.md").write_text("do something else"),
    "changed without changing size or time": lambda task: same_size_and_time(task / "instruction.md"),
    "removed": lambda task: (task / "tests/test.sh").unlink(),
    "added": lambda task: (task / "environment/files/extra").write_text(""),
    "an added folder": lambda task: (task / "environment/more").mkdir(),
    "an added cache": lambda task: cache(task / "tests"),
    "an added cache at the top": cache,
    "another mode": lambda task: (task / "tests/test.sh").chmod(0o644),
    "another mode of a folder": lambda task: (task / "environment/hooks").chmod(0o700),
    "another mode of an empty folder": lambda task: (task / "environment/files/empty").chmod(0o777),
    "another mode of the whole": lambda task: task.chmod(0o750),
    "gone": shutil.rmtree,
    "a link instead": linked,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
@pytest.mark.parametrize("wait", [0.0, 0.2])
def test_a_task_that_somebody_changed_is_made_whole_again(
    shop: Author, damage: Callable[[Path], object], wait: float
) -> None:
    (shop.root / "cases/c1/files/empty").mkdir()
    shop.build()
    before = shop.contents()
    time.sleep(wait)
    damage(shop.task("c1"))
    report = shop.build()
    assert (report.written, report.unchanged) == (1, 2)
    assert shop.build().written == 0
    shutil.rmtree(shop.out / "moved", ignore_errors=True)
    assert shop.contents() == before


@pytest.mark.parametrize("part", ["build.json", "layer/workspace/.claude/skills/tidy/SKILL.md", "probe/hooks/tools.py"])
def test_what_belongs_to_all_tasks_is_made_whole_again(shop: Author, part: str) -> None:
    before = shop.contents()
    (shop.out / ".harbor-pack" / part).unlink()
    shop.build()
    assert shop.contents() == before


def test_caches_and_modes_in_what_belongs_to_all_tasks_are_made_whole_again(shop: Author) -> None:
    before = shop.contents()
    cache(shop.out / ".harbor-pack/layer/workspace")
    (shop.out / ".harbor-pack/probe/hooks").chmod(0o700)
    shop.build()
    assert shop.contents() == before


def test_caches_beside_the_authors_files_change_nothing(shop: Author) -> None:
    for folder in (shop.root, shop.root / "cases/c1", shop.root / "judges", shop.root / ".claude/skills/tidy"):
        cache(folder)
    assert shop.build().written == 0


def test_folders_that_inherit_a_group_are_as_they_would_be(shop: Author) -> None:
    shutil.rmtree(shop.out)
    shop.out.mkdir()
    shop.out.chmod(0o2755)
    assert (shop.build().written, shop.build().written) == (3, 0)
    shop.case("c9")
    assert shop.build().written == 1


@pytest.mark.parametrize("notes", [b"", b"{}\n", b"not json", b"[1]\n", b'{"version": 1}\n\x00'])
def test_broken_notes_are_no_harm(shop: Author, notes: bytes) -> None:
    before = shop.contents()
    (shop.out / ".harbor-pack/state.json").write_bytes(notes)
    report = shop.build()
    assert (report.written, report.unchanged) == (0, 3)
    assert shop.contents() == before
    assert shop.build().written == 0


def test_files_that_were_only_touched_write_no_task(shop: Author) -> None:
    for path in shop.root.rglob("*"):
        os.utime(path)
    before = shop.contents()
    assert shop.build().written == 0
    assert shop.contents() == before


def test_a_change_right_after_a_build_is_not_missed(author: Author) -> None:
    author.case("c1", "0")
    author.build()
    for number in range(1, 30):
        author.case("c1", str(number % 10))  # the same size, within the grain of the clock
        author.build()
        assert author.text("instruction.md") == str(number % 10)


def test_strictness_counts_although_nothing_changed(shop: Author) -> None:
    shop.eval(mlflow={})
    shop.build()
    assert any("mlflow" in said for said in shop.refused(strict=True))
    assert shop.build().written == 0


def test_a_build_elsewhere_or_of_another_eval_starts_anew(shop: Author, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(shop.out, moved)
    shop.out = moved
    assert shop.build().written == 0
    copy = tmp_path / "copy"
    shutil.copytree(shop.root, copy)
    shop.root = copy
    shop.case("c1", "the copy's")
    assert shop.build().written == 1


def test_an_eval_without_a_repository_depends_on_where_the_command_runs(
    author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    (author.root / ".git").rmdir()
    author.case("c1")
    inner = author.root / "inner"
    inner.mkdir()
    author.eval()
    for name in ("eval.yaml", "cases"):
        (author.root / name).rename(inner / name)
    author.write("CLAUDE.md", "of the folder above\n")
    above, author.root = author.root, inner
    monkeypatch.chdir(inner)
    author.build()
    assert not list(author.out.rglob("CLAUDE.md"))
    monkeypatch.chdir(above)
    author.build()
    assert len(list(author.out.rglob("CLAUDE.md"))) == 1


@pytest.mark.parametrize("path", ["tool_handlers.yml", "hooks/tool_handlers.yaml"])
def test_handlers_that_come_into_a_wrong_place_are_seen(author: Author, path: str) -> None:
    author.case("c1")
    author.build()
    author.write(path, "handlers: []\n")
    assert "is not read" in author.refused()[0]


def test_a_judges_sibling_that_changes_is_seen(author: Author) -> None:
    author.case("c1")
    author.write("words.py", "LIMIT = 1\n")
    author.write("quality.py", "import words\ndef judge(outputs): return words.LIMIT\n")
    author.eval(judges=[{"name": "m", "module": "quality", "function": "judge"}])
    author.build()
    author.write("words.py", "LIMIT = 2\n")
    assert author.build().written == 1
    assert author.text("tests/lib/words.py") == "LIMIT = 2\n"
