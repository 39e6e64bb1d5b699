"""``zkgroup offsets`` on real servers."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable

import pytest
from cli import run, run_on_terminal
from group_nodes import Groups, commit_in_kafka, static
from lines import names

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.processes import free_port

COLUMNS = ["topic", "partition", "committed", "committed_at", "log_start", "log_end", "lag"]
BOTH = ["committed_zookeeper", "committed_kafka"]


def offsets(cluster: Sandbox, *args: str) -> tuple[int, list[dict[str, object]], str]:
    """Run it with JSON rows: exit code, rows, stderr."""
    result = run("offsets", *args, "-z", cluster.connect, "--output", "json")
    rows = json.loads(result.stdout) if result.stdout else []
    return result.returncode, [without_times(row) for row in rows], result.stderr


def without_times(row: dict[str, object]) -> dict[str, object]:
    """The row without its lag in time, which begins where its lag does, and is unknown where that is."""
    seconds, at_least = row.pop("lag_seconds"), row.pop("lag_seconds_at_least")
    assert seconds == at_least
    lag = row["lag"]
    if isinstance(lag, int) and lag > 0:
        assert isinstance(seconds, float)
        assert 0 < seconds < 3600
    else:
        assert seconds == (0 if lag == 0 else None)
    return row


def test_the_rows_in_every_format(cluster: Sandbox, groups: Groups, topic: str) -> None:
    """Every partition of the group, in numeric order: lag may be negative, and is not known without a commit."""
    group = groups.make({"@_a": static({topic: 1})}, {}, {(topic, 0): 4, (topic, 2): 12})
    code, rows, stderr = offsets(cluster, group)
    assert (code, stderr) == (0, "")
    assert [list(row) for row in rows] == [COLUMNS] * 3
    times = [row.pop("committed_at") for row in rows]
    assert times[1] is None
    assert all(isinstance(moment, str) and moment.startswith("20") and moment.endswith("Z") for moment in times[::2])
    assert [list(row.values()) for row in rows] == [
        [topic, 0, 4, 0, 10, 6],
        [topic, 1, None, 0, 10, None],
        [topic, 2, 12, 0, 10, -2],
    ]
    table = [line.split() for line in run("offsets", group, "-z", cluster.connect).stdout.splitlines()]
    assert table[0] == [*COLUMNS, "behind"]
    assert re.fullmatch(r"\d+ (s|min)( \d+ s)?", " ".join(table[1][7:]))
    assert table[2] == [topic, "1", "-", "-", "0", "10", "-", "-"]
    assert table[3] == [topic, "2", "12", times[2], "0", "10", "-2", "-"]
    listed = list(csv.reader(io.StringIO(run("offsets", group, "-z", cluster.connect, "--output", "csv").stdout)))
    assert listed[0] == [*COLUMNS, "lag_seconds"]
    assert listed[1][:-1] == [topic, "0", "4", times[0], "0", "10", "6"]
    assert 0 < float(listed[1][-1]) < 3600
    assert listed[2] == [topic, "1", "", "", "0", "10", "", ""]


def test_no_row_is_two_on_a_terminal_of_80_columns(
    cluster: Sandbox, groups: Groups, kafka: KafkaSettings, topic: str
) -> None:
    """Of a group in both stores, whose members have ids of usual length: its tables, and those of plans."""
    member = "@_web1-1415824923411-deadbeef"
    owners = {(topic, partition): f"{member}-0" for partition in range(3)}
    group = groups.make({member: static({topic: 1})}, owners, {(topic, 0): 4, (topic, 2): 7})
    commit_in_kafka(kafka, group, {TopicPartition(topic, 0): 5})
    for command in (
        ("offsets", group),
        ("owners", group),
        ("owners", group, "--store", "both"),
        ("list-groups",),
        ("inspect-group", group, "--section", "partitions"),
        ("reset-offsets", group, "--all-topics", "--to-latest"),
        ("migrate-group", group, "--to", "kafka"),
        ("delete-group", group),
    ):
        _, shown = run_on_terminal(*command, "-z", cluster.connect, env={"COLUMNS": "80"})
        lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown).splitlines()
        rows = [line for line in lines if line.lstrip().startswith(("topic", "group"))]  # long names are shortened
        assert len(rows) > 1, shown
        assert max(map(len, rows)) <= 80, shown
    _, shown = run_on_terminal("inspect-group", group, "-z", cluster.connect, env={"COLUMNS": "80"})
    tables = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown).partition("findings")[0].splitlines()
    assert max(map(len, tables)) <= 80, shown


@pytest.mark.parametrize(
    ("scopes", "kept"),
    [
        (["{t}"], [0, 1, 2]),
        (["{t}:1"], [1]),
        (["{t}:0,2"], [0, 2]),
        (["{t}:1-2"], [1, 2]),
        (["{t}:0", "{t}:2"], [0, 2]),
    ],
    ids=str,
)
def test_only_some_partitions(cluster: Sandbox, groups: Groups, topic: str, scopes: list[str], kept: list[int]) -> None:
    """--topic takes a topic, or partitions of it, and may be repeated."""
    group = groups.make(offsets={(topic, 0): 0, (topic, 1): 1, (topic, 2): 2, ("elsewhere", 0): 3})
    options = [option for scope in scopes for option in ("--topic", scope.format(t=topic))]
    code, rows, _ = offsets(cluster, group, *options)
    assert code == 0
    assert [(row["topic"], row["partition"]) for row in rows] == [(topic, number) for number in kept]


@pytest.mark.parametrize(
    ("scope", "code", "facts"),
    [
        ("nonsense", 4, ["'nonsense'", "{t}"]),
        ("{t}:9", 4, ["{t}", 9, 0, 2]),
        ("{t}:x", 2, ["--topic '{t}:x'", "TOPIC:0,2-5"]),
        ("{t}:1-", 2, ["--topic '{t}:1-'", "TOPIC:0,2-5"]),
        ("../ids", 2, ["'../ids'"]),
    ],
)
def test_a_scope_that_is_none_of_the_groups(
    cluster: Sandbox, groups: Groups, topic: str, scope: str, code: int, facts: list[object]
) -> None:
    """A topic or partition that the group does not have exits with 4, what cannot be read with 2; nothing is shown."""
    group = groups.make(offsets={(topic, 0): 0, (topic, 1): 1, (topic, 2): 2})
    *found, stderr = offsets(cluster, group, "--topic", scope.format(t=topic))
    assert (found, stderr.count("\n")) == ([code, []], 1)
    assert names(stderr, *(str(fact).format(t=topic) for fact in facts)), stderr


def test_two_stores_side_by_side(cluster: Sandbox, groups: Groups, kafka: KafkaSettings, topic: str) -> None:
    """Of a group in both, the larger offset counts and each is next to it; --store chooses one of them."""
    group = groups.make(offsets={(topic, 0): 4, (topic, 1): 9})
    commit_in_kafka(kafka, group, {TopicPartition(topic, 0): 6, TopicPartition(topic, 2): 1})
    code, rows, stderr = offsets(cluster, group)
    assert (code, stderr) == (0, "")
    assert list(rows[0]) == COLUMNS + BOTH
    assert [[row[name] for name in ("partition", "committed", "lag", *BOTH)] for row in rows] == [
        [0, 6, 4, 4, 6],
        [1, 9, 1, 9, None],
        [2, 1, 9, None, 1],
    ]
    assert [row["committed_at"] is None for row in rows] == [True, False, True]
    _, rows, _ = offsets(cluster, group, "--store", "zookeeper")
    assert [list(row) for row in rows] == [COLUMNS] * 3
    assert [(row["partition"], row["committed"]) for row in rows] == [(0, 4), (1, 9), (2, None)]
    _, rows, _ = offsets(cluster, group, "--store", "kafka")
    assert [list(row) for row in rows] == [COLUMNS] * 3
    assert [(row["partition"], row["committed"], row["committed_at"]) for row in rows] == [
        (0, 6, None), (1, None, None), (2, 1, None),
    ]  # fmt: skip


def test_a_group_in_kafka_alone(
    cluster: Sandbox, kafka: KafkaSettings, topic: str, unique: Callable[[str], str]
) -> None:
    """Its offsets are shown, with ZooKeeper and without; in ZooKeeper alone there is no such group."""
    group = unique("in-kafka")
    commit_in_kafka(kafka, group, {TopicPartition(topic, 1): 4})
    nothing = [None, None, 0, 10, None]
    expected = [[topic, 0, *nothing], [topic, 1, 4, None, 0, 10, 6], [topic, 2, *nothing]]
    assert [list(row.values()) for row in offsets(cluster, group)[1]] == expected
    result = run("offsets", group, "--bootstrap-server", cluster.bootstrap, "--output", "json")
    assert (result.returncode, result.stderr) == (0, "")
    assert [list(without_times(row).values()) for row in json.loads(result.stdout)] == expected
    code, rows, stderr = offsets(cluster, group, "--store", "zookeeper")
    assert (code, rows) == (4, [])
    assert names(stderr, f"'{group}'", "ZooKeeper", cluster.address)


def test_what_is_wrong_is_reported_and_the_rest_shown(cluster: Sandbox, groups: Groups, topic: str) -> None:
    """An offset that is none, and partitions that are gone, are warnings: on stderr, alike ones together."""
    group = groups.make(offsets={(topic, 0): b"abc", (topic, 1): 5, ("never", 0): 1, ("never", 1): 2, ("never", 4): 2})
    code, rows, stderr = offsets(cluster, group)
    assert code == 0
    assert {(row["topic"], row["partition"]): (row["committed"], row["lag"]) for row in rows} == {
        (topic, 0): (None, None),
        (topic, 1): (5, 5),
        (topic, 2): (None, None),
        ("never", 0): (1, None),
        ("never", 1): (2, None),
        ("never", 4): (2, None),
    }
    unreadable, gone = stderr.splitlines()
    assert names(unreadable, "warning", f"{topic}-0", "'abc'")
    assert names(gone, "warning", "never-0..1", "never-4", "never")
    assert offsets(cluster, group, "--quiet")[2] == ""


def test_brokers_that_are_away(cluster: Sandbox, groups: Groups, topic: str) -> None:
    """What ZooKeeper has is shown, the rest is missing, one line warns, and the exit code is 0."""
    group = groups.make(offsets={(topic, 0): 4, (topic, 1): 5})
    nowhere = f"127.0.0.1:{free_port()}"
    code, rows, stderr = offsets(cluster, group, "--bootstrap-server", nowhere, "--connect-timeout", "1")
    assert code == 0
    assert [(row["committed"], row["log_start"], row["log_end"], row["lag"]) for row in rows] == [
        (4, None, None, None),
        (5, None, None, None),
        (None, None, None, None),
    ]
    (line,) = stderr.splitlines()
    assert names(line, "warning", nowhere, "1 s")


def test_its_alias(cluster: Sandbox, groups: Groups, topic: str) -> None:
    """``lag`` is the same command."""
    group = groups.make(offsets={(topic, 0): 4})
    shown = [run(name, group, "--no-behind", "-z", cluster.connect).stdout for name in ("lag", "offsets")]
    assert shown[0] == shown[1] != ""
