"""Findings on real servers: every situation is made, read, explained and diagnosed."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from broken_groups import Broken, Maker, make_broken, take_snapshot
from cli import run
from diagnosed_groups import findings_of, lines
from lines import names
from support import numbered, wait_until

from zkgroup.clients.kafka.client import KafkaSettings, consumer
from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.groups.findings.finding_kinds import KINDS
from zkgroup.groups.findings.group_facts import REST
from zkgroup.groups.group_model import GroupSnapshot
from zkgroup.groups.snapshot.group_reader import read_group, read_groups
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Create, Ensure, Failure
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import produce

DAY = 86_400_000


@pytest.fixture(scope="module")
def broken(maker: Maker) -> list[Broken]:
    """All broken groups, when their nodes are old enough to be no rebalance's."""
    made = make_broken(maker)
    done = time.monotonic()
    wait_until(lambda: time.monotonic() - done > REST / 1000 + 0.5, 30, "the groups are at rest")
    return made


@pytest.fixture(scope="module")
def snapshots(broken: list[Broken], registry: Registry, kafka: KafkaSettings) -> Mapping[str, GroupSnapshot]:
    """A snapshot of each."""
    found = read_groups(registry, sorted({one.group for one in broken}), kafka=kafka)
    return {snapshot.group: snapshot for snapshot in found}


@pytest.fixture(scope="module")
def by_group(broken: list[Broken], cluster: Sandbox) -> Mapping[str, list[dict[str, str]]]:
    """What ``inspect-group`` reports each, by one run over all groups."""
    result = run("inspect-group", "--all", "-z", cluster.connect, "--output", "json")
    assert result.returncode == 0, result.stderr
    return {entry["group"]: entry["findings"] for entry in json.loads(result.stdout)}


#: What lasts, and so can be made once and read together.
EXPECTED = 41


def test_all_are_made(broken: list[Broken]) -> None:
    """So many situations; together with those below they are all kinds of finding."""
    assert len(broken) == EXPECTED
    below = {"cluster-without-broker", "split-group", "incomplete-snapshot", "rebalance-in-progress", "growing-lag"}
    below |= {"leftover-group", "unresponsive-member"}  # the latter with its members in test_unresponsive
    below |= {"unregistered-commits", "incompatible-broker"}  # in tests of their own
    assert {one.code for one in broken} | below == KINDS.keys()


@pytest.mark.parametrize("number", range(EXPECTED))
def test_a_situation_is_found(number: int, broken: list[Broken], snapshots: Mapping[str, GroupSnapshot]) -> None:
    """Read, explained and diagnosed, each situation gives its finding, with its severity, subject and numbers."""
    expected = broken[number]
    every = findings_of(snapshots[expected.group])
    found = [finding for finding in every if (finding.code, finding.subject) == (expected.code, expected.subject)]
    assert len(found) == 1, (expected, every)
    assert found[0].severity == expected.severity, (expected, found)
    assert names(found[0].message, *expected.facts), (expected, found)


@pytest.mark.parametrize("number", range(EXPECTED))
def test_a_situation_is_reported(
    number: int, broken: list[Broken], by_group: Mapping[str, list[dict[str, str]]]
) -> None:
    """The command reports it in the same words."""
    expected = broken[number]
    found = [entry for entry in by_group[expected.group] if entry["code"] == expected.code]
    assert [entry["subject"] for entry in found].count(expected.subject) == 1, (expected, by_group[expected.group])
    (entry,) = (entry for entry in found if entry["subject"] == expected.subject)
    assert entry["severity"] == expected.severity
    assert names(entry["message"], *expected.facts)
    assert entry["remedy"] or "unexplained-owners" in {one["code"] for one in by_group[expected.group]}
    assert entry["page"] == f"zkgroup inspect-group --explain {expected.code}"


def test_one_group_is_reported_and_verified(broken: list[Broken], cluster: Sandbox) -> None:
    """inspect-group G has the same findings, and --verify ends with 6 where one is critical."""
    group = next(one.group for one in broken if one.code == "partition-without-owner")
    result = run("inspect-group", group, "--verify", "-z", cluster.connect, "--output", "json")
    assert result.returncode == 6, result.stderr
    findings = json.loads(result.stdout)["findings"]
    assert {"partition-without-owner", "member-without-partitions"} <= {entry["code"] for entry in findings}
    assert [entry["severity"] for entry in findings] == sorted(
        (entry["severity"] for entry in findings), key=["critical", "warning", "info"].index
    )


def test_nothing_else_is_critical(broken: list[Broken], snapshots: Mapping[str, GroupSnapshot]) -> None:
    """A situation that is a warning, or a note, does not drag something critical in."""
    mild = {one.group for one in broken} - {one.group for one in broken if one.severity == "critical"}
    for group in mild:
        critical = [f for f in findings_of(snapshots[group]) if f.severity == "critical"]
        # An owner node that is not the plan's is one thing, and what its stream reads another.
        assert critical == [], group


# --- what passes, and what takes two snapshots
# ---------------------------------------------------------------------------


def test_a_rebalance_going_on(maker: Maker, registry: Registry, kafka: KafkaSettings, cluster: Sandbox) -> None:
    """A member that has just registered, with nothing owned yet: a note, by the library and by the command."""
    for _ in range(3):  # on a busy machine the command may come too late for it
        began = time.monotonic()
        group = maker.group(maker.one(), {}, maker.sane)
        findings = findings_of(take_snapshot(registry, kafka, group))
        result = run("inspect-group", group, "--verify", "-z", cluster.connect, "--output", "json")
        if time.monotonic() - began < REST / 1000:
            break
    assert [(finding.code, finding.severity) for finding in findings] == [("rebalance-in-progress", "info")]
    assert [entry["code"] for entry in json.loads(result.stdout)["findings"]] == ["rebalance-in-progress"]
    assert result.returncode == 0


def test_growing_lag(maker: Maker, registry: Registry, kafka: KafkaSettings) -> None:
    """Messages came between two snapshots and none was committed: a note at once, a warning after two minutes of it."""
    group = maker.group(maker.one(), maker.both, maker.sane)
    before = take_snapshot(registry, kafka, group)
    produce(kafka, maker.orders, numbered(4, 2))
    now = take_snapshot(registry, kafka, group)
    (note,) = [finding for finding in findings_of(now, before) if finding.code == "growing-lag"]
    assert note.severity == "info"
    assert note.subject == f"{maker.orders}-0..1"
    assert names(note.message, 5, 7)
    (warning,) = [
        f
        for f in findings_of(now, replace(before, taken_at=before.taken_at - 130_000))
        if f == f and f.code == note.code
    ]
    assert warning.severity == "warning"


def test_inactive_groups(registry: Registry, unique: Callable[[str], str]) -> None:
    """A console consumer's group is reported when it is an hour old, and not before."""
    group = f"console-consumer-{unique('1').replace('-', '')}"
    assert not isinstance(registry.write(Ensure(znodes.offset_topic(group, "never"))), Failure)
    assert not isinstance(registry.write(Create(znodes.offset(group, TopicPartition("never", 0)), b"3")), Failure)
    now = take_snapshot(registry, None, group)
    assert "leftover-group" not in {finding.code for finding in findings_of(now)}
    later = findings_of(replace(now, taken_at=now.taken_at + DAY))
    assert {finding.severity for finding in later} == {"info"}
    assert lines(next(f for f in later if f.code == "leftover-group")) == (f"zkgroup delete-group {group} --execute",)


def test_a_cluster_without_brokers(zookeeper: Sandbox, unique: Callable[[str], str]) -> None:
    """A group in a chroot where no broker is registered."""
    connect = f"{zookeeper.address}/{unique('empty')}"
    with Registry(ZooKeeperSettings(zookeeper.address), 30.0) as root:
        assert not isinstance(root.write(Ensure("/" + connect.partition("/")[2] + znodes.ids("g"))), Failure)
    with Registry(ZooKeeperSettings(connect), 30.0) as registry:
        findings = findings_of(take_snapshot(registry, None, "g"))
    assert [(finding.code, finding.severity) for finding in findings] == [("cluster-without-broker", "critical")]


def test_brokers_that_do_not_answer(zookeeper: Sandbox, unique: Callable[[str], str]) -> None:
    """A broker is registered and nobody listens there: what could not be diagnosed is reported, and is not critical."""
    chroot = "/" + unique("deaf")
    topic = '{"version":1,"partitions":{"0":[1]}}'
    state = '{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}'
    nodes = {
        "/brokers/ids/1": '{"version":1,"host":"127.0.0.1","port":1,"jmx_port":-1,"timestamp":"1"}',
        "/brokers/topics/t": topic,
        "/brokers/topics/t/partitions/0/state": state,
        "/consumers/g/offsets/t/0": "5",
    }
    with Registry(ZooKeeperSettings(zookeeper.address), 30.0) as root:
        for path, data in nodes.items():
            assert not isinstance(root.write(Ensure((chroot + path).rpartition("/")[0])), Failure)
            assert not isinstance(root.write(Create(chroot + path, data.encode())), Failure)
    with Registry(ZooKeeperSettings(zookeeper.address + chroot), 30.0) as registry:
        snapshot = read_group(registry, "g", kafka=KafkaSettings("127.0.0.1:1"), timeout=1.0)
    findings = findings_of(snapshot)
    assert [(finding.code, finding.severity) for finding in findings] == [("incomplete-snapshot", "warning")]


def test_a_group_in_two_places(maker: Maker, registry: Registry, kafka: KafkaSettings) -> None:
    """Members in ZooKeeper and a member in Kafka under one name read the same partitions."""
    group = maker.group(maker.one(), maker.both, maker.sane)
    client = consumer(kafka, group=group)
    joined = threading.Event()
    try:
        client.subscribe([maker.orders], on_assign=lambda *_: joined.set())

        def assigned() -> bool:
            client.poll(0.1)
            return joined.is_set()

        wait_until(assigned, 30, "the consumer is given partitions")
        findings = findings_of(take_snapshot(registry, kafka, group))
    finally:
        client.close()
    (split,) = [finding for finding in findings if finding.code == "split-group"]
    assert split.severity == "critical"
    assert names(split.message, f"{maker.orders}-0..1")
