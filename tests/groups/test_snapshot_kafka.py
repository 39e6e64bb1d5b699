"""Reading groups that live in Kafka, in ZooKeeper, and in both."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from group_nodes import Groups, commit_in_kafka, joined, static
from lines import names
from topic_changes import add_partitions

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import NotFoundError, UnreachableError
from zkgroup.groups.snapshot.group_reader import read_group, read_groups
from zkgroup.groups.snapshot.snapshot_defects import ownership_defects
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.processes import free_port

P = TopicPartition


def test_a_group_in_kafka(
    registry: Registry, kafka: KafkaSettings, make_topic: Callable[..., str], fill: Callable[..., object],
    unique: Callable[[str], str],
) -> None:  # fmt: skip
    """Its share, its offsets and the logs; with ZooKeeper and, but for what only that shows, without."""
    topic, group = make_topic(2), unique("in-kafka")
    fill(topic, 10, 2)
    with joined(kafka, group, [topic]) as member:
        member.commit(P(topic, 0), 3)
        for snapshot in (read_group(registry, group, kafka=kafka), read_group(None, group, kafka=kafka)):
            assert (snapshot.store, snapshot.state, snapshot.in_zookeeper, snapshot.members) == (
                "kafka",
                "active",
                False,
                (),
            )
            assert [(p.name, p.leader, p.log_end, p.lag("kafka")) for p in snapshot.partitions] == [
                (f"{topic}-0", 1, 5, 2),
                (f"{topic}-1", 1, 5, None),
            ]
            assert snapshot.coordinator is not None
            assert snapshot.coordinator.members[0].assigned == (P(topic, 0), P(topic, 1))
            assert snapshot.topics[topic].partitions == (0, 1)
            assert snapshot.warnings == snapshot.problems == ()
            assert ownership_defects(snapshot) == []
            assert snapshot.broker_ids == (1,)
        assert group in {one.group for one in read_groups(None, kafka=kafka)}
    assert read_group(registry, group, kafka=kafka).state == "inactive"
    with pytest.raises(NotFoundError, match=rf"\b{group}\b.*\bZooKeeper\b"):
        read_group(registry, group, kafka=kafka, store="zookeeper")
    with pytest.raises(NotFoundError, match=rf"\b{group}\b.*\bZooKeeper\b"):
        read_group(registry, group)


def test_a_group_in_both(
    registry: Registry, kafka: KafkaSettings, groups: Groups, make_topic: Callable[..., str],
    fill: Callable[..., object],
) -> None:  # fmt: skip
    """Both offsets stand at their partition; the larger one counts where both do."""
    topic = make_topic(3)
    fill(topic, 30, 3)
    group = groups.make({"@_a": static({topic: 1})}, {(topic, 0): "@_a-0"}, {(topic, 0): 4, (topic, 1): 9})
    commit_in_kafka(kafka, group, {P(topic, 0): 6, P(topic, 1): 8, P(topic, 2): 1})
    snapshot = read_group(registry, group, kafka=kafka)
    assert (snapshot.store, snapshot.state) == ("both", "active")
    stores = ("zookeeper", "kafka", "both")
    assert [[p.committed(store) for store in stores] for p in snapshot.partitions] == [
        [4, 6, 6],
        [9, 8, 9],
        [None, 1, 1],
    ]
    assert [p.lag("both") for p in snapshot.partitions] == [4, 1, 9]
    alone = read_group(registry, group, kafka=kafka, store="zookeeper")
    assert (alone.store, alone.coordinator, alone.partitions[0].kafka) == ("zookeeper", None, None)
    assert alone.partitions[0].log_end == 10
    without = read_group(registry, group, kafka=kafka, logs=False)
    assert [(p.log_end, p.log_error) for p in without.partitions] == [(None, None)] * 3
    assert without.partitions[0].kafka is not None
    listed = {one.group: one for one in read_groups(registry, kafka=kafka)}
    assert listed[group].store == "both"


def test_a_share_that_is_not_whole(
    registry: Registry, kafka: KafkaSettings, make_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    """A partition of an assigned topic that no member in Kafka has is a defect of the ownership."""
    topic, group = make_topic(1), unique("in-kafka")
    with joined(kafka, group, [topic]):
        add_partitions(registry, topic, 2)
        defects = ownership_defects(read_group(registry, group, kafka=kafka))
        assert [names(text, f"{topic}-1", "Kafka") for text in defects] == [True]


def test_without_zookeeper_brokers_must_answer(unique: Callable[[str], str]) -> None:
    """There is nothing to show then: UnreachableError, for one group and for all."""
    nowhere = KafkaSettings(f"127.0.0.1:{free_port()}")
    with pytest.raises(UnreachableError):
        read_group(None, unique("group"), kafka=nowhere, timeout=0.3)
    with pytest.raises(UnreachableError):
        read_groups(None, kafka=nowhere, timeout=0.3)


@pytest.mark.parametrize("near", ["registry", "brokers"])
def test_an_unknown_group(
    registry: Registry, kafka: KafkaSettings, make_topic: Callable[..., str], unique: Callable[[str], str], near: str
) -> None:
    """The error says where it was looked for, and which names are near."""
    group = unique("well-known")
    commit_in_kafka(kafka, group, {P(make_topic(1), 0): 0})
    with pytest.raises(NotFoundError) as caught:
        read_group(registry if near == "registry" else None, group[:-1] + "x", kafka=kafka)
    assert group in str(caught.value)
    assert names(str(caught.value), *(["ZooKeeper"] if near == "registry" else []), "Kafka")
