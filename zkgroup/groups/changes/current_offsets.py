"""Where a group's offsets stand, for who wants to move them: the partitions that are meant, their offsets in the stores
that are meant, and their logs. ``snapshot`` looks at whole groups; this looks only at what may be written."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from zkgroup.clients.kafka.client import KafkaSettings, topics
from zkgroup.clients.kafka.log_offsets import LogRange, log_offsets
from zkgroup.clients.kafka.responses import KafkaSide
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import (
    MalformedZnodeError,
    NotFoundError,
    RefusedError,
    UnreachableError,
    UsageError,
    ZkgroupError,
    did_you_mean,
)
from zkgroup.groups.changes.change_reports import check_told, unknown_in_kafka
from zkgroup.groups.changes.reset_plan import OneStore, home_of
from zkgroup.groups.group_model import GroupPartition, KafkaOffset, Store, StoredOffset, in_store
from zkgroup.groups.partition_scope import Scope, check_topics, no_partition
from zkgroup.groups.snapshot.stored_offsets import hidden_offset, stored_offset
from zkgroup.groups.snapshot.znode_reader import Nodes, below, foreign_children, group_names, topic_path
from zkgroup.protocol import znodes
from zkgroup.protocol.broker_znodes import decode_topic
from zkgroup.protocol.names import OFFSETS_TOPIC, TopicPartition

#: Finds out how to reach the brokers. Called when they are needed.
Brokers: TypeAlias = Callable[[], KafkaSettings]

#: A broker's answer about one partition.
Log: TypeAlias = LogRange | ZkgroupError

_PARTITION: Final = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which partitions are meant. ``scope``: those that were named, None for all of the group's topics. ``listed``:
    those of a file, of which ``scope`` leaves some. ``gone``: they need not exist."""

    scope: Scope | None = None
    listed: frozenset[TopicPartition] | None = None
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Standing:
    """What there is. ``exists``: the group was known in one of its stores. ``unreadable``: what offset nodes hold that
    is not just an offset's number. ``side`` is Kafka's, None where it was not asked. ``homes``: in which store each
    partition is meant, where nobody has said so; empty where one store is meant, or both for all of them. ``foreign``:
    nodes right below the group's that no consumer makes; ``strays``: offset nodes that are no partition's, in words."""

    group: str
    store: Store
    exists: bool
    partitions: Mapping[TopicPartition, GroupPartition]
    unreadable: Mapping[TopicPartition, bytes] = field(default_factory=dict)
    side: KafkaSide | None = None
    warnings: tuple[str, ...] = ()
    homes: Mapping[TopicPartition, Store] = field(default_factory=dict)
    foreign: tuple[str, ...] = ()
    strays: tuple[str, ...] = ()


class Surveyor:
    """Looks at one group. Without a ``registry`` only at what Kafka keeps. ``timeout`` (seconds) is for the brokers."""

    def __init__(self, registry: Registry | None, brokers: Brokers, group: str, timeout: float) -> None:
        self._registry = registry
        self._brokers = brokers
        self._group = group
        self._timeout = timeout
        self._nodes = Nodes()
        self._topics: Mapping[str, tuple[int, ...]] = {}
        self._damaged: dict[str, MalformedZnodeError] = {}
        self._strays: list[str] = []
        # A change is refused where something may not be read, a look fails.
        self._unreadable: type[ZkgroupError] = ZkgroupError

    def look(self, selection: Selection, store: Store | None, *, logs_needed: bool, making: bool = True) -> Standing:
        """Read everything. Without ``store``, that where the group keeps its offsets: ZooKeeper for a new group.
        ``making``: who looks may make the group, and is told how.

        Raises ``NotFoundError`` for a group, topic or partition that does not exist (a group that is named with its
        partitions may be new), and ``UnreachableError``. Logs that are not ``logs_needed`` may remain unknown.
        """
        self._nodes = Nodes()
        self._unreadable = RefusedError if making else ZkgroupError
        warnings: list[str] = []
        in_zookeeper = self._read_group()
        named = store is not None
        where = in_store(store)
        store, side = self._settle_store(store, in_zookeeper, logs_needed=logs_needed)
        in_kafka = side is not None and (side.group is not None or bool(side.offsets))
        exists = in_zookeeper or in_kafka
        if not exists and selection.scope is None and selection.listed is None:
            raise no_group(self._group, self._registry, making=making, where=where)
        found = self._partitions(selection, store, side, where)
        unreadable: dict[TopicPartition, bytes] = {}
        stored: Mapping[TopicPartition, StoredOffset] = {}
        logs: Mapping[TopicPartition, Log] = {}
        # Brokers and ZooKeeper are asked at the same time: with thousands of partitions each takes a second.
        with ThreadPoolExecutor(1) as beside:
            asked = self._ask_logs(found, beside, warnings, needed=logs_needed)
            if store != "kafka":
                stored = self._read_stored(found, unreadable)
            try:
                logs = asked.result() if asked is not None else {}
            except ZkgroupError as error:
                if logs_needed:
                    raise
                warnings.append(f"log offsets are not known: {error.message}")
        kept = side.offsets if side is not None and store != "zookeeper" else {}
        partitions = {
            key: _partition(key, missing, stored.get(key), kept.get(key), logs.get(key))
            for key, missing in found.items()
        }
        homes = self._homes(partitions.values(), kept) if store == "both" and not named else {}
        foreign = foreign_children(self._group, self._nodes) if store != "kafka" else ()
        strays = tuple(self._strays)
        return Standing(
            self._group, store, exists, partitions, unreadable, side, tuple(warnings), homes, foreign, strays
        )

    # --- the group --------------------------------------------------------------------------------------------------

    def _read_group(self) -> bool:
        """Whether ZooKeeper knows the group; reads which topics it has offsets of."""
        if self._registry is None:
            return False
        path = znodes.offsets(self._group)
        self._nodes.ask(
            self._registry,
            lists=[znodes.group(self._group), path, znodes.topics()],
            nodes=[znodes.group(self._group), znodes.topic(OFFSETS_TOPIC)],
        )
        if why := self._nodes.failure(path):
            raise self._unreadable(why, "connect with credentials that may read the group's nodes")
        return self._nodes.exists(znodes.group(self._group))

    def _settle_store(
        self, store: Store | None, in_zookeeper: bool, *, logs_needed: bool
    ) -> tuple[Store, KafkaSide | None]:
        """Which stores are meant, and what Kafka tells if it is one of them. Raises ``ZkgroupError`` where it does not
        tell."""
        if store == "zookeeper":
            return store, None
        asked = store is not None
        # The first question for a group makes brokers create that topic, and looking is to leave no trace.
        if not asked and self._registry is not None and not self._nodes.exists(znodes.topic(OFFSETS_TOPIC)):
            return "zookeeper", None
        answered = False
        try:
            side = self._ask_coordinator()
            answered = True
            check_told(self._group, side)
        except ZkgroupError as error:
            # Where no broker answers, ZooKeeper's half cannot be moved either if that takes the logs.
            raise error if asked or (logs_needed and not answered) else unknown_in_kafka(self._group, error) from None
        if store is None:
            in_kafka = bool(side.offsets) or bool(side.group and side.group.members)
            store = ("both" if in_zookeeper else "kafka") if in_kafka else "zookeeper"
        return store, side if store != "zookeeper" else None

    def _ask_coordinator(self) -> KafkaSide:
        from zkgroup.clients.kafka.group_coordinator import Coordinators

        coordinators = Coordinators(self._brokers(), self._timeout)
        side = coordinators.sides([self._group])[self._group]
        if side.untold and not side.offsets:  # releases before 0.10.2 want every partition named
            side = coordinators.sides([self._group], by_partition=True)[self._group]
        return side

    def _homes(
        self, partitions: Iterable[GroupPartition], kept: Mapping[TopicPartition, KafkaOffset]
    ) -> dict[TopicPartition, Store]:
        """In which store each partition is meant: where it has an offset, else where the others of its topic have
        theirs, else those of the group. ZooKeeper comes first, as it can forget one again."""
        wanted = list(partitions)
        parents = {path.rpartition("/")[2]: path for path in below(znodes.offsets(self._group), self._nodes)}
        meant = {one.topic for one in wanted} & parents.keys()
        if self._registry is not None:
            self._nodes.ask(self._registry, lists=[parents[topic] for topic in meant])
        in_zookeeper = {topic for topic in meant if self._nodes.names(parents[topic])}
        in_kafka = {key.topic for key in kept}

        def otherwise(topic: str) -> OneStore:
            if topic in in_zookeeper or topic in in_kafka:
                return "zookeeper" if topic in in_zookeeper else "kafka"
            return "zookeeper" if parents else "kafka"

        return {one.key: home_of(one, otherwise(one.topic)) for one in wanted}

    def elsewhere(self, store: Store, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offsets that the group has in the store that is not ``store``, of these partitions, as far as that store
        can be asked without leaving a trace."""
        if store == "kafka":
            found = {} if self._registry is None else self._read_stored(partitions, {})
            return {key: stored.offset for key, stored in found.items() if stored.offset is not None}
        if store == "both" or not self._nodes.exists(znodes.topic(OFFSETS_TOPIC)):
            return {}
        try:
            kept = self._ask_coordinator().offsets
        except ZkgroupError:  # what is to be written can be written all the same
            return {}
        return {key: one.offset for key, one in kept.items() if one.offset is not None}

    # --- partitions -------------------------------------------------------------------------------------------------

    def _partitions(
        self, selection: Selection, store: Store, side: KafkaSide | None, where: str
    ) -> dict[TopicPartition, str | None]:
        """The partitions that are meant, each with why it does not exist, None where it does."""
        committed = side.offsets if side is not None else {}
        if selection.listed is not None:
            keys = [key for key in selection.listed if selection.scope is None or selection.scope.has(key)]
            if not keys:
                raise UsageError("the file has none of the partitions that are named", "see --topic")
            self._topics = self._read_topics({key.topic for key in keys})
            if not selection.gone:
                self._refuse_damaged()
                self._check(keys)
            keys.sort()
        elif selection.scope is not None:
            self._topics = self._read_topics(selection.scope.topics)
            self._refuse_damaged()
            check_topics(selection.scope.topics, self._topics, self._all_topics)
            keys = selection.scope.select(self._topics)
        else:
            keys = self._all(store, committed)
            if not keys:
                raise NotFoundError(
                    f"group {self._group} has no offsets{where}", self._other_store(store, named=bool(where))
                )
        there = {topic: frozenset(numbers) for topic, numbers in self._topics.items()}
        damaged = {topic: error.message for topic, error in self._damaged.items()}
        return {key: damaged.get(key.topic) or _missing(key, there.get(key.topic)) for key in keys}

    def _refuse_damaged(self) -> None:
        """Raise ``MalformedZnodeError`` where a topic that was named has a damaged node; of all topics it is left."""
        for error in self._damaged.values():
            raise error

    def _other_store(self, store: Store, *, named: bool) -> str:
        """What to do where a group has no offsets in the store that is meant."""
        nothing = "there is nothing to save, or to move unless --topic names new topics"
        if named and store == "kafka" and self._registry is not None and self._all("zookeeper", ()):
            return "it has some in ZooKeeper: see --store"
        if named and store == "zookeeper" and self._nodes.exists(znodes.topic(OFFSETS_TOPIC)):
            with suppress(ZkgroupError):  # what was asked is answered all the same
                if self._ask_coordinator().offsets:
                    return "it has some in Kafka: see --store"
        return nothing

    def _check(self, keys: Iterable[TopicPartition]) -> None:
        """Raise ``NotFoundError`` for partitions that do not exist."""
        wanted = list(keys)
        check_topics({key.topic for key in wanted}, self._topics, self._all_topics)
        there = {topic: frozenset(numbers) for topic, numbers in self._topics.items()}
        if missing := min((key for key in wanted if key.partition not in there[key.topic]), default=None):
            raise no_partition(missing, self._topics[missing.topic])

    def _all_topics(self) -> Iterable[str]:
        """The names of all that exist; none where they may not be read."""
        if self._registry is None:
            return topics(self._brokers(), self._timeout)
        self._nodes.ask(self._registry, lists=[znodes.topics()])
        return self._nodes.names(znodes.topics())

    def _all(self, store: Store, committed: Iterable[TopicPartition]) -> list[TopicPartition]:
        """All partitions of all topics that the group has offsets of, and what else it has offsets of."""
        keys = set(committed)
        if store != "kafka" and self._registry is not None:
            parents = below(znodes.offsets(self._group), self._nodes)
            self._nodes.ask(self._registry, lists=parents)
            for parent in parents:
                if why := self._nodes.failure(parent):
                    raise self._unreadable(why, "connect with credentials that may read the group's nodes")
                topic = parent.rpartition("/")[2]
                names = self._nodes.names(parent)
                keys |= {TopicPartition(topic, int(name)) for name in names if _PARTITION.fullmatch(name)}
                strays = sorted(name for name in names if not _PARTITION.fullmatch(name))
                self._strays += [f"znode {parent}/{name} is not named by a partition" for name in strays]
        self._topics = self._read_topics({key.topic for key in keys})
        keys |= {TopicPartition(topic, number) for topic, numbers in self._topics.items() for number in numbers}
        return sorted(keys)

    def _read_topics(self, names: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """The partitions of those topics that exist. Those whose nodes are damaged are in ``_damaged`` instead."""
        if self._registry is None:
            wanted = set(names)
            found = topics(self._brokers(), self._timeout)
            return {topic: numbers for topic, numbers in found.items() if topic in wanted}
        paths = {topic: path for topic in names if (path := topic_path(topic)) is not None}
        self._nodes.ask(self._registry, nodes=paths.values())
        existing: dict[str, tuple[int, ...]] = {}
        for topic, path in paths.items():
            if why := self._nodes.failure(path):
                raise self._unreadable(why, "connect with credentials that may read the topics")
            node = self._nodes.node(path)
            if node is not None:
                try:
                    existing[topic] = tuple(decode_topic(path, node.data).partitions)
                except MalformedZnodeError as error:
                    self._damaged[topic] = error
        return existing

    # --- what is known of them --------------------------------------------------------------------------------------

    def _read_stored(
        self, keys: Iterable[TopicPartition], unreadable: dict[TopicPartition, bytes]
    ) -> dict[TopicPartition, StoredOffset]:
        if self._registry is None:
            raise UsageError("no ZooKeeper was named", "give --zookeeper, or --store kafka")
        paths = znodes.offset_paths(self._group, keys)
        self._nodes.ask(self._registry, nodes=paths.values())
        result = {}
        for key, path in paths.items():
            node = self._nodes.node(path)
            if node is not None:
                result[key] = stored_offset(path, node)
                if result[key].error is not None or result[key].defect is not None:
                    unreadable[key] = node.data
            elif why := self._nodes.failure(path):
                result[key] = hidden_offset(why)
        return result

    def _ask_logs(
        self,
        found: Mapping[TopicPartition, str | None],
        beside: ThreadPoolExecutor,
        warnings: list[str],
        *,
        needed: bool,
    ) -> Future[dict[TopicPartition, Log]] | None:
        """Begin to ask the brokers; None where there is nothing to ask, or nobody."""
        existing = [key for key, missing in found.items() if missing is None]
        if not existing:
            return None
        try:
            settings = self._brokers()
        except ZkgroupError as error:
            if needed:
                raise
            warnings.append(f"log offsets are not known: {error.message}")
            return None
        return beside.submit(read_logs, settings, existing, self._timeout)


def no_group(group: str, registry: Registry | None, *, making: bool, where: str = "") -> NotFoundError:
    """The error for a group that is nowhere, or not there."""
    new = "; for a new group name the topics with --topic" if making else ""
    remedy = f"check its name, list-groups shows which there are{new}"
    return NotFoundError(f"there is no group {group}{where}", did_you_mean(group, group_names(registry), remedy))


def _missing(key: TopicPartition, numbers: frozenset[int] | None) -> str | None:
    """Why a partition does not exist; None where it is one of its topic's."""
    if numbers is None:
        return f"topic {key.topic} does not exist"
    return None if key.partition in numbers else f"topic {key.topic} has no partition {key.partition}"


def _partition(
    key: TopicPartition, missing: str | None, stored: StoredOffset | None, kafka: KafkaOffset | None, log: Log | None
) -> GroupPartition:
    start, end, error = _of_log(log)
    return GroupPartition(
        *key,
        exists=missing is None,
        stored=stored,
        kafka=kafka,
        log_start=start,
        log_end=end,
        log_error=missing if log is None else error,
    )


def patience(timeout: float, partitions: int) -> float:
    """How long to wait for an answer about so many partitions, in seconds: a busy broker needs a while for ten
    thousand."""
    return timeout + partitions // 1000


def read_logs(
    settings: KafkaSettings, partitions: Sequence[TopicPartition], timeout: float
) -> dict[TopicPartition, Log]:
    """The partitions' logs, with patience; who does not answer is told with the time that was given. Raises
    ``UnreachableError`` when no broker answers at all."""
    count = len(partitions)
    try:
        found = log_offsets(settings, partitions, patience(timeout, count))
    except UnreachableError as error:
        _tell_given(error, timeout, count)
        raise
    for one in {id(one): one for one in found.values() if isinstance(one, UnreachableError)}.values():
        _tell_given(one, timeout, count)
    return found


def _tell_given(error: UnreachableError, timeout: float, count: int) -> None:
    if patience(timeout, count) > timeout:
        error.message += f" ({timeout:g} s, and one more for each 1000 partitions)"


def with_logs(
    found: Mapping[TopicPartition, GroupPartition], logs: Mapping[TopicPartition, Log]
) -> dict[TopicPartition, GroupPartition]:
    """The same partitions with these logs."""
    return {key: _with_log(one, logs[key]) if key in logs else one for key, one in found.items()}


def _with_log(partition: GroupPartition, log: Log) -> GroupPartition:
    start, end, error = _of_log(log)
    if (partition.log_start, partition.log_end, partition.log_error) == (start, end, error):
        return partition
    return replace(partition, log_start=start, log_end=end, log_error=error)


def _of_log(log: Log | None) -> tuple[int | None, int | None, str | None]:
    """First offset, end and error of a broker's answer; nothing where it was not asked."""
    if log is None:
        return None, None, None
    return (log.start, log.end, None) if isinstance(log, LogRange) else (None, None, log.message)
