"""What all parts of a member stand on: time, timers, what is asked and answered, and where the member is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from zkgroup.errors import Notice
from zkgroup.protocol import events as ev
from zkgroup.protocol.member.member_settings import Counters, MemberSettings
from zkgroup.protocol.member.owned_znodes import Holdings
from zkgroup.protocol.member.phases import Phase
from zkgroup.protocol.names import ConsumerThreadId, TopicPartition
from zkgroup.protocol.offset_versions import OffsetBook
from zkgroup.protocol.session_requests import Conversation


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
        """Let an alarm that is set go off at ``at``, if that is sooner; with ``alarm``, call that instead."""
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
        """Let go off what is due."""
        for name in [name for name, (at, _) in self._at.items() if at <= now]:
            if name in self._at:  # an alarm before it may have cancelled it
                _, alarm = self._at.pop(name)
                alarm()


class Ground:
    """The state that a member's parts share.

    ``dirty`` tells why to rebalance, ``unsure`` that the registry must be read again to know whether to. ``granted``:
    streams hold a share, or were told to stop and have not answered yet. ``discarding``: what was consumed since the
    last commit is not to be committed any more.
    """

    def __init__(self, settings: MemberSettings, enter: Callable[[Phase], None]) -> None:
        self.settings = settings
        self.enter = enter
        self.phase = Phase.NEW
        self.counters = Counters()
        self.now = 0.0
        self.session_id = 0
        self.generation = 0
        self.granted = False
        self.leaving = False
        self.discarding = False
        self.dirty = ""
        self.unsure = False
        self.no_broker = False
        self.timers = Timers()
        self.holdings = Holdings()
        self.book = OffsetBook(settings.group)
        self.talk = Conversation(self.do)
        self.out: list[ev.Action] = []
        self._requests = 0
        self._answers: dict[int, Callable[[ev.Answered], None]] = {}
        #: What to do instead of the next step when it is time to leave.
        self.stop: Callable[[], None] = lambda: None

    # ------------------------------------------------------------ actions

    def do(self, action: ev.Action) -> None:
        """Ask the driver for something."""
        self.out.append(action)

    def log(self, level: int, text: str | Notice) -> None:
        """Tell a person."""
        self.do(ev.Log(level, text))

    def quiet(self) -> None:
        """Tell the streams to stop where they are."""
        self.generation += 1
        self.do(ev.Quiet(self.generation))

    def abandon(self) -> None:
        """Tell the streams to stop, and wait for nobody."""
        if self.granted:
            if self.phase is not Phase.QUIETING:
                self.generation += 1
            self.do(ev.Quiet(self.generation, abandon=True))

    def request(self, action: Callable[[int], ev.Action], then: Callable[[ev.Answered], None]) -> None:
        """Ask the driver for something that it answers with ``Answered``."""
        self._requests += 1
        self._answers[self._requests] = then
        self.do(action(self._requests))

    def notify(
        self,
        what: Literal["before_releasing", "before_starting"],
        partitions: Mapping[TopicPartition, ConsumerThreadId],
        then: Callable[[], None],
    ) -> None:
        """Call the user's listener; ``then`` when it has returned."""
        self.request(lambda request: ev.Notify(request, what, dict(partitions)), lambda _: then())

    # ------------------------------------------------------------ steps

    def answered(self, event: ev.Answered) -> None:
        """An answer came in. What nobody waits for any more is dropped."""
        if (then := self._answers.pop(event.request, None)) is not None:
            then(event)

    def awaits(self, request: int) -> bool:
        """Whether the answer to this request is still waited for."""
        return request in self._answers

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return self.talk.idle and not self._answers

    @property
    def asking(self) -> bool:
        """Whether an answer of the driver is waited for, and nothing of ZooKeeper."""
        return self.talk.idle and bool(self._answers)

    def drop(self) -> None:
        """Give up what is under way; answers to it will find nobody."""
        self.talk.drop()
        self._answers.clear()

    def step(self, then: Callable[[], None]) -> None:
        """On to the next step, unless it is time to leave."""
        if self.leaving:
            self.stop()
        else:
            then()
