"""Where an export starts, and where group, destination and log do not agree about that. Pure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lines import names

from zkgroup.errors import RefusedError
from zkgroup.export.model.choices import OnMismatch
from zkgroup.export.model.plan_types import PartitionFacts, SkippedRange
from zkgroup.export.planning.export_plan import make_plan
from zkgroup.export.planning.mismatch import Mismatch, MismatchError, NoOffsetError, StartOffset, find_start
from zkgroup.protocol.names import TopicPartition

ONE = TopicPartition("orders", 0)


def fact(committed: int | None = None, log: tuple[int, int] = (0, 100), **more: object) -> PartitionFacts:
    version = None if committed is None else 3
    return PartitionFacts(ONE, committed, version, *log, **more)  # type: ignore[arg-type]


def exported(end: int) -> dict[str, object]:
    return {"ended": end, "coverage": ((0, end),)}


@pytest.mark.parametrize(
    ("given_fact", "start"),
    [
        (fact(10), StartOffset(10)),
        (fact(10, **exported(10)), StartOffset(10)),
        (fact(begin=0), StartOffset(0)),
        (fact(begin=100), StartOffset(100)),
        (fact(is_new=True), StartOffset(0)),
        (fact(is_new=True, begin=100), StartOffset(0)),  # --from latest is not for a partition that nobody knew
        (fact(is_new=True, begin=50, is_exact=True), StartOffset(50)),
        (fact(50, coverage=((0, 20),)), StartOffset(50)),  # a backfill below the group's first export
        (fact(50, log=(50, 50)), StartOffset(50)),
    ],
)
def test_what_simply_continues(given_fact: PartitionFacts, start: StartOffset) -> None:
    """The group's offset, or where ``--from`` says; a new partition from its beginning."""
    assert find_start(given_fact) == start


def test_nothing_says_where_to_begin() -> None:
    """A partition without an offset of a topic that was never exported needs ``--from``."""
    assert find_start(fact()) is None
    with pytest.raises(NoOffsetError, match=r"\blake\b.*\borders-0\b.*--from"):
        make_plan("lake", "/lake", [fact()])


@pytest.mark.parametrize(
    ("given_fact", "kind", "lake", "at_group"),
    [
        (fact(50, **exported(20)), "ahead", StartOffset(20), StartOffset(50, (SkippedRange("moved", 20, 50),))),
        (fact(10, **exported(20)), "behind", StartOffset(20), None),
        (fact(**exported(20)), "no offset", StartOffset(20), None),
        (fact(begin=0, **exported(20)), "no offset", StartOffset(20), None),
        (fact(begin=10, coverage=((0, 20),)), "behind", StartOffset(20), None),  # a backfill has been there
        (
            fact(10, log=(30, 100)),
            "expired",
            StartOffset(30, (SkippedRange("retention", 10, 30),)),
            StartOffset(30, (SkippedRange("retention", 10, 30),)),
        ),
        (
            fact(is_new=True, log=(5, 100)),
            "expired",
            StartOffset(5, (SkippedRange("retention", 0, 5),)),
            StartOffset(5, (SkippedRange("retention", 0, 5),)),
        ),
        (fact(10, is_recreated=True), "recreated", StartOffset(0), StartOffset(10)),
        (fact(is_recreated=True, log=(7, 9)), "recreated", StartOffset(7, (SkippedRange("retention", 0, 7),)), None),
        (fact(500, is_recreated=True), "recreated", StartOffset(0), None),
        (fact(500, **exported(20)), "beyond", StartOffset(20), None),
        (fact(500), "beyond", None, None),
        (fact(10, **exported(500)), "behind", None, None),  # the log lost what was exported
        (
            fact(50, log=(30, 100), **exported(20)),
            "ahead",
            StartOffset(30, (SkippedRange("retention", 20, 30),)),
            StartOffset(50, (SkippedRange("moved", 20, 50),)),
        ),
    ],
)
def test_what_is_asked(
    given_fact: PartitionFacts, kind: str, lake: StartOffset | None, at_group: StartOffset | None
) -> None:
    """Each kind, and where each answer starts; an answer that would export twice is none."""
    found = find_start(given_fact)
    assert isinstance(found, Mismatch)
    assert (found.kind, found.lake, found.at_group) == (kind, lake, at_group)


def test_a_member_that_is_ahead_goes_on() -> None:
    """Other members have read what lies between: that is recorded, and not asked."""
    assert find_start(fact(50, **exported(20)), joins=True) == StartOffset(50, (SkippedRange("members", 20, 50),))
    found = find_start(fact(10, **exported(20)), joins=True)
    assert isinstance(found, Mismatch)
    assert found.kind == "behind"


def test_the_refusal_prints_both_positions_and_the_answers() -> None:
    """Those that are answers for all partitions."""
    with pytest.raises(MismatchError) as raised:
        make_plan("lake", "/lake", [fact(50, **exported(20))])
    assert names(raised.value.message, "lake", "/lake", "orders-0", 50, 20, 0, 100)
    assert [answer for answer, _ in raised.value.answers] == ["lake", "group", "skip"]
    with pytest.raises(MismatchError) as raised:
        make_plan("lake", "/lake", [fact(10, **exported(20))], on_mismatch="group")
    assert [answer for answer, _ in raised.value.answers] == ["lake", "skip"]
    plan = make_plan("lake", "/lake", [fact(10, **exported(20))], on_mismatch="skip")
    assert (plan.partitions, [partition for partition, _ in plan.left_out]) == ((), [ONE])


def test_an_offset_that_contradicts_from_is_refused() -> None:
    """``--from`` names an offset for a partition that has another one, or one that the log does not reach."""
    with pytest.raises(RefusedError, match=r"\borders-0\b.*\b10\b.*--from\b.*\b20\b"):
        make_plan("lake", "/lake", [fact(10, begin=20, is_exact=True)])
    with pytest.raises(RefusedError, match=r"--from\b.*\borders-0\b.*\b101\b.*\b100\b"):
        make_plan("lake", "/lake", [fact(begin=101, is_exact=True)])


offsets = st.integers(0, 60)


@given(
    committed=st.none() | offsets, low=offsets, size=offsets, end=st.none() | offsets, begin=st.none() | offsets,
    answer=st.sampled_from(("fail", "lake", "group", "skip")), is_new=st.booleans(), joins=st.booleans(),
)  # fmt: skip
def test_nothing_is_read_twice_and_nothing_is_passed_over_unnamed(
    committed: int | None, low: int, size: int, end: int | None, begin: int | None, answer: OnMismatch, is_new: bool,
    joins: bool,
) -> None:  # fmt: skip
    """Whatever the positions: a plan reads what the log has, nothing below where exports end, and names every offset
    between there, or the group's offset where nothing was exported, and its start."""
    known = {} if end is None else exported(end)
    given_fact = fact(committed, (low, low + size), begin=begin, is_new=is_new and end is None, **known)
    try:
        plan = make_plan("lake", "/lake", [given_fact], on_mismatch=answer, joins=joins)
    except RefusedError:
        return
    for part in plan.partitions:
        assert low <= part.start <= part.end <= low + size
        place = end if end is not None else committed if committed is not None else 0 if is_new else begin
        assert place is not None
        assert part.start >= place
        for gap in sorted(part.skipped, key=lambda gap: gap.start):
            assert gap.start <= place
            place = max(place, gap.end)
        assert place == part.start
