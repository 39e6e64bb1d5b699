"""An Avro schema → the Arrow type of its values, and how a decoded value becomes one of it; and a program for the C
extension ``_avro``, with arrays of what it gives. Pure. ``docs/how-to/schemas.md`` has the table of types.

A union of several types, a record within itself, the type null, and a fixed of no bytes have no Arrow type.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from decimal import Context, Decimal
from types import ModuleType
from typing import Any, Final, NamedTuple

import fastavro
import pyarrow as pa

from zkgroup.c_extensions import avro_module
from zkgroup.schemas.column_types import (
    END_SECOND,
    FIRST_SECOND,
    SECONDS_OF_DAY,
    binary_column,
    bits,
    column_of,
    struct_of,
)
from zkgroup.schemas.field_schema import Convert, SchemaError, UndecodableError, no_type

#: As in ``_avro.c``.
BOOLEAN, INT, LONG, FLOAT, DOUBLE, BYTES, STRING, ENUM, FIXED, RECORD, ARRAY, MAP, NULLABLE, SINGLE, DECIMAL = range(15)
_WIDTHS: Final = {INT: 4, LONG: 8, FLOAT: 4, DOUBLE: 8, ENUM: 4, DECIMAL: 16}
_MAX_NODES: Final = 10_000


@dataclass(frozen=True, slots=True)
class AvroNode:
    """A node of a schema. ``low``, ``high``: of a number's range (0, 0: any); ``low``: a fixed's size, the place of
    null in a union; ``high``: a decimal's digits. ``symbols``: of an enum."""

    kind: int
    low: int = 0
    high: int = 0
    inner: tuple[AvroNode, ...] = ()
    symbols: tuple[str, ...] = ()


class BufferDecoder:
    """Decodes binary columns to columns of a type, by a program."""

    def __init__(self, module: ModuleType, root: AvroNode, kind: Any) -> None:
        self._module: Any = module
        self._kind = kind
        self._nodes: list[AvroNode] = []
        self._next: list[int] = []
        self._flatten(root)
        words = (
            word
            for node, after in zip(self._nodes, self._next, strict=True)
            for word in (node.kind, after, node.low, node.high)
        )
        self._program = struct.pack(f"{4 * len(self._nodes)}q", *words)

    def _flatten(self, node: AvroNode) -> None:
        place = len(self._nodes)
        self._nodes.append(node)
        self._next.append(0)
        for one in node.inner:
            self._flatten(one)
        self._next[place] = len(self._nodes)

    def decode(self, column: Any) -> tuple[Any, list[int]]:
        """The column, null where nothing is, or where it does not decode; and the places of the latter."""
        count = len(column)
        _, ends, data = column.buffers()
        there = column.is_valid()
        valid = there.cast(pa.int8()).buffers()[1] if column.null_count else None
        some = memoryview(ends)[4 * column.offset : 4 * (column.offset + count + 1)]
        columns, bad = self._module.decode(data or b"", some, valid, self._program)
        if valid is None and not bad:
            return self._array(columns, 0, self._kind, count, None, 0), bad
        flags = bytearray(valid or b"\1" * count)[:count]
        for place in bad:
            flags[place] = 0
        return self._array(columns, 0, self._kind, count, bits(flags), flags.count(0)), bad

    def _array(self, columns: Any, place: int, kind: Any, count: int, valid: Any, missing: int) -> Any:
        node = self._nodes[place]
        nulls, flags, offsets, values = columns[place]
        if node.kind == NULLABLE:
            return self._array(columns, place + 1, kind, count, bits(flags) if nulls else None, nulls)
        if node.kind == SINGLE:
            return self._array(columns, place + 1, kind, count, valid, missing)
        if node.kind == RECORD:
            inner, at = [], place + 1
            for field in kind:
                inner.append(self._array(columns, at, field.type, count, None, 0))
                at = self._next[at]
            return column_of(kind, count, missing, valid, children=inner)
        if node.kind in (ARRAY, MAP):
            items = int.from_bytes(offsets[-4:], "little")
            if node.kind == ARRAY:
                child = self._array(columns, place + 1, kind.value_type, items, None, 0)
            else:
                fields = [kind.key_field, kind.item_field]
                parts = [
                    self._array(columns, place + 1, kind.key_type, items, None, 0),
                    self._array(columns, place + 2, kind.item_type, items, None, 0),
                ]
                child = pa.StructArray.from_arrays(parts, fields=fields)
            return column_of(kind, count, missing, valid, offsets, children=[child])
        if node.kind == BOOLEAN:
            return column_of(kind, count, missing, valid, bits(values))
        if node.kind == ENUM:
            indices = column_of(pa.int32(), count, missing, valid, values)
            symbols = binary_column([symbol.encode() for symbol in node.symbols]).cast(pa.string())
            return pa.DictionaryArray.from_arrays(indices, symbols).cast(pa.string())
        if node.kind in _WIDTHS:
            return column_of(kind, count, missing, valid, values)
        return column_of(kind, count, missing, valid, offsets, values)


def make_buffer_decoder(root: AvroNode, kind: Any) -> BufferDecoder | None:
    """A decoder by the extension; None without one, and for a schema that it does not take."""
    module = None if root.kind == NULLABLE or _size(root) > _MAX_NODES else avro_module()
    return None if module is None else BufferDecoder(module, root, kind)


def _size(node: AvroNode) -> int:
    total = 1
    for one in node.inner:
        total += _size(one)
        if total > _MAX_NODES:
            break
    return total


#: By Avro's name: the Arrow type, and the node's kind with the range of its numbers (0, 0: any).
_TYPES: Final = {
    "boolean": (pa.bool_(), (BOOLEAN, 0, 0)),
    "int": (pa.int32(), (INT, -(1 << 31), 1 << 31)),
    "long": (pa.int64(), (LONG, 0, 0)),
    "float": (pa.float32(), (FLOAT, 0, 0)),
    "double": (pa.float64(), (DOUBLE, 0, 0)),
    "bytes": (pa.binary(), (BYTES, 0, 0)),
    "string": (pa.string(), (STRING, 0, 0)),
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


_NO_SCHEMA: Final = (
    *(ValueError, TypeError, KeyError, AttributeError, RecursionError),
    *(fastavro.schema.SchemaParseException, fastavro.schema.UnknownType),
)


def read_avro_schema(text: str) -> tuple[AvroColumn, Any]:
    """The column of a schema, and the schema for fastavro, parsed and without logical types: numbers stay numbers.
    Raises ``SchemaError``."""
    try:
        schema = json.loads(text)
        parsed = fastavro.parse_schema(schema)
        plain = fastavro.parse_schema(_without_logical_types(schema))
    except _NO_SCHEMA as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
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
        if kind in self._named:
            found = self._named[kind]
            if found is None:
                raise no_type(path, f"a {kind} within a {kind}")
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
                return AvroColumn(pa.string(), None, AvroNode(ENUM, 0, len(symbols), (), symbols))
            case "array":
                item = self.column(schema["items"], f"{path}[]")
                node = AvroNode(ARRAY, inner=(item.node,))
                return AvroColumn(pa.list_(item.type), None if item.convert is None else _each(item.convert), node)
            case "map":
                value = self.column(schema["values"], f"{path}{{}}")
                node = AvroNode(MAP, inner=(AvroNode(STRING), value.node))
                return AvroColumn(pa.map_(pa.string(), value.type), _pairs(value.convert), node)
        logical = schema.get("logicalType")
        if (logical, kind) in _TIMES:
            type_, low, high = _TIMES[logical, kind]
            node = AvroNode(INT if kind == "int" else LONG, low, high)
            return AvroColumn(type_, _within(low, high, path), node)
        if logical == "decimal" and kind in ("bytes", "fixed"):
            return _decimal(schema, path)
        if kind == "fixed" and schema["size"] > 0:
            return AvroColumn(pa.binary(), None, AvroNode(FIXED, schema["size"]))
        if kind not in _TYPES:
            raise no_type(path, f"the type {kind}")
        type_, numbers = _TYPES[kind]
        return AvroColumn(type_, None, AvroNode(*numbers))

    def _record(self, schema: Any, path: str) -> AvroColumn:
        fields = {field["name"]: self.column(field["type"], f"{path}.{field['name']}") for field in schema["fields"]}
        converts = [(name, one.convert) for name, one in fields.items() if one.convert is not None]

        def convert(value: Any) -> Any:
            for name, one in converts:
                value[name] = one(value[name])
            return value

        made = struct_of(((name, one.type) for name, one in fields.items()), path)
        node = AvroNode(RECORD, inner=tuple(one.node for one in fields.values()))
        return AvroColumn(made, convert if converts else None, node)

    def _union(self, branches: list[Any], path: str) -> AvroColumn:
        others = [one for one in branches if one != "null" and one != {"type": "null"}]
        if len(others) != 1:
            raise no_type(path, f"a union of {len(others)} types besides null")
        found = self.column(others[0], path)
        kind = SINGLE if len(branches) == 1 else NULLABLE
        node = AvroNode(kind, int(branches[0] is others[0]), inner=(found.node,))
        inner = found.convert
        if inner is None or len(branches) == 1:
            return AvroColumn(found.type, inner, node)
        return AvroColumn(found.type, lambda value: None if value is None else inner(value), node)


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
        raise no_type(path, f"a decimal of {precision} digits, {scale} behind the point")
    limit = 10**precision

    def convert(value: bytes) -> Decimal:
        number = int.from_bytes(value, "big", signed=True)
        if not -limit < number < limit:
            raise UndecodableError(f"{path}: a decimal of more than {precision} digits")
        return Decimal(number).scaleb(-scale, _EXACT)

    return AvroColumn(pa.decimal128(precision, scale), convert, AvroNode(DECIMAL, size, precision))
