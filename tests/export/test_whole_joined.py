"""As ``test_whole_attempts``, of runs beside members: their decision is their commit, and what other members have read
is in no file. Real servers."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from exports import joining, messages_in
from resets import drop_messages
from scenes import Scene, left_at, retention, stands
from whole_attempts import rolled_back, works

from zkgroup.errors import RefusedError
from zkgroup.export.checks.history import status
from zkgroup.export.checks.verify import verify
from zkgroup.export.model.words import Policies
from zkgroup.protocol.names import TopicPartition


def joined(scene: Scene) -> dict[str, Any]:
    return {"begin": None, "join": joining(scene.group)}


def is_whole(scene: Scene, count: int = 20) -> None:
    assert (len(messages_in(scene.out)), works(scene)) == (count, 0)
    assert [row.problem for row in verify(scene.lake) if row.problem] == []
    assert status(scene.registry, scene.group, scene.lake) == []


def test_beside_members_what_they_have_read_since_is_theirs(scene: Scene) -> None:
    """It was never decided, cron was refused each minute, and ``keep`` published what they had read."""
    stands(scene, 0)
    rolled_back(scene, "planned", "manifest written", **joined(scene))
    stands(scene, 8)
    scene.fill(scene.topic, 10, 2)
    retention(scene, 8)
    with pytest.raises(RefusedError, match=f"members have read on since .*: {scene.first} stands at 8, ") as no:
        scene.export(scene.group, settle="keep")
    assert str(no.value.remedy).startswith("--settle withdraw drops the run")
    for _ in range(3):  # the first one ends the run, as ever
        with contextlib.suppress(RefusedError):
            scene.told(**joined(scene))
    assert len(messages_in(scene.out)) == 14


def test_beside_members_what_nobody_has_read_is_asked_about(scene: Scene) -> None:
    stands(scene, 0)
    rolled_back(scene, "planned", "manifest written", **joined(scene))
    drop_messages(scene.kafka, scene.first, 5)
    points: list[str] = []
    with pytest.raises(RefusedError, match=f"holds what no log has any more .5 messages of {scene.first}"):
        scene.told(passed=points.append, **joined(scene))
    assert "joined" not in points
    scene.export(scene.group, settle="keep")
    is_whole(scene)


@pytest.mark.parametrize("lost", [False, True])
def test_its_own_commit_is_not_what_members_have_read(scene: Scene, lost: bool) -> None:
    """The pointer is gone, as a reset put the offsets back without it: the files went without a word."""
    stands(scene, 0)
    rolled_back(scene, "gone", **joined(scene))
    scene.fill(scene.topic, 10, 2)
    if lost:
        retention(scene, 10)
    (row,) = status(scene.registry, scene.group, scene.lake)
    assert row.advice.startswith("it may have been decided, as the group stands where it ends: --settle keep publishes")
    for wish in ({"settle": "withdraw"}, {"begin": None}, joined(scene)):
        with pytest.raises(RefusedError, match=r"may have been decided, as group .* stands where it ends, and") as no:
            scene.export(scene.group, *(() if "settle" in wish else (scene.topic,)), **wish)
        assert str(no.value.remedy).startswith("--settle keep publishes what it has written; if other members have")
    scene.export(scene.group, settle="keep")
    is_whole(scene)
    scene.told()
    is_whole(scene, 30)


def test_who_gives_it_up_is_told(scene: Scene) -> None:
    stands(scene, 0)
    rolled_back(scene, "gone", **joined(scene))
    lines: list[str] = []
    scene.export(scene.group, settle="withdraw", skip_lost=True, warn=lines.append)
    assert lines[-1].endswith("stands where it ends: what it has written is given up")
    assert works(scene) == 0


def test_forgotten_beside_members(scene: Scene, tmp_path: Path) -> None:
    """Its folder was away; the next export noted the messages as others'."""
    stands(scene, 0)
    rolled_back(scene, "gone", **joined(scene))
    (scene.out / "_zkgroup").rename(tmp_path / "away")
    scene.fill(scene.topic, 10, 2)
    (tmp_path / "away").rename(scene.out / "_zkgroup")
    with pytest.raises(RefusedError, match="may have been decided"):
        scene.told(**joined(scene))
    scene.export(scene.group, settle="keep")
    is_whole(scene)


@pytest.mark.parametrize("to", ["planned", "gone"])
def test_published_it_was_committed(scene: Scene, to: str) -> None:
    """Both of its ways out said something else: ``keep`` that members had read it, ``withdraw`` removed a file."""
    stands(scene, 0)
    rolled_back(scene, to, "published 1 of 2", **joined(scene))
    retention(scene, 10)
    with pytest.raises(RefusedError, match="has published 1 file, and ZooKeeper does not know") as no:
        scene.told(**joined(scene))
    assert no.value.remedy == "--settle keep publishes what it has written; its offsets are committed"
    with pytest.raises(RefusedError, match="are committed: without its files their messages would be lost"):
        scene.export(scene.group, settle="withdraw")
    scene.export(scene.group, settle="keep")
    is_whole(scene)


def test_what_members_have_read_in_part_is_kept_with_the_rest_if_no_log_has_that(scene: Scene) -> None:
    """``keep`` and ``withdraw`` advised each other."""
    stands(scene, 0)
    rolled_back(scene, "planned", "manifest written", **joined(scene))
    stands(scene, 4)
    (row,) = status(scene.registry, scene.group, scene.lake)
    assert row.advice.startswith("run the same command again: it reads the planned ranges again")
    with pytest.raises(RefusedError, match="members have read on since"):
        scene.export(scene.group, settle="keep")
    retention(scene, 10)
    with pytest.raises(RefusedError, match=f"no log has any more .6 messages of {scene.first}: .*; 6 messages of"):
        scene.export(scene.group, settle="withdraw")
    lines: list[str] = []
    scene.export(scene.group, settle="keep", warn=lines.append)
    assert any(f"{scene.first} stands at 4, {scene.topic}-1 stands at 4; what they have read" in one for one in lines)
    assert len(messages_in(scene.out)) == 20
    with pytest.raises(RefusedError, match="at 4"):
        scene.told()
    scene.told(policies=Policies(disagreement="lake"))
    is_whole(scene)


def test_a_refused_withdrawal_changes_nothing(scene: Scene) -> None:
    """It decided the run first, and what had been refused before was not any more."""
    stands(scene, 0)
    rolled_back(scene, "gone", "published 1 of 2", **joined(scene))
    stands(scene, 4)
    retention(scene, 10)
    before = status(scene.registry, scene.group, scene.lake)
    with pytest.raises(RefusedError, match="is not taken back: its files hold what no log has any more"):
        scene.export(scene.group, settle="withdraw")
    assert status(scene.registry, scene.group, scene.lake) == before
    with contextlib.suppress(RefusedError):
        scene.told(**joined(scene))
    scene.export(scene.group, settle="keep")
    assert len(messages_in(scene.out)) == 20


@pytest.mark.parametrize("offset", [0, 4])
def test_its_own_commit_where_a_partition_was_moved_since(scene: Scene, offset: int) -> None:
    """It had to stand where the run ends in all partitions: the other one's messages went as if they had been read."""
    stands(scene, 0)
    rolled_back(scene, "gone", **joined(scene))
    scene.commit(scene.group, {TopicPartition(scene.topic, 1): offset})
    drop_messages(scene.kafka, scene.first, 10)
    for wish in ({"settle": "withdraw"}, joined(scene)):
        with pytest.raises(RefusedError, match="may have been decided"):
            scene.export(scene.group, *(() if "settle" in wish else (scene.topic,)), **wish)
    scene.export(scene.group, settle="keep")
    assert len(messages_in(scene.out)) == 20


def test_further_on_than_the_run_it_is_asked_about(scene: Scene) -> None:
    """The pointer was put back, or it was killed just before its decision and members read on: nobody can tell."""
    stands(scene, 0)
    rolled_back(scene, "planned", **joined(scene))
    (row,) = status(scene.registry, scene.group, scene.lake)
    assert row.advice.startswith("it may have been decided")
    stands(scene, 12)
    scene.fill(scene.topic, 10, 2)
    with pytest.raises(RefusedError, match="may have been decided"):
        scene.told(**joined(scene))
    with contextlib.suppress(RefusedError):
        scene.told(skip_lost=True, **joined(scene))
    scene.told(**joined(scene))
    assert len(messages_in(scene.out)) == 6


def test_what_the_lake_has_meanwhile_is_not_asked_about(scene: Scene, tmp_path: Path) -> None:
    """Its folder was away, it was forgotten, and a backfill exported its messages once more."""
    stands(scene, 0)
    left_at(scene, "decided", **joined(scene))
    (run,) = scene.lake.runs(scene.group)
    folder = scene.out / "_zkgroup" / scene.group / run
    folder.rename(tmp_path / "away")
    scene.export(scene.group, settle="forget", skip_lost=True)
    scene.told(backfill=True, begin="earliest")
    folder.parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "away").rename(folder.parent / run)
    scene.fill(scene.topic, 10, 2)
    scene.told(**joined(scene))
    is_whole(scene, 30)
