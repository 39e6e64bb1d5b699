"""Committed offsets of one cluster → offsets in the logs of another, to which its topics are mirrored.

For each partition the messages around the committed offset are read. Brokers of the target find the time of the nearest
ones there, and its log is read from that place on until all of them were seen. ``log_alignment`` decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final

from zkgroup.clients.kafka.client import Consumer, KafkaSettings
from zkgroup.clients.kafka.log_offsets import LogRange, offsets_for_times
from zkgroup.clients.kafka.message_fingerprints import ReadMessage, read_fingerprints
from zkgroup.clients.kafka.range_reader import range_consumer
from zkgroup.clients.kafka.start_position import log_ranges
from zkgroup.clients.kafka.timestamp_search import first_since, has_no_time_index
from zkgroup.errors import OffsetOutOfRangeError
from zkgroup.groups.changes.log_alignment import Position, SeenMessage, SourceWindow, TargetWindow, find_position
from zkgroup.groups.snapshot.broker_queries import answer_timeout
from zkgroup.protocol.names import TopicPartition

#: How many offsets are read on each side of a committed offset; where they hold no message, so many times as many.
CONTEXT: Final = 200
_WIDER: Final = (1, 16, 256)
#: Of so many messages on each side the earliest time is looked up in the target.
_NEAR: Final = 20
#: How many messages of a partition are read at the target, and how many without a match end the search once each
#: message of the source was seen.
MAX_MESSAGES: Final = 100_000
_QUIET: Final = 1_000


@dataclass(frozen=True, slots=True)
class _Around:
    """The messages around a committed offset, and its log."""

    before: Sequence[ReadMessage]
    after: Sequence[ReadMessage]
    log: LogRange

    @property
    def window(self) -> SourceWindow:
        return SourceWindow([one.fingerprint for one in self.before], [one.fingerprint for one in self.after])

    @property
    def time(self) -> int | None:
        """The earliest time of the nearest messages; None where one of them has none."""
        times = [one.timestamp for one in (*self.before[-_NEAR:], *self.after[:_NEAR])]
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
        self._target = _at_level(target, "read_committed")
        self._offsets = offsets
        self._partitions = partitions
        self._timeout = timeout
        self._copies = log_ranges(self._target, list(partitions.values()), timeout, read_committed=True)

    def run(self) -> dict[TopicPartition, Position]:
        """The position of each partition. A mirror may copy what its source has aborted, too, or leave it out."""
        around = self._read_source(list(self._offsets), "read_uncommitted")
        found = self._find(around)
        missing = [key for key, one in found.items() if one.offset is None and around[key] is not None]
        committed = self._read_source(missing, "read_committed") if missing else {}
        others = {key: one for key, one in committed.items() if one is not None and one != around[key]}
        return found | {key: one for key, one in self._find(others).items() if one.offset is not None}

    def _read_source(self, keys: Sequence[TopicPartition], level: str) -> dict[TopicPartition, _Around | None]:
        """The messages around the offset of each partition."""
        logs = log_ranges(self._source, keys, self._timeout, read_committed=level == "read_committed")
        with closing(range_consumer(_at_level(self._source, level))) as consumer:
            return {key: self._around(consumer, key, logs[key]) for key in keys}

    def _find(self, around: Mapping[TopicPartition, _Around | None]) -> dict[TopicPartition, Position]:
        found: dict[TopicPartition, Position] = {}
        begins = self._begins({key: one for key, one in around.items() if one is not None})
        with closing(range_consumer(self._target)) as consumer:
            for key, one in around.items():
                log = self._copies[self._partitions[key]]
                if one is None:
                    found[key] = Position(None, reason="outside")
                elif one.log.start == one.log.end and log.start == log.end:
                    found[key] = Position(log.start)
                elif not one.before and not one.after:
                    found[key] = Position(None, reason="empty")
                else:
                    begin, by_time = begins[key]
                    found[key] = self._position(consumer, self._partitions[key], one, log, begin, by_time=by_time)
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
        return _Around(before[-CONTEXT:], after, log)

    def _begins(self, around: Mapping[TopicPartition, _Around]) -> dict[TopicPartition, tuple[int, bool]]:
        """Where reading begins at the target, and whether that is the place of a time. Without times it is around a
        place that is as far from the end as the offset at the source."""
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
                begins[key] = log.end if found is None else max(log.start, found), True
            else:
                lag = one.log.end - self._offsets[key]
                begins[key] = max(log.start, log.end - lag - MAX_MESSAGES // 2), False
        return begins

    def _position(
        self, consumer: Consumer, copy: TopicPartition, around: _Around, log: LogRange, begin: int, *, by_time: bool
    ) -> Position:
        if begin == log.end:
            return Position(None, reason="not mirrored yet")
        messages = read_fingerprints(consumer, copy, begin, log.end, self._timeout)
        window = _read_target(messages, around, from_start=begin == log.start or not by_time)
        found = find_position(around.window, window)
        is_unread = found.reason == "mirrored later" and begin > log.start
        return Position(None, reason="absent") if is_unread else found


def _at_level(settings: KafkaSettings, level: str) -> KafkaSettings:
    return replace(settings, properties={**settings.properties, "isolation.level": level})


def _read_target(messages: Iterator[ReadMessage], around: _Around, *, from_start: bool) -> TargetWindow:
    """The messages of the target that are around the offset, too."""
    wanted = [one.fingerprint for one in (*around.before, *around.after)]
    contents = {one.content for one in wanted}
    whole = Counter(one.message for one in wanted)
    parts = Counter(one.content for one in wanted)
    seen: list[SeenMessage] = []
    last, ordinal = 0, -1
    for ordinal, (offset, _, fingerprint) in enumerate(messages):
        if fingerprint.content in contents:
            seen.append(SeenMessage(ordinal, offset, fingerprint))
            last = ordinal
            _take(parts, fingerprint.content)
            _take(whole, fingerprint.message)
        if not whole or (not parts and ordinal - last >= _QUIET):
            return TargetWindow(seen, ordinal + 1, from_start, to_end=False)
        if ordinal + 1 >= MAX_MESSAGES:
            return TargetWindow(seen, ordinal + 1, from_start, to_end=False, is_cut=True)
    return TargetWindow(seen, ordinal + 1, from_start)


def _take(left: Counter[bytes], one: bytes) -> None:
    if left[one] > 1:
        left[one] -= 1
    else:
        del left[one]  # of a Counter, also where it is missing
