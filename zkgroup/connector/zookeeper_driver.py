"""The threads around the state machine of a member in ZooKeeper: the machine decides, the driver carries out.

One thread owns the machine and takes events from a queue. kazoo's threads, the streams' readers and the workers only
put events there.
"""

from __future__ import annotations

import dataclasses
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from zkgroup.clients.kafka.group_consumers import GroupOffsets
from zkgroup.clients.kafka.registered_brokers import Brokers
from zkgroup.clients.kafka.start_position import StartAt, resolve_created
from zkgroup.clients.zookeeper import ConnectionFailure, FailureCause, Session, ZooKeeperSettings
from zkgroup.config.settings_table import Reset
from zkgroup.connector.consumer_connector import MemberDriver, Statistics
from zkgroup.connector.stream import Feed
from zkgroup.connector.stream_reader import BROKER_TIMEOUT
from zkgroup.errors import OffsetOutOfRangeError, UnreachableError, ZkgroupError
from zkgroup.protocol import events as ev
from zkgroup.protocol.member import Member, MemberSettings, Phase
from zkgroup.protocol.names import ConsumerThreadId, TopicPartition
from zkgroup.protocol.offset_versions import CommitError
from zkgroup.protocol.operations import Code, Failure, Op, Result, SessionEvent, writes

log = logging.getLogger(__name__)

#: How long sessions may take to close, in seconds, all together.
CLOSE_TIMEOUT: Final = 3.0

_Partitions = Mapping[TopicPartition, ConsumerThreadId]


def boot_clock() -> float:
    """Seconds on a clock that never jumps and runs while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Worker:
    """A thread for calls that block; it makes one after the other. As a daemon it may wait for a listener that never
    returns."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._closed = False
        # Not Thread.join: one that a signal interrupts takes the thread for ended from then on (Python 3.11).
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def submit(self, call: Callable[[], None]) -> None:
        """Make this call after those that were submitted before. It must raise nothing."""
        if self._thread.ident is None:
            self._thread.start()
        self._calls.put(call)

    def close(self, timeout: float) -> bool:
        """Drop the calls that have not begun, and wait for the one that has. False after ``timeout`` seconds."""
        self._closed = True
        if self._thread.ident is None:
            return True
        self._calls.put(None)
        return self._ended.wait(timeout)

    def _run(self) -> None:
        try:
            while (call := self._calls.get()) is not None:
                if not self._closed:
                    call()
        finally:
            self._ended.set()


class RebalanceListener(Protocol):
    """Called during rebalances of a group in ZooKeeper, on a thread of its own.

    The rebalance waits until the listener returns. Other members fail after some 8 s of waiting for this share.
    ``Connector.commit()`` may be called in both methods. ``Connector.close()`` would wait for itself and raises
    UsageError; ``leave()`` does not wait. An exception of the listener is logged with its traceback
    (``zkgroup.connector``) and the rebalance goes on, as with the Scala consumer.
    """

    def before_releasing(self, partitions: Mapping[TopicPartition, ConsumerThreadId]) -> None:
        """The member is about to release its share, and owns it until this returns.

        No further message of it is delivered. As with the Scala consumer, every attempt to rebalance begins so, the
        first one with an empty share. With auto-commit the consumed offsets are committed already. Without it this is
        the place for ``commit()``, which commits what was consumed of this share; what is not committed here is read
        again. ``commit()`` raises SessionLostError where the session has ended meanwhile.
        """

    def before_starting(self, assignment: Mapping[TopicPartition, ConsumerThreadId]) -> None:
        """The assignment of the whole group. The member owns its share and is about to read it.

        Nothing of the share is consumed yet: ``commit()`` returns at once.
        """


@dataclass(frozen=True, slots=True)
class _StreamPaused:
    """A stream is paused: its reader has no batch in hand."""

    generation: int
    index: int


class ZooKeeperDriver(MemberDriver):
    """Carries out the actions of a ``Member``, and gives it its events."""

    coordinator = "ZooKeeper"

    def __init__(
        self,
        settings: MemberSettings,
        zookeeper: ZooKeeperSettings,
        *,
        feeds: Sequence[Feed],
        streams_of: Callable[[str], range],
        brokers: Brokers,
        start_at: StartAt | None,
        listener: RebalanceListener | None,
        clock: Callable[[], float],
        offsets_properties: Mapping[str, str],
    ) -> None:
        super().__init__(settings.group, feeds)
        self.member = Member(settings)
        self._finished = False
        self._zookeeper = zookeeper
        self._streams_of = streams_of
        self._brokers = brokers
        self._start_at = start_at
        self._listener = listener
        self._clock = clock
        self._events: queue.SimpleQueue[ev.MemberEvent | _StreamPaused] = queue.SimpleQueue()
        self._broker_worker = Worker(f"zkgroup-helper-{settings.group}")
        # Apart from the brokers' worker: a listener may wait for a commit, which may go to the brokers.
        self._listener_worker = Worker(f"zkgroup-listener-{settings.group}")
        self._listener_call: tuple[int, int] | None = None  # the listener's thread while it is called, and the request
        self._offsets: GroupOffsets | None = None  # used by the brokers' worker alone
        self._offsets_properties = dict(offsets_properties)
        self._session: Session | None = None
        self._closing: list[Session] = []
        self._fence = -1  # the generation at which the streams were paused last
        self._unpaused: set[int] = set()  # streams whose readers have not come back since

    # ------------------------------------------------------------ from other threads

    def start(self) -> None:
        super().start()
        self.post(ev.Start())

    def post(self, event: ev.MemberEvent) -> None:
        self._events.put(event)

    def can_deliver(self) -> bool:
        """Whether the lease on the session is valid."""
        return self.member.lease.is_valid(self._clock())

    def statistics(self) -> Statistics:
        member = self.member
        return Statistics(
            member.settings.consumer_id,
            member.phase.value,
            member.generation,
            member.session_id,
            tuple(sorted(member.share)),
            dataclasses.replace(member.counters),
            held_back=dict(member.held_back),
        )

    def leave(self, *, at_once: bool = False, commit: bool = True) -> None:
        self.post(ev.Leave(at_once, commit))

    def fail(self, error: Exception) -> None:
        self.post(ev.StreamFailed(error))

    def _begin_commit(self, token: int) -> None:
        self.post(ev.CommitRequested(token, self._listener_request()))

    @property
    def is_in_callback(self) -> bool:
        """Whether the calling thread is inside the rebalance listener."""
        return self._listener_request() is not None

    def _listener_request(self) -> int | None:
        call = self._listener_call
        return call[1] if call is not None and call[0] == threading.get_ident() else None

    def read(self, ops: Sequence[Op]) -> list[Result]:
        """Read from ZooKeeper under the member's session, on another thread than the member's."""
        session = self._session
        if session is None:
            raise UnreachableError("no ZooKeeper session", "wait: it is being opened again")
        box: queue.SimpleQueue[list[Result]] = queue.SimpleQueue()
        session.submit(ops, box.put)
        try:
            return box.get(timeout=BROKER_TIMEOUT)
        except queue.Empty:
            raise UnreachableError(f"ZooKeeper gave no answer within {BROKER_TIMEOUT:g} s", "check it") from None

    def join(self) -> None:
        self._ended.wait(self.member.settings.leave_timeout + 5.0)
        deadline = time.monotonic() + BROKER_TIMEOUT + 1.0
        if self._broker_worker.close(BROKER_TIMEOUT + 1.0):
            self._drop_offsets()
        else:
            log.warning("a broker that does not answer keeps a thread busy: left behind")
        if not self._listener_worker.close(max(0.0, deadline - time.monotonic())):
            log.warning("the rebalance listener does not return: its thread is left behind")

    # ------------------------------------------------------------ the member's thread

    def _serve(self) -> None:
        while not self._finished:
            self._turn()

    def _turn(self) -> None:
        member = self.member
        pause = min(1.0, max(0.0, member.wake_at - self._clock()))
        try:
            event = self._events.get(timeout=pause)
        except queue.Empty:
            event = ev.Tick()
        if isinstance(event, _StreamPaused):
            if event.generation == self._fence:
                self._unpaused.discard(event.index)
                if not self._unpaused:
                    self._events.put(ev.Paused(event.generation, self._consumed()))
            return
        for action in member.handle(event, self._clock()):
            self._perform(action)
        if member.phase is Phase.OWNING:
            self.ready.set()

    def _perform(self, action: ev.MemberAction) -> None:
        match action:
            case ev.OpenSession(epoch):
                self._open(epoch)
            case ev.CloseSession():
                self._close_session()
            case ev.Send(request, _, ops):
                self._send(request, ops)
            case ev.Pause(generation, abandon):
                self._pause(generation, abandon=abandon)
            case ev.Assign(generation, share):
                for feed, part in zip(self._feeds, self._deal(share), strict=True):
                    feed.assign(generation, part)
            case ev.AssignMore(generation, share):
                for feed, part in zip(self._feeds, self._deal(share), strict=True):
                    feed.assign_more(generation, part)
            case ev.Collect():
                self._events.put(ev.Collected(self.member.generation, self._consumed()))
            case ev.ListOffsets(request, partitions, reset):
                self._ask_brokers(request, lambda: self._list_offsets(partitions, reset))
            case ev.FetchKafkaOffsets(request, partitions):
                self._ask_brokers(request, lambda: self._fetch_kafka(partitions))
            case ev.CommitKafkaOffsets(request, offsets):
                epoch = self.member.epoch
                self._ask_brokers(request, lambda: self._commit_kafka(offsets, epoch))
            case ev.Notify(request, method, threads):
                self._notify(request, method, threads)
            case ev.Committed(token, error):
                self._end_commit(token, error)
            case ev.Log(level, text):
                log.log(level, "%s: %s", self.member.settings.consumer_id, text)
            case ev.Finished(error):
                self.error, self._finished = error, True

    # ------------------------------------------------------------ sessions

    def _open(self, epoch: int) -> None:
        def on_event(event: SessionEvent) -> None:
            self._events.put(ev.FromSession(epoch, event))

        reported: set[tuple[str, FailureCause]] = set()

        def on_failure(failure: ConnectionFailure) -> None:
            if (failure.server, failure.cause) not in reported:  # it comes with each attempt
                reported.add((failure.server, failure.cause))
                log.warning("%s", failure)

        self._session = Session(self._zookeeper, on_event, on_failure)
        self._session.start()

    def _send(self, request: int, ops: tuple[Op, ...]) -> None:
        assert self._session is not None
        sent_at = self._clock()
        # The process may have been stopped since the decision, or have waited for its log: no write past the lease.
        if not self.member.lease.is_valid(sent_at) and writes(ops):
            unsent = Failure(Code.CONNECTION_LOSS, "not sent: the lease on the session ran out")
            self._events.put(ev.Reply(request, [unsent] * len(ops), sent_at))
            return
        self._session.submit(ops, lambda results: self._events.put(ev.Reply(request, results, sent_at)))

    def _close_session(self) -> None:
        if self._session is not None:
            self._session.begin_close()
            self._closing.append(self._session)
            self._session = None

    def _disconnect(self) -> None:
        self._close_session()
        deadline = time.monotonic() + CLOSE_TIMEOUT
        for session in self._closing:
            session.close(max(0.0, deadline - time.monotonic()))

    # ------------------------------------------------------------ streams

    def _pause(self, generation: int, *, abandon: bool) -> None:
        self._fence = generation
        self._unpaused = set(range(len(self._feeds)))

        def stopped(index: int) -> Callable[[], None]:
            return lambda: self._events.put(_StreamPaused(generation, index))

        for index, feed in enumerate(self._feeds):
            feed.pause(stopped(index), abandon=abandon)

    def _deal(
        self, share: Mapping[TopicPartition, tuple[ConsumerThreadId, int]]
    ) -> Sequence[Mapping[TopicPartition, int]]:
        """A share's starting offsets, stream by stream."""
        shares: list[dict[TopicPartition, int]] = [{} for _ in self._feeds]
        for partition, (thread, offset) in share.items():
            shares[self._streams_of(partition.topic)[thread.index]][partition] = offset
        return shares

    # ------------------------------------------------------------ what blocks

    def _ask_brokers(
        self,
        request: int,
        work: Callable[[], Mapping[TopicPartition, int | None] | Mapping[TopicPartition, int] | None],
    ) -> None:
        def run() -> None:
            try:
                answer = ev.Answered(request, dict(work() or {}))
            except Exception as error:
                if not isinstance(error, ZkgroupError):
                    log.exception("a request to the brokers has failed")
                answer = ev.Answered(request, {}, error)
            self._events.put(answer)

        self._broker_worker.submit(run)

    def _notify(self, request: int, method: ev.ListenerMethod, partitions: _Partitions) -> None:
        listener = self._listener
        if listener is None:
            self._events.put(ev.Answered(request, {}))
            return

        def run() -> None:
            self._listener_call = threading.get_ident(), request
            try:
                getattr(listener, method)(partitions)
            except Exception:
                # As with the Scala consumer, a failing listener does not keep the member from its group.
                log.exception("the rebalance listener failed in %s", method)
            finally:
                self._listener_call = None
            self._events.put(ev.Answered(request, {}))

        self._listener_worker.submit(run)

    def _group_offsets(self) -> GroupOffsets:
        if self._offsets is None:
            settings, group = self._brokers.settings(), self.member.settings.group
            self._offsets = GroupOffsets(settings, group, self._offsets_properties)
        return self._offsets

    def _drop_offsets(self) -> None:
        if self._offsets is not None:
            self._offsets.close()
            self._offsets = None

    def _fetch_kafka(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        try:
            return self._group_offsets().fetch(partitions, BROKER_TIMEOUT)
        except UnreachableError:
            self._drop_offsets()  # the brokers may have new addresses
            raise

    def _commit_kafka(self, offsets: Mapping[TopicPartition, int], epoch: int) -> None:
        offset_store = self._group_offsets()
        # Kafka has no compare-and-set: check as late as possible that the share is still ours.
        if not self.member.has_lease(epoch, self._clock()):
            raise CommitError("the lease on the session ran out before the commit to Kafka")
        try:
            offset_store.commit(offsets, BROKER_TIMEOUT)
        except UnreachableError:
            self._drop_offsets()
            raise

    def _list_offsets(self, partitions: Sequence[TopicPartition], reset: Reset) -> Mapping[TopicPartition, int | None]:
        start = self._start_at or StartAt.after_reset(reset)
        try:
            return resolve_created(self._brokers.settings(), partitions, start, BROKER_TIMEOUT)
        except OffsetOutOfRangeError as error:
            self.post(ev.StreamFailed(error))  # the user gave the offset: trying again does not help
            raise
