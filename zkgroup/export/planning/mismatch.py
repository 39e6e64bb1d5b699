"""Where an export starts in a partition, and where group, destination and log do not agree about that. Pure.

================  ===================================================  =====================  =========================
kind              what was found                                       ``lake`` starts at     ``group`` starts at
================  ===================================================  =====================  =========================
``ahead``         the group is ahead of where its exports end          the exports' end       the group's offset (gap)
``behind``        the group is behind what was exported                the exports' end       (it would export twice)
``no offset``     the group has no offset, and exports end somewhere   the exports' end       (it has none)
``expired``       messages that come next were deleted from the log    the log's start (gap)  the log's start (gap)
``recreated``     the topic was deleted and created again              the new log's start    the group's offset
``beyond``        the group is behind the end of its log               the exports' end       (it cannot be read)
``rolled back``   somebody has rolled the topic's table back           the end of what is     the group's offset (gap)
                                                                       in the table
================  ===================================================  =====================  =========================

``skip`` leaves the partition out. A member (``--join``) that is ahead goes on: other members have read what lies
between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from zkgroup.errors import RefusedError
from zkgroup.export.model.plan_types import PartitionFacts, SkippedRange
from zkgroup.text import counted, listed

MismatchKind = Literal["ahead", "behind", "no offset", "expired", "recreated", "beyond", "rolled back"]


class StartOffset(NamedTuple):
    """Where to begin reading, and what is passed over on the way there."""

    offset: int
    skipped: tuple[SkippedRange, ...] = ()


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A partition that cannot simply continue. ``lake`` and ``at_group``: where these answers start, None where one is
    no answer."""

    fact: PartitionFacts
    kind: MismatchKind
    lake: StartOffset | None = None
    at_group: StartOffset | None = None

    def start(self, answer: str) -> StartOffset | None:
        return {"lake": self.lake, "group": self.at_group}.get(answer)

    def __str__(self) -> str:
        fact = self.fact
        group, destination = (("none" if n is None else str(n)) for n in (fact.committed, fact.exported_end))
        where = f"group {group}, destination {destination}, log {fact.log_start} to {fact.log_end}"
        return f"{fact.partition} ({where}): {_WHY[self.kind]}"


class NoOffsetError(RefusedError):
    """Partitions have no committed offset, and nothing says where to begin."""


class MismatchError(RefusedError):
    """Partitions cannot simply continue. ``answers``: the fitting values of ``--on-mismatch``, with their effects."""

    def __init__(self, group: str, destination: str, mismatches: Sequence[Mismatch]) -> None:
        self.mismatches = tuple(mismatches)
        self.answers: tuple[tuple[str, str], ...] = tuple(
            (answer, effect)
            for answer, effect in _EFFECTS.items()
            if answer == "skip" or all(one.start(answer) is not None for one in self.mismatches)
        )
        count = counted(len(self.mismatches), "partition")
        super().__init__(
            f"group {group} and {destination} do not agree about {count}: {listed([*map(str, mismatches)], '; ', 3)}",
            f"--on-mismatch {', '.join(answer for answer, _ in self.answers)}",
        )


_WHY: Final = {
    "ahead": "the group was moved ahead, or exported elsewhere",
    "behind": "the group was moved back; what follows is exported already",
    "no offset": "the group's offset was deleted",
    "expired": "messages that come next were deleted from the log",
    "recreated": "the topic was deleted and created again",
    "beyond": "the log does not reach so far: it lost messages",
    "rolled back": "the table was rolled back, and does not have what follows",
}
_EFFECTS: Final = {
    "lake": "continue where the exports end, or where the log now starts; messages that it has no more become a gap",
    "group": "continue where the group is, or where the log now starts; what is passed over becomes a gap",
    "skip": "leave these partitions out",
}


def find_start(fact: PartitionFacts, *, joins: bool = False) -> StartOffset | Mismatch | None:
    """Where to start with a partition; None where it has no offset and nothing says where to begin. ``joins``: the
    export is a member of its group."""
    committed, end = fact.committed, fact.exported_end
    if fact.is_recreated:
        at_group = None if committed is None else _from(fact, committed)
        return Mismatch(fact, "recreated", _from(fact, 0), at_group)
    if fact.is_rolled_back and end is not None and committed != end:
        passed = None if committed is None or committed < end else SkippedRange("moved", end, committed)
        at_group = None if passed is None else _from(fact, passed.end, passed)
        return Mismatch(fact, "rolled back", _from(fact, end), at_group)
    if committed is None:
        return _start_without_offset(fact)
    if committed > fact.log_end:
        return Mismatch(fact, "beyond", None if end is None else _from(fact, end))
    if end is None or committed == end or (fact.ended is None and committed > end):
        return _readable(fact, committed)
    if committed < end:
        return Mismatch(fact, "behind", _from(fact, end))
    if joins:
        return _readable(fact, committed, SkippedRange("members", end, committed))
    return Mismatch(fact, "ahead", _from(fact, end), _from(fact, committed, SkippedRange("moved", end, committed)))


def _start_without_offset(fact: PartitionFacts) -> StartOffset | Mismatch | None:
    end = fact.exported_end
    begin = fact.begin if fact.is_exact or not fact.is_new else None
    if fact.ended is not None and begin != fact.ended:
        return Mismatch(fact, "no offset", _from(fact, fact.ended if end is None else end))
    if begin is None:
        return _readable(fact, 0) if fact.is_new else None  # all of a new partition is new
    if end is not None and begin < end:
        return Mismatch(fact, "behind", _from(fact, end))
    return _readable(fact, begin)


def _readable(fact: PartitionFacts, offset: int, *skipped: SkippedRange) -> StartOffset | Mismatch:
    """A start that is not in question, unless the log has lost messages from there on."""
    start = _from(fact, offset, *skipped)
    return StartOffset(offset, skipped) if offset >= fact.log_start else Mismatch(fact, "expired", start, start)


def _from(fact: PartitionFacts, offset: int, *skipped: SkippedRange) -> StartOffset | None:
    """``offset``, or the log's start where that is behind it; None behind the log's end."""
    if offset > fact.log_end:
        return None
    gone = (SkippedRange("retention", offset, fact.log_start),) if offset < fact.log_start else ()
    return StartOffset(max(offset, fact.log_start), (*skipped, *gone))
