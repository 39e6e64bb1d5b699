"""The znodes of groups, read in a few pipelined rounds, however many groups there are.

It creates none and leaves no watch. A node that vanishes between two rounds counts as gone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import ClassVar, Final, NamedTuple

from zkgroup.clients.kafka.responses import KafkaGroup
from zkgroup.clients.zookeeper.registry import Registry, names_in
from zkgroup.errors import MalformedZnodeError, UsageError
from zkgroup.groups.group_model import FaultyBroker, GroupMember, GroupTopic, NodeProblem
from zkgroup.groups.partition_scope import Selection
from zkgroup.groups.snapshot.group_znodes import decode_member, host_of, read_foreign
from zkgroup.protocol import znodes
from zkgroup.protocol.assignors import TopicSelections
from zkgroup.protocol.broker_znodes import broker_fault, decode_broker, decode_partition_state, partitions_to_read
from zkgroup.protocol.names import TopicPartition, parse_partition
from zkgroup.protocol.operations import Children, Code, Failure, Get, Node, Result

#: Brokers whose registration has at least this version return all offsets of a group.
_WHOLE_OFFSETS: Final = 4
CLUSTER_LISTS: Final = (znodes.topics(), znodes.broker_ids(), znodes.delete_topics())
_BROKER: Final = re.compile(r"[0-9]{1,10}", re.ASCII)


class GroupPaths(NamedTuple):
    """Where a group's nodes are. All empty for a name that no znode can have: such a group lives in Kafka alone."""

    group: str = ""
    ids: str = ""
    owners: str = ""
    offsets: str = ""


def paths_of(group: str) -> GroupPaths:
    """The paths of a group's nodes."""
    if child_path(znodes.consumers(), group) is None:
        return GroupPaths()
    return GroupPaths(znodes.group(group), znodes.ids(group), znodes.owners(group), znodes.offsets(group))


def group_names(registry: Registry | None) -> tuple[str, ...]:
    """The groups in ZooKeeper; none without a registry, or where their list cannot be read."""
    return names_in(registry.read([Children(znodes.consumers())])[0]) if registry is not None else ()


class NodeCache:
    """What was read so far: children and nodes by path. A missing node is a ``Failure`` with ``NO_NODE``.

    ``selection``: only the offsets of these partitions are read, neither members nor owners; without ``offsets`` not
    even those.
    """

    _watches: ClassVar[bool] = False

    def __init__(self, selection: Selection | None = None, *, offsets: bool = True) -> None:
        self.selection = selection
        self._offsets = offsets
        self._lists: dict[str, Result] = {}
        self._nodes: dict[str, Result] = {}
        self._children: dict[str, tuple[tuple[str, str], ...]] = {}
        self._unreadable: dict[str, str] = {}

    def read(self, registry: Registry, *, lists: Iterable[str] = (), nodes: Iterable[str] = ()) -> set[str]:
        """One round: read what was not read yet. Returns the paths of what does not exist. Raises
        ``UnreachableError``."""
        ops: list[Children | Get] = [
            Children(path, self._watches) for path in dict.fromkeys(lists) if path and path not in self._lists
        ]
        ops += [Get(path, self._watches) for path in dict.fromkeys(nodes) if path and path not in self._nodes]
        missing = set()
        self._children.clear()
        for op, result in zip(ops, registry.read(ops) if ops else (), strict=True):
            (self._lists if isinstance(op, Children) else self._nodes)[op.path] = result
            if isinstance(result, Failure):
                if result.code is Code.NO_NODE:
                    missing.add(op.path)
                else:
                    self._unreadable.setdefault(op.path, str(result.code.value))
        return missing

    def paths(self, group: str) -> GroupPaths:
        """The paths of those of a group's nodes that are read; empty for the others."""
        paths = paths_of(group)
        if self.selection is None:
            return paths
        return GroupPaths(paths.group, offsets=paths.offsets if self._offsets else "")

    def unreadable(self, root: str) -> dict[str, str]:
        """The nodes at and below this path that may not be read, with the reason."""
        return {path: why for path, why in self._unreadable.items() if f"{path}/".startswith(f"{root}/")}

    def names(self, path: str) -> tuple[str, ...]:
        """The names below a node; none where it is missing, unreadable, or was not asked for."""
        return names_in(self._lists.get(path))

    def children(self, path: str) -> tuple[tuple[str, str], ...]:
        """The names below a node, each with its path. A name that no znode can have is left out."""
        found = self._children.get(path)
        if found is None:
            pairs = ((name, child_path(path, name)) for name in self.names(path))
            found = self._children[path] = tuple((name, child) for name, child in pairs if child is not None)
        return found

    def node(self, path: str) -> Node | None:
        """A node; None where it is missing, unreadable, or was not asked for."""
        found = self._nodes.get(path)
        return found if isinstance(found, Node) else None

    def exists(self, path: str) -> bool:
        """Whether there is such a node, readable or not."""
        found = self._nodes.get(path)
        return isinstance(found, Node) or (isinstance(found, Failure) and found.code is not Code.NO_NODE)

    def why_unreadable(self, path: str) -> str | None:
        """Why a node, or what is below it, could not be read, briefly; None where it could, or there is none."""
        return self._unreadable.get(path)

    def failure(self, path: str) -> NodeProblem | None:
        why = self.why_unreadable(path)
        return None if why is None else NodeProblem(path, f"cannot be read: {why}")


class ClusterState:
    """Topics, leaders, brokers, and the topics that are marked for deletion.

    ``topics`` and ``leaders`` have those that were read; the leader is None where no broker leads the partition.
    ``unknown_leaders``: partitions whose state cannot be read. ``unreadable``: nodes that may not be read, with the
    reason.
    """

    def __init__(
        self, existing_topics: Iterable[str], broker_ids: Iterable[int], to_be_deleted: Collection[str] = ()
    ) -> None:
        self.existing_topics = tuple(sorted(existing_topics))
        self.broker_ids = tuple(sorted(broker_ids))
        self.topics: dict[str, GroupTopic] = {}
        self.leaders: dict[TopicPartition, int | None] = {}
        self.unknown_leaders: set[TopicPartition] = set()
        self.unreadable: dict[str, str] = {}
        self.selections = TopicSelections(self.existing_topics)
        self.faulty_brokers: tuple[FaultyBroker, ...] = ()
        self._marked = frozenset(to_be_deleted)

    @classmethod
    def of_registry(cls, nodes: NodeCache) -> ClusterState:
        """From the lists and the brokers' registrations in ZooKeeper."""
        lists = CLUSTER_LISTS
        brokers = [(int(name), path) for name, path in nodes.children(lists[1]) if _BROKER.fullmatch(name)]
        cluster = cls(nodes.names(lists[0]), [number for number, _ in brokers], nodes.names(lists[2]))
        cluster.unreadable = {path: why for path in lists if (why := nodes.why_unreadable(path)) is not None}
        cluster.faulty_brokers = tuple(
            FaultyBroker(path, fault, node.stat.czxid)
            for _, path in brokers
            if (node := nodes.node(path)) is not None and (fault := broker_fault(node.data)) is not None
        )
        return cluster

    @classmethod
    def of_brokers(cls, leaders: Mapping[str, Mapping[int, int | None]], broker_ids: Iterable[int]) -> ClusterState:
        """From the brokers' answer: topic → partition → leader."""
        cluster = cls(leaders, broker_ids)
        for name, partitions in leaders.items():
            cluster.topics[name] = GroupTopic(name, True, tuple(sorted(partitions)))
            cluster.leaders.update({TopicPartition(name, number): leader for number, leader in partitions.items()})
        return cluster

    def add_topics(self, nodes: NodeCache, names: Iterable[str]) -> None:
        """Take up the topics whose nodes were read."""
        for name in names:
            if name not in self.topics:
                self.topics[name] = self._topic(name, nodes)

    def _topic(self, name: str, nodes: NodeCache) -> GroupTopic:
        path = topic_path(name)
        if path is None:
            return GroupTopic(name, exists=False, error=NodeProblem(name, "is the name of no topic"))
        marked = name in self._marked
        node = nodes.node(path)
        if node is None:
            error = nodes.failure(path)
            if error is not None:
                self.unreadable[path] = nodes.why_unreadable(path) or ""
            return GroupTopic(name, nodes.exists(path), to_be_deleted=marked, error=error)
        try:
            partitions, damage = partitions_to_read(path, node.data)
            passed_over = damage is not None
        except MalformedZnodeError as malformed:
            partitions, damage, passed_over = (), malformed, False
        error = None if damage is None else NodeProblem(path, damage.why, is_malformed=True)
        stat = node.stat
        return GroupTopic(name, True, partitions, stat.czxid, stat.ctime, marked, error, stat.mtime, passed_over)

    def add_leaders(self, nodes: NodeCache, partitions: Iterable[TopicPartition]) -> None:
        """Take up the partitions whose states were read. One without a state has no leader yet."""
        for partition in partitions:
            path = znodes.partition_state(partition)
            node = nodes.node(path)
            try:
                leader = -1 if node is None else decode_partition_state(path, node.data).leader
            except MalformedZnodeError:
                leader = None
            if leader is None or (node is None and nodes.exists(path)):
                self.unknown_leaders.add(partition)  # the brokers may know it
            else:
                self.leaders[partition] = leader if leader >= 0 else None


class ZnodeReader:
    """Reads the znodes of ``groups`` into ``nodes``, one method a round, with the members and the cluster's state that
    they mean. Without a ``registry`` it reads nothing: ``cluster`` then is what the brokers answered."""

    def __init__(
        self, registry: Registry | None, groups: Sequence[str], nodes: NodeCache, cluster: ClusterState | None = None
    ) -> None:
        self.registry = registry
        self.groups = groups
        self.nodes = nodes
        self.cluster = cluster or ClusterState((), ())
        self.members: dict[str, tuple[GroupMember, ...]] = dict.fromkeys(groups, ())

    def _read(self, *, lists: Iterable[str] = (), nodes: Iterable[str] = ()) -> None:
        if self.registry is not None:
            self.nodes.read(self.registry, lists=lists, nodes=nodes)

    def read_members(self, selections: TopicSelections | None = None) -> None:
        """Two rounds: the groups, topics and brokers; then registrations, and the lists of owner and offset nodes.
        ``selections``: those of an earlier reading, which are used again while the topics are the same."""
        nodes, paths = self.nodes, [self.nodes.paths(group) for group in self.groups]
        self._read(
            lists=[*CLUSTER_LISTS, *(path for group in paths for path in group)],
            nodes=[path for group in paths for path in group[:2]],
        )
        self._read(
            lists=[path for group in paths for parent in group[2:] for path in child_paths(parent, nodes)],
            nodes=[
                *(path for group in paths for path in child_paths(group.ids, nodes)),
                *child_paths(znodes.broker_ids(), nodes),
            ],
        )
        self.cluster = cluster = ClusterState.of_registry(nodes)
        if selections is not None and selections.topics == cluster.existing_topics:
            cluster.selections = selections
        self.members = {group: members_of(group, nodes, cluster.selections) for group in self.groups}

    def read_partitions(self) -> None:
        """The third round: owner nodes, offset nodes, and the registrations of all topics that concern the groups."""
        nodes = self.nodes
        topics = {topic for group in self.groups for topic in self.concerned_topics(group, KafkaGroup())}
        self._read(
            nodes=[
                *(
                    path
                    for group in self.groups
                    for parent in nodes.paths(group)[2:]
                    for topic, above in nodes.children(parent)
                    for name, path in nodes.children(above)
                    if nodes.selection is None
                    or (
                        (number := parse_partition(name)) is not None
                        and nodes.selection.has(TopicPartition(topic, number))
                    )
                ),
                *(path for topic in sorted(topics) if (path := topic_path(topic)) is not None),
                # They count the offset nodes that were deleted: a trace of consumers that register nowhere.
                *(
                    path
                    for group in self.groups
                    if not self.members[group] and nodes.selection is None
                    for path in child_paths(nodes.paths(group).offsets, nodes)
                ),
            ],
        )
        self.cluster.add_topics(nodes, topics)

    def read_topics(self, topics: Iterable[str]) -> None:
        """The registrations of further topics, of which the group has offsets or members in Kafka."""
        new = [topic for topic in dict.fromkeys(topics) if topic not in self.cluster.topics]
        self._read(nodes=[path for topic in new if (path := topic_path(topic)) is not None])
        self.cluster.add_topics(self.nodes, new)

    def read_leaders(self, partitions: Iterable[TopicPartition]) -> None:
        """The last round: the leaders of these partitions."""
        if self.registry is not None:
            new = [partition for partition in dict.fromkeys(partitions) if partition not in self.cluster.leaders]
            self._read(nodes=[znodes.partition_state(partition) for partition in new])
            self.cluster.add_leaders(self.nodes, new)

    def concerned_topics(self, group: str, kafka_group: KafkaGroup) -> set[str]:
        """The topics that concern a group, as ``concerned_topics``."""
        return concerned_topics(group, self.nodes, self.members[group], kafka_group)


def has_partial_offsets(nodes: NodeCache) -> bool:
    """Whether a broker returns offsets of named partitions only, as releases before 0.10.2 do."""
    versions = []
    for path in child_paths(znodes.broker_ids(), nodes):
        node = nodes.node(path)
        with suppress(MalformedZnodeError):  # a request to this broker fails with that reason
            versions.append(decode_broker(path, node.data if node is not None else b"").version)
    return min(versions, default=_WHOLE_OFFSETS) < _WHOLE_OFFSETS


def concerned_topics(group: str, nodes: NodeCache, members: Iterable[GroupMember], kafka_group: KafkaGroup) -> set[str]:
    """The topics of a group's selection, else those that it subscribes to, owns or has offsets of."""
    if nodes.selection is not None and nodes.selection.topics is not None:
        return set(nodes.selection.topics)
    topics = {topic for member in members for topic in member.streams}
    topics.update(*(nodes.names(parent) for parent in nodes.paths(group)[2:]))
    topics.update(partition.topic for partition in kafka_group.offsets)
    if nodes.selection is None:
        topics.update(partition.topic for partition in assigned(kafka_group))
    return topics


def assigned(kafka_group: KafkaGroup) -> dict[TopicPartition, str]:
    """Which member of the group in Kafka has which partition."""
    members = kafka_group.group.members if kafka_group.group is not None else ()
    return {partition: member.member for member in members for partition in member.assigned}


def members_of(group: str, nodes: NodeCache, selections: TopicSelections) -> tuple[GroupMember, ...]:
    """The registered members, in the order of their names."""
    found = []
    for name, path in sorted(nodes.children(nodes.paths(group).ids)):
        node = nodes.node(path)
        if node is not None:
            found.append(decode_member(group, name, node, selections))
        elif why := nodes.failure(path):
            found.append(GroupMember(name, host_of(group, name), 0, None, error=str(why), is_unreadable=True))
    return read_foreign(group, found, selections)


def foreign_children(group: str, nodes: NodeCache) -> tuple[str, ...]:
    """The paths below a group's node that neither consumers nor zkgroup make."""
    paths = paths_of(group)
    known = {*paths, f"{paths.group}/zkgroup"}
    return tuple(sorted(path for path in child_paths(paths.group, nodes) if path not in known))


def child_paths(parent: str, nodes: NodeCache) -> list[str]:
    """The paths of the children that were listed."""
    return [path for _, path in nodes.children(parent)]


def child_path(parent: str, name: str) -> str | None:
    """The path of a child, None for a name that no znode can have."""
    try:
        return znodes.child(parent, name)
    except UsageError:
        return None


def topic_path(topic: str) -> str | None:
    """The path of a topic's registration; None for what cannot be one: a subscription may name anything."""
    return child_path(znodes.topics(), topic)
