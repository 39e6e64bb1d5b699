"""Topics as rows of tables, with the groups that read them; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zkgroup.errors import ZkgroupError
from zkgroup.groups.group_model import GroupSnapshot
from zkgroup.protocol.names import TopicPartition

if TYPE_CHECKING:
    from zkgroup.clients.kafka.log_offsets import Log
    from zkgroup.clients.kafka.topic_replicas import PartitionReplicas


@dataclass(frozen=True, slots=True)
class TopicPartitionRow:
    """A partition. ``messages``: the number of offsets in its log, which compaction and transactions leave gaps in.
    The log's offsets are None where its leader did not answer."""

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    log_start: int | None
    log_end: int | None
    messages: int | None


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic. ``replicas``: of the partition that has most. ``leaderless`` and ``out_of_sync``: partitions without a
    leader, and with a replica that is not in sync. ``messages`` is None where the log of a partition is unknown.
    ``retention_ms`` and ``retention_bytes`` (of a partition): None where they are unknown, −1 without a limit.
    ``groups``: those that subscribe to it, own some of it, or have an offset in it."""

    topic: str
    partitions: int
    replicas: int
    leaderless: int
    out_of_sync: int
    messages: int | None
    retention_ms: int | None
    retention_bytes: int | None
    cleanup_policy: str | None
    groups: tuple[str, ...]


def topic_partition_rows(
    topic: str, partitions: Mapping[int, PartitionReplicas], logs: Mapping[TopicPartition, Log]
) -> list[TopicPartitionRow]:
    """The partitions of a topic, in order."""
    rows = []
    for number, one in partitions.items():
        log = logs.get(TopicPartition(topic, number))
        start, end = (None, None) if log is None or isinstance(log, ZkgroupError) else (log.start, log.end)
        messages = None if start is None or end is None else end - start
        rows.append(TopicPartitionRow(number, one.leader, one.replicas, one.in_sync, start, end, messages))
    return rows


def topic_row(
    topic: str, partitions: Iterable[TopicPartitionRow], configs: Mapping[str, str], groups: Iterable[str]
) -> TopicRow:
    """A topic in one row."""
    rows = list(partitions)
    counts = [row.messages for row in rows if row.messages is not None]
    return TopicRow(
        topic,
        len(rows),
        max((len(row.replicas) for row in rows), default=0),
        sum(row.leader is None for row in rows),
        sum(len(row.in_sync) < len(row.replicas) for row in rows),
        sum(counts) if len(counts) == len(rows) else None,
        _number(configs.get("retention.ms")),
        _number(configs.get("retention.bytes")),
        configs.get("cleanup.policy"),
        tuple(groups),
    )


def groups_by_topic(snapshots: Iterable[GroupSnapshot]) -> dict[str, list[GroupSnapshot]]:
    """The groups that read each topic, in the order given."""
    found: dict[str, list[GroupSnapshot]] = {}
    for snapshot in snapshots:
        for topic in sorted(snapshot.subscribed | {partition.topic for partition in snapshot.partitions}):
            found.setdefault(topic, []).append(snapshot)
    return found


def _number(text: str | None) -> int | None:
    """Brokers write the largest number for what has no limit."""
    if text is None or not text.lstrip("-").isdecimal():
        return None
    return -1 if int(text) >= 2**63 - 1 else int(text)
