"""Files that were renamed, or moved: what they hold is not missing. Nothing is exported, or recorded as lost, in their
place, whether or not a run still tells of them; and once they are put back the lake is whole."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli import run
from exports import as_nobody, at, lake_for_all, looked, messages_in, problems, published_in, root_of
from resets import drop_messages

from zkgroup.errors import RefusedError
from zkgroup.export.checks.advice import remedy_for
from zkgroup.export.checks.verify import verify
from zkgroup.export.lake.footer import UnopenedFileError
from zkgroup.export.lake.lake import Lake
from zkgroup.export.model.layout import LayoutWish
from zkgroup.export.model.words import Policies
from zkgroup.export.planning.bounds import COMMITTED, EARLIEST
from zkgroup.export.runs.run import PartitionSummary
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.sandbox import Sandbox
from zkgroup.sandbox.topics import Record, produce
from zkgroup.servers.kafka import KafkaSettings

Export = Callable[..., list[PartitionSummary]]
Make = Callable[..., str]
Fill = Callable[..., object]
Unique = Callable[[str], str]
Commit = Callable[..., None]
NOON = 1_714_564_800_000
BY_PARTITION, BY_NOTHING, BY_DATE = (LayoutWish(by, None, None, None) for by in (("partition",), (), ("date",)))
BELIEVED = Policies(disagreement="lake")
REFUSED = r"holds offsets {} to {} of .*, and was renamed or moved: they are not missing"


@pytest.fixture
def thirty(
    in_process: Export, make_topic: Make, unique: Unique, kafka: KafkaSettings
) -> Callable[..., tuple[str, str]]:
    """``thirty(layout)`` is a topic of thirty messages, and the group whose three exports took ten each."""

    def make(layout: LayoutWish = BY_PARTITION, **options: Any) -> tuple[str, str]:
        topic, group = make_topic(), unique("group")
        for first in (0, 10, 20):
            produce(kafka, topic, [Record(b"%d" % n, None, 0, NOON + n) for n in range(first, first + 10)])
            in_process(group, topic, layout=layout, **options)
        return topic, group

    return make


def move(lake: Lake, start: int, to: str) -> tuple[Path, Path]:
    """Rename the file that begins at an offset within its folder, or to a folder of the lake; before and after."""
    (name,) = [name for name in published_in(root_of(lake)) if re.search(rf"/(0\.)?{start}-\d+\.parquet$", name)]
    whole = root_of(lake) / name
    moved = root_of(lake) / to if "/" in to else whole.with_name(to)
    moved = moved / whole.name if to.endswith("/") else moved
    moved.parent.mkdir(parents=True, exist_ok=True)
    whole.rename(moved)
    return whole, moved


def lose(lake: Lake, group: str, which: int) -> None:
    """A group's run."""
    shutil.rmtree(root_of(lake) / lake.folder(group, lake.runs(group)[which]))


def once(lake: Lake, count: int = 30) -> bool:
    """Whether each message is there, once."""
    return sorted(row["offset"] for row in messages_in(root_of(lake))) == list(range(count))


def mended(cluster: Sandbox, lake: Lake) -> bool:
    """Whether what ``--verify`` advises leads to a whole lake."""
    if problems(lake):
        (command,) = re.findall(r"'(zkgroup [^']* --adopt[^']*)'", looked(cluster, lake))
        assert run("-z", cluster.connect, *shlex.split(command)[1:]).returncode == 0
    return not problems(lake) and once(lake)


@pytest.mark.parametrize("layout", [BY_PARTITION, BY_NOTHING, BY_DATE])
@pytest.mark.parametrize("to", ["part-7.parquet", "elsewhere/{}/", "topic={}/partition=7/", "topic=other/partition=0/"])
def test_what_a_renamed_file_of_a_lost_run_holds_is_not_exported_again(
    thirty: Callable[..., tuple[str, str]],
    in_process: Export,
    lake: Lake,
    cluster: Sandbox,
    layout: LayoutWish,
    to: str,
) -> None:
    """The command that ``--verify`` printed wrote it again."""
    topic, group = thirty(layout)
    whole, moved = move(lake, 10, to.format(topic))
    lose(lake, group, 1)
    assert any(row.start == 10 and "its run is gone" in str(row.problem) for row in verify(lake))
    assert "--backfill" not in looked(cluster, lake)
    before = published_in(root_of(lake))
    with pytest.raises(RefusedError, match=REFUSED.format(10, 19)) as caught:
        in_process(group, topic, backfill=True, begin=EARLIEST, until=COMMITTED)
    assert str(caught.value.remedy).startswith("put it back to where it was, under its name, or move it away")
    assert published_in(root_of(lake)) == before
    moved.rename(whole)
    assert mended(cluster, lake)


def test_what_lies_beside_a_renamed_file_is_still_filled(
    thirty: Callable[..., tuple[str, str]], lake: Lake, cluster: Sandbox
) -> None:
    """Two runs are lost, and one of their files: that alone."""
    _, group = thirty()
    whole, moved = move(lake, 10, "part-7.parquet")
    for which in (1, 0):
        lose(lake, group, which)
    move(lake, 0, "../../../aside")
    (command,) = re.findall(r"'(zkgroup [^']* --backfill [^']*)'", looked(cluster, lake))
    assert run("-z", cluster.connect, *shlex.split(command)[1:], timeout=120).returncode == 0
    moved.rename(whole)
    assert mended(cluster, lake)


@pytest.mark.parametrize("deleted", [False, True])
@pytest.mark.parametrize("policy", ["lake", "group"])
def test_where_the_last_run_is_lost_its_renamed_file_is_in_the_way(
    thirty: Callable[..., tuple[str, str]], in_process: Export, fill: Fill, lake: Lake, cluster: Sandbox,
    kafka: KafkaSettings, deleted: bool, policy: str,
) -> None:  # fmt: skip
    """Its messages were exported again, or recorded as deleted, or as passed over."""
    topic, group = thirty()
    whole, moved = move(lake, 20, "part-7.parquet")
    lose(lake, group, 2)
    if deleted:
        drop_messages(kafka, TopicPartition(topic, 0), 30)
    fill(topic, 5)
    policies = Policies(disagreement=policy, expired="earliest")  # type: ignore[arg-type]
    with pytest.raises(RefusedError, match=REFUSED.format(20, 29)):
        in_process(group, topic, policies=policies)
    moved.rename(whole)
    in_process(group, adopt=True)
    in_process(group, topic)
    assert problems(lake) == []
    assert once(lake, 35)


def test_a_renamed_file_is_not_recorded_as_deleted(
    thirty: Callable[..., tuple[str, str]], in_process: Export, lake: Lake, cluster: Sandbox, kafka: KafkaSettings
) -> None:
    """A backfill of what no log has any more said so of what is there."""
    topic, group = thirty()
    whole, moved = move(lake, 10, "part-7.parquet")
    lose(lake, group, 1)
    drop_messages(kafka, TopicPartition(topic, 0), 30)
    begin, until = (at(topic, place) for place in (10, 20))
    with pytest.raises(RefusedError, match=REFUSED.format(10, 19)):
        in_process(group, topic, backfill=True, begin=begin, until=until, skip_lost=True)
    moved.rename(whole)
    assert mended(cluster, lake)


def test_a_renamed_file_is_seen_where_all_runs_are_lost(
    thirty: Callable[..., tuple[str, str]], in_process: Export, lake: Lake, cluster: Sandbox
) -> None:
    """The others are adopted; between them was a hole, that was filled."""
    topic, group = thirty()
    whole, moved = move(lake, 10, "part-7.parquet")
    shutil.rmtree(root_of(lake) / "_zkgroup")
    in_process(group, adopt=True)
    assert any(str(row.problem).startswith("in no run") for row in verify(lake))
    assert "--backfill" not in looked(cluster, lake)
    with pytest.raises(RefusedError, match=REFUSED.format(10, 19)):
        in_process(group, topic, backfill=True, begin=EARLIEST, until=COMMITTED)
    moved.rename(whole)
    assert mended(cluster, lake)


@pytest.mark.parametrize("all_of_them", [False, True])
def test_a_first_export_is_not_one_beside_renamed_files(
    thirty: Callable[..., tuple[str, str]], in_process: Export, lake: Lake, unique: Unique, all_of_them: bool
) -> None:
    """No manifest tells of any; another group would have begun."""
    topic, group = thirty()
    moves = [move(lake, start, f"{start}.parquet") for start in ((0, 10, 20) if all_of_them else (0,))]
    shutil.rmtree(root_of(lake) / "_zkgroup")
    with pytest.raises(RefusedError, match=REFUSED.format(0, 9)):
        in_process(unique("other"), topic, max_messages=10)
    for whole, moved in moves:
        moved.rename(whole)
    in_process(group, adopt=True)
    assert problems(lake) == []
    assert once(lake)


@pytest.mark.parametrize("to", ["topic=other/partition=0/", "topic={}-old/partition=0/"])
def test_a_file_in_another_topics_folder_is_not_written_again(
    thirty: Callable[..., tuple[str, str]], in_process: Export, lake: Lake, cluster: Sandbox, to: str
) -> None:
    """It has a name of that topic's, and runs tell that it is missing."""
    topic, group = thirty()
    whole, moved = move(lake, 10, to.format(topic))
    assert "--backfill" not in looked(cluster, lake)
    with pytest.raises(RefusedError, match=REFUSED.format(10, 19)):
        in_process(group, topic, backfill=True, begin=EARLIEST, until=COMMITTED)
    moved.rename(whole)
    assert mended(cluster, lake)


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_topics_folder_that_was_renamed_is_not_written_again(
    thirty: Callable[..., tuple[str, str]], in_process: Export, fill: Fill, lake: Lake, cluster: Sandbox,
    commit: Commit, forgotten: bool,
) -> None:  # fmt: skip
    topic, group = thirty()
    folder, moved = (root_of(lake) / f"topic={name}" for name in (topic, f"{topic}-old"))
    folder.rename(moved)
    if forgotten:
        shutil.rmtree(root_of(lake) / "_zkgroup")
        commit(group, {TopicPartition(topic, 0): 0})
        with pytest.raises(RefusedError, match=REFUSED.format(0, 9)):
            in_process(group, topic)
        commit(group, {TopicPartition(topic, 0): 30})
    else:
        assert "--backfill" not in looked(cluster, lake)
        with pytest.raises(RefusedError, match=REFUSED.format(0, 9)):
            in_process(group, topic, backfill=True, begin=EARLIEST, until=COMMITTED)
    moved.rename(folder)
    assert mended(cluster, lake)


@pytest.mark.parametrize("to", ["part-7.parquet", "100-110.parquet", "aside/"])
def test_what_a_file_holds_that_may_not_be_read_is_not_known(
    thirty: Callable[..., tuple[str, str]], in_process: Export, fill: Fill, to: str
) -> None:
    """It may be what is missing: nothing is written in its place, and a look says so."""
    with lake_for_all() as lake:
        topic, group = thirty(root=root_of(lake))
        whole, moved = move(lake, 10, to)
        moved.chmod(0)
        fill(topic, 5)
        begin, until = at(topic, 10), at(topic, 20)
        empty = whole.with_name("empty.parquet")
        empty.touch(mode=0)
        root_of(lake).chmod(0o777)
        with as_nobody():
            told = [row for row in verify(lake) if "10-20" in str(row.problem) or moved.name in str(row.problem)]
            with pytest.raises(UnopenedFileError, match=f"{moved} cannot be read: Permission denied") as raised:
                in_process(group, topic, backfill=True, begin=begin, until=until, root=root_of(lake))
            if to == "part-7.parquet":
                with pytest.raises(UnopenedFileError):
                    in_process(group, topic, root=root_of(lake))
            with pytest.raises(UnopenedFileError):
                in_process(group, adopt=True, root=root_of(lake))
        assert {("Permission denied" in str(row.problem), row.mend) for row in told} == {
            (True, "open"),
            (False, "fill"),
        }
        assert "let this user read" in remedy_for(told, lake.store.destination)
        assert raised.value.remedy.startswith("let this user read")
        moved.chmod(0o644)
        with pytest.raises(RefusedError, match=REFUSED.format(10, 19)):
            in_process(group, topic, backfill=True, begin=begin, until=until, root=root_of(lake))
        moved.rename(whole)
        in_process(group, topic, root=root_of(lake))
        empty.unlink()
        assert once(lake, 35)


def test_what_may_not_be_read_in_its_place_is_not_filled(
    thirty: Callable[..., tuple[str, str]], in_process: Export
) -> None:
    """Its run is gone, and its name tells what it holds: no backfill is advised. What is empty stops no adoption."""
    with lake_for_all() as lake:
        _, group = thirty(root=root_of(lake))
        lose(lake, group, 1)
        closed = next(root_of(lake).rglob("10-20.parquet"))
        closed.chmod(0)
        closed.with_name("50-60.parquet").touch(mode=0)
        for folder in (root_of(lake), *(path for path in root_of(lake).rglob("*") if path.is_dir())):
            folder.chmod(0o777)
        with as_nobody():
            told = remedy_for([row for row in verify(lake) if row.problem], lake.store.destination)
            assert ("let this user read" in told, "--backfill" in told) == (True, False)
            with pytest.raises(UnopenedFileError, match=r"10-20\.parquet"):
                in_process(group, adopt=True, root=root_of(lake))
        closed.chmod(0o644)
        with as_nobody():
            in_process(group, adopt=True, root=root_of(lake))
        closed.with_name("50-60.parquet").unlink()
        assert (problems(lake), once(lake)) == ([], True)


def test_files_that_are_not_in_the_way_stop_nothing(
    thirty: Callable[..., tuple[str, str]], in_process: Export, lake: Lake, make_topic: Make, fill: Fill
) -> None:
    """What others' runs name is where it is to be; what was renamed and holds other offsets is let be."""
    topic, group = thirty()
    move(lake, 0, "part-7.parquet")
    other = make_topic()
    fill(other, 30)
    in_process(group, other)
    (root_of(lake) / next(name for name in published_in(root_of(lake)) if "/10-20" in name)).unlink()
    begin, until = (at(topic, place) for place in (10, 20))
    assert [(row.start, row.end) for row in in_process(group, topic, backfill=True, begin=begin, until=until)] == [
        (10, 20)]  # fmt: skip


@pytest.mark.parametrize("to", ["_trash/", ".aside/", "topic={}/_trash/"])
def test_a_hidden_folder_is_looked_into_as_patterns_do(
    thirty: Callable[..., tuple[str, str]], in_process: Export, lake: Lake, commit: Commit, to: str
) -> None:
    """What ``**/*.parquet`` finds is not exported again."""
    topic, group = thirty()
    whole, moved = move(lake, 20, to.format(topic))
    lose(lake, group, 2)
    commit(group, {TopicPartition(topic, 0): 20})
    with pytest.raises(RefusedError, match=REFUSED.format(20, 29)):
        in_process(group, topic)
    moved.rename(whole)
    in_process(group, adopt=True)
    assert once(lake)


@pytest.mark.parametrize("beside", ["loop", "aside/loop", "topic={}/loop"])
def test_a_link_that_leads_to_itself_stops_nothing(
    thirty: Callable[..., tuple[str, str]], in_process: Export, fill: Fill, lake: Lake, commit: Commit, unique: Unique,
    beside: str,
) -> None:  # fmt: skip
    """Beside the topics, as a folder that may not be looked into (a file system's ``lost+found``): exports, backfills
    and looks go on, and a look says so."""
    topic, group = thirty()
    loop = root_of(lake) / beside.format(topic)
    loop.parent.mkdir(exist_ok=True)
    loop.symlink_to(loop)
    fill(topic, 5)
    assert sum(row.rows for row in in_process(group, topic)) == 5
    assert in_process(group, topic, backfill=True, begin=EARLIEST, until=COMMITTED) == []
    heir = unique("heir")
    commit(heir, {TopicPartition(topic, 0): 35})
    fill(topic, 5)
    assert sum(row.rows for row in in_process(heir, topic)) == 5
    told: list[str] = []
    assert [row.problem for row in verify(lake, note=told.append)] == [None]
    said = f"cannot list {loop}: Too many levels of symbolic links: what may lie there is not looked at"
    assert told == ([said] if beside == "loop" else [])
    assert once(lake, 40)
