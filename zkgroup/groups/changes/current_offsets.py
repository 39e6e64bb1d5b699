"""The offsets of a group that a change, or a file of offsets, is made of: the selected partitions, in the stores that
are meant, and their logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from zkgroup.clients.kafka.responses import KafkaOffset, words_of
from zkgroup.errors import NotFoundError, RefusedError, Remedy, UnreachableError, UsageError, ZkgroupError
from zkgroup.groups.changes.applier import Applier
from zkgroup.groups.changes.change_reports import unknown_in_kafka
from zkgroup.groups.group_model import (
    GroupPartition,
    GroupSnapshot,
    OffsetStore,
    Store,
    StoredOffset,
    in_store,
    other_store,
    stores_of,
)
from zkgroup.groups.partition_scope import Selection, check_topics, no_partition
from zkgroup.groups.snapshot.group_reader import GroupReader, no_such_group
from zkgroup.groups.snapshot.snapshot_defects import foreign_note
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.text import group_command, listed


def checkpoint_of(group: str, partitions: Iterable[GroupPartition], store: Store) -> Mapping[TopicPartition, int]:
    """The committed offset of every partition that has one; of two stores the larger, where a member that reads both
    would start.

    Raises ``ZkgroupError`` where one cannot be read, since it would be missing silently, and ``NotFoundError``
    where nothing is committed.
    """
    found: dict[TopicPartition, int] = {}
    unreadable = []
    for partition in partitions:
        for one in stores_of(store):
            seen = offset_in(partition, one)
            if seen is not None and seen.error is not None:
                unreadable.append(f"{partition.name} in {one} ({seen.error})")
        committed = partition.committed(store)
        if committed is not None:
            found[partition.key] = committed
    if unreadable:
        raise ZkgroupError(
            f"nothing is saved of group {group}, as offsets cannot be read: {listed(unreadable)}",
            "connect with credentials that may read them, or leave them out with GROUP --topic …; a reset mends"
            " malformed ones",
        )
    if not found:
        raise NotFoundError(
            f"group {group} has no committed offsets that are meant",
            Remedy("check --topic and --store; see its offsets", group_command("offsets", group)),
        )
    return found


@dataclass(frozen=True, slots=True)
class CurrentOffsets:
    """The selected partitions of a group, each with its offsets in ``store`` and its log. ``stores``: in which store
    the offset of each partition is moved, where the user named none; empty where one store is meant, or both for
    all."""

    snapshot: GroupSnapshot
    store: Store
    partitions: Mapping[TopicPartition, GroupPartition]
    stores: Mapping[TopicPartition, Store] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OffsetReader:
    """Reads the offsets of one group, in Kafka alone where the applier has no registry."""

    applier: Applier
    group: str

    def read(
        self, selection: Selection, store: Store | None, *, needs_logs: bool, may_create: bool = True
    ) -> CurrentOffsets:
        """Read the selected partitions. Without ``store``, in the store where the group keeps its offsets: ZooKeeper
        for a new group. ``may_create``: the change may create the group.

        Raises ``NotFoundError`` for a group, topic or partition that does not exist (a group whose partitions are named
        may be new), ``UnreachableError`` where servers do not answer. Logs may remain unknown unless it ``needs_logs``.
        """
        group = self.group
        reader = self._reader(store or "both", selection)
        (snapshot,) = reader.read([group])
        # A change is refused where a node may not be read; a command that only reads fails.
        _check_readable(snapshot, selection, RefusedError if may_create else ZkgroupError)
        if error := _kafka_failure(snapshot, reader.failure):
            # Where no broker answers, no offsets can be moved either if that takes the logs.
            raise error if store is not None or (needs_logs and reader.failure) else unknown_in_kafka(group, error)
        if not snapshot.exists and selection.topics is None:
            known = reader.groups_in_kafka()
            raise no_such_group(group, self.applier.registry, known, store=store, may_create=may_create)
        settled = store or _store_of(snapshot)
        keys = _selected(snapshot, selection)
        if not keys:
            problem = "; ".join(
                [
                    f"group {group} has no offsets{in_store(store)}",
                    *map(str, foreign_note(snapshot.foreign, "no offsets")),
                ]
            )
            more = " and --store, or give new topics with --topic" if may_create else ""
            raise NotFoundError(problem, f"check its name{more}")
        if needs_logs and reader.failure is not None:
            raise reader.failure
        found = {one.key: one for one in snapshot.partitions}
        partitions = {key: _existing(found.get(key, GroupPartition(*key, exists=False)), snapshot) for key in keys}
        stores = _stores_of_partitions(snapshot, partitions.values()) if store is None and settled == "both" else {}
        return CurrentOffsets(snapshot, settled, partitions, stores)

    def read_other(self, store: Store, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets of these partitions in the store that is not ``store``; none where that does not answer."""
        if store == "both" or self.applier.registry is None:
            return {}
        other = other_store(store)
        (snapshot,) = self._reader(other, Selection(listed=frozenset(partitions)), logs=False).read([self.group])
        return {one.key: offset for one in snapshot.partitions if (offset := one.committed(other)) is not None}

    def _reader(self, store: Store, selection: Selection, *, logs: bool = True) -> GroupReader:
        applier = self.applier
        return GroupReader(
            applier.registry, applier.brokers, store=store, logs=logs, timeout=applier.timeout, selection=selection
        )


def _check_readable(snapshot: GroupSnapshot, selection: Selection, refusal: type[ZkgroupError]) -> None:
    """Raise ``refusal`` where lists of offsets, or topics, may not be read."""
    above = znodes.offsets(snapshot.group) if snapshot.in_zookeeper else ""
    for path, why in snapshot.unreadable.items():
        is_list = path == above or (selection.topics is None and path.rpartition("/")[0] == above)
        if is_list:
            raise refusal(
                f"znode {path} cannot be read: {why}", "connect with credentials that may read the group's nodes"
            )
    for topic in snapshot.topics.values():
        if topic.error is not None and f"{znodes.topics()}/{topic.name}" in snapshot.unreadable:
            raise refusal(str(topic.error), "connect with credentials that may read the topics")


def _kafka_failure(snapshot: GroupSnapshot, failure: ZkgroupError | None) -> ZkgroupError | None:
    """Why it is unknown what Kafka has of the group; None where it is known, or was not asked."""
    if snapshot.kafka_failures:
        why = "; ".join(words_of(f"group {snapshot.group}", snapshot.kafka_failures))
        return UnreachableError(why, "check the brokers and their logs")
    if not snapshot.kafka_offsets_unknown:
        return None
    return failure or ZkgroupError(
        f"znode {znodes.topics()} cannot be read", "connect with credentials that may read it"
    )


def _store_of(snapshot: GroupSnapshot) -> Store:
    members = snapshot.kafka_members
    if not members and not snapshot.offset_topics["kafka"]:
        return "zookeeper"
    return "both" if snapshot.in_zookeeper else "kafka"


def _selected(snapshot: GroupSnapshot, selection: Selection) -> list[TopicPartition]:
    """The selected partitions. Raises ``NotFoundError`` for those that do not exist, ``ZkgroupError`` for those of a
    topic whose node is damaged; without names such partitions are left as they are."""
    topics = {topic.name: topic for topic in snapshot.topics.values() if topic.exists}
    if selection.topics is None:
        return [one.key for one in snapshot.partitions]
    if not selection.gone:
        for topic in topics.values():
            if topic.error is not None:
                raise ZkgroupError(str(topic.error))
    existing = {name: topic.partitions for name, topic in topics.items()}
    if selection.listed is None:
        assert selection.scope is not None
        check_topics(selection.scope.topics, existing, lambda: snapshot.existing_topics)
        return selection.scope.select(existing)
    keys = sorted(key for key in selection.listed if selection.has(key))
    if not keys:
        raise UsageError("the file has none of the partitions that are named", "see --topic")
    if not selection.gone:
        check_topics({key.topic for key in keys}, existing, lambda: snapshot.existing_topics)
        there = {topic: frozenset(numbers) for topic, numbers in existing.items()}
        if missing := next((key for key in keys if key.partition not in there[key.topic]), None):
            raise no_partition(missing, existing[missing.topic])
    return keys


def _existing(partition: GroupPartition, snapshot: GroupSnapshot) -> GroupPartition:
    """The partition; one that does not exist, or whose topic's node is damaged, has no log, and a reason."""
    topic = snapshot.topics[partition.topic]
    error = None if topic.error is None else str(topic.error)
    if error is None and not partition.exists:
        error = f"topic {topic.name} " + (
            f"has no partition {partition.partition}" if topic.exists else "does not exist"
        )
    if error is None:
        return partition
    return replace(partition, exists=False, log_start=None, log_end=None, log_error=error)


def _stores_of_partitions(snapshot: GroupSnapshot, partitions: Iterable[GroupPartition]) -> dict[TopicPartition, Store]:
    """In which store each partition is moved: where it has an offset, else where the others of its topic have theirs,
    else those of the group. ZooKeeper comes first, as it can delete one again."""
    topics = snapshot.offset_topics

    def otherwise(topic: str) -> OffsetStore:
        if topic in topics["zookeeper"] or topic in topics["kafka"]:
            return "zookeeper" if topic in topics["zookeeper"] else "kafka"
        return "zookeeper" if topics["zookeeper"] else "kafka"

    return {one.key: stores_with_offset(one, otherwise(one.topic)) for one in partitions}


def stores_with_offset(partition: GroupPartition, otherwise: OffsetStore) -> Store:
    """Where a partition's offset is kept: in the stores that have one, readable or not; ``otherwise`` where none has.
    Another one would be more than a move: Kafka forgets it with the whole group only."""
    seen = {store: offset_in(partition, store) for store in stores_of("both")}
    found = [store for store, one in seen.items() if one is not None and (one.offset, one.error) != (None, None)]
    return "both" if len(found) > 1 else found[0] if found else otherwise


def offset_in(partition: GroupPartition, store: OffsetStore) -> StoredOffset | KafkaOffset | None:
    """The committed offset in one store."""
    return partition.stored if store == "zookeeper" else partition.kafka
