"""Builds snapshots: joins the nodes of a group, its topics, its members and offsets in Kafka, and logs; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from zkgroup.clients.kafka.responses import KafkaGroup
from zkgroup.errors import ZkgroupError
from zkgroup.groups.group_model import GroupMember, GroupPartition, GroupSnapshot, NodeProblem, StoredOffset
from zkgroup.groups.partition_scope import Selection
from zkgroup.groups.snapshot.group_znodes import stored_offset, unreadable_offset
from zkgroup.groups.snapshot.znode_reader import (
    CLUSTER_LISTS,
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


def build_snapshot(
    group: str,
    nodes: NodeCache,
    members: tuple[GroupMember, ...],
    kafka_group: KafkaGroup,
    cluster: ClusterState,
    taken_at: int,
) -> GroupSnapshot:
    """The snapshot of one group, at this time (milliseconds since 1970), without logs and leaders: see ``with_logs``.
    ``cluster`` must have all topics of the group."""
    problems: list[NodeProblem] = []
    paths = nodes.paths(group)
    claims = _claims(group, nodes, {member.member for member in members}, problems)
    members = tuple(_with_owned_topics(member, claims) for member in members)
    subscribed = frozenset(topic for member in members for topic in member.streams)
    stored = _stored(group, nodes, problems)
    own_unreadable = nodes.unreadable(paths.group) if paths.group else {}
    partitions = []
    existing: dict[str, frozenset[int] | None] = {}  # None: a topic whose registration cannot be read may have any
    read = {key.topic for key in (*stored, *kafka_group.offsets)} | subscribed
    for key in sorted(_partition_keys({*claims, *stored}, read, nodes.selection, kafka_group, cluster)):
        if key.topic not in existing:
            found = cluster.topics[key.topic]
            unknown = found.exists and found.error is not None and not found.passed_over
            existing[key.topic] = None if unknown else frozenset(found.partitions)
        there = existing[key.topic]
        claim = claims.get(key) or GroupPartition(
            *key, is_unreadable=_is_below_unreadable(paths.owners, key.topic, own_unreadable) is not None
        )
        offset, kafka = stored.get(key), kafka_group.offsets.get(key)
        if offset is None and (list_ := _is_below_unreadable(paths.offsets, key.topic, own_unreadable)):
            offset = unreadable_offset(f"znode {list_} cannot be read: {own_unreadable[list_]}")
        partition = replace(
            claim,
            exists=there is None or key.partition in there,
            stored=offset,
            kafka=kafka,
            kafka_unknown=not kafka_group.offsets_known or (kafka is not None and kafka.error is not None),
        )
        partitions.append(partition)
    topics = {name: cluster.topics[name] for name in sorted(concerned_topics(group, nodes, members, kafka_group))}
    ids, above = nodes.node(paths.ids), nodes.node(paths.group)
    own = [ids, above, *(nodes.node(path) for path in child_paths(paths.ids, nodes))]
    times = [node.stat.mtime for node in own if node is not None]
    times += [claim.since for claim in claims.values() if claim.since is not None]
    times += [offset.changed_at for offset in stored.values()]
    offset_nodes = {topic: nodes.node(path) for topic, path in nodes.children(paths.offsets)}
    stopping = [topics[name] for name in sorted(subscribed) if not topics[name].passed_over]
    topic_problems = [t.error for t in stopping if t.exists and f"{znodes.topics()}/{t.name}" not in cluster.unreadable]
    return GroupSnapshot(
        group,
        members,
        tuple(partitions),
        subscribed,
        tuple(problem for problem in [*topic_problems, *problems] if problem),
        topics=topics,
        existing_topics=cluster.existing_topics,
        taken_at=taken_at,
        in_zookeeper=nodes.exists(paths.group),
        last_change=max(times, default=None),
        coordinator=kafka_group.group,
        broker_ids=cluster.broker_ids,
        kafka_failures=kafka_group.failures,
        ids_changed=ids.stat.pzxid if ids is not None else 0,
        members_changed=max(node.stat.pzxid if node is not None else 0 for node in (ids, above)),
        offset_nodes={topic: node.stat for topic, node in offset_nodes.items() if node is not None},
        unreadable=own_unreadable
        | {
            path: why
            for path, why in cluster.unreadable.items()
            if path in CLUSTER_LISTS or path.rpartition("/")[2] in topics
        },
        kafka_members_unknown=not kafka_group.members_known,
        kafka_offsets_unknown=not kafka_group.offsets_known,
        foreign=foreign_children(group, nodes) if paths.offsets else (),
        faulty_brokers=cluster.faulty_brokers,
        offset_topics={
            "zookeeper": frozenset(topic for topic, path in nodes.children(paths.offsets) if nodes.names(path)),
            "kafka": frozenset(key.topic for key in kafka_group.offsets),
        },
    )


def _partition_keys(
    own: set[TopicPartition],
    read: Iterable[str],
    selection: Selection | None,
    kafka_group: KafkaGroup,
    cluster: ClusterState,
) -> set[TopicPartition]:
    """The partitions that concern a group: ``own``, with nodes, those in Kafka, and all of topics that are ``read``:
    partitions that have come since the group's last commit are behind, too."""
    keys, topics = {*own, *kafka_group.offsets}, {*read}
    if selection is None:
        keys.update(assigned(kafka_group))
    elif selection.topics is not None:
        topics.update(selection.topics)
    for topic in topics & cluster.topics.keys():
        keys.update(TopicPartition(topic, number) for number in cluster.topics[topic].partitions)
    return keys if selection is None else {key for key in keys if selection.has(key)}


def _is_below_unreadable(parent: str, topic: str, unreadable: Mapping[str, str]) -> str | None:
    """The one of the two lists above a partition's node that may not be read; None where both may."""
    if not unreadable:
        return None
    return next((path for path in (parent, f"{parent}/{topic}") if path in unreadable), None)


def with_logs(
    snapshot: GroupSnapshot, cluster: ClusterState, logs: Mapping[TopicPartition, Log] | None
) -> GroupSnapshot:
    """The snapshot with leaders, and with the brokers' answers about logs; None where those were not read."""
    return replace(snapshot, partitions=tuple(_with_log(p, cluster, logs) for p in snapshot.partitions))


def _with_log(p: GroupPartition, cluster: ClusterState, logs: Mapping[TopicPartition, Log] | None) -> GroupPartition:
    answer = None if logs is None else logs.get(p.key)
    leader = None if answer is None or isinstance(answer, ZkgroupError) else answer.leader
    unknown = p.key not in cluster.leaders and leader is None and p.key in cluster.unknown_leaders
    p = replace(p, leader=cluster.leaders.get(p.key, leader), leader_unknown=unknown)
    if logs is not None and (why := why_log_unread(p, cluster)) is not None:
        return replace(p, log_error=why)
    return p.with_log(answer)


def why_log_unread(p: GroupPartition, cluster: ClusterState) -> str | None:
    """Why no broker has the partition's log; None where one may."""
    topic = cluster.topics[p.topic]
    if not topic.exists:
        return f"topic {p.topic} does not exist"
    if topic.passed_over:
        return str(topic.error)
    if not p.exists:
        return f"topic {p.topic} has no partition {p.partition}"
    return "no broker leads it" if cluster.leaders.get(p.key, 0) is None else None


def _claims(
    group: str, nodes: NodeCache, members: set[str], problems: list[NodeProblem]
) -> dict[TopicPartition, GroupPartition]:
    """The partitions with owner nodes, and no more of them than that."""
    found: dict[TopicPartition, GroupPartition] = {}
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
                found[key] = _claim(key, node, members)
            elif why := nodes.why_unreadable(path):
                found[key] = GroupPartition(*key, error=f"the znode cannot be read: {why}", is_unreadable=True)
    return found


def _claim(key: TopicPartition, node: Node, members: set[str]) -> GroupPartition:
    owner = node.data.decode("utf-8", "backslashreplace")
    identity = identify_owner(owner, members)
    return GroupPartition(
        *key,
        owner or None,
        identity and identity.consumer_id,
        identity and identity.index,
        node.stat.ctime,
        node.stat.owner,
        None if owner else "the owner node is empty",
        claimed=node.stat.czxid,
    )


def _with_owned_topics(member: GroupMember, claims: Mapping[TopicPartition, GroupPartition]) -> GroupMember:
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
                found[key] = stored_offset(node)
            elif why := nodes.why_unreadable(path):
                found[key] = unreadable_offset(f"the znode cannot be read: {why}")
    return found
