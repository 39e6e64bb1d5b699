"""What a watch reads: the group's znodes, kept up to date by watches, and the brokers' answers.

All znodes are read once, then only those that have changed. A watch fires once; the next reading that needs the node
reads it again and sets a new watch. Offset nodes may change many times a second: their changes wait for the next
reading of offsets. No node is created.

A request to a dead broker lasts until its time-out. These requests have a thread of their own, so that the watch of
ZooKeeper goes on meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from zkgroup.clients.kafka.responses import KafkaGroup, MessageAge, words_of
from zkgroup.clients.zookeeper.registry import EVERYTHING, Registry
from zkgroup.errors import ZkgroupError, is_wrong_setting
from zkgroup.groups.group_model import GroupSnapshot
from zkgroup.groups.snapshot.group_znodes import TopicSelections
from zkgroup.groups.snapshot.raw_group import build_raw_group, build_snapshot
from zkgroup.groups.snapshot.znode_reader import NodeCache, ZnodeReader, assigned
from zkgroup.protocol import znodes
from zkgroup.protocol.names import OFFSETS_TOPIC, TopicPartition
from zkgroup.protocol.operations import Children, Code, Exists, Failure, Get, Op, Stat

if TYPE_CHECKING:
    from zkgroup.clients.kafka.client import KafkaSettings
    from zkgroup.clients.kafka.group_coordinator import Coordinators
    from zkgroup.clients.kafka.log_offsets import Log


class WatchedNodeCache(NodeCache):
    """A ``NodeCache`` that watches its nodes and reads the changed ones again. One thread, but for ``change``."""

    def __init__(self, patient: str) -> None:
        """``patient``: the path below which changes wait for a reading of everything."""
        super().__init__()
        self._patient = f"{patient}/"
        self._lock = threading.Lock()
        self._changed: set[str] = set()
        self._lost = False
        self._used: set[str] = set()
        self._noticed: int | None = None
        #: How many requests were sent.
        self.requests = 0

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
        """When the first change since the last call was noted, below ``patient`` excepted (milliseconds since 1970)."""
        with self._lock:
            at, self._noticed = self._noticed, None
        return at

    def begin(self, *, everything: bool) -> None:
        """Before a reading: forget the nodes that have changed; without ``everything`` not those below ``patient``."""
        with self._lock:
            lost, self._lost = self._lost, False
            changed = {path for path in self._changed if everything or lost or not path.startswith(self._patient)}
            self._changed -= changed
        self._used.clear()
        if lost:
            self._forget([*self._lists, *self._nodes])
        else:
            self._forget(changed)

    def end(self) -> None:
        """After a reading: forget the nodes that it did not use, as of a partition that is gone."""
        self._forget([path for path in {*self._lists, *self._nodes} if path not in self._used])

    def _forget(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._lists.pop(path, None)
            self._nodes.pop(path, None)
            self._unreadable.pop(path, None)
        self._children.clear()

    def read(self, registry: Registry, *, lists: Iterable[str] = (), nodes: Iterable[str] = ()) -> None:
        """As ``NodeCache.read``, with watches; a node that is not there is watched for its coming."""
        lists, nodes = list(dict.fromkeys(lists)), list(dict.fromkeys(nodes))
        self._used.update(lists, nodes)
        ops: list[Op] = [Children(path, watch=True) for path in lists if path and path not in self._lists]
        ops += [Get(path, watch=True) for path in nodes if path and path not in self._nodes]
        if not ops:
            return
        results = registry.read(ops)
        missing: dict[str, None] = {}
        for op, result in zip(ops, results, strict=True):
            (self._lists if isinstance(op, Children) else self._nodes)[op.path] = result
            if isinstance(result, Failure):
                if result.code is Code.NO_NODE:
                    missing[op.path] = None
                else:
                    self._unreadable.setdefault(op.path, str(result.code.value))
        self._children.clear()
        self.requests += len(ops) + len(missing)
        if missing:
            found = registry.read([Exists(path, watch=True) for path in missing])
            for path in (path for path, stat in zip(missing, found, strict=True) if isinstance(stat, Stat)):
                self.change(path)  # it has come meanwhile


class WatchedGroupReader:
    """Reads one group in ZooKeeper again and again. Used by one thread, but for ``nodes.change``."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.nodes = WatchedNodeCache(znodes.offsets(group))
        self._selections: TopicSelections | None = None

    def read(
        self, registry: Registry, at: int, kafka_group: KafkaGroup, logs: dict[TopicPartition, Log], *, offsets: bool
    ) -> GroupSnapshot:
        """The group as it is now; ``kafka_group`` and ``logs`` are the brokers' last answers. Without ``offsets`` those
        are not read again. A group that does not exist has ``in_zookeeper`` false. Raises ``UnreachableError``; nothing
        that was read before is lost then."""
        nodes, group = self.nodes, self.group
        nodes.begin(everything=offsets)
        reader = ZnodeReader(registry, [group], nodes)
        reader.read_members(self._selections)
        self._selections = reader.cluster.selections  # a filter takes a while with thousands of topics
        reader.read_partitions()
        reader.read_topics(reader.concerned_topics(group, kafka_group))
        nodes.end()
        raw = build_raw_group(group, nodes, reader.members[group], kafka_group, reader.cluster)
        return build_snapshot(raw, nodes, reader.cluster, at, logs)


log = logging.getLogger(__name__)

#: Seconds between two readings of messages' ages, and for one of them at most: each opens a consumer.
AGES_INTERVAL: Final = 10.0
AGES_TIMEOUT: Final = 1.0
#: For so many seconds the coordinator is not asked again for a group that it does not know.
UNKNOWN_FOR: Final = 30.0


@dataclass(frozen=True, slots=True)
class Question:
    """One request. ``brokers``: the ids of the registered ones; when these change, addresses are found anew.
    ``topics``: all that exist. ``by_partition``: as in ``Coordinators.read_groups``. ``positions``: the offsets that
    are read next, where the age of the message there is wanted."""

    partitions: Collection[TopicPartition]
    brokers: tuple[int, ...]
    topics: Collection[str]
    by_partition: bool = False
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """The brokers' answer; ``error``: why a part of it is missing, else None. ``ages``: those of the last
    ``AGES_INTERVAL``."""

    kafka_group: KafkaGroup = field(default_factory=KafkaGroup)
    logs: dict[TopicPartition, Log] = field(default_factory=dict)
    error: str | None = None
    ages: Mapping[TopicPartition, MessageAge] = field(default_factory=dict)


class BrokerPoller:
    """A thread that sends requests about ``group``, one after the other; ``close`` it.

    ``find`` finds out how to reach the brokers; ``done`` gets each answer, on the thread. ``timeout``: seconds, for
    each part of a request. ``coordinator``: whether the group may be in Kafka.
    """

    def __init__(
        self,
        group: str,
        find: Callable[[], KafkaSettings],
        done: Callable[[Answer | BaseException], object],
        timeout: float,
        *,
        coordinator: bool = True,
    ) -> None:
        self._group = group
        self._find = find
        self._done = done
        self._timeout = timeout
        self._reads_coordinator = coordinator
        self._condition = threading.Condition()
        self._question: Question | None = None
        self._busy = False
        self._closing = False
        self._brokers: tuple[int, ...] | None = None
        self._settings: KafkaSettings | None = None
        self._coordinators: Coordinators | None = None
        self._kafka_group = KafkaGroup()
        self._unknown_since: float | None = None
        self._ages: Mapping[TopicPartition, MessageAge] = {}
        self._ages_due = 0.0
        self._thread = threading.Thread(target=self._run, name="zkgroup-poll", daemon=True)

    def start(self) -> None:
        """Begin to wait for requests."""
        self._thread.start()

    def ask(self, question: Question) -> bool:
        """Send the request; False where the last one is not answered yet."""
        with self._condition:
            if self._busy or self._question is not None:
                return False
            self._question = question
            self._condition.notify()
        return True

    def close(self, timeout: float = 0.5) -> None:
        """End. A thread that waits for a broker is not waited for: it ends with the broker's answer."""
        with self._condition:
            self._closing = True
            self._condition.notify()
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        while True:
            with self._condition:
                while self._question is None and not self._closing:
                    self._condition.wait(1.0)
                if self._closing:
                    return
                question, self._question, self._busy = self._question, None, True
            assert question is not None
            try:
                answer: Answer | BaseException = self._answer(question)
            except BaseException as error:  # noqa: BLE001  # the caller raises it
                answer = error
            with self._condition:
                self._busy = False
                if self._closing:
                    return
            self._done(answer)

    def _answer(self, question: Question) -> Answer:
        try:
            self._find_brokers(question.brokers)
            self._read_kafka_group(question)
            wanted = {*question.partitions, *self._kafka_group.offsets, *assigned(self._kafka_group)}
            error = "; ".join(words_of(f"group {self._group}", self._kafka_group.failures)) or None
            return Answer(self._kafka_group, self._logs(wanted), error, self._read_ages(question.positions))
        except ZkgroupError as error:
            if is_wrong_setting(error) and self._brokers is None:  # what is registered later ends no watch
                raise
            self._settings = self._coordinators = None
            return Answer(self._kafka_group, {}, error.message)

    def _find_brokers(self, brokers: tuple[int, ...]) -> None:
        """Find the brokers' addresses, unless the same ones are registered as last time."""
        if self._settings is not None and brokers == self._brokers:
            return
        settings = self._find()
        if settings != self._settings:
            self._settings, self._coordinators = settings, None
        self._brokers = brokers

    def _read_kafka_group(self, question: Question) -> None:
        # A request to the coordinator makes brokers create this topic; without it there are no offsets in Kafka.
        if not self._reads_coordinator or OFFSETS_TOPIC not in question.topics or self._settings is None:
            return
        since = self._unknown_since
        if since is not None and time.monotonic() - since < UNKNOWN_FOR:
            return
        coordinators = self._connect(self._settings)
        kafka_group = coordinators.read_group(self._group, by_partition=question.by_partition)
        self._kafka_group = kafka_group
        nothing = kafka_group.group is None and not kafka_group.offsets and not kafka_group.failures
        self._unknown_since = time.monotonic() if nothing else None

    def _connect(self, settings: KafkaSettings) -> Coordinators:
        from zkgroup.clients.kafka.group_coordinator import (
            Coordinators,  # confluent-kafka, which not every import needs
        )

        if self._coordinators is None:
            self._coordinators = Coordinators(settings, self._timeout)
        return self._coordinators

    def _logs(self, wanted: Collection[TopicPartition]) -> dict[TopicPartition, Log]:
        if not wanted or self._settings is None:
            return {}
        return self._connect(self._settings).log_offsets(sorted(wanted), self._timeout)

    def _read_ages(self, positions: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, MessageAge]:
        """The ages of the messages at these positions; those of the last reading, where that is not long ago. Without
        those that cannot be read."""
        if not positions or self._settings is None:
            self._ages = {}
        elif time.monotonic() >= self._ages_due:
            from zkgroup.clients.kafka.message_times import message_ages  # as above

            wanted = {key: (position,) for key, position in positions.items()}
            with suppress(ZkgroupError):
                found = message_ages(self._settings, wanted, time.time_ns() // 1_000_000, AGES_TIMEOUT)
                self._ages = {key: age for key, its in found.ages.items() for age in its.values()}
            self._ages_due = time.monotonic() + AGES_INTERVAL
        return self._ages
