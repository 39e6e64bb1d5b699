"""A member of a consumer group as a program uses it, whatever keeps the group."""

from __future__ import annotations

import dataclasses
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeAlias, TypeVar, cast

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.start_position import StartAt
from zkgroup.config import ConsumerConfig
from zkgroup.connector.member_driver import MemberDriver, Statistics
from zkgroup.connector.stream import Feed, Stream, make_streams
from zkgroup.errors import UnreachableError, UsageError, ZkgroupError
from zkgroup.protocol.names import validate_group_id, validate_topic
from zkgroup.protocol.topic_filter import TopicFilter

log = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")

#: Topics with their number of streams, or a filter.
Topics: TypeAlias = Mapping[str, int] | TopicFilter
#: The streams, by number, that divide the member's partitions of a topic among them.
StreamsOf: TypeAlias = Callable[[str], range]


class Closing(ABC):
    """Closed at the end of its block. An error of ``close`` never hides the one that ended the block."""

    @abstractmethod
    def close(self) -> None:
        """Leave. Raises ``ZkgroupError``."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            self.close()
        except ZkgroupError as late:
            if error is None:
                raise
            if error is not late:
                log.warning("while leaving: %s", late)


class ConsumerConnector(Closing):
    """The base of ``Connector`` and ``KafkaConnector``.

    One of ``streams``, ``streams_by_filter`` and ``merged_streams`` is called, once: it joins the group and returns
    when the member has its share, or raises the error that kept it from it. ``close()`` commits, releases and leaves.
    """

    def __init__(self, config: ConsumerConfig, start: StartAt | None) -> None:
        if not isinstance(config, ConsumerConfig):
            raise UsageError(f"{config!r} is no ConsumerConfig", 'give ConsumerConfig(group_id="…")')
        if start is not None and not isinstance(start, StartAt):
            raise UsageError(f"start={start!r} is no StartAt", f"give parse_start({str(start)!r})")
        if not config.group_id:
            raise UsageError("a consumer group needs a name", "set group.id")
        validate_group_id(config.group_id)
        self.config = config
        self._start = start
        self._streams: list[Stream[Any, Any]] = []
        self._driver: MemberDriver | None = None
        self._leave_request: dict[str, bool] | None = None
        self._closed = False  # before it has joined

    @abstractmethod
    def _make_driver(self, topics: Topics, count: int, streams_of: StreamsOf, feeds: Sequence[Feed]) -> MemberDriver:
        """The membership. ``count``: the streams of a filter."""

    @abstractmethod
    def _kafka_settings(self) -> KafkaSettings:
        """How to reach the brokers now."""

    def _unjoined_statistics(self) -> Statistics:
        return Statistics("")

    # ------------------------------------------------------------ joining

    def streams(
        self,
        topics: Mapping[str, int],
        *,
        key_decoder: Callable[[bytes | None], K] = cast("Any", lambda data: data),
        value_decoder: Callable[[bytes | None], V] = cast("Any", lambda data: data),
        native: bool = False,
    ) -> dict[str, list[Stream[K, V]]]:
        """Subscribe to topics, each with a number of streams, and join the group. ``native``: batches come from the
        native reader, where it is to be had."""
        if not isinstance(topics, Mapping) or not topics:
            raise UsageError(f"{topics!r} are no topics with their streams", 'give streams({"orders": 1})')
        ranges: dict[str, range] = {}
        total = 0
        for topic, count in topics.items():
            validate_topic(topic)
            if type(count) is not int or count < 1:
                raise UsageError(f"{count!r} streams of topic {topic}", "ask for one or more, or leave the topic out")
            ranges[topic] = range(total, total + count)
            total += count
        made = self._make_streams(total, key_decoder, value_decoder, native=native)
        self._join(topics, total, ranges.__getitem__)
        return {topic: made[numbers.start : numbers.stop] for topic, numbers in ranges.items()}

    def streams_by_filter(
        self,
        topic_filter: TopicFilter,
        count: int = 1,
        *,
        key_decoder: Callable[[bytes | None], K] = cast("Any", lambda data: data),
        value_decoder: Callable[[bytes | None], V] = cast("Any", lambda data: data),
        report_ends: bool = False,
        native: bool = False,
    ) -> list[Stream[K, V]]:
        """Subscribe to all topics that a filter selects, as they are created and deleted, and join the group.

        ``streams_by_filter(TopicFilter("white_list", "metrics-.*"), 2)``: two streams, each with messages of all of
        these topics. ``native`` as for ``streams``.
        """
        if not isinstance(topic_filter, TopicFilter):
            raise UsageError(
                f"{topic_filter!r} is no TopicFilter", f'give TopicFilter("white_list", {str(topic_filter)!r})'
            )
        made = self._make_streams(count, key_decoder, value_decoder, report_ends=report_ends, native=native)
        self._join(topic_filter, count, lambda topic: range(count))
        return made

    def merged_streams(
        self, topics: Sequence[str], count: int = 1, *, report_ends: bool = False, native: bool = False
    ) -> list[Stream[bytes | None, bytes | None]]:
        """Subscribe as ``streams({topic: count, …})`` does, with ``count`` streams in all: each has messages of all
        topics. ``native`` as for ``streams``."""
        if isinstance(topics, str) or not isinstance(topics, Sequence) or not topics:
            raise UsageError(f"{topics!r} are no topics", 'give merged_streams(["orders"])')
        for topic in topics:
            validate_topic(topic)
        made: list[Stream[bytes | None, bytes | None]] = self._make_streams(
            count, lambda data: data, lambda data: data, report_ends=report_ends, native=native
        )
        self._join(dict.fromkeys(topics, count), count, lambda topic: range(count))
        return made

    def _make_streams(
        self,
        count: int,
        key_decoder: Callable[[bytes | None], K],
        value_decoder: Callable[[bytes | None], V],
        *,
        report_ends: bool = False,
        native: bool = False,
    ) -> list[Stream[K, V]]:
        if self._driver is not None or self._closed:
            state = "is closed" if self._closed else "has joined already"
            raise UsageError(f"this connector {state}", "make another one")
        if type(count) is not int or count < 1:
            raise UsageError(f"{count!r} streams: a member needs at least one stream", "ask for one or more")
        made = make_streams(
            self.config,
            count,
            self._kafka_settings,
            may_deliver=lambda: self._driver is not None and self._driver.may_deliver(),
            on_failure=self._on_stream_failure,
            key_decoder=key_decoder,
            value_decoder=value_decoder,
            report_ends=report_ends,
            native=native,
        )
        self._streams = list(made)
        return made

    def _on_stream_failure(self, error: Exception) -> None:
        if self._driver is not None:
            self._driver.fail(error)

    def _join(self, topics: Topics, count: int, streams_of: StreamsOf) -> None:
        driver = self._make_driver(topics, count, streams_of, [Feed(stream) for stream in self._streams])
        self._driver = driver
        driver.start()
        if self._leave_request is not None:  # by a signal, before there was a driver
            driver.leave(**self._leave_request)
        while not driver.ready.wait(0.5):
            pass  # in slices, so that signals get through
        if driver.error is not None:
            self.close()

    # ------------------------------------------------------------ the membership

    def commit(self, timeout: float = 10.0) -> None:
        """Commit what is consumed now, and wait for it. Any thread may call it, and so may a rebalance listener.

        Raises CommitError where the commit was refused, SessionLostError where the session has ended before or the
        member has left, UnreachableError after ``timeout`` seconds.
        """
        if self._driver is None:
            raise UsageError("this connector is not in the group", "join it first")
        try:
            self._driver.request_commit().result(timeout)
        except TimeoutError:
            raise UnreachableError(
                f"offsets not committed within {timeout:g} s", f"check {self._driver.coordinator}"
            ) from None

    def statistics(self) -> Statistics:
        """The state of the member: its phase, its share, its counters."""
        if self._driver is None:
            return self._unjoined_statistics()
        streams = tuple(stream.statistics() for stream in self._streams)
        return dataclasses.replace(self._driver.statistics(), streams=streams)

    @property
    def error(self) -> Exception | None:
        """The reason why the member left without being asked."""
        return self._driver.error if self._driver is not None else None

    def leave(self, *, at_once: bool = False, commit: bool = True) -> None:
        """Begin to leave, without waiting: streams end. ``close()`` still has to follow.

        Without ``commit`` what was consumed since the last commit is read again. With ``at_once`` the member does not
        wait for readers either, and ``close()`` may raise SessionLostError.
        """
        self._leave_request = {"at_once": at_once, "commit": commit}
        if self._driver is not None:
            self._driver.leave(at_once=at_once, commit=commit)

    def close(self) -> None:
        """Commit what is consumed (with auto-commit), release the share, leave the group.

        Raises the error that made the member leave without being asked, or that kept it from leaving cleanly;
        UsageError inside a callback that the member waits for.
        """
        driver = self._driver
        if driver is None:
            self._closed = True
            return
        if driver.in_callback:
            raise UsageError(
                "close() inside a rebalance listener would wait for itself", "call leave() there, and close() outside"
            )
        for stream in self._streams:
            stream.release()
        driver.leave()
        driver.join()
        for stream in self._streams:
            feed = Feed(stream)
            feed.end(driver.error)
            feed.close()
        if driver.error is not None:
            raise driver.error
