"""Sets of offsets as sorted, disjoint, non-touching intervals ``(start, end)``, end excluded. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TypeAlias

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
