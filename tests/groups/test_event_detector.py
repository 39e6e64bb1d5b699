"""From state to state: the events of a watch, reported by a pure reducer."""

from __future__ import annotations

import re
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from lines import names
from support import scaled
from timelines import A, B, any_state, replay, state

from zkgroup.groups.watch.event_detector import EventDetector, is_settled
from zkgroup.groups.watch.timeline import Event, WatchedGroup, WatchedMember, WatchedPartition, lag_text
from zkgroup.protocol.names import TopicPartition


def detect_all(*states: WatchedGroup) -> list[list[Event]]:
    """The events of each state after the first."""
    detector = EventDetector()
    _ = detector.detect(states[0])
    found = []
    for one in states[1:]:
        events = detector.detect(one)
        found.append(events)
    return found


def kinds(events: list[Event]) -> list[str]:
    return [event.kind for event in events]


def test_a_rebalance_as_the_scala_consumer_does_it() -> None:
    """A member joins, all is released, all is claimed by whoever had it: claims, and one end once nothing is open."""
    first, second, third, fourth = detect_all(
        state(0, {0: "a@5", 1: "a@5"}, "a", 4),
        state(1000, {0: "a@5", 1: "a@5"}, "ab", 9),
        state(1200, {0: None, 1: None}, "ab", 9),
        state(1500, {0: "a@12", 1: None}, "ab", 9),
        state(2500, {0: "a@12", 1: "a@13"}, "ab", 9),
    )
    assert kinds(first) == ["member-joined", "rebalance-started"]
    assert kinds(second) == ["partition-released", "partition-released"]
    assert kinds(third) == ["partition-claimed"]
    assert kinds(fourth) == ["partition-claimed", "rebalance-ended"]


def test_what_is_said_first() -> None:
    """A group that is not there yet, or of which a part may not be read, is introduced as such."""
    hidden, missing = replace(state(0, {0: None}), unreadable=3), WatchedGroup(1, "g", exists=False)
    messages = [EventDetector().detect(one)[0].message for one in (state(0, {0: None}), hidden, missing)]
    assert names(messages[1], "g", 3)
    assert len(set(messages)) == 3


def test_what_moved_and_how_long_it_took() -> None:
    """A partition that is claimed by another than its last owner has moved, though it was free in between."""
    *_, last = detect_all(
        state(0, {0: "a@5", 1: "a@5"}, "a", 4),
        state(1000, {0: "a@5", 1: "a@5"}, "ab", 9),
        state(1200, {0: None, 1: None}, "ab", 9),
        state(2500, {0: "a@12", 1: "b@13"}, "ab", 9),
    )
    assert kinds(last) == ["partition-claimed", "partition-moved", "rebalance-ended"]
    moved, ended = last[1:]
    assert (moved.topic, moved.partition, moved.before, moved.after, moved.member) == ("t", 1, "g_a-0", "g_b-0", B)
    assert ended.seconds == 1.5
    assert names(ended.message, "1.5 s", 1, 2)


def test_a_rebalance_between_two_states() -> None:
    """Claims that are all new tell of a rebalance that nobody saw; it took the time between the states at most, or that
    since a watch reported of it."""
    (events,) = detect_all(state(0, {0: "a@5"}, "a", 4), state(3000, {0: "a@9"}, "a", 4))
    assert kinds(events) == ["rebalance-started", "rebalance-ended"]
    assert events[1].seconds == 3.0
    bound = events[1].message
    (events,) = detect_all(state(0, {0: "a@5"}, "a", 4), state(3000, {0: "a@9"}, "a", 4, noticed=2950))
    assert events[1].seconds == 0.05
    assert names(events[1].message, "0.05 s")
    wording = [re.sub(r"[\d.]+", "N", message) for message in (bound, events[1].message)]
    assert wording[0] != wording[1], "a time that is a bound is said to be one"


def test_a_member_whose_session_ended() -> None:
    """A member goes with what it owned; an id that comes back under another session shows that the old one ended."""
    (events,) = detect_all(state(0, {0: "a@5", 1: "b@5"}, "ab", 4), state(1, {0: "a@5", 1: None}, "a", 9))
    assert kinds(events) == ["member-left", "rebalance-started", "partition-released"]
    assert names(events[0].message, B, 1)
    renewed = state(1, {0: "a@5"}, "a", 4)
    renewed = replace(renewed, members={A: WatchedMember("t:1", 8)})
    (events,) = detect_all(state(0, {0: "a@5"}, "a", 4), renewed)
    assert kinds(events) == ["session-renewed"]


def test_members_that_keep_what_does_not_change() -> None:
    """A member of another kind than the Scala consumer's need not claim anew for a rebalance to be over."""
    foreign = {TopicPartition("t", 0): WatchedPartition("box:1234", "box:1234", 5)}
    base = WatchedGroup(0, "g", {"box:1234": WatchedMember("t:1")}, foreign, ids_changed=9)
    assert is_settled(base)
    ours = {TopicPartition("t", 0): WatchedPartition("g_a-0", A, 5)}
    assert not is_settled(WatchedGroup(0, "g", {A: WatchedMember("t:1")}, ours, ids_changed=9))


def test_offsets_that_jump() -> None:
    """Back, gone, set while nobody owned it, before the log's start; a commit in order is no event."""
    key = TopicPartition("t", 0)

    def at(time: int, owner: str | None, committed: int | None, start: int = 0, end: int = 15) -> WatchedGroup:
        one = state(time, {0: owner}, "a" if owner else "", 4)
        return replace(
            one, partitions={key: one.partitions[key]._replace(committed=committed, log_start=start, log_end=end)}
        )

    assert [kinds(e) for e in detect_all(at(0, "a@5", 10), at(1, "a@5", 12), at(2, "a@5", 3), at(3, "a@5", None))] == [
        [], ["offset-back"], ["offset-removed"],
    ]  # fmt: skip
    assert [kinds(e) for e in detect_all(at(0, None, 10), at(1, None, 12))] == [["offset-set"]]
    assert [kinds(e) for e in detect_all(at(0, "a@5", 10), at(1, "a@5", 10, start=11), at(2, "a@5", 10, 12))] == [
        ["offset-before-start"], [],
    ]  # fmt: skip
    assert [kinds(e) for e in detect_all(at(0, "a@5", 10), at(1, "a@5", 10, end=4))] == [["log-truncated"]]


def test_a_commit_just_before_the_release_is_nobodys_reset() -> None:
    """Offsets are compared between states at offsets alone: owner and commit of the same moment are seen together."""
    quick = replace(state(1, {0: None}, ""), measured=False)
    committed = replace(state(2, {0: None}, ""), measured=True)
    key = TopicPartition("t", 0)
    committed = replace(committed, partitions={key: committed.partitions[key]._replace(committed=14)})
    events = detect_all(state(0, {0: "a@5"}, "a", 4), quick, committed)
    assert "offset-set" not in kinds(events[0]) + kinds(events[1])


def test_servers_topics_and_the_group_itself() -> None:
    """What goes and comes is reported once each; while ZooKeeper is away nothing else is."""
    base = state(0, {0: "a@5"}, "a", 4)
    away = replace(base, at=1, zookeeper="no answer")
    back = replace(base, at=3)
    assert [kinds(e) for e in detect_all(base, away, replace(away, at=2), back)] == [
        ["zookeeper-away"], [], ["zookeeper-back"],
    ]  # fmt: skip
    assert [kinds(e) for e in detect_all(base, replace(base, brokers=()), replace(base, brokers=(1, 2)))] == [
        ["broker-gone"], ["broker-came", "broker-came"],
    ]  # fmt: skip
    assert [kinds(e) for e in detect_all(base, replace(base, topics={"t": 2}), replace(base, topics={}))] == [
        ["topic-recreated"], ["topic-gone"],
    ]  # fmt: skip
    silent = replace(base, kafka="no answer")
    assert [kinds(e) for e in detect_all(base, silent, silent, base)] == [["brokers-away"], [], ["brokers-back"]]
    gone = WatchedGroup(1, "g", exists=False)
    (events,) = detect_all(state(0, {0: None}), gone)
    assert kinds(events) == ["group-gone", "broker-gone", "topic-gone", "partition-gone"]


@settings(max_examples=scaled(200))
@given(st.lists(any_state(), min_size=1, max_size=8))
def test_events_tell_everything(states: list[WatchedGroup]) -> None:
    """Replaying the events over the first state gives the last state's members and owners; rebalances start and end in
    turn, and one is under way exactly while the group is not settled."""
    detector = EventDetector()
    events = detector.detect(states[0])
    seen = states[0]
    for one in states[1:]:
        if one.zookeeper is not None:  # as a watch does: what was seen last
            one = replace(seen, at=one.at, zookeeper=one.zookeeper)
        more = detector.detect(one)
        events += more
        seen = one
    first = states[0]
    members, owners = replay(
        {name: member.subscription for name, member in first.members.items()},
        {key: p.owner for key, p in first.partitions.items() if p.owner is not None},
        events,
    )
    assert members == {name: member.subscription for name, member in seen.members.items()}
    assert owners == {key: p.owner for key, p in seen.partitions.items() if p.owner is not None}
    turns = [event.kind for event in events if event.kind.startswith("rebalance-")]
    assert turns[::2] == ["rebalance-started"] * len(turns[::2])
    assert turns[1::2] == ["rebalance-ended"] * len(turns[1::2])
    if seen.zookeeper is None:
        assert (len(turns) % 2 == 1) == (not is_settled(seen)) == (detector.since is not None)


def test_a_lag_that_is_not_known_of_all_is_reported_as_a_part() -> None:
    """The sum of some is never shown as the sum of all; of none there is none."""
    known = WatchedPartition(committed=10, log_end=15)
    assert lag_text([known, known]) == "10"
    assert lag_text([known, WatchedPartition(log_end=15)]) == "≥5"
    assert lag_text([WatchedPartition(committed=10)]) == "unknown"
    assert lag_text([WatchedPartition(committed=500, log_start=0, log_end=100)]) == "unknown", "it cannot be"
    assert lag_text([known, WatchedPartition(committed=500, log_start=0, log_end=0)]) == "≥5"
    assert lag_text([known, WatchedPartition(log_start=7, log_end=7)]) == "5", "nothing waits there"
    assert lag_text([known, WatchedPartition(is_counted=False, committed=10)]) == "5", "no such partition"
    assert lag_text([WatchedPartition(is_counted=False, committed=10)]) == "0", "as list-groups has it"
    assert lag_text([]) == "unknown"
