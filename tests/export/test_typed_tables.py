"""Keys and values by a schema in Delta and Iceberg tables: what readers find, newer schemas, and schemas that other
engines have changed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, time
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.schema import Field, PrimitiveType, StructType
from export_points import Export, Points
from exports import files_in, problems, table_in, verify_output
from foreign_readers import RELEASES, foreign_spark
from pyiceberg.catalog import load_catalog
from pyiceberg.types import LongType, StringType
from typed_values import KEY, MOMENT, NEW, OLD, ORDER, WIDE, avro, by, encoded, order
from walked_tables import walked_table

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.errors import RefusedError, ZkgroupError
from zkgroup.export.checks.verify import verify
from zkgroup.export.destination.run_log import Destination
from zkgroup.export.model.choices import TableKind
from zkgroup.export.model.layout import table_name
from zkgroup.export.planning.export_request import LATEST
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import ProducerRecord, produce
from zkgroup.schemas.field_schema import IncompatibleSchemaError, SchemaError

BOTH = pytest.mark.parametrize("kind", ["delta", "iceberg"])
AT_NOON = {"type": "int", "logicalType": "time-millis"}


class Lake:
    """The tables of one format in a destination, and topics whose values have a schema."""

    def __init__(self, export: Export, kafka: KafkaSettings, out: Path, group: str) -> None:
        self._export, self._kafka, self.out, self._group = export, kafka, out, group

    def more(self, kind: TableKind, topic: str, schema: Any, *values: Any, key: Any = None, **options: Any) -> int:
        """Export values (bytes as they are), and return how many rows of them decode."""
        datas = [one if isinstance(one, bytes) else encoded(schema, one) for one in values]
        produce(self._kafka, topic, [ProducerRecord(data, b'{"shop": 7}' if key else None, 0) for data in datas])
        rows = self._export(self._group, topic, **(by(schema, key=key, into=kind) | options))
        return sum(row.rows for row in rows)

    def table(self, kind: TableKind, topic: str) -> Any:
        if kind == "delta":
            return table_in(self.out, topic)
        catalog = load_catalog("zkgroup", type="sql", uri=f"sqlite:///{self.out}/_zkgroup/catalog.db")
        return catalog.load_table(("kafka", table_name(topic)))

    def arrow(self, kind: TableKind, topic: str) -> Any:
        """All rows, as the format's own library reads them."""
        table = self.table(kind, topic)
        read = table.to_pyarrow_table() if kind == "delta" else table.scan().to_arrow()
        return read.sort_by("offset")

    def values(self, kind: TableKind, topic: str) -> list[Any]:
        return list(self.arrow(kind, topic)["value"].to_pylist())


def fields(properties: Any) -> dict[str, Any]:
    """The options of an export of JSON with these fields into Iceberg."""
    return by({"type": "object", "properties": properties}, "json-schema", into="iceberg")


@pytest.fixture
def lake(in_process: Export, kafka: KafkaSettings, tmp_path: Path, unique: Callable[[str], str]) -> Lake:
    return Lake(in_process, kafka, tmp_path / "out", unique("group"))


@BOTH
def test_every_reader_finds_the_columns(
    lake: Lake, make_topic: Callable[..., str], destination: Destination, kind: TableKind
) -> None:
    """Structs, lists, maps, decimals, times and nulls, of the right types: deltalake and pyiceberg, pyarrow, DuckDB and
    pandas. What does not decode is in the raw column with its reason."""
    topic = make_topic()
    fields = [(field["name"], field["type"]) for field in ORDER["fields"]]
    more = {"ms": {"type": "long", "logicalType": "timestamp-millis"}}
    more |= {"local": {"type": "long", "logicalType": "local-timestamp-micros"}}
    more |= {"noon": AT_NOON} if kind == "iceberg" else {}
    wide = avro(*fields, *more.items())
    given = {"ms": MOMENT, "local": MOMENT.replace(tzinfo=None), "noon": time(12, 0, 0, 5000)}
    given = {name: given[name] for name in more}
    assert lake.more(kind, topic, wide, *(order(i) | given for i in range(4)), b"\x01", key=KEY) == 4
    assert [(row.rows, row.undecodable, row.problem) for row in verify(destination)] == [(4, 1, None)]

    arrow = lake.arrow(kind, topic)
    rows = arrow.to_pylist()
    assert [row["value"] for row in rows] == [order(i) | given | {"tags": [("n", i)]} for i in range(4)] + [None]
    assert [row["key"] for row in rows] == [{"shop": 7}] * 5
    assert [row["value_raw"] for row in rows] == [None] * 4 + [b"\x01"]
    assert rows[4]["value_error"]
    kinds = {field.name: field.type for field in arrow.schema.field("value").type}
    assert kinds["id"] == pa.int32()
    assert kinds["at"] == kinds["ms"] == pa.timestamp("us", "UTC")
    assert (kinds["local"], kinds["day"]) == (pa.timestamp("us"), pa.date32())
    assert kinds["lines"].value_type.field("price").type == pa.decimal128(9, 2)
    assert kinds["tags"].item_type == pa.int64()

    query = (
        "SELECT value.id, value.state, value.lines[1].price, value.tags['n'], value.day FROM arrow WHERE value.id = 1"
    )
    assert duckdb.sql(query).fetchall() == [(1, "PAID", Decimal("1.25"), 1, date(2024, 5, 1))]
    table = lake.table(kind, topic)
    if kind == "delta":  # a column that may not be null is a feature, which the table would have to declare
        assert (table.protocol().writer_features, [one.name for one in table.schema().fields if not one.nullable]) == (
            ["timestampNtz"],
            [],
        )
    frame = table.to_pandas() if kind == "delta" else table.scan().to_pandas()
    assert sorted(one["id"] for one in frame["value"] if one is not None) == [0, 1, 2, 3]


@BOTH
def test_a_first_run_that_reads_nothing(
    lake: Lake, make_topic: Callable[..., str], destination: Destination, kind: TableKind
) -> None:
    """From the logs' ends: the table is made with its columns, and the next run goes on."""
    topic, old = make_topic(), {"id": 1, "inner": {"a": 0.5}}
    assert lake.more(kind, topic, OLD, old, begin=LATEST) == 0
    assert lake.arrow(kind, topic).num_rows == 0
    assert lake.more(kind, topic, OLD, old) == 1
    assert lake.values(kind, topic) == [old]
    assert problems(destination) == []


#: As ``NEW``, without wider numbers.
LONGER = avro(("id", "int"), ("inner", avro(("a", "float"), ("b", ["null", "string"]), name="Inner")), ("c", "string"))


@BOTH
def test_a_newer_schema_widens_the_table(
    lake: Lake, make_topic: Callable[..., str], destination: Destination, kind: TableKind
) -> None:
    """New fields; in Iceberg also int → long and float → double. It stays so for the older schema; the table of another
    topic is widened by its own next export."""
    topic, other = make_topic(), make_topic()
    newer = NEW if kind == "iceberg" else LONGER
    old, new = {"id": 1, "inner": {"a": 0.5}}, {"id": 1 << 20, "inner": {"a": 0.25, "b": "x"}, "c": "y"}
    if kind == "iceberg":
        new["id"] = 1 << 40
    lake.more(kind, other, OLD, old)
    for schema, value in ((OLD, old), (newer, new), (OLD, old)):
        assert lake.more(kind, topic, schema, value) == 1
    widened = {"id": 1, "inner": {"a": 0.5, "b": None}, "c": None}
    assert lake.values(kind, topic) == [widened, new, widened]
    assert lake.values(kind, other) == [old]
    assert lake.more(kind, other, OLD, old) == 1
    assert lake.values(kind, other) == [widened, widened]
    found = lake.arrow(kind, topic)
    assert duckdb.sql('SELECT value.inner.b FROM found ORDER BY "offset"').fetchall() == [(None,), ("x",), (None,)]
    if kind == "iceberg":
        assert {field.name: field.type for field in found.schema.field("value").type}["id"] == WIDE.field("id").type
    assert problems(destination) == []


@BOTH
def test_the_command_for_a_table_that_was_rolled_back_has_its_schema(
    cluster: Sandbox, lake: Lake, make_topic: Callable[..., str], destination: Destination, kind: TableKind
) -> None:
    """An export of typed values needs it."""
    topic = make_topic()
    for number in range(2):
        lake.more(kind, topic, OLD, {"id": number, "inner": {"a": 0.5}})
    walked_table(kind, lake.out, topic).step_back()
    assert "--on-mismatch lake --value-format avro --value-schema FILE\n" in verify_output(cluster, destination)


@BOTH
@pytest.mark.parametrize("point", ["record in the log", "widened"])
def test_what_stops_while_it_widens_a_table_is_finished(
    lake: Lake, make_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch, kind: TableKind, point: str
) -> None:
    """Decided by an export with the newer schema, and finished by one with the older one: it reads nothing, and each
    row is there once."""
    topic = make_topic()
    old, new = {"id": 1, "inner": {"a": 0.5}}, {"id": 2, "inner": {"a": 0.25, "b": "x"}, "c": "y"}
    lake.more(kind, topic, OLD, old)

    def stop(passed: str = point, *_: Any, **__: Any) -> None:
        if passed == point or not isinstance(passed, str):
            raise ZkgroupError("on purpose")

    with monkeypatch.context() as patch:
        if point == "widened":
            patch.setattr("pyiceberg.table.update.snapshot._FastAppendFiles.append_data_file", stop)
            patch.setattr(DeltaTable, "create_write_transaction", stop)
        with pytest.raises(ZkgroupError, match="on purpose"):
            lake.more(kind, topic, LONGER, new, on_point=stop)
    points: Points = []
    assert lake.more(kind, topic, OLD, on_point=points.append) == 1
    assert "runner started" not in points
    assert lake.values(kind, topic) == [{"id": 1, "inner": {"a": 0.5, "b": None}, "c": None}, new]


@BOTH
def test_a_table_that_another_engine_changes_before_a_run_is_finished(
    lake: Lake, make_topic: Callable[..., str], kind: TableKind
) -> None:
    """The field is named, and what to do. Once that is done, the run is finished."""
    topic, old, new = make_topic(), {"id": 1, "inner": {"a": 0.5}}, {"id": 2, "inner": {"a": 0.25, "b": "x"}, "c": "y"}
    lake.more(kind, topic, OLD, old)
    before = len(DeltaTable(str(lake.out / topic)).history()) if kind == "delta" else 0

    def stop(passed: str) -> None:
        if passed == "record in the log":
            raise ZkgroupError("on purpose")

    with pytest.raises(ZkgroupError, match="on purpose"):
        lake.more(kind, topic, LONGER, new, on_point=stop)
    if kind == "delta":
        field = Field("value", StructType([Field("c", PrimitiveType("long"))]))
        lake.table(kind, topic).alter.add_columns([field])
    else:
        with lake.table(kind, topic).update_schema() as update:
            update.add_column(("value", "c"), LongType())
    with pytest.raises(RefusedError, match=r"\bvalue\.c\b.*\bint64\b.*\bstring\b") as refused:
        lake.more(kind, topic, OLD)
    assert refused.value.remedy is not None
    if kind == "delta":
        lake.table(kind, topic).restore(before - 1)
    else:
        with lake.table(kind, topic).update_schema() as update:
            update.rename_column("value.c", "theirs")
    assert lake.more(kind, topic, OLD) == 1
    assert [value["id"] for value in lake.values(kind, topic)] == [1, 2]


def test_what_a_table_cannot_hold_is_refused_before_anything_is_read(
    lake: Lake, make_topic: Callable[..., str]
) -> None:
    """With the field's path: other types in both formats; in Delta also a wider number, and a time of day."""
    points: Points = []
    for kind in ("delta", "iceberg"):
        topic, lake.out = make_topic(), lake.out.parent / kind
        where = {"root": lake.out, "on_point": points.append}
        lake.more(kind, topic, OLD, {"id": 1, "inner": {"a": 0.5}}, root=lake.out)
        before = files_in(lake.out)
        wrong = avro(("id", "int"), ("inner", avro(("a", "string"), name="Inner")))
        with pytest.raises(IncompatibleSchemaError, match=r"\bvalue\.inner\.a\b.*\bfloat\b.*\bstring\b"):
            lake.more(kind, topic, wrong, b"", **where)
        if kind == "delta":
            with pytest.raises(IncompatibleSchemaError, match=r"\bvalue\.id\b.*\bint32\b.*\bint64\b"):
                lake.more(kind, topic, NEW, **where)
            with pytest.raises(SchemaError, match=r"\bvalue\.at\[\].*\bDelta\b"):
                lake.more(kind, topic, avro(("at", {"type": "array", "items": AT_NOON})), **where)
        assert files_in(lake.out) == before
    assert points.count("planned") == 0


def test_names_with_dots_in_an_iceberg_table(lake: Lake, make_topic: Callable[..., str]) -> None:
    """Of JSON: a column, also where one comes later. Iceberg knows a field by its path: of two fields with one path the
    second one is refused, in the same schema and in a later one."""
    topic, text = make_topic(), {"type": "string"}
    old = {"a.b": text, "c": {"type": "object", "properties": {"d": text}}}
    more = partial(lake.more, "iceberg", topic, None)
    assert more(b'{"a.b": "x"}', **fields(old)) == 1
    for wrong in (old | {"c.d": text}, {"a": {"type": "object", "properties": {"b": text}}}):
        with pytest.raises(SchemaError, match=r"\bvalue\.[ac]\.[bd]\b.*\bIceberg\b"):
            more(**fields(wrong))
    assert more(b'{"a.b": "y", "e.f": "z"}', **fields(old | {"e.f": text})) == 1
    found = [{"a.b": "x", "c": None, "e.f": None}, {"a.b": "y", "c": None, "e.f": "z"}]
    assert lake.values("iceberg", topic) == found


def test_a_schema_that_another_engine_has_changed(lake: Lake, make_topic: Callable[..., str]) -> None:
    """A field more, or a wider one, is no harm. A field less is refused, and so is one of another type that the schema
    has by now."""
    old, points = {"id": 1, "inner": {"a": 0.5}}, list[str]()
    newer = avro(("id", "int"), ("inner", avro(("a", "float"), name="Inner")), ("c", "string"))

    delta, lake.out = make_topic(), lake.out.parent / "delta"
    lake.more("delta", delta, OLD, old, root=lake.out)
    theirs = [Field("value", StructType([Field("c", PrimitiveType("long"))]))]
    lake.table("delta", delta).alter.add_columns(theirs)
    assert lake.more("delta", delta, OLD, old, root=lake.out) == 1
    assert lake.values("delta", delta) == [old | {"c": None}] * 2
    with pytest.raises(RefusedError, match=r"\bvalue\.c\b.*\bint64\b.*\bstring\b"):
        lake.more("delta", delta, newer, b"", root=lake.out, on_point=points.append)

    iceberg, lake.out = make_topic(), lake.out.parent / "iceberg"
    lake.more("iceberg", iceberg, OLD, old, root=lake.out)
    with lake.table("iceberg", iceberg).update_schema() as update:
        update.update_column("value.id", LongType())
        update.add_column(("value", "note"), StringType())
    assert lake.more("iceberg", iceberg, OLD, old, root=lake.out) == 1
    assert lake.values("iceberg", iceberg) == [old | {"note": None}] * 2
    with lake.table("iceberg", iceberg).update_schema() as update:
        update.rename_column("value.inner.a", "b")
    with pytest.raises(RefusedError, match=r"\bvalue\.inner\.a\b"):
        lake.more("iceberg", iceberg, OLD, b"", root=lake.out, on_point=points.append)
    assert points.count("planned") == 0


@BOTH
@pytest.mark.long
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("release", RELEASES)
def test_spark_reads_the_columns(lake: Lake, make_topic: Callable[..., str], kind: TableKind, release: str) -> None:
    """By its own connectors, of another release: before and behind a newer schema, with a timestamp without a zone."""
    topic = make_topic()
    fields = [(field["name"], field["type"]) for field in ORDER["fields"]]
    local = ("local", {"type": "long", "logicalType": "local-timestamp-micros"})
    more = [*fields, local, ("gift", ["null", avro(("to", "string"), name="Gift")])]
    if kind == "iceberg":
        more[0] = ("id", "long")
    naive = {"local": MOMENT.replace(tzinfo=None)}
    lake.more(kind, topic, avro(*fields, local), order(1) | naive, order(2) | naive)
    lake.more(kind, topic, avro(*more), order(3) | naive | {"gift": {"to": "me"}}, b"\x01")
    name = f"delta.`{lake.out}/{topic}`" if kind == "delta" else f"zkgroup.kafka.{table_name(topic)}"
    select = (
        "SELECT value.id, value.note, value.lines[1].price, value.tags['n'] n, value.day, value.at, value.local, "
        f"value.gift.to, value_error IS NULL good FROM {name} ORDER BY offset"
    )
    (rows,) = foreign_spark(release, f"{lake.out}/_zkgroup/catalog.db", [select])
    assert [list(row.values()) for row in rows] == [
        [1, None, None, 1, "2024-05-01", "2024-05-01 12:00:00", "2024-05-01 12:00:00", None, True],
        [2, "ü", "2.25", 2, "2024-05-01", "2024-05-01 12:00:00", "2024-05-01 12:00:00", None, True],
        [3, None, None, 3, "2024-05-01", "2024-05-01 12:00:00", "2024-05-01 12:00:00", "me", True],
        [*[None] * 8, False],
    ]
