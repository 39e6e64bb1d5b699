"""Partitions in trouble: each kind is refused unless somebody said what to do, and moves no other partition."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkgroup.errors import RefusedError
from zkgroup.export.model.intervals import subtract
from zkgroup.export.model.words import PartitionFacts, Policies, Skipped
from zkgroup.export.planning.beginnings import NoOffsetError
from zkgroup.export.planning.passing_over import passed_over
from zkgroup.export.planning.plan import make_backfill, make_plan, share_out
from zkgroup.protocol.names import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
GOOD = PartitionFacts(T1, 5, 3, 0, 9)

#: Facts, the option that decides, what is refused, and for each of its values: start and what is skipped.
TROUBLES = [
    (
        PartitionFacts(T0, None, None, 2, 9),
        "no_offset",
        "has no committed offset for 1 partition (t-0)",
        {"earliest": (2, ()), "latest": (9, (Skipped("latest", 2, 9),)), "skip": None},
    ),
    (
        PartitionFacts(T0, None, None, 2, 9, fresh=True),
        "new_partition",
        "partitions that are new to group g (t-0)",
        {"earliest": (2, ()), "latest": (9, (Skipped("latest", 2, 9),)), "skip": None},
    ),
    (
        PartitionFacts(T0, 1, 3, 4, 9),
        "expired",
        "were deleted: 3 offsets of 1 partition (t-0 is at 1, its log starts at 4: 3 offsets are lost)",
        {
            "earliest": (4, (Skipped("retention", 1, 4),)),
            "latest": (9, (Skipped("retention", 1, 4), Skipped("latest", 4, 9))),
            "skip": None,
        },
    ),
    (
        PartitionFacts(T0, 7, 3, 2, 9, remade=True),
        "recreated",
        "made again since group g read them (t-0, committed: 7, the log is 2 to 9)",
        {
            "earliest": (2, (Skipped("recreated", 2, 2), Skipped("retention", 0, 2))),
            "latest": (9, (Skipped("recreated", 9, 9), Skipped("latest", 2, 9))),
            "committed": (7, (Skipped("recreated", 7, 7),)),
            "skip": None,
        },
    ),
    (
        PartitionFacts(T0, 7, 3, 0, 9, coverage=((0, 4),)),
        "disagreement",
        "stands ahead of what was exported (t-0 is at 7, exported up to 4)",
        {"lake": (4, ()), "group": (7, (Skipped("moved", 4, 7),)), "skip": None},
    ),
    (
        PartitionFacts(T0, 3, 3, 0, 9, coverage=((0, 6),)),
        "disagreement",
        "stands behind what was exported (t-0 is at 3, exported up to 6)",
        {"lake": (6, ()), "skip": None},
    ),
    (
        PartitionFacts(T0, None, None, 0, 9, begin=0, coverage=((0, 6),)),
        "disagreement",
        "stands behind what was exported (t-0 has no offset, and would begin at 0, exported up to 6)",
        {"lake": (6, ()), "skip": None},
    ),
    (
        PartitionFacts(T0, None, None, 0, 9, coverage=((0, 6),)),
        "disagreement",
        "has no committed offset for 1 partition, and messages of it are exported here (t-0, exported up to 6)",
        {"lake": (6, ())},
    ),
    (
        PartitionFacts(T0, 1, 3, 0, 9, coverage=((0, 2), (4, 6))),
        "disagreement",
        "stands behind what was exported (t-0 is at 1, exported up to 2)",
        {"lake": (6, (Skipped("moved", 2, 4),)), "skip": None},
    ),
    (
        PartitionFacts(T0, 99, 3, 0, 9, coverage=((0, 2), (4, 6))),
        "disagreement",
        "lie behind the end of the log (t-0 is at 99, its log ends at 9, exported up to 6)",
        {"lake": (6, ()), "skip": None},
    ),
    (
        PartitionFacts(T0, 12, 3, 0, 9, coverage=((0, 12),)),
        "disagreement",
        "lie behind the end of the log (t-0 is at 12, its log ends at 9, exported up to 12)",
        {"skip": None},
    ),
    (
        PartitionFacts(T0, 99, 3, 0, 9),
        "disagreement",
        "lie behind the end of the log (t-0 is at 99, its log ends at 9)",
        {"skip": None},
    ),
]


@pytest.mark.parametrize(("fact", "option", "refused", "ways"), TROUBLES)
def test_every_trouble_is_refused_or_dealt_with_as_told(
    fact: PartitionFacts, option: str, refused: str, ways: dict[str, tuple[int, tuple[Skipped, ...]] | None]
) -> None:
    """By default the whole export is refused, with the partition and the option that helps; every other answer gives a
    start and a note of what is passed over, or leaves the partition out; the good one is planned all the same."""
    with pytest.raises(RefusedError) as raised:
        make_plan("g", [fact, GOOD])
    assert refused in raised.value.message
    assert raised.value.remedy
    assert "--" in raised.value.remedy
    for way, place in ways.items():
        plan = make_plan("g", [fact, GOOD], policies=replace(Policies(), **{option: way}))
        found = {part.partition: part for part in plan.partitions}
        assert (found[T1].start, found[T1].end) == (5, 9)
        if place is None:
            assert T0 not in found
            assert [partition for partition, _ in plan.left_out] == [T0]
        else:
            assert (found[T0].start, found[T0].skipped) == place
            assert found[T0].version == fact.version


def test_what_other_members_read_after_a_joined_export_is_told_as_that() -> None:
    """As ``--verify`` tells it; and to believe the group comes first."""
    fact = PartitionFacts(T0, 7, 3, 0, 9, coverage=((0, 4),))
    with pytest.raises(
        RefusedError, match=r"its last export was joined \(--join\), and other members have read"
    ) as raised:
        make_plan("g", [fact], joined=True)
    assert str(raised.value.remedy).startswith("--on-disagreement group goes on")
    (part,) = make_plan("g", [fact], policies=Policies(disagreement="group"), joined=True).partitions
    assert part.skipped == (Skipped("moved", 4, 7),)


def test_an_offset_that_is_right_for_a_new_topic_answers_for_its_own_partition() -> None:
    """One without an offset has the same trouble as in any topic, and the same answers."""
    fact = PartitionFacts(T0, None, None, 0, 9, remade=True)
    with pytest.raises(NoOffsetError, match="no committed offset for 1 partition"):
        make_plan("g", [fact], policies=Policies(recreated="committed"))
    (part,) = make_plan("g", [fact], begin="earliest", policies=Policies(recreated="committed")).partitions
    assert (part.start, part.end) == (0, 9)


def test_what_nobody_can_make_right_is_refused_whatever_was_said() -> None:
    """A group behind the lake cannot be believed, nor an offset behind the log's end."""
    everything = Policies("earliest", "earliest", "earliest", "earliest", "group")
    with pytest.raises(RefusedError, match="stands behind what was exported"):
        make_plan("g", [PartitionFacts(T0, 3, 3, 0, 9, coverage=((0, 6),))], policies=everything)
    with pytest.raises(RefusedError, match="t-0 is at 10, its log ends at 9"):
        make_plan("g", [PartitionFacts(T0, 10, 3, 0, 9)], policies=everything)
    for beyond in (PartitionFacts(T0, 10, 3, 0, 9, coverage=((0, 10),)), PartitionFacts(T0, 10, 3, 0, 9)):
        for way in ("lake", "group"):  # the log does not reach where the exports end, or there are none
            with pytest.raises(RefusedError, match="behind the end of the log") as raised:
                make_plan("g", [beyond], policies=replace(everything, disagreement=way))
            assert "--on-disagreement lake" not in str(raised.value.remedy)
    gone = PartitionFacts(T0, 10, 3, 0, 9, remade=True)
    with pytest.raises(RefusedError, match="behind the end of the log"):
        make_plan("g", [gone], policies=replace(everything, recreated="committed"))
    with pytest.raises(RefusedError, match="stands behind") as raised:
        make_plan("g", [PartitionFacts(T0, 3, 3, 0, 4, coverage=((0, 6),))], policies=Policies(disagreement="lake"))
    assert "do not reach so far any more (t-0 is at 3, exported up to 6, and its log ends at 4)" in raised.value.message
    assert "--on-disagreement lake" not in str(raised.value.remedy)  # it was given


def test_to_believe_the_lake_leads_behind_all_that_it_holds() -> None:
    """A group before all that was exported, or in a hole of it, goes on at its end: from anywhere else the next file
    would be in the way. What is passed over is recorded, so that a backfill takes it."""
    for stands, holes in ((0, ((0, 2), (4, 5))), (4, ((4, 5),))):
        fact = PartitionFacts(T0, stands, 3, 0, 9, coverage=((2, 4), (5, 7)))
        (part,) = make_plan("g", [fact], policies=Policies(disagreement="lake")).partitions
        assert (part.start, part.end) == (7, 9)
        assert part.skipped == tuple(Skipped("moved", *hole) for hole in holes)


@pytest.mark.parametrize(
    ("coverage", "start", "passed"),
    [(((5, 7),), 7, ((2, 5),)), (((0, 7),), 7, ()), (((2, 4), (5, 7)), 7, ((4, 5),)), (((0, 9),), 9, ())],
)
def test_where_the_offset_is_gone_too_what_no_run_holds_is_recorded(
    coverage: tuple[tuple[int, int], ...], start: int, passed: tuple[tuple[int, int], ...]
) -> None:
    """Of a group that has nothing but its lake: from the log's start on."""
    fact = PartitionFacts(T0, None, None, 2, 9, coverage=coverage)
    (part,) = make_plan("g", [fact], policies=Policies(disagreement="lake")).partitions
    assert (part.start, part.skipped) == (start, tuple(Skipped("moved", *hole) for hole in passed))
    for log_start, log_end, refused in ((0, 4, "its log ends at 4"), (start + 2, 20, "2 offsets are lost|deleted")):
        with pytest.raises(RefusedError, match=refused):
            make_plan(
                "g", [replace(fact, log_start=log_start, log_end=log_end)], policies=Policies(disagreement="lake")
            )


def test_what_is_said_of_missing_offsets_is_not_said_of_new_partitions() -> None:
    """``--from latest`` and times would pass over messages of a new partition; the earliest passes over none."""
    new = PartitionFacts(T0, None, None, 2, 9, fresh=True)
    with pytest.raises(RefusedError, match="new to group g"):
        make_plan("g", [replace(new, begin=9)])
    assert make_plan("g", [replace(new, begin=2)]).partitions[0].start == 2
    assert make_plan("g", [replace(new, begin=7, exact=True)]).partitions[0].start == 7


def test_what_members_may_still_commit_is_refused_apart() -> None:
    """A joined export looks again when it has its share: for offsets of partitions that no run knows as well."""
    for fact in (PartitionFacts(T0, None, None, 0, 9), PartitionFacts(T0, None, None, 0, 9, fresh=True)):
        with pytest.raises(NoOffsetError):
            make_plan("g", [fact])
    with pytest.raises(RefusedError) as raised:
        make_plan("g", [replace(GOOD, committed=99)])
    assert type(raised.value) is RefusedError


def test_offsets_given_by_name_never_move_a_group() -> None:
    """Where the group has offsets of its own, others are refused, and equal ones are no matter."""
    fact = PartitionFacts(T0, 5, 3, 0, 9, begin=4, exact=True)
    with pytest.raises(RefusedError, match="t-0 is at 5, not at 4"):
        make_plan("g", [fact])
    assert make_plan("g", [replace(fact, begin=5)]).partitions[0].start == 5
    assert make_plan("g", [replace(fact, exact=False)]).partitions[0].start == 5


@pytest.mark.parametrize("stands", [3, 12, 20])
def test_a_group_at_an_end_of_what_was_exported_agrees_with_it(stands: int) -> None:
    """Also below a later backfill, and where nothing was exported yet at all."""
    coverage = ((3, 3), (5, 12), (15, 20))
    plan = make_plan("g", [PartitionFacts(T0, stands, 3, 0, 30, coverage=coverage)])
    assert plan.partitions[0].start == stands


def test_a_plan_ends_where_it_is_told() -> None:
    """At a place below the log's end, never below the start, never behind the end."""
    for until, end in ((7, 7), (2, 5), (50, 9), (None, 9)):
        assert make_plan("g", [replace(GOOD, until=until)]).partitions[0].end == end


@given(st.lists(st.integers(0, 100), max_size=10), st.integers(0, 300))
def test_a_limit_is_shared_out(wanted: list[int], most: int) -> None:
    """All of it is used if it is wanted, nobody gets more than there is, and who gets less has as much as anybody."""
    shares = share_out(wanted, most)
    assert sum(shares) == min(most, sum(wanted))
    assert all(0 <= share <= want for share, want in zip(shares, wanted, strict=True))
    short = [share for share, want in zip(shares, wanted, strict=True) if share < want]
    assert not short or max(shares) <= min(short) + 1


def test_a_limit_keeps_the_parts_whole() -> None:
    """Starts, versions and notes stay; only ends come nearer."""
    facts = [PartitionFacts(T0, 1, 3, 4, 9), GOOD]
    plan = make_plan("g", facts, policies=Policies(expired="earliest"), max_messages=3)
    assert [(part.start, part.end, part.lost) for part in plan.partitions] == [(4, 6, 3), (5, 6, 0)]
    assert plan.messages == 3


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)).map(lambda p: (p[0], p[0] + p[1])), max_size=5),
    st.integers(0, 50),
    st.integers(0, 50),
    st.integers(0, 10),
)
def test_a_backfill_is_what_the_lake_lacks(coverage: list[tuple[int, int]], begin: int, until: int, start: int) -> None:
    """Just that, of what the log still has; what it has not is noted; the group's offset is not touched."""
    fact = PartitionFacts(T0, 3, 3, start, 50, begin=begin, until=until, coverage=tuple(coverage))
    plan = make_backfill("g", [fact], policies=Policies(expired="earliest"))
    lacking = subtract((begin, until), coverage)
    wanted = {offset for low, high in lacking for offset in range(low, high)}
    assert {offset for piece in plan.ranges for offset in range(piece.start, piece.end)} == {
        offset for offset in wanted if offset >= start
    }
    noted = {offset for part in plan.partitions for gap in part.skipped for offset in range(gap.start, gap.end)}
    assert noted == {offset for offset in wanted if offset < start}
    assert not any(part.moves for part in plan.partitions)


def test_a_backfill_of_what_is_gone_is_refused_by_default() -> None:
    """Nobody takes it for complete."""
    with pytest.raises(RefusedError, match="t-0 from 0 on, its log starts at 4: 4 offsets are lost"):
        make_backfill("g", [PartitionFacts(T0, 3, 3, 4, 50, begin=0)])


@pytest.mark.parametrize(
    ("fact", "policies", "said"),
    [
        (
            PartitionFacts(T0, 3, 3, 0, 9, coverage=((0, 6),)),
            Policies(disagreement="lake"),
            ["t-0: the group was moved to 3: it goes on at 6, where its exports end"],
        ),
        (
            PartitionFacts(T0, 7, 3, 0, 9, coverage=((0, 4),)),
            Policies(disagreement="lake"),
            ["t-0: the group was moved to 7: it goes on at 4, where its exports end"],
        ),
        (
            PartitionFacts(T0, 1, 3, 8, 9, coverage=((0, 2), (4, 6))),
            Policies(disagreement="lake", expired="earliest"),
            [
                "t-0: the group was moved to 1: it goes on at 6, where its exports end",
                "t-0: offsets 2 to 3 are not exported (moved)",
                "t-0: offsets 6 to 7 are not exported (retention)",
            ],
        ),
        (
            PartitionFacts(T0, 7, 3, 0, 9, coverage=((0, 4),)),
            Policies(disagreement="group"),
            ["t-0: offsets 4 to 6 are not exported (moved)"],
        ),
        (
            PartitionFacts(T0, 3, 3, 5, 9, coverage=((0, 3),)),
            Policies(expired="earliest"),
            ["t-0: offsets 3 to 4 are not exported (retention)"],
        ),
        (
            PartitionFacts(T0, 7, 3, 0, 9, remade=True),
            Policies(recreated="earliest"),
            ["t-0: its topic was made again: what was left of the old log is not exported"],
        ),
        (PartitionFacts(T0, 6, 3, 0, 9, coverage=((0, 6),)), Policies(disagreement="lake"), []),
    ],
    ids=["set-back", "set-forward", "and-expired", "group", "expired", "recreated", "agreed"],
)
def test_a_group_that_goes_on_elsewhere_than_it_stands_is_told_of(
    fact: PartitionFacts, policies: Policies, said: list[str]
) -> None:
    """Whoever believes the lake moves the group, forward or back: that is said as what other policies pass over is."""
    assert list(passed_over(make_plan("g", [fact], policies=policies).partitions)) == said
