"""Offsets that a group keeps in Kafka, through confluent-kafka."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from zkgroup.clients.kafka.client import (
    PIECE,
    UNREACHABLE,
    Consumer,
    KafkaError,
    KafkaException,
    KafkaSettings,
    KafkaTopicPartition,
    consumer,
    no_answer,
)
from zkgroup.errors import UnreachableError, ZkgroupError
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.procedures import batched


def committed_offsets(
    client: Consumer, partitions: Iterable[TopicPartition], timeout: float
) -> dict[TopicPartition, int | None]:
    """The committed offsets of the client's group, None where there is none; within ``timeout`` seconds. Raises
    ``KafkaException`` if one cannot be read."""
    deadline = time.monotonic() + timeout
    found: dict[TopicPartition, int | None] = {}
    for piece in batched(partitions, PIECE):
        wanted = [KafkaTopicPartition(*partition) for partition in piece]
        for answer in client.committed(wanted, timeout=max(0.1, deadline - time.monotonic())):
            if answer.error is not None:
                raise KafkaException(answer.error)
            found[TopicPartition(answer.topic, answer.partition)] = answer.offset if answer.offset >= 0 else None
    return found


class GroupOffsets:
    """A group's offsets kept in Kafka, read and written as the Scala consumer does: with the group's id and no member.

    Used by one thread. Such commits (generation −1) are refused by the coordinator while the group has members there.
    """

    def __init__(self, settings: KafkaSettings, group: str, properties: Mapping[str, str] | None = None) -> None:
        """``properties``: librdkafka's, for this client; those of ``settings`` win."""
        self.settings = settings
        self.group = group
        self._properties: dict[str, Any] = {name.replace(".", "_"): value for name, value in (properties or {}).items()}
        self._consumer: Consumer | None = None
        self._answers: list[tuple[KafkaError | None, list[Any]]] = []

    def _open(self) -> Consumer:
        if self._consumer is None:
            self._consumer = consumer(self.settings, group=self.group, on_commit=self._on_commit, **self._properties)
        return self._consumer

    def _on_commit(self, error: KafkaError | None, partitions: list[Any]) -> None:
        self._answers.append((error, partitions))

    def fetch(self, partitions: Iterable[TopicPartition], timeout: float) -> dict[TopicPartition, int | None]:
        """The committed offsets, None where there is none. Raises ``ZkgroupError`` if any could not be read."""
        try:
            return committed_offsets(self._open(), partitions, timeout)
        except KafkaException as error:
            raise self._failed("read", error.args[0]) from None

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        timeout: float,
        metadata: Mapping[TopicPartition, str] | None = None,
    ) -> None:
        """Commit all of ``offsets``, with their ``metadata``, and wait for the answer.

        Raises ``ZkgroupError`` if any was not taken.
        """
        if not offsets:
            return
        client = self._open()
        self._answers.clear()
        metadata_of = metadata or {}
        wanted = [
            KafkaTopicPartition(*p, offset, metadata_of[p]) if metadata_of.get(p) else KafkaTopicPartition(*p, offset)
            for p, offset in offsets.items()
        ]
        try:
            client.commit(offsets=wanted, asynchronous=True)
        except KafkaException as error:
            raise self._failed("commit", error.args[0]) from None
        deadline = time.monotonic() + timeout
        while not self._answers:
            if time.monotonic() > deadline:
                raise no_answer(self.settings, timeout)
            client.poll(0.05)
        overall, committed = self._answers.pop()
        for refused in [overall, *(partition.error for partition in committed)]:
            if refused is not None:
                raise self._failed("commit", refused)

    def _failed(self, what: str, error: KafkaError) -> ZkgroupError:
        text = f"cannot {what} offsets of group {self.group} in Kafka: {error.str()}"
        if error.code() in UNREACHABLE:
            return UnreachableError(text, "check the brokers")
        return ZkgroupError(text)

    def close(self) -> None:
        """Free the client."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
