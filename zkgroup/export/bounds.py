"""Where an export begins and ends, as it is asked for: in words, by a time, by offsets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from zkgroup.connector.start import parse_start
from zkgroup.errors import UsageError
from zkgroup.export.words import ExportPlan, PartitionFacts
from zkgroup.groups.files import STDIO, Wanted, read_offsets
from zkgroup.protocol.names import TopicPartition, validate_topic

_OFFSET = re.compile(r"([^:=,\s]+):([0-9]{1,9})=([0-9]{1,18})", re.ASCII)
_PLACES = ("committed", "earliest", "latest", "end")


@dataclass(frozen=True, slots=True)
class Bound:
    """A place in every partition, or in those that ``offsets`` names. ``millis``: milliseconds since 1970,
    ``text``: as the operator wrote them."""

    kind: Literal["committed", "earliest", "latest", "time", "offsets"]
    millis: int = 0
    offsets: Mapping[TopicPartition, Wanted] = field(default_factory=dict)
    text: str = field(default="", compare=False)

    def __str__(self) -> str:
        return self.text or (f"@{self.millis}" if self.kind == "time" else self.kind)


COMMITTED, EARLIEST, LATEST = Bound("committed"), Bound("earliest"), Bound("latest")


def parse_bound(text: str, group: str, option: str) -> Bound:
    """Read ``committed``, ``earliest``, ``latest`` (or ``end``), ``@TIME`` (ISO 8601, or milliseconds since 1970),
    ``TOPIC:PARTITION=OFFSET,…``, or the name of an offset file, of which the group's offsets are taken, or those of the
    one group that it holds. Raises ``UsageError``."""
    if text in _PLACES:
        return {"committed": COMMITTED, "earliest": EARLIEST}.get(text, LATEST)
    if text.startswith("@"):
        return Bound("time", _millis(text, option), text=text)
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
            f"write {'committed, end' if option == '--until' else 'committed, earliest, latest'}, @TIME such as "
            "@2024-05-01T12:00, TOPIC:PARTITION=OFFSET,…, or the name of an offset file",
        )
    file = read_offsets(text)
    found = next(iter(file.groups.values())) if len(file.groups) == 1 else file.offsets_of(group)
    return Bound("offsets", offsets=found)


def _millis(text: str, option: str) -> int:
    try:
        return parse_start(text).value
    except UsageError:
        # Its own words are of where a consumer may start, which is neither all of this nor right for an end.
        raise UsageError(
            f"{option} {text[:80]!r} is no time", "write it like @2024-05-01T12:00, or @1714564800000 (ms since 1970)"
        ) from None


def refuse_backwards(begin: Bound, until: Bound) -> None:
    """Raise ``UsageError`` where one time is to be the beginning, and an earlier one the end."""
    if begin.kind == until.kind == "time" and begin.millis > until.millis:
        raise UsageError(f"--from {begin} is later than --until {until}", "--from is the earlier of the two")


def notes_on(
    begin: Bound, until: Bound, facts: Sequence[PartitionFacts], plan: ExportPlan, *, fills: bool
) -> list[str]:
    """What times come to that no message has, or that leave nothing to export; ``fills``: it is a backfill, for which
    every partition begins where ``begin`` says. Pure."""
    notes: list[str] = []
    there = [fact for fact in facts if fact.log_start < fact.log_end]
    begun = [fact for fact in there if fills or fact.committed is None]
    if begin.kind == "time" and begun and all((fact.begin or 0) >= fact.log_end for fact in begun):
        ends = "partitions without an offset begin at their ends, and what is there is not exported"
        what = "there is nothing to export" if fills else ends
        notes.append(f"no message is as late as --from {begin}: {what}")
    elif until.kind == "time" and there and all((fact.until or 0) >= fact.log_end for fact in there):
        notes.append(f"no message is as late as --until {until}: the export ends where the logs end now")
    elif until.kind == "time" and there and not plan.ranges and not plan.left_out:
        notes.append(f"--until {until} lies before all that is left to export: there is nothing to export")
    return notes
