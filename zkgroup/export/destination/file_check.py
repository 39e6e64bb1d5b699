"""One published file, and what is wrong with it."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow.compute as pc

from zkgroup.export.destination.expected_files import ExpectedFile
from zkgroup.export.destination.footer import Footer, UnreadableFileError, count_rows, read_footer
from zkgroup.export.destination.run_log import Destination
from zkgroup.export.model.intervals import Interval, union
from zkgroup.export.model.layout import Calendar, Layout
from zkgroup.export.model.plan_types import LostRange
from zkgroup.text import counted


class FileContent(NamedTuple):
    """A file's footer, or why it cannot be read; and what is wrong with its rows, if they were read."""

    footer: Footer | None
    why: str | None


def read_file(destination: Destination, name: str) -> FileContent:
    """Read its footer, and the offsets of its rows where several ranges are in it."""
    try:
        footer = read_footer(destination.store, name)
        wrong = None
        if len(footer.slices) > 1:
            partitioned = "/partition=" in name
            wrong = count_rows(destination.store, name, footer.slices, partitioned=partitioned)
    except UnreadableFileError as error:
        return FileContent(None, error.reason)
    return FileContent(footer, wrong)


def check_file(size: int, content: FileContent, known: ExpectedFile) -> list[str]:
    """What is wrong with a file, by its footer and its record; in words that follow its name."""
    if content.footer is None:
        return [f" {content.why}"]
    footer, problems = content.footer, list[str]()
    rows = footer.metadata.num_rows
    if size != known.file.bytes:
        problems.append(f" has {size} bytes, run {known.run} wrote {known.file.bytes}")
    if rows != known.file.rows:
        problems.append(f" has {rows} rows, run {known.run} wrote {known.file.rows}")
    # Of some of its ranges another file may have become the keeper.
    ranges = {(one.partition, one.start, one.end) for one in footer.slices}
    if footer.origin.get("topic") != known.file.topic or not ranges.issuperset(
        (one.partition, one.start, one.end) for one in known.file.ranges
    ):
        topic = footer.origin.get("topic")
        what = ", ".join(f"{topic}-{partition} {start} to {end}" for partition, start, end in sorted(ranges)[:3])
        problems.append(f" says that it is {what or 'nothing'}")
    if content.why is not None:
        problems.append(f": {content.why}")
    if len(footer.slices) == len(known.file.ranges) == 1:
        whole = known.file.ranges[0]
        problems += [f": {why}" for why in _check_row_groups(footer.metadata, (whole.start, whole.end))]
    return problems


def _statistics(metadata: Any, column: str) -> Iterator[tuple[int, int, Any]]:
    """Of each row group: its number, its rows, and the column's statistics, or None."""
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        columns = (group.column(i) for i in range(group.num_columns))
        yield number, group.num_rows, next((c.statistics for c in columns if c.path_in_schema == column), None)


def _check_row_groups(metadata: Any, interval: Interval) -> Iterator[str]:
    """What is wrong with the row groups' offsets: they rise, lie in the interval, and leave room for every row."""
    position = interval[0]
    for number, rows, found in _statistics(metadata, "offset"):
        ends = _ends(found)
        if ends is None:
            yield f"row group {number} does not tell its offsets"
            return
        if ends[0] < position or ends[1] >= interval[1] or ends[1] - ends[0] + 1 < rows:
            yield f"row group {number} has {rows} rows, offsets {ends[0]} to {ends[1]}, behind {position}"
        position = ends[1] + 1


def compare_rewritten(ranges: Sequence[LostRange], offsets: Any, *, is_recreated: bool) -> str | None:
    """What is wrong with the rows that others have put into a table in place of these ``ranges``, all of one partition.
    ``offsets``: a column of theirs, None without any. ``is_recreated``: each offset may be there once for each log."""
    wanted, there = sum(one.rows for one in ranges), 0 if offsets is None else len(offsets)
    if wanted != there:
        return f"others have put {counted(there, 'row')} in the place of {wanted}"
    inside = [
        pc.sum(pc.and_(pc.greater_equal(offsets, low), pc.less(offsets, high))).as_py()
        for low, high in union((one.start, one.end) for one in ranges)
    ]
    if sum(inside) != there or (pc.count_distinct(offsets).as_py() != there and not is_recreated):
        return f"others have put {counted(there, 'row')} in the place of {wanted}, with other offsets"
    return None


def check_times(footer: Footer, layout: Layout, calendar: Calendar, name: str) -> list[str]:
    """Whether the rows are of the folder's day, or hour: its first and its last are."""
    try:
        period = layout.period_of_folder(name)
    except ValueError:
        return [" is in a folder of no day"]
    for number, rows, found in _statistics(footer.metadata, "timestamp"):
        ends = _ends(found)
        if ends is None:
            if period is None and (found is None or found.null_count in (None, rows)):
                continue
            return [f": row group {number} does not tell its times"]
        if any(calendar.period(end) != period for end in ends):
            first, last = map(_time, ends)
            return [f": row group {number} has times from {first} to {last}, which are not of this folder"]
    return []


def _ends(found: Any) -> tuple[int, int] | None:
    """The least and the largest value, as they are stored: offsets, or milliseconds since 1970. pyarrow's own would be
    a ``datetime``, which has no year after 9999."""
    if found is None or not found.has_min_max:
        return None
    low, high = found.min_raw, found.max_raw
    return (low, high) if isinstance(low, int) and isinstance(high, int) else None


def _time(ms: int) -> str:
    try:
        return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).isoformat(" ", "milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"
