"""Two groups that export a topic to one lake at the same time: each message is there once, whoever is first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from export_points import MESSAGES, Export, Paused, Points, driven, points_of
from exports import messages_in, published_in
from hiding import CLOSED
from object_store import uri_of
from support import wait_until

from zkgroup.errors import RefusedError
from zkgroup.export.checks.history import status
from zkgroup.export.checks.verify import verify
from zkgroup.export.lake.lake import Lake
from zkgroup.export.model.destination import parse_destination
from zkgroup.export.stores.store import open_store
from zkgroup.protocol import znodes
from zkgroup.protocol.ops import Acl, Create, Delete, Exists, Get, Node, Stat
from zkgroup.sandbox.sandbox import Sandbox
from zkgroup.sandbox.sessions import expire_session
from zkgroup.servers.kafka import KafkaSettings
from zkgroup.servers.registry import Registry
from zkgroup.servers.zookeeper import ZooKeeperSettings


def problems_of(out: Path) -> list[str | None]:
    """What ``--verify`` has to say of a lake."""
    return [row.problem for row in verify(Lake(open_store(out))) if row.problem is not None]


def test_a_group_that_comes_second_gives_way_at_every_point(
    brief: Export, filled: str, unique: Callable[[str], str], is_complete: Callable[..., None], registry: Registry,
    fill: Callable[..., object], tmp_path: Path,
) -> None:  # fmt: skip
    """While one export stands at any point from its plan to its commit, another group's of the same topic is refused by
    the first one's name, also through a link to the folder; it leaves no trace, and the first one ends as ever."""
    before, after = points_of(brief, filled, unique, tmp_path)
    points = [*before, *after]
    held = points[points.index("plan in place") : points.index("committed")]
    for number, point in enumerate(held):
        first, second, out = unique("first"), unique("second"), tmp_path / str(number)
        (tmp_path / f"{number}-too").symlink_to(out)
        with Paused(lambda passed: brief(first, filled, root=out, passed=passed), point) as export:  # noqa: B023
            with pytest.raises(RefusedError, match=rf"group {first} (is exporting|exported them)") as refused:
                brief(second, filled, root=tmp_path / f"{number}-too")
            assert f"group {first}" in f"{refused.value.message} {refused.value.remedy}"
            assert registry.read([Exists(znodes.group(second))]) == [None], point
            export.finish()
        is_complete(first, filled, out)
        assert not (out / "_zkgroup" / second).exists()


def test_of_many_at_the_very_same_time_one_exports(
    brief: Export, filled: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """Four groups whose plans are all in place before any of them looks around: the first one goes on, all others give
    way; not none, not two."""
    groups = [unique("group") for _ in range(4)]
    together = threading.Barrier(len(groups), timeout=60)

    def meet(point: str) -> None:
        if point == "plan in place":
            together.wait()

    def export(group: str) -> str:
        try:
            brief(group, filled, passed=meet)
        except RefusedError as error:
            return error.message
        return "exported"

    with ThreadPoolExecutor(len(groups)) as pool:
        found = list(pool.map(export, groups))
    assert found.count("exported") == 1, found
    assert sum("would export the same messages once more" in message for message in found) == 3, found
    assert len(messages_in(tmp_path / "out")) == MESSAGES
    assert problems_of(tmp_path / "out") == []


@pytest.mark.parametrize("point", ["plan in place", "files written", "manifest written"])
def test_one_that_was_killed_does_not_hold_the_lake(
    brief: Export, filled: str, unique: Callable[[str], str], is_complete: Callable[..., None],
    short: ZooKeeperSettings, kafka: KafkaSettings, registry: Registry, tmp_path: Path, point: str,
) -> None:  # fmt: skip
    """A run that was killed before its decision is put aside, with a warning, by the next group's; who goes on with it
    finds what that one has exported, and drops it."""
    first, second, told = unique("first"), unique("second"), list[str]()
    wish = {"group": first, "topics": [filled], "out": tmp_path / "out"}
    assert driven(short, kafka, kill_at=point, **wish)[0] == -9
    wait_for_end_of(registry, first)
    brief(second, filled, warn=told.append)
    assert [line for line in told if f"of group {first} is in the way" in line and "put aside" in line], told
    with pytest.raises(RefusedError, match=f"group {second} exported them"):
        brief(first, filled)
    assert registry.read([Exists(znodes.group(first))]) == [None]
    assert len(messages_in(tmp_path / "out")) == MESSAGES
    assert problems_of(tmp_path / "out") == []


def wait_for_end_of(registry: Registry, group: str) -> None:
    """Until the session of the group's export is over."""
    wait_until(lambda: registry.read([Exists(znodes.export_lock(group))]) == [None], what="the lock is gone")


@pytest.mark.parametrize("point", ["files written", "manifest written"])
def test_one_that_was_put_aside_while_it_slept_cannot_decide(
    brief: Export, filled: str, unique: Callable[[str], str], cluster: Sandbox, registry: Registry, tmp_path: Path,
    point: str,
) -> None:  # fmt: skip
    """Its session ends while it stands still, another group exports the same, and then it wakes up: it is told off, and
    publishes nothing."""
    first, second = unique("first"), unique("second")
    with Paused(lambda passed: brief(first, filled, passed=passed), point) as asleep:
        (stat,) = registry.read([Exists(znodes.export_lock(first))])
        assert isinstance(stat, Stat)
        expire_session(cluster.connect, stat.owner)
        wait_for_end_of(registry, first)
        brief(second, filled)
        there = published_in(tmp_path / "out")
        with pytest.raises(RefusedError, match="another process took over"):
            asleep.finish()
    assert published_in(tmp_path / "out") == there
    with pytest.raises(RefusedError, match=f"group {second} exported them"):
        brief(first, filled)
    assert problems_of(tmp_path / "out") == []


@pytest.mark.parametrize(
    ("acl", "said"),
    [
        (CLOSED, r"run \S+ of group {} in .* is to export .* whether it is under way may not be read"),
        ((*CLOSED, Acl("world", "anyone", 1)), "group {} has not finished its export"),
    ],
    ids=["hidden", "read-only"],
)
def test_one_that_may_not_be_put_aside_is_in_the_way(
    brief: Export, filled: str, unique: Callable[[str], str], short: ZooKeeperSettings, kafka: KafkaSettings,
    registry: Registry, tmp_path: Path, acl: tuple[Acl, ...], said: str,
) -> None:  # fmt: skip
    """Where an access list hides a killed run's pointer, or keeps it from being written, its export may go on at any
    time: refused by its name; with another lake of its own nobody minds."""
    first, second = unique("first"), unique("second")
    wish = {"group": first, "topics": [filled], "out": tmp_path / "out"}
    assert driven(short, kafka, kill_at="files written", **wish)[0] == -9
    wait_for_end_of(registry, first)
    path = znodes.export_state(first)
    (pointer,) = registry.read([Get(path)])
    assert isinstance(pointer, Node)
    registry.transaction([Delete(path), Create(path, pointer.data, acl=acl)])
    with pytest.raises(RefusedError, match=said.format(first)) as refused:
        brief(second, filled)
    assert "one group exports a topic to a destination" in str(refused.value.remedy)
    assert published_in(tmp_path / "out") == []
    assert sum(row.rows for row in brief(second, filled, root=tmp_path / "elsewhere")) == MESSAGES


def test_one_that_is_decided_is_waited_for(
    brief: Export, filled: str, unique: Callable[[str], str], is_complete: Callable[..., None],
    short: ZooKeeperSettings, kafka: KafkaSettings, registry: Registry, tmp_path: Path,
) -> None:  # fmt: skip
    """Killed behind its decision, with nothing published, a run still counts: another group is refused, and told how
    it is finished; a group of another topic is not."""
    first, second = unique("first"), unique("second")
    wish = {"group": first, "topics": [filled], "out": tmp_path / "out"}
    assert driven(short, kafka, kill_at="decided", **wish)[0] == -9
    wait_for_end_of(registry, first)
    with pytest.raises(RefusedError, match=f"group {first} has not finished its export") as refused:
        brief(second, filled)
    assert f"--group {first}" in str(refused.value.remedy)
    brief(first, filled)
    is_complete(first, filled, tmp_path / "out")


def test_other_topics_and_other_lakes_are_not_in_the_way(
    brief: Export, filled: str, make_topic: Callable[..., str], fill: Callable[..., object],
    unique: Callable[[str], str], tmp_path: Path,
) -> None:  # fmt: skip
    """While one group exports, another exports a second topic to the same lake, and the same topic to another lake."""
    other = make_topic(1)
    fill(other, 5, 1)
    with Paused(lambda passed: brief(unique("first"), filled, passed=passed), "checked") as export:
        assert [row.rows for row in brief(unique("second"), other)] == [5]
        assert [row.rows for row in brief(unique("third"), filled, root=tmp_path / "elsewhere")] == [20, 20]
        export.finish()
    assert len(messages_in(tmp_path / "out")) == MESSAGES + 5
    assert problems_of(tmp_path / "out") == []


def test_in_a_bucket_too(brief: Export, filled: str, unique: Callable[[str], str], bucket: str, s3_server: int) -> None:
    """Two groups, one place in a store, named with and without a slash at its end: one is refused before it reads."""
    first, second = unique("first"), unique("second")
    root, too = (parse_destination(uri_of(s3_server, f"{bucket}/{name}")) for name in ("lake", "lake/"))
    with Paused(lambda passed: brief(first, filled, root=root, passed=passed), "checked") as export:
        points: Points = []
        with pytest.raises(RefusedError, match=f"group {first} is exporting {filled}-0, {filled}-1 to s3://"):
            brief(second, filled, root=too, passed=points.append)
        export.finish()
    assert "files written" not in points
    rows = verify(Lake(open_store(root)))
    assert [(row.rows, row.problem) for row in rows] == [(20, None)] * 2


@pytest.mark.parametrize("name", ["0-5.parquet", "0-10.parquet"])
def test_files_that_came_behind_the_decision_are_neither_doubled_nor_removed(
    brief: Export, filled: str, unique: Callable[[str], str], registry: Registry, tmp_path: Path, name: str
) -> None:
    """Somebody who heeds no pointer (another cluster, a copy) puts a file with the same messages there, of another name
    or of the very same one: nothing is published over or beside it, the error says how to end the run, and to withdraw
    leaves that file alone."""
    group, stranger = unique("group"), unique("stranger")
    there = tmp_path / "out" / f"topic={filled}" / "partition=0" / name
    brief(stranger, filled, root=tmp_path / "theirs")
    data = (tmp_path / "theirs" / f"topic={filled}" / "partition=0" / "0-10.parquet").read_bytes()

    def put(point: str) -> None:
        if point == "decided":
            there.parent.mkdir(parents=True)
            there.write_bytes(data)

    with pytest.raises(RefusedError) as refused:
        brief(group, filled, passed=put)
    assert name in refused.value.message
    assert "--settle withdraw" in str(refused.value.remedy)
    assert "--status" in str(refused.value.remedy)
    assert [(row.state, row.step) for row in status(registry, group)] == [("unfinished", "decided")]
    told: list[str] = []
    brief(group, filled, settle="withdraw", warn=told.append)
    assert published_in(tmp_path / "out") == [f"topic={filled}/partition=0/{name}"]
    assert there.read_bytes() == data
    assert any("was written by another run" in line for line in told) == (name == "0-10.parquet")
