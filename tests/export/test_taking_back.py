"""A run that is being taken back, and stopped half-way: what only its files hold is not lost then either, and as long
as they are there it can be kept. Real servers."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from begun import EARLIEST
from export_points import Paused, lose_session
from exports import joining, messages_in
from members import connector
from resets import drop_messages
from scenes import Scene, left_at, remake, stop

from zkgroup.errors import RefusedError, ZkgroupError
from zkgroup.export.checks.history import history, status
from zkgroup.export.checks.verify import verify
from zkgroup.export.model.layout import LayoutWish
from zkgroup.export.model.words import Policies
from zkgroup.export.runs.refusals import TakenOver
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.ops import Create, Delete, Ensure, Get, Node
from zkgroup.sandbox.sandbox import Sandbox
from zkgroup.servers.registry import Registry

POINTS = ["withdrawn", "settlement filed", "files taken back"]


def half_way(scene: Scene, point: str) -> None:
    """It is to be taken back, and that is stopped."""
    left_at(scene)
    with pytest.raises(KeyboardInterrupt):
        scene.export(scene.group, settle="withdraw", passed=stop(point))
    (row,) = status(scene.registry, scene.group, scene.lake)
    assert (row.step, "--settle keep" in row.advice) == ("withdrawn", True)


def is_kept(scene: Scene, count: int = 20) -> None:
    """All is there, and says so."""
    assert len(messages_in(scene.out)) == count
    assert [row.problem for row in verify(scene.lake) if row.problem] == []
    assert [row.state for row in history(scene.lake)] == ["kept"]
    assert status(scene.registry, scene.group, scene.lake) == []


@pytest.mark.parametrize("point", POINTS)
def test_it_can_be_kept_as_long_as_its_files_are_there(scene: Scene, point: str) -> None:
    """It printed what it kept, and had removed it."""
    half_way(scene, point)
    rows = scene.export(scene.group, settle="keep")
    assert [(row.partition, row.rows) for row in rows] == [(0, 10), (1, 10)]
    is_kept(scene)
    scene.told()
    assert len(messages_in(scene.out)) == 20


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("gone", [remake, lambda scene: drop_messages(scene.kafka, scene.first, 5)])
def test_whoever_goes_on_with_it_looks_at_the_logs_again(
    scene: Scene, point: str, gone: Callable[[Scene], None]
) -> None:
    """``withdraw`` and the plain command, which cron runs: both are refused, and name the way back."""
    half_way(scene, point)
    gone(scene)
    said = "10 messages of .*: the topic was deleted and made again" if gone is remake else "5 messages of "
    for wish in ({"settle": "withdraw"}, {"begin": None}, EARLIEST):
        with pytest.raises(
            RefusedError, match=f"is not taken back: its files hold what no log has any more .{said}"
        ) as no:
            scene.export(scene.group, *(() if "settle" in wish else (scene.topic,)), **wish)
        assert str(no.value.remedy).startswith("--settle keep leaves the files where they are; ")
    scene.export(scene.group, settle="keep")
    is_kept(scene)


def test_where_files_are_gone_it_cannot_be_kept(scene: Scene) -> None:
    """What is left is told of, and may be adopted; or the rest goes, too."""
    half_way(scene, "files taken back")
    for work in list(scene.out.rglob("*.tmp"))[:1]:
        work.unlink()
    with pytest.raises(
        RefusedError, match=r"is being taken back, and 1 file of it is gone .topic=.*; 1 is publi"
    ) as no:
        scene.export(scene.group, settle="keep")
    assert str(no.value.remedy).startswith("--settle withdraw goes on with that")
    for partition in range(2):
        drop_messages(scene.kafka, TopicPartition(scene.topic, partition), 5)
    with pytest.raises(RefusedError, match="5 messages of ") as no:
        scene.export(scene.group, settle="withdraw")
    assert str(no.value.remedy).startswith("--settle keep publishes those of its files that are left, then")
    lines: list[str] = []
    scene.export(scene.group, settle="withdraw", skip_lost=True, warn=lines.append)
    assert "messages are given up that no log has any more: 5 messages of" in lines[0]
    assert messages_in(scene.out) == []


def test_what_is_left_of_it_may_be_adopted(scene: Scene) -> None:
    """One file is published, one is gone for good: as the refusal advises."""
    half_way(scene, "settlement filed")
    for file in [*scene.out.rglob("*.tmp"), *scene.out.rglob("partition=1/*.parquet")]:
        file.unlink()
    drop_messages(scene.kafka, scene.first, 5)
    with pytest.raises(RefusedError, match=f"5 messages of {scene.first}: its log starts at 5") as no:
        scene.export(scene.group, settle="withdraw")
    assert "then --settle forget and --adopt enter them" in str(no.value.remedy)
    lines: list[str] = []
    scene.export(scene.group, settle="forget", warn=lines.append)
    assert "is forgotten, and 1 file of it is published" in lines[0]
    scene.export(scene.group, adopt=True)
    assert len(messages_in(scene.out)) == 10
    scene.told(policies=Policies(disagreement="lake", no_offset="earliest"), **EARLIEST)
    assert len(messages_in(scene.out)) == 20
    assert [row.problem for row in verify(scene.lake) if row.problem] == []


def test_a_note_that_cannot_be_kept_is_seen_before_anything_is_changed(scene: Scene) -> None:
    """A damaged ``begun.json``: the run stays decided."""
    left_at(scene)
    note = scene.out / "_zkgroup" / scene.group / "begun.json"
    note.write_text("{")
    with pytest.raises(ZkgroupError, match=r"begun\.json"):
        scene.export(scene.group, settle="withdraw")
    (row,) = status(scene.registry, scene.group, scene.lake)
    assert row.step == "decided"
    note.unlink()
    assert scene.told(**EARLIEST)[1] == [0, 1]


def test_one_that_stood_still_takes_nothing_more(
    scene: Scene, brief: Callable[..., Any], registry: Registry, cluster: Sandbox
) -> None:
    """Meanwhile somebody else has kept the run."""
    left_at(scene)
    with Paused(lambda passed: brief(scene.group, settle="withdraw", passed=passed), "settlement filed") as first:
        lose_session(registry, cluster, scene.group)
        scene.export(scene.group, settle="keep")
        with pytest.raises(TakenOver):
            first.finish()
    is_kept(scene)


@pytest.mark.parametrize("more", [0, 10])
def test_one_that_was_taken_back_before_ends_once_more(scene: Scene, more: int) -> None:
    """ZooKeeper's data is of an earlier time, and a later run has the messages: in a file of the same name, or another.
    It advised to take that file away, or to withdraw, which was refused in turn."""
    path = znodes.export_state(scene.group)
    left_at(scene)
    (node,) = scene.registry.read([Get(path)])
    assert isinstance(node, Node)
    scene.export(scene.group, settle="withdraw")
    if more:
        scene.fill(scene.topic, 2 * more, 2)
    scene.told(**EARLIEST)
    for number in range(2):
        scene.registry.write(Delete(znodes.offset(scene.group, TopicPartition(scene.topic, number))))
    scene.registry.write(Ensure(path.rpartition("/")[0]))
    scene.registry.write(Create(path, node.data))
    drop_messages(scene.kafka, scene.first, 5)  # which are in the later run's file
    (row,) = status(scene.registry, scene.group, scene.lake)
    assert row.advice.startswith("it was being taken back: run the same command again: it finishes")
    with pytest.raises(RefusedError, match="is being taken back, and 2 files of it are gone"):
        scene.export(scene.group, settle="keep")
    with pytest.raises(RefusedError, match="was being taken back, and now is") as no:
        scene.told(**EARLIEST)
    assert no.value.remedy == "nothing was exported: run it again"
    assert not list(scene.out.rglob("begun.json"))
    scene.told(policies=Policies(disagreement="lake"), **EARLIEST)
    assert len(messages_in(scene.out)) == 20 + 2 * more
    assert [row.problem for row in verify(scene.lake) if row.problem] == []
    assert [row.state for row in history(scene.lake)][:2] == ["withdrawn", "exported"]


def test_a_file_of_several_partitions_in_folders_of_hours(scene: Scene) -> None:
    """Of each partition it is said what is gone."""
    left_at(scene, layout=LayoutWish(by=("hour",)))
    drop_messages(scene.kafka, scene.first, 5)
    drop_messages(scene.kafka, TopicPartition(scene.topic, 1), 2)
    said = f"5 messages of {scene.first}: its log starts at 5; 2 messages of {scene.topic}-1: its log starts at 2"
    with pytest.raises(RefusedError, match=said):
        scene.export(scene.group, settle="withdraw")
    scene.export(scene.group, settle="keep")
    is_kept(scene)


@pytest.mark.parametrize("removed", [True, False])
def test_a_folder_that_lacks_what_was_decided_is_told_of(scene: Scene, removed: bool) -> None:
    """A copy from before the decision, or files that somebody has removed, or written over, which were published:
    --status says what the command does."""
    left_at(scene, "decided")
    (work,) = (path for path in (scene.out / "_zkgroup" / scene.group).glob("*/*") if path.is_dir())
    file = next(work.glob("*.tmp"))
    kept = file.read_bytes()
    if removed:
        file.unlink()
    else:
        file.write_bytes(bytes(len(kept)))
    for wish in ({"settle": "keep"}, {}):
        with pytest.raises(RefusedError, match=r"lacks 1 file that it has written .*; 1 is published") as no:
            scene.export(scene.group, **wish)
        assert str(no.value.remedy).startswith(
            "somebody changed the folder: restore it; --settle withdraw ends the run, which is read again then; "
        )
    file.write_bytes(kept)
    (work / "manifest.json").unlink()
    (row,) = status(scene.registry, scene.group, scene.lake)
    with pytest.raises(RefusedError, match=r"the manifest of run .* is not in") as no:
        scene.told(**EARLIEST)
    assert row.advice == f"its manifest is not in {scene.out}: {no.value.remedy}"


def test_keep_is_refused_beside_members(scene: Scene, cluster: Sandbox) -> None:
    """They have read, or will, from where the group stands: the same messages would be in two places."""
    left_at(scene)
    with closing(connector(cluster.connect, scene.group, auto_commit_enable=False)) as member:
        member.streams({scene.topic: 1})
        with pytest.raises(RefusedError, match=f"cannot be committed: group {scene.group} is live") as no:
            scene.export(scene.group, settle="keep")
        assert no.value.remedy == "stop the members, then run the same command again"
    scene.export(scene.group, settle="keep")
    is_kept(scene)


def test_a_note_goes_with_the_run_that_is_kept(scene: Scene) -> None:
    """It was left as the run was being taken back."""
    half_way(scene, "files taken back")
    assert list(scene.out.rglob("begun.json"))
    scene.export(scene.group, settle="keep")
    assert not list(scene.out.rglob("begun.json"))


@pytest.mark.parametrize("how", ["keep", "forget"])
def test_one_that_stood_still_as_it_began_files_nothing(
    scene: Scene, brief: Callable[..., Any], registry: Registry, cluster: Sandbox, how: str
) -> None:
    """It overwrote how another process had ended the run, and called withdrawn what was kept."""
    left_at(scene)
    with Paused(lambda passed: brief(scene.group, settle="withdraw", passed=passed), "withdrawn") as first:
        lose_session(registry, cluster, scene.group)
        scene.export(scene.group, settle=how)
        with pytest.raises(TakenOver):
            first.finish()
    assert not list(scene.out.rglob("begun.json"))
    if how == "keep":
        is_kept(scene)
    else:
        assert not list(scene.out.rglob("settled.json"))
    assert len(messages_in(scene.out)) == 20


@pytest.mark.parametrize("both", [True, False])
def test_what_stands_where_the_run_ends_is_published(scene: Scene, both: bool) -> None:
    """Somebody has moved the group there: nobody would export that again, and its files went unpublished."""
    scene.commit(scene.group, {TopicPartition(scene.topic, number): 0 for number in range(2)})
    left_at(scene, "decided", begin=None)
    scene.commit(scene.group, {TopicPartition(scene.topic, number): 10 for number in range(1 + both)})
    for number in range(1 + both):
        drop_messages(scene.kafka, TopicPartition(scene.topic, number), 10)
    scene.export(scene.group, settle="withdraw")
    assert len(messages_in(scene.out)) == 10 + 10 * both
    scene.told()
    assert len(messages_in(scene.out)) == 20
    assert [row.problem for row in verify(scene.lake) if row.problem] == []


@pytest.mark.parametrize("join", [False, True])
def test_a_folder_that_was_copied_holds_its_own_files(scene: Scene, join: bool, tmp_path: Path) -> None:
    """Without hard links: what the run had published was called another run's, by each command that another named."""
    scene.commit(scene.group, {TopicPartition(scene.topic, number): 0 for number in range(2)})
    left_at(scene, "published 1 of 2", begin=None, join=joining(scene.group) if join else None)
    scene.out.rename(tmp_path / "before")
    shutil.copytree(tmp_path / "before", scene.out)
    scene.told()
    assert len(messages_in(scene.out)) == 20
    assert [row.problem for row in verify(scene.lake) if row.problem] == []
