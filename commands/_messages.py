r"""Messages → bytes to print, a whole batch at a time.

What costs in Python is work per message, so none is done here: each wanted part of all messages becomes one list (by
C functions under ``map``), and the lists and the fixed text between them are woven into one ``bytes.join``. A batch
mostly comes from one partition; then topic and partition are fixed text.

A *message* is confluent_kafka's ``Message`` or what has its methods; all of a batch are of one class and none is an
error (filter those before: the value of an error event is its text).

Format tokens are kcat's (1.7): ``%t`` topic, ``%p`` partition, ``%o`` offset, ``%k`` key, ``%K`` its length, ``%s``
value, ``%S`` its length, ``%R`` the same as a big-endian int32, ``%T`` timestamp in milliseconds, ``%h`` headers as
``name=value,…``, ``%%``. A null key or value is empty and its length −1, a null header value ``NULL``, a missing
timestamp −1. Escapes: ``\n``, ``\t``, ``\r``, ``\\``, ``\xXX``; ``\`` and digits is a byte's number (octal after a 0).
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from itertools import repeat
from operator import floordiv, mod
from typing import Any, Final, TypeAlias, cast

import orjson

from zkgroup.errors import UsageError

Message: TypeAlias = Any  # confluent_kafka.Message, which must not be imported for --help
Formatter: TypeAlias = Callable[[Sequence[Message]], bytes]
Column: TypeAlias = list[bytes]
# A part of each message, or what all have in common.
Part: TypeAlias = "bytes | Column"

_TOKEN: Final = re.compile(r"%(.?)|\\(x[0-9A-Fa-f]{1,2}|[0-9]+|.?)|[^%\\]+", re.DOTALL)
_LETTERS: Final = {"t": b"\t", "n": b"\n", "r": b"\r"}
_NO_TIMESTAMP: Final = 0
_TIMESTAMP_TYPES: Final = {1: b'"CreateTime"', 2: b'"LogAppendTime"'}
# A character that orjson leaves as it is, and that contents hardly ever hold; those that do take the slow way.
_SEPARATOR: Final = b"\x7f"
_MILLIS: Final = [b'.%03dZ"' % millis for millis in range(1000)]


def values_lines(batch: Sequence[Message]) -> bytes:
    """The values, one a line; a null value is an empty line."""
    return weave([_values(batch), b"\n"], len(batch)) if batch else b""


def compile_format(fmt: str) -> Formatter:
    """A function that prints batches in kcat's format. Raises ``UsageError`` for an unknown token."""
    parts: list[bytes | Callable[[Sequence[Message]], Part]] = []
    for match in _TOKEN.finditer(fmt):
        token, escape = match[1], match[2]
        if token is None:
            parts.append(match[0].encode("utf-8", "surrogateescape") if escape is None else _unescape(escape))
        elif token == "%":
            parts.append(b"%")
        elif token in _COLUMNS:
            parts.append(_COLUMNS[token])
        else:
            what = f"unknown token %{token}" if token else "a single % at its end"
            raise UsageError(f"--format has {what}", f"known: {' '.join('%' + name for name in _COLUMNS)} %%")

    def formatter(batch: Sequence[Message]) -> bytes:
        if not batch:
            return b""
        return weave([part if isinstance(part, bytes) else part(batch) for part in parts], len(batch))

    return formatter


def json_lines(batch: Sequence[Message]) -> bytes:
    """One JSON object a line: topic, partition, offset, timestamp, timestamp_type, key, value, headers.

    ``timestamp`` is ISO 8601 in UTC. Keys, values and header values are text, ``{"base64": …}`` where they are not
    UTF-8, or null. ``headers`` is a list of ``{"key": …, "value": …}``.
    """
    if not batch:
        return b""
    cls = type(batch[0])
    kinds, millis = zip(*map(cls.timestamp, batch), strict=True)
    return weave(
        [
            b'{"topic":',
            _json_texts(_topics(batch)),
            b',"partition":',
            _partitions(batch),
            b',"offset":',
            _offsets(batch),
            b',"timestamp":',
            *_json_times(kinds, millis),
            b',"timestamp_type":',
            _json_kinds(kinds),
            b',"key":',
            *_json_column(list(map(cls.key, batch))),
            b',"value":',
            *_json_column(list(map(cls.value, batch))),
            b',"headers":',
            _json_headers(list(map(cls.headers, batch))),
            b"}\n",
        ],
        len(batch),
    )


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


def _topics(batch: Sequence[Message]) -> list[str]:
    return list(map(type(batch[0]).topic, batch))


def _topic(batch: Sequence[Message]) -> Part:
    names = _topics(batch)
    if names.count(names[0]) == len(names):
        return names[0].encode()
    return list(map(str.encode, names))


def _partitions(batch: Sequence[Message]) -> Part:
    numbers = list(map(type(batch[0]).partition, batch))
    if numbers.count(numbers[0]) == len(numbers):
        return b"%d" % numbers[0]
    return _numbers(numbers)


def _offsets(batch: Sequence[Message]) -> Part:
    return _numbers(list(map(type(batch[0]).offset, batch)))


def _keys(batch: Sequence[Message]) -> Part:
    return list(map(type(batch[0]).key, batch))


def _values(batch: Sequence[Message]) -> Part:
    return list(map(type(batch[0]).value, batch))


def _lengths(contents: Iterable[bytes | None]) -> list[int]:
    return [-1 if content is None else len(content) for content in contents]


def _key_lengths(batch: Sequence[Message]) -> Part:
    return _numbers(_lengths(map(type(batch[0]).key, batch)))


def _value_lengths(batch: Sequence[Message]) -> Part:
    return _numbers(_lengths(map(type(batch[0]).value, batch)))


def _binary_lengths(batch: Sequence[Message]) -> Part:
    return list(map(struct.Struct(">i").pack, _lengths(map(type(batch[0]).value, batch))))


def _timestamps(batch: Sequence[Message]) -> Part:
    stamps = map(type(batch[0]).timestamp, batch)
    return _numbers([-1 if kind == _NO_TIMESTAMP else millis for kind, millis in stamps])


def _header_lists(batch: Sequence[Message]) -> Part:
    found = list(map(type(batch[0]).headers, batch))
    if found.count(None) == len(found):
        return b""
    return [b",".join([_header(*header) for header in headers or ()]) for headers in found]


def _header(name: str, value: bytes | str | None) -> bytes:
    content = b"NULL" if value is None else value.encode() if isinstance(value, str) else value
    return name.encode() + b"=" + content


_COLUMNS: Final[dict[str, Callable[[Sequence[Message]], Part]]] = {
    "s": _values,
    "S": _value_lengths,
    "R": _binary_lengths,
    "k": _keys,
    "K": _key_lengths,
    "T": _timestamps,
    "h": _header_lists,
    "t": _topic,
    "p": _partitions,
    "o": _offsets,
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


def _json_column(contents: list[bytes | None]) -> tuple[Part, ...]:
    """Keys or values as JSON, with the fixed text around them."""
    if contents.count(None) == len(contents):
        return (b"null",)
    # All at once: joined, checked to be UTF-8 and escaped, then cut at the separator. If any content holds it, there
    # are more pieces than messages.
    try:
        pieces = orjson.dumps(_SEPARATOR.join(contents).decode())[1:-1].split(_SEPARATOR)  # type: ignore[arg-type]
    except (TypeError, UnicodeDecodeError):
        pieces = []
    if len(pieces) == len(contents):
        return b'"', pieces, b'"'
    return (list(map(_json_bytes, contents)),)


def _json_bytes(content: bytes | str | None) -> bytes:
    if content is None:
        return b"null"
    if isinstance(content, str):
        return orjson.dumps(content)
    try:
        return orjson.dumps(content.decode())
    except UnicodeDecodeError:
        return orjson.dumps({"base64": base64.b64encode(content).decode()})


def _json_texts(texts: list[str]) -> Part:
    if texts.count(texts[0]) == len(texts):
        return orjson.dumps(texts[0])
    return list(map(orjson.dumps, texts))


def _json_kinds(kinds: tuple[int, ...]) -> Part:
    if kinds.count(kinds[0]) == len(kinds):
        return _TIMESTAMP_TYPES.get(kinds[0], b"null")
    return [_TIMESTAMP_TYPES.get(kind, b"null") for kind in kinds]


def _json_times(kinds: tuple[int, ...], millis: tuple[int, ...]) -> tuple[Part, ...]:
    """ISO 8601 for each timestamp; the calendar is asked once for each second in the batch."""
    different = set(millis)
    starts = {second: _json_second(second) for second in set(map(floordiv, different, repeat(1000)))}
    if _NO_TIMESTAMP not in kinds and None not in starts.values() and len(different) * 4 > len(millis):
        seconds = cast("Column", list(map(starts.__getitem__, map(floordiv, millis, repeat(1000)))))
        return seconds, list(map(_MILLIS.__getitem__, map(mod, millis, repeat(1000))))
    texts = {
        stamp: b"null" if (start := starts[stamp // 1000]) is None else start + _MILLIS[stamp % 1000]
        for stamp in different
    }
    column = list(map(texts.__getitem__, millis))
    if _NO_TIMESTAMP in kinds:
        column = [b"null" if kind == _NO_TIMESTAMP else text for kind, text in zip(kinds, column, strict=True)]
    return (column,)


def _json_second(second: int) -> bytes | None:
    """The start of a JSON text with the time, up to the seconds; None for what no calendar has."""
    try:
        return f'"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%S}'.encode()
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
