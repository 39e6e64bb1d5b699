"""A destination, its log, and the owners of its topics: all that ``_zkgroup`` has, but for columns.

Files are ``OUT/topic=T/…/START-END.parquet``: ``layout`` describes folders and names. No file is
ever replaced. Folders are Hive's, and their values are not repeated inside the files: Spark, pyarrow, pandas, DuckDB,
Hive and Trino all make columns of them and read only the folders asked for. (A column that is both is refused by
pyarrow.) Readers guess a folder's type: ``topic`` is a string, *unless every topic of the destination looks like a
number*.

What zkgroup keeps is ``OUT/_zkgroup/``, which no reader takes for data:

- ``log/GROUP/RUN.HASH.json``: the record of a run, never changed and never removed. RUN is ``NUMBER-UUID``; numbers
  count from 1 without a gap. HASH is the beginning of the record's SHA-256, so that a record that was changed, or is
  missing, is seen. The newest record says what all records of the group account for: an export reads no other.
- ``topics/TOPIC/GROUP@CLUSTER``: a group of a cluster owns a topic. It is written just before the first decision of a
  run with that topic: written first and then listed, so that of two groups at once at most one goes on. A group that
  another one has taken the topic over from is ``GROUP@CLUSTER.former``: its records still say what was exported.
- ``layout/HASH.json``: the layout, which all files share, since readers take a destination for one table.
- ``columns/HASH.json``: see ``recorded_columns``.
- ``catalog.db``: the catalog of Iceberg tables, where no other is named.
- ``runs/GROUP/RUN/``: a run under way: ``*.tmp``, and ``record.json`` once all is written.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

import msgspec
from msgspec.json import Decoder

from zkgroup.errors import RefusedError, ZkgroupError
from zkgroup.export.model.address import name_address
from zkgroup.export.model.layout import FileName, Layout, read_name
from zkgroup.export.model.plan_types import StoredFile
from zkgroup.export.model.run_record import LAYOUTS, RunRecord, damaged, decode_document, decode_record, digest
from zkgroup.export.stores.store import Store, map_parallel
from zkgroup.text import Command, counted, listed

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

    @property
    def verify_command(self) -> Command:
        """``zkgroup export`` that checks it."""
        return "export", "--to", name_address(self.store.address), "--verify"

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

    def record(self, group: str, entry: LogEntry) -> RunRecord:
        """Read a record. Raises ``DamagedDocumentError``."""
        name = f"{LOG}/{group}/{entry.name}"
        data = self.store.read(name)
        if data is None or not digest(data).startswith(entry.hash):
            raise damaged(f"{self}/{name}", "was changed")
        return decode_record(f"{self}/{name}", data)

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

    def is_logged(self, group: str, run: str) -> bool:
        """Whether the log has this run."""
        return any(one.run == run for one in self.entries(group, is_checked=False))

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

    def logged_record(self, group: str, run: str, record: str) -> bytes | None:
        """The record in the log, by its digest."""
        return self.store.read(f"{LOG}/{group}/{LogEntry(run, number_of(run), record[:HASH]).name}")

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


_FORMER: Final = ".former"
_CONTENT: Final = b'{"format": 1}\n'


class Owner(NamedTuple):
    """A group of a cluster."""

    group: str
    cluster: str
    is_former: bool = False

    @property
    def name(self) -> str:
        """Of its file."""
        return f"{self.group}@{self.cluster}{_FORMER if self.is_former else ''}"


class OwnedError(RefusedError):
    """A topic belongs to another group."""

    def __init__(self, destination: Destination, topics: Sequence[str], owner: Owner) -> None:
        what = f"topic {topics[0]}" if len(topics) == 1 else f"{counted(len(topics), 'topic')}, {topics[0]} among them,"
        super().__init__(
            f"{what} in {destination} belong{'s' * (len(topics) == 1)} to group {owner.group} of cluster "
            f"{owner.cluster}",
            f"export to another --to; or --take-over {owner.group} goes on where its exports end, instead of it",
        )


def read_owners(destination: Destination, topics: Iterable[str]) -> dict[str, list[Owner]]:
    """The owner, and the former owners, of each of these topics."""
    wanted = list(topics)
    if not destination.store.names(TOPICS):
        return {topic: [] for topic in wanted}
    return dict(zip(wanted, map_parallel(partial(_owners, destination), wanted), strict=True))


def _owners(destination: Destination, topic: str) -> list[Owner]:
    found: list[Owner] = []
    for name in destination.store.names(f"{TOPICS}/{topic}"):
        group, at, cluster = name.rpartition("@")
        if at:
            found.append(Owner(group, cluster.removesuffix(_FORMER), cluster.endswith(_FORMER)))
    return found


def refuse_owned(
    destination: Destination,
    owners: Mapping[str, Sequence[Owner]],
    group: str,
    clusters: Collection[str],
    take_over: str | None = None,
) -> list[str]:
    """Raise ``OwnedError`` where another group owns a topic, but for the one to ``take_over`` from. Those topics."""
    others: dict[Owner, list[str]] = {}
    for topic, found in sorted(owners.items()):
        for owner in found:
            if not owner.is_former and not _is_own(owner, group, clusters):
                others.setdefault(owner, []).append(topic)
    for owner, topics in others.items():
        if owner.group != take_over:
            raise OwnedError(destination, topics, owner)
    return sorted({topic for topics in others.values() for topic in topics})


def claim_topics(destination: Destination, topics: Iterable[str], group: str, clusters: Sequence[str]) -> None:
    """Write down that a group owns these topics; may be repeated. Raises ``OwnedError`` where another one does."""
    mine = Owner(group, clusters[0])

    def claim(topic: str) -> None:
        found = [owner for owner in _owners(destination, topic) if not owner.is_former]
        has_own = any(_is_own(owner, group, clusters) for owner in found)
        name = f"{TOPICS}/{topic}/{mine.name}"
        if not has_own:
            destination.store.write(name, _CONTENT)
            found = [owner for owner in _owners(destination, topic) if not owner.is_former]
        if others := [owner for owner in found if not _is_own(owner, group, clusters)]:
            if not has_own:
                destination.store.remove_file(name)
            raise OwnedError(destination, [topic], others[0])

    for _ in map_parallel(claim, sorted(topics)):
        pass


def replace_owner(destination: Destination, topic: str, owner: Owner, group: str, cluster: str) -> None:
    """Have a ``group`` own a topic instead of ``owner``, which becomes a former one; may be repeated."""
    folder = f"{TOPICS}/{topic}"
    destination.store.write(f"{folder}/{owner._replace(is_former=True).name}", _CONTENT)
    destination.store.write(f"{folder}/{Owner(group, cluster).name}", _CONTENT)
    destination.store.remove_file(f"{folder}/{owner.name}")


def _is_own(owner: Owner, group: str, clusters: Collection[str]) -> bool:
    return owner.group == group and owner.cluster in clusters
