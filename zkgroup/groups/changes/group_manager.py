"""Copying, renaming and deleting groups: what there is, a backup of it, and the guarded change.

Offsets in ZooKeeper go through ``writing`` and ``removing``; those in Kafka through ``kafka_writing``, and whole groups
there through their coordinator, which itself refuses to touch a group with members. ZooKeeper always comes first.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from zkgroup.clients.kafka.responses import KafkaSide
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import (
    NotFoundError,
    RefusedError,
    Remedy,
    UsageError,
    VerificationError,
    ZkgroupError,
    did_you_mean,
)
from zkgroup.groups.changes import backup as backups
from zkgroup.groups.changes.backup import Backup, Cluster, OffsetStore, SavedNode, SavedOffset
from zkgroup.groups.changes.change_reports import after, all_in_zookeeper, check_told, unknown_in_kafka
from zkgroup.groups.changes.copied_acls import CopiedLists, copied_lists
from zkgroup.groups.changes.group_plans import CopyRow, plan_copy
from zkgroup.groups.changes.group_tree import GroupTree, read_tree
from zkgroup.groups.changes.missing_permissions import Need, needs_of_removal, refuse_removal
from zkgroup.groups.changes.preconditions import read_guard
from zkgroup.groups.changes.znode_deletion import acls_of, is_in_pieces, remove_tree
from zkgroup.groups.changes.zookeeper_offset_writer import OffsetWrite, WriteReport, write_offsets
from zkgroup.groups.group_model import STORE_NAMES, KafkaOffset, Store, StoredOffset, in_store
from zkgroup.groups.partition_scope import Scope
from zkgroup.groups.snapshot.broker_queries import FindBrokers
from zkgroup.groups.snapshot.znode_reader import group_names
from zkgroup.protocol import znodes
from zkgroup.protocol.names import OFFSETS_TOPIC, TopicPartition, spans
from zkgroup.protocol.operations import Acl, Exists, Stat
from zkgroup.shell_commands import group_command
from zkgroup.text import counted, listed

if TYPE_CHECKING:
    from zkgroup.clients.kafka.client import KafkaSettings  # confluent-kafka: 60 ms that not every change needs


@dataclass(frozen=True, slots=True)
class Found:
    """A group as it is. ``tree``: its nodes, None where ZooKeeper is not meant or has none; ``side``: what Kafka has of
    it, None where that is not meant or there is nothing."""

    group: str
    tree: GroupTree | None = None
    side: KafkaSide | None = None
    warnings: tuple[str, ...] = ()

    @property
    def stores(self) -> tuple[OffsetStore, ...]:
        """Where the group is, in the order in which it is changed."""
        places: list[OffsetStore] = ["zookeeper"] if self.tree is not None else []
        return (*places, "kafka") if self.side is not None else tuple(places)

    @property
    def stored(self) -> dict[TopicPartition, StoredOffset]:
        """The offsets in ZooKeeper."""
        return {} if self.tree is None else self.tree.offsets

    @property
    def kept(self) -> Mapping[TopicPartition, KafkaOffset]:
        """The offsets in Kafka."""
        return {} if self.side is None else self.side.offsets


@dataclass(slots=True)
class Manager:
    """Looks at groups and changes them. Without a ``registry`` only in Kafka. ``timeout`` (seconds) is for a broker's
    answer. Used by one thread."""

    registry: Registry | None
    find_brokers: FindBrokers
    timeout: float
    _settings: KafkaSettings | None = field(default=None, init=False)

    @property
    def brokers(self) -> KafkaSettings:
        """How to reach the brokers. Raises ``ZkgroupError`` where that cannot be found out."""
        if self._settings is None:
            self._settings = self.find_brokers()
        return self._settings

    # --- looking ----------------------------------------------------------------------------------------------------

    def find(self, group: str, store: Store | None, *, partly: bool = False) -> Found:
        """The group, in ``store`` or wherever it is. Raises ``NotFoundError`` where it is nowhere, and, unless what is
        in ZooKeeper will do (``partly``), ``ZkgroupError`` where Kafka does not tell what it has."""
        found = self.look(group, store, partly=partly)
        if not found.stores:
            remedy = did_you_mean(group, group_names(self.registry), "list-groups shows the groups there are")
            raise NotFoundError(f"there is no group {group}{in_store(store)}", remedy)
        return found

    def look(self, group: str, store: Store | None, *, partly: bool = False) -> Found:
        """The same; perhaps it is nowhere. Looking leaves no trace."""
        tree = None
        if store != "kafka":
            if self.registry is None:
                raise UsageError("no ZooKeeper was named", "give --zookeeper, or --store kafka")
            tree = read_tree(self.registry, group)
            if tree.unreadable:
                raise RefusedError(f"group {group} cannot be read: {listed(tree.unreadable)}", CREDENTIALS)
        if tree is not None and not tree.nodes:
            tree = None
        warnings: list[str] = []
        side = None
        if store != "zookeeper":
            side = self._side(group, asked=store is not None, warnings=warnings if partly and tree else None)
        return Found(group, tree, side, tuple(warnings))

    def _side(self, group: str, *, asked: bool, warnings: list[str] | None) -> KafkaSide | None:
        # The first question for a group makes brokers create that topic.
        if not asked and self.registry is not None:
            (there,) = self.registry.read([Exists(znodes.topic(OFFSETS_TOPIC))])
            if not isinstance(there, Stat):
                return None
        from zkgroup.clients.kafka.group_coordinator import Coordinators

        try:
            side = Coordinators(self.brokers, self.timeout).side(group)
            check_told(group, side)
        except ZkgroupError as error:
            if asked:
                raise
            unknown = unknown_in_kafka(group, error)
            if warnings is None:
                raise unknown from None
            warnings.append(unknown.message)
            return None
        return side if side.group is not None or side.offsets else None

    def refuse_if_active(self, found: Found) -> None:
        """Raise ``RefusedError``, naming the members, if somebody works for the group in any store."""
        if self.registry is not None:
            read_guard(self.registry, found.group)
        if found.side is not None:
            from zkgroup.clients.kafka.group_coordinator import Coordinators
            from zkgroup.groups.changes.kafka_offset_writer import refuse_if_active

            side = Coordinators(self.brokers, self.timeout).side(found.group)
            refuse_if_active(found.group, side)

    def refuse_if_undeletable(self, found: Found) -> None:
        """Raise ``RefusedError`` if the group is in Kafka too, and its coordinator deletes no groups."""
        if found.side is not None:
            from zkgroup.clients.kafka.group_coordinator import Coordinators

            try:
                Coordinators(self.brokers, self.timeout).check_deletes(found.group)
            except RefusedError as refused:
                if found.tree is None:
                    refused.remedy = Remedy("it is nowhere else, and its offsets there expire by themselves")
                raise

    def needs_of_deletion(self, found: Found) -> list[Need]:
        """The permissions in ZooKeeper that it takes to delete these nodes."""
        if found.tree is None or self.registry is None:
            return []
        return needs_of_removal(found.tree, in_pieces=is_in_pieces(self.registry, found.tree.nodes))

    def refuse_if_lasting(self, found: Found) -> None:
        """Raise ``RefusedError`` if ZooKeeper will not let these credentials delete the group's nodes."""
        if found.tree is not None and self.registry is not None:
            refuse_removal(self.registry, found.tree, in_pieces=is_in_pieces(self.registry, found.tree.nodes))

    def refuse_if_hidden(self, found: Found) -> None:
        """Raise ``RefusedError`` if access lists of the group's nodes are not told, which a backup must have."""
        if found.tree is not None and self.registry is not None:
            acls_of(self.registry, found.tree.nodes)

    def cluster(self) -> Cluster:
        """Which cluster it is."""
        return backups.cluster_of(self.registry, lambda: self.brokers, self.timeout)

    # --- backups ----------------------------------------------------------------------------------------------------

    def backup_of_removal(self, command: str, group: str, found: Iterable[Found]) -> Backup:
        """All that goes: offsets, and every node as it is."""
        offsets: list[SavedOffset] = []
        nodes: list[SavedNode] = []
        for one in found:
            offsets += [
                SavedOffset("zookeeper", key, stored.offset, None, stored.data) for key, stored in one.stored.items()
            ]
            offsets += [
                SavedOffset("kafka", key, kept.offset, None, metadata=kept.metadata) for key, kept in one.kept.items()
            ]
            if one.tree is not None and self.registry is not None:
                acls = acls_of(self.registry, one.tree.nodes)
                nodes += [SavedNode(node.path, node.data, acls[node.path]) for node in one.tree.nodes]
        return Backup(command, group, _now(), self.cluster(), tuple(offsets), tuple(nodes))

    def backup_of_copy(self, command: str, target: Found, rows: Iterable[CopyRow]) -> Backup:
        """What the other group has before it gets the copied offsets."""
        stored = target.stored
        offsets = [
            SavedOffset(
                row.store,
                row.key,
                row.current,
                row.target,
                stored[row.key].data if row.store == "zookeeper" and row.key in stored else None,
                target.kept[row.key].metadata if row.store == "kafka" and row.key in target.kept else "",
            )
            for row in rows
            if row.moves
        ]
        return Backup(command, target.group, _now(), self.cluster(), tuple(offsets))

    # --- copying ----------------------------------------------------------------------------------------------------

    def plan_copy(
        self, source: Found, to: str, scope: Scope | None = None, store: Store | None = None
    ) -> tuple[list[CopyRow], Found]:
        """What copying ``source`` to the group ``to`` does, and that group as it is, in ``store`` or wherever it is:
        members, and offsets, that it has elsewhere than ``source`` are in the way as well.

        Raises ``NotFoundError`` for a topic that ``source`` has no offsets of.
        """
        target = self.look(to, store)
        rows: list[CopyRow] = []
        if "zookeeper" in source.stores:
            rows += plan_copy("zookeeper", source.stored, target.stored)
        if "kafka" in source.stores:
            rows += plan_copy("kafka", source.kept, target.kept)
        if scope is not None:
            known = {row.topic for row in rows}
            for topic in scope.topics:
                if topic not in known:
                    raise NotFoundError(
                        f"group {source.group} has no offsets of topic {topic}",
                        f"its topics: {listed(sorted(known)) or 'none'}",
                    )
            rows = [row for row in rows if scope.has(row.key)]
        return sorted(rows, key=lambda row: (row.key, row.store != "zookeeper")), target

    def lists(self, source: Found, target: Found, rows: Iterable[CopyRow], *, renaming: bool = False) -> CopiedLists:
        """Which access lists the nodes get that copying makes. Raises as ``copied_lists``."""
        if self.registry is None or source.tree is None:
            return CopiedLists()
        keys = [row.key for row in rows if row.store == "zookeeper" and row.moves]
        return copied_lists(self.registry, source.tree, target.tree, target.group, keys, renaming=renaming)

    # --- changing ---------------------------------------------------------------------------------------------------

    def copy(
        self,
        target: Found,
        rows: Sequence[CopyRow],
        *,
        moved: Found | None = None,
        acls: Mapping[str, tuple[Acl, ...]] | None = None,
    ) -> list[WriteReport]:
        """Write the rows to the other group, guarded, ZooKeeper first. ``moved``: the group that they come from, if it
        is to be deleted afterwards: it must be without members, and in Kafka as it was planned with. ``acls``: the
        access lists of nodes that are to be made.

        Raises as ``write_offsets`` and ``write_kafka_offsets``, and ``RefusedError`` where ``moved`` has moved on.
        """
        from zkgroup.groups.changes.kafka_offset_writer import KafkaWrite, check_before, write_kafka_offsets

        reports = []
        done = None
        if moved is not None:
            try:
                self._check_unmoved(moved)
            except ZkgroupError as error:
                error.message += "; nothing was written"
                raise
        wanted = [row for row in rows if row.store == "zookeeper" and row.target is not None]
        kept = [row for row in rows if row.store == "kafka" and row.target is not None]
        commits = [KafkaWrite(row.key, row.target or 0, row.current, row.metadata) for row in kept]
        if wanted and commits:
            check_before(self.brokers, target.group, commits, self.timeout)
        if wanted and self.registry is not None:
            stored = target.stored
            writes = [OffsetWrite(row.key, row.target, stored.get(row.key)) for row in wanted]
            reports.append(write_offsets(self.registry, target.group, writes, acls=acls))
            done = all_in_zookeeper(len(writes))
        if commits:
            groups = [target.group] if moved is None else [moved.group, target.group]
            guard = partial(self._refuse_members, groups)
            with after(done) if done else nullcontext():
                reports.append(write_kafka_offsets(self.brokers, target.group, commits, self.timeout, guard=guard))
        return reports

    def _check_unmoved(self, found: Found) -> None:
        """Raise ``RefusedError`` where somebody works for the group, or has committed to Kafka since it was read.
        Offsets in ZooKeeper need no such look: a deletion there is refused by itself."""
        self._refuse_members([found.group])
        if found.side is not None:
            from zkgroup.groups.changes.kafka_deletion import check_unmoved

            check_unmoved(self.brokers, found.group, found.side, self.timeout)

    def _refuse_members(self, groups: Iterable[str]) -> None:
        """Members that keep their offsets in Kafka are known by their nodes in ZooKeeper alone."""
        if self.registry is not None:
            for group in groups:
                read_guard(self.registry, group)

    def verify_copy(self, group: str, rows: Sequence[CopyRow]) -> None:
        """Raise ``VerificationError`` unless the group's offsets are as planned."""
        stores = {row.store for row in rows if row.target is not None}
        if not stores:
            return
        moved = sum(row.moves for row in rows)
        told = f"{counted(moved, 'offset')} of group {group} written, not verified"
        with after(told, Remedy("see what is there", group_command("offsets", group))):
            found = self.look(group, "both" if len(stores) > 1 else next(iter(stores)))
        stored, kept = found.stored, found.kept
        wrong = []
        for row in rows:
            if row.target is not None:
                one = (stored if row.store == "zookeeper" else kept).get(row.key)
                if one is None or one.offset != row.target:
                    wrong.append(f"{row.key} in {row.store} is {one.offset if one else 'missing'}, not {row.target}")
        if wrong:
            raise VerificationError(
                f"group {group} is not as planned: {listed(wrong)}", "find out who commits for it, then plan again"
            )

    def delete(self, found: Found) -> None:
        """Delete the group, in ZooKeeper first. Raises ``RefusedError`` where it came alive or has changed,
        ``VerificationError`` where it has offsets in Kafka again."""
        if found.tree is not None and self.registry is not None:
            if found.side is not None:
                self._check_unmoved(found)  # before ZooKeeper's half is gone
            remove_tree(self.registry, found.tree)
        if found.side is not None:
            from zkgroup.groups.changes.kafka_deletion import remove_from_kafka

            guard = partial(self._refuse_members, [found.group])
            with after("in ZooKeeper it is deleted") if found.tree is not None else nullcontext():
                remove_from_kafka(self.brokers, found.group, found.side, self.timeout, guard=guard)


def conflict(to: str, rows: Iterable[CopyRow], remedy: str) -> RefusedError | None:
    """The error for what the group ``to`` has and would lose; None where that is nothing."""
    differing = [f"{row.key} in {row.store} ({row.note})" for row in rows if row.conflict]
    if not differing:
        return None
    noun = "offset" if len(differing) == 1 else "offsets"
    return RefusedError(f"group {to} has {len(differing)} {noun} of its own: {listed(differing)}", remedy)


def apart(target: Found, rows: Iterable[CopyRow]) -> dict[TopicPartition, OffsetStore]:
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


def told_apart(target: Found, rows: Iterable[CopyRow], remedy: str) -> RefusedError | None:
    """The error for those; None where there are none."""
    found = apart(target, rows)
    if not found:
        return None
    where = " and ".join(sorted({STORE_NAMES[store] for store in found.values()}))
    return RefusedError(
        f"group {target.group} has other offsets of {spans(found)} in {where}, where nothing is copied to: members that"
        " commit to both start from the larger ones",
        remedy,
    )


def _now() -> int:
    return int(time.time() * 1000)


CREDENTIALS: Final = "connect with credentials that may read the group's nodes"
