"""How much of a group one transaction writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Acl

T = TypeVar("T")

#: ZooKeeper takes at most 1 MiB a request (jute.maxbuffer), and drops the connection above it.
MAX_TRANSACTION_BYTES: Final = 512 << 10
_OPERATION_BYTES: Final = 64  # of an operation, besides its path, its data and its access list
_ACL_BYTES: Final = 32  # of an entry, besides its identity


def cost(path: str, settings: ZooKeeperSettings, acl: Iterable[Acl] = ()) -> int:
    """Bytes that an operation on ``path``, relative to the chroot, takes in a request, besides its data."""
    entries = sum(_ACL_BYTES + len(entry.id.encode()) for entry in acl)
    return len(settings.chroot.encode()) + len(path.encode()) + _OPERATION_BYTES + entries


def first_batch(items: Iterable[T], bytes_of: Callable[[T], int], limit: int) -> list[T]:
    """The first of ``items``, in their order, as many as a transaction of ``limit`` bytes takes, one at least."""
    batch: list[T] = []
    size = 0
    for item in items:
        size += bytes_of(item)
        if batch and size > limit:
            break
        batch.append(item)
    return batch


def first_offset_batch(
    paths: Mapping[TopicPartition, str],
    partitions: Iterable[TopicPartition],
    settings: ZooKeeperSettings,
    acls: Mapping[str, tuple[Acl, ...]],
    limit: int = MAX_TRANSACTION_BYTES,
) -> list[TopicPartition]:
    """The first of ``partitions``, in their order, as many as a transaction of ``limit`` bytes takes, one at least.

    ``paths``: of their nodes; ``acls``: of nodes that are to be made, where they are not those of ``settings``.
    """
    topics: set[str] = set()

    def bytes_of(key: TopicPartition) -> int:
        more = cost(paths[key], settings, acls.get(paths[key], settings.acl or ()))
        if key.topic in topics:
            return more
        topics.add(key.topic)
        return more * 2  # the topic's node may have to be made

    return first_batch(partitions, bytes_of, limit)
