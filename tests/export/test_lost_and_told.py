"""What ``--verify`` tells of runs that come back, of partitions that no run tells of any more, of what is not where it
belongs; and what it advises."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cli import run
from exports import looked, made_again, messages_in, offsets, problems, published_in, root_of

from zkgroup.errors import RefusedError, ZkgroupError
from zkgroup.export.checks.history import history
from zkgroup.export.checks.verify import VerifyRow, verify
from zkgroup.export.lake.lake import Lake
from zkgroup.export.model.layout import LayoutWish
from zkgroup.export.model.words import Policies
from zkgroup.export.planning.bounds import COMMITTED, EARLIEST, Bound
from zkgroup.export.planning.group import read_committed
from zkgroup.export.runs.run import PartitionSummary
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.sandbox import Sandbox
from zkgroup.sandbox.topics import Record, add_partitions, produce
from zkgroup.servers.kafka import KafkaSettings
from zkgroup.servers.registry import Registry

Export = Callable[..., list[PartitionSummary]]
Make = Callable[..., str]
Fill = Callable[..., object]
Unique = Callable[[str], str]
Commit = Callable[..., None]
NOON = 1_714_564_800_000


def stands(registry: Registry, lake: Lake, group: str) -> list[VerifyRow]:
    """The problems with where a group stands."""
    committed = {group: read_committed(registry, group, lake.last(group).coverage)}
    return [row for row in verify(lake, committed) if row.problem is not None]


@pytest.mark.parametrize("layout", [("partition",), (), ("date",)])
def test_a_run_that_comes_back_after_its_files_were_adopted_is_no_doubling(
    in_process: Export, make_topic: Make, unique: Unique, lake: Lake, kafka: KafkaSettings, tmp_path: Path,
    layout: tuple[str, ...],
) -> None:  # fmt: skip
    """Its folder was restored from a copy: the same files are in two manifests, and there once."""
    topic, group = make_topic(), unique("group")
    for first in (0, 10, 20):
        produce(kafka, topic, [Record(b"%d" % n, None, 0, NOON + n) for n in range(first, first + 10)])
        in_process(group, topic, layout=LayoutWish(layout, None, None, None))  # type: ignore[arg-type]
    folder = root_of(lake) / lake.folder(group, lake.runs(group)[1])
    shutil.move(folder, tmp_path / "copy")
    in_process(group, adopt=True)
    shutil.copytree(tmp_path / "copy", folder)
    (row,) = verify(lake)
    assert (row.start, row.end, row.rows, row.gaps, row.files) == (0, 30, 30, 0, 3)
    assert [row.kind for row in history(lake)] == ["export", "export", "export", "adoption"]
    produce(kafka, topic, [Record(b"%d" % n, None, 0, NOON + n) for n in range(30, 35)])
    assert [(row.start, row.end) for row in in_process(group, topic)] == [(30, 35)]
    assert in_process(group, topic, backfill=True, begin=EARLIEST, until=COMMITTED) == []
    (root_of(lake) / next(name for name in published_in(root_of(lake)) if "10-20" in name)).unlink()
    ((start, end, why),) = problems(lake)
    assert (start, end, "is missing" in why) == (10, 20, True)
    in_process(group, topic, backfill=True, begin=EARLIEST, until=COMMITTED)
    assert problems(lake) == []
    assert offsets(lake) == list(range(35))


@pytest.mark.parametrize("layout", [("partition",), (), ("date",)])
@pytest.mark.parametrize("pieces", [1, 2])
def test_a_run_that_comes_back_after_its_files_were_written_again_is_no_doubling(
    in_process: Export, make_topic: Make, unique: Unique, lake: Lake, kafka: KafkaSettings, tmp_path: Path,
    layout: tuple[str, ...], pieces: int,
) -> None:  # fmt: skip
    """Its folder and its files were lost, the backfill that ``--verify`` names wrote these anew, and then a copy of the
    folder came back: the only copy was to be moved away, or the files written once more."""
    topic, group = make_topic(2), unique("group")

    def fill(first: int) -> None:
        produce(kafka, topic, [Record(b"%d" % n, None, n % 2, NOON + n) for n in range(first, first + 20)])

    for first in (0, 20, 40):
        fill(first)
        in_process(group, topic, layout=LayoutWish(layout, None, None, None))  # type: ignore[arg-type]
    run = lake.runs(group)[1]
    manifest = lake.manifest(group, run)
    assert manifest is not None
    shutil.move(root_of(lake) / lake.folder(group, run), tmp_path / "copy")
    for file in manifest[0].files:
        (root_of(lake) / file.name).unlink()
    for piece in range(pieces):
        low, high = 10 + 10 * piece // pieces, 10 + 10 * (piece + 1) // pieces
        begin, until = (Bound("offsets", offsets={TopicPartition(topic, p): n for p in (0, 1)}) for n in (low, high))
        in_process(group, topic, backfill=True, begin=begin, until=until)
    shutil.move(tmp_path / "copy", root_of(lake) / lake.folder(group, run))
    assert [(row.start, row.end, row.rows, row.gaps) for row in verify(lake) if row.problem is None] == [
        (0, 30, 30, 0)
    ] * 2
    assert problems(lake) == []
    assert in_process(group, topic, backfill=True, begin=EARLIEST, until=COMMITTED) == []
    fill(60)
    in_process(group, topic)
    assert sorted((row["partition"], row["offset"]) for row in messages_in(root_of(lake))) == [
        (p, n) for p in (0, 1) for n in range(40)]  # fmt: skip
    assert problems(lake) == []


def test_two_exports_of_the_same_offsets_are_a_doubling_beside_an_adoption(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, lake: Lake, tmp_path: Path
) -> None:
    """What runs have exported counts as before."""
    topic, group = make_topic(), unique("group")
    fill(topic, 10)
    in_process(group, topic)
    run_of = lake.runs(group)[0]
    copy = root_of(lake) / lake.folder(group, run_of.replace("00000001", "00000002"))
    shutil.copytree(root_of(lake) / lake.folder(group, run_of), copy)
    assert problems(lake) == [(0, 10, "exported twice")]


def lose_partition(lake: Lake, number: int, pattern: str = "*") -> None:
    """The files of a partition."""
    for path in root_of(lake).glob(f"topic=*/partition={number}/{pattern}.parquet"):
        path.unlink()


def test_a_partition_that_others_alone_tell_of_is_judged_by_them(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, lake: Lake, registry: Registry, commit: Commit,
    cluster: Sandbox,
) -> None:  # fmt: skip
    """Who took over has lost its run, and a partition's file with it: the group stands behind what nobody has."""
    topic, group, heir = make_topic(2), unique("group"), unique("heir")
    fill(topic, 20, 2)
    in_process(group, topic)
    commit(heir, {TopicPartition(topic, number): 10 for number in (0, 1)})
    fill(topic, 10, 2)
    in_process(heir, topic)
    shutil.rmtree(root_of(lake) / lake.folder(heir, lake.runs(heir)[0]))
    lose_partition(lake, 1, "10-15")
    in_process(heir, adopt=True)
    (row,) = stands(registry, lake, heir)
    assert (row.partition, row.start, row.end, row.stands) == (1, 10, 15, "ahead")
    assert row.problem == f"group {heir} stands at 15, exported up to 10"
    with pytest.raises(RefusedError):
        in_process(heir, topic)
    (command,) = re.findall(r"'(zkgroup [^']* --on-disagreement lake[^']*)'", looked(cluster, lake, "--group", heir))
    assert f"--group {heir}" in command
    in_process(heir, topic, policies=Policies(disagreement="lake"))
    assert stands(registry, lake, heir) == []
    assert offsets(lake) == sorted(2 * [*range(15)])


@pytest.fixture
def forgotten(in_process: Export, make_topic: Make, fill: Fill, unique: Unique, lake: Lake) -> tuple[str, str]:
    """A topic of two partitions, of which one is in no run, and in no file, any more; the group stands at 15 of it."""
    topic, group = make_topic(2), unique("group")
    for count in (20, 10):
        fill(topic, count, 2)
        in_process(group, topic)
    shutil.rmtree(root_of(lake) / "_zkgroup")
    lose_partition(lake, 1)
    in_process(group, adopt=True)
    return topic, group


def test_a_partition_that_no_run_tells_of_is_missed(
    forgotten: tuple[str, str], in_process: Export, lake: Lake, registry: Registry, cluster: Sandbox
) -> None:
    _, group = forgotten
    (row,) = stands(registry, lake, group)
    assert (row.partition, row.start, row.end, row.mend) == (1, 0, 15, "fill")
    assert row.problem == f"group {group} stands at 15, and no run tells of this partition"
    (command,) = re.findall(r"'(zkgroup [^']* --backfill [^']*)'", looked(cluster, lake, "--group", group))
    assert run(*shlex.split(command)[1:], timeout=120).returncode == 0
    assert stands(registry, lake, group) == []
    assert offsets(lake) == sorted(2 * [*range(15)])


def test_an_export_that_begins_a_partition_that_no_run_tells_of_says_so(
    forgotten: tuple[str, str], in_process: Export, fill: Fill, lake: Lake, cluster: Sandbox, registry: Registry
) -> None:
    """In one line, with what fills it; once."""
    topic, group = forgotten
    heard: list[str] = []
    for _ in range(2):
        fill(topic, 6, 2)
        in_process(group, topic, warn=heard.append)
    (told,) = heard
    assert f"group {group} stands at 15 of {topic}-1, and no run tells of this partition" in told
    (command,) = re.findall(r"'(zkgroup [^']* --backfill [^']*)'", told)
    assert run("-z", cluster.connect, *shlex.split(command)[1:], timeout=120).returncode == 0
    assert stands(registry, lake, group) == []
    assert offsets(lake) == sorted(2 * [*range(21)])


def test_what_files_hold_of_such_a_partition_is_adopted(
    forgotten: tuple[str, str], in_process: Export, make_topic: Make, fill: Fill, lake: Lake, registry: Registry
) -> None:
    """Their rows say so, and no backfill is advised beside them."""
    topic, group = forgotten
    in_process(group, topic, backfill=True, begin=EARLIEST, until=COMMITTED)
    shutil.rmtree(root_of(lake) / lake.folder(group, lake.runs(group)[-1]))
    assert [(row.partition, row.mend) for row in stands(registry, lake, group)] == [(1, "adopt")]
    (name,) = [name for name in published_in(root_of(lake)) if "/partition=1/" in name]
    (root_of(lake) / name).rename(root_of(lake) / "x.parquet")
    assert [row.mend for row in stands(registry, lake, group)] == [None, "move"]


def test_partitions_that_have_nothing_to_tell_are_no_alarm(
    in_process: Export, make_topic: Make, unique: Unique, lake: Lake, registry: Registry, kafka: KafkaSettings,
    commit: Commit,
) -> None:  # fmt: skip
    """Empty ones, those that come later, those of another group, and offsets of an earlier log."""
    topic, group = make_topic(2), unique("group")
    produce(kafka, topic, [Record(b"%d" % n, None, n % 2, None) for n in range(10)])
    heard: list[str] = []
    in_process(group, topic, warn=heard.append)
    add_partitions(registry, topic, 3)
    assert stands(registry, lake, group) == []
    in_process(group, topic, warn=heard.append, policies=Policies(new_partition="earliest"))
    assert stands(registry, lake, group) == []
    made_again(registry, topic)
    produce(kafka, topic, [Record(b"%d" % n, None, 0, None) for n in range(5)])
    assert stands(registry, lake, group) == []
    in_process(group, topic, policies=Policies(recreated="earliest"))
    commit(group, {TopicPartition(topic, 1): 7})  # of a partition that is not there
    assert stands(registry, lake, group) == []
    add_partitions(registry, topic, 2)
    assert stands(registry, lake, group) == []
    with pytest.raises(RefusedError, match="deleted and made again since"):
        in_process(group, topic)
    assert heard == []


def test_what_is_wrong_with_other_groups_exports_is_mended_as_well(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, lake: Lake, cluster: Sandbox
) -> None:
    """Rows without a command, and an exit code that said that there is no such group."""
    topic, group = make_topic(), unique("group")
    fill(topic, 10)
    in_process(group, topic)
    here = ("-z", cluster.connect, "export", "--to", lake.store.uri, "--verify", "--group", unique("nobody"))
    done = run(*here)
    assert (done.returncode, "keeps no exports of group" in done.stderr) == (4, True)
    shutil.rmtree(root_of(lake) / "_zkgroup")
    done = run(*here)
    assert (done.returncode, f"--group {group} --to {lake.store.uri} --adopt" in done.stderr) == (6, True)


def test_a_run_in_another_groups_folder_is_to_be_moved_back(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, lake: Lake, commit: Commit, cluster: Sandbox
) -> None:
    """Nothing was said of it, and the other group's exports were refused in a circle."""
    topic, group, heir = make_topic(), unique("group"), unique("heir")
    for _ in range(2):
        fill(topic, 10)
        in_process(group, topic)
    commit(heir, {TopicPartition(topic, 0): 20})
    fill(topic, 10)
    in_process(heir, topic)
    moved = lake.runs(group)[1]
    right, wrong = (root_of(lake) / lake.folder(one, moved) for one in (group, heir))
    right.rename(wrong)
    why = f"{lake.folder(heir, moved)} is a run of group {group}: move it back to {lake.folder(group, moved)}"
    assert [row.problem for row in verify(lake) if row.problem] == [why]
    assert "--adopt" not in looked(cluster, lake)
    wrong.rename(right)
    assert problems(lake) == []
    shutil.copytree(right, wrong)  # was to be moved back as well, and its one file to be moved away, as there twice
    why = (
        f"{lake.folder(heir, moved)} is a copy of {lake.folder(group, moved)}, a run of group {group}: remove the copy"
    )
    assert [row.problem for row in verify(lake) if row.problem] == [why]
    shutil.rmtree(wrong)
    assert problems(lake) == []
    fill(topic, 5)
    in_process(heir, topic)
    assert offsets(lake) == list(range(35))


def test_a_file_that_cannot_be_read_may_be_moved_away(
    in_process: Export, make_topic: Make, unique: Unique, lake: Lake, kafka: KafkaSettings
) -> None:
    """Where there is no copy, backfills and exports ended with it, and nothing else was named."""
    topic, group = make_topic(2), unique("group")
    for _ in range(2):
        produce(kafka, topic, [Record(b"%d" % n, None, n % 2, NOON) for n in range(20)])
        in_process(group, topic, layout=LayoutWish((), None, None, None))
    name = published_in(root_of(lake))[0]
    whole = root_of(lake) / name
    whole.write_bytes(whole.read_bytes()[:-100])
    shutil.rmtree(root_of(lake) / "_zkgroup")
    with pytest.raises(ZkgroupError) as caught:
        in_process(group, topic, backfill=True, begin=EARLIEST, until=Bound("latest"))
    assert str(caught.value.remedy) == f"restore {name} from a copy, or move it away"
    whole.unlink()
    in_process(group, adopt=True)
    in_process(group, topic, backfill=True, begin=EARLIEST, until=COMMITTED)
    assert [(row["partition"], row["offset"]) for row in messages_in(root_of(lake))] == [
        (p, n) for p in (0, 1) for n in range(20)]  # fmt: skip
