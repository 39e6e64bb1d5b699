"""The history of a group as points, and its picture as SVG."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree

from hypothesis import example, given, settings
from hypothesis import strategies as st
from lines import names

from zkgroup.groups.chart_axes import round_top, short_number, time_ticks, utc_text
from zkgroup.groups.monitoring.history_chart import history_chart
from zkgroup.groups.monitoring.lag_history import HistoryPoint, Sample, columns_of, commits_per_minute, history_points
from zkgroup.protocol.names import TopicPartition

SVG = "{http://www.w3.org/2000/svg}"
MINUTE = 60_000
A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def points_of(*snapshots: dict[TopicPartition, tuple[int | None, int | None]]) -> list[HistoryPoint]:
    """A snapshot each minute: committed offset and log end of each partition."""

    def samples() -> Iterator[tuple[TopicPartition, Sample]]:
        for number, snapshot in enumerate(snapshots):
            yield from ((key, Sample(number * MINUTE, *offsets)) for key, offsets in snapshot.items())

    return list(history_points(samples()))


def test_lag_rates_and_commits_of_each_snapshot() -> None:
    """Rates are those since the snapshot before, summed over the partitions; an unchanged offset is no commit."""
    first, second = points_of({A: (10, 10), B: (0, 60)}, {A: (70, 130), B: (0, 60)})
    assert first == HistoryPoint(0, 2, 60, 0)
    assert second == HistoryPoint(MINUTE, 2, 120, 0, produced=2.0, consumed=1.0, commits=1)
    assert commits_per_minute([first, second]) == [None, 1.0]


def test_an_offset_that_goes_back_is_noted_and_no_consumption() -> None:
    """A reset, or a recreated topic: its partitions are named, and no rate is negative."""
    *_, last = points_of({A: (50, 90), B: (9, 9)}, {A: (20, 90), B: (9, 3)})
    assert (last.consumed, last.produced, last.set_back, last.commits) == (0.0, 0.0, (A,), 1)
    assert (last.lag, last.lag_at_least, last.lag_unknown) == (None, 70, 1)


def test_a_rate_spans_the_time_in_which_brokers_did_not_answer() -> None:
    """The messages of three minutes are not those of one; meanwhile the rate is unknown."""
    points = points_of({A: (0, 0)}, {A: (60, None)}, {A: (120, None)}, {A: (180, 360)})
    assert [point.produced for point in points] == [None, None, None, 2.0]
    assert [point.consumed for point in points] == [None, 1.0, 1.0, 1.0]
    assert [point.lag for point in points] == [0, None, None, 180]


def test_an_empty_log_without_an_offset_has_no_lag() -> None:
    """Such a partition makes nothing unknown; one with messages does."""
    empty, unread = points_of({A: (None, 0), B: (5, 9)}, {A: (None, 1), B: (5, 9)})
    assert (empty.lag, unread.lag, unread.lag_at_least) == (4, None, 4)


def test_columns_hold_between_snapshots_and_not_over_gaps() -> None:
    """A value fills the time since the snapshot before; a longer time without snapshots stays empty."""
    times = [0, 10, 20, 30, 40, 90, 100]
    points = [HistoryPoint(at, 1, at, 0) for at in times]
    values = [point.lag_at_least for point in points]
    assert columns_of(points, values, 10, max) == [0, 10, 20, 30, 40, None, None, None, None, 100]
    assert columns_of(points, [None, *values[1:]], 2, max) == [40, 100]
    assert columns_of(points[:1], [7], 3, max) == [7, None, None]


def test_axes() -> None:
    """Ends are round numbers, ticks round times: days begin with their date."""
    assert [round_top(value) for value in (0, 0.02, 1, 42, 371_427)] == [1, 0.02, 1, 50, 400_000]
    assert [short_number(value) for value in (0, 0.25, 12, 999.9, 1234, 2.5e8)] == [
        "0",
        "0.25",
        "12",
        "1k",
        "1.23k",
        "250M",
    ]
    hours = 3_600_000
    assert time_ticks(hours * 17, hours * 31, 4) == [
        (18 * hours, "18:00"), (24 * hours, "01-02"), (30 * hours, "06:00"),
    ]  # fmt: skip
    assert [label for _, label in time_ticks(0, 24 * hours * 30, 10)][:2] == ["01-01", "01-04"]
    assert time_ticks(0, 7_000, 10)[-1] == (7_000, "00:00:07")
    assert utc_text(10**18) == "?"


@given(st.integers(0, 4_000_000_000_000), st.integers(1, 4_000_000_000_000), st.integers(2, 20))
def test_ticks_are_few_and_within(begin: int, length: int, most: int) -> None:
    """However long the time is."""
    ticks = time_ticks(begin, begin + length, most)
    assert len(ticks) <= most + 1
    assert all(begin <= at <= begin + length for at, _ in ticks)


numbers = st.none() | st.integers(0, 2**62)
rates = st.none() | st.floats(0, 1e12)
any_point = st.builds(
    HistoryPoint, st.integers(0, 10**13), st.just(1), numbers, st.integers(0, 1), rates, rates, st.none() | st.just(3),
    st.sampled_from([(), (A,)]),
)  # fmt: skip


@settings(max_examples=60)
@example([HistoryPoint(0, 1, None, 0, None, 5e-324, None, ())], "")  # below it no power of ten is
@given(st.lists(any_point, min_size=1, max_size=20), st.text(st.characters(codec=None), max_size=100))
def test_a_picture_of_anything_is_xml(points: list[HistoryPoint], group: str) -> None:
    """Whatever the numbers, and the name."""
    points.sort(key=lambda point: point.taken_at)
    root = ElementTree.fromstring(history_chart(points, group))
    assert root.tag == f"{SVG}svg"
    paths = {path.get("class"): path.get("d") or "" for path in root.iter(f"{SVG}path")}
    assert bool(paths["lag"]) == any(point.lag_at_least is not None for point in points)


def test_a_picture_has_its_numbers() -> None:
    """The height of the lag is that of the axis, whose labels are round; what went back is marked."""
    points = points_of({A: (0, 0)}, {A: (0, 300)}, {A: (100, 400)}, {A: (50, 400)})
    root = ElementTree.fromstring(history_chart(points, "g"))
    words = [text.text for text in root.iter(f"{SVG}text")]
    assert {"400", "200"} <= set(words)
    assert any(word and word.startswith("▾") for word in words), "the legend has the mark"
    assert any(names(word or "", "1970-01-01 00:00", "1970-01-01 00:03 UTC", 4) for word in words)
    (lag,) = [path.get("d") or "" for path in root.iter(f"{SVG}path") if path.get("class") == "lag"]
    assert lag.startswith("M0 150V150.0h1V37.5h1"), "300 of 400, from the first minute on"
