"""A run's manifest tells what all runs account for that it knew of. One that it did not know, since it was elsewhere
for a while or was filed late, counts as soon as it is there: its messages were written a second time."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from cli import run
from export_points import Paused, lose_session
from exports import at, files_in, messages_in, offsets, problems, root_of
from hypothesis import given
from hypothesis import strategies as st

from zkgroup.errors import RefusedError, ZkgroupError
from zkgroup.export.lake.coverage import Accounted, extended, merged
from zkgroup.export.lake.lake import Lake
from zkgroup.export.model.documents import encode_manifest
from zkgroup.export.model.layout import LayoutWish
from zkgroup.export.model.rundata import Manifest, ManifestPart, TopicCoverage, TopicIdentity
from zkgroup.export.model.words import PartitionPlan
from zkgroup.export.runs.run import PartitionSummary
from zkgroup.export.stores.store import FolderStore
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.ops import Get, Node
from zkgroup.sandbox.sandbox import Sandbox
from zkgroup.servers.registry import Registry

Export = Callable[..., list[PartitionSummary]]
Make = Callable[..., str]
Fill = Callable[..., object]
Unique = Callable[[str], str]
WHOLE = LayoutWish((), None, None, None)
T0 = TopicPartition("t", 0)


def _file(lake: Lake, start: int) -> str:
    """A run that is filed, of ten offsets."""
    run, last, topics = lake.new_run("g"), lake.last("g"), {"t": TopicIdentity(7)}
    parts = (ManifestPart(PartitionPlan(T0, start, 1, start, start + 10), start + 10, 10, 0, {}),)
    coverage = extended(last.coverage, topics, parts)
    manifest = Manifest(
        run, "g", "export", "c", "", "a", start, start, "read_committed", parts, coverage, last.run, roll=last.roll(run)
    )  # fmt: skip
    lake.store.write(f"{lake.folder('g', run)}/manifest.json", encode_manifest(manifest))
    return run


@given(st.lists(st.tuples(st.sampled_from(["file", "plan", "away", "alone", "back"]), st.integers(0, 9)), max_size=25))
def test_what_is_there_counts_whoever_knew_of_it(steps: list[tuple[str, int]]) -> None:
    """Runs are filed, planned and left, moved away (the folder, or the manifest alone) and back, in any order: at each
    moment all manifests that are there are told of, and what is said to be told of is covered."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        here, kept = root / "lake", root / "kept"
        lake = Lake(FolderStore(here))
        written: dict[str, int] = {}
        away: dict[str, list[Path]] = {}
        for number, (what, which) in enumerate(steps):
            runs = lake.runs("g")
            if what == "file":
                written[_file(lake, 10 * number)] = 10 * number
            elif what == "plan":
                (here / lake.folder("g", lake.new_run("g"))).mkdir(parents=True)
            elif what in ("away", "alone") and runs:
                run = runs[which % len(runs)]
                path = here / lake.folder("g", run)
                path = path if what == "away" else path / "manifest.json"
                if path.exists() and run not in away:
                    kept.mkdir(exist_ok=True)
                    away[run] = [path, kept / f"{number}"]
                    shutil.move(*away[run])
            elif what == "back" and away:
                to, source = away.pop(sorted(away)[which % len(away)])
                shutil.move(source, to)
            last = Lake(FolderStore(here)).last("g")  # as the next export sees it
            there = {name for name in written if name not in away}
            held = last.coverage["t"].partitions[0] if "t" in last.coverage else ()
            assert last.told >= there
            assert all(any(low <= written[name] < high for low, high in held) for name in last.told)
            assert (last.run is None) == (not there)


def test_the_last_manifest_is_enough_where_it_knew_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many runs there are, one manifest is read; a folder that was left there by a killed run costs a look."""
    lake = Lake(FolderStore(tmp_path))
    runs = [_file(lake, 10 * number) for number in range(20)]
    read: list[str] = []
    original = Lake.manifest
    monkeypatch.setattr(Lake, "manifest", lambda self, group, run: (read.append(run), original(self, group, run))[1])
    assert lake.last("g").coverage["t"].partitions == {0: ((0, 200),)}
    assert read == runs[-1:]
    (tmp_path / lake.folder("g", lake.new_run("g"))).mkdir()
    runs.append(_file(lake, 200))
    read.clear()
    assert lake.last("g").coverage["t"].partitions == {0: ((0, 210),)}
    assert read == runs[-1:]


@pytest.mark.parametrize("layout", [WHOLE, LayoutWish()])
@pytest.mark.parametrize("what", ["folder", "manifest"])
def test_a_run_that_was_away_for_a_while_is_counted_again(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, lake: Lake, layout: LayoutWish, what: str
) -> None:
    """Its folder, or its manifest alone, was elsewhere while others were filed: the next export wrote its messages a
    second time, or was refused for good with a remedy that did nothing."""
    topic, group = make_topic(), unique("group")
    fill(topic, 20)
    in_process(group, topic, backfill=True, begin=at(topic, 4), until=at(topic, 9), layout=layout)
    path = root_of(lake) / lake.folder(group, lake.runs(group)[0])
    path = path if what == "folder" else path / "manifest.json"
    kept = root_of(lake).parent / "kept"
    shutil.move(path, kept)
    for start in (0, 1):
        in_process(group, topic, backfill=True, begin=at(topic, start), until=at(topic, start + 1))
    path.parent.mkdir(exist_ok=True)
    shutil.move(kept, path)
    assert problems(lake) == [(2, 4, f"in no run of group {group}")]
    in_process(group, topic)
    assert offsets(lake) == list(range(20))
    assert problems(lake) == []


def test_files_whose_manifest_is_away_are_in_the_way(
    in_process: Export, make_topic: Make, fill: Fill, unique: Unique, lake: Lake
) -> None:
    """A later manifest does not stand for a run that it knew nothing of, though the run's folder is there."""
    topic, group = make_topic(), unique("group")
    fill(topic, 20)
    in_process(group, topic, backfill=True, begin=at(topic, 4), until=at(topic, 9), layout=WHOLE)
    (root_of(lake) / lake.folder(group, lake.runs(group)[0]) / "manifest.json").unlink()
    in_process(group, topic, backfill=True, begin=at(topic, 0), until=at(topic, 1))
    with pytest.raises(RefusedError, match="already holds offsets 4 to 8"):
        in_process(group, topic)
    assert offsets(lake) == [0, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("others", ["exported", "found nothing"])
def test_one_that_stood_still_before_its_plan_was_in_place_begins_anew(
    in_process: Export, brief: Export, make_topic: Make, fill: Fill, unique: Unique, registry: Registry,
    cluster: Sandbox, tmp_path: Path, others: str,
) -> None:  # fmt: skip
    """Its session ended between its plan and its pointer, and other exports of the group came and went: it was filed
    under a number that was not the newest, and what it had exported was forgotten."""
    topic, other, group, out = make_topic(), make_topic(), unique("zombie"), tmp_path / "out"
    fill(topic, 20)
    fill(other, 10)
    in_process(group, other)
    with Paused(lambda passed: brief(group, topic, passed=passed, session=6.0), "plan written") as first:
        lose_session(registry, cluster, group)
        fill(other, 10 if others == "exported" else 0)
        in_process(group, other)
        with pytest.raises(RefusedError, match="have ended since this one was planned"):
            first.finish()
    assert not isinstance(registry.read([Get(znodes.export_state(group))])[0], Node)
    assert not [name for name in files_in(out) if topic in name]
    in_process(group, topic)
    assert sum(message["topic"] == topic for message in messages_in(out)) == 20
    told = run("-z", cluster.connect, "reset-offsets", group, "--topic", topic, "--to-earliest", "--execute")
    assert told.returncode == 0
    with pytest.raises(RefusedError, match="was set back"):
        in_process(group, topic)


def test_one_that_stood_still_while_it_wrote_its_plan_blames_no_folder(
    in_process: Export, brief: Export, make_topic: Make, fill: Fill, unique: Unique, registry: Registry,
    cluster: Sandbox, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Another export has ended meanwhile, and tidied up what it took for debris: nothing there has to be mended."""
    topic, other, group = make_topic(), make_topic(), unique("zombie")
    fill(topic, 20)
    fill(other, 10)
    write = FolderStore.write
    late: list[str] = []

    def stand_still(store: FolderStore, name: str, data: bytes) -> None:
        if late or not name.endswith("plan.json"):
            write(store, name, data)
            return
        late.append(name)
        lose_session(registry, cluster, group)
        in_process(group, other)
        raise ZkgroupError(f"cannot write {name}: No such file or directory")

    monkeypatch.setattr(FolderStore, "write", stand_still)
    with pytest.raises(RefusedError, match="have ended since this one was planned"):
        brief(group, topic, session=6.0)
    assert [row.rows for row in in_process(group, topic)] == [20]


def told(czxid: int, end: int, cluster: str = "a", *, own: bool = True) -> Accounted:
    """What a run tells of one partition; ``own``: it has read it."""
    coverage = {"t": TopicCoverage(TopicIdentity(czxid), {0: ((0, end),)}, {0: end}, {0: end})}
    return Accounted(None, cluster, coverage, {"t"} if own else set(), {T0} if own else set())


def test_which_log_of_a_topic_counts_the_newest_run_tells() -> None:
    """Whatever older ones say: a new ZooKeeper begins with low numbers again. One that it has not known may have read a
    later log, which births tell, of one cluster."""
    first, again = told(7, 10), told(9, 20)
    renewed = told(3, 30, own=False)
    assert merged(renewed, [(first, False), (again, False)]) == renewed.coverage
    passed_on = told(7, 10, own=False)
    assert merged(passed_on, [(first, False), (again, True)]) == again.coverage
    assert merged(again, [(first, True)]) == again.coverage
    assert merged(passed_on, [(told(9, 20, own=False), True)]) == passed_on.coverage
    assert merged(passed_on, [(told(9, 20, "b"), True)]) == passed_on.coverage


def test_exports_end_where_the_newest_run_says() -> None:
    """Or where one that it has not known went on; it may have filled a hole below what others had come to."""
    far, below = told(7, 30), told(7, 10, own=False)
    assert merged(below, [(far, False)])["t"] == TopicCoverage(TopicIdentity(7), {0: ((0, 30),)}, {0: 30}, {0: 10})
    assert merged(below, [(far, True)])["t"].ends == {0: 30}
