"""The schema of a key or a value, as plain data: it travels with tasks, and needs no pyarrow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from zkgroup.errors import RefusedError, UsageError

#: Avro's binary encoding, or JSON; both with a schema.
SchemaFormat: TypeAlias = Literal["avro", "json-schema"]
SCHEMA_FORMATS: Final[tuple[SchemaFormat, ...]] = ("avro", "json-schema")


#: Takes a decoded value, and returns it as pyarrow takes it. Raises ``UndecodableError``.
Convert: TypeAlias = Callable[[Any], Any]


class SchemaError(UsageError):
    """A schema that has no column type, or cannot be read."""


class UndecodableError(ValueError):
    """A value that is not of its schema; the text says why."""


def no_type(path: str, what: str) -> SchemaError:
    return SchemaError(f"{path} is {what}, which no column type holds", "leave it out, or export the bytes as they are")


class IncompatibleSchemaError(RefusedError):
    """A schema whose values do not fit into the columns that there are."""


@dataclass(frozen=True, slots=True)
class FieldSchema:
    """``text``: the schema; empty: those of a registry, by their ids in ``by_id``. ``left_out``: why other ids of it
    have none. ``column``: the column's Arrow type, encoded (see ``column_types``); empty: the schema's own."""

    format: SchemaFormat
    text: str
    column: bytes = b""
    by_id: Mapping[int, str] = field(default_factory=dict)
    left_out: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FieldSchemas:
    """The schemas of keys and of values; None: of no schema."""

    key: FieldSchema | None = None
    value: FieldSchema | None = None


class RegisteredSchema(NamedTuple):
    """A version of a subject. ``kind``: AVRO, JSON or PROTOBUF. ``refers``: it refers to other subjects.
    ``is_deleted``: softly; messages may still have its id."""

    subject: str
    version: int
    id: int
    kind: str
    text: str
    refers: bool = False
    is_deleted: bool = False

    def __str__(self) -> str:
        return f"version {self.version} of {self.subject} (id {self.id})"
