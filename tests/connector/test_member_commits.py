"""Stored offsets on real servers: where a member starts, what it writes, and what others do to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from lines import names
from members import ReadMember, committed, owners
from support import wait_until

from zkgroup.clients.kafka import group_consumers
from zkgroup.clients.kafka.client import Consumer, KafkaSettings, consumer
from zkgroup.clients.kafka.group_consumers import GroupOffsets
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.connector import StartAt
from zkgroup.errors import MalformedZnodeError, OffsetOutOfRangeError
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Create, Ensure, Exists, Failure, Get, Node, SetData
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import ProducerRecord

Make = Callable[..., str]
Fill = Callable[..., list[ProducerRecord]]
Unique = Callable[[str], str]


def store(registry: Registry, group: str, topic: str, offsets: dict[int, bytes]) -> None:
    """Write offset nodes by hand."""
    registry.write(Ensure(znodes.offset_topic(group, topic)))
    for number, data in offsets.items():
        path = znodes.offset(group, TopicPartition(topic, number))
        if isinstance(registry.write(Create(path, data)), Failure):
            assert not isinstance(registry.write(SetData(path, data)), Failure)


@pytest.fixture
def in_kafka(kafka: KafkaSettings) -> Iterator[Callable[[str], GroupOffsets]]:
    """``in_kafka(group)``: the group's offsets that the brokers keep."""
    made: list[GroupOffsets] = []

    def make(group: str) -> GroupOffsets:
        made.append(GroupOffsets(kafka, group))
        return made[-1]

    yield make
    for offsets in made:
        offsets.close()


def test_a_member_starts_at_the_stored_offset(
    cluster: Sandbox, registry: Registry, make_topic: Make, unique: Unique, fill: Fill
) -> None:
    """Blanks do not matter, and −1 counts as none: then the reset says where to start."""
    topic, group = make_topic(3), unique("group")
    fill(topic, 30, 3)
    store(registry, group, topic, {0: b" 7\n", 1: b"-1"})
    with ReadMember(cluster.connect, group, {topic: 1}) as member:
        wait_until(lambda: len(member.records) >= 23, 10, "what is left is read")
        firsts = {p: min(r.offset for r in member.records if r.partition == p) for p in range(3)}
        assert firsts == {0: 7, 1: 0, 2: 0}
    assert committed(registry, group, topic, 3) == [10, 10, 10]


def test_without_a_reset_a_new_group_starts_at_the_end(
    cluster: Sandbox, registry: Registry, make_topic: Make, unique: Unique, fill: Fill
) -> None:
    """As the Scala consumer's default; the offset is stored though nothing was read."""
    topic, group = make_topic(1), unique("group")
    fill(topic, 10)
    with ReadMember(cluster.connect, group, {topic: 1}, auto_offset_reset=None) as member:
        wait_until(lambda: committed(registry, group, topic, 1) == [10], 10, "the end is committed")
        assert member.records == []


def test_another_start_can_be_asked_for(cluster: Sandbox, make_topic: Make, unique: Unique, fill: Fill) -> None:
    """Only where nothing is stored: the last three here."""
    topic = make_topic(1)
    fill(topic, 10)
    with ReadMember(cluster.connect, unique("group"), {topic: 1}, start=StartAt("tail", 3)) as member:
        wait_until(lambda: len(member.records) == 3, 10, "the last three")
        assert [record.offset for record in member.records] == [7, 8, 9]


def test_an_offset_node_is_written_only_when_it_moves(
    cluster: Sandbox, registry: Registry, make_topic: Make, unique: Unique, fill: Fill
) -> None:
    """Its modification time means last progress."""
    topic, group = make_topic(2), unique("group")
    fill(topic, 1, 1)
    with ReadMember(cluster.connect, group, {topic: 1}) as member:
        wait_until(lambda: committed(registry, group, topic, 2) == [1, 0], 10, "committed")
        done = member.connector.statistics().counters.commits
        wait_until(lambda: member.connector.statistics().counters.commits >= done + 3, 10, "three commits more")
    nodes = registry.read([Get(znodes.offset(group, TopicPartition(topic, number))) for number in range(2)])
    assert [node.stat.version for node in nodes if isinstance(node, Node)] == [nodes[0].stat.version, 0]
    assert isinstance(nodes[0], Node)
    assert nodes[0].stat.version <= 1


def test_a_malformed_offset_node_holds_back_its_partition_until_it_is_repaired(
    cluster: Sandbox, registry: Registry, make_topic: Make, unique: Unique, fill: Fill, caplog: pytest.LogCaptureFixture
) -> None:
    """The node is named and left as it is, the other partitions are read."""
    topic, group = make_topic(2), unique("group")
    fill(topic, 20, 2)
    store(registry, group, topic, {0: b"ten"})
    path = znodes.offset(group, TopicPartition(topic, 0))
    with ReadMember(cluster.connect, group, {topic: 1}) as member:
        wait_until(lambda: len(member.records) == 10, 10, "the other partition is read")
        assert list(member.connector.statistics().held_back) == [TopicPartition(topic, 0)]
        assert path in caplog.text
        registry.write(SetData(path, b"5"))
        wait_until(lambda: len(member.records) == 15, 15, "the mended one is read")
    assert committed(registry, group, topic, 2) == [10, 10]


def test_nothing_but_malformed_offset_nodes_ends_the_member(
    cluster: Sandbox, registry: Registry, make_topic: Make, unique: Unique
) -> None:
    """Sitting there without anything to read would look like work: joining fails, and names the node."""
    topic, group = make_topic(1), unique("group")
    store(registry, group, topic, {0: b""})
    with pytest.raises(MalformedZnodeError, match=znodes.offset(group, TopicPartition(topic, 0))):
        ReadMember(cluster.connect, group, {topic: 1})
    assert owners(registry, group) == {}


def test_a_foreign_write_is_seen_and_counted(
    cluster: Sandbox,
    registry: Registry,
    make_topic: Make,
    unique: Unique,
    fill: Fill,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Somebody moves an offset under its owner: it is reported, and one ahead of the owner is not taken back."""
    topic, group = make_topic(1), unique("group")
    fill(topic, 10)
    with ReadMember(cluster.connect, group, {topic: 1}) as member:
        wait_until(lambda: committed(registry, group, topic, 1) == [10], 10, "committed")
        store(registry, group, topic, {0: b"15"})
        fill(topic, 3)
        wait_until(lambda: names(caplog.text, f"{topic}-0", 15), 10, "logged")  # right after it is counted
        assert member.connector.statistics().counters.foreign_writes == 1
        assert committed(registry, group, topic, 1) == [15]
        fill(topic, 7)
        wait_until(lambda: committed(registry, group, topic, 1) == [20], 10, "past it, it goes on")
    assert member.connector.statistics().counters.foreign_writes == 1


@pytest.mark.parametrize(("stored", "reset", "first"), [(b"99", "smallest", 0), (b"99", "largest", 10)])
def test_an_offset_out_of_range_follows_the_reset(
    cluster: Sandbox,
    registry: Registry,
    make_topic: Make,
    unique: Unique,
    fill: Fill,
    stored: bytes,
    reset: str,
    first: int,
) -> None:
    """Reading goes on at the log's start or end, and that offset is committed, backwards too; the other partition is
    not disturbed."""
    topic, group = make_topic(2), unique("group")
    fill(topic, 20, 2)
    store(registry, group, topic, {0: stored, 1: b"0"})
    with ReadMember(cluster.connect, group, {topic: 1}, auto_offset_reset=reset) as member:
        wait_until(lambda: sum(s.resets for s in member.connector.statistics().streams) == 1, 15, "reset")
        fill(topic, 2, 2)
        wait_until(lambda: committed(registry, group, topic, 2) == [11, 11], 15, "everything committed")
        offsets = [[r.offset for r in member.records if r.partition == number] for number in range(2)]
        assert offsets == [list(range(first, 11)), list(range(11))]


def test_an_offset_out_of_range_without_a_reset_ends_the_member(
    cluster: Sandbox, registry: Registry, make_topic: Make, unique: Unique, fill: Fill
) -> None:
    """The error says what is out of range and what to do; what was read elsewhere is committed, the offset left."""
    topic, group = make_topic(2), unique("group")
    fill(topic, 20, 2)
    store(registry, group, topic, {0: b"99", 1: b"0"})
    member = ReadMember(cluster.connect, group, {topic: 1}, auto_offset_reset=None)
    error = member.wait_for_error(OffsetOutOfRangeError)
    assert names(str(error), 99, f"{topic}-0", 10)
    assert member.failures == [error]
    assert committed(registry, group, topic, 2)[0] == 99
    assert committed(registry, group, topic, 2)[1] in (0, 10)
    assert registry.read([Exists(znodes.member_id(group, member.id))]) == [None]


def test_offsets_kept_in_kafka(
    cluster: Sandbox,
    registry: Registry,
    make_topic: Make,
    unique: Unique,
    fill: Fill,
    in_kafka: Callable[[str], GroupOffsets],
) -> None:
    """Read from and written to the brokers alone: ZooKeeper has no offsets, and its own are not read."""
    topic, group = make_topic(2), unique("group")
    fill(topic, 20, 2)
    partitions = [TopicPartition(topic, number) for number in range(2)]
    stored = in_kafka(group)
    stored.commit({partitions[0]: 4}, 10.0)
    store(registry, group, topic, {0: b"9"})
    options = {"offsets_storage": "kafka", "dual_commit_enabled": False}
    with ReadMember(cluster.connect, group, {topic: 1}, **options) as member:
        wait_until(lambda: len(member.records) == 16, 15, "what is left is read")
        member.connector.commit()
    assert stored.fetch(partitions, 10.0) == {partitions[0]: 10, partitions[1]: 10}
    assert committed(registry, group, topic, 2) == [9, None]


def test_the_client_for_offsets_has_properties_of_its_own(
    cluster: Sandbox, make_topic: Make, unique: Unique, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``offsets.channel.*`` is for the client that commits to Kafka, and not for those that fetch; the client id and
    raw ``kafka.*`` are for all."""
    made: list[dict[str, Any]] = []

    def recorded(settings: KafkaSettings, **options: Any) -> Consumer:
        made.append(dict(options, raw=dict(settings.properties)))
        return consumer(settings, **options)

    monkeypatch.setattr(group_consumers, "consumer", recorded)
    topic = make_topic(1)
    fill(topic, 5)
    options = {
        "offsets_storage": "kafka",
        "client_id": "billing",
        "offsets_channel_socket_timeout_ms": 7000,
        "explicit": frozenset({"offsets.channel.socket.timeout.ms"}),
        "kafka": {"socket.nagle.disable": "true"},
    }
    with ReadMember(cluster.connect, unique("group"), {topic: 1}, **options) as member:
        member.connector.commit()
    (used,) = made
    assert (used["client_id"], used["socket_timeout_ms"]) == ("billing", "7000")
    assert used["raw"] == {"socket.nagle.disable": "true"}


def test_dual_commits_write_both_and_start_at_the_larger(
    cluster: Sandbox,
    registry: Registry,
    make_topic: Make,
    unique: Unique,
    fill: Fill,
    in_kafka: Callable[[str], GroupOffsets],
) -> None:
    """ZooKeeper and Kafka hold the same afterwards; before, each partition starts where more was consumed."""
    topic, group = make_topic(3), unique("group")
    fill(topic, 30, 3)
    partitions = [TopicPartition(topic, number) for number in range(3)]
    stored = in_kafka(group)
    stored.commit({partitions[0]: 4, partitions[1]: 8}, 10.0)
    store(registry, group, topic, {0: b"6", 1: b"2"})
    with ReadMember(cluster.connect, group, {topic: 1}, offsets_storage="kafka") as member:
        wait_until(lambda: len(member.records) == 4 + 2 + 10, 15, "what is left is read")
    assert stored.fetch(partitions, 10.0) == dict.fromkeys(partitions, 10)
    assert committed(registry, group, topic, 3) == [10, 10, 10]
