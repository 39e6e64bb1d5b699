"""Infers the strategy, and the release's variant of it, from the live owners of a group. Pure.

Registrations contain neither. But every member computes a whole plan and owns its share of it, whole or not at all: the
shares reveal the strategy, even where members disagree and some partitions have no owner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from zkgroup.errors import AssignmentRefusedError
from zkgroup.groups.group_model import GroupPartition, GroupSnapshot
from zkgroup.protocol.assignors import BY_TOPIC, Assignment, Compat, Strategy, assign, resolve_all
from zkgroup.protocol.names import INTERNAL_TOPICS, TopicPartition, internal_topics

_RELEASES: Final[Mapping[Compat, str]] = {
    "0.8.2": "0.8.2 to 0.10.1",
    "0.10.2": "0.10.2 to 0.11.0",
    "1.1": "1.0 and 1.1",
}


# With other internal topics than the newest.
_OLDER_FILTERS: Final = ("0.8.2", "0.8.1")


class Variant(NamedTuple):
    """A strategy as a range of releases computes it. ``range`` is the same in all releases, and has ``1.1`` here."""

    strategy: Strategy
    compat: Compat

    @property
    def text(self) -> str:
        """``range``, ``roundrobin of 0.8.2 to 0.10.1``."""
        return self.strategy if self.strategy in BY_TOPIC else f"{self.strategy} of {_RELEASES[self.compat]}"


#: All that differ. Of several that explain a group alike the first is taken: the default strategy, then the newest
#: release; of the two that hash alike the one that also refuses, so that no plan passes that might stop the group.
VARIANTS: Final = (
    Variant("range", "1.1"),
    Variant("roundrobin", "1.1"),
    Variant("roundrobin", "0.8.2"),
    Variant("roundrobin", "0.10.2"),
)


@dataclass(frozen=True, slots=True)
class Fit:
    """The differences between the live owners and one plan.

    ``differences``: the number of partitions, planned or owned, with another owner than planned. ``apart``: members
    that do not own exactly their share. ``blocked``: members of whose share another owner has a part.
    """

    differences: int
    apart: frozenset[str]
    blocked: frozenset[str]


@dataclass(frozen=True, slots=True)
class StrategyInference:
    """The strategies that the live owners fit.

    ``exact``: the variants whose plan equals the owners. ``best``: the first of those, else the variant that most
    members with partitions follow, then the one with the fewest ``differences`` (in partitions; counted for ``best``);
    None where nothing is owned, or no variant has a plan. ``ranked``: all variants that have a plan, best first.
    ``deviating``: members that cannot be following ``best``: they own something other than their share of it, or
    nothing although their share is free. ``blocked``: members without partitions, of whose share of ``best`` another
    owner has a part. ``refused``: variants whose members would refuse this group, and why. ``may_run``: member → the
    variants that explain what it owns (its share, or, for one that owns nothing, a share that it could not get).
    ``following``: the members that own something, and exactly their share of ``best``. ``internal``: the topics that
    their filters leave out.
    """

    exact: tuple[Variant, ...] = ()
    best: Variant | None = None
    differences: int = 0
    deviating: tuple[str, ...] = ()
    refused: Mapping[Variant, str] = field(default_factory=dict)
    ranked: tuple[Variant, ...] = ()
    blocked: tuple[str, ...] = ()
    may_run: Mapping[str, tuple[Variant, ...]] = field(default_factory=dict)
    following: tuple[str, ...] = ()
    internal: frozenset[str] = INTERNAL_TOPICS


def infer_strategy(snapshot: GroupSnapshot) -> StrategyInference:
    """Infer the strategy from a group's live owners. Members whose registration cannot be read are left out.

    The internal topics that a filter leaves out depend on the release: where some of those are owned, older releases
    than the newest are tried as well.
    """
    live = owned_now(snapshot)
    members = {member.member: member.streams for member in snapshot.members if member.error is None}
    found = infer_strategy_from_claims(members, planned_partitions(snapshot), live)
    if found.exact or not any(pair.topic in INTERNAL_TOPICS for pair in live):
        return found
    registrations = {m.member: m.registration for m in snapshot.members if m.registration and m.member in members}
    partitions = concerned_partitions(snapshot)
    for release in _OLDER_FILTERS:
        internal = internal_topics(release)
        streams = resolve_all(registrations, sorted(partitions), internal=internal)
        other = infer_strategy_from_claims(streams, partitions, live)
        if other.best is not None and (found.best is None or other.differences < found.differences):
            found = replace(other, internal=internal)
    return found


def planned_partitions(snapshot: GroupSnapshot) -> dict[str, list[int]]:
    """Topic → its partitions, for the topics that have subscribers."""
    found: dict[str, list[int]] = {}
    for partition in snapshot.partitions:
        if partition.exists and partition.topic in snapshot.subscribed:
            found.setdefault(partition.topic, []).append(partition.partition)
    return found


def concerned_partitions(snapshot: GroupSnapshot) -> dict[str, tuple[int, ...]]:
    """The same, and for all other topics that concern the group: in another release some may be subscribed to."""
    found = {name: topic.partitions for name, topic in snapshot.topics.items() if topic.exists and not topic.error}
    return found | {topic: tuple(sorted(numbers)) for topic, numbers in planned_partitions(snapshot).items()}


def owned_now(snapshot: GroupSnapshot | None) -> dict[TopicPartition, GroupPartition]:
    """The partitions that have an owner."""
    partitions = () if snapshot is None else snapshot.partitions
    return {partition.key: partition for partition in partitions if partition.owner is not None}


def infer_strategy_from_claims(
    members: Mapping[str, Mapping[str, int]],
    partitions: Mapping[str, Iterable[int]],
    live: Mapping[TopicPartition, GroupPartition],
) -> StrategyInference:
    """As ``infer_strategy``, from member → topic → streams, topic → partitions, and partition → owner."""
    numbers = {topic: list(listed) for topic, listed in partitions.items()}
    fits: dict[Variant, Fit] = {}
    refused: dict[Variant, str] = {}
    for variant in VARIANTS:
        try:
            fits[variant] = compare(assign(*variant, members, numbers), live)
        except AssignmentRefusedError as error:
            refused[variant] = error.message
    holders = {claim.member for claim in live.values() if claim.member is not None}
    may_run = {
        member: tuple(
            variant
            for variant in VARIANTS
            if (member not in holders if variant in refused else _accounts(fits[variant], member, member in holders))
        )
        for member in members
    }
    if not live or not fits:
        return StrategyInference(refused=refused, ranked=tuple(fits), may_run=may_run)

    def rank(variant: Variant) -> tuple[bool, int, int]:
        fit = fits[variant]
        return fit.differences > 0, -len(holders - fit.apart), fit.differences  # equal ones keep their order

    ranked = tuple(sorted(fits, key=rank))
    best = ranked[0]
    fit = fits[best]
    return StrategyInference(
        exact=tuple(variant for variant in ranked if fits[variant].differences == 0),
        best=best,
        differences=fit.differences,
        deviating=tuple(sorted(member for member in members if best not in may_run[member])),
        refused=refused,
        ranked=ranked,
        blocked=tuple(sorted((fit.apart & fit.blocked & members.keys()) - holders)),
        may_run=may_run,
        following=tuple(sorted(holders - fit.apart)),
    )


def _accounts(fit: Fit, member: str, owns_any: bool) -> bool:
    return member not in fit.apart or (not owns_any and member in fit.blocked)


def compare(plan: Assignment, live: Mapping[TopicPartition, GroupPartition]) -> Fit:
    """Compare the live owners with a plan. Owners that are swapped within a tie of hash codes do not differ."""
    tied = {pair for group in plan.ties for pair in group}
    differences = 0
    apart: set[str | None] = set()
    blocked: set[str | None] = set()
    for pair, thread in plan.owners.items():
        claim = live.get(pair)
        if pair in tied or is_same_owner(claim, thread):
            continue
        differences += 1
        apart.add(thread.consumer_id)
        if claim is not None:
            apart.add(claim.member)
            if claim.member != thread.consumer_id:
                blocked.add(thread.consumer_id)
    for pair in live.keys() - plan.owners.keys():
        differences += 1
        apart.add(live[pair].member)
    for group in plan.ties:
        wanted = Counter(plan.owners[pair].consumer_id for pair in group)
        owned = Counter(live[pair].member for pair in group if pair in live)
        owners = Counter({member: count for member, count in owned.items() if member is not None})
        differences += len(group) - (wanted & owners).total()
        short = wanted - owners
        apart |= short.keys() | (owners - wanted).keys()
        # In which order a member deals these is not known, so that any of them may be in its share.
        blocked |= {member for member in short if owned.total() > owned[member]}
    return Fit(
        differences,
        frozenset(member for member in apart if member is not None),
        frozenset(member for member in blocked if member is not None),
    )


def is_same_owner(claim: GroupPartition | None, thread: tuple[str, int]) -> bool:
    """Whether a live owner is the planned thread; one that names no stream is compared by its member."""
    return claim is not None and claim.member == thread[0] and claim.stream in (None, thread[1])
