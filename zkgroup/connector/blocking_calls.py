"""A thread for calls that block: requests to brokers, commits to Kafka, the user's rebalance listener."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

Call = Callable[[], None]


class Worker:
    """Makes one call after the other. Its daemon thread may wait for a listener that never returns."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._closed = False
        # Not Thread.join: one that a signal interrupts takes the thread for ended from then on (Python 3.11).
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def submit(self, call: Call) -> None:
        """Make this call after those that were submitted before. It must raise nothing."""
        if self._thread.ident is None:
            self._thread.start()
        self._calls.put(call)

    def close(self, timeout: float) -> bool:
        """Drop the calls that have not begun, and wait for the one that has. False after ``timeout`` seconds."""
        self._closed = True
        if self._thread.ident is None:
            return True
        self._calls.put(None)
        return self._ended.wait(timeout)

    def _run(self) -> None:
        try:
            while (call := self._calls.get()) is not None:
                if not self._closed:
                    call()
        finally:
            self._ended.set()
