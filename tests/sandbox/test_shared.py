"""The shared fixtures: a topic is made, filled, and read back."""

from __future__ import annotations

from collections.abc import Callable

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.log_offsets import LogRange, log_offsets
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.local_cluster import Sandbox


def test_shared_cluster_takes_messages(
    cluster: Sandbox, kafka: KafkaSettings, make_topic: Callable[..., str], fill: Callable[..., object]
) -> None:
    """A topic made through ZooKeeper has exactly what was produced to it, partition by partition."""
    topic = make_topic(3)
    fill(topic, 10, 3)
    partitions = [TopicPartition(topic, p) for p in range(3)]
    assert list(log_offsets(kafka, partitions, 10.0).values()) == [LogRange(0, 4), LogRange(0, 3), LogRange(0, 3)]
