"""Groups with something wrong, on the shared cluster: one for each kind of finding that lasts."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from typing import Final, NamedTuple

from support import numbered
from topic_changes import delete_topic

from zkgroup.clients.kafka.client import KafkaSettings, KafkaTopicPartition, admin_client
from zkgroup.clients.kafka.group_consumers import GroupOffsets
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.groups.findings.finding_kinds import Severity
from zkgroup.groups.group_model import GroupSnapshot
from zkgroup.groups.snapshot.group_reader import read_group
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Create, Delete, Ensure, Failure
from zkgroup.protocol.znodes import Registration, encode_registration
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import create_topic, produce

STAMP: Final = 1411294187842
#: How many messages each partition of ``orders`` has.
MESSAGES: Final = 10
_numbers = itertools.count(1)


class Broken(NamedTuple):
    """A group, and what is to be found of it."""

    code: str
    severity: Severity
    group: str
    subject: str
    facts: tuple[object, ...]


def take_snapshot(registry: Registry, kafka: KafkaSettings | None, group: str) -> GroupSnapshot:
    """The group as it is, with its logs where brokers are given."""
    return read_group(registry, group, kafka=kafka)


def static(**topics: int) -> bytes:
    """An id node's data."""
    return encode_subscription(topics)


def encode_subscription(topics: Mapping[str, int]) -> bytes:
    return encode_registration(Registration("static", topics, STAMP))


def encode_filter(expression: str) -> bytes:
    return encode_registration(Registration("white_list", {expression: 1}, STAMP))


class Maker:
    """Writes groups. ``@`` in the names of members and owners is the group's name. ``sessions`` hold its
    ephemeral nodes: the first those of members, and of owners unless they are to be another's."""

    def __init__(self, sandbox: Sandbox, registry: Registry, sessions: tuple[Registry, Registry]) -> None:
        self.registry = registry
        self.sessions = sessions
        self.kafka = KafkaSettings(sandbox.bootstrap)
        self.orders = self.name("orders")
        create_topic(registry, self.orders, 2)
        produce(self.kafka, self.orders, numbered(2 * MESSAGES, 2))
        self._phantoms: list[str] = []
        self.cut = self._cut_topic()
        self.again = self._young_topic()

    def name(self, stem: str) -> str:
        return f"{stem}-{os.getpid()}-judged-{next(_numbers)}"

    def group(
        self,
        members: Mapping[str, bytes] | None = None,
        owners: Mapping[tuple[str, int | str], str] | None = None,
        offsets: Mapping[tuple[str, int], int | bytes] | None = None,
        *,
        owner_session: int | None = 0,
        persistent_members: bool = False,
    ) -> str:
        """Write a group's nodes; ``owner_session`` None makes its owners persistent."""
        group = self.name("group")
        self._write(Ensure(znodes.ids(group)))
        for name, data in (members or {}).items():
            path = znodes.member_id(group, name.replace("@", group))
            self._write(Create(path, data, ephemeral=not persistent_members), 0)
        for (topic, number), owner in (owners or {}).items():
            self._write(Ensure(znodes.owner_topic(group, topic)))
            path = f"{znodes.owner_topic(group, topic)}/{number}"
            create = Create(path, owner.replace("@", group).encode(), ephemeral=owner_session is not None)
            self._write(create, owner_session or 0)
        for (topic, partition), value in (offsets or {}).items():
            self._write(Ensure(znodes.offset_topic(group, topic)))
            data = value if isinstance(value, bytes) else b"%d" % value
            self._write(Create(znodes.offset(group, TopicPartition(topic, partition)), data))
        return group

    def _write(self, op: Create | Ensure, session: int = 0) -> None:
        result = self.sessions[session].write(op)
        assert not isinstance(result, Failure), (op, result)

    @property
    def sane(self) -> dict[tuple[str, int], int | bytes]:
        """Offsets that lie in the log."""
        return {(self.orders, 0): 5, (self.orders, 1): 5}

    @property
    def both(self) -> dict[tuple[str, int | str], str]:
        """Owners as they should be, with one member of one stream."""
        return {(self.orders, 0): "@_a-0", (self.orders, 1): "@_a-0"}

    def one(self, streams: int = 1) -> dict[str, bytes]:
        return {"@_a": encode_subscription({self.orders: streams})}

    def phantom(self) -> str:
        """A topic whose only replica is on a broker that never was."""
        name = self.name("phantom")
        self._write(Create(znodes.topic(name), b'{"version":1,"partitions":{"0":[99]}}'))
        self._phantoms.append(name)
        return name

    def mark(self, topic: str) -> None:
        self._write(Create(f"{znodes.delete_topics()}/{topic}"))

    def _young_topic(self) -> tuple[str, str]:
        """A topic that was deleted and recreated, and a group that has an offset of the first."""
        topic = self.name("again")
        create_topic(self.registry, topic, 1)
        group = self.group(offsets={(topic, 0): 3})
        delete_topic(self.registry, topic)
        create_topic(self.registry, topic, 1)
        produce(self.kafka, topic, numbered(MESSAGES))
        return topic, group

    def _cut_topic(self) -> str:
        """A topic of ten messages of which the first five are gone."""
        topic = self.name("cut")
        create_topic(self.registry, topic, 1)
        produce(self.kafka, topic, numbered(MESSAGES))
        admin = admin_client(self.kafka, 20)
        (future,) = admin.delete_records([KafkaTopicPartition(topic, 0, 5)]).values()
        future.result(20)
        return topic

    def in_kafka(self, group: str, offset: int) -> None:
        """Commit for the first partition of ``orders`` in Kafka."""
        offsets = GroupOffsets(self.kafka, group)
        try:
            offsets.commit({TopicPartition(self.orders, 0): offset}, 30)
        finally:
            offsets.close()

    def clear(self) -> None:
        """Remove what could be in other tests' way."""
        for name in self._phantoms:
            self.registry.write(Delete(f"{znodes.delete_topics()}/{name}"))
            self.registry.write(Delete(znodes.topic(name)))


def make_broken(m: Maker) -> list[Broken]:
    """All of them. Each has one thing wrong, and what follows from it."""
    orders, first, second = m.orders, f"{m.orders}-0", f"{m.orders}-1"
    made: list[Broken] = []

    def add(code: str, severity: Severity, group: str, subject: str, *facts: object) -> None:
        named = tuple(str(fact).replace("@", group) for fact in facts)
        made.append(Broken(code, severity, group, subject.replace("@", group), named))

    def with_second_member(data: bytes) -> str:
        """A healthy member, and one more."""
        return m.group(m.one() | {"@_b": data}, m.both, m.sane)

    def owning(changes: Mapping[tuple[str, int | str], str], members: Mapping[str, bytes] | None = None) -> str:
        return m.group(members or m.one(), m.both | changes, m.sane)

    def reading(offsets: Mapping[tuple[str, int], int | bytes]) -> str:
        return m.group(m.one(), m.both, m.sane | offsets)

    # registrations
    for data, *facts in [
        (b"no JSON", "'no JSON'"),
        (b'{"version":1,"subscription":{"a":1}}', "pattern"),
        (b'{"version":1,"pattern":"static"}', "subscription"),
        (b'{"version":1,"subscription":{"a":0},"pattern":"static"}', "0"),
        (b"",),
    ]:
        add("stopping-registration", "critical", with_second_member(data), "@_b", *facts)
    add("unreadable-filter", "critical", with_second_member(encode_filter("(")), "@_b", "'('", "Java")
    add("unreadable-filter", "warning", with_second_member(encode_filter("[^a[b]]")), "@_b", "'[^a[b]]'")
    numeric = b'{"version":1,"subscription":{},"pattern":"static","timestamp":1411294187842}'
    add("unportable-registration", "warning", with_second_member(numeric), "@_b", "0.11")
    add("doubly-escaped-filter", "warning", with_second_member(encode_filter(r"orders\\w+")), "@_b", r"'orders\\w+'")
    add("registration-defect", "info", with_second_member(numeric.replace(b'1,"s', b'2,"s')), "@_b", 1)
    add("filter-without-topics", "info", with_second_member(encode_filter("nothing-like")), "@_b", "'nothing-like'")
    add("missing-topic", "info", with_second_member(static(never=1)), "@_b", "never")
    add("persistent-member", "critical", m.group(m.one(), m.both, m.sane, persistent_members=True), "@_a")
    two = {"@_a": encode_subscription({orders: 1}), "@_b": encode_subscription({m.cut: 1})}
    add("subscription-disagreement", "critical", m.group(two, {}, m.sane | {(m.cut, 0): 7}), "@", m.cut, orders, 3)
    add("surplus-streams", "info", m.group(m.one(3), {(orders, 0): "@_a-0", (orders, 1): "@_a-1"}, m.sane), orders)
    foreign = "host:01234567-89ab-cdef-0123-456789abcdef"
    bare = {(orders, 0): foreign, (orders, 1): foreign}
    add("foreign-client", "info", m.group({foreign: encode_subscription({orders: 1})}, bare, m.sane), "@", "host:")

    # owners
    unread = m.group(m.one() | {"@_b": encode_subscription({orders: 1})}, {(orders, 0): "@_a-0"}, m.sane)
    add("partition-without-owner", "critical", unread, second, 5)
    add("member-without-partitions", "critical", unread, "@_b", 1)
    add("unexplained-owners", "warning", unread, "@", "range")
    add("owner-without-registration", "critical", owning({(orders, 1): "@_gone-0"}), second, "@_gone-0")
    add("owner-without-subscription", "critical", owning({(m.cut, 0): "@_a-0"}), f"{m.cut}-0", "@_a-0")
    add("owner-beyond-streams", "critical", owning({(orders, 1): "@_a-1"}), second, "@_a-1", 1)
    add("unreadable-owner", "critical", owning({(orders, 1): ""}), second)
    add("owner-of-missing-partition", "warning", owning({("never", 0): "@_a-0"}, {
        "@_a": encode_subscription({orders: 1, "never": 1})}), "never-0")  # fmt: skip
    mixed = m.one() | {"@_b": encode_subscription({orders: 1})}
    add("unexplained-owners", "warning", m.group(mixed, {(orders, 0): "@_b-0", (orders, 1): "@_a-0"}, m.sane), "@")
    add("persistent-owner", "critical", m.group(m.one(), m.both, m.sane, owner_session=None), f"{orders}-0..1")
    add("owner-of-former-session", "warning", m.group(m.one(), m.both, m.sane, owner_session=1), f"{orders}-0..1")
    add(
        "unreadable-node",
        "warning",
        owning({(orders, "x"): "@_a-0"}),
        f"/consumers/@/owners/{orders}/x",
    )

    # offsets
    add("unreadable-offset", "critical", reading({(orders, 1): b"abc"}), second, "'abc'")
    add("offset-beyond-end", "critical", reading({(orders, 1): 15}), second, 15, 5, 10)
    add("offset-before-start", "critical", m.group(offsets={(m.cut, 0): 2}), f"{m.cut}-0", 2, 5, 3)
    add("recreated-topic", "critical", m.again[1], m.again[0], 0, 3)
    add("partition-without-offset", "info", m.group(m.one(), m.both, {(orders, 0): 5}), second)
    add("partition-without-offset", "warning", m.group(offsets={(orders, 0): 5}), second)
    add("offset-of-missing-topic", "warning", reading({("never", 0): 5}), "never", 1)
    add("offset-of-missing-partition", "warning", reading({(orders, 7): 5}), f"{orders}-7", orders, 2)
    add("offset-without-subscriber", "info", reading({(m.cut, 0): 7}), m.cut)
    contradicting = m.group(offsets=m.sane)
    m.in_kafka(contradicting, 8)
    add("contradicting-offsets", "warning", contradicting, first, 5, "ZooKeeper", 8, "Kafka", 3)
    running = reading({})
    m.in_kafka(running, 4)
    add("contradicting-offsets", "info", running, first, 5, "ZooKeeper", 4, "Kafka", 1)

    # topics
    phantom = m.phantom()
    m.mark(phantom)
    ghost = m.group({"@_a": encode_subscription({phantom: 1})}, {(phantom, 0): "@_a-0"}, {(phantom, 0): 0})
    add("partition-without-leader", "critical", ghost, f"{phantom}-0")
    add("topic-marked-for-deletion", "warning", ghost, phantom)
    return made
