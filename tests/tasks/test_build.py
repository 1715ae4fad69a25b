"""A build as a whole: what it says, what it leaves alone, that it is the same anywhere."""

from __future__ import annotations

import encodings.unicode_escape  # noqa: F401 - loaded late otherwise, by a user who may not
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harbor_tasks.errors import AuthorError
from harbor_tasks.tasks.build import check
from harbor_tasks.tasks.manifest import read_manifest

if TYPE_CHECKING:
    from tests.tasks.conftest import Author


ASK = {"inputs": {"tools": [{"match": "Questions via AskUserQuestion"}, {"match": "mcp__tracker__*"}]}}
IN_A_PROCESS = """
import sys
from pathlib import Path
from harbor_tasks.tasks.build import build
build(Path(sys.argv[1]), Path(sys.argv[2]), jobs=int(sys.argv[3]))
"""


@pytest.fixture
def shop(author: Author) -> Author:
    """Three cases with a bit of everything."""
    author.eval(**ASK, judges=[{"name": "j", "check": "return True"}])
    for number in range(3):
        author.case(f"c{number}", f"order {number}")
        author.write(f"cases/c{number}/answers.yaml", f"Which?: {number}\n")
        author.write(f"cases/c{number}/files/data/{number}.txt", str(number))
    author.write(".claude/skills/tidy/SKILL.md", "# tidy\n")
    return author


def test_a_build_says_what_it_wrote_and_what_each_match_became(shop: Author) -> None:
    report = shop.build()
    assert (report.tasks, report.written, report.unchanged, report.removed) == (3, 3, 0, 0)
    assert report.matches == [
        ("Questions via AskUserQuestion", ("AskUserQuestion",)), ("mcp__tracker__*", ("mcp__tracker__*",)),
    ]  # fmt: skip
    assert report.out == shop.out
    assert sorted(path.name for path in shop.out.iterdir()) == [".harbor-pack", "c0", "c1", "c2"]


def test_the_manifest_tells_what_the_rest_needs(shop: Author) -> None:
    shop.eval(
        description="d", execution={"prompt": "x", "timeout": 9, "max_budget_usd": 2, "env": {"A": "$B", "C": "d"}},
        permissions={"deny": ["WebFetch"]}, thresholds={"j": {"min_mean": 0.5}},
        hooks={"after_each": [{"command": "echo done"}]},
    )  # fmt: skip
    shop.build()
    manifest = read_manifest(shop.out)
    assert manifest.execution.env == {"A": "${B}", "C": "d"}
    assert manifest.execution.timeout == 9
    assert [judge.name for judge in manifest.judges] == ["j"]
    assert manifest.permissions.deny == ("WebFetch",)
    assert manifest.thresholds["j"].min_mean == 0.5
    assert [hook.command for hook in manifest.hooks_after.after_each] == ["echo done"]
    assert [handler.patterns for handler in manifest.handlers] == [("AskUserQuestion",), ("mcp__tracker__*",)]
    first = manifest.tasks[0]
    assert (first.case_id, first.directory, first.name) == ("c0", "c0", "shop/c0")
    assert str(shop.root) not in (shop.out / ".harbor-pack/build.json").read_text()


def test_the_policy_of_the_eval_itself_lies_ready_for_probes(shop: Author) -> None:
    shop.build()
    probe = shop.out / ".harbor-pack/probe"
    assert json.loads((probe / "tool_handlers.yaml").read_text())["case_overrides"] == {}
    assert (probe / "hooks/tools.py").is_file()
    assert (probe / ".claude/settings.json").is_file()


def test_a_folder_that_no_build_wrote_is_no_build(tmp_path: Path) -> None:
    with pytest.raises(AuthorError, match="run harbor-pack build"):
        read_manifest(tmp_path)
    (tmp_path / ".harbor-pack").mkdir()
    (tmp_path / ".harbor-pack/build.json").write_text('{"schema": 1}')
    with pytest.raises(AuthorError, match="build the eval again"):
        read_manifest(tmp_path)


class TestCheck:
    def test_it_says_what_build_would_and_writes_nothing(self, shop: Author) -> None:
        shop.write("cases/c1/input.yaml", "other: 1\n")
        shop.write("cases/c2/input.yaml", "prompt: [unclosed\n")
        shop.eval(execution={"prompt": "{{ input.prompt }}", "timout": 5})
        before = sorted(shop.root.rglob("*"))
        report = check(shop.root)
        said = "\n".join(map(str, report.problems.errors))
        assert ["timout" in said, "c1" in said, "c2" in said] == [True, True, True]
        assert sorted(shop.root.rglob("*")) == before
        assert not shop.out.exists()
        assert set(shop.refused()) == set(map(str, report.problems.errors))

    def test_it_never_raises_for_what_the_author_wrote(self, author: Author) -> None:
        assert check(author.root).problems.errors
        author.write("eval.yaml", "- a list\n")
        assert check(author.root).problems.errors
        author.write("eval.yaml", b"\xff\xfe")
        assert check(author.root / "eval.yaml").problems.errors

    def test_it_reports_matches_cases_and_what_is_not_packed(self, shop: Author) -> None:
        shop.eval(mlflow={"experiment": "x"})
        report = check(shop.root)
        assert report.cases == 3
        assert report.not_packed == ("mlflow",)
        assert [patterns for _match, patterns in report.matches] == [("AskUserQuestion",), ("mcp__tracker__*",)]
        assert any("mlflow is not packed" in str(problem) for problem in report.problems.warnings)

    def test_an_eval_without_judges_is_noted_and_strict_leaves_it(self, author: Author) -> None:
        author.case("c1")
        author.eval(judges=[{"name": "j", "check": "return True"}])
        assert "no-judges" not in {problem.code for problem in check(author.root).problems}
        author.eval(judges=[])
        for strict in (False, True):
            report = check(author.root, strict=strict)
            assert report.problems.errors == []
            [said] = [str(problem) for problem in report.problems if problem.code == "no-judges"]
            assert said.startswith(f"{author.root}/eval.yaml:1: the eval has no judges: its trials end unjudged")
        author.build(strict=True)

    def test_an_eval_whose_judges_are_faulty_is_not_one_without(self, author: Author) -> None:
        author.case("c1")
        author.eval(judges=[{"check": "return True"}])
        assert "no-judges" not in {problem.code for problem in check(author.root).problems}

    def test_strict_makes_errors_of_warnings_in_both(self, shop: Author) -> None:
        shop.eval(mlflow={})
        assert not check(shop.root).problems.errors
        assert check(shop.root, strict=True).problems.errors
        assert any("mlflow" in said for said in shop.refused(strict=True))
        assert not shop.out.exists()

    def test_secrets_in_case_files_are_warned_of_by_line(self, shop: Author) -> None:
        shop.write("cases/c1/files/config.py", "a = 1\nKEY = 'sk-ant-api03-abcdefghij'\n")
        shop.write("cases/c1/files/.env", "X=1\n")
        said = [one for one in shop.warned() if "secret" in one]
        assert any("config.py:2" in one for one in said)
        assert any(".env" in one for one in said)
        assert not any("abcdefghij" in one for one in said)

    def test_only_the_cases_asked_for_are_looked_at(self, shop: Author) -> None:
        shop.write("cases/c2/input.yaml", "other: 1\n")
        assert not check(shop.root, only=["c0"]).problems.errors
        (problem,) = check(shop.root, only=["c9"]).problems.errors
        assert "c9" in str(problem)


class TestOnly:
    def test_the_folder_holds_exactly_the_cases_asked_for(self, shop: Author) -> None:
        shop.build()
        report = shop.build(only=["c1"])
        assert (report.tasks, report.written, report.removed) == (1, 0, 2)
        assert sorted(path.name for path in shop.out.iterdir()) == [".harbor-pack", "c1"]
        assert shop.build().written == 2

    def test_an_unknown_case_is_an_error_that_names_it(self, shop: Author) -> None:
        assert "c9" in shop.refused(only=["c9", "c1"])[0]
        assert not shop.out.exists()


class TestSameInputsSameBytes:
    def test_whoever_builds_wherever_and_whenever(self, shop: Author, tmp_path: Path) -> None:
        shop.build()
        other = tmp_path / "elsewhere" / "deep"
        shutil.copytree(shop.root, other)
        for path in other.rglob("*"):
            os.utime(path, (1, 1))
        out = tmp_path / "other-out"
        env = {
            **os.environ, "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo", "LC_ALL": "C", "USER": "somebody",
            "PYTHONPATH": ":".join(sys.path),
        }  # fmt: skip
        command = f'umask 077; exec "{sys.executable}" -c "$0" "$@"'
        subprocess.run(
            ["sh", "-c", command, IN_A_PROCESS, str(other), str(out), "2"], env=env, cwd=tmp_path, check=True
        )
        assert shop.contents(out) == shop.contents()

    def test_by_however_many_processes(self, shop: Author, tmp_path: Path) -> None:
        shop.build(jobs=1)
        for jobs in (2, 5):
            out = tmp_path / f"by-{jobs}"
            command = [sys.executable, "-c", IN_A_PROCESS, str(shop.root), str(out), str(jobs)]
            subprocess.run(command, env={**os.environ, "PYTHONPATH": ":".join(sys.path)}, check=True)
            assert shop.contents(out) == shop.contents()

    def test_nothing_of_the_host_is_in_it(self, shop: Author) -> None:
        shop.build()
        host = [str(shop.root).encode(), str(shop.out).encode(), os.uname().nodename.encode()]
        for path, (_mode, content) in shop.contents().items():
            if content is not None and not path.endswith((".py",)):
                assert not any(word in content for word in host), path


class TestJobs:
    def test_errors_of_all_cases_are_collected_by_any_number_of_processes(self, shop: Author) -> None:
        for number in range(3, 9):
            shop.write(f"cases/c{number}/input.yaml", "other: 1\n")
        one = shop.refused(jobs=1)
        env = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
        command = [
            sys.executable,
            "-m",
            "harbor_tasks.cli",
            "build",
            str(shop.root),
            "-o",
            str(shop.out),
            "--jobs",
            "3",
        ]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert len(one) == 6
        for said in one:
            assert said.split(": ", 1)[1] in done.stderr
        assert "Traceback" not in done.stderr
        assert not shop.out.exists()

    def test_progress_is_told_up_to_the_last_task(self, shop: Author) -> None:
        told: list[tuple[int, int]] = []
        shop.build(progress=lambda done, total: told.append((done, total)))
        assert told[0][0] < 3
        assert told[-1] == (3, 3)
        assert {total for _done, total in told} == {3}


@pytest.mark.parametrize("name", ["input.yaml", "answers.yaml", "annotations.yaml", "replay.yaml", "solution"])
def test_a_pipe_in_a_files_place_is_an_error_by_path_and_not_waited_for(author: Author, name: str) -> None:
    folder = author.case("c1")
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    (said,) = author.refused()
    assert said.startswith(f"{folder / name} (case c1): ")
    assert [str(one) for one in check(author.root).problems.errors] == [said]


@pytest.mark.parametrize("key", ["inputs", "judges", "handlers"])
@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_a_prompt_file_that_is_no_file_is_one_error(author: Author, key: str, kind: str) -> None:
    author.case("c1")
    if kind == "pipe":
        os.mkfifo(author.root / "more.md")
    else:
        (author.root / "more.md").mkdir()
    if key == "inputs":
        author.eval(inputs={"tools": [{"match": "AskUserQuestion", "prompt_file": "more.md"}]})
    elif key == "judges":
        author.eval(judges=[{"name": "j", "prompt_file": "more.md"}])
    else:
        author.write("tool_handlers.yaml", "handlers:\n- {match: a, patterns: [WebFetch], prompt_file: more.md}\n")
    (said,) = author.refused()
    assert "prompt_file is not a file" in said


@pytest.mark.parametrize("name", ["eval.yaml", "tool_handlers.yaml", ".mcp.json"])
def test_a_pipe_in_the_place_of_a_file_of_the_eval_is_not_waited_for(author: Author, name: str) -> None:
    author.case("c1")
    author.eval()
    (author.root / name).unlink(missing_ok=True)
    os.mkfifo(author.root / name)
    (said,) = author.refused()
    assert said == f"{author.root / name}: is not a regular file"


@pytest.mark.parametrize(
    "execution", [{}, {"prompt": " "}, {"skill": ""}, {"steps": []}, {"steps": [{}]}, {"steps": [{"id": "a"}]}], ids=str
)
def test_an_eval_that_runs_nothing_is_one_error_and_none_of_its_cases(
    author: Author, execution: dict[str, object]
) -> None:
    author.case("c1")
    author.eval(execution=execution)
    (said,) = author.refused()
    assert said.startswith(f"{author.root}/eval.yaml:1: execution")
    assert [str(one) for one in check(author.root).problems.errors] == [said]


@pytest.mark.parametrize(
    "judge",
    [
        {"module": "gone"},
        {"builtin": "cost_budget", "arguments": []},
        {"builtin": "nope"},
        {"prompt_file": ""},
    ],
    ids=str,
)  # fmt: skip
def test_a_faulty_judge_is_one_error(author: Author, judge: dict[str, object]) -> None:
    author.case("c1")
    author.eval(judges=[{"name": "a", "check": "return True", "step": 3}, {"name": "b", **judge}])
    first, second = author.refused()
    assert "judges[0].step" in first
    assert "judges[1]" in second


def test_a_faulty_step_shifts_no_index(author: Author) -> None:
    author.case("c1")
    steps = [{"id": "a"}, {"prompt": "p"}, {"id": "c", "prompt": "{{ input.gone }}"}, {"id": "d", "skill": "nope"}]
    author.eval(execution={"steps": steps})
    said = author.refused()
    places = [
        "execution.steps[1].id",
        "execution.steps[0] must",
        "execution.steps[2].prompt",
        "execution.steps[3].skill",
    ]
    assert len(said) == 4
    assert all(any(place in one for one in said) for place in places), said


UNREADABLE = [
    ".claude", ".claude/skills", "CLAUDE.md", ".claude/skills/tidy/SKILL.md", ".mcp.json", "tool_handlers.yaml",
    "cases", "cases/c1/answers.yaml", "cases/c1/files", "plug", "plug/.claude-plugin", "quality.py", "words.py",
    "pack/data", "more.md", "image/.dockerignore",
]  # fmt: skip


@pytest.mark.parametrize("path", UNREADABLE)
def test_what_may_not_be_read_is_an_error_by_path_and_no_traceback(author: Author, path: str) -> None:
    with tempfile.TemporaryDirectory() as folder:  # others may look into it, as they may not into pytest's own
        author = replace(author, root=Path(folder) / "project", out=Path(folder) / "tasks")
        (author.root / ".git").mkdir(parents=True)
        author.case("c1")
        author.write(".claude/skills/tidy/SKILL.md", "# tidy\n")
        author.write("plug/.claude-plugin/plugin.json", '{"name": "plug"}')
        author.write("quality.py", "import words\nfrom pack import data\ndef judge(outputs): return True\n")
        author.write("pack/__init__.py")
        author.write("image/Dockerfile", "FROM debian:bookworm\n")
        for name in ("words.py", "pack/data/x.txt", "more.md", "cases/c1/files/x.txt"):
            author.write(name, "x = 1\n")
        author.eval(
            runner={"plugin_dirs": ["plug"]}, sandbox={"dockerfile": "image/Dockerfile"},
            judges=[{"name": "m", "module": "quality", "function": "judge"}, {"name": "p", "prompt_file": "more.md"}],
        )  # fmt: skip
        assert not check(author.root).problems.errors  # so that all that is needed is loaded
        place = author.root / path
        if not place.exists():
            author.write(path, "{}")
        for above in (Path(folder), author.root):
            above.chmod(0o755)
        place.chmod(0)
        root = os.geteuid() == 0
        if root:
            os.seteuid(65534)
        try:
            errors = [str(one) for one in check(author.root).problems.errors]
        finally:
            if root:
                os.seteuid(0)
        place.chmod(0o755)
        assert any(path in one and ("be read" in one or "not readable" in one) for one in errors), errors


def test_a_model_judge_comes_with_its_script_and_other_evals_without(author: Author) -> None:
    author.eval(
        judges=[{"name": "a", "prompt": "Rate {{ outputs }} by {{ annotations.kind }} for {{ input.prompt }}."}]
    )
    author.case("c1", **{"annotations.yaml": "kind: x\n"})
    author.build()
    assert (author.task() / "tests" / "judge.py").is_file()
    author.eval(judges=[{"name": "a", "check": "return True"}])
    author.build()
    assert not (author.task() / "tests" / "judge.py").exists()


def test_what_a_judges_prompt_names_and_a_case_lacks_is_an_error_of_that_case(author: Author) -> None:
    author.write("rate.md", "Rate {{ outputs }}\nby {{ annotations.gold }}.")
    prompt = "{{ annotations.kind.name }} {{ input.urgency }}"
    author.eval(
        judges=[
            {"name": "a", "prompt": prompt},
            {"name": "b", "prompt_file": "rate.md"},
            {"name": "c", "prompt": "{{ annotations.gold }} {{ outputs.files.gone }}", "if": "annotations.get('gold')"},
        ]
    )
    author.case("fine", **{"annotations.yaml": "kind: {name: x}\ngold: y\n"})
    author.write("cases/fine/input.yaml", "prompt: p\nurgency: high\n")
    author.case("bare", **{"annotations.yaml": "kind: plain\n"})
    said = [line.partition(": ")[2] for line in author.refused()]
    hint = "; add it there, or give the judge an `if` that skips such cases"
    assert said == [
        "judge 'a': {{ annotations.kind.name }} is not in this case's annotations" + hint,
        "judge 'a': {{ input.urgency }} is not in this case's input" + hint,
        "judge 'b': {{ annotations.gold }} is not in this case's annotations" + hint,
    ]
    assert all("(case bare)" in line for line in author.refused())
