"""Plans: what is read and where it ends, from facts alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkgroup.errors import RefusedError
from zkgroup.export.planning.export_plan import OffsetRange, PartitionFacts, cut, make_plan, pack
from zkgroup.protocol.names import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def facts(
    partition: TopicPartition, committed: int | None, log_start: int, log_end: int, version: int | None = 3
) -> PartitionFacts:
    return PartitionFacts(partition, committed, version if committed is not None else None, log_start, log_end)


@given(st.integers(0, 10**12), st.integers(0, 10**7), st.integers(1, 10**6))
def test_ranges_cover_without_gap_or_overlap(start: int, length: int, size: int) -> None:
    """The ranges of a partition stand side by side, none is empty or too long, and there are no more than needed."""
    pieces = cut(T0, start, start + length, max(size, length // 1000 + 1))
    size = max(size, length // 1000 + 1)
    assert [piece.start for piece in pieces[1:]] == [piece.end for piece in pieces[:-1]]
    if length:
        assert (pieces[0].start, pieces[-1].end) == (start, start + length)
    assert len(pieces) == -(-length // size)
    assert all(0 < piece.end - piece.start <= size for piece in pieces)


@given(st.lists(st.integers(1, 2_000_000), max_size=60))
def test_tasks_hold_every_range_once_and_no_more_than_they_should(lengths: list[int]) -> None:
    """Dealing ranges out loses none and repeats none; only a large range by itself fills a task beyond its size."""
    ranges = [OffsetRange(TopicPartition("t", i), 0, length) for i, length in enumerate(lengths)]
    tasks = pack(ranges)
    assert [piece for task in tasks for piece in task] == ranges
    assert all(task and (len(task) == 1 or sum(p.end - p.start for p in task) <= 1_000_000) for task in tasks)


def test_many_small_ranges_share_tasks() -> None:
    """A thousand partitions with a few messages each need neither a thousand tasks nor a single one."""
    tasks = pack([OffsetRange(TopicPartition("t", i), 0, 10) for i in range(1000)])
    assert 10 < len(tasks) < 50


def test_all_cores_get_tasks_that_are_worth_it() -> None:
    """Four ranges that one task could hold are two tasks for two cores, and four for any more; small ones stay one."""

    def dealt(length: int, cores: int) -> list[int]:
        return [
            len(task) for task in pack([OffsetRange(TopicPartition("t", i), 0, length) for i in range(4)], cores=cores)
        ]

    assert dealt(200_000, 1) == [4]
    assert dealt(200_000, 2) == [2, 2]
    assert dealt(200_000, 16) == [1, 1, 1, 1]
    assert dealt(1_000, 16) == [4]


def test_a_plan_reads_from_the_committed_offset_to_the_end() -> None:
    """Start, end and version are those of the facts, in the order of the partitions, and what is even is not read."""
    plan = make_plan("g", [facts(T1, 5, 0, 5), facts(T0, 7, 2, 30, version=9)])
    assert [(p.partition, p.start, p.end, p.version, p.moves) for p in plan.partitions] == [
        (T0, 7, 30, 9, True),
        (T1, 5, 5, 3, False),
    ]
    assert plan.ranges == (OffsetRange(T0, 7, 30),)
    assert (plan.messages, plan.moves) == (23, True)


def test_nothing_new_moves_nothing() -> None:
    """A group that stands at the end has an empty plan."""
    plan = make_plan("g", [facts(T0, 7, 0, 7)])
    assert not plan.moves
    assert not plan.ranges


def test_no_offset_is_refused_unless_told_where_to_begin() -> None:
    """Without a committed offset nobody knows what is new: refused, naming the partitions, or begun where told."""
    both = [facts(T0, None, 3, 10), facts(T1, 4, 0, 4)]
    with pytest.raises(RefusedError, match=r"no committed offset for 1 partition \(t-0\).*--from"):
        make_plan("g", both)
    earliest = make_plan("g", both, begin="earliest")
    assert earliest.ranges == (OffsetRange(T0, 3, 10),)
    latest = make_plan("g", both, begin="latest")
    assert not latest.ranges
    assert latest.moves  # the group gets its offset, so that the next export knows what is new


def test_from_does_not_touch_what_has_an_offset() -> None:
    """``--from`` is for partitions without an offset: the others go on where they are."""
    assert make_plan("g", [facts(T0, 4, 0, 9)], begin="earliest").ranges == (OffsetRange(T0, 4, 9),)


def test_lost_messages_are_refused_or_skipped_knowingly() -> None:
    """Retention overtook the group: refused with what is lost; with ``skip_lost`` it goes on where the log starts."""
    behind = [facts(T0, 10, 25, 40)]
    with pytest.raises(RefusedError, match=r"t-0 is at 10, its log starts at 25: 15 offsets are lost.*--skip-lost"):
        make_plan("g", behind)
    plan = make_plan("g", behind, skip_lost=True)
    assert plan.ranges == (OffsetRange(T0, 25, 40),)
    assert plan.partitions[0].lost == 15


def test_an_offset_behind_the_end_is_always_refused() -> None:
    """The log is not the one the group read: no option makes that right."""
    for skip_lost in (False, True):
        with pytest.raises(RefusedError, match="t-0 is at 41, its log ends at 40"):
            make_plan("g", [facts(T0, 41, 0, 40)], begin="earliest", skip_lost=skip_lost)


def test_a_refusal_names_a_few_and_counts_the_rest() -> None:
    """A thousand bad partitions make one line, not a thousand."""
    with pytest.raises(RefusedError, match=r"for 50 partitions \(t-0, t-1, t-2 and 47 more\)"):
        make_plan("g", [facts(TopicPartition("t", i), None, 0, 1) for i in range(50)])
