"""Groups as they are: everything about them that ZooKeeper, their coordinator and the brokers tell.

Groups are half-built in the wild. Whatever is missing is missing in the snapshot, whatever cannot be read carries its
own error, and nothing is ever created. ZooKeeper is read in a few pipelined rounds (``reading``), however many groups
there are; joining what was found is pure (``joining``). Brokers are asked for log ranges and for offsets that are kept
in Kafka; what they do not answer is unknown, which is no failure: ZooKeeper's half is shown without it.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from zkgroup.errors import NotFoundError, ZkgroupError
from zkgroup.groups import joining, reading
from zkgroup.groups.joining import Log, Look
from zkgroup.groups.members import host_of
from zkgroup.groups.model import (
    CoordinatorGroup,
    CoordinatorMember,
    GroupMember,
    GroupPartition,
    GroupSnapshot,
    GroupTopic,
    KafkaOffset,
    Store,
    StoredOffset,
)
from zkgroup.groups.ownership import ownership_defects
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.ops import Children
from zkgroup.servers.answers import KafkaSide
from zkgroup.servers.registry import Registry

if TYPE_CHECKING:
    from zkgroup.servers.kafka import KafkaSettings

__all__ = [
    "Brokers",
    "CoordinatorGroup",
    "CoordinatorMember",
    "GroupMember",
    "GroupPartition",
    "GroupSnapshot",
    "GroupTopic",
    "KafkaOffset",
    "Store",
    "StoredOffset",
    "host_of",
    "ownership_defects",
    "read_group",
    "read_groups",
]

#: How to reach the brokers, or how to find that out: called at most once, when it is needed.
Brokers: TypeAlias = "KafkaSettings | Callable[[], KafkaSettings]"


def read_group(
    registry: Registry,
    group: str,
    *,
    kafka: Brokers | None = None,
    store: Store = "both",
    timeout: float | None = None,
) -> GroupSnapshot:
    """Read one group. ``timeout`` (seconds, the registry's by default) is for the brokers.

    Without ``kafka`` only ZooKeeper is read: no log ranges, nothing of the coordinator. Raises ``NotFoundError`` where
    there is no such group, ``UsageError`` for what cannot be a group's name, ``UnreachableError`` where ZooKeeper does
    not answer. Brokers that do not answer are no error: see ``warnings`` of the snapshot.
    """
    znodes.group(group)
    found = read_groups(registry, [group], kafka=kafka, store=store, timeout=timeout)
    if not found:
        raise _no_such_group(registry, group)
    return found[0]


def read_groups(
    registry: Registry,
    groups: Sequence[str] | None = None,
    *,
    kafka: Brokers | None = None,
    store: Store = "both",
    timeout: float | None = None,
) -> tuple[GroupSnapshot, ...]:
    """Read many groups at one go; without ``groups`` all there are. Those that do not exist are left out.

    Raises as ``read_group``, but for ``NotFoundError``.
    """
    started, taken_at = time.monotonic(), int(time.time() * 1000)
    if groups is None:
        (listed,) = registry.read([Children(znodes.consumers())])
        groups = sorted(listed) if isinstance(listed, tuple) else []
    nodes = reading.read_names(registry, groups)
    world = reading.World(nodes)
    reading.read_members(registry, nodes, groups)
    members = {group: reading.members_of(group, nodes, world.selections) for group in groups}
    reading.read_partitions(registry, nodes, groups, members, world)
    sides: Mapping[str, KafkaSide] = dict.fromkeys(groups, KafkaSide())
    there = [group for group in groups if nodes.exists(znodes.group(group)) or _is_in_kafka(sides[group])]
    heard = {topic for group in there for topic in joining.concerned(group, nodes, members[group], sides[group])}
    reading.read_states(registry, nodes, (), heard, world)
    partitions: dict[TopicPartition, GroupPartition] = {}
    for group in there:
        partitions.update(joining.partitions_of(group, nodes, members[group], sides[group], world)[0])
    existing = [key for key, partition in partitions.items() if partition.exists]
    reading.read_states(registry, nodes, existing, (), world)
    warnings: list[str] = []
    logs: Mapping[TopicPartition, Log] = {}
    if kafka is not None:
        wanted = [key for key in existing if joining.why_not_asked(partitions[key], world) is None]
        logs = _ask_logs(kafka, wanted, registry.timeout if timeout is None else timeout, warnings)
    look = Look(taken_at, time.monotonic() - started, tuple(warnings), logs, kafka is not None)
    return tuple(joining.join_group(group, nodes, members[group], sides[group], world, look) for group in there)


def _is_in_kafka(side: KafkaSide) -> bool:
    return side.group is not None or any(offset.offset is not None for offset in side.offsets.values())


def _ask_logs(
    kafka: Brokers, partitions: Iterable[TopicPartition], timeout: float, warnings: list[str]
) -> Mapping[TopicPartition, Log]:
    from zkgroup.servers.kafka import LogRange, log_offsets  # 60 ms that not every look needs

    wanted = sorted(partitions)
    if not wanted:
        return {}
    try:
        settings = kafka() if callable(kafka) else kafka
        answers = log_offsets(settings, wanted, timeout)
    except ZkgroupError as error:
        warnings.append(f"log offsets are not known: {error}")
        return dict.fromkeys(wanted, error.message)
    return {
        key: (answer.start, answer.end) if isinstance(answer, LogRange) else answer.message
        for key, answer in answers.items()
    }


def _no_such_group(registry: Registry, group: str) -> NotFoundError:
    hosts = registry.settings.hosts
    groups = registry.read([Children(znodes.consumers())])[0]
    if not isinstance(groups, tuple):
        return NotFoundError(
            f"no group {group!r}: ZooKeeper at {hosts} has no {znodes.consumers()}",
            "check the chroot in the connect string",
        )
    near = difflib.get_close_matches(group, groups, n=3)
    return NotFoundError(
        f"no group {group!r} in ZooKeeper at {hosts}", f"is {' or '.join(near)} meant?" if near else "check its name"
    )
