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
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from zkgroup.clients.kafka.responses import KafkaGroup, MessageAge, words_of
from zkgroup.clients.zookeeper.registry import EVERYTHING, Registry
from zkgroup.errors import ZkgroupError, is_wrong_setting
from zkgroup.groups.group_model import GroupSnapshot
from zkgroup.groups.snapshot.group_znodes import TopicSelections
from zkgroup.groups.snapshot.snapshot_builder import build_snapshot, with_logs
from zkgroup.groups.snapshot.znode_reader import NodeCache, ZnodeReader, assigned
from zkgroup.protocol import znodes
from zkgroup.protocol.names import OFFSETS_TOPIC, TopicPartition
from zkgroup.protocol.operations import Exists, Stat

if TYPE_CHECKING:
    from zkgroup.clients.kafka.client import KafkaSettings
    from zkgroup.clients.kafka.group_coordinator import Coordinators
    from zkgroup.clients.kafka.log_offsets import Log


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
        self.requests += len(missing)
        found = registry.read([Exists(path, watch=True) for path in missing]) if missing else ()
        for path, stat in zip(missing, found, strict=True):
            if isinstance(stat, Stat):
                self.change(path)  # it has come meanwhile
        return missing


log = logging.getLogger(__name__)

#: Seconds between two readings of messages' ages, and for one of them at most: each opens a consumer.
AGES_INTERVAL: Final = 10.0
AGES_TIMEOUT: Final = 1.0
#: For so many seconds the coordinator is not asked again for a group that it does not know.
UNKNOWN_FOR: Final = 30.0


@dataclass(frozen=True, slots=True)
class Answer:
    """The brokers' answer; ``error``: why a part of it is missing, else None. ``ages``: those of the last
    ``AGES_INTERVAL``."""

    kafka_group: KafkaGroup = field(default_factory=KafkaGroup)
    logs: dict[TopicPartition, Log] = field(default_factory=dict)
    error: str | None = None
    ages: Mapping[TopicPartition, MessageAge] = field(default_factory=dict)


class BrokerPoller:
    """Sends requests about ``group`` on a thread, one after the other.

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
        self._thread: threading.Thread | None = None
        self._brokers: tuple[int, ...] | None = None
        self._settings: KafkaSettings | None = None
        self._coordinators: Coordinators | None = None
        self._kafka_group = KafkaGroup()
        self._unknown_since: float | None = None
        self._ages: Mapping[TopicPartition, MessageAge] = {}
        self._ages_due = 0.0

    def ask(self, snapshot: GroupSnapshot, positions: Mapping[TopicPartition, int], *, by_partition: bool) -> None:
        """Send the request for what ``snapshot`` has, unless the last one is not answered yet. ``positions``: the
        offsets that are read next, where the age of the message there is wanted. ``by_partition``: as in
        ``Coordinators.read_groups``."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(
                target=self._run, args=(snapshot, positions, by_partition), name="zkgroup-poll", daemon=True
            )
            self._thread.start()

    def close(self, timeout: float = 0.5) -> None:
        """End. A thread that waits for a broker is not waited for: it ends with the broker's answer."""
        if self._thread is not None:
            self._thread.join(timeout)

    def _run(self, snapshot: GroupSnapshot, positions: Mapping[TopicPartition, int], by_partition: bool) -> None:
        try:
            answer: Answer | BaseException = self._answer(snapshot, positions, by_partition)
        except BaseException as error:  # noqa: BLE001  # the caller raises it
            answer = error
        self._done(answer)

    def _answer(self, snapshot: GroupSnapshot, positions: Mapping[TopicPartition, int], by_partition: bool) -> Answer:
        try:
            coordinators = self._connect(snapshot.broker_ids)
            # A request to the coordinator makes brokers create this topic; without it there are no offsets in Kafka.
            if self._reads_coordinator and OFFSETS_TOPIC in snapshot.existing_topics:
                self._read_kafka_group(coordinators, by_partition)
            existing = {p.key for p in snapshot.partitions if p.exists}
            wanted = existing | self._kafka_group.offsets.keys() | assigned(self._kafka_group).keys()
            error = "; ".join(words_of(f"group {self._group}", self._kafka_group.failures)) or None
            logs = coordinators.log_offsets(sorted(wanted), self._timeout) if wanted else {}
            return Answer(self._kafka_group, logs, error, self._read_ages(positions))
        except ZkgroupError as error:
            if is_wrong_setting(error) and self._brokers is None:  # what is registered later ends no watch
                raise
            self._coordinators = None
            return Answer(self._kafka_group, {}, error.message)

    def _connect(self, brokers: tuple[int, ...]) -> Coordinators:
        """The brokers; their addresses are found anew where others are registered than last time."""
        from zkgroup.clients.kafka.group_coordinator import (
            Coordinators,  # confluent-kafka, which not every import needs
        )

        if self._coordinators is None or brokers != self._brokers:
            settings = self._find()
            if self._coordinators is None or settings != self._settings:
                self._settings, self._coordinators = settings, Coordinators(settings, self._timeout)
            self._brokers = brokers
        return self._coordinators

    def _read_kafka_group(self, coordinators: Coordinators, by_partition: bool) -> None:
        since = self._unknown_since
        if since is None or time.monotonic() - since >= UNKNOWN_FOR:
            found = self._kafka_group = coordinators.read_group(self._group, by_partition=by_partition)
            is_known = found.group is not None or found.offsets or found.failures
            self._unknown_since = None if is_known else time.monotonic()

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
