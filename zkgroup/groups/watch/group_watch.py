"""Watching a group: a thread that looks whenever something has changed, and at each interval at offsets and logs.

Members and owners are told by ZooKeeper's watches, within some milliseconds. Offsets are read once an interval, those
that have changed; then brokers are asked where the logs end, so that of both the ends are the newer ones and lag is not
negative only because of the order of the questions. What a group in Kafka does is asked once an interval.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.clients.zookeeper.watching_registry import WatchingRegistry
from zkgroup.errors import NotFoundError, UnreachableError, ZkgroupError
from zkgroup.groups.group_model import GroupSnapshot, Store
from zkgroup.groups.snapshot.group_reader import read_group
from zkgroup.groups.snapshot.znode_reader import needs_partitions
from zkgroup.groups.watch.broker_poller import Answer, Poller, Question
from zkgroup.groups.watch.event_detector import Story, begin, tell
from zkgroup.groups.watch.timeline import Event, Look, look_of
from zkgroup.groups.watch.watched_znodes import WatchedGroupReader

if TYPE_CHECKING:
    from zkgroup.clients.kafka.client import KafkaSettings

#: Opens a registry that tells of changes. Raises ``ZkgroupError``.
Opener: TypeAlias = Callable[[Callable[[str], None]], WatchingRegistry]
#: How to reach the brokers, of those that are registered, or of those that were named where there is no registry.
Finder: TypeAlias = "Callable[[Registry | None], KafkaSettings]"

#: Seconds to wait for more, once something has changed: a session that ends takes many nodes with it.
TOGETHER: Final = 0.03
#: Seconds between two attempts to reach a ZooKeeper that is away.
AGAIN: Final = 1.0
#: Looks that nobody has taken: who does not keep up is waited for.
WAITING: Final = 64


@dataclass(frozen=True, slots=True)
class Observation:
    """A look, and what has happened since the one before."""

    look: Look
    events: tuple[Event, ...]


class GroupWatch:
    """A group that is watched, as a context manager: its thread runs while it is open.

    ``opener`` None: the group is watched in Kafka alone, at each ``interval`` (seconds). ``timeout``: seconds for each
    question to a server. ``store``: whose offsets are shown, by default where the group has some. ``topics``: the only
    ones whose partitions are watched, if any are named. ``news`` is called, on the thread, when there is something to
    take.
    """

    def __init__(
        self,
        group: str,
        opener: Opener | None,
        find: Finder,
        *,
        interval: float,
        timeout: float,
        store: Store | None = None,
        topics: frozenset[str] = frozenset(),
        news: Callable[[], object] = lambda: None,
    ) -> None:
        self.group = group
        self.interval = interval
        self._opener = opener
        self._find = find
        self._timeout = timeout
        self._store = store
        self._topics = topics
        self.news = news
        self._live = WatchedGroupReader(group)
        self._registry: WatchingRegistry | None = None
        self._story: Story | None = None
        self._out: queue.Queue[Observation | BaseException] = queue.Queue(WAITING)
        self._condition = threading.Condition()
        self._due = False
        self._answer: Answer | BaseException | None = None
        self._told = Answer()
        self._noticed: int | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="zkgroup-watch", daemon=True)

    @property
    def requests(self) -> int:
        """How many nodes ZooKeeper was asked for so far."""
        return self._live.nodes.requests

    def __enter__(self) -> GroupWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End. A thread that waits for a server that is away is not waited for: it ends with the server's answer."""
        with self._condition:
            self._stopping = True
            self._condition.notify()
        self._thread.join(1.0)

    def next(self, timeout: float) -> Observation | None:
        """The next observation, None where there is none within ``timeout`` seconds. Raises ``ZkgroupError`` where the
        watch cannot begin: there is no such group, or ZooKeeper is away."""
        try:
            found = self._out.get(timeout=timeout) if timeout > 0 else self._out.get_nowait()
        except queue.Empty:
            return None
        if isinstance(found, BaseException):
            raise found
        return found

    # On the thread.

    def _run(self) -> None:
        try:
            if self._opener is None:
                self._watch_kafka()
            else:
                self._watch_registry()
        except BaseException as error:  # noqa: BLE001  # raised by next()
            self._put(error)

    def _put(self, found: Observation | BaseException) -> None:
        while not self._stopping:
            try:
                self._out.put(found, timeout=0.2)
            except queue.Full:
                continue
            self.news()
            return

    def _publish(self, look: Look) -> None:
        if self._topics:
            look = replace(
                look,
                partitions={key: p for key, p in look.partitions.items() if key.topic in self._topics},
                topics={name: made for name, made in look.topics.items() if name in self._topics},
            )
        if self._story is None:
            self._story, events = begin(look)
        else:
            last = self._story.last
            self._story, events = tell(self._story, replace(look, noticed=self._noticed))
            self._noticed = None
            if not events and not look.measured and last.partitions == look.partitions:
                return  # a look that shows nothing new
        self._put(Observation(look, tuple(events)))

    def _away(self, error: ZkgroupError) -> None:
        """ZooKeeper is away: what was seen last is still shown."""
        if self._story is None:
            raise error
        self._publish(replace(self._story.last, at=_now(), zookeeper=error.message, measured=False))

    def _wait(self, until: float, *, answers: bool = True) -> None:
        """Until there is something to do, at most until then (by the monotonic clock)."""
        with self._condition:
            while not self._stopping and not (self._due or (answers and self._answer is not None)):
                left = until - time.monotonic()
                if left <= 0:
                    return
                self._condition.wait(min(left, 1.0))

    def _pause(self, seconds: float) -> None:
        with self._condition:
            self._condition.wait_for(lambda: self._stopping, seconds)

    def _change(self, path: str) -> None:
        if self._live.nodes.change(path):
            with self._condition:
                self._due = True
                self._condition.notify()

    def _hear(self, answer: Answer | BaseException) -> None:
        with self._condition:
            self._answer = answer
            self._condition.notify()

    def _watch_registry(self) -> None:
        poller = Poller(
            self.group,
            lambda: self._find(self._registry),
            self._hear,
            self._timeout,
            coordinator=self._store != "zookeeper",
        )
        poller.start()
        try:
            tick = 0.0
            while not self._stopping:
                try:
                    tick = self._turn(poller, tick)
                except UnreachableError as error:
                    if self._registry is not None and self._registry.lost and self._story is not None:
                        tick = 0.0  # the session has ended while ZooKeeper was away: a new one will tell whether it is
                        self._drop()
                        continue
                    self._away(error)
                    self._pause(AGAIN)
                    tick = 0.0
        finally:
            poller.close()
            if self._registry is not None:
                self._registry.close()

    def _turn(self, poller: Poller, tick: float) -> float:
        """Wait for what is next, and do it; when offsets are next to be looked at, by the monotonic clock."""
        registry = self._open()
        self._wait(tick)
        with self._condition:
            due, self._due = self._due, False
            answer, self._answer = self._answer, None
        if isinstance(answer, BaseException):
            raise answer
        if answer is not None:
            # Of brokers that were away the last word stands, as with ZooKeeper.
            self._told = answer if answer.error is None else replace(answer, logs={**self._told.logs, **answer.logs})
            self._publish(self._look(registry, offsets=False, measured=True)[1])
        elif time.monotonic() >= tick:
            snapshot, look = self._look(registry, offsets=True, measured=True)
            self._check_first(registry, snapshot)
            if due and self._story is not None:  # brokers may take their time
                self._publish(replace(look, measured=False))
            question = Question(
                [p.key for p in snapshot.partitions if p.exists],
                snapshot.broker_ids,
                frozenset(snapshot.known_topics),
                by_partition=needs_partitions(self._live.nodes),
            )
            poller.ask(question)
            return time.monotonic() + self.interval
        elif due:
            self._pause(TOGETHER)
            if self._story is not None:  # the first look is one at everything
                self._publish(self._look(registry, offsets=False, measured=False)[1])
        return tick

    def _open(self) -> WatchingRegistry:
        """The registry; a new one where its session is over. Raises ``ZkgroupError``."""
        if self._registry is not None and self._registry.lost:
            self._drop()
        if self._registry is None and self._opener is not None:
            opened = self._opener(self._change)
            self._change("")
            self._registry = opened
        assert self._registry is not None
        return self._registry

    def _drop(self) -> None:
        if self._registry is not None:
            self._registry.close()
            self._registry = None

    def _look(self, registry: Registry, *, offsets: bool, measured: bool) -> tuple[GroupSnapshot, Look]:
        told = self._told
        noticed = self._live.nodes.noticed()  # before it is read: what comes meanwhile is for the next look
        self._noticed = noticed if self._noticed is None else self._noticed
        snapshot = self._live.read(registry, _now(), told.side, told.logs, offsets=offsets)
        look = look_of(snapshot, self._store or snapshot.store, _now(), measured=measured, kafka=told.error)
        return snapshot, look

    def _check_first(self, registry: Registry, snapshot: GroupSnapshot) -> None:
        """Raise ``NotFoundError`` where there is no such group to begin with, in either store."""
        if self._story is None and not snapshot.in_zookeeper:
            read_group(registry, self.group, kafka=lambda: self._find(registry), logs=False, timeout=self._timeout)

    def _watch_kafka(self) -> None:
        """A group in Kafka alone: the same look again and again."""
        while not self._stopping:
            began = time.monotonic()
            try:
                snapshot = read_group(None, self.group, kafka=lambda: self._find(None), timeout=self._timeout)
                warnings = "; ".join(snapshot.warnings) or None
                look = look_of(snapshot, self._store or snapshot.store, _now(), measured=True, kafka=warnings)
            except ZkgroupError as error:
                if self._story is None:
                    raise
                if isinstance(error, NotFoundError):
                    look = Look(_now(), self.group, exists=False)
                else:
                    look = replace(self._story.last, at=_now(), kafka=error.message, measured=False)
            self._publish(look)
            self._pause(max(0.1, self.interval - (time.monotonic() - began)))


def _now() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000
