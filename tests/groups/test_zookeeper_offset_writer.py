"""The guarded writing of offsets, on a real ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from guarded_changes import Build, Meddler, P, plan, register, seen, values

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.groups.changes.change_reports import WriteReport
from zkgroup.groups.changes.plan import StalePlanError
from zkgroup.groups.changes.preconditions import GroupActiveError
from zkgroup.groups.changes.zookeeper_offset_writer import write_offsets
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import Children, Create, Delete, Ensure, SetData


def test_offsets_are_written_created_and_deleted(registry: Registry, make_group: Build) -> None:
    """One transaction changes, makes and deletes; what has its value already is left alone; ids keep being there."""
    group = make_group({P("t", 0): 5, P("t", 1): 6, P("u", 0): 7})
    version_before = seen(registry, group, P("t", 1))
    wanted = {P("t", 0): 50, P("t", 1): 6, P("new", 3): 9, P("u", 0): None}
    report = write_offsets(registry, group, plan(registry, group, wanted))
    assert report == WriteReport((P("new", 3), P("t", 0), P("u", 0)))
    assert values(registry, group, *wanted) == [50, 6, 9, None]
    assert seen(registry, group, P("t", 1)) == version_before
    assert registry.read([Children(znodes.ids(group)), Children(znodes.offset_topic(group, "u"))]) == [(), ()]


def test_a_group_that_does_not_exist_is_made_with_its_offsets(registry: Registry, unique: Callable[[str], str]) -> None:
    """All parents come with the first transaction, and no ids node stays that was not there."""
    group = unique("fresh")
    report = write_offsets(registry, group, plan(registry, group, {P("t", 0): 1, P("u", 2): 2}))
    assert report.written == (P("t", 0), P("u", 2))
    assert set(registry.read([Children(znodes.group(group))])[0]) == {"offsets"}  # type: ignore[arg-type]
    assert values(registry, group, P("t", 0), P("u", 2)) == [1, 2]


def test_an_active_group_is_refused(registry: Registry, second: Registry, make_group: Build) -> None:
    """The message names the member and its host, the exit code is 5, and nothing changes."""
    group = make_group({P("t", 0): 5})
    writes = plan(registry, group, {P("t", 0): 1, P("new", 0): 1})
    register(second, group, "host.one-1411294187842-ab12cd34")
    with pytest.raises(GroupActiveError, match=r"\bhost\.one\b") as caught:
        write_offsets(registry, group, writes)
    assert caught.value.exit_code == 5
    assert caught.value.members == (f"{group}_host.one-1411294187842-ab12cd34",)
    assert values(registry, group, P("t", 0), P("new", 0)) == [5, None]


@pytest.mark.parametrize("ids", [True, False])
def test_a_member_that_comes_after_the_last_read_wins(
    registry: Registry, second: Registry, make_group: Build, ids: bool
) -> None:
    """It registers between read and transaction: nothing is overwritten, and no node that was made stays behind."""
    group = make_group({P("t", 0): 5}, ids=ids)
    with Meddler(registry.settings, lambda n: register(second, group) if n == 1 else None) as meddler:
        writes = plan(registry, group, {P("t", 0): 1, P("new", 0): 1})
        with pytest.raises(GroupActiveError):
            write_offsets(meddler, group, writes)
        assert meddler.transactions == 1
    assert values(registry, group, P("t", 0)) == [5]
    assert registry.read([Children(znodes.offsets(group))]) == [("t",)]
    assert len(registry.read([Children(znodes.ids(group))])[0]) == 1  # type: ignore[arg-type]


def test_an_ids_node_that_appears_meanwhile_is_no_member(
    registry: Registry, second: Registry, make_group: Build
) -> None:
    """A member that has made ids, and is not registered yet: the write comes before it, wholly."""
    group = make_group({P("t", 0): 5}, ids=False)
    with Meddler(registry.settings, lambda n: second.write(Ensure(znodes.ids(group)))) as meddler:
        report = write_offsets(meddler, group, plan(registry, group, {P("t", 0): 1}))
        assert (report.written, meddler.transactions) == ((P("t", 0),), 2)
    register(second, group)
    assert values(registry, group, P("t", 0)) == [1]


@pytest.mark.parametrize("when", ["before the read", "after the read"])
def test_an_offset_that_moved_is_not_overwritten(
    registry: Registry, second: Registry, make_group: Build, when: str
) -> None:
    """Nothing of the transaction is applied, and the message names the partition with both values."""
    group = make_group({P("t", 0): 5, P("t", 1): 6})

    def move(number: int) -> None:
        if number == 1:
            second.write(SetData(znodes.offset(group, P("t", 1)), b"66"))

    writes = plan(registry, group, {P("t", 0): 1, P("t", 1): 1})
    if when == "before the read":
        move(1)
    with (
        Meddler(registry.settings, move if when == "after the read" else lambda n: None) as meddler,
        pytest.raises(StalePlanError, match=r"\bt-1\b.*\b6\b.*\b66\b"),
    ):
        write_offsets(meddler, group, writes)
    assert values(registry, group, P("t", 0), P("t", 1)) == [5, 66]


@pytest.mark.parametrize("now", [b"5", b"77"])
def test_a_recreated_node_is_another(registry: Registry, second: Registry, make_group: Build, now: bytes) -> None:
    """Version 0 again, perhaps with the same value: it is not what the plan saw."""
    group = make_group({P("t", 0): 5})
    writes = plan(registry, group, {P("t", 0): 1})
    path = znodes.offset(group, P("t", 0))
    second.write(Delete(path))
    second.write(Create(path, now))
    with pytest.raises(StalePlanError, match=rf"\bt-0\b.*\b5\b.*\b{now.decode()}\b"):
        write_offsets(registry, group, writes)
    assert values(registry, group, P("t", 0)) == [int(now)]


def test_offsets_that_vanished_or_appeared_are_changes(registry: Registry, second: Registry, make_group: Build) -> None:
    """Neither is one made that somebody deleted, nor one overwritten that the plan did not see."""
    group = make_group({P("t", 0): 5})
    writes = plan(registry, group, {P("t", 0): 1, P("t", 1): 1})
    second.write(Delete(znodes.offset(group, P("t", 0))))
    second.write(Create(znodes.offset(group, P("t", 1)), b"9"))
    with pytest.raises(StalePlanError, match=r"\bt-0\b.*\b5\b.*\bnone\b.*\bt-1\b.*\bnone\b.*\b9\b"):
        write_offsets(registry, group, writes)
    assert values(registry, group, P("t", 0), P("t", 1)) == [None, 9]
