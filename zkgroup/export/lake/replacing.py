"""Files in the place of files that are missing. Pure.

No manifest names them: a backfill wrote those again, and then its run was lost. Runs still account for the offsets, by
names that are gone. A file that holds all that these held takes their place, as it did before: it is entered as written
again. Or a manifest does: the run that tells of those was away, too, when they were written again, and came back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from zkgroup.export.lake.holdings import Holdings, LiveFile, is_of_times, missing_ranges
from zkgroup.export.model.intervals import Interval, subtract, union
from zkgroup.export.model.words import Lost, Slice


class Place(NamedTuple):
    """Where a message can be there once: a folder, and a partition of a topic's log with this mark."""

    folder: str
    partition: int
    tag: str | None


def missing_from(files: Mapping[str, LiveFile], there: Collection[str]) -> dict[Place, list[Lost]]:
    """The ranges of named files that are not ``there``."""
    found: dict[Place, list[Lost]] = defaultdict(list)
    for live, partition, lost in missing_ranges(files, there):
        found[Place(lost.folder, partition, live.tag)].append(lost)
    return found


def follow(holdings: Holdings, there: Collection[str]) -> None:
    """Have these forget the ranges of files that are not ``there`` whose messages other named files hold."""
    missing = missing_from(holdings.files, there)
    slices: dict[Place, list[Slice]] = defaultdict(list)
    for name, live in holdings.files.items() if missing else ():
        for one in live.file.slices if name in there else ():
            slices[Place(name.rpartition("/")[0], one.partition, live.tag)].append(one)
    for place, some in missing.items():
        for lost in replaced(some, slices[place], timed=is_of_times(some[0].file)):
            live = holdings.files[lost.file]
            holdings.followed.append((live, Slice(place.partition, lost.start, lost.end, lost.rows)))
            holdings.forget(lost, place.partition)


def replaced(lost: Iterable[Lost], held: Iterable[Slice], *, timed: bool) -> list[Lost]:
    """Of what is missing at a place, what other files hold there, however they are cut: the same
    offsets, in as many rows; or all of these offsets and more, as where further runs are lost.

    In folders of times the first and the last offset are the same, since what lies between two ranges may be in other
    folders; files with more hold what is missing if no offset of theirs is in another folder. Elsewhere a file has all
    messages of its ranges.

    Where retention had overtaken what was written again, the files hold the end of what is missing: that end of it."""
    files = list(lost)
    ranges = list(held)
    found: list[Lost] = []
    for low, high in _joined([*((one.start, one.end) for one in files), *((one.start, one.end) for one in ranges)]):
        some = [one for one in files if low <= one.start < high]
        inside = [one for one in ranges if low <= one.start < high]
        before, now = (union((one.start, one.end) for one in them) for them in (some, inside))
        lost_rows, rows = (sum(one.rows for one in them) for them in (some, inside))
        same = before == now or (timed and before and now and _span(before) == _span(now))
        within = before != now and not any(subtract(interval, now) for interval in before)
        whole = rows == sum(end - start for start, end in now) if timed else rows >= lost_rows
        if (same and rows == lost_rows) or (within and whole):
            found += some
        elif inside:
            found += _end_of(some, inside, timed=timed)
    return found


def _end_of(some: Sequence[Lost], held: Sequence[Slice], *, timed: bool) -> list[Lost]:
    """What is missing from where the files begin, if that is within a range of it, and they may hold all from there on;
    else nothing. The rest of that range is still missing: it has room for the other rows."""
    now = union((one.start, one.end) for one in held)
    first, end = _span(now)
    ordered = sorted(some, key=lambda one: one.start)
    if not ordered or end != max(one.end for one in some):
        return []
    cut, *later = ordered
    if not cut.start < first < cut.end:
        return []
    if not timed and (len(now) > 1 or subtract((first, end), ((one.start, one.end) for one in some))):
        return []
    rows = sum(one.rows for one in held) - sum(one.rows for one in later)
    left = cut.rows - rows
    # In folders of times a range begins with a message, and ends with one.
    least = 1 if timed else 0
    if not (least <= rows <= cut.end - first and least <= left <= first - cut.start):
        return []
    return [cut._replace(start=first, rows=rows) if left else cut, *later]


def _span(intervals: Sequence[Interval]) -> Interval:
    return intervals[0][0], intervals[-1][1]


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
