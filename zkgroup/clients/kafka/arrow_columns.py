"""Messages → Arrow columns. Every step over messages is a C call under ``map``: 0.4 µs a message, no Python in between.

The columns: ``partition`` int32 (unless it is a folder), ``offset`` int64, ``timestamp`` timestamp[ms, UTC] or null,
``timestamp_type`` string (``CreateTime``, ``LogAppendTime``, as Kafka names them) or null, ``timestamp_raw`` int64
(see below), ``key`` and ``value`` or null, ``headers`` list<struct<key: string, value: binary>>, null where a message
has none.

``key`` and ``value`` are binary, or strings where they are to be text or JSON. What is not, is null there, and its
bytes are in ``key_raw`` or ``value_raw``, which are null for all others. With a schema, they are of its type, and why
one does not decode is in ``key_error`` or ``value_error``, strings. So with ``timestamp``: a number that is no
time of any calendar (nanoseconds taken for milliseconds, a negative one) would make the column unreadable to DuckDB,
Spark and Python; it is null there, and the number is in ``timestamp_raw``, which is null for all others.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import itemgetter
from struct import pack
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from zkgroup.clients.kafka.client import Message
from zkgroup.clients.kafka.json_check import is_json, is_text
from zkgroup.clients.kafka.message_formats import END_OF_TIME, Format
from zkgroup.clients.kafka.message_headers import UNREADABLE, headers_of
from zkgroup.clients.kafka.native_columns import native_columns
from zkgroup.clients.kafka.native_reader import NativeMessages
from zkgroup.protocol.ledger import Run
from zkgroup.schemas.field_decoder import FieldDecoder, make_decoder
from zkgroup.schemas.field_schema import FieldSchema

HEADERS: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

_TIMESTAMP: Final = pa.timestamp("ms", "UTC")
_FIRST: Final = itemgetter(0)
_SECOND: Final = itemgetter(1)


# Columns are put together from their buffers: pyarrow.array() is no faster, and, like pyarrow.scalar(), imports pandas,
# where that is installed, which takes each worker a quarter of a second.


def _numbers(kind: Any, code: str, numbers: Sequence[int | None]) -> Any:
    """A column of numbers, none of which is None."""
    # struct takes half as long as array, which reads each number by a format of its own
    data = numbers if isinstance(numbers, array) else pack(f"{len(numbers)}{code}", *numbers)
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(data)])


def _binary(values: Sequence[bytes | None]) -> Any:
    """A column of bytes and nulls."""
    valid, missing = None, 0
    try:
        ends = _ends(values)
    except TypeError:  # of a null
        missing = values.count(None)
        if missing == len(values):
            return pa.nulls(missing, pa.binary())
        valid = _bits([value is not None for value in values])
        values = [value or b"" for value in values]
        ends = _ends(values)
    data = b"".join(cast("Any", values))
    return pa.Array.from_buffers(pa.binary(), len(values), [valid, ends, pa.py_buffer(data)], missing)


def _ends(values: Sequence[bytes | None]) -> Any:
    """A buffer of where values end, one behind the other. Raises ``TypeError`` where one is None."""
    lengths = _numbers(pa.int32(), "i", [0, *map(len, cast("Any", values))])
    return pc.cumulative_sum_checked(lengths).buffers()[1]


def _bits(truths: list[bool]) -> Any:
    """A buffer of bits."""
    return _numbers(pa.int8(), "b", truths).cast(pa.bool_()).buffers()[1]


# What struct calls n has 64 bits wherever pyarrow runs, as q; large numbers take it a third of the time.
_COUNT: Final = _numbers(pa.int64(), "n", range(8192))

# librdkafka's timestamp types are 0 (none), 1 (set by the producer) and 2 (set by the broker).
_TYPE_NAMES: Final = _binary([b"", b"CreateTime", b"LogAppendTime"]).cast(pa.string())


class FieldColumns:
    """Keys or values: their columns, in ``wire`` format, or decoded from that."""

    def __init__(self, name: str, wish: Format | FieldSchema) -> None:
        self.decoder: FieldDecoder | None = None
        if isinstance(wish, FieldSchema):
            self.decoder = make_decoder(wish)
            wish = "bytes"
        self.wire: Format = wish
        raw = [] if wish == "bytes" else [pa.field(f"{name}_raw", pa.binary())]
        self.wire_fields = [pa.field(name, pa.binary() if wish == "bytes" else pa.string()), *raw]
        self.fields = self.wire_fields
        if self.decoder is not None:
            texts = [pa.field(f"{name}_raw", pa.binary()), pa.field(f"{name}_error", pa.string())]
            self.fields = [pa.field(name, self.decoder.type), *texts]

    def make(self, contents: list[bytes | None]) -> list[Any]:
        """The columns for keys or values."""
        return self.decode(_decoded(contents, self.wire)[0])[0]

    def decode(self, columns: list[Any]) -> tuple[list[Any], set[int]]:
        """The columns for those in ``wire`` format, and the places of keys or values that cannot be decoded, where they
        have a schema."""
        if self.decoder is None:
            return columns, set()
        wire, count = columns[0], len(columns[0])
        made, errors = self.decoder.decode(wire)
        if not errors:
            return [made, pa.nulls(count, pa.binary()), pa.nulls(count, pa.string())], set()
        raw = [wire[place].as_py() if place in errors else None for place in range(count)]
        why = _binary([errors[place].encode() if place in errors else None for place in range(count)])
        return [made, _binary(raw), why.cast(pa.string())], set(errors)


class Columns:
    """Makes columns, keys and values of which are to be in a format, or of a schema. ``has_partition``: whether that is
    one."""

    def __init__(
        self,
        key: Format | FieldSchema = "bytes",
        value: Format | FieldSchema = "bytes",
        *,
        has_partition: bool = True,
    ) -> None:
        self._key = FieldColumns("key", key)
        self._value = FieldColumns("value", value)
        self._has_partition = has_partition
        self._is_decoded = self._key.decoder is not None or self._value.decoder is not None
        self.schema = self._schema(self._key.fields, self._value.fields)
        self._wire_schema = self._schema(self._key.wire_fields, self._value.wire_fields)

    def _schema(self, key: list[Any], value: list[Any]) -> Any:
        partition = [pa.field("partition", pa.int32(), nullable=False)] if self._has_partition else []
        return pa.schema(
            [
                *partition,
                pa.field("offset", pa.int64(), nullable=False),
                pa.field("timestamp", _TIMESTAMP),
                pa.field("timestamp_type", pa.dictionary(pa.int8(), pa.string())),
                pa.field("timestamp_raw", pa.int64()),
                *key,
                *value,
                pa.field("headers", HEADERS),
            ]
        )

    def batch(
        self, messages: Sequence[Message], partition: int, *, keys: bool = True, headers: bool = True
    ) -> tuple[Any, int]:
        """``messages`` of a partition, which hold no error events, as one ``RecordBatch`` of ``schema``; and how many
        of them cannot be decoded. ``keys``, ``headers``: whether any may have some."""
        key, value = self._key.wire, self._value.wire
        if isinstance(messages, NativeMessages):
            batch, bad = native_columns(messages, partition, key, value, self._wire_schema, _TYPE_NAMES)
            return self._decode(batch, bad) if self._is_decoded else (batch, bad)
        count = len(messages)
        heads = headers_of(messages) if headers else []
        bad_heads = {place for place, one in enumerate(heads) if one is UNREADABLE} if UNREADABLE in heads else set()
        key_columns, bad_keys = _decoded(list(map(Message.key, messages)) if keys else [None] * count, key)
        value_columns, bad_values = _decoded(list(map(Message.value, messages)), value)
        columns = [
            _offsets(messages),
            *_times(list(map(Message.timestamp, messages))),
            *key_columns,
            *value_columns,
            _headers(heads) if any(heads) else pa.nulls(count, HEADERS),
        ]
        if self._has_partition:
            columns.insert(0, _numbers(pa.int32(), "i", array("i", [partition]) * count))
        bad = len(bad_keys | bad_values | bad_heads) if bad_keys or bad_values or bad_heads else 0
        batch = pa.RecordBatch.from_arrays(columns, schema=self._wire_schema)
        return self._decode(batch, bad) if self._is_decoded else (batch, bad)

    def _decode(self, batch: Any, bad: int) -> tuple[Any, int]:
        """The batch of ``schema`` for one in wire format, ``bad`` of whose messages are counted already."""
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        undecodable: set[int] = set()
        for field in (self._key, self._value):
            made, places = field.decode([columns[one.name] for one in field.wire_fields])
            columns |= zip([one.name for one in field.fields], made, strict=True)
            undecodable |= places
        if undecodable and bad:
            undecodable -= _known_as_bad(batch)
        made = [columns[name] for name in self.schema.names]
        return pa.RecordBatch.from_arrays(made, schema=self.schema), bad + len(undecodable)


def _known_as_bad(batch: Any) -> set[int]:
    """The places of messages in wire format that were counted as undecodable."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    raws = [columns[name].to_pylist() for name in ("key_raw", "value_raw") if name in columns]
    places = {place for raw in raws for place, data in enumerate(raw) if data is not None}
    unreadable = [{"key": name, "value": value} for name, value in UNREADABLE]
    return places | {place for place, one in enumerate(columns["headers"].to_pylist()) if one == unreadable}


def make_table(messages: Sequence[Message], runs: Sequence[Run]) -> Any:
    """A ``pyarrow.Table`` of all columns, and ``topic`` (string) before them; a chunk for each run."""
    columns = Columns()
    batches, topics = [], []
    for run in runs:
        batches.append(columns.batch(messages[run.start : run.stop], run.partition.partition)[0])
        topics.append(_binary([run.partition.topic.encode()] * (run.stop - run.start)).cast(pa.string()))
    table = pa.Table.from_batches(batches, columns.schema)
    return table.add_column(0, pa.field("topic", pa.string(), nullable=False), pa.chunked_array(topics, pa.string()))


def _offsets(messages: Sequence[Message]) -> Any:
    """The column of offsets, which rise: where none is left out, they are counted instead of asked for."""
    count, first, last = len(messages), cast("int", messages[0].offset()), cast("int", messages[-1].offset())
    if last - first + 1 == count <= len(_COUNT):
        return pc.add(_numbers(pa.int64(), "q", array("q", [first]) * count), _COUNT.slice(0, count))
    return _numbers(pa.int64(), "n", cast("list[int]", list(map(Message.offset, messages))))


def _decoded(values: list[bytes | None], kind: Format) -> tuple[list[Any], set[int]]:
    """The columns for keys or values, and the places of those that cannot be decoded."""
    column = _binary(values)
    if kind == "bytes":
        return [column], set()
    bad: set[int] = set()
    if kind == "json":
        bad = _places(values, is_json)
    else:
        try:  # at once, without a copy, where all of it is right
            return [column.cast(pa.string()), pa.nulls(len(values), pa.binary())], bad
        except pa.ArrowInvalid:
            bad = _places(values, is_text)
    if not bad:
        return [column.cast(pa.string()), pa.nulls(len(values), pa.binary())], bad
    good = [None if place in bad else value for place, value in enumerate(values)]
    raw = [value if place in bad else None for place, value in enumerate(values)]
    return [_binary(good).cast(pa.string()), _binary(raw)], bad


def _places(values: list[bytes | None], is_right: Callable[[bytes], bool]) -> set[int]:
    return {place for place, value in enumerate(values) if value is not None and not is_right(value)}


def _headers(headers: Sequence[Any]) -> Any:
    """The column of headers: lists of names and values; null where a message has none."""
    ends = list(accumulate((len(one) if one else 0 for one in headers), initial=0))
    pairs = [pair for one in headers if one for pair in one]
    names = _binary([name.encode() for name, _ in pairs]).cast(pa.string())
    both = pa.StructArray.from_arrays([names, _binary([value for _, value in pairs])], fields=list(HEADERS.value_type))
    buffers = [_bits(list(map(bool, headers))), pa.py_buffer(array("i", ends))]
    return pa.Array.from_buffers(HEADERS, len(headers), buffers, children=[both])


def _times(pairs: Sequence[tuple[int, int]]) -> tuple[Any, Any, Any]:
    """The columns of timestamps, of their types, and of numbers that are no times; with nulls where there is nothing.
    ``pairs``: of type and milliseconds.

    Messages of the oldest format have type 0, and a producer without a clock writes −1.
    """
    kinds, millis = list(map(_FIRST, pairs)), list(map(_SECOND, pairs))  # in a third of what zip(*pairs) takes
    count, kind = len(kinds), kinds[0]
    timestamps = _numbers(_TIMESTAMP, "n", millis)
    alike = kinds.count(kind) == count
    types = _numbers(pa.int8(), "b", array("b", [kind]) * count if alike else kinds)
    raw = pa.nulls(count, pa.int64())
    numbers = timestamps.view(pa.int64())
    span = pc.min_max(numbers).as_py()
    if (kind if alike else min(kinds)) <= 0 or span["min"] < 0 or span["max"] >= END_OF_TIME:
        known = pc.and_(pc.greater(types, 0), pc.not_equal(numbers, -1))
        usable = pc.and_(known, pc.and_(pc.greater_equal(numbers, 0), pc.less(numbers, END_OF_TIME)))
        raw = pc.if_else(pc.and_not(known, usable), numbers, None)
        types, timestamps = pc.if_else(known, types, None), pc.if_else(usable, timestamps, None)
    return timestamps, pa.DictionaryArray.from_arrays(types, _TYPE_NAMES), raw
