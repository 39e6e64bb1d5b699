"""The settings of a task, and its answers: data alone, which needs neither pyarrow nor pyspark.

An expected error is an answer, too: the driver then parses no traceback, and Spark does not repeat the task in vain. An
unexpected one is raised, and Spark repeats the task.

Late messages lie in an earlier day or hour than one before them in their partition. A task sees one range and no
earlier messages. So it counts how many were late within the range, and of the others how many lay in which period
(their periods only rise); the others' lateness is known when the newest period before the range is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.errors import ZkgroupError
from zkgroup.export.model.address import Address
from zkgroup.export.model.layout import Layout, Period
from zkgroup.export.model.plan_types import OffsetRange, RecordFile
from zkgroup.protocol.names import TopicPartition
from zkgroup.schemas.field_schema import FieldSchemas


@dataclass(frozen=True, slots=True)
class FileOptions:
    """How files of a ``group``'s ``run`` are written, and where: in ``folder`` of the destination. ``compression``:
    codec and level. ``target_bytes``: a file that has grown to this size is followed by another. ``planned``:
    milliseconds since 1970; messages from later than that make nothing late. ``shared``: a file may hold several
    partitions. ``only``: of ranges that touch one of these (folder, start, end), only their messages are written.
    ``cuts``: offsets at which another part of the plan begins, where a partition has several: each has slices of its
    own. ``tags``: the marks of the topics' logs, where they have some."""

    destination: Address
    folder: str
    compression: tuple[str, int | None]
    target_bytes: int
    group: str
    run: str
    layout: Layout = field(default_factory=Layout)
    schemas: FieldSchemas = field(default_factory=FieldSchemas)
    planned: int = 1 << 62
    shared: bool = True
    only: Mapping[TopicPartition, Sequence[tuple[str, int, int]]] = field(default_factory=dict)
    cuts: Mapping[TopicPartition, Sequence[int]] = field(default_factory=dict)
    tags: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """The settings of every task of an export.

    ``cleanup``: topics' policies, see ``accounting``. ``max_bytes``: of keys and values a range may take, None: no
    limit. ``skip_deleted``: go on where the log starts when retention deletes messages that are being read.
    ``silence_timeout`` is in seconds, see ``RangeReader``.
    """

    kafka: KafkaSettings
    files: FileOptions
    cleanup: Mapping[str, str | None] = field(default_factory=dict)
    max_bytes: int | None = None
    skip_deleted: bool = False
    silence_timeout: float = 30.0


class RangeAnswer(NamedTuple):
    """The offsets of a range. Those up to ``reached`` are rows or gaps; it is the range's end unless a limit of
    bytes ended it before. ``gaps``: by kind. ``rows`` are all messages, also those that are ``undecodable``.
    ``late``, ``fresh``: see ``LateCounter``."""

    piece: OffsetRange
    reached: int
    gaps: Mapping[str, int]
    rows: int
    undecodable: int
    late: int
    fresh: Mapping[int, int]


#: A range that was read, or a file that was written; a file's ranges may come before it and behind it.
DoneAnswer: TypeAlias = RangeAnswer | RecordFile
Answer: TypeAlias = DoneAnswer | ZkgroupError


def done_or_raise(answer: Answer) -> DoneAnswer:
    """The answer of a task that succeeded. Raises the error of one that failed."""
    if isinstance(answer, ZkgroupError):
        raise answer
    return answer


@dataclass
class LateCounter:
    """Of the messages of a range, in their order. ``horizon``: the period of the present; a message from later than
    that has a wrong clock, and makes nothing late."""

    horizon: Period
    late: int = 0
    newest: Period = None
    fresh: dict[int, int] = field(default_factory=dict)

    def add(self, period: Period, count: int) -> None:
        """The next ``count`` messages, all of one period."""
        if period is None:
            return
        if self.newest is not None and period < self.newest:
            self.late += count
        elif self.horizon is None or period <= self.horizon:
            self.newest = period
            self.fresh[period] = self.fresh.get(period, 0) + count


def late_of(ranges: Iterable[tuple[int, Mapping[int, int]]], newest: Period) -> tuple[int, Period]:
    """How many messages of a partition were late. ``ranges``: ``late`` and ``fresh`` of each, in order. ``newest``:
    before them; the second result is the newest period after them."""
    total = 0
    for late, fresh in ranges:
        total += late
        if newest is not None:
            total += sum(count for period, count in fresh.items() if period < newest)
        newest = max([period for period in (newest, *fresh) if period is not None], default=None)
    return total, newest
