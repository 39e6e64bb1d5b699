"""What Kafka's own tools print, and what they read, with a real cluster."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cli import run
from group_nodes import commit_in_kafka
from guarded_changes import Build, P, values

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.groups.offset_files.file_formats import parse_offsets
from zkgroup.java_runtime import find_java
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import Ensure
from zkgroup.sandbox.kafka_releases import kafka_class_path
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.server_configuration import jvm
from zkgroup.sandbox.topic_admin import ProducerRecord

CHECKER, DESCRIBE = "kafka.tools.ConsumerOffsetChecker", "kafka.admin.ConsumerGroupCommand"


def tool(release: str, *words: str) -> str:
    """What a tool of that release prints, on stdout and stderr, as somebody saves it who gives ``2>&1``."""
    command = [*jvm(find_java(), kafka_class_path(release), 128), *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture
def topic(make_topic: Callable[..., str], fill: Callable[..., list[ProducerRecord]]) -> str:
    """A topic of three partitions with 10 messages each."""
    name = make_topic(3)
    fill(name, 30, 3)
    return name


def far(release: str) -> object:
    """A release between the oldest and the newest that has the tool."""
    return pytest.param(release, marks=pytest.mark.long)


@pytest.mark.parametrize("release", ["0.8.2.2", far("0.9.0.1"), far("0.10.1.1"), far("0.10.2.2")])
def test_what_the_offset_checker_prints(
    cluster: Sandbox, registry: Registry, make_group: Build, topic: str, release: str
) -> None:
    """With the trailer of --broker-info; -1 in a partition without an offset."""
    group = make_group({P(topic, 0): 3, P(topic, 1): 7})
    registry.write(Ensure(znodes.owner_topic(group, topic)))
    text = tool(release, CHECKER, "--zookeeper", cluster.connect, "--group", group, "--broker-info")
    assert "BROKER INFO" in text
    found = parse_offsets(text.encode(), "saved").offsets_of(group)
    assert found == {P(topic, 0): 3, P(topic, 1): 7, P(topic, 2): None}


@pytest.mark.parametrize("release", [far("0.9.0.1"), far("0.10.1.1"), "0.10.2.2", "1.1.1"])
@pytest.mark.parametrize("complete", [True, False])
def test_what_describe_prints_of_a_group_in_zookeeper(
    cluster: Sandbox, registry: Registry, make_group: Build, topic: str, release: str, complete: bool
) -> None:
    """Also with a partition without an offset, of which it says so before the table or within."""
    group = make_group({P(topic, number): number for number in range(3 if complete else 2)})
    registry.write(Ensure(znodes.owner_topic(group, topic)))
    text = tool(release, DESCRIBE, "--zookeeper", cluster.connect, "--describe", "--group", group)
    assert ("Could not fetch offset" in text) != complete
    found = parse_offsets(text.encode(), "saved").offsets_of(group)
    assert found == {P(topic, 0): 0, P(topic, 1): 1, P(topic, 2): 2 if complete else None}


@pytest.mark.parametrize("release", [far("0.10.2.2"), "1.1.1", far("2.8.2")])
def test_what_describe_prints_of_a_group_in_kafka(
    cluster: Sandbox, kafka: KafkaSettings, unique: Callable[[str], str], topic: str, release: str
) -> None:
    """Members or none."""
    group, offsets = unique("group"), {P(topic, 0): 5, P(topic, 1): 6}
    commit_in_kafka(kafka, group, offsets)
    new = ("--new-consumer",) if release.startswith("0.10") else ()
    text = tool(release, DESCRIBE, *new, "--bootstrap-server", cluster.bootstrap, "--describe", "--group", group)
    found = parse_offsets(text.encode(), "saved").offsets_of(group)
    assert {key: offset for key, offset in found.items() if offset is not None} == offsets


@pytest.mark.parametrize("release", ["0.8.2.2", far("0.10.2.2")])
def test_export_and_import(
    cluster: Sandbox, registry: Registry, make_group: Build, topic: str, tmp_path: Path, release: str
) -> None:
    """We read what ExportZkOffsets writes, ImportZkOffsets reads what we write: it stops before our last line."""
    group = make_group({P(topic, 0): 3, P(topic, 1): 7})
    registry.write(Ensure(znodes.owner_topic(group, topic)))
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    connect = ("--zkconnect", cluster.connect)
    tool(release, "kafka.tools.ExportZkOffsets", *connect, "--group", group, "--output-file", str(theirs))
    assert parse_offsets(theirs.read_bytes(), "saved").offsets_of(group) == {P(topic, 0): 3, P(topic, 1): 7}
    assert run("offsets", group, "-z", cluster.connect, "--save", str(ours)).returncode == 0
    assert "cluster_id" in ours.read_text()
    moved = run("reset-offsets", group, "-z", cluster.connect, "--all-topics", "--to-latest", "--execute")
    assert moved.returncode == 0, moved.stderr
    tool(release, "kafka.tools.ImportZkOffsets", *connect, "--input-file", str(ours))
    assert values(registry, group, P(topic, 0), P(topic, 1)) == [3, 7]


def test_what_kafka_prints_to_be_read_again(
    cluster: Sandbox, kafka: KafkaSettings, unique: Callable[[str], str], topic: str, tmp_path: Path
) -> None:
    """The plan that kafka-consumer-groups exports is read, and ours by it."""
    group, file = unique("group"), tmp_path / "plan.csv"
    commit_in_kafka(kafka, group, {P(topic, 0): 5})
    reset = (DESCRIBE, "--bootstrap-server", cluster.bootstrap, "--group", group, "--reset-offsets")
    text = tool("1.1.1", *reset, "--topic", topic, "--to-earliest", "--dry-run", "--export")
    assert parse_offsets(text.encode(), "saved").offsets_of(group) == {P(topic, number): 0 for number in range(3)}
    assert run("offsets", group, "-z", cluster.connect, "--save", str(file)).returncode == 0
    text = tool("1.1.1", *reset, "--from-file", str(file), "--dry-run")
    assert parse_offsets(text.encode(), "saved").offsets_of(group) == {P(topic, 0): 5}
