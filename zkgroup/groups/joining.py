"""What the nodes of a group, its topics and its offsets in Kafka mean together; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from zkgroup.errors import MalformedZnodeError
from zkgroup.groups.model import GroupMember, GroupPartition, GroupSnapshot, StoredOffset
from zkgroup.groups.reading import Nodes, World, below, paths_of
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition, identify_owner
from zkgroup.protocol.ops import Node
from zkgroup.servers.answers import KafkaOffset, KafkaSide

# Partition nodes are plain numbers; pykafka and Kafka 0.7 put the broker's id before: ``0-3``.
_OWNED: Final = re.compile(r"(?:[0-9]+-)?(0|[1-9][0-9]{0,8})", re.ASCII)
# Members look for offsets under the plain number alone.
_PLAIN: Final = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)

#: First and end offset of a log and the broker that told them, or why they are not known.
Log = tuple[int, int, int | None] | str


@dataclass(frozen=True, slots=True)
class Look:
    """When the look was taken (milliseconds since 1970), how long it took (seconds), and what could not be asked."""

    taken_at: int
    took: float
    warnings: tuple[str, ...] = ()
    logs: Mapping[TopicPartition, Log] = field(default_factory=dict)
    #: Whether logs were asked for at all.
    logs_wanted: bool = False


class Claim(NamedTuple):
    """What an owner node says, as ``GroupPartition`` has it."""

    owner: str | None = None
    member: str | None = None
    stream: int | None = None
    since: int | None = None
    session_id: int | None = None
    error: str | None = None


_NO_CLAIM: Final = Claim()


class Draft(NamedTuple):
    """What a group's own nodes and its coordinator tell of a partition."""

    claim: Claim
    stored: StoredOffset | None
    kafka: KafkaOffset | None
    exists: bool


@dataclass(frozen=True, slots=True)
class Gathered:
    """One group's nodes, read. ``problems``: nodes that cannot be read, or are no partition's."""

    group: str
    members: tuple[GroupMember, ...]
    side: KafkaSide
    drafts: Mapping[TopicPartition, Draft]
    problems: tuple[str, ...]
    last_change: int | None


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


def gather(group: str, nodes: Nodes, members: tuple[GroupMember, ...], side: KafkaSide, world: World) -> Gathered:
    """Which partitions concern a group, and what its nodes say of them. All its topics must be known to ``world``."""
    problems: list[str] = []
    claims = _claims(group, nodes, {member.member for member in members}, problems)
    stored = _stored(group, nodes, problems)
    keys: set[TopicPartition] = {*claims, *stored, *side.offsets, *assigned(side)}
    for topic in {topic for member in members for topic in member.streams}:
        keys.update(TopicPartition(topic, number) for number in world.topics[topic].partitions)
    # One whose registration cannot be read may have any partition.
    existing = {
        topic: None if (found := world.topics[topic]).exists and found.error else frozenset(found.partitions)
        for topic in {key.topic for key in keys}
    }
    drafts = {}
    for key in keys:
        there = existing[key.topic]
        exists = there is None or key.partition in there
        drafts[key] = Draft(claims.get(key, _NO_CLAIM), stored.get(key), side.offsets.get(key), exists)
    times = [node.stat.mtime for path in paths_of(group)[:2] if (node := nodes.node(path)) is not None]
    times += [node.stat.mtime for path in below(paths_of(group).ids, nodes) if (node := nodes.node(path)) is not None]
    times += [claim.since for claim in claims.values() if claim.since is not None]
    times += [offset.changed_at for offset in stored.values()]
    return Gathered(group, members, side, drafts, tuple(problems), max(times, default=None))


def join_group(gathered: Gathered, nodes: Nodes, world: World, look: Look) -> GroupSnapshot:
    """Everything about one group."""
    group, members, side = gathered.group, gathered.members, gathered.side
    topics = {name: world.topics[name] for name in sorted(concerned(group, nodes, members, side))}
    subscribed = frozenset(topic for member in members for topic in member.streams)
    paths = paths_of(group)
    ids = nodes.node(paths.ids)
    group_problems = [nodes.failure(path) for path in paths]
    topic_problems = [topics[name].error for name in sorted(subscribed) if topics[name].exists]
    return GroupSnapshot(
        group,
        members,
        tuple(_partition(key, gathered.drafts[key], world, look) for key in sorted(gathered.drafts)),
        subscribed,
        tuple(problem for problem in [*group_problems, *topic_problems, *gathered.problems] if problem),
        topics=topics,
        known_topics=world.known_topics,
        taken_at=look.taken_at,
        took=look.took,
        in_zookeeper=nodes.exists(paths.group),
        ids_version=ids.stat.version if ids is not None else None,
        ids_czxid=ids.stat.czxid if ids is not None else None,
        last_change=gathered.last_change,
        coordinator=side.group,
        broker_ids=world.broker_ids,
        warnings=(*look.warnings, *side.errors),
    )


def _partition(key: TopicPartition, draft: Draft, world: World, look: Look) -> GroupPartition:
    log: Log | None = None
    if look.logs_wanted:
        log = why_not_asked(key, draft, world) or look.logs.get(key)
    start, end, leader = log if isinstance(log, tuple) else (None, None, None)
    claim = draft.claim
    return GroupPartition(
        key.topic,
        key.partition,
        claim.owner,
        claim.member,
        claim.stream,
        claim.since,
        claim.session_id,
        claim.error,
        draft.exists,
        world.leaders.get(key, leader),
        draft.stored,
        draft.kafka,
        start,
        end,
        log if isinstance(log, str) else None,
    )


def why_not_asked(key: TopicPartition, draft: Draft, world: World) -> str | None:
    """Why no broker can tell a partition's log; None where one may."""
    if not world.topics[key.topic].exists:
        return f"topic {key.topic} does not exist"
    if not draft.exists:
        return f"topic {key.topic} has no partition {key.partition}"
    if world.leaders.get(key, 0) is None:
        return "no broker leads it"
    return None


def _claims(group: str, nodes: Nodes, members: set[str], problems: list[str]) -> dict[TopicPartition, Claim]:
    found: dict[TopicPartition, Claim] = {}
    for topic, parent in nodes.children(paths_of(group).owners):
        if why := nodes.failure(parent):
            problems.append(why)
        # Plain numbers first: they are what members of the reference look at.
        for name, path in sorted(nodes.children(parent), key=lambda entry: (not entry[0].isdecimal(), entry[0])):
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
                found[key] = _claim(node, members)
            elif why := nodes.failure(path):
                found[key] = Claim(error=why)
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
    )


def _stored(group: str, nodes: Nodes, problems: list[str]) -> dict[TopicPartition, StoredOffset]:
    found: dict[TopicPartition, StoredOffset] = {}
    for topic, parent in nodes.children(paths_of(group).offsets):
        if why := nodes.failure(parent):
            problems.append(why)
        for name, path in nodes.children(parent):
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
