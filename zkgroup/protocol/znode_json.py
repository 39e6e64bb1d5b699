"""JSON of other clients in znodes: all that is unreadable raises MalformedZnodeError.

orjson makes this safe: it refuses invalid UTF-8, NaN, nesting beyond 1,024 levels and numbers out of all
bounds, all with one kind of error.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from zkgroup.errors import MalformedZnodeError

#: ZooKeeper itself refuses larger ones by default (``jute.maxbuffer``).
MAX_BYTES: Final = 1024 * 1024

INT32_MAX: Final = 2**31 - 1


def excerpt(text: object) -> str:
    """A short quote of foreign text: one line, at most 40 characters."""
    try:
        shown = repr(text[:41] if isinstance(text, str | bytes) else text)
    except RecursionError:
        shown = "[[[..."
    return shown if len(shown) <= 40 else shown[:37] + "..."


def excerpt_json(value: object) -> str:
    """A short quote of a JSON value."""
    try:
        shown = orjson.dumps(value).decode()
    except orjson.JSONEncodeError:  # lone surrogates
        return excerpt(value)
    return shown if len(shown) <= 40 else shown[:37] + "..."


def parse_object(path: str, data: bytes | None, remedy: str | None = None) -> dict[str, Any]:
    """Parse a znode's data as a JSON object, else raise MalformedZnodeError."""
    if not data:
        raise MalformedZnodeError(path, "is empty, not JSON", remedy)
    check_size(path, data, remedy)
    try:
        parsed = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise MalformedZnodeError(path, _why(data, error), remedy) from None
    if not isinstance(parsed, dict):
        raise MalformedZnodeError(path, f"is JSON, but {_kind(parsed)} and no object", remedy)
    return parsed


def check_size(path: str, data: bytes, remedy: str | None = None) -> None:
    """Raise MalformedZnodeError where the data is larger than 1 MiB."""
    if len(data) > MAX_BYTES:
        raise MalformedZnodeError(path, f"has {len(data)} bytes, more than 1 MiB", remedy)


def as_int(value: object, low: int = -(2**31), high: int = INT32_MAX) -> int | None:
    """The value if it is an integer (no boolean, no fraction) within the bounds, else None."""
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
        return value
    return None


def _why(data: bytes, error: orjson.JSONDecodeError) -> str:
    try:
        data.decode()
    except UnicodeDecodeError as wrong:
        return f"is no JSON: byte {wrong.start} is no UTF-8"
    return f"is no JSON (at character {error.pos}): starts with {excerpt(data.decode()[:41])}"


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, str):
        return "a string"
    return "true or false" if isinstance(value, bool) else "a number"


def has_other_numbers(parsed: dict[str, Any]) -> bool:
    """Whether a number is no 32-bit integer: Scala's parser, as Kafka up to 0.11 uses it, then fails as a whole."""
    waiting: list[object] = [parsed]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
        elif isinstance(value, int | float) and not isinstance(value, bool) and as_int(value) is None:
            return True
    return False
