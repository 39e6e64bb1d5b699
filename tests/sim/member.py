"""A member's machine driven in virtual time, as ``zkgroup.connector.zookeeper_driver`` drives it in real time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from random import Random

from sim.brokers import Brokers
from sim.clock import Clock
from sim.process import SimProcess
from sim.sim_reader import SimReader
from sim.sim_server import SimServer
from sim.wire import Report, nobody
from zkgroup.errors import RebalanceFailedError, ZkgroupError
from zkgroup.protocol import events as ev
from zkgroup.protocol.ledger import Run
from zkgroup.protocol.member import TRANSITIONS, Member, MemberSettings, Phase
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.offset_versions import CommitError
from zkgroup.protocol.operations import Op
from zkgroup.protocol.znodes import Registration


class CheckedMember(Member):
    """A member that may only go where the table of its states lets it."""

    seen: set[tuple[Phase, Phase]] = set()  # of all members of a test run  # noqa: RUF012
    gave_up_registering = False

    def _enter(self, phase: Phase) -> None:
        assert phase in TRANSITIONS[self.phase], f"no transition {self.phase} → {phase}"
        self.seen.add((self.phase, phase))
        if self.phase is Phase.REGISTERING:
            self.gave_up_registering = phase in (Phase.RELEASING, Phase.CLOSED)
        super()._enter(phase)


class SimMember(SimProcess):
    """The machine in its process."""

    ours = True

    def __init__(
        self,
        clock: Clock,
        random: Random,
        server: SimServer,
        brokers: Brokers,
        settings: MemberSettings,
        *,
        sending: Callable[[SimMember, Sequence[Op]], None] = lambda member, ops: None,
        delivered: Callable[[SimMember, Run], None] = lambda member, run: None,
        consumed: Callable[[SimMember, Run], None] = lambda member, run: None,
        jumped: Callable[[TopicPartition, int], None] = lambda partition, offset: None,
        committed: Callable[[SimMember, int, Mapping[TopicPartition, int]], None] = lambda *message: None,
        report: Report = nobody,
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        super().__init__(clock, random, server, brokers, settings.consumer_id, settings.session_timeout, report)
        self.member = CheckedMember(settings)
        self.warnings: list[str] = []
        self.asked: set[int] = set()
        self.committed: dict[int, Exception | None] = {}
        self.notices: list[tuple[str, tuple[TopicPartition, ...]]] = []
        self.grants: list[ev.Assign] = []
        self.listener_delay = 0.0
        self.listener_commits = False  # it commits, and waits for that
        self._sending = sending
        self._committed = committed
        self._note = note
        self._wake_at = float("inf")
        self._listening: dict[int, int] = {}  # tokens that a listener waits for, and the request it was called with
        self._asked_at = 0.0
        self.waits_since = clock.now  # for a first connection, or for its share; never, while it owns that
        self.reader = SimReader(
            clock,
            random,
            brokers,
            lambda: self.member.lease.is_valid(clock.now),
            lambda run: delivered(self, run),
            lambda run: consumed(self, run),
            jumped,
        )

    # ------------------------------------------------------------ what happens to it

    def start(self) -> None:
        self.post(ev.Start())

    def leave(self) -> None:
        self.post(ev.Leave())

    def commit(self, token: int) -> None:
        self.asked.add(token)
        self.post(ev.CommitRequested(token))

    def _woken(self) -> None:
        self._handle(ev.Tick())

    @property
    def has_given_way(self) -> bool:  # type: ignore[override]
        """Whether it has left, as another session owned its id for longer than it waits."""
        return self.member.gave_up_registering and isinstance(self.error, RebalanceFailedError)

    @property
    def registration(self) -> Registration:
        """What it subscribes to."""
        return self.member.settings.registration

    @property
    def settled(self) -> bool:
        """Whether it looks after its share, and reads all of it."""
        member = self.member
        return (
            member.phase is Phase.OWNING
            and not member.held_back
            and not self.frozen
            and self.up
            and self.reader.ledger.generation is not None
        )

    @property
    def state(self) -> str:
        """For people."""
        return "dead" if self.dead else "finished" if self.finished else self.member.phase.value

    # ------------------------------------------------------------ the driver

    def post(self, event: ev.MemberEvent) -> None:
        """Events come through a queue, one after the other."""
        self._clock.after(0.0, lambda: self._later(lambda: self._handle(event)))

    def _handle(self, event: ev.MemberEvent) -> None:
        if self.finished:
            if isinstance(event, ev.CommitRequested):
                self.committed[event.token] = self.error
            return
        for action in self.member.handle(event, self._clock.now):
            self._perform(action)
        if self.member.phase is Phase.OWNING:
            self.waits_since = float("inf")
        elif not self.finished:
            self.waits_since = min(self.waits_since, self._clock.now)
        self._set_alarm()

    def _set_alarm(self) -> None:
        if self.finished or self.member.wake_at == float("inf"):
            self._wake_at = float("inf")
        elif self.member.wake_at != self._wake_at:
            at = self._wake_at = self.member.wake_at

            def ring() -> None:
                if self._wake_at == at:
                    self._wake_at = float("inf")
                    self._later(lambda: self._handle(ev.Tick()))

            self._clock.after(at - self._clock.now, ring)

    def _perform(self, action: ev.MemberAction) -> None:
        match action:
            case ev.OpenSession(epoch):
                self._open_session(lambda _, message: self.post(ev.FromSession(epoch, message)))
            case ev.CloseSession():
                if self.session is not None:
                    self.session.close()
                    self.session = None
            case ev.Send(request, _, ops):
                sent_at = self._clock.now
                assert self.session is not None, "sent without a session"
                self._sending(self, ops)  # the driver reads the lease once more: here no time has gone by
                self.session.submit(ops, lambda results: self.post(ev.Reply(request, results, sent_at)))
            case ev.Pause(generation, abandon):
                self.reader.pause(
                    lambda: self.post(ev.Paused(generation, self.reader.ledger.consumed())), abandon=abandon
                )
            case ev.Assign(generation, share):
                self.grants.append(action)
                self.reader.assign(generation, {partition: offset for partition, (_, offset) in share.items()})
            case ev.AssignMore(generation, share):
                self.reader.assign_more(generation, {partition: offset for partition, (_, offset) in share.items()})
            case ev.Collect():
                self.post(ev.Collected(self.member.generation, self.reader.ledger.consumed()))
            case ev.ListOffsets(request, partitions, reset):
                self._ask(request, lambda: self._brokers.look_up(partitions, reset))
            case ev.FetchKafkaOffsets(request, partitions):
                self._ask(request, lambda: self._brokers.fetch(partitions))
            case ev.CommitKafkaOffsets(request, offsets):
                epoch, session = self.member.epoch, self.member.session_id
                self._ask(request, lambda: self._commit_kafka(offsets, epoch, session))
            case ev.Notify(request, what, threads):
                self.notices.append((what, tuple(sorted(threads))))
                self._clock.after(self.listener_delay, lambda: self._listen(request))
            case ev.Committed(token, error):
                assert token not in self.committed, "answered twice"
                self.committed[token] = error
                if (listening := self._listening.pop(token, None)) is not None:
                    self.post(ev.Answered(listening, {}))
            case ev.Log(level, text):
                self.log.append(str(text))
                if level >= logging.WARNING:
                    self.warnings.append(str(text))
                self._note(f"{self.name}: {text}")
            case ev.Finished(error):
                assert not self.finished, "finished twice"
                self.finished = self.reader.dead = True
                self.error = error

    def _listen(self, request: int) -> None:
        """The listener has done what it does besides commits."""
        if not self.listener_commits or self.finished:
            self.post(ev.Answered(request, {}))
            return
        token = -request
        self.asked.add(token)
        self._listening[token] = request
        self.post(ev.CommitRequested(token, request))

    def _ask(self, request: int, work: Callable[[], dict[TopicPartition, int | None]]) -> None:
        def answer() -> ev.MemberEvent:
            try:
                return ev.Answered(request, {} if self.dead else work())
            except ZkgroupError as error:
                return ev.Answered(request, {}, error)

        # One thread asks one thing after the other; one that is stopped, when it goes on.
        at = max(self._clock.now, self._asked_at) + self._random.uniform(0.001, 0.02)
        if self._clock.now < self._brokers.slow_until and self._random.random() < 0.3:
            at += self._random.uniform(0.5, 1.7 * self.member.settings.session_timeout)
            self._report("slow answer of a broker", at)
        self._asked_at = at
        self._clock.after(at - self._clock.now, lambda: self._later(lambda: self._handle(answer())))

    def _commit_kafka(
        self, offsets: Mapping[TopicPartition, int], epoch: int, session: int
    ) -> dict[TopicPartition, int | None]:
        # As late as the driver looks.
        if not self.member.has_lease(epoch, self._clock.now):
            raise CommitError("the lease on the session ran out before the commit to Kafka")
        self._brokers.commit(offsets)
        self._committed(self, session, offsets)
        return {}
