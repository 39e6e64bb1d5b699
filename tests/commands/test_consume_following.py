"""``consume`` without a group and topics, and partitions, that are not there yet."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from cli import run
from consuming import consuming
from topics import add_partitions, delete_topic

from zkgroup.clients.kafka import client
from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.commands._consumption import Consumption, Subscription, _new_partitions
from zkgroup.commands._message_sink import Sink
from zkgroup.config import ConnectionSettings, ConsumerConfig
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import ProducerRecord, create_topic, produce

MakeTopic = Callable[..., str]
Fill = Callable[..., list[ProducerRecord]]
Unique = Callable[[str], str]


def test_a_topic_that_comes_later_is_read_from_its_beginning(
    cluster: Sandbox, registry: Registry, fill: Fill, unique: Unique, tmp_path: Path
) -> None:
    """A filter that no topic passes yet waits, and says so; what comes then is printed whole, though --offset is
    latest."""
    topic = unique("late")
    with consuming(tmp_path, cluster.connect, "--whitelist", f"{topic}.*", "-f", r"%p %o\n") as process:
        process.wait_to_hear("waiting for one")
        create_topic(registry, topic, 2)
        fill(topic, 20, 2)
        printed = process.wait_for_lines(20)
        create_topic(registry, topic + "-more")
        fill(topic + "-more", 5)
        process.wait_for_lines(25)
        assert process.stop(signal.SIGINT) == 130
    assert sorted(printed) == sorted(f"{p} {o}" for p in range(2) for o in range(10))
    assert process.said == f"zkgroup: warning: no topic is left by the filter '{topic}.*': waiting for one\n"


def test_new_partitions_are_read_from_their_beginning(
    cluster: Sandbox, registry: Registry, kafka: KafkaSettings, make_topic: MakeTopic, fill: Fill, tmp_path: Path
) -> None:
    """A topic that is widened: what the new partitions have is printed, and the old ones go on where they were."""
    topic = make_topic(2)
    fill(topic, 10, 2)
    with consuming(tmp_path, cluster.connect, topic, "--from-beginning", "-f", r"%p %o\n") as process:
        process.wait_for_lines(10)
        add_partitions(registry, topic, 4)
        produce(kafka, topic, [ProducerRecord(b"new", None, partition) for partition in range(4)])
        printed = process.wait_for_lines(14)
    assert sorted(printed) == sorted([f"{p} {o}" for p in range(2) for o in range(6)] + ["2 0", "3 0"])
    assert process.said == ""


def test_a_topic_that_is_deleted_is_reported(
    cluster: Sandbox, registry: Registry, make_topic: MakeTopic, fill: Fill, tmp_path: Path
) -> None:
    """Who reads on behind the offset that it has come to would pass over what is made again under that name."""
    topic, other = make_topic(1), make_topic(1)
    fill(topic, 5)
    fill(other, 5)
    with consuming(tmp_path, cluster.connect, topic, other, "--from-beginning", "-f", r"%o\n") as process:
        process.wait_for_lines(10)
        delete_topic(registry, topic)
        process.wait_to_hear("start anew")
    (line,) = [line for line in process.said.splitlines() if " is gone" in line]
    assert line == (
        f"zkgroup: warning: topic {topic} is gone: if it is recreated, start anew to read it from its beginning"
    )


def test_a_topic_that_a_broker_does_not_know_yet_is_not_gone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One that has just started may not know all topics: what it misses once is not reported."""
    known = iter([{}, {"t": (0,)}, {}, {}])
    monkeypatch.setattr(client, "topics", lambda kafka, timeout: next(known))
    asked = Consumption(ConnectionSettings(), ConsumerConfig(), Subscription(("t",), None), None, cast("Sink", None))
    missed: Counter[str] = Counter()
    reported = []
    for _ in range(4):
        _new_partitions(KafkaSettings("127.0.0.1:1"), asked, [TopicPartition("t", 0)], missed)
        reported.append("is gone" in caplog.text)
    assert reported == [False, False, False, True]


def test_a_filter_that_nothing_passes(cluster: Sandbox, unique: Unique) -> None:
    """Who is to leave at the end has nothing to wait for: 4 without a group; a member leaves with 0, and says why."""
    group = unique("group")
    arguments = ["-z", cluster.connect, "consume", "--whitelist", "nothing-matches", "-e"]
    plain, member = run(*arguments), run(*arguments, "-g", group)
    assert (plain.returncode, plain.stdout) == (4, "")
    assert plain.stderr.startswith("zkgroup: no topic is left by the filter 'nothing-matches': ")
    assert (member.returncode, member.stdout) == (0, "")
    assert member.stderr == (
        "zkgroup: warning: no topic is left by the filter 'nothing-matches': there is nothing to read\n"
    )


def test_a_cluster_of_0_8_without_a_topic(make_cluster: Callable[..., Sandbox]) -> None:
    """Its brokers do not even tell of themselves: still the topic is what is missing."""
    sandbox = make_cluster(kafka="0.8.2.2")
    for group, code in (["-g", "g"], 0), ([], 4):
        missing = run("-z", sandbox.connect, "consume", "nope", "-n", "1", *group)
        assert (missing.returncode, missing.stdout) == (4, "")
        assert missing.stderr.startswith("zkgroup: no topic nope: ")
        nothing = run("-z", sandbox.connect, "consume", "--whitelist", ".*", "-e", *group)
        assert (nothing.returncode, nothing.stdout, nothing.stderr.count("\n")) == (code, "", 1), nothing.stderr
