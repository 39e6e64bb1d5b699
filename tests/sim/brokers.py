"""Brokers: logs that grow, offsets kept in Kafka, and what of it cannot be asked now."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from sim.zookeeper import ModelZooKeeper
from zkgroup.errors import UnreachableError
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Create, Delete, Ensure, SetData


class Brokers:
    """One broker, registered in ``server`` under a session of its own."""

    def __init__(self, server: ModelZooKeeper) -> None:
        self._server = server
        self._session = server.open_session()
        self.logs: dict[TopicPartition, int] = {}  # end offsets; all logs begin at 0
        self.leaderless: dict[TopicPartition, None] = {}
        self.answering = True
        self.slow_until = 0.0  # what asks them, or waits for somebody's listener, may take very long
        self.stored: dict[TopicPartition, int] = {}
        for path in (znodes.broker_ids(), znodes.topics()):
            server.apply(self._session, Ensure(path))
        self.up = False
        self.start()

    def start(self) -> None:
        """The broker registers."""
        if not self.up:
            self.up = True
            data = b'{"version":1,"host":"h","port":9092}'
            self._server.apply(self._session, Create(znodes.broker(1), data))

    def stop(self) -> None:
        """The broker is gone."""
        if self.up:
            self.up = False
            self._server.apply(self._session, Delete(znodes.broker(1)))

    def make_topic(self, topic: str, partitions: int) -> None:
        """Create a topic, or widen it."""
        data = json.dumps({"version": 1, "partitions": {str(p): [1] for p in range(partitions)}}).encode()
        path = znodes.topic(topic)
        op = SetData(path, data) if path in self._server.nodes else Create(path, data)
        self._server.apply(self._session, op)
        for number in range(partitions):
            self.logs.setdefault(TopicPartition(topic, number), 0)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic, logs and all."""
        self._server.apply(self._session, Delete(znodes.topic(topic)))
        self.logs = {partition: end for partition, end in self.logs.items() if partition.topic != topic}

    def produce(self, partition: TopicPartition, count: int) -> None:
        self.logs[partition] += count

    def readable(self, partition: TopicPartition) -> int | None:
        """The log's end; None where nobody can read it now: it has no leader, or is not there."""
        return None if partition in self.leaderless else self.logs.get(partition)

    def look_up(self, partitions: Iterable[TopicPartition], reset: str) -> dict[TopicPartition, int | None]:
        """Log starts or ends; None where nobody knows."""
        if not (self.up and self.answering):
            raise UnreachableError("no broker answers")
        return {
            p: None if p in self.leaderless or p not in self.logs else 0 if reset == "smallest" else self.logs[p]
            for p in partitions
        }

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        if not (self.up and self.answering):
            raise UnreachableError("no broker answers")
        return {partition: self.stored.get(partition) for partition in partitions}

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        if not (self.up and self.answering):
            raise UnreachableError("no broker answers")
        self.stored.update(offsets)
