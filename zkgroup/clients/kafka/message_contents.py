"""Headers, times, and keys and values of messages, without confluent-kafka and pyarrow.

Kafka does not check that the name of a header is UTF-8, and other clients write such names. For those confluent-kafka
2.16 raises ``SystemError`` at the first call, and at the second returns a list with holes, at which Python crashes. So
the first caller must repair the message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

import orjson

from zkgroup.errors import unwrap_system_error
from zkgroup.schemas.field_schema import SchemaFormat

if TYPE_CHECKING:
    from zkgroup.clients.kafka.client import Message

Headers: TypeAlias = list[tuple[str, bytes | None]]

#: In place of headers that cannot be read. Compare with ``is``.
UNREADABLE: Final[Headers] = [("\ufffd", None)]


def headers_of(messages: Sequence[Message]) -> list[Headers | None]:
    """The headers of each message; ``UNREADABLE`` where they are."""
    ask = type(messages[0]).headers if messages else None
    rest = iter(messages)
    found: list[Headers | None] = []
    while True:
        try:
            found.extend(cast("Iterator[Headers | None]", map(ask, rest) if ask else ()))
        except SystemError as error:
            found.append(mended(messages[len(found)], error))
        else:
            return found


def mended(message: Message, error: SystemError) -> Headers:
    """Replace the headers of a message, whose call has raised ``error``, by ``UNREADABLE``. Raises ``error`` if it has
    another cause, such as a signal."""
    if not isinstance(unwrap_system_error(error), UnicodeDecodeError):
        raise error
    message.set_headers(UNREADABLE)  # type: ignore[arg-type]
    return UNREADABLE


#: Of a key or a value without a schema.
Format: TypeAlias = Literal["bytes", "text", "json"]
#: Of any.
FieldFormat: TypeAlias = Format | SchemaFormat
#: Milliseconds since 1970: timestamps from here on, the last day of the year 9999, are in no calendar, as local times
#: leave it there; readers cannot read, or show them. None of Kafka's is below 0.
END_OF_TIME: Final = 253_402_128_000_000


def time_of(message: Message) -> int | None:
    """A message's timestamp in milliseconds since 1970; None where it has none that is in a calendar."""
    kind, ms = message.timestamp()
    return ms if kind > 0 and 0 <= ms < END_OF_TIME else None


#: Bytes from which on a value is walked through.
LARGE: Final = 1 << 20
_LEVELS: Final = 1024

_SPACE = rb"[ \t\n\r]*"
# Of surrogates, only pairs: a high one and a low one.
_UNICODE = (
    rb"u(?:[0-9a-cefA-CEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}"
    rb"|[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
)
_STRING = rb'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|' + _UNICODE + rb'))*+"'
_SCALAR = rb"(?:" + _STRING + rb"|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?|true|false|null)"
_BEGIN = re.compile(_SPACE + rb"(?:(?P<open>[\[{])|(?P<close>[\]}])|" + _SCALAR + rb")" + _SPACE)
_KEY = re.compile(_SPACE + _STRING + _SPACE + rb":")
_END_OF_OBJECT = re.compile(_SPACE + rb"\}" + _SPACE)
_NEXT = re.compile(rb"(?:(,)|([\]}]))" + _SPACE)


def is_json(value: bytes) -> bool:
    """Whether ``value`` is one JSON value."""
    if len(value) < LARGE:
        try:
            orjson.loads(value)
        except orjson.JSONDecodeError:
            pass
        else:
            return True
    return is_walked_json(value)


def is_walked_json(value: bytes) -> bool:
    """The same, in no more memory than the levels need; some twenty times slower."""
    return is_text(value) and _walk(value)


def is_text(value: bytes) -> bool:
    """Whether ``value`` is UTF-8."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _walk(text: bytes) -> bool:
    levels = bytearray()  # the bracket that each open level began with
    place = 0
    fresh = False  # just behind an opening bracket
    while True:
        if levels and levels[-1] == 0x7B:
            closing = _END_OF_OBJECT.match(text, place) if fresh else None
            if closing is None:
                key = _KEY.match(text, place)
                if key is None:
                    return False
                place = key.end()
                fresh = False
        found = _BEGIN.match(text, place)
        if found is None:
            return False
        place = found.end()
        if found["open"]:
            levels += found["open"]
            if len(levels) > _LEVELS:
                return False
            fresh = True
            continue
        # Only an empty list ends where a value may stand.
        if found["close"] and (not fresh or not levels or levels.pop() != found["close"][0] - 2):
            return False
        fresh = False
        while levels:
            following = _NEXT.match(text, place)
            if following is None:
                return False
            place = following.end()
            if following[1]:
                break
            if levels.pop() != following[2][0] - 2:
                return False
        else:
            return place == len(text)
