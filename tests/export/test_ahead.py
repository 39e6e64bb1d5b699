"""Backfills of what a group has yet to export: its exports go on around that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from export_points import driven
from exports import at, joining, looked, made_again, offsets, problems, read, root_of
from hypothesis import example, given
from hypothesis import strategies as st
from resets import drop_messages

from zkgroup.errors import RefusedError
from zkgroup.export.checks.history import history
from zkgroup.export.checks.verify import verify
from zkgroup.export.lake.ahead import around, spared
from zkgroup.export.lake.lake import Lake
from zkgroup.export.model.intervals import subtract, union
from zkgroup.export.model.layout import LayoutWish
from zkgroup.export.model.rundata import TopicCoverage, TopicIdentity
from zkgroup.export.model.words import Disagreement, PartitionFacts, PartitionPlan, Policies
from zkgroup.export.planning.bounds import COMMITTED, EARLIEST, LATEST
from zkgroup.export.planning.plan import make_plan
from zkgroup.export.runs.run import PartitionSummary
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.sandbox import Sandbox
from zkgroup.servers.kafka import KafkaSettings
from zkgroup.servers.registry import Registry

Export = Callable[..., list[PartitionSummary]]
Scene = tuple[str, str]

T0 = TopicPartition("t", 0)
INTERVALS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)).map(lambda one: (one[0], sum(one))), max_size=4)


@given(st.integers(0, 20), st.integers(0, 30), INTERVALS, st.integers(0, 50), st.booleans())
@example(5, 20, [(5, 20)], 3, False)
@example(5, 20, [(5, 10), (20, 30)], 5, True)
def test_nothing_is_read_twice_and_nothing_is_passed(
    start: int, length: int, filled: list[tuple[int, int]], most: int, whole: bool
) -> None:
    """The parts read just what is not filled, in order, one after the other; the last one alone commits, and all before
    its end is read, or filled, also where a limit cuts them."""
    part = PartitionPlan(T0, start, 3, start, start + length)
    parts = list(around(part, union(filled), whole=whole))
    assert [one.commits for one in parts] == [False] * (len(parts) - 1) + [True]
    end = parts[-1].end
    if whole:
        assert end == part.end
    facts = PartitionFacts(T0, start, 3, 0, start + length, filled=union(filled))
    limited = make_plan("g", [facts], max_messages=most, whole=whole).partitions
    assert sum(one.end - one.start for one in limited) <= most
    for some in (parts, limited):
        assert some[-1].commits
        read = [(one.start, one.end) for one in some if one.start < one.end]
        told = [(gap.start, gap.end) for one in some for gap in one.skipped]
        assert read == sorted(read)
        assert all(subtract(one, filled) == [one] for one in read)
        assert not any(subtract(gap, filled) for gap in told)
        assert not subtract((start, some[-1].end), [*read, *told])


@pytest.mark.parametrize("committed", [0, 3, 4, 7, 9, 12, 15, None])
def test_exports_end_before_what_backfills_hold_further_on(committed: int | None) -> None:
    """Wherever the group stands; where there are none, a group behind all of it begins where nobody was."""
    coverage = ((0, 4), (9, 12))

    def held(*intervals: tuple[int, int], end: int | None = None) -> TopicCoverage:
        return TopicCoverage(TopicIdentity(7), {0: intervals}, ends={} if end is None else {0: end})

    assert spared(committed, coverage, [held(*coverage, end=4)], 0) == (((0, 4),), ((9, 12),))
    # Also of two groups, each with a backfill; not before the other one's exports.
    two = [held(*coverage, end=4), held((20, 30))]
    assert spared(committed, (*coverage, (20, 30)), two, 0) == (((0, 4),), ((9, 12), (20, 30)))
    assert spared(committed, coverage, [held(*coverage, end=4), held((12, 12), end=12)], 0) == (coverage, ())
    _, alone = spared(committed, [(9, 12)], [held((9, 12))], 0)
    assert alone == (((9, 12),) if committed is None or committed < 12 else ())


@pytest.mark.parametrize(
    "layout", [LayoutWish(), LayoutWish(()), LayoutWish(("date", "hour"))], ids=lambda w: str(w.by)
)
def test_an_export_goes_on_around_what_a_backfill_holds(
    in_process: Export, forty: Scene, fill: Callable[..., object], committed: Callable[..., int | None], lake: Lake,
    layout: LayoutWish,
) -> None:  # fmt: skip
    """It reads what lies before and behind that, once, says so, and commits the end; and nothing is amiss after it."""
    topic, group = forty
    in_process(group, topic, until=at(topic, 5), layout=layout)
    for low, high in ((10, 20), (30, 33)):
        in_process(group, topic, backfill=True, begin=at(topic, low), until=at(topic, high))
        assert committed(group, topic) == 5
    told: list[str] = []
    standing = {group: {TopicPartition(topic, 0): committed(group, topic)}}
    assert [row.problem for row in verify(lake, standing, told.append)] == [None]
    assert [line.endswith("its next export goes on around that") for line in told] == [True]
    told.clear()
    assert read(in_process(group, topic, warn=told.append)) == [(5, 10), (20, 30), (33, 40)]
    assert told == [f"{topic}-0: offsets {gap} were exported before" for gap in ("10 to 19", "30 to 32")]
    assert (committed(group, topic), offsets(lake), problems(lake)) == (40, list(range(40)), [])
    (row,) = verify(lake)
    assert (row.rows, row.gaps, row.skipped) == (40, 0, 0)
    assert [(run.partitions, run.rows, run.skipped) for run in history(lake)][-1] == (1, 22, 0)
    fill(topic, 3)
    assert read(in_process(group, topic)) == [(40, 43)]
    assert (offsets(lake), problems(lake)) == (list(range(43)), [])


@pytest.mark.parametrize("limit", [{"max_messages": 4}, {"max_bytes": 1}, {"max_messages": 5}, {"max_messages": 1}])
def test_runs_with_limits_go_on_around_it_too(
    in_process: Export, forty: Scene, committed: Callable[..., int | None], lake: Lake, limit: dict[str, Any]
) -> None:
    """However far each comes, the group never stands behind a message that is in no file."""
    topic, group = forty
    in_process(group, topic, until=at(topic, 5))
    in_process(group, topic, backfill=True, begin=at(topic, 10), until=at(topic, 20))
    stood = 5
    while stood < 40:
        in_process(group, topic, **limit)
        now = committed(group, topic)
        assert now is not None
        assert now > stood
        assert set(range(now)) <= set(offsets(lake))
        stood = now
    assert (offsets(lake), problems(lake)) == (list(range(40)), [])


@pytest.mark.parametrize("until", [12, 20, 25])
def test_an_end_within_what_a_backfill_holds(
    in_process: Export, forty: Scene, committed: Callable[..., int | None], lake: Lake, until: int
) -> None:
    """The group stands there afterwards, and the next export goes on behind the backfill."""
    topic, group = forty
    in_process(group, topic, until=at(topic, 5))
    in_process(group, topic, backfill=True, begin=at(topic, 5), until=at(topic, 20))
    in_process(group, topic, until=at(topic, until))
    assert committed(group, topic) == until
    assert read(in_process(group, topic)) == [(max(until, 20), 40)]
    assert (offsets(lake), problems(lake), committed(group, topic)) == (list(range(40)), [], 40)


def test_a_group_that_has_exported_nothing_but_backfills(
    in_process: Export, forty: Scene, fill: Callable[..., object], committed: Callable[..., int | None], lake: Lake
) -> None:
    """A lake that began with a backfill is gone on with: the group was never set back."""
    topic, group = forty
    in_process(group, topic, backfill=True, begin=EARLIEST, until=LATEST)
    assert committed(group, topic) is None
    fill(topic, 5)
    assert read(in_process(group, topic, begin="earliest")) == [(40, 45)]
    assert (offsets(lake), problems(lake), committed(group, topic)) == (list(range(45)), [], 45)


def test_what_retention_takes_of_the_backfill_is_not_lost(
    in_process: Export, forty: Scene, kafka: KafkaSettings, committed: Callable[..., int | None], lake: Lake
) -> None:
    """Only what was in no file is; and it is counted so."""
    topic, group = forty
    in_process(group, topic, until=at(topic, 5))
    in_process(group, topic, backfill=True, begin=at(topic, 10), until=at(topic, 20))
    drop_messages(kafka, TopicPartition(topic, 0), 15)
    with pytest.raises(RefusedError, match="5 offsets of 1 partition"):
        in_process(group, topic)
    assert read(in_process(group, topic, policies=Policies(expired="earliest"))) == [(20, 40)]
    (row,) = verify(lake)
    assert (row.problem, row.rows, row.skipped, committed(group, topic)) == (None, 35, 5, 40)


def test_a_group_that_was_moved_to_the_backfills_end_goes_on_there(
    in_process: Export, forty: Scene, commit: Callable[..., None], lake: Lake
) -> None:
    """As after any export; what lies before it is for another backfill."""
    topic, group = forty
    in_process(group, topic, until=at(topic, 5))
    in_process(group, topic, backfill=True, begin=at(topic, 10), until=at(topic, 20))
    commit(group, {TopicPartition(topic, 0): 20})
    assert read(in_process(group, topic)) == [(20, 40)]
    assert read(in_process(group, topic, backfill=True, begin=EARLIEST, until=COMMITTED)) == [(5, 10)]
    assert (offsets(lake), problems(lake)) == (list(range(40)), [])


def test_a_backfill_does_not_finish_what_moves_the_group(
    in_process: Export, forty: Scene, make_topic: Callable[..., str], fill: Callable[..., object], short: Any,
    kafka: KafkaSettings, committed: Callable[..., int | None], lake: Lake,
) -> None:  # fmt: skip
    """An export that was killed is named, and nothing is done; once it is finished the backfill is. An
    export of another topic finishes it, and does what it was called for."""
    (topic, group), other = forty, make_topic()
    fill(other, 10)
    wish = {"group": group, "topics": [topic], "out": root_of(lake)}
    assert driven(short, kafka, kill_at="decided", **wish)[0] == -9
    with pytest.raises(RefusedError, match="was left decided, and would have to be finished first") as refused:
        in_process(group, other, backfill=True, begin=EARLIEST, until=LATEST)
    assert "export --group" in refused.value.remedy
    assert (committed(group, topic), lake.last(group).run) == (None, None)
    told: list[str] = []
    rows = in_process(group, other, warn=told.append)
    assert [(row.topic, row.rows) for row in rows] == [(topic, 40), (other, 10)]
    assert [line.endswith(f", and its ranges: then comes {other}") for line in told] == [True]
    assert (committed(group, topic), committed(group, other)) == (40, 10)
    assert problems(lake) == []


@pytest.mark.parametrize("stands", [3, 7, 10, 15, 30])
@pytest.mark.parametrize("believed", ["lake", "group"])
def test_a_group_that_was_moved_is_held_against_where_its_exports_end(
    in_process: Export, gap: Scene, commit: Callable[..., None], lake: Lake, stands: int, believed: Disagreement
) -> None:
    """The backfill is not their end: with the lake's word nothing is passed over, with the group's all that is in no
    file is recorded."""
    topic, group = gap
    commit(group, {TopicPartition(topic, 0): stands})
    found = [row.problem for row in verify(lake, {group: {TopicPartition(topic, 0): stands}}) if row.problem]
    assert f"group {group} stands at {stands}, exported up to 5" in found
    behind = f"is at {stands}, exported up to 5|already holds offsets 0 to 4 of .* it stands at {stands}:"
    with pytest.raises(RefusedError, match=behind):
        in_process(group, topic)
    policies = Policies(disagreement=believed)
    if (stands, believed) == (3, "group"):
        with pytest.raises(RefusedError, match=behind):
            in_process(group, topic, policies=policies)
        return
    in_process(group, topic, policies=policies)
    passed = set() if believed == "lake" else set(range(5, stands)) - set(range(10, 20))
    assert (offsets(lake), problems(lake)) == (sorted(set(range(40)) - passed), [])
    (row,) = verify(lake)
    assert row.skipped == len(passed)
    in_process(group, topic, backfill=True, begin=EARLIEST, until=COMMITTED)
    assert (offsets(lake), problems(lake)) == (list(range(40)), [])


def test_what_is_missing_below_the_exports_end_is_told_wherever_the_group_stands(
    in_process: Export, forty: Scene, commit: Callable[..., None], cluster: Sandbox, lake: Lake
) -> None:
    """Also at the end of a backfill below it: what is missing behind it alone is yet to be exported."""
    topic, group = forty
    in_process(group, topic, begin=at(topic, 20), until=at(topic, 25))
    for low, high in ((0, 10), (30, 35)):
        in_process(group, topic, backfill=True, begin=at(topic, low), until=at(topic, high))
    for stands in (10, 25):
        commit(group, {TopicPartition(topic, 0): stands})
        told: list[str] = []
        rows = verify(lake, {group: {TopicPartition(topic, 0): stands}}, told.append)
        assert [(row.start, row.end) for row in rows if row.problem] == [(10, 20)], stands
        assert len(told) == (stands == 25)
    commit(group, {TopicPartition(topic, 0): 10})
    assert f"group {group} stands at 10" not in looked(cluster, lake, "--group", group)
    in_process(group, topic, backfill=True, begin=at(topic, 10), until=at(topic, 20))
    commit(group, {TopicPartition(topic, 0): 25})
    in_process(group, topic)
    assert (offsets(lake), problems(lake)) == (list(range(40)), [])


@pytest.mark.parametrize("stands", [3, 5, 10, 20, 25, 35])
def test_a_group_that_stands_in_a_hole_goes_on_where_exports_end(
    in_process: Export, forty: Scene, commit: Callable[..., None], lake: Lake, stands: int
) -> None:
    """All of the hole is recorded, and it is told that the group was moved; the refusal before tells where to. A hole
    that is not on its way stays one."""
    topic, group = forty
    in_process(group, topic, backfill=True, begin=EARLIEST, until=at(topic, 5))
    in_process(group, topic, begin=at(topic, 20), until=at(topic, 30))
    commit(group, {TopicPartition(topic, 0): stands})
    met = f"already holds offsets {'0 to 4' if stands == 3 else '20 to 29'} of"
    if stands in (10, 35):
        met = (
            "is at 10, exported up to 5, and further on to 30[)]" if stands == 10 else "is at 35, exported up to 30[)]"
        )
    with pytest.raises(RefusedError, match=met):
        in_process(group, topic)
    told: list[str] = []
    in_process(group, topic, policies=Policies(disagreement="lake"), warn=told.append)
    assert f"{topic}-0: the group was moved to {stands}: it goes on at 30, where its exports end" in told
    (row, *missing) = verify(lake)
    assert row.skipped == (15 if stands < 20 else 0)
    assert [(one.start, one.end) for one in missing] == ([] if stands < 20 else [(5, 20)])


@pytest.mark.parametrize("stands", [3, 7, 30])
def test_that_a_group_was_moved_is_said_where_a_backfill_is_ahead_too(
    in_process: Export, gap: Scene, commit: Callable[..., None], stands: int
) -> None:
    """What is exported then is in several parts."""
    topic, group = gap
    commit(group, {TopicPartition(topic, 0): stands})
    told: list[str] = []
    in_process(group, topic, policies=Policies(disagreement="lake"), warn=told.append)
    assert [line for line in told if "was moved" in line] == [
        f"{topic}-0: the group was moved to {stands}: it goes on at 5, where its exports end"
    ]


@pytest.mark.parametrize("stands", [5, 7, 15, 30])
def test_a_member_goes_on_around_it_too(
    in_process: Export, gap: Scene, commit: Callable[..., None], lake: Lake, stands: int
) -> None:
    """What the other members have read, and no backfill holds, is recorded."""
    topic, group = gap
    commit(group, {TopicPartition(topic, 0): stands})
    in_process(group, topic, join=joining(group))
    read_by_others = set(range(5, stands)) - set(range(10, 20))
    assert (offsets(lake), problems(lake)) == (sorted(set(range(40)) - read_by_others), [])


def test_a_group_that_was_renamed_goes_on_around_it(
    in_process: Export, gap: Scene, commit: Callable[..., None], lake: Lake
) -> None:
    """It stands where the exports of the other name end."""
    topic, group = gap
    commit(f"{group}-2", {TopicPartition(topic, 0): 5})
    assert read(in_process(f"{group}-2", topic)) == [(5, 10), (20, 40)]
    assert (offsets(lake), problems(lake)) == (list(range(40)), [])


@pytest.mark.parametrize("stands", [6, 10, None])
def test_a_lake_that_began_with_a_backfill_waits_for_the_groups_exports(
    in_process: Export, forty: Scene, commit: Callable[..., None], lake: Lake, stands: int | None
) -> None:
    """Nobody has moved a group that has exported nothing."""
    topic, group = forty
    if stands is not None:
        commit(group, {TopicPartition(topic, 0): stands})
    in_process(group, topic, backfill=True, begin=at(topic, 8), until=at(topic, 12))
    assert [row.problem for row in verify(lake, {group: {TopicPartition(topic, 0): stands}})] == [None]
    in_process(group, topic)
    assert (offsets(lake), problems(lake)) == (list(range(min(stands or 0, 8), 40)), [])


@pytest.mark.parametrize("backfills", [[(0, 5)], [(0, 5), (20, 25)]], ids=["one", "two"])
def test_what_retention_took_behind_backfills_is_told(
    in_process: Export, forty: Scene, kafka: KafkaSettings, lake: Lake, backfills: list[tuple[int, int]]
) -> None:
    """A first export comes to a log that begins further on: that is refused, or recorded."""
    topic, group = forty
    for low, high in backfills:
        in_process(group, topic, backfill=True, begin=at(topic, low), until=at(topic, high))
    drop_messages(kafka, TopicPartition(topic, 0), 12)
    with pytest.raises(RefusedError, match="7 offsets of 1 partition"):
        in_process(group, topic, begin="earliest")
    in_process(group, topic, begin="earliest", policies=Policies(expired="earliest"))
    (row,) = verify(lake)
    assert (row.problem, row.rows, row.skipped) == (None, 33, 7)


@pytest.mark.parametrize("first", [20, 21])
def test_a_backfill_that_begins_where_a_first_export_ended_without_a_message_hides_no_end(
    in_process: Export, forty: Scene, commit: Callable[..., None], lake: Lake, first: int
) -> None:
    """A group that was moved on from there is told that it was."""
    topic, group = forty
    in_process(group, topic, begin=at(topic, 20), until=at(topic, 20))
    in_process(group, topic, backfill=True, begin=at(topic, first), until=at(topic, 25))
    in_process(group, topic, backfill=True, begin=at(topic, 35), until=at(topic, 38))
    commit(group, {TopicPartition(topic, 0): 30})
    with pytest.raises(RefusedError, match=r"is at 30, exported up to 20"):
        in_process(group, topic)
    told: list[str] = []
    in_process(group, topic, join=joining(group), warn=told.append)
    assert f"{topic}-0: offsets 25 to 29 are not exported (moved)" in told
    assert problems(lake) == []


def test_what_was_not_exported_of_an_earlier_log_is_no_gap(
    in_process: Export, gap: Scene, registry: Registry, fill: Callable[..., object], lake: Lake
) -> None:
    """Before a backfill as behind one: it was left there."""
    topic, group = gap
    made_again(registry, topic)
    fill(topic, 7)
    in_process(group, topic, policies=Policies(recreated="earliest"))
    assert problems(lake) == []


def test_what_was_not_exported_below_the_first_export_of_an_earlier_log_is_no_gap(
    in_process: Export, forty: Scene, registry: Registry, lake: Lake
) -> None:
    """As long as the log is there it is, and a backfill fills it; then it was left there, as what lies behind."""
    topic, group = forty
    in_process(group, topic, begin=at(topic, 20))
    in_process(group, topic, backfill=True, begin=at(topic, 0), until=at(topic, 10))
    assert [found[:2] for found in problems(lake)] == [(10, 20)]
    made_again(registry, topic)
    in_process(group, topic, policies=Policies(recreated="earliest"))
    row = next(row for row in verify(lake) if row.rows)
    assert (row.problem, row.start, row.end, row.rows, row.skipped) == (None, 0, 40, 30, 10)
    assert problems(lake) == []


def test_a_member_that_stands_elsewhere_reads_few_manifests(
    in_process: Export, forty: Scene, commit: Callable[..., None], lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest export tells where exports end, however many there were."""
    topic, group = forty
    for end in range(1, 31):
        in_process(group, topic, until=at(topic, end))
    commit(group, {TopicPartition(topic, 0): 40})
    read_before: list[str] = []
    manifest = Lake.manifest

    def count(lake: Lake, group: str, run: str, *more: str) -> Any:
        read_before.append(run)
        return manifest(lake, group, run, *more)

    monkeypatch.setattr(Lake, "manifest", count)
    assert in_process(group, topic, join=joining(group))[0].rows == 0
    assert set(read_before) <= set(lake.runs(group)[-1:])


@pytest.mark.parametrize("stands", [None, 8])
@pytest.mark.parametrize("limits", [{}, {"max_messages": 6}])
def test_another_group_goes_on_around_it(
    in_process: Export, forty: Scene, commit: Callable[..., None], committed: Callable[..., int | None], lake: Lake,
    stands: int | None, limits: dict[str, Any],
) -> None:  # fmt: skip
    """Where the one that has filled it has exported nothing; whoever is refused at first is told how."""
    topic, group = forty
    in_process(group, topic, backfill=True, begin=at(topic, 14), until=at(topic, 20))
    if stands is not None:
        commit(f"{group}-2", {TopicPartition(topic, 0): stands})
    with pytest.raises(RefusedError, match=r"holds offsets 14 to 19") as refused:
        in_process(f"{group}-2", topic)
    assert "--on-disagreement lake" in refused.value.remedy
    believed = Policies(disagreement="lake")
    while committed(f"{group}-2", topic) != 40:
        in_process(f"{group}-2", topic, policies=believed, **limits)
    assert (offsets(lake), problems(lake)) == (list(range(stands or 0, 40)), [])
