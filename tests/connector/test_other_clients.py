"""Members of other clients in a group with ours, as they name ids and owners differently."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from members import ReadMember, committed, plan, wait_for_rest
from members import owners as owners_of
from support import numbered, values, wait_until

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import Children
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import produce

PROGRAM = Path(__file__).parents[1] / "kafka_node_member.js"
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """kafka-node 2.6.1, a release whose HighLevelConsumer keeps its group in ZooKeeper."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("kafka-node needs node and npm")
    folder = tmp_path_factory.mktemp("node")
    command = [npm, "install", "--silent", "--no-optional", "--ignore-scripts", "--no-audit", "kafka-node@2.6.1"]
    subprocess.run(command, cwd=folder, check=True, timeout=240)
    return folder / "node_modules"


@pytest.fixture
def kafka_node(cluster: Sandbox, modules: Path, tmp_path: Path) -> Iterator[Callable[[str, str], KafkaNode]]:
    """``kafka_node(group, topic)``: a member in a process of its own."""
    made: list[KafkaNode] = []

    def start(group: str, topic: str) -> KafkaNode:
        made.append(KafkaNode(cluster.connect, group, topic, modules, tmp_path / str(len(made))))
        return made[-1]

    yield start
    for one in made:
        one.process.kill()
        one.process.wait(30)


class KafkaNode:
    """A member of kafka-node."""

    def __init__(self, connect: str, group: str, topic: str, modules: Path, output: Path) -> None:
        self._output = output
        with output.open("wb") as out, output.with_suffix(".err").open("wb") as err:
            self.process = subprocess.Popen(
                ["node", str(PROGRAM), connect, group, topic],
                stdout=out,
                stderr=err,
                env=os.environ | {"NODE_PATH": str(modules), "NODE_NO_WARNINGS": "1"},
            )

    @property
    def values(self) -> list[bytes]:
        """What it has printed."""
        return [line.rpartition(b"\t")[2] for line in self._output.read_bytes().split(b"\n")[:-1]]


def at_rest(registry: Registry, group: str, members: int) -> bool:
    """Whether the owners are the plan. kafka-node knows no streams: it writes the bare id."""
    (listed,) = registry.read([Children(znodes.ids(group))])
    if not isinstance(listed, tuple) or len(listed) != members:
        return False
    wanted = {p: thread.rpartition("-")[0] for p, thread in plan(registry, group).items()}
    owners = owners_of(registry, group).items()
    return wanted == {p: owner if owner in listed else owner.rpartition("-")[0] for p, owner in owners}


def test_a_member_of_kafka_node_shares_a_group_with_ours(
    cluster: Sandbox,
    registry: Registry,
    make_topic: Callable[..., str],
    unique: Callable[[str], str],
    kafka: KafkaSettings,
    kafka_node: Callable[[str, str], KafkaNode],
) -> None:
    """It registers as the Scala consumer does, with one stream and the bare id as owner: both compute one plan. Each
    takes over from the other where it stopped, whether that one leaves or is killed; nothing is missing."""
    topic, group = make_topic(4), unique("group")
    sent = numbered(400, 4)
    produce(kafka, topic, sent)
    first = kafka_node(group, topic)
    wait_until(lambda: set(first.values) == values(sent), 60, "it reads by itself")
    wait_until(lambda: committed(registry, group, topic, 4) == [100] * 4, 30, "and commits")
    with ReadMember(cluster.connect, group, {topic: 1}, consumer_id="a") as ours:
        wait_until(lambda: at_rest(registry, group, 2), 30, "both at rest")
        assert len(ours.owned) == 2
        assert len(ours.records) == 0, "it begins behind the other"
        more = numbered(400, 4, 400)
        produce(kafka, topic, more)
        wait_until(lambda: values(more) <= set(first.values) | ours.values.keys(), 30, "all is read")
        assert len(ours.records) == 200
        wait_until(lambda: committed(registry, group, topic, 4) == [200] * 4, 30, "all is committed")
        first.process.terminate()
        assert first.process.wait(30) == 143
        wait_for_rest(registry, group, 1)
        second = kafka_node(group, topic)
        wait_until(lambda: at_rest(registry, group, 2), 30, "both at rest")
        last = numbered(400, 4, 800)
        produce(kafka, topic, last)
        wait_until(lambda: values(last) <= set(second.values) | ours.values.keys(), 30, "all is read")
        wait_until(lambda: committed(registry, group, topic, 4) == [300] * 4, 30, "all is committed")
        second.process.kill()
        wait_for_rest(registry, group, 1)
        produce(kafka, topic, numbered(4, 4, 1200))
        ours.wait_for(values(numbered(4, 4, 1200)))
    everything = first.values + second.values + list(ours.values.elements())
    assert len(set(everything)) == len(everything) == 1204
