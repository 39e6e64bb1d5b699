"""From a configuration to a member's ZooKeeper and the settings of its state machine. Pure."""

from __future__ import annotations

from dataclasses import replace

from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.config import ConsumerConfig, parse_connect_string
from zkgroup.errors import UsageError
from zkgroup.protocol.assignors import compat_of
from zkgroup.protocol.member import MemberSettings
from zkgroup.protocol.names import internal_topics
from zkgroup.protocol.znodes import Registration

_DEFAULTS = ZooKeeperSettings("")


def zookeeper_settings(config: ConsumerConfig, given: ZooKeeperSettings | None) -> ZooKeeperSettings:
    """ZooKeeper's address and time-outs: those of ``given``, and those of the configuration where it has defaults.

    Raises UsageError where the two contradict each other, or neither names a ZooKeeper.
    """
    session = config.zookeeper_session_timeout_ms / 1000
    connecting = config.zookeeper_connection_timeout_ms / 1000
    if given is None:
        if not config.zookeeper_connect:
            raise UsageError("no ZooKeeper was named", "set zookeeper_connect, or give ZooKeeperSettings")
        hosts = str(parse_connect_string(config.zookeeper_connect, "zookeeper_connect"))
        return ZooKeeperSettings(hosts, session, connecting)
    if not isinstance(given, ZooKeeperSettings):
        raise UsageError(f"{given!r} are no ZooKeeperSettings", f"give ZooKeeperSettings({str(given)!r})")
    meant = parse_connect_string(given.hosts, "ZooKeeperSettings")
    if config.zookeeper_connect:
        named = parse_connect_string(config.zookeeper_connect, "zookeeper_connect")
        if not named.same_as(meant):
            raise UsageError(f"zookeeper_connect={named} contradicts ZooKeeperSettings({given.hosts!r})", "name one")
    # A default of the configuration counts as not set; the connection time-out's is the session timeout.
    return replace(
        given,
        session_timeout=_one(
            "zookeeper_session_timeout_ms",
            None if session == _DEFAULTS.session_timeout else session,
            given.session_timeout,
            _DEFAULTS.session_timeout,
        ),
        connect_timeout=_one(
            "zookeeper_connection_timeout_ms",
            None if connecting == session else connecting,
            given.connect_timeout,
            _DEFAULTS.connect_timeout,
        ),
    )


def _one(field: str, configured: float | None, given: float, default: float) -> float:
    """The seconds of two settings that must not contradict each other."""
    if configured is None:
        return given
    if given not in (default, configured):
        raise UsageError(
            f"{field}={configured * 1000:g} contradicts ZooKeeperSettings, which says {given:g} s",
            "say it in one place",
        )
    return configured


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
