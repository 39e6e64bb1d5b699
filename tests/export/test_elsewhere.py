"""What lies in files that no run tells of, of other groups or under other names, is neither recorded as no message nor
written again; and what was recorded so may be entered once it is there again."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable

import pytest
from exports import abort, at, offsets, problems, published_in, root_of
from resets import drop_messages

from zkgroup.errors import RefusedError
from zkgroup.export.checks.verify import verify
from zkgroup.export.lake.lake import Lake
from zkgroup.export.model.layout import LayoutWish
from zkgroup.export.model.words import Policies
from zkgroup.export.planning.bounds import COMMITTED, EARLIEST
from zkgroup.export.runs.run import PartitionSummary
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.topics import Record, produce
from zkgroup.servers.kafka import KafkaSettings

Export = Callable[..., list[PartitionSummary]]
Make = Callable[..., str]
Unique = Callable[[str], str]
Send = Callable[..., None]
BY_PARTITION, BY_NOTHING, DAYS = (LayoutWish(by, None, None, None) for by in (("partition",), (), ("date",)))
BELIEVED = Policies(disagreement="lake")
NOON, DAY = 1_714_564_800_000, 86_400_000
RENAMED = "and was renamed or moved: they are not missing"


@pytest.fixture
def send(kafka: KafkaSettings) -> Send:
    """``send(topic, count, size)``: so many messages, on two days by turns."""

    def write(topic: str, count: int, size: int = 1) -> None:
        produce(kafka, topic, [Record(b"m" * size, None, 0, NOON + number % 2 * DAY) for number in range(count)])

    return write


def filling(topic: str, low: int, high: int) -> dict[str, object]:
    """The options of a backfill of these offsets."""
    edges = [at(topic, offset) for offset in (low, high)]
    return {"backfill": True, "begin": edges[0], "until": edges[1]}


def published(lake: Lake, start: int) -> str:
    """The file that begins at an offset."""
    (name,) = [name for name in published_in(root_of(lake)) if re.search(rf"/(0\.)?{start}-\d+\.parquet$", name)]
    return name


def test_what_another_groups_files_hold_is_recorded_as_nothing(
    in_process: Export, make_topic: Make, unique: Unique, send: Send, kafka: KafkaSettings, lake: Lake,
    commit: Callable[..., None],
) -> None:  # fmt: skip
    """No manifest is left of two groups that took over from one another: one is adopted, with --skip-lost, and then the
    other."""
    topic, (one, two) = make_topic(), (unique("one"), unique("two"))
    send(topic, 2)
    abort(kafka, topic, 1)
    send(topic, 2)
    in_process(one, topic, layout=DAYS)
    for group, stands, count in ((two, 6, 3), (one, 9, 4)):
        send(topic, count)
        commit(group, {TopicPartition(topic, 0): stands})
        in_process(group, topic)
    held = offsets(lake)
    shutil.rmtree(root_of(lake) / "_zkgroup")
    with pytest.raises(RefusedError, match="2 offsets among those of the files are in none of them"):
        in_process(one, adopt=True)
    in_process(one, adopt=True, skip_lost=True)
    in_process(two, adopt=True)
    assert (problems(lake), offsets(lake)) == ([], held)
    send(topic, 2)
    assert [(row.start, row.end) for row in in_process(one, topic)] == [(13, 15)]


@pytest.mark.parametrize("comes_back", [True, False])
def test_what_moved_files_hold_is_recorded_as_nothing(
    in_process: Export, make_topic: Make, unique: Unique, send: Send, lake: Lake, *, comes_back: bool
) -> None:
    """--adopt --skip-lost takes what is there; what a moved file holds is entered once it is put back, or else it is
    missing, and a backfill brings it."""
    topic, group = make_topic(), unique("group")
    for _ in range(3):
        send(topic, 6)
        in_process(group, topic, layout=DAYS)
    shutil.rmtree(root_of(lake) / lake.folder(group, lake.runs(group)[1]))
    name, away = root_of(lake) / published(lake, 7), root_of(lake) / "old" / "7.parquet"
    away.parent.mkdir()
    name.rename(away)
    in_process(group, adopt=True, skip_lost=True)
    if comes_back:
        away.rename(name)
        in_process(group, adopt=True)
    else:
        away.unlink()
        assert problems(lake) != []
        in_process(group, topic, backfill=True, begin=EARLIEST, until=COMMITTED)
    assert (problems(lake), offsets(lake)) == ([], list(range(18)))


@pytest.mark.parametrize("to", ["topic={0}/partition=0/part.parquet", "old/15-20.parquet", "part.parquet"])
def test_an_export_sees_renamed_files_of_its_own_topic(
    in_process: Export, make_topic: Make, unique: Unique, send: Send, lake: Lake, to: str
) -> None:
    """What a backfill ahead of the group wrote, and nobody tells of: an export that just goes on comes to it."""
    topic, group = make_topic(), unique("group")
    send(topic, 10)
    in_process(group, topic)
    send(topic, 15)
    in_process(group, topic, **filling(topic, 15, 20))
    shutil.rmtree(root_of(lake) / lake.folder(group, lake.runs(group)[1]))
    name, away = root_of(lake) / published(lake, 15), root_of(lake) / to.format(topic)
    away.parent.mkdir(exist_ok=True)
    name.rename(away)
    with pytest.raises(RefusedError, match=RENAMED):
        in_process(group, topic)
    away.rename(name)
    with pytest.raises(RefusedError, match="--adopt"):
        in_process(group, topic)
    in_process(group, adopt=True)
    in_process(group, topic, policies=BELIEVED)
    in_process(group, topic, backfill=True, begin=EARLIEST, until=COMMITTED)
    assert (problems(lake), offsets(lake)) == ([], list(range(25)))


@pytest.mark.parametrize("layout", [BY_PARTITION, DAYS], ids=["partition", "days"])
def test_a_file_under_the_name_of_another_is_looked_into(
    in_process: Export, make_topic: Make, unique: Unique, send: Send, lake: Lake, layout: LayoutWish
) -> None:
    """It stands in the way of what it holds, not of what its name tells."""
    topic, group = make_topic(), unique("group")
    for size in (1, 100, 1000):
        send(topic, 10, size)
        in_process(group, topic, layout=layout)
    (root_of(lake) / published(lake, 10)).replace(root_of(lake) / published(lake, 0))
    gone = [row for row in verify(lake) if row.problem is not None and "is missing" in row.problem]
    assert [row.mend for row in gone] == [None]
    with pytest.raises(RefusedError, match=RENAMED):
        in_process(group, topic, **filling(topic, 0, 20))
    (root_of(lake) / published(lake, 0)).unlink()
    in_process(group, topic, **filling(topic, 0, 20))
    assert (problems(lake), offsets(lake)) == ([], list(range(30)))


@pytest.mark.parametrize("layout", [BY_PARTITION, BY_NOTHING, DAYS], ids=["partition", "none", "days"])
def test_a_copy_of_what_was_recorded_as_lost_is_entered(
    in_process: Export, make_topic: Make, unique: Unique, send: Send, kafka: KafkaSettings, lake: Lake,
    layout: LayoutWish,
) -> None:  # fmt: skip
    """The log had it no more, and that was recorded: the messages are there again, and count."""
    topic, group = make_topic(), unique("group")
    for _ in range(2):
        send(topic, 10)
        in_process(group, topic, layout=layout)
    name = root_of(lake) / published(lake, 0)
    copy = name.read_bytes()
    name.unlink()
    drop_messages(kafka, TopicPartition(topic, 0), 12)
    in_process(group, topic, **filling(topic, 0, 10), skip_lost=True)
    assert problems(lake) == []
    name.write_bytes(copy)
    in_process(group, adopt=True)
    (row,) = verify(lake)
    assert (row.problem, row.rows, row.gaps, row.skipped) == (None, 20, 0, 0)
    assert offsets(lake) == list(range(20))


def test_what_holds_no_messages_is_not_there_twice(
    in_process: Export, make_topic: Make, unique: Unique, send: Send, kafka: KafkaSettings, lake: Lake
) -> None:
    """A run that comes back, and one that accounts for its last markers alone."""
    topic, group = make_topic(), unique("group")
    send(topic, 3)
    abort(kafka, topic, 1)
    in_process(group, topic, layout=DAYS)
    folder = root_of(lake) / lake.folder(group, lake.runs(group)[0])
    copy = folder.rename(root_of(lake).parent / "copy")
    in_process(group, adopt=True)
    in_process(group, topic, policies=BELIEVED)
    shutil.copytree(copy, folder)
    assert (problems(lake), offsets(lake)) == ([], [0, 1, 2])
