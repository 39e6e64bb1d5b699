"""The destination as a whole: names, runs, what they account for, and what is in the way."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkgroup.errors import RefusedError, ZkgroupError
from zkgroup.export.lake.book import Book
from zkgroup.export.lake.coverage import extended
from zkgroup.export.lake.lake import Lake, LastRun
from zkgroup.export.lake.leftovers import has_garbage, remove_garbage
from zkgroup.export.lake.overlap import refuse_overlap
from zkgroup.export.model.documents import (
    decode_manifest,
    decode_plan,
    decode_pointer,
    decode_settled,
    encode_manifest,
    encode_plan,
    encode_pointer,
    encode_settled,
)
from zkgroup.export.model.intervals import holes, overlaps, subtract, union
from zkgroup.export.model.layout import Layout
from zkgroup.export.model.rundata import (
    Manifest,
    ManifestFile,
    ManifestPart,
    Pointer,
    Roll,
    RunPlan,
    Settled,
    TopicCoverage,
    TopicIdentity,
    rows_held,
)
from zkgroup.export.model.words import Lost, OffsetRange, PartitionPlan, Skipped, Slice
from zkgroup.export.runs.assembling import refuse_shared
from zkgroup.export.stores.store import FolderStore
from zkgroup.protocol.names import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
FIRST, SECOND = TopicIdentity(7, None, "delete"), TopicIdentity(9, "id", "compact", "9")
PART = PartitionPlan(T0, 3, 5, 10, 20, (Skipped("retention", 3, 10),))
LAYOUT = Layout(("date", "hour"), "Europe/Berlin", "text", "json")
PLAN = RunPlan(
    "00000001-aaaaaaaa", "g", "export", "c", 1, "read_committed", "zstd", 1, 10, None, False, False, {"t": FIRST},
    (PART, PartitionPlan(T1, None, None, 0, 5, (), False, (Lost("topic=t/1.0-5.parquet", 0, 5, 4),))),
    None, "host", "0.1", LAYOUT,
)  # fmt: skip
FILE = ManifestFile("attempt/x.tmp", "topic=t/partition=0/10-20.parquet", "t", 8, 100, (Slice(0, 10, 20, 8),))
MANIFEST = Manifest(
    PLAN.run, "g", "export", "c", "hash", "attempt", 1, 2, "read_committed",
    (ManifestPart(PART, 20, 7, 1, {"transactions": 2}, 3, 1),),
    {"t": TopicCoverage(FIRST, {0: ((3, 20), (30, 40))}, {0: 19_844}, {0: 20})}, None, (FILE,), LAYOUT,
    roll=Roll("hash", ("00000007-aaaaaaaa",)),
)  # fmt: skip

intervals = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 10)).map(lambda p: (p[0], p[0] + p[1])), max_size=8)


def points(found: object) -> set[int]:
    """All offsets of intervals."""
    return {offset for low, high in found for offset in range(low, high)}  # type: ignore[attr-defined]


@given(intervals, st.tuples(st.integers(0, 30), st.integers(0, 30)).map(sorted).map(tuple))
def test_intervals_are_sets_of_offsets(found: list[tuple[int, int]], one: tuple[int, int]) -> None:
    """Union, difference, what is there twice and what lies between, held against sets of numbers."""
    merged = union(found)
    assert points(merged) == points(found)
    assert all(a[1] < b[0] for a, b in itertools.pairwise(merged))
    assert points(subtract(one, found)) == points([one]) - points(found)
    assert all(low < high for low, high in subtract(one, found))
    full = [interval for interval in found if interval[0] < interval[1]]
    twice = {o for o in points(full) if sum(low <= o < high for low, high in full) > 1}
    assert points(overlaps(full)) == twice
    if merged:
        assert points(holes(found)) == set(range(merged[0][0], merged[-1][1])) - points(found)


def test_documents_are_read_as_they_were_written() -> None:
    """Plan, manifest, settlement and pointer, with everything in them."""
    assert decode_plan("plan", encode_plan(PLAN)) == PLAN
    assert decode_manifest("manifest", encode_manifest(MANIFEST)) == MANIFEST
    settled = Settled("withdraw", 3, (T0,), MANIFEST.coverage, MANIFEST.roll)
    assert decode_settled("settled", encode_settled(settled)) == settled
    pointer = Pointer("decided", "run", "/out", "hash", "attempt", "hash too")
    assert decode_pointer("/path", encode_pointer(pointer)) == pointer
    assert decode_pointer("/path", b"") is None


@pytest.mark.parametrize("data", [b"no json", b"[]", b'{"format": 4}', b'{"format": 1}', b'{"format": 1, "topics": 3}'])
def test_documents_that_cannot_be_read_are_named(data: bytes) -> None:
    """Foreign, half and later documents are errors with the name, and never taken for something else."""
    for read in (decode_plan, decode_manifest, decode_settled, decode_pointer):
        with pytest.raises(ZkgroupError, match="THIS cannot be read"):
            read("THIS", data)


def test_a_pointer_that_nobody_wrote_is_to_be_deleted() -> None:
    """Of a node there is no copy, and --settle cannot end what it cannot read."""
    with pytest.raises(ZkgroupError) as raised:
        decode_pointer("/consumers/g/zkgroup/export", b"garbage")
    assert raised.value.message.startswith("znode /consumers/g/zkgroup/export cannot be read")
    assert (
        raised.value.remedy == "use the release that wrote it; if none did, delete it, then look with export --verify"
    )


def test_the_account_is_offsets_against_rows_and_gaps() -> None:
    """A part is balanced when every offset is a row or a gap, and its files hold the rows."""
    (part,) = MANIFEST.parts
    assert part.balanced
    assert not replace(part, rows=6).balanced
    assert not replace(part, gaps={}).balanced
    assert not replace(part, undecodable=0).balanced
    assert not replace(part, end=19).balanced
    assert rows_held(MANIFEST.parts, MANIFEST.files) == [8]
    assert rows_held(MANIFEST.parts, ()) == [0]


def test_coverage_grows_and_forgets_what_is_gone() -> None:
    """What was skipped is accounted for, too; a topic made again begins anew; other topics stay."""
    known = {"t": TopicCoverage(FIRST, {0: ((0, 3),), 1: ((0, 5),)}), "u": TopicCoverage(SECOND, {0: ((1, 2),)})}
    grown = extended(known, {"t": FIRST}, MANIFEST.parts)
    assert grown == {"t": TopicCoverage(FIRST, {0: ((0, 20),), 1: ((0, 5),)}, ends={0: 20}), "u": known["u"]}
    again = extended(known, {"t": SECOND}, MANIFEST.parts)
    assert again["t"] == TopicCoverage(SECOND, {0: ((3, 20),)}, ends={0: 20})


def test_a_log_has_one_mark_whoever_exports_it(tmp_path: Path) -> None:
    """The first of a topic that the lake sees has none. Marks were each group's own once, and a log that was made again
    was exported twice: marked, and not. Another cluster's topic of the same name is in the way of its names."""
    first, second, moved = FIRST, SECOND, TopicIdentity(11, "id")
    lasts = {
        "old": LastRun("1", {"t": TopicCoverage(first, {})}, "here"),
        "both": LastRun("2", {"t": TopicCoverage(replace(second, tag="9"), {})}, "here"),
        "new": LastRun(None, {}),
    }

    class Remembered(Lake):
        """Of these groups."""

        def groups(self) -> list[str]:
            return sorted(lasts)

        def last(self, group: str) -> LastRun:
            return lasts[group]

    lake = Remembered(FolderStore(tmp_path))

    def mark(group: str, identity: TopicIdentity, topic: str = "t", cluster: str = "here") -> str | None:
        return Book(lake, group).logs({topic: identity}, (cluster,))[topic].tag

    assert mark("new", first, "unheard-of") is None
    assert mark("old", first) is None
    assert [mark(group, second) for group in ("old", "both", "new")] == ["9"] * 3
    del lasts["both"]
    assert [mark(group, second) for group in ("old", "new")] == ["9"] * 2
    assert [mark("new", second, cluster=where) for where in ("here", "elsewhere")] == ["9", None]
    assert mark("new", first, cluster="elsewhere") is None
    lasts["old"] = LastRun("1", {"t": TopicCoverage(SECOND, {})}, "here")
    assert mark("old", moved) == SECOND.tag  # the same id: the same topic, moved to another cluster


def name_of(start: int, end: int, tag: str | None = None) -> str:
    """The final name of a file of ``T0``."""
    layout = Layout()
    return f"{layout.folder('t', 0, None)}/{layout.name([Slice(0, start, end, 1)], 'run', tag)}"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake in a folder of its own."""
    return Lake(FolderStore(tmp_path))


def test_the_last_decided_run_tells_what_is_covered(lake: Lake) -> None:
    """Runs are numbered, the last one that was decided counts, and what was settled by hand counts for more."""
    assert lake.last("g").run is None
    first = lake.new_run("g")
    assert first.startswith("00000001-")
    lake.store.write(f"{lake.folder('g', first)}/plan.json", encode_plan(PLAN))
    assert lake.last("g").coverage == {}
    lake.store.write(f"{lake.folder('g', first)}/manifest.json", encode_manifest(MANIFEST))
    second = lake.new_run("g")
    lake.store.write(f"{lake.folder('g', second)}/plan.json", encode_plan(PLAN))
    assert lake.new_run("g").startswith("00000003-")
    assert (lake.last("g").run, lake.last("g").coverage) == (first, MANIFEST.coverage)
    settled = Settled("withdraw", 3, (T0,), {})
    lake.store.write(f"{lake.folder('g', first)}/settled.json", encode_settled(settled))
    assert lake.last("g").coverage == {}
    assert lake.runs("g") == [first, second]
    assert lake.groups() == ["g"]


def test_garbage_is_what_nobody_decided(lake: Lake) -> None:
    """Undecided runs of this cluster and attempts that are over go; other clusters' and groups' runs stay."""
    folder = lake.folder("g", "00000001-aaaaaaaa")
    lake.store.write(f"{folder}/plan.json", encode_plan(PLAN))
    lake.store.write(f"{folder}/attempt/x.tmp", b"x")
    assert has_garbage(lake, "g")
    assert remove_garbage(lake, "g", "another", lambda *_: None) == 0
    lake.store.write(f"{folder}/manifest.json", encode_manifest(MANIFEST))
    half = lake.folder("g", "00000002-aaaaaaaa")
    lake.store.write(f"{half}/attempt/y.tmp", b"half")
    assert has_garbage(lake, "g")
    assert remove_garbage(lake, "g", "c", lambda *_: None) == 1
    assert remove_garbage(lake, "g", "c", lambda *_: None) == 0
    assert lake.store.names(folder) == ["manifest.json", "plan.json"]
    assert not has_garbage(lake, "g")


@pytest.mark.parametrize(
    ("start", "end", "overlaps_it"), [(0, 10, False), (20, 30, False), (9, 11, True), (19, 25, True), (12, 13, True)]
)
def test_offsets_that_are_there_are_not_written_again(lake: Lake, start: int, end: int, overlaps_it: bool) -> None:
    """Names tell which offsets files hold: a range that touches one of them is refused, a neighbour is not, nor is one
    of another incarnation."""
    lake.store.write(name_of(10, 20), b"")
    refuse_overlap(lake, [OffsetRange(T1, start, end)], {}, "g")
    refuse_overlap(lake, [OffsetRange(T0, start, end)], {"t": "9"}, "g")
    if overlaps_it:
        with pytest.raises(RefusedError, match="already holds offsets 10 to 19 of t-0"):
            refuse_overlap(lake, [OffsetRange(T0, start, end)], {}, "g")
    else:
        refuse_overlap(lake, [OffsetRange(T0, start, end)], {}, "g")


def test_names_tell_partition_offsets_and_incarnation(lake: Lake) -> None:
    """What is written is what is read; whatever else lies there is left alone."""
    lake.store.write(name_of(1, 2), b"")
    lake.store.write(name_of(1, 3, "9a"), b"")
    for other in ("topic=t/partition=0/notes.txt", "topic=t/partition=x/1-2.parquet", "other/1-2.parquet"):
        lake.store.write(other, b"")
    names = sorted(file.name for files in lake.contents() for file in files)
    assert len(names) == 5
    assert "other/1-2.parquet" in names
    found = sorted((f.told.partition, f.told.start, f.told.end, f.told.tag or "") for f in lake.published("t"))
    assert found == [(0, 1, 2, ""), (0, 1, 3, "9a")]


def test_a_file_that_others_share_is_not_taken_back() -> None:
    """Where some of a file's partitions are committed and others are not, it is refused; all or none is right."""
    shared = FILE._replace(slices=(Slice(0, 10, 20, 8), Slice(1, 0, 5, 5)))
    manifest = replace(MANIFEST, files=(shared,))
    refuse_shared(manifest, {T0, T1})
    refuse_shared(manifest, set())
    with pytest.raises(RefusedError, match="it also holds messages of t-1"):
        refuse_shared(manifest, {T0})


def test_a_manifest_of_the_first_format_is_read() -> None:
    """What was written when each file was of one partition, and there was one layout: nothing of it is lost."""
    document = orjson.loads(encode_manifest(MANIFEST))
    del document["layout"], document["files"], document["coverage"]["t"]["ends"]
    (part,) = document["partitions"]
    old = {"work": FILE.work, "name": FILE.name, "start": 10, "end": 20, "rows": 8, "bytes": 100}
    part |= {"rows": 8, "undecodable": 0, "files": [old]}
    del part["late"], part["undated"]
    found = decode_manifest("old", orjson.dumps(document | {"format": 1}))
    assert (found.files, found.layout) == ((FILE,), Layout(version=1))
    assert found.parts == (replace(MANIFEST.parts[0], rows=8, undecodable=0, late=0, undated=0),)
    assert found.coverage["t"].partitions == {0: ((3, 20), (30, 40))}
    assert found.coverage["t"].ends == {0: 40}
