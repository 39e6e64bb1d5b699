"""What an export reads and where it leaves the group: decided from facts alone.

A plan fixes the ranges before anything is read, with the version of every offset node, so that whoever carries it out
can be repeated and can be refused. Nothing here touches a server.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from zkgroup.export.lake.ahead import around
from zkgroup.export.model.intervals import Interval, subtract, union
from zkgroup.export.model.rundata import RANGE_MESSAGES
from zkgroup.export.model.words import (
    Begin,
    Disagreement,
    ExportPlan,
    Lost,
    OffsetRange,
    PartitionFacts,
    PartitionPlan,
    Policies,
    Policy,
    RecreatedPolicy,
    Skipped,
)
from zkgroup.export.planning.beginnings import Troubles, begin_at
from zkgroup.protocol.names import TopicPartition

__all__ = [
    "Begin",
    "Disagreement",
    "ExportPlan",
    "OffsetRange",
    "PartitionFacts",
    "PartitionPlan",
    "Policies",
    "Policy",
    "RecreatedPolicy",
    "Skipped",
    "cut",
    "in_no_file",
    "make_backfill",
    "make_plan",
    "pack",
    "share_out",
]

#: Messages of one range, about: Spark tells of progress when a task ends, and a task is repeated as a whole.
# What opening a range costs, counted in messages: many small ranges share a task.
_RANGE_COST = 20_000
# A task that is smaller is not worth another core, and another file for each folder.
_LEAST_TASK = 100_000
# Only from so many tasks on do they grow, and up to so many ranges each.
_TASKS = 256
_RANGES = 16


def make_plan(
    group: str,
    facts: Iterable[PartitionFacts],
    *,
    begin: Begin | None = None,
    skip_lost: bool = False,
    policies: Policies | None = None,
    max_messages: int | None = None,
    range_messages: int = RANGE_MESSAGES,
    whole: bool = True,
    joined: bool = False,
) -> ExportPlan:
    """Plan the export of ``group``'s partitions from their committed offsets to the ends of their logs.

    ``begin``: where a partition without a committed offset starts, if its facts do not say; without either such a
    partition is refused. ``skip_lost``: as ``policies.expired`` of ``earliest``. ``max_messages``: offsets to read at
    most, shared by the partitions. ``whole``: what is planned is read to its end. ``joined``: the group's last export
    was. Raises ``RefusedError`` for what the policies do not allow, and for an offset behind the log's end: that log is
    not the one the group read.
    """
    policies = policies or Policies()
    if skip_lost and policies.expired == "fail":
        policies = replace(policies, expired="earliest")
    troubles = Troubles(group, joined)
    parts: list[list[PartitionPlan]] = []  # of each partition
    for fact in sorted(facts, key=lambda fact: fact.partition):
        place = begin_at(fact, begin, policies, troubles)
        if place is None:
            continue
        start, skipped = place
        end = fact.log_end if fact.until is None else max(start, min(fact.until, fact.log_end))
        part = PartitionPlan(fact.partition, fact.committed, fact.version, start, end, skipped, asked=fact.asked)
        parts.append(list(around(part, fact.filled, whole=whole)))
    troubles.refuse()
    if max_messages is not None:
        shares = share_out([sum(part.end - part.start for part in some) for some in parts], max_messages)
        parts = [list(_dealt(some, share)) for some, share in zip(parts, shares, strict=True)]
    partitions = [part for some in parts for part in some]
    return ExportPlan(group, tuple(partitions), _ranges(partitions, range_messages), tuple(troubles.left_out))


def make_backfill(
    group: str, facts: Iterable[PartitionFacts], *, policies: Policies | None = None, max_messages: int | None = None,
    range_messages: int = RANGE_MESSAGES, lost: Mapping[TopicPartition, Sequence[Lost]] | None = None,
    from_the_first: bool = False,
) -> ExportPlan:  # fmt: skip
    """Plan the export of what the lake lacks between each partition's ``begin`` and ``until``; the group stays.

    A partition without a ``begin`` is left alone. A begin below the log's start is refused, unless ``policies.expired``
    says otherwise. ``lost``: what files held that are gone; such a range is written again as a whole if any of it is
    asked for, whatever ``max_messages`` says. ``from_the_first``: so is all that was lost before ``until``, also where
    the log has none of it any more.
    """
    policies = policies or Policies()
    troubles = Troubles(group)
    partitions: list[PartitionPlan] = []
    facts = sorted(facts, key=lambda fact: fact.partition)
    for fact in facts:
        if fact.begin is None:
            continue
        if fact.remade:
            # It would count for an export of the new log, and the next one go on where the group stood in the old one.
            if policies.recreated == "skip":
                troubles.leave_out(fact.partition, "its topic was made again")
            else:
                troubles.add("not begun", str(fact.partition))
            continue
        end = fact.log_end if fact.until is None else min(fact.until, fact.log_end)
        for lacking in subtract((fact.begin, end), fact.coverage):
            if part := _filling(fact, lacking, policies, troubles):
                partitions.append(part)
    if max_messages is not None:
        partitions = [part for part in _limited(partitions, max_messages) if part.start < part.end or part.skipped]
    for fact in facts:
        if fact.remade:
            continue
        begin = 0 if from_the_first else fact.begin
        end = fact.log_end if fact.until is None else fact.until
        wanted = [
            one
            for one in (lost or {}).get(fact.partition, ())
            if begin is not None and begin < one.end and one.start < end
        ]
        for low, high in union((one.start, one.end) for one in wanted):
            if part := _filling(fact, (low, high), policies, troubles):
                again = tuple(one for one in wanted if low <= one.start and one.end <= high)
                partitions.append(replace(part, again=again))
    troubles.refuse()
    partitions.sort(key=lambda part: (part.partition, part.start))
    return ExportPlan(group, tuple(partitions), _ranges(partitions, range_messages), tuple(troubles.left_out))


def in_no_file(parts: Iterable[PartitionPlan], *, fills: bool) -> Iterator[OffsetRange]:
    """What no file may hold already: what is read for the first time, and what an export, unless it ``fills`` what is
    missing, is to record as deleted, or passed over, before it was read."""
    for part in parts:
        if not part.again and part.start < part.end:
            yield OffsetRange(part.partition, part.start, part.end)
        for gap in () if fills else part.skipped:
            if gap.kind in ("retention", "moved"):
                yield OffsetRange(part.partition, gap.start, gap.end)


def _filling(fact: PartitionFacts, lacking: Interval, policies: Policies, troubles: Troubles) -> PartitionPlan | None:
    """The part that exports ``lacking``, as far as the log has it; None where it has not, or there is nothing."""
    low, high = lacking
    skipped: tuple[Skipped, ...] = ()
    start = low
    if low < fact.log_start:
        if policies.expired == "fail":
            missing = min(fact.log_start, high) - low
            text = f"{fact.partition} from {low} on, its log starts at {fact.log_start}: {missing} offsets"
            troubles.add("gone", f"{text} are lost")
            troubles.lost += missing
            return None
        if policies.expired == "skip":
            troubles.leave_out(fact.partition, f"its log starts at {fact.log_start}, behind {low}")
            return None
        start = min(fact.log_start, high)
        skipped = (Skipped("retention", low, start),)
    if start >= high and not skipped:
        return None
    return PartitionPlan(
        fact.partition, fact.committed, fact.version, start, high, skipped, commits=False, asked=fact.asked
    )


def _dealt(parts: Iterable[PartitionPlan], most: int) -> Iterator[PartitionPlan]:
    """Of a partition's parts the first ``most`` offsets: where these end, the group is to stand."""
    for part in parts:
        if most < part.end - part.start:
            yield replace(part, end=part.start + most, commits=True)
            return
        most -= part.end - part.start
        yield part


def _limited(partitions: Sequence[PartitionPlan], most: int) -> list[PartitionPlan]:
    """Share ``most`` offsets out: nobody gets more than there is, and what one does not need the others get."""
    shares = share_out([part.end - part.start for part in partitions], most)
    return [replace(part, end=part.start + share) for part, share in zip(partitions, shares, strict=True)]


def share_out(wanted: Sequence[int], most: int) -> list[int]:
    """Deal ``most`` out as evenly as ``wanted`` allows: the sum is ``min(most, sum(wanted))``."""
    shares = [0] * len(wanted)
    left = most
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    for done, i in enumerate(order):
        shares[i] = min(wanted[i], left // (len(order) - done))
        left -= shares[i]
    return shares


def _ranges(partitions: Iterable[PartitionPlan], size: int) -> tuple[OffsetRange, ...]:
    return tuple(piece for part in partitions for piece in cut(part.partition, part.start, part.end, size))


def cut(partition: TopicPartition, start: int, end: int, size: int) -> list[OffsetRange]:
    """Cut ``[start, end)`` into the fewest ranges of at most ``size`` offsets, all about equally long."""
    count = -(-(end - start) // size)
    edges = [start + (end - start) * i // count for i in range(count)] if count else []
    return [OffsetRange(partition, a, b) for a, b in zip(edges, [*edges[1:], end], strict=True)] if edges else []


def task_size(messages: int, size: int = RANGE_MESSAGES) -> int:
    """Messages of one task, about: several ranges of ``size`` where there are very many, so that files reach their
    size."""
    return max(size, min(_RANGES * size, messages // _TASKS))


def pack(ranges: Sequence[OffsetRange], size: int = RANGE_MESSAGES, cores: int = 1) -> list[list[OffsetRange]]:
    """Deal ranges out to tasks: large ones alone, small ones together, in their order. What fewer tasks than ``cores``
    would hold is dealt out to all of them, unless it is little."""
    whole = sum(piece.end - piece.start + _RANGE_COST for piece in ranges)
    size = min(size, max(_LEAST_TASK, -(-whole // cores)))
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
