"""The columns of a topic's table: those of its files, and those that are folders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from zkgroup.export.model.choices import TableKind
from zkgroup.schemas.column_types import widen
from zkgroup.schemas.field_schema import IncompatibleSchemaError, SchemaError

_FOLDERS: Final = {"topic": pa.string(), "partition": pa.int32(), "date": pa.date32(), "hour": pa.int32()}


def table_schema(schema: Any, folders: Iterable[str]) -> Any:
    """pyarrow's schema of a table whose files have this ``schema``, with columns of these ``folders`` before it."""
    return pa.schema([*(pa.field(name, _FOLDERS[name]) for name in folders), *map(_table_field, schema)])


def add_offsets(found: dict[int, Any], file: Any, partition: int | None) -> None:
    """Add the column ``offset`` of an open file to those that were ``found``: of one ``partition``, or, where that is
    None, by the column of that name."""
    rows = pq.ParquetFile(file).read(columns=["offset"] if partition is not None else ["partition", "offset"])
    numbers = [partition] if partition is not None else pc.unique(rows["partition"]).to_pylist()
    for number in numbers:
        some = rows if partition is not None else rows.filter(pc.equal(rows["partition"], number))
        known = found[number].chunks if number in found else []
        found[number] = pa.chunked_array([*known, *some["offset"].chunks], pa.int64())


def column_type(kind: Any, form: TableKind, path: str) -> Any:
    """The type of a decoded key's or value's column: as tables have it, where ``form`` has tables. ``path``: of the
    column, for the error. Raises ``SchemaError`` where the format has no such type, or no
    names for its fields."""
    fields = list(_fields(kind, path))
    if form == "delta" and (times := [inner for inner, one in fields if pa.types.is_time(one)]):
        raise SchemaError(
            f"{times[0]} is a time of day, which Delta has no type for", "leave it out, or choose another --format"
        )
    names = Counter(inner.replace("[]", ".element").replace("{}", ".value") for inner, _ in fields)
    if form == "iceberg" and (twice := [name for name, count in names.items() if count > 1]):
        raise SchemaError(f"two fields are {twice[0]}, which Iceberg cannot tell apart", "rename one of them")
    return kind if form == "parquet" else _table_type(kind)


def can_promote(form: TableKind) -> bool:
    """Whether a column of numbers may become one of wider numbers."""
    return form != "delta"


def difference(theirs: Any, ours: Any, form: TableKind) -> str:
    """Why a table with the columns ``theirs`` does not take files with the columns ``ours``, if need be after it was
    widened; empty where it does."""
    left = {field.name: field for field in theirs}
    for field in ours:
        their = left.pop(field.name, None)
        if their is None:
            return f"has no column {field.name} any more"
        try:
            _widen(their, field, form)
        except IncompatibleSchemaError as error:
            return f"has another type in column {field.name}: {error.message}"
    needed = [name for name, their in left.items() if not their.nullable]
    return f"has a column {needed[0]} that may not be null" if needed else ""


def wider_columns(theirs: Any, ours: Any, form: TableKind) -> list[Any]:
    """The columns of a table that have to be widened for files with the columns ``ours``, as they are to be. Raises
    ``IncompatibleSchemaError``."""
    wide = [field.with_type(_widen(theirs.field(field.name), field, form)) for field in ours]
    return [field for field in wide if field.type != _table_type(theirs.field(field.name).type)]


def _widen(their: Any, our: Any, form: TableKind) -> Any:
    return widen(_table_type(their.type), _table_type(our.type), our.name, promotes=can_promote(form))


def _fields(kind: Any, path: str) -> Iterator[tuple[str, Any]]:
    """A type and all within it, by their paths."""
    yield path, kind
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _fields(field.type, f"{path}.{field.name}")
    elif pa.types.is_list(kind):
        yield from _fields(kind.value_type, f"{path}[]")
    elif pa.types.is_map(kind):
        yield from _fields(kind.item_type, f"{path}{{}}")


def _table_field(field: Any) -> Any:
    return pa.field(field.name, _table_type(field.type), field.nullable)


def _table_type(kind: Any) -> Any:
    """The times of tables are microseconds, and they have no dictionaries. Libraries have several types for the same
    texts, bytes and lists."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_time(kind):
        return pa.time64("us")
    if pa.types.is_dictionary(kind):
        return kind.value_type
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([_table_field(field) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_table_type(kind.key_type), _table_field(kind.item_field))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_table_field(kind.value_field))
    return kind
