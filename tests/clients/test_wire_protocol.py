"""Old brokers that accept connections and say nothing, next to one that answers."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lines import names

from zkgroup.clients.kafka import wire_protocol
from zkgroup.clients.kafka.client import KafkaSettings, topics
from zkgroup.clients.kafka.log_offsets import LogRange, log_offsets, offsets_for_times
from zkgroup.clients.kafka.registered_brokers import Brokers
from zkgroup.clients.kafka.wire_protocol import GRACE, NoAnswer, answering
from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import NoAnswerError, UnreachableError, ZkgroupError
from zkgroup.protocol import znodes
from zkgroup.protocol.broker_znodes import Endpoint
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Get, Node, Op, Result, Stat
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import ProducerRecord


def endpoint(port: int, host: str = "127.0.0.1") -> Endpoint:
    return Endpoint("PLAINTEXT", "PLAINTEXT", host, port)


@pytest.fixture
def living(cluster: Sandbox) -> Endpoint:
    """The shared broker."""
    return endpoint(int(cluster.bootstrap.rpartition(":")[2]))


@pytest.fixture
def silent() -> Iterator[list[Endpoint]]:
    """Three that accept connections and never answer, as a process that was stopped does."""
    with ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=200)) for _ in range(3)]
        yield [endpoint(server.getsockname()[1]) for server in servers]


@pytest.fixture
def closed() -> Endpoint:
    """Where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return endpoint(server.getsockname()[1])


def test_why_none_answers(living: Endpoint, silent: list[Endpoint], closed: Endpoint) -> None:
    """A name that is not known, nothing, silence, something else; the one that answers is in no trouble."""
    with serving(b"HTTP/1.1 400 Bad Request\r\n\r\n", 2) as web, serving(b"", 3) as ending:
        unknown = endpoint(9092, "no-such-host.invalid")
        expected = {
            unknown: NoAnswer.UNKNOWN_NAME,
            endpoint(9092, "a..b"): NoAnswer.UNKNOWN_NAME,
            closed: NoAnswer.REFUSED,
            silent[0]: NoAnswer.SILENT,
            web: NoAnswer.NOT_KAFKA,
            ending: NoAnswer.NOT_KAFKA,
        }
        failures, others = wire_protocol.troubles([living, *expected], plain=True)
        assert (failures, others) == (expected, [])
        failures, _ = wire_protocol.troubles([living, *expected], plain=False)
        assert failures == {one: expected[one] for one in expected if one not in (silent[0], web, ending)}
    lines = wire_protocol.in_words({closed: "x", silent[0]: "y"})
    assert lines == f"{closed}: x; {silent[0]}: y"
    assert wire_protocol.in_words({closed: "x"}) == "x"


def test_what_is_no_zookeeper(living: Endpoint, silent: list[Endpoint]) -> None:
    """A broker, and silence, each by its name."""
    for place in (living, silent[0]):
        with pytest.raises(UnreachableError) as refused, Registry(ZooKeeperSettings(str(place)), 1.0):
            pass
        assert names(str(refused.value), "ZooKeeper", place, "Kafka") == (place == living), refused.value


def test_a_zookeeper_is_no_broker(cluster: Sandbox) -> None:
    """It ends the connection at the first request, as a broker does that wants a user: the error says that."""
    zookeeper = endpoint(int(cluster.address.rpartition(":")[2]))
    assert wire_protocol.troubles([zookeeper], plain=True)[0] == {zookeeper: NoAnswer.NOT_KAFKA}
    with pytest.raises(NoAnswerError, match=rf"{zookeeper}\b.*--zookeeper\b"):
        topics(KafkaSettings(str(zookeeper)), 2.0)


@contextlib.contextmanager
def serving(reply: bytes, times: int) -> Iterator[Endpoint]:
    """A server that answers so many connections with this, and ends them."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for _ in range(times):
                connection, _ = server.accept()
                with connection:
                    connection.recv(1000)
                    connection.sendall(reply)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield endpoint(server.getsockname()[1])
        thread.join(30)


def test_who_answers_is_known_without_waiting_for_who_does_not(
    living: Endpoint, silent: list[Endpoint], closed: Endpoint
) -> None:
    """The silent ones cost a grace."""
    began = time.monotonic()
    assert answering([silent[0], living, closed, silent[1]], 20.0) == [living]
    assert time.monotonic() - began < GRACE + 2.0


def test_where_nobody_answers_the_time_out_ends_it(silent: list[Endpoint]) -> None:
    """All are waited for as long as was allowed, together."""
    began = time.monotonic()
    assert answering(silent, 0.5) == []
    assert 0.5 <= time.monotonic() - began < 3.0


def test_what_is_no_broker_does_not_count(closed: Endpoint) -> None:
    """One that hangs up, or whose name is not known, is as good as silent; it does not take the time-out to see."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=lambda: server.accept()[0].close())
        thread.start()
        began = time.monotonic()
        rude = endpoint(server.getsockname()[1])
        assert answering([rude, closed, endpoint(9092, "no-such-host.invalid")], 30.0) == []
        assert time.monotonic() - began < 20.0
        thread.join(10)


class Registered:
    """ZooKeeper's answers about brokers: ``version`` of each registration, by id."""

    def __init__(self) -> None:
        self.brokers: dict[int, tuple[Endpoint, int]] = {}

    def read(self, ops: Sequence[Op]) -> list[Result]:
        nodes = {znodes.broker(number): _registration(at, version) for number, (at, version) in self.brokers.items()}
        stat = Stat(1, 1, 0, 0, 0, 0)
        return [
            Node(nodes[op.path], stat) if isinstance(op, Get) else tuple(str(number) for number in self.brokers)
            for op in ops
        ]


def _registration(at: Endpoint, version: int) -> bytes:
    parts = {"version": version, "host": at.host, "port": at.port, "jmx_port": -1, "timestamp": "1"}
    return json.dumps(parts | ({} if version == 1 else {"endpoints": [f"PLAINTEXT://{at}"]})).encode()


@pytest.mark.parametrize(("version", "legacy"), [(1, "0.8.2.2"), (4, None)])
def test_a_silent_old_broker_keeps_nobody_from_the_others(
    version: int,
    legacy: str | None,
    living: Endpoint,
    silent: list[Endpoint],
    make_topic: Callable[..., str],
    fill: Callable[..., list[ProducerRecord]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whatever the release of the living one (a silent registration of version 1 says nothing about it), the brokers
    answer as if it were alone, every time; the silent one is named, once."""
    topic = make_topic(2)
    fill(topic, 10, 2)
    registered = Registered()
    registered.brokers = {number: (at, 1) for number, at in enumerate(silent, 10)} | {1: (living, version)}
    brokers = Brokers(registered.read, {})
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            settings = brokers.settings()
            assert (settings.bootstrap, settings.legacy_release) == (str(living), legacy)
            assert topic in topics(settings, 10.0)
            partitions = [TopicPartition(topic, number) for number in range(2)]
            assert log_offsets(settings, partitions, 10.0) == dict.fromkeys(partitions, LogRange(0, 5))
    assert len(caplog.messages) == len(silent)
    assert all(names(caplog.text, at) for at in silent)


def test_old_brokers_are_asked_as_librdkafka_would_ask_them(
    living: Endpoint,
    make_topic: Callable[..., str],
    fill: Callable[..., list[ProducerRecord]],
    unique: Callable[[str], str],
) -> None:
    """Topics, log offsets, unknown partitions and first offsets at a time are the same, whoever asks."""
    known, missing = make_topic(3), unique("missing")
    fill(known, 7, 2)
    partitions = [TopicPartition(known, number) for number in range(4)] + [TopicPartition(missing, 0)]
    old, new = KafkaSettings(str(living), {}, "0.8.2.2"), KafkaSettings(str(living))
    assert topics(old, 10.0)[known] == topics(new, 10.0)[known] == (0, 1, 2)
    by_wire, by_client = (log_offsets(settings, partitions, 10.0) for settings in (old, new))
    assert {p: str(found) for p, found in by_wire.items()} == {p: str(found) for p, found in by_client.items()}
    assert [by_wire[p] for p in partitions[:3]] == [LogRange(0, 4), LogRange(0, 3), LogRange(0, 0)]
    first = [TopicPartition(known, 0)]
    assert offsets_for_times(old, [{first[0]: 2**50}], 10.0) == [{first[0]: 4}]
    assert offsets_for_times(old, [{first[0]: 0}], 10.0) == [{first[0]: None}]


def test_a_silent_leader_is_an_error_of_its_partitions(
    living: Endpoint, silent: list[Endpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it leads is not known, and it is named; what the others lead is."""
    known = wire_protocol.Metadata(
        {1: living, 2: silent[0]},
        {"t": (0, {0: wire_protocol.PartitionLeader(0, 2), 1: wire_protocol.PartitionLeader(5, -1)})},
    )
    monkeypatch.setattr(wire_protocol, "fetch_metadata", lambda endpoints, timeout: known)
    found = log_offsets(KafkaSettings(str(living), {}, "0.8.2.2"), [TopicPartition("t", n) for n in (0, 1)], 1.0)
    assert isinstance(found["t", 0], UnreachableError)
    assert names(str(found["t", 0]), 2, silent[0], "t-0", "1 s"), found
    assert isinstance(found["t", 1], ZkgroupError)


@given(data=st.binary(max_size=200))
def test_an_answer_that_is_none_is_refused_in_one_way(data: bytes) -> None:
    """Whatever comes from a port that somebody registered, reading it raises nothing but struct.error."""
    for read in (wire_protocol.read_metadata, wire_protocol.read_offsets):
        with contextlib.suppress(struct.error):
            read(data)


def test_where_all_old_brokers_are_silent_all_are_named(silent: list[Endpoint]) -> None:
    """The error names every one of them, in the time given."""
    registered = Registered()
    registered.brokers = {number: (at, 2) for number, at in enumerate(silent)}
    with pytest.raises(UnreachableError) as caught:
        Brokers(registered.read, {}, timeout=0.5).settings()
    assert names(str(caught.value), ",".join(map(str, silent)), "0.5 s")


def test_new_brokers_and_lone_ones_are_left_to_librdkafka(silent: list[Endpoint]) -> None:
    """Nobody is asked where librdkafka sees by itself who is silent, or there is no choice."""
    registered = Registered()
    for brokers in ({1: (silent[0], 1)}, {1: (silent[0], 4), 2: (silent[1], 4)}):
        registered.brokers = brokers
        began = time.monotonic()
        assert Brokers(registered.read, {}).settings().bootstrap == ",".join(str(at) for at, _ in brokers.values())
        assert time.monotonic() - began < 0.5
