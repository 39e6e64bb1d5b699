"""A member of a group that Kafka's coordinator keeps, for brokers from 0.9 on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.start_position import StartAt
from zkgroup.config import ConsumerConfig, librdkafka_properties
from zkgroup.config.settings_table import STRATEGIES
from zkgroup.connector.consumer_connector import ConsumerConnector, StreamsOf, Topics
from zkgroup.connector.kafka_driver import KafkaDriver
from zkgroup.connector.rebalance_listener import Rebalance
from zkgroup.connector.stream import Feed


class KafkaConnector(ConsumerConnector):
    """A member of a group in Kafka.

        with KafkaConnector(config, lambda: KafkaSettings("broker:9092")) as connector:
            (stream,) = connector.merged_streams(["orders"], 1)

    ``brokers``: how to reach them now. ``start``: where to begin in partitions without a committed offset, instead of
    ``auto.offset.reset``. ``strategies``: the assignors that the member offers, the best first. ``properties``:
    librdkafka's, for the membership. ``on_rebalance`` is called on the member's thread, and must not block.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        brokers: Callable[[], KafkaSettings],
        *,
        start: StartAt | None = None,
        strategies: Sequence[str] = STRATEGIES,
        properties: Mapping[str, str] | None = None,
        on_rebalance: Callable[[Rebalance], None] = lambda rebalance: None,
    ) -> None:
        super().__init__(config, start)
        self._brokers = brokers
        self._strategies = tuple(strategies)
        self._properties = librdkafka_properties(config, "offsets") | dict(properties or {})
        self._on_rebalance = on_rebalance

    def _kafka_settings(self) -> KafkaSettings:
        return self._brokers()

    def _make_driver(self, topics: Topics, count: int, streams_of: StreamsOf, feeds: Sequence[Feed]) -> KafkaDriver:
        return KafkaDriver(
            self.config,
            self._brokers,
            topics,
            feeds=feeds,
            streams_of=streams_of,
            start=self._start or StartAt.after_reset(self.config.auto_offset_reset),
            strategies=self._strategies,
            properties=self._properties,
            on_rebalance=self._on_rebalance,
        )
