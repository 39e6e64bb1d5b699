"""What exports hold: messages as they were, in files that every reader understands."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from exports import FOLDERS, messages_in
from pyspark.sql import SparkSession

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.export.run.run_export import PartitionSummary
from zkgroup.sandbox.topic_admin import ProducerRecord, create_topic, produce

Export = Callable[..., list[PartitionSummary]]
MakeTopic = Callable[..., str]
NOON = 1_600_000_000_000  # 2020-09-13T12:26:40Z


def test_messages_come_as_they_are(
    export: Export, make_topic: MakeTopic, kafka: KafkaSettings, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """Tombstones, null and empty keys and values, bytes that are no text, headers without a value, times."""
    topic = make_topic()
    records = [
        ProducerRecord(None, b"tombstone", 0, NOON),
        ProducerRecord(b"no key", None, 0, NOON + 1),
        ProducerRecord(b"", b"", 0, NOON + 2),
        ProducerRecord(bytes(range(256)), b"\xff\x00", 0, NOON + 3),
        ProducerRecord(b"h", b"k", 0, NOON + 4, (("a", b"1"), ("b", None), ("a", b""), ("ü", b"\xff"))),
    ]
    produce(kafka, topic, records)
    (summary,) = export(unique("group"), topic)
    assert (summary.rows, summary.files) == (5, 1)
    found = messages_in(tmp_path / "out")
    assert [(row["key"], row["value"]) for row in found] == [(record.key, record.value) for record in records]
    assert [row["timestamp"] for row in found] == [
        datetime.fromtimestamp((NOON + i) / 1000, UTC) for i in range(5)
    ]  # exact: these milliseconds are floats
    assert {row["timestamp_type"] for row in found} == {"CreateTime"}
    assert [row["headers"] for row in found[:4]] == [None] * 4
    assert found[4]["headers"] == [
        {"key": "a", "value": b"1"},
        {"key": "b", "value": None},
        {"key": "a", "value": b""},
        {"key": "ü", "value": b"\xff"},
    ]


def test_the_schema_is_the_documented_one(
    export: Export, make_topic: MakeTopic, fill: Callable[..., list[ProducerRecord]], unique: Callable[[str], str],
    tmp_path: Path,
) -> None:  # fmt: skip
    """Names, order and types of the columns, statistics that let readers skip, and where a file says it comes from."""
    topic, group = make_topic(), unique("group")
    fill(topic, 10)
    export(group, topic)
    (path,) = (tmp_path / "out").rglob("*.parquet")
    assert path.relative_to(tmp_path / "out") == Path(f"topic={topic}/partition=0/0-10.parquet")
    file = pq.ParquetFile(path)
    pair = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    assert [(field.name, field.type) for field in file.schema_arrow] == [
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("timestamp_type", pa.string()),
        ("timestamp_raw", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.field("element", pair))),
    ]
    group_of_rows = file.metadata.row_group(0)
    columns = {group_of_rows.column(i).path_in_schema: group_of_rows.column(i) for i in range(6)}
    assert (columns["offset"].statistics.min, columns["offset"].statistics.max) == (0, 9)
    assert columns["timestamp"].statistics.has_min_max
    assert columns["value"].statistics is None or not columns["value"].statistics.has_min_max
    assert columns["value"].compression == "ZSTD"
    metadata = {key.decode(): value.decode() for key, value in file.metadata.metadata.items()}
    assert metadata.pop("zkgroup.run").startswith(f"{group}@")
    assert metadata.pop("zkgroup.version")
    assert metadata.pop("zkgroup.file")
    assert metadata == {
        "zkgroup.group": group,
        "zkgroup.topic": topic,
        "zkgroup.partition": "0",
        "zkgroup.start": "0",
        "zkgroup.end": "10",
        "zkgroup.ranges": "[[0,0,10,10]]",
    }


def test_every_reader_sees_all_columns(
    export: Export, registry: Registry, kafka: KafkaSettings, unique: Callable[[str], str], spark: SparkSession,
    tmp_path: Path,
) -> None:  # fmt: skip
    """Spark, pyarrow and DuckDB read one folder alike, also a topic that is a number and one that starts with ``_``."""
    names = ["".join(filter(str.isdigit, unique("n"))), f"_{unique('hidden')}"]
    for name in names:
        create_topic(registry, name)
        produce(kafka, name, [ProducerRecord(b"v%d" % i, b"k", 0, NOON, (("h", b"x"),)) for i in range(5)])
    export(unique("group"), *names)
    out = tmp_path / "out"
    expected = {(name, 0, i, b"v%d" % i) for name in names for i in range(5)}
    columns = {"topic", "partition", "offset", "timestamp", "timestamp_type", "timestamp_raw"}
    columns |= {"key", "value", "headers"}

    arrow = pq.read_table(out)
    assert set(arrow.column_names) == columns
    assert {(r["topic"], r["partition"], r["offset"], r["value"]) for r in arrow.to_pylist()} == expected

    frame = spark.read.parquet(str(out))
    assert set(frame.columns) == columns
    assert {(r.topic, r.partition, r.offset, bytes(r.value)) for r in frame.collect()} == expected
    times = frame.selectExpr("unix_millis(timestamp)", "timestamp_type", "headers[0].key").distinct().collect()
    assert [tuple(row) for row in times] == [(NOON, "CreateTime", "h")]

    duck = duckdb.connect()
    source = f"read_parquet('{out}/**/*.parquet')"
    assert {row[0] for row in duck.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()} == columns
    query = f'SELECT topic, partition, "offset", "value", epoch_ms("timestamp"), headers[1]."key" FROM {source}'
    assert set(duck.execute(query).fetchall()) == {(*row, NOON, "h") for row in expected}


def test_a_folder_of_numbers_is_read_as_documented(
    export: Export, registry: Registry, kafka: KafkaSettings, unique: Callable[[str], str], spark: SparkSession,
    tmp_path: Path,
) -> None:  # fmt: skip
    """Where every topic is a number, readers guess one, and the ways that ``output`` names keep it a string."""
    name = "00" + "".join(filter(str.isdigit, unique("n")))
    create_topic(registry, name)
    produce(kafka, name, [ProducerRecord(b"v", None, 0)])
    export(unique("group"), name)
    out = tmp_path / "out"
    assert pq.read_table(out)["topic"].to_pylist() == [int(name)]  # the guess: not an error, but not the name
    assert ds.dataset(out, partitioning=FOLDERS).to_table()["topic"].to_pylist() == [name]
    assert pq.read_table(out, partitioning=FOLDERS)["topic"].to_pylist() == [name]
    spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    try:
        assert [row.topic for row in spark.read.parquet(str(out)).collect()] == [name]
    finally:
        spark.conf.unset("spark.sql.sources.partitionColumnTypeInference.enabled")
    query = f"SELECT topic FROM read_parquet('{out}/**/*.parquet', hive_types={{'topic': VARCHAR}})"
    assert duckdb.connect().execute(query).fetchall() == [(name,)]
