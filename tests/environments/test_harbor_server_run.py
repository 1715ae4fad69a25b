"""A job at a Harbor server, followed: what it takes for finished, lost, cancelled, and what it says meanwhile."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harbor_tasks.environments import harbor_server_run
from harbor_tasks.environments.base import Stop
from harbor_tasks.environments.harbor_api import ServerApi
from harbor_tasks.environments.harbor_results import HarborTrial
from harbor_tasks.environments.harbor_server_run import ServerRun

from .fake_server import KEY, FakeJob, MakeFake, problem

DIGESTS = {"aaa": "1" * 64, "bbb": "2" * 64}


class Followed:
    """A run at a fake server, and what was told of it."""

    def __init__(self, make_fake: MakeFake, folder: Path) -> None:
        self.job = FakeJob(dict(DIGESTS))
        self.fake = make_fake(self.job.answer)
        self.said: list[str] = []
        self.started: list[str] = []
        self.finished: list[str] = []
        self.abandoned = 0
        self.stop = Stop()
        self.each: Callable[[int], object] = lambda _: None
        self.looks = 0
        self.run = ServerRun(folder, ServerApi(self.fake.url, KEY), "job-1", self.said.append)
        (folder / "config.json").write_text("{}")
        (folder / "tasks" / "aaa").mkdir(parents=True)
        self.run._digests = dict(DIGESTS)

    def __call__(self) -> str | None:
        def tick(_seconds: float) -> None:
            self.looks += 1
            assert self.looks < 50
            self.each(self.looks)

        def finished(found: HarborTrial) -> None:
            self.finished.append(Path(found.result["config"]["task"]["path"]).name)

        def abandon() -> None:
            self.abandoned += 1

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "sleep", tick)
            if not self.run.job:
                self.run.start()
            try:
                return self.run.watch(self.stop, self.started.append, finished, abandon)
            finally:
                self.run.kill()
                self.run.clear()


@pytest.fixture
def followed(make_fake: MakeFake, tmp_path: Path) -> Followed:
    return Followed(make_fake, tmp_path)


def test_each_trial_is_told_of_when_it_is_done_and_one_with_an_error_at_the_end(followed: Followed) -> None:
    def each(look: int) -> None:
        if look == 1:
            followed.job.finish("aaa", error="RuntimeError")
        elif look == 2:
            assert followed.finished == []
            followed.job.finish("bbb")
        elif look == 4:
            assert followed.finished == ["bbb"]
            followed.job.state = "finished"

    followed.each = each
    assert followed() is None
    assert (followed.started, followed.finished) == (["aaa", "bbb"], ["bbb", "aaa"])
    assert not (followed.run.folder / "tasks").exists()
    assert followed.run.version == "0.26.0"


def test_a_trial_that_was_tried_again_is_the_newest_one(followed: Followed) -> None:
    first = followed.job.rollouts["r-aaa"]
    first.update(retry_ids=["again", "r-aaa"], state="finished", error_type="RuntimeError")
    followed.job.trials["again"] = "aaa"
    followed.job.rollouts["again"] = {**first, "id": "again", "name": "aaa__y", "started_at": "now", "error_type": None}
    followed.job.finish("bbb")
    followed.job.state = "finished"
    followed()
    assert sorted(followed.finished) == ["aaa", "bbb"]
    assert sorted(path.name for path in (followed.run.folder / "job").iterdir()) == ["aaa__y", "bbb__x"]


def test_another_task_than_ours_at_the_server_is_a_fault(followed: Followed) -> None:
    followed.job.digests["bbb"] = "3" * 64
    fault = followed()
    assert fault is not None
    assert "has another task at /somewhere/tasks/bbb than is here; is it another machine?" in fault
    assert followed.job.state == "cancelled"


def test_a_job_that_somebody_cancels_is_a_fault_and_what_was_done_stays(followed: Followed) -> None:
    followed.job.finish("aaa")
    followed.each = lambda _: setattr(followed.job, "state", "cancelled")
    assert followed() == "somebody cancelled the job j at the server"
    assert followed.finished == ["aaa"]


def test_a_pause_by_a_person_is_said_once_and_waited_for(followed: Followed) -> None:
    followed.job.state = "paused"
    followed.each = lambda look: setattr(followed.job, "state", "finished") if look == 5 else None
    assert followed() is None
    assert [line for line in followed.said if "is paused at the server" in line] == followed.said
    assert len(followed.said) == 1
    assert followed.job.resumed == 0


def test_a_pause_after_a_restart_is_the_servers_own_and_ended(followed: Followed) -> None:
    def each(look: int) -> None:
        followed.job.silent = look == 1
        if look == 2:
            followed.job.state = "paused"
        elif look == 4:
            assert followed.job.state == "running"
            followed.job.state = "finished"

    followed.each = each
    assert followed() is None
    assert followed.job.resumed == 1
    assert len(followed.said) == 1
    assert "waiting for it" in followed.said[0]


def test_a_server_that_stays_silent_is_given_up_and_keeps_its_tasks(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harbor_server_run, "SILENCE", 0.0)
    followed.each = lambda _: setattr(followed.job, "silent", True)
    fault = followed()
    assert fault is not None
    assert "--resume fetches what it has done of its job j" in fault
    assert (followed.run.folder / "tasks").exists(), "it may still be at work"
    assert json.loads((followed.run.folder / "server.json").read_text()) == {"server": followed.fake.url, "job": "j"}


def test_ctrl_c_cancels_and_one_that_cannot_be_told_is_said(followed: Followed) -> None:
    followed.each = lambda _: followed.stop.ask()
    assert followed() is None
    assert followed.job.state == "cancelled"
    assert followed.abandoned == 0


def test_ctrl_c_while_the_server_is_silent_says_that_it_may_go_on(followed: Followed) -> None:
    def each(_look: int) -> None:
        followed.job.silent = True
        followed.stop.ask()

    followed.each = each
    fault = followed()
    assert fault is not None
    assert "could not be told to end its job j, and may go on with it" in fault
    assert (followed.run.folder / "tasks").exists()


def test_a_server_whose_user_cannot_read_the_copies_is_told_apart(make_fake: MakeFake, tmp_path: Path) -> None:
    followed = Followed(make_fake, tmp_path)
    followed.job.answer = lambda *_: problem(400, "Local task /x/y not found")  # type: ignore[method-assign]
    fake = make_fake(lambda *_: problem(400, "Local task /x/y not found"))
    followed.run.api = ServerApi(fake.url, KEY)
    fault = followed()
    assert fault is not None
    assert f"Local task /x/y not found (HTTP 400); may the server's user read {tmp_path}?" in fault
    assert not (tmp_path / "tasks").exists()


def test_a_job_that_another_server_knows_nothing_of_is_left_alone(make_fake: MakeFake, tmp_path: Path) -> None:
    fake = make_fake(lambda *_: problem(404, "Job not found."))
    (tmp_path / "server.json").write_text('{"job": "j"}')
    run = ServerRun(tmp_path, ServerApi(fake.url, KEY), "job-1", print)
    run.again({})
    assert run.watch(Stop(), print, print, print) is None
    assert not run.goes_on
    run.kill()
    assert [line for line, _ in fake.asked] == ["GET /jobs/j"]
