"""The parts of an export's plan, as plain data: what is known of a partition, and what is to be read of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from zkgroup.export.model.accounting import Interval
from zkgroup.protocol.names import TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """The state of one partition in ZooKeeper, on the brokers and in the destination.

    ``committed``: the next offset to read, None without one. ``version``: that of the offset node, None without a node.
    ``log_start`` and ``log_end``: the first offset of the log, and the one behind its last. ``begin``: what ``--from``
    names, None where it names nothing; ``is_exact``: it names this very partition. ``until``: where to stop at the
    latest.

    ``ended``: where the destination's exports of this log end, None without one. ``coverage``: the offsets that its
    records account for. ``is_new``: the destination knows the topic's log, and not this partition. ``is_recreated``:
    the log is not the one that was committed or exported. ``is_rolled_back``: the table had more before.
    """

    partition: TopicPartition
    committed: int | None
    version: int | None
    log_start: int
    log_end: int
    begin: int | None = None
    until: int | None = None
    is_exact: bool = False
    ended: int | None = None
    coverage: tuple[Interval, ...] = ()
    is_new: bool = False
    is_recreated: bool = False
    is_rolled_back: bool = False

    @property
    def exported_end(self) -> int | None:
        """Where an export may go on at the earliest: behind exports and backfills; None where there is nothing."""
        ends = [*([] if self.ended is None else [self.ended]), *(high for _, high in self.coverage[-1:])]
        return max(ends, default=None)


class OffsetRange(NamedTuple):
    """Offsets ``[start, end)`` of a partition: what is read by one task."""

    partition: TopicPartition
    start: int
    end: int


class StoredFile(NamedTuple):
    """A file in a destination: its name there, and its bytes."""

    name: str
    size: int


class Slice(NamedTuple):
    """The rows of a partition in a file: ``rows`` messages with ``start`` ≤ offset < ``end``."""

    partition: int
    start: int
    end: int
    rows: int


class ColumnStatistics(NamedTuple):
    """Of a file's ``column``: the least and the largest value, as Parquet stores them, and the number of nulls. Times
    are milliseconds since 1970. Without ``low`` and ``high`` all are null."""

    column: str
    low: int | None
    high: int | None
    nulls: int


@dataclass(frozen=True, slots=True)
class RecordFile:
    """A file that a task has finished: ``work`` below the run's folder, ``name`` below the destination; its ranges.
    ``statistics``: of the columns that have some, if the file is a table's."""

    work: str
    name: str
    topic: str
    rows: int
    bytes: int
    ranges: tuple[Slice, ...]
    statistics: tuple[ColumnStatistics, ...] = ()


class SkippedRange(NamedTuple):
    """Offsets ``[start, end)`` that an export passes over and names: ``retention`` (deleted before they were read),
    ``moved`` (the group was set forward, and ``--on-mismatch group`` goes on there), ``members`` (other members of the
    group have read them)."""

    kind: Literal["retention", "moved", "members"]
    start: int
    end: int


class LostRange(NamedTuple):
    """A range of a published ``file`` that is gone, with its number of ``rows``."""

    file: str
    start: int
    end: int
    rows: int

    @property
    def folder(self) -> str:
        return self.file.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """Read ``[start, end)`` of a partition, then move its offset node from ``version`` to ``end``.

    ``commits``: whether the group moves at all (a backfill moves nothing). ``again``: lost ranges that are written once
    more; of what is read only these are written, if there are any.
    """

    partition: TopicPartition
    committed: int | None
    version: int | None
    start: int
    end: int
    skipped: tuple[SkippedRange, ...] = ()
    commits: bool = True
    again: tuple[LostRange, ...] = ()

    @property
    def moves(self) -> bool:
        """Whether the group's offset changes."""
        return self.commits and self.end != self.committed


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """All partitions of an export, in order. ``left_out``: partitions that are not exported, with the reason."""

    partitions: tuple[PartitionPlan, ...]
    left_out: tuple[tuple[TopicPartition, str], ...] = ()

    @property
    def reads(self) -> bool:
        """Whether there is anything to read."""
        return any(part.start < part.end for part in self.partitions)

    @property
    def moves(self) -> bool:
        """Whether there is anything to read, or to commit."""
        return self.reads or any(part.moves for part in self.partitions)
