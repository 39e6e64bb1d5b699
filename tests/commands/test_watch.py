"""``inspect-group --watch`` in a pipe, ``--record``, ``--replay``, ``--picture``: as scripts use them."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self
from xml.etree import ElementTree

import pytest
from cli import ZKGROUP, environment, run
from group_nodes import Groups, joined, static
from lines import names
from members import ReadMember, wait_for_rest
from support import wait_until

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Acl, Create, Delete, SetData
from zkgroup.sandbox.local_cluster import START_TIMEOUT, Sandbox

SVG = "{http://www.w3.org/2000/svg}"


class Piped:
    """A watch whose stdout and stderr are read as they come."""

    def __init__(self, *args: str) -> None:
        self.process = subprocess.Popen(
            [ZKGROUP, "inspect-group", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
        )
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        self._text = b""

    @property
    def lines(self) -> list[str]:
        """The whole lines that have come so far."""
        assert self.process.stdout is not None
        self._text += self.process.stdout.read() or b""
        return self._text.decode().split("\n")[:-1]

    def until(self, condition: Callable[[list[str]], Any], what: str = "the lines") -> list[str]:
        def there() -> list[str] | None:
            assert self.process.poll() is None, self.process.stderr and self.process.stderr.read()
            lines = self.lines
            return lines if condition(lines) else None

        found = wait_until(there, 30.0, what)
        assert found is not None
        return found

    def until_event(self, kind: str, count: int = 1) -> list[str]:
        return self.until(lambda lines: sum(kind in line for line in lines) >= count, kind)

    def end(self, signum: int = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal; the exit code and stderr."""
        self.process.send_signal(signum)
        code = self.process.wait(30)
        assert self.process.stderr is not None
        return code, self.process.stderr.read().decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(30)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


@pytest.fixture
def watched(cluster: Sandbox) -> Iterator[Callable[..., Piped]]:
    """``watched(group, …)`` watches it in a pipe, and has begun."""
    made: list[Piped] = []

    def start(group: str, *args: str) -> Piped:
        piped = Piped(group, "-z", cluster.connect, "--watch", "--interval", "0.3", *args)
        made.append(piped)
        piped.until_event("watching")
        return piped

    yield start
    for piped in made:
        piped.__exit__()


@pytest.fixture
def group(groups: Groups, topic: str) -> str:
    """A member that owns two of three partitions."""
    return groups.make(
        {"@_alpha": static({topic: 1})},
        {(topic, 0): "@_alpha-0", (topic, 1): "@_alpha-0"},
        {(topic, 0): 9, (topic, 1): 2, (topic, 2): 5},
    )


def test_members_that_come_and_go(
    cluster: Sandbox, registry: Registry, watched: Callable[..., Piped], make_group: Callable[..., str], topic: str
) -> None:
    """Of a real group's rebalances each event is a line of JSON at once: joined, started, claimed or moved, ended,
    in this order, with who, what and when."""
    group = make_group()
    piped = watched(group, "--output", "json")
    with ReadMember(cluster.connect, group, {topic: 1}, consumer_id="a"):
        piped.until_event("rebalance-ended")
        wait_for_rest(registry, group, 1)
        with ReadMember(cluster.connect, group, {topic: 1}, consumer_id="b"):
            wait_for_rest(registry, group, 2)
            piped.until_event("partition-moved")
            piped.until_event("rebalance-ended", 2)
    rows = [json.loads(line) for line in piped.until_event("member-left", 2)]
    assert all(
        list(row) == ["time", "event", "member", "topic", "partition", "from", "to", "seconds", "message"]
        for row in rows
    )
    assert [row["time"] for row in rows] == sorted(row["time"] for row in rows)
    kinds = [row["event"] for row in rows]
    assert kinds[0] == "watching"
    first = kinds.index("rebalance-ended")
    for part, taken in ((kinds[:first], "partition-claimed"), (kinds[first + 1 :], "partition-moved")):
        assert part.index("member-joined") < part.index("rebalance-started") < part.index(taken)
    moved = [row for row in rows if row["event"] == "partition-moved" and row["to"] == f"{group}_b-0"]
    assert [(row["topic"], row["partition"], row["from"]) for row in moved] == [(topic, 2, f"{group}_a-0")]
    ended = next(row for row in rows if row["event"] == "rebalance-ended")
    assert ended["seconds"] < 30
    assert piped.end() == (143, "")


def test_lines_for_people_and_for_tables(
    registry: Registry, watched: Callable[..., Piped], group: str, topic: str
) -> None:
    """In a pipe a line of text, with --output csv a row: with the time, the kind and what happened."""
    text, table = watched(group), watched(group, "--output", "csv")
    registry.write(SetData(znodes.offset(group, TopicPartition(topic, 0)), b"4"))
    line = text.until_event("offset-back")[-1]
    assert (line.split()[1], names(line, f"{topic}-0", 9, 4)) == ("offset-back", True)
    rows = list(csv.DictReader(io.StringIO("\n".join(table.until_event("offset-back")))))
    assert rows[0]["event"] == "watching"
    back = rows[-1]
    assert (back["topic"], back["partition"], back["from"], back["to"]) == (topic, "0", "9", "4")
    assert text.end(signal.SIGINT) == (130, "")


def test_only_some_topics(
    registry: Registry, groups: Groups, watched: Callable[..., Piped], make_topic: Callable[..., str]
) -> None:
    """--topic keeps the partitions of a topic, in what is reported and in what a rebalance waits for."""
    here, there = make_topic(1), make_topic(1)
    group = groups.make(None, None, {(here, 0): 5, (there, 0): 5})
    piped = watched(group, "--topic", here)
    for topic in (there, here):
        registry.write(SetData(znodes.offset(group, TopicPartition(topic, 0)), b"1"))
    lines = piped.until_event("offset-back")
    assert not any(there in line for line in lines)
    assert names(lines[0], group, 0, 1)


def test_a_reader_that_leaves(watched: Callable[..., Piped], group: str) -> None:
    """A closed pipe ends the watch with 0 and without a word, though nothing happens that could not be written."""
    piped = watched(group)
    assert piped.process.stdout is not None
    piped.process.stdout.close()
    assert piped.process.wait(30) == 0
    assert piped.process.stderr is not None
    assert piped.process.stderr.read() == b""
    piped.process.stdout = subprocess.DEVNULL and open(os.devnull, "rb")  # noqa: PTH123, SIM115


def test_a_reader_that_does_not_read(
    registry: Registry, groups: Groups, watched: Callable[..., Piped], make_topic: Callable[..., str]
) -> None:
    """A pipe that is full holds up neither a signal nor ZooKeeper."""
    topic = make_topic(1)
    count = 1500
    group = groups.make(None, None, {(topic, n): 9 for n in range(count)})
    piped = watched(group, "--output", "json")
    for value in (b"8", b"7"):
        registry.read([SetData(znodes.offset(group, TopicPartition(topic, n)), value) for n in range(count)])

    def blocked() -> bool:
        with open(f"/proc/{piped.process.pid}/wchan") as file:  # noqa: PTH123
            where = file.read()
        return "poll" in where or "select" in where or where == "0"

    wait_until(blocked)
    assert piped.end()[0] == 143


def test_record_kill_replay_draw(
    cluster: Sandbox, registry: Registry, watched: Callable[..., Piped], make_group: Callable[..., str], topic: str,
    tmp_path: Path,
) -> None:  # fmt: skip
    """What was recorded until a SIGKILL is replayed line by line as it was reported, and drawn with a colour for each
    member that owned something."""
    group = make_group()
    recording, target = tmp_path / "r.jsonl", tmp_path / "r.svg"
    piped = watched(group, "--record", str(recording))
    with ReadMember(cluster.connect, group, {topic: 1}, consumer_id="a"):
        piped.until_event("rebalance-ended")
        wait_for_rest(registry, group, 1)
        with ReadMember(cluster.connect, group, {topic: 1}, consumer_id="b"):
            wait_for_rest(registry, group, 2)
            piped.until_event("rebalance-ended", 2)
            piped.process.kill()
            piped.process.wait(30)
    message = piped.lines
    with recording.open("ab") as file:
        file.write(b'{"next":{"at":1')
    result = run("inspect-group", "--replay", str(recording))
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[: len(message)] == message
    result = run("inspect-group", "--replay", str(recording), "--picture", str(target))
    assert (result.returncode, result.stdout) == (0, "")
    root = ElementTree.parse(target).getroot()
    owned = {path.find(f"{SVG}title").text: path.get("fill") for path in root.iter(f"{SVG}path") if len(path)}  # type: ignore[union-attr]
    assert set(owned) == {f"{group}_a", f"{group}_b"}
    assert len(set(owned.values())) == 2
    assert any(rect.get("class") == "mark" for rect in root.iter(f"{SVG}rect"))


def test_a_file_that_is_there_is_not_recorded_over(group: str, tmp_path: Path) -> None:
    """Nor is one recorded in a folder that is not there: wrong usage, before anything is asked."""
    recording = tmp_path / "r.jsonl"
    recording.touch()
    for given in (["--record", str(recording)], ["--record", str(tmp_path / "no" / "r")],
                  ["--record", str(tmp_path / "new"), "--picture", str(tmp_path / "p")]):  # fmt: skip
        result = run("inspect-group", group, "-z", "localhost:1", "--watch", *given)
        assert (result.returncode, result.stderr.count("\n")) == (2, 1), result.stderr


def test_a_full_disk(cluster: Sandbox, group: str, tmp_path: Path) -> None:
    """A recording that cannot go on ends the watch with one line; what was written can be replayed."""
    path = tmp_path / "r.jsonl"
    command = [ZKGROUP, "inspect-group", group, "-z", cluster.connect, "--watch", "--interval", "0.2"]
    limited = subprocess.run(
        ["bash", "-c", 'ulimit -f 2; exec "$@"', "bash", *command, "--record", str(path)],
        capture_output=True, text=True, env=environment(), timeout=120,
    )  # fmt: skip
    assert (limited.returncode, limited.stderr.count("\n"), names(limited.stderr, path)) == (1, 1, True)
    assert "watching" in run("inspect-group", "--replay", str(path)).stdout


def test_a_group_in_kafka_of_brokers_alone(
    cluster: Sandbox, kafka: KafkaSettings, topic: str, unique: Callable[[str], str]
) -> None:
    """Where only brokers are named a group in Kafka is watched all the same; one in ZooKeeper is not there."""
    group = unique("group")
    with (
        joined(kafka, group, [topic]),
        Piped(group, "--bootstrap-server", cluster.bootstrap, "--watch", "--interval", "0.3") as piped,
    ):
        assert names(piped.until_event("watching")[0], group, 1, 3)
    result = run("inspect-group", group, "--bootstrap-server", cluster.bootstrap, "--watch", "--store", "zookeeper")
    assert result.returncode == 2


def test_nodes_that_may_not_be_read(
    registry: Registry, watched: Callable[..., Piped], make_group: Callable[..., str], topic: str
) -> None:
    """What an access list hides is said to be hidden, and is no event."""
    group = make_group({TopicPartition(topic, 0): 5})
    owner = Acl("digest", "somebody:aTzPyOGEkHbuSvdcvd4QNeFHeO8=", 31)
    assert registry.write(Create(znodes.owners(group), b"", acl=(owner,))) is None
    piped = watched(group)
    assert re.search(rf"\b{group}: .*; 1 ", piped.lines[0]), "behind members, partitions and lag"


@pytest.mark.parametrize("content", [b"", b"hello\n", b"\x7fELF" * 100, b'{"zkgroup-timeline": 99}\n'])
def test_other_files(content: bytes, tmp_path: Path) -> None:
    """What is no recording is refused with one line."""
    path = tmp_path / "file"
    path.write_bytes(content)
    result = run("inspect-group", "--replay", str(path))
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert str(path) in result.stderr


def test_zookeeper_goes_and_comes(make_sandbox: Callable[..., Sandbox]) -> None:
    """In a pipe, too, ZooKeeper's absence is two lines, and neither an end nor a traceback."""
    sandbox = make_sandbox(brokers=0)
    with sandbox.registry(timeout=30.0) as registry:
        from zkgroup.protocol.operations import Ensure

        registry.read([Ensure(znodes.ids("g"))])
    with Piped("g", "-z", sandbox.connect, "--connect-timeout", "1", "--watch", "--interval", "0.3") as piped:
        piped.until_event("watching")
        sandbox.zookeeper.kill()
        piped.until_event("zookeeper-away")
        sandbox.zookeeper.start(START_TIMEOUT)
        piped.until_event("zookeeper-back")
        with sandbox.registry(timeout=30.0) as registry:
            registry.read([Delete(znodes.ids("g")), Delete(znodes.group("g"))])
        piped.until_event("group-gone")
        code, errors = piped.end()
        assert code == 143
        assert "Traceback" not in errors
