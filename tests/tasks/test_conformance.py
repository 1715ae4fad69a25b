"""Our own checks of a task directory: each finds what it is there for."""

from __future__ import annotations

import json
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harbor_tasks.tasks.conformance import LINT_EXEMPT, faults_of, faults_on_disk
from harbor_tasks.tasks.manifest import read_manifest
from harbor_tasks.tasks.plan import TaskFile, made

if TYPE_CHECKING:
    from tests.tasks.conftest import Author


@pytest.fixture
def task(author: Author) -> Path:
    author.case("c1")
    author.build()
    return author.task()


def test_a_task_as_it_is_built_has_no_fault(task: Path) -> None:
    assert faults_on_disk(task, tomllib.loads((task / "task.toml").read_text())) == []


FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no task.toml": (lambda t: (t / "task.toml").unlink(), "task.toml is missing"),
    "broken task.toml": (lambda t: (t / "task.toml").write_text("x ="), "task.toml cannot be read"),
    "bad name": (lambda t: replace(t / "task.toml", '"shop/c1"', '"shop/../c1"'), "is no name of a task"),
    "other content": (lambda t: replace(t / "task.toml", "orders", "others"), "does not say what was planned"),
    "no instruction": (lambda t: (t / "instruction.md").write_text(""), "instruction.md is missing or empty"),
    "CRLF": (lambda t: replace(t / "tests/test.sh", "\n", "\r\n"), "LF"),
    "not executable": (lambda t: (t / "tests/test.sh").chmod(0o644), "not executable"),
    "no verifier": (lambda t: (t / "tests/verify.py").unlink(), "verify.py is missing"),
    "no environment": (lambda t: shutil.rmtree(t / "environment"), "environment/ is empty"),
    "Dockerfile": (lambda t: (t / "environment/Dockerfile").write_text("FROM x"), "would change how Harbor stages"),
    "compose": (lambda t: (t / "environment/docker-compose.yaml").write_text(""), "would change how Harbor stages"),
    "reward": (lambda t: (t / "tests/reward.json").write_text("{}"), "must not be there"),
    "mode": (lambda t: (t / "instruction.md").chmod(0o600), "has the mode 0600"),
    "link": (lambda t: (t / "tests/link").symlink_to("test.sh"), "is no regular file"),
    "policy": (lambda t: write(t / "environment/files/.claude/settings.json"), "lies where the policy does"),
}


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_bytes(text.replace(old, new).encode())


def write(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_text("{}")


@pytest.mark.parametrize(("damage", "said"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_is_found(task: Path, damage: Callable[[Path], object], said: str) -> None:
    planned = tomllib.loads((task / "task.toml").read_text())
    damage(task)
    assert any(said in fault for fault in faults_on_disk(task, planned))


def test_paths_that_cannot_all_be_written_are_found_before_they_are() -> None:
    files = [made("a", ""), made("a/b", ""), made("c", ""), made("c", "x"), made("../up", ""), TaskFile("/abs", None)]
    said = " | ".join(faults_of(files))
    for part in ("a is both a file and a folder", "two files are to lie at c", "../up is no plain", "/abs is no plain"):
        assert part in said


@pytest.mark.harbor
def test_harbor_takes_hostile_cases_and_finds_our_digest(author: Author, harbor_bin: Path) -> None:
    author.eval(name="My Eval/v1", description='tri """ back\\slash \u2028 \x7f')
    for case_id in ("a..b", "CON", "-rf", "Größe 42 (Final)", "x" * 160, 'it\'s "q" $HOME'):
        author.case(case_id, prompt="$(id) `id` \"'\\")
        author.write(f"cases/{case_id}/files/docker-compose.yaml", "x")
        author.write(f"cases/{case_id}/files/old.pyc", "x")
        author.write(f"cases/{case_id}/solution/solve.sh~", "x")
    author.build()
    done = subprocess.run(
        [harbor_bin.parent / "python", "-c", ASK_HARBOR, author.out], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    tasks = read_manifest(author.out).tasks
    assert {name: answer["digest"] for name, answer in answers.items()} == {task.name: task.digest for task in tasks}
    assert {rule for answer in answers.values() for rule in answer["findings"]} <= set(LINT_EXEMPT)


ASK_HARBOR = """
import json, sys
from pathlib import Path
from harbor.lint.task import lint_task
from harbor.models.task.task import Task
from harbor.publisher.packager import Packager
answers = {}
for path in sorted(Path(sys.argv[1]).glob("[!.]*")):
    digest = Packager.compute_content_hash(path)[0]
    answers[Task(path).name] = {"digest": digest, "findings": [f.rule.value for f in lint_task(path)]}
print(json.dumps(answers))
"""


def test_each_exemption_from_harbors_lint_has_its_reason() -> None:
    assert set(LINT_EXEMPT) <= {
        "root-agent", "shared-verifier", "unpinned-image", "unused-harborignore", "unpinned-python-dependency",
    }  # fmt: skip
    assert all(len(reason) > 20 for reason in LINT_EXEMPT.values())
