"""Rates and the course of lag."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zkgroup.groups.watch import timeline as lag_trends
from zkgroup.groups.watch.timeline import MAX_POINTS, LagTrends, Rates, WatchedGroup, WatchedPartition, sparkline
from zkgroup.protocol.names import TopicPartition

KEY = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)


def seen(*points: tuple[int, int | None, int | None]) -> LagTrends:
    """Looks at one partition: seconds, committed, log end."""
    found = LagTrends()
    for at, committed, end in points:
        found.add(WatchedGroup(at * 1000, "g", {}, {KEY: WatchedPartition(committed=committed, log_end=end)}))
    return found


def test_rates_are_those_of_all_that_is_kept() -> None:
    """A commit in steps is a rate over the time that is read; what is not known at times is left out."""
    found = seen((0, 0, 100), (2, 0, 120), (4, 60, 140), (6, None, None), (10, 60, 200))
    assert found.rates(KEY) == Rates(None, None)  # an offset that was gone begins anew
    assert seen((0, 0, 100), (2, 0, 120), (4, 60, 140)).rates(KEY) == Rates(10.0, 15.0)
    assert seen((0, None, 100), (2, 10, None), (4, 60, 140)).rates(KEY) == Rates(10.0, 25.0)
    assert seen((0, 5, 100)).rates(KEY) == Rates(None, None)
    assert seen().rates(KEY) == Rates(None, None)


def test_no_rate_goes_across_a_reset() -> None:
    """After an offset went back, or a log was cut, rates begin anew."""
    assert seen((0, 90, 100), (2, 10, 100), (4, 30, 100)).rates(KEY) == Rates(0.0, 10.0)
    assert seen((0, 90, 100), (2, 90, 50), (4, 90, 70)).rates(KEY) == Rates(10.0, 0.0)


def test_totals_and_snapshots_without_offsets() -> None:
    """All partitions together; a state at members alone adds no point."""
    found = LagTrends()
    for at in (0, 1):
        partitions = {key: WatchedPartition(committed=10 * at, log_end=20 * at) for key in (KEY, OTHER)}
        found.add(WatchedGroup(at * 1000, "g", {}, partitions))
        found.add(WatchedGroup(at * 1000 + 500, "g", {}, {}, measured=False))
    assert found.total() == Rates(40.0, 20.0)
    assert found.total_lags(9) == ([0, 20], 1.0)
    assert found.total_lags(1) == ([20], 0.0)
    assert found.lags(KEY) == [0, 10]


def test_memory_has_an_end() -> None:
    """However long is watched, and however many partitions: so many points, and none of partitions that are gone."""
    found = seen(*((at, at, at) for at in range(10 * MAX_POINTS)))
    assert len(found.lags(KEY)) == MAX_POINTS
    assert len(found.total_lags(10**6)[0]) == MAX_POINTS
    assert LagTrends().total_lags(5) == ([], 0.0)
    many = {TopicPartition("t", n): WatchedPartition(committed=1, log_end=1) for n in range(20_000)}
    for at in range(20):
        found.add(WatchedGroup(10**7 + at, "g", {}, many))
    assert sum(map(len, found._points.values())) <= lag_trends.MAX_ALL_POINTS
    found.add(WatchedGroup(10**8, "g"))
    assert not found._points


@given(st.lists(st.none() | st.integers(-5, 10**18), max_size=30), st.integers(1, 20))
def test_a_spark_line_has_its_length(values: list[int | None], length: int) -> None:
    """As many signs as asked for, the newest last; the largest is the highest, zero the lowest."""
    line = sparkline(values, length)
    assert len(line) == length
    shown = values[-length:]
    for sign, value in zip(line[length - len(shown) :], shown, strict=True):
        assert (sign == " ") == (value is None)
        if value is not None and value == max(v for v in shown if v is not None) and value >= 8:
            assert sign == "█"
        if value is not None and value <= 0:
            assert sign == "▁"
