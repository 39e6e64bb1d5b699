"""Consuming: which topics, when to leave, and the wait until then; and ``consume`` without a group, which leaves
nothing behind. It imports what reading needs: import it where no signal can interrupt that half done."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from zkgroup.clients.kafka.client import KafkaSettings, topics
from zkgroup.clients.kafka.registered_brokers import Brokers
from zkgroup.clients.kafka.start_position import log_ends, resolve_start
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.config import ConnectionSettings, ConsumerConfig
from zkgroup.connector import StartAt
from zkgroup.connector.stream import Feed, Stream
from zkgroup.errors import NotFoundError, ZkgroupError, did_you_mean
from zkgroup.protocol.names import TopicPartition, internal_topics
from zkgroup.protocol.topic_filter import TopicFilter

from ._context import bootstrap_brokers, open_registry
from ._message_sink import Sink
from ._signals import StopRequest

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

    def named_brokers(self) -> KafkaSettings | None:
        """The brokers of ``--bootstrap-server``, if it was given."""
        return bootstrap_brokers(self.settings) if self.settings.bootstrap else None

    def registered_brokers(self, registry: Registry, *, silent: int) -> KafkaSettings:
        """The brokers that are registered in ZooKeeper. ``silent``: the level at which those are logged that do not
        answer."""
        kafka, listener, timeout = self.config.kafka, self.config.listener, self.settings.timeout
        return Brokers(registry.read, kafka, timeout=timeout, listener=listener, silent_level=silent).settings()

    def brokers(self, *, silent: int) -> KafkaSettings:
        """The brokers: those that are named, else the registered ones."""
        if (named := self.named_brokers()) is not None:
            return named
        with open_registry(self.settings) as registry:
            return self.registered_brokers(registry, silent=silent)

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
    kafka = asked.brokers(silent=logging.WARNING)
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
