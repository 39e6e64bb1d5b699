"""A member's machine driven in virtual time, as ``zkgroup.connector.driver`` drives it in real time."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from sim.brokers import Brokers
from sim.clock import Clock
from sim.network import SimSession
from sim.reader import SimReader
from sim.zookeeper import ModelZooKeeper
from zkgroup.errors import ZkgroupError
from zkgroup.protocol import events as ev
from zkgroup.protocol.ledger import Run
from zkgroup.protocol.member import TRANSITIONS, Member, MemberSettings, Phase
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.ops import SessionEvent


class CheckedMember(Member):
    """A member that may only go where the table of its states lets it."""

    seen: set[tuple[Phase, Phase]] = set()  # of all members of a test run  # noqa: RUF012

    def _enter(self, phase: Phase) -> None:
        assert phase in TRANSITIONS[self.phase], f"{self.phase} → {phase} is not in the table"
        self.seen.add((self.phase, phase))
        super()._enter(phase)


class SimMember:
    """One process: the machine, its session, its reader. ``log`` is what it would have logged."""

    def __init__(
        self,
        clock: Clock,
        random: Random,
        server: ModelZooKeeper,
        brokers: Brokers,
        settings: MemberSettings,
        *,
        handed_out: Callable[[SimMember, Run], None] = lambda member, run: None,
        consumed: Callable[[SimMember, Run], None] = lambda member, run: None,
    ) -> None:
        self.name = settings.consumer_id
        self.member = CheckedMember(settings)
        self.session: SimSession | None = None
        self.finished = False
        self.error: Exception | None = None
        self.frozen = False
        self.dead = False
        self.log: list[str] = []
        self.asked: set[int] = set()
        self.committed: dict[int, Exception | None] = {}
        self.notices: list[tuple[str, tuple[TopicPartition, ...]]] = []
        self.grants: list[ev.Grant] = []
        self.listener_delay = 0.0
        self.listener_commits = False  # it commits, and waits for that
        self.up = True
        self._clock = clock
        self._random = random
        self._server = server
        self._brokers = brokers
        self._inbox: list[Callable[[], ev.Event]] = []
        self._wake_at = float("inf")
        self._noisy = False
        self._listening: dict[int, int] = {}  # tokens that a listener waits for, and the request it was called with
        self.reader = SimReader(
            clock,
            random,
            brokers,
            lambda: self.member.lease.holds(clock.now),
            lambda run: handed_out(self, run),
            lambda run: consumed(self, run),
        )

    # ------------------------------------------------------------ what happens to it

    def start(self) -> None:
        self.post(ev.Start())

    def leave(self) -> None:
        self.post(ev.Leave())

    def commit(self, token: int) -> None:
        self.asked.add(token)
        self.post(ev.CommitAsked(token))

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
            for event in inbox:
                self._handle(event())
            self._handle(ev.Tick())

    def cut(self) -> None:
        """The network swallows all between this member and ZooKeeper."""
        self.up = False
        if self.session is not None:
            self.session.cut()

    def heal(self) -> None:
        self.up = True
        if self.session is not None:
            self.session.heal()

    # ------------------------------------------------------------ the driver

    def post(self, event: ev.Event) -> None:
        """Events come through a queue, one after the other."""
        self._clock.after(0.0, lambda: self._later(lambda: event))

    def _later(self, event: Callable[[], ev.Event]) -> None:
        if self.frozen:
            self._inbox.append(event)
        else:
            self._handle(event())

    def _handle(self, event: ev.Event) -> None:
        if self.finished:
            if isinstance(event, ev.CommitAsked):
                self.committed[event.token] = self.error
            return
        for action in self.member.handle(event, self._clock.now):
            self._perform(action)
        self._set_alarm()

    def _set_alarm(self) -> None:
        if self.finished or self.member.wake_at == float("inf"):
            self._wake_at = float("inf")
        elif self.member.wake_at != self._wake_at:
            at = self._wake_at = self.member.wake_at

            def ring() -> None:
                if self._wake_at == at:
                    self._wake_at = float("inf")
                    self._later(ev.Tick)

            self._clock.after(at - self._clock.now, ring)

    def _perform(self, action: ev.Action) -> None:
        match action:
            case ev.OpenSession(epoch):
                self._open(epoch)
            case ev.CloseSession():
                if self.session is not None:
                    self.session.close()
                    self.session = None
            case ev.Send(request, _, ops):
                sent_at = self._clock.now
                assert self.session is not None, "sent without a session"
                self.session.submit(ops, lambda results: self.post(ev.Reply(request, results, sent_at)))
            case ev.Quiet(generation, abandon):
                self.reader.quiet(
                    lambda: self.post(ev.Quieted(generation, self.reader.ledger.consumed())), abandon=abandon
                )
            case ev.Grant(generation, share):
                self.grants.append(action)
                self.reader.grant(generation, {partition: offset for partition, (_, offset) in share.items()})
            case ev.Extend(generation, share):
                self.reader.extend(generation, {partition: offset for partition, (_, offset) in share.items()})
            case ev.Collect():
                self.post(ev.Collected(self.member.generation, self.reader.ledger.consumed()))
            case ev.LookUp(request, partitions, reset):
                self._ask(request, lambda: self._brokers.look_up(partitions, reset))
            case ev.FetchKafka(request, partitions):
                self._ask(request, lambda: self._brokers.fetch(partitions))
            case ev.CommitKafka(request, offsets):
                self._ask(request, lambda: self._brokers.commit(offsets) or {})
            case ev.Notify(request, what, threads):
                self.notices.append((what, tuple(sorted(threads))))
                self._clock.after(self.listener_delay, lambda: self._listen(request))
            case ev.Committed(token, error):
                assert token not in self.committed, "answered twice"
                self.committed[token] = error
                if (listening := self._listening.pop(token, None)) is not None:
                    self.post(ev.Answered(listening, {}))
            case ev.Log(_, text):
                self.log.append(text)
            case ev.Finished(error):
                assert not self.finished, "finished twice"
                self.finished = self.reader.dead = True
                self.error = error

    def _open(self, epoch: int) -> None:
        def tell(event: SessionEvent) -> None:
            self.post(ev.FromSession(epoch, event))

        self.session = SimSession(self._clock, self._random, self._server, tell, self.member.settings.session_timeout)
        self.session.up = self.up
        self.session.start()

    def _listen(self, request: int) -> None:
        """The listener has done what it does beside commits."""
        if not self.listener_commits or self.finished:
            self.post(ev.Answered(request, {}))
            return
        token = -request
        self.asked.add(token)
        self._listening[token] = request
        self.post(ev.CommitAsked(token, request))

    def _ask(self, request: int, work: Callable[[], dict[TopicPartition, int | None]]) -> None:
        def answer() -> None:
            try:
                self.post(ev.Answered(request, work()))
            except ZkgroupError as error:
                self.post(ev.Answered(request, {}, error))

        self._clock.after(self._random.uniform(0.001, 0.02), answer)
