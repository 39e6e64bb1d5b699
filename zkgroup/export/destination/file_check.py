"""One published file: its footer, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from zkgroup.export.destination.coverage import ExpectedFile
from zkgroup.export.model.accounting import union
from zkgroup.export.model.plan_types import LostRange, Slice, StoredFile
from zkgroup.export.stores.store import Store
from zkgroup.text import counted

_LINE: Final = 400  # characters of an error
_SLICES: Final = msgspec.json.Decoder(tuple[Slice, ...])


def check_file(store: Store, file: StoredFile, known: ExpectedFile) -> list[str]:
    """What is wrong with a file, by its record; in words that begin with its name. Reads its footer."""
    try:
        with store.open(file.name) as source:
            problems = list(_compare(file, pq.read_metadata(source), known))
    except (OSError, ValueError, pa.ArrowException) as error:
        if isinstance(store.address, Path):
            text = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
        else:
            from zkgroup.export.stores.object_store import without_secrets

            text = without_secrets(store.address, error)
        problems = [f" cannot be read: {text.splitlines()[0][:_LINE].rstrip('.')}"]
    return [f"{file.name}{why}" for why in problems]


def _compare(file: StoredFile, footer: Any, known: ExpectedFile) -> Iterator[str]:
    origin = footer.metadata or {}
    topic = origin.get(b"zkgroup.topic", b"None").decode("utf-8", "replace")
    try:
        slices = _SLICES.decode(origin.get(b"zkgroup.ranges", b""))
    except (msgspec.DecodeError, UnicodeDecodeError):
        slices = ()
    if file.size != known.file.bytes:
        yield f" has {file.size} bytes, run {known.run} wrote {known.file.bytes}"
    if footer.num_rows != known.file.rows:
        yield f" has {footer.num_rows} rows, run {known.run} wrote {known.file.rows}"
    # Of some of its ranges another file may have become the keeper.
    ranges = {(one.partition, one.start, one.end) for one in slices}
    if topic != known.file.topic or not ranges.issuperset(one[:3] for one in known.file.ranges):
        what = ", ".join(f"{topic}-{partition} {start} to {end}" for partition, start, end in sorted(ranges)[:3])
        yield f" says that it is {what or 'nothing'}"


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
