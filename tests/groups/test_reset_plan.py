"""The plan of a reset, on partitions made by hand: every target, every note, whatever the offsets and logs are."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lines import names

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.responses import KafkaOffset, TimeOffsets
from zkgroup.errors import UnreachableError, UsageError, VerificationError
from zkgroup.groups.changes.applier import Applier
from zkgroup.groups.changes.backup import SavedOffset
from zkgroup.groups.changes.current_offsets import stores_with_offset
from zkgroup.groups.changes.plan import OffsetChange, Plan
from zkgroup.groups.changes.reset_plan import (
    Kind,
    Target,
    check_bounds,
    plan_reset,
    warn_of_larger_offsets,
    warn_of_new_in_kafka,
    with_times,
)
from zkgroup.groups.changes.undo import describe_unrestored, find_moved, plan_undo
from zkgroup.groups.group_model import GroupPartition, OffsetStore, Store, StoredOffset, stores_of
from zkgroup.groups.partition_scope import parse_scope, ranges
from zkgroup.protocol.names import TopicPartition

KEY = TopicPartition("t", 0)


def no_brokers() -> KafkaSettings:
    raise UnreachableError("no answer")


def stored(offset: int | None, error: str | None = None) -> StoredOffset:
    return StoredOffset(offset, 1, 2, 3, 4, error)


def partition(
    committed: int | None = None,
    start: int | None = 10,
    end: int | None = 100,
    *,
    kafka: int | None = None,
    number: int = 0,
) -> GroupPartition:
    return GroupPartition(
        "t",
        number,
        stored=None if committed is None else stored(committed),
        kafka=None if kafka is None else KafkaOffset(kafka),
        log_start=start,
        log_end=end,
        log_error=None if end is not None else "a reason",
    )


def plan(
    target: Target, one: GroupPartition, store: Store = "zookeeper", times: TimeOffsets | None = None
) -> OffsetChange:
    """The one row of a plan for one partition in one store."""
    (row,) = plan_reset(target, [one], store, times)
    return row


@pytest.mark.parametrize(
    ("target", "committed", "expected", "noted"),
    [
        (Target("earliest"), 50, 10, None),
        (Target("latest"), 50, 100, None),
        (Target("latest"), None, 100, ()),
        (Target("offset", 42), 50, 42, None),
        (Target("offset", 100), 50, 100, None),
        (Target("offset", 101), 50, 100, (101,)),
        (Target("offset", 9), 50, 10, (9,)),
        (Target("current"), 50, 50, None),
        (Target("current"), None, None, ()),
        (Target("current"), 101, 101, (100,)),
        (Target("current"), 9, 9, (10,)),
        (Target("shift", 7), 50, 57, None),
        (Target("shift", -7), 50, 43, None),
        (Target("shift", -70), 50, 10, (-20,)),
        (Target("shift", 70), 50, 100, (120,)),
        (Target("shift", 7), None, None, ()),
        (Target("file", offsets={KEY: 42}), 50, 42, None),
        (Target("file", offsets={KEY: "earliest"}), 50, 10, None),
        (Target("file", offsets={KEY: "latest"}), 50, 100, None),
        (Target("file", offsets={KEY: None}), 50, 50, ()),
        (Target("file", offsets={KEY: 1000}), 50, 100, (1000,)),
    ],
)
@pytest.mark.parametrize("store", ["zookeeper", "kafka"])
def test_targets(
    target: Target, committed: int | None, expected: int | None, noted: tuple[int, ...] | None, store: Store
) -> None:
    """Every target of KIP-122 in either store, clamped to the log with a note where it lies outside."""
    one = partition(committed) if store == "zookeeper" else partition(kafka=committed)
    row = plan(target, one, store)
    assert (row.current, row.target, row.note is None) == (committed, expected, noted is None)
    assert noted is None or names(row.note or "", *noted)
    assert row.change == (None if committed is None or expected is None else expected - committed)
    assert row.moves == (committed != expected)


def test_what_becomes_of_a_number_with_a_blank() -> None:
    """Only where the same number is written is the number what is left of it."""
    malformed = replace(partition(42), stored=replace(stored(42), defect="'42 ' has a blank"))
    kept, same, other = (plan(target, malformed).note or "" for target in (
        Target("current"), Target("offset", 42), Target("earliest"),
    ))  # fmt: skip
    assert all(note.endswith("'42 ' has a blank") for note in (kept, same, other))
    assert kept == same != other


@pytest.mark.parametrize(
    ("found", "by_segments", "expected", "noted"),
    [
        (42, False, 42, None),
        (None, False, 100, ()),
        (42, True, 42, ()),
        (None, True, 10, ()),
        (5, True, 10, (5,)),
    ],
)
def test_by_time(found: int | None, by_segments: bool, expected: int, noted: tuple[int, ...] | None) -> None:
    """Without an answer the end is meant where there is a time index, and the start where segments are asked."""
    row = plan(Target("time", 1), partition(50), times=TimeOffsets({KEY: found}, by_segments))
    assert row.target == expected
    assert (row.note is None) == (noted is None)
    assert noted is None or names(row.note or "", *noted)


def test_a_doubt_about_a_time_is_noted() -> None:
    """It may be an earlier message than the first since then."""
    row = plan(Target("time", 1), partition(50), times=TimeOffsets({KEY: 42}, False, {KEY: "for this reason"}))
    assert (row.target, row.note) == (42, "for this reason")


def test_both_stores() -> None:
    """Both get the same target; a shift starts from the larger offset, where a member that reads both would start."""
    one = partition(50, kafka=60)
    for target, expected in ((Target("earliest"), 10), (Target("shift", -5), 55)):
        rows = plan_reset(target, [one], "both")
        assert [(row.store, row.current, row.target) for row in rows] == [
            ("zookeeper", 50, expected), ("kafka", 60, expected),
        ]  # fmt: skip
    assert [row.note is None for row in rows] == [False, True]
    assert [row.target for row in plan_reset(Target("current"), [one], "both")] == [50, 60]


def test_unreadable_offsets() -> None:
    """An offset node that has no offset is mended by a target, and left alone by what starts from it."""
    one = replace(partition(), stored=stored(None, "'x' is no offset"))
    row = plan(Target("earliest"), one)
    assert (row.current, row.target, row.moves) == (None, 10, True)
    assert names(row.note or "", "'x' is no offset")
    for target in (Target("shift", 5), Target("current")):
        assert not plan(target, one).moves


def test_partitions_that_are_gone() -> None:
    """Offsets of what does not exist any more are shown and left as they are."""
    one = replace(partition(7, None, None), exists=False, log_error="a reason")
    row = plan(Target("earliest"), one)
    assert (row.target, row.moves, names(row.note or "", "a reason")) == (7, False, True)


@pytest.mark.parametrize("target", [Target("earliest"), Target("offset", 5), Target("shift", 1)])
def test_an_unknown_log_stops_the_plan(target: Target) -> None:
    """What cannot be checked against the log is not planned, for one of many either."""
    with pytest.raises(UnreachableError, match=r"\bt-1\b.*\ba reason\b"):
        plan_reset(target, [partition(5), partition(5, None, None, number=1)], "zookeeper")


def test_an_unknown_log_does_not_hide_what_there_is() -> None:
    """What needs no log is shown without it."""
    assert plan(Target("current"), partition(5, None, None)).target == 5


offsets = st.one_of(st.none(), st.integers(0, 130))
kinds = st.sampled_from([kind for kind in get_args(Kind) if kind != "current"])


@given(
    kind=kinds,
    value=st.integers(-150, 150),
    wanted=st.one_of(offsets, st.sampled_from(["earliest", "latest"])),
    log=st.tuples(st.integers(0, 60), st.integers(0, 60)),
    in_zookeeper=offsets,
    in_kafka=offsets,
    store=st.sampled_from(get_args(Store)),
    by_segments=st.booleans(),
)
def test_plans_are_in_range_and_final(
    kind: Kind, value: int, wanted: object, log: tuple[int, int], in_zookeeper: int | None, in_kafka: int | None,
    store: Store, by_segments: bool,
) -> None:  # fmt: skip
    """Whatever there is: what is to be written lies within the log, a note says where it was clamped, and a plan that
    was carried out leaves nothing to do, but for a shift."""
    start, end = log[0], sum(log)
    one = partition(in_zookeeper, start, end, kafka=in_kafka)
    found = wanted if isinstance(wanted, int) else None
    times = TimeOffsets({KEY: found}, by_segments)
    target = Target(kind, value, {KEY: wanted})  # type: ignore[dict-item]
    rows = plan_reset(target, [one], store, times)
    assert tuple(row.store for row in rows) == stores_of(store)
    for row in rows:
        if row.moves:
            assert row.target is not None
            assert start <= row.target <= end
        elif row.target is None:
            assert row.note
    after = {row.store: row.target for row in rows}
    done = partition(after.get("zookeeper", in_zookeeper), start, end, kafka=after.get("kafka", in_kafka))
    if kind != "shift":
        assert not any(row.moves for row in plan_reset(target, [done], store, times))


@given(
    before=offsets, written=offsets, now=offsets, store=st.sampled_from(["zookeeper", "kafka"]),
)  # fmt: skip
def test_undo(before: int | None, written: int | None, now: int | None, store: str) -> None:
    """An undo puts back what was there, unless somebody moved the offset elsewhere; Kafka cannot forget one."""
    saved = SavedOffset(store, KEY, before, written)  # type: ignore[arg-type]
    one = {KEY: partition(now) if store == "zookeeper" else partition(kafka=now)}
    (row,) = plan_undo([saved], one)
    assert row.current == now
    assert row.target == (now if before is None and store == "kafka" else before)
    assert bool(find_moved([saved], one)) == (now not in (before, written))


def test_undo_of_what_was_unreadable() -> None:
    """What was no number, or not just a number, comes back byte by byte; what is so again is done."""
    for before, raw, error in ((None, b"x", "no offset"), (12, b" 12 ", None)):
        saved = SavedOffset("zookeeper", KEY, before, 10, raw=raw)
        (row,) = plan_undo([saved], {KEY: partition(10)})
        assert (row.target, row.raw, row.moves) == (before, raw, True)
        stored = StoredOffset(before, 1, 2, 3, 4, error, None if error else "blank", data=raw)
        again, other = ({KEY: replace(partition(10), stored=replace(stored, data=data))} for data in (raw, b"y"))
        (row,) = plan_undo([saved], again)
        assert (row.moves, row.note is not None) == (False, True)
        assert find_moved([saved], again) == []
        moved = find_moved([saved], other)
        assert [names(text, KEY, "ZooKeeper", 10) for text in moved] == ([True] if error else [])


def test_an_undo_writes_the_number_where_blanks_came_since() -> None:
    """A number before, and now the same with a blank, which no member reads: the number alone is put back."""
    blank = {KEY: replace(partition(12), stored=StoredOffset(12, 1, 2, 3, 4, None, "blank", data=b"12 "))}
    (row,) = plan_undo([SavedOffset("zookeeper", KEY, 12, 10)], blank)
    assert (row.target, row.raw, row.moves) == (12, None, True)


def test_an_undone_offset_is_verified_byte_by_byte() -> None:
    """The same number is not enough where the node had more than that."""
    row = OffsetChange("zookeeper", *KEY, None, None, raw=b"5 ")
    applier = Applier(None, no_brokers, 1.0)
    undo = Plan(command="reset-offsets", group="g", store="zookeeper", rows=(row,))
    applier._compare(undo, [(row, 5, b"5 ")])
    with pytest.raises(VerificationError, match=r"\bt-0\b"):
        applier._compare(undo, [(row, 5, b"5")])


def test_times_of_messages_that_cannot_be_read_are_left_out() -> None:
    """They are shown, and nothing depends on them."""
    row = plan(Target("offset", 50), partition(20))
    assert with_times(Applier(None, no_brokers, 1.0), (row,), {KEY: partition(20)}) == (row,)


def test_a_larger_offset_elsewhere_is_moved_by_its_command() -> None:
    """A migration warns of it, too, and has no such option."""
    rows = plan(Target("offset", 20), partition(50))
    (warning,) = warn_of_larger_offsets([rows], {KEY: 30}, "zookeeper")
    assert names(str(warning), KEY, "reset-offsets", "--store both")
    assert warn_of_larger_offsets([rows], {KEY: 20}, "zookeeper") == []


def test_what_kafka_cannot_forget() -> None:
    """An undo shows what it leaves: offsets in Kafka of partitions that had none; in ZooKeeper they are deleted."""
    saved = [SavedOffset(store, KEY, None, 10) for store in stores_of("both")]
    rows = plan_undo(saved, {KEY: partition(10, kafka=10)})
    assert [(row.store, row.target, row.moves, row.problem == "left") for row in rows] == [
        ("zookeeper", None, True, False), ("kafka", 10, False, True),
    ]  # fmt: skip
    assert names(describe_unrestored("g", rows) or "", 1, "g", "Kafka", KEY)
    assert describe_unrestored("g", rows[:1]) is None
    assert describe_unrestored("g", plan_undo(saved, {})) is None


@pytest.mark.parametrize(
    ("one", "otherwise", "expected"),
    [
        (partition(5, kafka=6), "zookeeper", "both"),
        (partition(5), "kafka", "zookeeper"),
        (partition(kafka=0), "zookeeper", "kafka"),
        (partition(), "zookeeper", "zookeeper"),
        (partition(), "kafka", "kafka"),
        (replace(partition(kafka=5), stored=stored(None)), "zookeeper", "kafka"),
        (replace(partition(kafka=5), stored=stored(None, "no number")), "zookeeper", "both"),
    ],
)
def test_where_an_offset_is_kept(one: GroupPartition, otherwise: OffsetStore, expected: Store) -> None:
    """In the stores that have one, readable or not: -1 means none."""
    assert stores_with_offset(one, otherwise) == expected
    rows = plan_reset(Target("earliest"), [one], "both", stores={one.key: stores_with_offset(one, otherwise)})
    assert tuple(row.store for row in rows) == stores_of(expected)
    gained = expected == "kafka" and one.kafka is None
    assert bool(warn_of_new_in_kafka(rows)) == gained


@given(st.sets(st.integers(0, 30), min_size=1))
def test_ranges_are_scopes(numbers: set[int]) -> None:
    """What a remedy names is what ``--topic`` takes for it."""
    scope = parse_scope([f"t:{ranges(numbers)}"])
    assert {number for number in range(40) if scope.has(TopicPartition("t", number))} == numbers


@pytest.mark.parametrize("target", [Target("offset", -1), Target("offset", 2**63), Target("shift", 2**63)])
def test_numbers_that_are_no_offsets(target: Target) -> None:
    """What no log can hold is wrong usage, not something to clamp."""
    with pytest.raises(UsageError):
        check_bounds(target)
    assert check_bounds(Target("shift", -5)) == Target("shift", -5)
