"""A group's offsets from one store to the other: compare, plan, and hand on to a reset, which guards and verifies.

migrator = Migrator(registry, brokers, "billing", 5.0)
plan = migrator.plan("kafka")
migrator.refuse_if_live(plan)
backup.write(migrator.resetter.backup(plan.reset, "migrate-group"))
migrator.resetter.write(plan.reset)
migrator.resetter.verify(plan.reset)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.group_coordinator import Coordinators
from zkgroup.clients.kafka.topic_configs import offsets_retention
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import NotFoundError, RefusedError, ZkgroupError
from zkgroup.groups.changes.current_offsets import OffsetReader
from zkgroup.groups.changes.kafka_offset_writer import refuse_if_active
from zkgroup.groups.changes.offset_checkpoint import checkpoint_of
from zkgroup.groups.changes.preconditions import read_guard
from zkgroup.groups.changes.reset_plan import OneStore, Target
from zkgroup.groups.changes.resetter import ResetPlan, Resetter
from zkgroup.groups.group_model import GroupPartition
from zkgroup.groups.partition_scope import Scope, Selection
from zkgroup.groups.snapshot.broker_queries import FindBrokers
from zkgroup.groups.snapshot.tables import alike
from zkgroup.protocol.names import TopicPartition, spans

#: What counts where the store that is written to is ahead.
Take: TypeAlias = Literal["source", "larger"]

_OTHER: Final[Mapping[OneStore, OneStore]] = {"zookeeper": "kafka", "kafka": "zookeeper"}
#: Minutes in a day.
_DAY: Final = 24 * 60


@dataclass(frozen=True, slots=True)
class MigrationRow:
    """One partition: its offset in the store it is taken from, in the one it goes to, and what it becomes there."""

    topic: str
    partition: int
    source: int
    current: int | None
    target: int
    log_start: int | None
    log_end: int | None
    note: str | None = None

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def change(self) -> int | None:
        """By how much the offset moves; None where there was none."""
        return None if self.current is None else self.target - self.current


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """What a migration would do. ``ahead``: partitions where the store that is written to has the larger offset, which
    would go back. ``adrift``: those whose offset lies outside their log, while the other store has one that does not,
    and would get the nearer end of the log instead. ``reset`` writes ``rows``."""

    group: str
    to: OneStore
    rows: tuple[MigrationRow, ...]
    ahead: tuple[TopicPartition, ...]
    adrift: tuple[TopicPartition, ...]
    warnings: tuple[str, ...]
    reset: ResetPlan

    @property
    def differences(self) -> tuple[MigrationRow, ...]:
        """Where the two stores do not say the same."""
        return tuple(row for row in self.rows if row.current != row.source)


class Migrator:
    """Moves one group's offsets. ``timeout`` (seconds) is for a broker's answer. Used by one thread."""

    def __init__(self, registry: Registry, brokers: FindBrokers, group: str, timeout: float) -> None:
        self._registry = registry
        self._brokers = brokers
        self._group = group
        self._timeout = timeout
        self.resetter = Resetter(registry, brokers, group, timeout)

    def plan(self, to: OneStore, scope: Scope | None = None, take: Take = "source") -> MigrationPlan:
        """Compare both stores, and say what becomes of each offset. Nothing is created by that.

        An offset outside its log is moved to the nearer end, with a note, as in a reset. Partitions that do not exist
        any more are left out, with a warning. Raises ``NotFoundError`` where there is nothing to move, ``ZkgroupError``
        where an offset cannot be read.
        """
        reader = OffsetReader(self._registry, self._brokers, self._group, self._timeout)
        current = reader.read(Selection(scope), _OTHER[to], needs_logs=False, may_create=False)
        meant = current.partitions
        offsets = checkpoint_of(self._group, meant.values(), _OTHER[to])
        warnings = list(current.snapshot.warnings)
        if gone := [key for key in offsets if not meant[key].exists]:
            warnings += [
                f"{line}: left behind" for line in alike([(meant[key], meant[key].log_error or "") for key in gone])
            ]
        offsets = {key: offset for key, offset in offsets.items() if meant[key].exists}
        if not offsets:
            raise NotFoundError(f"group {self._group} has offsets of no partition that exists", "nothing is to move")
        elsewhere = reader.read_other(_OTHER[to], offsets)
        ahead = tuple(key for key, offset in offsets.items() if elsewhere.get(key, -1) > offset)
        wanted = {
            key: max(offset, elsewhere.get(key, -1)) if take == "larger" else offset for key, offset in offsets.items()
        }
        reset = self.resetter.plan(Target("file", offsets=wanted), Selection(scope, frozenset(wanted)), to)
        rows = tuple(
            _row(offsets[row.key], row.current, row.target, reset.current.partitions[row.key], row.note)
            for row in reset.rows
            if row.target is not None
        )
        adrift = tuple(
            row.key
            for row in rows
            if row.current is not None
            and row.current != row.target
            and _is_in(row, row.current)
            and not _is_in(row, row.source)
        )
        return MigrationPlan(self._group, to, rows, ahead, adrift, tuple(warnings), reset)

    def refuse_if_live(self, plan: MigrationPlan) -> None:
        """Raise ``RefusedError``, naming the members, if somebody works for the group, in either store."""
        read_guard(self._registry, self._group)
        self.resetter.refuse_if_active(plan.reset)
        if plan.to == "zookeeper":  # a reset of ZooKeeper's offsets alone asks nobody else
            self._refuse_if_kafka_moves(plan)

    def write(self, plan: MigrationPlan) -> None:
        """Write the plan. Raises as ``Resetter.write``, and ``RefusedError`` where the offsets in Kafka that are moved
        to ZooKeeper have changed since the plan, or members came there."""
        if plan.to == "zookeeper":
            try:
                self._refuse_if_kafka_moves(plan)
            except ZkgroupError as error:
                error.message += "; nothing was written"
                raise
        self.resetter.write(plan.reset)

    def _refuse_if_kafka_moves(self, plan: MigrationPlan) -> None:
        side = Coordinators(self._brokers(), self._timeout).side(self._group)
        refuse_if_active(self._group, side)
        now = {key: held.offset for key, held in side.offsets.items()}
        if moved := [row.key for row in plan.rows if now.get(row.key) != row.source]:
            raise RefusedError(
                f"offsets of group {self._group} in Kafka have changed since the plan: {spans(moved)}",
                "find out who commits for the group, then plan again",
            )

    def retention(self) -> str:
        """How long Kafka keeps the offsets of a group that commits nothing, in words."""
        settings: KafkaSettings = self._brokers()
        minutes = offsets_retention(settings, self._timeout)
        if minutes is None:
            kept = (
                "the brokers do not tell for how long (offsets.retention.minutes): it is one day by default before"
                " Kafka 2.0, and seven since"
            )
        else:
            kept = f"for {_duration(minutes)} (offsets.retention.minutes={minutes})"
        return f"Kafka keeps offsets of a group that nobody works for, {kept}: start its consumers within that time"


def _row(source: int, current: int | None, target: int, partition: GroupPartition, note: str | None) -> MigrationRow:
    return MigrationRow(
        partition.topic,
        partition.partition,
        source,
        current,
        target,
        partition.log_start,
        partition.log_end,
        note,
    )


def _is_in(row: MigrationRow, offset: int) -> bool:
    """Whether the partition's log, as far as it is known, has such an offset."""
    return (row.log_start is None or offset >= row.log_start) and (row.log_end is None or offset <= row.log_end)


def _duration(minutes: int) -> str:
    if minutes >= 2 * _DAY:
        return f"{minutes / _DAY:g} days"
    return f"{minutes / 60:g} hours" if minutes >= 120 else f"{minutes} minutes"
