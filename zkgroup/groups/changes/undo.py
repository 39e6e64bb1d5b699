"""Undoing a change from its backup: offsets get back, byte by byte, what they were; missing nodes are created, and none
is changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import NotFoundError, Notice, RefusedError, Remedy, UsageError, ZkgroupError
from zkgroup.groups.changes import backup as backups
from zkgroup.groups.changes.applier import Applier
from zkgroup.groups.changes.backup import RELEASE_OWNERS, Backup, SavedNode, SavedOffset, group_of
from zkgroup.groups.changes.change_reports import after
from zkgroup.groups.changes.current_offsets import OffsetReader, offset_in
from zkgroup.groups.changes.group_tree import GroupTree, read_tree, read_trees
from zkgroup.groups.changes.inactive_groups import CandidateGroup
from zkgroup.groups.changes.plan import GO_ON, OffsetChange, Plan
from zkgroup.groups.changes.preconditions import read_inactive_group
from zkgroup.groups.changes.reset_plan import plan_of, warn_of_new_group, with_times
from zkgroup.groups.changes.znode_transactions import TransactionSeries, change_groups, cost, first_batch
from zkgroup.groups.group_model import STORE_NAMES, GroupPartition, Store, StoredOffset, stores_of
from zkgroup.groups.partition_scope import Scope, Selection
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition, spans
from zkgroup.protocol.operations import Create, Ensure, Node
from zkgroup.text import are, counted, group_command, listed

# --- offsets --------------------------------------------------------------------------------------------------------


def plan_group_undo(
    applier: Applier,
    group: str,
    path: Path,
    scope: Scope | None = None,
    store: Store | None = None,
) -> Plan:
    """The plan that restores a backup, or only what of it is in ``scope`` and ``store``.

    Raises ``UsageError`` for a file that is no backup, ``RefusedError`` for one of another group or cluster.
    """
    backup = backups.read(path)
    restoring = Remedy("see what restores them", group_command("delete-group", group, "--undo", str(path)))
    if backup.nodes and not backup.offsets:
        raise UsageError(f"{path} has nodes, and no offsets by themselves", restoring)
    backups.check_fits(backup, applier.cluster(), group, path)
    offsets = [
        offset
        for offset in backup.offsets
        if (store is None or offset.store in stores_of(store)) and (scope is None or scope.has(offset.partition))
    ]
    if not offsets:
        raise UsageError(f"{path} has no offsets in this scope", "check --topic and --store")
    kept = {offset.store for offset in offsets}
    current = OffsetReader(applier, group).read(
        Selection(listed=frozenset(offset.partition for offset in offsets), gone=True),
        "both" if len(kept) > 1 else next(iter(kept)),
        needs_logs=False,
    )
    rows = with_times(applier, plan_undo(offsets, current.partitions), current.partitions)
    warnings: list[Notice] = [*current.snapshot.all_warnings, *warn_of_new_group(current.snapshot, rows)]
    if backup.nodes:
        nodes = counted(len(backup.nodes), "node")
        warnings.append(Notice(f"{path} also has {nodes}, and only offsets are put back", restoring))
    refusals: tuple[RefusedError, ...] = ()
    if moved := find_moved(offsets, current.partitions):
        message = f"offsets have moved since {path} was written: {listed(moved)}"
        remedy = "undo the others with --topic, and set these with --to-offset if they are to be set"
        refusals = (RefusedError(message, remedy),)
    above = {znodes.group(group), znodes.offsets(group)}
    below = znodes.offsets(group) + "/"
    acls = {node.path: node.acl for node in backup.nodes if node.path in above or node.path.startswith(below)}
    plan = plan_of(current, rows)
    return replace(plan, warnings=tuple(warnings), refusals=refusals, acls=acls)


def plan_undo(
    undos: Sequence[SavedOffset],
    partitions: Mapping[TopicPartition, GroupPartition],
) -> tuple[OffsetChange, ...]:
    """Rows that restore a backup, in range or not, byte by byte; ``find_moved`` finds conflicts."""
    rows = []
    for undo in sorted(undos, key=lambda one: (one.partition, one.store != "zookeeper")):
        partition = partitions.get(undo.partition, GroupPartition(*undo.partition))
        seen = offset_in(partition, undo.store)
        current, error = (None, None) if seen is None else (seen.offset, seen.error)
        notes = [f"the offset is unreadable: {error}"] if error else []
        there = seen.data if isinstance(seen, StoredOffset) else None
        row = OffsetChange(undo.store, *undo.partition, current, undo.before, seen=seen, raw=undo.raw)
        done = there == undo.raw if there is not None else current == undo.before and not error and undo.raw is None
        if done:
            notes.append("is as it was before")
            row = replace(row, target=current, raw=None, stays=True)
        elif undo.raw is not None:
            notes.append("byte by byte as it was")
        elif undo.before is None and undo.store == "kafka":
            notes.append("had no offset; Kafka cannot forget a single one: left as it is")
            row = replace(row, target=current, problem="left", stays=True)
        elif undo.before is None:
            notes.append("had no offset: it is deleted")
        elif why := partition.why_outside(undo.before):
            notes.append(why)
        rows.append(replace(row, note="; ".join(notes) or None, metadata=undo.metadata))
    return tuple(rows)


def find_moved(
    undos: Sequence[SavedOffset],
    partitions: Mapping[TopicPartition, GroupPartition],
) -> list[str]:
    """The offsets that are neither what a backup's reset wrote nor the backup's, in words."""
    found = []
    for undo in undos:
        seen = offset_in(partitions.get(undo.partition, GroupPartition(*undo.partition)), undo.store)
        there = seen.data if isinstance(seen, StoredOffset) else None
        ours = None if undo.before is None and undo.raw is None else undo.written_raw
        if there is not None and there in (undo.raw, ours):
            continue
        current, error = (None, None) if seen is None else (seen.offset, seen.error)
        if error or current not in (undo.before, undo.written):
            shown = "unreadable" if error else "none" if current is None else str(current)
            wrote = "none" if undo.written is None else undo.written
            found.append(f"{undo.partition} is {shown} in {STORE_NAMES[undo.store]}, where {wrote} was written")
    return found


def describe_unrestored(group: str, rows: Iterable[OffsetChange]) -> str | None:
    """The offsets that an undo cannot restore, as text; None where there are none."""
    left = [row.key for row in rows if row.problem == "left"]
    if not left:
        return None
    kept = f"Kafka keeps {spans(left)}, where it had none, and cannot forget single offsets"
    return f"{counted(len(left), 'offset')} of group {group} {are(len(left))} not as before: {kept}"


# --- nodes --------------------------------------------------------------------------------------------------------

_OWNER_DEPTH: Final = 5  # slashes in /consumers/G/owners/T/P


def deleted_groups(backup: Backup, group: str | None, path: Path) -> dict[str, list[SavedNode]]:
    """The nodes that the backup has of each group, or only of ``group``, parents first.

    Raises ``UsageError`` where it has no nodes, or one that lies outside its group; ``NotFoundError`` where it has
    nothing of the group.
    """
    found: dict[str, list[SavedNode]] = {}
    for node in backup.nodes:
        if not _is_omitted(backup, node):
            found.setdefault(group_of(node.path), []).append(node)
    if not found:
        undo = Remedy("put its offsets back", group_command("reset-offsets", backup.group, "--undo", str(path)))
        raise UsageError(f"{path} has no nodes to restore", undo if backup.offsets else None)
    if group is not None and group not in found:
        raise NotFoundError(f"{path} has nothing of group {group}", f"name one of its {len(found)} groups")
    return {
        name: sorted(nodes, key=lambda node: (node.path.count("/"), node.path))
        for name, nodes in sorted(found.items())
        if group in (None, name)
    }


def describe_omitted(backup: Backup) -> list[Notice]:
    """A warning of owner nodes that are not restored: without a session they would keep their partitions from all
    members."""
    count = sum(_is_omitted(backup, node) for node in backup.nodes)
    those = "without a session, which would keep their partitions from all members"
    return [Notice(f"{counted(count, 'owner node')} of the backup {those}: not restored")] if count else []


def _is_omitted(backup: Backup, node: SavedNode) -> bool:
    if backup.command == RELEASE_OWNERS:
        return False
    return node.path.startswith(f"{znodes.owners(group_of(node.path))}/") and node.path.count("/") >= _OWNER_DEPTH


def plan_restore(registry: Registry, lost: Mapping[str, Sequence[SavedNode]]) -> list[CandidateGroup]:
    """A row for each group, with the number of nodes that are missing."""
    trees = read_trees(registry, {group: [znodes.group(group)] for group in lost})
    return [_row(nodes, trees[group]) for group, nodes in lost.items()]


def _row(lost: Sequence[SavedNode], tree: GroupTree) -> CandidateGroup:
    missing = len({node.path for node in lost} - {node.path for node in tree.nodes})
    active = bool(tree.members or tree.live_owners)
    offsets = znodes.offsets(tree.group) + "/"
    note = None
    if not missing:
        note = "is there already"
    elif tree.nodes:
        note = "is there in part: only missing nodes are made"
    return CandidateGroup(
        tree.group,
        "active" if active else "broken" if tree.unreadable else "inactive",
        len(tree.members),
        sum(node.path.startswith(offsets) and node.path.count("/") == 5 for node in lost),
        missing,
        tree.last_change,
        "make" if missing else "keep",
        note,
    )


def restore(registry: Registry, lost: Mapping[str, Sequence[SavedNode]]) -> dict[str, ZkgroupError | None]:
    """Create missing nodes: ``change_groups``."""
    changes = {group: partial(_Restoration, group=group, lost=nodes) for group, nodes in lost.items()}
    return change_groups(registry, changes, "restored")


class _Restoration(TransactionSeries[Create]):
    """Creates one group's nodes, in transactions that are refused once the group is active."""

    verb = "create"

    def __init__(self, registry: Registry, opened: ExitStack, group: str, lost: Sequence[SavedNode]) -> None:
        super().__init__(registry, opened)
        self._group = group
        self._lost = lost

    def run(self) -> None:
        while True:
            guard = read_inactive_group(self.registry, self._group, settled=False)
            there = set(read_tree(self.registry, self._group).paths)
            if not there:
                self.registry.write(Ensure(znodes.consumers()))
            creates = [create for create in _creations(self._lost) if create.path not in there]
            if not creates:
                return
            batch = first_batch(creates, self._cost, self._limit)
            if self._apply([*guard, *batch], batch) and len(batch) == len(creates):
                return

    def _cost(self, create: Create) -> int:
        settings = self.registry.settings
        return cost(create.path, settings, create.acl or settings.acl or ()) + len(create.data)

    def _was_applied(self, items: Collection[Create]) -> bool:
        with after(f"whether {counted(len(items), 'node')} are made is not known", GO_ON):
            (first,) = self.read_back([next(iter(items)).path])
        return isinstance(first, Node)


def _creations(lost: Sequence[SavedNode]) -> list[Create]:
    """Parents first; those that the backup has not, as it is of some topics only, are made as members make them."""
    found = {node.path: Create(node.path, node.data, acl=node.acl) for node in lost}
    for node in lost:
        parts = node.path.split("/")
        for end in range(3, len(parts)):
            above = "/".join(parts[:end])
            found.setdefault(above, Create(above))
    return sorted(found.values(), key=lambda create: (create.path.count("/"), create.path))
