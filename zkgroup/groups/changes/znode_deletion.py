"""Removing nodes of groups so that nobody loses what is in use.

A node goes only while it is the very one that the plan saw. What is small enough goes in one transaction: all or
nothing, and whatever somebody has added below refuses it, a registration first of all. What is larger goes in pieces,
the deepest nodes first, each with a guard that fails once the group has come alive; if one is refused, what was removed
before is put back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Final, TypeAlias

from zkgroup.clients.zookeeper.registry import Registry, TransactionRefused
from zkgroup.errors import RefusedError, Remedy, UnreachableError, ZkgroupError
from zkgroup.groups.changes.batching import PIECE_BYTES, cost
from zkgroup.groups.changes.change_reports import note
from zkgroup.groups.changes.group_tree import GroupTree, TreeNode, read_tree, read_trees
from zkgroup.groups.changes.preconditions import GroupActiveError, read_guard, readable_acl
from zkgroup.groups.changes.transaction_outcome import Steady
from zkgroup.groups.changes.zookeeper_offset_writer import CREDENTIALS, PATIENCE, not_allowed
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import (
    CHANGED,
    OPEN,
    Acl,
    Code,
    Create,
    Delete,
    Failure,
    GetAcl,
    Node,
    Result,
    Transaction,
)
from zkgroup.text import are, counted, listed

log = logging.getLogger(__name__)

#: Looks whether what is to be removed is in use: raises ``RefusedError``, or returns what makes a transaction fail once
#: it is.
Guarding: TypeAlias = Callable[[Registry], Sequence[Create | Delete]]

_ATTEMPTS: Final = 6
_PROBE: Final = "zkgroup-probe"
#: Groups that are read, and removed, at one go.
BATCH: Final = 250


def remove_tree(
    registry: Registry,
    tree: GroupTree,
    *,
    roots: Sequence[str] | None = None,
    guarding: Guarding | None = None,
    check_after: bool = False,
    permanent: bool = False,
    piece_bytes: int = PIECE_BYTES,
    patience: float = PATIENCE,
) -> int:
    """Remove the nodes of ``tree``, which was read from ``roots`` (the whole group by default); returns how many.

    ``permanent``: the transaction fails for a node that is ephemeral by then, though its version is the same. What is
    gone already is no matter. With ``check_after``, ``guarding`` looks once more when all is done, and if it
    refuses, everything is put back. Raises ``RefusedError`` where the group is alive (``GroupActiveError``), where a
    node has changed or appeared since the plan, and where nodes cannot be read or we may not remove them;
    ``ZkgroupError`` where ZooKeeper went away. Each says what is removed, and what nobody can tell; an interruption
    carries that as a note.
    """
    with ExitStack() as opened:
        return _Removal(registry, tree, roots, guarding, check_after, permanent, piece_bytes, patience, opened).run()


def remove_empty_group(registry: Registry, group: str) -> bool:
    """Remove the nodes of a group in which there is nothing, neither a member nor an offset; returns whether they are
    removed. All of them in one transaction, or none: whoever registers meanwhile, or commits, keeps them."""
    tree = read_tree(registry, group)
    if not tree.nodes or not tree.is_empty:
        return False
    try:
        registry.transaction(_deletions(group, tree.nodes))
    except TransactionRefused as refused:
        log.info("the empty group %s stays: %s", group, refused)
        return False
    return True


def remove_groups(
    registry: Registry, trees: Iterable[GroupTree], patience: float = PATIENCE
) -> dict[str, ZkgroupError | None]:
    """Remove many groups, each wholly or not at all where one transaction suffices. For each group None, or why it was
    not removed: one that is refused does not stop the others. A lost ZooKeeper does: the rest is told as failed, and
    those whose answer was lost as not known. An interruption carries a note of how many are removed."""
    outcome: dict[str, ZkgroupError | None] = {}
    everything = list(trees)
    waiting = everything
    with ExitStack() as opened:
        steady = Steady(registry, patience, opened)
        try:
            while waiting:
                _remove_batch(steady, waiting[:BATCH], outcome)
                waiting = waiting[BATCH:]
        except UnreachableError as error:
            left = UnreachableError("not begun, as ZooKeeper had gone away", error.remedy)
            outcome |= {tree.group: left for tree in everything if tree.group not in outcome}
        except BaseException as stop:
            note(stop, _of_many(steady, everything), "the backup has them all; run it again to go on")
            raise
    return outcome


def _of_many(steady: Steady, trees: Sequence[GroupTree]) -> str:
    """How many of these groups are deleted, after an interruption."""
    try:
        found = steady.read_back([znodes.group(tree.group) for tree in trees], 0.0)
    except ZkgroupError:
        return f"how many of {counted(len(trees), 'group')} are deleted is not known"
    gone = sum(not _is_there(tree.nodes[0], node) for node, tree in zip(found, trees, strict=True))
    return f"{gone} of {counted(len(trees), 'group')} {are(gone)} deleted"


def _remove_batch(steady: Steady, trees: Sequence[GroupTree], outcome: dict[str, ZkgroupError | None]) -> None:
    """Those that are as planned in one go; whatever is unclear one by one, which tells the reason."""
    registry = steady.registry
    now = read_trees(registry, {tree.group: [znodes.group(tree.group)] for tree in trees})
    plain: list[GroupTree] = []
    others: list[GroupTree] = []
    for tree in trees:
        same = [node.identity for node in tree.nodes] == [node.identity for node in now[tree.group].nodes]
        fits = not is_in_pieces(registry, tree.nodes)
        clear = same and fits and tree.nodes and not tree.held and not tree.members and not tree.unreadable
        (plain if clear else others).append(tree)
    lost: list[GroupTree] = []
    try:
        results = registry.read([Transaction(tuple(_deletions(tree.group, tree.nodes))) for tree in plain])
    except UnreachableError:  # the session is over: what was answered before is not known either
        results = [Failure(Code.CONNECTION_LOSS)] * len(plain)
    for tree, result in zip(plain, results, strict=True):
        if isinstance(result, Failure):
            (lost if result.code is Code.CONNECTION_LOSS else others).append(tree)
        else:
            outcome[tree.group] = None
    if lost:
        others += _still_there(steady, lost, outcome)
    for tree in others:
        try:
            remove_tree(steady.registry, tree)
        except UnreachableError as error:
            outcome[tree.group] = error
            raise
        except ZkgroupError as error:
            outcome[tree.group] = error
        else:
            outcome[tree.group] = None


def _still_there(
    steady: Steady, trees: Sequence[GroupTree], outcome: dict[str, ZkgroupError | None]
) -> list[GroupTree]:
    """Which of these groups, whose deletions were not answered, are still there. Raises ``UnreachableError``, with an
    ``outcome`` that says so, where nobody can tell."""
    try:
        found = steady.read_back([znodes.group(tree.group) for tree in trees])
    except UnreachableError as error:
        unknown = UnreachableError(f"{error.message}; whether it is deleted is not known", error.remedy)
        unknown.add_remedy(Remedy("see what is there", ("list-groups",)))
        outcome |= {tree.group: unknown for tree in trees}
        raise
    still = [_is_there(tree.nodes[0], node) for node, tree in zip(found, trees, strict=True)]
    outcome |= {tree.group: None for tree, there in zip(trees, still, strict=True) if not there}
    return [tree for tree, there in zip(trees, still, strict=True) if there]


def _is_there(node: TreeNode, found: Result) -> bool:
    """Whether what was read is the very node, and not one that was made again."""
    return isinstance(found, Node) and found.stat.czxid == node.stat.czxid


def _deletions(group: str, nodes: Iterable[TreeNode]) -> list[Delete]:
    """Children before parents; the group's own node last, and ``ids``, which every registration needs, before it."""
    last = (znodes.ids(group), znodes.group(group))
    ordered = sorted(nodes, key=lambda node: (node.path in last, -node.path.count("/"), node.path))
    return [Delete(node.path, node.stat.version) for node in ordered]


def is_in_pieces(registry: Registry, nodes: Iterable[TreeNode]) -> bool:
    """Whether removing these nodes takes more than one transaction."""
    return _cost(registry, nodes) > PIECE_BYTES


def _cost(registry: Registry, nodes: Iterable[TreeNode | Delete]) -> int:
    return sum(cost(node.path, registry.settings) for node in nodes)


class _Removal:
    def __init__(
        self,
        registry: Registry,
        tree: GroupTree,
        roots: Sequence[str] | None,
        guarding: Guarding | None,
        check_after: bool,
        permanent: bool,
        piece_bytes: int,
        patience: float,
        opened: ExitStack,
    ) -> None:
        self._steady = Steady(registry, patience, opened)
        self._tree = tree
        self._group = tree.group
        self._roots = [znodes.group(tree.group)] if roots is None else list(roots)
        self._guarding: Guarding = guarding or (lambda registry: read_guard(registry, tree.group).operations())
        self._check_after = check_after
        self._permanent = permanent
        self._limit = piece_bytes
        self._guard: list[Create | Delete] = []
        self._made_again: set[str] = set()  # by our own guards
        self._removed: dict[str, TreeNode] = {}
        self._under_way: Sequence[TreeNode] = ()
        self._acls: dict[str, tuple[Acl, ...]] = {}
        self._attempts = 0

    def run(self) -> int:
        try:
            # Once all is gone nobody looks again: whoever comes then makes a group of his own.
            while (now := self._look()).nodes and not self._piece(now):
                pass
            if self._check_after:
                self._guarding(self._steady.registry)
        except ZkgroupError as error:
            if self._removed and not self._under_way and not isinstance(error, UnreachableError):
                error.message += f"; {self._put_back()}"
            else:
                error.message += f"; {self._told()}"
                error.add_remedy(self._way_on())
            raise
        except BaseException as stop:
            note(stop, self._told(), self._way_on())
            raise
        return len(self._removed)

    def _told(self) -> str:
        """What is removed, as far as that is known."""
        if not self._removed and not self._under_way:
            return "nothing was removed"
        parts = []
        if count := len(self._removed):
            parts.append(f"{counted(count, 'node')} {are(count)} removed")
        if count := len(self._under_way):
            those = f"{counted(count, 'node')} ({listed([node.path for node in self._under_way])}) {are(count)}"
            parts.append(f"whether {those} removed is not known")
        if (left := len(self._tree.nodes) - len(self._removed) - len(self._under_way)) > 0:
            parts.append(f"{left} {are(left)} not")
        return ", ".join(parts)

    def _way_on(self) -> Remedy | None:
        if not self._removed and not self._under_way:
            return None
        go_on = Remedy("the backup has them; run it again to go on, and keep the backups of all runs")
        look = Remedy("once it can be reached, see what is there", ("list-groups",))
        return go_on.then(look, "; ") if self._under_way else go_on

    def _look(self) -> GroupTree:
        """What is still there. Raises where it is in use, or not what was planned with."""
        now = read_tree(self._steady.registry, self._group, self._roots)
        planned = {node.path: node.identity for node in self._tree.nodes}
        strange = [
            node.path
            for node in now.nodes
            if planned.get(node.path) != node.identity and node.path not in self._made_again
        ]
        if now.nodes:
            self._guard = list(self._guarding(self._steady.registry))
        if now.unreadable:
            raise RefusedError(f"nodes of group {self._group} cannot be read: {listed(now.unreadable)}", CREDENTIALS)
        if held := now.held:
            raise RefusedError(f"group {self._group} is in use: somebody holds {listed(held)}", "find out who that is")
        if strange:
            raise RefusedError(
                f"nodes of group {self._group} have changed since the plan was made: {listed(strange)}",
                "find out who works for the group, then plan again",
            )
        return now

    def _piece(self, now: GroupTree) -> bool:
        """One transaction, of all that is left or as much of it as one takes; whether nothing is left now."""
        nodes = {node.path: node for node in now.nodes}
        deletions = _deletions(self._group, now.nodes)
        whole = self._cost(deletions) <= self._limit
        if not whole:
            deletions = self._as_much_as_fits(deletions)
        if not whole or self._check_after:
            self._remember_acls(deletions)
        # With the whole group goes ids itself, and the group's node, below which nothing may have come.
        guard = [] if whole and znodes.group(self._group) in nodes else self._guard
        going = [nodes[deletion.path] for deletion in deletions]
        if self._permanent:  # only such a node can have children
            probes = [f"{node.path}/{_PROBE}" for node in going]
            guard = [*guard, *(one for path in probes for one in (Create(path), Delete(path)))]
        try:
            self._under_way = going
            self._steady.registry.transaction([*guard, *deletions])
            self._settle(going)  # in here: a signal may come between any two steps
        except TransactionRefused as refused:
            self._under_way = ()
            if refused.failure.code not in CHANGED:
                raise not_allowed(f"cannot remove {refused.path}", refused.failure) from None
            self._count(ZkgroupError(f"{refused.message}, again and again", "find out who changes the group"))
            return False
        except UnreachableError as lost:
            if not self._is_gone(going[0]):
                self._under_way = ()
                self._limit = max(1, self._limit // 2)
                self._count(lost)
                return False
            self._settle(going)
        except ZkgroupError:
            raise
        except BaseException:  # interrupted: the answer is on its way, and what it is decides what is told
            with suppress(ZkgroupError):
                if self._is_gone(going[0], patience=0.0):
                    self._settle(going)
                self._under_way = ()
            raise
        self._attempts = 0
        self._made_again |= {operation.path for operation in guard if isinstance(operation, Create)}
        log.info("group %s: %d nodes removed", self._group, len(self._removed))
        return whole

    def _settle(self, gone: Iterable[TreeNode]) -> None:
        self._removed |= {node.path: node for node in gone}
        self._under_way = ()

    def _is_gone(self, node: TreeNode, patience: float | None = None) -> bool:
        """Find out whether a transaction that removes ``node``, and whose answer was lost, was applied."""
        (there,) = self._steady.read_back([node.path], patience)
        if isinstance(there, Failure) and there.code is not Code.NO_NODE:
            raise not_allowed(f"cannot read {node.path}", there)
        return not _is_there(node, there)

    def _as_much_as_fits(self, deletions: Sequence[Delete]) -> list[Delete]:
        kept: list[Delete] = []
        size = 0
        for deletion in deletions:
            size += self._cost([deletion])
            if kept and (size > self._limit or deletion.path == znodes.ids(self._group)):
                break
            kept.append(deletion)
        return kept

    def _cost(self, deletions: Sequence[Delete]) -> int:
        return _cost(self._steady.registry, deletions) * (3 if self._permanent else 1)

    def _remember_acls(self, deletions: Sequence[Delete]) -> None:
        paths = [deletion.path for deletion in deletions]
        results = self._steady.registry.read([GetAcl(path) for path in paths])
        self._acls |= {path: readable_acl(path, result) for path, result in zip(paths, results, strict=True)}

    def _count(self, last: ZkgroupError) -> None:
        self._attempts += 1
        if self._attempts >= _ATTEMPTS:
            raise last

    def _put_back(self) -> str:
        """Make again what was removed, where nobody has made it meanwhile; says what came of it."""
        nodes = sorted(self._removed.values(), key=lambda node: node.path.count("/"))
        creates = [Create(node.path, node.data, acl=self._acls.get(node.path, OPEN)) for node in nodes]
        try:
            results = self._steady.registry.read(creates)
        except UnreachableError as error:
            return f"{len(nodes)} nodes were removed before, and could not be put back ({error.message})"
        failed = [
            create.path
            for create, result in zip(creates, results, strict=True)
            if isinstance(result, Failure) and result.code is not Code.NODE_EXISTS
        ]
        if failed:
            return f"{len(nodes)} nodes were removed before, of which {listed(failed)} could not be put back"
        return f"what had been removed before, {len(nodes)} nodes, was put back"


def acls_of(registry: Registry, nodes: Sequence[TreeNode]) -> Mapping[str, tuple[Acl, ...]]:
    """The nodes' access lists, for a backup. Raises ``RefusedError`` where one is not told whole."""
    results = registry.read([GetAcl(node.path) for node in nodes])
    return {node.path: readable_acl(node.path, result) for node, result in zip(nodes, results, strict=True)}


__all__ = [
    "BATCH",
    "GroupActiveError",
    "Guarding",
    "acls_of",
    "is_in_pieces",
    "remove_empty_group",
    "remove_groups",
    "remove_tree",
]
