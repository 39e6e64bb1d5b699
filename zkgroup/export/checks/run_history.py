"""The runs that a destination's log keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from zkgroup.export.destination.run_log import Destination, LogEntry
from zkgroup.export.model.accounting import total
from zkgroup.export.model.documents import DamagedDocumentError
from zkgroup.export.model.run_record import RunRecord
from zkgroup.export.stores.parallel import map_parallel


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run. ``state``: ``exported``, or ``damaged``: its record is missing or was changed. ``gaps``: offsets that are
    no messages, ``skipped``: offsets that were passed over. ``planned`` and ``decided`` are milliseconds since 1970."""

    run: str
    group: str
    kind: str | None
    state: Literal["exported", "damaged"]
    planned: int | None = None
    decided: int | None = None
    partitions: int = 0
    rows: int = 0
    bytes: int = 0
    files: int = 0
    gaps: int = 0
    skipped: int = 0
    undecodable: int = 0
    late: int = 0


def history(
    destination: Destination, groups: Sequence[str] | None = None, warn: Callable[[str], None] = lambda _: None
) -> Iterator[RunRow]:
    """The runs of all groups or of these, the oldest first. ``warn`` receives damaged records."""
    for group in destination.groups() if groups is None else groups:
        for entry, found in map_parallel(
            partial(_read, destination, group), destination.entries(group, is_checked=False)
        ):
            if isinstance(found, DamagedDocumentError):
                warn(str(found))
                yield RunRow(entry.run, group, None, "damaged")
            else:
                yield _row(found)


def _read(destination: Destination, group: str, entry: LogEntry) -> tuple[LogEntry, RunRecord | DamagedDocumentError]:
    try:
        return entry, destination.record(group, entry)
    except DamagedDocumentError as error:
        return entry, error


def _row(record: RunRecord) -> RunRow:
    parts = record.partitions
    return RunRow(
        record.run,
        record.group,
        record.kind,
        "exported",
        record.planned,
        record.decided,
        len({part.partition for part in parts}),
        sum(part.rows for part in parts),
        sum(file.bytes for file in record.files),
        len(record.files),
        sum(total(part.gaps for part in parts).values()),
        sum(gap.end - gap.start for part in parts for gap in part.skipped),
        sum(part.undecodable for part in parts),
        sum(part.late for part in parts),
    )
