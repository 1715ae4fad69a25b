"""Where a job's tasks come from: an eval is built for each job alone, and nothing rewrites a job's tasks unseen."""

from __future__ import annotations

import errno
import json
import shlex
import shutil
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from harbor_tasks.environments import sources
from harbor_tasks.environments.base import (
    Event,
    RunOptions,
    SandboxError,
    Trial,
    TrialPlan,
    read_job,
    read_trials,
)
from harbor_tasks.environments.cleaning import clean
from harbor_tasks.environments.harbor_command import Harbor
from harbor_tasks.environments.harbor_process import HarborRun
from harbor_tasks.environments.jobs import run_job
from harbor_tasks.environments.local import LocalEnvironment
from harbor_tasks.environments.lock import job_lock
from harbor_tasks.environments.plan import task_digest
from harbor_tasks.environments.sources import ROOM, _room, built_tasks
from harbor_tasks.errors import AuthorError, MachineError
from harbor_tasks.tasks.build import build

DONE = "echo yes > done.txt\n"


@pytest.fixture
def desk(author: Any) -> Any:
    """An eval of two cases, written and not built."""
    author.case("a", solve=DONE)
    author.case("b", solve=DONE)
    author.write()
    return author


def run(author: Any, listen: Any = None, **options: Any) -> Path:
    """A job on the eval itself."""
    return run_job(author.eval, RunOptions(agent="oracle", jobs_dir=author.jobs, **options), on_event=listen)


def the_digests_of_what_ran(folder: Path) -> dict[str, bool]:
    """Case → whether the task that lies in the job is the one that its trial is recorded under."""
    job = read_job(folder)
    return {one.case_id: task_digest(Path(job.source) / one.task) == one.digest for one in job.expected}


def rewards(folder: Path) -> dict[str, float | None]:
    return {trial.case_id: trial.reward for trial in read_trials(folder)}


def test_a_job_on_an_eval_keeps_the_tasks_that_it_ran(desk: Any) -> None:
    folder = run(desk)
    assert rewards(folder) == {"a": 1, "b": 1}
    assert Path(read_job(folder).source) == folder / "tasks"
    assert the_digests_of_what_ran(folder) == {"a": True, "b": True}
    assert list(desk.jobs.iterdir()) == [folder]
    assert list(desk.scratch.iterdir()) == []


def test_what_is_run_while_a_job_runs_leaves_its_tasks_alone(desk: Any) -> None:
    others: list[Path] = []

    def listen(event: Event) -> None:
        if event.kind == "started" and not others:
            desk.case("b", solve=f"{DONE}# another task\n")
            others.append(run(desk, cases=("b",)))
            desk.dry_run(desk.eval, cases=("a",))

    folder = run(desk, listen)
    assert rewards(folder) == {"a": 1, "b": 1}
    assert the_digests_of_what_ran(folder) == {"a": True, "b": True}
    assert rewards(others[0]) == {"b": 1}
    assert the_digests_of_what_ran(others[0]) == {"b": True}


def test_evals_in_folders_of_one_name_run_at_the_same_time(desk: Any, tmp_path: Path) -> None:
    other = tmp_path / "other" / "eval"
    shutil.copytree(desk.eval, other)
    (other / "cases" / "b").rename(other / "cases" / "c")
    (other / "eval.yaml").write_text(json.dumps({**desk.spec, "name": "table"}))
    found: dict[str, Path] = {}

    def job(name: str, source: Path) -> None:
        found[name] = run_job(source, RunOptions(agent="oracle", jobs_dir=desk.jobs))

    threads = [threading.Thread(target=job, args=one) for one in (("desk", desk.eval), ("table", other))]
    threads += [threading.Thread(target=job, args=("desk again", desk.eval))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(set(found.values())) == 3
    assert {name: rewards(folder) for name, folder in found.items()} == {
        "desk": {"a": 1, "b": 1}, "desk again": {"a": 1, "b": 1}, "table": {"a": 1, "c": 1},
    }  # fmt: skip
    assert all(all(the_digests_of_what_ran(folder).values()) for folder in found.values())


def test_a_dry_run_of_an_eval_leaves_nothing_behind(desk: Any) -> None:
    plan = desk.dry_run(desk.eval)
    assert [one.case_id for one in plan.todo] == ["a", "b"]
    assert not desk.jobs.exists()
    assert list(desk.scratch.iterdir()) == []
    desk.jobs.write_text("no folder can be made here")
    assert desk.dry_run(desk.eval).todo


@pytest.mark.parametrize(
    ("options", "says"),
    [({"cases": ("z",)}, "z"), ({"environment": "moon"}, "moon"), ({"attempts": 1, "harbor_options": ("-x",)}, "-x")],
)
def test_a_job_that_cannot_start_leaves_nothing_behind(desk: Any, options: Any, says: str) -> None:
    with pytest.raises(AuthorError, match=says):
        run(desk, **options)
    assert not desk.jobs.exists()


def test_a_job_that_cannot_start_leaves_other_jobs_alone(desk: Any) -> None:
    folder = run(desk)
    with pytest.raises(AuthorError, match="moon"):
        run(desk, environment="moon")
    assert list(desk.jobs.iterdir()) == [folder]


def test_an_end_while_the_place_for_jobs_is_made_leaves_nothing_behind(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(path: Path) -> None:
        path.parent.mkdir(parents=True)
        raise KeyboardInterrupt

    monkeypatch.setattr(sources, "new_folder", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(desk)
    assert not desk.jobs.exists()


def test_a_place_for_jobs_that_cannot_be_written_is_said(desk: Any) -> None:
    desk.jobs.write_text("a file")
    with pytest.raises(MachineError, match="name another place for jobs with --jobs-dir"):
        run(desk)
    with pytest.raises(MachineError, match="name another place for jobs with --jobs-dir"):
        desk.run_built(desk.build())


class Ended(BaseException):
    """What a signal raises, wherever the program is."""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a file of it is closed late
def test_wherever_a_signal_comes_while_a_place_is_made_nothing_is_left(tmp_path: Path) -> None:
    """One at each line in turn, until all have been passed."""
    lines = left = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if Path(frame.f_code.co_filename).name not in ("sources.py", "base.py"):
            return None
        if event == "line" and (left := left - 1) < 0:
            sys.settrace(None)
            raise Ended
        return trace

    while True:
        left, before = lines, sys.gettrace()
        sys.settrace(trace)
        try:
            with _room(tmp_path / "a" / "jobs"):
                sys.settrace(before)
            break
        except Ended:
            assert list(tmp_path.iterdir()) == [], f"after {lines} lines"
        finally:
            sys.settrace(before)
        lines += 1
    assert lines > 8
    assert list(tmp_path.iterdir()) == []


def test_a_signal_when_the_jobs_folder_has_just_been_made_leaves_nothing(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(path: Path) -> None:
        path.mkdir(parents=True)
        if not path.name.startswith(ROOM):
            raise Ended

    monkeypatch.setattr(sources, "new_folder", ended)
    with pytest.raises(Ended):
        run(desk)
    assert not (desk.folder / "jobs").exists()


def fill_the_disk(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """No file whose name begins so can be written to its end."""
    write = Path.write_text

    def full(path: Path, *args: Any, **options: Any) -> int:
        if path.name.startswith(name):
            write(path, "half of i")
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, *args, **options)

    monkeypatch.setattr(Path, "write_text", full)


def test_a_full_disk_is_said_with_the_file(desk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_the_disk(monkeypatch, ".job.json")
    with pytest.raises(OSError, match="No space left") as caught:
        run(desk)
    assert Path(str(caught.value.filename)).name == "job.json"
    assert not desk.jobs.exists()


def test_a_trial_for_which_there_is_no_space_leaves_nothing_behind(desk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_the_disk(monkeypatch, "scratch")
    trials = read_trials(run(desk))
    assert {trial.error.kind for trial in trials if trial.error is not None} == {"environment"}
    assert list(desk.scratch.iterdir()) == []


def test_tasks_for_other_commands_are_gone_afterwards(desk: Any) -> None:
    with built_tasks(desk.eval, pytest.fail) as tasks:
        assert (tasks / "a" / "task.toml").is_file()
    assert not tasks.exists()
    out = desk.build()
    with built_tasks(out, pytest.fail) as tasks:
        assert tasks == out
    assert (out / "a" / "task.toml").is_file()


# ---- what a killed run leaves ----


def test_what_a_run_left_that_was_killed_before_there_was_a_job_is_removed(desk: Any) -> None:
    kept, other = run(desk), desk.folder / "jobs" / "mine"
    left = desk.jobs / "desk-20300101-000000-abcdef"
    desk.build().rename(left.with_name("tasks"))
    for place in (left, other):  # the other one is somebody's own
        shutil.copytree(desk.jobs / "tasks", place / "tasks")
    room = desk.jobs / f"{ROOM}1"
    room.mkdir()
    with job_lock(room):
        assert clean_folders(desk.jobs) == []
    assert clean_folders(desk.jobs) == [f"folder {room}", f"folder {left}"]
    assert sorted(desk.jobs.iterdir()) == sorted([kept, other, desk.jobs / "tasks"])
    assert (kept / "tasks" / "a" / "task.toml").is_file()


def test_what_a_run_has_before_there_is_a_job_is_in_use(desk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    monkeypatch.setattr(LocalEnvironment, "ready", lambda *_: seen.append(clean_folders(desk.jobs)))
    assert rewards(run(desk)) == {"a": 1, "b": 1}
    assert seen == [[]]


def clean_folders(jobs: Path) -> list[str]:
    return [line for line in clean(jobs_dir=jobs).removed if line.startswith("folder")]


# ---- resume ----


def unfinished(desk: Any) -> Path:
    """A job of which case b failed and would not fail again."""
    flag = desk.folder / "flag"
    desk.case("b", solve=f"[ -e {flag} ] || exit 7\n{DONE}")
    folder = run(desk)
    assert [trial.status for trial in read_trials(folder)] == ["scored", "error"]
    flag.touch()
    return folder


def test_a_job_on_an_eval_is_gone_on_with(desk: Any) -> None:
    folder = unfinished(desk)
    kept = read_trials(folder)[0]
    assert run(desk, resume=folder) == folder
    assert rewards(folder) == {"a": 1, "b": 1}
    assert read_trials(folder)[0] == kept
    assert list(desk.scratch.iterdir()) == []


def test_a_job_on_some_cases_is_gone_on_with_on_those(desk: Any) -> None:
    folder = run(desk, cases=("b",))
    (folder / "trials" / read_trials(folder)[0].id / "trial.json").unlink()
    desk.case("a", solve="# has changed, and is none of this job's")
    run(desk, resume=folder)
    assert rewards(folder) == {"b": 1}


def test_a_case_that_has_changed_is_run_again_and_the_others_are_kept(desk: Any) -> None:
    folder = unfinished(desk)
    run(desk, resume=folder)
    before = read_trials(folder)
    desk.case("b", solve=f"{DONE}# changed\n")
    desk.case("c", solve=DONE)
    desk.spec["thresholds"] = {"done": {"min_mean": 0.5}}
    desk.write()
    run(desk, resume=folder)
    after = read_trials(folder)
    assert after[0] == before[0]
    assert (after[1].case_id, after[1].reward, after[1].id == before[1].id) == ("b", 1, False)
    assert rewards(folder) == {"a": 1, "b": 1}, "a case that was not there is for a new job"


def test_a_case_that_was_added_is_named_with_the_way_to_add_it(desk: Any) -> None:
    folder, said = run(desk), list[str]()
    some = run(desk, cases=("b",))
    desk.case("c d", solve=DONE)

    def events(event: Event) -> None:
        said.append(str(event))

    run(desk, events, resume=folder)
    [warning] = [line for line in said if "none of this job's" in line]
    add = f"--case 'c d' --resume {folder}"
    assert warning.startswith("warning: case c d is none of this job's cases: it is left out; ")
    assert f"; {add} adds it to this job, or start a new job" in warning
    said.clear()
    run(desk, events, resume=some)
    assert [line for line in said if "none of this job's" in line] == [], "a job on some cases asked for those alone"
    run(desk, events, cases=("c d",), resume=folder)
    assert rewards(folder) == {"a": 1, "b": 1, "c d": 1}
    assert [line for line in said if "none of this job's" in line] == []


def test_a_case_that_is_gone_is_left_out_of_the_job(desk: Any) -> None:
    folder = unfinished(desk)
    shutil.rmtree(desk.eval / "cases" / "b")
    run(desk, resume=folder)
    assert rewards(folder) == {"a": 1}


def test_a_job_is_not_gone_on_with_on_another_eval(desk: Any) -> None:
    folder = unfinished(desk)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    desk.spec["name"] = "table"
    desk.write()
    with pytest.raises(AuthorError, match="this job is one of the eval 'desk', not of 'table'"):
        run(desk, resume=folder)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    # the tasks as they were are still there
    desk.run_built(folder / "tasks", resume=folder)
    assert rewards(folder) == {"a": 1, "b": 1}


def test_a_job_on_built_tasks_is_gone_on_with_by_their_name(desk: Any) -> None:
    ran = desk.run()
    with pytest.raises(AuthorError, match=rf"name {desk.folder / 'out'}"):
        run(desk, resume=ran.folder)


def test_a_job_in_the_place_of_an_eval_is_told_how_it_is_gone_on_with(desk: Any) -> None:
    folder = unfinished(desk)
    with pytest.raises(AuthorError, match="this is a job") as caught:
        run_job(folder, RunOptions(agent="oracle", jobs_dir=desk.jobs))
    _, _, command = str(caught.value).partition("harbor-pack ")
    assert shlex.split(command) == ["run", str(folder / "tasks"), "--resume", str(folder)]


# ---- built tasks that change under a job ----


def test_a_task_that_is_rewritten_before_its_trial_is_not_run(desk: Any) -> None:
    desk.case("a", solve=f"echo exit 9 > {desk.folder}/out/b/solution/solve.sh\n{DONE}")
    ran = desk.run(parallel=1)
    a, b = ran.trials
    assert (a.status, a.reward) == ("scored", 1)
    assert_refused(b, "was changed since the job started")
    assert not (ran.folder / "trials" / b.id / "workspace").exists()


def test_a_task_that_is_rewritten_during_its_trial_has_no_score(desk: Any) -> None:
    desk.case("a", solve=f"echo '# easier' >> {desk.folder}/out/a/tests/verify.py\n{DONE}")
    a, b = desk.run().trials
    assert_refused(a, "was changed since the job started")
    assert b.reward == 1


def test_a_task_that_is_built_anew_during_its_job_is_not_run(desk: Any) -> None:
    desk.case("a", solve=f"while [ ! -e {desk.folder}/built ]; do sleep 0.02; done\n{DONE}")
    out = desk.build()

    def listen(event: Event) -> None:
        if event.text == "started a":
            desk.case("b", solve=f"{DONE}# another\n")
            build(desk.eval, out)
            (desk.folder / "built").touch()

    folder = run_job(out, RunOptions(agent="oracle", jobs_dir=desk.jobs, parallel=1), on_event=listen)
    a, b = read_trials(folder)
    assert a.reward == 1
    assert_refused(b, "was changed since the job started")


def test_a_task_that_goes_away_during_its_job_is_said(desk: Any) -> None:
    desk.case("a", solve=f"rm -r {desk.folder}/out/b\n{DONE}")
    a, b = desk.run(parallel=1).trials
    assert a.reward == 1
    assert_refused(b, "is gone since the job started")


def test_a_task_that_is_changed_before_harbor_has_its_copy_is_not_run(desk: Any, tmp_path: Path) -> None:
    out = desk.build()
    plan = desk.dry_run(out)
    trials = [TrialPlan(one, out / one.task, tmp_path / "trial", plan.agent) for one in plan.todo]
    run_of_harbor = HarborRun(Harbor(Path("harbor"), "0.26"), tmp_path / "run", {})
    run_of_harbor.write(trials, {}, None)
    assert (tmp_path / "run" / "config.json").exists()
    (out / "b" / "instruction.md").write_text("something else")
    with pytest.raises(SandboxError, match="out/b was changed since the job started"):
        run_of_harbor.write(trials, {}, None)


def assert_refused(trial: Trial, says: str) -> None:
    assert trial.error is not None
    assert (trial.status, trial.error.kind, trial.reward) == ("error", "environment", None)
    assert says in trial.error.message
    assert f"out/{trial.case_id} " in trial.error.message
