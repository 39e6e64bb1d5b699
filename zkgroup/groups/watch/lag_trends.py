"""Rates and the course of lag. Does no I/O; its memory is bounded.

A rate is the difference between the oldest and the newest point that are kept (two minutes at the default interval).
Members commit in steps, the Scala consumer once a minute by default: over a shorter time the rate of consumption would
be zero, and then a jump.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from zkgroup.groups.group_model import lag_between
from zkgroup.groups.watch.timeline import WatchedGroup
from zkgroup.protocol.names import TopicPartition

#: Points that are kept of each partition.
MAX_POINTS: Final = 60
#: Points of all partitions together: of groups with many partitions fewer are kept of each.
MAX_ALL_POINTS: Final = 300_000
MIN_POINTS: Final = 8


class Point(NamedTuple):
    """A partition at one time; ``at`` in milliseconds."""

    at: int
    committed: int | None
    log_end: int | None


class Rates(NamedTuple):
    """Messages per second; None while unknown."""

    produced: float | None = None
    consumed: float | None = None


_COMMITTED: Final = 1
_LOG_END: Final = 2
_NOTHING: Final[deque[Point]] = deque()


class LagTrends:
    """The last points of each partition."""

    def __init__(self) -> None:
        self._points: dict[TopicPartition, deque[Point]] = {}
        self._rates: dict[TopicPartition, Rates] = {}  # of the points that there are: a screen asks many times
        self._totals: deque[tuple[int, int | None]] = deque(maxlen=MAX_POINTS)

    def add(self, state: WatchedGroup) -> None:
        """Add the offsets of a state; a state without new ones is passed over."""
        if not state.measured:
            return
        self._rates.clear()
        kept = max(MIN_POINTS, min(MAX_POINTS, MAX_ALL_POINTS // max(1, len(state.partitions))))
        for gone in [key for key in self._points if key not in state.partitions]:
            del self._points[gone]
        for key, p in state.partitions.items():
            points = self._points.get(key, _NOTHING)
            if points.maxlen != kept:
                points = self._points[key] = deque(points, kept)
            last = points[-1] if points else None
            if last is not None and (_fell(last.committed, p.committed or 0) or _fell(last.log_end, p.log_end)):
                points.clear()  # a reset, or a recreated topic: no rate spans it
            points.append(Point(state.at, p.committed, p.log_end))
        self._totals.append((state.at, state.lag))

    def rates(self, key: TopicPartition) -> Rates:
        found = self._rates.get(key)
        if found is None:
            points = self._points.get(key, _NOTHING)
            found = self._rates[key] = Rates(_rate(points, _LOG_END), _rate(points, _COMMITTED))
        return found

    def total(self) -> Rates:
        """The sums of the known rates of all partitions."""
        rates = [self.rates(key) for key in self._points]
        return Rates(_sum(rate.produced for rate in rates), _sum(rate.consumed for rate in rates))

    def lags(self, key: TopicPartition) -> list[int | None]:
        """A partition's lag over time, oldest first."""
        return [lag_between(point.committed, point.log_end) for point in self._points.get(key, ())]

    def total_lags(self, count: int) -> tuple[list[int | None], float]:
        """The last ``count`` lags of all partitions together, and the time that they span, in seconds."""
        rows = list(self._totals)[-count:]
        return [lag for _, lag in rows], (rows[-1][0] - rows[0][0]) / 1000 if rows else 0.0


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


def sparkline(values: Sequence[int | None], length: int, signs: str = "▁▂▃▄▅▆▇█") -> str:
    """The last values as a line of ``length`` signs, from 0 to the largest; an unknown value is a blank."""
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
