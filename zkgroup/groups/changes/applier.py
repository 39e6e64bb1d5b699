"""Applying plans: preconditions, then a backup, then the writes, each checked again just before, then a verification.

ZooKeeper is written first, where a compare-and-set is possible, and Kafka only if that succeeded.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import Notice, RefusedError, Remedy, VerificationError, ZkgroupError, notice_of
from zkgroup.groups.changes import backup as backups
from zkgroup.groups.changes.backup import Backup, SavedNode
from zkgroup.groups.changes.change_reports import after
from zkgroup.groups.changes.group_tree import require_acls
from zkgroup.groups.changes.plan import NOT_AGAIN, NOT_AGAIN_IN_ZOOKEEPER, OffsetChange, Plan, Source
from zkgroup.groups.changes.preconditions import read_inactive_group
from zkgroup.groups.changes.znode_deletion import remove_nodes
from zkgroup.groups.changes.zookeeper_offset_writer import write_offsets
from zkgroup.groups.group_model import Cluster, GroupPartition, OffsetStore, stores_of
from zkgroup.groups.snapshot.broker_queries import FindBrokers, answer_timeout
from zkgroup.groups.snapshot.group_znodes import stored_offset
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Get, Node
from zkgroup.text import are, counted, group_command, listed

if TYPE_CHECKING:
    from zkgroup.clients.kafka.client import KafkaSettings  # confluent-kafka: 60 ms that not every change needs
    from zkgroup.clients.kafka.group_coordinator import Coordinators
    from zkgroup.clients.kafka.log_offsets import Log


class Applier:
    """Applies plans, in Kafka alone without a ``registry``. ``timeout`` (seconds) is for a broker's answer. Used by one
    thread."""

    def __init__(self, registry: Registry | None, find_brokers: FindBrokers, timeout: float) -> None:
        self.registry = registry
        self.timeout = timeout
        self._find_brokers = find_brokers
        self._settings: KafkaSettings | None = None

    def brokers(self) -> KafkaSettings:
        """How to reach the brokers. Raises ``ZkgroupError`` where that cannot be found out."""
        if self._settings is None:
            self._settings = self._find_brokers()
        return self._settings

    def cluster(self) -> Cluster:
        """Which cluster it is."""
        if self.registry is not None:
            return backups.read_cluster(self.registry)
        from zkgroup.clients.kafka.client import cluster_id

        settings = self.brokers()
        return Cluster(settings.bootstrap, cluster_id(settings, self.timeout))

    def has_unnamed_zookeeper(self) -> bool:
        """Whether ZooKeeper was not named, and the cluster may have one: brokers in KRaft mode have none."""
        if self.registry is not None:
            return False
        from zkgroup.clients.kafka.topic_metadata import has_no_zookeeper

        return not has_no_zookeeper(self.brokers(), self.timeout)

    def coordinators(self) -> Coordinators:
        """The coordinators of groups in Kafka, asked through a client of their own."""
        from zkgroup.clients.kafka.group_coordinator import Coordinators

        return Coordinators(self.brokers(), self.timeout)

    # --- preconditions ----------------------------------------------------------------------------------------------

    def check(self, plan: Plan) -> None:
        """Raise ``RefusedError`` where a precondition of the plan does not hold."""
        for check in (self._check_acls, self._check_inactive, self._check_readable, self._check_kafka_deletes):
            check(plan)

    def _check_inactive(self, plan: Plan) -> None:
        """No member of the group in either store, or none that uses the removed nodes; and a source as planned."""
        if plan.removal is not None and plan.removal.guarding is not None:
            assert self.registry is not None, "the nodes were read from it"
            plan.removal.guarding(self.registry)
            return
        # Members that keep their offsets in Kafka are registered in ZooKeeper, too.
        self._refuse_members([plan.group])
        if plan.store != "zookeeper":
            from zkgroup.groups.changes.kafka_writer import refuse_if_active

            refuse_if_active(plan.group, self.coordinators().read_group(plan.group))
        if plan.source is not None and not plan.source.is_deleted:  # else the plan of its deletion is checked
            self._refuse_moved(plan.source)

    def _check_readable(self, plan: Plan) -> None:
        """Every offset that is written can be in the backup."""
        rows = [] if plan.is_removal else plan.moving("zookeeper")
        hidden = [str(row.key) for row in rows if not row.is_legible and row.stored_data is None]
        if hidden:
            raise RefusedError(
                f"offsets of group {plan.group} in ZooKeeper cannot be read: {listed(hidden)}",
                "connect with credentials that may read and write them, or leave them out with GROUP --topic …",
            )

    def _check_kafka_deletes(self, plan: Plan) -> None:
        """The group is not in Kafka, or its coordinator deletes groups."""
        if plan.in_kafka is not None:
            try:
                self.coordinators().check_deletes(plan.group)
            except RefusedError as refused:
                if plan.removal is None:
                    refused.remedy = Remedy("wait until its offsets there expire: it is nowhere else")
                raise

    def _check_acls(self, plan: Plan) -> None:
        """The access lists of the nodes that go can be in the backup."""
        if plan.removal is not None and self.registry is not None:
            require_acls(self.registry, plan.removal.tree.paths)

    # --- backup -----------------------------------------------------------------------------------------------------

    def backup(self, plan: Plan) -> Backup:
        """The offsets and nodes that the plan overwrites and removes."""
        nodes: tuple[SavedNode, ...] = ()
        if plan.removal is not None and self.registry is not None:
            acls = require_acls(self.registry, plan.removal.tree.paths)
            nodes = tuple(SavedNode(node.path, node.data, acls[node.path]) for node in plan.removal.tree.nodes)
        now = int(time.time() * 1000)
        offsets = tuple(row.saved for row in plan.rows if row.moves)
        return Backup(plan.command, plan.group, now, self.cluster(), offsets, nodes)

    # --- writing ----------------------------------------------------------------------------------------------------

    def write(self, plan: Plan) -> None:
        """Write the plan, guarded; an offset that has its target already is done.

        Raises ``RefusedError`` (the group has become active, or an offset, a node, or the source has changed since the
        plan) and ``UnreachableError``, with what is written; ``VerificationError`` where a group that was deleted in
        Kafka has offsets again.
        """
        if plan.source is not None:
            with after("nothing was written"):
                self._refuse_moved(plan.source)
        if plan.is_removal:
            self._remove(plan)
        else:
            self._write_offsets(plan)

    def _write_offsets(self, plan: Plan) -> None:
        zookeeper, kafka = plan.moving("zookeeper"), plan.moving("kafka")
        if kafka:
            from zkgroup.groups.changes.kafka_writer import check_before, write_kafka_offsets

            if zookeeper:
                check_before(self.brokers(), plan.group, kafka, self.timeout)
        if zookeeper:
            assert self.registry is not None, "offsets in ZooKeeper were read from it"
            write_offsets(self.registry, plan.group, zookeeper, go_on=plan.go_on, acls=plan.acls)
        if not kafka:
            return
        groups = [plan.group] if plan.source is None else [plan.source.group, plan.group]
        go_on, written = NOT_AGAIN_IN_ZOOKEEPER if plan.is_shift else plan.go_on, len(zookeeper)
        with (
            after(f"in ZooKeeper {counted(written, 'offset')} {are(written)} written", go_on)
            if zookeeper
            else nullcontext()
        ):
            check = partial(self._refuse_members, groups)
            write_kafka_offsets(self.brokers(), plan.group, kafka, self.timeout, check=check, go_on=plan.go_on)

    def _remove(self, plan: Plan) -> None:
        removal = plan.removal
        if removal is not None and self.registry is not None:
            if plan.in_kafka is not None:  # before ZooKeeper's half is gone
                self._refuse_moved(Source(plan.group, plan.in_kafka.offsets, is_deleted=True))
            remove_nodes(self.registry, removal)
        if plan.in_kafka is not None:
            from zkgroup.groups.changes.kafka_writer import remove_from_kafka

            with after("in ZooKeeper it is deleted") if removal is not None else nullcontext():
                check = partial(self._refuse_members, [plan.group])
                remove_from_kafka(self.brokers(), plan.group, plan.in_kafka, self.timeout, check=check)

    def _refuse_members(self, groups: Iterable[str]) -> None:
        """Raise ``RefusedError`` for members in ZooKeeper, which knows alone those that keep their offsets in Kafka."""
        if self.registry is not None:
            for group in groups:
                read_inactive_group(self.registry, group)

    def _refuse_moved(self, source: Source) -> None:
        """Raise ``RefusedError`` where the group is active, or has committed to Kafka since it was read. Offsets in
        ZooKeeper need no such check: a deletion there is refused by itself."""
        if source.check is not None:
            source.check(False)
            return
        self._refuse_members([source.group])
        if source.in_kafka is not None:
            from zkgroup.groups.changes.kafka_writer import check_unmoved

            check_unmoved(self.coordinators(), source)

    # --- verifying --------------------------------------------------------------------------------------------------

    def verify(self, plan: Plan) -> list[Notice]:
        """Read all offsets again, and the logs where the plan has them; returns warnings of unread logs. A
        removal verifies itself.

        Raises ``VerificationError`` where an offset is not as planned, or is outside its log by now. Any other error
        says that the offsets are written, and not verified.
        """
        if plan.is_removal:
            return []
        count = plan.changes
        message = f"{counted(count, 'offset')} {are(count)} written, not verified"
        with after(message, Remedy("see what is there", group_command("offsets", plan.group))):
            warnings = self._verify(plan)
        if plan.source is not None and plan.source.check is not None:
            with after(f"{counted(count, 'offset')} {are(count)} written and verified"):
                plan.source.check(True)
        return warnings

    def _verify(self, plan: Plan) -> list[Notice]:
        warnings: list[Notice] = []
        logs = self._read_logs([key for key, one in plan.partitions.items() if one.exists], warnings)
        for store in stores_of(plan.store):
            rows = [row for row in plan.rows if row.store == store]
            found = self._read(store, plan.group, [row.key for row in rows])
            self._compare(plan, [(row, *found[row.key]) for row in rows])
        self._await_commits(plan)
        # A target that was out of range in the plan was noted there.
        before = _out_of_range(plan.rows, plan.partitions)
        now = {key: one.with_log(logs.get(key)) for key, one in plan.partitions.items()}
        passed = _out_of_range([row for row in plan.rows if row.moves], now)
        if moved := [text for key, text in passed.items() if key not in before]:
            raise VerificationError(
                f"the offsets are written, but logs have moved on meanwhile: {listed(moved)}",
                Remedy(
                    "members would start there where auto.offset.reset says; before they do, reset these partitions"
                    " alone with --to-earliest or --to-latest",
                    group_command("offsets", plan.group),
                ),
            )
        return warnings

    def _read_logs(self, keys: Sequence[TopicPartition], warnings: list[Notice]) -> Mapping[TopicPartition, Log]:
        from zkgroup.clients.kafka.log_offsets import log_offsets

        try:
            return log_offsets(self.brokers(), keys, answer_timeout(self.timeout, len(keys))) if keys else {}
        except ZkgroupError as error:
            warnings.append(notice_of("the logs could not be read again", error))
            return {}

    def _await_commits(self, plan: Plan) -> None:
        """Raise ``VerificationError`` where a consumer that is no member commits over what Kafka had before, or goes on
        with offsets in Kafka that were migrated."""
        rows = [row for row in plan.rows if row.store == "kafka" and row.seen is not None]
        origin = plan.source if plan.source and plan.source.in_kafka and not plan.source.is_deleted else None
        if not rows and origin is None:
            return
        from zkgroup.clients.kafka.group_consumers import GroupOffsets
        from zkgroup.groups.changes.kafka_writer import check_unmoved, verification_moments

        with closing(GroupOffsets(self.brokers(), plan.group)) as offsets:
            for _ in verification_moments(self.coordinators().read_group(plan.group)):
                now = offsets.fetch([row.key for row in rows], self.timeout)
                self._compare(plan, [(row, now[row.key], None) for row in rows])
                if origin is not None:
                    try:
                        check_unmoved(self.coordinators(), origin)
                    except RefusedError as moved:
                        raise VerificationError(moved.message, moved.remedy) from None

    def _compare(self, plan: Plan, found: Iterable[tuple[OffsetChange, int | None, bytes | None]]) -> None:
        """Raise ``VerificationError`` where an offset, or its znode's bytes, is not as planned."""
        wrong = []
        for row, offset, data in found:
            wanted = row.current if row.stays else row.target
            if row.raw is not None and data != row.raw:
                wrong.append(f"{row.key} in {row.store} is not as it was")
            elif row.raw is None and offset != wanted:
                shown = ["none" if one is None else str(one) for one in (offset, wanted)]
                wrong.append(f"{row.key} in {row.store} is {shown[0]}, not {shown[1]}")
        if wrong:
            raise VerificationError(
                f"group {plan.group} is not as planned: {listed(wrong)}",
                f"find the client that commits for it; {NOT_AGAIN if plan.is_shift else 'then plan again'}",
            )

    def _read(
        self, store: OffsetStore, group: str, keys: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, tuple[int | None, bytes | None]]:
        """The offsets as they are now, None also for unreadable ones; and their znodes' bytes."""
        if not keys:
            return {}
        if store == "kafka":
            from zkgroup.clients.kafka.group_consumers import GroupOffsets

            with closing(GroupOffsets(self.brokers(), group)) as offsets:
                return {key: (offset, None) for key, offset in offsets.fetch(keys, self.timeout).items()}
        assert self.registry is not None, "offsets in ZooKeeper were read from it"
        nodes = self.registry.read(map(Get, znodes.offset_paths(group, keys).values()))
        return {
            key: (stored_offset(node).offset, node.data) if isinstance(node, Node) else (None, None)
            for key, node in zip(keys, nodes, strict=True)
        }


def _out_of_range(
    rows: Iterable[OffsetChange], partitions: Mapping[TopicPartition, GroupPartition]
) -> dict[TopicPartition, str]:
    """The partitions whose target lies outside the log: retention passed it, or the log was cut."""
    found = {}
    for row in rows:
        partition = partitions.get(row.key)
        if row.target is not None and partition is not None and (why := partition.why_outside(row.target)) is not None:
            found[row.key] = f"{row.key}: {why}, at {row.target}"
    return found
