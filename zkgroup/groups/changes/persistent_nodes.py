"""Owner nodes and registrations that no session owns: they outlive every client, and keep partitions from the others.

They may be removed while members are active, as no member makes such nodes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import NotFoundError, RefusedError, Remedy, did_you_mean
from zkgroup.groups.changes.backup import RELEASE_OWNERS
from zkgroup.groups.changes.group_tree import GroupTree, TreeNode, read_tree
from zkgroup.groups.changes.plan import Guarding, Plan, ZnodeRemoval
from zkgroup.groups.partition_scope import Scope
from zkgroup.groups.snapshot.snapshot_defects import foreign_note
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition, identify_owner, session_text
from zkgroup.protocol.operations import Children, Create, Delete
from zkgroup.text import group_command, listed

_PARTITION: Final = re.compile(r"(?:[0-9]+-)?([0-9]{1,9})", re.ASCII)


@dataclass(frozen=True, slots=True)
class ReleaseRow:
    """A node that is to go: an owner of ``topic``, whose name may be that of no ``partition``, or, without a topic, the
    registration of ``member``. ``since``: when it was made, in milliseconds since 1970."""

    topic: str | None
    partition: int | None
    owner: str | None
    member: str | None
    since: int
    note: str | None = None


def plan_release(
    registry: Registry, group: str, scope: Scope, members: Collection[str]
) -> tuple[list[ReleaseRow], Plan]:
    """The removal of the owner nodes in ``scope``, and of the registrations of ``members``, that no session owns.

    Raises ``NotFoundError`` for topics and members without one, ``RefusedError`` for ephemeral nodes, for nodes that
    cannot be read, and for a member that is alive.
    """
    registered = read_tree(registry, group, [znodes.ids(group)])
    owners = read_tree(registry, group, [znodes.owner_topic(group, topic) for topic in scope.topics])
    _check_readable(registered, owners)
    owned = _owner_nodes(owners)
    meant = {key: node for key, node in owned.items() if scope.has(key)}
    ids = {node.path: node for node in registered.nodes}
    unnamed = _other_children(owners, [topic for topic, ranges in scope.topics.items() if not ranges])
    for topic, ranges in scope.topics.items():
        live = [(key, node) for key, node in meant.items() if key.topic == topic and node.stat.owner]
        lasting = any(key.topic == topic and not node.stat.owner for key, node in meant.items())
        if not (lasting or topic in unnamed.values()) or (ranges and live):
            raise _no_such_owner(registry, group, topic, live)
    for member in members:
        node = ids.get(znodes.member_id(group, member))
        if node is None:
            there = f"it has {listed(registered.members) or 'none'}"
            raise NotFoundError(
                f"group {group} has no member {member}", did_you_mean(member, registered.members, there)
            )
        if node.stat.owner:
            raise RefusedError(f"{node.path} is owned by session {session_text(node.stat.owner)}", _ENDS_WITH_SESSION)
    _refuse_live(registry, group, members)
    alive = {name for name in registered.members if ids[znodes.member_id(group, name)].stat.owner}
    rows = [_owner_row(key, node, alive) for key, node in meant.items() if not node.stat.owner]
    rows += [
        ReleaseRow(topic, None, node.text or None, None, node.stat.ctime, f"{node.path}: no partition has that name")
        for node, topic in unnamed.items()
    ]
    roots = [node.path for node in (*meant.values(), *unnamed) if not node.stat.owner]
    for member in sorted(members):
        path = znodes.member_id(group, member)
        rows.append(ReleaseRow(None, None, None, member, ids[path].stat.ctime, "a registration"))
        roots.append(path)
    removal = ZnodeRemoval(read_tree(registry, group, roots), roots, _release_guard(group, members), permanent=True)
    warnings = tuple(foreign_note(removal.tree.foreign, "deleted, too"))
    plan = Plan(command=RELEASE_OWNERS, group=group, store="zookeeper", rows=(), warnings=warnings, removal=removal)
    return rows, plan


def _release_guard(group: str, members: Collection[str]) -> Guarding:
    """Checks that the members whose registrations go own nothing through a session."""

    def check(registry: Registry) -> Sequence[Create | Delete]:
        _refuse_live(registry, group, members)
        return ()

    return check


def _refuse_live(registry: Registry, group: str, members: Collection[str]) -> None:
    """Raise ``RefusedError`` where one of them owns partitions through a session: its client lives."""
    if not members:
        return
    owners = read_tree(registry, group, [znodes.owners(group)])
    _check_readable(owners)
    for key, node in _owner_nodes(owners).items():
        identity = identify_owner(node.text, members) if node.stat.owner else None
        if identity is not None:
            raise RefusedError(
                f"member {identity.consumer_id} is alive: it owns {key} in session {session_text(node.stat.owner)}",
                "stop its client first",
            )


def _owner_row(key: TopicPartition, node: TreeNode, alive: Collection[str]) -> ReleaseRow:
    owner = node.text
    identity = identify_owner(owner, alive)
    member = identity and identity.consumer_id
    note = "its member is registered, and claims it again when the group rebalances" if member else None
    return ReleaseRow(*key, owner or None, member, node.stat.ctime, note)


def _owner_nodes(tree: GroupTree) -> dict[TopicPartition, TreeNode]:
    """The nodes of ``tree`` that own a partition, in their order."""
    above = znodes.owners(tree.group) + "/"
    found = {}
    for node in tree.nodes:
        topic, _, name = node.path.removeprefix(above).partition("/")
        match = _PARTITION.fullmatch(name)
        if match is not None:
            found[TopicPartition(topic, int(match[1]))] = node
    return dict(sorted(found.items()))


def _other_children(tree: GroupTree, topics: Collection[str]) -> dict[TreeNode, str]:
    """The nodes among owners of these topics that no session owns and that no partition has for a name."""
    above = {znodes.owner_topic(tree.group, topic): topic for topic in topics}
    return {
        node: above[parent]
        for node in tree.nodes
        for parent, _, name in [node.path.rpartition("/")]
        if parent in above and not node.stat.owner and not _PARTITION.fullmatch(name)
    }


def _check_readable(*trees: GroupTree) -> None:
    if unreadable := [why for tree in trees for why in tree.unreadable]:
        raise RefusedError(
            f"nodes of group {trees[0].group} cannot be read: {listed(unreadable)}",
            "connect with credentials that may read them",
        )


def _no_such_owner(
    registry: Registry, group: str, topic: str, live: Sequence[tuple[TopicPartition, TreeNode]]
) -> NotFoundError | RefusedError:
    if not live:
        (known,) = registry.read([Children(znodes.owners(group))])
        see = Remedy("see the owners", group_command("owners", group))
        return NotFoundError(
            f"group {group} has no owner node of {topic} there that outlives its session",
            did_you_mean(topic, known if isinstance(known, tuple) else (), see),
        )
    key, node = live[0]
    return RefusedError(f"{node.text} owns {key} in session {session_text(node.stat.owner)}", _ENDS_WITH_SESSION)


_ENDS_WITH_SESSION: Final = "stop that client: the node goes with its session"
