"""The group and its topics, read from ZooKeeper and from the brokers for an export."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.message_times import offsets_since
from zkgroup.clients.kafka.start_position import log_ranges
from zkgroup.clients.kafka.topic_metadata import cleanup_policies
from zkgroup.clients.zookeeper.registry import Registry, names_in
from zkgroup.errors import NotFoundError, Notice, Remedy, ZkgroupError, did_you_mean
from zkgroup.export.model.plan_types import PartitionFacts
from zkgroup.export.model.run_record import TopicCoverage, TopicIdentity
from zkgroup.export.planning.export_request import COMMITTED, LATEST, Bound
from zkgroup.groups.changes.preconditions import GroupActiveError
from zkgroup.groups.group_model import StoredOffset
from zkgroup.groups.snapshot.group_znodes import host_of, read_stored_offsets
from zkgroup.groups.snapshot.znode_reader import group_names
from zkgroup.protocol import znodes
from zkgroup.protocol.broker_znodes import CLUSTER_ID, decode_cleanup_policy, decode_cluster_id, decode_topic
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Children, Exists, Get, Node, Result, Stat
from zkgroup.protocol.topic_filter import TopicFilter
from zkgroup.text import listed

log = logging.getLogger(__name__)


class GroupState:
    """One group, through one registry. Used by one thread."""

    def __init__(self, registry: Registry, group: str, on_warning: Callable[[Notice], None]) -> None:
        self._registry = registry
        self.group = group
        self._on_warning = on_warning

    def select_topics(self, named: Sequence[str], whitelist: TopicFilter | None) -> dict[str, tuple[int, ...]]:
        """The topics to export, each with its partitions.

        Those named and those that the filter takes; without either, those that the group has offsets for. Raises
        ``NotFoundError`` for a topic that was named and does not exist, and where there is nothing to export.
        """
        existing, with_offsets = self._registry.read([Children(znodes.topics()), Children(znodes.offsets(self.group))])
        there = set(child_names(existing))
        if missing := [topic for topic in named if topic not in there]:
            remedy = did_you_mean(missing[0], there, "see the names in ZooKeeper")
            raise NotFoundError(f"there is no topic {listed(missing)}", remedy)
        wanted = {*named, *(whitelist.select(there) if whitelist is not None else ())}
        if not named and whitelist is None:
            if not (known := set(child_names(with_offsets))):
                names = group_names(self._registry)
                remedy = did_you_mean(self.group, names, "name the topics, and say with --from where to begin")
                raise NotFoundError(f"group {self.group} has no committed offsets in ZooKeeper", remedy)
            for topic in sorted(known - there):
                what = f"group {self.group} has offsets of topic {topic}, which does not exist: it is left out"
                self._on_warning(Notice(what))
            wanted = known & there
        nodes = self._registry.read([Get(znodes.topic(topic)) for topic in sorted(wanted)])
        partitions = {
            topic: tuple(decode_topic(znodes.topic(topic), node.data).partitions)
            for topic, node in zip(sorted(wanted), nodes, strict=True)
            if isinstance(node, Node)  # else it was just deleted
        }
        if not partitions:
            what = "of those that its offsets are of" if whitelist is None else f"that matches {whitelist.expression}"
            raise NotFoundError(f"there is no topic {what}", "see the names in ZooKeeper, or name topics")
        return partitions

    def refuse_if_active(self) -> None:
        """Raise ``GroupActiveError`` if the group has members."""
        (children,) = self._registry.read([Children(znodes.ids(self.group))])
        if members := sorted(child_names(children)):
            error = GroupActiveError(self.group, {member: host_of(self.group, member) for member in members})
            error.remedy = Remedy("stop the members, or export under a group of its own")
            raise error

    def clusters(self) -> tuple[str, ...]:
        """Which cluster this is: its id, which brokers write from 0.10.1 on, else the birth of its topics' node; and
        what it was called before its brokers wrote an id."""
        node, stat = self._registry.read([Get(CLUSTER_ID), Exists(znodes.topics())])
        birth = f"{stat.czxid:x}-{stat.ctime:x}" if isinstance(stat, Stat) else "unknown"
        cluster_id = decode_cluster_id(node.data) if isinstance(node, Node) else None
        return (birth,) if cluster_id is None else (cluster_id, birth)

    def identities(self, topics: Iterable[str]) -> dict[str, TopicIdentity]:
        """Which incarnation of each topic is there; those that are gone are left out."""
        wanted = list(topics)
        nodes = self._registry.read([Get(znodes.topic(topic)) for topic in wanted])
        found: dict[str, TopicIdentity] = {}
        for topic, node in zip(wanted, nodes, strict=True):
            if isinstance(node, Node):
                topic_id = decode_topic(znodes.topic(topic), node.data).topic_id
                found[topic] = TopicIdentity(node.stat.czxid, topic_id)
            else:
                child_names(node)  # raises what is no absence
        return found

    def cleanup(self, topics: Iterable[str], kafka: KafkaSettings, timeout: float) -> dict[str, str | None]:
        """The topics' ``cleanup.policy``, None where neither the brokers nor ZooKeeper tell."""
        wanted = list(topics)
        found = cleanup_policies(kafka, wanted, timeout)
        unknown = [topic for topic in wanted if found.get(topic) is None]
        nodes = self._registry.read([Get(znodes.child("/config/topics", topic)) for topic in unknown])
        for topic, node in zip(unknown, nodes, strict=True):
            if isinstance(node, Node):
                found[topic] = decode_cleanup_policy(node.data)
        return {topic: found.get(topic) for topic in wanted}

    def facts(
        self,
        topics: Mapping[str, Sequence[int]],
        kafka: KafkaSettings,
        timeout: float,
        *,
        begin: Bound = COMMITTED,
        until: Bound = LATEST,
        identities: Mapping[str, TopicIdentity] | None = None,
        coverage: Mapping[str, TopicCoverage] | None = None,
    ) -> list[PartitionFacts]:
        """The committed offset and the log of every partition, the ends as a reader of committed messages sees them;
        what ``begin`` and ``until`` mean in each, and what the destination has of it (``coverage``).

        Raises ``MalformedZnodeError`` for an offset that cannot be read, and what ``log_ranges`` found wrong.
        """
        partitions = [TopicPartition(topic, number) for topic, numbers in topics.items() for number in numbers]
        stored = read_committed(self._registry, self.group, partitions)
        committed = {partition: one.offset for partition, one in stored.items() if one.offset is not None}
        logs = self._logs(partitions, committed, kafka, timeout)
        begins = _resolve(begin, logs, kafka, timeout, self._on_warning, "starts at")
        ends = _resolve(until, logs, kafka, timeout, self._on_warning, "is exported up to")
        facts: list[PartitionFacts] = []
        for partition in partitions:
            topic, number = partition
            offset, node = committed.get(partition), stored.get(partition)
            identity = (identities or {}).get(topic)
            known = (coverage or {}).get(topic)
            is_recreated = known is not None and identity is not None and not known.identity.is_same(identity)
            here = None if is_recreated else known
            has_none = here is None or number not in {*here.partitions, *here.ends}
            if identity is not None and node is not None and offset is not None and has_none:
                # The transaction that wrote the offset came before the one that created the topic.
                is_recreated = is_recreated or node.mzxid < identity.czxid
            facts.append(
                PartitionFacts(
                    partition,
                    offset,
                    None if node is None else node.version,
                    *logs[partition],
                    begin=begins.get(partition),
                    until=_until(until, offset, ends.get(partition)),
                    is_exact=begin.kind == "offsets",
                    ended=None if here is None else here.ends.get(number),
                    coverage=() if here is None else here.partitions.get(number, ()),
                    is_new=here is not None and has_none,
                    is_recreated=is_recreated,
                )
            )
        return facts

    def _logs(
        self,
        partitions: Sequence[TopicPartition],
        committed: Mapping[TopicPartition, int],
        kafka: KafkaSettings,
        timeout: float,
    ) -> dict[TopicPartition, tuple[int, int]]:
        only_committed = kafka.isolation == "read_committed"
        logs = log_ranges(kafka, partitions, timeout, read_committed=only_committed)
        # The Scala consumer reads uncommitted messages: its offset may lie behind the start of an open transaction.
        ahead = [partition for partition, offset in committed.items() if offset > logs[partition].end]
        high = log_ranges(kafka, ahead, timeout) if ahead and only_committed else {}
        return {
            partition: (
                logs[partition].start,
                min(committed[partition], high[partition].end) if partition in high else logs[partition].end,
            )
            for partition in partitions
        }


def _until(bound: Bound, committed: int | None, resolved: int | None) -> int | None:
    """Where to stop: None for the log's end, 0 (at once) where the bound names no place in this partition."""
    if bound.kind == "latest":
        return None
    return (committed if bound.kind == "committed" else resolved) or 0


def _resolve(
    bound: Bound,
    logs: Mapping[TopicPartition, tuple[int, int]],
    kafka: KafkaSettings,
    timeout: float,
    on_warning: Callable[[Notice], None],
    what: str,
) -> dict[TopicPartition, int]:
    """The offset that a bound means in each partition; none where it means none."""
    match bound.kind:
        case "committed":
            return {}
        case "earliest":
            return {partition: start for partition, (start, _) in logs.items()}
        case "latest":
            return {partition: end for partition, (_, end) in logs.items()}
        case "offsets":
            places = {p: {"earliest": start, "latest": end} for p, (start, end) in logs.items()}
            return {
                p: places[p][offset] if isinstance(offset, str) else offset
                for p, offset in bound.offsets.items()
                if offset is not None and p in logs
            }
        case "time":
            return offsets_since(kafka, logs, bound.millis, timeout, on_warning, what)


def read_committed(
    registry: Registry, group: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, StoredOffset]:
    """The committed offsets of these partitions, as far as they exist. Raises ``ZkgroupError``."""
    found = read_stored_offsets(registry, group, partitions)
    for partition, one in found.items():
        if one.is_unreadable:
            raise ZkgroupError(
                f"offset of {partition} in group {group}: {one.error}",
                "connect with credentials that may read the group's nodes",
            )
        if one.error is not None:
            znodes.decode_offset(znodes.offset(group, partition), one.data or b"")  # raises
    return found


def child_names(result: Result) -> tuple[str, ...]:
    """The children that were listed; none where there is no node."""
    return names_in(result, lambda failure: ZkgroupError(f"ZooKeeper does not tell: {failure.words}"))
