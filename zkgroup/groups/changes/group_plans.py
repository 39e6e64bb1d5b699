"""Changes of whole groups, in both stores: the group as it is, and the plans of copying and deleting it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from zkgroup.clients.kafka.responses import KafkaGroup, KafkaOffset
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import NotFoundError, Notice, RefusedError, UsageError, ZkgroupError, did_you_mean, is_wrong_setting
from zkgroup.groups.changes.applier import Applier
from zkgroup.groups.changes.change_reports import check_complete, unknown_in_kafka
from zkgroup.groups.changes.group_tree import GroupTree, read_tree, readable_acl
from zkgroup.groups.changes.plan import OffsetChange, Plan, Problem, Source, ZnodeRemoval
from zkgroup.groups.group_model import STORE_NAMES, OffsetStore, Store, StoredOffset, other_store
from zkgroup.groups.partition_scope import Scope
from zkgroup.groups.snapshot.group_reader import no_such_group
from zkgroup.groups.snapshot.snapshot_defects import foreign_note
from zkgroup.protocol import znodes
from zkgroup.protocol.names import OFFSETS_TOPIC, TopicPartition, spans
from zkgroup.protocol.operations import OPEN, Acl, Code, Exists, Failure, GetAcl, Stat, format_acl
from zkgroup.text import counted, listed


@dataclass(frozen=True, slots=True)
class WholeGroup:
    """A group as it is. ``tree``: its nodes, None where ZooKeeper is not meant or has none; ``kafka_group``: the group
    in Kafka, None where that is not meant or there is none."""

    group: str
    tree: GroupTree | None = None
    kafka_group: KafkaGroup | None = None
    warnings: tuple[Notice, ...] = ()

    @property
    def stores(self) -> tuple[OffsetStore, ...]:
        """Where the group is, in the order in which it is changed."""
        places: list[OffsetStore] = ["zookeeper"] if self.tree is not None else []
        return (*places, "kafka") if self.kafka_group is not None else tuple(places)

    @property
    def stored(self) -> dict[TopicPartition, StoredOffset]:
        """The offsets in ZooKeeper."""
        return {} if self.tree is None else self.tree.offsets

    @property
    def kept(self) -> Mapping[TopicPartition, KafkaOffset]:
        """The offsets in Kafka."""
        return {} if self.kafka_group is None else self.kafka_group.offsets


def find_group(applier: Applier, group: str, store: Store | None, *, partly: bool = False) -> WholeGroup:
    """The group, in ``store`` or wherever it is. Raises ``NotFoundError`` where it is nowhere, and, unless
    ZooKeeper's half will do (``partly``), ``ZkgroupError`` where Kafka does not answer."""
    found = read_whole_group(applier, group, store, partly=partly)
    if not found.stores:
        raise no_such_group(group, applier.registry, None if store == "zookeeper" else (), store=store)
    return found


def read_whole_group(applier: Applier, group: str, store: Store | None, *, partly: bool = False) -> WholeGroup:
    """The same; perhaps it is nowhere. Reading leaves no trace."""
    tree = None
    if store != "kafka":
        if applier.registry is None:
            raise UsageError("no ZooKeeper was named", "give --zookeeper, or --store kafka")
        tree = read_tree(applier.registry, group)
        tree.require_readable()
    if tree is not None and not tree.nodes:
        tree = None
    warnings: list[Notice] = []
    kafka_group = None
    if store != "zookeeper":
        kafka_group = _read_kafka_group(
            applier, group, asked=store is not None, warnings=warnings if partly and tree else None
        )
    return WholeGroup(group, tree, kafka_group, tuple(warnings))


def _read_kafka_group(applier: Applier, group: str, *, asked: bool, warnings: list[Notice] | None) -> KafkaGroup | None:
    # The first question for a group makes brokers create that topic.
    if not asked and applier.registry is not None:
        (there,) = applier.registry.read([Exists(znodes.topic(OFFSETS_TOPIC))])
        if not isinstance(there, Stat):
            return None
    try:
        kafka_group = applier.coordinators().read_group(group)
        check_complete(group, kafka_group)
    except ZkgroupError as error:
        if asked or is_wrong_setting(error):
            raise
        unknown = unknown_in_kafka(group, error)
        if warnings is None:
            raise unknown from None
        warnings.append(Notice(unknown.message))
        return None
    return kafka_group if kafka_group.group is not None or kafka_group.offsets else None


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
        note: str | None = None
        problem: Problem | None = None
        if one.error is not None:
            note, problem = f"not copied: {one.error}", "unreadable"
        elif one.offset is None:
            number = one.data.decode().strip() if isinstance(one, StoredOffset) and one.data else "-1"
            note = f"not copied: {number} stands for none"
        elif seen is not None and seen.error is not None:
            note, problem = f"replaces what is no offset: {seen.error}", "conflict"
        elif current == one.offset:
            note = "is there already"
        elif current is not None:
            note, problem = f"replaces {current}", "conflict"
        metadata = one.metadata if isinstance(one, KafkaOffset) else ""
        stays = one.offset is None or (current == one.offset and problem is None)
        row = OffsetChange(store, *key, current, one.offset, note, problem, seen, metadata=metadata, stays=stays)
        rows.append(row)
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
    conflict, divergence = _refuse_conflict(target.group, rows, remedy), refuse_divergence(target, rows, remedy)
    refusals = [] if overwrite else [one for one in (conflict, divergence) if one is not None]
    if is_rename:
        refusals += _lost_by_rename(source, rows)
    return Plan(
        command="copy-group",
        group=target.group,
        store=_store_of({*target.stores, *(row.store for row in rows)}),
        rows=tuple(sorted(rows, key=lambda row: (row.key, row.store != "zookeeper"))),
        exists=bool(target.stores),
        warnings=(Notice(divergence.message),) if overwrite and divergence is not None else (),
        refusals=tuple(refusals),
        source=Source(source.group, None if source.kafka_group is None else source.kept, is_deleted=True)
        if is_rename
        else None,
    )


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


def _refuse_conflict(to: str, rows: Iterable[OffsetChange], remedy: str) -> RefusedError | None:
    differing = [f"{row.key} in {row.store} ({row.note})" for row in rows if row.problem == "conflict"]
    lost = f"group {to} has {counted(len(differing), 'offset')} of its own: {listed(differing)}"
    return RefusedError(lost, remedy) if differing else None


def refuse_divergence(target: WholeGroup, rows: Iterable[OffsetChange], remedy: str) -> RefusedError | None:
    """The error where the other group has another offset in the store that nothing is copied to: members that commit to
    both (``dual.commit.enabled``) would start from the larger one. None where there are none."""
    wanted = {(row.store, row.key): row.target for row in rows if row.target is not None}
    found: dict[TopicPartition, OffsetStore] = {}
    for (store, key), offset in wanted.items():
        other = other_store(store)
        there = (target.kept if other == "kafka" else target.stored).get(key)
        if (other, key) not in wanted and there is not None and there.offset not in (None, offset):
            found[key] = other
    if not found:
        return None
    where = " and ".join(sorted({STORE_NAMES[store] for store in found.values()}))
    return RefusedError(
        f"group {target.group} has other offsets of {spans(found)} in {where}, where nothing is copied to: members that"
        " commit to both start from the larger ones",
        remedy,
    )


def copied_lists(
    registry: Registry, source: GroupTree, target: GroupTree | None, to: str, partitions: Iterable[TopicPartition]
) -> tuple[dict[str, tuple[Acl, ...]], list[Notice]]:
    """The access lists of the nodes that a copy of ``partitions`` to the group ``to``, whose nodes are ``target`` if it
    is there, is to make, by their paths; none where a list was asked for. And warnings of the plan. Raises
    ``RefusedError`` where a list is hidden."""
    there = frozenset(node.path for node in target.nodes) if target is not None else frozenset[str]()
    pairs = {new: old for new, old in _pairs(source.group, to, partitions) if new not in there}
    if not pairs:
        return {}, []
    if registry.settings.acl is not None:
        kept = f"new nodes of group {to} get the access list of zookeeper-acl, not those of group {source.group}"
        return {}, [Notice(kept)]
    answers = zip(pairs.items(), registry.read([GetAcl(old) for old in pairs.values()]), strict=True)
    try:
        found = {
            new: readable_acl(old, answer)
            for (new, old), answer in answers
            if not (isinstance(answer, Failure) and answer.code is Code.NO_NODE)
        }
    except RefusedError as refused:
        refused.add_remedy("or give --zookeeper-acl")
        raise
    closed = dict.fromkeys(format_acl(acl) for acl in found.values() if acl != OPEN)
    lists = f"new nodes of group {to} get the access lists of group {source.group}: {listed(list(closed), '; ')}"
    return found, [Notice(lists)] if closed else []


def _pairs(group: str, to: str, partitions: Iterable[TopicPartition]) -> Iterable[tuple[str, str]]:
    """Each node that may have to be made, from the top, and the one whose list it gets."""
    keys = list(partitions)
    yield znodes.group(to), znodes.group(group)
    yield znodes.offsets(to), znodes.offsets(group)
    for topic in dict.fromkeys(key.topic for key in keys):
        yield znodes.offset_topic(to, topic), znodes.offset_topic(group, topic)
    old, new = znodes.offset_paths(group, keys), znodes.offset_paths(to, keys)
    for key in keys:
        yield new[key], old[key]


# --- deleting -------------------------------------------------------------------------------------------------------


def plan_delete(
    stored: Mapping[TopicPartition, StoredOffset], kafka: Mapping[TopicPartition, KafkaOffset]
) -> list[OffsetChange]:
    """The rows of deleting these offsets in ZooKeeper and in Kafka."""
    rows = [OffsetChange("zookeeper", *key, one.offset, None, one.error, seen=one) for key, one in stored.items()]
    kept = sorted(kafka.items())
    return rows + [OffsetChange("kafka", *key, one.offset, None, one.error, seen=one) for key, one in kept]


def plan_group_deletion(
    found: WholeGroup, command: str = "delete-group", *, is_rename: bool = False, foreign: bool = True
) -> Plan:
    """The deletion of all that the group has, in the given stores. ``is_rename``: its offsets are copied. ``foreign``:
    also where nothing but other clients' nodes would be lost."""
    rows = tuple(plan_delete(found.stored, found.kept))
    lost = () if found.tree is None else found.tree.foreign
    return Plan(
        command=command,
        group=found.group,
        store=_store_of(found.stores),
        rows=rows,
        warnings=tuple(foreign_note(lost, "deleted, and not copied" if is_rename else "deleted, too")),
        refusals=() if foreign or rows else tuple(refuse_foreign(found.tree, "stop that client, then give --foreign")),
        removal=None if found.tree is None else ZnodeRemoval(found.tree),
        in_kafka=found.kafka_group,
    )


def refuse_foreign(tree: GroupTree | None, remedy: str) -> list[RefusedError]:
    """The error for a change by which nothing but another client's nodes would be lost."""
    if tree is None or not tree.is_foreign:
        return []
    (lost,) = foreign_note(tree.foreign, "all that would be lost")
    return [RefusedError(f"group {tree.group}: {lost.message}", remedy)]
