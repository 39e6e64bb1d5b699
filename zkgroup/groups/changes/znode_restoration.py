"""Restoring nodes that a deletion removed, from its backup: missing nodes are created, none is changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import NotFoundError, UnreachableError, UsageError, ZkgroupError
from zkgroup.groups.changes.backup import RELEASE_OWNERS, group_of
from zkgroup.groups.changes.backup_json import Backup, SavedNode
from zkgroup.groups.changes.batching import cost, first_batch
from zkgroup.groups.changes.change_reports import note
from zkgroup.groups.changes.group_tree import GroupTree, read_trees
from zkgroup.groups.changes.inactive_groups import CandidateGroup
from zkgroup.groups.changes.plan import GO_ON
from zkgroup.groups.changes.preconditions import read_inactive_group
from zkgroup.groups.changes.znode_transactions import TransactionSeries
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import Create, Ensure, Node
from zkgroup.text import counted

_OWNER_DEPTH: Final = 5  # slashes in /consumers/G/owners/T/P


@dataclass(frozen=True, slots=True)
class DeletedGroup:
    """The nodes that a backup has of one group, parents first."""

    group: str
    nodes: tuple[SavedNode, ...]


def deleted_groups(backup: Backup, group: str | None, *, in_kafka: bool = False) -> list[DeletedGroup]:
    """The nodes that the backup has of each group, or only of ``group``; ``in_kafka``: there may be none, as offsets in
    Kafka are restored as well.

    Raises ``UsageError`` where it has no nodes, or one that lies outside its group; ``NotFoundError`` where it has
    nothing of the group.
    """
    found: dict[str, list[SavedNode]] = {}
    for node in backup.nodes:
        if not _is_omitted(backup, node):
            found.setdefault(group_of(node.path), []).append(node)
    if in_kafka and not found and group in (None, backup.group):
        return []
    if not found and not in_kafka:
        raise UsageError("the backup has no nodes", "put its offsets back with 'reset-offsets --undo'")
    if group is not None and group not in found:
        raise NotFoundError(f"the backup has nothing of group {group}", f"name one of its {len(found)} groups")
    return [
        DeletedGroup(name, tuple(sorted(nodes, key=lambda node: (node.path.count("/"), node.path))))
        for name, nodes in sorted(found.items())
        if group in (None, name)
    ]


def describe_omitted(backup: Backup) -> list[str]:
    """A warning of owner nodes that are not restored: without a session they would keep their partitions from all
    members."""
    count = sum(_is_omitted(backup, node) for node in backup.nodes)
    those = "without a session, which would keep their partitions from all members"
    return [f"{counted(count, 'owner node')} of the backup {those}: not restored"] if count else []


def _is_omitted(backup: Backup, node: SavedNode) -> bool:
    if backup.command == RELEASE_OWNERS:
        return False
    return node.path.startswith(f"{znodes.owners(group_of(node.path))}/") and node.path.count("/") >= _OWNER_DEPTH


def plan_restore(registry: Registry, lost: Iterable[DeletedGroup]) -> list[CandidateGroup]:
    """A row for each group, with the number of nodes that are missing."""
    wanted = list(lost)
    trees = read_trees(registry, {one.group: [znodes.group(one.group)] for one in wanted})
    return [_row(one, trees[one.group]) for one in wanted]


def _row(lost: DeletedGroup, tree: GroupTree) -> CandidateGroup:
    missing = len({node.path for node in lost.nodes} - {node.path for node in tree.nodes})
    active = bool(tree.members or tree.live_owners)
    offsets = znodes.offsets(lost.group) + "/"
    note = None
    if not missing:
        note = "is there already"
    elif tree.nodes:
        note = "is there in part: only missing nodes are made"
    return CandidateGroup(
        lost.group,
        "active" if active else "broken" if tree.unreadable else "inactive",
        len(tree.members),
        sum(node.path.startswith(offsets) and node.path.count("/") == 5 for node in lost.nodes),
        missing,
        tree.last_change,
        "make" if missing else "keep",
        note,
    )


def add_kafka_offsets(rows: Sequence[CandidateGroup], group: str, offsets: int) -> list[CandidateGroup]:
    """The same rows; that of ``group`` has a note that so many offsets are restored in Kafka."""
    note = f"{counted(offsets, 'offset')} in Kafka" if offsets else "in Kafka it is as it was"
    if not any(row.group == group for row in rows):
        return [*rows, CandidateGroup(group, "inactive", 0, 0, 0, None, "make" if offsets else "keep", note)]
    found = []
    for row in rows:
        if row.group == group:
            row = replace(row, note=f"{row.note}; {note}" if row.note else f"also {note}")
            row = replace(row, action="make") if offsets else row
        found.append(row)
    return found


def restore(registry: Registry, lost: Sequence[DeletedGroup]) -> dict[str, ZkgroupError | None]:
    """Create missing nodes. For each group None, or the error: a group that is refused does not stop others. An
    interruption carries a note of how many are restored."""
    outcome: dict[str, ZkgroupError | None] = {}
    with ExitStack() as opened:
        for one in lost:
            try:
                restoration = _Restoration(registry, opened, one)
                restoration.run()
                registry = restoration.registry  # it may be another by now
            except UnreachableError as error:
                return outcome | {rest.group: error for rest in lost if rest.group not in outcome}
            except ZkgroupError as error:
                outcome[one.group] = error
            except BaseException as stop:
                made = sum(error is None for error in outcome.values())
                message = f"{made} of {counted(len(lost), 'group')} are restored, group {one.group} perhaps in part"
                note(stop, message, GO_ON)
                raise
            else:
                outcome[one.group] = None
    return outcome


class _Restoration(TransactionSeries[Create]):
    """Creates one group's nodes, in transactions that are refused once the group is active."""

    verb = "create"

    def __init__(self, registry: Registry, opened: ExitStack, lost: DeletedGroup) -> None:
        super().__init__(registry, opened)
        self._lost = lost

    def run(self) -> None:
        roots = {self._lost.group: [znodes.group(self._lost.group)]}
        while True:
            inactive = read_inactive_group(self.registry, self._lost.group, settled=False)
            there = {node.path for node in read_trees(self.registry, roots)[self._lost.group].nodes}
            if not there:
                self.registry.write(Ensure(znodes.consumers()))
            creates = [create for create in _creations(self._lost) if create.path not in there]
            if not creates:
                return
            batch = first_batch(creates, self._cost, self._limit)
            if self._apply([*inactive.operations(), *batch], batch) and len(batch) == len(creates):
                return

    def _cost(self, create: Create) -> int:
        settings = self.registry.settings
        return cost(create.path, settings, create.acl or settings.acl or ()) + len(create.data)

    def _was_applied(self, items: Collection[Create], reconnect_timeout: float | None = None) -> bool:
        try:
            (first,) = self.read_back([next(iter(items)).path], reconnect_timeout)
        except UnreachableError as error:
            error.add_outcome(f"whether {counted(len(items), 'node')} are made is not known")
            error.add_remedy(GO_ON)
            raise
        return isinstance(first, Node)


def _creations(lost: DeletedGroup) -> list[Create]:
    """Parents first; those that the backup has not, as it is of some topics only, are made as members make them."""
    found = {node.path: Create(node.path, node.data, acl=node.acl) for node in lost.nodes}
    for node in lost.nodes:
        parts = node.path.split("/")
        for end in range(3, len(parts)):
            above = "/".join(parts[:end])
            found.setdefault(above, Create(above))
    return sorted(found.values(), key=lambda create: (create.path.count("/"), create.path))
