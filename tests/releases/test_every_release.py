"""A small suite that every release of the broker has to stand: consuming, offsets in both stores, looking, resetting by
time, exporting. The first and the last one run always, as all other tests run on 1.1.1; ``make releases`` runs them
all."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cli import run
from exports import InProcess, messages_in
from lines import names
from servers import Sandbox
from support import fresh_name, numbered

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.registered_brokers import Brokers
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.export.planning.export_request import EARLIEST
from zkgroup.export.run.run_export import ExportRequest, run_export
from zkgroup.sandbox.kafka_releases import RELEASES
from zkgroup.sandbox.topic_admin import ProducerRecord, create_topic, produce

ALWAYS = ("0.8.2.2", "3.9.1")
PARTITIONS = 4
#: Offsets by time: 0.8 and 0.9 know the times of segments alone.
WITHOUT_TIMES = ("0.8.2.2", "0.9.0.1")
LONG_AGO, HOUR = 1_600_000_000_000, 3_600_000


@dataclass(frozen=True)
class Broker:
    """A broker of one release. zkgroup gets the address of its ZooKeeper; in KRaft mode, without ``registry``, that of
    the broker."""

    release: str
    connect: str
    registry: Registry | None
    kafka: KafkaSettings
    folder: Path

    @property
    def place(self) -> tuple[str, str]:
        return ("--bootstrap-server", self.kafka.bootstrap) if self.registry is None else ("-z", self.connect)

    def zkgroup(self, *arguments: str) -> str:
        """Run zkgroup, which must succeed; what it prints."""
        ended = run(*self.place, *arguments)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def rows(self, *arguments: str) -> Any:
        """The same as JSON."""
        return json.loads(self.zkgroup(*arguments, "--output", "json"))

    def topic(self, messages: int) -> str:
        """A topic with messages, dealt out to its partitions, one a minute."""
        name = fresh_name("topic")
        if self.registry is None:
            create_topic(self.kafka, name, PARTITIONS)
        else:
            create_topic(self.registry, name, PARTITIONS)
        self.fill(name, messages)
        return name

    def fill(self, topic: str, messages: int, start: int = 0) -> None:
        """Messages one a minute, in turn."""
        records = numbered(messages, PARTITIONS, start)
        times = [LONG_AGO + (start + i) * 60_000 for i in range(messages)]
        stamped = [ProducerRecord(r.value, r.key, r.partition, at) for r, at in zip(records, times, strict=True)]
        produce(self.kafka, topic, numbered(messages, PARTITIONS, start) if self.release in WITHOUT_TIMES else stamped)

    def age(self, topic: str, millis: int) -> None:
        """Let the files of a topic's logs seem to have been written to that long ago."""
        files = [file for file in self.folder.rglob("*.log") if file.parent.name.startswith(f"{topic}-")]
        assert files
        for file in files:
            os.utime(file, times=(time.time() - millis / 1000,) * 2)

    def offsets(self, group: str, store: str) -> dict[int, int | None]:
        """Committed offsets by partition."""
        rows = self.rows("offsets", group, "--store", store)
        return {row["partition"]: row["committed"] for row in rows}


@pytest.fixture(
    scope="module", params=[pytest.param(v, marks=[] if v in ALWAYS else [pytest.mark.long]) for v in RELEASES]
)
def broker(request: pytest.FixtureRequest, zookeeper: Sandbox) -> Iterator[Broker]:
    """A broker of the release, for all tests of this file."""
    release = request.param
    if RELEASES[release].kraft:
        with Sandbox(fresh_name("release"), kafka=release) as sandbox:
            yield Broker(release, "", None, KafkaSettings(sandbox.bootstrap), sandbox.folder)
        return
    with (
        Sandbox(fresh_name("release"), kafka=release, zookeeper=zookeeper.address, chroot=f"/r{release}") as sandbox,
        sandbox.registry(30.0) as registry,
    ):
        create_topic(registry, "orders", PARTITIONS)
        yield Broker(release, sandbox.connect, registry, Brokers(registry.read, {}).settings(), sandbox.folder)


@pytest.mark.parametrize("storage", ["zookeeper", "kafka"])
def test_consuming(broker: Broker, storage: str) -> None:
    """A member reads every message once, and the next one of its group what is new; offsets are where they belong."""
    if broker.registry is None:
        pytest.skip("a member in ZooKeeper")
    topic, group = broker.topic(60), fresh_name("group")
    options = ["--from-beginning", "-X", f"offsets.storage={storage}", "-X", "dual.commit.enabled=false", "-e"]
    first = broker.zkgroup("consume", topic, "--group", group, *options).splitlines()
    assert sorted(first) == [f"m{n:06d}" for n in range(60)]
    assert broker.offsets(group, storage) == dict.fromkeys(range(PARTITIONS), 15)
    broker.fill(topic, 20, 60)
    second = broker.zkgroup("consume", topic, "--group", group, *options).splitlines()
    assert sorted(second) == [f"m{n:06d}" for n in range(60, 80)]
    assert broker.offsets(group, storage) == dict.fromkeys(range(PARTITIONS), 20)


def test_joining_in_kafka(broker: Broker) -> None:
    """Two members one after the other of a group at Kafka's coordinator read every message once; brokers of 0.8, which
    have no such groups, are reported by their registration, and refused in one line."""
    topic, group = broker.topic(60), fresh_name("group")
    command = ["consume", topic, "--group", group, "--coordinator", "kafka", "--from-beginning"]
    if broker.release.startswith("0.8"):
        refused = run(*broker.place, *command)
        assert (refused.returncode, refused.stderr.count("\n")) == (5, 1)
        assert names(refused.stderr, "0.8")
        return
    first = broker.zkgroup(*command, "-n", "25").splitlines()
    second = broker.zkgroup(*command, "-e").splitlines()
    assert sorted(first + second) == [f"m{n:06d}" for n in range(60)]
    assert broker.offsets(group, "kafka") == dict.fromkeys(range(PARTITIONS), 15)


@pytest.mark.parametrize("store", ["zookeeper", "kafka"])
def test_reading_and_resetting(broker: Broker, store: str) -> None:
    """Ends and lag are reported; offsets go to the ends of the logs, and to a time: to the message, where the release
    keeps times, to the beginning of its segment where not. What was done can be undone."""
    if broker.registry is None and store == "zookeeper":
        pytest.skip("there is no ZooKeeper")
    topic, group = broker.topic(40), fresh_name("group")
    broker.zkgroup("reset-offsets", group, "--topic", topic, "--to-earliest", "--store", store, "--execute")
    inspected = broker.rows("inspect-group", group, "--store", store)
    assert [(row["partition"], row["committed"], row["log_end"], row["lag"]) for row in inspected["partitions"]] == [
        (number, 0, 10, 10) for number in range(PARTITIONS)
    ]
    assert not [one for one in inspected["findings"] if one["severity"] == "critical"]
    if broker.release in WITHOUT_TIMES:
        assert [row["lag_seconds_at_least"] for row in inspected["partitions"]] == [None] * PARTITIONS
        broker.age(topic, 2 * HOUR)
        (row,) = broker.rows("offsets", group, "--topic", f"{topic}:1", "--store", store)
        assert (row["lag_seconds"], row["lag_seconds_at_least"]) == (None, HOUR / 1000)
    else:
        ages = [time.time() - row["lag_seconds"] - LONG_AGO / 1000 for row in inspected["partitions"]]
        assert all(abs(age - number * 60) < 50 for number, age in enumerate(ages)), ages
    broker.zkgroup("reset-offsets", group, "--topic", topic, "--to-latest", "--store", store, "--execute")
    assert broker.offsets(group, store) == dict.fromkeys(range(PARTITIONS), 10)
    if broker.release in WITHOUT_TIMES:
        times = {"2020-01-01T00:00:00Z": 0, "2100-01-01T00:00:00Z": 10}
    else:
        # The message of minute 22 is the sixth of partition 2; those of 20 and 21 are older, that of 23 is not.
        times = {"2020-01-01T00:00:00Z": 0, "2100-01-01T00:00:00Z": 10, "2020-09-13T12:48:40Z": 5}
    for moment, expected in times.items():
        broker.zkgroup("reset-offsets", group, "--topic", topic, "--to-datetime", moment, "--store", store, "--execute")
        found = broker.offsets(group, store)
        assert found[2] == expected, moment
        assert set(found.values()) <= {expected, expected + 1}, moment


def test_exporting(broker: Broker, tmp_path: Path) -> None:
    """Two exports have every message once, with its key, and move the group on."""
    if broker.registry is None:
        pytest.skip("exports keep their state in ZooKeeper")
    topic, group = broker.topic(40), fresh_name("group")
    for count in (40, 60):
        wish = ExportRequest(group, topics=(topic,), root=tmp_path, begin=EARLIEST)
        parts = run_export(wish, broker.registry, lambda: broker.kafka, on_warning=lambda _: None, runner=InProcess)
        assert sum(part.rows for part in parts) == (40 if count == 40 else 20)
        if count == 40:
            broker.fill(topic, 20, 40)
    found = messages_in(tmp_path)
    assert sorted((m["value"], m["key"]) for m in found) == [(b"m%06d" % n, b"k%d" % n) for n in range(60)]
    assert broker.offsets(group, "zookeeper") == dict.fromkeys(range(PARTITIONS), 15)
    listed = broker.rows("list-groups")
    assert group in {row["group"] for row in listed}
