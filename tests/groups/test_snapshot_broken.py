"""Reading groups that are half-built, broken, closed, or change meanwhile, in a real ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from group_nodes import HOSTILE, Groups, static
from topic_changes import delete_topic

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.groups.snapshot.group_reader import read_group, read_groups
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Acl, Create, Delete, Ensure, Failure, Get, Node, Op, Result

#: Whoever made the node may delete it, but not read it.
UNREADABLE = (Acl("world", "anyone", 4 | 8 | 16),)


def test_subscriptions_to_what_cannot_be_a_topic(registry: Registry, kafka: KafkaSettings, groups: Groups) -> None:
    """A registration may name anything: such a topic does not exist, and nothing else of the group suffers."""
    names = [name for name in HOSTILE if name != "\ud800"]
    group = groups.make({"@_a": static(dict.fromkeys(names, 1)), "@_b": static({"\U0001f600": 1})})
    snapshot = read_group(registry, group, kafka=kafka)
    assert snapshot.subscribed == {*names, "\U0001f600"}
    assert not any(topic.exists for topic in snapshot.topics.values())
    assert snapshot.topics["a/b"].error is not None
    assert (snapshot.partitions, snapshot.problems, snapshot.warnings, snapshot.state) == ((), (), (), "active")


def test_names_as_foreign_clients_write_them(registry: Registry, kafka: KafkaSettings, groups: Groups) -> None:
    """Blanks, letters of any script and what looks like a path are names like others where ZooKeeper takes them."""
    name = "so und so é 漢字 %2e%2e ..."
    group = groups.make({"@ m ü": static({"ä ö": 1})}, {("ä ö", 0): "@ m ü-0"}, {("ä ö", 0): 5}, name=name)
    snapshot = read_group(registry, group, kafka=kafka)
    assert [member.member for member in snapshot.members] == [f"{name} m ü"]
    assert [(p.name, p.member, p.committed("both"), p.exists) for p in snapshot.partitions] == [
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
    snapshot = read_group(registry, group)
    assert [(p.name, p.owner, p.stored and p.stored.offset) for p in snapshot.partitions] == [
        (f"{topic}-0", f"{group}_a-0", None),
        (f"{topic}-1", f"{group}_a", 6),
    ]
    for part, name in [("owners", "1-0"), ("owners", "x"), ("owners", "01"), ("offsets", "0-1"), ("offsets", "-1")]:
        assert [one for one in snapshot.problems if one.path.endswith(f"/{part}/{topic}/{name}")], (
            part,
            name,
            snapshot.problems,
        )
    assert len(snapshot.problems) == 5
    assert snapshot.state == "broken"


@pytest.mark.parametrize("data", [b"", b"  ", b"abc", b"-x", b"9" * 30, b"\xff\xfe", b"1.5", b"x" * 100_000])
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
    """A node with an access list that keeps us out is reported by its path; what can be read is there."""
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
    snapshot = read_group(registry, group)
    message = [f"znode {path} cannot be read: {why}" for path, why in snapshot.unreadable.items()]
    message += [*map(str, snapshot.problems), *(m.error or "" for m in snapshot.members)]
    message += [text for p in snapshot.partitions for text in (p.error or "", p.stored.error or "" if p.stored else "")]
    assert [text for text in message if f"znode {closed} cannot be read: not authorised" in text], message
    assert snapshot.unreadable == {closed: "not authorised"}
    assert snapshot.problems == ()
    if place not in ("group", "offsets", "offset"):
        assert [p.committed("both") for p in snapshot.partitions if p.topic == topic] == [5]
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
    """A node that was listed and is deleted before it is read leaves no trace in the snapshot, and no error."""
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
        snapshot = read_group(meddled, group)
    assert meddled._meddle is None
    assert snapshot.problems == ()
    assert [member.error for member in snapshot.members] == [None] * len(snapshot.members)
    by_name = {p.name: p for p in snapshot.partitions}
    assert by_name[f"{kept}-0"].committed("both") == 6
    match what:
        case "member":
            assert [member.member for member in snapshot.members] == [f"{group}_b"]
            assert by_name[f"{topic}-0"].member is None
        case "owner":
            assert by_name[f"{topic}-0"].owner is None
        case "offset":
            assert by_name[f"{topic}-0"].stored is None
        case "topic":
            assert not by_name[f"{topic}-0"].exists
            assert not snapshot.topics[topic].exists


def test_the_registry_is_only_read(registry: Registry, kafka: KafkaSettings, groups: Groups) -> None:
    """Every operation of a snapshot is a read, without a watch."""
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
