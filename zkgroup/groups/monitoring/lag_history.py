"""The lag of groups over time, in a local SQLite file. Each check adds a snapshot."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, Self

from zkgroup.errors import UsageError, ZkgroupError
from zkgroup.groups.group_model import GroupSnapshot, Store
from zkgroup.groups.monitoring.burrow_status import Sample
from zkgroup.protocol.names import TopicPartition

#: How long snapshots are kept, in milliseconds.
KEPT: Final = 7 * 24 * 3600 * 1000
#: The least distance of two snapshots in a window, in milliseconds.
APART: Final = 15_000
#: How long to wait for another process that writes, in seconds.
LOCK_TIMEOUT: Final = 5.0
_MOVE: Final = "move it away: a new one is made"
#: Primary error codes of SQLite that say nothing about what is in the file.
_NOT_ITS_CONTENT: Final = frozenset(
    {
        *(sqlite3.SQLITE_PERM, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM),
        *(sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN),
    }
)
_VERSION: Final = 2
_SCHEMA: Final = """
CREATE TABLE snapshot (
    id INTEGER PRIMARY KEY, cluster TEXT NOT NULL, name TEXT NOT NULL, store TEXT NOT NULL, taken_at INTEGER NOT NULL
);
CREATE INDEX snapshots_of_group ON snapshot (cluster, name, store, taken_at);
CREATE INDEX snapshots_by_time ON snapshot (taken_at);
CREATE TABLE sample (
    snapshot INTEGER NOT NULL REFERENCES snapshot (id) ON DELETE CASCADE,
    topic TEXT NOT NULL, partition INTEGER NOT NULL, committed INTEGER, log_end INTEGER, changed_at INTEGER,
    PRIMARY KEY (snapshot, topic, partition)
) WITHOUT ROWID;
"""


class LagHistory:
    """The snapshots in one file, created with the first. A context manager; several processes may use the file at once.
    Raises ``ZkgroupError`` where the file cannot be used, ``UsageError`` where it is another kind of file."""

    def __init__(self, path: Path, kept: int = KEPT) -> None:
        self._path = path
        self._kept = kept
        self._opened: sqlite3.Connection | None = None

    def __enter__(self) -> Self:
        with self._translated_errors():
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._opened = sqlite3.connect(self._path, timeout=LOCK_TIMEOUT, isolation_level=None)
            self._opened.execute("PRAGMA foreign_keys = ON")
            self._prepare(self._opened)
        return self

    def __exit__(self, *_: object) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def keep(self, cluster: str, snapshots: Iterable[GroupSnapshot]) -> None:
        """Add snapshots and delete those that are too old, in one transaction."""
        with self._translated_errors(), self._transaction() as connection:
            newest = 0
            for snapshot in snapshots:
                newest = max(newest, snapshot.taken_at)
                row = (cluster, snapshot.group, snapshot.store, snapshot.taken_at)
                inserted = connection.execute(
                    "INSERT INTO snapshot (cluster, name, store, taken_at) VALUES (?, ?, ?, ?)", row
                )
                connection.executemany(
                    "INSERT INTO sample VALUES (?, ?, ?, ?, ?, ?)",
                    (
                        (inserted.lastrowid, *partition, sample.committed, sample.log_end, sample.changed_at)
                        for partition, sample in samples_of(snapshot).items()
                    ),
                )
            connection.execute("DELETE FROM snapshot WHERE taken_at < ?", (newest - self._kept,))

    def window(
        self, cluster: str, group: str, store: Store, snapshots: int, until: int
    ) -> dict[TopicPartition, list[Sample]]:
        """Each partition in the last snapshots before ``until``, in the order of time. Snapshots closer together than
        ``APART`` do not all count: their window would be too short for a trend."""
        with self._translated_errors():
            times = self._connection.execute(
                "SELECT taken_at, id FROM snapshot WHERE cluster = ? AND name = ? AND store = ? AND taken_at < ?"
                " ORDER BY taken_at DESC",
                (cluster, group, store, until),
            )
            chosen: list[tuple[int, int]] = []
            found: dict[TopicPartition, list[Sample]] = {}
            for taken_at, snapshot_id in times:
                if (chosen[-1][0] if chosen else until) - taken_at >= APART:
                    chosen.append((taken_at, snapshot_id))
                if len(chosen) == snapshots:
                    break
            for key, sample in self._samples(reversed(chosen)):
                found.setdefault(key, []).append(sample)
        return found

    def read(self, cluster: str, group: str, store: Store | None = None) -> Iterator[tuple[TopicPartition, Sample]]:
        """Each partition in each snapshot, in the order of time; those of one ``store`` where that is given."""
        with self._translated_errors():
            times = self._connection.execute(
                "SELECT taken_at, id FROM snapshot WHERE cluster = ? AND name = ? AND ? IN (store, '')"
                " ORDER BY taken_at, id",
                (cluster, group, store or ""),
            )
            yield from self._samples(times.fetchall())

    def groups(self, cluster: str) -> list[str]:
        """The names of the cluster's groups."""
        with self._translated_errors():
            rows = self._connection.execute("SELECT DISTINCT name FROM snapshot WHERE cluster = ?", (cluster,))
            return [name for (name,) in rows]

    def _samples(self, snapshots: Iterable[tuple[int, int]]) -> Iterator[tuple[TopicPartition, Sample]]:
        """The samples of these snapshots (time and id), one after the other."""
        for taken_at, snapshot_id in snapshots:
            for topic, *numbers in self._connection.execute(
                "SELECT topic, partition, committed, log_end, changed_at FROM sample WHERE snapshot = ?",
                (snapshot_id,),
            ):
                if not isinstance(topic, str) or not all(isinstance(one, int | None) for one in (taken_at, *numbers)):
                    raise self._damaged()  # SQLite keeps a text in a column of numbers, too
                partition, committed, log_end, changed_at = numbers
                yield TopicPartition(topic, partition), Sample(taken_at, committed, log_end, changed_at)

    def _damaged(self) -> ZkgroupError:
        return ZkgroupError(f"the history {self._path} is damaged", _MOVE)

    @property
    def _connection(self) -> sqlite3.Connection:
        assert self._opened is not None, "used outside of its context"
        return self._opened

    def _prepare(self, connection: sqlite3.Connection) -> None:
        version = _version(connection)
        if version == 0:
            with self._transaction() as connection:
                if _version(connection) == 0:  # another process may have come first
                    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                        raise UsageError(f"{self._path} is a database of something else", "choose another file")
                    for statement in _SCHEMA.split(";"):
                        connection.execute(statement)
                    connection.execute(f"PRAGMA user_version = {_VERSION}")
        elif version != _VERSION:
            raise UsageError(f"{self._path} is of another release of zkgroup (version {version})", _MOVE)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")

    @contextlib.contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Raise SQLite's errors as zkgroup's."""
        try:
            yield
        except UnicodeDecodeError:  # in the schema; in rows it is one of SQLite's errors
            raise self._damaged() from None
        except sqlite3.DatabaseError as error:
            why = " ".join(str(error).split())  # it quotes a damaged schema
            code = getattr(error, "sqlite_errorcode", None)  # errors that sqlite3 raises by itself have none
            if code == sqlite3.SQLITE_NOTADB:
                raise UsageError(f"{self._path} is no history: {why}", _MOVE) from None
            is_sound = code is not None and code & 0xFF in _NOT_ITS_CONTENT
            remedy = "choose another with --history-file" if is_sound else _MOVE
            raise ZkgroupError(f"the history {self._path} cannot be used: {why}", remedy) from None
        except OSError as error:
            raise ZkgroupError(
                f"the history {self._path} cannot be made: {error.strerror}", "choose another with --history-file"
            ) from None


def samples_of(snapshot: GroupSnapshot) -> Mapping[TopicPartition, Sample]:
    store = snapshot.store
    return {
        one.key: Sample(
            snapshot.taken_at,
            one.committed(store),
            one.log_end,
            one.stored.changed_at if store == "zookeeper" and one.stored is not None else None,
        )
        for one in snapshot.partitions
    }


def _version(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version
