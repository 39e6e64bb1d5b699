"""Arrow types of columns: which type holds the values of two, and types as bytes; the values of a column as JSON. Pure.

All fields are nullable: so a newer schema may add a field, or have one no more.
"""

from __future__ import annotations

import base64
from array import array
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from itertools import accumulate
from typing import Any, Final

import orjson
import pyarrow as pa

from zkgroup.schemas.field_schema import IncompatibleSchemaError, SchemaError

#: Since 1970: the first moment of year 1, and the end of year 9999.
FIRST_SECOND, END_SECOND = -62_135_596_800, 253_402_300_800
SECONDS_OF_DAY: Final = 86_400
_WIDER: Final = ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))


def struct_of(fields: Iterable[tuple[str, Any]], path: str) -> Any:
    """A struct. Raises ``SchemaError`` where Parquet has none such, or Spark and DuckDB could not tell two of its
    fields apart."""
    names: set[str] = set()
    pairs = list(fields)
    for name, _ in pairs:
        if name.lower() in names:
            raise SchemaError(f"{path} has two fields {name!r}, but for upper and lower case", "rename one of them")
        names.add(name.lower())
    if not pairs:
        raise SchemaError(f"{path} has no fields, which no Parquet column has", "leave it out, or give it a field")
    return pa.struct([pa.field(name, kind) for name, kind in pairs])


def widen(known: Any, new: Any, path: str, *, promotes: bool = True) -> Any:
    """The type that holds the values of both. ``path``: of the field, for the error. ``promotes``: a number may become
    a wider one. Raises ``IncompatibleSchemaError`` where there is none."""
    if known.equals(new):
        return known
    if pa.types.is_struct(known) and pa.types.is_struct(new):
        fields = {field.name: field.type for field in known}
        lower = {name.lower(): name for name in fields}
        for field in new:
            there = lower.get(field.name.lower(), field.name)
            if there != field.name:
                raise IncompatibleSchemaError(f"{path}.{field.name} is {path}.{there} so far", "keep the name")
            inner = f"{path}.{field.name}"
            if there in fields:
                fields[there] = widen(fields[there], field.type, inner, promotes=promotes)
            else:
                fields[there] = field.type
        return struct_of(fields.items(), path)
    if pa.types.is_list(known) and pa.types.is_list(new):
        return pa.list_(widen(known.value_type, new.value_type, f"{path}[]", promotes=promotes))
    if pa.types.is_map(known) and pa.types.is_map(new):
        return pa.map_(pa.string(), widen(known.item_type, new.item_type, f"{path}{{}}", promotes=promotes))
    for narrow, wide in _WIDER:
        if {known, new} == {narrow, wide} and promotes:
            return wide
    raise IncompatibleSchemaError(
        f"{path} is {known} so far, and {new} in the schema", "keep the field's type, or choose another --to"
    )


# Columns are put together from their buffers: pyarrow.array() is no faster, and, like pyarrow.scalar(), imports pandas,
# where that is installed, which takes each worker a quarter of a second.


def column_of(kind: Any, count: int, nulls: int, *buffers: Any, children: list[Any] | None = None) -> Any:
    """A column of its buffers, the first of which has the bits of nulls, or is None."""
    made = [None if one is None else pa.py_buffer(one) for one in buffers]
    return pa.Array.from_buffers(kind, count, made, nulls, children=children)


def number_column(kind: Any, code: str, numbers: Sequence[int]) -> Any:
    """A column of numbers, by their code in ``array``."""
    return column_of(kind, len(numbers), 0, None, array(code, numbers))


def binary_column(values: Sequence[bytes | None]) -> Any:
    missing = values.count(None)
    valid = bits(bytes(value is not None for value in values)) if missing else None
    there = [value or b"" for value in values]
    ends = array("i", accumulate(map(len, there), initial=0))
    return column_of(pa.binary(), len(values), missing, valid, ends, b"".join(there))


def bits(flags: bytes | bytearray) -> Any:
    """A buffer of bits for bytes that are 0 or 1."""
    return column_of(pa.int8(), len(flags), 0, None, flags).cast(pa.bool_()).buffers()[1]


def encode_type(kind: Any) -> bytes:
    """A type as bytes (Arrow's IPC format)."""
    encoded: bytes = pa.schema([pa.field("column", kind)]).serialize().to_pybytes()
    return encoded


def decode_type(data: bytes) -> Any:
    """The inverse. Raises ``ValueError`` (``pa.ArrowInvalid``) for other bytes."""
    return pa.ipc.read_schema(pa.py_buffer(data)).field(0).type


#: Times in UTC end with Z.
_OPTIONS: Final = orjson.OPT_UTC_Z


def json_values(column: Any) -> list[bytes]:
    """Each value: a struct and a map as an object, a decimal as a number of all its digits, bytes as text, or as
    ``{"base64": …}`` where they are not UTF-8."""
    plain = _plain(column.type)
    return [orjson.dumps(plain(value), option=_OPTIONS) for value in column.to_pylist()]


def _plain(kind: Any) -> Callable[[Any], Any]:
    """How a Python value of a type becomes one that JSON has; of None, None."""
    if pa.types.is_struct(kind):
        fields = {field.name: _plain(field.type) for field in kind}
        return lambda value: value and {name: one(value[name]) for name, one in fields.items()}
    if pa.types.is_list(kind):
        item = _plain(kind.value_type)
        return lambda value: value and [item(one) for one in value]
    if pa.types.is_map(kind):
        inner = _plain(kind.item_type)
        return lambda value: None if value is None else {name: inner(one) for name, one in value}
    if pa.types.is_decimal(kind):
        return _number
    return _text if pa.types.is_binary(kind) else lambda value: value


def _number(value: Decimal | None) -> orjson.Fragment | None:
    return None if value is None else orjson.Fragment(f"{value:f}")


def _text(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
