"""The difference between a plan and the live owners: the moves, and each member's share. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from zkgroup.groups.assignment.strategy_inference import StreamClaim, same_owner
from zkgroup.groups.assignment.what_if import Conflict, brief
from zkgroup.groups.group_model import GroupMember, GroupPartition, GroupSnapshot
from zkgroup.groups.snapshot.registrations import stops_everyone
from zkgroup.protocol.assignors import Assignment
from zkgroup.protocol.names import ConsumerThreadId, TopicPartition

#: What the plan changes for a partition. ``move``: to another member; ``stream``: to another stream of the same;
#: ``claim``: without an owner now; ``release``: owned now, in no share of the plan; ``tied``: the hash code is that of
#: another partition, and the two are swapped.
Change = Literal["move", "stream", "claim", "release", "tied"]


@dataclass(frozen=True, slots=True)
class Row:
    """A partition: ``owner`` (thread) and ``member`` by the plan, ``current`` is what its owner node says.

    ``change`` is None where it stays as it is.
    """

    topic: str
    partition: int
    owner: str | None
    member: str | None
    current: str | None
    change: Change | None


@dataclass(frozen=True, slots=True)
class Share:
    """A member's number of partitions now and in the plan, those that are new to it (``gains``) and those that it gives
    away (``loses``). ``idle``: the number of its ``streams`` without a partition in the plan; a stream reads one topic,
    or all topics of a filter."""

    member: str
    streams: int
    idle: int
    now: int
    planned: int
    gains: int
    loses: int


def rows_of(
    plan: Assignment,
    wanted: Iterable[TopicPartition],
    live: Mapping[TopicPartition, GroupPartition],
    unreadable: Collection[TopicPartition] = (),
) -> list[Row]:
    """A row for every partition that is subscribed to, planned or owned, in order of topic and partition.

    ``unreadable``: partitions whose owner may not be read; their change is unknown.
    """
    ties = {pair: number for number, tie in enumerate(plan.ties) for pair in tie}
    swapped = _swapped(plan, live)
    found = []
    for pair in sorted({*wanted, *plan.owners, *live}):
        thread, now = plan.owners.get(pair), live.get(pair)
        change = None if pair in unreadable else _change(thread, now)
        if change in ("move", "stream") and ties.get(pair) in swapped:
            change = "tied"
        found.append(
            Row(
                *pair,
                None if thread is None else str(thread),
                None if thread is None else thread.consumer_id,
                None if now is None else now.owner,
                change,
            )
        )
    return found


def owned_now(snapshot: GroupSnapshot | None) -> dict[TopicPartition, GroupPartition]:
    """The partitions that have an owner."""
    partitions = () if snapshot is None else snapshot.partitions
    return {partition.key: partition for partition in partitions if partition.owner is not None}


def unreadable_owners(snapshot: GroupSnapshot | None) -> frozenset[TopicPartition]:
    """The partitions whose owner may not be read."""
    return frozenset() if snapshot is None else frozenset(p.key for p in snapshot.partitions if p.is_unreadable)


def _change(thread: ConsumerThreadId | None, now: GroupPartition | None) -> Change | None:
    if thread is None:
        return None if now is None else "release"
    if now is None:
        return "claim"
    if now.member != thread.consumer_id:
        return "move"
    return None if same_owner(StreamClaim(now.member, now.stream), thread) else "stream"


def _swapped(plan: Assignment, live: Mapping[TopicPartition, GroupPartition]) -> set[int]:
    """The ties within which the live owners are those of the plan, in any order."""
    return {
        number
        for number, tie in enumerate(plan.ties)
        if Counter(plan.owners[pair].consumer_id for pair in tie if pair in plan.owners)
        == Counter(live[pair].member for pair in tie if pair in live)
    }


def shares_of(
    rows: Sequence[Row],
    live: Mapping[TopicPartition, GroupPartition],
    streams: Mapping[str, int],
    unreadable: Collection[TopicPartition] = (),
    filtering: Collection[str] = (),
) -> list[Share]:
    """The shares of all members in the plan, and of those that own something now. ``streams``: member → its number;
    ``filtering``: the members each of whose streams reads all topics. ``unreadable`` as for ``rows_of``."""
    now: Counter[str] = Counter()
    planned: Counter[str] = Counter()
    gains: Counter[str] = Counter()
    loses: Counter[str] = Counter()
    busy: defaultdict[str, set[str]] = defaultdict(set)
    for row in rows:
        owned = live.get(TopicPartition(row.topic, row.partition))
        holder = None if owned is None else owned.member or owned.owner
        if holder is not None:
            now[holder] += 1
        if row.member is not None and row.owner is not None:
            planned[row.member] += 1
            busy[row.member].add(row.owner if row.member in filtering else f"{row.topic} {row.owner}")
        if row.member != holder and row.change != "tied" and TopicPartition(row.topic, row.partition) not in unreadable:
            gains[row.member or ""] += 1
            loses[holder or ""] += 1
    return [
        Share(
            member,
            streams.get(member, 0),
            max(0, streams.get(member, 0) - len(busy[member])),
            now[member],
            planned[member],
            gains[member],
            loses[member],
        )
        for member in sorted({*streams, *now, *planned})
    ]


def present_conflicts(snapshot: GroupSnapshot | None) -> list[Conflict]:
    """The conflicts that keep the members of a group from reaching any plan."""
    if snapshot is None:
        return []
    found = [
        Conflict(
            "hidden" if member.is_unreadable else "registration",
            (member.member,),
            (),
            f"member {member.member}: {member.error}; {_left_out(member)}",
        )
        for member in snapshot.members
        if member.error is not None
    ]
    found += [
        Conflict("hidden", (), (), f"znode {path} cannot be read: {why}; who owns what below it is not known")
        for path, why in snapshot.unreadable.items()
        if f"{path}/".startswith(f"/consumers/{snapshot.group}/owners/")
    ]
    strangers: dict[str, list[TopicPartition]] = {}
    for partition in snapshot.partitions:
        if partition.owner is not None and partition.member is None and not snapshot.members_unreadable:
            strangers.setdefault(partition.owner, []).append(partition.key)
    for owner, partitions in sorted(strangers.items()):
        message = f"{owner}, which is not registered, owns {brief(partitions)}: whose share that is can claim nothing"
        found.append(Conflict("owner", (), tuple(sorted(partitions)), message))
    return found


def _left_out(member: GroupMember) -> str:
    if member.is_unreadable:
        return "it is left out here, and whether the others get past it is not known"
    if not stops_everyone(member):
        return "it is left out here"
    return "no Scala member can rebalance until it is corrected: the plan leaves it out"
