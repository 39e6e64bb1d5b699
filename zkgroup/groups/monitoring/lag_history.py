"""The lag of groups over time, in a local SQLite file: each check adds a snapshot. Its points and events are pure."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple, Self

from zkgroup.errors import UsageError, ZkgroupError
from zkgroup.groups.changes.backup import Backup
from zkgroup.groups.group_model import GroupSnapshot, Store, lag_between
from zkgroup.protocol.names import TopicPartition, span_list
from zkgroup.text import counted, listed

#: How long snapshots are kept, in milliseconds.
MAX_AGE: Final = 7 * 24 * 3600 * 1000
#: The least distance of two snapshots in a window, in milliseconds.
MIN_INTERVAL: Final = 15_000
#: How long to wait for another process that writes, in seconds.
LOCK_TIMEOUT: Final = 5.0
_REMEDY: Final = "choose another with --history-file, or, if it is damaged, move it away: a new one is made"
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


@dataclass(frozen=True, slots=True)
class Sample:
    """A partition in one snapshot. Times are milliseconds since 1970; ``committed`` and ``log_end`` are None where
    there is none, or it is unknown; ``changed_at``: when the offset was written, where that is known."""

    taken_at: int
    committed: int | None
    log_end: int | None
    changed_at: int | None = None

    @property
    def lag(self) -> int | None:
        """High watermark less committed."""
        return lag_between(self.committed, self.log_end)


class LagHistory:
    """The snapshots in one file, created with the first. A context manager; several processes may use the file at once.
    Raises ``ZkgroupError`` where the file cannot be used, ``UsageError`` where it is another kind of file."""

    def __init__(self, path: Path) -> None:
        self._path = path
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
        with self._translated_errors(), self._connection as connection:
            connection.execute("BEGIN IMMEDIATE")
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
            connection.execute("DELETE FROM snapshot WHERE taken_at < ?", (newest - MAX_AGE,))

    def window(
        self, cluster: str, group: str, store: Store, snapshots: int, until: int
    ) -> dict[TopicPartition, list[Sample]]:
        """Each partition in the last snapshots before ``until``, in the order of time. Snapshots closer together than
        ``MIN_INTERVAL`` do not all count: their window would be too short for a trend."""
        with self._translated_errors():
            times = self._connection.execute(
                "SELECT taken_at, id FROM snapshot WHERE cluster = ? AND name = ? AND store = ? AND taken_at < ?"
                " ORDER BY taken_at DESC",
                (cluster, group, store, until),
            )
            chosen: list[tuple[int, int]] = []
            found: dict[TopicPartition, list[Sample]] = {}
            for taken_at, snapshot_id in times:
                if (chosen[-1][0] if chosen else until) - taken_at >= MIN_INTERVAL:
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

    def _samples(self, snapshots: Iterable[tuple[int, int]]) -> Iterator[tuple[TopicPartition, Sample]]:
        for taken_at, snapshot_id in snapshots:
            for topic, *numbers in self._connection.execute(
                "SELECT topic, partition, committed, log_end, changed_at FROM sample WHERE snapshot = ?",
                (snapshot_id,),
            ):
                if not isinstance(topic, str) or not all(isinstance(one, int | None) for one in (taken_at, *numbers)):
                    # SQLite keeps a text in a column of numbers, too.
                    raise ZkgroupError(f"the history {self._path} is damaged", _REMEDY)
                partition, committed, log_end, changed_at = numbers
                yield TopicPartition(topic, partition), Sample(taken_at, committed, log_end, changed_at)

    @property
    def _connection(self) -> sqlite3.Connection:
        assert self._opened is not None, "used outside of its context"
        return self._opened

    def _prepare(self, connection: sqlite3.Connection) -> None:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version == 0:
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                if connection.execute("PRAGMA user_version").fetchone()[0] == 0:  # another process may have come first
                    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                        raise UsageError(f"{self._path} is a database of something else", "choose another file")
                    for statement in _SCHEMA.split(";"):
                        connection.execute(statement)
                    connection.execute(f"PRAGMA user_version = {_VERSION}")
        elif version != _VERSION:
            raise UsageError(f"{self._path} is of another release of zkgroup (version {version})", _REMEDY)

    @contextlib.contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.DatabaseError, UnicodeDecodeError, OSError) as error:  # the second: of a damaged schema
            why = getattr(error, "strerror", None) or " ".join(str(error).split())
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB:
                raise UsageError(f"{self._path} is no history: {why}", _REMEDY) from None
            raise ZkgroupError(f"the history {self._path} cannot be used: {why}", _REMEDY) from None


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


#: A longer time without a snapshot is a gap, in multiples of the usual time between two.
_GAP: Final = 3.5


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """A group in one snapshot. ``lag_at_least``: the sum of the known lags, None where none is; ``lag_unknown``: the
    number of partitions whose lag is unknown. ``produced`` and ``consumed``: messages per second since the snapshot
    before, by log ends and committed offsets; ``commits``: the number of partitions with a commit since then; None
    where that is unknown. ``set_back``: partitions whose offset is smaller than it was."""

    taken_at: int
    partitions: int
    lag_at_least: int | None
    lag_unknown: int
    produced: float | None = None
    consumed: float | None = None
    commits: int | None = None
    set_back: tuple[TopicPartition, ...] = ()

    @property
    def lag(self) -> int | None:
        """The lag; None where that of a partition is unknown."""
        return None if self.lag_unknown else self.lag_at_least


def history_points(samples: Iterable[tuple[TopicPartition, Sample]]) -> Iterator[HistoryPoint]:
    """A point for each snapshot, of the samples in the order of time."""
    committed: dict[TopicPartition, Sample] = {}  # the last sample that has the offset
    ends: dict[TopicPartition, Sample] = {}
    is_first = True
    for taken_at, rows in groupby(samples, key=lambda row: row[1].taken_at):
        lags, unknown, count, commits = [], 0, 0, 0
        consumed: list[float] = []
        produced: list[float] = []
        set_back = []
        for key, sample in rows:
            count += 1
            if (lag := sample.lag) is not None:
                lags.append(lag)
            elif sample.committed is not None or sample.log_end != 0:  # an empty log without an offset has no lag
                unknown += 1
            if sample.committed is not None:
                before = committed.get(key)
                if before is not None and before.committed is not None:
                    commits += (before.committed, before.changed_at) != (sample.committed, sample.changed_at)
                    consumed.append(_rate(before, sample, sample.committed - before.committed))
                    if sample.committed < before.committed:
                        set_back.append(key)
                committed[key] = sample
            if sample.log_end is not None:
                before = ends.get(key)
                if before is not None and before.log_end is not None:
                    produced.append(_rate(before, sample, sample.log_end - before.log_end))
                ends[key] = sample
        yield HistoryPoint(
            taken_at,
            count,
            sum(lags) if lags or not unknown else None,
            unknown,
            sum(produced) if produced else None,
            sum(consumed) if consumed else None,
            None if is_first else commits,
            tuple(sorted(set_back)),
        )
        is_first = False


def _rate(before: Sample, after: Sample, change: int) -> float:
    """Messages per second; 0 where an offset went back."""
    return max(0, change) * 1000 / max(1, after.taken_at - before.taken_at)


def commits_per_minute(points: Sequence[HistoryPoint]) -> list[float | None]:
    """The commits before each point, per minute since the point before."""
    rates = [
        None if after.commits is None else after.commits * 60_000 / max(1, after.taken_at - before.taken_at)
        for before, after in pairwise(points)
    ]
    return [None, *rates]


def columns_of(
    points: Sequence[HistoryPoint],
    values: Sequence[float | None],
    count: int,
    combine: Callable[[list[float]], float],
) -> list[float | None]:
    """A value for each of ``count`` equal steps of the time that the points cover. The value of a point holds since
    the point before; that of a first point, and of one after a gap, at its own time. ``combine``: of the values in one
    step. A step without a value is None."""
    begin, end = points[0].taken_at, max(points[-1].taken_at, points[0].taken_at + 1)
    distances = [after.taken_at - before.taken_at for before, after in pairwise(points)]
    longest = _GAP * median(distances) if distances else 0
    found: list[list[float]] = [[] for _ in range(count)]

    def column(at: int) -> int:
        return min(count - 1, (at - begin) * count // (end - begin))

    for before, point, value in zip((None, *points), points, values, strict=False):
        if value is None:
            continue
        last = column(point.taken_at)
        is_gap = before is None or point.taken_at - before.taken_at > longest
        first = last if is_gap or before is None else min(last, column(before.taken_at) + 1)
        for number in range(first, last + 1):
            found[number].append(value)
    return [combine(each) if each else None for each in found]


_MINUTE = 60_000


class IncidentEvent(NamedTuple):
    """A past event. ``at``: milliseconds since 1970."""

    at: int
    text: str


def incident_events(
    snapshot: GroupSnapshot, points: Sequence[HistoryPoint], backups: Iterable[Backup]
) -> list[IncidentEvent]:
    """The events in the order of time: changes of topics, registrations, claims, the last commits, changes by zkgroup,
    offsets that went back, the largest lag. ``backups``: those of this group."""
    found = [*_of_snapshot(snapshot), *_of_history(points)]
    for one in backups:
        saved = counted(len(one.offsets), "offset") if one.offsets else counted(len(one.nodes), "node")
        found.append(IncidentEvent(one.time, f"{one.command} of {saved}: backup written"))
    return sorted(found)


def _of_snapshot(snapshot: GroupSnapshot) -> Iterator[IncidentEvent]:
    for topic in snapshot.topics.values():
        if topic.created_at:
            yield IncidentEvent(topic.created_at, f"topic {topic.name} was created")
        if topic.changed_at and topic.changed_at != topic.created_at:
            yield IncidentEvent(topic.changed_at, f"topic {topic.name} got partitions, or replicas moved")
    for member in snapshot.members:
        if member.registered_at is not None:
            host = "" if member.host is None else f" on {member.host}"
            yield IncidentEvent(member.registered_at, f"member {member.member} registered{host}")
    claims = sorted(
        (p.member or p.owner or "", p.since // _MINUTE, p.key, p.since) for p in snapshot.partitions if p.since
    )
    for (owner, _), rows in groupby(claims, key=lambda row: row[:2]):
        own = list(rows)
        names = listed(span_list(key for _, _, key, _ in own))
        yield IncidentEvent(max(since for *_, since in own), f"{owner} claimed {names}")
    commits = sorted((p.topic, p.stored.changed_at, p.name) for p in snapshot.partitions if p.stored is not None)
    for name, (at, partition) in {topic: (at, name) for topic, at, name in commits}.items():
        yield IncidentEvent(at, f"last commit in topic {name}: {partition}")


def _of_history(points: Sequence[HistoryPoint]) -> Iterator[IncidentEvent]:
    for point in points:
        if point.set_back:
            yield IncidentEvent(point.taken_at, f"offsets went back: {listed(span_list(point.set_back))}")
    known = [point for point in points if point.lag_at_least]
    if known:
        most = max(known, key=lambda point: point.lag_at_least or 0)
        mark = "at least " if most.lag_unknown else ""
        yield IncidentEvent(most.taken_at, f"largest lag: {mark}{counted(most.lag_at_least or 0, 'message')}")
