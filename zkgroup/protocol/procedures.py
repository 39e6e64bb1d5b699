"""A member's procedures in ZooKeeper: register, read the registry, claim, release.

Each is a generator that yields operations and is sent their results. None does I/O. Each may begin again after a lost
connection: repeating its operations does no harm.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from zkgroup.errors import Remedy, UsageError, ZkgroupError
from zkgroup.protocol import znodes
from zkgroup.protocol.assignors import BY_TOPIC, TopicSelections, resolve_all
from zkgroup.protocol.broker_znodes import partitions_to_read
from zkgroup.protocol.names import ConsumerThreadId, TopicPartition
from zkgroup.protocol.offset_versions import Procedure
from zkgroup.protocol.operations import (
    Children,
    Code,
    Create,
    Delete,
    Ensure,
    Exists,
    Failure,
    Get,
    Node,
    Result,
    Stat,
    Transaction,
)
from zkgroup.protocol.znodes import Registration
from zkgroup.text import group_command

T = TypeVar("T")


class RegistryReadError(ZkgroupError):
    """The registry cannot be read as it is; a later attempt may succeed."""


class OwnIdMissingError(ZkgroupError):
    """Our own id node is gone: register again."""


class OwnerConflictError(ZkgroupError):
    """Other members own partitions of our share. ``paths`` are their owner nodes."""

    def __init__(self, group: str, message: str, paths: tuple[str, ...]) -> None:
        super().__init__(message, Remedy("see which sessions hold them", group_command("owners", group)))
        self.paths = paths


class RegistryRefusedError(ZkgroupError):
    """ZooKeeper refuses an operation that a member needs."""


class RegistryCache:
    """Nodes that a member has read with a watch, by path: it reads again only those that have changed. One procedure at
    a time reads through it. Without it a group of M members would cost ZooKeeper M² reads for each that joins.

    Why a cached node is valid: ZooKeeper sends a watch's event before it answers a read that has seen the change, on
    the same connection. The event removes the node from the cache. Watches end with the connection, and the cache with
    them.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._changed: set[str] = set()  # while something is being read
        self._era = 0

    def __len__(self) -> int:
        return len(self._nodes)

    def changed(self, path: str) -> None:
        """A watch event came for this path."""
        self._nodes.pop(path, None)
        # The answers of one batch come one after the other, and all are returned with the last of them. An answer from
        # before the event is outdated, and its watch is gone.
        self._changed.add(path)

    def forget(self) -> None:
        """Watches are gone, or the cached nodes are in doubt."""
        self._nodes.clear()
        self._era += 1

    def read(self, wanted: Sequence[Get]) -> Procedure[list[Result]]:
        """The results of ``wanted``, in their order. Those with a watch are read only where they are not cached."""
        known = {get.path: self._nodes[get.path] for get in wanted if get.watch and get.path in self._nodes}
        missing = tuple(get for get in wanted if get.path not in known)
        if not missing:
            return [known[get.path] for get in wanted]
        self._changed.clear()
        era = self._era
        found = dict(zip((get.path for get in missing), (yield missing), strict=True))
        if era == self._era:
            for get in missing:
                node = found[get.path]
                if get.watch and isinstance(node, Node) and get.path not in self._changed:
                    self._nodes[get.path] = node
        return [known[get.path] if get.path in known else found[get.path] for get in wanted]


@dataclass(frozen=True, slots=True)
class RebalanceInput:
    """The input of a rebalance: members → {topic: streams}, and topics → partitions in numeric order.

    Two equal registries give equal plans. ``refused``: members whose filter Java refuses; they read nothing.
    ``damaged``: errors of topics whose nodes cannot be read; these have no partitions.
    """

    members: Mapping[str, Mapping[str, int]]
    partitions: Mapping[str, tuple[int, ...]]
    refused: tuple[str, ...] = field(default=(), compare=False)
    damaged: tuple[str, ...] = field(default=(), compare=False)


def _check(results: Iterable[Result], what: str) -> None:
    for result in results:
        if isinstance(result, Failure) and result.code in (Code.NO_AUTH, Code.EPHEMERAL, Code.OTHER):
            remedy = "connect with credentials that may do that" if result.code is Code.NO_AUTH else None
            raise RegistryRefusedError(f"ZooKeeper refuses to {what}: {result.words}", remedy)


def register(group: str, consumer_id: str, data: bytes, session_id: int) -> Procedure[bool]:
    """Create our id node and watch it. False where another session owns it (it is watched then, too).

    Raises UsageError where the chroot does not exist: it is nothing that a member creates.
    """
    path = znodes.member_id(group, consumer_id)
    for _ in range(4):
        # Not Exists: where the node cannot be created yet, that would leave a watch for the next attempt.
        created, node = yield (Create(path, data, ephemeral=True), Get(path, watch=True))
        _check((node,), f"read {path}")
        if isinstance(node, Node):
            return node.stat.owner == session_id
        if isinstance(created, Failure) and created.code is Code.NO_NODE:
            (root,) = yield (Exists("/"),)
            if root is None:
                raise UsageError("ZooKeeper has no such chroot", "check the path at the end of the connect string")
            _check((yield (Ensure(znodes.ids(group)),)), f"create {znodes.ids(group)}")
        else:
            _check((created,), f"create {path}")
    raise RegistryReadError(f"{path} comes and goes while it is created")


def any_broker() -> Procedure[bool]:
    """Whether a broker is registered. Only if none is, the list is watched: members need no other events of brokers."""
    path = znodes.broker_ids()
    (listed,) = yield (Children(path),)
    if isinstance(listed, tuple) and listed:
        return True
    listed, _ = yield (Children(path, watch=True), Exists(path, watch=True))
    _check((listed,), f"list {path}")
    return isinstance(listed, tuple) and bool(listed)


def read_registry(
    group: str,
    consumer_id: str,
    mine: Registration,
    strategy: str,
    session_id: int,
    *,
    exclude_internal: bool,
    internal: Collection[str],
    cache: RegistryCache | None = None,
) -> Procedure[RebalanceInput]:
    """Read members, subscriptions and partitions, watching what makes us rebalance.

    Watched are the list of members and each of their nodes, the data of the topics we subscribe to, and the list of
    topics where a filter may select new ones: our own filter, with roundrobin any member's. range needs the partitions
    of our own topics only, roundrobin those of every subscribed topic. ``cache``: nodes that were read before; without
    it all are read.

    Another member's filter that Java refuses selects nothing: Scala consumers (all releases) fail every rebalance while
    it is registered, so that none has a plan that could differ. A filter that Java can read, and zkgroup cannot, is an
    error: the other members plan with the topics that it selects.

    Raises OwnIdMissingError; RegistryReadError where a member leaves meanwhile (a later attempt may succeed);
    MalformedZnodeError for an id node or a topic's node that stops Scala consumers; UsageError for a filter that cannot
    be read.
    """
    listed, topic_list = yield (
        Children(znodes.ids(group), watch=True),
        Children(znodes.topics(), watch=mine.pattern != "static" or strategy not in BY_TOPIC),
    )
    _check((listed, topic_list), f"read group {group}")
    ids = sorted(listed) if isinstance(listed, tuple) else []
    if consumer_id not in ids:
        raise OwnIdMissingError(f"our id {consumer_id} is gone from the group")
    cache = RegistryCache() if cache is None else cache
    nodes = yield from cache.read([Get(znodes.member_id(group, member), watch=True) for member in ids])
    _check(nodes, f"read the members of group {group}")
    registrations: dict[str, Registration] = {}
    for member, node in zip(ids, nodes, strict=True):
        path = znodes.member_id(group, member)
        if not isinstance(node, Node):
            raise RegistryReadError(f"member {member} left while the group was read")
        if member == consumer_id and node.stat.owner != session_id:
            raise OwnIdMissingError(f"our id {consumer_id} is owned by another session")
        registrations[member] = mine if member == consumer_id else znodes.decode_registration(path, node.data)
    all_topics = sorted(topic_list) if isinstance(topic_list, tuple) else []
    own_topics = TopicSelections(all_topics, exclude_internal=exclude_internal, internal=internal).streams(mine)
    candidates: Sequence[str] = sorted(own_topics) if strategy in BY_TOPIC else all_topics
    refused: list[str] = []
    del registrations[consumer_id]
    members = resolve_all(
        registrations, candidates, exclude_internal=exclude_internal, internal=internal, refused=refused.append
    )
    members[consumer_id] = own_topics
    if strategy in BY_TOPIC:
        members = {m: {t: n for t, n in topics.items() if t in own_topics} for m, topics in members.items()}
    wanted = sorted({topic for topics in members.values() for topic in topics})
    partitions, damaged = yield from _read_partitions(wanted, own_topics, cache)
    return RebalanceInput({m: topics for m, topics in members.items() if topics}, partitions, tuple(refused), damaged)


def _read_partitions(
    wanted: Sequence[str], own: Mapping[str, int], cache: RegistryCache
) -> Procedure[tuple[dict[str, tuple[int, ...]], tuple[str, ...]]]:
    """The partitions of topics, none for a topic that does not exist, and the errors of damaged nodes. Our own topics
    are watched, whether they exist or not."""
    if not wanted:
        return {}, ()
    nodes = yield from cache.read([Get(znodes.topic(topic), watch=topic in own) for topic in wanted])
    _check(nodes, "read the topics")
    absent = [t for t, node in zip(wanted, nodes, strict=True) if isinstance(node, Failure) and t in own]
    if absent:
        found = yield tuple(Exists(znodes.topic(topic), watch=True) for topic in absent)
        if any(isinstance(stat, Stat) for stat in found):
            raise RegistryReadError("a topic was created while the registry was read")
    read = {
        topic: partitions_to_read(znodes.topic(topic), node.data)
        for topic, node in zip(wanted, nodes, strict=True)
        if isinstance(node, Node)
    }
    return {topic: partitions for topic, (partitions, _) in read.items()}, tuple(
        str(damage) for _, damage in read.values() if damage
    )


#: Operations in one transaction: few round trips, and far below the megabyte that a request may have.
CHUNK = 250


def claim(group: str, share: Mapping[TopicPartition, ConsumerThreadId], session_id: int) -> Procedure[None]:
    """Create our owner nodes, in transactions: one that is refused has claimed nothing.

    Raises OwnerConflictError where other members own partitions. The nodes created by then stay: ``release`` them.
    """
    wanted = dict(share)
    for _ in range(4):
        chunks = list(batched(wanted.items(), CHUNK))
        results = yield tuple(
            Transaction(
                tuple(Create(znodes.owner(group, key), str(thread).encode(), ephemeral=True) for key, thread in chunk)
            )
            for chunk in chunks
        )
        refused = [item for chunk, r in zip(chunks, results, strict=True) if isinstance(r, Failure) for item in chunk]
        if not refused:
            return
        _check((r for r in results if isinstance(r, Failure) and r.code is Code.NO_AUTH), f"claim in group {group}")
        wanted = yield from _clear_the_way(group, dict(refused), len(share), session_id)
        if not wanted:
            return
    raise RegistryReadError(f"owner nodes of group {group} come and go while they are claimed")


def _clear_the_way(
    group: str, refused: Mapping[TopicPartition, ConsumerThreadId], total: int, session_id: int
) -> Procedure[dict[TopicPartition, ConsumerThreadId]]:
    """Read why claims were refused, remove obstacles of our own, and return what is still to be claimed."""
    nodes = yield tuple(Get(znodes.owner(group, partition)) for partition in refused)
    _check(nodes, f"read the owners of group {group}")
    blockers = [
        (znodes.owner(group, partition), node.data.decode("utf-8", "replace"))
        for partition, node in zip(refused, nodes, strict=True)
        if isinstance(node, Node) and node.stat.owner != session_id
    ]
    if blockers:
        path, holder = blockers[0]
        raise OwnerConflictError(
            group,
            f"{len(blockers)} of {total} partitions are owned by others, first {path} by {holder[:120]}",
            tuple(path for path, _ in blockers),
        )
    again = {
        partition: thread
        for (partition, thread), node in zip(refused.items(), nodes, strict=True)
        if not isinstance(node, Node) or node.data != str(thread).encode()
    }
    # Ours, but of another of our streams: left behind by an interrupted attempt.
    stale = tuple(
        Delete(znodes.owner(group, partition), node.stat.version)
        for partition, node in zip(refused, nodes, strict=True)
        if isinstance(node, Node) and partition in again
    )
    parents = sorted({znodes.owner_topic(group, partition.topic) for partition in again})
    if again:
        _check((yield (*(Ensure(path) for path in parents), *stale)), f"make way for claims in group {group}")
    return again


def release(
    group: str, partitions: Iterable[TopicPartition], session_id: int, *, surely_ours: Collection[TopicPartition] = ()
) -> Procedure[None]:
    """Delete the owner nodes of ``partitions`` that are our session's, and no others.

    ``surely_ours``: nodes that were read as ours, with a watch, and have had no event since.
    """
    wanted = list(partitions)
    doubtful = [partition for partition in wanted if partition not in surely_ours]
    sure = list(batched((partition for partition in wanted if partition in surely_ours), CHUNK))
    if sure:
        results = yield tuple(
            Transaction(tuple(Delete(znodes.owner(group, partition), 0) for partition in chunk)) for chunk in sure
        )
        for chunk, result in zip(sure, results, strict=True):
            if isinstance(result, Failure):
                doubtful += chunk
    for _ in range(4):
        if not doubtful:
            return
        stats = yield tuple(Exists(znodes.owner(group, partition)) for partition in doubtful)
        _check(stats, f"read the owners of group {group}")
        ours = [
            (partition, stat.version)
            for partition, stat in zip(doubtful, stats, strict=True)
            if isinstance(stat, Stat) and stat.owner == session_id
        ]
        if not ours:
            return
        results = yield tuple(Delete(znodes.owner(group, partition), version) for partition, version in ours)
        _check(results, f"release partitions of group {group}")
        # Another client has written to a node of ours in between: read it again.
        doubtful = [
            partition
            for (partition, _), result in zip(ours, results, strict=True)
            if isinstance(result, Failure) and result.code is Code.BAD_VERSION
        ]
    raise RegistryRefusedError(f"owner node of {doubtful[0]} in group {group} changes again and again")


def lost(
    group: str, share: Mapping[TopicPartition, ConsumerThreadId], session_id: int
) -> Procedure[tuple[TopicPartition, ...]]:
    """Watch the owner nodes of ``share``; returns those that are not our session's, or not as claimed."""
    nodes = yield tuple(Get(znodes.owner(group, partition), watch=True) for partition in share)
    return tuple(
        partition
        for (partition, thread), node in zip(share.items(), nodes, strict=True)
        if not (isinstance(node, Node) and node.stat.owner == session_id and node.data == str(thread).encode())
    )


def watch_gone(paths: Sequence[str]) -> Procedure[tuple[str, ...]]:
    """Watch blocking owner nodes; returns those that still exist."""
    stats = yield tuple(Exists(path, watch=True) for path in paths)
    return tuple(path for path, stat in zip(paths, stats, strict=True) if isinstance(stat, Stat))


def batched(items: Iterable[T], size: int) -> Iterator[tuple[T, ...]]:
    """``items`` in tuples of at most ``size``."""
    iterator = iter(items)
    while chunk := tuple(islice(iterator, size)):
        yield chunk
