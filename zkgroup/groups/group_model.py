"""What a look at a group finds, as data. Made by ``snapshot``, judged by whatever is pure: lag, findings, plans.

Everything carries its own error instead of failing the look: a node that cannot be read, a broker that does not answer
and a member whose registration is broken each say so in their place. Times are milliseconds since 1970, offsets are the
*next* offset to read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal

from zkgroup.clients.kafka.responses import CoordinatorGroup, CoordinatorMember, Half, KafkaOffset, words_of
from zkgroup.errors import ZkgroupError
from zkgroup.protocol import znodes
from zkgroup.protocol.broker_znodes import BrokerFault
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.znodes import Registration, RegistrationDefect

if TYPE_CHECKING:
    from zkgroup.clients.kafka.log_offsets import Log

__all__ = [
    "STORE_NAMES",
    "Cluster",
    "CoordinatorGroup",
    "CoordinatorMember",
    "GroupMember",
    "GroupPartition",
    "GroupSnapshot",
    "GroupTopic",
    "KafkaOffset",
    "OffsetStore",
    "State",
    "Store",
    "StoredOffset",
]

Store = Literal["zookeeper", "kafka", "both"]
#: One of the two places where a group keeps its offsets.
OffsetStore = Literal["zookeeper", "kafka"]
#: What people call each place for offsets.
STORE_NAMES: Final[Mapping[str, str]] = {"zookeeper": "ZooKeeper", "kafka": "Kafka"}
State = Literal["active", "inactive", "broken"]


def stores_of(store: Store) -> tuple[OffsetStore, ...]:
    """The stores that are meant, in the order in which they are written."""
    return ("zookeeper", "kafka") if store == "both" else (store,)


def in_store(store: Store | None) -> str:
    """`` in ZooKeeper`` or `` in Kafka``, for messages; nothing where both are meant."""
    return "" if store is None or store == "both" else f" in {STORE_NAMES[store]}"


def lag_between(committed: int | None, log_end: int | None) -> int | None:
    """The lag that counts; None where it is unknown, as of an offset beyond the log's end, which no message has."""
    return None if committed is None or log_end is None or committed > log_end else log_end - committed


def is_lag_unknown(committed: int | None, log_start: int | None, log_end: int | None) -> bool:
    """Whether messages may wait that no number counts: none does in an empty log without an offset."""
    if lag_between(committed, log_end) is not None:
        return False
    return committed is not None or log_start is None or log_end is None or log_end > log_start


@dataclass(frozen=True, slots=True)
class Cluster:
    """Which cluster it is. ``id`` is Kafka's own, None before 0.10.1. ``made`` identifies the registry by the creation
    of its ``/consumers`` node (transaction id and milliseconds), None where there is none."""

    connect: str
    id: str | None = None
    made: tuple[int, int] | None = None

    @property
    def told(self) -> str:
        """Its id, as a message adds it to its address."""
        return "" if self.id is None else f" (id {self.id})"

    def differs(self, other: Cluster) -> bool | None:
        """Whether they are two: by their ids, else by their registries; None where neither tells."""
        if self.id is not None and other.id is not None:
            return self.id != other.id
        if self.made is not None and other.made is not None:
            return self.made != other.made
        return None

    def is_same(self, other: Cluster) -> bool:
        """Whether both are one; where nothing else tells, by their addresses."""
        differs = self.differs(other)
        return self.connect == other.connect if differs is None else not differs


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A registered member.

    ``streams``: topic → number of streams, a filter already applied to the topics that exist. ``registered_at``: what
    it wrote, else when its node was made. ``error``: why the registration cannot be read. ``defects``: what is wrong
    with one that can be, but not by every reader. ``data`` is the node as it is. ``created_at``: when ZooKeeper made
    the node, by its clock and not by the member's, and ``czxid`` its transaction. ``hidden``: the node is there and
    may not be read, which ``error`` tells: what it holds, others may well be able to read. ``foreign``: why members of
    the Scala consumer could not read it, or would read it otherwise, in a group that has none of them.
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
    hidden: bool = False
    foreign: str | None = None

    @property
    def streams_wanted(self) -> int | None:
        """How many streams it asks for: of static subscriptions those of all topics together, of a filter its number,
        as one stream then reads all topics. None where the registration cannot be read."""
        return None if self.registration is None else sum(self.registration.subscription.values())


@dataclass(frozen=True, slots=True)
class StoredOffset:
    """An offset znode. ``offset`` is None for a negative number, which counts as none, and where ``error`` says why it
    is unreadable. ``defect``: why members of the reference cannot read an ``offset`` that zkgroup can. ``hidden``: the
    node may not be read, or the list may not that it would be in: what is there is not known.

    ``data``: the node's bytes, where they are not just the number. ``version`` and ``mzxid`` identify what was read,
    for a write that must not overwrite anything newer.
    ``changed_at`` is the node's modification time: the last progress, as an unchanged value is not written again.
    """

    offset: int | None
    version: int
    mzxid: int
    created_at: int
    changed_at: int
    error: str | None = None
    defect: str | None = None
    hidden: bool = False
    data: bytes | None = None


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """A partition that concerns the group: owned, or of a topic that is subscribed to or has an offset in either store.

    ``owner`` is what the owner node says, ``member`` the registered member it means and ``stream`` which of its
    streams; ``since`` is when the claim was made and ``claimed`` its transaction; ``error`` is about the owner node.
    ``hidden``: that node, or the list that it would be in, may not be read: nobody knows who owns the partition.
    ``exists``: its topic's registration has it. ``leader``: the broker that leads it, None where there is none, or,
    with ``leader_unknown``, where nobody tells. ``log_start`` and ``log_end`` (the high watermark) are None where
    ``log_error`` says why, and where they were not asked for. ``kafka_unknown``: whether it has an offset in Kafka
    could not be found out, so that no ``kafka`` does not mean that there is none.
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
    hidden: bool = False
    leader_unknown: bool = False
    kafka_unknown: bool = False

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
        """High watermark less committed, negative kept; None without a commit or without a known end."""
        committed = self.committed(store)
        return None if committed is None or self.log_end is None else self.log_end - committed

    def known_lag(self, store: Store) -> int | None:
        """The lag that counts: None where it is unknown, as of an offset beyond the log's end."""
        return lag_between(self.committed(store), self.log_end)

    def is_lag_unknown(self, store: Store) -> bool:
        """Whether messages may wait that no number counts. What does not exist, and what is empty, has none."""
        return self.exists and is_lag_unknown(self.committed(store), self.log_start, self.log_end)


@dataclass(frozen=True, slots=True)
class NodeProblem:
    """What is wrong with a znode, or why it cannot be read. ``is_malformed``: ``why`` quotes what it holds."""

    path: str
    why: str
    is_malformed: bool = False

    def __str__(self) -> str:
        return f"znode {self.path}{':' if self.is_malformed else ''} {self.why}"


@dataclass(frozen=True, slots=True)
class GroupTopic:
    """A topic that concerns the group. ``created_at`` and ``czxid`` tell one that was deleted and made again apart from
    its predecessor; ``changed_at`` is when partitions came, or replicas moved. ``partitions`` in numeric order; empty
    where the topic does not exist or cannot be read. ``passed_over``: the node is damaged, which ``error`` tells, and
    members take the topic for one without partitions."""

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

    ``subscribed`` are the topics that its registered members want. ``problems`` are about nodes that belong to no
    single member or partition; ``warnings`` are about servers that could not be asked, and what is unknown therefore;
    ``unanswered`` has the reasons in them. ``unlisted``: why groups in Kafka may be missing from a list of all.
    ``ids_version`` is the version of the ``ids`` node and ``ids_czxid`` its identity, None where there is none.
    ``ids_changed`` is the transaction in which a member came or went last (0: not known).
    ``hidden`` are the nodes, of the group and of what it depends on, that may not be read: path → why. What they hold
    is not known, which is no fault of the group's.
    ``last_change`` is the newest time of any node of the group. ``coordinator`` is None where the group is not in
    Kafka, or was not asked for. ``known_topics`` are all topics that exist. ``kafka_members_unknown`` and
    ``kafka_offsets_unknown``: the coordinator was asked, and did not tell: there may be some. ``kafka_untold``: what it
    did not tell, and why, where it was this group's own coordinator. ``foreign``: nodes
    right below the group's that no consumer makes. ``faulty_brokers``: those whose registrations make members of the
    Scala consumer fail. ``offset_topics``: store → the topics that the group has offsets of there, selected or not.
    """

    group: str
    members: tuple[GroupMember, ...]
    partitions: tuple[GroupPartition, ...]
    subscribed: frozenset[str]
    problems: tuple[NodeProblem, ...] = ()
    topics: Mapping[str, GroupTopic] = field(default_factory=dict)
    known_topics: tuple[str, ...] = ()
    taken_at: int = 0
    took: float = 0.0
    in_zookeeper: bool = True
    ids_version: int | None = None
    ids_czxid: int | None = None
    last_change: int | None = None
    coordinator: CoordinatorGroup | None = None
    broker_ids: tuple[int, ...] = ()
    warnings: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()
    unanswered: frozenset[str] = frozenset()
    ids_changed: int = 0
    hidden: Mapping[str, str] = field(default_factory=dict)
    kafka_members_unknown: bool = False
    kafka_offsets_unknown: bool = False
    kafka_untold: Mapping[Half, str] = field(default_factory=dict)
    foreign: tuple[str, ...] = ()
    faulty_brokers: tuple[FaultyBroker, ...] = ()
    offset_topics: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def all_warnings(self) -> tuple[str, ...]:
        """``warnings``, ``kafka_untold`` in words, and ``unlisted``."""
        return (*self.warnings, *words_of(f"group {self.group}", self.kafka_untold), *self.unlisted)

    @property
    def reasons_told(self) -> frozenset[str]:
        """The reasons in ``all_warnings``, each of many partitions: a row with one of them says nothing new."""
        return self.unanswered.union(self.kafka_untold.values())

    @property
    def exists(self) -> bool:
        """Whether one of the stores that were read knows the group."""
        return self.in_zookeeper or self.coordinator is not None or bool(self.offset_topics.get("kafka"))

    @property
    def members_hidden(self) -> bool:
        """Whether nobody can tell who the members are."""
        return f"/consumers/{self.group}/ids" in self.hidden

    @property
    def owners_hidden(self) -> bool:
        """Whether of any partition that matters nobody can tell who owns it."""
        return any(partition.hidden for partition in self.partitions) or (
            f"/consumers/{self.group}/owners" in self.hidden
        )

    @property
    def topics_hidden(self) -> bool:
        """Whether nobody can tell which topics exist, and so what filters take."""
        return znodes.topics() in self.hidden

    @property
    def store(self) -> Store:
        """Where the group keeps itself: its offsets, or, without any, its members."""
        kafka = self.coordinator is not None or any(p.kafka and p.kafka.offset is not None for p in self.partitions)
        if not kafka:
            return "zookeeper"
        return "both" if self.in_zookeeper else "kafka"

    @property
    def state(self) -> State:
        """``active`` with members, ``inactive`` without; ``broken`` where a member or the group's nodes are, or where
        it cannot be told whether there are members: their list may not be read, and nobody owns anything."""
        if self.problems or any(member.error and not member.hidden for member in self.members):
            return "broken"
        alive = self.coordinator is not None and bool(self.coordinator.members)
        if self.members_hidden and not alive:
            return "active" if any(partition.session_id for partition in self.partitions) else "broken"
        return "active" if self.members or alive else "inactive"
