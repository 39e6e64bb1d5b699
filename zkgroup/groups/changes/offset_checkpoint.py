"""A group's committed offsets at one time, all of them or none, for a file of offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from zkgroup.errors import NotFoundError, ZkgroupError
from zkgroup.groups.changes.reset_plan import offset_in
from zkgroup.groups.group_model import GroupPartition, Store, stores_of
from zkgroup.protocol.names import TopicPartition
from zkgroup.text import listed


def checkpoint_of(group: str, partitions: Iterable[GroupPartition], store: Store) -> Mapping[TopicPartition, int]:
    """The committed offset of every partition that has one; of two stores the larger, where a member that reads both
    would start.

    Raises ``ZkgroupError`` where one cannot be read, since it would be missing silently, and ``NotFoundError``
    where nothing is committed.
    """
    found: dict[TopicPartition, int] = {}
    unreadable = []
    is_unreadable = False
    for partition in partitions:
        for one in stores_of(store):
            seen = offset_in(partition, one)
            if seen is not None and seen.error is not None:
                unreadable.append(f"{partition.name} in {one} ({seen.error})")
                is_unreadable |= one == "zookeeper" and partition.stored is not None and partition.stored.is_unreadable
        committed = partition.committed(store)
        if committed is not None:
            found[partition.key] = committed
    if unreadable:
        raise ZkgroupError(
            f"nothing is saved of group {group}, as offsets cannot be read: {listed(unreadable)}",
            "connect with credentials that may read them, or leave them out with GROUP --topic …"
            if is_unreadable
            else "mend them with reset-offsets, or leave them out with GROUP --topic …",
        )
    if not found:
        raise NotFoundError(
            f"group {group} has no committed offsets that are meant",
            f"see its offsets with 'offsets {group}', and check --topic and --store",
        )
    return found
