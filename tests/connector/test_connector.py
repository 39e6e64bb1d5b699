"""A member on real servers: streams, commits, listeners, statistics, leaving."""

from __future__ import annotations

import collections
import itertools
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from members import ReadMember, committed, connector, owners, wait_for_rest
from support import values, wait_until

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.native_reader import NativeMessages, native_module
from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.config import ConsumerConfig
from zkgroup.connector import Connector
from zkgroup.connector.stream import IDLE, SLICE
from zkgroup.connector.stream_reader import StreamReader
from zkgroup.errors import UnreachableError, UsageError
from zkgroup.protocol import znodes
from zkgroup.protocol.member import Member
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Exists, Get, Node, Stat
from zkgroup.protocol.topic_filter import TopicFilter
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import ProducerRecord, produce

Make = Callable[..., str]
Fill = Callable[..., list[ProducerRecord]]
Unique = Callable[[str], str]


def test_a_member_registers_as_the_scala_consumer_does_and_leaves_nothing(
    cluster: Sandbox, registry: Registry, make_topic: Make, unique: Unique
) -> None:
    """Its id node is the Scala consumer's JSON, its owner nodes hold thread ids; after ``close`` both are gone."""
    topic, group = make_topic(2), unique("group")
    with connector(cluster.connect, group, consumer_id="c1") as member:
        streams = member.streams({topic: 2})
        assert [len(streams[topic]), list(streams)] == [2, [topic]]
        path = znodes.member_id(group, f"{group}_c1")
        (node,) = registry.read([Get(path)])
        assert isinstance(node, Node)
        assert node.stat.owner == member.statistics().session_id
        registration = znodes.decode_registration(path, node.data)
        assert (registration.pattern, registration.subscription) == ("static", {topic: 2})
        assert owners(registry, group) == {
            TopicPartition(topic, 0): f"{group}_c1-0",
            TopicPartition(topic, 1): f"{group}_c1-1",
        }
    assert owners(registry, group) == {}
    assert registry.read([Exists(path)]) == [None]


def test_streams_read_their_partitions_and_commit_what_was_read(
    cluster: Sandbox, registry: Registry, make_topic: Make, unique: Unique, fill: Fill
) -> None:
    """Several streams of several topics share them; after a clean leave the offsets are the logs' ends."""
    one, two, group = make_topic(3), make_topic(2), unique("group")
    records = fill(one, 300, 3) + fill(two, 100, 2)
    with ReadMember(cluster.connect, group, {one: 2, two: 1}) as member:
        wait_until(lambda: len(member.records) == len(records), 20, "everything read")
        assert len({(record.topic, record.partition, record.offset) for record in member.records}) == len(records)
        statistics = member.connector.statistics()
        assert statistics.phase == "owning"
        assert statistics.owned == tuple(sorted(owners(registry, group)))
        assert sum(stream.messages for stream in statistics.streams) == len(records)
        assert [stream.partitions for stream in statistics.streams] == [2, 1, 2]
    assert committed(registry, group, one, 3) == [100] * 3
    assert committed(registry, group, two, 2) == [50] * 2


def test_members_share_partitions_and_hand_them_over(
    cluster: Sandbox, registry: Registry, make_topic: Make, unique: Unique, fill: Fill
) -> None:
    """Each partition has one owner whenever the group is at rest, by the plan; nothing is lost or read twice."""
    topic, group = make_topic(7), unique("group")
    members: list[ReadMember] = []
    sent: set[bytes] = set()
    produced = 0
    try:
        for number in range(3):
            members.append(ReadMember(cluster.connect, group, {topic: 1 + number}, consumer_id=f"m{number}"))
            wait_for_rest(registry, group, number + 1)
            sent |= values(fill(topic, 350, 7))
            produced += 350
        members.pop(1).close()
        wait_for_rest(registry, group, 2)
        wait_until(lambda: sum(committed(registry, group, topic, 7)) == produced, 20, "everything committed")
    finally:
        for member in members:
            member.close()
    assert owners(registry, group) == {}


def test_a_reader_that_works_long_is_waited_for_and_one_that_hangs_is_not(
    cluster: Sandbox, registry: Registry, make_topic: Make, unique: Unique, fill: Fill
) -> None:
    """A rebalance waits ``quiesce_timeout`` for the message in hand; then it counts as not consumed, and another reads
    it again."""
    topic, group = make_topic(2), unique("group")
    fill(topic, 2, 2)
    release = threading.Event()
    with ReadMember(
        cluster.connect,
        group,
        {topic: 1},
        consumer_id="a",
        quiesce_timeout_ms=500,
        pace=lambda record: release.wait(20),
    ) as slow:
        wait_until(lambda: slow.records, 10, "something in hand")
        with ReadMember(cluster.connect, group, {topic: 1}, consumer_id="b"):
            wait_for_rest(registry, group, 2)
            assert slow.connector.statistics().counters.abandoned == 1
            release.set()
            # What was in hand has been delivered, and counts once it is delivered again.
            wait_until(lambda: committed(registry, group, topic, 2) == [1, 1], 10, "both read, and committed")


def test_the_slowest_of_several_streams_is_waited_for(
    cluster: Sandbox, registry: Registry, make_topic: Make, unique: Unique, fill: Fill
) -> None:
    """While one of a member's streams has a batch in hand, a member that joins finds its share owned, however long the
    other streams have stopped; it goes on behind that batch once that is done with."""
    topic, group = make_topic(3), unique("group")
    fill(topic, 9, 3)
    contested = TopicPartition(topic, 2)
    with connector(cluster.connect, group, consumer_id="a", quiesce_timeout_ms=60_000) as first:
        slow = first.streams({topic: 2})[topic][1]
        batch = slow.batch(20)
        assert batch is not None
        assert set(owners(registry, group)) >= {contested}
        known: list[Connector] = []
        joined: list[ReadMember] = []
        joining = threading.Thread(
            target=lambda: joined.append(
                ReadMember(cluster.connect, group, {topic: 1}, consumer_id="b", made=known.append,
                           rebalance_backoff_ms=200, rebalance_max_retries=300)
            ),
            daemon=True,
        )  # fmt: skip
        joining.start()
        try:
            wait_until(lambda: known and known[0].statistics().counters.failed_attempts > 1, 20, "it is in the way")
            assert first.statistics().phase == "pausing streams"
            assert owners(registry, group)[contested] == f"{group}_a-1"
            slow.mark()
            wait_for_rest(registry, group, 2)
            fill(topic, 3, 3)
            joining.join(20)
            wait_until(lambda: any(record.offset == 3 for record in joined[0].records), 20, "what comes next")
            offsets = [record.offset for record in joined[0].records]
            assert offsets == list(range(len(batch.messages), 4))
        finally:
            slow.mark()
            joining.join(30)
            for member in joined:
                member.close()


def test_a_filter_reads_what_it_matches(
    cluster: Sandbox, registry: Registry, make_topic: Make, unique: Unique, fill: Fill
) -> None:
    """A white list of several topics with two streams, registered as the Scala consumer registers one."""
    stem, group = unique("white"), unique("group")
    topics = [make_topic(2, f"{stem}-x"), make_topic(1, f"{stem}-y")]
    sent = values(fill(topics[0], 10, 2)) | values(fill(topics[1], 20, 1))
    with ReadMember(cluster.connect, group, TopicFilter("white_list", f"{stem}-.*"), 2) as member:
        member.wait_for(sent)
        (node,) = registry.read([Get(znodes.member_id(group, member.id))])
        assert isinstance(node, Node)
        registration = znodes.decode_registration("", node.data)
        assert (registration.pattern, registration.subscription) == ("white_list", {f"{stem}-.*": 2})
        assert {thread.rsplit("-", 1)[1] for thread in owners(registry, group).values()} == {"0", "1"}
    assert {record.topic for record in member.records} == set(topics)


def test_merged_streams_register_each_topic_and_read_together(
    cluster: Sandbox, registry: Registry, make_topic: Make, unique: Unique, fill: Fill
) -> None:
    """One stream reads several static topics, as a command that prints them needs it."""
    topics, group = [make_topic(2), make_topic(2)], unique("group")
    for topic in topics:
        fill(topic, 10, 2)
    with connector(cluster.connect, group) as member:
        (stream,) = member.merged_streams(topics)
        seen = list(itertools.islice(stream.messages(10), 20))
        assert {record.topic for record in seen} == set(topics)
        (node,) = registry.read([Get(znodes.member_id(group, member.consumer_id))])
        assert isinstance(node, Node)
        assert znodes.decode_registration("", node.data).subscription == dict.fromkeys(topics, 1)


@pytest.mark.parametrize("native", [False, True])
def test_batches_are_tables_with_both_readers(
    cluster: Sandbox, kafka: KafkaSettings, make_topic: Make, unique: Unique, native: bool
) -> None:
    """The documented columns and types; ``native``: no message becomes a Python object, where the extension is."""
    topic = make_topic(2)
    headers = (("h", b"x"), ("h", None))
    sent = [
        ProducerRecord(b"v%d" % i if i % 3 else None, b"" if i % 2 else None, i % 2, 1000 + i, headers * (i % 2))
        for i in range(100)
    ]
    produce(kafka, topic, sent)
    tables: list[Any] = []
    with connector(cluster.connect, unique("group")) as member:
        (stream,) = member.streams({topic: 1}, native=native)[topic]
        while sum(map(len, tables)) < len(sent):
            batch = stream.batch(20)
            assert batch is not None
            assert isinstance(batch.messages, NativeMessages) == (native and native_module() is not None)
            tables.append(batch.to_arrow())
    table = pa.concat_tables(tables).sort_by([("partition", "ascending"), ("offset", "ascending")])
    assert [(field.name, str(field.type), field.nullable) for field in table.schema] == [
        ("topic", "string", False),
        ("partition", "int32", False),
        ("offset", "int64", False),
        ("timestamp", "timestamp[ms, tz=UTC]", True),
        ("timestamp_type", "dictionary<values=string, indices=int8, ordered=0>", True),
        ("timestamp_raw", "int64", True),
        ("key", "binary", True),
        ("value", "binary", True),
        ("headers", "list<item: struct<key: string, value: binary>>", True),
    ]
    assert table.to_pylist() == [
        {
            "topic": topic, "partition": one.partition, "offset": offset,
            "timestamp": datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=one.timestamp_ms or 0),
            "timestamp_type": "CreateTime", "timestamp_raw": None, "key": one.key, "value": one.value,
            "headers": [{"key": name, "value": value} for name, value in one.headers] or None,
        }
        for number in range(2) for offset, one in enumerate(sent[number::2])
    ]  # fmt: skip


def test_ends_are_reported_on_request(cluster: Sandbox, make_topic: Make, unique: Unique, fill: Fill) -> None:
    """Partitions read to their ends are known, empty ones included."""
    topic = make_topic(3)
    fill(topic, 10, 2)
    with connector(cluster.connect, unique("group")) as member:
        (stream,) = member.merged_streams([topic], report_ends=True)

        def at_the_ends() -> bool:
            stream.batch(0.1)
            return len(stream.ends) == 3

        wait_until(at_the_ends, 15, "all ends")
        assert sorted(stream.ends.values()) == [0, 5, 5]
        assert sorted(stream.positions.values()) == [0, 5, 5]


def test_what_cannot_work_is_reported_before_anything_is_done(
    cluster: Sandbox, make_topic: Make, unique: Unique
) -> None:
    """No group, no streams, joining twice, committing before joining; nothing needs a server."""
    topic = make_topic(1)
    with pytest.raises(UsageError, match=r"\bgroup\.id\b"):
        connector(cluster.connect, "")
    member = connector(cluster.connect, unique("group"))
    with pytest.raises(UsageError):
        member.commit()
    for wrong in ({}, {"orders": 0}, {"no/topic": 1}):
        with pytest.raises(UsageError):
            member.streams(wrong)
    with pytest.raises(UsageError, match=r"^0 streams\b"):
        member.streams_by_filter(TopicFilter("white_list", "x"), 0)
    for topics in ("orders", [], ["no/topic"]):
        with pytest.raises(UsageError):
            member.merged_streams(topics)
    for kind, expression in (("white", "x"), ("static", "x"), ("white_list", None), ("black_list", b"x")):
        with pytest.raises(UsageError):
            TopicFilter(kind, expression)  # type: ignore[arg-type]
    config, settings = ConsumerConfig(group_id="g"), ZooKeeperSettings(cluster.connect)
    with pytest.raises(UsageError):
        Connector(config, ZooKeeperSettings("h:x"))
    with pytest.raises(UsageError, match=r"\bgroup\.id=1\b"):
        Connector(ConsumerConfig(group_id=1), settings)  # type: ignore[arg-type]
    assert member.statistics().phase == "new"
    with member:
        member.streams({topic: 1})
        with pytest.raises(UsageError):
            member.streams({topic: 1})
    never = connector(cluster.connect, unique("group"))
    never.close()
    with pytest.raises(UsageError):
        never.streams({topic: 1})


def test_a_chroot_that_is_not_there_is_not_made(zookeeper: Sandbox, unique: Unique, registry: Registry) -> None:
    """A member makes no chroot, to sit there alone."""
    chroot = unique("nowhere")
    member = connector(f"{zookeeper.address}/{chroot}", "g")
    with pytest.raises(UsageError, match="chroot"):
        member.streams({"t": 1})
    with Registry(type(registry.settings)(zookeeper.address)) as root:
        assert root.read([Exists(f"/{chroot}")]) == [None]


def test_no_zookeeper_is_an_error_within_the_connect_timeout() -> None:
    """Nobody listens: joining fails in the time given, and closing again says the same."""
    from zkgroup.clients.zookeeper import ZooKeeperSettings
    from zkgroup.config import ConsumerConfig

    member = Connector(ConsumerConfig(group_id="g"), ZooKeeperSettings("127.0.0.1:1", 6.0, 1.0))
    began = time.monotonic()
    with pytest.raises(UnreachableError):
        member.streams({"t": 1})
    assert time.monotonic() - began < 6.0
    with pytest.raises(UnreachableError):
        member.close()


def test_leaving_from_another_thread_ends_the_streams(
    cluster: Sandbox, registry: Registry, make_topic: Make, unique: Unique, fill: Fill
) -> None:
    """``leave()`` returns at once, may be called by anyone, and readers come to the end of their streams."""
    topic, group = make_topic(1), unique("group")
    fill(topic, 10)
    with ReadMember(cluster.connect, group, {topic: 1}) as member:
        wait_until(lambda: len(member.records) == 10, 10, "everything read")
        member.connector.leave()
        registered = lambda: isinstance(registry.read([Exists(znodes.member_id(group, member.id))])[0], Stat)  # noqa: E731
        wait_until(lambda: owners(registry, group) == {} and not registered(), 10, "released, and gone")
    assert committed(registry, group, topic, 1) == [10]


def test_an_idle_member_does_next_to_nothing(
    cluster: Sandbox, make_topic: Make, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member with streams that have nothing to read fetches once a slice, and its machine is woken by its timers
    alone. Turns are counted, since a clock would measure the machine that runs the test."""
    topic, counts = make_topic(1), collections.Counter[str]()

    def counted(owner: type, name: str) -> None:
        original = getattr(owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            counts[name] += 1
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, call)

    counted(StreamReader, "fetch")
    counted(Member, "handle")
    with ReadMember(cluster.connect, unique("group"), {topic: 3}, auto_commit_interval_ms=1000) as member:
        wait_until(lambda: member.owned, 10, "its share")
        before, began = counts.copy(), time.monotonic()
        threading.Event().wait(3.0)  # the time that is measured
        done, seconds = counts - before, time.monotonic() - began
    # One of the streams has the partition; the two others sleep IDLE long. Of the machine's events in a second one is a
    # commit (a tick, what is consumed) and one at most a sign of life, with its answer.
    assert 0 < done["fetch"] <= seconds * (1 / SLICE + 2 / IDLE) + 3
    assert 0 < done["handle"] <= seconds * 5 + 3
