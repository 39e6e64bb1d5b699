"""A batch of pipelined requests, and the bell that wakes the thread that sends them. Independent of kazoo."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from typing import Final

from zkgroup.protocol.operations import Failure, Op, Result

#: Requests on the wire at once: enough to hide the round trip. The server throttles beyond (globalOutstandingLimit).
WINDOW: Final = 1000


class RequestBatch:
    """Operations of one session: at most ``WINDOW`` on the wire, answered in order."""

    def __init__(self, ops: Sequence[Op], done: Callable[[list[Result]], None]) -> None:
        self.ops = ops
        self._results: list[Result] = [None] * len(ops)
        self._sent = 0
        self._answered = 0
        self._done = done
        self._lock = threading.Lock()

    def window(self, limit: int) -> range:
        """The operations to send next; from now on they count as sent."""
        with self._lock:
            first = self._sent
            self._sent = min(len(self.ops), max(first, self._answered + limit))
            return range(first, self._sent)

    def answer(self, index: int, result: Result) -> bool:
        """Take one answer. True once enough have come for more to be sent."""
        with self._lock:
            self._results[index] = result
            self._answered += 1
            finished = self._answered == len(self.ops)
            more = self._sent < len(self.ops) and self._sent - self._answered <= WINDOW // 2
        if finished:
            self._done(self._results)
        return more

    def refuse(self, why: Failure) -> None:
        """Answer all operations that were not sent: they never will be."""
        for index in self.window(len(self.ops)):
            self.answer(index, why)


class Bell:
    """The end of a socket pair that wakes kazoo's connection. A full socket means that it is awake: ``send``
    does not wait for room, since the connection's thread might need a lock of the caller."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._end = end

    def send(self, data: bytes) -> int:
        try:
            return self._end.send(data)
        except BlockingIOError:
            return 0

    def close(self) -> None:
        self._end.close()
