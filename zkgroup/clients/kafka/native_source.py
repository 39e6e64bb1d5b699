"""A ``MessageSource`` for ``RangeReader`` on the native reader, like ``range_consumer`` in Python."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import closing
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from zkgroup.clients.kafka.client import (
    ClusterMetadata,
    KafkaSettings,
    KafkaTopicPartition,
    Message,
    consumer,
)
from zkgroup.clients.kafka.librdkafka_log import ClientLog
from zkgroup.clients.kafka.native_reader import NativeMessages, error_of, heed_notes, kafka_exception, native_consumer

if TYPE_CHECKING:
    from zkgroup.clients.kafka._native import Batch

log = logging.getLogger(__name__)

#: Seconds for the question for a topic's leaders.
LEADER_TIMEOUT: Final = 10.0


class NativeSource:
    """A consumer that only assigns, whose messages stay in librdkafka's memory. ``max_bytes``: of one
    ``fetch``, about. Close it."""

    def __init__(self, module: ModuleType, settings: KafkaSettings, options: Mapping[str, Any], max_bytes: int) -> None:
        self._module: Any = module
        self._settings = settings
        self._max_bytes = max_bytes
        self._reader = native_consumer(module, settings, options)
        self._log = ClientLog(log)
        self._known: set[str] = set()

    def assign(self, partitions: list[KafkaTopicPartition], /) -> None:
        """Read these partitions from their offsets, and no others. The leaders of a topic that is new are asked for at
        once: see ``range_reader``."""
        self._call(self._reader.assign, [(one.topic, one.partition, one.offset) for one in partitions])
        new = [one for one in partitions if one.topic not in self._known]
        asks, self._known = bool(self._known), self._known | {one.topic for one in new}
        for one in new if asks else ():
            try:
                self._reader.watermarks(one.topic, one.partition, LEADER_TIMEOUT)
            except self._module.NativeError as error:  # the next read raises the error
                log.debug("the leader of %s: %s", one.topic, error)

    def _call(self, call: Any, *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except self._module.NativeError as error:
            raise kafka_exception(error) from None

    def fetch(self, num_messages: int, timeout: float) -> tuple[NativeMessages, list[Message]]:
        """Messages, and events, which have an error."""
        batch: Batch = self._reader.consume(num_messages, self._max_bytes, timeout)
        events = [
            Message(topic=topic, partition=number, offset=offset, error=error_of(code, text))
            for topic, number, offset, code, text in batch.events
        ]
        for error in heed_notes(self._reader, self._log):
            self._log.log(logging.ERROR, "", "ERROR", "", error.str())  # as librdkafka does without an error callback
        return NativeMessages(batch, 0, len(batch)), events

    def consume(self, num_messages: int, timeout: float) -> list[Message]:
        """Both, as messages that confluent-kafka has: for a few."""
        messages, events = self.fetch(num_messages, timeout)
        return [*messages, *events]

    def get_watermark_offsets(
        self, partition: KafkaTopicPartition, timeout: float, cached: bool
    ) -> tuple[int, int] | None:
        """Where the log starts and ends."""
        found: tuple[int, int] = self._call(self._reader.watermarks, partition.topic, partition.partition, timeout)
        return found

    def list_topics(self, topic: str, timeout: float) -> ClusterMetadata:
        """The brokers' metadata of a topic."""
        with closing(consumer(self._settings)) as asked:
            found: ClusterMetadata = asked.list_topics(topic, timeout)
            return found

    def close(self) -> None:
        """Free the client and its threads."""
        self._reader.close()
