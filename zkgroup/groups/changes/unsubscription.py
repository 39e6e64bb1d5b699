"""Removing a group's offsets of topics that it reads no more, while it may be at work on others."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import RefusedError
from zkgroup.groups.changes.group_tree import read_tree
from zkgroup.groups.changes.plan import Guarding
from zkgroup.groups.changes.preconditions import GroupActiveError, read_guard, readable_acl, refuse_unfinished
from zkgroup.groups.group_model import GroupMember
from zkgroup.groups.snapshot.registrations import TopicSelections, decode_member, read_foreign
from zkgroup.protocol import znodes
from zkgroup.protocol.names import identify_owner
from zkgroup.protocol.operations import Children, Code, Create, Delete, Exists, Failure, Get, GetAcl, Node, Stat, Sync
from zkgroup.text import listed


def unsubscribe_guard(group: str, topics: Collection[str]) -> Guarding:
    """Looks whether anybody reads these topics for the group; members that read others are let be.

    In a group without members the guard is that of the whole group. Otherwise it fails once somebody owns a partition
    of these topics. A member that subscribes to one of them between look and transaction, and owns none yet, is seen by
    looking again afterwards only.
    """

    def look(registry: Registry) -> Sequence[Create | Delete]:
        try:
            return read_guard(registry, group).operations()
        except GroupActiveError as active:
            if active.exporting:
                raise
            refuse_unfinished(registry, group)
            _refuse_readers(registry, group, topics, _members(registry, group))
        return _owners_guard(registry, group, topics)

    return look


def _members(registry: Registry, group: str) -> Sequence[GroupMember]:
    ids = znodes.ids(group)
    _, names, existing = registry.read([Sync(znodes.consumers()), Children(ids), Children(znodes.topics())])
    if isinstance(names, Failure) and names.code is not Code.NO_NODE:
        raise RefusedError(f"the members of group {group} cannot be read: {ids}: {names.code.value}", _CREDENTIALS)
    selections = TopicSelections(existing if isinstance(existing, tuple) else ())
    paths = [znodes.member_id(group, name) for name in sorted(names)] if isinstance(names, tuple) else []
    members = []
    for path, node in zip(paths, registry.read([Get(path) for path in paths]), strict=True):
        if isinstance(node, Node):
            members.append(decode_member(group, path.rpartition("/")[2], path, node, selections))
        elif isinstance(node, Failure) and node.code is not Code.NO_NODE:
            raise RefusedError(f"member {path} cannot be read: {node.code.value}", _CREDENTIALS)
    read = read_foreign(group, members, selections)
    silent = {member.member for member in read if member.foreign is not None and member.registration is None}
    if silent:  # their topics are those that they own: of one that owns nothing they are not known
        owners = read_tree(registry, group, [znodes.owners(group)]).nodes
        found = [identify_owner(node.data.decode("utf-8", "backslashreplace"), silent) for node in owners if node.data]
        silent -= {owner.consumer_id for owner in found if owner is not None}
    return [replace(member, error=member.foreign) if member.member in silent else member for member in read]


def _refuse_readers(registry: Registry, group: str, topics: Collection[str], members: Sequence[GroupMember]) -> None:
    readers = [f"{one.member} ({topic})" for one in members for topic in sorted(topics) if topic in one.streams]
    if readers:
        raise RefusedError(
            f"group {group} is subscribed: {listed(readers)}", "stop these members, or take the topic from them, first"
        )
    silent = [member for member in members if member.registration is None and not member.error]
    # What another client does not register, its owner nodes tell; of one that owns nothing nobody knows what it reads.
    owners = _owners(registry, group) if silent else ()
    lost = [one for one in silent if not any(owner.startswith(one.member) for owner in owners)]
    unknown = [f"{one.member} ({one.error})" for one in members if one.error]
    unknown += [f"{one.member} ({one.foreign})" for one in lost]
    if unknown:
        raise RefusedError(
            f"which topics group {group} reads cannot be told: {listed(unknown)}", "stop these members first"
        )


def _owners(registry: Registry, group: str) -> list[str]:
    """Who owns anything, as the owner nodes say it."""
    (topics,) = registry.read([Children(znodes.owners(group))])
    above = [znodes.owner_topic(group, topic) for topic in _names(topics)]
    lists = registry.read([Children(path) for path in above])
    paths = [f"{path}/{name}" for path, names in zip(above, lists, strict=True) for name in _names(names)]
    nodes = registry.read([Get(path) for path in paths])
    return [node.data.decode("utf-8", "backslashreplace") for node in nodes if isinstance(node, Node)]


def _owners_guard(registry: Registry, group: str, topics: Collection[str]) -> list[Create | Delete]:
    """Claims are made below the topic's node in ``owners``: it is made and deleted, or deleted and made again."""
    paths = [znodes.owner_topic(group, topic) for topic in sorted(topics)]
    above, *stats = registry.read([Exists(znodes.owners(group)), *(Exists(path) for path in paths)])
    lists = registry.read([Children(path) for path in paths])
    claims = [f"{path}/{name}" for path, names in zip(paths, lists, strict=True) for name in _names(names)]
    nodes = registry.read([Get(path) for path in claims])
    for path, node in zip(claims, nodes, strict=True):
        if isinstance(node, Node) and node.stat.owner:
            owner = node.data.decode("utf-8", "backslashreplace")
            raise RefusedError(f"group {group} is at work: {owner} owns {path}", "stop that member first")
    if not isinstance(above, Stat):
        return [Create(znodes.owners(group)), Delete(znodes.owners(group))]
    operations: list[Create | Delete] = []
    for path, stat, names in zip(paths, stats, lists, strict=True):
        if not isinstance(stat, Stat):
            operations += [Create(path), Delete(path)]
        elif not _names(names) and stat.version == 0:
            operations += [Delete(path), Create(path, acl=readable_acl(path, registry.read([GetAcl(path)])[0]))]
        # What holds claims that nobody holds any more is among the nodes that are removed.
    return operations


def _names(result: object) -> tuple[str, ...]:
    return tuple(sorted(result)) if isinstance(result, tuple) else ()


_CREDENTIALS = "connect with credentials that may read the group's nodes"
