"""A group as data. ``snapshot`` reads it; lag, findings and plans are pure functions of it.

Every part carries its own error: a node that cannot be read, a broker that does not answer, a registration that is
broken. Times are milliseconds since 1970, offsets are the *next* offset to read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from zkgroup.clients.kafka.responses import CoordinatorGroup, CoordinatorMember, Half, KafkaOffset, MessageAge, words_of
from zkgroup.errors import Notice, ZkgroupError
from zkgroup.groups.group_choices import OffsetStore as OffsetStore
from zkgroup.groups.group_choices import State as State
from zkgroup.groups.group_choices import Store as Store
from zkgroup.protocol import znodes
from zkgroup.protocol.broker_znodes import BrokerFault
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Stat
from zkgroup.protocol.znodes import Registration, RegistrationDefect

if TYPE_CHECKING:
    from zkgroup.clients.kafka.log_offsets import Log

#: What people call each place for offsets.
STORE_NAMES: Final[Mapping[str, str]] = {"zookeeper": "ZooKeeper", "kafka": "Kafka"}


def stores_of(store: Store) -> tuple[OffsetStore, ...]:
    """The stores that are meant, in the order in which they are written."""
    return ("zookeeper", "kafka") if store == "both" else (store,)


def other_store(store: OffsetStore) -> OffsetStore:
    return "kafka" if store == "zookeeper" else "zookeeper"


def in_store(store: Store | None) -> str:
    """`` in ZooKeeper`` or `` in Kafka``, for messages; nothing where both are meant."""
    return "" if store is None or store == "both" else f" in {STORE_NAMES[store]}"


def lag_between(committed: int | None, log_end: int | None) -> int | None:
    """The lag; None where it is unknown, as of an offset beyond the log's end."""
    return None if committed is None or log_end is None or committed > log_end else log_end - committed


def is_lag_unknown(committed: int | None, log_start: int | None, log_end: int | None) -> bool:
    """Whether the lag is unknown; it is known to be none in an empty log without an offset."""
    if lag_between(committed, log_end) is not None:
        return False
    return committed is not None or log_start is None or log_end is None or log_end > log_start


@dataclass(frozen=True, slots=True)
class Cluster:
    """Which cluster it is. ``id`` is Kafka's own, None before 0.10.1. ``created`` identifies the registry by the
    creation of its ``/consumers`` node (transaction id and milliseconds), None where there is none."""

    connect: str
    id: str | None = None
    created: tuple[int, int] | None = None

    @property
    def description(self) -> str:
        """Its id, as a message adds it to its address."""
        return "" if self.id is None else f" (id {self.id})"

    def differs(self, other: Cluster) -> bool | None:
        """Whether they are two clusters: by their ids, else by their registries; None where neither is known."""
        if self.id is not None and other.id is not None:
            return self.id != other.id
        if self.created is not None and other.created is not None:
            return self.created != other.created
        return None

    def is_same(self, other: Cluster) -> bool:
        """Whether both are one cluster; by their addresses, where nothing else is known."""
        differs = self.differs(other)
        return self.connect == other.connect if differs is None else not differs


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A registered member.

    ``streams``: topic → number of streams, filters applied to the existing topics. ``registered_at``: the member's own
    timestamp, else the node's. ``error``: why the registration cannot be read. ``defects``: why some clients cannot
    read one that zkgroup can. ``data``: the node's bytes. ``created_at`` and ``czxid``: the creation of the node, by
    ZooKeeper's clock, and its transaction. ``is_unreadable``: the node exists and zkgroup may not read it. ``foreign``:
    why the Scala consumer could not read it, or would read it otherwise, in a group without any of its members.
    """

    member: str
    host: str | None
    session_id: int
    registered_at: int | None
    registration: Registration | None = None
    streams: Mapping[str, int] = field(default_factory=dict)
    error: str | None = None
    defects: tuple[RegistrationDefect, ...] = ()
    data: bytes = b""
    created_at: int | None = None
    czxid: int = 0
    is_unreadable: bool = False
    foreign: str | None = None

    @property
    def has_filter(self) -> bool:
        """Whether it is known to subscribe by a filter."""
        return self.registration is not None and self.registration.pattern != "static"


@dataclass(frozen=True, slots=True)
class StoredOffset:
    """An offset znode. ``offset`` is None for a negative number, which counts as none, and where ``error`` says why it
    is unreadable. ``defect``: why the Scala consumer cannot read an ``offset`` that zkgroup can. ``is_unreadable``: the
    node, or the list above it, may not be read.

    ``data``: the node's bytes, where they are not just the number. ``version`` and ``mzxid`` identify what was read,
    for a write that must not overwrite anything newer.
    ``changed_at``: the node's modification time, which is the last progress: an unchanged value is not written again.
    """

    offset: int | None
    version: int
    mzxid: int
    created_at: int
    changed_at: int
    error: str | None = None
    defect: str | None = None
    is_unreadable: bool = False
    data: bytes | None = None


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """A partition that concerns the group: owned, or of a topic that is subscribed to or has an offset in either store.

    ``owner``: the text of the owner node; ``member`` and ``stream``: the registered member that it names, and its
    stream; ``since`` and ``claimed``: the time of the claim and its transaction; ``error`` is about the owner node.
    ``is_unreadable``: that node, or the list above it, may not be read: the owner is unknown. ``exists``: its topic's
    registration has it. ``leader``: None where no broker leads it, or, with ``leader_unknown``, where that is unknown.
    ``log_start`` (the log start offset) and ``log_end`` (the high watermark) are None where ``log_error`` says why, and
    where they were not requested. ``kafka_unknown``: whether it has an offset in Kafka is unknown. ``next_age``: that
    of the next message to be read, of a partition with lag; None where it is unknown or was not requested.
    """

    topic: str
    partition: int
    owner: str | None = None
    member: str | None = None
    stream: int | None = None
    since: int | None = None
    session_id: int | None = None
    error: str | None = None
    exists: bool = True
    leader: int | None = None
    stored: StoredOffset | None = None
    kafka: KafkaOffset | None = None
    log_start: int | None = None
    log_end: int | None = None
    log_error: str | None = None
    claimed: int = 0
    is_unreadable: bool = False
    leader_unknown: bool = False
    kafka_unknown: bool = False
    next_age: MessageAge | None = None

    @property
    def name(self) -> str:
        """``topic-partition``."""
        return f"{self.topic}-{self.partition}"

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def with_log(self, log: Log | None) -> GroupPartition:
        """The same partition with a broker's answer about its log; as it is without one."""
        if log is None:
            return self
        if isinstance(log, ZkgroupError):
            return replace(self, log_start=None, log_end=None, log_error=log.reason)
        return replace(self, log_start=log.start, log_end=log.end, log_error=None)

    def committed(self, store: Store) -> int | None:
        """The committed offset in ``store``; for both the larger one, where a dual member would start."""
        found = []
        if store != "kafka" and self.stored is not None:
            found.append(self.stored.offset)
        if store != "zookeeper" and self.kafka is not None:
            found.append(self.kafka.offset)
        return max((offset for offset in found if offset is not None), default=None)

    def lag(self, store: Store) -> int | None:
        """Consumer lag: high watermark less committed, negative kept; None without a commit or a known end."""
        committed = self.committed(store)
        return None if committed is None or self.log_end is None else self.log_end - committed

    def known_lag(self, store: Store) -> int | None:
        """The lag; None where it is unknown, as of an offset beyond the log's end."""
        return lag_between(self.committed(store), self.log_end)

    def behind(self, store: Store) -> MessageAge | None:
        """The lag in time: the age of the next message to be read, 0 without lag; None where it is unknown."""
        lag = self.known_lag(store)
        return self.next_age if lag else None if lag is None else MessageAge(0.0)

    def why_outside(self, offset: int) -> str | None:
        """Where the offset lies outside the log, as text; None where it lies within, as far as the log is known."""
        if self.log_end is not None and offset > self.log_end:
            return f"beyond the log's end {self.log_end}"
        if self.log_start is not None and offset < self.log_start:
            return f"before the log's start {self.log_start}"
        return None

    def is_lag_unknown(self, store: Store) -> bool:
        """Whether the lag is unknown although the partition exists and may have messages."""
        return self.exists and is_lag_unknown(self.committed(store), self.log_start, self.log_end)


@dataclass(frozen=True, slots=True)
class NodeProblem:
    """What is wrong with a znode, or why it cannot be read. ``is_malformed``: ``why`` quotes its content.
    ``owned_topic``: of a node among the owners of this topic that no session owns, and no partition names."""

    path: str
    why: str
    is_malformed: bool = False
    owned_topic: str | None = None

    def __str__(self) -> str:
        return f"znode {self.path}{':' if self.is_malformed else ''} {self.why}"


@dataclass(frozen=True, slots=True)
class GroupTopic:
    """A topic that concerns the group. ``created_at`` and ``czxid`` change when it is recreated; ``changed_at``: when
    partitions were added or replicas moved. ``partitions``: in numeric order, empty where the topic does not exist or
    cannot be read. ``passed_over``: the node is damaged in a way that members take for a topic without partitions."""

    name: str
    exists: bool
    partitions: tuple[int, ...] = ()
    czxid: int = 0
    created_at: int | None = None
    to_be_deleted: bool = False
    error: NodeProblem | None = None
    changed_at: int | None = None
    passed_over: bool = False


@dataclass(frozen=True, slots=True)
class FaultyBroker:
    """A broker whose registration makes members of the Scala consumer fail. ``czxid``: its transaction."""

    path: str
    fault: BrokerFault
    czxid: int


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """A group at one time, ``taken_at``, between the first and the last answer (``took`` seconds).

    ``subscribed``: the topics of its registered members. ``problems``: nodes that belong to no single member or
    partition; ``warnings``: servers that did not answer, and what is unknown therefore; ``unanswered``: the reasons in
    them. ``unlisted``: why groups in Kafka may be missing from a list of all. ``ids_changed``: the transaction of the
    last change of members (0: unknown). ``members_changed``: the same, or a later one in which ``ids`` came or went, as
    in zkgroup's own transactions. ``offset_nodes``: the nodes above the offsets of each topic, of a group without
    members. ``unreadable``: the nodes of the group and the cluster that may not be read, path → why; that is no fault
    of the group. ``last_change``: the newest time of any node of the group.
    ``coordinator``: None where the group is not in Kafka, or was not requested. ``existing_topics``: all that exist.
    ``kafka_members_unknown`` and ``kafka_offsets_unknown``: the coordinator did not answer: there may be some.
    ``kafka_failures``: the halves that this group's coordinator did not answer, and why. ``foreign``: children of the
    group's node that no consumer creates. ``faulty_brokers``: those whose registrations make the Scala consumer fail.
    ``offset_topics``: store → the topics with offsets of the group, selected or not. ``age_warnings``: why ages of
    messages are unknown; that is no fault of the group.
    """

    group: str
    members: tuple[GroupMember, ...]
    partitions: tuple[GroupPartition, ...]
    subscribed: frozenset[str]
    problems: tuple[NodeProblem, ...] = ()
    topics: Mapping[str, GroupTopic] = field(default_factory=dict)
    existing_topics: tuple[str, ...] = ()
    taken_at: int = 0
    took: float = 0.0
    in_zookeeper: bool = True
    last_change: int | None = None
    coordinator: CoordinatorGroup | None = None
    broker_ids: tuple[int, ...] = ()
    warnings: tuple[Notice, ...] = ()
    unlisted: tuple[Notice, ...] = ()
    unanswered: frozenset[str] = frozenset()
    ids_changed: int = 0
    members_changed: int = 0
    offset_nodes: Mapping[str, Stat] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    kafka_members_unknown: bool = False
    kafka_offsets_unknown: bool = False
    kafka_failures: Mapping[Half, str] = field(default_factory=dict)
    foreign: tuple[str, ...] = ()
    faulty_brokers: tuple[FaultyBroker, ...] = ()
    offset_topics: Mapping[str, frozenset[str]] = field(default_factory=dict)
    age_warnings: tuple[Notice, ...] = ()

    @property
    def all_warnings(self) -> tuple[Notice, ...]:
        """``warnings``, ``kafka_failures`` in words, and ``unlisted``."""
        return (*self.warnings, *map(Notice, words_of(f"group {self.group}", self.kafka_failures)), *self.unlisted)

    @property
    def reported_reasons(self) -> frozenset[str]:
        """The reasons in ``all_warnings``, each of many partitions: a row with one of them says nothing new."""
        return self.unanswered.union(self.kafka_failures.values())

    @property
    def kafka_members(self) -> tuple[CoordinatorMember, ...]:
        """Its members in Kafka."""
        return self.coordinator.members if self.coordinator is not None else ()

    @property
    def kafka_owners(self) -> dict[TopicPartition, str]:
        """Which member in Kafka has which partition."""
        return {partition: member.member for member in self.kafka_members for partition in member.assigned}

    @property
    def kafka_phase(self) -> str | None:
        """Kafka's word for a group that rebalances there; None where it is at rest, or has no members there."""
        state = self.coordinator.state if self.coordinator is not None and self.coordinator.members else "Stable"
        return None if state.lower() in ("stable", "unknown") else state

    @property
    def exists(self) -> bool:
        """Whether one of the stores that were read knows the group."""
        return self.in_zookeeper or self.coordinator is not None or bool(self.offset_topics.get("kafka"))

    @property
    def has_hidden_members(self) -> bool:
        """Whether the list of members may not be read."""
        return f"/consumers/{self.group}/ids" in self.unreadable

    @property
    def has_hidden_owners(self) -> bool:
        """Whether the owner of some partition may not be read."""
        return any(partition.is_unreadable for partition in self.partitions) or (
            f"/consumers/{self.group}/owners" in self.unreadable
        )

    @property
    def has_hidden_topics(self) -> bool:
        """Whether the list of topics may not be read: the topics of filters are unknown then."""
        return znodes.topics() in self.unreadable

    @property
    def store(self) -> Store:
        """The store of its offsets, or, without any, of its members."""
        kafka = self.coordinator is not None or any(p.committed("kafka") is not None for p in self.partitions)
        if not kafka:  # Kafka lists it, and its coordinator is silent
            return "kafka" if self.kafka_failures and not self.in_zookeeper else "zookeeper"
        return "both" if self.in_zookeeper else "kafka"

    @property
    def state(self) -> State:
        """``active`` with members, ``inactive`` without; ``broken`` where a member or the group's nodes are, or where
        the list of members may not be read and no partition has an owner."""
        if self.problems or any(member.error and not member.is_unreadable for member in self.members):
            return "broken"
        alive = bool(self.kafka_members)
        if self.has_hidden_members and not alive:
            return "active" if any(partition.session_id for partition in self.partitions) else "broken"
        return "active" if self.members or alive else "inactive"
