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
    """The schema for all versions of ``subjects``, each with its newest version first. An older version that does not
    go with the newer ones is left out. Raises ``SchemaError`` or ``IncompatibleSchemaError`` for a newest one."""
    wide = None
    texts: dict[int, str] = {}
    left_out: dict[int, str] = {}
    ordered = sorted(
        ((place, one) for versions in subjects for place, one in enumerate(versions)), key=lambda pair: pair[0]
    )
    for place, one in ordered:
        if one.id in texts:
            continue
        try:
            kind = make_decoder(_own(form, one)).type
            wide = kind if wide is None else widen(wide, kind, one.subject)
        except (SchemaError, IncompatibleSchemaError) as error:
            if place == 0:
                raise type(error)(f"{one}: {error.message}", error.remedy) from None
            left_out[one.id] = f"{one} is left out: {error.message}"
        else:
            texts[one.id] = one.text
    return FieldSchema(form, "", b"" if wide is None else encode_type(wide), texts, left_out)


def _own(form: SchemaFormat, one: RegisteredSchema) -> FieldSchema:
    if one.kind != _KINDS[form]:
        raise SchemaError(f"it is of the type {one.kind}", f"give the format that goes with {one.kind}")
    if one.refers:
        raise SchemaError("it refers to other subjects", "register it as one schema")
    return FieldSchema(form, one.text)
