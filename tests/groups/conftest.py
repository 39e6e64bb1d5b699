"""Fixtures of the tests of groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from broken_groups import Maker
from resets import STORES, Kept, OneStore

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.groups.changes import kafka_writer
from zkgroup.sandbox.local_cluster import Sandbox


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a change in Kafka no commits are waited for: ``tests/commands/test_unregistered_commits.py`` does."""
    monkeypatch.setattr(kafka_writer, "COMMIT_WAIT", 0.0)


@pytest.fixture(scope="module")
def maker(cluster: Sandbox, registry: Registry) -> Iterator[Maker]:
    """Writes groups; their ephemeral nodes go with the module."""
    with ExitStack() as stack:
        sessions = (stack.enter_context(cluster.registry(30.0)), stack.enter_context(cluster.registry(30.0)))
        maker = Maker(cluster, registry, sessions)
        stack.callback(maker.clear)
        yield maker


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> OneStore:
    """Each of the two places where offsets are kept."""
    return request.param


@pytest.fixture
def kept(registry: Registry, kafka: KafkaSettings, unique: Callable[[str], str], store: OneStore) -> Kept:
    """A new group's offsets in one store."""
    return Kept(registry, kafka, unique("reset"), store)
