"""Sets of offsets as intervals, and the account of a range: every offset is a row, or belongs to a gap of a known kind.
Pure.

Intervals ``(start, end)`` exclude their end; sets of them are sorted, disjoint, and do not touch.

A reader sees messages and nothing between them. A missing offset is one of these:

- ``transactions``: commit and abort markers, which no client is ever given, and what was aborted, which a reader of
  committed messages is not given. Assumed only where the topic's ``cleanup.policy`` is ``delete``, so that the broker
  leaves nothing else out. Checked: the widest gaps are read again without the filter; what then appears was aborted,
  and what does not is markers. More than ``MARKERS`` of them in a row are not credible: such a stretch is unexplained.
- ``compaction``: the topic is compacted, or its policy is unknown. Markers and aborted messages of compacted topics
  are counted here too, since a reader cannot distinguish them from removed messages.
- ``retention``: deleted while it was read; the log now starts behind it.
- ``elsewhere``: in files of other folders, where a backfill writes the messages of a lost file again.
- ``unexplained``: none of these. An export stops, unless ``--on-mismatch`` records it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

#: An empty one, ``(n, n)``, is a place to go on from: nothing is there yet, and nothing below is missed.
Interval: TypeAlias = tuple[int, int]


def union(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """Sorted and put together where they touch or overlap."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)


def subtract(interval: Interval, taken: Iterable[Interval]) -> list[Interval]:
    """The parts of ``interval`` that are in none of ``taken``; none of them is empty."""
    position, end = interval
    left: list[Interval] = []
    for low, high in union(taken):
        if high <= position:
            continue
        if low >= end:
            break
        if position < low:
            left.append((position, low))
        position = max(position, high)
    if position < end:
        left.append((position, end))
    return left


def overlaps(intervals: Iterable[Interval]) -> list[Interval]:
    """What is in more than one of ``intervals``, put together."""
    found: list[Interval] = []
    reached: int | None = None
    for start, end in sorted(intervals):
        if reached is not None and start < min(reached, end):
            found.append((start, min(reached, end)))
        reached = end if reached is None else max(reached, end)
    return list(union(found))


def gaps_between(intervals: Iterable[Interval]) -> list[Interval]:
    """What lies between the intervals."""
    merged = union(intervals)
    return [(before[1], after[0]) for before, after in itertools.pairwise(merged)]


#: Transaction markers side by side that are believed: each is the end of one producer's transaction.
MARKERS: Final = 64
#: Gaps of a range that are read again; those wider than ``MARKERS`` always are.
MAX_PROBES: Final = 16


class GapCollector:
    """Collects the offsets that a reader was not given. Costs one comparison a batch where nothing is missing."""

    def __init__(self, start: int) -> None:
        self.position = start
        self.spans: list[Interval] = []

    def add(self, first: int, last: int, count: int, offsets: Iterable[int]) -> None:
        """Add ``count`` messages from ``first`` to ``last``; ``offsets``: all of them, read if one is missing."""
        if first == self.position and last - first + 1 == count:
            self.position = last + 1
            return
        for offset in offsets:
            if offset != self.position:
                self.spans.append((self.position, offset))
            self.position = offset + 1

    def skip(self, end: int) -> None:
        """Nothing came up to ``end``."""
        if end > self.position:
            self.spans.append((self.position, end))
            self.position = end

    def jump(self, offset: int) -> None:
        """Go on at ``offset``: what lies between is accounted for elsewhere."""
        self.position = max(self.position, offset)


def count_gaps(
    spans: Iterable[Interval],
    *,
    cleanup: str | None,
    transactional: bool,
    hidden: Callable[[Interval], Iterator[int]] | None,
) -> dict[str, int]:
    """Count the offsets of ``spans`` by kind.

    ``cleanup``: the topic's policy, None if unknown. ``transactional``: whether the brokers know transactions.
    ``hidden``: reads a span without the filter of committed messages, and yields the offsets that are there; None
    where the range was read without the filter.
    """
    gaps: Counter[str] = Counter()
    if cleanup is None or "compact" in cleanup:
        gaps["compaction"] = sum(end - start for start, end in spans)
        return {kind: count for kind, count in gaps.items() if count}
    probed = 0
    for start, end in sorted(spans, key=lambda span: span[0] - span[1]):
        silent: list[Interval] = [(start, end)]
        if hidden is not None and end - start > 1 and (end - start > MARKERS or probed < MAX_PROBES):
            probed += 1
            silent = _between((start, end), hidden((start, end)))
        gaps["transactions"] += end - start - sum(high - low for low, high in silent)
        for low, high in silent:
            is_unexplained = not transactional or high - low > MARKERS
            gaps["unexplained" if is_unexplained else "transactions"] += high - low
    return {kind: count for kind, count in gaps.items() if count}


def _between(span: Interval, offsets: Iterator[int]) -> list[Interval]:
    """The parts of ``span`` that none of ``offsets``, which are in order, lies in."""
    seen = GapCollector(span[0])
    for offset in offsets:
        seen.add(offset, offset, 1, (offset,))
    seen.skip(span[1])
    return seen.spans


def total(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Gaps by kind, added up."""
    gaps: Counter[str] = Counter()
    for part in parts:
        gaps.update(part)
    return dict(gaps)
