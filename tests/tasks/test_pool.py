"""Work shared by processes: all results, any failure, nothing left behind."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harbor_tasks.errors import MachineError
from harbor_tasks.tasks.pool import can_fork, share

quiet = pytest.mark.skipif(not can_fork(), reason="another thread runs in this process")


def running() -> set[str]:
    """The processes that this one has started and not ended; servers of other tests may be among them."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split())


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = running()
    yield
    assert running() <= before


@pytest.mark.parametrize(("count", "processes"), [(0, 4), (1, 4), (5, 1), (100, 3), (50, 100)])
def test_every_result_comes_once(count: int, processes: int) -> None:
    assert sorted(share(lambda number: number * number, count, processes)) == [n * n for n in range(count)]


def test_the_work_is_done_by_other_processes() -> None:
    pids = set(share(lambda _number: os.getpid(), 64, 2))
    assert os.getpid() not in pids
    assert len(pids) == 2


def test_results_of_any_size_pass() -> None:
    sizes = [len(text) for text in share(lambda number: "x" * (number * 100_000), 20, 2)]
    assert sorted(sizes) == [number * 100_000 for number in range(20)]


def test_a_process_that_dies_is_said_and_the_others_are_ended() -> None:
    here = os.getpid()

    def work(number: int) -> int:
        if number == 7 and os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.01)
        return number

    with pytest.raises(MachineError, match="has died"):
        list(share(work, 100, 3))


def test_what_the_work_raises_is_raised_here_with_where_it_came_from() -> None:
    def work(number: int) -> int:
        if number == 7:
            raise OSError(28, "No space left on device", "/some/file")
        return number

    with pytest.raises(OSError, match="No space left") as caught:
        list(share(work, 100, 3))
    assert "in work" in "".join(caught.value.__notes__)


def test_leaving_early_ends_all_processes() -> None:
    def work(number: int) -> int:
        time.sleep(0.01)
        return number

    results = share(work, 1000, 3)
    next(results)
    results.close()  # type: ignore[attr-defined]


def test_where_another_thread_runs_nothing_is_forked() -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        assert set(share(lambda _number: os.getpid(), 20, 2)) == {os.getpid()}
    finally:
        stop.set()
        thread.join()
