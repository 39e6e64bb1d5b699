"""Messages of a range → their fingerprints, which are the same in every copy."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

from zkgroup.clients.kafka.client import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE, Consumer, Message
from zkgroup.clients.kafka.fetcher import offset_of
from zkgroup.clients.kafka.message_contents import Headers, headers_of
from zkgroup.clients.kafka.range_reader import RangeReader
from zkgroup.clients.kafka.responses import Fingerprint, ReadMessage
from zkgroup.protocol.names import TopicPartition

_BYTES: Final = 16


def read_fingerprints(
    consumer: Consumer, partition: TopicPartition, start: int, end: int, silence_timeout: float
) -> Iterator[ReadMessage]:
    """The messages with ``start`` ≤ offset < ``end``, in order. Raises as ``RangeReader.batches``."""
    for batch in RangeReader(consumer, silence_timeout).batches(partition, start, end):
        messages: list[Message] = list(batch)
        for message, headers in zip(messages, headers_of(messages), strict=True):
            kind, millis = message.timestamp()
            at = None if kind == TIMESTAMP_NOT_AVAILABLE or millis <= 0 else millis  # the oldest format has (0, 0)
            is_created_at = at is not None and kind == TIMESTAMP_CREATE_TIME
            found = _fingerprint(message, headers, at)
            yield ReadMessage(offset_of(message), at, found, is_created_at, message.value() is None)


def _fingerprint(message: Message, headers: Headers | None, timestamp: int | None) -> Fingerprint:
    key = _part(message.key())
    content = blake2b(key + _part(message.value()), digest_size=_BYTES)
    whole = content.copy()
    for name, value in headers or ():
        whole.update(_part(name.encode("utf-8", "surrogatepass")) + _part(value))
    untimed = whole.digest()
    whole.update(struct.pack("!q", -1 if timestamp is None else timestamp))
    return Fingerprint(whole.digest(), untimed, content.digest(), blake2b(key, digest_size=_BYTES).digest())


def _part(data: bytes | str | None) -> bytes:
    """Bytes with their length, so that no two sequences of parts are the same."""
    if data is None:
        return struct.pack("!i", -1)
    found = data if isinstance(data, bytes) else data.encode("utf-8", "surrogateescape")
    return struct.pack("!i", len(found)) + found
