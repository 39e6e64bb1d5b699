"""The threads around the member's machine: it decides, the driver carries out.

One thread owns the state machine and takes events from a queue; kazoo's threads, the readers and the helper only put
events there.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from zkgroup.clients.kafka.group_offsets import GroupOffsets
from zkgroup.clients.zookeeper import Session, Trouble, ZooKeeperSettings
from zkgroup.clients.zookeeper.registered_brokers import Brokers
from zkgroup.connector.blocking_calls import Helper
from zkgroup.connector.start_position import StartAt, resolve_known
from zkgroup.connector.stream import Feed
from zkgroup.errors import OffsetOutOfRangeError, SessionLostError, UnreachableError, ZkgroupError
from zkgroup.protocol import events as ev
from zkgroup.protocol.member import Member, MemberSettings, Phase
from zkgroup.protocol.names import ConsumerThreadId, TopicPartition
from zkgroup.protocol.offset_versions import CommitError
from zkgroup.protocol.operations import Code, Failure, Op, Result, SessionEvent, writes

log = logging.getLogger(__name__)

#: How long the brokers may take to answer, and ZooKeeper to be asked for them.
BROKER_TIMEOUT: Final = 5.0
#: How long sessions may take to close, in all.
CLOSE_TIMEOUT: Final = 3.0

_Partitions = Mapping[TopicPartition, ConsumerThreadId]


def boot_clock() -> float:
    """Seconds on a clock that never jumps and runs while the machine sleeps."""
    return time.clock_gettime(_CLOCK)


# Linux has a clock that includes sleep; macOS's monotonic one does as well.
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class RebalanceListener(Protocol):
    """Told about rebalances, on a thread of its own; the rebalance waits until it returns. Peers give up after some 8 s
    of waiting for what we own.

    ``Connector.commit()`` may be called in both; ``Connector.close()`` would wait for itself and raises UsageError
    (``leave()`` does not wait). What a listener raises goes to the log (``zkgroup.connector``), with its traceback, and
    the rebalance goes on, as the reference's does: a program that commits here should listen to that log.
    """

    def before_releasing(self, partitions: Mapping[TopicPartition, ConsumerThreadId]) -> None:
        """Our share is about to be given up, and is ours until this returns; nothing more of it is handed out. As with
        the Scala consumer, every attempt to rebalance begins so, the first one with an empty share. What was
        consumed is committed already (if auto-commit is on). Without auto-commit this is the place for ``commit()``:
        it commits what was consumed of this share; what is not committed here is read again. Where the session ends
        meanwhile, ``commit()`` raises SessionLostError."""

    def before_starting(self, assignment: Mapping[TopicPartition, ConsumerThreadId]) -> None:
        """The whole group's new assignment. Our share is claimed, and reading is about to begin. Nothing of it is
        consumed yet: ``commit()`` returns at once."""


@dataclass(frozen=True, slots=True)
class _StreamQuiet:
    """A stream's reader has nothing in hand any more."""

    generation: int
    index: int


class Driver:
    """A member at work, from ``start`` until ``finished`` is set.

    ``settled`` is set when it has its first share (which may be empty), or has failed.
    """

    def __init__(
        self,
        settings: MemberSettings,
        zookeeper: ZooKeeperSettings,
        *,
        feeds: Sequence[Feed],
        stream_of: Callable[[TopicPartition, ConsumerThreadId], int],
        brokers: Brokers,
        start_at: StartAt | None,
        listener: RebalanceListener | None,
        clock: Callable[[], float],
        offsets_properties: Mapping[str, str],
    ) -> None:
        self.member = Member(settings)
        self.settled = threading.Event()
        self.finished = threading.Event()
        self.error: Exception | None = None
        self._zookeeper = zookeeper
        self._feeds = feeds
        self._stream_of = stream_of
        self._brokers = brokers
        self._start_at = start_at
        self._listener = listener
        self._clock = clock
        self._events: queue.SimpleQueue[ev.Event | _StreamQuiet] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"zkgroup-{settings.group}", daemon=True)
        self._ended = threading.Event()  # of the thread; a join that a signal interrupts would take it for ended
        self._helper = Helper(f"zkgroup-helper-{settings.group}")
        # Apart from the helper: a listener may wait for a commit, which may go to the brokers.
        self._telling = Helper(f"zkgroup-listener-{settings.group}")
        self._heard_by: tuple[int, int] | None = None  # the listener's thread while it is called, and the request
        self._offsets: GroupOffsets | None = None  # the helper's
        self._offsets_properties = dict(offsets_properties)
        self._session: Session | None = None
        self._closing: list[Session] = []
        self._fence = -1  # the generation whose end the streams were told of
        self._noisy: set[int] = set()  # streams that have not said yet that they stopped
        self._lock = threading.Lock()
        self._over = False
        self._tokens = 0
        self._commits: dict[int, Future[None]] = {}

    # ------------------------------------------------------------ from other threads

    def start(self) -> None:
        """Begin to join."""
        self._thread.start()
        self.post(ev.Start())

    def post(self, event: ev.Event) -> None:
        """Tell the member something."""
        self._events.put(event)

    def may_hand_out(self) -> bool:
        """Whether the lease on the session holds."""
        return self.member.lease.holds(self._clock())

    def ask_commit(self) -> Future[None]:
        """Commit what is consumed now; the future tells when that is done."""
        future: Future[None] = Future()
        with self._lock:
            if self._over:
                future.set_exception(self.error or SessionLostError("the member has left the group"))
                return future
            self._tokens += 1
            token = self._tokens
            self._commits[token] = future
        self.post(ev.CommitAsked(token, self._listener_request()))
        return future

    @property
    def in_listener(self) -> bool:
        """Whether the calling thread is inside the rebalance listener, which the member waits for."""
        return self._listener_request() is not None

    def _listener_request(self) -> int | None:
        heard_by = self._heard_by
        return heard_by[1] if heard_by is not None and heard_by[0] == threading.get_ident() else None

    def read(self, ops: Sequence[Op]) -> list[Result]:
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

    def join(self, timeout: float) -> None:
        """Wait until the member has left, for at most ``timeout`` seconds, and end the helper."""
        if self._thread.ident is not None:
            self._ended.wait(timeout)
        deadline = time.monotonic() + BROKER_TIMEOUT + 1.0
        if self._helper.close(BROKER_TIMEOUT + 1.0):
            self._drop_offsets()
        else:
            log.warning("a broker that does not answer keeps a thread busy: left behind")
        if not self._telling.close(max(0.0, deadline - time.monotonic())):
            log.warning("the rebalance listener does not return: its thread is left behind")

    # ------------------------------------------------------------ the member's thread

    def _run(self) -> None:
        try:
            while not self.finished.is_set():
                self._turn()
        except Exception as error:
            # A defect, not a failure that is expected: nobody may wait for this member any longer.
            log.exception("the member of group %s has failed", self.member.settings.group)
            self._perform(ev.Finished(error))
        finally:
            self._close_sessions()
            with self._lock:
                self._over = True
                waiting, self._commits = list(self._commits.values()), {}
            for future in waiting:
                future.set_exception(self.error or SessionLostError("the member has left the group"))
            self._ended.set()

    def _turn(self) -> None:
        member = self.member
        pause = min(1.0, max(0.0, member.wake_at - self._clock()))
        try:
            event = self._events.get(timeout=pause)
        except queue.Empty:
            event = ev.Tick()
        if isinstance(event, _StreamQuiet):
            if event.generation == self._fence:
                self._noisy.discard(event.index)
                if not self._noisy:
                    self._events.put(ev.Quieted(event.generation, self._consumed()))
            return
        for action in member.handle(event, self._clock()):
            self._perform(action)
        if member.phase is Phase.OWNING:
            self.settled.set()

    def _perform(self, action: ev.Action) -> None:
        match action:
            case ev.OpenSession(epoch):
                self._open(epoch)
            case ev.CloseSession():
                self._close_session()
            case ev.Send(request, _, ops):
                self._send(request, ops)
            case ev.Quiet(generation, abandon):
                self._quiet(generation, abandon=abandon)
            case ev.Grant(generation, share):
                for feed, part in zip(self._feeds, self._deal(share), strict=True):
                    feed.grant(generation, part)
            case ev.Extend(generation, share):
                for feed, part in zip(self._feeds, self._deal(share), strict=True):
                    feed.extend(generation, part)
            case ev.Collect():
                self._events.put(ev.Collected(self.member.generation, self._consumed()))
            case ev.LookUp(request, partitions, reset):
                self._help(request, lambda: self._look_up(partitions, reset))
            case ev.FetchKafka(request, partitions):
                self._help(request, lambda: self._fetch_kafka(partitions))
            case ev.CommitKafka(request, offsets):
                epoch = self.member.epoch
                self._help(request, lambda: self._commit_kafka(offsets, epoch))
            case ev.Notify(request, what, threads):
                self._notify(request, what, threads)
            case ev.Committed(token, error):
                self._committed(token, error)
            case ev.Log(level, text):
                log.log(level, "%s: %s", self.member.settings.consumer_id, text)
            case ev.Finished(error):
                self.error = error
                for feed in self._feeds:
                    feed.end(error)
                self.finished.set()
                self.settled.set()

    # ------------------------------------------------------------ sessions

    def _open(self, epoch: int) -> None:
        def hear(event: SessionEvent) -> None:
            self._events.put(ev.FromSession(epoch, event))

        told: set[str] = set()

        def fail(trouble: Trouble) -> None:
            if trouble.message not in told:  # it is met again at each attempt
                told.add(trouble.message)
                log.warning("%s", trouble.error())

        self._session = Session(self._zookeeper, hear, fail)
        self._session.start()

    def _send(self, request: int, ops: tuple[Op, ...]) -> None:
        assert self._session is not None
        sent_at = self._clock()
        # Who was stopped since that was decided, or waited for who reads its log, begins no write past its lease.
        if not self.member.lease.holds(sent_at) and writes(ops):
            unsent = Failure(Code.CONNECTION_LOSS, "not sent: the lease on the session ran out")
            self._events.put(ev.Reply(request, [unsent] * len(ops), sent_at))
            return
        self._session.submit(ops, lambda results: self._events.put(ev.Reply(request, results, sent_at)))

    def _close_session(self) -> None:
        if self._session is not None:
            self._session.begin_close()
            self._closing.append(self._session)
            self._session = None

    def _close_sessions(self) -> None:
        self._close_session()
        deadline = time.monotonic() + CLOSE_TIMEOUT
        for session in self._closing:
            session.close(max(0.0, deadline - time.monotonic()))

    # ------------------------------------------------------------ streams

    def _quiet(self, generation: int, *, abandon: bool) -> None:
        self._fence = generation
        self._noisy = set(range(len(self._feeds)))

        def stopped(index: int) -> Callable[[], None]:
            return lambda: self._events.put(_StreamQuiet(generation, index))

        for index, feed in enumerate(self._feeds):
            feed.quiet(stopped(index), abandon=abandon)

    def _deal(
        self, share: Mapping[TopicPartition, tuple[ConsumerThreadId, int]]
    ) -> Sequence[Mapping[TopicPartition, int]]:
        """A share's starting offsets, stream by stream."""
        shares: list[dict[TopicPartition, int]] = [{} for _ in self._feeds]
        for partition, (thread, offset) in share.items():
            shares[self._stream_of(partition, thread)][partition] = offset
        return shares

    def _consumed(self) -> dict[TopicPartition, int]:
        consumed: dict[TopicPartition, int] = {}
        for feed in self._feeds:
            consumed |= feed.consumed()
        return consumed

    def _committed(self, token: int, error: Exception | None) -> None:
        with self._lock:
            future = self._commits.pop(token, None)
        if future is not None and error is None:
            future.set_result(None)
        elif future is not None:
            future.set_exception(error)

    # ------------------------------------------------------------ what blocks

    def _help(
        self,
        request: int,
        work: Callable[[], Mapping[TopicPartition, int | None] | Mapping[TopicPartition, int] | None],
    ) -> None:
        def run() -> None:
            try:
                answer = ev.Answered(request, dict(work() or {}))
            except ZkgroupError as error:
                answer = ev.Answered(request, {}, error)
            except Exception as error:
                log.exception("asking the brokers has failed")
                answer = ev.Answered(request, {}, error)
            self._events.put(answer)

        self._helper.submit(run)

    def _notify(
        self, request: int, what: Literal["before_releasing", "before_starting"], partitions: _Partitions
    ) -> None:
        listener = self._listener
        if listener is None:
            self._events.put(ev.Answered(request, {}))
            return

        def run() -> None:
            self._heard_by = threading.get_ident(), request
            try:
                getattr(listener, what)(partitions)
            except Exception:
                # As in the reference, a listener's own failure does not keep the member from its group.
                log.exception("the rebalance listener failed in %s", what)
            finally:
                self._heard_by = None
            self._events.put(ev.Answered(request, {}))

        self._telling.submit(run)

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
        # Kafka has no compare-and-set: look as late as possible whether the share is still ours.
        if not self.member.believes_in(epoch, self._clock()):
            raise CommitError("the lease on the session ran out before the commit to Kafka")
        try:
            offset_store.commit(offsets, BROKER_TIMEOUT)
        except UnreachableError:
            self._drop_offsets()
            raise

    def _look_up(
        self, partitions: Sequence[TopicPartition], reset: Literal["smallest", "largest"]
    ) -> Mapping[TopicPartition, int | None]:
        start = self._start_at or StartAt("earliest" if reset == "smallest" else "latest")
        try:
            return resolve_known(self._brokers.settings(), partitions, start, BROKER_TIMEOUT)
        except OffsetOutOfRangeError as error:
            self.post(ev.StreamFailed(error))  # the offset was asked for: trying again does not help
            raise
