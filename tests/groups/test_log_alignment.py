"""Where a group goes on in a mirrored log: nothing is skipped, whatever the mirror did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkgroup.clients.kafka.responses import Fingerprint, ReadMessage
from zkgroup.groups.changes.log_alignment import Position, SourceMessages, TargetMessages, find_position

#: Pieces of a source's log in the order in which a mirror copies them: a later one may begin before the last one's end.
pieces = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)).map(sorted), min_size=1, max_size=4)


def copied(ranges: Sequence[Sequence[int]]) -> list[int]:
    """Source offsets in the order in which a mirror writes them. Once begun it goes on behind its last message, or
    before."""
    found: list[int] = []
    for start, end in ranges:
        begin = min(start, found[-1] + 1) if found else start
        found += range(begin, end)
    return found


def printed(value: object, moment: object = "") -> Fingerprint:
    return Fingerprint(f"{value} {moment}".encode(), str(value).encode())


def located(
    source: Sequence[Fingerprint], committed: int, target: Sequence[Fingerprint], context: int = 100, **options: bool
) -> Position:
    """The position of an offset by so many messages on each side. Target offsets are 10, 20, 30 …"""
    copies = [ReadMessage(10 * (n + 1), None, one) for n, one in enumerate(target)]
    messages = [ReadMessage(n, None, one) for n, one in enumerate(source)]
    return find_position(
        SourceMessages(messages[:committed], messages[committed:]), TargetMessages(copies, **options), context
    )


def skipped(position: Position, committed: int, target: Sequence[int]) -> set[int]:
    """The unconsumed messages at the target that a member which goes on there does not read. ``target``: each
    message's offset at the source."""
    assert position.offset is not None
    unread = {one for one in target if one >= committed}
    return unread - {one for n, one in enumerate(target) if 10 * (n + 1) >= position.offset}


@given(pieces, st.sets(st.integers(0, 30)), st.integers(0, 30), st.integers(1, 40), st.booleans(), st.booleans())
def test_no_mirror_of_distinct_messages_makes_a_group_skip_one(
    ranges: list[list[int]], removed: set[int], committed: int, context: int, has_times: bool, is_compacted: bool
) -> None:
    """A mirror that begins late, lags, copies stretches again, and a target that has lost any messages: no unconsumed
    message of the target is before the position, and an exact one is that of the next message, or behind the last."""
    copies = copied(ranges)
    target = [one for one in copies if one not in removed]
    to_come = [one for one in range(copies[-1] + 1 if copies else 31, 31) if one not in removed]
    prints = [printed(n, n) for n in range(31)]
    there = [printed(one, one if has_times else "mirrored") for one in target]
    position = located(prints, committed, there, context, has_times=has_times, is_compacted=is_compacted)
    if position.offset is not None:
        assert not skipped(position, committed, [*target, *to_come])
        rest = target[-(-position.offset // 10) - 1 :]
        assert sum(one < committed for one in rest) <= position.repeated
        if rest and not position.repeated and not is_compacted:
            assert rest[0] == committed


@given(pieces, st.integers(1, 40), st.booleans(), st.data())
def test_no_message_is_skipped_that_has_a_copy_at_the_target(
    ranges: list[list[int]], context: int, is_compacted: bool, data: st.DataObject
) -> None:
    """At each offset from 0 to the end: a mirror that stretches and copies are missing of, that has stretches twice or
    in another order, and that copies nothing any more."""
    copies = [one for start, end in ranges for one in range(start, end)]
    missing = data.draw(st.sets(st.integers(0, max(0, len(copies) - 1))))
    target = [one for n, one in enumerate(copies) if n not in missing]
    prints = [printed(n, n) for n in range(31)]
    for committed in range(32):
        position = located(prints, committed, [prints[one] for one in target], context, is_compacted=is_compacted)
        if position.offset is not None:
            assert not skipped(position, committed, target), committed


@given(st.lists(st.sampled_from("aaabbcdefghijk"), min_size=1, max_size=30), pieces, st.data())
def test_messages_that_recur_make_a_group_repeat_and_never_skip(
    values: list[str], ranges: list[list[int]], data: st.DataObject
) -> None:
    """Few kinds of messages, in any order, and a mirror that begins late, lags and copies stretches again: no
    unconsumed message of the target is before the position, and an exact one is that of a message like the next one."""
    target = [one for one in copied(ranges) if one < len(values)]
    committed = data.draw(st.integers(0, len(values)))
    to_come = list(range(target[-1] + 1, len(values))) if target else []
    position = located([printed(one) for one in values], committed, [printed(values[one]) for one in target])
    if position.offset is not None:
        rest = target[-(-position.offset // 10) - 1 :]
        read = Counter(values[one] for one in (*rest, *to_come))
        assert Counter(values[one] for one in {*target, *to_come} if one >= committed) <= read
        if rest and not position.repeated:
            assert values[rest[0]] == values[committed]


@given(st.integers(0, 30), st.integers(0, 30), st.integers(1, 40))
def test_a_mirror_that_has_both_neighbours_gives_the_very_offset(start: int, committed: int, context: int) -> None:
    """Of distinct messages that are copied once, in order, from before the offset to behind it."""
    target = range(min(start, max(0, committed - 1)), 31)
    position = located([printed(n) for n in range(31)], committed, [printed(one) for one in target], context)
    if committed:
        assert (position.repeated, position.reason) == (0, None)
        assert position.offset in (10 * (committed - target.start) + 1, 10 * (committed - target.start + 1))


S = [printed(n) for n in range(20)]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (range(20), Position(100)),
        (range(9), Position(91)),
        (range(12, 20), Position(None, reason="mirrored later")),
        (range(9, 20), Position(10)),
        ([*range(12), *range(5, 20)], Position(100, 7)),
        ([*range(8), *range(10, 20)], Position(None, reason="absent")),
        ([*range(9), *range(10, 20)], Position(None, reason="absent")),
        ([*range(8), *range(9, 20)], Position(None, reason="absent")),
        ([100, 101], Position(None, reason="absent")),
        (range(7), Position(None, reason="not mirrored yet")),
    ],
    ids=["whole", "up to it", "begun behind", "begun at it", "twice", "both neighbours missing", "the next one missing",
         "the last one missing", "another log", "lagging"],
)  # fmt: skip
def test_positions_of_the_ninth_message(target: Sequence[int], expected: Position) -> None:
    """Nine of twenty messages are consumed; the mirror has a part of them."""
    assert located(S, 9, [printed(one) for one in target]) == expected


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (range(20), Position(10)),
        ([100, *range(20)], Position(20)),
        (range(5, 20), Position(None, reason="mirrored later")),
        ([100, 101], Position(None, reason="absent")),
        ([*range(5, 20), *range(5)], Position(10, 15)),
    ],
    ids=["whole", "behind others", "begun behind", "another log", "begun behind, and completed"],
)  # fmt: skip
def test_positions_where_nothing_is_consumed(target: Sequence[int], expected: Position) -> None:
    """The first of twenty messages is the next one."""
    assert located(S, 0, [printed(one) for one in target]) == expected


def test_messages_that_a_compacted_topic_has_lost() -> None:
    """Those that are left around it find the place."""
    assert located(S, 9, [printed(one) for one in (*range(8), *range(10, 20))], is_compacted=True) == Position(90)
    assert located(S, 9, S[12:], is_compacted=True).reason == "mirrored later"
    assert located(S, 9, S[:7], is_compacted=True).reason == "not mirrored yet"


def test_timestamps_tell_equal_messages_apart() -> None:
    """Equal values at different times are different messages, unless an end has not kept the times."""
    source = [printed("ping", n) for n in range(20)]
    assert located(source, 9, source) == Position(100)
    assert located(source, 9, source, has_times=False) == Position(None, reason="ambiguous")
    retimed = [printed("ping", f"mirrored at {n}") for n in range(20)]
    assert located(source, 9, retimed) == Position(None, reason="absent")


def test_what_recurs_is_told_by_its_neighbours() -> None:
    """A run of equal messages in the midst of others: its neighbours place it, unless they are too far away."""
    source = [*S[:5], *[printed("ping")] * 8, *S[5:]]
    assert located(source, 9, source) == Position(100)
    assert located(source, 9, source, 3) == Position(None, reason="ambiguous")


def test_a_late_mirror_of_messages_that_recur() -> None:
    """Two kinds in turn, and a mirror that began later: any place could be that of another offset."""
    source = [printed("up" if n % 2 else "down") for n in range(60)]
    assert located(source, 6, source[20:], 5) == Position(None, reason="ambiguous")


def test_a_part_that_begins_or_ends_within_the_context() -> None:
    """Only where the log ends are messages not compared."""
    there = S[5:15]
    assert located(S, 9, there) == Position(50)
    assert located(S, 9, there, from_start=False).offset is None
    assert located(S, 9, there, to_end=False).offset is None
