"""What both ways to consume share: which topics, when to leave, and the wait until then."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zkgroup.config import ConnectionSettings, ConsumerConfig
from zkgroup.errors import NotFoundError, ZkgroupError, did_you_mean

from ._context import bootstrap_brokers
from ._message_sink import Sink
from ._signals import StopRequest, before_start

if TYPE_CHECKING:
    from zkgroup.clients.kafka.client import KafkaSettings
    from zkgroup.clients.zookeeper.registry import Registry
    from zkgroup.connector import StartAt
    from zkgroup.protocol.names import TopicPartition
    from zkgroup.protocol.topic_filter import TopicFilter

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
class Limits:
    """When to leave; the sink counts messages by itself. ``timeout`` is seconds without a message. ``unread``: the
    warning for a user who waits for the first message."""

    timeout: float | None
    until_end: bool
    unread: str = ""


@dataclass(frozen=True, slots=True)
class Subscription:
    """Which topics: by name, or by a filter."""

    topics: tuple[str, ...]
    filter: TopicFilter | None

    def among(self, known: Sequence[str], config: ConsumerConfig) -> tuple[str, ...]:
        """The topics of this subscription that exist. Raises NotFoundError for a named one that does not."""
        from zkgroup.protocol.names import internal_topics

        if self.filter is not None:
            internal = internal_topics(config.kafka_version)
            return self.filter.select(known, exclude_internal=config.exclude_internal_topics, internal=internal)
        for topic in self.topics:
            if topic not in known:
                remedy = did_you_mean(topic, known, "check the name, and the chroot of --zookeeper")
                raise NotFoundError(f"no topic {topic}", remedy)
        return self.topics

    def still_among(self, known: Collection[str], config: ConsumerConfig) -> tuple[str, ...]:
        """As ``among``, but a named one may be gone."""
        if self.filter is not None:
            return self.among(sorted(known), config)
        return tuple(topic for topic in self.topics if topic in known)

    @property
    def matches_nothing(self) -> str:
        """The problem of a filter that no topic passes."""
        return f"no topic is left by the filter {self.filter.expression!r}" if self.filter is not None else ""

    def nothing_found(self) -> NotFoundError:
        """The error where waiting for a topic makes no sense."""
        return NotFoundError(self.matches_nothing, "see what there is with --whitelist '.*'")


@dataclass(frozen=True, slots=True)
class Consumption:
    """What a command line asks to consume. ``start``: None for a member that starts where its group has no offset as
    its configuration says. ``sink`` prints the messages."""

    settings: ConnectionSettings
    config: ConsumerConfig
    subscription: Subscription
    start: StartAt | None
    limits: Limits
    sink: Sink

    def named_brokers(self) -> KafkaSettings | None:
        """The brokers of ``--bootstrap-server``, if it was given."""
        return bootstrap_brokers(self.settings) if self.settings.bootstrap else None

    def registered_brokers(self, registry: Registry, *, silent: int) -> KafkaSettings:
        """The brokers that are registered in ZooKeeper. ``silent``: the level at which those are logged that do not
        answer."""
        from zkgroup.clients.kafka.registered_brokers import Brokers

        kafka, listener, timeout = self.config.kafka, self.config.listener, self.settings.timeout
        return Brokers(registry.read, kafka, timeout=timeout, listener=listener, silent_level=silent).settings()

    def log_ends(self, kafka: KafkaSettings, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Where the logs end, if that matters."""
        from zkgroup.clients.kafka.start_position import log_ends

        return log_ends(kafka, partitions, self.settings.timeout) if self.limits.until_end else {}


def load() -> None:
    """Import what reading needs, while a signal cannot interrupt anything half done."""
    with before_start():
        import zkgroup.clients.zookeeper.registry
        import zkgroup.connector  # noqa: F401


def wait_until_time_to_leave(sink: Sink, limits: Limits, stop: StopRequest, missing: Callable[[], str]) -> None:
    """Wait until the readers are done, a signal came, or the reader of the output is gone.

    When a limit is reached the readers still write the batches in hand, however long that takes. ``missing``: the
    partitions that are not read to their ends, as text; "" where none is missing.
    """
    warned, unread = not limits.until_end, limits.unread
    while not stop and not sink.wait(LEAVE_CHECK) and not sink.reader_gone:
        late = limits.timeout is not None and sink.idle >= limits.timeout
        still = missing() if limits.until_end else "what comes"
        if late or not still:
            sink.stop()
        elif not warned and sink.idle >= SILENCE:
            warned = True
            log.warning("no message for %g s: waiting for %s", SILENCE, still)
        elif unread and not limits.until_end and (sink.consumed or sink.idle >= UNREAD):
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
