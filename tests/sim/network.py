"""A member's ZooKeeper session over a network that fails: the client's side, the wire, and what the server hears."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Literal

from sim.clock import Clock
from sim.zookeeper import ModelZooKeeper
from zkgroup.protocol.ops import (
    WRITES,
    Changed,
    Code,
    Connected,
    Disconnected,
    Expired,
    Failure,
    Op,
    Result,
    SessionEvent,
)

LOST = Failure(Code.CONNECTION_LOSS)
RETRY = 0.1  # a client's pause between attempts to connect


class _Pending:
    """A batch that waits for its answers."""

    def __init__(self, ops: Sequence[Op], done: Callable[[list[Result]], None]) -> None:
        self.results: list[Result] = [LOST] * len(ops)
        self.open = len(ops)
        self.done = done


class SimSession:
    """What ``zkgroup.servers.zookeeper.Session`` is on a real server, with the same promises.

    ``up`` is the network; ``alive`` the process. The server ends a session ``timeout`` seconds after it last heard of
    it. A connection that breaks loses what was under way: requests before they arrive, or their replies.
    """

    def __init__(
        self,
        clock: Clock,
        random: Random,
        server: ModelZooKeeper,
        tell: Callable[[SessionEvent], None],
        timeout: float,
    ) -> None:
        self.id = 0
        self.up = True
        self.frozen = False  # the process is stopped: it hears nothing, and the server hears nothing of it
        self._clock = clock
        self._random = random
        self._server = server
        self._tell = tell
        self._timeout = timeout
        self._connection = 0  # counts connections, so that what belongs to an older one is lost
        self._connected = False
        self._connecting = False
        self._closed = False
        self._pending: list[_Pending] = []
        self._arrival = 0.0  # of the last request under way: they arrive in order
        self._return = 0.0  # of the last reply
        self._silent_since: float | None = None
        self._trap: Literal["request", "reply"] | None = None

    # ------------------------------------------------------------ the client

    def start(self) -> None:
        self._connect_later(0.0)

    def submit(self, ops: Sequence[Op], done: Callable[[list[Result]], None]) -> None:
        """As the real one: fails at once while there is no connection."""
        if not self._connected or self._closed:
            done([LOST] * len(ops))
            return
        pending = _Pending(ops, done)
        if not ops:
            done([])
            return
        self._pending.append(pending)
        for index, op in enumerate(ops):
            self._request(pending, index, op)

    def close(self) -> None:
        """The client ends its session, if it can; whatever comes after is not told."""
        self._closed = True
        if self.up and self._connected and not self.frozen:
            arrival = max(self._clock.now + self._latency(), self._arrival)
            self._clock.after(arrival - self._clock.now, self._server_ends)
        else:
            self._hush()

    def vanish(self) -> None:
        """The process dies."""
        self._closed = True
        self._hush()

    def _latency(self) -> float:
        return self._random.uniform(0.0002, 0.004)

    def _connect_later(self, delay: float) -> None:
        if not self._connecting and not self._closed:
            self._connecting = True
            self._clock.after(delay + self._latency(), self._connect)

    def _connect(self) -> None:
        self._connecting = False
        if self._closed or self._connected:
            return
        if not self.up or self.frozen:
            self._connect_later(RETRY)
        elif self.id and self.id not in self._server.sessions:
            self._closed = True
            self._tell(Expired("expired"))
        else:
            self.id = self.id or self._server.open_session()
            self._silent_since = None
            self._connection += 1
            self._connected = True
            self._arrival = self._return = 0.0
            self._tell(Connected(self.id, self._timeout))

    def _request(self, pending: _Pending, index: int, op: Op) -> None:
        connection = self._connection
        self._arrival = max(self._clock.now + self._latency(), self._arrival + 0.00001)

        def arrive() -> None:
            if connection == self._connection and self.up and self.id in self._server.sessions:
                trap = self._trap if isinstance(op, WRITES) else None
                if trap == "request":
                    self.reset()
                    return
                result = self._server.apply(self.id, op)
                if trap == "reply":
                    self.reset()
                    return
                self._return = max(self._clock.now + self._latency(), self._return)
                self._clock.after(
                    self._return - self._clock.now, lambda: self._answer(connection, pending, index, result)
                )

        self._clock.after(self._arrival - self._clock.now, arrive)

    def _answer(self, connection: int, pending: _Pending, index: int, result: Result) -> None:
        if connection != self._connection or not self.up or pending not in self._pending:
            return
        pending.results[index] = result
        pending.open -= 1
        if pending.open == 0:
            self._pending.remove(pending)
            pending.done(pending.results)

    def _disconnected(self) -> None:
        """The client notices that its connection is gone: nobody knows what became of what was under way."""
        if not self._connected:
            return
        self._connected = False
        self._connection += 1
        self._server.forget_watches(self.id)
        if self._closed:
            return
        self._tell(Disconnected())
        for pending in self._pending:
            pending.done(list(pending.results))
        self._pending.clear()
        self._connect_later(0.0)

    # ------------------------------------------------------------ the server's side

    def watched(self, event: Changed) -> None:
        """The server tells of a change. kazoo hands that on in another thread than replies: it may come sooner or later
        than those."""
        connection = self._connection

        def heard() -> None:
            if connection == self._connection and self.up and not self._closed:
                self._tell(event)

        self._clock.after(self._latency() + self._random.choice((0.0, 0.0, 0.01)), heard)

    def _hush(self) -> None:
        """The server hears nothing any more, and ends the session after its time-out."""
        if self._silent_since is None:
            self._silent_since = self._clock.now
            since = self._silent_since

            def expire() -> None:
                if self._silent_since == since:
                    self._server_ends()

            self._clock.after(self._timeout, expire)

    def _server_ends(self) -> None:
        self._server.end_session(self.id)
        if self.up and not self.frozen:
            self._disconnected()

    # ------------------------------------------------------------ faults

    def cut(self) -> None:
        """The network swallows everything. Each side notices after a while."""
        if self.up:
            self.up = False
            self._hush()
            connection = self._connection
            self._clock.after(self._timeout * 2 / 3, lambda: self._notice(connection))

    def heal(self) -> None:
        """The network works again; a connection that nobody gave up goes on, but what was sent meanwhile is lost, and
        with it, as TCP would have it, the connection."""
        if not self.up:
            self.up = True
            self._disconnected()  # until the client is back the server goes on counting

    def _notice(self, connection: int) -> None:
        if not self.up and connection == self._connection:
            self._disconnected()

    def reset(self) -> None:
        """The connection breaks, and both sides notice at once; the client comes back."""
        if self.up and self._connected:
            self._trap = None
            self._hush()
            self._disconnected()

    def lose(self, what: Literal["request", "reply"]) -> None:
        """The connection breaks when the next write is under way: before the server has it, or after it was applied."""
        self._trap = what

    def freeze(self) -> None:
        """The process is stopped."""
        self.frozen = True
        self._hush()

    def thaw(self) -> None:
        """The process goes on. If its session has ended, the server has closed its connection meanwhile."""
        self.frozen = False
        if self.id not in self._server.sessions:
            self._disconnected()
        elif self._connected and self.up:
            self._silent_since = None

    def kill(self) -> None:
        """Somebody ends the session on the server, early."""
        if self.id in self._server.sessions:
            self._server_ends()
