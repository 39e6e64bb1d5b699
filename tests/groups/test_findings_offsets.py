"""Findings about offsets, diagnosed on groups made by hand: how bad they are, and what is none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from broken_groups_by_hand import ALONE, JUST_NOW
from diagnosed_groups import (
    DAY,
    NOW,
    SECOND,
    THEN,
    codes,
    filtering,
    findings_of,
    found,
    group,
    having,
    inactive,
    kafka,
    lines,
    owned,
    stored,
    topic,
)
from lines import names

from zkgroup.groups.group_model import GroupSnapshot
from zkgroup.protocol.znodes import ESCAPED_TWICE


def test_who_has_just_started_has_nothing_to_commit() -> None:
    """A partition that was claimed a minute ago without an offset is worth a note, not a warning."""
    finding = found(having(ALONE, 1, stored=None, since=NOW - 60 * SECOND), "partition-without-offset")
    assert finding.severity == "info"


def test_an_offset_in_kafka_is_one() -> None:
    """A partition that is committed in Kafka alone has an offset."""
    assert findings_of(having(ALONE, 1, stored=None, kafka=kafka(50))) == []


def test_offsets_that_a_corrected_filter_needs_are_not_to_be_removed() -> None:
    """A member whose filter misses the topic, by its backslashes or by a typing error, may take it again."""
    left = [*ALONE.partitions, owned("left", 0, None)]
    (member,) = ALONE.members
    escaped = replace(member, defects=(ESCAPED_TWICE,))
    assert found(group((member,), left), "offset-without-subscriber").commands
    assert not found(group((escaped,), left), "offset-without-subscriber").commands
    mistyped = filtering("g_b", "lef", {})
    assert not found(group((member, mistyped), left), "offset-without-subscriber").commands


def _without_coordinator(snapshot: GroupSnapshot) -> GroupSnapshot:
    """The same while its coordinator does not answer."""
    partitions = tuple(replace(p, kafka_unknown=True) for p in snapshot.partitions)
    return replace(snapshot, partitions=partitions, kafka_members_unknown=True, kafka_offsets_unknown=True)


@pytest.mark.parametrize(
    ("snapshot", "earlier", "code"),
    [
        (having(inactive(), 1, stored=None), None, "partition-without-offset"),
        (having(ALONE, 1, stored=None), None, "partition-without-offset"),
        (having(ALONE, 1, log_end=130), replace(ALONE, taken_at=NOW - 300 * SECOND), "growing-lag"),
        (group(ALONE.members, [*ALONE.partitions, owned("left", 0, None)]), None, "offset-without-subscriber"),
        (group((), [], group="console-consumer-1"), None, "leftover-group"),
        (group((), [], last_change=NOW - 30 * DAY), None, "leftover-group"),
    ],
)
def test_what_kafka_may_know_is_not_reported_missing(
    snapshot: GroupSnapshot, earlier: GroupSnapshot | None, code: str
) -> None:
    """An offset, a commit or a member may be in the half that no server reports of: that there is none is not
    claimed."""
    assert code in codes(snapshot, earlier)
    assert code not in codes(_without_coordinator(snapshot), earlier)
    assert code not in codes(snapshot, _without_coordinator(earlier)) if code == "growing-lag" and earlier else True


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("offset-before-start", {"stored": stored(1)}),
        ("offset-beyond-end", {"stored": stored(200)}),
        ("unreadable-offset", {"stored": stored(None, error="is no number")}),
        ("recreated-topic", {"stored": stored(50, mzxid=1)}),
    ],
)
def test_what_kafka_may_know_is_left_alone(code: str, changes: dict[str, Any]) -> None:
    """ZooKeeper's offset is wrong whatever Kafka has; the command that mends it does not touch what nobody has seen,
    and may be right."""
    wrong = having(inactive(), 1, **changes)
    assert "--store" not in "".join(lines(found(wrong, code)))
    assert "--topic orders:1 " in "".join(lines(found(_without_coordinator(wrong), code)))
    assert "--store zookeeper" in "".join(lines(found(_without_coordinator(wrong), code)))


def test_an_offset_at_either_end_of_the_log_lies_in_it() -> None:
    """The first offset that is there, and the next that will be, are both fine."""
    assert findings_of(having(having(ALONE, 0, stored=stored(10)), 1, stored=stored(100))) == []


def test_nothing_is_reported_of_logs_that_are_not_known() -> None:
    """Without log ends nothing is beyond them."""
    assert findings_of(having(ALONE, 1, log_start=None, log_end=None)) == []


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


def test_an_offset_of_a_former_topic_is_reported_once() -> None:
    """That it is beyond the end, or before the start, of the new log comes from the topic, and adds nothing."""
    snapshot = replace(ALONE, topics={"orders": topic("orders", 2, czxid=900)})
    for offset in (500, 3):
        message = codes(having(having(snapshot, 1, stored=stored(offset)), 0, stored=stored(50, mzxid=901)))
        assert "recreated-topic" in message
        assert message.isdisjoint({"offset-beyond-end", "offset-before-start"})


def test_old_groups_have_less_severe_findings() -> None:
    """Offsets of a group that nobody has used for a week are a warning, those of leftover groups an info."""
    lost = having(inactive(), 1, stored=stored(3))
    assert found(lost, "offset-before-start").severity == "critical"
    assert found(replace(lost, last_change=NOW - 8 * DAY), "offset-before-start").severity == "warning"
    leftover = replace(lost, group="console-consumer-77", last_change=NOW - 2 * DAY)
    assert {finding.severity for finding in findings_of(leftover)} == {"info"}


def test_a_console_consumer_that_has_just_gone_is_no_debris() -> None:
    """It may be about to come back; and one with members never is."""
    assert findings_of(inactive(group="console-consumer-1", last_change=NOW - 60 * SECOND)) == []
    assert "leftover-group" not in codes(replace(ALONE, group="console-consumer-1", last_change=NOW - 9 * DAY))


@pytest.mark.parametrize(("apart", "severity"), [(180, "warning"), (20, "info")])
def test_lag_that_grows_while_nothing_is_committed(apart: int, severity: str) -> None:
    """Two snapshots tell it; only when they are further apart than two commits of the default is it more than a
    note."""
    before = replace(ALONE, taken_at=NOW - apart * SECOND)
    now = having(ALONE, 1, log_end=130)
    finding = found(now, "growing-lag", before)
    assert (finding.severity, finding.subject) == (severity, "orders-1")
    assert names(finding.message, 50, 80)


def test_lag_that_grows_behind_progress_is_none_of_that() -> None:
    """Who commits is slow, not stuck; and a log that does not grow has no growing lag."""
    before = replace(ALONE, taken_at=NOW - 300 * SECOND)
    assert "growing-lag" not in codes(having(ALONE, 1, log_end=900, stored=stored(51, NOW)), before)
    assert "growing-lag" not in codes(ALONE, before)


def test_the_lag_of_a_group_without_members_grows_by_nature() -> None:
    """It is a note, and no more."""
    before = replace(inactive(), taken_at=NOW - 300 * SECOND)
    assert found(having(inactive(), 1, log_end=130), "growing-lag", before).severity == "info"


def test_stores_of_which_one_stands_still_contradict_each_other() -> None:
    """One commit apart is normal in a running group; one that moved alone in three minutes is not."""
    now = having(ALONE, 1, stored=stored(60, JUST_NOW), kafka=kafka(40))
    assert found(now, "contradicting-offsets").severity == "info"
    before = having(replace(ALONE, taken_at=NOW - 180 * SECOND), 1, stored=stored(45, THEN), kafka=kafka(40))
    assert found(now, "contradicting-offsets", before).severity == "warning"
    both = having(replace(ALONE, taken_at=NOW - 180 * SECOND), 1, stored=stored(45, THEN), kafka=kafka(30))
    assert found(now, "contradicting-offsets", both).severity == "info"


@pytest.mark.parametrize(
    ("ahead", "age", "seconds"), [(0, "0 s", "0.0 s"), (500, "0 s", "0.0 s"), (90_000, "1 min", "90.0 s")]
)
def test_a_commit_in_the_future_is_named(ahead: int, age: str, seconds: str) -> None:
    """The clocks of ZooKeeper's servers and of this machine differ: no age is negative, and none is made up."""
    two = having(inactive(), 1, stored=stored(50, NOW + ahead), kafka=kafka(60))
    now = replace(two, last_change=NOW + ahead)
    assert names(found(now, "contradicting-offsets").message, 50, "ZooKeeper", age, 60, "Kafka")
    before = having(replace(now, taken_at=NOW - 60_000), 1, log_end=90)
    assert names(found(now, "growing-lag", before).message, age)
    often = having(inactive(), 1, stored=stored(50, NOW + ahead, version=9, mzxid=900, created_at=NOW))
    assert names(found(replace(often, last_change=NOW + ahead), "unregistered-commits").message, 1, seconds)


def test_a_rebalance_in_the_future_is_not_taken_for_one_of_now() -> None:
    """Whether the group is at rest is unknown: a gap is not reported, and not passed over either."""
    for ahead in (60_000, 3_600_000):
        claimed = having(ALONE, 0, since=NOW + ahead)
        gap = having(claimed, 1, owner=None, member=None, stream=None, since=None, session_id=None)
        assert ("incomplete-snapshot" in codes(gap)) is (ahead > 120_000)
    assert names(found(gap, "incomplete-snapshot").message, "1 h")
