"""A JSON Schema → the Arrow type of its values, and how a parsed value becomes one of it. Pure.
``docs/how-to/schemas.md`` has the table of types.

Types and ``required`` are checked; ranges, patterns, enum and the like are not. Null stands for a field that is not
there, unless that is required and of a type without null. Several types, an object or an array of anything, and a
schema within itself have no Arrow type.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa

from zkgroup.schemas.column_types import struct_of
from zkgroup.schemas.field_schema import Convert, SchemaError, UndecodableError, no_type

_INT64: Final = 1 << 63
_REFERENCES: Final = 100  # one behind the other


class JsonColumn(NamedTuple):
    """``type``: of the column. ``read``: as Arrow's JSON reader can read it, with strings for times; None where it
    cannot (a map). ``convert``: takes a parsed value that is not null. ``required``: names of fields that must not be
    null. ``fields`` of a struct, ``item`` of a list."""

    type: Any
    read: Any
    convert: Convert
    required: tuple[str, ...] = ()
    fields: Mapping[str, JsonColumn] = {}  # never changed
    item: JsonColumn | None = None

    @property
    def is_strict(self) -> bool:
        """Whether any field, however deep, is required."""
        inner = [*self.fields.values(), *([self.item] if self.item else [])]
        return bool(self.required) or any(one.is_strict for one in inner)


def read_json_schema(text: str) -> JsonColumn:
    """The column of a schema. Raises ``SchemaError``."""
    try:
        document = json.loads(text)
        column, _ = _JsonSchemaWalk(document).column(document, "$")
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise SchemaError(f"this is no JSON Schema ({str(error)[:200]})", "name a file with one") from None
    return column


class _JsonSchemaWalk:
    def __init__(self, document: Any) -> None:
        self._document = document
        self._open: list[Any] = []  # the schemas that this one is within

    def column(self, schema: Any, path: str) -> tuple[JsonColumn, bool]:
        """The column, and whether null is a value of the schema."""
        schema, nullable = self._resolve(schema, path)
        if any(schema is one for one in self._open):
            raise no_type(path, "a schema within itself")
        self._open.append(schema)
        try:
            kind, null = self._kind(schema, path)
            return self._of_kind(kind, schema, path), nullable or null
        finally:
            self._open.pop()

    def _resolve(self, schema: Any, path: str) -> tuple[dict[str, Any], bool]:
        nullable = False
        for _ in range(_REFERENCES):
            if not isinstance(schema, dict):
                raise no_type(path, "of no type")
            if "$ref" in schema:
                schema = self._named(schema["$ref"], path)
            elif len(all_of := schema.get("allOf", ())) == 1 and "type" not in schema:
                (schema,) = all_of
            elif "anyOf" in schema or "oneOf" in schema:
                branches = schema["anyOf" if "anyOf" in schema else "oneOf"]
                others = [one for one in branches if not (isinstance(one, dict) and one.get("type") == "null")]
                if len(others) != 1:
                    raise no_type(path, f"of {len(others)} types besides null")
                nullable |= len(others) < len(branches)
                (schema,) = others
            else:
                return schema, nullable
        raise no_type(path, "a schema within itself")

    def _named(self, reference: str, path: str) -> Any:
        if not reference.startswith("#"):
            raise SchemaError(f"{path} refers to {reference}, outside of the file", "put the schema into one file")
        found = self._document
        for word in reference[1:].split("/")[1:]:
            key = word.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or key not in found:
                raise SchemaError(f"{path} refers to {reference}, which is not there", "correct the reference")
            found = found[key]
        return found

    @staticmethod
    def _kind(schema: Mapping[str, Any], path: str) -> tuple[str, bool]:
        kinds = schema.get("type")
        if kinds is None:
            values = schema.get("enum", [schema["const"]] if "const" in schema else [])
            if values and all(isinstance(one, str) for one in values):
                return "string", False
            if "properties" in schema:
                return "object", False
            raise no_type(path, "of no type")
        kinds = [kinds] if isinstance(kinds, str) else list(kinds)
        others = [one for one in kinds if one != "null"]
        if len(others) != 1:
            raise no_type(path, f"of {len(others)} types besides null")
        return others[0], len(others) < len(kinds)

    def _of_kind(self, kind: str, schema: Mapping[str, Any], path: str) -> JsonColumn:
        match kind:
            case "boolean":
                return JsonColumn(pa.bool_(), pa.bool_(), _of_class(bool, "true or false", path))
            case "integer":
                return JsonColumn(pa.int64(), pa.int64(), _integer(path))
            case "number":
                return JsonColumn(pa.float64(), pa.float64(), _number(path))
            case "string":
                return _string(schema.get("format"), path)
            case "array":
                return self._array(schema, path)
            case "object":
                return self._object(schema, path)
        raise no_type(path, f"of the type {kind}")

    def _array(self, schema: Mapping[str, Any], path: str) -> JsonColumn:
        items = schema.get("items")
        if not isinstance(items, dict) or schema.get("prefixItems"):
            raise no_type(path, "an array of anything")
        item, _ = self.column(items, f"{path}[]")
        is_list, inner = _of_class(list, "an array", path), item.convert

        def convert(value: Any) -> Any:
            return [None if one is None else inner(one) for one in is_list(value)]

        return JsonColumn(pa.list_(item.type), item.read and pa.list_(item.read), convert, item=item)

    def _object(self, schema: Mapping[str, Any], path: str) -> JsonColumn:
        is_object = _of_class(dict, "an object", path)
        properties = schema.get("properties")
        if not properties:
            values = schema.get("additionalProperties")
            if not isinstance(values, dict):
                raise no_type(path, "an object of anything")
            item, _ = self.column(values, f"{path}{{}}")
            inner = item.convert

            def convert_map(value: Any) -> Any:
                return [(name, None if one is None else inner(one)) for name, one in is_object(value).items()]

            return JsonColumn(pa.map_(pa.string(), item.type), None, convert_map)
        fields: dict[str, JsonColumn] = {}
        required: list[str] = []
        for name, one in properties.items():
            fields[name], nullable = self.column(one, f"{path}.{name}")
            if name in schema.get("required", ()) and not nullable:
                required.append(name)
        converts = [(name, one.convert) for name, one in fields.items()]

        def convert(value: Any) -> Any:
            found = is_object(value)
            for name in required:
                if found.get(name) is None:
                    raise UndecodableError(f"{path}.{name} is missing")
            return {name: None if (part := found.get(name)) is None else inner(part) for name, inner in converts}

        made = struct_of(((name, one.type) for name, one in fields.items()), path)
        reads = [(name, one.read) for name, one in fields.items()]
        read = None if any(one is None for _, one in reads) else struct_of(reads, path)
        return JsonColumn(made, read, convert, tuple(required), fields)


def _of_class(kind: type, what: str, path: str) -> Convert:
    def convert(value: Any) -> Any:
        if not isinstance(value, kind):
            raise UndecodableError(f"{path} is not {what}")
        return value

    return convert


def _integer(path: str) -> Convert:
    def convert(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int | float) or value != (whole := _whole(value)):
            raise UndecodableError(f"{path} is not an integer")
        if not -_INT64 <= whole < _INT64:
            raise UndecodableError(f"{path} is an integer of more than 64 bits")
        return whole

    return convert


def _whole(value: float) -> int:
    try:
        return int(value)
    except (OverflowError, ValueError):  # of an infinite number
        return 0


def _number(path: str) -> Convert:
    def convert(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UndecodableError(f"{path} is not a number")
        return float(value)

    return convert


def _string(form: object, path: str) -> JsonColumn:
    is_text = _of_class(str, "a string", path)
    match form:
        case "date-time":
            return JsonColumn(pa.timestamp("us", "UTC"), pa.string(), _time(path))
        case "date":
            return JsonColumn(pa.date32(), pa.string(), _date(path))
    return JsonColumn(pa.string(), pa.string(), is_text)


def _time(path: str) -> Convert:
    def convert(value: Any) -> datetime.datetime:
        try:
            found = datetime.datetime.fromisoformat(value)
            if found.tzinfo is None:
                raise ValueError
            return found.astimezone(datetime.UTC)
        except (ValueError, TypeError, OverflowError):
            raise UndecodableError(f"{path} is not a time with a zone, as 2024-05-01T12:00:00Z") from None

    return convert


def _date(path: str) -> Convert:
    def convert(value: Any) -> datetime.date:
        try:
            return datetime.date.fromisoformat(value)
        except (ValueError, TypeError):
            raise UndecodableError(f"{path} is not a date, as 2024-05-01") from None

    return convert
