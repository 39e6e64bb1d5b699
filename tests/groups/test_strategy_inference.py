"""Which strategy and release the live owners of a group come from, and who deviates: pure."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from lines import names
from plans import (
    Members,
    Partitions,
    claims,
    equal_members,
    members_of_a_group,
    partitions_of_topics,
    planned,
    snapshot,
    variants,
)

from zkgroup.errors import AssignmentRefusedError
from zkgroup.groups.assignment.assignment_plan import choose, find_misfits
from zkgroup.groups.assignment.strategy_inference import (
    VARIANTS,
    StrategyInference,
    Variant,
    infer_strategy,
    infer_strategy_from_claims,
)
from zkgroup.groups.assignment.what_if import Choice, Scenario, plan_all
from zkgroup.protocol.assignors import Assignment
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.znodes import Registration

RANGE, NEW, OLD, MIDDLE = VARIANTS


@given(members_of_a_group, partitions_of_topics, variants)
def test_the_variant_that_made_a_plan_is_found(members: Members, partitions: Partitions, variant: Variant) -> None:
    """Of owners that are a variant's plan, it is among the exact ones, and nobody deviates from the best."""
    plan = _plan(variant, members, partitions)
    found = infer_strategy_from_claims(members, partitions, claims(plan))
    assert variant in found.exact
    assert found.best == found.exact[0]
    assert (found.differences, found.deviating, found.blocked) == (0, (), ())
    assert set(found.following) == {thread.consumer_id for thread in plan.owners.values()}


@given(members_of_a_group, partitions_of_topics, variants, st.randoms(use_true_random=False))
def test_members_that_lost_their_shares_deviate(
    members: Members, partitions: Partitions, variant: Variant, choose: random.Random
) -> None:
    """Where some hold nothing of a plan although it is free, the others still tell the plan, and they are named."""
    plan = _plan(variant, members, partitions)
    holders = sorted({thread.consumer_id for thread in plan.owners.values()})
    assume(len(holders) > 1)
    lost = set(choose.sample(holders, choose.randrange(1, len(holders))))
    live = {pair: claim for pair, claim in claims(plan).items() if claim.member not in lost}
    found = infer_strategy_from_claims(members, partitions, live)
    assert set(found.following) == set(holders) - lost
    plain = not plan.ties  # within a tie nobody knows whose share is free
    for member in lost if plain else ():
        assert variant not in found.may_run[member]
    for member in set(holders) - lost:
        assert variant in found.may_run[member]
    # Another variant may account for what is left just as well, and then for more of it.
    assert found.differences <= len(plan.owners) - len(live)
    if found.best == variant:
        assert set(found.deviating) == lost if plain else set(found.deviating) <= lost


@given(
    members_of_a_group | equal_members,
    partitions_of_topics,
    st.lists(variants, min_size=5, max_size=5),
    st.randoms(use_true_random=False),
)
def test_what_members_run_is_never_ruled_out(
    members: Members, partitions: Partitions, run: list[Variant], choose: random.Random
) -> None:
    """In every state that a mix can come to, each member's own variant is among those that it may run."""
    own = dict(zip(sorted(members), run, strict=False))
    scenario = Scenario(
        {member: Registration("static", topics, 1) for member, topics in members.items()},
        frozenset(partitions),
        {topic: tuple(numbers) for topic, numbers in partitions.items()},
    )
    plan = plan_all(scenario, Choice(RANGE), {member: Choice(variant) for member, variant in own.items()})
    outcome = choose.choice(plan.outcomes)
    found = infer_strategy_from_claims(members, partitions, claims(Assignment(dict(outcome.owners))))
    for member, variant in own.items():
        assert variant in found.may_run[member]


def test_a_swap_within_a_tie_is_no_difference() -> None:
    """``Aa-0`` and ``BB-0`` have one hash code: the Scala consumer may deal them either way."""
    members = {"g_a": {"Aa": 1, "BB": 1}, "g_b": {"Aa": 1, "BB": 1}}
    partitions = {"Aa": range(3), "BB": range(3)}
    plan = planned(NEW, members, partitions)
    live = claims(plan)
    first, second = TopicPartition("Aa", 1), TopicPartition("BB", 1)
    live[first], live[second] = live[second], live[first]
    assert live != claims(plan)
    assert infer_strategy_from_claims(members, partitions, live).exact == (NEW, OLD, MIDDLE)
    live[first] = live[second]
    found = infer_strategy_from_claims(members, partitions, live)
    assert found.exact == ()
    assert found.differences == 1


def test_a_share_within_a_tie_may_be_blocked() -> None:
    """Who deals one of two tied partitions to itself may have wanted the other: no reason to call it a deviator."""
    members = {"g_a": {"Aa": 1, "BB": 1}, "g_b": {"Aa": 1, "BB": 1}}
    partitions = {"Aa": range(1), "BB": range(1)}
    live = claims(planned(NEW, members, partitions).of("g_a"))
    found = infer_strategy_from_claims(members, partitions, live)
    assert NEW in found.may_run["g_b"]
    assert found.following == ("g_a",)


@given(equal_members, partitions_of_topics, st.randoms(use_true_random=False))
def test_ties_may_be_dealt_in_any_order(members: Members, partitions: Partitions, choose: random.Random) -> None:
    """However the owners stand within the ties of a plan, it is that plan."""
    plan = planned(NEW, members, partitions)
    live = claims(plan)
    for tie in plan.ties:
        dealt = [live[pair] for pair in tie]
        choose.shuffle(dealt)
        live.update(zip(tie, dealt, strict=True))
    found = infer_strategy_from_claims(members, partitions, live)
    assert NEW in found.exact or not live
    assert found.deviating == ()


@pytest.mark.parametrize("winner", ["g_a", "g_b"])
def test_range_with_roundrobin(winner: str) -> None:
    """Two members and 24 partitions: one has its 12, and what it has shows what both run."""
    members = {"g_a": {"t": 1}, "g_b": {"t": 1}}
    partitions = {"t": range(24)}
    variant, loser = (RANGE, "g_b") if winner == "g_a" else (NEW, "g_a")
    share = planned(variant, members, partitions).of(winner)
    found = infer_strategy_from_claims(members, partitions, claims(share))
    assert (found.exact, found.best, found.differences) == ((), variant, 12)
    assert (found.following, found.deviating, found.blocked) == ((winner,), (loser,), ())
    assert variant not in found.may_run[loser]


def test_the_majority_tells_who_deviates() -> None:
    """Of three, the two that hold their shares of one plan make it the best; the third, blocked, is named."""
    members = {f"g_{name}": {"t": 1} for name in "abc"}
    partitions = {"t": range(24)}
    plan = planned(NEW, members, partitions)
    live = {pair: claim for pair, claim in claims(plan).items() if claim.member != "g_c"}
    found = infer_strategy_from_claims(members, partitions, live)
    assert (found.best, found.deviating, found.differences) == (NEW, ("g_c",), 8)
    assert RANGE in found.may_run["g_c"]  # its range share is taken by the others
    assert NEW not in found.may_run["g_c"]  # this one is free


def test_a_foreign_owner_blocks_a_member_that_does_not_deviate() -> None:
    """A member whose share an owner that is not registered keeps is blocked; it runs what the others run."""
    members = {"g_a": {"t": 1}, "g_b": {"t": 1}}
    partitions = {"t": range(8)}
    owners = {pair: str(thread) for pair, thread in planned(RANGE, members, partitions).of("g_a").items()}
    owners[TopicPartition("t", 7)] = "g_gone-0"
    found = infer_strategy(snapshot(members, partitions, owners))
    assert (found.best, found.following) == (RANGE, ("g_a",))
    assert (found.blocked, found.deviating) == (("g_b",), ())


def test_owners_that_name_no_stream_are_compared_by_their_member() -> None:
    """Foreign clients write the bare member id as the owner."""
    members = {"g_a": {"t": 2}, "g_b": {"t": 2}}
    plan = planned(RANGE, members, {"t": range(8)})
    owners = {pair: thread.consumer_id for pair, thread in plan.owners.items()}
    found = infer_strategy(snapshot(members, {"t": range(8)}, owners))
    assert found.exact == (RANGE,)


def test_another_stream_of_the_same_member_is_a_difference() -> None:
    """The owner node names the stream, and the plan does."""
    members = {"g_a": {"t": 2}}
    owners = {TopicPartition("t", 0): "g_a-1", TopicPartition("t", 1): "g_a-0"}
    found = infer_strategy(snapshot(members, {"t": range(2)}, owners))
    assert found.exact == ()
    assert (found.differences, found.deviating) == (2, ("g_a",))


def test_releases_that_refuse() -> None:
    """Where topics differ roundrobin up to 0.10.1 has no plan; a group of it owns nothing, and no more is known."""
    members = {"g_a": {"t": 1}, "g_b": {"u": 1}}
    found = infer_strategy(snapshot(members, {"t": range(3), "u": range(3)}, {}))
    assert set(found.refused) == {OLD}
    assert names(found.refused[OLD], "roundrobin", "t", "u")
    assert (found.exact, found.best, found.deviating) == ((), None, ())
    assert OLD in found.may_run["g_a"]


def test_a_registration_that_cannot_be_read_is_left_out() -> None:
    """The others are planned without it, and it is no deviator."""
    members = {"g_a": {"t": 1}}
    owners = {TopicPartition("t", n): "g_a-0" for n in range(2)}
    found = infer_strategy(snapshot(members, {"t": range(2)}, owners, errors={"g_broken": "no JSON"}))
    assert found.exact == VARIANTS
    assert found.deviating == ()


def test_a_group_without_anything() -> None:
    """No members, nothing owned: nothing to explain."""
    found = infer_strategy(snapshot({}, {"t": range(2)}, {}))
    assert found == StrategyInference(ranked=VARIANTS)


@pytest.mark.parametrize(
    ("taken", "internal"),
    [
        (("t",), {"__consumer_offsets", "__transaction_state"}),
        (("t", "__transaction_state"), {"__consumer_offsets"}),
        (("t", "__transaction_state", "__consumer_offsets"), set()),
    ],
)
def test_older_releases_leave_out_less(taken: tuple[str, ...], internal: set[str]) -> None:
    """A filter of 0.8.2 takes ``__transaction_state``, one of 0.8.1 also ``__consumer_offsets``: no difference then."""
    partitions = dict.fromkeys(("t", "__consumer_offsets", "__transaction_state"), range(3))
    members = {name: dict.fromkeys(taken, 1) for name in ("g_a", "g_b")}
    owners = {pair: str(thread) for pair, thread in planned(RANGE, members, partitions).owners.items()}
    registration = Registration("white_list", {".*": 1}, 1)
    as_read = snapshot({name: {"t": 1} for name in members}, partitions, owners)
    group = replace(
        as_read,
        members=tuple(replace(member, registration=registration) for member in as_read.members),
        partitions=tuple(replace(partition, exists=True) for partition in as_read.partitions),
    )
    found = infer_strategy(group)
    assert found.internal == internal
    assert RANGE in found.exact
    choice = choose(found, None, None)
    assert (choice.variant, choice.internal) == (RANGE, internal)
    assert find_misfits(group, [choice]) == []


def test_leftovers_count_as_differences() -> None:
    """An owner node of a topic that nobody subscribes to is in no plan."""
    members = {"g_a": {"t": 1}}
    owners = {TopicPartition("t", 0): "g_a-0", TopicPartition("old", 0): "g_a-0"}
    found = infer_strategy(snapshot(members, {"t": range(1), "old": range(1)}, owners))
    assert (found.exact, found.differences, found.deviating) == ((), 1, ("g_a",))


def _plan(variant: Variant, members: Members, partitions: Partitions) -> Assignment:
    try:
        plan = planned(variant, members, partitions)
    except AssignmentRefusedError:
        assume(False)
        raise
    assume(plan.owners)
    return plan
