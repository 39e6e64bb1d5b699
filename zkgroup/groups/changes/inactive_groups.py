"""Groups that have been inactive for long: found by pattern and age, and which of them may be deleted."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from zkgroup.clients.zookeeper.registry import Registry, names_in
from zkgroup.config.settings_table import CONNECT_TIMEOUT
from zkgroup.errors import NotFoundError, RefusedError, Remedy, UnreachableError, ZkgroupError, did_you_mean
from zkgroup.groups.changes.backup import group_of
from zkgroup.groups.changes.export_znodes import decode_exporter
from zkgroup.groups.changes.group_tree import READERS, GroupTree, read_acls, read_trees
from zkgroup.groups.changes.preconditions import describe_unfinished_export
from zkgroup.groups.changes.znode_transactions import BATCH
from zkgroup.groups.group_choices import State
from zkgroup.groups.group_model import GroupSnapshot
from zkgroup.groups.snapshot.group_reader import read_groups
from zkgroup.groups.snapshot.snapshot_defects import foreign_note
from zkgroup.groups.snapshot.znode_reader import group_names
from zkgroup.protocol import znodes
from zkgroup.protocol.names import OFFSETS_TOPIC
from zkgroup.protocol.operations import Acl, Children, Exists, Stat
from zkgroup.text import is_matched, listed

if TYPE_CHECKING:
    from zkgroup.clients.kafka.client import KafkaSettings


@dataclass(frozen=True, slots=True)
class CandidateGroup:
    """A group that a pattern or a backup means. ``znodes``: how many it has, or is to get; ``last_change``: in
    milliseconds since 1970; where that is not known, the earliest moment by which it had surely happened. ``barred``:
    it would go, but for what these credentials may not read of it; ``note`` is its message."""

    group: str
    state: State
    members: int
    partitions: int
    znodes: int
    last_change: int | None
    action: Literal["delete", "keep", "make"]
    note: str | None = None
    barred: ZkgroupError | None = None


def matching(names: Iterable[str], patterns: Iterable[str]) -> list[str]:
    """The names that any of the patterns matches (``is_matched``), in order."""
    wanted = list(patterns)
    return sorted(name for name in set(names) if is_matched(name, wanted))


def find_inactive_groups(
    trees: Iterable[GroupTree],
    now: int,
    older_than: int,
    others: Iterable[Stat] = (),
    in_kafka: Mapping[str, Sequence[str] | ZkgroupError] | None = None,
    *,
    foreign: bool = False,
) -> list[CandidateGroup]:
    """Which of these groups may go: inactive ones, whose nodes all changed last more than
    ``older_than`` milliseconds before ``now``. ``in_kafka``: the groups that are in Kafka, too, each with its members
    there, or with why they are not known. ``foreign``: also those that have nothing but nodes of another client.

    When a member left, or an owner let go, is not recorded, only in which transaction (``pzxid``). ``others`` are stats
    of any nodes of the cluster: the first one written after that transaction dates it. Where there
    is none, it may have been just now.
    """
    wanted = [tree for tree in trees if tree.nodes or tree.unreadable]
    stats = [*others, *(node.stat for tree in wanted for node in tree.nodes)]
    clock = sorted({pair for stat in stats for pair in ((stat.czxid, stat.ctime), (stat.mzxid, stat.mtime))})
    kafka = in_kafka or {}
    return [_decide(tree, now, older_than, clock, kafka.get(tree.group), foreign=foreign) for tree in wanted]


def _decide(
    tree: GroupTree,
    now: int,
    older_than: int,
    clock: Sequence[tuple[int, int]],
    in_kafka: Sequence[str] | ZkgroupError | None,
    *,
    foreign: bool,
) -> CandidateGroup:
    state: State = "inactive"
    members = () if in_kafka is None or isinstance(in_kafka, ZkgroupError) else in_kafka
    note = None
    changed = tree.last_change
    left_at: int | None = None
    # Writes have a time. A child that came and went leaves its transaction alone.
    written = max((node.stat.mzxid for node in tree.nodes), default=0)
    left = max((node.stat.pzxid for node in tree.nodes), default=0)
    if left > written:
        after = bisect_left(clock, (left, 0))
        left_at = clock[after][1] if after < len(clock) else now
        changed = clock[after][1] if after < len(clock) else changed
    if tree.members or tree.live_owners:
        state = "active"
        note = "it has members" if tree.members else f"a session owns {tree.live_owners[0]}"
        if not tree.members and (exporter := decode_exporter(tree.export_lock)) is not None:
            note = exporter.text
    elif members:
        state, note = "active", f"it has members in Kafka: {listed(members)}"
    elif isinstance(in_kafka, ZkgroupError):
        note = f"whether it has members in Kafka is not known: {in_kafka.message}"
    elif unfinished := describe_unfinished_export(tree.group, tree.export):
        note = unfinished
    elif tree.last_change is not None and max(0, now - tree.last_change) < older_than:
        note = "changed too recently" if tree.last_change <= now else "changed at a time in the future: clocks differ"
    elif left_at is not None and max(0, now - left_at) < older_than:
        note = "a member may have left too recently: the time is unknown"
    elif tree.is_foreign and not foreign:
        note = foreign_note(tree.foreign, "all that would be lost")[0].message
    barred = None
    if note is None and tree.unreadable:
        barred = RefusedError(f"cannot be read: {tree.unreadable[0]}", READERS)
        note = barred.message
    if tree.unreadable and state == "inactive":
        state = "broken"
    in_there = [] if in_kafka is None else ["in Kafka it stays"]
    return CandidateGroup(
        tree.group,
        state,
        len(tree.members) + len(members),
        len(tree.offsets),
        len(tree.nodes),
        changed,
        "keep" if note else "delete",
        note or "; ".join([*map(str, foreign_note(tree.foreign, "deleted, too")), *in_there]) or None,
        barred,
    )


def read_inactive_groups(
    registry: Registry,
    patterns: Sequence[str],
    now: int,
    older_than: int,
    *,
    brokers: Callable[[], KafkaSettings] | None = None,
    timeout: float = CONNECT_TIMEOUT,
    foreign: bool = False,
) -> tuple[list[CandidateGroup], Mapping[str, GroupTree]]:
    """All groups that a pattern means, judged, and their nodes. Times are milliseconds. ``brokers``: how to find out
    how to reach them, for groups with members in Kafka are none; without it Kafka is not asked. ``timeout`` (seconds)
    is for their answers. ``foreign``: also groups that have nothing but nodes of another client.

    Raises ``NotFoundError`` where no group matches, ``ZkgroupError`` where brokers do not list their groups.
    """
    known = group_names(registry)
    names = matching(known, patterns)
    if not names:
        see = Remedy("see which groups there are", ("list-groups",))
        raise NotFoundError(f"no group matches {' or '.join(patterns)}", did_you_mean(patterns[0], known, see))
    trees: dict[str, GroupTree] = {}
    for start in range(0, len(names), BATCH):
        trees |= read_trees(registry, {name: [znodes.group(name)] for name in names[start : start + BATCH]})
    others = _stats(registry, known)
    in_kafka = _members_in_kafka(registry, names, brokers, timeout) if brokers is not None else {}
    rows = find_inactive_groups(trees.values(), now, older_than, others, in_kafka, foreign=foreign)
    listed_groups = {one.group: one for one in read_groups(registry, [row.group for row in rows])}
    return [_as_listed(row, listed_groups.get(row.group)) for row in rows], trees


def _as_listed(row: CandidateGroup, listed_group: GroupSnapshot | None) -> CandidateGroup:
    """With the state that ``list-groups`` shows: nodes that are there may be no use, and one that may not be read
    hides neither members nor that there are none, if it is not theirs."""
    if listed_group is None or (row.state == "active" and listed_group.state == "inactive"):
        return row  # gone, or it has members in Kafka, or ephemeral nodes of no member
    row = replace(row, state=listed_group.state, members=max(row.members, len(listed_group.members)))
    if listed_group.state == "active" and (row.action == "delete" or row.barred is not None):
        return replace(row, action="keep", note="it has members", barred=None)
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
        error.add_context("which groups have members in Kafka is not known")
        error.add_remedy("give --store zookeeper to skip that check")
        raise
    return {
        group: found if isinstance(found, ZkgroupError) else [member.member for member in found]
        for group, found in described.items()
    }


def _stats(registry: Registry, groups: Iterable[str]) -> list[Stat]:
    """Nodes that are written once, or seldom, all over the cluster: they date transactions."""
    parents = [znodes.broker_ids(), znodes.topics()]
    lists = registry.read([Children(path) for path in parents])
    paths = [f"{znodes.consumers()}/{group}" for group in groups]
    paths += [f"{parent}/{name}" for parent, names in zip(parents, lists, strict=True) for name in names_in(names)]
    found = registry.read([Exists(path) for path in [*paths, znodes.controller()]])
    return [stat for stat in found if isinstance(stat, Stat)]


def check_access(
    registry: Registry, rows: Sequence[CandidateGroup], trees: Mapping[str, GroupTree]
) -> tuple[list[CandidateGroup], dict[str, ZkgroupError], dict[str, tuple[Acl, ...]]]:
    """The rows once more, the groups that would be left, each with the reason, and the access list of every node that
    goes: a group that no backup can hold is kept, barred. All are read at once. Raises ``UnreachableError``."""
    going = [trees[row.group] for row in rows if row.action == "delete"]
    acls, errors = read_acls(registry, (path for tree in going for path in tree.paths))
    unreadable: dict[str, RefusedError] = {}
    for path, refused in errors.items():
        unreadable.setdefault(group_of(path), refused)
    checked: list[CandidateGroup] = []
    left: dict[str, ZkgroupError] = {}
    for row in rows:
        if (unknown := unreadable.get(row.group)) is not None:
            row = replace(row, action="keep", note=unknown.message, barred=unknown)
        if row.barred is not None:
            left[row.group] = row.barred
        checked.append(row)
    return checked, left, acls
