"""Times, durations and scopes as operators write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lines import names

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.kafka.message_times import has_no_time_index
from zkgroup.clients.kafka.start_position import parse_start
from zkgroup.config.time_arguments import parse_duration, parse_time
from zkgroup.errors import NotFoundError, UsageError
from zkgroup.groups.partition_scope import Scope, parse_scope, whole
from zkgroup.protocol.names import TopicPartition

NOON = 1_714_564_800_000  # 2024-05-01T12:00:00Z
HOUR = 3_600_000


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("2024-05-01T12:00:00", NOON),
        ("2024-05-01T12:00:00Z", NOON),
        ("2024-05-01T14:00:00+02:00", NOON),
        ("2024-05-01T14:00+0200", NOON),
        ("2024-05-01 12:00", NOON),
        ("20240501T120000", NOON),
        ("2024-05-01", NOON - 12 * 3_600_000),
        ("2024-05-01T12:00:00.123", NOON + 123),
        ("2024-05-01T12:00:00.1239999Z", NOON + 123),
        ("2024-05-01T11:59:59.9Z", NOON - 100),
        ("1969-12-31T23:59:59Z", 0),
        ("0001-01-01T00:00:00+23:59", 0),
    ],
)
def test_times(text: str, millis: int) -> None:
    """ISO 8601 with and without zone (UTC), fractions cut to milliseconds; nothing is older than 1970."""
    assert parse_time(text) == millis


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ago",
        "30",
        "17145648",
        "2024-13-01",
        "2024-05-01T25:00",
        "12:60",
        "12:00 CET",
        "P1M",
        "2024-05-01T12:00 CET",
        "today 25:00",
        "3y",
        "1M",
        "2024-05-01T12:00+02:00 UTC",
        "2024-05-01T12:00+2:00",
    ],
)
def test_what_is_no_time(text: str) -> None:
    """Anything else is wrong usage; few digits, too, as eight would be a date."""
    with pytest.raises(UsageError, match=rf"^{re.escape(repr(text))} .*2024-05-01T12:00:00\b.*PT3H\b"):
        parse_time(text)


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("now", NOON),
        ("today", NOON - 12 * HOUR),
        ("Yesterday", NOON - 36 * HOUR),
        ("yesterday 14:00", NOON - 22 * HOUR),
        ("yesterday  14:00:30+02:00", NOON - 24 * HOUR + 30_000),
        ("12:00", NOON),
        ("10:00", NOON - 2 * HOUR),
        ("13:59:30.5+02:00", NOON - 29_500),
        ("today 14:00", NOON + 2 * HOUR),
        ("9:00", NOON - 3 * HOUR),
        ("9:00Z", NOON - 3 * HOUR),
        ("yesterday 9:30 UTC", NOON - 26 * HOUR - HOUR // 2),
        ("2024-05-01 9:00:00 UTC", NOON - 3 * HOUR),
        ("2024-05-01 9:00+01:00", NOON - 4 * HOUR),
        ("2024-05-01T14:00", NOON + 2 * HOUR),
        ("PT1H", NOON - HOUR),
        ("P1DT12H ago", NOON - 36 * HOUR),
        ("3h", NOON - 3 * HOUR),
        ("1d 12h ago", NOON - 36 * HOUR),
        ("90 minutes ago", NOON - HOUR * 3 // 2),
        ("9999999d", 0),
        ("1714564800", NOON),
        ("1714564800000", NOON),
    ],
)
def test_times_as_people_type_them(text: str, millis: int) -> None:
    """Days and durations count from now, in UTC; seconds and milliseconds since 1970 differ in their digits."""
    assert parse_time(text, NOON) == millis


@pytest.mark.parametrize("text", ["14:00", " 14:00:00.0", "16:00+02:00"])
def test_a_time_of_day_that_is_to_come(text: str) -> None:
    """It may mean yesterday's: refused, with both readings."""
    clock = text.strip()
    with pytest.raises(UsageError) as refused:
        parse_time(text, NOON)
    assert names(str(refused.value), repr(text), "12:00 UTC", f"'yesterday {clock}'", f"'today {clock}'")
    assert parse_time(f"yesterday {clock}", NOON) + 24 * HOUR == parse_time(f"today {clock}", NOON) == NOON + 2 * HOUR


def test_a_start_that_is_to_come() -> None:
    """Where reading starts refuses it in the same way."""
    with pytest.raises(UsageError, match=r"'yesterday 23:59:59\.999'.*'today 23:59:59\.999'"):
        parse_start("@23:59:59.999")


@pytest.mark.parametrize("text", ["@3h", "@1714564800", "@1714564800000", "@yesterday 14:00", "@00:00", "@PT1H"])
def test_starts_by_time(text: str) -> None:
    """Where reading starts takes the same times; few digits are milliseconds."""
    expected = parse_time(text[1:])
    assert 0 <= parse_start(text).value - expected < 60_000
    assert parse_start("@1000").value == 1000


@given(st.datetimes(datetime(1970, 1, 2), datetime(9999, 1, 1)), st.integers(-1439, 1439))
def test_times_of_any_zone(moment: datetime, minutes: int) -> None:
    """The zone shifts a time by exactly its offset."""
    zoned = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    expected = (moment.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    assert parse_time(zoned.isoformat()) == max(0, expected - minutes * 60_000)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("PT30M", 1800), ("P1DT2H", 93_600), ("P1.5DT1H", 133_200),
        ("PT0.5S", 0.5), ("PT1,5H", 5400), ("P2W", 1_209_600), ("p1dt1s", 86_401),
        ("P0D", 0), ("PT90M", 5400),
        ("30m", 1800), ("1.5 h", 5400), ("1d12h", 129_600), ("3 h 12 min", 11_520), ("P1W2DT3H4M5.678S", 788_645.678),
    ],
)  # fmt: skip
def test_durations(text: str, seconds: float) -> None:
    """ISO 8601 durations to the millisecond; a day has 24 hours."""
    assert parse_duration(text) == round(seconds * 1000)


@pytest.mark.parametrize(
    "text",
    [
        *("", "P", "PT", "PT5", "P1DT", "-P1D", "PT-5M", "P1H"),
        *("30", "-3h", "3y", "3h5", "3 hens", "1M", "PT1S2M"),
        *("P1M", "P1Y2D", "P3MT5S", "P99999999999D"),
    ],
)
def test_what_is_no_duration(text: str) -> None:
    """Months and years have no length, a minus no meaning."""
    with pytest.raises(UsageError, match=rf"^{re.escape(repr(text))} .*1d12h\b.*P1DT12H\b"):
        parse_duration(text)


def test_brokers_without_a_time_index() -> None:
    """0.8 and 0.9 are known by what ZooKeeper shows, or by what the user says; other settings do not make a legacy."""
    assert has_no_time_index(KafkaSettings("b", legacy_release="0.8.2.2"))
    assert has_no_time_index(KafkaSettings("b", {"api.version.request": "false", "broker.version.fallback": "0.9.0"}))
    assert not has_no_time_index(KafkaSettings("b", {"broker.version.fallback": "0.9.0"}))
    assert not has_no_time_index(KafkaSettings("b"))


def test_scopes() -> None:
    """Topics, partitions and ranges; what is said twice of a topic adds up, and all of it wins."""
    assert parse_scope(["a"]) == Scope({"a": ()})
    assert parse_scope(["a:0,2-5", "b:7"]) == Scope({"a": ((0, 0), (2, 5)), "b": ((7, 7),)})
    assert parse_scope(["a:0", "a:3"]) == Scope({"a": ((0, 0), (3, 3))})
    assert parse_scope(["a:0", "a"]) == parse_scope(["a", "a:0"]) == Scope({"a": ()})
    assert parse_scope(["x:y:3"]) == Scope({"x:y": ((3, 3),)})
    assert parse_scope(["x:0:"]) == parse_scope([whole("x:0")]) == Scope({"x:0": ()})
    scope = parse_scope(["a:0,2-5"])
    assert [number for number in range(8) if scope.has(TopicPartition("a", number))] == [0, 2, 3, 4, 5]
    assert not scope.has(TopicPartition("b", 0))


@pytest.mark.parametrize(
    "text", ["", "a:", ":0", "a:5-2", "a:0,", "a:x", "a:-1", "a:99999999999", "a/b", "..", "a\x1b"]
)
def test_what_is_no_scope(text: str) -> None:
    """A range that is empty or backwards, and a name that no topic can have, is wrong usage."""
    with pytest.raises(UsageError):
        parse_scope([text])


def test_scopes_choose_of_what_exists() -> None:
    """What was named must be there; the error names the first that is not, and what there is."""
    existing = {"a": (0, 1, 2), "b": (0,)}
    assert parse_scope(["a:1-2", "b"]).select(existing) == [("a", 1), ("a", 2), ("b", 0)]
    with pytest.raises(NotFoundError, match=r"\bc\b"):
        parse_scope(["a", "c"]).select(existing)
    with pytest.raises(NotFoundError, match=r"\ba\b.*\b3\b.*\b0\b.*\b2\b"):
        parse_scope(["a:1-2000000000"]).select(existing)
