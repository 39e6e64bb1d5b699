"""``consume --group``: as a member of a group in ZooKeeper or in Kafka."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Collection, Mapping

from zkgroup.clients.kafka.client import topics
from zkgroup.clients.kafka.group_consumers import check_release
from zkgroup.clients.zookeeper.registry import names_in
from zkgroup.config import ConnectionSettings
from zkgroup.config.settings_table import STRATEGIES
from zkgroup.connector import Connector, KafkaConnector, Rebalance, Stream
from zkgroup.connector.consumer_connector import ConsumerConnector
from zkgroup.errors import Remedy, UnreachableError, ZkgroupError
from zkgroup.groups.group_choices import OffsetStore
from zkgroup.protocol import znodes
from zkgroup.protocol.broker_znodes import decode_topic, partitions_to_read
from zkgroup.protocol.names import TopicPartition, spans
from zkgroup.protocol.operations import Children, Exists, Get, Node
from zkgroup.text import counted, group_command, listed

from ._consumption import LAST_WRITE, NOTHING, WAITING, Consumption, exit_code, wait_until_time_to_leave
from ._context import open_registry, zookeeper_settings
from ._signals import StopRequest, Terminated

log = logging.getLogger("zkgroup.consume")


def consume_as_member(
    asked: Consumption,
    coordinator: OffsetStore,
    streams: int,
    properties: Mapping[str, str],
    report: Callable[[str], None],
) -> int:
    """Join the group, print until it is time to leave, leave. Returns the exit code. ``properties``: librdkafka's, for
    a membership in Kafka. ``report`` gets each step of a rebalance there, as text."""
    connector: ConsumerConnector
    with StopRequest() as stop:
        # What is missing is found before joining, so that nothing is registered in vain.
        if coordinator == "kafka":
            ends, in_zookeeper = stop.unless(lambda: _check_kafka(asked))
            connector = _kafka_member(asked, properties, in_zookeeper, report)
            return _take_part(connector, asked, streams, ends, stop)
        ends, group_is_new = stop.unless(lambda: _check_zookeeper(asked))
        settings = asked.settings
        hosts, timeout_ms = str(settings.require_zookeeper()), max(1, int(settings.timeout * 1000))
        # The member connects as flags and profiles say.
        config = dataclasses.replace(asked.config, zookeeper_connect=hosts, zookeeper_connection_timeout_ms=timeout_ms)
        zookeeper = dataclasses.replace(zookeeper_settings(settings), connect_timeout=timeout_ms / 1000)
        connector = Connector(config, zookeeper, start=asked.start, kafka=asked.named_brokers())
        code = _take_part(connector, asked, streams, ends, stop)
        if group_is_new:
            _remove_empty_group(asked.settings, asked.config.group_id)
        return code


def _take_part(
    connector: ConsumerConnector,
    asked: Consumption,
    streams: int,
    ends: Mapping[TopicPartition, int],
    stop: StopRequest,
) -> int:
    sink = asked.sink

    def missing() -> str:
        member = connector.statistics()
        mine = {partition: ends.get(partition, 0) for partition in member.owned if partition not in member.held_back}
        return sink.missing(mine) if member.phase == "owning" else f"its share ({member.phase})"

    # A reader of the output that is gone may have died with what was written: that is left to be read again.
    stop.on_stop = lambda: connector.leave(commit=not sink.reader_gone)
    with connector:
        try:
            if not stop:
                joined: list[Stream]
                wanted, ends_too, native = asked.subscription, asked.until_end, sink.reads_natively
                if wanted.filter is not None:
                    joined = connector.streams_by_filter(wanted.filter, streams, report_ends=ends_too, native=native)
                else:
                    joined = connector.merged_streams(wanted.topics, streams, report_ends=ends_too, native=native)
                sink.start(joined)
                wait_until_time_to_leave(asked, stop, missing)
            held_back = connector.statistics().held_back
            gone = sink.reader_gone
            connector.leave(commit=not gone)
            sink.wait(connector.config.quiesce_timeout_ms / 1000 + LAST_WRITE)
        except (KeyboardInterrupt, Terminated):
            connector.leave(at_once=True)
            raise
    if gone and sink.has_begun and connector.config.auto_commit_enable:
        log.warning(
            "the reader of stdout has gone: what was printed after the last commit of group %s is not committed: "
            "--max-messages N ends after N messages and commits them",
            connector.config.group_id,
        )
    for partition, why in held_back.items() if not stop and not gone else ():
        raise ZkgroupError(f"{partition} was not read: {why}")
    return exit_code(sink, stop, "what was not written is not committed")


# In ZooKeeper


def _check_zookeeper(asked: Consumption) -> tuple[Mapping[TopicPartition, int], bool]:
    """Where the logs end, if that matters, and whether the group is new. Raises where topics or brokers are missing."""
    config, subscription, until_end = asked.config, asked.subscription, asked.until_end
    asked.settings.require_zookeeper()
    kafka = asked.named_brokers()
    with open_registry(asked.settings) as registry:
        children, brokers, group = registry.read(
            [Children(znodes.topics()), Children(znodes.broker_ids()), Exists(znodes.group(config.group_id))]
        )
        is_new = group is None
        selected = subscription.among(names_in(children), config)
        if not selected:
            log.warning("%s: %s", subscription.nothing_found.message, NOTHING if until_end else WAITING)
        if kafka is None and not names_in(brokers):
            if until_end:
                raise UnreachableError("no broker is registered in ZooKeeper", "check that the brokers are up")
            return {}, is_new  # the member waits for one, and says so
        # The member itself warns of silent brokers, later.
        kafka = kafka or asked.registered_brokers(registry, silent=logging.DEBUG)
        # Damage of a topic that a filter selects is reported by the member.
        wanted = selected if until_end or subscription.filter is None else ()
        nodes = registry.read([Get(znodes.topic(topic)) for topic in wanted])
    partitions = []
    for topic, node in zip(wanted, nodes, strict=True):
        if isinstance(node, Node):
            path = znodes.topic(topic)
            if subscription.filter is None:
                decode_topic(path, node.data)  # raises for damage of a topic that was named
            partitions += [TopicPartition(topic, number) for number in partitions_to_read(path, node.data)[0]]
    topics(kafka, asked.settings.timeout)
    return asked.log_ends(kafka, partitions), is_new


def _remove_empty_group(settings: ConnectionSettings, group: str) -> None:
    """Leave nothing behind of a group that began here and in which nothing was committed. A failure is only logged."""
    from zkgroup.groups.changes.znode_deletion import remove_empty_group  # 15 ms that few members need

    try:
        with open_registry(settings) as registry:
            remove_empty_group(registry, group)
    except ZkgroupError as error:
        log.info("whether group %s is empty is not known: %s", group, error)


# In Kafka


def _kafka_member(
    asked: Consumption, properties: Mapping[str, str], in_zookeeper: frozenset[str], report: Callable[[str], None]
) -> KafkaConnector:
    config = asked.config
    # Without --strategy the member offers all it knows, and the coordinator takes one that every member knows.
    given = "partition.assignment.strategy" in config.explicit
    return KafkaConnector(
        config,
        lambda: asked.brokers(silent=logging.DEBUG),
        start=asked.start,
        strategies=(config.partition_assignment_strategy,) if given else STRATEGIES,
        properties=properties,
        on_rebalance=lambda rebalance: _report(config.group_id, rebalance, in_zookeeper, report),
    )


def _report(group: str, rebalance: Rebalance, in_zookeeper: frozenset[str], report: Callable[[str], None]) -> None:
    """Report a step. ``in_zookeeper``: topics of which the group of that name has offsets in ZooKeeper."""
    share = f"{spans(rebalance.partitions)} ({counted(len(rebalance.partitions), 'partition')})"
    if not rebalance.partitions:
        share = "nothing"
    match rebalance.kind:
        case "assigned":
            report(f"group {group}: assigned {share}, {rebalance.seconds:.1f} s after the rebalance began")
        case "revoked":
            report(f"group {group}: revoked {share}, given up in {rebalance.seconds:.1f} s")
        case "lost":
            report(f"group {group}: lost {share}: the coordinator took this member for dead; others read on")
    skipped = sorted({partition.topic for partition in rebalance.without_offset} & in_zookeeper)
    if skipped:
        log.warning(
            "group %s has offsets of %s in ZooKeeper and not all of them in Kafka: without one it reads from where new "
            "groups begin; %s",
            group,
            listed(skipped),
            Remedy("move them", group_command("migrate-group", group, "--to", "kafka")),
        )


def _check_kafka(asked: Consumption) -> tuple[Mapping[TopicPartition, int], frozenset[str]]:
    """Where the logs end, if that matters, and the topics of which a group of that name has offsets in ZooKeeper.
    Raises where topics are missing, or such groups cannot be joined."""
    subscription = asked.subscription
    kafka = asked.brokers(silent=logging.DEBUG)
    check_release(kafka)
    known = topics(kafka, asked.settings.timeout)
    selected = subscription.among(sorted(known), asked.config)
    if not selected:
        if asked.until_end:
            raise subscription.nothing_found
        log.warning("%s: %s", subscription.nothing_found.message, WAITING)
    in_zookeeper = _topics_in_zookeeper(asked.settings, asked.config.group_id, selected)
    partitions = [TopicPartition(topic, number) for topic in selected for number in known[topic]]
    return asked.log_ends(kafka, partitions), in_zookeeper


def _topics_in_zookeeper(settings: ConnectionSettings, group: str, selected: Collection[str]) -> frozenset[str]:
    """The topics of which a group of the same name has offsets in ZooKeeper. Warns of members there."""
    if settings.zookeeper is None:
        return frozenset()
    try:
        with open_registry(settings) as registry:
            members, offsets = registry.read([Children(znodes.ids(group)), Children(znodes.offsets(group))])
    except UnreachableError as error:
        log.warning("whether group %s has members in ZooKeeper is not known: %s", group, error)
        return frozenset()
    if isinstance(members, tuple) and members:
        log.warning(
            "group %s has %s in ZooKeeper, too, which know nothing of those in Kafka: each side reads everything; %s",
            group,
            counted(len(members), "member"),
            Remedy("stop one side; see why", ("inspect-group", "--explain", "split-group")),
        )
    return frozenset(selected).intersection(names_in(offsets))
