"""Topics whose nodes are damaged: what members of the Scala consumer make of them, and what they do with other
topics."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from cli import run
from diagnosed_groups import findings_of
from lines import names
from support import wait_until

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.groups.snapshot.group_reader import read_group
from zkgroup.groups.snapshot.snapshot_defects import ownership_defects
from zkgroup.groups.snapshot.znode_reader import ClusterState, NodeCache
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Code, Create, Delete, Ensure, Failure, Node, Result, SetData, Stat
from zkgroup.sandbox.local_cluster import Sandbox

STAT = Stat(1, 1, 0, 0, 0, 0)
#: What members take for a topic without partitions.
PASSED_OVER = [b"", b"no JSON", b"{}", b'{"version":1}']


@pytest.fixture
def damaged(registry: Registry, unique: Callable[[str], str]) -> Iterator[Callable[[bytes], str]]:
    """Makes a topic's node that holds something else."""
    made = []

    def make(data: bytes) -> str:
        made.append(unique("damaged"))
        assert registry.write(Create(znodes.topic(made[-1]), data)) is None
        return made[-1]

    yield make
    for name in made:
        registry.write(Delete(znodes.topic(name)))


@pytest.fixture
def group(
    registry: Registry, unique: Callable[[str], str], make_topic: Callable[..., str], fill: Callable[..., object],
    damaged: Callable[[bytes], str],
) -> Callable[[bytes], tuple[str, str, str]]:  # fmt: skip
    """A group with offsets of a sound topic of ten messages, and of a damaged one: group, sound and damaged topic. The
    sound one is made first: a controller that meets both at once makes neither."""

    def make(data: bytes) -> tuple[str, str, str]:
        name, topic = unique("group"), make_topic(1)
        fill(topic, 10, 1)
        bad = damaged(data)
        for each in (topic, bad):
            registry.write(Ensure(znodes.offset_topic(name, each)))
            assert registry.write(Create(znodes.offset(name, TopicPartition(each, 0)), b"5")) is None
        return name, topic, bad

    return make


@pytest.mark.parametrize(("release", "data"), [(r, d) for r in ("1.1.1", "0.9.0.1") for d in (b"", b"{}")])
def test_a_member_reads_on_and_its_group_is_sound(
    release: str,
    data: bytes,
    group: Callable[[bytes], tuple[str, str, str]],
    cluster: Sandbox,
    registry: Registry,
    kafka: KafkaSettings,
) -> None:
    """The damaged topic has its finding, and the plan is what the member has."""
    name, topic, bad = group(data)
    settings = {"auto.commit.interval.ms": "200", "rebalance.max.retries": "2", "rebalance.backoff.ms": "200"}
    with cluster.member(name, f"{topic},{bad}", kind="topics", release=release, name=f"{name}-a", properties=settings):

        def is_read() -> bool:
            at = {p.topic: p.committed("zookeeper") for p in read_group(registry, name).partitions}
            return at == {topic: 10, bad: 5}

        wait_until(is_read, 60, "the member reads the sound topic")
        snapshot = read_group(registry, name, kafka=kafka)
        assert (snapshot.state, ownership_defects(snapshot)) == ("active", [])
        findings = [f for f in findings_of(snapshot) if f.severity != "info"]
        assert [(f.code, f.severity, f.subject) for f in findings] == [
            ("unreadable-node", "warning", f"/brokers/topics/{bad}")
        ]
        planned = run("assign", name, "--output", "json", "-z", cluster.connect)
        assert json.loads(planned.stdout)["matches_current"], planned
        assert bad in planned.stderr
        if (release, data) == ("1.1.1", b"{}"):
            done = run("assign", name, "--execute", "-z", cluster.connect)
            assert (done.returncode, names(done.stderr, znodes.topic(bad))) == (0, True), done
            registry.write(SetData(znodes.topic(bad), b"[]"))
            refused = run("assign", name, "--execute", "-z", cluster.connect)
            assert (refused.returncode, names(refused.stderr, name, znodes.topic(bad))) == (5, True), refused


@pytest.mark.long  # the short one is in test_findings
@pytest.mark.parametrize("release", ["1.1.1", "0.9.0.1"])
def test_a_member_that_fails_on_it_is_reported(
    release: str, group: Callable[[bytes], tuple[str, str, str]], cluster: Sandbox, registry: Registry
) -> None:
    """That the damaged topic stops the members is said first; no other finding advises a rebalance."""
    name, topic, bad = group(b"[]")
    settings = {"rebalance.max.retries": "2", "rebalance.backoff.ms": "200"}
    with cluster.member(
        name, f"{topic},{bad}", kind="topics", release=release, name=f"{name}-a", properties=settings
    ) as member:
        wait_until(lambda: "can't rebalance after 2 retries" in member.logged(), 60, "it gives up")

        def find() -> list[tuple[str, str]]:
            return [(f.code, f.severity) for f in findings_of(read_group(registry, name)) if f.severity == "critical"]

        led = [("unreadable-node", "critical"), ("partition-without-owner", "critical")]
        wait_until(lambda: find()[:2] == led, 30, "it is found")
        findings = [f for f in findings_of(read_group(registry, name)) if f.severity == "critical"]
        assert findings[0].subject == f"/brokers/topics/{bad}"
        assert not any("assign" in command for f in findings for command in f.commands), findings


@pytest.mark.parametrize("data", [*PASSED_OVER, b'{"version":1,"partitions":{"x":[1]}}'])
def test_changes_of_the_other_topics_go_on(
    data: bytes,
    group: Callable[[bytes], tuple[str, str, str]],
    cluster: Sandbox,
    registry: Registry,
) -> None:
    """A reset or a migration of all topics leaves the damaged one, and says so; one that names it is refused."""
    name, topic, bad = group(data)
    saved = run("offsets", name, "--save", "-", "-z", cluster.connect)
    assert saved.returncode == 0, saved.stderr
    assert {f"/consumers/{name}/offsets/{each}/0:5" for each in (topic, bad)} <= set(saved.stdout.splitlines())
    done = run("reset-offsets", name, "--all-topics", "--to-earliest", "--execute", "-z", cluster.connect)
    assert done.returncode == 0, done.stderr
    rows = {row[0]: row[2:5] for row in map(str.split, done.stdout.splitlines())}
    assert (rows[topic], rows[bad][:2]) == (["5", "0", "-5"], ["5", "5"])
    at = {p.topic: p.committed("zookeeper") for p in read_group(registry, name).partitions}
    assert at == {topic: 0, bad: 5}
    named = run("reset-offsets", name, "--topic", bad, "--to-earliest", "-z", cluster.connect)
    assert (named.returncode, len(named.stderr.splitlines())) == (1, 1)
    assert names(named.stderr, znodes.topic(bad))
    moved = run("migrate-group", name, "--to", "kafka", "-z", cluster.connect)
    assert (moved.returncode, names(moved.stderr, f"{bad}-0", znodes.topic(bad))) == (0, True), moved.stderr


@pytest.mark.parametrize("found", [Node(b"no JSON", STAT), Failure(Code.NO_AUTH)])
def test_a_leader_that_cannot_be_read_is_unknown(found: Result) -> None:
    """Brokers may know it; a partition without a state has none yet."""
    unread, new = TopicPartition("t", 0), TopicPartition("t", 1)
    nodes = NodeCache()
    nodes._nodes = {znodes.partition_state(unread): found}
    cluster = ClusterState(["t"], [1])
    cluster.add_leaders(nodes, [unread, new])
    assert (cluster.unknown_leaders, cluster.leaders) == ({unread}, {new: None})
