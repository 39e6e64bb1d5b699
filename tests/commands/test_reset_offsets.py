"""``zkgroup reset-offsets`` as its users run it, on real servers."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli import run
from lines import names
from resets import STORES, Kept, OneStore
from support import fresh_name

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.commands._output import iso_utc
from zkgroup.config.setting_files import STATE_VARIABLE
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Exists, SetData
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import ProducerRecord, produce

MakeTopic = Callable[..., str]
Fill = Callable[..., list[ProducerRecord]]
P = TopicPartition
NOON = 1_600_000_000_000  # 2020-09-13T12:26:40Z


@pytest.fixture(scope="module")
def topic(registry: Registry, kafka: KafkaSettings) -> str:
    """Three partitions with 100 messages each, one a second since 2020-09-13T12:26:40Z."""
    from zkgroup.sandbox.topic_admin import create_topic

    name = fresh_name("reset")
    create_topic(registry, name, 3)
    produce(kafka, name, [ProducerRecord(b"x", None, i % 3, timestamp_ms=NOON + i // 3 * 1000) for i in range(300)])
    return name


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> OneStore:
    """Each of the two places where offsets are kept."""
    return request.param


@pytest.fixture
def kept(registry: Registry, kafka: KafkaSettings, unique: Callable[[str], str], store: OneStore, topic: str) -> Kept:
    """A group at 10 and 20 in the first two partitions, in one store."""
    found = Kept(registry, kafka, unique("reset"), store)
    found.put({P(topic, 0): 10, P(topic, 1): 20})
    return found


@pytest.fixture
def in_zookeeper(registry: Registry, kafka: KafkaSettings, unique: Callable[[str], str], topic: str) -> Kept:
    """The same in ZooKeeper alone."""
    found = Kept(registry, kafka, unique("reset"), "zookeeper")
    found.put({P(topic, 0): 10, P(topic, 1): 20})
    return found


def offsets_of(kept: Kept, topic: str) -> list[int | None]:
    return kept.get(*(P(topic, number) for number in range(3)))


def reset(cluster: Sandbox, *args: str, **options: Any) -> tuple[int, list[dict[str, Any]], str]:
    """Run it with JSON rows: exit code, rows, stderr."""
    result = run("reset-offsets", *args, "-z", cluster.connect, "--output", "json", **options)
    return result.returncode, json.loads(result.stdout) if result.stdout else [], result.stderr


def test_a_plan_changes_nothing(cluster: Sandbox, kept: Kept, topic: str) -> None:
    """Without --execute the rows are shown, stderr names it, and the exit is 0. What Kafka cannot do is warned of."""
    code, rows, stderr = reset(cluster, kept.group, "--topic", topic, "--to-offset", "500")
    assert code == 0
    notes = [row.pop("note") for row in rows]
    assert rows == [
        {
            "topic": topic, "partition": n, "current": current, "target": 100, "change": change, "target_time": None,
        }
        for n, current, change in ((0, 10, 90), (1, 20, 80), (2, None, None))
    ]  # fmt: skip
    assert all(names(note, 500) for note in notes)
    assert notes[0] == notes[1] != notes[2], "one had no offset"
    assert names(stderr.splitlines()[-1], "--execute")
    assert stderr.count("warning") == (2 if kept.store == "kafka" else 0)
    assert offsets_of(kept, topic) == [10, 20, None]
    assert reset(cluster, kept.group, "--topic", topic, "--to-latest", "--dry-run")[0] == 0


def test_either_store_is_written(cluster: Sandbox, kept: Kept, topic: str) -> None:
    """--execute writes where the group keeps its offsets, each time from where they are."""
    args = (kept.group, "--topic", f"{topic}:0-1", "--shift-by", "5", "--execute")
    for expected in ([15, 25, None], [20, 30, None]):
        assert reset(cluster, *args)[0] == 0
        assert offsets_of(kept, topic) == expected


def test_formats(cluster: Sandbox, in_zookeeper: Kept, topic: str) -> None:
    """A table for awk, CSV with a head, and Kafka's CSV without one, of the same rows."""
    args = ("reset-offsets", in_zookeeper.group, "--topic", f"{topic}:1-2", "--to-earliest", "-z", cluster.connect)
    lines = run(*args).stdout.splitlines()
    first = "2020-09-13T12:26:40.000Z"
    assert lines[0].split() == ["topic", "partition", "current", "target", "change", "target_time", "note"]
    assert lines[1].split() == [topic, "1", "20", "0", "-20", first, "-"]
    assert lines[2].split()[:6] == [topic, "2", "-", "0", "-", first]
    rows = list(csv.DictReader(io.StringIO(run(*args, "--output", "csv").stdout)))
    note = rows[1].pop("note")
    assert rows[1] == {
        "topic": topic, "partition": "2", "current": "", "target": "0", "change": "", "target_time": first,
    }  # fmt: skip
    assert lines[2].endswith(f" {note}"), "it had no offset"
    assert (rows[0]["note"], bool(note)) == ("", True)
    assert run(*args, "--export").stdout == f"{topic},1,0\n{topic},2,0\n"


@pytest.mark.parametrize("store", ["zookeeper"], indirect=True)  # the core's tests take every target to both
@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (["--to-earliest"], [0, 0, 0]),
        (["--to-latest"], [100, 100, 100]),
        (["--to-offset", "42"], [42, 42, 42]),
        (["--to-current"], [10, 20, None]),
        (["--shift-by", "-15"], [0, 5, None]),
        (["--shift-by", "15"], [25, 35, None]),
        (["--to-datetime", "2020-09-13T12:27:00"], [20, 20, 20]),
        (["--to-datetime", "2020-09-13T14:27:00.001+02:00"], [21, 21, 21]),
        (["--by-duration", "PT1H"], [100, 100, 100]),
        (["--by-duration", "P36500D"], [0, 0, 0]),
    ],
)
def test_every_target_is_executed(
    cluster: Sandbox, kept: Kept, topic: str, target: list[str], expected: list[int | None]
) -> None:
    """Each of KIP-122's targets ends where it says, at a message of the time that is shown, and a backup's path is
    reported."""
    code, rows, stderr = reset(cluster, kept.group, "--topic", topic, *target, "--execute")
    assert code == 0, stderr
    assert [row["target"] for row in rows] == expected
    times = [None if offset in (None, 100) else NOON + offset * 1000 for offset in expected]
    assert [row["target_time"] for row in rows] == [iso_utc(at) for at in times]
    assert offsets_of(kept, topic) == expected
    moved = sum(row["current"] != row["target"] for row in rows)
    if moved:
        backup = re.search(rf"{re.escape(os.environ[STATE_VARIABLE])}/\S+$", stderr, re.MULTILINE)
        assert backup is not None, stderr
        assert stat.S_IMODE(Path(backup[0]).stat().st_mode) == 0o600
        assert names(stderr.splitlines()[-1], moved, kept.group)
    else:
        assert (stderr.count("\n"), names(stderr, kept.group)) == (1, False)


def test_all_topics(cluster: Sandbox, kept: Kept, topic: str, make_topic: MakeTopic, fill: Fill) -> None:
    """All topics that the group has offsets of, all their partitions, and no others."""
    other = make_topic(2)
    fill(other, 10, 2)
    kept.put({P(other, 1): 3})
    code, rows, _ = reset(cluster, kept.group, "--all-topics", "--to-latest")
    assert code == 0
    assert {(row["topic"], row["partition"]) for row in rows} == {
        *((topic, n) for n in range(3)), *((other, n) for n in range(2)),
    }  # fmt: skip
    code, rows, _ = reset(cluster, kept.group, "--topic", f"{topic}:2", "--topic", f"{other}:0", "--to-latest")
    assert [(row["topic"], row["partition"], row["target"]) for row in rows] == sorted([(topic, 2, 100), (other, 0, 5)])


def test_an_active_group_is_refused(cluster: Sandbox, kept: Kept, topic: str, tmp_path: Path) -> None:
    """Exit 5 naming the members, no backup that nobody needs; a plan is shown all the same, and says so."""
    unneeded = tmp_path / "backup"
    with kept.alive(topic) as name:
        args = (kept.group, "--topic", topic, "--to-earliest", "--execute", "--backup", str(unneeded))
        code, rows, stderr = reset(cluster, *args)
        assert (code, len(rows)) == (5, 3)
        assert re.search(rf"\b{kept.group}\b.*\b{name}", stderr)
        assert not unneeded.exists()
        code, _, stderr = reset(cluster, kept.group, "--topic", topic, "--to-earliest")
        assert code == 0
        assert re.search(rf"--execute\b.*\b{kept.group}\b.*\b{name}", stderr)
        assert offsets_of(kept, topic) == [10, 20, None]
        standing = (kept.group, "--topic", f"{topic}:0-1", "--shift-by", "0")
        code, _, stderr = reset(cluster, *standing, "--execute")  # it is there just now, and moves on
        assert (code, names(stderr, kept.group), name in stderr) == (5, True, True)
        code, _, stderr = reset(cluster, *standing)
        assert (code, names(stderr, "--execute", kept.group), name in stderr) == (0, True, True)
    assert offsets_of(kept, topic) == [10, 20, None]


def test_files(cluster: Sandbox, kept: Kept, topic: str, tmp_path: Path) -> None:
    """What a file says is written, and nothing else; --topic leaves some of it out; a mended copy of a plan is one."""
    file = tmp_path / "offsets"
    file.write_text(f"{topic} 0 50\n{topic} 2 5000\n")
    code, rows, _ = reset(cluster, kept.group, "--from-file", str(file), "--execute")
    assert (code, [row["target"] for row in rows]) == (0, [50, 100])
    assert (rows[0]["note"], names(rows[1]["note"], 5000)) == (None, True)
    assert offsets_of(kept, topic) == [50, 20, 100]
    file.write_text(f"/consumers/{kept.group}/offsets/{topic}/0-0:7\n/consumers/{kept.group}/offsets/{topic}/1:8\n")
    assert reset(cluster, kept.group, "--from-file", str(file), "--topic", f"{topic}:1", "--execute")[0] == 0
    assert offsets_of(kept, topic) == [50, 8, 100]
    code, _, stderr = reset(cluster, kept.group, "--from-file", str(file), "--topic", f"{topic}:2", "--execute")
    assert (code, names(stderr, "--topic")) == (2, True)
    args = ("reset-offsets", kept.group, "-z", cluster.connect)
    plan = run(*args, "--topic", topic, "--to-earliest", "--output", "csv").stdout
    assert run(*args, "--from-file", "-", "--execute", input=plan).returncode == 0
    assert offsets_of(kept, topic) == [0, 0, 0]


def test_files_of_other_groups(cluster: Sandbox, in_zookeeper: Kept, topic: str, tmp_path: Path) -> None:
    """A file that names another group is refused, unless its offsets are asked for."""
    file = tmp_path / "offsets"
    file.write_text(json.dumps({"groupid": "elsewhere", "offsets": {topic: {"0": 33}}}))
    code, _, stderr = reset(cluster, in_zookeeper.group, "--from-file", str(file))
    assert (code, stderr.count("\n")) == (2, 1)
    assert names(stderr, file, "'elsewhere'", in_zookeeper.group, "--from-group elsewhere")
    code, rows, _ = reset(cluster, in_zookeeper.group, "--from-file", str(file), "--from-group", "elsewhere")
    assert (code, [row["target"] for row in rows]) == (0, [33])


def test_undo(cluster: Sandbox, kept: Kept, topic: str, tmp_path: Path) -> None:
    """--undo puts back what --backup kept; what has moved since is refused with exit 5, and the others can go back."""
    backup = tmp_path / "backup"
    args = (kept.group, "--topic", f"{topic}:0-1", "--to-latest", "--backup", str(backup), "--execute")
    assert reset(cluster, *args)[0] == 0
    assert reset(cluster, *args)[0] == 5  # it exists: it may be the only copy
    code, rows, _ = reset(cluster, kept.group, "--undo", str(backup))
    assert (code, [(row["current"], row["target"]) for row in rows]) == (0, [(100, 10), (100, 20)])

    kept.put({P(topic, 1): 77})
    code, _, stderr = reset(cluster, kept.group, "--undo", str(backup), "--execute")
    assert (code, names(stderr, backup, f"{topic}-1", 77)) == (5, True)
    assert offsets_of(kept, topic) == [100, 77, None]
    code, _, stderr = reset(cluster, kept.group, "--undo", str(backup))
    assert (code, names(stderr, "--execute", backup, f"{topic}-1", 77)) == (0, True)
    assert reset(cluster, kept.group, "--undo", str(backup), "--topic", f"{topic}:0", "--execute")[0] == 0
    assert offsets_of(kept, topic) == [10, 77, None]


def test_a_new_group(cluster: Sandbox, registry: Registry, unique: Callable[[str], str], topic: str) -> None:
    """A group that does not exist: exit 4 with --all-topics, made where topics are named; a plan makes nothing."""
    group = unique("fresh")
    code, _, stderr = reset(cluster, group, "--all-topics", "--to-latest")
    assert (code, names(stderr, group)) == (4, True)
    code, _, stderr = reset(cluster, group, "--topic", topic, "--to-latest")
    assert (code, names(stderr, "warning", group)) == (0, True)
    assert registry.read([Exists(znodes.group(group))]) == [None]
    assert reset(cluster, group, "--topic", topic, "--to-latest", "--execute")[0] == 0
    assert Kept(registry, KafkaSettings(cluster.bootstrap), group, "zookeeper").get(P(topic, 0)) == [100]


def test_both_stores(cluster: Sandbox, in_zookeeper: Kept, topic: str) -> None:
    """Of a group in both, a row for each store, and both are written; --store chooses one."""
    in_kafka = Kept(in_zookeeper.registry, in_zookeeper.kafka, in_zookeeper.group, "kafka")
    in_kafka.put({P(topic, 0): 12})
    code, rows, _ = reset(cluster, in_zookeeper.group, "--topic", f"{topic}:0", "--to-offset", "50", "--execute")
    assert code == 0
    assert [(row["store"], row["current"], row["target"]) for row in rows] == [("zookeeper", 10, 50), ("kafka", 12, 50)]
    assert (offsets_of(in_zookeeper, topic)[0], offsets_of(in_kafka, topic)[0]) == (50, 50)
    args = (in_zookeeper.group, "--topic", f"{topic}:0", "--to-earliest", "--execute", "--store")
    code, rows, stderr = reset(cluster, *args, "kafka")
    assert (code, list(rows[0])) == (0, ["topic", "partition", "current", "target", "change", "note", "target_time"])
    assert names(stderr, "warning", "ZooKeeper", f"{topic}-0", "reset-offsets", "--store both")
    assert (offsets_of(in_zookeeper, topic)[0], offsets_of(in_kafka, topic)[0]) == (50, 0)
    code, _, stderr = reset(cluster, *args, "zookeeper")
    assert (code, "warning" in stderr) == (0, False)
    assert (offsets_of(in_zookeeper, topic)[0], offsets_of(in_kafka, topic)[0]) == (0, 0)
    in_kafka.put({P(topic, 0): 12})
    _, _, stderr = reset(cluster, *args[:-2], "--store", "zookeeper")
    assert names(stderr, "warning", "Kafka", f"{topic}-0", "reset-offsets", "--store both")


def test_without_zookeeper(
    cluster: Sandbox,
    kafka: KafkaSettings,
    registry: Registry,
    unique: Callable[[str], str],
    topic: str,
    tmp_path: Path,
) -> None:
    """Offsets in Kafka need brokers alone, and somebody who vouches that nobody is registered in ZooKeeper; offsets in
    ZooKeeper need ZooKeeper, and say so."""
    kept = Kept(registry, kafka, unique("alone"), "kafka")
    kept.put({P(topic, 0): 10})
    plan = ("reset-offsets", kept.group, "--topic", topic, "--to-latest", "--bootstrap-server", cluster.bootstrap)
    shown, refused = run(*plan), run(*plan, "--execute")
    assert (shown.returncode, refused.returncode, offsets_of(kept, topic)) == (0, 5, [10, None, None])
    assert names(shown.stderr, "--execute", "ZooKeeper", "--no-zookeeper-members")
    assert names(refused.stderr, "ZooKeeper", "--zookeeper", "--no-zookeeper-members")
    args = ("reset-offsets", kept.group, "--topic", topic, "--to-latest", "--execute", "--no-zookeeper-members")
    backup = tmp_path / "backup"
    result = run(*args, "--bootstrap-server", cluster.bootstrap, "--backup", str(backup))
    assert (result.returncode, offsets_of(kept, topic)) == (0, [100, 100, 100])
    undo = ("--undo", str(backup), "--execute", "--no-zookeeper-members")
    undone = run("reset-offsets", kept.group, *undo, "--bootstrap-server", cluster.bootstrap)
    assert (undone.returncode, offsets_of(kept, topic)) == (6, [10, 100, 100])
    done, error = undone.stderr.splitlines()[-2:]
    left = (2, kept.group, "Kafka", f"{topic}-1..2")
    assert (names(done, 1, kept.group), names(error, *left)) == (True, True), undone.stderr
    assert names(error, "--delete-offsets", "kafka-consumer-groups")
    shown = run("delete-group", kept.group, "--store", "kafka", "--bootstrap-server", cluster.bootstrap)
    named = f"zkgroup --bootstrap-server {cluster.bootstrap} delete-group {kept.group} --store kafka"
    assert (shown.returncode, names(error, named)) == (0, True)
    again = run("reset-offsets", kept.group, *undo[:2], "--bootstrap-server", cluster.bootstrap)
    assert (again.returncode, names(again.stderr, "warning", *left)) == (0, True)
    result = run(*args, "--bootstrap-server", cluster.bootstrap, "--store", "zookeeper")
    assert (result.returncode, names(result.stderr, "ZooKeeper", "--zookeeper")) == (2, True)


def test_malformed_offsets_are_shown_and_repaired(cluster: Sandbox, in_zookeeper: Kept, topic: str) -> None:
    """A node that has no number says so in the note, and gets one."""
    in_zookeeper.registry.write(SetData(znodes.offset(in_zookeeper.group, P(topic, 0)), b"malformed"))
    args = (in_zookeeper.group, "--topic", f"{topic}:0", "--to-offset", "5", "--execute")
    code, rows, _ = reset(cluster, *args)
    assert (code, names(rows[0]["note"], "'malformed'")) == (0, True)
    assert offsets_of(in_zookeeper, topic)[0] == 5


@pytest.mark.parametrize(
    ("args", "code", "facts"),
    [
        (["--to-latest"], 2, ["--topic"]),
        (["--topic", "T"], 2, ["--to-earliest, --to-latest"]),
        (["--topic", "T", "--to-latest", "--to-offset", "0"], 2, ["--to-latest", "--to-offset"]),
        (["--topic", "T", "--all-topics", "--to-latest"], 2, ["--topic", "--all-topics"]),
        (["--topic", "T", "--to-latest", "--execute", "--dry-run"], 2, ["--execute", "--dry-run"]),
        (["--topic", "T", "--to-latest", "--execute", "--export"], 2, ["--export", "--execute"]),
        (["--topic", "T", "--to-latest", "--file-format", "csv"], 2, ["--file-format", "--from-file"]),
        (["--topic", "T", "--to-latest", "--same-logs"], 2, ["--same-logs", "--from-file"]),
        (["--topic", "T", "--to-offset", "-1"], 2, ["-1", "--to-earliest"]),
        (["--topic", "T", "--to-offset", "x"], 2, ["--to-offset", "'x'"]),
        (["--topic", "T", "--to-datetime", "tomorrow"], 2, ["'tomorrow'"]),
        (["--topic", "T", "--by-duration", "P1M"], 2, ["'P1M'"]),
        (["--topic", "T:x", "--to-latest"], 2, ["--topic", "'T:x'"]),
        (["--topic", "../T", "--to-latest"], 2, ["'../T'"]),
        (["--topic", "absent", "--to-latest"], 4, ["absent"]),
        (["--topic", "T:3", "--to-latest"], 4, ["T", "3", "0", "2"]),
        (["--from-file", "absent"], 2, ["absent", "No such file or directory"]),
        (["--undo", "absent"], 2, ["absent", "No such file or directory"]),
    ],
)
def test_what_is_wrong_is_reported_in_one_line(
    cluster: Sandbox, in_zookeeper: Kept, topic: str, args: list[str], code: int, facts: list[str]
) -> None:
    """Wrong usage is exit 2, what does not exist exit 4, each one line that names it; nothing is changed."""
    given, named = ([re.sub(r"\bT(?=:|'|$)", topic, word) for word in words] for words in (args, facts))
    result = run("reset-offsets", in_zookeeper.group, *given, "-z", cluster.connect)
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (code, "", 1)
    assert names(result.stderr, *named), result.stderr
    assert offsets_of(in_zookeeper, topic) == [10, 20, None]


@pytest.mark.parametrize("group", ["..", "a/b", "a\x1bb", ""])
def test_hostile_groups(cluster: Sandbox, group: str) -> None:
    """A name that no znode can have is refused before anything is opened, and shown without its control characters."""
    result = run("reset-offsets", group, "--all-topics", "--to-latest", "-z", cluster.connect)
    assert result.returncode == 2
    assert "\x1b" not in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_malformed_file_is_reported_with_its_line(
    cluster: Sandbox, in_zookeeper: Kept, topic: str, tmp_path: Path
) -> None:
    """The file and the line are named; nothing of it is taken."""
    file = tmp_path / "offsets"
    file.write_text(f"{topic},0,5\n{topic},1,none\n")
    code, rows, stderr = reset(cluster, in_zookeeper.group, "--from-file", str(file), "--execute")
    assert (code, rows, stderr.count("\n"), names(stderr, file, 2, "'none'")) == (2, [], 1, True), stderr
    file.write_text(f"{topic},0,5\n{topic},7,5\n")
    code, _, stderr = reset(cluster, in_zookeeper.group, "--from-file", str(file), "--execute")
    assert (code, stderr.count("\n"), names(stderr, topic, 7, 0, 2)) == (4, 1, True), stderr
    assert offsets_of(in_zookeeper, topic) == [10, 20, None]
