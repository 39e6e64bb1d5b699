"""A member's talk with ZooKeeper: requests and replies, interruptions, and the lease on what may be written.

Pure: requests leave as ``Send`` actions, replies come in as events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from zkgroup.errors import ZkgroupError
from zkgroup.protocol import znodes
from zkgroup.protocol.events import Reply, Send
from zkgroup.protocol.lease import Lease
from zkgroup.protocol.offsets import Procedure
from zkgroup.protocol.ops import WRITES, Code, Failure, Op, Result, Sync

T = TypeVar("T")
_Then: TypeAlias = Callable[[Sequence[Result]], None]


class Interrupted(Exception):
    """The connection or the session went while a procedure was under way."""


class Conversation:
    """One procedure at a time, begun again from its start when the connection was lost in the middle.

    ``now`` is set by the machine before it calls. ``emit`` takes the actions.
    """

    def __init__(self, emit: Callable[[Send], None]) -> None:
        self.lease = Lease()
        self.now = 0.0
        self.connected = False
        self._emit = emit
        self._epoch = 0
        self._requests = 0
        self._waiting: dict[int, tuple[tuple[Op, ...], _Then]] = {}
        self._held: list[tuple[tuple[Op, ...], _Then]] = []
        self._procedure: Procedure[Any] | None = None
        self._step: Callable[[], None] | None = None

    @property
    def idle(self) -> bool:
        """Whether no procedure is under way, or interrupted."""
        return self._procedure is None and self._step is None

    # ------------------------------------------------------------ the session

    def connect(self, epoch: int, timeout: float) -> None:
        """The session numbered ``epoch`` is connected, for the first time or again."""
        self.connected = True
        self._epoch = epoch
        self.lease.begin(timeout, self.now)
        if self._step is not None and self._procedure is None:
            self._step()

    def disconnect(self) -> None:
        """The connection dropped: procedures begin again when it is back."""
        self.connected = False
        self.lease.pause()

    def end(self) -> None:
        """The session is over: what was asked under it is forgotten, and never asked in another."""
        self.connected = False
        self.lease.end()
        self.drop()
        self._waiting.clear()

    def drop(self) -> None:
        """Give up the procedure that is under way."""
        if self._procedure is not None:
            self._procedure.close()
        self._procedure = self._step = None
        self._held.clear()

    def tick(self) -> None:
        """Ask for a new proof that the session lives, when it is time to."""
        if self.connected and self.lease.due(self.now):
            self._sync()

    # ------------------------------------------------------------ requests

    def reply(self, event: Reply) -> None:
        """Results came in."""
        if (waiting := self._waiting.pop(event.request, None)) is None:
            return
        ops, then = waiting
        self.lease.renew(ops, event.results, event.sent_at)
        then(event.results)
        if self._held and self.lease.holds(self.now):
            held, self._held = self._held, []
            for ops, then in held:
                self._send(ops, then)

    def _ask(self, ops: tuple[Op, ...], then: _Then) -> None:
        """Send now, or, where it writes and the lease has run out, once a sync has shown that the session lives."""
        writes = any(isinstance(op, WRITES) for op in ops)
        if not writes or self.lease.holds(self.now):
            self._send(ops, then)
            return
        self._held.append((ops, then))
        if self.connected:
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
        """Run a procedure to its end; ``done`` gets what it returns, ``failed`` what it raises."""
        self._step = lambda: self.run(begin, done, failed)
        if not self.connected:
            return
        procedure = begin()
        self._procedure = procedure

        def proceed(resume: Callable[[], tuple[Op, ...]]) -> None:
            if self._procedure is not procedure:
                return  # dropped meanwhile
            try:
                ops = resume()
            except StopIteration as stop:
                self._procedure = self._step = None
                done(stop.value)
            except Interrupted:
                self._procedure = None
                if self.connected and self._step is not None:
                    self._step()  # down and up again before the replies came in
            except ZkgroupError as error:
                self._procedure = self._step = None
                failed(error)
            else:
                self._ask(ops, replied)

        def replied(results: Sequence[Result]) -> None:
            lost = (Code.CONNECTION_LOSS, Code.SESSION_EXPIRED)
            if any(isinstance(result, Failure) and result.code in lost for result in results):
                proceed(lambda: procedure.throw(Interrupted()))
            else:
                proceed(lambda: procedure.send(results))

        proceed(lambda: next(procedure))
