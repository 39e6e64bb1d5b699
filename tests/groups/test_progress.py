"""Burrow's rules over a window of samples."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkgroup.groups.monitoring.group_check import evaluate, seconds_to_catch_up, status_of_group
from zkgroup.groups.monitoring.lag_history import Sample

MINUTE = 60_000


def samples(
    committed: list[int | None], ends: list[int | None], changed: list[int] | None = None, apart: int = MINUTE
) -> list[Sample]:
    """A snapshot a minute; ``changed``: in which snapshot's minute the offset had been written."""
    return [
        Sample(index * apart, offset, end, None if changed is None else changed[index] * apart)
        for index, (offset, end) in enumerate(zip(committed, ends, strict=True))
    ]


_RISING = [(100, 1000, 0), (200, 2000, 50), (300, 3000, 100), (400, 4000, 150), (500, 5000, 200)]
_LAGGING = [(100, 1000, 50), (200, 2000, 100), (300, 3000, 150), (400, 4000, 200), (500, 5000, 250)]
_STALLING = [(100, 1000, 100), (200, 1000, 150), (300, 1000, 200), (400, 1000, 250), (500, 1000, 300)]
_BACK = [(100, 1000, 100), (200, 2000, 150), (300, 3000, 200), (400, 2000, 1250)]
_WITH_HOLES = [
    *((100, 1000, 0), (150, 1500, None), (200, 2000, 50), (250, 2500, None), (300, 3000, 100), (350, 3500, None)),
    *((400, 4000, 150), (450, 4500, None), (500, 5000, 200), (550, 5500, None)),
]
_SECONDS = (18356, 19362, 20366, 21367, 22370, 23373, 24378, 25379, 26383, 27383, 28383, 29388, 30391, 31394, 32397)
_EACH_SECOND = [(1512224600 + at / 1000, 792748079 + index, 0) for index, at in enumerate(_SECONDS)]


@pytest.mark.parametrize(
    ("samples", "status"),
    [
        (samples([5, 6, 7, 8, 9], [5, 6, 7, 8, 9]), "OK"),
        (samples([5, 6, 7, 8, 9], [9, 10, 10, 11, 11]), "OK"),
        (samples([5, 5, 5, 5, 5], [5, 5, 5, 5, 5]), "OK"),
        (samples([5, 5, 5, 5, 5], [9, 9, 9, 9, 9]), "STOP"),
        (samples([5, 5, 5, 5, 5], [9, 9, 9, 9, 9], [-9, -9, -9, -9, -9]), "STOP"),
        (samples([5, 5, 5, 5, 5], [9, 9, 9, 9, 9], [0, 1, 2, 3, 4]), "STALL"),
        (samples([5, 6, 7, 8, 9], [9, 11, 13, 15, 17]), "WARN"),
        (samples([5, 6, 7, 8, 9], [9, 10, 11, 12, 13]), "WARN"),
        (samples([5, 6, 7, 2, 3], [9, 9, 9, 9, 9]), "REWIND"),
        (samples([5, 6, 5, 6, 7], [9, 9, 9, 9, 9]), "OK"),
        (samples([1, 2, 3, 4, 4, 4, 4], [9, 9, 9, 9, 9, 9, 9]), "OK"),
        (samples([1, 2, 2, 2, 2, 2, 2], [9, 9, 9, 9, 9, 9, 9]), "STOP"),
        (samples([None, None, 4, 4, 4, 4, 4], [9] * 7), "STOP"),
        (samples([4, 4, 4, 4, None], [9] * 5), "OK"),
        (samples([4, 4, 4, 4, 4], [9, 9, 9, 9, None]), "OK"),
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


#: What Burrow's own tests say (linkedin/Burrow 1.9.5, core/internal/evaluator/caching_test.go, in its order): the
#: commits as (second, offset, lag at that time), the log ends seen after them with the newest last, the lag now, the
#: second it is now, the lag that is allowed, the verdict.
BURROW: list[tuple[list[tuple[float, int, int | None]], list[int], int, float, int, str]] = [
    (_RISING, [5200], 200, 600, 0, "OK"),
    (_RISING, [5200], 200, 900, 0, "OK"),
    (_RISING, [5200], 200, 1000, 0, "STOP"),
    (_LAGGING, [5250], 250, 1000, 0, "STOP"),
    (
        [(100, 1000, 0), (200, 1000, 50), (300, 1000, 100), (400, 1000, 150), (500, 1000, 200)],
        [1200],
        200,
        600,
        0,
        "OK",
    ),
    (_STALLING, [1300], 300, 600, 0, "STALL"),
    ([(at, 1000, 100) for at in (100, 200, 300, 400, 500)], [1100], 100, 600, 0, "STALL"),
    ([*_BACK, (500, 4000, 300)], [4300], 300, 600, 0, "OK"),
    (_LAGGING, [5250], 0, 1000, 0, "OK"),
    (_EACH_SECOND, [792748500, 792748600, 792748800, 792749000, 792749024], 931, 1512224650, 0, "STOP"),
    (_EACH_SECOND, [792748093, 792748093, 792748093, 792748094], 1, 1512224650, 0, "OK"),
    (_WITH_HOLES, [5700], 200, 600, 0, "OK"),
    ([(100, 1000, 2), (200, 2000, 1), (300, 2000, 1)], [2001], 1, 550, 1, "OK"),
    (_STALLING, [1300], 300, 600, 99, "STALL"),
    ([*_BACK, (500, 4000, 300)], [4300], 300, 600, 99, "OK"),
    ([*_BACK, (500, 2500, 300)], [4300], 300, 600, 0, "REWIND"),
]


@pytest.mark.parametrize(
    ("commits", "ends", "lag", "now", "allowed", "status"), BURROW, ids=[str(number) for number in range(len(BURROW))]
)
def test_what_burrow_says(
    commits: list[tuple[float, int, int | None]], ends: list[int], lag: int, now: float, allowed: int, status: str
) -> None:
    """A snapshot of each commit, one for each log end seen after the last, of which the newest is now's. Where Burrow's
    members commit once a second, times are stretched: those of ZooKeeper commit once a minute. A lag that is allowed
    counts as none."""
    first, last = commits[0][0], commits[-1][0]
    slower = 60 if commits[1][0] - first < 2 else 1

    def sample(at: float, changed: float, offset: int, lag: int | None) -> Sample:
        end = None if lag is None else offset + (lag if lag > allowed else 0)
        taken_at, changed_at = ((round((time - first) * slower * 1000)) for time in (at, changed))
        return Sample(taken_at, offset, end, changed_at)

    offset = commits[-1][1]
    samples = [sample(at, at, offset, lag) for at, offset, lag in commits]
    for index, end in enumerate(ends[:-1], 1):
        samples.append(sample(last + (now - last) * index / len(ends), last, offset, end - offset))
    samples.append(sample(now, last, offset, lag))
    assert evaluate(samples) == status


def test_a_member_that_dies_behind_is_reported_when_it_was_silent_for_longer_than_it_was_seen_to_commit() -> None:
    """However many samples there are: one that saw the log end below the last offset, before that was committed, does
    not put it off."""
    for window in (10, 60):
        committed: list[int | None] = [1000 * sample for sample in range(1, window // 2 + 1)]
        committed += [committed[-1]] * (window - len(committed))
        ends: list[int | None] = [1000 * sample + 50 * sample for sample in range(1, window // 2 + 1)]
        ends += [ends[-1]] * (window - len(ends))
        assert evaluate(samples(committed[: window - 1], ends[: window - 1])) != "STOP"
        assert evaluate(samples(committed, ends)) == "STOP"


def test_a_member_that_dies_at_the_end_is_reported_when_messages_waited_for_two_commits() -> None:
    """Whether samples without lag are in the window still or not."""
    for idle in (3, 50):
        ends: list[int | None] = [9] * idle
        assert evaluate(samples([9] * (idle + 3), [*ends, 10, 11, 12], [0] * (idle + 3))) == "OK"
        assert evaluate(samples([9] * (idle + 4), [*ends, 10, 11, 12, 13], [0] * (idle + 4))) == "STOP"


def test_a_log_that_ended_at_the_offset_is_no_stop_yet() -> None:
    """Burrow's read recent ends: a message that came just now is not held against the group, but for so long."""
    assert evaluate(samples([9, 9, 9, 9, 9], [9, 9, 9, 9, 10], [-9] * 5)) == "OK"
    assert evaluate(samples([9, 9, 9, 9, 9], [10, 10, 10, 10, 10], [-9] * 5)) == "STOP"


def test_a_window_shorter_than_two_commits_of_the_scala_consumer_shows_nothing() -> None:
    """Between two commits, a minute apart by default, lag grows in every healthy group."""
    assert evaluate(samples([5, 5, 5, 5], [9, 10, 11, 12], apart=10_000)) == "OK"
    assert evaluate(samples([5, 5], [9, 10], apart=10 * MINUTE)) == "OK"
    assert evaluate([]) == "OK"


def test_a_group_is_as_bad_as_its_worst_partition() -> None:
    """STOP, STALL and REWIND are errors."""
    assert status_of_group([]) == status_of_group(["OK", "OK"]) == "OK"
    assert status_of_group(["OK", "WARN"]) == "WARN"
    for status in ("STOP", "STALL", "REWIND"):
        assert status_of_group(["WARN", status, "OK"]) == "ERR"  # type: ignore[list-item]


def test_the_time_to_catch_up_is_lag_by_the_rate_at_which_it_shrinks() -> None:
    """At the rates of the window; never, where it does not shrink."""
    assert seconds_to_catch_up(samples([0, 60], [200, 200])) == pytest.approx(140)
    assert seconds_to_catch_up(samples([0, 60], [200, 230])) == pytest.approx(340)
    assert seconds_to_catch_up(samples([0, 60], [200, 260])) == float("inf")
    assert seconds_to_catch_up(samples([0, 200], [200, 200])) == 0
    assert seconds_to_catch_up(samples([0], [200])) is None
    assert seconds_to_catch_up(samples([0, None], [200, 200])) is None


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


@pytest.mark.parametrize("ahead", [0, 3_600_000])
def test_a_clock_of_zookeeper_that_is_ahead_hides_no_dead_member(ahead: int) -> None:
    """A commit that was seen is no later than the snapshot that saw it."""
    window = [Sample(60_000 * n, 10 * min(n, 3), 100, 60_000 * min(n, 3) + ahead) for n in range(1, 10)]
    assert evaluate(window) == "STOP"
