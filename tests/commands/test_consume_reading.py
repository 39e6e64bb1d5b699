"""What ``consume`` reads, from where, and how it is printed: with a group and without one."""

from __future__ import annotations

import base64
import json
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from cli import ZKGROUP, environment, run, run_on_terminal
from confluent_kafka.admin import AdminClient, NewTopic
from consume_processes import committed, members, nobody_is_left, start_consume
from lines import names
from screen import Screen
from support import numbered, wait_until

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.group_consumers import GroupOffsets
from zkgroup.clients.kafka.native_reader import reader_in_use
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Children
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import ProducerRecord, create_topic, produce

MakeTopic = Callable[..., str]
Fill = Callable[..., list[ProducerRecord]]
Unique = Callable[[str], str]


def values(numbers: Iterable[int]) -> list[str]:
    """The values of ``numbered`` messages."""
    return [f"m{number:06d}" for number in numbers]


def printed(*arguments: str) -> list[str]:
    """The lines that a good run prints, sorted."""
    result = run(*arguments)
    assert (result.returncode, result.stderr) == (0, ""), result.stderr
    return sorted(result.stdout.splitlines())


@pytest.fixture
def topic(make_topic: MakeTopic, fill: Fill) -> str:
    """A topic with 20 numbered messages in each of two partitions."""
    name = make_topic(2)
    fill(name, 40, 2)
    return name


@pytest.mark.parametrize("coordinator", [None, "zookeeper", "kafka"])
def test_from_beginning_wins(cluster: Sandbox, topic: str, unique: Unique, coordinator: str | None) -> None:
    """Over ``auto.offset.reset=largest``, for readers and members; the names of places are taken in any case."""
    read = ["-z", cluster.connect, "consume", topic, "-e", "-X", "auto.offset.reset=largest", "--quiet"]
    for start in (["--from-beginning"], ["--offset", "Earliest"], ["--offset", "SMALLEST"]):
        group = [] if coordinator is None else ["--group", unique("group"), "--coordinator", coordinator]
        assert printed(*read, *group, *start) == values(range(40))
    assert printed(*read, "--offset", "Latest") == []


def test_where_plain_reading_starts(cluster: Sandbox, topic: str) -> None:
    """At an offset, so many before the end, at a time, at the beginning; without a word at the end."""
    read = ["-z", cluster.connect, "consume", topic, "-e"]
    assert printed(*read) == []
    assert printed(*read, "--from-beginning") == values(range(40))
    assert printed(*read, "--offset", "19") == values([38, 39])
    assert printed(*read, "--offset", "-2") == values(range(36, 40))
    assert printed(*read, "--offset", "-500", "--partition", "1") == values(range(1, 40, 2))
    assert printed(*read, "--offset", "@2001-01-01") == values(range(40))
    assert printed(*read, "--offset", "@1960-01-01") == values(range(40))
    assert printed(*read, "--offset", f"@{int(time.time() * 1000) + 3_600_000}") == []
    assert printed(*read, "-X", "auto.offset.reset=smallest") == values(range(40))


def test_an_offset_out_of_range(cluster: Sandbox, topic: str, unique: Unique, registry: Registry) -> None:
    """An offset that no log has: an error that says what there is, in a group without a trace, unless a reset is
    chosen for that."""
    group = unique("group")
    read = ["-z", cluster.connect, "consume", topic, "-e", "--offset", "21"]
    for options in ([], ["-g", group]):
        result = run(*read, *options)
        assert (result.returncode, result.stdout) == (1, "")
        assert any(names(result.stderr, 21, f"{topic}-{number}", 20) for number in (0, 1))
        assert result.stderr.count("\n") == 1
    assert committed(registry, group) == {}
    assert nobody_is_left(registry, group)
    assert printed(*read, "-g", group, "-X", "auto.offset.reset=smallest") == values(range(40))


def test_a_group_starts_where_it_was(cluster: Sandbox, topic: str, unique: Unique, registry: Registry) -> None:
    """``--offset`` counts where no offset is stored, and only there; with ``--partition`` the group is left alone."""
    group = unique("group")
    read = ["-z", cluster.connect, "consume", topic, "-e", "-g", group]
    assert printed(*read, "--offset", "18") == values(range(36, 40))
    assert printed(*read, "--offset", "0") == []
    assert printed(*read, "--offset", "0", "--partition", "0") == values(range(0, 40, 2))
    assert committed(registry, group) == {f"{topic}-0": 20, f"{topic}-1": 20}


def test_without_a_commit_nothing_is_stored(cluster: Sandbox, topic: str, unique: Unique, registry: Registry) -> None:
    """``--no-commit`` and auto.commit.enable=false leave the group's offsets as they are."""
    group = unique("group")
    read = ["-z", cluster.connect, "consume", topic, "-e", "-g", group, "--from-beginning"]
    for options in (["--no-commit"], ["-X", "auto.commit.enable=false"]):
        assert printed(*read, *options) == values(range(40))
        assert committed(registry, group) == {}


def test_brokers_without_a_zookeeper(cluster: Sandbox, topic: str) -> None:
    """Plain reading needs no ZooKeeper where the brokers are named; a group does."""
    brokers = ["--bootstrap-server", cluster.bootstrap]
    assert printed(*brokers, "consume", topic, "--from-beginning", "-e") == values(range(40))
    refused = run(*brokers, "consume", topic, "-g", "g")
    assert refused.returncode == 2
    assert names(refused.stderr, "--zookeeper")


def test_plain_reading_registers_nothing(cluster: Sandbox, topic: str, registry: Registry, tmp_path: Path) -> None:
    """While it reads and afterwards, no group appears in ZooKeeper."""
    before = registry.read([Children(znodes.consumers())])
    with start_consume(tmp_path, cluster.connect, topic, "--from-beginning") as process:
        process.wait_for_lines(40)
        assert registry.read([Children(znodes.consumers())]) == before
        assert process.stop(signal.SIGINT) == 130
    assert process.stderr == ""
    assert registry.read([Children(znodes.consumers())]) == before


def test_filters_take_topics_as_they_come(
    cluster: Sandbox, unique: Unique, fill: Fill, registry: Registry, tmp_path: Path
) -> None:
    """A white list reads what matches, topics made later too; a topic that does not match is let be."""
    stem, group = unique("stem"), unique("group")
    create_topic(registry, f"{stem}-a", 1)
    create_topic(registry, f"other-{stem}", 1)
    fill(f"{stem}-a", 5)
    fill(f"other-{stem}", 5)
    options = ["--whitelist", f"{stem}.*,nothing", "-g", group, "--from-beginning", "-f", r"%t %s\n"]
    with start_consume(tmp_path, cluster.connect, *options) as process:
        process.wait_for_lines(5)
        create_topic(registry, f"{stem}-b", 2)
        fill(f"{stem}-b", 6, 2)
        lines = process.wait_for_lines(11)
        assert process.stop(signal.SIGTERM) == 143
    assert sorted(lines) == [f"{stem}-a {v}" for v in values(range(5))] + [f"{stem}-b {v}" for v in values(range(6))]
    # The others' topics are many by now: a black list that leaves these two.
    black = rf"(?!(other-)?{stem}).*"
    found = printed("-z", cluster.connect, "consume", "--blacklist", black, "--from-beginning", "-e", "-f", r"%t\n")
    assert sorted(set(found)) == [f"other-{stem}", f"{stem}-a", f"{stem}-b"]
    assert run("-z", cluster.connect, "consume", "--whitelist", f"no{stem}", "-e").returncode == 4


@pytest.mark.parametrize("group", [(), ("-g", "GROUP"), ("-g", "GROUP", "--coordinator", "kafka")], ids=len)
def test_a_filter_that_is_escaped_twice(
    cluster: Sandbox, unique: Callable[[str], str], make_topic: MakeTopic, fill: Fill, group: tuple[str, ...]
) -> None:
    """It is read as Java reads it, with one warning: a black list excludes nothing, a white list matches nothing."""
    topic = make_topic(1)
    fill(topic, 2)

    def consume(option: str, expression: str, *more: str) -> subprocess.CompletedProcess[str]:
        own = tuple(word.replace("GROUP", unique("group")) for word in group)
        words = ("consume", option, expression, *own, "--from-beginning", "-f", r"%t\n", *more)
        return run("-z", cluster.connect, *words)

    for dot, warnings in ((r"\.", 0), (r"\\.", 1)):
        expression = rf"(?!{topic}).*|{topic}{dot}"
        black = consume("--blacklist", expression, "--max-messages", "2")
        assert (black.returncode, black.stdout) == (0, f"{topic}\n" * 2), black
        shown = [names(line, "warning", f"'{expression}'") for line in black.stderr.splitlines()]
        assert shown.count(True) == warnings, black
    expression = rf"{topic}\\w*"
    white = consume("--whitelist", expression, "--timeout-ms", "1500")
    assert names(white.stderr.splitlines()[0], "warning", f"'{expression}'"), white
    assert white.stdout == ""


def test_every_part_of_a_message(cluster: Sandbox, kafka: KafkaSettings, make_topic: MakeTopic) -> None:
    """Tombstones, headers, bytes that are no text and missing keys, as values, as kcat's tokens and as JSON."""
    topic = make_topic(1)
    records = [
        ProducerRecord(b"v", b"k", 0, 1_700_000_000_123, (("h", b"1"), ("n", None))),
        ProducerRecord(None, b"gone", 0, 1_700_000_000_124),
        ProducerRecord(b"\xff\x00", None, 0, 1_700_000_000_125),
    ]
    for record in records:
        produce(kafka, topic, [record])
    read = ["-z", cluster.connect, "consume", topic, "--from-beginning", "-e"]
    raw = subprocess.run([ZKGROUP, *read], capture_output=True, env=environment(), check=True, timeout=60)
    assert raw.stdout == b"v\n\n\xff\x00\n"
    assert run(*read, "-n", "2", "-f", r"%t %p %o %k %K %s %S %T %h\n").stdout.splitlines() == [
        f"{topic} 0 0 k 1 v 1 1700000000123 h=1,n=NULL",
        f"{topic} 0 1 gone 4  -1 1700000000124 ",
    ]
    rows = [json.loads(line) for line in run(*read, "--output", "json").stdout.splitlines()]
    assert rows[0] == {
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "timestamp": "2023-11-14T22:13:20.123Z",
        "timestamp_type": "CreateTime",
        "key": "k",
        "value": "v",
        "headers": [{"key": "h", "value": "1"}, {"key": "n", "value": None}],
    }
    assert (rows[1]["key"], rows[1]["value"]) == ("gone", None)
    assert (rows[2]["key"], rows[2]["value"]) == (None, {"base64": base64.b64encode(b"\xff\x00").decode()})


def test_filtered_messages_are_consumed(
    cluster: Sandbox,
    kafka: KafkaSettings,
    make_topic: MakeTopic,
    unique: Unique,
    registry: Registry,
    tmp_path: Path,
) -> None:
    """What does not pass is not printed, and is committed and counted like the rest, in each output; a limit
    counts what is printed, and what comes after the last of these is left to the next member."""
    topic, group = make_topic(1), unique("group")
    records = [
        ProducerRecord(b'{"total": 1}', b"order-1", 0, headers=(("type", b"paid"),)),
        ProducerRecord(b'{"total": 2}', b"other", 0, headers=(("type", b"open"), ("type", b"paid"))),
        ProducerRecord(None, b"order-3", 0),
        ProducerRecord(b"\xfe\xff", b"\xff-4", 0),
        ProducerRecord(b'{"total": 5}', b"order-5", 0),
        ProducerRecord(b"last", None, 0),
    ]
    for record in records:
        produce(kafka, topic, [record])

    def consume(*options: str) -> tuple[list[str], str]:
        words = ("-z", cluster.connect, "consume", topic, "--from-beginning", "-e", *options)
        result = run(*words)
        assert result.returncode == 0, result
        return result.stdout.splitlines(), result.stderr

    member = ("-g", group, "--filter-key", "order-*")
    assert consume(*member, "-n", "2", "-f", r"%o\n") == (["0", "2"], "zkgroup: 2 of 3 messages printed\n")
    assert committed(registry, group) == {f"{topic}-0": 3}
    assert consume(*member) == (['{"total": 5}'], "zkgroup: 1 of 3 messages printed\n")
    assert committed(registry, group) == {f"{topic}-0": 6}
    keys = ("--filter-key", "\udcff*", "--filter-key", "o*")
    lines, said = consume(*keys, "--filter-value", "/[^1]$/", "--output", "json")
    assert [json.loads(line)["offset"] for line in lines] == [0, 1, 3, 4]
    assert said == "zkgroup: 4 of 6 messages printed\n"
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object", "properties": {"total": {"type": "integer"}}}')
    decoded = ("--value-format", "json", "--value-schema", str(schema), "--quiet")
    lines, said = consume("--filter-header", "type=paid", "--filter-value", "*2*", *decoded)
    assert ([json.loads(line)["value"] for line in lines], said) == ([{"total": 2}], "")
    assert consume("--filter-key", "nothing") == ([], "zkgroup: 0 of 6 messages printed\n")
    for malformed in ("=a", "a", "a=", "a=[b"):
        refused = run("consume", topic, "-g", group, "--filter-header", malformed)
        assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)


def test_what_a_message_does_to_a_terminal(
    cluster: Sandbox, kafka: KafkaSettings, make_topic: MakeTopic, unique: Unique
) -> None:
    """Nothing: it shows what it would have obeyed, of values, keys and headers, for readers and members of both kinds.
    ``--raw`` hands it on, and so do pipes and files."""
    topic, value = make_topic(1), b"\x1b]52;c;cm0=\x07\xe2\x80\xaeabc\x9b1m"
    produce(kafka, topic, [ProducerRecord(value, b"k\x1b[2J", 0, 1_700_000_000_123, (("h", b"\x07"),))])
    read = ["-z", cluster.connect, "consume", topic, "--from-beginning", "-e"]
    shown = r"\x1b]52;c;cm0=\x07\u202eabc\x9b1m"
    format = ["-f", r"%k %s %h\n"]
    for options, expected in (
        ([], shown),
        (["--group", unique("group")], shown),
        (format, rf"k\x1b[2J {shown} h=\x07"),
    ):
        assert run_on_terminal(*read, *options) == (0, expected + "\r\n")
    code, message = run_on_terminal(*read, "--group", unique("group"), "--coordinator", "kafka", "--quiet")
    assert (code, message) == (0, shown + "\r\n")
    code, message = run_on_terminal(*read, "--output", "json")
    assert (code, "\x1b" in message, "\u202e" in message) == (0, False, False)
    with Screen(*read, "--raw") as terminal:
        assert terminal.wait() == 0
        assert terminal.raw == value + b"\r\n"
    piped = subprocess.run([ZKGROUP, *read, *format], capture_output=True, env=environment(), check=True, timeout=60)
    assert piped.stdout == b"k\x1b[2J " + value + b" h=\x07\n"


def test_times_that_no_calendar_has(cluster: Sandbox, kafka: KafkaSettings, make_topic: MakeTopic) -> None:
    """JSON shows none for −1, which is Kafka's own word for it, and a number next to null for all others."""
    topic = make_topic(1)
    produce(kafka, topic, [ProducerRecord(b"v", None, 0, stamp) for stamp in (-1, 2**62, 1_700_000_000_123)])
    read = run("-z", cluster.connect, "consume", topic, "--from-beginning", "-e", "--output", "json")
    assert [
        {key: found for key, found in json.loads(line).items() if key.startswith("timestamp")}
        for line in read.stdout.splitlines()
    ] == [
        {"timestamp": None, "timestamp_type": None},
        {"timestamp": None, "timestamp_raw": 2**62, "timestamp_type": "CreateTime"},
        {"timestamp": "2023-11-14T22:13:20.123Z", "timestamp_type": "CreateTime"},
    ]


@pytest.mark.parametrize(("storage", "dual"), [("kafka", "false"), ("kafka", "true"), ("zookeeper", "false")])
def test_where_offsets_are_kept(
    cluster: Sandbox,
    kafka: KafkaSettings,
    topic: str,
    unique: Unique,
    fill: Fill,
    registry: Registry,
    storage: str,
    dual: str,
) -> None:
    """offsets.storage and dual.commit.enabled decide where offsets are committed and where the next run goes on."""
    group = unique("group")
    options = ["-X", f"offsets.storage={storage}", "-X", f"dual.commit.enabled={dual}", "--from-beginning", "-e"]
    read = ["-z", cluster.connect, "consume", topic, "-g", group, *options]
    assert printed(*read) == values(range(40))
    expected = {f"{topic}-{number}": 20 for number in (0, 1)}
    assert committed(registry, group) == (expected if storage == "zookeeper" or dual == "true" else {})
    offsets = GroupOffsets(kafka, group)
    stored = offsets.fetch([TopicPartition(topic, number) for number in (0, 1)], 10)
    offsets.close()
    assert list(stored.values()) == [20 if storage == "kafka" else None] * 2
    fill(topic, 2, 2)
    assert printed(*read) == values(range(2))


def test_commits_come_by_themselves(
    cluster: Sandbox, topic: str, unique: Unique, registry: Registry, tmp_path: Path
) -> None:
    """auto.commit.interval.ms is honoured while nothing else happens, and group.id may come from a file."""
    group, file = unique("group"), tmp_path / "consumer.properties"
    file.write_text(f"group.id={group}\nauto.offset.reset=smallest\nauto.commit.interval.ms=100\n")
    with start_consume(tmp_path, cluster.connect, topic, "--consumer-config", str(file)) as process:
        process.wait_for_lines(40)
        wait_until(lambda: sum(committed(registry, group).values()) == 40, what="a commit while it runs")
        assert process.stop(signal.SIGINT) == 130
    file.write_text(f"group.id={group}\noffsets.storage=zookeper\n")
    refused = run("-z", cluster.connect, "consume", topic, "--consumer-config", str(file))
    assert refused.returncode == 2
    assert names(refused.stderr, f"{file}, line 2", "offsets.storage=zookeper")


def test_large_messages_take_bounded_memory(cluster: Sandbox, kafka: KafkaSettings, unique: Unique) -> None:
    """200 MB in messages of 10 MB, as JSON, with small ones before them: never more than 250 MB in memory. In
    values: librdkafka bounds its queue by these alone, whatever keys and headers take."""
    topic, big = unique("large"), b"x" * 10_000_000
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1, config={"max.message.bytes": "20000000"})])[topic].result(30)
    produce(kafka, topic, numbered(20_000, 2))
    large = KafkaSettings(kafka.bootstrap, {"message.max.bytes": "20000000"})
    for number in range(20):
        produce(large, topic, [ProducerRecord(big, None, number % 2)])
    command = ["-z", cluster.connect, "consume", topic, "-g", unique("group"), "--from-beginning", "--output", "json"]
    count = 0
    with subprocess.Popen([ZKGROUP, *command], stdout=subprocess.PIPE, env=environment()) as process:

        def take() -> None:
            nonlocal count
            assert process.stdout is not None
            while chunk := process.stdout.read1(1 << 20):
                count += chunk.count(b"\n")

        reader = threading.Thread(target=take)
        reader.start()
        try:
            wait_until(lambda: count == 20_020, 60, "all messages")
            status = Path(f"/proc/{process.pid}/status").read_text()
        finally:
            process.terminate()
            reader.join(30)
    assert process.returncode == 143
    assert int(re.search(r"VmHWM:\s+([0-9]+) kB", status)[1]) < 250 * 1024  # type: ignore[index]


def test_a_rebalance_can_be_followed(
    cluster: Sandbox, topic: str, unique: Unique, registry: Registry, tmp_path: Path
) -> None:
    """With -v stderr names the reader that reads, who joined, what is given up and owned, and at the end how much
    was read; what the libraries below have to say comes with -vv alone."""
    group = unique("group")
    options = [topic, "-g", group, "--from-beginning", "-v"]
    with start_consume(tmp_path, cluster.connect, *options, "-X", "consumer.id=a") as first:
        first.wait_for_lines(40)
        with start_consume(tmp_path, cluster.connect, *options, "-X", "consumer.id=b") as second:
            wait_until(lambda: names(first.stderr, 1, 2, f"{topic}-0"), what="half is the first's")
            wait_until(lambda: names(second.stderr, 1, 2, f"{topic}-1"), what="half is the second's")
            assert sorted(members(registry, group)) == [f"{group}_a", f"{group}_b"]
            second.stop(signal.SIGINT)
        all_owned = (2, 2, f"{topic}-0..1")
        wait_until(lambda: names(first.stderr.partition(f"{group}_b")[2], *all_owned), what="all is its again")
        first.stop(signal.SIGINT)
    message = [re.sub(r"^[-0-9T:.]{23}Z INFO (\S+: )?", "", line) for line in first.stderr.splitlines()]
    expected: list[tuple[object, ...]] = [
        (reader_in_use(),),
        (group,),
        all_owned,
        (),
        (f"{topic}-0..1",),
        (1, 2, f"{topic}-0"),
        (f"{group}_b",),
        (f"{topic}-0",),
        all_owned,
        (f"{topic}-0..1",),
        (group,),
        (40,),
    ]
    told = [names(line, *facts) for line, facts in zip(message, expected, strict=True)]
    assert told == [True] * len(expected), message
    assert re.search(r"\b0x[0-9a-f]+\b", message[1]), "its session"
