"""Plans of resets and undos: reads the group and its logs, and calls the pure functions of ``reset_plan``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from zkgroup.errors import Notice, RefusedError, Remedy, UsageError, ZkgroupError
from zkgroup.groups.changes import backup as backups
from zkgroup.groups.changes.applier import Applier
from zkgroup.groups.changes.backup_json import Backup
from zkgroup.groups.changes.current_offsets import CurrentOffsets, OffsetReader, no_group
from zkgroup.groups.changes.plan import GO_ON, OffsetChange, Plan
from zkgroup.groups.changes.reset_plan import (
    NOT_AGAIN,
    Target,
    find_moved,
    next_message,
    plan_reset,
    plan_undo,
    warn_of_larger_offsets,
    warn_of_new_in_kafka,
)
from zkgroup.groups.group_model import GroupPartition, GroupSnapshot, Store, stores_of
from zkgroup.groups.offset_files.file_entries import OffsetFile
from zkgroup.groups.partition_scope import Scope, Selection
from zkgroup.groups.snapshot.broker_queries import answer_timeout
from zkgroup.groups.snapshot.group_reader import MAX_AGES
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.text import counted, group_command, listed


def plan_group_reset(
    applier: Applier, group: str, target: Target, selection: Selection, store: Store | None = None
) -> Plan:
    """The plan of a reset. Without ``store``, in the stores where the group keeps its offsets.

    Raises ``NotFoundError`` for a group, topic or partition that does not exist, ``UnreachableError`` where a server or
    a log cannot be asked.
    """
    reader = OffsetReader(applier.registry, applier.brokers, group, applier.timeout)
    current = reader.read(selection, store, needs_logs=target.kind != "current")
    if target.kind == "shift" and not current.snapshot.exists:
        raise no_group(group, applier.registry, may_create=False)
    times = None
    if target.kind == "time":
        logs = {
            key: (partition.log_start, partition.log_end)
            for key, partition in current.partitions.items()
            if partition.exists and partition.log_start is not None and partition.log_end is not None
        }
        from zkgroup.clients.kafka.message_times import first_since  # librdkafka: 60 ms

        times = first_since(applier.brokers(), logs, target.value, answer_timeout(applier.timeout, len(logs)))
    rows = plan_reset(target, current.partitions.values(), current.store, times, current.stores)
    rows = _with_times(applier, rows, current.partitions)
    warnings = (*current.snapshot.all_warnings, *_of_new(current.snapshot, rows), *warn_of_new_in_kafka(rows))
    if store is not None:
        warnings += tuple(warn_of_larger_offsets(rows, reader.read_other(store, current.partitions), store))
    is_shift = target.kind == "shift"
    go_on = NOT_AGAIN if is_shift else GO_ON
    if target.from_now:
        moment = datetime.fromtimestamp(target.value / 1000, UTC).isoformat(timespec="milliseconds")
        go_on = f"to go on, run it with --to-datetime {moment} instead: offsets in place stay"
    return replace(_plan_of(current, rows), warnings=warnings, go_on=go_on, is_shift=is_shift)


def plan_group_undo(
    applier: Applier,
    group: str,
    path: Path,
    scope: Scope | None = None,
    store: Store | None = None,
    *,
    nodes_too: bool = False,
) -> Plan:
    """The plan that restores a backup, or only what of it is in ``scope`` and ``store``. ``nodes_too``:
    the caller restores its nodes.

    Raises ``UsageError`` for a file that is no backup, ``RefusedError`` for one of another group or cluster.
    """
    backup = backups.read(path)
    if backup.nodes and not backup.offsets and not nodes_too:
        raise _only_nodes(backup, group, path)
    open_questions = backups.check_fits(backup, applier.cluster(), group, path)
    offsets = [
        offset
        for offset in backup.offsets
        if (store is None or offset.store in stores_of(store)) and (scope is None or scope.has(offset.partition))
    ]
    if not offsets:
        raise UsageError(f"{path} has no offsets in this scope", "check --topic and --store")
    kept = {offset.store for offset in offsets}
    current = OffsetReader(applier.registry, applier.brokers, group, applier.timeout).read(
        Selection(listed=frozenset(offset.partition for offset in offsets), gone=True),
        "both" if len(kept) > 1 else next(iter(kept)),
        needs_logs=False,
    )
    rows = _with_times(applier, plan_undo(offsets, current.partitions), current.partitions)
    warnings: list[str | Notice] = [*open_questions, *current.snapshot.all_warnings, *_of_new(current.snapshot, rows)]
    if backup.nodes and not nodes_too:
        undoing = Remedy("see what restores them", group_command("delete-group", group, "--undo", str(path)))
        nodes = counted(len(backup.nodes), "node")
        warnings.append(Notice(f"{path} also has {nodes}, and only offsets are put back", undoing))
    refusals = _refuse_conflicts(find_moved(offsets, current.partitions), path, nodes_too=nodes_too)
    above = {znodes.group(group), znodes.offsets(group)}
    below = znodes.offsets(group) + "/"
    acls = {node.path: node.acl for node in backup.nodes if node.path in above or node.path.startswith(below)}
    plan = _plan_of(current, rows)
    return replace(plan, warnings=tuple(warnings), refusals=refusals, undone=path, acls=acls)


def _with_times(
    applier: Applier, rows: tuple[OffsetChange, ...], partitions: Mapping[TopicPartition, GroupPartition]
) -> tuple[OffsetChange, ...]:
    """The rows with the times of the messages at their targets; without them where brokers cannot be read, and of more
    than ``MAX_AGES`` partitions."""
    targets = {(row.key, row.target): next_message(row, partitions) for row in rows}
    positions: dict[TopicPartition, list[int]] = {}
    for (key, _), position in targets.items():
        if position is not None:
            positions.setdefault(key, []).append(position)
    if not positions or len(positions) > MAX_AGES:
        return rows
    from zkgroup.clients.kafka.message_times import message_times  # librdkafka: 60 ms

    try:
        times = message_times(applier.brokers(), positions, applier.timeout)
    except ZkgroupError:
        return rows
    found = ((row, times.get(row.key, {}), targets[row.key, row.target]) for row in rows)
    return tuple(replace(row, target_time=None if at is None else own.get(at)) for row, own, at in found)


def _plan_of(current: CurrentOffsets, rows: tuple[OffsetChange, ...]) -> Plan:
    return Plan(
        command="reset-offsets",
        group=current.snapshot.group,
        store=current.store,
        rows=rows,
        exists=current.snapshot.exists,
        partitions=current.partitions,
    )


def _refuse_conflicts(conflicts: Sequence[str], path: Path, *, nodes_too: bool) -> tuple[RefusedError, ...]:
    if not conflicts:
        return ()
    if nodes_too:
        message = f"the group has offsets in Kafka: {listed(conflicts)}"
        return (RefusedError(message, "give --store zookeeper to leave them alone"),)
    return (
        RefusedError(
            f"offsets have moved since {path} was written: {listed(conflicts)}",
            "undo the others with --topic, and set these with --to-offset if they are to be set",
        ),
    )


def check_origin(applier: Applier, file: OffsetFile) -> None:
    """Raise ``RefusedError`` where a file of offsets says that it is of another cluster."""
    here = applier.cluster() if file.clusters else None
    for other in file.clusters:
        if here is not None and other.differs(here):
            raise RefusedError(
                f"{file.name} is of another cluster{other.description}; this is {here.connect}{here.description}",
                "give --same-logs if both clusters have the same logs; else its offsets mean other messages",
            )


def _only_nodes(backup: Backup, group: str, path: Path) -> UsageError:
    """Of a deletion by pattern: whose groups' offsets are among their nodes."""
    undoing = ("--undo", str(path))
    if not any(backups.group_of(node.path) == group for node in backup.nodes):
        inspecting = Remedy("see what it has", ("delete-group", *undoing))
        return UsageError(f"{path} has nothing of group {group}", inspecting)
    return UsageError(
        f"{path} has nodes, and no offsets by themselves",
        Remedy(f"plan to make the nodes of {group} again", group_command("delete-group", group, *undoing)),
    )


def _of_new(snapshot: GroupSnapshot, rows: Iterable[OffsetChange]) -> list[str]:
    if snapshot.exists:
        return []
    message = f"there is no group {snapshot.group}"
    return [f"{message} yet: this makes it"] if any(row.moves for row in rows) else [message]
