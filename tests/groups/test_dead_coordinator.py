"""A group whose coordinator has died, and is registered no more: nobody can tell what Kafka keeps of it, so that
nothing is changed, or saved, as if that were nothing."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import orjson
import pytest
from cli import ZKGROUP, environment, run
from group_nodes import commit_in_kafka, joined
from lines import names
from servers import Sandbox, pause
from support import numbered, wait_until

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.group_consumers import GroupOffsets
from zkgroup.clients.kafka.group_coordinator import Coordinators
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.protocol import znodes
from zkgroup.protocol.assignors import extend_hash
from zkgroup.protocol.names import OFFSETS_TOPIC, TopicPartition
from zkgroup.protocol.operations import Children, Create, Ensure, Get, Node
from zkgroup.sandbox.topic_admin import create_topic, produce


class Cluster(NamedTuple):
    """Of two brokers one is dead. ``both`` has offsets in both stores, ``kafka`` in Kafka, and the dead one coordinates
    them and ``lost``, of which there is nothing yet; the other one coordinates ``coordinated``, and ``lively``, which
    has offsets in Kafka alone, and leads ``topic``:0. ``stopped``: a reset while it was stopped, before it died."""

    sandbox: Sandbox
    registry: Registry
    topic: str
    both: str
    kafka: str
    lost: str
    coordinated: str
    lively: str
    stopped: subprocess.CompletedProcess[str]

    def run(self, *args: str) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of a command."""
        result = run(*args, "-z", self.sandbox.connect, "--connect-timeout", "2.5")
        return result.returncode, result.stdout, result.stderr

    def offsets(self, group: str) -> list[bytes | None]:
        """What ZooKeeper holds."""
        paths = [znodes.offset(group, TopicPartition(self.topic, number)) for number in range(2)]
        return [node.data if isinstance(node, Node) else None for node in self.registry.read([Get(p) for p in paths])]


def leader_of(registry: Registry, topic: str, partition: int) -> int:
    (node,) = registry.read([Get(f"{znodes.topic(topic)}/partitions/{partition}/state")])
    return int(orjson.loads(node.data)["leader"]) if isinstance(node, Node) else -1


@pytest.fixture(scope="module")
def cluster(zookeeper: Sandbox) -> Iterator[Cluster]:
    properties = {"zookeeper.session.timeout.ms": "6000"}
    with (
        Sandbox(
            "dead-coordinator", brokers=2, properties=properties, zookeeper=zookeeper.address, chroot="/dead"
        ) as sandbox,
        sandbox.registry(30.0) as registry,
    ):
        kafka = KafkaSettings(sandbox.bootstrap)
        topic = "t"
        create_topic(registry, topic, 2)
        produce(kafka, topic, numbered(200, 2))
        first = GroupOffsets(kafka, "first")  # brings the topic of offsets into being
        first.commit({TopicPartition(topic, 0): 1}, 30)
        first.close()
        (numbers,) = registry.read([Children(f"{znodes.topic(OFFSETS_TOPIC)}/partitions")])
        assert isinstance(numbers, tuple)
        leaders = {number: leader_of(registry, OFFSETS_TOPIC, number) for number in map(int, numbers)}
        victim = 3 - leader_of(registry, topic, 0)
        of: dict[int, list[str]] = {1: [], 2: []}
        for name in (f"g{n}" for n in range(200)):
            of[leaders[(extend_hash(0, name) & 0x7FFFFFFF) % len(leaders)]].append(name)
        both, alone, lost = of[victim][:3]
        coordinated, lively = of[3 - victim][:2]
        registry.read([Ensure(znodes.offset_topic(both, topic))])
        registry.read([Create(znodes.offset(both, TopicPartition(topic, 0)), b"10")])
        for group in (both, alone):
            offsets = GroupOffsets(kafka, group)
            offsets.commit({TopicPartition(topic, 0): 90}, 30)
            offsets.close()
        commit_in_kafka(kafka, lively, {TopicPartition(topic, number): 90 for number in range(2)})
        server = sandbox.broker(victim)
        pause(server)
        stopped = subprocess.run(
            [ZKGROUP, "reset-offsets", both, "--topic", f"{topic}:0", "--to-offset", "5", "-z", sandbox.connect],
            env=environment(), capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        server.kill()
        wait_until(lambda: registry.read([Children(znodes.broker_ids())]) == [(str(3 - victim),)], 60, "unregistered")
        # The nodes of partitions may go on naming the dead one, where it was the controller.
        coordinators = Coordinators(kafka, 10.0)
        wait_until(lambda: None in coordinators.leaders().get(OFFSETS_TOPIC, {}).values(), 60, "the leader is gone")
        yield Cluster(sandbox, registry, topic, both, alone, lost, coordinated, lively, stopped)


def test_a_command_ends_though_a_broker_owes_it_an_answer(cluster: Cluster) -> None:
    """A coordinator that is stopped: when the command has said so, nothing keeps it. (Python's end would free the
    client, for which librdkafka was seen to wait without an end.)"""
    assert cluster.stopped.returncode == 3, cluster.stopped.stderr
    assert names(cluster.stopped.stderr, cluster.both, "Kafka", "--store zookeeper")


@pytest.mark.parametrize(
    "command",
    [
        ("reset-offsets", "G", "--topic", "t:0", "--to-offset", "5", "--execute"),
        ("reset-offsets", "G", "--topic", "t:0", "--shift-by", "-3"),
        ("rename-group", "G", "other", "--execute"),
        ("copy-group", "G", "other", "--execute"),
        ("delete-group", "G", "--execute"),
    ],
    ids=lambda command: " ".join(command),
)
def test_half_of_a_group_is_not_changed(cluster: Cluster, command: tuple[str, ...]) -> None:
    """Plans are refused as well: what they would show is not what there is."""
    code, out, err = cluster.run(*(cluster.both if word == "G" else word for word in command))
    assert (code, out) == (3, ""), err
    assert names(err, cluster.both, "Kafka", "--store zookeeper")
    assert cluster.offsets(cluster.both) == [b"10", None]
    assert cluster.offsets("other") == [None, None]


def test_half_of_a_group_is_not_saved(cluster: Cluster, tmp_path: Path) -> None:
    """Nor said to be none where only Kafka may know it."""
    for group in (cluster.both, cluster.kafka):
        file = tmp_path / f"{group}.csv"
        code, out, err = cluster.run("offsets", group, "--save", str(file))
        assert (code, out) == (3, ""), err
        assert names(err, group, "Kafka", "--store zookeeper")
        assert not file.exists()


def test_zookeepers_half_can_be_meant(cluster: Cluster, tmp_path: Path) -> None:
    """What the error advises works, while no broker that is needed is away."""
    file = tmp_path / "saved.csv"
    assert cluster.run("offsets", cluster.both, "--save", str(file), "--store", "zookeeper")[0] == 0
    assert file.read_text() == f"{cluster.topic},0,10\n"
    plan = ("reset-offsets", cluster.both, "--topic", "t:0", "--shift-by", "-3", "--store", "zookeeper")
    code, out, err = cluster.run(*plan)
    assert (code, out.splitlines()[1].split()[2:4]) == (0, ["10", "7"]), err


def test_groups_that_are_not_listed_are_missed(cluster: Cluster) -> None:
    """A list that cannot be whole says so; and no group is deleted by a pattern while its members in Kafka are not
    known."""
    code, out, err = cluster.run("list-groups")
    assert (code, cluster.kafka in out.split()) == (0, False)
    assert names(err, OFFSETS_TOPIC)
    code, out, err = cluster.run("delete-group", "--pattern", "g*", "--execute")
    assert (code, out) == (3, ""), err
    assert names(err, OFFSETS_TOPIC, "--store zookeeper")
    assert cluster.offsets(cluster.both) == [b"10", None]


def test_what_could_not_be_diagnosed_is_not_called_right(cluster: Cluster) -> None:
    """A group of which only ZooKeeper's half is known is no group without a finding; one whose coordinator lives is
    judged as ever, since what no server reports of is not its own."""
    code, _, err = cluster.run("inspect-group", cluster.both, "--verify")
    assert code == 3, err
    assert names(err, cluster.both, "Kafka")
    cluster.registry.read(
        [Ensure(znodes.offset_topic(group, cluster.topic)) for group in (cluster.lost, cluster.coordinated)]
    )
    code, out, _ = cluster.run("inspect-group", "--all", "--output", "json")
    assert code == 0
    codes = {one["group"]: [finding["code"] for finding in one["findings"]] for one in orjson.loads(out)}
    assert "incomplete-snapshot" in codes[cluster.lost]
    # Partition 1 has no offset in ZooKeeper; whether it has one in Kafka is what no server reports.
    assert set(codes[cluster.both]) == {"incomplete-snapshot", "partition-without-leader"}
    assert "incomplete-snapshot" not in codes[cluster.coordinated]


def test_a_group_in_kafka_alone_has_partitions_without_a_leader(cluster: Cluster) -> None:
    """As one in ZooKeeper has: worth a warning, and critical once a member is given them; asked through ZooKeeper, and
    of the brokers alone. The partition says by itself why nothing of it is known."""
    name = f"{cluster.topic}-1"
    code, out, err = cluster.run("inspect-group", cluster.lively, "--output", "json", "--verify")
    assert code == 0, err
    found = [(one["code"], one["severity"], one["subject"]) for one in orjson.loads(out)["findings"]]
    assert found == [("partition-without-leader", "warning", name)]
    code, _, err = cluster.run("offsets", cluster.lively)
    assert (code, names(err, name)) == (0, True), err
    with joined(KafkaSettings(cluster.sandbox.bootstrap), cluster.lively, [cluster.topic]):
        ways = (("-z", cluster.sandbox.connect), ("--bootstrap-server", cluster.sandbox.bootstrap))
        for way in ways:
            result = run("inspect-group", cluster.lively, "--verify", *way)
            assert result.returncode == 6, (way, result.stderr)
            assert names(result.stderr, "partition-without-leader", name)


def test_one_cause_is_one_line(cluster: Cluster) -> None:
    """However many groups a dead coordinator leaves unknown, they are named together, and what is not known of them."""
    cluster.registry.read([Ensure(znodes.offset_topic(cluster.lost, cluster.topic))])
    for command in ("list-groups",), ("inspect-group", "--all"):
        code, _, err = cluster.run(*command)
        assert code == 0, err
        both = sorted([cluster.both, cluster.lost])
        told = [names(line, 2, ", ".join(both)) for line in err.splitlines() if any(names(line, one) for one in both)]
        assert told == [True], err
