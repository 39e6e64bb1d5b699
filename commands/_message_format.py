r"""Messages → bytes to print, a whole batch at a time.

What costs in Python is work per message, so none is done here: each wanted part of all messages becomes one list (by
C functions under ``map``), and the lists and the fixed text between them are woven into one ``bytes.join``.

A *message* is confluent_kafka's ``Message`` or what has its methods; all of a batch are of one class and none is an
error (filter those before: the value of an error event is its text).

Format tokens are kcat's (1.7): ``%t`` topic, ``%p`` partition, ``%o`` offset, ``%k`` key, ``%K`` its length, ``%s``
value, ``%S`` its length, ``%R`` the same as a big-endian int32, ``%T`` timestamp in milliseconds, ``%h`` headers as
``name=value,…``, ``%%``. A null key or value is empty and its length −1, a null header value ``NULL``, a missing
timestamp −1. Escapes: ``\n``, ``\t``, ``\r``, ``\\``, ``\xXX``; ``\`` and digits is a byte's number (octal after a 0).

What is *visible* is for a terminal: whatever of a message a terminal would obey or not show is escaped, as in tables.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import orjson

from zkgroup.clients.kafka.message_contents import headers_of
from zkgroup.errors import UsageError

from ._terminal_text import escape, json_escape

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from zkgroup.clients.kafka.native_reader import NativeMessages
    from zkgroup.schemas.field_schema import FieldSchema

Message: TypeAlias = Any  # confluent_kafka.Message, which must not be imported for --help
Column: TypeAlias = list[bytes]
# A part of each message, or what all have in common.
Part: TypeAlias = "bytes | Column"
Parts: TypeAlias = "tuple[Part, ...]"


#: Prints a batch.
Formatter: TypeAlias = "Callable[[Sequence[Message]], bytes | Buffer]"

_TOKEN: Final = re.compile(r"%(.?)|\\(x[0-9A-Fa-f]{1,2}|[0-9]+|.?)|[^%\\]+", re.DOTALL)
_LETTERS: Final = {"t": b"\t", "n": b"\n", "r": b"\r"}
_NO_TIMESTAMP: Final = 0
_TIMESTAMP_KEY: Final = b',"timestamp_type":'
_TIMESTAMP_TYPES: Final = {1: b'"CreateTime"', 2: b'"LogAppendTime"'}
# A character that orjson leaves as it is, and that contents hardly ever hold; those that do take the slow way.
_SEPARATOR: Final = b"\x7f"


def values_lines(batch: Sequence[Message]) -> bytes | Buffer:
    """The values, one a line; a null value is an empty line."""
    if (native := _native(batch)) is not None:
        return native.values()
    if not batch:
        return b""
    lines = list(map(type(batch[0]).value, batch))
    lines.append(b"")
    try:
        return b"\n".join(lines)
    except TypeError:
        return b"\n".join([line or b"" for line in lines])


def visible_json_lines(batch: Sequence[Message]) -> bytes:
    """As ``json_lines``, for a terminal: the same values."""
    return json_escape(bytes(json_lines(batch)).decode()).encode()


def _visible(content: bytes) -> bytes:
    return escape(content.decode("utf-8", "backslashreplace")).encode()


def _shown(part: Part) -> Part:
    return _visible(part) if isinstance(part, bytes) else [content and _visible(content) for content in part]


def compile_format(fmt: str, *, visible: bool = False) -> Formatter:
    """A function that prints batches in kcat's format. Raises ``UsageError`` for an unknown token."""
    parsed = parse_format(fmt)
    parts = [part if isinstance(part, bytes) else _COLUMNS[part] for part in parsed]

    def formatter(batch: Sequence[Message]) -> bytes | Buffer:
        native = _native(batch)
        if native is not None and not visible:
            return native.format(parsed)
        if not batch:
            return b""
        woven = [part if isinstance(part, bytes) else part(batch) for part in parts]
        if visible:
            woven = [made if isinstance(part, bytes) else _shown(made) for part, made in zip(parts, woven, strict=True)]
        return weave(woven, len(batch))

    return formatter


def parse_format(fmt: str) -> tuple[bytes | str, ...]:
    """The parts of a format: fixed bytes, and the letters of tokens. Raises ``UsageError`` for an unknown token."""
    parts: list[bytes | str] = []
    for match in _TOKEN.finditer(fmt):
        token, escape = match[1], match[2]
        if token is None:
            parts.append(match[0].encode("utf-8", "surrogateescape") if escape is None else _unescape(escape))
        elif token == "%":
            parts.append(b"%")
        elif token in _COLUMNS:
            parts.append(token)
        else:
            what = f"unknown token %{token}" if token else "a single % at its end"
            raise UsageError(f"--format has {what}", f"known: {' '.join('%' + name for name in _COLUMNS)} %%")
    return tuple(parts)


def _native(batch: Sequence[Message]) -> NativeMessages | None:
    return cast("NativeMessages", batch) if hasattr(batch, "json") else None


def _column(batch: Sequence[Message], of: str) -> list[Any]:
    return list(headers_of(batch)) if of == "headers" else list(map(getattr(type(batch[0]), of), batch))


def json_lines(batch: Sequence[Message]) -> bytes | Buffer:
    """One JSON object a line: topic, partition, offset, timestamp, timestamp_type, key, value, headers.

    ``timestamp`` is ISO 8601 in UTC; null where there is none, and for a number that no calendar has, which then is in
    ``timestamp_raw``, too. Keys, values and header values are text, ``{"base64": …}`` where they are not
    UTF-8, or null. ``headers`` is a list of ``{"key": …, "value": …}``.
    """
    if (native := _native(batch)) is not None:
        return native.json()
    return _json_lines(batch, _json_column, _json_column)


def decoded_json_lines(key: FieldSchema | None, value: FieldSchema | None, *, visible: bool = False) -> Formatter:
    """A function that prints batches as ``json_lines`` does, but for keys and values that have a schema: these are as
    an export writes them. One that does not decode is null; ``value_raw`` has it, and ``value_error`` the reason."""
    key_column = _json_column if key is None else _decoded_column("key", key)
    value_column = _json_column if value is None else _decoded_column("value", value)

    def formatter(batch: Sequence[Message]) -> bytes:
        # A message of a native batch is made anew whenever it is asked for.
        lines = _json_lines(list(batch), key_column, value_column)
        return json_escape(lines.decode()).encode() if visible else lines

    return formatter


def _json_lines(
    batch: Sequence[Message],
    key: Callable[[list[bytes | None]], Parts],
    value: Callable[[list[bytes | None]], Parts],
) -> bytes:
    if not batch:
        return b""
    parts: list[Part] = [
        b'{"topic":',
        _same_or_each(_column(batch, "topic"), orjson.dumps),
        b',"partition":',
        _numbers(_column(batch, "partition")),
        b',"offset":',
        _numbers(_column(batch, "offset")),
        b',"timestamp":',
        list(map(_json_time, _column(batch, "timestamp"))),
        b',"key":',
        *key(_column(batch, "key")),
        b',"value":',
        *value(_column(batch, "value")),
        b',"headers":',
        _json_headers(_column(batch, "headers")),
        b"}\n",
    ]
    return weave(parts, len(batch))


def weave(parts: Sequence[Part], count: int) -> bytes:
    """Join ``parts`` for each of ``count`` messages: columns give one element to each, fixed text is repeated.

    A None in a column counts as empty.
    """
    merged: list[Part] = []
    for part in parts:
        last = merged[-1] if merged else None
        if isinstance(part, bytes) and isinstance(last, bytes):
            merged[-1] = last + part
        elif part or isinstance(part, list):
            merged.append(part)
    fixed = [part if isinstance(part, bytes) else b"" for part in merged]
    columns = [(index, part) for index, part in enumerate(merged) if isinstance(part, list)]
    if not columns:
        return b"".join(fixed) * count
    woven = fixed * count
    for index, column in columns:
        woven[index :: len(fixed)] = column
    try:
        return b"".join(woven)
    except TypeError:
        return b"".join([element or b"" for element in woven])


def _numbers(numbers: list[int]) -> Column:
    # Twice as fast as b"%d" % number for each.
    return orjson.dumps(numbers)[1:-1].split(b",")


def _same_or_each(names: list[str], encode: Callable[[str], bytes]) -> Part:
    return encode(names[0]) if names.count(names[0]) == len(names) else list(map(encode, names))


def _lengths(batch: Sequence[Message], of: str) -> list[int]:
    return [-1 if content is None else len(content) for content in _column(batch, of)]


def _header_list(batch: Sequence[Message]) -> Part:
    found = _column(batch, "headers")
    if found.count(None) == len(found):
        return b""
    return [b",".join([_header(*header) for header in headers or ()]) for headers in found]


def _header(name: str, value: bytes | str | None) -> bytes:
    content = b"NULL" if value is None else value.encode() if isinstance(value, str) else value
    return name.encode() + b"=" + content


def _millis(batch: Sequence[Message]) -> Column:
    return _numbers([-1 if kind == _NO_TIMESTAMP else at for kind, at in _column(batch, "timestamp")])


_COLUMNS: Final[dict[str, Callable[[Sequence[Message]], Part]]] = {
    "s": lambda batch: _column(batch, "value"),
    "S": lambda batch: _numbers(_lengths(batch, "value")),
    "R": lambda batch: list(map(struct.Struct(">i").pack, _lengths(batch, "value"))),
    "k": lambda batch: _column(batch, "key"),
    "K": lambda batch: _numbers(_lengths(batch, "key")),
    "T": _millis,
    "h": _header_list,
    "t": lambda batch: _same_or_each(_column(batch, "topic"), str.encode),
    "p": lambda batch: _numbers(_column(batch, "partition")),
    "o": lambda batch: _numbers(_column(batch, "offset")),
}


def _unescape(escape: str) -> bytes:
    if not escape:
        return b"\\"
    if escape[0] == "x" and len(escape) > 1:
        return bytes([int(escape[1:], 16)])
    if escape.isascii() and escape.isdigit():
        # strtoul with base 0, as kcat calls it, but for what is no octal number after all.
        octal = escape[0] == "0" and not set(escape) & {"8", "9"}
        return bytes([int(escape, 8 if octal else 10) & 0xFF])
    return _LETTERS.get(escape) or escape.encode("utf-8", "surrogateescape")


# JSON


def _json_column(contents: list[bytes | None]) -> Parts:
    """Keys or values as JSON, with the fixed text around them."""
    if contents.count(None) == len(contents):
        return (b"null",)
    # All at once: joined, checked to be UTF-8, and escaped. What has not grown by that has nothing to escape;
    # otherwise it is cut at the separator. If any content has that, there are more pieces than messages.
    try:
        joined = _SEPARATOR.join(contents)  # type: ignore[arg-type]
        escaped = orjson.dumps(joined.decode())
    except (TypeError, UnicodeDecodeError):
        return (list(map(_json_bytes, contents)),)
    if len(escaped) == len(joined) + 2:
        return b'"', cast("Column", contents), b'"'
    pieces = escaped[1:-1].split(_SEPARATOR)
    return (b'"', pieces, b'"') if len(pieces) == len(contents) else (list(map(_json_bytes, contents)),)


def _decoded_column(name: str, schema: FieldSchema) -> Callable[[list[bytes | None]], Parts]:
    from zkgroup.clients.kafka.arrow_columns import FieldColumns  # pyarrow takes 0.1 s
    from zkgroup.schemas.column_types import json_values

    columns = FieldColumns(name, schema)

    def column(contents: list[bytes | None]) -> Parts:
        made, raw, errors = columns.make(contents)
        printed = json_values(made)
        for place, (data, why) in enumerate(zip(raw.to_pylist(), errors.to_pylist(), strict=True)):
            if why is not None:
                fields = (f"{name}_raw".encode(), _json_bytes(data), f"{name}_error".encode(), _json_bytes(why))
                printed[place] = b'null,"%s":%s,"%s":%s' % fields
        return (printed,)

    return column


def _json_bytes(content: bytes | str | None) -> bytes:
    if content is None:
        return b"null"
    if isinstance(content, str):
        return orjson.dumps(content)
    try:
        return orjson.dumps(content.decode())
    except UnicodeDecodeError:
        return orjson.dumps({"base64": base64.b64encode(content).decode()})


@lru_cache(4096)
def _json_time(stamp: tuple[int, int]) -> bytes:
    """A timestamp as (type, milliseconds), as JSON with that of its type."""
    kind, millis = stamp
    if millis == -1:  # Kafka's own word for none
        kind = _NO_TIMESTAMP
    if kind == _NO_TIMESTAMP:
        text = b"null"
    elif (start := _json_second(millis // 1000)) is not None:
        text = start + b'.%03dZ"' % (millis % 1000)
    else:
        text = b'null,"timestamp_raw":%d' % millis
    return text + _TIMESTAMP_KEY + _TIMESTAMP_TYPES.get(kind, b"null")


@lru_cache(1024)
def _json_second(second: int) -> bytes | None:
    """The start of a JSON text with the time, up to the seconds; None for what no calendar has."""
    try:
        # Not strftime, which writes the years before 1000 with fewer digits.
        return f'"{datetime.fromtimestamp(second, UTC).replace(tzinfo=None).isoformat()}'.encode()
    except (OverflowError, ValueError, OSError):
        return None


def _json_headers(found: list[list[tuple[str, bytes | str | None]] | None]) -> Part:
    if found.count(None) == len(found):
        return b"[]"
    return [
        b"["
        + b",".join(
            [
                b'{"key":' + orjson.dumps(name) + b',"value":' + _json_bytes(value) + b"}"
                for name, value in headers or ()
            ]
        )
        + b"]"
        for headers in found
    ]
