"""What backfills hold of what a group has yet to export: its exports go on around that. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from zkgroup.export.model.intervals import Interval, difference, subtract, union
from zkgroup.export.model.rundata import TopicCoverage
from zkgroup.export.model.words import PartitionPlan, Skipped


def spared(
    committed: int | None, coverage: Iterable[Interval], known: Iterable[TopicCoverage], partition: int
) -> tuple[tuple[Interval, ...], tuple[Interval, ...]]:
    """``coverage`` without what lies ahead of the exports of all groups that share a log, as their last runs have it
    ``known``, and that: exports end before it, wherever the group stands. Where there are no exports, nothing is taken
    away if the group stands behind all of it: what lies between is nobody's then."""
    known = list(known)
    done = union(piece for one in known for piece in one.exported(partition))
    end = done[-1][1] if done else 0
    filled = difference((piece for one in known for piece in one.ahead(partition)), done)
    ahead = [piece for piece in filled if piece[0] >= end]
    if not ahead or (not done and (committed or 0) >= ahead[-1][1]):
        return tuple(coverage), ()
    return union((*difference(coverage, ahead), *([(end, end)] if done else ()))), tuple(ahead)


def around(part: PartitionPlan, filled: Sequence[Interval], *, whole: bool) -> Iterator[PartitionPlan]:
    """The parts that export ``part`` without what is ``filled``; the last of them moves the group. Unless it is read as
    a ``whole``, only the first: nothing is committed behind what may not be reached."""
    skipped = tuple(_left(part.skipped, filled))
    pieces = subtract((part.start, part.end), filled)
    if not pieces or (pieces[-1][1] < part.end and whole):
        pieces.append((part.end, part.end))
    place = part.start
    for number, (low, high) in enumerate(pieces if whole else pieces[:1], 1):
        gaps = tuple(Skipped("filled", *gap) for gap in [(place, low)] if place < low)
        last = not whole or number == len(pieces)
        yield replace(part, start=low, end=high, skipped=(*skipped, *gaps), commits=last)
        skipped, place = (), high


def _left(skipped: Iterable[Skipped], filled: Sequence[Interval]) -> Iterator[Skipped]:
    for gap in skipped:
        if gap.start == gap.end:
            yield gap
        for low, high in subtract((gap.start, gap.end), filled):
            yield Skipped(gap.kind, low, high)
