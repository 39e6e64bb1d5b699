"""Joins the nodes of a group, its topics, and its members and offsets in Kafka; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from zkgroup.clients.kafka.responses import KafkaGroup, KafkaOffset
from zkgroup.errors import ZkgroupError
from zkgroup.groups.group_model import GroupMember, GroupPartition, GroupSnapshot, NodeProblem, StoredOffset
from zkgroup.groups.snapshot.group_znodes import stored_offset, unreadable_offset
from zkgroup.groups.snapshot.znode_reader import (
    ClusterState,
    NodeCache,
    assigned,
    child_paths,
    concerned_topics,
    foreign_children,
)
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition, identify_owner, parse_partition
from zkgroup.protocol.operations import Node
from zkgroup.protocol.znodes import Registration

if TYPE_CHECKING:
    from zkgroup.clients.kafka.log_offsets import Log


class Claim(NamedTuple):
    """An owner node, with the fields of ``GroupPartition``."""

    owner: str | None = None
    member: str | None = None
    stream: int | None = None
    since: int | None = None
    session_id: int | None = None
    error: str | None = None
    claimed: int = 0
    is_unreadable: bool = False


_NO_CLAIM: Final = Claim()
_UNREADABLE_CLAIM: Final = Claim(is_unreadable=True)


class RawPartition(NamedTuple):
    """A partition in a group's own nodes and at its coordinator."""

    claim: Claim
    stored: StoredOffset | None
    kafka: KafkaOffset | None
    exists: bool


@dataclass(frozen=True, slots=True)
class RawGroup:
    """The nodes of one group and its coordinator's answer. ``unreadable``: the nodes that may not be read."""

    group: str
    members: tuple[GroupMember, ...]
    kafka_group: KafkaGroup
    partitions: Mapping[TopicPartition, RawPartition]
    problems: tuple[NodeProblem, ...]
    last_change: int | None
    unreadable: Mapping[str, str] = field(default_factory=dict)


def read_topics(stored: Iterable[TopicPartition], kafka_group: KafkaGroup) -> set[str]:
    """The topics with offsets of the group, in either store."""
    return {key.topic for key in stored} | {key.topic for key in kafka_group.offsets}


def build_raw_group(
    group: str, nodes: NodeCache, members: tuple[GroupMember, ...], kafka_group: KafkaGroup, cluster: ClusterState
) -> RawGroup:
    """Join the nodes and the coordinator's answer. ``cluster`` must have all topics of the group."""
    problems: list[NodeProblem] = []
    paths = nodes.paths(group)
    claims = _claims(group, nodes, {member.member for member in members}, problems)
    members = tuple(_with_owned_topics(member, claims) for member in members)
    stored = _stored(group, nodes, problems)
    unreadable = _unreadable_nodes(group, nodes)
    selection = nodes.selection
    keys: set[TopicPartition] = {*claims, *stored, *kafka_group.offsets}
    if selection is None:
        keys.update(assigned(kafka_group))
    elif selection.topics is not None:
        keys.update(TopicPartition(topic, n) for topic in selection.topics for n in cluster.topics[topic].partitions)
    # A topic is read as a whole: partitions that have come since the group's last commit are behind, too.
    for topic in {topic for member in members for topic in member.streams} | read_topics(stored, kafka_group):
        if topic in cluster.topics:
            keys.update(TopicPartition(topic, number) for number in cluster.topics[topic].partitions)
    if selection is not None:
        keys = {key for key in keys if selection.has(key)}
    # One whose registration cannot be read may have any partition.
    existing: dict[str, frozenset[int] | None] = {}
    for topic in {key.topic for key in keys}:
        found = cluster.topics[topic]
        unknown = found.exists and found.error is not None and not found.passed_over
        existing[topic] = None if unknown else frozenset(found.partitions)
    partitions = {}
    for key in keys:
        there = existing[key.topic]
        exists = there is None or key.partition in there
        unclaimed = _UNREADABLE_CLAIM if _is_below_unreadable(paths.owners, key.topic, unreadable) else _NO_CLAIM
        offset = stored.get(key)
        if offset is None and (list_ := _is_below_unreadable(paths.offsets, key.topic, unreadable)):
            offset = unreadable_offset(f"znode {list_} cannot be read: {unreadable[list_]}")
        partitions[key] = RawPartition(claims.get(key, unclaimed), offset, kafka_group.offsets.get(key), exists)
    times = [node.stat.mtime for path in paths[:2] if (node := nodes.node(path)) is not None]
    times += [node.stat.mtime for path in child_paths(paths.ids, nodes) if (node := nodes.node(path)) is not None]
    times += [claim.since for claim in claims.values() if claim.since is not None]
    times += [offset.changed_at for offset in stored.values()]
    return RawGroup(group, members, kafka_group, partitions, tuple(problems), max(times, default=None), unreadable)


def _unreadable_nodes(group: str, nodes: NodeCache) -> dict[str, str]:
    """The group's nodes that may not be read, with the reason."""
    if nodes.is_complete:
        return {}
    paths = nodes.paths(group)
    below_lists = [path for parent in paths[2:] for path in child_paths(parent, nodes)]
    leaves = [path for parent in [paths.ids, *below_lists] for path in child_paths(parent, nodes)]
    return {path: why for path in [*paths, *below_lists, *leaves] if (why := nodes.why_unreadable(path)) is not None}


def _is_below_unreadable(parent: str, topic: str, unreadable: Mapping[str, str]) -> str | None:
    """The one of the two lists above a partition's node that may not be read; None where both may."""
    if not unreadable:
        return None
    return next((path for path in (parent, f"{parent}/{topic}") if path in unreadable), None)


def build_snapshot(
    raw: RawGroup, nodes: NodeCache, cluster: ClusterState, taken_at: int, logs: Mapping[TopicPartition, Log] | None
) -> GroupSnapshot:
    """The snapshot of one group, at this time (milliseconds since 1970). ``logs``: None where they were not read."""
    group, members, kafka_group = raw.group, raw.members, raw.kafka_group
    topics = {name: cluster.topics[name] for name in sorted(concerned_topics(group, nodes, members, kafka_group))}
    subscribed = frozenset(topic for member in members for topic in member.streams)
    paths = nodes.paths(group)
    ids, above = nodes.node(paths.ids), nodes.node(paths.group)
    offset_nodes = {topic: nodes.node(path) for topic, path in nodes.children(paths.offsets)}
    stopping = [topics[name] for name in sorted(subscribed) if not topics[name].passed_over]
    topic_problems = [t.error for t in stopping if t.exists and f"{znodes.topics()}/{t.name}" not in cluster.unreadable]
    unreadable = dict(raw.unreadable)
    unreadable |= {path: why for path, why in cluster.unreadable.items() if _concerns(path, topics)}
    return GroupSnapshot(
        group,
        members,
        tuple(
            _partition(key, raw.partitions[key], cluster, logs, kafka_unknown=not kafka_group.offsets_known)
            for key in sorted(raw.partitions)
        ),
        subscribed,
        tuple(problem for problem in [*topic_problems, *raw.problems] if problem),
        topics=topics,
        existing_topics=cluster.existing_topics,
        taken_at=taken_at,
        in_zookeeper=nodes.exists(paths.group),
        last_change=raw.last_change,
        coordinator=kafka_group.group,
        broker_ids=cluster.broker_ids,
        kafka_failures=kafka_group.failures,
        ids_changed=ids.stat.pzxid if ids is not None else 0,
        members_changed=max(node.stat.pzxid if node is not None else 0 for node in (ids, above)),
        offset_nodes={topic: node.stat for topic, node in offset_nodes.items() if node is not None},
        unreadable=unreadable,
        kafka_members_unknown=not kafka_group.members_known,
        kafka_offsets_unknown=not kafka_group.offsets_known,
        foreign=foreign_children(group, nodes) if paths.offsets else (),
        faulty_brokers=cluster.faulty_brokers,
        offset_topics={
            "zookeeper": frozenset(topic for topic, path in nodes.children(paths.offsets) if nodes.names(path)),
            "kafka": frozenset(key.topic for key in kafka_group.offsets),
        },
    )


def _concerns(path: str, topics: Mapping[str, object]) -> bool:
    """Whether a node of the cluster concerns a group: lists concern all, a topic those that have it."""
    parent, _, name = path.rpartition("/")
    return parent != znodes.topics() or name in topics


def _partition(
    key: TopicPartition,
    raw: RawPartition,
    cluster: ClusterState,
    logs: Mapping[TopicPartition, Log] | None,
    *,
    kafka_unknown: bool,
) -> GroupPartition:
    log = None if logs is None else logs.get(key)
    leader = None if log is None or isinstance(log, ZkgroupError) else log.leader
    partition = GroupPartition(
        key.topic,
        key.partition,
        **raw.claim._asdict(),
        exists=raw.exists,
        leader=cluster.leaders.get(key, leader),
        stored=raw.stored,
        kafka=raw.kafka,
        log_error=None if logs is None else why_log_unread(key, raw, cluster),
        leader_unknown=key not in cluster.leaders and leader is None and key in cluster.unknown_leaders,
        kafka_unknown=kafka_unknown or (raw.kafka is not None and raw.kafka.error is not None),
    )
    return partition if partition.log_error is not None else partition.with_log(log)


def why_log_unread(key: TopicPartition, raw: RawPartition, cluster: ClusterState) -> str | None:
    """Why no broker has the partition's log; None where one may."""
    if not cluster.topics[key.topic].exists:
        return f"topic {key.topic} does not exist"
    if cluster.topics[key.topic].passed_over:
        return str(cluster.topics[key.topic].error)
    if not raw.exists:
        return f"topic {key.topic} has no partition {key.partition}"
    if cluster.leaders.get(key, 0) is None:
        return "no broker leads it"
    return None


def _claims(
    group: str, nodes: NodeCache, members: set[str], problems: list[NodeProblem]
) -> dict[TopicPartition, Claim]:
    found: dict[TopicPartition, Claim] = {}
    for topic, parent in nodes.children(nodes.paths(group).owners):
        # Plain numbers first: the Scala consumer reads no others.
        for name, path in sorted(nodes.children(parent), key=lambda entry: (not entry[0].isdecimal(), entry[0])):
            broker, dash, plain = name.rpartition("-")  # pykafka and Kafka 0.7 put the broker's id before: ``0-3``
            number = parse_partition(plain) if not dash or (broker.isascii() and broker.isdecimal()) else None
            node = nodes.node(path)
            if number is None:
                lasting = topic if node is not None and not node.stat.owner else None
                problems.append(NodeProblem(path, "is not named by a partition", owned_topic=lasting))
                continue
            key = TopicPartition(topic, number)
            if key in found:
                problems.append(NodeProblem(path, f"is a second owner node of {key}"))
                continue
            if node is not None:
                found[key] = _claim(node, members)
            elif why := nodes.why_unreadable(path):
                found[key] = Claim(error=f"the znode cannot be read: {why}", is_unreadable=True)
    return found


def _claim(node: Node, members: set[str]) -> Claim:
    owner = node.data.decode("utf-8", "backslashreplace")
    identity = identify_owner(owner, members)
    return Claim(
        owner or None,
        identity and identity.consumer_id,
        identity and identity.index,
        node.stat.ctime,
        node.stat.owner,
        None if owner else "the owner node is empty",
        node.stat.czxid,
    )


def _with_owned_topics(member: GroupMember, claims: Mapping[TopicPartition, Claim]) -> GroupMember:
    """A member of another client whose registration does not name its topics: its topics are those that it owns."""
    if member.foreign is None or member.registration is not None:
        return member
    streams: dict[str, int] = {}
    for key, claim in claims.items():
        if claim.member == member.member:
            streams[key.topic] = max(streams.get(key.topic, 1), (claim.stream or 0) + 1)
    registration = Registration("static", streams, version=None) if streams else None
    return replace(member, registration=registration, streams=streams)


def _stored(group: str, nodes: NodeCache, problems: list[NodeProblem]) -> dict[TopicPartition, StoredOffset]:
    found: dict[TopicPartition, StoredOffset] = {}
    for topic, parent in nodes.children(nodes.paths(group).offsets):
        for name, path in nodes.children(parent):
            number = parse_partition(name)
            if number is None:
                problems.append(NodeProblem(path, "is not named by a partition"))
                continue
            key = TopicPartition(topic, number)
            node = nodes.node(path)
            if node is not None:
                found[key] = stored_offset(path, node)
            elif why := nodes.why_unreadable(path):
                found[key] = unreadable_offset(f"the znode cannot be read: {why}")
    return found
