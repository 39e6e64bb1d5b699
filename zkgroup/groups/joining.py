"""What the nodes of a group, its topics and its offsets in Kafka mean together; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from zkgroup.errors import MalformedZnodeError
from zkgroup.groups.model import GroupMember, GroupPartition, GroupSnapshot, StoredOffset
from zkgroup.groups.reading import Nodes, World, child_path, paths_of
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition, identify_owner
from zkgroup.protocol.ops import Node
from zkgroup.servers.answers import KafkaSide

# Partition nodes are plain numbers; pykafka and Kafka 0.7 put the broker's id before: ``0-3``.
_OWNED: Final = re.compile(r"(?:[0-9]+-)?(0|[1-9][0-9]{0,8})", re.ASCII)
# Members look for offsets under the plain number alone.
_PLAIN: Final = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)

#: First and end offset of a log, or why they are not known.
Log = tuple[int, int] | str


@dataclass(frozen=True, slots=True)
class Look:
    """When the look was taken (milliseconds since 1970), how long it took (seconds), and what could not be asked."""

    taken_at: int
    took: float
    warnings: tuple[str, ...] = ()
    logs: Mapping[TopicPartition, Log] = field(default_factory=dict)
    #: Whether logs were asked for at all.
    logs_wanted: bool = False


def concerned(group: str, nodes: Nodes, members: Iterable[GroupMember], side: KafkaSide) -> set[str]:
    """The topics that concern a group."""
    topics = {topic for member in members for topic in member.streams}
    topics.update(*(nodes.names(parent) for parent in paths_of(group)[2:]))
    topics.update(partition.topic for partition in side.offsets)
    topics.update(partition.topic for partition in assigned(side))
    return topics


def assigned(side: KafkaSide) -> dict[TopicPartition, str]:
    """Which member of the group in Kafka has which partition."""
    members = side.group.members if side.group is not None else ()
    return {partition: member.member for member in members for partition in member.assigned}


def partitions_of(
    group: str, nodes: Nodes, members: Sequence[GroupMember], side: KafkaSide, world: World
) -> tuple[dict[TopicPartition, GroupPartition], list[str]]:
    """The partitions that concern a group, without leaders and logs, and what is wrong with nodes that are no
    partition's."""
    problems: list[str] = []
    found: dict[TopicPartition, GroupPartition] = {}
    for topic in {topic for member in members for topic in member.streams}:
        for number in world.topics[topic].partitions:
            key = TopicPartition(topic, number)
            found[key] = GroupPartition(topic, number)
    owned = _owners(group, nodes, {member.member for member in members}, problems)
    stored = _stored(group, nodes, problems)
    for key in {*owned, *stored, *side.offsets, *assigned(side)}:
        partition = owned.get(key) or GroupPartition(*key)
        found[key] = replace(partition, stored=stored.get(key), kafka=side.offsets.get(key))
    existing = {topic: frozenset(world.topics[topic].partitions) for topic in {key.topic for key in found}}
    for key, partition in found.items():
        topic_found = world.topics[key.topic]
        unreadable = topic_found.exists and topic_found.error is not None
        if key.partition not in existing[key.topic] and not unreadable:
            found[key] = replace(partition, exists=False)
    return found, problems


def join_group(
    group: str,
    nodes: Nodes,
    members: tuple[GroupMember, ...],
    side: KafkaSide,
    world: World,
    look: Look,
) -> GroupSnapshot:
    """Everything about one group."""
    found, problems = partitions_of(group, nodes, members, side, world)
    partitions = tuple(_with_log(found[key], world, look) for key in sorted(found))
    topics = {name: world.topics[name] for name in sorted(concerned(group, nodes, members, side))}
    subscribed = frozenset(topic for member in members for topic in member.streams)
    paths = paths_of(group)
    ids = nodes.node(paths.ids)
    group_problems = [nodes.failure(path) for path in paths]
    topic_problems = [topics[name].error for name in sorted(subscribed) if topics[name].exists]
    return GroupSnapshot(
        group,
        members,
        partitions,
        subscribed,
        tuple(problem for problem in [*group_problems, *topic_problems, *problems] if problem),
        topics=topics,
        known_topics=world.known_topics,
        taken_at=look.taken_at,
        took=look.took,
        in_zookeeper=nodes.exists(paths.group),
        ids_version=ids.stat.version if ids is not None else None,
        ids_czxid=ids.stat.czxid if ids is not None else None,
        last_change=_last_change(group, nodes),
        coordinator=side.group,
        broker_ids=world.broker_ids,
        warnings=(*look.warnings, *side.errors),
    )


def _with_log(partition: GroupPartition, world: World, look: Look) -> GroupPartition:
    key = partition.key
    leader = world.leaders.get(key)
    if not look.logs_wanted:
        return partition if leader is None else replace(partition, leader=leader)
    log = look.logs.get(key)
    if isinstance(log, tuple):
        return replace(partition, leader=leader, log_start=log[0], log_end=log[1])
    if log is None:
        log = why_not_asked(partition, world)
    return replace(partition, leader=leader, log_error=log)


def why_not_asked(partition: GroupPartition, world: World) -> str | None:
    """Why no broker can tell a partition's log; None where one may."""
    topic = world.topics[partition.topic]
    if not topic.exists:
        return f"topic {partition.topic} does not exist"
    if not partition.exists:
        return f"topic {partition.topic} has no partition {partition.partition}"
    if world.leaders.get(partition.key, 0) is None:
        return "no broker leads it"
    return None


def _children(parent: str, nodes: Nodes) -> Iterable[tuple[str, str]]:
    for name in nodes.names(parent):
        path = child_path(parent, name)
        if path is not None:
            yield name, path


def _owners(group: str, nodes: Nodes, members: set[str], problems: list[str]) -> dict[TopicPartition, GroupPartition]:
    found: dict[TopicPartition, GroupPartition] = {}
    for topic, parent in _children(paths_of(group).owners, nodes):
        if why := nodes.failure(parent):
            problems.append(why)
        # Plain numbers first: they are what members of the reference look at.
        for name, path in sorted(_children(parent, nodes), key=lambda entry: (not entry[0].isdecimal(), entry[0])):
            match = _OWNED.fullmatch(name)
            if match is None:
                problems.append(f"znode {path} is not named by a partition")
                continue
            key = TopicPartition(topic, int(match[1]))
            if key in found:
                problems.append(f"znode {path} is a second owner node of {key}")
                continue
            node = nodes.node(path)
            if node is not None:
                found[key] = _owned(key, node, members)
            elif why := nodes.failure(path):
                found[key] = GroupPartition(*key, error=why)
    return found


def _owned(key: TopicPartition, node: Node, members: set[str]) -> GroupPartition:
    owner = node.data.decode("utf-8", "backslashreplace")
    identity = identify_owner(owner, members)
    return GroupPartition(
        *key,
        owner=owner or None,
        member=identity and identity.consumer_id,
        stream=identity and identity.index,
        since=node.stat.ctime,
        session_id=node.stat.owner,
        error=None if owner else "the owner node is empty",
    )


def _stored(group: str, nodes: Nodes, problems: list[str]) -> dict[TopicPartition, StoredOffset]:
    found: dict[TopicPartition, StoredOffset] = {}
    for topic, parent in _children(paths_of(group).offsets, nodes):
        if why := nodes.failure(parent):
            problems.append(why)
        for name, path in _children(parent, nodes):
            if _PLAIN.fullmatch(name) is None:
                problems.append(f"znode {path} is not named by a partition")
                continue
            key = TopicPartition(topic, int(name))
            node = nodes.node(path)
            if node is not None:
                found[key] = stored_offset(path, node)
            elif why := nodes.failure(path):
                found[key] = StoredOffset(None, -1, 0, 0, 0, why)
    return found


def stored_offset(path: str, node: Node) -> StoredOffset:
    """What an offset node holds, or why that is no offset."""
    offset, error = None, None
    try:
        offset = znodes.decode_offset(path, node.data)
    except MalformedZnodeError as malformed:
        error = malformed.why
    stat = node.stat
    return StoredOffset(offset, stat.version, stat.mzxid, stat.ctime, stat.mtime, error)


def _last_change(group: str, nodes: Nodes) -> int | None:
    """The newest time of any of the group's nodes that was read."""
    parents = paths_of(group)
    paths = [parents.group, parents.ids, *(path for _, path in _children(parents.ids, nodes))]
    for parent in parents[2:]:
        paths += [path for _, topic in _children(parent, nodes) for _, path in _children(topic, nodes)]
    return max((node.stat.mtime for path in paths if (node := nodes.node(path)) is not None), default=None)
