"""Orders by an Avro schema, older and newer schemas, and the options of exports that decode them."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa

from zkgroup.export.model.choices import TableKind
from zkgroup.export.model.layout import LayoutOptions
from zkgroup.schemas.field_schema import FieldSchema, FieldSchemas, SchemaFormat

MOMENT = datetime(2024, 5, 1, 12, tzinfo=UTC)


def avro(*fields: tuple[str, Any], name: str = "Order") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields]}


def encoded(schema: Any, value: Any) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def by(value: Any, form: SchemaFormat = "avro", key: Any = None, *, into: TableKind | None = None) -> dict[str, Any]:
    """The options of an export for values of this schema, and keys by JSON Schema."""
    keys = None if key is None else FieldSchema("json-schema", json.dumps(key))
    return {
        "layout": LayoutOptions(key=None if key is None else "json-schema", value=form, format=into),
        "schemas": FieldSchemas(keys, FieldSchema(form, json.dumps(value))),
    }


LINE = avro(
    ("sku", "string"), ("price", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}), name="L"
)
ORDER = avro(
    ("id", "int"),
    ("at", {"type": "long", "logicalType": "timestamp-micros"}),
    ("day", {"type": "int", "logicalType": "date"}),
    ("state", {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}),
    ("note", ["null", "string"]),
    ("lines", {"type": "array", "items": LINE}),
    ("tags", {"type": "map", "values": "long"}),
)
KEY = {"type": "object", "properties": {"shop": {"type": "integer"}}, "required": ["shop"]}


def order(number: int) -> dict[str, Any]:
    lines = [{"sku": f"s{number}", "price": Decimal(number) + Decimal("0.25")}] * (number % 3)
    return {
        "id": number, "at": MOMENT, "day": date(2024, 5, 1), "state": "PAID", "note": None if number % 2 else "ü",
        "lines": lines, "tags": {"n": number},
    }  # fmt: skip


OLD = avro(("id", "int"), ("inner", avro(("a", "float"), name="Inner")))
NEW = avro(("id", "long"), ("inner", avro(("a", "double"), ("b", ["null", "string"]), name="Inner")), ("c", "string"))
WIDE = pa.struct(
    [("id", pa.int64()), ("inner", pa.struct([("a", pa.float64()), ("b", pa.string())])), ("c", pa.string())]
)
