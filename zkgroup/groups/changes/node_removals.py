"""The removal of some of a group's nodes in ZooKeeper, while it may be active: those of some topics, or of some of
their partitions; owner nodes and registrations that no session owns.

Such nodes outlive every client, and keep partitions from the others: no member makes them. Offsets in Kafka stay, which
deletes groups as a whole only.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from zkgroup.clients.kafka.responses import OFFSETS_IN_KAFKA
from zkgroup.clients.zookeeper.registry import Registry, names_in
from zkgroup.errors import NotFoundError, Notice, RefusedError, Remedy, did_you_mean
from zkgroup.groups.changes.backup import RELEASE_OWNERS
from zkgroup.groups.changes.group_plans import WholeGroup, plan_delete
from zkgroup.groups.changes.group_tree import GroupTree, TreeNode, read_tree, require_acls
from zkgroup.groups.changes.plan import Guarding, Plan, ZnodeRemoval
from zkgroup.groups.changes.preconditions import GroupActiveError, read_inactive_group, refuse_unfinished
from zkgroup.groups.partition_scope import Scope
from zkgroup.groups.snapshot.group_reader import read_group
from zkgroup.groups.snapshot.snapshot_defects import foreign_note
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition, identify_owner, parse_partition, session_text, spans
from zkgroup.protocol.operations import Children, Create, Delete, Exists, Get, Stat
from zkgroup.text import group_command, listed


def plan_topic_removal(
    command: str, registry: Registry, whole: WholeGroup, scope: Scope, guarding: Guarding | None = None
) -> Plan:
    """The removal of the group's nodes of these topics in ZooKeeper, with the whole group where it has nothing else.
    ``guarding`` checks before and after a removal of topics alone. Raises as ``check_has``."""
    tree, roots = read_scope(registry, whole.group, scope)
    check_has(whole, scope, tree)
    assert whole.tree is not None, "the group has something in ZooKeeper"
    going = {node.path for node in tree.nodes}
    emptied = GroupTree(whole.group, tuple(node for node in whole.tree.nodes if node.path not in going)).is_empty
    removal = ZnodeRemoval(tree, roots, guarding, check_after=guarding is not None)
    if emptied:  # as Kafka's own tool does
        removal = ZnodeRemoval(whole.tree)
    warnings: list[Notice] = [*whole.warnings, *foreign_note(tree.foreign, "deleted, too")]
    if kept := _kept(whole, scope):
        message = f"offsets of {spans(kept)} stay in Kafka, which deletes groups as a whole only"
        warnings.append(Notice(message, Remedy(OFFSETS_IN_KAFKA)))
    if emptied:
        warnings.append(Notice("the group has nothing else in ZooKeeper: its empty nodes are deleted, too"))
    rows = tuple(plan_delete(tree.offsets, {}))
    return Plan(
        command=command, group=whole.group, store="zookeeper", rows=rows, warnings=tuple(warnings), removal=removal
    )


def read_scope(registry: Registry, group: str, scope: Scope) -> tuple[GroupTree, list[str]]:
    """A group's nodes for some topics, or for some of their partitions: offsets, and owners that have been left; and
    the roots that they were read from."""
    parents = [
        path for topic in scope.topics for path in (znodes.offset_topic(group, topic), znodes.owner_topic(group, topic))
    ]
    whole = read_tree(registry, group, parents)
    roots = []
    for parent in parents:
        topic = parent.rpartition("/")[2]
        if not scope.topics[topic]:
            roots.append(parent)
            continue
        for node in whole.nodes:
            above, _, name = node.path.rpartition("/")
            number = parse_partition(name) if above == parent else None
            if number is not None and scope.has(TopicPartition(topic, number)):
                roots.append(node.path)
    chosen = set(roots)
    kept = tuple(node for node in whole.nodes if not chosen.isdisjoint(_path_and_above(node.path)))
    return GroupTree(group, kept, whole.unreadable), roots


def check_has(whole: WholeGroup, scope: Scope, tree: GroupTree) -> None:
    """Raise ``NotFoundError`` where the group has nothing of these topics, ``RefusedError`` where its nodes cannot be
    read, or its offsets are in Kafka alone."""
    tree.require_readable()
    there = {path for node in tree.nodes for path in _path_and_above(node.path)}
    for topic in scope.topics:
        if there.isdisjoint((znodes.offset_topic(whole.group, topic), znodes.owner_topic(whole.group, topic))):
            if kept := [key for key in _kept(whole, scope) if key.topic == topic]:
                raise RefusedError(
                    f"group {whole.group} keeps its offsets of {spans(kept)} in Kafka, which deletes groups as a whole"
                    " only: nothing was removed",
                    OFFSETS_IN_KAFKA,
                )
            known = sorted({key.topic for key in (*whole.stored, *whole.kept)})
            raise NotFoundError(
                f"group {whole.group} has no offsets of {topic}{' in these partitions' if scope.topics[topic] else ''}",
                did_you_mean(topic, known, f"its topics: {listed(known) or 'none'}"),
            )


def _kept(whole: WholeGroup, scope: Scope) -> list[TopicPartition]:
    return [key for key in sorted(whole.kept) if scope.has(key)]


def _path_and_above(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(2, len(parts) + 1)]


def unsubscribe_guard(group: str, topics: Collection[str]) -> Guarding:
    """Checks that no member reads these topics; members that read others do not matter.

    In a group without members the guard is that of the whole group. Otherwise it fails once a member owns a partition
    of these topics. A member that subscribes to one of them between check and transaction, and owns none yet, is
    found by another check afterwards only.
    """

    def check(registry: Registry) -> Sequence[Create | Delete]:
        try:
            return read_inactive_group(registry, group)
        except GroupActiveError as active:
            if active.exporting:
                raise
            refuse_unfinished(group, registry.read([Get(znodes.export_state(group))])[0])
            _refuse_readers(registry, group, topics)
        return _owners_guard(registry, group, topics)

    return check


def _refuse_readers(registry: Registry, group: str, topics: Collection[str]) -> None:
    """Raise ``RefusedError`` where a member subscribes to one of these topics, or to topics that are not known. Owner
    nodes show topics that another client does not register; of one that owns nothing they are unknown."""
    snapshot = read_group(registry, group)
    members = snapshot.members
    readers = [f"{one.member} ({topic})" for one in members for topic in sorted(topics) if topic in one.streams]
    if readers:
        raise RefusedError(
            f"group {group} is subscribed: {listed(readers)}", "stop these members, or take the topic from them, first"
        )
    unknown = [
        f"{one.member} ({one.error or one.foreign or 'the list of topics cannot be read'})"
        for one in members
        if one.error or one.registration is None or (one.has_filter and snapshot.has_hidden_topics)
    ]
    if unknown:
        raise RefusedError(
            f"which topics group {group} reads is unknown: {listed(unknown)}", "stop these members first"
        )


def _owners_guard(registry: Registry, group: str, topics: Collection[str]) -> list[Create | Delete]:
    """Members claim below the topic's node in ``owners``: it is created and deleted, or deleted and recreated."""
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
    registered.require_readable()
    owners.require_readable()
    claims = [
        (topic, number, node)
        for topic, number, node in _claims(owners)
        if (not scope.topics[topic] if number is None else scope.has(TopicPartition(topic, number)))
    ]
    ids = {node.path: node for node in registered.nodes}
    for topic, ranges in scope.topics.items():
        nodes = [(number, node) for name, number, node in claims if name == topic]
        live = [(number, node) for number, node in nodes if node.stat.owner and number is not None]
        if live and (ranges or all(node.stat.owner for _, node in nodes)):
            number, owner = live[0]
            session = session_text(owner.stat.owner)
            raise RefusedError(f"{owner.text} owns {topic}-{number} in session {session}", _ENDS_WITH_SESSION)
        if all(node.stat.owner for _, node in nodes):
            (known,) = registry.read([Children(znodes.owners(group))])
            see = Remedy("see the owners", group_command("owners", group))
            raise NotFoundError(
                f"group {group} has no owner node of {topic} there that outlives its session",
                did_you_mean(topic, names_in(known), see),
            )
    for member in members:
        node = ids.get(znodes.member_id(group, member))
        if node is None:
            there = f"it has {listed(registered.members) or 'none'}"
            raise NotFoundError(
                f"group {group} has no member {member}", did_you_mean(member, registered.members, there)
            )
        if node.stat.owner:
            raise RefusedError(f"{node.path} is owned by session {session_text(node.stat.owner)}", _ENDS_WITH_SESSION)
    guarding = partial(_refuse_live, group, members)
    guarding(registry)
    alive = {name for name in registered.members if ids[znodes.member_id(group, name)].stat.owner}
    lasting = [claim for claim in claims if not claim[2].stat.owner]
    rows, roots = [_owner_row(*claim, alive) for claim in lasting], [node.path for *_, node in lasting]
    for member in sorted(members):
        path = znodes.member_id(group, member)
        rows.append(ReleaseRow(None, None, None, member, ids[path].stat.ctime, "a registration"))
        roots.append(path)
    removal = ZnodeRemoval(read_tree(registry, group, roots), roots, guarding, permanent=True)
    warnings = tuple(foreign_note(removal.tree.foreign, "deleted, too"))
    plan = Plan(command=RELEASE_OWNERS, group=group, store="zookeeper", rows=(), warnings=warnings, removal=removal)
    return rows, plan


def _refuse_live(group: str, members: Collection[str], registry: Registry) -> Sequence[Create | Delete]:
    """Raise ``RefusedError`` where one of them owns partitions through a session: its client lives. Transactions need
    no other guard."""
    owners = read_tree(registry, group, [znodes.owners(group)] if members else [])
    owners.require_readable()
    for topic, number, node in _claims(owners):
        identity = identify_owner(node.text, members) if node.stat.owner else None
        if identity is not None:
            name, session = node.path if number is None else f"{topic}-{number}", session_text(node.stat.owner)
            raise RefusedError(
                f"member {identity.consumer_id} is alive: it owns {name} in session {session}",
                "stop its client first",
            )
    return ()


def _owner_row(topic: str, number: int | None, node: TreeNode, alive: Collection[str]) -> ReleaseRow:
    identity = identify_owner(node.text, alive)
    member = identity and identity.consumer_id
    note = "its member is registered, and claims it again when the group rebalances" if member else None
    if number is None:
        note = f"{node.path}: no partition has that name"
    return ReleaseRow(topic, number, node.text or None, member, node.stat.ctime, note)


def _claims(tree: GroupTree) -> list[tuple[str, int | None, TreeNode]]:
    """The nodes below each topic's owners, in order: the topic, the partition, None for a name that no partition has,
    and the node."""
    above = znodes.owners(tree.group) + "/"
    found = []
    for node in tree.nodes:
        topic, slash, name = node.path.removeprefix(above).partition("/")
        if node.path.startswith(above) and slash and "/" not in name:
            match = _PARTITION.fullmatch(name)
            found.append((topic, None if match is None else int(match[1]), node))
    return sorted(found, key=lambda one: (one[0], one[1] is None, one[1] or 0))


_ENDS_WITH_SESSION: Final = "stop that client: the node goes with its session"
