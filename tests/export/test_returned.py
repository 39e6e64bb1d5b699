"""A lost file that a backfill has written again, and that comes back behind the decision: nothing is there twice."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from begun import EARLIEST
from exports import messages_in
from resets import drop_messages
from scenes import Scene, left_at
from whole_attempts import rolled_back, works

from zkgroup.errors import RefusedError
from zkgroup.export.checks.history import status
from zkgroup.export.checks.verify import verify
from zkgroup.export.model.layout import LayoutWish

RETURNED = "was missing, and is there again"
#: The names of its files tell their runs: the new one has another.
ANY: dict[str, Any] = {"layout": LayoutWish(by=())}


def lost(scene: Scene, tmp_path: Path) -> tuple[Path, Path]:
    """All was exported, and is gone; where it was, and where it is."""
    scene.told(**EARLIEST, **ANY)
    (file,) = scene.out.rglob("topic=*/*.parquet")
    aside = tmp_path / "aside.parquet"
    file.rename(aside)
    return file, aside


def is_there_once(scene: Scene, count: int = 20) -> None:
    assert (len(messages_in(scene.out)), works(scene)) == (count, 0)
    assert [row.problem for row in verify(scene.lake) if row.problem] == []
    assert status(scene.registry, scene.group, scene.lake) == []


@pytest.mark.parametrize("point", ["decided", "published 1 of 1"])
def test_behind_the_decision(scene: Scene, point: str, tmp_path: Path) -> None:
    """Whoever went on published beside it, and ended with 0; taken back, nothing is lost, whatever the logs have."""
    file, aside = lost(scene, tmp_path)
    left_at(scene, point, backfill=True)
    aside.rename(file)
    for wish in ({"settle": "keep"}, {"backfill": True, **EARLIEST}):
        with pytest.raises(RefusedError, match=f"cannot be published: .*{re.escape(file.name)} {RETURNED}") as no:
            scene.export(scene.group, *(() if "settle" in wish else (scene.topic,)), **wish)
        assert str(no.value.remedy).startswith("--settle withdraw takes back what this run has published")
    drop_messages(scene.kafka, scene.first, 5)
    scene.export(scene.group, settle="withdraw")
    is_there_once(scene)


@pytest.mark.parametrize("to", ["planned", "gone"])
def test_before_it(scene: Scene, to: str, tmp_path: Path) -> None:
    """It is no last copy, and cannot be decided late."""
    file, aside = lost(scene, tmp_path)
    rolled_back(scene, to, "manifest written", backfill=True, **EARLIEST)
    aside.rename(file)
    drop_messages(scene.kafka, scene.first, 5)
    with pytest.raises(RefusedError, match=RETURNED):
        scene.export(scene.group, settle="keep")
    if to == "planned":
        scene.export(scene.group, settle="withdraw")
    scene.fill(scene.topic, 10, 2)
    scene.told()
    is_there_once(scene, 30)


def test_a_copy_that_lacks_some_is_none(scene: Scene, tmp_path: Path) -> None:
    """What comes back holds less than what was written anew: its rows are counted, not its range."""
    drop_messages(scene.kafka, scene.first, 2)
    file, aside = lost(scene, tmp_path)
    left_at(scene, "decided", backfill=True)
    table = pq.read_table(aside)
    pq.write_table(table.filter([row["offset"] != 3 for row in table.to_pylist()]), file)
    drop_messages(scene.kafka, scene.first, 5)
    with pytest.raises(RefusedError, match=f"no log has any more .1 message of {scene.first}: its log starts at 5"):
        scene.export(scene.group, settle="withdraw")


def test_one_that_comes_back_after_all_is_told_of_as_that(scene: Scene, tmp_path: Path) -> None:
    """It was called a file of no manifest, and --adopt was advised, which enters nothing of it."""
    file, aside = lost(scene, tmp_path)
    scene.told(backfill=True, **EARLIEST)
    aside.rename(file)
    found = [row for row in verify(scene.lake) if row.problem]
    again = [row for row in found if "has written again what it held, and it is there again" in str(row.problem)]
    assert again
    assert {row.mend for row in again} == {"move"}
    assert "adopt" not in {row.mend for row in found}
    file.rename(aside)
    is_there_once(scene)
