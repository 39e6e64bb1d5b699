"""``--settle withdraw`` takes files back, and may not take the last copy of a message: it looks at the logs first."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from exports import messages_in
from hypothesis import given
from hypothesis import strategies as st
from resets import drop_messages
from scenes import Scene, left_at, remake

from zkgroup.errors import RefusedError, UnreachableError
from zkgroup.export.checks.history import status
from zkgroup.export.checks.verify import verify
from zkgroup.export.lake.footer import read_footer
from zkgroup.export.model.rundata import ManifestFile
from zkgroup.export.model.words import Policies, Slice
from zkgroup.export.planning.bounds import Bound
from zkgroup.export.planning.request import ExportRequest
from zkgroup.export.runs.last_copies import only_here
from zkgroup.export.runs.run import run_export
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.ops import Create, Delete, Ensure, Get, Node
from zkgroup.sandbox.topics import delete_topic
from zkgroup.servers.kafka import KafkaSettings
from zkgroup.servers.logs import LogRange
from zkgroup.servers.registry import Registry
from zkgroup.servers.zookeeper import ZooKeeperSettings

EARLIEST: dict[str, Any] = {"begin": "earliest"}
REMEDY = "--settle keep leaves the files where they are; --settle withdraw --skip-lost gives these messages up"


def refused(scene: Scene, said: str) -> None:
    """Nothing is taken back, and the run may still be kept."""
    before = len(list(scene.out.rglob("*.*")))
    with pytest.raises(RefusedError, match=f"is not taken back: its files hold what no log has any more .{said}") as no:
        scene.export(scene.group, settle="withdraw")
    assert no.value.remedy == REMEDY
    assert len(list(scene.out.rglob("*.*"))) == before
    (row,) = status(scene.registry, scene.group, scene.lake)
    assert row.step == "decided"


@pytest.mark.parametrize("point", ["decided", "published 1 of 2", "manifest filed"])
def test_what_retention_took_is_not_taken_back(scene: Scene, point: str) -> None:
    """Wherever the files are by then: ``keep`` has them all."""
    left_at(scene, point)
    drop_messages(scene.kafka, scene.first, 5)
    refused(scene, f"5 messages of {scene.first}: its log starts at 5.")
    scene.export(scene.group, settle="keep")
    assert len(messages_in(scene.out)) == 20
    assert [row.problem for row in verify(scene.lake) if row.problem] == []


def test_who_gives_it_up_is_told_what_and_the_next_export_records_it(scene: Scene) -> None:
    """``--skip-lost``: the files go, and where the run was to begin is not forgotten."""
    left_at(scene)
    drop_messages(scene.kafka, scene.first, 5)
    lines: list[str] = []
    scene.export(scene.group, settle="withdraw", skip_lost=True, warn=lines.append)
    assert len(lines) == 1
    assert lines[0].endswith(
        f"messages are given up that no log has any more: 5 messages of {scene.first}: its log starts at 5"
    )
    assert messages_in(scene.out) == []
    with pytest.raises(RefusedError, match=f"{scene.first} was to begin at 0, its log starts at 5: 5 offsets are lost"):
        scene.told(**EARLIEST)
    scene.told(skip_lost=True, **EARLIEST)
    assert scene.skipped() == [("retention", 0, 5)]


def test_what_the_log_has_is_taken_back(scene: Scene) -> None:
    """Retention took what was there before the run, and files that are gone are no reason."""
    drop_messages(scene.kafka, scene.first, 3)
    left_at(scene)
    scene.export(scene.group, settle="withdraw")
    left_at(scene)
    drop_messages(scene.kafka, scene.first, 5)
    for file in [*scene.out.rglob("*.parquet"), *scene.out.rglob("*.tmp")]:
        file.unlink()
    scene.export(scene.group, settle="withdraw")
    assert messages_in(scene.out) == []


@pytest.mark.parametrize("gone", [remake, lambda scene: delete_topic(scene.registry, scene.topic)])
def test_of_a_topic_that_is_gone_nothing_is_taken_back(scene: Scene, gone: Callable[[Scene], None]) -> None:
    """The next export asks what is to become of the new log; taken back, it began with it as if nothing had been."""
    left_at(scene)
    gone(scene)
    again = "made again" if gone is remake else ""
    refused(
        scene, f"10 messages of {scene.first}: the topic was deleted.*10 messages of {scene.topic}-1: the topic was"
    )
    if again:
        (row,) = status(scene.registry, scene.group, scene.lake)
        assert row.advice.endswith("--settle keep leaves them, and the offset as it is")
        with pytest.raises(RefusedError, match="made again") as refusal:
            scene.told(**EARLIEST)
        assert "withdraw" not in str(refusal.value.remedy)
    scene.export(scene.group, settle="keep")
    assert len(messages_in(scene.out)) == 20
    if again:
        with pytest.raises(RefusedError, match="made again"):
            scene.told(**EARLIEST)
        scene.told(policies=Policies(recreated="earliest"), **EARLIEST)
        assert len(messages_in(scene.out)) == 40


def test_a_backfill_is_looked_at_as_well(scene: Scene) -> None:
    """It moves no offset: all of it would be taken back."""
    scene.told(begin="latest")
    left_at(scene, backfill=True)
    drop_messages(scene.kafka, scene.first, 10)
    refused(scene, f"10 messages of {scene.first}: its log starts at 10.")


def test_nobody_tells(scene: Scene, short: ZooKeeperSettings, tmp_path: Path) -> None:
    """No broker answers: nothing is taken back unless that is said to be no matter."""
    left_at(scene)
    silent = KafkaSettings("127.0.0.1:1", scene.kafka.properties)

    def withdraw(*, skip_lost: bool) -> list[str]:
        lines: list[str] = []
        with Registry(short, 3.0) as registry:
            request = ExportRequest(scene.group, root=tmp_path / "out", settle="withdraw", skip_lost=skip_lost)
            assert run_export(request, registry, lambda: silent, warn=lines.append) == []
        return lines

    with pytest.raises(UnreachableError, match="is not taken back, as nobody tells whether the logs still have"):
        withdraw(skip_lost=False)
    assert len(messages_in(scene.out)) == 20
    (line,) = withdraw(skip_lost=True)
    assert "is taken back, and what that loses nobody tells: " in line
    assert messages_in(scene.out) == []


def exported_and_put_back(scene: Scene) -> None:
    """Two runs, and then ZooKeeper's data is an older copy: a pointer to the first, which was committed since."""
    path = znodes.export_state(scene.group)
    kept: list[bytes] = []

    def keep(passed: str) -> None:
        if passed == "manifest filed":
            (node,) = scene.registry.read([Get(path)])
            assert isinstance(node, Node)
            kept.append(node.data)

    scene.told(passed=keep, **EARLIEST)
    scene.fill(scene.topic, 20, 2)
    scene.told()
    assert len(messages_in(scene.out)) == 40
    for number in range(2):
        scene.registry.write(Delete(znodes.offset(scene.group, TopicPartition(scene.topic, number))))
    scene.registry.write(Ensure(path.rpartition("/")[0]))
    scene.registry.write(Create(path, kept[0]))


def test_a_run_that_others_stand_behind_stays(scene: Scene) -> None:
    """It was committed once, and is part of what the lake accounts for."""
    exported_and_put_back(scene)
    for skips in (False, True):
        with pytest.raises(RefusedError, match=r"has ended before, as run 0+2-.* that came after it") as no:
            scene.export(scene.group, settle="withdraw", skip_lost=skips)
        assert str(no.value.remedy).startswith("--settle keep ends it once more; then --on-disagreement lake")
    scene.export(scene.group, settle="keep")
    with pytest.raises(RefusedError, match="already holds offsets 10 to 19"):
        scene.told()
    scene.fill(scene.topic, 2, 2)
    scene.told(policies=Policies(disagreement="lake"))
    assert len(messages_in(scene.out)) == 42
    assert [row.problem for row in verify(scene.lake) if row.problem] == []


def test_one_that_others_stand_behind_and_that_lacks_a_file_has_a_way_out(scene: Scene) -> None:
    """``withdraw`` and ``keep`` advised each other; both name ``forget``, and it leads on to the letter."""
    exported_and_put_back(scene)
    (scene.out / f"topic={scene.topic}/partition=0/0-10.parquet").unlink()
    for wish in ({"settle": "withdraw"}, {"settle": "keep"}, {}):
        with pytest.raises(RefusedError, match=r"has ended before|lacks 1 file that it has written") as no:
            scene.export(scene.group, **wish)
        assert str(no.value.remedy).startswith("--settle forget ends it; then --on-disagreement lake goes on")
    scene.export(scene.group, settle="forget")
    scene.told(policies=Policies(disagreement="lake"))
    assert [str(row.problem).partition(" is ")[2] for row in verify(scene.lake) if row.problem] == ["missing"]
    scene.told(backfill=True, **EARLIEST)
    assert len(messages_in(scene.out)) == 40
    assert [row.problem for row in verify(scene.lake) if row.problem] == []


@pytest.mark.parametrize("point", ["files written", "published for good"])
def test_a_folder_from_before_the_run_is_told_of_as_what_it_is(scene: Scene, point: str, tmp_path: Path) -> None:
    """An older copy in its place: the advice was to go where it is, and to withdraw there."""
    scene.told(until=Bound("offsets", offsets={scene.first: 5}), **EARLIEST)
    shutil.copytree(scene.out, tmp_path / "copy")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("zkgroup.export.runs.steps.ExportRun.abandon", lambda run, **_: False)
        left_at(scene, point)
    shutil.rmtree(scene.out)
    (tmp_path / "copy").rename(scene.out)
    (row,) = status(scene.registry, scene.group, scene.lake)
    says = "it is an older copy or another disk, or is not mounted"
    assert says in row.advice
    for how in (None, "withdraw", "keep"):
        with pytest.raises(RefusedError, match="and its plan is not in it any more") as no:
            scene.export(scene.group, scene.topic, settle=how)
        assert str(no.value.remedy).startswith(says)
        assert str(no.value.remedy).endswith("--settle forget ends the run")
    scene.export(scene.group, settle="forget")
    scene.told(**EARLIEST)
    assert len(messages_in(scene.out)) == 20


RANGES = st.tuples(st.integers(0, 12), st.integers(1, 12)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(st.lists(RANGES, max_size=4, unique=True), RANGES)
def test_as_many_are_only_here_as_the_log_does_not_have(ranges: list[tuple[int, int]], log: tuple[int, int]) -> None:
    """By offsets, one by one; of other partitions nothing is said."""
    files = [
        ManifestFile("w", "n", "t", hi - lo, 1, (Slice(0, lo, hi, hi - lo), Slice(1, 0, 5, 5))) for lo, hi in ranges
    ]
    found = list(only_here(files, {TopicPartition("t", 0): LogRange(*log)}))
    expected = [[o for o in range(*one) if not log[0] <= o < log[1]] for one in ranges]
    assert [one.rows for one in found] == [len(offsets) for offsets in expected if offsets]
    gone = list(only_here(files, {TopicPartition("t", 0): "it is gone"}))
    assert [(one.rows, one.why) for one in gone] == [(hi - lo, "it is gone") for lo, hi in ranges]


def test_a_planned_run_of_a_topic_that_was_made_again_is_dropped(scene: Scene) -> None:
    """--status advised to read its ranges again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("zkgroup.export.runs.steps.ExportRun.abandon", lambda run, **_: False)
        left_at(scene, "files written")
    remake(scene)
    (row,) = status(scene.registry, scene.group, scene.lake)
    assert row.advice == (
        f"topic {scene.topic} was made again since: run the same command again, which drops it, and then once more"
    )
    with pytest.raises(RefusedError, match="was deleted and made again"):
        scene.told(**EARLIEST)
    assert scene.told(**EARLIEST)[1] == [0, 1]


def test_a_file_of_somebody_else_beside_a_last_copy_is_no_circle(scene: Scene) -> None:
    """``withdraw`` advised to keep the run, ``keep`` and the plain command to withdraw it."""
    left_at(scene, "decided")
    foreign = scene.out / f"topic={scene.topic}/partition=0/2-4.parquet"
    foreign.parent.mkdir(parents=True)
    files = [str(file.relative_to(scene.out)) for file in scene.out.rglob("*.tmp")]
    (own,) = [scene.out / name for name in files if not read_footer(scene.lake.store, name).slices[0].partition]
    pq.write_table(pq.read_table(own).slice(2, 2), foreign)
    drop_messages(scene.kafka, scene.first, 5)
    with pytest.raises(RefusedError, match=r"is decided and cannot be published: .* already holds offsets 2 to 3"):
        scene.export(scene.group, settle="keep")
    with pytest.raises(RefusedError, match=f"3 messages of {scene.first}: its log starts at 5") as no:
        scene.export(scene.group, settle="withdraw")
    assert str(no.value.remedy).startswith(f"first move away what is in its way ({foreign} already holds offsets 2 to")
    foreign.unlink()
    scene.export(scene.group, settle="keep")
    assert len(messages_in(scene.out)) == 20
