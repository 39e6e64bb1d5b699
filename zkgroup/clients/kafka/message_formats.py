"""The types of keys, values and times of exported messages. Pure, and without pyarrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from zkgroup.schemas.field_schema import SchemaFormat

if TYPE_CHECKING:
    from zkgroup.clients.kafka.client import Message

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
