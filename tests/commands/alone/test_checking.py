"""``inspect-group --check``, ``--metrics`` and ``offsets --save FOLDER --keep-last`` on real servers."""

from __future__ import annotations

import errno
import json
import os
import re
import sqlite3
import subprocess
import time
from collections.abc import Callable
from math import isnan
from pathlib import Path
from typing import Any

import pytest
from cli import ZKGROUP, environment, run
from group_nodes import Groups, commit_in_kafka, static
from lines import names
from prometheus_client.parser import text_string_to_metric_families

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Create, Ensure, SetData
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.processes import free_port
from zkgroup.sandbox.topic_admin import ProducerRecord, create_topic, produce

LINE = re.compile(r"ZKGROUP (OK|WARNING|CRITICAL|UNKNOWN): ([^|\n]*)(?: \| ([^|\n]*))?\n")
DATUM = re.compile(r"(?:'((?:[^'=]|'')+)'|([^'= ]+))=(-?[0-9.]+|U)(s)?;([0-9]*);([0-9]*);0")


class Check:
    """Runs checks with a history of their own, as a monitoring system reads them."""

    def __init__(self, cluster: Sandbox, history: Path) -> None:
        self.connect = cluster.connect
        self.history = history
        self.details: list[str] = []

    def __call__(self, *args: str) -> tuple[int, str, str, dict[str, float]]:
        """Exit code, state, what is said, and the performance data."""
        result = run("inspect-group", *args, "--check", "--history-file", str(self.history), "-z", self.connect)
        match = LINE.match(result.stdout)
        assert match, result.stdout + result.stderr
        self.details = result.stdout.splitlines()[1:]
        data = {(m[1] or m[2]): float("nan" if m[3] == "U" else m[3]) for m in DATUM.finditer(match[3] or "")}
        assert len(data) == len(re.findall("=", match[3] or "")), "each datum as the plugins' guidelines write it"
        return result.returncode, match[1], match[2], data

    def a_minute_passes(self) -> None:
        """Everything that is kept becomes a minute older."""
        with sqlite3.connect(self.history) as connection:
            connection.execute("UPDATE snapshot SET taken_at = taken_at - 60000")
            connection.execute("UPDATE sample SET changed_at = changed_at - 60000")
        connection.close()


@pytest.fixture
def check(cluster: Sandbox, tmp_path: Path) -> Check:
    return Check(cluster, tmp_path / "kept" / "history.sqlite3")


def test_a_check_ends_as_monitoring_systems_expect(check: Check, groups: Groups, topic: str) -> None:
    """0, 1, 2 by the limits of lag, and the figures."""
    group = groups.make({}, {}, {(topic, p): 10 - p for p in range(3)})
    code, state, said, data = check(group)
    assert (code, state, names(said, group, "lag", 3, 3, "OK", 1)) == (0, "OK", True)
    assert 0 <= float(data.pop("behind")) < 3600
    assert data == {"lag": 3, "max_lag": 2, "members": 0, "partitions": 3, "unowned": 0, "not_ok": 0}
    code, state, said, _ = check(group, "--warn-lag", "3", "--crit-lag", "4")
    assert (code, state, names(said, group, "lag", 3, 3)) == (1, "WARNING", True)
    assert check(group, "--warn-lag", "2", "--crit-lag", "3")[:2] == (2, "CRITICAL")
    assert check(group, "--warn-lag", "4")[:2] == (0, "OK")


def test_a_check_by_the_age_of_the_next_message(
    check: Check, groups: Groups, registry: Registry, kafka: KafkaSettings, make_topic: Callable[..., str],
    unique: Callable[[str], str],
) -> None:  # fmt: skip
    """0, 1, 2 by the limits of the lag in time, of the partition that is furthest behind; 3 where an age is unknown,
    which the figures tell, too: a message may carry no time."""
    topic = make_topic(2)
    ages = {0: 7200, 1: 600}
    now = round(time.time() * 1000)
    produce(kafka, topic, [ProducerRecord(b"v", None, p, now - age * 1000) for p, age in ages.items()])
    group = groups.make({}, {}, {(topic, 0): 0, (topic, 1): 0})
    code, state, said, data = check(group, "--warn-behind", "1h30m", "--crit-behind", "1d")
    assert (code, state) == (1, "WARNING")
    assert names(said, group, "2 h", "1 h 30 min")
    assert 7200 <= float(data["behind"]) < 7300
    assert check(group, "--crit-behind", "2h")[:2] == (2, "CRITICAL")
    assert check(group, "--warn-behind", "3h")[:2] == (0, "OK")
    assert check(group, "--warn-behind", "3h", "--crit-behind", "1h")[:2] == (3, "UNKNOWN")
    head, row = run("inspect-group", group, "-z", check.connect).stdout.splitlines()[:2]
    assert row[head.index("behind") :].startswith("2 h ")
    timeless = groups.make({}, {}, {(timeless_topic(registry, kafka, unique("timeless")), 0): 0})
    code, state, said, data = check(timeless, "--warn-behind", "3h")
    assert (code, state) == (3, "UNKNOWN")
    assert names(said, timeless, 1)
    assert isnan(float(data["behind"]))


def timeless_topic(registry: Registry, kafka: KafkaSettings, name: str) -> str:
    """A topic with a message in the format of 0.9, which has no time."""
    registry.write(Ensure("/config/topics"))
    config = json.dumps({"version": 1, "config": {"message.format.version": "0.9.0"}}).encode()
    assert registry.write(Create(f"/config/topics/{name}", config)) is None
    create_topic(registry, name, 1)
    produce(kafka, name, [ProducerRecord(b"v", None, 0)])
    return name


def test_findings_count_as_severe_as_they_are(check: Check, groups: Groups, topic: str) -> None:
    """A critical finding is critical; the lines after the first name the others."""
    group = groups.make({}, {}, {(topic, 0): 99, (topic, 1): 10, (topic, 2): 10})
    code, state, said, _ = check(group)
    assert (code, state) == (2, "CRITICAL")
    assert said.startswith(f"{group}: offset-beyond-end: {topic}-0")


def test_a_group_that_commits_nothing_any_more_is_critical(
    check: Check, kafka: KafkaSettings, unique: Callable[[str], str], topic: str
) -> None:
    """Burrow's STOP over the snapshots of two minutes; of offsets in Kafka, whose time no server reports."""
    group = unique("group")
    commit_in_kafka(kafka, group, {TopicPartition(topic, p): 8 for p in range(3)})
    for _ in range(2):
        assert check(group)[:2] == (0, "OK"), "too early to tell"
        check.a_minute_passes()
    code, state, said, data = check(group)
    assert (code, state) == (2, "CRITICAL")
    assert names(said, group, "STOP", f"{topic}-0..2")
    assert data["not_ok"] == 3


def test_a_group_that_goes_back_or_falls_behind_is_reported(
    check: Check, registry: Registry, groups: Groups, topic: str, fill: Callable[..., object]
) -> None:
    """REWIND is critical, WARN a warning, both by partition; a group that catches up is fine, and says how long that
    takes."""
    group = groups.make({}, {}, {(topic, 0): 9, (topic, 1): 2, (topic, 2): 5})
    for step in range(1, 4):
        check(group)
        check.a_minute_passes()
        fill(topic, 3, 3)
        for partition, offset in enumerate((9 - step, 2 + step, 5 + 2 * step)):
            registry.write(SetData(znodes.offset(group, TopicPartition(topic, partition)), b"%d" % offset))
    code, state, said, data = check(group)
    assert (code, state, names(said, group, "REWIND", f"{topic}-0", 1)) == (2, "CRITICAL", True)
    assert [names(line, "WARNING", group, "WARN", f"{topic}-1") for line in check.details] == [True]
    assert data["not_ok"] == 2
    assert "catch_up" not in data, "its slowest partition never does"


def test_all_groups_are_checked_in_one_run(check: Check, groups: Groups, topic: str) -> None:
    """The worst decides; each group's lag is a datum of its own name, however odd."""
    fine = groups.make({}, {}, {(topic, p): 10 for p in range(3)})
    bad = groups.make({}, {}, {(topic, 0): 99}, name=f"{fine}-it's=a|bar")
    code, state, said, data = check("--all", "--store", "zookeeper")
    assert (code, state) == (2, "CRITICAL")
    ill, judged = map(int, re.findall(r"[0-9]+", said)[:2])
    assert 1 <= ill < judged
    assert data[f"{fine} lag"] == 0
    assert isnan(data[f"{bad} lag".replace("=", "_").replace("|", "¦").replace("'", "''")])
    assert any("offset-beyond-end" in line and line.startswith("CRITICAL ") for line in check.details)


def test_what_cannot_be_checked_is_unknown(check: Check, groups: Groups, topic: str, tmp_path: Path) -> None:
    """Wrong usage, no such group, no servers, a history that is none: 3, a line on stdout, and the remedy on stderr."""
    group = groups.make({}, {}, {(topic, 0): 1})
    assert check("nosuch")[:2] == (3, "UNKNOWN")
    assert check(group, "--bogus")[:2] == (3, "UNKNOWN")
    assert check(group, "--warn-lag", "5", "--crit-lag", "2")[:2] == (3, "UNKNOWN")
    assert check(group, "--verify")[:2] == (3, "UNKNOWN")
    nowhere = ("--bootstrap-server", f"127.0.0.1:{free_port()}", "--connect-timeout", "1")
    assert check(group, *nowhere)[:2] == (3, "UNKNOWN")
    away = (*nowhere, "--check", "--history-file", str(check.history))
    metrics = tmp_path / "metrics.prom"
    result = run("inspect-group", group, *away, "--crit-lag", "9", "--metrics", str(metrics), "-z", check.connect)
    assert result.returncode == 3
    assert "| lag=U;;9;0 max_lag=U;;;0 " in result.stdout, "nothing is said to be caught up that is not known"
    written = {name for name, *_ in series(metrics.read_text())}
    assert "kafka_consumergroup_current_offset" in written
    assert not written & {"kafka_consumergroup_lag_sum", "zkgroup_consumergroup_status"}
    assert (
        json.loads(run("inspect-group", group, *away, "-z", check.connect, "--output", "json").stdout)["status"] is None
    )
    check.history = tmp_path / "text"
    check.history.write_text("no database")
    assert check(group)[:2] == (3, "UNKNOWN")
    check.connect = f"127.0.0.1:{free_port()}"
    assert check(group, "--connect-timeout", "0.5")[:2] == (3, "UNKNOWN")
    assert run("inspect-group", "--check", "--help").returncode == 0


def test_a_check_that_nobody_can_read_is_unknown(check: Check, groups: Groups, topic: str) -> None:
    """A full disk, or a reader that has gone: 3, whatever the verdict is, and at most one line on stderr."""
    group = groups.make({}, {}, {(topic, p): 10 for p in range(3)})
    assert check(group)[0] == 0
    command = [ZKGROUP, "inspect-group", group, "--check", "--history-file", str(check.history)]
    reads, writes = os.pipe()
    os.close(reads)
    with Path("/dev/full").open("wb") as full, os.fdopen(writes, "wb") as broken:
        for address, output, fact in (
            (check.connect, full, os.strerror(errno.ENOSPC)),
            ("127.0.0.1:1", full, "127.0.0.1:1"),
            (check.connect, broken, ""),
        ):
            ended = subprocess.run(
                [*command, "-z", address],
                stdout=output,
                stderr=subprocess.PIPE,
                text=True,
                timeout=60,
                check=False,
                env=environment(),
            )
            assert (ended.returncode, fact in ended.stderr) == (3, True), ended.stderr
            assert ended.stderr.count("\n") == bool(fact)


def test_a_check_as_json(check: Check, groups: Groups, topic: str) -> None:
    """One object, with the exit code of the check."""
    group = groups.make({}, {}, {(topic, p): 10 - p for p in range(3)})
    args = ("--check", "--crit-lag", "1", "--history-file", str(check.history), "-z", check.connect, "--output", "json")
    result = run("inspect-group", group, *args)
    assert result.returncode == 2
    found = json.loads(result.stdout)
    assert (found["state"], found["lag"], found["status"], found["snapshots"]) == ("CRITICAL", 3, "OK", 1)
    assert [(one["state"], names(one["reason"], "lag", 3, 1)) for one in found["reasons"]] == [("CRITICAL", True)]


# --- metrics --------------------------------------------------------------------------------------------------------


def series(text: str) -> dict[tuple[str, ...], float]:
    """What Prometheus' own parser reads: name and labels' values → value."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_prometheus_reads_the_metrics(
    cluster: Sandbox, groups: Groups, unique: Callable[[str], str], topic: str, tmp_path: Path
) -> None:
    """Names and labels as kafka_exporter has them; odd names survive; a partition without a commit has no series, nor
    has a lag that is not known: how many of them there are is a series of its own."""
    group = groups.make(
        {"@_a": static({topic: 1})}, {}, {(topic, 0): 4, (topic, 2): 12}, name=f'od"d\\{unique("group")}'
    )
    path = tmp_path / "zkgroup.prom"
    result = run("inspect-group", "--all", "--metrics", str(path), "-z", cluster.connect)
    assert result.returncode == 0
    found = series(path.read_text(encoding="utf-8"))
    # Labels in the order of their names: consumergroup, partition, topic.
    assert found["kafka_consumergroup_lag", group, "0", topic] == 6
    assert 0 < found["zkgroup_consumergroup_lag_seconds", group, "0", topic] < 3600
    assert ("zkgroup_consumergroup_lag_seconds", group, "2", topic) not in found
    assert ("zkgroup_consumergroup_max_lag_seconds", group) not in found
    assert ("kafka_consumergroup_lag", group, "1", topic) not in found
    assert ("kafka_consumergroup_lag", group, "2", topic) not in found
    assert ("kafka_consumergroup_lag_sum", group, topic) not in found
    assert found["zkgroup_consumergroup_lag_unknown_partitions", group, topic] == 2
    assert found["kafka_consumergroup_current_offset", group, "0", topic] == 4
    assert found["kafka_consumergroup_members", group] == 1
    assert found["kafka_topic_partition_current_offset", "1", topic] == 10
    assert found["zkgroup_consumergroup_partition_owned", group, "1", topic] == 0
    assert found["zkgroup_consumergroup_findings", group, "critical"] >= 1
    assert found["zkgroup_snapshot_timestamp_seconds", group] > 1.7e9
    assert not list(tmp_path.glob(".*")), "nothing half-written is left"


def test_metrics_of_one_group_to_stdout_and_with_a_verdict(
    check: Check, cluster: Sandbox, groups: Groups, topic: str, tmp_path: Path
) -> None:
    """``offsets`` writes them as well; next to a check they have its statuses."""
    group = groups.make({}, {}, {(topic, p): 10 for p in range(3)})
    result = run("offsets", group, "--metrics", "-", "-z", cluster.connect)
    assert (result.returncode, result.stderr) == (0, "")
    assert series(result.stdout)["kafka_consumergroup_lag_sum", group, topic] == 0
    assert series(result.stdout)["zkgroup_consumergroup_max_lag_seconds", group] == 0
    assert series(result.stdout)["zkgroup_consumergroup_lag_unknown_partitions", group, topic] == 0
    path = tmp_path / "m.prom"
    assert check(group, "--metrics", str(path))[0] == 0
    found = series(path.read_text())
    assert found["zkgroup_consumergroup_status", group] == 1
    assert found["zkgroup_consumergroup_partition_status", group, "0", topic] == 1
    assert run("offsets", group, "--metrics", str(tmp_path / "no" / "m"), "-z", cluster.connect).returncode == 1


@pytest.mark.parametrize("known", [True, False])
def test_a_lag_that_is_not_known_is_no_number_anywhere(
    check: Check, cluster: Sandbox, groups: Groups, topic: str, *, known: bool
) -> None:
    """An offset beyond the log's end, one that cannot be read, messages and nothing committed, or all of the group's:
    lists, overviews, JSON, checks, metrics and watches say the same."""
    offsets: dict[tuple[str, int | str], int | bytes] = {(topic, 0): 99, (topic, 1): b"?", (topic, 2): 4}
    if not known:
        del offsets[topic, 2]
    group = groups.make({}, {}, offsets)
    part, unknown = (6, 2) if known else (None, 3)
    shown = "≥6" if known else "-"

    def json_of(*args: str) -> Any:
        return json.loads(run(*args, "--output", "json", "-z", cluster.connect).stdout)

    totals = {"topics": 1, "lag": None, "lag_at_least": part, "lag_unknown": unknown, "lag_seconds": None}
    (row,) = [row for row in json_of("list-groups") if row["group"] == group]
    assert {key: row[key] for key in totals} == totals
    assert {key: value for key, value in json_of("inspect-group", group).items() if key in totals} == totals
    for command in (["list-groups"], ["inspect-group", "--all"], ["inspect-group", group]):
        lines = run(*command, "-z", cluster.connect).stdout.splitlines()
        head = lines[0].split()
        (line,) = [line.split() for line in lines if line.startswith(f"{group} ")]
        assert line[head.index("lag")] == shown, lines
    assert "lag=U;" in run("inspect-group", group, "--check", "-z", cluster.connect).stdout
    assert f"'{group} lag'=U;" in run("inspect-group", "--all", "--check", "-z", cluster.connect).stdout
    verdict = json_of("inspect-group", group, "--check", "--history-file", str(check.history))
    assert (verdict["lag"], verdict["lag_at_least"], verdict["lag_unknown"]) == (None, part, unknown)
    assert (verdict["max_lag"], verdict["status"], verdict["catch_up_seconds"]) == (None, None, None)
    assert check(group, "--crit-lag", "6")[0] == 2
    found = series(run("offsets", group, "--metrics", "-", "-z", cluster.connect).stdout)
    assert found["zkgroup_consumergroup_lag_unknown_partitions", group, topic] == unknown
    lags = {
        tuple(labels): value for (name, *labels), value in found.items() if name.startswith("kafka_consumergroup_lag")
    }
    assert lags == ({(group, "2", topic): 6} if known else {})
    rows = {row["partition"]: row["lag"] for row in json_of("offsets", group)}
    assert (rows[0], rows[1]) == (-89, None), "of one partition the difference is shown as it is"


# --- checkpoints ----------------------------------------------------------------------------------------------------


def test_checkpoints_in_a_folder(cluster: Sandbox, groups: Groups, topic: str, tmp_path: Path) -> None:
    """A file each run, the newest kept, each of which reset-offsets takes."""
    group = groups.make({}, {}, {(topic, p): 4 for p in range(3)})
    folder = tmp_path / "made" / "here"
    for _ in range(4):
        assert run("offsets", group, "--save", f"{folder}/", "--keep-last", "2", "-z", cluster.connect).returncode == 0
    files = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    assert len(files) == 2
    result = run("reset-offsets", group, "--all-topics", "--from-file", str(files[-1]), "-z", cluster.connect)
    assert result.returncode == 0
    result = run("offsets", group, "--save", str(tmp_path / "file"), "--keep-last", "2", "-z", cluster.connect)
    assert (result.returncode, names(result.stderr, "--keep-last", f"--save {tmp_path / 'file'}/")) == (2, True)


@pytest.mark.parametrize("gone", [True, False])
def test_what_no_message_waits_for_has_no_lag_anywhere(
    check: Check, cluster: Sandbox, groups: Groups, unique: Callable[[str], str], *, gone: bool
) -> None:
    """A group whose only offset is of a topic that does not exist has a lag of 0; one without any partition has none:
    lists, overviews, JSON, checks and metrics say the same."""
    topic = unique("gone")
    group = groups.make({}, {}, {(topic, 0): 4} if gone else {})
    lag = 0 if gone else None
    shown, figure = ("0", "0") if gone else ("-", "U")

    def json_of(*args: str) -> Any:
        return json.loads(run(*args, "--output", "json", "-z", cluster.connect).stdout)

    totals = {"lag": lag, "lag_at_least": lag, "lag_unknown": 0, "lag_seconds": lag, "lag_seconds_at_least": lag}
    (row,) = [row for row in json_of("list-groups") if row["group"] == group]
    assert {key: row[key] for key in totals} == totals
    assert {key: value for key, value in json_of("inspect-group", group).items() if key in totals} == totals
    for command in (["list-groups"], ["inspect-group", "--all"], ["inspect-group", group]):
        lines = run(*command, "-z", cluster.connect).stdout.splitlines()
        head = lines[0].split()
        (line,) = [line.split() for line in lines if line.startswith(f"{group} ")]
        assert line[head.index("lag")] == shown, lines
    assert f"lag={figure};;;0 max_lag={figure};" in run("inspect-group", group, "--check", "-z", cluster.connect).stdout
    every = run("inspect-group", "--all", "--check", "-z", cluster.connect).stdout
    assert (f"'{group} lag'={figure};" in every) == gone, "a group that has nothing is not judged among all"
    verdict = json_of("inspect-group", group, "--check", "--history-file", str(check.history))
    assert {key: verdict[key] for key in (*totals, "max_lag")} == {**totals, "max_lag": lag}
    found = series(run("offsets", group, "--metrics", "-", "-z", cluster.connect).stdout)
    assert found.get(("kafka_consumergroup_lag_sum", group, topic)) == lag
    assert found.get(("zkgroup_consumergroup_lag_unknown_partitions", group, topic)) == lag
