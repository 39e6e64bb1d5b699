"""Runs that were written to the end, and of which ZooKeeper does not know any more that they were decided: its data was
restored from before that, or they were forgotten while their folder was away. Their files may be the only copy, and
are no rubbish. Real servers."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from begun import EARLIEST
from exports import messages_in
from members import connector
from resets import drop_messages
from scenes import Scene, left_at, remake, retention, stands, stop, up_to
from whole_attempts import GOES_ON, is_kept, rolled_back, works

from zkgroup.errors import NotFoundError, RefusedError, UnreachableError
from zkgroup.export.checks.history import status
from zkgroup.export.checks.verify import verify
from zkgroup.export.model.layout import LayoutWish
from zkgroup.export.model.words import Policies
from zkgroup.export.planning.request import ExportRequest
from zkgroup.export.runs.run import run_export
from zkgroup.protocol import znodes
from zkgroup.protocol.ops import Delete, Get, Node, SetData
from zkgroup.sandbox.sandbox import Sandbox
from zkgroup.servers.kafka import KafkaSettings
from zkgroup.servers.registry import Registry
from zkgroup.servers.zookeeper import ZooKeeperSettings

ADVICE = "--settle keep publishes what it has written; --skip-lost gives these messages up"


def refused(scene: Scene, said: str, advice: str = ADVICE, **wish: Any) -> None:
    before = len(list(scene.out.rglob("*.*")))
    with pytest.raises(RefusedError, match=f"is not decided, and holds what no log has any more .{said}") as no:
        scene.export(scene.group, *(() if "settle" in wish else (scene.topic,)), **wish)
    assert no.value.remedy == advice
    assert len(list(scene.out.rglob("*.*"))) == before


@pytest.mark.parametrize("to", ["planned", "gone"])
@pytest.mark.parametrize("point", ["manifest written", "decided"])
def test_the_last_copies_are_no_rubbish(scene: Scene, to: str, point: str) -> None:
    """They went with the next export, or with ``withdraw``, and were told of as expired afterwards."""
    rolled_back(scene, to, point)
    retention(scene, 5)
    said = f"5 messages of {scene.first}: its log starts at 5; 5 "
    for wish in (EARLIEST, {**EARLIEST, "policies": GOES_ON}, {"settle": "withdraw"}, {"backfill": True, **EARLIEST}):
        if "backfill" not in wish or to == "gone":
            refused(scene, said, **wish)
    scene.export(scene.group, settle="keep")
    is_kept(scene)


@pytest.mark.parametrize("to", ["planned", "gone"])
@pytest.mark.parametrize("how", [{"settle": "withdraw"}, EARLIEST])
def test_who_gives_them_up_is_told_so(scene: Scene, to: str, how: dict[str, Any]) -> None:
    rolled_back(scene, to)
    drop_messages(scene.kafka, scene.first, 5)
    lines: list[str] = []
    scene.export(scene.group, *(() if "settle" in how else (scene.topic,)), skip_lost=True, warn=lines.append, **how)
    (line,) = [line for line in lines if "are given up" in line]
    assert line.endswith(f"that no log has any more: 5 messages of {scene.first}: its log starts at 5")
    if "settle" in how:
        assert (works(scene), messages_in(scene.out)) == (0, [])
        with pytest.raises(RefusedError, match="was to begin at 0, its log starts at 5: 5 offsets are lost"):
            scene.told(**EARLIEST)
        scene.told(skip_lost=True, **EARLIEST)
    assert len(messages_in(scene.out)) == 15
    (row,) = [row for row in verify(scene.lake) if row.partition == 0]
    assert (row.problem, row.rows, row.end) == (None, 5, 10)


@pytest.mark.parametrize("to", ["planned", "gone"])
def test_what_the_logs_have_is_read_again(scene: Scene, to: str) -> None:
    """As ever, and nothing is asked; what retention took before the run is no reason."""
    drop_messages(scene.kafka, scene.first, 3)
    rolled_back(scene, to)
    scene.told(**EARLIEST)
    assert (len(messages_in(scene.out)), works(scene)) == (17, 0)


@pytest.mark.parametrize("to", ["planned", "gone"])
def test_they_may_be_kept_all_the_same(scene: Scene, to: str) -> None:
    rolled_back(scene, to)
    rows = scene.export(scene.group, settle="keep")
    assert [(row.partition, row.rows) for row in rows] == [(0, 10), (1, 10)]
    is_kept(scene)


def test_behind_earlier_exports(scene: Scene) -> None:
    """The newest that was decided stays what it is."""
    up_to(scene, 5)
    scene.fill(scene.topic, 10, 2)
    rolled_back(scene, "gone", begin=None)
    drop_messages(scene.kafka, scene.first, 8)
    refused(scene, f"3 messages of {scene.first}: its log starts at 8", begin=None)
    scene.export(scene.group, settle="keep")
    is_kept(scene, 30)


def test_one_that_was_forgotten_while_its_folder_was_away(scene: Scene, tmp_path: Path) -> None:
    left_at(scene, "decided")
    scene.out.rename(tmp_path / "away")
    scene.export(scene.group, settle="forget", skip_lost=True)
    (tmp_path / "away").rename(scene.out)
    drop_messages(scene.kafka, scene.first, 5)
    refused(scene, f"5 messages of {scene.first}", **EARLIEST)
    scene.export(scene.group, settle="keep")
    is_kept(scene)


@pytest.mark.parametrize("point", ["plan in place", "decided", "published 1 of 2", "settlement filed"])
def test_keeping_them_may_be_stopped(scene: Scene, point: str) -> None:
    """And is gone on with."""
    rolled_back(scene, "gone")
    drop_messages(scene.kafka, scene.first, 5)
    with pytest.raises(KeyboardInterrupt):
        scene.export(scene.group, settle="keep", passed=stop(point))
    if point == "plan in place":
        refused(scene, f"5 messages of {scene.first}", **EARLIEST)
    scene.export(scene.group, settle="keep")
    is_kept(scene)


def test_of_a_topic_that_was_made_again(scene: Scene) -> None:
    rolled_back(scene, "gone")
    remake(scene)
    refused(scene, f"10 messages of {scene.first}: the topic was deleted and made again", **EARLIEST)
    scene.export(scene.group, settle="keep")
    assert len(messages_in(scene.out)) == 20
    with pytest.raises(RefusedError, match="made again"):
        scene.told(**EARLIEST)


def test_offsets_that_were_moved_meanwhile_stay(scene: Scene) -> None:
    rolled_back(scene, "gone")
    drop_messages(scene.kafka, scene.first, 5)
    scene.commit(scene.group, {scene.first: 7})
    scene.export(scene.group, settle="keep")
    assert len(messages_in(scene.out)) == 20
    with pytest.raises(RefusedError, match="7"):
        scene.told(**EARLIEST)
    scene.told(policies=Policies(disagreement="lake"))
    assert len(messages_in(scene.out)) == 20


def test_not_beside_members(scene: Scene, cluster: Sandbox) -> None:
    """And nothing is under way then that was not before."""
    rolled_back(scene, "gone")
    with closing(connector(cluster.connect, scene.group, auto_commit_enable=False)) as member:
        member.streams({scene.topic: 1})
        with pytest.raises(RefusedError, match=f"cannot be committed: group {scene.group} is live"):
            scene.export(scene.group, settle="keep")
    assert [row.step for row in status(scene.registry, scene.group, scene.lake)] == ["written"]
    scene.export(scene.group, settle="keep")
    is_kept(scene)


def test_nobody_tells(scene: Scene, short: ZooKeeperSettings, tmp_path: Path) -> None:
    """No broker answers."""
    rolled_back(scene, "planned")
    silent = KafkaSettings("127.0.0.1:1", scene.kafka.properties)
    with Registry(short, 3.0) as registry:
        request = ExportRequest(scene.group, root=tmp_path / "out", settle="withdraw")
        with pytest.raises(UnreachableError, match="nobody tells whether the logs still have what its files hold"):
            run_export(request, registry, lambda: silent)
    assert works(scene) == 2


@pytest.mark.parametrize("to", ["planned", "gone"])
def test_with_a_file_gone_it_ends_as_one_that_was_decided(scene: Scene, to: str) -> None:
    """What is left is published, and may be adopted."""
    rolled_back(scene, to)
    next(scene.out.rglob("*.tmp")).unlink()
    retention(scene, 5)
    advice = (
        "--settle keep publishes those of its files that are left, then --settle forget and --adopt enter them; "
        "--skip-lost gives these messages up"
    )
    refused(scene, "5 messages of", advice, **EARLIEST)
    with pytest.raises(RefusedError, match=r"lacks 1 file that it has written .*; 1 is published"):
        scene.export(scene.group, settle="keep")
    scene.export(scene.group, settle="forget")
    scene.export(scene.group, adopt=True)
    assert len(messages_in(scene.out)) == 10


def test_where_another_has_the_messages_nothing_is_decided(scene: Scene) -> None:
    """A file of somebody else's: it is told of while the run may still be dropped."""
    rolled_back(scene, "gone")
    target = scene.out / f"topic={scene.topic}/partition=0/0-4.parquet"
    target.parent.mkdir(parents=True)
    target.write_bytes(next(scene.out.rglob("*.tmp")).read_bytes())
    with pytest.raises(RefusedError, match="already holds offsets 0 to "):
        scene.export(scene.group, settle="keep")
    assert [row.step for row in status(scene.registry, scene.group, scene.lake)] == ["written"]


@pytest.mark.parametrize("to", ["planned", "gone"])
@pytest.mark.parametrize("point", ["published 1 of 2", "published for good"])
def test_what_is_published_was_decided(scene: Scene, to: str, point: str) -> None:
    """It cannot be read again beside its own files: the manifest went, and then the export was refused by them."""
    rolled_back(scene, to, point)
    (row,) = status(scene.registry, scene.group, scene.lake)
    assert row.advice.startswith("it has published files, so it was decided: --settle keep publishes the rest and")
    for wish in (EARLIEST, {**EARLIEST, "skip_lost": True}):
        with pytest.raises(RefusedError, match=r"has published \d files?, and ZooKeeper does not know that it") as no:
            scene.told(**wish)
        enters = f"'zkgroup export --group {scene.group} --to {scene.out} --adopt' enters what is published"
        ways = "--settle keep publishes the rest and commits, --settle withdraw takes all of it back"
        assert no.value.remedy == ways + (f"; {enters}, or move it away" if to == "gone" else "")
    scene.export(scene.group, settle="keep")
    is_kept(scene)


@pytest.mark.parametrize("to", ["planned", "gone"])
def test_what_is_published_is_taken_back_if_the_logs_have_it(scene: Scene, to: str) -> None:
    rolled_back(scene, to, "published 1 of 2")
    drop_messages(scene.kafka, scene.first, 5)
    with pytest.raises(RefusedError, match=f"is not taken back: .*5 messages of {scene.first}"):
        scene.export(scene.group, settle="withdraw")
    scene.export(scene.group, settle="withdraw", skip_lost=True)
    assert (messages_in(scene.out), works(scene)) == ([], 0)
    scene.told(skip_lost=True, **EARLIEST)
    assert len(messages_in(scene.out)) == 15
    assert [row.problem for row in verify(scene.lake) if row.problem] == []


@pytest.mark.parametrize("damage", [lambda data: data[:500], lambda data: bytes(len(data))])
def test_a_file_that_was_damaged_is_one_that_is_gone(scene: Scene, damage: Callable[[bytes], bytes]) -> None:
    """The run was decided, and nothing named a way out."""
    rolled_back(scene, "gone")
    cut = next(scene.out.rglob("*.tmp"))
    cut.write_bytes(damage(cut.read_bytes()))
    with pytest.raises(RefusedError, match=r"lacks 1 file that it has written .*; 1 is published"):
        scene.export(scene.group, settle="keep")
    scene.export(scene.group, settle="withdraw")
    scene.told(**EARLIEST)
    assert (len(messages_in(scene.out)), works(scene)) == (20, 0)


def test_a_run_that_others_came_after_is_dropped_where_they_have_it_all(scene: Scene, tmp_path: Path) -> None:
    """It was forgotten while its folder was away, and the folders were put together again."""
    left_at(scene, "decided")
    scene.out.rename(tmp_path / "away")
    scene.export(scene.group, settle="forget", skip_lost=True)
    scene.told(**EARLIEST)
    scene.fill(scene.topic, 10, 2)
    scene.told()
    shutil.copytree(tmp_path / "away", scene.out, dirs_exist_ok=True)
    drop_messages(scene.kafka, scene.first, 5)
    with pytest.raises(RefusedError, match=r"is not decided, and run 0+2-.* that came after it") as no:
        scene.export(scene.group, settle="keep")
    (row,) = status(scene.registry, scene.group, scene.lake)
    for told in (str(no.value.remedy), row.advice):
        assert f"/{scene.group}/{row.run} elsewhere to have " in told
        assert f"below _zkgroup/{scene.group} of another destination --settle keep publishes it" in told
    assert f"and run {scene.lake.runs(scene.group)[-1]} came after it: the next export drops it" in row.advice
    scene.fill(scene.topic, 10, 2)
    scene.told()
    assert (len(messages_in(scene.out)), works(scene)) == (40, 0)
    assert [row.problem for row in verify(scene.lake) if row.problem] == []


@pytest.mark.parametrize("run", ["00000001-00000000", "00000001-ffffffff"])
def test_of_two_runs_of_one_number_the_one_planned_later_came_later(scene: Scene, tmp_path: Path, run: str) -> None:
    """Which of them that was hung on the random part of their names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("zkgroup.export.lake.lake.Lake.new_run", lambda *_, **__: run)
        rolled_back(scene, "gone")
    folder = scene.out / "_zkgroup" / scene.group / run
    folder.rename(tmp_path / run)
    scene.told(**EARLIEST)
    (other,) = scene.lake.runs(scene.group)
    assert other.startswith("00000001-")
    (tmp_path / run).rename(folder)
    assert (scene.lake.later(scene.group, run), scene.lake.later(scene.group, other)) == (other, None)
    with pytest.raises(RefusedError, match=f"is not decided, and run {other} that came after it is in"):
        scene.export(scene.group, settle="keep")
    scene.fill(scene.topic, 10, 2)
    scene.told()
    assert (len(messages_in(scene.out)), works(scene)) == (30, 0)
    assert [row.problem for row in verify(scene.lake) if row.problem] == []


def test_where_there_is_nothing_there_is_nothing_to_settle(scene: Scene) -> None:
    for how in ("keep", "withdraw"):
        with pytest.raises(NotFoundError, match=r"no export of group .* is unfinished"):
            scene.export(scene.group, settle=how)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("zkgroup.export.runs.steps.ExportRun.abandon", lambda run, **_: False)
        left_at(scene, "files written")
    with pytest.raises(RefusedError, match="is not decided: there are no files to keep"):
        scene.export(scene.group, settle="keep")
    scene.registry.write(SetData(znodes.export_state(scene.group), b"", -1))
    with pytest.raises(NotFoundError, match=r"no export of group .* is unfinished"):
        scene.export(scene.group, settle="keep")
    scene.told(**EARLIEST)
    assert (len(messages_in(scene.out)), works(scene)) == (20, 0)


def test_status_names_the_way(scene: Scene) -> None:
    rolled_back(scene, "planned")
    (row,) = status(scene.registry, scene.group, scene.lake)
    assert row.step == "planned"
    assert row.advice.startswith("run the same command again: it reads the planned ranges again")
    assert row.advice.endswith("; where the logs do not have it any more --settle keep publishes what it has written")
    remake(scene)
    (row,) = status(scene.registry, scene.group, scene.lake)
    assert row.advice.startswith(f"topic {scene.topic} was made again since: --settle keep publishes what it has")
    scene.registry.write(SetData(znodes.export_state(scene.group), b"", -1))
    (row,) = status(scene.registry, scene.group, scene.lake)
    assert (row.state, row.step) == ("unfinished", "written")
    assert row.advice.endswith("else --settle keep publishes what it has written")
    scene.export(scene.group, settle="withdraw", skip_lost=True)
    assert status(scene.registry, scene.group, scene.lake) == []


def test_a_refused_withdrawal_decides_nothing(scene: Scene) -> None:
    """A file holds something else, too: that was seen when the run was decided already."""
    stands(scene, 0)
    rolled_back(scene, "planned", "published 1 of 1", begin=None, layout=LayoutWish(by=()))
    scene.commit(scene.group, {scene.first: 10})
    with pytest.raises(RefusedError, match="it also holds messages of"):
        scene.export(scene.group, settle="withdraw", skip_lost=True)
    (row,) = status(scene.registry, scene.group, scene.lake)
    assert row.step == "planned"
    scene.export(scene.group, settle="keep")
    is_kept(scene)


def test_a_withdrawal_that_was_stopped_and_forgotten_by_zookeeper(scene: Scene) -> None:
    """--status advised to run the same command again, which was refused."""
    path = znodes.export_state(scene.group)
    rolled_back(scene, "planned", "published 1 of 2")
    (node,) = scene.registry.read([Get(path)])
    assert isinstance(node, Node)
    with pytest.raises(KeyboardInterrupt):
        scene.export(scene.group, settle="withdraw", passed=stop("settlement filed"))
    scene.registry.write(SetData(path, node.data, -1))
    (row,) = status(scene.registry, scene.group, scene.lake)
    assert row.advice.startswith("it has published files, so it was decided: --settle keep publishes the rest")
    scene.export(scene.group, settle="keep")
    is_kept(scene)


def test_status_tells_of_groups_that_are_not_in_zookeeper(scene: Scene) -> None:
    """Nothing of the group is there any more."""
    rolled_back(scene, "gone")
    scene.registry.write(Delete(znodes.export_state(scene.group)))
    (run,) = scene.lake.runs(scene.group)
    found = [row for row in status(scene.registry, None, scene.lake) if row.group == scene.group]
    assert [(row.run, row.step) for row in found] == [(run, "written")]


def test_with_a_file_published_and_one_gone_nothing_is_dropped(scene: Scene) -> None:
    """The plain command removed the manifest, and its own file then stopped every export."""
    rolled_back(scene, "planned", "published 1 of 2")
    (published,) = (file.name for file in scene.out.rglob("*.parquet"))
    for work in scene.out.rglob("*.tmp"):
        work.unlink()
    with pytest.raises(RefusedError, match="has published 1 file, and ZooKeeper does not know that it was dec") as no:
        scene.told(**EARLIEST)
    assert str(no.value.remedy).startswith("--settle withdraw takes back what is left of it; --settle forget, and then")
    assert [file.name for file in scene.out.rglob("*.parquet")] == [published]
    scene.export(scene.group, settle="withdraw")
    scene.told(**EARLIEST)
    assert (len(messages_in(scene.out)), works(scene)) == (20, 0)


def test_one_that_is_filed_has_ended(scene: Scene) -> None:
    """--status advised to read it again."""
    rolled_back(scene, "planned", "manifest filed")
    shutil.rmtree(next(path for path in (scene.out / "_zkgroup" / scene.group).glob("*/*") if path.is_dir()))
    (row,) = status(scene.registry, scene.group, scene.lake)
    assert row.advice.startswith(
        "it has ended before, and ZooKeeper's data is of an earlier time: --settle forget ends"
    )
    with pytest.raises(RefusedError, match="has ended before, and ZooKeeper's data is of an earlier time") as no:
        scene.export(scene.group, settle="keep")
    assert str(no.value.remedy).startswith("--settle forget ends it once more; then --on-disagreement lake goes on")
    scene.export(scene.group, settle="forget")
    scene.told(policies=Policies(disagreement="lake"), **EARLIEST)
    assert len(messages_in(scene.out)) == 20
