"""Options for the format and the schema of keys and values, of ``export`` and ``consume``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from zkgroup.errors import UsageError

if TYPE_CHECKING:
    from zkgroup.clients.kafka.message_contents import FieldFormat
    from zkgroup.clients.schema_registry import RegistrySettings
    from zkgroup.config import ConnectionSettings
    from zkgroup.schemas.field_schema import FieldSchema

#: In place of a file.
REGISTRY: Final = Path("registry")
FormatOption: TypeAlias = Literal["bytes", "text", "json", "avro"]


def parse_format(
    name: str, given: FormatOption | None, file: Path | None, *, needs_schema: bool = False
) -> FieldFormat | None:
    """The format of a "key" or "value". Raises ``UsageError`` for options that contradict each other."""
    if file is None:
        if given == "avro" or (given is not None and needs_schema):
            remedy = f"--{name}-schema FILE names it, and --{name}-schema registry takes those of --schema-registry"
            raise UsageError(f"--{name}-format {given} needs a schema", remedy)
        return given
    if given not in ("avro", "json"):
        raise UsageError(f"--{name}-schema is for Avro and JSON", f"add --{name}-format avro, or --{name}-format json")
    return "avro" if given == "avro" else "json-schema"


def read_schema(name: str, wish: FieldFormat | None, file: Path | None) -> FieldSchema | None:
    """The schema in a file, checked to have a column type; without a text, if it is the registry's. Raises
    ``UsageError``."""
    if file is None or (wish != "avro" and wish != "json-schema"):
        return None
    from zkgroup.export.stores.store import require
    from zkgroup.schemas.field_schema import FieldSchema, SchemaError

    require("pyarrow", *(["fastavro"] if wish == "avro" else []), what=f"--{name}-schema", extra="avro")
    if file == REGISTRY:
        return FieldSchema(wish, "")
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


def registry_of(settings: ConnectionSettings, *schemas: FieldSchema | None) -> RegistrySettings | None:
    """How to reach the registry, if one of ``schemas`` is its. Raises ``UsageError``."""
    if not any(schema is not None and not schema.text for schema in schemas):
        return None
    from zkgroup.clients.schema_registry import registry_settings

    return registry_settings(settings)


def registered(
    name: str, schema: FieldSchema | None, registry: RegistrySettings | None, topics: Iterable[str]
) -> FieldSchema | None:
    """The schema, or those that the registry has for keys or values of these topics."""
    if schema is None or schema.text or registry is None:
        return schema
    from zkgroup.clients.schema_registry import read_schema as read_registered

    return read_registered(registry, schema.format, topics, name)
