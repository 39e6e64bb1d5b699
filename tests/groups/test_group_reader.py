"""Reading groups in a real ZooKeeper, with a real broker next to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import pytest
from group_nodes import HOSTILE, STAMP, Groups, commit_in_kafka, static, tree, white_list
from lines import names
from topic_changes import delete_topic

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.log_offsets import LogRange
from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import NotFoundError, UnreachableError, UsageError
from zkgroup.groups.snapshot.group_reader import read_group, read_groups
from zkgroup.protocol import znodes
from zkgroup.protocol.names import OFFSETS_TOPIC, TopicPartition
from zkgroup.protocol.operations import Create, Delete, Ensure, Exists, Failure, Stat
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.processes import free_port
from zkgroup.sandbox.topic_admin import create_topic


@pytest.fixture
def lonely(zookeeper: Sandbox, unique: Callable[[str], str]) -> Iterator[Registry]:
    """A cluster of its own in the shared ZooKeeper, without brokers."""
    chroot = unique("lonely")
    with zookeeper.registry(timeout=30.0) as outside:
        assert outside.write(Ensure(f"/{chroot}")) is None
    with Registry(ZooKeeperSettings(f"{zookeeper.address}/{chroot}"), 30.0) as inside:
        yield inside


def stat_of(registry: Registry, path: str) -> Stat:
    (stat,) = registry.read([Exists(path)])
    assert isinstance(stat, Stat)
    return stat


def test_everything_about_a_group(
    registry: Registry,
    kafka: KafkaSettings,
    groups: Groups,
    make_topic: Callable[..., str],
    fill: Callable[..., object],
) -> None:
    """Each field of the snapshot is what ZooKeeper and the broker hold."""
    topic = make_topic(3)
    fill(topic, 30, 3)
    member = "@_box-1411294187842-ab12cd34"
    group = groups.make({member: static({topic: 2})}, {(topic, 0): f"{member}-1"}, {(topic, 0): 4, (topic, 2): 10})
    member = member.replace("@", group)
    before = int(time.time() * 1000)
    snapshot = read_group(registry, group, kafka=kafka)
    assert before <= snapshot.taken_at <= time.time() * 1000
    assert 0 < snapshot.took < 30
    assert (snapshot.group, snapshot.store, snapshot.state, snapshot.in_zookeeper) == (
        group,
        "zookeeper",
        "active",
        True,
    )
    assert (snapshot.problems, snapshot.warnings, snapshot.subscribed) == ((), (), {topic})
    assert topic in snapshot.existing_topics
    assert snapshot.broker_ids == (1,)

    (found,) = snapshot.members
    node = stat_of(registry, znodes.member_id(group, member))
    assert (found.member, found.host, found.session_id) == (member, "box", groups.session.session_id)
    assert (found.registered_at, found.streams, found.error, found.defects) == (STAMP, {topic: 2}, None, ())
    assert (found.created_at, found.data) == (node.ctime, static({topic: 2}))

    first, second, third = snapshot.partitions
    claim = stat_of(registry, znodes.owner(group, TopicPartition(topic, 0)))
    assert (first.owner, first.member, first.stream) == (f"{member}-1", member, 1)
    assert (first.since, first.session_id) == (claim.ctime, groups.session.session_id)
    assert (second.owner, second.member, second.stored) == (None, None, None)
    stored = stat_of(registry, znodes.offset(group, TopicPartition(topic, 0)))
    assert first.stored is not None
    assert (first.stored.offset, first.stored.version, first.stored.mzxid) == (4, stored.version, stored.mzxid)
    assert (first.stored.created_at, first.stored.changed_at) == (stored.ctime, stored.mtime)
    assert [(p.leader, p.log_start, p.log_end, p.log_error, p.exists) for p in snapshot.partitions] == [
        (1, 0, 10, None, True)
    ] * 3
    assert [p.lag("zookeeper") for p in snapshot.partitions] == [6, None, 0]

    ids, registered = stat_of(registry, znodes.ids(group)), stat_of(registry, znodes.topic(topic))
    assert snapshot.ids_changed == ids.pzxid
    assert snapshot.topics[topic].partitions == (0, 1, 2)
    assert (snapshot.topics[topic].czxid, snapshot.topics[topic].created_at) == (registered.czxid, registered.ctime)
    assert snapshot.last_change == max(
        node.mtime, claim.mtime, stored.mtime, third.stored.changed_at if third.stored else 0
    )


@pytest.mark.parametrize(
    "parts", [(), ("ids",), ("owners",), ("offsets",), ("ids", "owners"), ("ids", "owners", "offsets")], ids="+".join
)
def test_reading_creates_nothing(lonely: Registry, unique: Callable[[str], str], parts: Sequence[str]) -> None:
    """Whatever of a group is missing is missing afterwards, and no broker is asked where nothing is kept in Kafka."""
    group = unique("half")
    assert lonely.write(Ensure(znodes.group(group))) is None
    for part in parts:
        assert lonely.write(Ensure(f"{znodes.group(group)}/{part}")) is None
    before = tree(lonely, "/consumers")

    def never() -> KafkaSettings:
        pytest.fail("the brokers were looked for")

    snapshot = read_group(lonely, group, kafka=never)
    assert tree(lonely, "/consumers") == before
    assert tree(lonely, "/brokers") == {}
    assert (snapshot.members, snapshot.partitions, snapshot.problems, snapshot.state) == ((), (), (), "inactive")
    assert (snapshot.ids_changed == 0) == ("ids" not in parts)
    assert [one.group for one in read_groups(lonely, kafka=never)] == [group]


def test_no_offsets_topic_is_made(make_sandbox: Callable[..., Sandbox], zookeeper: Sandbox) -> None:
    """On a cluster that keeps nothing in Kafka, a snapshot with log ranges does not make a broker start to."""
    sandbox = make_sandbox(zookeeper=zookeeper.address, chroot="/untouched")
    with sandbox.registry(timeout=30.0) as registry, Registry(registry.settings, 30.0) as session:
        create_topic(registry, "t", 1)
        group = Groups(session, str).make({}, {}, {("t", 0): 0}, name="g")
        kafka = KafkaSettings(sandbox.bootstrap)
        before = tree(registry, "/consumers") | tree(registry, "/brokers/topics")
        assert read_group(registry, group, kafka=kafka).partitions[0].log_end == 0
        assert len(read_groups(registry, kafka=kafka)) == 1
        with pytest.raises(NotFoundError):
            read_group(registry, "nobody", kafka=kafka)
        assert tree(registry, "/consumers") | tree(registry, "/brokers/topics") == before
        assert OFFSETS_TOPIC not in read_group(registry, group).existing_topics


def test_offsets_of_what_is_gone(
    registry: Registry,
    kafka: KafkaSettings,
    groups: Groups,
    make_topic: Callable[..., str],
    unique: Callable[[str], str],
) -> None:
    """An offset counts, and says why its log is unknown, when its partition or topic does not exist any more."""
    topic, gone = make_topic(1), unique("gone")
    create_topic(registry, gone, 1)
    group = groups.make(offsets={(topic, 7): 3, (gone, 0): 5, (topic, 0): 0})
    delete_topic(registry, gone)
    by_name = {p.name: p for p in read_group(registry, group, kafka=kafka).partitions}
    assert sorted(by_name) == sorted([f"{topic}-0", f"{topic}-7", f"{gone}-0"])
    assert [(by_name[name].exists, by_name[name].log_error) for name in (f"{topic}-7", f"{gone}-0")] == [
        (False, f"topic {topic} has no partition 7"),
        (False, f"topic {gone} does not exist"),
    ]
    assert by_name[f"{gone}-0"].committed("zookeeper") == 5


def test_a_partition_without_a_leader_costs_no_time(
    registry: Registry,
    kafka: KafkaSettings,
    groups: Groups,
    make_topic: Callable[..., str],
    unique: Callable[[str], str],
) -> None:
    """Brokers are not asked about it, and the others' ranges are there."""
    topic, phantom = make_topic(1), unique("phantom")
    path = znodes.topic(phantom)
    assert registry.write(Create(path, b'{"version":1,"partitions":{"0":[99],"1":[99]}}')) is None
    try:
        group = groups.make(offsets={(topic, 0): 0, (phantom, 0): 5})
        started = time.monotonic()
        snapshot = read_group(registry, group, kafka=kafka, timeout=20.0)
        assert time.monotonic() - started < 10
        errors = {p.name: (p.leader, p.log_end, bool(p.log_error)) for p in snapshot.partitions}
        unled = (None, None, True)
        assert errors == {f"{topic}-0": (1, 0, False), f"{phantom}-0": unled, f"{phantom}-1": unled}
        assert snapshot.topics[phantom].exists
    finally:
        assert registry.write(Ensure(f"{znodes.delete_topics()}/{phantom}")) is None
    assert read_group(registry, group).topics[phantom].to_be_deleted
    registry.write(Delete(f"{znodes.delete_topics()}/{phantom}"))
    registry.write(Delete(path))


def test_brokers_that_are_away_are_a_warning(
    registry: Registry, groups: Groups, make_topic: Callable[..., str]
) -> None:
    """ZooKeeper's half is there, the log ranges say why they are not, and the group is not broken by it."""
    topic = make_topic(2)
    group = groups.make({"@_a": static({topic: 1})}, {(topic, 0): "@_a-0"}, {(topic, 0): 7})
    nowhere = KafkaSettings(f"127.0.0.1:{free_port()}")
    snapshot = read_group(registry, group, kafka=nowhere, timeout=0.5)
    (warning,) = snapshot.warnings
    assert names(str(warning), nowhere.bootstrap, "0.5 s")
    assert (snapshot.state, snapshot.partitions[0].committed("both"), snapshot.partitions[0].lag("both")) == (
        "active",
        7,
        None,
    )
    assert all(p.log_error and nowhere.bootstrap in p.log_error and p.log_end is None for p in snapshot.partitions)
    assert snapshot.partitions[0].leader == 1

    def none() -> KafkaSettings:
        raise UnreachableError("the test found none", "start one")

    assert "the test found none" in str(read_group(registry, group, kafka=none).warnings[0])
    with pytest.raises(UsageError, match=r"no\.such\.thing"):
        read_group(registry, group, kafka=KafkaSettings(nowhere.bootstrap, {"no.such.thing": "1"}))


def test_a_group_that_only_brokers_may_know(
    registry: Registry, kafka: KafkaSettings, make_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    """Where they do not answer, it is not said that there is no such group; without them it is."""
    commit_in_kafka(kafka, unique("other"), {TopicPartition(make_topic(1), 0): 0})
    nowhere = KafkaSettings(f"127.0.0.1:{free_port()}")
    with pytest.raises(UnreachableError):
        read_group(registry, unique("nobody"), kafka=nowhere, timeout=0.5)
    with pytest.raises(NotFoundError):
        read_group(registry, unique("nobody"), kafka=nowhere, store="zookeeper", timeout=0.5)


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_a_group_name_cannot_leave_its_place(registry: Registry, kafka: KafkaSettings, name: str) -> None:
    """What no znode can be called is refused, or is just not there; no other node is read for it."""
    with pytest.raises((UsageError, NotFoundError)):
        read_group(registry, name, kafka=kafka)


def test_filters_of_all_members_and_groups(
    registry: Registry, groups: Groups, make_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    """Each member's filter is applied to the topics that exist; one that Java would not take is that member's error."""
    stem = unique("sieve")
    topics = []
    for tail in ("one", "two"):
        create_topic(registry, f"{stem}-{tail}", 1)
        topics.append(f"{stem}-{tail}")
    members = {"@_a": white_list(f"{stem}-.*", 2), "@_b": white_list(f"{stem}-one"), "@_c": white_list("(")}
    one, two = groups.make(members), groups.make(members)
    for snapshot in read_groups(registry, [one, two]):
        a, b, c = snapshot.members
        assert (a.streams, b.streams, c.streams) == (dict.fromkeys(topics, 2), {topics[0]: 1}, {})
        assert c.error
        assert snapshot.state == "broken"
        assert [p.topic for p in snapshot.partitions] == topics


def test_many_groups_are_what_each_of_them_is(
    registry: Registry,
    kafka: KafkaSettings,
    groups: Groups,
    make_topic: Callable[..., str],
    unique: Callable[[str], str],
) -> None:
    """Reading groups together gives what reading them one by one gives; those that do not exist are left out."""
    topic, other = make_topic(2), make_topic(1)
    names = [
        groups.make({"@_a": static({topic: 1})}, {(topic, 0): "@_a-0"}, {(topic, 0): 1}),
        groups.make(offsets={(other, 0): 2, ("never", 3): 4}),
        groups.make({"@_a": b"no JSON"}),
        groups.make(),
    ]
    together = read_groups(registry, [*names, unique("nobody")], kafka=kafka)
    assert [snapshot.group for snapshot in together] == names
    for snapshot in together:
        alone = read_group(registry, snapshot.group, kafka=kafka)
        for field in ("members", "partitions", "subscribed", "problems", "topics", "store", "state", "last_change"):
            assert getattr(snapshot, field) == getattr(alone, field), field
    assert set(names) <= {snapshot.group for snapshot in read_groups(registry, kafka=kafka)}


def test_no_logs_are_read_but_those_that_are_given(
    registry: Registry,
    kafka: KafkaSettings,
    groups: Groups,
    make_topic: Callable[..., str],
) -> None:
    """With the logs of one topic the lag in that one is known, and nothing of the others: no log, no leader, no
    error."""
    topic, other = make_topic(1), make_topic(1)
    name = groups.make(offsets={(topic, 0): 2, (other, 0): 0})
    for logs in ({TopicPartition(topic, 0): LogRange(0, 50)}, {}):
        (snapshot,) = read_groups(registry, [name], kafka=kafka, logs=logs)
        found = {p.topic: (p.lag("both"), p.leader, p.log_error) for p in snapshot.partitions}
        assert found == {topic: (48 if logs else None, None, None), other: (None, None, None)}


def test_thousands_of_partitions(lonely: Registry) -> None:
    """A wide group is read whole, in numeric order."""
    wide = 3000
    partitions = ",".join(f'"{n}":[1]' for n in range(wide))
    assert lonely.write(Ensure(znodes.topics())) is None
    assert lonely.write(Create(znodes.topic("wide"), b'{"version":1,"partitions":{%s}}' % partitions.encode())) is None
    assert lonely.write(Ensure(znodes.offset_topic("g", "wide"))) is None
    keys = [TopicPartition("wide", n) for n in range(wide)]
    written = lonely.read([Create(znodes.offset("g", key), b"%d" % key.partition) for key in keys])
    assert not any(isinstance(result, Failure) for result in written)
    snapshot = read_group(lonely, "g")
    assert [(p.partition, p.committed("both")) for p in snapshot.partitions] == [(n, n) for n in range(wide)]
