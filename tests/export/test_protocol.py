"""The protocol of an export, hurt at each of its points: then run again, and every message is there exactly once.

Which points there are is found out by exporting and listening, not by a list. Tasks run in the tests' own process, with
the function that Spark's executors run; the protocol around them is the very one.
"""

from __future__ import annotations

import errno
import os
import random
import signal
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from export_points import PARTITIONS, Export, Paused, Points, at, drive_export, lose_session, points_of
from exports import messages_in, nothing_in
from lines import names
from session_expiry import expire_session

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import AlreadyRunningError, UnreachableError
from zkgroup.export.run.claim import ExportClaim, TakenOverError
from zkgroup.export.run.run_states import PlannedRun
from zkgroup.groups.changes.export_znodes import Pointer
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Delete, Ensure, Exists, Get, Node, Result, SetData, Stat
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import ProducerRecord, produce


@pytest.fixture
def export(brief: Export) -> Export:
    """One export under a short session."""
    return brief


@pytest.fixture
def topic(filled: str) -> str:
    """A topic with a few messages."""
    return filled


def test_killed_at_every_point_and_run_again(
    export: Export, topic: str, unique: Callable[[str], str], is_complete: Callable[..., None],
    short: ZooKeeperSettings, kafka: KafkaSettings, tmp_path: Path, pytestconfig: pytest.Config,
) -> None:  # fmt: skip
    """SIGKILL as each point is passed, also by the export that comes after a killed one (in the usual run at each third
    point): the next one ends it all."""
    clean: Points = []
    group = unique("group")
    export(group, topic, on_point=clean.append)
    is_complete(group, topic, tmp_path / "out")
    assert len(clean) == len(set(clean)) > 10, clean

    def kill_and_go_on(points: Sequence[str]) -> Points:
        """Kill an export at each of ``points`` in turn, then let one go on; the points that this one passed."""
        name = unique("killed")
        wish = {"group": name, "topics": [topic], "out": tmp_path / name}
        for point in points:
            code, lines = drive_export(short, kafka, kill_at=point, **wish)
            assert (code, lines[-1]) == (-9, point)
        passed: Points = []
        export(name, topic, root=tmp_path / name, on_point=passed.append)
        is_complete(name, topic, tmp_path / name)
        return passed

    decided = clean.index("decided")
    each = 1 if pytestconfig.getoption("--long") else 3
    with ThreadPoolExecutor(4) as pool:
        went_on = list(pool.map(kill_and_go_on, [[point] for point in clean]))
        list(pool.map(kill_and_go_on, [["decided", point] for point in clean[decided + 1 :: each]]))
        list(pool.map(kill_and_go_on, [["files written", point] for point in clean[: decided + 1 : each]]))
    after = dict(zip(clean, went_on, strict=True))
    assert "files written" in after["record written"]
    assert "files written" not in after["decided"]


def test_a_session_that_ends_at_any_point_is_replaced(
    export: Export, topic: str, unique: Callable[[str], str], is_complete: Callable[..., None], cluster: Sandbox,
    registry: Registry, tmp_path: Path,
) -> None:  # fmt: skip
    """ZooKeeper ends the session at each point: the export takes a new one, reads, and goes on by itself."""
    points: Points = []
    export(unique("group"), topic, root=tmp_path / "first", on_point=points.append)
    for number, point in enumerate(points):
        group, out = unique("expired"), tmp_path / str(number)
        ended: list[int] = []  # once: the commit is tried again, and passes its point again

        def hurt(passed: str, group: str = group, point: str = point, ended: list[int] = ended) -> None:
            (stat,) = registry.read([Exists(znodes.export_lock(group))])
            if passed == point and isinstance(stat, Stat) and not ended:
                ended.append(stat.owner)
                expire_session(cluster.connect, stat.owner)

        rows = export(group, topic, root=out, on_point=hurt)
        assert [(row.start, row.end, row.rows) for row in rows] == [(0, 20, 20)] * 2, point
        is_complete(group, topic, out)


@pytest.mark.parametrize("point", ["files written", "record written", "decided", "published 1 of 4"])
def test_one_that_was_given_up_for_dead_does_no_harm(
    export: Export, topic: str, unique: Callable[[str], str], is_complete: Callable[..., None], cluster: Sandbox,
    registry: Registry, tmp_path: Path, point: str,
) -> None:  # fmt: skip
    """An export is paused, its session ends, another one goes on and finishes; then the first one wakes up: before
    the decision it is fenced off, after it there is nothing left to do for it."""
    group = unique("zombie")
    with Paused(lambda passed: export(group, topic, on_point=passed), point) as first:
        lose_session(registry, cluster, group)
        export(group, topic)
        is_complete(group, topic, tmp_path / "out")
        if point in ("files written", "record written"):
            with pytest.raises(TakenOverError) as refused:
                first.finish()
            assert refused.value.remedy is not None
            assert refused.value.remedy.commands == (("export", "--group", group, "--status"),)
        else:
            first.finish()
    is_complete(group, topic, tmp_path / "out")


def test_a_second_export_waits_and_is_refused(
    export: Export, topic: str, unique: Callable[[str], str], is_complete: Callable[..., None], tmp_path: Path
) -> None:
    """While one works, another one of the same group is refused by the first one's host and process; nothing is done
    twice."""
    group, warnings = unique("twice"), list[object]()
    with Paused(lambda passed: export(group, topic, on_point=passed), "checked") as first:
        with pytest.raises(AlreadyRunningError) as refused:
            export(group, topic, on_warning=warnings.append)
        first.finish()
    holder = group, socket.gethostname(), os.getpid()
    assert names(str(refused.value), *holder)
    assert [names(str(line), *holder) for line in warnings] == [True]
    is_complete(group, topic, tmp_path / "out")


@pytest.mark.parametrize("fsize", [100_000, 300])
def test_a_file_that_cannot_grow_leaves_nothing(
    make_topic: Callable[..., str], kafka: KafkaSettings, unique: Callable[[str], str],
    short: ZooKeeperSettings, registry: Registry, tmp_path: Path, fsize: int,
) -> None:  # fmt: skip
    """A disk that is full for a task's file, or even for the plan: exit 1 with the name, no trace; then it works."""
    topic, group = make_topic(), unique("group")
    produce(kafka, topic, [ProducerRecord(random.Random(i).randbytes(20_000), None, 0) for i in range(10)])
    wish = {"group": group, "topics": [topic], "out": tmp_path / "out"}
    code, lines = drive_export(short, kafka, fsize=fsize, **wish)
    assert code == 1
    assert names(lines[-1], tmp_path / "out", os.strerror(errno.EFBIG))
    assert nothing_in(tmp_path)
    assert registry.read([Exists(znodes.group(group))]) == [None]
    assert drive_export(short, kafka, **wish)[0] == 0
    assert len(messages_in(tmp_path / "out")) == 10


def test_a_failure_before_the_decision_leaves_no_trace(
    topic: str, export: Export, unique: Callable[[str], str], registry: Registry, is_complete: Callable[..., None],
    tmp_path: Path,
) -> None:  # fmt: skip
    """Interrupted or failed in order at any point before the decision: no file, no node; after it the run waits."""
    before, after = points_of(export, topic, unique, tmp_path)
    for number, point in enumerate([*before, *after]):
        group, out = unique("stopped"), tmp_path / str(number)
        with pytest.raises(KeyboardInterrupt):
            export(group, topic, root=out, on_point=at(point, lambda: signal.raise_signal(signal.SIGINT)))
        if point in before:
            assert nothing_in(out)
            assert registry.read([Exists(znodes.group(group))]) == [None]
        export(group, topic, root=out)
        is_complete(group, topic, out)


def test_a_restored_zookeeper_names_a_run_that_has_ended(
    export: Export, topic: str, unique: Callable[[str], str], is_complete: Callable[..., None], registry: Registry,
    tmp_path: Path,
) -> None:  # fmt: skip
    """Its folder is gone, and its record is in the log: the next export moves the offsets and exports nothing."""
    group, kept = unique("restored"), list[Result]()
    node = znodes.export_state(group)
    export(group, topic, on_point=at("decided", lambda: kept.extend(registry.read([Get(node)]))))
    for partition in range(PARTITIONS):
        registry.write(Delete(znodes.offset(group, TopicPartition(topic, partition))))
    (pointer,) = kept
    assert isinstance(pointer, Node)
    registry.write(Ensure(node))
    registry.write(SetData(node, pointer.data))
    points: Points = []
    export(group, topic, on_point=points.append)
    assert "runner started" not in points
    is_complete(group, topic, tmp_path / "out")


@pytest.mark.parametrize("found", [False, True])
def test_a_decision_whose_answer_is_lost_costs_no_files(
    export: Export, topic: str, unique: Callable[[str], str], is_complete: Callable[..., None], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, found: bool,
) -> None:  # fmt: skip
    """It was done, and ZooKeeper is away before anybody knows: whoever fails there leaves what was read, also of a run
    that was found, and the next one publishes it."""
    group, point = unique("unanswered"), ExportClaim.point
    if found:
        with monkeypatch.context() as patch:
            patch.setattr(PlannedRun, "_drop", lambda run: None)
            with pytest.raises(KeyboardInterrupt):
                export(group, topic, on_point=at("files written", lambda: signal.raise_signal(signal.SIGINT)))

    def unanswered(claim: ExportClaim, before: Pointer | None, after: Pointer, *unmoved: Any) -> None:
        point(claim, before, after, *unmoved)
        if after.state == "decided":
            raise UnreachableError("on purpose")

    with monkeypatch.context() as patch:
        patch.setattr(ExportClaim, "point", unanswered)
        with pytest.raises(UnreachableError, match="on purpose"):
            export(group, topic)
    points: Points = []
    export(group, topic, on_point=points.append)
    assert "runner started" not in points
    is_complete(group, topic, tmp_path / "out")
