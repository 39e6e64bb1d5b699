"""As ``test_whole_attempts``, with the document damaged that tells what a run has written. Real servers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from begun import EARLIEST
from exports import messages_in
from scenes import Scene, retention
from whole_attempts import GOES_ON, is_kept, rolled_back, works

from zkgroup.errors import RefusedError
from zkgroup.export.checks.history import status

PLAN, MANIFEST = "plan.json", "manifest.json"


def damaged(scene: Scene, document: str) -> tuple[Path, bytes]:
    (path,) = scene.out.rglob(document)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    return path, whole


@pytest.mark.parametrize(("document", "to"), [(PLAN, "gone"), (MANIFEST, "gone"), (MANIFEST, "planned")])
def test_its_files_are_not_dropped_unsaid(scene: Scene, document: str, to: str) -> None:
    """The run was one that had written nothing, and its files went with the next export that passed what is lost."""
    rolled_back(scene, to)
    retention(scene, 5)
    path, whole = damaged(scene, document)
    wishes = [EARLIEST, {**EARLIEST, "policies": GOES_ON}]
    if to == "gone":
        wishes += [{**EARLIEST, "backfill": True}, {"adopt": True}]
    if document == MANIFEST:
        wishes += [{"settle": "withdraw"}]
    for wish in wishes:
        with pytest.raises(RefusedError, match=f"not published, and {path} cannot be read: it is no JSON") as no:
            scene.export(scene.group, *(() if {"settle", "adopt"} & wish.keys() else (scene.topic,)), **wish)
        assert str(no.value.remedy).startswith("restore that document from a copy")
        assert str(no.value.remedy).endswith("; --skip-lost gives up what only its files hold")
    if document == MANIFEST:
        with pytest.raises(RefusedError, match=f"has written cannot be told: {path} cannot be read"):
            scene.export(scene.group, settle="keep")
    (row,) = status(scene.registry, scene.group, scene.lake)
    assert f"and {path} cannot be read" in row.advice
    assert works(scene) == 2
    path.write_bytes(whole)
    scene.export(scene.group, settle="keep")
    is_kept(scene)


def test_what_the_logs_have_is_read_again(scene: Scene) -> None:
    """As the plan tells, which is whole."""
    rolled_back(scene, "gone")
    damaged(scene, MANIFEST)
    scene.told(**EARLIEST)
    assert (len(messages_in(scene.out)), works(scene)) == (20, 0)


@pytest.mark.parametrize("document", [PLAN, MANIFEST])
def test_who_gives_them_up_is_told_so(scene: Scene, document: str) -> None:
    rolled_back(scene, "gone")
    retention(scene, 5)
    path, _ = damaged(scene, document)
    lines, _ = scene.told(skip_lost=True, **EARLIEST)
    (line,) = [line for line in lines if str(path) in line]
    assert line.endswith("what only these files hold is given up")
    assert (len(messages_in(scene.out)), works(scene)) == (10, 0)


def test_another_group_does_not_pass_them_over(scene: Scene, unique: Callable[[str], str]) -> None:
    """Beside it they could not be published any more."""
    rolled_back(scene, "gone")
    path, whole = damaged(scene, MANIFEST)
    other = unique("other")
    retention(scene, 5)
    with pytest.raises(RefusedError, match=f"group {scene.group} has files that are not published, and {path}") as no:
        scene.export(other, scene.topic, **EARLIEST)
    assert str(no.value.remedy).endswith("; --skip-lost goes on without it")
    path.write_bytes(whole)
    scene.export(scene.group, settle="keep")
    is_kept(scene)
