"""Recreating what was deleted, on a real ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from guarded_changes import Build, Meddler, P, register, values
from lines import names

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import NotFoundError, UsageError
from zkgroup.groups.changes import backup as backups
from zkgroup.groups.changes.applier import Applier
from zkgroup.groups.changes.backup import Backup, SavedNode, SavedOffset
from zkgroup.groups.changes.group_plans import WholeGroup, plan_group_deletion
from zkgroup.groups.changes.group_tree import GroupTree, read_tree
from zkgroup.groups.changes.node_removals import read_scope
from zkgroup.groups.changes.plan import ZnodeRemoval
from zkgroup.groups.changes.preconditions import GroupActiveError
from zkgroup.groups.changes.undo import deleted_groups, describe_omitted, plan_restore, restore
from zkgroup.groups.changes.znode_deletion import remove_nodes
from zkgroup.groups.group_model import Cluster
from zkgroup.groups.partition_scope import parse_scope
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import Acl, Acls, Create, Ensure, GetAcl

FILE = Path("backup.json")


@pytest.fixture
def saved(registry: Registry, tmp_path: Path) -> Callable[[GroupTree], Backup]:
    """``saved(tree)``: the backup of its removal, written and read."""

    def save(tree: GroupTree) -> Backup:
        applier = Applier(registry, lambda: KafkaSettings("localhost:1"), 1.0)
        made = applier.backup(plan_group_deletion(WholeGroup(tree.group, tree)))
        return backups.read(backups.write(made, tmp_path / "backup.json"))

    return save


def content(tree: GroupTree) -> dict[str, bytes]:
    return {node.path: node.data for node in tree.nodes}


def test_a_deleted_group_comes_back_as_it_was(
    registry: Registry, make_group: Build, saved: Callable[[GroupTree], Backup]
) -> None:
    """Every node with its data and its access list; a second time there is nothing to do."""
    group = make_group({P("t", 0): 5, P("t", 1): 6})
    acl = (Acl("world", "anyone", 31), Acl("digest", "u:h", 1))
    foreign = f"{znodes.group(group)}/foreign"
    registry.write(Create(foreign, b"\xff\x00", acl=acl))
    tree = read_tree(registry, group)
    backup = saved(tree)
    remove_nodes(registry, ZnodeRemoval(tree))
    lost = deleted_groups(backup, None, FILE)
    (row,) = plan_restore(registry, lost)
    assert (row.group, row.action, row.partitions, row.znodes) == (group, "make", 2, 7)
    assert restore(registry, lost) == {group: None}
    assert content(read_tree(registry, group)) == content(tree)
    assert registry.read([GetAcl(foreign)]) == [Acls(acl)]
    assert plan_restore(registry, lost)[0].action == "keep"


def test_what_is_there_by_now_is_left_alone(
    registry: Registry, make_group: Build, saved: Callable[[GroupTree], Backup]
) -> None:
    """Of a topic that was deleted from a group, and that somebody has written again in part."""
    group = make_group({P("t", 0): 5, P("t", 1): 6, P("u", 0): 7})
    tree, roots = read_scope(registry, group, parse_scope(["t"]))
    backup = saved(tree)
    remove_nodes(registry, ZnodeRemoval(tree, roots=roots))
    registry.write(Ensure(znodes.offset_topic(group, "t")))
    registry.write(Create(znodes.offset(group, P("t", 1)), b"66"))
    assert restore(registry, deleted_groups(backup, group, FILE)) == {group: None}
    assert values(registry, group, P("t", 0), P("t", 1), P("u", 0)) == [5, 66, 7]


def test_parents_that_the_backup_has_not_are_made(
    registry: Registry, make_group: Build, saved: Callable[[GroupTree], Backup]
) -> None:
    """A topic's nodes come back even if the whole group has gone since."""
    group = make_group({P("t", 0): 5})
    tree, roots = read_scope(registry, group, parse_scope(["t"]))
    backup = saved(tree)
    remove_nodes(registry, ZnodeRemoval(tree, roots=roots))
    remove_nodes(registry, ZnodeRemoval(read_tree(registry, group)))
    assert restore(registry, deleted_groups(backup, group, FILE)) == {group: None}
    assert values(registry, group, P("t", 0)) == [5]


def test_an_active_group_is_not_restored(
    registry: Registry, second: Registry, make_group: Build, saved: Callable[[GroupTree], Backup]
) -> None:
    """A member that has come, before or after the last snapshot, is named, and nothing is made; others are made all the
    same."""
    groups = [make_group({P("t", 0): 5}) for _ in range(2)]
    trees = [read_tree(registry, group) for group in groups]
    both = saved(GroupTree("both", tuple(node for tree in trees for node in tree.nodes)))
    for tree in trees:
        remove_nodes(registry, ZnodeRemoval(tree))
    with Meddler(registry.settings, lambda n: register(second, groups[0]) if n == 1 else None) as meddler:
        outcome = restore(meddler, deleted_groups(both, None, FILE))
    assert isinstance(outcome[groups[0]], GroupActiveError)
    assert outcome[groups[1]] is None
    assert values(registry, groups[0], P("t", 0)) == [None]
    assert values(registry, groups[1], P("t", 0)) == [5]


@pytest.mark.parametrize(
    "path",
    ["/brokers/ids/1", "/consumers", "/consumers/../brokers", "/consumers//x", "consumers/g", "", "/consumers/g/"],
)
def test_a_backup_cannot_reach_beyond_its_groups(path: str) -> None:
    """A file that was tampered with is refused before a server is asked."""
    backup = Backup("delete-group", "g", 0, Cluster("h:1"), (), (SavedNode(path, b""),))
    with pytest.raises(UsageError):
        deleted_groups(backup, None, FILE)


def test_a_backup_without_the_group() -> None:
    """Nothing of that name in it, or no nodes at all."""
    backup = Backup("delete-group", "g", 0, Cluster("h:1"), (), (SavedNode("/consumers/g", b""),))
    with pytest.raises(NotFoundError, match=r"\bh\b"):
        deleted_groups(backup, "h", FILE)
    with pytest.raises(UsageError) as caught:
        deleted_groups(Backup("reset-offsets", "g", 0, Cluster("h:1"), ()), None, FILE)
    assert caught.value.remedy is None
    saved = SavedOffset("zookeeper", P("t", 0), None, 5)
    with pytest.raises(UsageError) as caught:
        deleted_groups(Backup("reset-offsets", "g", 0, Cluster("h:1"), (saved,)), None, FILE)
    assert caught.value.remedy is not None
    assert caught.value.remedy.commands == (("reset-offsets", "g", "--undo", str(FILE)),)


def test_owners_without_a_session_are_not_restored(registry: Registry, make_group: Build) -> None:
    """A persistent owner node that a deletion has removed is not restored: it would keep the partition from every
    member."""
    group = make_group({P("t", 0): 5})
    owner = znodes.owner(group, P("t", 0))
    registry.write(Ensure(znodes.owner_topic(group, "t")))
    registry.write(Create(owner, b"somebody-0"))
    tree = read_tree(registry, group)
    nodes = tuple(SavedNode(node.path, node.data) for node in tree.nodes)
    backup = Backup("delete-group", group, 0, Cluster("h:1"), (), nodes)
    remove_nodes(registry, ZnodeRemoval(tree))
    assert restore(registry, deleted_groups(backup, None, FILE)) == {group: None}
    there = {node.path for node in read_tree(registry, group).nodes}
    assert there == {node.path for node in tree.nodes} - {owner}
    (message,) = describe_omitted(backup)
    assert names(str(message), 1)
