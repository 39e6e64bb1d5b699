"""Where a group goes on in the log of another cluster: two windows of messages → an offset. Pure.

A mirror copies a partition in order. It may begin late, lag, copy a stretch again after a restart, and lack what
compaction has removed. Under these conditions a position is safe if the message before it is a copy of one that the
group has consumed, or the message at it is a copy of the first that it has not. ``find_position`` looks for such a
place, and takes the earliest of several, or an earlier one where unconsumed messages have no copy behind it: messages
may repeat, and none is skipped.

Messages are compared by key, value, headers and timestamp; by key and value alone where the target has none that is the
same in all four, as mirrors of Kafka before 0.11 keep neither headers nor, before 0.10, timestamps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from zkgroup.clients.kafka.responses import Fingerprint

#: Why there is no position.
Reason: TypeAlias = Literal["outside", "empty", "not mirrored yet", "mirrored later", "absent", "ambiguous"]

#: A place counts with this part of the matching messages of the best one.
_PART: Final = 4


@dataclass(frozen=True, slots=True)
class SourceWindow:
    """The messages around a committed offset: the last ones before it, and the first ones from it on."""

    before: Sequence[Fingerprint]
    after: Sequence[Fingerprint]


class SeenMessage(NamedTuple):
    """A message of the target that is in the source's window, too. ``ordinal``: how many messages were read before
    it."""

    ordinal: int
    offset: int
    fingerprint: Fingerprint


@dataclass(frozen=True, slots=True)
class TargetWindow:
    """What was read of the target's log, ``count`` messages. ``from_start``: messages of the source's window may be
    missing before it. ``to_end``: it was read to its end. ``is_cut``: reading ended at a limit."""

    seen: Sequence[SeenMessage]
    count: int
    from_start: bool = True
    to_end: bool = True
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class Position:
    """Where the group goes on, and at most how many messages it ``repeated``; or why there is no such place."""

    offset: int | None
    repeated: int = 0
    reason: Reason | None = None


class _Place(NamedTuple):
    """A boundary in the target's messages: ``consumed`` of them are before it. Below zero, so many unconsumed ones are
    missing at the start of the log; above their number, so many consumed ones are missing at the end. ``before`` and
    ``after``: how many messages match in a row on each side. ``fits``: nothing that is known contradicts it."""

    consumed: int
    before: int
    after: int
    fits: bool


def find_position(source: SourceWindow, target: TargetWindow) -> Position:
    """The earliest place in the target that surely skips nothing."""
    same_all = {one.message for one in (*source.before, *source.after)}
    whole = [one for one in target.seen if one.fingerprint.message in same_all]
    seen, key = (whole, _message) if whole else (target.seen, _content)
    log = [key(one.fingerprint) for one in seen]
    there = set(log)
    before = [one for one in map(key, source.before) if one in there]
    after = [one for one in map(key, source.after) if one in there]
    # Unconsumed messages may be missing before the first one that was read, and consumed ones behind the last one.
    earliest = -len(after) if target.from_start and seen and seen[0].ordinal == 0 else 0
    latest = len(log) + (len(before) if seen and seen[-1].ordinal == target.count - 1 else 0)
    places = _places(before, after, log, range(earliest, latest + 1))
    best = max((one.before + one.after for one in places), default=0)
    if not best:
        return Position(None, reason="absent")
    strong = [one for one in places if (one.before + one.after) * _PART >= best]
    # Where no place fits, a stretch was copied twice, or messages are missing: those that match on both sides.
    kept = [one for one in strong if one.fits] or [one for one in strong if one.before and one.after]
    if not kept:
        return Position(None, reason="ambiguous")
    first, last = kept[0], kept[-1]
    is_outside = first.consumed < 0 or first.consumed > len(log)
    if first is not last and (target.is_cut or is_outside):
        return Position(None, reason="ambiguous")
    if is_outside:
        return Position(None, reason="mirrored later" if first.consumed < 0 else "not mirrored yet")
    follows = bool(first.before and key(source.before[-1]) in there)
    leads = bool(first.after and key(source.after[0]) in there)
    if not (follows or leads or (first.before and first.after)):
        if first.before:
            return Position(None, reason="not mirrored yet" if target.to_end else "absent")
        return Position(None, reason="mirrored later" if target.from_start else "absent")
    if first.before:
        offset, ordinal = seen[first.consumed - 1].offset + 1, seen[first.consumed - 1].ordinal + 1
    else:
        offset, ordinal = seen[first.consumed].offset, seen[first.consumed].ordinal
    # Stretches in another order: unconsumed messages whose copies are all before the place.
    skipped = set(after) - set(before) - set(log[first.consumed :])
    if earlier := next((one for one in seen[: first.consumed] if key(one.fingerprint) in skipped), None):
        offset, ordinal = earlier.offset, earlier.ordinal
    return Position(offset, _end(last, seen) - ordinal)


def _message(fingerprint: Fingerprint) -> bytes:
    return fingerprint.message


def _content(fingerprint: Fingerprint) -> bytes:
    return fingerprint.content


def _end(place: _Place, seen: Sequence[SeenMessage]) -> int:
    """The ordinal of the first message behind a place."""
    if place.consumed < len(seen) and place.after:
        return seen[place.consumed].ordinal
    return seen[min(place.consumed, len(seen)) - 1].ordinal + 1 + max(0, place.consumed - len(seen))


def _places(
    before: Sequence[bytes], after: Sequence[bytes], log: Sequence[bytes], indexes: Sequence[int]
) -> list[_Place]:
    """The boundaries with a match on either side, in the order of ``indexes``."""
    found = []
    for index in indexes:
        missing, extra = max(0, -index), max(0, index - len(log))
        inside = min(max(index, 0), len(log))
        most = min(len(before) - extra, inside)
        back = _matching(before, len(before) - extra - 1, log, inside - 1, most, -1)
        room = min(len(after) - missing, len(log) - inside)
        ahead = _matching(after, missing, log, inside, room, 1)
        if back or ahead:
            found.append(_Place(index, back, ahead, back == most and ahead == room))
    return found


def _matching(one: Sequence[bytes], at: int, other: Sequence[bytes], start: int, most: int, step: int) -> int:
    """How many messages match in a row, ``most`` at most, from one place each on; ``step``: on or back."""
    for number in range(most):
        if one[at + step * number] != other[start + step * number]:
            return number
    return most
