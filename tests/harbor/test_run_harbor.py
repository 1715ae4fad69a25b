"""`run --env harbor` with real Harbor and a real engine: the examples, and all that Harbor passes over in silence."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harbor_tasks.environments.base import RunOptions, Trial, read_trials, trial_dir
from harbor_tasks.environments.cleaning import clean
from harbor_tasks.environments.harbor_kinds import KINDS
from harbor_tasks.environments.jobs import run_job
from harbor_tasks.errors import AuthorError, MachineError
from harbor_tasks.resources import resource
from harbor_tasks.results.collect import collect_job
from harbor_tasks.tasks.build import build
from tests.kit import SOLVE, what_became

from .kit import (
    Desk,
    MakeDesk,
    Ran,
    images,
    left_behind,
    remove_images,
    verdicts,
    wrapper,
)

pytestmark = [pytest.mark.harbor, pytest.mark.engine]

EXAMPLES = sorted(path.parent.name for path in resource("examples").glob("*/eval.yaml"))


# ---- the examples ----


@pytest.fixture(scope="module", params=EXAMPLES)
def example(
    request: pytest.FixtureRequest, base_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """The example, built; its image is made from the base image, and goes with the module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARBOR_PACK_BASE", base_image)
        built = build(resource("examples", request.param), tmp_path_factory.mktemp(request.param) / "out").out
        known = images(built)
        yield built
        remove_images(images(built) - known)


@pytest.mark.parametrize("agent", ["oracle", "replay"])
def test_an_example_gets_the_same_rewards_and_decisions_under_harbor_as_on_this_machine(
    example: Path, agent: str, harbor_bin: Path
) -> None:
    jobs = example.parent / agent
    harbor = run_job(example, RunOptions("harbor", agent, parallel=2, jobs_dir=jobs / "harbor", harbor=harbor_bin))
    local = run_job(example, RunOptions("local", agent, jobs_dir=jobs / "local"))
    faults = {trial.case_id: trial.error.message for trial in read_trials(harbor) if trial.error is not None}
    assert faults == {}
    assert verdicts(harbor) == verdicts(local)
    assert {trial.reward for trial in read_trials(harbor)} == {1.0}
    assert what_became(harbor) == what_became(local)
    assert [trial.calls for trial in read_trials(harbor)] == [trial.calls for trial in read_trials(local)]
    assert all(trial.sealed and trial.warnings == () for trial in read_trials(harbor))
    assert collect_job(harbor).exit_code == 0
    assert left_behind(harbor) == []
    for trial in read_trials(harbor):
        assert not any(trial.case_id in path.name for path in (harbor / "harbor" / "1" / "job").iterdir())
        kept = {path.name for path in trial_dir(harbor, trial.id).iterdir()}
        assert kept >= {"trial.json", "verifier", "workspace"}


# ---- what Harbor passes over in silence ----


@pytest.fixture(scope="module")
def faulty(make_desk: MakeDesk) -> Ran:
    """One job of cases that each fail in another way, beside one that does not."""
    desk = make_desk()
    desk.case("good")
    desk.case("wrong", solve="echo no > done.txt\n")
    desk.case("leaves with 3", solve=SOLVE + "echo out of paper >&2\nexit 3\n")
    desk.case("does not end", solve=SOLVE + "sleep 600\n")
    for name in ("no seal", "no verdict", "a judge fails", "a judge is asked later", "forged reward"):
        desk.case(name)
    built = desk.build()
    folders = {task["case_id"]: built / task["directory"] for task in manifest(built)["tasks"]}
    replace(folders["does not end"] / "task.toml", "[agent]\n", "[agent]\ntimeout_sec = 4.0\n")
    replace(folders["no seal"] / "environment" / "setup", "\nworkspace=", "\nfail 'the moon is full'\nworkspace=")
    (folders["no verdict"] / "tests" / "test.sh").write_text("#!/bin/sh\necho the judges are on strike\n")
    (folders["forged reward"] / "tests" / "test.sh").write_text(
        '#!/bin/sh\necho \'{"reward": "NaN"}\' >/logs/verifier/reward.json\n'
    )
    judges(folders["a judge fails"], {"code": "return 1 / 0"})
    judges(folders["a judge is asked later"], {"kind": "prompt", "prompt": "Is it done?"})
    shutil.copy(resource("interceptor", "judge.py"), folders["a judge is asked later"] / "tests")
    return desk.run()


def manifest(built: Path) -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = json.loads((built / ".harbor-pack" / "build.json").read_text())
    return found


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def judges(task: Path, change: dict[str, str]) -> None:
    path = task / "tests" / "judges.json"
    config = json.loads(path.read_text())
    config["judges"][0].update(change)
    path.write_text(json.dumps(config))


def error_of(ran: Ran, case: str) -> tuple[str, str]:
    trial: Trial = ran.trials[case]
    assert trial.status == "error"
    assert trial.error is not None
    return trial.error.kind, trial.error.message


def test_a_fault_of_one_trial_is_none_of_the_others(faulty: Ran) -> None:
    assert (faulty.trials["good"].status, faulty.trials["good"].reward) == ("scored", 1.0)
    assert (faulty.trials["wrong"].status, faulty.trials["wrong"].reward) == ("scored", 0.0)
    assert collect_job(faulty.folder).exit_code == 3
    assert left_behind(faulty.folder) == []


def test_a_solution_that_fails_is_the_agents_error_though_harbor_calls_it_done(faulty: Ran) -> None:
    kind, message = error_of(faulty, "leaves with 3")
    assert kind == "agent"
    assert message.startswith("exit code 3")


def test_an_agent_that_does_not_end_is_a_timeout(faulty: Ran) -> None:
    assert error_of(faulty, "does not end")[0] == "timeout"


def test_a_sandbox_that_cannot_be_set_up_is_an_environment_error_with_setups_own_words(faulty: Ran) -> None:
    kind, message = error_of(faulty, "no seal")
    assert kind == "environment"
    assert "HealthcheckError" in message
    assert "setup: the moon is full" in message


def test_a_verifier_without_a_verdict_is_a_verifier_error_with_what_it_printed(faulty: Ran) -> None:
    for case, says in (("no verdict", "No reward file found"), ("forged reward", "Non-numeric reward")):
        kind, message = error_of(faulty, case)
        assert kind == "verifier"
        assert says in message
    assert "on strike" in faulty.kept("no verdict", "verifier.log").read_text()


def test_a_judge_that_fails_is_said_and_one_that_has_still_to_be_asked_leaves_the_trial_unjudged(faulty: Ran) -> None:
    kind, message = error_of(faulty, "a judge fails")
    assert kind == "verifier"
    assert "division by zero" in message
    trial = faulty.trials["a judge is asked later"]
    assert (trial.status, trial.reward, trial.unjudged) == ("unjudged", None, ("done",))


@pytest.fixture(scope="module")
def three(make_desk: MakeDesk) -> Desk:
    """An eval of three cases, built."""
    desk = make_desk()
    for name in ("one", "two", "three"):
        desk.case(name)
    desk.build()
    return desk


DROP = """import json, sys
with open(sys.argv[1], "r+") as file:
    config = json.load(file)
    config["tasks"].pop()
    file.seek(0)
    file.truncate()
    json.dump(config, file)
"""


def test_a_task_that_harbor_drops_has_vanished_and_a_resumed_job_brings_it(three: Desk) -> None:
    (three.folder / "drop.py").write_text(DROP)
    drop = f'python3 {three.folder}/drop.py "$job/config.json"'
    ran = three.run(harbor=wrapper(three.folder, three.harbor, drop))
    by_status = {trial.status for trial in ran.trials.values()}
    assert by_status == {"scored", "vanished"}
    [gone] = [trial for trial in ran.trials.values() if trial.status == "vanished"]
    assert "Harbor left nothing of it" in gone.warnings
    assert collect_job(ran.folder).exit_code == 1
    again = three.run(resume=ran.folder)
    assert {trial.reward for trial in again.trials.values()} == {1.0}
    assert again.trials["one"].finished == ran.trials["one"].finished
    assert left_behind(ran.folder) == []


def test_a_job_that_one_task_aborts_gives_each_trial_its_own_end_and_leaves_no_container(three: Desk) -> None:
    breaks = 'rm "$(ls -d "$job"/tasks/* | tail -n 1)"/tests/test.sh'
    ran = three.run(harbor=wrapper(three.folder, three.harbor, breaks))
    vanished = [trial for trial in ran.trials.values() if trial.status == "vanished"]
    assert vanished
    assert all("does not contain tests/test.sh" in trial.warnings[0] for trial in vanished)
    others = [trial for trial in ran.trials.values() if trial.status != "vanished"]
    assert all(t.status == "scored" or (t.error and "aborted the job" in t.error.message) for t in others)
    summary = collect_job(ran.folder)
    assert summary.exit_code in (1, 3)
    assert any("harbor run ended with exit code 1" in fault for fault in summary.faults)
    assert left_behind(ran.folder) == []


def test_each_attempt_is_a_trial_and_the_callers_variables_reach_it_but_no_file(
    make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = make_desk()
    desk.spec["execution"]["env"] = {"DESK_TOKEN": "$HP_TEST_TOKEN", "DESK": "${HP_TEST_NOBODY:-a $desk}"}
    desk.case("one", solve='test "$DESK_TOKEN $DESK" = "hush-4711 a \\$desk" && echo yes > done.txt\n')
    desk.build()
    monkeypatch.setenv("HP_TEST_TOKEN", "hush-4711")
    ran = desk.run(attempts=2)
    assert [(trial.attempt, trial.reward) for trial in read_trials(ran.folder)] == [(1, 1.0), (2, 1.0)]
    told = [path for path in ran.folder.rglob("*") if path.is_file() and b"hush-4711" in path.read_bytes()]
    assert told == []


# ---- evidence ----


def test_an_unsealed_trial_is_void_without_its_log_and_an_error_without_a_working_hook(
    make_desk: MakeDesk, base_image: str
) -> None:
    desk = make_desk()
    desk.spec["sandbox"] = {"image": base_image, "sealed": False}
    desk.handlers({"match": "commands with a b", "patterns": ["Bash"], "input_filters": ["b"], "on_pass": "none"})
    hunt = "import os; [os.unlink(d + '/' + f) for d, _, fs in os.walk('/var/log') for f in fs if f.startswith('in')]"
    hide = {"tool": "Bash", "input": {"command": f'python3 -c "{hunt}"'}}  # no text tells what it removes
    desk.case("hides", replay=[{"tool": "Bash", "input": {"command": "echo yes > done.txt"}}, hide])
    desk.case("plain", replay=[{"tool": "Bash", "input": {"command": "echo yes > done.txt"}}])
    desk.case("broken", replay=[{"tool": "Bash", "input": {"command": "echo yes > done.txt"}}])
    (desk.build() / "broken" / "environment" / "hooks" / "tools.py").write_text("import nothing_like_it\n")
    ran = desk.run("replay")
    assert (ran.trials["plain"].status, ran.trials["plain"].reward) == ("scored", 1.0)
    assert not ran.trials["plain"].sealed
    kind, message = error_of(ran, "hides")
    assert kind == "tampered"
    assert "without passing the interceptor" in message
    assert ran.trials["hides"].reward is None
    kind, message = error_of(ran, "broken")
    assert kind == "environment"
    assert "the policy does not work in this sandbox" in message


# ---- before a job ----


def test_a_task_that_harbor_would_drop_is_refused_by_case_before_there_is_a_job(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.case("fine")
    desk.case("broken")
    built = desk.build()
    (built / "broken" / "tests" / "test.sh").unlink()
    with pytest.raises(AuthorError, match=r"does not contain tests/test\.sh") as caught:
        desk.run()
    assert [problem.where.case for problem in caught.value.problems] == ["broken"]
    assert not (desk.folder / "jobs").exists()


def test_what_harbor_itself_refuses_of_its_options_is_said_before_there_is_a_job(three: Desk) -> None:
    with pytest.raises(AuthorError, match="moonbase"):
        three.run(harbor_options=("-e", "moonbase"))
    with pytest.raises(AuthorError, match="No such option"):
        three.run(harbor_options=("--fly",))
    with pytest.raises(AuthorError, match="Unknown option 'wings'"):
        three.run(harbor_options=("--ek", "wings=2"))


def test_what_this_machine_lacks_for_harbor_is_no_fault_of_the_author(three: Desk) -> None:
    with pytest.raises(MachineError, match=r"harbor run --dry-run: Apple Container requires"):
        three.run(harbor_options=("-e", "apple-container"))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("-a", "oracle"), "--agent of harbor-pack"),
        (("-k3",), "--attempts"),
        (("--path=.",), "name the eval"),
        (("--launch", "-n", "3"), "from here"),
        (("--server", "http://127.0.0.1:8390"), "harbor-pack runner"),
        (("--no-delete",), "would be left"),
    ],
)
def test_options_that_would_make_it_another_job_are_refused(three: Desk, options: tuple[str, ...], says: str) -> None:
    with pytest.raises(AuthorError, match=says):
        three.run(harbor_options=options)


def test_a_kind_of_machine_that_cannot_seal_is_refused_with_the_reason(three: Desk) -> None:
    with pytest.raises(MachineError, match=r"singularity cannot seal \(.*setuid"):
        three.run(harbor_options=("-e", "singularity"))


def test_a_missing_harbor_is_said_with_how_to_get_it(three: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MachineError, match="no such program"):
        three.run(harbor=three.folder / "nowhere")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("HARBOR_PACK_CACHE", "/nowhere")
    with pytest.raises(MachineError, match=r"harbor is not on PATH.*pipx install"):
        run_job(three.out, RunOptions("harbor", "oracle", jobs_dir=three.folder / "none"))


def test_an_unset_variable_is_said_before_there_is_a_job(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.spec["execution"]["env"] = {"DESK_TOKEN": "$HP_TEST_NOT_SET"}
    desk.case("one")
    desk.build()
    with pytest.raises(AuthorError, match=r"\$HP_TEST_NOT_SET is not set"):
        desk.run()


# ---- the end ----


@pytest.fixture
def at_work(make_desk: MakeDesk, repo_root: Path) -> Iterator[tuple[Desk, subprocess.Popen[str]]]:
    """A job of three cases, as a process of its own, with two solutions at work that do not end."""
    desk = make_desk()
    for name in ("a", "b", "c"):
        desk.case(name, solve="touch started.txt\nsleep 600\n")
    desk.build()
    command: list[str | Path] = [
        sys.executable, "-m", "harbor_tasks.cli", "run", desk.out, "--env", "harbor", "--harbor", desk.harbor,
        "--agent", "oracle", "-n", "2", "--jobs-dir", desk.folder / "jobs",
    ]  # fmt: skip
    process = subprocess.Popen(command, cwd=repo_root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        until = time.monotonic() + 180
        while len(running(desk)) < 2 and time.monotonic() < until and process.poll() is None:
            time.sleep(0.5)
        assert len(running(desk)) == 2
        yield desk, process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def test_ctrl_c_ends_harbor_and_its_containers_and_marks_what_ran(
    at_work: tuple[Desk, subprocess.Popen[str]],
) -> None:
    desk, process = at_work
    process.send_signal(signal.SIGINT)
    asked = time.monotonic()
    said = process.communicate(timeout=60)[0]
    assert time.monotonic() - asked < 30
    assert process.returncode == 130, said
    [job] = (desk.folder / "jobs").iterdir()
    assert {trial.status for trial in read_trials(job)} == {"interrupted"}
    assert left_behind(job) == []
    assert processes_of(job) == []
    assert "--resume" in said


def test_what_a_killed_run_leaves_ends_with_it_and_clean_removes_the_rest(
    at_work: tuple[Desk, subprocess.Popen[str]],
) -> None:
    desk, process = at_work
    [job] = (desk.folder / "jobs").iterdir()
    process.kill()
    process.wait()
    until = time.monotonic() + 60
    while processes_of(job) and time.monotonic() < until:
        time.sleep(0.5)
    assert processes_of(job) == []
    clean(job.name, jobs_dir=job.parent)
    assert left_behind(job) == []


def running(desk: Desk) -> list[str]:
    """The containers in which a solution of this eval is at work."""
    tag = json.loads((desk.out / ".harbor-pack" / "build.json").read_text())["image"]
    command = ["docker", "ps", "-q", "--filter", f"ancestor={tag}"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    looks = ["docker", "exec", "--user", "root"]
    return [
        one
        for one in listed.stdout.split()
        if subprocess.run([*looks, one, "test", "-e", "/workspace/started.txt"], check=False).returncode == 0
    ]


def processes_of(job: Path) -> list[str]:
    """Harbor's processes of this job: they name its folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return [line for line in found if f"{job}/harbor" in line]


# ---- what the docs say ----


def test_every_kind_of_machine_that_harbor_knows_is_stated_in_the_docs_as_in_the_program(
    repo_root: Path, harbor_bin: Path
) -> None:
    code = "from harbor.models.environment_type import EnvironmentType as E; print(*(e.value for e in E))"
    done = subprocess.run([harbor_bin.parent / "python", "-c", code], capture_output=True, text=True, check=True)
    assert set(KINDS) == set(done.stdout.split())
    words = {"yes": "yes", "untried": "not tried", "no": "no"}
    said = {}
    for line in (repo_root / "docs" / "harbor.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and cells[1] in words.values():
            said.update({name.strip("`"): (cells[1], cells[2]) for name in cells[0].split(", ")})
    assert said == {name: (words[kind.seals], kind.why) for name, kind in KINDS.items()}
