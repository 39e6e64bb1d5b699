"""``zkgroup unsubscribe`` on a real ZooKeeper."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable

from cli import run
from guarded_changes import Build, P, register, values
from lines import names

from zkgroup.clients.kafka.group_consumers import GroupOffsets
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import Create, Ensure, Exists
from zkgroup.protocol.znodes import Registration, encode_registration
from zkgroup.sandbox.local_cluster import Sandbox


def test_a_topic_that_is_read_no_more(
    cluster: Sandbox, registry: Registry, second: Registry, make_group: Build
) -> None:
    """With a member of another topic: the plan in each format, then the offsets are gone and can come back."""
    group = make_group({P("old", 0): 5, P("old", 1): 6, P("live", 0): 7})
    data = encode_registration(Registration("static", {"live": 1}, 1411294187842))
    second.write(Create(znodes.member_id(group, "m"), data, ephemeral=True))
    args = ("unsubscribe", group, "--topic", "old", "-z", cluster.connect)
    result = run(*args, "--output", "json")
    rows = json.loads(result.stdout)
    assert [(row["topic"], row["partition"], row["store"], row["committed"]) for row in rows] == [
        ("old", 0, "zookeeper", 5),
        ("old", 1, "zookeeper", 6),
    ]
    assert (result.stderr.count("\n"), names(result.stderr, "--execute")) == (1, True)
    assert run(*args).stdout.split()[:6] == ["topic", "partition", "store", "committed", "committed_at", "note"]
    assert values(registry, group, P("old", 0)) == [5]
    result = run(*args, "--execute", "--output", "csv")
    assert result.returncode == 0, result.stderr
    assert [row["committed"] for row in csv.DictReader(io.StringIO(result.stdout))] == ["5", "6"]
    assert names(result.stderr.splitlines()[-1], 2, group)
    assert registry.read([Exists(znodes.offset_topic(group, "old"))]) == [None]
    assert values(registry, group, P("live", 0)) == [7]


def test_a_topic_that_somebody_reads(cluster: Sandbox, registry: Registry, second: Registry, make_group: Build) -> None:
    """Exit code 5 with the member and its topic; the plan warns; a topic that the group has not is not found."""
    group = make_group({P("t", 0): 5})
    register(second, group)
    args = ("unsubscribe", group, "-z", cluster.connect, "--topic")
    plan, result = run(*args, "t"), run(*args, "t", "--execute")
    assert (plan.returncode, result.returncode) == (0, 5)
    assert names(plan.stderr, "warning", "--execute", group, f"{group}_m", "t")
    assert (result.stderr.count("\n"), names(result.stderr, group, f"{group}_m", "t")) == (1, True)
    assert values(registry, group, P("t", 0)) == [5]
    missing = run(*args, "typo", "--execute")
    assert (missing.returncode, missing.stderr.count("\n")) == (4, 1)
    assert names(missing.stderr, group, "typo", "t")


def test_owners_without_a_session_go_too(cluster: Sandbox, registry: Registry, make_group: Build) -> None:
    """Persistent owner nodes of a topic without offsets can be removed in the same way."""
    group = make_group()
    registry.write(Ensure(znodes.owner_topic(group, "old")))
    registry.write(Create(znodes.owner(group, P("old", 3)), b"stale"))
    result = run("unsubscribe", group, "--topic", "old", "--execute", "-z", cluster.connect)
    assert result.returncode == 0, result.stderr
    assert registry.read([Exists(znodes.owner_topic(group, "old"))]) == [None]


def test_offsets_in_kafka_stay_and_are_reported(
    cluster: Sandbox,
    registry: Registry,
    second: Registry,
    make_group: Build,
    make_topic: Callable[..., str],
    in_kafka: Callable[..., GroupOffsets],
) -> None:
    """With those in ZooKeeper a warning names them; where there are no others it is refused, with what removes them,
    by unsubscribe and by delete-group --topic; and what inspect-group advises is true of either."""
    old, live = make_topic(2), make_topic(1)
    group = make_group({P(old, 0): 5, P(live, 0): 7})
    in_kafka(group, {P(old, 0): 6, P(old, 1): 6})
    tool = ("--delete-offsets", "kafka-consumer-groups")
    commands = (("unsubscribe", group, "--topic", old), ("delete-group", group, "--topic", old))
    for command in commands:
        plan = run(*command, "-z", cluster.connect)
        assert plan.returncode == 0, plan.stderr
        assert names(plan.stderr, "warning", f"{old}-0..1", "Kafka", *tool)
    done = run(*commands[0], "-z", cluster.connect, "--execute")
    assert (done.returncode, names(done.stderr.splitlines()[-1], 1, group, "ZooKeeper")) == (0, True)
    assert values(registry, group, P(old, 0), P(live, 0)) == [None, 7]
    for command in commands:
        refused = run(*command, "-z", cluster.connect, "--execute")
        assert (refused.returncode, names(refused.stderr, group, f"{old}-0..1", "Kafka", *tool)) == (5, True)
    data = encode_registration(Registration("static", {live: 1}, 1411294187842))
    second.write(Create(znodes.member_id(group, "m"), data, ephemeral=True))
    seen = json.loads(run("inspect-group", group, "-z", cluster.connect, "--output", "json").stdout)
    (found,) = [one for one in seen["findings"] if one["code"] == "offset-without-subscriber"]
    assert names(found["remedy"], *tool)
    assert found["commands"] == []


def test_a_group_in_kafka_alone(
    cluster: Sandbox,
    unique: Callable[[str], str],
    make_topic: Callable[..., str],
    in_kafka: Callable[..., GroupOffsets],
) -> None:
    """It is there, though not in ZooKeeper: refused for what it has, not found for what it has not."""
    topic, group = make_topic(1), unique("alone")
    in_kafka(group, {P(topic, 0): 6})
    refused = run("unsubscribe", group, "--topic", topic, "-z", cluster.connect)
    assert (refused.returncode, names(refused.stderr, group, f"{topic}-0", "Kafka")) == (5, True)
    missing = run("unsubscribe", group, "--topic", "typo", "-z", cluster.connect)
    assert (missing.returncode, names(missing.stderr, group, "typo", topic)) == (4, True)
