"""The first message at a time, on logs whose brokers find it, and on those whose brokers do not."""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

import pytest
from cli import run
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource
from lines import names
from servers import Sandbox
from support import wait_until

from zkgroup.clients.kafka import message_times
from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.log_offsets import LogRange, log_offsets, offsets_for_times
from zkgroup.clients.kafka.message_times import TIMELESS, first_since
from zkgroup.clients.kafka.range_reader import RangeReader, range_consumer
from zkgroup.clients.kafka.start_position import StartAt, resolve_created, resolve_start
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import ZkgroupError
from zkgroup.export.planning.export_request import Bound
from zkgroup.export.planning.group_state import _resolve
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Create, Ensure
from zkgroup.sandbox.topic_admin import ProducerRecord, create_topic, produce

DAY = 86_400_000
#: When the messages of these tests were made: brokers take files for younger.
THEN = 1_700_000_000_000
NOISY = [THEN + n * 1000 + random.Random(n).randint(-200_000, 200_000) for n in range(1200)]
SEGMENTS = {"segment.bytes": "100000", "min.cleanable.dirty.ratio": "0.01", "retention.ms": "-1"}


@pytest.fixture(scope="module")
def emptied(zookeeper: Sandbox) -> Iterator[Sandbox]:
    """A cluster with compacted topics whose first segments hold nothing any more: ``rising`` and ``noisy`` by their
    messages' times."""
    options = {"zookeeper": zookeeper.address, "chroot": "/emptied", "properties": {"log.cleaner.backoff.ms": "100"}}
    with Sandbox("emptied", **options) as sandbox, sandbox.registry() as registry:
        kafka = KafkaSettings(sandbox.bootstrap)
        for name, at in (("rising", [THEN + n * 1000 for n in range(1200)]), ("noisy", NOISY)):
            make(registry, name, SEGMENTS)
            for first in range(0, len(at), 50):  # a batch is to fit in a segment
                chunk = range(first, first + 50)
                produce(kafka, name, [ProducerRecord(b"x" * 1000, b"k%d" % (n % 5), 0, at[n]) for n in chunk])
            # Compacted at one go: a second one would merge what the first one has emptied.
            configure(kafka, name, SEGMENTS | {"cleanup.policy": "compact"})
            key = TopicPartition(name, 0)
            wait_until(lambda key=key: len(kept(kafka, key)) < 300, 60, "the log is compacted")
        yield sandbox


def make(registry: Registry, name: str, config: Mapping[str, str]) -> None:
    registry.write(Ensure("/config/topics"))
    data = json.dumps({"version": 1, "config": config}).encode()
    assert registry.write(Create(f"/config/topics/{name}", data)) is None
    create_topic(registry, name)


def configure(kafka: KafkaSettings, name: str, config: Mapping[str, str]) -> None:
    resource = ConfigResource(ConfigResource.Type.TOPIC, name, set_config=dict(config))
    client = AdminClient({"bootstrap.servers": kafka.bootstrap})
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # what replaces it came with 2.3
        (done,) = client.alter_configs([resource]).values()
    done.result(20)


def bounds(kafka: KafkaSettings, key: TopicPartition) -> tuple[int, int]:
    found = log_offsets(kafka, [key], 10)[key]
    assert isinstance(found, LogRange)
    return found.start, found.end


def kept(kafka: KafkaSettings, key: TopicPartition) -> list[tuple[int, int]]:
    """Offset and time of each message that is there."""
    source = range_consumer(kafka)
    try:
        batches = RangeReader(source).batches(key, *bounds(kafka, key))
        return [(message.offset() or 0, message.timestamp()[1]) for batch in batches for message in batch]
    finally:
        source.close()


def answered(kafka: KafkaSettings, key: TopicPartition) -> bool:
    with suppress(ZkgroupError):
        return offsets_for_times(kafka, [{key: THEN}], 10) == [{key: None}]
    return False


def expected(messages: list[tuple[int, int]], millis: int) -> int | None:
    return next((offset for offset, at in messages if at >= millis), None)


@pytest.mark.parametrize("topic", ["rising", "noisy"])
def test_the_first_message_of_a_time_is_found_behind_emptied_segments(emptied: Sandbox, topic: str) -> None:
    """Whatever the time: the offset is that of the first message that is not older, as reading everything finds it."""
    kafka, key = KafkaSettings(emptied.bootstrap), TopicPartition(topic, 0)
    messages = kept(kafka, key)
    ats = sorted(at for _, at in messages)
    asked = [0, THEN - DAY, *(at + more for at in (ats[0], ats[20], ats[-2], ats[-1]) for more in (0, 1))]
    logs = {key: bounds(kafka, key)}
    assert offsets_for_times(kafka, [{key: ats[0]}], 10) == [{key: None}], "the broker finds it: nothing is tried here"
    for millis in asked:
        found = first_since(kafka, logs, millis, 10)
        assert (found.offsets, found.doubts) == ({key: expected(messages, millis)}, {}), millis


def test_every_command_starts_there(emptied: Sandbox) -> None:
    """A reset, reading and an export go to the first message that is left, not to the end."""
    kafka, key = KafkaSettings(emptied.bootstrap), TopicPartition("rising", 0)
    first = kept(kafka, key)[0][0]
    done = run("--cluster", "sandbox:emptied", "reset-offsets", "g", "--topic", "rising", "--to-datetime", "2020-01-01",
               "--output", "json")  # fmt: skip
    (row,) = json.loads(done.stdout)
    assert (row["target"], row["current"]) == (first, None)
    start = StartAt("time", THEN)
    assert resolve_start(kafka, [key], start, 10) == resolve_created(kafka, [key], start, 10) == {key: first}
    assert _resolve(Bound("time", THEN), {key: bounds(kafka, key)}, kafka, 10, list[str]().append, "starts at") == {
        key: first
    }


def test_what_may_not_be_read_to_the_end_is_an_earlier_offset(
    emptied: Sandbox, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where too much would have to be read, everything before the answer is older, and a doubt is reported."""
    kafka, key = KafkaSettings(emptied.bootstrap), TopicPartition("rising", 0)
    messages = kept(kafka, key)
    monkeypatch.setattr(message_times, "MAX_MESSAGES", 12)
    millis = messages[-1][1]
    found = first_since(kafka, {key: bounds(kafka, key)}, millis, 10)
    offset = found.offsets[key]
    assert found.doubts.keys() == {key}
    assert offset is not None
    assert messages[0][0] < offset < messages[-1][0]
    assert resolve_start(kafka, [key], StartAt("time", millis), 10) == {key: offset}
    assert names(caplog.text, "rising-0", offset)


def test_the_end_of_an_idle_log_costs_no_reading(
    kafka: KafkaSettings, make_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logs whose newest messages are older than the time: "none" is proven with the last messages alone; where others
    were made later than the last ones, with what follows them."""
    keys = [TopicPartition(make_topic(), 0) for _ in range(3)]
    shapes = [
        [THEN + n for n in range(9000)],
        [THEN] * 3000,
        [*(THEN + n for n in range(3000)), *(THEN + 5 * DAY + n for n in range(3000)), *(THEN + n for n in range(10))],
    ]
    for key, shape in zip(keys, shapes, strict=True):
        produce(kafka, key.topic, [ProducerRecord(b"v", None, 0, at) for at in shape])
    monkeypatch.setattr(message_times, "MAX_MESSAGES", 7000)
    logs = {key: bounds(kafka, key) for key in keys}
    found = first_since(kafka, logs, THEN + 9 * DAY, 10)
    assert (found.offsets, found.doubts) == (dict.fromkeys(keys), {})


def test_markers_of_transactions_hide_no_message(kafka: KafkaSettings, make_topic: Callable[..., str]) -> None:
    """Behind the last message there may be nothing but markers, which nobody sees."""
    key = TopicPartition(make_topic(), 0)
    client = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": key.topic})
    client.init_transactions(20)
    for _ in range(3):
        client.begin_transaction()
        client.produce(key.topic, b"v", partition=0, timestamp=THEN)
        client.flush(20)
        client.abort_transaction(20)
    log = {key: bounds(kafka, key)}
    assert log[key] == (0, 6)
    assert first_since(kafka, log, THEN, 10).offsets == {key: 0}
    assert first_since(kafka, log, 2 * THEN, 10).offsets == {key: None}


def test_messages_without_a_time_are_not_skipped(
    registry: Registry, kafka: KafkaSettings, unique: Callable[[str], str]
) -> None:
    """Messages in the format of 0.9 are of no time for brokers, which say "none" for any: the start, and why."""
    key = TopicPartition(unique("timeless"), 0)
    make(registry, key.topic, {"message.format.version": "0.9.0"})
    produce(kafka, key.topic, [ProducerRecord(b"v", None, 0) for _ in range(5)])
    for at in (0, THEN):  # as long as the topic is kept so, brokers do not even look
        found = first_since(kafka, {key: (0, 5)}, at, 10)
        assert (found.offsets, found.doubts) == ({key: 0}, {key: TIMELESS})
    configure(kafka, key.topic, {"message.format.version": "1.1"})
    wait_until(lambda: answered(kafka, key), 20, "the format is the new one")
    found = first_since(kafka, {key: (0, 5)}, THEN, 10)
    assert (found.offsets, found.doubts) == ({key: 0}, {key: TIMELESS})
