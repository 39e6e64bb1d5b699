"""Findings, judged on groups made by hand: for each kind what is found, how bad it is, and what is none."""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import typer
from broken_groups_by_hand import ALONE, CASES, JUST_NOW, LONG_AGO, TWO, UNREAD, Case, in_kafka, unreadable_filter
from judged import (
    DAY,
    GROUP,
    NOW,
    SECOND,
    THEN,
    codes,
    filtering,
    found,
    group,
    having,
    healthy,
    inactive,
    judged,
    kafka,
    member,
    owned,
    stored,
    topic,
)

from zkgroup.commands import app
from zkgroup.groups.explain import explain
from zkgroup.groups.findings import KINDS, SEVERITIES, judge, worst
from zkgroup.groups.model import (
    GroupSnapshot,
)
from zkgroup.protocol.names import TopicPartition


@pytest.mark.parametrize(("code", "case"), CASES, ids=[f"{code}-{case[0]}-{n}" for n, (code, case) in enumerate(CASES)])
def test_what_is_found(code: str, case: Case) -> None:
    """Each kind of finding, at each severity that it can have, with its subject and what is said."""
    severity, subject, said, snapshot = case
    finding = found(snapshot, code)
    assert (finding.severity, finding.subject) == (severity, subject)
    assert said in finding.message
    assert finding.remedy


def test_every_kind_has_a_case() -> None:
    """No kind is left out above, but for lag, which takes two looks; and what only grows quieter with age."""
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
    assert judged(snapshot) == []


def test_findings_are_sorted_worst_first() -> None:
    """Criticals, then warnings, then infos; within them causes before effects; the same list every time."""
    bad = replace(having(having(UNREAD, 0, stored=stored(120)), 1, stored=stored(3)), broker_ids=())
    findings = judged(replace(bad, problems=("znode /x is no JSON",), members=(member("g_a", {"orders": 9}),)))
    ranks = [SEVERITIES.index(finding.severity) for finding in findings]
    assert ranks == sorted(ranks)
    assert findings[0].code == "cluster-without-broker"
    assert len(set(ranks)) == 3
    assert worst(findings) == "critical"
    assert worst([]) is None
    shuffled = list(bad.partitions)
    random.Random(1).shuffle(shuffled)
    assert judged(replace(bad, partitions=tuple(shuffled))) == judged(bad)


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
def test_a_gap_is_told_from_a_rebalance_by_node_times(change: Callable[[GroupSnapshot, int], GroupSnapshot]) -> None:
    """Whatever makes a group rebalance excuses a gap for ten seconds, and no longer."""
    young = codes(change(UNREAD, JUST_NOW))
    assert "rebalance-in-progress" in young
    assert "partition-without-owner" not in young
    old = codes(change(UNREAD, LONG_AGO))
    assert "partition-without-owner" in old
    assert "rebalance-in-progress" not in old


def test_the_clock_of_members_does_not_excuse_a_gap() -> None:
    """What a member wrote as its time is not looked at: its clock may be an hour ahead."""
    members = (replace(UNREAD.members[0], registered_at=NOW + 3600 * SECOND),)
    assert "partition-without-owner" in codes(replace(UNREAD, members=members))


def test_a_clock_that_is_behind_zookeepers() -> None:
    """Ages are counted from the newest time seen in ZooKeeper where this machine's clock is behind it."""
    assert "partition-without-owner" in codes(replace(UNREAD, taken_at=THEN - DAY, last_change=NOW))


def test_an_earlier_look_dates_what_left_no_time() -> None:
    """A member that left changes who is there, and no time: beside a look of five seconds ago it is a rebalance."""
    before = replace(TWO, taken_at=NOW - 5 * SECOND)
    left = group(TWO.members[:1], [owned("orders", n, None) for n in range(4)])
    assert "partition-without-owner" in codes(left)
    assert codes(left, before) & {"partition-without-owner", "rebalance-in-progress"} == {"rebalance-in-progress"}


def test_a_gap_in_two_looks_is_none_of_a_rebalance() -> None:
    """A group that rebalances without end has its gaps told: what nobody owned 30 s ago either is unread."""
    now, before = having(UNREAD, 0, since=JUST_NOW), replace(UNREAD, taken_at=NOW - 30 * SECOND)
    assert "in two looks" in found(now, "partition-without-owner", before).message


def test_a_young_group_that_has_settled_is_not_rebalancing() -> None:
    """A rebalance is told of only while something is out of place."""
    partitions = tuple(replace(p, since=JUST_NOW) for p in TWO.partitions)
    assert judged(replace(TWO, partitions=partitions)) == []


def test_kafka_tells_of_its_own_rebalances() -> None:
    """A coordinator that is preparing a rebalance says so, and nothing is made of its gaps."""
    preparing = in_kafka(TopicPartition("orders", 0), state="PreparingRebalance")
    assert codes(inactive(coordinator=preparing)) == {"rebalance-in-progress"}


# --- strategies -------------------------------------------------------------------------------------------------------


def test_a_mix_of_strategies_names_who_deviates() -> None:
    """Owners that are nobody's plan: the nearest one is named, and the member that is not of it with what it owns."""
    finding = found(having(TWO, 1, owner="g_b-0", member="g_b"), "unexplained-owners")
    assert "1 partition" in finding.message
    assert "zkgroup assign g --strategy range" in finding.remedy
    assert "g_a (owns 1" in finding.message or "g_b (owns 3" in finding.message


def test_foreign_clients_are_no_mix() -> None:
    """Clients with rules of their own are told of as what they are, not as a fault."""
    members = [member(name, {"orders": 1}) for name in ("h:1", "h:2")]
    partitions = [owned("orders", n, owner="h:1", member="h:1", stream=None) for n in range(3)]
    partitions.append(owned("orders", 3, owner="h:2", member="h:2", stream=None))
    findings = judged(group(members, partitions))
    assert {(finding.code, finding.severity) for finding in findings} == {
        ("unexplained-owners", "info"),
        ("foreign-client", "info"),
    }


def test_what_a_filter_takes_of_internal_topics_is_its_own_business() -> None:
    """exclude.internal.topics is in no registration: owners of such topics are neither strangers nor a mix."""
    partitions = [*ALONE.partitions, owned("__consumer_offsets", 0)]
    assert judged(group([filtering("g_a", ".*", {"orders": 1})], partitions)) == []
    assert "owner-without-subscription" in codes(group(ALONE.members, partitions))


def test_members_that_cannot_be_read_make_no_mix() -> None:
    """Where a member's topics are not known, nobody can say whose plan the owners are."""
    members = (*TWO.members, unreadable_filter("(a*)*b", "takes too much work"))
    crossed = having(replace(TWO, members=members), 1, owner="g_b-0", member="g_b")
    assert codes(crossed) == {"unreadable-filter"}


def test_a_topic_that_cannot_be_read_is_not_called_leaderless() -> None:
    """Its leaders are not known; that its node is broken is said once."""
    unknown = having(having(ALONE, 0, leader=None, log_end=None), 1, leader=None, log_end=None)
    assert codes(replace(unknown, topics={"orders": topic("orders", 0, error="is no JSON")})) == {"unreadable-node"}


def test_a_zombie_is_to_go_before_members_try_again() -> None:
    """Where somebody who is no member holds a partition, the members that own nothing cannot help it."""
    zombie = having(having(TWO, 2, owner="g_z-0", member=None, stream=None), 3, owner=None, member=None)
    idle = found(zombie, "member-without-partitions")
    assert (idle.subject, "no member may hold" in idle.message) == ("g_b", True)
    assert "first free" in idle.remedy
    assert "first free" in found(zombie, "partition-without-owner").remedy
    assert found(zombie, "owner-without-registration").subject == "orders-2"


def test_range_does_not_mind_different_topics() -> None:
    """Subscriptions that differ are none of range's business; under roundrobin they are a warning."""
    two = [member("g_a", {"orders": 1}), member("g_b", {"bills": 1})]
    assert judged(group(two, [owned("orders", 0), owned("bills", 0, "g_b-0")])) == []
    circle = explain(group(two, [owned("orders", 0), owned("bills", 0, "g_b-0")]))
    newer = replace(circle, best=next(v for v in circle.exact if v.strategy == "roundrobin"))
    findings = judge(group(two, [owned("orders", 0), owned("bills", 0, "g_b-0")]), newer)
    assert [(f.code, f.severity) for f in findings] == [("subscription-disagreement", "warning")]


def test_a_member_that_holds_nothing_while_all_is_read_stands_by() -> None:
    """A spare member is no fault where nothing is unread."""
    spare = replace(ALONE, members=(*ALONE.members, member("g_b", {"orders": 1}), member("g_c", {"orders": 1})))
    two = tuple(
        replace(p, owner=f"{name}-0", member=name) for p, name in zip(spare.partitions, ("g_a", "g_b"), strict=True)
    )
    assert codes(replace(spare, partitions=two)) == {"surplus-streams"}


def test_many_topics_with_surplus_streams_are_told_of_once() -> None:
    """A filter's four streams over a hundred topics of one partition are one line, not a hundred."""
    topics = {f"t{n}": 4 for n in range(100)}
    partitions = [owned(name, 0) for name in topics]
    finding = found(group([member("g_a", topics)], partitions), "surplus-streams")
    assert (finding.subject, finding.severity) == (GROUP, "info")
    assert finding.message.startswith("100 topics")


def test_a_registration_with_absurdly_many_streams_is_a_warning() -> None:
    """More streams than any member of the reference could plan for are no spare ones."""
    many = replace(ALONE, members=(member("g_a", {"orders": 10**9}),))
    assert found(many, "surplus-streams").severity == "warning"


# --- offsets ----------------------------------------------------------------------------------------------------------


def test_who_has_just_begun_has_nothing_to_commit() -> None:
    """A partition that was claimed a minute ago without an offset is worth a note, not a warning."""
    finding = found(having(ALONE, 1, stored=None, since=NOW - 60 * SECOND), "partition-without-offset")
    assert finding.severity == "info"


def test_an_offset_in_kafka_is_one() -> None:
    """A partition that is committed in Kafka alone has an offset."""
    assert judged(having(ALONE, 1, stored=None, kafka=kafka(50))) == []


def test_an_offset_at_either_end_of_the_log_lies_in_it() -> None:
    """The first offset that is there, and the next that will be, are both fine."""
    assert judged(having(having(ALONE, 0, stored=stored(10)), 1, stored=stored(100))) == []


def test_nothing_is_said_of_logs_that_are_not_known() -> None:
    """Without log ends nothing is beyond them."""
    assert judged(having(ALONE, 1, log_start=None, log_end=None)) == []


@pytest.mark.parametrize(
    ("made", "written", "older"),
    [
        ({"czxid": 0, "created_at": THEN}, {"mzxid": 0, "changed_at": THEN - 1}, True),
        ({"czxid": 0, "created_at": THEN}, {"mzxid": 0, "changed_at": THEN}, False),
        ({"czxid": 900, "created_at": THEN - DAY}, {"mzxid": 899, "changed_at": THEN}, True),
        ({"czxid": 900, "created_at": THEN}, {"mzxid": 901, "changed_at": THEN - DAY}, False),
        ({"czxid": 900, "created_at": None}, {"mzxid": 0, "changed_at": THEN}, False),
    ],
)
def test_transaction_numbers_beat_times(made: dict[str, Any], written: dict[str, int], older: bool) -> None:
    """A topic is younger than an offset by their transactions; by their times only where those are not known."""
    snapshot = group(ALONE.members, [owned("orders", 0, stored=stored(50, **written))], [topic("orders", 1, **made)])
    assert ("recreated-topic" in codes(snapshot)) == older


def test_an_offset_of_zero_survives_a_new_topic() -> None:
    """It is where the new topic begins as well."""
    snapshot = replace(ALONE, topics={"orders": topic("orders", 2, czxid=900)})
    assert "recreated-topic" not in codes(having(having(snapshot, 1, stored=stored(0)), 0, stored=stored(0)))


def test_an_offset_of_a_former_topic_is_told_of_once() -> None:
    """That it is beyond the end, or before the start, of the new log comes from the topic, and adds nothing."""
    snapshot = replace(ALONE, topics={"orders": topic("orders", 2, czxid=900)})
    for offset in (500, 3):
        told = codes(having(having(snapshot, 1, stored=stored(offset)), 0, stored=stored(50, mzxid=901)))
        assert "recreated-topic" in told
        assert told.isdisjoint({"offset-beyond-end", "offset-before-start"})


def test_nodes_with_the_same_trouble_are_one_finding() -> None:
    """A node that is alone is the subject; of several the group is, and the message lists them."""
    denied = [f"znode /consumers/g/owners/orders/{n} is not named by a partition" for n in "xyzt"]
    finding = found(replace(ALONE, problems=tuple(denied)), "unreadable-node")
    assert (finding.subject, finding.message) == (
        GROUP,
        "4 nodes, of which each is not named by a partition: /consumers/g/owners/orders/x,"
        " /consumers/g/owners/orders/y, /consumers/g/owners/orders/z, and 1 more",
    )
    finding = found(replace(ALONE, problems=tuple(denied[:1])), "unreadable-node")
    assert (finding.subject, finding.message) == ("/consumers/g/owners/orders/x", "is not named by a partition")


def test_old_groups_are_told_of_more_quietly() -> None:
    """Offsets of a group that nobody has used for a week are a warning, those of debris a note."""
    lost = having(inactive(), 1, stored=stored(3))
    assert found(lost, "offset-before-start").severity == "critical"
    assert found(replace(lost, last_change=NOW - 8 * DAY), "offset-before-start").severity == "warning"
    debris = replace(lost, group="console-consumer-77", last_change=NOW - 2 * DAY)
    assert {finding.severity for finding in judged(debris)} == {"info"}


def test_a_console_consumer_that_has_just_gone_is_no_debris() -> None:
    """It may be about to come back; and one with members never is."""
    assert judged(inactive(group="console-consumer-1", last_change=NOW - 60 * SECOND)) == []
    assert "group-debris" not in codes(replace(ALONE, group="console-consumer-1", last_change=NOW - 9 * DAY))


@pytest.mark.parametrize(("apart", "severity"), [(180, "warning"), (20, "info")])
def test_lag_that_grows_while_nothing_is_committed(apart: int, severity: str) -> None:
    """Two looks tell it; only when they are further apart than two commits of the default is it more than a note."""
    before = replace(ALONE, taken_at=NOW - apart * SECOND)
    now = having(ALONE, 1, log_end=130)
    finding = found(now, "growing-lag", before)
    assert (finding.severity, finding.subject) == (severity, "orders-1")
    assert "grew from 50 to 80" in finding.message


def test_lag_that_grows_behind_progress_is_none_of_that() -> None:
    """Who commits is slow, not stuck; and a log that stands still has no growing lag."""
    before = replace(ALONE, taken_at=NOW - 300 * SECOND)
    assert "growing-lag" not in codes(having(ALONE, 1, log_end=900, stored=stored(51, NOW)), before)
    assert "growing-lag" not in codes(ALONE, before)


def test_the_lag_of_a_group_without_members_grows_by_nature() -> None:
    """It is a note, and no more."""
    before = replace(inactive(), taken_at=NOW - 300 * SECOND)
    assert found(having(inactive(), 1, log_end=130), "growing-lag", before).severity == "info"


def test_an_earlier_look_at_another_group_is_not_used() -> None:
    """Nothing is compared across groups."""
    before = replace(ALONE, group="other", taken_at=NOW - 300 * SECOND)
    assert "growing-lag" not in codes(having(ALONE, 1, log_end=130), before)


def test_stores_of_which_one_stands_still_contradict_each_other() -> None:
    """One commit apart is normal in a running group; one that moved alone in three minutes is not."""
    now = having(ALONE, 1, stored=stored(60, JUST_NOW), kafka=kafka(40))
    assert found(now, "contradicting-offsets").severity == "info"
    before = having(replace(ALONE, taken_at=NOW - 180 * SECOND), 1, stored=stored(45, THEN), kafka=kafka(40))
    assert found(now, "contradicting-offsets", before).severity == "warning"
    both = having(replace(ALONE, taken_at=NOW - 180 * SECOND), 1, stored=stored(45, THEN), kafka=kafka(30))
    assert found(now, "contradicting-offsets", both).severity == "info"


def test_partitions_of_a_topic_share_a_finding() -> None:
    """A thousand unread partitions are one line a topic, and what is said of each is said of the first few."""
    unread = group([member("g_a", {"orders": 1, "bills": 1})], [
        *(owned("orders", n, None, stored=stored(n % 9)) for n in range(1000)), owned("bills", 0),
    ])  # fmt: skip
    finding = found(unread, "partition-without-owner")
    assert finding.subject == "orders-0..999"
    assert finding.message.startswith("1000 partitions have no owner")
    lost = found(unread, "offset-before-start")
    assert lost.message.endswith("and 997 more")
    assert "--topic orders --to-earliest" in lost.remedy
    some = found(having(having(ALONE, 0, stored=stored(1)), 1, stored=stored(2)), "offset-before-start")
    assert "--topic orders:0,1 --to-earliest" in some.remedy


def test_remedies_can_be_pasted_into_a_shell() -> None:
    """Names that a shell would take apart are quoted."""
    hostile = having(replace(ALONE, group="a; rm -rf b"), 1, stored=stored(1))
    assert "zkgroup reset-offsets 'a; rm -rf b' --topic orders:1" in found(hostile, "offset-before-start").remedy


@pytest.mark.parametrize(
    "name",
    [
        "plain",
        "two words",
        "it's",
        "a\u200bb",
        "\x1b[31m'red\\",
        "line\nbreak",
        "\udcff",
        "-z",
        "--all",
        "-",
        "é日",
        "$HOME",
    ],
)
def test_a_remedy_can_be_pasted(name: str) -> None:
    """Whatever a group is called, a shell and the command line read its name out of the remedy as it is."""
    snapshot = replace(inactive(), group=name, partitions=(owned("orders", 0, None, stored=stored(500)),))
    remedy = found(snapshot, "offset-beyond-end").remedy
    line = re.search(r"zkgroup (.*)--execute( -- \S+)?", remedy)
    assert line is not None
    assert line[0].isprintable()
    shell = subprocess.run(["bash", "-c", f"printf '%s\\0' {line[0]}"], capture_output=True, timeout=30, check=True)
    _, command, *words = [word.decode("utf-8", "surrogateescape") for word in shell.stdout.split(b"\0")[:-1]]
    group: Any = typer.main.get_command(app)
    parsed = group.get_command(None, command).make_context(command, words).params
    assert (parsed["group"], parsed["topic"], parsed["execute"]) == (name, ("orders:0",), True)


def test_offsets_that_differ_are_not_made_one_number() -> None:
    """Of several partitions each has its own: a file carries them over, as the page of the finding does."""
    partitions = [owned("orders", n, None, stored=stored(50 + n), kafka=kafka(60 + n)) for n in range(2)]
    remedy = found(group((), partitions), "contradicting-offsets").remedy
    assert "--to-offset" not in remedy
    assert "zkgroup offsets g --topic orders:0,1 --save saved.csv --store kafka" in remedy
    assert "zkgroup reset-offsets g --topic orders:0,1 --from-file saved.csv --store both --execute" in remedy
    one = found(group((), partitions[:1]), "contradicting-offsets").remedy
    assert "--to-offset N --store both" in one


def test_who_is_stopped_is_not_told_to_rebalance() -> None:
    """Beside a registration that nobody gets past, every remedy for idle members and gaps is to mend that first."""
    bad = member("g_bad", {}, registration=None, error="is no JSON", data=b"no JSON")
    snapshot = group([member("g_a", {"orders": 1}), bad], [owned("orders", n, None) for n in range(2)])
    for code in ("member-without-partitions", "partition-without-owner"):
        remedy = found(snapshot, code).remedy
        assert remedy == "mend the registration of g_bad first: no reference member can rebalance beside it"
