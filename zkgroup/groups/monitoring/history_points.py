"""The history of a group as a point for each snapshot: lag, rates, commits. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import median
from typing import Final

from zkgroup.groups.monitoring.burrow_status import Sample
from zkgroup.protocol.names import TopicPartition

#: A longer time without a snapshot is a gap, in multiples of the usual time between two.
_GAP: Final = 3.5


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """A group in one snapshot. ``lag_at_least``: the sum of the known lags, None where none is; ``lag_unknown``: the
    number of partitions whose lag is unknown. ``produced`` and ``consumed``: messages per second since the snapshot
    before, by log ends and committed offsets; ``commits``: the number of partitions with a commit since then; None
    where that is unknown. ``set_back``: partitions whose offset is smaller than it was."""

    taken_at: int
    partitions: int
    lag_at_least: int | None
    lag_unknown: int
    produced: float | None = None
    consumed: float | None = None
    commits: int | None = None
    set_back: tuple[TopicPartition, ...] = ()

    @property
    def lag(self) -> int | None:
        """The lag; None where that of a partition is unknown."""
        return None if self.lag_unknown else self.lag_at_least


def history_points(samples: Iterable[tuple[TopicPartition, Sample]]) -> Iterator[HistoryPoint]:
    """A point for each snapshot, of the samples in the order of time."""
    committed: dict[TopicPartition, Sample] = {}  # the last sample that has the offset
    ends: dict[TopicPartition, Sample] = {}
    is_first = True
    for taken_at, rows in groupby(samples, key=lambda row: row[1].taken_at):
        lags, unknown, count, commits = [], 0, 0, 0
        consumed: list[float] = []
        produced: list[float] = []
        set_back = []
        for key, sample in rows:
            count += 1
            if (lag := sample.lag) is not None:
                lags.append(lag)
            elif sample.committed is not None or sample.log_end != 0:  # an empty log without an offset has no lag
                unknown += 1
            if sample.committed is not None:
                before = committed.get(key)
                if before is not None and before.committed is not None:
                    commits += (before.committed, before.changed_at) != (sample.committed, sample.changed_at)
                    consumed.append(_rate(before, sample, sample.committed - before.committed))
                    if sample.committed < before.committed:
                        set_back.append(key)
                committed[key] = sample
            if sample.log_end is not None:
                before = ends.get(key)
                if before is not None and before.log_end is not None:
                    produced.append(_rate(before, sample, sample.log_end - before.log_end))
                ends[key] = sample
        yield HistoryPoint(
            taken_at,
            count,
            sum(lags) if lags or not unknown else None,
            unknown,
            sum(produced) if produced else None,
            sum(consumed) if consumed else None,
            None if is_first else commits,
            tuple(sorted(set_back)),
        )
        is_first = False


def _rate(before: Sample, after: Sample, change: int) -> float:
    """Messages per second; 0 where an offset went back."""
    return max(0, change) * 1000 / max(1, after.taken_at - before.taken_at)


def commits_per_minute(points: Sequence[HistoryPoint]) -> list[float | None]:
    """The commits before each point, per minute since the point before."""
    rates = [
        None if after.commits is None else after.commits * 60_000 / max(1, after.taken_at - before.taken_at)
        for before, after in pairwise(points)
    ]
    return [None, *rates]


def columns_of(
    points: Sequence[HistoryPoint],
    values: Sequence[float | None],
    count: int,
    combine: Callable[[list[float]], float],
) -> list[float | None]:
    """A value for each of ``count`` equal steps of the time that the points cover. The value of a point holds since
    the point before; that of a first point, and of one after a gap, at its own time. ``combine``: of the values in one
    step. A step without a value is None."""
    begin, end = points[0].taken_at, max(points[-1].taken_at, points[0].taken_at + 1)
    distances = [after.taken_at - before.taken_at for before, after in pairwise(points)]
    longest = _GAP * median(distances) if distances else 0
    found: list[list[float]] = [[] for _ in range(count)]

    def column(at: int) -> int:
        return min(count - 1, (at - begin) * count // (end - begin))

    for before, point, value in zip((None, *points), points, values, strict=False):
        if value is None:
            continue
        last = column(point.taken_at)
        is_gap = before is None or point.taken_at - before.taken_at > longest
        first = last if is_gap or before is None else min(last, column(before.taken_at) + 1)
        for number in range(first, last + 1):
            found[number].append(value)
    return [combine(each) if each else None for each in found]
