"""What one published file shows, and what is wrong with it."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from zkgroup.errors import ZkgroupError
from zkgroup.export.lake.footer import Footer, UnopenedFileError, UnreadableFileError, count_rows, read_footer
from zkgroup.export.lake.holdings import LiveFile
from zkgroup.export.lake.lake import Lake, Published
from zkgroup.export.model.documents import decode_layout, decode_log
from zkgroup.export.model.intervals import Interval
from zkgroup.export.model.layout import Calendar, Layout
from zkgroup.export.model.words import Slice

#: Files that are looked into at a time: in an object store each look is a wait.
LOOKS: Final = 8


class Look(NamedTuple):
    """What a file shows: its footer, or why there is none; and what is wrong with its rows, if they were read.
    ``unopened``: it could not be read, and may be whole."""

    footer: Footer | None
    why: str | None
    unopened: UnopenedFileError | None = None


def look_at(lake: Lake, file: Published) -> Look:
    """Read its footer, and the offsets of its rows where several ranges are in it."""
    try:
        footer = read_footer(lake.store, file.name)
        wrong = None
        if len(footer.slices) > 1:
            partitioned = "/partition=" in file.name
            wrong = count_rows(lake.store, file.name, footer.slices, partitioned=partitioned)
    except UnreadableFileError as error:
        unopened = error if isinstance(error, UnopenedFileError) else None
        return Look(None, error.message.removeprefix(f"{lake.store.uri}/{file.name} "), unopened)
    return Look(footer, wrong)


def wrong_with(file: Published, look: Look, known: LiveFile | None) -> list[str]:
    """What is wrong with a file, as its name, its footer and its manifest, if one is ``known``, tell of it; in words
    that follow its name."""
    if look.footer is None:
        return [f" {look.why}"]
    footer, problems = look.footer, list[str]()
    rows = footer.metadata.num_rows
    if known is None and not footer.told.get("run"):
        problems.append(" was not made by an export")
    elif known is not None:
        if file.size != known.file.bytes:
            problems.append(f" has {file.size} bytes, run {known.run} wrote {known.file.bytes}")
        if rows != known.file.rows:
            problems.append(f" has {rows} rows, run {known.run} wrote {known.file.rows}")
    said = [(one.partition, one.start, one.end) for one in footer.slices]
    if known is not None:
        right = said == [(one.partition, one.start, one.end) for one in known.file.slices]
    else:
        right = said[:1] == [(file.told.partition, file.told.start, file.told.end)] and len(said) == 1 + file.told.more
    topic = footer.told.get("topic")
    if topic != file.told.topic or not right:
        what = ", ".join(f"{topic}-{partition} {start} to {end}" for partition, start, end in said[:3]) or "nothing"
        problems.append(f" says that it is {what}")
    if known is None and not problems and "layout" in footer.told:
        problems += _judge_place(file, footer)
    if look.why is not None:
        problems.append(f": {look.why}")
    if len(footer.slices) <= 1:
        whole = known.file.slices[0] if known else Slice(file.told.partition, file.told.start, file.told.end, rows)
        problems += [f": {why}" for why in _judge_groups(footer.metadata, (whole.start, whole.end))]
    return problems


def _judge_place(file: Published, footer: Footer) -> list[str]:
    """Whether it lies where it was written, by its own words: a copy elsewhere is not that file."""
    try:
        layout = decode_layout("its layout", footer.told["layout"])
    except ZkgroupError as error:
        return [f": {error.message}"]
    try:
        period = layout.period_of_folder(file.name) if layout.timed else None
    except ValueError:
        return [" is in a folder of no day"]
    folder = layout.folder(file.told.topic, file.told.partition, period)
    log = decode_log(footer.told.get("log", ""))
    right = f"{folder}/{layout.name(footer.slices, footer.run, file.told.tag if log is None else log[1].tag)}"
    if layout.timed and not file.name.startswith(f"{folder}/"):
        return [f" is in no folder of {layout.told()}: it was moved, or is a copy"]
    if file.name != right:
        return [f" was written as {right}: it was renamed, or is a copy"]
    return judge_times(footer, layout, layout.calendar(), file.name) if layout.timed else []


def _statistics(metadata: Any, column: str) -> Iterator[tuple[int, int, Any]]:
    """Of each row group: its number, its rows, and the column's statistics, or None."""
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        columns = (group.column(i) for i in range(group.num_columns))
        yield number, group.num_rows, next((c.statistics for c in columns if c.path_in_schema == column), None)


def _judge_groups(metadata: Any, interval: Interval) -> Iterator[str]:
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


def judge_times(footer: Footer, layout: Layout, calendar: Calendar, name: str) -> list[str]:
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
