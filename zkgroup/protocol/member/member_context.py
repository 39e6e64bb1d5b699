"""The state that all parts of a member share: time, timers, requests, and the phase."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from zkgroup.errors import Notice
from zkgroup.protocol import events as ev
from zkgroup.protocol.member.member_settings import Counters, MemberSettings
from zkgroup.protocol.member.owned_znodes import OwnedZnodes
from zkgroup.protocol.member.phases import Phase
from zkgroup.protocol.names import ConsumerThreadId, TopicPartition
from zkgroup.protocol.offset_versions import OffsetVersions
from zkgroup.protocol.session_requests import SessionRequests


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
        self.out: list[ev.Action] = []
        self._requests = 0
        self._answers: dict[int, Callable[[ev.Answered], None]] = {}
        #: What to do instead of the next step when it is time to leave.
        self.stop: Callable[[], None] = lambda: None

    # ------------------------------------------------------------ actions

    def do(self, action: ev.Action) -> None:
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

    def request(self, action: Callable[[int], ev.Action], then: Callable[[ev.Answered], None]) -> None:
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
