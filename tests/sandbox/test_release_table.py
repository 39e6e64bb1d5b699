"""Every release of the table: a broker that takes messages, and a Scala member that reads them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support import numbered

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.log_offsets import LogRange, log_offsets
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.kafka_releases import DEFAULT_RELEASE, RELEASES
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.sandbox_state import process_rows
from zkgroup.sandbox.topic_admin import create_topic, produce

# The oldest and the newest run always; on 1.1.1 all other tests run.
ALWAYS = ("0.8.2.2", "3.9.1")


@pytest.mark.parametrize(
    "version",
    [pytest.param(v, marks=[] if v in ALWAYS else [pytest.mark.long]) for v, one in RELEASES.items() if not one.kraft],
)
def test_broker_and_member(version: str, zookeeper: Sandbox, make_sandbox: Callable[..., Sandbox]) -> None:
    """A broker of each release serves librdkafka and a member of its release (1.1.1, where that has none)."""
    sandbox = make_sandbox(kafka=version, zookeeper=zookeeper.address, chroot=f"/{version}")
    legacy = version if version.startswith(("0.8", "0.9")) else None
    settings = KafkaSettings(sandbox.bootstrap, legacy_release=legacy)
    with sandbox.registry() as registry:
        create_topic(registry, "t", 2)
    records = numbered(100, 2)
    produce(settings, "t", records)
    ends = log_offsets(settings, [TopicPartition("t", 0), TopicPartition("t", 1)], 20.0)
    assert list(ends.values()) == [LogRange(0, 50)] * 2
    reader = version if RELEASES[version].member else DEFAULT_RELEASE
    with sandbox.member("g", "t", release=reader, streams=2) as member:
        member.wait_for(100)
    consumed = [(m.partition, m.offset, m.key, m.value) for m in member.consumed()]
    assert sorted(consumed) == sorted((r.partition, i // 2, r.key, r.value) for i, r in enumerate(records))
    assert [row.release for row in process_rows(sandbox.state)] == [version]


@pytest.mark.parametrize("strategy", ["range", pytest.param("roundrobin", marks=pytest.mark.long)])
def test_member_commits_when_it_leaves(
    strategy: str,
    cluster: Sandbox,
    registry: Registry,
    make_topic: Callable[..., str],
    fill: Callable[..., object],
    unique: Callable[[str], str],
) -> None:
    """A member that is stopped has committed what it read: the next one of its group reads only what is new."""
    group, topic = unique("group"), make_topic(3)
    fill(topic, 30, 3)
    with cluster.member(group, topic, strategy=strategy, properties={"auto.commit.interval.ms": "600000"}) as first:
        first.wait_for(30)
    assert first.returncode == 143
    fill(topic, 3, 3)
    with cluster.member(group, f"{topic},{topic}x", kind="topics", strategy=strategy, output="values") as second:
        second.wait_for(3)
    assert sorted(second.lines()) == [b"m000000", b"m000001", b"m000002"]
