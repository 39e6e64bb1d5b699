"""The watch of a group: a thread reads it whenever a node has changed, and offsets and logs once an interval.

ZooKeeper's watches report members and owners within milliseconds. Changed offsets are read once an interval, and log
ends after them: so the log end is the newer of the two, and the order of the requests makes no lag negative. A group in
Kafka is read once an interval.

All znodes are read once, then only those that have changed. A watch fires once; the next reading that needs the node
reads it again and sets a new watch. No node is created.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

from zkgroup.clients.kafka.responses import KafkaGroup, MessageAge
from zkgroup.clients.zookeeper.registry import EVERYTHING, Registry, WatchingRegistry
from zkgroup.errors import NotFoundError, UnreachableError, ZkgroupError
from zkgroup.groups.group_model import GroupSnapshot, Store
from zkgroup.groups.snapshot.broker_queries import AGES_INTERVAL, Answer, BrokerPoller
from zkgroup.groups.snapshot.group_reader import MAX_AGES, next_position, read_group
from zkgroup.groups.snapshot.snapshot_builder import build_snapshot, with_logs
from zkgroup.groups.snapshot.znode_reader import NodeCache, ZnodeReader, has_partial_offsets
from zkgroup.groups.watch.event_detector import EventDetector
from zkgroup.groups.watch.timeline import Observation, WatchedFinding, WatchedGroup, watched_group
from zkgroup.protocol import znodes
from zkgroup.protocol.assignors import TopicSelections
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Exists, Stat

if TYPE_CHECKING:
    from zkgroup.clients.kafka.client import KafkaSettings
    from zkgroup.clients.kafka.log_offsets import Log

#: Opens a registry that reports changes to the function given. Raises ``ZkgroupError``.
Opener: TypeAlias = Callable[[Callable[[str], None]], WatchingRegistry]
#: Finds out how to reach the brokers: the registered ones, or those of the command line without a registry.
Finder: TypeAlias = "Callable[[Registry | None], KafkaSettings]"

#: Finds what is wrong in a snapshot.
Diagnose: TypeAlias = Callable[[GroupSnapshot], tuple[WatchedFinding, ...]]

#: Seconds to wait after a change: a session that ends removes many nodes.
SETTLING_TIME: Final = 0.03
#: Seconds between two attempts to reach a ZooKeeper that does not answer.
RECONNECT_INTERVAL: Final = 1.0
#: Observations that wait for ``next``; then the watch waits for its reader.
MAX_WAITING: Final = 64


class WatchedNodeCache(NodeCache):
    """The nodes of one group in ZooKeeper, watched: the changed ones are read again. One thread, but for ``change``."""

    _watches = True

    def __init__(self, group: str) -> None:
        super().__init__()
        self._group = group
        self._patient = f"{znodes.offsets(group)}/"  # changes below it wait for a reading of offsets
        self._lock = threading.Lock()
        self._changed: set[str] = set()
        self._lost = False
        self._used: set[str] = set()
        self._noticed: int | None = None
        self._selections: TopicSelections | None = None

    def change(self, path: str) -> bool:
        """Note that a watch fired, on any thread. Returns whether the group is to be read again at once."""
        with self._lock:
            if path == EVERYTHING:
                self._lost = True
                return True
            self._changed.add(path)
            if path.startswith(self._patient):
                return False
            if self._noticed is None:
                self._noticed = time.time_ns() // 1_000_000
        return True

    def noticed(self) -> int | None:
        """When the first change since the last call was noted, but for offsets (milliseconds since 1970)."""
        with self._lock:
            at, self._noticed = self._noticed, None
        return at

    def read_snapshot(
        self, registry: Registry, at: int, kafka_group: KafkaGroup, logs: dict[TopicPartition, Log], *, offsets: bool
    ) -> GroupSnapshot:
        """The group as it is now; ``kafka_group`` and ``logs`` are the brokers' last answers. Without ``offsets`` those
        are not read again. A group that does not exist has ``in_zookeeper`` false. Raises ``UnreachableError``; nothing
        that was read before is lost then."""
        group = self._group
        with self._lock:
            lost, self._lost = self._lost, False
            changed = {path for path in self._changed if offsets or lost or not path.startswith(self._patient)}
            self._changed -= changed
        self._used.clear()
        self._forget([*self._lists, *self._nodes] if lost else changed)
        reader = ZnodeReader(registry, [group], self)
        reader.read_members(self._selections)
        self._selections = reader.cluster.selections  # a filter takes a while with thousands of topics
        reader.read_partitions()
        reader.read_topics(reader.concerned_topics(group, kafka_group))
        # What was not used is gone, as a partition may be.
        self._forget([path for path in {*self._lists, *self._nodes} if path not in self._used])
        found = build_snapshot(group, self, reader.members[group], kafka_group, reader.cluster, at)
        return with_logs(found, reader.cluster, logs)

    def _forget(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._lists.pop(path, None)
            self._nodes.pop(path, None)
            self._unreadable.pop(path, None)
        self._children.clear()

    def read(self, registry: Registry, *, lists: Iterable[str] = (), nodes: Iterable[str] = ()) -> set[str]:
        """As ``NodeCache.read``, with watches; a node that is not there is watched for its coming."""
        lists, nodes = list(lists), list(nodes)
        self._used.update(lists, nodes)
        missing = super().read(registry, lists=lists, nodes=nodes)
        found = registry.read([Exists(path, watch=True) for path in missing]) if missing else ()
        for path, stat in zip(missing, found, strict=True):
            if isinstance(stat, Stat):
                self.change(path)  # it has come meanwhile
        return missing


class GroupWatch:
    """The watch of one group, a context manager: its thread runs while it is open.

    ``opener`` None: the group is watched in Kafka alone, at each ``interval`` (seconds). ``timeout``: seconds for each
    question to a server. ``store``: whose offsets are shown, by default where the group has some. ``topics``: the only
    ones whose partitions are watched, if any are named. ``diagnose`` finds what is wrong, once an interval. ``ages``:
    whether the ages of the next messages are read, of ``MAX_AGES`` partitions at most. The attribute ``news`` is
    called, on the thread, when there is something to take.
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
        diagnose: Diagnose = lambda snapshot: (),
        ages: bool = False,
    ) -> None:
        self.group = group
        self.interval = interval
        self._opener = opener
        self._find = find
        self._timeout = timeout
        self._store = store
        self._topics = topics
        self._diagnose = diagnose
        self._findings: tuple[WatchedFinding, ...] = ()
        self._wants_ages = ages
        self.news: Callable[[], object] = lambda: None
        self._nodes = WatchedNodeCache(group)
        self._registry: WatchingRegistry | None = None
        self._detector = EventDetector()
        self._out: queue.Queue[Observation | BaseException] = queue.Queue(MAX_WAITING)
        self._condition = threading.Condition()
        self._due = False
        self._answer: Answer | BaseException | None = None
        self._last_answer = Answer()
        self._noticed: int | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="zkgroup-watch", daemon=True)

    def __enter__(self) -> GroupWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._condition:
            self._stopping = True
            self._condition.notify()
        self._thread.join(1.0)  # one that waits for a server ends with the server's answer

    def next(self, timeout: float) -> Observation | None:
        """The next observation, None where there is none within ``timeout`` seconds. Raises ``ZkgroupError`` where the
        watch cannot begin: the group does not exist, or ZooKeeper does not answer."""
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

    def _publish(self, state: WatchedGroup) -> None:
        if self._topics:
            state = replace(
                state,
                partitions={key: p for key, p in state.partitions.items() if key.topic in self._topics},
                topics={name: made for name, made in state.topics.items() if name in self._topics},
            )
        last = self._detector.last
        events = self._detector.detect(state if last is None else replace(state, noticed=self._noticed))
        if last is not None:
            self._noticed = None
            if not events and not state.measured and last.partitions == state.partitions:
                return  # nothing new
        self._put(Observation(state, tuple(events)))

    def _wait(self, until: float) -> None:
        """Until there is something to do, at most until then (by the monotonic clock)."""
        with self._condition:
            self._condition.wait_for(
                lambda: self._stopping or self._due or self._answer is not None, max(0.0, until - time.monotonic())
            )

    def _pause(self, seconds: float) -> None:
        with self._condition:
            self._condition.wait_for(lambda: self._stopping, seconds)

    def _change(self, path: str) -> None:
        if self._nodes.change(path):
            with self._condition:
                self._due = True
                self._condition.notify()

    def _hear(self, answer: Answer | BaseException) -> None:
        with self._condition:
            self._answer = answer
            self._condition.notify()

    def _watch_registry(self) -> None:
        poller = BrokerPoller(
            self.group,
            lambda: self._find(self._registry),
            self._hear,
            self._timeout,
            coordinator=self._store != "zookeeper",
        )
        try:
            tick = 0.0
            while not self._stopping:
                try:
                    tick = self._turn(poller, tick)
                except UnreachableError as error:
                    tick, last = 0.0, self._detector.last
                    if last is None:
                        raise
                    if self._registry is not None and self._registry.is_lost:
                        continue  # the session has expired: a new one shows whether ZooKeeper answers
                    self._publish(replace(last, at=_now(), zookeeper=error.message, measured=False))
                    self._pause(RECONNECT_INTERVAL)
        finally:
            poller.close()
            if self._registry is not None:
                self._registry.close()

    def _turn(self, poller: BrokerPoller, tick: float) -> float:
        """Wait for the next change, answer or tick. Returns when offsets are read next, by the monotonic clock."""
        registry = self._open()
        self._wait(tick)
        with self._condition:
            due, self._due = self._due, False
            answer, self._answer = self._answer, None
        if isinstance(answer, BaseException):
            raise answer
        if answer is not None:
            # The last answer of a broker stays while it does not answer, as with ZooKeeper.
            known = {**self._last_answer.logs, **answer.logs}
            self._last_answer = answer if answer.error is None else replace(answer, logs=known)
            self._publish(self._state(registry, measured=True)[1])
        elif time.monotonic() >= tick:
            snapshot, state = self._state(registry, offsets=True)
            if self._detector.last is None and not snapshot.in_zookeeper:  # raises where it is not in Kafka either
                read_group(registry, self.group, kafka=lambda: self._find(registry), logs=False, timeout=self._timeout)
            if due and self._detector.last is not None:  # brokers may take their time
                self._publish(state)
            poller.ask(snapshot, self._positions(snapshot), by_partition=has_partial_offsets(self._nodes))
            return time.monotonic() + self.interval
        elif due:
            self._pause(SETTLING_TIME)
            if self._detector.last is not None:  # the first state has offsets
                self._publish(self._state(registry)[1])
        return tick

    def _open(self) -> WatchingRegistry:
        """The registry; a new one where its session is over. Raises ``ZkgroupError``."""
        if self._registry is not None and self._registry.is_lost:
            self._registry.close()
            self._registry = None
        if self._registry is None and self._opener is not None:
            opened = self._opener(self._change)
            self._change("")
            self._registry = opened
        assert self._registry is not None
        return self._registry

    def _state(
        self, registry: Registry, *, offsets: bool = False, measured: bool = False
    ) -> tuple[GroupSnapshot, WatchedGroup]:
        last = self._last_answer
        noticed = self._nodes.noticed()  # before reading: later changes belong to the next state
        self._noticed = noticed if self._noticed is None else self._noticed
        snapshot = self._nodes.read_snapshot(registry, _now(), last.kafka_group, last.logs, offsets=offsets)
        state = watched_group(snapshot, self._store or snapshot.store, _now(), measured=measured, kafka=last.error)
        if measured:
            self._findings = self._diagnose(snapshot)
        return snapshot, replace(state, findings=self._findings, ages=last.ages)

    def _positions(self, snapshot: GroupSnapshot) -> dict[TopicPartition, int]:
        """Where partitions with lag are read next, if the ages of the messages there are wanted."""
        if not self._wants_ages:
            return {}
        store = self._store or snapshot.store
        found = {p.key: position for p in snapshot.partitions if (position := next_position(p, store)) is not None}
        return found if len(found) <= MAX_AGES else {}

    def _watch_kafka(self) -> None:
        ages: Mapping[TopicPartition, MessageAge] = {}
        ages_due = 0.0
        while not self._stopping:
            began = time.monotonic()
            reads_ages = self._wants_ages and began >= ages_due
            try:
                snapshot = read_group(
                    None,
                    self.group,
                    kafka=lambda: self._find(None),
                    ages=None if reads_ages else False,
                    timeout=self._timeout,
                )
                if reads_ages:
                    ages = {p.key: p.next_age for p in snapshot.partitions if p.next_age is not None}
                    ages_due = began + AGES_INTERVAL
                warnings = "; ".join(one.message for one in snapshot.all_warnings) or None
                state = watched_group(snapshot, self._store or snapshot.store, _now(), measured=True, kafka=warnings)
                state = replace(state, findings=self._diagnose(snapshot), ages=ages)
            except ZkgroupError as error:
                if self._detector.last is None:
                    raise
                if isinstance(error, NotFoundError):
                    state = WatchedGroup(_now(), self.group, exists=False)
                else:
                    state = replace(self._detector.last, at=_now(), kafka=error.message, measured=False)
            self._publish(state)
            self._pause(max(0.1, self.interval - (time.monotonic() - began)))


def _now() -> int:
    return time.time_ns() // 1_000_000
