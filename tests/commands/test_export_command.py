"""``zkgroup export`` as its users run it: output, exit codes, signals, and what a killed one leaves behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from cli import ZKGROUP, environment, run, run_on_terminal
from exports import InProcess, commit_offsets, files_in, messages_in, nothing_in, published_in
from lines import names
from members import connector
from object_store_server import CREDENTIALS, filesystem, object_server, uri_of
from support import fresh_name, numbered, wait_until

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.export.planning.export_request import EARLIEST
from zkgroup.export.run.run_export import ExportRequest, run_export
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Children, Create, Ensure, Exists, Get, Node
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import create_topic, produce

MESSAGES = 120_000
COLUMNS = ["topic", "partition", "start", "end", "rows", "bytes", "files", "undecodable", "late"]


@pytest.fixture(scope="module")
def topic(registry: Registry, kafka: KafkaSettings) -> str:
    """A topic with enough messages that an export can be caught active."""
    name = fresh_name("export-command")
    create_topic(registry, name, 2)
    produce(kafka, name, numbered(MESSAGES, 2))
    return name


@pytest.fixture
def env(cluster: Sandbox) -> dict[str, str]:
    return {"ZKGROUP_ZOOKEEPER": cluster.connect}


@pytest.fixture
def at_end(registry: Registry, topic: str, unique: Callable[[str], str]) -> str:
    """A group that has read the whole topic."""
    group = unique("group")
    commit_offsets(registry, group, {TopicPartition(topic, number): MESSAGES // 2 for number in range(2)})
    return group


def offset(registry: Registry, group: str, topic: str, number: int) -> int | None:
    (node,) = registry.read([Get(path := znodes.offset(group, TopicPartition(topic, number)))])
    return znodes.decode_offset(path, node.data) if isinstance(node, Node) else None


def test_nothing_new_is_reported_quickly_and_without_spark(
    env: dict[str, str], at_end: str, topic: str, tmp_path: Path, registry: Registry
) -> None:
    """A row for each partition, exit 0, no Java needed, and no trace in the folder or in ZooKeeper."""
    without_java = env | {"PATH": "/nowhere", "JAVA_HOME": "/nowhere"}
    (node,) = registry.read([Exists(znodes.group(at_end))])
    began = time.monotonic()
    done = run("export", "--group", at_end, "--to", str(tmp_path / "out"), "--output", "json", env=without_java)
    assert time.monotonic() - began < 5  # 0.3 s where nothing else runs
    half = MESSAGES // 2
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert names(done.stderr, "warning", tmp_path / "out", at_end)
    assert json.loads(done.stdout) == [
        dict(zip(COLUMNS, (topic, number, half, half, 0, 0, 0, 0, 0), strict=True)) for number in range(2)
    ]
    assert list(tmp_path.iterdir()) == []
    assert registry.read([Exists(znodes.group(at_end))]) == [node]


def test_modules_of_the_working_directory_are_not_sparks(
    env: dict[str, str], topic: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """Whatever their names."""
    (tmp_path / "pyarrow.py").write_text("raise SystemExit('not this one')", encoding="utf-8")
    command = [
        ZKGROUP,
        "export",
        topic,
        "-g",
        unique("group"),
        "--from",
        "earliest",
        "--to",
        "out",
        "--max-messages",
        "9",
    ]
    done = subprocess.run(
        command, env=environment(env), cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_progress_is_for_terminals(env: dict[str, str], at_end: str, tmp_path: Path) -> None:
    """On a terminal a line shows what is going on, and is wiped before the table."""
    code, shown = run_on_terminal("export", "--group", at_end, "--to", str(tmp_path / "out"), env=env)
    assert code == 0
    assert re.search(r"\w[^\n]*\r\x1b\[K", shown)
    _, shown = run_on_terminal("export", "--group", at_end, "--to", str(tmp_path / "out"), "--quiet", env=env)
    assert "\x1b[K" not in shown


def test_a_bar_counts_messages_and_bytes(
    env: dict[str, str], topic: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """On a terminal: how many messages of how many, the size of the files, and that it is gone before the table."""
    arguments = ("export", topic, "--group", unique("group"), "--from", "earliest", "--to", str(tmp_path / "out"))
    code, shown = run_on_terminal(*arguments, env=env)
    assert code == 0, shown
    size = sum(path.stat().st_size for path in (tmp_path / "out").rglob("*.parquet"))
    assert f"{MESSAGES}/{MESSAGES}" in shown
    assert f"{size / 1000:.1f} kB" in shown
    assert shown.rindex(f"{MESSAGES}/{MESSAGES}") < shown.index("topic ")


def test_a_live_group_is_refused(env: dict[str, str], at_end: str, registry: Registry, tmp_path: Path) -> None:
    """Exit 5 with the member's name; nothing is written."""
    member = f"{at_end}_host-1-abc"
    registry.write(Ensure(znodes.ids(at_end)))
    path = znodes.member_id(at_end, member)
    registry.write(Create(path, b"{}", ephemeral=True))
    done = run("export", "--group", at_end, "--to", str(tmp_path / "out"), env=env)
    assert (done.returncode, done.stdout) == (5, "")
    assert member in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_live_group_is_joined_when_asked_to(
    env: dict[str, str], topic: str, unique: Callable[[str], str], cluster: Sandbox, registry: Registry, tmp_path: Path
) -> None:
    """With a member that has the other partition: one of the two is exported and committed, the member stays, and
    the export is gone."""
    group, out = unique("group"), tmp_path / "out"
    member = connector(cluster.connect, group, auto_commit_enable=False, rebalance_max_retries=20)
    member.streams({topic: 1})
    try:
        done = run(
            "export", topic, "--group", group, "--from", "earliest", "--to", str(out), "--join", "--output", "json",
            "-X", "rebalance.max.retries=20", env=env, timeout=120,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        (row,) = json.loads(done.stdout)
        assert (row["start"], row["end"], row["rows"]) == (0, MESSAGES // 2, MESSAGES // 2)
        committed = [offset(registry, group, topic, number) for number in range(2)]
        assert committed == [MESSAGES // 2 if number == row["partition"] else None for number in range(2)]
        assert {found["partition"] for found in messages_in(out)} == {row["partition"]}
        assert registry.read([Children(znodes.ids(group))]) == [(member.consumer_id,)]
        wait_until(lambda: len(member.statistics().owned) == 2, 30, "the member has all again")
    finally:
        member.close()


@pytest.mark.parametrize(
    ("arguments", "code", "facts"),
    [
        (["--group", "GROUP", "--to", "ftp://host/x"], 2, ("ftp:",)),
        (["--group", "GROUP", "--to", "s3://bucket/x?endpoint=y"], 2, ("endpoint",)),
        (["--group", "GROUP", "--to", "file:///a?b"], 2, ("%3F",)),
        (["--group", "GROUP", "--to", "OUT", "--partition-by", "day"], 2, ("--partition-by",)),
        (["--group", "GROUP", "--to", "OUT", "--partition-by", "date", "--time-zone", "Mars"], 2, ("Mars",)),
        (["--group", "GROUP", "--to", "OUT", "--compression", "zstd:99"], 2, ("zstd", 99)),
        (["--group", "GROUP", "--to", "OUT", "--whitelist", ""], 2, ("--whitelist",)),
        (["--group", "GROUP", "--to", "/dev/null/out"], 2, ("/dev/null",)),
        (["--group", "GROUP", "--to", "OUT", "--conf", "nonsense"], 2, ("--conf",)),
        (["--group", "GROUP", "--to", "OUT", "--target-file-size", "-1"], 2, ("--target-file-size",)),
        (["--group", "GROUP", "--to", "OUT", "--max-bytes", "many"], 2, ("--max-bytes",)),
        (["--group", "GROUP", "--to", "OUT", "--from", "nowhere"], 2, ("--from",)),
        (["--group", "GROUP", "--to", "OUT", "--until", "@noon"], 2, ("@noon",)),
        (["--group", "GROUP", "--to", "OUT", "--backfill"], 2, ("--backfill",)),
        (["--group", "GROUP", "--to", "OUT", "--status", "--history"], 2, ("--status", "--history")),
        (["--group", "GROUP"], 2, ("--to",)),
        (["--to", "OUT"], 2, ("--group",)),
        (["--to", "OUT", "--verify"], 4, ("OUT",)),
        (["--group", "GROUP", "--to", "OUT", "--abandon"], 4, ("GROUP",)),
        (["--group", "GROUP", "--to", "OUT", "--whitelist", "("], 2, ("(",)),
        (["--group", "a/b", "--to", "OUT"], 2, ("'a/b'",)),
        (["--group", "nobody-knows", "--to", "OUT"], 4, ("nobody-knows",)),
        (["no-such-topic", "--group", "GROUP", "--to", "OUT"], 4, ("no-such-topic",)),
        (["TOPIC", "--group", "unknown", "--to", "OUT"], 5, ("unknown", "--from")),
        (
            ["TOPIC", "--group", "unknown", "--from", "earliest", "--to", "OUT", "--master", "nonsense"],
            2,
            ("nonsense",),
        ),
    ],
)
def test_what_cannot_be_done_is_one_line_with_its_code(
    env: dict[str, str], at_end: str, topic: str, tmp_path: Path, arguments: list[str], code: int, facts: tuple[object]
) -> None:
    """Wrong usage 2, unknown things 4, refusals 5: one line that names the thing, and nothing half done."""
    meant = {"GROUP": at_end, "TOPIC": topic, "OUT": str(tmp_path / "out"), "unknown": f"{at_end}-unknown"}
    done = run(
        "export", *[meant.get(argument, argument) for argument in arguments], env=env | {"TMPDIR": str(tmp_path)}
    )
    assert done.returncode == code
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert names(done.stderr, *(meant.get(str(fact), fact) for fact in facts))
    assert [path for path in files_in(tmp_path) if not path.startswith("zkgroup-spark-")] == []


def test_a_damaged_file_is_reported_in_a_sentence(
    topic: str, registry: Registry, kafka: KafkaSettings, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """What a library says of a file has a full stop of its own: the error goes on behind it as one sentence does."""
    request = ExportRequest(unique("group"), tmp_path, (topic,), begin=EARLIEST, max_messages=9)
    run_export(request, registry, lambda: kafka, runner=InProcess)
    file = next(tmp_path.glob("topic=*/partition=0/*.parquet"))
    file.write_bytes(b"x" * file.stat().st_size)
    done = run("export", "--verify", "--to", str(tmp_path))
    assert done.returncode == 6
    assert file.name in done.stderr
    assert ".: " not in done.stderr
    assert done.stderr.count("\n") == 1


def test_without_a_recent_java_it_says_what_to_install(
    env: dict[str, str], topic: str, at_end: str, tmp_path: Path
) -> None:
    """There is something to export, and no Java, or an old one: one line, exit 2, before anything is written."""
    path = os.pathsep.join(p for p in os.environ["PATH"].split(os.pathsep) if not Path(p, "java").exists())
    (tmp_path / "old" / "bin").mkdir(parents=True)
    (tmp_path / "old" / "bin" / "java").touch(0o755)
    (tmp_path / "old" / "release").write_text('JAVA_VERSION="1.8.0_392"\n')
    arguments = ("export", topic, "--group", f"{at_end}-new", "--from", "earliest", "--to", str(tmp_path / "out"))
    old = str(tmp_path / "old")
    for home, facts in (("", ("Java 17",)), (str(tmp_path), ("Java 17",)), (old, ("Java 17", old, "Java 8"))):
        done = run(*arguments, env=env | {"PATH": path or "/nowhere", "JAVA_HOME": home})
        assert done.returncode == 2
        assert names(done.stderr, *facts)
        assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


class ExportProcess:
    """An export that was started and has begun to write."""

    def __init__(self, group: str, topic: str, out: Path, env: dict[str, str]) -> None:
        self.group, self.topic, self.out = group, topic, out
        self.process = subprocess.Popen(
            [ZKGROUP, "export", topic, "--group", group, "--from", "earliest", "--to", str(out)],
            env=environment(env),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait_for_files(self) -> None:
        """Until a task writes. Publishing comes later: not before Spark has stopped."""

        def writing() -> bool:
            assert self.process.poll() is None, self.process.communicate()
            return any(self.out.glob("_zkgroup/*/*/*/*.tmp"))

        wait_until(writing, 60, "a task writes")

    def children(self) -> set[int]:
        """All processes of the export: its own, the JVM, Spark's Python workers."""
        found: set[int] = set()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                    mine = str(self.out) in (entry / "cmdline").read_text() or int(fields[3]) == self.process.pid
                except OSError:
                    continue
                if mine and fields[0] != "Z":
                    found.add(int(entry.name))
        return found


@pytest.fixture
def running(env: dict[str, str], topic: str, unique: Callable[[str], str], tmp_path: Path) -> Iterator[ExportProcess]:
    """An export under way, caught while its tasks write."""
    export = ExportProcess(unique("group"), topic, tmp_path / "out", env)
    try:
        export.wait_for_files()
        yield export
    finally:
        if export.process.poll() is None:
            export.process.kill()
        export.process.communicate(timeout=30)
        wait_until(lambda: not export.children(), 30, "the export's processes end")


@pytest.mark.parametrize(
    ("signum", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.long)]
)
def test_an_interrupted_export_leaves_nothing(
    running: ExportProcess, registry: Registry, signum: signal.Signals, code: int
) -> None:
    """The job is cancelled, its files go, nothing is committed, the lock is free, and no process stays."""
    if signum == signal.SIGINT:
        os.killpg(running.process.pid, signum)  # as a terminal does: Spark's processes hear it too
    else:
        running.process.send_signal(signum)
    stdout, stderr = running.process.communicate(timeout=30)
    assert (running.process.returncode, stdout, stderr) == (code, "", "")
    assert nothing_in(running.out)
    assert offset(registry, running.group, running.topic, 0) is None
    assert registry.read([Exists(znodes.group(running.group))]) == [None]
    wait_until(lambda: not running.children(), 30, "the export's processes end")


def test_a_killed_export_leaves_garbage_and_the_next_one_does_all(
    running: ExportProcess, registry: Registry, env: dict[str, str]
) -> None:
    """SIGKILL before publication: no file that counts, no offset. The next export cleans up and does it all."""
    running.process.kill()
    running.process.communicate(timeout=30)
    assert all(name.startswith("_zkgroup/") for name in files_in(running.out))
    assert offset(registry, running.group, running.topic, 0) is None
    done = run(
        "export", running.topic, "--group", running.group, "--from", "earliest", "--to", str(running.out),
        "--output", "csv", env=env, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    half = MESSAGES // 2
    header, *rows = [line.split(",") for line in done.stdout.splitlines()]
    assert header == COLUMNS
    assert [row[:5] + row[6:] for row in rows] == [
        [running.topic, str(number), "0", str(half), str(half), "1", "0", "0"] for number in range(2)
    ]
    assert published_in(running.out) == [
        f"topic={running.topic}/partition={number}/0-{half}.parquet" for number in range(2)
    ]
    assert [offset(registry, running.group, running.topic, number) for number in range(2)] == [half, half]
    found = [(row["partition"], row["offset"], row["value"]) for row in messages_in(running.out)]
    expected = {(record.partition, i // 2, record.value) for i, record in enumerate(numbered(MESSAGES, 2))}
    assert len(found) == MESSAGES
    assert set(found) == expected


_KILLED_AT = """
import logging, os, signal, sys
from zkgroup.__main__ import main

point = sys.argv.pop(1)

class Kill(logging.Handler):
    def emit(self, record):
        if record.args == (point,):
            os.kill(os.getpid(), signal.SIGKILL)

logger = logging.getLogger("zkgroup.export.run.run_export")
logger.addHandler(Kill())
logger.setLevel(logging.INFO)
main()
"""


@pytest.mark.parametrize("point", [pytest.param("files written", marks=pytest.mark.long), "decided"])
def test_the_same_command_goes_on(
    env: dict[str, str], topic: str, registry: Registry, unique: Callable[[str], str], tmp_path: Path, point: str
) -> None:
    """SIGKILL of the real thing, Spark and all, before and after its decision: the command, run again, ends it, and
    after the decision it needs no Java for that. What the snapshots tell before and after, and that it verifies."""
    group, out = unique("group"), tmp_path / "out"
    arguments = ["export", topic, "--group", group, "--from", "earliest", "--to", str(out), "--output", "json"]
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED_AT, point, *arguments], env=environment(env), capture_output=True, timeout=240,
        check=False,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    listing = run("export", "--status", "--group", group, "--output", "json", env=env)
    (row,) = json.loads(listing.stdout)
    assert row["step"] == ("planned" if point == "files written" else "decided")
    assert row["output"] == str(out)
    if point == "decided":
        env = env | {"PATH": "/nowhere", "JAVA_HOME": "/nowhere"}
    done = run(*arguments, env=env, timeout=120)
    assert done.returncode == 0, done.stderr
    assert names(done.stderr, row["run"], group) == (point == "decided")
    half = MESSAGES // 2
    rows = json.loads(done.stdout)
    assert [(row["start"], row["end"], row["rows"]) for row in rows] == [(0, half, half)] * 2
    assert [offset(registry, group, topic, number) for number in range(2)] == [half, half]
    found = {(row["partition"], row["offset"], row["value"]) for row in messages_in(out)}
    assert len(found) == MESSAGES
    assert run("export", "--status", "--group", group, "--output", "csv", env=env).stdout.count("\n") == 1
    listing = run("export", "--history", "--to", str(out), "--output", "json", env=env)
    assert [(row["group"], row["state"], row["rows"]) for row in json.loads(listing.stdout)] == [
        (group, "exported", MESSAGES)
    ]
    listing = run("export", "--verify", "--to", str(out), "--group", group, "--output", "json", env=env)
    assert listing.returncode == 0, listing.stderr
    assert [(row["start"], row["end"], row["rows"], row["problem"]) for row in json.loads(listing.stdout)] == [
        (0, half, half, None)
    ] * 2
    gone = next(out.glob("topic=*/partition=1/*.parquet"))
    gone.unlink()
    listing = run("export", "--verify", "--to", str(out), "--output", "json", env=env)
    assert listing.returncode == 6
    assert gone.name in listing.stderr
    assert gone.name in json.loads(listing.stdout)[-1]["problem"]


def test_a_bucket_is_exported_to_and_inspected(
    env: dict[str, str], topic: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """Spark's tasks write to an S3 endpoint, by date and with values as text; then history and verification read it."""
    with object_server(tmp_path / "server.log") as port:
        bucket, group = unique("bucket"), unique("group")
        filesystem(port, allow_bucket_creation=True).create_dir(bucket)
        to = ["--group", group, "--to", uri_of(port, f"{bucket}/lake"), "--output", "json"]
        how = [
            "--partition-by",
            "date",
            "--time-zone",
            "Asia/Tokyo",
            "--value-format",
            "text",
            "--compression",
            "zstd:3",
        ]
        known = env | CREDENTIALS
        done = run("export", topic, *to, *how, "--from", "earliest", env=known, timeout=120)
        assert (done.returncode, done.stderr) == (0, "")
        half = MESSAGES // 2
        assert [(row["rows"], row["undecodable"], row["late"]) for row in json.loads(done.stdout)] == [(half, 0, 0)] * 2
        done = run("export", *to, "--history", env=known)
        (row,) = json.loads(done.stdout)
        assert (row["state"], row["rows"]) == ("exported", MESSAGES)
        done = run("export", *to, "--verify", env=known)
        assert [(row["rows"], row["problem"]) for row in json.loads(done.stdout)] == [(half, None)] * 2
        done = run("export", topic, *to, "--partition-by", "hour", env=known)
        assert done.returncode == 5  # although there is nothing new
        assert names(done.stderr, "--partition-by date")
        done = run("export", "--to", uri_of(port, f"{bucket}/elsewhere"), "--history", env=known)
        assert done.returncode == 4
        found = ds.dataset(f"{bucket}/lake", filesystem=filesystem(port), partitioning="hive")
        assert found.count_rows() == MESSAGES
        assert str(found.schema.field("value").type) == "string"
