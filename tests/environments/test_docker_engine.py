"""An engine that is not there, is too small, or vanishes while a job runs."""

from __future__ import annotations

import contextlib
import selectors
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.environments.base import Event, RunOptions, read_job, read_trials
from harbor_tasks.environments.cleaning import clean
from harbor_tasks.environments.jobs import run_job
from harbor_tasks.errors import MachineError

pytestmark = pytest.mark.engine
SOCKET = "/var/run/docker.sock"


class Road:
    """A socket that leads to the engine until it is closed: then the engine is gone, for whoever took this road."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ends: list[socket.socket] = []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(50)
        self.threads = [threading.Thread(target=self._listen)]
        self.threads[0].start()

    def _listen(self) -> None:
        with self.listener, contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect(SOCKET)
                self.ends += [near, far]
                self.threads.append(threading.Thread(target=self._pass_on, args=(near, far)))
                self.threads[-1].start()

    def _pass_on(self, near: socket.socket, far: socket.socket) -> None:
        with near, far, selectors.DefaultSelector() as selector, contextlib.suppress(OSError, ValueError):
            selector.register(near, selectors.EVENT_READ, far)
            selector.register(far, selectors.EVENT_READ, near)
            while True:
                for key, _ in selector.select():
                    assert isinstance(key.fileobj, socket.socket)
                    data = key.fileobj.recv(65536)
                    if not data:
                        return
                    key.data.sendall(data)

    def close(self) -> None:
        """Nobody gets through any more, nor gets anything back."""
        self.path.unlink(missing_ok=True)
        for end in (self.listener, *self.ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join()


@pytest.fixture
def road(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Road]:
    found = Road(tmp_path_factory.mktemp("s") / "d.sock")
    yield found
    found.close()


@pytest.fixture
def plain(engine_author: Callable[[], Any], base_image: str) -> Any:
    author = engine_author()
    author.spec["sandbox"] = {"image": base_image, "sealed": False}
    return author


def of_job(job: str) -> list[str]:
    asked = ["docker", "ps", "-aq", "--filter", f"label=harbor-pack.job={job}"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()


def test_an_engine_that_vanishes_makes_environment_errors_and_clean_removes_the_rest(plain: Any, road: Road) -> None:
    for name in ("a", "b"):
        plain.case(name, solve="touch /tmp/started; sleep 300")
    out = plain.build()

    def listen(event: Event) -> None:
        if event.kind == "started" and event.text.endswith("b"):
            threading.Timer(4, road.close).start()

    options = RunOptions(
        environment="docker", agent="oracle", parallel=2, jobs_dir=plain.jobs, host=f"unix://{road.path}"
    )
    with pytest.raises(MachineError, match=r"does not answer.*clean --job"):
        run_job(out, options, on_event=listen)
    [job] = plain.jobs.glob("desk-*")
    for trial in read_trials(job):
        assert trial.error is not None
        assert (trial.status, trial.error.kind, trial.reward) == ("error", "environment", None)
    assert read_job(job).status == "finished"
    assert "does not answer" in read_job(job).errors[0]
    assert len(of_job(job.name)) == 2
    clean(job.name, jobs_dir=plain.jobs)
    assert of_job(job.name) == []


@pytest.mark.parametrize("host", ["unix:///nowhere/docker.sock", "tcp://127.0.0.1:1"])
def test_an_engine_that_is_not_there_is_said_before_there_is_a_job(plain: Any, host: str) -> None:
    plain.case("a", solve="true")
    with pytest.raises(MachineError, match=f"no container engine answers at {host}"):
        plain.run("oracle", environment="docker", host=host)
    assert not plain.jobs.exists()


def test_more_cpus_than_the_engine_has_are_said_before_there_is_a_job(plain: Any) -> None:
    plain.spec["sandbox"]["cpus"] = 4000
    plain.case("a", solve="true")
    with pytest.raises(MachineError, match=r"sandbox\.cpus: 4000, but the engine"):
        plain.run("oracle", environment="docker")
    assert not plain.jobs.exists()


def test_a_dry_run_makes_nothing_on_the_engine(plain: Any) -> None:
    plain.spec["sandbox"]["image"] = "harbor-pack-test-there-is-none:latest"
    plain.case("a", solve="true")
    plan = plain.dry_run(environment="docker")
    assert [one.case_id for one in plan.todo] == ["a"]
    assert not plain.jobs.exists()
