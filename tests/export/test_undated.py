"""Messages without a time, and with one that no calendar has: every reader reads them, and nothing is lost."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.export.checks.verify import verify
from zkgroup.export.destination.run_log import Destination
from zkgroup.export.model.layout import LayoutOptions
from zkgroup.export.run.run_export import PartitionSummary
from zkgroup.export.stores.store import FolderStore
from zkgroup.sandbox.topic_admin import ProducerRecord, produce

Export = Callable[..., list[PartitionSummary]]
NOON = 1_714_564_800_000  # 2024-05-01T12:00Z
NANOSECONDS = NOON * 1_000_000
#: The last one that is a time, and the first one that is none.
LAST = 253_402_128_000_000 - 1
DAY, NO_DAY = dt.date(2024, 5, 1), dt.date(1, 1, 1)


def export_times(
    in_process: Export, kafka: KafkaSettings, topic: str, group: str, out: Path, times: list[int], by: tuple[str, ...]
) -> None:
    """Export a message of each time, its place as its value."""
    produce(kafka, topic, [ProducerRecord(b"%d" % i, b"k", 0, time) for i, time in enumerate(times)])
    in_process(group, topic, root=out, layout=LayoutOptions(by, None, "text", "text"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("times", "days"),
    [
        ([NOON], [(DAY, 12)]),
        ([NANOSECONDS], [(NO_DAY, -1)]),
        ([NOON, NANOSECONDS, NOON + 1], [(NO_DAY, -1), (DAY, 12), (DAY, 12)]),
    ],
    ids=["dated", "undated", "mixed"],
)
def test_every_reader_reads_days_and_what_has_none(
    in_process: Export, make_topic: Callable[..., str], kafka: KafkaSettings, unique: Callable[[str], str],
    spark: SparkSession, tmp_path: Path, times: list[int], days: list[tuple[dt.date, int]],
) -> None:  # fmt: skip
    """By the calls that the page gives, date and hour are a date and a number in Spark and DuckDB, text and a number in
    pandas and pyarrow, whether all messages have a time, none, or some."""
    topic, out = make_topic(), tmp_path / "out"
    export_times(in_process, kafka, topic, unique("group"), out, times, ("date", "hour"))
    frame = spark.read.parquet(str(out))
    assert sorted((row.date, row.hour) for row in frame.collect()) == days
    duck = duckdb.connect()
    source = f"read_parquet('{out}/**/*.parquet', hive_partitioning=true)"
    assert duck.execute(f"SELECT date, hour FROM {source} ORDER BY ALL").fetchall() == days
    written = [(day.isoformat(), hour) for day, hour in days]
    tables = [pq.read_table(out), pq.read_table(str(out)), ds.dataset(out, partitioning="hive").to_table()]
    for table in tables:
        assert sorted((row["date"], row["hour"]) for row in table.to_pylist()) == written
    pandas = pd.read_parquet(out)
    assert sorted(zip(pandas["date"].astype(str), pandas["hour"].astype(int), strict=True)) == written
    that_day = pd.read_parquet(out, filters=[("date", "=", "2024-05-01")])
    assert len(that_day) == frame.where("date = '2024-05-01'").count() == days.count((DAY, 12))


def test_every_reader_reads_times_that_no_calendar_has(
    in_process: Export, make_topic: Callable[..., str], kafka: KafkaSettings, unique: Callable[[str], str],
    spark: SparkSession, tmp_path: Path,
) -> None:  # fmt: skip
    """Nanoseconds, the largest number, a year behind 9999, a negative one: null as a time, whole as a number, counted;
    the last time of the calendar is one, everywhere. Least and largest time, and all rows."""
    topic, out, group = make_topic(), tmp_path / "out", unique("group")
    times = [NOON, NANOSECONDS, (1 << 63) - 1, LAST, LAST + 1, 1 << 62, -5]
    export_times(in_process, kafka, topic, group, out, times, ("partition",))
    usable = {NOON, LAST}
    raw = [None if time in usable else time for time in times]
    read = [time if time in usable else None for time in times]

    frame = spark.read.parquet(str(out))
    low, high = frame.selectExpr("unix_millis(min(timestamp))", "unix_millis(max(timestamp))").collect()[0]
    assert (low, high) == (NOON, LAST)
    assert frame.selectExpr("min(timestamp)", "max(timestamp)").collect()[0][0] is not None
    assert [row.timestamp_raw for row in frame.orderBy("offset").collect()] == raw

    duck = duckdb.connect()
    duck.execute("SET TimeZone = 'UTC'")
    source = f"read_parquet('{out}/**/*.parquet', hive_partitioning=true)"
    assert duck.execute(f"SELECT epoch_ms(min(timestamp)), epoch_ms(max(timestamp)) FROM {source}").fetchone() == (
        NOON, LAST,
    )  # fmt: skip
    columns = "epoch_ms(timestamp), timestamp_raw, timestamp::VARCHAR IS NULL"
    assert duck.execute(f'SELECT {columns} FROM {source} ORDER BY "offset"').fetchall() == [
        (time, number, time is None) for time, number in zip(read, raw, strict=True)
    ]
    duck.execute(f"CREATE TABLE everything AS SELECT * FROM {source}")
    assert duck.execute("SELECT count(*) FROM everything").fetchall() == [(len(times),)]

    table = pq.read_table(out).sort_by("offset")
    at = [None if row["timestamp"] is None else row["timestamp"].timestamp() for row in table.to_pylist()]
    assert [None if one is None else round(one * 1000) for one in at] == read
    assert table["timestamp_raw"].to_pylist() == raw

    pandas = pd.read_parquet(out).sort_values("offset")
    assert len(str(pandas).splitlines()) >= len(times)
    assert pandas["timestamp"].isna().tolist() == [time is None for time in read]
    assert pandas["timestamp"].max().year == 9999

    destination = Destination(FolderStore(out))
    assert [row.problem for row in verify(destination) if row.problem] == []
