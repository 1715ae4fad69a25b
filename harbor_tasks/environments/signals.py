"""Ctrl-C and its like, while a job runs."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from harbor_tasks.environments.base import Stop

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def signals_ask(stop: Stop) -> Iterator[None]:
    """Ctrl-C and its like ask for the end; only the main thread can take signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask(_number: int, _frame: FrameType | None) -> None:
        stop.ask()

    # what the caller has ignored stays so: SIGHUP of a run that is to outlive its terminal (nohup)
    wanted = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, ask) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
