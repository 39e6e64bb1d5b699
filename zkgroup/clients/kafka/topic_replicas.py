"""Topics as the brokers report them: the leader and the replicas of each partition."""

from __future__ import annotations

from dataclasses import dataclass

from zkgroup.clients.kafka.client import KafkaSettings, admin_and_metadata, old_metadata


@dataclass(frozen=True, slots=True)
class PartitionReplicas:
    """The brokers that hold a partition. ``leader``: None where none leads it."""

    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


def read_topic_replicas(settings: KafkaSettings, timeout: float) -> dict[str, dict[int, PartitionReplicas]]:
    """All topics that the brokers show, each with its partitions in numeric order. Raises ``UnreachableError``."""
    metadata = old_metadata(settings, timeout) if settings.old_and_plain else admin_and_metadata(settings, timeout)[1]
    return {
        name: {
            number: PartitionReplicas(
                one.leader if one.leader in metadata.brokers else None, tuple(one.replicas), tuple(one.isrs)
            )
            for number, one in sorted(topic.partitions.items())
        }
        for name, topic in sorted(metadata.topics.items())
        if topic.error is None
    }
