"""Groups in Kafka, asked of real coordinators."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from cli import run
from group_nodes import commit_in_kafka, joined
from topic_changes import delete_topic

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.group_coordinator import Coordinators
from zkgroup.clients.kafka.registered_brokers import Brokers
from zkgroup.clients.kafka.responses import KafkaGroup, KafkaOffset
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import NoAnswerError
from zkgroup.groups.snapshot.group_reader import read_group
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.processes import free_port
from zkgroup.sandbox.topic_admin import create_topic

P = TopicPartition


@pytest.fixture
def coordinators(kafka: KafkaSettings) -> Iterator[Coordinators]:
    """The shared cluster's."""
    return Coordinators(kafka, 20.0)


def test_a_live_group(
    coordinators: Coordinators, kafka: KafkaSettings, make_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    """State, strategy, members with their share, and every committed offset with its metadata."""
    topic, group = make_topic(3), unique("live")
    with joined(kafka, group, [topic]) as member:
        member.commit(P(topic, 1), 7, "said")
        kafka_group = coordinators.read_group(group)
        assert kafka_group.failures == {}
        assert kafka_group.group is not None
        assert (kafka_group.group.state, kafka_group.group.strategy, kafka_group.group.coordinator) == (
            "Stable",
            "range",
            1,
        )
        (found,) = kafka_group.group.members
        assert found.assigned == (P(topic, 0), P(topic, 1), P(topic, 2))
        assert (found.client_id, found.host) == ("tester", "127.0.0.1")
        assert found.member.startswith("tester-")
        assert kafka_group.offsets == {P(topic, 1): KafkaOffset(7, "said")}
    listed = coordinators.names()
    assert group in listed.names
    assert listed.warnings == ()


@pytest.mark.parametrize("by_partition", [False, True])
def test_offsets_without_members(
    coordinators: Coordinators, kafka: KafkaSettings, make_topic: Callable[..., str], unique: Callable[[str], str],
    by_partition: bool,
) -> None:  # fmt: skip
    """What the Scala consumer keeps in Kafka is there whole, however it is asked for; other groups are
    distinguished."""
    topic, other = make_topic(3), make_topic(1)
    one, two = unique("stored"), unique("stored")
    commit_in_kafka(kafka, one, {P(topic, 0): 5, P(topic, 2): 0, P(other, 0): 9})
    commit_in_kafka(kafka, two, {P(other, 0): 1})
    nobody = unique("nobody")
    kafka_groups = coordinators.read_groups([one, two, nobody, "", "a\0b"], by_partition=by_partition)
    assert kafka_groups[one].offsets == {
        P(topic, 0): KafkaOffset(5),
        P(topic, 2): KafkaOffset(0),
        P(other, 0): KafkaOffset(9),
    }
    assert kafka_groups[two].offsets == {P(other, 0): KafkaOffset(1)}
    found = kafka_groups[one].group
    assert found is not None
    assert (found.state, found.members, found.strategy) == ("Empty", (), None)
    assert kafka_groups[nobody] == kafka_groups[""] == kafka_groups["a\0b"] == KafkaGroup()


def test_many_groups_at_once(
    coordinators: Coordinators, kafka: KafkaSettings, make_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    """A hundred groups are answered together, each with its own."""
    topic = make_topic(1)
    names = [unique("many") for _ in range(100)]
    for index, name in enumerate(names[:3]):
        commit_in_kafka(kafka, name, {P(topic, 0): index})
    kafka_groups = coordinators.read_groups(names)
    assert [kafka_group.offsets for kafka_group in kafka_groups.values()][:4] == [
        {P(topic, 0): KafkaOffset(0)}, {P(topic, 0): KafkaOffset(1)}, {P(topic, 0): KafkaOffset(2)}, {},
    ]  # fmt: skip
    assert list(kafka_groups) == names


def test_the_clusters_topics(coordinators: Coordinators, make_topic: Callable[..., str]) -> None:
    """Every topic's partitions in numeric order, with their leader, and the brokers."""
    topic = make_topic(11)
    assert list(coordinators.leaders()[topic].items()) == [(number, 1) for number in range(11)]
    assert coordinators.broker_ids() == (1,)


def test_brokers_that_are_away(unique: Callable[[str], str]) -> None:
    """Each question says that there was no answer in the time given."""
    address = f"127.0.0.1:{free_port()}"
    nowhere = Coordinators(KafkaSettings(address), 0.3)
    for question in (nowhere.names, nowhere.leaders, nowhere.broker_ids, lambda: nowhere.read_groups(["g"])):
        with pytest.raises(NoAnswerError, match=rf"{address}\b.*\b0\.3 s"):
            question()


@pytest.mark.parametrize("release", ["0.8.2.2", pytest.param("0.9.0.1", marks=pytest.mark.long),
                                     pytest.param("0.10.1.1", marks=pytest.mark.long)])  # fmt: skip
def test_releases_that_tell_less(make_sandbox: Callable[..., Sandbox], zookeeper: Sandbox, release: str) -> None:
    """Offsets are reported by every release, known to be old or not, of all topics or of those named; a group without
    members is no error on any. A snapshot of the registry shows what has to be asked for."""
    sandbox = make_sandbox(kafka=release, zookeeper=zookeeper.address, chroot=f"/coordinator-{release}")
    with sandbox.registry(timeout=30.0) as registry:
        settings = Brokers(registry.read, {}).settings()
        create_topic(registry, "t", 3)
        create_topic(registry, "u", 1)
        commit_in_kafka(settings, "g", {P("t", 2): 5, P("u", 0): 6})
        for by_partition in (True, False):
            kafka_groups = Coordinators(settings, 20.0).read_groups(["g", "nobody"], by_partition=by_partition)
            assert kafka_groups["g"].offsets == {P("t", 2): KafkaOffset(5), P("u", 0): KafkaOffset(6)}
            assert (kafka_groups["g"].failures, kafka_groups["nobody"]) == ({}, KafkaGroup())
        some = Coordinators(settings, 20.0).read_groups(
            ["g", "n"], by_partition=True, topics={"g": ["u", "x"], "n": []}
        )
        assert some["g"].offsets == {P("u", 0): KafkaOffset(6)}
        names, is_unlisted, missing = Coordinators(settings, 20.0).names()
        assert (is_unlisted, missing) == (release in ("0.8.2.2", "0.9.0.1"), ())
        assert set(names) <= {"g"}
        snapshot = read_group(registry, "g", kafka=settings)
        assert [(p.name, p.committed("kafka"), p.log_end) for p in snapshot.partitions] == [
            ("t-0", None, 0), ("t-1", None, 0), ("t-2", 5, 0), ("u-0", 6, 0),
        ]  # fmt: skip
        assert snapshot.warnings == ()
        whole = run("list-groups", "-z", sandbox.connect)
        listed = "g" in [line.split()[0] for line in whole.stdout.splitlines()]
        assert listed == ("g" in names)
        assert whole.stderr.count("zkgroup: warning: ") == (not listed)


def test_offsets_of_a_topic_that_is_gone(
    coordinators: Coordinators, kafka: KafkaSettings, registry: Registry, make_topic: Callable[..., str],
    unique: Callable[[str], str],
) -> None:  # fmt: skip
    """The broker forgets them with the topic; the others stay."""
    kept, gone, group = make_topic(1), unique("gone"), unique("stored")
    create_topic(registry, gone, 1)
    commit_in_kafka(kafka, group, {P(kept, 0): 5, P(gone, 0): 6})
    delete_topic(registry, gone)
    offsets = coordinators.read_group(group).offsets
    assert offsets[P(kept, 0)] == KafkaOffset(5)
    assert set(offsets) <= {P(kept, 0), P(gone, 0)}
