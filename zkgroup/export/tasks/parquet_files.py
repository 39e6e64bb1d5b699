"""The Parquet files of a task, in bounded memory, however many are open at a time.

Messages go to files by their folder (``layout``); one file is open for each folder, and goes on from one
range to the next, so that many small ranges make few files. Row groups hold at most ``_GROUP_ROWS`` messages and
``_GROUP_BYTES``; unwritten messages take at most ``_PENDING_BYTES`` (or one batch), whatever the
number of folders: the file with the most of it writes a row group. An open file that waits for nothing costs its
footer.

Statistics are kept of partition, offset and timestamp alone, since those of keys and values would cost time and repeat
large values in the footer. The footer's metadata says where the file comes from and which ranges it holds.
"""

from __future__ import annotations

import resource
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Any, Final, TypeAlias, cast

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from zkgroup import __version__
from zkgroup.clients.kafka.arrow_columns import Columns
from zkgroup.clients.kafka.client import Message
from zkgroup.clients.kafka.message_contents import END_OF_TIME, Format, time_of
from zkgroup.clients.kafka.native_reader import NativeMessages
from zkgroup.clients.kafka.range_reader import bounds, memory_size
from zkgroup.export.model.layout import Layout, Period
from zkgroup.export.model.plan_types import ColumnStatistics, OffsetRange, RecordFile, Slice
from zkgroup.export.stores.store import Store, WorkFile, open_store
from zkgroup.export.tasks.task_data import FileOptions, LateCounter
from zkgroup.schemas.field_schema import FieldSchemas

_GROUP_ROWS: Final = 128 << 10
_GROUP_BYTES: Final = 16 << 20
_PENDING_BYTES: Final = 32 << 20
# A small file is not made smaller by row groups of some rows each.
_LEAST_GROUP_BYTES: Final = 64 << 10
# So many messages, or bytes of them, become columns at a time: many share the cost of a call of pyarrow's. Where
# many folders have messages that wait for more, fewer do.
_MANY: Final = 2000
_MANY_BYTES: Final = 2 << 20
_FEW: Final = 500
# Python's memory for a message, without its key, value and headers.
_MESSAGE_BYTES: Final = 400
# Files that have a row group already, and are open, each for some 50 KB: a month of hours. And folders that anything
# waits for.
_OPEN_FILES: Final = 768
_FOLDERS: Final = 4096
_WITH_STATISTICS: Final = ["partition", "offset", "timestamp"]
# Fewer messages of a period, on the mean of a batch, are not worth columns of their own.
_SHORT: Final = 32


_Messages: TypeAlias = list[Message] | NativeMessages
#: Topic, partition (−1 where a file may hold several), period.
_Folder: TypeAlias = tuple[str, int, Period]


def columns_of(layout: Layout, schemas: FieldSchemas = FieldSchemas()) -> Columns:
    """The columns of a destination's files, without those that are folders."""
    key, value = schemas.key or cast("Format", layout.key), schemas.value or cast("Format", layout.value)
    return Columns(key, value, has_partition="partition" not in layout.by)


@dataclass
class _Load:
    """The memory that all open files of a task share."""

    pending: int = 0  # bytes that wait to be written
    raw: int = 0  # of these, bytes of messages that are no columns yet
    writers: int = 0
    undecodable: int = 0  # messages of the range


class TaskFiles:
    """Writes the messages of ranges: for each ``begin``, ``add`` in order, ``end``; at last ``finish`` or
    ``abandon``."""

    def __init__(self, options: FileOptions) -> None:
        self._options = options
        self._layout = options.layout
        self._columns = columns_of(options.layout, options.schemas)
        self._store = open_store(options.destination)
        self._calendar = options.layout.calendar() if options.layout.is_timed else None
        self._horizon = None if self._calendar is None else self._calendar.period(options.planned)
        descriptors = (resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 128) // self._store.descriptors
        self._most_open = min(_OPEN_FILES, max(16, descriptors))
        self._load = _Load()
        self._files: dict[_Folder, _OpenFile] = {}  # the one that was used last, at the end
        self._finished: list[RecordFile] = []
        self._piece: OffsetRange | None = None
        self._reached = 0
        self._stretch = 0  # grows where a range does not go on with the one before, in its part of the plan
        self._tile = 0  # where the next slice begins, in folders without times
        self._rows = 0
        self._late = LateCounter(None)
        self._only: list[tuple[str, int, int]] = []
        self.elsewhere = 0  # messages of the range that were not to be written

    def begin(self, piece: OffsetRange) -> None:
        """The next messages are those of ``piece``."""
        before = self._piece
        goes_on = before is not None and before.partition == piece.partition and self._reached == piece.start
        if not goes_on or piece.start in self._options.cuts.get(piece.partition, ()):
            self._stretch += 1
        self._piece = piece
        self._tile = self._reached = piece.start
        self._rows = self._load.undecodable = 0
        self._late = LateCounter(self._horizon)
        wanted = self._options.only.get(piece.partition, ())
        self._only = [one for one in wanted if one[1] < piece.end and piece.start < one[2]]
        self.elsewhere = 0
        topic, partition = piece.partition
        for folder in list(self._files):
            if folder[0] != topic or folder[1] not in (-1, partition):
                self._close(folder)

    def add(self, messages: list[Message] | NativeMessages) -> None:
        """Take the next messages."""
        assert self._piece is not None
        if self._only:
            there = len(messages)
            messages = [message for message in messages if self._is_wanted(message)]
            self.elsewhere += there - len(messages)
            if not messages:
                return
        topic, partition = self._piece.partition
        number = partition if "partition" in self._layout.by or not self._options.shared else -1
        self._rows += len(messages)
        for period, some in self._dealt(messages):
            self._add((topic, number, period), some)

    def _is_wanted(self, message: Message) -> bool:
        assert self._piece is not None
        period = None if self._calendar is None else self._calendar.period(time_of(message))
        folder, offset = self._layout.folder(*self._piece.partition, period), cast("int", message.offset())
        return any(folder == one and start <= offset < end for one, start, end in self._only)

    def _dealt(self, messages: _Messages) -> Iterable[tuple[Period, _Messages]]:
        """The messages by their periods."""
        if self._calendar is None:
            return ((None, messages),)
        # Most often all are of one quarter of an hour.
        times = _times(messages)
        same, period = self._calendar.period_of_all(min(times), max(times))
        if same:
            self._late.add(period, len(messages))
            return ((period, messages),)
        periods = [self._calendar.period(None if time < 0 else time) for time in times]
        for period, some in groupby(periods):
            self._late.add(period, len(list(some)))
        counts = Counter(periods)  # in the order of their first messages
        ranks = {period: rank for rank, period in enumerate(counts)}
        order = sorted(range(len(periods)), key=lambda place: ranks[periods[place]])
        if isinstance(messages, NativeMessages):
            messages.reorder(order)
        else:
            messages = [messages[place] for place in order]
        if len(counts) * _SHORT > len(messages):
            messages = list(messages)
        ends = zip(counts, accumulate(counts.values()), strict=True)
        return [(period, messages[end - counts[period] : end]) for period, end in ends]

    def _add(self, folder: _Folder, messages: _Messages) -> None:
        assert self._piece is not None
        known = self._files.get(folder)
        if known is not None and known.is_full(self._stretch):
            self._close(folder)
        file = self._files.pop(folder, None) or _OpenFile(self._options, self._columns, self._store, self._load)
        self._files[folder] = file
        first, last = bounds(messages)
        start = first if self._layout.is_timed else self._tile
        file.add(messages, Slice(self._piece.partition.partition, start, last + 1, len(messages)), self._stretch)
        self._tile = last + 1
        self._relieve()

    def _relieve(self) -> None:
        """Keep unwritten messages and open files within bounds."""
        while self._load.pending > _PENDING_BYTES:
            max(self._files.values(), key=lambda file: file.pending).flush()
        while len(self._files) > _FOLDERS:
            self._close(next(iter(self._files)))
        while self._load.writers > self._most_open:
            self._close(next(folder for folder, file in self._files.items() if file.is_open))

    def end(self, reached: int) -> tuple[int, int, int, dict[int, int]]:
        """The range is read up to ``reached``. Its messages: how many were written, how many of them are undecodable;
        ``late`` and ``fresh``: see ``LateCounter``."""
        self._reached = reached
        for file in self._files.values():
            file.convert()
            if not self._layout.is_timed:
                file.reach(reached, self._stretch)
        late = self._late
        return self._rows, self._load.undecodable, late.late, dict(late.fresh)

    def finish(self) -> None:
        """Close all files."""
        for folder in list(self._files):
            self._close(folder)

    def pop_finished(self) -> list[RecordFile]:
        """The files that were closed since this was asked."""
        taken, self._finished = self._finished, []
        return taken

    def abandon(self) -> None:
        """Remove what is not finished; the rest goes with the run's folder."""
        for file in self._files.values():
            file.abandon()
        self._files.clear()

    def _close(self, folder: _Folder) -> None:
        file = self._files[folder]
        topic, partition, period = folder
        self._finished.append(file.close(topic, self._layout.folder(topic, partition, period)))
        del self._files[folder]


def _times(messages: _Messages) -> Sequence[int]:
    """Milliseconds since 1970; -1 where a message has no time that is in a calendar."""
    if isinstance(messages, NativeMessages):
        return messages.times(END_OF_TIME)
    return [ms if kind > 0 and 0 <= ms < END_OF_TIME else -1 for kind, ms in map(Message.timestamp, messages)]


def column_statistics(metadata: Any) -> tuple[ColumnStatistics, ...]:
    """What a closed file's footer says of the columns that have statistics, of all row groups together."""
    found: dict[str, ColumnStatistics] = {}
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            name, one = column.path_in_schema, column.statistics
            if name in _WITH_STATISTICS and one is not None:
                low, high, nulls = found.get(name, (name, None, None, 0))[1:]
                if one.has_min_max:
                    low = one.min_raw if low is None else min(low, one.min_raw)
                    high = one.max_raw if high is None else max(high, one.max_raw)
                found[name] = ColumnStatistics(name, low, high, nulls + one.null_count)
    return tuple(found.values())


class _OpenFile:
    """One file, with the messages that wait for it."""

    def __init__(self, options: FileOptions, columns: Columns, store: Store, load: _Load) -> None:
        self._options = options
        self._columns = columns
        self._store = store
        self._load = load
        self._group_bytes = min(_GROUP_BYTES, max(_LEAST_GROUP_BYTES, options.target_bytes))
        self._slices: list[Slice] = []
        self._stretch = 0  # of the last slice
        self._raw: list[Message] = []  # messages that are no columns yet
        self._raw_bytes = 0
        self._batches: list[Any] = []
        self._rows = self._bytes = 0  # in self._batches
        self._written = 0  # rows
        self._work: WorkFile | None = None
        self._parquet: Any = None

    @property
    def pending(self) -> int:
        return self._bytes + self._raw_bytes

    @property
    def is_open(self) -> bool:
        return self._work is not None

    def is_full(self, stretch: int) -> bool:
        """Whether it has reached its size; a row group that is full is written first, to know, and before another
        ``stretch`` joins one that may be large enough: how much is pending then depends on how messages came."""
        written = int(self._work.sink.tell()) if self._work is not None else 0
        joined = stretch != self._stretch and written + self.pending >= self._options.target_bytes
        if self.pending >= self._group_bytes or joined:
            self.flush()
        return self._work is not None and int(self._work.sink.tell()) >= self._options.target_bytes

    def add(self, messages: _Messages, piece: Slice, stretch: int) -> None:
        """Take messages, which are ``piece``. Where that goes on with the last one, it becomes a part of it."""
        last = self._slices[-1] if self._slices else None
        if last is not None and stretch == self._stretch:
            self._slices[-1] = last._replace(end=piece.end, rows=last.rows + piece.rows)
        else:
            self.convert()  # columns are of one partition
            self._slices.append(piece)
        self._stretch = stretch
        if isinstance(messages, NativeMessages):
            self.convert()
            self._add_rows(messages, messages.size)
            return
        size = memory_size(messages) + len(messages) * _MESSAGE_BYTES
        self._raw += messages
        self._raw_bytes += size
        self._load.raw += size
        self._load.pending += size
        if (
            len(self._raw) >= _MANY
            or self._raw_bytes >= _MANY_BYTES
            or (len(self._raw) >= _FEW and self._load.raw >= _MANY_BYTES)
        ):
            self.convert()

    def reach(self, end: int, stretch: int) -> None:
        """Extend the last slice to ``end``, if it is of this stretch."""
        if self._slices and stretch == self._stretch:
            self._slices[-1] = self._slices[-1]._replace(end=end)

    def convert(self) -> None:
        """Make columns of the messages that wait for more."""
        if self._raw:
            messages, self._raw = self._raw, []
            self._load.raw -= self._raw_bytes
            self._load.pending -= self._raw_bytes
            likely = self._raw_bytes - len(messages) * _MESSAGE_BYTES
            self._raw_bytes = 0
            self._add_rows(messages, likely)

    def _add_rows(self, messages: _Messages, likely: int) -> None:
        # A full group is written before the next is made, or large messages would be in memory twice.
        if self._rows + len(messages) > _GROUP_ROWS or self._bytes + likely > self._group_bytes:
            self._write()
        partition = self._slices[-1].partition
        batch, undecodable = self._columns.batch(messages, partition)
        self._load.undecodable += undecodable
        if self._bytes + batch.nbytes > self._group_bytes:
            self._write()
        self._batches.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        self._load.pending += batch.nbytes

    def flush(self) -> None:
        self.convert()
        self._write()

    def _write(self) -> None:
        if not self._batches:
            return
        if self._work is None:
            self._open()
        table = pa.Table.from_batches(self._batches, self._columns.schema)
        self._parquet.write_table(table, row_group_size=_GROUP_ROWS * 2)
        self._written += self._rows
        self._batches = []
        self._load.pending -= self._bytes
        self._rows = self._bytes = 0

    def _open(self) -> None:
        codec, level = self._options.compression
        # Not *.parquet: a reader with a pattern must not see unpublished files.
        self._work = self._store.create(f"{self._options.folder}/{uuid.uuid4()}.tmp")
        self._load.writers += 1
        # The writer closes no sink that it was given, and does not flush the file to the disk.
        self._parquet = pq.ParquetWriter(
            self._work.sink,
            self._columns.schema,
            compression=codec,
            compression_level=level,
            use_dictionary=["timestamp_type"],
            write_statistics=_WITH_STATISTICS,
            # Without it readers see plain strings where a dictionary was used to write them.
            store_schema=False,
        )

    def close(self, topic: str, folder: str) -> RecordFile:
        """Write the rest, and the footer. The file then survives a power cut."""
        self.flush()
        assert self._work is not None
        options, layout, slices = self._options, self._options.layout, self._slices
        work = self._work.name.rpartition("/")[2]
        origin = {
            "run": f"{options.group}@{options.run}",
            "group": options.group,
            "version": __version__,
            "topic": topic,
            "ranges": orjson.dumps([list(one) for one in slices]).decode(),
            "file": work.removesuffix(".tmp"),
        }
        if len(slices) == 1:
            origin |= {name: str(getattr(slices[0], name)) for name in ("partition", "start", "end")}
        if layout.is_timed:
            origin["zone"] = layout.zone
        self._parquet.add_key_value_metadata({f"zkgroup.{name}": value for name, value in origin.items()})
        self._parquet.close()
        statistics = column_statistics(self._parquet.writer.metadata) if layout.has_tables else ()
        size = self._work.finish()
        self._forget()
        name = f"{folder}/{layout.name(slices, options.run, options.tags.get(topic))}"
        return RecordFile(work, name, topic, self._written, size, tuple(slices), statistics)

    def abandon(self) -> None:
        """Remove it."""
        if self._work is not None:
            if self._parquet is not None:  # its first bytes may have met a full disk
                self._parquet.is_open = False  # else its end would write to the file, which is closed, and complain
            self._work.abandon()
            self._forget()
        self._load.raw -= self._raw_bytes
        self._load.pending -= self.pending

    def _forget(self) -> None:
        self._work = self._parquet = None
        self._load.writers -= 1
