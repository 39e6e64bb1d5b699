"""The columns of ``arrow_columns``, made from the native reader's buffers: no Python object for a message."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa

from zkgroup.clients.kafka.message_formats import END_OF_TIME, Format
from zkgroup.clients.kafka.native_reader import NativeMessages

if TYPE_CHECKING:
    from zkgroup.clients.kafka._native import Headers, Numbers, Strings

_CODES: Final[dict[Format, Any]] = {"bytes": "b", "text": "t", "json": "j"}


def native_columns(
    messages: NativeMessages, partition: int, key: Format, value: Format, schema: Any, types: Any
) -> tuple[Any, int]:
    """A ``RecordBatch`` of ``schema``, and how many messages cannot be decoded. ``types``: the names of timestamps'
    types."""
    count = len(messages)
    offsets, times, kinds, raw_times, keys, raw_keys, values, raw_values, headers, bad = messages.batch.columns(
        messages.start, messages.stop, _CODES[key], _CODES[value], END_OF_TIME
    )
    columns = {
        "offset": _numbers(pa.int64(), count, offsets),
        "timestamp": _numbers(schema.field("timestamp").type, count, times),
        "timestamp_type": pa.DictionaryArray.from_arrays(_numbers(pa.int8(), count, kinds), types),
        "timestamp_raw": _numbers(pa.int64(), count, raw_times),
        "headers": _headers(schema.field("headers").type, count, headers),
    }
    for name, right, wrong in (("key", keys, raw_keys), ("value", values, raw_values)):
        columns[name] = _strings(schema.field(name).type, count, right)
        if f"{name}_raw" in schema.names:
            columns[f"{name}_raw"] = _strings(pa.binary(), count, wrong)
    if "partition" in schema.names:
        columns["partition"] = _numbers(pa.int32(), count, (0, None, array("i", [partition]) * count))
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema), bad


def _numbers(kind: Any, count: int, found: Numbers) -> Any:
    nulls, valid, data = found
    return pa.Array.from_buffers(kind, count, [_buffer(valid), pa.py_buffer(data)], nulls)


def _strings(kind: Any, count: int, found: Strings) -> Any:
    nulls, valid, ends, data = found
    return pa.Array.from_buffers(kind, count, [_buffer(valid), pa.py_buffer(ends), pa.py_buffer(data)], nulls)


def _buffer(valid: Any) -> Any:
    return None if valid is None else pa.py_buffer(valid)


def _headers(kind: Any, count: int, found: Headers | None) -> Any:
    if found is None:
        return pa.nulls(count, kind)
    nulls, valid, ends, pairs, names, contents = found
    fields = list(kind.value_type)
    both = pa.StructArray.from_arrays(
        [_strings(pa.string(), pairs, names), _strings(pa.binary(), pairs, contents)], fields=fields
    )
    buffers = [_buffer(valid), pa.py_buffer(cast("Any", ends))]
    return pa.Array.from_buffers(kind, count, buffers, nulls, children=[both])
