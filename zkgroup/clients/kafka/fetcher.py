"""Batches of messages for one stream, from librdkafka.

A ``Fetcher`` is touched by its reader's thread alone: confluent-kafka 2.16 gates each handle, and a call from another
thread starves next to a loop on ``consume()``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, cast

from zkgroup.clients.kafka.client import (
    Consumer,
    KafkaError,
    KafkaException,
    KafkaSettings,
    KafkaTopicPartition,
    Message,
    consumer,
)
from zkgroup.clients.kafka.connection_errors import ClientLog
from zkgroup.clients.kafka.message_contents import headers_of
from zkgroup.protocol.ledger import Run
from zkgroup.protocol.names import TopicPartition

log = logging.getLogger(__name__)

# The stubs make all of these optional; a message that is no error event has them.
topic_of = cast("Callable[[Message], str]", Message.topic)
partition_of = cast("Callable[[Message], int]", Message.partition)
offset_of = cast("Callable[[Message], int]", Message.offset)


def partition_at(message: Message) -> TopicPartition | None:
    """The partition of a message or an event; None for an event of the client as a whole."""
    topic, number = message.topic(), message.partition()
    return TopicPartition(topic, number) if topic is not None and number is not None else None


#: Messages asked for at once. confluent-kafka is fastest at 500 to 1000.
MAX_BATCH_MESSAGES: Final = 500
#: Bytes of a batch, and of librdkafka's queue, for all streams of a process together.
MAX_BATCH_BYTES: Final = 8 * 1024 * 1024
MAX_QUEUE_BYTES: Final = 48 * 1024 * 1024
#: Messages that librdkafka queues for all partitions, and for one at least: of keys and headers it counts no bytes.
MAX_QUEUE_MESSAGES: Final = 100_000
MIN_PARTITION_MESSAGES: Final = 10_000
#: How large messages are taken to be before any was seen: the first batches are small.
DEFAULT_MESSAGE_SIZE: Final = 1024.0 * 1024


def queue_options(sharers: int, partitions: int, *, report_ends: bool) -> dict[str, Any]:
    """Properties for a reader of so many partitions that shares the memory with others; ``report_ends``: it reports
    partitions' ends."""
    return {
        "queued_max_messages_kbytes": max(1024, MAX_QUEUE_BYTES // 1024 // sharers),
        "queued_min_messages": max(MIN_PARTITION_MESSAGES, MAX_QUEUE_MESSAGES // sharers // max(1, partitions)),
        "enable_partition_eof": report_ends,
    }


def batch_bytes(sharers: int) -> int:
    """Bytes that a batch of such a reader may hold."""
    return max(256 * 1024, MAX_BATCH_BYTES // sharers)


@dataclass(slots=True)
class Fetched:
    """One batch. ``runs`` has the partitions of the messages; ``ends`` are partitions read to their end (offset there);
    ``errors`` are partitions that cannot be read on."""

    messages: Sequence[Message] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    errors: list[tuple[TopicPartition | None, KafkaError]] = field(default_factory=list)


class Fetcher:
    """Reads the partitions it is given, in batches bounded in number and in bytes."""

    def __init__(
        self, settings: KafkaSettings, *, sharers: int = 1, report_ends: bool = False, **overrides: Any
    ) -> None:
        self._settings = settings
        self._sharers = sharers
        self._report_ends = report_ends
        self._overrides = overrides
        self._budget = batch_bytes(sharers)
        self._size = DEFAULT_MESSAGE_SIZE  # recent mean size of a message
        self._assigned: set[TopicPartition] = set()
        self._errors: list[KafkaError] = []
        self._consumer: Consumer | None = None
        self._log = ClientLog(log)

    def assign(self, share: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets, and no others."""
        if self._consumer is None:
            options = queue_options(self._sharers, len(share), report_ends=self._report_ends) | self._overrides
            self._consumer = consumer(self._settings, on_error=self._errors.append, client_log=self._log, **options)
        self._assigned = set(share)
        if share:
            self._consumer.assign([KafkaTopicPartition(*p, offset) for p, offset in share.items()])
        else:
            self._consumer.unassign()

    def add(self, share: Mapping[TopicPartition, int]) -> None:
        """Read those of ``share``, too, that are not read yet; the others go on where they are."""
        new = {partition: offset for partition, offset in share.items() if partition not in self._assigned}
        if self._consumer is None or not self._assigned:
            self.assign(share)
        elif new:
            self._assigned.update(new)
            self._consumer.incremental_assign([KafkaTopicPartition(*p, offset) for p, offset in new.items()])

    def seek(self, partition: TopicPartition, offset: int) -> None:
        assert self._consumer is not None
        self._consumer.incremental_unassign([KafkaTopicPartition(*partition)])
        self._consumer.incremental_assign([KafkaTopicPartition(*partition, offset)])

    def fetch(self, timeout: float) -> Fetched:
        """The next batch, waiting at most ``timeout`` seconds for it to fill.

        Raises nothing: faults of a partition, or of all of them, are in ``errors``.
        """
        assert self._consumer is not None
        wanted = (
            MAX_BATCH_MESSAGES
            if self._size * MAX_BATCH_MESSAGES <= self._budget
            else max(1, int(self._budget / self._size))
        )
        try:
            messages = self._consumer.consume(wanted, timeout)
        except KafkaException as error:
            return Fetched(errors=[(None, error.args[0])])
        self._log.report_recovery()
        fetched = Fetched()
        if self._errors:
            fetched.errors = [(None, error) for error in self._errors]
            self._errors.clear()
        if not messages:
            return fetched
        # any(), not a comparison with None: KafkaError's == fails on it.
        if any(map(Message.error, messages)):
            messages = self._sort_out(messages, fetched)
            if not messages:
                return fetched
        fetched.messages = messages
        fetched.runs = runs_of(messages)
        # Two lengths of a batch suffice to bound the next one; a sudden giant costs one batch.
        size = sum(lengths((messages[0], messages[-1]))) / 2
        self._size = max(size, self._size * 0.8 + size * 0.2)
        return fetched

    def _sort_out(self, messages: Iterable[Message], into: Fetched) -> list[Message]:
        kept = []
        for message in messages:
            error = message.error()
            if error is None:
                kept.append(message)
                continue
            partition = partition_at(message)
            if error.code() == KafkaError._PARTITION_EOF and partition is not None:
                into.ends[partition] = message.offset() or 0
            else:
                into.errors.append((partition, error))
        return kept

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None


def lengths(messages: Sequence[Message]) -> list[int]:
    """Bytes of each message: key, value and headers, and 64 for the message itself."""
    return [
        64
        + len(message.value() or b"")
        + len(message.key() or b"")
        + sum(len(name) + len(value or b"") for name, value in headers or ())
        for message, headers in zip(messages, headers_of(messages), strict=True)
    ]


def runs_of(messages: list[Message]) -> list[Run]:
    """Cut a batch where its partition changes."""
    keys = list(zip(map(topic_of, messages), map(partition_of, messages), strict=True))
    bounds = [0, *(place for place, (one, next_) in enumerate(pairwise(keys), 1) if one != next_), len(keys)]
    return [
        Run(TopicPartition(*keys[start]), start, stop, offset_of(messages[start]), offset_of(messages[stop - 1]) + 1)
        for start, stop in pairwise(bounds)
    ]
