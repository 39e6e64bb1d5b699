"""``zkgroup list-groups`` on real servers."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable

import pytest
from cli import run
from group_nodes import Groups, commit_in_kafka, static
from lines import names

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Delete, Ensure
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.processes import free_port

COLUMNS = ["group", "store", "state", "members", "topics", "partitions", "lag"]
TIMES = ["lag_seconds", "lag_seconds_at_least", "changed_at"]
WORST = ["finding", "severity"]


@pytest.fixture
def four(
    groups: Groups, kafka: KafkaSettings, make_topic: Callable[..., str], fill: Callable[..., object],
    unique: Callable[[str], str],
) -> dict[str, list[object]]:  # fmt: skip
    """A group of each kind, and the row that it has."""
    topic, other = make_topic(2), make_topic(1)
    fill(topic, 20, 2)
    active = groups.make({"@_a": static({topic: 1, other: 1})}, {(topic, 0): "@_a-0"}, {(topic, 0): 4, (topic, 1): 12})
    broken = groups.make({"@_a": b"no JSON", "@_b": static({})})
    in_kafka = unique("in-kafka")
    commit_in_kafka(kafka, in_kafka, {TopicPartition(topic, 0): 10, TopicPartition(topic, 1): 9})
    both = groups.make(offsets={(topic, 0): 1, (topic, 1): 10})
    commit_in_kafka(kafka, both, {TopicPartition(topic, 0): 3})
    return {
        active: ["zookeeper", "active", 1, 2, 3, "≥6", "offset-beyond-end"],
        broken: ["zookeeper", "broken", 2, 0, 0, None, "stopping-registration"],
        in_kafka: ["kafka", "inactive", 0, 1, 2, 1, None],
        both: ["both", "inactive", 0, 1, 2, 7, "contradicting-offsets"],
    }


def test_every_kind_of_group_in_every_format(cluster: Sandbox, four: dict[str, list[object]]) -> None:
    """The row of each group is the same as a table, as JSON and as CSV. An offset beyond its log's end makes the lag a
    lower bound, which a table marks."""
    result = run("list-groups", "-z", cluster.connect, "--output", "json")
    assert (result.returncode, result.stderr) == (0, "")
    rows = {row.pop("group"): row for row in json.loads(result.stdout)}
    assert list(rows) == sorted(rows)
    for group, (*expected, finding) in four.items():
        assert list(rows[group]) == [*COLUMNS[1:], "lag_at_least", "lag_unknown", *TIMES, *WORST]
        part = expected[-1] == "≥6"
        known = 6 if part else expected[-1]
        assert (rows[group].pop("lag_at_least"), rows[group].pop("lag_unknown")) == (known, int(part))
        assert (rows[group].pop("finding"), rows[group].pop("severity") is None) == (finding, finding is None)
        assert (rows[group].pop("changed_at") is None) == (expected[0] == "kafka")
        seconds, at_least = (rows[group].pop(name) for name in TIMES[:2])
        assert (seconds is None, at_least is None) == (part or known is None, known is None)
        assert known is None or 0 < at_least < 3600
        assert list(rows[group].values()) == [*expected[:-1], None if part else known]
    table = run("list-groups", "-z", cluster.connect).stdout.splitlines()
    assert table[0].split() == [*COLUMNS, "behind", "finding"]
    lines = {line.split()[0]: line for line in table[1:]}
    listed = csv.DictReader(io.StringIO(run("list-groups", "-z", cluster.connect, "--output", "csv").stdout))
    assert listed.fieldnames == [*COLUMNS, "lag_seconds", "changed_at", *WORST]
    by_csv = {row.pop("group"): list(row.values()) for row in listed}
    for group, (*expected, finding) in four.items():
        shown = lines[group].split()
        assert shown[1:7] == ["-" if value is None else str(value) for value in expected]
        assert shown[-1] == (finding or "-")
        behind = " ".join(shown[7:-1])
        assert re.fullmatch(r"-" if expected[-1] is None else r"≥?\d+ (s|min)( \d+ s)?", behind), lines[group]
        assert by_csv[group][:6] == ["" if value in (None, "≥6") else str(value) for value in expected]


def test_orders_and_names(cluster: Sandbox, four: dict[str, list[object]]) -> None:
    """The largest comes first, what is unknown last; equal ones, and those without an order, by their names. --filter
    takes whole names."""
    active, broken, in_kafka, both = four

    def listed(*options: str) -> list[str]:
        filters = [word for group in four for word in ("--filter", group)]
        result = run("list-groups", *filters, *options, "-z", cluster.connect, "--output", "json")
        return [row["group"] for row in json.loads(result.stdout)]

    assert listed() == sorted(four)
    assert listed("--sort", "lag") == [both, active, in_kafka, broken]
    assert listed("--sort", "behind")[-1] == broken
    assert listed("--sort", "changed")[-1] == in_kafka
    assert set(listed("--sort", "findings")[:2]) == {active, broken}
    assert listed("--sort", "findings")[-1] == in_kafka
    shown = run(
        "list-groups", "--filter", f"*{active.removeprefix('group')}", "--filter", broken[:-1], "-z", cluster.connect
    ).stdout
    assert [line.split()[0] for line in shown.splitlines()] == ["group", active]
    missed = run("list-groups", "--filter", "nowhere", "-z", cluster.connect)
    assert (missed.returncode, missed.stdout.count("\n")) == (0, 1)
    assert names(missed.stderr, "nowhere", "--filter")


@pytest.mark.parametrize(
    ("option", "kept"),
    [
        (("--store", "zookeeper"), [0, 1, 3]),
        (("--store", "kafka"), [2, 3]),
        (("--store", "both"), [3]),
        (("--state", "broken"), [1]),
        (("--state", "active"), [0]),
        (("--state", "inactive", "--store", "kafka"), [2, 3]),
    ],
    ids=str,
)
def test_only_some(cluster: Sandbox, four: dict[str, list[object]], option: tuple[str, ...], kept: list[int]) -> None:
    """--store and --state leave the others out; a group in both stores is in each of them."""
    result = run("list-groups", *option, "-z", cluster.connect, "--output", "json")
    shown = {row["group"] for row in json.loads(result.stdout)} & set(four)
    assert shown == {list(four)[index] for index in kept}


def test_without_zookeeper(cluster: Sandbox, four: dict[str, list[object]]) -> None:
    """With --bootstrap-server alone the groups in Kafka are listed."""
    result = run("list-groups", "--bootstrap-server", cluster.bootstrap, "--output", "json")
    assert (result.returncode, result.stderr) == (0, "")
    rows = {row["group"]: row for row in json.loads(result.stdout)}
    _, _, in_kafka, both = four
    assert (rows[in_kafka]["store"], rows[in_kafka]["lag"]) == ("kafka", 1)
    assert (rows[both]["store"], rows[both]["lag"], rows[both]["lag_at_least"]) == ("kafka", None, 7)
    assert rows.keys() & set(four) == {in_kafka, both}


def test_partitions_that_came_while_a_group_was_stopped(
    cluster: Sandbox, groups: Groups, kafka: KafkaSettings, make_topic: Callable[..., str],
    fill: Callable[..., object], unique: Callable[[str], str],
) -> None:  # fmt: skip
    """Messages of partitions that the group has no offset of, next to others of the topic, make its lag a lower bound,
    wherever it is kept; what is empty does not. offsets and inspect-group have a row for each."""
    topic = make_topic(2)
    fill(topic, 10, 1)  # all in the first partition
    read, unread, in_kafka = groups.make(offsets={(topic, 0): 10}), groups.make(offsets={(topic, 1): 0}), unique("new")
    commit_in_kafka(kafka, in_kafka, {TopicPartition(topic, 1): 0})
    listed = json.loads(run("list-groups", "-z", cluster.connect, "--output", "json").stdout)
    rows = {row["group"]: row for row in listed}
    assert [[rows[group][name] for name in ("partitions", "lag", "lag_at_least", "lag_unknown")]
            for group in (read, unread, in_kafka)] == [[2, 0, 0, 0], [2, None, 0, 1], [2, None, 0, 1]]  # fmt: skip
    table = {line.split()[0]: line.split() for line in run("list-groups", "-z", cluster.connect).stdout.splitlines()}
    assert [table[group][6] for group in (read, unread, in_kafka)] == ["0", "≥0", "≥0"]
    for group in (unread, in_kafka):
        shown = json.loads(run("offsets", group, "-z", cluster.connect, "--output", "json").stdout)
        assert [(row["partition"], row["committed"], row["log_end"], row["lag"]) for row in shown] == [
            (0, None, 10, None), (1, 0, 0, 0),
        ]  # fmt: skip
        seen = json.loads(run("inspect-group", group, "-z", cluster.connect, "--output", "json").stdout)
        assert [(row["partition"], row["committed"]) for row in seen["partitions"]] == [(0, None), (1, 0)]
        (found,) = [one for one in seen["findings"] if one["code"] == "partition-without-offset"]
        assert (found["subject"], names(found["message"], 10)) == (f"{topic}-0", True)


def test_brokers_that_are_away(cluster: Sandbox, four: dict[str, list[object]]) -> None:
    """The groups in ZooKeeper are listed without their lag, with one warning, and that is no failure."""
    nowhere = f"127.0.0.1:{free_port()}"
    options = ["--bootstrap-server", nowhere, "--connect-timeout", "1"]
    result = run("list-groups", "-z", cluster.connect, *options, "--output", "json")
    assert result.returncode == 0
    rows = {row["group"]: row for row in json.loads(result.stdout)}
    active, broken, in_kafka, both = four
    assert in_kafka not in rows
    assert [rows[group]["lag"] for group in (active, broken, both)] == [None] * 3
    (line,) = result.stderr.splitlines()
    assert names(line, "warning", nowhere)
    assert run("list-groups", *options).returncode == 3


def test_a_cluster_without_groups(zookeeper: Sandbox, unique: Callable[[str], str]) -> None:
    """No rows, and no complaint: also where nothing has ever been registered."""
    chroot = unique("empty")
    with zookeeper.registry() as registry:
        assert registry.write(Ensure(f"/{chroot}")) is None
    result = run("list-groups", "-z", f"{zookeeper.address}/{chroot}", "--output", "json")
    assert (result.returncode, result.stdout, result.stderr) == (0, "[]\n", "")


def test_names_that_would_garble_a_terminal(cluster: Sandbox, groups: Groups, registry: Registry) -> None:
    """A group's name is shown on one line, without what a terminal obeys."""
    name = "evil\u202e\u2028name"
    assert registry.write(Ensure(znodes.group(name))) is None
    try:
        _compare_names(cluster, name)
    finally:  # other tests compare names
        registry.write(Delete(znodes.group(name)))


def _compare_names(cluster: Sandbox, name: str) -> None:
    shown = run("list-groups", "-z", cluster.connect).stdout
    assert "evil\\u202e\\u2028name" in shown
    assert "\u202e" not in shown
    rows = json.loads(run("list-groups", "-z", cluster.connect, "--output", "json").stdout)
    assert name in [row["group"] for row in rows]


def test_its_aliases(cluster: Sandbox, four: dict[str, list[object]]) -> None:
    """``list`` and ``groups`` are the same command, and are not in the help."""
    group = next(iter(four))
    for name in ("list", "groups"):
        assert group in run(name, "-z", cluster.connect).stdout
    assert "\n  groups " not in run("--help").stdout
