"""Where an export begins and ends, as it is asked for: in words, by a time, by offsets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from zkgroup.connector.start import parse_start
from zkgroup.errors import UsageError
from zkgroup.groups.files import STDIO, Wanted, read_offsets
from zkgroup.protocol.names import TopicPartition, validate_topic

_OFFSET = re.compile(r"([^:=,\s]+):([0-9]{1,9})=([0-9]{1,18})", re.ASCII)
_PLACES = ("committed", "earliest", "latest", "end")


@dataclass(frozen=True, slots=True)
class Bound:
    """A place in every partition, or in those that ``offsets`` names. ``millis``: milliseconds since 1970."""

    kind: Literal["committed", "earliest", "latest", "time", "offsets"]
    millis: int = 0
    offsets: Mapping[TopicPartition, Wanted] = field(default_factory=dict)


COMMITTED, EARLIEST, LATEST = Bound("committed"), Bound("earliest"), Bound("latest")


def parse_bound(text: str, group: str, option: str) -> Bound:
    """Read ``committed``, ``earliest``, ``latest`` (or ``end``), ``@TIME`` (ISO 8601, or milliseconds since 1970),
    ``TOPIC:PARTITION=OFFSET,…``, or the name of an offset file, of which the group's offsets are taken, or those of the
    one group that it holds. Raises ``UsageError``."""
    if text in _PLACES:
        return {"committed": COMMITTED, "earliest": EARLIEST}.get(text, LATEST)
    if text.startswith("@"):
        return Bound("time", parse_start(text).value)
    pieces = text.split(",")
    if all(_OFFSET.fullmatch(piece) for piece in pieces):
        offsets: dict[TopicPartition, Wanted] = {}
        for piece in pieces:
            match = _OFFSET.fullmatch(piece)
            assert match is not None
            partition = TopicPartition(validate_topic(match[1]), int(match[2]))
            if offsets.setdefault(partition, int(match[3])) != int(match[3]):
                raise UsageError(f"{option} names two offsets for {partition}", "keep one of the two")
        return Bound("offsets", offsets=offsets)
    if text != STDIO and not Path(text).exists():
        raise UsageError(
            f"{option} {text[:80]!r} is no place and no file",
            "write committed, earliest, latest, @TIME such as @2024-05-01T12:00, TOPIC:PARTITION=OFFSET,…, or the name "
            "of an offset file",
        )
    file = read_offsets(text)
    found = next(iter(file.groups.values())) if len(file.groups) == 1 else file.offsets_of(group)
    return Bound("offsets", offsets=found)
