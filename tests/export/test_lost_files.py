"""Files that are gone, or that no manifest names: what is said of them is true, and what is advised mends."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable

import pytest
from cli import run
from exports import looked, made_again, messages_in, offsets, problems, published_in, root_of
from resets import drop_messages

from zkgroup.errors import RefusedError
from zkgroup.export.checks.verify import verify
from zkgroup.export.lake.lake import Lake
from zkgroup.export.model.layout import LayoutWish
from zkgroup.export.model.words import Policies
from zkgroup.export.planning.bounds import EARLIEST, LATEST, Bound
from zkgroup.export.runs.run import PartitionSummary
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.sandbox import Sandbox
from zkgroup.sandbox.topics import Record, delete_topic, produce
from zkgroup.servers.kafka import KafkaSettings
from zkgroup.servers.registry import Registry

Export = Callable[..., list[PartitionSummary]]
Make = Callable[..., str]
Fill = Callable[..., object]
Unique = Callable[[str], str]
Commit = Callable[..., None]
HOURS = LayoutWish(("date", "hour"), None, None, None)
NOON, HOUR = 1_714_564_800_000, 3_600_000


def commands(told: str, option: str) -> list[list[str]]:
    """The commands with an option in a sentence, as a shell takes them."""
    return [shlex.split(one)[1:] for one in re.findall(r"'(zkgroup [^']*)'", told) if option in one]


def newest_run_lost(in_process: Export, fill: Fill, lake: Lake, topic: str, group: str) -> None:
    """Thirty messages, of which two exports took ten each; the second one's manifest is gone."""
    for _ in range(2):
        fill(topic, 10)
        in_process(group, topic)
    fill(topic, 10)
    shutil.rmtree(root_of(lake) / lake.folder(group, lake.runs(group)[-1]))


def test_nothing_is_advised_for_a_log_that_an_heir_has_left_behind(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, lake: Lake, registry: Registry, commit: Commit,
    cluster: Sandbox,
) -> None:  # fmt: skip
    """The first group's last manifest tells of the old log alone, and a backfill of it was advised, and refused."""
    topic, group, heir = make_topic(), unique("group"), unique("heir")
    fill(topic, 30)
    in_process(group, topic)
    made_again(registry, topic)
    fill(topic, 20)
    commit(heir, {TopicPartition(topic, 0): 30})
    in_process(heir, topic, policies=Policies(recreated="earliest"))
    (lost,) = [name for name in published_in(root_of(lake)) if "/0-30" in name]
    (root_of(lake) / lost).unlink()
    ((start, end, why),) = problems(lake)
    assert (start, end) == (0, 30)
    assert why.endswith("is missing, and the topic was made again: only a copy brings it back")
    assert "--backfill" not in looked(cluster, lake)


def test_what_lies_in_files_is_not_recorded_as_lost(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, lake: Lake, kafka: KafkaSettings, commit: Commit,
    cluster: Sandbox,
) -> None:  # fmt: skip
    """The manifests are gone, the group was set back, and the log begins behind what it exported: these offsets were
    accounted for as deleted before they were read, and their files could be adopted no more."""
    topic, group = make_topic(), unique("group")
    fill(topic, 30)
    in_process(group, topic)
    shutil.rmtree(root_of(lake) / "_zkgroup")
    fill(topic, 20)
    commit(group, {TopicPartition(topic, 0): 10})
    drop_messages(kafka, TopicPartition(topic, 0), 40)
    with pytest.raises(
        RefusedError, match=r"/0-30\.parquet already holds offsets 0 to 29 .* no run accounts"
    ) as caught:
        in_process(group, topic, skip_lost=True)
    (command,) = commands(str(caught.value.remedy), "--adopt")
    assert run("-z", cluster.connect, *command).returncode == 0
    policies = Policies(disagreement="lake", expired="earliest")
    (row,) = in_process(group, topic, policies=policies)
    assert (row.start, row.end, row.rows) == (40, 50, 10)
    assert problems(lake) == []
    assert offsets(lake) == [*range(30), *range(40, 50)]


def test_a_topic_that_is_gone_stops_no_other_from_being_filled(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, lake: Lake, registry: Registry, cluster: Sandbox
) -> None:
    """One command named both, and was refused for the one."""
    gone, topic, group = make_topic(), make_topic(), unique("group")
    fill(gone, 30)
    fill(topic, 30)
    in_process(group, gone, topic)
    for name in published_in(root_of(lake)):
        (root_of(lake) / name).unlink()
    delete_topic(registry, gone)
    told = looked(cluster, lake)
    assert "of a topic that is gone only a copy brings it back" in told
    done = [run("-z", cluster.connect, *command, timeout=120) for command in commands(told, "--backfill")]
    assert sorted(one.returncode for one in done) == [0, 4]
    assert [(row["topic"], row["offset"]) for row in messages_in(root_of(lake))] == [(topic, n) for n in range(30)]


@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("spread", [1, HOUR // 4])
def test_files_of_times_that_were_written_again_outlive_the_first_run(
    in_process: Export, make_topic: Make, unique: Unique, lake: Lake, kafka: KafkaSettings, spread: int, partitions: int
) -> None:
    """Where all of them were, they tell what its run did: nothing is missing, and nothing is written twice."""
    topic, group = make_topic(partitions), unique("group")
    numbers = range(partitions)
    produce(kafka, topic, [Record(b"%d" % n, None, p, NOON + n % 7 * spread) for n in range(30) for p in numbers])
    in_process(group, topic, layout=HOURS)
    for name in published_in(root_of(lake)):
        (root_of(lake) / name).unlink()
    produce(kafka, topic, [Record(b"%d" % n, None, p, NOON + n) for n in range(30, 40) for p in numbers])
    in_process(group, topic)
    first = Bound("offsets", offsets={TopicPartition(topic, p): 30 for p in numbers})
    in_process(group, topic, backfill=True, begin=EARLIEST, until=first)
    shutil.rmtree(root_of(lake) / lake.folder(group, lake.runs(group)[0]))
    assert problems(lake) == []
    assert offsets(lake) == sorted([*range(40)] * partitions)
    assert in_process(group, topic, backfill=True, begin=EARLIEST, until=LATEST) == []


def test_an_export_beside_files_that_no_manifest_names_says_so(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, lake: Lake, cluster: Sandbox
) -> None:
    """As long as there is nothing new, and once more: the next one goes on where that one ended."""
    topic, other, group = make_topic(), make_topic(), unique("group")
    heard: list[str] = []
    for name in (topic, other):
        fill(name, 10)
        in_process(group, name, warn=heard.append)
    shutil.rmtree(root_of(lake) / lake.folder(group, lake.runs(group)[1]))
    shutil.rmtree(root_of(lake) / lake.folder(group, lake.runs(group)[0]))
    in_process(group, topic, warn=heard.append)
    assert len(heard) == 1
    for _ in range(2):
        fill(topic, 5)
        in_process(group, topic, warn=heard.append)
    told, again = heard
    assert told == again
    assert "/0-10.parquet is in no run's manifest, nor is any file of its topic" in told
    (command,) = commands(told, "--verify")
    done = run("-z", cluster.connect, *command)
    assert done.returncode == 6
    (adopting,) = commands(done.stderr, "--adopt")
    assert run("-z", cluster.connect, *adopting).returncode == 0
    assert problems(lake) == []
    assert offsets(lake) == sorted([*range(20), *range(10)])


@pytest.mark.parametrize(
    "to",
    [
        "topic={}/partition=0/0-10.copy.parquet",
        "topic={}/partition=0/100-110.parquet",
        "topic={}/partition=0/0-10.g99.parquet",
        "topic={}/partition=1/0-10.parquet",
        "topic={}/partition=0/deeper/0-10.parquet",
        "topic=other/partition=0/x.parquet",
        "x.parquet",
    ],
)
def test_a_file_that_was_renamed_is_not_written_again(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, lake: Lake, cluster: Sandbox, to: str
) -> None:
    """A backfill was advised, and doubled what the file holds."""
    topic, group = make_topic(), unique("group")
    fill(topic, 10)
    in_process(group, topic)
    (name,) = published_in(root_of(lake))
    whole, renamed = root_of(lake) / name, root_of(lake) / to.format(topic)
    renamed.parent.mkdir(parents=True, exist_ok=True)
    whole.rename(renamed)
    assert "--backfill" not in looked(cluster, lake)
    with pytest.raises(RefusedError, match="was renamed or moved: they are not missing"):
        in_process(group, topic, backfill=True, begin=EARLIEST, until=LATEST)
    assert published_in(root_of(lake)) == [to.format(topic)]
    renamed.rename(root_of(lake).parent / "aside")
    assert "--backfill" in looked(cluster, lake)
    in_process(group, topic, backfill=True, begin=EARLIEST, until=LATEST)
    assert offsets(lake) == list(range(10))


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("layout", [LayoutWish((), None, None, None), LayoutWish(("date",), None, None, None)])
def test_files_beside_an_adopted_one_of_their_run_are_in_the_way(
    in_process: Export, make_topic: Make, unique: Unique, lake: Lake, kafka: KafkaSettings, commit: Commit, reset: bool,
    layout: LayoutWish,
) -> None:  # fmt: skip
    """Another topic's were adopted, and of files of several ranges all of the run were taken for told of: what they
    hold was exported once more."""
    topic, other, group = make_topic(2), make_topic(2), unique("group")
    for one in (topic, other):
        produce(kafka, one, [Record(b"%d" % n, None, n % 2, NOON) for n in range(12)])
    in_process(group, topic, other, layout=layout)
    shutil.rmtree(root_of(lake) / "_zkgroup")
    in_process(group, other, adopt=True)
    before = published_in(root_of(lake))
    if reset:
        commit(group, {TopicPartition(topic, number): 2 for number in (0, 1)})
    with pytest.raises(RefusedError, match="already holds offsets"):
        in_process(group if reset else unique("reader"), topic)
    assert published_in(root_of(lake)) == before


@pytest.mark.parametrize("to", ["lake", "group"])
def test_a_file_that_was_not_adopted_with_its_run_is_in_the_way(
    in_process: Export, make_topic: Make, unique: Unique, lake: Lake, kafka: KafkaSettings, to: str
) -> None:
    """It was away meanwhile: its messages were exported once more, or said to be passed over."""
    topic, group = make_topic(2), unique("group")
    produce(kafka, topic, [Record(b"%d" % n, None, n % 2, NOON + n // 10 * 24 * HOUR) for n in range(20)])
    in_process(group, topic, layout=LayoutWish(("date",), None, None, None))
    shutil.rmtree(root_of(lake) / "_zkgroup")
    (name,) = [name for name in published_in(root_of(lake)) if "2024-05-02" in name]
    aside = root_of(lake).parent / "aside"
    (root_of(lake) / name).rename(aside)
    in_process(group, adopt=True)
    aside.rename(root_of(lake) / name)
    with pytest.raises(RefusedError, match=r"date=2024-05-02/.* already holds offsets 5 to 9"):
        in_process(group, topic, policies=Policies(disagreement=to))  # type: ignore[arg-type]
    in_process(group, adopt=True)
    assert in_process(group, topic)[0].rows == 0
    assert problems(lake) == []
    assert offsets(lake) == sorted(2 * [*range(10)])


@pytest.mark.parametrize("first", ["there", "gone"])
def test_what_retention_left_of_a_lost_file_is_counted_once(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, lake: Lake, kafka: KafkaSettings, first: str
) -> None:
    """Rows are those of the files; what was lost is a gap, or skipped, and not both."""
    topic, group = make_topic(), unique("group")
    for count in (10, 2):
        fill(topic, count)
        in_process(group, topic)
    (root_of(lake) / next(name for name in published_in(root_of(lake)) if "/0-10" in name)).unlink()
    drop_messages(kafka, TopicPartition(topic, 0), 4)
    in_process(group, topic, backfill=True, begin=EARLIEST, until=LATEST, skip_lost=True)
    if first == "gone":
        shutil.rmtree(root_of(lake) / lake.folder(group, lake.runs(group)[0]))
    (row,) = verify(lake)
    assert (row.start, row.end, row.rows, row.files) == (0, 12, 8, 2)
    assert (row.gaps, row.skipped) == ((4, 0) if first == "there" else (0, 4))
    assert offsets(lake) == list(range(4, 12))


@pytest.mark.parametrize("to", ["lake", "group"])
def test_what_lies_in_files_is_not_recorded_as_passed_over(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, lake: Lake, to: str
) -> None:
    """The newest run is lost. That the group goes on where it stands was taken, and its messages said not to be
    exported."""
    topic, group = make_topic(), unique("group")
    newest_run_lost(in_process, fill, lake, topic, group)
    with pytest.raises(RefusedError, match=r"10-20\.parquet already holds .*its manifest is gone") as caught:
        in_process(group, topic, policies=Policies(disagreement=to))  # type: ignore[arg-type]
    assert commands(str(caught.value.remedy), "--adopt")
    in_process(group, adopt=True)
    in_process(group, topic)
    assert problems(lake) == []
    assert offsets(lake) == list(range(30))


def test_an_heir_is_told_of_files_that_no_manifest_names(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, lake: Lake, commit: Commit, cluster: Sandbox
) -> None:
    """The newest run of the group that it was is lost: it was told to do what it did."""
    topic, group, heir = make_topic(), unique("group"), unique("heir")
    newest_run_lost(in_process, fill, lake, topic, group)
    commit(heir, {TopicPartition(topic, 0): 20})
    with pytest.raises(RefusedError, match="as --on-disagreement lake does"):
        in_process(heir, topic)
    with pytest.raises(RefusedError, match="and no manifest tells of it") as caught:
        in_process(heir, topic, policies=Policies(disagreement="lake"))
    (command,) = commands(str(caught.value.remedy), "--adopt")
    assert f"--group {group} " in " ".join(command)
    assert run("-z", cluster.connect, *command).returncode == 0
    in_process(heir, topic)
    assert problems(lake) == []
    assert offsets(lake) == list(range(30))


def test_an_heir_goes_on_behind_what_retention_took(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, lake: Lake, kafka: KafkaSettings, commit: Commit
) -> None:
    """Where the other group's exports end it takes over, also when the log does not begin there any more."""
    topic, group, heir = make_topic(), unique("group"), unique("heir")
    fill(topic, 10)
    in_process(group, topic)
    fill(topic, 20)
    commit(heir, {TopicPartition(topic, 0): 10})
    drop_messages(kafka, TopicPartition(topic, 0), 20)
    with pytest.raises(RefusedError, match="were deleted"):
        in_process(heir, topic)
    in_process(heir, topic, skip_lost=True)
    assert problems(lake) == []
    assert offsets(lake) == [*range(10), *range(20, 30)]


def test_who_comes_to_a_new_log_after_another_is_told_how(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, lake: Lake, registry: Registry, commit: Commit
) -> None:
    topic, group, other = make_topic(), unique("group"), unique("other")
    fill(topic, 30)
    in_process(group, topic)
    made_again(registry, topic)
    fill(topic, 10)
    in_process(other, topic)
    fill(topic, 10)
    for answer, remedy in (("earliest", "reset-offsets and then --on-recreated committed"),
                           ("latest", "--on-recreated committed does once reset-offsets has moved")):  # fmt: skip
        with pytest.raises(RefusedError) as caught:
            in_process(group, topic, policies=Policies(recreated=answer))  # type: ignore[arg-type]
        assert remedy in str(caught.value.remedy)
    commit(group, {TopicPartition(topic, 0): 10})
    in_process(group, topic, policies=Policies(recreated="committed"))
    assert problems(lake) == []
    assert offsets(lake) == sorted([*range(30), *range(20)])
