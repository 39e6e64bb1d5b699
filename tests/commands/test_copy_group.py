"""``zkgroup copy-group`` on real servers."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cli import run
from group_nodes import joined
from guarded_changes import Build, P, register, values
from lines import names
from screen import Screen

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.group_consumers import GroupOffsets
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.groups.changes import backup
from zkgroup.protocol import znodes
from zkgroup.protocol.operations import Exists, SetData
from zkgroup.sandbox.local_cluster import Sandbox

COLUMNS = ["topic", "partition", "current", "target", "change", "note"]


def test_the_plan_in_each_format(cluster: Sandbox, registry: Registry, make_group: Build) -> None:
    """Rows on stdout, that nothing was changed on stderr; numbers are numbers, what is missing is missing."""
    group, other = make_group({P("t", 0): 5, P("t", 10): 6, P("t", 2): 7}), make_group({P("t", 2): 9})
    args = ("copy-group", group, other, "-z", cluster.connect, "--store", "zookeeper")
    result = run(*args, "--output", "json")
    assert (result.returncode, json.loads(result.stdout)) == (
        0,
        [
            {"topic": "t", "partition": 0, "current": None, "target": 5, "change": None, "note": None},
            {"topic": "t", "partition": 2, "current": 9, "target": 7, "change": -2, "note": "replaces 9"},
            {"topic": "t", "partition": 10, "current": None, "target": 6, "change": None, "note": None},
        ],
    )
    warning, last = result.stderr.splitlines()
    assert names(warning, "warning", "--execute", other, 1, "t-2", "zookeeper", 9, "--overwrite")
    assert names(last, "--execute")
    table = [line.split() for line in run(*args).stdout.splitlines()]
    assert table == [
        COLUMNS,
        ["t", "0", "-", "5", "-", "-"],
        ["t", "2", "9", "7", "-2", "replaces", "9"],
        ["t", "10", "-", "6", "-", "-"],
    ]
    rows = list(csv.DictReader(io.StringIO(run(*args, "--output", "csv", "--quiet").stdout)))
    assert [list(row) for row in rows] == [COLUMNS] * 3
    assert rows[0] == {"topic": "t", "partition": "0", "current": "", "target": "5", "change": "", "note": ""}
    assert values(registry, other, P("t", 0), P("t", 2)) == [None, 9]


def test_a_copy_and_its_undo(
    cluster: Sandbox, registry: Registry, make_group: Build, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """The new group has the offsets, a backup shows what it had before, and takes it back there; again is nothing."""
    group, other = make_group({P("t", 0): 5, P("u", 1): 6}), unique("copied")
    file = tmp_path / "backup.json"
    args = ("copy-group", group, other, "-z", cluster.connect, "--store", "zookeeper", "--execute")
    result = run(*args, "--backup", str(file))
    assert result.returncode == 0
    backed_up, done = result.stderr.splitlines()
    assert (names(backed_up, file), names(done, 2, group, other)) == (True, True)
    assert values(registry, other, P("t", 0), P("u", 1)) == [5, 6]
    assert values(registry, group, P("t", 0), P("u", 1)) == [5, 6]
    saved = backup.read(file)
    assert (saved.command, saved.group) == ("copy-group", other)
    assert [(one.partition, one.before, one.written) for one in saved.offsets] == [
        (P("t", 0), None, 5),
        (P("u", 1), None, 6),
    ]
    again = run(*args)
    assert (again.returncode, again.stderr.count("\n"), "backup" in again.stderr) == (0, 1, False)
    assert values(registry, other, P("t", 0), P("u", 1)) == [5, 6]
    undone = run("reset-offsets", other, "--undo", str(file), "--execute", "-z", cluster.connect)
    assert undone.returncode == 0, undone.stderr
    assert values(registry, other, P("t", 0), P("u", 1)) == [None, None]


def test_what_the_other_group_has_is_kept(cluster: Sandbox, registry: Registry, make_group: Build) -> None:
    """Offsets that differ are refused with exit code 5, and replaced only with --overwrite; --topic narrows it."""
    group, other = make_group({P("t", 0): 5, P("u", 0): 6}), make_group({P("t", 0): 9})
    args = ("copy-group", group, other, "-z", cluster.connect, "--store", "zookeeper", "--execute")
    result = run(*args)
    assert (result.returncode, values(registry, other, P("t", 0), P("u", 0))) == (5, [9, None])
    assert names(result.stderr, other, "t-0", "zookeeper", 9, "--overwrite")
    misspelt = run(*args, "--topic", "us")
    assert (misspelt.returncode, names(misspelt.stderr, "us", "u")) == (4, True), misspelt
    assert run(*args, "--topic", "u").returncode == 0
    assert values(registry, other, P("t", 0), P("u", 0)) == [9, 6]
    assert run(*args, "--overwrite").returncode == 0
    assert values(registry, other, P("t", 0), P("u", 0)) == [5, 6]


def test_an_active_group(cluster: Sandbox, registry: Registry, second: Registry, make_group: Build) -> None:
    """The group that is copied may be, with a warning; the one that is written may not: exit code 5, no backup."""
    group, other = make_group({P("t", 0): 5}), make_group()
    register(second, group)
    args = ("copy-group", group, other, "-z", cluster.connect, "--store", "zookeeper")
    result = run(*args, "--execute")
    assert result.returncode == 0
    assert names(result.stderr, "warning", group)
    register(second, other)
    registry.write(SetData(znodes.offset(group, P("t", 0)), b"6"))
    result = run(*args, "--overwrite", "--execute")
    assert (result.returncode, "backup" in result.stderr) == (5, False)
    assert names(result.stderr, other, f"{other}_m")
    plan = run(*args, "--overwrite")
    assert plan.returncode == 0
    assert names(plan.stderr, "warning", "--execute", other, f"{other}_m")
    assert values(registry, other, P("t", 0)) == [5]


def test_offsets_in_kafka_and_in_both(
    cluster: Sandbox,
    registry: Registry,
    make_group: Build,
    make_topic: Callable[..., str],
    unique: Callable[[str], str],
    in_kafka: Callable[..., GroupOffsets],
) -> None:
    """By default wherever the group is: rows then name the store, and both stores of the other group get theirs."""
    topic, other = make_topic(2), unique("copied")
    group = make_group({P(topic, 0): 5})
    in_kafka(group, {P(topic, 0): 6, P(topic, 1): 7})
    result = run("copy-group", group, other, "-z", cluster.connect, "--execute", "--output", "json")
    assert result.returncode == 0, result.stderr
    rows = json.loads(result.stdout)
    assert list(rows[0]) == ["topic", "partition", "store", "current", "target", "change", "note"]
    assert [(row["partition"], row["store"], row["target"]) for row in rows] == [
        (0, "zookeeper", 5),
        (0, "kafka", 6),
        (1, "kafka", 7),
    ]
    assert values(registry, other, P(topic, 0), P(topic, 1)) == [5, None]
    wanted = [P(topic, 0), P(topic, 1)]
    assert in_kafka(other).fetch(wanted, 20) == {P(topic, 0): 6, P(topic, 1): 7}
    third = unique("copied")
    brokers = ("--bootstrap-server", cluster.bootstrap, "--execute")
    refused = run("copy-group", group, third, *brokers)
    assert (refused.returncode, names(refused.stderr, "--no-zookeeper-members")) == (5, True)
    assert run("copy-group", group, third, *brokers, "--no-zookeeper-members").returncode == 0
    assert in_kafka(third).fetch(wanted, 20) == {P(topic, 0): 6, P(topic, 1): 7}
    assert registry.read([Exists(znodes.group(third))]) == [None]


@pytest.mark.parametrize(
    ("groups", "code", "fact"),
    [
        (("G", "G"), 2, "G"),
        (("G", ".."), 2, "'..'"),
        (("G", "a/../../b"), 2, "'a/../../b'"),
        (("G", "so und so"), 2, "'so und so'"),
        (("\x1b[31m", "x"), 2, "[31m"),
        (("Gx", "x"), 4, "Gx"),
    ],
)
def test_names_that_cannot_be(
    cluster: Sandbox, make_group: Build, groups: tuple[str, str], code: int, fact: str
) -> None:
    """Nothing leaves the subtree of its group, no new group gets a name that members could not use."""
    group = make_group({P("t", 0): 5})
    one, two = (name.replace("G", group) for name in groups)
    result = run("copy-group", one, two, "-z", cluster.connect, "--execute")
    assert (result.returncode, result.stdout) == (code, "")
    assert fact.replace("G", group) in result.stderr
    assert result.stderr.count("\n") == 1
    assert "\x1b" not in result.stderr


def test_a_protected_cluster_asks(
    cluster: Sandbox, registry: Registry, make_group: Build, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """On a protected profile nothing is changed unless somebody says the name of the group that is; the plan needs
    nobody."""
    config = tmp_path / "config.toml"
    config.write_text(f'[clusters.prod]\nzookeeper = "{cluster.connect}"\nprotected = true\n')
    group, other = make_group({P("t", 0): 5}), unique("copied")
    args = ("copy-group", group, other, "-c", "prod", "--store", "zookeeper")
    env = {"ZKGROUP_CONFIG": str(config)}
    assert run(*args, env=env).returncode == 0
    result = run(*args, "--execute", env=env, input="")
    assert result.returncode == 5
    assert names(result.stderr, "prod", f"--confirm {other}")
    assert values(registry, other, P("t", 0)) == [None]
    with Screen(*args, "--execute", env=env, columns=200) as screen:
        screen.until(lambda text: f"prod is protected: type {other}" in text)
        screen.press(f"{group}\n")
        assert screen.wait() == 5
    for wrong in ("prod", group, ""):
        assert run(*args, "--execute", "--confirm", wrong, env=env).returncode == 5
    assert values(registry, other, P("t", 0)) == [None]
    assert run(*args, "--execute", "--confirm", other, env=env).returncode == 0
    assert values(registry, other, P("t", 0)) == [5]


def test_options_that_contradict_each_other(make_group: Build, tmp_path: Path) -> None:
    """--execute with --dry-run is wrong usage; a backup never replaces a file. Neither needs a server."""
    result = run("copy-group", "a", "b", "-z", "localhost:1", "--execute", "--dry-run")
    assert (result.returncode, names(result.stderr, "--execute", "--dry-run")) == (2, True)
    file = tmp_path / "there"
    file.write_text("precious")
    result = run("copy-group", "a", "b", "-z", "localhost:1", "--execute", "--backup", str(file))
    assert (result.returncode, file.read_text()) == (5, "precious")


def test_a_group_active_in_the_other_store(
    cluster: Sandbox,
    registry: Registry,
    kafka: KafkaSettings,
    make_group: Build,
    make_topic: Callable[..., str],
    unique: Callable[[str], str],
) -> None:
    """Offsets are not copied to a group whose members are in Kafka, though what is copied is in ZooKeeper; nor next to
    other ones that it has there, unless that is said."""
    topic, other = make_topic(1), unique("live")
    group = make_group({P(topic, 0): 5})
    with joined(kafka, other, [topic]) as member:
        member.commit(P(topic, 0), 3)
        result = run("copy-group", group, other, "-z", cluster.connect, "--overwrite", "--execute")
        assert (result.returncode, names(result.stderr, other, "Kafka")) == (5, True)
    copy = ("copy-group", group, other, "-z", cluster.connect, "--execute")
    result = run(*copy)
    assert (result.returncode, names(result.stderr, other, f"{topic}-0", "Kafka")) == (5, True)
    assert values(registry, other, P(topic, 0)) == [None]
    result = run(*copy, "--overwrite")
    assert (result.returncode, names(result.stderr, "warning", other, f"{topic}-0", "Kafka")) == (0, True)
    assert values(registry, other, P(topic, 0)) == [5]
