"""Groups for tests, written node by node; and the whole of what a cluster's nodes are, to see that nothing changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from support import wait_until

from zkgroup.clients.kafka.client import Consumer, KafkaSettings, KafkaTopicPartition
from zkgroup.clients.kafka.group_consumers import GroupOffsets
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Children, Create, Ensure, Failure, Get, Node
from zkgroup.protocol.znodes import Registration, encode_registration

STAMP = 1411294187842
Nodes = dict[str, tuple[bytes, int, int]]

HOSTILE = [
    "a/b", "..", ".", "", "a\x00b", "a\x1b[31mb", "a\nb", "ä é 漢字", "\ud800", "a" * 5000, "/", "../../../ids",
    "\u202eabc", "b" * 40_000,
]  # fmt: skip


def static(topics: Mapping[str, int]) -> bytes:
    """An id node's data."""
    return encode_registration(Registration("static", topics, STAMP))


def white_list(expression: str, streams: int = 1) -> bytes:
    return encode_registration(Registration("white_list", {expression: streams}, STAMP))


class Groups:
    """Writes groups whose members live as long as this is open. ``@`` in names is the group's name."""

    def __init__(self, session: Registry, unique: Callable[[str], str]) -> None:
        self.session = session
        self._unique = unique

    def make(
        self,
        members: Mapping[str, bytes] | None = None,
        owners: Mapping[tuple[str, int | str], str | bytes] | None = None,
        offsets: Mapping[tuple[str, int | str], int | bytes] | None = None,
        *,
        name: str | None = None,
    ) -> str:
        """Write a group; ``ids`` is only there with ``members``, and so on."""
        group = self._unique("group") if name is None else name
        self.write(Ensure(znodes.group(group)))
        if members is not None:
            self.write(Ensure(znodes.ids(group)))
        for member, data in (members or {}).items():
            path = znodes.member_id(group, member.replace("@", group))
            self.write(Create(path, data, ephemeral=True))
        for (topic, number), owner in (owners or {}).items():
            data = owner if isinstance(owner, bytes) else owner.replace("@", group).encode()
            self.write(Ensure(znodes.owner_topic(group, topic)))
            self.write(Create(f"{znodes.owner_topic(group, topic)}/{number}", data, ephemeral=True))
        for (topic, number), value in (offsets or {}).items():
            self.write(Ensure(znodes.offset_topic(group, topic)))
            data = value if isinstance(value, bytes) else b"%d" % value
            self.write(Create(f"{znodes.offset_topic(group, topic)}/{number}", data))
        return group

    def write(self, op: Create | Ensure) -> None:
        result = self.session.write(op)
        assert not isinstance(result, Failure), (op, result)


@contextmanager
def groups_on(registry: Registry, unique: Callable[[str], str]) -> Iterator[Groups]:
    """Groups with a session of their own, which ends with the test."""
    with Registry(registry.settings, 30.0) as session:
        yield Groups(session, unique)


def commit_in_kafka(kafka: KafkaSettings, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit as the Scala consumer does that keeps its offsets in Kafka."""
    client = GroupOffsets(kafka, group)
    try:
        client.commit(offsets, 30)
    finally:
        client.close()


def tree(registry: Registry, root: str) -> Nodes:
    """Every node below ``root``: path → data, version, identity."""
    found: Nodes = {}
    level = [root]
    while level:
        nodes = registry.read([Get(path) for path in level])
        lists = registry.read([Children(path) for path in level])
        for path, node in zip(level, nodes, strict=True):
            if isinstance(node, Node):
                found[path] = (node.data, node.stat.version, node.stat.czxid)
        level = [
            f"{path}/{name}"
            for path, names in zip(level, lists, strict=True)
            if isinstance(names, tuple)
            for name in sorted(names)
        ]
    return found


class KafkaMember:
    """A member of a group in Kafka: librdkafka's own consumer."""

    def __init__(self, kafka: KafkaSettings, group: str, topics: Sequence[str]) -> None:
        settings = {"bootstrap.servers": kafka.bootstrap, "group.id": group, "client.id": "tester"}
        self._consumer = Consumer(settings | {"enable.auto.commit": "false", "auto.offset.reset": "earliest"})
        self._consumer.subscribe(list(topics))

    @property
    def share(self) -> set[TopicPartition]:
        """What it was given so far."""
        self._consumer.poll(0.05)
        return {TopicPartition(p.topic, p.partition) for p in self._consumer.assignment()}

    def commit(self, partition: TopicPartition, offset: int, metadata: str = "") -> None:
        self._consumer.commit(offsets=[KafkaTopicPartition(*partition, offset, metadata)], asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def joined(kafka: KafkaSettings, group: str, topics: Sequence[str]) -> Iterator[KafkaMember]:
    """A member that has got its share."""
    member = KafkaMember(kafka, group, topics)
    try:
        wait_until(lambda: member.share, 30, "the member's share")
        yield member
    finally:
        member.close()
