"""Where a task's files grow: in the run's folder, or, for an object store, here, from where each goes there when done.

An object's bytes cannot be had back once they are sent, and a stream to a store keeps megabytes for as long as it is
open; a task may have many files open at a time. So data for a store is first written to a file without a name in
this machine's temporary folder, which ends with the process whatever happens to it, and is sent as a whole: again, if
the store fails.
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa

from zkgroup.errors import ZkgroupError
from zkgroup.export.model.address import Address
from zkgroup.export.stores.store import remedy_of

if TYPE_CHECKING:
    from zkgroup.export.stores.object_store import ObjectStore

# The store's client has tried each request several times before it gives up.
_SENDS: Final = 3
_REST: Final = 1.0  # seconds between them


class WorkFile(Protocol):
    """A file that grows: ``sink`` is pyarrow's, ``name`` that in the destination."""

    sink: Any
    name: str

    def finish(self) -> tuple[str, int]:
        """Close it for good: its name in the run's folder, and its size. It lasts from then on."""

    def abandon(self) -> None:
        """Remove it; once more does no harm."""


class Staging:
    """Files of one attempt, whose folder in the destination is ``folder``."""

    def __init__(self, destination: Address, folder: str) -> None:
        self._destination = destination
        self._folder = folder
        self._store: ObjectStore | None = None
        if not isinstance(destination, Path):
            from zkgroup.export.stores.object_store import ObjectStore  # imports pyarrow's stores: not for folders

            self._store = ObjectStore(destination)
        #: That each open file takes.
        self.descriptors = 1 if self._store is None else 2

    def failure(self, error: OSError) -> ZkgroupError:
        """The error for a file that could not grow: on this machine, whatever it is for."""
        why = error.strerror or str(error)
        if isinstance(self._destination, Path):
            where = error.filename or self._destination / self._folder
            return ZkgroupError(f"cannot write {where}: {why}", remedy_of(error))
        return ZkgroupError(
            f"cannot write to {tempfile.gettempdir()} on {socket.gethostname()}, where files grow: {why}",
            "make room there, or let TMPDIR name another folder, then run it again",
        )

    def create(self) -> WorkFile:
        """A new file, of a name that nothing else has."""
        # Not *.parquet: a reader with a pattern must not see unpublished files.
        name = f"{self._folder}/{uuid.uuid4()}.tmp"
        if self._store is None:
            assert isinstance(self._destination, Path)
            return _Here(self._destination / name, name)
        return _Sent(self._store, name)

    def remove(self, name: str) -> None:
        """A finished file, since its task failed after all."""
        if self._store is not None:
            with contextlib.suppress(ZkgroupError):  # the run's folder goes as a whole, anyway
                self._store.remove_file(name)
        else:
            assert isinstance(self._destination, Path)
            (self._destination / name).unlink(missing_ok=True)


class _Here:
    """In the run's folder from the start."""

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        self.name = name
        self.sink = pa.OSFile(str(path), "wb")

    def finish(self) -> tuple[str, int]:
        self.sink.close()
        descriptor = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # it then survives a power cut
            return self.name, os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)

    def abandon(self) -> None:
        self.sink.close()
        self._path.unlink(missing_ok=True)


class _Sent:
    """Without a name here, and sent at the end."""

    def __init__(self, store: ObjectStore, name: str) -> None:
        self._store = store
        self.name = name
        self._file = tempfile.TemporaryFile(prefix="zkgroup-export-", buffering=0)  # noqa: SIM115  # closed at its end
        self._path = f"/dev/fd/{self._file.fileno()}"
        self.sink = pa.OSFile(self._path, "wb")

    def finish(self) -> tuple[str, int]:
        self.sink.close()
        size = os.fstat(self._file.fileno()).st_size
        try:
            with pa.OSFile(self._path, "rb") as source:
                self._send(source, size)
        finally:
            self._file.close()
        return self.name, size

    def _send(self, source: Any, size: int) -> None:
        for left in reversed(range(_SENDS)):
            try:
                self._store.upload(source, self.name, size)
                return
            except (OSError, pa.ArrowException) as error:
                if not left:
                    raise self._store.failure("cannot write", self.name, error) from None
                time.sleep(_REST)

    def abandon(self) -> None:
        self.sink.close()
        self._file.close()
