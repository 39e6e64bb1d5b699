"""Manifests that are gone: exports go on by what files tell, and ``--adopt`` enters these anew."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cli import run
from exports import made_again, messages_in, published_in, retell, root_of

from zkgroup.errors import NotFoundError, RefusedError
from zkgroup.export.checks.verify import verify
from zkgroup.export.lake.adopting import adopt
from zkgroup.export.lake.lake import Lake
from zkgroup.export.model.layout import LayoutWish
from zkgroup.export.model.words import Policies
from zkgroup.export.planning.bounds import EARLIEST, LATEST, Bound
from zkgroup.export.planning.group import read_committed
from zkgroup.export.runs.run import PartitionSummary
from zkgroup.export.stores.store import FolderStore
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.ops import Exists
from zkgroup.sandbox.sandbox import Sandbox
from zkgroup.sandbox.topics import Record, add_partitions, produce
from zkgroup.servers.kafka import KafkaSettings
from zkgroup.servers.registry import Registry

Export = Callable[..., list[PartitionSummary]]
Make = Callable[..., str]
Fill = Callable[..., object]
Unique = Callable[[str], str]
Commit = Callable[..., None]
HOURS = LayoutWish(("date", "hour"), "Europe/Berlin", None, None)
HOUR = 3_600_000


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """The destination of ``in_process``."""
    return Lake(FolderStore(tmp_path / "out"))


@pytest.fixture
def two_logs(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, lake: Lake, registry: Registry
) -> tuple[str, str]:
    """A topic of which a group has exported 50 messages, and 20 after it was made again; the manifests are gone."""
    topic, group = make_topic(), unique("group")
    fill(topic, 50)
    in_process(group, topic)
    made_again(registry, topic)
    fill(topic, 20)
    in_process(group, topic, policies=Policies(recreated="earliest"))
    shutil.rmtree(root_of(lake) / "_zkgroup")
    return topic, group


def problems(lake: Lake, registry: Registry, *groups: str) -> list[str | None]:
    """In words; also where these groups stand."""
    committed = {group: read_committed(registry, group, lake.last(group).coverage) for group in groups}
    return [row.problem for row in verify(lake, committed) if row.problem is not None]


def messages(lake: Lake) -> list[int]:
    """What ``send`` and ``fill`` have numbered, as a reader of the lake finds it."""
    return sorted(int(row["value"]) for row in messages_in(root_of(lake)))


def send(kafka: KafkaSettings, topic: str, first: int, last: int) -> None:
    """Numbered ones, in two partitions and three hours by turns."""
    at = 1_714_557_600_000
    produce(kafka, topic, [Record(b"%d" % n, None, n % 2, at + n % 3 * HOUR) for n in range(first, last)])


def pasted(cluster: Sandbox, lake: Lake, group: str) -> list[tuple[int, int, int]]:
    """What the one command that ``--verify`` prints for the group comes to."""
    looked = run("-z", cluster.connect, "export", "--to", lake.store.uri, "--verify")
    assert (looked.returncode, "--backfill" in looked.stderr, "move" in looked.stderr) == (6, False, False)
    (command,) = re.findall(r"'(zkgroup [^']* --adopt)' enters whole files", looked.stderr)
    assert f"--group {group} " in command
    done = run(*shlex.split(command)[1:], "--output", "json", timeout=60)
    assert done.returncode == 0, done.stderr
    return [(row["partition"], row["start"], row["end"]) for row in json.loads(done.stdout)]


@pytest.mark.parametrize("what", ["all", "first", "last", "damaged"])
@pytest.mark.parametrize("layout", [HOURS, LayoutWish(("partition",))])
def test_what_no_manifest_names_is_entered_anew(
    in_process: Export, make_topic: Make, unique: Unique, lake: Lake, kafka: KafkaSettings, registry: Registry,
    cluster: Sandbox, what: str, layout: LayoutWish,
) -> None:  # fmt: skip
    """Of whichever runs; then all is as it was: the account is whole, the next export takes what is new, in the same
    layout, and a backfill finds nothing to fill."""
    topic, group = make_topic(2), unique("group")
    for first in (0, 30, 60):
        send(kafka, topic, first, first + 30)
        in_process(group, topic, layout=layout)
    before, runs = verify(lake), lake.runs(group)
    if what == "damaged":
        damaged = root_of(lake) / lake.folder(group, runs[1]) / "manifest.json"
        damaged.write_bytes(b"{")
        with pytest.raises(RefusedError, match=r"manifest\.json cannot be read") as told:
            in_process(group, adopt=True)
        assert "move it away" in str(told.value.remedy)
        damaged.unlink()
    else:
        gone = {"all": ".", "first": f"{group}/{runs[0]}", "last": f"{group}/{runs[2]}"}[what]
        shutil.rmtree(root_of(lake) / "_zkgroup" / gone)
    assert {mend.mend for mend in verify(lake) if mend.problem} <= {"adopt", "fill"}
    if what == "all":
        assert sorted(pasted(cluster, lake, group)) == [(0, 0, 45), (1, 0, 45)]
    else:
        in_process(group, adopt=True)
    assert [replace(row, files=0) for row in verify(lake)] == [replace(row, files=0) for row in before]
    assert problems(lake, registry, group) == []
    send(kafka, topic, 90, 100)
    assert sorted((row.start, row.end) for row in in_process(group, topic)) == [(45, 50), (45, 50)]
    assert in_process(group, topic, backfill=True, begin=EARLIEST, until=LATEST) == []
    assert messages(lake) == list(range(100))
    assert problems(lake, registry, group) == []
    with pytest.raises(NotFoundError, match="has no file of group"):
        in_process(group, adopt=True)


@pytest.mark.parametrize("how", ["backfill", "set back", "another group"])
def test_a_log_that_was_made_again_is_told_by_its_files(
    in_process: Export, two_logs: tuple[str, str], fill: Fill, unique: Unique, lake: Lake, commit: Commit, how: str
) -> None:  # fmt: skip
    """Marks of names were known to manifests alone, and what was exported of a topic that was made again was exported
    once more, without a mark, after somebody had deleted ``_zkgroup``."""
    topic, group = two_logs
    before = published_in(root_of(lake))
    if how == "backfill":
        assert in_process(group, topic, backfill=True, begin=EARLIEST, until=LATEST) == []
    else:
        reader = group if how == "set back" else unique("other")
        commit(reader, {TopicPartition(topic, 0): 5})
        with pytest.raises(RefusedError, match=r"0-20\.g\w+\.parquet already holds offsets 0 to 19"):
            in_process(reader, topic)
        commit(group, {TopicPartition(topic, 0): 20})
    assert published_in(root_of(lake)) == before
    fill(topic, 5)
    assert [(row.start, row.end) for row in in_process(group, topic)] == [(20, 25)]
    (added,) = set(published_in(root_of(lake))) - set(before)
    (marked,) = [name for name in before if ".g" in name]
    assert added.partition(".g")[2] == marked.partition(".g")[2]


@pytest.mark.parametrize("adopted", [False, True])
@pytest.mark.parametrize("lost", [1, 2])
def test_files_of_several_ranges_are_in_the_way_without_manifests(
    in_process: Export, make_topic: Make, unique: Unique, lake: Lake, kafka: KafkaSettings, commit: Commit, lost: int,
    adopted: bool, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Their ranges are told by footers; these were not read where the run's folder was left with its plan alone, and
    another group exported the same messages. Once they are adopted, few footers are read."""
    topic, first, heir = make_topic(2), unique("first"), unique("heir")
    for begin in (0, 30):
        send(kafka, topic, begin, begin + 30)
        in_process(first, topic, layout=HOURS)
    for told_by in lake.runs(first)[-lost:]:
        (root_of(lake) / lake.folder(first, told_by) / "manifest.json").unlink()
    if adopted:
        in_process(first, adopt=True)
        for told_by in lake.runs(first)[-lost - 1 : -1]:
            shutil.rmtree(root_of(lake) / lake.folder(first, told_by))
    for partition in (0, 1):
        commit(heir, {TopicPartition(topic, partition): 15})
    with pytest.raises(RefusedError, match=f"already holds offsets .* group {first} exported them"):
        in_process(heir, topic)
    if adopted:
        commit(heir, {TopicPartition(topic, partition): 30 for partition in (0, 1)})
        send(kafka, topic, 60, 70)
        monkeypatch.setattr(Lake, "slices", lambda _, file: pytest.fail(f"the footer of {file.name} was read"))
        in_process(heir, topic)


@pytest.mark.parametrize("anew", [False, True])
def test_files_of_all_logs_are_adopted(
    in_process: Export, two_logs: tuple[str, str], fill: Fill, lake: Lake, registry: Registry, cluster: Sandbox,
    anew: bool,
) -> None:  # fmt: skip
    """Also where the group has gone on with the newest log meanwhile; what is known of that is not forgotten. One
    manifest for each log: a call that comes to one of them alone is made again."""
    topic, group = two_logs
    if anew:
        fill(topic, 5)
        in_process(group, topic)
    assert sorted(pasted(cluster, lake, group)) == [(0, 0, 20), (0, 0, 50)]
    assert problems(lake, registry, group) == []
    newest = lake.last(group).coverage[topic]
    assert newest.partitions == {0: ((0, 25 if anew else 20),)}
    adopted = lake.runs(group)[-1]
    shutil.rmtree(root_of(lake) / lake.folder(group, adopted))
    assert [(row.start, row.end) for row in in_process(group, adopt=True)] == [(0, 20)]
    assert problems(lake, registry, group) == []
    fill(topic, 5)
    (row,) = in_process(group, topic)
    assert row.end - row.start == 5
    assert problems(lake, registry, group) == []


def test_a_file_that_is_missing_as_well_is_not_passed_over(
    in_process: Export, make_topic: Make, unique: Unique, lake: Lake, kafka: KafkaSettings, registry: Registry
) -> None:
    """In folders of times nothing tells whether messages were in a file that is gone: refused, with the count. In
    others the hole shows, and is filled."""
    hourly, plain, group, other = make_topic(2), make_topic(2), unique("group"), unique("other")
    send(kafka, hourly, 0, 30)
    in_process(group, hourly, layout=HOURS)
    (root_of(lake) / next(name for name in published_in(root_of(lake)) if "hour=13" in name)).unlink()
    shutil.rmtree(root_of(lake) / "_zkgroup")
    with pytest.raises(RefusedError, match=r"8 offsets .* are in none of them .*aborted or compacted") as told:
        in_process(group, adopt=True)
    assert "--skip-lost" in str(told.value.remedy)
    assert not (root_of(lake) / "_zkgroup").exists() or lake.runs(group) == []
    assert sum(row.rows for row in in_process(group, adopt=True, skip_lost=True)) == 20
    found = lake.manifest(group, lake.runs(group)[0])
    assert found is not None
    assert sum(part.gaps["unrecorded"] for part in found[0].parts) == 8
    shutil.rmtree(root_of(lake))
    for first in (0, 20, 40):
        send(kafka, plain, first, first + 20)
        in_process(other, plain)
    (root_of(lake) / next(name for name in published_in(root_of(lake)) if "partition=1/10-20" in name)).unlink()
    shutil.rmtree(root_of(lake) / "_zkgroup")
    in_process(other, adopt=True)
    assert problems(lake, registry, other) == [f"in no run of group {other}"]
    in_process(other, plain, backfill=True, begin=EARLIEST, until=LATEST)
    assert problems(lake, registry, other) == []
    assert messages(lake) == list(range(60))


def test_only_what_is_whole_and_alone_is_adopted(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, lake: Lake, registry: Registry
) -> None:
    """What is not is named, with the reason, and stays."""
    topic, group, other = make_topic(5), unique("group"), unique("other")
    fill(topic, 50, 5)
    with pytest.raises(NotFoundError, match="has no files of any topic: check --to"):
        in_process(group, adopt=True)
    in_process(group, topic)
    out = root_of(lake)
    shutil.rmtree(out / "_zkgroup")
    cut, renamed, old, twice, _ = (out / f"topic={topic}/partition={number}/0-10.parquet" for number in range(5))
    cut.write_bytes(cut.read_bytes()[:-100])
    renamed.rename(renamed.with_name("3-13.parquet"))
    retell(old, lambda told: told.pop("zkgroup.log"))
    shutil.copy(twice, twice.with_name("0-9.parquet"))
    with pytest.raises(NotFoundError):
        in_process(other, adopt=True)
    assert registry.read([Exists(znodes.group(other))]) == [None]
    heard: list[str] = []
    with pytest.raises(NotFoundError):  # of another cluster
        adopt(lake, group, "elsewhere", "attempt", skip_lost=False, warn=heard.append)
    assert sum("is of cluster" in line for line in heard) == 2
    heard.clear()
    assert [(row.partition, row.start, row.end) for row in in_process(group, adopt=True, warn=heard.append)] == [
        (3, 0, 10), (4, 0, 10)]  # fmt: skip
    assert len(heard) == 4, heard
    assert all(line.endswith("it is not adopted") for line in heard)
    reasons = ["cannot be read", "says that it is", "does not tell its log", "0-9.parquet"]
    for number, why in enumerate(reasons):
        assert sum(f"partition={number}/" in line and why in line for line in heard) == 1, why
    found = problems(lake, registry, group)
    assert all(sum(f"partition={number}/" in str(text) for text in found) for number in range(4)), found
    assert not any("partition=4/" in str(text) for text in found)


def test_files_of_another_layout_are_not_adopted(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, lake: Lake
) -> None:
    """Readers would not take them for one table with the others: moved here from somewhere else, or before."""
    topic, group = make_topic(), unique("group")
    fill(topic, 5)
    in_process(group, topic, layout=HOURS)
    kept = lake.store.uri + "-kept"
    root_of(lake).rename(kept)
    fill(topic, 5)
    in_process(group, topic, policies=Policies(disagreement="lake"))
    shutil.rmtree(Path(kept) / "_zkgroup")
    shutil.copytree(kept, root_of(lake), dirs_exist_ok=True)
    with pytest.raises(
        RefusedError, match=r"was written with --partition-by date,hour .* and the lake has --partition"
    ):
        in_process(group, adopt=True)


def test_what_runs_account_for_is_not_adopted(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, lake: Lake, registry: Registry, commit: Commit
) -> None:
    """Files that were missing, were written again, and have come back from a copy; and while an export is unfinished
    its files only seem to be forgotten."""
    topic, group, new = make_topic(), unique("group"), unique("new")
    fill(topic, 20)
    in_process(group, topic)
    (name,) = published_in(root_of(lake))
    kept = (root_of(lake) / name).read_bytes()
    shutil.rmtree(root_of(lake))
    commit(new, {TopicPartition(topic, 0): 0})
    in_process(new, topic, max_messages=12)
    (root_of(lake) / name).write_bytes(kept)
    heard: list[str] = []
    with pytest.raises(NotFoundError):
        in_process(group, adopt=True, warn=heard.append)
    assert len(heard) == 1
    assert "0-20.parquet and another file hold offsets 0 to 11" in heard[0]
    (root_of(lake) / name).unlink()
    with pytest.raises(RuntimeError, match="killed"):
        in_process(new, topic, passed=_kill_at("published 1 of 1"), max_messages=2)
    with pytest.raises(RefusedError, match=f"an export of group {new} is unfinished"):
        in_process(new, adopt=True)
    assert lake.runs(group) == []


def _kill_at(point: str) -> Callable[[str], None]:
    def look(passed: str) -> None:
        if passed == point:
            raise RuntimeError("killed")

    return look


def test_a_group_that_was_renamed_and_renamed_back_goes_on(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, lake: Lake, registry: Registry, commit: Commit
) -> None:
    """What its heir has exported of the log was "exported elsewhere", and recorded as left out."""
    topic, first, heir = make_topic(), unique("first"), unique("heir")
    for group, end in ((first, 10), (heir, 20), (first, 30)):
        commit(group, {TopicPartition(topic, 0): end - 10})
        fill(topic, 10)
        assert [(row.start, row.end) for row in in_process(group, topic)] == [(end - 10, end)]
        assert problems(lake, registry, first) == []
    assert [row.skipped for row in verify(lake)] == [0]
    commit(heir, {TopicPartition(topic, 0): 7})
    fill(topic, 10)
    with pytest.raises(RefusedError, match=rf"already holds offsets 0 to 9 .*: group {first} exported them"):
        in_process(heir, topic)
    (row,) = in_process(heir, topic, policies=Policies(disagreement="lake"))
    assert (row.start, row.end) == (30, 40)
    assert problems(lake, registry, heir, first) == []
    assert [row.skipped for row in verify(lake)] == [0]


def test_a_new_partition_is_new_to_an_heir_as_well(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, lake: Lake, registry: Registry, commit: Commit,
    kafka: KafkaSettings,
) -> None:  # fmt: skip
    """The policy for new partitions holds for a group whose first export this is, as it takes over."""
    topic, first, heir = make_topic(), unique("first"), unique("heir")
    fill(topic, 10)
    in_process(first, topic)
    add_partitions(registry, topic, 2)
    produce(kafka, topic, [Record(b"%d" % n, None, 1, None) for n in range(10, 15)])
    commit(heir, {TopicPartition(topic, 0): 10})
    with pytest.raises(RefusedError, match="partitions that are new to group"):
        in_process(heir, topic, begin=Bound("committed"))
    rows = in_process(heir, topic, begin=Bound("committed"), policies=Policies(new_partition="earliest"))
    assert [(row.partition, row.start, row.end) for row in rows] == [(0, 10, 10), (1, 0, 5)]
    assert problems(lake, registry, first, heir) == []


def test_a_bound_behind_the_end_is_told(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, lake: Lake
) -> None:
    """Offsets of an earlier log, perhaps: they are not filled, and that is said."""
    topic, group = make_topic(), unique("group")
    fill(topic, 5)
    heard: list[str] = []
    until = Bound("offsets", offsets={TopicPartition(topic, 0): 50})
    in_process(group, topic, backfill=True, begin=EARLIEST, until=until, warn=heard.append)
    assert heard == [f"{topic}-0: --until 50 lies behind the end of its log, which is 5"]


def test_an_adoption_that_comes_back_tells_of_the_newer_log(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, lake: Lake, registry: Registry, tmp_path: Path
) -> None:
    """Its manifest was away while another topic was exported: the older log counted, and every answer led back."""
    topic, other, group = make_topic(), make_topic(), unique("group")
    fill(topic, 10)
    in_process(group, topic)
    made_again(registry, topic)
    fill(topic, 10)
    in_process(group, topic, policies=Policies(recreated="earliest"))
    shutil.rmtree(root_of(lake) / "_zkgroup")
    in_process(group, adopt=True)
    newer = root_of(lake) / lake.folder(group, lake.runs(group)[-1])
    newer.rename(tmp_path / "away")
    fill(other, 5)
    in_process(group, other)
    (tmp_path / "away").rename(newer)
    fill(topic, 5)
    assert [(row.start, row.end) for row in in_process(group, topic)] == [(10, 15)]
    assert problems(lake, registry, group) == []
