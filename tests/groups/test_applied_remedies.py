"""What findings advise, typed as it is on real servers: what they found is gone then."""

from __future__ import annotations

import pytest
from advised_commands import type_in
from broken_groups import Maker, take_snapshot
from diagnosed_groups import findings_of, lines, serious
from group_nodes import commit_in_kafka

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.local_cluster import Sandbox


def test_what_remedies_advise_repairs(maker: Maker, cluster: Sandbox, registry: Registry, kafka: KafkaSettings) -> None:
    """One group with much that may be wrong with offsets: when what the findings advise has been typed, none of it is
    left."""
    topic, again = maker.orders, maker.again[0]
    offsets: dict[tuple[str, int], int | bytes] = {
        (topic, 0): 500, (maker.cut, 0): 2, (again, 0): b"abc", ("never", 0): 5, ("never", 3): 6,
    }  # fmt: skip
    group = maker.group(offsets=offsets)
    seen: set[str] = set()
    for _ in range(4):  # a remedy may bring the next thing to light
        findings = serious(findings_of(take_snapshot(registry, kafka, group)))
        if not findings:
            break
        seen |= {finding.code for finding in findings}
        for finding in findings:
            type_in(lines(finding), cluster.connect)
    assert findings_of(take_snapshot(registry, kafka, group)) == []
    assert seen == {
        "unreadable-offset",
        "offset-beyond-end",
        "offset-before-start",
        "partition-without-offset",
        "offset-of-missing-topic",
    }


@pytest.mark.parametrize(("to", "offset"), [("kafka", 5), ("zookeeper", 8)])
def test_what_is_advised_for_stores_that_contradict_each_other_repairs(
    maker: Maker, cluster: Sandbox, registry: Registry, kafka: KafkaSettings, to: str, offset: int
) -> None:
    """Whosever offset is taken, the command makes both stores say the same."""
    group = maker.group(offsets=maker.sane)
    maker.in_kafka(group, 8)
    (contradicting,) = serious(findings_of(take_snapshot(registry, kafka, group)))
    type_in(lines(contradicting), cluster.connect, f"migrate-group {group} --to {to}")
    now = take_snapshot(registry, kafka, group)
    assert findings_of(now) == []
    assert now.partitions[0].committed("zookeeper") == now.partitions[0].committed("kafka") == offset


def test_what_is_wrong_in_one_store_is_set_from_the_other(
    maker: Maker, cluster: Sandbox, registry: Registry, kafka: KafkaSettings
) -> None:
    """A good offset next to one that is beyond the log's end, or cannot be read, is not touched, whatever is typed in
    which order; when all has been typed both stores hold it."""
    group = maker.group(offsets={(maker.orders, 0): 5, (maker.orders, 1): b"abc"})
    commit_in_kafka(kafka, group, {TopicPartition(maker.orders, 0): 15, TopicPartition(maker.orders, 1): 6})
    findings = serious(findings_of(take_snapshot(registry, kafka, group)))
    assert {finding.code for finding in findings} == {"offset-beyond-end", "unreadable-offset"}
    for finding in findings:
        type_in(lines(finding), cluster.connect)
    now = take_snapshot(registry, kafka, group)
    assert findings_of(now) == []
    assert [(p.committed("zookeeper"), p.committed("kafka")) for p in now.partitions] == [(5, 5), (6, 6)]


def test_what_is_advised_for_a_topic_with_fewer_partitions_repairs(
    maker: Maker, cluster: Sandbox, registry: Registry, kafka: KafkaSettings
) -> None:
    """The offset of the partition that is gone, and no other of its topic."""
    group = maker.group(offsets=maker.sane | {(maker.orders, 7): 3, (maker.cut, 0): 7})
    before = take_snapshot(registry, kafka, group)
    (finding,) = serious(findings_of(before))
    assert finding.code == "offset-of-missing-partition"
    type_in(lines(finding), cluster.connect, "delete-group")
    now = take_snapshot(registry, kafka, group)
    assert findings_of(now) == []
    assert [p.stored for p in now.partitions] == [p.stored for p in before.partitions if p.partition != 7]


def test_what_is_advised_for_a_topic_named_like_a_partition_leaves_that_alone(
    maker: Maker, cluster: Sandbox, registry: Registry, kafka: KafkaSettings
) -> None:
    """Nodes below ``orders:0``, which no topic can be called, is not partition 0 of ``orders``."""
    group = maker.group(offsets=maker.sane | {(f"{maker.orders}:0", 0): 1})
    before = take_snapshot(registry, kafka, group)
    (finding,) = serious(findings_of(before))
    assert finding.code == "offset-of-missing-topic"
    type_in(lines(finding), cluster.connect, "unsubscribe")
    now = take_snapshot(registry, kafka, group)
    assert findings_of(now) == []
    assert [p.stored for p in now.partitions] == [p.stored for p in before.partitions if p.topic == maker.orders]


def test_what_is_advised_for_nodes_that_no_session_holds_repairs(
    maker: Maker, cluster: Sandbox, registry: Registry, kafka: KafkaSettings
) -> None:
    """Owners and registrations, readable or not, next to a living member and without one."""
    owners = {**maker.both, (maker.cut, 0): "@_gone-0", (maker.again[0], 0): ""}
    lasting = {"@_a": b"no JSON", "@_b": next(iter(maker.one().values()))}
    groups = [
        maker.group(maker.one(), owners, maker.sane, owner_session=None),
        maker.group(lasting, {}, maker.sane, persistent_members=True),
        maker.group(maker.one(), {(maker.orders, name): "@_gone-0" for name in ("x", "-1")}, owner_session=None),
    ]
    seen = set()
    for group in groups:
        for _ in range(9):
            advised = [
                one
                for one in findings_of(take_snapshot(registry, kafka, group))
                if any("release-owners" in line for line in lines(one))
            ]
            if not advised:
                break
            seen.add(advised[0].code)
            type_in(lines(advised[0]), cluster.connect, "release-owners")
        assert not advised
    kinds = {"persistent-owner", "unreadable-owner", "persistent-member", "stopping-registration", "unreadable-node"}
    assert seen >= kinds
