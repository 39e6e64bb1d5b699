"""Looking at exports: what was done, what is under way, and whether every offset is there once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli import run
from export_points import driven
from exports import looked, root_of

from zkgroup.export.checks.advice import remedy_for
from zkgroup.export.checks.run_history import history, status
from zkgroup.export.checks.verify import VerifyRow, verify
from zkgroup.export.destination.run_log import Destination
from zkgroup.export.model.run_record import Pointer
from zkgroup.export.model.plan_types import Policies
from zkgroup.export.planning.group_state import read_committed
from zkgroup.export.run.claim import ExportClaim
from zkgroup.export.run.run_export import PartitionSummary
from zkgroup.export.stores.store import FolderStore
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.ops import Acl, Create, Delete, Ensure, Get, Node, SetData
from zkgroup.sandbox.sandbox import Sandbox
from zkgroup.servers.kafka import KafkaSettings
from zkgroup.servers.registry import Registry
from zkgroup.servers.zookeeper import ZooKeeperSettings


@pytest.fixture
def exported(
    in_process: Callable[..., list[PartitionSummary]], make_topic: Callable[..., str], fill: Callable[..., object],
    unique: Callable[[str], str], commit: Callable[..., None], tmp_path: Path,
) -> tuple[Destination, str, str]:  # fmt: skip
    """Three runs of a group: 0 to 20 in two files, 20 to 30, and 35 to 40 behind a gap that was recorded."""
    topic, group = make_topic(), unique("group")
    fill(topic, 40)
    in_process(group, topic, max_messages=20, range_messages=10)
    in_process(group, topic, max_messages=10)
    commit(group, {TopicPartition(topic, 0): 35})
    in_process(group, topic, policies=Policies(disagreement="group"))
    return Destination(FolderStore(tmp_path / "out")), group, topic


def problems(destination: Destination, **options: Any) -> list[tuple[int, int, str]]:
    """Start, end and words of each problem."""
    return [(row.start, row.end, row.problem) for row in verify(destination, **options) if row.problem is not None]


def file(destination: Destination, topic: str, name: str) -> Path:
    assert isinstance(destination.store, FolderStore)
    return destination.store.root / f"topic={topic}" / "partition=0" / f"{name}.parquet"


def test_what_is_as_it_was_left_has_no_problems(exported: tuple[Destination, str, str], registry: Registry) -> None:
    """One row for the partition, over all runs, with what was skipped knowingly; the group's offset agrees."""
    destination, group, topic = exported
    committed = {group: read_committed(registry, group, destination.last(group).coverage)}
    assert verify(destination, committed) == [VerifyRow(topic, 0, 0, 40, 35, 0, 5, 4, None)]
    assert [(row.state, row.rows, row.files, row.skipped, row.kind) for row in history(destination)] == [
        ("exported", 20, 2, 0, "export"),
        ("exported", 10, 1, 0, "export"),
        ("exported", 5, 1, 5, "export"),
    ]
    assert [row.run[:8] for row in history(destination, [group])] == ["00000001", "00000002", "00000003"]


def test_every_change_of_a_file_is_named(exported: tuple[Destination, str, str]) -> None:
    """Missing, cut, replaced by another, renamed, foreign: each by its name and its offsets."""
    destination, group, topic = exported
    ten, twenty, thirty = (file(destination, topic, name) for name in ("0-10", "10-20", "20-30"))
    content = ten.read_bytes()

    ten.unlink()
    assert problems(destination) == [
        (0, 10, f"topic={topic}/partition=0/0-10.parquet of run {destination.runs(group)[0]} is missing")
    ]

    ten.write_bytes(content[:-20])
    assert any("0-10.parquet cannot be read" in why for _, _, why in problems(destination))

    shutil.copyfile(twenty, ten)
    found = problems(destination)
    assert (0, 10, f"topic={topic}/partition=0/0-10.parquet says that it is {topic}-0 10 to 20") in found
    assert any("row group 0 has 10 rows, offsets 10 to 19" in why for _, _, why in found)

    table = pq.ParquetFile(thirty).read()
    pq.write_table(table.slice(0, 9), ten)
    assert any("0-10.parquet has 9 rows" in why for _, _, why in problems(destination))

    ten.write_bytes(content)
    assert problems(destination) == []
    shutil.copyfile(twenty, file(destination, topic, "5-8"))
    assert any("5-8.parquet is in no run's manifest" in why for _, _, why in problems(destination))
    pq.write_table(pa.table({"offset": [5]}), file(destination, topic, "5-8"))
    assert any("5-8.parquet was not made by an export" in why for _, _, why in problems(destination))


def test_every_file_that_a_reader_would_take_is_in_a_manifest(exported: tuple[Destination, str, str]) -> None:
    """Copies and strangers, wherever they lie and however they are called; what no reader takes does not matter."""
    destination, _, topic = exported
    assert isinstance(destination.store, FolderStore)
    root, ten = destination.store.root, file(destination, topic, "0-10")
    for name in ("_SUCCESS", ".hidden", f"topic={topic}/_notes/readme.txt", "_zkgroup/readme"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("x")
    assert problems(destination) == []
    here = f"topic={topic}/partition=0"
    for name in (f"{here}/copy.parquet", f"{here}/0-10 (1).parquet", f"topic={topic}/copy.parquet", "copy.parquet"):
        shutil.copyfile(ten, root / name)
        (found,) = [row for row in verify(destination) if row.problem is not None]
        assert (found.topic, found.partition, found.start, found.end) == (topic, 0, 0, 10)
        assert found.problem is not None
        assert found.problem.startswith(f"{name} holds what run ")
        (root / name).unlink()
    for name in ("topic=other/junk.parquet", f"{here}/junk", "readme.txt", "_x/junk.parquet"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("x")
        assert [row for row in verify(destination) if row.problem is not None] == [
            VerifyRow(*8 * [None], f"{name} is in no run's manifest, and readers take it for data", mend="move")
        ]
        (root / name).unlink()


@pytest.mark.parametrize("damage", [{"rows": "50"}, {"ranges": None}, {"name": 3}])
def test_a_damaged_manifest_is_a_problem_and_hides_no_other(
    exported: tuple[Destination, str, str], damage: dict[str, object]
) -> None:
    """It is named, in one line; its files and offsets are then in no run; all others are judged, and listed."""
    destination, group, topic = exported
    assert isinstance(destination.store, FolderStore)
    path = destination.store.root / destination.folder(group, destination.runs(group)[0]) / "manifest.json"
    document = json.loads(path.read_text())
    document["files"][0] |= damage
    path.write_text(json.dumps(document))
    file(destination, topic, "20-30").unlink()
    rows = [row for row in verify(destination) if row.problem is not None]
    (named,) = [row for row in rows if row.topic is None]
    assert str(named.problem).startswith(f"{path} cannot be read: ")
    assert "Error" not in str(named.problem)
    assert any("20-30.parquet of run" in str(row.problem) for row in rows)
    told: list[str] = []
    assert [row.state for row in history(destination, warn=told.append)] == ["unreadable", "exported", "exported"]
    assert told == [named.problem]


def test_gaps_and_repeats_between_runs_are_named(exported: tuple[Destination, str, str]) -> None:
    """A run whose memory is gone leaves offsets in no run; one that claims another's offsets has them twice."""
    destination, group, _ = exported
    assert isinstance(destination.store, FolderStore)
    first, second, third = (destination.store.root / destination.folder(group, run) for run in destination.runs(group))
    kept = (second / "manifest.json").read_text()
    (second / "manifest.json").unlink()
    found = problems(destination)
    assert (20, 30, f"in no run of group {group}") in found
    assert any("20-30.parquet is in no run's manifest" in why for _, _, why in found)
    (second / "manifest.json").write_text(kept)
    (third / "manifest.json").write_text((first / "manifest.json").read_text())
    assert (0, 20, "exported twice") in problems(destination)


def test_a_group_that_was_moved_is_named(
    exported: tuple[Destination, str, str], registry: Registry, commit: Callable[..., None]
) -> None:
    """Forward, back below a gap that nobody recorded, or gone."""
    destination, group, topic = exported
    for offset, interval in ((47, (40, 47)), (12, (12, 40))):
        commit(group, {TopicPartition(topic, 0): offset})
        committed = {group: read_committed(registry, group, destination.last(group).coverage)}
        assert problems(destination, committed=committed) == [
            (*interval, f"group {group} stands at {offset}, exported up to 40")
        ]
    assert problems(destination, committed={group: {}}) == [(40, 40, f"group {group} has no offset, exported up to 40")]


def test_an_offset_that_is_none_hides_nothing_of_the_files(
    exported: tuple[Destination, str, str], registry: Registry, cluster: Sandbox
) -> None:
    """Nothing was looked at, for one node that somebody has written anything to."""
    destination, group, topic = exported
    path = znodes.offset(group, TopicPartition(topic, 0))
    registry.write(SetData(path, b"abc"))
    look = ("export", "--group", group, "--to", destination.store.uri, "--verify", "-z", cluster.connect, "--output", "json")
    done = run(*look)
    assert (done.returncode, len(json.loads(done.stdout))) == (1, 1)
    notes, error = done.stderr.splitlines()
    assert f"the offsets of group {group} are not compared: znode {path}: 'abc' is no offset" in notes
    assert f"znode {path}: 'abc' is no offset: set the offset again, or delete the node" in error
    assert isinstance(destination.store, FolderStore)
    next(destination.store.root.rglob("*.parquet")).unlink()
    done = run(*look)
    assert (done.returncode, len(json.loads(done.stdout))) == (6, 2)
    assert "are not compared" in done.stderr


@pytest.mark.parametrize(
    ("offset", "believed", "not_said"), [(12, "lake", "--on-disagreement group"), (47, "group", "another --to")]
)
def test_what_is_advised_for_a_group_that_was_moved_mends_it(
    exported: tuple[Destination, str, str], in_process: Callable[..., list[PartitionSummary]], fill: Callable[..., object],
    commit: Callable[..., None], cluster: Sandbox, offset: int, believed: Literal["lake", "group"], not_said: str,
) -> None:  # fmt: skip
    """The files are as they should be: neither are they to be moved away, nor is there anything for a backfill. One
    says whom the export is to believe, and then all is right."""
    destination, group, topic = exported
    fill(topic, 10)
    commit(group, {TopicPartition(topic, 0): offset})
    look = ("export", "--group", group, "--to", destination.store.uri, "--verify", "-z", cluster.connect)
    done = run(*look)
    assert done.returncode == 6
    assert f"group {group} stands at {offset}, exported up to 40" in done.stderr
    assert f"--on-disagreement {believed}" in done.stderr
    assert not_said not in done.stderr
    assert "move away" not in done.stderr
    assert "--backfill" not in done.stderr
    in_process(group, topic, policies=Policies(disagreement=believed))
    done = run(*look)
    assert (done.returncode, done.stderr) == (0, "")


def test_advice_is_for_the_problems_that_there_are() -> None:
    """Damaged files have theirs, a group that stands elsewhere has its own, and both are told where both are there."""
    file, back, ahead = (
        VerifyRow(topic, 0, 0, 9, *4 * [None], "why", stands, "g", None if stands else "refill")
        for topic, stands in (("t", None), ("t", "behind"), ("u", "ahead"))
    )
    assert "--on-disagreement" not in remedy_for([file], Path("/lake"))
    assert "--backfill" in remedy_for([file], Path("/lake"))
    assert "exports again what is missing, and what is damaged once that is moved away; " in remedy_for(
        [file], Path("/lake")
    )
    assert "exports again what is missing; " in remedy_for([replace(file, mend="fill")], Path("/lake"))
    assert "--backfill" not in remedy_for([back, ahead], Path("/lake"))
    for problems in ([file, back], [file, back, ahead]):
        advice = remedy_for(problems, Path("/lake"))
        assert "--backfill" in advice
        assert "--on-disagreement lake" in advice
        assert ("--on-disagreement group u" in advice) is (ahead in problems)
    # Of a topic where it stands behind as well that would be refused.
    assert "--on-disagreement group" not in remedy_for([back, replace(ahead, topic="t")], Path("/lake"))


def test_advice_names_groups_topics_and_the_lake() -> None:
    """As a shell takes them: each group that has exported what is wrong, with the topics that it is wrong of. A foreign
    file is nobody's, and its going leaves nothing to be filled."""

    def row(topic: str | None, group: str | None) -> VerifyRow:
        return VerifyRow(topic, 0, 0, 9, *4 * [None], "why", None, group, "refill")

    two = remedy_for([row("b", "g"), row("a", "g"), row("a", "g"), row("a", "it's"), row(None, None)], Path("/my lake"))
    for name in ("a", "b"):  # one that is gone stops no other
        assert (
            f"zkgroup export --group g --to '/my lake' --backfill --from {name}:0=0 --until {name}:0=9 {name} a" in two
        )
    assert (
        """zkgroup export --group 'it'"'"'s' --to '/my lake' --backfill --from a:0=0 --until a:0=9 a exports""" in two
    )
    assert "('zkgroup export --to /lake --status')" in remedy_for([row("a", "g")], Path("/lake"))
    assert "--status" not in remedy_for([row("a", "g")], Path("/lake"), unfinished=False)
    nothing = replace(row("a", None), mend=None)
    assert remedy_for([nothing], Path("/lake"), unfinished=False).endswith("restore it from a copy, if there is one")
    assert "-t:0=9 -- -t'" in remedy_for([row("-t", "g")], Path("/lake"))
    orphans = [replace(row("b", name), mend="adopt") for name in ("h", "g", "h")]
    told = remedy_for(orphans, Path("/lake"))
    assert "'zkgroup export --group g --to /lake --adopt' and 'zkgroup export --group h --to /lake --adopt' ent" in told
    assert ("move" in told, "--backfill" in told) == (False, False)
    damaged = remedy_for([replace(row(None, "g"), mend="readopt")], Path("/lake"))
    assert damaged.index("move it away") < damaged.index("--group g --to /lake --adopt")
    assert remedy_for([replace(row(None, None), mend="move")], Path("/lake")).endswith("or move it away")
    assert "move it away" not in remedy_for([replace(row("a", "g"), mend="fill")], Path("/lake"))
    assert "move it away" in remedy_for([replace(row("a", "g"), mend="fill"), row("a", "g")], Path("/lake"))
    assert "move one file away with the folder of the run" in remedy_for(
        [replace(row("a", None), mend="undo")], Path("/")
    )


def test_what_lies_between_lost_files_is_not_filled_by_the_way() -> None:
    """It may have been left out knowingly."""
    lost = [
        VerifyRow("t", number, first, first + 9, *4 * [None], "why", None, "g", "fill")
        for number, first in ((0, 30), (0, 0), (0, 9), (1, 5))
    ]
    told = remedy_for(lost, Path("/lake"))
    assert "--backfill --from t:0=0,t:1=5 --until t:0=18,t:1=14 t' and " in told
    assert "--backfill --from t:0=30 --until t:0=39 t' exports again" in told


def test_a_run_that_was_taken_back_counts_for_nothing(exported: tuple[Destination, str, str]) -> None:
    """Its files may be gone; if one is still there, it is foreign."""
    from zkgroup.export.model.documents import encode_settled
    from zkgroup.export.model.run_record import Settled

    destination, group, topic = exported
    last = destination.runs(group)[-1]
    content = file(destination, topic, "35-40").read_bytes()
    settled = Settled("withdraw", 1, (TopicPartition(topic, 0),), {})
    destination.store.write(f"{destination.folder(group, last)}/settled.json", encode_settled(settled))
    file(destination, topic, "35-40").unlink()
    assert problems(destination) == []
    assert [row.state for row in history(destination)][-1] == "withdrawn"
    file(destination, topic, "35-40").write_bytes(content)
    assert [interval[:2] for interval in problems(destination)] == [(35, 40)]


def test_a_pointer_that_is_hidden_hides_no_other(registry: Registry, unique: Callable[[str], str]) -> None:
    """What an access list keeps from being read is a row that says so; other groups have theirs."""
    hidden, shown = unique("group"), unique("group")
    pointer = Pointer("decided", "00000001-aaaaaaaa", "/out", "hash", "attempt", "hash")
    for group in (hidden, shown):
        with ExportClaim(registry, group, "attempt", lambda _: None) as claim:
            claim.point(None, pointer)
    path = znodes.export_state(hidden)
    (node,) = registry.read([Get(path)])
    assert isinstance(node, Node)
    registry.transaction([Delete(path), Create(path, node.data, acl=(Acl("digest", "other:hash", 31),))])
    rows = {row.group: row for row in status(registry)}
    assert (rows[shown].step, rows[hidden].state, rows[hidden].step) == ("decided", "unfinished", "unreadable")
    assert f"znode {path} cannot be read: not authorised" in rows[hidden].advice


def test_status_tells_what_runs_and_what_waits(registry: Registry, unique: Callable[[str], str]) -> None:
    """Nothing for a group without exports; a claim is at work, a pointer without one waits, with what to do."""
    group = unique("group")
    assert status(registry, group) == []
    pointer = Pointer("decided", "00000001-aaaaaaaa", "/out", "hash", "attempt", "hash")
    with ExportClaim(registry, group, "attempt", lambda _: None) as claim:
        (row,) = status(registry, group)
        assert (row.state, row.step, row.run) == ("running", "planning", None)
        claim.point(None, pointer)
        (row,) = status(registry, group)
        assert (row.state, row.step, row.run, row.output) == ("running", "decided", pointer.run, "/out")
        assert row.pid is not None
        assert row.since is not None
    (row,) = [row for row in status(registry) if row.group == group]
    assert (row.state, row.host, row.pid) == ("unfinished", None, None)
    assert "run the same command again" in row.advice
    registry.write(SetData(znodes.export_state(group), b"what"))
    (row,) = status(registry, group)
    assert (row.state, row.step) == ("unfinished", "unreadable")
    registry.write(Ensure(znodes.export_state(unique("quiet"))))
    assert status(registry, unique("nobody")) == []


def test_what_is_unfinished_is_named_where_something_is(
    cluster: Sandbox, short: ZooKeeperSettings, kafka: KafkaSettings, filled: str, unique: Callable[[str], str],
    in_process: Callable[..., object], destination: Destination,
) -> None:  # fmt: skip
    """An export that was killed, whose files are in no manifest yet, or of which ZooKeeper alone tells; not once it is
    finished."""
    group = unique("group")
    driven(short, kafka, kill_at="published for good", group=group, topics=[filled], out=root_of(destination))
    assert "finish what is unfinished" in looked(cluster, destination)
    (run,) = destination.runs(group)
    folder = root_of(destination) / destination.folder(group, run)
    folder.rename(root_of(destination).with_name("kept"))
    assert "finish what is unfinished" in looked(cluster, destination, "--group", group)
    root_of(destination).with_name("kept").rename(folder)
    in_process(group, filled)
    next(root_of(destination).rglob("*.parquet")).rename(root_of(destination) / "part-1.parquet")
    assert "finish what" not in looked(cluster, destination)
