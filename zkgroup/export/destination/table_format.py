"""The formats of a destination's tables: what readers take for its data, and how a run becomes a part of that.

The log of runs (``parquet_destination``) accounts for every offset, whatever the format. A format commits the files of
a decided run, and says which runs its tables have: others may have rolled one back, or dropped it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from zkgroup.errors import RefusedError
from zkgroup.export.destination.conflicting_files import refuse_conflicting_files
from zkgroup.export.destination.coverage import roll_back
from zkgroup.export.destination.parquet_destination import LOG, Destination, number_of
from zkgroup.export.model.documents import damaged
from zkgroup.export.model.layout import Layout
from zkgroup.export.model.plan_types import OffsetRange, StoredFile
from zkgroup.export.model.run_record import RunRecord, TopicCoverage
from zkgroup.protocol.names import TopicPartition


class TableFormat(Protocol):
    """The tables of one destination. ``schema``: makes pyarrow's schema of the files. ``is_rewritten``: others may put
    rows into other files, so a file of a record that is not there is not lost."""

    is_rewritten: bool

    def newest_run(self, group: str, topic: str) -> int | None:
        """The number of a group's newest run that the table of a topic has, 0 without one; None: that of the log."""
        ...

    def refuse_foreign(self, topic: str, schema: Callable[[], Any], *, is_recorded: bool) -> None:
        """Raise ``ZkgroupError`` where an export cannot write to a topic's table. ``is_recorded``: a record of the log
        has the topic."""
        ...

    def refuse_conflicts(
        self, ranges: Iterable[OffsetRange], tags: Mapping[str, str | None], known: Collection[str]
    ) -> None:
        """Raise ``RefusedError`` where a file has offsets of these ranges: see ``conflicting_files``."""
        ...

    def changed(self, group: str, bases: Mapping[str, int]) -> list[str]:
        """The topics whose tables do not have this run of the group as their newest any more: others have rolled them
        back, dropped or replaced them."""
        ...

    def uncommitted(self, record: RunRecord) -> list[str]:
        """The topics of a run whose tables do not have it."""
        ...

    def commit(self, record: RunRecord, schema: Callable[[], Any], passed: Callable[[str], None]) -> None:
        """Make the files of a run, which have their final names, parts of the tables, with the offsets where it ends;
        may be repeated. Raises ``RefusedError`` where a table was rolled back since the run was planned."""
        ...

    def files(
        self, topics: Sequence[str] | None = None, unlisted: Callable[[str], None] | None = None
    ) -> Iterator[StoredFile]:
        """The files that readers take for data: of these topics, or of all that were exported."""
        ...

    def offsets(self, topic: str, names: Collection[str]) -> dict[int, Any]:
        """The offsets of all rows in these files of a topic's table, by partition: columns of pyarrow's."""
        ...


class PlainParquet:
    """Files that readers list. A run is a part of it as soon as its files have their names."""

    is_rewritten = False

    def __init__(self, destination: Destination) -> None:
        self._destination = destination

    def newest_run(self, group: str, topic: str) -> int | None:
        return None

    def refuse_foreign(self, topic: str, schema: Callable[[], Any], *, is_recorded: bool) -> None:
        if not is_recorded and any(self._destination.published(topic)):
            raise damaged(f"the record of exports of topic {topic} in {self._destination}/{LOG}", "is missing")

    def refuse_conflicts(
        self, ranges: Iterable[OffsetRange], tags: Mapping[str, str | None], known: Collection[str]
    ) -> None:
        refuse_conflicting_files(self._destination, ranges, tags, known=known)

    def changed(self, group: str, bases: Mapping[str, int]) -> list[str]:
        return []

    def uncommitted(self, record: RunRecord) -> list[str]:
        return list(record.topics)

    def commit(self, record: RunRecord, schema: Callable[[], Any], passed: Callable[[str], None]) -> None:
        pass

    def files(
        self, topics: Sequence[str] | None = None, unlisted: Callable[[str], None] | None = None
    ) -> Iterator[StoredFile]:
        return self._destination.data_files(topics, unlisted)

    def offsets(self, topic: str, names: Collection[str]) -> dict[int, Any]:
        raise NotImplementedError  # nothing is rewritten


def table_changed(table: str) -> RefusedError:
    """The error for a table that an export has found otherwise than it was."""
    return RefusedError(
        f"the table {table} was rolled back, dropped or replaced while it was exported",
        "restore it to the version that it had, then run the same command again; if that cannot be, and the run is "
        "decided, --abandon gives it up",
    )


def open_format(destination: Destination, layout: Layout | None) -> TableFormat:
    """The format of a destination with this layout. Does no I/O. Raises ``UsageError`` where the place is not for it,
    ``MissingExtraError`` without its package."""
    if layout is None or not layout.has_tables:
        return PlainParquet(destination)
    if layout.format == "delta":
        from zkgroup.export.destination.delta_tables import DeltaTables

        return DeltaTables(destination, layout)
    from zkgroup.export.destination.iceberg_tables import IcebergTables

    return IcebergTables(destination, layout)


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
