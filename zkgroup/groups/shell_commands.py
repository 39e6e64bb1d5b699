"""Command lines that can be pasted into a shell, whatever groups and topics are called; pure."""

from __future__ import annotations

import shlex
from typing import Final

#: How to be rid of offsets in Kafka: librdkafka can ask for it (2.16), confluent-kafka cannot.
OFFSETS_IN_KAFKA: Final = (
    "expire by themselves (offsets.retention.minutes), or are removed by --delete-offsets of Kafka's own"
    " kafka-consumer-groups, with brokers of 2.4 or later"
)


def command_line(name: str, group: str, options: str = "") -> str:
    """A command about a group, as a shell takes it; one that looks like an option comes last, after ``--``."""
    words = [options, "--", quoted(group)] if group.startswith("-") else [quoted(group), options]
    return " ".join(word for word in ("zkgroup", name, *words) if word)


def in_quotes(command: str) -> str:
    """A command within a sentence: in quotes, but where it has some itself, which others around them would break."""
    return command if "'" in command else f"'{command}'"


def quoted(text: str) -> str:
    """A word for a shell. What a terminal would not show, or obey, is written as ``$'\\x1b'``, byte by byte."""
    if text.isprintable():
        return shlex.quote(text)
    plain = {"\\": "\\\\", "'": "\\'"}
    # Lone surrogates stand for bytes that were no UTF-8.
    bytes_of = (
        plain.get(one) or (one if one.isprintable() else "".join(f"\\x{byte:02x}" for byte in _encoded(one)))
        for one in text
    )
    return f"$'{''.join(bytes_of)}'"


def _encoded(character: str) -> bytes:
    if "\udc80" <= character <= "\udcff":
        return character.encode("utf-8", "surrogateescape")
    return character.encode("utf-8", "surrogatepass")
