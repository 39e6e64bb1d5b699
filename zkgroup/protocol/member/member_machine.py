"""The state machine of a member: its events, its sessions, the way into the group and out of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from zkgroup.errors import SessionLostError, UnreachableError
from zkgroup.protocol import events as ev
from zkgroup.protocol import procedures as do
from zkgroup.protocol import znodes
from zkgroup.protocol.assignors import Assignment
from zkgroup.protocol.member.acquisition import Acquisition, IdRegistration
from zkgroup.protocol.member.commits import Commits
from zkgroup.protocol.member.member_context import Counters, MemberContext, MemberSettings, Phase
from zkgroup.protocol.member.owned_share import OwnedShare
from zkgroup.protocol.member.ownership_release import OwnershipRelease
from zkgroup.protocol.names import ConsumerThreadId, TopicPartition, session_text
from zkgroup.protocol.operations import Changed, Connected, Disconnected, Expired, SessionEvent
from zkgroup.protocol.session_requests import Lease

#: How long a member that leaves waits for a connection to ZooKeeper, in seconds. Without one nothing can be committed,
#: and the end of the session releases the share.
UNCONNECTED: Final = 3.0
#: What a member that leaves waits for in these phases.
_WAITS_FOR: Final = {Phase.PAUSING: "a stream's reader", Phase.NOTIFYING: "the rebalance listener"}
UNCOMMITTED: Final = "what was not committed will be read again"


class Member:
    """The state machine. Any thread may read its properties; one thread calls ``handle``."""

    def __init__(self, settings: MemberSettings) -> None:
        self.settings = settings
        self.epoch = 0
        self.error: Exception | None = None
        self._brokers_changed = False  # since the check for brokers began
        ctx = self._context = MemberContext(settings, self._enter)
        ctx.stop = lambda: self._release.begin()
        self._commits = Commits(ctx)
        self._leaving = LeaveDeadline(ctx, self._too_late)
        self._registration = IdRegistration(ctx, self._registered, self._fatal)
        self._release = OwnershipRelease(ctx, self._commits, self._released, self._release_failed, self._uncommitted)
        self._acquisition = Acquisition(
            ctx,
            started=lambda starts: self._owned_share.begin(starts),
            unregistered=self._registration.begin,
            again=self._check_brokers,
            outdated=self._release.release,
            failed=self._fatal,
        )
        self._owned_share = OwnedShare(ctx, self._commits, self._acquisition)

    # ------------------------------------------------------------ what can be seen

    @property
    def phase(self) -> Phase:
        return self._context.phase

    @property
    def generation(self) -> int:
        """Counts assignments and fences."""
        return self._context.generation

    @property
    def session_id(self) -> int:
        """The ZooKeeper session's id; 0 before the first."""
        return self._context.session_id

    @property
    def share(self) -> Mapping[TopicPartition, ConsumerThreadId]:
        """The partitions that are claimed now."""
        return self._context.owned.share

    @property
    def held_back(self) -> Mapping[TopicPartition, str]:
        """Partitions that are claimed and not read, each with the reason."""
        return self._owned_share.held_back

    @property
    def plan(self) -> Assignment:
        """The whole group's assignment, as last computed."""
        return self._acquisition.plan

    @property
    def counters(self) -> Counters:
        """What the member has done so far."""
        return self._context.counters

    @property
    def lease(self) -> Lease:
        """The lease on the session: messages are delivered only while it is valid."""
        return self._context.zookeeper.lease

    def has_lease(self, epoch: int, now: float) -> bool:
        """Whether the session numbered ``epoch`` is the current one, and its lease is valid.

        A request of an older session must not be carried out under the next one.
        """
        return epoch == self.epoch and self.lease.is_valid(now)

    @property
    def wake_at(self) -> float:
        """When ``Tick`` is due, on the machine's clock; infinity if never."""
        return min(self._context.zookeeper.wake_at, self._context.timers.next)

    # ------------------------------------------------------------ in and out

    def handle(self, event: ev.MemberEvent, now: float) -> list[ev.MemberAction]:
        """Handle one event; returns the actions, in order. ``now``: a monotonic clock that includes sleep."""
        ctx = self._context
        ctx.now = ctx.zookeeper.now = now
        ctx.out = []
        if ctx.phase is not Phase.CLOSED:
            self._dispatch(event)
            ctx.zookeeper.tick()
            ctx.timers.fire(now)
            self._advance()
        elif isinstance(event, ev.CommitRequested):
            self._commits.request(event.token)
            self._commits.refuse(self._why_it_left())
        return ctx.out

    def _enter(self, phase: Phase) -> None:
        self._context.phase = phase

    def _dispatch(self, event: ev.MemberEvent) -> None:
        ctx = self._context
        match event:
            case ev.Start():
                ctx.timers.set("connect", ctx.now + self.settings.connect_timeout, self._unreachable)
                self._open_session()
            case ev.FromSession(epoch, session_event):
                if epoch == self.epoch:
                    self._handle_session(session_event)
            case ev.Reply():
                ctx.zookeeper.reply(event)
            case ev.Answered():
                ctx.answered(event)
            case ev.Paused():
                self._release.paused(event)
            case ev.Collected():
                self._owned_share.collected(event)
            case ev.CommitRequested(token, None):
                self._commits.request(token)
            case ev.CommitRequested(token, int(during)):
                self._commits.request_in_listener(during, token)
            case ev.StreamFailed(error):
                self._begin_leaving(error)
            case ev.Leave(at_once, commit):
                ctx.discarding = ctx.discarding or not commit
                self._begin_leaving(None)
                if at_once:
                    self.error = self.error or SessionLostError("left at once", UNCOMMITTED)
                    ctx.timers.hasten("leave", ctx.now)
            case ev.Tick():
                pass

    def _advance(self) -> None:
        """Act on flags, where the phase allows it."""
        ctx = self._context
        if ctx.leaving and self._may_break_off():
            self._release.begin()
        elif ctx.phase is Phase.BACKING_OFF and (ctx.rebalance_reason or ctx.group_unverified):
            self._acquisition.retry_soon()
        elif ctx.phase is Phase.NOTIFYING:
            self._release.advance()
        elif ctx.phase is Phase.STARTING and self._commits.requested:
            self._commits.report_nothing_to_commit()  # the listener itself may have requested it
        elif ctx.phase is Phase.OWNING and ctx.idle and ctx.zookeeper.connected:
            if ctx.rebalance_reason:
                ctx.log(logging.INFO, f"rebalancing: {ctx.rebalance_reason}")
                self._check_brokers()
            else:
                self._owned_share.advance()

    def _may_break_off(self) -> bool:
        """Whether a member that leaves may drop the current step.

        It may where the step waits for time, for another member's node or for the brokers, and in OWNING: giving up a
        share begins without a connection, too.
        """
        ctx = self._context
        return (
            ctx.phase in (Phase.WAITING, Phase.BACKING_OFF)
            or (ctx.phase is Phase.LOADING and ctx.asking)
            or (ctx.phase is Phase.OWNING and (ctx.idle or not ctx.zookeeper.connected))
        )

    # ------------------------------------------------------------ the session

    def _open_session(self) -> None:
        self.epoch += 1
        self._context.counters.sessions += 1
        self._enter(Phase.CONNECTING)
        self._context.do(ev.OpenSession(self.epoch))

    def _handle_session(self, event: SessionEvent) -> None:
        ctx = self._context
        match event:
            case Connected(session_id, timeout, server):
                self._connected(session_id, timeout, server)
            case Disconnected(server):
                where = _at(server)
                ctx.log(logging.WARNING, f"connection to ZooKeeper{where} lost")
                ctx.zookeeper.disconnect()
                self._leaving.disconnected()
                ctx.owned.mark_all_unverified()
                self._acquisition.cache.forget()
            case Expired(reason, is_refused):
                self._expired(reason, is_refused)
            case Changed(path):
                self._changed(path)

    def _connected(self, session_id: int, timeout: float, server: str) -> None:
        ctx = self._context
        ctx.session_id = session_id
        ctx.zookeeper.connect(self.epoch, timeout)
        self._leaving.connected()
        if ctx.phase is Phase.CONNECTING:
            ctx.timers.cancel("connect")
            self._registration.begin()
            return
        ctx.log(logging.INFO, f"reconnected to ZooKeeper{_at(server)} under session {session_text(session_id)}")
        # Watches were lost, and changes may have been missed.
        ctx.group_unverified = True
        self._acquisition.cache.forget()
        if ctx.no_broker:
            ctx.rebalance_reason = ctx.rebalance_reason or "brokers may have come while disconnected"
        # Servers that were restarted give every session its whole time-out again, also the one that owns our id.
        self._registration.forget()
        self._registration.retry()
        self._acquisition.retry_soon()

    def _expired(self, reason: str, is_refused: bool) -> None:
        """The session is over, and nothing of it counts: others may own our share already."""
        ctx = self._context
        uncommitted = (
            self.settings.auto_commit and not ctx.discarding and (ctx.assigned or ctx.phase is Phase.COMMITTING)
        )
        ctx.abandon_batches()
        ctx.do(ev.CloseSession(self.epoch))
        self._forget()
        lost = SessionLostError(f"ZooKeeper session {reason} before everything was committed", "it will be read again")
        if is_refused:
            self._finish(UnreachableError("ZooKeeper refuses our credentials", "check user and password"))
        elif ctx.leaving:
            # All that could be committed was; the end of the session releases the rest.
            self._finish(self.error or (lost if uncommitted else None))
        else:
            self._commits.refuse(lost)
            ctx.log(logging.WARNING, f"ZooKeeper session {session_text(ctx.session_id)} {reason}: joining again")
            self._open_session()

    def _forget(self) -> None:
        """Forget all requests, and all that is owned."""
        ctx = self._context
        ctx.zookeeper.end()
        ctx.drop()
        ctx.timers.cancel_all_but("leave", "connect")
        ctx.assigned = False
        ctx.owned.forget()
        ctx.offset_versions.forget()
        ctx.rebalance_reason, ctx.group_unverified, ctx.no_broker = "", False, False
        self._registration.forget()
        self._acquisition.forget()
        self._owned_share.forget()

    def _changed(self, path: str) -> None:
        ctx, group = self._context, self.settings.group
        self._acquisition.cache.changed(path)
        if self._acquisition.unblocked(path):
            return
        if path.startswith(znodes.owners(group) + "/"):
            # The event may be late, of a node that we deleted ourselves and have created anew: read it before acting.
            topic, _, number = path.removeprefix(znodes.owners(group) + "/").rpartition("/")
            if number.isdecimal():
                ctx.owned.mark_unverified((TopicPartition(topic, int(number)),))
        elif path == self._registration.path and ctx.phase is Phase.WAITING:
            self._registration.retry()
        elif path.startswith(znodes.topics()):
            ctx.group_unverified = True  # a list of topics, or of replicas: often our plan stays the same
        elif path != znodes.broker_ids():
            ctx.rebalance_reason = ctx.rebalance_reason or _what_changed(path, group)
        elif ctx.phase is Phase.CHECKING_BROKERS:
            self._brokers_changed = True  # perhaps between the two answers of the check
        elif ctx.no_broker:
            ctx.rebalance_reason = ctx.rebalance_reason or "a broker came"

    def _unreachable(self) -> None:
        if self._context.phase is Phase.CONNECTING:
            self._context.do(ev.CloseSession(self.epoch))
            self._finish(
                UnreachableError(
                    f"ZooKeeper gave no answer within {self.settings.connect_timeout:g} s",
                    "check the address, and that the server runs",
                )
            )

    # ------------------------------------------------------------ rebalances

    def _registered(self) -> None:
        ctx = self._context
        ctx.log(
            logging.INFO, f"is in group {self.settings.group}, under ZooKeeper session {session_text(ctx.session_id)}"
        )
        self._acquisition.retries.begin(self._context.now)
        self._check_brokers()

    def _check_brokers(self) -> None:
        """Begin a rebalance if a broker is registered. Without one nothing can be read, and the share is kept."""
        ctx = self._context
        ctx.enter(Phase.CHECKING_BROKERS)
        if ctx.rebalance_reason:
            # A changed group is a new rebalance: what failed before proves nothing.
            self._acquisition.retries.begin(ctx.now)
        ctx.rebalance_reason = ""
        ctx.timers.cancel("retry")
        self._ask_for_brokers()

    def _ask_for_brokers(self) -> None:
        self._brokers_changed = False
        self._context.zookeeper.run(do.any_broker, self._brokers_checked, self._fatal)

    def _brokers_checked(self, found: bool) -> None:
        ctx = self._context
        warned, ctx.no_broker = ctx.no_broker, not found
        if found or ctx.leaving:
            self._release.begin()
            return
        if self._brokers_changed:
            self._ask_for_brokers()
            return
        if not warned:
            when = "any more" if ctx.owned.share else "yet"
            ctx.log(logging.WARNING, f"no broker is registered {when}: waiting")
        self._owned_share.resume()

    def _released(self) -> None:
        self._owned_share.forget()
        if self._context.leaving:
            self._left()
        else:
            self._acquisition.begin()

    # ------------------------------------------------------------ leaving

    def _begin_leaving(self, error: Exception | None) -> None:
        ctx = self._context
        if ctx.leaving:
            return
        ctx.leaving = True
        self.error = error
        self._leaving.begin()
        if ctx.phase in (Phase.NEW, Phase.CONNECTING):
            if ctx.phase is Phase.CONNECTING:
                ctx.do(ev.CloseSession(self.epoch))
            self._finish(error)

    def _fatal(self, error: Exception) -> None:
        """The member cannot go on: leave with this error. Only called where the share can be given up in order."""
        ctx = self._context
        self._begin_leaving(error)
        self.error = self.error or error
        if ctx.phase is not Phase.CLOSED:
            self._release.begin()

    def _uncommitted(self, error: Exception) -> None:
        if self._context.leaving:
            self.error = self.error or error

    def _release_failed(self, error: Exception) -> None:
        """Leave without releasing: only the end of the session releases nodes that we may not delete."""
        self._begin_leaving(error)
        self.error = self.error or error
        self._left()

    def _left(self) -> None:
        """The session's end takes our id node along. To delete it ourselves could hit a successor's of the same id."""
        self._context.log(logging.INFO, f"has left group {self.settings.group}")
        self._context.do(ev.CloseSession(self.epoch))
        self._finish(self.error)

    def _too_late(self) -> None:
        self._context.abandon_batches()
        self._context.do(ev.CloseSession(self.epoch))
        self._finish(self.error or self._leaving.failure())

    def _why_it_left(self) -> Exception:
        return self.error or SessionLostError("the member has left the group")

    def _finish(self, error: Exception | None) -> None:
        self._forget()
        self._context.timers.cancel_all_but()
        self._enter(Phase.CLOSED)
        self.error = error
        self._commits.refuse(self._why_it_left())
        self._context.do(ev.Finished(error))


class LeaveDeadline:
    """Ends a member that cannot leave in order: after ``leave_timeout`` as a whole, and after ``UNCONNECTED`` seconds
    without a connection."""

    def __init__(self, context: MemberContext, too_late: Callable[[], None]) -> None:
        self._context = context
        self._too_late = too_late
        self._began = 0.0

    def begin(self) -> None:
        """The member begins to leave."""
        ctx = self._context
        self._began = ctx.now
        ctx.timers.set("still leaving", ctx.now + UNCONNECTED, self._report)
        self.connected()
        if not ctx.zookeeper.connected:
            self.disconnected()

    def connected(self) -> None:
        ctx = self._context
        if ctx.leaving:
            ctx.timers.set("leave", self._began + ctx.settings.leave_timeout, self._too_late)

    def disconnected(self) -> None:
        ctx = self._context
        if ctx.leaving and ctx.phase not in (Phase.NEW, Phase.CONNECTING):
            ctx.log(
                logging.WARNING,
                f"leaves, and waits {UNCONNECTED:g} s for a connection to ZooKeeper, to commit and to release",
            )
            ctx.timers.hasten("leave", ctx.now + UNCONNECTED)

    def _report(self) -> None:
        ctx = self._context
        left = self._began + ctx.settings.leave_timeout - ctx.now
        if ctx.zookeeper.connected and left > 0:
            what = "ZooKeeper" if not ctx.zookeeper.idle else _WAITS_FOR.get(ctx.phase, "the brokers")
            ctx.log(logging.WARNING, f"still leaves ({ctx.phase.value}), and waits {left:.0f} s at most for {what}")

    def failure(self) -> SessionLostError:
        """The error of a member that could not leave in order."""
        taken = max(1.0, self._context.now - self._began)
        return SessionLostError(f"could not leave the group cleanly within {taken:.0f} s", UNCOMMITTED)


def _what_changed(path: str, group: str) -> str:
    """The reason to rebalance, as text."""
    if path == znodes.ids(group):
        return "members came or went"
    if path.startswith(znodes.ids(group) + "/"):
        return f"member {path.rpartition('/')[2]} left, or changed its subscription"
    return f"{path} changed"


def _at(server: str) -> str:
    return f" at {server}" if server else ""
