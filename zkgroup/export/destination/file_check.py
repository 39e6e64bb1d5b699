"""One published file: its footer, the offsets of its rows where several ranges are in it, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from zkgroup.errors import ZkgroupError
from zkgroup.export.destination.coverage import ExpectedFile
from zkgroup.export.model.accounting import Interval, union
from zkgroup.export.model.plan_types import LostRange, Slice, StoredFile
from zkgroup.export.stores.store import Store
from zkgroup.text import counted


class UnreadableFileError(ZkgroupError):
    """A file that is no Parquet, or not whole, or that its store does not let be read."""


@dataclass(frozen=True, slots=True)
class Footer:
    """``origin``: the entries ``zkgroup.NAME`` of its metadata, by NAME. ``metadata``: pyarrow's."""

    origin: Mapping[str, str]
    slices: tuple[Slice, ...]
    metadata: Any


def read_footer(store: Store, name: str) -> Footer:
    """Read a file's footer. Raises ``UnreadableFileError``."""
    with _opened(store, name) as file:
        metadata = pq.read_metadata(file)
    origin = {
        key.decode().removeprefix("zkgroup."): value.decode("utf-8", "replace")
        for key, value in (metadata.metadata or {}).items()
        if key.startswith(b"zkgroup.")
    }
    return Footer(origin, _slices(origin), metadata)


def _slices(origin: Mapping[str, str]) -> tuple[Slice, ...]:
    """Its ranges; none where they make no sense."""
    try:
        return tuple(Slice(*map(int, one)) for one in orjson.loads(origin.get("ranges", "")))
    except (ValueError, TypeError):
        return ()


def count_rows(store: Store, name: str, slices: tuple[Slice, ...], *, partitioned: bool) -> str | None:
    """Read the offsets of a file and compare them with its ranges: each row lies in one, in order, and none is
    missing. What is wrong, or None. ``partitioned``: all is of one partition, and there is no such column."""
    with _opened(store, name) as file:
        return _count(pq.ParquetFile(file), slices, partitioned)


def _count(file: Any, slices: tuple[Slice, ...], partitioned: bool) -> str | None:
    left = [one.rows for one in slices]
    place, before = 0, -1
    columns = ["offset"] if partitioned else ["partition", "offset"]
    for batch in file.iter_batches(columns=columns):
        offsets = batch.column(len(columns) - 1).to_pylist()
        numbers = [slices[0].partition] * len(offsets) if partitioned else batch.column(0).to_pylist()
        for number, offset in zip(numbers, offsets, strict=True):
            while place < len(slices) and not left[place]:
                place, before = place + 1, -1
            if place == len(slices):
                return "it has more rows than its ranges"
            one = slices[place]
            if number != one.partition or not one.start <= offset < one.end or offset <= before:
                return f"offset {offset} of partition {number} is not where its ranges put it"
            left[place] -= 1
            before = offset
    return "rows of its ranges are missing" if any(left) else None


@contextmanager
def _opened(store: Store, name: str) -> Iterator[Any]:
    """An open file for pyarrow to read from. Raises ``UnreadableFileError``."""
    try:
        with store.open(name) as file:
            yield file
    except (OSError, ValueError, pa.ArrowException) as error:
        if isinstance(store.address, Path):
            text = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
        else:
            from zkgroup.export.stores.object_store import without_secrets

            text = without_secrets(store.address, error)
        reason = f"cannot be read: {text.splitlines()[0].rstrip('.')}"
        message = f"{store.uri}/{name} {reason}"
        remedy = f"let this user read {name}; if it is damaged, restore it from a copy, or move it away"
        raise UnreadableFileError(message, remedy, reason=reason) from None


def check_file(store: Store, file: StoredFile, known: ExpectedFile) -> list[str]:
    """What is wrong with a file, by its record; in words that begin with its name. Reads its footer, and the offsets of
    its rows where several ranges are in it."""
    try:
        footer = read_footer(store, file.name)
        problems = list(_compare(file, footer, known))
        if len(footer.slices) > 1:
            wrong = count_rows(store, file.name, footer.slices, partitioned="/partition=" in file.name)
            problems += [f": {wrong}"] if wrong is not None else []
    except UnreadableFileError as error:
        problems = [f" {error.reason}"]
    return [f"{file.name}{why}" for why in problems]


def _compare(file: StoredFile, footer: Footer, known: ExpectedFile) -> Iterator[str]:
    rows = footer.metadata.num_rows
    if file.size != known.file.bytes:
        yield f" has {file.size} bytes, run {known.run} wrote {known.file.bytes}"
    if rows != known.file.rows:
        yield f" has {rows} rows, run {known.run} wrote {known.file.rows}"
    # Of some of its ranges another file may have become the keeper.
    ranges = {(one.partition, one.start, one.end) for one in footer.slices}
    topic = footer.origin.get("topic")
    if topic != known.file.topic or not ranges.issuperset(one[:3] for one in known.file.ranges):
        what = ", ".join(f"{topic}-{partition} {start} to {end}" for partition, start, end in sorted(ranges)[:3])
        yield f" says that it is {what or 'nothing'}"
    if len(footer.slices) == len(known.file.ranges) == 1:
        whole = known.file.ranges[0]
        yield from (f": {why}" for why in _check_row_groups(footer.metadata, (whole.start, whole.end)))


def _check_row_groups(metadata: Any, interval: Interval) -> Iterator[str]:
    """What is wrong with the row groups' offsets: they rise, lie in the interval, and leave room for every row."""
    position = interval[0]
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        columns = map(group.column, range(group.num_columns))
        found = next((one.statistics for one in columns if one.path_in_schema == "offset"), None)
        if found is None or not found.has_min_max:
            yield f"row group {number} does not tell its offsets"
            return
        low, high, rows = found.min, found.max, group.num_rows
        if low < position or high >= interval[1] or high - low + 1 < rows:
            yield f"row group {number} has {rows} rows, offsets {low} to {high}, behind {position}"
        position = high + 1


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
