"""Brokers in KRaft mode, which have no ZooKeeper: groups in Kafka alone."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from cli import run
from group_nodes import groups_on
from lines import names
from mirrored_clusters import Cluster, mirror
from servers import Sandbox
from support import fresh_name

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.topic_metadata import has_no_zookeeper
from zkgroup.sandbox.topic_admin import ProducerRecord, create_topic

RELEASE = "4.1.0"


@pytest.fixture(scope="module")
def kraft() -> Iterator[Sandbox]:
    """A broker of its own. Its jars are a download that the usual run goes without."""
    with Sandbox(fresh_name("kraft"), kafka=RELEASE) as sandbox:
        yield sandbox


def test_brokers_say_whether_they_have_a_zookeeper(newest: Cluster, oldest: Cluster) -> None:
    """Those with one do not count as without, whether they know the setting or not."""
    assert not has_no_zookeeper(newest.kafka, 10)
    assert not has_no_zookeeper(oldest.kafka, 10)


@pytest.mark.long
def test_a_group_in_kraft_mode(kraft: Sandbox) -> None:
    """Filled, reset while the coordinator starts, consumed, listed, inspected, reset again; a change need not vouch for
    members in ZooKeeper."""
    place, group = f"sandbox:{kraft.name}", fresh_name("group")
    assert run("sandbox", "fill", "orders", "--name", kraft.name, "--messages", "60").returncode == 0
    done = run("-c", place, "reset-offsets", fresh_name("first"), "--topic", "orders", "--to-offset", "5", "--execute")
    assert done.returncode == 0, done.stderr
    done = run("-c", place, "consume", "orders", "--group", group, "--coordinator", "kafka", "--from-beginning", "-e")
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 60), done.stderr
    listed = run("-c", place, "list-groups", "--output", "json")
    assert (group, "kafka") in {(row["group"], row["store"]) for row in json.loads(listed.stdout)}
    inspected = json.loads(run("-c", place, "inspect-group", group, "--output", "json").stdout)
    assert [(row["committed"], row["lag"]) for row in inspected["partitions"]] == [(20, 0)] * 3
    done = run("-c", place, "reset-offsets", group, "--topic", "orders", "--to-offset", "5", "--execute")
    assert done.returncode == 0, done.stderr
    shown = json.loads(run("-c", place, "offsets", group, "--output", "json").stdout)
    assert [row["committed"] for row in shown] == [5, 5, 5]
    done = run("sandbox", "member", "orders", "--group", group, "--name", kraft.name)
    command = f"zkgroup -c {place} consume orders --group {group} --coordinator kafka"
    assert (done.returncode, names(done.stderr, kraft.name, command)) == (2, True)


@pytest.mark.long
def test_from_the_oldest_release_to_kraft(oldest: Cluster, kraft: Sandbox) -> None:
    """A group leaves 0.8.2.2 and its ZooKeeper for brokers without one, and goes on at the same messages."""
    target = Cluster(RELEASE, "", oldest.registry, KafkaSettings(kraft.bootstrap))
    topic = oldest.topic([ProducerRecord(b"value %d" % n, None, n % 2) for n in range(40)], 2)
    create_topic(target.kafka, topic, 2)
    target.send(topic, [ProducerRecord(b"another", None, n) for n in range(2)])
    mirror(oldest, target, topic, topic, partitions=2)
    with groups_on(oldest.registry, fresh_name) as groups:
        group = groups.make({}, {}, {(topic, 0): 7, (topic, 1): 20})
    place = f"sandbox:{kraft.name}"
    done = run("-z", oldest.connect, "migrate-group", group, "--to-cluster", place, "--execute")
    assert done.returncode == 0, done.stderr
    left = run("-c", place, "consume", topic, "--group", group, "--coordinator", "kafka", "-e").stdout.splitlines()
    assert sorted(left) == sorted(f"value {2 * n}" for n in range(7, 20)), "partition 1 was read to its end"


@pytest.mark.long
def test_twenty_groups_leave(oldest: Cluster, kraft: Sandbox) -> None:
    """From 0.8.2.2 to brokers without ZooKeeper, by one plan: what each group reads there is what it had not consumed,
    and so many messages more, at most, as the plan says for a mirror that was started again."""
    target = Cluster(RELEASE, "", oldest.registry, KafkaSettings(kraft.bootstrap))
    stem, partitions = fresh_name("leaving"), 2
    records = [ProducerRecord(b"value %d" % n, None, n % partitions) for n in range(200)]
    topics = [oldest.topic(records, partitions) for _ in range(4)]
    for topic in topics:
        create_topic(target.kafka, topic, partitions)
        mirror(oldest, target, topic, topic, 0, 60, partitions=partitions)
        mirror(oldest, target, topic, topic, 60 if topic != topics[0] else 50, partitions=partitions)
    consumed = {f"{stem}-{n:02}": (topics[n % 4], (13 * n + 2) % 100) for n in range(20)}
    with groups_on(oldest.registry, fresh_name) as groups:
        for group, (topic, offset) in consumed.items():
            groups.make({}, {}, {(topic, number): offset for number in range(partitions)}, name=group)
    command = ["-z", oldest.connect, "migrate-group", "--pattern", f"{stem}-*", "--to-cluster", f"sandbox:{kraft.name}"]
    plan = {row["group"]: row for row in json.loads(run(*command, "--output", "json").stdout)}
    assert [row["state"] for row in plan.values()] == ["ready"] * 20
    done = run(*command, "--execute")
    assert done.returncode == 0, done.stderr
    assert run(*command, "--verify").returncode == 0
    for group, (topic, offset) in consumed.items():
        shown = run("-c", f"sandbox:{kraft.name}", "consume", topic, "--group", group, "--coordinator", "kafka", "-e")
        read = shown.stdout.splitlines()
        unconsumed = {f"value {n}" for n in range(200) if n // partitions >= offset}
        assert unconsumed <= set(read), group
        already = [one for one in read if one not in unconsumed]
        assert len(already) <= plan[group]["repeated"], group
