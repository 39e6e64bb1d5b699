"""The plan of a reset: reads a group and its logs; pure functions make the rows with their targets, and warnings.

Targets are those of KIP-122 (Kafka's ``kafka-consumer-groups --reset-offsets``). An offset outside the log is moved to
its nearer end, with a note: a member that finds its offset out of range goes where ``auto.offset.reset`` says, which by
default skips everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from zkgroup.clients.kafka.responses import KafkaOffset, TimeOffsets
from zkgroup.errors import Notice, RefusedError, Remedy, UnreachableError, UsageError, ZkgroupError
from zkgroup.groups.changes.applier import Applier
from zkgroup.groups.changes.current_offsets import CurrentOffsets, OffsetReader, offset_in
from zkgroup.groups.changes.plan import GO_ON, NOT_AGAIN, OffsetChange, Plan
from zkgroup.groups.group_model import (
    STORE_NAMES,
    GroupPartition,
    GroupSnapshot,
    Store,
    StoredOffset,
    other_store,
    stores_of,
)
from zkgroup.groups.offset_files.format_readers import OffsetFile, Wanted
from zkgroup.groups.partition_scope import Selection
from zkgroup.groups.snapshot.broker_queries import answer_timeout
from zkgroup.groups.snapshot.group_reader import MAX_AGES, no_such_group
from zkgroup.protocol.names import TopicPartition, spans

Kind: TypeAlias = Literal["earliest", "latest", "offset", "current", "shift", "time", "file"]


@dataclass(frozen=True, slots=True)
class Target:
    """Where to. ``value``: an offset, by how many to shift, or milliseconds since 1970; ``offsets``: of a file.
    ``from_now``: a time that was counted from now, and would be another if that were asked for again."""

    kind: Kind
    value: int = 0
    offsets: Mapping[TopicPartition, Wanted] = field(default_factory=dict)
    from_now: bool = False


def plan_reset(
    target: Target,
    partitions: Iterable[GroupPartition],
    store: Store,
    times: TimeOffsets | None = None,
    stores: Mapping[TopicPartition, Store] | None = None,
) -> tuple[OffsetChange, ...]:
    """The rows of a plan, in order: by topic and partition, ZooKeeper before Kafka.

    ``stores``: in which store each partition is meant, by default ``store``. ``times``: the brokers' answers
    for a target that is a time. Raises ``UnreachableError`` where
    the log of a partition must be known and is not.
    """
    rows = []
    for partition in sorted(partitions, key=lambda one: one.key):
        for one in stores_of((stores or {}).get(partition.key, store)):
            seen = offset_in(partition, one)
            offset = None if seen is None else seen.offset
            notes = [f"the offset is unreadable: {seen.error}"] if seen is not None and seen.error else []
            if not partition.exists:
                wanted = offset
                notes.append(f"{partition.log_error or 'it does not exist'}: left as it is")
            else:
                wanted = _target_of(partition, target, store, offset, times, notes)
            defect = seen.defect if isinstance(seen, StoredOffset) else None
            if defect is not None:
                stripped = offset is not None and wanted == offset
                notes.append(f"{'only the number is left of it' if stripped else 'members cannot read it'}: {defect}")
            metadata = seen.metadata if isinstance(seen, KafkaOffset) else ""
            row = OffsetChange(one, *partition.key, offset, wanted, "; ".join(notes) or None, seen=seen)
            rows.append(replace(row, metadata=metadata, stays=wanted is None))
    return tuple(rows)


def _target_of(
    partition: GroupPartition,
    target: Target,
    store: Store,
    current: int | None,
    times: TimeOffsets | None,
    notes: list[str],
) -> int | None:
    wanted: Wanted = None
    match target.kind:
        case "current":
            if current is None:
                notes.append("no offset is committed: stays so")
            elif why := partition.why_outside(current):
                notes.append(why)
            return current
        case "earliest" | "latest":
            wanted = target.kind
        case "offset":
            wanted = target.value
        case "shift":
            base = partition.committed(store)
            if base is None:
                notes.append("no offset is committed: nothing to shift")
                return current
            if base != current:
                notes.append("shifted from the larger of both stores")
            wanted = base + target.value
        case "time":
            assert times is not None, "a time needs the brokers' answers"
            wanted = _by_time(partition, times, notes)
        case "file":
            wanted = target.offsets[partition.key]
            if wanted is None:
                notes.append("the file has no offset for it: left as it is")
                return current
    if current is None and not notes:
        notes.append("had no offset")
    return _within_log(partition, wanted, notes)


def _by_time(partition: GroupPartition, times: TimeOffsets, notes: list[str]) -> Wanted:
    found = times.offsets.get(partition.key)
    if times.by_segments:
        notes.append("by the segments' times: these brokers have no time index")
        return "earliest" if found is None else found
    if found is None:
        notes.append("no message since then: the end")
        return "latest"
    if doubt := times.doubts.get(partition.key):
        notes.append(doubt)
    return found


def next_message(row: OffsetChange, partitions: Mapping[TopicPartition, GroupPartition]) -> int | None:
    """The offset within the log at which a member reads on from the row's target; None where the log has no more, or
    is unknown."""
    partition = partitions.get(row.key)
    if partition is None or row.target is None or partition.log_start is None or partition.log_end is None:
        return None
    position = max(row.target, partition.log_start)
    return position if position < partition.log_end else None


def _within_log(partition: GroupPartition, wanted: Wanted, notes: list[str]) -> int:
    start, end = partition.log_start, partition.log_end
    if start is None or end is None:
        raise UnreachableError(
            f"the log of {partition.name} is not known: {partition.log_error or 'it was not asked for'}",
            "mend it, or leave the partition out with --topic",
        )
    if wanted == "earliest":
        return start
    if wanted == "latest" or wanted is None:
        return end
    assert isinstance(wanted, int)
    if wanted > end:
        notes.append(f"{wanted} is beyond the log: clamped to its end")
        return end
    if wanted < start:
        notes.append(f"{wanted} is before the log: clamped to its start")
        return start
    return wanted


def warn_of_new_in_kafka(rows: Iterable[OffsetChange]) -> list[Notice]:
    """A warning where offsets come to be in Kafka that cannot be taken back."""
    new = [row.key for row in rows if row.store == "kafka" and row.current is None and row.target is not None]
    if not new:
        return []
    what = f"Kafka has had no offset of {spans(new)}, and cannot forget single ones"
    return [Notice(f"{what}: --undo will leave what is written there")]


def warn_of_larger_offsets(
    rows: Iterable[OffsetChange], elsewhere: Mapping[TopicPartition, int], store: Store
) -> list[Notice]:
    """A warning where one store is set back and the other is not: a member that commits to both
    (``dual.commit.enabled``) starts from the larger offset (Kafka 1.1.1, ``ZookeeperConsumerConnector``)."""
    larger = [row.key for row in rows if row.target is not None and elsewhere.get(row.key, -1) > row.target]
    if not larger or store == "both":
        return []
    other = STORE_NAMES[other_store(store)]
    what = f"{other} has larger offsets of {spans(larger)}, where members that commit to both would start"
    return [Notice(what, Remedy("move both with reset-offsets and --store both"))]


def check_bounds(target: Target) -> Target:
    """Raise ``UsageError`` for numbers that are no offset."""
    if target.kind == "offset" and not 0 <= target.value < 2**63:
        raise UsageError(f"{target.value} is no offset", "give a number from 0, or --to-earliest or --to-latest")
    if target.kind == "shift" and abs(target.value) >= 2**63:
        raise UsageError(f"{target.value} is beyond every log", "give a smaller number")
    return target


# --- with a group as it is ------------------------------------------------------------------------------------------


def plan_group_reset(
    applier: Applier, group: str, target: Target, selection: Selection, store: Store | None = None
) -> Plan:
    """The plan of a reset. Without ``store``, in the stores where the group keeps its offsets.

    Raises ``NotFoundError`` for a group, topic or partition that does not exist, ``UnreachableError`` where a server or
    a log cannot be asked.
    """
    reader = OffsetReader(applier, group)
    current = reader.read(selection, store, needs_logs=target.kind != "current")
    if target.kind == "shift" and not current.snapshot.exists:
        raise no_such_group(group, applier.registry, None if store == "zookeeper" else (), store=store)
    times = None
    if target.kind == "time":
        logs = {
            key: (partition.log_start, partition.log_end)
            for key, partition in current.partitions.items()
            if partition.exists and partition.log_start is not None and partition.log_end is not None
        }
        from zkgroup.clients.kafka.message_times import first_since

        times = first_since(applier.brokers(), logs, target.value, answer_timeout(applier.timeout, len(logs)))
    rows = plan_reset(target, current.partitions.values(), current.store, times, current.stores)
    rows = with_times(applier, rows, current.partitions)
    warnings = (*current.snapshot.all_warnings, *warn_of_new_group(current.snapshot, rows), *warn_of_new_in_kafka(rows))
    if store is not None:
        warnings += tuple(warn_of_larger_offsets(rows, reader.read_other(store, current.partitions), store))
    is_shift = target.kind == "shift"
    go_on = NOT_AGAIN if is_shift else GO_ON
    if target.from_now:
        moment = datetime.fromtimestamp(target.value / 1000, UTC).isoformat(timespec="milliseconds")
        go_on = f"to go on, run it with --to-datetime {moment} instead: offsets in place stay"
    return replace(plan_of(current, rows), warnings=warnings, go_on=go_on, is_shift=is_shift)


def with_times(
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
    from zkgroup.clients.kafka.message_times import message_times

    try:
        times = message_times(applier.brokers(), positions, applier.timeout)
    except ZkgroupError:
        return rows
    found = ((row, times.get(row.key, {}), targets[row.key, row.target]) for row in rows)
    return tuple(replace(row, target_time=None if at is None else own.get(at)) for row, own, at in found)


def plan_of(current: CurrentOffsets, rows: tuple[OffsetChange, ...]) -> Plan:
    return Plan(
        command="reset-offsets",
        group=current.snapshot.group,
        store=current.store,
        rows=rows,
        exists=current.snapshot.exists,
        partitions=current.partitions,
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


def warn_of_new_group(snapshot: GroupSnapshot, rows: Iterable[OffsetChange]) -> list[Notice]:
    if snapshot.exists:
        return []
    message = f"there is no group {snapshot.group}"
    return [Notice(f"{message} yet: this makes it" if any(row.moves for row in rows) else message)]
