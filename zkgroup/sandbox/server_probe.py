"""Requests that show whether a server serves, without a client library.

Formats: ZooKeeper's four-letter words; Kafka's Metadata request, version 0, which every broker from 0.8 to 3.9 answers.
"""

from __future__ import annotations

import os
import random
import re
import socket
import struct
from pathlib import Path

HOST = "127.0.0.1"
# Below the range from which Linux and macOS take ports for outgoing connections: a server that is stopped for a while
# finds its port free again.
_PORTS = range(20_000, 32_000)


def free_port() -> int:
    """A free loopback port. Another process may take it first: retry then."""
    while True:
        port = random.choice(_PORTS)
        if port_is_free(port):
            return port


def port_is_free(port: int) -> bool:
    """True if a server could listen on ``port``."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def zookeeper_serves(port: int, timeout: float = 1.0) -> bool:
    """True if a ZooKeeper at ``port`` takes requests."""
    return zookeeper_data(port, timeout) is not None


def zookeeper_data(port: int, timeout: float = 1.0) -> Path | None:
    """The data folder of the ZooKeeper at ``port``, which distinguishes it from all others; None where none takes
    requests.

    The four-letter word ``conf`` (to be allowed in the ``4lw.commands.whitelist`` of 3.5 and later) names the folder of
    its snapshots, a subfolder of the configured one.
    """
    try:
        with socket.create_connection((HOST, port), timeout) as connection:
            connection.sendall(b"conf")
            answer = b""
            while part := connection.recv(4096):
                answer += part
    except OSError:
        return None
    found = re.search(rb"^dataDir=(.+)$", answer, re.MULTILINE)
    return Path(os.fsdecode(found[1].strip())).parent if found else None


def known_brokers(port: int, timeout: float = 1.0) -> frozenset[int] | None:
    """The broker ids in the metadata of the broker at ``port``: its own, once its controller has made it known.

    None where it does not answer. 0.8 knows no brokers while there are no topics.
    """
    metadata = _metadata(HOST, port, timeout)
    return None if metadata is None else metadata[0]


def led_partitions(host: str, port: int, topic: str, timeout: float = 1.0) -> frozenset[int]:
    """The partitions of ``topic`` that have a leader, as far as the broker at ``port`` knows; empty without answer."""
    metadata = _metadata(host, port, timeout)
    return frozenset() if metadata is None else metadata[1].get(topic, frozenset())


def _metadata(host: str, port: int, timeout: float) -> tuple[frozenset[int], dict[str, frozenset[int]]] | None:
    """Broker ids, and the led partitions of every topic. Asking for all topics makes none, as asking for one may."""
    request = struct.pack(">hhihi", 3, 0, 1, -1, 0)  # Metadata v0, no client id, all topics
    try:
        with socket.create_connection((host, port), timeout) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            (length,) = struct.unpack(">i", receive(connection, 4))
            answer = _Reader(receive(connection, length))
    except OSError:
        return None
    answer.take("i")  # the correlation id
    brokers = set()
    for _ in range(answer.take("i")):
        brokers.add(answer.take("i"))
        answer.text()
        answer.take("i")
    topics = {}
    for _ in range(answer.take("i")):
        answer.take("h")
        name, led = answer.text(), set()
        for _ in range(answer.take("i")):
            answer.take("h")
            partition, leader = answer.take("i"), answer.take("i")
            if leader >= 0:
                led.add(partition)
            for _ in ("replicas", "in sync"):
                for _ in range(answer.take("i")):
                    answer.take("i")
        topics[name] = frozenset(led)
    return frozenset(brokers), topics


class _Reader:
    """Decodes an answer from its beginning on."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, kind: str) -> int:
        """The next number: ``h`` has two bytes, ``i`` four."""
        (number,) = struct.unpack_from(">" + kind, self._data, self._at)
        self._at += struct.calcsize(">" + kind)
        return int(number)

    def text(self) -> str:
        """The next text, its length in two bytes before it."""
        length = self.take("h")
        self._at += length
        return self._data[self._at - length : self._at].decode()


def receive(connection: socket.socket, length: int) -> bytes:
    """Exactly ``length`` bytes. Raises ``ConnectionError`` if the other side ends first."""
    data = b""
    while len(data) < length:
        part = connection.recv(length - len(data))
        if not part:
            raise ConnectionError("closed in the middle of an answer")
        data += part
    return data
