"""Commands that prepare the workspace at build: where they run, what of it is packed, how they may fail."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from harbor_tasks.tasks.build import check
from harbor_tasks.tasks.staging_hooks import run_command

if TYPE_CHECKING:
    from pathlib import Path

    from tests.tasks.conftest import Author


def hooked(author: Author, **hooks: Any) -> Author:
    commands = {when: [{"command": c} if isinstance(c, str) else c for c in given] for when, given in hooks.items()}
    author.eval(hooks=commands)
    return author


def packed(author: Author, task: str = "c1") -> dict[str, str]:
    folder = author.out / task / "environment/files"
    return {str(p.relative_to(folder)): p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_what_the_commands_make_is_packed_with_the_cases_files(author: Author) -> None:
    author.write("stubs/tool.sh", "#!/bin/sh\n", mode=0o755)
    author.case("c1")
    author.write("cases/c1/files/mine.txt", "case\n")
    hooked(
        author,
        before_all=['mkdir -p bin && cp "$AGENT_EVAL_PROJECT_ROOT/stubs/tool.sh" bin/', "echo all > shared.txt"],
        before_each=["cat mine.txt shared.txt > both.txt", "mkdir empty"],
    )
    author.build()
    assert packed(author) == {
        "bin/tool.sh": "#!/bin/sh\n", "both.txt": "case\nall\n", "mine.txt": "case\n", "shared.txt": "all\n",
    }  # fmt: skip
    assert (author.task() / "environment/files/bin/tool.sh").stat().st_mode & 0o777 == 0o755
    assert (author.task() / "environment/files/empty").is_dir()
    assert set(author.json("tests/initial.json")) == set(packed(author))


def test_before_all_runs_once_and_before_each_in_every_case(author: Author, tmp_path: Path) -> None:
    log = tmp_path / "log"
    for name in ("c1", "c2", "c3"):
        author.case(name)
    hooked(author, before_all=[f"echo all >> {log}"], before_each=[f"echo each >> {log}; ls -A > seen"])
    author.build()
    assert sorted(log.read_text().split()) == ["all", "each", "each", "each"]
    assert all(packed(author, name) == {"seen": "seen\n"} for name in ("c1", "c2", "c3"))


def test_the_cases_file_counts_over_what_before_all_made(author: Author) -> None:
    author.case("c1")
    author.write("cases/c1/files/a", "case")
    hooked(author, before_all=["echo all > a"])
    author.build()
    assert packed(author) == {"a": "case"}


def test_check_runs_no_command(author: Author, tmp_path: Path) -> None:
    author.case("c1")
    hooked(author, before_all=[f"touch {tmp_path}/all"], before_each=[f"touch {tmp_path}/each; exit 1"])
    assert not check(author.root).problems.errors
    assert not (tmp_path / "all").exists()
    assert not (tmp_path / "each").exists()


@pytest.mark.parametrize("when", ["before_all", "before_each"])
def test_a_command_that_fails_is_an_error_with_the_end_of_its_output(author: Author, when: str) -> None:
    author.case("c1")
    hooked(author, **{when: ["echo fine", "seq 1 99999; echo no such stub >&2; exit 3"]})
    (said,) = author.refused()
    assert f"hooks.{when}[1] ended with exit code 3" in said
    assert said.rstrip().endswith("no such stub")
    assert len(said) < 3000
    assert "eval.yaml" in said
    assert not author.out.exists()


def test_a_command_that_may_fail_is_a_warning(author: Author) -> None:
    author.case("c1")
    hooked(author, before_each=[{"command": "exit 3", "on_failure": "continue"}, "echo on > after"])
    report = author.build()
    assert any("exit code 3" in str(problem) for problem in report.problems.warnings)
    assert packed(author) == {"after": "on\n"}


def test_a_command_that_takes_too_long_is_ended_with_all_that_it_started(author: Author, tmp_path: Path) -> None:
    author.case("c1")
    command = f"(while :; do echo x >> {tmp_path}/alive; sleep 0.05; done) & sleep 60"
    hooked(author, before_each=[{"command": command, "timeout": 1}])
    began = time.monotonic()
    assert "took longer than 1 s" in author.refused()[0]
    assert time.monotonic() - began < 10
    size = (tmp_path / "alive").stat().st_size
    time.sleep(0.3)
    assert (tmp_path / "alive").stat().st_size == size


def test_all_cases_whose_commands_fail_are_named(author: Author) -> None:
    for name in ("c1", "c2", "c3"):
        author.case(name)
        author.write(f"cases/{name}/files/name", name)
    hooked(author, before_each=["! grep -q c2 name"])
    assert ["(case c2)" in said for said in author.refused()] == [True]


@pytest.mark.parametrize(
    "command", ["mkdir .claude; echo '{}' > .claude/settings.json", "touch setup", "touch tool_handlers.yaml"]
)
def test_commands_cannot_make_files_of_the_policy(author: Author, command: str) -> None:
    author.case("c1")
    hooked(author, before_each=[command])
    assert any("place of the policy" in said for said in author.refused())


def test_what_cannot_be_packed_is_said_of_the_command_that_made_it(author: Author) -> None:
    author.case("c1")
    author.case("c2")
    hooked(author, before_all=["ln -s /etc/passwd all"], before_each=["mkdir d; ln -s /etc/passwd d/each", "true"])
    said = author.refused()
    at, leaves = f"{author.root}/eval.yaml:1", "a link that leaves the folder that is packed"
    assert [line.partition(";")[0] for line in said] == [
        f"{at}: hooks.before_all made all: {leaves}",
        f"{at} (case c1): hooks.before_each made d/each: {leaves}",
        f"{at} (case c2): hooks.before_each made d/each: {leaves}",
    ]


@pytest.mark.parametrize(
    ("when", "command"),
    [
        ("before_each", "rm -rf ../*"),
        ("before_each", 'rm -rf ../*; cd /; rm -rf "$OLDPWD"'),
        ("before_each", 'w=$PWD; cd ..; rm -rf "$w"; ln -s . "$w"'),
        ("before_all", 'cd /; rm -rf "$OLDPWD"; exit 1'),
    ],
)
def test_a_command_that_removes_its_folder_is_the_authors_mistake(author: Author, when: str, command: str) -> None:
    author.case("c1")
    hooked(author, **{when: [command, "pwd"]})
    (said,) = author.refused()
    assert f"eval.yaml:1{' (case c1)' if when == 'before_each' else ''}: hooks.{when}[0] removed the folder" in said


def test_a_command_that_removes_the_folder_of_before_all_is_the_authors_mistake(author: Author) -> None:
    author.case("c1")
    author.case("c2")
    hooked(author, before_each=["rm -rf ../ground"])
    (said,) = author.refused()
    assert "eval.yaml:1 (case c2): hooks.before_each removed a folder of the build" in said


def test_a_pipe_that_before_all_makes_is_one_error_for_all_cases(author: Author) -> None:
    author.case("c1")
    author.case("c2")
    hooked(author, before_all=["mkdir a && mkfifo a/pipe"])
    (said,) = author.refused()
    assert said.startswith(f"{author.root}/eval.yaml:1: hooks.before_all made a/pipe, which cannot be copied (`a/pipe`")


def test_a_skill_that_a_command_copies_is_found(author: Author) -> None:
    author.write("skills/own/SKILL.md", "# own\n")
    author.write(".claude/skills/other/SKILL.md", "# other\n")
    author.case("c1")
    author.eval(execution={"skill": "own"})
    copy = 'mkdir -p .claude && cp -r "$AGENT_EVAL_PROJECT_ROOT/skills" .claude/'
    hooked(author, before_all=[copy])
    report = author.build()
    assert report.problems.warnings == []
    assert packed(author) == {".claude/skills/own/SKILL.md": "# own\n"}


def test_such_an_eval_is_built_anew_each_time_but_equal_tasks_stay(author: Author, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_text("1")
    author.case("c1")
    hooked(author, before_each=[f"cp {source} copy"])
    author.build()
    before = author.contents()
    report = author.build()
    assert (report.written, report.unchanged) == (0, 1)
    assert author.contents() == before
    source.write_text("2")
    assert author.build().written == 1
    assert packed(author) == {"copy": "2"}


class TestCommand:
    def test_a_process_that_is_left_running_does_not_hold_the_build(self, tmp_path: Path) -> None:
        began = time.monotonic()
        outcome = run_command("sleep 60 & echo done", tmp_path, 30, {})
        assert (outcome.code, outcome.tail) == (0, "done")
        assert time.monotonic() - began < 10

    def test_a_flood_of_output_is_bounded(self, tmp_path: Path) -> None:
        outcome = run_command("yes | head -c 20000000; echo end", tmp_path, 30, {})
        assert outcome.code == 0
        assert outcome.tail.endswith("end")
        assert len(outcome.tail) <= 2000

    def test_a_flood_without_end_is_ended_in_time(self, tmp_path: Path) -> None:
        outcome = run_command("yes", tmp_path, 0.5, {})
        assert outcome.code is None

    def test_output_that_is_no_text_and_a_closed_output_are_no_harm(self, tmp_path: Path) -> None:
        assert run_command("printf '\\377\\000x'; exit 1", tmp_path, 5, {}).tail.endswith("x")
        assert run_command("exec >&- 2>&-; sleep 0.2; exit 4", tmp_path, 5, {}).code == 4

    def test_a_signal_is_no_success(self, tmp_path: Path) -> None:
        assert run_command("kill -9 $$", tmp_path, 5, {}).code not in (0, None)
