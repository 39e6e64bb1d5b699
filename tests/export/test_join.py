"""Exports that are members of their group: with other members, losing partitions, killed, cut off."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from export_points import MESSAGES, PARTITIONS, Export, Points, at, drive_export
from exports import files_in, make_member_config, messages_in
from lines import names
from members import ReadMember, connector
from session_expiry import expire_session
from support import wait_until

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.connector import Connector
from zkgroup.errors import Notice, RefusedError, UsageError
from zkgroup.export.checks.verify import read_committed, verify
from zkgroup.export.destination.run_log import Destination
from zkgroup.export.model.run_record import RunRecord
from zkgroup.export.planning.export_request import COMMITTED, Bound
from zkgroup.export.planning.notices import GapNotice
from zkgroup.export.stores.store import FolderStore
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Children, Delete, Get, Node
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import ProducerRecord

Committed = Callable[..., int | None]
EACH = MESSAGES // PARTITIONS
PATIENT = {"rebalance_max_retries": 20, "rebalance_backoff_ms": 300, "auto_commit_enable": False}


@contextmanager
def idle_member(cluster: Sandbox, group: str, topic: str) -> Iterator[Connector]:
    """A member that holds its share and reads nothing."""
    member = connector(cluster.connect, group, **PATIENT)
    member.streams({topic: 1})
    try:
        yield member
    finally:
        member.close()


def exported(out: Path) -> dict[int, list[int]]:
    """The offsets of each partition that the folder holds."""
    found: dict[int, list[int]] = {}
    for row in messages_in(out):
        found.setdefault(row["partition"], []).append(row["offset"])
    return found


def test_with_another_active_member_every_message_is_read_once(
    brief: Export, make_topic: Callable[..., str], fill: Callable[..., list[ProducerRecord]],
    unique: Callable[[str], str], cluster: Sandbox, committed: Committed, tmp_path: Path,
) -> None:  # fmt: skip
    """A member reads slowly while an export joins, takes its share and leaves: what the one was given and what the
    other wrote is everything, and nothing twice."""
    topic, group = make_topic(4), unique("group")
    sent = fill(topic, 1200, 4)
    with ReadMember(
        cluster.connect, group, {topic: 1}, pace=lambda _: time.sleep(0.004), rebalance_max_retries=20,
        rebalance_backoff_ms=300,
    ) as member:  # fmt: skip
        wait_until(lambda: len(member.records) > 20)
        rows = brief(group, topic, join=make_member_config(group))
        assert len(rows) == 2  # of four partitions
        assert sum(row.rows for row in rows) > 0
        exports = Counter(row["value"] for row in messages_in(tmp_path / "out"))
        wanted = Counter(record.value for record in sent)
        wait_until(lambda: (exports + member.values).keys() >= wanted.keys(), 60, "all is read")
    assert exports + member.values == wanted
    assert [committed(group, topic, number) for number in range(4)] == [300] * 4


def test_what_a_member_has_read_and_not_committed_yet_is_no_missing_offset(
    brief: Export, make_topic: Callable[..., str], fill: Callable[..., list[ProducerRecord]],
    unique: Callable[[str], str], cluster: Sandbox, tmp_path: Path,
) -> None:  # fmt: skip
    """In the first minute of a group's life: its members commit as they give a partition up, and there it goes on."""
    topic, group = make_topic(2), unique("group")
    sent = fill(topic, 200, 2)
    settings = {"auto_commit_interval_ms": 600_000, "rebalance_max_retries": 20, "rebalance_backoff_ms": 300}
    with ReadMember(cluster.connect, group, {topic: 1}, **settings) as member:
        wait_until(lambda: len(member.records) == 200, 60, "all is read")
        fresh = fill(topic, 200, 2)
        wait_until(lambda: len(member.records) == 400, 60, "all is read again")
        rows = brief(group, topic, begin=COMMITTED, join=make_member_config(group))
        assert [row.start for row in rows] == [200]
    assert Counter(record.value for record in [*sent, *fresh]) == member.values


def test_what_is_lost_meanwhile_is_left_to_its_new_owner(
    brief: Export, filled: str, unique: Callable[[str], str], cluster: Sandbox, committed: Committed, tmp_path: Path
) -> None:
    """A member comes while files are written, and takes a partition: its offset stays, its files go, with a warning;
    the next export that is given it takes it, and nothing is there twice."""
    group, warnings = unique("group"), list[Notice]()
    with _Latecomer(cluster, group, filled) as latecomer:
        rows = brief(
            group,
            filled,
            join=make_member_config(group),
            on_point=at("files written", latecomer.join),
            on_warning=warnings.append,
        )
        (lost,) = latecomer.first
        assert [(row.partition, row.start, row.end, row.rows) for row in rows] == [
            (number, 0, *((0, 0) if number == lost.partition else (EACH, EACH))) for number in range(PARTITIONS)
        ]
        assert any(names(str(warning), lost) for warning in warnings)
        assert exported(tmp_path / "out") == {1 - lost.partition: list(range(EACH))}
        assert committed(group, filled, lost.partition) is None
    rows = brief(group, filled, join=make_member_config(group))
    assert exported(tmp_path / "out") == {number: list(range(EACH)) for number in range(PARTITIONS)}
    assert [committed(group, filled, number) for number in range(PARTITIONS)] == [EACH] * PARTITIONS


class _Latecomer:
    """A member that joins on demand, and waits for its share."""

    def __init__(self, cluster: Sandbox, group: str, topic: str) -> None:
        self._topic = topic
        self.first: tuple[TopicPartition, ...] = ()
        self._member = connector(cluster.connect, group, **PATIENT)

    def join(self) -> None:
        self._member.streams({self._topic: 1})
        self.first = wait_until(self._share, 30, "a share of its own")

    def _share(self) -> tuple[TopicPartition, ...]:
        owned = self._member.statistics().owned
        return owned if len(owned) == 1 else ()

    def __enter__(self) -> _Latecomer:
        return self

    def __exit__(self, *exception: object) -> None:
        self._member.close()


def test_a_decision_depends_on_the_owner_nodes(
    brief: Export, filled: str, unique: Callable[[str], str], registry: Registry, committed: Committed, tmp_path: Path
) -> None:
    """Owner nodes that are deleted after the last read make the transaction fail, also where the member has them again
    by then: it plans anew, and decides once."""
    group, points = unique("group"), list[str]()
    owners = [znodes.owner(group, TopicPartition(filled, number)) for number in range(PARTITIONS)]

    def reclaim() -> None:
        before = [node.stat.czxid for node in registry.read([Get(path) for path in owners]) if isinstance(node, Node)]
        assert len(before) == PARTITIONS
        registry.read([Delete(path) for path in owners])
        wait_until(lambda: all(isinstance(n, Node) and n.stat.czxid > max(before) for n in _nodes(registry, owners)))

    harm = at("record written", reclaim)

    def passed(point: str) -> None:
        points.append(point)
        harm(point)

    rows = brief(group, filled, join=make_member_config(group), on_point=passed)
    assert points.count("record written") == 2
    assert points.count("decided") == 1
    assert [(row.end, row.rows) for row in rows] == [(EACH, EACH)] * PARTITIONS
    assert [committed(group, filled, number) for number in range(PARTITIONS)] == [EACH] * PARTITIONS


def test_a_decision_depends_on_the_offsets(
    brief: Export, filled: str, unique: Callable[[str], str], fill: Callable[..., list[ProducerRecord]],
    commit: Callable[..., None], committed: Committed, tmp_path: Path,
) -> None:  # fmt: skip
    """An offset that exists already is moved after the last read of it: the transaction fails, and the decision is made
    without its partition."""
    group, points, warnings, one = unique("group"), list[str](), list[Notice](), TopicPartition(filled, 1)
    brief(group, filled, join=make_member_config(group))
    fill(filled, 20, PARTITIONS)
    harm = at("record written", lambda: commit(group, {one: EACH + 5}))

    def passed(point: str) -> None:
        points.append(point)
        harm(point)

    brief(group, filled, join=make_member_config(group), on_point=passed, on_warning=warnings.append)
    assert points.count("record written") == 2
    assert points.count("decided") == 1
    assert any(names(str(warning), one) for warning in warnings)
    assert [committed(group, filled, number) for number in range(PARTITIONS)] == [EACH + 10, EACH + 5]
    assert exported(tmp_path / "out") == {0: list(range(EACH + 10)), 1: list(range(EACH))}


def _nodes(registry: Registry, paths: Sequence[str]) -> list[object]:
    return list(registry.read([Get(path) for path in paths]))


def test_killed_at_every_point_and_joined_again(
    brief: Export, filled: str, unique: Callable[[str], str], short: ZooKeeperSettings, kafka: KafkaSettings,
    registry: Registry, committed: Committed, tmp_path: Path,
) -> None:  # fmt: skip
    """SIGKILL as each point is passed: the next export, joined as well, ends it; from the decision on nothing is read
    again, and the offsets are committed already. Nothing of the run is left."""
    clean: Points = []
    brief(unique("group"), filled, root=tmp_path / "clean", join=make_member_config("clean"), on_point=clean.append)
    decided = clean.index("decided")

    def kill_and_go_on(number: int, point: str) -> None:
        group, out, passed = unique("killed"), tmp_path / str(number), list[str]()
        wish = {"group": group, "topics": [filled], "out": out, "join": True}
        code, lines = drive_export(short, kafka, kill_at=point, **wish)
        assert (code, lines[-1]) == (-signal.SIGKILL, point)
        offsets = [committed(group, filled, partition) for partition in range(PARTITIONS)]
        assert offsets == [EACH if number >= decided else None] * PARTITIONS, point
        # A session that ended would leave what it held to the next export, as it should.
        brief(group, filled, root=out, join=make_member_config(group), on_point=passed.append, session=6.0)
        assert ("files written" in passed) == (number < decided), point
        assert exported(out) == {partition: list(range(EACH)) for partition in range(PARTITIONS)}, point
        assert [committed(group, filled, partition) for partition in range(PARTITIONS)] == [EACH] * PARTITIONS
        kept = {name.split("/")[1] for name in files_in(out) if name.startswith("_zkgroup/")}
        assert kept == {"log", "topics", "layout"}, point
        (children,) = registry.read([Children(znodes.group(group))])
        assert isinstance(children, tuple)
        assert "zkgroup" not in children, point

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(kill_and_go_on, range(len(clean)), clean))


@pytest.mark.parametrize("point", ["planned", "files written", "record written"])
def test_a_member_that_loses_its_session_proves_itself_anew(
    brief: Export, filled: str, unique: Callable[[str], str], registry: Registry, cluster: Sandbox,
    committed: Committed, tmp_path: Path, point: str,
) -> None:  # fmt: skip
    """ZooKeeper ends the member's session, and with it its owner nodes: it joins again, and what it is given again is
    exported, as nobody has moved the offsets."""
    group = unique("group")
    path = znodes.owner(group, TopicPartition(filled, 0))

    def expire() -> None:
        (node,) = registry.read([Get(path)])
        assert isinstance(node, Node)
        expire_session(cluster.connect, node.stat.owner)
        wait_until(lambda: isinstance(n := _nodes(registry, [path])[0], Node) and n.stat.owner != node.stat.owner)

    brief(group, filled, join=make_member_config(group), on_point=at(point, expire))
    assert exported(tmp_path / "out") == {number: list(range(EACH)) for number in range(PARTITIONS)}
    assert [committed(group, filled, number) for number in range(PARTITIONS)] == [EACH] * PARTITIONS


def test_what_is_committed_is_finished_with_other_members(
    brief: Export, filled: str, unique: Callable[[str], str], short: ZooKeeperSettings, kafka: KafkaSettings,
    cluster: Sandbox, committed: Committed, tmp_path: Path,
) -> None:  # fmt: skip
    """Killed after its decision, which is its commit: to give it up would lose messages, and is refused; the next
    export publishes them, also while another member has the partitions."""
    group, out = unique("group"), tmp_path / "out"
    drive_export(short, kafka, kill_at="decided", group=group, topics=[filled], out=out, join=True)
    with idle_member(cluster, group, filled):
        with pytest.raises(RefusedError, match=rf"{group}\b.*{out}\b"):
            brief(group, abandon=True)
        brief(group)
    assert exported(out) == {number: list(range(EACH)) for number in range(PARTITIONS)}
    assert [committed(group, filled, number) for number in range(PARTITIONS)] == [EACH] * PARTITIONS


def test_what_others_read_meanwhile_is_a_recorded_gap(
    brief: Export, filled: str, unique: Callable[[str], str], fill: Callable[..., list[ProducerRecord]],
    commit: Callable[..., None], tmp_path: Path,
) -> None:  # fmt: skip
    """Between two joined exports another member reads on: the second one begins at the group's offset, and says so."""
    group, warnings = unique("group"), list[Notice]()
    brief(group, filled, join=make_member_config(group))
    fill(filled, 20, PARTITIONS)
    commit(group, {TopicPartition(filled, 0): EACH + 5})
    rows = brief(group, filled, join=make_member_config(group), on_warning=warnings.append)
    assert [(row.start, row.end, row.rows) for row in rows] == [(EACH + 5, EACH + 10, 5), (EACH, EACH + 10, 10)]
    gaps = [(gap.kind, gap.start, gap.end) for gap in warnings if isinstance(gap, GapNotice)]
    assert gaps == [("members", EACH, EACH + 5)]


def test_a_group_ahead_of_a_joined_export_is_as_it_should_be(
    brief: Export, filled: str, unique: Callable[[str], str], fill: Callable[..., list[ProducerRecord]],
    registry: Registry, commit: Callable[..., None], tmp_path: Path,
) -> None:  # fmt: skip
    """What other members read behind a joined export is noted and no problem, also behind a backfill; a group that is
    behind it, or has lost its offset, is one; and so is one ahead of an export that was not joined."""
    group, destination = unique("group"), Destination(FolderStore(tmp_path / "out"))
    ahead = TopicPartition(filled, 0)
    brief(group, filled, join=make_member_config(group), max_messages=EACH)

    def newest() -> RunRecord:
        record = destination.newest(group)
        assert record is not None
        return record

    def check(*noted: object) -> list[tuple[int | None, int | None, str | None]]:
        """Problems between offsets, with what mends them; one note has the facts that are ``noted``, if there are."""
        notes: list[Notice] = []
        committed = {group: read_committed(registry, group, newest(), notes.append)}
        rows = verify(destination, committed, notes.append)
        assert [names(str(note), *noted) for note in notes] == [True] * bool(noted)
        return [(row.start, row.end, row.mend) for row in rows if row.problem is not None]

    assert check() == []
    end = newest().coverage[filled].ends[0]
    commit(group, {ahead: end + 3})
    assert check(ahead, end + 3) == []
    fill(filled, 20, PARTITIONS)
    brief(group, filled, join=make_member_config(group))
    (skipped,) = [part.skipped for part in newest().partitions if part.partition == ahead]
    assert [(gap.kind, gap.start, gap.end) for gap in skipped] == [("members", end, end + 3)]
    end = newest().coverage[filled].ends[0]
    commit(group, {ahead: end + 1})
    assert check(ahead, end + 1) == []
    filling = Bound("offsets", offsets={ahead: EACH // 2})
    brief(group, filled, backfill=True, begin=filling, until=Bound("offsets", offsets={ahead: EACH // 2 + 1}))
    assert newest().kind == "backfill"
    assert check(ahead, end + 1) == []  # also behind a backfill
    commit(group, {ahead: 1})
    assert check() == [(1, end, "mismatch")]
    commit(group, {ahead: end})
    fill(filled, 20, PARTITIONS)
    brief(group, filled)
    end = newest().coverage[filled].ends[0]
    commit(group, {ahead: end + 1})
    assert check() == [(end, end + 1, "mismatch")]


def test_a_backfill_does_not_join(brief: Export, filled: str, unique: Callable[[str], str]) -> None:
    """It never moves the group, so it has no part in it."""
    group = unique("group")
    with pytest.raises(UsageError, match="--backfill"):
        brief(group, filled, join=make_member_config(group), backfill=True)
