"""Committed offsets of one cluster → offsets in the logs of another, to which its topics are mirrored.

For each partition the messages around the committed offset are read. Brokers of the target find the earliest time of
them there, and both logs are read from that place on. ``log_alignment`` decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

from zkgroup.clients.kafka.client import Consumer, KafkaSettings
from zkgroup.clients.kafka.log_offsets import LogRange, offsets_for_times
from zkgroup.clients.kafka.message_fingerprints import read_fingerprints
from zkgroup.clients.kafka.range_reader import range_consumer
from zkgroup.clients.kafka.responses import ReadMessage
from zkgroup.clients.kafka.start_position import log_ranges
from zkgroup.clients.kafka.timestamp_search import first_since, has_no_time_index
from zkgroup.clients.kafka.topic_configs import cleanup_policies
from zkgroup.errors import OffsetOutOfRangeError
from zkgroup.groups.changes.log_alignment import (
    CONTEXT,
    Position,
    SourceMessages,
    TargetMessages,
    find_position,
)
from zkgroup.groups.snapshot.broker_queries import answer_timeout
from zkgroup.protocol.names import TopicPartition

#: Where the offsets before a committed one hold no message, so many times as many are read.
_WIDER: Final = (1, 16, 256)
#: How many messages of a partition are read at the target, at most; twice as many at the source. Fewer do not decide,
#: whatever their timestamps: messages are replayed with their old ones.
MAX_MESSAGES: Final = 100_000


@dataclass(frozen=True, slots=True)
class _Around:
    """The messages around a committed offset, up to the offset ``end``, and its log."""

    before: Sequence[ReadMessage]
    after: Sequence[ReadMessage]
    end: int
    log: LogRange

    @property
    def time(self) -> int | None:
        """The earliest time of them; None where one of them has none."""
        times = [one.timestamp for one in (*self.before, *self.after)]
        known = [at for at in times if at is not None]
        return min(known) if known and len(known) == len(times) else None


def translate_offsets(
    source: KafkaSettings,
    target: KafkaSettings,
    offsets: Mapping[TopicPartition, int],
    partitions: Mapping[TopicPartition, TopicPartition],
    timeout: float,
) -> dict[TopicPartition, Position]:
    """For each committed offset its position in the target. ``partitions``: source → target. ``timeout`` (seconds) is
    for each answer of the brokers. Raises ``ZkgroupError`` where a log cannot be read."""
    return _Translation(source, target, offsets, partitions, answer_timeout(timeout, len(offsets))).run()


class _Translation:
    def __init__(
        self,
        source: KafkaSettings,
        target: KafkaSettings,
        offsets: Mapping[TopicPartition, int],
        partitions: Mapping[TopicPartition, TopicPartition],
        timeout: float,
    ) -> None:
        self._source = source
        # What the mirror has aborted it copies again.
        self._target = target.with_isolation("read_committed")
        self._offsets = offsets
        self._partitions = partitions
        self._timeout = timeout
        self._copies = log_ranges(self._target, list(partitions.values()), timeout, read_committed=True)
        here = cleanup_policies(source, {one.topic for one in partitions}, timeout)
        there = cleanup_policies(target, {one.topic for one in partitions.values()}, timeout)
        self._compacted = {
            key
            for key, copy in partitions.items()
            if "compact" in (here[key.topic] or "") or "compact" in (there[copy.topic] or "")
        }

    def run(self) -> dict[TopicPartition, Position]:
        """The position of each partition. A mirror may copy what its source has aborted, too, or leave it out."""
        around = self._read_source(list(self._offsets), "read_uncommitted")
        found = self._find(around, "read_uncommitted")
        missing = [key for key, one in found.items() if one.offset is None and around[key] is not None]
        committed = self._read_source(missing, "read_committed") if missing else {}
        others = {key: one for key, one in committed.items() if one is not None and one != around[key]}
        return found | {key: one for key, one in self._find(others, "read_committed").items() if one.offset is not None}

    def _read_source(self, keys: Sequence[TopicPartition], level: str) -> dict[TopicPartition, _Around | None]:
        """The messages around the offset of each partition."""
        logs = log_ranges(self._source, keys, self._timeout, read_committed=level == "read_committed")
        with closing(range_consumer(self._source.with_isolation(level))) as consumer:
            return {key: self._around(consumer, key, logs[key]) for key in keys}

    def _find(self, around: Mapping[TopicPartition, _Around | None], level: str) -> dict[TopicPartition, Position]:
        found: dict[TopicPartition, Position] = {}
        begins = self._begins({key: one for key, one in around.items() if one is not None})
        with (
            closing(range_consumer(self._source.with_isolation(level))) as source,
            closing(range_consumer(self._target)) as target,
        ):
            for key, one in around.items():
                log = self._copies[self._partitions[key]]
                if one is None:
                    found[key] = Position(None, reason="outside")
                elif one.log.start == one.log.end and log.start == log.end:
                    found[key] = Position(log.start)
                elif not one.before and not one.after:
                    found[key] = Position(None, reason="empty")
                elif begins[key] == log.end:
                    found[key] = Position(None, reason="not mirrored yet")
                else:
                    found[key] = self._position(source, target, key, one, begins[key])
        return found

    def _around(self, consumer: Consumer, key: TopicPartition, log: LogRange) -> _Around | None:
        """The messages around an offset; None where it is outside its log."""
        offset = self._offsets[key]
        if not log.start <= offset <= log.end:
            return None
        for wider in _WIDER:
            start, end = max(log.start, offset - CONTEXT * wider), min(log.end, offset + CONTEXT)
            try:
                messages = list(read_fingerprints(consumer, key, start, end, self._timeout))
            except OffsetOutOfRangeError:  # retention was faster
                return None
            before = [one for one in messages if one.offset < offset]
            if before or start == log.start:
                break
        after = [one for one in messages if one.offset >= offset]
        return _Around(before[-CONTEXT:], after, end, log)

    def _begins(self, around: Mapping[TopicPartition, _Around]) -> dict[TopicPartition, int]:
        """Where reading begins at the target: at the earliest time. Without times it is around a place that is as far
        from the end as the offset at the source."""
        times = {key: at for key, one in around.items() if (at := one.time) is not None}
        if has_no_time_index(self._target):
            times = {}
        asked = {self._partitions[key]: at for key, at in times.items()}
        (answers,) = offsets_for_times(self._target, [asked], self._timeout)
        begins = {}
        for key, one in around.items():
            copy, log = self._partitions[key], self._copies[self._partitions[key]]
            if key in times:
                found = answers[copy]
                if found is None and log.start < log.end:  # it proves nothing
                    since = first_since(self._target, {copy: (log.start, log.end)}, times[key], self._timeout)
                    found = since.offsets[copy]
                begins[key] = log.end if found is None else max(log.start, found)
            else:
                lag = one.log.end - self._offsets[key]
                begins[key] = max(log.start, log.end - lag - MAX_MESSAGES // 2)
        return begins

    def _position(
        self, source: Consumer, target: Consumer, key: TopicPartition, around: _Around, begin: int
    ) -> Position:
        copy, offset = self._partitions[key], self._offsets[key]
        log, by_time = self._copies[copy], around.time is not None and not has_no_time_index(self._target)
        copying = read_fingerprints(target, copy, begin, log.end, self._timeout)
        first, start = [*around.before, *around.after], around.end
        if not by_time:  # messages recur, also before the offset
            first, start = [], max(around.log.start, min(first[0].offset, offset - MAX_MESSAGES // 2))
        reading = chain(first, read_fingerprints(source, key, start, around.log.end, self._timeout))
        copies = list(islice(copying, MAX_MESSAGES))
        try:
            messages = list(islice(reading, 2 * MAX_MESSAGES))
        except OffsetOutOfRangeError:  # retention was faster
            return Position(None, reason="outside")
        return find_position(
            SourceMessages(
                [one for one in messages if one.offset < offset],
                [one for one in messages if one.offset >= offset],
            ),
            TargetMessages(
                copies,
                from_start=by_time or begin == log.start,
                to_end=len(copies) < MAX_MESSAGES,
                has_times=by_time and all(one.is_created_at for one in copies),
                is_compacted=key in self._compacted,
            ),
        )
