"""A job: which trials it expects, how it runs them, how it is interrupted, and how it is gone on with."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.environments import contained
from harbor_tasks.environments.base import Event, RunOptions, read_job, read_trials
from harbor_tasks.environments.jobs import run_job
from harbor_tasks.environments.lock import job_lock
from harbor_tasks.errors import AuthorError

from .test_contained import PATIENCE, patient_reaper

DONE = "echo yes > done.txt\n"


def job_folders(author: Any) -> list[Path]:
    return sorted(author.jobs.glob("desk-*"))


def test_all_expected_trials_stand_in_the_job_before_the_first_one_starts(author: Any) -> None:
    author.case("a", solve=DONE)
    author.case("b", solve=DONE)
    seen: list[int] = []

    def listen(event: Event) -> None:
        if event.kind == "started" and not seen:
            [folder] = job_folders(author)
            seen.append(len(read_job(folder).expected))

    folder = run_job(author.build(), RunOptions(agent="oracle", jobs_dir=author.jobs, attempts=2), on_event=listen)
    assert seen == [4]
    job = read_job(folder)
    assert (job.status, job.agent, job.environment, job.sealed, job.attempts) == (
        "finished",
        "oracle",
        "local",
        False,
        2,
    )
    assert [(one.case_id, one.attempt) for one in job.expected] == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    assert len({one.trial for one in job.expected}) == 4
    assert [trial.reward for trial in read_trials(folder)] == [1, 1, 1, 1]


def test_trials_have_opaque_names(author: Any) -> None:
    author.case("refund-must-be-refused", solve=DONE)
    assert "refund" not in author.run().trial.id


def test_trials_run_at_the_same_time_when_asked(author: Any) -> None:
    meet = author.folder / "meet"
    meet.mkdir()
    for name, other in (("a", "b"), ("b", "a")):
        wait = f"touch {meet}/{name}; for i in $(seq 200); do [ -e {meet}/{other} ] && break; sleep 0.05; done\n"
        author.case(name, solve=f"{wait}[ -e {meet}/{other} ] && {DONE}")
    assert [trial.reward for trial in author.run(parallel=2).trials] == [1, 1]


def test_only_the_named_cases_run(author: Any) -> None:
    for name in ("a", "b", "c"):
        author.case(name, solve=DONE)
    assert [trial.case_id for trial in author.run(cases=("c", "a")).trials] == ["a", "c"]


def test_a_case_that_is_not_there_is_an_error_before_there_is_a_job(author: Any) -> None:
    author.case("umlauts", solve=DONE)
    with pytest.raises(AuthorError, match="did you mean umlauts"):
        author.run(cases=("umlaut",))
    assert not author.jobs.exists()


@pytest.mark.parametrize(("agent", "says"), [("oracle", "solve.sh"), ("replay", "replay.yaml")])
def test_a_case_without_what_the_agent_needs_is_an_error_of_its_trial(author: Any, agent: str, says: str) -> None:
    author.case("empty")
    author.case("full", solve=DONE, replay=[{"tool": "Bash", "input": {"command": "echo yes > done.txt"}}])
    ran = author.run(agent)
    empty, full = ran.trials
    assert empty.error is not None
    assert (empty.status, empty.error.kind, full.reward) == ("error", "agent", 1)
    assert says in empty.error.message


def test_a_job_in_which_no_case_has_it_never_starts(author: Any) -> None:
    author.case("a")
    author.case("b")
    with pytest.raises(AuthorError, match=r"solve\.sh") as caught:
        author.run("oracle")
    assert {problem.where.case for problem in caught.value.problems} == {"a", "b"}
    assert not author.jobs.exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"agent": "codex"}, r"the eval is written for claude-code; set runner\.type: codex"),
        ({"agent": "oracle", "scripted": True}, "this agent asks no model"),
        ({"agent": "orcale"}, "did you mean oracle"),
        ({"agent": "oracle", "environment": "moon"}, "not known"),
    ],
)
def test_what_this_version_does_not_run_is_said(author: Any, options: dict[str, str], says: str) -> None:
    author.case(solve=DONE)
    with pytest.raises(AuthorError, match=says):
        author.run(**options)


def test_a_task_that_was_changed_by_hand_is_said_and_its_case_is_named_once(author: Any) -> None:
    author.case("ship", solve=DONE)
    out = author.build()
    with (out / "ship" / "instruction.md").open("a", encoding="utf-8") as instruction:
        instruction.write("and more\n")
    [warning] = author.dry_run(out).warnings
    assert warning == "case ship: its task was changed after it was built"


def test_a_folder_that_is_no_build_is_said(tmp_path: Path) -> None:
    with pytest.raises(AuthorError, match=r"neither an eval nor built tasks .* that harbor-pack build wrote"):
        run_job(tmp_path, RunOptions(jobs_dir=tmp_path / "jobs"))
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "eval.yaml").touch()
    with pytest.raises(AuthorError, match=rf"did you mean one of {tmp_path}/shop\?"):
        run_job(tmp_path, RunOptions(jobs_dir=tmp_path / "jobs"))


def test_a_task_that_went_away_after_the_build_is_said(author: Any) -> None:
    author.case("a", solve=DONE)
    author.case("b", solve=DONE)
    out = author.build()
    (out / "b" / "task.toml").unlink()
    with pytest.raises(AuthorError, match="task directory is gone"):
        author.run_built(out)


def test_a_dry_run_names_the_trials_and_writes_nothing(author: Any) -> None:
    author.case("a", solve=DONE)
    author.case("b", solve=DONE)
    plan = author.dry_run(attempts=2)
    assert [plan.label(one) for one in plan.todo] == [
        "a (attempt 1)", "a (attempt 2)", "b (attempt 1)", "b (attempt 2)",
    ]  # fmt: skip
    assert not author.jobs.exists()


def test_a_dry_run_of_a_job_to_go_on_with_says_what_is_kept(author: Any) -> None:
    author.case("a", solve=DONE)
    author.case("b", solve="exit 1")
    ran = author.run()
    said = author.dry_run(resume=ran.folder).as_json()
    assert [(one["case_id"], one["kept"]) for one in said["trials"]] == [("a", True), ("b", False)]
    assert ran.job.status == "finished"


def test_a_job_is_gone_on_with_where_it_has_no_result(author: Any) -> None:
    flag = author.folder / "flag"
    author.case("good", solve=DONE)
    author.case("flaky", solve=f"[ -e {flag} ] || exit 7\n{DONE}")
    author.case("lost", solve=DONE)
    first = author.run()
    assert [trial.status for trial in first.trials] == ["error", "scored", "scored"]
    flaky, good, lost = first.trials
    (first.folder / "trials" / lost.id / "trial.json").unlink()
    assert first.trials[2].status == "vanished"
    flag.touch()
    second = author.run(resume=first.folder)
    assert second.folder == first.folder
    assert [trial.reward for trial in second.trials] == [1, 1, 1]
    assert second.trials[1] == good  # kept as it was
    assert second.trials[0].started > flaky.started
    assert any("2 trials, 1 kept" in event.text for event in second.events)
    assert second.job.created == first.job.created


def test_a_trial_whose_file_cannot_be_read_runs_again_and_it_is_said_why(author: Any) -> None:
    author.case("a", solve=DONE)
    author.case("b", solve=DONE)
    first = author.run()
    paths = {trial.case_id: first.folder / "trials" / trial.id / "trial.json" for trial in first.trials}
    paths["a"].write_text(paths["a"].read_text().replace('"reward": 1.0', '"reward": NaN'))
    paths["b"].write_text("")
    assert [trial.error.kind for trial in first.trials] == ["record", "record"]
    again = author.run(resume=first.folder, cases=("a",))
    said = [event.text for event in again.events if event.kind == "warning" and "run again" in event.text]
    why = "NaN is no number that can be counted with"
    assert said == [f"case a: {paths['a']} cannot be read ({why}): it is run again"]
    assert [(trial.case_id, trial.reward) for trial in again.trials] == [("a", 1), ("b", None)]
    assert author.dry_run(resume=first.folder).warnings == (
        f"case b: {paths['b']} cannot be read (it is empty): it is run again",
    )


def test_a_broken_task_toml_is_named(author: Any) -> None:
    author.case("a", solve=DONE)
    path = author.build() / "a" / "task.toml"
    path.write_text("[task\n")
    trial = author.run_built(author.folder / "out").trial
    assert trial.error.kind == "environment"
    assert trial.error.message.startswith(f"{path} cannot be read (")
    assert trial.error.message.endswith("); build the task again")


def test_a_task_that_was_changed_runs_again_and_an_unchanged_one_does_not(author: Any) -> None:
    author.case("a", solve=DONE)
    author.case("b", solve=DONE)
    first = author.run()
    before = first.trials
    author.case("b", solve=f"{DONE}# changed\n")
    second = author.run(resume=first.folder)
    assert second.trials[0] == before[0]
    assert second.trials[1].id != before[1].id
    assert [event.text for event in second.events if event.kind == "started"] == ["started b"]
    assert "case b has changed since this job started: it is run again" in [event.text for event in second.events]


def test_a_job_is_not_gone_on_with_on_another_eval(author: Any) -> None:
    author.case("a", solve=DONE)
    first = author.run()
    before = first.trials
    author.spec["name"] = "table"
    with pytest.raises(AuthorError, match="one of the eval 'desk', not of 'table'"):
        author.run(resume=first.folder)
    assert first.trials == before
    assert first.job.status == "finished"


def test_a_task_that_is_gone_is_left_out_of_its_job(author: Any) -> None:
    author.case("a", solve=DONE)
    case = author.case("b", solve=DONE)
    first = author.run()
    shutil.rmtree(case)
    second = author.run(resume=first.folder)
    assert [trial.case_id for trial in second.trials] == ["a"]
    assert [event.text for event in second.events if "no longer built" in event.text]


def test_more_attempts_add_trials_and_keep_the_first(author: Any) -> None:
    author.case(solve=DONE)
    first = author.run()
    before = first.trial
    second = author.run(resume=first.folder, attempts=2)
    assert [trial.attempt for trial in second.trials] == [1, 2]
    assert second.trials[0] == before


def test_another_agent_does_not_go_on_with_a_job(author: Any) -> None:
    author.case(solve=DONE, replay=[])
    first = author.run("oracle")
    with pytest.raises(AuthorError, match="agent oracle, not replay; go on with it by --agent oracle"):
        author.run("replay", resume=first.folder)


def test_a_running_job_is_not_run_twice(author: Any) -> None:
    author.case(solve=DONE)
    first = author.run()
    with job_lock(first.folder), pytest.raises(AuthorError, match="is running"):
        author.run(resume=first.folder)


def test_hooks_after_the_run_see_the_trial_and_the_job(author: Any) -> None:
    author.spec["hooks"] = {
        "after_each": [{"command": 'cat done.txt > "$AGENT_EVAL_PROJECT_ROOT/each"; echo "$HARBOR_PACK_TRIAL"'}],
        "after_all": [{"command": 'ls "$HARBOR_PACK_JOB" > "$AGENT_EVAL_PROJECT_ROOT/all"'}],
    }
    author.case(solve=DONE)
    ran = author.run(project=author.folder)
    assert (author.folder / "each").read_text() == "yes\n"
    assert "job.json" in (author.folder / "all").read_text()
    assert ran.kept("hooks.log").strip() == str(ran.trial_folder)
    assert ran.job.errors == ()


def test_a_hook_that_fails_after_the_run_is_not_passed_over(author: Any) -> None:
    author.spec["hooks"] = {
        "after_each": [{"command": "exit 3", "on_failure": "continue"}, {"command": "test ! -e done.txt"}],
        "after_all": [{"command": "sleep 30", "timeout": 1}],
    }
    author.case(solve=DONE)
    ran = author.run()
    assert ran.trial.error is not None
    assert (ran.trial.status, ran.trial.error.kind) == ("error", "environment")
    assert "after_each" in ran.trial.error.message
    [fault] = ran.job.errors
    assert "timeout" in fault


def test_one_trials_crash_does_not_end_the_others(author: Any) -> None:
    author.case("a", solve=DONE)
    author.case("b", solve=DONE)
    out = author.build()
    (out / "a" / "task.toml").write_text("not toml [")
    first, second = author.run_built(out).trials
    assert first.error is not None
    assert (first.error.kind, second.reward) == ("environment", 1)


def test_a_listener_that_breaks_ends_the_job(author: Any) -> None:
    author.case(solve="sleep 30")

    def listen(event: Event) -> None:
        if event.kind == "started":
            raise BrokenPipeError

    started = time.monotonic()
    with pytest.raises(BrokenPipeError):
        run_job(author.build(), RunOptions(agent="oracle", jobs_dir=author.jobs), on_event=listen)
    assert time.monotonic() - started < 15
    [folder] = job_folders(author)
    assert read_job(folder).status == "interrupted"
    assert list(author.scratch.iterdir()) == []


class Background:
    """A job in a process of its own, as a user runs it; every case's agent writes its process id and works on."""

    def __init__(
        self, author: Any, cases: int = 3, parallel: int = 2, trap: str = "", reaper: Path = contained._REAPER
    ) -> None:  # fmt: skip
        self.goes_on = author.folder / "goes-on"
        work = f"while [ ! -e {self.goes_on} ]; do sleep 0.05; done\n{DONE}"
        for number in range(cases):
            author.case(f"c{number}", solve=f"{trap}echo $$ > pid\n{work}")
        code = f"""
            import sys
            from pathlib import Path
            from harbor_tasks.environments import contained
            from harbor_tasks.environments.base import RunOptions
            from harbor_tasks.environments.jobs import run_job
            from harbor_tasks.errors import InterruptedRun
            contained._REAPER = Path({str(reaper)!r})
            try:
                options = RunOptions(agent="oracle", parallel={parallel}, jobs_dir=Path({str(author.jobs)!r}))
                run_job(Path({str(author.build())!r}), options)
            except InterruptedRun as error:
                print(error, file=sys.stderr)
                sys.exit(error.exit_code)
            """
        self.author = author
        env = {**os.environ, "TMPDIR": str(author.scratch)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code)], stderr=subprocess.PIPE, text=True, env=env
        )
        until = time.monotonic() + 30
        while len(self.pids) < parallel:
            assert time.monotonic() < until, "the agents did not start"
            assert self.process.poll() is None, self.process.communicate()[1]
            time.sleep(0.05)
        self.agents = self.pids
        [self.folder] = job_folders(author)

    @property
    def pids(self) -> list[int]:
        found = [path.read_text().strip() for path in self.author.scratch.glob("hp-*/workspace/pid")]
        return [int(pid) for pid in found if pid]

    def end(self, *signals: signal.Signals, seconds: float) -> str:
        """Send signals and wait for the end; what it said."""
        for number in signals:
            self.process.send_signal(number)
            time.sleep(0.2)
        said: str = self.process.communicate(timeout=seconds)[1]
        return said

    def nothing_runs(self) -> bool:
        until = time.monotonic() + 30
        while any(running(pid) for pid in self.agents):
            if time.monotonic() > until:
                return False
            time.sleep(0.05)
        return True


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_job_ends_its_trials_marks_them_and_leaves_nothing(author: Any, number: signal.Signals) -> None:
    job = Background(author)
    said = job.end(number, seconds=20)
    assert job.process.returncode == 130
    assert "--resume" in said
    assert job.nothing_runs()
    assert list(author.scratch.iterdir()) == []
    assert read_job(job.folder).status == "interrupted"
    assert [trial.status for trial in read_trials(job.folder)] == ["interrupted"] * 3


def test_a_second_interrupt_ends_at_once_what_does_not_want_to(author: Any) -> None:
    reaper = patient_reaper(author.folder / "reaper.py")
    job = Background(author, cases=1, parallel=1, trap="trap '' TERM INT HUP\n", reaper=reaper)
    started = time.monotonic()
    job.end(signal.SIGINT, signal.SIGINT, seconds=PATIENCE)
    assert time.monotonic() - started < PATIENCE  # the grace of the first alone is longer
    assert job.process.returncode == 130
    assert job.nothing_runs()
    assert list(author.scratch.iterdir()) == []


def test_a_signal_that_the_caller_ignores_does_not_end_a_job(author: Any) -> None:
    author.case(solve=DONE)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does it

    def listen(event: Event) -> None:
        if event.kind == "started":
            os.kill(os.getpid(), signal.SIGHUP)

    try:
        folder = run_job(author.build(), RunOptions(agent="oracle", jobs_dir=author.jobs), on_event=listen)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert [trial.reward for trial in read_trials(folder)] == [1]


def test_a_killed_job_leaves_no_agent_and_its_trials_have_vanished_until_they_run_again(author: Any) -> None:
    job = Background(author, cases=2, parallel=1)
    assert {trial.status for trial in read_trials(job.folder)} == {"pending"}
    job.end(signal.SIGKILL, seconds=20)
    assert job.nothing_runs()
    assert read_job(job.folder).status == "running"
    assert [trial.status for trial in read_trials(job.folder)] == ["vanished", "vanished"]
    job.goes_on.touch()
    ran = author.run(resume=job.folder)
    assert [trial.reward for trial in ran.trials] == [1, 1]


def test_what_a_killed_trial_left_is_removed_when_it_runs_again(author: Any) -> None:
    flag = author.folder / "flag"
    author.case(solve=f"[ -e {flag} ] && {DONE}")
    first = author.run()
    left = author.scratch / "hp-left"
    left.mkdir()
    (first.trial_folder / "scratch").write_text(str(left))
    other = author.folder / "precious"
    other.mkdir()
    flag.touch()
    assert author.run(resume=first.folder).trial.reward == 1
    assert not left.exists()
    assert other.exists()


def test_a_job_file_that_was_edited_is_said(author: Any) -> None:
    author.case(solve=DONE)
    ran = author.run()
    data = json.loads((ran.folder / "job.json").read_text())
    data["status"] = "fine"
    (ran.folder / "job.json").write_text(json.dumps(data))
    with pytest.raises(AuthorError, match="was it edited"):
        read_job(ran.folder)
