"""The plan of a reset, pure: a group's offsets, their targets, and warnings.

Targets are those of KIP-122 (Kafka's ``kafka-consumer-groups --reset-offsets``). An offset outside the log is moved to
its nearer end, with a note: a member that finds its offset out of range goes where ``auto.offset.reset`` says, which by
default skips everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from zkgroup.clients.kafka.responses import KafkaOffset, TimeOffsets
from zkgroup.errors import UnreachableError, UsageError
from zkgroup.groups.changes.backup_json import SavedOffset
from zkgroup.groups.changes.plan import OffsetChange
from zkgroup.groups.group_model import STORE_NAMES, GroupPartition, OffsetStore, Store, StoredOffset, stores_of
from zkgroup.groups.offset_files.file_entries import Wanted
from zkgroup.groups.partition_scope import ranges
from zkgroup.groups.snapshot.group_znodes import java_long
from zkgroup.protocol.names import TopicPartition, spans
from zkgroup.text import Command, are, counted, group_command

#: How to go on with a shift, which would move once more what is written.
NOT_AGAIN: Final = "do not just run it again, which would shift the written offsets once more: --undo the backup first"
NOT_AGAIN_IN_ZOOKEEPER: Final = NOT_AGAIN.replace(" first", " with --store zookeeper first")

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
    planner = _Planner(target, store, times, stores or {})
    return tuple(row for partition in sorted(partitions, key=lambda one: one.key) for row in planner.rows(partition))


@dataclass(frozen=True, slots=True)
class _Planner:
    target: Target
    store: Store
    times: TimeOffsets | None
    stores: Mapping[TopicPartition, Store]

    def rows(self, partition: GroupPartition) -> list[OffsetChange]:
        """One for each store."""
        found = []
        for store in stores_of(self.stores.get(partition.key, self.store)):
            seen = offset_in(partition, store)
            offset = None if seen is None else seen.offset
            notes = [f"the offset is unreadable: {seen.error}"] if seen is not None and seen.error else []
            if not partition.exists:
                target = offset
                notes.append(f"{partition.log_error or 'it does not exist'}: left as it is")
            else:
                target = self._target(partition, offset, notes)
            defect = seen.defect if isinstance(seen, StoredOffset) else None
            if defect is not None:
                stripped = offset is not None and target == offset
                notes.append(f"{'only the number is left of it' if stripped else 'members cannot read it'}: {defect}")
            metadata = seen.metadata if isinstance(seen, KafkaOffset) else ""
            row = OffsetChange(store, *partition.key, offset, target, "; ".join(notes) or None, seen=seen)
            found.append(replace(row, metadata=metadata, stays=target is None))
        return found

    def _target(self, partition: GroupPartition, current: int | None, notes: list[str]) -> int | None:
        kind, value = self.target.kind, self.target.value
        wanted: Wanted = None
        match kind:
            case "current":
                if current is None:
                    notes.append("no offset is committed: stays so")
                else:
                    _note_range(partition, current, notes)
                return current
            case "earliest" | "latest":
                wanted = kind
            case "offset":
                wanted = value
            case "shift":
                base = partition.committed(self.store)
                if base is None:
                    notes.append("no offset is committed: nothing to shift")
                    return current
                if base != current:
                    notes.append("shifted from the larger of both stores")
                wanted = base + value
            case "time":
                wanted = self._by_time(partition, notes)
            case "file":
                wanted = self.target.offsets[partition.key]
                if wanted is None:
                    notes.append("the file has no offset for it: left as it is")
                    return current
        if current is None and not notes:
            notes.append("had no offset")
        return _within_log(partition, wanted, notes)

    def _by_time(self, partition: GroupPartition, notes: list[str]) -> Wanted:
        assert self.times is not None, "a time needs the brokers' answers"
        found = self.times.offsets.get(partition.key)
        if self.times.by_segments:
            notes.append("by the segments' times: these brokers have no time index")
            return "earliest" if found is None else found
        if found is None:
            notes.append("no message since then: the end")
            return "latest"
        if doubt := self.times.doubts.get(partition.key):
            notes.append(doubt)
        return found


def stores_with_offset(partition: GroupPartition, otherwise: OffsetStore) -> Store:
    """Where a partition's offset is kept: in the stores that have one, readable or not; ``otherwise`` where none has.
    Another one would be more than a move: Kafka forgets it with the whole group only."""
    in_zookeeper, in_kafka = (
        (found := offset_in(partition, store)) is not None and (found.offset is not None or found.error is not None)
        for store in stores_of("both")
    )
    if in_zookeeper and in_kafka:
        return "both"
    return "zookeeper" if in_zookeeper else "kafka" if in_kafka else otherwise


def offset_in(partition: GroupPartition, store: OffsetStore) -> StoredOffset | KafkaOffset | None:
    """The committed offset in one store."""
    return partition.stored if store == "zookeeper" else partition.kafka


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


def plan_undo(
    undos: Sequence[SavedOffset],
    partitions: Mapping[TopicPartition, GroupPartition],
) -> tuple[OffsetChange, ...]:
    """Rows that restore a backup, in range or not, byte by byte; ``find_moved`` finds conflicts."""
    rows = []
    for undo in sorted(undos, key=lambda one: (one.partition, one.store != "zookeeper")):
        partition = partitions.get(undo.partition, GroupPartition(*undo.partition))
        seen = offset_in(partition, undo.store)
        current, error = (None, None) if seen is None else (seen.offset, seen.error)
        notes = [f"the offset is unreadable: {error}"] if error else []
        there = seen.data if isinstance(seen, StoredOffset) else None
        row = OffsetChange(undo.store, *undo.partition, current, undo.before, seen=seen, raw=undo.raw)
        done = there == undo.raw if there is not None else current == undo.before and not error and undo.raw is None
        if done:
            notes.append("is as it was before")
            row = replace(row, target=current, raw=None, stays=True)
        elif undo.raw is not None:
            unread = "" if java_long(undo.raw) is not None else ": no member of the Scala consumer can read that"
            notes.append(f"byte by byte as it was, {_shown(undo.raw)}{unread}")
        elif undo.before is None and undo.store == "kafka":
            notes.append("had no offset; Kafka cannot forget a single one: left as it is")
            row = replace(row, target=current, problem="left", stays=True)
        elif undo.before is None:
            notes.append("had no offset: it is deleted")
        else:
            _note_range(partition, undo.before, notes)
        rows.append(replace(row, note="; ".join(notes) or None, metadata=undo.metadata))
    return tuple(rows)


def _shown(raw: bytes) -> str:
    text = raw.decode("utf-8", "backslashreplace")
    return repr(text if len(text) <= 20 else text[:20] + "…")


def _note_range(partition: GroupPartition, offset: int, notes: list[str]) -> None:
    if partition.log_end is not None and offset > partition.log_end:
        notes.append(f"beyond the log's end {partition.log_end}")
    elif partition.log_start is not None and offset < partition.log_start:
        notes.append(f"before the log's start {partition.log_start}")


def find_moved(
    undos: Sequence[SavedOffset],
    partitions: Mapping[TopicPartition, GroupPartition],
) -> list[str]:
    """The offsets that are neither what a backup's reset wrote nor the backup's, in words."""
    found = []
    for undo in undos:
        seen = offset_in(partitions.get(undo.partition, GroupPartition(*undo.partition)), undo.store)
        there = seen.data if isinstance(seen, StoredOffset) else None
        ours = None if undo.before is None and undo.raw is None else undo.written_raw
        if there is not None and there in (undo.raw, ours):
            continue
        current, error = (None, None) if seen is None else (seen.offset, seen.error)
        if error or current not in (undo.before, undo.written):
            shown = "unreadable" if error else "none" if current is None else str(current)
            wrote = "none" if undo.written is None else undo.written
            found.append(f"{undo.partition} is {shown} in {STORE_NAMES[undo.store]}, where {wrote} was written")
    return found


@dataclass(frozen=True, slots=True)
class Passed:
    """A row whose target lies outside its log: retention passed it, or the log was cut. ``end``: the end of the log
    that is nearer."""

    row: OffsetChange
    end: Literal["earliest", "latest"]
    text: str


def find_out_of_range(
    rows: Iterable[OffsetChange], partitions: Mapping[TopicPartition, GroupPartition]
) -> list[Passed]:
    """Which targets lie outside the logs as they are now."""
    found = []
    for row in rows:
        partition = partitions.get(row.key)
        if row.target is None or partition is None or partition.log_start is None or partition.log_end is None:
            continue
        if row.target < partition.log_start:
            text = f"{row.key}: the log now starts at {partition.log_start}, behind {row.target}"
            found.append(Passed(row, "earliest", text))
        elif row.target > partition.log_end:
            text = f"{row.key}: the log now ends at {partition.log_end}, before {row.target}"
            found.append(Passed(row, "latest", text))
    return found


def commands_into_range(group: str, passed: Sequence[Passed]) -> list[Command]:
    """The commands that bring these, and no others, to the nearer ends of their logs. The original command
    would shift the rest once more, or put back offsets that are out of range."""
    meant: dict[tuple[str, Store], dict[str, set[int]]] = {}
    by_end: dict[tuple[str, TopicPartition], list[OffsetStore]] = {}
    for one in passed:
        by_end.setdefault((one.end, one.row.key), []).append(one.row.store)
    for (end, key), stores in by_end.items():
        store: Store = "both" if len(set(stores)) > 1 else stores[0]
        meant.setdefault((end, store), {}).setdefault(key.topic, set()).add(key.partition)
    commands = []
    for (end, store), topics in meant.items():
        scope = [word for topic, numbers in topics.items() for word in ("--topic", f"{topic}:{ranges(numbers)}")]
        commands.append(group_command("reset-offsets", group, *scope, f"--to-{end}", "--store", store, "--execute"))
    return commands


def warn_of_new_in_kafka(rows: Iterable[OffsetChange]) -> list[str]:
    """A warning where offsets come to be in Kafka that cannot be taken back."""
    new = [row.key for row in rows if row.store == "kafka" and row.current is None and row.target is not None]
    if not new:
        return []
    what = f"Kafka has had no offset of {spans(new)}, and cannot forget single ones"
    return [f"{what}: --undo will leave what is written there"]


def describe_unrestored(group: str, rows: Iterable[OffsetChange]) -> str | None:
    """The offsets that an undo cannot restore, as text; None where there are none."""
    left = [row.key for row in rows if row.problem == "left"]
    if not left:
        return None
    count = len(left)
    return (
        f"{counted(count, 'offset')} of group {group} {are(count)} not as before: Kafka keeps {spans(left)}, where it"
        " had none, and cannot forget single offsets"
    )


def warn_of_larger_offsets(
    rows: Iterable[OffsetChange], elsewhere: Mapping[TopicPartition, int], store: Store
) -> list[str]:
    """A warning where one store is set back and the other is not: a member that commits to both
    (``dual.commit.enabled``) starts from the larger offset (Kafka 1.1.1, ``ZookeeperConsumerConnector``)."""
    larger = [row.key for row in rows if row.target is not None and elsewhere.get(row.key, -1) > row.target]
    if not larger:
        return []
    other = STORE_NAMES["kafka" if store == "zookeeper" else "zookeeper"]
    what = f"{other} has larger offsets of {spans(larger)}, where members that commit to both would start"
    return [f"{what}: reset-offsets --store both moves both"]


def check_bounds(target: Target) -> Target:
    """Raise ``UsageError`` for numbers that are no offset."""
    if target.kind == "offset" and not 0 <= target.value < 2**63:
        raise UsageError(f"{target.value} is no offset", "give a number from 0, or --to-earliest or --to-latest")
    if target.kind == "shift" and abs(target.value) >= 2**63:
        raise UsageError(f"{target.value} is beyond every log", "give a smaller number")
    return target
