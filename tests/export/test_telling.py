"""What an export says where a person has to do something: by a signal, of another group, in ``--status``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from export_points import Export, at, points_of
from exports import nothing_in

from zkgroup.errors import RefusedError, ZkgroupError
from zkgroup.export.checks.history import status
from zkgroup.export.checks.verify import verify
from zkgroup.export.lake.lake import Lake
from zkgroup.export.model.layout import LayoutWish
from zkgroup.export.model.rundata import Pointer
from zkgroup.export.model.words import Policies
from zkgroup.export.planning.bounds import LATEST, Bound
from zkgroup.export.runs.claim import ExportClaim
from zkgroup.export.runs.run import PartitionSummary
from zkgroup.export.stores.store import FolderStore
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.ops import Create, Delete, Ensure
from zkgroup.sandbox.topics import create_topic, delete_topic
from zkgroup.servers.registry import Registry

InProcess = Callable[..., list[PartitionSummary]]


def interrupt() -> None:
    """As Ctrl-C does."""
    raise KeyboardInterrupt


def test_an_interrupted_export_says_that_it_is_decided(
    brief: Export, filled: str, unique: Callable[[str], str], is_complete: Callable[..., None], tmp_path: Path
) -> None:
    """From the decision to the commit: the run is half done, and one line says what finishes it. Before and behind,
    there is nothing to say."""
    before, after = points_of(brief, filled, unique, tmp_path)
    last = next(number for number, point in enumerate(after) if point.startswith("transaction"))
    for number, point in enumerate([*before[-2:], *after[:last], after[-1]]):
        group, out, told = unique("interrupted"), tmp_path / str(number), list[str]()
        with pytest.raises(KeyboardInterrupt):
            brief(group, filled, root=out, passed=at(point, interrupt), warn=told.append)
        decided = [line for line in told if f"of group {group} is decided and not finished: run the same" in line]
        assert (len(decided), len(told)) == ((1, 1) if point in after[:last] else (0, 0)), point
        brief(group, filled, root=out)
        is_complete(group, filled, out)


def test_a_topic_made_again_while_it_is_read_is_the_reason(
    in_process: InProcess, registry: Registry, unique: Callable[[str], str], fill: Callable[..., object], tmp_path: Path
) -> None:
    """The reader meets a log that ends too early; what is told is why, and what to do; nothing is left."""
    topic, group = unique("again"), unique("group")
    create_topic(registry, topic)
    fill(topic, 10)

    def make_again() -> None:
        delete_topic(registry, topic)
        create_topic(registry, topic)
        fill(topic, 3)

    with pytest.raises(RefusedError, match=f"topic {topic} was deleted and made again") as raised:
        in_process(group, topic, passed=at("runner started", make_again), patience=2.0)
    assert raised.value.remedy == "export again"
    assert nothing_in(tmp_path / "out")


@pytest.mark.parametrize("how", ["committed", "believed"])
def test_two_groups_of_one_topic_are_refused_by_name(
    in_process: InProcess, make_topic: Callable[..., str], fill: Callable[..., object], unique: Callable[[str], str],
    commit: Callable[..., None], tmp_path: Path, how: str,
) -> None:  # fmt: skip
    """Before, behind and amid what the other one has exported; only from its end on a group takes over, as one does
    that was renamed, or that is to believe the lake. Then nothing is missing, and the first is refused in its turn."""
    topic, one, two = make_topic(), unique("one"), unique("two")
    fill(topic, 50)
    in_process(one, topic)
    fill(topic, 10)
    lake = Lake(FolderStore(tmp_path / "out"))
    (run,) = lake.runs(one)
    for begins, said in (
        ({"begin": LATEST}, rf"group {one} has exported {topic}-0 to .* up to offset 50 \(run {run}\).*begin at 60"),
        ({}, rf"already holds offsets 0 to 49 of {topic}-0: group {one} exported them \(run {run}\)"),
    ):
        with pytest.raises(RefusedError, match=said) as raised:
            in_process(two, topic, **begins)
        assert "--on-disagreement lake" in str(raised.value.remedy)
        assert f"go on with group {one}" in str(raised.value.remedy)
    assert lake.runs(two) == []
    if how == "committed":
        commit(two, {TopicPartition(topic, 0): 50})
        in_process(two, topic)
    else:
        in_process(two, topic, policies=Policies(disagreement="lake"))
    fill(topic, 5)
    in_process(two, topic)
    assert [(row.start, row.end, row.rows, row.problem) for row in verify(lake)] == [(0, 65, 65, None)]
    with pytest.raises(RefusedError, match=f"group {two} exported them"):
        in_process(one, topic)


def test_what_is_exported_beside_another_group_leaves_no_hole_unseen(
    in_process: InProcess, make_topic: Callable[..., str], fill: Callable[..., object], unique: Callable[[str], str],
    tmp_path: Path,
) -> None:  # fmt: skip
    """A backfill may lie anywhere; what no group's run has in between is a problem."""
    topic, one, two = make_topic(), unique("one"), unique("two")
    fill(topic, 10)
    in_process(one, topic)
    fill(topic, 20)
    in_process(two, topic, backfill=True, begin=Bound("offsets", offsets={TopicPartition(topic, 0): 25}))
    rows = verify(Lake(FolderStore(tmp_path / "out")))
    assert [(row.start, row.end, row.problem) for row in rows if row.problem] == [(10, 25, "in no run")]


def test_status_advises_what_can_work(
    brief: Export, filled: str, unique: Callable[[str], str], registry: Registry, commit: Callable[..., None],
    tmp_path: Path,
) -> None:  # fmt: skip
    """A decided run is finished by the same command, unless the group lives, or somebody moved an offset: then only a
    settlement helps, and that is what is said."""
    group, out = unique("group"), tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        brief(group, filled, passed=at("decided", interrupt))

    def advice(lake: Lake | None = None) -> str:
        (row,) = status(registry, group, lake)
        assert (row.state, row.step) == ("unfinished", "decided")
        return row.advice

    assert advice().startswith("run the same command again: it publishes")
    registry.write(Ensure(znodes.ids(group)))
    registry.write(Create(znodes.member_id(group, "m"), b"{}"))
    assert advice().endswith("stop the members, then run the same command again")
    registry.write(Delete(znodes.member_id(group, "m")))
    commit(group, {TopicPartition(filled, 1): 7})
    for lake in (None, Lake(FolderStore(out))):
        assert advice(lake).startswith(f"{filled}-1 was moved since, so it cannot be committed: --settle keep")
    assert advice(Lake(FolderStore(tmp_path))).startswith("run the same command again")
    brief(group, filled, settle="keep")
    assert status(registry, group) == []


def test_a_lake_that_cannot_be_read_is_not_taken_for_another(
    registry: Registry, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """By another name than the run's it is known by its plan: a damaged one is nobody else's, and one that cannot be
    read tells nothing, which is no "nothing is unfinished"."""
    group, run, lake = unique("group"), "00000001-aaaaaaaa", tmp_path / "lake"
    with ExportClaim(registry, group, "attempt", lambda _: None) as claim:
        claim.point(None, Pointer("planned", run, "/mounted/elsewhere", "hash", "attempt", None))
    plan = lake / Lake.folder(group, run) / "plan.json"
    plan.parent.mkdir(parents=True)
    assert [row.elsewhere for row in status(registry, group, Lake(FolderStore(lake)))] == [True]
    plan.write_bytes(b"{")
    assert [row.elsewhere for row in status(registry, group, Lake(FolderStore(lake)))] == [False]
    plan.unlink()
    plan.mkdir()
    with pytest.raises(ZkgroupError, match=r"cannot read .*plan\.json"):
        status(registry, group, Lake(FolderStore(lake)))


def test_options_that_contradict_a_lake_are_refused_though_nothing_is_new(
    in_process: InProcess, make_topic: Callable[..., str], fill: Callable[..., object], unique: Callable[[str], str]
) -> None:
    """Who finds nothing new tonight would fail tomorrow: at once instead. The lake's own options are right."""
    topic, group = make_topic(), unique("group")
    fill(topic, 2)
    in_process(group, topic)
    with pytest.raises(RefusedError, match="was begun with --partition-by partition"):
        in_process(group, topic, layout=LayoutWish(("date",)))
    assert [row.rows for row in in_process(group, topic, layout=LayoutWish(("partition",)))] == [0]


def test_a_folder_that_holds_something_else_is_told_at_the_beginning(
    in_process: InProcess, make_topic: Callable[..., str], fill: Callable[..., object], unique: Callable[[str], str],
    tmp_path: Path,
) -> None:  # fmt: skip
    """Readers would take it for data: said when a group's first export begins, and not for what readers pass over."""
    topic, group, out, told = make_topic(), unique("group"), tmp_path / "out", list[tuple[str, str]]()
    fill(topic, 2)
    out.mkdir()
    for name in ("report.csv", ".hidden", "_SUCCESS"):
        (out / name).write_text("x")
    points = ["nothing"]
    in_process(group, topic, warn=lambda text: told.append((points[-1], text)), passed=points.append)
    ((when, text),) = told
    assert when == "locked"
    assert "report.csv, which no export has written" in text
    assert "hidden" not in text
    fill(topic, 1)
    in_process(group, topic, warn=lambda text: told.append(("later", text)))
    assert len(told) == 1
