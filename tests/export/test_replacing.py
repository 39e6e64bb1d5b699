"""Files in the place of files that are missing: a backfill wrote these again, and then its run was lost."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Iterable
from itertools import pairwise

import pytest
from cli import run
from exports import at, messages_in, offsets, published_in, root_of
from hypothesis import given
from hypothesis import strategies as st
from resets import drop_messages

from zkgroup.errors import NotFoundError, RefusedError
from zkgroup.export.checks.verify import verify
from zkgroup.export.lake import holdings
from zkgroup.export.lake.lake import Lake
from zkgroup.export.lake.replacing import replaced
from zkgroup.export.model.layout import LayoutWish
from zkgroup.export.model.words import Lost, Slice
from zkgroup.export.planning.bounds import EARLIEST, LATEST
from zkgroup.export.runs.run import PartitionSummary
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.sandbox import Sandbox
from zkgroup.sandbox.topics import Record, produce
from zkgroup.servers.kafka import KafkaSettings

Export = Callable[..., list[PartitionSummary]]
Make = Callable[..., str]
Unique = Callable[[str], str]
NOON, QUARTER = 1_714_564_800_000, 900_000


def problems(lake: Lake) -> list[str]:
    return [row.problem for row in verify(lake) if row.problem is not None]


@pytest.mark.parametrize("layout", ["partition", "none", "hour"])
@pytest.mark.parametrize("gone", [False, True])
def test_what_was_written_again_is_entered_in_the_place_of_what_is_missing(
    in_process: Export, make_topic: Make, unique: Unique, lake: Lake, kafka: KafkaSettings, cluster: Sandbox,
    layout: str, gone: bool,
) -> None:  # fmt: skip
    """It was told to be one of two files with these messages, and its move away to be the remedy; where retention had
    taken them they were gone then."""
    topic, group = make_topic(2), unique("group")
    by = {"partition": ("partition",), "none": (), "hour": ("date", "hour")}[layout]

    def send(first: int, last: int) -> None:
        produce(
            kafka,
            topic,
            [Record(b"%d" % n, None, p, NOON + n % 7 * QUARTER) for n in range(first, last) for p in (0, 1)],
        )

    send(0, 10)
    in_process(group, topic, layout=LayoutWish(by, None, None, None))  # type: ignore[arg-type]
    send(10, 20)
    in_process(group, topic)
    whole = set(published_in(root_of(lake)))
    for name in whole:
        (root_of(lake) / name).unlink()
    in_process(group, topic, backfill=True, begin=EARLIEST, until=LATEST)
    assert not whole & set(published_in(root_of(lake)))
    shutil.rmtree(root_of(lake) / lake.folder(group, lake.runs(group)[-1]))
    if gone:
        for number in (0, 1):
            drop_messages(kafka, TopicPartition(topic, number), 15)
    before = messages_in(root_of(lake))
    with pytest.raises(RefusedError, match="written again they would be there twice") as caught:
        in_process(group, topic, backfill=True, begin=EARLIEST, until=LATEST, skip_lost=True)
    looked = run("-z", cluster.connect, "export", "--to", lake.store.uri, "--verify")
    assert (looked.returncode, "is missing" in looked.stdout, "--backfill" in looked.stderr) == (6, True, False)
    for told in (str(caught.value.remedy), looked.stderr):
        assert f"export --group {group} --to {lake.store.uri} --adopt' enters" in told
    (command,) = re.findall(r"'(zkgroup [^']* --adopt)'", looked.stderr)
    done = run(*shlex.split(command)[1:], timeout=60)
    assert (done.returncode, "not adopted" in done.stderr) == (0, False), done.stderr
    assert problems(lake) == []
    assert in_process(group, topic, backfill=True, begin=EARLIEST, until=LATEST) == []
    assert messages_in(root_of(lake)) == before
    send(20, 25)
    in_process(group, topic)
    assert offsets(lake) == sorted(2 * [*range(25)])
    # And once more: what was adopted is lost in its turn.
    if not gone:
        for name in published_in(root_of(lake)):
            (root_of(lake) / name).unlink()
        assert in_process(group, topic, backfill=True, begin=EARLIEST, until=LATEST) != []
        assert offsets(lake) == sorted(2 * [*range(25)])
        assert problems(lake) == []


@pytest.mark.parametrize("layout", ["partition", "none", "date"])
def test_more_than_the_run_that_wrote_it_again_may_be_lost(
    in_process: Export, make_topic: Make, unique: Unique, lake: Lake, kafka: KafkaSettings, layout: str
) -> None:
    """As where ``_zkgroup`` was restored from an older copy: the file holds what is missing, and what is in no run."""
    topic, group = make_topic(2), unique("group")
    by = {"partition": ("partition",), "none": (), "date": ("date",)}[layout]
    for first, last in ((0, 5), (5, 8)):
        produce(kafka, topic, [Record(b"%d" % n, None, p, NOON) for n in range(first, last) for p in (0, 1)])
        in_process(group, topic, layout=LayoutWish(by, None, None, None))  # type: ignore[arg-type]
    for name in published_in(root_of(lake)):
        (root_of(lake) / name).unlink()
    in_process(group, topic, backfill=True, begin=EARLIEST, until=LATEST)
    for run_ in lake.runs(group)[1:]:
        shutil.rmtree(root_of(lake) / lake.folder(group, run_))
    before = messages_in(root_of(lake))
    heard: list[str] = []
    in_process(group, adopt=True, warn=heard.append)
    assert (heard, problems(lake)) == ([], [])
    assert [(row.start, row.end, row.rows, row.gaps) for row in verify(lake)] == [(0, 8, 8, 0)] * 2
    produce(kafka, topic, [Record(b"8", None, p, NOON) for p in (0, 1)])
    in_process(group, topic)
    assert in_process(group, topic, backfill=True, begin=EARLIEST, until=LATEST) == []
    assert messages_in(root_of(lake))[:8] == before[:8]
    assert offsets(lake) == sorted(2 * [*range(9)])


@pytest.mark.parametrize("layout", ["partition", "none", "date"])
@pytest.mark.parametrize("files", [1, 2])
def test_what_retention_left_of_what_was_written_again_takes_the_place_of_that_end(
    in_process: Export, make_topic: Make, unique: Unique, lake: Lake, kafka: KafkaSettings, layout: str, files: int
) -> None:
    """Nothing entered it: its messages were to be moved away, and recorded as lost."""
    topic, group = make_topic(), unique("group")
    by = {"partition": ("partition",), "none": (), "date": ("date",)}[layout]
    for first in (0, 10, 20):
        days = [96 * QUARTER * (layout == "date" and n % 2) for n in range(first, first + 10)]
        produce(kafka, topic, [Record(b"m", None, 0, NOON + day) for day in days])
        in_process(group, topic, layout=LayoutWish(by, None, None, None))  # type: ignore[arg-type]
    of_a_day = [name for name in published_in(root_of(lake)) if layout != "date" or "2024-05-01" in name]
    for name in sorted(of_a_day)[:files]:
        (root_of(lake) / name).unlink()
    partition = TopicPartition(topic, 0)
    drop_messages(kafka, partition, 5)
    again = {"backfill": True, "begin": EARLIEST, "until": LATEST}
    in_process(group, topic, skip_lost=True, **again)
    whole, (row,) = offsets(lake), verify(lake)
    shutil.rmtree(root_of(lake) / lake.folder(group, lake.runs(group)[-1]))
    drop_messages(kafka, partition, 20)
    with pytest.raises(RefusedError, match="written again they would be there twice"):
        in_process(group, topic, skip_lost=True, **again)
    heard: list[str] = []
    in_process(group, adopt=True, warn=heard.append)
    (missing,) = [one for one in verify(lake) if one.problem is not None]
    last = 6 if layout == "date" else 5  # where there are times, the file begins with its first message
    assert (heard, missing.start, missing.end, missing.mend) == ([], 0, last, "fill")
    with pytest.raises(RefusedError, match="are lost"):
        in_process(group, topic, **again)
    in_process(group, topic, skip_lost=True, **again)
    assert (offsets(lake), verify(lake)) == (whole, [row])
    assert in_process(group, topic, **again) == []


@pytest.mark.parametrize("day", [1, 2])
def test_an_adoption_without_a_file_that_comes_back_says_what_to_remove(
    in_process: Export, make_topic: Make, unique: Unique, lake: Lake, kafka: KafkaSettings, day: int
) -> None:
    """In folders of times two files share a range: entered one after the other, the second was refused for good. What
    was recorded as in no file is known to be, the rest is not looked for there."""
    topic, group = make_topic(), unique("group")
    produce(kafka, topic, [Record(b"%d" % n, None, 0, NOON + (n == 1) * 96 * QUARTER) for n in range(4)])
    in_process(group, topic, layout=LayoutWish(("date",), None, None, None))
    shutil.rmtree(root_of(lake) / "_zkgroup")
    (name,) = [name for name in published_in(root_of(lake)) if f"2024-05-0{day}" in name]
    aside = root_of(lake).parent / "aside"
    (root_of(lake) / name).rename(aside)
    in_process(group, adopt=True, skip_lost=day == 2)
    aside.rename(root_of(lake) / name)
    heard: list[str] = []
    if day == 2:
        with pytest.raises(NotFoundError):
            in_process(group, adopt=True, warn=heard.append)
        (folder,) = re.findall(r"\(remove (\S+), and --adopt enters both\)", heard[0])
        shutil.rmtree(root_of(lake) / folder)
    in_process(group, adopt=True)
    assert problems(lake) == []
    assert offsets(lake) == list(range(4))


def test_a_file_with_other_messages_takes_nobodys_place(
    in_process: Export, make_topic: Make, fill: Callable[..., object], unique: Unique, lake: Lake,
    commit: Callable[..., None],
) -> None:  # fmt: skip
    """A part of what is missing: entered in its place it would hide the rest."""
    topic, group = make_topic(), unique("group")
    fill(topic, 20)
    first = at(topic, 10)
    in_process(group, topic, until=first)
    (part,) = published_in(root_of(lake))
    kept = (root_of(lake) / part).read_bytes()
    shutil.rmtree(root_of(lake))
    commit(group, {TopicPartition(topic, 0): 0})
    in_process(group, topic)
    (whole,) = published_in(root_of(lake))
    (root_of(lake) / whole).unlink()
    (root_of(lake) / part).write_bytes(kept)
    heard: list[str] = []
    with pytest.raises(NotFoundError, match="has no file of group"):
        in_process(group, adopt=True, warn=heard.append)
    assert heard == [
        f"{part} holds offsets 0 to 9 of {topic}-0, and {whole}, which is missing, held other messages of these: it is "
        "not adopted"
    ]


@given(
    st.lists(st.integers(1, 9), max_size=8),
    st.lists(st.integers(0, 40), max_size=8, unique=True),
    st.lists(st.integers(0, 7), max_size=3),
    st.booleans(),
)
def test_only_the_same_offsets_in_as_many_rows_are_a_replacement(
    lengths: list[int], cuts: list[int], dropped: list[int], timed: bool
) -> None:
    """However they are cut; or the end of them. Of a file that is not replaced nothing is, and no range is taken for
    two things."""
    edges = [0]
    for length in lengths:
        edges.append(edges[-1] + length)
    lost = [Lost(f"f/{low}", low, high, high - low) for low, high in pairwise(edges)]
    whole = [0, *sorted(cut for cut in cuts if 0 < cut < edges[-1]), edges[-1]]
    ranges = [Slice(0, low, high, high - low) for low, high in pairwise(whole) if low < high]
    assert sorted(replaced(lost, ranges, timed=timed)) == sorted(lost)
    fewer = [one for place, one in enumerate(ranges) if place not in dropped]
    held = {offset for one in fewer for offset in range(one.start, one.end)}
    together = [set(range(*one)) for one in _together([*_intervals(lost), *_intervals(fewer)])]
    ends = [
        some & held for some in together if some & held == {one for one in some if one >= min(some & held, default=0)}
    ]
    there = set().union(*ends)
    rest = [(max(one.start, min({one.end, *there & {*range(one.start, one.end)}})), one) for one in lost]
    expected = [Lost(one.file, low, one.end, one.end - low) for low, one in rest if low < one.end]
    assert sorted(replaced(lost, fewer, timed=False)) == sorted(expected)
    assert replaced(lost, [one._replace(rows=one.rows + 1000) for one in fewer], timed=timed) == []


def test_in_folders_of_times_others_have_what_lies_between() -> None:
    """A backfill of two ranges is one, and its file reaches over what lies in other folders."""
    lost = [Lost("f/a", 4, 7, 2), Lost("f/b", 11, 20, 5)]
    assert replaced(lost, [Slice(0, 4, 20, 7)], timed=True) == lost
    for other in (Slice(0, 4, 20, 6), Slice(0, 4, 19, 7), Slice(0, 3, 20, 7)):
        assert replaced(lost, [other], timed=True) == []


@pytest.mark.parametrize("timed", [False, True])
def test_a_file_with_all_of_these_offsets_and_more_is_in_their_place(timed: bool) -> None:
    """A backfill of adjacent ranges is cut anew, and more runs than its own may be lost."""
    lost = [Lost("f/a", 4, 7, 3)]
    assert replaced(lost, [Slice(0, 2, 9, 7)], timed=timed) == lost
    assert replaced(lost, [Slice(0, 2, 5, 3), Slice(0, 5, 9, 4)], timed=timed) == lost
    two = [Lost("f/a", 0, 5, 5), Lost("f/c", 10, 15, 5)]
    assert replaced(two, [Slice(0, 0, 15, 15)], timed=timed) == two  # the run between them is lost as well
    for few in ([Slice(0, 2, 6, 4)], [Slice(0, 5, 9, 4)], [Slice(0, 2, 9, 2)]):
        assert replaced(lost, few, timed=timed) == []
    assert replaced(lost, [Slice(0, 2, 9, 6)], timed=timed) == ([] if timed else lost)


@pytest.mark.parametrize("timed", [False, True])
def test_a_file_with_the_end_of_what_is_missing_is_in_the_place_of_that_end(timed: bool) -> None:
    """What lies before it is still missing."""
    lost = [Lost("f/a", 0, 10, 6)]
    assert replaced(lost, [Slice(0, 4, 10, 4)], timed=timed) == [Lost("f/a", 4, 10, 4)]
    assert replaced(lost, [Slice(0, 4, 7, 1), Slice(0, 7, 10, 3)], timed=timed) == [Lost("f/a", 4, 10, 4)]
    for few in (
        [Slice(0, 4, 9, 3)],  # not its end
        [Slice(0, 4, 10, 1)],  # more than there can be before it
        [Slice(0, 0, 4, 3)],
        [Slice(0, 2, 10, 7)],
    ):
        assert replaced(lost, few, timed=timed) == []
    # All of its messages: before them are none, and where a name tells the first one it is there.
    assert replaced(lost, [Slice(0, 4, 10, 6)], timed=timed) == ([] if timed else lost)
    apart = replaced(lost, [Slice(0, 4, 7, 1), Slice(0, 8, 10, 2)], timed=timed)
    assert apart == ([Lost("f/a", 4, 10, 3)] if timed else [])
    two = [Lost("f/a", 0, 10, 6), Lost("f/b", 10, 20, 5)]
    assert replaced(two, [Slice(0, 4, 20, 9)], timed=timed) == [Lost("f/a", 4, 10, 4), two[1]]


@given(st.integers(0, 2**20 - 1), st.integers(1, 19), st.lists(st.integers(0, 20), max_size=3), st.booleans())
def test_the_end_and_what_is_left_are_the_whole(messages: int, first: int, cuts: list[int], timed: bool) -> None:
    """Whatever a file of twenty offsets held, and wherever retention came to: each message is in one of the two."""
    there = [offset for offset in range(20) if messages >> offset & 1]
    edges = (there[0], there[-1] + 1) if timed and there else (0, 20)
    lost = Lost("f/a", *edges, len(there))
    kept = [offset for offset in there if offset >= first]
    if not kept or first <= edges[0]:
        return
    low = kept[0] if timed else first
    held = []
    for start, end in pairwise([low, *sorted({cut for cut in cuts if low < cut < edges[1]}), edges[1]]):
        some = [offset for offset in kept if start <= offset < end]
        if some or not timed:
            held.append(Slice(0, *((some[0], some[-1] + 1) if timed else (start, end)), len(some)))
    (end,) = replaced([lost], held, timed=timed)
    left = holdings.without(Slice(0, *edges, len(there)), end)
    assert end.rows + sum(one.rows for one in left) == len(there)
    assert [one.rows for one in left] == [len(there) - len(kept)] * (len(there) > len(kept))
    assert all(one.end <= low and one.rows <= one.end - one.start for one in left)
    assert len(kept) in (end.rows, len(there))


@given(st.integers(0, 9), st.integers(1, 10), st.integers(0, 20), st.integers(0, 20), st.data())
def test_what_is_written_again_leaves_the_rest_missing(
    start: int, length: int, low: int, width: int, data: st.DataObject
) -> None:
    """Whatever ranges: what is left is beside it, has no more rows than offsets, and as many as there can be."""
    one = Slice(0, start, start + length, data.draw(st.integers(1, length)))
    again = Lost("f/a", low, low + width, data.draw(st.integers(0, width)))
    left = holdings.without(one, again)
    if again.start >= one.end or again.end <= one.start or not width:
        assert left == [one]
        return
    room = [(one.start, again.start), (again.end, one.end)]
    assert all((piece.start, piece.end) in room and 0 < piece.rows <= piece.end - piece.start for piece in left)
    most = sum(max(0, high - low) for low, high in room)
    assert sum(piece.rows for piece in left) == min(most, max(0, one.rows - again.rows))


def _intervals(ranges: Iterable[Lost | Slice]) -> list[tuple[int, int]]:
    return [(one.start, one.end) for one in ranges]


def _together(intervals: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """What has an offset in common, put together."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(intervals):
        if found and low < found[-1][1]:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return found
