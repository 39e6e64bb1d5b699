"""Is everything there, once? The manifests of all runs, the names and footers of all files, held against each other.

Of a file with one range nothing is read but its footer: what it says of itself, how many rows it has, and the offsets
and times of each row group. Of one with several, also the offsets of its rows. That is enough to see what is missing,
doubled, foreign or changed, for every offset that was ever exported: a message has one folder, files of one folder have
no offset in common, and as many rows are there as offsets are accounted for by rows.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, NamedTuple, cast

from zkgroup.errors import ZkgroupError
from zkgroup.export.documents import DamagedDocumentError
from zkgroup.export.footer import Footer, UnreadableFileError, count_rows, read_footer
from zkgroup.export.history import decided_run
from zkgroup.export.holdings import Holdings, Incarnation, LiveFile, tags_of
from zkgroup.export.intervals import Interval, holes, overlaps, subtract, union
from zkgroup.export.lake import Lake, LastRun, Published
from zkgroup.export.layout import Calendar, Layout, is_read, read_name
from zkgroup.export.layout_of_files import layout_of_files
from zkgroup.export.rundata import Manifest, ManifestPart, rows_held
from zkgroup.export.words import Slice
from zkgroup.protocol.names import TopicPartition

# Files that are looked into at a time: in an object store each look is a wait.
_LOOKS: Final = 8


@dataclass(frozen=True, slots=True)
class VerifyRow:
    """A partition as a whole, without a ``problem``; or a problem with offsets ``[start, end)`` of it, or with a file
    or a run of which nobody knows what it holds.

    ``gaps``: offsets that are accounted for and are no messages, ``skipped``: those left out knowingly. ``stands``: the
    problem is the group, which stands ahead of where its exports end, or behind it (or nowhere). ``group``: whose
    exports have the problem, where that is known. ``gone``: something is missing, and nothing is in the way. ``held``:
    the ranges of a file that is in the way, where they are known: they are to be exported again. ``listed``: whether a
    manifest tells of them once that file is gone.
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
    gone: bool = False
    held: tuple[Slice, ...] = ()
    listed: bool = True


_NO_NUMBERS: Final = (None, None, None, None)
_NOWHERE: Final = (None, None, None, None, *_NO_NUMBERS)


class _Problem(NamedTuple):
    """With offsets ``interval``; the rest is as in ``VerifyRow``."""

    interval: Interval
    why: str
    group: str | None = None
    stands: Literal["ahead", "behind"] | None = None
    gone: bool = False
    held: tuple[Slice, ...] = ()
    listed: bool = True


@dataclass
class _Account:
    """What manifests tell of a partition, and what its files do. ``folders``: the offsets of each."""

    by_group: dict[str, list[Interval]] = field(default_factory=dict)
    skipped: list[Interval] = field(default_factory=list)
    rows: int = 0
    gaps: int = 0
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
        self.current: set[tuple[str, str | None]] = set()  # topics, with the mark of the log that groups read last

    def is_of_earlier_log(self, topic: str, tag: str | None) -> bool:
        """Whether the topic was made again since, and exported."""
        return (topic, tag) not in self.current and any(name == topic for name, _ in self.current)

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
    with ThreadPoolExecutor(_LOOKS, thread_name_prefix="zkgroup-verify") as pool:
        for files in lake.contents():
            named = [(file, read_name(file.name)) for file in files]
            published = [Published(file.name, file.size, told) for file, told in named if told is not None]
            for one, look in pool.map(lambda file: (file, _look(lake, file)), published):
                _judge_file(books, one, look, calendars)
            strangers = [file.name for file, told in named if told is None and is_read(file.name)]
            books.strangers += pool.map(partial(_judge_stranger, lake), strangers)
    for name, missing in books.files.items():
        why, group = f"{name} of run {missing.run} is missing", cast("str | None", missing.group)
        if books.is_of_earlier_log(missing.file.topic, missing.tag):
            why, group = f"{why}, and the topic was made again: only a copy brings it back", None
        for one in missing.file.slices:
            key = Incarnation(missing.file.topic, one.partition, missing.tag)
            books.account(key).problems.append(_Problem((one.start, one.end), why, group, gone=True))
    for group, offsets in (committed or {}).items():
        _judge_offsets(lake.last(group), group, offsets, books, note)
    rows: list[VerifyRow] = []
    for key in sorted(books.accounts, key=lambda key: (key.topic, key.partition, key.tag or "")):
        rows += _rows(key, books.accounts[key])
    return rows + books.strangers


def orphaned_layout(lake: Lake) -> Layout | None:
    """The layout that files tell where no manifest does any more."""
    for group in lake.groups():
        for run in lake.runs(group):
            with contextlib.suppress(DamagedDocumentError):
                if decided_run(lake, group, run) is not None:
                    return None
    with contextlib.suppress(ZkgroupError):  # it cannot be read there either
        return layout_of_files(lake.store, must_tell=False)
    return None


def _read_books(lake: Lake) -> _Books:
    books, holdings = _Books(), Holdings()
    for group in lake.groups():
        with contextlib.suppress(DamagedDocumentError):  # told of below
            books.current |= {(topic, known.identity.tag) for topic, known in lake.last(group).coverage.items()}
        for run in lake.runs(group):
            try:
                found = decided_run(lake, group, run)
            except DamagedDocumentError as error:
                books.strangers.append(VerifyRow(*_NOWHERE, error.message, group=group))
                continue
            if found is not None:
                _enter_run(books, holdings, group, *found)
    books.files = holdings.files
    return books


def _enter_run(
    books: _Books, holdings: Holdings, group: str, manifest: Manifest, withdrawn: set[TopicPartition]
) -> None:
    holdings.add(manifest, withdrawn)
    tags = tags_of(manifest)
    held = rows_held(manifest.parts, manifest.files)
    for part, rows in zip(manifest.parts, held, strict=True):
        if part.plan.partition not in withdrawn:
            key = Incarnation(*part.plan.partition, tags.get(part.plan.partition.topic))
            _enter(books.account(key), group, manifest.run, part, rows)


def _enter(account: _Account, group: str, run: str, part: ManifestPart, rows: int) -> None:
    interval = (part.plan.start, part.end)
    account.skipped += [(gap.start, gap.end) for gap in part.plan.skipped]
    if part.plan.again:  # the run that wrote it first accounts for its offsets
        lost = sum(one.rows for one in part.plan.again)
        account.rows += rows - lost
        account.gaps += lost - rows
    else:
        account.by_group.setdefault(group, []).append(interval)
        account.rows += rows
        account.gaps += sum(part.gaps.values())
    if not part.balanced or rows != part.rows + part.undecodable:
        account.problems.append(_Problem(interval, f"run {run} does not account for every offset", group))
    if unexplained := part.gaps.get("unexplained"):
        why = f"run {run} found {unexplained} offsets missing, and no reason"
        account.problems.append(_Problem(interval, why, group))


class _Look(NamedTuple):
    """What a file shows: its footer, or why there is none; and what is wrong with its rows, if they were read."""

    footer: Footer | None
    why: str | None


def _look(lake: Lake, file: Published) -> _Look:
    try:
        footer = read_footer(lake.store, file.name)
        wrong = None
        if len(footer.slices) > 1:
            partitioned = "/partition=" in file.name
            wrong = count_rows(lake.store, file.name, footer.slices, partitioned=partitioned)
    except UnreadableFileError as error:
        return _Look(None, error.message.removeprefix(f"{lake.store.uri}/{file.name} "))
    return _Look(footer, wrong)


def _judge_stranger(lake: Lake, name: str) -> VerifyRow:
    """A file that no export has named so, and that readers of the lake take for data, or stumble over."""
    told: Mapping[str, str] = {}
    slices: tuple[Slice, ...] = ()
    try:
        footer = read_footer(lake.store, name)
        told, slices = footer.told, footer.slices
    except UnreadableFileError:
        pass
    if "topic" not in told or not slices:
        why = "is in no run's manifest, and readers take it for data"
        return VerifyRow(*_NOWHERE, f"{name} {why}")
    first = slices[0]
    why = f"holds what run {told.get('run', '')} wrote, and is not the file of its manifest: readers count it, too"
    where = (told["topic"], first.partition, first.start, first.end)
    return VerifyRow(*where, *_NO_NUMBERS, f"{name} {why}", None, told.get("group"), held=slices, listed=False)


def _judge_file(books: _Books, file: Published, look: _Look, calendars: dict[Layout, Calendar]) -> None:
    told = file.told
    known = books.files.pop(file.name, None)
    slices = known.file.slices if known else look.footer.slices if look.footer else ()
    slices = slices or (Slice(told.partition, told.start, told.end, 0),)
    folder = file.name.rpartition("/")[0]
    for one in slices:
        account = books.account(Incarnation(told.topic, one.partition, told.tag))
        account.seen += 1
        account.folders.setdefault(folder, []).append((one.start, one.end))
    if known is None and look.footer is not None:
        _enter_unknown(books, file, look.footer, slices)
    account = books.account(Incarnation(told.topic, slices[0].partition, told.tag))
    interval = (slices[0].start, slices[0].end)
    problems = _problems(file, look, known)
    if known is not None and look.footer is not None and known.layout.timed:
        calendar = calendars.get(known.layout) or calendars.setdefault(known.layout, known.layout.calendar())
        problems += _judge_times(look.footer, known.layout, calendar, file.name)
    group = known.group if known is not None else look.footer.told.get("group") if look.footer is not None else None
    account.problems += [
        _Problem(interval, f"{file.name}{why}", group, held=slices, listed=known is not None) for why in problems
    ]


def _enter_unknown(books: _Books, file: Published, footer: Footer, slices: tuple[Slice, ...]) -> None:
    """A file from before runs left manifests stands for itself."""
    run = footer.told.get("run", "")
    if run and not _is_numbered(run):
        account = books.account(Incarnation(file.told.topic, slices[0].partition, file.told.tag))
        account.by_group.setdefault(footer.told.get("group", ""), []).append((slices[0].start, slices[0].end))
        account.rows += footer.metadata.num_rows
        account.gaps += slices[0].end - slices[0].start - footer.metadata.num_rows


def _problems(file: Published, look: _Look, known: LiveFile | None) -> list[str]:
    """What is wrong with a file, in words that follow its name."""
    if look.footer is None:
        return [f" {look.why}"]
    footer, problems = look.footer, list[str]()
    run, rows = footer.told.get("run", ""), footer.metadata.num_rows
    if known is None and not run:
        problems.append(" was not made by an export")
    elif known is None and _is_numbered(run):
        problems.append(f" is in no run's manifest (it says: {run})")
    elif known is not None:
        if file.size != known.file.bytes:
            problems.append(f" has {file.size} bytes, run {known.run} wrote {known.file.bytes}")
        if rows != known.file.rows:
            problems.append(f" has {rows} rows, run {known.run} wrote {known.file.rows}")
    expected = known.file.slices if known else (Slice(file.told.partition, file.told.start, file.told.end, rows),)
    said = [(one.partition, one.start, one.end) for one in footer.slices]
    topic = footer.told.get("topic")
    if (topic, said) != (file.told.topic, [(one.partition, one.start, one.end) for one in expected]) and (
        known is not None or not file.told.more
    ):
        what = ", ".join(f"{topic}-{partition} {start} to {end}" for partition, start, end in said[:3]) or "nothing"
        problems.append(f" says that it is {what}")
    if look.why is not None:
        problems.append(f": {look.why}")
    if len(footer.slices) <= 1:
        problems += [f": {why}" for why in _judge_groups(footer.metadata, (expected[0].start, expected[0].end))]
    return problems


def _is_numbered(run: str) -> bool:
    return run.rpartition("@")[2].partition("-")[0].isdecimal() and run.rpartition("@")[2].count("-") == 1


def _statistics(metadata: Any, column: str) -> Iterator[tuple[int, int, Any]]:
    """Of each row group: its number, its rows, and the column's statistics, or None."""
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        columns = (group.column(i) for i in range(group.num_columns))
        yield number, group.num_rows, next((c.statistics for c in columns if c.path_in_schema == column), None)


def _judge_groups(metadata: Any, interval: Interval) -> Iterator[str]:
    """What is wrong with the row groups' offsets: they rise, lie in the interval, and leave room for every row."""
    position = interval[0]
    for number, rows, found in _statistics(metadata, "offset"):
        ends = _ends(found)
        if ends is None:
            yield f"row group {number} does not tell its offsets"
            return
        if ends[0] < position or ends[1] >= interval[1] or ends[1] - ends[0] + 1 < rows:
            yield f"row group {number} has {rows} rows, offsets {ends[0]} to {ends[1]}, behind {position}"
        position = ends[1] + 1


def _judge_times(footer: Footer, layout: Layout, calendar: Calendar, name: str) -> list[str]:
    """Whether the rows are of the folder's day, or hour: its first and its last are."""
    try:
        period = layout.period_of_folder(name)
    except ValueError:
        return [" is in a folder of no day"]
    for number, rows, found in _statistics(footer.metadata, "timestamp"):
        ends = _ends(found)
        if ends is None:
            if period is None and (found is None or found.null_count in (None, rows)):
                continue
            return [f": row group {number} does not tell its times"]
        if any(calendar.period(end) != period for end in ends):
            first, last = map(_time, ends)
            return [f": row group {number} has times from {first} to {last}, which are not of this folder"]
    return []


def _ends(found: Any) -> tuple[int, int] | None:
    """The least and the largest value, as they are stored: offsets, or milliseconds since 1970. pyarrow's own would be
    a ``datetime``, which has no year after 9999."""
    if found is None or not found.has_min_max:
        return None
    low, high = found.min_raw, found.max_raw
    return (low, high) if isinstance(low, int) and isinstance(high, int) else None


def _time(ms: int) -> str:
    try:
        return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).isoformat(" ", "milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"


def _judge_offsets(
    last: LastRun, group: str, offsets: Mapping[TopicPartition, int | None], books: _Books, note: Callable[[str], None]
) -> None:
    """Where a group stands elsewhere than its exports end. Ahead of a joined one it is as it should be: its other
    members have read what follows."""
    for topic, coverage in last.coverage.items():
        for number, covered in coverage.partitions.items():
            if not covered:
                continue
            offset, end = offsets.get(TopicPartition(topic, number)), covered[-1][1]
            if offset == end or any(offset == high for _, high in covered):
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


def _rows(key: Incarnation, account: _Account) -> Iterator[VerifyRow]:
    everything = [interval for found in account.by_group.values() for interval in found]
    known = union([*everything, *account.skipped])
    problems = list(account.problems)
    for folder, held in account.folders.items():
        problems += [_Problem(twice, f"in two files of {folder}") for twice in overlaps(held)]
    problems += [_Problem(twice, "exported twice") for twice in overlaps(i for i in everything if i[0] < i[1])]
    # Of all groups together: a lake's reader does not ask who exported what.
    whose = f" of group {next(iter(account.by_group))}" if len(account.by_group) == 1 else ""
    for hole in holes([*everything, *account.skipped]):
        problems.append(_Problem(hole, f"in no run{whose}", _who_fills(account.by_group, hole), gone=True))
    low, high = (known[0][0], known[-1][1]) if known else (0, 0)
    # What was passed over, and filled since, is not skipped any more.
    skipped = sum(end - start for gap in union(account.skipped) for start, end in subtract(gap, everything))
    if everything:
        yield VerifyRow(key.topic, key.partition, low, high, account.rows, account.gaps, skipped, account.seen, None)
    problems.sort(key=lambda problem: (problem.interval, problem.why))
    for (start, end), why, group, stands, gone, ranges, listed in problems + account.standing:
        yield VerifyRow(
            key.topic, key.partition, start, end, *_NO_NUMBERS, why, stands, group, gone, ranges, listed
        )  # fmt: skip


def _who_fills(by_group: Mapping[str, list[Interval]], hole: Interval) -> str | None:
    """Whose exports are to go on through a hole: the group's that ends where it begins."""
    before = (group for group, found in by_group.items() if any(end == hole[0] for _, end in found))
    return next(before, next(iter(by_group), None))
