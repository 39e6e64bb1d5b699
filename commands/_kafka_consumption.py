"""``consume --coordinator kafka``: as a member of a group that Kafka's coordinator keeps."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zkgroup.config import ConnectionSettings, ConsumerConfig
from zkgroup.errors import NotFoundError, UnreachableError
from zkgroup.text import counted, listed

from ._consumption import WAITING, Limits, Selection, take_part
from ._context import given_brokers, open_registry
from ._message_sink import Sink
from ._signals import StopRequest

if TYPE_CHECKING:
    from zkgroup.clients.kafka.client import KafkaSettings
    from zkgroup.connector import StartAt
    from zkgroup.connector.kafka_connector import Rebalance
    from zkgroup.protocol.names import TopicPartition

log = logging.getLogger("zkgroup.consume")


@dataclass(frozen=True, slots=True)
class _InZooKeeper:
    """What ZooKeeper has of a group of the same name: how many members, and the topics that it has offsets of."""

    members: int = 0
    topics: frozenset[str] = frozenset()


def as_coordinated(
    settings: ConnectionSettings,
    config: ConsumerConfig,
    membership: Mapping[str, str],
    selection: Selection,
    streams: int,
    start: StartAt | None,
    limits: Limits,
    sink: Sink,
    tell: Callable[[str], None],
) -> int:
    """Join the group in Kafka, print until it is time to leave, leave; returns the exit code. ``membership``:
    librdkafka's properties for that. ``tell`` is given every step of a rebalance in words."""
    from zkgroup.connector.kafka_connector import CoordinatedConnector

    group = config.group_id
    with StopRequest() as stop:
        ends, there = stop.unless(lambda: _look_around(settings, config, selection, limits))
        connector = CoordinatedConnector(
            config,
            lambda: _brokers(settings, config),
            start=start,
            strategies=_strategies(config),
            properties=membership,
            told=lambda rebalance: _tell(group, rebalance, there, tell),
        )
        return take_part(connector, config, selection, streams, ends, limits, sink, stop)


def _strategies(config: ConsumerConfig) -> tuple[str, ...]:
    """The one that was asked for; else all that there are, and the coordinator takes one that every member knows."""
    asked = "partition.assignment.strategy" in config.explicit
    return (config.partition_assignment_strategy,) if asked else ("range", "roundrobin")


def _tell(group: str, rebalance: Rebalance, there: _InZooKeeper, tell: Callable[[str], None]) -> None:
    from zkgroup.protocol.names import spans

    what = f"{spans(rebalance.partitions)} ({counted(len(rebalance.partitions), 'partition')})"
    if not rebalance.partitions:
        what = "nothing"
    match rebalance.kind:
        case "assigned":
            tell(f"group {group}: assigned {what}, {rebalance.seconds:.1f} s after the rebalance began")
        case "revoked":
            tell(f"group {group}: revoked {what}, given up in {rebalance.seconds:.1f} s")
        case "lost":
            tell(f"group {group}: lost {what}: the coordinator took this member for dead; others read on")
    skipped = sorted({partition.topic for partition in rebalance.fresh} & there.topics)
    if skipped:
        from zkgroup.groups.shell_commands import command_line, in_quotes

        log.warning(
            "group %s has offsets of %s in ZooKeeper and not all of them in Kafka: without one it reads from where new "
            "groups begin; %s moves them",
            group,
            listed(skipped),
            in_quotes(command_line("migrate-group", group, "--to kafka")),
        )


def _brokers(settings: ConnectionSettings, config: ConsumerConfig) -> KafkaSettings:
    """How to reach the brokers now."""
    from zkgroup.clients.zookeeper.registered_brokers import Brokers

    if settings.bootstrap:
        return given_brokers(settings)
    with open_registry(settings) as registry:
        brokers = Brokers(
            registry.read, config.kafka, timeout=settings.timeout, listener=config.listener, tell=logging.DEBUG
        )
        return brokers.settings()


def _look_around(
    settings: ConnectionSettings, config: ConsumerConfig, selection: Selection, limits: Limits
) -> tuple[Mapping[TopicPartition, int], _InZooKeeper]:
    """Before joining: do the topics exist, can such groups be joined, is there a group of that name in ZooKeeper?
    Returns where the logs end, if that matters, and what there is of the group in ZooKeeper."""
    from zkgroup.clients.kafka.client import topics
    from zkgroup.clients.kafka.group_membership import check_release
    from zkgroup.connector.start_position import log_ends
    from zkgroup.protocol.names import TopicPartition

    kafka = _brokers(settings, config)
    check_release(kafka)
    known = topics(kafka, settings.timeout)
    chosen = selection.among(sorted(known), config)
    if not chosen:
        if limits.until_end:
            raise NotFoundError(selection.matches_nothing, "see what there is with --whitelist '.*'")
        log.warning("%s: %s", selection.matches_nothing, WAITING)
    there = _in_zookeeper(settings, config.group_id, chosen)
    if there.members:
        log.warning(
            "group %s has %s in ZooKeeper, too, which know nothing of those in Kafka: each side reads everything; stop "
            "one side ('zkgroup inspect-group --explain split-group')",
            config.group_id,
            counted(there.members, "member"),
        )
    partitions = [TopicPartition(topic, number) for topic in chosen for number in known[topic]]
    return log_ends(kafka, partitions, settings.timeout) if limits.until_end else {}, there


def _in_zookeeper(settings: ConnectionSettings, group: str, topics: Collection[str]) -> _InZooKeeper:
    """Where no ZooKeeper is named there is none to look at; one that does not answer is told of."""
    from zkgroup.protocol import znodes
    from zkgroup.protocol.operations import Children

    if settings.zookeeper is None:
        return _InZooKeeper()
    try:
        with open_registry(settings) as registry:
            members, kept = registry.read([Children(znodes.ids(group)), Children(znodes.offsets(group))])
    except UnreachableError as error:
        log.warning("whether group %s has members in ZooKeeper is not known: %s", group, error)
        return _InZooKeeper()
    return _InZooKeeper(
        len(members) if isinstance(members, tuple) else 0,
        frozenset(topics).intersection(kept) if isinstance(kept, tuple) else frozenset(),
    )
