"""Writing a group's offsets to ZooKeeper: each transaction is applied wholly or not at all, and compares versions.

An offset is written only while its node is the very one that the plan saw: same version and same ``mzxid`` in a read
just before (a node that was deleted and recreated has version 0 again), and the same version in the transaction. Every
transaction also fails once a member has registered (``preconditions``). Nodes that are missing above an offset are made
in the same transaction: a refusal leaves nothing behind.

A transaction is as large as a request to ZooKeeper may be; more partitions go in pieces, one after the other. An error
in a piece stops the rest. The same writes can be given again: an offset that has its target already is done.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TypeAlias

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.groups.changes.change_reports import Reporter, WriteReport, refuse_changed, reported
from zkgroup.groups.changes.group_tree import readable_acl
from zkgroup.groups.changes.plan import GO_ON, OffsetChange
from zkgroup.groups.changes.preconditions import read_inactive_group
from zkgroup.groups.changes.znode_transactions import TransactionSeries, cost, first_batch, not_allowed
from zkgroup.groups.snapshot.group_znodes import stored_offset
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import (
    OPEN,
    Acl,
    Code,
    Create,
    Delete,
    Failure,
    Get,
    GetAcl,
    Node,
    Result,
    SetData,
)

_Change: TypeAlias = Create | SetData | Delete


def write_offsets(
    registry: Registry,
    group: str,
    writes: Sequence[OffsetChange],
    *,
    go_on: str = GO_ON,
    acls: Mapping[str, tuple[Acl, ...]] | None = None,
) -> WriteReport:
    """Write all of ``writes`` (each partition once).

    Everything is read before anything is written. ``go_on``: the remedy where only a part is written. ``acls``: the
    access lists of nodes that are to be made, where they are not as that of the node above.

    The report has no ``unwritten`` where this returns. Raises ``RefusedError`` (the group is active, a node has changed
    since the plan, we may not change it) and ``UnreachableError``, both with the report so far; offsets of unknown
    outcome are ``doubtful``. An interruption carries it as a note.
    """
    with ExitStack() as opened:
        writing = _ZooKeeperOffsetWriting(registry, opened, group, writes, go_on, acls or {})
        with reported(writing):
            return writing.run()


class _ZooKeeperOffsetWriting(Reporter, TransactionSeries[TopicPartition]):
    """As read just before a piece, ``_guard`` fails once the group is active, ``_nodes`` are those that the transaction
    is based on, ``_acls_above`` the access lists of nodes above offsets that are to be created."""

    verb = "change"

    def __init__(
        self,
        registry: Registry,
        opened: ExitStack,
        group: str,
        writes: Sequence[OffsetChange],
        go_on: str,
        acls: Mapping[str, tuple[Acl, ...]],
    ) -> None:
        super().__init__(registry, opened)
        self.group = group
        self.go_on = go_on
        self.acls = acls
        # In their order, so that a piece is described in few words.
        self._todo: dict[TopicPartition, OffsetChange] = {
            write.key: write for write in sorted(writes, key=lambda write: write.key)
        }
        self._paths = znodes.offset_paths(group, self._todo)
        self._written: dict[TopicPartition, None] = {}
        self._guard: Sequence[_Change] = ()
        self._nodes: Mapping[TopicPartition, Node | None] = {}
        self._acls_above: Mapping[str, Result] = {}

    def run(self) -> WriteReport:
        """Piece by piece, until nothing is left."""
        self._read(list(self._todo.values()))
        is_read = True
        while self._todo:
            piece = self._cut()
            if not is_read:
                self._read(piece)
            if piece := [write for write in piece if write.key in self._todo]:
                # It may have to be tried again: then the piece is still to do.
                self._apply(self._operations(piece), {write.key: None for write in piece})
            is_read = False
        return self.report()

    # --- reading ----------------------------------------------------------------------------------------------------

    def _read(self, writes: Sequence[OffsetChange]) -> None:
        """Read the nodes that these writes depend on; an offset with its target is done. Raises if one has changed."""
        self._guard = read_inactive_group(self.registry, self.group)
        offsets = [Get(self._paths[write.key]) for write in writes]
        results = self.registry.read(offsets)
        nodes = {write.key: _node(op.path, node) for write, op, node in zip(writes, offsets, results, strict=True)}
        self._nodes = nodes
        changed = []
        for write in writes:
            node = nodes[write.key]
            if _is_done(write, node):
                del self._todo[write.key]
            elif not _is_as_seen(write, node):
                changed.append((write.key, write.current, _value(node)[0]))
        refuse_changed(self.group, changed)
        left = [write for write in writes if write.key in self._todo]
        topics = sorted({w.topic for w in left if w.data is not None and nodes[w.key] is None})
        above = [GetAcl(path) for path in self._above(topics)]
        self._acls_above = {op.path: result for op, result in zip(above, self.registry.read(above), strict=True)}

    def _above(self, topics: Sequence[str]) -> list[str]:
        """The nodes above these topics' offsets, from the top."""
        if not topics:
            return []
        fixed = [znodes.consumers(), znodes.group(self.group), znodes.offsets(self.group)]
        return fixed + [znodes.offset_topic(self.group, topic) for topic in topics]

    # --- writing ----------------------------------------------------------------------------------------------------

    def _cut(self) -> list[OffsetChange]:
        """The first of the offsets that are left, as many as one transaction takes."""
        settings, topics = self.registry.settings, set[str]()

        def bytes_of(key: TopicPartition) -> int:
            path = self._paths[key]
            times = 1 if key.topic in topics else 2  # the topic's node may have to be made, too
            topics.add(key.topic)
            return times * cost(path, settings, self.acls.get(path, settings.acl or ()))

        return [self._todo[key] for key in first_batch(self._todo, bytes_of, self._limit)]

    def _settle(self, items: Collection[TopicPartition]) -> None:
        for key in items:
            self._written[key] = None
            self._todo.pop(key, None)
        super()._settle(items)

    def _operations(self, piece: Sequence[OffsetChange]) -> list[_Change]:
        operations = [*self._parents(piece), *self._guard]
        for write in piece:
            path, node = self._paths[write.key], self._nodes[write.key]
            if write.data is None:
                operations.append(Delete(path, -1 if node is None else node.stat.version))
            elif node is None:
                operations.append(Create(path, write.data, acl=self._inherited(path)))
            else:
                operations.append(SetData(path, write.data, node.stat.version))
        return operations

    def _parents(self, piece: Sequence[OffsetChange]) -> Iterator[_Change]:
        new = (w.topic for w in piece if w.data is not None and self._nodes[w.key] is None)
        for path in self._above(sorted(set(new))):
            if path not in self._acls_above or _is_missing(self._acls_above[path]):
                yield Create(path, acl=self._inherited(path))

    def _inherited(self, path: str) -> tuple[Acl, ...]:
        """The access list for a new node at ``path``: its own, else the one that was asked for, else that of the
        nearest node of the group above. The group's own node is then open, as the Scala consumer makes it."""
        if path not in self.acls and (wanted := self.registry.settings.acl) is not None:
            return wanted
        while path.startswith(znodes.group(self.group)):
            if path in self.acls:
                return self.acls[path]
            result = self._acls_above.get(path)
            if result is not None and not _is_missing(result):
                return readable_acl(path, result)
            path = path.rpartition("/")[0]
        return OPEN

    # --- after a lost connection ------------------------------------------------------------------------------------

    def _was_applied(self, items: Collection[TopicPartition]) -> bool:
        paths = [self._paths[key] for key in items]
        results = self.read_back(paths)
        nodes = {key: _node(path, result) for key, path, result in zip(items, paths, results, strict=True)}
        # All or nothing: one node that is untouched is enough to know.
        if any(_is_same(self._nodes[key], node) for key, node in nodes.items()):
            return False
        return any(self._is_ours(self._todo[key], node) for key, node in nodes.items() if key in self._todo)

    def _is_ours(self, write: OffsetChange, node: Node | None) -> bool:
        before = self._nodes[write.key]
        if node is None or write.data is None:
            return node is None and write.data is None
        version = 0 if before is None else before.stat.version + 1
        return node.data == write.data and node.stat.version == version


def _node(path: str, result: Result) -> Node | None:
    if isinstance(result, Failure) and result.code is not Code.NO_NODE:
        raise not_allowed(f"cannot read {path}", result)
    return result if isinstance(result, Node) else None


def _value(node: Node | None) -> tuple[int | None, bool]:
    """The offset in the node, None without one; and whether it is certain, unlike in an unreadable node."""
    if node is None:
        return None, True
    found = stored_offset(node)
    return found.offset, found.offset is not None and found.defect is None


def _is_done(write: OffsetChange, node: Node | None) -> bool:
    if write.raw is not None:
        return node is not None and node.data == write.raw
    return _value(node) == (write.target, True)


def _is_missing(result: Result) -> bool:
    return isinstance(result, Failure) and result.code is Code.NO_NODE


def _is_same(before: Node | None, after: Node | None) -> bool:
    if before is None or after is None:
        return before is after
    return (before.stat.mzxid, before.stat.version) == (after.stat.mzxid, after.stat.version)


def _is_as_seen(write: OffsetChange, node: Node | None) -> bool:
    if node is None or write.stored is None:
        return node is None and write.stored is None
    return (node.stat.version, node.stat.mzxid) == (write.stored.version, write.stored.mzxid)
