"""The assignment strategies, by example and by what has for every registry."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkgroup.errors import AssignmentRefusedError, FilterSyntaxError, UsageError
from zkgroup.protocol import assignors
from zkgroup.protocol.assignors import (
    Assignment,
    Compat,
    Strategy,
    TopicSelections,
    assign,
    compat_of,
    extend_hash,
    resolve_all,
    signed,
    strategies_of,
)
from zkgroup.protocol.names import ConsumerThreadId, TopicPartition
from zkgroup.protocol.znodes import Registration

VARIANTS: list[tuple[Strategy, Compat]] = [
    ("range", "1.1"),
    ("roundrobin", "0.8.2"),
    ("roundrobin", "0.10.2"),
    ("roundrobin", "1.1"),
]
NAMES = st.sampled_from(["a", "b", "a-1", "a-11", "a.b_c", "T", "t", "0"])
MEMBERS = st.dictionaries(
    st.sampled_from(["c1", "c2", "c10", "c-1", "c-1-0", "g_host-1"]),
    st.dictionaries(NAMES, st.integers(1, 12), max_size=4),
    max_size=5,
)
PARTITIONS = st.dictionaries(NAMES, st.lists(st.integers(0, 50), max_size=20, unique=True), max_size=8)


def by_thread(plan: Assignment) -> dict[str, list[str]]:
    """Thread → its partitions, as text."""
    found: dict[str, list[str]] = {}
    for partition, thread in plan.owners.items():
        found.setdefault(str(thread), []).append(str(partition))
    return found


# --- examples


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (10, {"c1-0": range(4), "c2-0": range(4, 7), "c2-1": range(7, 10)}),
        (11, {"c1-0": range(4), "c2-0": range(4, 8), "c2-1": range(8, 11)}),
        (2, {"c1-0": range(1), "c2-0": range(1, 2)}),
    ],
)
def test_range_deals_runs_and_the_rest_to_the_first(count: int, expected: Mapping[str, range]) -> None:
    """The first P mod K threads get one partition more; threads beyond the partitions get none."""
    plan = assign("range", "1.1", {"c1": {"t": 1}, "c2": {"t": 2}}, {"t": range(count)})
    assert by_thread(plan) == {thread: [f"t-{p}" for p in numbers] for thread, numbers in expected.items()}


def test_range_takes_partitions_in_numeric_order() -> None:
    """Partitions are dealt by position in numeric order, whatever their order and their gaps."""
    plan = assign("range", "0.8.2", {"a": {"t": 1}, "b": {"t": 1}}, {"t": [30, 4, 10, 9]})
    assert by_thread(plan) == {"a-0": ["t-4", "t-9"], "b-0": ["t-10", "t-30"]}


def test_threads_are_sorted_as_strings() -> None:
    """Of twelve streams, number 10 and 11 come before number 2."""
    plan = assign("range", "1.1", {"c": {"t": 12}}, {"t": range(12)})
    assert [plan.owners[TopicPartition("t", p)].index for p in range(12)] == [0, 1, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9]


def test_roundrobin_goes_on_from_the_thread_that_took() -> None:
    """A skipped thread stays skipped: the circle goes on behind the one that took the partition."""
    members = {"a": {"t": 1}, "b": {"u": 1}, "c": {"t": 1, "u": 1}}
    partitions = {"t": [0, 1, 2], "u": [0, 1, 2]}
    # By hash code: t-0, t-1, t-2, u-0, u-1, u-2.
    plan = assign("roundrobin", "1.1", members, partitions)
    assert by_thread(plan) == {"a-0": ["t-0", "t-2"], "c-0": ["t-1", "u-1"], "b-0": ["u-0", "u-2"]}


def test_the_variants_hash_different_texts() -> None:
    """Up to 0.11 ``[topic,partition]`` is hashed, from 1.0 on ``topic-partition``: the plans differ."""
    members = {"a": {"t": 1, "orders": 1}, "b": {"t": 1, "orders": 1}}
    partitions = {"t": range(5), "orders": range(4)}
    plans = [assign("roundrobin", compat, members, partitions).owners for compat in ("0.8.2", "0.10.2", "1.1")]
    assert plans[0] == plans[1]
    assert plans[1] != plans[2]


@pytest.mark.parametrize(
    "members",
    [
        {"a": {"t": 1}, "b": {"t": 1, "u": 1}},
        {"a": {"t": 1, "u": 2}},
        {"a": {"t": 1}, "b": {"u": 1}},
        {"a": {"t": 2, "u": 2}, "b": {"t": 1, "u": 2}},
    ],
)
def test_the_precondition_of_old_roundrobin(members: Mapping[str, Mapping[str, int]]) -> None:
    """0.8.2 to 0.10.1 refuse unless all topics have the same threads; later releases and range take it."""
    partitions = {"t": [0, 1], "u": [0, 1]}
    with pytest.raises(AssignmentRefusedError) as caught:
        assign("roundrobin", "0.8.2", members, partitions)
    assert caught.value.remedy
    for strategy, compat in VARIANTS:
        if (strategy, compat) != ("roundrobin", "0.8.2"):
            assert len(assign(strategy, compat, members, partitions).owners) == 4


def test_members_may_differ_in_streams_under_old_roundrobin() -> None:
    """What must be equal is the set of threads topic by topic, not from member to member."""
    members = {"a": {"t": 2, "u": 2}, "b": {"t": 1, "u": 1}, "idle": {}}
    assert len(assign("roundrobin", "0.8.2", members, {"t": [0, 1], "u": [0]}).owners) == 3


@pytest.mark.parametrize(("strategy", "compat"), VARIANTS)
def test_nobody_reads_anything(strategy: Strategy, compat: Compat) -> None:
    """Without members, or with members that read nothing, or topics that are not there, nothing is owned."""
    assert assign(strategy, compat, {}, {"t": [0]}).owners == {}
    assert assign(strategy, compat, {"a": {}}, {"t": [0]}).owners == {}
    assert assign(strategy, compat, {"a": {"gone": 1}}, {"t": [0]}).owners == {}


def test_a_share() -> None:
    """``of`` gives one member's partitions with their threads."""
    plan = assign("range", "1.1", {"c": {"t": 1}, "c-0": {"t": 1}}, {"t": [0, 1]})
    assert plan.of("c") == {TopicPartition("t", 0): ConsumerThreadId("c", 0)}
    assert plan.of("c-0") == {TopicPartition("t", 1): ConsumerThreadId("c-0", 0)}
    assert plan.of("other") == {}


def test_ties_are_reported_and_broken_by_name() -> None:
    """Aa and BB hash alike: the plan says so, and deals them in order of topic and partition."""
    plan = assign("roundrobin", "1.1", {"c": {"Aa": 3, "BB": 3}}, {"BB": [0], "Aa": [0]})
    assert plan.ties == ((TopicPartition("Aa", 0), TopicPartition("BB", 0)),)
    assert by_thread(plan) == {"c-0": ["Aa-0"], "c-1": ["BB-0"]}


@pytest.mark.parametrize(
    ("release", "compat"),
    [
        ("0.8.0", "0.8.2"),
        ("0.8.1.1", "0.8.2"),
        ("0.8.2.2", "0.8.2"),
        ("0.9.0.1", "0.8.2"),
        ("0.10.1.1", "0.8.2"),
        ("0.10.2.0", "0.10.2"),
        ("0.11.0.3", "0.10.2"),
        ("1.0.0", "1.1"),
        ("1.1.1", "1.1"),
    ],
)
def test_releases_have_variants(release: str, compat: Compat) -> None:
    """Every release from 0.8.0 to 1.1.1 belongs to one variant; those before 0.8.2 know range only."""
    assert compat_of(release) == compat
    assert strategies_of(release) == (("range",) if release in ("0.8.0", "0.8.1.1") else ("range", "roundrobin"))


@pytest.mark.parametrize("release", ["0.7.2", "1.1.2", "2.0.0", "3.9.1", "latest", ""])
def test_other_releases_have_none(release: str) -> None:
    """A release without this consumer, or no release at all, is a usage error."""
    with pytest.raises(UsageError):
        compat_of(release)
    with pytest.raises(UsageError):
        strategies_of(release)


def test_absurd_numbers_of_streams() -> None:
    """Two thousand million streams: roundrobin is refused at once, and range makes no more threads than it needs."""
    members, partitions = {"c": {"t": 2**31 - 1}, "b": {"t": 1}}, {"t": range(5)}
    with pytest.raises(AssignmentRefusedError, match=r"\b2147483648\b"):
        assign("roundrobin", "1.1", members, partitions)
    plan = assign("range", "1.1", members, partitions)
    # As strings: 0, 1, 10, 100, 1000.
    expected = {"b-0": ["t-0"], "c-0": ["t-1"], "c-1": ["t-2"], "c-10": ["t-3"], "c-100": ["t-4"]}
    assert by_thread(plan) == expected


@given(members=MEMBERS, partitions=PARTITIONS)
def test_range_of_many_streams_is_range(members: dict[str, dict[str, int]], partitions: dict[str, list[int]]) -> None:
    """With few threads made, the plan is what it is with all of them."""
    plan = assign("range", "1.1", members, partitions)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assignors, "MAX_THREADS", -1)
        assert assign("range", "1.1", members, partitions) == plan


# --- what a registration asks for


def test_static_registrations_are_taken_as_they_are() -> None:
    """Internal topics and topics that do not exist are only filtered out of filters."""
    subscription = {"gone": 1, "__consumer_offsets": 2}
    assert TopicSelections(["t"]).streams(Registration("static", subscription)) == subscription


def test_filters_take_what_matches() -> None:
    """Every topic that a filter takes gets the registration's streams; internal ones as the reader has it."""
    topics = ["b", "a1", "a", "__consumer_offsets", "__transaction_state"]
    assert TopicSelections(topics).streams(Registration("white_list", {"a.*": 3})) == {"a": 3, "a1": 3}
    assert TopicSelections(topics).streams(Registration("black_list", {"a.*": 3})) == {"b": 3}
    old = TopicSelections(topics, internal={"__consumer_offsets"}).streams(Registration("black_list", {"a.*": 1}))
    assert old == {"__transaction_state": 1, "b": 1}
    everything = TopicSelections(topics, exclude_internal=False).streams(Registration("white_list", {".*": 1}))
    assert everything == dict.fromkeys(sorted(topics), 1)


def test_a_group_is_resolved_member_by_member() -> None:
    """``resolve_all`` selects for each, with a filter shared by members run once."""
    registrations = {
        "a": Registration("white_list", {"t.*": 1}),
        "b": Registration("white_list", {"t.*": 2}),
        "c": Registration("black_list", {"t.*": 1}),
        "d": Registration("static", {"x": 1}),
    }
    topics = ["t1", "t2", "x"]
    assert resolve_all(registrations, topics) == {
        m: TopicSelections(topics).streams(r) for m, r in registrations.items()
    }


def test_an_unreadable_filter_is_an_error() -> None:
    """An expression that Java refuses stops the group, so it is an error here as well."""
    with pytest.raises(FilterSyntaxError):
        TopicSelections(["t"]).streams(Registration("white_list", {"(": 1}))


# --- what has for every registry


@pytest.mark.parametrize(("strategy", "compat"), VARIANTS)
@given(members=MEMBERS, partitions=PARTITIONS)
def test_every_partition_has_one_owner_that_asked_for_it(
    strategy: Strategy, compat: Compat, members: dict[str, dict[str, int]], partitions: dict[str, list[int]]
) -> None:
    """All partitions of subscribed topics, no others, each owned by a thread that its member has for the topic."""
    try:
        plan = assign(strategy, compat, members, partitions)
    except AssignmentRefusedError:
        assert compat == "0.8.2"
        return
    subscribed = {topic for topics in members.values() for topic in topics}
    expected = {TopicPartition(t, p) for t in subscribed for p in partitions.get(t, ())}
    assert set(plan.owners) == expected
    for partition, thread in plan.owners.items():
        assert 0 <= thread.index < members[thread.consumer_id][partition.topic]
    shares = [plan.of(member) for member in members]
    assert sum(len(share) for share in shares) == len(plan.owners)


@pytest.mark.parametrize(("strategy", "compat"), VARIANTS)
@given(members=MEMBERS, partitions=PARTITIONS, data=st.data())
def test_the_order_of_the_input_does_not_matter(
    strategy: Strategy,
    compat: Compat,
    members: dict[str, dict[str, int]],
    partitions: dict[str, list[int]],
    data: st.DataObject,
) -> None:
    """Every member must come to the same plan, in whatever order it read the registry."""
    shuffled_members = {
        m: dict(data.draw(st.permutations(list(members[m].items())))) for m in data.draw(st.permutations(list(members)))
    }
    shuffled_partitions = {
        t: data.draw(st.permutations(partitions[t])) for t in data.draw(st.permutations(list(partitions)))
    }
    try:
        plan = assign(strategy, compat, members, partitions)
    except AssignmentRefusedError:
        with pytest.raises(AssignmentRefusedError):
            assign(strategy, compat, shuffled_members, shuffled_partitions)
        return
    assert assign(strategy, compat, shuffled_members, shuffled_partitions) == plan


@given(members=MEMBERS, partitions=PARTITIONS)
def test_range_is_even_and_dealt_in_runs(members: dict[str, dict[str, int]], partitions: dict[str, list[int]]) -> None:
    """Topic by topic, shares differ by one at most, and each thread's partitions lie together."""
    plan = assign("range", "1.1", members, partitions)
    for topic, numbers in partitions.items():
        owners = [plan.owners.get(TopicPartition(topic, p)) for p in sorted(numbers)]
        threads = sum(topics.get(topic, 0) for topics in members.values())
        if not threads or not owners:
            continue
        counts = Counter(owners)
        assert max(counts.values()) - (min(counts.values()) if len(counts) == threads else 0) <= 1
        runs = 1 + sum(one != other for one, other in pairwise(owners))
        assert runs == len(counts)


@given(st.integers(1, 5), st.integers(1, 12), st.lists(st.integers(0, 200), unique=True))
def test_roundrobin_is_even_where_all_are_alike(count: int, streams: int, numbers: list[int]) -> None:
    """With equal subscriptions the threads' shares differ by one at most."""
    plan = assign("roundrobin", "1.1", {f"c{i}": {"t": streams} for i in range(count)}, {"t": numbers})
    shares = [len(partitions) for partitions in by_thread(plan).values()]
    assert sum(shares) == len(numbers)
    assert max(shares, default=0) - (min(shares) if len(shares) == count * streams else 0) <= 1


# --- hash codes


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("a", 97),
        ("Aa", 2112),
        ("BB", 2112),
        ("[topic,0]", 2068025637),
        ("topic-0", -1139260654),
        ("polygenelubricants", -(2**31)),
        ("größe", 98762257),
        ("\U0001f600", 1772899),
    ],
)
def test_hash_codes_are_javas(text: str, code: int) -> None:
    """32 bits, signed, over UTF-16 units, as String.hashCode gives them."""
    assert signed(extend_hash(0, text)) == code


@given(st.text(), st.text())
def test_hashing_can_go_on(head: str, tail: str) -> None:
    """A hash can be taken up where a prefix left it."""
    assert extend_hash(extend_hash(0, head), tail) == extend_hash(0, head + tail)


# --- speed


@pytest.mark.parametrize(("strategy", "compat"), VARIANTS)
def test_large_groups_are_planned_in_about_a_second(strategy: Strategy, compat: Compat) -> None:
    """200 members with 4 streams each on 10,000 partitions take far less than 5 s of processor time."""
    partitions = {f"topic-{i}": range(20) for i in range(500)}
    members = {f"g_host{i}-1402-{i:08x}": dict.fromkeys(partitions, 4) for i in range(200)}
    started = time.process_time()
    assert len(assign(strategy, compat, members, partitions).owners) == 10_000
    assert time.process_time() - started < 5
