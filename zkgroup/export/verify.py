"""Is everything there, once? The manifests of all runs, the names and footers of all files, held against each other.

Of a file with one range nothing is read but its footer: what it says of itself, how many rows it has, and the offsets
and times of each row group. Of one with several, also the offsets of its rows; and of one in a folder of times, where
what lies between the first and the last is in question. That is enough to see what is missing,
doubled, foreign or changed, for every offset that was ever exported: a message has one folder, files of one folder have
no offset in common, and as many rows are there as offsets are accounted for by rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal, NamedTuple, cast

from zkgroup.export.documents import DamagedDocumentError, decode_log
from zkgroup.export.footer import Footer, UnreadableFileError, read_footer
from zkgroup.export.history import decided_run
from zkgroup.export.holdings import (
    Exact,
    Holdings,
    Incarnation,
    LiveFile,
    held_again,
    is_among_others,
    offsets_of,
    tags_of,
)
from zkgroup.export.intervals import Interval, difference, holes, hulls, overlaps, subtract, union
from zkgroup.export.judging import LOOKS, Look, judge_times, look_at, wrong_with
from zkgroup.export.lake import Lake, LastRun, Published, of_log
from zkgroup.export.layout import Calendar, Layout, is_read, read_name
from zkgroup.export.rundata import Manifest, ManifestPart, TopicCoverage, TopicIdentity, slices_held
from zkgroup.export.words import Slice
from zkgroup.protocol.names import TopicPartition
from zkgroup.words import counted

#: ``fill``: it is missing, and a backfill writes it again. ``move``: it is in the way; ``refill``: then what it held is
#: missing. ``adopt``: it is whole, and in no manifest; ``readopt``: it is a manifest in the way, and its files will be.
#: ``undo``: it is there twice.
Mend = Literal["fill", "move", "refill", "adopt", "readopt", "undo"]


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


_NO_NUMBERS: Final = (None, None, None, None)
_NOWHERE: Final = (None, None, None, None, *_NO_NUMBERS)


class _Problem(NamedTuple):
    """With offsets ``interval``; the rest is as in ``VerifyRow``."""

    interval: Interval
    why: str
    group: str | None = None
    stands: Literal["ahead", "behind"] | None = None
    mend: Mend | None = None
    held: tuple[Slice, ...] = ()


@dataclass
class _Account:
    """What manifests tell of a partition, and what its files do. ``folders``: the offsets of each. ``claimed``: what
    each group's last manifest of this log accounts for; ``again``: what was written again, for runs that may be gone;
    ``orphaned``: whole files that no manifest names, with their ranges."""

    by_group: dict[str, list[Interval]] = field(default_factory=dict)
    claimed: dict[str, list[Interval]] = field(default_factory=dict)
    again: list[Interval] = field(default_factory=list)
    orphaned: list[tuple[str, Slice]] = field(default_factory=list)
    skipped: list[Interval] = field(default_factory=list)
    rows: int = 0  # of the files that are to be there
    seen: int = 0
    folders: dict[str, list[Interval]] = field(default_factory=dict)
    problems: list[_Problem] = field(default_factory=list)
    standing: list[_Problem] = field(default_factory=list)


class _Books:
    """All accounts, the files that were named and not seen yet, and problems that are of no account."""

    def __init__(self) -> None:
        self.accounts: dict[Incarnation, _Account] = {}
        self.files: dict[str, LiveFile] = {}
        self.strangers: list[VerifyRow] = []
        self.lasts: list[LastRun] = []  # of all groups
        # What files of a log hold that have other names, or lie elsewhere, than they were given.
        self.renamed: dict[tuple[str, str | None], list[Slice]] = {}

    def is_of_earlier_log(self, topic: str, tag: str | None) -> bool:
        """Whether the topic was made again since, and exported, by whichever group."""
        newest: dict[str | None, TopicIdentity] = {}  # of each cluster: their numbers tell nothing of one another
        for one in self.lasts:
            if topic in one.coverage:
                known, now = newest.get(one.cluster), one.coverage[topic].identity
                newest[one.cluster] = now if known is None or now.czxid > known.czxid else known
        return bool(newest) and all(tag != now.tag for now in newest.values())

    def covered(self, topic: str, partition: int, log: TopicIdentity) -> tuple[Interval, ...]:
        """What all groups' exports of a log account for."""
        known = of_log(self.lasts, topic, log)
        return union(interval for found in known for interval in found.partitions.get(partition, ()))

    def add_renamed(self, footer: Footer | None) -> None:
        """A file that has another name, or lies elsewhere, than its export has put it."""
        if footer is not None and "topic" in footer.told:
            log = decode_log(footer.told.get("log", ""))
            key = footer.told["topic"], None if log is None else log[1].tag
            self.renamed.setdefault(key, []).extend(footer.slices)

    def account(self, key: Incarnation) -> _Account:
        """The one of a partition."""
        return self.accounts.setdefault(key, _Account())


def verify(
    lake: Lake,
    committed: Mapping[str, Mapping[TopicPartition, int | None]] | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> list[VerifyRow]:
    """One row for each partition, then its problems. ``committed``: what groups have committed, where that is to be
    held against what was exported, too. ``note`` is told what is no problem and yet worth knowing."""
    books = _read_books(lake)
    calendars: dict[Layout, Calendar] = {}
    with ThreadPoolExecutor(LOOKS, thread_name_prefix="zkgroup-verify") as pool:
        for files in lake.contents():
            named = [(file, read_name(file.name)) for file in files]
            published = [Published(file.name, file.size, told) for file, told in named if told is not None]
            for one, look in pool.map(lambda file: (file, look_at(lake, file)), published):
                _judge_file(books, one, look, calendars)
            strangers = [file.name for file, told in named if told is None and is_read(file.name)]
            for row, footer in pool.map(partial(_judge_stranger, lake), strangers):
                books.strangers.append(row)
                books.add_renamed(footer)
    for name, missing in books.files.items():
        why, group = f"{name} of run {missing.run} is missing", cast("str | None", missing.group)
        if books.is_of_earlier_log(missing.file.topic, missing.tag):
            why, group = f"{why}, and the topic was made again: only a copy brings it back", None
        for one in missing.file.slices:
            account = books.account(Incarnation(missing.file.topic, one.partition, missing.tag))
            # What a file holds that can be entered in its place, or was renamed, is not to be written again.
            folder = name.rpartition("/")[0]
            beside = [(held.start, held.end) for other, held in account.orphaned if other.rpartition("/")[0] == folder]
            known = any(
                held.partition == one.partition and held.start < one.end and one.start < held.end
                for held in books.renamed.get((missing.file.topic, missing.tag), ())
            ) or not subtract((one.start, one.end), beside)
            account.problems.append(_Problem((one.start, one.end), why, group, mend=None if known else "fill"))
    for group, offsets in (committed or {}).items():
        _judge_offsets(lake.last(group), group, offsets, books, note)
    rows: list[VerifyRow] = []
    for key in sorted(books.accounts, key=lambda key: (key.topic, key.partition, key.tag or "")):
        rows += _rows(key, books.accounts[key], lake.exact, is_earlier=books.is_of_earlier_log(key.topic, key.tag))
    return rows + books.strangers


def _read_books(lake: Lake) -> _Books:
    books, holdings = _Books(), Holdings(lake.exact)
    for group in lake.groups():
        with contextlib.suppress(DamagedDocumentError):  # told of below
            books.lasts.append(lake.last(group))
        claims: dict[tuple[str, str | None], TopicCoverage] = {}
        for run in lake.runs(group):
            try:
                found = decided_run(lake, group, run)
            except DamagedDocumentError as error:
                books.strangers.append(VerifyRow(*_NOWHERE, error.message, group=group, mend="readopt"))
                continue
            if found is not None:
                _enter_run(books, holdings, group, *found, lake.exact)
                coverage = lake.settled_coverage(group, run) if found[1] else found[0].coverage
                claims |= {(topic, known.identity.tag): known for topic, known in coverage.items()}
        for (topic, tag), known in claims.items():
            for number, intervals in known.partitions.items():
                books.account(Incarnation(topic, number, tag)).claimed.setdefault(group, []).extend(intervals)
    books.files = holdings.files
    for live in holdings.files.values():
        for one in live.file.slices:
            books.account(Incarnation(live.file.topic, one.partition, live.tag)).rows += one.rows
    return books


def _enter_run(
    books: _Books, holdings: Holdings, group: str, manifest: Manifest, withdrawn: set[TopicPartition], exact: Exact
) -> None:
    holdings.add(manifest, withdrawn)
    tags = tags_of(manifest)
    slices = slices_held(manifest.parts, manifest.files)
    for part, held in zip(manifest.parts, slices, strict=True):
        if part.plan.partition not in withdrawn:
            key = Incarnation(*part.plan.partition, tags.get(part.plan.partition.topic))
            account = books.account(key)
            _enter(account, group, manifest.run, part, sum(one.rows for _, one in held))
            if is_among_others(part):  # for the rest others account, and in folders of times do so between its messages
                known = [*account.again, *(interval for some in account.by_group.values() for interval in some)]
                account.again += held_again(part, held, known, timed=manifest.layout.timed, exact=exact)


def _enter(account: _Account, group: str, run: str, part: ManifestPart, rows: int) -> None:
    interval = (part.plan.start, part.end)
    account.skipped += [(gap.start, gap.end) for gap in part.plan.skipped]
    if not is_among_others(part):
        account.by_group.setdefault(group, []).append(interval)
    if not part.balanced or rows != part.rows + part.undecodable:
        account.problems.append(_Problem(interval, f"run {run} does not account for every offset", group))
    if unexplained := part.gaps.get("unexplained"):
        why = f"run {run} found {unexplained} offsets missing, and no reason: it recorded that, and nothing fills them"
        account.problems.append(_Problem(interval, why, group))


def _judge_stranger(lake: Lake, name: str) -> tuple[VerifyRow, Footer | None]:
    """A file that no export has named so, and that readers of the lake take for data, or stumble over."""
    footer: Footer | None = None
    with contextlib.suppress(UnreadableFileError):
        footer = read_footer(lake.store, name)
    if footer is None or "topic" not in footer.told or not footer.slices:
        why = "is in no run's manifest, and readers take it for data"
        return VerifyRow(*_NOWHERE, f"{name} {why}", mend="move"), None
    told, first = footer.told, footer.slices[0]
    why = f"holds what run {told.get('run', '')} wrote, and is not the file of its manifest: readers count it, too"
    where = (told["topic"], first.partition, first.start, first.end)
    return VerifyRow(*where, *_NO_NUMBERS, f"{name} {why}", mend="move"), footer


def _judge_file(books: _Books, file: Published, look: Look, calendars: dict[Layout, Calendar]) -> None:
    told = file.told
    known = books.files.pop(file.name, None)
    slices = known.file.slices if known else look.footer.slices if look.footer else ()
    slices = slices or (Slice(told.partition, told.start, told.end, 0),)
    folder = file.name.rpartition("/")[0]
    for one in slices:
        account = books.account(Incarnation(told.topic, one.partition, told.tag))
        account.folders.setdefault(folder, []).append((one.start, one.end))
    for number in {one.partition for one in slices}:
        books.account(Incarnation(told.topic, number, told.tag)).seen += 1
    if known is None and look.footer is not None:
        _enter_unknown(books, file, look.footer, slices)
    account = books.account(Incarnation(told.topic, slices[0].partition, told.tag))
    interval = (slices[0].start, slices[0].end)
    problems = wrong_with(file, look, known)
    if known is None:
        footer = look.footer
        if problems:
            books.add_renamed(footer)
        run = "" if footer is None else footer.told.get("run", "")
        if footer is not None and _is_numbered(footer.run):
            can = not problems and decode_log(footer.told.get("log", "")) is not None
            why = f"{file.name} is in no run's manifest (it says: {run})"
            mend: Mend = "adopt" if can else "move"
            account.problems.append(_Problem(interval, why, footer.told.get("group") if can else None, mend=mend))
            for one in slices if can else ():
                key = Incarnation(told.topic, one.partition, told.tag)
                books.account(key).orphaned.append((file.name, one))
        account.problems += [_Problem(interval, f"{file.name}{why}", mend="move") for why in problems]
        return
    if look.footer is not None and known.layout.timed:
        calendar = calendars.get(known.layout) or calendars.setdefault(known.layout, known.layout.calendar())
        problems += judge_times(look.footer, known.layout, calendar, file.name)
    mend = "move" if books.is_of_earlier_log(told.topic, told.tag) else "refill"
    account.problems += [
        _Problem(interval, f"{file.name}{why}", known.group, mend=mend, held=slices) for why in problems
    ]


def _enter_unknown(books: _Books, file: Published, footer: Footer, slices: tuple[Slice, ...]) -> None:
    """A file from before runs left manifests stands for itself."""
    if footer.run and not _is_numbered(footer.run):
        account = books.account(Incarnation(file.told.topic, slices[0].partition, file.told.tag))
        account.by_group.setdefault(footer.told.get("group", ""), []).append((slices[0].start, slices[0].end))
        account.rows += footer.metadata.num_rows


def _is_numbered(run: str) -> bool:
    return run.partition("-")[0].isdecimal() and run.count("-") == 1


def _judge_offsets(
    last: LastRun, group: str, offsets: Mapping[TopicPartition, int | None], books: _Books, note: Callable[[str], None]
) -> None:
    """Where a group stands elsewhere than its exports end, or those of a group that has gone on from there. Ahead of a
    joined one it is as it should be: its other members have read what follows."""
    for topic, coverage in last.coverage.items():
        for number, covered in coverage.partitions.items():
            if not covered:
                continue
            offset, end = offsets.get(TopicPartition(topic, number)), covered[-1][1]
            whole = books.covered(topic, number, coverage.identity)
            if any(offset == high for _, high in (*covered, *whole)):
                continue
            if offset is None and any(low <= end < high for low, high in whole):
                continue
            account = books.account(Incarnation(topic, number, coverage.identity.tag))
            if last.joined and offset is not None and offset > end:
                note(
                    f"group {group} stands at {offset} of {topic}-{number}, exported up to {end}: its last export was "
                    "joined, and other members have read what lies between"
                )
                continue
            where = "has no offset" if offset is None else f"stands at {offset}"
            low, high = sorted((end if offset is None else offset, end))
            ahead = offset is not None and offset > end
            why = f"group {group} {where}, exported up to {end}"
            account.standing.append(_Problem((low, high), why, group, "ahead" if ahead else "behind"))


def _beside(pieces: list[Interval], account: _Account, exact: Exact) -> list[Interval]:
    """What of ``pieces`` whole files that no manifest names do not hold; only those about them are looked into."""
    near = union(pieces)
    about = [(name, one) for name, one in account.orphaned if subtract((one.start, one.end), near) != [one[1:3]]]
    return difference(pieces, [held for name, one in about for held in offsets_of(name, one, exact)])


def _together(pieces: list[Interval], account: _Account) -> Iterator[tuple[Interval, str]]:
    """Put together where between them are messages of other folders alone, and what is to be said then."""
    if not any("/date=" in folder for folder in account.folders):
        yield from ((piece, "") for piece in union(pieces))
        return
    runs = (interval for some in account.by_group.values() for interval in some)
    for (low, high), count in hulls(pieces, [*runs, *account.skipped]):
        yield (low, high), "" if count == high - low else f"{counted(count, 'offset')} among these "


def _rows(key: Incarnation, account: _Account, exact: Exact, *, is_earlier: bool) -> Iterator[VerifyRow]:
    everything = [interval for found in account.by_group.values() for interval in found]
    accounted = union([*everything, *account.again])
    known = union([*accounted, *account.skipped])
    problems = list(account.problems)
    for folder, held in account.folders.items():
        problems += [_Problem(twice, f"in two files of {folder}", mend="undo") for twice in overlaps(held)]
    twice = overlaps(interval for interval in everything if interval[0] < interval[1])
    problems += [_Problem(interval, "exported twice", mend="undo") for interval in twice]
    # Of all groups together: a lake's reader does not ask who exported what.
    whose = f" of group {next(iter(account.by_group))}" if len(account.by_group) == 1 else ""
    found = [*everything, *account.skipped, *account.again]
    for claimant, intervals in account.claimed.items():
        for claim in intervals:
            pieces = _beside(subtract(claim, found), account, exact)
            found += pieces
            for lacking, few in _together(pieces, account):
                why = f"{few}in no run, though the last manifest of group {claimant} accounts for it: its run is gone"
                if is_earlier:
                    why, who = f"{why}, and the topic was made again: only a copy brings it back", None
                else:
                    who = claimant
                problems.append(_Problem(lacking, why, who, mend="fill"))
    unheld = holes(found)
    unfilled = _beside(unheld, account, exact)
    for pieces in (unfilled, difference(unheld, unfilled)):
        for part, few in _together(pieces, account):
            why = f"{few}in no run{whose}"
            if is_earlier:
                problems.append(_Problem(part, f"{why}, and the topic was made again: nothing can fill it"))
            else:
                who = _who_fills(account.by_group, part) if pieces is unfilled else None
                problems.append(_Problem(part, why, who, mend="fill"))
    low, high = (known[0][0], known[-1][1]) if known else (0, 0)
    # What was passed over, and filled since, is not skipped any more.
    skipped = sum(end - start for gap in union(account.skipped) for start, end in subtract(gap, accounted))
    if accounted:
        gaps = max(0, sum(end - start for start, end in accounted) - account.rows)  # fewer where some are there twice
        yield VerifyRow(key.topic, key.partition, low, high, account.rows, gaps, skipped, account.seen, None)
    problems.sort(key=lambda problem: (problem.interval, problem.why))
    for (start, end), why, group, stands, mend, ranges in problems + account.standing:
        yield VerifyRow(key.topic, key.partition, start, end, *_NO_NUMBERS, why, stands, group, mend, ranges)


def _who_fills(by_group: Mapping[str, list[Interval]], hole: Interval) -> str | None:
    """Whose exports are to go on through a hole: the group's that ends where it begins."""
    before = (group for group, found in by_group.items() if any(end == hole[0] for _, end in found))
    return next(before, next(iter(by_group), None))
