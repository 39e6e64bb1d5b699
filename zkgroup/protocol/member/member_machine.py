"""The way into a member and out of it; its sessions; leaving."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from zkgroup.errors import SessionLostError, UnreachableError
from zkgroup.protocol import events as ev
from zkgroup.protocol import procedures as do
from zkgroup.protocol import znodes
from zkgroup.protocol.assignors import Assignment
from zkgroup.protocol.lease import Lease
from zkgroup.protocol.member.acquisition import Acquiring
from zkgroup.protocol.member.commits import Commits
from zkgroup.protocol.member.leave_deadline import UNCOMMITTED, Leaving
from zkgroup.protocol.member.member_context import Ground
from zkgroup.protocol.member.member_settings import Counters, MemberSettings
from zkgroup.protocol.member.offset_loading import Starts
from zkgroup.protocol.member.owned_share import Owning
from zkgroup.protocol.member.phases import Phase
from zkgroup.protocol.member.registration import Registering
from zkgroup.protocol.member.release import Releasing
from zkgroup.protocol.names import ConsumerThreadId, TopicPartition, session_text
from zkgroup.protocol.operations import Changed, Connected, Disconnected, Expired, SessionEvent


class Member:
    """The state machine. Its properties may be read by anyone; ``handle`` is called by one thread."""

    def __init__(self, settings: MemberSettings) -> None:
        self.settings = settings
        self.epoch = 0
        self.error: Exception | None = None
        self._brokers_changed = False  # since the look for them began
        g = self._ground = Ground(settings, self._enter)
        g.stop = self._give_up
        self._commits = Commits(g)
        self._leaving = Leaving(g, self._too_late)
        self._registering = Registering(g, self._registered, self._fatal)
        self._releasing = Releasing(g, self._commits, self._released, self._release_failed, self._uncommitted)
        self._acquiring = Acquiring(
            g,
            started=self._started,
            unregistered=self._registering.begin,
            again=self._look,
            outdated=self._releasing.release,
            failed=self._fatal,
        )
        self._owning = Owning(g, self._commits, self._acquiring)

    # ------------------------------------------------------------ what can be seen

    @property
    def phase(self) -> Phase:
        """Where the member is."""
        return self._ground.phase

    @property
    def generation(self) -> int:
        """Counts grants and fences."""
        return self._ground.generation

    @property
    def session_id(self) -> int:
        """The ZooKeeper session's id; 0 before the first."""
        return self._ground.session_id

    @property
    def share(self) -> Mapping[TopicPartition, ConsumerThreadId]:
        """What is claimed now."""
        return self._ground.holdings.share

    @property
    def held(self) -> Mapping[TopicPartition, str]:
        """What is claimed and not read, and why."""
        return self._owning.held

    @property
    def plan(self) -> Assignment:
        """The whole group's assignment, as last computed."""
        return self._acquiring.plan

    @property
    def counters(self) -> Counters:
        """What was done so far."""
        return self._ground.counters

    @property
    def lease(self) -> Lease:
        """Whether messages may be handed out."""
        return self._ground.talk.lease

    def believes_in(self, epoch: int, now: float) -> bool:
        """Whether the session numbered ``epoch`` is the one that lives, and its lease holds: what was begun under an
        older one must not be done any more, however well the next one is."""
        return epoch == self.epoch and self.lease.holds(now)

    @property
    def wake_at(self) -> float:
        """When ``Tick`` is due, on the machine's clock; infinity if never."""
        return min(self._ground.talk.wake_at, self._ground.timers.next)

    # ------------------------------------------------------------ in and out

    def handle(self, event: ev.Event, now: float) -> list[ev.Action]:
        """Take one event; returns what to do, in order. ``now`` is a monotonic clock that runs during sleep."""
        g = self._ground
        g.now = g.talk.now = now
        g.out = []
        if g.phase is not Phase.CLOSED:
            self._take(event)
            g.talk.tick()
            g.timers.fire(now)
            self._advance()
        elif isinstance(event, ev.CommitAsked):
            self._commits.ask(event.token)
            self._commits.refuse(self._left())
        return g.out

    def _enter(self, phase: Phase) -> None:
        self._ground.phase = phase

    def _take(self, event: ev.Event) -> None:
        g = self._ground
        match event:
            case ev.Start():
                g.timers.set("connect", g.now + self.settings.connect_timeout, self._unreachable)
                self._open_session()
            case ev.FromSession(epoch, told):
                if epoch == self.epoch:
                    self._hear(told)
            case ev.Reply():
                g.talk.reply(event)
            case ev.Answered():
                g.answered(event)
            case ev.Quieted():
                self._releasing.quieted(event)
            case ev.Collected():
                self._owning.collected(event)
            case ev.CommitAsked(token, None):
                self._commits.ask(token)
            case ev.CommitAsked(token, int(during)):
                self._commits.ask_during(during, token)
            case ev.StreamFailed(error):
                self._begin_leaving(error)
            case ev.Leave(at_once, commit):
                g.discarding = g.discarding or not commit
                self._begin_leaving(None)
                if at_once:
                    self.error = self.error or SessionLostError("left at once", UNCOMMITTED)
                    g.timers.hasten("leave", g.now)
            case ev.Tick():
                pass

    def _advance(self) -> None:
        """Act on flags, where the phase allows it."""
        g = self._ground
        if g.leaving and self._may_break_off():
            self._give_up()
        elif g.phase is Phase.BACKING_OFF and (g.dirty or g.unsure):
            self._acquiring.retry_soon()
        elif g.phase is Phase.NOTIFYING:
            self._releasing.advance()
        elif g.phase is Phase.STARTING and self._commits.asked:
            self._commits.nothing()  # whoever asks may be the listener that is waited for
        elif g.phase is Phase.OWNING and g.idle and g.talk.connected:
            if g.dirty:
                g.log(logging.INFO, f"rebalancing: {g.dirty}")
                self._look()
            else:
                self._owning.advance()

    def _may_break_off(self) -> bool:
        """Whether one who leaves may drop what is under way: it waits for time, for another's node, for the brokers;
        or it looks after a share that is to be given up, which begins without a connection, too."""
        g = self._ground
        return (
            g.phase in (Phase.WAITING, Phase.BACKING_OFF)
            or (g.phase is Phase.LOADING and g.asking)
            or (g.phase is Phase.OWNING and (g.idle or not g.talk.connected))
        )

    # ------------------------------------------------------------ the session

    def _open_session(self) -> None:
        self.epoch += 1
        self._ground.counters.sessions += 1
        self._enter(Phase.CONNECTING)
        self._ground.do(ev.OpenSession(self.epoch))

    def _hear(self, event: SessionEvent) -> None:
        g = self._ground
        match event:
            case Connected(session_id, timeout, server):
                self._connected(session_id, timeout, server)
            case Disconnected(server):
                where = _at(server)
                g.log(logging.WARNING, f"connection to ZooKeeper{where} lost")
                g.talk.disconnect()
                self._leaving.disconnected()
                g.holdings.doubt_all()
                self._acquiring.known.forget()
            case Expired(reason, is_refused):
                self._expired(reason, is_refused)
            case Changed(path):
                self._changed(path)

    def _connected(self, session_id: int, timeout: float, server: str) -> None:
        g = self._ground
        g.session_id = session_id
        g.talk.connect(self.epoch, timeout)
        self._leaving.connected()
        if g.phase is Phase.CONNECTING:
            g.timers.cancel("connect")
            self._registering.begin()
            return
        g.log(logging.INFO, f"reconnected to ZooKeeper{_at(server)} under session {session_text(session_id)}")
        # Watches were lost, and with them what they would have told.
        g.unsure = True
        self._acquiring.known.forget()
        if g.no_broker:
            g.dirty = g.dirty or "brokers may have come while disconnected"
        # Servers that were restarted give every session its whole time-out again, the one in our way, too.
        self._registering.forget()
        self._registering.look_again()
        self._acquiring.retry_soon()

    def _expired(self, reason: str, is_refused: bool) -> None:
        """Everything of this session is void: others may own our share already."""
        g = self._ground
        uncommitted = self.settings.auto_commit and not g.discarding and (g.granted or g.phase is Phase.COMMITTING)
        g.abandon()
        g.do(ev.CloseSession(self.epoch))
        self._forget()
        lost = SessionLostError(f"ZooKeeper session {reason} before everything was committed", "it will be read again")
        if is_refused:
            self._finish(UnreachableError("ZooKeeper refuses our credentials", "check user and password"))
        elif g.leaving:
            # All that could be committed was; the end of the session releases the rest.
            self._finish(self.error or (lost if uncommitted else None))
        else:
            self._commits.refuse(lost)
            g.log(logging.WARNING, f"ZooKeeper session {session_text(g.session_id)} {reason}: joining again")
            self._open_session()

    def _forget(self) -> None:
        """Forget all that was under way, and all that is owned."""
        g = self._ground
        g.talk.end()
        g.drop()
        g.timers.cancel_all_but("leave", "connect")
        g.granted = False
        g.holdings.forget()
        g.book.forget()
        g.dirty, g.unsure, g.no_broker = "", False, False
        self._registering.forget()
        self._acquiring.forget()
        self._owning.forget()

    def _changed(self, path: str) -> None:
        g, group = self._ground, self.settings.group
        self._acquiring.known.changed(path)
        if self._acquiring.unblocked(path):
            return
        if path.startswith(znodes.owners(group) + "/"):
            # Also told, late, of nodes that we deleted ourselves and have created anew: look before acting.
            topic, _, number = path.removeprefix(znodes.owners(group) + "/").rpartition("/")
            if number.isdecimal():
                g.holdings.doubt((TopicPartition(topic, int(number)),))
        elif path == self._registering.path and g.phase is Phase.WAITING:
            self._registering.look_again()
        elif path.startswith(znodes.topics()):
            g.unsure = True  # a list of topics, or of replicas: often nothing that changes our plan
        elif path != znodes.broker_ids():
            g.dirty = g.dirty or _what_changed(path, group)
        elif g.phase is Phase.LOOKING:
            self._brokers_changed = True  # perhaps between the answers of the look that is under way
        elif g.no_broker:
            g.dirty = g.dirty or "a broker came"

    def _unreachable(self) -> None:
        if self._ground.phase is Phase.CONNECTING:
            self._ground.do(ev.CloseSession(self.epoch))
            self._finish(
                UnreachableError(
                    f"ZooKeeper gave no answer within {self.settings.connect_timeout:g} s",
                    "check the address, and that the server runs",
                )
            )

    # ------------------------------------------------------------ round and round

    def _registered(self) -> None:
        g = self._ground
        g.log(logging.INFO, f"is in group {self.settings.group}, under ZooKeeper session {session_text(g.session_id)}")
        self._acquiring.attempts.begin(self._ground.now)
        self._look()

    def _look(self) -> None:
        """Is there any broker? Without one nothing is read anyway, and what is owned is kept."""
        g = self._ground
        g.enter(Phase.LOOKING)
        if g.dirty:
            # A changed group is a new rebalance: what failed before proves nothing.
            self._acquiring.attempts.begin(g.now)
        g.dirty = ""
        g.timers.cancel("retry")
        self._look_for_brokers()

    def _look_for_brokers(self) -> None:
        self._brokers_changed = False
        self._ground.talk.run(do.any_broker, self._looked, self._fatal)

    def _looked(self, found: bool) -> None:
        g = self._ground
        known, g.no_broker = g.no_broker, not found
        if found or g.leaving:
            self._releasing.begin()
            return
        if self._brokers_changed:
            self._look_for_brokers()
            return
        if not known:
            when = "any more" if g.holdings.share else "yet"
            g.log(logging.WARNING, f"no broker is registered {when}: waiting")
        self._owning.resume()

    def _released(self) -> None:
        self._owning.forget()
        if self._ground.leaving:
            self._unregister()
        else:
            self._acquiring.begin()

    def _started(self, starts: Starts) -> None:
        self._owning.begin(starts)

    # ------------------------------------------------------------ leaving

    def _begin_leaving(self, error: Exception | None) -> None:
        g = self._ground
        if g.leaving:
            return
        g.leaving = True
        self.error = error
        self._leaving.begin()
        if g.phase in (Phase.NEW, Phase.CONNECTING):
            if g.phase is Phase.CONNECTING:
                g.do(ev.CloseSession(self.epoch))
            self._finish(error)

    def _give_up(self) -> None:
        self._releasing.begin()

    def _fatal(self, error: Exception) -> None:
        """The member cannot go on: leave, and say why. From steps only that have claimed, committed or read nothing
        that could not be given up in the ordinary way."""
        g = self._ground
        self._begin_leaving(error)
        self.error = self.error or error
        if g.phase is not Phase.CLOSED:
            self._give_up()

    def _uncommitted(self, error: Exception) -> None:
        if self._ground.leaving:
            self.error = self.error or error

    def _release_failed(self, error: Exception) -> None:
        """Without the right to delete what we created nothing but the end of the session releases it."""
        self._begin_leaving(error)
        self.error = self.error or error
        self._unregister()

    def _unregister(self) -> None:
        g, s = self._ground, self.settings
        g.enter(Phase.UNREGISTERING)
        g.talk.run(
            lambda: do.unregister(s.group, s.consumer_id, g.session_id),
            lambda _: self._unregistered(),
            lambda _: self._unregistered(),
        )

    def _unregistered(self) -> None:
        self._ground.log(logging.INFO, f"has left group {self.settings.group}")
        self._ground.do(ev.CloseSession(self.epoch))
        self._finish(self.error)

    def _too_late(self) -> None:
        self._ground.abandon()
        self._ground.do(ev.CloseSession(self.epoch))
        self._finish(self.error or self._leaving.failure())

    def _left(self) -> Exception:
        return self.error or SessionLostError("the member has left the group")

    def _finish(self, error: Exception | None) -> None:
        self._forget()
        self._ground.timers.cancel_all_but()
        self._enter(Phase.CLOSED)
        self.error = error
        self._commits.refuse(self._left())
        self._ground.do(ev.Finished(error))


def _what_changed(path: str, group: str) -> str:
    """Why to rebalance, in words."""
    if path == znodes.ids(group):
        return "members came or went"
    if path.startswith(znodes.ids(group) + "/"):
        return f"member {path.rpartition('/')[2]} left, or changed its subscription"
    return f"{path} changed"


def _at(server: str) -> str:
    return f" at {server}" if server else ""
