"""``consume`` without a group: reads, leaves nothing behind, and follows new topics and partitions."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final, Self

from zkgroup.errors import NotFoundError, UnreachableError, ZkgroupError

from ._consumption import (
    LAST_WRITE,
    WAITING,
    Consumption,
    exit_code,
    wait_until_time_to_leave,
)
from ._context import open_registry
from ._signals import StopRequest

if TYPE_CHECKING:
    from zkgroup.clients.kafka.client import KafkaSettings
    from zkgroup.clients.zookeeper.registry import Registry
    from zkgroup.protocol.names import TopicPartition

log = logging.getLogger("zkgroup.consume")

#: Seconds between two checks whether a broker is registered.
BROKER_INTERVAL: Final = 0.5
#: Seconds between two searches for new partitions.
FOLLOW_INTERVAL: Final = 5.0
#: Seconds that the end of a search is waited for; brokers that do not answer are not.
CLOSE_TIMEOUT: Final = 0.5


def consume_plainly(asked: Consumption, numbers: Sequence[int]) -> int:
    """Print until it is time to leave, in no group. Returns the exit code. ``numbers``: only these partitions."""
    from zkgroup.connector.stream import Feed, make_streams

    sink, limits = asked.sink, asked.limits
    with StopRequest(sink.stop) as stop:
        kafka, starts, ends = stop.unless(lambda: _prepare(asked, numbers))
        (stream,) = make_streams(
            asked.config,
            1,
            lambda: kafka,
            may_deliver=lambda: True,
            on_failure=lambda error: None,
            key_decoder=lambda data: data,
            value_decoder=lambda data: data,
            report_ends=limits.until_end,
            native=sink.reads_natively,
        )
        feed = Feed(stream)
        feed.assign(1, starts)

        missing_topics = _MissingTopics()

        def find_new() -> Mapping[TopicPartition, int]:
            return _new_partitions(kafka, asked, stream.positions, missing_topics)

        # Partitions that were named stay as they are.
        fixed = limits.until_end or bool(numbers)
        following = nullcontext() if fixed else _Follower(find_new, lambda new: feed.assign_more(1, new))
        try:
            sink.start([stream])
            with following:
                wait_until_time_to_leave(sink, limits, stop, lambda: sink.missing(ends))
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
    from zkgroup.clients.kafka.client import topics
    from zkgroup.clients.kafka.start_position import resolve_start
    from zkgroup.protocol.names import TopicPartition

    assert asked.start is not None, "only a member may leave that to its group"
    subscription, limits, timeout = asked.subscription, asked.limits, asked.settings.timeout
    kafka = asked.named_brokers()
    if kafka is None:
        with open_registry(asked.settings) as registry:
            if not limits.until_end:
                _wait_for_a_broker(registry, limits.timeout)
            kafka = asked.registered_brokers(registry, silent=logging.WARNING)
    known = topics(kafka, timeout)
    selected = subscription.among(sorted(known), asked.config)
    if not selected:
        if limits.until_end or numbers:
            raise subscription.nothing_found()
        log.warning("%s: %s", subscription.matches_nothing, WAITING)
    partitions = [TopicPartition(topic, number) for topic in selected for number in numbers or known[topic]]
    for partition in partitions:
        if partition.partition not in known[partition.topic]:
            raise NotFoundError(
                f"topic {partition.topic} has no partition {partition.partition}",
                f"it has {len(known[partition.topic])}, counted from 0",
            )
    ends = asked.log_ends(kafka, partitions)
    return kafka, resolve_start(kafka, partitions, asked.start, timeout), ends


def _wait_for_a_broker(registry: Registry, timeout: float | None) -> None:
    """Wait until a broker is registered, or ``timeout`` seconds are over. Warns once where none is."""
    from zkgroup.protocol import znodes
    from zkgroup.protocol.operations import Children

    deadline = float("inf") if timeout is None else time.monotonic() + timeout
    warned = False
    while True:
        (listed,) = registry.read([Children(znodes.broker_ids())])
        if (isinstance(listed, tuple) and listed) or time.monotonic() >= deadline:
            return
        if not warned:
            warned = True
            log.warning("no broker is registered yet: waiting")
        time.sleep(min(BROKER_INTERVAL, max(0.0, deadline - time.monotonic())))


class _MissingTopics:
    """Topics that are read and do not exist any more. Reported when they are missing for the second time: a broker that
    has just started may not know all topics."""

    def __init__(self) -> None:
        self._times: dict[str, int] = {}

    def update(self, missing: Collection[str]) -> None:
        """These topics are missing now."""
        self._times = {topic: self._times.get(topic, 0) + 1 for topic in sorted(missing)}
        for topic, times in self._times.items():
            if times == 2:
                log.warning("topic %s is gone: if it is recreated, start anew to read it from its beginning", topic)


def _new_partitions(
    kafka: KafkaSettings, asked: Consumption, read: Collection[TopicPartition], missing_topics: _MissingTopics
) -> Mapping[TopicPartition, int]:
    """New partitions, each with its log start. One whose log start is not known yet is left for the next time."""
    from zkgroup.clients.kafka.client import topics
    from zkgroup.clients.kafka.log_offsets import LogRange, log_offsets
    from zkgroup.protocol.names import TopicPartition

    timeout = asked.settings.timeout
    known = topics(kafka, timeout)
    missing_topics.update({partition.topic for partition in read} - known.keys())
    selected = asked.subscription.still_among(known, asked.config)
    new = [one for topic in selected for number in known[topic] if (one := TopicPartition(topic, number)) not in read]
    found = log_offsets(kafka, new, timeout) if new else {}
    return {partition: log.start for partition, log in found.items() if isinstance(log, LogRange)}


class _Follower:
    """While open, reads new partitions as well, on a thread of its own. A group would hear of them by itself.

    ``find_new`` returns partitions that are not read yet, each with its first offset; ``read`` begins to read them. An
    error is logged once, and the next interval tries again.
    """

    def __init__(
        self,
        find_new: Callable[[], Mapping[TopicPartition, int]],
        read: Callable[[Mapping[TopicPartition, int]], None],
    ) -> None:
        self._find_new = find_new
        self._read = read
        self._over = threading.Event()
        self._ended = threading.Event()  # a join that a signal interrupts would take the thread for ended
        self._error = ""

    def __enter__(self) -> Self:
        # A daemon: a broker that does not answer must not keep the process from ending.
        threading.Thread(target=self._run, name="zkgroup-following", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._ended.wait(CLOSE_TIMEOUT)

    def _run(self) -> None:
        try:
            while not self._over.wait(FOLLOW_INTERVAL):
                self._once()
        finally:
            self._ended.set()

    def _once(self) -> None:
        try:
            new = self._find_new()
        except UnreachableError as error:
            log.debug("looking for new partitions: %s", error)  # the reader warns of it
        except ZkgroupError as error:
            if str(error) != self._error:
                self._error = str(error)
                log.warning("looking for new partitions: %s", error)
        else:
            if new and not self._over.is_set():
                log.info("new: %s", ", ".join(map(str, new)))
                self._read(new)
