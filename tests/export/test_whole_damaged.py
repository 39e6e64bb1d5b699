"""As ``test_whole_attempts``, with the document damaged that tells what a run has written. Real servers."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import pytest
from begun import EARLIEST
from exports import messages_in
from scenes import Scene, left_at, retention
from whole_attempts import GOES_ON, is_kept, rolled_back, works

from zkgroup.errors import RefusedError, ZkgroupError
from zkgroup.export.checks.history import status
from zkgroup.export.checks.verify import verify
from zkgroup.export.model.words import Policies
from zkgroup.export.runs.refusals import NOT_AS_DECIDED

PLAN, MANIFEST = "plan.json", "manifest.json"


def damaged(scene: Scene, documents: Collection[str]) -> dict[Path, bytes]:
    """What they were."""
    found = {path: path.read_bytes() for document in documents for path in scene.out.rglob(document)}
    for path, whole in found.items():
        path.write_bytes(whole[: len(whole) // 2])
    return found


@pytest.mark.parametrize(
    ("documents", "to"), [([PLAN, MANIFEST], "gone"), ([MANIFEST], "gone"), ([MANIFEST], "planned")]
)
def test_its_files_are_not_dropped_unsaid(scene: Scene, documents: list[str], to: str) -> None:
    """The run was one that had written nothing, and its files went with the next export that passed what is lost."""
    rolled_back(scene, to)
    retention(scene, 5)
    whole = damaged(scene, documents)
    path = next(iter(whole))
    wishes = [EARLIEST, {**EARLIEST, "policies": GOES_ON}]
    if to == "gone":
        wishes += [{**EARLIEST, "backfill": True}, {"adopt": True}]
    if PLAN not in documents:
        wishes += [{"settle": "withdraw"}]
    for wish in wishes:
        with pytest.raises(RefusedError, match=f"not published, and {path} cannot be read: it is no JSON") as no:
            scene.export(scene.group, *(() if {"settle", "adopt"} & wish.keys() else (scene.topic,)), **wish)
        assert f"{scene.first} 0 to 4: its log starts at 5" in no.value.message
        assert str(no.value.remedy).startswith("restore it from a copy")
        assert "; --skip-lost gives up what only " in str(no.value.remedy)
    if PLAN not in documents:
        with pytest.raises(RefusedError, match=f"has written cannot be told: {path} cannot be read"):
            scene.export(scene.group, settle="keep")
    (row,) = status(scene.registry, scene.group, scene.lake)
    assert f"and {path} cannot be read" in row.advice
    assert works(scene) == 2
    for path, data in whole.items():
        path.write_bytes(data)
    scene.export(scene.group, settle="keep")
    is_kept(scene)


def test_what_the_logs_have_is_read_again(scene: Scene) -> None:
    """As the plan tells, which is whole."""
    rolled_back(scene, "gone")
    damaged(scene, [MANIFEST])
    scene.told(**EARLIEST)
    assert (len(messages_in(scene.out)), works(scene)) == (20, 0)


@pytest.mark.parametrize("documents", [[PLAN, MANIFEST], [MANIFEST]])
def test_who_gives_them_up_is_told_so(scene: Scene, documents: list[str]) -> None:
    rolled_back(scene, "gone")
    retention(scene, 5)
    path = next(iter(damaged(scene, documents)))
    lines, _ = scene.told(skip_lost=True, **EARLIEST)
    (line,) = [line for line in lines if str(path) in line]
    assert line.endswith("what only these files hold is given up")
    assert f"{scene.first} 0 to " in line
    assert (len(messages_in(scene.out)), works(scene)) == (10, 0)


def test_another_group_does_not_pass_them_over(scene: Scene, unique: Callable[[str], str]) -> None:
    """Beside it they could not be published any more."""
    rolled_back(scene, "gone")
    ((path, whole),) = damaged(scene, [MANIFEST]).items()
    other = unique("other")
    retention(scene, 5)
    with pytest.raises(RefusedError, match=f"group {scene.group} has files that are not published, and {path}") as no:
        scene.export(other, scene.topic, **EARLIEST)
    assert str(no.value.remedy).endswith("; --skip-lost goes on without it")
    path.write_bytes(whole)
    scene.export(scene.group, settle="keep")
    is_kept(scene)


def spoil(path: Path, how: str) -> None:
    if how == "gone":
        path.unlink()
    elif how == "changed":
        path.write_bytes(path.read_bytes() + b"\n")
    else:
        path.write_bytes(path.read_bytes()[:100])


@pytest.mark.parametrize("how", ["cut", "gone", "changed"])
@pytest.mark.parametrize("point", ["decided", "published 1 of 2", "manifest filed"])
def test_a_decided_run_needs_no_plan(scene: Scene, how: str, point: str) -> None:
    """Its manifest tells what is left to be done; forgotten with --skip-lost, its messages were named nowhere."""
    left_at(scene, point)
    retention(scene, 5)
    spoil(next(scene.out.rglob(PLAN)), how)
    scene.told()
    assert (len(messages_in(scene.out)), works(scene)) == (20, 0)
    assert [row.problem for row in verify(scene.lake) if row.problem] == []
    assert status(scene.registry, scene.group, scene.lake) == []


@pytest.mark.parametrize("to", ["planned", "gone"])
@pytest.mark.parametrize("how", ["cut", "gone", "changed"])
def test_nor_does_one_that_is_decided_late(scene: Scene, to: str, how: str) -> None:
    rolled_back(scene, to)
    retention(scene, 5)
    spoil(next(scene.out.rglob(PLAN)), how)
    with pytest.raises(RefusedError, match=r"is not decided, and holds what no log has any more .5 messages of "):
        scene.told(**EARLIEST)
    scene.export(scene.group, settle="keep")
    is_kept(scene)


@pytest.mark.parametrize("how", ["cut", "gone"])
def test_without_its_manifest_it_is_forgotten_where_the_logs_have_it(scene: Scene, how: str) -> None:
    """It was advised to be moved away and adopted, which was refused; --skip-lost was the only way."""
    left_at(scene, "decided")
    spoil(next(scene.out.rglob(MANIFEST)), how)
    for wish in ({"settle": "keep"}, {"settle": "withdraw"}, {}):
        with pytest.raises(RefusedError, match=f"is not in {scene.out}/.* as it was decided") as no:
            scene.export(scene.group, **wish)
        assert no.value.remedy == NOT_AS_DECIDED
    (row,) = status(scene.registry, scene.group, scene.lake)
    assert row.advice.endswith(f": {NOT_AS_DECIDED}")
    scene.export(scene.group, settle="forget")
    scene.told(**EARLIEST)
    assert (len(messages_in(scene.out)), works(scene)) == (20, 0)


def test_what_is_lost_with_its_manifest_is_named(scene: Scene) -> None:
    left_at(scene, "decided")
    retention(scene, 5)
    spoil(next(scene.out.rglob(MANIFEST)), "cut")
    said = f"{scene.first} 0 to 4: its log starts at 5; {scene.topic}-1 0 to 4: its log starts at 5"
    with pytest.raises(RefusedError, match=said) as no:
        scene.export(scene.group, settle="forget")
    assert str(no.value.remedy).endswith("; --settle forget --skip-lost gives up what only its files hold")
    lines: list[str] = []
    scene.export(scene.group, settle="forget", skip_lost=True, warn=lines.append)
    assert said in lines[0]
    with pytest.raises(RefusedError, match="was to begin at 0"):
        scene.told(**EARLIEST)
    scene.told(skip_lost=True, **EARLIEST)
    assert scene.skipped() != []
    assert [row.problem for row in verify(scene.lake) if row.problem] == []


def test_what_it_has_published_without_a_manifest_is_adopted(scene: Scene) -> None:
    left_at(scene, "published 1 of 2")
    spoil(next(scene.out.rglob(MANIFEST)), "cut")
    lines: list[str] = []
    scene.export(scene.group, settle="forget", warn=lines.append)
    assert "1 file of it is published" in lines[0]
    scene.export(scene.group, adopt=True)
    with pytest.raises(RefusedError, match="--on-disagreement lake goes on where the export ended"):
        scene.told(**EARLIEST)
    scene.told(policies=Policies(disagreement="lake"), **EARLIEST)
    assert (len(messages_in(scene.out)), works(scene)) == (20, 0)
    assert [row.problem for row in verify(scene.lake) if row.problem] == []


def test_a_plan_without_a_manifest_is_forgotten(scene: Scene) -> None:
    """Nothing of the run counts; what was advised was refused, but for that."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("zkgroup.export.runs.steps.ExportRun.abandon", lambda run, **_: False)  # as SIGKILL does
        left_at(scene, "files written")
    path = next(scene.out.rglob(PLAN))
    spoil(path, "cut")
    for wish in ({"settle": "keep"}, {"settle": "withdraw"}, {}):
        with pytest.raises(ZkgroupError, match=f"{path} cannot be read") as no:
            scene.export(scene.group, **wish)
        assert str(no.value.remedy).endswith("or end the run with --settle forget")
    (row,) = status(scene.registry, scene.group, scene.lake)
    assert f"{path} cannot be read" in row.advice
    assert "--settle forget" in row.advice
    lines: list[str] = []
    scene.export(scene.group, settle="forget", warn=lines.append)
    assert "where it was to begin may be told nowhere" in lines[0]
    scene.told(**EARLIEST)
    assert (len(messages_in(scene.out)), works(scene)) == (20, 0)


def test_a_plan_that_is_gone_beside_a_manifest_that_cannot_be_read(scene: Scene) -> None:
    """Its files went, with exit 0."""
    rolled_back(scene, "gone")
    retention(scene, 5)
    spoil(next(scene.out.rglob(PLAN)), "gone")
    spoil(next(scene.out.rglob(MANIFEST)), "cut")
    with pytest.raises(RefusedError, match=f"its plan is gone, .*{scene.first} 0 to 4: its log starts at 5"):
        scene.told(**EARLIEST)
    assert works(scene) == 2


def test_what_is_wrong_with_an_earlier_run_says_nothing_of_this_one(scene: Scene) -> None:
    """With --skip-lost its files were given up, though its own documents are whole."""
    scene.told(**EARLIEST)
    scene.fill(scene.topic, 10, 2)
    earlier = next(scene.out.rglob(MANIFEST))
    whole = earlier.read_bytes()
    rolled_back(scene, "gone")
    retention(scene, 12)
    spoil(earlier, "cut")
    for wish in ({"settle": "keep"}, {"settle": "withdraw"}, {"skip_lost": True, **EARLIEST}):
        with pytest.raises(ZkgroupError, match=f"^{earlier} cannot be read"):
            scene.export(scene.group, *(() if "settle" in wish else (scene.topic,)), **wish)
    assert works(scene) == 2
    earlier.write_bytes(whole)
    scene.export(scene.group, settle="keep")
    is_kept(scene, 30)


def test_a_manifest_of_another_run_tells_nothing_of_this_one(scene: Scene, unique: Callable[[str], str]) -> None:
    """It counted as a run that had written nothing: --settle withdraw took its files without a word."""
    rolled_back(scene, "planned")
    retention(scene, 5)
    path = next(scene.out.rglob(MANIFEST))
    whole = path.read_text()
    path.write_text(whole.replace(scene.group, "another"))
    for wish in (EARLIEST, {"settle": "withdraw"}):
        with pytest.raises(
            RefusedError, match=f"not published, and {path} is of run .* of group another; the logs may"
        ):
            scene.export(scene.group, *(() if "settle" in wish else (scene.topic,)), **wish)
    with pytest.raises(RefusedError, match=f"has written cannot be told: {path} is of run"):
        scene.export(scene.group, settle="keep")
    path.write_text(whole)
    scene.export(scene.group, settle="keep")
    is_kept(scene)


def test_a_plan_that_contradicts_itself_cannot_be_read(scene: Scene) -> None:
    """A topic of its partitions was not among its topics: every export ended with a KeyError."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("zkgroup.export.runs.steps.ExportRun.abandon", lambda run, **_: False)  # as SIGKILL does
        left_at(scene, "files written")
    path = next(scene.out.rglob(PLAN))
    path.write_text(path.read_text().replace(f'"{scene.topic}": {{', '"other": {'))
    with pytest.raises(ZkgroupError, match=f"{path} cannot be read: .*{scene.topic} is not among its topics"):
        scene.told(**EARLIEST)


def test_how_a_run_was_ended_that_cannot_be_read(scene: Scene) -> None:
    """It was advised to be moved away: then the run counts as one that was kept, and its messages were passed over."""
    left_at(scene, "published 1 of 2")
    scene.export(scene.group, settle="withdraw")
    path = next(scene.out.rglob("settled.json"))
    spoil(path, "cut")
    (problem,) = [row for row in verify(scene.lake) if row.problem and row.problem.startswith(str(path))]
    assert str(problem.problem).endswith(f"; without a copy move {path.parent} away")
    with pytest.raises(ZkgroupError, match=f"{path} cannot be read") as no:
        scene.told(**EARLIEST)
    assert "; or move its run's folder away, and export --adopt enters what is there of its files" in no.value.remedy
    path.parent.rename(scene.out.parent / "away")  # as it says
    scene.told(**EARLIEST)
    assert (len(messages_in(scene.out)), works(scene)) == (20, 0)
    assert [row.problem for row in verify(scene.lake) if row.problem] == []
