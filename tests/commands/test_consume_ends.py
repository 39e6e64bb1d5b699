"""When ``consume`` leaves by itself: at the logs' ends, after so many messages, after a while without one."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli import run
from confluent_kafka.admin import AdminClient, NewTopic
from consume_processes import committed, into_a_full_pipe, nobody_is_left, owned, start_consume
from lines import names
from screen import Screen
from support import numbered, wait_until

from zkgroup.clients.kafka.client import KafkaSettings, producer
from zkgroup.clients.kafka.log_offsets import LogRange, log_offsets
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.commands import _consumption
from zkgroup.commands._message_format import values_lines
from zkgroup.commands._message_sink import Sink
from zkgroup.commands._signals import StopRequest
from zkgroup.config import ConsumerConfig
from zkgroup.connector import Stream
from zkgroup.connector.stream import Feed
from zkgroup.protocol import znodes
from zkgroup.protocol.names import TopicPartition
from zkgroup.protocol.operations import Create, Ensure
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import ProducerRecord, produce

MakeTopic = Callable[..., str]
Fill = Callable[..., list[ProducerRecord]]
Unique = Callable[[str], str]


def transaction(kafka: KafkaSettings, topic: str, partition: int, count: int, *, end: str) -> None:
    """A transaction of ``count`` messages; ``end``: commit, abort, or leave it open."""
    client = producer(kafka, transactional_id=f"{topic}-{partition}-{end}")
    client.init_transactions(30)
    client.begin_transaction()
    for number in range(count):
        client.produce(topic, f"{end}{number}".encode(), partition=partition)
    client.flush(30)
    if end == "commit":
        client.commit_transaction(30)
    elif end == "abort":
        client.abort_transaction(30)
    # The broker answers before it has written the marker.
    expected = LogRange(0, count + 1) if end != "open" else LogRange(0, 0)
    at = TopicPartition(topic, partition)
    wait_until(lambda: log_offsets(kafka, [at], 10, read_committed=True)[at] == expected, what="the transaction's end")
    if end == "open":
        _OPEN.append(client)  # its end would abort the transaction


_OPEN: list[Any] = []


@pytest.mark.parametrize("coordinator", [None, "zookeeper", "kafka"])
def test_who_waits_at_the_end_is_reported(
    cluster: Sandbox, make_topic: MakeTopic, fill: Fill, unique: Unique, tmp_path: Path, coordinator: str | None
) -> None:
    """At a terminal, after three seconds, once; not where reading begins elsewhere or messages come, nor in a pipe."""
    topic = make_topic(1)
    fill(topic, 5)

    def group() -> list[str]:
        return [] if coordinator is None else ["--group", unique("group"), "--coordinator", coordinator]

    remedy = "--from-beginning"
    with (
        start_consume(tmp_path, cluster.connect, topic, *group()) as piped,
        Screen("-z", cluster.connect, "consume", topic, *group(), columns=200) as waiting,
        Screen("-z", cluster.connect, "consume", topic, *group(), "--offset", "-2", columns=200) as reading,
    ):
        waiting.until(lambda shown: remedy in shown)
        reading.pump(0.1)
        assert remedy not in reading.text
        waiting.process.send_signal(signal.SIGINT)
        waiting.wait()
        assert waiting.text.count(remedy) == 1
        assert remedy not in piped.stderr


def values(result: subprocess.CompletedProcess[str]) -> list[str]:
    """The printed lines, sorted; the run must have been a good one."""
    assert (result.returncode, result.stderr) == (0, "")
    return sorted(result.stdout.splitlines())


def test_ends_where_nothing_can_be_read(
    cluster: Sandbox, kafka: KafkaSettings, make_topic: MakeTopic, unique: Unique, registry: Registry
) -> None:
    """Markers, aborted messages, open transactions and empty partitions are no messages, and ends all the same."""
    topic, group = make_topic(5), unique("group")
    transaction(kafka, topic, 0, 3, end="commit")
    transaction(kafka, topic, 1, 3, end="abort")
    transaction(kafka, topic, 2, 2, end="open")
    produce(kafka, topic, [ProducerRecord(b"plain", None, 3)])
    printed = ["commit0", "commit1", "commit2", "plain"]
    arguments = ["-z", cluster.connect, "consume", topic, "--from-beginning", "-e"]
    assert values(run(*arguments)) == printed
    assert values(run(*arguments, "-g", group)) == printed
    assert committed(registry, group) == {f"{topic}-{p}": offset for p, offset in enumerate([3, 0, 0, 1, 0])}
    everything = values(run(*arguments, "-X", "kafka.isolation.level=read_uncommitted"))
    assert everything == ["abort0", "abort1", "abort2", *printed[:3], "open0", "open1", "plain"]


def test_the_end_of_a_compacted_log(cluster: Sandbox, kafka: KafkaSettings, unique: Unique) -> None:
    """Gaps that compaction left, at the start and in between, keep nobody from reaching the end."""
    topic = unique("compacted")
    config = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(30)
    arguments = ["-z", cluster.connect, "consume", topic, "--from-beginning", "-e", "-f", r"%o\n"]
    written = 0

    def compacted() -> list[str] | None:
        nonlocal written
        produce(kafka, topic, [ProducerRecord(b"%d" % written, b"same key", 0)])  # each begins a segment, in the end
        written += 1
        offsets = run(*arguments).stdout.splitlines()
        assert offsets[-1] == str(written - 1)
        return offsets if offsets[0] != "0" else None

    assert len(wait_until(compacted, 60, "compaction") or []) < written


def test_messages_that_come_meanwhile_do_not_keep_it(
    cluster: Sandbox, kafka: KafkaSettings, make_topic: MakeTopic, fill: Fill
) -> None:
    """The ends are those seen at the start: a topic that is written to all the time has an end, too."""
    topic = make_topic(2)
    fill(topic, 2000, 2)
    enough = threading.Event()

    def flood() -> None:
        while not enough.is_set():
            produce(kafka, topic, numbered(100, 2))

    writer = threading.Thread(target=flood)
    writer.start()
    try:
        printed = values(run("-z", cluster.connect, "consume", topic, "--from-beginning", "-e", timeout=30))
    finally:
        enough.set()
        writer.join(60)
    assert len(printed) >= 2000


def test_who_owns_nothing_has_nothing_to_wait_for(
    cluster: Sandbox, make_topic: MakeTopic, fill: Fill, unique: Unique, tmp_path: Path, registry: Registry
) -> None:
    """Partitions of other members are theirs: with one partition the second member leaves at once."""
    topic, group = make_topic(1), unique("group")
    fill(topic, 10)
    first, second = ["-X", "consumer.id=a"], ["-X", "consumer.id=b"]
    with start_consume(tmp_path, cluster.connect, topic, "-g", group, "--from-beginning", *first) as other:
        other.wait_for_lines(10)
        assert values(run("-z", cluster.connect, "consume", topic, "-g", group, "-e", *second)) == []
        # That the second came and went has each made the first release and claim: it may be at it.
        wait_until(lambda: owned(registry, group) == [f"{topic}-0"], 30, "the first owns it again")


def test_an_offset_out_of_range_is_not_the_end(
    cluster: Sandbox, make_topic: MakeTopic, fill: Fill, unique: Unique, registry: Registry
) -> None:
    """A stored offset beyond the log is an error that names it; it is left as it is, unless a reset was chosen."""
    topic, group = make_topic(1), unique("group")
    fill(topic, 10)
    path = znodes.offset(group, TopicPartition(topic, 0))
    registry.read([Ensure(path.rpartition("/")[0])])
    assert registry.write(Create(path, b"500")) is None
    arguments = ["-z", cluster.connect, "consume", topic, "-g", group, "-e"]
    result = run(*arguments)
    assert (result.returncode, result.stdout) == (1, "")
    assert names(result.stderr, 500, f"{topic}-0", 10)
    assert committed(registry, group) == {f"{topic}-0": 500}
    reset = run(*arguments, "-X", "auto.offset.reset=smallest")
    assert (reset.returncode, len(reset.stdout.splitlines())) == (0, 10)
    assert committed(registry, group) == {f"{topic}-0": 10}


@pytest.mark.parametrize("options", [("--timeout-ms", "3000"), ("-X", "consumer.timeout.ms=3000")])
def test_a_while_without_a_message(
    cluster: Sandbox,
    make_topic: MakeTopic,
    fill: Fill,
    unique: Unique,
    registry: Registry,
    options: tuple[str, ...],
) -> None:
    """It prints what is there, waits in vain, and leaves cleanly with 0."""
    topic, group = make_topic(2), unique("group")
    fill(topic, 10, 2)
    arguments = ["-z", cluster.connect, "consume", topic, "-g", group, "--from-beginning", *options]
    assert len(values(run(*arguments))) == 10
    assert committed(registry, group) == {f"{topic}-0": 5, f"{topic}-1": 5}
    assert nobody_is_left(registry, group)


def test_so_many_messages(
    cluster: Sandbox, make_topic: MakeTopic, fill: Fill, unique: Unique, registry: Registry
) -> None:
    """The count is exact over topics and streams, and just so many are committed; 0 joins nothing."""
    topics, group = [make_topic(2), make_topic(1)], unique("group")
    for topic, partitions in zip(topics, (2, 1), strict=True):
        fill(topic, 1000, partitions)
    arguments = ["-z", cluster.connect, "consume", *topics, "-g", group, "--from-beginning", "--streams", "2"]
    assert values(run(*arguments, "-n", "0")) == []
    assert committed(registry, group) == {}
    assert len(values(run(*arguments, "-n", "777"))) == 777
    assert sum(committed(registry, group).values()) == 777
    assert len(values(run(*arguments, "-n", "5000", "-e"))) == 2000 - 777


@pytest.mark.parametrize("group", [True, False], ids=["member", "plain"])
@pytest.mark.parametrize("limit", [["-e"], ["--timeout-ms", "1000"]], ids=["until-end", "timeout"])
def test_slow_readers_get_everything(
    cluster: Sandbox, make_topic: MakeTopic, kafka: KafkaSettings, unique: Unique, group: bool, limit: list[str]
) -> None:
    """While something waits to be taken, neither the end is reached nor a message missing, however long that takes."""
    topic, count = make_topic(1), 80
    produce(kafka, topic, [ProducerRecord(b"%04d" % number * 250, None, 0) for number in range(count)])
    member = ["-g", unique("group"), "-X", "zkgroup.quiesce.timeout.ms=100"] if group else []
    arguments = ["-z", cluster.connect, "consume", topic, "--from-beginning", *limit, *member]
    with into_a_full_pipe(*arguments) as (process, pipe):
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(2.5)
        taken = b""
        while chunk := os.read(pipe, 65536):
            taken += chunk
        assert process.wait(20) == 0
    assert taken.split(b"\n") == [b"%04d" % number * 250 for number in range(count)] + [b""]


def test_an_end_that_does_not_come_is_waited_for_in_words(
    kafka: KafkaSettings,
    make_topic: MakeTopic,
    fill: Fill,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With -e who hears nothing for a while says what it waits for, once."""
    topic = make_topic(3)
    fill(topic, 6, 3)
    monkeypatch.setattr(_consumption, "SILENCE", 0.3)
    stream = Stream(
        ConsumerConfig(group_id="g"),
        lambda: kafka,
        can_deliver=lambda: True,
        on_failure=lambda error: None,
        report_ends=True,
    )
    feed = Feed(stream)
    feed.assign(1, {TopicPartition(topic, 0): 0})  # the others are never read
    ends = {TopicPartition(topic, number): 2 for number in range(3)}
    with Path(os.devnull).open("wb") as nowhere:
        sink = Sink(nowhere.fileno(), values_lines)
        sink.start([stream])
        missing = f"{topic}-1..2"
        wait_until(lambda: names(sink.missing(ends), missing), 30, "the end of the first partition")
        asked = _consumption.Consumption(None, None, None, None, sink, 1.5, until_end=True)  # type: ignore[arg-type]
        _consumption.wait_until_time_to_leave(asked, StopRequest(), lambda: sink.missing(ends))
        assert sink.wait(5.0)
    feed.end(None)
    feed.close()
    assert sink.written == 2
    assert [names(message, "0.3 s", missing) for message in caplog.messages] == [True]
