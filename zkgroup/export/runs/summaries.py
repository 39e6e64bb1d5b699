"""What an export tells when it is done: a row for each partition."""

from __future__ import annotations

from dataclasses import dataclass

from zkgroup.export.model.rundata import Manifest, shares
from zkgroup.export.model.words import ExportPlan


@dataclass(frozen=True, slots=True)
class PartitionSummary:
    """What became of one partition: offsets ``[start, end)`` were exported and ``end`` is committed.

    ``rows`` are in the files, and ``undecodable`` ones beside them; ``late`` ones count among both. ``bytes``: its
    share of the ``files`` that hold something of it.
    """

    topic: str
    partition: int
    start: int
    end: int
    rows: int
    bytes: int
    files: int
    undecodable: int = 0
    late: int = 0


def summaries_of(plan: ExportPlan | None, manifest: Manifest | None) -> list[PartitionSummary]:
    """A row for each partition of the plan and each part of the manifest, in order."""
    rows: list[PartitionSummary] = []
    for part, size, files in shares(manifest) if manifest is not None else ():
        rows.append(
            PartitionSummary(
                *part.plan.partition, part.plan.start, part.end, part.rows, size, files, part.undecodable, part.late
            )
        )
    there = {(row.topic, row.partition) for row in rows}
    for planned in plan.partitions if plan is not None else ():
        if planned.partition not in there:
            end = planned.start if planned.moves and manifest is not None else planned.end
            rows.append(PartitionSummary(*planned.partition, planned.start, end, 0, 0, 0))
    return sorted(rows, key=lambda row: (row.topic, row.partition, row.start))
