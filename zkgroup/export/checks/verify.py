"""Is everything there, once? Compares the records of the log with the files of a destination, and names the commands
that mend what is found.

Of a file with one range nothing is read but its footer: what it says of itself, how many rows it has, and the offsets
and times of each row group. Of one with several also the offsets of its rows, and of those that others have put into a
table in place of the export's. Values are not read. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import RefusedError, Remedy, ZkgroupError
from zkgroup.export.destination.coverage import (
    ExpectedFile,
    ExpectedFiles,
    lost_partitions,
    read_coverage,
    without_rolled_back,
)
from zkgroup.export.destination.file_check import FileContent, check_file, check_times, compare_rewritten, read_file
from zkgroup.export.destination.run_log import LAYOUT, TOPICS, Destination
from zkgroup.export.destination.table_format import CommittedTables, TableFormat, open_format
from zkgroup.export.destination.topic_owners import Owner, read_owners
from zkgroup.export.model.accounting import Interval, gaps_between, overlaps, subtract, union
from zkgroup.export.model.address import Address
from zkgroup.export.model.layout import Calendar, Layout, is_read
from zkgroup.export.model.plan_types import LostRange
from zkgroup.export.model.run_record import DamagedDocumentError, RunRecord, TopicIdentity, damaged
from zkgroup.export.planning import group_state
from zkgroup.export.planning.export_request import PARTITIONS, backfill_options, export_command
from zkgroup.export.planning.group_state import GroupState
from zkgroup.export.stores.store import map_parallel
from zkgroup.protocol.names import TopicPartition
from zkgroup.text import Command, counted

#: What mends a problem: a backfill of its offsets, an answer to ``--on-mismatch``, an export that finishes its run, or
#: a person: in a file that can be written again, in others, or in a table.
Mend = Literal["backfill", "mismatch", "export", "file", "person", "table"]


@dataclass(frozen=True, slots=True)
class VerifyRow:
    """A partition of a log: the offsets ``[start, end)`` that records account for, as ``rows`` and ``undecodable`` ones
    in ``files``, ``gaps`` (offsets that are no messages) and ``skipped`` (passed over); or a ``problem`` with what
    ``group`` may do."""

    topic: str | None
    partition: int | None
    start: int | None
    end: int | None
    rows: int | None = None
    undecodable: int | None = None
    gaps: int | None = None
    skipped: int | None = None
    files: int | None = None
    problem: str | None = None
    group: str | None = None
    mend: Mend | None = None


class _LogKey(NamedTuple):
    """A partition of one log of a topic."""

    topic: str
    partition: int
    tag: str


@dataclass
class _Account:
    """The records of a partition, and its problems. ``rows``: with the ``undecodable`` ones."""

    group: str
    read: list[Interval] = field(default_factory=list)
    skipped: list[Interval] = field(default_factory=list)
    rows: int = 0
    undecodable: int = 0
    gaps: int = 0
    files: int = 0
    problems: list[VerifyRow] = field(default_factory=list)


NO_PLACE: Final = (None, None, None, None)


def verify(
    destination: Destination,
    committed: Mapping[str, Mapping[TopicPartition, int | None]] | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> list[VerifyRow]:
    """One row for each partition, then its problems, then those of no partition. ``committed``: what groups have
    committed, where that is to be compared, too. ``note`` receives observations that are no problem."""
    rows: list[VerifyRow] = []
    accounts: dict[_LogKey, _Account] = {}
    expected = ExpectedFiles()
    newest: dict[str, RunRecord] = {}
    layouts: dict[str, Layout] = {}
    layout = None
    try:
        layout = destination.layout()
        if layout is None and destination.groups():
            raise damaged(f"{destination}/{LAYOUT}", "is missing")
    except ZkgroupError as error:
        rows.append(VerifyRow(*NO_PLACE, problem=str(error), mend="person"))
    tables = open_format(destination, layout)
    unfinished: set[str] = set()
    for group in destination.groups():
        records = _records(destination, group, rows)
        for record in without_rolled_back(list(records)) if isinstance(tables, CommittedTables) else records:
            newest[group] = record
            layouts[record.run] = record.layout
            expected.add(record)
            _enter(accounts, record)
        for run in destination.leftover_runs(group):
            if destination.is_logged(group, run):
                unfinished.add(run)
            else:
                note(f"{destination.work(group, run)} is of a run that is under way, or was killed: see --status")
    owners = read_owners(destination, sorted({topic for record in newest.values() for topic in record.coverage}))
    for topic, some in owners.items():
        if all(owner.is_former for owner in some):
            why = damaged(f"{destination}/{TOPICS}/{topic}", "has no owner any more")
            rows.append(VerifyRow(*NO_PLACE, problem=str(why), mend="person"))
    unnamed = "is in no record: restore the record, or move it out of the destination"
    if any(row.group is not None for row in rows):
        unnamed = "is in no record that can be read: restore the damaged one first"
    tags = _newest_tags(newest.values())
    finished = [record for record in newest.values() if record.run not in unfinished]
    _drop_rolled_back(destination, tables, finished, expected, accounts, rows)
    rows += _check_files(destination, tables, expected, layouts, unfinished, accounts, tags, unnamed, note)
    for group, offsets in (committed or {}).items():
        if group in newest:
            _compare_offsets(accounts, newest[group], offsets, note, is_finished=newest[group].run not in unfinished)
    partitions = [_of_owner(row, owners) for log in sorted(accounts) for row in _rows_of(log, accounts[log])]
    return partitions + rows


def _of_owner(row: VerifyRow, owners: Mapping[str, Sequence[Owner]]) -> VerifyRow:
    """A row whose problem the group mends that owns the topic now: another one may not export it."""
    if row.mend != "backfill":
        return row
    return replace(row, group=next((one.group for one in owners[str(row.topic)] if not one.is_former), row.group))


def read_committed(
    registry: Registry, group: str, newest: RunRecord, warn: Callable[[str], None]
) -> dict[TopicPartition, int | None]:
    """What a group has committed of the partitions that it has exported, as far as their topics are the same logs.
    Raises ``RefusedError`` where the record is of another cluster, ``MalformedZnodeError`` for an offset that is
    none."""
    state = GroupState(registry, group, warn)
    if newest.cluster not in state.clusters():
        raise RefusedError(
            f"the exports of group {group} are of another cluster ({newest.cluster})", "name that cluster"
        )
    identities = state.identities(newest.coverage)
    partitions = [
        TopicPartition(topic, number)
        for topic, coverage in newest.coverage.items()
        if topic in identities and identities[topic].is_same(coverage.identity)
        for number in coverage.ends
    ]
    found = group_state.read_committed(registry, group, partitions)
    return {one: found[one].offset if one in found else None for one in partitions}


def _records(destination: Destination, group: str, rows: list[VerifyRow]) -> Iterator[RunRecord]:
    """The records of a group that can be read; ``rows`` gets what is wrong with the others."""
    try:
        destination.entries(group)
    except (DamagedDocumentError, RefusedError) as error:
        rows.append(VerifyRow(*NO_PLACE, problem=str(error), group=group, mend="person"))
    for entry in destination.entries(group, is_checked=False):
        try:
            yield destination.record(group, entry)
        except DamagedDocumentError as error:
            rows.append(VerifyRow(*NO_PLACE, problem=str(error), group=group, mend="person"))


def _newest_tags(records: Iterable[RunRecord]) -> dict[str, str | None]:
    """The mark of each topic's latest log."""
    found: dict[str, TopicIdentity] = {}
    for record in records:
        for topic, coverage in record.coverage.items():
            known = found.get(topic)
            if known is None or known.czxid < coverage.identity.czxid:
                found[topic] = coverage.identity
    return {topic: identity.tag for topic, identity in found.items()}


def _enter(accounts: dict[_LogKey, _Account], record: RunRecord) -> None:
    for part in record.partitions:
        key = _LogKey(*part.partition, record.topics[part.partition.topic].tag or "")
        account = accounts.setdefault(key, _Account(record.group))
        account.skipped += [(gap.start, gap.end) for gap in part.skipped]
        if part.again:  # what was lost, once more, as far as the log still had it
            fewer = sum(lost.rows for lost in part.again) - part.rows - part.undecodable
            account.rows -= fewer
            account.gaps += fewer
            continue
        account.group = record.group
        account.read.append((part.start, part.end))
        account.rows += part.rows + part.undecodable
        account.undecodable += part.undecodable
        account.gaps += sum(part.gaps.values())
        if unexplained := part.gaps.get("unexplained"):
            why = f"{counted(unexplained, 'offset')} of these were missing from the log, and nothing explains it"
            account.problems.append(VerifyRow(*part.partition, part.start, part.end, problem=why, mend=None))


def _drop_rolled_back(
    destination: Destination,
    tables: TableFormat,
    newest: Iterable[RunRecord],
    expected: ExpectedFiles,
    accounts: dict[_LogKey, _Account],
    rows: list[VerifyRow],
) -> None:
    """Find tables that have less than the records say: their partitions have a problem, and their files none."""
    for record in newest if isinstance(tables, CommittedTables) else ():
        for topic, known in record.coverage.items():
            try:
                now, _ = read_coverage(destination, tables, record, topic)
            except (DamagedDocumentError, RefusedError) as error:
                rows.append(VerifyRow(*NO_PLACE, problem=str(error), group=record.group, mend="person"))
                continue
            for partition in lost_partitions(topic, known, now):
                low, high = (one.ends.get(partition.partition, 0) for one in (now, known))
                account = accounts.setdefault(_LogKey(*partition, known.identity.tag or ""), _Account(record.group))
                why = "the table was rolled back, and does not have all of these"
                account.problems.append(
                    VerifyRow(*partition, low, high, problem=why, group=record.group, mend="mismatch")
                )
                expected.files = {name: one for name, one in expected.files.items() if one.file.topic != topic}


def _check_files(
    destination: Destination,
    tables: TableFormat,
    expected: ExpectedFiles,
    layouts: Mapping[str, Layout],
    unfinished: Collection[str],
    accounts: dict[_LogKey, _Account],
    tags: Mapping[str, str | None],
    unnamed: str,
    note: Callable[[str], None],
) -> list[VerifyRow]:
    """Check all files; what is wrong with those that no record names (``unnamed``)."""
    unrecorded: list[VerifyRow] = []
    there: set[str] = set()
    calendars: dict[Layout, Calendar] = {}
    rewritten = tables if isinstance(tables, CommittedTables) else None
    topics = sorted({one.file.topic for one in expected.files.values()}) if rewritten else None
    files = list(tables.files(topics))
    known = [file for file in files if file.name in expected.files]
    contents = map_parallel(lambda file: read_file(destination, file.name), known)
    for file, content in zip(known, contents, strict=True):
        there.add(file.name)
        one = expected.files[file.name]
        again = not rewritten and one.run not in unfinished and tags.get(one.file.topic) == one.tag
        defects = _problems_of(file.name, file.size, content, one, layouts[one.run], calendars)
        _account_file(accounts, one, defects, "file" if again else "person")
    others = [file.name for file in files if file.name not in expected.files and is_read(file.name)]
    if not rewritten:
        unrecorded += [VerifyRow(*NO_PLACE, problem=f"{name} {unnamed}", mend="person") for name in others]
    replaced: dict[TopicPartition, list[LostRange]] = {}
    for one, partition, lost in expected.missing(there):
        account = accounts.setdefault(_LogKey(*partition, one.tag or ""), _Account(one.group))
        mend: Mend | None = "backfill"
        why = f"{lost.file} of run {one.run} is missing"
        if rewritten and one.run not in unfinished:
            replaced.setdefault(partition, []).append(lost)
            continue
        if one.run in unfinished:
            why, mend = f"{why}: the run is not finished", "export"
        elif tags.get(one.file.topic) != one.tag:
            why, mend = f"{why}, of an earlier log of the topic: only a copy brings it back", "person"
        account.problems.append(VerifyRow(*partition, lost.start, lost.end, problem=why, group=one.group, mend=mend))
    for topic in topics or ():
        found = rewritten.other_offsets(topic, expected.files) if rewritten else {}
        for number in sorted({*found, *(one.partition for one in replaced if one.topic == topic)}):
            partition = TopicPartition(topic, number)
            ranges = replaced.get(partition, ())
            wrong = compare_rewritten(ranges, found.get(number), is_recreated=tags.get(topic) is not None)
            if wrong is not None:
                account = accounts.setdefault(_LogKey(*partition, tags.get(topic) or ""), _Account(""))
                ends = [edge for one in ranges for edge in (one.start, one.end)] or [0]
                account.problems.append(VerifyRow(*partition, min(ends), max(ends), problem=wrong, mend="table"))
    return unrecorded


def _problems_of(
    name: str, size: int, content: FileContent, one: ExpectedFile, layout: Layout, calendars: dict[Layout, Calendar]
) -> list[str]:
    problems = check_file(size, content, one)
    if not problems and content.footer is not None and layout.timed:
        if layout not in calendars:
            calendars[layout] = layout.calendar()
        problems += check_times(content.footer, layout, calendars[layout], name)
    return [f"{name}{why}" for why in problems]


def _account_file(accounts: dict[_LogKey, _Account], one: ExpectedFile, problems: list[str], mend: Mend) -> None:
    for number, piece in enumerate(one.file.ranges):
        partition = TopicPartition(one.file.topic, piece.partition)
        account = accounts.setdefault(_LogKey(*partition, one.tag or ""), _Account(one.group))
        account.files += 1
        for why in problems if number == 0 else ():
            account.problems.append(
                VerifyRow(*partition, piece.start, piece.end, problem=why, group=one.group, mend=mend)
            )


def _compare_offsets(
    accounts: dict[_LogKey, _Account],
    newest: RunRecord,
    offsets: Mapping[TopicPartition, int | None],
    note: Callable[[str], None],
    *,
    is_finished: bool,
) -> None:
    """Compare a group's offsets with where its exports end."""
    for partition, offset in offsets.items():
        coverage = newest.coverage[partition.topic]
        end = coverage.ends[partition.partition]
        if offset == end:
            continue
        if newest.joined and offset is not None and offset > end:
            note(
                f"{partition}: the group is at {offset}, ahead of its export, which shared the group with other members"
            )
            continue
        where = "has no offset" if offset is None else f"is at {offset}"
        account = accounts.setdefault(_LogKey(*partition, coverage.identity.tag or ""), _Account(newest.group))
        low, high = sorted((end, end if offset is None else offset))
        why = f"group {newest.group} {where}, and its exports end at {end}"
        mend: Mend = "mismatch" if is_finished else "export"
        account.problems.append(VerifyRow(*partition, low, high, problem=why, group=newest.group, mend=mend))


def _rows_of(log: _LogKey, account: _Account) -> Iterator[VerifyRow]:
    read = union(account.read)
    skipped = sum(end - start for gap in union(account.skipped) for start, end in subtract(gap, read))
    known = union([*read, *account.skipped])
    if known:
        low, high = known[0][0], known[-1][1]
        rows, undecodable = account.rows - account.undecodable, account.undecodable
        yield VerifyRow(log.topic, log.partition, low, high, rows, undecodable, account.gaps, skipped, account.files)
    problems = list(account.problems)
    for low, high in overlaps(one for one in account.read if one[0] < one[1]):
        problems.append(VerifyRow(log.topic, log.partition, low, high, problem="exported twice", mend="person"))
    for low, high in gaps_between(known):
        problems.append(
            VerifyRow(log.topic, log.partition, low, high, problem="in no record", group=account.group, mend="backfill")
        )
    yield from sorted(problems, key=lambda row: (row.start or 0, row.end or 0, str(row.problem)))


_BY_HAND: Final[Mapping[Mend | None, str]] = {
    "person": "restore what was changed from a copy, then move files that are in no record out of the destination",
    "file": "let this user read the files; restore damaged ones from a copy; without one, move"
    " them out of the destination, and --verify prints the command that writes them again",
    "table": "restore the table to the version before that change, unless the change was intended",
}
_COMMANDS: Final = 3


def remedy_for(problems: Iterable[VerifyRow], address: Address, schemas: Sequence[str] = ()) -> Remedy:
    """What is to be done, in the order in which it has to be: by hand, then commands. ``schemas``: the options that an
    export there needs."""
    fills: dict[tuple[str, str], dict[TopicPartition, list[Interval]]] = {}
    words: list[str] = []
    continuing: dict[Command, None] = {}
    finishing: dict[Command, None] = {}
    for row in problems:
        if (by_hand := _BY_HAND.get(row.mend)) and by_hand not in words:
            words.insert(0, by_hand)
        if row.group is None or row.topic is None or row.partition is None or row.start is None or row.end is None:
            continue
        if row.mend == "backfill":
            ranges = fills.setdefault((row.group, row.topic), {})
            ranges.setdefault(TopicPartition(row.topic, row.partition), []).append((row.start, row.end))
        elif row.mend == "mismatch":
            continuing[export_command(address, "--on-mismatch", "lake", *schemas, group=row.group)] = None
        elif row.mend == "export":
            finishing[export_command(address, group=row.group)] = None
    commands = [
        export_command(
            address, *backfill_options(dict(sorted(ranges.items())[:PARTITIONS])), *schemas, group=group, topics=[topic]
        )
        for (group, topic), partitions in sorted(fills.items())
        for ranges in _separate(partitions)
    ]
    if finishing:
        words.append("finish the run")
    if continuing:
        words.append("continue where the exports end")
    if commands:
        more = f" (the first {_COMMANDS} commands of {len(commands)})" if len(commands) > _COMMANDS else ""
        words.append(f"write what is missing again{more}")
    return Remedy("; ".join(words), *finishing, *continuing, *commands[:_COMMANDS])


def _separate(partitions: Mapping[TopicPartition, Iterable[Interval]]) -> Iterator[dict[TopicPartition, Interval]]:
    """One interval of each partition at a time: what lies between two may have been left out knowingly."""
    merged = {partition: union(intervals) for partition, intervals in partitions.items()}
    for number in range(max(map(len, merged.values()), default=0)):
        yield {partition: found[number] for partition, found in merged.items() if number < len(found)}
