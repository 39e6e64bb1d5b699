"""A session on a real ZooKeeper: what it shows when connections and sessions end."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from session_expiry import expire_session
from support import wait_until
from tcp_proxy import TcpProxy

from zkgroup.clients.zookeeper import Session, ZooKeeperSettings
from zkgroup.protocol.operations import (
    Changed,
    Code,
    Connected,
    Create,
    Delete,
    Disconnected,
    Ensure,
    Exists,
    Expired,
    Failure,
    Op,
    Result,
    SessionEvent,
    Sync,
)
from zkgroup.sandbox.local_cluster import Sandbox


class Client:
    """A session and its events."""

    def __init__(self, hosts: str, timeout: float = 6.0, **options: object) -> None:
        self.events: list[SessionEvent] = []
        self.session = Session(ZooKeeperSettings(hosts, timeout, **options), self.events.append)  # type: ignore[arg-type]
        self.session.start()

    def wait_for(self, kind: type, count: int = 1, timeout: float = 20.0) -> None:
        wait_until(lambda: sum(isinstance(event, kind) for event in self.events) >= count, timeout, f"{kind}")

    def submit(self, *ops: Op) -> list[Result]:
        box: queue.SimpleQueue[list[Result]] = queue.SimpleQueue()
        self.session.submit(ops, box.put)
        return box.get(timeout=20)

    def kinds(self) -> list[type]:
        return [type(event) for event in self.events]


Connect = Callable[..., Client]


@pytest.fixture
def connect(zookeeper: Sandbox) -> Iterator[Connect]:
    clients: list[Client] = []

    def make(hosts: str = zookeeper.address, timeout: float = 6.0) -> Client:
        clients.append(Client(hosts, timeout))
        return clients[-1]

    yield make
    for client in clients:
        client.session.close()


@pytest.fixture
def proxy(zookeeper: Sandbox) -> Iterator[TcpProxy]:
    with TcpProxy(zookeeper.address) as proxy:
        yield proxy


def test_connecting_tells_the_session_and_the_negotiated_timeout(connect: Connect, zookeeper: Sandbox) -> None:
    """The server bounds time-outs to 2 to 20 ticks (of 500 ms here); a lease depends on what it grants."""
    for asked, granted in ((6.0, 6.0), (0.1, 1.0), (60.0, 10.0)):
        client = connect(timeout=asked)
        client.wait_for(Connected)
        assert client.events == [
            Connected(client.session.session_id, granted, client.session.settings.hosts.partition("/")[0])
        ]


def test_a_dropped_connection_comes_back_under_the_same_session(connect: Connect, proxy: TcpProxy) -> None:
    """Disconnected, then Connected with the same id; ephemeral nodes stay."""
    client = connect(proxy.address)
    client.wait_for(Connected)
    before = client.session.session_id
    client.submit(Create("/kept", b"", ephemeral=True))
    proxy.drop()
    client.wait_for(Connected, 2)
    assert client.kinds() == [Connected, Disconnected, Connected]
    assert client.session.session_id == before
    (stat,) = client.submit(Exists("/kept"))
    assert stat is not None


def test_silence_is_found_while_something_is_asked_all_the_time(connect: Connect, proxy: TcpProxy) -> None:
    """kazoo looks for answers only where it has nothing to send: a hung server would be waited for until the network
    gives up, while the next one would go on with the session."""
    client = connect(proxy.address, 3.0)
    client.wait_for(Connected)
    proxy.stall()
    stop = time.monotonic() + 4.0
    while time.monotonic() < stop and Disconnected not in client.kinds():
        client.session.submit([Sync("/")], lambda results: None)
        threading.Event().wait(0.1)
    assert client.kinds() == [Connected, Disconnected]


def test_servers_that_swallow_packets_share_the_time_with_those_that_answer(
    connect: Connect, zookeeper: Sandbox
) -> None:
    """A server whose connections hang gets its part of the time-out, as the Java client has it."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as hole:
        address = hole.getsockname()
        with socket.create_connection(address), contextlib.ExitStack() as callers:
            for _ in range(8):  # what the kernel queues before it drops
                caller = callers.enter_context(socket.socket())
                caller.setblocking(False)
                caller.connect_ex(address)
            client = connect(",".join([f"127.0.0.1:{address[1]}"] * 3 + [zookeeper.address]))
            client.wait_for(Connected, 1, 5.8)


def test_without_a_connection_everything_fails_at_once(connect: Connect, proxy: TcpProxy) -> None:
    """Nothing is queued: what is asked while disconnected has the outcome of a lost connection."""
    client = connect(proxy.address)
    failures = client.submit(Sync(), Sync())
    assert [one.code for one in failures if isinstance(one, Failure)] == [Code.CONNECTION_LOSS] * 2
    client.wait_for(Connected)
    proxy.cut()
    client.wait_for(Disconnected)
    began = time.monotonic()
    results = client.submit(*[Create("/never")] * 3000)
    assert time.monotonic() - began < 1.0
    assert {result.code for result in results if isinstance(result, Failure)} == {Code.CONNECTION_LOSS}
    assert len(results) == 3000


def test_what_is_under_way_when_the_connection_goes_is_answered(connect: Connect, proxy: TcpProxy) -> None:
    """A request whose reply does not come fails, and does not hang."""
    client = connect(proxy.address)
    client.wait_for(Connected)
    box: queue.SimpleQueue[list[Result]] = queue.SimpleQueue()
    proxy.stall("replies")
    client.session.submit([Sync()] * 5, box.put)
    with pytest.raises(queue.Empty):
        box.get(timeout=0.2)
    proxy.cut()
    assert [result.code for result in box.get(timeout=10) if isinstance(result, Failure)] == [Code.CONNECTION_LOSS] * 5


def test_a_session_that_ends_is_reported_once_and_takes_nothing_more(connect: Connect, zookeeper: Sandbox) -> None:
    """kazoo would go on under a new session, with what was queued in the old: here nothing follows, and nothing of the
    old session is sent in a new one."""
    client = connect()
    client.wait_for(Connected)
    expire_session(zookeeper.address, client.session.session_id)
    client.wait_for(Expired)
    results = client.submit(Create("/zombie", b"", ephemeral=True), Ensure("/zombie/parent"))
    assert [result.code for result in results if isinstance(result, Failure)] == [Code.SESSION_EXPIRED] * 2
    message = len(client.events)
    other = connect()
    other.wait_for(Connected)
    # Long enough for kazoo to have its new session, which it announces within a round trip.
    wait_until(lambda: other.submit(Sync()) == [None], 5)
    assert len(client.events) == message
    assert client.kinds().count(Expired) == 1
    assert other.submit(Exists("/zombie")) == [None]


def test_a_session_expires_by_itself_when_cut_off(connect: Connect, proxy: TcpProxy) -> None:
    """After longer than the time-out without a connection the session is over, which is heard on coming back."""
    client = connect(proxy.address, timeout=1.0)
    client.wait_for(Connected)
    watcher = connect()
    watcher.wait_for(Connected)
    client.submit(Create("/mayfly", b"", ephemeral=True))
    assert watcher.submit(Exists("/mayfly", watch=True)) != [None]
    proxy.cut()
    watcher.wait_for(Changed)
    assert Expired not in client.kinds()
    proxy.heal()
    client.wait_for(Expired)


def test_watches_are_reported_once(connect: Connect, zookeeper: Sandbox) -> None:
    """A watch is for the next change; what is not watched is not reported."""
    one, other = connect(), connect()
    one.wait_for(Connected)
    other.wait_for(Connected)
    one.submit(Exists("/watched", watch=True), Exists("/unwatched"))
    other.submit(Create("/unwatched", b"", ephemeral=True), Create("/watched", b"", ephemeral=True))
    one.wait_for(Changed)
    other.submit(Create("/watched/never"))
    one.submit(Sync())
    assert [event for event in one.events if isinstance(event, Changed)] == [Changed("/watched")]


def test_a_change_is_reported_before_any_answer_that_was_given_after_it(connect: Connect) -> None:
    """However busy kazoo's own thread for events is: a member that hears late of an owner node that is another's by now
    would delete it for its own."""
    one, other = connect(), connect()
    one.wait_for(Connected)
    other.wait_for(Connected)
    one.submit(Ensure("/ordered"))  # by itself: the watch must not tell of this
    assert one.submit(Exists("/ordered", watch=True)) != [None]
    done = threading.Event()
    one.session._client.handler.callback_queue.put(lambda: done.wait(20))
    try:
        assert one.kinds() == [Connected]
        other.submit(Delete("/ordered"))
        one.submit(Sync())
        assert Changed("/ordered") in one.events
    finally:
        done.set()


def test_a_chroot_is_added_and_taken_away(connect: Connect, zookeeper: Sandbox) -> None:
    """Paths are relative to the chroot, in operations and in events."""
    plain = connect()
    plain.wait_for(Connected)
    plain.submit(Ensure("/below/this"))
    client = connect(zookeeper.address + "/below/this")
    client.wait_for(Connected)
    client.submit(Exists("/x", watch=True))
    plain.submit(Create("/below/this/x"))
    client.wait_for(Changed)
    assert client.events[-1] == Changed("/x")


@pytest.mark.parametrize("connected", [True, False])
def test_closing_takes_the_ephemeral_nodes_along_and_tells_nothing(
    connect: Connect, proxy: TcpProxy, connected: bool
) -> None:
    """A closed session is gone from the server when ``close`` returns, if it could be reached; and it returns soon if
    not."""
    client = connect(proxy.address)
    client.wait_for(Connected)
    client.submit(Create("/closing", b"", ephemeral=True))
    if not connected:
        proxy.cut()
        client.wait_for(Disconnected)
    message, began = len(client.events), time.monotonic()
    client.session.close()
    assert time.monotonic() - began < 4.0
    assert len(client.events) == message
    if connected:
        other = connect()
        other.wait_for(Connected)
        assert other.submit(Sync(), Exists("/closing")) == [None, None]


def test_a_session_never_started_or_never_connected_can_be_closed() -> None:
    """Constructors do no I/O, and giving up is always possible."""
    Session(ZooKeeperSettings("127.0.0.1:1"), lambda event: None).close()
    client = Client("127.0.0.1:1")
    began = time.monotonic()
    client.session.close()
    assert time.monotonic() - began < 4.0
    assert client.events == []
