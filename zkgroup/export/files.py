"""Parquet files of one range of offsets, in bounded memory.

A file is written under a name that nothing else uses, flushed to the disk, and only then told of. Row groups hold at
most ``_GROUP_ROWS`` messages and ``_GROUP_BYTES`` (or what came in one batch); they carry statistics on offset and
timestamp alone, since those of keys and values would cost time and repeat large values in the footer. The footer's
metadata says where the file comes from.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from zkgroup.export.columns import SCHEMA, record_batch
from zkgroup.export.words import Compression, OffsetRange, WrittenFile
from zkgroup.servers.kafka import Message

_GROUP_ROWS = 128 << 10
_GROUP_BYTES = 16 << 20
# zstd's lowest level is the fastest and loses little; gzip's highest, pyarrow's default, takes ages.
_LEVELS: Mapping[str, int] = {"zstd": 1, "gzip": 6}


@dataclass(frozen=True, slots=True)
class FileOptions:
    """How files are written. ``target_bytes``: a file that has grown to this size is followed by another."""

    folder: str
    compression: Compression
    target_bytes: int
    metadata: Mapping[str, str]


class RangeFiles:
    """Writes the messages of a range, in order; no file at all where there are none."""

    def __init__(self, piece: OffsetRange, options: FileOptions) -> None:
        self._piece = piece
        self._options = options
        self._files: list[WrittenFile] = []
        self._start = piece.start  # of the open file, or of the next one
        self._next = piece.start  # behind the last message that was added
        self._batches: list[Any] = []
        self._rows = self._bytes = 0  # in self._batches
        self._writer: _Writer | None = None

    def add(self, messages: list[Message]) -> None:
        """Take the next messages."""
        if self._writer is not None and self._writer.size() >= self._options.target_bytes:
            self._flush()
            self._close(self._next)
        # What is full is written before more is made, or large messages would be held twice. One value tells the size.
        likely = len(messages) * len(cast("Sized", messages[-1]))
        if self._rows + len(messages) > _GROUP_ROWS or self._bytes + likely > _GROUP_BYTES:
            self._flush()
        batch = record_batch(messages)
        if self._bytes + batch.nbytes > _GROUP_BYTES:
            self._flush()
        self._batches.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        self._next = batch.column(0)[-1].as_py() + 1

    def finish(self, end: int | None = None) -> list[WrittenFile]:
        """Close the last file and tell of all: together they stand for the range, up to ``end`` if that is given."""
        self._flush()
        self._close(self._piece.end if end is None else end)
        return self._files

    def abandon(self) -> None:
        """Remove what was written so far."""
        if self._writer is not None:
            self._writer.abandon()
            self._writer = None
        for file in self._files:
            Path(file.path).unlink(missing_ok=True)
        self._files.clear()

    def _flush(self) -> None:
        if not self._batches:
            return
        if self._writer is None:
            self._writer = _Writer(self._options)
        self._writer.write(pa.Table.from_batches(self._batches, SCHEMA))
        self._batches = []
        self._rows = self._bytes = 0

    def _close(self, end: int) -> None:
        if self._writer is None:
            return
        origin = {
            "topic": self._piece.partition.topic,
            "partition": self._piece.partition.partition,
            "start": self._start,
            "end": end,
        }
        path, rows, size = self._writer.close(origin)
        self._files.append(WrittenFile(path, self._start, end, rows, size))
        self._writer = None
        self._start = end


class _Writer:
    """One open file."""

    def __init__(self, options: FileOptions) -> None:
        # Not *.parquet: whoever reads the folder with a pattern must not see what is not published.
        self._path = str(Path(options.folder) / f"{uuid.uuid4()}.tmp")
        self._metadata = options.metadata
        self._rows = 0
        # The writer closes no sink that it was given, and does not flush the file to the disk.
        self._sink = pa.OSFile(self._path, "wb")
        self._parquet = pq.ParquetWriter(
            self._sink,
            SCHEMA,
            compression=options.compression,
            compression_level=_LEVELS.get(options.compression),
            use_dictionary=["timestamp_type"],
            write_statistics=["offset", "timestamp"],
            # Without it readers see plain strings where a dictionary was used to write them.
            store_schema=False,
        )

    def size(self) -> int:
        return int(self._sink.tell())

    def write(self, table: Any) -> None:
        self._rows += table.num_rows
        self._parquet.write_table(table, row_group_size=_GROUP_ROWS * 2)

    def close(self, origin: Mapping[str, object]) -> tuple[str, int, int]:
        """Path, rows and size of the file, which then survives a power cut."""
        self._parquet.add_key_value_metadata(
            dict(self._metadata) | {f"zkgroup.{name}": str(value) for name, value in origin.items()}
        )
        self._parquet.close()
        self._sink.close()
        descriptor = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            size = os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
        return self._path, self._rows, size

    def abandon(self) -> None:
        self._sink.close()
        Path(self._path).unlink(missing_ok=True)
