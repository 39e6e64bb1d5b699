"""Keys or values of a batch → a column of their schema's type. What does not decode is null there, with a reason.

JSON is read by Arrow's reader, all of a batch at once; where anything of it is not as the schema says, value by value.
Avro is read value by value, by fastavro.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any, Final, NamedTuple, Protocol

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from zkgroup.schemas.column_types import decode_type
from zkgroup.schemas.field_schema import FieldSchema, UndecodableError
from zkgroup.schemas.json_schema import JsonColumn, read_json_schema

_WHY: Final = 200  # characters
_HEAD: Final = 5  # bytes: zero, and the schema's id
_UNFIT: Final = (pa.ArrowException, ValueError, TypeError, OverflowError)
_OBJECT: Final = r"^[ \t\n\r]*\{"


class Decoded(NamedTuple):
    """A column, null where there was nothing and where it does not decode; and the reasons, by place."""

    column: Any
    errors: dict[int, str]


class FieldDecoder(Protocol):
    """``type``: of the columns that it makes. ``takes_json``: it takes strings that are JSON, else bytes."""

    type: Any
    takes_json: bool

    def decode(self, column: Any) -> Decoded:
        """Decode a column of strings, or bytes, and nulls."""
        ...


def make_decoder(schema: FieldSchema) -> FieldDecoder:
    """Raises ``SchemaError``."""
    if not schema.text:
        return RegisteredDecoder(schema)
    return AvroDecoder(schema) if schema.format == "avro" else JsonDecoder(schema)


class AvroDecoder:
    """Avro's binary encoding, without a header."""

    takes_json = False

    def __init__(self, schema: FieldSchema) -> None:
        from fastavro import schemaless_reader

        from zkgroup.schemas.avro_schema import read_avro_schema

        column, self._plain = read_avro_schema(schema.text)
        self.type = decode_type(schema.column) if schema.column else column.type
        self._convert = column.convert
        self._read: Any = schemaless_reader

    def decode(self, column: Any) -> Decoded:
        return _decode_each(column, self.decode_one, self.type)

    def decode_one(self, data: bytes) -> Any:
        """The value, as pyarrow takes it. Raises ``UndecodableError``."""
        source = BytesIO(data)
        try:
            value = self._read(source, self._plain, None)
        except Exception as error:  # noqa: BLE001  # whatever fastavro meets in bytes that are none of the schema
            raise UndecodableError(
                f"it is not of the schema ({type(error).__name__} at byte {source.tell()})"
            ) from None
        if left := len(data) - source.tell():
            raise UndecodableError(f"it is not of the schema ({left} bytes are left)")
        return value if self._convert is None else self._convert(value)


class JsonDecoder:
    """JSON, each value by itself."""

    takes_json = True

    def __init__(self, schema: FieldSchema) -> None:
        self._column = read_json_schema(schema.text)
        self.type = decode_type(schema.column) if schema.column else self._column.type
        self._is_strict = self._column.is_strict
        read = self._column.read if pa.types.is_struct(self._column.type) else None
        self._read = (
            None if read is None else pj.ParseOptions(pa.schema(list(read)), unexpected_field_behavior="ignore")
        )

    def decode(self, column: Any) -> Decoded:
        there = column.drop_null() if column.null_count else column
        found = self._decode_all(there) if self._read is not None and len(there) else None
        if found is None:
            return _decode_each(column.cast(pa.binary()), self.decode_one, self.type)
        if column.null_count:
            valid = column.is_valid()
            places = pc.subtract(pc.cumulative_sum(valid.cast(pa.int64())), 1)
            found = found.take(pc.if_else(valid, places, None))
        return Decoded(found, {})

    def _decode_all(self, texts: Any) -> Any:
        """All of them, where all are of the schema, as most often; else None."""
        if not pc.all(pc.match_substring_regex(texts, _OBJECT)).as_py():
            return None
        start, end = texts.offset, texts.offset + len(texts)
        _, ends, data = texts.buffers()
        first, last = memoryview(ends).cast("i")[start], memoryview(ends).cast("i")[end]
        # Each is an object, as was checked: so one ends where the next begins.
        source = pa.BufferReader(data.slice(first, last - first))
        options = pj.ReadOptions(use_threads=False, block_size=last - first + 1)
        try:
            table = pj.read_json(source, options, self._read)
            if table.num_rows != len(texts):
                return None
            fields = list(self._column.read)
            columns = [table.column(field.name).combine_chunks() for field in fields]
            found = pa.StructArray.from_arrays(columns, fields=fields)
            if self._is_strict and _lacks_required(found, self._column):
                return None
            return found.cast(self.type)
        except pa.ArrowException:
            return None

    def decode_one(self, data: bytes) -> Any:
        """The value, as pyarrow takes it. Raises ``UndecodableError``."""
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError as error:  # of numbers beyond its range
            raise UndecodableError(str(error)) from None
        if value is None:
            raise UndecodableError("$ is null")
        return self._column.convert(value)


class RegisteredDecoder:
    """Values that begin with a zero byte and their schema's id, four bytes, big-endian; each by the schema of its
    id."""

    takes_json = False

    def __init__(self, schema: FieldSchema) -> None:
        self.type = decode_type(schema.column)
        self._left_out = schema.left_out
        self._decoders = {
            number: AvroDecoder(own) if own.format == "avro" else JsonDecoder(own)
            for number, text in schema.by_id.items()
            for own in [FieldSchema(schema.format, text, schema.column)]
        }

    def decode(self, column: Any) -> Decoded:
        return _decode_each(column, self._decode_one, self.type)

    def _decode_one(self, data: bytes) -> Any:
        if len(data) < _HEAD or data[0]:
            raise UndecodableError("it does not begin with a schema's id")
        number = int.from_bytes(data[1:_HEAD], "big")
        decoder = self._decoders.get(number)
        if decoder is None:
            raise UndecodableError(self._left_out.get(number, f"the registry's subject has no schema of id {number}"))
        return decoder.decode_one(data[_HEAD:])


def _lacks_required(column: Any, kind: JsonColumn) -> bool:
    """Whether a field that is required is null anywhere in values that are there."""
    if column.null_count:
        column = column.drop_null()
    if kind.item is not None:
        return kind.item.is_strict and _lacks_required(column.flatten(), kind.item)
    for place, (name, inner) in enumerate(kind.fields.items()):
        part = column.field(place)
        if (name in kind.required and part.null_count) or (inner.is_strict and _lacks_required(part, inner)):
            return True
    return False


def _decode_each(column: Any, decode: Callable[[bytes], Any], kind: Any) -> Decoded:
    values: list[Any] = []
    errors: dict[int, str] = {}
    for place, data in enumerate(column.to_pylist()):
        try:
            values.append(None if data is None else decode(data))
        except UndecodableError as error:
            values.append(None)
            errors[place] = str(error)[:_WHY]
    try:
        return Decoded(pa.array(values, kind), errors)
    except _UNFIT:  # Avro's int is a number of any size to fastavro
        for place, value in enumerate(values):
            try:
                pa.array([value], kind)
            except _UNFIT as error:
                values[place] = None
                errors[place] = " ".join(str(error).split())[:_WHY]
        return Decoded(pa.array(values, kind), errors)
