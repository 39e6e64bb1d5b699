"""Groups and topics as rows of tables; pure. The rows' fields are the columns of the commands.

A committed offset is that of the store that was requested. For both stores it is the larger one, where a member that
commits to both would start; the row also has each of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from zkgroup.clients.kafka.responses import MessageAge
from zkgroup.errors import ZkgroupError
from zkgroup.groups.group_model import GroupPartition, GroupSnapshot, State, Store
from zkgroup.protocol.names import TopicPartition

if TYPE_CHECKING:
    from zkgroup.clients.kafka.log_offsets import Log
    from zkgroup.clients.kafka.topic_metadata import PartitionReplicas


class _InTime:
    """A row with ``behind``, a lag in time, which is a lower bound where it is not known wholly."""

    __slots__ = ()
    behind: MessageAge | None

    @property
    def lag_seconds(self) -> float | None:
        return None if self.behind is None or self.behind.is_at_least else self.behind.seconds

    @property
    def lag_seconds_at_least(self) -> float | None:
        return None if self.behind is None else self.behind.seconds


@dataclass(frozen=True, slots=True)
class GroupRow(_InTime):
    """A group in one row.

    ``lag``: the sum over all partitions, None where it is not known of each of them. ``lag_at_least``: the sum over
    those where it is known, None where it is for none; ``lag_unknown``: how many the others are, with an offset or a
    log's end that is not known, an offset beyond the log's end, or messages and nothing committed.

    ``partitions`` are all that concern the group: of topics that it is subscribed to or has offsets of, or owned.
    ``behind``: the lag in time of the partition that is furthest behind; at least that, where some are unknown.
    ``changed_at``: the newest time of any node of the group.
    """

    group: str
    store: Store
    state: State
    members: int
    topics: int
    partitions: int
    lag: int | None
    lag_at_least: int | None
    lag_unknown: int
    behind: MessageAge | None = None
    changed_at: int | None = None


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A member. ``subscription``: what it registered, topics or the expression of a filter, each with its number of
    streams; for a member in Kafka the topics of its share. ``streams``: how many it has in all, of all topics together
    (a stream of a filter reads all topics); ``owned``: partitions.
    """

    member: str
    host: str | None
    registered_at: int | None
    subscription: dict[str, int] | list[str] | None
    pattern: str | None
    streams: int | None
    owned: int
    session_id: int | None


@dataclass(frozen=True, slots=True)
class PartitionRow(_InTime):
    """A partition. ``committed_at`` is when the offset node was written; of offsets in Kafka it is not known.
    ``behind``: the lag in time, None where it is unknown."""

    topic: str
    partition: int
    owner: str | None
    member: str | None
    committed: int | None
    committed_at: int | None
    log_start: int | None
    log_end: int | None
    lag: int | None
    leader: int | None
    committed_zookeeper: int | None
    committed_kafka: int | None
    behind: MessageAge | None = None


@dataclass(frozen=True, slots=True)
class OwnerRow:
    """The owner of a partition, and its ``store``. ``registered`` is None where that is not known: the
    owner, or the list of members, may not be read."""

    topic: str
    partition: int
    owner: str | None
    member: str | None
    host: str | None
    registered: bool | None
    since: int | None
    store: Store


def group_row(snapshot: GroupSnapshot, store: Store | None = None) -> GroupRow:
    """A group in one row. ``store``: whose offsets count, by default those of the group's own."""
    store = store or snapshot.store
    lags = [lag for partition in snapshot.partitions if (lag := partition.known_lag(store)) is not None]
    unknown = sum(partition.is_lag_unknown(store) for partition in snapshot.partitions)
    known = sum(lags) if lags or unknown < len(snapshot.partitions) else None
    return GroupRow(
        snapshot.group,
        snapshot.store,
        snapshot.state,
        len(snapshot.members) + len(snapshot.kafka_members),
        len({partition.topic for partition in snapshot.partitions} | snapshot.subscribed),
        len(snapshot.partitions),
        None if unknown else known,
        known,
        unknown,
        _furthest_behind(snapshot, store),
        snapshot.last_change,
    )


def _furthest_behind(snapshot: GroupSnapshot, store: Store) -> MessageAge | None:
    concerned = [p for p in snapshot.partitions if p.known_lag(store) is not None or p.is_lag_unknown(store)]
    known = [age for p in concerned if (age := p.behind(store)) is not None]
    if not concerned and snapshot.partitions:
        return MessageAge(0.0)
    if not known:
        return None
    seconds = max(age.seconds for age in known)
    return MessageAge(seconds, is_at_least=len(known) < len(concerned) or any(age.is_at_least for age in known))


def member_rows(snapshot: GroupSnapshot) -> list[MemberRow]:
    """The members in ZooKeeper, then those in Kafka."""
    owned = Counter(partition.member for partition in snapshot.partitions)
    rows = []
    for one in snapshot.members:
        subscription = dict(one.registration.subscription) if one.registration is not None else None
        rows.append(
            MemberRow(
                one.member,
                one.host,
                one.registered_at,
                subscription,
                one.registration.pattern if one.registration is not None else None,
                sum(subscription.values()) if subscription is not None else None,
                owned[one.member],
                one.session_id or None,
            )
        )
    for member in snapshot.kafka_members:
        topics = sorted({partition.topic for partition in member.assigned})
        rows.append(MemberRow(member.member, member.host or None, None, topics, None, None, len(member.assigned), None))
    return rows


def partition_rows(snapshot: GroupSnapshot, store: Store) -> list[PartitionRow]:
    """The partitions that the group owns, and all of topics that it reads or has offsets of in ``store``, in order."""
    in_kafka = snapshot.kafka_owners
    known = {partition.topic for partition in snapshot.partitions if _is_kept(partition, store)}
    rows = []
    for partition in snapshot.partitions:
        wanted = partition.topic in snapshot.subscribed or partition.topic in known
        if not (
            (partition.exists and wanted)
            or (partition.owner is not None or partition.error is not None or partition.key in in_kafka)
            or _is_kept(partition, store)
        ):
            continue
        here = partition.committed("zookeeper") if store != "kafka" else None
        there = partition.committed("kafka") if store != "zookeeper" else None
        member = in_kafka.get(partition.key) if partition.owner is None else None
        committed = partition.committed(store)
        written = partition.stored if here is not None and here == committed else None
        rows.append(
            PartitionRow(
                partition.topic,
                partition.partition,
                partition.owner if member is None else member,
                partition.member if member is None else member,
                committed,
                written.changed_at if written is not None else None,
                partition.log_start,
                partition.log_end,
                partition.lag(store),
                partition.leader,
                here,
                there,
                partition.behind(store),
            )
        )
    return rows


def _is_kept(partition: GroupPartition, store: Store) -> bool:
    """Whether the partition has an offset in ``store``, readable or not."""
    return (store != "kafka" and partition.stored is not None) or (store != "zookeeper" and partition.kafka is not None)


def owner_rows(snapshot: GroupSnapshot) -> list[OwnerRow]:
    """Every partition of every subscribed topic, and every other one that has an owner.

    Where a group has members in ZooKeeper and in Kafka, a partition may have two rows.
    """
    hosts = {member.member: member.host for member in snapshot.members}
    in_kafka = snapshot.kafka_owners
    kafka_hosts = {member.member: member.host for member in snapshot.kafka_members}
    rows = []
    for partition in snapshot.partitions:
        holder = in_kafka.get(partition.key)
        has_owner_node = partition.owner is not None or partition.error is not None
        wanted = partition.exists and partition.topic in snapshot.subscribed
        if has_owner_node or (wanted and (holder is None or snapshot.members)):
            unknown = partition.is_unreadable or (snapshot.has_hidden_members and partition.member is None)
            rows.append(
                OwnerRow(
                    partition.topic,
                    partition.partition,
                    partition.owner,
                    partition.member,
                    hosts.get(partition.member or ""),
                    None if unknown else partition.member is not None,
                    partition.since,
                    "zookeeper",
                )
            )
        if holder is not None:
            host = kafka_hosts.get(holder) or None
            rows.append(OwnerRow(partition.topic, partition.partition, holder, holder, host, True, None, "kafka"))
    return rows


def only_topics(snapshot: GroupSnapshot, topics: Iterable[str]) -> GroupSnapshot:
    """The same, but for partitions of other topics."""
    kept = frozenset(topics)
    return replace(snapshot, partitions=tuple(p for p in snapshot.partitions if p.topic in kept))


@dataclass(frozen=True, slots=True)
class TopicPartitionRow:
    """A partition. ``messages``: the number of offsets in its log, which compaction and transactions leave gaps in.
    The log's offsets are None where its leader did not answer."""

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    log_start: int | None
    log_end: int | None
    messages: int | None


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic. ``replicas``: of the partition that has most. ``leaderless`` and ``out_of_sync``: partitions without a
    leader, and with a replica that is not in sync. ``messages`` is None where the log of a partition is unknown.
    ``retention_ms`` and ``retention_bytes`` (of a partition): None where they are unknown, −1 without a limit.
    ``groups``: those that subscribe to it, own some of it, or have an offset in it."""

    topic: str
    partitions: int
    replicas: int
    leaderless: int
    out_of_sync: int
    messages: int | None
    retention_ms: int | None
    retention_bytes: int | None
    cleanup_policy: str | None
    groups: tuple[str, ...]


def topic_partition_rows(
    topic: str, partitions: Mapping[int, PartitionReplicas], logs: Mapping[TopicPartition, Log]
) -> list[TopicPartitionRow]:
    """The partitions of a topic, in order."""
    rows = []
    for number, one in partitions.items():
        log = logs.get(TopicPartition(topic, number))
        start, end = (None, None) if log is None or isinstance(log, ZkgroupError) else (log.start, log.end)
        messages = None if start is None or end is None else end - start
        rows.append(TopicPartitionRow(number, one.leader, one.replicas, one.in_sync, start, end, messages))
    return rows


def topic_row(
    topic: str, partitions: Iterable[TopicPartitionRow], configs: Mapping[str, str], groups: Iterable[str]
) -> TopicRow:
    """A topic in one row."""
    rows = list(partitions)
    counts = [row.messages for row in rows if row.messages is not None]
    return TopicRow(
        topic,
        len(rows),
        max((len(row.replicas) for row in rows), default=0),
        sum(row.leader is None for row in rows),
        sum(len(row.in_sync) < len(row.replicas) for row in rows),
        sum(counts) if len(counts) == len(rows) else None,
        _number(configs.get("retention.ms")),
        _number(configs.get("retention.bytes")),
        configs.get("cleanup.policy"),
        tuple(groups),
    )


def groups_by_topic(snapshots: Iterable[GroupSnapshot]) -> dict[str, list[GroupSnapshot]]:
    """The groups that read each topic, in the order given."""
    found: dict[str, list[GroupSnapshot]] = {}
    for snapshot in snapshots:
        for topic in sorted(snapshot.subscribed | {partition.topic for partition in snapshot.partitions}):
            found.setdefault(topic, []).append(snapshot)
    return found


def _number(text: str | None) -> int | None:
    """Brokers write the largest number for what has no limit."""
    if text is None or not text.lstrip("-").isdecimal():
        return None
    return -1 if int(text) >= 2**63 - 1 else int(text)
