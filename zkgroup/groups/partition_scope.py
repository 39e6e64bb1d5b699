"""Selects partitions: ``TOPIC``, or ``TOPIC:0,2-5`` for some of a topic's partitions.

Kafka's topics have no colon in their names, but nodes that were created by hand may: all of ``a:0`` is ``a:0:``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from zkgroup.errors import NotFoundError, UsageError, did_you_mean
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.znodes import INT32_MAX, excerpt
from zkgroup.text import listed

_PART = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Scope:
    """Topics, each with ranges of partitions (first, last); without ranges, all of them."""

    topics: Mapping[str, tuple[tuple[int, int], ...]]

    def has(self, partition: TopicPartition) -> bool:
        ranges = self.topics.get(partition.topic)
        return ranges is not None and (not ranges or any(low <= partition.partition <= high for low, high in ranges))

    def select(self, existing: Mapping[str, Iterable[int]]) -> list[TopicPartition]:
        """The existing partitions in the scope. Raises ``NotFoundError`` for those that were named and do not exist."""
        check_topics(self.topics, existing)
        found = []
        for topic, ranges in self.topics.items():
            numbers = sorted(existing[topic])
            for low, high in ranges:
                there = {number for number in numbers if low <= number <= high}
                if high - low + 1 > len(there):
                    missing = next(number for number in range(low, high + 1) if number not in there)
                    raise no_partition(TopicPartition(topic, missing), numbers)
            found += [key for number in numbers if self.has(key := TopicPartition(topic, number))]
        return found


@dataclass(frozen=True, slots=True)
class Selection:
    """The partitions of a change. ``scope``: those that were named, None for all of the group's topics. ``listed``:
    those of a file, of which ``scope`` leaves some. ``gone``: they need not exist."""

    scope: Scope | None = None
    listed: frozenset[TopicPartition] | None = None
    gone: bool = False

    @property
    def topics(self) -> frozenset[str] | None:
        """The topics that were named; None for all of the group's."""
        if self.listed is not None:
            return frozenset(key.topic for key in self.listed if self.has(key))
        return None if self.scope is None else frozenset(self.scope.topics)

    def has(self, partition: TopicPartition) -> bool:
        if self.listed is not None and partition not in self.listed:
            return False
        return self.scope is None or self.scope.has(partition)


def check_topics(
    wanted: Iterable[str], existing: Collection[str], known: Callable[[], Iterable[str]] | None = None
) -> None:
    """Raise ``NotFoundError`` for topics that do not exist. ``known``: all that do, where ``existing`` are not all."""
    if missing := sorted(topic for topic in wanted if topic not in existing):
        remedy = did_you_mean(missing[0], existing if known is None else known(), "check the names")
        raise NotFoundError(f"there is no topic {listed(missing)}", remedy)


def no_partition(partition: TopicPartition, existing: Iterable[int]) -> NotFoundError:
    """The error for a partition that its topic does not have."""
    numbers = list(existing)
    there = f"0 to {numbers[-1]}" if numbers == list(range(len(numbers))) and numbers else ", ".join(map(str, numbers))
    return NotFoundError(f"topic {partition.topic} has no partition {partition.partition}", f"it has {there or 'none'}")


def whole(topic: str) -> str:
    """The text for all partitions of a topic."""
    return f"{topic}:" if ":" in topic else topic


def ranges(numbers: Iterable[int]) -> str:
    """``0,2-5``, as ``--topic`` takes them."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in found)


def parse_scope(texts: Iterable[str]) -> Scope:
    """Parse ``TOPIC``, ``TOPIC:P,P-P``, and the texts of ``whole``; ranges of a topic add up. Raises ``UsageError``."""
    topics: dict[str, tuple[tuple[int, int], ...]] = {}
    for text in texts:
        topic, ranges = _parse(text)
        znodes.offset_topic("group", topic)  # raises for what no topic can be called
        before = topics.get(topic)
        topics[topic] = () if not ranges or before == () else (*(before or ()), *ranges)
    return Scope(topics)


def _parse(text: str) -> tuple[str, tuple[tuple[int, int], ...]]:
    topic, colon, numbers = text.rpartition(":")
    if not colon:
        return text, ()
    if not numbers and ":" in topic:
        return topic, ()
    found = []
    for part in numbers.split(","):
        match = _PART.fullmatch(part.strip())
        low = int(match[1]) if match else 0
        high = int(match[2] or low) if match else -1
        if not topic or not low <= high <= INT32_MAX:
            raise UsageError(f"--topic {excerpt(text)} names no partitions", "write it as TOPIC or TOPIC:0,2-5")
        found.append((low, high))
    return topic, tuple(found)
