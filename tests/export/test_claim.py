"""The claim on a group: its lock, and a commit that never writes over anybody."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from lines import names
from msgspec.structs import replace
from support import wait_until
from tcp_proxy import TcpProxy

from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import AlreadyRunningError, MalformedZnodeError, Notice, UnreachableError
from zkgroup.export.model.run_record import RecordPart
from zkgroup.export.run.claim import ExportClaim, OffsetMovedError, TakenOverError, split_transaction
from zkgroup.groups.changes.export_znodes import Pointer, decode_pointer, encode_pointer
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Acl, Children, Create, Ensure, Exists, Get, Node, SetData
from zkgroup.sandbox.local_cluster import Sandbox

Commit = Callable[[str, dict[TopicPartition, int]], None]
Committed = Callable[..., int | None]
PLANNED = Pointer("planned", "00000001-aaaaaaaa", "/out")
DECIDED = Pointer("decided", "00000001-aaaaaaaa", "/out", "hash of the record", {"t": {0: (0, 10)}})


@pytest.fixture
def group(unique: Callable[[str], str]) -> str:
    """A group that nobody knows yet."""
    return unique("group")


def claim_for(registry: Registry, group: str, warn: Callable[[str], None] = lambda _: None) -> ExportClaim:
    return ExportClaim(registry, group, warn)


def part(topic: str, number: int, version: int | None, committed: int | None, end: int) -> RecordPart:
    """A part of a record that moves the offset to ``end``."""
    start = committed or 0
    partition = TopicPartition(topic, number)
    return RecordPart(partition, committed, version, start, end, rows=end - start, undecodable=0, gaps={})


def version_of(registry: Registry, group: str, topic: str, number: int = 0) -> int | None:
    (node,) = registry.read([Get(znodes.offset(group, TopicPartition(topic, number)))])
    return node.stat.version if isinstance(node, Node) else None


def test_a_transaction_takes_access_lists_too(cluster: Sandbox, unique: Callable[[str], str]) -> None:
    """Thousands of offsets that are made with long ones: no request is larger than a server takes."""
    acl = (*(Acl("digest", f"{'u' * 40}{number}:{'h' * 27}=", 31) for number in range(2)), Acl("world", "anyone", 31))
    topic, group = "t", unique("group")
    with Registry(ZooKeeperSettings(cluster.connect, acl=acl), 20.0) as registry:
        registry.write(Ensure(znodes.offset_topic(group, topic)))
        ops = [Create(znodes.offset(group, TopicPartition(topic, number)), b"0") for number in range(5000)]
        pieces = split_transaction(ops, registry.settings)
        assert [op for piece in pieces for op in piece] == ops
        for piece in pieces:
            registry.transaction(piece)


def test_two_exports_of_a_group_do_not_overlap(
    group: str, registry: Registry, cluster: Sandbox, unique: Callable[[str], str]
) -> None:
    """The second one is refused after it has waited out a session, and names who has the lock."""
    settings = ZooKeeperSettings(cluster.connect, session_timeout=1.0)
    warnings: list[Notice] = []
    with claim_for(registry, group), Registry(settings) as other:
        with (
            pytest.raises(AlreadyRunningError) as refused,
            claim_for(other, group, warnings.append),
        ):
            pytest.fail("locked twice")
        with claim_for(other, unique("group"), warnings.append):
            pass  # another group's export is not in the way
    holder = (group, socket.gethostname(), os.getpid())
    assert names(str(refused.value), *holder)
    assert [names(str(warning), *holder) for warning in warnings] == [True]


def test_a_lock_whose_holder_died_is_waited_out(group: str, cluster: Sandbox) -> None:
    """The lock goes with its session: the next export takes it over by itself."""
    settings = ZooKeeperSettings(cluster.connect, session_timeout=3.0)
    holder = Registry(settings).__enter__()
    path = znodes.export_lock(group)
    holder.write(Ensure(znodes.export_state(group)))
    holder.write(Create(path, b"not json", ephemeral=True))
    with (
        Registry(settings) as other,
        claim_for(other, group, lambda _: threading.Thread(target=holder.close).start()),
    ):
        (stat,) = other.read([Exists(path)])
        assert stat.owner == other.session_id  # type: ignore[union-attr]


def test_the_lock_leaves_nothing_behind(group: str, registry: Registry) -> None:
    """A group that existed only for the lock is gone after it; one with offsets keeps them and nothing else."""
    with claim_for(registry, group):
        assert registry.read([Exists(znodes.export_lock(group))])[0] is not None
    assert registry.read([Exists(znodes.group(group))])[0] is None
    registry.write(Ensure(znodes.offsets(group)))
    with claim_for(registry, group):
        pass
    assert registry.read([Children(znodes.group(group))]) == [("offsets",)]


def test_a_claim_that_is_let_go_leaves_the_pointer(group: str, registry: Registry) -> None:
    """An unfinished run stays for the next export; and the same data in the same place is no other run's."""
    with claim_for(registry, group) as claim:
        claim.point(None, PLANNED)
        claim.point(None, PLANNED)  # repeated, as after a lost answer
    with claim_for(registry, group) as claim:
        assert claim.pointer()[0] == PLANNED
        with pytest.raises(TakenOverError, match=r"\b00000001-aaaaaaaa\b.*\bplanned\b"):
            claim.point(None, DECIDED)
        with pytest.raises(TakenOverError):
            claim.commit(DECIDED, [])
        assert not claim.drop(DECIDED)
        assert claim.drop(PLANNED)
    assert registry.read([Exists(znodes.group(group))]) == [None]


def test_a_commit_moves_and_creates_offsets_and_ends_the_run(
    group: str, registry: Registry, commit: Commit, committed: Committed
) -> None:
    """Offsets that exist are moved, missing ones made; what does not move is not written; pointer and lock are gone."""
    commit(group, {TopicPartition("t", 0): 4, TopicPartition("t", 2): 10})
    before = version_of(registry, group, "t", 0)
    still = version_of(registry, group, "t", 2)
    parts = [part("t", 0, before, 4, 10), part("t", 1, None, None, 10), part("t", 2, still, 10, 10)]
    with claim_for(registry, group) as claim:
        claim.point(None, PLANNED)
        claim.point(PLANNED, DECIDED, parts)
        assert claim.unmoved(parts) == {TopicPartition("t", number) for number in range(3)}
        claim.commit(DECIDED, parts)
        assert claim.unmoved(parts) == {TopicPartition("t", 2)}
        claim.commit(DECIDED, parts)  # repeated, as after a lost answer
    assert [committed(group, "t", number) for number in range(3)] == [10, 10, 10]
    assert [version_of(registry, group, "t", n) for n in range(3)] == [(before or 0) + 1, 0, still]
    assert registry.read([Children(znodes.group(group))]) == [("offsets",)]


@pytest.mark.parametrize("what", ["decision", "joined decision", "commit", "drop"])
def test_a_run_that_is_taken_over_under_a_change_is_the_others(
    group: str, registry: Registry, cluster: Sandbox, committed: Committed, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process writes the pointer between the read and the change: only its version shows that.
    Nothing of ours is done, and the pointer stays as it is."""
    parts = [part("t", 0, None, None, 10)]
    with Registry(ZooKeeperSettings(cluster.connect)) as ours, claim_for(ours, group) as claim:
        begun = DECIDED if what == "commit" else PLANNED
        claim.point(None, begun)
        theirs = replace(begun, run="00000001-bbbbbbbb")
        ways: dict[str, Callable[[], object]] = {
            "decision": lambda: claim.point(PLANNED, DECIDED),
            "joined decision": lambda: claim.decide_and_commit(PLANNED, DECIDED, []),
            "commit": lambda: claim.commit(DECIDED, parts),
            "drop": lambda: claim.drop(PLANNED),
        }
        name = "write" if what == "drop" else "transaction"
        change = getattr(ours, name)

        def late(ops: Any) -> Any:
            monkeypatch.setattr(ours, name, change)
            registry.write(SetData(znodes.export_state(group), encode_pointer(theirs)))
            return change(ops)

        monkeypatch.setattr(ours, name, late)
        if what == "drop":
            assert ways[what]() is False
        else:
            with pytest.raises(TakenOverError, match="00000001-bbbbbbbb"):
                ways[what]()
        assert getattr(ours, name) is change
        assert claim.pointer()[0] == theirs
    assert committed(group, "t") is None


@pytest.mark.parametrize("existed", [True, False])
def test_a_foreign_commit_refuses_the_decision_and_stays(
    group: str, registry: Registry, commit: Commit, committed: Committed, existed: bool
) -> None:
    """One offset that somebody moved or made since the plan: nothing is decided. Behind the decision theirs stays, the
    others are moved, and the run ends."""
    if existed:
        commit(group, {TopicPartition("t", 0): 1, TopicPartition("t", 1): 1})
    was = 1 if existed else None
    parts = [part("t", n, version_of(registry, group, "t", n), was, 10) for n in range(2)]
    commit(group, {TopicPartition("t", 1): 7})
    with claim_for(registry, group) as claim:
        claim.point(None, PLANNED)
        with pytest.raises(OffsetMovedError, match=r"\bt-1\b.*\b7\b"):
            claim.point(PLANNED, DECIDED, parts)
        assert claim.pointer()[0] == PLANNED
        claim.point(PLANNED, DECIDED)
        assert [committed(group, "t", n) for n in range(2)] == [was, 7]
        assert claim.commit(DECIDED, parts) == [(parts[1], 7)]
        assert claim.commit(DECIDED, parts) == []  # which another process has ended: it has reported of them
    assert [committed(group, "t", n) for n in range(2)] == [10, 7]
    assert registry.read([Children(znodes.group(group))]) == [("offsets",)]


def test_an_offset_that_is_to_stay_is_not_moved(group: str, registry: Registry, committed: Committed) -> None:
    """That of a topic which is not the exported one any more."""
    parts = [part("t", n, None, None, 10) for n in range(2)]
    with claim_for(registry, group) as claim:
        claim.point(None, DECIDED)
        assert claim.commit(DECIDED, parts, leave=frozenset({TopicPartition("t", 1)})) == []
    assert [committed(group, "t", n) for n in range(2)] == [10, None]


def test_a_foreign_commit_of_the_same_value_is_noticed(group: str, registry: Registry, commit: Commit) -> None:
    """Versions are compared, not values: a group set back and forth is not the group of the plan."""
    commit(group, {TopicPartition("t", 0): 3})
    parts = [part("t", 0, version_of(registry, group, "t"), 3, 10)]
    commit(group, {TopicPartition("t", 0): 3})
    with claim_for(registry, group) as claim:
        claim.point(None, DECIDED)
        assert claim.commit(DECIDED, parts) == [(parts[0], 3)]


def test_a_large_group_is_committed_in_pieces_that_can_be_replayed(
    group: str, registry: Registry, unique: Callable[[str], str], committed: Committed
) -> None:
    """ZooKeeper drops the connection above 1 MiB a request: five thousand partitions with long names still commit, and
    one that was stopped between two pieces goes on with the rest."""
    topic = unique("long") + "x" * 200
    parts = [part(topic, number, None, None, 5) for number in range(5000)]
    passed: list[str] = []

    def stop(point: str) -> None:
        passed.append(point)
        if len(passed) == 2:
            raise KeyboardInterrupt

    with claim_for(registry, group) as claim:
        claim.point(None, DECIDED)
        with pytest.raises(KeyboardInterrupt):
            claim.commit(DECIDED, parts, on_point=stop)
    assert passed[1] == passed[0].replace("transaction 1", "transaction 2")
    assert committed(group, topic, 0) == 5
    assert committed(group, topic, 4999) is None
    with claim_for(registry, group) as claim:
        assert claim.pointer()[0] == DECIDED
        claim.commit(DECIDED, parts)
        assert claim.unmoved(parts) == set()
    assert registry.read([Children(znodes.group(group))]) == [("offsets",)]


@pytest.fixture
def through_proxy(cluster: Sandbox) -> Iterator[tuple[TcpProxy, Registry]]:
    """A registry whose connection a test can cut."""
    hosts, _, chroot = cluster.connect.partition("/")
    with TcpProxy(hosts) as proxy:
        settings = ZooKeeperSettings(f"{proxy.address}/{chroot}", session_timeout=2.0, connect_timeout=3.0)
        with Registry(settings) as registry:
            yield proxy, registry


@pytest.mark.parametrize("what", ["commit", "decision"])
@pytest.mark.parametrize("held", ["requests", "replies"])
def test_what_was_lost_on_the_wire_is_found_out(
    through_proxy: tuple[TcpProxy, Registry], group: str, registry: Registry, commit: Commit, committed: Committed,
    held: str, what: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The connection dies under the decision or the commit: the next read shows whether it was applied; it happens
    exactly once."""
    proxy, theirs = through_proxy
    commit(group, {TopicPartition("t", 0): 2})
    before = version_of(registry, group, "t")
    parts = [part("t", 0, before, 2, 10)]

    def state() -> tuple[object, ...]:
        (node,) = registry.read([Get(znodes.export_state(group))])
        return committed(group, "t"), node.data if isinstance(node, Node) else None

    transact = theirs.transaction

    def into_the_void(ops: Any) -> None:
        monkeypatch.setattr(theirs, "transaction", transact)
        proxy.stall(held)
        sent.set()
        transact(ops)

    sent = threading.Event()
    with claim_for(theirs, group) as claim, ThreadPoolExecutor(1) as pool:
        claim.point(None, PLANNED if what == "decision" else DECIDED)
        was = state()
        monkeypatch.setattr(theirs, "transaction", into_the_void)
        if what == "decision":
            under_way = pool.submit(claim.point, PLANNED, DECIDED, parts)
        else:
            under_way = pool.submit(claim.commit, DECIDED, parts)
        assert sent.wait(30)
        if held == "replies":
            wait_until(lambda: state() != was, what="the transaction is applied, unseen by its author")
        proxy.cut()
        proxy.heal()
        under_way.result(60)
        if what == "decision":
            claim.commit(DECIDED, parts)
    assert committed(group, "t") == 10
    assert version_of(registry, group, "t") == (before or 0) + 1
    assert registry.read([Children(znodes.group(group))]) == [("offsets",)]


def test_zookeeper_that_stays_away_is_reported(through_proxy: tuple[TcpProxy, Registry], group: str) -> None:
    """Not for ever: after a while an export that cannot reach ZooKeeper says so, and the run waits where it is."""
    proxy, theirs = through_proxy
    with claim_for(theirs, group) as claim:
        claim.point(None, DECIDED)
        claim._reconnect_timeout = 1.0
        proxy.stall("requests")
        proxy.cut()
        with pytest.raises(UnreachableError):
            claim.commit(DECIDED, [])
        proxy.heal()


@pytest.mark.parametrize(
    ("data", "facts"),
    [
        (b'{"format":2,"state":"decided","run":"r","output":"/x","new":1}', (2, 1)),
        (b'{"format":1,"state":"begun","run":"r","output":"/x"}', ("'begun'",)),
        (b"no JSON", ("JSON",)),
    ],
)
def test_a_pointer_that_is_not_understood(data: bytes, facts: tuple[object, ...]) -> None:
    """A newer format is named, as a copy does not help then."""
    with pytest.raises(MalformedZnodeError) as refused:
        decode_pointer("/consumers/g/zkgroup/export", data)
    assert names(refused.value.message, "/consumers/g/zkgroup/export", *facts)
    assert ("copy" in str(refused.value.remedy)) == (facts != (2, 1))
