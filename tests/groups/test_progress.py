"""Burrow's rules over a window of looks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkgroup.groups.judging.progress import Sample, evaluate, seconds_to_catch_up, status_of_group

MINUTE = 60_000


def looks(
    committed: list[int | None], ends: list[int | None], changed: list[int] | None = None, apart: int = MINUTE
) -> list[Sample]:
    """A look a minute; ``changed``: in which look's minute the offset had been written."""
    return [
        Sample(index * apart, offset, end, None if changed is None else changed[index] * apart)
        for index, (offset, end) in enumerate(zip(committed, ends, strict=True))
    ]


@pytest.mark.parametrize(
    ("samples", "status"),
    [
        (looks([5, 6, 7, 8, 9], [5, 6, 7, 8, 9]), "OK"),
        (looks([5, 6, 7, 8, 9], [9, 10, 10, 11, 11]), "OK"),
        (looks([5, 5, 5, 5, 5], [5, 5, 5, 5, 5]), "OK"),
        (looks([5, 5, 5, 5, 5], [9, 9, 9, 9, 9]), "STOP"),
        (looks([5, 5, 5, 5, 5], [9, 9, 9, 9, 9], [-9, -9, -9, -9, -9]), "STOP"),
        (looks([5, 5, 5, 5, 5], [9, 9, 9, 9, 9], [0, 1, 2, 3, 4]), "STALL"),
        (looks([5, 6, 7, 8, 9], [9, 11, 13, 15, 17]), "WARN"),
        (looks([5, 6, 7, 8, 9], [9, 10, 11, 12, 13]), "WARN"),
        (looks([5, 6, 7, 2, 3], [9, 9, 9, 9, 9]), "REWIND"),
        (looks([5, 6, 5, 6, 7], [9, 9, 9, 9, 9]), "OK"),
        (looks([1, 2, 3, 4, 4, 4, 4], [9, 9, 9, 9, 9, 9, 9]), "OK"),
        (looks([1, 2, 2, 2, 2, 2, 2], [9, 9, 9, 9, 9, 9, 9]), "STOP"),
        (looks([None, None, 4, 4, 4, 4, 4], [9] * 7), "STOP"),
        (looks([4, 4, 4, 4, None], [9] * 5), "OK"),
        (looks([4, 4, 4, 4, 4], [9, 9, 9, 9, None]), "OK"),
    ],
    ids=[
        *("keeps up", "catches up", "idle at the end", "stopped", "stopped before the window", "stalled"),
        *("falls behind", "behind by as much all the time", "went back", "went back and came again"),
        *("silent for less than it was seen to commit", "silent for longer", "came late and stopped"),
        *("its offset is gone", "the log is not known"),
    ],
)
def test_what_the_rules_say(samples: list[Sample], status: str) -> None:
    """As Burrow judges the same commits."""
    assert evaluate(samples) == status


def test_a_log_that_ended_where_the_offset_stands_is_no_stop_yet() -> None:
    """Burrow's look at recent ends: a message that came just now is not held against the group, but for so long."""
    assert evaluate(looks([9, 9, 9, 9, 9], [9, 9, 9, 9, 10], [-9] * 5)) == "OK"
    assert evaluate(looks([9, 9, 9, 9, 9], [10, 10, 10, 10, 10], [-9] * 5)) == "STOP"


def test_a_window_shorter_than_two_commits_of_the_reference_shows_nothing() -> None:
    """Between two commits, a minute apart by default, lag grows in every healthy group."""
    assert evaluate(looks([5, 5, 5, 5], [9, 10, 11, 12], apart=10_000)) == "OK"
    assert evaluate(looks([5, 5], [9, 10], apart=10 * MINUTE)) == "OK"
    assert evaluate([]) == "OK"


def test_a_group_is_as_bad_as_its_worst_partition() -> None:
    """STOP, STALL and REWIND are errors."""
    assert status_of_group([]) == status_of_group(["OK", "OK"]) == "OK"
    assert status_of_group(["OK", "WARN"]) == "WARN"
    for status in ("STOP", "STALL", "REWIND"):
        assert status_of_group(["WARN", status, "OK"]) == "ERR"  # type: ignore[list-item]


def test_the_time_to_catch_up_is_lag_by_the_rate_at_which_it_shrinks() -> None:
    """At the rates of the window; never, where it does not shrink."""
    assert seconds_to_catch_up(looks([0, 60], [200, 200])) == pytest.approx(140)
    assert seconds_to_catch_up(looks([0, 60], [200, 230])) == pytest.approx(340)
    assert seconds_to_catch_up(looks([0, 60], [200, 260])) == float("inf")
    assert seconds_to_catch_up(looks([0, 200], [200, 200])) == 0
    assert seconds_to_catch_up(looks([0], [200])) is None
    assert seconds_to_catch_up(looks([0, None], [200, 200])) is None


@given(
    st.lists(
        st.tuples(
            st.integers(0, 10**6),
            st.none() | st.integers(0, 50),
            st.none() | st.integers(0, 50),
            st.none() | st.integers(),
        ),
        max_size=12,
    )
)
def test_whatever_was_seen_there_is_a_status(seen: list[tuple[int, int | None, int | None, int | None]]) -> None:
    """Whole numbers in any order, holes included; and without lag it is OK."""
    samples = [Sample(*one) for one in sorted(seen, key=lambda one: one[0])]
    status = evaluate(samples)
    if not samples or not (samples[-1].lag or 0) > 0:
        assert status == "OK"
    seconds = seconds_to_catch_up(samples)
    assert seconds is None or seconds >= 0
