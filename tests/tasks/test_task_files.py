"""What a task directory holds for a case: files, their places, their bytes."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from harbor_tasks.tasks.conformance import faults_on_disk
from harbor_tasks.tasks.manifest import read_manifest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.tasks.conftest import Author

ASK = {"inputs": {"tools": [{"match": "Questions via AskUserQuestion"}]}}


def toml(author: Author, task: str = "c1") -> dict[str, Any]:
    return tomllib.loads(author.text("task.toml", task))


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_full_case_becomes_these_files(author: Author) -> None:
    author.eval(**ASK)
    author.case("c1")
    author.write("cases/c1/answers.yaml", "Which?: the first\n")
    author.write("cases/c1/annotations.yaml", "gold: 1\n")
    author.write("cases/c1/files/.dot", "d")
    author.write("cases/c1/files/a b.txt", "x")
    author.write("cases/c1/files/bin/run", "#!/bin/sh\n", mode=0o700)
    (author.root / "cases/c1/files/keep").mkdir()
    author.write("cases/c1/solution/solve.sh", "#!/bin/sh\n", mode=0o755)
    author.write("cases/c1/solution/more/data.txt", "1")
    author.write("cases/c1/expected/report.md", "gold")
    author.write("cases/c1/replay.yaml", "- {tool: Bash, input: {command: ls}}\n- say: done\n")
    author.build()
    assert files(author.task()) == {
        "task.toml", "instruction.md",
        "environment/hooks/tools.py", "environment/tool_handlers.yaml", "environment/.claude/settings.json",
        "environment/input.yaml", "environment/answers.yaml", "environment/setup",
        "environment/files/.dot", "environment/files/a b.txt", "environment/files/bin/run",
        "tests/test.sh", "tests/verify.py", "tests/judges.json", "tests/initial.json", "tests/annotations.yaml",
        "tests/references/expected/report.md",
        "solution/solve.sh", "solution/more/data.txt", "solution/replay.json",
    }  # fmt: skip
    assert (author.task() / "environment/files/keep").is_dir()
    modes = {path: (author.task() / path).stat().st_mode & 0o7777 for path in files(author.task())}
    executable = {"environment/setup", "environment/files/bin/run", "tests/test.sh", "solution/solve.sh"}
    assert {path for path, mode in modes.items() if mode == 0o755} == executable
    assert {mode for path, mode in modes.items() if path not in executable} == {0o644}
    assert author.json("solution/replay.json") == [{"tool": "Bash", "input": {"command": "ls"}}, {"say": "done"}]
    assert faults_on_disk(author.task()) == []


def test_the_files_that_the_agent_starts_with_are_known_by_their_hash(author: Author) -> None:
    author.case("c1", files__x="")
    author.write("cases/c1/files/src/a.txt", "alpha")
    author.write(".claude/skills/tidy/SKILL.md", "# tidy")
    author.build()
    assert author.json("tests/initial.json") == {
        ".claude/skills/tidy/SKILL.md": hashlib.sha256(b"# tidy").hexdigest(),
        "src/a.txt": hashlib.sha256(b"alpha").hexdigest(),
    }


def test_nothing_of_the_policy_is_written_when_there_is_none(author: Author) -> None:
    author.case("c1")
    author.build()
    assert files(author.task() / "environment") == {"input.yaml", "setup"}


def test_permissions_alone_make_settings_without_a_hook(author: Author) -> None:
    author.eval(permissions={"deny": ["WebFetch"]})
    author.case("c1")
    author.build()
    assert author.json("environment/.claude/settings.json") == {"permissions": {"deny": ["WebFetch"]}}
    assert not (author.task() / "environment/hooks").exists()


def test_the_case_id_stands_in_nothing_that_reaches_the_sandbox(author: Author) -> None:
    author.eval(**ASK, judges=[{"name": "j", "check": "return True"}])
    author.case("two-reverts-expected")
    author.write("cases/two-reverts-expected/answers.yaml", "a: b\n")
    author.build()
    task = author.task("two-reverts-expected")
    for folder in ("environment", "tests"):
        for path in (task / folder).rglob("*"):
            assert "two-reverts" not in str(path.relative_to(task))
            assert not path.is_file() or b"two-reverts" not in path.read_bytes()


def test_answers_and_annotations_lie_where_the_agent_does_not_look(author: Author) -> None:
    author.eval(**ASK)
    author.case("c1")
    author.write("cases/c1/answers.yaml", "Which?: GOLD-ANSWER\n")
    author.write("cases/c1/annotations.yaml", "gold: GOLD-NOTE\n")
    author.write("cases/c1/rubric.md", "GOLD-RUBRIC\n")
    author.build()
    with_gold = {
        (word, path)
        for path in files(author.task())
        for word in ("ANSWER", "NOTE", "RUBRIC")
        if f"GOLD-{word}" in author.text(path)
    }
    assert with_gold == {
        ("ANSWER", "environment/answers.yaml"), ("ANSWER", "environment/tool_handlers.yaml"),
        ("NOTE", "tests/annotations.yaml"), ("NOTE", "tests/judges.json"),
        ("RUBRIC", "tests/references/rubric.md"),
    }  # fmt: skip


def test_windows_line_ends_and_a_bom_change_no_value_and_no_generated_file_has_them(author: Author) -> None:
    author.eval(**ASK, description="one\r\ntwo")
    author.write("eval.yaml", (author.root / "eval.yaml").read_text().replace("\n", "\r\n"))
    author.write("cases/c1/input.yaml", b"\xef\xbb\xbfprompt: |\r\n  first\r\n  second\r\n")
    author.write("cases/c1/answers.yaml", b"Which?: yes\r\n")
    author.write("cases/c1/annotations.yaml", b"a: 1\r\n")
    author.write("cases/c1/files/run.sh", b"#!/bin/sh\r\n")
    report = author.build()
    assert author.text("instruction.md") == "first\nsecond\n"
    with_cr = {path for path in files(author.task()) if b"\r" in (author.task() / path).read_bytes()}
    assert with_cr == {"environment/files/run.sh"}
    assert any("run.sh" in str(problem) and "CRLF" in str(problem) for problem in report.problems.warnings)
    assert yaml.safe_load(author.text("environment/input.yaml")) == {"prompt": "first\nsecond\n"}


def test_text_in_any_script_survives_a_locale_without_it(author: Author) -> None:
    text = "Größe ✓ 😀 \u202eabc \u2028 ende"
    author.eval(description=text)
    author.case("c1", prompt=text)
    command = [sys.executable, "-m", "harbor_tasks.cli", "build", str(author.root), "-o", str(author.out)]
    env = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(command, env=env, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (author.task() / "instruction.md").read_bytes() == text.encode()
    assert toml(author)["task"]["description"] == text


def test_half_of_a_surrogate_pair_is_an_error_with_its_case(author: Author) -> None:
    author.write("cases/c1/input.json", '{"prompt": "half: \\ud800"}')
    (said,) = author.refused()
    assert "c1" in said
    assert "surrogate" in said.lower() or "UTF-8" in said


@pytest.mark.parametrize("text", ["", "  \n "])
def test_an_empty_instruction_is_an_error(author: Author, text: str) -> None:
    author.case("c1", prompt=text)
    assert "the instruction is empty" in author.refused()[0]


def test_a_first_line_that_harbor_would_hide_is_warned_of(author: Author) -> None:
    author.case("c1", prompt="# the canary in the mine\nSing.")
    assert any("canary" in said for said in author.warned())


def test_a_batch_gets_a_list_of_its_one_input(author: Author) -> None:
    author.eval(execution={"mode": "batch", "skill": "go", "arguments": "--input batch.yaml"})
    author.write(".claude/commands/go.md", "Go.\n")
    data = {"name": "x: y # \u2028 \x7f 😀 \ufeff", "n": 1, "l": [True, None]}
    author.write("cases/c1/input.json", json.dumps(data))
    author.build()
    assert yaml.safe_load(author.text("environment/files/batch.yaml")) == [data]
    assert author.text("instruction.md") == "/go --input batch.yaml\n"
    assert list(author.json("tests/initial.json")) == [".claude/commands/go.md", "batch.yaml"]


class TestSteps:
    STEPS: tuple[dict[str, Any], ...] = (
        {"id": "plan", "skill": "plan", "arguments": "{topic}", "timeout": 5},
        {"id": "write", "prompt": "Write about {topic}."},
    )

    def build(self, author: Author, **more: Any) -> None:
        author.eval(
            execution={"steps": self.STEPS, "timeout": 77, **more},
            judges=[{"name": "early", "check": "return True", "step": "plan"}, {"name": "late", "check": "return 1"}],
        )
        author.write(".claude/skills/plan/SKILL.md", "# plan\n")
        author.write("cases/c1/input.yaml", "topic: bees\n")
        author.write("cases/c1/annotations.yaml", "gold: 1\n")
        author.write("cases/c1/expected.md", "gold")

    def test_each_step_has_its_instruction_and_a_whole_verifier(self, author: Author) -> None:
        self.build(author)
        author.build()
        assert author.text("steps/plan/instruction.md") == "/plan bees\n"
        assert author.text("steps/write/instruction.md") == "Write about bees."
        assert not (author.task() / "instruction.md").exists()
        for step in ("plan", "write"):
            assert files(author.task() / "steps" / step / "tests") == {
                "test.sh", "verify.py", "judges.json", "initial.json", "annotations.yaml", "references/expected.md",
            }  # fmt: skip
        judges = {step: author.json(f"steps/{step}/tests/judges.json")["judges"] for step in ("plan", "write")}
        assert {step: [judge["name"] for judge in found] for step, found in judges.items()} == {
            "plan": ["early"], "write": ["late"],
        }  # fmt: skip
        assert faults_on_disk(author.task()) == []

    def test_task_toml_has_the_steps_and_the_last_one_gives_the_reward(self, author: Author) -> None:
        self.build(author)
        author.build()
        data = toml(author)
        assert data["multi_step_reward_strategy"] == "final"
        assert [step["name"] for step in data["steps"]] == ["plan", "write"]
        assert [step.get("agent", {}).get("timeout_sec") for step in data["steps"]] == [5.0, None]
        assert data["agent"]["timeout_sec"] == 77.0

    def test_a_step_takes_its_own_solution_and_recorded_calls(self, author: Author) -> None:
        self.build(author)
        author.write("cases/c1/solution/plan/solve.sh", "echo plan\n", mode=0o755)
        author.write("cases/c1/solution/write/solve.sh", "echo write\n", mode=0o755)
        author.write("cases/c1/replay.yaml", "steps:\n  plan: [{say: p}]\n  write: [{say: w}]\n")
        author.build()
        assert author.text("steps/plan/solution/solve.sh") == "echo plan\n"
        assert author.json("steps/write/solution/replay.json") == [{"say": "w"}]
        assert not (author.task() / "solution").exists()

    def test_a_solution_for_all_steps_lies_beside_each_steps_recorded_calls(self, author: Author) -> None:
        self.build(author)
        author.write("cases/c1/solution/solve.sh", "echo all\n", mode=0o755)
        author.write("cases/c1/replay.yaml", "steps: {plan: [{say: p}]}\n")
        author.build()
        for step in ("plan", "write"):
            assert author.text(f"steps/{step}/solution/solve.sh") == "echo all\n"
        assert author.json("steps/write/solution/replay.json") == []

    def test_a_file_in_the_place_of_a_steps_solution_is_an_error(self, author: Author) -> None:
        self.build(author)
        author.write("cases/c1/solution/write", "echo done\n")
        (said,) = author.refused()
        assert said.startswith(f"{author.root}/cases/c1/solution/write (case c1): must be a folder")

    def test_recorded_calls_of_an_unknown_step_are_an_error(self, author: Author) -> None:
        self.build(author)
        author.write("cases/c1/replay.yaml", "steps: {planning: [{say: p}]}\n")
        assert "plan, write" in author.refused()[0]
        author.write("cases/c1/replay.yaml", "steps:\n  plan: [{say: p}]\n  wirte:\n  - tol: x\n")
        [found] = author.refused()
        assert found.endswith("/cases/c1/replay.yaml:3 (case c1): unknown step 'wirte'; did you mean 'write'?")
        author.write("cases/c1/replay.yaml", "steps:\n  plan: [{say: p}]\n  write:\n  - tol: x\n")
        assert "replay.yaml:4 (case c1): entry 1: unknown key 'tol'" in author.refused()[0]

    def test_literal_variables_of_a_step_become_settings_of_its_own(self, author: Author) -> None:
        self.build(author, env={"A": "1", "B": "1"})
        author.spec["execution"]["steps"] = [{**self.STEPS[0], "env": {"B": "2", "KEY": "$KEY"}}, self.STEPS[1]]
        author.eval(permissions={"deny": ["WebFetch"]})
        author.build()
        own = {step: author.json(f"environment/steps/{step}/settings.json") for step in ("plan", "write")}
        assert own["plan"] == {"permissions": {"deny": ["WebFetch"]}, "env": {"A": "1", "B": "2"}}
        assert own["write"]["env"] == {"A": "1", "B": "1"}
        data = toml(author)
        assert data["environment"]["env"] == {"A": "1", "B": "1", "KEY": "${KEY}"}
        assert [step["healthcheck"]["command"] for step in data["steps"]] == [
            f"/bin/sh /opt/harbor-pack/setup --step {step}" for step in ("plan", "write")
        ]
        author.eval(sandbox={"image": "some/image:1", "sealed": False})
        author.build()
        assert [step["healthcheck"]["command"] for step in toml(author)["steps"]] == [
            f"cp /opt/harbor-pack/steps/{step}/settings.json /workspace/.claude/settings.json"
            for step in ("plan", "write")
        ]


@pytest.mark.parametrize(
    ("text", "part"),
    [("- {tool: Bash}\n", "entry 1"), ("tool: Bash\n", "list"), ("- {say: x, tool: Bash}\n", "entry 1")],
)
def test_recorded_calls_that_cannot_be_played_are_an_error(author: Author, text: str, part: str) -> None:
    author.case("c1")
    author.write("cases/c1/replay.yaml", text)
    (said,) = author.refused()
    assert part in said
    assert "replay.yaml" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- say: x\n- tol: Bash\n  input: {}\n", "2 (case c1): entry 2: unknown key 'tol'; did you mean 'tool'?"),
        (
            "- tool: Bash\n  command: ls\n",
            "2 (case c1): entry 1: unknown key 'command'; known are tool, input, id, agent",
        ),
        ("- tool: Bash\n  input: {}\n  parallel: x\n", "3 (case c1): entry 1: `parallel` must be true or false"),
        ("- say: x\n- tool: Bash\n", "2 (case c1): entry 2: `input` must be a mapping"),
        ("\n- 5\n", "2 (case c1): entry 1: not a mapping"),
        ('[{"say": "x"},\n {"says": "y"}]\n', "2 (case c1): entry 2: unknown key 'says'; did you mean 'say'?"),
        ("tool: Bash\n", "1 (case c1): must be a list of calls"),
    ],
)
def test_a_fault_of_recorded_calls_has_a_line_and_the_nearest_key(author: Author, text: str, said: str) -> None:
    author.case("c1")
    author.write("cases/c1/replay.yaml", text)
    [found] = author.refused()
    assert found.startswith(f"{author.root}/cases/c1/replay.yaml:{said}")


def test_two_sources_of_one_file_are_an_error(author: Author) -> None:
    author.case("c1")
    author.write("cases/c1/replay.yaml", "- {say: x}\n")
    author.write("cases/c1/solution/replay.json", "[]")
    assert "solution/replay.json" in author.refused()[0]


@pytest.mark.parametrize(
    "path",
    [".claude/settings.json", ".claude/settings.local.json", ".codex/hooks.json", "hooks/tools.py",
     "tool_handlers.yaml", "setup"],
)  # fmt: skip
def test_a_case_file_at_a_place_of_the_policy_is_an_error_by_path(author: Author, path: str) -> None:
    author.case("c1")
    author.write(f"cases/c1/files/{path}", "{}")
    (said,) = author.refused()
    assert path in said


@pytest.mark.parametrize("path", ["hooks/other.py", "input.yaml", "answers.yaml", "files/x", "Dockerfile", ".claude/x"])
def test_other_case_files_keep_their_place_whatever_they_are_called(author: Author, path: str) -> None:
    author.case("c1")
    author.write(f"cases/c1/files/{path}", "mine")
    author.build()
    assert author.text(f"environment/files/{path}") == "mine"
    assert faults_on_disk(author.task()) == []


def test_a_large_file_is_copied_whole(author: Author) -> None:
    author.case("c1")
    data = bytes(range(256)) * 20_000
    author.write("cases/c1/files/large.bin", data)
    author.build()
    assert (author.task() / "environment/files/large.bin").read_bytes() == data
    assert author.json("tests/initial.json")["large.bin"] == hashlib.sha256(data).hexdigest()


def test_the_manifest_names_each_task_with_harbors_digest(author: Author) -> None:
    author.case("c1")
    author.write("cases/c1/files/cache.pyc", "never published")
    author.build()
    (task,) = read_manifest(author.out).tasks
    lines = [
        f"{path}\0{hashlib.sha256((author.task() / path).read_bytes()).hexdigest()}\n"
        for path in sorted(files(author.task()))
        if not path.endswith(".pyc")
    ]
    assert task.digest == hashlib.sha256("".join(lines).encode()).hexdigest()
