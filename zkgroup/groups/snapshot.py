"""Everything about a group that its znodes tell: members, subscriptions, partitions and their owners.

Groups are half-built in the wild. Whatever is missing is missing in the snapshot, whatever cannot be read carries its
own error, and nothing is ever created. Reading takes three pipelined rounds (names, registrations, owners), joining
them is pure. Nodes that vanish between two rounds count as gone.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from zkgroup.errors import MalformedZnodeError, NotFoundError, UsageError, ZkgroupError
from zkgroup.protocol import znodes
from zkgroup.protocol.assignors import resolve
from zkgroup.protocol.brokers import decode_topic
from zkgroup.protocol.names import TopicPartition, identify_owner
from zkgroup.protocol.ops import Children, Code, Exists, Failure, Get, Node, Op, Result, Stat
from zkgroup.protocol.znodes import Registration
from zkgroup.servers.registry import Registry, as_mapping

# Partition nodes are plain numbers; pykafka and Kafka 0.7 put the broker's id before: ``0-3``.
_PARTITION: Final = re.compile(r"(?:[0-9]+-)?([0-9]{1,9})", re.ASCII)


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A registered member.

    ``streams``: topic → number of streams, a filter already applied to the topics that exist. ``registered_at``: what
    it wrote, else when its node was made; milliseconds since 1970. ``error``: why the registration cannot be read.
    """

    member: str
    host: str | None
    session_id: int
    registered_at: int | None
    registration: Registration | None = None
    streams: Mapping[str, int] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """A partition that a member subscribes to, or that somebody owns.

    ``owner`` is what the owner node says, ``member`` the registered member it means and ``stream`` which of its
    streams; ``since`` is when the claim was made, in milliseconds since 1970.
    """

    topic: str
    partition: int
    owner: str | None = None
    member: str | None = None
    stream: int | None = None
    since: int | None = None
    session_id: int | None = None
    error: str | None = None

    @property
    def name(self) -> str:
        """``topic-partition``."""
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """A group at one time. ``subscribed`` are the topics that its members want; ``problems`` are about other nodes."""

    group: str
    members: tuple[GroupMember, ...]
    partitions: tuple[GroupPartition, ...]
    subscribed: frozenset[str]
    problems: tuple[str, ...] = ()


class RawGroup(NamedTuple):
    """What was read: nodes by path, and the members made of theirs."""

    group: str
    nodes: Mapping[str, Result]
    members: tuple[GroupMember, ...]


def read_group(registry: Registry, group: str) -> GroupSnapshot:
    """Read a group. Raises ``NotFoundError`` where there is none, ``UsageError`` for what cannot be a group's name."""
    return join_group(read_raw_group(registry, group))


def read_raw_group(registry: Registry, group: str) -> RawGroup:
    """Read a group's nodes, and those of the topics that concern it."""
    first: list[Op] = [
        Exists(znodes.group(group)),
        Children(znodes.ids(group)),
        Children(znodes.owners(group)),
        Children(znodes.topics()),
    ]
    nodes: dict[str, Result] = dict(as_mapping(first, registry.read(first)))
    if nodes[znodes.group(group)] is None:
        raise _no_such_group(registry, group)
    lists = [Children(znodes.owner_topic(group, name)) for name in _names(nodes[znodes.owners(group)])]
    second: list[Op] = [Get(znodes.member_id(group, name)) for name in _names(nodes[znodes.ids(group)])]
    second += lists
    nodes.update(as_mapping(second, registry.read(second)))
    members = tuple(_members(group, nodes, _names(nodes[znodes.topics()])))
    third: list[Op] = [Get(f"{one.path}/{name}") for one in lists for name in _names(nodes[one.path])]
    subscribed = {name for member in members for name in member.streams if _is_name(name)}
    third += [Get(znodes.topic(name)) for name in sorted(subscribed)]
    nodes.update(as_mapping(third, registry.read(third)))
    return RawGroup(group, nodes, members)


def join_group(raw: RawGroup) -> GroupSnapshot:
    """What the nodes mean together."""
    problems = [_why(path, raw.nodes[path]) for path in (znodes.ids(raw.group), znodes.owners(raw.group))]
    found: dict[TopicPartition, GroupPartition] = {}
    subscribed = frozenset(name for member in raw.members for name in member.streams)
    for topic in sorted(subscribed):
        for number in _partitions(topic, raw.nodes, problems):
            found[TopicPartition(topic, number)] = GroupPartition(topic, number)
    known = {member.member for member in raw.members}
    for topic in _names(raw.nodes[znodes.owners(raw.group)]):
        parent = znodes.owner_topic(raw.group, topic)
        problems.append(_why(parent, raw.nodes.get(parent)))
        for name in _names(raw.nodes.get(parent)):
            path = f"{parent}/{name}"
            match = _PARTITION.fullmatch(name)
            if match is None:
                problems.append(f"znode {path} is not named by a partition")
                continue
            key = TopicPartition(topic, int(match[1]))
            owned = _owned(key, path, raw.nodes.get(path), known)
            if owned is not None:
                found[key] = owned
    return GroupSnapshot(
        raw.group,
        raw.members,
        tuple(found[key] for key in sorted(found)),
        subscribed,
        tuple(problem for problem in problems if problem),
    )


def ownership_defects(snapshot: GroupSnapshot) -> list[str]:
    """Why the group's partitions are not all owned as they should be; empty if they are.

    Right is: every partition of every subscribed topic has an owner, a registered member that subscribes to the topic
    with as many streams as the claim needs; nobody owns anything else; all nodes can be read.
    """
    members = {member.member: member for member in snapshot.members}
    defects = list(snapshot.problems)
    defects += [f"member {member.member}: {member.error}" for member in snapshot.members if member.error]
    for partition in snapshot.partitions:
        if partition.error is not None:
            defects.append(f"{partition.name}: {partition.error}")
        elif partition.owner is None:
            defects.append(f"{partition.name} has no owner")
        elif partition.member is None:
            defects.append(f"{partition.name} is owned by {partition.owner}, which is not registered")
        else:
            streams = members[partition.member].streams.get(partition.topic, 0)
            if streams == 0:
                defects.append(f"{partition.name} is owned by {partition.owner}, which does not subscribe to the topic")
            elif partition.stream is not None and partition.stream >= streams:
                defects.append(f"{partition.name} is owned by {partition.owner}, whose member has {streams} streams")
    return defects


def host_of(group: str, consumer_id: str) -> str | None:
    """The host that a consumer id names, None where it names none.

    The reference: ``GROUP_HOST-MILLIS-HEX``. pykafka and Go's kazoo: ``HOST:UUID``. Ruby's poseidon_cluster:
    ``GROUP-HOST-PID-SECONDS-N``.
    """
    for pattern in (
        rf"{re.escape(group)}_(.+)-[0-9]{{10,}}-[0-9a-f]{{1,8}}",
        r"([^:]+):[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
        rf"{re.escape(group)}-(.+)-[0-9]+-[0-9]+-[0-9]+",
    ):
        match = re.fullmatch(pattern, consumer_id)
        if match is not None:
            return match[1]
    return None


def _members(group: str, nodes: Mapping[str, Result], topic_names: Iterable[str]) -> list[GroupMember]:
    found = []
    for name in sorted(_names(nodes[znodes.ids(group)])):
        path = znodes.member_id(group, name)
        match nodes.get(path):
            case Node(data, stat):
                found.append(_member(group, name, path, data, stat, topic_names))
            case Failure(code) as failure if code is not Code.NO_NODE:
                found.append(GroupMember(name, host_of(group, name), 0, None, error=_why(path, failure)))
    return found


def _member(group: str, name: str, path: str, data: bytes, stat: Stat, topic_names: Iterable[str]) -> GroupMember:
    registration, streams, registered_at, error = None, {}, stat.ctime, None
    try:
        registration = znodes.decode_registration(path, data)
        registered_at = stat.ctime if registration.timestamp is None else registration.timestamp
        streams = resolve(registration, topic_names)
    except MalformedZnodeError as malformed:
        error = malformed.why
    except ZkgroupError as unreadable:  # an expression that Java would not take, or that explodes
        error = unreadable.message
    return GroupMember(name, host_of(group, name), stat.owner, registered_at, registration, streams, error)


def _partitions(topic: str, nodes: Mapping[str, Result], problems: list[str]) -> list[int]:
    """A topic's partitions; none where it does not exist."""
    path = znodes.topic(topic) if _is_name(topic) else ""
    node = nodes.get(path)
    if isinstance(node, Node):
        try:
            return sorted(decode_topic(path, node.data).partitions)
        except MalformedZnodeError as malformed:
            problems.append(malformed.message)
    else:
        problems.append(_why(path, node))
    return []


def _owned(key: TopicPartition, path: str, node: Result, members: set[str]) -> GroupPartition | None:
    match node:
        case Node(data, stat):
            owner = data.decode("utf-8", "backslashreplace")
            identity = identify_owner(owner, members)
            return GroupPartition(
                *key,
                owner=owner or None,
                member=identity and identity.consumer_id,
                stream=identity and identity.index,
                since=stat.ctime,
                session_id=stat.owner,
                error=None if owner else "the owner node is empty",
            )
        case Failure(code) as failure if code is not Code.NO_NODE:
            return GroupPartition(*key, error=_why(path, failure))
    return None


def _names(result: Result) -> tuple[str, ...]:
    return result if isinstance(result, tuple) else ()


def _why(path: str, result: Result) -> str:
    """Why a node could not be read; empty where it could, or does not exist."""
    if isinstance(result, Failure) and result.code is not Code.NO_NODE:
        return f"znode {path} cannot be read: {result.code.value}"
    return ""


def _is_name(topic: str) -> bool:
    """A subscription may name anything; what cannot be a znode is no topic."""
    try:
        znodes.topic(topic)
    except UsageError:
        return False
    return True


def _no_such_group(registry: Registry, group: str) -> NotFoundError:
    hosts = registry.settings.hosts
    groups = registry.read([Children(znodes.consumers())])[0]
    if not isinstance(groups, tuple):
        return NotFoundError(
            f"no group {group!r}: ZooKeeper at {hosts} has no {znodes.consumers()}",
            "check the chroot in the connect string",
        )
    near = difflib.get_close_matches(group, groups, n=3)
    return NotFoundError(
        f"no group {group!r} in ZooKeeper at {hosts}", f"is {' or '.join(near)} meant?" if near else "check its name"
    )
