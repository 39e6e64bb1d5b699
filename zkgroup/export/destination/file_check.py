"""One published file: its footer, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from zkgroup.errors import ZkgroupError
from zkgroup.export.destination.coverage import ExpectedFile
from zkgroup.export.model.accounting import union
from zkgroup.export.model.plan_types import LostRange, Slice, StoredFile
from zkgroup.export.stores.store import Store
from zkgroup.text import counted

_SLICES: Final = msgspec.json.Decoder(tuple[Slice, ...])


class UnreadableFileError(ZkgroupError):
    """A file that is no Parquet, or not whole, or that its store does not let be read."""


@dataclass(frozen=True, slots=True)
class Footer:
    """``slices``: none where they make no sense. ``metadata``: pyarrow's."""

    topic: str
    slices: tuple[Slice, ...]
    metadata: Any


def read_footer(store: Store, name: str) -> Footer:
    """Read a file's footer. Raises ``UnreadableFileError``."""
    metadata = _read_metadata(store, name)
    origin = metadata.metadata or {}
    try:
        slices = _SLICES.decode(origin.get(b"zkgroup.ranges", b""))
    except (msgspec.DecodeError, UnicodeDecodeError):
        slices = ()
    return Footer(origin.get(b"zkgroup.topic", b"None").decode("utf-8", "replace"), slices, metadata)


def _read_metadata(store: Store, name: str) -> Any:
    try:
        with store.open(name) as file:
            return pq.read_metadata(file)
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
    """What is wrong with a file, by its record; in words that begin with its name. Reads its footer."""
    try:
        problems = list(_compare(file, read_footer(store, file.name), known))
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
    if footer.topic != known.file.topic or not ranges.issuperset(one[:3] for one in known.file.ranges):
        what = ", ".join(f"{footer.topic}-{partition} {start} to {end}" for partition, start, end in sorted(ranges)[:3])
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
