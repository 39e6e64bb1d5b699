"""Requests that show whether a server serves, without a client library: ZooKeeper's four-letter words, and Kafka's
Metadata request, version 0, which every broker from 0.8 to 3.9 answers."""

from __future__ import annotations

import os
import random
import re
import socket
from pathlib import Path

from zkgroup.clients.kafka.wire_protocol import fetch_metadata
from zkgroup.protocol.broker_znodes import Endpoint

HOST = "127.0.0.1"
# Below the range from which Linux takes ports for outgoing connections: a server that is stopped for a while
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


def metadata_brokers(port: int, timeout: float = 1.0) -> frozenset[int] | None:
    """The broker ids in the metadata of the broker at ``port``: its own, once its controller has made it known.

    None where it does not answer. 0.8 knows no brokers while there are no topics.
    """
    found = fetch_metadata([_endpoint(HOST, port)], timeout)
    return None if found is None else frozenset(found.brokers)


def led_partitions(host: str, port: int, topic: str, timeout: float = 1.0) -> frozenset[int]:
    """The partitions of ``topic`` that have a leader, as far as the broker at ``port`` knows; empty without answer."""
    found = fetch_metadata([_endpoint(host, port)], timeout, topic)
    _, partitions = found.topics.get(topic, (0, {})) if found is not None else (0, {})
    return frozenset(number for number, one in partitions.items() if one.leader >= 0)


def _endpoint(host: str, port: int) -> Endpoint:
    return Endpoint("PLAINTEXT", "PLAINTEXT", host, port)
