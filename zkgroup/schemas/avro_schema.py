"""An Avro schema → the Arrow type of its values, and how a decoded value becomes one of it. Pure.

============================  =====================================================================================
Avro                          Arrow
============================  =====================================================================================
boolean, int, long            bool, int32, int64
float, double                 float, double
bytes, fixed; string, enum    binary; string
record, array, map            struct, list, map<string, …>
[null, T]                     T (all columns may be null)
decimal (38 digits)           decimal128
date                          date32
time-millis, -micros          time32[ms], time64[us]
timestamp-millis, -micros     timestamp[ms, UTC], timestamp[us, UTC]
local-timestamp-…             the same without a zone
another logical type          the type that it annotates, as Avro's specification says
============================  =====================================================================================

A union of several types, a record within itself, the type null, and a fixed of no bytes have no Arrow type.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any, Final, NamedTuple, TypeAlias

import fastavro
import pyarrow as pa

from zkgroup.schemas import avro_buffers
from zkgroup.schemas.avro_buffers import AvroNode
from zkgroup.schemas.column_types import END_SECOND, FIRST_SECOND, SECONDS_OF_DAY, struct_of
from zkgroup.schemas.field_schema import SchemaError, UndecodableError

#: Takes a value as fastavro decodes it without logical types, and returns it as pyarrow takes it. Raises
#: ``UndecodableError``.
Convert: TypeAlias = Callable[[Any], Any]

_TYPES: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_DIGITS: Final = 38
_EXACT: Final = Context(prec=2 * _DIGITS)
#: By logical type and the type that it annotates: the Arrow type, and the range [low, high) that a calendar has.
_TIMES: Final = {
    ("date", "int"): (pa.date32(), FIRST_SECOND // SECONDS_OF_DAY, END_SECOND // SECONDS_OF_DAY),
    ("time-millis", "int"): (pa.time32("ms"), 0, SECONDS_OF_DAY * 1000),
    ("time-micros", "long"): (pa.time64("us"), 0, SECONDS_OF_DAY * 1_000_000),
    ("timestamp-millis", "long"): (pa.timestamp("ms", "UTC"), FIRST_SECOND * 1000, END_SECOND * 1000),
    ("timestamp-micros", "long"): (pa.timestamp("us", "UTC"), FIRST_SECOND * 1_000_000, END_SECOND * 1_000_000),
    ("local-timestamp-millis", "long"): (pa.timestamp("ms"), FIRST_SECOND * 1000, END_SECOND * 1000),
    ("local-timestamp-micros", "long"): (pa.timestamp("us"), FIRST_SECOND * 1_000_000, END_SECOND * 1_000_000),
}


class AvroColumn(NamedTuple):
    """``type``: of the column. ``convert``: None where fastavro's value is as pyarrow takes it. ``node``: for the C
    extension."""

    type: Any
    convert: Convert | None
    node: AvroNode


def read_avro_schema(text: str) -> tuple[AvroColumn, Any]:
    """The column of a schema, and the schema for fastavro, parsed and without logical types: numbers stay numbers.
    Raises ``SchemaError``."""
    try:
        schema = json.loads(text)
        parsed = fastavro.parse_schema(schema)
        plain = fastavro.parse_schema(_without_logical_types(schema))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        why = f"{type(error).__name__}: {error}"[:200]
        raise SchemaError(f"this is no Avro schema ({why})", "name a file with one, as JSON") from None
    except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
        why = " ".join(str(error).split())[:200]
        raise SchemaError(f"this is no Avro schema ({why})", "name a file with one, as JSON") from None
    return _AvroWalk().column(parsed, "$"), plain


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {name: _without_logical_types(one) for name, one in schema.items() if name != "logicalType"}
    return [_without_logical_types(one) for one in schema] if isinstance(schema, list) else schema


class _AvroWalk:
    """Goes through a schema as fastavro has parsed it, with full names."""

    def __init__(self) -> None:
        self._named: dict[str, AvroColumn | None] = {}  # None: within it

    def column(self, schema: Any, path: str) -> AvroColumn:
        if isinstance(schema, list):
            return self._union(schema, path)
        if isinstance(schema, str):
            schema = {"type": schema}
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.column(kind, path)
        if kind in self._named:
            found = self._named[kind]
            if found is None:
                raise _no_type(path, f"a {kind} within a {kind}")
            return found
        if kind in ("record", "error", "enum", "fixed"):
            self._named[schema["name"]] = None
            self._named[schema["name"]] = made = self._complex(kind, schema, path)
            return made
        return self._complex(kind, schema, path)

    def _complex(self, kind: str, schema: Any, path: str) -> AvroColumn:
        match kind:
            case "record" | "error":
                return self._record(schema, path)
            case "enum":
                symbols = tuple(schema["symbols"])
                return AvroColumn(pa.string(), None, AvroNode(avro_buffers.ENUM, 0, len(symbols), (), symbols))
            case "array":
                item = self.column(schema["items"], f"{path}[]")
                node = AvroNode(avro_buffers.ARRAY, inner=(item.node,))
                return AvroColumn(pa.list_(item.type), None if item.convert is None else _each(item.convert), node)
            case "map":
                value = self.column(schema["values"], f"{path}{{}}")
                node = AvroNode(avro_buffers.MAP, inner=(AvroNode(avro_buffers.STRING), value.node))
                return AvroColumn(pa.map_(pa.string(), value.type), _pairs(value.convert), node)
        logical = schema.get("logicalType")
        if (logical, kind) in _TIMES:
            type_, low, high = _TIMES[logical, kind]
            node = AvroNode(avro_buffers.INT if kind == "int" else avro_buffers.LONG, low, high)
            return AvroColumn(type_, _within(low, high, path), node)
        if logical == "decimal" and kind in ("bytes", "fixed"):
            return _decimal(schema, path)
        if kind == "fixed" and schema["size"] > 0:
            return AvroColumn(pa.binary(), None, AvroNode(avro_buffers.FIXED, schema["size"]))
        if kind not in _TYPES:
            raise _no_type(path, f"the type {kind}")
        return AvroColumn(_TYPES[kind], None, AvroNode(*avro_buffers.PRIMITIVES[kind]))

    def _record(self, schema: Any, path: str) -> AvroColumn:
        fields = {field["name"]: self.column(field["type"], f"{path}.{field['name']}") for field in schema["fields"]}
        converts = [(name, one.convert) for name, one in fields.items() if one.convert is not None]

        def convert(value: Any) -> Any:
            for name, one in converts:
                value[name] = one(value[name])
            return value

        made = struct_of(((name, one.type) for name, one in fields.items()), path)
        node = AvroNode(avro_buffers.RECORD, inner=tuple(one.node for one in fields.values()))
        return AvroColumn(made, convert if converts else None, node)

    def _union(self, branches: list[Any], path: str) -> AvroColumn:
        others = [one for one in branches if one != "null" and one != {"type": "null"}]
        if len(others) != 1:
            raise _no_type(path, f"a union of {len(others)} types besides null")
        found = self.column(others[0], path)
        kind = avro_buffers.SINGLE if len(branches) == 1 else avro_buffers.NULLABLE
        node = AvroNode(kind, int(branches[0] is others[0]), inner=(found.node,))
        inner = found.convert
        if inner is None or len(branches) == 1:
            return AvroColumn(found.type, inner, node)
        return AvroColumn(found.type, lambda value: None if value is None else inner(value), node)


def _no_type(path: str, what: str) -> SchemaError:
    return SchemaError(f"{path} is {what}, which no column type holds", "leave it out, or export the bytes as they are")


def _each(convert: Convert) -> Convert:
    return lambda values: [convert(value) for value in values]


def _pairs(convert: Convert | None) -> Convert:
    if convert is None:
        return lambda value: list(value.items())
    return lambda value: [(name, convert(one)) for name, one in value.items()]


def _within(low: int, high: int, path: str) -> Convert:
    def convert(value: int) -> int:
        if not low <= value < high:
            raise UndecodableError(f"{path}: a time that no calendar has")
        return value

    return convert


def _decimal(schema: Any, path: str) -> AvroColumn:
    precision, scale = schema.get("precision", 0), schema.get("scale", 0)
    size = schema.get("size", 0)  # of a fixed
    if not (0 < precision <= _DIGITS and 0 <= scale <= precision) or (schema["type"] == "fixed" and not size):
        raise _no_type(path, f"a decimal of {precision} digits, {scale} behind the point")
    limit = 10**precision

    def convert(value: bytes) -> Decimal:
        number = int.from_bytes(value, "big", signed=True)
        if not -limit < number < limit:
            raise UndecodableError(f"{path}: a decimal of more than {precision} digits")
        return Decimal(number).scaleb(-scale, _EXACT)

    return AvroColumn(pa.decimal128(precision, scale), convert, AvroNode(avro_buffers.DECIMAL, size, precision))
