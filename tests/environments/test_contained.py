"""A program runs and nothing of it stays, whatever it started and however it ended."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from pathlib import Path

import pytest

from harbor_tasks.environments import contained
from harbor_tasks.environments.base import Stop
from harbor_tasks.environments.contained import Ended, end_marked, run_contained

ENV = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
PID_IS_THERE = "until [ -s pid ]; do sleep 0.05; done"
WAITS = "echo $$ > pid; while :; do sleep 0.05; done"


def run(
    tmp_path: Path, script: str = "", *, program: tuple[str, ...] = (), timeout: float = 20, stop: Stop | None = None,
    home: str = "/",
) -> Ended:  # fmt: skip
    return run_contained(
        program or ("bash", "-c", script), cwd=tmp_path, env={**ENV, "HOME": home}, stdout=tmp_path / "out",
        stderr=tmp_path / "err", timeout=timeout, stop=stop or Stop(),
    )  # fmt: skip


def alive(pid_file: Path) -> bool:
    """Is the process whose id stands in the file still there (a zombie is not)?"""
    pid = pid_file.read_text().strip()
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


PATIENCE = 60


def patient_reaper(path: Path) -> Path:
    """A watcher that gives what it has asked to end so long that no load makes a second request look slow."""
    text = Path(contained.__file__).with_name("reaper.py").read_text()
    assert text.count("GRACE = 2.0 ") == 1
    path.write_text(text.replace("GRACE = 2.0 ", f"GRACE = {PATIENCE} "))
    return path


def wait_for(path: Path, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not (path.exists() and path.read_text().strip()):
        assert time.monotonic() < until, f"{path} was not written"
        time.sleep(0.02)


def test_exit_code_and_both_outputs_are_kept(tmp_path: Path) -> None:
    ended = run(tmp_path, "echo out; echo err >&2; exit 7")
    assert (ended.why, ended.exit_code, ended.left) == ("exited", 7, 0)
    assert (tmp_path / "out").read_text() == "out\n"
    assert (tmp_path / "err").read_text() == "err\n"


def test_a_program_that_is_missing_is_exit_127_with_its_name(tmp_path: Path) -> None:
    ended = run(tmp_path, program=("no-such-program",))
    assert ended.exit_code == 127
    assert "no-such-program" in (tmp_path / "err").read_text()


def test_a_death_by_signal_is_a_negative_code(tmp_path: Path) -> None:
    assert run(tmp_path, "kill -9 $$").exit_code == -9


@pytest.mark.parametrize(
    "escape",
    [
        "sleep 60 & echo $! > pid",
        f"setsid bash -c 'echo $$ > pid; exec sleep 60' & {PID_IS_THERE}",
        f"(setsid bash -c 'trap \"\" TERM HUP; echo $$ > pid; exec sleep 60' &) ; {PID_IS_THERE}",
    ],
    ids=["background", "own-session", "orphan-that-ignores-signals"],
)
def test_what_the_program_left_running_is_ended(tmp_path: Path, escape: str) -> None:
    ended = run(tmp_path, escape)
    assert ended.why == "exited"
    assert ended.left >= 1
    assert not alive(tmp_path / "pid")


def test_a_program_that_keeps_forking_is_ended(tmp_path: Path) -> None:
    ended = run(tmp_path, "f() { (sleep 0.01; f) & }; f; f; sleep 0.2; echo $$ > pid")
    assert ended.exit_code == 0
    assert ended.seconds < 20  # it would go on for ever


def test_the_time_limit_asks_first_and_then_ends(tmp_path: Path) -> None:
    ended = run(tmp_path, f"trap 'echo asked; exit 3' TERM; {WAITS}", timeout=3)  # by then it has its trap
    assert (ended.why, ended.exit_code) == ("timeout", 3)
    assert "asked" in (tmp_path / "out").read_text()
    stubborn = run(tmp_path, f"trap '' TERM; {WAITS}", timeout=3)
    assert stubborn.why == "timeout"
    assert not alive(tmp_path / "pid")
    assert stubborn.seconds < 30  # it would go on for ever


def test_a_stop_ends_it_within_seconds_and_a_second_one_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contained, "_REAPER", patient_reaper(tmp_path / "reaper.py"))
    stop = Stop()

    def ask_twice() -> None:
        wait_for(tmp_path / "pid")
        stop.ask()
        time.sleep(0.2)
        stop.ask()

    asking = threading.Thread(target=ask_twice)
    asking.start()
    ended = run(tmp_path, f"trap '' TERM; {WAITS}", timeout=90, stop=stop)
    asking.join()
    assert ended.why == "stopped"
    assert ended.seconds < PATIENCE  # the grace that the first alone would have given


def test_endless_output_does_not_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contained, "OUTPUT_BYTES", 1 << 20)
    ended = run(tmp_path, "trap '' TERM; exec yes 2>/dev/null")
    assert ended.why == "flooded"


def test_nothing_stays_when_the_caller_itself_is_killed(tmp_path: Path) -> None:
    caller = textwrap.dedent(
        f"""
        from pathlib import Path
        from harbor_tasks.environments.base import Stop
        from harbor_tasks.environments.contained import run_contained
        here = Path({str(tmp_path)!r})
        run_contained(["bash", "-c", "echo $$ > pid; exec sleep 60"], cwd=here, env={ENV!r}, stdout=here / "o",
                      stderr=here / "e", timeout=60, stop=Stop())
        """
    )
    process = subprocess.Popen([sys.executable, "-c", caller])
    wait_for(tmp_path / "pid")
    process.kill()
    process.wait()
    until = time.monotonic() + 30
    while alive(tmp_path / "pid"):
        assert time.monotonic() < until, "the program outlived its caller"
        time.sleep(0.05)


@pytest.mark.parametrize(
    "say", ["""echo '{"exit_code": 0, "left": 0}'""", """printf '{"exit_code": 0'""", "echo []", "yes | head -c 300000"]
)
def test_a_program_that_reports_in_its_watchers_place_is_not_believed(tmp_path: Path, say: str) -> None:
    """It is of the same user, and finds the watcher's files."""
    report = "/proc/$PPID/fd/$(tr '\\0' '\\n' < /proc/$PPID/cmdline | sed -n 5p)"
    ended = run(tmp_path, f"test -p {report} && {say} > {report}; sleep 60")
    assert (ended.why, ended.exit_code) == ("exited", None)
    assert ended.seconds < 20


def test_a_program_that_kills_its_watcher_is_found_by_its_mark(tmp_path: Path) -> None:
    mark = f"/tmp/{uuid.uuid4().hex}"
    script = "setsid bash -c 'echo $$ > pid; exec sleep 60' & sleep 0.3; kill -9 $PPID; sleep 5"
    ended = run(tmp_path, script, home=mark)
    assert ended.exit_code is None
    assert alive(tmp_path / "pid")
    assert end_marked(mark) >= 1
    assert not alive(tmp_path / "pid")
