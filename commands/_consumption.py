"""Consuming: which topics, when to leave, and the wait until then; without a group, which leaves nothing behind, and as
a member of one in ZooKeeper or in Kafka. It imports what reading needs: import it where no signal can interrupt that
half done."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from zkgroup.clients.kafka.client import KafkaSettings, topics
from zkgroup.clients.kafka.group_consumers import check_release
from zkgroup.clients.kafka.start_position import log_ends, resolve_start
from zkgroup.clients.zookeeper.registry import names_in
from zkgroup.config import ConnectionSettings, ConsumerConfig
from zkgroup.config.settings_table import STRATEGIES
from zkgroup.connector import Connector, KafkaConnector, Rebalance, StartAt
from zkgroup.connector.consumer_connector import ConsumerConnector
from zkgroup.connector.stream import Feed, Stream
from zkgroup.errors import NotFoundError, Remedy, UnreachableError, ZkgroupError, did_you_mean
from zkgroup.groups.group_choices import OffsetStore
from zkgroup.protocol import znodes
from zkgroup.protocol.broker_znodes import decode_topic, partitions_to_read
from zkgroup.protocol.names import TopicPartition, internal_topics, spans
from zkgroup.protocol.operations import Children, Exists, Get, Node
from zkgroup.protocol.topic_filter import TopicFilter
from zkgroup.text import counted, group_command, listed

from ._context import bootstrap_brokers, open_registry, zookeeper_settings
from ._group_views import brokers_of
from ._message_sink import Sink
from ._signals import StopRequest, Terminated

log = logging.getLogger("zkgroup.consume")

# Seconds between two checks whether it is time to leave.
LEAVE_CHECK = 0.05
# Seconds without a message, before the ends are reached, until a warning says which partitions are missing.
SILENCE = 5.0
# Seconds without a first message until a warning says that older messages are not read.
UNREAD = 3.0
NOTHING, WAITING = "there is nothing to read", "waiting for one"
# Seconds that a reader has to write its batch, after it was asked to stop, where nothing else waits for it.
LAST_WRITE = 0.5


@dataclass(frozen=True, slots=True)
class Subscription:
    """Which topics: by name, or by a filter."""

    topics: tuple[str, ...]
    filter: TopicFilter | None

    def among(self, known: Sequence[str], config: ConsumerConfig) -> tuple[str, ...]:
        """The topics of this subscription that exist. Raises NotFoundError for a named one that does not."""
        if self.filter is not None:
            internal = internal_topics(config.kafka_version)
            return self.filter.select(known, exclude_internal=config.exclude_internal_topics, internal=internal)
        for topic in self.topics:
            if topic not in known:
                remedy = did_you_mean(topic, known, "check the name, and the chroot of --zookeeper")
                raise NotFoundError(f"no topic {topic}", remedy)
        return self.topics

    @property
    def nothing_found(self) -> NotFoundError:
        """The error where no topic passes the filter, and waiting for one makes no sense."""
        message = f"no topic is left by the filter {self.filter and self.filter.expression!r}"
        return NotFoundError(message, "see what there is with --whitelist '.*'")


@dataclass(frozen=True, slots=True)
class Consumption:
    """What a command line asks to consume. ``start``: None for a member that starts where its group has no offset as
    its configuration says. ``sink`` prints the messages, and counts them by itself. ``timeout``: leave after so many
    seconds without a message. ``unread``: the warning for a user who waits for the first message."""

    settings: ConnectionSettings
    config: ConsumerConfig
    subscription: Subscription
    start: StartAt | None
    sink: Sink
    timeout: float | None = None
    until_end: bool = False
    unread: str = ""

    def brokers(self, silent: int = logging.DEBUG) -> KafkaSettings:
        """The brokers: those that are named, else the registered ones; ``silent`` as in ``brokers_of``."""
        if self.settings.bootstrap:
            return bootstrap_brokers(self.settings)
        with open_registry(self.settings) as registry:
            return brokers_of(self.settings, registry, silent)()

    def log_ends(self, kafka: KafkaSettings, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Where the logs end, if that matters."""
        return log_ends(kafka, partitions, self.settings.timeout) if self.until_end else {}


def wait_until_time_to_leave(asked: Consumption, stop: StopRequest, missing: Callable[[], str]) -> None:
    """Wait until the readers are done, a signal came, or the reader of the output is gone.

    When a limit is reached the readers still write the batches in hand, however long that takes. ``missing``: the
    partitions that are not read to their ends, as text; "" where none is missing.
    """
    sink, warned, unread = asked.sink, not asked.until_end, "" if asked.until_end else asked.unread
    while not stop and not sink.wait(LEAVE_CHECK) and not sink.reader_gone:
        late = asked.timeout is not None and sink.idle >= asked.timeout
        still = missing() if asked.until_end else "what comes"
        if late or not still:
            sink.stop()
        elif not warned and sink.idle >= SILENCE:
            warned = True
            log.warning("no message for %g s: waiting for %s", SILENCE, still)
        elif unread and (sink.consumed or sink.idle >= UNREAD):
            if not sink.consumed:
                log.warning("%s", unread)
            unread = ""


def exit_code(sink: Sink, stop: StopRequest, unwritten: str) -> int:
    """The command's exit code. Raises the error that kept messages from being read or written; ``unwritten``: its
    remedy where stdout cannot be written."""
    seconds = sink.seconds
    log.info("%d messages in %.1f s (%d msg/s)", sink.consumed, seconds, sink.consumed / max(seconds, 0.001))
    if sink.failure is not None:
        raise sink.failure
    if sink.error is not None and not sink.reader_gone:
        raise ZkgroupError(f"stdout cannot be written: {sink.error.strerror}", unwritten) from sink.error
    return stop.exit_code


def consume_plainly(asked: Consumption, numbers: Sequence[int]) -> int:
    """Print until it is time to leave, in no group. Returns the exit code. ``numbers``: only these partitions."""
    sink = asked.sink
    with StopRequest(sink.stop) as stop:
        kafka, starts, ends = stop.unless(lambda: _prepare(asked, numbers))
        stream = Stream(
            asked.config,
            lambda: kafka,
            can_deliver=lambda: True,
            on_failure=lambda error: None,
            report_ends=asked.until_end,
            native=sink.reads_natively,
        )
        feed = Feed(stream)
        feed.assign(1, starts)
        try:
            sink.start([stream])
            wait_until_time_to_leave(asked, stop, lambda: sink.missing(ends))
            sink.stop()
            sink.wait(LAST_WRITE)
        finally:
            feed.end(None)
            feed.close()
        return exit_code(sink, stop, "the rest was not read")


def _prepare(
    asked: Consumption, numbers: Sequence[int]
) -> tuple[KafkaSettings, Mapping[TopicPartition, int], Mapping[TopicPartition, int]]:
    """How to reach the brokers, where to start in each partition, and where the logs end, if that matters."""
    assert asked.start is not None, "only a member may leave that to its group"
    subscription, timeout = asked.subscription, asked.settings.timeout
    kafka = asked.brokers(logging.WARNING)
    known = topics(kafka, timeout)
    selected = subscription.among(sorted(known), asked.config)
    if not selected:
        raise subscription.nothing_found
    partitions = [TopicPartition(topic, number) for topic in selected for number in numbers or known[topic]]
    for partition in partitions:
        if partition.partition not in known[partition.topic]:
            raise NotFoundError(
                f"topic {partition.topic} has no partition {partition.partition}",
                f"it has {len(known[partition.topic])}, counted from 0",
            )
    ends = asked.log_ends(kafka, partitions)
    return kafka, resolve_start(kafka, partitions, asked.start, timeout), ends


# As a member of a group


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
        named = bootstrap_brokers(settings) if settings.bootstrap else None
        connector = Connector(config, zookeeper, start=asked.start, kafka=named)
        code = _take_part(connector, asked, streams, ends, stop)
        if group_is_new:  # and nothing was committed: then nothing is left behind
            from zkgroup.groups.changes.znode_deletion import remove_empty_group  # 15 ms that few members need

            try:
                with open_registry(settings) as registry:
                    remove_empty_group(registry, config.group_id)
            except ZkgroupError as error:
                log.info("whether group %s is empty is not known: %s", config.group_id, error)
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
    with open_registry(asked.settings) as registry:
        children, brokers, group = registry.read(
            [Children(znodes.topics()), Children(znodes.broker_ids()), Exists(znodes.group(config.group_id))]
        )
        is_new = group is None
        selected = subscription.among(names_in(children), config)
        if not selected:
            log.warning("%s: %s", subscription.nothing_found.message, NOTHING if until_end else WAITING)
        if not asked.settings.bootstrap and not names_in(brokers):
            if until_end:
                raise UnreachableError("no broker is registered in ZooKeeper", "check that the brokers are up")
            return {}, is_new  # the member waits for one, and says so
        # The member itself warns of silent brokers, later.
        kafka = brokers_of(asked.settings, registry, logging.DEBUG)()
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


# In Kafka


def _kafka_member(
    asked: Consumption, properties: Mapping[str, str], in_zookeeper: frozenset[str], report: Callable[[str], None]
) -> KafkaConnector:
    config = asked.config
    # Without --strategy the member offers all it knows, and the coordinator takes one that every member knows.
    given = "partition.assignment.strategy" in config.explicit
    return KafkaConnector(
        config,
        asked.brokers,
        start=asked.start,
        strategies=(config.partition_assignment_strategy,) if given else STRATEGIES,
        properties=properties,
        on_rebalance=lambda rebalance: _report(config.group_id, rebalance, in_zookeeper, report),
    )


def _report(group: str, rebalance: Rebalance, in_zookeeper: frozenset[str], report: Callable[[str], None]) -> None:
    """Report a step. ``in_zookeeper``: topics of which the group of that name has offsets in ZooKeeper."""
    count = len(rebalance.partitions)
    share = f"{spans(rebalance.partitions)} ({counted(count, 'partition')})" if count else "nothing"
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
    kafka = asked.brokers()
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
