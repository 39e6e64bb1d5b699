"""A published file's footer, and, where several ranges are in it, the offsets of its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from zkgroup.errors import ZkgroupError
from zkgroup.export.model.plan_types import Slice
from zkgroup.export.stores.store import Store


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
            from zkgroup.export.stores.filesystems import (
                without_secrets,  # with what pyarrow has of stores: not for folders
            )

            text = without_secrets(store.address, error)
        reason = f"cannot be read: {text.splitlines()[0].rstrip('.')}"
        message = f"{store.uri}/{name} {reason}"
        remedy = f"let this user read {name}; if it is damaged, restore it from a copy, or move it away"
        raise UnreadableFileError(message, remedy, reason=reason) from None
