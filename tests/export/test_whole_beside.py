"""As ``test_whole_attempts``, with another group in the same lake, which has exported the same. Real servers."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from begun import EARLIEST
from exports import messages_in
from resets import drop_messages
from scenes import Scene, retention, stop
from whole_attempts import GOES_ON, is_kept, rolled_back, works

from zkgroup.errors import RefusedError
from zkgroup.export.checks.history import status
from zkgroup.export.checks.verify import verify
from zkgroup.export.planning.bounds import Bound
from zkgroup.protocol.names import TopicPartition


@pytest.mark.parametrize("to", ["planned", "gone"])
def test_what_another_group_has_exported_is_no_last_copy(scene: Scene, to: str, unique: Callable[[str], str]) -> None:
    """Advised to be kept, which was refused by the other's name."""
    rolled_back(scene, to)
    other = unique("other")
    scene.export(other, scene.topic)
    drop_messages(scene.kafka, scene.first, 5)
    with pytest.raises(RefusedError, match=f"group {other}"):
        scene.export(scene.group, settle="keep")
    (row,) = status(scene.registry, scene.group, scene.lake)
    assert re.search(f"it cannot be kept here .*group {other}", row.advice)
    assert f"below _zkgroup/{scene.group} of another destination --settle keep publishes it" in row.advice
    with pytest.raises(RefusedError, match=f"group {other}"):
        scene.told(policies=GOES_ON, **EARLIEST)
    assert (len(messages_in(scene.out)), works(scene)) == (20, 0)
    assert [row.problem for row in verify(scene.lake) if row.problem] == []


def test_another_group_does_not_put_last_copies_aside(scene: Scene, unique: Callable[[str], str]) -> None:
    """It exported what the logs still had, and nothing could keep the rest then."""
    rolled_back(scene, "planned")
    drop_messages(scene.kafka, scene.first, 5)
    with pytest.raises(RefusedError, match=f"group {scene.group} has not finished its export"):
        scene.export(unique("other"), scene.topic)
    scene.export(scene.group, settle="keep")
    is_kept(scene)


@pytest.mark.parametrize("backfill", [False, True])
def test_nor_does_it_pass_over_those_that_zookeeper_has_forgotten(
    scene: Scene, unique: Callable[[str], str], backfill: bool
) -> None:
    """It looked at pointers alone, exported what the logs still had, with exit 0, and nothing could keep the rest."""
    rolled_back(scene, "gone")
    retention(scene, 5)
    scene.fill(scene.topic, 10, 2)
    other = unique("other")
    wish = {"backfill": True, **EARLIEST} if backfill else EARLIEST
    with pytest.raises(RefusedError, match=r"is not decided, and holds what no log has any more .5 messages") as no:
        scene.export(other, scene.topic, **wish)
    keep = f"--group {scene.group} --to {scene.out} --settle keep' publishes it; --skip-lost goes on without it"
    assert str(no.value.remedy).endswith(keep)
    assert scene.lake.runs(other) == []
    scene.export(scene.group, settle="keep")
    assert (len(messages_in(scene.out)), works(scene)) == (20, 0)
    scene.told()
    assert len(messages_in(scene.out)) == 30
    assert [row.problem for row in verify(scene.lake) if row.problem] == []


@pytest.mark.parametrize("gone", [False, True])
def test_nor_does_a_run_that_goes_on(scene: Scene, unique: Callable[[str], str], gone: bool) -> None:
    """What was last copies only since it was planned was looked for by new exports alone."""
    rolled_back(scene, "gone")
    other = unique("other")
    wish = {"begin": Bound("offsets", offsets={TopicPartition(scene.topic, number): 5 for number in range(2)})}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("zkgroup.export.runs.steps.ExportRun.abandon", lambda run, **_: False)  # as SIGKILL does
        with pytest.raises(KeyboardInterrupt):
            scene.export(other, scene.topic, passed=stop("files written"), **wish)
    retention(scene, 5)
    with pytest.raises(RefusedError, match=r"is not decided, and holds what no log has any more .5 messages") as no:
        scene.export(other, scene.topic, **wish)
    assert f"--group {scene.group} --to {scene.out} --settle keep' publishes it" in str(no.value.remedy)
    if not gone:  # as it says
        scene.export(scene.group, settle="keep")
        assert len(messages_in(scene.out)) == 20
        return
    next(path for path in scene.out.glob(f"_zkgroup/{scene.group}/*/*/*.tmp")).unlink()
    with pytest.raises(RefusedError) as no:
        scene.export(other, scene.topic, **wish)
    assert str(no.value.remedy).startswith(f"with --group {scene.group} --settle keep publishes those of its files")


def test_what_cannot_be_kept_is_not_promised_to_be(scene: Scene, unique: Callable[[str], str]) -> None:
    """Its beginning is in no log any more, and another group has exported the rest: files of that were to be moved, and
    then it was refused all the same."""
    rolled_back(scene, "gone")
    retention(scene, 5)
    other, lines = unique("other"), list[str]()
    scene.export(other, scene.topic, skip_lost=True, warn=lines.append)
    assert "5 messages of " in next(line for line in lines if "messages are given up that no log has any more" in line)
    with pytest.raises(RefusedError, match=f"cannot be kept: .*group {other}") as no:
        scene.export(scene.group, settle="keep")
    assert "elsewhere to have what it holds: below _zkgroup/" in str(no.value.remedy)
    with pytest.raises(RefusedError, match=f"holds what no log has any more .5 messages of {scene.first}") as no:
        scene.told(**EARLIEST)
    (run,) = scene.lake.runs(scene.group)
    folder = scene.out / "_zkgroup" / scene.group / run
    assert str(no.value.remedy).startswith("it cannot be kept (")
    assert f": move {folder} elsewhere to have what it holds; --skip-lost gives these" in str(no.value.remedy)
    there = scene.out.parent / "elsewhere"
    shutil.copytree(folder, there / "_zkgroup" / scene.group / run)
    shutil.rmtree(folder)
    scene.export(scene.group, settle="keep", root=there)  # as it says
    assert len(messages_in(there)) == 20
    scene.commit(scene.group, {TopicPartition(scene.topic, number): 0 for number in range(2)})
    with pytest.raises(RefusedError, match=f"group {other}"):
        scene.told(policies=GOES_ON, **EARLIEST)


@pytest.mark.parametrize("to", ["planned", "gone"])
@pytest.mark.parametrize("other_first", [False, True])
def test_of_two_that_follow_on_each_other_the_first_is_kept_first(
    scene: Scene, unique: Callable[[str], str], to: str, other_first: bool
) -> None:
    """As of a group that went on under another name: one was to be moved away, and moved back."""
    other = replace(scene, group=unique("other"))
    wish = {"begin": Bound("offsets", offsets={TopicPartition(scene.topic, number): 10 for number in range(2)})}
    runs: list[tuple[Scene, dict[str, Any]]] = [(scene, EARLIEST), (other, wish)]
    ends = {TopicPartition(scene.topic, number): 10 for number in range(2)}
    scene.fill(scene.topic, 20, 2)
    for one, begins in reversed(runs) if other_first else runs:
        rolled_back(one, to, **begins, **({"until": Bound("offsets", offsets=ends)} if one is scene else {}))
    retention(scene, 20)
    with pytest.raises(RefusedError, match=f"{scene.group} "):
        other.export(other.group, settle="keep")
    scene.export(scene.group, settle="keep")
    other.export(other.group, settle="keep")
    assert len(messages_in(scene.out)) == 40
    assert [row.problem for row in verify(scene.lake) if row.problem] == []


def test_who_is_told_of_it_is_not_told_to_keep_it(scene: Scene, unique: Callable[[str], str]) -> None:
    """Which was refused then."""
    rolled_back(scene, "gone")
    scene.export(unique("other"), scene.topic, until=Bound("offsets", offsets={scene.first: 3}))
    heir, lines = unique("heir"), list[str]()
    scene.commit(heir, {TopicPartition(scene.topic, number): 3 for number in range(2)})
    retention(scene, 5)
    with pytest.raises(RefusedError, match="offsets are lost"):
        scene.export(heir, scene.topic, warn=lines.append)
    (line,) = [line for line in lines if "was written to the end" in line]
    assert "is not decided: it cannot be kept (" in line
    assert f"move {scene.out}/_zkgroup/{scene.group}/" in line


def test_a_group_that_was_renamed_is_told_of_its_run(scene: Scene, unique: Callable[[str], str]) -> None:
    """It was told what is lost, and not that it is there."""
    rolled_back(scene, "gone")
    heir = unique("heir")
    scene.commit(heir, {TopicPartition(scene.topic, number): 0 for number in range(2)})
    drop_messages(scene.kafka, scene.first, 5)
    lines: list[str] = []
    with pytest.raises(RefusedError, match="5 offsets are lost"):
        scene.export(heir, scene.topic, warn=lines.append)
    (line,) = [line for line in lines if "was written to the end" in line]
    assert f"of group {scene.group} " in line
    assert f"--group {scene.group} --to {scene.out} --settle keep' publishes" in line
    scene.export(scene.group, settle="keep")
    is_kept(scene)


def beside(scene: Scene, group: str, begin: int) -> Scene:
    """Ten more messages, and another group's run of all from ``begin`` on that ZooKeeper has forgotten, too."""
    other = replace(scene, group=group)
    scene.fill(scene.topic, 10, 2)
    first = {TopicPartition(scene.topic, number): begin for number in range(2)}
    rolled_back(other, "gone", begin=Bound("offsets", offsets=first))
    return other


def test_of_two_the_one_that_has_all_is_kept(scene: Scene, unique: Callable[[str], str]) -> None:
    """The other one could be, and then five messages of each partition were published by nobody."""
    rolled_back(scene, "gone")
    other, third = beside(scene, unique("other"), 0), unique("third")
    retention(scene, 15)
    scene.fill(scene.topic, 2, 2)
    whole = f"--group {other.group} --to {scene.out} --settle keep' publishes it"
    with pytest.raises(RefusedError, match=f"{other.group} is not decided.*{scene.group} is not decided") as no:
        scene.export(third, scene.topic, **EARLIEST)
    assert f"{whole}; --skip-lost goes on without it" in str(no.value.remedy)
    with pytest.raises(RefusedError, match=f"{other.group} is not decided, and holds what no log .* .5 messages") as no:
        scene.export(scene.group, settle="keep")
    assert whole in str(no.value.remedy)
    scene.export(other.group, settle="keep")  # as it says
    assert len(messages_in(scene.out)) == 30
    other.told()
    assert [row.problem for row in verify(scene.lake) if row.problem] == []
    with pytest.raises(RefusedError, match=f"group {other.group}"):
        scene.told(policies=GOES_ON, **EARLIEST)
    assert (len(messages_in(scene.out)), works(scene)) == (32, 0)


def test_of_two_that_cannot_both_be_kept_one_is_moved(scene: Scene, unique: Callable[[str], str]) -> None:
    """Each has what the other one has not, and what both have cannot be there twice."""
    rolled_back(scene, "gone")
    other = beside(scene, unique("other"), 5)
    retention(scene, 15)
    for one, left in ((scene, other), (other, scene)):
        with pytest.raises(RefusedError, match=f"{left.group} is not decided, and holds") as no:
            one.export(one.group, settle="keep")
        (run,) = scene.lake.runs(left.group)
        moved = f"move {scene.out}/_zkgroup/{left.group}/{run} elsewhere to have what it holds: below"
        assert str(no.value.remedy).startswith(f"not all of these can be kept here: {moved}")
    lines: list[str] = []
    scene.export(scene.group, settle="keep", skip_lost=True, warn=lines.append)
    assert "5 messages of " in next(line for line in lines if f"of group {other.group} messages are given up" in line)
    assert len(messages_in(scene.out)) == 20
