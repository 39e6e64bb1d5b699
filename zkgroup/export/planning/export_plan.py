"""What an export reads and where it leaves the group: decided from facts alone. Pure.

A plan fixes the ranges before anything is read, with the version of every offset node: its run can be repeated, and can
be refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from zkgroup.errors import RefusedError
from zkgroup.export.model.intervals import Interval, subtract, union
from zkgroup.export.model.plan_types import (
    ExportPlan,
    LostRange,
    OffsetRange,
    OnMismatch,
    PartitionFacts,
    PartitionPlan,
)
from zkgroup.export.model.run_record import RANGE_MESSAGES
from zkgroup.export.planning.mismatch import Mismatch, MismatchError, NoOffsetError, StartOffset, find_start
from zkgroup.protocol.names import TopicPartition
from zkgroup.text import counted, listed

# What opening a range costs, counted in messages: many small ranges share a task.
_RANGE_COST: Final = 20_000
# A task that is smaller is not worth another core, and another file for each folder.
_LEAST_TASK: Final = 100_000
# Only from so many tasks on do they grow, and up to so many ranges each.
_TASKS: Final = 256
_RANGES: Final = 16


def make_plan(
    group: str,
    destination: str,
    facts: Iterable[PartitionFacts],
    *,
    on_mismatch: OnMismatch = "fail",
    joins: bool = False,
    max_messages: int | None = None,
) -> ExportPlan:
    """Plan the export of ``group``'s partitions from their offsets to the ends of their logs.

    ``max_messages``: offsets to read at most, shared by the partitions. ``joins``: the export is a member of its group.
    Raises ``MismatchError`` for partitions that cannot simply continue, if ``on_mismatch`` does not answer that,
    ``NoOffsetError`` where nothing says where to begin, and ``RefusedError`` for a beginning that is none.
    """
    answers = _Answers(group, destination, on_mismatch)
    parts: list[PartitionPlan] = []
    for fact in sorted(facts, key=lambda fact: fact.partition):
        _refuse_begin(fact)
        start = answers.settle(fact, find_start(fact, joins=joins))
        if start is not None:
            end = fact.log_end if fact.until is None else max(start.offset, min(fact.until, fact.log_end))
            parts.append(PartitionPlan(fact.partition, fact.committed, fact.version, start.offset, end, start.skipped))
    answers.refuse()
    if max_messages is not None:
        parts = _limited(parts, max_messages)
    return ExportPlan(tuple(parts), tuple(answers.left_out))


class _Answers:
    """The answer to partitions that cannot simply continue, and those without a start."""

    def __init__(self, group: str, destination: str, answer: OnMismatch) -> None:
        self._group, self._destination, self._answer = group, destination, answer
        self.left_out: list[tuple[TopicPartition, str]] = []
        self.open: list[Mismatch] = []
        self.unknown: list[str] = []

    def settle(self, fact: PartitionFacts, found: StartOffset | Mismatch | None) -> StartOffset | None:
        """Where to start, after the answer; None where there is no start, or the answer leaves the partition out."""
        if found is None:
            self.unknown.append(str(fact.partition))
        if not isinstance(found, Mismatch):
            return found
        if self._answer == "skip":
            self.left_out.append((found.partition, str(found)))
            return None
        start = found.start(self._answer)
        if start is None:
            self.open.append(found)
        return start

    def refuse(self) -> None:
        """Raise ``MismatchError`` or ``NoOffsetError`` where a partition has no start."""
        if self.open:
            raise MismatchError(self._group, self._destination, self.open)
        if self.unknown:
            count = counted(len(self.unknown), "partition")
            raise NoOffsetError(
                f"group {self._group} has no committed offset for {count} ({listed(self.unknown, most=3)})",
                "--from earliest or --from latest says where to begin",
            )


def _refuse_begin(fact: PartitionFacts) -> None:
    """Raise ``RefusedError`` where ``--from`` names another offset than the committed one, or one behind the log."""
    committed, begin = fact.committed, fact.begin
    if begin is None or fact.is_recreated:
        return
    if committed is not None and fact.is_exact and committed != begin:
        raise RefusedError(
            f"{fact.partition} has the offset {committed} of its own, and --from names {begin}",
            "leave --from out to continue, reset-offsets moves the group, --backfill exports without moving it",
        )
    if committed is None and begin > fact.log_end:
        raise RefusedError(
            f"--from begins behind the end of the log ({fact.partition}: {begin}, its log ends at {fact.log_end})",
            "name an offset that the log has; --from latest begins where it ends",
        )


def make_backfill(
    group: str,
    destination: str,
    facts: Iterable[PartitionFacts],
    *,
    on_mismatch: OnMismatch = "fail",
    max_messages: int | None = None,
    lost: Mapping[TopicPartition, Sequence[LostRange]] | None = None,
) -> ExportPlan:
    """Plan the export of what the destination lacks between each partition's ``begin`` and ``until``, up to where
    exports end, or to the group's offset; the group stays.

    A partition without a ``begin`` is left alone. ``lost``: the ranges of files that are gone; one is written again as
    a whole if any of it is asked for, whatever ``max_messages`` says.
    """
    answers = _Answers(group, destination, on_mismatch)
    parts: list[PartitionPlan] = []
    facts = sorted(facts, key=lambda fact: fact.partition)
    for fact in facts:
        if fact.begin is None:
            continue
        if fact.is_recreated:
            raise RefusedError(
                f"topic {fact.partition.topic} was deleted and created again, and has no export of the new log",
                "export it first; a backfill fills what lies below",
            )
        for lacking in subtract((fact.begin, _upper(fact)), fact.coverage):
            if part := _filling(fact, lacking, answers):
                parts.append(part)
    if max_messages is not None:
        parts = [part for part in _limited(parts, max_messages) if part.start < part.end or part.skipped]
    for fact in facts:
        if fact.begin is None:
            continue
        end = fact.log_end if fact.until is None else fact.until
        begin = fact.begin if fact.begin > fact.log_start else 0  # offsets of a lost file alone are named, too
        wanted = [one for one in (lost or {}).get(fact.partition, ()) if begin < one.end and one.start < end]
        for low, high in union((one.start, one.end) for one in wanted):
            if part := _filling(fact, (low, high), answers):
                again = tuple(one for one in wanted if low <= one.start and one.end <= high)
                parts.append(replace(part, again=again))
    answers.refuse()
    parts.sort(key=lambda part: (part.partition, part.start))
    return ExportPlan(tuple(parts), tuple(answers.left_out))


def _upper(fact: PartitionFacts) -> int:
    """Where a backfill ends at the latest: what lies from there on is for the group's next export."""
    place = (fact.committed or 0) if fact.ended is None else fact.ended
    return min(place, fact.log_end if fact.until is None else fact.until, fact.log_end)


def _filling(fact: PartitionFacts, lacking: Interval, answers: _Answers) -> PartitionPlan | None:
    """The part that exports ``lacking``, as far as the log has it; None where it has not, or there is nothing."""
    low, high = lacking
    start = StartOffset(low)
    if low < fact.log_start:
        found = find_start(replace(fact, committed=None, begin=low, coverage=(), ended=None, is_new=False))
        settled = answers.settle(fact, found)
        if settled is None:
            return None
        start = StartOffset(
            min(settled.offset, high), tuple(gap._replace(end=min(gap.end, high)) for gap in settled.skipped)
        )
    if start.offset >= high and not start.skipped:
        return None
    return PartitionPlan(fact.partition, fact.committed, fact.version, start.offset, high, start.skipped, commits=False)


def _limited(partitions: Sequence[PartitionPlan], most: int) -> list[PartitionPlan]:
    """Share ``most`` offsets out: no partition gets more than it has, and the others get the rest."""
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


def cut(partition: TopicPartition, start: int, end: int, size: int) -> list[OffsetRange]:
    """Cut ``[start, end)`` into the fewest ranges of at most ``size`` offsets, all about equally long."""
    count = -(-(end - start) // size)
    edges = [start + (end - start) * i // count for i in range(count)] if count else []
    return [OffsetRange(partition, a, b) for a, b in zip(edges, [*edges[1:], end], strict=True)] if edges else []


def task_size(messages: int, size: int = RANGE_MESSAGES) -> int:
    """The messages of one task: several ranges of ``size`` where there are very many, for larger files."""
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
