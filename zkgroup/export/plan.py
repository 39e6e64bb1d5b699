"""What an export reads and where it leaves the group: decided from facts alone. And the words for it all.

A plan fixes the ranges before anything is read, with the version of every offset node, so that whoever carries it out
can be repeated and can be refused. Nothing here touches a server.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from zkgroup.errors import RefusedError
from zkgroup.protocol.names import TopicPartition

Begin = Literal["earliest", "latest"]
Compression = Literal["zstd", "snappy", "gzip", "lz4", "none"]

#: Messages of one range, about: Spark tells of progress when a task ends, and a task is repeated as a whole.
RANGE_MESSAGES = 1_000_000
# What opening a range costs, counted in messages: many small ranges share a task.
_RANGE_COST = 20_000
_SHOWN = 3  # partitions that a message names


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """What was read about one partition.

    ``committed``: the next offset to read, None where there is none. ``version``: that of the offset node, None where
    there is no node. ``log_start`` and ``log_end``: the first offset of the log, and the one behind its last.
    """

    partition: TopicPartition
    committed: int | None
    version: int | None
    log_start: int
    log_end: int


class OffsetRange(NamedTuple):
    """Offsets ``[start, end)`` of a partition: what one file set holds, and what is read at one go."""

    partition: TopicPartition
    start: int
    end: int


class WrittenFile(NamedTuple):
    """A finished file: where it lies, the offsets ``[start, end)`` it stands for, its messages and its size."""

    path: str
    start: int
    end: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """A partition's part: read ``[start, end)``, then move the offset node from ``version`` to ``end``.

    ``lost``: offsets below ``start`` that the log no longer holds and the group had not read.
    """

    partition: TopicPartition
    committed: int | None
    version: int | None
    start: int
    end: int
    lost: int = 0

    @property
    def moves(self) -> bool:
        """Whether the group's offset changes."""
        return self.end != self.committed


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """All partitions of an export, in order, and the ranges to read."""

    group: str
    partitions: tuple[PartitionPlan, ...]
    ranges: tuple[OffsetRange, ...]

    @property
    def messages(self) -> int:
        """Offsets to read: at least as many as there are messages."""
        return sum(r.end - r.start for r in self.ranges)

    @property
    def moves(self) -> bool:
        """Whether there is anything to do."""
        return any(partition.moves for partition in self.partitions)


def make_plan(
    group: str,
    facts: Iterable[PartitionFacts],
    *,
    begin: Begin | None = None,
    skip_lost: bool = False,
    range_messages: int = RANGE_MESSAGES,
) -> ExportPlan:
    """Plan the export of ``group``'s partitions from their committed offsets to the ends of their logs.

    ``begin``: where a partition without a committed offset starts; without it such a partition is refused.
    ``skip_lost``: go on at the log's start where retention has deleted what was not exported; refused without it.
    Raises ``RefusedError`` for these, and for an offset behind the log's end: that log is not the one the group read.
    """
    partitions: list[PartitionPlan] = []
    unknown: list[str] = []
    lost: list[str] = []
    beyond: list[str] = []
    for fact in sorted(facts, key=lambda fact: fact.partition):
        name = str(fact.partition)
        start = fact.committed
        if start is None and begin is not None:
            start = fact.log_start if begin == "earliest" else fact.log_end
        if start is None:
            unknown.append(name)
            continue
        missing = max(0, fact.log_start - start)
        if start > fact.log_end:
            beyond.append(f"{name} is at {start}, its log ends at {fact.log_end}")
        elif missing and not skip_lost:
            lost.append(f"{name} is at {start}, its log starts at {fact.log_start}: {missing} offsets are lost")
        else:
            start += missing
            partitions.append(PartitionPlan(fact.partition, fact.committed, fact.version, start, fact.log_end, missing))
    if beyond:
        raise RefusedError(
            f"offsets of group {group} lie behind the end of the log ({_few(beyond)})",
            "the topic was truncated or made again: reset these offsets first",
        )
    if lost:
        raise RefusedError(
            f"messages that group {group} has not read were deleted ({_few(lost)})",
            "--skip-lost goes on where the log starts",
        )
    if unknown:
        raise RefusedError(
            f"group {group} has no committed offset for {len(unknown)} partition{'s' * (len(unknown) > 1)} "
            f"({_few(unknown)})",
            "--from earliest or --from latest says where to begin",
        )
    ranges = [piece for plan in partitions for piece in cut(plan.partition, plan.start, plan.end, range_messages)]
    return ExportPlan(group, tuple(partitions), tuple(ranges))


def cut(partition: TopicPartition, start: int, end: int, size: int) -> list[OffsetRange]:
    """Cut ``[start, end)`` into the fewest ranges of at most ``size`` offsets, all about equally long."""
    count = -(-(end - start) // size)
    edges = [start + (end - start) * i // count for i in range(count)] if count else []
    return [OffsetRange(partition, a, b) for a, b in zip(edges, [*edges[1:], end], strict=True)] if edges else []


def pack(ranges: Sequence[OffsetRange], size: int = RANGE_MESSAGES) -> list[list[OffsetRange]]:
    """Deal ranges out to tasks: large ones alone, small ones together, in their order."""
    tasks: list[list[OffsetRange]] = []
    room = 0
    for piece in ranges:
        cost = piece.end - piece.start + _RANGE_COST
        if not tasks or cost > room:
            tasks.append([])
            room = size
        tasks[-1].append(piece)
        room -= cost
    return tasks


def _few(items: Sequence[str]) -> str:
    more = len(items) - _SHOWN
    return ", ".join(items[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
