"""The removal of a group's nodes of some topics, or of some of their partitions. Offsets in Kafka stay, which deletes
groups as a whole only."""

from __future__ import annotations

from zkgroup.clients.kafka.responses import OFFSETS_IN_KAFKA
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import NotFoundError, RefusedError, did_you_mean
from zkgroup.groups.changes.group_plans import plan_delete
from zkgroup.groups.changes.group_tree import GroupTree, read_tree
from zkgroup.groups.changes.missing_permissions import refuse_removal
from zkgroup.groups.changes.plan import Guarding, Plan, ZnodeRemoval
from zkgroup.groups.changes.whole_group import CREDENTIALS, WholeGroup
from zkgroup.groups.changes.znode_deletion import is_split
from zkgroup.groups.partition_scope import Scope
from zkgroup.groups.snapshot.snapshot_defects import foreign_note
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition, parse_partition, spans
from zkgroup.text import counted, listed


def plan_topic_removal(
    command: str, registry: Registry, whole: WholeGroup, scope: Scope, guarding: Guarding | None = None
) -> Plan:
    """The removal of the group's nodes of these topics in ZooKeeper, with the whole group where it has nothing else.
    ``guarding`` checks before and after a removal of topics alone. Raises as ``check_has``."""
    tree, roots = read_scope(registry, whole.group, scope)
    check_has(whole, scope, tree)
    everything = and_empty_group(registry, whole, tree)
    emptied = everything is not tree
    removal = ZnodeRemoval(tree, roots, guarding, check_after=guarding is not None)
    if emptied:
        removal = ZnodeRemoval(everything)
    warnings = [*whole.warnings, *staying_in_kafka(whole, scope), *foreign_note(tree.foreign, "deleted, too")]
    if emptied:
        warnings.append("the group has nothing else in ZooKeeper: its empty nodes are deleted, too")
    rows = tuple(plan_delete(tree, {}))
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


def and_empty_group(registry: Registry, whole: WholeGroup, tree: GroupTree) -> GroupTree:
    """The nodes that go with those of ``tree``: all nodes of the group where nothing is left in them, as Kafka's own
    tool does, unless ZooKeeper does not admit that; else those alone."""
    assert whole.tree is not None, "the group has something in ZooKeeper"
    going = {node.path for node in tree.nodes}
    left = GroupTree(whole.group, tuple(node for node in whole.tree.nodes if node.path not in going))
    if not left.is_empty:
        return tree
    try:
        refuse_removal(registry, whole.tree, is_split=is_split(registry, whole.tree.nodes))
    except RefusedError:
        return tree
    return whole.tree


def check_has(whole: WholeGroup, scope: Scope, tree: GroupTree) -> None:
    """Raise ``NotFoundError`` where the group has nothing of these topics, ``RefusedError`` where its nodes cannot be
    read, or its offsets are in Kafka alone."""
    if tree.unreadable:
        raise RefusedError(f"group {whole.group} cannot be read: {listed(tree.unreadable)}", CREDENTIALS)
    parents = {
        topic: (znodes.offset_topic(whole.group, topic), znodes.owner_topic(whole.group, topic))
        for topic in scope.topics
    }
    there = {path for node in tree.nodes for path in _path_and_above(node.path)}
    for topic, paths in parents.items():
        if there.isdisjoint(paths):
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


def staying_in_kafka(whole: WholeGroup, scope: Scope) -> list[str]:
    """A warning of the offsets that stay in Kafka where those in ZooKeeper are removed."""
    kept = _kept(whole, scope)
    if not kept:
        return []
    stay = "stays" if len(kept) == 1 else "stay"
    what = f"{counted(len(kept), 'offset')} of {spans(kept)} in Kafka {stay}, which deletes groups as a whole only"
    return [f"{what}: {OFFSETS_IN_KAFKA}"]


def _kept(whole: WholeGroup, scope: Scope) -> list[TopicPartition]:
    """The offsets in scope that are in Kafka."""
    return [key for key in sorted(whole.kept) if scope.has(key)]


def _path_and_above(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(2, len(parts) + 1)]
