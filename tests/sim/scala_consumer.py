"""a Scala consumer, faults included: ``kafka.consumer.ZookeeperConsumerConnector`` of 1.1.1 over ``ZkClient``.

Where it differs from ours, and what harm that does: an operation is tried again until it is answered, in the next
session if need be; offsets are written, and owner nodes deleted, whosever they are by then; offsets are read before the
partitions are claimed; what was delivered counts as consumed; nothing stops it while it is disconnected; after four
failed attempts it stays registered and owns nothing until something changes; an error in between is logged, no more.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from random import Random
from typing import Any, TypeAlias

from sim.brokers import Brokers
from sim.clock import Clock
from sim.network import SimSession
from sim.process import SimProcess
from sim.sim_reader import SimReader
from sim.sim_server import SimServer
from sim.wire import Report, nobody
from zkgroup.errors import ZkgroupError
from zkgroup.protocol import znodes
from zkgroup.protocol.assignors import Strategy, TopicSelections, assign
from zkgroup.protocol.broker_znodes import decode_topic
from zkgroup.protocol.ledger import Run
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import (
    Changed,
    Children,
    Code,
    Connected,
    Create,
    Delete,
    Ensure,
    Exists,
    Expired,
    Failure,
    Get,
    Node,
    Op,
    Result,
    SessionEvent,
    SetData,
)
from zkgroup.protocol.znodes import Registration

RETRIES = 4
BACKOFF = 2.0
#: A thread: yields operations, or seconds to sleep; is sent results.
Thread: TypeAlias = Generator[Op | float, Result, Any]


class Failed(Exception):
    """A rebalance attempt has thrown."""


class ScalaConsumer(SimProcess):
    """One process."""

    ours = False

    def __init__(
        self,
        clock: Clock,
        random: Random,
        server: SimServer,
        brokers: Brokers,
        group: str,
        name: str,
        registration: Registration,
        strategy: Strategy,
        timeout: float,
        *,
        commit_interval: float = 1.0,
        delivered: Callable[[ScalaConsumer, Run], None],
        consumed: Callable[[ScalaConsumer, Run], None],
        jumped: Callable[[TopicPartition, int], None],
        report: Report = nobody,
    ) -> None:
        super().__init__(clock, random, server, brokers, name, timeout, report)
        self.registration = registration
        self._group = group
        self._strategy = strategy
        self._interval = commit_interval
        self._connected = False
        self._waiting: list[tuple[Op, Callable[[Result], None]]] = []  # for a connection
        self._owned: dict[TopicPartition, None] = {}
        self._returned: dict[TopicPartition, int] = {}
        self._checkpoint: dict[TopicPartition, int] = {}
        self._wanted = False  # a rebalance
        self._busy = False
        self._seen: dict[str, Any] = {}  # what was read last of what is watched

        def deliver(run: Run) -> None:
            self._returned[run.partition] = run.next
            delivered(self, run)
            consumed(self, run)  # what the iterator has returned counts, whether or not it was processed

        self.reader = SimReader(clock, random, brokers, lambda: True, deliver, lambda run: None, jumped)

    # ------------------------------------------------------------ what happens to it

    def start(self) -> None:
        self._open()
        self._run(self._begin())
        self._run(self._committing())

    def leave(self) -> None:
        """Commit, and end the session: that releases what is owned."""
        self.reader.ledger.fence()

        def go() -> Thread:
            yield from self._commit()
            self._end()
            if self.session is not None:
                self.session.close()

        self._run(go())

    def _end(self) -> None:
        self.finished = self.reader.dead = True

    @property
    def settled(self) -> bool:
        """Whether it rests."""
        return not self._busy and not self._wanted and not self.frozen and self.up

    @property
    def state(self) -> str:
        return "dead" if self.dead else "finished" if self.finished else "busy" if self._busy else "resting"

    # ------------------------------------------------------------ threads, and ZkClient

    def _run(self, thread: Thread) -> None:
        def step(result: Result) -> None:
            if self.dead:
                return
            try:
                wanted = thread.send(result)
            except StopIteration:
                return
            if isinstance(wanted, float):
                self._clock.after(wanted, lambda: self._later(lambda: step(None)))
            else:
                self._ask(wanted, step)

        self._clock.after(0.0, lambda: self._later(lambda: step(None)))

    def _ask(self, op: Op, then: Callable[[Result], None]) -> None:
        """As ``retryUntilConnected``: whatever becomes of the connection, and of the session."""

        def answered(results: list[Result]) -> None:
            result = results[0]
            lost = isinstance(result, Failure) and result.code in (Code.CONNECTION_LOSS, Code.SESSION_EXPIRED)
            if lost:
                self._waiting.append((op, then))
                if self._connected and self.session is not None and self.session.connected:
                    self._clock.after(0.01, self._again)
            else:
                self._later(lambda: then(result))

        if self.session is None or not self._connected:
            self._waiting.append((op, then))
        else:
            self.session.submit((op,), answered)

    def _again(self) -> None:
        waiting, self._waiting = self._waiting, []
        for op, then in waiting:
            self._ask(op, then)

    def _open(self) -> None:
        def tell(session: SimSession, event: SessionEvent) -> None:
            self._clock.after(0.0, lambda: self._later(lambda: self._hear(session, event)))

        self._open_session(tell)

    def _hear(self, session: SimSession, event: SessionEvent) -> None:
        if session is not self.session or self.finished:
            return
        match event:
            case Connected():
                first, self._connected = not self._connected, True
                if first and self._seen:
                    self._run(self._reread())  # the client sets its watches again, and hears what it missed
                self._again()
            case Expired():
                self._connected = False
                self._open()
                self._run(self._new_session())
            case Changed(path):
                self._run(self._changed(path))
            case _:
                self._connected = False

    # ------------------------------------------------------------ ZookeeperConsumerConnector

    def _begin(self) -> Thread:
        made = yield from self._register()
        if not made:
            self.log.append("its id is taken")
            self._end()
            return
        self._want()

    def _register(self) -> Thread:
        yield Ensure(znodes.ids(self._group))
        data = znodes.encode_registration(self.registration)
        path = znodes.member_id(self._group, self.name)
        made = yield Create(path, data, ephemeral=True)
        if not isinstance(made, Failure):
            return True
        stat = yield Exists(path)
        return not isinstance(stat, Failure) and stat is not None and stat.owner == self._session_id  # type: ignore[union-attr]

    @property
    def _session_id(self) -> int:
        return 0 if self.session is None else self.session.id

    def _new_session(self) -> Thread:
        """The registry is dropped, uncommitted."""
        self._owned.clear()
        self._returned.clear()
        self._checkpoint.clear()
        self.reader.ledger.fence()
        self._seen.clear()
        yield from self._register()
        self._want()

    def _changed(self, path: str) -> Thread:
        """ZkClient's event thread sets the watch again, then reports."""
        if path == znodes.ids(self._group) or (path == znodes.topics() and self.registration.pattern != "static"):
            self._seen[path] = yield Children(path, watch=True)
            self._want()
        elif path.startswith(znodes.topics() + "/"):
            node = yield Get(path, watch=True)
            if isinstance(node, Node):  # a deletion does not trigger it
                self._seen[path] = node.data
                self._want()

    def _reread(self) -> Thread:
        for path in list(self._seen):
            before = self._seen.get(path)
            if path in (znodes.ids(self._group), znodes.topics()):
                now: Any = yield Children(path, watch=True)
                changed = sorted(now) != sorted(before or ()) if isinstance(now, tuple) else True
            else:
                node = yield Get(path, watch=True)
                now = node.data if isinstance(node, Node) else before
                changed = now != before
            self._seen[path] = now
            if changed:
                self._want()

    def _want(self) -> None:
        self._wanted = True
        if not self._busy:
            self._busy = True
            self._run(self._executor())

    def _executor(self) -> Thread:
        """One thread rebalances; what triggers it in the meantime makes it go round again."""
        while self._wanted and not self.finished:
            self._wanted = False
            for attempt in range(RETRIES):
                try:
                    if (yield from self._rebalance()):
                        break
                except (Failed, ZkgroupError) as error:
                    self.log.append(f"attempt {attempt} failed: {error}")
                self.reader.ledger.fence()
                yield BACKOFF
            else:
                self.log.append("cannot rebalance: stays as it is")
        self._busy = False

    def _rebalance(self) -> Thread:
        brokers = yield Children(znodes.broker_ids(), watch=True)
        if not brokers or isinstance(brokers, Failure):
            return True
        self.reader.ledger.fence()
        yield from self._commit()
        yield from self._release()
        members, partitions = yield from self._read_group()
        share = assign(self._strategy, "1.1", members, partitions).of(self.name)
        starts: dict[TopicPartition, int] = {}
        for partition in share:
            node = yield Get(znodes.offset(self._group, partition))
            starts[partition] = int(node.data) if isinstance(node, Node) else 0
        claimed: list[TopicPartition] = []
        for partition, thread in share.items():
            path, data = znodes.owner(self._group, partition), str(thread).encode()
            yield Ensure(znodes.owner_topic(self._group, partition.topic))
            made = yield Create(path, data, ephemeral=True)
            if isinstance(made, Failure):
                node = yield Get(path)
                if not (isinstance(node, Node) and node.data == data):
                    for each in claimed:
                        yield Delete(znodes.owner(self._group, each))
                    return False
            claimed.append(partition)
        if self.finished:
            return True
        self._owned = dict.fromkeys(share)
        self._returned = dict(starts)
        self._checkpoint = dict(starts)
        self.reader.assign(0, starts)
        return True

    def _release(self) -> Thread:
        for partition in list(self._owned):
            yield Delete(znodes.owner(self._group, partition))
        self._owned.clear()

    def _read_group(self) -> Thread:
        path = znodes.ids(self._group)
        listed = yield Children(path, watch=True)
        self._seen[path] = listed
        topics: Result = yield Children(znodes.topics(), watch=self.registration.pattern != "static")
        known = sorted(topics) if isinstance(topics, tuple) else []
        if self.registration.pattern != "static":
            self._seen[znodes.topics()] = topics
        members: dict[str, dict[str, int]] = {}
        for name in sorted(listed) if isinstance(listed, tuple) else ():
            node = yield Get(znodes.member_id(self._group, name))
            if not isinstance(node, Node):
                raise Failed(f"{name} is gone")
            members[name] = TopicSelections(known).streams(znodes.decode_registration(name, node.data))
        if self.name not in members:
            raise Failed("its own id is gone")
        partitions: dict[str, Iterable[int]] = {}
        for topic in sorted({topic for subscribed in members.values() for topic in subscribed}):
            mine = topic in members[self.name]
            node = yield Get(znodes.topic(topic), watch=mine)
            if isinstance(node, Node):
                partitions[topic] = decode_topic(topic, node.data).partitions
                if mine:
                    self._seen[znodes.topic(topic)] = node.data
            elif mine:
                yield Exists(znodes.topic(topic), watch=True)
        return members, partitions

    def _committing(self) -> Thread:
        while not self.finished:
            yield self._interval
            yield from self._commit()

    def _commit(self) -> Thread:
        for partition in list(self._owned):
            offset = self._returned.get(partition)
            if offset is None or offset == self._checkpoint.get(partition):
                continue
            self._checkpoint[partition] = offset
            path, data = znodes.offset(self._group, partition), znodes.encode_offset(offset)
            written = yield SetData(path, data)
            if isinstance(written, Failure) and written.code is Code.NO_NODE:
                yield Ensure(znodes.offset_topic(self._group, partition.topic))
                yield Create(path, data)
