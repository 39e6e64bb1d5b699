"""Create topics through ZooKeeper, on every release of Kafka, and produce to them."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

from zkgroup.clients.kafka.client import (
    KafkaError,
    KafkaException,
    KafkaSettings,
    Message,
    NewTopic,
    admin_client,
    producer,
    topics,
)
from zkgroup.clients.kafka.log_offsets import LogRange, log_offsets
from zkgroup.clients.kafka.registered_brokers import Brokers
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import RefusedError, UnreachableError, ZkgroupError
from zkgroup.protocol import znodes
from zkgroup.protocol.broker_znodes import parse_endpoints
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Children, Code, Create, Failure, Result
from zkgroup.sandbox.processes import POLL, led_partitions, wait_for


def plan_replicas(partitions: range, brokers: Sequence[int], replication: int) -> dict[str, list[int]]:
    """The replicas of each partition, preferred leader first; leaders are assigned round-robin."""
    return {str(p): [brokers[(p + i) % len(brokers)] for i in range(replication)] for p in partitions}


def create_topic(
    place: Registry | KafkaSettings, topic: str, partitions: int = 1, *, replication: int = 1, timeout: float = 30.0
) -> None:
    """Create ``topic``, and wait until every partition has a leader: by writing its registration to ZooKeeper, or by
    asking the brokers where there is none.

    Raises ``ZkgroupError`` if the topic exists or has no leaders within ``timeout`` seconds.
    """
    if isinstance(place, KafkaSettings):
        admin = admin_client(place, timeout)  # kept: its answers come through it
        (created,) = admin.create_topics([NewTopic(topic, partitions, replication)]).values()
        try:
            created.result(timeout)
        except KafkaException as error:
            raise ZkgroupError(f"cannot create topic {topic}: {error.args[0].str()}") from None
    else:
        replicas = plan_replicas(range(partitions), broker_ids(place), replication)
        data = json.dumps({"version": 1, "partitions": replicas}, separators=(",", ":")).encode()
        check_written(place.write(Create(znodes.topic(topic), data)), f"cannot create topic {topic}")
    wait_until_led(place, topic, range(partitions), timeout)


def wait_until_led(place: Registry | KafkaSettings, topic: str, partitions: range, timeout: float) -> None:
    """Wait until every broker knows a leader for each of ``partitions``."""
    brokers = parse_endpoints(kafka_settings(place).bootstrap)
    wait_for(
        lambda: all(led_partitions(broker, topic) >= set(partitions) for broker in brokers),
        timeout,
        f"topic {topic}: not every broker knows a leader for every partition",
    )


def kafka_settings(place: Registry | KafkaSettings) -> KafkaSettings:
    """How to reach the brokers, by the ZooKeeper where they are registered."""
    return place if isinstance(place, KafkaSettings) else Brokers(place.read, {}).settings()


def broker_ids(registry: Registry) -> list[int]:
    """The registered brokers. Raises ``UnreachableError`` if there are none."""
    answer = registry.read([Children(znodes.broker_ids())])[0]
    if not isinstance(answer, tuple) or not answer:
        raise UnreachableError("no broker is registered", "wait until one is, or start one")
    return sorted(int(name) for name in answer)


def check_written(result: Result, what: str) -> None:
    """Raise ``ZkgroupError`` for a failed write; ``what``: the problem."""
    if isinstance(result, Failure):
        why = "it exists" if result.code is Code.NODE_EXISTS else f"{result.code.value} {result.detail}"
        raise ZkgroupError(f"{what}: {why}")


#: Messages that are produced at once.
CHUNK = 50_000


def fill_topic(
    place: Registry | KafkaSettings,
    topic: str,
    messages: int,
    *,
    partitions: int | None = None,
    size: int = 0,
    values: Sequence[bytes] | None = None,
) -> dict[TopicPartition, LogRange]:
    """Add numbered messages to ``topic``, which is made if it is missing (with three partitions); returns its logs.
    ``place``: the ZooKeeper, or the brokers where there is none.

    Message *n* (the count goes on where the topic ends) is ``message n``, filled up to ``size`` bytes, with the key
    ``key-n``, in partition *n* modulo their number. With ``values`` it has the next of these, instead of as many
    ``messages``. Raises ``RefusedError`` where the topic has another number of
    partitions than was asked for.
    """
    kafka = kafka_settings(place)
    count = len(topics(kafka, 30.0).get(topic, ()))
    if count:
        if partitions not in (None, count):
            raise RefusedError(
                f"topic {topic} has {count} partitions, not {partitions}",
                "leave --partitions out, or name another topic",
            )
    else:
        count = partitions or 3
        create_topic(place, topic, count)
    wanted = [TopicPartition(topic, number) for number in range(count)]
    first = sum(log.end for log in _logs(kafka, wanted).values())
    end = first + (messages if values is None else len(values))
    for start in range(first, end, CHUNK):
        chunk = range(start, min(start + CHUNK, end))
        texts = [b"message %d" % n for n in chunk] if values is None else values[start - first : chunk.stop - first]
        records = [
            ProducerRecord(text.ljust(size, b"."), b"key-%d" % n, n % count)
            for n, text in zip(chunk, texts, strict=True)
        ]
        produce(kafka, topic, records)
    return _logs(kafka, wanted)


def _logs(
    kafka: KafkaSettings, partitions: Sequence[TopicPartition], timeout: float = 30.0
) -> dict[TopicPartition, LogRange]:
    """The logs. A broker in KRaft mode names itself the leader of a new partition too early: it is asked again."""
    deadline = time.monotonic() + timeout
    while True:
        found: dict[TopicPartition, LogRange] = {}
        for partition, log in log_offsets(kafka, partitions, timeout).items():
            if isinstance(log, LogRange):
                found[partition] = log
            elif not isinstance(log, UnreachableError) or time.monotonic() > deadline:
                raise log
        if len(found) == len(partitions):
            return found
        time.sleep(POLL)


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """A message to produce. ``partition`` None: librdkafka chooses; ``timestamp_ms`` None: now."""

    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def produce(settings: KafkaSettings, topic: str, records: Sequence[ProducerRecord], *, timeout: float = 60.0) -> None:
    """Send ``records`` and wait until the brokers have them all. Raises ``ZkgroupError`` if one was not taken."""
    refused: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            refused.append(error)

    client = producer(settings, linger_ms=5, acks=-1, queue_buffering_max_messages=1_000_000)
    deadline = time.monotonic() + timeout
    for record in records:
        while True:
            try:
                client.produce(
                    topic,
                    record.value,
                    record.key,
                    partition=-1 if record.partition is None else record.partition,
                    timestamp=record.timestamp_ms or 0,
                    on_delivery=on_delivery,
                    headers=list(record.headers),
                )
                break
            except BufferError:
                client.poll(0.1)
                if time.monotonic() > deadline:
                    raise ZkgroupError(f"topic {topic} did not take its messages in {timeout:g} s") from None
    left = client.flush(max(1.0, deadline - time.monotonic()))
    if refused:
        raise ZkgroupError(f"{len(refused)} messages to {topic} were not taken: {refused[0].str()}")
    if left:
        raise ZkgroupError(f"topic {topic} did not take its messages in {timeout:g} s")
