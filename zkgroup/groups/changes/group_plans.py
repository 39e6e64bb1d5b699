"""Plans of what is done to whole groups, pure: copying offsets to another group, deleting, finding debris."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Literal

from zkgroup.errors import RefusedError, UsageError, ZkgroupError
from zkgroup.groups.changes.backup import OffsetStore
from zkgroup.groups.changes.group_tree import GroupTree
from zkgroup.groups.changes.unfinished_exports import told_of_export
from zkgroup.groups.group_model import KafkaOffset, StoredOffset
from zkgroup.groups.snapshot.tables import foreign_note
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Stat
from zkgroup.text import listed

_AGE: Final = re.compile(r"([0-9]{1,9})\s*([smhdw])", re.ASCII | re.IGNORECASE)
_MILLIS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


# --- copying --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CopyRow:
    """One partition: what the other group has (``current``) and what it is to get. ``target`` None: nothing is done.

    ``unreadable``: nothing is done because nobody can tell what the offset is. ``metadata``: what Kafka keeps beside
    it.
    """

    topic: str
    partition: int
    store: OffsetStore
    current: int | None
    target: int | None
    note: str | None = None
    unreadable: bool = False
    conflict: bool = False
    metadata: str = ""

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def change(self) -> int | None:
        """By how much the other group moves; None where it has had no offset, or gets none."""
        return None if self.current is None or self.target is None else self.target - self.current

    @property
    def moves(self) -> bool:
        """Whether anything is written."""
        return self.target is not None and (self.target != self.current or self.conflict)


def plan_copy(
    store: OffsetStore,
    source: Mapping[TopicPartition, StoredOffset] | Mapping[TopicPartition, KafkaOffset],
    target: Mapping[TopicPartition, StoredOffset] | Mapping[TopicPartition, KafkaOffset],
) -> list[CopyRow]:
    """What copying the ``source`` group's offsets in one store to the ``target`` group does, in their order."""
    rows = []
    for key in sorted(source):
        one, other = source[key], target.get(key)
        current = None if other is None else other.offset
        if one.error is not None:
            rows.append(CopyRow(*key, store, current, None, f"not copied: {one.error}", unreadable=True))
        elif one.offset is None:
            rows.append(CopyRow(*key, store, current, None, "not copied: -1 stands for none"))
        else:
            notes = []
            conflict = False
            if other is not None and other.error is not None:
                conflict = True
                notes.append(f"replaces what is no offset: {other.error}")
            elif current == one.offset:
                notes.append("is there already")
            elif current is not None:
                conflict = True
                notes.append(f"replaces {current}")
            note = "; ".join(notes) or None
            metadata = one.metadata if isinstance(one, KafkaOffset) else ""
            rows.append(CopyRow(*key, store, current, one.offset, note, conflict=conflict, metadata=metadata))
    return rows


# --- deleting -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeleteRow:
    """One offset that is to go. ``committed_at``: milliseconds since 1970, None where the store does not tell."""

    topic: str
    partition: int
    store: OffsetStore
    committed: int | None
    committed_at: int | None
    note: str | None = None


def plan_delete(tree: GroupTree | None, kafka: Mapping[TopicPartition, KafkaOffset]) -> list[DeleteRow]:
    """The offsets that go with the nodes of ``tree``, and those in Kafka."""
    rows = []
    if tree is not None:
        for key, stored in tree.offsets.items():
            rows.append(DeleteRow(*key, "zookeeper", stored.offset, stored.changed_at, stored.error))
    for key in sorted(kafka):
        rows.append(DeleteRow(*key, "kafka", kafka[key].offset, None, kafka[key].error))
    return rows


def refuse_foreign(tree: GroupTree | None, remedy: str) -> RefusedError | None:
    """The error for a change by which nothing but another client's nodes would be lost; None where that is not so."""
    if tree is None or not tree.is_foreign:
        return None
    (lost,) = foreign_note(tree.foreign, "all that would be lost")
    return RefusedError(f"group {tree.group}: {lost}", remedy)


# --- debris ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DebrisRow:
    """A group that a pattern or a backup means. ``znodes``: how many it has, or is to get; ``last_change``: in
    milliseconds since 1970; where that is not known, the earliest moment by which it had surely happened. ``barred``:
    it would go, but for what these credentials may not read of it; ``note`` says what."""

    group: str
    state: Literal["active", "inactive", "broken"]
    members: int
    partitions: int
    znodes: int
    last_change: int | None
    action: Literal["delete", "keep", "make"]
    note: str | None = None
    barred: bool = False


def parse_age(text: str) -> int:
    """Milliseconds of ``30d``, ``12h``, ``90m``, ``45s``, ``2w``, or of an ISO 8601 duration. Raises ``UsageError``."""
    match = _AGE.fullmatch(text.strip())
    if match is not None:
        return int(match[1]) * _MILLIS[match[2].lower()]
    if text.strip()[:1].upper() == "P":
        from zkgroup.groups.changes.reset_targets import (
            parse_duration,  # brings confluent-kafka, for what else is there
        )

        return parse_duration(text)
    raise UsageError(f"{text[:40]!r} is no age", "write it like 30d, 12h or P30D")


def matching(names: Iterable[str], patterns: Iterable[str]) -> list[str]:
    """The names that any of the patterns matches wholly: ``*``, ``?``, ``[abc]``, case counts."""
    wanted = list(patterns)
    return sorted(name for name in set(names) if any(fnmatchcase(name, pattern) for pattern in wanted))


def find_debris(
    trees: Iterable[GroupTree],
    now: int,
    older_than: int,
    others: Iterable[Stat] = (),
    in_kafka: Mapping[str, Sequence[str] | ZkgroupError] | None = None,
    *,
    foreign: bool = False,
) -> list[DebrisRow]:
    """Which of these groups may go: those that nobody works for, and whose nodes all changed last more than
    ``older_than`` milliseconds before ``now``. ``in_kafka``: the groups that are in Kafka, too, each with its members
    there, or with why they are not known. ``foreign``: also those that have nothing but nodes of another client.

    When a member left, or an owner let go, no node tells, only in which transaction (``pzxid``). ``others`` are stats
    of any nodes of the cluster: the first one written after that transaction tells by when it had happened. Where there
    is none, it may have been just now.
    """
    wanted = [tree for tree in trees if tree.nodes or tree.unreadable]
    stats = [*others, *(node.stat for tree in wanted for node in tree.nodes)]
    clock = sorted({pair for stat in stats for pair in ((stat.czxid, stat.ctime), (stat.mzxid, stat.mtime))})
    kafka = in_kafka or {}
    return [_debris(tree, now, older_than, clock, kafka.get(tree.group), foreign=foreign) for tree in wanted]


def _debris(
    tree: GroupTree,
    now: int,
    older_than: int,
    clock: Sequence[tuple[int, int]],
    in_kafka: Sequence[str] | ZkgroupError | None,
    *,
    foreign: bool,
) -> DebrisRow:
    state: Literal["active", "inactive", "broken"] = "inactive"
    members = () if in_kafka is None or isinstance(in_kafka, ZkgroupError) else in_kafka
    note = None
    changed = tree.last_change
    left_at: int | None = None
    if tree.last_transaction > tree.last_dated:
        after = bisect_left(clock, (tree.last_transaction, 0))
        left_at = clock[after][1] if after < len(clock) else now
        changed = clock[after][1] if after < len(clock) else changed
    if tree.members or tree.held:
        state = "active"
        note = "it has members" if tree.members else f"somebody holds {tree.held[0]}"
    elif members:
        state, note = "active", f"it has members in Kafka: {listed(members)}"
    elif isinstance(in_kafka, ZkgroupError):
        note = f"whether it has members in Kafka is not known: {in_kafka.message}"
    elif tree.export and told_of_export(tree.group, tree.export):
        note = told_of_export(tree.group, tree.export)
    elif tree.last_change is not None and now - tree.last_change < older_than:
        note = "changed too recently"
    elif left_at is not None and now - left_at < older_than:
        note = "somebody may have left it too recently: when is not known"
    elif tree.is_foreign and not foreign:
        (note,) = foreign_note(tree.foreign, "all that would be lost")
    barred = note is None and bool(tree.unreadable)
    if barred:
        note = f"cannot be read: {tree.unreadable[0]}"
    if tree.unreadable and state == "inactive":
        state = "broken"
    in_there = [] if in_kafka is None else ["in Kafka it stays"]
    return DebrisRow(
        tree.group,
        state,
        len(tree.members) + len(members),
        len(tree.offsets),
        len(tree.nodes),
        changed,
        "keep" if note else "delete",
        note or "; ".join([*foreign_note(tree.foreign, "deleted, too"), *in_there]) or None,
        barred,
    )
