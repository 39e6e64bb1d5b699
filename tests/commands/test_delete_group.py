"""``zkgroup delete-group`` on real servers."""

from __future__ import annotations

import csv
import io
import json
import shlex
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cli import run
from guarded_changes import Build, P, register, values
from lines import names
from resets import Kept
from support import wait_until

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.group_consumers import GroupOffsets
from zkgroup.clients.kafka.group_coordinator import Coordinators
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.groups.changes import backup
from zkgroup.groups.changes.group_tree import read_tree
from zkgroup.groups.changes.inactive_groups import read_inactive_groups
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import Create, Delete, Ensure, Exists, Failure, Stat
from zkgroup.sandbox.local_cluster import Sandbox

ZOOKEEPER = ("--store", "zookeeper")


def exists(registry: Registry, group: str) -> bool:
    return isinstance(registry.read([Exists(znodes.group(group))])[0], Stat)


def test_a_group_goes_and_its_offsets_can_come_back(
    cluster: Sandbox, registry: Registry, make_group: Build, tmp_path: Path
) -> None:
    """The plan in each format changes nothing; then all nodes are gone, and the backup makes the offsets again."""
    group = make_group({P("t", 0): 5, P("t", 1): 6})
    registry.write(Ensure(f"{znodes.group(group)}/foreign"))
    args = ("delete-group", group, "-z", cluster.connect, *ZOOKEEPER)
    result = run(*args, "--output", "json")
    rows = json.loads(result.stdout)
    assert result.returncode == 0
    assert [row.pop("committed_at")[:2] for row in rows] == ["20", "20"]
    assert rows == [
        {"topic": "t", "partition": 0, "store": "zookeeper", "committed": 5, "note": None},
        {"topic": "t", "partition": 1, "store": "zookeeper", "committed": 6, "note": None},
    ]
    assert names(result.stderr, "warning", 1, f"{znodes.group(group)}/foreign")
    assert names(result.stderr.splitlines()[-1], "--execute")
    table = run(*args, "--quiet")
    assert table.stdout.split()[:6] == ["topic", "partition", "store", "committed", "committed_at", "note"]
    assert table.stderr == ""
    assert values(registry, group, P("t", 0), P("t", 1)) == [5, 6]
    file = tmp_path / "backup.json"
    result = run(*args, "--execute", "--output", "csv", "--backup", str(file))
    assert result.returncode == 0, result.stderr
    assert [row["committed"] for row in csv.DictReader(io.StringIO(result.stdout))] == ["5", "6"]
    backed_up, last = result.stderr.splitlines()[-2:]
    assert (names(backed_up, file), names(last, group, "ZooKeeper", 2, 7)) == (True, True)
    assert not exists(registry, group)
    assert f"{znodes.group(group)}/foreign" in {node.path for node in backup.read(file).nodes}
    undone = run("reset-offsets", group, "--undo", str(file), "--execute", "-z", cluster.connect, *ZOOKEEPER)
    assert undone.returncode == 0, undone.stderr
    assert values(registry, group, P("t", 0), P("t", 1)) == [5, 6]


def test_an_active_group(cluster: Sandbox, registry: Registry, second: Registry, make_group: Build) -> None:
    """Refused with exit code 5, its members named, no backup written; the plan says so, too."""
    group = make_group({P("t", 0): 5})
    register(second, group, "host-1411294187842-ab12cd34")
    args = ("delete-group", group, "-z", cluster.connect)
    plan, result = run(*args), run(*args, "--execute")
    assert (plan.returncode, result.returncode) == (0, 5)
    facts = (group, f"{group}_host-1411294187842-ab12cd34", "host")
    assert names(plan.stderr, "warning", "--execute", *facts)
    assert (names(result.stderr, *facts), result.stderr.count("\n")) == (True, 1)
    assert values(registry, group, P("t", 0)) == [5]


def test_only_some_topics(cluster: Sandbox, registry: Registry, make_group: Build) -> None:
    """--topic takes whole topics and partitions; what the group has not, is not found."""
    group = make_group({P("t", 0): 5, P("t", 1): 6, P("u", 0): 7, P("v", 0): 8})
    args = ("delete-group", group, "-z", cluster.connect)
    result = run(*args, "--topic", "u", "--topic", "t:1", "--execute")
    assert result.returncode == 0, result.stderr
    assert names(result.stderr, 2, group)
    assert values(registry, group, P("t", 0), P("t", 1), P("u", 0), P("v", 0)) == [5, None, None, 8]
    assert registry.read([Exists(znodes.offset_topic(group, "u"))]) == [None]
    result = run(*args, "--topic", "t", "--topic", "typo", "--execute")
    assert (result.returncode, values(registry, group, P("t", 0))) == (4, [5])
    assert names(result.stderr, group, "typo", "t", "v")


def test_a_name_of_thousands_of_digits_is_no_partition(cluster: Sandbox, registry: Registry, make_group: Build) -> None:
    """Python reads no such number; the node stays, as it is not what is meant."""
    group = make_group({P("t", 0): 5})
    odd = f"{znodes.offset_topic(group, 't')}/{'9' * 5000}"
    registry.write(Create(odd, b"7"))
    done = run("delete-group", group, "-z", cluster.connect, "--topic", "t:0", "--execute", *ZOOKEEPER)
    assert (done.returncode, names(done.stderr, 1, group)) == (0, True), done.stderr
    assert isinstance(registry.read([Exists(odd)])[0], Stat)


@pytest.mark.parametrize("command", ["delete-group", "unsubscribe"])
@pytest.mark.parametrize("topics", [("t",), ("t:0-1",), ("t:0", "t:1")])
def test_the_last_topic_takes_the_empty_group_along(
    cluster: Sandbox, registry: Registry, make_group: Build, tmp_path: Path, command: str, topics: tuple[str, ...]
) -> None:
    """As Kafka's own tool does (testGroupTopicWideDeleteInZKForGroupConsumingOneTopic); the plan says so, and the
    backup has it all."""
    group = make_group({P("t", 0): 5, P("t", 1): 6})
    registry.write(Ensure(znodes.owner_topic(group, "u")))
    args = (command, group, "-z", cluster.connect, *(word for topic in topics for word in ("--topic", topic)))
    assert names(run(*args).stderr, "warning", "ZooKeeper")
    file = tmp_path / "backup.json"
    done = run(*args, "--execute", "--backup", str(file))
    assert done.returncode == 0, done.stderr
    assert not exists(registry, group)
    undone = run("reset-offsets", group, "--undo", str(file), "--execute", "-z", cluster.connect, *ZOOKEEPER)
    assert undone.returncode == 0, undone.stderr
    assert values(registry, group, P("t", 0), P("t", 1)) == [5, 6]


@pytest.mark.parametrize("command", ["delete-group", "unsubscribe"])
@pytest.mark.parametrize(
    "other",
    [
        "offsets/u/0",  # an offset, though none that can be read
        "owners/t2/0",
        "zkgroup/export",
        "state",  # a spout's
    ],
)
def test_a_group_that_has_something_else_stays(
    cluster: Sandbox, registry: Registry, make_group: Build, command: str, other: str
) -> None:
    """Whatever it is."""
    group = make_group({P("t", 0): 5})
    kept = f"{znodes.group(group)}/{other}"
    registry.write(Ensure(kept))
    done = run(command, group, "--topic", "t", "--execute", "-z", cluster.connect)
    assert done.returncode == 0, done.stderr
    assert isinstance(registry.read([Exists(kept)])[0], Stat)
    assert values(registry, group, P("t", 0)) == [None]


def test_a_group_in_kafka(
    cluster: Sandbox,
    registry: Registry,
    make_group: Build,
    make_topic: Callable[..., str],
    in_kafka: Callable[..., GroupOffsets],
) -> None:
    """By default in both stores; with --store in one, with brokers alone in Kafka."""
    topic = make_topic(1)
    group = make_group({P(topic, 0): 5})
    offsets = in_kafka(group, {P(topic, 0): 6})
    result = run("delete-group", group, "-z", cluster.connect, "--execute", "--output", "json")
    assert result.returncode == 0, result.stderr
    assert [(row["store"], row["committed"]) for row in json.loads(result.stdout)] == [("zookeeper", 5), ("kafka", 6)]
    assert not exists(registry, group)
    coordinators = Coordinators(offsets.settings, 20.0)
    assert coordinators.read_group(group).group is None
    other = make_group({P(topic, 0): 5})
    in_kafka(other, {P(topic, 0): 6})
    brokers = ("delete-group", other, "--bootstrap-server", cluster.bootstrap, "--execute")
    refused = run(*brokers)
    assert (refused.returncode, names(refused.stderr, "--no-zookeeper-members")) == (5, True)
    assert run(*brokers, "--no-zookeeper-members").returncode == 0
    assert values(registry, other, P(topic, 0)) == [5]
    result = run("delete-group", other, "-z", cluster.connect, "--store", "kafka", "--execute")
    assert (result.returncode, names(result.stderr, other, "Kafka")) == (4, True)


def test_a_group_in_both_stores_comes_back_in_both(
    cluster: Sandbox,
    registry: Registry,
    make_group: Build,
    make_topic: Callable[..., str],
    in_kafka: Callable[..., GroupOffsets],
    tmp_path: Path,
) -> None:
    """Nodes and offsets in Kafka are put back one after the other, metadata too: --undo alone is refused, with both
    commands; where the group has moved on in Kafka, nothing is put back there."""
    one, file = P(make_topic(1), 0), tmp_path / "backup.json"
    group = make_group({one: 5})
    offsets = in_kafka(group)
    offsets.commit({one: 6}, 20.0, {one: "a note"})
    result = run("delete-group", group, "-z", cluster.connect, "--execute", "--backup", str(file))
    assert result.returncode == 0, result.stderr
    undo = ("delete-group", "--undo", str(file), "-z", cluster.connect)
    refused = run(*undo, "--execute")
    assert (refused.returncode, exists(registry, group)) == (5, False)
    assert f"delete-group {group} --undo {file} --store zookeeper --execute" in refused.stderr
    assert f"reset-offsets {group} --undo {file} --execute" in refused.stderr
    undone = run(*undo, "--execute", "--store", "zookeeper")
    assert undone.returncode == 0, undone.stderr
    assert names(undone.stderr.splitlines()[-1], 1)
    assert values(registry, group, one) == [5]
    reset = ("reset-offsets", group, "--undo", str(file), "-z", cluster.connect, "--execute")
    offsets.commit({one: 9}, 20.0)
    refused = run(*reset)
    assert (refused.returncode, offsets.fetch([one], 20.0)) == (5, {one: 9})
    assert names(refused.stderr, one, 9, "Kafka")
    assert run("delete-group", group, "-z", cluster.connect, "--store", "kafka", "--execute").returncode == 0
    assert run(*reset).returncode == 0
    kept = Coordinators(offsets.settings, 20.0).read_group(group).offsets[one]
    assert (kept.offset, kept.metadata) == (6, "a note")


def test_inactive_groups(cluster: Sandbox, registry: Registry, second: Registry, unique: Callable[[str], str]) -> None:
    """Groups by pattern: those with members stay; the rest goes, with one backup; each has a row that says so."""
    stem = unique("console-consumer")
    groups = [f"{stem}-{number}" for number in range(4)]
    for name in groups:
        registry.read([Ensure(znodes.ids(name)), Ensure(znodes.offset_topic(name, "t"))])
        registry.write(Create(znodes.offset(name, P("t", 0)), b"5"))
    register(second, groups[2])
    args = ("delete-group", "--pattern", f"{stem}-*", "-z", cluster.connect)
    young = run(*args, "--older-than", "1h", "--execute", "--output", "csv")
    assert young.returncode == 0, young.stderr
    rows = list(csv.DictReader(io.StringIO(young.stdout)))
    assert [(row["action"], row["state"], row["note"] != "") for row in rows] == [
        ("keep", "active" if name == groups[2] else "inactive", True) for name in groups
    ]
    assert (rows[0]["note"] == rows[1]["note"] == rows[3]["note"], rows[0]["note"] == rows[2]["note"]) == (True, False)
    assert "backup" not in young.stderr
    table = [line.split() for line in run(*args).stdout.splitlines()]
    assert table[0] == ["group", "state", "members", "partitions", "znodes", "last_change", "action", "note"]
    assert table[1][:5] == [groups[0], "inactive", "0", "1", "5"]
    assert all(exists(registry, name) for name in groups)
    result = run(*args, "--older-than", "0d", "--execute", "--output", "json")
    assert result.returncode == 0, result.stderr
    rows_ = json.loads(result.stdout)
    assert [(row["group"], row["state"], row["action"]) for row in rows_] == [
        (groups[0], "inactive", "delete"),
        (groups[1], "inactive", "delete"),
        (groups[2], "active", "keep"),
        (groups[3], "inactive", "delete"),
    ]
    assert names(result.stderr.splitlines()[-1], 3, "ZooKeeper")
    assert [exists(registry, name) for name in groups] == [False, False, True, False]
    (line,) = [line for line in result.stderr.splitlines() if "backup: " in line]
    saved = backup.read(Path(line.partition("backup: ")[2]))
    assert {node.path: node.data for node in saved.nodes}[znodes.offset(groups[3], P("t", 0))] == b"5"
    file = line.partition("backup: ")[2]
    undo = run("delete-group", "--undo", file, "-z", cluster.connect, "--output", "json")
    assert [(row["group"], row["action"], row["znodes"]) for row in json.loads(undo.stdout)] == [
        (name, "make", 5) for name in (groups[0], groups[1], groups[3])
    ]
    assert not exists(registry, groups[0])
    other = run("reset-offsets", groups[0], "--undo", file, "-z", cluster.connect)
    advised = f"zkgroup -z {cluster.connect} delete-group {groups[0]} --undo"
    assert (other.returncode, f": {advised} {file}\n" in other.stderr) == (2, True)
    odd = Path(file).with_name(f"{stem} back up's.json")
    odd.write_bytes(Path(file).read_bytes())
    other = run("reset-offsets", groups[0], "--undo", str(odd), "-z", cluster.connect)
    assert f": {advised} {shlex.quote(str(odd))}\n" in other.stderr
    undo = run("delete-group", groups[0], "--undo", file, "-z", cluster.connect, "--execute")
    assert (undo.returncode, names(undo.stderr.splitlines()[-1], 1)) == (0, True), undo.stderr
    assert values(registry, groups[0], P("t", 0)) == [5]
    assert not exists(registry, groups[1])
    nothing = run("delete-group", "--pattern", f"{stem}-nothing*", "-z", cluster.connect)
    assert (nothing.returncode, names(nothing.stderr, f"{stem}-nothing*")) == (4, True)
    for command in (("delete-group",), ("migrate-group", "--to", "kafka")):
        misspelt = run(*command, "--pattern", groups[0][:-1], "-z", cluster.connect)
        assert (misspelt.returncode, names(misspelt.stderr, groups[0][:-1], groups[0])) == (4, True), misspelt


def test_a_broken_group_is_called_so_by_pattern_too(
    cluster: Sandbox, registry: Registry, second: Registry, unique: Callable[[str], str]
) -> None:
    """Its state is that of list-groups; a member that nobody gets past keeps it all the same."""
    name = unique("unreadable")
    registry.read([Ensure(znodes.ids(name))])
    register(second, name)
    assert not isinstance(
        second.write(Create(znodes.member_id(name, f"{name}_b"), b"no JSON", ephemeral=True)), Failure
    )
    listed = json.loads(run("list-groups", "-z", cluster.connect, "--output", "json").stdout)
    result = run("delete-group", "--pattern", name, "-z", cluster.connect, "--execute", "--output", "json")
    (row,) = json.loads(result.stdout)
    assert [one["state"] for one in listed if one["group"] == name] == [row["state"]] == ["broken"]
    assert (row["action"], row["members"], exists(registry, name)) == ("keep", 2, True)


def test_inactive_groups_with_members_in_kafka(
    cluster: Sandbox,
    registry: Registry,
    kafka: KafkaSettings,
    make_group: Build,
    make_topic: Callable[..., str],
    in_kafka: Callable[..., GroupOffsets],
) -> None:
    """By pattern as by name: a group that somebody works for in Kafka stays; one that is there without members goes in
    ZooKeeper alone, and the row says so."""
    topic = make_topic(1)
    live, idle, plain = (make_group({P(topic, 0): 5}) for _ in range(3))
    in_kafka(idle, {P(topic, 0): 6})
    patterns = [option for group in (live, idle, plain) for option in ("--pattern", group)]
    args = ("delete-group", *patterns, "-z", cluster.connect, "--output", "json")
    with Kept(registry, kafka, live, "kafka").alive(topic) as name:
        assert run("delete-group", live, "-z", cluster.connect, "--execute").returncode == 5
        result = run(*args, "--execute")
        assert result.returncode == 0, result.stderr
        rows = {row["group"]: row for row in json.loads(result.stdout)}
    assert (rows[live]["state"], rows[live]["members"], rows[live]["action"]) == ("active", 1, "keep")
    assert names(rows[live]["note"], "Kafka", name)
    assert [rows[group]["action"] for group in (idle, plain)] == ["delete"] * 2
    assert (names(rows[idle]["note"], "Kafka"), rows[plain]["note"]) == (True, None)
    assert names(result.stderr.splitlines()[-1], 2, "ZooKeeper")
    assert [exists(registry, group) for group in (live, idle, plain)] == [True, False, False]


def test_inactive_groups_without_brokers(make_sandbox: Callable[..., Sandbox], unique: Callable[[str], str]) -> None:
    """Where no server reports who works for groups in Kafka, nothing is deleted, unless ZooKeeper alone is meant."""
    sandbox = make_sandbox(brokers=0)
    with sandbox.registry(30.0) as registry:
        group = unique("inactive")
        registry.read([Ensure(znodes.ids(group)), Ensure(znodes.topic("__consumer_offsets"))])
        args = ("delete-group", "--pattern", group, "-z", sandbox.connect, "--execute")
        refused = run(*args)
        assert refused.returncode in (1, 3), refused.stderr
        assert names(refused.stderr, "--store zookeeper")
        assert exists(registry, group)
        assert run(*args, *ZOOKEEPER).returncode == 0
        assert not exists(registry, group)


def test_one_truth_about_the_last_change(registry: Registry, second: Registry, make_group: Build) -> None:
    """When a group changed last does not depend on whether its age matters."""
    group = make_group({P("t", 0): 5})
    written = read_tree(registry, group).last_change or 0
    wait_until(lambda: time.time() * 1000 > written + 20, what="the clock")
    register(second, group)
    second.write(Delete(znodes.member_id(group, f"{group}_m")))
    make_group()
    now = int(time.time() * 1000)
    message = [read_inactive_groups(registry, [group], now, age)[0][0].last_change for age in (0, 20)]
    assert message[0] == message[1]
    assert (message[0] or 0) > written


def test_a_member_that_has_just_left(registry: Registry, second: Registry, make_group: Build) -> None:
    """A group that was written long ago is not inactive for long if a member left it since; what is written next dates
    that."""
    group = make_group({P("t", 0): 5})
    written = read_tree(registry, group).last_change or 0
    wait_until(lambda: time.time() * 1000 > written + 20, what="the clock")
    register(second, group)
    second.write(Delete(znodes.member_id(group, f"{group}_m")))
    after = read_tree(registry, make_group()).nodes[0].stat.ctime  # the first: the next may be much later
    rows, _ = read_inactive_groups(registry, [group], after + 10, 20)
    assert [row.action for row in rows] == ["keep"]
    assert written < (rows[0].last_change or 0) <= after
    rows, _ = read_inactive_groups(registry, [group], after + 20, 20)
    assert rows[0].action == "delete"


@pytest.mark.parametrize(
    ("args", "code", "facts"),
    [
        ((), 2, ()),
        (("g", "--pattern", "x"), 2, ("--pattern",)),
        (("g", "--older-than", "1d"), 2, ("--older-than", "--pattern")),
        (("--pattern", "x", "--topic", "t"), 2, ("--pattern",)),
        (("--pattern", "x", "--store", "kafka"), 2, ("--pattern",)),
        (("g", "--topic", "t", "--store", "both"), 2, ("Kafka",)),
        (("--pattern", "x", "--older-than", "3 moons"), 2, ("'3 moons'",)),
        (("..",), 2, ("..",)),
        (("a/b",), 2, ("a/b",)),
        (("g", "--topic", "../../x"), 2, ("../../x",)),
    ],
)
def test_wrong_usage(
    cluster: Sandbox, registry: Registry, args: tuple[str, ...], code: int, facts: tuple[str, ...]
) -> None:
    """Refused in one line, and no node outside a group's subtree is ever meant."""
    result = run("delete-group", *args, "--execute", "-z", cluster.connect)
    assert (result.returncode, names(result.stderr, *facts)) == (code, True), result.stderr
    assert result.stderr.count("\n") == 1
    assert not isinstance(registry.read([Exists("/brokers/ids")])[0], Failure | None)
