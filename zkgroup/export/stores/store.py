"""The interface of a place for files, and a folder as one (``object_store``: the others).

Names are relative to the destination, with ``/`` between their parts. The protocol needs no conditional write: it
decides in ZooKeeper.
"""

from __future__ import annotations

import contextlib
import errno
import filecmp
import importlib.util
import os
import shutil
import stat
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from zkgroup.errors import MissingExtraError, RefusedError, UsageError, ZkgroupError
from zkgroup.export.model.address import Address
from zkgroup.export.model.plan_types import StoredFile

if TYPE_CHECKING:
    from zkgroup.export.stores.object_store import ObjectStore

#: A place for files, with the methods of ``FolderStore``.
Store: TypeAlias = "FolderStore | ObjectStore"


class WorkFile(Protocol):
    """A file that grows: ``sink`` is pyarrow's, ``name`` that in the destination."""

    sink: Any
    name: str

    def finish(self) -> int:
        """Close it for good. It lasts from then on. Its size."""

    def abandon(self) -> None:
        """Remove it; once more does no harm."""


def open_store(destination: Address) -> Store:
    """The store for ``destination``. Does no I/O; pyarrow is imported for what is no folder."""
    if isinstance(destination, Path):
        return FolderStore(destination)

    require("pyarrow")
    from zkgroup.export.stores.object_store import ObjectStore

    return ObjectStore(destination)


def remedy_of(error: OSError, what: str = "write", *, decided: bool = False) -> str:
    """What helps where a file cannot be written, or read; ``decided``: of a run that has its destination."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "make room, then run it again"
    other = "then run it again" if decided else "or choose another --to"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"let this user {what} there, {other}"
    return f"mend the folder, {other}"


def is_published(store: Store, work: str, final: str, size: int) -> bool:
    """Whether a finished file has its final name alone. Raises ``ZkgroupError`` where it is not as its task has written
    it."""
    found = store.size(work)
    if found is None and store.size(final) == size:
        return True
    if found != size:
        what = "is not there" if found is None else f"has {found} bytes"
        raise ZkgroupError(
            f"{store.uri}/{work} {what}, and a task has written {size} bytes",
            "restore it; the tasks and this process must share the folder",
        )
    return False


def name_conflict(where: object) -> RefusedError:
    """The error for a final name that another file has: no file is ever replaced."""
    remedy = "move that file out of the destination, then run the same command again"
    return RefusedError(f"{where} exists already, and is not this run's", remedy)


class _FolderFile:
    """In the run's folder from the start."""

    def __init__(self, path: Path, name: str) -> None:
        import pyarrow as pa  # of tasks alone

        self._path = path
        self.name = name
        self.sink = pa.OSFile(str(path), "wb")

    def finish(self) -> int:
        self.sink.close()
        with self._path.open("rb") as file:
            os.fsync(file.fileno())  # it then survives a power cut
            return os.fstat(file.fileno()).st_size

    def abandon(self) -> None:
        self.sink.close()
        self._path.unlink(missing_ok=True)


class FolderStore:
    """A folder, on a file system that the tasks share; and, as ``Store``, what every place for files does."""

    #: What ``open_store`` makes the same store from.
    address: Address
    #: That each file takes while it grows.
    descriptors = 1

    def __init__(self, root: Path) -> None:
        self.root = self.address = root

    @property
    def uri(self) -> str:
        """The destination, for people, without secrets."""
        return str(self.root)

    def check(self) -> None:
        """Raise ``UsageError`` unless one can write here. Changes nothing."""
        there = self.root
        while not there.exists() and there != there.parent:
            there = there.parent
        if not there.is_dir():
            raise UsageError(f"cannot write to {self.root}: {there} is no folder", "choose another --to")
        if not os.access(there, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
            why = f"{there} is read-only" if os.statvfs(there).f_flag & os.ST_RDONLY else f"no permission in {there}"
            raise UsageError(f"cannot write to {self.root}: {why}", "choose another --to")

    def exists(self) -> bool:
        """Whether anything is here."""
        return self.root.is_dir()

    def read(self, name: str) -> bytes | None:
        """A whole file; None where there is none."""
        try:
            return (self.root / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _unread(f"cannot read {self.root / name}", error) from None

    def write(self, name: str, data: bytes) -> None:
        """A whole file, at once and lasting; what was there is replaced."""
        path = self.root / name
        part = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with part.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
            _sync_folder(path.parent)
        except OSError as error:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            raise ZkgroupError(f"cannot write {path}: {error.strerror}", remedy_of(error)) from None

    def names(self, folder: str) -> list[str]:
        """The names in a folder, sorted; none where there is no folder."""
        try:
            return sorted(path.name for path in (self.root / folder).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise _unread(f"cannot list {self.root / folder}", error) from None

    def walk(self, folder: str) -> Iterator[StoredFile]:
        """All files below a folder."""

        def fail(error: OSError) -> None:
            if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
                raise _unread(f"cannot list {error.filename}", error)

        for path, folders, names in os.walk(self.root / folder, onerror=fail):
            folders.sort()
            below = Path(path).relative_to(self.root)
            for name in sorted(names):
                found = str(below / name)
                if (size := self.size(found)) is not None:  # else gone since, or a link that leads nowhere
                    yield StoredFile(found, size)

    def size(self, name: str) -> int | None:
        """Of a file, in bytes; None where there is none."""
        try:
            found = (self.root / name).stat()
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return None
            raise _unread(f"cannot read {self.root / name}", error) from None
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    def open(self, name: str) -> Any:
        """A file, for pyarrow to read; a context manager. Raises ``OSError``."""
        return (self.root / name).open("rb")

    def prepare(self, folder: str) -> None:
        """Make a folder for tasks to write to."""
        try:
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot write to {self.root}: {error.strerror}", "choose another --to") from None

    def create(self, name: str) -> WorkFile:
        """A new file for a task to write. What the task may raise as it grows is ``OSError``."""
        return _FolderFile(self.root / name, name)

    def work_failure(self, error: OSError) -> ZkgroupError:
        """The error for a file that could not grow."""
        return ZkgroupError(f"cannot write {error.filename or self.root}: {error.strerror or error}", remedy_of(error))

    def publish(self, works: Iterable[tuple[str, str, int]]) -> Iterator[None]:
        """Let finished files have their final names: each is its working name, its final one, its size. Yields once
        for each file that is in place, in their order. May be repeated; never replaces another file."""
        for work, final, size in works:
            self._publish(work, final, size)
            yield

    def _publish(self, work: str, final: str, size: int) -> None:
        source, target = self.root / work, self.root / final
        if is_published(self, work, final, size):
            return  # renamed already, where there are no hard links
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _link(source, target)
        except OSError as error:
            raise ZkgroupError(f"cannot write {target}: {error.strerror}", remedy_of(error, decided=True)) from None

    def remove_file(self, final: str) -> None:
        """Remove a file, if it is there, and folders that are then empty."""
        path = self.root / final
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise ZkgroupError(f"cannot remove {path}: {error.strerror}") from None
        self._remove_empty(path.parent)

    def sync(self, finals: Iterable[str]) -> None:
        """Make final names last."""
        folders: set[Path] = set()
        for final in finals:
            path = self.root / final
            while path != self.root:
                path = path.parent
                folders.add(path)
        for folder in folders:
            _sync_folder(folder)

    def remove(self, folder: str) -> None:
        """A folder with all that is in it, and those above it that are then empty (the destination itself included)."""
        path = self.root / folder
        for _ in range(20):  # a task that was cancelled may still write its last
            shutil.rmtree(path, ignore_errors=True)
            if not path.exists():
                break
            time.sleep(0.1)
        self._remove_empty(path.parent)

    def _remove_empty(self, folder: Path) -> None:
        with contextlib.suppress(OSError):  # not empty, or not ours to remove
            while folder != self.root.parent:
                folder.rmdir()
                folder = folder.parent


def _unread(what: str, error: OSError) -> ZkgroupError:
    return ZkgroupError(f"{what}: {error.strerror}", remedy_of(error, "read"))


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileExistsError:
        _refuse_other(source, target)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
            raise
        # A file system without hard links. The check before is not atomic, but the group's lock keeps others away.
        if not target.exists():
            source.rename(target)
        else:
            _refuse_other(source, target)


def _refuse_other(source: Path, target: Path) -> None:
    """Raise unless it is this file, or its copy: tools that copy folders make two files of one with two names."""
    if not source.samefile(target) and not filecmp.cmp(source, target, shallow=False):
        raise name_conflict(target) from None


def _sync_folder(folder: Path) -> None:
    # Some network file systems know no fsync of folders; they write names through.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


_REQUESTS, _ANSWERS = 16, 64  # at a time

S = TypeVar("S")
T = TypeVar("T")


def map_parallel(ask: Callable[[S], T], items: Sequence[S]) -> Iterator[T]:
    """The answer for each item, in their order. Raises what ``ask`` raises. At most ``_ANSWERS`` answers are in memory
    that the caller has not taken."""
    if not items:
        return
    with ThreadPoolExecutor(_REQUESTS, thread_name_prefix="zkgroup-store") as pool:
        for first in range(0, len(items), _ANSWERS):
            yield from pool.map(ask, items[first : first + _ANSWERS])


def require(*packages: str, what: str = "export", extra: str = "export") -> None:
    """Raise ``MissingExtraError``, with the line that installs ``extra``, where any of ``packages`` is missing."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtraError(what, " and ".join(missing), extra)
