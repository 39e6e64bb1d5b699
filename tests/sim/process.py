"""What befalls a process of a group, whichever client it runs: signals, and the network between it and ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from sim.brokers import Brokers
from sim.clock import Clock
from sim.network import SimSession
from sim.sim_reader import SimReader
from sim.sim_server import SimServer
from sim.wire import Report
from zkgroup.protocol.operations import SessionEvent


class SimProcess:
    """One process: its session, its reader. ``log`` is what it would have logged."""

    reader: SimReader
    has_given_way = False  # left, as another session owned its id

    def __init__(
        self,
        clock: Clock,
        random: Random,
        server: SimServer,
        brokers: Brokers,
        name: str,
        session_timeout: float,
        report: Report,
    ) -> None:
        self.name = name
        self.session: SimSession | None = None
        self.finished = self.dead = self.frozen = False
        self.error: Exception | None = None
        self.log: list[str] = []
        self.up = True
        self.slow_until = self.late_until = 0.0
        self._clock = clock
        self._random = random
        self._server = server
        self._brokers = brokers
        self._timeout = session_timeout
        self._report = report
        self._inbox: list[Callable[[], None]] = []

    def kill(self) -> None:
        """The process is gone."""
        self.dead = self.finished = self.reader.dead = True
        if self.session is not None:
            self.session.vanish()

    def freeze(self) -> None:
        """SIGSTOP."""
        self.frozen = self.reader.frozen = True
        if self.session is not None:
            self.session.freeze()

    def thaw(self) -> None:
        """SIGCONT."""
        if self.frozen and not self.dead:
            self.frozen = self.reader.frozen = False
            if self.session is not None:
                self.session.thaw()
            inbox, self._inbox = self._inbox, []
            for what in inbox:
                what()
            self._woken()

    def _woken(self) -> None:
        """It runs again, and has done what had waited."""

    def cut(self) -> None:
        """The network swallows all between this process and ZooKeeper."""
        self.up = False
        if self.session is not None:
            self.session.cut()

    def heal(self) -> None:
        """It carries again."""
        self.up = True
        if self.session is not None:
            self.session.heal()

    def slow(self, until: float) -> None:
        """Messages between this process and ZooKeeper may take very long."""
        self.slow_until = until
        if self.session is not None:
            self.session.slow_until = until

    def late(self, until: float) -> None:
        """Watch events may take very long."""
        self.late_until = until
        if self.session is not None:
            self.session.late_until = until

    def deaf(self, until: float) -> None:
        """No watch event comes before."""
        if self.session is not None:
            self.session.deaf_until = until

    def _later(self, what: Callable[[], None]) -> None:
        """Now, or when the process runs again."""
        if self.frozen:
            self._inbox.append(what)
        else:
            what()

    def _open_session(self, tell: Callable[[SimSession, SessionEvent], None]) -> None:
        session = SimSession(
            self._clock,
            self._random,
            self._server,
            lambda event: tell(session, event),
            self._timeout,
            self._report,
        )
        self.session = session
        session.up = self.up
        session.slow_until, session.late_until = self.slow_until, self.late_until
        session.start()
