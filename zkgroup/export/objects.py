"""An object store, or HDFS, as a place for files: through pyarrow's filesystems.

What an export asks of a store (``Store``) is little, and this is how it is had where there is no rename. A document is
written with one PUT, which is whole or not there. A task's file is copied by the store itself, from its working name to
its final one; a copy appears at once, too. There is no conditional write in pyarrow, and none is needed: the decision
is made in ZooKeeper, the group's lock keeps other exports away, and a final name that is taken is held against the
working file (their ends are compared: a footer names its file) before anything is written over it. HDFS renames.

Folders are names with slashes in them. pyarrow marks them by empty objects as it removes what was in them; these stay.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pyarrow.fs as pafs

from zkgroup.errors import UnreachableError, UsageError, ZkgroupError
from zkgroup.export.destination import ObjectAddress, child
from zkgroup.export.refusals import taken_name
from zkgroup.export.words import StoredFile

log = logging.getLogger(__name__)

# S3 copies no more than 5 GiB in one request; what is larger goes through this process.
_COPY_BYTES: Final = 5 << 30
_CHUNK: Final = 4 << 20
#: Where pyarrow (26) lists folders only if somebody has made an object for them: they are in the names of all below.
_FLAT: Final = ("gs",)
# Of two files that are compared: each ends in a footer that names it.
_TAIL: Final = 64 << 10
#: Requests at a time where there are many.
PARALLEL: Final = 8
# Seconds. A request on which nothing moves for so long is given up, and made again.
_CONNECT: Final = 5.0
_STALL: Final = 20.0
_TRIES: Final = 5
_RENAMING: Final = ("hdfs", "viewfs")


def open_filesystem(address: ObjectAddress) -> Any:
    """pyarrow's filesystem for ``address``. Raises ``UsageError``."""
    try:
        if address.scheme == "s3":
            return _open_s3(address)
        return pafs.FileSystem.from_uri(address.uri)[0]
    except (OSError, ValueError, NotImplementedError) as error:
        raise UsageError(f"cannot use {address}: {cleaned(address, error)}", "check --to and its options") from None


def _open_s3(address: ObjectAddress) -> Any:
    options = {name: value for name, value in address.options.items() if value}
    if "region" not in options and "endpoint_override" not in options:
        with contextlib.suppress(OSError):  # then AWS's own rules for it apply
            options["region"] = pafs.resolve_s3_region(address.container)
    return pafs.S3FileSystem(
        access_key=address.key,
        secret_key=address.secret,
        # Else all of a file waits in memory where the network is slower than the disk.
        background_writes=False,
        # A small file is one request instead of three.
        allow_delayed_open=True,
        connect_timeout=_CONNECT,
        request_timeout=_STALL,
        retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=_TRIES),
        **options,
    )


def cleaned(address: ObjectAddress, error: Exception) -> str:
    """What pyarrow says, on one line, without what may be secret."""
    said = " ".join(str(error).split())
    said = said.replace(address.uri, address.shown)
    for hidden in sorted({address.secret or "", address.key or "", *address.hidden} - {""}, key=len, reverse=True):
        said = said.replace(hidden, "***")
    said = re.sub(r" ?\(Request ID: [^)]*\)", "", said)
    return said[:400] or type(error).__name__


# Of AWS's client, and of the libraries that Google's, Azure's and Hadoop's are made of.
_SILENT: Final = re.compile(
    r"NETWORK_CONNECTION|curlCode: (?:5|6|7|28|35|52|55|56)\b|REQUEST_TIMEOUT|[Cc]ould ?n[o']t (?:connect|resolve)|"
    r"[Cc]onnection refused|[Tt]imed out|UNAVAILABLE|UnknownHostException|ConnectException"
)
_DENIED: Final = re.compile(
    r"ACCESS_DENIED|INVALID_ACCESS_KEY_ID|INVALID_CLIENT_TOKEN_ID|SIGNATURE_DOES_NOT_MATCH|UNRECOGNIZED_CLIENT|"
    r"MISSING_AUTHENTICATION_TOKEN|EXPIRED_TOKEN|ExpiredToken|HTTP status (?:401|403)|PERMISSION_DENIED|"
    r"UNAUTHENTICATED|AuthenticationFailed|AuthorizationFailure|AccessControlException"
)


def told_failure(what: str, said: str) -> ZkgroupError:
    """An error in our words where the cause is plain; in the store's own (``said``) elsewhere. Its words are logged."""
    log.info("%s: %s", what, said)
    if _SILENT.search(said):
        return UnreachableError(
            f"{what}: the store does not answer", "check its endpoint (AWS_ENDPOINT_URL), then run it again"
        )
    if _DENIED.search(said):
        return ZkgroupError(
            f"{what}: the store does not allow it to these credentials, or does not know them",
            "check the keys (AWS_ACCESS_KEY_ID, …) and what they may do there, then run it again",
        )
    return ZkgroupError(f"{what}: {said}", "see to the store, then run it again")


class ObjectStore:
    """A place in an object store, as ``Store``. The connection is made with the first use, and kept."""

    def __init__(self, address: ObjectAddress) -> None:
        self.address = address
        self._lock = threading.Lock()
        self._opened: Any = None

    @property
    def destination(self) -> ObjectAddress:
        return self.address

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
        container = self.address.container if self.address.scheme not in _RENAMING else "/"
        try:
            found = self.filesystem.get_file_info(container).type
        except OSError as error:
            scheme, _, rest = self.uri.partition("://")
            where = f"{scheme}://{rest.partition('/')[0]}"
            raise told_failure(f"cannot look at {where}", cleaned(self.address, error)) from None
        if found != pafs.FileType.Directory:
            raise UsageError(f"cannot write to {self.uri}: there is no {container}", "make it, or choose another --to")

    def exists(self) -> bool:
        return bool(self.names(""))

    def read(self, name: str) -> bytes | None:
        try:
            with self.filesystem.open_input_stream(self.path(name)) as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self.failure("cannot read", name, error) from None

    def write(self, name: str, data: bytes) -> None:
        if self.read(name) == data:
            return
        path = self.path(name)
        try:
            if self.address.scheme in _RENAMING:
                part = f"{path}.part"
                self._put(part, data)
                self._forget(path)
                self.filesystem.move(part, path)
            else:
                self._put(path, data)
        except OSError as error:
            raise self.failure("cannot write", name, error) from None

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
        try:
            found: list[Any] = self.filesystem.get_file_info(selector)
        except OSError as error:
            raise self.failure("cannot list", folder, error) from None
        return found

    def size(self, name: str) -> int | None:
        try:
            info = self.filesystem.get_file_info(self.path(name))
        except OSError as error:
            raise self.failure("cannot look at", name, error) from None
        return int(info.size) if info.type == pafs.FileType.File else None

    def open(self, name: str) -> Any:
        return self.filesystem.open_input_file(self.path(name))

    def prepare(self, folder: str) -> None:
        pass  # there are no folders

    def publish(self, works: Iterable[tuple[str, str, int]]) -> Iterator[None]:
        # The store copies; this process only asks. In order, for whoever listens.
        pool = ThreadPoolExecutor(PARALLEL, thread_name_prefix="zkgroup-publish")
        try:
            yield from pool.map(lambda work: self._publish(*work), list(works))
        finally:
            pool.shutdown(cancel_futures=True)

    def _publish(self, work: str, final: str, size: int) -> None:
        found, taken = self.size(work), self.size(final)
        if found is None and taken == size:
            return  # whoever published it has tidied up
        if found is None:
            raise ZkgroupError(f"{self.uri}/{work} was written by a task and is not there", "restore it")
        if found != size:
            raise ZkgroupError(f"{self.uri}/{work} has {found} bytes, not {size} as written")
        if taken is not None:
            if taken == size and self._tail(work, size) == self._tail(final, size):
                return
            raise taken_name(f"{self.uri}/{final}")
        source, target = self.path(work), self.path(final)
        try:
            if self.address.scheme in _RENAMING:
                self.filesystem.create_dir(target.rpartition("/")[0], recursive=True)
                self.filesystem.move(source, target)
            elif size < _COPY_BYTES:
                self.filesystem.copy_file(source, target)
            else:
                pafs.copy_files(source, target, self.filesystem, self.filesystem, chunk_size=_CHUNK, use_threads=False)
        except OSError as error:
            raise self.failure("cannot write", final, error) from None

    def _tail(self, name: str, size: int) -> bytes:
        try:
            with self.open(name) as file:
                return bytes(file.read_at(min(_TAIL, size), max(0, size - _TAIL)))
        except OSError as error:
            raise self.failure("cannot read", name, error) from None

    def unpublish(self, final: str) -> None:
        try:
            self._forget(self.path(final))
        except OSError as error:
            raise self.failure("cannot remove", final, error) from None

    def _forget(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.filesystem.delete_file(path)

    def settle(self, finals: Iterable[str]) -> None:
        pass  # what a store has taken lasts

    def remove(self, folder: str) -> None:
        try:
            with contextlib.suppress(FileNotFoundError):
                self.filesystem.delete_dir(self.path(folder))
        except OSError as error:
            raise self.failure("cannot remove", folder, error) from None

    def upload(self, source: Any, name: str, size: int) -> None:
        """``source`` (an open pyarrow file of ``size`` bytes) as the file ``name``, a chunk in memory at a time.

        Raises ``OSError`` where the store does not take it; it may then be tried again.
        """
        with self.filesystem.open_output_stream(self.path(name)) as target:
            for start in range(0, size, _CHUNK):
                target.write(source.read_at(min(_CHUNK, size - start), start))
        found = self.filesystem.get_file_info(self.path(name)).size
        if found != size:
            raise OSError(f"{found} of {size} bytes have arrived")

    def failure(self, what: str, name: str, error: Exception) -> ZkgroupError:
        """The error for what pyarrow could not do."""
        return told_failure(f"{what} {self.uri}/{name}" if name else f"{what} {self.uri}", cleaned(self.address, error))
