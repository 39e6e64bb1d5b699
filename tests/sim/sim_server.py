"""The servers' side: when sessions end, servers that are away, and followers that lag behind their leader."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from sim.clock import Clock
from sim.zookeeper import Change, ModelZooKeeper, Tree, parent_of
from zkgroup.protocol.operations import Changed


class Client(Protocol):
    """The client's side of a session, as far as the servers know it."""

    def watched(self, event: Changed) -> None:
        """A watched node has changed."""

    def server_closed(self) -> None:
        """The session has ended."""

    def server_gone(self) -> None:
        """All servers went away, connections and all."""


class SimServer(ModelZooKeeper):
    """An ensemble as its clients see it: one tree, and a clock for each session.

    A session ends when nothing was heard of it for its time-out, at the next tick (``tick`` = 0: at once), as a leader
    does that reads its buckets of sessions once a tick.
    """

    def __init__(self, clock: Clock, tick: float = 0.0) -> None:
        super().__init__(lambda: clock.now)
        self.down = False
        self.sent_at = 0.0  # when what is being applied was sent
        self.publish = self._publish
        self.tell = self._tell
        self._clock_ = clock
        self._tick = tick
        self._heard: dict[int, float] = {}
        self._timeouts: dict[int, float] = {}
        self._clients: dict[int, Client] = {}
        self._followers: dict[Follower, None] = {}

    def admit(self, client: Client, timeout: float) -> int:
        """A new session for a client, which must be heard of from now on."""
        session = self.open_session()
        self._timeouts[session] = timeout
        self._clients[session] = client
        self.heard(session)
        self._clock_.after(timeout, lambda: self._check(session))
        return session

    def _tell(self, session: int, event: Changed) -> None:
        if session in self._clients:
            self._clients[session].watched(event)

    def heard(self, session: int) -> None:
        """The session has sent something."""
        if session in self.sessions:
            self._heard[session] = self._clock_.now

    def expire(self, session: int) -> None:
        """The session ends, and its client's connection is closed."""
        if session in self.sessions:
            self.end_session(session)
            client = self._clients.pop(session, None)
            self._heard.pop(session, None)
            self._timeouts.pop(session, None)
            if client is not None:
                client.server_closed()

    def _check(self, session: int) -> None:
        if session not in self.sessions:
            return
        now, due = self._clock_.now, self._heard[session] + self._timeouts[session]
        if self._tick:
            due = (math.floor(due / self._tick) + 1) * self._tick
        if now >= due and not self.down:
            self.expire(session)
        else:
            self._clock_.after(max(due - now, 0.01), lambda: self._check(session))

    # ------------------------------------------------------------ servers that are away

    def stop(self) -> None:
        """No server answers any more."""
        if not self.down:
            self.down = True
            for client in list(self._clients.values()):
                client.server_gone()

    def start(self) -> None:
        """They are back. A new leader gives every session its whole time-out."""
        if self.down:
            self.down = False
            for session in self.sessions:
                self._heard[session] = self._clock_.now

    # ------------------------------------------------------------ followers

    def follower(self, session: int, lag: float) -> Follower:
        """From now on the session's server is one that hears of changes ``lag`` seconds late (infinity: never)."""
        follower = Follower(self, self._clock_, lag)
        follower.give_watches(session, self.take_watches(session))
        self._followers[follower] = None
        return follower

    def dismiss(self, follower: Follower) -> None:
        """Nobody is connected to it any more."""
        self._followers.pop(follower, None)

    def _publish(self, zxid: int, changes: Sequence[Change]) -> None:
        for follower in self._followers:
            follower.hear(zxid, changes)


class Follower(Tree):
    """A server that hears of changes late. ``cut_off``: its leader does not hear of it either."""

    def __init__(self, leader: SimServer, clock: Clock, lag: float) -> None:
        super().__init__()
        self.nodes = {path: replace(node, children=dict(node.children)) for path, node in leader.nodes.items()}
        self.tell = leader.tell
        self.lag = lag
        self.cut_off = math.isinf(lag)
        self._zxid = leader.zxid
        self._clock = clock
        self._queue: deque[tuple[int, Sequence[Change]]] = deque()
        self._waiting: list[tuple[int, Callable[[], None]]] = []

    def hear(self, zxid: int, changes: Sequence[Change]) -> None:
        """The leader has decided."""
        self._queue.append((zxid, changes))
        if not self.cut_off:
            self._clock.after(self.lag, self._next)

    def when_at(self, zxid: int, what: Callable[[], None]) -> None:
        """Do ``what`` once this transaction is known here."""
        if self._zxid >= zxid:
            what()
        else:
            self._waiting.append((zxid, what))

    def catch_up(self) -> None:
        """Hear of all that was decided, now."""
        while self._queue:
            self._next()

    def _next(self) -> None:
        if not self._queue:
            return
        self._zxid, changes = self._queue.popleft()
        for change in changes:
            self._apply(change, self._zxid)
        due = [what for zxid, what in self._waiting if zxid <= self._zxid]
        self._waiting = [(zxid, what) for zxid, what in self._waiting if zxid > self._zxid]
        for what in due:
            what()

    def _apply(self, change: Change, zxid: int) -> None:
        parent, name = self.nodes[parent_of(change.path)], change.path.rpartition("/")[2]
        if change.after is None:
            del self.nodes[change.path]
            del parent.children[name]
            parent.pzxid = zxid
        elif change.before is None:
            self.nodes[change.path] = replace(change.after, children={}, pzxid=zxid)
            parent.children[name] = None
            parent.pzxid = zxid
        else:
            mine = self.nodes[change.path]
            self.nodes[change.path] = replace(change.after, children=mine.children, pzxid=mine.pzxid)
        self._fire(change)
