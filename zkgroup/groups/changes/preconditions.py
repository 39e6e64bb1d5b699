"""Whether a group is active, has an unfinished export, or gets commits of consumers that are registered nowhere; and
what makes a transaction fail once it becomes active.

A member is a child of ``ids``. Deleting and re-creating that node in a transaction fails with ``NOT_EMPTY`` once a
member has registered; a check of its version would not notice, as children do not count there. Live owner nodes count
too: their members read and commit, registered or not. So does a running export. Reading creates nothing.

``zkgroup.export`` documents the states of an export's node. A run that is only ``planned`` binds nothing: its lock
shows that it runs, and a change of the group makes its decision fail. One that is decided goes on from the group's
offsets, and is lost with the node.

Consumers that commit to ZooKeeper and register nowhere (kafka-node's Consumer, Flink 0.8, Spark, and clients that send
brokers an OffsetCommit of version 0) show in neither members nor owners, only in offsets that change.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from zkgroup.clients.zookeeper.registry import Registry, names_in
from zkgroup.errors import MalformedZnodeError, RefusedError, Remedy
from zkgroup.groups.changes.export_znodes import Pointer, decode_exporter, decode_pointer
from zkgroup.groups.changes.group_tree import ADMINISTRATORS, GroupTree, read_tree, readable_acl
from zkgroup.groups.group_model import OffsetStore, StoredOffset, in_store
from zkgroup.groups.snapshot.group_znodes import host_of
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition, session_text
from zkgroup.protocol.operations import (
    Children,
    Code,
    Create,
    Delete,
    Exists,
    Failure,
    Get,
    GetAcl,
    Node,
    Op,
    Result,
    Stat,
    Sync,
)
from zkgroup.protocol.znodes import excerpt
from zkgroup.text import counted, group_command, listed

_UNKNOWN: Final = "its state cannot be read"
_MAX_PLACE: Final = 1000  # characters of a place


class UnfinishedExportError(RefusedError):
    """Refused because an export of the group was decided and is not finished, though no process may work on it now."""

    def __init__(self, group: str, data: bytes) -> None:
        pointer = _read_pointer(group, data)
        place = ("--to", pointer.output) if pointer is not None and len(pointer.output) < _MAX_PLACE else ()
        text = (
            "run that export again, which finishes it, or give it up with --abandon if its destination is lost; see its"
            " state"
        )
        status = ("export", "--group", group, *place, "--status")
        super().__init__(describe_unfinished_export(group, data) or "", Remedy(text, status))


def describe_unfinished_export(group: str, data: bytes) -> str | None:
    """The unfinished export in the node ``/consumers/G/zkgroup/export``, as text; None where there is none."""
    pointer = _read_pointer(group, data)
    if not data or (pointer is not None and pointer.state == "planned"):
        return None
    found = _UNKNOWN
    if pointer is not None:
        found = f"{excerpt(pointer.state)}, run {excerpt(pointer.run)}, to {excerpt(pointer.output)}"
    return f"an export of group {group} is unfinished: {found}"


def _read_pointer(group: str, data: bytes) -> Pointer | None:
    """None where the node has none, or one that is not understood."""
    with suppress(MalformedZnodeError):
        return decode_pointer(znodes.export_state(group), data)
    return None


class GroupActiveError(RefusedError):
    """Refused because the group is active: ``members`` in ``store``, each with its host, None where that is unknown;
    ``holders`` are other owners and exports, as text; ``exporting``: an export runs."""

    def __init__(
        self,
        group: str,
        members: Mapping[str, str | None],
        holders: Sequence[str] = (),
        *,
        store: OffsetStore = "zookeeper",
        exporting: bool = False,
    ) -> None:
        parts = []
        if members:
            noun = "member" if len(members) == 1 else "members"
            parts.append(f"{noun} {listed([f'{name} on {host}' if host else name for name, host in members.items()])}")
        parts += holders
        reason = f"is active{in_store(store) if store == 'kafka' else ''}: {'; '.join(parts)}"
        super().__init__(f"group {group} {reason}", "stop its clients, then try again", reason=reason)
        self.members = tuple(members)
        self.exporting = exporting


def read_inactive_group(registry: Registry, group: str, *, settled: bool = True) -> list[Create | Delete]:
    """Check that ``group`` is inactive, on a server that has caught up with its leader. Returns operations that make a
    transaction fail once a member has registered or an export has begun, and change nothing in effect.

    Raises ``GroupActiveError`` if it is; ``UnfinishedExportError`` if an export of it waits to be finished and it is to
    be ``settled``; ``RefusedError`` where that is not known, or where the access list of
    ``ids`` is shown in part only, so that the node could not be recreated as it is.
    """
    exports, lock = znodes.export_state(group), znodes.export_lock(group)
    parent = exports.rpartition("/")[0]
    ids, owners = znodes.ids(group), znodes.owners(group)
    ops: list[Op] = [
        Sync(znodes.consumers()),
        Exists(znodes.group(group)),
        Get(ids),
        GetAcl(ids),
        Children(ids),
        Children(owners),
        Exists(parent),
        Get(exports),
        Get(lock),
    ]
    _, there, node, acl, members, topics, *exporting = registry.read(ops)
    registered = _children(ids, members)
    # Owners that are registered members need no line of their own.
    holders = [] if registered else _live_owners(registry, group, _children(owners, topics))
    if isinstance(exporting[2], Node):
        exporter = decode_exporter(exporting[2].data)
        if exporter is not None and exporter.is_killed and not registered and not holders:
            if settled:
                refuse_unfinished(group, exporting[1])
            raise RefusedError(f"group {group}: {exporter.text}", "wait until its session has ended, then try again")
        holders.append("an export runs" if exporter is None else exporter.text)
    if registered or holders:
        if not holders:
            _refuse_lasting(registry, group, registered)
        hosts = {member: host_of(group, member) for member in registered}
        raise GroupActiveError(group, hosts, holders, exporting=isinstance(exporting[2], Node))
    if settled:
        refuse_unfinished(group, exporting[1])
    ids_acl = readable_acl(ids, acl)
    if not isinstance(there, Stat):
        return []
    # What a beginning export creates next: while it is missing no export runs.
    probe = (parent, exports, lock)[sum(isinstance(found, Stat | Node) for found in exporting[:2])]
    if not isinstance(node, Node):
        return [Create(ids), Delete(ids), Create(probe), Delete(probe)]
    return [Delete(ids, node.stat.version), Create(ids, node.data, acl=ids_acl), Create(probe), Delete(probe)]


def refuse_unfinished(group: str, pointer: Result) -> None:
    """Raise ``UnfinishedExportError`` if the export with this node waits to be finished."""
    if isinstance(pointer, Node) and describe_unfinished_export(group, pointer.data):
        raise UnfinishedExportError(group, pointer.data)
    if isinstance(pointer, Failure) and pointer.code is not Code.NO_NODE:
        raise _not_known(f"{znodes.export_state(group)}: {pointer.code.value}")


def _refuse_lasting(registry: Registry, group: str, members: Sequence[str]) -> None:
    """Raise ``GroupActiveError`` where no session owns any of these members: they stay when all clients are stopped."""
    paths = [f"{znodes.ids(group)}/{member}" for member in members]
    if all(isinstance(stat, Stat) and not stat.owner for stat in registry.read([Exists(path) for path in paths])):
        error = GroupActiveError(group, {member: host_of(group, member) for member in members})
        error.add_outcome(f"no client removes such a node, which is not ephemeral: {listed(paths)}")
        names = [word for member in members for word in ("--member", member)]
        releasing = group_command("release-owners", group, *names, "--execute")
        error.remedy = Remedy("make sure that no client uses that name, then remove its registration", releasing)
        raise error


def _live_owners(registry: Registry, group: str, topics: Iterable[str]) -> list[str]:
    """Owner nodes that a session owns; persistent ones do not make a group active."""
    tree = read_tree(registry, group, [znodes.owner_topic(group, topic) for topic in topics])
    if tree.unreadable:
        raise _not_known(tree.unreadable[0])
    owned = Counter((node.text, node.stat.owner) for node in tree.nodes if node.stat.owner)
    owners = [
        f"{name or 'an unnamed owner'} (session {session_text(session)}, {count})"
        for (name, session), count in owned.items()
    ]
    return [f"partitions are owned by {listed(owners)}"] if owners else []


def _children(path: str, result: Result) -> list[str]:
    return sorted(names_in(result, lambda failure: _not_known(f"{path}: {failure.code.value}")))


def _not_known(why: str) -> RefusedError:
    return RefusedError(f"whether the group is active is unknown: {why}", ADMINISTRATORS)


# --- commits of clients that are registered nowhere ------------------------------------------------------------------

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
