"""What all parts of a member share: its phases, settings and counters, its owner nodes, time, timers and requests."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from zkgroup.config.settings_table import DEFAULTS
from zkgroup.errors import Notice
from zkgroup.protocol import events as ev
from zkgroup.protocol.assignors import Compat, Strategy
from zkgroup.protocol.names import INTERNAL_TOPICS, ConsumerThreadId, TopicPartition
from zkgroup.protocol.offset_versions import OffsetVersions
from zkgroup.protocol.session_requests import SessionRequests
from zkgroup.protocol.znodes import Registration


class Phase(enum.Enum):
    """The phase of a member. The table in this package's docstring says what each waits for."""

    NEW = "new"
    CONNECTING = "connecting"
    REGISTERING = "registering"
    WAITING = "waiting for its id"
    CHECKING_BROKERS = "checking brokers"
    PAUSING = "pausing streams"
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
    CLOSED = "closed"


P = Phase
#: An expired session begins anew; an error, or the end of ``leave_timeout``, ends at once.
_ALWAYS: Final = frozenset({P.CONNECTING, P.CLOSED})

#: Phase → the phases that may follow it.
TRANSITIONS: Final[Mapping[Phase, frozenset[Phase]]] = {
    P.NEW: _ALWAYS,
    P.CONNECTING: _ALWAYS | {P.REGISTERING},
    P.REGISTERING: _ALWAYS | {P.CHECKING_BROKERS, P.WAITING, P.RELEASING},
    P.WAITING: _ALWAYS | {P.REGISTERING, P.RELEASING},
    P.CHECKING_BROKERS: _ALWAYS | {P.PAUSING, P.NOTIFYING, P.RELEASING, P.OWNING},
    P.PAUSING: _ALWAYS | {P.COMMITTING},
    P.COMMITTING: _ALWAYS | {P.NOTIFYING},
    P.NOTIFYING: _ALWAYS | {P.RELEASING},
    P.RELEASING: _ALWAYS | {P.READING},
    P.READING: _ALWAYS | {P.CLAIMING, P.REGISTERING, P.ROLLING_BACK, P.RELEASING},
    P.CLAIMING: _ALWAYS | {P.LOADING, P.ROLLING_BACK, P.RELEASING},
    P.ROLLING_BACK: _ALWAYS | {P.BACKING_OFF, P.RELEASING},
    P.BACKING_OFF: _ALWAYS | {P.CHECKING_BROKERS, P.RELEASING},
    P.LOADING: _ALWAYS | {P.STARTING, P.ROLLING_BACK, P.RELEASING},
    P.STARTING: _ALWAYS | {P.OWNING, P.RELEASING},
    P.OWNING: _ALWAYS | {P.CHECKING_BROKERS, P.PAUSING, P.RELEASING},
    P.CLOSED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """The settings of a member. Durations are seconds.

    ``internal``: the topics that ``exclude_internal`` keeps out of filters. ``quiesce_timeout``: how long a rebalance
    waits for readers, and for commits that are tried again. ``leave_timeout``: how long leaving may take as a whole.
    """

    group: str
    consumer_id: str
    registration: Registration
    strategy: Strategy = DEFAULTS["partition_assignment_strategy"]
    compat: Compat = "1.1"
    exclude_internal: bool = DEFAULTS["exclude_internal_topics"]
    internal: frozenset[str] = INTERNAL_TOPICS
    auto_commit: bool = DEFAULTS["auto_commit_enable"]
    auto_commit_interval: float = DEFAULTS["auto_commit_interval_ms"] / 1000
    storage: Literal["zookeeper", "kafka"] = "zookeeper"
    dual_commit: bool = False
    reset: Literal["smallest", "largest"] = "largest"
    max_retries: int = DEFAULTS["rebalance_max_retries"]
    backoff: float = 2.0
    keep_trying: bool = False
    session_timeout: float = DEFAULTS["zookeeper_session_timeout_ms"] / 1000
    connect_timeout: float = DEFAULTS["zookeeper_session_timeout_ms"] / 1000
    quiesce_timeout: float = DEFAULTS["quiesce_timeout_ms"] / 1000
    leave_timeout: float = 10.0
    commit_retries: int = DEFAULTS["offsets_commit_max_retries"]
    commit_backoff: float = DEFAULTS["offsets_channel_backoff_ms"] / 1000

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
    """What a member has done so far.

    ``foreign_writes``: offsets changed by a client that does not own the partition. ``abandoned``: rebalances that did
    not wait for a batch any longer.
    """

    rebalances: int = 0
    failed_attempts: int = 0
    sessions: int = 0
    commits: int = 0
    failed_commits: int = 0
    foreign_writes: int = 0
    abandoned: int = 0


class OwnedZnodes:
    """Which owner nodes are this session's, and which of them are verified. ``share``: the claimed partitions, each
    with its thread. It is replaced, never changed.

    An owner node vanishes by itself only with its session. But an operator may delete it by hand, and another member
    may then claim the partition. So a member watches its owner nodes. It deletes a node unread only if it has read the
    node as its own, with a watch, and no event has come since.
    """

    def __init__(self) -> None:
        self.share: Mapping[TopicPartition, ConsumerThreadId] = {}
        self._maybe_created: set[TopicPartition] = set()  # by this session
        self._unverified: set[TopicPartition] = set()  # not watched yet, or an event came
        self._checking: set[TopicPartition] = set()  # being read

    def claim(self, share: Mapping[TopicPartition, ConsumerThreadId]) -> None:
        """The owner nodes of ``share`` are about to be created: some of them may be ours from now on."""
        self._maybe_created.update(share)

    def claimed(self, share: Mapping[TopicPartition, ConsumerThreadId]) -> None:
        """All of ``share`` is ours. Its nodes are watched later, when reading has begun."""
        self.share = dict(share)
        self._unverified = set(share)
        self._checking.clear()

    def mark_unverified(self, partitions: Iterable[TopicPartition]) -> None:
        """These owner nodes were changed, or may have been."""
        self._unverified.update(partition for partition in partitions if partition in self.share)

    def mark_all_unverified(self) -> None:
        """All watches are lost."""
        self._unverified = set(self.share)

    @property
    def has_unverified(self) -> bool:
        """Whether owner nodes must be read."""
        return bool(self._unverified)

    def begin_check(self) -> Mapping[TopicPartition, ConsumerThreadId]:
        """The nodes to read now. Events that come meanwhile need another check."""
        self._checking = self._unverified & self.share.keys()
        self._unverified = set()
        return {partition: self.share[partition] for partition in sorted(self._checking)}

    def end_check(self, *, kept: bool) -> None:
        """``kept``: all nodes that were read are ours and watched. Otherwise they stay unverified."""
        if not kept:
            self.mark_unverified(self._checking)
        self._checking.clear()

    def release(self) -> tuple[list[TopicPartition], set[TopicPartition]]:
        """Give up the share. Returns the owner nodes that may be ours, and those of them that surely are.

        When it is called again, after an interruption, no node is sure any more.
        """
        sure = self.share.keys() - self._unverified - self._checking
        self.share = {}
        return sorted(self._maybe_created), sure

    def forget(self) -> None:
        """No node is ours any more: all are deleted, or the session is over."""
        self.share = {}
        self._maybe_created.clear()
        self._unverified.clear()
        self._checking.clear()


class Timers:
    """Named alarms, at most one of each name."""

    def __init__(self) -> None:
        self._at: dict[str, tuple[float, Callable[[], None]]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._at

    @property
    def next(self) -> float:
        """When the first is due; infinity if there is none."""
        return min((at for at, _ in self._at.values()), default=float("inf"))

    def set(self, name: str, at: float, alarm: Callable[[], None]) -> None:
        """Call ``alarm`` at ``at``; an earlier alarm of this name is forgotten."""
        self._at[name] = at, alarm

    def hasten(self, name: str, at: float, alarm: Callable[[], None] | None = None) -> None:
        """Let an alarm that is set be due at ``at``, if that is sooner; with ``alarm``, call that instead."""
        if name in self._at:
            before, former = self._at[name]
            self._at[name] = min(before, at), alarm or former

    def cancel(self, *names: str) -> None:
        """Forget alarms."""
        for name in names:
            self._at.pop(name, None)

    def cancel_all_but(self, *names: str) -> None:
        """Forget all other alarms."""
        self._at = {name: entry for name, entry in self._at.items() if name in names}

    def fire(self, now: float) -> None:
        """Call the alarms that are due."""
        for name in [name for name, (at, _) in self._at.items() if at <= now]:
            if name in self._at:  # an alarm before it may have cancelled it
                _, alarm = self._at.pop(name)
                alarm()


class MemberContext:
    """The state that a member's parts share.

    ``rebalance_reason``: why a rebalance is due; "" if none is. ``group_unverified``: the registry must be read again
    to know whether one is due. ``assigned``: streams have a share, or are being paused. ``discarding``: what was
    consumed since the last commit is not committed any more.
    """

    def __init__(self, settings: MemberSettings, enter: Callable[[Phase], None]) -> None:
        self.settings = settings
        self.enter = enter
        self.phase = Phase.NEW
        self.counters = Counters()
        self.now = 0.0
        self.session_id = 0
        self.generation = 0
        self.assigned = False
        self.leaving = False
        self.discarding = False
        self.rebalance_reason = ""
        self.group_unverified = False
        self.no_broker = False
        self.timers = Timers()
        self.owned = OwnedZnodes()
        self.offset_versions = OffsetVersions(settings.group)
        self.zookeeper = SessionRequests(self.do)
        self.out: list[ev.MemberAction] = []
        self._requests = 0
        self._answers: dict[int, Callable[[ev.Answered], None]] = {}
        #: What to do instead of the next step when it is time to leave.
        self.stop: Callable[[], None] = lambda: None

    # ------------------------------------------------------------ actions

    def do(self, action: ev.MemberAction) -> None:
        """Give the driver an action."""
        self.out.append(action)

    def log(self, level: int, text: str | Notice) -> None:
        self.do(ev.Log(level, text))

    def pause_streams(self) -> None:
        """Pause the streams, and wait until their readers have no batch in hand."""
        self.generation += 1
        self.do(ev.Pause(self.generation))

    def abandon_batches(self) -> None:
        """Pause the streams, and do not wait: batches in hand do not count as consumed."""
        if self.assigned:
            if self.phase is not Phase.PAUSING:
                self.generation += 1
            self.do(ev.Pause(self.generation, abandon=True))

    def request(self, action: Callable[[int], ev.MemberAction], then: Callable[[ev.Answered], None]) -> None:
        """Give the driver an action that it answers with ``Answered``."""
        self._requests += 1
        self._answers[self._requests] = then
        self.do(action(self._requests))

    def notify(
        self,
        method: Literal["before_releasing", "before_starting"],
        partitions: Mapping[TopicPartition, ConsumerThreadId],
        then: Callable[[], None],
    ) -> None:
        """Call the rebalance listener; ``then`` follows when it has returned."""
        self.request(lambda request: ev.Notify(request, method, dict(partitions)), lambda _: then())

    # ------------------------------------------------------------ steps

    def answered(self, event: ev.Answered) -> None:
        """Take an answer of the driver. One that was given up is dropped."""
        if (then := self._answers.pop(event.request, None)) is not None:
            then(event)

    def awaits(self, request: int) -> bool:
        """Whether this request is not answered and not given up."""
        return request in self._answers

    @property
    def idle(self) -> bool:
        """Whether no request is under way."""
        return self.zookeeper.idle and not self._answers

    @property
    def asking(self) -> bool:
        """Whether a request to the driver is under way, and none to ZooKeeper."""
        return self.zookeeper.idle and bool(self._answers)

    def drop(self) -> None:
        """Give up all requests; their answers will be dropped."""
        self.zookeeper.drop()
        self._answers.clear()

    def step(self, then: Callable[[], None]) -> None:
        """Take the next step, or begin to leave if that was asked for."""
        if self.leaving:
            self.stop()
        else:
            then()
