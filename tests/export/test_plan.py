"""Plans: what is read and where it ends, from facts alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest
from exports import mismatches_of
from hypothesis import given
from hypothesis import strategies as st
from lines import names

from zkgroup.errors import RefusedError
from zkgroup.export.model.choices import OnMismatch
from zkgroup.export.model.plan_types import ExportPlan, OffsetRange, PartitionFacts, SkippedRange
from zkgroup.export.planning.export_plan import make_backfill, make_plan
from zkgroup.export.planning.mismatch import MismatchError, NoOffsetError
from zkgroup.export.run.range_tasks import cut, pack
from zkgroup.protocol.names import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def facts(
    partition: TopicPartition, committed: int | None, log_start: int, log_end: int, version: int = 3,
    begin: int | None = None, ended: int | None = None,
) -> PartitionFacts:  # fmt: skip
    known = version if committed is not None else None
    return PartitionFacts(partition, committed, known, log_start, log_end, begin=begin, ended=ended)


def reads(plan: ExportPlan) -> list[OffsetRange]:
    """The offsets that a plan reads."""
    return [OffsetRange(part.partition, part.start, part.end) for part in plan.partitions if part.start < part.end]


@given(st.integers(0, 10**12), st.integers(0, 10**7), st.integers(1, 10**6))
def test_ranges_cover_without_gap_or_overlap(start: int, length: int, size: int) -> None:
    """The ranges of a partition stand together, none is empty or too long, and there are no more than needed."""
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
    plan = make_plan("g", "/out", [facts(T1, 5, 0, 5), facts(T0, 7, 2, 30, version=9)])
    assert [(p.partition, p.start, p.end, p.version, p.moves) for p in plan.partitions] == [
        (T0, 7, 30, 9, True),
        (T1, 5, 5, 3, False),
    ]
    assert reads(plan) == [OffsetRange(T0, 7, 30)]
    assert plan.moves


def test_nothing_new_moves_nothing() -> None:
    """A group at the end of the log has an empty plan."""
    plan = make_plan("g", "/out", [facts(T0, 7, 0, 7)])
    assert not plan.moves
    assert not plan.reads


def test_no_offset_is_refused_unless_from_says_where_to_begin() -> None:
    """Without a committed offset nobody knows what is new: refused, naming the partitions, or begun at ``--from``."""
    other = facts(T1, 4, 0, 4)
    with pytest.raises(NoOffsetError, match=r"\bg\b.*\b1\b.*\bt-0\b.*--from earliest\b.*--from latest\b"):
        make_plan("g", "/out", [facts(T0, None, 3, 10), other])
    earliest = make_plan("g", "/out", [facts(T0, None, 3, 10, begin=3), other])
    assert reads(earliest) == [OffsetRange(T0, 3, 10)]
    latest = make_plan("g", "/out", [facts(T0, None, 3, 10, begin=10), other])
    assert not latest.reads
    assert latest.moves  # the group gets its offset, so that the next export knows what is new


def test_from_does_not_touch_what_has_an_offset() -> None:
    """``--from`` is for partitions without an offset: the others go on where they are."""
    assert reads(make_plan("g", "/out", [facts(T0, 4, 0, 9, begin=0)])) == [OffsetRange(T0, 4, 9)]


@pytest.mark.parametrize("answer", ["lake", "group"])
def test_lost_messages_are_refused_or_recorded(answer: Literal["lake", "group"]) -> None:
    """Retention overtook the group: refused with both positions; with an answer it starts where the log starts."""
    behind = [facts(T0, 10, 25, 40, ended=10)]
    with pytest.raises(MismatchError) as refused:
        make_plan("g", "/out", behind)
    assert mismatches_of(refused.value) == [(T0, "expired", 10, 10)]
    assert names(str(refused.value), "g", "/out", 1, "t-0", 10, 10, 25, 40, "--on-mismatch", "lake", "group", "skip")
    plan = make_plan("g", "/out", behind, on_mismatch=answer)
    assert reads(plan) == [OffsetRange(T0, 25, 40)]
    assert plan.partitions[0].skipped == (SkippedRange("retention", 10, 25),)


@pytest.mark.parametrize("answer", ["fail", "lake", "group"])
def test_an_offset_behind_the_end_is_refused(answer: OnMismatch) -> None:
    """The log is not the one the group read: where nothing was exported, only leaving it out is an answer."""
    beyond = [facts(T0, 41, 0, 40, begin=0)]
    with pytest.raises(MismatchError) as refused:
        make_plan("g", "/out", beyond, on_mismatch=answer)
    assert mismatches_of(refused.value) == [(T0, "beyond", 41, None)]
    assert [one for one, _ in refused.value.answers] == ["skip"]
    assert names(str(refused.value), "t-0", 41, 0, 40, "--on-mismatch skip")
    plan = make_plan("g", "/out", beyond, on_mismatch="skip")
    assert (plan.partitions, [partition for partition, _ in plan.left_out]) == ((), [T0])


def test_a_refusal_names_a_few_and_counts_the_rest() -> None:
    """A thousand bad partitions make one line, not a thousand."""
    with pytest.raises(NoOffsetError, match=r"\b50\b.*\bt-0\b.*\bt-1\b.*\bt-2\b.*\b47\b") as refused:
        make_plan("g", "/out", [facts(TopicPartition("t", i), None, 0, 1) for i in range(50)])
    assert "t-3" not in str(refused.value)


def test_a_recreated_topic_is_exported_before_it_is_filled() -> None:
    """Its records are of the earlier log: a backfill would write all of the new one."""
    with pytest.raises(RefusedError, match=r"\bt\b"):
        make_backfill("g", "/out", [replace(facts(T0, 20, 0, 40, begin=0), is_recreated=True)])
