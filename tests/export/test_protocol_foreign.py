"""Exports of a group that somebody else touches meanwhile: seen at every point, and never written over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from export_points import Export, Points, at, points_of
from exports import files_in, messages_in, mismatches_of, nothing_in, published_in
from hidden_groups import CLOSED
from topic_changes import delete_topic

from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import NotFoundError, RefusedError, ZkgroupError
from zkgroup.export.planning.export_request import Bound
from zkgroup.export.planning.mismatch import MismatchError
from zkgroup.export.run.claim import OffsetMovedError
from zkgroup.groups.changes.preconditions import GroupActiveError
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Acl, Check, Children, Code, Create, Delete, Ensure, Exists, Get, Node, Op, Stat
from zkgroup.sandbox.topic_admin import create_topic

READABLE = Acl("world", "anyone", 1)
(HIDDEN,) = CLOSED


@pytest.fixture
def export(brief: Export) -> Export:
    """One export under a short session."""
    return brief


@pytest.fixture
def topic(filled: str) -> str:
    """A topic with a few messages."""
    return filled


def test_a_foreign_commit_before_the_decision_drops_the_run(
    export: Export, topic: str, unique: Callable[[str], str], commit: Callable[..., None],
    committed: Callable[..., Any], registry: Registry, tmp_path: Path,
) -> None:  # fmt: skip
    """Somebody moves an offset at any point before the decision: no trace, and the next export starts there."""
    before, _ = points_of(export, topic, unique, tmp_path)
    one = TopicPartition(topic, 1)
    for number, point in enumerate(before[before.index("planned") :]):
        group, out = unique("foreign"), tmp_path / str(number)
        with pytest.raises(OffsetMovedError, match=rf"{one}\b.*\b{group}\b.*\b7\b"):
            export(group, topic, root=out, on_point=at(point, partial(commit, group, {one: 7})))
        assert nothing_in(out)
        assert registry.read([Children(znodes.group(group))]) == [("offsets",)]
        assert [committed(group, topic, p) for p in range(2)] == [None, 7]
        rows = export(group, topic, root=out)
        assert [(row.start, row.end, row.rows) for row in rows] == [(0, 20, 20), (7, 20, 13)]


def test_a_group_that_may_not_be_locked(
    export: Export, topic: str, unique: Callable[[str], str], registry: Registry, tmp_path: Path
) -> None:
    """Its node takes no others from us: refused, before anything is read, and no failure."""
    group, points = unique("closed"), list[str]()
    above = znodes.export_state(group).rpartition("/")[0]
    registry.write(Ensure(znodes.group(group)))
    assert registry.write(Create(above, acl=(READABLE,))) is None
    closed = rf"{group}\b.*{znodes.export_lock(group)}\b.*{Code.NO_AUTH.value}"
    with pytest.raises(RefusedError, match=closed) as raised:
        export(group, topic, root=tmp_path / "closed", on_point=points.append)
    assert raised.value.remedy is not None
    assert points == []


def test_offsets_that_may_not_be_written_any_more_keep_the_run(
    export: Export, topic: str, unique: Callable[[str], str], registry: Registry, tmp_path: Path
) -> None:
    """Closed behind the decision: the same command finishes it for a user who may write there."""
    group, out = unique("closed"), tmp_path / "closed"
    path = znodes.offset_topic(group, topic)

    def close() -> None:
        registry.write(Ensure(path.rpartition("/")[0]))
        assert registry.write(Create(path, acl=(READABLE,))) is None

    with pytest.raises(ZkgroupError, match=rf"{group}\b.*{path}/\d\b.*{Code.NO_AUTH.value}") as raised:
        export(group, topic, root=out, on_point=at("decided", close))
    assert raised.value.remedy is not None
    registry.write(Delete(path))
    above = path.rpartition("/")[0]
    registry.write(Delete(above))
    registry.write(Create(above, acl=(READABLE,)))
    with pytest.raises(ZkgroupError, match=rf"{group}\b.*{path}(?!/)") as raised:
        export(group, topic, root=out)
    assert raised.value.remedy is not None
    registry.write(Delete(above))
    export(group, topic, root=out)
    assert len(messages_in(out)) == 40


def test_a_node_that_takes_others_and_may_not_be_read_is_no_hindrance(
    export: Export, topic: str, unique: Callable[[str], str], registry: Registry, tmp_path: Path
) -> None:
    """Servers from 3.8 on do not tell that it is there."""
    group = unique("closed")
    path = znodes.offset_topic(group, topic)
    registry.write(Ensure(path.rpartition("/")[0]))
    assert registry.write(Create(path, acl=(Acl("world", "anyone", 4),))) is None
    rows = export(group, topic, root=tmp_path / "closed")
    assert [(row.partition, row.rows) for row in rows] == [(0, 20), (1, 20)]
    paths = [znodes.offset(group, TopicPartition(topic, p)) for p in range(2)]
    assert [cast("Node", node).data for node in registry.read([Get(path) for path in paths])] == [b"20", b"20"]


def test_nodes_that_are_not_written_may_be_closed(
    export: Export, topic: str, unique: Callable[[str], str], registry: Registry, commit: Callable[..., None],
    committed: Callable[..., Any], tmp_path: Path,
) -> None:  # fmt: skip
    """The offset of a partition that has nothing new; the group's own node, from which nothing may be taken away."""
    group = unique("closed")
    root, path = znodes.group(group), znodes.offset(group, TopicPartition(topic, 1))
    assert registry.write(Create(root, acl=(Acl("world", "anyone", 1 | 4),))) is None
    registry.write(Ensure(path.rpartition("/")[0]))
    assert registry.write(Create(path, b"20", acl=(READABLE,))) is None
    rows = export(group, topic, root=tmp_path / "closed")
    assert [(row.partition, row.rows) for row in rows if row.rows] == [(0, 20)]
    assert [committed(group, topic, p) for p in range(2)] == [20, 20]
    assert registry.read([Children(znodes.export_state(group).rpartition("/")[0])]) == [()], (
        "what may not be taken away"
    )


def test_a_foreign_commit_after_the_decision_stays(
    export: Export, topic: str, unique: Callable[[str], str], commit: Callable[..., None],
    committed: Callable[..., Any], registry: Registry, tmp_path: Path,
) -> None:  # fmt: skip
    """Somebody moves an offset between decision and commit: it stays, the others are committed, and the run ends with
    its name. The next export sees that group and destination disagree."""
    _, after = points_of(export, topic, unique, tmp_path)
    one = TopicPartition(topic, 1)
    last = next(number for number, point in enumerate(after) if point.startswith("transaction"))
    each = [f"topic={topic}/partition={p}/{s}-{s + 10}.parquet" for p in range(2) for s in (0, 10)]
    for number, point in enumerate(after[: last + 1]):
        group, out = unique("foreign"), tmp_path / str(number)
        with pytest.raises(RefusedError, match=rf"{group}\b.*{one}\b.*\b7\b.*\b20\b.*--on-mismatch"):
            export(group, topic, root=out, on_point=at(point, partial(commit, group, {one: 7})))
        assert [committed(group, topic, p) for p in range(2)] == [20, 7], point
        assert registry.read([Children(znodes.group(group))]) == [("offsets",)]
        assert published_in(out) == each
        with pytest.raises(MismatchError) as raised:
            export(group, topic, root=out)
        assert mismatches_of(raised.value) == [(one, "behind", 7, 20)]
        commit(group, {one: 20})
        assert [row.rows for row in export(group, topic, root=out)] == [0, 0]
        with pytest.raises(NotFoundError, match=group):
            export(group, topic, root=out, abandon=True)


@pytest.fixture
def export_half(
    export: Export, topic: str, unique: Callable[[str], str], tmp_path: Path
) -> Callable[[], tuple[str, Path]]:
    """``export_half()``: a group whose first half was exported, so that its offset nodes exist, and its folder."""

    def begin() -> tuple[str, Path]:
        group = unique("second")
        export(
            group,
            topic,
            root=tmp_path / group,
            until=Bound("offsets", offsets={TopicPartition(topic, p): 10 for p in range(2)}),
        )
        return group, tmp_path / group

    return begin


def test_a_foreign_commit_under_the_transaction_is_not_written_over(
    export: Export, topic: str, export_half: Callable[[], tuple[str, Path]], commit: Callable[..., None],
    committed: Callable[..., Any],
) -> None:  # fmt: skip
    """Offsets that exist already are moved behind the decision, also between the commit's last read of them and its
    transaction: only the transaction itself can refuse to write over them."""
    points: Points = []
    group, out = export_half()
    export(group, topic, root=out, on_point=points.append)
    last = next(point for point in points if point.startswith("transaction"))
    assert last == "transaction 1 of 1"
    one = TopicPartition(topic, 1)
    for point in points[points.index("decided") : points.index(last) + 1]:
        group, out = export_half()
        with pytest.raises(RefusedError, match=rf"{group}\b.*{one}\b.*\b10\b.*\b7\b.*\b20\b.*--on-mismatch"):
            export(group, topic, root=out, on_point=at(point, partial(commit, group, {one: 7})))
        assert [committed(group, topic, p) for p in range(2)] == [20, 7], point
        assert len(published_in(out)) == 4


def test_a_foreign_commit_under_the_decision_refuses_it(
    export: Export, topic: str, export_half: Callable[[], tuple[str, Path]], commit: Callable[..., None],
    committed: Callable[..., Any], registry: Registry, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Another client moves an offset between the decision's last read and its transaction: it is not decided, and
    the run is dropped as if that had been seen before."""
    group, out = export_half()
    one, transact = TopicPartition(topic, 1), Registry.transaction

    def late(mine: Registry, ops: Sequence[Op]) -> None:
        if any(isinstance(op, Check) for op in ops):
            monkeypatch.setattr(Registry, "transaction", transact)
            commit(group, {one: 7})
        transact(mine, ops)

    points: Points = []

    def passed(point: str) -> None:
        points.append(point)
        if point == "record written":
            monkeypatch.setattr(Registry, "transaction", late)

    before = files_in(out)
    with pytest.raises(OffsetMovedError, match=rf"{one}\b.*\b{group}\b.*\b10\b.*\b7\b"):
        export(group, topic, root=out, on_point=passed)
    assert Registry.transaction is transact  # it was seen by the transaction
    assert "decided" not in points
    assert files_in(out) == before
    assert [committed(group, topic, p) for p in range(2)] == [10, 7]
    assert registry.read([Children(znodes.group(group))]) == [("offsets",)]


def test_members_that_come_are_heard_before_the_decision_and_before_the_commit(
    export: Export, topic: str, unique: Callable[[str], str], is_complete: Callable[..., None], registry: Registry,
    tmp_path: Path, short: ZooKeeperSettings,
) -> None:  # fmt: skip
    """Before the decision the run is dropped; after it, it is finished as soon as they have gone."""
    group = unique("joined")
    with Registry(short) as member:

        def join() -> None:
            member.write(Ensure(znodes.ids(group)))
            member.write(Create(znodes.member_id(group, f"{group}_m"), b"{}", ephemeral=True))

        with pytest.raises(GroupActiveError) as refused:
            export(group, topic, on_point=at("files written", join))
        assert refused.value.members == (f"{group}_m",)
    assert nothing_in(tmp_path / "out")
    with Registry(short) as member, pytest.raises(RefusedError, match=rf"\d-\w+.*{group}\b.*\b{group}_m\b") as raised:
        export(group, topic, on_point=at("decided", join))
    assert raised.value.remedy is not None
    assert len(published_in(tmp_path / "out")) == 4
    registry.read([Children(znodes.ids(group))])
    export(group, topic)
    registry.write(Delete(znodes.ids(group)))
    is_complete(group, topic, tmp_path / "out")


def test_a_recreated_topic_is_never_committed_over(
    export: Export, unique: Callable[[str], str], registry: Registry, fill: Callable[..., object],
    committed: Callable[..., Any], tmp_path: Path,
) -> None:  # fmt: skip
    """Deleted and created again before the decision: the run is dropped. After it: nothing is committed, and the files
    stay; the next export sees what it was, and writes the new log's messages next to the old ones."""
    topic, group = unique("again"), unique("group")
    create_topic(registry, topic)
    fill(topic, 10)

    def recreate() -> None:
        delete_topic(registry, topic)
        create_topic(registry, topic)
        fill(topic, 10)

    with pytest.raises(RefusedError, match=rf"\b{topic}\b"):
        export(group, topic, on_point=at("files written", recreate))
    assert nothing_in(tmp_path / "out")
    with pytest.raises(RefusedError, match=rf"{group}\b.*\b{topic}\b(?!-0).*--on-mismatch"):
        export(group, topic, on_point=at("decided", recreate))
    assert committed(group, topic) is None
    assert published_in(tmp_path / "out") == [f"topic={topic}/partition=0/0-10.parquet"]
    with pytest.raises(MismatchError) as raised:
        export(group, topic)
    assert mismatches_of(raised.value) == [(TopicPartition(topic, 0), "recreated", None, None)]
    assert [answer for answer, _ in raised.value.answers] == ["lake", "skip"]
    fill(topic, 5)
    (row,) = export(group, topic, on_mismatch="lake")
    assert (row.start, row.end, row.rows) == (0, 15, 15)
    names = published_in(tmp_path / "out")
    (stat,) = registry.read([Exists(znodes.topic(topic))])
    tag = f"{cast('Stat', stat).czxid:x}"
    folder = f"topic={topic}/partition=0"
    assert names == sorted([f"{folder}/0-10.parquet", f"{folder}/0-7.g{tag}.parquet", f"{folder}/7-15.g{tag}.parquet"])
    fill(topic, 3)
    (row,) = export(group, topic)
    assert (row.start, row.end, row.rows) == (15, 18, 3)
