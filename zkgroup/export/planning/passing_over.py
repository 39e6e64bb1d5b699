"""What an export leaves out or does once more, in words: whatever is passed over is told. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from zkgroup.export.model.rundata import ManifestPart
from zkgroup.export.model.words import ExportPlan, PartitionFacts, PartitionPlan
from zkgroup.protocol.names import TopicPartition
from zkgroup.words import counted, listed


def words_on(plan: ExportPlan) -> list[str]:
    """What is to be said of a plan, whether or not anything comes of it: what its bounds come to, and which partitions
    wait for another export."""
    return [*plan.notes, *(f"{partition} is left out: {why}" for partition, why in plan.left_out)]


def beginning(
    uri: str, group: str, partitions: Iterable[PartitionPlan], facts: Iterable[PartitionFacts]
) -> Iterator[str]:
    """What is to be said of the first run in a destination that is empty, if the group has read something of the logs:
    a folder that is not mounted is empty, too."""
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


def fewer_again(parts: Iterable[ManifestPart]) -> Iterator[str]:
    """What is to be said of messages that could not be written once more, unless `passed_over` has said that none can
    be."""
    for part in parts:
        again = [lost for lost in part.plan.again if part.plan.start < lost.end]
        held = sum(lost.rows for lost in again)
        if again and (fewer := held - part.rows - part.undecodable) > 0:
            files = listed([lost.file for lost in again], most=1)
            yield f"{part.plan.partition}: {fewer} of {counted(held, 'message')} of {files} are not in the log any more"


def passed_over(partitions: Iterable[PartitionPlan]) -> Iterator[str]:
    """What is to be said of the parts of a run: what it writes once more, where it does not go on from the group's
    offset, and what it records as not exported."""
    parts = list(partitions)
    moving = {part.partition for part in parts if part.commits}  # the last of a partition's
    begun: set[TopicPartition] = set()
    for part in parts:
        for lost in part.again:
            first = max(lost.start, part.start)
            what = f"offsets {first} to {lost.end - 1} are exported again"
            if first >= lost.end:
                what = "of its messages the log has none any more"
            yield f"{part.partition}: {lost.file} is missing: {what}"
        # Where it would go on in a whole log: elsewhere than the group stands if the lake is believed.
        place = next((gap.start for gap in part.skipped if gap.kind in ("retention", "filled")), part.start)
        made_again = any(gap.kind == "recreated" for gap in part.skipped)
        goes_on = part.partition in begun or part.committed in (None, place)
        begun.add(part.partition)
        if part.partition in moving and not goes_on and not made_again:
            stood = f"{part.partition}: the group was moved to {part.committed}"
            yield f"{stood}: it goes on at {place}, where its exports end"
        for gap in part.skipped:
            if gap.kind == "recreated":
                yield f"{part.partition}: its topic was made again: what was left of the old log is not exported"
            elif gap.kind == "same":
                yield f"{part.partition}: its topic is taken for the one that was exported before"
            elif gap.kind == "filled":
                yield f"{part.partition}: offsets {gap.start} to {gap.end - 1} were exported before"
            elif gap.end > gap.start:
                yield f"{part.partition}: offsets {gap.start} to {gap.end - 1} are not exported ({gap.kind})"
