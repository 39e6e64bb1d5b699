"""What is under way or unfinished, and what to do about it; and the runs that a destination's log keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import Notice, Remedy, ZkgroupError
from zkgroup.export.destination.run_log import Destination, LogEntry
from zkgroup.export.model.accounting import total
from zkgroup.export.model.run_record import DamagedDocumentError, RunRecord
from zkgroup.export.planning.group_state import child_names
from zkgroup.export.run.claim import read_holder
from zkgroup.export.stores.store import map_parallel
from zkgroup.groups.changes.export_znodes import Pointer, decode_pointer
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import Children, Code, Failure, Get, Node


@dataclass(frozen=True, slots=True)
class StatusRow:
    """What is under way for a group. ``state``: ``running``; ``killed``: its process on this host is gone, and its
    session has not ended yet; ``unfinished``: no process works on it. ``step``: ``planning``, ``planned``, ``decided``,
    ``unreadable``, or ``left``: ZooKeeper knows nothing of it, and the destination has its folder. ``since``: when the
    work began, milliseconds since 1970."""

    group: str
    run: str | None
    state: Literal["running", "killed", "unfinished"]
    step: str
    host: str | None
    pid: int | None
    since: int | None
    output: str | None
    advice: Notice | Remedy


_AGAIN: Final = {
    "planning": Remedy("run the same command again"),
    "planned": Remedy("run the same command again: it plans anew; nothing was decided"),
    "decided": Remedy("run the same command again: it publishes and commits what was read"),
}
_WAIT: Final = Remedy("wait until it is done")
_LEFT: Final = Remedy("the next export removes it, unless it was written to the end")


def status(registry: Registry, group: str | None = None, destination: Destination | None = None) -> list[StatusRow]:
    """What is under way for a group, or for any. ``destination``: where a decided run's record may be."""
    if group is not None:
        groups = [group]
    else:
        known = child_names(registry.read([Children(znodes.consumers())])[0])
        groups = sorted({*known, *(destination.groups() if destination is not None else ())})
    nodes = registry.read([Get(znodes.export_state(name)) for name in groups])
    rows = (_status_row(registry, name, node, destination) for name, node in zip(groups, nodes, strict=True))
    return [row for row in rows if row is not None]


def _status_row(registry: Registry, group: str, node: object, destination: Destination | None) -> StatusRow | None:
    """The state that the ``node`` of a group's pointer and its lock have; None where nothing is under way."""
    path = znodes.export_state(group)
    pointer: Pointer | None = None
    unreadable: Notice | None = None
    if isinstance(node, Node):
        try:
            pointer = decode_pointer(path, node.data)
        except ZkgroupError as error:
            unreadable = Notice(error.message, error.remedy)
    elif isinstance(node, Failure) and node.code is not Code.NO_NODE:
        unreadable = Notice(f"znode {path} cannot be read: {node.code.value}")
    holder = read_holder(registry, group) if isinstance(node, Node) or unreadable else None
    if holder is None and pointer is None and not unreadable:
        left = destination.leftover_runs(group) if destination is not None else []
        if not left:
            return None
        return StatusRow(group, left[-1], "unfinished", "left", None, None, None, str(destination), _LEFT)
    step = "unreadable" if unreadable else "planning" if pointer is None else pointer.state
    host, pid, since = (holder.host, holder.pid, holder.since) if holder is not None else (None, None, None)
    is_killed = holder is not None and holder.is_killed
    return StatusRow(
        group,
        pointer.run if pointer is not None else None,
        "unfinished" if holder is None else "killed" if is_killed else "running",
        step,
        host,
        pid,
        since,
        pointer.output if pointer is not None else None,
        unreadable or (_WAIT if holder is not None and not is_killed else _AGAIN[step]),
    )


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
    destination: Destination,
    groups: Sequence[str] | None = None,
    on_damaged: Callable[[DamagedDocumentError], None] = lambda _: None,
) -> Iterator[RunRow]:
    """The runs of all groups or of these, the oldest first. ``on_damaged`` receives what is wrong with records."""
    for group in destination.groups() if groups is None else groups:
        for entry, found in map_parallel(
            partial(_read, destination, group), destination.entries(group, is_checked=False)
        ):
            if isinstance(found, DamagedDocumentError):
                on_damaged(found)
                yield RunRow(entry.run, group, None, "damaged")
            else:
                yield _run_row(found)


def _read(destination: Destination, group: str, entry: LogEntry) -> tuple[LogEntry, RunRecord | DamagedDocumentError]:
    try:
        return entry, destination.record(group, entry)
    except DamagedDocumentError as error:
        return entry, error


def _run_row(record: RunRecord) -> RunRow:
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
