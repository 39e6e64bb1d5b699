"""The two ways to consume: as a member of a group, and plainly, leaving nothing behind."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from zkgroup.config import ConnectionSettings, ConsumerConfig
from zkgroup.errors import NotFoundError, UnreachableError, ZkgroupError, did_you_mean

from ._context import given_brokers, open_registry, zookeeper_settings
from ._message_sink import Sink
from ._new_partitions import Follower
from ._signals import StopRequest, Terminated, nothing_begun

if TYPE_CHECKING:
    from zkgroup.clients.kafka.client import KafkaSettings
    from zkgroup.clients.zookeeper.registry import Registry
    from zkgroup.connector import Connector, StartAt, Stream
    from zkgroup.connector.kafka_connector import CoordinatedConnector
    from zkgroup.protocol.names import TopicPartition
    from zkgroup.protocol.topic_filter import TopicFilter

log = logging.getLogger("zkgroup.consume")

_Raw: TypeAlias = "Stream[bytes | None, bytes | None]"

# How often it is looked whether it is time to leave, in seconds.
LOOK = 0.05
# How long nothing may come before the end is reached until that is told, in seconds.
SILENCE = 5.0
# How long one waits for the first message until it is told that what is there is not read, in seconds.
UNREAD = 3.0
# How often it is looked whether a broker has come, in seconds.
BROKER_LOOK = 0.5
NOTHING, WAITING = "there is nothing to read", "waiting for one"
# How long a reader that was told to stop may take to write what it has in hand, where nobody waits for it.
LAST_WRITE = 0.5


@dataclass(frozen=True, slots=True)
class Limits:
    """When to leave, beside the number of messages, which the sink counts. ``timeout`` is seconds without a message.
    ``unread``: what is told, once, to who waits for the first message."""

    timeout: float | None
    until_end: bool
    unread: str = ""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which topics: by name, or by a filter."""

    topics: tuple[str, ...]
    filter: TopicFilter | None

    def among(self, known: Sequence[str], config: ConsumerConfig) -> tuple[str, ...]:
        """The topics meant, of those that exist. Raises NotFoundError for a named one that does not."""
        from zkgroup.protocol.names import internal_topics

        if self.filter is not None:
            internal = internal_topics(config.compat)
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
        """Words for a filter that no topic passes."""
        return f"no topic is left by the filter {self.filter.expression!r}" if self.filter is not None else ""


def load() -> None:
    """Import what reading needs, while nothing has begun that a signal could leave half done."""
    with nothing_begun():
        pass


# As a member


def as_member(
    settings: ConnectionSettings,
    config: ConsumerConfig,
    selection: Selection,
    streams: int,
    start: StartAt | None,
    limits: Limits,
    sink: Sink,
) -> int:
    """Join the group, print until it is time to leave, leave; returns the exit code."""
    from zkgroup.connector import Connector

    hosts, patience = str(settings.require_zookeeper()), max(1, int(settings.timeout * 1000))
    # What flags and profiles have settled holds for the member, too.
    config = dataclasses.replace(config, zookeeper_connect=hosts, zookeeper_connection_timeout_ms=patience)
    zookeeper = dataclasses.replace(zookeeper_settings(settings), connect_timeout=patience / 1000)
    with StopRequest() as stop:
        ends, is_new = stop.unless(lambda: _look_around(settings, config, selection, limits))
        connector = Connector(config, zookeeper, start=start, kafka=_given_brokers(settings))
        code = take_part(connector, config, selection, streams, ends, limits, sink, stop)
        if is_new:
            _remove_empty_group(settings, config.group_id)
        return code


def _remove_empty_group(settings: ConnectionSettings, group: str) -> None:
    """Leave nothing behind of a group that began here, and in which nothing was committed. Where that fails, it is no
    failure of what was read."""
    from zkgroup.groups.changes.znode_deletion import remove_empty_group

    try:
        with open_registry(settings) as registry:
            remove_empty_group(registry, group)
    except ZkgroupError as error:
        log.info("whether group %s is empty is not known: %s", group, error)


def take_part(
    connector: Connector | CoordinatedConnector,
    config: ConsumerConfig,
    selection: Selection,
    streams: int,
    ends: Mapping[TopicPartition, int],
    limits: Limits,
    sink: Sink,
    stop: StopRequest,
) -> int:
    """Join, print until it is time to leave, leave; returns the exit code. ``ends``: where the logs end, if that
    matters."""

    def missing() -> str:
        look = connector.statistics()
        mine = {partition: ends.get(partition, 0) for partition in look.owned if partition not in look.held}
        return sink.missing(mine) if look.phase == "owning" else f"its share ({look.phase})"

    # Who is gone may have died with what was written: it is left to be read again.
    stop.on_stop = lambda: connector.leave(commit=not sink.forsaken)
    with connector:
        try:
            if not stop:
                sink.start(_join(connector, selection, streams, tell_ends=limits.until_end))
                _watch(sink, limits, stop, missing)
            held = connector.statistics().held
            gone = sink.forsaken
            connector.leave(commit=not gone)
            sink.wait(config.quiesce_timeout_ms / 1000 + LAST_WRITE)
        except (KeyboardInterrupt, Terminated):
            connector.leave(at_once=True)
            raise
    for partition, why in held.items() if not stop and not gone else ():
        raise ZkgroupError(f"{partition} was not read: {why}")
    return _outcome(sink, stop, "what was not written is not committed")


def _join(
    connector: Connector | CoordinatedConnector, selection: Selection, streams: int, *, tell_ends: bool
) -> list[_Raw]:
    if selection.filter is not None:
        return connector.streams_by_filter(selection.filter, streams, tell_ends=tell_ends)
    return connector.merged_streams(selection.topics, streams, tell_ends=tell_ends)


def _look_around(
    settings: ConnectionSettings, config: ConsumerConfig, selection: Selection, limits: Limits
) -> tuple[Mapping[TopicPartition, int], bool]:
    """Before joining, so that nothing is registered in vain: do the topics exist, do the brokers answer? Returns where
    the logs end, if that matters, and whether the group is a new one."""
    from zkgroup.clients.kafka.client import topics
    from zkgroup.clients.zookeeper.registered_brokers import Brokers
    from zkgroup.connector.start_position import log_ends
    from zkgroup.groups.changes.acl_conflicts import look_for_strangers
    from zkgroup.protocol import znodes
    from zkgroup.protocol.broker_znodes import decode_topic, partitions_to_read
    from zkgroup.protocol.names import TopicPartition
    from zkgroup.protocol.operations import Children, Exists, Get, Node

    given = _given_brokers(settings)
    with open_registry(settings) as registry:
        if (told := look_for_strangers(registry, config.group_id)) is not None:
            log.warning("%s", told)
        listed, brokers, there = registry.read(
            [Children(znodes.topics()), Children(znodes.broker_ids()), Exists(znodes.group(config.group_id))]
        )
        is_new = there is None
        known = listed if isinstance(listed, tuple) else ()
        chosen = selection.among(known, config)
        if not chosen:
            log.warning("%s: %s", selection.matches_nothing, NOTHING if limits.until_end else WAITING)
        if given is None and not (isinstance(brokers, tuple) and brokers):
            if limits.until_end:
                raise UnreachableError("no broker is registered in ZooKeeper", "check that the brokers are up")
            return {}, is_new  # the member waits for one, and says so
        # That a broker is silent is told by the member itself, later.
        registered = Brokers(
            registry.read, config.kafka, given, settings.timeout, listener=config.listener, tell=logging.DEBUG
        )
        kafka = registered.settings()
        # What a filter matches the member reads anyway.
        wanted = chosen if limits.until_end or selection.filter is None else ()
        nodes = registry.read([Get(znodes.topic(topic)) for topic in wanted])
    partitions = []
    for topic, node in zip(wanted, nodes, strict=True):
        if isinstance(node, Node):
            path = znodes.topic(topic)
            # Of a topic that was named the damage is an error; of one that a filter takes the member tells it.
            if selection.filter is None:
                decode_topic(path, node.data)
            partitions += [TopicPartition(topic, number) for number in partitions_to_read(path, node.data)[0]]
    topics(kafka, settings.timeout)
    return log_ends(kafka, partitions, settings.timeout) if limits.until_end else {}, is_new


# Plainly


def plainly(
    settings: ConnectionSettings,
    config: ConsumerConfig,
    selection: Selection,
    numbers: Sequence[int],
    start: StartAt,
    limits: Limits,
    sink: Sink,
) -> int:
    """Print until it is time to stop, known to nobody; returns the exit code. ``numbers``: only these partitions."""
    from zkgroup.config import librdkafka_properties
    from zkgroup.connector import Stream
    from zkgroup.connector.stream import Feed

    with StopRequest(sink.stop) as stop:
        kafka, starts, ends = stop.unless(lambda: _prepare(settings, config, selection, numbers, start, limits))
        properties = {
            name.replace(".", "_"): value
            for name, value in librdkafka_properties(config).items()
            if name not in config.kafka
        }
        stream: _Raw = Stream(
            lambda: kafka,
            lambda: True,
            lambda error: None,
            sharers=1,
            reset=config.auto_offset_reset,
            key_decoder=lambda data: data,
            value_decoder=lambda data: data,
            properties=properties,
            tell_ends=limits.until_end,
        )
        feed = Feed(stream)
        feed.grant(1, starts)

        gone = _Gone()

        def look() -> Mapping[TopicPartition, int]:
            return _what_is_new(kafka, config, selection, stream.positions, settings.timeout, gone)

        # A set of partitions that was asked for stays as it is.
        fixed = limits.until_end or bool(numbers)
        following = nullcontext() if fixed else Follower(look, lambda found: feed.extend(1, found))
        try:
            sink.start([stream])
            with following:
                _watch(sink, limits, stop, lambda: sink.missing(ends))
            sink.stop()
            sink.wait(LAST_WRITE)
        finally:
            feed.end(None)
            feed.close()
        return _outcome(sink, stop, "the rest was not read")


def _prepare(
    settings: ConnectionSettings,
    config: ConsumerConfig,
    selection: Selection,
    numbers: Sequence[int],
    start: StartAt,
    limits: Limits,
) -> tuple[KafkaSettings, Mapping[TopicPartition, int], Mapping[TopicPartition, int]]:
    """How to reach the brokers, where to start in each partition, and where the logs end, if that matters."""
    from zkgroup.clients.kafka.client import topics
    from zkgroup.clients.zookeeper.registered_brokers import Brokers
    from zkgroup.connector.start_position import log_ends, resolve_start
    from zkgroup.protocol.names import TopicPartition

    kafka = _given_brokers(settings)
    if kafka is None:
        with open_registry(settings) as registry:
            if not limits.until_end:
                _wait_for_a_broker(registry, limits.timeout)
            brokers = Brokers(registry.read, config.kafka, timeout=settings.timeout, listener=config.listener)
            kafka = brokers.settings()
    known = topics(kafka, settings.timeout)
    chosen = selection.among(sorted(known), config)
    if not chosen:
        if limits.until_end or numbers:
            raise NotFoundError(selection.matches_nothing, "see what there is with --whitelist '.*'")
        log.warning("%s: %s", selection.matches_nothing, WAITING)
    partitions = [TopicPartition(topic, number) for topic in chosen for number in numbers or known[topic]]
    for partition in partitions:
        if partition.partition not in known[partition.topic]:
            raise NotFoundError(
                f"topic {partition.topic} has no partition {partition.partition}",
                f"it has {len(known[partition.topic])}, counted from 0",
            )
    ends = log_ends(kafka, partitions, settings.timeout) if limits.until_end else {}
    starts = resolve_start(kafka, partitions, start, settings.timeout)
    return kafka, starts, ends


def _wait_for_a_broker(registry: Registry, timeout: float | None) -> None:
    """Until one is registered, or ``timeout`` seconds are over. Where none is, that is told, once."""
    from zkgroup.protocol import znodes
    from zkgroup.protocol.operations import Children

    deadline = float("inf") if timeout is None else time.monotonic() + timeout
    told = False
    while True:
        (listed,) = registry.read([Children(znodes.broker_ids())])
        if (isinstance(listed, tuple) and listed) or time.monotonic() >= deadline:
            return
        if not told:
            told = True
            log.warning("no broker is registered yet: waiting")
        time.sleep(min(BROKER_LOOK, max(0.0, deadline - time.monotonic())))


class _Gone:
    """Topics that are read and have been missing for some looks. Told at the second: a broker that has just started may
    not know all of them."""

    def __init__(self) -> None:
        self._looks: dict[str, int] = {}

    def look(self, missing: Collection[str]) -> None:
        """These are not there now."""
        self._looks = {topic: self._looks.get(topic, 0) + 1 for topic in sorted(missing)}
        for topic, looks in self._looks.items():
            if looks == 2:
                log.warning("topic %s is gone: if it is made again, start anew to read it from its beginning", topic)


def _what_is_new(
    kafka: KafkaSettings,
    config: ConsumerConfig,
    selection: Selection,
    read: Collection[TopicPartition],
    timeout: float,
    gone: _Gone,
) -> Mapping[TopicPartition, int]:
    """Partitions that have come, and where they begin. One that cannot be asked yet is left for the next time."""
    from zkgroup.clients.kafka.client import topics
    from zkgroup.clients.kafka.log_offsets import LogRange, log_offsets
    from zkgroup.protocol.names import TopicPartition

    known = topics(kafka, timeout)
    gone.look({partition.topic for partition in read} - known.keys())
    chosen = selection.still_among(known, config)
    new = [one for topic in chosen for number in known[topic] if (one := TopicPartition(topic, number)) not in read]
    found = log_offsets(kafka, new, timeout) if new else {}
    return {partition: log.start for partition, log in found.items() if isinstance(log, LogRange)}


def _given_brokers(settings: ConnectionSettings) -> KafkaSettings | None:
    return given_brokers(settings) if settings.bootstrap else None


# Both


def _watch(sink: Sink, limits: Limits, stop: StopRequest, waits_for: Callable[[], str]) -> None:
    """Until the readers are done, or a signal came, or nobody reads what is written. When it is time to leave, they
    write what they have in hand, however long that takes. ``waits_for``: what is missing to the end, in words; "" where
    it is reached."""
    told, unread = not limits.until_end, limits.unread
    while not stop and not sink.wait(LOOK) and not sink.forsaken:
        late = limits.timeout is not None and sink.idle >= limits.timeout
        missing = waits_for() if limits.until_end else "what comes"
        if late or not missing:
            sink.stop()
        elif not told and sink.idle >= SILENCE:
            told = True
            log.warning("no message for %g s: waiting for %s", SILENCE, missing)
        elif unread and not limits.until_end and (sink.written or sink.idle >= UNREAD):
            if not sink.written:
                log.warning("%s", unread)
            unread = ""


def _outcome(sink: Sink, stop: StopRequest, unwritten: str) -> int:
    seconds = sink.seconds
    log.info("%d messages in %.1f s (%d msg/s)", sink.written, seconds, sink.written / max(seconds, 0.001))
    if sink.failure is not None:
        raise sink.failure
    if sink.error is not None and not sink.forsaken:
        raise ZkgroupError(f"stdout cannot be written: {sink.error.strerror}", unwritten) from sink.error
    return stop.exit_code
