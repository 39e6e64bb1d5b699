"""Batches, single messages, and the position of an iteration within a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zkgroup.clients.kafka.client import Message
from zkgroup.clients.kafka.fetcher import offset_of
from zkgroup.errors import MissingExtraError
from zkgroup.protocol.ledger import Run
from zkgroup.protocol.names import TopicPartition


@dataclass(frozen=True, slots=True)
class Batch:
    """At least one message. ``runs`` cut them by partition. A batch has a length and can be iterated."""

    messages: Sequence[Message]
    runs: list[Run]

    def __len__(self) -> int:
        return len(self.messages)

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    def to_arrow(self) -> Any:
        """The messages as a ``pyarrow.Table``, a row each, a chunk for each run. Its memory is its own.

        Columns: ``topic`` string, ``partition`` int32, ``offset`` int64; ``timestamp`` timestamp[ms, UTC],
        ``timestamp_type`` dictionary of string (``CreateTime``, ``LogAppendTime``), ``timestamp_raw`` int64 (a number
        that no calendar has; ``timestamp`` is null then); ``key`` and ``value`` binary; ``headers``
        list<struct<key: string, value: binary>>. All but the first three are null where a message has nothing.
        Raises ``MissingExtraError`` without pyarrow.
        """
        try:
            from zkgroup.clients.kafka.arrow_columns import make_table
        except ImportError:
            raise MissingExtraError("Batch.to_arrow()", "pyarrow", "export") from None
        return make_table(self.messages, self.runs)

    def offsets_before(self, count: int) -> dict[TopicPartition, int]:
        """The next offset of each partition once the first ``count`` messages are consumed."""
        offsets: dict[TopicPartition, int] = {}
        for run in self.runs:
            if run.stop <= count:
                offsets[run.partition] = run.next
            elif run.start < count:
                offsets[run.partition] = offset_of(self.messages[count - 1]) + 1
        return offsets


def trimmed(messages: Sequence[Message], runs: Sequence[Run], positions: Mapping[TopicPartition, int]) -> Batch:
    """The messages in ``runs`` whose offsets are at the positions of their partitions, or after them."""
    kept: list[Message] = []
    kept_runs: list[Run] = []
    for run in runs:
        part = list(messages[run.start : run.stop])
        position = positions[run.partition]
        if run.first < position:
            part = [message for message in part if offset_of(message) >= position]
        kept_runs.append(Run(run.partition, len(kept), len(kept) + len(part), offset_of(part[0]), run.next))
        kept += part
    return Batch(kept, kept_runs)


@dataclass(slots=True)
class Cursor:
    """The position of an iteration within a batch: ``given`` messages were delivered, ``done`` of them are consumed."""

    batch: Batch
    given: int = 0
    done: int = 0

    @property
    def is_at_end(self) -> bool:
        return self.given == len(self.batch.messages)


@dataclass(frozen=True, slots=True)
class Record:
    """One message. ``timestamp`` is milliseconds since 1970, None where the message has none."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
