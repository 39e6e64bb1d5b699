"""``--settle forget``: it ends a run whose lake is lost, and drops nothing that is there unsaid. Real servers."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from begun import EARLIEST
from exports import joining, messages_in
from resets import drop_messages
from scenes import Scene, left_at, remake, stop

from zkgroup.errors import RefusedError
from zkgroup.export.checks.history import status
from zkgroup.export.checks.verify import verify
from zkgroup.export.model.destination import parse_destination
from zkgroup.export.model.words import Policies
from zkgroup.protocol.names import TopicPartition


def given_up(scene: Scene, **wish: Any) -> list[str]:
    """It is forgotten with ``--skip-lost``; what that says."""
    lines: list[str] = []
    assert scene.export(scene.group, settle="forget", skip_lost=True, warn=lines.append, **wish) == []
    assert status(scene.registry, scene.group) == []
    return lines


@pytest.mark.parametrize("gone", [remake, lambda scene: drop_messages(scene.kafka, scene.first, 5)])
def test_what_is_not_published_is_not_forgotten_without_a_word(scene: Scene, gone: Callable[[Scene], None]) -> None:
    """Its files would go with its folder, when the next export tidies up."""
    left_at(scene, "decided")
    gone(scene)
    with pytest.raises(RefusedError, match="is not forgotten: its files hold what no log has any more") as no:
        scene.export(scene.group, settle="forget")
    assert str(no.value.remedy).endswith("; --settle forget --skip-lost gives these messages up")
    lines: list[str] = []
    scene.export(scene.group, settle="forget", skip_lost=True, warn=lines.append)
    assert "messages are given up that no log has any more: " in lines[0]
    assert status(scene.registry, scene.group, scene.lake) == []


def test_what_the_logs_have_is_forgotten_and_read_again(scene: Scene) -> None:
    """As is what is published: that stays, and is told of."""
    left_at(scene, "decided")
    scene.export(scene.group, settle="forget")
    left_at(scene)
    drop_messages(scene.kafka, scene.first, 5)
    lines: list[str] = []
    scene.export(scene.group, settle="forget", warn=lines.append)
    assert len(lines) == 1
    assert "2 files of it are published" in lines[0]
    assert len(messages_in(scene.out)) == 20


def test_in_another_folder_than_its_own_nothing_is_forgotten(scene: Scene, tmp_path: Path) -> None:
    """A mistyped --to: the run's folder stood whole, and was tidied up by the next export."""
    left_at(scene, "decided")
    drop_messages(scene.kafka, scene.first, 5)
    with pytest.raises(RefusedError, match=f"is in {scene.out}, and not in {tmp_path}/other") as no:
        scene.export(scene.group, settle="forget", root=tmp_path / "other")
    assert f"--settle forget with --to {scene.out} looks at what is there" in str(no.value.remedy)
    scene.out.rename(tmp_path / "mounted")  # by another name it is the same
    with pytest.raises(RefusedError, match="is not forgotten: its files hold what no log has any more"):
        scene.export(scene.group, settle="forget", root=tmp_path / "mounted")
    (line,) = given_up(scene, root=tmp_path / "other")
    assert line.endswith(f"is forgotten, and {tmp_path}/other has nothing of it")


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize("lost", [False, True])
def test_files_that_no_document_tells_of_are_not_forgotten(scene: Scene, damaged: bool, lost: bool) -> None:
    """They went with the next export, and nothing was said. What they hold their footers tell."""
    left_at(scene, "decided")
    for document in ("plan.json", "manifest.json"):
        (path,) = scene.out.rglob(document)
        if damaged:
            path.write_text("{")
        else:
            path.unlink()
    if lost:
        drop_messages(scene.kafka, scene.first, 5)
        said = rf"are not published.*the logs may not have all of it \({scene.first} 0 to 4: its log starts at 5\)"
        with pytest.raises(RefusedError, match=said):
            scene.export(scene.group, settle="forget")
        (line,) = given_up(scene)
        assert re.search(said, line)
    else:
        scene.export(scene.group, settle="forget")
    scene.told(**EARLIEST)
    assert len(messages_in(scene.out)) == (15 if lost else 20)


def test_a_destination_that_nobody_can_write_to_is_what_it_is_for(scene: Scene, tmp_path: Path) -> None:
    """A store that does not answer, or something else in the folder's place, was refused before anything was looked
    at, with --skip-lost, too: another --to was the only way out."""
    left_at(scene, "decided")
    silent = parse_destination("s3://lake/x?endpoint_override=127.0.0.1:1&scheme=http&region=us-east-1")
    with pytest.raises(RefusedError, match=r"s3://lake/x does not tell what it holds of it: .* does not answer") as no:
        scene.export(scene.group, settle="forget", root=silent)
    assert str(no.value.remedy).endswith("; --settle forget --skip-lost forgets it all the same")
    (line,) = given_up(scene, root=silent)
    assert "is forgotten, and nobody knows what s3://lake/x holds of it: " in line

    scene.out.rename(tmp_path / "away")
    left_at(scene, "decided")
    shutil.rmtree(scene.out)
    scene.out.touch()
    lines: list[str] = []
    scene.export(scene.group, settle="forget", warn=lines.append)
    assert status(scene.registry, scene.group) == []
    assert lines[0].endswith(f"is forgotten, and {scene.out} has nothing of it")


def test_where_nothing_is_left_it_is_forgotten(scene: Scene) -> None:
    """What it is for; also where the folder cannot be looked into, if that is said."""
    left_at(scene)
    shutil.rmtree(scene.out)
    scene.export(scene.group, settle="forget")
    assert status(scene.registry, scene.group) == []


def test_a_file_that_is_gone_beside_a_last_copy_is_no_circle(scene: Scene) -> None:
    """``withdraw`` advised to forget, ``forget`` to forget, ``keep`` to withdraw: ``keep`` publishes what is left."""
    left_at(scene, "decided")
    lost = next(path for path in scene.out.rglob("*.tmp"))
    lost.unlink()
    for number in range(2):
        drop_messages(scene.kafka, TopicPartition(scene.topic, number), 5)
    for how in ("withdraw", "forget"):
        with pytest.raises(RefusedError, match=r"its files hold what no log has any more .5 messages") as no:
            scene.export(scene.group, settle=how)
        assert str(no.value.remedy).startswith(
            "--settle keep publishes those of its files that are left, then --settle"
        )
    with pytest.raises(RefusedError, match=r"lacks 1 file .*; 1 is published") as no:
        scene.export(scene.group, settle="keep")
    assert str(no.value.remedy).endswith("; --settle forget, and then --adopt, enters what is left")
    scene.export(scene.group, settle="forget")
    with pytest.raises(RefusedError, match="has published 1 file, and ZooKeeper does not know that it was dec") as no:
        scene.told(**EARLIEST)
    assert str(no.value.remedy).endswith("--adopt' enters what is left")
    scene.export(scene.group, adopt=True)
    assert len(messages_in(scene.out)) == 10
    scene.told(policies=Policies(disagreement="lake", no_offset="earliest"), skip_lost=True, **EARLIEST)
    assert len(messages_in(scene.out)) == 15
    assert [row.problem for row in verify(scene.lake) if row.problem] == []


def test_a_committed_run_that_lacks_a_file_has_a_way_out(scene: Scene) -> None:
    """Everything was refused, by the name of something that was refused."""
    with pytest.raises(KeyboardInterrupt):
        scene.told(passed=stop("decided"), join=joining(scene.group), **EARLIEST)
    next(path for path in scene.out.rglob("*.tmp")).unlink()
    with pytest.raises(RefusedError, match="forgotten, their messages would be lost"):
        scene.export(scene.group, settle="forget", skip_lost=True)  # what is left is not published yet
    for wish in ({"settle": "keep"}, {"begin": None}):
        with pytest.raises(RefusedError, match=r"lacks 1 file .*; 1 is published") as no:
            scene.export(scene.group, **wish)
        assert "--settle forget --skip-lost gives up what is gone" in str(no.value.remedy)
    with pytest.raises(RefusedError, match=r"are committed, and 1 file of it is gone"):
        scene.export(scene.group, settle="forget")
    lines = given_up(scene)
    assert "is forgotten, though its offsets are committed, and 1 file of it is gone" in lines[0]
    assert "1 file of it is published" in lines[1]
    scene.export(scene.group, adopt=True)
    scene.told(backfill=True, **EARLIEST)
    assert len(messages_in(scene.out)) == 20
    scene.told(policies=Policies(disagreement="group"))
    assert [row.problem for row in verify(scene.lake) if row.problem] == []


def test_what_a_forgotten_run_has_published_is_not_called_lost(scene: Scene) -> None:
    """It is in a file: the refusal names that, rather than --skip-lost."""
    left_at(scene)
    scene.export(scene.group, settle="forget")
    drop_messages(scene.kafka, scene.first, 5)
    with pytest.raises(RefusedError, match="ZooKeeper does not know that it was decided: it was forgotten") as no:
        scene.told(policies=Policies(no_offset="earliest"))
    assert str(no.value.remedy).startswith("--settle keep publishes the rest and commits, --settle withdraw")
    assert "--adopt" in str(no.value.remedy)


@pytest.mark.parametrize("backfill", [False, True])
def test_what_stays_among_the_exports_is_told_of_as_what_it_means(scene: Scene, backfill: bool) -> None:
    """A backfill moves no group: none stands behind it."""
    if backfill:
        scene.told(begin="latest")
    left_at(scene, "manifest filed", backfill=backfill)
    lines: list[str] = []
    scene.export(scene.group, settle="forget", warn=lines.append)
    (line,) = lines
    assert ("stays among the exports in" in line, "--on-disagreement lake" in line) == (True, not backfill)
    scene.told(**({} if backfill else {"policies": Policies(disagreement="lake")}))
    assert len(messages_in(scene.out)) == 20


def test_a_plan_that_is_another_one_is_not_believed(scene: Scene) -> None:
    """Somebody has put another one in its place: the manifest tells."""
    left_at(scene, "decided")
    (path,) = scene.out.rglob("plan.json")
    path.write_bytes(path.read_bytes() + b"\n")
    drop_messages(scene.kafka, scene.first, 5)
    with pytest.raises(RefusedError, match="is not forgotten: its files hold what no log has any more"):
        scene.export(scene.group, settle="forget")
    scene.told(**EARLIEST)
    assert len(messages_in(scene.out)) == 20


def test_what_is_committed_and_not_there_is_not_forgotten_without_a_word(scene: Scene, tmp_path: Path) -> None:
    """Its folder was not mounted: nobody would have exported the messages again."""
    scene.commit(scene.group, {TopicPartition(scene.topic, number): 0 for number in range(2)})
    left_at(scene, "decided", begin=None, join=joining(scene.group))
    scene.out.rename(tmp_path / "away")
    with pytest.raises(
        RefusedError, match=r"are committed, and its files are not known to be in .*: its messages may"
    ) as no:
        scene.export(scene.group, settle="forget")
    assert str(no.value.remedy).startswith("bring its folder back; --settle forget --skip-lost gives it up")
    (tmp_path / "away").rename(scene.out)
    scene.export(scene.group, settle="keep")
    assert len(messages_in(scene.out)) == 20
