"""What a task of an export is told, and what it answers: data alone, which needs neither pyarrow nor pyspark.

What went wrong in an expected way is an answer, too: it then needs no parsing of a traceback in the driver, and Spark
does not repeat in vain what cannot succeed. What is unexpected is raised, and Spark repeats the task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias, cast

from zkgroup import errors
from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.errors import ZkgroupError
from zkgroup.export.model.address import Address
from zkgroup.export.model.intervals import Interval
from zkgroup.export.model.layout import Layout
from zkgroup.export.model.plan_types import Slice
from zkgroup.protocol.names import TopicPartition


@dataclass(frozen=True, slots=True)
class FileOptions:
    """How files are written, and where: in ``folder`` of the destination. ``compression``: codec and level.
    ``target_bytes``: a file that has grown to this size is followed by another. ``planned``: milliseconds since 1970;
    messages from later than that make nothing late. ``shared``: a file may hold several partitions. ``only``: of
    ranges that touch one of these (folder, start, end), only what lies in one is written. ``cuts``: offsets at which
    another part of the plan begins, where a partition has several: each has slices of its own."""

    destination: Address
    folder: str
    compression: tuple[str, int | None]
    target_bytes: int
    metadata: Mapping[str, str]
    layout: Layout = field(default_factory=Layout)
    planned: int = 1 << 62
    shared: bool = True
    only: Mapping[TopicPartition, Sequence[tuple[str, int, int]]] = field(default_factory=dict)
    cuts: Mapping[TopicPartition, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """What every task of an export is told.

    ``patience`` is in seconds, see ``RangeReader``. ``cleanup``: topics' policies, see ``accounting``. ``max_bytes``:
    of keys and values a range may take, None: no limit. ``skip_deleted``: go on where the log starts when retention
    takes away what is being read.
    """

    kafka: KafkaSettings
    files: FileOptions
    patience: float = 30.0
    cleanup: Mapping[str, str | None] = field(default_factory=dict)
    max_bytes: int | None = None
    skip_deleted: bool = False


class RangeAnswer(NamedTuple):
    """What became of the offsets of a range. Those up to ``reached`` are rows or gaps; it is ``end`` unless a limit of
    bytes ended the range before. ``gaps``: by kind; ``unexplained``: some stretches. ``rows`` are all messages, also
    those that are ``undecodable``. ``undated``, ``late``, ``fresh``: see ``files.Told``."""

    kind: str
    topic: str
    partition: int
    start: int
    end: int
    reached: int
    gaps: Mapping[str, int]
    unexplained: tuple[Interval, ...]
    rows: int
    undecodable: int
    undated: int
    late: int
    fresh: Mapping[int, int]


class FileAnswer(NamedTuple):
    """A finished file. ``work``: its name in the destination as yet; ``folder``: where it is to go."""

    kind: str
    work: str
    topic: str
    folder: str
    rows: int
    bytes: int
    slices: tuple[Slice, ...]


#: A range that was read, or a file that was written; a file's ranges may come before it and behind it.
DoneAnswer: TypeAlias = RangeAnswer | FileAnswer
#: ("failed", name of the error's class, message, remedy)
FailedAnswer: TypeAlias = tuple[Literal["failed"], str, str, errors.Remedy | None]
Answer: TypeAlias = DoneAnswer | FailedAnswer


def done_or_raise(answer: Answer) -> DoneAnswer:
    """What a task has done, or the error that it met, as it was."""
    if answer[0] == "failed":
        _, name, message, remedy = cast("FailedAnswer", answer)
        raise getattr(errors, name, ZkgroupError)(message, remedy)
    return cast("DoneAnswer", answer)
