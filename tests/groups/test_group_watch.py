"""Watching real groups: what is reported, in which order, and what it costs ZooKeeper."""

from __future__ import annotations

import dataclasses
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import pytest
from group_nodes import Groups, joined, static
from members import ReadMember, wait_for_rest
from support import wait_until

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.responses import KafkaOffset
from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry, WatchingRegistry
from zkgroup.errors import NotFoundError, UnreachableError, ZkgroupError
from zkgroup.groups.group_model import GroupPartition, GroupSnapshot
from zkgroup.groups.watch import group_watch
from zkgroup.groups.watch.group_watch import GroupWatch
from zkgroup.groups.watch.timeline import Event, WatchedGroup
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Delete, Ensure, Op, Result, SetData
from zkgroup.sandbox.local_cluster import START_TIMEOUT, Sandbox
from zkgroup.sandbox.processes import free_port


class CountingRegistry(WatchingRegistry):
    """Counts its requests."""

    requests = 0

    def read(self, ops: Iterable[Op]) -> list[Result]:
        ops = list(ops)
        self.requests += len(ops)
        return super().read(ops)


class Seen:
    """The events of a watch so far."""

    def __init__(self, watch: GroupWatch, registries: list[CountingRegistry]) -> None:
        self.watch = watch
        self.registries = registries
        self.events: list[Event] = []
        self.states: list[WatchedGroup] = []

    @property
    def requests(self) -> int:
        """How many requests were sent to ZooKeeper so far."""
        return sum(registry.requests for registry in self.registries)

    def take(self) -> None:
        while (found := self.watch.next(0.02)) is not None:
            self.states.append(found.state)
            self.events += found.events

    def until(self, *kinds: str, timeout: float = 30.0) -> list[Event]:
        """Take until events of all these kinds have come, after those that were taken before."""
        start = len(self.events)

        def there() -> bool:
            self.take()
            return {*kinds} <= {event.kind for event in self.events[start:]}

        wait_until(there, timeout, f"{kinds}")
        return self.events[start:]

    def state(self, ready: Callable[[WatchedGroup], bool], timeout: float = 30.0) -> WatchedGroup:
        """The first state from now on that is ``ready``."""
        start = len(self.states)

        def there() -> WatchedGroup | None:
            self.take()
            return next((state for state in self.states[start:] if ready(state)), None)

        found = wait_until(there, timeout, "the state")
        assert found is not None
        return found


@contextmanager
def watching(
    group: str, settings: ZooKeeperSettings, kafka: KafkaSettings, interval: float = 0.3, timeout: float = 10.0
) -> Iterator[Seen]:
    registries: list[CountingRegistry] = []

    def opened(on_change: Callable[[str], None]) -> WatchingRegistry:
        registries.append(CountingRegistry(dataclasses.replace(settings, connect_timeout=timeout), on_change))
        registries[-1].__enter__()
        return registries[-1]

    with GroupWatch(group, opened, lambda _: kafka, interval=interval, timeout=timeout) as watch:
        yield Seen(watch, registries)


def test_a_real_group_comes_and_goes(
    cluster: Sandbox, registry: Registry, kafka: KafkaSettings, make_topic: Callable[..., str],
    fill: Callable[..., object], make_group: Callable[..., str],
) -> None:  # fmt: skip
    """Members join and leave: joined, started, moved, ended, left come in this order, with who and what."""
    topic = make_topic(4)
    fill(topic, 40, 4)
    group = make_group()
    with watching(group, registry.settings, kafka) as seen:
        seen.until("watching")
        with ReadMember(cluster.connect, group, {topic: 1}, consumer_id="a") as first:
            message = seen.until("member-joined", "rebalance-ended")
            kinds = [event.kind for event in message]
            assert kinds.index("member-joined") < kinds.index("rebalance-started") < kinds.index("partition-claimed")
            assert kinds[-1] == "rebalance-ended" or kinds.index("rebalance-ended") > kinds.index("partition-claimed")
            assert {e.partition for e in message if e.kind == "partition-claimed"} == {0, 1, 2, 3}
            wait_for_rest(registry, group, 1)
            with ReadMember(cluster.connect, group, {topic: 1}, consumer_id="b"):
                message = seen.until("member-joined", "partition-moved", "rebalance-ended")
                moved = [event for event in message if event.kind == "partition-moved"]
                assert {event.partition for event in moved} == {2, 3}
                assert {(event.before, event.after) for event in moved} == {(f"{group}_a-0", f"{group}_b-0")}
                wait_for_rest(registry, group, 2)
                end = seen.state(lambda state: state.lag == 0)
                assert {p.member for p in end.partitions.values()} == {f"{group}_a", f"{group}_b"}
            message = seen.until("member-left", "rebalance-ended")
            assert next(e.member for e in message if e.kind == "member-left") == f"{group}_b"
            wait_for_rest(registry, group, 1)
            assert first.id == f"{group}_a"
        message = seen.until("member-left")
        assert not seen.state(lambda state: not state.members).members


def test_a_large_group_is_read_once(
    registry: Registry, kafka: KafkaSettings, groups: Groups, make_topic: Callable[..., str]
) -> None:
    """A thousand partitions are read whole at the beginning; then an interval costs ZooKeeper nothing, and a commit a
    single read."""
    count = 1000
    topic = make_topic(1)
    owner = "@_box-1411294187842-ab12cd34"
    partitions = range(count)
    group = groups.make(
        {owner: static({topic: 1})},
        {(topic, n): f"{owner}-0" for n in partitions},
        {(topic, n): 5 for n in partitions},
    )
    with watching(group, registry.settings, kafka, interval=0.2) as seen:
        seen.until("watching")
        whole = seen.requests
        assert whole > 2 * count
        seen.state(lambda state: state.measured)
        at = len(seen.states)
        seen.state(lambda state: len(seen.states) > at + 4)
        assert seen.requests == whole
        registry.write(SetData(znodes.offset(group, TopicPartition(topic, 7)), b"9"))
        key = TopicPartition(topic, 7)
        seen.state(lambda state: state.partitions[key].committed == 9)
        assert seen.requests == whole + 1


def test_commits_between_two_intervals_cost_one_read(
    registry: Registry, kafka: KafkaSettings, make_topic: Callable[..., str], make_group: Callable[..., str]
) -> None:
    """Offsets that change many times within an interval are read once an interval, not once a change."""
    key = TopicPartition(make_topic(1), 0)
    group = make_group({key: 0})
    with watching(group, registry.settings, kafka, interval=1.0) as seen:
        seen.until("watching")
        before, states = seen.requests, len([state for state in seen.states if state.measured])
        for number in range(1, 201):
            registry.write(SetData(znodes.offset(group, key), b"%d" % number))
        seen.state(lambda state: state.partitions[key].committed == 200)
        measured = len([state for state in seen.states if state.measured]) - states
        assert seen.requests - before <= measured + 1


def test_offsets_and_the_group_itself(
    registry: Registry, kafka: KafkaSettings, make_topic: Callable[..., str], make_group: Callable[..., str]
) -> None:
    """An offset that goes back, one that goes, a group that is deleted and comes back: reported, and the watch goes
    on."""
    key = TopicPartition(make_topic(1), 0)
    group = make_group({key: 8})
    with watching(group, registry.settings, kafka) as seen:
        seen.until("watching")
        registry.write(SetData(znodes.offset(group, key), b"3"))
        (back,) = [event for event in seen.until("offset-back") if event.kind == "offset-back"]
        assert (back.before, back.after) == (8, 3)
        topic_path = znodes.offset_topic(group, key.topic)
        paths = [znodes.offset(group, key), topic_path, znodes.offsets(group), znodes.ids(group), znodes.group(group)]
        assert not any(registry.read([Delete(path) for path in paths]))
        seen.until("group-gone")
        assert registry.write(Ensure(znodes.ids(group))) is None
        seen.until("group-came")


def test_no_such_group(registry: Registry, kafka: KafkaSettings, unique: Callable[[str], str]) -> None:
    """A watch of a group that is not there does not begin."""
    with watching(unique("nobody"), registry.settings, kafka) as seen, pytest.raises(NotFoundError):
        wait_until(lambda: seen.watch.next(0.1))


def test_no_such_zookeeper(kafka: KafkaSettings) -> None:
    """A watch without a ZooKeeper does not begin either."""
    settings = ZooKeeperSettings(f"127.0.0.1:{free_port()}")
    with watching("g", settings, kafka, timeout=1.0) as seen, pytest.raises(UnreachableError):
        wait_until(lambda: seen.watch.next(0.1))


def test_zookeeper_goes_away_and_comes_back(make_sandbox: Callable[..., Sandbox], kafka: KafkaSettings) -> None:
    """ZooKeeper's absence is reported once, what was seen stays, and what happens afterwards is reported again; however
    long it was away, under a new session too."""
    sandbox = make_sandbox(brokers=0)
    with sandbox.registry(timeout=30.0) as registry:
        registry.read([Ensure(znodes.ids("g"))])
        settings = ZooKeeperSettings(registry.settings.hosts, session_timeout=4.0)
    with watching("g", settings, kafka, timeout=1.0) as seen:
        seen.until("watching")
        sandbox.zookeeper.kill()
        assert [e.kind for e in seen.until("zookeeper-away")] == ["zookeeper-away"]
        sandbox.zookeeper.start(START_TIMEOUT)
        seen.until("zookeeper-back")
        with sandbox.registry(timeout=30.0) as registry:
            registry.read([Delete(znodes.ids("g")), Delete(znodes.group("g"))])
        seen.until("group-gone")


def test_brokers_that_hang_hold_nothing_up(registry: Registry, groups: Groups, make_topic: Callable[..., str]) -> None:
    """While brokers are waited for, what ZooKeeper shows is reported: sooner than they could have answered."""
    topic, patience = make_topic(4), 6.0
    group = groups.make({"@_a": static({topic: 1})}, {(topic, n): "@_a-0" for n in range(4)})
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(100)
        hung = KafkaSettings(f"127.0.0.1:{silent.getsockname()[1]}")
        with watching(group, registry.settings, hung, interval=0.2, timeout=patience) as seen:
            seen.until("watching")
            assert seen.states[-1].kafka is not None
            took = []
            for number in range(3):
                began = time.monotonic()
                assert registry.write(Delete(znodes.owner(group, TopicPartition(topic, number)))) is None
                seen.until("partition-released")
                took.append(time.monotonic() - began)
            assert sorted(took)[1] < patience / 3, took


def test_a_group_in_kafka(
    registry: Registry, kafka: KafkaSettings, make_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    """Members and shares of a group in Kafka are polled: with ZooKeeper, and of brokers alone."""
    topic, group = make_topic(2), unique("group")
    with joined(kafka, group, [topic]) as member, watching(group, registry.settings, kafka) as seen:
        seen.until("watching")
        state = seen.state(lambda state: len(state.partitions) == 2 and all(p.owner for p in state.partitions.values()))
        assert len(state.members) == 1
        member.commit(TopicPartition(topic, 0), 3)
        seen.state(lambda state: state.partitions[TopicPartition(topic, 0)].committed == 3)
        with GroupWatch(group, None, lambda _: kafka, interval=0.3, timeout=10.0) as watch:
            alone = Seen(watch, [])
            alone.until("watching")
            assert alone.states[0].partitions[TopicPartition(topic, 0)].committed == 3
            member.close()
            alone.until("member-left")
        seen.until("member-left")


def test_a_group_in_kafka_goes_on_in_spite_of_brokers(kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Silent brokers end no watch that has begun, and what was known stays; then the group goes."""
    there = GroupSnapshot("g", (), (GroupPartition("t", 0, kafka=KafkaOffset(5)),), frozenset(), in_zookeeper=False)
    silent, gone = UnreachableError("no answer"), NotFoundError("no group")
    answers: list[GroupSnapshot | ZkgroupError] = [there, silent, there, gone]

    def read(*_: object, **__: object) -> GroupSnapshot:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, ZkgroupError):
            raise answer
        return answer

    monkeypatch.setattr(group_watch, "read_group", read)
    with GroupWatch("g", None, lambda _: kafka, interval=0.1, timeout=1.0, ages=True) as watch:
        seen = Seen(watch, [])
        kinds = [event.kind for event in seen.until("watching", "brokers-away", "brokers-back", "group-gone")]
    assert kinds[:4] == ["watching", "brokers-away", "brokers-back", "group-gone"]
    away = next(state for state in seen.states if state.kafka is not None)
    assert away.partitions == seen.states[0].partitions
    with GroupWatch("g", None, lambda _: kafka, interval=0.1, timeout=1.0) as late, pytest.raises(NotFoundError):
        late.next(10.0)
