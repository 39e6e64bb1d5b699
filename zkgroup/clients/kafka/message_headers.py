"""Headers of messages, also where a name is no UTF-8: Kafka does not check that, and other clients write such names.

For those confluent-kafka 2.16 raises ``SystemError`` at the first call, and at the second returns a list with holes, at
which Python crashes. So the first caller must repair the message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from zkgroup.errors import unwrap_system_error

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
