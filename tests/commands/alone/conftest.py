"""A cluster of their own for tests that read all groups of one: those of all other tests would be among them, by the
hundred."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from servers import Sandbox
from support import fresh_name

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry


@pytest.fixture(scope="session")
def cluster(zookeeper: Sandbox) -> Iterator[Sandbox]:
    """A 1.1.1 broker on the shared ZooKeeper, under a chroot of its own."""
    name = fresh_name("alone")
    with Sandbox(name, zookeeper=zookeeper.address, chroot=f"/{name}") as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def kafka(cluster: Sandbox) -> KafkaSettings:
    """How to reach its broker."""
    return KafkaSettings(cluster.bootstrap)


@pytest.fixture(scope="session")
def registry(cluster: Sandbox) -> Iterator[Registry]:
    """A registry on it, for tests to read and to prepare."""
    with cluster.registry(30.0) as registry:
        yield registry
