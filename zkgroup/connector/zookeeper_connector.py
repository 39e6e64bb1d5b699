"""A member of a consumer group on real servers, as its users see it."""

from __future__ import annotations

import dataclasses
import socket
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, cast

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registered_brokers import Brokers
from zkgroup.config import ConsumerConfig, librdkafka_properties
from zkgroup.connector.context_manager import Closing
from zkgroup.connector.member_driver import Driver, RebalanceListener, boot_clock
from zkgroup.connector.member_setup import member_settings, zookeeper_settings
from zkgroup.connector.start_position import StartAt
from zkgroup.connector.stream import Feed, Stream, StreamStatistics
from zkgroup.errors import UnreachableError, UsageError
from zkgroup.protocol import events as ev
from zkgroup.protocol.assignors import compat_of
from zkgroup.protocol.member import Counters, Phase
from zkgroup.protocol.names import (
    ConsumerThreadId,
    TopicPartition,
    make_consumer_id,
    validate_group_id,
    validate_topic,
)
from zkgroup.protocol.operations import Op, Result
from zkgroup.protocol.topic_filter import TopicFilter
from zkgroup.protocol.znodes import Registration

__all__ = ["Connector", "RebalanceListener", "Statistics", "boot_clock"]

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Statistics:
    """A look at a member: where it is, what it owns, what it has done.

    ``held`` is what it owns and cannot read now, and why: a partition without a leader, or with a spoilt offset node.
    """

    consumer_id: str
    phase: str
    generation: int
    session_id: int
    owned: tuple[TopicPartition, ...]
    counters: Counters
    streams: tuple[StreamStatistics, ...]
    held: Mapping[TopicPartition, str] = field(default_factory=dict)


class Connector(Closing):
    """A member of a consumer group, as the reference's ``ConsumerConnector``.

        with Connector(config, zookeeper) as connector:
            for stream in connector.streams({"orders": 2})["orders"]: ...

    One of ``streams``, ``streams_by_filter`` and ``merged_streams`` is called, once: it joins the group and returns
    when the member has its share, or raises what kept it from it. ``close()`` commits, releases and leaves.

    ``zookeeper``: where ZooKeeper is, if ``config.zookeeper_connect`` does not say it. What both say must be the same;
    time-outs that it leaves at their defaults are the configuration's. UsageError otherwise.
    ``start``: where to begin in partitions without a stored offset, instead of ``auto.offset.reset``. ``kafka``: how to
    reach the brokers, instead of what they have registered in ZooKeeper.
    """

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
        if not isinstance(config, ConsumerConfig):
            raise UsageError(f"{config!r} is no ConsumerConfig", 'give ConsumerConfig(group_id="…")')
        if start is not None and not isinstance(start, StartAt):
            raise UsageError(f"start={start!r} is no StartAt", f"give parse_start({str(start)!r})")
        if not config.group_id:
            raise UsageError("a consumer group needs a name", "set group.id")
        validate_group_id(config.group_id)
        compat_of(config.compat)
        self.config = config
        self.consumer_id = make_consumer_id(
            config.group_id,
            consumer_id=config.consumer_id,
            host=host or socket.gethostname(),
            millis=int(time.time() * 1000),
            uuid_high64=uuid.uuid4().int >> 64,
        )
        self._zookeeper = zookeeper_settings(config, zookeeper)
        self._listener = listener
        self._start = start
        self._clock = clock
        self._streams: list[Stream[Any, Any]] = []
        self._brokers = Brokers(self._read, config.kafka, kafka, listener=config.listener)
        self._driver: Driver | None = None
        self._closed = False  # before it has joined

    # ------------------------------------------------------------ joining

    def streams(
        self,
        topics: Mapping[str, int],
        *,
        key_decoder: Callable[[bytes | None], K] = cast("Any", lambda data: data),
        value_decoder: Callable[[bytes | None], V] = cast("Any", lambda data: data),
    ) -> dict[str, list[Stream[K, V]]]:
        """Subscribe to topics, with so many streams each, and join the group."""
        if not isinstance(topics, Mapping) or not topics:
            raise UsageError(f"{topics!r} are no topics with their streams", 'give streams({"orders": 1})')
        for topic, count in topics.items():
            validate_topic(topic)
            if type(count) is not int or count < 1:
                raise UsageError(f"{count!r} streams of topic {topic}", "ask for one or more, or leave the topic out")
        starts: dict[str, int] = {}
        total = 0
        for topic, count in topics.items():
            starts[topic] = total
            total += count
        made = self._make_streams(total, key_decoder, value_decoder, tell_ends=False)
        self._join("static", topics, lambda partition, thread: starts[partition.topic] + thread.index)
        return {topic: made[starts[topic] : starts[topic] + count] for topic, count in topics.items()}

    def streams_by_filter(
        self,
        topic_filter: TopicFilter,
        count: int = 1,
        *,
        key_decoder: Callable[[bytes | None], K] = cast("Any", lambda data: data),
        value_decoder: Callable[[bytes | None], V] = cast("Any", lambda data: data),
        tell_ends: bool = False,
    ) -> list[Stream[K, V]]:
        """Subscribe to all topics that a white list matches or a black list does not, as they come and go.

        ``streams_by_filter(TopicFilter("white_list", "metrics-.*"), 2)``: two streams, each with messages of all of
        them. Raises UsageError where the expression is no Java regular expression.
        """
        if not isinstance(topic_filter, TopicFilter):
            raise UsageError(
                f"{topic_filter!r} is no TopicFilter", f'give TopicFilter("white_list", {str(topic_filter)!r})'
            )
        made = self._make_streams(count, key_decoder, value_decoder, tell_ends=tell_ends)
        self._join(topic_filter.kind, {topic_filter.expression: count}, lambda _partition, thread: thread.index)
        return made

    def merged_streams(
        self, topics: Sequence[str], count: int = 1, *, tell_ends: bool = False
    ) -> list[Stream[bytes | None, bytes | None]]:
        """Subscribe to topics as ``streams({topic: count, …})`` does, but read the threads of equal number together:
        ``count`` streams in all."""
        if isinstance(topics, str) or not isinstance(topics, Sequence) or not topics:
            raise UsageError(f"{topics!r} are no topics", 'give merged_streams(["orders"])')
        for topic in topics:
            validate_topic(topic)
        made: list[Stream[bytes | None, bytes | None]] = self._make_streams(
            count, lambda data: data, lambda data: data, tell_ends=tell_ends
        )
        self._join("static", dict.fromkeys(topics, count), lambda _partition, thread: thread.index)
        return made

    def _make_streams(
        self,
        count: int,
        key_decoder: Callable[[bytes | None], K],
        value_decoder: Callable[[bytes | None], V],
        *,
        tell_ends: bool,
    ) -> list[Stream[K, V]]:
        if self._driver is not None or self._closed:
            state = "is closed" if self._closed else "has joined already"
            raise UsageError(f"this connector {state}", "make another one")
        if type(count) is not int or count < 1:
            raise UsageError(f"{count!r} streams: a member needs at least one stream", "ask for one or more")
        properties = {
            name.replace(".", "_"): value
            for name, value in librdkafka_properties(self.config).items()
            if name not in self.config.kafka
        }
        made = [
            Stream(
                self._brokers.settings,
                self._may_hand_out,
                lambda error: self._post(ev.StreamFailed(error)),
                sharers=count,
                reset=self.config.auto_offset_reset,
                key_decoder=key_decoder,
                value_decoder=value_decoder,
                properties=properties,
                tell_ends=tell_ends,
                timeout=None if self.config.consumer_timeout_ms < 0 else self.config.consumer_timeout_ms / 1000,
            )
            for _ in range(count)
        ]
        self._streams = list(made)
        return made

    def _join(
        self,
        pattern: Literal["static", "white_list", "black_list"],
        subscription: Mapping[str, int],
        stream_of: Callable[[TopicPartition, ConsumerThreadId], int],
    ) -> None:
        config = self.config
        registration = Registration(pattern, dict(subscription), int(time.time() * 1000))
        settings = member_settings(config, self.consumer_id, registration, self._zookeeper)
        driver = self._driver = Driver(
            settings,
            self._zookeeper,
            feeds=[Feed(stream) for stream in self._streams],
            stream_of=stream_of,
            brokers=self._brokers,
            start_at=self._start,
            listener=self._listener,
            clock=self._clock,
            offsets_properties=librdkafka_properties(config, "offsets"),
        )
        driver.start()
        while not driver.settled.wait(0.5):
            pass  # in slices, so that signals get through
        if driver.error is not None:
            self.close()

    # ------------------------------------------------------------ for the threads

    def _post(self, event: ev.Event) -> None:
        if self._driver is not None:
            self._driver.post(event)

    def _may_hand_out(self) -> bool:
        return self._driver is not None and self._driver.may_hand_out()

    def _read(self, ops: Sequence[Op]) -> list[Result]:
        assert self._driver is not None
        return self._driver.read(ops)

    # ------------------------------------------------------------ what users ask

    def commit(self, timeout: float = 10.0) -> None:
        """Commit what is consumed now, and wait for it. May be called by any thread, in a rebalance listener, too
        (``RebalanceListener`` tells what is committed there).

        Raises CommitError where it was refused, SessionLostError where the session ended before, or the member has
        left; UnreachableError after ``timeout`` seconds.
        """
        if self._driver is None:
            raise UsageError("this connector is not in the group", "join it first")
        try:
            self._driver.ask_commit().result(timeout)
        except TimeoutError:
            raise UnreachableError(f"offsets not committed within {timeout:g} s", "check ZooKeeper") from None

    def statistics(self) -> Statistics:
        """Where the member is, what it owns, what it has done."""
        if self._driver is None:
            return Statistics(self.consumer_id, Phase.NEW.value, 0, 0, (), Counters(), ())
        member = self._driver.member
        return Statistics(
            self.consumer_id,
            member.phase.value,
            member.generation,
            member.session_id,
            tuple(sorted(member.share)),
            dataclasses.replace(member.counters),
            tuple(stream.statistics() for stream in self._streams),
            dict(member.held),
        )

    @property
    def error(self) -> Exception | None:
        """What made the member leave, if it was not asked to."""
        return self._driver.error if self._driver is not None else None

    def leave(self, *, at_once: bool = False, commit: bool = True) -> None:
        """Begin to leave, without waiting: readers see the end of their streams. ``close()`` still has to follow.
        Without ``commit`` what was consumed since the last commit is left to be read again. ``at_once``: nor are
        readers waited for; ``close()`` raises SessionLostError then."""
        self._post(ev.Leave(at_once, commit))

    def close(self) -> None:
        """Commit what is consumed (with auto-commit), release the share, leave the group. Raises the error that made
        the member leave by itself, or that kept it from leaving cleanly; UsageError inside a rebalance listener, which
        leaving waits for."""
        driver = self._driver
        if driver is None:
            self._closed = True
            return
        if driver.in_listener:
            raise UsageError(
                "close() inside a rebalance listener would wait for itself", "call leave() there, and close() outside"
            )
        for stream in self._streams:
            stream.forsake()
        driver.post(ev.Leave())
        driver.join(driver.member.settings.leave_timeout + 5.0)
        for stream in self._streams:
            feed = Feed(stream)
            feed.end(driver.error)
            feed.close()
        if driver.error is not None:
            raise driver.error
