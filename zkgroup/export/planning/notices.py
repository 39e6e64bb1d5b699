"""Warnings of an export about its plan: messages that it skips, or writes again, and what its bounds come to. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from zkgroup.export.model.plan_types import ExportPlan, PartitionFacts, PartitionPlan
from zkgroup.export.model.run_record import RecordPart
from zkgroup.export.planning.export_request import Bound
from zkgroup.text import counted, listed


def plan_notices(plan: ExportPlan) -> list[str]:
    """Warnings about a plan, also where there is nothing to do: the effect of its bounds, and what is left out."""
    return [*plan.notes, *(f"{partition} is left out: {why}" for partition, why in plan.left_out)]


def first_run_notices(
    uri: str, group: str, partitions: Iterable[PartitionPlan], facts: Iterable[PartitionFacts]
) -> Iterator[str]:
    """Warnings about a first run of a group that has committed offsets: the folder may be an unmounted one."""
    first = {fact.partition: fact.log_start for fact in facts}
    later = [
        f"{part.partition} at {part.start}"
        for part in partitions
        if part.start == part.committed and part.start > first[part.partition]
    ]
    if later:
        yield (
            f"{uri} has no exports: what group {group} has read before ({listed(later)}) is not in it, and --backfill "
            "exports it; if it was exported there, the folder is not mounted, or is another one"
        )


def rewrite_notices(parts: Iterable[RecordPart]) -> Iterator[str]:
    """Which messages of lost files could not be written once more."""
    for part in parts:
        again = [lost for lost in part.again if part.start < lost.end]
        rows = sum(lost.rows for lost in again)
        if again and (fewer := rows - part.rows - part.undecodable) > 0:
            files = listed([lost.file for lost in again], most=1)
            yield f"{part.partition}: {fewer} of {counted(rows, 'message')} of {files} are not in the log any more"


def part_notices(partitions: Iterable[PartitionPlan]) -> Iterator[str]:
    """Warnings about a run's parts: rewritten ranges, starts other than the group's offset, recorded gaps."""
    for part in partitions:
        for lost in part.again:
            first = max(lost.start, part.start)
            what = f"offsets {first} to {lost.end - 1} are exported again"
            if first >= lost.end:
                what = "of its messages the log has none any more"
            yield f"{part.partition}: {lost.file} is missing: {what}"
        edges = {part.start, *(edge for gap in part.skipped for edge in gap[1:])}
        if part.commits and part.committed is not None and part.committed not in edges:
            yield f"{part.partition}: the group is at {part.committed}; the export continues at {min(edges)}"
        for gap in part.skipped:
            if gap.end > gap.start:
                yield f"{part.partition}: offsets {gap.start} to {gap.end - 1} are not exported ({gap.kind})"


def bound_notices(
    begin: Bound, until: Bound, facts: Sequence[PartitionFacts], plan: ExportPlan, *, fills: bool
) -> Iterator[str]:
    """Warnings about bounds that leave nothing to export, and about partitions that an end does not name, or behind
    whose log it lies. ``fills``: it
    is a backfill, for which every partition begins where ``begin`` says."""
    if until.kind == "offsets":
        begun = (fact.partition for fact in facts if not fills or fact.begin is not None)
        if unnamed := [str(partition) for partition in begun if partition not in until.offsets]:
            yield f"--until names no place in {listed(unnamed, most=3)}: of what is not named nothing is exported"
        for fact in facts:
            if fact.until is not None and fact.until > fact.log_end:
                yield f"{fact.partition}: --until {fact.until} lies behind the end of its log, which is {fact.log_end}"
    there = [fact for fact in facts if fact.log_start < fact.log_end]
    starting = [fact for fact in there if fills or fact.committed is None]
    if begin.kind == "time" and starting and all((fact.begin or 0) >= fact.log_end for fact in starting):
        yield f"no message is as late as --from {begin}: what begins there begins at the end of its log"
    elif (until.kind == "time" or (until.named and not fills)) and there and not plan.reads and not plan.left_out:
        yield f"nothing that is left to export is known to lie before --until {until}: there is nothing to export"
