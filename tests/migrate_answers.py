"""``zkgroup migrate-group``, run and read."""

from __future__ import annotations

import json
from typing import Any

from cli import run

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.group_consumers import GroupOffsets
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.local_cluster import Sandbox


class Migrate:
    """Runs the command."""

    def __init__(self, cluster: Sandbox, kafka: KafkaSettings) -> None:
        self.connect = cluster.connect
        self.kafka = kafka

    def __call__(self, group: str, *args: str, to: str = "kafka") -> Any:
        return run("migrate-group", group, "--to", to, *args, "-z", self.connect)

    def rows(self, group: str, *args: str, to: str = "kafka") -> list[dict[str, Any]]:
        """Of a plan that is fine."""
        result = self(group, *args, "--output", "json", to=to)
        assert result.returncode == 0, result.stderr
        found: list[dict[str, Any]] = json.loads(result.stdout)
        return found

    def in_kafka(self, group: str, topic: str, partitions: int = 3) -> list[int | None]:
        """What Kafka keeps."""
        client = GroupOffsets(self.kafka, group)
        try:
            found = client.fetch([TopicPartition(topic, number) for number in range(partitions)], 30)
        finally:
            client.close()
        return list(found.values())
