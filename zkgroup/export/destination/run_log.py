"""A destination and its log: one record for each decided run of a group, never changed and never removed.

Files are ``OUT/topic=T/…/START-END.parquet``: ``layout`` describes folders and names. No file is
ever replaced. Folders are Hive's, and their values are not repeated inside the files: Spark, pyarrow, pandas, DuckDB,
Hive and Trino all make columns of them and read only the folders asked for. (A column that is both is refused by
pyarrow.) Readers guess a folder's type: ``topic`` is a string, *unless every topic of the destination looks like a
number*.

What zkgroup keeps is ``OUT/_zkgroup/``, which no reader takes for data:

- ``log/GROUP/RUN.HASH.json``: the record of a run. RUN is ``NUMBER-UUID``; numbers count from 1 without a gap. HASH is
  the beginning of the record's SHA-256, so that a record that was changed, or is missing, is seen. The newest record
  says what all records of the group account for: an export reads no other.
- ``topics/TOPIC/GROUP@CLUSTER``: see ``topic_owners``.
- ``layout/HASH.json``: the layout, which all files share, since readers take a destination for one table.
- ``columns/HASH.json``: see ``recorded_columns``.
- ``catalog.db``: the catalog of Iceberg tables, where no other is named.
- ``runs/GROUP/RUN/``: a run under way: ``*.tmp``, and ``record.json`` once all is written.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

import msgspec
from msgspec.json import Decoder

from zkgroup.errors import RefusedError, ZkgroupError
from zkgroup.export.model.layout import FileName, Layout, read_name
from zkgroup.export.model.plan_types import StoredFile
from zkgroup.export.model.run_record import LAYOUTS, RunRecord, damaged, decode_document, decode_record, digest
from zkgroup.export.stores.store import Store, map_parallel
from zkgroup.text import listed

ROOT: Final = "_zkgroup"
LOG, RUNS, TOPICS, LAYOUT, COLUMNS = (f"{ROOT}/{name}" for name in ("log", "runs", "topics", "layout", "columns"))
RECORD: Final = "record.json"
#: Iceberg's, where no other is named.
CATALOG: Final = f"{ROOT}/catalog.db"
HASH: Final = 16
T = TypeVar("T")
_NAME: Final = re.compile(rf"(([0-9]{{8,}})-[0-9a-f]{{8}})\.([0-9a-f]{{{HASH}}})\.json", re.ASCII)


class LogEntry(NamedTuple):
    """A record's name: the run, its number, the beginning of the record's hash."""

    run: str
    number: int
    hash: str

    @property
    def name(self) -> str:
        """In its group's folder of the log."""
        return f"{self.run}.{self.hash}.json"


class Destination:
    """A destination, through its store."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def __str__(self) -> str:
        return self.store.uri

    # --- the log ----------------------------------------------------------------------------------------------------

    def groups(self) -> list[str]:
        """The groups that have records."""
        return self.store.names(LOG)

    def entries(self, group: str, *, is_checked: bool = True) -> list[LogEntry]:
        """A group's records, the oldest first. Raises ``DamagedDocumentError`` where one is missing, or two have one
        number, if that ``is_checked``."""
        found: list[LogEntry] = []
        for name in self.store.names(f"{LOG}/{group}"):
            if (match := _NAME.fullmatch(name)) is not None:
                found.append(LogEntry(match[1], int(match[2]), match[3]))
        found.sort(key=lambda entry: (entry.number, entry.run))
        for number, entry in enumerate(found if is_checked else (), 1):
            if entry.number != number:
                what = "is missing" if entry.number > number else f"comes behind a second one of number {entry.number}"
                raise damaged(f"the record of run {number} in {self}/{LOG}/{group}", what)
        return found

    def record_data(self, group: str, entry: LogEntry) -> bytes:
        """A record's bytes. Raises ``DamagedDocumentError``."""
        name = f"{LOG}/{group}/{entry.name}"
        data = self.store.read(name)
        if data is None:
            raise damaged(f"{self}/{name}", "is missing")
        if not digest(data).startswith(entry.hash):
            raise damaged(f"{self}/{name}", "was changed")
        return data

    def record(self, group: str, entry: LogEntry) -> RunRecord:
        """Read a record. Raises ``DamagedDocumentError``."""
        return decode_record(f"{self}/{LOG}/{group}/{entry.name}", self.record_data(group, entry))

    def newest(self, group: str) -> RunRecord | None:
        """A group's newest record."""
        entries = self.entries(group)
        return self.record(group, entries[-1]) if entries else None

    def newest_run(self, group: str) -> str | None:
        """The name of a group's newest run."""
        entries = self.entries(group)
        return entries[-1].run if entries else None

    def records(self, group: str) -> Iterator[RunRecord]:
        """All records of a group, the oldest first; read many at a time."""
        yield from map_parallel(partial(self.record, group), self.entries(group))

    def append(self, group: str, run: str, data: bytes) -> None:
        """Put a record into the log; may be repeated."""
        entry = LogEntry(run, number_of(run), digest(data)[:HASH])
        self.store.write(f"{LOG}/{group}/{entry.name}", data)

    def is_logged(self, group: str, run: str, data: bytes | None = None) -> bool:
        """Whether the log has this run; with ``data`` this record of it."""
        wanted = None if data is None else digest(data)[:HASH]
        return any(one.run == run and wanted in (None, one.hash) for one in self.entries(group, is_checked=False))

    def new_run(self, group: str) -> str:
        """A name for the group's next run."""
        entries = self.entries(group)
        return f"{(entries[-1].number if entries else 0) + 1:08d}-{uuid.uuid4().hex[:8]}"

    # --- runs under way ---------------------------------------------------------------------------------------------

    @staticmethod
    def work(group: str, run: str) -> str:
        """The folder of a run under way."""
        return f"{RUNS}/{group}/{run}"

    def leftover_runs(self, group: str) -> list[str]:
        """Runs of a group that have a folder: one under way, and those that were killed."""
        return self.store.names(f"{RUNS}/{group}")

    def written_record(self, group: str, run: str) -> bytes | None:
        """The record that a run has written before its decision."""
        return self.store.read(f"{self.work(group, run)}/{RECORD}")

    # --- layout -----------------------------------------------------------------------------------------------------

    def layout(self) -> Layout | None:
        """The layout of all files; None without exports. Raises ``RefusedError`` where there are two."""
        found = self.documents(LAYOUT, LAYOUTS)
        if len(found) > 1:
            raise RefusedError(
                f"{self} has two layouts: {listed(sorted(one.options() for one in found.values()), '; ')}",
                f"remove the one that no file has from {self}/{LAYOUT}, then run it again",
            )
        return next(iter(found.values()), None)

    def claim_layout(self, layout: Layout) -> None:
        """Write down a destination's layout. Raises ``RefusedError`` where another export has begun with another one
        meanwhile: written first and then listed, of two at once at most one goes on."""
        data = msgspec.json.encode(layout, order="sorted")
        name = f"{digest(data)[:HASH]}.json"
        there = self.documents(LAYOUT, LAYOUTS)
        if not there:
            self.store.write(f"{LAYOUT}/{name}", data)
            there = self.documents(LAYOUT, LAYOUTS)
        if list(there.values()) != [layout]:
            self.store.remove_file(f"{LAYOUT}/{name}")
            raise RefusedError(f"another export has begun in {self} with another layout", "run it again")

    def documents(self, folder: str, decoder: Decoder[T]) -> dict[str, T]:
        """The documents of a folder, whose names begin with their hashes. Raises ``DamagedDocumentError``."""
        found: dict[str, T] = {}
        for name in self.store.names(folder):
            data = self.store.read(f"{folder}/{name}")
            whole = f"{self}/{folder}/{name}"
            if data is None or not name.startswith(digest(data)[:HASH]):
                raise damaged(whole, "was changed")
            found[name] = decode_document(whole, data, decoder)
        return found

    # --- files ------------------------------------------------------------------------------------------------------

    def published(self, topic: str, partitions: Sequence[int] | None = None) -> Iterator[tuple[str, FileName]]:
        """The files of a topic that have names of exports, with the parts of these; with ``partitions`` at least
        theirs, if they have folders of their own."""
        folders = [f"topic={topic}"]
        if partitions is not None and len(partitions) <= _FEW:
            own = {f"partition={number}" for number in partitions}
            names = set(self.store.names(folders[0]))
            if any(name.startswith("partition=") for name in names):
                folders = [f"topic={topic}/{name}" for name in sorted(own & names)]
        for folder in folders:
            for file in self.store.walk(folder):
                if parts := read_name(file.name):
                    yield file.name, parts

    def data_files(self, topics: Sequence[str] | None = None) -> Iterator[StoredFile]:
        """All files but zkgroup's own: of these topics, or of all. What is no topic's, as ``lost+found``, may be closed
        to this user."""
        names = self.store.names("") if topics is None else [f"topic={topic}" for topic in topics]
        for name in names:
            if name == ROOT:
                continue
            try:
                if (size := self.store.size(name)) is not None:
                    yield StoredFile(name, size)
                else:
                    yield from self.store.walk(name)
            except ZkgroupError:
                if name.startswith("topic="):
                    raise


#: Folders of so many partitions are listed one by one.
_FEW: Final = 16


def number_of(run: str) -> int:
    """The number that a run's name begins with."""
    return int(run.partition("-")[0])


def refuse_other_cluster(destination: Destination, record: RunRecord | None, clusters: Sequence[str]) -> None:
    """Raise ``RefusedError`` where a group's record is of another cluster: its offsets are of other logs."""
    if record is not None and record.cluster not in clusters:
        raise RefusedError(
            f"{destination} has exports of a group {record.group} of another cluster ({record.cluster}; this one is "
            f"{clusters[0]})",
            "choose another --to, or another group",
        )
