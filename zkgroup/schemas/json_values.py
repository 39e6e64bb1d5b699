"""The values of a column as JSON texts, for people and pipes."""

from __future__ import annotations

import base64
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import orjson
import pyarrow as pa

#: Times in UTC end with Z.
_OPTIONS: Final = orjson.OPT_UTC_Z


def json_values(column: Any) -> list[bytes]:
    """Each value: a struct and a map as an object, a decimal as a number of all its digits, bytes as text, or as
    ``{"base64": …}`` where they are not UTF-8."""
    plain = _plain(column.type)
    return [orjson.dumps(plain(value), option=_OPTIONS) for value in column.to_pylist()]


def _plain(kind: Any) -> Callable[[Any], Any]:
    """How a Python value of a type becomes one that JSON has; of None, None."""
    if pa.types.is_struct(kind):
        fields = {field.name: _plain(field.type) for field in kind}
        return lambda value: value and {name: one(value[name]) for name, one in fields.items()}
    if pa.types.is_list(kind):
        item = _plain(kind.value_type)
        return lambda value: value and [item(one) for one in value]
    if pa.types.is_map(kind):
        inner = _plain(kind.item_type)
        return lambda value: None if value is None else {name: inner(one) for name, one in value}
    if pa.types.is_decimal(kind):
        return _number
    return _text if pa.types.is_binary(kind) else lambda value: value


def _number(value: Decimal | None) -> orjson.Fragment | None:
    return None if value is None else orjson.Fragment(f"{value:f}")


def _text(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
