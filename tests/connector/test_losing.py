"""What a member loses on real servers, and what it makes of it: connections, sessions, its life."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lines import names
from members import ProcessMember, ReadMember, committed, owners, wait_for_rest
from session_expiry import expire_session
from support import numbered, values, wait_until
from tcp_proxy import TcpProxy

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.connector import zookeeper_driver
from zkgroup.protocol.names import OFFSETS_TOPIC, TopicPartition
from zkgroup.sandbox.local_cluster import START_TIMEOUT, Sandbox
from zkgroup.sandbox.topic_admin import ProducerRecord, produce

Make = Callable[..., str]
Fill = Callable[..., list[ProducerRecord]]
Unique = Callable[[str], str]


@pytest.fixture
def proxy(zookeeper: Sandbox) -> Iterator[TcpProxy]:
    with TcpProxy(zookeeper.address) as proxy:
        yield proxy


class Trickle:
    """Produces a message to each partition every 20 ms; ``sent`` is what the brokers have."""

    def __init__(self, settings: KafkaSettings, topic: str, partitions: int) -> None:
        self.sent: set[bytes] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(settings, topic, partitions), daemon=True)

    def _run(self, settings: KafkaSettings, topic: str, partitions: int) -> None:
        start = 0
        while not self._stop.wait(0.02):
            records = numbered(partitions, partitions, start)
            produce(settings, topic, records)
            self.sent |= values(records)
            start += partitions

    def __enter__(self) -> Trickle:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)


class History:
    """Reads committed offsets again and again: they must never go back."""

    def __init__(self, registry: Registry, group: str, topic: str, partitions: int) -> None:
        self.backwards: list[tuple[int, int, int]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(registry, group, topic, partitions), daemon=True)

    def _run(self, registry: Registry, group: str, topic: str, partitions: int) -> None:
        before = [0] * partitions
        while not self._stop.wait(0.01):
            now = [offset or 0 for offset in committed(registry, group, topic, partitions)]
            self.backwards += [(p, b, n) for p, (b, n) in enumerate(zip(before, now, strict=True)) if n < b]
            before = now

    def __enter__(self) -> History:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)
        assert self.backwards == []


# --- connections and sessions ---------------------------------------------------------------------------------------


def test_a_dropped_connection_costs_nothing(
    cluster: Sandbox, registry: Registry, make_topic: Make, unique: Unique, fill: Fill, proxy: TcpProxy
) -> None:
    """Back within the session's time-out: no rebalance, nothing read twice."""
    topic, group = make_topic(2), unique("group")
    with ReadMember(proxy.address + cluster.chroot, group, {topic: 1}) as member:
        for _ in range(3):
            accepted = proxy.accepted
            proxy.drop()
            wait_until(lambda before=accepted: proxy.accepted > before, 10, "connected again")
            fill(topic, 20, 2)
        wait_until(lambda: committed(registry, group, topic, 2) == [30, 30], 20, "everything committed")
        assert member.connector.statistics().counters.rebalances == 1
        assert len(member.records) == 60


def logged(caplog: pytest.LogCaptureFixture, level: int) -> str:
    """What members have logged at this level."""
    ours = (one for one in caplog.records if (one.name, one.levelno) == (zookeeper_driver.__name__, level))
    return "\n".join(one.getMessage() for one in ours)


def test_a_server_that_falls_silent_is_left_for_another(
    zookeeper: Sandbox,
    cluster: Sandbox,
    registry: Registry,
    make_topic: Make,
    unique: Unique,
    fill: Fill,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A hung server keeps its connections open: a member that hears nothing for two thirds of its time-out goes to the
    next server with its session, however much it asks meanwhile, and shows which. (A member asks more often than kazoo
    looks.)"""
    caplog.set_level(logging.INFO)
    topic, group = make_topic(2), unique("group")
    with TcpProxy(zookeeper.address) as one, TcpProxy(zookeeper.address) as other:
        connect = f"{one.address},{other.address}{cluster.chroot}"
        with ReadMember(connect, group, {topic: 1}, session_timeout=6.0) as member:
            used, spare = (one, other) if one.connections else (other, one)
            used.stall()
            wait_until(lambda: spare.connections, 5.5, "connected to the other")
            wait_until(lambda: names(logged(caplog, logging.INFO), spare.address), 5, "it has logged")
            assert names(logged(caplog, logging.WARNING), used.address)
            member.wait_for(values(fill(topic, 20, 2)))
            wait_until(lambda: committed(registry, group, topic, 2) == [10, 10], 10, "everything committed")
            counters = member.connector.statistics().counters
            assert (counters.sessions, counters.rebalances) == (1, 1)


def timed(connect: str, group: str, topic: str, times: list[float], session_timeout: float) -> ReadMember:
    """Member ``a``, which notes in ``times`` when it is handed a record."""
    return ReadMember(
        connect,
        group,
        {topic: 1},
        consumer_id="a",
        session_timeout=session_timeout,
        pace=lambda record: times.append(time.monotonic()),
    )


def test_past_the_lease_nothing_is_delivered(
    cluster: Sandbox, registry: Registry, make_topic: Make, unique: Unique, kafka: KafkaSettings, proxy: TcpProxy
) -> None:
    """A member cut off from ZooKeeper, not from the brokers, stops reading within half of its time-out; another has its
    share after the whole. When it is back it joins again, and nothing was lost or taken back."""
    topic, group = make_topic(2), unique("group")
    times: list[float] = []
    with (
        History(registry, group, topic, 2),
        timed(proxy.address + cluster.chroot, group, topic, times, 4.0) as cut_off,
        ReadMember(cluster.connect, group, {topic: 1}, consumer_id="b", session_timeout=4.0) as other,
        Trickle(kafka, topic, 2) as trickle,
    ):
        wait_for_rest(registry, group, 2)
        wait_until(lambda: times, 10, "something read")
        proxy.stall()
        began = time.monotonic()
        wait_until(lambda: len(other.owned) == 2, 15, "the other has it all")
        assert time.monotonic() - began > 2.5, "not before the session's time-out"
        assert times[-1] - began < 2.1, "half of the time-out"
        delivered = len(times)
        proxy.heal()
        wait_for_rest(registry, group, 2)
        assert cut_off.connector.statistics().counters.sessions == 2
        wait_until(lambda: len(times) > delivered, 10, "it reads again")
        trickle.__exit__()
        wait_until(lambda: trickle.sent == cut_off.values.keys() | other.values.keys(), 20, "everything read")


def test_a_member_that_cannot_hear_of_its_expiry_reads_no_longer_than_its_lease(
    zookeeper: Sandbox,
    cluster: Sandbox,
    registry: Registry,
    make_topic: Make,
    unique: Unique,
    kafka: KafkaSettings,
    proxy: TcpProxy,
) -> None:
    """A server ends the session of a member that hears nothing just then: another has its share at once. What the first
    delivers meanwhile ends with half of its time-out, and nothing that is stored goes back; then it joins again."""
    topic, group = make_topic(2), unique("group")
    times: list[float] = []
    taken = threading.Event()  # the other has read of all partitions
    with (
        History(registry, group, topic, 2),
        timed(proxy.address + cluster.chroot, group, topic, times, 8.0) as untold,
        ReadMember(
            cluster.connect,
            group,
            {topic: 1},
            consumer_id="b",
            pace=lambda record: taken.set() if record.partition == 0 else None,
        ) as other,
        Trickle(kafka, topic, 2) as trickle,
    ):
        wait_for_rest(registry, group, 2)
        assert [partition.partition for partition in untold.owned] == [0]
        wait_until(lambda: times, 10, "something read")
        session = untold.connector.statistics().session_id
        proxy.stall()
        expire_session(zookeeper.address, session)
        ended = time.monotonic()
        assert taken.wait(10), "the other has it all"
        assert time.monotonic() - ended < 4.0, "at once"
        wait_until(lambda: time.monotonic() > ended + 5.0, 10, "the lease is over")
        assert times[-1] - ended < 4.1, "half of the time-out"
        delivered = len(times)
        proxy.heal()
        wait_for_rest(registry, group, 2)
        assert untold.connector.statistics().counters.sessions == 2
        wait_until(lambda: len(times) > delivered, 10, "it reads again")
        trickle.__exit__()
        wait_until(lambda: trickle.sent == untold.values.keys() | other.values.keys(), 20, "everything read")


def test_an_expired_session_begins_anew(
    zookeeper: Sandbox, cluster: Sandbox, registry: Registry, make_topic: Make, unique: Unique, kafka: KafkaSettings
) -> None:
    """A session ended on the server: a new one, the share back from the stored offsets; nothing lost, and at most what
    came since the last commit twice."""
    topic, group = make_topic(2), unique("group")
    ends: list[list[int]] = []  # for each session that ended: what was committed before
    with (
        History(registry, group, topic, 2),
        ReadMember(cluster.connect, group, {topic: 1}, consumer_id="a") as member,
        Trickle(kafka, topic, 2) as trickle,
    ):
        for number in range(2, 5):
            before = committed(registry, group, topic, 2)
            wait_until(lambda before=before: committed(registry, group, topic, 2) != before, 20, "progress")
            ends.append([offset or 0 for offset in committed(registry, group, topic, 2)])
            expire_session(zookeeper.address, member.connector.statistics().session_id)
            wait_until(lambda n=number: member.connector.statistics().counters.sessions == n, 10, "a new session")
            wait_for_rest(registry, group, 1)
        trickle.__exit__()
        member.wait_for(trickle.sent)
        for value, times in member.values.items():
            offset, partition = divmod(int(value[1:]), 2)
            assert times - 1 <= sum(end[partition] <= offset for end in ends), value


# --- processes ------------------------------------------------------------------------------------------------------


@pytest.fixture
def process(cluster: Sandbox, tmp_path: Path) -> Iterator[Callable[[str, str, str], ProcessMember]]:
    """``process(group, topic, name)``: a member in a process of its own, with a session of 2 s."""
    made: list[ProcessMember] = []

    def make(group: str, topic: str, name: str) -> ProcessMember:
        made.append(ProcessMember(cluster.connect, group, topic, name, tmp_path, "zookeeper.session.timeout.ms=2000"))
        return made[-1]

    yield make
    for member in made:
        member.kill()


def test_a_stopped_process_takes_nothing_back_when_it_goes_on(
    cluster: Sandbox,
    registry: Registry,
    make_topic: Make,
    unique: Unique,
    kafka: KafkaSettings,
    process: Callable[[str, str, str], ProcessMember],
) -> None:
    """SIGSTOP past the session's time-out: the other member takes over; after SIGCONT the stopped one writes no offset
    of its old session, joins again, and no message is missing."""
    topic, group = make_topic(2), unique("group")
    with History(registry, group, topic, 2), Trickle(kafka, topic, 2) as trickle:
        stopped, other = process(group, topic, "a"), process(group, topic, "b")
        wait_for_rest(registry, group, 2)
        wait_until(lambda: stopped.printed, 20, "something read")
        stopped.stop()
        wait_until(lambda: set(owners(registry, group).values()) == {f"{group}_b-0"}, 20, "the other has it all")
        stopped.go_on()
        wait_for_rest(registry, group, 2)
        trickle.__exit__()
        wait_until(lambda: {*stopped.printed, *other.printed} == trickle.sent, 20, "everything printed")
        stopped.leave()
        other.leave()
    assert sum(filter(None, committed(registry, group, topic, 2))) == len(trickle.sent)


def test_a_killed_process_is_replaced_after_its_session(
    cluster: Sandbox,
    registry: Registry,
    make_topic: Make,
    unique: Unique,
    kafka: KafkaSettings,
    process: Callable[[str, str, str], ProcessMember],
) -> None:
    """kill -9: the other has its share after the session's time-out and a moment; nothing missing, and what is repeated
    came after the last commit."""
    topic, group = make_topic(2), unique("group")
    with History(registry, group, topic, 2), Trickle(kafka, topic, 2) as trickle:
        killed, other = process(group, topic, "a"), process(group, topic, "b")
        wait_for_rest(registry, group, 2)
        wait_until(lambda: (committed(registry, group, topic, 2)[0] or 0) > 5, 20, "progress")
        killed.kill()
        began = time.monotonic()
        at_death = committed(registry, group, topic, 2)[0] or 0
        wait_for_rest(registry, group, 1)
        assert time.monotonic() - began < 2.0 + 0.5 + 2.5, "session timeout, a tick, and a busy machine"
        trickle.__exit__()
        wait_until(lambda: {*killed.printed, *other.printed} == trickle.sent, 20, "everything printed")
    lines = killed.printed + other.printed
    repeated = sorted({line for line in lines if lines.count(line) > 1})
    of_partition_0 = [int(value[1:]) // 2 for value in repeated]
    assert all(offset >= at_death for offset in of_partition_0)


def test_an_id_of_a_leftover_session_is_waited_for(
    cluster: Sandbox, registry: Registry, make_topic: Make, unique: Unique, proxy: TcpProxy
) -> None:
    """A process that died and is started again with the same consumer.id waits for its former session to expire."""
    topic, group = make_topic(1), unique("group")
    first = ReadMember(proxy.address + cluster.chroot, group, {topic: 1}, consumer_id="same", session_timeout=2.0)
    proxy.cut()
    began = time.monotonic()
    with ReadMember(cluster.connect, group, {topic: 1}, consumer_id="same", session_timeout=2.0) as second:
        assert 0.5 < time.monotonic() - began < 6.0
        assert second.owned == (TopicPartition(topic, 0),)
        proxy.heal()
        wait_until(lambda: first.connector.statistics().phase == "waiting for its id", 10, "the first waits now")
        first.close()
        assert second.owned == (TopicPartition(topic, 0),)


def test_servers_that_restart_are_survived(make_sandbox: Callable[..., Sandbox], unique: Unique) -> None:
    """ZooKeeper, then the broker, killed and started again under a reading member: it goes on, in the same session, and
    nothing is missing."""
    from zkgroup.sandbox.topic_admin import create_topic

    sandbox = make_sandbox()
    topic, group = "restarted", unique("group")
    settings = KafkaSettings(sandbox.bootstrap)
    with sandbox.registry(30.0) as registry:
        create_topic(registry, topic, 2)
        # librdkafka's search for a coordinator makes the broker create this topic. Without ZooKeeper the broker would
        # hang in that, and answer nothing that comes behind it on the reader's connection.
        create_topic(registry, OFFSETS_TOPIC, 4)
    with ReadMember(sandbox.connect, group, {topic: 1}, session_timeout=10.0) as member:
        produce(settings, topic, numbered(10, 2))
        member.wait_for(values(numbered(10)))
        sandbox.zookeeper.kill()
        produce(settings, topic, numbered(10, 2, 10))
        member.wait_for(values(numbered(20)))
        sandbox.zookeeper.start(START_TIMEOUT)
        wait_until(lambda: member.connector.commit() is None, 20, "a commit")
        assert member.connector.statistics().counters.sessions == 1
        sandbox.broker().kill()
        sandbox.start_broker()
        produce(settings, topic, numbered(10, 2, 20))
        member.wait_for(values(numbered(30)), 60)
    with sandbox.registry(30.0) as registry:
        assert committed(registry, group, topic, 2) == [15, 15]
