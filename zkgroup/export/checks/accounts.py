"""What manifests and files tell of a partition, held against each other: the rows that ``verify`` gives of it. Pure but
for files whose offsets are looked up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from zkgroup.export.lake.holdings import Exact, Incarnation, is_of_times, offsets_of
from zkgroup.export.model.intervals import Interval, difference, holes, hulls, overlaps, subtract, union
from zkgroup.export.model.words import Slice
from zkgroup.words import counted

#: ``fill``: it is missing, and a backfill writes it again. ``move``: it is in the way; ``refill``: then what it held is
#: missing. ``adopt``: it is whole, and in no manifest; ``readopt``: it is a manifest in the way, and its files will be.
#: ``undo``: it is there twice. ``open``: it may not be read.
Mend = Literal["fill", "move", "refill", "adopt", "readopt", "undo", "open"]


@dataclass(frozen=True, slots=True)
class VerifyRow:
    """A partition as a whole, without a ``problem``; or a problem with offsets ``[start, end)`` of it, or with a file
    or a run of which nobody knows what it holds.

    ``gaps``: offsets that are accounted for and are no messages, ``skipped``: those left out knowingly. ``stands``: the
    problem is the group, which stands ahead of where its exports end, or behind it (or nowhere). ``group``: whose
    exports have the problem, where that is known. ``mend``: what is to be done. ``held``: the ranges of a file that is
    to be moved away and filled.
    """

    topic: str | None
    partition: int | None
    start: int | None
    end: int | None
    rows: int | None
    gaps: int | None
    skipped: int | None
    files: int | None
    problem: str | None
    stands: Literal["ahead", "behind"] | None = None
    group: str | None = None
    mend: Mend | None = None
    held: tuple[Slice, ...] = ()


NO_NUMBERS: Final = (None, None, None, None)
NOWHERE: Final = (None, None, None, None, *NO_NUMBERS)


class Problem(NamedTuple):
    """With offsets ``interval``; the rest is as in ``VerifyRow``."""

    interval: Interval
    why: str
    group: str | None = None
    stands: Literal["ahead", "behind"] | None = None
    mend: Mend | None = None
    held: tuple[Slice, ...] = ()


@dataclass
class Account:
    """What manifests tell of a partition, and what its files do. ``folders``: the offsets of each. ``claimed``: what
    each group's last manifest of this log accounts for; ``again``: what was written again, for runs that may be gone;
    ``orphaned``: whole files that no manifest names, with their ranges; ``renamed``: what files hold that have other
    names, or lie elsewhere, than they were given; ``exported``: where runs have messages, without what adoptions enter,
    which is there already; ``followed``: what of that later runs have written again in its place; ``passed``: what all
    runs but backfills account for; ``awaited``: where the exports of groups end behind which backfills hold something,
    so that what is missing further on is for the next ones."""

    by_group: dict[str, list[Interval]] = field(default_factory=dict)
    exported: list[tuple[str, Interval]] = field(default_factory=list)
    followed: dict[str, list[Interval]] = field(default_factory=dict)
    claimed: dict[str, list[Interval]] = field(default_factory=dict)
    again: list[Interval] = field(default_factory=list)
    orphaned: list[tuple[str, Slice]] = field(default_factory=list)
    renamed: list[Interval] = field(default_factory=list)
    passed: list[Interval] = field(default_factory=list)
    awaited: set[int] = field(default_factory=set)
    skipped: list[Interval] = field(default_factory=list)
    rows: int = 0  # of the files that are to be there
    seen: int = 0
    folders: dict[str, list[Interval]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    standing: list[Problem] = field(default_factory=list)


def _beside(pieces: list[Interval], account: Account, exact: Exact) -> list[Interval]:
    """What of ``pieces`` whole files that no manifest names do not hold; only those about them are looked into."""
    near = union(pieces)
    about = [(name, one) for name, one in account.orphaned if subtract((one.start, one.end), near) != [one[1:3]]]
    return difference(pieces, [held for name, one in about for held in offsets_of(name, one, exact)])


def _together(pieces: list[Interval], account: Account) -> Iterator[tuple[Interval, str]]:
    """Apart from what renamed files hold; put together where between them are messages of other folders alone, and what
    is to be said then."""
    unheld = difference(pieces, account.renamed)
    for some in (unheld, difference(pieces, unheld)):
        if not any(map(is_of_times, account.folders)):
            yield from ((piece, "") for piece in union(some))
            continue
        runs = (interval for held in account.by_group.values() for interval in held)
        for (low, high), count in hulls(some, [*runs, *account.skipped]):
            yield (low, high), "" if count == high - low else f"{counted(count, 'offset')} among these "


def rows_of(key: Incarnation, account: Account, exact: Exact, *, is_earlier: bool) -> Iterator[VerifyRow]:
    """The row of a partition, and those of its problems. ``is_earlier``: its log is gone."""
    everything = [interval for found in account.by_group.values() for interval in found]
    accounted = union([*everything, *account.again])
    known = union([*accounted, *account.skipped])
    problems = list(account.problems)
    for folder, held in account.folders.items():
        problems += [Problem(twice, f"in two files of {folder}", mend="undo") for twice in overlaps(held)]
    # Files in two places are seen above: an adoption, and a run that came back, name the same ones.
    exported = ([interval] for run, interval in account.exported if run not in account.followed)
    alone = (
        difference([interval], account.followed[run]) for run, interval in account.exported if run in account.followed
    )
    twice = overlaps(interval for some in (*exported, *alone) for interval in some if interval[0] < interval[1])
    problems += [Problem(interval, "exported twice", mend="undo") for interval in twice]
    left = _left_in_earlier_log(account, known) if is_earlier else []
    problems += _missing(account, [*everything, *account.skipped, *account.again, *left], exact, is_earlier=is_earlier)
    low, high = (known[0][0], known[-1][1]) if known else (0, 0)
    # What was passed over, and filled since, is not skipped any more.
    skipped = sum(end - start for gap in union([*account.skipped, *left]) for start, end in subtract(gap, accounted))
    if accounted:
        gaps = max(0, sum(end - start for start, end in accounted) - account.rows)  # fewer where some are there twice
        yield VerifyRow(key.topic, key.partition, low, high, account.rows, gaps, skipped, account.seen, None)
    problems.sort(key=lambda problem: (problem.interval, problem.why))
    for (start, end), why, group, stands, mend, ranges in problems + account.standing:
        yield VerifyRow(key.topic, key.partition, start, end, *NO_NUMBERS, why, stands, group, mend, ranges)


def _left_in_earlier_log(account: Account, known: Iterable[Interval]) -> list[Interval]:
    """What lies between backfills below where the exports of a log that is gone began, or behind where they ended: no
    export was to read it, and nothing can fill it any more."""
    exports = union(account.passed)
    low, high = (exports[0][0], exports[-1][1]) if exports else (0, 0)
    outside = [(start, end) for start, end in holes(known) if end <= low or high <= start]
    return difference(outside, [claim for intervals in account.claimed.values() for claim in intervals])


def _missing(account: Account, found: list[Interval], exact: Exact, *, is_earlier: bool) -> Iterator[Problem]:
    """What runs that are gone have exported, and what no run has; ``found``: what the others account for."""
    for claimant, intervals in account.claimed.items():
        who = None if is_earlier else claimant
        gone = "its run is gone" + (", and the topic was made again: only a copy brings it back" if is_earlier else "")
        for claim in intervals:
            pieces = _beside(subtract(claim, found), account, exact)
            found += pieces
            for part, few in _together(pieces, account):
                why = f"{few}in no run, though the last manifest of group {claimant} accounts for it: {gone}"
                yield Problem(part, why, who, mend=mend_for(part, account))
    # Of all groups together: a lake's reader does not ask who exported what.
    whose = f" of group {next(iter(account.by_group))}" if len(account.by_group) == 1 else ""
    unheld = [hole for hole in holes(found) if not any(offset <= hole[0] for offset in account.awaited)]
    unfilled = _beside(unheld, account, exact)
    for pieces in (unfilled, difference(unheld, unfilled)):
        for part, few in _together(pieces, account):
            why = f"{few}in no run{whose}"
            if is_earlier:
                yield Problem(part, f"{why}, and the topic was made again: nothing can fill it")
                continue
            hole = next(hole for hole in unheld if hole[0] <= part[0] < hole[1])
            who = _who_fills(account.by_group, hole) if pieces is unfilled else None
            yield Problem(part, why, who, mend=mend_for(part, account))


def mend_for(interval: Interval, account: Account) -> Mend | None:
    """What is missing is to be written again, but for what a renamed file holds."""
    return None if any(low < interval[1] and interval[0] < high for low, high in account.renamed) else "fill"


def _who_fills(by_group: Mapping[str, list[Interval]], hole: Interval) -> str | None:
    """Whose exports are to go on through a hole: the group's that ends where it begins."""
    before = (group for group, found in by_group.items() if any(end == hole[0] for _, end in found))
    return next(before, next(iter(by_group), None))
