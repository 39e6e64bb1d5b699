"""Messages → Arrow columns, those of ``Batch.to_arrow``. Of the native reader's messages no Python object is made.

``key`` and ``value`` are binary, strings where they are to be text or JSON, or of the type of their schema. What is not
is null there, and its bytes are in ``key_raw`` or ``value_raw``; why one does not decode with its schema is in
``key_error`` or ``value_error``. A number that is no time of any calendar would make ``timestamp`` unreadable to
DuckDB, Spark and Python: it is null there, and the number is in ``timestamp_raw``.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from zkgroup.clients.kafka.client import Message
from zkgroup.clients.kafka.fetcher import offset_of
from zkgroup.clients.kafka.message_contents import (
    END_OF_TIME,
    UNREADABLE,
    Format,
    Headers,
    headers_of,
    is_json,
    is_text,
)
from zkgroup.clients.kafka.native_reader import NativeMessages
from zkgroup.protocol.ledger import Run
from zkgroup.schemas.column_types import binary_column, bits, column_of, number_column
from zkgroup.schemas.field_decoder import FieldDecoder, make_decoder
from zkgroup.schemas.field_schema import FieldSchema

HEADERS: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

_TIMESTAMP: Final = pa.timestamp("ms", "UTC")
_CODES: Final[dict[Format, Any]] = {"bytes": "b", "text": "t", "json": "j"}


# librdkafka's timestamp types are 0 (none), 1 (set by the producer) and 2 (set by the broker).
_TYPE_NAMES: Final = binary_column([b"", b"CreateTime", b"LogAppendTime"]).cast(pa.string())


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
        why = binary_column([errors[place].encode() if place in errors else None for place in range(count)])
        return [made, binary_column(raw), why.cast(pa.string())], set(errors)


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

    def batch(self, messages: Sequence[Message], partition: int) -> tuple[Any, int]:
        """``messages`` of a partition, which hold no error events, as one ``RecordBatch`` of ``schema``; and how many
        of them cannot be decoded."""
        columns, bad = self._native(messages) if isinstance(messages, NativeMessages) else self._made(messages)
        if self._has_partition:
            columns["partition"] = number_column(pa.int32(), "i", array("i", [partition]) * len(messages))
        batch = _record_batch(columns, self._wire_schema)
        return self._decode(batch, bad) if self._is_decoded else (batch, bad)

    def _native(self, messages: NativeMessages) -> tuple[dict[str, Any], int]:
        """The columns in wire format, by their names, and how many messages cannot be decoded."""
        count = len(messages)
        codes = _CODES[self._key.wire], _CODES[self._value.wire]
        offsets, times, kinds, raw_times, keys, raw_keys, values, raw_values, headers, bad = messages.batch.columns(
            messages.start, messages.stop, *codes, END_OF_TIME
        )
        columns = {
            "offset": column_of(pa.int64(), count, *offsets),
            "timestamp": column_of(_TIMESTAMP, count, *times),
            "timestamp_type": pa.DictionaryArray.from_arrays(column_of(pa.int8(), count, *kinds), _TYPE_NAMES),
            "timestamp_raw": column_of(pa.int64(), count, *raw_times),
            "headers": pa.nulls(count, HEADERS),
        }
        for field, right, wrong in ((self._key, keys, raw_keys), (self._value, values, raw_values)):
            for one, found in zip(field.wire_fields, (right, wrong), strict=False):
                columns[one.name] = column_of(one.type, count, *found)
        if headers is not None:
            nulls, valid, ends, pairs, names, contents = headers
            both = [column_of(pa.string(), pairs, *names), column_of(pa.binary(), pairs, *contents)]
            columns["headers"] = _header_lists(count, nulls, valid, ends, both)
        return columns, bad

    def _made(self, messages: Sequence[Message]) -> tuple[dict[str, Any], int]:
        """As ``_native``, of the Python reader's messages."""
        heads = headers_of(messages)
        bad = {place for place, one in enumerate(heads) if one is UNREADABLE}
        timestamps, types, raw = _times(list(map(Message.timestamp, messages)))
        columns = {
            "offset": number_column(pa.int64(), "q", list(map(offset_of, messages))),
            "timestamp": timestamps,
            "timestamp_type": types,
            "timestamp_raw": raw,
            "headers": _headers(heads),
        }
        for field, content_of in ((self._key, Message.key), (self._value, Message.value)):
            made, wrong = _decoded(cast("list[bytes | None]", list(map(content_of, messages))), field.wire)
            columns |= zip([one.name for one in field.wire_fields], made, strict=True)
            bad |= wrong
        return columns, len(bad)

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
        return _record_batch(columns, self.schema), bad + len(undecodable)


def _record_batch(columns: Mapping[str, Any], schema: Any) -> Any:
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


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
        topics.append(binary_column([run.partition.topic.encode()] * (run.stop - run.start)).cast(pa.string()))
    table = pa.Table.from_batches(batches, columns.schema)
    return table.add_column(0, pa.field("topic", pa.string(), nullable=False), pa.chunked_array(topics, pa.string()))


def _decoded(values: list[bytes | None], kind: Format) -> tuple[list[Any], set[int]]:
    """The columns for keys or values, and the places of those that cannot be decoded."""
    column = binary_column(values)
    if kind == "bytes":
        return [column], set()
    bad: set[int] = set()
    if kind == "json":
        bad = _places(values, is_json)
    if not bad:
        try:  # at once, without a copy, where all of it is right
            return [column.cast(pa.string()), pa.nulls(len(values), pa.binary())], bad
        except pa.ArrowInvalid:
            bad = _places(values, is_text)
    good = [None if place in bad else value for place, value in enumerate(values)]
    raw = [value if place in bad else None for place, value in enumerate(values)]
    return [binary_column(good).cast(pa.string()), binary_column(raw)], bad


def _places(values: list[bytes | None], is_right: Callable[[bytes], bool]) -> set[int]:
    return {place for place, value in enumerate(values) if value is not None and not is_right(value)}


def _headers(headers: Sequence[Headers | None]) -> Any:
    """The column of headers: lists of names and values; null where a message has none."""
    count, pairs = len(headers), [pair for one in headers if one for pair in one]
    ends = array("i", accumulate((len(one or ()) for one in headers), initial=0))
    both = [
        binary_column([name.encode() for name, _ in pairs]).cast(pa.string()),
        binary_column([value for _, value in pairs]),
    ]
    valid = bytes(map(bool, headers))
    return _header_lists(count, valid.count(0), bits(valid), ends, both)


def _header_lists(count: int, nulls: int, valid: Any, ends: Any, both: list[Any]) -> Any:
    """``both``: the columns of all names and of all values."""
    pairs = pa.StructArray.from_arrays(both, fields=list(HEADERS.value_type))
    return column_of(HEADERS, count, nulls, valid, ends, children=[pairs])


def _times(pairs: Sequence[tuple[int, int]]) -> tuple[Any, Any, Any]:
    """The columns of timestamps, of their types, and of numbers that are no times; with nulls where there is nothing.
    ``pairs``: of type and milliseconds.

    Messages of the oldest format have type 0, and a producer without a clock writes −1.
    """
    kinds, millis = [kind for kind, _ in pairs], [at for _, at in pairs]
    types, numbers = number_column(pa.int8(), "b", kinds), number_column(pa.int64(), "q", millis)
    timestamps, raw = numbers.view(_TIMESTAMP), pa.nulls(len(pairs), pa.int64())
    if min(kinds) <= 0 or min(millis) < 0 or max(millis) >= END_OF_TIME:
        known = pc.and_(pc.greater(types, 0), pc.not_equal(numbers, -1))
        usable = pc.and_(known, pc.and_(pc.greater_equal(numbers, 0), pc.less(numbers, END_OF_TIME)))
        raw = pc.if_else(pc.and_not(known, usable), numbers, None)
        types, timestamps = pc.if_else(known, types, None), pc.if_else(usable, timestamps, None)
    return timestamps, pa.DictionaryArray.from_arrays(types, _TYPE_NAMES), raw
