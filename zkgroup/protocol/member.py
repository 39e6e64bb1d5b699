"""A member of a consumer group, as a state machine: ``Member.handle(event, now)`` returns actions.

It does no I/O, reads no clock and starts no thread; what drives it (``zkgroup.connector`` on real servers) carries the
actions out and reports back with events. The protocol is the reference's (``kafka.consumer.ZookeeperConsumerConnector``
1.1.1), with these differences: partitions are claimed before their offsets are read, commits are compare-and-set,
nothing is handed out or written past the lease, and a member that cannot get its share leaves the group.

    phase         waits for                          then
    NEW           Start                              CONNECTING
    CONNECTING    Connected                          REGISTERING
    REGISTERING   our id node is created             LOOKING; another session holds it: WAITING
    WAITING       that node goes, or time            REGISTERING; too long: CLOSED with an error
    LOOKING       is any broker registered?          QUIETING; none: OWNING what is owned (at the start: nothing)
    QUIETING      streams stop, or time              COMMITTING
    COMMITTING    offsets of the share are written   NOTIFYING
    NOTIFYING     the listener returns               RELEASING
    RELEASING     our owner nodes are deleted        READING; leaving: UNREGISTERING
    READING       members, topics → plan             CLAIMING; our id is gone: REGISTERING
    CLAIMING      our owner nodes are created        LOADING; in conflict: ROLLING_BACK
    ROLLING_BACK  what was claimed is deleted        BACKING_OFF; attempts used up: leaving
    BACKING_OFF   what was in the way goes, or time  LOOKING
    LOADING       offsets are read, resets looked up STARTING
    STARTING      the listener returns               OWNING (streams are granted their shares)
    OWNING        a change, a commit, Leave          LOOKING, OWNING, QUIETING
    UNREGISTERING our id node is deleted             CLOSED
    CLOSED        nothing

From everywhere: ``Expired`` → CONNECTING under a new session, everything of the old one forgotten, streams stopped.
``Leave`` or a fatal error → QUIETING (… → CLOSED) at the next step's end; past ``leave_timeout`` straight to CLOSED.
A lost connection leaves the phase as it is: its step begins again when the connection is back.
Events that make a member rebalance only set a flag; it is looked at in OWNING and BACKING_OFF, so ten cause one.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from zkgroup.errors import (
    MalformedZnodeError,
    RebalanceFailedError,
    SessionLostError,
    UnreachableError,
    ZkgroupError,
)
from zkgroup.protocol import events as ev
from zkgroup.protocol import procedures as do
from zkgroup.protocol import znodes
from zkgroup.protocol.assignors import Assignment, Compat, Strategy, assign
from zkgroup.protocol.conversation import Conversation
from zkgroup.protocol.names import ConsumerThreadId, TopicPartition
from zkgroup.protocol.offsets import CommitError, ForeignWrite, OffsetBook, Procedure
from zkgroup.protocol.ops import (
    Changed,
    Connected,
    Disconnected,
    Expired,
    SessionEvent,
)
from zkgroup.protocol.znodes import Registration

#: The shortest pause before a retry that something in ZooKeeper has triggered, doubled with each attempt.
EARLIEST_RETRY = 0.05
#: How soon a commit that is due looks again, when something else is under way.
BUSY_PAUSE = 0.5
#: The longest pause of a member that keeps trying.
LONGEST_PAUSE = 30.0


class Phase(enum.Enum):
    """Where a member is. The table in this module's docstring tells what each waits for."""

    NEW = "new"
    CONNECTING = "connecting"
    REGISTERING = "registering"
    WAITING = "waiting for its id"
    LOOKING = "looking for brokers"
    QUIETING = "stopping streams"
    COMMITTING = "committing"
    NOTIFYING = "notifying"
    RELEASING = "releasing"
    READING = "reading"
    CLAIMING = "claiming"
    ROLLING_BACK = "rolling back"
    BACKING_OFF = "backing off"
    LOADING = "loading offsets"
    STARTING = "starting"
    OWNING = "owning"
    UNREGISTERING = "unregistering"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """What a member is. Durations are seconds."""

    group: str
    consumer_id: str
    registration: Registration
    strategy: Strategy = "range"
    compat: Compat = "1.1"
    exclude_internal: bool = True
    auto_commit: bool = True
    auto_commit_interval: float = 60.0
    storage: Literal["zookeeper", "kafka"] = "zookeeper"
    dual_commit: bool = False
    reset: Literal["smallest", "largest"] = "largest"
    max_retries: int = 4
    backoff: float = 2.0
    keep_trying: bool = False
    session_timeout: float = 6.0
    connect_timeout: float = 6.0
    quiet_timeout: float = 2.0
    leave_timeout: float = 10.0
    commit_retries: int = 5

    @property
    def uses_zookeeper(self) -> bool:
        """Whether offsets are read from and written to ZooKeeper."""
        return self.storage == "zookeeper" or self.dual_commit

    @property
    def uses_kafka(self) -> bool:
        """Whether offsets are read from and written to Kafka."""
        return self.storage == "kafka"


@dataclass(slots=True)
class Counters:
    """What a member has done so far."""

    rebalances: int = 0
    failed_attempts: int = 0
    sessions: int = 0
    commits: int = 0
    failed_commits: int = 0
    foreign_writes: int = 0
    abandoned: int = 0


class Member:
    """The state machine. ``phase``, ``generation``, ``share``, ``plan`` and ``counters`` may be read by anyone."""

    def __init__(self, settings: MemberSettings) -> None:
        self.settings = settings
        self.phase = Phase.NEW
        self.generation = 0
        self.epoch = 0
        self.session_id = 0
        self.talk = Conversation(self._do)
        self.share: dict[TopicPartition, ConsumerThreadId] = {}
        self.plan = Assignment({})
        self.registry: do.Registry | None = None
        self.counters = Counters()
        self.book = OffsetBook(settings.group)
        self.error: Exception | None = None
        self._now = 0.0
        self._out: list[ev.Action] = []
        self._timers: dict[str, float] = {}
        self._leaving = False
        self._granted = False  # streams hold this generation, or were told to stop and have not answered
        self._touched: set[TopicPartition] = set()  # owner nodes that this session may have created
        self._dirty = ""  # why to rebalance
        self._verify = False  # watches were lost with the connection
        self._unwatched: set[TopicPartition] = set()  # owner nodes of ours to look at: not watched yet, or changed
        self._blockers: set[str] = set()  # owner nodes in our way
        self._attempts = 0
        self._began = 0.0
        self._tokens: list[int] = []
        self._commit_tries = 0
        self._commit_until = 0.0
        self._requests = 0
        self._answers: dict[int, Callable[[ev.Answered], None]] = {}
        self._collecting = False

    # ------------------------------------------------------------ in and out

    @property
    def wake_at(self) -> float:
        """When ``Tick`` is due, on the machine's clock; infinity if never."""
        return min((self.talk.lease.beat_at, *self._timers.values()))

    def handle(self, event: ev.Event, now: float) -> list[ev.Action]:
        """Take one event; returns what to do, in order. ``now`` is a monotonic clock that runs during sleep."""
        self._now = self.talk.now = now
        self._out = []
        if self.phase is not Phase.CLOSED:
            self._take(event)
            self._tick()
            self._advance()
        elif isinstance(event, ev.CommitAsked):
            self._do(ev.Committed(event.token, self.error or SessionLostError("the member has left the group")))
        return self._out

    def _take(self, event: ev.Event) -> None:
        match event:
            case ev.Start():
                self._timers["connect"] = self._now + self.settings.connect_timeout
                self._open_session()
            case ev.FromSession(epoch, told):
                if epoch == self.epoch:
                    self._hear(told)
            case ev.Reply():
                self.talk.reply(event)
            case ev.Answered(request):
                if (answered := self._answers.pop(request, None)) is not None:
                    answered(event)
            case ev.Quieted(generation, consumed):
                if self.phase is Phase.QUIETING and generation == self.generation:
                    self._timers.pop("quiet", None)
                    self._granted = False
                    self._go(lambda: self._commit_before_release(consumed))
            case ev.Collected(generation, consumed):
                self._collecting = False
                if self.phase is Phase.OWNING and generation == self.generation and self._idle:
                    self._commit_while_owning(consumed)
            case ev.CommitAsked(token):
                self._tokens.append(token)
            case ev.StreamFailed(error):
                self._begin_leaving(error)
            case ev.Leave():
                self._begin_leaving(None)
            case ev.Tick():
                pass

    def _do(self, action: ev.Action) -> None:
        self._out.append(action)

    def _log(self, level: int, text: str) -> None:
        self._do(ev.Log(level, text))

    # ------------------------------------------------------------ the session

    def _open_session(self) -> None:
        self.epoch += 1
        self.counters.sessions += 1
        self.phase = Phase.CONNECTING
        self._do(ev.OpenSession(self.epoch))

    def _hear(self, event: SessionEvent) -> None:
        match event:
            case Connected(session_id, timeout):
                self.session_id = session_id
                joining = self.phase is Phase.CONNECTING
                if not joining:
                    self._log(logging.INFO, f"reconnected to ZooKeeper under session {session_id:#x}")
                    self._verify = True
                self.talk.connect(self.epoch, timeout)
                if joining:
                    self._timers.pop("connect", None)
                    self._go(self._register)
            case Disconnected():
                self.talk.disconnect()
                self._unwatched = set(self.share)
            case Expired(reason):
                self._expired(reason)
            case Changed(path):
                self._changed(path)

    def _expired(self, reason: str) -> None:
        """Everything of this session is void: others may own our share already."""
        self._do(ev.CloseSession(self.epoch))
        self._drop_work()
        self._do_quiet(abandon=True)
        self._granted = False
        self.share, self.plan, self.registry = {}, Assignment({}), None
        self._touched.clear()
        self.book.forget()
        self._dirty, self._verify = "", False
        if reason == "authentication failed":
            self._finish(UnreachableError("ZooKeeper refuses our credentials", "check user and password"))
        elif self._leaving and self.phase in (Phase.RELEASING, Phase.UNREGISTERING):
            self._finish(self.error)  # all that could be committed was; the end of the session releases the rest
        elif self._leaving:
            late = SessionLostError("the session ended before everything was committed", "the rest will be read again")
            self._finish(self.error or late)
        else:
            self._log(logging.WARNING, f"ZooKeeper session {self.session_id:#x} {reason}: joining again")
            self._open_session()

    def _drop_work(self) -> None:
        """Forget what is under way; replies to it will find nobody."""
        self.talk.end()
        self._answers.clear()
        self._collecting = False
        self._unwatched.clear()
        self._blockers.clear()
        self._timers = {name: at for name, at in self._timers.items() if name in ("leave", "connect")}

    def _changed(self, path: str) -> None:
        group = self.settings.group
        if path in self._blockers:
            self._blockers.discard(path)
            if not self._blockers:
                self._retry_soon()
        elif path.startswith(znodes.owners(group) + "/"):
            # Also told, late, of nodes that we deleted ourselves and have created anew: look before acting.
            topic, _, number = path.removeprefix(znodes.owners(group) + "/").partition("/")
            if number.isdigit() and (partition := TopicPartition(topic, int(number))) in self.share:
                self._unwatched.add(partition)
        elif path == znodes.member_id(group, self.settings.consumer_id):
            if self.phase is Phase.WAITING:
                self._go(self._register)
            else:
                self._dirty = "our id node changed"
        else:
            self._dirty = f"{path} changed"

    # ------------------------------------------------------------ steps

    @property
    def _idle(self) -> bool:
        return self.talk.idle and not self._answers

    def _go(self, step: Callable[[], None]) -> None:
        """On to the next step, unless it is time to leave."""
        joining = (
            Phase.REGISTERING,
            Phase.WAITING,
            Phase.LOOKING,
            Phase.READING,
            Phase.CLAIMING,
            Phase.ROLLING_BACK,
            Phase.LOADING,
            Phase.STARTING,
        )
        if self._leaving and self.phase in joining:
            self._quiet()
        else:
            step()

    # ------------------------------------------------------------ time, and what waits for a quiet moment

    def _tick(self) -> None:
        self.talk.tick()
        for name in [name for name, at in self._timers.items() if at <= self._now]:
            del self._timers[name]
            if self.phase is not Phase.CLOSED:
                self._timer(name)

    def _timer(self, name: str) -> None:
        match name:
            case "connect" if self.phase is Phase.CONNECTING:
                self._do(ev.CloseSession(self.epoch))
                self._finish(
                    UnreachableError(
                        f"ZooKeeper gave no answer within {self.settings.connect_timeout:g} s",
                        "check the address, and that the server runs",
                    )
                )
            case "id" if self.phase in (Phase.WAITING, Phase.REGISTERING):
                self._fatal(
                    RebalanceFailedError(
                        f"another session holds the id {self.settings.consumer_id} in group {self.settings.group}",
                        "two members may not share a consumer.id: stop the other one or choose another",
                    )
                )
            case "quiet" if self.phase is Phase.QUIETING:
                self.counters.abandoned += 1
                self._log(logging.WARNING, "a stream does not come back for more: its batch will be read again")
                self._do(ev.Quiet(self.generation, abandon=True))
            case "retry" if self.phase is Phase.BACKING_OFF:
                self._go(self._look)
            case "commit" if self.phase is Phase.OWNING:
                if self._idle:
                    self._collect()
                pause = self.settings.auto_commit_interval
                self._timers["commit"] = self._now + (pause if self._collecting else min(pause, BUSY_PAUSE))
            case "leave":
                self._do_quiet(abandon=True)
                self._do(ev.CloseSession(self.epoch))
                late = SessionLostError(
                    f"could not leave the group cleanly within {self.settings.leave_timeout:g} s",
                    "what was not committed will be read again",
                )
                self._finish(self.error or late)

    def _advance(self) -> None:
        """Act on flags, where the phase allows it."""
        # Nothing of what these wait for matters to one who leaves: another's node, time, an answer from the brokers.
        waits = self.phase in (Phase.BACKING_OFF, Phase.WAITING) or (self.phase is Phase.LOADING and self.talk.idle)
        if self._leaving and waits:
            self.talk.drop()
            self._answers.clear()
            self._quiet()
        if self.phase is Phase.BACKING_OFF and self._dirty:
            self._retry_soon()
        if self.phase is not Phase.OWNING or not self._idle or not self.talk.connected:
            return
        if self._leaving:
            self._quiet()
        elif self._dirty:
            self._log(logging.INFO, f"rebalancing: {self._dirty}")
            self._began, self._attempts = self._now, 0
            self._look()
        elif self._verify:
            self._verify_all()
        elif self._unwatched:
            self._verify_owners()
        elif self._tokens:
            self._collect()

    def _collect(self) -> None:
        if not self._collecting:
            self._collecting = True
            self._do(ev.Collect())

    # ------------------------------------------------------------ joining

    def _register(self) -> None:
        self.phase = Phase.REGISTERING
        settings = self.settings
        data = znodes.encode_registration(settings.registration)
        self.talk.run(
            lambda: do.register(settings.group, settings.consumer_id, data, self.session_id),
            self._registered,
            self._fatal,
        )

    def _registered(self, ours: bool) -> None:
        if ours:
            self._timers.pop("id", None)
            self._began, self._attempts = self._now, 0
            self._go(self._look)
            return
        # It usually is the leftover of our own expired session, and goes when the server notices.
        if "id" not in self._timers:
            self._timers["id"] = self._now + max(self.talk.lease.timeout, self.settings.session_timeout) * 1.5
            self._log(logging.WARNING, f"id {self.settings.consumer_id} is held by another session: waiting for it")
        self.phase = Phase.WAITING

    def _look(self) -> None:
        self.phase = Phase.LOOKING
        self._dirty = ""
        self._timers.pop("retry", None)
        self.talk.run(do.any_broker, self._looked, self._fatal)

    def _looked(self, found: bool) -> None:
        if found:
            self._go(self._quiet)
            return
        self._log(logging.WARNING, "no broker is registered: waiting for one")
        self._own()

    def _quiet(self) -> None:
        self.phase = Phase.QUIETING
        self._timers.pop("commit", None)
        if self._granted:
            self._timers["quiet"] = self._now + self.settings.quiet_timeout
            self._do_quiet()
        else:
            self._release_next()

    def _do_quiet(self, *, abandon: bool = False) -> None:
        if self._granted:
            if self.phase is not Phase.QUIETING or not abandon:
                self.generation += 1
            self._do(ev.Quiet(self.generation, abandon))

    def _commit_before_release(self, consumed: Mapping[TopicPartition, int]) -> None:
        self.phase = Phase.COMMITTING
        if not self.settings.auto_commit:
            self._committed_before_release(None)
            return
        # Peers give up after some 8 s of waiting for our release: retries must not take that long.
        self._commit_until = self._now + self.settings.quiet_timeout
        self._commit_tries = 0
        self._commit(consumed, self._committed_before_release)

    def _committed_before_release(self, error: Exception | None) -> None:
        if error is not None:
            self._log(logging.ERROR, f"not committed before the release: {error}")
            if self._leaving:
                self.error = self.error or error
        self.phase = Phase.NOTIFYING
        self._notify("before_releasing", self.share, self._release_next)

    def _release_next(self) -> None:
        self.phase = Phase.RELEASING
        self.talk.run(self._releasing, lambda _: self._released(), self._release_failed)

    def _releasing(self) -> Procedure[None]:
        sure = self.share.keys() - self._unwatched
        self.share = {}
        return do.release(self.settings.group, sorted(self._touched), self.session_id, surely_ours=sure)

    def _released(self) -> None:
        self._touched.clear()
        self._unwatched.clear()
        self.book.forget()
        if self._leaving:
            self._unregister()
        else:
            self._read()

    def _release_failed(self, error: Exception) -> None:
        # Without the right to delete what we created nothing but the end of the session releases it.
        if self._leaving:
            self.error = self.error or error
            self._unregister()
        else:
            self._fatal(error)

    def _read(self) -> None:
        self.phase = Phase.READING
        self._dirty = ""
        self._verify = False
        self.talk.run(self._reading, self._plan, self._read_failed)

    def _reading(self) -> Procedure[do.Registry]:
        s = self.settings
        return do.read_registry(s.group, s.consumer_id, s.registration, s.strategy, exclude_internal=s.exclude_internal)

    def _read_failed(self, error: Exception) -> None:
        if isinstance(error, do.OwnIdMissingError):
            self._log(logging.WARNING, f"{error}: registering again")
            self._go(self._register)
        elif isinstance(error, do.RegistryRefusedError):
            self._fatal(error)
        else:
            self._attempt_failed(error)

    def _plan(self, registry: do.Registry) -> None:
        self.registry = registry
        try:
            self.plan = assign(self.settings.strategy, self.settings.compat, registry.members, registry.partitions)
        except ZkgroupError as error:
            self._attempt_failed(error)
            return
        self._go(self._claim)

    def _claim(self) -> None:
        self.phase = Phase.CLAIMING
        share = {p: t for p, t in self.plan.owners.items() if t.consumer_id == self.settings.consumer_id}
        self._touched |= share.keys()

        def claimed() -> None:
            self.share = share
            self._unwatched = set(share)
            if self._dirty:
                # The plan is old already. Nothing was started, so there is nothing to stop or commit.
                self._go(self._release_next)
            else:
                self._go(self._load)

        if share:
            self.talk.run(
                lambda: do.claim(self.settings.group, share, self.session_id),
                lambda _: claimed(),
                self._claim_failed,
            )
        else:
            claimed()

    def _claim_failed(self, error: Exception) -> None:
        if isinstance(error, do.RegistryRefusedError):
            self._fatal(error)
        else:
            self._attempt_failed(error)

    # ------------------------------------------------------------ attempts that fail

    def _attempt_failed(self, error: Exception) -> None:
        """Give back what this attempt claimed, all of it, then wait for what is in the way, or for time."""
        self._attempts += 1
        self.counters.failed_attempts += 1
        self._log(logging.INFO, f"rebalance attempt {self._attempts} failed: {error}")
        self.phase = Phase.ROLLING_BACK

        def rolled_back() -> None:
            self._touched.clear()
            self.book.forget()
            self._go(lambda: self._back_off(error))

        self.talk.run(self._releasing, lambda _: rolled_back(), self._fatal)

    def _back_off(self, error: Exception) -> None:
        s = self.settings
        # A retry that something has triggered comes early: four of those prove nothing, so time must pass as well.
        used_up = self._attempts >= s.max_retries and self._now - self._began >= s.max_retries * s.backoff
        if used_up and not s.keep_trying:
            self._fatal(
                RebalanceFailedError(
                    f"cannot get its share of group {s.group} after {self._attempts} attempts: {error}",
                    "the member has left the group",
                )
            )
            return
        self.phase = Phase.BACKING_OFF
        pause = s.backoff
        if used_up:
            self._log(logging.ERROR, f"cannot get its share of group {s.group}, trying on: {error}")
            pause = min(LONGEST_PAUSE, s.backoff * 2 ** min(16, self._attempts - s.max_retries))
        self._timers["retry"] = self._now + pause
        if isinstance(error, do.OwnerConflictError):
            self._blockers = set(error.paths)
            self.talk.run(lambda: do.watch_gone(error.paths), self._blocked, lambda _: None)
        elif isinstance(error, do.RegistryReadError):
            self._retry_soon()

    def _blocked(self, still_there: Sequence[str]) -> None:
        self._blockers &= set(still_there)
        if not self._blockers:
            self._retry_soon()

    def _retry_soon(self) -> None:
        if self.phase is Phase.BACKING_OFF and "retry" in self._timers:
            pause = min(self.settings.backoff, EARLIEST_RETRY * 2 ** min(16, self._attempts - 1))
            self._timers["retry"] = min(self._timers["retry"], self._now + pause)

    def _fatal(self, error: Exception) -> None:
        self._begin_leaving(error)
        if self.phase is not Phase.CLOSED:
            self._quiet()

    # ------------------------------------------------------------ starting

    def _load(self) -> None:
        self.phase = Phase.LOADING
        partitions = sorted(self.share)
        if not partitions:
            self._start({})
        elif self.settings.uses_zookeeper:
            self.talk.run(lambda: self.book.load(partitions), self._loaded, self._load_failed)
        else:
            self._loaded(dict.fromkeys(partitions))

    def _load_failed(self, error: Exception) -> None:
        if isinstance(error, MalformedZnodeError | CommitError):
            self._fatal(error)
        else:
            self._attempt_failed(error)

    def _loaded(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        if not self.settings.uses_kafka:
            self._go(lambda: self._look_up(offsets))
            return

        def fetched(answer: ev.Answered) -> None:
            if answer.error is not None:
                self._attempt_failed(answer.error)
                return
            # The larger of the two, as the reference starts with dual commits.
            both = {p: max(offsets.get(p) or -1, answer.offsets.get(p) or -1) for p in self.share}
            zero = {p: 0 for p in self.share if 0 in (offsets.get(p), answer.offsets.get(p))}
            self._go(lambda: self._look_up({p: o if o > 0 else zero.get(p) for p, o in both.items()}))

        self._request(lambda request: ev.FetchKafka(request, tuple(sorted(self.share))), fetched)

    def _look_up(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        known = {p: o for p, o in offsets.items() if o is not None}
        missing = tuple(sorted(p for p, o in offsets.items() if o is None))
        if not missing:
            self._start(known)
            return

        def looked_up(answer: ev.Answered) -> None:
            if answer.error is not None:
                self._attempt_failed(answer.error)
                return
            found = {p: o for p, o in answer.offsets.items() if o is not None}
            self._go(lambda: self._start(known | found))

        self._request(lambda request: ev.LookUp(request, missing, self.settings.reset), looked_up)

    def _start(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.phase = Phase.STARTING

        def start() -> None:
            self.generation += 1
            self._granted = True
            self.counters.rebalances += 1
            self._do(ev.Grant(self.generation, {p: (t, offsets[p]) for p, t in self.share.items()}))
            self._log(logging.INFO, f"owns {len(self.share)} of {len(self.plan.owners)} partitions")
            self._own()

        self._notify("before_starting", self.plan.owners, lambda: self._go(start))

    def _own(self) -> None:
        self.phase = Phase.OWNING
        if self.settings.auto_commit and self._granted:
            self._timers.setdefault("commit", self._now + self.settings.auto_commit_interval)

    def _notify(
        self,
        what: Literal["before_releasing", "before_starting"],
        partitions: Mapping[TopicPartition, ConsumerThreadId],
        then: Callable[[], None],
    ) -> None:
        self._request(lambda request: ev.Notify(request, what, dict(partitions)), lambda _: then())

    def _request(self, action: Callable[[int], ev.Action], then: Callable[[ev.Answered], None]) -> None:
        self._requests += 1
        self._answers[self._requests] = then
        self._do(action(self._requests))

    # ------------------------------------------------------------ owning

    def _verify_all(self) -> None:
        """After a reconnect: watches were lost, so changes may have been missed. Read again; act if it differs."""
        before, share = self.registry, dict(self.share)
        self._verify = False
        self._unwatched.clear()

        def reading() -> Procedure[bool]:
            registry = yield from self._reading()
            kept = yield from do.still_owned(self.settings.group, share, self.session_id)
            return registry == before and kept

        def verified(same: bool) -> None:
            if not same:
                self._dirty = self._dirty or "the group changed while disconnected"

        def failed(error: Exception) -> None:
            self._dirty = f"the group cannot be read: {error}"

        self.talk.run(reading, verified, failed)

    def _verify_owners(self) -> None:
        """Watch owner nodes and see that they are still ours. Done after a claim, too, when reading has begun."""
        share = {p: self.share[p] for p in self._unwatched if p in self.share}
        self._unwatched.clear()

        def verified(kept: bool) -> None:
            if not kept:
                self._unwatched |= share.keys() & self.share.keys()
                self._dirty = "an owner node of ours was changed by somebody else"

        self.talk.run(
            lambda: do.still_owned(self.settings.group, share, self.session_id), verified, lambda _: verified(False)
        )

    def _commit_while_owning(self, consumed: Mapping[TopicPartition, int]) -> None:
        tokens, self._tokens = self._tokens, []

        def done(error: Exception | None) -> None:
            if error is not None:
                self._log(logging.WARNING, f"commit failed, the next one will try again: {error}")
            for token in tokens:
                self._do(ev.Committed(token, error))

        self._commit_tries = self.settings.commit_retries  # the next one comes anyway
        self._commit(consumed, done)

    def _commit(self, consumed: Mapping[TopicPartition, int], then: Callable[[Exception | None], None]) -> None:
        """ZooKeeper first; Kafka, which has no compare-and-set, only if that succeeded. Retried where it may help."""

        def ended(error: Exception | None) -> None:
            if error is None:
                self.counters.commits += 1
            else:
                self.counters.failed_commits += 1
            then(error)

        def again(error: Exception) -> None:
            self._commit_tries += 1
            late = self._now > self._commit_until and not self._leaving
            if self._commit_tries > self.settings.commit_retries or late:
                ended(error)
            else:
                self._commit(consumed, then)

        def to_kafka(foreign: list[ForeignWrite]) -> None:
            self._report(foreign)
            owned = {p: o for p, o in consumed.items() if p in self.share}
            if not self.settings.uses_kafka or not owned:
                ended(None)
            elif not self.talk.lease.holds(self._now):
                ended(CommitError("the lease on the session ran out before the commit to Kafka"))
            else:
                self._request(
                    lambda request: ev.CommitKafka(request, owned),
                    lambda answer: ended(None) if answer.error is None else again(answer.error),
                )

        if self.settings.uses_zookeeper:
            self.talk.run(lambda: self.book.commit(consumed, self.session_id), to_kafka, again)
        else:
            to_kafka([])

    def _report(self, foreign: Sequence[ForeignWrite]) -> None:
        for write in foreign:
            self.counters.foreign_writes += 1
            found = "deleted" if write.value is None else f"set to {write.value}"
            self._log(logging.WARNING, f"offset of {write.partition} was {found} by somebody who does not own it")

    # ------------------------------------------------------------ leaving

    def _begin_leaving(self, error: Exception | None) -> None:
        if self._leaving:
            return
        self._leaving = True
        self.error = self.error or error
        self._timers["leave"] = self._now + self.settings.leave_timeout
        if self.phase in (Phase.NEW, Phase.CONNECTING):
            if self.phase is Phase.CONNECTING:
                self._do(ev.CloseSession(self.epoch))
            self._finish(self.error)

    def _unregister(self) -> None:
        self.phase = Phase.UNREGISTERING
        s = self.settings
        self.talk.run(
            lambda: do.unregister(s.group, s.consumer_id, self.session_id),
            lambda _: self._unregistered(),
            lambda _: self._unregistered(),
        )

    def _unregistered(self) -> None:
        self._do(ev.CloseSession(self.epoch))
        self._finish(self.error)

    def _finish(self, error: Exception | None) -> None:
        self._drop_work()
        self._timers.clear()
        self.talk.lease.end()
        self.phase = Phase.CLOSED
        self.error = error
        self.share = {}
        for token in self._tokens:
            self._do(ev.Committed(token, error or SessionLostError("the member has left the group")))
        self._tokens = []
        self._do(ev.Finished(error))
