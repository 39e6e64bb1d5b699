"""Exports in each layout: what lies where, who reads it, and that every offset is accounted for."""

from __future__ import annotations

import doctest
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from exports import files_in, join_lines, mismatches_of, problem_rows, published_in
from lines import names
from pyspark.sql import SparkSession

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import RefusedError
from zkgroup.export.checks.run_reports import history
from zkgroup.export.destination.run_log import Destination
from zkgroup.export.model.layout import NO_DATE, LayoutOptions
from zkgroup.export.planning.mismatch import MismatchError
from zkgroup.export.run.run_export import PartitionSummary
from zkgroup.export.stores.store import FolderStore
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.topic_admin import ProducerRecord, create_topic, produce

Export = Callable[..., list[PartitionSummary]]
BERLIN = "Europe/Berlin"
HOURS = LayoutOptions(("date", "hour"), BERLIN)
FOLDERS = ds.partitioning(
    pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("date", pa.string()), ("hour", pa.int32())]),
    flavor="hive",
)


def millis_at(*moment: int, fold: int = 0) -> int:
    """A time of Berlin's clock, in milliseconds since 1970."""
    return round(datetime(*moment, tzinfo=ZoneInfo(BERLIN), fold=fold).timestamp() * 1000)  # type: ignore[misc]


def rows(out: Path) -> list[dict[str, Any]]:
    """All messages, by partition and offset."""
    found = ds.dataset(out, partitioning=FOLDERS, exclude_invalid_files=False).to_table().to_pylist()
    return sorted(found, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def problems(out: Path) -> str:
    """What verification finds, a line each."""
    return join_lines(row.problem for row in problem_rows(Destination(FolderStore(out))))


def test_many_small_ranges_make_one_file(
    in_process: Export, make_topic: Callable[..., str], fill: Callable[..., object], unique: Callable[[str], str],
    commit: Callable[..., None], tmp_path: Path,
) -> None:  # fmt: skip
    """Without folders for partitions a task's ranges share a file; its name and footer list them, the account is the
    same, and an offset that was set back is refused."""
    topic, group, out = make_topic(8), unique("group"), tmp_path / "out"
    fill(topic, 80, 8)
    first = in_process(group, topic, layout=LayoutOptions(()))
    assert [(row.start, row.end, row.rows, row.files) for row in first] == [(0, 10, 10, 1)] * 8
    fill(topic, 8, 8)
    in_process(group, topic)
    destination = Destination(FolderStore(out))
    one, two = sorted(published_in(out))
    runs = [entry.run for entry in destination.entries(group)]
    assert (one, two) == (f"topic={topic}/0.0-10+7.{runs[0]}.parquet", f"topic={topic}/0.10-11+7.{runs[1]}.parquet")
    assert sum(row.bytes for row in first) == (out / one).stat().st_size
    assert [(row["partition"], row["offset"]) for row in rows(out)] == [(p, i) for p in range(8) for i in range(11)]
    metadata = pq.read_metadata(out / one)
    assert metadata.metadata[b"zkgroup.ranges"].decode() == str([[p, 0, 10, 10] for p in range(8)]).replace(" ", "")
    assert problems(out) == ""
    assert [(row.rows, row.files) for row in history(destination)] == [(80, 1), (8, 1)]

    commit(group, {TopicPartition(topic, 5): 3})
    with pytest.raises(MismatchError) as refused:
        in_process(group, topic)
    assert mismatches_of(refused.value) == [(TopicPartition(topic, 5), "behind", 3, 11)]


def test_times_that_no_calendar_has_are_verified(
    in_process: Export, make_topic: Callable[..., str], kafka: KafkaSettings, unique: Callable[[str], str],
    tmp_path: Path,
) -> None:  # fmt: skip
    """Behind the year 9999: in the folder of no day, with messages without a time; and wrong in any other."""
    topic, out = make_topic(), tmp_path / "out"
    times = [253_402_300_800_999, 1_700_000_000_000, (1 << 62)]
    produce(kafka, topic, [ProducerRecord(b"", None, 0, moment) for moment in times])
    in_process(unique("group"), topic, layout=LayoutOptions(("date",)))
    assert problems(out) == ""
    never, day = sorted(out.glob("topic=*/date=*/*.parquet"))
    assert f"date={NO_DATE}/" in str(never)
    named = day.parent / never.name
    never.rename(named)
    assert names(problems(out), named.relative_to(out))


def test_messages_lie_in_the_folders_of_their_hours(
    in_process: Export, make_topic: Callable[..., str], kafka: KafkaSettings, unique: Callable[[str], str],
    tmp_path: Path,
) -> None:  # fmt: skip
    """On the day with 25 hours, the hour that comes twice is one folder; late messages go back to their own, and are
    counted, over runs as well; what has no usable time is in the folder of no day."""
    topic, group, out = make_topic(), unique("group"), tmp_path / "out"
    twice = [millis_at(2024, 10, 27, 2, 30), millis_at(2024, 10, 27, 2, 30, fold=1)]
    assert twice[1] - twice[0] == 3_600_000
    times = [
        millis_at(2024, 10, 26, 23, 59, 59),
        *twice,
        millis_at(2024, 10, 27, 3),
        millis_at(2024, 10, 26, 12),
        millis_at(9999, 12, 31, 23),
    ]
    produce(kafka, topic, [ProducerRecord(b"v%d" % i, None, 0, time) for i, time in enumerate(times)])
    (summary,) = in_process(group, topic, layout=HOURS)
    assert (summary.rows, summary.files, summary.late) == (6, 5, 1)
    folder = f"topic={topic}"
    assert published_in(out) == sorted(
        [
            f"{folder}/date=2024-10-26/hour=12/0.4-5.parquet",
            f"{folder}/date=2024-10-26/hour=23/0.0-1.parquet",
            f"{folder}/date=2024-10-27/hour=2/0.1-3.parquet",
            f"{folder}/date=2024-10-27/hour=3/0.3-4.parquet",
            f"{folder}/date={NO_DATE}/hour=-1/0.5-6.parquet",
        ]
    )
    assert [row["offset"] for row in rows(out) if row["date"] == "2024-10-27" and row["hour"] == 2] == [1, 2]
    produce(
        kafka,
        topic,
        [ProducerRecord(b"late", None, 0, millis_at(2024, 10, 27, 2, 45)), ProducerRecord(b"now", None, 0)],
    )
    (summary,) = in_process(group, topic)
    assert (summary.rows, summary.files, summary.late) == (2, 2, 1)
    assert problems(out) == ""
    destination = Destination(FolderStore(out))
    parts = [record.partitions[0] for record in destination.records(group)]
    assert [(part.late, part.rows) for part in parts] == [(1, 6), (1, 2)]

    here = out / folder / "date=2024-10-27"
    shutil.move(here / "hour=3" / "0.3-4.parquet", here / "hour=2" / "0.3-4.parquet")
    found = [(row.topic, row.mend, str(row.problem)) for row in problem_rows(destination)]
    (gone, (_, mend, stray)) = found
    assert (gone[:2], names(gone[2], "hour=3/0.3-4.parquet")) == ((topic, "backfill"), True)
    assert (mend, names(stray, "hour=2/0.3-4.parquet")) == ("person", True)


def test_a_destination_keeps_the_layout_of_its_first_run(
    in_process: Export, make_topic: Callable[..., str], fill: Callable[..., object], unique: Callable[[str], str],
    tmp_path: Path,
) -> None:  # fmt: skip
    """Another one is refused, for every group and topic, before anything is written; not asking is going on."""
    topics, groups, out = [make_topic(), make_topic()], [unique("a"), unique("b")], tmp_path / "out"
    for topic in topics:
        fill(topic, 10)

    in_process(groups[0], topics[0], layout=HOURS)
    before = files_in(out)
    for wish in (LayoutOptions(("date",)), LayoutOptions(zone="UTC"), LayoutOptions(value="json")):
        with pytest.raises(RefusedError, match="--partition-by date,hour --time-zone Europe/Berlin"):
            in_process(groups[1], topics[1], layout=wish)
    assert files_in(out) == before
    assert in_process(groups[1], topics[1])[0].rows == 10
    assert all("/hour=" in name for name in published_in(out))
    assert problems(out) == ""


@pytest.mark.parametrize("point", ["files written", "topics claimed"])
def test_of_two_first_exports_with_other_layouts_one_is_refused(
    in_process: Export, make_topic: Callable[..., str], fill: Callable[..., object], unique: Callable[[str], str],
    destination: Destination, point: str,
) -> None:  # fmt: skip
    """Neither has seen anything when it planned; the one that claims second sees it, and leaves nothing."""
    topics, groups = [make_topic(), make_topic()], [unique("first"), unique("second")]
    for topic in topics:
        fill(topic, 10)
    inner: list[str] = []

    def second(passed: str) -> None:
        if passed == point and not inner:
            inner.append(passed)
            in_process(groups[1], topics[1], layout=HOURS)

    with pytest.raises(RefusedError) as refused:
        in_process(groups[0], topics[0], on_point=second)
    if point == "files written":
        assert names(refused.value.message, destination)
        assert destination.groups() == [groups[1]]
    else:
        assert names(refused.value.message, destination, "--partition-by partition")
        assert destination.groups() == []
    assert destination.leftover_runs(groups[0]) == []
    in_process(groups[0], topics[0])
    assert problem_rows(destination) == []


def test_what_cannot_be_decoded_is_counted_in_the_record(
    in_process: Export, make_topic: Callable[..., str], kafka: KafkaSettings, unique: Callable[[str], str],
    tmp_path: Path,
) -> None:  # fmt: skip
    """``rows + undecodable`` messages are in the file: the wrong ones by their bytes, in a column of their own."""
    topic, out = make_topic(), tmp_path / "out"
    values = [b'{"a": 1}', b"{", None, b"\xff", b"[]"]
    produce(kafka, topic, [ProducerRecord(value, b"k", 0) for value in values])
    (summary,) = in_process(
        unique("group"), topic, layout=LayoutOptions(key="text", value="json"), compression="zstd:9"
    )
    assert (summary.rows, summary.undecodable) == (3, 2)
    found = rows(out)
    assert [(row["key"], row["value"], row["value_raw"]) for row in found] == [
        ("k", '{"a": 1}', None), ("k", None, b"{"), ("k", None, None), ("k", None, b"\xff"), ("k", "[]", None),
    ]  # fmt: skip
    assert problems(out) == ""


def test_files_are_cut_at_their_size_in_each_layout(
    in_process: Export, make_topic: Callable[..., str], kafka: KafkaSettings, unique: Callable[[str], str],
    tmp_path: Path,
) -> None:  # fmt: skip
    """Random bytes in three hours: each hour's files are about as large as asked for, and together they hold all."""
    topic, out = make_topic(2), tmp_path / "out"
    generator = random.Random(5)
    start = millis_at(2024, 5, 1, 10)
    records = [ProducerRecord(generator.randbytes(5000), None, i % 2, start + i * 12_000) for i in range(900)]
    produce(kafka, topic, records)
    rows_of = in_process(unique("group"), topic, layout=HOURS, target_bytes=500_000)
    assert [row.rows for row in rows_of] == [450, 450]
    sizes = [(out / name).stat().st_size for name in published_in(out)]
    assert len(sizes) == 6
    assert max(sizes) < 1_000_000
    assert [row["value"] for row in rows(out) if row["partition"] == 0] == [r.value for r in records[0::2]]
    assert problems(out) == ""


@pytest.fixture
def readable(
    in_process: Export, registry: Registry, kafka: KafkaSettings, unique: Callable[[str], str], tmp_path: Path
) -> tuple[Path, str]:
    """A destination by date and hour, with JSON in it, of two partitions; and its topic."""
    topic = unique("orders")
    create_topic(registry, topic, 2)
    produce(
        kafka,
        topic,
        [ProducerRecord(b'{"n": %d}' % i, b"k", i % 2, millis_at(2024, 10, 27, 1) + i * 1_800_000) for i in range(10)]
        + [ProducerRecord(b"no json", b"k", 0, millis_at(2024, 10, 28, 1))],
    )
    in_process(unique("group"), topic, layout=LayoutOptions(("date", "hour"), BERLIN, "text", "json"))
    return tmp_path / "out", topic


# By hour: 1, 2 (twice as long), 3, 4; and one on the next day.
EXPECTED = [(1, 2), (2, 4), (3, 2), (4, 2)]


def test_every_reader_reads_days_and_hours(readable: tuple[Path, str], spark: SparkSession) -> None:
    """Spark and DuckDB see a date and a number, pyarrow and pandas a string and a number; values are text; and each
    reads only the folders that it is asked for."""
    out, _ = readable
    frame = spark.read.parquet(str(out))
    types = dict(frame.dtypes)
    assert (types["date"], types["hour"], types["partition"]) == ("date", "int", "int")
    assert (types["key"], types["value"], types["value_raw"]) == ("string", "string", "binary")
    assert types["timestamp"] == "timestamp"
    counts = frame.where("date = '2024-10-27'").groupBy("hour").count().orderBy("hour").collect()
    assert [tuple(row) for row in counts] == EXPECTED

    duck = duckdb.connect()
    source = f"read_parquet('{out}/**/*.parquet', hive_partitioning=true)"
    described = {row[0]: row[1] for row in duck.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()}
    assert (described["date"], described["hour"], described["partition"]) == ("DATE", "BIGINT", "INTEGER")
    assert (described["value"], described["timestamp"]) == ("VARCHAR", "TIMESTAMP WITH TIME ZONE")
    query = f"SELECT hour, count(*) FROM {source} WHERE date = DATE '2024-10-27' GROUP BY hour ORDER BY hour"
    assert duck.execute(query).fetchall() == EXPECTED

    pandas = pd.read_parquet(out, filters=[("date", "=", "2024-10-27")])
    assert [(int(h), int(n)) for h, n in pandas.groupby("hour", observed=True).size().items()] == EXPECTED
    assert str(pandas["timestamp"].dtype) == "datetime64[ms, UTC]"
    assert set(pandas["value"]) == {f'{{"n": {i}}}' for i in range(10)}

    arrow = pq.read_table(out, filters=[("hour", "=", 2)])
    assert arrow.num_rows == 4
    assert arrow.schema.field("value").type == pa.string()
    assert date(2024, 10, 28) in {row.date for row in frame.where("value_raw is not null").select("date").collect()}


def test_row_groups_tell_partition_offset_and_time(readable: tuple[Path, str]) -> None:
    """Readers skip by them."""
    out, _ = readable
    for path in out.rglob("*.parquet"):
        group = pq.read_metadata(path).row_group(0)
        columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
        for name in ("partition", "offset", "timestamp"):
            assert columns[name].statistics.has_min_max, name
        assert columns["value"].statistics is None or not columns["value"].statistics.has_min_max


def test_the_examples_of_the_page_are_right(
    in_process: Export, registry: Registry, kafka: KafkaSettings, spark: SparkSession, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """What ``docs/reference/export-files.md`` shows of DuckDB, pandas, pyarrow and Spark is what they say."""
    topic = "shop-orders"
    create_topic(registry, topic, 2)
    orders = [
        ProducerRecord(b'{"n": %d}' % i, b"k", i % 2, millis_at(2024, 10, 27, 1) + i * 1_800_000) for i in range(10)
    ]
    produce(kafka, topic, [*orders, ProducerRecord(b"no json", b"k", 0, millis_at(2024, 10, 28, 1))])
    layout = LayoutOptions(("date", "hour"), BERLIN, None, "json")
    in_process("archive", topic, root=tmp_path / "lake", layout=layout)
    in_process("tables", topic, root=tmp_path / "tables", layout=replace(layout, format="delta"))
    in_process("iceberg", topic, root=tmp_path / "iceberg", layout=replace(layout, format="iceberg", zone=None))
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[2] / "docs" / "reference" / "export-files.md"
    text = page.read_text(encoding="utf-8").replace('read.parquet("lake")', f'read.parquet("{tmp_path}/lake")')
    test = doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)
    said: list[str] = []
    result = doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    assert result.attempted > 10
    assert result.failed == 0, "".join(said)
