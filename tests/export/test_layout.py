"""Folders and names: days and hours of any zone, and the rules of a destination's layout."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from zkgroup.clients.kafka.message_contents import is_json
from zkgroup.errors import RefusedError, UsageError
from zkgroup.export.model.layout import (
    NO_DATE,
    NO_HOUR,
    Calendar,
    Layout,
    LayoutOptions,
    parse_compression,
    parse_parts,
    parse_zone,
    read_name,
)
from zkgroup.export.model.plan_types import Slice
from zkgroup.export.tasks.task_data import LateCounter, late_of

# Whole, half and quarter hours; a change at a minute past midnight (St. John's until 2011), by half an hour (Lord
# Howe), of a whole day (Apia skipped one), and times before zones, which are seconds off.
ZONES = ["UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Asia/Kathmandu", "Pacific/Apia"]
ZONES += ["America/Sao_Paulo", "Africa/Monrovia", "America/New_York"]
BERLIN = ZoneInfo("Europe/Berlin")
HOURS = Layout(("date", "hour"), "Europe/Berlin")


def ms(moment: datetime) -> int:
    """Milliseconds since 1970."""
    return round(moment.timestamp() * 1000)


@given(st.sampled_from(ZONES), st.booleans(), st.integers(0, 4_102_444_800_000))
@example("America/St_Johns", False, ms(datetime(2006, 10, 29, 2, 31, 30, tzinfo=UTC)))  # 00:01 → 23:01 the day before
@example("America/St_Johns", True, ms(datetime(2006, 10, 29, 2, 30, 59, tzinfo=UTC)))
@example("Australia/Lord_Howe", True, ms(datetime(2024, 4, 6, 15, 0, tzinfo=UTC)))  # back by half an hour
@example("Africa/Monrovia", True, 1_000_000)  # 44 minutes and 30 seconds behind until 1972
@example("Pacific/Apia", False, ms(datetime(2011, 12, 30, 10, 0, tzinfo=UTC)))
@example("Europe/Berlin", True, ms(datetime(2024, 10, 27, 1, 0, tzinfo=UTC)) - 1)
def test_a_folder_is_the_day_and_hour_that_a_clock_there_shows(zone: str, hours: bool, time: int) -> None:
    """Date and hour are those of local time, whatever the zone does, also where its clock is set back; and a name's
    folder shows the period again."""
    layout = Layout(("date", "hour") if hours else ("date",), zone)
    local = (datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=time)).astimezone(ZoneInfo(zone))
    period = layout.calendar().period(time)
    expected = f"topic=t/date={local:%Y-%m-%d}" + (f"/hour={local.hour}" if hours else "")
    assert layout.folder("t", 0, period) == expected
    assert layout.period_of_folder(f"{expected}/x.parquet") == period


@given(st.sampled_from(ZONES), st.booleans(), st.integers(0, 4_102_444_800_000), st.integers(0, 1_800_000))
@example("America/St_Johns", False, ms(datetime(2006, 10, 29, 2, 30, tzinfo=UTC)), 120_000)
def test_times_that_are_taken_together_have_one_period(zone: str, hours: bool, first: int, length: int) -> None:
    """Whoever asks for a stretch of time at once gets what each moment of it would get."""
    calendar = Calendar(zone, hours=hours)
    same, period = calendar.period_of_all(first, first + length)
    if same:
        steps = [first + length * i // 40 for i in range(41)]
        assert {Calendar(zone, hours=hours).period(step) for step in steps} == {period}


@pytest.mark.parametrize(
    ("day", "hours", "longest"),
    [((2024, 3, 31), 23, 1), ((2024, 10, 27), 25, 2), ((2024, 5, 1), 24, 1)],
)
def test_days_of_23_and_25_hours(day: tuple[int, int, int], hours: int, longest: int) -> None:
    """In spring an hour has no folder, in autumn one has two hours of messages; none is in a neighbour's day."""
    midnight = datetime(*day, tzinfo=BERLIN)
    start, end = ms(midnight), ms((midnight + timedelta(days=1)).replace(tzinfo=BERLIN))
    assert (end - start) // 3_600_000 == hours
    folders = [HOURS.folder("t", 0, HOURS.calendar().period(t)) for t in range(start, end, 900_000)]
    assert {name.split("/")[1] for name in folders} == {f"date={midnight:%Y-%m-%d}"}
    lengths = [folders.count(name) / 4 for name in dict.fromkeys(folders)]
    assert max(lengths) == longest
    assert len(lengths) == hours - (longest - 1)
    struck = [int(name.rpartition("=")[2]) for name in folders]
    assert struck == sorted(struck)


@pytest.mark.parametrize("time", [None, -1, 253_402_300_800_000, 1 << 62])
def test_what_no_calendar_has_is_in_a_folder_of_its_own(time: int | None) -> None:
    """Messages without a time, and microseconds taken for milliseconds, have a folder, too: a date and an hour that no
    message has."""
    period = HOURS.calendar().period(time)
    assert HOURS.folder("t", 3, period) == f"topic=t/date={NO_DATE}/hour={NO_HOUR}"
    assert HOURS.period_of_folder(f"topic=t/date={NO_DATE}/hour={NO_HOUR}/x.parquet") is None
    assert replace(HOURS, by=("date",)).folder("t", 3, period) == f"topic=t/date={NO_DATE}"


slices = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(1, 9)), min_size=1, max_size=3)


@given(
    st.sampled_from([(), ("partition",), ("date",), ("partition", "date", "hour")]), slices, st.none() | st.just("9a"),
    st.none() | st.integers(0, 600_000),
)  # fmt: skip
def test_names_tell_what_is_in_a_file(
    by: tuple, held: list[tuple[int, int, int]], tag: str | None, period: int | None
) -> None:
    """Topic, partition, first range, how many more and of which run, and the incarnation, in each layout."""
    layout = Layout(by)
    found = [Slice(p, start, start + length, 1) for p, start, length in held]
    run = "00000012-ab12cd34"
    name = read_name(f"{layout.folder('t.-_1', found[0].partition, period)}/{layout.name(found, run, tag)}")
    more = len(found) - 1
    assert name == ("t.-_1", *found[0][:3], more, run if more else None, tag)


@pytest.mark.parametrize(
    "name",
    [
        *[
            "topic=t/0-1.parquet",
            "topic=t/partition=0/0.0-1.parquet",
            "topic=t/partition=x/0-1.parquet",
            "x/0.0-1.parquet",
        ],
        *["topic=t/x/0.0-1.parquet", "topic=t/0.0-1", "topic=t/0.0-1+2.parquet", "0.0-1.parquet"],
    ],
)
def test_other_names_are_nobodys(name: str) -> None:
    """What does not tell its partition, its run, or lies elsewhere, was not named by an export."""
    assert read_name(name) is None


# What lies next to IANA's zones, where the machine has them: another zone on each, or with leap seconds.
BESIDE = ("localtime", "posixrules", "Factory", "posix/Europe/Berlin", "right/Europe/Berlin")


def test_options_are_read_and_refused() -> None:
    """Parts in any order, hour with its date; zones that there are; codecs with levels that they have."""
    assert parse_parts("hour, partition") == ("partition", "date", "hour")
    assert (parse_parts("none"), parse_parts("date")) == ((), ("date",))
    assert parse_zone("Europe/Berlin") == "Europe/Berlin"
    assert [parse_compression(text) for text in ("zstd", "ZSTD:19", "gzip:9", "lz4", "lz4:12", "none", "snappy")] == [
        ("zstd", 1), ("zstd", 19), ("gzip", 9), ("lz4", None), ("lz4", 12), ("none", None), ("snappy", None),
    ]  # fmt: skip
    for parse, words in (
        (parse_parts, ("", "day", "date,date", "none,date", "topic")),
        (parse_zone, ("", " UTC", "Mars/Base", "../UTC", "/etc/passwd", "CEST+2", *BESIDE)),
        (parse_compression, ("", "brotli", "zstd:0", "zstd:23", "zstd:", "gzip:x", "snappy:1", "none:1", "zstd:²")),
    ):
        for word in words:
            with pytest.raises(UsageError):
                parse(word)


def test_a_destination_has_one_layout() -> None:
    """What is not asked for is as it is there; what is, must be so; a zone needs folders of times."""
    assert LayoutOptions().resolve(None, "x") == Layout()
    assert LayoutOptions(value="json").resolve(None, "x") == Layout(value="json")
    assert LayoutOptions().resolve(HOURS, "x") == HOURS
    assert LayoutOptions(("date", "hour"), "Europe/Berlin").resolve(HOURS, "x") == HOURS
    for other in (
        LayoutOptions(("date",)),
        LayoutOptions(zone="UTC"),
        LayoutOptions(value="text"),
        LayoutOptions(key="json"),
    ):
        with pytest.raises(RefusedError, match=r"\bx\b.*--partition-by date,hour --time-zone Europe/Berlin"):
            other.resolve(HOURS, "x")
    with pytest.raises(UsageError, match="--time-zone"):
        LayoutOptions(zone="UTC").resolve(None, "x")


@given(
    st.lists(st.none() | st.integers(0, 6), max_size=30), st.lists(st.integers(0, 30), max_size=4),
    st.none() | st.integers(0, 6),
)  # fmt: skip
def test_late_is_behind_anything_before_wherever_ranges_are_cut(
    periods: list[int | None], cuts: list[int], before: int | None
) -> None:
    """A message is late if one before it in its partition has a later period, of those that are not in the future; it
    does not matter in which ranges they were read."""
    horizon, newest, late = 5, before, 0
    for period in periods:
        if period is not None and newest is not None and period < newest:
            late += 1
        elif period is not None and period <= horizon:
            newest = period
    edges = sorted({0, len(periods), *(cut for cut in cuts if cut < len(periods))})
    ranges: list[tuple[int, dict[int, int]]] = []
    for start, end in pairwise(edges):
        message = LateCounter(horizon)
        for period in periods[start:end]:
            message.add(period, 1)
        ranges.append((message.late, message.fresh))
    assert late_of(ranges, before) == (late, newest)


texts = st.sampled_from([b'{"a":[1,2.5e3,"x\\u00e9\\n",{"b":null,"c":true}],"d":{}}', b'[[],{},"\\ud83d\\ude00",-0.1]'])


@given(
    texts, st.lists(st.tuples(st.integers(0, 60), st.sampled_from(list(b'[]{},:"0-1.eE\\untf \xc3\xa9'))), max_size=3)
)
@example(b"[" * 800 + b"]" * 800, [])
@example(b"[" * 1025 + b"]" * 1025, [])
def test_json_is_what_a_parser_takes(text: bytes, changes: list[tuple[int, int]]) -> None:
    """The check and a parser come to the same, also where a byte is wrong."""
    changed = bytearray(text)
    for place, byte in changes:
        changed[place % len(changed)] = byte
    try:
        orjson.loads(bytes(changed))
        right = True
    except orjson.JSONDecodeError:
        right = False
    if right or b"e" not in changed.lower():  # numbers beyond orjson's range are numbers all the same
        assert is_json(bytes(changed)) == right
