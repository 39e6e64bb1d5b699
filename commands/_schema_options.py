"""Options for the format and the schema of keys and values, of ``export`` and ``consume``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from zkgroup.errors import UsageError

if TYPE_CHECKING:
    from zkgroup.clients.kafka.message_formats import FieldFormat
    from zkgroup.schemas.field_schema import FieldSchema

FormatOption: TypeAlias = Literal["bytes", "text", "json", "avro"]


def parse_format(
    name: str, given: FormatOption | None, file: Path | None, *, needs_schema: bool = False
) -> FieldFormat | None:
    """The format of a "key" or "value". Raises ``UsageError`` for options that contradict each other."""
    if file is None:
        if given == "avro" or (given is not None and needs_schema):
            raise UsageError(f"--{name}-format {given} needs a schema", f"--{name}-schema FILE names it")
        return given
    if given not in ("avro", "json"):
        raise UsageError(f"--{name}-schema is for Avro and JSON", f"add --{name}-format avro, or --{name}-format json")
    return "avro" if given == "avro" else "json-schema"


def read_schema(name: str, wish: FieldFormat | None, file: Path | None) -> FieldSchema | None:
    """The schema in a file, checked to have a column type. Raises ``UsageError``."""
    if file is None or (wish != "avro" and wish != "json-schema"):
        return None
    from zkgroup.export.stores.optional_packages import require
    from zkgroup.schemas.field_schema import FieldSchema, SchemaError

    require("pyarrow", *(["fastavro"] if wish == "avro" else []), what=f"--{name}-schema", extra="avro")
    try:
        schema = FieldSchema(wish, file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise UsageError(f"cannot read --{name}-schema {file}: {why}", "name a file with a schema") from None
    from zkgroup.schemas.field_decoder import make_decoder  # pyarrow takes 0.1 s

    try:
        make_decoder(schema)
    except SchemaError as error:
        raise SchemaError(f"--{name}-schema {file}: {error.message}", error.remedy) from None
    return schema
