"""`harbor-pack runner` with a real `harbor serve` behind a key: what it brings, and all the ways to lose it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.bundles import pack
from harbor_tasks.environments.base import RunOptions, read_job, read_trials, trial_dir
from harbor_tasks.environments.harbor_server import HarborServerEnvironment
from harbor_tasks.environments.jobs import run_job
from harbor_tasks.errors import AuthorError, MachineError
from harbor_tasks.results.collect import collect_job
from harbor_tasks.tasks.manifest import read_manifest
from tests.kit import what_became

from .kit import Desk, MakeDesk, Ran, left_behind, verdicts
from .serving import Server

pytestmark = [pytest.mark.harbor, pytest.mark.engine]

TOKEN = "hush-4711"


@pytest.fixture(scope="module")
def server(harbor_bin: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that knows our agents and a variable that evals ask for."""
    folder = tmp_path_factory.mktemp("serve")
    served = Server(harbor_bin, folder)
    served.env = {**served.env, "HP_TEST_TOKEN": TOKEN}
    try:
        yield served.start()
    finally:
        served.end()


def command(server: Server, *words: str | Path, jobs: Path) -> list[str | Path]:
    program: list[str | Path] = [sys.executable, "-m", "harbor_tasks.cli", "runner", *words]
    return [*program, "--server", server.url, "--jobs-dir", jobs]


def environ(server: Server) -> dict[str, str]:
    return {**os.environ, "HARBOR_API_KEY": server.key}


def run(desk: Desk, server: Server, agent: str = "oracle", **options: Any) -> Ran:
    events: list[Any] = []
    at = {"server": server.url, "server_key": server.key, "harbor": desk.harbor}
    asked: dict[str, Any] = {"parallel": 2, "jobs_dir": desk.folder / "jobs", **at, **options}
    return Ran(run_job(desk.out, RunOptions("harbor", agent, **asked), on_event=events.append), events)


def holds(folder: Path, text: str) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


# ---- what it brings ----


QUESTION = {
    "question": "In which colour?", "header": "Colour", "multiSelect": False,
    "options": [{"label": "Red", "description": "as a rose"}, {"label": "Blue", "description": "as the sky"}],
}  # fmt: skip


@pytest.fixture(scope="module")
def packed(server: Server, make_desk: MakeDesk, harbor_bin: Path) -> tuple[subprocess.CompletedProcess[str], Desk]:
    """A bundle that is none, and one of an eval that takes a variable of the server's, asks and is denied: one call."""
    desk = make_desk()
    desk.spec["execution"]["env"] = {"DESK_TOKEN": "$HP_TEST_TOKEN", "DESK": "${HP_TEST_NOBODY:-a $desk}"}
    desk.handlers(
        {"match": "questions", "patterns": ["AskUserQuestion"]},
        {"match": "downloads", "patterns": ["Bash"], "input_filters": ["curl"], "reason": "no network"},
    )
    solves = 'case "$DESK_TOKEN $DESK" in "hush-47"??" a \\$desk") echo yes > done.txt ;; esac'
    replay = [
        {"tool": "Bash", "input": {"command": "curl http://localhost"}},
        {"tool": "AskUserQuestion", "input": {"questions": [QUESTION]}},
        {"tool": "Bash", "input": {"command": solves}},
    ]
    desk.case("one", replay=replay, **{"answers.yaml": "In which colour?: Blue\n"})
    pack(desk.build(), desk.folder / "desk.hpb")
    words = (desk.folder / "nowhere.hpb", desk.folder / "desk.hpb", "--keep", desk.folder / "kept", "--json")
    options = ("--harbor", harbor_bin, "--", "--max-retries", "1")
    done = subprocess.run(
        [*command(server, *words, jobs=desk.folder / "jobs"), *options], env=environ(server), capture_output=True,
        text=True, timeout=180, check=False,
    )  # fmt: skip
    return done, desk


def kept(desk: Desk) -> Path:
    """The only bundle that was unpacked."""
    [one] = [path for path in (desk.folder / "kept").iterdir() if path.is_dir()]
    return one


def test_several_bundles_are_a_job_each_and_the_worst_exit_code_counts(
    packed: tuple[subprocess.CompletedProcess[str], Desk],
) -> None:
    done, desk = packed
    report = json.loads(done.stdout)
    assert [job["exit_code"] for job in report["jobs"]] == [2, 0], done.stderr
    assert done.returncode == report["exit_code"] == 2
    assert "nowhere.hpb: no such file or folder" in report["jobs"][0]["problems"][0]["message"]
    assert report["jobs"][1]["mean_reward"] == 1.0
    assert report["jobs"][1]["server"] == server_of(desk)


def server_of(desk: Desk) -> str | None:
    [job] = (desk.folder / "jobs").iterdir()
    return read_job(job).server


def test_the_job_of_a_bundle_is_the_one_of_this_machine(
    packed: tuple[subprocess.CompletedProcess[str], Desk], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, desk = packed
    [job] = (desk.folder / "jobs").iterdir()
    assert Path(read_job(job).source) == kept(desk)
    monkeypatch.setenv("HP_TEST_TOKEN", TOKEN)
    local = run_job(kept(desk), RunOptions("local", "replay", jobs_dir=tmp_path, trust=True))
    assert verdicts(job) == verdicts(local)
    assert what_became(job) == what_became(local)
    [trial], [here] = read_trials(job), read_trials(local)
    assert (trial.calls.total, trial.calls.denied, trial.calls.answered) == (3, 1, 1)
    assert (trial.calls, trial.digest) == (here.calls, here.digest)
    assert (trial.sealed, trial.warnings) == (True, ())
    assert trial.versions["harbor"].startswith("0.26")
    names = {path.name for path in trial_dir(job, trial.id).iterdir()}
    assert names >= {"trial.json", "transcript.jsonl", "interceptions.jsonl", "verifier", "workspace"}
    assert (trial_dir(job, trial.id) / "workspace" / "done.txt").read_text() == "yes\n"
    assert collect_job(job).exit_code == 0
    assert left_behind(job) == []


def test_a_variable_of_the_servers_reaches_the_trial_and_no_file_and_the_key_nobody(
    packed: tuple[subprocess.CompletedProcess[str], Desk], server: Server
) -> None:
    done, desk = packed
    assert "$HP_TEST_NOBODY, $HP_TEST_TOKEN: taken from the environment of harbor serve" in done.stderr
    assert holds(desk.folder / "jobs", TOKEN) == []
    assert holds(desk.folder, server.key) == []
    assert server.key not in done.stdout + done.stderr


def test_where_the_servers_disk_is_not_ours_the_same_comes_through_its_api(
    packed: tuple[subprocess.CompletedProcess[str], Desk], server: Server
) -> None:
    _, desk = packed
    code = "from harbor_tasks.environments import harbor_server_run as run; run._own_folder = lambda _: None\n"
    code += "from harbor_tasks import cli; cli.main()"
    words = command(server, desk.folder / "desk.hpb", "--keep", desk.folder / "kept", jobs=desk.folder / "again")
    done = subprocess.run(
        [sys.executable, "-c", code, *words[3:]], env=environ(server), capture_output=True, text=True, timeout=180,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "1 of 1 trial scored, mean reward 1.00" in done.stdout
    [job], [before] = (desk.folder / "again").iterdir(), (desk.folder / "jobs").iterdir()
    assert read_job(job).source == read_job(before).source
    assert what_became(job) == what_became(before)
    assert verdicts(job) == verdicts(before)


# ---- before there is a job ----


@pytest.fixture(scope="module")
def simple(make_desk: MakeDesk) -> Desk:
    """An eval of one case, built."""
    desk = make_desk()
    desk.case("one")
    desk.build()
    return desk


def test_a_wrong_key_and_no_key_are_said_before_anything_is_fetched(server: Server, simple: Desk) -> None:
    for key, says in (("not-it", "refuses the key"), (None, "wants a key")):
        with pytest.raises(MachineError, match=says):
            run_job(
                simple.out,
                RunOptions("harbor", "oracle", server=server.url, server_key=key, jobs_dir=simple.folder / "x"),
            )
    assert not (simple.folder / "x").exists()


def test_tasks_that_the_server_does_not_find_are_said_by_their_place(server: Server, simple: Desk) -> None:
    options = RunOptions("harbor", "oracle", server=server.url, server_key=server.key)
    gone = HarborServerEnvironment(simple.out, read_manifest(simple.out), {}, options, {"one": Path("/not/here")})
    with pytest.raises(MachineError, match=r"does not find /not/here: it takes tasks from its own disk"):
        gone._check_job()


def test_what_the_server_refuses_of_a_task_or_an_option_is_the_authors(server: Server, make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.case("fine")
    desk.case("broken")
    (desk.build() / "broken" / "tests" / "test.sh").unlink()
    with pytest.raises(AuthorError, match=r"tests/test\.sh"):
        run(desk, server)
    with pytest.raises(AuthorError, match="Unknown option 'wings'"):
        run(desk, server, harbor_options=("--ek", "wings=2"), cases=("fine",))
    with pytest.raises(AuthorError, match="would not reach the server"):
        run(desk, server, harbor_options=("--ae", "SOME_TOKEN=abcdefghijkl"), cases=("fine",))
    assert not (desk.folder / "jobs").exists()


# ---- the end ----


def at_work(desk: Desk, server: Server, process: subprocess.Popen[str]) -> Path:
    """The job, once a solution of it is at work."""
    until = time.monotonic() + 120
    tag = json.loads((desk.out / ".harbor-pack" / "build.json").read_text())["image"]
    while time.monotonic() < until and process.poll() is None:
        listed = subprocess.run(
            ["docker", "ps", "-q", "--filter", f"ancestor={tag}"], capture_output=True, text=True, check=True
        ).stdout.split()
        looks = ["docker", "exec", "--user", "root"]
        if any(
            subprocess.run([*looks, one, "test", "-e", "/workspace/started.txt"], check=False).returncode == 0
            for one in listed
        ):
            [job] = (desk.folder / "jobs").iterdir()
            return job
        time.sleep(0.3)
    raise AssertionError(process.communicate(timeout=5)[0] if process.poll() is not None else "nothing began")


@pytest.fixture
def working(server: Server, make_desk: MakeDesk, repo_root: Path) -> Iterator[tuple[Desk, subprocess.Popen[str], Path]]:
    """A job of two cases, one at a time: the first one at work for a while, the other waiting."""
    desk = make_desk()
    for name in ("a", "b"):
        desk.case(name, solve="touch started.txt\nsleep 8\necho yes > done.txt\n")
    desk.build()
    words = command(server, desk.out, "--agent", "oracle", "-n", "1", jobs=desk.folder / "jobs")
    process = subprocess.Popen(
        words, cwd=repo_root, env=environ(server), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield desk, process, at_work(desk, server, process)
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def test_ctrl_c_cancels_the_job_at_the_server_and_says_how_to_go_on(
    working: tuple[Desk, subprocess.Popen[str], Path], server: Server
) -> None:
    desk, process, job = working
    process.send_signal(signal.SIGINT)
    asked = time.monotonic()
    said = process.communicate(timeout=60)[0]
    assert time.monotonic() - asked < 30
    assert process.returncode == 130, said
    assert {trial.status for trial in read_trials(job)} == {"interrupted"}
    assert [one["state"] for one in server.jobs(job.name)] == ["cancelled"]
    assert left_behind(job) == []
    assert not (job / "harbor" / "1" / "tasks").exists()
    assert f"harbor-pack runner {desk.out} --server {server.url} --agent oracle --resume {job}" in said


def test_a_killed_runner_loses_nothing_of_what_the_server_does(
    working: tuple[Desk, subprocess.Popen[str], Path], server: Server
) -> None:
    desk, process, job = working
    process.kill()
    process.wait()
    with pytest.raises(AuthorError, match="go on with it by harbor-pack runner"):
        run_job(desk.out, RunOptions("harbor", "oracle", resume=job, harbor=desk.harbor))
    again = run(desk, server, resume=job, cases=("a",))
    assert again.trials["a"].reward == 1.0
    assert again.trials["b"].status != "scored"
    [one] = server.jobs(job.name)
    assert one["state"] == "running", "the rest of it goes on"
    again = run(desk, server, resume=job)
    assert [again.trials[case].reward for case in ("a", "b")] == [1.0, 1.0]
    [one] = server.jobs(job.name)
    assert (one["state"], one["rollouts"]["n_total"]) == ("finished", 2)
    assert collect_job(job).exit_code == 0
    assert left_behind(job) == []


@pytest.fixture
def mortal(harbor_bin: Path, tmp_path: Path) -> Iterator[Server]:
    """A server of the test's own, which knows none of our agents."""
    server = Server(harbor_bin, tmp_path / "serve", env={})
    try:
        yield server.start()
    finally:
        server.end()


def test_a_server_that_is_killed_costs_what_ran_and_one_that_comes_back_goes_on(
    mortal: Server, make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch, repo_root: Path
) -> None:
    desk = make_desk()
    for name in ("a", "b"):
        desk.case(name, solve="touch started.txt\nsleep 3\necho yes > done.txt\n", replay=[])
    desk.build()
    with pytest.raises(MachineError, match=r"does not know harbor-pack's agents .* PYTHONPATH="):
        run(desk, mortal, "replay")
    words = command(mortal, desk.out, "--agent", "oracle", "-n", "1", jobs=desk.folder / "jobs")
    process = subprocess.Popen(
        words, cwd=repo_root, env=environ(mortal), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        job = at_work(desk, mortal, process)
        mortal.end(signal.SIGKILL)
        mortal.start()
        said = process.communicate(timeout=120)[0]
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 3, said
    assert "no answer from the Harbor server" in said
    assert "Service interrupted" in said
    trials = {trial.case_id: trial for trial in read_trials(job)}
    assert (trials["a"].status, trials["b"].reward) == ("error", 1.0)
    assert left_behind(job) == []
