"""``zkgroup topics`` on real servers."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from cli import run
from group_nodes import Groups, commit_in_kafka, static
from lines import names

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.group_coordinator import Coordinators
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.commands import app
from zkgroup.commands.topics import retention_text
from zkgroup.errors import UnreachableError
from zkgroup.groups.snapshot.table_rows import TopicRow
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Create, Ensure
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import create_topic


@pytest.fixture
def topic(
    registry: Registry, groups: Groups, kafka: KafkaSettings, fill: Callable[..., object], unique: Callable[[str], str]
) -> tuple[str, list[str]]:
    """A topic of three days, and the groups that read it: by a member, by an offset in ZooKeeper, by one in Kafka."""
    name = unique("orders")
    registry.write(Ensure("/config/topics"))
    config = {"version": 1, "config": {"retention.ms": "259200000", "retention.bytes": "1073741824"}}
    assert registry.write(Create(f"/config/topics/{name}", json.dumps(config).encode())) is None
    create_topic(registry, name, 3)
    fill(name, 30, 3)
    member = groups.make({"@_a": static({name: 1})}, {}, {(name, 0): 4, (name, 1): 10, (name, 2): 10})
    offset, in_kafka = groups.make(offsets={(name, 1): 9, ("never", 0): 3}), unique("in-kafka")
    commit_in_kafka(kafka, in_kafka, {TopicPartition(name, 0): 10, TopicPartition(name, 1): 9})
    return name, [member, offset, in_kafka]


def test_all_topics(cluster: Sandbox, topic: tuple[str, list[str]]) -> None:
    """A row for each, the same in every format; a table counts the groups, and has retention in words."""
    name, groups = topic
    result = run("topics", "-z", cluster.connect, "--output", "json")
    assert (result.returncode, result.stderr) == (0, "")
    rows = {row.pop("topic"): row for row in json.loads(result.stdout)}
    assert list(rows) == sorted(rows)
    assert rows[name] == {
        "partitions": 3, "replicas": 1, "leaderless": 0, "out_of_sync": 0, "messages": 30, "retention_ms": 259_200_000,
        "retention_bytes": 1 << 30, "cleanup_policy": "delete", "groups": sorted(groups),
    }  # fmt: skip
    assert rows["__consumer_offsets"]["cleanup_policy"] == "compact"
    table = {line.split()[0]: line.split()[1:] for line in run("topics", "-z", cluster.connect).stdout.splitlines()}
    assert table[name] == ["3", "1", "0", "0", "30", "3", "d", "or", "1", "GiB", "3"]
    assert table["__consumer_offsets"][-2] == "compact"
    listed = csv.DictReader(io.StringIO(run("topics", "-z", cluster.connect, "--output", "csv").stdout))
    assert {row["topic"]: row["groups"] for row in listed}[name] == ",".join(sorted(groups))


def test_one_topic(cluster: Sandbox, topic: tuple[str, list[str]]) -> None:
    """Its partitions, with leaders and offsets, and the groups that read it, with their lag in it alone."""
    name, (member, offset, in_kafka) = topic
    shown: Any = json.loads(run("topics", name, "-z", cluster.connect, "--output", "json").stdout)
    assert list(shown) == ["topic", "retention_ms", "retention_bytes", "cleanup_policy", "partitions", "groups"]
    assert shown["partitions"] == [
        {
            "partition": number, "leader": 1, "replicas": [1], "in_sync": [1], "log_start": 0, "log_end": 10,
            "messages": 10,
        }
        for number in range(3)
    ]  # fmt: skip
    assert {row["group"]: (row["state"], row["members"], row["lag_at_least"]) for row in shown["groups"]} == {
        member: ("active", 1, 6),
        offset: ("inactive", 0, 1),
        in_kafka: ("inactive", 0, 1),
    }
    blocks = run("topics", name, "-z", cluster.connect).stdout.split("\n\n")
    assert [block.split("\n")[0].split()[0] for block in blocks] == ["topic", "partitions", "groups"]
    assert blocks[1].splitlines()[2].split() == ["0", "1", "1", "1", "0", "10", "10"]
    (row,) = [line.split() for line in blocks[2].splitlines() if line.startswith(f"{offset} ")]
    assert row[-1] == "≥1"
    rows = run("topics", name, "-z", cluster.connect, "--output", "csv").stdout.splitlines()
    assert rows[1:] == [f"{number},1,1,1,0,10,10" for number in range(3)]


def test_without_zookeeper(cluster: Sandbox, topic: tuple[str, list[str]]) -> None:
    """Brokers alone tell all but the groups in ZooKeeper."""
    name, (_, _, in_kafka) = topic
    shown = json.loads(run("topics", name, "--bootstrap-server", cluster.bootstrap, "--output", "json").stdout)
    assert [row["log_end"] for row in shown["partitions"]] == [10, 10, 10]
    assert [row["group"] for row in shown["groups"]] == [in_kafka]


def test_a_topic_that_is_not_there(cluster: Sandbox, topic: tuple[str, list[str]]) -> None:
    """Exit code 4 and a similar name; the question creates no topic."""
    result = run("topics", f"{topic[0]}x", "-z", cluster.connect)
    assert (result.returncode, result.stdout) == (4, "")
    assert names(result.stderr, f"{topic[0]}x", topic[0])
    assert f"{topic[0]}x" not in run("topics", "-z", cluster.connect).stdout


@pytest.mark.parametrize(
    ("millis", "size", "policy", "words"),
    [
        (None, None, "delete", None),
        (-1, -1, "delete", "unlimited"),
        (259_200_000, 1 << 31, "delete", "3 d or 2 GiB"),
        (-1, 512, "compact,delete", "compact, 512 bytes"),
        (3_600_000, -1, "compact", "compact"),
    ],
)
def test_retention_in_words(millis: int | None, size: int | None, policy: str, words: str | None) -> None:
    """By time, by bytes, by keys, or none of these; unknown where the brokers do not tell it."""
    assert retention_text(TopicRow("t", 1, 1, 0, 0, 0, millis, size, policy, ())) == words


def test_groups_that_are_not_known(
    cluster: Sandbox,
    topic: tuple[str, list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """That is said where no group is known, too."""

    def fail(coordinators: Coordinators) -> object:
        raise UnreachableError("the test lists none")

    monkeypatch.setattr(Coordinators, "names", fail)
    with pytest.raises(SystemExit) as ended:
        app(["topics", topic[0], "--bootstrap-server", cluster.bootstrap])
    assert ended.value.code == 0
    assert names(capsys.readouterr().err, "warning", "groups in Kafka", "the test lists none")
