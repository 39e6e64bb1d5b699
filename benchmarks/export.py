"""Exports: Spark 3.5 with its Kafka connector beside zkgroup, as whole processes and as jobs in a Spark that runs.

The peer is a batch ``spark.read.format("kafka")`` of the whole topic, written as Parquet by Spark: it commits nothing,
and promises nothing when it is killed. It lives in a virtual environment of its own in the cache folder (pyspark 3.5,
which reads Kafka through ``spark-sql-kafka-0-10``; of 4.x not all of that could be had).
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Self

import orjson

from benchmarks.consume import Bench
from benchmarks.measure import ZKGROUP, Row, in_turn, run
from zkgroup.clients.kafka.client import KafkaSettings, producer
from zkgroup.clients.kafka.log_offsets import LogRange, log_offsets
from zkgroup.config.setting_files import cache_dir
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.topic_admin import create_topic

PEER = "3.5.7"
PARTITIONS, MANY, TOPICS, COMMITS = 4, 200, 60, 400
CORES = min(2, os.cpu_count() or 1)
NOTHING_NEW = 2.5  # seconds
_TABLES = ("delta", "iceberg")
_PACKAGES = ("spark-sql-kafka-0-10", "spark-avro")
IVY_SETTINGS = "ZKGROUP_IVY_SETTINGS"

_PEER_JOB = """
import sys, time
from pyspark.sql import SparkSession
bootstrap, topic, out, master, jobs, jars, wanted, form, schema = sys.argv[1:]
spark = (SparkSession.builder.master(master).config("spark.ui.enabled", "false").config("spark.jars", jars)
    .config("spark.ui.showConsoleProgress", "false").config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1").config("spark.sql.parquet.compression.codec", "zstd")
    .config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MILLIS").getOrCreate())
spark.sparkContext.setLogLevel("ERROR")
for number in range(int(jobs)):
    sys.stdin.readline()  # whole processes get none, and do not wait
    began = time.monotonic()
    read = (spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
        .option("startingOffsets", "earliest").option("endingOffsets", "latest").load())
    value = "value"
    if form == "avro":
        from pyspark.sql.avro.functions import from_avro
        value = from_avro("value", schema).alias("value")
    elif form == "json-schema":
        from pyspark.sql.functions import col, from_json
        value = from_json(col("value").cast("string"), schema).alias("value")
    columns = "topic", "partition", "offset", "timestamp", "timestampType", "key"
    read.select(*columns, value).write.parquet(f"{out}/{number}")
    print(f"job {time.monotonic() - began:.3f}", flush=True)
if int(jobs) > 1:
    assert spark.read.parquet(f"{out}/0").count() == int(wanted)
"""
_OUR_JOB = """
import sys, time
from contextlib import nullcontext
from pathlib import Path
from zkgroup.export.run.run_export import ExportRequest, run_export
from zkgroup.export.spark.spark_context import SparkJobs
from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.export.planning.export_request import EARLIEST
from zkgroup.export.model.layout import LayoutOptions
from zkgroup.schemas.field_schema import FieldSchema, FieldSchemas
bootstrap, connect, topic, out, group, master, jobs, wanted, kind, form, schema = sys.argv[1:]
schemas = FieldSchemas() if form == "bytes" else FieldSchemas(value=FieldSchema(form, schema))
with SparkJobs(master, {}) as spark, Registry(ZooKeeperSettings(connect), 30.0) as registry:
    for number in range(int(jobs)):
        sys.stdin.readline()
        began = time.monotonic()
        layout = LayoutOptions(value=form, format=kind)
        request = ExportRequest(f"{group}-{number}", Path(out, str(number)), (topic,), begin=EARLIEST, layout=layout,
            schemas=schemas)
        rows = run_export(request, registry, lambda: KafkaSettings(bootstrap), runner=lambda: nullcontext(spark))
        print(f"job {time.monotonic() - began:.3f}", flush=True)
        assert sum(row.rows for row in rows) == int(wanted)
"""
# One message an export, into one table; each prints its seconds.
_COMMITS_JOB = """
import sys, time
from contextlib import nullcontext
from pathlib import Path
from zkgroup.export.model.layout import LayoutOptions
from zkgroup.export.run.run_export import ExportRequest, run_export
from zkgroup.export.spark.spark_context import SparkJobs
from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.clients.zookeeper import ZooKeeperSettings
from zkgroup.export.planning.export_request import EARLIEST
bootstrap, connect, topic, out, group, master, count, kind = sys.argv[1:]
layout = LayoutOptions(format=kind)
request = ExportRequest(group, Path(out), (topic,), begin=EARLIEST, max_messages=1, layout=layout)
with SparkJobs(master, {}) as spark, Registry(ZooKeeperSettings(connect), 30.0) as registry:
    for number in range(int(count)):
        began = time.monotonic()
        run_export(request, registry, lambda: KafkaSettings(bootstrap), runner=lambda: nullcontext(spark))
        print(f"{time.monotonic() - began:.3f}", flush=True)
"""

# What confluent-kafka and pyarrow alone take: neither Spark nor accounts, four columns, nothing is looked at twice.
_BARE_JOB = """
import multiprocessing, os, sys, time
from operator import itemgetter
import pyarrow as pa, pyarrow.parquet as pq
from confluent_kafka import Consumer, Message, TopicPartition
bootstrap, topic, out, cores, partitions, jobs, wanted = sys.argv[1:]
SCHEMA = pa.schema([("offset", pa.int64()), ("timestamp", pa.timestamp("ms", "UTC")), ("key", pa.binary()),
    ("value", pa.binary())])
SETTINGS = {"bootstrap.servers": bootstrap, "group.id": "bare", "enable.auto.commit": False,
    "enable.partition.eof": True, "fetch.queue.backoff.ms": 5, "queued.min.messages": 2000, "fetch.wait.max.ms": 2}
def copy(job):
    number, partition = job
    consumer, rows, done = Consumer(SETTINGS), 0, False
    consumer.assign([TopicPartition(topic, partition, 0)])
    with pq.ParquetWriter(f"{out}/{number}-{partition}.parquet", SCHEMA, compression="zstd") as writer:
        while not done:
            batch = consumer.consume(2000, 0.01)
            if any(map(Message.error, batch)):
                done, batch = True, [message for message in batch if message.error() is None]
            times = pa.array(map(itemgetter(1), map(Message.timestamp, batch)), pa.int64()).cast(SCHEMA.field(1).type)
            columns = [pa.array(map(Message.offset, batch), pa.int64()), times,
                pa.array(map(Message.key, batch), pa.binary()), pa.array(map(Message.value, batch), pa.binary())]
            writer.write_batch(pa.record_batch(columns, schema=SCHEMA))
            rows += len(batch)
    consumer.close()
    return rows
os.makedirs(out, exist_ok=True)
with multiprocessing.Pool(int(cores)) as pool:
    for number in range(int(jobs)):
        sys.stdin.readline()
        began = time.monotonic()
        rows = sum(pool.map(copy, [(number, partition) for partition in range(int(partitions))], chunksize=1))
        print(f"job {time.monotonic() - began:.3f}", flush=True)
        assert rows == int(wanted)
"""


def limit(bench: Bench, rounds: int, messages: int) -> Row:
    """Warm jobs beside a bare loop on the same libraries."""
    return _limit(_Exports(bench, fill(bench, messages, 100, PARTITIONS), messages, "", ""), rounds, messages)


def _limit(exports: _Exports, rounds: int, messages: int) -> Row:
    row = Row(f"export {messages:,} × 100 B, warm job", "a bare loop", "s", "less", 0.8)
    with exports.bare(rounds) as theirs, exports.our_warm(rounds) as ours:
        return in_turn(row, rounds, theirs.job, ours.job)


def export(bench: Bench, rounds: int, messages: int) -> list[Row]:
    """Whole processes and warm jobs with small and larger messages; cores; partitions; nothing new."""
    python, jars = _peer()
    rows: list[Row] = []
    for size, count, warm_goal in ((100, messages, 4.0), (1000, messages // 5, 3.5)):
        topic = fill(bench, count, size, PARTITIONS)
        work = f"export {count:,} × {size} B"
        peer = _Exports(bench, topic, count, python, jars)
        whole = Row(f"{work}, whole process", f"Spark {PEER}", "s", "less", 3.5)
        rows.append(in_turn(whole, rounds, peer.whole, peer.ours))
        warm = Row(f"{work}, warm job", f"Spark {PEER}", "s", "less", warm_goal)
        with peer.warm(rounds) as theirs, peer.our_warm(rounds) as ours:
            rows.append(in_turn(warm, rounds, theirs.job, ours.job))
        if size == 100:
            rows += [_limit(peer, rounds, count), *_scaling(bench, peer, topic, count, rounds), topics(bench, rounds)]
    return rows


def _scaling(bench: Bench, exports: _Exports, topic: str, count: int, rounds: int) -> list[Row]:
    wide = _Exports(bench, fill(bench, count, 100, MANY), count, "", "")
    cores = Row(f"export {count:,} × 100 B, {CORES} cores", "zkgroup on 1 core", "s", "less", 1.5)
    with exports.our_warm(rounds, "local[1]") as one, exports.our_warm(rounds) as all_of_them:
        in_turn(cores, rounds, one.job, all_of_them.job)
    many = Row(f"export {count:,} × 100 B, {MANY} partitions", f"zkgroup, {PARTITIONS} partitions", "s", "less", 0.5)
    with exports.our_warm(rounds) as few, wide.our_warm(rounds) as lots:
        in_turn(many, rounds, few.job, lots.job)
    nothing = Row(f"export, nothing new, {MANY} partitions", f"{NOTHING_NEW:g} s", "s", "less", 1)
    caught_up = wide.command()
    run(caught_up)
    in_turn(nothing, rounds, lambda: NOTHING_NEW, lambda: run(caught_up).seconds)
    return [cores, many, nothing]


#: Ten fields, as Avro's schema, as JSON Schema, and as Spark's.
_FIELDS = {
    "id": ("long", "integer", "bigint"),
    "customer": ("string", "string", "string"),
    "state": ("string", "string", "string"),
    "country": ("string", "string", "string"),
    "amount": ("double", "number", "double"),
    "tax": ("double", "number", "double"),
    "items": ("long", "integer", "bigint"),
    "paid": ("boolean", "boolean", "boolean"),
    "note": ("string", "string", "string"),
    "sent": ("long", "integer", "bigint"),
}


def schemas(bench: Bench, rounds: int, messages: int) -> list[Row]:
    """Warm jobs that decode ten fields: JSON, and Avro."""
    python, jars = _peer()
    avro = json.dumps(
        {
            "type": "record",
            "name": "Order",
            "fields": [{"name": name, "type": kinds[0]} for name, kinds in _FIELDS.items()],
        }
    )
    by_json = json.dumps(
        {"type": "object", "properties": {name: {"type": kinds[1]} for name, kinds in _FIELDS.items()}}
    )
    ddl = ", ".join(f"{name} {kinds[2]}" for name, kinds in _FIELDS.items())
    rows: list[Row] = []
    for form, ours, theirs in (("json-schema", by_json, ddl), ("avro", avro, avro)):
        topic = fill(bench, messages, 0, PARTITIONS, name=f"export-{form}", values=_orders(form, avro))
        exports = _Exports(bench, topic, messages, python, jars, form, ours, theirs)
        work = f"export {messages:,} × 10 fields of {form.partition('-')[0]}, warm job"
        row = Row(work, f"Spark {PEER}", "s", "less", 3.0)
        with exports.warm(rounds) as peer, exports.our_warm(rounds) as warm:
            rows.append(in_turn(row, rounds, peer.job, warm.job))
    return rows


def _orders(form: str, avro: str) -> Iterator[bytes]:
    """Values without end."""
    import fastavro

    schema, dice = fastavro.parse_schema(json.loads(avro)), random.Random(7)
    for number in itertools.count():
        order = {
            "id": number,
            "customer": f"customer-{dice.randrange(100_000)}",
            "state": dice.choice(("new", "paid", "sent", "closed")),
            "country": dice.choice(("DE", "FR", "PL", "IT")),
            "amount": dice.randrange(1_000_000) / 100,
            "tax": dice.randrange(100_000) / 100,
            "items": dice.randrange(20),
            "paid": dice.random() < 0.5,
            "note": dice.randbytes(10).hex(),
            "sent": 1_700_000_000_000 + number,
        }
        if form == "avro":
            out = BytesIO()
            fastavro.schemaless_writer(out, schema, order)
            yield out.getvalue()
        else:
            yield orjson.dumps(order)


def topics(bench: Bench, rounds: int) -> Row:
    """Whole processes: many topics of one message each, beside one topic of as many partitions."""
    one = fill(bench, TOPICS, 99, TOPICS)
    for number in range(TOPICS):
        fill(bench, 1, 200 + number, 1)
    row = Row(f"export {TOPICS} topics, a message each", f"zkgroup, {TOPICS} partitions of one", "s", "less", 0.5)
    wide, many = (_Exports(bench, topic, TOPICS, "", "") for topic in (one, ""))
    return in_turn(row, rounds, wide.ours, lambda: many.ours("--whitelist", "export-2[0-9][0-9]-1"))


def tables(bench: Bench, rounds: int, messages: int) -> list[Row]:
    """Warm jobs into tables beside plain Parquet; the last of many commits to a table beside the first ones."""
    rows: list[Row] = []
    for size, count in ((100, messages), (1000, messages // 5)):
        exports = _Exports(bench, fill(bench, count, size, PARTITIONS), count, "", "")
        for kind in _TABLES:
            row = Row(f"export {count:,} × {size} B into {kind.capitalize()}", "plain Parquet", "s", "less", 0.95)
            with exports.our_warm(rounds) as plain, exports.our_warm(rounds, kind=kind) as table:
                rows.append(in_turn(row, rounds, plain.job, table.job))
    one = _Exports(bench, fill(bench, COMMITS, 98, 1), COMMITS, "", "")
    for kind in _TABLES:
        seconds = one.commits(kind)
        first, last = (statistics.median(some) for some in (seconds[5:15], seconds[-10:]))
        row = Row(f"the {COMMITS}th commit to {kind.capitalize()}", "the 10th, and 1 s", "s", "less", 1)
        rows.append(in_turn(row, 1, itertools.repeat(first + 1).__next__, itertools.repeat(last).__next__))
    return rows


class _Warm:
    """A process that stays, and does a job whenever it is asked for one: so that two of them take turns. What it has
    written to ``out`` goes when it ends."""

    def __init__(self, command: list[str], out: Path, env: Mapping[str, str] | None = None) -> None:
        self._out = out
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._process.kill()
        self._process.communicate()
        shutil.rmtree(self._out, ignore_errors=True)
        if kind is None and self._process.returncode != 0:
            raise SystemExit(f"a process of warm jobs ended with {self._process.returncode}")

    def job(self) -> float:
        """Seconds for the next job."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("job "):
                return float(line.removeprefix("job "))
        raise SystemExit(f"a process of warm jobs ended with {self._process.wait()}")


class _Exports:
    """Exports of one topic by either; every one into a folder of its own, which goes before the next."""

    def __init__(
        self,
        bench: Bench,
        topic: str,
        count: int,
        python: str,
        jars: str,
        form: str = "bytes",
        our_schema: str = "",
        their_schema: str = "",
    ) -> None:
        self._bench = bench
        self._topic = topic
        self._count = count
        self._python = python
        self._jars = jars
        self._master = f"local[{CORES}]"
        self._outs = 0
        self._ours = [form, our_schema]
        self._theirs = [form, their_schema]

    def _job(self, jobs: int, out: Path) -> list[str]:
        arguments = (self._bench.sandbox.bootstrap, self._topic, str(out), self._master, str(jobs), self._jars)
        return [self._python, "-c", _PEER_JOB, *arguments, str(self._count), *self._theirs]

    def _out(self) -> Path:
        out = self._bench.folder / "export"
        shutil.rmtree(out, ignore_errors=True)
        return out

    def _out_beside(self) -> Path:
        """A folder that stays while others are at work."""
        self._outs += 1
        return self._bench.folder / f"warm-{self._topic}-{self._outs}"

    def whole(self) -> float:
        """Seconds for the peer's process."""
        return run(self._job(1, self._out()), env=_environment(self._python)).seconds

    def warm(self, rounds: int) -> _Warm:
        """The peer's jobs, in a Spark that runs; one more than ``rounds``."""
        out = self._out_beside()
        return _Warm(self._job(rounds + 1, out), out, _environment(self._python))

    def command(self, *topics: str) -> list[str]:
        """``zkgroup export`` of everything, by a group of its own, to a folder of its own."""
        return [
            *(ZKGROUP, "export", *(topics or (self._topic,)), "--group", self._bench.group(), "--from", "earliest"),
            *("-z", self._bench.sandbox.connect, "--to", str(self._out()), "--master", self._master),
        ]

    def ours(self, *topics: str) -> float:
        """Seconds for ``zkgroup export``."""
        return run(self.command(*topics)).seconds

    def commits(self, kind: str) -> list[float]:
        """Seconds for each of ``count`` exports of a message, all into one destination."""
        arguments = [self._bench.sandbox.bootstrap, self._bench.sandbox.connect, self._topic, str(self._out())]
        arguments += [self._bench.group(), self._master, str(self._count), kind]
        return [float(line) for line in run([sys.executable, "-c", _COMMITS_JOB, *arguments]).output.split()]

    def our_warm(self, rounds: int, master: str | None = None, kind: str = "parquet") -> _Warm:
        """Our exports, in a Spark that runs."""
        out = self._out_beside()
        arguments = [self._bench.sandbox.bootstrap, self._bench.sandbox.connect, self._topic, str(out)]
        arguments += [self._bench.group(), master or self._master, str(rounds + 1), str(self._count), kind]
        return _Warm([sys.executable, "-c", _OUR_JOB, *arguments, *self._ours], out)

    def bare(self, rounds: int) -> _Warm:
        """The bare loop's jobs."""
        out = self._out_beside()
        arguments = [self._bench.sandbox.bootstrap, self._topic, str(out), str(CORES), str(PARTITIONS)]
        return _Warm([sys.executable, "-c", _BARE_JOB, *arguments, str(rounds + 1), str(self._count)], out)


def _environment(python: str) -> dict[str, str]:
    return {"PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"}


def fill(
    bench: Bench, count: int, size: int, partitions: int, *, name: str = "", values: Iterator[bytes] | None = None
) -> str:
    """A topic of these ``values``, or of random hexadecimal ones, which compress by half at best, as data does."""
    topic = name or f"export-{size}-{partitions}"
    with bench.sandbox.registry() as registry:
        create_topic(registry, topic, partitions)
    settings = KafkaSettings(bench.sandbox.bootstrap)
    client = producer(settings, linger_ms=50, batch_size=1_000_000, queue_buffering_max_messages=1_000_000)
    dice = random.Random(size)
    stock = dice.randbytes(1 << 20).hex().encode()
    for number in range(count):
        at = dice.randrange(len(stock) - size)
        value = stock[at : at + size] if values is None else next(values)
        while True:
            try:
                client.produce(topic, value, partition=number % partitions)
                break
            except BufferError:
                client.poll(0.1)
        if number % 10_000 == 0:
            client.poll(0)
    client.flush(120)
    found = log_offsets(settings, [TopicPartition(topic, p) for p in range(partitions)], 30)
    total = sum(log.end for log in found.values() if isinstance(log, LogRange))
    if total != count:
        raise SystemExit(f"topic {topic} holds {total} messages, not {count}")
    return topic


def _peer() -> tuple[str, str]:
    """The peer's Python, and the jars of its Kafka connector; installed and downloaded at their first use."""
    home = cache_dir() / "benchmarks" / f"spark-{PEER}"
    python, ivy = home / "venv" / "bin" / "python", home / "ivy"
    commands: list[list[str]] = []
    if not (home / "installed").exists():
        shutil.rmtree(home, ignore_errors=True)
        commands.append([sys.executable, "-m", "venv", str(home / "venv")])
        commands.append([str(python), "-m", "pip", "install", "--quiet", f"pyspark=={PEER}"])
    if not list((ivy / "jars").glob("*spark-avro*")):
        commands.append(_submit(home, ivy, ",".join(f"org.apache.spark:{name}_2.12:{PEER}" for name in _PACKAGES)))
    for command in commands:
        print(f"  {' '.join(command[:5])} …", file=sys.stderr, flush=True)
        subprocess.run(command, check=True, stdout=sys.stderr, env={**os.environ, **_environment(str(python))})
    (home / "installed").touch()
    jars = sorted(str(jar) for jar in (ivy / "jars").glob("*.jar"))
    return str(python), ",".join(jars)


def _submit(home: Path, ivy: Path, packages: str) -> list[str]:
    """Starts a Spark that downloads these and ends."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "nothing.py").write_text("", encoding="utf-8")
    command = [str(home / "venv" / "bin" / "spark-submit"), "--master", "local[1]", "--packages", packages]
    command += ["--conf", f"spark.jars.ivy={ivy}"]
    if settings := os.environ.get(IVY_SETTINGS):
        command += ["--conf", f"spark.jars.ivySettings={settings}"]
    return [*command, str(home / "nothing.py")]
