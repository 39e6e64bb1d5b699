"""Consuming: the reference's consumers and kcat beside zkgroup, each as a whole command on the same topic."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka

from benchmarks.measure import ZKGROUP, Row, in_turn, run
from zkgroup.clients.kafka.client import KafkaSettings, producer
from zkgroup.clients.kafka.log_offsets import LogRange, log_offsets
from zkgroup.java_runtime import find_java, install_words
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.jars import kafka_class_path
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.server_configuration import LOG4J1
from zkgroup.sandbox.topic_admin import create_topic

PARTITIONS = 4
TOPIC = "bench"
NULL = Path(os.devnull)
COUNT_PROGRAM = """
import sys, time
from zkgroup.config import ConsumerConfig
from zkgroup.connector import Connector
from zkgroup.clients.zookeeper import ZooKeeperSettings
connect, group, topic, wanted = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
config = ConsumerConfig(group_id=group, auto_offset_reset="smallest", auto_commit_interval_ms=1000)
with Connector(config, ZooKeeperSettings(connect)) as connector:
    (stream,) = connector.merged_streams([topic])
    start, count = time.monotonic(), 0
    while count < wanted and (batch := stream.batch(10)):
        count += len(batch.messages)
    print(f"rate {count / (time.monotonic() - start):.0f}")
    stream.mark()
"""


@dataclass(slots=True)
class Bench:
    """A sandbox with a filled topic. Every run reads it in a group of its own."""

    sandbox: Sandbox
    folder: Path
    messages: int
    groups: int = 0

    def fill(self, size: int) -> None:
        """Fill the topic with messages of ``size`` bytes, in numeric order, dealt out to the partitions."""
        with self.sandbox.registry() as registry:
            create_topic(registry, TOPIC, PARTITIONS)
        settings = KafkaSettings(self.sandbox.bootstrap)
        client = producer(settings, linger_ms=50, batch_size=1_000_000, queue_buffering_max_messages=1_000_000)
        for number in range(self.messages):
            value = (b"%012d " % number).ljust(size, b"x")
            while True:
                try:
                    client.produce(TOPIC, value, partition=number % PARTITIONS)
                    break
                except BufferError:
                    client.poll(0.1)
            if number % 10_000 == 0:
                client.poll(0)
        client.flush(120)
        found = log_offsets(settings, [TopicPartition(TOPIC, p) for p in range(PARTITIONS)], 10)
        total = sum(log.end for log in found.values() if isinstance(log, LogRange))
        if total != self.messages:
            raise SystemExit(f"the topic holds {total} messages, not {self.messages}")

    def group(self) -> str:
        """A group that has never been."""
        self.groups += 1
        return f"bench-{os.getpid()}-{self.groups}"

    def java(self, main: str, *arguments: str) -> list[str]:
        """A command of the reference's."""
        log4j = self.folder / "log4j.properties"
        if not log4j.exists():
            log4j.write_text(LOG4J1.format(level="ERROR", target="System.err"), encoding="utf-8")
        return [
            *(str(find_java()), "-Xmx1g", f"-Dlog4j.configuration=file:{log4j}"),
            *("-cp", kafka_class_path("1.1.1"), main, *arguments),
        ]

    def zkgroup(self, *options: str) -> list[str]:
        """``zkgroup consume`` of the whole topic as a member of a new group, with auto-commit."""
        return [
            *(ZKGROUP, "consume", TOPIC, "-z", self.sandbox.connect, "--group", self.group(), "--from-beginning"),
            *("-X", "auto.commit.interval.ms=1000", "--max-messages", str(self.messages), *options),
        ]


def count_only(bench: Bench, rounds: int) -> Row:
    """Messages a second once reading has begun; both are full members with auto-commit."""
    row = Row("consume, count only", "ConsumerPerformance, 4 threads", "msg/s", "more", 1.5)

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
    """Printing values: whole processes, start-up and leaving included."""
    properties = bench.folder / "consumer.properties"

    def console() -> float:
        properties.write_text(f"group.id={bench.group()}\nauto.offset.reset=smallest\n", encoding="utf-8")
        command = bench.java(
            "kafka.tools.ConsoleConsumer",
            *("--zookeeper", bench.sandbox.connect, "--topic", TOPIC, "--consumer.config", str(properties)),
            *("--max-messages", str(bench.messages)),
        )
        return bench.messages / run(command, output=NULL).seconds

    def ours() -> float:
        return bench.messages / run(bench.zkgroup(), output=NULL).seconds

    rows = [in_turn(Row("consume, values", "ConsoleConsumer", "msg/s", "more", 5), rounds, console, ours)]
    if (loop := compile_loop(bench.folder)) is not None:
        command = [str(loop), librdkafka(), bench.sandbox.bootstrap, TOPIC, str(PARTITIONS), str(bench.messages)]
        limit = Row("consume, values", "C loop, one consumer, no group", "msg/s", "more", 1.1)
        rows.append(in_turn(limit, rounds, lambda: bench.messages / run(command, output=NULL).seconds, ours))
    kcat = find_kcat()
    if kcat is not None:
        for work, theirs, options, goal in (
            ("consume, values", [], [], 1.8),
            ("consume, `%t %p %o %s\\n`", ["-f", "%t %p %o %s\\n"], ["--format", "%t %p %o %s\\n"], 5.0),
            ("consume, JSON lines", ["-J"], ["--output", "json"], 12.0),
        ):
            row = Row(work, " ".join(["kcat -C", *theirs[:1]]), "msg/s", "more", goal)
            command = [kcat, "-C", "-b", bench.sandbox.bootstrap, "-t", TOPIC, "-o", "beginning", "-e", "-q", *theirs]
            in_turn(
                row,
                rounds,
                lambda command=command: bench.messages / run(command, output=NULL).seconds,  # type: ignore[misc]
                lambda options=options: bench.messages / run(bench.zkgroup(*options), output=NULL).seconds,  # type: ignore[misc]
            )
            rows.append(row)
    return rows


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


def memory(bench: Bench, rounds: int) -> Row:
    """Peak memory of a consumer that prints the whole topic."""
    row = Row("memory, values", "ConsoleConsumer", "MB", "less", 1)
    properties = bench.folder / "consumer.properties"

    def theirs() -> float:
        properties.write_text(f"group.id={bench.group()}\nauto.offset.reset=smallest\n", encoding="utf-8")
        command = bench.java(
            "kafka.tools.ConsoleConsumer",
            *("--zookeeper", bench.sandbox.connect, "--topic", TOPIC, "--consumer.config", str(properties)),
            *("--max-messages", str(bench.messages)),
        )
        return run(command, output=NULL).peak_mb

    return in_turn(row, rounds, theirs, lambda: run(bench.zkgroup(), output=NULL).peak_mb)
