"""A member of a consumer group as a program uses it, and the thread that carries out its membership, whatever keeps the
group.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Self, TypeAlias

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.start_position import StartAt
from zkgroup.config import ConsumerConfig
from zkgroup.connector.stream import Feed, Stream, StreamStatistics
from zkgroup.errors import SessionLostError, UnreachableError, UsageError, ZkgroupError
from zkgroup.protocol.member import Counters
from zkgroup.protocol.names import TopicPartition, validate_group_id, validate_topic
from zkgroup.protocol.topic_filter import TopicFilter

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Statistics:
    """The state of a member at one moment.

    ``consumer_id`` is its id in the group: in Kafka the coordinator chooses it, and it is "" until then. ``session_id``
    is the ZooKeeper session's, 0 in Kafka. ``phase`` is "owning" while the member reads its share. ``held_back``: owned
    partitions that cannot be read now, each with the reason, such as a missing leader or a malformed offset node.
    """

    consumer_id: str
    phase: str = "new"
    generation: int = 0
    session_id: int = 0
    owned: tuple[TopicPartition, ...] = ()
    counters: Counters = field(default_factory=Counters)
    streams: tuple[StreamStatistics, ...] = ()
    held_back: Mapping[TopicPartition, str] = field(default_factory=dict)


class MemberDriver(ABC):
    """A membership on a thread of its own, from ``start`` until ``join``.

    ``ready`` is set when the member has its first share, which may be empty, or has failed. ``error`` is the reason
    why it left without being asked.
    """

    #: Where the group's coordinator is, for messages.
    coordinator: str

    def __init__(self, group: str, feeds: Sequence[Feed]) -> None:
        self.group = group
        self.ready = threading.Event()
        self.error: Exception | None = None
        self._feeds = feeds
        self._thread = threading.Thread(target=self._run, name=f"zkgroup-{group}", daemon=True)
        # Not Thread.join: one that a signal interrupts takes the thread for ended from then on (Python 3.11).
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._has_left = False
        self._tokens = 0
        self._commits: dict[int, Future[None]] = {}

    # ------------------------------------------------------------ from other threads

    def start(self) -> None:
        self._thread.start()

    @property
    def is_in_callback(self) -> bool:
        """Whether the calling thread is inside a callback that the member waits for."""
        return threading.current_thread() is self._thread

    def request_commit(self) -> Future[None]:
        """Commit what is consumed now; the future has the outcome."""
        future: Future[None] = Future()
        with self._lock:
            if self._has_left:
                future.set_exception(self._why_it_left())
                return future
            self._tokens += 1
            token = self._tokens
            self._commits[token] = future
        self._begin_commit(token)
        return future

    def can_deliver(self) -> bool:
        """Whether messages may be delivered now. Kafka's coordinator fences members by itself."""
        return True

    @abstractmethod
    def statistics(self) -> Statistics:
        """The state of the member, without that of its streams."""

    @abstractmethod
    def leave(self, *, at_once: bool = False, commit: bool = True) -> None:
        """Begin to leave; do not wait. It takes no lock, so that a signal's handler may call it."""

    @abstractmethod
    def fail(self, error: Exception) -> None:
        """Leave, as a stream cannot go on."""

    @abstractmethod
    def join(self) -> None:
        """Wait until the member has left, as long as that may take at most."""

    @abstractmethod
    def _begin_commit(self, token: int) -> None:
        """Let the member commit; ``_end_commit`` follows with the same token."""

    # ------------------------------------------------------------ the member's thread

    def _run(self) -> None:
        try:
            self._serve()
        except Exception as error:
            if not isinstance(error, ZkgroupError):
                # A defect: no caller may wait for this member any longer.
                log.exception("the member of group %s has failed", self.group)
            self.error = self.error or error
        try:
            self._end_streams()
            self._disconnect()
        finally:
            with self._lock:
                self._has_left = True
                waiting, self._commits = list(self._commits.values()), {}
            for future in waiting:
                future.set_exception(self._why_it_left())
            self._ended.set()

    @abstractmethod
    def _serve(self) -> None:
        """Join, be a member, leave. Raises what made the member leave."""

    @abstractmethod
    def _disconnect(self) -> None:
        """Free what the membership has opened."""

    def _end_streams(self) -> None:
        for feed in self._feeds:
            feed.end(self.error)
        self.ready.set()

    def _consumed(self) -> dict[TopicPartition, int]:
        consumed: dict[TopicPartition, int] = {}
        for feed in self._feeds:
            consumed |= feed.consumed()
        return consumed

    def _end_commit(self, token: int, error: Exception | None) -> None:
        with self._lock:
            future = self._commits.pop(token, None)
        if future is not None and error is None:
            future.set_result(None)
        elif future is not None:
            future.set_exception(error)

    def _why_it_left(self) -> Exception:
        return self.error or SessionLostError("the member has left the group")


#: Topics with their number of streams, or a filter.
Topics: TypeAlias = Mapping[str, int] | TopicFilter
#: The streams, by number, that divide the member's partitions of a topic among them.
StreamsOf: TypeAlias = Callable[[str], range]


class ConsumerConnector(ABC):
    """The base of ``Connector`` and ``KafkaConnector``.

    One of ``streams``, ``streams_by_filter`` and ``merged_streams`` is called, once: it joins the group and returns
    when the member has its share, or raises the error that kept it from it. ``close()`` commits, releases and leaves,
    as the end of a ``with`` block does; its error never hides the one that ended the block.
    """

    consumer_id = ""  # where the coordinator chooses it

    def __init__(
        self, config: ConsumerConfig, start: StartAt | None, kafka_settings: Callable[[], KafkaSettings]
    ) -> None:
        if not config.group_id:
            raise UsageError("a consumer group needs a name", "set group.id")
        validate_group_id(config.group_id)
        self.config = config
        self._start = start
        self._kafka_settings = kafka_settings
        self._streams: list[Stream] = []
        self._driver: MemberDriver | None = None
        self._leave_request: dict[str, bool] | None = None
        self._closed = False  # before it has joined

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

    @abstractmethod
    def _make_driver(self, topics: Topics, count: int, streams_of: StreamsOf, feeds: Sequence[Feed]) -> MemberDriver:
        """The membership. ``count``: the streams of a filter."""

    # ------------------------------------------------------------ joining

    def streams(self, topics: Mapping[str, int], *, native: bool = False) -> dict[str, list[Stream]]:
        """Subscribe to topics, each with a number of streams, and join the group. ``native``: batches come from the
        native reader, where it is to be had."""
        if not topics:
            raise UsageError("no topics are named", 'give streams({"orders": 1})')
        ranges: dict[str, range] = {}
        total = 0
        for topic, count in topics.items():
            validate_topic(topic)
            if count < 1:
                raise UsageError(f"{count} streams of topic {topic}", "ask for one or more, or leave the topic out")
            ranges[topic] = range(total, total + count)
            total += count
        made = self._join(topics, total, ranges.__getitem__, native=native)
        return {topic: made[numbers.start : numbers.stop] for topic, numbers in ranges.items()}

    def streams_by_filter(
        self, topic_filter: TopicFilter, count: int = 1, *, report_ends: bool = False, native: bool = False
    ) -> list[Stream]:
        """Subscribe to all topics that a filter selects, as they are created and deleted, and join the group.

        ``streams_by_filter(TopicFilter("white_list", "metrics-.*"), 2)``: two streams, each with messages of all of
        these topics. ``native`` as for ``streams``.
        """
        return self._join(topic_filter, count, lambda topic: range(count), report_ends=report_ends, native=native)

    def merged_streams(
        self, topics: Sequence[str], count: int = 1, *, report_ends: bool = False, native: bool = False
    ) -> list[Stream]:
        """Subscribe as ``streams({topic: count, …})`` does, with ``count`` streams in all: each has messages of all
        topics. ``native`` as for ``streams``."""
        if isinstance(topics, str) or not topics:
            raise UsageError(f"{topics!r} are no topics", 'give merged_streams(["orders"])')
        for topic in topics:
            validate_topic(topic)
        wanted = dict.fromkeys(topics, count)
        return self._join(wanted, count, lambda topic: range(count), report_ends=report_ends, native=native)

    def _join(self, topics: Topics, count: int, streams_of: StreamsOf, **options: bool) -> list[Stream]:
        """Make ``count`` streams, join, and wait for the share. ``options``: of ``Stream``."""
        if self._driver is not None or self._closed:
            state = "is closed" if self._closed else "has joined already"
            raise UsageError(f"this connector {state}", "make another one")
        if count < 1:
            raise UsageError(f"{count} streams: a member needs at least one stream", "ask for one or more")
        made = [
            Stream(
                self.config,
                self._kafka_settings,
                can_deliver=lambda: self._driver is not None and self._driver.can_deliver(),
                on_failure=lambda error: None if self._driver is None else self._driver.fail(error),
                sharers=count,
                **options,
            )
            for _ in range(count)
        ]
        self._streams = list(made)
        self._driver = driver = self._make_driver(topics, count, streams_of, [Feed(stream) for stream in made])
        driver.start()
        if self._leave_request is not None:  # by a signal, before there was a driver
            driver.leave(**self._leave_request)
        while not driver.ready.wait(0.5):
            pass  # in slices, so that signals get through
        if driver.error is not None:
            self.close()
        return made

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
            return Statistics(self.consumer_id)
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
        if driver.is_in_callback:
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
