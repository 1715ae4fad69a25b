"""In a sealed sandbox the verifier first ends what the agent left running; anywhere else it ends nothing."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.resources import resource

from .kit import Task, check

SETUP = """
set -e
useradd -m agent && useradd -m worker
mkdir -p /opt/harbor-pack /opt/other /workspace /logs/verifier /tests
chmod 777 /logs /logs/verifier
chown worker:worker /workspace
"""
FORGERS = """
set -e
for user in agent worker; do
    su $user -c 'setsid sh -c "while :; do
        echo {\\\\\\"reward\\\\\\": 99} > /logs/verifier/reward.json; echo 1 > /logs/verifier/reward.txt; sleep 0.05
    done" >/dev/null 2>&1 &'
done
su worker -c 'setsid sh -c "f() { sleep 0.001; f & }; f" >/dev/null 2>&1 &'  # always one child ahead
sleep 0.5
"""
JUDGES = {
    "workspace": "/workspace",
    "judges": [
        check("return False, 'not done'", "done"),
        {"name": "who", "kind": "command", "command": 'test "$(id -un)" = "$(cat /expected)" && test "$HOME" != /root'},
    ],
    "reward": {"judge": "done"},
}


class Container:
    """A container that waits for commands."""

    def __init__(self, docker: str, name: str) -> None:
        self.docker, self.name = docker, name

    def run(self, script: str) -> str:
        """Run a shell script as root; its output."""
        command = [self.docker, "exec", self.name, "sh", "-c", script]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout

    def put(self, path: str, content: str) -> None:
        """Write a file."""
        command = [self.docker, "exec", "-i", self.name, "sh", "-c", f"cat > {path}"]
        subprocess.run(command, input=content, text=True, timeout=60, check=True)

    def json(self, path: str) -> Any:
        """A JSON file."""
        return json.loads(self.run(f"cat {path}"))

    def others(self) -> list[str]:
        """The users, root aside, that have processes; those that only wait to be reaped are dead."""
        listed = "for p in /proc/[0-9]*; do grep -q '^State:.Z' $p/status || stat -c %U $p; done 2>/dev/null; true"
        return sorted(set(self.run(listed).split()) - {"root"})


@pytest.fixture
def container(engine: str, base_image: str) -> Iterator[Container]:
    """A container with the users of a sealed sandbox and a task that was judged by nobody yet."""
    command = [engine, "run", "-d", "--init", "--network", "none", base_image, "sleep", "600"]
    name = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout.strip()
    try:
        made = Container(engine, name)
        made.run(SETUP)
        made.put("/tests/verify.py", resource("interceptor", "verify.py").read_text(encoding="utf-8"))
        made.put("/tests/judges.json", json.dumps(JUDGES))
        yield made
    finally:
        subprocess.run([engine, "rm", "-f", name], capture_output=True, timeout=120, check=True)


@pytest.mark.engine
def test_a_sealed_verifier_ends_the_agents_processes_and_keeps_the_folder(container: Container) -> None:
    container.run("touch /opt/harbor-pack/sealed; echo worker > /expected")
    container.run(FORGERS)
    assert container.others() == ["agent", "worker"]
    container.run("python3 -I /tests/verify.py")
    assert container.others() == []
    assert container.json("/logs/verifier/reward.json")["reward"] == 0.0
    assert container.run("stat -c '%U %a' /logs/verifier").strip() == "root 700"
    assert container.run("ls /logs/verifier").split() == ["judges.json", "reward.json"]
    assert container.json("/logs/verifier/judges.json")["judges"][1]["value"] is True


@pytest.mark.engine
def test_a_folder_that_the_agent_replaced_by_a_link_is_taken_back(container: Container) -> None:
    container.run("touch /opt/harbor-pack/sealed; echo worker > /expected; rmdir /logs/verifier")
    container.run("su worker -c 'mkdir -p /tmp/mine && ln -s /tmp/mine /logs/verifier'")
    container.run("python3 -I /tests/verify.py")
    assert container.run("stat -c '%F %U' /logs/verifier").strip() == "directory root"
    assert container.run("ls /tmp/mine").split() == []


PROGRAM = """
cat /tests/judges.json /tests/annotations.yaml >said 2>&1
setsid sh -c 'while :; do echo 1 > /logs/verifier/reward.txt; sleep 0.05; done' >/dev/null 2>&1 &
setsid sh -c 'kill -STOP $$' >/dev/null 2>&1 &
"""
RUNS_IT = """
import os, pwd, subprocess
subprocess.run(["sh", "program.sh"], check=True)
said = open("said").read()
return said.count("denied") == 2 and "expected" not in said, pwd.getpwuid(os.getuid()).pw_name
"""
MODULE = """
import os, pwd
def who(outputs):
    import later  # noqa
    return pwd.getpwuid(os.getuid()).pw_name == later.WHO
"""


@pytest.mark.engine
def test_judges_that_run_what_the_agent_left_are_worker_and_leave_nothing(container: Container) -> None:
    """A check starts a program of the workspace, which reads what it can and goes on in the background."""
    container.run("touch /opt/harbor-pack/sealed; mkdir /tests/lib; echo expected > /tests/annotations.yaml")
    files = {"/workspace/program.sh": PROGRAM, "/tests/lib/judge.py": MODULE, "/tests/lib/later.py": "WHO = 'worker'\n"}
    judges = [check(RUNS_IT, "runs it"), {"name": "module", "kind": "module", "module": "judge", "function": "who"}]
    files["/tests/judges.json"] = json.dumps({"workspace": "/workspace", "judges": judges})
    for path, content in files.items():
        container.put(path, content)
    container.run("chmod -R go+rwX /tests; python3 -I /tests/verify.py || true")
    report = container.json("/logs/verifier/judges.json")
    assert [(judge["value"], judge["reason"]) for judge in report["judges"]] == [(True, "worker"), (True, None)]
    assert container.others() == []
    assert container.json("/logs/verifier/reward.json")["reward"] == 1.0
    assert container.run("ls /logs/verifier").split() == ["judges.json", "reward.json"]


@pytest.mark.engine
def test_a_folder_planted_as_the_reward_is_removed_however_deep_it_is(container: Container) -> None:
    container.run("touch /opt/harbor-pack/sealed; echo worker > /expected")
    deep = "mkdir /logs/verifier/reward.json && cd /logs/verifier/reward.json"
    container.run(f"su worker -c '{deep} && for i in $(seq 1500); do mkdir d && cd -P d || exit 1; done; touch x'")
    container.run("python3 -I /tests/verify.py || true")
    assert container.json("/logs/verifier/reward.json")["reward"] == 0.0


@pytest.mark.engine
@pytest.mark.parametrize(
    "mark",
    ["true", "touch /opt/other/sealed", "su worker -c 'touch /tmp/s'; ln -s /tmp/s /opt/harbor-pack/sealed",
     "touch /opt/harbor-pack/sealed; chown worker /opt/harbor-pack/sealed"],
    ids=["no mark", "another place", "a link", "another's mark"],
)  # fmt: skip
def test_without_roots_own_mark_at_its_place_nothing_is_ended(container: Container, mark: str) -> None:
    container.run(f"{mark}; echo root > /expected")
    container.run("su worker -c 'setsid sleep 300 >/dev/null 2>&1 &'; sleep 0.2")
    home = "--home /opt/other" if "other" in mark else ""
    container.run(f"HOME=/home python3 -I /tests/verify.py {home}")
    assert container.others() == ["worker"]
    assert container.run("stat -c '%U %a' /logs/verifier").strip() == "root 777"
    assert container.json("/logs/verifier/judges.json")["judges"][1]["value"] is True


def test_a_mark_in_a_trials_own_folder_ends_nothing_on_this_machine(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    task = Task(tmp_path)
    (task.home / "sealed").touch()
    bystander = subprocess.Popen(["sleep", "60"], user=65534 if os.geteuid() == 0 else None)
    try:
        assert task.verify(check("return True")).reward == {"j": 1.0, "reward": 1.0}
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()
