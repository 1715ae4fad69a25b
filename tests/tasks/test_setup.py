"""`environment/setup`: what it leaves in the workspace, in the home, and when it is run again or broken off.

It is run on folders of the test, by every POSIX shell that the machine has, and once in a container as Harbor does.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.tasks.conftest import Author

SHELLS = [name for name in ("sh", "dash", "bash", "busybox", "mksh", "ksh") if shutil.which(name)]


@dataclass
class Sandbox:
    """A workspace that a task's environment/ was copied into, as Harbor does it, and a home for the policy."""

    root: Path
    shell: str = "sh"

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def log(self) -> Path:
        return self.root / "log/interceptions.jsonl"

    def run(self, script: Path | None = None, *prefix: str) -> subprocess.CompletedProcess[str]:
        shell = ["busybox", "sh"] if self.shell == "busybox" else [self.shell]
        if self.shell == "bash":
            shell.append("--posix")
        script = script or self.workspace / "setup"
        command = [*prefix, *shell, str(script), str(self.workspace), str(self.home), str(self.log)]
        return subprocess.run(command, capture_output=True, text=True, cwd="/", check=False, timeout=30)

    def files(self) -> dict[str, int]:
        found = {}
        for path in sorted(self.workspace.rglob("*")):
            name = str(path.relative_to(self.workspace)) + ("/" if path.is_dir() else "")
            found[name] = path.stat().st_mode & 0o777
        return found


@pytest.fixture
def task(author: Author) -> Path:
    """A task with a policy, answers, a layer, and a case whose files are named like what is moved away."""
    author.eval(
        inputs={"tools": [{"match": "AskUserQuestion"}]}, permissions={"deny": ["WebFetch"]},
        sandbox={"image": "some/image:1", "sealed": False},
    )  # fmt: skip
    author.write(".claude/skills/tidy/SKILL.md", "# tidy\n")
    author.write("CLAUDE.md", "project\n")
    author.case("c1")
    author.write("cases/c1/answers.yaml", "Which?: GOLD\n")
    for path in (
        ".env.sample", "a b.txt", "files/inner.txt", "input.yaml", "answers.yaml", "hooks/mine.py", "CLAUDE.md",
        ".claude/skills/own/SKILL.md", "..odd", "-dash", "steps/1.md", "layer/x",
    ):  # fmt: skip
        author.write(f"cases/c1/files/{path}", f"case: {path}\n")
    author.write("cases/c1/files/bin/run", "#!/bin/sh\n", mode=0o755)
    (author.root / "cases/c1/files/keep").mkdir()
    author.build()
    return author.task()


@pytest.fixture(params=SHELLS)
def sandbox(request: pytest.FixtureRequest, task: Path, tmp_path: Path) -> Sandbox:
    made = Sandbox(tmp_path / "sandbox", request.param)
    shutil.copytree(task / "environment", made.workspace)
    return made


def assert_staged(sandbox: Sandbox) -> None:
    files = sandbox.files()
    assert {name: mode for name, mode in files.items() if not name.endswith("/")} == {
        ".env.sample": 0o644, "a b.txt": 0o644, "files/inner.txt": 0o644, "input.yaml": 0o644, "answers.yaml": 0o644,
        "hooks/mine.py": 0o644, "CLAUDE.md": 0o644, "..odd": 0o644, "-dash": 0o644, "steps/1.md": 0o644,
        "layer/x": 0o644, "bin/run": 0o755,
        ".claude/skills/own/SKILL.md": 0o644, ".claude/skills/tidy/SKILL.md": 0o644, ".claude/settings.json": 0o644,
    }  # fmt: skip
    assert "keep/" in files
    for name in ("answers.yaml", "input.yaml", "CLAUDE.md", "hooks/mine.py"):
        assert (sandbox.workspace / name).read_text() == f"case: {name}\n"
    assert (sandbox.workspace / ".claude/skills/tidy/SKILL.md").read_text() == "# tidy\n"
    assert (sandbox.home / "answers.yaml").read_text() == "Which?: GOLD\n"
    assert {path.name for path in sandbox.home.iterdir() if path.name[0] != "."} == {
        "hooks", "tool_handlers.yaml", "input.yaml", "answers.yaml", "layer", "setup", "unsealed", "started",
    }  # fmt: skip
    settings = json.loads((sandbox.workspace / ".claude/settings.json").read_text())
    command = settings["hooks"]["PreToolUse"][0]["hooks"][0]["command"]
    assert f"python3 -I -S -E {sandbox.home}/hooks/tools.py --log {sandbox.log} --handlers-sha256 " in command
    assert "CLAUDE_PROJECT_DIR" not in command
    assert settings["permissions"] == {"deny": ["WebFetch"]}
    assert sandbox.log.parent.is_dir()


def test_the_workspace_holds_the_case_and_the_home_the_policy(sandbox: Sandbox) -> None:
    done = sandbox.run()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert_staged(sandbox)


def test_a_second_run_changes_nothing(sandbox: Sandbox) -> None:
    sandbox.run()
    (sandbox.workspace / "made-by-the-agent").write_text("x")
    assert sandbox.run(sandbox.home / "setup").returncode == 0
    (sandbox.workspace / "made-by-the-agent").unlink()
    assert_staged(sandbox)


def test_the_staged_hook_decides(sandbox: Sandbox) -> None:
    sandbox.run()
    settings = json.loads((sandbox.workspace / ".claude/settings.json").read_text())
    command = settings["hooks"]["PreToolUse"][0]["hooks"][0]["command"]
    question = {"question": "Which?", "header": "W", "options": [{"label": "GOLD"}, {"label": "other"}]}
    payload = {
        "hook_event_name": "PreToolUse", "tool_name": "AskUserQuestion", "tool_use_id": "t1",
        "tool_input": {"questions": [question]},
    }  # fmt: skip
    done = subprocess.run(
        ["sh", "-c", command], input=json.dumps(payload), capture_output=True, text=True, cwd="/", check=False
    )
    answer = json.loads(done.stdout)["hookSpecificOutput"]["updatedInput"]["answers"]
    assert answer == {"Which?": "GOLD"}
    assert json.loads(sandbox.log.read_text())["tool_use_id"] == "t1"


@pytest.mark.parametrize("fails", ["mv", "cp", "sed", "rm"])
def test_a_run_that_was_broken_off_is_finished_by_the_next(task: Path, tmp_path: Path, fails: str) -> None:
    """Whichever use of a program fails: the next run ends where an undisturbed one would."""
    for number in range(1, 12):
        sandbox = Sandbox(tmp_path / f"sandbox-{number}")
        shutil.copytree(task / "environment", sandbox.workspace)
        programs = tmp_path / f"bin-{number}"
        programs.mkdir()
        real = shutil.which(fails)
        stub = programs / fails
        count = programs / "count"
        stub.write_text(
            f'#!/bin/sh\necho x >> "{count}"\n[ "$(wc -l < "{count}")" -eq {number} ] && exit 1\nexec {real} "$@"\n'
        )
        stub.chmod(0o755)
        path = f"PATH={programs}:/usr/local/bin:/usr/bin:/bin"
        first = sandbox.run(None, "env", path)
        script = sandbox.home / "setup"
        if first.returncode:
            assert not (sandbox.home / "started").exists()
            second = sandbox.run(script if script.exists() else None)
            assert second.returncode == 0, second.stderr
        assert_staged(sandbox)
        if not first.returncode and len(count.read_text().split()) < number:
            break
    else:
        pytest.fail("the program was used more often than that")


def test_a_sandbox_that_cannot_be_written_is_said(task: Path, tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path / "sandbox")
    shutil.copytree(task / "environment", sandbox.workspace)
    sandbox.root.joinpath("home").write_text("a file in the way")
    done = sandbox.run()
    assert done.returncode != 0
    assert "run it as root" in done.stderr


def test_a_home_that_could_be_read_as_more_than_a_path_is_refused(task: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    shutil.copytree(task / "environment", workspace)
    command = ["sh", str(workspace / "setup"), str(workspace), "/tmp/a b;id", "/tmp/x"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert (workspace / "tool_handlers.yaml").exists()


def test_the_script_is_lf_and_plain_sh(task: Path) -> None:
    script = (task / "environment/setup").read_bytes()
    assert b"\r" not in script
    assert script.startswith(b"#!/bin/sh\n")
    assert b"[[" not in script
    assert b"{{" not in script
    if shutil.which("shellcheck"):
        done = subprocess.run(["shellcheck", "-s", "sh", str(task / "environment/setup")], check=False)
        assert done.returncode == 0


@pytest.mark.engine
def test_in_a_container_it_stages_as_harbor_runs_it(task: Path, engine: str, base_image: str) -> None:
    """Copied in by the engine, so that root owns it; the health check as it stands in task.toml, twice."""
    environment = tomllib.loads((task / "task.toml").read_text())["environment"]
    look = "ls -A /workspace; stat -c '%U %a %n' /workspace/bin/run /workspace/keep; cat /opt/harbor-pack/answers.yaml"
    check = environment["healthcheck"]["command"]
    name = subprocess.run(
        [engine, "create", "--network", "none", "-w", environment["workdir"], base_image, "sh", "-c",
         f"{check} && {check} && {look}"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    try:
        source = f"{task / 'environment'}/."
        subprocess.run([engine, "cp", source, f"{name}:{environment['workdir']}"], capture_output=True, check=True)
        done = subprocess.run([engine, "start", "-a", name], capture_output=True, text=True, timeout=60, check=False)
    finally:
        subprocess.run([engine, "rm", "-f", name], capture_output=True, check=False)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "-dash", "..odd", ".claude", ".env.sample", "CLAUDE.md", "a b.txt", "answers.yaml", "bin", "files", "hooks",
        "input.yaml", "keep", "layer", "steps",
        "root 755 /workspace/bin/run", "root 755 /workspace/keep", "Which?: GOLD",
    ]  # fmt: skip
