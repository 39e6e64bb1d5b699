"""``zkgroup rename-group`` on real servers."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from cli import environment, run
from guarded_changes import Build, P, register, values
from lines import names

from zkgroup.clients.kafka.group_consumers import GroupOffsets
from zkgroup.clients.kafka.group_coordinator import Coordinators
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.groups.changes import backup
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import Delete, Ensure, Exists, SetData, Stat
from zkgroup.sandbox.local_cluster import Sandbox


def exists(registry: Registry, group: str) -> bool:
    return isinstance(registry.read([Exists(znodes.group(group))])[0], Stat)


def test_a_group_gets_another_name(
    cluster: Sandbox, registry: Registry, make_group: Build, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """The plan in each format; then the offsets are under the other name alone, and the backup has the whole group."""
    group, other = make_group({P("t", 0): 5, P("u", 1): 6}), unique("renamed")
    registry.write(Ensure(f"{znodes.group(group)}/foreign"))
    args = ("rename-group", group, other, "-z", cluster.connect, "--store", "zookeeper")
    result = run(*args, "--output", "json")
    assert (result.returncode, json.loads(result.stdout)) == (
        0,
        [
            {"topic": "t", "partition": 0, "current": None, "target": 5, "change": None, "note": None},
            {"topic": "u", "partition": 1, "current": None, "target": 6, "change": None, "note": None},
        ],
    )
    assert names(result.stderr, "warning", 1, f"{znodes.group(group)}/foreign")
    assert names(result.stderr.splitlines()[-1], "--execute")
    assert (exists(registry, group), exists(registry, other)) == (True, False)
    table = run(*args, "--quiet").stdout.splitlines()
    assert [line.split() for line in table[1:]] == [["t", "0", "-", "5", "-", "-"], ["u", "1", "-", "6", "-", "-"]]
    file = tmp_path / "backup.json"
    result = run(*args, "--execute", "--output", "csv", "--backup", str(file))
    assert result.returncode == 0, result.stderr
    assert [row["target"] for row in csv.DictReader(io.StringIO(result.stdout))] == ["5", "6"]
    written, done = result.stderr.splitlines()[-2:]
    assert (names(written, file), names(done, group, other, 2, group)) == (True, True)
    assert values(registry, other, P("t", 0), P("u", 1)) == [5, 6]
    assert not exists(registry, group)
    saved = backup.read(file)
    assert [(one.partition, one.before, one.written) for one in saved.offsets] == [
        (P("t", 0), 5, None),
        (P("u", 1), 6, None),
    ]
    assert f"{znodes.group(group)}/foreign" in {node.path for node in saved.nodes}
    result = run(*args, "--execute")
    assert result.returncode == 4


def test_an_interrupted_rename_goes_on(cluster: Sandbox, registry: Registry, make_group: Build) -> None:
    """Some offsets are copied already, or all of them and the deletion was interrupted: run again, it is finished."""
    group, other = make_group({P("t", 0): 5, P("t", 1): 6}), make_group({P("t", 1): 6, P("kept", 0): 1})
    result = run("rename-group", group, other, "-z", cluster.connect, "--store", "zookeeper", "--execute")
    assert result.returncode == 0, result.stderr
    assert values(registry, other, P("t", 0), P("t", 1), P("kept", 0)) == [5, 6, 1]
    assert not exists(registry, group)


def test_a_group_without_offsets(cluster: Sandbox, registry: Registry, make_group: Build) -> None:
    """There is nothing to copy, and only the name goes."""
    group = make_group()
    result = run("rename-group", group, f"{group}-new", "-z", cluster.connect, "--store", "zookeeper", "--execute")
    assert (result.returncode, exists(registry, group)) == (0, False)


def test_what_would_be_lost_is_refused(cluster: Sandbox, registry: Registry, make_group: Build) -> None:
    """The other group's own offsets, and offsets that nobody can read: exit code 5, both groups stay as they are."""
    group, other = make_group({P("t", 0): 5}), make_group({P("t", 0): 9})
    args = ("-z", cluster.connect, "--store", "zookeeper")
    result = run("rename-group", group, other, *args, "--execute")
    assert (result.returncode, values(registry, group, P("t", 0)), values(registry, other, P("t", 0))) == (5, [5], [9])
    assert names(result.stderr, other, 1, "t-0", "zookeeper", 9)
    registry.write(SetData(znodes.offset(group, P("t", 0)), b"malformed"))
    result = run("rename-group", group, f"{group}-new", *args, "--execute")
    assert (result.returncode, exists(registry, group), exists(registry, f"{group}-new")) == (5, True, False)
    assert names(result.stderr, group, "t-0", "zookeeper")


def test_neither_group_may_be_active(cluster: Sandbox, registry: Registry, second: Registry, make_group: Build) -> None:
    """Members of either are named; exit code 5, nothing is copied."""
    group, other = make_group({P("t", 0): 5}), make_group()
    for active in (group, other):
        register(second, active)
        result = run("rename-group", group, other, "-z", cluster.connect, "--store", "zookeeper", "--execute")
        assert (result.returncode, values(registry, other, P("t", 0))) == (5, [None])
        assert names(result.stderr, active, f"{active}_m")
        second.write(Delete(znodes.member_id(active, f"{active}_m")))
    assert values(registry, group, P("t", 0)) == [5]


MEDDLING = """
import sys
from zkgroup.__main__ import main
from zkgroup.groups.changes.applier import Applier
from zkgroup.protocol.names import TopicPartition
from zkgroup.clients.kafka.group_consumers import GroupOffsets

group, topic = sys.argv[2], sys.argv.pop()
verify = Applier.verify

def then_commit(self, plan):
    warnings = verify(self, plan)
    offsets = GroupOffsets(self.brokers(), group)
    offsets.commit({TopicPartition(topic, 0): 77}, 20.0)
    offsets.close()
    return warnings

Applier.verify = then_commit
main()
"""


def test_what_moves_while_it_is_renamed(
    cluster: Sandbox,
    unique: Callable[[str], str],
    make_topic: Callable[..., str],
    in_kafka: Callable[..., GroupOffsets],
) -> None:
    """A commit to Kafka after the copy keeps the old group; what the message says to do finishes the rename."""
    one, group, other = P(make_topic(1), 0), unique("old"), unique("new")
    in_kafka(group, {one: 10})
    connected = ("-z", cluster.connect, "--execute")
    refused = subprocess.run(
        [sys.executable, "-c", MEDDLING, "rename-group", group, other, *connected, one.topic],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert refused.returncode == 5, refused.stderr
    assert names(refused.stderr, one, 10, 77, other)
    assert in_kafka(group).fetch([one], 20.0) == {one: 77}, "it is still there"
    again = f"zkgroup -z {cluster.connect} copy-group --overwrite --execute {group} {other}"
    assert refused.stderr.splitlines()[-1].endswith(f": {again}")
    assert run("copy-group", group, other, "--overwrite", *connected).returncode == 0
    assert run("rename-group", group, other, *connected).returncode == 0
    assert in_kafka(other).fetch([one], 20.0) == {one: 77}


def test_a_group_in_both_stores(
    cluster: Sandbox,
    registry: Registry,
    make_group: Build,
    make_topic: Callable[..., str],
    unique: Callable[[str], str],
    in_kafka: Callable[..., GroupOffsets],
) -> None:
    """Copied in both, verified in both, and deleted in both."""
    topic, other = make_topic(1), unique("renamed")
    group = make_group({P(topic, 0): 5})
    in_kafka(group, {P(topic, 0): 6})
    result = run("rename-group", group, other, "-z", cluster.connect, "--execute", "--output", "json")
    assert result.returncode == 0, result.stderr
    assert [(row["store"], row["target"]) for row in json.loads(result.stdout)] == [("zookeeper", 5), ("kafka", 6)]
    assert values(registry, other, P(topic, 0)) == [5]
    assert not exists(registry, group)
    kafka_groups = Coordinators(in_kafka(other).settings, 20.0).read_groups([group, other])
    assert (kafka_groups[group].group, kafka_groups[group].offsets) == (None, {})
    assert {key: one.offset for key, one in kafka_groups[other].offsets.items()} == {P(topic, 0): 6}
