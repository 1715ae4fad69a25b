"""Starts a program and ends everything that it started: run as a script of its own by `contained`.

    python3 -I -S reaper.py REPORT_FD STDIN_FILE PROGRAM [ARGUMENT]...

It makes itself the parent of every orphan below it (Linux: PR_SET_CHILD_SUBREAPER), so a process that leaves its
session or forks twice is still found. Standard input is the line to whoever started it: ``t`` asks to end (SIGTERM,
then SIGKILL after GRACE), ``k`` or the end of the line ends at once, so a harbor-pack that was killed leaves nothing.
When nothing is left it writes ``{"exit_code", "left"}`` to REPORT_FD: the program's exit code (negative: the signal)
and how many processes outlived it. Elsewhere than on Linux only the program's process group is ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time

GRACE = 2.0  # seconds between SIGTERM and SIGKILL
LINGER = 10.0  # seconds after which a process that cannot be ended (waiting for a device) is given up
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER, linux/prctl.h


def descendants() -> list[int]:
    """All processes below this one."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else []:  # noqa: PTH208, PTH112 - starts fast
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                parent = int(file.read().rpartition(b")")[2].split()[1])
                children.setdefault(parent, []).append(int(name))
    found = [os.getpid()]
    for pid in found:
        found += children.get(pid, [])
    return found[1:]


def send(pids: list[int], number: int) -> None:
    """Signal those that are still there."""
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def reap(codes: dict[int, int]) -> bool:
    """Collect what has ended; False when no child is left."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if not pid:
            return True
        codes[pid] = os.waitstatus_to_exitcode(status)


def end_all(group: int, codes: dict[int, int]) -> int:
    """SIGKILL until nothing is left; how many there were. Stopped first, so that none forks away meanwhile."""
    seen: set[int] = set()
    until = time.monotonic() + LINGER
    while time.monotonic() < until:
        pids = descendants()
        send(pids, signal.SIGSTOP)
        send(pids, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)
        seen |= set(pids)
        if not reap(codes):
            break
        time.sleep(0.005)
    return len(seen - {group})


def main(report: int, stdin: str, argv: list[str]) -> None:
    """Start, wait, end the rest, report."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    wake, wake_end = os.pipe()
    os.set_blocking(wake_end, False)
    signal.set_wakeup_fd(wake_end)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: None)  # not SIG_IGN: the program would inherit that
    codes: dict[int, int] = {}
    try:
        with open(stdin, "rb") as given:  # noqa: PTH123
            process = subprocess.Popen(argv, stdin=given, start_new_session=True)
    except OSError as error:
        print(f"{argv[0]}: {error.strerror}", file=sys.stderr)
        os.write(report, json.dumps({"exit_code": 127, "left": 0}).encode())
        return
    child = process.pid  # the object is kept: dropped, it would collect the exit status itself
    kill_at: float | None = None
    control = [0]
    while child not in codes:
        wait = None if kill_at is None else max(kill_at - time.monotonic(), 0)
        ready = select.select([wake, *control], [], [], wait)[0]
        if wake in ready:
            os.read(wake, 512)
        word = os.read(0, 1) if 0 in ready else None
        if word == b"t" and kill_at is None:
            send(descendants(), signal.SIGTERM)
            kill_at = time.monotonic() + GRACE
        if word in (b"", b"k") or (kill_at is not None and time.monotonic() >= kill_at):
            break
        reap(codes)
    left = end_all(child, codes)
    code = codes.get(child, -signal.SIGKILL)
    os.write(report, json.dumps({"exit_code": code, "left": left}).encode())


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
