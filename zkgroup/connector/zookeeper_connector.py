"""A member of a group in ZooKeeper: its settings, from a configuration, and its driver."""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.registered_brokers import Brokers
from zkgroup.clients.kafka.start_position import StartAt
from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.config import ConsumerConfig, librdkafka_properties
from zkgroup.config.connection_settings import parse_connect_string
from zkgroup.connector.consumer_connector import ConsumerConnector, StreamsOf, Topics
from zkgroup.connector.stream import Feed
from zkgroup.connector.zookeeper_driver import RebalanceListener, ZooKeeperDriver, boot_clock
from zkgroup.errors import UsageError
from zkgroup.protocol.assignors import compat_of
from zkgroup.protocol.member import MemberSettings
from zkgroup.protocol.names import internal_topics, make_consumer_id
from zkgroup.protocol.operations import Op, Result
from zkgroup.protocol.topic_filter import TopicFilter
from zkgroup.protocol.znodes import Registration

_DEFAULTS = ZooKeeperSettings("")


class Connector(ConsumerConnector):
    """A member of a group in ZooKeeper, as the Scala consumer's ``ConsumerConnector``.

        with Connector(config, zookeeper) as connector:
            for stream in connector.streams({"orders": 2})["orders"]: ...

    ``zookeeper``: where ZooKeeper is, unless ``config.zookeeper_connect`` says it. Where both say it they must agree,
    or UsageError is raised; time-outs that the configuration sets win over those of ``zookeeper``.
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
    ) -> None:
        super().__init__(config, start, lambda: self._brokers.settings())
        compat_of(config.kafka_version)
        self.consumer_id = make_consumer_id(
            config.group_id,
            consumer_id=config.consumer_id,
            host=socket.gethostname(),
            millis=int(time.time() * 1000),
            uuid_high64=uuid.uuid4().int >> 64,
        )
        self._zookeeper = zookeeper_settings(config, zookeeper)
        self._listener = listener
        self._brokers = Brokers(self._read, config.kafka, kafka, listener=config.listener)

    def _read(self, ops: Sequence[Op]) -> list[Result]:
        assert self._driver is not None
        return self._driver.read(ops)

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
            clock=boot_clock,
            offsets_properties=librdkafka_properties(self.config, "offsets"),
        )


def zookeeper_settings(config: ConsumerConfig, given: ZooKeeperSettings | None) -> ZooKeeperSettings:
    """ZooKeeper's address and time-outs: those of ``given``, but for time-outs that the configuration sets.

    Raises UsageError where the two name different ZooKeepers, or neither names one.
    """
    session = config.zookeeper_session_timeout_ms / 1000
    connecting = config.zookeeper_connection_timeout_ms / 1000
    if given is None:
        if not config.zookeeper_connect:
            raise UsageError("no ZooKeeper was named", "set zookeeper_connect, or give ZooKeeperSettings")
        hosts = str(parse_connect_string(config.zookeeper_connect, "zookeeper_connect"))
        return ZooKeeperSettings(hosts, session, connecting)
    meant = parse_connect_string(given.hosts, "ZooKeeperSettings")
    if config.zookeeper_connect:
        named = parse_connect_string(config.zookeeper_connect, "zookeeper_connect")
        if not named.is_same_as(meant):
            raise UsageError(f"zookeeper_connect={named} contradicts ZooKeeperSettings({given.hosts!r})", "name one")
    # A default of the configuration counts as not set; the connection time-out's is the session timeout.
    if session != _DEFAULTS.session_timeout:
        given = replace(given, session_timeout=session)
    return given if connecting == session else replace(given, connect_timeout=connecting)


def member_settings(
    config: ConsumerConfig, consumer_id: str, registration: Registration, zookeeper: ZooKeeperSettings
) -> MemberSettings:
    """The settings of the state machine. Raises UsageError for a release that has no such members."""
    return MemberSettings(
        group=config.group_id,
        consumer_id=consumer_id,
        registration=registration,
        strategy=config.partition_assignment_strategy,
        compat=compat_of(config.kafka_version),
        exclude_internal=config.exclude_internal_topics,
        internal=internal_topics(config.kafka_version),
        auto_commit=config.auto_commit_enable,
        auto_commit_interval=config.auto_commit_interval_ms / 1000,
        storage=config.offsets_storage,
        dual_commit=config.dual_commit_enabled,
        reset=config.auto_offset_reset or "largest",
        max_retries=config.rebalance_max_retries,
        backoff=config.rebalance_backoff_ms / 1000,
        keep_trying=config.keep_trying,
        session_timeout=zookeeper.session_timeout,
        connect_timeout=zookeeper.connect_timeout,
        quiesce_timeout=config.quiesce_timeout_ms / 1000,
        commit_retries=config.offsets_commit_max_retries,
        commit_backoff=config.offsets_channel_backoff_ms / 1000,
    )
