"""The record of a run in the destination's log, as JSON.

Times are milliseconds since 1970. Offsets are the next one to read, intervals exclude their end.

A record is UTF-8 JSON; its SHA-256 is in the pointer and in the record's name. Unknown keys are ignored, so that a
later release may add some; ``format`` changes when one may not.
"""

from __future__ import annotations

import hashlib
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Literal, TypeVar

import msgspec
from msgspec.json import Decoder

from zkgroup.errors import ZkgroupError
from zkgroup.export.model.accounting import Interval
from zkgroup.export.model.layout import ColumnTypes, Layout
from zkgroup.export.model.plan_types import PartitionPlan, RecordFile, Slice
from zkgroup.protocol.names import TopicPartition

Kind = Literal["export", "backfill"]


@dataclass(frozen=True, slots=True)
class TopicIdentity:
    """The log that a topic's name means. ``czxid`` is that of its znode, ``topic_id`` that of 2.8 and later.

    ``cleanup``: its ``cleanup.policy``, None where it is unknown. ``tag``: marks the names of its files where the
    destination has files of an earlier log of that name, None otherwise.
    """

    czxid: int
    topic_id: str | None = None
    cleanup: str | None = None
    tag: str | None = None

    def is_same(self, other: TopicIdentity) -> bool:
        """Whether both are the same log, in one cluster."""
        if self.topic_id is not None and other.topic_id is not None:
            return self.topic_id == other.topic_id
        return self.czxid == other.czxid


#: Defaults: the size of a file, about how many messages one task reads, and the codec.
TARGET_BYTES, RANGE_MESSAGES, COMPRESSION = 512 << 20, 1_000_000, "zstd"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPart(PartitionPlan):
    """What a run has read of a partition: the plan up to the ``end`` that it has reached.

    ``end − start = rows + undecodable + sum(gaps)``; ``gaps`` counts offsets by kind, see ``accounting``.
    ``undecodable``: messages in the files whose key or value is not of its format. ``late`` (see ``LateCounter``)
    ones count among the others.
    """

    rows: int
    undecodable: int
    gaps: Mapping[str, int]
    late: int = 0

    @property
    def is_balanced(self) -> bool:
        """Whether every offset is accounted for."""
        return self.end - self.start == self.rows + self.undecodable + sum(self.gaps.values())

    @property
    def covered(self) -> list[Interval]:
        """The offsets that need not be exported any more: those that were read, and those that no log has."""
        gone = [(gap.start, gap.end) for gap in self.skipped if gap.kind == "retention"]
        return [*gone, (self.start, self.end)]


@dataclass(frozen=True, slots=True)
class TopicCoverage:
    """What a group's records account for of one log of a topic: of each partition the offsets, where exports ended, and
    the newest day or hour of its messages, where folders are of times."""

    identity: TopicIdentity
    partitions: Mapping[int, tuple[Interval, ...]] = field(default_factory=dict)
    ends: Mapping[int, int] = field(default_factory=dict)
    newest: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A decided run, as the destination's log keeps it. ``coverage``: what all the group's records up to this one
    account for. ``joined``: its export was a member of its group; of a backfill: the export before it was. ``bases``:
    the number of the group's run that each topic's table had before this one; what came after it was rolled back."""

    run: str
    group: str
    kind: Kind
    cluster: str
    planned: int
    decided: int
    isolation: str
    layout: Layout
    joined: bool
    partitions: tuple[RecordPart, ...]
    files: tuple[RecordFile, ...]
    topics: Mapping[str, TopicIdentity]
    coverage: Mapping[str, TopicCoverage]
    previous: str | None = None
    bases: Mapping[str, int] = field(default_factory=dict)


def ranges_by_part(parts: Iterable[RecordPart], files: Iterable[RecordFile]) -> list[list[tuple[str, Slice]]]:
    """The ranges that ``files``, named, hold of each part."""
    by_partition: dict[TopicPartition, list[tuple[Slice, str]]] = {}
    for file in files:
        for one in file.ranges:
            by_partition.setdefault(TopicPartition(file.topic, one.partition), []).append((one, file.name))
    for ranges in by_partition.values():
        ranges.sort(key=_start)
    found: list[list[tuple[str, Slice]]] = []
    for part in parts:  # of which a partition may have very many
        ranges = by_partition.get(part.partition, [])
        first = bisect_left(ranges, part.start, key=_start)
        last = bisect_right(ranges, part.end, key=_start)
        found.append([(name, one) for one, name in islice(ranges, first, last) if one.end <= part.end])
    return found


def _start(ranges: tuple[Slice, str]) -> int:
    return ranges[0].start


def now_ms() -> int:
    """This moment in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


FORMAT: Final = 1
T = TypeVar("T")
_WHY: Final = 200  # characters


class _RecordFormat(msgspec.Struct):
    format: int


# Made once: where two threads ask msgspec for a type for the first time, the process may end.
_RECORD = Decoder(RunRecord)
LAYOUTS, COLUMNS, _RECORD_FORMAT = Decoder(Layout), Decoder(ColumnTypes), Decoder(_RecordFormat)


class DamagedDocumentError(ZkgroupError):
    """A document of zkgroup's that is missing, or not as it was written. Nothing is written over it."""


def damaged(name: str, why: str) -> DamagedDocumentError:
    return DamagedDocumentError(f"{name} {why}", "restore it from a copy")


def digest(data: bytes) -> str:
    """The SHA-256 by which a document is named."""
    return hashlib.sha256(data).hexdigest()


def encode_record(record: RunRecord) -> bytes:
    document = {"format": FORMAT, **{name: getattr(record, name) for name in record.__dataclass_fields__}}
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def decode_record(name: str, data: bytes) -> RunRecord:
    """Read a record; ``name`` is for messages. Raises ``DamagedDocumentError``."""
    if (found := decode_document(name, data, _RECORD_FORMAT).format) != FORMAT:
        raise damaged(name, f"has format {found}; this release reads {FORMAT}")
    return decode_document(name, data, _RECORD)


def decode_document(name: str, data: bytes, decoder: Decoder[T]) -> T:
    """Read a document without a format, by ``LAYOUTS`` or ``COLUMNS``. Raises ``DamagedDocumentError``."""
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise damaged(name, f"cannot be read: {' '.join(str(error)[:_WHY].split())}") from None
