"""Healthy groups on real servers, active and at rest: nothing is found that is not so."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from broken_groups import Maker, take_snapshot
from diagnosed_groups import findings_of, serious
from members import ReadMember, wait_for_rest
from support import numbered, wait_until

from zkgroup.clients.kafka.client import KafkaSettings, consumer
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.groups.findings.finding_kinds import Finding
from zkgroup.groups.group_model import GroupSnapshot
from zkgroup.groups.snapshot.group_reader import read_group
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import Exists, Stat
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import produce

DAY = 86_400_000


def test_an_inactive_group_with_sane_offsets(maker: Maker, registry: Registry, kafka: KafkaSettings) -> None:
    """Nothing at all is said of it, today or in three days."""
    snapshot = take_snapshot(registry, kafka, maker.group(offsets=maker.sane))
    assert findings_of(snapshot) == []
    assert findings_of(replace(snapshot, taken_at=snapshot.taken_at + 3 * DAY)) == []


def test_members_that_join_and_leave(
    cluster: Sandbox,
    registry: Registry,
    kafka: KafkaSettings,
    make_topic: Callable[..., str],
    unique: Callable[[str], str],
) -> None:
    """Members of zkgroup that join and leave: no snapshot at any time gives anything worse than an info, each diagnosed
    with the one before it; at rest there is nothing, then or minutes later."""
    topic, group = make_topic(4), unique("group")
    produce(kafka, topic, numbered(40, 4))
    snapshots: list[GroupSnapshot] = []
    bad: list[Finding] = []
    over = threading.Event()

    def watch() -> None:
        with cluster.registry(30.0) as own:
            while not over.is_set():
                now = take_snapshot(own, None, group)  # owners and offsets, as often as can be
                bad.extend(serious(findings_of(now, snapshots[-1] if snapshots else None)))
                snapshots.append(now)

    def churn() -> int:
        """A member joins and leaves; how many states of the owners have been seen so far."""
        with ReadMember(cluster.connect, group, {topic: 2}):
            wait_for_rest(registry, group, 2)
        wait_for_rest(registry, group, 1)
        return len({frozenset((p.key, p.owner) for p in one.partitions) for one in list(snapshots)})

    values = {record.value for record in numbered(40, 4)}
    with ReadMember(cluster.connect, group, {topic: 1}) as first:
        wait_for_rest(registry, group, 1)
        first.wait_for(values)  # before another has a share of them
        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            wait_until(lambda: churn() > 3, 60, "snapshots with different owners")
        finally:
            over.set()
            watcher.join(30)
        assert bad == []

        def committed() -> bool:
            return all(p.lag("zookeeper") == 0 for p in take_snapshot(registry, kafka, group).partitions)

        wait_until(committed, 20, "all is committed")
        now = take_snapshot(registry, kafka, group)
        assert findings_of(now) == []
        assert findings_of(replace(now, taken_at=now.taken_at + 600_000), now) == []


def test_a_member_of_the_scala_consumer(
    cluster: Sandbox,
    registry: Registry,
    kafka: KafkaSettings,
    make_topic: Callable[..., str],
    unique: Callable[[str], str],
) -> None:
    """A member of 1.1.1 that reads a topic by a filter: nothing at all is found, then or minutes later."""
    topic, group = make_topic(3, "healthy"), unique("group")
    produce(kafka, topic, numbered(30, 3))
    member = cluster.member(group, topic.replace("-", "[-]"), kind="whitelist", streams=2)
    with member.start():
        wait_for_rest(registry, group, 1)

        def committed() -> bool:
            return all(p.lag("zookeeper") == 0 for p in take_snapshot(registry, kafka, group).partitions)

        wait_until(committed, 30, "all is committed")
        now = take_snapshot(registry, kafka, group)
        assert findings_of(now) == []
        assert findings_of(replace(now, taken_at=now.taken_at + 600_000), now) == []


def test_a_filter_with_a_backslash_of_the_scala_consumer(
    cluster: Sandbox, registry: Registry, make_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    """A member of 1.1.1 registers a backslash as two, which it reads itself: it is reported that it matches nothing."""
    topic, group = make_topic(1, "escaped"), unique("group")
    member = cluster.member(group, topic.replace("-", r"\-"), kind="whitelist")
    try:
        member.start()
        path = znodes.member_id(group, member.id)
        wait_until(lambda: isinstance(registry.read([Exists(path)])[0], Stat), 20, "it is registered")
        snapshot = take_snapshot(registry, None, group)
    finally:
        member.kill()  # with nothing to read the Scala consumer hangs when it is asked to leave
    findings = findings_of(snapshot)
    assert [(finding.code, finding.subject) for finding in findings] == [("doubly-escaped-filter", member.id)]
    assert [dict(one.streams) for one in snapshot.members] == [{}]


def test_a_group_in_kafka(
    maker: Maker, cluster: Sandbox, registry: Registry, kafka: KafkaSettings, unique: Callable[[str], str]
) -> None:
    """A group that lives in Kafka alone, active and at rest, asked for with ZooKeeper or without: nothing worse than a
    note; an offset that is out of range there is found as well."""
    group = unique("modern")
    client = consumer(kafka, group=group)
    joined = threading.Event()
    try:
        client.subscribe([maker.orders], on_assign=lambda *_: joined.set())

        def assigned() -> bool:
            client.poll(0.1)
            return joined.is_set()

        wait_until(assigned, 30, "the consumer is given partitions")
        for source in (registry, None):
            assert serious(findings_of(read_group(source, group, kafka=kafka))) == []
    finally:
        client.close()
    maker.in_kafka(group, 5)
    for source in (registry, None):
        assert {f.code for f in serious(findings_of(read_group(source, group, kafka=kafka)))} <= {
            "partition-without-offset"
        }
    maker.in_kafka(group, 500)
    for source in (registry, None):
        findings = findings_of(read_group(source, group, kafka=kafka))
        assert next(f.subject for f in findings if f.code == "offset-beyond-end") == f"{maker.orders}-0"
