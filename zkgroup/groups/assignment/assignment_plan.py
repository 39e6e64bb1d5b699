"""The plan of a group's assignment: the strategy to plan with, the reading of the group, and how the plan differs from
the live owners.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from zkgroup.clients.zookeeper.registry import Registry, names_in
from zkgroup.errors import NotFoundError, Notice, UsageError, ZkgroupError
from zkgroup.groups.assignment.strategy_inference import (
    VARIANTS,
    StrategyInference,
    Variant,
    compare,
    infer_strategy,
    is_same_owner,
    owned_now,
)
from zkgroup.groups.assignment.what_if import (
    Choice,
    Conflict,
    Outcome,
    Scenario,
    ScenarioPlan,
    plan_all,
    scenario_of,
)
from zkgroup.groups.group_model import GroupMember, GroupPartition, GroupSnapshot
from zkgroup.groups.snapshot.group_reader import read_group
from zkgroup.groups.snapshot.group_znodes import is_stopping_everyone
from zkgroup.groups.snapshot.znode_reader import NodeCache, ZnodeReader
from zkgroup.protocol import znodes
from zkgroup.protocol.assignors import BY_TOPIC, Assignment, Strategy, compat_of, strategies_of
from zkgroup.protocol.names import ConsumerThreadId, TopicPartition, internal_topics, span_list, spans
from zkgroup.protocol.operations import Children
from zkgroup.text import listed


@dataclass(frozen=True, slots=True)
class PlanStart:
    """The group that a plan starts from; ``snapshot`` is None where it does not exist."""

    snapshot: GroupSnapshot | None
    inference: StrategyInference
    scenario: Scenario


def read_plan_start(registry: Registry, group: str, *, must_exist: bool = True) -> PlanStart:
    """Read a group and infer its strategy. Raises ``NotFoundError`` where it is not in ZooKeeper and ``must_exist``,
    ``ZkgroupError`` where its members may not be read."""
    try:
        snapshot = read_group(registry, group)
    except NotFoundError:
        if must_exist:
            raise
        (topics,) = registry.read([Children(znodes.topics())])
        return PlanStart(None, StrategyInference(), Scenario(names=frozenset(names_in(topics))))
    filters = any(member.has_filter for member in snapshot.members)
    for path, matters in ((znodes.ids(group), True), (znodes.topics(), filters)):
        if matters and path in snapshot.unreadable:
            raise ZkgroupError(
                f"group {group} cannot be planned for: znode {path} cannot be read: {snapshot.unreadable[path]}",
                "connect with credentials that its access list admits",
            )
    return PlanStart(snapshot, infer_strategy(snapshot), scenario_of(snapshot))


def with_topics_read(registry: Registry, scenario: Scenario, topics: Iterable[str]) -> tuple[Scenario, list[Notice]]:
    """Read the partitions of these topics, where they are unknown; also returns the failures."""
    reader = ZnodeReader(registry, (), NodeCache())
    reader.read_topics(sorted({one for one in topics if one in scenario.names and one not in scenario.partitions}))
    read = reader.cluster.topics.values()
    found = {topic.name: topic.partitions for topic in read if topic.exists and topic.error is None}
    problems = [Notice(str(topic.error)) for topic in read if topic.error is not None]
    return replace(scenario, partitions={**scenario.partitions, **found}), problems


def choice_of(strategy: Strategy | None, release: str | None) -> Choice:
    """A strategy as a release computes it, by default of 1.1. Raises ``UsageError`` where the release lacks it."""
    strategy = strategy or VARIANTS[0].strategy
    if release is None:
        return Choice(Variant(strategy, VARIANTS[0].compat))
    compat = compat_of(release)
    if strategy not in strategies_of(release):
        raise UsageError(f"Kafka {release} knows no {strategy}", "it came with 0.8.2; before, range is the only one")
    return Choice(Variant(strategy, compat), internal_topics(release))


def choose(inference: StrategyInference, strategy: Strategy | None, release: str | None) -> Choice:
    """The strategy to plan with where none is given: the one that explains the live owners.

    Where none does: range, or roundrobin of 1.0 and 1.1.
    """
    for variant in inference.ranked if inference.following else ():
        fits = strategy in (None, variant.strategy)
        if fits and release is None:
            return Choice(variant, inference.internal)
        if fits and release is not None and variant.strategy in strategies_of(release):
            choice = choice_of(variant.strategy, release)
            if variant.strategy in BY_TOPIC or variant.compat == choice.variant.compat:
                return choice
    return choice_of(strategy, release)


def accepted(inference: StrategyInference, strategy: Strategy | None, release: str | None) -> list[Choice]:
    """The strategies that may have made a group's owners, the likeliest first."""
    likely = choose(inference, strategy, release)
    if release is not None:
        others = [choice_of(each, release) for each in strategies_of(release) if strategy in (None, each)]
    else:
        others = [Choice(variant, inference.internal) for variant in VARIANTS if strategy in (None, variant.strategy)]
    return [likely, *(choice for choice in others if choice != likely)]


def nearest(plan: ScenarioPlan, snapshot: GroupSnapshot | None) -> tuple[Outcome, bool]:
    """The outcome that equals the live owners, and True; else the one with the fewest unowned partitions, and False."""
    live = owned_now(snapshot)
    for outcome in plan.outcomes:
        if compare(plan.assignment(outcome), live).differences == 0:
            return outcome, True
    return plan.outcomes[0], False


def find_misfits(snapshot: GroupSnapshot, choices: Sequence[Choice]) -> list[str]:
    """Why no plan of these choices explains the owners, a line each; empty if one does. The differences are those from
    the first outcome."""
    scenario = scenario_of(snapshot)
    found = [conflict.notice.message for conflict in present_conflicts(snapshot) if conflict.kind == "registration"]
    differences: list[str] | None = None
    for choice in choices:
        plan = plan_all(scenario, choice)
        if any(conflict.kind == "refused" for conflict in plan.conflicts):
            lines = [str(conflict.notice) for conflict in plan.conflicts]
        else:
            rows = rows_of(plan.assignment(plan.outcomes[0]), plan.wanted, owned_now(snapshot))
            lines = _differences([row for row in rows if row.change not in (None, "tied")])
            if not lines:
                return found
        differences = differences or lines
    return [*found, *(differences or [])]


def _differences(rows: Iterable[Row]) -> list[str]:
    alike: dict[tuple[str, str | None, str | None], list[TopicPartition]] = {}
    for row in rows:
        planned = row.owner if row.change == "stream" else row.member
        alike.setdefault((row.topic, row.current, planned), []).append(TopicPartition(row.topic, row.partition))
    return [
        f"{spans(keys)}: owned by {current or 'nobody'}, planned for {planned or 'nobody'}"
        for (_, current, planned), keys in alike.items()
    ]


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
    return None if is_same_owner(now, thread) else "stream"


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
    now = Counter(owned.member or owned.owner or "" for owned in live.values())
    planned = Counter(row.member for row in rows if row.member is not None)
    gains: Counter[str | None] = Counter()
    loses: Counter[str | None] = Counter()
    busy: defaultdict[str | None, set[str]] = defaultdict(set)
    for row in rows:
        key = TopicPartition(row.topic, row.partition)
        holder = None if key not in live else live[key].member or live[key].owner
        busy[row.member].add(f"{row.owner}" if row.member in filtering else f"{row.topic} {row.owner}")
        if row.member != holder and row.change != "tied" and key not in unreadable:
            gains[row.member] += 1
            loses[holder] += 1
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
            Notice(f"member {member.member}: {member.error}; {_left_out(member)}"),
        )
        for member in snapshot.members
        if member.error is not None
    ]
    found += [
        Conflict("hidden", (), (), Notice(f"znode {path} cannot be read: {why}; who owns what below it is not known"))
        for path, why in snapshot.unreadable.items()
        if f"{path}/".startswith(f"/consumers/{snapshot.group}/owners/")
    ]
    unregistered: dict[str, list[TopicPartition]] = {}
    for partition in snapshot.partitions:
        if partition.owner is not None and partition.member is None and not snapshot.has_hidden_members:
            unregistered.setdefault(partition.owner, []).append(partition.key)
    for owner, partitions in sorted(unregistered.items()):
        names = listed(span_list(partitions))
        message = f"{owner}, which is not registered, owns {names}: whose share that is can claim nothing"
        found.append(Conflict("owner", (), tuple(sorted(partitions)), Notice(message)))
    return found


def _left_out(member: GroupMember) -> str:
    if member.is_unreadable:
        return "it is left out here, and whether the others get past it is not known"
    if not is_stopping_everyone(member):
        return "it is left out here"
    return "no Scala member can rebalance until it is corrected: the plan leaves it out"
