"""Findings, diagnosed on groups made by hand: for each kind what is found, how bad it is, and what is none."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from broken_groups_by_hand import ALONE, CASES, JUST_NOW, LONG_AGO, TWO, UNREAD, Case, in_kafka, unreadable_filter
from diagnosed_groups import (
    DAY,
    GROUP,
    NOW,
    SECOND,
    THEN,
    codes,
    filtering,
    findings_of,
    found,
    group,
    having,
    healthy,
    inactive,
    kafka,
    lines,
    member,
    owned,
    stored,
    topic,
)
from lines import names

from zkgroup.groups.assignment.strategy_inference import infer_strategy
from zkgroup.groups.findings.finding_kinds import KINDS, SEVERITIES
from zkgroup.groups.findings.inspection import diagnose
from zkgroup.groups.group_model import (
    GroupSnapshot,
    NodeProblem,
)
from zkgroup.protocol.names import TopicPartition


@pytest.mark.parametrize(("code", "case"), CASES, ids=[f"{code}-{case[0]}-{n}" for n, (code, case) in enumerate(CASES)])
def test_what_is_found(code: str, case: Case) -> None:
    """Each kind of finding, at each severity that it can have, with its subject and what its message names."""
    severity, subject, facts, snapshot = case
    finding = found(snapshot, code)
    assert (finding.severity, finding.subject) == (severity, subject)
    assert names(finding.message, *facts)
    assert finding.remedy or names(found(snapshot, "unexplained-owners").message, code, subject)


def test_every_kind_has_a_case() -> None:
    """No kind is left out above, but for lag, which takes two snapshots; and what only grows quieter with age."""
    shown = {(code, case[0]) for code, case in CASES}
    assert {code for code, _ in shown} == KINDS.keys() - {"growing-lag"}
    aged = {"unreadable-offset", "recreated-topic", "offset-before-start", "offset-beyond-end"}
    aged |= {"offset-of-missing-topic", "offset-of-missing-partition"}
    elsewhere = {
        ("subscription-disagreement", "warning"),
        ("unexplained-owners", "info"),
        ("topic-marked-for-deletion", "info"),
        ("surplus-streams", "warning"),
    }
    declared = {(code, severity) for code, kind in KINDS.items() for severity in kind.severities}
    left = {(code, severity) for code, severity in declared - shown - elsewhere if code not in aged}
    assert left == {("growing-lag", "warning"), ("growing-lag", "info")}


@pytest.mark.parametrize("snapshot", [TWO, ALONE, inactive(), group(), healthy(7)])
def test_healthy_groups_have_none(snapshot: GroupSnapshot) -> None:
    """Groups that are as they should be have no finding at all."""
    assert findings_of(snapshot) == []


def test_findings_are_sorted_worst_first() -> None:
    """Criticals, then warnings, then infos; within them causes before effects; the same list every time."""
    bad = replace(having(having(UNREAD, 0, stored=stored(120)), 1, stored=stored(3)), broker_ids=())
    findings = findings_of(
        replace(bad, problems=(NodeProblem("/x", "is no JSON"),), members=(member("g_a", {"orders": 9}),))
    )
    ranks = [SEVERITIES.index(finding.severity) for finding in findings]
    assert ranks == sorted(ranks)
    assert findings[0].code == "cluster-without-broker"
    assert len(set(ranks)) == 3
    assert findings[0].severity == "critical"
    shuffled = list(bad.partitions)
    random.Random(1).shuffle(shuffled)
    assert findings_of(replace(bad, partitions=tuple(shuffled))) == findings_of(bad)


# --- when a gap is none -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda s, at: having(s, 0, since=at),
        lambda s, at: having(s, 1, stored=stored(50, at)),
        lambda s, at: replace(s, members=(replace(s.members[0], created_at=at),)),
        lambda s, at: replace(s, topics={"orders": topic("orders", 2, created_at=at)}),
        lambda s, at: replace(s, topics={"orders": topic("orders", 2, changed_at=at)}),
    ],
)
def test_a_gap_is_distinguished_from_a_rebalance_by_node_times(
    change: Callable[[GroupSnapshot, int], GroupSnapshot],
) -> None:
    """Whatever makes a group rebalance excuses a gap for ten seconds, and no longer."""
    young = codes(change(UNREAD, JUST_NOW))
    assert "rebalance-in-progress" in young
    assert "partition-without-owner" not in young
    old = codes(change(UNREAD, LONG_AGO))
    assert "partition-without-owner" in old
    assert "rebalance-in-progress" not in old


def test_the_clock_of_members_does_not_excuse_a_gap() -> None:
    """What a member wrote as its time is not read: its clock may be an hour ahead."""
    members = (replace(UNREAD.members[0], registered_at=NOW + 3600 * SECOND),)
    assert "partition-without-owner" in codes(replace(UNREAD, members=members))


def test_a_clock_that_is_behind_zookeepers() -> None:
    """Ages are counted from the newest time seen in ZooKeeper where this machine's clock is behind it."""
    assert "partition-without-owner" in codes(replace(UNREAD, taken_at=THEN - DAY, last_change=NOW))


def test_an_earlier_snapshot_dates_what_left_no_time() -> None:
    """A member that left changes who is there, and no time: with a snapshot of five seconds ago it is a rebalance."""
    before = replace(TWO, taken_at=NOW - 5 * SECOND)
    left = group(TWO.members[:1], [owned("orders", n, None) for n in range(4)])
    assert "partition-without-owner" in codes(left)
    assert codes(left, before) & {"partition-without-owner", "rebalance-in-progress"} == {"rebalance-in-progress"}


def test_a_gap_in_two_snapshots_is_none_of_a_rebalance() -> None:
    """A group that rebalances without end has its gaps reported: what nobody owned 30 s ago either is unread."""
    now, before = having(UNREAD, 0, since=JUST_NOW), replace(UNREAD, taken_at=NOW - 30 * SECOND)
    assert found(now, "partition-without-owner", before).severity == "critical"


def test_a_young_group_that_has_settled_is_not_rebalancing() -> None:
    """A rebalance is reported only while something is out of place."""
    partitions = tuple(replace(p, since=JUST_NOW) for p in TWO.partitions)
    assert findings_of(replace(TWO, partitions=partitions)) == []


def test_kafka_tells_of_its_own_rebalances() -> None:
    """A coordinator that is preparing a rebalance says so, and nothing is made of its gaps."""
    preparing = in_kafka(TopicPartition("orders", 0), state="PreparingRebalance")
    assert codes(inactive(coordinator=preparing)) == {"rebalance-in-progress"}


# --- strategies -------------------------------------------------------------------------------------------------------


def test_a_mix_of_strategies_names_who_deviates() -> None:
    """Owners that are nobody's plan: the nearest one is named, and the member that is not of it with what it owns."""
    finding = found(having(TWO, 1, owner="g_b-0", member="g_b"), "unexplained-owners")
    assert lines(finding) == ("zkgroup assign g --strategy range",)
    assert names(finding.message, "range", 1, "g_a", 1, "g_b", 3)


def test_an_owner_of_what_nobody_subscribes_to_is_no_mix() -> None:
    """The node that a member left behind has a finding; the owners are the plan of a strategy, but for it."""
    left = owned("other", 0, "g_gone-0", member=None, session_id=0)
    assert codes(replace(TWO, partitions=(*TWO.partitions, left))) >= {"persistent-owner", "owner-without-registration"}
    assert "unexplained-owners" not in codes(replace(TWO, partitions=(*TWO.partitions, left)))


def test_a_consumer_in_kafka_that_is_no_member() -> None:
    """Two snapshots of a group that no member has ever joined show its commits; others' do not."""
    simple = replace(inactive(), coordinator=in_kafka(state="Empty", is_simple=True))
    now, before = having(simple, 1, kafka=kafka(60)), having(simple, 1, kafka=kafka(50))
    one = found(now, "unregistered-commits", before)
    assert names(one.message, 1, "Kafka")
    joined = replace(now, coordinator=in_kafka(state="Empty"))
    for snapshot, earlier in ((now, now), (now, None), (joined, before)):
        assert "unregistered-commits" not in codes(snapshot, earlier)


def test_foreign_clients_are_no_mix() -> None:
    """Clients with rules of their own are reported as what they are, not as a fault."""
    members = [member(name, {"orders": 1}) for name in ("h:1", "h:2")]
    partitions = [owned("orders", n, owner="h:1", member="h:1", stream=None) for n in range(3)]
    partitions.append(owned("orders", 3, owner="h:2", member="h:2", stream=None))
    findings = findings_of(group(members, partitions))
    assert {(finding.code, finding.severity) for finding in findings} == {
        ("unexplained-owners", "info"),
        ("foreign-client", "info"),
    }


def test_what_a_filter_takes_of_internal_topics_is_its_own_business() -> None:
    """exclude.internal.topics is in no registration: owners of such topics are neither unregistered nor a mix."""
    partitions = [*ALONE.partitions, owned("__consumer_offsets", 0)]
    assert findings_of(group([filtering("g_a", ".*", {"orders": 1})], partitions)) == []
    assert "owner-without-subscription" in codes(group(ALONE.members, partitions))


def test_members_that_cannot_be_read_make_no_mix() -> None:
    """Where a member's topics are not known, nobody can say whose plan the owners are."""
    members = (*TWO.members, unreadable_filter("(a*)*b", "takes too much work"))
    crossed = having(replace(TWO, members=members), 1, owner="g_b-0", member="g_b")
    assert codes(crossed) == {"unreadable-filter"}


def test_a_topic_that_cannot_be_read_is_not_called_leaderless() -> None:
    """Its leaders are not known; that its node is broken is said once."""
    unknown = having(having(ALONE, 0, leader=None, log_end=None), 1, leader=None, log_end=None)
    assert codes(
        replace(
            unknown, topics={"orders": topic("orders", 0, error=NodeProblem("/brokers/topics/orders", "is no JSON"))}
        )
    ) == {"unreadable-node"}


def test_a_damaged_topic_goes_before_what_follows_from_it() -> None:
    """Where members fail on a topic's node, that leads, and nothing else advises a rebalance."""
    error = NodeProblem("/brokers/topics/orders", "is no JSON object", is_malformed=True)
    findings = findings_of(replace(UNREAD, topics={"orders": topic("orders", 0, error=error)}))
    critical = [f for f in findings if f.severity == "critical"]
    assert [f.code for f in critical[:2]] == ["unreadable-node", "partition-without-owner"]
    assert not any("assign" in command for f in findings for command in f.commands)


def test_a_zombie_is_to_go_before_members_try_again() -> None:
    """Where an unregistered member owns a partition, the members that own nothing cannot help it."""
    zombie = having(having(TWO, 2, owner="g_z-0", member=None, stream=None), 3, owner=None, member=None)
    idle = found(zombie, "member-without-partitions")
    assert (idle.subject, idle.commands) == ("g_b", ())
    assert idle.remedy == found(zombie, "partition-without-owner").remedy
    assert found(zombie, "owner-without-registration").subject == "orders-2"


def test_range_does_not_mind_different_topics() -> None:
    """Subscriptions that differ are none of range's business; under roundrobin they are a warning."""
    two = [member("g_a", {"orders": 1}), member("g_b", {"bills": 1})]
    assert findings_of(group(two, [owned("orders", 0), owned("bills", 0, "g_b-0")])) == []
    circle = infer_strategy(group(two, [owned("orders", 0), owned("bills", 0, "g_b-0")]))
    newer = replace(circle, best=next(v for v in circle.exact if v.strategy == "roundrobin"))
    findings = diagnose(group(two, [owned("orders", 0), owned("bills", 0, "g_b-0")]), newer)
    assert [(f.code, f.severity) for f in findings] == [("subscription-disagreement", "warning")]


def test_a_member_that_holds_nothing_while_all_is_read_stands_by() -> None:
    """A spare member is no fault where nothing is unread."""
    spare = replace(ALONE, members=(*ALONE.members, member("g_b", {"orders": 1}), member("g_c", {"orders": 1})))
    two = tuple(
        replace(p, owner=f"{name}-0", member=name) for p, name in zip(spare.partitions, ("g_a", "g_b"), strict=True)
    )
    assert codes(replace(spare, partitions=two)) == {"surplus-streams"}


def test_many_topics_with_surplus_streams_are_reported_once() -> None:
    """A filter's four streams over a hundred topics of one partition are one line, not a hundred."""
    topics = {f"t{n}": 4 for n in range(100)}
    partitions = [owned(name, 0) for name in topics]
    finding = found(group([member("g_a", topics)], partitions), "surplus-streams")
    assert (finding.subject, finding.severity) == (GROUP, "info")
    assert names(finding.message, 100)


def test_a_registration_with_absurdly_many_streams_is_a_warning() -> None:
    """More streams than any member of the Scala consumer could plan for are no spare ones."""
    many = replace(ALONE, members=(member("g_a", {"orders": 10**9}),))
    assert found(many, "surplus-streams").severity == "warning"
