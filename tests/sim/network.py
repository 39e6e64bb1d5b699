"""A member's ZooKeeper session over a network that fails: the client's side, the wire, and what its server hears."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Literal

from sim.clock import Clock
from sim.sim_server import Follower, SimServer
from sim.wire import LOST, READS, RETRY, TAIL, Pending, Report, nobody
from zkgroup.protocol.operations import (
    WRITES,
    Changed,
    Connected,
    Disconnected,
    Expired,
    Op,
    Result,
    SessionEvent,
)


class SimSession:
    """What ``zkgroup.clients.zookeeper.Session`` is on a real server, with the same promises.

    ``up`` is the network; ``frozen`` the process. Requests and replies travel in order, each at its pace; those that
    are under way when a connection breaks are lost, or, where the client gave it up, still arrive: until it is back by
    another connection. Pings keep an idle session alive, and tell the client that nobody answers any more.
    """

    def __init__(
        self,
        clock: Clock,
        random: Random,
        server: SimServer,
        tell: Callable[[SessionEvent], None],
        timeout: float,
        report: Report = nobody,
    ) -> None:
        self.id = 0
        self.up = True
        self.frozen = False  # the process is stopped: it hears nothing, and the server hears nothing of it
        self.slow_until = 0.0  # messages may take very long
        self.late_until = 0.0  # watch events may take very long
        self.deaf_until = 0.0  # no watch event comes before
        self.follower: Follower | None = None
        self._clock = clock
        self._random = random
        self._server = server
        self._tell = tell
        self._timeout = timeout
        self._report = report
        self._connection = 0  # counts connections, so that what belongs to an older one is lost
        self._accepted = 0  # the connection from which the server takes requests
        self._connected = False
        self._connecting = False
        self._closed = False
        self._pending: dict[Pending, None] = {}
        self._queue: deque[tuple[int, Pending | None, int, Op]] = deque()  # requests that the server has
        self._stalled = False  # the server waits for its leader before it goes on with the queue
        self._arrival = 0.0  # of the last request under way: they arrive in order
        self._return = 0.0  # of the last reply
        self._answered_at = 0.0
        self._proven_at = float("-inf")  # when the last was sent whose answer shows that the session lived then
        self._trap: Literal["request", "reply"] | None = None

    # ------------------------------------------------------------ the client

    def start(self) -> None:
        self._connect_later(0.0)

    @property
    def connected(self) -> bool:
        """Whether the client believes to be connected."""
        return self._connected

    @property
    def waiting(self) -> bool:
        """Whether an answer is under way."""
        return bool(self._pending)

    @property
    def proven_until(self) -> float:
        """Until when its client may take it for alive, by what it was reported: for half of the time-out from its
        begin, or from the sending of the last request whose answer proves that. An account apart from the member's
        own."""
        return self._proven_at + self._timeout / 2

    def submit(self, ops: Sequence[Op], done: Callable[[list[Result]], None]) -> None:
        """As the real one: fails at once while there is no connection."""
        if not self._connected or self._closed:
            done([LOST] * len(ops))
            return
        if not ops:
            done([])
            return
        pending = Pending(ops, done, self._clock.now)
        self._pending[pending] = None
        first = 0
        while first < len(ops):
            # Neighbours often arrive together: what others do may come between any two, but seldom does.
            count = 1 if len(ops) < 4 else self._random.randint(1, 1 + len(ops) // 2)
            self._request([(pending, index, ops[index]) for index in range(first, min(first + count, len(ops)))])
            first += count

    def close(self) -> None:
        """The client ends its session, if it can; whatever comes after is not reported."""
        self._closed = True
        if self.up and self._connected and not self.frozen:
            connection = self._connection

            def arrive() -> None:
                cut_off = self.follower is not None and self.follower.cut_off
                if connection == self._accepted and self.up and not self._server.down and not cut_off:
                    self._server.expire(self.id)

            self._clock.after(self._depart() - self._clock.now, arrive)
        else:
            self._silence()

    def vanish(self) -> None:
        """The process dies. What it has sent may arrive yet."""
        self._closed = True
        self._silence()
        if self._random.random() < 0.5:
            self._accepted = -1

    def _silence(self) -> None:
        """The last that the server hears of it is what it has heard by now."""
        if self._connected and self.up and not self.frozen:
            self._server.heard(self.id)

    def _latency(self) -> float:
        base = self._random.uniform(0.0002, 0.004)
        if self._clock.now < self.slow_until and self._random.random() < 0.15:
            tail = min(2 * self._timeout, 0.05 * self._random.paretovariate(0.6))
            if tail > TAIL:
                self._report("latency", self._clock.now + tail)
            return base + tail
        return base

    def _depart(self) -> float:
        """When what is sent now arrives."""
        self._arrival = max(self._clock.now + self._latency(), self._arrival + 0.00001)
        return self._arrival

    def _connect_later(self, delay: float) -> None:
        if not self._connecting and not self._closed:
            self._connecting = True
            self._clock.after(delay + self._latency(), self._connect)

    def _connect(self) -> None:
        self._connecting = False
        if self._closed or self._connected:
            return
        if not self.up or self.frozen or self._server.down:
            self._connect_later(RETRY)
        elif self.id and self.id not in self._server.sessions:
            self._closed = True
            self._tell(Expired("expired"))
        else:
            if self.id:
                self._server.heard(self.id)
                self._server.forget_watches(self.id)  # of a request that came after the client had given up
            else:
                self.id = self._server.admit(self, self._timeout)
                self._proven_at = self._clock.now  # it was begun by a majority
            self._connection += 1
            self._accepted = self._connection
            self._connected = True
            self._queue.clear()
            self._stalled = False
            self._arrival = self._return = 0.0
            self._answered_at = self._clock.now
            self._watch_over(self._connection)
            self._tell(Connected(self.id, self._timeout))

    def _watch_over(self, connection: int) -> None:
        """Pings, and the end of a connection on which nothing is heard any more."""

        def watch_over() -> None:
            if connection != self._connection or self._closed:
                return
            if not self.frozen:
                if self._clock.now - self._answered_at > self._timeout * 2 / 3:
                    self._disconnected()
                    return
                self._ping(connection)
            self._clock.after(self._timeout / 3, watch_over)

        self._clock.after(self._timeout / 3, watch_over)

    def _ping(self, connection: int) -> None:
        def arrive() -> None:
            if connection == self._accepted and self.up and not self._server.down:
                if self.follower is None or not self.follower.cut_off:
                    self._server.heard(self.id)
                self._clock.after(self._back() - self._clock.now, heard)

        def heard() -> None:
            if connection == self._connection and self.up:
                self._answered_at = self._clock.now

        self._clock.after(self._depart() - self._clock.now, arrive)

    def _disconnected(self, pause: float = 0.0) -> None:
        """The client notices that its connection is gone: nobody knows what became of what was under way. It takes
        ``pause`` seconds before it connects again."""
        if not self._connected:
            return
        self._connected = False
        self._connection += 1
        self.leave_follower()
        self._server.forget_watches(self.id)
        if self._closed:
            return
        self._tell(Disconnected())
        pending, self._pending = self._pending, {}
        for batch in pending:
            self._done(batch)
        self._connect_later(pause)

    # ------------------------------------------------------------ the server

    def _request(self, group: list[tuple[Pending, int, Op]]) -> None:
        connection = self._connection

        def arrive() -> None:
            if connection != self._accepted or not self.up or self._server.down:
                return
            if self.id not in self._server.sessions and self.follower is None:
                return
            if self.follower is None or not self.follower.cut_off:
                self._server.heard(self.id)
            self._queue.extend((connection, pending, index, op) for pending, index, op in group)
            self._work()

        self._clock.after(self._depart() - self._clock.now, arrive)

    def _work(self) -> None:
        """The server answers what has come, in order."""
        answers: list[tuple[Pending, int, Result]] = []
        connection = self._accepted
        while self._queue and not self._stalled:
            connection, pending, index, op = self._queue.popleft()
            assert pending is not None
            trap = self._trap if isinstance(op, WRITES) else None
            if trap == "request":
                self._report("request lost")
                self.reset()
                return
            if self.follower is not None and isinstance(op, READS):
                answers.append((pending, index, self.follower.read(self.id, op)))
                continue
            if self.follower is not None and self.follower.cut_off:
                self._stalled = True
                break
            self._server.sent_at = pending.sent_at
            result = self._server.apply(self.id, op)
            if trap == "reply":
                self._report("reply lost")
                self.reset()
                return
            if self.follower is not None:
                self._stalled = True
                self.follower.when_at(self._server.zxid, self._resume(connection, pending, index, result))
            else:
                answers.append((pending, index, result))
        if answers:
            self._answer(connection, answers)

    def _resume(self, connection: int, pending: Pending, index: int, result: Result) -> Callable[[], None]:
        """A follower answers a write when it has heard of it itself."""

        def resume() -> None:
            if connection == self._accepted:
                self._stalled = False
                self._answer(connection, [(pending, index, result)])
                self._work()

        return resume

    def _back(self) -> float:
        """When what the server sends now arrives."""
        self._return = max(self._clock.now + self._latency(), self._return)
        return self._return

    def _answer(self, connection: int, answers: list[tuple[Pending, int, Result]]) -> None:
        def heard() -> None:
            if connection != self._connection or not self.up:
                return
            self._answered_at = self._clock.now
            for pending, index, result in answers:
                if pending in self._pending:
                    pending.results[index] = result
                    pending.open -= 1
                    if pending.open == 0:
                        del self._pending[pending]
                        self._done(pending)

        self._clock.after(self._back() - self._clock.now, heard)

    def _done(self, pending: Pending) -> None:
        if pending.proves:
            self._proven_at = max(self._proven_at, pending.sent_at)
        pending.done(list(pending.results))

    def watched(self, event: Changed) -> None:
        """The server reports a change: in the order of its answers, but a watch that comes late holds up what is
        behind it."""
        connection = self._connection

        def heard() -> None:
            if connection == self._connection and self.up and not self._closed:
                self._answered_at = self._clock.now
                self._tell(event)

        at = self._back()
        if self._clock.now < self.late_until and self._random.random() < 0.5:
            at = max(at, self._clock.now + min(self._timeout, 0.1 * self._random.paretovariate(0.7)))
            self._report("late watch", at)
        if self.deaf_until > at:
            at = self.deaf_until
            self._report("late watch", at)
        self._return = at
        self._clock.after(at - self._clock.now, heard)

    def server_closed(self) -> None:
        """The session has ended; its server shows the client by closing the connection, when it hears of that."""
        if self.follower is not None:
            if not self.follower.cut_off:
                connection = self._connection
                self._clock.after(self.follower.lag, lambda: self._closed_by_server(connection))
        else:
            self._closed_by_server(self._connection)

    def _closed_by_server(self, connection: int) -> None:
        if connection == self._connection and self.up and not self.frozen:
            self._accepted = -1
            self._disconnected()

    def server_gone(self) -> None:
        """All servers went away."""
        self._accepted = -1
        if self.up and not self.frozen:
            self._disconnected()

    # ------------------------------------------------------------ faults

    def cut(self) -> None:
        """The network swallows everything. Each side notices after a while."""
        if self.up:
            self._silence()
            self.up = False
            connection = self._connection
            self._clock.after(self._timeout * 2 / 3, lambda: self._notice(connection))

    def heal(self) -> None:
        """The network works again; a connection that nobody gave up goes on, but what was sent meanwhile is lost, and
        with it, as TCP would have it, the connection."""
        if not self.up:
            self.up = True
            self._accepted = -1
            self._disconnected()  # until the client is back the server goes on counting

    def _notice(self, connection: int) -> None:
        if not self.up and connection == self._connection:
            self._disconnected()

    def reset(self) -> None:
        """The connection breaks, and both sides notice at once; the client comes back."""
        if self.up and self._connected:
            self._trap = None
            self._silence()
            self._accepted = -1
            self._disconnected()

    def lose(self, what: Literal["request", "reply"]) -> None:
        """The connection breaks when the next write is under way: before the server has it, or after it was applied."""
        self._trap = what

    def freeze(self) -> None:
        """The process is stopped."""
        if not self.frozen:
            self._silence()
            self.frozen = True

    def thaw(self) -> None:
        """The process goes on. If its session has ended, the server has closed its connection meanwhile."""
        self.frozen = False
        self._answered_at = self._clock.now
        if self._closed:
            return
        if (self.id and self.id not in self._server.sessions) or self._accepted != self._connection:
            self._disconnected(self._random.choice((0.0, 0.3, 1.0)))

    def kill(self) -> None:
        """Somebody ends the session on the server, early."""
        self._server.expire(self.id)

    def join_follower(self, lag: float) -> bool:
        """The server turns out to be a follower that lags behind (infinity: that is cut off from its leader)."""
        if self.follower is None and self._connected and self.up and self.id in self._server.sessions:
            self.follower = self._server.follower(self.id, lag)
            return True
        return False

    def leave_follower(self) -> None:
        """The follower has caught up, and is like any other; one that was cut off drops its clients."""
        follower = self.follower
        if follower is None:
            return
        if not follower.cut_off:
            follower.catch_up()  # and answers what waits in its own order: no answer comes before an older event
        self.follower = None
        self._server.dismiss(follower)
        if follower.cut_off:
            self._queue.clear()
            self._accepted = -1
            if self.up and not self.frozen:
                self._disconnected()
        elif self._connected:
            self._server.give_watches(self.id, follower.take_watches(self.id))
