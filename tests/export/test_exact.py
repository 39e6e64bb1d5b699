"""What files in folders of times hold, by their own offsets, and what of it parts account for."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from zkgroup.export.lake.footer import UnreadableFileError, offsets_held
from zkgroup.export.lake.holdings import held_again, offsets_of
from zkgroup.export.lake.lake import Lake
from zkgroup.export.model.intervals import Interval, difference, hulls, union
from zkgroup.export.model.rundata import ManifestPart
from zkgroup.export.model.words import Lost, PartitionPlan, Slice
from zkgroup.export.stores.store import FolderStore
from zkgroup.protocol.names import TopicPartition

DAY, OTHER = "topic=t/date=2024-05-01/0.0-9.parquet", "topic=t/date=2024-05-02/0.0-9.parquet"
intervals = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 6)).map(lambda one: (one[0], one[0] + one[1])))


def offsets(found: Iterable[Interval]) -> set[int]:
    return {offset for low, high in found for offset in range(low, high)}


def of(held: Iterable[int]) -> tuple[Interval, ...]:
    return union((offset, offset + 1) for offset in held)


@given(st.dictionaries(st.integers(0, 3), st.frozensets(st.integers(0, 40), min_size=1)), st.integers(1, 9))
def test_a_file_tells_its_offsets(
    tmp_path_factory: pytest.TempPathFactory, held: dict[int, set[int]], rows: int
) -> None:
    """However its row groups are cut; where all is of one partition its folder tells which, and no column."""
    root = tmp_path_factory.mktemp("lake")
    both = [(number, offset) for number in sorted(held) for offset in sorted(held[number])]
    table = pa.table(
        {
            "partition": pa.array([number for number, _ in both], pa.int32()),
            "offset": pa.array([offset for _, offset in both], pa.int64()),
        }
    )
    (root / DAY).parent.mkdir(parents=True)
    pq.write_table(table, root / DAY, row_group_size=rows)
    lake = Lake(FolderStore(root))
    expected = {number: of(some) for number, some in held.items()}
    assert offsets_held(lake.store, DAY) == lake.exact(DAY) == expected
    alone = "topic=t/partition=7/date=2024-05-01/0-41.parquet"
    (root / alone).parent.mkdir(parents=True)
    pq.write_table(table.drop_columns(["partition"]).sort_by("offset"), root / alone, row_group_size=rows)
    single = {offset for _, offset in both}
    if len(single) == len(both):
        assert lake.exact(alone) == ({7: of(single)} if single else {})


def test_a_file_that_cannot_be_read_tells_nothing(tmp_path: Path) -> None:
    """Its range is taken for full then: nothing is written twice."""
    lake = Lake(FolderStore(tmp_path))
    (tmp_path / DAY).parent.mkdir(parents=True)
    strange = [pa.table({"x": [1]}), pa.table({"partition": [0], "offset": ["y"]}), None]
    for table in [*strange, pa.table({"partition": pa.array([None], pa.int32()), "offset": [1]})]:
        if table is None:
            (tmp_path / DAY).write_text("no Parquet")
        else:
            pq.write_table(table, tmp_path / DAY)
        with pytest.raises(UnreadableFileError):
            offsets_held(lake.store, DAY)
        assert lake.exact(DAY) is None
    assert offsets_of(DAY, Slice(0, 2, 7, 3), lake.exact) == ((2, 7),)
    assert lake.exact(OTHER) is None


@example([(0, 2)], [(1, 1)], [])
@given(intervals, intervals, intervals)
def test_what_is_left_and_what_is_put_together(
    pieces: list[Interval], taken: list[Interval], walls: list[Interval]
) -> None:
    left = difference(pieces, taken)
    assert offsets(left) == offsets(pieces) - offsets(taken)
    assert left == [one for one in union(left) if one[0] < one[1]]
    apart = difference(walls, left)
    joined = hulls(left, apart)
    assert sum(count for _, count in joined) == len(offsets(left))
    assert offsets(left) <= offsets(one for one, _ in joined)
    for one, count in joined:
        assert not offsets([one]) & offsets(apart)
        assert count == len(offsets([one]) & offsets(left))
        assert {one[0], one[1] - 1} <= offsets(left)
    for (before, _), (after, _) in pairwise(joined):
        assert offsets(apart) & set(range(before[1], after[0]))


@given(
    st.lists(st.sampled_from("abx"), min_size=1, max_size=30), st.sets(st.integers(0, 30)), st.booleans(),
    intervals,
)  # fmt: skip
def test_a_part_that_was_written_again_holds_what_its_files_hold(
    where: list[str], cuts: set[int], gone: bool, known: list[Interval]
) -> None:
    """Of the messages of two days (x: no message) those of one were written again, in files cut anywhere: held are
    they, and nothing else; of a file that is not there, its first and its last one."""
    folder = "topic=t/date=2024-05-01"
    edges = [0, *sorted(cut for cut in cuts if 0 < cut < len(where)), len(where)]
    files: list[tuple[str, Slice]] = []
    told: dict[str, dict[int, tuple[Interval, ...]]] = {}
    for low, high in pairwise(edges):
        if held := [offset for offset in range(low, high) if where[offset] == "a"]:
            one = Slice(0, held[0], held[-1] + 1, len(held))
            files.append((f"{folder}/{low}", one))
            told[f"{folder}/{low}"] = {0: of(held)}
    rows = sum(one.rows for _, one in files)
    lost = Lost(f"{folder}/lost", 0, len(where), rows)
    plan = PartitionPlan(TopicPartition("t", 0), None, None, 0, len(where), commits=False, again=(lost,))
    part = ManifestPart(plan, plan.end, rows, 0, {"elsewhere": len(where) - rows})
    asked: list[str] = []

    def exact(name: str) -> dict[int, tuple[Interval, ...]] | None:
        asked.append(name)
        return None if gone else told[name]

    found = list(held_again(part, files, known, timed=True, exact=exact))
    everything = {offset for offset, day in enumerate(where) if day == "a"}
    if set(range(len(where))) <= offsets(known):
        assert not asked
    elif not gone:
        assert offsets(found) == everything
    else:
        assert offsets(found) <= everything
        assert offsets(found) >= {edge for _, one in files for edge in (one.start, one.end - 1)}
    # Without folders of times, whoever reads a range reads all of it.
    assert list(held_again(part, files, (), timed=False, exact=exact)) == [(0, len(where))]
