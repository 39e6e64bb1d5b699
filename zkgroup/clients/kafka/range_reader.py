"""Reading a range of offsets of one partition, exactly and in bounded memory.

A range ``[start, end)`` is complete when a message or an end-of-partition event arrives at ``end`` or after it. The
number of messages and the consumer's position do not show that: compacted messages, control records of transactions and
aborted messages leave invisible gaps, at the range's end too.

Seen with librdkafka 2.16 and handled here:

- ``consume(n, timeout)`` waits for n messages *or* the time-out; an end-of-partition event does not cut it short.
- A missing topic, a dead broker, or a response above ``receive.message.max.bytes`` cause no event at all: the reader
  needs a deadline, and must then ask the brokers for the cause.
- A tail whose last segments were emptied answers every fetch with nothing, below the high watermark, without any event.
- Messages of the oldest format have the timestamp ``(0, 0)``, and producers without a clock write −1.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

from zkgroup.clients.kafka.client import (
    MOVING,
    UNKNOWN,
    UNREACHABLE,
    Consumer,
    KafkaError,
    KafkaException,
    KafkaSettings,
    KafkaTopicPartition,
    Message,
    consumer,
)
from zkgroup.clients.kafka.fetcher import offset_of
from zkgroup.clients.kafka.message_contents import headers_of
from zkgroup.clients.kafka.native_reader import NativeMessages, NativeSource, native_module
from zkgroup.errors import NotFoundError, OffsetOutOfRangeError, OffsetsDeletedError, UnreachableError, ZkgroupError
from zkgroup.protocol.names import TopicPartition
from zkgroup.text import counted

# 2,000 small messages a call are as cheap as 500 in the call itself, and what is done once a batch is done less often.
_MAX_BATCH_MESSAGES = 2000
_BATCH_BYTES = 8 << 20
# How much librdkafka may fetch ahead. With it, a batch and a row group, a task stays below 250 MB. It counts values
# alone: the bytes of keys and headers are bounded by the number of messages. Messages of 100 bytes come some 900 at a
# time (``_PARTITION_BYTES``): below twice that, and below two batches, readers wait for brokers for a quarter of their
# time. Where keys and headers are large, next to nothing is fetched ahead.
_MAX_QUEUE_KBYTES = 8 << 10
_AHEAD = 4000
_AHEAD_LARGE = 4
# From how much of both, on the mean of a batch or at its end, they are large.
_MIN_LARGE_BYTES = 8 << 10
_LAST = 4
# For how long a full queue is left alone; the number of messages makes it full at every batch.
_FULL_MS = 1
# Python's memory for a header, without its name and value.
_HEADER_BYTES = 100
_FETCH_BYTES = 8 << 20
# Bytes of a partition in one fetch, as in the log: librdkafka unpacks all of it at once, and gzip packs repetitions
# to a thousandth. A batch that is larger comes whole.
_PARTITION_BYTES = 96 << 10
# The largest response that is taken: a message above the broker's usual limits must not make the reader fall silent.
_MAX_RESPONSE_BYTES = 1_000_000_000
# For how long a broker that has nothing more may keep a request: with one consumer the next range waits for its answer.
_LINGER_MS = 2
# Short, since an end-of-partition event does not end the wait, and all messages that come within it are kept.
_WAIT = 0.005
_MAX_TIMEOUT = 10.0  # seconds for one question to the brokers, at most

#: Errors that librdkafka reports and recovers from by itself: they only count when nothing comes any more.
PASSING: Final = (
    *UNREACHABLE,
    *MOVING,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.KAFKA_STORAGE_ERROR,
)


#: The batches of ``RangeReader``.
Messages: TypeAlias = list[Message] | NativeMessages


def range_consumer(settings: KafkaSettings, *, large: bool = False) -> Consumer:
    """A consumer for ``RangeReader``: bounded in bytes, telling of every end of partition. Close it.

    ``large``: keys and headers are. Then next to nothing is fetched ahead, or they would fill the memory; many small
    messages would come slower by that.
    """
    return consumer(settings, made=_Prompt, **_range_options(large=large))


def range_source(settings: KafkaSettings, *, large: bool = False) -> Consumer | NativeSource:
    """The native reader in the place of ``range_consumer``, where it is to be had. Close it."""
    module = native_module()
    if module is None:
        return range_consumer(settings, large=large)
    return NativeSource(module, settings, _range_options(large=large), _BATCH_BYTES)


def _range_options(*, large: bool) -> dict[str, Any]:
    return {
        "enable_partition_eof": True,
        "isolation_level": "read_committed",
        "queued_min_messages": _AHEAD_LARGE if large else _AHEAD,
        "fetch_queue_backoff_ms": _FULL_MS,
        "queued_max_messages_kbytes": _MAX_QUEUE_KBYTES,
        "fetch_max_bytes": _FETCH_BYTES,
        "fetch_message_max_bytes": _PARTITION_BYTES,
        "receive_message_max_bytes": _MAX_RESPONSE_BYTES,
        "fetch_wait_max_ms": _LINGER_MS,
    }


class _Prompt(Consumer):
    """Asks at once for the leaders of a topic that is new to it. librdkafka (2.16) asks when it connects, and then once
    a second: a thousand small topics would take a quarter of an hour."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._known: set[str] = set()

    def assign(self, partitions: list[KafkaTopicPartition], /) -> None:
        super().assign(partitions)
        topics = {partition.topic for partition in partitions} - self._known
        asks, self._known = bool(self._known), self._known | topics
        for topic in topics if asks else ():
            with suppress(KafkaException):  # the next read raises the error
                self.list_topics(topic, timeout=_MAX_TIMEOUT)


class RangeReader:
    """Reads ranges, one after the other, with one consumer; used by one thread.

    ``silence_timeout``: seconds without a message after which the brokers are asked for the reason.
    """

    def __init__(self, source: Consumer | NativeSource, silence_timeout: float = 30.0) -> None:
        self._source = source
        self._silence_timeout = silence_timeout
        self._ask = max(1.0, min(_MAX_TIMEOUT, silence_timeout))
        self._size = 1  # messages to ask for; follows their size
        self.is_large = False  # keys and headers were: ``range_consumer`` makes another consumer for such

    def batches(self, partition: TopicPartition, start: int, end: int) -> Iterator[Messages]:
        """Yield the messages with ``start`` ≤ offset < ``end``, in order, in non-empty batches bounded in bytes. The
        native reader may free a batch when the next is asked for.

        A tail that has vanished from the log is passed over. Raises ``OffsetOutOfRangeError`` where the log no longer
        has the range, ``NotFoundError`` where the partition is gone, ``UnreachableError`` where nothing comes and the
        brokers do not say why, ``ZkgroupError`` for what librdkafka cannot read.
        """
        position = start
        self._source.assign([KafkaTopicPartition(partition.topic, partition.partition, start)])
        silence = _Silence(self._silence_timeout)
        while position < end:
            batch, events = self._fetch(end - position)
            heard = bool(batch)
            complete = bool(batch) and bounds(batch)[1] >= end
            if complete:
                batch = _below(batch, end)
            if batch:
                position = _next_position(partition, position, batch)
                if isinstance(batch, NativeMessages):
                    yield from self._split_native(batch)
                    batch = []  # or it would stay in memory while the next is fetched
                else:
                    yield from _split(batch, self._adapt(batch))  # which empties it, before the next is fetched
                silence = _Silence(self._silence_timeout)
            for event in events:
                complete |= self._handle_event(partition, position, end, event, silence)
            if complete:
                return
            if not heard and silence.is_over():
                self._diagnose(partition, position, end, silence)
                if silence.was_empty:
                    return
                # Once more from where it fell silent: messages in a range that seems empty would be lost.
                self._source.assign([KafkaTopicPartition(partition.topic, partition.partition, position)])
                silence = _Silence(self._silence_timeout, was_empty=True)

    def _fetch(self, most: int) -> tuple[list[Message] | NativeMessages, list[Message]]:
        if isinstance(self._source, NativeSource):  # which bounds the bytes itself
            return self._source.fetch(min(_MAX_BATCH_MESSAGES, most), _WAIT)
        batch = self._source.consume(num_messages=min(self._size, most), timeout=_WAIT)
        if not any(map(Message.error, batch)):
            return batch, []
        events = [message for message in batch if message.error() is not None]
        return [message for message in batch if message.error() is None], events

    def _split_native(self, batch: NativeMessages) -> Iterator[NativeMessages]:
        """As ``_split``: each piece is freed when the next is asked for. Keys and headers are treated alike."""
        self.is_large |= (batch.batch.key_bytes + batch.batch.header_bytes) // len(batch.batch) >= _MIN_LARGE_BYTES
        if batch.size <= 2 * _BATCH_BYTES:
            yield batch
            return
        start = size = 0
        for place, more in enumerate(batch.sizes(headers=True), 1):
            size += more
            if size >= _BATCH_BYTES or place == len(batch):
                yield batch[start:place]
                batch.batch.release_first(batch.start + place)
                start, size = place, 0

    def _adapt(self, batch: list[Message]) -> int:
        """Ask for as many messages as fit; returns the memory of these."""
        others = _keys_and_headers(batch)
        size = sum(map(len, batch)) + others
        last = batch[-_LAST:]  # those to come are rather like the last ones
        others_last = _keys_and_headers(last) // len(last)
        likely = max(size // len(batch), sum(map(len, last)) // len(last) + others_last)
        self.is_large |= max(others // len(batch), others_last) >= _MIN_LARGE_BYTES
        self._size = min(_MAX_BATCH_MESSAGES, max(1, _BATCH_BYTES // (likely + 100)), self._size * 4)
        return size

    def _handle_event(
        self, partition: TopicPartition, position: int, end: int, event: Message, silence: _Silence
    ) -> bool:
        """Take notice of an event; True if it completes the range."""
        error = event.error()
        assert error is not None
        code = error.code()
        if _is_foreign(event, partition):
            return False
        if code == KafkaError._PARTITION_EOF:
            at = offset_of(event)
            silence.ended_at = at
            return at >= end
        if code in PASSING:
            silence.error = error
            return False
        if code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            low, high = self._watermarks(partition)
            raise _out_of_range(partition, position, end, low, high)
        if code in UNKNOWN:
            raise _gone(partition)
        raise ZkgroupError(f"reading {partition} at offset {position}: {error.str()} ({error.name()})")

    def _diagnose(self, partition: TopicPartition, position: int, end: int, silence: _Silence) -> None:
        """After a silence: raise the error, or return because ``[position, end)`` seems to be empty."""
        low, high = self._watermarks(partition)
        if low > position or high < end:
            raise _out_of_range(partition, position, end, low, high)
        if silence.ended_at is not None:
            raise ZkgroupError(
                f"{partition} ends at offset {silence.ended_at}, below {end} where it ended at the start",
                "check for an unclean leader election, and for an old open transaction",
            )
        if silence.error is None and self._answers_at(partition, end):
            return
        why = f" ({silence.error.str()})" if silence.error is not None else ""
        raise UnreachableError(
            f"{partition} gives nothing at offset {position} for {self._silence_timeout:g} s{why}",
            "check the brokers, then try again",
        )

    def _answers_at(self, partition: TopicPartition, offset: int) -> bool:
        """Whether the log answers behind the silent stretch, so that the stretch itself must be empty."""
        self._source.assign([KafkaTopicPartition(partition.topic, partition.partition, offset)])
        deadline = time.monotonic() + self._ask
        while time.monotonic() < deadline:
            for message in self._source.consume(num_messages=1, timeout=_WAIT):
                error = message.error()
                if (error is None or error.code() == KafkaError._PARTITION_EOF) and offset_of(message) >= offset:
                    return True
        return False

    def _watermarks(self, partition: TopicPartition) -> tuple[int, int]:
        try:
            answer = self._source.get_watermark_offsets(
                KafkaTopicPartition(partition.topic, partition.partition), timeout=self._ask, cached=False
            )
        except KafkaException as raised:
            error = raised.args[0]
            if error.code() in UNKNOWN:
                raise self._missing(partition) from None
            raise UnreachableError(
                f"the log of {partition}: {error.str()}", "check the brokers, then try again"
            ) from None
        if answer is None:
            raise UnreachableError(f"the leader of {partition} does not answer", "check the brokers, then try again")
        return answer

    def _missing(self, partition: TopicPartition) -> ZkgroupError:
        """librdkafka calls a partition unknown that has no leader at the moment: the metadata show the difference."""
        try:
            metadata = self._source.list_topics(partition.topic, timeout=self._ask)
        except KafkaException as raised:
            return UnreachableError(f"the log of {partition}: {raised.args[0].str()}", "check the brokers")
        if partition.partition in metadata.topics[partition.topic].partitions:
            return UnreachableError(f"{partition} has no leader", "start the brokers that have its replicas")
        return _gone(partition)


class _Silence:
    """How long nothing came, and which events came meanwhile.

    Counted in waits, not by the clock: the time for which this process was stopped, or busy elsewhere, is no silence.
    """

    def __init__(self, silence_timeout: float, *, was_empty: bool = False) -> None:
        self._waits = max(1, round(silence_timeout / _WAIT))
        self.was_empty = was_empty
        self.error: KafkaError | None = None
        self.ended_at: int | None = None

    def is_over(self) -> bool:
        """Count one more wait; whether it was the last."""
        self._waits -= 1
        return self._waits <= 0


def memory_size(messages: Sequence[Message]) -> int:
    """The memory of messages: the bytes of values, keys and headers, these as Python objects."""
    return sum(map(len, messages)) + _keys_and_headers(messages)  # a message's len is its value's


def _keys_and_headers(messages: Sequence[Message]) -> int:
    """Each message is counted, as any may be the large one."""
    keys = sum(len(key) for message in messages if (key := message.key()))
    headers = (pair for one in headers_of(messages) for pair in one or ())
    return keys + sum(name.__sizeof__() + len(value or b"") + _HEADER_BYTES for name, value in headers)


def _split(batch: list[Message], size: int) -> Iterator[list[Message]]:
    """All of the batch, which is left empty: in pieces if it is larger than was asked for, as when large messages
    follow small ones."""
    if size <= 2 * _BATCH_BYTES:
        whole = batch[:]
        batch.clear()
        yield whole
        return
    batch.reverse()
    while batch:
        piece: list[Message] = []
        size = 0
        while batch and size < _BATCH_BYTES:
            piece.append(batch.pop())
            size += memory_size(piece[-1:])
        yield piece


def _is_foreign(event: Message, partition: TopicPartition) -> bool:
    """Whether it is of another partition, such as the one that was read before. Events of the client are of none."""
    topic, number = event.topic(), event.partition()
    if topic is None:
        return False
    return topic != partition.topic or (number is not None and number not in (-1, partition.partition))


def _below(batch: list[Message] | NativeMessages, end: int) -> list[Message] | NativeMessages:
    if isinstance(batch, NativeMessages):
        return batch[: bisect_left(batch.offsets(), end)]
    return [message for message in batch if offset_of(message) < end]


def bounds(messages: Sequence[Message]) -> tuple[int, int]:
    if isinstance(messages, NativeMessages):
        offsets = messages.offsets()
        return offsets[0], offsets[-1]
    return offset_of(messages[0]), offset_of(messages[-1])


def _next_position(partition: TopicPartition, position: int, batch: Sequence[Message]) -> int:
    """The position behind ``batch``, which must go on where the last one ended: nothing twice, nothing foreign."""
    first, last = bounds(batch)
    if isinstance(batch, NativeMessages):
        where: tuple[str | None, int | None] = batch.batch.runs[0][:2]
    else:
        where = batch[0].topic(), batch[0].partition()
    if first < position or last - first + 1 < len(batch) or where != partition:
        raise ZkgroupError(f"{partition}: offsets {first} to {last} came at position {position}", "report this")
    return last + 1


def _out_of_range(partition: TopicPartition, position: int, end: int, low: int, high: int) -> OffsetOutOfRangeError:
    if low > position:
        count = min(low, end) - position
        return OffsetsDeletedError(
            f"{partition}: offsets {position} to {position + count - 1} ({counted(count, 'offset')}) were deleted from "
            f"the log, which now starts at {low}",
            "choose where to go on: retention overtook the reader",
        )
    return OffsetOutOfRangeError(
        f"{partition}: the log ends at {high}, below {end} where it ended at the start",
        "check whether the topic was truncated, or recreated",
    )


def _gone(partition: TopicPartition) -> NotFoundError:
    return NotFoundError(f"the brokers know no partition {partition}", "check whether the topic was deleted")
