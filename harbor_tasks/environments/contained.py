"""Run a program and leave nothing of it: time limit, output limit, interruption, and the end of all that it started."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from harbor_tasks.environments.base import Stop

OUTPUT_BYTES = 64 << 20
"""A program that prints more than this is ended: it would fill the disk."""
_REAPER = Path(__file__).with_name("reaper.py")
_TICK = 0.1
_LINGER = 30.0
"""Seconds that a watcher, asked to end everything, may take for it."""


@dataclass(frozen=True)
class Ended:
    """How a program ended. ``exit_code`` is negative for a signal, None when even its watcher was ended."""

    why: Literal["exited", "timeout", "stopped", "flooded"]
    exit_code: int | None
    seconds: float
    left: int
    """Processes that outlived the program and were ended."""


def run_contained(
    argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], stdout: Path, stderr: Path, timeout: float, stop: Stop,
    stdin: Path | None = None,
) -> Ended:  # fmt: skip
    """Run ``argv`` to its end, at most ``timeout`` seconds, and end every process below it.

    Output is appended to the files ``stdout`` and ``stderr``. ``argv[0]`` is looked up on the PATH of ``env``.
    """
    started = time.monotonic()
    report, report_end = os.pipe()
    try:
        with stdout.open("ab") as out, stderr.open("ab") as err:
            watcher = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_REAPER), str(report_end), str(stdin or os.devnull), *argv],
                stdin=subprocess.PIPE, stdout=out, stderr=err, cwd=cwd, env=dict(env), pass_fds=(report_end,),
                start_new_session=True,
            )  # fmt: skip
            os.close(report_end)
            report_end = -1
            why = _watch(watcher, report, (out.fileno(), err.fileno()), started + timeout, stop)
        told = _read_all(report, watcher)
        try:
            watcher.wait(_LINGER)
        except subprocess.TimeoutExpired:
            watcher.kill()
            watcher.wait()
    finally:
        os.close(report)
        if report_end >= 0:
            os.close(report_end)
    result = _told(told)
    return Ended(why, result["exit_code"], time.monotonic() - started, result["left"])


def _read_all(report: int, watcher: subprocess.Popen[bytes]) -> bytes:
    """What is in the pipe when the watcher has ended, but for what nobody means to say."""
    told, until = b"", time.monotonic() + _LINGER
    while time.monotonic() < until:
        ready = select.select([report], [], [], _TICK)[0]
        part = os.read(report, 1 << 16) if ready else b""
        told = (told + part)[:4096]
        if not part and (ready or watcher.poll() is not None):
            break
    return told


def _told(told: bytes) -> dict[str, Any]:
    """The watcher's report; a program that can reach it can write there, too: then nothing is known."""
    try:
        result: dict[str, Any] = json.loads(told)
        return {"exit_code": int(result["exit_code"]), "left": int(result["left"])}
    except (ValueError, LookupError, TypeError, RecursionError):
        return {"exit_code": None, "left": 0}


def _watch(
    watcher: subprocess.Popen[bytes], report: int, outputs: tuple[int, ...], deadline: float, stop: Stop
) -> Literal["exited", "timeout", "stopped", "flooded"]:
    """Wait for the report; ask the watcher to end the program when it has to."""
    assert watcher.stdin is not None
    why: Literal["exited", "timeout", "stopped", "flooded"] = "exited"
    with watcher.stdin as control:
        while not select.select([report], [], [], _TICK)[0]:
            if why == "exited":
                if stop.wanted:
                    why = "stopped"
                elif time.monotonic() > deadline:
                    why = "timeout"
                elif any(os.fstat(output).st_size > OUTPUT_BYTES for output in outputs):
                    why = "flooded"
                if why != "exited":
                    _tell(control.fileno(), b"t")
            if stop.now:
                _tell(control.fileno(), b"k")
    return why


def _tell(control: int, word: bytes) -> None:
    with contextlib.suppress(OSError):  # it has ended meanwhile
        os.write(control, word)


def end_marked(mark: str) -> int:
    """End every process of this user that belongs to ``mark``, the trial's own folder; how many there were.

    Its environment names the folder, or it works in there without a terminal (which a person who looks on has). A
    second net below the watcher, for what killed the watcher. Nothing is found where there is no /proc.
    """
    ended: set[int] = set()
    for _ in range(50):
        found = [pid for pid in _own_processes() if mark.encode() in _environment(pid) or _works_in(pid, mark)]
        if not found:
            break
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        ended |= set(found)
        time.sleep(0.02)
    return len(ended)


def _own_processes() -> list[int]:
    proc = Path("/proc")
    if not proc.is_dir():
        return []
    found = []
    for entry in proc.iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and int(entry.name) != os.getpid() and entry.stat().st_uid == os.getuid():
                found.append(int(entry.name))
    return found


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def _works_in(pid: int, folder: str) -> bool:
    try:
        cwd = os.readlink(f"/proc/{pid}/cwd")  # noqa: PTH115 - may end in " (deleted)"
        terminal = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[4]
    except (OSError, IndexError):
        return False
    return f"{cwd}/".startswith((f"{folder}/", f"{folder} (deleted)")) and terminal == b"0"
