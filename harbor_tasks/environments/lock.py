"""A job's lock: held while the job runs, so that a killed run is not taken for a running one."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harbor_tasks.errors import AuthorError


@contextmanager
def job_lock(folder: Path) -> Iterator[None]:
    """Hold the job: it runs for as long as its lock is held, whatever becomes of the process."""
    with (folder / ".lock").open("a", encoding="utf-8") as lock:
        for last in (False, False, False, True):  # who only asks whether the job runs holds it for a moment
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if last:
                    raise AuthorError(f"{folder}: this job is running; wait for it, or end it") from None
                time.sleep(0.05)
        yield


def is_running(folder: Path) -> bool:
    """Is the job's process alive? Asked through its lock, so a killed run is not taken for a running one."""
    try:
        with (folder / ".lock").open(encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # never run here
        return False
    return False
