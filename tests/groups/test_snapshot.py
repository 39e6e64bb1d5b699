"""Looking at groups in a real ZooKeeper, with a real broker beside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import pytest
from grouping import STAMP, Groups, commit_in_kafka, groups_on, static, tree, white_list

from zkgroup.errors import NotFoundError, UnreachableError, UsageError
from zkgroup.groups.snapshot import read_group, read_groups
from zkgroup.protocol import znodes
from zkgroup.protocol.names import OFFSETS_TOPIC, TopicPartition
from zkgroup.protocol.ops import Acl, Create, Delete, Ensure, Exists, Failure, Get, Node, Op, Result, Stat
from zkgroup.sandbox.probe import free_port
from zkgroup.sandbox.sandbox import Sandbox
from zkgroup.sandbox.topics import create_topic, delete_topic
from zkgroup.servers.kafka import KafkaSettings
from zkgroup.servers.registry import Registry
from zkgroup.servers.zookeeper import ZooKeeperSettings

#: Whoever made the node may delete it, but not read it.
UNREADABLE = (Acl("world", "anyone", 4 | 8 | 16),)


@pytest.fixture
def groups(registry: Registry, unique: Callable[[str], str]) -> Iterator[Groups]:
    """Writes groups, whose members go with the test."""
    with groups_on(registry, unique) as found:
        yield found


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
    """Each field of the look is what ZooKeeper and the broker hold."""
    topic = make_topic(3)
    fill(topic, 30, 3)
    member = "@_box-1411294187842-ab12cd34"
    group = groups.make({member: static({topic: 2})}, {(topic, 0): f"{member}-1"}, {(topic, 0): 4, (topic, 2): 10})
    member = member.replace("@", group)
    before = int(time.time() * 1000)
    look = read_group(registry, group, kafka=kafka)
    assert before <= look.taken_at <= time.time() * 1000
    assert 0 < look.took < 30
    assert (look.group, look.store, look.state, look.in_zookeeper) == (group, "zookeeper", "active", True)
    assert (look.problems, look.warnings, look.subscribed) == ((), (), {topic})
    assert topic in look.known_topics
    assert look.broker_ids == (1,)

    (found,) = look.members
    node = stat_of(registry, znodes.member_id(group, member))
    assert (found.member, found.host, found.session_id) == (member, "box", groups.session.session_id)
    assert (found.registered_at, found.streams, found.error, found.defects) == (STAMP, {topic: 2}, None, ())
    assert (found.created_at, found.data) == (node.ctime, static({topic: 2}))

    first, second, third = look.partitions
    claim = stat_of(registry, znodes.owner(group, TopicPartition(topic, 0)))
    assert (first.owner, first.member, first.stream) == (f"{member}-1", member, 1)
    assert (first.since, first.session_id) == (claim.ctime, groups.session.session_id)
    assert (second.owner, second.member, second.stored) == (None, None, None)
    stored = stat_of(registry, znodes.offset(group, TopicPartition(topic, 0)))
    assert first.stored is not None
    assert (first.stored.offset, first.stored.version, first.stored.mzxid) == (4, stored.version, stored.mzxid)
    assert (first.stored.created_at, first.stored.changed_at) == (stored.ctime, stored.mtime)
    assert [(p.leader, p.log_start, p.log_end, p.log_error, p.exists) for p in look.partitions] == [
        (1, 0, 10, None, True)
    ] * 3
    assert [p.lag("zookeeper") for p in look.partitions] == [6, None, 0]

    ids, registered = stat_of(registry, znodes.ids(group)), stat_of(registry, znodes.topic(topic))
    assert (look.ids_version, look.ids_czxid) == (ids.version, ids.czxid)
    assert look.topics[topic].partitions == (0, 1, 2)
    assert (look.topics[topic].czxid, look.topics[topic].created_at) == (registered.czxid, registered.ctime)
    assert look.last_change == max(
        node.mtime, claim.mtime, stored.mtime, third.stored.changed_at if third.stored else 0
    )


@pytest.mark.parametrize(
    "parts", [(), ("ids",), ("owners",), ("offsets",), ("ids", "owners"), ("ids", "owners", "offsets")], ids="+".join
)
def test_looking_creates_nothing(lonely: Registry, unique: Callable[[str], str], parts: Sequence[str]) -> None:
    """Whatever of a group is missing is missing afterwards, and no broker is asked where nothing is kept in Kafka."""
    group = unique("half")
    assert lonely.write(Ensure(znodes.group(group))) is None
    for part in parts:
        assert lonely.write(Ensure(f"{znodes.group(group)}/{part}")) is None
    before = tree(lonely, "/consumers")

    def never() -> KafkaSettings:
        pytest.fail("the brokers were looked for")

    look = read_group(lonely, group, kafka=never)
    assert tree(lonely, "/consumers") == before
    assert tree(lonely, "/brokers") == {}
    assert (look.members, look.partitions, look.problems, look.state) == ((), (), (), "inactive")
    assert (look.ids_czxid is None) == ("ids" not in parts)
    assert [one.group for one in read_groups(lonely, kafka=never)] == [group]


def test_no_offsets_topic_is_made(make_sandbox: Callable[..., Sandbox], zookeeper: Sandbox) -> None:
    """On a cluster that keeps nothing in Kafka, a look with log ranges does not make a broker start to."""
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
        assert OFFSETS_TOPIC not in read_group(registry, group).known_topics


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
        look = read_group(registry, group, kafka=kafka, timeout=20.0)
        assert time.monotonic() - started < 10
        errors = {p.name: (p.leader, p.log_end, p.log_error) for p in look.partitions}
        assert errors == {f"{topic}-0": (1, 0, None), f"{phantom}-0": (None, None, "no broker leads it")}
        assert look.topics[phantom].exists
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
    look = read_group(registry, group, kafka=nowhere, timeout=0.5)
    (warning,) = look.warnings
    assert nowhere.bootstrap in warning
    assert "no answer within 0.5 s" in warning
    assert (look.state, look.partitions[0].committed("both"), look.partitions[0].lag("both")) == ("active", 7, None)
    assert all(p.log_error and nowhere.bootstrap in p.log_error and p.log_end is None for p in look.partitions)
    assert look.partitions[0].leader == 1

    def none() -> KafkaSettings:
        raise UnreachableError("no broker is registered in ZooKeeper", "start one")

    assert "no broker is registered" in read_group(registry, group, kafka=none).warnings[0]
    with pytest.raises(UsageError, match="librdkafka refuses its configuration"):
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


HOSTILE = [
    "a/b", "..", ".", "", "a\x00b", "a\x1b[31mb", "a\nb", "ä é 漢字", "\ud800", "a" * 5000, "/", "../../../ids",
    "\u202eabc", "b" * 40_000,
]  # fmt: skip


def test_subscriptions_to_what_cannot_be_a_topic(registry: Registry, kafka: KafkaSettings, groups: Groups) -> None:
    """A registration may name anything: such a topic does not exist, and nothing else of the group suffers."""
    names = [name for name in HOSTILE if name != "\ud800"]
    group = groups.make({"@_a": static(dict.fromkeys(names, 1)), "@_b": static({"\U0001f600": 1})})
    look = read_group(registry, group, kafka=kafka)
    assert look.subscribed == {*names, "\U0001f600"}
    assert not any(topic.exists for topic in look.topics.values())
    assert look.topics["a/b"].error is not None
    assert (look.partitions, look.problems, look.warnings, look.state) == ((), (), (), "active")


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_a_group_name_cannot_leave_its_place(registry: Registry, kafka: KafkaSettings, name: str) -> None:
    """What no znode can be called is refused, or is just not there; no other node is read for it."""
    with pytest.raises((UsageError, NotFoundError)):
        read_group(registry, name, kafka=kafka)


def test_names_as_foreign_clients_write_them(registry: Registry, kafka: KafkaSettings, groups: Groups) -> None:
    """Blanks, letters of any script and what looks like a path are names like others where ZooKeeper takes them."""
    name = "so und so é 漢字 %2e%2e ..."
    group = groups.make({"@ m ü": static({"ä ö": 1})}, {("ä ö", 0): "@ m ü-0"}, {("ä ö", 0): 5}, name=name)
    look = read_group(registry, group, kafka=kafka)
    assert [member.member for member in look.members] == [f"{name} m ü"]
    assert [(p.name, p.member, p.committed("both"), p.exists) for p in look.partitions] == [
        ("ä ö-0", f"{name} m ü", 5, False)
    ]
    assert group in {one.group for one in read_groups(registry, kafka=kafka)}


def test_nodes_that_are_no_partitions(registry: Registry, groups: Groups, make_topic: Callable[..., str]) -> None:
    """Owner nodes may have a leader before the partition; all else is named as a problem, and nothing else is lost."""
    topic = make_topic(2)
    owners: dict[tuple[str, int | str], str | bytes] = {
        (topic, "0"): "@_a-0", (topic, "1-0"): "host:uuid", (topic, "7-1"): "@_a",
        (topic, "x"): "y", (topic, "01"): "z",
    }  # fmt: skip
    group = groups.make({"@_a": static({topic: 1})}, owners, {(topic, "0-1"): 5, (topic, "1"): b"6", (topic, "-1"): 7})
    look = read_group(registry, group)
    assert [(p.name, p.owner, p.stored and p.stored.offset) for p in look.partitions] == [
        (f"{topic}-0", f"{group}_a-0", None),
        (f"{topic}-1", f"{group}_a", 6),
    ]
    for part, name in [("owners", "1-0"), ("owners", "x"), ("owners", "01"), ("offsets", "0-1"), ("offsets", "-1")]:
        assert [text for text in look.problems if f"/{part}/{topic}/{name} " in text], (part, name, look.problems)
    assert len(look.problems) == 5
    assert look.state == "broken"


@pytest.mark.parametrize("data", [b"", b"  ", b"abc", b"-5", b"9" * 30, b"\xff\xfe", b"1.5", b"x" * 100_000])
def test_an_offset_that_is_none_carries_its_error(
    registry: Registry, groups: Groups, make_topic: Callable[..., str], data: bytes
) -> None:
    """It has its version, so that it can be mended, and no other partition suffers; -1 is no offset and no error."""
    topic = make_topic(3)
    group = groups.make(offsets={(topic, 0): data, (topic, 1): b" 17\n", (topic, 2): b"-1"})
    first, second, third = (partition.stored for partition in read_group(registry, group).partitions)
    assert first is not None
    assert (first.offset, first.version) == (None, 0)
    assert first.error
    assert len(first.error) < 200
    assert second is not None
    assert third is not None
    assert (second.offset, third.offset, third.error) == (17, None, None)


@pytest.mark.parametrize("place", ["group", "ids", "member", "owners", "owner", "offsets", "offset", "topic"])
def test_nodes_that_may_not_be_read(
    registry: Registry, groups: Groups, make_topic: Callable[..., str], unique: Callable[[str], str], place: str
) -> None:
    """A node with an access list that keeps us out is told by its path; what can be read is there."""
    topic, group = make_topic(1), unique("closed")
    paths = {
        "group": znodes.group(group),
        "ids": znodes.ids(group),
        "member": znodes.member_id(group, "m"),
        "owners": znodes.owners(group),
        "owner": znodes.owner(group, TopicPartition(topic, 0)),
        "offsets": znodes.offsets(group),
        "offset": znodes.offset(group, TopicPartition(topic, 0)),
        "topic": znodes.topic(unique("closed-topic")),
    }
    subscribed = paths["topic"].rpartition("/")[2] if place == "topic" else topic
    data = {"member": static({subscribed: 1}), "owner": b"m-0", "offset": b"5", "topic": b'{"partitions":{"0":[1]}}'}
    closed = paths[place]
    for path in [*paths.values(), znodes.owner_topic(group, topic), znodes.offset_topic(group, topic)]:
        if path == closed or path in (paths["member"], paths["owner"], paths["offset"]):
            continue
        if path != paths["topic"] and not path.startswith(closed + "/"):
            assert registry.write(Ensure(path)) is None
    for name in ("group", "ids", "owners", "offsets", "member", "owner", "offset", "topic"):
        path = paths[name]
        if path == closed:
            registry.write(Ensure(path.rpartition("/")[0]))
            assert not isinstance(registry.write(Create(path, data.get(name, b""), acl=UNREADABLE)), Failure)
        elif name in data and name != "topic" and not path.startswith(closed + "/"):
            registry.write(Ensure(path.rpartition("/")[0]))
            assert not isinstance(registry.write(Create(path, data[name])), Failure)
    look = read_group(registry, group)
    told = [f"znode {path} cannot be read: {why}" for path, why in look.hidden.items()]
    told += [*look.problems, *(m.error or "" for m in look.members)]
    told += [text for p in look.partitions for text in (p.error or "", p.stored.error or "" if p.stored else "")]
    assert [text for text in told if f"znode {closed} cannot be read: not authorised" in text], told
    assert look.hidden == {closed: "not authorised"}
    assert look.problems == ()
    if place not in ("group", "offsets", "offset"):
        assert [p.committed("both") for p in look.partitions if p.topic == topic] == [5]
    if place == "topic":
        assert registry.write(Delete(closed)) is None


class Meddler(Registry):
    """A real registry in which something happens just before the rounds in which something is asked for."""

    def __init__(self, settings: ZooKeeperSettings, when: Callable[[Op], bool], meddle: Callable[[], object]) -> None:
        super().__init__(settings, 30.0)
        self._when = when
        self._meddle: Callable[[], object] | None = meddle

    def read(self, ops: object) -> list[Result]:
        """As ever, but for what happens before."""
        wanted = list(ops)  # type: ignore[call-overload]
        if self._meddle is not None and any(self._when(op) for op in wanted):
            meddle, self._meddle = self._meddle, None
            meddle()
        return super().read(wanted)


@pytest.mark.parametrize("what", ["member", "owner", "offset", "topic"])
def test_what_vanishes_between_two_rounds_is_gone(
    registry: Registry, groups: Groups, make_topic: Callable[..., str], what: str
) -> None:
    """A node that was listed and is deleted before it is read leaves no trace in the look, and no error."""
    topic, kept = make_topic(1), make_topic(1)
    group = groups.make(
        {"@_a": static({topic: 1}), "@_b": static({kept: 1})}, {(topic, 0): "@_a-0"}, {(topic, 0): 5, (kept, 0): 6}
    )
    paths = {
        "member": znodes.member_id(group, f"{group}_a"),
        "owner": znodes.owner(group, TopicPartition(topic, 0)),
        "offset": znodes.offset(group, TopicPartition(topic, 0)),
        "topic": znodes.topic(topic),
    }

    def remove() -> None:
        if what == "topic":
            delete_topic(registry, topic)
        else:
            assert registry.write(Delete(paths[what])) is None

    with Meddler(registry.settings, lambda op: op == Get(paths[what]), remove) as meddled:
        look = read_group(meddled, group)
    assert meddled._meddle is None
    assert look.problems == ()
    assert [member.error for member in look.members] == [None] * len(look.members)
    by_name = {p.name: p for p in look.partitions}
    assert by_name[f"{kept}-0"].committed("both") == 6
    match what:
        case "member":
            assert [member.member for member in look.members] == [f"{group}_b"]
            assert by_name[f"{topic}-0"].member is None
        case "owner":
            assert by_name[f"{topic}-0"].owner is None
        case "offset":
            assert by_name[f"{topic}-0"].stored is None
        case "topic":
            assert not by_name[f"{topic}-0"].exists
            assert not look.topics[topic].exists


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
    for look in read_groups(registry, [one, two]):
        a, b, c = look.members
        assert (a.streams, b.streams, c.streams) == (dict.fromkeys(topics, 2), {topics[0]: 1}, {})
        assert c.error
        assert look.state == "broken"
        assert [p.topic for p in look.partitions] == topics


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
    assert [look.group for look in together] == names
    for look in together:
        alone = read_group(registry, look.group, kafka=kafka)
        for field in ("members", "partitions", "subscribed", "problems", "topics", "store", "state", "last_change"):
            assert getattr(look, field) == getattr(alone, field), field
    assert set(names) <= {look.group for look in read_groups(registry, kafka=kafka)}


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
    look = read_group(lonely, "g")
    assert [(p.partition, p.committed("both")) for p in look.partitions] == [(n, n) for n in range(wide)]


def test_the_registry_is_only_read(registry: Registry, kafka: KafkaSettings, groups: Groups) -> None:
    """Every operation of a look is a read, without a watch."""
    asked: list[Op] = []
    group = groups.make({"@_a": static({"never": 1})}, {("never", 0): "@_a-0"}, {("never", 0): 1})

    def note(op: Op) -> bool:
        asked.append(op)
        return False

    with Meddler(registry.settings, note, lambda: None) as noting:
        read_group(noting, group, kafka=kafka)
    assert len(asked) > 5
    assert {type(op).__name__ for op in asked} <= {"Get", "Children", "Exists"}
    assert not any(getattr(op, "watch", False) for op in asked)
    assert isinstance(registry.read([Get(znodes.group(group))])[0], Node)
