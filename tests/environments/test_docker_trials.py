"""Trials in real containers: what arrives, what the agent sees and can do, what ends it, what is kept."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.environments.docker_container import Recipe
from tests.kit import mcp_server

from .kit import DEPLOY

pytestmark = pytest.mark.engine

GOLD = "SENTINEL-GOLD-7f3"
TOKEN = "tok-SECRET-42"
DENY_UPLOADS = {"match": "Uploads", "patterns": ["Bash"], "input_filters": ["upload"], "reason": "no uploads"}
QUESTIONS = {"match": "Questions", "patterns": ["AskUserQuestion"]}
SERVER = mcp_server("refund", 'os.environ.get("DESK_TOKEN", "none")[:3]')

# What an agent might look for: everything that could tell it which case it works on, or what is right.
# It is careful not to hold the words that it looks for.
LOOK = """
case=two-; case=${case}reverts; gold=SENTINEL-; gold=${gold}GOLD
find / -xdev \\( -path /proc -o -path /sys \\) -prune -o -name "*$case*" -print 2>/dev/null
grep -rlsI -e "$gold" -e "$case" /opt /etc /home /logs /tests /solution /tmp /var . 2>/dev/null
cat /opt/harbor-pack/answers.yaml /opt/harbor-pack-agent/run/mcp.json /proc/1/environ 2>&1
ls -a /tests /solution /logs/verifier /opt/harbor-pack/hooks 2>&1
env; hostname; cat /etc/hosts; cat /proc/*/cmdline | tr '\\0' ' '
"""


def bash(command: str, **more: Any) -> dict[str, Any]:
    return {"tool": "Bash", "input": {"command": command, **more}}


def results(folder: Path) -> list[str]:
    """What each tool call of a transcript gave."""
    lines = map(json.loads, (folder / "transcript.jsonl").read_text().splitlines())
    return [str(line["message"]["content"][0]["content"]) for line in lines if line["type"] == "user"]


def labelled(job: str) -> list[str]:
    """The containers and networks that bear a job's label."""
    found = []
    for kind in (["ps", "-aq"], ["network", "ls", "-q"]):
        asked = ["docker", *kind, "--filter", f"label=harbor-pack.job={job}"]
        found += subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
    return found


class Trials:
    """The trials of a job by case: the record and the folder of each."""

    def __init__(self, ran: Any) -> None:
        self.job = ran.job
        self.trial = {trial.case_id: trial for trial in ran.trials}
        self.folder = {trial.case_id: ran.folder / "trials" / trial.id for trial in ran.trials}

    def kept(self, case: str, name: str) -> str:
        path: Path = self.folder[case] / name
        return path.read_text(encoding="utf-8")


# ------------------------------------------------------------------------------------------------------------ sealed


@pytest.fixture(scope="module")
def sealed(engine_author: Callable[[], Any]) -> Any:
    """An eval with a handler, a server with a secret, and cases for both agents; nothing is run yet."""
    author = engine_author()
    author.handlers(QUESTIONS, DENY_UPLOADS)
    (author.folder / "eval" / "servers").mkdir()
    (author.folder / "eval" / "servers" / "desk.py").write_text(SERVER)
    server = {"name": "desk", "command": "python3", "args": ["servers/desk.py"]}
    author.spec["mcp_servers"] = [{**server, "env": {"DESK_TOKEN": "${DESK_TOKEN_HERE}"}}]
    author.spec["execution"]["env"] = {"MODE": "dry", "REGION": "$REGION_HERE"}
    author.case(
        "files", solve="find . -mindepth 1 -printf '%P %y %m\\n' | LC_ALL=C sort > /tmp/l; cp /tmp/l done.txt; id -un"
    )
    files = author.folder / "eval" / "cases" / "files" / "files"
    (files / "keep").mkdir(parents=True)
    for name in (".env.sample", "a b.txt", "Dockerfile", "docker-compose.yaml", ".dockerignore", "run.sh"):
        (files / name).write_text("**/.*\n*\n" if name == ".dockerignore" else "A=1\n")
    (files / "run.sh").chmod(0o755)
    octets = r"printf 'caf\303'; printf '\251 \342\234\223 \376\n'; printf '\377\033[1mbad\r' >&2; printf 'no newline'"
    author.case("bytes", solve=f"{octets}; echo yes > done.txt")
    author.case(
        "forks",
        solve="echo yes > done.txt; trap '' TERM\n"
        "for i in $(seq 3); do (setsid sh -c \"trap '' TERM HUP; while :; do sleep 1; done\" &) ; done\n"
        "exec python3 -c 'import os, time\n"
        "while True:\n  try:\n    if not os.fork(): time.sleep(600)\n  except OSError: break'\n",
    )
    author.case("two-reverts", replay=[bash(LOOK)], answers_yaml=f"expected: two-reverts {GOLD}\nPRs?: both\n")
    author.case(
        "calls",
        replay=[
            bash("mkdir sub; cd sub; touch upload.log"), bash("mkdir -p sub; cd sub"),
            bash("pwd; id -un; echo $MODE $REGION; umask"), bash("sleep 300", timeout=500),
            {"tool": "AskUserQuestion", "input": {"questions": [DEPLOY]}},
            {"tool": "mcp__desk__refund", "input": {"amount": 1}},
            {"tool": "Write", "input": {"file_path": "/workspace/sub/mine.txt", "content": "agent\n"}},
            bash("echo worker >> mine.txt && ls -l mine.txt && echo yes > ../done.txt"),
        ],
        answers_yaml="Deploy where?: Production\n",
    )  # fmt: skip
    return author


def run(author: Any, agent: str, cases: tuple[str, ...], **options: Any) -> Trials:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DESK_TOKEN_HERE", TOKEN)
        patch.setenv("REGION_HERE", "north")
        patch.setenv("ANTHROPIC_API_KEY", "sk-SECRET-KEY")
        ran = author.run(agent, environment="docker", cases=cases, **{"parallel": 2, **options})
    return Trials(ran)


@pytest.fixture(scope="module")
def solved(sealed: Any) -> Trials:
    return run(sealed, "oracle", ("files", "bytes", "forks"))


@pytest.fixture(scope="module")
def replayed(sealed: Any) -> Trials:
    return run(sealed, "replay", ("two-reverts", "calls"))


def test_the_job_says_that_it_is_sealed_and_leaves_nothing_on_the_engine(solved: Trials, replayed: Trials) -> None:
    for trials in (solved, replayed):
        assert (trials.job.environment, trials.job.sealed, trials.job.status) == ("docker", True, "finished")
        assert labelled(trials.job.id) == []
        for trial in trials.trial.values():
            assert trial.versions["image"].startswith("sha256:")


def test_all_files_of_the_case_arrive_with_their_modes_and_no_policy_file(solved: Trials) -> None:
    # the setgid bit and the group's write bit: what the agent program makes, the model's commands can use
    assert solved.kept("files", "workspace/done.txt").splitlines() == [
        ".dockerignore f 664", ".env.sample f 664", "Dockerfile f 664", "a b.txt f 664", "docker-compose.yaml f 664",
        "keep d 2775", "run.sh f 775",
    ]  # fmt: skip
    assert (solved.folder["files"] / "workspace" / "keep").is_dir()
    assert os.access(solved.folder["files"] / "workspace" / "run.sh", os.X_OK)
    assert solved.kept("files", "stdout.txt") == "agent\n"


def test_what_the_agent_prints_is_kept_byte_for_byte(solved: Trials) -> None:
    assert solved.trial["bytes"].reward == 1
    folder = solved.folder["bytes"]
    assert (folder / "stdout.txt").read_bytes() == b"caf\xc3\xa9 \xe2\x9c\x93 \xfe\nno newline"
    assert (folder / "agent.log").read_bytes() == b"\xff\x1b[1mbad\r"


def test_an_agent_that_used_up_all_processes_is_ended_and_judged(solved: Trials) -> None:
    trial = solved.trial["forks"]
    assert (trial.status, trial.reward, trial.exit_code) == ("scored", 1.0, 0)


def test_nothing_that_the_agent_can_see_names_the_case_or_the_answer(replayed: Trials) -> None:
    [seen] = results(replayed.folder["two-reverts"])
    for word in ("two-reverts", "TINEL-GOLD", TOKEN, "SECRET"):
        assert word not in seen
    assert replayed.trial["two-reverts"].id in seen  # the host's name
    for path in ("/opt/harbor-pack/answers.yaml", "/opt/harbor-pack-agent/run/mcp.json", "/proc/1/environ"):
        assert f"{path}: Permission denied" in seen
    assert "MODE=dry" in seen
    for path in ("/tests", "/solution"):  # not there, or closed
        assert f"cannot access '{path}'" in seen or f"cannot open directory '{path}'" in seen
    assert "cannot open directory '/opt/harbor-pack/hooks'" in seen


def test_calls_get_their_decisions_and_run_as_the_models_user(replayed: Trials) -> None:
    trial, folder = replayed.trial["calls"], replayed.folder["calls"]
    assert (trial.status, trial.reward, trial.error) == ("scored", 1.0, None)
    assert (trial.calls.total, trial.calls.denied, trial.calls.answered, trial.calls.guessed) == (8, 1, 1, 0)
    upload, cd, where, slow, question, refund, _write, last = results(folder)
    assert upload == "no uploads"
    assert not list((folder / "workspace").rglob("upload.log"))
    assert cd == "(Bash completed with no output)"
    assert where.splitlines() == ["/workspace/sub", "worker", "dry north", "0002"]
    assert slow.startswith("Command timed out after 0.5s")
    assert '"Deploy where?"="Production"' in question
    assert "tok" in refund
    assert "worker agent" in last.replace("agent worker", "worker agent")
    assert (folder / "workspace" / "sub" / "mine.txt").read_text() == "agent\nworker\n"


def test_no_secret_of_the_caller_is_kept(solved: Trials, replayed: Trials) -> None:
    for trials in (solved, replayed):
        for folder in trials.folder.values():
            for path in folder.rglob("*"):
                content = path.read_bytes() if path.is_file() else b""
                assert TOKEN.encode() not in content, path
                assert b"SECRET-KEY" not in content, path


def test_a_task_whose_hook_cannot_work_is_an_environment_error_and_no_agent_runs(sealed: Any) -> None:
    out = sealed.build()
    (out / "calls" / "environment" / "hooks" / "tools.py").write_text("pass\n")
    (out / "bytes" / "environment" / "hooks" / "tools.py").unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DESK_TOKEN_HERE", TOKEN)
        patch.setenv("REGION_HERE", "north")
        trials = Trials(sealed.run_built(out, "oracle", environment="docker", cases=("bytes",), parallel=2))
        broken = Trials(sealed.run_built(out, "replay", environment="docker", cases=("calls",)))
    for case, found in (("bytes", trials), ("calls", broken)):
        trial = found.trial[case]
        assert trial.error is not None
        assert (trial.status, trial.error.kind, trial.reward) == ("error", "environment", None)
        assert not (found.folder[case] / "workspace" / "done.txt").exists()
        assert labelled(found.job.id) == []


def test_an_engine_that_forbids_setuid_programs_is_found_before_the_agent_starts(
    engine_author: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    host_config = Recipe.host_config

    def strict(recipe: Recipe, api: Any) -> Any:
        return {**host_config(recipe, api), "SecurityOpt": ["no-new-privileges"]}

    monkeypatch.setattr(Recipe, "host_config", strict)
    author = engine_author()
    author.case("strict", solve="echo yes > done.txt")  # no handler: no hook that could fail
    trial = run(author, "oracle", ("strict",)).trial["strict"]
    assert trial.error is not None
    assert (trial.status, trial.error.kind) == ("error", "environment")
    assert "no new privileges" in trial.error.message


# ----------------------------------------------------------------------------------------------- limits and networks

HELD = """
python3 -c 'bytearray(600 << 20)'; echo "memory $?"
getent hosts example.com >/dev/null; echo "name $?"
python3 -c 'import socket; socket.create_connection(("1.1.1.1", 443), 3)' 2>&1 | tail -1
grep CapBnd /proc/self/status; cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us /sys/fs/cgroup/cpu.max 2>/dev/null
echo yes > done.txt
"""


def test_limits_and_a_closed_network_hold(engine_author: Callable[[], Any]) -> None:
    author = engine_author()
    author.spec["sandbox"] = {"network": "none", "memory_mb": 256, "cpus": 0.5}
    author.case("held", solve=HELD)
    held = run(author, "oracle", ("held",))
    assert (held.trial["held"].reward, held.job.not_enforced) == (1, ())
    said = held.kept("held", "stdout.txt")
    assert "memory 137" in said
    assert "name 2" in said
    assert "Network is unreachable" in said
    assert "CapBnd:\t00000000200000fb" in said  # no more than setup, sudo and the verifier need
    assert "50000" in said


# --------------------------------------------------------------------------------- the author's own image, as it is


@pytest.fixture
def plain(engine_author: Callable[[], Any], base_image: str) -> Any:
    author = engine_author()
    author.spec["sandbox"] = {"image": base_image, "sealed": False}
    return author


def test_an_image_as_it_is_is_not_sealed_and_that_is_said(plain: Any) -> None:
    plain.handlers(DENY_UPLOADS)
    plain.case("unsealed", replay=[bash("touch upload.log"), bash("id -un; echo yes > done.txt")])
    trials = run(plain, "replay", ("unsealed",))
    trial = trials.trial["unsealed"]
    assert (trial.reward, trial.sealed, trials.job.sealed, trial.calls.denied) == (1, False, False, 1)
    assert "sandbox.sealed: false" in trials.job.not_enforced[0]
    assert results(trials.folder["unsealed"])[1] == "root"


def test_a_timeout_ends_everything_inside_and_the_verifier_still_looks(plain: Any) -> None:
    check = "import os\npid = outputs['files']['pid'].strip()\nreturn not os.path.exists(f'/proc/{pid}')"
    plain.spec["execution"]["timeout"] = 1
    plain.spec["judges"].append({"name": "gone", "check": check})
    plain.spec["outputs"].append({"path": "pid"})
    plain.case("slow", solve="echo yes > done.txt; trap '' TERM; setsid sleep 300 & echo $! > pid; sleep 300")
    started = time.monotonic()
    trial = run(plain, "oracle", ("slow",)).trial["slow"]
    assert trial.error is not None
    assert (trial.status, trial.error.kind) == ("error", "timeout")
    assert [judge.passed for judge in trial.judges] == [True, True]
    assert time.monotonic() - started < 60


ODD = """
mkfifo b-fifo; truncate -s 4T a-sparse; mkdir zz; echo last > zz/last; touch "$(printf 'caf\\351')"; echo yes > done.txt
python3 -c "
import os
for _ in range(2500):
    os.mkdir('deep')
    os.chdir('deep')
    open('file', 'w').close()
"
"""


def test_whatever_an_agent_makes_of_its_workspace_it_is_judged_and_told_what_is_not_kept(plain: Any) -> None:
    plain.spec["judges"].append({"name": "empty", "check": "return outputs['files'] == {}"})
    plain.case("removed", solve='rm -rf "$PWD"')
    plain.case("link", solve="cd /; mv workspace mine; echo yes > mine/done.txt; ln -s mine workspace")
    plain.case("odd", solve=ODD)
    trials = run(plain, "oracle", ("removed", "link", "odd"))
    for case in ("removed", "link"):
        trial = trials.trial[case]
        assert (trial.error, [judge.passed for judge in trial.judges]) == (None, [False, True])
        assert any("judged on an empty one" in warning for warning in trial.warnings)
    odd = trials.trial["odd"]
    assert (odd.error, [judge.passed for judge in odd.judges]) == (None, [True, False])
    [warning] = [text for text in odd.warnings if "not kept" in text]
    assert "a-sparse (4398046511104 bytes; no more than 1073741824 bytes are kept)" in warning
    assert "b-fifo (a FIFO)" in warning
    assert "(more than 99 folders deep)" in warning
    workspace = trials.folder["odd"] / "workspace"
    assert (workspace / "zz" / "last").read_text() == "last\n"
    assert b"caf\xe9" in os.listdir(os.fsencode(workspace))  # noqa: PTH208 - names in bytes


def test_an_agent_that_prints_without_end_is_ended(plain: Any) -> None:
    plain.case("flood", solve="yes")
    trials = run(plain, "oracle", ("flood",))
    trial = trials.trial["flood"]
    assert trial.error is not None
    assert "printed without end" in trial.error.message
    assert (trials.folder["flood"] / "stdout.txt").stat().st_size == 64 << 20


def test_steps_share_the_workspace_and_see_no_tests_of_the_step_before(plain: Any) -> None:
    plain.spec["execution"] = {
        "steps": [{"id": "draft", "prompt": "draft it"}, {"id": "ship", "prompt": "ship", "env": {"MODE": "live"}}]
    }
    plain.spec["outputs"] = [{"path": "draft.txt"}, {"path": "done.txt"}]
    plain.spec["judges"] = [
        {"name": "drafted", "check": "return 'draft.txt' in outputs['files']", "step": "draft"},
        {"name": "shipped", "check": "return outputs['files'].get('done.txt') == 'yes live\\n'", "step": "ship"},
        {"name": "one_call", "check": "return len(outputs['tool_calls']) == 1"},
    ]
    draft, ship = bash("echo yes > draft.txt"), bash('ls /tests >&2 || echo "$(cat draft.txt) $MODE" > done.txt')
    plain.handlers(DENY_UPLOADS)
    plain.case("two", replay={"steps": {"draft": [draft], "ship": [ship]}})
    trials = run(plain, "replay", ("two",))
    trial = trials.trial["two"]
    assert (trial.status, trial.reward) == ("scored", 1.0)
    assert [(step.id, step.status) for step in trial.steps] == [("draft", "scored"), ("ship", "scored")]
    assert trials.kept("two", "interceptions.jsonl").count('"tool_use_id"') == 2
    assert trials.kept("two", "steps/ship/interceptions.jsonl").count('"tool_use_id"') == 1
    assert trials.kept("two", "transcript.jsonl").count('"tool_use"') == 2


def test_a_container_that_is_ended_from_outside_is_an_environment_error(plain: Any) -> None:
    plain.case("killed", solve="touch started; sleep 300")

    def kill() -> None:
        for _ in range(600):
            for job in plain.jobs.glob("desk-*"):
                for container in labelled(job.name):
                    seen = ["docker", "exec", container, "test", "-e", "/workspace/started"]
                    if subprocess.run(seen, capture_output=True, check=False).returncode == 0:
                        subprocess.run(["docker", "kill", container], capture_output=True, check=True)
                        return
            time.sleep(0.1)

    killer = threading.Thread(target=kill)
    killer.start()
    trials = run(plain, "oracle", ("killed",))
    killer.join()
    trial = trials.trial["killed"]
    assert trial.error is not None
    assert (trial.status, trial.error.kind, trial.reward) == ("error", "environment", None)
    assert "the container ended with exit code 137" in trial.error.message
    assert labelled(trials.job.id) == []


@pytest.fixture
def empty_image(engine: str) -> Iterator[str]:
    """An image with nothing in it."""
    name = "harbor-pack-test-empty:latest"
    nothing = subprocess.run(["tar", "-cf", "-", "-T", "/dev/null"], capture_output=True, check=True).stdout
    subprocess.run([engine, "import", "-", name], input=nothing, capture_output=True, check=True)
    yield name
    subprocess.run([engine, "rmi", "-f", name], capture_output=True, check=True)


def test_an_image_without_python_is_named_and_scores_nothing(plain: Any, empty_image: str) -> None:
    plain.spec["sandbox"]["image"] = empty_image
    plain.case("bare", solve="true")
    trials = run(plain, "oracle", ("bare",))
    trial = trials.trial["bare"]
    assert trial.error is not None
    assert (trial.status, trial.error.kind, trial.reward) == ("error", "environment", None)
    assert "has no python3" in trial.error.message
    assert labelled(trials.job.id) == []
