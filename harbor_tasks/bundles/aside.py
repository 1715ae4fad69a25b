"""Work on a stream of bytes that another core does: hashing beside reading, compressing and writing."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from types import TracebackType

WORTH = 1 << 20
"""Bytes that are handed over together; fewer are not worth the way."""
WAITING = 4
"""Portions that may wait: what bounds the memory."""


class Aside:
    """Calls ``update`` with all the bytes that it is given, in order, in a thread of its own; a context manager.

    The thread starts when there is enough to do. ``update`` must not raise. After `finish` all calls were made.
    """

    def __init__(self, update: Callable[[bytes], object]) -> None:
        self._update = update
        self._held: list[bytes] = []
        self._size = 0
        self._queue: queue.Queue[list[bytes] | None] = queue.Queue(WAITING)
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Aside:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self.finish()

    def add(self, data: bytes) -> None:
        """The next bytes."""
        self._held.append(data)
        self._size += len(data)
        if self._size >= WORTH:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()
            self._queue.put(self._held)
            self._held, self._size = [], 0

    def finish(self) -> None:
        """Wait until all is done."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None
        self._do(self._held)
        self._held, self._size = [], 0

    def _work(self) -> None:
        while (portion := self._queue.get()) is not None:
            self._do(portion)

    def _do(self, portion: list[bytes]) -> None:
        if portion:
            self._update(portion[0] if len(portion) == 1 else b"".join(portion))
