"""When the message at an offset was written, for many partitions at once: one fetch for each, in parallel.

It is the first message at the offset or after it, by its own timestamp. Brokers of 0.8 and 0.9 have no timestamps.
They find segments by the time of their last write, which gives a lower bound of the age.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Final

from zkgroup.clients.kafka.client import (
    TIMESTAMP_NOT_AVAILABLE,
    KafkaError,
    KafkaSettings,
    KafkaTopicPartition,
    Message,
    consumer,
)
from zkgroup.clients.kafka.log_offsets import offsets_for_times, partition_error
from zkgroup.clients.kafka.responses import MessageAge, MessageAges
from zkgroup.clients.kafka.timestamp_search import PASSING, has_no_time_index
from zkgroup.protocol.names import TopicPartition

#: What is fetched of a partition, in bytes: a batch of the default size, with room. A larger batch comes whole, the
#: next one only in the next response.
_PARTITION_BYTES: Final = 64 << 10
_RESPONSE_BYTES: Final = 8 << 20
_MAX_RESPONSE_BYTES: Final = 1_000_000_000
_WAIT: Final = 0.02
#: Seconds without any message after which the others have none to give: a tail that compaction has emptied.
_SILENCE: Final = 1.0
#: So many milliseconds may pass while messages are read, and clocks differ.
_AHEAD: Final = 60_000
#: The ages, in seconds, that segments of old brokers are compared with, rising.
_BOUNDS: Final = (60, 600, 3600, 6 * 3600, 86_400, 2 * 86_400, 7 * 86_400, 30 * 86_400)


def message_ages(
    settings: KafkaSettings, positions: Mapping[TopicPartition, Iterable[int]], now: int, timeout: float
) -> MessageAges:
    """The age, at ``now`` (milliseconds since 1970), of the first message at each position or after it. Positions lie
    within their logs, which have at least one more offset.

    Of partitions for which ``timeout`` seconds do not suffice ages are missing, with that reason. Raises
    ``ZkgroupError`` where old brokers do not answer.
    """
    if has_no_time_index(settings):
        return MessageAges(_bounds(settings, positions, now, timeout))
    reader = _TimeReader(settings, positions)
    reader.read(timeout)
    ages = {
        partition: {position: _age(now if at is None else at, now) for position, at in times.items()}
        for partition, times in reader.times.items()
    }
    return MessageAges(ages, reader.failures)


def _age(at: int, now: int) -> MessageAge:
    """The age of a message of this time. One of the future is new, or of a wrong clock: its age is unknown."""
    return MessageAge(max(0.0, (now - at) / 1000), is_at_least=at - now > _AHEAD)


def message_times(
    settings: KafkaSettings, positions: Mapping[TopicPartition, Iterable[int]], timeout: float
) -> dict[TopicPartition, dict[int, int]]:
    """The time (milliseconds since 1970) of the first message at each position or after it. Positions are those of
    ``message_ages``. Those are missing that have no message, or none that could be read within ``timeout`` seconds;
    with brokers of 0.8 and 0.9 all are."""
    if not positions or has_no_time_index(settings):
        return {}
    reader = _TimeReader(settings, positions)
    reader.read(timeout)
    return {
        partition: {position: at for position, at in times.items() if at is not None}
        for partition, times in reader.times.items()
    }


def _bounds(
    settings: KafkaSettings, positions: Mapping[TopicPartition, Iterable[int]], now: int, timeout: float
) -> dict[TopicPartition, dict[int, MessageAge]]:
    """Lower bounds. A broker returns the start of the last segment that was not written to since a time: messages up
    to that offset are older."""
    rounds = [dict.fromkeys(positions, max(0, now - age * 1000)) for age in _BOUNDS]
    ages: dict[TopicPartition, dict[int, MessageAge]] = {}
    for age, starts in zip(_BOUNDS, offsets_for_times(settings, rounds, timeout), strict=True):
        for partition, start in starts.items():
            for position in positions[partition]:
                if start is not None and position <= start:
                    ages.setdefault(partition, {})[position] = MessageAge(float(age), is_at_least=True)
    return ages


class _TimeReader:
    """Reads one message at each position; of several positions in a partition one after the other, as they rise.
    ``times``: milliseconds since 1970, None where no message follows; without messages that have no timestamp."""

    def __init__(self, settings: KafkaSettings, positions: Mapping[TopicPartition, Iterable[int]]) -> None:
        self._settings = settings
        self._left = {partition: sorted(set(its)) for partition, its in positions.items()}
        self.times: dict[TopicPartition, dict[int, int | None]] = {partition: {} for partition in positions}
        self.failures: dict[TopicPartition, str] = {}

    def read(self, timeout: float) -> None:
        """Read for at most ``timeout`` seconds."""
        anyhow = self._settings.with_isolation("read_uncommitted")
        source = consumer(
            anyhow,
            enable_partition_eof=True,
            queued_min_messages=1,
            fetch_queue_backoff_ms=1,
            fetch_wait_max_ms=5,
            fetch_max_bytes=_RESPONSE_BYTES,
            fetch_message_max_bytes=_PARTITION_BYTES,
            receive_message_max_bytes=_MAX_RESPONSE_BYTES,
        )
        try:
            source.assign([KafkaTopicPartition(*partition, its[0]) for partition, its in self._left.items()])
            deadline, silence = time.monotonic() + timeout, timeout
            # Silence is counted in waits: the time for which the process was stopped does not count.
            quiet = 0.0
            while self._left and quiet < silence and time.monotonic() < deadline:
                # One at a time: the rest of what was fetched of its partition is dropped without becoming an object.
                found = source.consume(1, _WAIT)
                if not found:
                    quiet += _WAIT
                    continue
                partition = self._add_age(found[0])
                if partition is None:
                    continue
                quiet, silence = 0.0, min(timeout, _SILENCE)
                source.incremental_unassign([KafkaTopicPartition(*partition)])
                if partition in self._left:
                    source.incremental_assign([KafkaTopicPartition(*partition, self._left[partition][0])])
        finally:
            source.close()
        self.failures |= dict.fromkeys(self._left, f"no message came within {round(timeout, 1):g} s")

    def _add_age(self, message: Message) -> TopicPartition | None:
        """Note what the message or the error tells; the partition that is to be read no more, or elsewhere."""
        topic, number, offset = message.topic(), message.partition(), message.offset()
        if topic is None or number is None or (partition := TopicPartition(topic, number)) not in self._left:
            return None
        left, error = self._left[partition], message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            if offset is None or offset < left[0]:
                return None
            self.times[partition] |= dict.fromkeys(left)  # control records are no messages
            del self._left[partition]
            return partition
        if error is not None:
            if error.code() in PASSING:
                return None
            self.failures[partition] = partition_error(partition, error, self._settings).reason
            del self._left[partition]
            return partition
        if offset is None or offset < left[0]:
            return None
        passed = [position for position in left if position <= offset]
        kind, at = message.timestamp()
        if kind != TIMESTAMP_NOT_AVAILABLE and at > 0:
            self.times[partition] |= dict.fromkeys(passed, at)
        del left[: len(passed)]
        if not left:
            del self._left[partition]
        return partition
