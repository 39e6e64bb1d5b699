"""A member's requests to ZooKeeper: procedures, interruptions, and the lease under which it may write.

Pure: requests leave as ``Send`` actions, replies come in as events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from zkgroup.errors import ZkgroupError
from zkgroup.protocol import znodes
from zkgroup.protocol.events import Reply, Send
from zkgroup.protocol.offset_versions import Procedure
from zkgroup.protocol.operations import Code, Create, Delete, Failure, Op, Result, SetData, Sync, Transaction, writes

BEATS_PER_TIMEOUT: Final = 6

#: The leader answers these. ``Ensure`` is no proof: where the node exists it only reads.
_PROOFS: Final = (Sync, Create, SetData, Delete, Transaction)
#: Refusals that come from the leader, too.
_SERVER_SAYS: Final = (Code.NO_NODE, Code.NODE_EXISTS, Code.BAD_VERSION, Code.NOT_EMPTY)


class Lease:
    """How long a member may assume that its session lives. ``until``: after it nothing may be delivered or written.

    A follower that is cut off from its leader goes on answering reads and pings while the majority has expired the
    session. Only the answer to a write or a sync proves that the session lived, at the time when the request was
    *sent*. So a member delivers messages and begins writes only within half of the session timeout since then; within
    the other half what was begun can end. The clock runs while the machine sleeps.
    """

    __slots__ = ("beat_at", "timeout", "until")

    def __init__(self) -> None:
        self.timeout = 0.0
        self.until = float("-inf")
        self.beat_at = float("inf")

    def begin(self, timeout: float, now: float) -> None:
        """Connected, with this negotiated time-out: the first proof is due at once."""
        self.timeout = timeout
        self.beat_at = now

    def end(self) -> None:
        """The session is over."""
        self.until = float("-inf")
        self.beat_at = float("inf")

    def pause(self) -> None:
        """Disconnected: no proof is due. The rest of the lease stays valid."""
        self.beat_at = float("inf")

    def due(self, now: float) -> bool:
        """Whether a new proof is due. If so the next time is set."""
        if now < self.beat_at:
            return False
        self.beat_at = now + self.timeout / BEATS_PER_TIMEOUT
        return True

    def renew(self, ops: Sequence[Op], results: Sequence[Result], sent_at: float) -> None:
        """Renew by the answers to operations, the first of which was sent at ``sent_at``."""
        for op, result in zip(ops, results, strict=True):
            if isinstance(op, _PROOFS) and (not isinstance(result, Failure) or result.code in _SERVER_SAYS):
                self.until = max(self.until, sent_at + self.timeout / 2)
                return

    def is_valid(self, now: float) -> bool:
        """Whether messages may be delivered and writes begun."""
        return now < self.until


T = TypeVar("T")
_Then: TypeAlias = Callable[[Sequence[Result]], None]

#: Seconds until a procedure begins again whose request failed before the lost connection was reported.
RESTART_PAUSE: Final = 0.1
_LOST: Final = (Code.CONNECTION_LOSS, Code.SESSION_EXPIRED)


class SessionRequests:
    """Runs one procedure at a time, and begins it again from its start after a lost connection.

    The machine sets ``now`` before it calls. ``emit`` takes the actions.
    """

    def __init__(self, emit: Callable[[Send], None]) -> None:
        self.lease = Lease()
        self.now = 0.0
        self.connected = False
        self._emit = emit
        self._epoch = 0
        self._connections = 0
        self._requests = 0
        self._waiting: dict[int, tuple[tuple[Op, ...], _Then]] = {}
        self._holding = False  # the procedure wants to write, and waits for the lease
        self._procedure: Procedure[Any] | None = None
        self._begin: Callable[[], None] | None = None  # begins the procedure that is running, or interrupted
        self._restart_at = float("inf")

    @property
    def idle(self) -> bool:
        """Whether no procedure is running, or interrupted."""
        return self._begin is None

    @property
    def wake_at(self) -> float:
        """When ``tick`` has something to do."""
        return min(self.lease.beat_at, self._restart_at)

    # ------------------------------------------------------------ the session

    def connect(self, epoch: int, timeout: float) -> None:
        """The session numbered ``epoch`` is connected, for the first time or again."""
        self.connected = True
        self._epoch = epoch
        self._connections += 1
        self.lease.begin(timeout, self.now)
        if self._procedure is None:
            self._restart()

    def disconnect(self) -> None:
        """The connection dropped: the procedure begins again when it is back."""
        self.connected = False
        self.lease.pause()
        self._restart_at = float("inf")
        if self._holding:
            self._interrupt()  # it has not been sent, and may be outdated by then

    def end(self) -> None:
        """The session is over: its requests are forgotten, and never sent in another."""
        self.connected = False
        self.lease.end()
        self.drop()
        self._waiting.clear()

    def drop(self) -> None:
        """Give up the current procedure."""
        self._interrupt()
        self._begin = None
        self._restart_at = float("inf")

    def tick(self) -> None:
        """Renew the lease, or begin an interrupted procedure again, when that is due."""
        if self.connected and self.lease.due(self.now):
            self._sync()
        if self._restart_at <= self.now:
            self._restart()

    # ------------------------------------------------------------ requests

    def reply(self, event: Reply) -> None:
        """Take the results of a request."""
        if (waiting := self._waiting.pop(event.request, None)) is None:
            return
        ops, then = waiting
        self.lease.renew(ops, event.results, event.sent_at)
        if self._holding and self.lease.is_valid(self.now):
            # As after a reconnect: the write was decided on by answers that may be as old as the lease.
            self._interrupt()
            self._restart()
        then(event.results)

    def _ask(self, ops: tuple[Op, ...], then: _Then) -> None:
        """Send now. A write past the lease waits: the procedure begins again once a sync has renewed the lease."""
        if not self.connected:
            self._interrupt()
        elif self.lease.is_valid(self.now) or not writes(ops):
            self._send(ops, then)
        else:
            self._holding = True
            self._sync()

    def _send(self, ops: tuple[Op, ...], then: _Then) -> None:
        self._requests += 1
        self._waiting[self._requests] = (ops, then)
        self._emit(Send(self._requests, self._epoch, ops))

    def _sync(self) -> None:
        self._send((Sync(znodes.consumers()),), lambda _: None)

    # ------------------------------------------------------------ procedures

    def run(
        self, begin: Callable[[], Procedure[T]], done: Callable[[T], None], failed: Callable[[ZkgroupError], None]
    ) -> None:
        """Run a procedure instead of the current one; ``done`` gets its result, ``failed`` its error."""
        self.drop()
        self._begin = lambda: self._start(begin, done, failed)
        self._restart()

    def _restart(self) -> None:
        self._restart_at = float("inf")
        if self.connected and self._begin is not None:
            self._begin()

    def _start(
        self, begin: Callable[[], Procedure[T]], done: Callable[[T], None], failed: Callable[[ZkgroupError], None]
    ) -> None:
        procedure = begin()
        connection = self._connections
        self._procedure = procedure

        def proceed(results: Sequence[Result] | None) -> None:
            try:
                ops = next(procedure) if results is None else procedure.send(results)
            except StopIteration as stop:
                self._procedure = self._begin = None
                done(stop.value)
            except ZkgroupError as error:
                self._procedure = self._begin = None
                failed(error)
            else:
                self._ask(ops, replied)

        def replied(results: Sequence[Result]) -> None:
            if self._procedure is not procedure:
                return  # it was given up
            if not any(isinstance(result, Failure) and result.code in _LOST for result in results):
                proceed(results)
                return
            self._interrupt()
            if connection != self._connections:
                self._restart()  # down and up again before the results came in
            elif self.connected:
                self._restart_at = self.now + RESTART_PAUSE

        proceed(None)

    def _interrupt(self) -> None:
        if self._procedure is not None:
            self._procedure.close()
        self._procedure = None
        self._holding = False
