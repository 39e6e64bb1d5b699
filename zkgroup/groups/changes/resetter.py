"""Resetting a group's offsets, step by step: plan, look whether it may be done, write, verify.

    resetter = Resetter(registry, brokers, "billing", 5.0)
    plan = resetter.plan(Target("earliest"), Selection(parse_scope(["orders"])))
    resetter.refuse_if_active(plan)
    backup.write(resetter.backup(plan, "reset-offsets"))
    resetter.write(plan)
    resetter.verify(plan)

With both stores ZooKeeper is written first, where a compare-and-set is possible, and Kafka only if that succeeded.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.group_coordinator import Coordinators
from zkgroup.clients.kafka.group_offsets import GroupOffsets
from zkgroup.clients.kafka.log_offsets import Log, log_offsets
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import Notice, RefusedError, Remedy, UsageError, VerificationError, ZkgroupError
from zkgroup.groups.changes import backup as backups
from zkgroup.groups.changes.backup import Backup, Cluster, SavedOffset
from zkgroup.groups.changes.change_reports import GO_ON, after, all_in_zookeeper
from zkgroup.groups.changes.current_offsets import CurrentOffsets, OffsetReader, no_group
from zkgroup.groups.changes.kafka_offset_writer import KafkaWrite, check_before, refuse_if_active, write_kafka_offsets
from zkgroup.groups.changes.missing_permissions import Need, needs_of_writes
from zkgroup.groups.changes.preconditions import read_guard
from zkgroup.groups.changes.reset_plan import (
    OneStore,
    ResetRow,
    Target,
    back_into_range,
    left_by,
    moved_since,
    new_in_kafka,
    out_of_range,
    overruled,
    plan_reset,
    plan_undo,
    stores_of,
)
from zkgroup.groups.changes.reset_targets import find_offsets
from zkgroup.groups.changes.zookeeper_offset_writer import OffsetWrite, write_offsets
from zkgroup.groups.group_model import GroupSnapshot, Store
from zkgroup.groups.offset_files.file_entries import OffsetFile
from zkgroup.groups.partition_scope import Scope, Selection
from zkgroup.groups.snapshot.broker_queries import FindBrokers, patience
from zkgroup.groups.snapshot.stored_offsets import stored_offset
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Acl, Children, Get, Node
from zkgroup.shell_commands import group_command
from zkgroup.text import are, counted, listed


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """What is to be written, and what that is based on. ``conflicts``: why an undo is refused. ``metadata``: what is
    kept beside offsets in Kafka, and is to be. ``go_on``: what to do where only a part of it is written. ``acls``: the
    access lists that nodes had which an undo makes again."""

    group: str
    store: Store
    rows: tuple[ResetRow, ...]
    current: CurrentOffsets
    warnings: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    undone: Path | None = None
    metadata: Mapping[TopicPartition, str] = field(default_factory=dict)
    go_on: str = GO_ON
    acls: Mapping[str, tuple[Acl, ...]] = field(default_factory=dict)

    def moving(self, store: OneStore) -> list[ResetRow]:
        """The rows that are to be written to one store."""
        return [row for row in self.rows if row.store == store and row.moves]

    @property
    def changes(self) -> int:
        """How many offsets are to be written."""
        return sum(row.moves for row in self.rows)

    @property
    def left(self) -> str | None:
        """What an undo does not put back, in words; None where it puts back everything."""
        return left_by(self.group, self.rows)


class Resetter:
    """One group's offsets, to be moved. Without a ``registry`` those in Kafka. ``timeout`` (seconds) is for a broker's
    answer. Used by one thread."""

    def __init__(self, registry: Registry | None, brokers: FindBrokers, group: str, timeout: float) -> None:
        self._registry = registry
        self._find_brokers = brokers
        self._settings: KafkaSettings | None = None
        self._group = group
        self._timeout = timeout

    def _brokers(self) -> KafkaSettings:
        if self._settings is None:
            self._settings = self._find_brokers()
        return self._settings

    # --- planning ---------------------------------------------------------------------------------------------------

    def plan(self, target: Target, selection: Selection, store: Store | None = None) -> ResetPlan:
        """What a reset would do. Without ``store``, where the group keeps its offsets.

        Raises ``NotFoundError`` for what does not exist, ``UnreachableError`` where a server or a log cannot be asked.
        """
        reader = OffsetReader(self._registry, self._brokers, self._group, self._timeout)
        current = reader.read(selection, store, needs_logs=target.kind != "current")
        exists = current.snapshot.exists
        if target.kind == "shift" and not exists:
            raise no_group(self._group, self._registry, may_create=False)
        times = None
        if target.kind == "time":
            logs = {
                key: (partition.log_start, partition.log_end)
                for key, partition in current.partitions.items()
                if partition.exists and partition.log_start is not None and partition.log_end is not None
            }
            times = find_offsets(self._brokers(), logs, target.value, patience(self._timeout, len(logs)))
        rows = plan_reset(target, current.partitions.values(), current.store, times, current.homes)
        warnings = (*current.snapshot.warnings, *_of_new(current.snapshot, rows))
        if exists:  # else delete-group takes it all back
            warnings += tuple(new_in_kafka(rows))
        if store is not None:
            warnings += tuple(overruled(rows, reader.read_other(store, current.partitions), store))
        metadata = {key: one.kafka.metadata for key, one in current.partitions.items() if one.kafka is not None}
        go_on = _NOT_AGAIN if target.kind == "shift" else GO_ON
        if target.from_now:
            moment = datetime.fromtimestamp(target.value / 1000, UTC).isoformat(timespec="milliseconds")
            go_on = f"to go on, run it with --to-datetime {moment} instead: what is in place stays"
        return ResetPlan(self._group, current.store, rows, current, warnings, metadata=metadata, go_on=go_on)

    def plan_undo(
        self, path: Path, scope: Scope | None = None, store: Store | None = None, *, nodes_too: bool = False
    ) -> ResetPlan:
        """What it takes to put back what a backup holds, or only what of it is in ``scope`` and ``store``.
        ``nodes_too``: the caller makes its nodes.

        Raises ``UsageError`` for what is no backup, ``RefusedError`` for one of another group or cluster.
        """
        backup = backups.read(path)
        if backup.nodes and not backup.offsets and not nodes_too:
            raise _only_nodes(backup, self._group, path)
        open_questions = backups.check_fits(backup, self._cluster(), self._group, path)
        offsets = [
            offset
            for offset in backup.offsets
            if (store is None or offset.store in stores_of(store)) and (scope is None or scope.has(offset.partition))
        ]
        if not offsets:
            raise UsageError(f"{path} has no offsets that are meant", "see --topic and --store")
        kept = {offset.store for offset in offsets}
        current = OffsetReader(self._registry, self._brokers, self._group, self._timeout).read(
            Selection(listed=frozenset(offset.partition for offset in offsets), gone=True),
            "both" if len(kept) > 1 else next(iter(kept)),
            needs_logs=False,
        )
        rows = plan_undo(offsets, current.partitions, current.unreadable)
        warnings = [*open_questions, *current.snapshot.warnings, *_of_new(current.snapshot, rows)]
        if backup.nodes and not nodes_too:
            warnings.append(
                f"{path} also holds {counted(len(backup.nodes), 'node')}: only offsets are put back;"
                " see delete-group --undo"
            )
        conflicts = tuple(moved_since(offsets, current.partitions, current.unreadable))
        metadata = {offset.partition: offset.metadata for offset in offsets if offset.store == "kafka"}
        above = {znodes.group(self._group), znodes.offsets(self._group)}
        below = znodes.offsets(self._group) + "/"
        acls = {node.path: node.acl for node in backup.nodes if node.path in above or node.path.startswith(below)}
        return ResetPlan(
            self._group, current.store, rows, current, tuple(warnings), conflicts, path, metadata, acls=acls
        )

    # --- doing ------------------------------------------------------------------------------------------------------

    def refuse_if_active(self, plan: ResetPlan) -> None:
        """Raise ``RefusedError``, naming the members, if somebody works for the group; and where an offset that is to
        be written cannot even be read, so that nobody can tell what would be overwritten."""
        # Members that keep their offsets in Kafka are registered in ZooKeeper all the same.
        if self._registry is not None and (plan.store != "kafka" or plan.current.snapshot.exists):
            read_guard(self._registry, self._group)
        if plan.store != "zookeeper":
            side = Coordinators(self._brokers(), self._timeout).side(self._group)
            refuse_if_active(self._group, side)
        seen = plan.current.unreadable
        hidden = [row.key for row in plan.moving("zookeeper") if not row.legible and row.key not in seen]
        if hidden:
            raise RefusedError(
                f"offsets of group {self._group} in ZooKeeper cannot be read: {listed([str(key) for key in hidden])}",
                "connect with credentials that may read and write them, or leave them out with --topic",
            )

    def needs(self, plan: ResetPlan) -> list[Need]:
        """The permissions in ZooKeeper that the plan takes."""
        moving = plan.moving("zookeeper")
        return needs_of_writes(self._group, [row.key for row in moving]) if moving else []

    def backup(self, plan: ResetPlan, command: str) -> Backup:
        """What the plan overwrites."""
        raw = plan.current.unreadable
        metadata = {key: one.kafka.metadata for key, one in plan.current.partitions.items() if one.kafka is not None}
        offsets = [
            SavedOffset(
                row.store,
                row.key,
                row.current,
                row.target,
                raw.get(row.key) if row.store == "zookeeper" else None,
                metadata.get(row.key, "") if row.store == "kafka" else "",
                row.raw,
            )
            for row in plan.rows
            if row.moves
        ]
        return Backup(command, self._group, int(time.time() * 1000), self._cluster(), tuple(offsets))

    def _cluster(self) -> Cluster:
        return backups.cluster_of(self._registry, self._brokers, self._timeout)

    def check_origin(self, file: OffsetFile) -> None:
        """Raise ``RefusedError`` where a file of offsets says that it is of another cluster."""
        here = self._cluster() if file.clusters else None
        for other in file.clusters:
            if here is not None and other.differs(here):
                raise RefusedError(
                    f"{file.name} is of another cluster{other.told}; this is {here.connect}{here.told}",
                    "its offsets mean other messages there: --same-logs if both have the same logs",
                )

    def write(self, plan: ResetPlan) -> None:
        """Write the plan, guarded; what has its target already is done.

        Raises ``WriteRefusedError`` (the group came alive, or an offset moved since the plan) and ``WriteFailedError``;
        both say what is written.
        """
        zookeeper = [
            OffsetWrite(row.key, row.target, plan.current.partitions[row.key].stored, row.raw)
            for row in plan.moving("zookeeper")
        ]
        kafka = [
            KafkaWrite(row.key, row.target, row.current, plan.metadata.get(row.key, ""))
            for row in plan.moving("kafka")
            if row.target is not None
        ]
        if zookeeper and kafka:
            check_before(self._brokers(), self._group, kafka, self._timeout)
        if zookeeper:
            assert self._registry is not None, "offsets in ZooKeeper were read from it"
            prune = plan.undone is not None
            write_offsets(self._registry, self._group, zookeeper, prune=prune, go_on=plan.go_on, acls=plan.acls)
        if not kafka:
            return
        done = all_in_zookeeper(len(zookeeper))
        go_on = _BACK_IN_ZOOKEEPER if plan.go_on == _NOT_AGAIN else plan.go_on
        with after(done, go_on) if zookeeper else nullcontext():
            write_kafka_offsets(
                self._brokers(), self._group, kafka, self._timeout, guard=self._refuse_members, go_on=plan.go_on
            )

    def _refuse_members(self) -> None:
        """Members that keep their offsets in Kafka are known by their nodes in ZooKeeper alone."""
        if self._registry is not None:
            read_guard(self._registry, self._group)

    def verify(self, plan: ResetPlan) -> list[str | Notice]:
        """Read everything again, the logs too; what could not be asked is returned as warnings.

        Raises ``VerificationError`` where an offset is not as planned, or lies outside its log by now. Whatever else
        ends it tells that the offsets are written, and not verified.
        """
        count = plan.changes
        told = f"{counted(count, 'offset')} {are(count)} written, not verified"
        with after(told, Remedy("see what is there", group_command("offsets", self._group))):
            return self._verify(plan)

    def _verify(self, plan: ResetPlan) -> list[str | Notice]:
        wrong = []
        current = plan.current.partitions
        logs: Mapping[TopicPartition, Log] = {}
        warnings: list[str | Notice] = []
        existing = [key for key, one in current.items() if one.exists]
        settings = self._reachable_brokers(warnings)
        with ThreadPoolExecutor(1) as executor:  # brokers and ZooKeeper are asked at the same time
            wait = patience(self._timeout, len(existing))
            asked = settings and executor.submit(log_offsets, settings, existing, wait)
            found = {store: self._read(store, plan) for store in stores_of(plan.store)}
            raw = self._read_raw(plan)
            try:
                logs = asked.result() if asked else {}
            except ZkgroupError as error:
                warnings.append(_UNSEEN + error.message)
        for row in plan.rows:
            value = found[row.store][row.key]
            if row.raw is not None:
                if raw[row.key] != row.raw:
                    wrong.append(f"{row.key} in {row.store} is not as it was")
            elif value != row.target:
                shown = "none" if value is None else value
                wrong.append(f"{row.key} in {row.store} is {shown}, not {'none' if row.target is None else row.target}")
        if wrong:
            raise VerificationError(
                f"group {self._group} is not as planned: {listed(wrong)}",
                f"find out who commits for it; {_NOT_AGAIN if plan.go_on == _NOT_AGAIN else 'then plan again'}",
            )
        # A target that was out of range in the plan was noted there.
        before = {one.text for one in out_of_range(plan.rows, current)}
        moving = [row for row in plan.rows if row.moves]
        now = {key: one.with_log(logs.get(key)) for key, one in current.items()}
        if passed := [one for one in out_of_range(moving, now) if one.text not in before]:
            told = listed(list(dict.fromkeys(one.text for one in passed)))
            raise VerificationError(
                f"the offsets are written, but logs have moved on meanwhile: {told}",
                Remedy(
                    "members would start there where auto.offset.reset says; before they do, move those offsets",
                    *back_into_range(plan.group, passed),
                ),
            )
        if plan.undone is not None and self._is_emptied():
            removing = Remedy("remove its nodes", group_command("delete-group", self._group, "--execute"))
            warnings.append(Notice(f"group {self._group} has no offsets in ZooKeeper any more", removing))
        return warnings

    def _is_emptied(self) -> bool:
        return self._registry is not None and self._registry.read([Children(znodes.offsets(self._group))]) == [()]

    def _read_raw(self, plan: ResetPlan) -> Mapping[TopicPartition, bytes | None]:
        """What nodes hold that are to hold more, or less, than a number."""
        keys = [row.key for row in plan.rows if row.raw is not None]
        if not keys:
            return {}
        assert self._registry is not None, "offsets in ZooKeeper were read from it"
        nodes = self._registry.read([Get(path) for path in znodes.offset_paths(self._group, keys).values()])
        return {key: node.data if isinstance(node, Node) else None for key, node in zip(keys, nodes, strict=True)}

    def _reachable_brokers(self, warnings: list[str | Notice]) -> KafkaSettings | None:
        try:
            return self._brokers()
        except ZkgroupError as error:
            warnings.append(_UNSEEN + error.message)
            return None

    def _read(self, store: OneStore, plan: ResetPlan) -> Mapping[TopicPartition, int | None]:
        """The offsets as they are now; None also for what is unreadable."""
        keys = [row.key for row in plan.rows if row.store == store]
        if store == "kafka":
            offsets = GroupOffsets(self._brokers(), self._group)
            try:
                return offsets.fetch(keys, self._timeout)
            finally:
                offsets.close()
        assert self._registry is not None, "offsets in ZooKeeper were read from it"
        paths = znodes.offset_paths(self._group, keys)
        nodes = self._registry.read([Get(path) for path in paths.values()])
        return {
            key: stored_offset(path, node).offset if isinstance(node, Node) else None
            for (key, path), node in zip(paths.items(), nodes, strict=True)
        }


_NOT_AGAIN: Final = "do not just run it again, which would shift once more what is written: --undo the backup first"
_BACK_IN_ZOOKEEPER: Final = (
    "do not just run it again, which would shift once more what is written: --undo the backup with --store zookeeper"
    " first"
)
_UNSEEN: Final = "the logs could not be looked at again: "


def _only_nodes(backup: Backup, group: str, path: Path) -> UsageError:
    """Of a deletion by pattern: whose groups' offsets are among their nodes."""
    undoing = ("--undo", str(path))
    if not any(backups.group_of(node.path) == group for node in backup.nodes):
        look = Remedy("see what it has", ("delete-group", *undoing))
        return UsageError(f"{path} has nothing of group {group}", look)
    return UsageError(
        f"{path} holds nodes, and no offsets by themselves",
        Remedy(f"plan to make the nodes of {group} again", group_command("delete-group", group, *undoing)),
    )


def _of_new(snapshot: GroupSnapshot, rows: Iterable[ResetRow]) -> list[str]:
    if snapshot.exists:
        return []
    told = f"there is no group {snapshot.group}"
    return [f"{told} yet: this makes it"] if any(row.moves for row in rows) else [told]
