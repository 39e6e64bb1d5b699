"""What a group's records account for, from record to record: offsets, and the files that are to be there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from zkgroup.errors import RefusedError
from zkgroup.export.destination.run_log import LOG, Destination, Owner, number_of
from zkgroup.export.destination.table_format import TableFormat
from zkgroup.export.model.accounting import Interval, union
from zkgroup.export.model.layout import Period
from zkgroup.export.model.plan_types import LostRange, RecordFile
from zkgroup.export.model.run_record import RecordPart, RunRecord, TopicCoverage, TopicIdentity, damaged
from zkgroup.protocol.names import TopicPartition


class TableRolledBackError(RefusedError):
    """A table lacks what the group has exported that this one took over from."""


def extend_coverage(
    known: Mapping[str, TopicCoverage],
    topics: Mapping[str, TopicIdentity],
    parts: Sequence[RecordPart],
    newest: Mapping[TopicPartition, Period],
) -> dict[str, TopicCoverage]:
    """What is accounted for with these ``parts``; ``newest``: the newest period of each partition. The coverage of an
    earlier log of a topic is forgotten: its files have other names than those to come."""
    found = dict(known)
    of_topic: dict[str, list[RecordPart]] = defaultdict(list)
    for part in parts:
        of_topic[part.partition.topic].append(part)
    for topic, identity in topics.items():
        before = known.get(topic)
        kept = before if before is not None and before.identity.is_same(identity) else TopicCoverage(identity)
        covered = {number: list(intervals) for number, intervals in kept.partitions.items()}
        ends, periods = dict(kept.ends), dict(kept.newest)
        for part in of_topic[topic]:
            number = part.partition.partition
            # An empty interval says nothing, and would only grow the record.
            covered.setdefault(number, []).extend(piece for piece in part.covered if piece[0] < piece[1])
            if part.commits:
                ends[number] = part.end
            if (period := newest.get(part.partition)) is not None:
                periods[number] = period
        partitions = {number: union(intervals) for number, intervals in covered.items()}
        found[topic] = TopicCoverage(identity, partitions, ends, periods)
    return found


def merge_coverage(one: TopicCoverage, other: TopicCoverage) -> TopicCoverage:
    """What two groups of a cluster account for of a topic: of two logs that of the later one."""
    if not one.identity.is_same(other.identity):
        return max(one, other, key=lambda coverage: coverage.identity.czxid)
    numbers = {*one.partitions, *other.partitions}
    return TopicCoverage(
        one.identity,
        {n: union((*one.partitions.get(n, ()), *other.partitions.get(n, ()))) for n in sorted(numbers)},
        _larger(one.ends, other.ends),
        _larger(one.newest, other.newest),
    )


def roll_back(known: TopicCoverage, then: TopicCoverage | None) -> TopicCoverage:
    """What is accounted for once a table was rolled back to where it accounted for ``then``, None for nothing. Exports
    of a partition that it had nothing of go on where they began."""
    kept = then if then is not None and then.identity.is_same(known.identity) else TopicCoverage(known.identity)
    partitions: dict[int, tuple[Interval, ...]] = {}
    ends: dict[int, int] = {}
    for number in sorted({*known.partitions, *known.ends}):
        first = min([low for low, _ in known.partitions.get(number, ())], default=known.ends.get(number, 0))
        partitions[number] = kept.partitions.get(number, ((first, first),))
        ends[number] = kept.ends.get(number, first)
    return TopicCoverage(known.identity, partitions, ends, kept.newest)


def _larger(one: Mapping[int, int], other: Mapping[int, int]) -> dict[int, int]:
    return {n: max(some[n] for some in (one, other) if n in some) for n in sorted({*one, *other})}


@dataclass(frozen=True, slots=True)
class ExpectedFile:
    """A published file, with those of its ranges that were not written again elsewhere. ``tag``: of its topic's log."""

    file: RecordFile
    group: str
    run: str
    tag: str | None
    isolation: str


class ExpectedFiles:
    """The files of all records that were added, each group's in their order."""

    def __init__(self) -> None:
        self.files: dict[str, ExpectedFile] = {}

    def add(self, record: RunRecord) -> None:
        """A record: its files are to be there, in the place of those that it has written again."""
        for part in record.partitions:
            for lost in part.again:
                self._forget(lost, part.partition.partition)
        for file in record.files:
            identity = record.topics.get(file.topic)
            tag = None if identity is None else identity.tag
            self.files[file.name] = ExpectedFile(file, record.group, record.run, tag, record.isolation)

    def forget_topic(self, topic: str) -> None:
        """A topic's files need not be there."""
        self.files = {name: one for name, one in self.files.items() if one.file.topic != topic}

    def _forget(self, lost: LostRange, partition: int) -> None:
        known = self.files.get(lost.file)
        if known is None:
            return
        again = (partition, lost.start, lost.end)
        left = tuple(one for one in known.file.ranges if (one.partition, one.start, one.end) != again)
        if left:
            self.files[lost.file] = replace(known, file=replace(known.file, ranges=left))
        else:
            del self.files[lost.file]

    def missing(self, there: Collection[str]) -> Iterator[tuple[ExpectedFile, TopicPartition, LostRange]]:
        """Each range of the files that are not ``there``."""
        for name, known in self.files.items():
            if name not in there:
                for one in known.file.ranges:
                    partition = TopicPartition(known.file.topic, one.partition)
                    yield known, partition, LostRange(name, one.start, one.end, one.rows)


def read_coverage(
    destination: Destination, tables: TableFormat, record: RunRecord, topic: str
) -> tuple[TopicCoverage, int | None]:
    """What a topic's table has of what ``record``, the newest of its group, accounts for; and the number of the group's
    newest run there, None for a format that has none. Raises ``DamagedDocumentError`` for a run that is not in the
    log."""
    known, number = record.coverage[topic], number_of(record.run)
    newest = tables.newest_run(record.group, topic)
    if newest is None or newest == number:
        return known, newest
    if newest > number:
        raise damaged(f"the record of run {newest} in {destination}/{LOG}/{record.group}", "is missing")
    then = None
    if newest:
        entry = destination.entries(record.group)[newest - 1]
        then = destination.record(record.group, entry).coverage.get(topic)
    return (known if then == known else roll_back(known, then)), newest


def without_rolled_back(records: Sequence[RunRecord]) -> list[RunRecord]:
    """A group's records, the oldest first, without what a later one has found to be rolled back."""
    lost: set[tuple[str, int]] = set()
    for record in reversed(records):
        number = number_of(record.run)
        for topic, base in record.bases.items():
            if (topic, number) not in lost:  # else it was rolled back itself, and what it had found does not count
                lost.update((topic, earlier) for earlier in range(base + 1, number))
    return [
        replace(
            record,
            partitions=tuple(
                part for part in record.partitions if (part.partition.topic, number_of(record.run)) not in lost
            ),
            files=tuple(file for file in record.files if (file.topic, number_of(record.run)) not in lost),
        )
        for record in records
    ]


def lost_partitions(topic: str, before: TopicCoverage, now: TopicCoverage) -> list[TopicPartition]:
    """The partitions of which a table has less than before."""
    return [
        TopicPartition(topic, number)
        for number in sorted({*before.partitions, *before.ends})
        if (before.partitions.get(number), before.ends.get(number))
        != (now.partitions.get(number), now.ends.get(number))
    ]


class ExportedCoverage:
    """What was exported of each topic, by the newest records of a group and of the topics' other owners, as far as the
    tables have it. ``bases``: the newest run that each table has; ``rolled_back``: the partitions that were in one and
    are not; ``as_recorded``: the coverage of the group's own topics in its newest record, where formats have tables."""

    def __init__(self, destination: Destination, tables: TableFormat, group: str) -> None:
        self._destination = destination
        self.tables = tables
        self._group = group
        self.bases: dict[str, int] = {}
        self.rolled_back: set[TopicPartition] = set()
        self.as_recorded: dict[str, TopicCoverage] = {}

    def read(
        self, own: RunRecord | None, owners: Mapping[str, Sequence[Owner]], clusters: Collection[str]
    ) -> dict[str, TopicCoverage]:
        """``own``: the group's newest record. Raises ``TableRolledBackError`` where a table has less of what another
        group has exported."""
        found: dict[str, TopicCoverage] = {}
        if own is not None:
            found = {**own.coverage, **{topic: self._of_topic(own, topic) for topic in owners if topic in own.coverage}}
        newest: dict[str, RunRecord | None] = {self._group: None}
        for topic, some in owners.items():
            for owner in some:
                if owner.group not in newest:
                    newest[owner.group] = self._destination.newest(owner.group)
                record = newest[owner.group]
                if record is not None and record.cluster in clusters and topic in record.coverage:
                    theirs = self._of_topic(record, topic)
                    found[topic] = merge_coverage(found[topic], theirs) if topic in found else theirs
        return found

    def _of_topic(self, record: RunRecord, topic: str) -> TopicCoverage:
        coverage, run = read_coverage(self._destination, self.tables, record, topic)
        lost = lost_partitions(topic, record.coverage[topic], coverage)
        if record.group != self._group:
            if lost:
                raise TableRolledBackError(
                    f"the table of topic {topic} was rolled back to before group {self._group} took over from group "
                    f"{record.group}",
                    "restore it to a later version, or choose another --to",
                )
        elif run is not None:
            self.bases[topic] = run
            self.rolled_back.update(lost)
            self.as_recorded[topic] = record.coverage[topic]
        return coverage
