"""Keys or values of a batch → a column of their schema's type. What does not decode is null there, with a reason.
Reasons name fields, and neither values nor positions: so that there are few of them.

JSON is read by Arrow's reader, all of a batch at once. A batch with a value that is not as the schema says is halved,
and a small one is read value by value. Avro is read by the C extension where there is one, else value by value, by
fastavro. A message by a registry begins with Confluent's wire format: a zero byte, and the schema's id in four bytes,
big-endian.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from io import BytesIO
from struct import pack
from typing import Any, Final, NamedTuple, TypeAlias

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from zkgroup.schemas.column_types import (
    END_SECOND,
    FIRST_SECOND,
    SECONDS_OF_DAY,
    binary_column,
    decode_type,
    encode_type,
    number_column,
    widen,
)
from zkgroup.schemas.field_schema import (
    FieldSchema,
    IncompatibleSchemaError,
    RegisteredSchema,
    SchemaError,
    SchemaFormat,
    UndecodableError,
)
from zkgroup.schemas.json_schema import JsonColumn, read_json_schema

_WHY: Final = 200  # characters
_HEAD: Final = 5  # bytes: zero, and the schema's id
_UNFIT: Final = (pa.ArrowException, ValueError, TypeError, OverflowError)
_OBJECT: Final = r"(?s)\A[ \t\n\r]*\{.*\}[ \t\n\r]*\z"
_NANOSECONDS: Final = r"^(.{19}\.[0-9]{6})[0-9]+"
_NO_NUMBER: Final = re.compile(rb"NaN|Inf")
_LEVELS: Final = 1024  # at most, to orjson
_FEW: Final = 250  # values that are not worth a call of Arrow's reader, if one of them may be wrong


#: Has ``type``, of the columns that its ``decode`` makes of columns of bytes and nulls.
FieldDecoder: TypeAlias = "AvroDecoder | JsonDecoder | RegisteredDecoder"


class Decoded(NamedTuple):
    """A column, null where there was nothing and where it does not decode; and the reasons, by place."""

    column: Any
    errors: dict[int, str]


def make_decoder(schema: FieldSchema) -> FieldDecoder:
    """Raises ``SchemaError``."""
    if not schema.text:
        return RegisteredDecoder(schema)
    return AvroDecoder(schema) if schema.format == "avro" else JsonDecoder(schema)


class AvroDecoder:
    """Avro's binary encoding, without a header."""

    def __init__(self, schema: FieldSchema) -> None:
        from fastavro import schemaless_reader

        from zkgroup.schemas.avro_schema import make_buffer_decoder, read_avro_schema

        column, self._plain = read_avro_schema(schema.text)
        self._buffers = make_buffer_decoder(column.node, column.type)
        self._own = column.type
        self.type = decode_type(schema.column) if schema.column else column.type
        self._convert = column.convert
        self._read: Any = schemaless_reader

    def decode(self, column: Any) -> Decoded:
        if self._buffers is None:
            found, errors = _decode_each(column, self.decode_one, self._own)
        else:
            found, bad = self._buffers.decode(column)
            errors = {place: self._reason(column.slice(place, 1)) for place in bad}
        return Decoded(_widened(found, self.type), errors)

    def _reason(self, one: Any) -> str:
        """Why the value in a column of one does not decode."""
        errors = _decode_each(one, self.decode_one, self._own).errors
        return errors.get(0, "it is not of the schema")  # an encoding that fastavro lets pass

    def decode_one(self, data: bytes) -> Any:
        """The value, as pyarrow takes it. Raises ``UndecodableError``."""
        source = BytesIO(data)
        try:
            value = self._read(source, self._plain, None)
        except Exception as error:  # noqa: BLE001  # whatever fastavro meets in bytes that are none of the schema
            raise UndecodableError(f"it is not of the schema ({type(error).__name__})") from None
        if source.tell() < len(data):
            raise UndecodableError("it is not of the schema (bytes are left)")
        return value if self._convert is None else self._convert(value)


class JsonDecoder:
    """JSON, each value by itself."""

    def __init__(self, schema: FieldSchema) -> None:
        self._column = read_json_schema(schema.text)
        self.type = decode_type(schema.column) if schema.column else self._column.type
        self._is_strict = self._column.is_strict
        read = self._column.read if pa.types.is_struct(self._column.type) else None
        self._read = (
            None if read is None else pj.ParseOptions(pa.schema(list(read)), unexpected_field_behavior="ignore")
        )

    def decode(self, column: Any) -> Decoded:
        if not column.null_count:
            return self._decode(column)
        found, errors = self._decode(column.drop_null())
        valid = column.is_valid()
        places = pc.subtract(pc.cumulative_sum(valid.cast(pa.int64())), 1)
        if errors:
            there = [place for place, is_there in enumerate(valid.to_pylist()) if is_there]
            errors = {there[place]: why for place, why in errors.items()}
        return Decoded(found.take(pc.if_else(valid, places, None)), errors)

    def _decode(self, column: Any) -> Decoded:
        """Decode a column without nulls."""
        if self._read is not None and len(column) and (found := self._decode_all(column)) is not None:
            return Decoded(found, {})
        half = len(column) // 2
        if self._read is None or half < _FEW:
            return _decode_each(column, self.decode_one, self.type)
        (one, errors), (other, more) = self._decode(column.slice(0, half)), self._decode(column.slice(half))
        return Decoded(pa.concat_arrays([one, other]), errors | {half + place: why for place, why in more.items()})

    def _decode_all(self, column: Any) -> Any:
        """All of them, where all are of the schema, as most often; else None."""
        try:
            texts = column.cast(pa.string())  # checks that it is UTF-8
            if not _have_braces(texts):
                return None
            # JSON has no line break in a string, and no brace behind a closed one but where the next value begins: so
            # no value goes on in the next, and as many objects as values are one each.
            lists = [None, pa.py_buffer(pack("2i", 0, len(texts)))]
            joined = pa.Array.from_buffers(pa.list_(pa.string()), 1, lists, children=[texts])
            data = pc.binary_join(joined, binary_column([b"\n"]).cast(pa.string())).buffers()[2]
            options = pj.ReadOptions(use_threads=False, block_size=data.size + 1)
            table = pj.read_json(pa.BufferReader(data), options, self._read)
            if table.num_rows != len(texts):
                return None
            fields = list(self._column.read)
            columns = [table.column(field.name).combine_chunks() for field in fields]
            found = pa.StructArray.from_arrays(columns, fields=fields)
            if self._is_strict and _lacks_required(found, self._column):
                return None
            try:
                made = found.cast(self.type)
            except pa.ArrowInvalid:
                made = _cut_times(found, self._column.type).cast(self.type)
            return None if _leaves_calendar(made) else made
        except pa.ArrowException:
            return None

    def decode_one(self, data: bytes) -> Any:
        """The value, as pyarrow takes it. Raises ``UndecodableError``."""
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError as error:  # also of numbers beyond its range
            # What Arrow's reader takes, and orjson does not, is not to depend on the rest of a batch.
            if self._read is not None and (len(data) > _LEVELS or _NO_NUMBER.search(data)):
                found = self._decode_all(binary_column([data]))
                if found is not None:
                    return found[0].as_py()
            if self._read is not None or (value := _load_numbers(data)) is None:
                raise UndecodableError(f"it is no JSON: {error.msg}") from None
        if value is None:
            raise UndecodableError("$ is null")
        return self._column.convert(value)


class RegisteredDecoder:
    """Values that begin with a zero byte and their schema's id, four bytes, big-endian; each by the schema of its
    id."""

    def __init__(self, schema: FieldSchema) -> None:
        self.type = decode_type(schema.column)
        self._left_out = schema.left_out
        self._decoders = {
            number: make_decoder(FieldSchema(schema.format, text, schema.column))
            for number, text in schema.by_id.items()
        }

    def decode(self, column: Any) -> Decoded:
        places: dict[bytes, list[int]] = {}
        values = column.to_pylist()
        for place, data in enumerate(values):
            if data is not None:
                places.setdefault(data[:_HEAD], []).append(place)
        parts, errors = [pa.nulls(1, self.type)], dict[int, str]()
        order = [0] * len(column)  # where each value is in the parts
        size = 1
        for head, some in places.items():
            decoder = self._decoder(head)
            if isinstance(decoder, str):
                errors |= dict.fromkeys(some, decoder)
                continue
            found = decoder.decode(binary_column([values[place][_HEAD:] for place in some]))
            errors |= {some[place]: why for place, why in found.errors.items()}
            parts.append(found.column)
            for number, place in enumerate(some, size):
                order[place] = number
            size += len(some)
        return Decoded(pa.concat_arrays(parts).take(number_column(pa.int64(), "q", order)), errors)

    def _decoder(self, head: bytes) -> FieldDecoder | str:
        if len(head) < _HEAD or head[0]:
            return "it does not begin with a schema's id"
        number = int.from_bytes(head[1:], "big")
        why = self._left_out.get(number, f"the registry's subject has no schema of id {number}")
        return self._decoders.get(number, why[:_WHY])


def _load_numbers(data: bytes) -> Any:
    """A value with NaN or Infinity for a number, which orjson does not read; None where it is no JSON but for that."""
    if _NO_NUMBER.search(data):
        with suppress(ValueError, TypeError, RecursionError):
            value = json.loads(data.decode())
            orjson.dumps(value)  # refuses halves of characters
            return value
    return None


def _have_braces(texts: Any) -> bool:
    """Whether each text begins as an object does, and ends so."""
    if pc.all(pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))).as_py():
        return True
    return bool(pc.all(pc.match_substring_regex(texts, _OBJECT)).as_py())


def _widened(column: Any, kind: Any) -> Any:
    """The column as one of a type that holds its values."""
    try:
        return column.cast(kind)
    except pa.ArrowException:  # a release of pyarrow that adds no fields
        return pa.array(column.to_pylist(), kind)


def _cut_times(column: Any, kind: Any) -> Any:
    """Texts that are times by ``kind``, without digits behind microseconds, which Arrow does not read."""
    if pa.types.is_timestamp(kind):
        return pc.replace_substring_regex(column, _NANOSECONDS, r"\1")
    if pa.types.is_struct(kind):
        parts = [_cut_times(column.field(place), field.type) for place, field in enumerate(kind)]
        return pa.StructArray.from_arrays(parts, fields=list(column.type), mask=column.is_null())
    if pa.types.is_list(kind):
        items = _cut_times(column.values, kind.value_type)
        return pa.ListArray.from_arrays(column.offsets, items, mask=column.is_null())
    return column


def _leaves_calendar(column: Any) -> bool:
    """Whether a time lies before the year 1 or after 9999."""
    kind = column.type
    if pa.types.is_struct(kind):
        return any(_leaves_calendar(column.field(place)) for place in range(kind.num_fields))
    if pa.types.is_list(kind):
        return _leaves_calendar(column.flatten())
    is_date = pa.types.is_date(kind)
    if not is_date and not pa.types.is_timestamp(kind):
        return False
    limits = [one.value for one in pc.min_max(column).values()]
    if None in limits:
        return False
    low, high = (value * SECONDS_OF_DAY if is_date else value // 1_000_000 for value in limits)
    return bool(low < FIRST_SECOND or high >= END_SECOND)


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
            except _UNFIT:
                values[place] = None
                errors[place] = "a number is too large for its type"
        return Decoded(pa.array(values, kind), errors)


_KINDS: Final[Mapping[SchemaFormat, str]] = {"avro": "AVRO", "json-schema": "JSON"}


def join_schemas(form: SchemaFormat, subjects: Iterable[Sequence[RegisteredSchema]]) -> FieldSchema:
    """The schema for all versions of ``subjects``, each with its newest live version first. An older version that does
    not go with the newer ones is left out, and a deleted one that would change the types of their fields. Raises
    ``SchemaError`` or ``IncompatibleSchemaError`` for a newest one."""
    wide = None
    texts: dict[int, str] = {}
    left_out: dict[int, str] = {}
    ordered = sorted(
        ((one.is_deleted, place, one) for versions in subjects for place, one in enumerate(versions)),
        key=lambda found: found[:2],
    )
    for _, place, one in ordered:
        if one.id in texts:
            continue
        try:
            kind = make_decoder(_own(form, one)).type
            joined = kind if wide is None else widen(wide, kind, one.subject)
            if one.is_deleted and wide is not None:
                widen(wide, joined, one.subject, promotes=False)
        except (SchemaError, IncompatibleSchemaError) as error:
            if wide is None or (place == 0 and not one.is_deleted):
                raise type(error)(f"{one}: {error.message}", error.remedy) from None
            left_out[one.id] = f"{one} is left out: {error.message}"
        else:
            wide, texts[one.id] = joined, one.text
    return FieldSchema(form, "", b"" if wide is None else encode_type(wide), texts, left_out)


def _own(form: SchemaFormat, one: RegisteredSchema) -> FieldSchema:
    if one.kind != _KINDS[form]:
        has_format = one.kind in _KINDS.values()
        remedy = f"give the format that goes with {one.kind}" if has_format else "export the bytes as they are"
        raise SchemaError(f"it is of the type {one.kind}", remedy)
    if one.refers:
        raise SchemaError("it refers to other subjects", "register it as one schema")
    return FieldSchema(form, one.text)
