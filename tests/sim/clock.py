"""Virtual time: what is to happen, in order."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable


class Clock:
    """Runs what was scheduled, earliest first; equal times in the order in which they were scheduled."""

    def __init__(self) -> None:
        self.now = 1000.0  # not 0, so that nobody confuses a time with nothing
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def after(self, delay: float, what: Callable[[], None]) -> None:
        """Do ``what`` in ``delay`` seconds."""
        heapq.heappush(self._heap, (self.now + max(0.0, delay), next(self._numbers), what))

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        """Let time pass. With ``until``, stop as soon as that is true; False if it never was."""
        end = self.now + seconds
        while self._heap and self._heap[0][0] <= end:
            at, _, what = heapq.heappop(self._heap)
            self.now = at
            what()
            if until is not None and until():
                return True
        self.now = end
        return until is not None and until()
