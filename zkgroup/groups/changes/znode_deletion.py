"""Removing nodes of groups, but none that is in use.

A node goes only while it is the very one that the plan saw. A small group goes in one transaction: all or nothing, and
any new node below refuses it, a registration first of all. A larger one goes in pieces, the deepest nodes first, each
with a guard that fails once the group has become active; if one is refused, the nodes of earlier pieces are restored.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final

from zkgroup.clients.zookeeper.registry import Registry, TransactionRefusedError
from zkgroup.errors import RefusedError, Remedy, UnreachableError, ZkgroupError
from zkgroup.groups.changes.change_reports import note
from zkgroup.groups.changes.group_tree import GroupTree, TreeNode, read_tree, read_trees, require_acls
from zkgroup.groups.changes.plan import StalePlanError, ZnodeRemoval
from zkgroup.groups.changes.preconditions import read_inactive_group
from zkgroup.groups.changes.znode_transactions import (
    MAX_TRANSACTION_BYTES,
    TransactionSeries,
    change_groups,
    cost,
    first_batch,
)
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import OPEN, Acl, Code, Create, Delete, Failure, Node, Transaction
from zkgroup.text import are, counted, listed

log = logging.getLogger(__name__)

_PROBE: Final = "zkgroup-probe"


def remove_nodes(registry: Registry, removal: ZnodeRemoval) -> int:
    """Remove the nodes; returns how many. A node that is gone already is no error.

    Raises ``RefusedError`` where the group is active (``GroupActiveError``), where a node has changed or appeared since
    the plan, and where nodes cannot be read or we may not remove them; ``ZkgroupError`` where ZooKeeper went away. Each
    says what is removed, and what is not known; an interruption carries that as a note.
    """
    with ExitStack() as opened:
        return _Removal(registry, opened, removal).run()


def remove_empty_group(registry: Registry, group: str) -> bool:
    """Remove the nodes of a group in which there is nothing, neither a member nor an offset; returns whether they are
    removed. All of them in one transaction, or none: a registration or a commit meanwhile keeps them."""
    tree = read_tree(registry, group)
    if not tree.nodes or not tree.is_empty:
        return False
    try:
        registry.transaction(_deletions(group, tree.nodes))
    except TransactionRefusedError as refused:
        log.info("the empty group %s stays: %s", group, refused)
        return False
    return True


def remove_groups(registry: Registry, trees: Iterable[GroupTree]) -> dict[str, ZkgroupError | None]:
    """Remove many groups, each wholly or not at all where one transaction suffices: ``change_groups``."""
    planned = {tree.group: tree for tree in trees}
    changes = {group: partial(_Removal, removal=ZnodeRemoval(tree)) for group, tree in planned.items()}
    return change_groups(registry, changes, "deleted", partial(_remove_unchanged, planned))


def _remove_unchanged(
    planned: Mapping[str, GroupTree], registry: Registry, groups: Sequence[str]
) -> tuple[list[str], bool]:
    """Remove those that are as planned, each in a transaction; what is unclear of others their own removal says."""
    now = read_trees(registry, {group: [znodes.group(group)] for group in groups})
    plain = [
        tree
        for tree in map(planned.__getitem__, groups)
        if tree.nodes
        and [node.identity for node in tree.nodes] == [node.identity for node in now[tree.group].nodes]
        and not (tree.live_owners or tree.members or tree.unreadable)
        and sum(cost(node.path, registry.settings) for node in tree.nodes) <= MAX_TRANSACTION_BYTES
    ]
    results = registry.read([Transaction(tuple(_deletions(tree.group, tree.nodes))) for tree in plain])
    is_in_doubt = any(isinstance(one, Failure) and one.code is Code.CONNECTION_LOSS for one in results)
    return [
        one.group for one, result in zip(plain, results, strict=True) if not isinstance(result, Failure)
    ], is_in_doubt


def _deletions(group: str, nodes: Iterable[TreeNode]) -> list[Delete]:
    """Children before parents; the group's own node last, and ``ids``, which every registration needs, before it."""
    last = (znodes.ids(group), znodes.group(group))
    ordered = sorted(nodes, key=lambda node: (node.path in last, -node.path.count("/"), node.path))
    return [Delete(node.path, node.stat.version) for node in ordered]


class _Removal(TransactionSeries[TreeNode]):
    verb = "remove"

    def __init__(self, registry: Registry, opened: ExitStack, removal: ZnodeRemoval) -> None:
        super().__init__(registry, opened)
        self._removal = removal
        self._group = removal.tree.group
        self._roots = [znodes.group(self._group)] if removal.roots is None else list(removal.roots)
        self._guarding = removal.guarding or (lambda registry: read_inactive_group(registry, self._group))
        self._guard: list[Create | Delete] = []
        self._recreated: set[str] = set()  # by our own guards
        self._removed: dict[str, TreeNode] = {}
        self._acls: dict[str, tuple[Acl, ...]] = {}

    def run(self) -> int:
        try:
            # Once all is gone nothing is read again: a member that comes then makes a group of its own.
            while (now := self._read()).nodes and not self._piece(now):
                pass
            if self._removal.check_after:
                self._guarding(self.registry)
        except ZkgroupError as error:
            if self._removed and not self._under_way and not isinstance(error, UnreachableError):
                error.add_outcome(self._put_back())
            else:
                error.add_outcome(self._describe())
                error.add_remedy(self._how_to_go_on())
            raise
        except BaseException as stop:
            note(stop, self._describe(), self._how_to_go_on())
            raise
        return len(self._removed)

    def _describe(self) -> str:
        """What is removed, as far as that is known."""
        if not self._removed and not self._under_way:
            return "nothing was removed"
        parts = []
        if count := len(self._removed):
            parts.append(f"{counted(count, 'node')} {are(count)} removed")
        if count := len(self._under_way):
            those = f"{counted(count, 'node')} ({listed([node.path for node in self._under_way])}) {are(count)}"
            parts.append(f"whether {those} removed is not known")
        if (left := len(self._removal.tree.nodes) - len(self._removed) - len(self._under_way)) > 0:
            parts.append(f"{left} {are(left)} not")
        return ", ".join(parts)

    def _how_to_go_on(self) -> Remedy | None:
        if not self._removed and not self._under_way:
            return None
        return Remedy("run it again to go on, and keep the backups of all runs; see what is there", ("list-groups",))

    def _read(self) -> GroupTree:
        """What is still there. Raises where it is in use, or not what was planned with."""
        now = read_tree(self.registry, self._group, self._roots)
        planned = {node.path: node.identity for node in self._removal.tree.nodes}
        changed = [
            node.path
            for node in now.nodes
            if planned.get(node.path) != node.identity and node.path not in self._recreated
        ]
        if now.nodes:
            self._guard = list(self._guarding(self.registry))
        now.require_readable()
        if live_owners := now.live_owners:
            raise RefusedError(
                f"group {self._group} is in use: a session owns {listed(live_owners)}", "stop that client"
            )
        if changed:
            raise StalePlanError(
                f"nodes of group {self._group} have changed since the plan was made: {listed(changed)}",
                "find the client that changes them, then plan again",
            )
        return now

    def _piece(self, now: GroupTree) -> bool:
        """One transaction, of all that is left or as much of it as one takes; whether nothing is left now."""
        nodes = {node.path: node for node in now.nodes}
        deletions = _deletions(self._group, now.nodes)
        whole = sum(map(self._cost, deletions)) <= self._limit
        if not whole:  # ids, which every registration needs, goes with the last ones
            last = (znodes.ids(self._group), znodes.group(self._group))
            others = [deletion for deletion in deletions if deletion.path not in last]
            deletions = first_batch(others or deletions, self._cost, self._limit)
        if not whole or self._removal.check_after:
            self._acls |= require_acls(self.registry, (deletion.path for deletion in deletions))
        # With the whole group goes ids itself, and the group's node, below which nothing may have come.
        guard = [] if whole and znodes.group(self._group) in nodes else self._guard
        going = [nodes[deletion.path] for deletion in deletions]
        if self._removal.permanent:  # only such a node can have children
            probes = [f"{node.path}/{_PROBE}" for node in going]
            guard = [*guard, *(one for path in probes for one in (Create(path), Delete(path)))]
        if not self._apply([*guard, *deletions], going):
            return False
        self._recreated |= {operation.path for operation in guard if isinstance(operation, Create)}
        return whole

    def _settle(self, items: Collection[TreeNode]) -> None:
        self._removed |= {node.path: node for node in items}
        super()._settle(items)

    def _was_applied(self, items: Collection[TreeNode]) -> bool:
        node = next(iter(items))
        (there,) = self.read_back([node.path])
        if isinstance(there, Node):
            return there.stat.czxid != node.stat.czxid  # it was recreated since
        return isinstance(there, Failure) and there.code is Code.NO_NODE

    def _cost(self, deletion: Delete) -> int:
        return cost(deletion.path, self.registry.settings) * (3 if self._removal.permanent else 1)

    def _put_back(self) -> str:
        """Restore the removed nodes that are still missing; returns the outcome as text."""
        nodes = sorted(self._removed.values(), key=lambda node: node.path.count("/"))
        creates = [Create(node.path, node.data, acl=self._acls.get(node.path, OPEN)) for node in nodes]
        try:
            results = self.registry.read(creates)
        except UnreachableError as error:
            return f"{len(nodes)} nodes were removed before, and could not be restored ({error.message})"
        failed = [
            create.path
            for create, result in zip(creates, results, strict=True)
            if isinstance(result, Failure) and result.code is not Code.NODE_EXISTS
        ]
        if failed:
            return f"{len(nodes)} nodes were removed before, of which {listed(failed)} could not be restored"
        return f"{len(nodes)} nodes that were removed before are restored"
