"""Backfills ahead of a group, and runs that are lost: what no run tells of any more is nobody's backfill."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable

import pytest
from cli import run
from exports import at, looked, offsets, problems, published_in, read, root_of

from zkgroup.export.checks.verify import verify
from zkgroup.export.lake.lake import Lake
from zkgroup.export.runs.run import PartitionSummary
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.sandbox import Sandbox

Export = Callable[..., list[PartitionSummary]]
Scene = tuple[str, str]


def lose(lake: Lake, group: str, place: int, start: int) -> None:
    """A run, and its file."""
    shutil.rmtree(root_of(lake) / lake.folder(group, lake.runs(group)[place]))
    (name,) = [name for name in published_in(root_of(lake)) if f"/{start}-" in name]
    (root_of(lake) / name).unlink()


def filled_as_advised(cluster: Sandbox, lake: Lake, group: str) -> bool:
    """Whether the backfills that ``--verify`` advises lead to a whole lake."""
    for command in re.findall(r"'(zkgroup [^']* --backfill [^']*)'", looked(cluster, lake, "--group", group)):
        done = run("-z", cluster.connect, *shlex.split(command)[1:])
        assert done.returncode == 0, done.stderr
    return not problems(lake)


@pytest.fixture
def lost(in_process: Export, forty: Scene, lake: Lake) -> Scene:
    """Exported up to 5 and up to 20, with a backfill from 25 to 30; the second export is gone, with its file."""
    topic, group = forty
    for end in (5, 20):
        in_process(group, topic, until=at(topic, end))
    in_process(group, topic, backfill=True, begin=at(topic, 25), until=at(topic, 30))
    lose(lake, group, 1, 5)
    return forty


def test_an_export_that_was_lost_is_no_backfill(
    in_process: Export, lost: Scene, cluster: Sandbox, committed: Callable[..., int | None], lake: Lake
) -> None:
    """The group stands where it ended, and goes on there; what it held is missing until it is filled."""
    topic, group = lost
    told: list[str] = []
    standing = {group: {TopicPartition(topic, 0): 20}}
    missing = f"in no run, though the last manifest of group {group} accounts for it: its run is gone"
    assert [(row.start, row.end, row.problem) for row in verify(lake, standing, told.append) if row.problem] == [
        (5, 20, missing)
    ]
    assert [line.endswith("its next export goes on around that") for line in told] == [True]
    assert read(in_process(group, topic)) == [(20, 25), (30, 40)]
    assert (committed(group, topic), problems(lake)) == (40, [(5, 20, missing)])
    assert filled_as_advised(cluster, lake, group)
    assert offsets(lake) == list(range(40))


def test_a_backfill_that_an_export_went_around_and_that_is_lost_is_missing(
    in_process: Export, gap: Scene, cluster: Sandbox, lake: Lake
) -> None:
    """That the export passed over it explains nothing."""
    topic, group = gap
    in_process(group, topic)
    lose(lake, group, 1, 10)
    assert [problem[:2] for problem in problems(lake)] == [(10, 20)]
    assert filled_as_advised(cluster, lake, group)
    assert offsets(lake) == list(range(40))


def test_what_was_an_exports_is_not_called_a_backfills(
    in_process: Export, forty: Scene, commit: Callable[..., None], lake: Lake
) -> None:
    """Of a group that was set back to before all that it had exported."""
    topic, group = forty
    in_process(group, topic, begin=at(topic, 20))
    commit(group, {TopicPartition(topic, 0): 0})
    in_process(group, topic, until=at(topic, 10))
    told: list[str] = []
    in_process(group, topic, warn=told.append)
    assert not [line for line in told if "backfill" in line]
    assert (offsets(lake), problems(lake)) == (list(range(40)), [])


def test_a_backfill_that_was_written_again_is_still_gone_around(
    in_process: Export, gap: Scene, committed: Callable[..., int | None], lake: Lake
) -> None:
    """Also where its first run is lost, which alone said that it was one."""
    topic, group = gap
    next(root_of(lake).rglob("10-20.parquet")).unlink()
    in_process(group, topic, backfill=True, begin=at(topic, 10), until=at(topic, 20))
    shutil.rmtree(root_of(lake) / lake.folder(group, lake.runs(group)[1]))
    standing = {group: {TopicPartition(topic, 0): 5}}
    assert [row.problem for row in verify(lake, standing)] == [None]
    assert read(in_process(group, topic)) == [(5, 10), (20, 40)]
    assert (committed(group, topic), offsets(lake), problems(lake)) == (40, list(range(40)), [])


def test_a_backfill_that_was_adopted_is_still_gone_around(
    in_process: Export, gap: Scene, committed: Callable[..., int | None], lake: Lake
) -> None:
    """A later manifest has told that it was one."""
    topic, group = gap
    in_process(group, topic, backfill=True, begin=at(topic, 30), until=at(topic, 35))
    shutil.rmtree(root_of(lake) / lake.folder(group, lake.runs(group)[1]))
    in_process(group, adopt=True)
    assert problems(lake) == [(5, 10, f"in no run of group {group}"), (20, 30, f"in no run of group {group}")]
    assert read(in_process(group, topic)) == [(5, 10), (20, 30), (35, 40)]
    assert (committed(group, topic), offsets(lake), problems(lake)) == (40, list(range(40)), [])


def test_backfills_of_two_groups_are_gone_around(
    in_process: Export, gap: Scene, unique: Callable[[str], str], committed: Callable[..., int | None], lake: Lake
) -> None:
    """Whoever reaches furthest."""
    topic, group = gap
    in_process(unique("other"), topic, backfill=True, begin=at(topic, 7), until=at(topic, 9))
    in_process(unique("another"), topic, backfill=True, begin=at(topic, 30), until=at(topic, 35))
    assert read(in_process(group, topic)) == [(5, 7), (9, 10), (20, 30), (35, 40)]
    assert (committed(group, topic), offsets(lake), problems(lake)) == (40, list(range(40)), [])
