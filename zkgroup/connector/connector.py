"""A member of a consumer group on real servers: the threads around ``zkgroup.protocol.member``.

One thread owns the state machine and takes events from a queue; kazoo's threads and the readers only put events there.
A second thread does what blocks: look-ups at the brokers, commits to Kafka, the user's rebalance listener.
"""

from __future__ import annotations

import logging
import queue
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeVar, cast

from zkgroup.config import ConsumerConfig, librdkafka_properties
from zkgroup.connector.brokers import Brokers
from zkgroup.connector.start import StartAt, resolve_start
from zkgroup.connector.stream import Stream, StreamStatistics
from zkgroup.errors import UnreachableError, UsageError, ZkgroupError
from zkgroup.protocol import events as ev
from zkgroup.protocol.assignors import compat_of
from zkgroup.protocol.filters import TopicFilter
from zkgroup.protocol.member import Counters, Member, MemberSettings, Phase
from zkgroup.protocol.names import ConsumerThreadId, TopicPartition, make_consumer_id, validate_topic
from zkgroup.protocol.ops import Op, Result, SessionEvent
from zkgroup.protocol.znodes import Registration
from zkgroup.servers.kafka import GroupOffsets, KafkaSettings
from zkgroup.servers.zookeeper import Session, ZooKeeperSettings

log = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")

#: How long the brokers may take to answer.
BROKER_TIMEOUT = 5.0


def boot_clock() -> float:
    """Seconds on a clock that never jumps and runs while the machine sleeps."""
    return time.clock_gettime(_CLOCK)


# Linux has a clock that includes sleep; macOS's monotonic one does as well.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class RebalanceListener(Protocol):
    """Told about rebalances, on a thread of its own; the rebalance waits until it returns."""

    def before_releasing(self, partitions: Mapping[TopicPartition, ConsumerThreadId]) -> None:
        """Our share is about to be given up. What was consumed is committed already (if auto-commit is on)."""

    def before_starting(self, assignment: Mapping[TopicPartition, ConsumerThreadId]) -> None:
        """The whole group's new assignment. Our share is claimed, and reading is about to begin."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """A look at a member: where it is, what it owns, what it has done."""

    consumer_id: str
    phase: str
    generation: int
    session_id: int
    owned: tuple[TopicPartition, ...]
    counters: Counters
    streams: tuple[StreamStatistics, ...]


@dataclass(slots=True)
class _StreamQuiet:
    """A stream's reader has nothing in hand any more."""

    generation: int
    index: int


class Connector:
    """A member of a consumer group, as the reference's ``ConsumerConnector``.

        with Connector(config, zookeeper) as connector:
            for stream in connector.streams({"orders": 2})["orders"]: ...

    One of ``streams``, ``streams_by_filter`` and ``merged_streams`` is called, once: it joins the group and returns
    when the member has its share, or raises what kept it from it. ``close()`` commits, releases and leaves.

    ``start``: where to begin in partitions without a stored offset, instead of ``auto.offset.reset``. ``kafka``: how to
    reach the brokers, instead of what they have registered in ZooKeeper.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        zookeeper: ZooKeeperSettings,
        *,
        listener: RebalanceListener | None = None,
        start: StartAt | None = None,
        kafka: KafkaSettings | None = None,
        host: str | None = None,
        clock: Callable[[], float] = boot_clock,
    ) -> None:
        if not config.group_id:
            raise UsageError("a consumer group needs a name", "set group.id")
        self.config = config
        self.consumer_id = make_consumer_id(
            config.group_id,
            consumer_id=config.consumer_id,
            host=host or socket.gethostname(),
            millis=int(time.time() * 1000),
            uuid_high64=uuid.uuid4().int >> 64,
        )
        self._zookeeper = zookeeper
        self._listener = listener
        self._start = start
        self._clock = clock
        self._member: Member | None = None
        self._streams: list[Stream[Any, Any]] = []
        self._stream_of: Callable[[TopicPartition, ConsumerThreadId], int] = lambda _, thread: thread.index
        self._session: Session | None = None
        self._brokers = Brokers(self._read, dict(config.kafka), kafka)
        self._offsets: GroupOffsets | None = None
        self._events: queue.SimpleQueue[ev.Event | _StreamQuiet] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._loop, name=f"zkgroup-{config.group_id}", daemon=True)
        self._helper = ThreadPoolExecutor(1, thread_name_prefix="zkgroup-helper")
        self._settled = threading.Event()  # has its first share, or has failed
        self._finished = threading.Event()
        self._error: Exception | None = None
        self._noisy: set[int] = set()  # streams that were told to be quiet and are not yet
        self._tokens = 0
        self._commits: dict[int, Future[None]] = {}
        self._lock = threading.Lock()

    # ------------------------------------------------------------ joining

    def streams(
        self,
        topics: Mapping[str, int],
        *,
        key_decoder: Callable[[bytes | None], K] = cast("Any", lambda data: data),
        value_decoder: Callable[[bytes | None], V] = cast("Any", lambda data: data),
    ) -> dict[str, list[Stream[K, V]]]:
        """Subscribe to topics, with so many streams each, and join the group."""
        for topic in topics:
            validate_topic(topic)
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
        """Subscribe to all topics that a white list matches or a black list does not, as they come and go."""
        made = self._make_streams(count, key_decoder, value_decoder, tell_ends=tell_ends)
        self._join(topic_filter.kind, {topic_filter.expression: count}, lambda _partition, thread: thread.index)
        return made

    def merged_streams(
        self, topics: Sequence[str], count: int = 1, *, tell_ends: bool = False
    ) -> list[Stream[bytes | None, bytes | None]]:
        """Subscribe to topics as ``streams({topic: count, …})`` does, but read the threads of equal number together:
        ``count`` streams in all."""
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
        if self._member is not None:
            raise UsageError("this connector has joined already", "make another one")
        if count < 1:
            raise UsageError("a member needs at least one stream", "ask for one or more")
        properties = {
            name.replace(".", "_"): value
            for name, value in librdkafka_properties(self.config).items()
            if name not in self.config.kafka
        }
        made = [
            Stream(
                self._brokers.settings,
                self._may_hand_out,
                lambda error: self._events.put(ev.StreamFailed(error)),
                sharers=count,
                reset=self.config.auto_offset_reset,
                key_decoder=key_decoder,
                value_decoder=value_decoder,
                properties=properties,
                tell_ends=tell_ends,
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
        settings = MemberSettings(
            group=config.group_id,
            consumer_id=self.consumer_id,
            registration=Registration(pattern, dict(subscription), int(time.time() * 1000)),
            strategy=config.partition_assignment_strategy,
            compat=compat_of(config.compat),
            exclude_internal=config.exclude_internal_topics,
            auto_commit=config.auto_commit_enable,
            auto_commit_interval=config.auto_commit_interval_ms / 1000,
            storage=config.offsets_storage,
            dual_commit=config.dual_commit_enabled,
            reset=config.auto_offset_reset or "largest",
            max_retries=config.rebalance_max_retries,
            backoff=config.rebalance_backoff_ms / 1000,
            keep_trying=config.keep_trying,
            session_timeout=self._zookeeper.session_timeout,
            connect_timeout=self._zookeeper.connect_timeout,
            quiet_timeout=config.quiesce_timeout_ms / 1000,
            commit_retries=config.offsets_commit_max_retries,
        )
        self._stream_of = stream_of
        self._member = Member(settings)
        self._thread.start()
        self._events.put(ev.Start())
        while not self._settled.wait(0.5):
            if not self._thread.is_alive():
                break
        if self._error is not None:
            self.close()

    # ------------------------------------------------------------ what users ask

    def commit(self, timeout: float = 10.0) -> None:
        """Commit what is consumed now, and wait for it.

        Raises CommitError where it was refused, SessionLostError after the member has left, UnreachableError after
        ``timeout`` seconds.
        """
        future: Future[None] = Future()
        with self._lock:
            self._tokens += 1
            token = self._tokens
            self._commits[token] = future
        if self._member is None or self._finished.is_set():
            self._committed(token, UsageError("this connector is not in the group", "join it first"))
        self._events.put(ev.CommitAsked(token))
        try:
            future.result(timeout)
        except TimeoutError:
            raise UnreachableError(f"offsets not committed within {timeout:g} s", "check ZooKeeper") from None

    def statistics(self) -> Statistics:
        """Where the member is, what it owns, what it has done."""
        member = self._member
        if member is None:
            return Statistics(self.consumer_id, Phase.NEW.value, 0, 0, (), Counters(), ())
        return Statistics(
            self.consumer_id,
            member.phase.value,
            member.generation,
            member.session_id,
            tuple(sorted(member.share)),
            member.counters,
            tuple(stream.statistics() for stream in self._streams),
        )

    @property
    def error(self) -> Exception | None:
        """What made the member leave, if it was not asked to."""
        return self._error

    def leave(self) -> None:
        """Begin to leave, without waiting: readers see the end of their streams. ``close()`` still has to follow."""
        self._events.put(ev.Leave())

    def close(self) -> None:
        """Commit what is consumed (with auto-commit), release the share, leave the group. Raises the error that made
        the member leave by itself, or that kept it from leaving cleanly."""
        if self._member is not None and self._thread.ident is not None:
            for stream in self._streams:
                stream.forsake()
            self._events.put(ev.Leave())
            self._thread.join(self._member.settings.leave_timeout + 5.0)
        for stream in self._streams:
            stream.end(self._error)
            stream.close()
        self._helper.shutdown(wait=True, cancel_futures=True)
        if self._offsets is not None:
            self._offsets.close()
            self._offsets = None
        if self._error is not None:
            raise self._error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except ZkgroupError as late:
            if error is None:
                raise
            if error is not late:
                log.warning("while leaving: %s", late)

    # ------------------------------------------------------------ the member's thread

    def _loop(self) -> None:
        member = self._member
        assert member is not None
        while not self._finished.is_set():
            pause = min(1.0, max(0.0, member.wake_at - self._clock()))
            try:
                event = self._events.get(timeout=pause)
            except queue.Empty:
                event = ev.Tick()
            if isinstance(event, _StreamQuiet):
                self._quieted(event)
                continue
            for action in member.handle(event, self._clock()):
                self._perform(action)
            if member.phase is Phase.OWNING:
                self._settled.set()
        if self._session is not None:
            self._session.close()

    def _perform(self, action: ev.Action) -> None:
        match action:
            case ev.OpenSession(epoch):
                self._open(epoch)
            case ev.CloseSession():
                if self._session is not None:
                    self._session.close()
                    self._session = None
            case ev.Send(request, _, ops):
                self._send(request, ops)
            case ev.Quiet(generation, abandon):
                self._noisy = set(range(len(self._streams)))
                for index, stream in enumerate(self._streams):
                    stream.quiet(lambda i=index: self._events.put(_StreamQuiet(generation, i)), abandon=abandon)  # type: ignore[misc]
            case ev.Grant(generation, share):
                self._grant(generation, share)
            case ev.Collect():
                assert self._member is not None
                self._events.put(ev.Collected(self._member.generation, self._consumed()))
            case ev.LookUp(request, partitions, reset):
                self._help(request, lambda: self._look_up(partitions, reset))
            case ev.FetchKafka(request, partitions):
                self._help(request, lambda: self._group_offsets().fetch(partitions, BROKER_TIMEOUT))
            case ev.CommitKafka(request, offsets):
                self._help(request, lambda: self._group_offsets().commit(offsets, BROKER_TIMEOUT))
            case ev.Notify(request, what, threads):
                self._notify(request, what, threads)
            case ev.Committed(token, error):
                self._committed(token, error)
            case ev.Log(level, text):
                log.log(level, "%s: %s", self.consumer_id, text)
            case ev.Finished(error):
                self._error = error
                for stream in self._streams:
                    stream.end(error)
                self._finished.set()
                self._settled.set()

    def _open(self, epoch: int) -> None:
        def hear(event: SessionEvent) -> None:
            self._events.put(ev.FromSession(epoch, event))

        self._session = Session(self._zookeeper, hear)
        self._session.start()

    def _send(self, request: int, ops: tuple[Op, ...]) -> None:
        assert self._session is not None
        sent_at = self._clock()
        self._session.submit(ops, lambda results: self._events.put(ev.Reply(request, results, sent_at)))

    def _grant(self, generation: int, share: Mapping[TopicPartition, tuple[ConsumerThreadId, int]]) -> None:
        shares: list[dict[TopicPartition, int]] = [{} for _ in self._streams]
        for partition, (thread, offset) in share.items():
            shares[self._stream_of(partition, thread)][partition] = offset
        for stream, part in zip(self._streams, shares, strict=True):
            stream.grant(generation, part)

    def _consumed(self) -> dict[TopicPartition, int]:
        consumed: dict[TopicPartition, int] = {}
        for stream in self._streams:
            consumed |= stream.consumed()
        return consumed

    def _quieted(self, event: _StreamQuiet) -> None:
        self._noisy.discard(event.index)
        if not self._noisy:
            self._events.put(ev.Quieted(event.generation, self._consumed()))

    def _may_hand_out(self) -> bool:
        return self._member is not None and self._member.talk.lease.holds(self._clock())

    def _committed(self, token: int, error: Exception | None) -> None:
        with self._lock:
            future = self._commits.pop(token, None)
        if future is None:
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    # ------------------------------------------------------------ what blocks

    def _read(self, ops: Sequence[Op]) -> list[Result]:
        """Read from ZooKeeper under the member's session, from another thread than the member's."""
        session = self._session
        if session is None:
            raise UnreachableError("no ZooKeeper session", "it is being opened again")
        box: queue.SimpleQueue[list[Result]] = queue.SimpleQueue()
        session.submit(ops, box.put)
        try:
            return box.get(timeout=BROKER_TIMEOUT)
        except queue.Empty:
            raise UnreachableError(f"ZooKeeper gave no answer within {BROKER_TIMEOUT:g} s", "check it") from None

    def _help(
        self,
        request: int,
        work: Callable[[], Mapping[TopicPartition, int | None] | Mapping[TopicPartition, int] | None],
    ) -> None:
        def run() -> None:
            try:
                self._events.put(ev.Answered(request, dict(work() or {})))
            except ZkgroupError as error:
                self._events.put(ev.Answered(request, {}, error))

        self._helper.submit(run)

    def _notify(
        self,
        request: int,
        what: Literal["before_releasing", "before_starting"],
        partitions: Mapping[TopicPartition, ConsumerThreadId],
    ) -> None:
        listener = self._listener
        if listener is None:
            self._events.put(ev.Answered(request, {}))
            return

        def run() -> None:
            try:
                getattr(listener, what)(partitions)
            except Exception:
                # As in the reference, a listener's own failure does not keep the member from its group.
                log.exception("the rebalance listener failed in %s", what)
            self._events.put(ev.Answered(request, {}))

        self._helper.submit(run)

    def _group_offsets(self) -> GroupOffsets:
        if self._offsets is None:
            self._offsets = GroupOffsets(self._brokers.settings(), self.config.group_id)
        return self._offsets

    def _look_up(
        self, partitions: Sequence[TopicPartition], reset: Literal["smallest", "largest"]
    ) -> dict[TopicPartition, int | None]:
        start = self._start or StartAt("earliest" if reset == "smallest" else "latest")
        return dict(resolve_start(self._brokers.settings(), partitions, start, BROKER_TIMEOUT))
