"""Plans of changes to whole groups, pure: copying offsets to another group, deleting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from zkgroup.clients.kafka.responses import KafkaOffset
from zkgroup.errors import NotFoundError, RefusedError, did_you_mean
from zkgroup.groups.changes.group_tree import GroupTree
from zkgroup.groups.changes.plan import OffsetChange, Plan, Problem, Source, ZnodeRemoval
from zkgroup.groups.changes.whole_group import WholeGroup
from zkgroup.groups.group_model import STORE_NAMES, OffsetStore, Store, StoredOffset
from zkgroup.groups.partition_scope import Scope
from zkgroup.groups.snapshot.snapshot_defects import foreign_note
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition, spans
from zkgroup.text import counted, listed

# --- copying --------------------------------------------------------------------------------------------------------


def plan_copy(
    store: OffsetStore,
    source: Mapping[TopicPartition, StoredOffset] | Mapping[TopicPartition, KafkaOffset],
    target: Mapping[TopicPartition, StoredOffset] | Mapping[TopicPartition, KafkaOffset],
) -> list[OffsetChange]:
    """The rows of copying the ``source`` group's offsets in one store to the ``target`` group, in order."""
    rows = []
    for key in sorted(source):
        one, seen = source[key], target.get(key)
        current = None if seen is None else seen.offset
        notes: list[str] = []
        problem: Problem | None = None
        if one.error is not None:
            notes, problem = [f"not copied: {one.error}"], "unreadable"
        elif one.offset is None:
            number = one.data.decode().strip() if isinstance(one, StoredOffset) and one.data else "-1"
            notes = [f"not copied: {number} stands for none"]
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
    source: WholeGroup,
    target: WholeGroup,
    scope: Scope | None = None,
    *,
    overwrite: bool = False,
    is_rename: bool = False,
) -> Plan:
    """The plan of copying ``source`` to ``target``, which need not exist: partition by partition, ZooKeeper first.
    ``overwrite``: also over offsets of the target that differ. ``is_rename``: the source is deleted after.

    Raises ``NotFoundError`` for a topic that ``source`` has no offsets of.
    """
    rows = [*plan_copy("zookeeper", source.stored, target.stored), *plan_copy("kafka", source.kept, target.kept)]
    if scope is not None:
        known = {row.topic for row in rows}
        for topic in scope.topics:
            if topic not in known:
                remedy = did_you_mean(topic, known, f"its topics: {listed(sorted(known)) or 'none'}")
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
        data=_data_above(source, target, rows) if is_rename else {},
        exists=bool(target.stores),
        warnings=(divergence.message,) if overwrite and divergence is not None else (),
        refusals=tuple(refusals),
        source=Source(source.group, None if source.kafka_group is None else source.kept, is_deleted=True)
        if is_rename
        else None,
    )


def _data_above(source: WholeGroup, target: WholeGroup, rows: Sequence[OffsetChange]) -> dict[str, bytes]:
    """The data of nodes above offsets, which another client has written, by the paths of a rename's new nodes."""
    if source.tree is None or target.tree is not None:
        return {}
    made = [znodes.group(source.group), znodes.offsets(source.group)]
    topics = dict.fromkeys(row.topic for row in rows if row.store == "zookeeper" and row.moves)
    made = [*made, *(znodes.offset_topic(source.group, topic) for topic in topics)] if topics else []
    data = {node.path: node.data for node in source.tree.nodes if node.data}
    return {_renamed(path, source.group, target.group): data[path] for path in made if path in data}


def _renamed(path: str, group: str, to: str) -> str:
    """The path of a group's node below another group."""
    return znodes.group(to) + path.removeprefix(znodes.group(group))


def _store_of(stores: Iterable[OffsetStore]) -> Store:
    found = set(stores) or {"zookeeper"}
    return "both" if len(found) > 1 else found.pop()


def _lost_by_rename(source: WholeGroup, rows: Sequence[OffsetChange]) -> list[RefusedError]:
    unreadable = [f"{row.key} in {row.store}" for row in rows if row.problem == "unreadable"]
    if unreadable:
        message = f"unreadable offsets of group {source.group} would be lost: {', '.join(unreadable[:5])}"
        return [RefusedError(message, "reset them, or delete them, first")]
    return [] if rows else refuse_foreign(source.tree, "leave the group to that client, which knows it by this name")


_COPY_OTHERWISE: Final = "copy to another group, or give --overwrite"
_RENAME_OTHERWISE: Final = "choose another name, or delete these offsets first"


def find_conflict(to: str, rows: Iterable[OffsetChange], remedy: str) -> RefusedError | None:
    """The error for offsets that the group ``to`` would lose; None where there are none."""
    differing = [f"{row.key} in {row.store} ({row.note})" for row in rows if row.problem == "conflict"]
    if not differing:
        return None
    return RefusedError(f"group {to} has {counted(len(differing), 'offset')} of its own: {listed(differing)}", remedy)


def find_diverging(target: WholeGroup, rows: Iterable[OffsetChange]) -> dict[TopicPartition, OffsetStore]:
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


def refuse_divergence(target: WholeGroup, rows: Iterable[OffsetChange], remedy: str) -> RefusedError | None:
    """The error for those; None where there are none."""
    found = find_diverging(target, rows)
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
    found: WholeGroup, command: str = "delete-group", *, copy: Plan | None = None, foreign: bool = True
) -> Plan:
    """The deletion of all that the group has, in the given stores. ``copy``: of a group that is renamed. ``foreign``:
    also where nothing but other clients' nodes would be lost."""
    note, lost = "deleted, too", () if found.tree is None else found.tree.foreign
    if copy is not None:
        note = "deleted, and not copied"
        lost = tuple(path for path in lost if _renamed(path, found.group, copy.group) not in copy.data)
    rows = tuple(plan_delete(found.tree, found.kept))
    return Plan(
        command=command,
        group=found.group,
        store=_store_of(found.stores),
        rows=rows,
        warnings=tuple(foreign_note(lost, note)),
        refusals=() if foreign or rows else tuple(refuse_foreign(found.tree, "stop that client, then give --foreign")),
        removal=None if found.tree is None else ZnodeRemoval(found.tree),
        in_kafka=found.kafka_group,
    )


def refuse_foreign(tree: GroupTree | None, remedy: str) -> list[RefusedError]:
    """The error for a change by which nothing but another client's nodes would be lost."""
    if tree is None or not tree.is_foreign:
        return []
    (lost,) = foreign_note(tree.foreign, "all that would be lost")
    return [RefusedError(f"group {tree.group}: {lost}", remedy)]
