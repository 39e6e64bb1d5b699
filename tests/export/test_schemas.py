"""Keys and values by a schema: columns that every reader reads, messages that do not decode, and newer schemas."""

from __future__ import annotations

import doctest
import errno
import json
import os
import re
from collections.abc import Callable, Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli import run
from documented_examples import run_examples
from exports import files_in, messages_in, problems, published_in
from lines import names
from pyspark.sql import SparkSession
from typed_values import KEY, MOMENT, NEW, OLD, ORDER, WIDE, avro, by, encoded, order

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.errors import RefusedError, UsageError
from zkgroup.export.destination.run_log import Destination
from zkgroup.export.run.run_export import PartitionSummary
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import ProducerRecord, create_topic, produce
from zkgroup.schemas.field_schema import IncompatibleSchemaError

PAGE = Path(__file__).parents[2] / "docs/how-to/schemas.md"

Export = Callable[..., list[PartitionSummary]]


def test_every_reader_reads_the_columns(
    in_process: Export, make_topic: Callable[..., str], kafka: KafkaSettings, unique: Callable[[str], str],
    destination: Destination, spark: SparkSession, tmp_path: Path,
) -> None:  # fmt: skip
    """Structs, lists, maps, decimals, times, enums and nulls, with the message's own columns. What does not decode is
    in the raw column with its reason, and counts once; a tombstone is null in all three."""
    topic, out = make_topic(), tmp_path / "out"
    good = [ProducerRecord(encoded(ORDER, order(i)), b'{"shop": %d}' % i, 0, headers=(("h", b"1"),)) for i in range(4)]
    bad = [
        ProducerRecord(b"\x01", b"no json", 0),
        ProducerRecord(None, b'{"shop": 7}', 0),
        ProducerRecord(None, b"{}", 0),
        ProducerRecord(None, None, 0),
    ]
    produce(kafka, topic, [*good, *bad])
    (summary,) = in_process(unique("group"), topic, **by(ORDER, key=KEY))
    assert (summary.rows, summary.undecodable) == (6, 2)
    assert problems(destination) == []

    rows = messages_in(out)
    assert [row["value"] for row in rows] == [order(i) | {"tags": [("n", i)]} for i in range(4)] + [None] * 4
    assert [row["key"] and row["key"]["shop"] for row in rows] == [0, 1, 2, 3, None, 7, None, None]
    assert [row["headers"] for row in rows[:1]] == [[{"key": "h", "value": b"1"}]]
    assert [row["value_raw"] for row in rows[4:]] == [b"\x01", None, None, None]
    assert [row["key_raw"] for row in rows[4:]] == [b"no json", None, b"{}", None]
    assert [row["key_error"] is None for row in rows[4:]] == [False, True, False, True]
    assert [names(str(row["key_error"]), "$.shop") for row in rows[4:]] == [False, False, True, False]
    assert [row["value_error"] is None for row in rows[4:]] == [False, True, True, True]
    for row in rows[:4]:
        assert (row["value_raw"], row["value_error"], row["key_raw"], row["key_error"]) == (None,) * 4

    source = f"read_parquet('{out}/**/*.parquet', hive_partitioning=true)"
    found = duckdb.sql(
        f"SELECT value.id, value.state, value.lines[1].price, value.tags['n'], value.day, key.shop "
        f"FROM {source} WHERE value.id = 1"
    ).fetchall()
    assert found == [(1, "PAID", Decimal("1.25"), 1, date(2024, 5, 1), 1)]

    frame = spark.read.parquet(str(out))
    (row,) = (
        frame.where("value.id = 2")
        .selectExpr(
            "value.note", "value.lines[1].price price", "value.tags['n'] n", "cast(value.at as long) at", "key.shop"
        )
        .collect()
    )
    assert row.asDict() == {"note": "ü", "price": Decimal("2.25"), "n": 2, "at": MOMENT.timestamp(), "shop": 2}
    assert frame.where("value_error is not null or key_error is not null").count() == 2


def test_a_newer_schema_widens_the_columns(
    in_process: Export, make_topic: Callable[..., str], kafka: KafkaSettings, unique: Callable[[str], str],
    destination: Destination, spark: SparkSession, tmp_path: Path,
) -> None:  # fmt: skip
    """A new field, int → long, float → double. The columns stay so, also for an export by the older schema; and readers
    read the files of both."""
    topic, group, out = make_topic(), unique("group"), tmp_path / "out"
    old, new = {"id": 1, "inner": {"a": 0.5}}, {"id": 1 << 40, "inner": {"a": 0.1, "b": "x"}, "c": "y"}
    for schema, value in ((OLD, old), (NEW, new), (OLD, old)):
        produce(kafka, topic, [ProducerRecord(encoded(schema, value), None, 0)])
        assert in_process(group, topic, **by(schema))[0].rows == 1
    first, second, third = (pq.read_schema(out / name).field("value").type for name in published_in(out))
    assert (first.field("id").type, second, third) == (pa.int32(), WIDE, WIDE)
    assert problems(destination) == []

    widened = {"id": 1, "inner": {"a": 0.5, "b": None}, "c": None}
    wanted = [widened, new, widened]
    newest = out / published_in(out)[-1]
    (recipe,) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    found: dict[str, Any] = {"newest": newest}
    exec(recipe.replace('"lake"', repr(str(out))), found)  # what docs/how-to/schemas.md shows
    columns = ["partition", "offset", "value"]
    rows = [{"partition": 0, "offset": offset, "value": value} for offset, value in enumerate(wanted)]
    for table in (found["dataset"].to_table(), pa.Table.from_pandas(found["frame"])):
        assert set(table.column_names) >= {"topic", *columns}
        assert table.select(columns).sort_by("offset").to_pylist() == rows
    source = f"read_parquet('{out}/**/*.parquet', hive_partitioning=true, union_by_name=true)"
    assert [row for (row,) in duckdb.sql(f'SELECT value FROM {source} ORDER BY "offset"').fetchall()] == wanted
    frame = spark.read.schema(spark.read.parquet(str(newest)).schema).parquet(str(out)).orderBy("offset")
    assert [row.value.asDict(recursive=True) for row in frame.select("value").collect()] == wanted


def test_an_incompatible_schema_is_refused_before_anything_is_read(
    in_process: Export, make_topic: Callable[..., str], kafka: KafkaSettings, unique: Callable[[str], str],
    tmp_path: Path,
) -> None:  # fmt: skip
    """For any group and topic of the destination, also where nothing is new, with the field's path; and so is no
    schema, where there is one."""
    topic, other, group, out = make_topic(), make_topic(), unique("group"), tmp_path / "out"
    for name in (topic, other):
        produce(kafka, name, [ProducerRecord(encoded(OLD, {"id": 1, "inner": {"a": 0.5}}), None, 0)])
    in_process(group, topic, **by(OLD))
    before = files_in(out)
    points: list[str] = []
    wrong = avro(("id", "int"), ("inner", avro(("a", "string"), name="Inner")))
    with pytest.raises(IncompatibleSchemaError, match=r"\bvalue\.inner\.a\b.*\bfloat\b.*\bstring\b"):
        in_process(group, topic, on_point=points.append, **by(wrong))
    produce(kafka, topic, [ProducerRecord(b"", None, 0)])
    for one, name in ((group, topic), (unique("another"), other)):
        with pytest.raises(IncompatibleSchemaError, match=r"\bvalue\.inner\.a\b.*\bfloat\b.*\bstring\b"):
            in_process(one, name, on_point=points.append, **by(wrong))
    options = "--value-format avro --value-schema FILE"
    with pytest.raises(UsageError, match=options):
        in_process(group, topic, on_point=points.append)
    with pytest.raises(RefusedError, match=options):
        in_process(group, topic, on_point=points.append, **by(KEY, "json-schema"))
    assert points.count("planned") == 0
    assert files_in(out) == before


def test_of_two_first_exports_with_incompatible_schemas_one_is_refused(
    in_process: Export, make_topic: Callable[..., str], kafka: KafkaSettings, unique: Callable[[str], str],
    destination: Destination, tmp_path: Path,
) -> None:  # fmt: skip
    """Neither has seen the other's columns when it planned; the one that claims second leaves nothing."""
    topics, groups = [make_topic(), make_topic()], [unique("first"), unique("second")]
    schemas = [OLD, avro(("id", "string"))]
    values = [{"id": 1, "inner": {"a": 0.5}}, {"id": "x"}]
    for topic, schema, value in zip(topics, schemas, values, strict=True):
        produce(kafka, topic, [ProducerRecord(encoded(schema, value), None, 0)])
    inner: list[str] = []

    def second(passed: str) -> None:
        if passed == "files written" and not inner:
            inner.append(passed)
            in_process(groups[1], topics[1], **by(schemas[1]))

    with pytest.raises(RefusedError, match=r"\bvalue\.id\b.*\bstring\b.*\bint32\b"):
        in_process(groups[0], topics[0], on_point=second, **by(schemas[0]))
    assert (destination.groups(), destination.leftover_runs(groups[0])) == ([groups[1]], [])
    assert len(list((tmp_path / "out/_zkgroup/columns").iterdir())) == 1
    assert problems(destination) == []


def parse_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_consume_prints_what_an_export_writes(
    cluster: Sandbox, in_process: Export, make_topic: Callable[..., str], kafka: KafkaSettings,
    unique: Callable[[str], str], tmp_path: Path,
) -> None:  # fmt: skip
    """The same columns as JSON lines: decimals with all digits, times in UTC, maps as objects; and the same reasons."""
    topic, out = make_topic(), tmp_path / "out"
    records = [
        ProducerRecord(encoded(ORDER, order(1)), b'{"shop": 1}', 0),
        ProducerRecord(b"\xff", b"[]", 0),
        ProducerRecord(None, None, 0),
    ]
    produce(kafka, topic, records)
    value, key = tmp_path / "order.avsc", tmp_path / "key.json"
    value.write_text(json.dumps(ORDER))
    key.write_text(json.dumps(KEY))
    options = ["--value-format", "avro", "--value-schema", str(value), "--key-format", "json", "--key-schema", str(key)]
    done = run("-z", cluster.connect, "consume", topic, "--from-beginning", "--until-end", *options)
    assert (done.returncode, done.stderr) == (0, "")
    good, bad, empty = parse_lines(done.stdout)
    assert (good["key"], good["value"]) == (
        {"shop": 1},
        {
            "id": 1, "at": "2024-05-01T12:00:00Z", "day": "2024-05-01", "state": "PAID", "note": None,
            "lines": [{"sku": "s1", "price": 1.25}], "tags": {"n": 1},
        },
    )  # fmt: skip
    assert '"price":1.25' in done.stdout
    assert "value_error" not in good
    assert (empty["key"], empty["value"], "value_error" in empty) == (None, None, False)

    in_process(unique("group"), topic, **by(ORDER, key=KEY))
    written = messages_in(out)[1]
    assert (bad["key"], bad["value"]) == (written["key"], written["value"]) == (None, None)
    assert (bad["key_raw"], bad["value_raw"]) == ("[]", {"base64": "/w=="})
    assert [bad[name] for name in ("key_error", "value_error")] == [written["key_error"], written["value_error"]]


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        (["--value-format", "avro"], ["--value-format avro", "--value-schema FILE"]),
        (["--value-schema", "x"], ["--value-schema", "--value-format avro"]),
        (["--key-schema", "x", "--key-format", "json"], ["--key-schema x", os.strerror(errno.ENOENT)]),
        (["--value-format", "avro", "--value-schema", "WRONG"], ["$.a", 2]),
    ],
)
@pytest.mark.parametrize("command", [["consume", "t"], ["export", "t", "-g", "g", "--to", "out"]])
def test_a_schema_that_cannot_be_used_is_one_line(
    command: Sequence[str], options: Sequence[str], facts: Sequence[object], tmp_path: Path
) -> None:
    """Before a server is asked: none is named."""
    wrong = tmp_path / "wrong.avsc"
    wrong.write_text(json.dumps(avro(("a", ["int", "string"]))))
    done = run("-z", "localhost:1", *command, *(str(wrong) if one == "WRONG" else one for one in options))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert names(done.stderr, *facts)


def test_the_example_of_the_page(
    cluster: Sandbox, registry: Registry, kafka: KafkaSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ``docs/how-to/schemas.md`` shows is what the commands and DuckDB print."""
    monkeypatch.setenv("ZKGROUP_ZOOKEEPER", cluster.connect)
    schema = re.search(r"```json\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert schema is not None
    (tmp_path / "order.json").write_text(schema[1])
    create_topic(registry, "web-orders", 1)
    values = [
        '{"id": 1, "at": "2024-05-01T12:00:00+02:00", "lines": [{"sku": "tea", "price": 4.5}], "web": true}',
        '{"id": "two", "at": "2024-05-01T12:00:01+02:00"}',
        '{"id": 3, "at": "2024-05-01T12:00:02+02:00", "note": "gift", "lines": []}',
    ]
    at = round(MOMENT.timestamp() * 1000)
    produce(kafka, "web-orders", [ProducerRecord(value.encode(), b"k", 0, at + i) for i, value in enumerate(values)])
    assert run_examples(PAGE, tmp_path) == 2
    monkeypatch.chdir(tmp_path)
    test = doctest.DocTestParser().get_doctest(PAGE.read_text("utf-8"), {}, PAGE.name, str(PAGE), 0)
    said: list[str] = []
    result = doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    assert (result.attempted, result.failed) == (5, 0), "".join(said)
