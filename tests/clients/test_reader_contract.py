"""One contract for both readers: the Python one is the measure, the native one gives the same bytes and columns."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import pytest
from both_readers import PARTITIONS, PIECES, Sent, compare, examples, messages, send
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from raw_batches import send_raw
from servers import Sandbox
from support import fresh_name, scaled, wait_until
from topic_changes import delete_topic

from zkgroup.clients.kafka.client import KafkaError, KafkaSettings, KafkaTopicPartition, Producer, admin_client
from zkgroup.clients.kafka.message_contents import is_json
from zkgroup.clients.kafka.native_reader import native_module, open_reader
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Create, Ensure
from zkgroup.sandbox.sandbox_security import USER
from zkgroup.sandbox.topic_admin import create_topic

if native_module() is None:
    pytest.skip("there is no native reader", allow_module_level=True)

Version = tuple[int, ...]
BROKERS = ("0.8.2.2", "0.10.2.2", "1.1.1", "3.9.1", "1.1.1 TLS+SASL")
#: What runs always: the releases with all their cases, and one case with TLS.
USUAL, ENCRYPTED = ("0.8.2.2", "1.1.1", "3.9.1"), ("1.1.1 TLS+SASL", "none")
LATEST: Version = (9,)


def version_of(release: str) -> Version:
    return tuple(map(int, release.split()[0].split(".")))


@dataclass(frozen=True)
class Broker:
    """A broker of one release."""

    version: Version
    kafka: KafkaSettings
    registry: Registry

    def create_topic(self, config: Mapping[str, str]) -> str:
        """A topic of ``PARTITIONS``; returns its name."""
        topic = fresh_name("topic")
        if config:
            self.registry.write(Ensure("/config/topics"))
            data = json.dumps({"version": 1, "config": config}).encode()
            assert self.registry.write(Create(f"/config/topics/{topic}", data)) is None
        create_topic(self.registry, topic, PARTITIONS)
        return topic


@pytest.fixture(scope="module")
def brokers(zookeeper: Sandbox, cluster: Sandbox, registry: Registry) -> Iterator[Callable[[str], Broker]]:
    """``brokers("1.1.1 TLS+SASL")``: one of ``BROKERS``, started when it is asked for first."""
    with ExitStack() as running:

        @cache
        def start(name: str) -> Broker:
            release, _, secured = name.partition(" ")
            if name == cluster.release.version:
                return Broker(version_of(name), KafkaSettings(cluster.bootstrap), registry)
            options: dict[str, Any] = {"secure": True}
            if not secured:
                options = {"zookeeper": zookeeper.address, "chroot": f"/{fresh_name('contract')}"}
            sandbox = running.enter_context(Sandbox(fresh_name("contract"), kafka=release, **options))
            kafka = KafkaSettings(sandbox.bootstrap, legacy_release=release if version_of(name) < (0, 10) else None)
            if sandbox.security is not None:
                properties = {
                    "security.protocol": "SASL_SSL",
                    "ssl.ca.location": str(sandbox.security.ca),
                    "sasl.mechanism": "SCRAM-SHA-512",
                    "sasl.username": USER,
                    "sasl.password": sandbox.security.password("sasl"),
                }
                kafka = KafkaSettings(sandbox.listener("SASL_SSL"), properties)
            return Broker(version_of(name), kafka, running.enter_context(sandbox.registry(30.0)))

        yield start


@dataclass(frozen=True)
class Case:
    """A topic, how it is filled, and how it is read. ``since`` and ``until``: the releases that have it, from the first
    to before the last. ``magic``: the topic's message format, where it is not the broker's."""

    fill: Callable[[Broker, str, Case], list[Sent] | int]
    since: Version = (0, 8)
    until: Version = LATEST
    magic: str = ""
    config: Mapping[str, str] = field(default_factory=dict)
    producer: Mapping[str, str] = field(default_factory=dict)
    reader: Mapping[str, Any] = field(default_factory=dict)


def kept(broker: Broker, case: Case, sent: list[Sent]) -> list[Sent]:
    """The messages with what their format keeps of them."""
    version = min(broker.version, version_of(case.magic) if case.magic else LATEST)
    if version < (0, 10):
        sent = [replace(one, timestamp=0) for one in sent]
    return [replace(one, headers=[]) for one in sent] if version < (0, 11) else sent


def any_messages(broker: Broker, topic: str, case: Case) -> list[Sent]:
    """Messages of all kinds."""
    sent = kept(broker, case, examples(seed=len(case.producer), count=600))
    send(broker.kafka, topic, sent, **case.producer)
    return sent


def untimed_messages(broker: Broker, topic: str, case: Case) -> list[Sent]:
    """The broker says when they came."""
    sent = [replace(one, timestamp=0) for one in kept(broker, case, examples(seed=1, count=600))]
    send(broker.kafka, topic, sent)
    return sent


def large_messages(broker: Broker, topic: str, case: Case) -> list[Sent]:
    """Large ones among small ones."""
    sent = examples(seed=2, count=60)
    sent[::7] = [replace(one, value=b"x" * 300_000, key=b"k" * 100_000, timestamp=0) for one in sent[::7]]
    sent = kept(broker, case, sent)
    send(broker.kafka, topic, sent)
    return sent


def transactions(broker: Broker, topic: str, case: Case) -> int:
    """Two that were aborted around one that was committed."""
    client = Producer(broker.kafka.base() | dict(broker.kafka.properties) | {"transactional.id": topic})
    client.init_transactions(30)
    for number, end in enumerate((client.abort_transaction, client.commit_transaction, client.abort_transaction)):
        client.begin_transaction()
        for _ in range(50):
            client.produce(topic, b"%d" % number, partition=number % 2)
        client.flush()
        end(30)
    return 50 if case.reader["isolation_level"] == "read_committed" else 150


def emptied(broker: Broker, topic: str, case: Case) -> list[Sent]:
    """All messages of one partition, and some of another, are deleted as retention deletes them."""
    sent = [replace(one, timestamp=0) for one in examples(seed=3, count=300)]
    send(broker.kafka, topic, sent)
    first = [one for one in sent if one.partition == 1][:50]
    wanted = [KafkaTopicPartition(topic, 0, -1), KafkaTopicPartition(topic, 1, len(first))]
    admin = admin_client(broker.kafka, 30)  # its answers come through it
    for future in admin.delete_records(wanted).values():
        future.result(30)
    return [one for one in sent if one.partition and not any(one is gone for gone in first)]


def with_codec(codec: str, since: Version = (0, 8)) -> Case:
    return Case(any_messages, since, producer={"compression.type": codec})


CASES = {
    **{codec: with_codec(codec) for codec in ("none", "gzip", "snappy", "lz4")},
    "zstd": with_codec("zstd", (2, 1)),
    "format 0.8.2": Case(any_messages, (1, 0), (3, 0), magic="0.8.2"),
    "format 0.10.2": Case(any_messages, (1, 0), (3, 0), magic="0.10.2"),
    "log-append times": Case(untimed_messages, (0, 10), config={"message.timestamp.type": "LogAppendTime"}),
    "larger than a fetch": Case(large_messages, reader={"fetch_message_max_bytes": 10_000}),
    "committed": Case(transactions, (0, 11), reader={"isolation_level": "read_committed"}),
    "uncommitted": Case(transactions, (0, 11), reader={"isolation_level": "read_uncommitted"}),
    "emptied": Case(emptied, (0, 11)),
}


@pytest.mark.parametrize(
    ("release", "name"),
    [
        pytest.param(release, name, marks=() if release in USUAL or (release, name) == ENCRYPTED else pytest.mark.long)
        for release in BROKERS
        for name, case in CASES.items()
        if case.since <= version_of(release) < case.until
    ],
)
def test_both_readers_give_the_same(brokers: Callable[[str], Broker], release: str, name: str) -> None:
    """What was sent, as the log keeps it; bytes, records, runs, ends and columns are equal."""
    broker, case = brokers(release), CASES[name]
    config = {**case.config, **({"message.format.version": case.magic} if case.magic else {})}
    topic = broker.create_topic(config)
    compare(broker.kafka, topic, case.fill(broker, topic, case), **case.reader)


@pytest.mark.parametrize("native", [False, True], ids=["Python", "native"])
@pytest.mark.parametrize("release", ["1.1.1", "3.9.1"])
def test_a_topic_that_is_recreated(brokers: Callable[[str], Broker], release: str, native: bool) -> None:
    """A reader reports positions out of range, and reads the new topic from where it is assigned anew."""
    broker = brokers(release)
    topic = broker.create_topic({})
    start = {TopicPartition(topic, number): 0 for number in range(PARTITIONS)}
    send(broker.kafka, topic, [Sent(None, b"old", n % PARTITIONS, 0, []) for n in range(90)])
    values: list[bytes | None] = []
    out_of_range = set()
    with closing(open_reader(broker.kafka, native=native)) as reader:

        def advance() -> None:
            fetched = reader.fetch(0.1)
            values.extend(message.value() for message in fetched.messages)
            out_of_range.update(at for at, error in fetched.errors if error.code() == KafkaError._AUTO_OFFSET_RESET)

        reader.assign(start)
        wait_until(lambda: advance() or len(values) == 90, 30, "the old topic is read")
        delete_topic(broker.registry, topic)
        create_topic(broker.registry, topic, PARTITIONS)
        send(broker.kafka, topic, [Sent(None, b"new", n % PARTITIONS, 0, []) for n in range(9)])
        wait_until(lambda: advance() or out_of_range == start.keys(), 60, "all positions are out of range")
        reader.assign(start)
        wait_until(lambda: advance() or len(values) == 99, 30, "the new topic is read")
    assert values == [b"old"] * 90 + [b"new"] * 9


@settings(max_examples=scaled(25), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(messages)
def test_messages_that_nobody_thought_of(kafka: KafkaSettings, registry: Registry, sent: list[Sent]) -> None:
    """The same of whatever messages."""
    topic = fresh_name("topic")
    create_topic(registry, topic, PARTITIONS)
    send(kafka, topic, sent)
    compare(kafka, topic, sent)


def test_headers_whose_names_are_no_text(kafka: KafkaSettings, make_topic: Callable[..., str]) -> None:
    """They are unreadable in both, alone and among others."""
    topic = make_topic()
    named = [[(b"ok", b"1")], [(b"\xff\xfe", b"2")], [(b"ok", b"3"), (b"\xc3", b"4")], [], [(b"\xef\xbf\xbd", b"")]]
    send_raw(kafka.bootstrap, topic, named)
    compare(kafka, topic, len(named), 1)


@settings(max_examples=scaled(500))
@given(
    st.binary(max_size=30)
    | st.lists(
        st.sampled_from(
            [*PIECES, b" ", b":", b'"a"', b'"\xff"', b"\\u12", b"\\ud800", b"-0.5E+2", b"01", b"tru", b"\\"]
        )
    ).map(b"".join)
    | st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ).map(lambda value: json.dumps(value).encode())
)
def test_json_is_checked_alike(value: bytes) -> None:
    """The C check and the Python one say the same of any bytes."""
    assert native_module().is_json(value) == is_json(value)  # type: ignore[union-attr]


@pytest.mark.parametrize("levels", [1, 800, 1025, 5000])
@pytest.mark.parametrize(("opening", "closing_"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_json_of_many_levels_is_checked_alike(levels: int, opening: bytes, closing_: bytes) -> None:
    """Up to 800 levels surely, beyond 1,024 never, and neither reads behind its end."""
    value = opening * levels + b"1" + closing_ * levels
    for text in (value, value[:-1], value + b"]"):
        assert native_module().is_json(text) == is_json(text)  # type: ignore[union-attr]


def test_positions_are_followed(kafka: KafkaSettings, filled: str, make_topic: Callable[..., str]) -> None:
    """``add`` and ``seek`` do as the Python reader does."""
    other = make_topic()
    send(kafka, other, [Sent(None, b"o%d" % n, 0, 1, []) for n in range(100)])
    for native in (True, False):
        with closing(open_reader(kafka, native=native)) as reader:
            reader.assign({TopicPartition(filled, 0): 4990})
            assert offsets_of(reader, 10) == [(filled, n) for n in range(4990, 5000)]
            reader.add({TopicPartition(filled, 0): 0, TopicPartition(other, 0): 90})
            assert offsets_of(reader, 10) == [(other, n) for n in range(90, 100)]
            reader.seek(TopicPartition(other, 0), 95)
            assert offsets_of(reader, 5) == [(other, n) for n in range(95, 100)]


def offsets_of(reader: Any, count: int) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    deadline = time.monotonic() + 30
    while len(found) < count and time.monotonic() < deadline:
        found += [(message.topic(), message.offset()) for message in reader.fetch(0.1).messages]
    return found


def test_a_position_out_of_range_is_an_error_of_its_partition(kafka: KafkaSettings, filled: str) -> None:
    """In both readers."""
    for native in (True, False):
        with closing(open_reader(kafka, native=native)) as reader:
            reader.assign({TopicPartition(filled, 0): 10**9})
            deadline = time.monotonic() + 30
            errors: list[tuple[TopicPartition | None, KafkaError]] = []
            while not errors and time.monotonic() < deadline:
                errors = reader.fetch(0.2).errors
            assert [(partition, error.code()) for partition, error in errors] == [
                (TopicPartition(filled, 0), KafkaError._AUTO_OFFSET_RESET)
            ]


def test_brokers_that_are_away_are_reported_alike(caplog: pytest.LogCaptureFixture) -> None:
    """The error of the client, and the line of its log."""
    reports = []
    for native in (True, False):
        caplog.clear()
        codes: set[int] = set()
        with closing(open_reader(KafkaSettings("127.0.0.1:1"), native=native)) as reader:
            reader.assign({TopicPartition("t", 0): 0})
            deadline = time.monotonic() + 20
            while KafkaError._ALL_BROKERS_DOWN not in codes and time.monotonic() < deadline:
                codes |= {error.code() for _, error in reader.fetch(0.2).errors}
        lines = {record.getMessage() for record in caplog.records if "Connect to" in record.getMessage()}
        reports.append((codes, lines))
    assert KafkaError._ALL_BROKERS_DOWN in reports[0][0]
    assert reports[0] == reports[1]
    assert reports[0][1]
