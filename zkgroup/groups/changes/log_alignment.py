"""Where a group goes on in the log of another cluster: messages of both → an offset. Pure.

A mirror copies a partition in order. It may begin late, lag, and copy a stretch again after a restart. A place in the
target is taken only where the messages on both sides of it are those on both sides of the offset, without a gap, as
far as both logs go; of several such places the earliest. Where these messages recur at the source there is none, as a
place could be that of later ones. Of a compacted topic the messages count that are left at both ends.

Messages are compared by key, value, headers and timestamp; by key and value alone where one end keeps no timestamps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from zkgroup.clients.kafka.responses import ReadMessage

#: Why there is no position.
Reason: TypeAlias = Literal["outside", "empty", "not mirrored yet", "mirrored later", "absent", "ambiguous"]

#: So many messages on each side of an offset must be the same.
CONTEXT: Final = 200


@dataclass(frozen=True, slots=True)
class SourceMessages:
    """The messages around a committed offset: those before it, and those from it on, also beyond the context."""

    before: Sequence[ReadMessage]
    after: Sequence[ReadMessage]


@dataclass(frozen=True, slots=True)
class TargetMessages:
    """What was read of the target's log. ``from_start``: no message of the source's context is before it. ``to_end``:
    it was read to its end. ``has_times``: both ends keep the timestamps. ``is_compacted``: messages may be missing."""

    messages: Sequence[ReadMessage]
    from_start: bool = True
    to_end: bool = True
    has_times: bool = True
    is_compacted: bool = False


@dataclass(frozen=True, slots=True)
class Position:
    """Where the group goes on, and at most how many messages it ``repeated``; or why there is no such place."""

    offset: int | None
    repeated: int = 0
    reason: Reason | None = None


def find_position(source: SourceMessages, target: TargetMessages, context: int = CONTEXT) -> Position:
    """The earliest place in the target that surely skips nothing."""

    def key(one: ReadMessage) -> bytes:
        return one.fingerprint.message if target.has_times else one.fingerprint.content

    consumed, unread = list(map(key, source.before)), list(map(key, source.after))
    copies = list(map(key, target.messages))
    before, after, kept = consumed[-context:], unread[:context], list(range(len(copies)))
    near = {*before, *after}
    absent = Position(None, reason=_why_absent(before, after, copies, target))
    if target.is_compacted:
        there = near.intersection(copies)
        before, after = [one for one in before if one in there], [one for one in after if one in there]
        kept = [n for n in kept if copies[n] in there]
        if not (before and after) and there.isdisjoint({*consumed[-1:], *unread[:1]}):
            return absent  # more may be missing than what compaction has removed
    counts = Counter((*consumed, *unread))
    if all(counts[one] == 1 for one in near):  # what is there twice is of a stretch that was copied again
        kept = sorted({copies[n]: n for n in reversed(kept)}.values())
    log = [copies[n] for n in kept]
    places = list(_places(before, after, log, target))
    if not places:
        return absent
    if not all(any(counts[one] == 1 for one in pattern) for _, pattern in places):
        return Position(None, reason="ambiguous")
    index = places[0][0]
    at = kept[index] if index < len(log) and not (index and target.is_compacted) else kept[index - 1] + 1
    # Of stretches in another order, unconsumed messages may be before the place alone.
    skipped = set(unread) - set(consumed) - set(copies[at:])
    start = next((n for n, one in enumerate(copies[:at]) if one in skipped), at)
    again = set(consumed) - set(unread)
    end = max((n + 1 for n in range(at, len(copies)) if copies[n] in again), default=at)
    messages = target.messages
    offset = messages[start].offset if start < len(messages) else messages[-1].offset + 1
    return Position(offset, end - start)


def _places(
    before: Sequence[bytes], after: Sequence[bytes], log: Sequence[bytes], target: TargetMessages
) -> Iterator[tuple[int, Sequence[bytes]]]:
    """How many messages of the target are before each place, and those that are the same on both sides of it."""
    for index in range(len(log) + 1):
        back = min(len(before), index) if target.from_start else len(before)
        ahead = min(len(after), len(log) - index) if target.to_end else len(after)
        if back > index or (back and log[index - 1] != before[-1]) or (ahead and log[index : index + 1] != after[:1]):
            continue
        pattern = [*before[len(before) - back :], *after[:ahead]]
        if pattern and log[index - back : index + ahead] == pattern:
            yield index, pattern


def _why_absent(
    before: Sequence[bytes], after: Sequence[bytes], copies: Sequence[bytes], target: TargetMessages
) -> Reason:
    there = set(copies)
    if target.to_end and there.isdisjoint(after) and copies and copies[-1] in before:
        return "not mirrored yet"
    if target.from_start and there.isdisjoint(before) and not there.isdisjoint(after) and after[0] not in there:
        return "mirrored later"
    return "absent"
