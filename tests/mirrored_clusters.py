"""Two clusters and a mirror between them, for tests of groups that leave one for the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from servers import Sandbox
from support import fresh_name

from zkgroup.clients.kafka.client import TIMESTAMP_NOT_AVAILABLE, KafkaSettings
from zkgroup.clients.kafka.fetcher import offset_of
from zkgroup.clients.kafka.message_contents import headers_of
from zkgroup.clients.kafka.range_reader import RangeReader, range_consumer
from zkgroup.clients.kafka.registered_brokers import Brokers
from zkgroup.clients.kafka.start_position import log_ranges
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.topic_admin import ProducerRecord, create_topic, produce


@dataclass(frozen=True)
class Cluster:
    """One end of a mirror."""

    release: str
    connect: str
    registry: Registry
    kafka: KafkaSettings

    @property
    def keeps_headers(self) -> bool:
        return not self.release.startswith(("0.8", "0.9", "0.10"))

    def topic(self, records: Sequence[ProducerRecord] = (), partitions: int = 1) -> str:
        """A topic with these messages."""
        name = fresh_name("topic")
        create_topic(self.registry, name, partitions)
        self.send(name, records)
        return name

    def send(self, topic: str, records: Sequence[ProducerRecord]) -> None:
        """Produce these messages, with what this release keeps of them."""
        if records:
            kept = records if self.keeps_headers else [replace(one, headers=()) for one in records]
            produce(self.kafka, topic, kept)

    def log(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """The start and the end of a log."""
        found = log_ranges(self.kafka, [TopicPartition(topic, partition)], 10)[TopicPartition(topic, partition)]
        return found.start, found.end

    def messages(
        self, topic: str, partition: int = 0, start: int = 0, end: int | None = None, *, isolation: str = ""
    ) -> list[tuple[int, ProducerRecord]]:
        """The messages of a range, each with its offset."""
        level = {"isolation.level": isolation} if isolation else {}
        consumer = range_consumer(replace(self.kafka, properties={**self.kafka.properties, **level}))
        low, high = self.log(topic, partition)
        found = []
        try:
            ranged = RangeReader(consumer, 10).batches(
                TopicPartition(topic, partition), max(low, start), high if end is None else end
            )
            for batch in ranged:
                for message, headers in zip(batch, headers_of(list(batch)), strict=True):
                    kind, at = message.timestamp()
                    moment = None if kind == TIMESTAMP_NOT_AVAILABLE or at <= 0 else at
                    value, key = _bytes(message.value()), _bytes(message.key())
                    record = ProducerRecord(value, key, partition, moment, tuple(headers or ()))
                    found.append((offset_of(message), record))
        finally:
            consumer.close()
        return found

    def value_at(self, topic: str, offset: int, partition: int = 0) -> bytes | None:
        """The value of the first message from an offset on; None at the end of the log."""
        start, end = max(0, offset), self.log(topic, partition)[1]
        found = self.messages(topic, partition, start) if start < end else []
        return found[0][1].value if found else None


def _bytes(data: bytes | str | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


def mirror(
    source: Cluster,
    target: Cluster,
    topic: str,
    to_topic: str,
    start: int = 0,
    end: int | None = None,
    *,
    partitions: int = 1,
    isolation: str = "",
) -> None:
    """Copy messages, partition by partition, in their order."""
    for number in range(partitions):
        copied = source.messages(topic, number, start, end, isolation=isolation)
        target.send(to_topic, [record for _, record in copied])


@contextmanager
def started(release: str, zookeeper: Sandbox, **properties: str) -> Iterator[Cluster]:
    """A cluster of its own on a shared ZooKeeper."""
    name = fresh_name("end")
    options = {"zookeeper": zookeeper.address, "chroot": f"/{name}", "properties": properties}
    with Sandbox(name, kafka=release, **options) as sandbox, sandbox.registry(30.0) as registry:
        yield Cluster(release, sandbox.connect, registry, Brokers(registry.read, {}).settings())
