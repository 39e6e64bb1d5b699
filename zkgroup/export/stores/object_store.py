"""An object store, or HDFS, as a place for files: through pyarrow's filesystems.

An object store has no rename. A document is written with one PUT, which is whole or not there. The store itself copies
a task's file from its working name to its final one; a copy appears at once, too. The protocol needs no conditional
write: it decides in ZooKeeper, and the group's lock keeps other exports away. A final name that is taken is compared
with the working file (by their ends: a footer names its file); another file is never replaced. HDFS renames.

Folders are names with slashes in them. pyarrow marks them by empty objects as it removes what was in them; these stay.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pyarrow.fs as pafs

from zkgroup.errors import UsageError, ZkgroupError
from zkgroup.export.model.address import AZURE, ObjectAddress, child
from zkgroup.export.model.plan_types import StoredFile
from zkgroup.export.stores.filesystems import FAILURES, check_credentials, is_denied, open_filesystem, store_failure
from zkgroup.export.stores.parallel import map_parallel
from zkgroup.export.stores.store import CHANGED_WORK, TAIL, MissingWorkError, name_conflict

# S3 copies no more than 5 GiB in one request; what is larger goes through this process.
_COPY_BYTES: Final = 5 << 30
_CHUNK: Final = 4 << 20
#: Where pyarrow (26) lists folders only if somebody has made an object for them: they are in the names of all below.
_FLAT: Final = ("gs",)
_RENAMING: Final = ("hdfs", "viewfs")
# A file that is written there is seen before it is whole (Azure: empty first, in pyarrow 26).
_STAGED: Final = (*_RENAMING, *AZURE)


class ObjectStore:
    """A place in an object store, as ``Store``. The connection is made with the first use, and kept."""

    def __init__(self, address: ObjectAddress) -> None:
        self.address = address
        self._lock = threading.Lock()
        self._opened: Any = None

    @property
    def uri(self) -> str:
        return self.address.shown

    @property
    def filesystem(self) -> Any:
        """pyarrow's."""
        with self._lock:
            if self._opened is None:
                self._opened = open_filesystem(self.address)
            return self._opened

    def path(self, name: str) -> str:
        """Of a file, as ``filesystem`` takes it."""
        return child(self.address, name)

    def check(self) -> None:
        check_credentials(self.address)
        container = self.address.container if self.address.scheme not in _RENAMING else "/"
        try:
            if self.address.scheme in AZURE:  # a signature for a container lets it be listed, and not inspected
                self.filesystem.get_file_info(pafs.FileSelector(container))
                return
            found = self.filesystem.get_file_info(container).type
        except FileNotFoundError:
            found = pafs.FileType.NotFound
        except FAILURES as error:
            if is_denied(str(error)) and self._may_be_listed():
                return
            scheme, _, rest = self.uri.partition("://")
            where = f"{scheme}://{rest.partition('/')[0]}"
            raise store_failure(self.address, "cannot read", error, where) from None
        if found != pafs.FileType.Directory:
            raise UsageError(f"cannot write to {self.uri}: there is no {container}", "make it, or choose another --to")

    def _may_be_listed(self) -> bool:
        """Whether its objects may be listed, though not the bucket itself: as with Google's roles for objects."""
        try:
            self.names("")
        except ZkgroupError:
            return False
        return True

    def exists(self) -> bool:
        return bool(self.names(""))

    def read(self, name: str) -> bytes | None:
        try:
            with self._translated("cannot read", name), self.filesystem.open_input_stream(self.path(name)) as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        if self.read(name) == data:
            return
        path = self.path(name)
        with self._translated("cannot write", name):
            if self.address.scheme not in _STAGED:
                self._put(path, data)
                return
            part = f"{path}.part"
            self._put(part, data)
            if self.address.scheme in _RENAMING:
                self._forget(path)
                self.filesystem.move(part, path)
            else:
                self.filesystem.copy_file(part, path)
                self._forget(part)

    def _put(self, path: str, data: bytes) -> None:
        with self.filesystem.open_output_stream(path) as file:
            file.write(data)

    def names(self, folder: str) -> list[str]:
        if self.address.scheme not in _FLAT:
            return sorted({info.base_name for info in self._list(folder, recursive=False)} - {""})
        cut = len(self.path(folder).rstrip("/")) + 1
        return sorted({info.path[cut:].partition("/")[0] for info in self._list(folder, recursive=True)} - {""})

    def walk(self, folder: str, unlisted: Callable[[str], None] | None = None) -> Iterator[StoredFile]:
        cut = len(self.path("").rstrip("/")) + 1
        for info in self._list(folder, recursive=True):
            if info.type == pafs.FileType.File:
                yield StoredFile(info.path[cut:], info.size)

    def _list(self, folder: str, *, recursive: bool) -> Iterable[Any]:
        selector = pafs.FileSelector(self.path(folder), allow_not_found=True, recursive=recursive)
        with self._translated("cannot list", folder):
            found: list[Any] = self.filesystem.get_file_info(selector)
        return found

    def size(self, name: str) -> int | None:
        with self._translated("cannot read", name):
            info = self.filesystem.get_file_info(self.path(name))
        return int(info.size) if info.type == pafs.FileType.File else None

    def open(self, name: str) -> Any:
        return self.filesystem.open_input_file(self.path(name))

    def prepare(self, folder: str) -> None:
        pass  # there are no folders

    def refuse_closed(self, finals: Iterable[str]) -> None:
        pass  # a store fails only as it is written to

    def publish(self, works: Iterable[tuple[str, str, int]]) -> Iterator[None]:
        # The store copies; this process only asks.
        yield from map_parallel(lambda work: self._publish(*work), list(works))

    def _publish(self, work: str, final: str, size: int) -> None:
        found, taken = self.size(work), self.size(final)
        if found is None and taken == size:
            return  # the process that published it has tidied up
        if found is None:
            raise MissingWorkError(f"{self.uri}/{work} was written by a task and is not there", "restore it")
        if found != size:
            raise MissingWorkError(f"{self.uri}/{work} has {found} bytes, not {size} as written", CHANGED_WORK)
        if taken is not None:
            if taken == size and self._tail(work, size) == self._tail(final, size):
                return
            raise name_conflict(f"{self.uri}/{final}")
        source, target = self.path(work), self.path(final)
        with self._translated("cannot write", final):
            if self.address.scheme in _RENAMING:
                self.filesystem.create_dir(target.rpartition("/")[0], recursive=True)
                self.filesystem.move(source, target)
            elif self.address.scheme != "s3" or size < _COPY_BYTES:
                self.filesystem.copy_file(source, target)
            else:
                pafs.copy_files(source, target, self.filesystem, self.filesystem, chunk_size=_CHUNK, use_threads=False)

    def _tail(self, name: str, size: int) -> bytes:
        with self._translated("cannot read", name), self.open(name) as file:
            return bytes(file.read_at(min(TAIL, size), max(0, size - TAIL)))

    def remove_file(self, final: str) -> None:
        with self._translated("cannot remove", final):
            self._forget(self.path(final))

    def _forget(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.filesystem.delete_file(path)

    def sync(self, finals: Iterable[str]) -> None:
        pass  # what a store has taken lasts

    def remove(self, folder: str) -> None:
        with self._translated("cannot remove", folder):
            try:
                self.filesystem.delete_dir(self.path(folder))
            except FileNotFoundError:
                return
            except FAILURES:  # pyarrow (26) has no such word for what is not there in a flat store
                if self.address.scheme not in _FLAT or self.names(folder):
                    raise

    def upload(self, source: Any, name: str, size: int) -> None:
        """``source`` (an open pyarrow file of ``size`` bytes) as the file ``name``, a chunk in memory at a time.

        Raises one of ``filesystems.FAILURES`` where the store does not take it; it may then be tried again.
        """
        with self.filesystem.open_output_stream(self.path(name)) as target:
            for start in range(0, size, _CHUNK):
                target.write(source.read_at(min(_CHUNK, size - start), start))
        found = self.filesystem.get_file_info(self.path(name)).size
        if found != size:
            raise OSError(f"{found} of {size} bytes have arrived")

    @contextlib.contextmanager
    def _translated(self, what: str, name: str) -> Iterator[None]:
        """Translate the errors of the block; ``FileNotFoundError`` is for the caller."""
        try:
            yield
        except FileNotFoundError:
            raise
        except FAILURES as error:
            raise self.failure(what, name, error) from None

    def failure(self, what: str, name: str, error: Exception) -> ZkgroupError:
        """The error for what pyarrow could not do."""
        return store_failure(self.address, what, error, f"{self.uri}/{name}" if name else self.uri)
