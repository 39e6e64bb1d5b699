"""A member of a group in ZooKeeper."""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable, Sequence

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.registered_brokers import Brokers
from zkgroup.clients.kafka.start_position import StartAt
from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.config import ConsumerConfig, librdkafka_properties
from zkgroup.connector.consumer_connector import ConsumerConnector, StreamsOf, Topics
from zkgroup.connector.member_driver import Statistics
from zkgroup.connector.member_setup import member_settings, zookeeper_settings
from zkgroup.connector.rebalance_listener import RebalanceListener
from zkgroup.connector.stream import Feed
from zkgroup.connector.zookeeper_driver import ZooKeeperDriver, boot_clock
from zkgroup.protocol.assignors import compat_of
from zkgroup.protocol.names import make_consumer_id
from zkgroup.protocol.operations import Op, Result
from zkgroup.protocol.topic_filter import TopicFilter
from zkgroup.protocol.znodes import Registration


class Connector(ConsumerConnector):
    """A member of a group in ZooKeeper, as the Scala consumer's ``ConsumerConnector``.

        with Connector(config, zookeeper) as connector:
            for stream in connector.streams({"orders": 2})["orders"]: ...

    ``zookeeper``: where ZooKeeper is, unless ``config.zookeeper_connect`` says it. Where both say it they must agree;
    time-outs that it leaves at their defaults are the configuration's. Raises UsageError otherwise.
    ``start``: where to begin in partitions without a committed offset, instead of ``auto.offset.reset``. ``kafka``: how
    to reach the brokers, instead of what they have registered in ZooKeeper.
    """

    _driver: ZooKeeperDriver | None

    def __init__(
        self,
        config: ConsumerConfig,
        zookeeper: ZooKeeperSettings | None = None,
        *,
        listener: RebalanceListener | None = None,
        start: StartAt | None = None,
        kafka: KafkaSettings | None = None,
        host: str | None = None,
        clock: Callable[[], float] = boot_clock,
    ) -> None:
        super().__init__(config, start)
        compat_of(config.kafka_version)
        self.consumer_id = make_consumer_id(
            config.group_id,
            consumer_id=config.consumer_id,
            host=host or socket.gethostname(),
            millis=int(time.time() * 1000),
            uuid_high64=uuid.uuid4().int >> 64,
        )
        self._zookeeper = zookeeper_settings(config, zookeeper)
        self._listener = listener
        self._clock = clock
        self._brokers = Brokers(self._read, config.kafka, kafka, listener=config.listener)

    def _kafka_settings(self) -> KafkaSettings:
        return self._brokers.settings()

    def _read(self, ops: Sequence[Op]) -> list[Result]:
        assert self._driver is not None
        return self._driver.read(ops)

    def _unjoined_statistics(self) -> Statistics:
        return Statistics(self.consumer_id)

    def _make_driver(self, topics: Topics, count: int, streams_of: StreamsOf, feeds: Sequence[Feed]) -> ZooKeeperDriver:
        now = int(time.time() * 1000)
        if isinstance(topics, TopicFilter):
            registration = Registration(topics.kind, {topics.expression: count}, now)
        else:
            registration = Registration("static", dict(topics), now)
        return ZooKeeperDriver(
            member_settings(self.config, self.consumer_id, registration, self._zookeeper),
            self._zookeeper,
            feeds=feeds,
            streams_of=streams_of,
            brokers=self._brokers,
            start_at=self._start,
            listener=self._listener,
            clock=self._clock,
            offsets_properties=librdkafka_properties(self.config, "offsets"),
        )
