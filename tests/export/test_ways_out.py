"""What runs leave that were forgotten or killed: the words lead out of it, and what never was is in nobody's way."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cli import run
from export_points import Export, Paused, at, driven
from exports import joining, messages_in, published_in
from support import wait_until

from zkgroup.errors import RefusedError, UsageError
from zkgroup.export.checks.verify import verify
from zkgroup.export.lake.lake import Lake
from zkgroup.export.model.layout import LayoutWish
from zkgroup.export.model.words import Policies
from zkgroup.export.planning.bounds import COMMITTED, Bound, parse_bound
from zkgroup.export.runs.run import PartitionSummary
from zkgroup.export.stores.store import FolderStore
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.ops import Exists
from zkgroup.sandbox.sandbox import Sandbox
from zkgroup.servers.kafka import KafkaSettings
from zkgroup.servers.registry import Registry
from zkgroup.servers.zookeeper import ZooKeeperSettings

InProcess = Callable[..., list[PartitionSummary]]
BY_DATE = LayoutWish(("date",))


def problems_of(out: Path) -> list[str | None]:
    """What ``--verify`` has to say of a lake."""
    return [row.problem for row in verify(Lake(FolderStore(out))) if row.problem is not None]


def interrupt() -> None:
    """As Ctrl-C does."""
    raise KeyboardInterrupt


@pytest.mark.parametrize("point", ["published 1 of 4", "published for good"])
@pytest.mark.parametrize("adopted", [False, True])
def test_files_of_a_run_that_was_forgotten_are_moved_away_or_adopted(
    brief: Export, filled: str, unique: Callable[[str], str], tmp_path: Path, is_complete: Callable[..., None],
    point: str, adopted: bool,
) -> None:  # fmt: skip
    """Forgotten while its folder is there, a run leaves files that nothing accounts for: that is said at once, and by
    the export that they stop, which proposes nothing that would meet them again. Without them all goes on, and with
    them once they are entered."""
    group, out, told = unique("group"), tmp_path / "out", list[str]()
    with pytest.raises(KeyboardInterrupt):
        brief(group, filled, passed=at(point, interrupt))
    left = published_in(out)
    brief(group, filled, settle="forget", warn=told.append)
    assert len(told) == 1
    assert f"{len(left)} file" in told[0]
    assert left[0] in told[0]
    command = f"'zkgroup export --group {group} --to {out} --adopt'"
    assert f"{command} enters" in told[0]
    for believed in ("fail", "lake"):
        with pytest.raises(RefusedError, match=r"ZooKeeper does not know that it was decided: it was forg") as raised:
            brief(group, filled, policies=Policies(disagreement=believed))  # type: ignore[arg-type]
        assert "--on-disagreement" not in f"{raised.value}"
        assert str(raised.value.remedy).startswith("--settle keep publishes the rest and commits, --settle withdraw")
        assert f"{command} enters what is published" in str(raised.value.remedy)
        assert "move it away" in str(raised.value.remedy)
    problems = problems_of(out)
    assert len(problems) == len(left)
    for name in left:
        assert any(str(problem).startswith(f"{name} is in no run's manifest") for problem in problems)
        if not adopted:
            (out / name).unlink()
    if adopted:
        brief(group, adopt=True)
    brief(group, filled, policies=Policies(disagreement="lake" if adopted else "fail"))
    is_complete(group, filled, out)
    assert problems_of(out) == []


def test_files_behind_an_earlier_export_lead_out_as_well(
    brief: Export, filled: str, unique: Callable[[str], str], fill: Callable[..., object], tmp_path: Path
) -> None:
    """The group's earlier exports do not make a forgotten run's files theirs: to believe the lake is not proposed."""
    group, out = unique("group"), tmp_path / "out"
    brief(group, filled)
    fill(filled, 10)
    with pytest.raises(KeyboardInterrupt):
        brief(group, filled, passed=at("published for good", interrupt))
    brief(group, filled, settle="forget")
    with pytest.raises(RefusedError, match="ZooKeeper does not know that it was decided") as raised:
        brief(group, filled, policies=Policies(disagreement="lake"))
    assert "--on-disagreement" not in str(raised.value)
    for problem in problems_of(out):
        (out / str(problem).split()[0]).unlink()
    brief(group, filled)
    assert problems_of(out) == []
    assert len(messages_in(out)) == 50


def test_a_run_that_was_filed_counts_though_it_was_forgotten(
    brief: Export, filled: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """Its manifest is in place, so that only the group stands behind it: what is said then is what helps."""
    group, out, told = unique("group"), tmp_path / "out", list[str]()
    with pytest.raises(KeyboardInterrupt):
        brief(group, filled, passed=at("manifest filed", interrupt))
    brief(group, filled, settle="forget", warn=told.append)
    assert len(told) == 1
    assert "stays among the exports" in told[0]
    assert "--on-disagreement lake" in told[0]
    with pytest.raises(RefusedError, match="stands behind") as raised:
        brief(group, filled)
    assert "--on-disagreement lake" in str(raised.value.remedy)
    brief(group, filled, begin=COMMITTED, policies=Policies(disagreement="lake"))
    brief(group, filled)
    assert problems_of(out) == []
    assert len(messages_in(out)) == 40


def test_what_is_committed_is_not_forgotten(
    brief: Export, filled: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """A joined export's offsets are committed before its files are published: forgotten, they would be nowhere. If the
    destination is lost they are, and it is dropped."""
    group, out = unique("group"), tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        brief(group, filled, join=joining(group), passed=at("decided", interrupt))
    with pytest.raises(RefusedError, match="messages would be lost") as raised:
        brief(group, filled, settle="forget")
    assert "--settle keep publishes them" in str(raised.value.remedy)
    brief(group, filled, settle="keep")
    assert len(messages_in(out)) == 40
    brief(group, filled, root=tmp_path / "other", policies=Policies(disagreement="group"))


def test_a_run_that_never_was_binds_no_layout(
    brief: Export, filled: str, unique: Callable[[str], str], short: ZooKeeperSettings, kafka: KafkaSettings,
    registry: Registry, make_topic: Callable[..., str], fill: Callable[..., object], tmp_path: Path,
) -> None:  # fmt: skip
    """Killed before its pointer is up, a run is nothing; killed behind that, and before it has exported anything, it is
    put aside, and finds when it goes on that it has to write as the others do."""
    out, other, told = tmp_path / "out", make_topic(), list[str]()
    fill(other, 3)
    for point in ("plan written", "files written"):
        killed = unique(point.partition(" ")[0])
        assert driven(short, kafka, kill_at=point, group=killed, topics=[filled], out=out)[0] == -9
        wait_until(lambda: registry.read([Exists(znodes.export_lock(killed))]) == [None], what="the lock is gone")  # noqa: B023
    later = unique("later")
    brief(later, other, layout=BY_DATE, warn=told.append)
    assert [line for line in told if f"of group {killed} is in the way (with --partition-by" in line], told
    assert len(messages_in(out)) == 3
    with pytest.raises(RefusedError, match="with --partition-by date"):
        brief(killed, filled)
    brief(killed, filled)  # in the lake's layout, as nothing else was asked for
    assert len(messages_in(out)) == 43
    assert problems_of(out) == []


def test_what_is_under_way_binds_the_layout(
    brief: Export, filled: str, unique: Callable[[str], str], make_topic: Callable[..., str],
    fill: Callable[..., object], tmp_path: Path,
) -> None:  # fmt: skip
    """While one export writes, another one of other topics writes as it does, and is refused if it is to do otherwise;
    also one that begins at the very same time."""
    out, other = tmp_path / "out", make_topic()
    fill(other, 3)
    first, second = unique("first"), unique("second")
    with Paused(lambda passed: brief(first, filled, layout=BY_DATE, passed=passed), "files written") as export:
        with pytest.raises(RefusedError, match="begun with --partition-by date"):
            brief(second, other, layout=LayoutWish(("partition",)))
        brief(second, other)
        export.finish()
    assert {name.split("/")[1].partition("=")[0] for name in published_in(out)} == {"date"}
    together = threading.Barrier(2, timeout=60)

    def meet(point: str) -> None:
        if point in ("plan written", "plan in place"):
            with contextlib.suppress(threading.BrokenBarrierError):
                together.wait()

    def begin(topic: str, layout: LayoutWish) -> str:
        try:
            brief(unique("group"), topic, root=tmp_path / "new", layout=layout, passed=meet)
        except RefusedError as error:
            return error.message
        finally:
            together.abort()  # the other one is alone from here on
        return "exported"

    with ThreadPoolExecutor(2) as pool:
        said = list(pool.map(begin, (filled, other), (BY_DATE, LayoutWish(("partition",)))))
    assert said.count("exported") == 1, said
    (refused,) = set(said) - {"exported"}
    assert "readers need one layout and one schema" in refused or "has just begun" in refused


def test_times_that_no_message_has_are_told(
    in_process: InProcess, make_topic: Callable[..., str], fill: Callable[..., object], unique: Callable[[str], str],
    commit: Callable[..., None], tmp_path: Path,
) -> None:  # fmt: skip
    """Before all that is left, behind the newest message, and the wrong way round: one line each says what becomes of
    it. A time amid the messages, or no time, says nothing."""
    topic, told = make_topic(), list[str]()
    fill(topic, 10)
    past, future = Bound("time", 1_000, text="@1970-01-01T00:00:01"), Bound("time", 4_102_444_800_000)
    nothing = "there is nothing to export"

    def rows(group: str, **options: object) -> list[tuple[int, int]]:
        told.clear()
        found = in_process(group, topic, root=tmp_path / group, warn=told.append, **options)
        return [(row.start, row.end) for row in found]

    group = unique("group")
    assert rows(group, until=past) == [(0, 0)]
    assert told == [f"nothing that is left to export is known to lie before --until @1970-01-01T00:00:01: {nothing}"]
    assert (rows(group, until=past), len(told)) == ([(0, 0)], 1)  # without a run, too
    assert rows(group, until=future) == [(0, 10)]
    assert told == ["no message is as late as --until @4102444800000: the export ends where the logs end now"]
    assert rows(unique("late"), begin=future) == [(10, 10)]
    assert told == [
        "no message is as late as --from @4102444800000: partitions without an offset begin at their ends, and "
        "what is there is not exported",
        f"{topic}-0: offsets 0 to 9 are not exported (latest)",
    ]
    assert rows(group, backfill=True, begin=future) == []
    assert told == [f"no message is as late as --from @4102444800000: {nothing}"]
    assert (rows(unique("plain")), told) == ([(0, 10)], [])
    assert (rows(unique("amid"), begin=past), told) == ([(0, 10)], [])
    with pytest.raises(UsageError, match="--from @4102444800000 is later than --until @1970"):
        rows(unique("turned"), begin=future, until=past)
    commit(group, {TopicPartition(topic, 0): 4})
    assert rows(group, until=past, policies=Policies(disagreement="lake")) == [(10, 10)]
    assert told[1:] == [f"{topic}-0: the group was moved to 4: it goes on at 10, where its exports end"]
    assert "nothing that is left to export is known to lie before" in told[0]


def test_status_of_a_destination_is_of_that_one(
    brief: Export, filled: str, unique: Callable[[str], str], cluster: Sandbox, tmp_path: Path
) -> None:
    """What is unfinished elsewhere is counted on stderr, with its place; by whatever name the destination is called,
    its own runs are shown. Without ``--to`` all are."""
    groups = {name: unique(name) for name in ("here", "there")}
    for name, group in groups.items():
        with pytest.raises(KeyboardInterrupt):
            brief(group, filled, root=tmp_path / name, passed=at("decided", interrupt))
    (tmp_path / "too").symlink_to(tmp_path / "here")

    def shown(*words: str) -> tuple[set[str], str]:
        done = run("-z", cluster.connect, "export", "--status", "--output", "json", *words)
        assert done.returncode == 0, done.stderr
        return {row["group"] for row in json.loads(done.stdout)} & set(groups.values()), done.stderr

    assert shown() == (set(groups.values()), "")
    for name in ("here", "too"):
        found, said = shown("--to", str(tmp_path / name))
        assert found == {groups["here"]}
        assert said.count("\n") == 1
        assert "under way or unfinished elsewhere (" in said
    found, said = shown("--to", str(tmp_path / "here"), "--group", groups["there"])
    assert found == set()
    assert f"1 other export is under way or unfinished elsewhere ({tmp_path / 'there'})" in said
    for name, group in groups.items():
        brief(group, filled, root=tmp_path / name)


def test_offsets_that_the_group_has_passed_end_nothing_and_that_is_said(
    in_process: Callable[..., list[PartitionSummary]], make_topic: Callable[..., str], fill: Callable[..., object],
    unique: Callable[[str], str],
) -> None:  # fmt: skip
    """As of times; at the end of the log there is nothing to say."""
    topic, group = make_topic(), unique("group")
    fill(topic, 10)
    in_process(group, topic)
    passed = parse_bound(f"{topic}:0=4", group, "--until")
    told: list[str] = []
    in_process(group, topic, until=passed, warn=told.append)
    fill(topic, 5)
    in_process(group, topic, until=passed, warn=told.append)
    what = "nothing that is left to export is known to lie before"
    assert told == 2 * [f"{what} --until {topic}:0=4: there is nothing to export"]
    assert in_process(group, topic, until=parse_bound(f"{topic}:0=15", group, "--until"), warn=told.append)[0].rows == 5
    assert len(told) == 2
