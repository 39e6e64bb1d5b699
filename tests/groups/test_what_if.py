"""A group as it would be, every outcome where its members disagree, and the plan compared with the live owners:
pure."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lines import names
from plans import (
    Members,
    Partitions,
    claims,
    equal_members,
    members_of_a_group,
    partitions_of_topics,
    snapshot,
    variants,
)

from zkgroup.errors import AssignmentRefusedError, NotFoundError, UsageError
from zkgroup.groups.assignment.assignment_plan import (
    accepted,
    choice_of,
    choose,
    find_misfits,
    nearest,
    present_conflicts,
    rows_of,
    shares_of,
)
from zkgroup.groups.assignment.strategy_inference import (
    VARIANTS,
    StrategyInference,
    Variant,
    compare,
    infer_strategy_from_claims,
    owned_now,
)
from zkgroup.groups.assignment.what_if import (
    Choice,
    Scenario,
    find_member,
    holder_sets,
    plan_all,
    scenario_of,
    with_member,
    with_partitions,
    with_streams,
    without_member,
)
from zkgroup.protocol.assignors import Assignment, Strategy, assign
from zkgroup.protocol.names import ConsumerThreadId, TopicPartition
from zkgroup.protocol.znodes import Registration

RANGE, NEW, OLD, MIDDLE = (Choice(variant) for variant in VARIANTS)


def scenario(members: Members, partitions: Partitions) -> Scenario:
    return Scenario(
        {member: Registration("static", topics, 1) for member, topics in members.items()},
        frozenset(partitions),
        {topic: tuple(numbers) for topic, numbers in partitions.items()},
    )


def pairs(topic: str, *numbers: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, number) for number in numbers)


# --- plans and outcomes ---------------------------------------------------------------------------------------------


@given(members_of_a_group | equal_members, partitions_of_topics, variants)
def test_members_that_agree_have_one_outcome(members: Members, partitions: Partitions, variant: Variant) -> None:
    """It is the strategy's plan, and nothing is unread; or all refuse, and everything is."""
    plan = plan_all(scenario(members, partitions), Choice(variant))
    (outcome,) = plan.outcomes
    owners, refusal = _planned(variant, members, partitions)
    assert outcome.owners == owners
    assert plan.more is False
    if refusal is None:
        assert (outcome.unread, outcome.losers, plan.conflicts) == ((), (), ())
    else:
        assert outcome.unread == plan.wanted
        assert [(each.kind, str(each.notice)) for each in plan.conflicts] == [("refused", refusal)]
        assert plan.conflicts[0].members == tuple(sorted(members))


def _planned(
    variant: Variant, members: Members, partitions: Partitions
) -> tuple[dict[TopicPartition, ConsumerThreadId], str | None]:
    """The owners, and why there are none where the strategy refuses."""
    try:
        return assign(*variant, members, partitions).owners, None
    except AssignmentRefusedError as refusal:
        return {}, str(refusal)


@given(members_of_a_group | equal_members, partitions_of_topics, st.lists(variants, min_size=5, max_size=5))
def test_outcomes_of_a_mix_are_those_of_the_rules(members: Members, partitions: Partitions, run: list[Variant]) -> None:
    """Read literally: all maximal sets of members whose own shares of their own plans are disjoint, and the rest."""
    own = dict(zip(sorted(members), run, strict=False))
    shares = {
        member: Assignment(_planned(variant, members, partitions)[0]).of(member) for member, variant in own.items()
    }
    claiming = [member for member, share in shares.items() if share]
    every = chain.from_iterable(combinations(claiming, n) for n in range(len(claiming) + 1))
    disjoint = [set(some) for some in every if _disjoint([shares[member] for member in some])]
    maximal = [some for some in disjoint if not any(some < other for other in disjoint)]
    wanted = {TopicPartition(t, p) for topics in members.values() for t in topics for p in partitions[t]}

    plan = plan_all(scenario(members, partitions), RANGE, {member: Choice(each) for member, each in own.items()})
    assert sorted(outcome.holders for outcome in plan.outcomes) == sorted(tuple(sorted(some)) for some in maximal)
    assert not plan.more
    for outcome in plan.outcomes:
        assert outcome.owners == {p: t for member in outcome.holders for p, t in shares[member].items()}
        assert set(outcome.unread) == wanted - outcome.owners.keys()
        assert set(outcome.losers) >= set(claiming) - set(outcome.holders)
        assert not set(outcome.losers) & set(outcome.holders)


def _disjoint(shares: list[dict[TopicPartition, ConsumerThreadId]]) -> bool:
    return sum(map(len, shares)) == len({partition for share in shares for partition in share})


def test_range_with_roundrobin() -> None:
    """Two members, 24 partitions: one has 12, the other nothing, and 12 are unread; who, is a race."""
    group = scenario({"a": {"t": 1}, "b": {"t": 1}}, {"t": range(24)})
    plan = plan_all(group, RANGE, {"b": NEW})
    assert [(o.holders, o.losers, len(o.owners), len(o.unread)) for o in plan.outcomes] == [
        (("b",), ("a",), 12, 12),
        (("a",), ("b",), 12, 12),
    ]
    (claim,) = plan.conflicts
    assert (claim.kind, claim.members) == ("claim", ("a", "b"))
    assert set(claim.partitions) == plan.outcomes[0].owners.keys() & plan.outcomes[1].owners.keys()


def test_three_topics_of_one_partition() -> None:
    """Nobody clashes, nothing fails, and one partition is in no one's share; the other way round it is a race."""
    topics = ("t1", "t2", "t3")
    group = scenario({name: dict.fromkeys(topics, 1) for name in "ab"}, dict.fromkeys(topics, (0,)))
    plan = plan_all(group, RANGE, {"a": NEW})
    (outcome,) = plan.outcomes
    assert (outcome.holders, plan.conflicts) == (("a",), ())
    assert [str(pair) for pair in outcome.unread] == ["t2-0"]
    other = plan_all(group, RANGE, {"b": NEW})
    assert [(o.holders, [str(pair) for pair in o.unread]) for o in other.outcomes] == [
        (("a",), []),
        (("b",), ["t1-0", "t3-0"]),
    ]


def test_releases_that_hash_differently() -> None:
    """Roundrobin up to 0.11 with roundrobin of 1.0: some of 21 partitions are unread in every outcome."""
    group = scenario({"a": {"t": 1}, "b": {"t": 1}, "c": {"t": 1}}, {"t": range(21)})
    plan = plan_all(group, NEW, {"c": OLD})
    assert {len(outcome.unread) for outcome in plan.outcomes} <= set(range(1, 22))
    assert len(plan.outcomes) > 1


def test_the_old_refuse_the_new() -> None:
    """Unequal streams: a member of 0.8.2 refuses with one of 1.1.1, which has its share and no more."""
    group = scenario({"a": {"t": 1, "u": 2}, "b": {"t": 1, "u": 1}}, {"t": range(12), "u": range(9)})
    plan = plan_all(group, NEW, {"a": OLD})
    (outcome,) = plan.outcomes
    assert (outcome.holders, outcome.losers) == (("b",), ("a",))
    assert set(outcome.unread) == assign("roundrobin", "1.1", group.streams(), group.partitions).of("a").keys()
    assert [(each.kind, each.members) for each in plan.conflicts] == [("refused", ("a",))]
    both = plan_all(group, OLD)
    assert both.outcomes[0].unread == both.wanted


def test_releases_that_leave_out_other_topics() -> None:
    """What a filter takes depends on the release of who reads it: 0.10 knows one internal topic, 0.11 two."""
    names = ("t", "__consumer_offsets", "__transaction_state")
    group = Scenario({"a": Registration("white_list", {".*": 1}, 1)}, frozenset(names), dict.fromkeys(names, (0,)))
    assert [pair.topic for pair in plan_all(group, choice_of("range", "1.1.1")).wanted] == ["t"]
    assert [pair.topic for pair in plan_all(group, choice_of("range", "0.10.2.2")).wanted] == [
        "__transaction_state",
        "t",
    ]
    assert len(plan_all(group, choice_of("range", "0.8.1")).wanted) == 3


def test_more_outcomes_than_asked_for() -> None:
    """Eight pairs that clash have 256 outcomes; with fewer asked for, it is said that there are more."""
    members = [f"m{n:02}" for n in range(16)]
    clashes = [(f"m{n:02}", f"m{n + 1:02}") for n in range(0, 16, 2)]
    found, more = holder_sets(members, clashes, 256)
    assert (len(set(found)), more) == (256, False)
    assert {len(some) for some in found} == {8}
    assert holder_sets(members, clashes, 255)[1]
    assert holder_sets(members, clashes, 1) == ([frozenset(members[::2])], True)


def test_a_search_that_takes_too_long_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found by then is there, and that there may be more."""
    monkeypatch.setattr("zkgroup.groups.assignment.what_if._MAX_STEPS", 30)
    members = [f"m{n:02}" for n in range(16)]
    found, more = holder_sets(members, [(f"m{n:02}", f"m{n + 1:02}") for n in range(0, 16, 2)], 256)
    assert (0 < len(found) < 256, more) == (True, True)


def test_a_large_mix_comes_to_an_end() -> None:
    """Two hundred members, every second one of another release: as many outcomes as asked for, without delay."""
    group = scenario({f"m{n:03}": {"t": 1} for n in range(200)}, {"t": range(1000)})
    plan = plan_all(group, RANGE, {f"m{n:03}": NEW for n in range(0, 200, 2)}, max_outcomes=20)
    assert (len(plan.outcomes), plan.more) == (20, True)
    for outcome in plan.outcomes:
        assert len(outcome.owners) + len(outcome.unread) == 1000


# --- what would be --------------------------------------------------------------------------------------------------


def test_members_come_and_go() -> None:
    """Each change gives another scenario, and leaves the first as it was."""
    group = scenario({"g_a": {"t": 1}, "g_b": {"t": 2}}, {"t": range(6)})
    more = with_member(group, "g_c", Registration("static", {"t": 3}))
    assert plan_all(more, RANGE).streams == {"g_a": 1, "g_b": 2, "g_c": 3}
    fewer = without_member(more, find_member("a", "g", more.registrations))
    assert set(plan_all(fewer, RANGE).streams) == {"g_b", "g_c"}
    wider = with_streams(fewer, "g_b", 4)
    assert plan_all(wider, RANGE).streams == {"g_b": 4, "g_c": 3}
    assert plan_all(group, RANGE).streams == {"g_a": 1, "g_b": 2}


def test_partitions_are_added() -> None:
    """A topic grows, or comes to be: then filters that match it take it."""
    filters = {"g_a": Registration("white_list", {"t.*": 2})}
    group = Scenario(filters, frozenset({"t"}), {"t": (0, 1)})
    grown = with_partitions(with_partitions(group, "t", 4), "tt", 1)
    assert plan_all(grown, RANGE).wanted == (*pairs("t", 0, 1, 2, 3), *pairs("tt", 0))
    with pytest.raises(UsageError, match=r"\bt\b.*\b1\b"):
        with_partitions(group, "t", 1)
    with pytest.raises(UsageError, match=r"\bnew\b.*\b0\b"):
        with_partitions(group, "new", 0)


def test_a_member_is_found_by_either_name() -> None:
    """By its id, or by what follows the group's name in it; else it is said who is there."""
    assert find_member("g_a", "g", {"g_a", "a"}) == "g_a"
    assert find_member("a", "g", {"g_a"}) == "g_a"
    with pytest.raises(NotFoundError, match=r"'x'.*\bg_a, g_b\b"):
        find_member("x", "g", {"g_b", "g_a"})
    with pytest.raises(NotFoundError, match=r"\bg\b.*'x'"):
        find_member("x", "g", {})


# --- with the live owners -----------------------------------------------------------------------------------------


def test_every_kind_of_change() -> None:
    """Nothing, another member, another stream, nobody before, nobody after."""
    members = {"g_a": {"t": 2}, "g_b": {"t": 1}}
    owners = {
        TopicPartition("t", 0): "g_a-0",
        TopicPartition("t", 1): "g_b-0",
        TopicPartition("t", 2): "g_a-0",
        TopicPartition("t", 3): "g_a-1",
        TopicPartition("t", 5): "g_gone-0",
        TopicPartition("old", 0): "g_b-0",
    }
    group = snapshot(members, {"t": range(6)}, owners)
    plan = plan_all(scenario_of(group), RANGE)
    rows = rows_of(plan.assignment(plan.outcomes[0]), plan.wanted, owned_now(group))
    assert [(row.topic, row.partition, row.owner, row.current, row.change) for row in rows] == [
        ("old", 0, None, "g_b-0", "release"),
        ("t", 0, "g_a-0", "g_a-0", None),
        ("t", 1, "g_a-0", "g_b-0", "move"),
        ("t", 2, "g_a-1", "g_a-0", "stream"),
        ("t", 3, "g_a-1", "g_a-1", None),
        ("t", 4, "g_b-0", None, "claim"),
        ("t", 5, "g_b-0", "g_gone-0", "move"),
    ]
    shares = shares_of(rows, owned_now(group), plan.streams)
    assert [(s.member, s.now, s.planned, s.gains, s.loses, s.idle) for s in shares] == [
        ("g_a", 3, 4, 1, 0, 0),
        ("g_b", 2, 2, 2, 2, 0),
        ("g_gone-0", 1, 0, 0, 1, 0),
    ]
    (conflict,) = present_conflicts(group)
    assert (conflict.kind, conflict.partitions) == ("owner", pairs("t", 5))


@given(members_of_a_group, partitions_of_topics, variants, variants)
def test_rows_and_comparison_agree(members: Members, partitions: Partitions, live: Variant, other: Variant) -> None:
    """As many rows change as there are differences, and shares add up."""
    now = claims(Assignment(_planned(live, members, partitions)[0]))
    group = snapshot(members, partitions, {pair: f"{claim.member}-{claim.stream}" for pair, claim in now.items()})
    plan = plan_all(scenario_of(group), Choice(other))
    assignment = plan.assignment(plan.outcomes[0])
    rows = rows_of(assignment, plan.wanted, owned_now(group))
    different = sum(row.change not in (None, "tied") for row in rows)
    if not plan.ties:
        assert different == compare(assignment, now).differences
    assert nearest(plan, group)[1] == (compare(assignment, now).differences == 0)
    assert bool(find_misfits(group, [Choice(other)])) == (different > 0 or bool(plan.conflicts))
    shares = shares_of(rows, owned_now(group), plan.streams)
    assert sum(share.planned for share in shares) == len(assignment.owners)
    assert sum(share.now for share in shares) == len(now)
    for share in shares:
        assert share.now + share.gains - share.loses == share.planned
        assert 0 <= share.idle <= share.streams


def test_more_streams_than_partitions() -> None:
    """Whose streams stay without a partition is said."""
    group = scenario({"a": {"t": 2}, "b": {"t": 3}}, {"t": range(3)})
    plan = plan_all(group, RANGE)
    shares = shares_of(rows_of(plan.assignment(plan.outcomes[0]), plan.wanted, {}), {}, plan.streams)
    assert [(share.member, share.streams, share.idle) for share in shares] == [("a", 2, 0), ("b", 3, 2)]


def test_the_outcome_that_is_live_is_the_nearest() -> None:
    """Of a mix's outcomes the one that the owners show; without it the one with least unread."""
    members = {"g_a": {"t": 1}, "g_b": {"t": 1}}
    group = snapshot(members, {"t": range(24)}, {})
    plan = plan_all(scenario_of(group), RANGE, {"g_b": NEW})
    assert nearest(plan, group) == (plan.outcomes[0], False)
    for outcome in plan.outcomes:
        live = snapshot(members, {"t": range(24)}, {pair: str(thread) for pair, thread in outcome.owners.items()})
        assert nearest(plan, live) == (outcome, True)


# --- what to plan with ----------------------------------------------------------------------------------------------


def explained(variant: Variant, members: Members, partitions: Partitions) -> StrategyInference:
    return infer_strategy_from_claims(members, partitions, claims(assign(*variant, members, partitions)))


@pytest.mark.parametrize(
    ("live", "strategy", "release", "expected"),
    [
        (NEW, None, None, NEW.variant),
        (MIDDLE, None, None, MIDDLE.variant),
        (RANGE, None, None, RANGE.variant),
        (MIDDLE, "roundrobin", None, MIDDLE.variant),
        (MIDDLE, None, "0.11.0.3", MIDDLE.variant),
        (MIDDLE, "range", None, RANGE.variant),
        (MIDDLE, "range", "0.8.2.2", Variant("range", "0.8.2")),
        (MIDDLE, None, "0.8.1", Variant("range", "0.8.2")),
        (RANGE, "roundrobin", "1.0", NEW.variant),
    ],
)
def test_what_is_not_given_comes_from_the_live_owners(
    live: Choice, strategy: Strategy | None, release: str | None, expected: Variant
) -> None:
    """Strategy and release as given; what is not given is what explains the owners best."""
    members, partitions = {"a": {"t": 1, "orders": 2}, "b": {"t": 1}}, {"t": range(7), "orders": range(5)}
    assert choose(explained(live.variant, members, partitions), strategy, release).variant == expected


def test_without_owners_the_defaults_are_taken() -> None:
    """Range; roundrobin of the newest release, or that of the release that was given."""
    nothing = StrategyInference(ranked=VARIANTS)
    assert choose(nothing, None, None).variant == RANGE.variant
    assert choose(nothing, "roundrobin", None).variant == NEW.variant
    assert choose(nothing, "roundrobin", "0.9.0.1").variant == OLD.variant
    with pytest.raises(UsageError, match=r"0\.8\.1\.1.*\broundrobin\b"):
        choose(nothing, "roundrobin", "0.8.1.1")
    with pytest.raises(UsageError, match=r"2\.0"):
        choose(nothing, None, "2.0")


def test_what_is_free_may_be_anything() -> None:
    """After a rebalance owners of any strategy will do, unless one was given; of any release, likewise."""
    members, partitions = {"a": {"t": 1}, "b": {"t": 1}}, {"t": range(7)}
    found = explained(MIDDLE.variant, members, partitions)
    assert {each.variant for each in accepted(found, None, None)} == set(VARIANTS)
    assert accepted(found, None, None)[0].variant == found.best
    assert {each.variant for each in accepted(found, "roundrobin", None)} == set(VARIANTS[1:])
    assert [each.variant for each in accepted(found, "roundrobin", "1.1")] == [NEW.variant]
    assert [each.variant.strategy for each in accepted(found, None, "0.10.2")] == ["roundrobin", "range"]


def test_misfits_name_partitions_and_owners() -> None:
    """What is not as planned is said partition by partition; a registration that nobody gets past as well."""
    members = {"g_a": {"t": 1}, "g_b": {"t": 1}}
    owners = {TopicPartition("t", 0): "g_b-0", TopicPartition("old", 0): "g_b-0"}
    group = snapshot(members, {"t": range(2)}, owners, errors={"g_bad": "no JSON"})
    facts = [("g_bad", "no JSON"), ("old-0", "g_b-0"), ("t-0", "g_b-0", "g_a"), ("t-1", "g_b")]
    misfits = find_misfits(group, [RANGE, NEW])
    assert [names(text, *one) for text, one in zip(misfits, facts, strict=True)] == [True] * 4


def test_an_assignment_of_an_outcome_keeps_the_ties() -> None:
    """So that a swap of theirs is none when it is held against the live owners."""
    group = scenario({"a": {"Aa": 1, "BB": 1}, "b": {"Aa": 1, "BB": 1}}, {"Aa": range(2), "BB": range(2)})
    plan = plan_all(group, NEW)
    assignment: Assignment = plan.assignment(plan.outcomes[0])
    assert set(assignment.ties) == {(*pairs("Aa", n), *pairs("BB", n)) for n in range(2)}
    members: Mapping[str, Mapping[str, int]] = group.streams()
    swapped = {pair: str(thread) for pair, thread in assignment.owners.items()}
    first, second = assignment.ties[0]
    swapped[first], swapped[second] = swapped[second], swapped[first]
    live = snapshot(members, group.partitions, swapped)
    rows = rows_of(assignment, plan.wanted, owned_now(live))
    assert [row.change for row in rows if (row.topic, row.partition) in (first, second)] == ["tied", "tied"]
