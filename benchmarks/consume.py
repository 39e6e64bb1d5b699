"""Consuming: Kafka's own consumers and kcat beside zkgroup, each as a whole command on the same topic."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka

from benchmarks.measure import ZKGROUP, Row, all_in_turn, in_turn, run
from scripts.ensure_java import install_words
from zkgroup.clients.kafka.client import KafkaSettings, producer
from zkgroup.clients.kafka.log_offsets import LogRange, log_offsets
from zkgroup.java_runtime import find_java
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.kafka_releases import kafka_class_path
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.server_configuration import write_logging
from zkgroup.sandbox.topic_admin import create_topic

PARTITIONS = 4
TOPIC = "bench"
#: Of one partition, which one handle of librdkafka reads: two read ``TOPIC``.
SINGLE = "bench-single"
LARGE, LARGE_SIZE = "bench-large", 1000
#: The most memory that a member may take, in MB.
MEMORY_GOAL = 150
NULL = Path(os.devnull)
COUNT_PROGRAM = """
import sys, time
from zkgroup.config import ConsumerConfig
from zkgroup.connector import Connector
from zkgroup.clients.zookeeper import ZooKeeperSettings
connect, group, topic, wanted = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
config = ConsumerConfig(group_id=group, auto_offset_reset="smallest", auto_commit_interval_ms=1000)
with Connector(config, ZooKeeperSettings(connect)) as connector:
    (stream,) = connector.merged_streams([topic], native=True)
    start, count = time.monotonic(), 0
    while count < wanted and (batch := stream.batch(10)):
        count += len(batch.messages)
    print(f"rate {count / (time.monotonic() - start):.0f}")
    stream.mark()
"""


Command = Callable[[], list[str]]
#: A peer's name, how many times better than it zkgroup has to be, and its command.
Peer = tuple[str, float, Command]


@dataclass(slots=True)
class Bench:
    """A sandbox with a filled topic. Every run reads it in a group of its own."""

    sandbox: Sandbox
    folder: Path
    messages: int
    size: int
    groups: int = 0

    def fill(self, size: int, topic: str = TOPIC, partitions: int = PARTITIONS, messages: int | None = None) -> None:
        """Fill a topic with messages of ``size`` bytes, in numeric order, dealt out to the partitions."""
        messages = self.messages if messages is None else messages
        with self.sandbox.registry() as registry:
            create_topic(registry, topic, partitions)
        settings = KafkaSettings(self.sandbox.bootstrap)
        client = producer(settings, linger_ms=50, batch_size=1_000_000, queue_buffering_max_messages=1_000_000)
        for number in range(messages):
            value = (b"%012d " % number).ljust(size, b"x")
            while True:
                try:
                    client.produce(topic, value, partition=number % partitions)
                    break
                except BufferError:
                    client.poll(0.1)
            if number % 10_000 == 0:
                client.poll(0)
        client.flush(120)
        found = log_offsets(settings, [TopicPartition(topic, p) for p in range(partitions)], 10)
        total = sum(log.end for log in found.values() if isinstance(log, LogRange))
        if total != messages:
            raise SystemExit(f"topic {topic} has {total} messages, not {messages}")

    def group(self) -> str:
        """A group that has never been."""
        self.groups += 1
        return f"bench-{os.getpid()}-{self.groups}"

    def java(self, main: str, *arguments: str) -> list[str]:
        """A command of Kafka's own tools."""
        return [
            *(str(find_java()), "-Xmx1g", write_logging(self.folder, level="ERROR", target="System.err")),
            *("-cp", kafka_class_path("1.1.1"), main, *arguments),
        ]

    def console(self) -> list[str]:
        """The Scala consumer, which prints the values of the topic as a member of a new group."""
        properties = self.folder / "consumer.properties"
        properties.write_text(f"group.id={self.group()}\nauto.offset.reset=smallest\n", encoding="utf-8")
        return self.java(
            "kafka.tools.ConsoleConsumer",
            *("--zookeeper", self.sandbox.connect, "--topic", TOPIC, "--consumer.config", str(properties)),
            *("--max-messages", str(self.messages)),
        )

    def kcat(self, program: str, topic: str, *options: str) -> list[str]:
        """kcat, which prints a topic in no group."""
        return [program, "-C", "-b", self.sandbox.bootstrap, "-t", topic, "-o", "beginning", "-e", "-q", *options]

    def loop(self, program: Path, topic: str, partitions: int) -> list[str]:
        """The C loop, which prints the values of a topic in no group."""
        return [str(program), librdkafka(), self.sandbox.bootstrap, topic, str(partitions), str(self.messages)]

    def zkgroup(self, *options: str, topic: str = TOPIC, messages: int | None = None) -> list[str]:
        """``zkgroup consume`` of a whole topic as a member of a new group, with auto-commit."""
        return [
            *(ZKGROUP, "consume", topic, "-z", self.sandbox.connect, "--group", self.group(), "--from-beginning"),
            *("-X", "auto.commit.interval.ms=1000", "--max-messages", str(messages or self.messages), *options),
        ]


def count_only(bench: Bench, rounds: int) -> Row:
    """Messages a second once reading has begun; both are full members with auto-commit."""
    row = Row("consume, count only", "ConsumerPerformance, 4 threads", "msg/s", "more", 3)

    def theirs() -> float:
        command = bench.java(
            "kafka.tools.ConsumerPerformance",
            *("--zookeeper", bench.sandbox.connect, "--topic", TOPIC, "--group", bench.group()),
            *("--messages", str(bench.messages), "--threads", "4"),
        )
        last = [line for line in run(command).output.splitlines() if re.match(r"\d{4}-", line)][-1]
        return float(last.split(",")[5])

    def ours() -> float:
        command = [sys.executable, "-c", COUNT_PROGRAM, bench.sandbox.connect, bench.group(), TOPIC]
        return float(run([*command, str(bench.messages)]).output.split("rate ")[1])

    return in_turn(row, rounds, theirs, ours)


def values(bench: Bench, rounds: int) -> list[Row]:
    """Printing messages: whole processes, start-up and leaving included. kcat and the C loop are left out where they
    cannot be had."""
    kcat, loop, large = find_kcat(), compile_loop(bench.folder), max(1, bench.messages // 5)
    bench.fill(bench.size, SINGLE, 1)
    bench.fill(LARGE_SIZE, LARGE, messages=large)
    tokens = "%t %p %o %s\\n"

    def by_kcat(goal: float, *options: str, topic: str = TOPIC) -> list[Peer]:
        name = " ".join(["kcat -C", *options[:1]])
        return [(name, goal, lambda: bench.kcat(kcat, topic, *options))] if kcat is not None else []

    def by_loop(goal: float, topic: str, partitions: int) -> list[Peer]:
        return [("C loop", goal, lambda: bench.loop(loop, topic, partitions))] if loop is not None else []

    def compare(work: str, peers: list[Peer], ours: Command, count: int = bench.messages) -> list[Row]:
        def rate(command: Command) -> Callable[[], float]:
            return lambda: count / run(command(), output=NULL).seconds

        rows = [Row(work, peer, "msg/s", "more", goal) for peer, goal, _ in peers]
        return all_in_turn(rows, rounds, [rate(command) for _, _, command in peers], rate(ours)) if rows else []

    peers = [("ConsoleConsumer", 5.0, bench.console), *by_kcat(1.8), *by_loop(1.1, TOPIC, PARTITIONS)]
    return [
        *compare("consume, values", peers, bench.zkgroup),
        *compare("consume, values, 1 partition", by_loop(0.8, SINGLE, 1), lambda: bench.zkgroup(topic=SINGLE)),
        *compare(f"consume, `{tokens}`", by_kcat(5, "-f", tokens), lambda: bench.zkgroup("--format", tokens)),
        *compare("consume, JSON lines", by_kcat(12, "-J"), lambda: bench.zkgroup("--output", "json")),
        *compare(
            f"consume, values of {LARGE_SIZE} bytes",
            by_kcat(1.2, topic=LARGE),
            lambda: bench.zkgroup(topic=LARGE, messages=large),
            large,
        ),
    ]


def compile_loop(folder: Path) -> Path | None:
    """The C loop, which says how fast librdkafka is here; None where no compiler is."""
    compiler = shutil.which("cc")
    if compiler is None:
        sys.stderr.write("no C compiler is here, so the C loop is left out\n")
        return None
    program = folder / "consume_loop"
    source = Path(__file__).with_name("consume_loop.c")
    run([compiler, "-O2", "-o", str(program), str(source), "-ldl"])
    return program


def librdkafka() -> str:
    """The librdkafka that confluent-kafka brings, or the machine's where it brings none."""
    libraries = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    return str(next(libraries.glob("librdkafka-*.so*"), "librdkafka.so.1"))


def find_kcat() -> str | None:
    """kcat's path. It is installed where it is missing and this user may; None where that fails."""
    words = install_words()
    if shutil.which("kcat") is None and words is not None:
        subprocess.run([*words, "kcat"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=300, check=False)
    return shutil.which("kcat")


def memory(bench: Bench, rounds: int) -> list[Row]:
    """Peak memory of a consumer that prints the whole topic."""
    rows = [Row("memory, values", peer, "MB", "less", 1) for peer in ("ConsoleConsumer", f"{MEMORY_GOAL} MB")]
    theirs = [lambda: run(bench.console(), output=NULL).peak_mb, lambda: float(MEMORY_GOAL)]
    return all_in_turn(rows, rounds, theirs, lambda: run(bench.zkgroup(), output=NULL).peak_mb)
