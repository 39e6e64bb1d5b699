"""The plan of a group's assignment: the strategy to plan with, and the reading of the group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import NotFoundError, Remedy, UsageError, ZkgroupError
from zkgroup.groups.assignment.assignment_diff import Row, owned_now, present_conflicts, rows_of
from zkgroup.groups.assignment.strategy_inference import (
    VARIANTS,
    StrategyInference,
    Variant,
    compare,
    infer_strategy,
    live_claims,
)
from zkgroup.groups.assignment.what_if import Choice, Outcome, Scenario, ScenarioPlan, plan_all, scenario_of
from zkgroup.groups.group_model import GroupSnapshot
from zkgroup.groups.snapshot.broker_queries import Brokers
from zkgroup.groups.snapshot.group_reader import read_group
from zkgroup.protocol import znodes
from zkgroup.protocol.assignors import Strategy, compat_of, strategies_of
from zkgroup.protocol.broker_znodes import decode_topic
from zkgroup.protocol.names import TopicPartition, internal_topics, spans
from zkgroup.protocol.operations import Children, Code, Failure, Get, Node
from zkgroup.shell_commands import group_command


@dataclass(frozen=True, slots=True)
class PlanStart:
    """The group that a plan starts from; ``snapshot`` is None where it does not exist."""

    snapshot: GroupSnapshot | None
    inference: StrategyInference
    scenario: Scenario


def read_plan_start(
    registry: Registry, group: str, *, must_exist: bool = True, kafka: Brokers | None = None
) -> PlanStart:
    """Read a group and infer its strategy. Raises ``NotFoundError`` where it is not in ZooKeeper and ``must_exist``,
    ``ZkgroupError`` where its members may not be read.

    ``kafka``: the brokers that are asked then whether the group is in Kafka.
    """
    try:
        snapshot = read_group(registry, group)
    except (NotFoundError, UsageError) as missing:  # UsageError: no znode can be called so, but Kafka takes any name
        if must_exist or isinstance(missing, UsageError):
            if kafka is not None and _is_in_kafka(registry, group, kafka):
                raise NotFoundError(
                    f"group {group} lives in Kafka, where its members share out the partitions themselves",
                    Remedy("see which member has which", group_command("owners", group)),
                ) from None
            raise
        (topics,) = registry.read([Children(znodes.topics())])
        names = frozenset(topics) if isinstance(topics, tuple) else frozenset()
        return PlanStart(None, StrategyInference(), Scenario(names=names))
    if unknown := _unknown(snapshot):
        raise ZkgroupError(
            f"group {group} cannot be planned for: {unknown}", "connect with credentials that its access list admits"
        )
    return PlanStart(snapshot, infer_strategy(snapshot), scenario_of(snapshot))


def _unknown(snapshot: GroupSnapshot) -> str | None:
    """Why the members or the topics to plan with are unknown; None where they are known."""
    filters = any(member.has_filter for member in snapshot.members)
    for path, matters in ((znodes.ids(snapshot.group), True), (znodes.topics(), filters)):
        if matters and path in snapshot.unreadable:
            return f"znode {path} cannot be read: {snapshot.unreadable[path]}"
    return None


def _is_in_kafka(registry: Registry, group: str, kafka: Brokers) -> bool:
    try:
        read_group(registry, group, kafka=kafka, logs=False)
    except ZkgroupError:  # it does not exist, or the brokers do not answer: the error about ZooKeeper stays
        return False
    return True


def with_topics_read(registry: Registry, scenario: Scenario, topics: Iterable[str]) -> tuple[Scenario, list[str]]:
    """Read the partitions of these topics, where they are unknown; also returns the failures, a line each."""
    wanted = sorted({topic for topic in topics if topic in scenario.names and topic not in scenario.partitions})
    ops = [Get(znodes.topic(topic)) for topic in wanted]
    found = dict(scenario.partitions)
    problems = []
    for topic, op, node in zip(wanted, ops, registry.read(ops), strict=True):
        if isinstance(node, Node):
            try:
                found[topic] = tuple(sorted(decode_topic(op.path, node.data).partitions))
            except ZkgroupError as malformed:
                problems.append(str(malformed))
        elif isinstance(node, Failure) and node.code is not Code.NO_NODE:
            problems.append(f"znode {op.path} cannot be read: {node.code.value}")
    return replace(scenario, partitions=found), problems


def choice_of(strategy: Strategy, release: str | None) -> Choice:
    """A strategy as a release computes it, by default 1.1. Raises ``UsageError`` where the release lacks it."""
    if release is None:
        return Choice(Variant(strategy, "1.1"))
    compat = compat_of(release)
    if strategy not in strategies_of(release):
        raise UsageError(f"Kafka {release} knows no {strategy}", "it came with 0.8.2; before, range is the only one")
    return Choice(Variant(strategy, compat), internal_topics(release))


def choose(inference: StrategyInference, strategy: Strategy | None, release: str | None) -> Choice:
    """The strategy to plan with where none is given: the one that explains the live owners.

    Where none does: range, or roundrobin of 1.0 and 1.1.
    """
    following = inference.best is not None and bool(inference.exact or inference.following)
    for variant in inference.ranked if following else ():
        fits = strategy in (None, variant.strategy)
        if fits and release is None:
            return Choice(variant, inference.internal)
        if fits and release is not None and variant.strategy in strategies_of(release):
            choice = choice_of(variant.strategy, release)
            if variant.strategy == "range" or variant.compat == choice.variant.compat:
                return choice
    return choice_of(strategy or "range", release)


def accepted(inference: StrategyInference, strategy: Strategy | None, release: str | None) -> list[Choice]:
    """The strategies that may have made a group's owners, the likeliest first."""
    likely = choose(inference, strategy, release)
    if release is not None:
        return [likely] if strategy is not None else [choice_of(each, release) for each in _first(likely, release)]
    others = [Choice(variant, inference.internal) for variant in VARIANTS if strategy in (None, variant.strategy)]
    return [likely, *(choice for choice in others if choice != likely)]


def _first(likely: Choice, release: str) -> list[Strategy]:
    return sorted(strategies_of(release), key=lambda strategy: strategy != likely.variant.strategy)


def nearest(plan: ScenarioPlan, snapshot: GroupSnapshot | None) -> tuple[Outcome, bool]:
    """The outcome that equals the live owners, and True; else the one with the fewest unowned partitions, and False."""
    live = {} if snapshot is None else live_claims(snapshot)
    for outcome in plan.outcomes:
        if compare(plan.assignment(outcome), live).differences == 0:
            return outcome, True
    return plan.outcomes[0], False


def find_misfits(snapshot: GroupSnapshot, choices: Sequence[Choice]) -> list[str]:
    """Why no plan of these choices explains the owners, a line each; empty if one does. The differences are those from
    the first outcome."""
    scenario = scenario_of(snapshot)
    found = [conflict.message for conflict in present_conflicts(snapshot) if conflict.kind == "registration"]
    differences: list[str] | None = None
    for choice in choices:
        plan = plan_all(scenario, choice)
        if any(conflict.kind == "refused" for conflict in plan.conflicts):
            lines = [conflict.message for conflict in plan.conflicts]
        else:
            rows = rows_of(plan.assignment(plan.outcomes[0]), plan.wanted, owned_now(snapshot))
            lines = _folded([row for row in rows if row.change not in (None, "tied")])
            if not lines:
                return found
        differences = differences or lines
    return [*found, *(differences or [])]


def _folded(rows: Iterable[Row]) -> list[str]:
    """A line for all partitions of one topic with the same difference, in the order of the first of each."""
    alike: dict[tuple[str, str | None, str | None, str | None], list[Row]] = {}
    for row in rows:
        alike.setdefault((row.topic, row.change, row.current, row.member), []).append(row)
    return [_misfit(group) for group in alike.values()]


def _misfit(rows: Sequence[Row]) -> str:
    row, several = rows[0], len(rows) > 1
    name = spans(TopicPartition(each.topic, each.partition) for each in rows)
    one_stream = all(each.owner == row.owner for each in rows)
    them, planned = "them" if several else "it", row.owner if one_stream else row.member
    if row.change == "claim":
        return f"{name} {'have' if several else 'has'} no owner, the plan gives {them} to {planned}"
    owned = f"{name} {'are' if several else 'is'} owned by {row.current}, the plan gives {them} to"
    return f"{owned} {'nobody' if row.change == 'release' else planned}"
