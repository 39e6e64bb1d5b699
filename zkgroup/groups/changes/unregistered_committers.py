"""Consumers that commit offsets to ZooKeeper and register nowhere: kafka-node's Consumer, Flink 0.8, Spark, and clients
that send brokers an OffsetCommit of version 0. They show in neither members nor owners, only in offsets that change.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import RefusedError
from zkgroup.groups.changes.group_tree import GroupTree, read_tree
from zkgroup.groups.group_model import StoredOffset
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Stat
from zkgroup.text import counted, listed

#: Two of the Scala consumer's default intervals between commits, in milliseconds: an older commit shows no activity.
LATELY: Final = 120_000
#: How many times a node must have been overwritten: a single write may be an operator's.
MIN_COMMITS: Final = 2
#: The same for offsets that are written in one transaction, as zkgroup does, and the longest interval in milliseconds.
MIN_TRANSACTIONS: Final = 5
MAX_INTERVAL: Final = 10_000
#: For how long the next commit is waited for, in seconds.
MIN_WAIT: Final = 1.0
MAX_WAIT: Final = 60.0
_POLL: Final = 0.2


@dataclass(frozen=True, slots=True)
class UnregisteredCommits:
    """Offsets that were committed lately though no member is registered. ``age``: of the newest, in milliseconds,
    negative where ZooKeeper's clock is ahead; ``interval``: between commits of the busiest partition, on average."""

    partitions: tuple[TopicPartition, ...]
    age: int
    interval: int

    @property
    def wait(self) -> float:
        """For how many seconds to wait for the next commit."""
        return min(MAX_WAIT, max(MIN_WAIT, 2 * self.interval / 1000))

    @property
    def text(self) -> str:
        """The commits, as text."""
        when = f"{max(0, self.age) / 1000:.1f} s ago" if self.age > -1000 else f"{-self.age / 1000:.1f} s in the future"
        return (
            f"offsets of {counted(len(self.partitions), 'partition')} changed {when}, about"
            f" every {max(self.interval, 100) / 1000:.1f} s, and no member is registered"
        )


def find_unregistered_commits(
    stored: Mapping[TopicPartition, StoredOffset],
    members_changed: int,
    now: int,
    topics: Mapping[str, Stat],
    earlier: Mapping[TopicPartition, StoredOffset] | None = None,
) -> UnregisteredCommits | None:
    """The signs of such a consumer in a group without members; None where there are none. ``members_changed``: the
    transaction in which a member may have come or gone last, 0 where none did; ``now`` in milliseconds since 1970;
    ``topics``: the nodes above the offsets of each topic.

    A member's last commits come before it leaves. Several offsets that were written in one transaction are an
    operator's, unless there are many such transactions, fast. ``earlier``: the offsets at an earlier reading of the
    group without members: one change since then is enough.
    """
    stored = {key: _with_recreations(one, topics.get(key.topic)) for key, one in stored.items()}
    together = Counter(one.mzxid for one in stored.values())
    found = {
        key: one
        for key, one in stored.items()
        if one.mzxid > members_changed
        and now - one.changed_at < LATELY
        and (
            (one.version >= MIN_TRANSACTIONS and _interval(one) < MAX_INTERVAL)
            if together[one.mzxid] > 1
            else one.version >= MIN_COMMITS
            or (earlier is not None and key in earlier and earlier[key].mzxid < one.mzxid)
        )
    }
    if not found:
        return None
    newest = max(one.changed_at for one in found.values())
    interval = min(map(_interval, found.values()))
    return UnregisteredCommits(tuple(sorted(found)), now - newest, interval)


def _interval(offset: StoredOffset) -> int:
    """The average time between commits, in milliseconds."""
    return (offset.changed_at - offset.created_at) // max(offset.version, 1)


def commits_of_tree(tree: GroupTree, now: int) -> UnregisteredCommits | None:
    """The same of a group's nodes."""
    if tree.members or tree.live_owners:
        return None
    stats = {node.path: node.stat for node in tree.nodes}
    last = max((stats[p].pzxid for p in (znodes.group(tree.group), znodes.ids(tree.group)) if p in stats), default=0)
    offsets = tree.offsets
    topics = {key.topic: stats[znodes.offset_topic(tree.group, key.topic)] for key in offsets}
    return find_unregistered_commits(offsets, last, now, topics)


def _with_recreations(offset: StoredOffset, topic: Stat | None) -> StoredOffset:
    """The offset as if its node had been written over, where nodes of its topic were deleted and created again."""
    if topic is None or not (recreations := topic.deletions // max(topic.children, 1)):
        return offset
    return replace(offset, version=offset.version + recreations, created_at=topic.ctime)


def read_unregistered_commits(registry: Registry, group: str) -> UnregisteredCommits | None:
    """The same of a group as it is now. Raises ``UnreachableError``."""
    return commits_of_tree(read_tree(registry, group), int(time.time() * 1000))


def find_committing_groups(registry: Registry, groups: Iterable[str], seconds: float) -> dict[str, RefusedError]:
    """Those of these groups whose offsets change within so many seconds, each with its error. Returns as soon as all
    of them have changed."""
    before = {group: _versions(registry, group) for group in groups}
    found: dict[str, RefusedError] = {}
    deadline = time.monotonic() + seconds
    while len(found) < len(before) and (left := deadline - time.monotonic()) > 0:
        time.sleep(min(_POLL, left))
        for group in before.keys() - found:
            now = _versions(registry, group)
            moved = [path for path, mzxid in now.items() if before[group].get(path) != mzxid]
            if moved:
                found[group] = RefusedError(
                    f"an unregistered consumer commits: {listed(moved)} changed within {seconds:.0f} s",
                    "stop that consumer, then try again",
                )
    return found


def _versions(registry: Registry, group: str) -> dict[str, int]:
    return {node.path: node.stat.mzxid for node in read_tree(registry, group, [znodes.offsets(group)]).nodes}
