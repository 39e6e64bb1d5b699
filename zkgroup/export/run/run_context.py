"""The means of a run: clients, tasks, progress, warnings."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.errors import Notice
from zkgroup.export.model.layout import Layout
from zkgroup.export.model.plan_types import ExportPlan, Slice
from zkgroup.export.model.run_record import RecordPart, RunRecord, ranges_by_part

if TYPE_CHECKING:
    from zkgroup.export.run.export_member import ExportMember
    from zkgroup.export.spark.spark_context import SparkJobs


log = logging.getLogger(__name__)

_LINES = 20  # warnings of one kind


def warn_of_first(notices: Iterable[Notice], on_warning: Callable[[Notice], None]) -> None:
    """Warn of the first of many; the log has the others, which ``-v`` shows."""
    warnings = list(notices)
    for notice in warnings[:_LINES]:
        on_warning(notice)
    for notice in warnings[_LINES:]:
        log.info("%s", notice)
    if len(warnings) > _LINES:
        on_warning(Notice(f"and {len(warnings) - _LINES} more like these, which -v names"))


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an export is: ``stage`` in words, offsets done of all, and the bytes of the files written so far."""

    stage: str
    done: int
    total: int
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class RunContext:
    """The means of a run. ``runner`` runs the tasks. ``on_point`` is called at each point of the protocol. With a
    ``member`` the run decides only about partitions that it owns, and commits them at once."""

    kafka: Callable[[], KafkaSettings]
    runner: Callable[[], AbstractContextManager[SparkJobs]]
    on_progress: Callable[[Progress], None]
    on_warning: Callable[[Notice], None]
    on_point: Callable[[str], None]
    member: ExportMember | None = None


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


def share_files(record: RunRecord) -> Iterator[tuple[RecordPart, int, int]]:
    """Each part with its share of the files' bytes, by rows, and its number of files. They add up to all bytes."""
    sizes: dict[tuple[str, Slice], int] = {}
    for file in record.files:
        rows = given = 0
        for one in file.ranges:
            rows += one.rows
            upto = file.bytes * rows // max(1, file.rows)
            sizes[file.name, one] = upto - given
            given = upto
    for part, ranges in zip(record.partitions, ranges_by_part(record.partitions, record.files), strict=True):
        yield part, sum(sizes[key] for key in ranges), len({name for name, _ in ranges})
