"""Groups that are debris: nobody works for them, and nobody has for long. Found and deleted by the thousand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import NotFoundError, RefusedError, Remedy, UnreachableError, ZkgroupError
from zkgroup.groups.changes.backup import Backup, SavedNode, read_cluster
from zkgroup.groups.changes.group_manager import CREDENTIALS
from zkgroup.groups.changes.group_plans import DebrisRow, find_debris, matching
from zkgroup.groups.changes.group_tree import GroupTree, read_trees
from zkgroup.groups.changes.missing_permissions import lacking, needs_of_removal
from zkgroup.groups.changes.preconditions import readable_acl
from zkgroup.groups.changes.znode_deletion import BATCH, is_in_pieces, remove_groups
from zkgroup.groups.changes.znode_transactions import CREDENTIALS as MAY_CHANGE
from zkgroup.groups.group_model import GroupSnapshot
from zkgroup.groups.snapshot.group_reader import read_groups
from zkgroup.protocol import znodes
from zkgroup.protocol.names import OFFSETS_TOPIC
from zkgroup.protocol.operations import Acl, Acls, Children, Exists, GetAcl, Stat
from zkgroup.text import listed

if TYPE_CHECKING:
    from zkgroup.clients.kafka.client import KafkaSettings


def look_for_debris(
    registry: Registry,
    patterns: Sequence[str],
    now: int,
    older_than: int,
    *,
    brokers: Callable[[], KafkaSettings] | None = None,
    timeout: float = 5.0,
    foreign: bool = False,
) -> tuple[list[DebrisRow], Mapping[str, GroupTree]]:
    """All groups that a pattern means, judged, and their nodes. Times are milliseconds. ``brokers``: how to find out
    how to reach them, for groups with members in Kafka are none; without it Kafka is not asked. ``timeout`` (seconds)
    is for their answers. ``foreign``: also groups that have nothing but nodes of another client.

    Raises ``NotFoundError`` where no group matches, ``ZkgroupError`` where brokers do not tell which groups there are.
    """
    (listed,) = registry.read([Children(znodes.consumers())])
    names = matching(listed if isinstance(listed, tuple) else (), patterns)
    if not names:
        raise NotFoundError(
            f"no group matches {' or '.join(patterns)}", Remedy("see which groups there are", ("list-groups",))
        )
    trees: dict[str, GroupTree] = {}
    for start in range(0, len(names), BATCH):
        trees |= read_trees(registry, {name: [znodes.group(name)] for name in names[start : start + BATCH]})
    others = _stats(registry, listed if isinstance(listed, tuple) else ())
    in_kafka = _members_in_kafka(registry, names, brokers, timeout) if brokers is not None else {}
    rows = find_debris(trees.values(), now, older_than, others, in_kafka, foreign=foreign)
    looks = {one.group: one for one in read_groups(registry, [row.group for row in rows])}
    return [_as_listed(row, looks.get(row.group)) for row in rows], trees


def _as_listed(row: DebrisRow, look: GroupSnapshot | None) -> DebrisRow:
    """With the state that a list of groups tells: nodes that are there may be no use, and one that may not be read
    hides neither members nor that there are none, if it is not theirs."""
    if look is None or (row.state == "active" and look.state == "inactive"):
        return row  # gone, or it has members in Kafka, or nodes that a session holds for no member
    row = replace(row, state=look.state, members=max(row.members, len(look.members)))
    if look.state == "active" and (row.action == "delete" or row.barred):
        return replace(row, action="keep", note="it has members", barred=False)
    return row


def _members_in_kafka(
    registry: Registry, names: Iterable[str], brokers: Callable[[], KafkaSettings], timeout: float
) -> dict[str, Sequence[str] | ZkgroupError]:
    """Those of the groups that are in Kafka, each with its members there, or with why they are not known."""
    # Looking makes brokers create that topic; without it nothing is in Kafka.
    (there,) = registry.read([Exists(znodes.topic(OFFSETS_TOPIC))])
    if not isinstance(there, Stat):
        return {}
    from zkgroup.clients.kafka.group_coordinator import (
        Coordinators,  # confluent-kafka: 60 ms that not every change needs
    )

    try:
        coordinators = Coordinators(brokers(), timeout)
        listed_names = coordinators.names()
        if listed_names.missing:
            raise UnreachableError("; ".join(listed_names.missing))
        described = coordinators.members(sorted(set(names).intersection(listed_names.names)))
    except ZkgroupError as error:
        error.message = f"which groups have members in Kafka is not known: {error.message}"
        error.add_remedy("--store zookeeper does not ask for them")
        raise
    return {
        group: ZkgroupError(found) if isinstance(found, str) else [member.member for member in found]
        for group, found in described.items()
    }


def _stats(registry: Registry, groups: Iterable[str]) -> list[Stat]:
    """Nodes that are written once, or seldom, all over the cluster: what tells when a transaction was."""
    parents = [znodes.broker_ids(), znodes.topics()]
    lists = registry.read([Children(path) for path in parents])
    paths = [f"{znodes.consumers()}/{group}" for group in groups]
    paths += [
        f"{parent}/{name}"
        for parent, names in zip(parents, lists, strict=True)
        for name in (names if isinstance(names, tuple) else ())
    ]
    found = registry.read([Exists(path) for path in [*paths, znodes.controller()]])
    return [stat for stat in found if isinstance(stat, Stat)]


def check_access(
    registry: Registry, rows: Iterable[DebrisRow], trees: Mapping[str, GroupTree]
) -> tuple[list[DebrisRow], dict[str, ZkgroupError]]:
    """The rows once more, with what access lists tell, and the groups that would be left therefore, each with the
    error to be expected: one that no backup can hold is kept, barred; one that these credentials may surely not delete
    has a note, as ZooKeeper has the last word. The lists of all nodes are read at one go. Raises ``UnreachableError``.
    """
    rows = list(rows)
    going = [trees[row.group] for row in rows if row.action == "delete"]
    lists, hidden = _lists(registry, going)
    lists |= _list_above(registry) if going else {}
    checked: list[DebrisRow] = []
    left: dict[str, ZkgroupError] = {}
    for row in rows:
        if row.barred:
            left[row.group] = RefusedError(row.note or "", CREDENTIALS)
        elif (unknown := hidden.get(row.group)) is not None:
            left[row.group] = unknown
            row = replace(row, action="keep", note=unknown.message, barred=True)
        elif row.action == "delete":
            tree = trees[row.group]
            needs = needs_of_removal(tree, in_pieces=is_in_pieces(registry, tree.nodes))
            if missing := lacking(lists, registry.settings.auth, needs):
                note = f"may not be changed: {listed(missing)}"
                left[row.group] = RefusedError(note, MAY_CHANGE)
                row = replace(row, note=f"{note}; {row.note}" if row.note else note)
        checked.append(row)
    return checked, left


def _list_above(registry: Registry) -> dict[str, tuple[Acl, ...]]:
    """The list of the node above all groups, if it is told."""
    (result,) = registry.read([GetAcl(znodes.consumers())])
    return {znodes.consumers(): result.acl} if isinstance(result, Acls) else {}


def backup_of_debris(
    registry: Registry, patterns: Sequence[str], trees: Sequence[GroupTree], now: int
) -> tuple[Backup, dict[str, ZkgroupError]]:
    """All nodes of these groups, as they are, but of those of which a list is not told any more: they are not to be
    deleted, each for the reason that comes with it."""
    lists, hidden = _lists(registry, trees)
    nodes = [node for tree in trees if tree.group not in hidden for node in tree.nodes]
    saved = tuple(SavedNode(node.path, node.data, lists[node.path]) for node in nodes)
    return Backup("delete-group", " ".join(patterns), now, read_cluster(registry), (), saved), hidden


def _lists(
    registry: Registry, trees: Sequence[GroupTree]
) -> tuple[dict[str, tuple[Acl, ...]], dict[str, ZkgroupError]]:
    """The access list of every node, and which groups have one that is not told whole, with the reason."""
    paths = [(tree.group, node.path) for tree in trees for node in tree.nodes]
    lists: dict[str, tuple[Acl, ...]] = {}
    hidden: dict[str, ZkgroupError] = {}
    for (group, path), result in zip(paths, registry.read([GetAcl(path) for _, path in paths]), strict=True):
        try:
            lists[path] = readable_acl(path, result)
        except RefusedError as refused:
            hidden.setdefault(group, refused)
    return lists, hidden


def delete_debris(registry: Registry, trees: Sequence[GroupTree]) -> dict[str, ZkgroupError | None]:
    """Delete these groups, each only if it is still as it was seen; for each None, or why it was not deleted."""
    return remove_groups(registry, trees)
