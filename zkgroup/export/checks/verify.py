"""Is everything there, once? Compares the records of the log with the files of a destination, and names the commands
that mend what is found.

Of a file nothing is read but its footer: what it says of itself, and how many rows it has; and the offsets of those
that others have put into a table in place of the export's. Values are not read. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import Notice, RefusedError, Remedy, ZkgroupError
from zkgroup.export.destination.coverage import (
    ExpectedFile,
    ExpectedFiles,
    lost_partitions,
    read_coverage,
    without_rolled_back,
)
from zkgroup.export.destination.file_check import check_file, compare_rewritten
from zkgroup.export.destination.run_log import LAYOUT, TOPICS, Destination, read_owners
from zkgroup.export.destination.table_format import CommittedTables, open_format
from zkgroup.export.model.accounting import Interval, gaps_between, overlaps, subtract, union
from zkgroup.export.model.address import Address
from zkgroup.export.model.layout import is_read
from zkgroup.export.model.plan_types import LostRange
from zkgroup.export.model.run_record import DamagedDocumentError, RunRecord, damaged
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
    ``group`` may do, and the ``remedy`` for what is of no partition."""

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
    remedy: Remedy | None = None


class _LogKey(NamedTuple):
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


def verify(
    destination: Destination,
    committed: Mapping[str, Mapping[TopicPartition, int | None]] | None = None,
    on_note: Callable[[Notice], None] = lambda _: None,
) -> list[VerifyRow]:
    """One row for each partition, then its problems, then those of no partition. ``committed``: what groups have
    committed, where that is to be compared, too. ``on_note`` receives observations that are no problem."""
    verification = _Verification(destination, on_note)
    verification.read_records()
    verification.check_tables()
    verification.check_files()
    for group, offsets in (committed or {}).items():
        if group in verification.newest:
            verification.compare_offsets(group, offsets)
    return verification.rows()


class _Verification:
    """What records say, and what is wrong with it. ``newest``: of each group; ``tags``: of each topic's latest log;
    ``others``: problems of no partition."""

    def __init__(self, destination: Destination, on_note: Callable[[Notice], None]) -> None:
        self._destination = destination
        self._on_note = on_note
        self._accounts: dict[_LogKey, _Account] = {}
        self._expected = ExpectedFiles()
        self.newest: dict[str, RunRecord] = {}
        self._unfinished: set[str] = set()  # runs
        self._tags: dict[str, str | None] = {}
        self._others: list[VerifyRow] = []
        layout = None
        try:
            layout = destination.layout()
            if layout is None and destination.groups():
                raise damaged(f"{destination}/{LAYOUT}", "is missing")
        except ZkgroupError as error:
            self._report(error)
        self._tables = open_format(destination, layout)

    def _report(self, why: ZkgroupError | Notice, group: str | None = None) -> None:
        row = VerifyRow(None, None, None, None, problem=why.message, remedy=why.remedy, group=group, mend="person")
        self._others.append(row)

    def _account(self, partition: TopicPartition, tag: str | None, group: str) -> _Account:
        return self._accounts.setdefault(_LogKey(*partition, tag or ""), _Account(group))

    def _find(
        self, partition: TopicPartition, tag: str | None, ends: Interval, why: str, mend: Mend | None, group: str | None
    ) -> None:
        row = VerifyRow(*partition, *ends, problem=why, group=group, mend=mend)
        self._account(partition, tag, group or "").problems.append(row)

    # --- records ----------------------------------------------------------------------------------------------------

    def read_records(self) -> None:
        destination = self._destination
        for group in destination.groups():
            records = list(self._records(group))
            if isinstance(self._tables, CommittedTables):
                records = without_rolled_back(records)
            for record in records:
                self.newest[group] = record
                self._expected.add(record)
                self._enter(record)
            for run in destination.leftover_runs(group):
                if destination.is_logged(group, run):
                    self._unfinished.add(run)
                else:
                    work = destination.work(group, run)
                    self._on_note(
                        Notice(f"{work} is of a run that is under way, or was killed", Remedy("see --status"))
                    )
        known = [coverage for record in self.newest.values() for coverage in record.coverage.items()]
        for topic, coverage in sorted(known, key=lambda item: item[1].identity.czxid):
            self._tags[topic] = coverage.identity.tag
        self._owners = read_owners(destination, sorted(self._tags))
        for topic, some in self._owners.items():
            if all(owner.is_former for owner in some):
                self._report(damaged(f"{destination}/{TOPICS}/{topic}", "has no owner any more"))

    def _records(self, group: str) -> Iterator[RunRecord]:
        try:
            self._destination.entries(group)
        except (DamagedDocumentError, RefusedError) as error:
            self._report(error, group)
        for entry in self._destination.entries(group, is_checked=False):
            try:
                yield self._destination.record(group, entry)
            except DamagedDocumentError as error:
                self._report(error, group)

    def _enter(self, record: RunRecord) -> None:
        for part in record.partitions:
            tag = record.topics[part.partition.topic].tag
            account = self._account(part.partition, tag, record.group)
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
                self._find(part.partition, tag, (part.start, part.end), why, None, None)

    # --- tables and files -------------------------------------------------------------------------------------------

    def check_tables(self) -> None:
        """Find tables that have less than the records say: their partitions have a problem, and their files none."""
        if not isinstance(self._tables, CommittedTables):
            return
        for record in self.newest.values():
            for topic, known in record.coverage.items() if record.run not in self._unfinished else ():
                try:
                    now, _ = read_coverage(self._destination, self._tables, record, topic)
                except (DamagedDocumentError, RefusedError) as error:
                    self._report(error, record.group)
                    continue
                for partition in lost_partitions(topic, known, now):
                    low, high = (one.ends.get(partition.partition, 0) for one in (now, known))
                    why = "the table was rolled back, and does not have all of these"
                    self._find(partition, known.identity.tag, (low, high), why, "mismatch", record.group)
                    self._expected.forget_topic(topic)

    def check_files(self) -> None:
        """Check all files, and find those that are missing, or that no record names."""
        expected, tables = self._expected, self._tables
        is_list = not isinstance(tables, CommittedTables)
        topics = None if is_list else sorted({one.file.topic for one in expected.files.values()})
        files = list(tables.files(topics))
        known = [file for file in files if file.name in expected.files]
        pairs = [(file, expected.files[file.name]) for file in known]
        problems = map_parallel(lambda pair: check_file(self._destination.store, *pair), pairs)
        for (_, one), found in zip(pairs, problems, strict=True):
            self._enter_file(one, found)
        lost = list(expected.missing({file.name for file in known}))
        for one, partition, missing in lost:
            if is_list or one.run in self._unfinished:
                self._report_missing(one, partition, missing)
        if isinstance(tables, CommittedTables):
            finished = [(partition, missing) for one, partition, missing in lost if one.run not in self._unfinished]
            for topic in topics or ():
                self._compare_rows(tables, topic, [item for item in finished if item[0].topic == topic])
            return
        unnamed, remedy = "is in no record", Remedy("restore the record, or move it out of the destination")
        if any(row.group is not None for row in self._others):
            unnamed, remedy = f"{unnamed} that can be read", Remedy("restore the damaged one first")
        for file in files:
            if file.name not in expected.files and is_read(file.name):
                self._report(Notice(f"{file.name} {unnamed}", remedy))

    def _enter_file(self, one: ExpectedFile, problems: Sequence[str]) -> None:
        is_newest = one.run not in self._unfinished and self._tags.get(one.file.topic) == one.tag
        mend: Mend = "file" if is_newest and not isinstance(self._tables, CommittedTables) else "person"
        for number, piece in enumerate(one.file.ranges):
            partition = TopicPartition(one.file.topic, piece.partition)
            self._account(partition, one.tag, one.group).files += 1
            for why in problems if number == 0 else ():
                self._find(partition, one.tag, (piece.start, piece.end), why, mend, one.group)

    def _report_missing(self, one: ExpectedFile, partition: TopicPartition, lost: LostRange) -> None:
        mend: Mend = "backfill"
        why = f"{lost.file} of run {one.run} is missing"
        if one.run in self._unfinished:
            why, mend = f"{why}: the run is not finished", "export"
        elif self._tags.get(one.file.topic) != one.tag:
            why, mend = f"{why}, of an earlier log of the topic: only a copy brings it back", "person"
        self._find(partition, one.tag, (lost.start, lost.end), why, mend, one.group)

    def _compare_rows(
        self, tables: CommittedTables, topic: str, lost: Sequence[tuple[TopicPartition, LostRange]]
    ) -> None:
        """Compare the rows that others have put into a topic's table with those of the files that they replace."""
        found = tables.other_offsets(topic, self._expected.files)
        tag = self._tags.get(topic)
        for number in sorted({*found, *(partition.partition for partition, _ in lost)}):
            partition = TopicPartition(topic, number)
            ranges = [one for replaced, one in lost if replaced == partition]
            wrong = compare_rewritten(ranges, found.get(number), is_recreated=tag is not None)
            if wrong is not None:
                ends = [edge for one in ranges for edge in (one.start, one.end)] or [0]
                self._find(partition, tag, (min(ends), max(ends)), wrong, "table", None)

    # --- offsets, and rows ------------------------------------------------------------------------------------------

    def compare_offsets(self, group: str, offsets: Mapping[TopicPartition, int | None]) -> None:
        newest = self.newest[group]
        for partition, offset in offsets.items():
            coverage = newest.coverage[partition.topic]
            end = coverage.ends[partition.partition]
            if offset == end:
                continue
            where = "has no offset" if offset is None else f"is at {offset}"
            if newest.joined and offset is not None and offset > end:
                ahead = "ahead of its export, which shared the group with other members"
                self._on_note(Notice(f"{partition}: the group {where}, {ahead}"))
                continue
            low, high = sorted((end, end if offset is None else offset))
            why = f"group {group} {where}, and its exports end at {end}"
            mend: Mend = "export" if newest.run in self._unfinished else "mismatch"
            self._find(partition, coverage.identity.tag, (low, high), why, mend, group)

    def rows(self) -> list[VerifyRow]:
        """Of all partitions, then the problems of none."""
        rows = [row for log in sorted(self._accounts) for row in _rows_of(log, self._accounts[log])]
        return [self._of_owner(row) for row in rows] + self._others

    def _of_owner(self, row: VerifyRow) -> VerifyRow:
        """A row whose problem the group mends that owns the topic now: another one may not export it."""
        if row.mend != "backfill":
            return row
        owners = (one.group for one in self._owners[str(row.topic)] if not one.is_former)
        return replace(row, group=next(owners, row.group))


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


def read_committed(
    registry: Registry, group: str, newest: RunRecord, on_warning: Callable[[Notice], None]
) -> dict[TopicPartition, int | None]:
    """What a group has committed of the partitions that it has exported, as far as their topics are the same logs.
    Raises ``RefusedError`` where the record is of another cluster, ``MalformedZnodeError`` for an offset that is
    none."""
    state = GroupState(registry, group, on_warning)
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
