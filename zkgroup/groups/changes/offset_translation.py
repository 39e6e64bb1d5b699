"""Committed offsets of one cluster → offsets in the logs of another, to which its topics are mirrored.

For each partition all unconsumed messages are read, those of the target's log from the earliest time of them on, and
the consumed ones that this part may have copies of. What seems to be still to be copied is searched in the other
partitions: a mirror may not keep them, as MirrorMaker 1 does not.

The offset is right if the group reads every unconsumed message there: each one that was copied stands at the offset or
behind it, and each other one is still to be copied. Nothing is assumed of the mirror: it may begin late, lag, copy a
stretch again, or copy the newest messages first. So there is an offset only where

- the log has a copy of each unconsumed message up to the last one that was copied, and of none behind that; and
- reading began before all these copies, or the log has all unconsumed messages;

but for messages that are written while the logs are read: their copies stand behind the end that the target had before.

The offset is the last one from which these messages follow each other as they do at the source; where they are in
another order, that of the first of them. How far the mirror came is known by a message that does not recur.

Messages are compared by key, value, headers and timestamp; without what one end does not keep.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Final, Literal, TypeAlias

from zkgroup.clients.kafka.client import AdminClient, Consumer, KafkaSettings, admin_client
from zkgroup.clients.kafka.client import topics as read_topics
from zkgroup.clients.kafka.log_offsets import LogRange, offsets_for_times
from zkgroup.clients.kafka.message_fingerprints import read_fingerprints
from zkgroup.clients.kafka.message_times import first_since, has_no_time_index
from zkgroup.clients.kafka.range_reader import range_consumer
from zkgroup.clients.kafka.responses import ReadMessage
from zkgroup.clients.kafka.start_position import log_ranges
from zkgroup.clients.kafka.topic_metadata import cleanup_policies
from zkgroup.errors import OffsetOutOfRangeError
from zkgroup.groups.snapshot.broker_queries import answer_timeout
from zkgroup.protocol.names import TopicPartition

#: Why there is no position.
Reason: TypeAlias = Literal[
    "outside", "empty", "not mirrored yet", "mirrored later", "absent", "ambiguous", "too far behind", "scattered"
]
#: What copies have in common: of ``Fingerprint``.
Compared: TypeAlias = Literal["message", "untimed", "content"]


@dataclass(frozen=True, slots=True)
class SourceMessages:
    """The messages before a committed offset, and all from it on, up to the end after the target was read. The last
    ``new`` ones were written meanwhile. ``is_whole``: what was read of the target has no copy of an earlier message.
    ``has_lost``: the first ones of the log are gone. ``is_compacted``: others may be, too."""

    consumed: Sequence[ReadMessage]
    unread: Sequence[ReadMessage]
    is_whole: bool = True
    is_compacted: bool = False
    has_lost: bool = False
    new: int = 0


@dataclass(frozen=True, slots=True)
class TargetMessages:
    """The messages of the target's log up to its end; the first ``old`` ones (None: all) were there before the new ones
    of the source. ``is_whole``: no unread message has a copy before them.
    ``compared``: what both ends keep. ``is_compacted``: a message may be gone where its key has a later one,
    or where it deletes its key."""

    messages: Sequence[ReadMessage]
    old: int | None = None
    is_whole: bool = True
    compared: Compared = "message"
    is_compacted: bool = False


@dataclass(frozen=True, slots=True)
class Position:
    """Where the group goes on, and at most how many messages it ``repeated``; or why there is no such place."""

    offset: int | None
    repeated: int = 0
    reason: Reason | None = None


def digests_of(messages: Iterable[ReadMessage], compared: Compared) -> Iterator[bytes]:
    """What each message and its copies have in common."""
    return (getattr(one.fingerprint, compared) for one in messages)


def find_position(source: SourceMessages, target: TargetMessages) -> Position:
    """The last place in the target that surely skips nothing."""
    consumed, unread, log = (
        list(digests_of(one, target.compared)) for one in (source.consumed, source.unread, target.messages)
    )
    messages = [*consumed, *unread]
    counts = Counter(messages)
    copies = [one for one in log if one in counts]
    copied = set(copies)
    if not copies:
        return Position(None, reason="absent" if log else "not mirrored yet")
    unique = {one: n for n, one in enumerate(messages) if counts[one] == 1}
    if copied.isdisjoint(unique):
        return Position(None, reason="ambiguous")
    mirrored = _mirrored(messages, copies, unique) - len(consumed)
    ahead = unread[max(mirrored, 0) :]
    are_new = copied.isdisjoint(ahead)
    if mirrored < 0 or (len(ahead) > source.new and not (target.is_whole and are_new)):
        return Position(None, reason="not mirrored yet")
    needed = source.unread[:mirrored]
    if target.is_compacted:
        needed = _without_compacted(needed, copied, target.compared)
    expected = list(digests_of(needed, target.compared))
    if missing := Counter(expected) - Counter(copies):
        is_late = expected[0] in missing and copied.isdisjoint(consumed)
        return Position(None, reason="mirrored later" if is_late else "absent")
    start = _last_start(expected, log)
    if not are_new:  # new ones, whose copies are behind all that was there before them
        start = min(start, len(log) if target.old is None else target.old)
    # Messages of others are unread, too: all between copies, unless the source may have had them.
    places = [n for n, one in enumerate(log) if one in unique]
    first = places[0 if source.is_whole and not source.is_compacted else -1]
    start = next((n for n in range(first, start) if log[n] not in counts), start)
    others_are_new = source.is_whole and not source.has_lost and not source.is_compacted
    # A mirror may have changed the rest of a consumed message, or have left it out.
    contents = {one.fingerprint.content for one in source.consumed}
    read = target.messages
    again = sum(
        one in counts or message.fingerprint.content in contents or not others_are_new
        for one, message in zip(log[start:], read[start:], strict=True)
    ) - len(expected)
    return Position(read[start].offset if start < len(read) else read[-1].offset + 1, again)


def _mirrored(messages: Sequence[bytes], copies: Sequence[bytes], unique: Mapping[bytes, int]) -> int:
    """How many of the source's messages have been mirrored: up to the last one of those that do not recur, and those
    that follow it at both ends."""
    last = max(unique[one] for one in copies if one in unique)
    most = 0
    for index in (n for n, one in enumerate(copies) if one == messages[last]):
        follow = 0
        for here, there in zip(messages[last + 1 :], copies[index + 1 :], strict=False):
            if here != there:
                break
            follow += 1
        most = max(most, follow)
    return last + 1 + most


def _without_compacted(needed: Sequence[ReadMessage], copied: set[bytes], compared: Compared) -> list[ReadMessage]:
    """Without those that have no copy as compaction may have removed it."""
    later: set[bytes] = set()
    kept = []
    for one, digest in reversed(list(zip(needed, digests_of(needed, compared), strict=True))):
        if digest in copied or not (one.is_tombstone or one.fingerprint.key in later):
            kept.append(one)
        later.add(one.fingerprint.key)
    return kept[::-1]


def _last_start(expected: Sequence[bytes], log: Sequence[bytes]) -> int:
    """The last index of the log from which these follow each other, whatever lies between; else that of the first of
    them."""
    left = len(expected)
    if not left:
        return len(log)
    for index in range(len(log) - 1, -1, -1):
        if log[index] == expected[left - 1]:
            left -= 1
            if not left:
                return index
    among = set(expected)
    return next(n for n, one in enumerate(log) if one in among)


# --- the logs --------------------------------------------------------------------------------------------------------

#: At least so many consumed messages are looked for at the target.
CONTEXT: Final = 200
#: Where the offsets before a committed one hold no message, so many times as many are read.
_WIDER: Final = (1, 16, 256)
#: At most so many messages of a partition may be unread, or be at the target from the earliest of them on.
MAX_MESSAGES: Final = 250_000
#: So many more are read at both ends where no time leads to the messages.
AROUND: Final = 100_000


def translate_offsets(
    source: KafkaSettings,
    target: KafkaSettings,
    offsets: Mapping[TopicPartition, int],
    partitions: Mapping[TopicPartition, TopicPartition],
    timeout: float,
) -> dict[TopicPartition, Position]:
    """For each committed offset its position in the target. ``partitions``: source → target. ``timeout`` (seconds) is
    for each answer of the brokers. Raises ``ZkgroupError`` where a log cannot be read."""
    timeout = answer_timeout(timeout, len(offsets))
    here = _compacted(source, {one.topic for one in partitions}, timeout)
    there = _compacted(target, {one.topic for one in partitions.values()}, timeout)
    found: dict[TopicPartition, Position] = {}
    ahead: dict[TopicPartition, _Ahead] = {}
    all_here, here_committed = (source.with_isolation(one) for one in ("read_uncommitted", "read_committed"))
    there_committed = target.with_isolation("read_committed")  # what the mirror has aborted it copies again
    asks_here, asks_there = (None if one.is_old_and_plain else admin_client(one, timeout) for one in (source, target))
    with (
        closing(range_consumer(all_here)) as reader,
        closing(range_consumer(here_committed)) as committed,
        closing(range_consumer(there_committed)) as consumer,
    ):

        def at_source(key: TopicPartition) -> _Log:
            return _Log(all_here, asks_here, reader, key, timeout, here[key.topic])

        def at_target(key: TopicPartition) -> _Log:
            return _Log(there_committed, asks_there, consumer, key, timeout, there[key.topic])

        for key, offset in offsets.items():
            everything, copies = at_source(key), at_target(partitions[key])
            search = _Search(everything, copies, offset)
            found[key] = search.run()
            if found[key].offset is None and search.has_gaps:  # a mirror may leave out what its source has aborted
                log = _Log(here_committed, asks_here, committed, key, timeout, here[key.topic])
                again = _Search(log, copies, offset, everything)
                position = again.run()
                if position.offset is not None:
                    found[key], search = position, again
            if search.ahead is not None and search.ahead.digests:
                ahead[key] = search.ahead
        names = {key.topic: copy.topic for key, copy in partitions.items() if ahead}
        here_all, there_all = (read_topics(one, timeout) if ahead else {} for one in (source, target))
        for topic, name in names.items():
            missing = {key.partition: one for key, one in ahead.items() if key.topic == topic}
            logs = (
                (
                    number,
                    at_target(TopicPartition(name, number)),
                    at_source(TopicPartition(topic, number)) if number in here_all[topic] else None,
                )
                for number in there_all[name]
            )
            if _is_scattered(missing, logs):
                found |= {key: Position(None, reason="scattered") for key in found if key.topic == topic}
    return found


@dataclass(frozen=True, slots=True)
class _Ahead:
    """The unread messages of a partition that have no copy in the target's, and the earliest time of them, where it
    leads there."""

    digests: frozenset[bytes]
    compared: Compared
    first: int | None


def _is_scattered(missing: Mapping[int, _Ahead], logs: Iterable[tuple[int, _Log, _Log | None]]) -> bool:
    """Whether a partition of the target has copies of messages that are ``missing`` in another one, and that its own
    partition of the source does not have. ``logs``: each partition's number, and its logs there and here."""
    for number, target, source in logs:
        others = [one for partition, one in missing.items() if partition != number]
        for compared in {one.compared for one in others}:
            group = [one for one in others if one.compared == compared]
            times = [one.first for one in group]
            digests = frozenset().union(*(one.digests for one in group))
            # Of what the source has lost the target may have like messages.
            log = LogRange(0, AROUND) if source is None else source.range()
            kept = min(log.end - log.start, AROUND)
            found = target.find(digests, compared, times, kept + len(digests))
            if found and (source is None or found - source.find(found, compared, times, kept)):
                return True
    return False


def _compacted(settings: KafkaSettings, topics: Iterable[str], timeout: float) -> dict[str, bool | None]:
    """Whether each topic is compacted; None where brokers do not say."""
    policies = cleanup_policies(settings, topics, timeout)
    return {topic: None if policy is None else "compact" in policy for topic, policy in policies.items()}


@dataclass(frozen=True, slots=True)
class _Log:
    """The log of a partition, as a consumer with the isolation level of ``settings`` reads it. ``client`` asks for
    offsets (None: brokers that are old and plain)."""

    settings: KafkaSettings
    client: AdminClient | None
    consumer: Consumer
    partition: TopicPartition
    timeout: float
    is_compacted: bool | None

    @property
    def has_time_index(self) -> bool:
        """Whether its brokers find a time."""
        return not has_no_time_index(self.settings)

    def range(self) -> LogRange:
        """Its start and its end now."""
        committed = self.settings.isolation == "read_committed"
        ranges = log_ranges(self.settings, [self.partition], self.timeout, read_committed=committed, client=self.client)
        return ranges[self.partition]

    def messages(self, start: int, end: int, most: int | None = None) -> list[ReadMessage]:
        """Its messages with ``start`` ≤ offset < ``end``, but no more than one beyond ``most``."""
        reading = read_fingerprints(self.consumer, self.partition, start, end, self.timeout)
        return list(reading if most is None else islice(reading, most + 1))

    def since(self, millis: int, log: LogRange) -> int:
        """The offset before which all messages are older."""
        (answer,) = offsets_for_times(self.settings, [{self.partition: millis}], self.timeout, client=self.client)
        found = answer[self.partition]
        if found is None and log.start < log.end:  # it proves nothing
            places = {self.partition: (log.start, log.end)}
            found = first_since(self.settings, places, millis, self.timeout).offsets[self.partition]
        return log.end if found is None else max(log.start, found)

    def find(self, digests: Set[bytes], compared: Compared, times: Sequence[int | None], last: int) -> set[bytes]:
        """Those of the digests that a message has from the earliest of these times on; where one is missing, among so
        many ``last`` ones."""
        log, known = self.range(), [one for one in times if one is not None]
        start = self.since(min(known), log) if len(known) == len(times) else max(log.start, log.end - last)
        reading = read_fingerprints(self.consumer, self.partition, start, log.end, self.timeout)
        return {one for one in digests_of(reading, compared) if one in digests}


@dataclass(slots=True)
class _Search:
    """The search for one offset. ``everything``: the source with what was aborted, where ``source`` is without it.
    ``has_gaps``: some offsets hold no message, as those of transactions. ``ahead``: what has no copy at the target."""

    source: _Log
    target: _Log
    offset: int
    everything: _Log | None = None
    has_gaps: bool = False
    ahead: _Ahead | None = None

    def run(self) -> Position:
        """Raises ``ZkgroupError`` where a log cannot be read."""
        try:
            target_end = self.target.range().end  # first: what is written later has no copy before it
            return self._position(self.source.range(), target_end)
        except OffsetOutOfRangeError:  # retention was faster
            return Position(None, reason="outside")

    def _position(self, log: LogRange, target_end: int) -> Position:
        if not log.start <= self.offset <= log.end:
            return Position(None, reason="outside")
        unread, before = self.source.messages(self.offset, log.end, MAX_MESSAGES), self._last_consumed(log)
        if len(unread) > MAX_MESSAGES:
            return Position(None, reason="too far behind")
        copies = self.target.range()  # again: what is unread may have a copy by now
        read = [*before, *unread]
        self.has_gaps = bool(read) and len(read) < log.end - read[0].offset
        if log.start == log.end and copies.start == copies.end:
            return Position(copies.start)
        if not read:
            return Position(None, reason="empty")
        first = _earliest(read)
        if first is not None and self.target.has_time_index:
            start = min(target_end, self.target.since(first, copies))
            messages = self.target.messages(start, copies.end, MAX_MESSAGES)
            if all(one.is_created_at for one in messages):
                if len(messages) > MAX_MESSAGES:
                    return Position(None, reason="too far behind")
                first = _earliest([*before, *messages])
                start = log.start if first is None else min(self.source.since(first, log), self.offset)
                return self._find(log, unread, start, messages, target_end, "message")
        # No time leads to the messages: the log's end is read, from before a place that is as far from it.
        start = max(copies.start, min(target_end, copies.end - (log.end - self.offset) - AROUND))
        messages = self.target.messages(start, copies.end, MAX_MESSAGES + AROUND)
        if len(messages) > MAX_MESSAGES + AROUND:
            return Position(None, reason="too far behind")
        # Brokers that find times may keep headers, too; older ones do not.
        compared: Compared = "untimed" if self.source.has_time_index and self.target.has_time_index else "content"
        is_whole = start == copies.start
        return self._find(log, unread, log.start, messages, target_end, compared, is_whole=is_whole)

    def _find(
        self,
        log: LogRange,
        unread: Sequence[ReadMessage],
        start: int,
        messages: Sequence[ReadMessage],
        target_end: int,
        compared: Compared,
        *,
        is_whole: bool = True,
    ) -> Position:
        """``start``: where the consumed messages begin that may have a copy among ``messages``."""
        least = max(start, self.offset - (MAX_MESSAGES if compared == "message" else AROUND))
        end = self.source.range().end  # again: all that was read of the target is a copy of what is before it
        consumed, new = self.source.messages(least, self.offset), self.source.messages(log.end, end)
        copied = set(digests_of(messages, compared))
        # What recurs may be another partition's, too.
        counts = Counter(digests_of((*consumed, *unread, *new), compared))
        digests = {one for one in digests_of((*unread, *new), compared) if counts[one] == 1} - copied
        ahead = [one for one in (*unread, *new) if not digests.isdisjoint(digests_of([one], compared))]
        first = _earliest(ahead) if compared == "message" else None
        self.ahead = _Ahead(frozenset(digests), compared, first)
        if self.everything is not None:
            committed = set(digests_of((*consumed, *unread, *new), compared))
            aborted = set(digests_of(self.everything.messages(least, end), compared)) - committed
            if not aborted.isdisjoint(copied):
                return Position(None, reason="absent")  # the mirror copies what is aborted
        is_compacted = self.source.is_compacted
        if is_compacted is None:  # brokers before 0.11 do not say; gaps of transactions make it repeat more
            is_compacted = len(consumed) + len(unread) + len(new) < end - least
        return find_position(
            SourceMessages(
                consumed,
                [*unread, *new],
                is_whole=least == start,
                is_compacted=is_compacted,
                has_lost=log.start > 0,
                new=len(new),
            ),
            TargetMessages(
                messages,
                sum(one.offset < target_end for one in messages),
                is_whole,
                compared,
                bool(self.target.is_compacted),
            ),
        )

    def _last_consumed(self, log: LogRange) -> list[ReadMessage]:
        for wider in _WIDER:
            start = max(log.start, self.offset - CONTEXT * wider)
            found = self.source.messages(start, self.offset)
            if found or start == log.start:
                break
        return found[-CONTEXT:]


def _earliest(messages: Sequence[ReadMessage]) -> int | None:
    """The earliest time of messages; None where one of them has none."""
    times = [one.timestamp for one in messages if one.timestamp is not None]
    return min(times) if times and len(times) == len(messages) else None
