"""Topics that are widened and deleted through ZooKeeper, on every release of Kafka."""

from __future__ import annotations

import json

from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import NotFoundError
from zkgroup.protocol import znodes
from zkgroup.protocol.broker_znodes import parse_endpoints
from zkgroup.protocol.operations import Ensure, Exists, Get, Node, SetData
from zkgroup.sandbox.processes import led_partitions, wait_for
from zkgroup.sandbox.topic_admin import (
    broker_ids,
    check_written,
    kafka_settings,
    plan_replicas,
    wait_until_led,
)


def add_partitions(registry: Registry, topic: str, total: int, *, timeout: float = 30.0) -> None:
    """Widen ``topic`` to ``total`` partitions, and wait until the new ones have leaders."""
    path = znodes.topic(topic)
    node = registry.read([Get(path)])[0]
    if not isinstance(node, Node):
        raise NotFoundError(f"no topic {topic}")
    registration = json.loads(node.data)
    there = len(registration["partitions"])
    replication = len(registration["partitions"]["0"])
    registration["partitions"] |= plan_replicas(range(there, total), broker_ids(registry), replication)
    data = json.dumps(registration, separators=(",", ":")).encode()
    check_written(registry.write(SetData(path, data, node.stat.version)), f"cannot widen topic {topic}")
    wait_until_led(registry, topic, range(there, total), timeout)


def delete_topic(registry: Registry, topic: str, *, timeout: float = 30.0) -> None:
    """Ask the controller to delete ``topic``, and wait until no broker knows of it."""
    check_written(registry.write(Ensure(f"{znodes.delete_topics()}/{topic}")), f"cannot delete topic {topic}")
    wait_for(lambda: registry.read([Exists(znodes.topic(topic))])[0] is None, timeout, f"topic {topic} was not deleted")
    endpoints = parse_endpoints(kafka_settings(registry).bootstrap)
    wait_for(
        lambda: not any(led_partitions(end, topic) for end in endpoints),
        timeout,
        f"topic {topic} is still known to a broker",
    )
