"""What tests of commands share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from migrate_answers import Migrate

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.sandbox.local_cluster import Sandbox


@pytest.fixture
def topic(make_topic: Callable[..., str], fill: Callable[..., object]) -> str:
    """Three partitions of ten messages each. Files that need another have their own."""
    name = make_topic(3)
    fill(name, 30, 3)
    return name


@pytest.fixture
def migrate(cluster: Sandbox, kafka: KafkaSettings) -> Migrate:
    """Runs ``migrate-group``."""
    return Migrate(cluster, kafka)
