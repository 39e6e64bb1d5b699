"""Where a group goes on in the log of another cluster: messages of both → an offset. Pure.

The offset is right if the group reads every unconsumed message there: each one that was copied stands at the offset or
behind it, and each other one is still to be copied. Nothing is assumed of the mirror: it may begin late, lag, copy a
stretch again, or copy the newest messages first. So there is an offset only where

- the log has a copy of each unconsumed message up to the last one that was copied, and of none behind that; and
- reading began before all these copies, or the log has all unconsumed messages;

but for messages that are written while the logs are read: their copies stand behind the end that the target had before.

The offset is the last one from which these messages follow each other as they do at the source; where they are in
another order, that of the first of them. How far the mirror came is known by a message that does not recur.

Messages are compared by key, value, headers and timestamp; without what one end does not keep.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from zkgroup.clients.kafka.responses import ReadMessage

#: Why there is no position.
Reason: TypeAlias = Literal[
    "outside", "empty", "not mirrored yet", "mirrored later", "absent", "ambiguous", "too far behind", "scattered"
]
#: What copies have in common: of ``Fingerprint``.
Compared: TypeAlias = Literal["message", "untimed", "content"]


@dataclass(frozen=True, slots=True)
class SourceMessages:
    """The messages before a committed offset, and all from it on, up to the end after the target was read. The last
    ``new`` ones were written meanwhile. ``is_whole``: what was read of the target has no copy of an earlier message.
    ``has_lost``: the first ones of the log are gone. ``is_compacted``: others may be, too."""

    consumed: Sequence[ReadMessage]
    unread: Sequence[ReadMessage]
    is_whole: bool = True
    is_compacted: bool = False
    has_lost: bool = False
    new: int = 0


@dataclass(frozen=True, slots=True)
class TargetMessages:
    """The messages of the target's log up to its end; the first ``old`` ones (None: all) were there before the new ones
    of the source. ``is_whole``: no unread message has a copy before them.
    ``compared``: what both ends keep. ``is_compacted``: a message may be gone where its key has a later one,
    or where it deletes its key."""

    messages: Sequence[ReadMessage]
    old: int | None = None
    is_whole: bool = True
    compared: Compared = "message"
    is_compacted: bool = False


@dataclass(frozen=True, slots=True)
class Position:
    """Where the group goes on, and at most how many messages it ``repeated``; or why there is no such place."""

    offset: int | None
    repeated: int = 0
    reason: Reason | None = None


def digests_of(messages: Iterable[ReadMessage], compared: Compared) -> Iterator[bytes]:
    """What each message and its copies have in common."""
    return (getattr(one.fingerprint, compared) for one in messages)


def find_position(source: SourceMessages, target: TargetMessages) -> Position:
    """The last place in the target that surely skips nothing."""
    consumed, unread, log = (
        list(digests_of(one, target.compared)) for one in (source.consumed, source.unread, target.messages)
    )
    messages = [*consumed, *unread]
    counts = Counter(messages)
    copies = [one for one in log if one in counts]
    copied = set(copies)
    if not copies:
        return Position(None, reason="absent" if log else "not mirrored yet")
    unique = {one: n for n, one in enumerate(messages) if counts[one] == 1}
    if copied.isdisjoint(unique):
        return Position(None, reason="ambiguous")
    mirrored = _mirrored(messages, copies, unique) - len(consumed)
    ahead = unread[max(mirrored, 0) :]
    are_new = copied.isdisjoint(ahead)
    if mirrored < 0 or (len(ahead) > source.new and not (target.is_whole and are_new)):
        return Position(None, reason="not mirrored yet")
    needed = source.unread[:mirrored]
    if target.is_compacted:
        needed = _without_compacted(needed, copied, target.compared)
    expected = list(digests_of(needed, target.compared))
    if missing := Counter(expected) - Counter(copies):
        is_late = expected[0] in missing and copied.isdisjoint(consumed)
        return Position(None, reason="mirrored later" if is_late else "absent")
    start = _last_start(expected, log)
    if not are_new:  # new ones, whose copies are behind all that was there before them
        start = min(start, len(log) if target.old is None else target.old)
    # Messages of others are unread, too: all between copies, unless the source may have had them.
    places = [n for n, one in enumerate(log) if one in unique]
    first = places[0 if source.is_whole and not source.is_compacted else -1]
    start = next((n for n in range(first, start) if log[n] not in counts), start)
    others_are_new = source.is_whole and not source.has_lost and not source.is_compacted
    # A mirror may have changed the rest of a consumed message, or have left it out.
    contents = {one.fingerprint.content for one in source.consumed}
    read = target.messages
    again = sum(
        one in counts or message.fingerprint.content in contents or not others_are_new
        for one, message in zip(log[start:], read[start:], strict=True)
    ) - len(expected)
    return Position(read[start].offset if start < len(read) else read[-1].offset + 1, again)


def _mirrored(messages: Sequence[bytes], copies: Sequence[bytes], unique: Mapping[bytes, int]) -> int:
    """How many of the source's messages have been mirrored: up to the last one of those that do not recur, and those
    that follow it at both ends."""
    last = max(unique[one] for one in copies if one in unique)
    most = 0
    for index in (n for n, one in enumerate(copies) if one == messages[last]):
        follow = 0
        for here, there in zip(messages[last + 1 :], copies[index + 1 :], strict=False):
            if here != there:
                break
            follow += 1
        most = max(most, follow)
    return last + 1 + most


def _without_compacted(needed: Sequence[ReadMessage], copied: set[bytes], compared: Compared) -> list[ReadMessage]:
    """Without those that have no copy as compaction may have removed it."""
    later: set[bytes] = set()
    kept = []
    for one, digest in reversed(list(zip(needed, digests_of(needed, compared), strict=True))):
        if digest in copied or not (one.is_tombstone or one.fingerprint.key in later):
            kept.append(one)
        later.add(one.fingerprint.key)
    return kept[::-1]


def _last_start(expected: Sequence[bytes], log: Sequence[bytes]) -> int:
    """The last index of the log from which these follow each other, whatever lies between; else that of the first of
    them."""
    left = len(expected)
    if not left:
        return len(log)
    for index in range(len(log) - 1, -1, -1):
        if log[index] == expected[left - 1]:
            left -= 1
            if not left:
                return index
    among = set(expected)
    return next(n for n, one in enumerate(log) if one in among)
