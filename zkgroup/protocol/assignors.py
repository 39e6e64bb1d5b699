"""The Scala consumer's two partition assignors, in the variant of each release.

``range`` and ``roundrobin`` give the plans of ``kafka.consumer.RangeAssignor`` and ``RoundRobinAssignor`` (Kafka 0.8.2
to 1.1.1; before 0.8.2 range was built in and the only one). Every member computes the plan of the whole
group by itself, and all must get the same one: every order below is part of the protocol.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Final, Literal

from zkgroup.config.settings_table import STRATEGIES
from zkgroup.config.settings_table import Strategy as Strategy
from zkgroup.errors import AssignmentRefusedError, FilterSyntaxError, UsageError
from zkgroup.protocol.names import (
    INTERNAL_TOPICS,
    ConsumerThreadId,
    TopicPartition,
    parse_release,
    thread_order,
    utf16_order,
)
from zkgroup.protocol.znodes import Registration

#: Named by the first release of each variant. They differ in roundrobin only.
#: "0.8.2": hashes ``[topic,partition]`` and refuses unequal subscriptions. "0.10.2": hashes the same, refuses nothing.
#: "1.1" (1.0 and 1.1): hashes ``topic-partition``, refuses nothing.
Compat = Literal["0.8.2", "0.10.2", "1.1"]

#: More consumer threads than this in one group are a mistake in a registration. roundrobin, which goes round all of
#: them, is refused then; range needs no more threads than partitions.
MAX_THREADS: Final = 1_000_000


def compat_of(release: str) -> Compat:
    """The variant of a release from 0.8.0 to 1.1.1, else UsageError. (0.8.0 and 0.8.1 know range only.)"""
    version = parse_release(release)
    if not (0, 8, 0) <= version <= (1, 1, 1):
        raise UsageError(
            f"Kafka {release} has no consumer with groups in ZooKeeper",
            "give a release from 0.8.0 to 1.1.1",
        )
    if version < (0, 10, 2):
        return "0.8.2"
    return "0.10.2" if version < (1, 0, 0) else "1.1"


#: Strategies that plan each topic by itself, alike in all releases, and for any number of threads. Others deal the
#: partitions of all topics of the group together.
BY_TOPIC: Final[frozenset[Strategy]] = frozenset({"range"})


def strategies_of(release: str) -> tuple[Strategy, ...]:
    """The strategies that a release from 0.8.0 to 1.1.1 knows, its default first, else UsageError."""
    compat_of(release)
    return ("range",) if parse_release(release) < (0, 8, 2) else STRATEGIES


@dataclass(frozen=True, slots=True)
class Assignment:
    """A plan for a whole group.

    ``owners`` has every partition of every subscribed topic. ``ties`` lists groups of partitions with equal hash codes:
    the Scala consumer deals those in the order of a hash table, this assignor in the order of topic and partition, so
    that within such a group a Scala consumer may see the owners swapped.
    """

    owners: dict[TopicPartition, ConsumerThreadId]
    ties: tuple[tuple[TopicPartition, ...], ...] = ()

    def of(self, consumer_id: str) -> dict[TopicPartition, ConsumerThreadId]:
        """The share of one member."""
        return {partition: thread for partition, thread in self.owners.items() if thread.consumer_id == consumer_id}


class TopicSelections:
    """What registrations subscribe to, of ``topics``. A filter that several members share is matched once.

    A static registration stays as it is, with internal topics and topics that do not exist. A filter selects from
    ``topics``, each with the registration's streams, without the internal ones. Which are internal depends on the
    reader's release (``names.internal_topics``).
    """

    def __init__(
        self, topics: Iterable[str], *, exclude_internal: bool = True, internal: Collection[str] = INTERNAL_TOPICS
    ) -> None:
        self.topics = tuple(topics)
        self._exclude_internal = exclude_internal
        self._internal = internal
        self._selected: dict[tuple[str, str], tuple[str, ...] | UsageError] = {}

    def streams(self, registration: Registration) -> dict[str, int]:
        """Topic → streams. Raises UsageError where the expression cannot be read, or matched in time."""
        if registration.pattern == "static":
            return dict(registration.subscription)
        ((expression, streams),) = registration.subscription.items()
        key = (registration.pattern, expression)
        if key not in self._selected:
            from zkgroup.protocol.topic_filter import TopicFilter  # loading the package regex takes 20 ms

            try:
                topic_filter = TopicFilter(registration.pattern, expression)
                self._selected[key] = topic_filter.select(
                    self.topics, exclude_internal=self._exclude_internal, internal=self._internal
                )
            except UsageError as error:
                self._selected[key] = error
        found = self._selected[key]
        if isinstance(found, UsageError):
            raise found
        return dict.fromkeys(found, streams)


def resolve_all(
    registrations: Mapping[str, Registration],
    topics: Iterable[str],
    *,
    exclude_internal: bool = True,
    internal: Collection[str] = INTERNAL_TOPICS,
    refused: Callable[[str], object] | None = None,
) -> dict[str, dict[str, int]]:
    """The subscriptions of a whole group, by consumer id.

    ``refused``, where given, is called with the ids of members whose expression Java refuses; they select nothing.
    UsageError names the member whose expression cannot be read.
    """
    selections = TopicSelections(topics, exclude_internal=exclude_internal, internal=internal)
    resolved: dict[str, dict[str, int]] = {}
    for consumer_id, registration in registrations.items():
        try:
            resolved[consumer_id] = selections.streams(registration)
        except UsageError as error:
            if refused is None or not isinstance(error, FilterSyntaxError):
                raise type(error)(f"member {consumer_id}: {error.message}", error.remedy) from None
            refused(consumer_id)
            resolved[consumer_id] = {}
    return resolved


def assign(
    strategy: Strategy,
    compat: Compat,
    members: Mapping[str, Mapping[str, int]],
    partitions: Mapping[str, Sequence[int]],
) -> Assignment:
    """Compute the plan of a group.

    ``members``: consumer id → topic → streams, filters already resolved. ``partitions``: topic → its partitions, in any
    order; a topic that is missing has none. Raises AssignmentRefusedError where members of that variant would refuse,
    and for roundrobin among more than ``MAX_THREADS`` threads.
    """
    total = count_threads(members)
    if total > MAX_THREADS:
        if strategy == "range":
            return _range_of_many(members, partitions)
        raise AssignmentRefusedError(
            f"the group's members ask for {total} streams",
            f"find the registration with a wrong number; roundrobin is planned for at most {MAX_THREADS}",
        )
    threads = _threads_by_topic(members)
    if strategy == "range":
        return _range(threads, partitions)
    if compat == "0.8.2":
        _require_equal_subscriptions(threads)
    return _round_robin(compat, threads, partitions)


def count_threads(members: Mapping[str, Mapping[str, int]]) -> int:
    """The number of a group's consumer threads: a member's streams serve all of its topics."""
    return sum(max(topics.values(), default=0) for topics in members.values())


def _threads_by_topic(members: Mapping[str, Mapping[str, int]]) -> dict[str, list[ConsumerThreadId]]:
    """Topic → the sorted threads subscribed to it. Topics with equal sets of threads share one list."""
    streams_of: dict[str, dict[str, int]] = {}
    for consumer_id in sorted(members):
        for topic, streams in members[consumer_id].items():
            streams_of.setdefault(topic, {})[consumer_id] = streams
    sorted_threads: dict[tuple[tuple[str, int], ...], list[ConsumerThreadId]] = {}
    threads: dict[str, list[ConsumerThreadId]] = {}
    for topic in sorted(streams_of):
        shape = tuple(streams_of[topic].items())
        if shape not in sorted_threads:
            sorted_threads[shape] = thread_order(
                ConsumerThreadId(consumer_id, index) for consumer_id, count in shape for index in range(count)
            )
        threads[topic] = sorted_threads[shape]
    return threads


def _range_of_many(members: Mapping[str, Mapping[str, int]], partitions: Mapping[str, Sequence[int]]) -> Assignment:
    """``_range``, without building the threads that get no partition."""
    first: dict[str, list[ConsumerThreadId]] = {}
    for topic in sorted({topic for topics in members.values() for topic in topics}):
        each = [_in_order(name, topics[topic]) for name, topics in members.items() if topic in topics]
        merged = heapq.merge(*each, key=lambda thread: utf16_order(str(thread)))
        # One more than there are partitions shows that no thread gets two.
        first[topic] = list(islice(merged, len(set(partitions.get(topic, ()))) + 1))
    return _range(first, partitions)


def _in_order(consumer_id: str, streams: int) -> Iterator[ConsumerThreadId]:
    """A member's threads in the order of their ids as strings: 0, 1, 10, 11, 2."""
    if streams > 0:
        yield ConsumerThreadId(consumer_id, 0)
    index = 1
    for _ in range(streams - 1):
        yield ConsumerThreadId(consumer_id, index)
        if index * 10 < streams:
            index *= 10
        else:
            while index % 10 == 9 or index + 1 >= streams:
                index //= 10
            index += 1


def _range(threads: Mapping[str, list[ConsumerThreadId]], partitions: Mapping[str, Sequence[int]]) -> Assignment:
    owners: dict[TopicPartition, ConsumerThreadId] = {}
    for topic, consumers in threads.items():
        numbers = sorted(set(partitions.get(topic, ())))
        if not consumers:
            continue
        each, extra = divmod(len(numbers), len(consumers))
        start = 0
        for position, thread in enumerate(consumers[: len(numbers)]):
            end = start + each + (position < extra)
            for number in numbers[start:end]:
                owners[TopicPartition(topic, number)] = thread
            start = end
    return Assignment(owners)


def _require_equal_subscriptions(threads: Mapping[str, list[ConsumerThreadId]]) -> None:
    expected: tuple[str, list[ConsumerThreadId]] | None = None
    for topic, consumers in threads.items():
        if expected is None:
            expected = topic, consumers
        elif consumers is not expected[1] and consumers != expected[1]:
            raise AssignmentRefusedError(
                f"roundrobin of 0.8.2 to 0.10.1 refuses this group: {expected[0]} and {topic} are not read by the same"
                " consumer threads",
                "subscribe all members to the same topics, each with one number of streams, or use range",
            )


def _round_robin(
    compat: Compat,
    threads: Mapping[str, list[ConsumerThreadId]],
    partitions: Mapping[str, Sequence[int]],
) -> Assignment:
    everyone = thread_order({thread for consumers in _distinct(threads) for thread in consumers})
    if not everyone:
        return Assignment({})
    position_of = {thread: position for position, thread in enumerate(everyone)}
    # Topic → the positions, ascending, at which the circle stops for it.
    stops: dict[str, list[int]] = {}
    shared: dict[int, list[int]] = {}
    for topic, consumers in threads.items():
        if id(consumers) not in shared:
            shared[id(consumers)] = [position_of[thread] for thread in consumers]
        stops[topic] = shared[id(consumers)]
    hashed = sorted(_hashed_pairs(compat, threads, partitions))
    owners: dict[TopicPartition, ConsumerThreadId] = {}
    cursor = 0
    for _, pair in hashed:
        at = stops[pair.topic]
        next_stop = bisect_left(at, cursor)
        position = at[next_stop] if next_stop < len(at) else at[0]
        owners[pair] = everyone[position]
        cursor = position + 1 if position + 1 < len(everyone) else 0
    tied = (tuple(pair for _, pair in group) for _, group in groupby(hashed, key=lambda entry: entry[0]))
    return Assignment(owners, tuple(pairs for pairs in tied if len(pairs) > 1))


def _distinct(threads: Mapping[str, list[ConsumerThreadId]]) -> Iterable[list[ConsumerThreadId]]:
    return {id(consumers): consumers for consumers in threads.values()}.values()


def _hashed_pairs(
    compat: Compat,
    threads: Mapping[str, list[ConsumerThreadId]],
    partitions: Mapping[str, Sequence[int]],
) -> list[tuple[int, TopicPartition]]:
    before, between, after = ("", "-", "") if compat == "1.1" else ("[", ",", "]")
    pairs = []
    for topic, consumers in threads.items():
        if not consumers:
            continue
        prefix = extend_hash(0, before + topic + between)
        for number in set(partitions.get(topic, ())):
            code = signed(extend_hash(prefix, f"{number}{after}"))
            pairs.append((code, TopicPartition(topic, number)))
    return pairs


# --- Java's String.hashCode -------------------------------------------------------------------------------------------


def extend_hash(state: int, text: str) -> int:
    """Go on hashing with ``text``, from the unsigned 32-bit state that the text before it led to (0 at the start)."""
    if text.isascii():
        for unit in text.encode("ascii"):
            state = (31 * state + unit) & 0xFFFF_FFFF
        return state
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        state = (31 * state + (high << 8 | low)) & 0xFFFF_FFFF
    return state


def signed(state: int) -> int:
    """The hash code of a state, a signed 32-bit integer."""
    return state - 0x1_0000_0000 if state & 0x8000_0000 else state
