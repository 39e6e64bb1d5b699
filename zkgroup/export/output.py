"""The folder that an export writes to: where files are made, and how they become visible.

The layout is ``OUT/topic=T/partition=P/START-END.parquet``. A name tells which offsets the file stands for, END being
the next one, so that names alone prove that nothing is missing and nothing is there twice. No file is ever overwritten.

Topic and partition are folders, in Hive's manner, and are not repeated inside the files: Spark, pyarrow, pandas,
DuckDB, Hive and Trino all make columns of them and read only the folders asked for. A column that is both is refused by
pyarrow (``pq.read_table``), and files side by side in one folder, named by topic, would hide topics that start with
``_`` or ``.`` from Spark and pyarrow. The price: readers guess a folder's type. ``partition`` becomes an integer, as it
should; ``topic`` a string, *unless every topic of the folder looks like a number* (``123``): then an integer too.
Whoever has such topics tells the reader: ``spark.sql.sources.partitionColumnTypeInference.enabled=false`` in Spark,
``partitioning=ds.partitioning(pa.schema([("topic", pa.string()), ("partition", pa.int32())]), flavor="hive")`` in
pyarrow and pandas, ``hive_types={'topic': VARCHAR}`` in DuckDB.

While an export runs, its files are ``OUT/_zkgroup/RUN/*.tmp``, which no reader takes for data; ``RUN.lock`` beside that
folder is locked by the process at work, so that what a killed one left behind can be told apart and is removed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self
from urllib.parse import unquote, urlsplit

from zkgroup.errors import RefusedError, UsageError, ZkgroupError
from zkgroup.export.plan import OffsetRange, WrittenFile
from zkgroup.protocol.names import TopicPartition

_WORK = "_zkgroup"
_NAME = re.compile(r"([0-9]+)-([0-9]+)\.parquet", re.ASCII)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://?", re.ASCII)


def parse_destination(uri: str) -> Path:
    """The absolute folder that ``uri`` (a path, or ``file:``) names. Raises ``UsageError`` for any other scheme."""
    scheme = _SCHEME.match(uri)
    if not uri.strip() or "\0" in uri:
        raise UsageError("the destination is empty", "--to FOLDER, or --to file:///FOLDER")
    if scheme is None:
        return Path(uri).expanduser().absolute()
    if scheme[1].lower() != "file":
        raise UsageError(
            f"cannot write to {scheme[1]}: destinations ({uri})", "give a folder, on a file system that all tasks share"
        )
    parts = urlsplit(uri)
    if parts.netloc not in ("", "localhost"):
        raise UsageError(f"{uri} names a host ({parts.netloc})", "a local folder is file:///FOLDER, with three slashes")
    return Path(unquote(parts.path)).absolute()


def check_destination(root: Path) -> None:
    """Raise ``UsageError`` unless ``root`` is, or can become, a folder that can be written to. Changes nothing."""
    there = root
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        raise UsageError(f"cannot write to {root}: {there} is no folder", "choose another --to")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UsageError(f"cannot write to {root}: no permission in {there}", "choose another --to")


def file_of(root: Path, partition: TopicPartition, start: int, end: int) -> Path:
    """Where the file for offsets ``[start, end)`` is published."""
    return _folder(root, partition) / f"{start}-{end}.parquet"


def _folder(root: Path, partition: TopicPartition) -> Path:
    return root / f"topic={partition.topic}" / f"partition={partition.partition}"


def refuse_overlap(root: Path, ranges: Iterable[OffsetRange]) -> None:
    """Raise ``RefusedError`` if published files already hold any offset of ``ranges``: they would be there twice."""
    wanted: dict[TopicPartition, tuple[int, int]] = {}
    for piece in ranges:
        low, high = wanted.get(piece.partition, (piece.start, piece.end))
        wanted[piece.partition] = min(low, piece.start), max(high, piece.end)
    for partition, (start, end) in wanted.items():
        for path, low, high in _published(root, partition):
            if low < end and start < high:
                raise RefusedError(
                    f"{path} already holds offsets {low} to {high - 1} of {partition}, which the group has not "
                    f"committed: it stands at {start}",
                    "an export was killed before it could commit, or the group was set back: remove the files from "
                    f"offset {start} on, set the group's offset behind them, or choose another --to",
                )


def _published(root: Path, partition: TopicPartition) -> Iterator[tuple[Path, int, int]]:
    with contextlib.suppress(FileNotFoundError):
        for path in sorted(_folder(root, partition).iterdir()):
            if match := _NAME.fullmatch(path.name):
                yield path, int(match[1]), int(match[2])


class OutputRun:
    """One export's place in the folder: a context manager that leaves nothing behind but what was published."""

    def __init__(self, root: Path, run: str) -> None:
        self.root = root
        self.folder = root / _WORK / run
        self._lock_path = root / _WORK / f"{run}.lock"
        self._lock: int | None = None
        self._published: list[tuple[TopicPartition, Path]] = []

    def __enter__(self) -> Self:
        try:
            self._lock_path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self._lock_path, os.O_CREAT | os.O_RDWR, 0o644)
            # A file system without locks: what this run leaves behind if killed is then left to people.
            with contextlib.suppress(OSError):
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.folder.mkdir()
        except OSError as error:
            self.__exit__()
            raise UsageError(f"cannot write to {self.root}: {error.strerror}", "choose another --to") from None
        return self

    def __exit__(self, *exception: object) -> None:
        _remove(self.folder)
        if self._lock is not None:
            self._lock_path.unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None
        with contextlib.suppress(OSError):  # another run is there
            self._lock_path.parent.rmdir()

    def remove_leftovers(self) -> int:
        """Remove what killed exports left behind; how many there were."""
        removed = 0
        for folder in self._lock_path.parent.iterdir():
            if not folder.is_dir() or folder == self.folder:
                continue
            lock = folder.with_name(f"{folder.name}.lock")
            if _is_locked(lock):
                continue
            _remove(folder)
            lock.unlink(missing_ok=True)
            removed += 1
        return removed

    def publish(self, partition: TopicPartition, file: WrittenFile) -> None:
        """Give a finished file its final name, at once and without ever replacing another."""
        source = Path(file.path)
        target = file_of(self.root, partition, file.start, file.end)
        try:
            if source.stat().st_size != file.bytes:
                raise ZkgroupError(f"{source} has {source.stat().st_size} bytes, not {file.bytes} as written")
            target.parent.mkdir(parents=True, exist_ok=True)
            _rename_to_new(source, target)
        except FileExistsError:
            raise RefusedError(f"{target} exists already", "another export writes there: choose another --to") from None
        except FileNotFoundError:
            raise ZkgroupError(
                f"{source} was written by a task and is not here", "the tasks and this process must share the folder"
            ) from None
        except OSError as error:
            raise ZkgroupError(f"cannot write {target}: {error.strerror}") from None
        self._published.append((partition, target))

    def settle(self) -> None:
        """Make what was published survive a power cut."""
        for folder in {path.parent for _, path in self._published} | {
            self.root / f"topic={partition.topic}" for partition, _ in self._published
        }:
            _sync_folder(folder)
        if self._published:
            _sync_folder(self.root)

    def withdraw(self, keep: Iterable[TopicPartition] = ()) -> None:
        """Take back what this run published, but for the partitions in ``keep``."""
        kept = set(keep)
        for partition, path in self._published:
            if partition not in kept:
                path.unlink(missing_ok=True)
                for folder in (path.parent, path.parent.parent):
                    with contextlib.suppress(OSError):  # not empty: earlier exports' files
                        folder.rmdir()
        self._published = [(partition, path) for partition, path in self._published if partition in kept]


def _is_locked(path: Path) -> bool:
    """Whether a live process holds the lock, or nobody can tell."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _rename_to_new(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
            raise
        # A file system without hard links. The look before is not atomic, but the group's lock keeps others away.
        if target.exists():
            raise FileExistsError(errno.EEXIST, "exists", str(target)) from None
        source.rename(target)
    else:
        source.unlink()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # Some network file systems know no fsync of folders; they write names through.
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(folder: Path) -> None:
    """Remove a folder in which a task that was cancelled may still write its last."""
    for _ in range(20):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.1)
