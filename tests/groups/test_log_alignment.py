"""Where a group goes on in a mirrored log: nothing is skipped, whatever the mirror did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkgroup.clients.kafka.responses import Fingerprint, ReadMessage
from zkgroup.groups.changes.offset_translation import Position, SourceMessages, TargetMessages, find_position

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


def printed(value: object, moment: object = "", key: object = "") -> Fingerprint:
    return Fingerprint(f"{value} {moment}".encode(), str(value).encode(), str(value).encode(), str(key).encode())


def located(
    source: Sequence[Fingerprint], committed: int, target: Sequence[Fingerprint], window: int = 100, **options: Any
) -> Position:
    """The position of an offset where so many consumed messages are read. Target offsets are 10, 20, 30 …"""
    copies = [ReadMessage(10 * (n + 1), None, one) for n, one in enumerate(target)]
    messages = [ReadMessage(n, None, one) for n, one in enumerate(source)]
    least = max(0, committed - window)
    return find_position(
        SourceMessages(messages[least:committed], messages[committed:], is_whole=not least),
        TargetMessages(copies, **options),
    )


def skipped(position: Position, committed: int, target: Sequence[int]) -> set[int]:
    """The unconsumed messages at the target that a member which goes on there does not read. ``target``: each
    message's offset at the source."""
    assert position.offset is not None
    unread = {one for one in target if one >= committed}
    return unread - {one for n, one in enumerate(target) if 10 * (n + 1) >= position.offset}


@given(pieces, st.sets(st.integers(0, 30)), st.integers(0, 30), st.integers(1, 40), st.booleans())
def test_no_mirror_of_distinct_messages_makes_a_group_skip_one(
    ranges: list[list[int]], removed: set[int], committed: int, window: int, has_times: bool
) -> None:
    """A mirror that begins late, lags, copies stretches again, and a target that has lost any messages: no unconsumed
    message of the target is before the position, and none is missing before the last one that was copied."""
    copies = copied(ranges)
    target = [one for one in copies if one not in removed]
    to_come = set(range(copies[-1] + 1 if copies else 31, 31))
    prints = [printed(n, n) for n in range(31)]
    there = [printed(one, one if has_times else "mirrored") for one in target]
    position = located(prints, committed, there, window, compared="message" if has_times else "untimed")
    if position.offset is not None:
        rest = target[-(-position.offset // 10) - 1 :]
        assert set(range(committed, max(target) + 1)) <= set(rest)
        assert not skipped(position, committed, [*target, *to_come] if target == copies else target)
        again = len(rest) - len({one for one in rest if one >= committed})
        assert again <= position.repeated
        assert window < committed or again == position.repeated
        if rest and not position.repeated:
            assert rest[0] == committed


@given(st.integers(0, 30), st.integers(1, 30), st.integers(1, 40))
def test_a_mirror_that_has_both_neighbours_gives_the_very_offset(start: int, committed: int, window: int) -> None:
    """Of distinct messages that are copied once, in order, from before the offset to behind it."""
    start = min(start, committed - 1)
    position = located([printed(n) for n in range(31)], committed, [printed(n) for n in range(start, 31)], window)
    assert (position.repeated, position.reason) == (0, None)
    assert position.offset in (10 * (committed - start) + 1, 10 * (committed - start + 1))


@given(pieces, st.integers(1, 40), st.integers(0, 40), st.data())
def test_no_message_is_skipped_that_has_a_copy_at_the_target(
    ranges: list[list[int]], window: int, unread_before: int, data: st.DataObject
) -> None:
    """At each offset from 0 to the end: a mirror that stretches and copies are missing of, that has stretches twice or
    in another order, and that copies nothing any more; and where not all of its log was read."""
    copies = [one for start, end in ranges for one in range(start, end)]
    missing = data.draw(st.sets(st.integers(0, max(0, len(copies) - 1))))
    target = [one for n, one in enumerate(copies) if n not in missing]
    prints = [printed(n, n) for n in range(31)]
    for committed in range(32):
        there = target[unread_before:]
        position = located(prints, committed, [prints[one] for one in there], window, is_whole=not unread_before)
        if position.offset is not None:
            assert not skipped(position, committed, there), committed
            read = set(there[-(-position.offset // 10) - 1 :])
            assert {one for one in target if one >= committed} <= read, committed


@given(st.lists(st.sampled_from("aaabbcdefghijk"), min_size=1, max_size=30), pieces, st.integers(1, 40), st.data())
def test_messages_that_recur_make_a_group_repeat_and_never_skip(
    values: list[str], ranges: list[list[int]], window: int, data: st.DataObject
) -> None:
    """Few kinds of messages, in any order, and a mirror that begins late, lags and copies stretches again, or in
    another order: each unconsumed message of the target is read, as often as it is unconsumed."""
    in_order = data.draw(st.booleans())
    pieces_of = copied(ranges) if in_order else [one for start, end in ranges for one in range(start, end)]
    target = [one for one in pieces_of if one < len(values)]
    committed = data.draw(st.integers(0, len(values)))
    to_come = list(range(target[-1] + 1, len(values))) if target and in_order else []
    position = located([printed(one) for one in values], committed, [printed(values[one]) for one in target], window)
    if position.offset is not None:
        rest = target[-(-position.offset // 10) - 1 :]
        read = Counter(values[one] for one in (*rest, *to_come))
        assert Counter(values[one] for one in {*target, *to_come} if one >= committed) <= read


@given(st.lists(st.sampled_from("aaaaabbbcde"), min_size=1, max_size=30), st.booleans(), st.data())
def test_messages_that_are_written_while_the_logs_are_read(
    values: list[str], is_whole: bool, data: st.DataObject
) -> None:
    """A mirror that copies in order: the target's end, the source's end, the target, and the source's end again are
    read one after the other. Each unconsumed message is read, now or later."""
    count = len(values)
    ended = data.draw(st.integers(0, count))
    committed = data.draw(st.integers(0, ended))
    again = data.draw(st.integers(ended, count))
    mirrored = data.draw(st.integers(0, again))
    old = data.draw(st.integers(0, min(mirrored, ended)))
    start = data.draw(st.integers(0, old))
    prints = [printed(one) for one in values]
    source = [ReadMessage(n, None, one) for n, one in enumerate(prints[:again])]
    target = [ReadMessage(n, None, prints[n]) for n in range(start, mirrored)]
    position = find_position(
        SourceMessages(source[:committed], source[committed:], new=again - ended),
        TargetMessages(target, old=old - start, is_whole=is_whole or start == 0),
    )
    if position.offset is not None:
        assert Counter(values[committed:]) <= Counter(values[position.offset :])
        assert position.offset <= max(committed, start)


@given(st.lists(st.sampled_from("aaabbcdefghijk"), min_size=1, max_size=30), st.data())
def test_what_is_repeated_of_messages_that_recur(values: list[str], data: st.DataObject) -> None:
    """Of a part of the log, copied once: where there is a position, nothing is repeated, now or later."""
    start, committed = data.draw(st.integers(0, len(values))), data.draw(st.integers(0, len(values)))
    end = data.draw(st.integers(start, len(values)))
    position = located([printed(one) for one in values], committed, [printed(one) for one in values[start:end]])
    if position.offset is not None:
        assert position.repeated == 0
        assert position.offset in (10 * (committed - start) + 1, 10 * (committed - start + 1))


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=20), st.data())
def test_what_compaction_leaves(records: list[tuple[str, bool]], data: st.DataObject) -> None:
    """Compaction removes messages that have a later one with their key, and deletions: where there is a position, the
    group reads what is left of the unconsumed messages, and learns each key's last state."""
    prints = [printed(n, n, key) for n, (key, _) in enumerate(records)]
    messages = [
        ReadMessage(n, None, one, is_tombstone=gone)
        for (n, one), (_, gone) in zip(enumerate(prints), records, strict=True)
    ]
    start, committed = data.draw(st.integers(0, len(records))), data.draw(st.integers(0, len(records)))
    end = data.draw(st.integers(start, len(records)))
    last = {key: n for n, (key, _) in enumerate(records[:end])}
    removable = [n for n in range(start, end) if last[records[n][0]] != n or records[n][1]]
    removed = data.draw(st.sets(st.sampled_from(removable))) if removable else set()
    target = [n for n in range(start, end) if n not in removed]
    position = find_position(
        SourceMessages(messages[:committed], messages[committed:]),
        TargetMessages([ReadMessage(10 * (n + 1), None, prints[one]) for n, one in enumerate(target)],
                       is_compacted=True),
    )  # fmt: skip
    if position.offset is not None:
        rest = target[-(-position.offset // 10) - 1 :]
        assert {one for one in target if one >= committed} == set(rest)
        mirrored = range(committed, max(target, default=0) + 1)
        states = {records[n][0]: n for n in mirrored if not records[n][1]}
        for key, n in states.items():
            assert n in rest or any(records[later][0] == key for later in mirrored if later > n)


S = [printed(n) for n in range(20)]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (range(20), Position(100)),
        (range(9), Position(91)),
        (range(12, 20), Position(None, reason="mirrored later")),
        (range(9, 20), Position(10)),
        ([*range(12), *range(5, 20)], Position(170)),
        ([*range(20), *range(5, 15)], Position(100, 10)),
        ([*range(12, 20), *range(12)], Position(10, 9)),
        ([*range(8), *range(10, 20)], Position(None, reason="absent")),
        ([*range(9), *range(10, 20)], Position(None, reason="absent")),
        ([*range(8), *range(9, 20)], Position(90)),
        ([*range(9), 100, *range(9, 20)], Position(100)),
        ([100, 101], Position(None, reason="absent")),
        ([], Position(None, reason="not mirrored yet")),
        (range(7), Position(None, reason="not mirrored yet")),
    ],
    ids=["whole", "up to it", "begun behind", "begun at it", "twice", "a part again", "the newest first",
         "both neighbours missing", "the next one missing", "the last one missing", "another's", "another log", "empty",
         "lagging"],
)  # fmt: skip
def test_positions_of_the_ninth_message(target: Sequence[int], expected: Position) -> None:
    """Nine of twenty messages are consumed; the mirror has a part of them. Another's message is unread, too."""
    assert located(S, 9, [printed(one) for one in target]) == expected


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (range(20), Position(10)),
        ([100, *range(20)], Position(20)),
        (range(5, 20), Position(None, reason="mirrored later")),
        ([100, 101], Position(None, reason="absent")),
        ([*range(5, 20), *range(5)], Position(10)),
    ],
    ids=["whole", "behind others", "begun behind", "another log", "begun behind, and completed"],
)  # fmt: skip
def test_positions_where_nothing_is_consumed(target: Sequence[int], expected: Position) -> None:
    """The first of twenty messages is the next one."""
    assert located(S, 0, [printed(one) for one in target]) == expected


def test_a_source_that_has_lost_its_first_messages() -> None:
    """What the source has not may have been consumed."""
    there = [ReadMessage(10 * (n + 1), None, printed(one)) for n, one in enumerate([*range(5, 20), *range(5)])]
    messages = [ReadMessage(n, None, S[n]) for n in range(5, 20)]
    for has_lost, repeated in ((True, 5), (False, 0)):
        source = SourceMessages([], messages, has_lost=has_lost)
        assert find_position(source, TargetMessages(there)) == Position(10, repeated)


def test_messages_that_others_write_after_the_mirror() -> None:
    """Producers that have moved before the group: their messages are unread. Not so where the source has lost some of
    its own."""
    there = [*S, printed("new"), *S[15:], printed("newer")]
    assert located(S, 20, there) == Position(210, 5)
    assert located(S, 20, there, 10) == Position(270, 1), "the first one may be an older one of the source"


def test_messages_that_a_compacted_topic_has_lost() -> None:
    """A message may be missing where its key has a later one."""
    source = [printed(n, key=n % 5) for n in range(20)]
    there = [*source[:8], *source[10:]]
    assert located(source, 9, there, is_compacted=True) == Position(90)
    assert located(source, 9, there).reason == "absent"
    assert located(source, 9, [*source[:8], *source[10:16], *source[17:]], is_compacted=True).reason == "absent"
    assert located(source, 9, source[12:], is_compacted=True) == Position(10)
    assert located(source, 9, source[:7], is_compacted=True).reason == "not mirrored yet"


def test_timestamps_tell_equal_messages_apart() -> None:
    """Equal values at different times are different messages, unless an end has not kept the times."""
    source = [printed("ping", n) for n in range(20)]
    assert located(source, 9, source) == Position(100)
    assert located(source, 9, source, compared="untimed") == Position(None, reason="ambiguous")
    retimed = [printed("ping", f"mirrored at {n}") for n in range(20)]
    assert located(source, 9, retimed) == Position(None, reason="absent")


def test_what_recurs_is_identified_by_a_message_that_does_not() -> None:
    """A run of equal messages: the others place it, where the mirror has copied all of it."""
    source = [*S[:5], *[printed("ping")] * 8, *S[5:]]
    assert located(source, 9, source) == Position(100)
    assert located(source, 9, source[:11]).reason == "not mirrored yet"
    assert located(source, 9, source[3:], 3) == Position(70)
    assert located([printed("ping")] * 20, 9, [printed("ping")] * 20).reason == "ambiguous"


def test_a_late_mirror_of_messages_that_recur() -> None:
    """Two kinds in turn, and a mirror that began later: any place could be that of another offset."""
    source = [printed("up" if n % 2 else "down") for n in range(60)]
    assert located(source, 6, source[20:], 5) == Position(None, reason="ambiguous")


def test_the_end_of_a_log() -> None:
    """What is before it may have copies of unread messages: it must have all of them."""
    assert located(S, 9, S[5:], is_whole=False) == Position(50)
    assert located(S, 9, S[5:15], is_whole=False).reason == "not mirrored yet"
    assert located(S, 9, S[5:15]) == Position(50)
