"""What is missing with the manifest that told of it, and topics that were made again behind a group's back: seen, and
said, before anything is lost or there twice."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cli import run
from exports import at, committed_end, looked, made_again, offsets, problems, published_in, root_of
from support import wait_until

from zkgroup.errors import NotFoundError, RefusedError
from zkgroup.export.lake.lake import Lake
from zkgroup.export.model.layout import LayoutWish
from zkgroup.export.model.rundata import ManifestPart
from zkgroup.export.model.words import Lost, PartitionPlan, Policies, RecreatedPolicy, Skipped
from zkgroup.export.planning.bounds import EARLIEST, LATEST
from zkgroup.export.runs.assembling import refuse_fewer
from zkgroup.export.runs.run import PartitionSummary
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.sandbox import Sandbox
from zkgroup.sandbox.topics import Record, add_partitions, produce
from zkgroup.servers.kafka import KafkaSettings, producer
from zkgroup.servers.registry import Registry

Export = Callable[..., list[PartitionSummary]]
Make = Callable[..., str]
Fill = Callable[..., object]
Unique = Callable[[str], str]
Commit = Callable[..., None]
HOURS = LayoutWish(("date", "hour"), None, None, None)
NOON, HOUR = 1_714_564_800_000, 3_600_000


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_run_and_its_file_that_are_gone_are_missed(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, lake: Lake, cluster: Sandbox, which: int
) -> None:
    """The last manifest accounts for it, and no run does; all that told of it was that manifest's coverage, which
    nobody held against the runs. (Of the last run none is left to tell, but the group's offset is.)"""
    topic, group = make_topic(), unique("group")
    for _ in range(3):
        fill(topic, 10)
        in_process(group, topic)
    start = 10 * which
    (lost,) = [name for name in published_in(root_of(lake)) if f"/{start}-" in name]
    (root_of(lake) / lost).unlink()
    shutil.rmtree(root_of(lake) / lake.folder(group, lake.runs(group)[which]))
    if which == 2:
        told = looked(cluster, lake, "--group", group)
        assert "--on-disagreement lake" in told
        in_process(group, topic, policies=Policies(disagreement="lake"))
    else:
        why = f"in no run, though the last manifest of group {group} accounts for it: its run is gone"
        assert problems(lake) == [(start, start + 10, why)]
        (command,) = re.findall(r"'(zkgroup [^']* --backfill [^']*)'", looked(cluster, lake))
        assert run(*shlex.split(command)[1:], timeout=120).returncode == 0
    assert problems(lake) == []
    assert offsets(lake) == list(range(30))


@pytest.mark.parametrize("forgotten", [False, True])
@pytest.mark.parametrize(("answer", "first"), [("earliest", 0), ("committed", 30), ("latest", 50)])
def test_an_heir_does_not_take_its_offset_for_one_of_a_new_log(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, lake: Lake, registry: Registry, commit: Commit,
    forgotten: bool, answer: RecreatedPolicy, first: int,
) -> None:  # fmt: skip
    """Renaming writes offset nodes that are newer than the topic; the lake tells, by its manifests or its files, that
    the log is another one."""
    topic, group, heir = make_topic(), unique("group"), unique("heir")
    fill(topic, 30)
    in_process(group, topic)
    made_again(registry, topic)
    fill(topic, 50)
    commit(heir, {TopicPartition(topic, 0): 30})
    if forgotten:
        shutil.rmtree(root_of(lake) / "_zkgroup")
    with pytest.raises(RefusedError, match="deleted and made again since"):
        in_process(heir, topic)
    with pytest.raises(RefusedError, match=r"deleted and made again .* has not begun with the new logs"):
        in_process(heir, topic, backfill=True, begin=EARLIEST, until=LATEST)
    in_process(heir, topic, policies=Policies(recreated=answer))
    fill(topic, 5)
    in_process(heir, topic)
    assert offsets(lake) == sorted([*range(30), *range(first, 55)])
    in_process(heir, topic, backfill=True, begin=EARLIEST, until=LATEST)
    assert offsets(lake) == sorted([*range(30), *range(55)])


def test_a_backfill_does_not_answer_for_a_log_that_was_made_again(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, lake: Lake, registry: Registry, cluster: Sandbox
) -> None:
    """The one that is advised for a file of the log before is refused, and so is the next export, until somebody has
    said where it begins; the other topic is filled."""
    topic, other, group = make_topic(), make_topic(), unique("group")
    for _ in range(2):
        fill(topic, 30)
        fill(other, 30)
        in_process(group, topic, other)
    for name in [name for name in published_in(root_of(lake)) if "/30-60" in name]:
        (root_of(lake) / name).unlink()
    made_again(registry, topic)
    fill(topic, 90)
    commands = re.findall(r"'(zkgroup [^']* --backfill [^']*)'", looked(cluster, lake))
    (stale,) = [command for command in commands if topic in command]
    done = run(*shlex.split(stale)[1:], timeout=60)
    assert (done.returncode, "has not begun with the new logs" in done.stderr) == (5, True)
    done = run(*shlex.split(stale)[1:], "--on-recreated", "skip", timeout=60)
    assert (done.returncode, "its topic was made again" in done.stderr) == (0, True)
    (living,) = [command for command in commands if other in command]
    assert run(*shlex.split(living)[1:], timeout=60).returncode == 0
    with pytest.raises(RefusedError, match="deleted and made again since"):
        in_process(group, topic)
    in_process(group, topic, policies=Policies(recreated="earliest"))
    assert offsets(lake) == sorted([*range(30), *range(90), *range(60)])


@pytest.mark.parametrize("renamed", [False, True])
def test_a_partition_that_comes_later_is_of_the_new_log_as_well(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, lake: Lake, registry: Registry, commit: Commit,
    kafka: KafkaSettings, renamed: bool,
) -> None:  # fmt: skip
    """The group's offset of it is one of the log before, though it has begun with the new one elsewhere."""
    topic, group = make_topic(2), unique("group")
    fill(topic, 60, 2)
    in_process(group, topic)
    made_again(registry, topic)
    fill(topic, 10)
    if renamed:
        group = unique("heir")
        commit(group, {TopicPartition(topic, number): 30 for number in (0, 1)})
    in_process(group, topic, policies=Policies(recreated="earliest"))
    add_partitions(registry, topic, 2)
    produce(kafka, topic, [Record(b"%d" % n, None, 1, None) for n in range(50)])
    with pytest.raises(RefusedError, match="deleted and made again since"):
        in_process(group, topic)
    rows = in_process(group, topic, policies=Policies(recreated="earliest"))
    assert [(row.partition, row.start, row.end) for row in rows] == [(0, 10, 10), (1, 0, 50)]
    in_process(group, topic)
    assert problems(lake) == []


def test_an_heir_is_in_the_way_in_the_new_log(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, lake: Lake, registry: Registry, commit: Commit
) -> None:
    """What a group has exported of the log before gives it no place in this one."""
    topic, group, heir = make_topic(), unique("group"), unique("heir")
    fill(topic, 30)
    in_process(group, topic)
    made_again(registry, topic)
    commit(heir, {TopicPartition(topic, 0): 30})
    fill(topic, 10)
    in_process(heir, topic, policies=Policies(recreated="earliest"))
    fill(topic, 60)
    with pytest.raises(RefusedError, match=f"group {heir} has exported .* up to offset 10 .* would begin at 30"):
        in_process(group, topic, policies=Policies(recreated="committed"))


@pytest.mark.parametrize("which", [0, 1, 2])
def test_what_is_missing_of_an_earlier_log_is_not_forgotten_with_it(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, lake: Lake, registry: Registry, cluster: Sandbox,
    which: int,
) -> None:  # fmt: skip
    """The manifests that are left of it still account for what is gone; no command brings that back."""
    topic, group = make_topic(), unique("group")
    for _ in range(4):
        fill(topic, 10)
        in_process(group, topic)
    made_again(registry, topic)
    fill(topic, 5)
    in_process(group, topic, policies=Policies(recreated="earliest"))
    (lost,) = [name for name in published_in(root_of(lake)) if f"/{10 * which}-" in name and ".g" not in name]
    (root_of(lake) / lost).unlink()
    shutil.rmtree(root_of(lake) / lake.folder(group, lake.runs(group)[which]))
    ((start, end, why),) = problems(lake)
    assert (start, end) == (10 * which, 10 * which + 10)
    assert why.endswith("and the topic was made again: only a copy brings it back")
    assert "--backfill" not in looked(cluster, lake)


@pytest.mark.parametrize(
    "place",
    [
        "topic={}/0.0-30.parquet",
        "topic={}/partition=0/0-30.gabc.parquet",
        "topic={}/partition=00/0-30.parquet",
        "topic={}/partition=0/date=2024-05-01/0-30.parquet",
    ],
)
@pytest.mark.parametrize("forgotten", [False, True])
def test_a_copy_in_another_folder_is_no_file_of_its_own(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, lake: Lake, cluster: Sandbox, place: str,
    forgotten: bool,
) -> None:  # fmt: skip
    """A name that an export of another layout could have given: its messages are there twice, and it was adopted."""
    topic, group = make_topic(), unique("group")
    fill(topic, 30)
    in_process(group, topic)
    (name,) = published_in(root_of(lake))
    copy = place.format(topic)
    (root_of(lake) / copy).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(root_of(lake) / name, root_of(lake) / copy)
    heard: list[str] = []
    if forgotten:
        shutil.rmtree(root_of(lake) / "_zkgroup")
        assert [(row.start, row.end) for row in in_process(group, adopt=True, warn=heard.append)] == [(0, 30)]
    else:
        with pytest.raises(NotFoundError):
            in_process(group, adopt=True, warn=heard.append)
    assert heard == [f"{copy} was written as {name}: it was renamed, or is a copy: it is not adopted"]
    told = looked(cluster, lake)
    assert ("--adopt" in told, "move it away" in told) == (False, True)
    (root_of(lake) / copy).unlink()
    assert problems(lake) == []


@pytest.mark.parametrize("by", [("date",), ("date", "hour")])
@pytest.mark.parametrize("moved", [False, True])
def test_a_file_in_the_folder_of_another_time_is_not_adopted(
    in_process: Export, make_topic: Make, unique: Unique, lake: Lake, kafka: KafkaSettings, by: tuple[str, ...],
    moved: bool,
) -> None:  # fmt: skip
    """Entered there, it would be filled there after it is put right: with nothing, and its messages settled to lie
    elsewhere."""
    topic, group = make_topic(), unique("group")
    produce(kafka, topic, [Record(b"%d" % n, None, 0, NOON + n) for n in range(30)])
    in_process(group, topic, layout=LayoutWish(by, None, None, None))  # type: ignore[arg-type]
    (name,) = published_in(root_of(lake))
    wrong = name.replace("2024-05-01", "2024-05-02") if by == ("date",) else name.replace("hour=12", "hour=13")
    (root_of(lake) / wrong).parent.mkdir(parents=True)
    (shutil.move if moved else shutil.copy)(str(root_of(lake) / name), root_of(lake) / wrong)
    shutil.rmtree(root_of(lake) / "_zkgroup")
    heard: list[str] = []
    if moved:
        with pytest.raises(NotFoundError):
            in_process(group, adopt=True, warn=heard.append)
        (root_of(lake) / wrong).rename(root_of(lake) / name)
    assert in_process(group, adopt=True, warn=heard.append)[0].rows == 30
    assert len(heard) == 1
    assert "which are not of this folder: it is not adopted" in heard[0]
    assert [why for _, _, why in problems(lake) if wrong not in why] == []


def test_what_lies_in_other_folders_is_never_more_than_there_was() -> None:
    """A file that was in the wrong folder would come back empty, and all of it be said to lie elsewhere."""
    partition = TopicPartition("t", 0)
    lost = (Lost("topic=t/date=2024-05-01/0.0-30.parquet", 0, 30, 10),)

    def part(rows: int, gaps: dict[str, int], skipped: tuple[Skipped, ...] = ()) -> ManifestPart:
        plan = PartitionPlan(partition, None, None, 0, 30, skipped, commits=False, again=lost)
        return ManifestPart(plan, 30, rows, 0, gaps)

    for fine in (
        part(10, {"elsewhere": 20}),
        part(8, {"elsewhere": 18, "transactions": 4}),
        part(6, {"elsewhere": 20}, (Skipped("retention", 0, 4),)),
        part(6, {"elsewhere": 20, "retention": 4}),
    ):
        refuse_fewer([fine])
    for bad in (part(0, {"elsewhere": 30}), part(8, {"elsewhere": 21, "transactions": 1})):
        with pytest.raises(RefusedError, match="held 10 messages of t-0 0 to 29, and of these the log has"):
            refuse_fewer([bad])


def _three_transactions(in_process: Export, topic: str, group: str, kafka: KafkaSettings, layout: LayoutWish) -> None:
    """An export of each: of nine messages and the marker behind them."""
    client = producer(kafka, transactional_id=topic)
    client.init_transactions(30)
    for first in (0, 10, 20):
        client.begin_transaction()
        for n in range(first, first + 9):
            client.produce(topic, b"%d" % n, partition=0, timestamp=NOON + n)
        client.flush(30)
        client.commit_transaction(30)
        wait_until(lambda end=first + 10: committed_end(kafka, topic) == end, 20, "the marker is written")
        in_process(group, topic, layout=layout, until=at(topic, first + 10))


def test_markers_between_adopted_files_are_no_holes(
    in_process: Export, make_topic: Make, unique: Unique, lake: Lake, kafka: KafkaSettings, registry: Registry
) -> None:
    """Where folders are of times no name reaches over them. The operator has said that no file is missing; behind the
    next log nothing could fill them."""
    topic, group = make_topic(), unique("group")
    _three_transactions(in_process, topic, group, kafka, HOURS)
    shutil.rmtree(root_of(lake) / "_zkgroup")
    made_again(registry, topic)
    # Of each run no offset is missing; what lies between them is in none.
    in_process(group, adopt=True, skip_lost=True)
    assert problems(lake) == []
    assert lake.last(group).coverage[topic].partitions == {0: ((0, 29),)}
    found = lake.manifest(group, lake.runs(group)[-1])
    assert found is not None
    assert [gap for part in found[0].parts for gap in part.plan.skipped] == [
        Skipped("unrecorded", 9, 10), Skipped("unrecorded", 19, 20)]  # fmt: skip


@pytest.mark.parametrize("layout", [HOURS, LayoutWish(("partition",), None, None, None)])
def test_markers_that_two_runs_account_for_are_not_exported_twice(
    in_process: Export, make_topic: Make, unique: Unique, lake: Lake, kafka: KafkaSettings, tmp_path: Path,
    layout: LayoutWish,
) -> None:  # fmt: skip
    """Runs were away when what they exported was filled, and came back: no message is there twice."""
    topic, group = make_topic(), unique("group")
    _three_transactions(in_process, topic, group, kafka, layout)
    folders = [root_of(lake) / lake.folder(group, run) for run in lake.runs(group)[:2]]
    for folder in folders:
        folder.rename(tmp_path / folder.name)
    (name,) = (name for name in published_in(root_of(lake)) if Path(name).name.startswith(("0-", "0.0-")))
    (root_of(lake) / name).unlink()
    in_process(group, topic, backfill=True, begin=EARLIEST, until=LATEST)
    in_process(group, adopt=True)
    assert problems(lake) == []
    for folder in folders:
        (tmp_path / folder.name).rename(folder)
    assert problems(lake) == []
    assert offsets(lake) == [n for n in range(29) if n % 10 != 9]


def test_a_file_that_was_written_again_outlives_the_first_run(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, lake: Lake
) -> None:
    """Its run accounts for what it holds where the one before it is gone."""
    topic, group = make_topic(), unique("group")
    for _ in range(2):
        fill(topic, 10)
        in_process(group, topic)
    (root_of(lake) / next(name for name in published_in(root_of(lake)) if "/0-10" in name)).unlink()
    in_process(group, topic, backfill=True, begin=EARLIEST, until=LATEST)
    shutil.rmtree(root_of(lake) / lake.folder(group, lake.runs(group)[0]))
    assert problems(lake) == []
    assert in_process(group, topic, backfill=True, begin=EARLIEST, until=LATEST) == []
    assert offsets(lake) == list(range(20))


@pytest.mark.parametrize("layout", [HOURS, LayoutWish(("partition",), None, None, None)])
def test_a_group_that_stands_ahead_of_files_is_seen_without_manifests(
    in_process: Export, make_topic: Make, unique: Unique, lake: Lake, kafka: KafkaSettings, commit: Commit,
    layout: LayoutWish,
) -> None:  # fmt: skip
    """It was set forward: what lies between would be in no run, and nothing said."""
    topic, group = make_topic(), unique("group")
    produce(kafka, topic, [Record(b"%d" % n, None, 0, NOON + n) for n in range(30)])
    in_process(group, topic, layout=layout)
    produce(kafka, topic, [Record(b"%d" % n, None, 0, NOON + n) for n in range(30, 60)])
    shutil.rmtree(root_of(lake) / "_zkgroup")
    commit(group, {TopicPartition(topic, 0): 50})
    with pytest.raises(RefusedError, match=r"stands ahead of what was exported .* is at 50, exported up to 30"):
        in_process(group, topic)
    assert [(row.start, row.end) for row in in_process(group, topic, policies=Policies(disagreement="lake"))] == [
        (30, 60)]  # fmt: skip
    assert offsets(lake) == list(range(60))


def test_the_ways_out_are_named(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, lake: Lake, cluster: Sandbox
) -> None:
    """``--verify`` of a group that only files tell of; what ``--adopt`` does not heed; an unfinished run whose folder
    is lost."""
    topic, group = make_topic(), unique("group")
    fill(topic, 10)
    in_process(group, topic)
    shutil.rmtree(root_of(lake) / "_zkgroup")
    assert f"--group {group} --to {lake.store.uri} --adopt" in looked(cluster, lake, "--group", group)
    here = ("-z", cluster.connect, "export", "--to", lake.store.uri)
    for options in (("--whitelist", "x.*"), ("--from", "earliest"), ("--join",), ("--partition-by", "none")):
        done = run(*here, "--group", group, "--adopt", *options)
        assert (done.returncode, f"{options[0]} says nothing beside --adopt" in done.stderr) == (2, True), options
    done = run(*here, "--group", group, "--adopt", "nosuch", topic)
    assert (done.returncode, "has no files of topic nosuch" in done.stderr) == (4, True)
    done = run(*here, "--group", group, "--adopt", "--skip-lost", topic)
    assert done.returncode == 0, done.stderr

    def stop(point: str) -> None:
        if point == "decided":
            raise KeyboardInterrupt

    fill(topic, 10)
    with pytest.raises(KeyboardInterrupt):
        in_process(group, topic, passed=stop)
    shutil.rmtree(root_of(lake) / "_zkgroup")
    for way in ("--adopt", "--settle=keep", "--settle=withdraw", "--quiet"):
        done = run(*here, "--group", group, way)
        assert (done.returncode, "forget" in done.stderr) == (5, True), (way, done.stderr)
    assert run(*here, "--group", group, "--settle", "forget").returncode == 0
    assert sum(row.rows for row in in_process(group, topic)) == 10
    in_process(group, adopt=True)
    assert problems(lake) == []
