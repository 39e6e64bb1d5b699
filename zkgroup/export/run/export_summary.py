"""What an export returns when it is done: a row for each partition."""

from __future__ import annotations

from dataclasses import dataclass, replace

from zkgroup.export.model.layout import Layout
from zkgroup.export.model.plan_types import ExportPlan
from zkgroup.export.model.run_record import RunRecord, share_files


@dataclass(frozen=True, slots=True)
class PartitionSummary:
    """What became of one partition: offsets ``[start, end)`` were exported and ``end`` is committed.

    ``rows`` are in the files, and ``undecodable`` ones, too; ``late`` ones count among both. ``bytes``: its
    share of the ``files`` that hold something of it. ``table``: as ``Layout.table``.
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
    table: str | None = None


def summarize(plan: ExportPlan | None, record: RunRecord | None, layout: Layout, uri: str) -> list[PartitionSummary]:
    """A row for each part of the record and each partition of the plan that it does not have, in order. ``layout`` and
    ``uri``: of the destination."""
    rows: list[PartitionSummary] = []
    for part, size, files in share_files(record) if record is not None else ():
        counts = (part.rows, size, files, part.undecodable, part.late)
        rows.append(PartitionSummary(*part.partition, part.start, part.end, *counts))
    there = {(row.topic, row.partition) for row in rows}
    for planned in plan.partitions if plan is not None else ():
        if planned.partition not in there:
            end = planned.start if planned.moves and record is not None else planned.end
            rows.append(PartitionSummary(*planned.partition, planned.start, end, 0, 0, 0))
    rows = [replace(row, table=layout.table(row.topic, uri)) for row in rows]
    return sorted(rows, key=lambda row: (row.topic, row.partition, row.start))
