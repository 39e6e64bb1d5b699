"""Warnings of an export about its plan and its gaps: messages that it skips, or writes again. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from zkgroup.errors import Notice
from zkgroup.export.model.plan_types import ExportPlan, PartitionFacts, PartitionPlan
from zkgroup.export.model.run_record import RecordPart
from zkgroup.protocol.names import TopicPartition
from zkgroup.text import counted, listed


@dataclass(frozen=True, slots=True, kw_only=True)
class GapNotice(Notice):
    """``count`` offsets of a partition's ``[start, end)`` are not exported. ``kind``: as records have it."""

    partition: TopicPartition
    start: int
    end: int
    count: int
    kind: str


def plan_notices(plan: ExportPlan) -> list[Notice]:
    """Warnings about a plan, also where there is nothing to do: what is left out."""
    return [Notice(f"{partition} is left out: {why}") for partition, why in plan.left_out]


def first_run_notices(
    uri: str, group: str, partitions: Iterable[PartitionPlan], facts: Iterable[PartitionFacts]
) -> Iterator[Notice]:
    """Warnings about a first run of a group that has committed offsets: the folder may be an unmounted one."""
    first = {fact.partition: fact.log_start for fact in facts}
    later = [
        f"{part.partition} at {part.start}"
        for part in partitions
        if part.start == part.committed and part.start > first[part.partition]
    ]
    if later:
        yield Notice(
            f"{uri} has no exports: what group {group} has read before ({listed(later)}) is not in it, and --backfill "
            "exports it; if it was exported there, the folder is not mounted, or is another one"
        )


def rewrite_notices(parts: Iterable[RecordPart]) -> Iterator[Notice]:
    """Which messages of lost files could not be written once more."""
    for part in parts:
        again = [lost for lost in part.again if part.start < lost.end]
        rows = sum(lost.rows for lost in again)
        if again and (fewer := rows - part.rows - part.undecodable) > 0:
            files = listed([lost.file for lost in again], most=1)
            yield Notice(
                f"{part.partition}: {fewer} of {counted(rows, 'message')} of {files} are not in the log any more"
            )


def part_notices(partitions: Iterable[PartitionPlan]) -> Iterator[Notice]:
    """Warnings about a run's parts: rewritten ranges, starts other than the group's offset, recorded gaps."""
    for part in partitions:
        for lost in part.again:
            first = max(lost.start, part.start)
            what = f"offsets {first} to {lost.end - 1} are exported again"
            if first >= lost.end:
                what = "of its messages the log has none any more"
            yield Notice(f"{part.partition}: {lost.file} is missing: {what}")
        edges = {part.start, *(edge for gap in part.skipped for edge in gap[1:])}
        if part.commits and part.committed is not None and part.committed not in edges:
            yield Notice(f"{part.partition}: the group is at {part.committed}; the export continues at {min(edges)}")
        for gap in part.skipped:
            if (count := gap.end - gap.start) > 0:
                text = f"{part.partition}: offsets {gap.start} to {gap.end - 1} are not exported ({gap.kind})"
                yield GapNotice(
                    text, partition=part.partition, start=gap.start, end=gap.end, count=count, kind=gap.kind
                )
