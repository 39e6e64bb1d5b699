"""Files that no manifest names, in the place of files that are missing: a backfill wrote those again, and then its run
was lost. Pure.

Runs still account for the offsets, by names that are gone. A file that has as many rows of the very same ranges takes
their place, as it did before: it is entered as written again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from zkgroup.export.holdings import LiveFile
from zkgroup.export.intervals import union
from zkgroup.export.words import Lost, Slice


class Place(NamedTuple):
    """Where a message can be there once: a folder, and a partition of a topic's log with this mark."""

    folder: str
    partition: int
    tag: str | None


def missing_from(files: Mapping[str, LiveFile], there: Collection[str]) -> dict[Place, list[Lost]]:
    """The ranges of named files that are not ``there``."""
    found: dict[Place, list[Lost]] = defaultdict(list)
    for name, live in files.items():
        for one in live.file.slices if name not in there else ():
            lost = Lost(name, one.start, one.end, one.rows)
            found[Place(lost.folder, one.partition, live.tag)].append(lost)
    return found


def replaced(lost: Iterable[Lost], unnamed: Iterable[Slice], *, timed: bool) -> list[Lost]:
    """Of what is missing at a place, what the files hold there that no manifest names: the same offsets, in as many
    rows, however they are cut. In folders of times the first and the last are the same: what lies between two ranges
    may be in other folders."""
    files = list(lost)
    ranges = list(unnamed)
    found: list[Lost] = []
    for low, high in _joined([*((one.start, one.end) for one in files), *((one.start, one.end) for one in ranges)]):
        some = [one for one in files if low <= one.start < high]
        held = [one for one in ranges if low <= one.start < high]
        before, now = (union((one.start, one.end) for one in them) for them in (some, held))
        if timed and before and now:
            before, now = ((before[0][0], before[-1][1]),), ((now[0][0], now[-1][1]),)
        if before == now and sum(one.rows for one in some) == sum(one.rows for one in held):
            found += some
    return found


def _joined(intervals: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Put together where they have an offset in common; where they only touch they are apart."""
    low = high = None
    for start, end in sorted(intervals):
        if low is None or high is None:
            low, high = start, end
        elif start < high:
            high = max(high, end)
        else:
            yield low, high
            low, high = start, end
    if low is not None and high is not None:
        yield low, high
