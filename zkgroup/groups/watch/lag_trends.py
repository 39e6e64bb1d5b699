"""Rates and the course of lag, from looks at offsets; pure, and bounded in memory.

A rate is what came between the oldest and the newest look that are kept (two minutes at the usual interval). Members
commit in steps, those of the reference once a minute by default: over a shorter time what is consumed would be nothing,
and then a jump.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from zkgroup.groups.group_model import lag_between
from zkgroup.groups.watch.timeline import Look
from zkgroup.protocol.names import TopicPartition

#: Looks that are kept of each partition.
KEPT: Final = 60
#: Of groups with more partitions fewer looks are kept of each, so that memory has an end.
MOST: Final = 300_000
_FEWEST: Final = 8


class Point(NamedTuple):
    """One look at a partition; ``at`` in milliseconds."""

    at: int
    committed: int | None
    log_end: int | None


class Rates(NamedTuple):
    """Messages per second; None where nothing is known yet."""

    produced: float | None = None
    consumed: float | None = None


_COMMITTED: Final = 1
_LOG_END: Final = 2
_NOTHING: Final[deque[Point]] = deque()


class Trends:
    """The last looks at each partition."""

    def __init__(self) -> None:
        self._points: dict[TopicPartition, deque[Point]] = {}
        self._rates: dict[TopicPartition, Rates] = {}  # of the points that there are: a screen asks many times
        self._totals: deque[tuple[int, int | None]] = deque(maxlen=KEPT)

    def add(self, look: Look) -> None:
        """Take up a look; one that is not at offsets tells nothing new."""
        if not look.measured:
            return
        self._rates.clear()
        kept = max(_FEWEST, min(KEPT, MOST // max(1, len(look.partitions))))
        for gone in [key for key in self._points if key not in look.partitions]:
            del self._points[gone]
        for key, p in look.partitions.items():
            points = self._points.get(key, _NOTHING)
            if points.maxlen != kept:
                points = self._points[key] = deque(points, kept)
            last = points[-1] if points else None
            if last is not None and (_fell(last.committed, p.committed or 0) or _fell(last.log_end, p.log_end)):
                points.clear()  # a reset, or another log: no rate goes across it
            points.append(Point(look.at, p.committed, p.log_end))
        self._totals.append((look.at, look.lag))

    def rates(self, key: TopicPartition) -> Rates:
        """What is produced to and consumed from a partition."""
        found = self._rates.get(key)
        if found is None:
            points = self._points.get(key, _NOTHING)
            found = self._rates[key] = Rates(_rate(points, _LOG_END), _rate(points, _COMMITTED))
        return found

    def total(self) -> Rates:
        """The same of all partitions together, as far as it is known."""
        rates = [self.rates(key) for key in self._points]
        return Rates(_sum(rate.produced for rate in rates), _sum(rate.consumed for rate in rates))

    def lags(self, key: TopicPartition) -> list[int | None]:
        """The course of a partition's lag, oldest first."""
        return [lag_between(point.committed, point.log_end) for point in self._points.get(key, ())]

    def total_lags(self) -> list[int | None]:
        """The course of the lag of all partitions."""
        return [lag for _, lag in self._totals]


def _fell(before: int | None, after: int | None) -> bool:
    return before is not None and after is not None and after < before


def _rate(points: deque[Point], field: int) -> float | None:
    """Between the first and the last point at which the field is known."""
    first = next((point for point in points if point[field] is not None), None)
    if first is None:
        return None
    last = next(point for point in reversed(points) if point[field] is not None)
    start, end = first[field], last[field]
    if start is None or end is None or last.at <= first.at:
        return None
    return (end - start) * 1000 / (last.at - first.at)


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def spark(values: Sequence[int | None], length: int, signs: str = "▁▂▃▄▅▆▇█") -> str:
    """The last values as a line of ``length`` signs, from 0 to the largest; what is not known is a blank."""
    shown = list(values)[-length:]
    top = max((value for value in shown if value is not None), default=0)
    line = "".join(
        " "
        if value is None
        else signs[0]
        if top <= 0 or value <= 0
        else signs[min(len(signs) - 1, value * len(signs) // (top + 1))]
        for value in shown
    )
    return line.rjust(length)
