"""The schemas of a registry's subjects → one column, and a decoder for each id. Pure.

A message begins with Confluent's wire format: a zero byte, and the schema's id in four bytes, big-endian.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from zkgroup.schemas.column_types import encode_type, widen
from zkgroup.schemas.field_decoder import make_decoder
from zkgroup.schemas.field_schema import (
    FieldSchema,
    IncompatibleSchemaError,
    RegisteredSchema,
    SchemaError,
    SchemaFormat,
)

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
