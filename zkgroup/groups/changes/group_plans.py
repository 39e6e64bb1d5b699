"""Plans of what is done to whole groups, pure: copying offsets to another group, deleting, finding debris."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final, Literal

from zkgroup.errors import NotFoundError, RefusedError, UsageError, ZkgroupError
from zkgroup.groups.changes.group_manager import Found
from zkgroup.groups.changes.group_tree import GroupTree
from zkgroup.groups.changes.plan import OffsetChange, Plan, Problem, Source, ZnodeRemoval
from zkgroup.groups.changes.unfinished_exports import told_of_export
from zkgroup.groups.group_model import STORE_NAMES, KafkaOffset, OffsetStore, Store, StoredOffset
from zkgroup.groups.partition_scope import Scope
from zkgroup.groups.snapshot.tables import foreign_note
from zkgroup.protocol.names import TopicPartition, spans
from zkgroup.protocol.operations import Stat
from zkgroup.text import counted, listed

_AGE: Final = re.compile(r"([0-9]{1,9})\s*([smhdw])", re.ASCII | re.IGNORECASE)
_MILLIS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


# --- copying --------------------------------------------------------------------------------------------------------


def plan_copy(
    store: OffsetStore,
    source: Mapping[TopicPartition, StoredOffset] | Mapping[TopicPartition, KafkaOffset],
    target: Mapping[TopicPartition, StoredOffset] | Mapping[TopicPartition, KafkaOffset],
) -> list[OffsetChange]:
    """What copying the ``source`` group's offsets in one store to the ``target`` group does, in order."""
    rows = []
    for key in sorted(source):
        one, seen = source[key], target.get(key)
        current = None if seen is None else seen.offset
        notes: list[str] = []
        problem: Problem | None = None
        if one.error is not None:
            notes, problem = [f"not copied: {one.error}"], "unreadable"
        elif one.offset is None:
            notes = ["not copied: -1 stands for none"]
        elif seen is not None and seen.error is not None:
            notes, problem = [f"replaces what is no offset: {seen.error}"], "conflict"
        elif current == one.offset:
            notes = ["is there already"]
        elif current is not None:
            notes, problem = [f"replaces {current}"], "conflict"
        row = OffsetChange(store, *key, current, one.offset, notes[0] if notes else None, problem, seen)
        metadata = one.metadata if isinstance(one, KafkaOffset) else ""
        stays = one.offset is None or (current == one.offset and problem is None)
        rows.append(replace(row, metadata=metadata, stays=stays))
    return rows


def plan_group_copy(
    source: Found, target: Found, scope: Scope | None = None, *, overwrite: bool = False, is_rename: bool = False
) -> Plan:
    """What copying ``source`` to ``target``, perhaps nowhere yet, does, partition by partition, ZooKeeper first.
    ``overwrite``: also over offsets of the target that differ. ``is_rename``: the source is deleted after.

    Raises ``NotFoundError`` for a topic that ``source`` has no offsets of.
    """
    rows = [*plan_copy("zookeeper", source.stored, target.stored), *plan_copy("kafka", source.kept, target.kept)]
    if scope is not None:
        known = {row.topic for row in rows}
        for topic in scope.topics:
            if topic not in known:
                remedy = f"its topics: {listed(sorted(known)) or 'none'}"
                raise NotFoundError(f"group {source.group} has no offsets of topic {topic}", remedy)
        rows = [row for row in rows if scope.has(row.key)]
    remedy = _RENAME_OTHERWISE if is_rename else _COPY_OTHERWISE
    conflict, divergence = find_conflict(target.group, rows, remedy), refuse_divergence(target, rows, remedy)
    refusals = [] if overwrite else [one for one in (conflict, divergence) if one is not None]
    if is_rename:
        refusals += _lost_by_rename(source, rows)
    return Plan(
        command="copy-group",
        group=target.group,
        store=_store_of({*target.stores, *(row.store for row in rows)}),
        rows=tuple(sorted(rows, key=lambda row: (row.key, row.store != "zookeeper"))),
        exists=bool(target.stores),
        warnings=(divergence.message,) if overwrite and divergence is not None else (),
        refusals=tuple(refusals),
        source=Source(source.group, None if source.side is None else source.kept, is_deleted=True)
        if is_rename
        else None,
    )


def _store_of(stores: Iterable[OffsetStore]) -> Store:
    found = set(stores) or {"zookeeper"}
    return "both" if len(found) > 1 else found.pop()


def _lost_by_rename(source: Found, rows: Sequence[OffsetChange]) -> list[RefusedError]:
    unreadable = [f"{row.key} in {row.store}" for row in rows if row.problem == "unreadable"]
    if unreadable:
        told = f"offsets of group {source.group} that nobody can read would be lost: {', '.join(unreadable[:5])}"
        return [RefusedError(told, "reset them, or delete them, first")]
    return [] if rows else refuse_foreign(source.tree, "leave the group to that client, which knows it by this name")


_COPY_OTHERWISE: Final = "copy to another group, or give --overwrite"
_RENAME_OTHERWISE: Final = "choose another name, or delete these offsets first"


def find_conflict(to: str, rows: Iterable[OffsetChange], remedy: str) -> RefusedError | None:
    """The error for what the group ``to`` has and would lose; None where that is nothing."""
    differing = [f"{row.key} in {row.store} ({row.note})" for row in rows if row.problem == "conflict"]
    if not differing:
        return None
    return RefusedError(f"group {to} has {counted(len(differing), 'offset')} of its own: {listed(differing)}", remedy)


def find_divergence(target: Found, rows: Iterable[OffsetChange]) -> dict[TopicPartition, OffsetStore]:
    """The partitions of which the other group has another offset in the store that nothing is copied to: members that
    commit to both (``dual.commit.enabled``) would start from the larger one."""
    wanted = {(row.store, row.key): row.target for row in rows if row.target is not None}
    found: dict[TopicPartition, OffsetStore] = {}
    for (store, key), offset in wanted.items():
        other: OffsetStore = "kafka" if store == "zookeeper" else "zookeeper"
        there = (target.kept if other == "kafka" else target.stored).get(key)
        if (other, key) not in wanted and there is not None and there.offset not in (None, offset):
            found[key] = other
    return found


def refuse_divergence(target: Found, rows: Iterable[OffsetChange], remedy: str) -> RefusedError | None:
    """The error for those; None where there are none."""
    found = find_divergence(target, rows)
    if not found:
        return None
    where = " and ".join(sorted({STORE_NAMES[store] for store in found.values()}))
    return RefusedError(
        f"group {target.group} has other offsets of {spans(found)} in {where}, where nothing is copied to: members that"
        " commit to both start from the larger ones",
        remedy,
    )


# --- deleting -------------------------------------------------------------------------------------------------------


def plan_delete(tree: GroupTree | None, kafka: Mapping[TopicPartition, KafkaOffset]) -> list[OffsetChange]:
    """The offsets that go with the nodes of ``tree``, and those in Kafka."""
    rows: list[OffsetChange] = []
    if tree is not None:
        rows += [
            OffsetChange("zookeeper", *key, seen.offset, None, seen.error, seen=seen)
            for key, seen in tree.offsets.items()
        ]
    rows += [
        OffsetChange("kafka", *key, kafka[key].offset, None, kafka[key].error, seen=kafka[key]) for key in sorted(kafka)
    ]
    return rows


def plan_group_deletion(
    found: Found, command: str = "delete-group", *, note: str = "deleted, too", foreign: bool = True
) -> Plan:
    """All that the group has, in the stores that are meant. ``note``: what becomes of other clients' nodes.
    ``foreign``: also where nothing else would be lost."""
    rows = tuple(plan_delete(found.tree, found.kept))
    return Plan(
        command=command,
        group=found.group,
        store=_store_of(found.stores),
        rows=rows,
        warnings=() if found.tree is None else tuple(foreign_note(found.tree.foreign, note)),
        refusals=() if foreign or rows else tuple(refuse_foreign(found.tree, "stop that client, then give --foreign")),
        removal=None if found.tree is None else ZnodeRemoval(found.tree),
        in_kafka=found.side,
    )


def refuse_foreign(tree: GroupTree | None, remedy: str) -> list[RefusedError]:
    """The error for a change by which nothing but another client's nodes would be lost."""
    if tree is None or not tree.is_foreign:
        return []
    (lost,) = foreign_note(tree.foreign, "all that would be lost")
    return [RefusedError(f"group {tree.group}: {lost}", remedy)]


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
