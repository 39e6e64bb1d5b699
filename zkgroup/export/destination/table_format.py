"""The formats of a destination's tables: what readers take for its data, and how a run becomes a part of that.

The log of runs (``run_log``) accounts for every offset, whatever the format. A format commits the files of
a decided run, and says which runs its tables have: others may have rolled one back, or dropped it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import uniform
from time import sleep
from typing import Any, Final

from zkgroup.errors import RefusedError, Remedy, ZkgroupError
from zkgroup.export.destination.run_log import LOG, Destination
from zkgroup.export.model.address import Address
from zkgroup.export.model.layout import Layout, refuse_place
from zkgroup.export.model.plan_types import OffsetRange, StoredFile
from zkgroup.export.model.run_record import RunRecord, damaged
from zkgroup.schemas.field_schema import IncompatibleSchemaError
from zkgroup.text import counted

_LINE: Final = 400  # characters of an error
_PAUSE: Final = (0.05, 0.3)  # seconds; not the same each time: the other writer may have a rhythm
_IN_WAY: Final = "move it out of the destination, or restore the record that names it; see all such files"


class TableFormat:
    """The tables of one destination: plain Parquet, files that readers list. A run is a part of it as soon as its files
    have their names. Tables with commits of their own override all. ``schema``: makes pyarrow's schema of the files."""

    def __init__(self, destination: Destination) -> None:
        self._destination = destination

    def newest_run(self, group: str, topic: str) -> int | None:
        """The number of a group's newest run that the table of a topic has, 0 without one; None: that of the log."""
        return None

    def refuse_foreign(self, topic: str, *, is_recorded: bool) -> None:
        """Raise ``ZkgroupError`` where a topic's table is not that of exports. ``is_recorded``: a record of the log has
        the topic."""
        if not is_recorded and any(self._destination.published(topic)):
            raise damaged(f"the record of exports of topic {topic} in {self._destination}/{LOG}", "is missing")

    def refuse_altered(self, topics: Iterable[str], schema: Any) -> None:
        """Raise ``RefusedError`` where others have changed the table of a topic, so that it does not take files of this
        ``schema``."""

    def refuse_conflicts(
        self, ranges: Iterable[OffsetRange], tags: Mapping[str, str | None], known: Collection[str]
    ) -> None:
        """Raise ``RefusedError`` where a file that no record names has, by its name, offsets of these ``ranges``.
        ``tags``: the marks of the topics' logs; ``known``: files that records name.

        A file whose name does not list all of its ranges is in the way unless its run is in the log: what a run in the
        log has exported lies before what is to be exported now.
        """
        destination = self._destination
        remedy = Remedy(_IN_WAY, destination.verify_command)
        wanted: dict[str, dict[int, list[OffsetRange]]] = {}
        for piece in ranges:
            if piece.start < piece.end:
                wanted.setdefault(piece.partition.topic, {}).setdefault(piece.partition.partition, []).append(piece)
        logged: set[str] | None = None
        for topic, partitions in wanted.items():
            for name, parts in destination.published(topic, list(partitions)):
                if parts.tag != tags.get(topic) or name in known:
                    continue
                if parts.more:
                    if logged is None:
                        logged = {entry.run for group in destination.groups() for entry in destination.entries(group)}
                    if parts.run not in logged:
                        raise RefusedError(f"{destination}/{name} is of a run that the log does not have", remedy)
                    continue
                for piece in partitions.get(parts.partition, ()):
                    start, end = max(parts.start, piece.start), min(parts.end, piece.end)
                    if start < end:
                        raise RefusedError(
                            f"{destination}/{name} is in the way: no record names it, and by its name it has "
                            f"offsets {start} to {end - 1} of {piece.partition}",
                            remedy,
                        )

    def changed(self, group: str, bases: Mapping[str, int]) -> list[str]:
        """The topics whose tables do not have this run of the group as their newest any more: others have rolled them
        back, dropped or replaced them."""
        return []

    def uncommitted(self, record: RunRecord) -> list[str]:
        """The topics of a run whose tables do not have it."""
        return list(record.topics)

    def make(self, topics: Sequence[str], schema: Any, on_point: Callable[[str], None]) -> None:
        """Make the tables of these topics that are not there, without rows."""

    def commit(self, record: RunRecord, schema: Callable[[], Any], on_point: Callable[[str], None]) -> None:
        """Make the files of a run, which have their final names, parts of the tables, with the offsets where it ends;
        may be repeated. Raises ``RefusedError`` where a table was rolled back since the run was planned."""

    def files(self, topics: Sequence[str] | None = None) -> Iterator[StoredFile]:
        """The files that readers take for data: of these topics, or of all that were exported."""
        return self._destination.data_files(topics)


class CommittedTables(TableFormat, ABC):
    """Tables with commits of their own. Others may put rows into other files: so a file of a record that is not there
    is not lost. What was opened stays as it was then, until a commit."""

    #: Commits of others may come between opening a table and committing to it.
    tries: Final = 20

    def __init__(self, destination: Destination, layout: Layout) -> None:
        super().__init__(destination)
        self._layout = layout
        self._store = destination.store
        self._opened: dict[str, Any] = {}
        address = self._store.address
        refuse_place(layout.format, address)
        if isinstance(address, Path):
            self._root = str(address)
        else:
            self._root = "/".join(filter(None, (f"s3://{address.container}", address.prefix)))

    @abstractmethod
    def _find(self, topic: str) -> Any:
        """Open a table; None where there is none."""

    @abstractmethod
    def _files(self, table: Any, topic: str) -> Iterable[tuple[StoredFile, int | None]]:
        """The files of a table, each with its partition where that is a folder."""

    @abstractmethod
    def _read_file(self, table: Any, name: str) -> Any:
        """Open a file of a table for pyarrow to read."""

    @abstractmethod
    def _refuse_place(self, topic: str) -> None:
        """Raise ``RefusedError`` where the name of a topic's table is another's."""

    @abstractmethod
    def _name(self, topic: str) -> str:
        """A table's name, for people."""

    @abstractmethod
    def _run_of(self, table: Any, group: str, topic: str) -> int:
        """The newest run whose rows a table has."""

    @abstractmethod
    def _has(self, record: RunRecord, topic: str) -> bool:
        """Whether a table has a run, or had it before it was rolled back."""

    @abstractmethod
    def _difference(self, topic: str, table: Any, schema: Any) -> str:
        """Why a table does not take the files of an export; nothing where it does, if need be after it was widened."""

    @abstractmethod
    def _create(self, topic: str, schema: Any) -> None:
        """Make a table, unless another process has made it."""

    @abstractmethod
    def _add_files(self, table: Any, record: RunRecord, topic: str, schema: Any) -> None:
        """Commit to a table as it is, or not at all: the library's own retries are off. Adds columns that it lacks."""

    @abstractmethod
    def _is_conflict(self, error: Exception) -> bool:
        """Whether another commit came first."""

    def _failure(self, what: str, topic: str, error: Exception) -> ZkgroupError:
        text = " ".join(str(error).split())[:_LINE] or type(error).__name__
        where = self._name(topic)
        return ZkgroupError(
            f"cannot {what} the table {where}: {text}", "see to it, its store and its catalog, then run it again"
        )

    @contextmanager
    def _translated(self, what: str, topic: str) -> Iterator[None]:
        try:
            yield
        except ZkgroupError:
            raise
        except Exception as error:  # noqa: BLE001  # formats and catalogs raise errors of many libraries
            raise self._failure(what, topic, error) from None

    def _open(self, topic: str) -> Any:
        if topic not in self._opened:
            with self._translated("read", topic):
                self._opened[topic] = self._find(topic)
        return self._opened[topic]

    def _list(self, topic: str) -> list[tuple[StoredFile, int | None]]:
        table = self._open(topic)
        with self._translated("read", topic):
            return [] if table is None else list(self._files(table, topic))

    def files(self, topics: Sequence[str] | None = None) -> Iterator[StoredFile]:
        for topic in topics or ():
            yield from (file for file, _ in self._list(topic))

    def other_offsets(self, topic: str, known: Collection[str]) -> dict[int, Any]:
        """The offsets of all rows in those files of a topic's table that are not ``known``, by partition: columns of
        pyarrow's."""
        from zkgroup.export.destination.table_columns import add_offsets  # pyarrow takes 0.1 s

        found: dict[int, Any] = {}
        for file, number in self._list(topic):
            if file.name not in known:
                with self._translated("read", topic), self._read_file(self._open(topic), file.name) as source:
                    add_offsets(found, source, number)
        return found

    def refuse_foreign(self, topic: str, *, is_recorded: bool) -> None:
        self._refuse_place(topic)
        if not is_recorded and (files := self._list(topic)):
            raise RefusedError(
                f"{self._name(topic)} is a table with {counted(len(files), 'file')}, and no record of an export has it",
                "choose another --to or --catalog, or restore _zkgroup from a copy",
            )

    def newest_run(self, group: str, topic: str) -> int | None:
        table = self._open(topic)
        return 0 if table is None else self._run_of(table, group, topic)

    def refuse_altered(self, topics: Iterable[str], schema: Any) -> None:
        for topic in topics:
            if (table := self._open(topic)) is not None and (why := self._difference(topic, table, schema)):
                raise RefusedError(f"the table {self._name(topic)} {why}", "undo that change, or choose another --to")

    def refuse_conflicts(
        self, ranges: Iterable[OffsetRange], tags: Mapping[str, str | None], known: Collection[str]
    ) -> None:
        """Refuse nothing: only files of commits count, and names have the run."""

    def changed(self, group: str, bases: Mapping[str, int]) -> list[str]:
        self._opened.clear()
        return [topic for topic, base in bases.items() if self.newest_run(group, topic) != base]

    def uncommitted(self, record: RunRecord) -> list[str]:
        self._opened.clear()
        return [topic for topic in record.topics if not self._has(record, topic)]

    def make(self, topics: Sequence[str], schema: Any, on_point: Callable[[str], None]) -> None:
        for number, topic in enumerate(topics, 1):
            if self._open(topic) is None:
                self._create(topic, schema)
                self._opened.clear()
                on_point(f"table {number} of {len(topics)} made")

    def commit(self, record: RunRecord, schema: Callable[[], Any], on_point: Callable[[str], None]) -> None:
        for number, topic in enumerate(record.topics, 1):
            made = schema()
            if not record.bases.get(topic):
                self.make([topic], made, on_point)  # it was there before the run was decided, and may have been dropped
            self._commit(record, topic, made)
            on_point(f"table {number} of {len(record.topics)} committed")

    def _commit(self, record: RunRecord, topic: str, schema: Any) -> None:
        for left in reversed(range(self.tries)):
            if self._has(record, topic):
                return
            table = self._open(topic)
            if table is None or self._run_of(table, record.group, topic) != record.bases.get(topic, 0):
                raise TableChangedError(self._name(topic))
            try:
                self._add_files(table, record, topic, schema)
            except IncompatibleSchemaError as error:
                raise RefusedError(
                    f"the table {self._name(topic)} was altered by others: {error.message}",
                    "undo that change, or rename the column, then run the same command again",
                ) from None
            except Exception as error:  # noqa: BLE001  # whatever it is, the commit may be there
                self._opened.clear()
                if self._has(record, topic):
                    return
                if not self._is_conflict(error):
                    raise self._failure("write", topic, error) from None
                if not left:
                    raise ZkgroupError(
                        f"other writers commit to the table {self._name(topic)} all the time: {self.tries} tries to "
                        "commit came too late",
                        "pause them, then run the same command again",
                    ) from None
                self._opened.clear()
                sleep(uniform(*_PAUSE))
            else:
                self._opened.clear()
                return


def s3_options(address: Address, *names: str) -> dict[str, str]:
    """A library's options for a place in S3, by their ``names``: the region's, the keys', the endpoint's. What is not
    in the address it finds in its configuration, or in the environment."""
    if isinstance(address, Path):
        return {}
    found = (address.options.get("region"), address.key, address.secret, address.endpoint)
    return {name: value for name, value in zip(names, found, strict=True) if value}


class TableChangedError(RefusedError):
    """A table is not as the export has found it."""

    def __init__(self, table: str) -> None:
        super().__init__(
            f"the table {table} was rolled back, dropped or replaced while it was exported",
            "restore it to the version that it had, then run the same command again; if that cannot be, and the run is "
            "decided, --abandon gives it up",
        )


def open_format(destination: Destination, layout: Layout | None) -> TableFormat:
    """The format of a destination with this layout. Does no I/O. Raises ``UsageError`` where the place is not for it,
    ``MissingExtraError`` without its package."""
    if layout is None or not layout.has_tables:
        return TableFormat(destination)
    if layout.format == "delta":
        from zkgroup.export.destination.delta_tables import DeltaTables

        return DeltaTables(destination, layout)
    from zkgroup.export.destination.iceberg_tables import IcebergTables

    return IcebergTables(destination, layout)
