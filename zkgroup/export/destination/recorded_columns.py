"""The types of a destination's keys and values that have a schema.

``_zkgroup/columns/HASH.json`` has the types that a run has widened them to, and stays. A destination's types are the
widest of all documents, in whatever order they came. A run's columns are there before it is decided.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec

from zkgroup.errors import RefusedError, UsageError
from zkgroup.export.destination.run_log import COLUMNS, HASH, Destination
from zkgroup.export.model import run_record
from zkgroup.export.model.layout import ColumnTypes, Layout
from zkgroup.export.model.run_record import damaged, digest
from zkgroup.schemas.field_schema import SCHEMA_FORMATS, FieldSchema, FieldSchemas, IncompatibleSchemaError

_FIELDS = ("key", "value")


def resolve_schemas(destination: Destination, layout: Layout, given: FieldSchemas) -> FieldSchemas:
    """The schemas with the columns to write. Raises ``UsageError`` where one is missing, or has no columns in the
    destination's format, ``IncompatibleSchemaError`` where the destination's columns do not hold its values."""
    schemas = {name: getattr(given, name) for name in _FIELDS}
    for name, schema in schemas.items():
        kind = getattr(layout, name)
        if (kind if kind in SCHEMA_FORMATS else None) != (schema and schema.format):
            raise UsageError(
                f"{destination} has {name}s {f'by a schema ({kind})' if kind in SCHEMA_FORMATS else f'as {kind}'}",
                f"give {layout.options()}",
            )
    if given == FieldSchemas():
        return given
    from zkgroup.export.destination.table_columns import column_type  # pyarrow takes 0.1 s
    from zkgroup.schemas.column_types import decode_type, encode_type
    from zkgroup.schemas.field_decoder import make_decoder

    own = {
        name: encode_type(column_type(make_decoder(schema).type, layout.format, name))
        for name, schema in schemas.items()
        if schema is not None
    }
    wide = _widest(layout, [*destination.documents(COLUMNS, run_record.COLUMNS).values(), ColumnTypes(**own)])
    for name in own:  # old and new fields together
        column_type(decode_type(getattr(wide, name)), layout.format, name)
    return FieldSchemas(
        **{name: schema and replace(schema, column=getattr(wide, name)) for name, schema in schemas.items()}
    )


def recorded_schemas(destination: Destination, layout: Layout) -> FieldSchemas:
    """Schemas that have a destination's columns, and decode nothing. Raises ``DamagedDocumentError`` without these."""
    forms = {name: form for name in _FIELDS if (form := getattr(layout, name)) in SCHEMA_FORMATS}
    wide = _widest(layout, destination.documents(COLUMNS, run_record.COLUMNS).values()) if forms else ColumnTypes()
    if any(getattr(wide, name) is None for name in forms):
        raise damaged(f"{destination}/{COLUMNS}", "is missing")
    return FieldSchemas(**{name: FieldSchema(form, "", getattr(wide, name)) for name, form in forms.items()})


def claim_columns(destination: Destination, layout: Layout, schemas: FieldSchemas) -> None:
    """Write down the columns that a run has; may be repeated. Raises ``RefusedError`` where another export has begun
    with others meanwhile: written first and then listed, of two at once at most one goes on."""
    if schemas == FieldSchemas():
        return
    mine = ColumnTypes(*(schema.column if (schema := getattr(schemas, name)) else None for name in _FIELDS))
    there = destination.documents(COLUMNS, run_record.COLUMNS)
    if there and _widest(layout, [*there.values(), mine]) == _widest(layout, there.values()):
        return
    data = msgspec.json.encode(mine, order="sorted")
    name = f"{COLUMNS}/{digest(data)[:HASH]}.json"
    destination.store.write(name, data)
    try:
        _widest(layout, destination.documents(COLUMNS, run_record.COLUMNS).values())
    except IncompatibleSchemaError as error:
        destination.store.remove_file(name)
        what = f"another export has begun in {destination} with another schema: {error.message}"
        raise RefusedError(what, error.remedy) from None


def _widest(layout: Layout, documents: Iterable[ColumnTypes]) -> ColumnTypes:
    from zkgroup.export.destination.table_columns import can_promote
    from zkgroup.schemas.column_types import decode_type, encode_type, widen

    promotes = can_promote(layout.format)
    wide: dict[str, Any] = {}
    for document in documents:
        for name in _FIELDS:
            if (data := getattr(document, name)) is not None:
                kind = decode_type(data)
                wide[name] = widen(wide[name], kind, name, promotes=promotes) if name in wide else kind
    return ColumnTypes(**{name: encode_type(kind) for name, kind in wide.items()})
