"""Arrow types of columns: which type holds the values of two, and types as bytes. Pure.

All fields are nullable: so a newer schema may add a field, or have one no more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

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


def encode_type(kind: Any) -> bytes:
    """A type as bytes (Arrow's IPC format)."""
    encoded: bytes = pa.schema([pa.field("column", kind)]).serialize().to_pybytes()
    return encoded


def decode_type(data: bytes) -> Any:
    """The inverse. Raises ``ValueError`` (``pa.ArrowInvalid``) for other bytes."""
    return pa.ipc.read_schema(pa.py_buffer(data)).field(0).type
