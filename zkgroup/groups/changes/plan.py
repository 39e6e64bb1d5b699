"""The plan of a change to a group: a row for each offset, and the nodes that go; pure data.

Plans are made by functions (``reset_plan``, ``undo``, ``group_plans``, ``migration``) and applied by ``Applier``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from zkgroup.clients.kafka.responses import KafkaGroup, KafkaOffset
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import Notice, RefusedError
from zkgroup.groups.changes.backup import SavedOffset
from zkgroup.groups.changes.group_tree import GroupTree
from zkgroup.groups.group_model import GroupPartition, OffsetStore, Store, StoredOffset
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Acl, Create, Delete


class StalePlanError(RefusedError):
    """Refused because an offset, or a node, is not what it was when the plan was made."""


#: How to go on where an offset that is written is not written again.
GO_ON: Final = "run it again to go on: offsets in place stay"
#: How to go on with a shift, which would move once more what is written.
_NOT_AGAIN: Final = "do not just run it again, which would shift the written offsets once more: --undo the backup"
NOT_AGAIN: Final = f"{_NOT_AGAIN} first"
NOT_AGAIN_IN_ZOOKEEPER: Final = f"{_NOT_AGAIN} with --store zookeeper first"

#: ``unreadable``: the source's offset is not readable, so that nothing is written. ``conflict``: the write replaces an
#: offset that differs. ``left``: an undo cannot restore what there was.
Problem: TypeAlias = Literal["unreadable", "conflict", "left"]


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """One partition's offset in one store: what it is (``current``) and what it becomes (``target``).

    ``current`` None: there is no readable offset. ``target`` None: there is to be none, or, with ``stays``, nothing is
    written. ``seen``: the offset that the plan is based on, None without one. ``raw``: the bytes that the znode is to
    hold instead of ``target``. ``metadata``: that of the commit in Kafka. ``target_time``: when the message at the
    target was written, in milliseconds since 1970; None where there is none, or it is unknown.
    """

    store: OffsetStore
    topic: str
    partition: int
    current: int | None
    target: int | None
    note: str | None = None
    problem: Problem | None = None
    seen: StoredOffset | KafkaOffset | None = None
    raw: bytes | None = None
    metadata: str = ""
    stays: bool = False
    target_time: int | None = None

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def change(self) -> int | None:
        """By how much the offset moves; None where there is none before or after."""
        return None if self.current is None or self.target is None else self.target - self.current

    @property
    def data(self) -> bytes | None:
        """The znode's bytes after the change; None where it is to be deleted."""
        if self.raw is not None:
            return self.raw
        return None if self.target is None else znodes.encode_offset(self.target)

    @property
    def stored(self) -> StoredOffset | None:
        """The znode that the plan is based on."""
        return self.seen if isinstance(self.seen, StoredOffset) else None

    @property
    def stored_data(self) -> bytes | None:
        """The znode's bytes, where they are not just the number."""
        return None if self.stored is None else self.stored.data

    @property
    def is_legible(self) -> bool:
        """Whether every member can read the offset."""
        defect = self.stored is not None and self.stored.defect
        return self.seen is None or not (self.seen.error or defect)

    @property
    def moves(self) -> bool:
        """Whether anything is to be written or deleted."""
        if self.stays:
            return False
        deleted = self.target is None and self.seen is not None
        return deleted or self.raw is not None or self.target != self.current or not self.is_legible

    @property
    def committed_at(self) -> int | None:
        """When the offset was committed, in milliseconds since 1970; None where the store does not say."""
        return None if self.stored is None else self.stored.changed_at

    @property
    def saved(self) -> SavedOffset:
        """The offset as it is in a backup."""
        metadata = self.seen.metadata if isinstance(self.seen, KafkaOffset) else ""
        return SavedOffset(self.store, self.key, self.current, self.target, self.stored_data, metadata, self.raw)


#: Checks whether nodes that are to go are in use: raises ``RefusedError``, or returns operations that make a
#: transaction fail once they are.
Guarding: TypeAlias = Callable[[Registry], Sequence[Create | Delete]]


@dataclass(frozen=True, slots=True)
class ZnodeRemoval:
    """Nodes that go. ``roots``: the nodes that ``tree`` was read from, None for the whole group. ``guarding``: the
    check before each transaction, by default that the group is inactive; with ``check_after`` also after the last one,
    and everything is restored if it refuses. ``permanent``: the transaction fails for a node that is ephemeral."""

    tree: GroupTree
    roots: Sequence[str] | None = None
    guarding: Guarding | None = None
    check_after: bool = False
    permanent: bool = False


@dataclass(frozen=True, slots=True)
class Source:
    """The group that offsets come from, with those in Kafka that are planned with; None where it is not in Kafka.
    ``is_deleted``: the group is to be deleted after, so that none may be added. ``check``: of a group in another
    cluster, raises ``RefusedError`` where it is active, or not as planned; called with True once the offsets are
    written, ``VerificationError``, also where it commits in the next seconds."""

    group: str
    in_kafka: Mapping[TopicPartition, KafkaOffset] | None
    is_deleted: bool = False
    check: Callable[[bool], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A change of ``group`` by ``command``. ``store``: where the group is, or is to be.

    ``exists``: the group was there. ``refusals``: why it is not applied. ``go_on``: the remedy where only a part is
    written. ``acls``: of znodes that are to be created. ``partitions``: the partitions with their logs, where targets
    are checked against them. ``removal``: nodes that go after the offsets are written. ``in_kafka``: the group that
    Kafka deletes. ``source``: where the offsets come from, if that must not change before they are written.
    ``is_shift``: a second run would move the offsets again.
    """

    command: str
    group: str
    store: Store
    rows: tuple[OffsetChange, ...]
    exists: bool = True
    warnings: tuple[Notice, ...] = ()
    refusals: tuple[RefusedError, ...] = ()
    go_on: str = GO_ON
    acls: Mapping[str, tuple[Acl, ...]] = field(default_factory=dict)
    partitions: Mapping[TopicPartition, GroupPartition] = field(default_factory=dict)
    removal: ZnodeRemoval | None = None
    in_kafka: KafkaGroup | None = None
    source: Source | None = None
    is_shift: bool = False

    def moving(self, store: OffsetStore) -> list[OffsetChange]:
        """The rows that are to be written to one store."""
        return [row for row in self.rows if row.store == store and row.moves]

    @property
    def changes(self) -> int:
        """How many offsets are to be written or deleted."""
        return sum(row.moves for row in self.rows)

    @property
    def is_removal(self) -> bool:
        """Whether nodes, or a group in Kafka, go, and no offsets are written."""
        return self.removal is not None or self.in_kafka is not None

    @property
    def changes_kafka(self) -> bool:
        """Whether anything changes in Kafka."""
        return self.in_kafka is not None or (not self.is_removal and bool(self.moving("kafka")))

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be done."""
        if self.removal is not None and self.removal.tree.nodes:
            return False
        return self.in_kafka is None and (self.is_removal or not self.changes)
