"""Predicts the assignment of a group as it is, or as it would be. Pure.

A ``Scenario`` is the input of the members' plans: registrations, and topics with their partitions. ``plan_all`` plans
it. Where members use different strategies, each owns its share of its own plan, whole or not at all; which of them do
is a race, so that there are several outcomes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Final

from zkgroup.errors import AssignmentRefusedError, NotFoundError, Notice, UsageError, did_you_mean
from zkgroup.groups.assignment.strategy_inference import VARIANTS, Variant, concerned_partitions
from zkgroup.groups.group_model import GroupSnapshot
from zkgroup.protocol.assignors import BY_TOPIC, MAX_THREADS, Assignment, assign, count_threads, resolve_all
from zkgroup.protocol.names import INTERNAL_TOPICS, ConsumerThreadId, TopicPartition, span_list
from zkgroup.protocol.znodes import Registration
from zkgroup.text import listed

#: The default number of outcomes of a mix.
MAX_OUTCOMES: Final = 50
#: More partitions than this in one topic are a slip of the finger.
MAX_PARTITIONS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Choice:
    """The strategy of a member in a release's variant, and the topics that this release keeps out of filters."""

    variant: Variant
    internal: frozenset[str] = INTERNAL_TOPICS


@dataclass(frozen=True, slots=True)
class Scenario:
    """Member → its registration; the names of all topics; topic → its partitions, as far as they are known."""

    registrations: Mapping[str, Registration] = field(default_factory=dict)
    names: frozenset[str] = frozenset()
    partitions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def streams(self, internal: Collection[str] = INTERNAL_TOPICS) -> dict[str, dict[str, int]]:
        """Member → topic → streams: filters applied to the topics that exist."""
        return resolve_all(self.registrations, sorted(self.names), internal=internal)

    def subscribed(self, choices: Iterable[Choice] = (Choice(VARIANTS[0]),)) -> set[str]:
        """The topics that have a subscriber, under any of these choices."""
        internals = {choice.internal for choice in choices}
        return {topic for internal in internals for topics in self.streams(internal).values() for topic in topics}


def scenario_of(snapshot: GroupSnapshot) -> Scenario:
    """The group as it is, without members whose registration cannot be read."""
    partitions = concerned_partitions(snapshot)
    return Scenario(
        {m.member: m.registration for m in snapshot.members if m.registration is not None and m.error is None},
        frozenset(snapshot.existing_topics) | partitions.keys(),
        partitions,
    )


def with_member(scenario: Scenario, member: str, registration: Registration) -> Scenario:
    """The scenario with another member, or another registration of one."""
    return replace(scenario, registrations={**scenario.registrations, member: registration})


def without_member(scenario: Scenario, member: str) -> Scenario:
    kept = {name: registration for name, registration in scenario.registrations.items() if name != member}
    return replace(scenario, registrations=kept)


def with_streams(scenario: Scenario, member: str, streams: int) -> Scenario:
    """A member that reads each of its topics with ``streams`` streams; UsageError for more than a group may have."""
    if not 0 < streams <= MAX_THREADS:
        raise UsageError(f"member {member} with {streams} streams", f"give a number from 1 to {MAX_THREADS}")
    registration = scenario.registrations[member]
    changed = replace(registration, subscription=dict.fromkeys(registration.subscription, streams))
    return with_member(scenario, member, changed)


def with_partitions(scenario: Scenario, topic: str, count: int) -> Scenario:
    """A topic with partitions 0 to ``count`` − 1, created if it is missing. UsageError where it has more already."""
    have = scenario.partitions.get(topic, ())
    if not 0 < count <= MAX_PARTITIONS:
        raise UsageError(f"topic {topic} with {count} partitions", f"give a number from 1 to {MAX_PARTITIONS}")
    if have and count <= max(have):
        raise UsageError(f"topic {topic} has partition {max(have)} already", "partitions can only be added")
    return replace(
        scenario,
        names=scenario.names | {topic},
        partitions={**scenario.partitions, topic: tuple(range(count))},
    )


def find_member(name: str, group: str, members: Collection[str]) -> str:
    """The member that ``name`` means: its id, or its id without the group's name before it. Else NotFoundError."""
    for known in (name, f"{group}_{name}"):
        if known in members:
            return known
    remedy = did_you_mean(name, members, f"its members: {listed(sorted(members)) or 'none'}")
    raise NotFoundError(f"group {group} has no member {name!r}", remedy)


def check_size(scenario: Scenario, choices: Iterable[Choice]) -> None:
    """Raise UsageError where a member would compute with more threads than zkgroup plans for."""
    for choice in choices:
        total = count_threads(scenario.streams(choice.internal))
        if choice.variant.strategy not in BY_TOPIC and total > MAX_THREADS:
            raise UsageError(
                f"the group's members ask for {total} streams, and {choice.variant.text} is planned for at most"
                f" {MAX_THREADS}",
                "correct the member with the wrong number, or plan with --strategy range",
            )


@dataclass(frozen=True, slots=True)
class Conflict:
    """A conflict of a plan.

    ``kind``: ``refused`` (the strategy's precondition fails for these members), ``claim`` (these two members both take
    the partitions), ``registration`` (one that cannot be understood), ``owner`` (an owner that is no member),
    ``hidden`` (a registration, or owner nodes, that may not be read).
    """

    kind: str
    members: tuple[str, ...]
    partitions: tuple[TopicPartition, ...]
    notice: Notice


@dataclass(frozen=True, slots=True)
class Outcome:
    """One result: ``holders`` own their shares, ``losers`` nothing; ``unread``: partitions in no holder's share."""

    holders: tuple[str, ...]
    losers: tuple[str, ...]
    owners: Mapping[TopicPartition, ConsumerThreadId]
    unread: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ScenarioPlan:
    """A predicted assignment.

    ``outcomes``: all possible ones, those with the fewest unowned partitions first: one where the members agree.
    ``more``: there are more of them. ``ties``: partitions of equal hash codes, whose owners a Scala consumer may swap.
    ``wanted``: every partition of every subscribed topic. ``streams``: member → how many it has, of
    static subscriptions those of all topics together; ``filtering``: members each of whose streams reads all topics.
    """

    outcomes: tuple[Outcome, ...]
    more: bool
    conflicts: tuple[Conflict, ...]
    wanted: tuple[TopicPartition, ...]
    ties: tuple[tuple[TopicPartition, ...], ...]
    streams: Mapping[str, int]
    filtering: frozenset[str] = frozenset()

    def assignment(self, outcome: Outcome) -> Assignment:
        """An outcome, to be compared with live owners."""
        return Assignment(dict(outcome.owners), self.ties)


def plan_all(
    scenario: Scenario,
    base: Choice,
    mix: Mapping[str, Choice] | None = None,
    *,
    max_outcomes: int = MAX_OUTCOMES,
) -> ScenarioPlan:
    """Plan a scenario. Members plan with ``base``, those in ``mix`` with their own choice. Where a strategy refuses,
    its members own nothing, and ``conflicts`` has the reason."""
    mix = mix or {}
    choices = {member: mix.get(member, base) for member in scenario.registrations}
    distinct = list(dict.fromkeys(choices.values())) or [base]
    seen = {internal: scenario.streams(internal) for internal in {choice.internal for choice in distinct}}
    plans: dict[Choice, Assignment] = {}
    conflicts: list[Conflict] = []
    for choice in distinct:
        try:
            plans[choice] = assign(*choice.variant, seen[choice.internal], scenario.partitions)
        except AssignmentRefusedError as refusal:
            members = tuple(sorted(member for member, own in choices.items() if own == choice))
            conflicts.append(Conflict("refused", members, (), Notice(refusal.message, refusal.remedy)))
    shares = _shares(choices, plans)
    wanted = {
        TopicPartition(topic, number)
        for topics in seen.values()
        for topic in {topic for subscription in topics.values() for topic in subscription}
        for number in scenario.partitions.get(topic, ())
    }
    clashes = _clashes(shares)
    for pair, claimed in sorted(clashes.items()):
        both = tuple(sorted(claimed))
        message = f"{pair[0]} and {pair[1]} both take {listed(span_list(both))}"
        conflicts.append(Conflict("claim", pair, both, Notice(message)))
    sets, more = holder_sets(shares.keys(), clashes.keys(), max_outcomes)
    refusing = {member for member, own in choices.items() if own not in plans and seen[own.internal][member]}
    outcomes = []
    for holders in sets:
        owners = {partition: thread for member in holders for partition, thread in shares[member].items()}
        losers = (refusing | shares.keys()) - holders
        unread = tuple(sorted(wanted - owners.keys()))
        outcomes.append(Outcome(tuple(sorted(holders)), tuple(sorted(losers)), owners, unread))
    return ScenarioPlan(
        tuple(sorted(outcomes, key=lambda outcome: (len(outcome.unread), outcome.losers))),
        more,
        tuple(conflicts),
        tuple(sorted(wanted)),
        tuple(dict.fromkeys(tie for plan in plans.values() for tie in plan.ties)),
        {member: sum(one.subscription.values()) for member, one in scenario.registrations.items()},
        frozenset(member for member, one in scenario.registrations.items() if one.pattern != "static"),
    )


def _shares(
    choices: Mapping[str, Choice], plans: Mapping[Choice, Assignment]
) -> dict[str, dict[TopicPartition, ConsumerThreadId]]:
    """Member → its own share of its own plan, of those that have one."""
    shares: dict[str, dict[TopicPartition, ConsumerThreadId]] = {}
    for choice, plan in plans.items():
        for partition, thread in plan.owners.items():
            if choices[thread.consumer_id] == choice:
                shares.setdefault(thread.consumer_id, {})[partition] = thread
    return shares


def _clashes(shares: Mapping[str, Iterable[TopicPartition]]) -> dict[tuple[str, str], list[TopicPartition]]:
    """Pairs of members → the partitions that both would claim."""
    claimants: dict[TopicPartition, list[str]] = {}
    for member in sorted(shares):
        for partition in shares[member]:
            claimants.setdefault(partition, []).append(member)
    found: dict[tuple[str, str], list[TopicPartition]] = {}
    for partition, members in claimants.items():
        for pair in combinations(members, 2):
            found.setdefault(pair, []).append(partition)
    return found


# The search may take far more steps than there are sets; this many take about a second.
_MAX_STEPS: Final = 100_000


def holder_sets(
    members: Collection[str], clashes: Iterable[tuple[str, str]], limit: int
) -> tuple[list[frozenset[str]], bool]:
    """The maximal sets of members without a clash, at most ``limit``, and whether there are more.

    Seen on real members (Kafka 0.8.2.2, 0.11.0.3, 1.1.1): a member claims its whole share or nothing, and tries again
    at each rebalance. So a group comes to rest in one of these sets; which one is a race.
    """
    order = sorted(members)
    position = {member: number for number, member in enumerate(order)}
    everybody = (1 << len(order)) - 1
    friends = [everybody & ~(1 << number) for number in range(len(order))]
    for first, second in clashes:
        friends[position[first]] &= ~(1 << position[second])
        friends[position[second]] &= ~(1 << position[first])
    found: list[frozenset[str]] = []
    for chosen in _cliques(friends, everybody):
        if chosen is None or len(found) == limit:
            return found, True
        found.append(frozenset(order[number] for number in _bits(chosen)))
    return found, False


def _cliques(friends: list[int], everybody: int) -> Iterator[int | None]:
    """The maximal cliques of a graph as bit masks (Bron and Kerbosch with a pivot); None where it gives up."""
    steps = 0
    waiting = [(0, everybody, 0)]  # chosen; who may join; who may too, but was had before
    while waiting:
        steps += 1
        if steps > _MAX_STEPS:
            yield None
            return
        chosen, open_, had = waiting.pop()
        if not open_:
            if not had:
                yield chosen
            continue
        pivot = max(_bits(open_ | had), key=lambda number: (open_ & friends[number]).bit_count())
        branches = []
        for number in _bits(open_ & ~friends[pivot]):
            bit = 1 << number
            branches.append((chosen | bit, open_ & friends[number], had & friends[number]))
            open_ &= ~bit
            had |= bit
        waiting += reversed(branches)


def _bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
