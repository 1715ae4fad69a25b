"""Work shared by processes that are forked: each gets all that was read so far without sending it anywhere."""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import struct
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from harbor_tasks.errors import MachineError

T = TypeVar("T")
BATCH = 16
"""Results that travel together."""
_LENGTH = struct.Struct("!I")


def can_fork() -> bool:
    """Whether this process may be forked: a thread that holds a lock would leave it held in the child."""
    return hasattr(os, "fork") and threading.active_count() == 1


def share(work: Callable[[int], T], count: int, processes: int) -> Iterator[T]:
    """``work(0) … work(count - 1)``, in any order, by this many processes; their results as they come.

    What ``work`` raises is raised here; MachineError when a process dies. However the caller leaves, no process is
    left behind.
    """
    if processes <= 1 or count < 2 or not can_fork():
        yield from map(work, range(count))
        return
    children: dict[int, int] = {}
    try:
        for first in range(min(processes, count)):
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                for other in (reader, *children):
                    os.close(other)
                _serve(work, range(first, count, processes), writer)
            os.close(writer)
            children[reader] = child
        yield from _results(children)
    finally:
        _end(children)


def _serve(work: Callable[[int], Any], numbers: Sequence[int], writer: int) -> None:
    """The life of a child process: work, send, end. It never returns, and cleans up nothing of its parent's."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with os.fdopen(writer, "wb") as pipe:
            for start in range(0, len(numbers), BATCH):
                try:
                    batch = [work(number) for number in numbers[start : start + BATCH]]
                except Exception as error:  # noqa: BLE001 - it is raised again by the parent
                    error.add_note(traceback.format_exc())
                    _send(pipe, error)
                    break
                _send(pipe, batch)
            _send(pipe, None)
        code = 0
    except BrokenPipeError:
        pass  # the parent is gone
    except BaseException:  # noqa: BLE001 - what is not caught here would run on in a copy of the parent
        with contextlib.suppress(BaseException):
            traceback.print_exc()
    finally:
        os._exit(code)


def _send(pipe: Any, value: Any) -> None:
    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    pipe.write(_LENGTH.pack(len(data)) + data)
    pipe.flush()


def _results(children: dict[int, int]) -> Iterator[Any]:
    waiting = dict.fromkeys(children, b"")
    poller = select.poll()
    for reader in waiting:
        poller.register(reader, select.POLLIN)
    while waiting:
        for reader, _event in poller.poll():
            chunk = os.read(reader, 1 << 18)
            if not chunk:
                raise MachineError("a process that renders tasks has died (out of memory?); try again with --jobs 1")
            data = waiting[reader] + chunk
            while len(data) >= _LENGTH.size:
                end = _LENGTH.size + _LENGTH.unpack_from(data)[0]
                if len(data) < end:
                    break
                batch = pickle.loads(data[_LENGTH.size : end])  # noqa: S301 - from our own child
                data = data[end:]
                if isinstance(batch, Exception):
                    raise batch
                if batch is None:
                    poller.unregister(reader)
                    del waiting[reader]
                    break
                yield from batch
            else:
                waiting[reader] = data
                continue
            if reader in waiting:
                waiting[reader] = data


def _end(children: dict[int, int]) -> None:
    for reader, child in children.items():
        os.close(reader)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    for child in children.values():
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)
