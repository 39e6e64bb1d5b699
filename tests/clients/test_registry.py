"""Synchronous access to ZooKeeper, on a real one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from session_expiry import expire_session
from support import wait_until
from tcp_proxy import TcpProxy

from zkgroup.clients.connection_security import ConnectionFailure, FailureCause
from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry, TransactionRefusedError
from zkgroup.errors import UnreachableError
from zkgroup.protocol.operations import (
    Children,
    Code,
    Create,
    Delete,
    Ensure,
    Exists,
    Failure,
    Get,
    Node,
    SetData,
    Stat,
)
from zkgroup.sandbox.local_cluster import Sandbox


@pytest.fixture
def root(zookeeper: Sandbox, unique: Callable[[str], str]) -> Iterator[Registry]:
    """A registry below a chroot of its own."""
    chroot = f"/{unique('registry')}"
    with Registry(ZooKeeperSettings(zookeeper.address, connect_timeout=20.0)) as plain:
        plain.write(Ensure(chroot))
    with Registry(ZooKeeperSettings(zookeeper.address + chroot, connect_timeout=20.0)) as registry:
        yield registry


def test_reads_are_answered_in_their_order(root: Registry) -> None:
    """Thousands at once, nodes that are missing among them."""
    for number in range(0, 30, 2):
        root.write(Create(f"/{number}", b"%d" % number))
    ops = [Get(f"/{number % 30}") for number in range(6000)]
    results = root.read(ops)
    assert [isinstance(result, Node) for result in results] == [number % 2 == 0 for number in range(6000)]
    assert results[1] == Failure(Code.NO_NODE, "NoNodeError")
    assert root.read([]) == []


def test_answers_of_any_size_are_put_together(root: Registry) -> None:
    """Large nodes and lists among small ones: what is read at one go ends anywhere in an answer."""
    sizes = [0, 1, 65_000, 65_536, 200_000, 900_000]
    for number, size in enumerate(sizes):
        root.write(Create(f"/{number}", bytes([65 + number]) * size))
    names = [f"{number:0200d}" for number in range(1000)]
    root.read([Create("/list"), *(Create(f"/list/{name}") for name in names)])
    wanted = [number % len(sizes) for number in range(60)]
    found = root.read([op for number in wanted for op in (Get(f"/{number}"), Children("/list"))])
    assert [result.data for result in found if isinstance(result, Node)] == [
        bytes([65 + number]) * sizes[number] for number in wanted
    ]
    assert [isinstance(result, tuple) and sorted(result) == names for result in found[1::2]] == [True] * 60


def test_writes_return_their_failures(root: Registry) -> None:
    """A refused write is an answer, not an exception."""
    assert root.write(Create("/a", b"1")) is None
    assert root.write(Create("/a")) == Failure(Code.NODE_EXISTS, "NodeExistsError")
    assert isinstance(root.write(SetData("/a", b"2", 0)), Stat)
    refused = root.write(SetData("/a", b"3", 0))
    assert isinstance(refused, Failure)
    assert refused.code is Code.BAD_VERSION


def test_a_transaction_is_all_or_nothing(root: Registry) -> None:
    """One obstacle, and nothing of it is applied; the error shows which it was."""
    root.write(Create("/a", b"1"))
    with pytest.raises(TransactionRefusedError, match="/a") as caught:
        root.transaction([Create("/b"), Delete("/a", 7), Create("/c")])
    assert (caught.value.index, caught.value.path, caught.value.failure.code) == (1, "/a", Code.BAD_VERSION)
    assert root.read([Children("/")]) == [("a",)]
    root.transaction([Create("/b"), Delete("/a", 0)])
    assert root.read([Children("/")]) == [("b",)]


def test_a_chroot_is_there_or_not(zookeeper: Sandbox, root: Registry, unique: Callable[[str], str]) -> None:
    """Without one it always is."""
    assert root.has_chroot()
    with Registry(ZooKeeperSettings(zookeeper.address, connect_timeout=20.0)) as plain:
        assert plain.has_chroot()
    with Registry(ZooKeeperSettings(f"{zookeeper.address}/{unique('none')}", connect_timeout=20.0)) as nowhere:
        assert not nowhere.has_chroot()


@pytest.mark.parametrize("hosts", ["127.0.0.1:1", "no.such.host.invalid:2181"])
def test_nobody_there_is_an_error_in_time(hosts: str) -> None:
    """Exit code 3, within the time-out, and no thread left behind for it."""
    began = time.monotonic()
    with pytest.raises(UnreachableError, match=hosts.split(":")[0]), Registry(ZooKeeperSettings(hosts), 1.0):
        pass
    assert time.monotonic() - began < 6.0


def test_a_dropped_connection_is_waited_out_by_reads(zookeeper: Sandbox) -> None:
    """What was asked and not answered is asked again on the next connection."""
    with TcpProxy(zookeeper.address) as proxy, Registry(ZooKeeperSettings(proxy.address), 20.0) as registry:
        for _ in range(3):
            proxy.drop()
            assert isinstance(registry.read([Exists("/")])[0], Stat)


def test_a_server_that_falls_silent_is_an_error_in_time(zookeeper: Sandbox) -> None:
    """Reads end after the time-out, though the connection is up."""
    with TcpProxy(zookeeper.address) as proxy, Registry(ZooKeeperSettings(proxy.address), 5.0) as registry:
        registry.timeout = 0.5
        proxy.stall()
        began = time.monotonic()
        with pytest.raises(UnreachableError, match=rf"{proxy.address}\b.*\b0\.5 s"):
            registry.read([Exists("/")])
        assert time.monotonic() - began < 3.0


def test_an_expired_session_is_known(zookeeper: Sandbox) -> None:
    """What is held by an ephemeral node must be given up then: ``lost`` shows, and reads say why they fail."""
    with Registry(ZooKeeperSettings(zookeeper.address), 20.0) as registry:
        assert not registry.is_lost
        expire_session(zookeeper.address, registry.session_id)
        wait_until(lambda: registry.is_lost, 10, "the end is heard of")
        with pytest.raises(UnreachableError, match=zookeeper.address):
            registry.read([Exists("/")])


def test_many_threads_may_read(root: Registry) -> None:
    """A registry may be shared."""
    root.write(Create("/a", b"1"))
    found: list[int] = []

    def read() -> None:
        found.append(sum(isinstance(result, Node) for result in root.read([Get("/a")] * 500)))

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == [500] * 8


def test_what_became_of_a_change_is_reported_of_its_own_error_alone() -> None:
    """The failure of a connection is the answer to every request after it, and stays as it was."""
    registry = Registry(ZooKeeperSettings("127.0.0.1:1"))
    refused = ConnectionFailure(FailureCause.LOGIN_REFUSED, "it refuses the user", "check it", is_final=False)
    registry._on_connection_failure(refused)
    registry._gone().add_outcome("nothing was written")
    assert registry._gone().message == "it refuses the user"
