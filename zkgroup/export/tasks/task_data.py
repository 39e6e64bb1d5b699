"""The settings of a task, and its answers: data alone, which needs neither pyarrow nor pyspark.

An expected error is an answer, too: the driver then parses no traceback, and Spark does not repeat the task in vain. An
unexpected one is raised, and Spark repeats the task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from zkgroup import errors
from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.errors import ZkgroupError
from zkgroup.export.model.address import Address
from zkgroup.export.model.layout import Layout
from zkgroup.export.model.plan_types import ColumnStatistics, Slice
from zkgroup.protocol.names import TopicPartition
from zkgroup.schemas.field_schema import FieldSchemas


@dataclass(frozen=True, slots=True)
class FileOptions:
    """How files are written, and where: in ``folder`` of the destination. ``compression``: codec and level.
    ``target_bytes``: a file that has grown to this size is followed by another. ``planned``: milliseconds since 1970;
    messages from later than that make nothing late. ``shared``: a file may hold several partitions. ``only``: of
    ranges that touch one of these (folder, start, end), only their messages are written. ``cuts``: offsets at which
    another part of the plan begins, where a partition has several: each has slices of its own."""

    destination: Address
    folder: str
    compression: tuple[str, int | None]
    target_bytes: int
    metadata: Mapping[str, str]
    layout: Layout = field(default_factory=Layout)
    schemas: FieldSchemas = field(default_factory=FieldSchemas)
    planned: int = 1 << 62
    shared: bool = True
    only: Mapping[TopicPartition, Sequence[tuple[str, int, int]]] = field(default_factory=dict)
    cuts: Mapping[TopicPartition, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """The settings of every task of an export.

    ``silence_timeout`` is in seconds, see ``RangeReader``. ``cleanup``: topics' policies, see ``accounting``.
    ``max_bytes``: of keys and values a range may take, None: no limit. ``skip_deleted``: go on where the log starts
    when retention deletes messages that are being read.
    """

    kafka: KafkaSettings
    files: FileOptions
    silence_timeout: float = 30.0
    cleanup: Mapping[str, str | None] = field(default_factory=dict)
    max_bytes: int | None = None
    skip_deleted: bool = False


class RangeAnswer(NamedTuple):
    """The offsets of a range. Those up to ``reached`` are rows or gaps; it is ``end`` unless a limit of
    bytes ended the range before. ``gaps``: by kind. ``rows`` are all messages, also those that are ``undecodable``.
    ``late``, ``fresh``: see ``late_messages.LateCounter``."""

    topic: str
    partition: int
    start: int
    end: int
    reached: int
    gaps: Mapping[str, int]
    rows: int
    undecodable: int
    late: int
    fresh: Mapping[int, int]


class FileAnswer(NamedTuple):
    """A finished file. ``work``: its name in the destination as yet; ``folder``: where it is to go. ``statistics``: of
    the columns that have some, if the file is a table's."""

    work: str
    topic: str
    folder: str
    rows: int
    bytes: int
    slices: tuple[Slice, ...]
    statistics: tuple[ColumnStatistics, ...] = ()


class FailedAnswer(NamedTuple):
    """An error that a task met; ``error`` is its class."""

    error: str
    message: str
    remedy: errors.Remedy | None


#: A range that was read, or a file that was written; a file's ranges may come before it and behind it.
DoneAnswer: TypeAlias = RangeAnswer | FileAnswer
Answer: TypeAlias = DoneAnswer | FailedAnswer


def done_or_raise(answer: Answer) -> DoneAnswer:
    """The answer of a task that succeeded. Raises the error of one that failed."""
    if isinstance(answer, FailedAnswer):
        raise getattr(errors, answer.error, ZkgroupError)(answer.message, answer.remedy)
    return answer
