"""The checkout as a stranger meets it: the README's commands work, and nothing in it belongs to one machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TOP_LEVEL = {
    ".ci", ".gitattributes", ".gitignore", "CHANGELOG.md", "LICENSE", "Makefile", "README.md", "docker", "docs",
    "examples", "harbor_tasks", "interceptor", "pyproject.toml", "templates", "tests",
}  # fmt: skip

# Written in pieces, so that this file does not hold what it looks for.
REGISTRIES = [
    ".".join(parts)
    for parts in [
        ("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("npmjs", "com"), ("deb", "debian", "org"),
        ("snapshot", "debian", "org"), ("security", "debian", "org"), ("archive", "ubuntu", "com"), ("ghcr", "io"),
        ("quay", "io"), ("gcr", "io"), ("index", "docker", "io"), ("registry-1", "docker", "io"), ("nodesource", "com"),
    ]
]  # fmt: skip
# The sandbox has users of its own, with homes.
MACHINE_PATHS = re.compile(
    "|".join(rf"(?<![\w.-])/{top}/" for top in ("root", "work", r"home/(?!(?:agent|worker)\b)\w+"))
)

# The README's commands that other tests run, and where.
ELSEWHERE = {
    "make demo": "tests/packaging/test_make.py",
    "make test": ".ci/run",
    "docker/engine.sh start": "tests/packaging/test_helpers.py",
    "docker/plugins.sh": "tests/packaging/test_helpers.py",
    "docker/base-image.sh": "tests/packaging/test_helpers.py",
    "docker/harbor.sh": ".ci/run",
    "docker/agents.sh": "tests/packaging/test_helpers.py",
}


def readme_commands(root: Path) -> list[str]:
    """Every command of the README's shell blocks, comments off, continued lines joined."""
    blocks = re.findall(r"^```sh\n(.*?)^```", (root / "README.md").read_text(), re.M | re.S)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [command for line in lines if (command := re.sub(r"\s+#.*|^#.*", "", line).strip())]


@pytest.fixture(scope="module")
def tracked(repo_root: Path, tracked_names: list[str]) -> dict[str, str]:
    """The text of every text file that a clone holds."""
    contents = {name: (repo_root / name).read_bytes() for name in tracked_names}
    return {name: data.decode(errors="replace") for name, data in contents.items() if b"\0" not in data}


def test_the_readmes_first_eval_works_line_by_line(repo_root: Path, tmp_path: Path) -> None:
    ours = [command for command in readme_commands(repo_root) if command.startswith("harbor-pack ")]
    assert len(ours) >= 5
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    (tmp_path / "examples").symlink_to(repo_root / "examples")
    for command in ours:
        done = subprocess.run(["sh", "-c", command], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


def test_the_readmes_excerpts_stand_in_the_eval_that_it_makes(repo_root: Path) -> None:
    starter = repo_root / "examples" / "starter"
    lines = [line for name in ("eval.yaml", "tool_handlers.yaml") for line in (starter / name).read_text().splitlines()]
    excerpts = re.findall(r"^```yaml\n(.*?)^```", (repo_root / "README.md").read_text(), re.M | re.S)
    assert len(excerpts) == 2
    assert [line for line in "".join(excerpts).splitlines() if line not in lines] == []


def test_every_other_command_of_the_readme_is_run_by_a_test(repo_root: Path) -> None:
    others = [command for command in readme_commands(repo_root) if not command.startswith("harbor-pack ")]
    assert {"make demo", "make test"} <= set(others)
    for command in others:
        assert command in ELSEWHERE, f"no test runs the README's command {command!r}"
        runner = (repo_root / ELSEWHERE[command]).read_text()
        assert command.split()[0].removeprefix("docker/") in runner


def test_the_readme_names_every_command_and_no_other(repo_root: Path) -> None:
    help_text = subprocess.run(
        [sys.executable, "-m", "harbor_tasks.cli", "--help"], cwd=repo_root, capture_output=True, text=True, check=True
    ).stdout
    existing = set(re.findall(r"^ {2,4}(\w+) {2,}\S", help_text.partition("Commands:")[2], re.M))
    named = set(re.findall(r"^\| `(\w+)[ `]", (repo_root / "README.md").read_text(), re.M))
    assert existing
    assert named == existing


def test_the_top_level_holds_only_what_belongs_there(tracked: dict[str, str]) -> None:
    assert {name.partition("/")[0] for name in tracked} <= TOP_LEVEL


@pytest.mark.parametrize("registry", REGISTRIES)
def test_no_file_names_a_package_registry(tracked: dict[str, str], registry: str) -> None:
    assert [name for name, text in tracked.items() if registry in text] == []


def test_no_file_names_a_path_of_one_machine(tracked: dict[str, str], repo_root: Path) -> None:
    found = [
        f"{name}: {line.strip()}"
        for name, text in tracked.items()
        for line in text.splitlines()
        if str(repo_root) in line or MACHINE_PATHS.search(line)
    ]
    assert found == []


def test_every_text_file_has_unix_line_endings_and_ends_with_one(tracked: dict[str, str]) -> None:
    assert [name for name, text in tracked.items() if "\r\n" in text] == []
    assert [name for name, text in tracked.items() if text and not text.endswith("\n")] == []


def test_scripts_can_be_started(repo_root: Path) -> None:
    for path in [repo_root / ".ci" / "run", *(repo_root / "docker").glob("*.sh")]:
        starts = path.read_text().startswith("#!")
        assert os.access(path, os.X_OK) == starts, path
