"""Cases: which folders are cases, what of them goes where, and what is refused by path without being opened."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec import Case, CaseFile, Eval, inputs_of, list_cases, read_case, warn_of_secrets
from tests.kit import put_special

Load = Callable[..., Any]


class Desk:
    """An eval with one case, `one`."""

    def __init__(self, ev: Eval, root: Path) -> None:
        self.eval, self.cases, self.problems = ev, root / "cases", Problems()
        self.one = self.cases / "one"
        self.one.mkdir(parents=True)
        (self.one / "input.yaml").write_text("prompt: x\n")

    def put(self, path: str, content: str | bytes = "x\n") -> Path:
        file = self.one / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    def read(self) -> Case:
        case = read_case(self.eval, self.one, self.problems)
        assert case is not None, self.said
        return case

    @property
    def said(self) -> list[str]:
        return [str(problem).replace(f"{self.cases}/", "") for problem in self.problems]


@pytest.fixture
def desk(load: Load, tmp_path: Path) -> Desk:
    return Desk(load().ok, tmp_path)


def shape(files: tuple[CaseFile, ...]) -> list[tuple[str, int, bool]]:
    return [(file.path, file.mode, file.is_dir) for file in files]


def test_cases_are_folders_with_an_input(desk: Desk) -> None:
    for name, file in [
        ("two", "input.yml"),
        ("Größe 42 (Final)", "input.json"),
        ("-rf", "input.yaml"),
        ("CON", "input.yaml"),
        ("a..b", "input.yaml"),
        (".hidden", "input.yaml"),
        (".git", "input.yaml"),
        ("__pycache__", "input.yaml"),
        ("notes", "README.md"),
        ("half", "answers.yaml"),
    ]:
        (desk.cases / name).mkdir()
        (desk.cases / name / file).write_text("{}")
    (desk.cases / "README.md").write_text("no case")
    found = [case.name for case in list_cases(desk.eval, desk.problems)]
    assert found == ["-rf", "CON", "Größe 42 (Final)", "a..b", "one", "two"]
    assert desk.said == ["half: is no case: it holds answers.yaml but no input file; "
                         "a case has an input.yaml or input.yml or input.json"]  # fmt: skip


def test_cases_are_chosen_by_id(desk: Desk) -> None:
    (desk.cases / "two").mkdir()
    (desk.cases / "two" / "input.yaml").write_text("prompt: y\n")
    assert [case.name for case in list_cases(desk.eval, desk.problems, ["two"])] == ["two"]
    assert not desk.said
    assert [case.name for case in list_cases(desk.eval, desk.problems, ["one", "c9", "onee"])] == ["one"]
    assert [problem.code for problem in desk.problems.errors] == ["no-such-case"] * 2
    assert "there is no case c9; known: one, two" in desk.said[0]
    assert "did you mean 'one'?" in desk.said[1]


def test_no_case_is_an_error_that_names_the_folder(desk: Desk, load: Load) -> None:
    (desk.one / "input.yaml").unlink()
    assert list_cases(desk.eval, desk.problems) == []
    assert "cases holds no case" in desk.said[0]
    loaded = load(dataset={"path": "gone"})
    assert list_cases(loaded.ok, loaded.problems) == []
    assert "dataset.path does not exist" in loaded.errors[0]
    loaded = load(dataset={"path": "eval.yaml"})
    assert list_cases(loaded.ok, loaded.problems) == []
    assert "is not a folder" in loaded.errors[0]


def test_two_inputs_are_an_error(desk: Desk) -> None:
    desk.put("input.json", "{}")
    assert read_case(desk.eval, desk.one, desk.problems) is None
    assert "has input.yaml and input.json" in desk.said[0]


def test_files_go_where_they_belong(desk: Desk) -> None:
    desk.put("files/.env.sample")
    desk.put("files/a b.txt")
    desk.put("files/bin/run.sh", "#!/bin/sh\n").chmod(0o755)
    (desk.one / "files/keep/empty").mkdir(parents=True)
    desk.put("files/.dockerignore", "**\n")
    desk.put("files/Dockerfile", "FROM x\n")
    desk.put("files/.claude/skills/s/SKILL.md")
    desk.put("solution/solve.sh", "#!/bin/sh\n")
    desk.put("solution/plan/solve.sh", "#!/bin/sh\n")
    desk.put("answers.yaml", "q: a\n")
    desk.put("annotations.yaml", "label: 08\nn: 1\n")
    desk.put("replay.yaml", "[]\n")
    desk.put("reference/gold.md")
    desk.put("expected.json")
    for junk in ("__pycache__/x.pyc", ".git/config", ".DS_Store", "reference/__pycache__/x.pyc"):
        desk.put(junk)
    case = desk.read()
    assert not desk.said
    assert shape(case.files) == [
        (".claude/skills/s/SKILL.md", 0o644, False),
        (".dockerignore", 0o644, False),
        (".env.sample", 0o644, False),
        ("Dockerfile", 0o644, False),
        ("a b.txt", 0o644, False),
        ("bin/run.sh", 0o755, False),
        ("keep/empty", 0o755, True),
    ]
    assert [file.path for file in case.solution] == ["plan/solve.sh", "solve.sh"]
    assert [file.path for file in case.references] == ["expected.json", "reference/gold.md"]
    assert (case.annotations, case.overrides) == ({"label": "08", "n": 1}, {"q": "a"})
    assert case.replay_file == desk.one / "replay.yaml"
    assert case.files[4].source.read_text() == "x\n"


def test_more_of_a_case_goes_to_the_workspace_when_it_is_listed(desk: Desk, load: Load) -> None:
    desk.put("docs/guide.md")
    desk.put("docs/deep/more.md")
    desk.put("gold/answer.md")
    desk.put("files/own.txt")
    desk.eval = load(dataset={"path": "cases", "workspace": {"files": ["docs", "files/own.txt", "gone.txt"]}}).ok
    case = desk.read()
    assert [file.path for file in case.files] == ["docs/deep/more.md", "docs/guide.md", "own.txt"]
    assert [file.path for file in case.references] == ["gold/answer.md"]
    assert [problem.code for problem in desk.problems] == ["missing-file"]


@pytest.mark.parametrize("listed", ["answers.yaml", "annotations.yaml", "solution/solve.sh", "./answers.yaml", "."])
def test_what_the_agent_must_not_see_cannot_be_listed(desk: Desk, load: Load, listed: str) -> None:
    desk.put("answers.yaml", "q: a\n")
    desk.put("annotations.yaml", "a: b\n")
    desk.put("solution/solve.sh")
    desk.eval = load(dataset={"path": "cases", "workspace": {"files": [listed]}}).ok
    assert desk.read().files == ()
    assert [problem.code for problem in desk.problems.errors] == ["answers-leak"]


def test_two_files_at_one_place_are_an_error(desk: Desk, load: Load) -> None:
    desk.put("files/a.txt")
    desk.put("a.txt")
    desk.eval = load(dataset={"path": "cases", "workspace": {"files": ["a.txt"]}}).ok
    desk.read()
    assert [problem.code for problem in desk.problems] == ["clash"]


@pytest.mark.parametrize(
    "path",
    [
        ".claude/settings.json",
        ".claude/settings.local.json",
        ".codex/hooks.json",
        "hooks/tools.py",
        "tool_handlers.yaml",
        "setup",
        "setup/x",
        ".claude",
    ],
)
def test_a_file_at_a_policy_path_is_an_error(desk: Desk, path: str) -> None:
    desk.put(f"files/{path}")
    desk.read()
    assert [problem.code for problem in desk.problems.errors] == ["policy-path"]
    assert desk.said[0].startswith(f"one/files/{path} (case one): would lie at {path}")


@pytest.mark.parametrize("path", ["hooks/other.py", ".claude/commands/x.md", "src/setup", "settings.json", "setup.py"])
def test_files_near_the_policy_are_fine(desk: Desk, path: str) -> None:
    desk.put(f"files/{path}")
    assert len(desk.read().files) == 1
    assert not desk.said


def test_batch_yaml_is_taken_in_batch_mode(desk: Desk, load: Load) -> None:
    desk.put("files/batch.yaml")
    desk.read()
    assert not desk.said
    desk.eval = load(execution={"mode": "batch", "skill": "s"}).ok
    desk.read()
    assert [problem.code for problem in desk.problems] == ["policy-path"]


def test_links_in_the_case_become_files(desk: Desk) -> None:
    desk.put("files/a/real.sh", "#!/bin/sh\n").chmod(0o755)
    (desk.one / "files/link.sh").symlink_to("a/real.sh")
    (desk.one / "files/folder").symlink_to("a")
    desk.put("gold.md")
    (desk.one / "files/shared.md").symlink_to("../gold.md")
    assert shape(desk.read().files) == [
        ("a/real.sh", 0o755, False),
        ("folder/real.sh", 0o755, False),
        ("link.sh", 0o755, False),
        ("shared.md", 0o644, False),
    ]
    assert not desk.said


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("/etc/hostname", "is a link that leaves the case"),
        ("../../two/input.yaml", "is a link that leaves the case"),
        ("../..", "is a link that leaves the case"),
        ("gone", "is a link that leads nowhere"),
        (".", "is a link to a folder that it lies in"),
        ("..", "is a link to a folder that it lies in"),
        ("../answers.yaml", "is a link to answers.yaml"),
        ("../solution", "is a link to solution"),
        ("../solution/solve.sh", "is a link to solution/solve.sh"),
        ("loop", "is a link that leads nowhere"),
    ],
)
def test_other_links_are_errors_by_path(desk: Desk, target: str, says: str) -> None:
    desk.put("files/ok.txt")
    desk.put("answers.yaml", "q: a\n")
    desk.put("solution/solve.sh")
    (desk.cases / "two").mkdir()
    (desk.cases / "two" / "input.yaml").write_text("prompt: y\n")
    (desk.one / "files/loop").symlink_to(target)
    assert [file.path for file in desk.read().files] == ["ok.txt"]
    (said,) = desk.said
    assert f"one/files/loop (case one): {says}" in said


def test_links_in_a_circle_end(desk: Desk) -> None:
    desk.put("files/a/x")
    desk.put("files/b/y")
    (desk.one / "files/a/b").symlink_to("../b")
    (desk.one / "files/b/a").symlink_to("../a")
    assert [file.path for file in desk.read().files] == ["a/b/y", "a/x", "b/a/x", "b/y"]
    assert [problem.code for problem in desk.problems] == ["link", "link"]
    assert "one/files/a/b/a (case one): is a link to a folder that it lies in" in desk.said[0]


def test_a_case_that_is_a_link_stays_in_the_project(desk: Desk, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "input.yaml").write_text("prompt: x\n")
    (desk.cases / "far").symlink_to(elsewhere)
    (desk.cases / "near").symlink_to("one")
    assert read_case(desk.eval, desk.cases / "near", desk.problems)
    assert not desk.said
    assert read_case(desk.eval, desk.cases / "far", desk.problems) is None
    assert "is a link that leaves the project" in desk.said[0]


def test_special_files_are_errors_by_path_and_not_opened(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.put("files/ok.txt")
    os.mkfifo(desk.one / "files/pipe")
    with socket.socket(socket.AF_UNIX) as sock, monkeypatch.context() as there:
        there.chdir(desk.one / "files")  # the path of a socket must be short
        sock.bind("sock")
    desk.put("files/secret").chmod(0)
    (desk.one / "files/Dockerfile").mkdir()
    desk.put("files/n\nl.txt")
    (desk.one / "files" / os.fsdecode(b"caf\xe9.txt")).write_text("x")
    assert [file.path for file in desk.read().files] == ["ok.txt"]
    said = "\n".join(desk.said)
    assert "one/files/pipe (case one): is a FIFO" in said
    assert "one/files/sock (case one): is a socket" in said
    assert "one/files/secret (case one): is not readable (mode 0000)" in said
    assert "one/files/Dockerfile (case one): is a folder" in said
    assert r"'files/n\nl.txt' has a control character in its name" in said
    assert r"'files/caf\udce9.txt' has bytes in its name that are not UTF-8" in said
    assert len(desk.said) == 6


@pytest.mark.parametrize("name", ["input.yaml", "answers.yaml", "annotations.yaml", "replay.yaml"])
def test_special_data_files_are_not_opened(desk: Desk, name: str) -> None:
    (desk.one / name).unlink(missing_ok=True)
    os.mkfifo(desk.one / name)
    read_case(desk.eval, desk.one, desk.problems)
    assert f"one/{name} (case one): is a FIFO" in desk.said[0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"a": 1,\n "b": 2,\n}\n', "input.json:3 (case one): is not valid JSON: "),
        ('{\n "a": 1, # c\n "b": 2}\n', "input.json:2 (case one): is not valid JSON: "),
        ("{'a': 1}\n", "input.json:1 (case one): is not valid JSON: "),
        ("{a: 1}\n", "input.json:1 (case one): is not valid JSON: "),
        ("a: 1\n", "input.json:1 (case one): is not valid JSON: "),
        ('{"b": 1,\n"a": NaN}\n', "input.json:2 (case one): is not valid JSON: it holds NaN or Infinity"),
        ('{"a": 1,\n "a": 2}\n', "input.json:2 (case one): duplicate key a"),
    ],
)
def test_an_input_json_that_is_no_json_is_refused_with_its_line(desk: Desk, text: str, says: str) -> None:
    (desk.one / "input.yaml").unlink()
    desk.put("input.json", text)
    read_case(desk.eval, desk.one, desk.problems)
    (said,) = desk.said
    assert said.startswith(f"one/{says}")
    assert ("rename the file to input.yaml" in said) is ("JSON" in said)


def test_an_input_json_may_have_a_mark_and_a_lone_value(desk: Desk) -> None:
    (desk.one / "input.yaml").unlink()
    for text, data in (('\ufeff{"a": "\\ud83d\\ude00"}\r\n', {"a": "\U0001f600"}), ("5", 5), ('"x"', "x")):
        desk.put("input.json", text)
        assert desk.read().input == data
    assert not desk.said


@pytest.mark.parametrize("name", ["answer.yaml", "answer.json", "annotation.yaml", "annotation.yml", "answers.yml"])
def test_a_file_of_a_name_that_is_nearly_right_is_warned_of(desk: Desk, name: str) -> None:
    desk.put(name, "q: a\n")
    desk.read()
    right = "answers.yaml" if name.startswith("ans") else "annotations.yaml"
    assert desk.said == [f"one/{name} (case one): is not read; rename it to {right}"]


def test_answers_become_overrides(desk: Desk) -> None:
    desk.put(
        "answers.yaml",
        "Proceed?: No\nCountry?: NO\non: off\nVersion?: 1.10\nWhich?: [a, 1.0]\nEmpty?:\nnotes: {a: b}\n"
        "rows: [{a: 1}]\n"
        "case_overrides:\n  Proceed?: Yes\n  Colours?: [red, no]\n",
    )
    assert desk.read().overrides == {
        "Proceed?": "Yes", "Country?": "NO", "on": "off", "Version?": "1.10", "Which?": ["a", "1.0"], "Empty?": "",
        "Colours?": ["red", "no"],
    }  # fmt: skip
    assert not desk.said


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- a\n", "answers.yaml:1 (case one): must be a mapping of questions and answers, not a list"),
        ("a: b\ncase_overrides: [x]\n", "answers.yaml:2 (case one): case_overrides must be a mapping"),
        (
            "case_overrides:\n  q: {a: b}\n",
            "answers.yaml:2 (case one): the answer to 'q' must be a text or a list of texts",
        ),
        ("Colour?: red\nColour?: blue\n", "answers.yaml:2 (case one): duplicate key Colour? (line 2, first at line 1)"),
    ],
)
def test_wrong_answers_are_errors(desk: Desk, text: str, says: str) -> None:
    desk.put("answers.yaml", text)
    desk.read()
    assert says in desk.said[0]
    assert len(desk.problems.errors) == 1


def test_a_broken_input_is_an_error_with_the_case(desk: Desk) -> None:
    desk.put("input.yaml", "prompt: Größe\n".encode("latin-1"))
    desk.put("answers.yaml", "a: 1\na: 2\n")
    assert read_case(desk.eval, desk.one, desk.problems) is None
    assert len(desk.problems.errors) == 2  # of both files at once
    assert all("(case one)" in said for said in desk.said)


def test_names_that_are_not_read_are_warned_of(desk: Desk) -> None:
    desk.put("answers.yml", "q: a\n")
    case = desk.read()
    assert case.overrides == {}
    assert desk.said == ["one/answers.yml (case one): is not read; rename it to answers.yaml"]


def test_scripts_with_crlf_are_warned_of_and_data_is_not(desk: Desk) -> None:
    desk.put("files/run.sh", "#!/bin/sh\r\necho\r\n")
    desk.put("files/data.txt", "a\r\n")
    desk.put("solution/solve.sh", "true\r\n")
    desk.put("input.yaml", "prompt: |\r\n  one\r\n  two\r\n")
    assert desk.read().input == {"prompt": "one\ntwo\n"}
    assert [said.split(" ")[0] for said in desk.said] == ["one/files/run.sh", "one/solution/solve.sh"]
    assert {problem.code for problem in desk.problems} == {"crlf"}


def test_secrets_in_case_files_are_warned_of_by_path_and_line(desk: Desk) -> None:
    desk.put("files/.env", "TOKEN=hunter2-9\n")
    desk.put("files/.env.sample", "TOKEN=\n")
    desk.put("files/notes.md", "a\nb\nkey: sk-ant-abcdefghijklmnop\n")
    desk.put("files/id_rsa", "x\n")
    desk.put("reference/key.txt", "-----BEGIN OPENSSH PRIVATE KEY-----\nx\n")
    desk.put("input.yaml", "prompt: use AKIAIOSFODNN7EXAMPLE\n")
    desk.put("files/big.bin", b"\0" * 300_000 + b"sk-ant-abcdefghijklmnop")
    warn_of_secrets(desk.read(), desk.problems)
    assert {said.partition(" ")[0] for said in desk.said} == {
        "one/input.yaml:1", "one/files/.env", "one/files/notes.md:3", "one/files/id_rsa", "one/reference/key.txt:1",
    }  # fmt: skip
    assert {(problem.level, problem.code) for problem in desk.problems} == {("warning", "secret")}
    assert not any("hunter2" in said or "AKIA" in said for said in desk.said)


def test_inputs_of_a_case_are_all_its_paths(desk: Desk) -> None:
    desk.put("files/a/b.txt")
    (desk.one / "files/link").symlink_to("a")
    (desk.one / "empty").mkdir()
    found = [str(path.relative_to(desk.one)) for path in inputs_of(desk.eval, desk.one)]
    assert sorted(found) == [".", "empty", "files", "files/a", "files/a/b.txt", "files/link", "input.yaml"]


def test_a_small_case_is_read_in_no_time(desk: Desk) -> None:
    """A build has 3 ms of CPU for a case; reading takes about a tenth of that. The bound is loose: machines differ."""
    desk.put("answers.yaml", "Proceed?: No\nWhich?: [a, b]\n")
    desk.put("files/README.md")
    desk.read()
    best = min(_cpu_of(desk, time.process_time) for _ in range(5))
    assert best < 0.0015


def _cpu_of(desk: Desk, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(40):
        desk.read()
    return (clock() - start) / 40


@pytest.mark.parametrize("name", ["input.yaml", "answers.yaml", "annotations.yaml", "replay.yaml"])
@pytest.mark.parametrize("kind", ["fifo", "folder", "full folder", "/dev/zero", "gone.yaml"])
def test_what_is_no_file_is_one_error_by_path_and_no_part_of_the_case(desk: Desk, name: str, kind: str) -> None:
    put_special(desk.one / name, kind)
    case = read_case(desk.eval, desk.one, desk.problems)
    assert len(desk.said) == 1, desk.said
    assert desk.said[0].startswith(f"one/{name} (case one): ")
    if name == "input.yaml":
        assert case is None
    else:
        assert case is not None
        assert (case.answers_file, case.annotations_file, case.replay_file) == (None, None, None)


@pytest.mark.parametrize("name", ["files", "solution"])
@pytest.mark.parametrize("kind", ["fifo", "/dev/zero", "input.yaml", "gone"])
def test_what_must_be_a_folder_is_an_error_by_path(desk: Desk, name: str, kind: str) -> None:
    put_special(desk.one / name, kind)
    case = desk.read()
    assert (case.files, case.solution) == ((), ())
    (said,) = desk.said
    assert said.startswith(f"one/{name} (case one): must be a folder")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("Go on?: yes\nwhich: a\ngo  ON?: no\n", (3, 1)),
        ("case_overrides:\n  Go on?: yes\n  'go on? ': [no]\n", (3, 2)),
        ('{"Go on?": "1",\n "go on?": "1.0"}', (2, 1)),
    ],
)
def test_one_question_with_two_answers_is_an_error_with_both_lines(
    desk: Desk, text: str, lines: tuple[int, int]
) -> None:
    desk.put("answers.yaml", text)
    desk.read()
    (said,) = desk.said
    assert said.startswith(f"one/answers.yaml:{lines[0]} (case one): ")
    assert f"is the same question as 'Go on?' (line {lines[1]}) with another answer" in said


@pytest.mark.parametrize(
    "text", ["Go on?: yes\ngo ON?: yes\n", "Go on?: yes\ncase_overrides: {go on?: no}\n", "a: {x: 1}\nA: {x: 2}\n"]
)
def test_the_same_answer_twice_and_an_override_are_fine(desk: Desk, text: str) -> None:
    desk.put("answers.yaml", text)
    desk.read()
    assert desk.said == []


@pytest.mark.parametrize("name", ["tool_handlers.yaml", "tool_handlers.yml", "tool_handlers.json"])
def test_handlers_in_a_case_are_not_read(desk: Desk, name: str, tmp_path: Path, load: Load) -> None:
    desk.put(name, "handlers: []\n")
    desk.read()
    (problem,) = desk.problems.errors
    assert "tool_handlers.yaml beside eval.yaml" in str(problem)
    (tmp_path / "tool_handlers.yaml").write_text("handlers: []\n")
    desk.eval, desk.problems = load().ok, Problems()
    desk.read()
    assert [problem.level for problem in desk.problems] == ["warning"]
