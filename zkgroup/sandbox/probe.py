"""The few bytes that show whether a server really serves: no client library, nothing kept open.

Formats: ZooKeeper's four-letter words; Kafka's Metadata request, version 0, which every broker from 0.8 to 3.9 answers.
"""

from __future__ import annotations

import random
import socket
import struct

HOST = "127.0.0.1"
# Below the range from which Linux and macOS take ports for outgoing connections: a server that is stopped for a while
# finds its port free again.
_PORTS = range(20_000, 32_000)


def free_port() -> int:
    """A loopback port on which nothing listens now. Another process may take it first: be ready to try again."""
    while True:
        port = random.choice(_PORTS)
        if port_is_free(port):
            return port


def port_is_free(port: int) -> bool:
    """Whether a server could listen on ``port``."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def zookeeper_serves(port: int, timeout: float = 1.0) -> bool:
    """Whether a ZooKeeper at ``port`` takes requests (the four-letter word ``srvr`` tells its mode)."""
    try:
        with socket.create_connection((HOST, port), timeout) as connection:
            connection.sendall(b"srvr")
            answer = b""
            while part := connection.recv(4096):
                answer += part
    except OSError:
        return False
    return b"Mode:" in answer


def known_brokers(port: int, timeout: float = 1.0) -> frozenset[int] | None:
    """The broker ids in the metadata of the broker at ``port``: its own, once its controller has made it known.

    None where it does not answer. 0.8 knows no brokers while there are no topics.
    """
    request = struct.pack(">hhih", 3, 0, 1, -1) + struct.pack(">i", 0)  # Metadata v0, no client id, all topics
    try:
        with socket.create_connection((HOST, port), timeout) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            (length,) = struct.unpack(">i", receive(connection, 4))
            answer = receive(connection, length)
    except OSError:
        return None
    (count,) = struct.unpack_from(">i", answer, 4)
    at, found = 8, set()
    for _ in range(count):
        broker, host_length = struct.unpack_from(">ih", answer, at)
        found.add(broker)
        at += 4 + 2 + host_length + 4
    return frozenset(found)


def receive(connection: socket.socket, length: int) -> bytes:
    """Exactly ``length`` bytes. Raises ``ConnectionError`` if the other side ends first."""
    data = b""
    while len(data) < length:
        part = connection.recv(length - len(data))
        if not part:
            raise ConnectionError("closed in the middle of an answer")
        data += part
    return data
