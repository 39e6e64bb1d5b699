"""The first message since a time, also where the brokers do not find it; and the age of the message at an offset.

A broker (Kafka 1.1.1 to 3.9, ``Log.fetchOffsetsByTimestamp``) searches the first segment whose largest timestamp is not
before the time, and no other. A segment that compaction has emptied has its file's time and no message: the answer is
"none", whatever later segments contain. So that answer is checked:

1. The last messages are read. If one of them is not older than the time, "none" was wrong.
2. Brokers are asked for earlier times. An offset that they find is right: all messages before it are older. (An offset
   that they do not find proves nothing.) If only the last messages follow the last offset found, "none" is proven.
3. The messages after that offset are read up to the first one that is not older, all partitions at once.

At most ``MAX_MESSAGES`` are read, for ``MAX_SECONDS``, as long as messages come. Beyond that the answer is the position
that was reached, with a doubt: all messages before it are older, and none is skipped. Messages without a timestamp
count as older, as for brokers; where no other is found the first of them is the answer.

An age is that of the first message at the offset or after it, by its own timestamp: one fetch for each partition, in
parallel. Brokers of 0.8 and 0.9 have no timestamps. They find segments by the time of their last write, which gives a
lower bound of the age.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from zkgroup.clients.kafka.client import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaSettings,
    KafkaTopicPartition,
    Message,
    consumer,
)
from zkgroup.clients.kafka.fetcher import offset_of, partition_at
from zkgroup.clients.kafka.log_offsets import offsets_for_times, partition_error
from zkgroup.clients.kafka.range_reader import PASSING, range_consumer
from zkgroup.clients.kafka.responses import MessageAge, MessageAges, TimeOffsets
from zkgroup.errors import Notice
from zkgroup.protocol.names import TopicPartition

log = logging.getLogger(__name__)

#: The most messages that one search reads, of all partitions, and for how many seconds.
MAX_MESSAGES: Final = 2_000_000
MAX_SECONDS: Final = 30.0
#: How many offsets from the end the last messages are searched in: control records are none, and compaction removes
#: some.
TAILS: Final = (2, 32, 4096)
#: Brokers are asked for times so many ms before.
_DAY: Final = 86_400_000
_BACK: Final = (1, 1_000, 60_000, 600_000, 3_600_000, _DAY // 4, _DAY, 7 * _DAY, 30 * _DAY, 365 * _DAY)
_WAIT: Final = 0.02
#: Seconds without a message after which no more is waited for.
_SILENCE: Final = 1.0
_BATCH: Final = 500
_LEGACY: Final = ("0.8", "0.9")
UNREAD: Final = "all messages before are older; the rest was not read, and brokers do not find the time in it"
TIMELESS: Final = "brokers find no message since then; from here on there are messages that carry no time"


def has_no_time_index(settings: KafkaSettings) -> bool:
    """Whether the brokers count as 0.8 or 0.9, by their registrations or by librdkafka's properties."""
    properties = settings.properties
    release = settings.legacy_release
    if properties.get("api.version.request", "true").lower() in ("false", "f", "0"):
        release = properties.get("broker.version.fallback", release or "")
    return (release or "").startswith(_LEGACY)


def first_since(
    settings: KafkaSettings, logs: Mapping[TopicPartition, tuple[int, int]], millis: int, timeout: float
) -> TimeOffsets:
    """The first offset of each partition whose message is not older than ``millis`` (since 1970). ``logs``: their log
    start and end offsets. Raises ``ZkgroupError`` where a partition cannot be searched, or read."""
    (found,) = offsets_for_times(settings, [dict.fromkeys(logs, millis)], timeout)
    if has_no_time_index(settings):
        return TimeOffsets(found, by_segments=True)
    silent = {p: logs[p] for p, offset in found.items() if offset is None and logs[p][0] < logs[p][1]}
    if not silent:
        return TimeOffsets(found, by_segments=False)
    anyhow = settings.with_isolation("read_uncommitted")
    with closing(range_consumer(anyhow)) as source:
        places = _TimestampSearch(anyhow, source, millis, timeout).run(silent)
    doubts = {p: doubt for p, (_, doubt) in places.items() if doubt is not None}
    return TimeOffsets(found | {p: offset for p, (offset, _) in places.items()}, by_segments=False, doubts=doubts)


def offsets_since(
    settings: KafkaSettings,
    logs: Mapping[TopicPartition, tuple[int, int]],
    millis: int,
    timeout: float,
    on_warning: Callable[[Notice], None] = log.warning,
    what: str = "starts at",
) -> dict[TopicPartition, int]:
    """As ``first_since``, but an offset within each log. ``on_warning`` gets a notice for each doubt,
    "PARTITION ``what`` OFFSET: …"; by default it is logged as a warning."""
    found = first_since(settings, logs, millis, timeout)
    for partition, doubt in found.doubts.items():
        on_warning(Notice(f"{partition} {what} {found.offsets[partition]}: {doubt}"))
    # For brokers without a time index "none" means: before the first segment.
    nothing = 0 if found.by_segments else 1
    return {
        partition: log_range[nothing] if offset is None else min(log_range[1], max(log_range[0], offset))
        for partition, log_range in logs.items()
        for offset in (found.offsets.get(partition),)
    }


@dataclass(slots=True)
class _Range:
    """Offsets ``[begin, end)`` of a partition: read up to ``position``, or ``done``, and the messages found there."""

    begin: int
    end: int
    position: int = 0
    newest: int = -1
    hit: int | None = None  # the first that is not older
    timeless: int | None = None  # the first without a timestamp
    done: bool = False

    def __post_init__(self) -> None:
        self.position = self.begin

    def add(self, message: Message, millis: int) -> None:
        offset = offset_of(message)
        if self.done or offset < self.position:
            return
        if offset < self.end:
            kind, at = message.timestamp()
            if kind == TIMESTAMP_NOT_AVAILABLE or at < 0:
                self.timeless = offset if self.timeless is None else self.timeless
            elif at >= millis:
                self.hit = offset
            else:
                self.newest = max(self.newest, at)
            self.position = offset + 1
        self.done = self.hit is not None or offset >= self.end - 1


TimestampOffset = tuple[int | None, str | None]


class _TimestampSearch:
    """One search, in logs of which the brokers say that they have no message since then."""

    def __init__(self, settings: KafkaSettings, source: Consumer, millis: int, timeout: float) -> None:
        self._settings = settings
        self._source = source
        self._millis = millis
        self._timeout = timeout
        self._left = MAX_MESSAGES
        self._heard = False
        self._deadline = time.monotonic() + max(MAX_SECONDS, timeout)

    def run(self, logs: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, TimestampOffset]:
        tails = self._tails(logs)
        since = self._earlier(logs, tails)
        places: dict[TopicPartition, TimestampOffset] = {}
        ranges = {}
        for partition, (start, end) in logs.items():
            begin = max(start, since.get(partition, start))
            tail = tails.get(partition)
            older = tail is not None and tail.done and tail.hit is None and tail.timeless is None
            if older and tail is not None and partition in since and begin >= tail.begin:
                places[partition] = None, None
            else:
                ranges[partition] = _Range(begin, end)
        self._read(ranges)
        return places | {partition: _offset_in(searched) for partition, searched in ranges.items()}

    def _tails(self, logs: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, _Range]:
        """The last messages of each log; without those that have none among so many offsets."""
        found: dict[TopicPartition, _Range] = {}
        missing = logs
        for back in TAILS:
            tails = {p: _Range(max(start, end - back), end) for p, (start, end) in missing.items()}
            self._read(tails)
            found |= {p: tail for p, tail in tails.items() if tail.position > tail.begin}
            missing = {p: logs[p] for p, tail in tails.items() if tail.done and tail.position == tail.begin}
        return found

    def _earlier(
        self, logs: Mapping[TopicPartition, tuple[int, int]], tails: Mapping[TopicPartition, _Range]
    ) -> dict[TopicPartition, int]:
        """The last offset of each partition before which all messages are older, as far as brokers find it: by the
        time of the newest of the last messages, and by some before the wanted one. Without partitions in which they
        find none."""
        newest = {p: tail.newest for p, tail in tails.items() if tail.newest >= 0}
        rounds = [{p: newest.get(p, max(0, self._millis - 1)) for p in logs}]
        rounds += [dict.fromkeys(logs, max(0, self._millis - back)) for back in _BACK]
        found: dict[TopicPartition, int] = {}
        for answer in offsets_for_times(self._settings, rounds, self._timeout):
            for partition, offset in answer.items():
                if offset is not None:
                    found[partition] = max(found.get(partition, 0), offset)
        return found

    def _read(self, ranges: Mapping[TopicPartition, _Range]) -> None:
        """Read all of them at once, each up to its first message that is not older, until no more messages come, or the
        limits are reached. Raises the error of a partition that cannot be read."""
        reading = {p: searched for p, searched in ranges.items() if not searched.done}
        self._source.assign([KafkaTopicPartition(*p, searched.position) for p, searched in reading.items()])
        quiet = 0.0
        while reading and self._left > 0 and time.monotonic() < self._deadline:
            if quiet >= (_SILENCE if self._heard else self._timeout):
                break
            batch = self._source.consume(min(_BATCH, self._left), _WAIT)
            self._heard |= bool(batch)
            # In waits: the time for which the process was stopped does not count.
            quiet = 0.0 if batch else quiet + _WAIT
            for message in batch:
                partition = partition_at(message)
                if partition is None or (searched := reading.get(partition)) is None:
                    continue
                if (error := message.error()) is not None:
                    if error.code() not in (*PASSING, KafkaError._PARTITION_EOF):
                        raise partition_error(partition, error, self._settings)
                    searched.done |= (
                        error.code() == KafkaError._PARTITION_EOF and (message.offset() or 0) >= searched.end
                    )
                else:
                    self._left -= 1
                    searched.add(message, self._millis)
                if searched.done:
                    del reading[partition]
                    self._source.incremental_unassign([KafkaTopicPartition(*partition)])
        self._source.unassign()


def _offset_in(searched: _Range) -> TimestampOffset:
    if searched.hit is not None:
        return searched.hit, None
    if searched.timeless is not None:
        return searched.timeless, TIMELESS
    return (None, None) if searched.done else (searched.position, UNREAD)


#: What is fetched of a partition, in bytes: a batch of the default size, with room. A larger batch comes whole, the
#: next one only in the next response.
_PARTITION_BYTES: Final = 64 << 10
_RESPONSE_BYTES: Final = 8 << 20
_MAX_RESPONSE_BYTES: Final = 1_000_000_000
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
    times, failures = _read_times(settings, positions, timeout)
    ages = {
        partition: {position: _age(now if at is None else at, now) for position, at in its.items()}
        for partition, its in times.items()
    }
    return MessageAges(ages, failures)


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
    times, _ = _read_times(settings, positions, timeout)
    return {
        partition: {position: at for position, at in its.items() if at is not None} for partition, its in times.items()
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


def _read_times(
    settings: KafkaSettings, positions: Mapping[TopicPartition, Iterable[int]], timeout: float
) -> tuple[dict[TopicPartition, dict[int, int | None]], dict[TopicPartition, str]]:
    """The times of the messages at each position (milliseconds since 1970, None where no message follows; without
    messages that have no timestamp), and why partitions were not read to the end. Of several positions in a partition
    one is read after the other, as they rise."""
    left = {partition: sorted(set(its)) for partition, its in positions.items()}
    times: dict[TopicPartition, dict[int, int | None]] = {partition: {} for partition in positions}
    failures: dict[TopicPartition, str] = {}
    source = consumer(
        settings.with_isolation("read_uncommitted"),
        enable_partition_eof=True,
        queued_min_messages=1,
        fetch_queue_backoff_ms=1,
        fetch_wait_max_ms=5,
        fetch_max_bytes=_RESPONSE_BYTES,
        fetch_message_max_bytes=_PARTITION_BYTES,
        receive_message_max_bytes=_MAX_RESPONSE_BYTES,
    )
    with closing(source):
        source.assign([KafkaTopicPartition(*partition, its[0]) for partition, its in left.items()])
        deadline, silence = time.monotonic() + timeout, timeout
        quiet = 0.0  # in waits: the time for which the process was stopped does not count
        while left and quiet < silence and time.monotonic() < deadline:
            # One at a time: the rest of what was fetched of its partition is dropped without becoming an object.
            found = source.consume(1, _WAIT)
            if not found:
                quiet += _WAIT
                continue
            partition, offset, error = partition_at(found[0]), found[0].offset(), found[0].error()
            if partition is None or partition not in left or (error is not None and error.code() in PASSING):
                continue
            wanted = left[partition]
            is_end = error is not None and error.code() == KafkaError._PARTITION_EOF
            if error is not None and not is_end:
                failures[partition] = partition_error(partition, error, settings).reason
                wanted.clear()
            elif offset is None or offset < wanted[0]:
                continue
            elif is_end:
                times[partition] |= dict.fromkeys(wanted)  # control records are no messages
                wanted.clear()
            else:
                passed = [position for position in wanted if position <= offset]
                kind, at = found[0].timestamp()
                if kind != TIMESTAMP_NOT_AVAILABLE and at > 0:
                    times[partition] |= dict.fromkeys(passed, at)
                del wanted[: len(passed)]
            quiet, silence = 0.0, min(timeout, _SILENCE)
            source.incremental_unassign([KafkaTopicPartition(*partition)])
            if wanted:
                source.incremental_assign([KafkaTopicPartition(*partition, wanted[0])])
            else:
                del left[partition]
    return times, failures | dict.fromkeys(left, f"no message came within {round(timeout, 1):g} s")
