"""The columns of a topic's table: those of its files, and those that are folders."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

_FOLDERS: Final = {"topic": pa.string(), "partition": pa.int32(), "date": pa.date32(), "hour": pa.int32()}


def table_schema(schema: Any, folders: Iterable[str]) -> Any:
    """pyarrow's schema of a table whose files have this ``schema``, with columns of these ``folders`` before it."""
    return pa.schema([*(pa.field(name, _FOLDERS[name]) for name in folders), *map(_table_field, schema)])


def offsets_of(rows: Any, partition: int | None) -> dict[int, list[Any]]:
    """The chunks of the column ``offset``: of one ``partition``, or, where that is None, by the column of that name."""
    if partition is not None:
        return {partition: rows["offset"].chunks}
    numbers = rows["partition"]
    return {one: rows.filter(pc.equal(numbers, one))["offset"].chunks for one in pc.unique(numbers).to_pylist()}


def _table_field(field: Any) -> Any:
    return pa.field(field.name, _table_type(field.type), field.nullable)


def _table_type(kind: Any) -> Any:
    """The times of tables are microseconds, and they have no dictionaries."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_dictionary(kind):
        return kind.value_type
    if pa.types.is_struct(kind):
        return pa.struct([_table_field(field) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _table_field(kind.item_field))
    if pa.types.is_list(kind):
        return pa.list_(_table_field(kind.value_field))
    return kind
