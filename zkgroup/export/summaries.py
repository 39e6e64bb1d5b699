"""What an export tells when it is done: a row for each partition."""

from __future__ import annotations

from dataclasses import dataclass

from zkgroup.export.documents import Manifest
from zkgroup.export.words import ExportPlan


@dataclass(frozen=True, slots=True)
class PartitionSummary:
    """What became of one partition: offsets ``[start, end)`` were exported and ``end`` is committed."""

    topic: str
    partition: int
    start: int
    end: int
    rows: int
    bytes: int
    files: int


def summaries_of(plan: ExportPlan | None, manifest: Manifest | None) -> list[PartitionSummary]:
    """A row for each partition of the plan and each part of the manifest, in order."""
    rows: list[PartitionSummary] = []
    exported = manifest.parts if manifest is not None else ()
    for part in exported:
        rows.append(
            PartitionSummary(
                *part.plan.partition,
                part.plan.start,
                part.end,
                part.rows,
                sum(file.bytes for file in part.files),
                len(part.files),
            )
        )
    there = {(row.topic, row.partition) for row in rows}
    for planned in plan.partitions if plan is not None else ():
        if planned.partition not in there:
            end = planned.start if planned.moves and manifest is not None else planned.end
            rows.append(PartitionSummary(*planned.partition, planned.start, end, 0, 0, 0))
    return sorted(rows, key=lambda row: (row.topic, row.partition, row.start))
