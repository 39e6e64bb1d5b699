"""A thread for what blocks: look-ups at the brokers, commits to Kafka, the user's rebalance listener."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

Work = Callable[[], None]


class Helper:
    """Does one thing after the other. The thread is a daemon: a listener that never returns must not keep the process
    from ending."""

    def __init__(self, name: str) -> None:
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._closed = False
        # Not Thread.join: one that a signal interrupts takes the thread for ended from then on (Python 3.11).
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def submit(self, work: Work) -> None:
        """Do ``work`` when all that was submitted before is done. It must raise nothing."""
        if self._thread.ident is None:
            self._thread.start()
        self._work.put(work)

    def close(self, timeout: float) -> bool:
        """Drop what has not begun, and wait for what has. False if that takes longer than ``timeout`` seconds."""
        self._closed = True
        if self._thread.ident is None:
            return True
        self._work.put(None)
        return self._ended.wait(timeout)

    def _run(self) -> None:
        try:
            while (work := self._work.get()) is not None:
                if not self._closed:
                    work()
        finally:
            self._ended.set()
