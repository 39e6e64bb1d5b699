"""Headers, times, and keys and values of messages, without confluent-kafka and pyarrow.

Kafka does not check that the name of a header is UTF-8, and other clients write such names. For those confluent-kafka
2.16 raises ``SystemError`` at the first call, and at the second returns a list with holes, at which Python crashes. So
the first caller must repair the message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

from zkgroup.errors import unwrap_system_error
from zkgroup.schemas.field_schema import SchemaFormat

if TYPE_CHECKING:
    from msgspec import Raw
    from msgspec.json import Decoder

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


_MAX_DEPTH: Final = 1024
#: Strings, and what is between brackets.
_FLAT: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|[^][{}"]+')


@cache
def _raw_json() -> Decoder[Raw]:
    from msgspec import Raw
    from msgspec.json import Decoder  # Spark's executors with the native reader do without

    return Decoder(Raw)


def is_json(value: bytes) -> bool:
    """Whether ``value`` is one JSON value (RFC 8259): UTF-8, no NaN, nothing behind it; and without lone surrogates as
    escapes and more than 1,024 levels, which most readers do not take. (Python 3.11 itself takes 800 for sure.)"""
    try:
        _raw_json().decode(value)  # reads over it, and builds nothing
    except (ValueError, RecursionError):
        return False
    if not is_text(value):
        return False
    steps = (1 if bracket in b"[{" else -1 for bracket in _FLAT.sub(b"", value))
    return value.count(b"[") + value.count(b"{") <= _MAX_DEPTH or max(accumulate(steps)) <= _MAX_DEPTH


def is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
