"""The reader of groups: from ZooKeeper, their coordinators and the brokers.

A node that is missing is missing in the snapshot, one that cannot be read carries its own error, what brokers do not
answer is unknown, and nothing is created.
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from zkgroup.clients.kafka.responses import (
    UNKNOWN_KAFKA_GROUP,
    KafkaGroup,
    MessageAges,
    words_of,
)
from zkgroup.clients.zookeeper.registry import Registry, names_in
from zkgroup.config.settings_table import CONNECT_TIMEOUT
from zkgroup.errors import (
    NotFoundError,
    Notice,
    Remedy,
    UnreachableError,
    ZkgroupError,
    did_you_mean,
    is_wrong_setting,
)
from zkgroup.groups.group_model import GroupPartition, GroupSnapshot, Store
from zkgroup.groups.partition_scope import Selection
from zkgroup.groups.snapshot.broker_queries import BrokerQueries, Brokers
from zkgroup.groups.snapshot.snapshot_builder import build_snapshot, why_log_unread, with_logs
from zkgroup.groups.snapshot.snapshot_defects import notes_by_reason
from zkgroup.groups.snapshot.znode_reader import ClusterState, NodeCache, ZnodeReader, group_names, has_partial_offsets
from zkgroup.protocol import znodes
from zkgroup.protocol.names import OFFSETS_TOPIC, TopicPartition
from zkgroup.protocol.operations import Children, Exists, Failure

if TYPE_CHECKING:
    from zkgroup.clients.kafka.log_offsets import Log

#: Of so many groups the offsets of all partitions are requested, where partitions must be named.
MAX_GROUPS_WHOLE: Final = 10
#: Of so many offsets the age of the next message is read unasked.
MAX_AGES: Final = 1000


def read_group(
    registry: Registry | None,
    group: str,
    *,
    kafka: Brokers | None = None,
    store: Store = "both",
    logs: bool = True,
    ages: bool | None = False,
    timeout: float | None = None,
) -> GroupSnapshot:
    """Read one group. ``timeout`` (seconds, the registry's by default) is for the brokers. ``ages``: whether brokers
    are asked for the age of the next message of each partition with lag; None: of ``MAX_AGES`` at most.

    Without ``kafka`` only ZooKeeper is read: no log ranges, nothing of the coordinator. Without ``registry`` only Kafka
    is asked. ``store`` "zookeeper" asks brokers for log ranges alone; without ``logs`` they are not asked for those.

    Raises ``NotFoundError`` where there is no such group, ``UsageError`` for what cannot be a group's name,
    ``UnreachableError`` where ZooKeeper does not answer. Brokers that do not answer are no error as long as the group
    is in ZooKeeper: see the snapshot's ``warnings``.
    """
    reader = GroupReader(registry, kafka, store=store, logs=logs, ages=ages, timeout=timeout)
    found = reader.read([group])
    if not found:
        znodes.group(group)
        if reader.failure is not None:
            raise reader.failure  # it may be there
        if untold := reader.kafka_groups[group].failures:
            where = "ZooKeeper has no such group, and " if registry is not None else ""
            raise UnreachableError(
                f"whether there is a group {group!r} is not known: {where}{'; '.join(words_of('it', untold))}",
                "check the brokers",
            )
        raise no_such_group(group, registry, reader.groups_in_kafka())
    return found[0]


def read_groups(
    registry: Registry | None,
    groups: Sequence[str] | None = None,
    *,
    kafka: Brokers | None = None,
    store: Store = "both",
    logs: Mapping[TopicPartition, Log] | None = None,
    ages: bool | None = False,
    timeout: float | None = None,
    warned: list[Notice] | None = None,
) -> tuple[GroupSnapshot, ...]:
    """Read many groups at one go; without ``groups`` all there are, in either store. Those that do not exist are left
    out. With ``logs``, which may be empty, the logs and leaders of other partitions are not read. Each snapshot carries
    the warnings that concern all of them; ``warned`` gets them, too, even if there is none.

    Raises as ``read_group``, but for ``NotFoundError``; without ``registry`` also where the brokers do not answer, and
    without ``groups`` where their list may not be read.
    """
    reader = GroupReader(registry, kafka, store=store, logs=True if logs is None else logs, ages=ages, timeout=timeout)
    found = reader.read(groups)
    if warned is not None and reader.queries is not None:
        warned += [*reader.queries.warnings, *reader.queries.unlisted]
    return found


class GroupReader:
    """Reads some groups, or all, once. The parameters are those of ``read_group``.

    ``selection``: only the offsets in ``store`` of these partitions are read, and their logs. A group that does not
    exist is read then, too. ``logs``: whether to read them, or those that were read.
    """

    def __init__(
        self,
        registry: Registry | None,
        kafka: Brokers | None,
        *,
        store: Store = "both",
        logs: bool | Mapping[TopicPartition, Log] = True,
        ages: bool | None = False,
        timeout: float | None = None,
        selection: Selection | None = None,
    ) -> None:
        if timeout is None:
            timeout = registry.timeout if registry is not None else CONNECT_TIMEOUT
        self.registry = registry
        self.queries = None if kafka is None else BrokerQueries(kafka, timeout, is_patient=selection is not None)
        self.store = store
        self.selection = selection
        self.known_logs = {} if isinstance(logs, bool) else logs
        self.reads_logs = logs is True and kafka is not None
        self.reads_leaders = selection is None and isinstance(logs, bool)
        self.ages = ages
        self.started = time.monotonic()
        self.taken_at = int(time.time() * 1000)
        self.kafka_groups: Mapping[str, KafkaGroup] = {}
        self.listed_in_kafka: frozenset[str] = frozenset()
        self.asked_kafka = False

    @property
    def failure(self) -> ZkgroupError | None:
        """Why the brokers did not answer; None where they did, or were not asked."""
        return None if self.queries is None else self.queries.failure

    def read(self, names: Sequence[str] | None) -> tuple[GroupSnapshot, ...]:
        """The groups that exist, of those named; all without names."""
        reader = self._start(names)
        nodes, cluster, groups = reader.nodes, reader.cluster, reader.groups

        def build(group: str, kafka_group: KafkaGroup) -> GroupSnapshot:
            return build_snapshot(group, nodes, reader.members[group], kafka_group, cluster, self.taken_at)

        logs: dict[TopicPartition, Log] = dict(self.known_logs)
        early: dict[str, GroupSnapshot] = {}
        # A coordinator may be dead: the other brokers are asked for their logs meanwhile.
        with ThreadPoolExecutor(1) as executor:
            answers = self._ask_coordinators(reader, executor)
            reader.read_partitions()
            if answers is not None:
                early = {group: build(group, KafkaGroup()) for group in groups}
                logs |= self._read_logs(early.values(), cluster, logs)
                self.kafka_groups = answers.result()
        existing = [
            group
            for group in groups
            if self.selection is not None or nodes.exists(nodes.paths(group).group) or self._is_in_kafka(group)
        ]
        reader.read_topics(
            {topic for group in existing for topic in reader.concerned_topics(group, self.kafka_groups[group])}
        )
        found = []
        for group in existing:
            kafka_group = self.kafka_groups[group]
            is_alone = group in early and kafka_group == KafkaGroup()
            found.append(early[group] if is_alone else build(group, kafka_group))
        logs |= self._read_logs(found, cluster, logs)
        if self.reads_leaders:
            # The answer about a log names its leader: ZooKeeper is asked for the others.
            partitions = (p for one in found for p in one.partitions)
            reader.read_leaders(
                p.key for p in partitions if p.exists and isinstance(logs.get(p.key), ZkgroupError | None)
            )
        shown = logs if self.reads_logs or self.known_logs else None
        found = [with_logs(one, cluster, shown) for one in found]
        if self.queries is not None and self.ages is not False:
            found = self._with_ages(found, self.queries)
        took = time.monotonic() - self.started
        if self.queries is None:
            return tuple(replace(one, took=took) for one in found)
        warnings, unlisted, reasons = tuple(self.queries.warnings), self.queries.unlisted, self.queries.reasons
        return tuple(replace(one, took=took, warnings=warnings, unlisted=unlisted, unanswered=reasons) for one in found)

    def _start(self, names: Sequence[str] | None) -> ZnodeReader:
        if self.registry is None:
            return self._from_brokers(names)
        groups = self._all(self.registry) if names is None else names
        reader = ZnodeReader(self.registry, groups, NodeCache(self.selection, offsets=self.store != "kafka"))
        reader.read_members()
        self.kafka_groups = dict.fromkeys(groups, KafkaGroup())
        return reader

    def _read_logs(
        self, snapshots: Iterable[GroupSnapshot], cluster: ClusterState, known: Container[TopicPartition]
    ) -> Mapping[TopicPartition, Log]:
        if self.queries is None or not self.reads_logs:
            return {}
        partitions = {p.key: p for one in snapshots for p in one.partitions if p.key not in known}
        return self.queries.logs(key for key, p in partitions.items() if why_log_unread(p, cluster) is None)

    def _with_ages(self, found: Sequence[GroupSnapshot], queries: BrokerQueries) -> list[GroupSnapshot]:
        positions: dict[TopicPartition, set[int]] = {}
        for snapshot in found:
            for p in snapshot.partitions:
                if (position := next_position(p, self.store)) is not None:
                    positions.setdefault(p.key, set()).add(position)
        count = sum(map(len, positions.values()))
        if self.ages is None and count > MAX_AGES:
            message = f"how far behind {count} partitions with lag are in time was not read"
            warning = Notice(message, Remedy("give --behind, which takes a while"))
            return [replace(snapshot, age_warnings=(warning,)) for snapshot in found]
        if not positions:
            return list(found)
        try:
            answer = queries.ages(positions, self.taken_at)
        except ZkgroupError as error:
            if is_wrong_setting(error):
                raise
            answer = MessageAges(failures=dict.fromkeys(positions, error.reason))
        return [self._with_its_ages(snapshot, answer) for snapshot in found]

    def _with_its_ages(self, snapshot: GroupSnapshot, answer: MessageAges) -> GroupSnapshot:
        partitions, failed = [], []
        for p in snapshot.partitions:
            age = None
            if (position := next_position(p, self.store)) is not None:
                age = answer.ages.get(p.key, {}).get(position)
                failed.append((p, answer.failures.get(p.key) if age is None else None))
            partitions.append(p if age is None else replace(p, next_age=age))
        warnings = notes_by_reason(failed, "its lag in time is unknown: ")
        return replace(snapshot, partitions=tuple(partitions), age_warnings=tuple(warnings))

    def _ask_coordinators(
        self, reader: ZnodeReader, executor: ThreadPoolExecutor
    ) -> Future[Mapping[str, KafkaGroup]] | None:
        if self.queries is None or self.store == "zookeeper" or self.registry is None:
            return None
        # A request to the coordinator makes brokers create this topic; without it there are no offsets in Kafka.
        if OFFSETS_TOPIC not in reader.cluster.existing_topics:
            if znodes.topics() in reader.cluster.unreadable:  # whether there is that topic is unknown
                self.kafka_groups = dict.fromkeys(reader.groups, UNKNOWN_KAFKA_GROUP)
            return None
        self.asked_kafka = True
        by_partition = has_partial_offsets(reader.nodes)
        # Of a few groups the offsets of all partitions are requested; of many only those of the topics that they read
        # in ZooKeeper, as a thousand groups times all partitions would be too many.
        topics = None
        if by_partition and len(reader.groups) > MAX_GROUPS_WHOLE:
            topics = {group: reader.concerned_topics(group, KafkaGroup()) for group in reader.groups}
        with suppress(ZkgroupError):  # the request itself reports it
            self.queries.settings()
        return executor.submit(self.queries.read_groups, reader.groups, by_partition=by_partition, topics=topics)

    def _all(self, registry: Registry) -> Sequence[str]:
        listed, topics = registry.read([Children(znodes.consumers()), Children(znodes.topics())])
        found = set(names_in(listed, _unlisted))
        # As above: without that topic there are no groups in Kafka.
        has_offsets = OFFSETS_TOPIC in names_in(topics)
        if self.queries is not None and self.store != "zookeeper" and has_offsets:
            found |= self._names_in_kafka(self.queries)
        return sorted(found)

    def _names_in_kafka(self, queries: BrokerQueries) -> frozenset[str]:
        self.listed_in_kafka = frozenset(queries.names())
        return self.listed_in_kafka

    def _from_brokers(self, names: Sequence[str] | None) -> ZnodeReader:
        assert self.queries is not None, "ZooKeeper or brokers are named"
        coordinators = self.queries.coordinators(2)
        leaders = coordinators.leaders()
        cluster = ClusterState.of_brokers(leaders, coordinators.broker_ids())
        groups = names if names is not None else ()
        if names is None and OFFSETS_TOPIC in leaders:
            groups = sorted(self._names_in_kafka(self.queries))
        self.kafka_groups = dict.fromkeys(groups, KafkaGroup())
        if OFFSETS_TOPIC in leaders:
            self.asked_kafka = True
            self.kafka_groups = self.queries.read_groups(groups, questions=2)
        return ZnodeReader(None, groups, NodeCache(self.selection), cluster)

    def _is_in_kafka(self, group: str) -> bool:
        """Whether the group is in Kafka: also one that its broker lists, and whose coordinator then is silent."""
        kafka_group = self.kafka_groups[group]
        return group in self.listed_in_kafka or kafka_group.group is not None or bool(kafka_group.offsets)

    def groups_in_kafka(self) -> Sequence[str] | None:
        """The groups there, None where Kafka was not asked."""
        return self.queries.names() if self.queries is not None and self.asked_kafka else None


def no_such_group(
    group: str,
    registry: Registry | None,
    in_kafka: Iterable[str] | None,
    *,
    store: Store | None = None,
    may_create: bool = False,
) -> NotFoundError:
    """The error for a group that does not exist, with similar names. ``in_kafka``: groups there, None where Kafka was
    not asked. ``may_create``: the command could create it."""
    known = [*(in_kafka or ()), *group_names(registry)]
    new = "; for a new group name the topics with --topic" if may_create else ""
    where, elsewhere = "in Kafka", "; a group in ZooKeeper needs --zookeeper" if registry is None else ""
    if registry is not None and store != "kafka":
        where = f"in ZooKeeper at {registry.settings.hosts}{', nor in Kafka' if in_kafka is not None else ''}"
        if not known and registry.read([Exists(znodes.consumers())]) == [None]:
            where = f"in ZooKeeper at {registry.settings.hosts}, which has no {znodes.consumers()}"
            return NotFoundError(f"no group {group!r} {where}", f"check the chroot in the connect string{new}")
    remedy = Remedy(f"check its name{new}{elsewhere}; see which groups there are", ("list-groups",))
    return NotFoundError(f"no group {group!r} {where}", did_you_mean(group, known, remedy))


def _unlisted(failure: Failure) -> ZkgroupError:
    return ZkgroupError(
        f"which groups there are is not known: znode {znodes.consumers()} cannot be read: {failure.code.value}",
        "connect with credentials that its access list admits",
    )


def next_position(p: GroupPartition, store: Store) -> int | None:
    """Where a partition with lag is read next: at the committed offset, or at the log's start if that is later."""
    committed, lag = p.committed(store), p.known_lag(store)
    if committed is None or not lag or not p.exists:
        return None
    return max(committed, p.log_start or 0)
