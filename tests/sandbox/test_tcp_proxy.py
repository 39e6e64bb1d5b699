"""The tests' own TCP proxy: what it does to connections."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from support import wait_until
from tcp_proxy import HOST, TcpProxy


@pytest.fixture
def echo() -> Iterator[str]:
    """A server that sends back what it gets."""
    listener = socket.create_server((HOST, 0))
    threads: list[threading.Thread] = []

    def answer(connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(65536):
                    connection.sendall(data)
            except ConnectionError:
                pass

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=answer, args=(connection,)))
            threads[-1].start()

    server = threading.Thread(target=serve)
    server.start()
    yield f"{HOST}:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    for thread in (server, *threads):
        thread.join(10)


@pytest.fixture
def proxy(echo: str) -> Iterator[TcpProxy]:
    with TcpProxy(echo) as proxy:
        yield proxy


def connect(proxy: TcpProxy) -> socket.socket:
    return socket.create_connection((HOST, proxy.port), timeout=5)


def silent(client: socket.socket) -> bool:
    client.settimeout(0.2)
    try:
        return client.recv(1) == b"never"
    except TimeoutError:
        return True
    finally:
        client.settimeout(5)


def exchange(client: socket.socket, data: bytes) -> bytes:
    """Send while receiving: more than all buffers hold must pass."""
    sender = threading.Thread(target=client.sendall, args=(data,))
    sender.start()
    got = b""
    while len(got) < len(data):
        got += client.recv(65536)
    sender.join(5)
    return got


def test_carries_everything_unchanged(proxy: TcpProxy) -> None:
    """Ten megabytes go there and back as they are."""
    data = bytes(range(256)) * 40_000
    with connect(proxy) as client:
        assert exchange(client, data) == data


def test_cut_resets_and_refuses_until_healed(proxy: TcpProxy) -> None:
    """A cut resets what is connected, refuses what is new, and heals on the same port."""
    with connect(proxy) as client:
        assert exchange(client, b"a") == b"a"
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    proxy.heal()
    with connect(proxy) as client:
        assert exchange(client, b"b") == b"b"


def test_stall_keeps_connections_and_delivers_later(proxy: TcpProxy) -> None:
    """A stalled connection stays open and silent; what was sent meanwhile arrives after healing."""
    with connect(proxy) as client:
        assert exchange(client, b"a") == b"a"
        proxy.stall()
        client.sendall(b"late")
        assert silent(client)
        proxy.heal()
        assert client.recv(4) == b"late"


def test_replies_alone_are_held(proxy: TcpProxy) -> None:
    """With replies held a request is served, and its reply is lost with the connection."""
    with connect(proxy) as client:
        assert exchange(client, b"a") == b"a"
        proxy.stall("replies")
        client.sendall(b"x")
        assert silent(client)
        proxy.drop()
        proxy.heal()
        with pytest.raises(ConnectionResetError):
            client.recv(1)


def test_end_of_either_side_is_passed_on(proxy: TcpProxy) -> None:
    """A client that leaves is forgotten: nothing piles up in the proxy."""
    for _ in range(3):
        with connect(proxy) as client:
            assert exchange(client, b"a") == b"a"
    wait_until(lambda: proxy.connections == 0, 5, "the proxy forgets its clients")
    assert proxy.accepted == 3
