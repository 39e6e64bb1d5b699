"""What a member follows on real servers: topics that come and go, partitions, brokers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from members import ReadMember, committed, owners, plan, wait_for_rest
from support import numbered, values, wait_until
from topic_changes import add_partitions, delete_topic

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.connector import zookeeper_driver
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Create, Delete, Ensure, Get, Node
from zkgroup.protocol.topic_filter import TopicFilter
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import ProducerRecord, create_topic, produce

Make = Callable[..., str]
Fill = Callable[..., list[ProducerRecord]]
Unique = Callable[[str], str]


def test_a_white_list_follows_topics_that_come_and_go(
    cluster: Sandbox, registry: Registry, unique: Unique, fill: Fill
) -> None:
    """A topic that is made is read from its beginning, one that is deleted is given up; others go on."""
    stem, group = unique("follow"), unique("group")
    first, second = f"{stem}-1", f"{stem}-2"
    with ReadMember(cluster.connect, group, TopicFilter("white_list", f"{stem}-.*")) as member:
        assert member.owned == ()
        create_topic(registry, first, 2)
        member.wait_for(values(fill(first, 10, 2)))
        create_topic(registry, second, 1)
        produce(KafkaSettings(cluster.bootstrap), second, [ProducerRecord(b"second", None, 0)])
        member.wait_for({b"second"})
        delete_topic(registry, second)
        wait_for_rest(registry, group, 1)
        assert {partition.topic for partition in member.owned} == {first}
        assert member.connector.statistics().counters.failed_attempts == 0


def test_a_black_list_reads_all_others(cluster: Sandbox, registry: Registry, make_topic: Make, unique: Unique) -> None:
    """Everything but what it names, the internal topics left out."""
    kept, left, group = make_topic(1, "black"), make_topic(1, "black"), unique("group")
    with ReadMember(cluster.connect, group, TopicFilter("black_list", left), auto_offset_reset="largest") as member:
        owned = {partition.topic for partition in member.owned}
        assert kept in owned
        assert left not in owned
        assert not any(topic.startswith("__") for topic in owned)
        assert owners(registry, group).keys() == set(member.owned)


def test_new_partitions_are_read_from_their_beginning(
    cluster: Sandbox, registry: Registry, make_topic: Make, unique: Unique, kafka: KafkaSettings
) -> None:
    """A topic that grows is followed, by all members; what was written before they noticed is not missed."""
    topic, group = make_topic(2), unique("group")
    with (
        ReadMember(cluster.connect, group, {topic: 1}, consumer_id="a") as one,
        ReadMember(cluster.connect, group, {topic: 1}, consumer_id="b") as other,
    ):
        wait_for_rest(registry, group, 2)
        add_partitions(registry, topic, 5)
        produce(kafka, topic, numbered(50, 5))
        wait_until(lambda: len(one.values | other.values) == 50, 20, "everything read")
        wait_for_rest(registry, group, 2)
        assert len(owners(registry, group)) == 5


def test_a_topic_that_does_not_exist_yet_is_waited_for(
    cluster: Sandbox, registry: Registry, unique: Unique, fill: Fill
) -> None:
    """A static subscription may come before its topic."""
    topic, group = unique("later"), unique("group")
    with ReadMember(cluster.connect, group, {topic: 1}) as member:
        assert member.owned == ()
        create_topic(registry, topic, 2)
        member.wait_for(values(fill(topic, 10, 2)))


def test_a_recreated_topic_is_out_of_range_and_reset(
    cluster: Sandbox, registry: Registry, make_topic: Make, unique: Unique, fill: Fill
) -> None:
    """Recreated while owned: the stored offsets lie beyond the new log, and ``smallest`` reads it all."""
    topic, group = make_topic(1), unique("group")
    with ReadMember(cluster.connect, group, {topic: 1}) as member:
        member.wait_for(values(fill(topic, 50)))
        delete_topic(registry, topic)
        wait_until(lambda: member.owned == (), 10, "given up")
        create_topic(registry, topic, 1)
        produce(KafkaSettings(cluster.bootstrap), topic, [ProducerRecord(b"new %d" % n, None, 0) for n in range(5)])
        member.wait_for({b"new %d" % n for n in range(5)})
        assert sum(stream.resets for stream in member.connector.statistics().streams) >= 1
    assert committed(registry, group, topic, 1) == [5]


class BareCluster:
    """A cluster of its own in ZooKeeper, whose broker is the shared one, and is registered only when a test says so."""

    def __init__(self, zookeeper: Sandbox, cluster: Sandbox, registry: Registry, chroot: str) -> None:
        self.connect = f"{zookeeper.address}/{chroot}"
        self._shared = registry
        with Registry(ZooKeeperSettings(zookeeper.address, connect_timeout=20.0)) as root:
            root.write(Ensure(f"/{chroot}"))
        self.registry = Registry(ZooKeeperSettings(self.connect, connect_timeout=20.0))

    def __enter__(self) -> BareCluster:
        self.registry.__enter__()
        self.registry.write(Ensure(znodes.broker_ids()))
        self.registry.write(Ensure(znodes.topics()))
        return self

    def __exit__(self, *_: object) -> None:
        self.registry.close()

    def copy(self, path: str) -> None:
        """A node as the shared cluster has it."""
        (node,) = self._shared.read([Get(path)])
        assert isinstance(node, Node)
        self.registry.write(Create(path, node.data))

    def broker_goes(self) -> None:
        self.registry.write(Delete(znodes.broker(1)))


def test_a_member_waits_for_the_first_broker(
    zookeeper: Sandbox,
    cluster: Sandbox,
    registry: Registry,
    make_topic: Make,
    unique: Unique,
    fill: Fill,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without a broker it owns nothing and waits; with the first it reads. What it owns it keeps while all are away,
    and it goes on when they are back."""
    topic, group = make_topic(2), unique("group")
    sent = values(fill(topic, 20, 2))
    with BareCluster(zookeeper, cluster, registry, unique("bare")) as bare:
        bare.copy(znodes.topic(topic))
        with ReadMember(bare.connect, group, {topic: 1}) as member:
            statistics = member.connector.statistics()
            assert (statistics.phase, statistics.owned) == ("owning", ())
            bare.copy(znodes.broker(1))
            member.wait_for(sent)
            bare.broker_goes()
            caplog.clear()
            # Somebody makes the group rebalance.
            bare.registry.write(Create(f"{znodes.ids(group)}/x", b'{"version":1,"subscription":{},"pattern":"static"}'))
            wait_until(lambda: zookeeper_driver.__name__ in {one.name for one in caplog.records}, 10, "no broker")
            assert owners(bare.registry, group) == plan(bare.registry, group)
            produce(KafkaSettings(cluster.bootstrap), topic, [ProducerRecord(b"while away", None, 0)])
            member.wait_for({b"while away"})
            bare.copy(znodes.broker(1))
            wait_until(lambda: member.connector.statistics().counters.rebalances == 2, 10, "rebalanced when it is back")


def test_a_partition_that_the_brokers_do_not_know_holds_up_nothing_else(
    zookeeper: Sandbox, cluster: Sandbox, registry: Registry, make_topic: Make, unique: Unique, kafka: KafkaSettings
) -> None:
    """It is owned, named as held back, and read as soon as it can be; the others are read meanwhile."""
    topic, group = make_topic(1), unique("group")
    produce(kafka, topic, [ProducerRecord(b"zero", None, 0)])
    with BareCluster(zookeeper, cluster, registry, unique("bare")) as bare:
        bare.copy(znodes.broker(1))
        bare.registry.write(Create(znodes.topic(topic), b'{"version":1,"partitions":{"0":[1],"1":[1]}}'))
        with ReadMember(bare.connect, group, {topic: 1}) as member:
            member.wait_for({b"zero"})
            statistics = member.connector.statistics()
            assert statistics.owned == (TopicPartition(topic, 0), TopicPartition(topic, 1))
            assert list(statistics.held_back) == [TopicPartition(topic, 1)]
            wait_until(lambda: committed(bare.registry, group, topic, 2) == [1, None], 10, "what was read is committed")
            add_partitions(registry, topic, 2)
            produce(kafka, topic, [ProducerRecord(b"one", None, 1), ProducerRecord(b"zero again", None, 0)])
            member.wait_for({b"zero", b"one", b"zero again"})
            statistics = member.connector.statistics()
            assert statistics.held_back == {}
            assert statistics.counters.rebalances == 1
        assert max(member.values.values()) == 1
        assert committed(bare.registry, group, topic, 2) == [2, 1]
