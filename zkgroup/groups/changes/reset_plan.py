"""The plan of a reset, pure: what a group's offsets are, where they are to be, and what should be said about it.

Targets are those of KIP-122 (Kafka's ``kafka-consumer-groups --reset-offsets``). An offset outside the log is moved to
its nearer end, with a note: a member that finds its offset out of range goes where ``auto.offset.reset`` says, which by
default skips everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from zkgroup.clients.kafka.responses import TimeOffsets
from zkgroup.errors import UnreachableError, UsageError
from zkgroup.groups.changes.backup import SavedOffset
from zkgroup.groups.group_model import STORE_NAMES, GroupPartition, KafkaOffset, Store, StoredOffset
from zkgroup.groups.offset_files.file_entries import Wanted
from zkgroup.groups.partition_scope import ranges
from zkgroup.protocol.names import TopicPartition, spans
from zkgroup.shell_commands import Command, group_command
from zkgroup.text import are, counted

#: One of the two places where a group keeps its offsets.
OneStore: TypeAlias = Literal["zookeeper", "kafka"]
Kind: TypeAlias = Literal["earliest", "latest", "offset", "current", "shift", "time", "file"]


def stores_of(store: Store) -> tuple[OneStore, ...]:
    """The stores that are meant, in the order in which they are written."""
    return ("zookeeper", "kafka") if store == "both" else (store,)


@dataclass(frozen=True, slots=True)
class Target:
    """Where to. ``value``: an offset, by how many to shift, or milliseconds since 1970; ``offsets``: of a file.
    ``from_now``: a time that was counted from now, and would be another if that were asked for again."""

    kind: Kind
    value: int = 0
    offsets: Mapping[TopicPartition, Wanted] = field(default_factory=dict)
    from_now: bool = False


@dataclass(frozen=True, slots=True)
class ResetRow:
    """One partition in one store. ``target`` None: it is to have no offset. ``legible``: ``current`` is what is there,
    not None for something unreadable. ``raw``: what its node is to hold instead of the number alone. ``left``: it is
    not as it was before, and an undo leaves it so."""

    store: OneStore
    topic: str
    partition: int
    current: int | None
    target: int | None
    note: str | None = None
    legible: bool = True
    raw: bytes | None = None
    left: bool = False

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def change(self) -> int | None:
        """By how much the offset moves; None where there is none before or after."""
        return None if self.current is None or self.target is None else self.target - self.current

    @property
    def moves(self) -> bool:
        """Whether anything is to be written."""
        return self.raw is not None or self.target != self.current or (not self.legible and self.target is not None)


def plan_reset(
    target: Target,
    partitions: Iterable[GroupPartition],
    store: Store,
    times: TimeOffsets | None = None,
    homes: Mapping[TopicPartition, Store] | None = None,
) -> tuple[ResetRow, ...]:
    """The rows of a plan, in order: by topic and partition, ZooKeeper before Kafka.

    ``homes``: in which store each partition is meant, ``store`` where that is not told.
    ``times`` are the brokers' answers for a target that is a time. Raises ``UnreachableError`` where the log of a
    partition must be known and is not.
    """
    planner = _Planner(target, store, times, homes or {})
    return tuple(row for partition in sorted(partitions, key=lambda one: one.key) for row in planner.rows(partition))


@dataclass(frozen=True, slots=True)
class _Planner:
    target: Target
    store: Store
    times: TimeOffsets | None
    homes: Mapping[TopicPartition, Store]

    def rows(self, partition: GroupPartition) -> list[ResetRow]:
        """One for each store."""
        found = []
        for store in stores_of(self.homes.get(partition.key, self.store)):
            offset, why = current_offset(partition, store)
            notes = [f"the offset is unreadable: {why}"] if why else []
            if not partition.exists:
                target = offset
                notes.append(f"{partition.log_error or 'it does not exist'}: left as it is")
            else:
                target = self._target(partition, offset, notes)
            defect = partition.stored.defect if store == "zookeeper" and partition.stored is not None else None
            if defect is not None:
                left = offset is not None and target == offset
                notes.append(f"{'only the number is left of it' if left else 'members cannot read it'}: {defect}")
            row = ResetRow(store, *partition.key, offset, target, "; ".join(notes) or None, not (why or defect))
            found.append(row)
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


def home_of(partition: GroupPartition, otherwise: OneStore) -> Store:
    """Where a partition's offset is kept: in the stores that have one, readable or not; ``otherwise`` where none has.
    One that is put beside it is more than a move: Kafka forgets it with the whole group only."""
    in_zookeeper, in_kafka = (
        (found := current_offset(partition, store))[0] is not None or found[1] is not None
        for store in stores_of("both")
    )
    if in_zookeeper and in_kafka:
        return "both"
    return "zookeeper" if in_zookeeper else "kafka" if in_kafka else otherwise


def current_offset(partition: GroupPartition, store: OneStore) -> tuple[int | None, str | None]:
    """The committed offset in one store, and why it cannot be read."""
    found: StoredOffset | KafkaOffset | None = partition.stored if store == "zookeeper" else partition.kafka
    return (None, None) if found is None else (found.offset, found.error)


def _within_log(partition: GroupPartition, wanted: Wanted, notes: list[str]) -> int:
    start, end = partition.log_start, partition.log_end
    if start is None or end is None:
        raise UnreachableError(
            f"the log of {partition.name} is not known: {partition.log_error or 'it was not asked for'}",
            "nothing is planned beyond what can be checked: mend it, or leave the partition out with --topic",
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
    held: Mapping[TopicPartition, bytes] | None = None,
) -> tuple[ResetRow, ...]:
    """Rows that put back what a backup holds, in range or not, byte by byte; ``moved_since`` tells what stands in the
    way. ``held``: what nodes in ZooKeeper hold that is not just a number."""
    rows = []
    for undo in sorted(undos, key=lambda one: (one.partition, one.store != "zookeeper")):
        partition = partitions.get(undo.partition, GroupPartition(*undo.partition))
        current, why = current_offset(partition, undo.store)
        notes = [f"the offset is unreadable: {why}"] if why else []
        target = undo.before
        raw, left = undo.raw, False
        there = _there(undo, held)
        done = there == undo.raw if there is not None else current == undo.before and not why and undo.raw is None
        if done:
            notes.append("is as it was before")
            target, raw = current, None
        elif undo.raw is not None:
            notes.append(f"byte by byte as it was, {_shown(undo.raw)}: no member of the reference can read that")
        elif undo.before is None and undo.store == "kafka":
            notes.append("had no offset; Kafka cannot forget a single one: left as it is")
            target, left = current, True
        elif undo.before is None:
            notes.append("had no offset: it is deleted")
        else:
            _note_range(partition, undo.before, notes)
        legible = done or (not why and there is None)
        row = ResetRow(undo.store, *undo.partition, current, target, "; ".join(notes) or None, legible, raw, left)
        rows.append(row)
    return tuple(rows)


def _there(undo: SavedOffset, held: Mapping[TopicPartition, bytes] | None) -> bytes | None:
    """What its node holds besides a number."""
    return None if held is None or undo.store == "kafka" else held.get(undo.partition)


def _shown(raw: bytes) -> str:
    text = raw.decode("utf-8", "backslashreplace")
    return repr(text if len(text) <= 20 else text[:20] + "…")


def _note_range(partition: GroupPartition, offset: int, notes: list[str]) -> None:
    if partition.log_end is not None and offset > partition.log_end:
        notes.append(f"beyond the log's end {partition.log_end}")
    elif partition.log_start is not None and offset < partition.log_start:
        notes.append(f"before the log's start {partition.log_start}")


def moved_since(
    undos: Sequence[SavedOffset],
    partitions: Mapping[TopicPartition, GroupPartition],
    held: Mapping[TopicPartition, bytes] | None = None,
) -> list[str]:
    """The offsets that are neither what a backup's reset wrote nor what the backup holds, in words. ``held`` as in
    ``plan_undo``."""
    found = []
    for undo in undos:
        there = _there(undo, held)
        ours = None if undo.before is None and undo.raw is None else undo.written_raw
        if there is not None and there in (undo.raw, ours):
            continue
        current, why = current_offset(partitions.get(undo.partition, GroupPartition(*undo.partition)), undo.store)
        if why or current not in (undo.before, undo.written):
            shown = "unreadable" if why else "none" if current is None else str(current)
            wrote = "none" if undo.written is None else undo.written
            found.append(f"{undo.partition} is {shown} in {STORE_NAMES[undo.store]}, where {wrote} was written")
    return found


@dataclass(frozen=True, slots=True)
class Passed:
    """A row whose target lies outside its log: retention passed it, or the log was cut. ``end``: the end of the log
    that is nearer."""

    row: ResetRow
    end: Literal["earliest", "latest"]
    text: str


def out_of_range(rows: Iterable[ResetRow], partitions: Mapping[TopicPartition, GroupPartition]) -> list[Passed]:
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


def back_into_range(group: str, passed: Sequence[Passed]) -> list[Command]:
    """The commands that bring these, and no others, to the nearer ends of their logs. What was asked for is no such
    command: it would shift the rest once more, or put back what is out of range."""
    meant: dict[tuple[str, Store], dict[str, set[int]]] = {}
    homes: dict[tuple[str, TopicPartition], list[OneStore]] = {}
    for one in passed:
        homes.setdefault((one.end, one.row.key), []).append(one.row.store)
    for (end, key), stores in homes.items():
        store: Store = "both" if len(set(stores)) > 1 else stores[0]
        meant.setdefault((end, store), {}).setdefault(key.topic, set()).add(key.partition)
    commands = []
    for (end, store), topics in meant.items():
        scope = [word for topic, numbers in topics.items() for word in ("--topic", f"{topic}:{ranges(numbers)}")]
        commands.append(group_command("reset-offsets", group, *scope, f"--to-{end}", "--store", store, "--execute"))
    return commands


def new_in_kafka(rows: Iterable[ResetRow]) -> list[str]:
    """A warning where offsets come to be in Kafka that cannot be taken back."""
    new = [row.key for row in rows if row.store == "kafka" and row.current is None and row.target is not None]
    if not new:
        return []
    what = f"Kafka has had no offset of {spans(new)}, and cannot forget single ones"
    return [f"{what}: --undo will leave what is written there"]


def left_by(group: str, rows: Iterable[ResetRow]) -> str | None:
    """What an undo leaves as it is, though it was otherwise before, in words; None where that is nothing."""
    left = [row.key for row in rows if row.left]
    if not left:
        return None
    count = len(left)
    return (
        f"{counted(count, 'offset')} of group {group} {are(count)} not as before: Kafka keeps {spans(left)}, where it"
        " had none, and cannot forget single offsets"
    )


def overruled(rows: Iterable[ResetRow], elsewhere: Mapping[TopicPartition, int], store: Store) -> list[str]:
    """A warning where one store is set back and the other is not: a member that commits to both
    (``dual.commit.enabled``) starts from the larger offset (Kafka 1.1.1, ``ZookeeperConsumerConnector``)."""
    held = [row.key for row in rows if row.target is not None and elsewhere.get(row.key, -1) > row.target]
    if not held:
        return []
    other = STORE_NAMES["kafka" if store == "zookeeper" else "zookeeper"]
    what = f"{other} has larger offsets of {spans(held)}, where members that commit to both would start"
    return [f"{what}: see --store both"]


def check_bounds(target: Target) -> Target:
    """Raise ``UsageError`` for numbers that are no offset."""
    if target.kind == "offset" and not 0 <= target.value < 2**63:
        raise UsageError(
            f"{target.value} is no offset", "offsets are numbers from 0; see --to-earliest and --to-latest"
        )
    if target.kind == "shift" and abs(target.value) >= 2**63:
        raise UsageError(f"{target.value} is more than any log holds", "give a smaller number")
    return target
