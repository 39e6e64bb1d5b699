"""The demo's checks: was every message read, and exported once? Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from zkgroup.protocol.names import TopicPartition

if TYPE_CHECKING:
    from zkgroup.export.spark.readback import PartitionRows  # brings Spark

#: The offsets ``[start, end)`` of each partition.
Ranges: TypeAlias = Mapping[TopicPartition, tuple[int, int]]


def messages(ranges: Ranges) -> int:
    """The number of messages in the ranges (of logs without gaps)."""
    return sum(end - start for start, end in ranges.values())


def parse_printed(lines: Iterable[bytes]) -> list[tuple[TopicPartition, int]]:
    """The partition and offset of lines that begin with topic, partition, offset and a tab after each."""
    parts = (line.split(b"\t", 3) for line in lines)
    return [(TopicPartition(topic.decode(), int(number)), int(offset)) for topic, number, offset, _ in parts]


@dataclass(frozen=True, slots=True)
class ReadingCheck:
    """Counts of a group's messages: expected, never read, read more than once, and read but not expected."""

    expected: int
    missing: int
    repeated: int
    foreign: int


def check_reading(expected: Ranges, printed: Iterable[tuple[TopicPartition, int]]) -> ReadingCheck:
    """Compare the printed messages of all members with the expected ones."""
    times = Counter(printed)
    wanted = {(partition, offset) for partition, (start, end) in expected.items() for offset in range(start, end)}
    return ReadingCheck(
        expected=len(wanted),
        missing=len(wanted - times.keys()),
        repeated=sum(1 for count in times.values() if count > 1),
        foreign=len(times.keys() - wanted),
    )


def export_defects(expected: Ranges, found: Mapping[TopicPartition, PartitionRows]) -> list[str]:
    """The differences between an export and exactly one row per expected message; empty if there are none."""
    wanted = {partition: span for partition, span in expected.items() if span[1] > span[0]}
    defects = [f"{partition} was not to be exported" for partition in sorted(found.keys() - wanted.keys())]
    for partition, (start, end) in sorted(wanted.items()):
        there = found.get(partition)
        if there is None:
            defects.append(f"{partition} is not there")
            continue
        if there.rows != there.offsets:
            defects.append(f"{partition} has {there.rows - there.offsets} rows that are there already")
        if (there.first, there.last, there.offsets) != (start, end - 1, end - start):
            defects.append(
                f"{partition} has {there.offsets} offsets from {there.first} to {there.last}, "
                f"not {end - start} from {start} to {end - 1}"
            )
    return defects
