"""Headers of messages, also where a name is no UTF-8: Kafka does not look, and other clients write such.

There confluent-kafka 2.16 raises ``SystemError`` when it is asked for them, and the next time gives a list with holes,
at which Python crashes: whoever asks first has to mend the message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from zkgroup.errors import unwrap_system_error

if TYPE_CHECKING:
    from zkgroup.clients.kafka.client import Message

Headers: TypeAlias = list[tuple[str, bytes | None]]

#: The headers of a message that are not to be had, told from others by ``is``.
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
    """``UNREADABLE``, and so are the message's headers from now on, of which ``error`` was told. Raises it if it is of
    something else, such as a signal that came meanwhile."""
    if not isinstance(unwrap_system_error(error), UnicodeDecodeError):
        raise error
    message.set_headers(UNREADABLE)  # type: ignore[arg-type]
    return UNREADABLE
