"""Removing a group's offsets of topics that it reads no more, while it may be active on others."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import RefusedError
from zkgroup.groups.changes.access_lists import require_acls
from zkgroup.groups.changes.group_tree import read_tree
from zkgroup.groups.changes.plan import Guarding
from zkgroup.groups.changes.preconditions import GroupActiveError, read_inactive_group, refuse_unfinished
from zkgroup.groups.changes.whole_group import CREDENTIALS
from zkgroup.groups.group_model import GroupMember
from zkgroup.groups.snapshot.group_znodes import TopicSelections, decode_member, read_foreign
from zkgroup.protocol import znodes
from zkgroup.protocol.names import identify_owner
from zkgroup.protocol.operations import Children, Create, Delete, Exists, Node, Stat, Sync
from zkgroup.text import listed


def unsubscribe_guard(group: str, topics: Collection[str]) -> Guarding:
    """Checks that no member reads these topics; members that read others do not matter.

    In a group without members the guard is that of the whole group. Otherwise it fails once a member owns a partition
    of these topics. A member that subscribes to one of them between check and transaction, and owns none yet, is
    found by another check afterwards only.
    """

    def check(registry: Registry) -> Sequence[Create | Delete]:
        try:
            return read_inactive_group(registry, group).operations()
        except GroupActiveError as active:
            if active.exporting:
                raise
            refuse_unfinished(registry, group)
            _refuse_readers(registry, group, topics)
        return _owners_guard(registry, group, topics)

    return check


def _refuse_readers(registry: Registry, group: str, topics: Collection[str]) -> None:
    """Raise ``RefusedError`` where a member subscribes to one of these topics, or to topics that are not known."""
    members, owners = _read(registry, group)
    readers = [f"{one.member} ({topic})" for one in members for topic in sorted(topics) if topic in one.streams]
    if readers:
        raise RefusedError(
            f"group {group} is subscribed: {listed(readers)}", "stop these members, or take the topic from them, first"
        )
    unknown = [f"{one.member} ({one.error})" for one in members if one.error]
    # Owner nodes show topics that another client does not register; those of one that owns nothing are unknown.
    unknown += [
        f"{one.member} ({one.foreign})"
        for one in members
        if one.registration is None and not one.error and not any(owner.startswith(one.member) for owner in owners)
    ]
    if unknown:
        raise RefusedError(
            f"which topics group {group} reads is unknown: {listed(unknown)}", "stop these members first"
        )


def _read(registry: Registry, group: str) -> tuple[Sequence[GroupMember], Sequence[str]]:
    """The members, and the owners of partitions as their nodes hold them."""
    _, existing = registry.read([Sync(znodes.consumers()), Children(znodes.topics())])
    registered = read_tree(registry, group, [znodes.ids(group)])
    if registered.unreadable:
        message = f"the members of group {group} cannot be read: {listed(registered.unreadable)}"
        raise RefusedError(message, CREDENTIALS)
    selections = TopicSelections(existing if isinstance(existing, tuple) else ())
    nodes = {node.path: Node(node.data, node.stat) for node in registered.nodes}
    paths = {name: znodes.member_id(group, name) for name in registered.members}
    read = read_foreign(
        group, [decode_member(group, name, path, nodes[path], selections) for name, path in paths.items()], selections
    )
    owners = [node.text for node in read_tree(registry, group, [znodes.owners(group)]).nodes if node.data]
    silent = {member.member for member in read if member.foreign is not None and member.registration is None}
    # Their topics are those that they own: of one that owns nothing they are not known.
    silent -= {found.consumer_id for found in (identify_owner(owner, silent) for owner in owners) if found is not None}
    return [replace(member, error=member.foreign) if member.member in silent else member for member in read], owners


def _owners_guard(registry: Registry, group: str, topics: Collection[str]) -> list[Create | Delete]:
    """Claims are made below the topic's node in ``owners``: it is made and deleted, or deleted and made again."""
    paths = [znodes.owner_topic(group, topic) for topic in sorted(topics)]
    above, *stats = registry.read([Exists(znodes.owners(group)), *(Exists(path) for path in paths)])
    tree = read_tree(registry, group, paths)
    for node in tree.nodes:
        if node.stat.owner:
            raise RefusedError(f"group {group} is active: {node.text} owns {node.path}", "stop that member first")
    if not isinstance(above, Stat):
        return [Create(znodes.owners(group)), Delete(znodes.owners(group))]
    parents = {node.path.rpartition("/")[0] for node in tree.nodes}
    operations: list[Create | Delete] = []
    for path, stat in zip(paths, stats, strict=True):
        if not isinstance(stat, Stat):
            operations += [Create(path), Delete(path)]
        elif path not in parents and stat.version == 0:
            operations += [Delete(path), Create(path, acl=require_acls(registry, [path])[path])]
        # Claims without a session is among the nodes that are removed.
    return operations
