"""An object store, or HDFS, as a place for files: through pyarrow's filesystems, whose errors are translated here.

An object store has no rename. A document is written with one PUT, which is whole or not there. The store itself copies
a task's file from its working name to its final one; a copy appears at once, too. The protocol needs no conditional
write: it decides in ZooKeeper, and the group's lock keeps other exports away. A final name that is taken is compared
with the working file (by their ends: a footer names its file); another file is never replaced. HDFS renames.

Folders are names with slashes in them. pyarrow marks them by empty objects as it removes what was in them; these stay.

Where pyarrow (18 to 26) leaves something open that an export cannot do without, it is set here: a deadline for Google's
client, writes that wait for the network, and a check of Azure's credentials in a process that may die of them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.fs as pafs

from zkgroup.errors import UnreachableError, UsageError, ZkgroupError
from zkgroup.export.model.address import AZURE, ObjectAddress, child
from zkgroup.export.model.plan_types import StoredFile
from zkgroup.export.stores.store import WorkFile, is_published, map_parallel, name_conflict

# The store's client has tried each request several times before it gives up.
_SENDS: Final = 3
_REST: Final = 1.0  # seconds between them
# The end of a file, in bytes: of two that are compared it has the footer, which names the run and the file.
_TAIL: Final = 64 * 1024
# S3 copies no more than 5 GiB in one request; what is larger goes through this process.
_COPY_BYTES: Final = 5 << 30
_CHUNK: Final = 4 << 20
#: Where pyarrow (26) lists folders only if somebody has made an object for them: they are in the names of all below.
_FLAT: Final = ("gs",)
_RENAMING: Final = ("hdfs", "viewfs")
# A file that is written there is seen before it is whole (Azure: empty first, in pyarrow 26).
_STAGED: Final = (*_RENAMING, *AZURE)


class _SentFile:
    """Without a name on this machine, and sent at the end.

    An object's bytes cannot be had back once they are sent, and a stream to a store keeps megabytes for as long as it
    is open; a task may have many files open at a time. So data for a store is first written to a file without a name in
    this machine's temporary folder, which ends with the process whatever happens to it, and is sent as a whole: again,
    if the store fails.
    """

    def __init__(self, store: ObjectStore, name: str) -> None:
        self._store = store
        self.name = name
        self._file = tempfile.TemporaryFile(prefix="zkgroup-export-", buffering=0)  # noqa: SIM115  # closed at its end
        self._path = f"/dev/fd/{self._file.fileno()}"
        self.sink = pa.OSFile(self._path, "wb")

    def finish(self) -> int:
        self.sink.close()
        size = os.fstat(self._file.fileno()).st_size
        try:
            with pa.OSFile(self._path, "rb") as source:
                self._store.upload(source, self.name, size)
        finally:
            self._file.close()
        return size

    def abandon(self) -> None:
        self.sink.close()
        self._file.close()


class ObjectStore:
    """A place in an object store, as ``Store``. The connection is made with the first use, and kept."""

    descriptors = 2

    def __init__(self, address: ObjectAddress) -> None:
        self.address = address
        self._lock = threading.Lock()
        self._opened: Any = None

    @property
    def uri(self) -> str:
        return self.address.shown

    @property
    def filesystem(self) -> Any:
        with self._lock:
            if self._opened is None:
                self._opened = open_filesystem(self.address)
            return self._opened

    def path(self, name: str) -> str:
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
            if _DENIED.search(str(error)) and self._may_be_listed():
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

    def walk(self, folder: str) -> Iterator[StoredFile]:
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

    def create(self, name: str) -> WorkFile:
        return _SentFile(self, name)

    def work_failure(self, error: OSError) -> ZkgroupError:
        return ZkgroupError(
            f"cannot write to {tempfile.gettempdir()} on {socket.gethostname()}, where files grow: "
            f"{error.strerror or error}",
            "make room there, or let TMPDIR name another folder, then run it again",
        )

    def publish(self, works: Iterable[tuple[str, str, int]]) -> Iterator[None]:
        # The store copies; this process only asks.
        yield from map_parallel(lambda work: self._publish(*work), list(works))

    def _publish(self, work: str, final: str, size: int) -> None:
        if is_published(self, work, final, size):
            return  # the process that published it has tidied up
        if (taken := self.size(final)) is not None:
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
            return bytes(file.read_at(min(_TAIL, size), max(0, size - _TAIL)))

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
        """``source`` (an open pyarrow file of ``size`` bytes) as the file ``name``, a chunk in memory at a time."""
        for left in reversed(range(_SENDS)):
            try:
                with self.filesystem.open_output_stream(self.path(name)) as target:
                    for start in range(0, size, _CHUNK):
                        target.write(source.read_at(min(_CHUNK, size - start), start))
                return
            except FAILURES as error:
                if not left:
                    raise self.failure("cannot write", name, error) from None
                time.sleep(_REST)

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
        return store_failure(self.address, what, error, f"{self.uri}/{name}" if name else self.uri)


log = logging.getLogger(__name__)

#: What pyarrow raises where a store does not do what it is asked for.
FAILURES: Final = (OSError, pa.ArrowException)
# Seconds. A request on which nothing moves for so long is given up, and repeated.
_CONNECT: Final = 5.0
_STALL: Final = 20.0
_TRIES: Final = 5
# Options where the URI has none. Google's client tries for 15 minutes; Azure's keeps all of a file in memory where the
# network is slower than the disk.
_DEFAULTS: Final[Mapping[str, str]] = {
    "gs": "retry_limit_seconds=30",
    **dict.fromkeys(AZURE, "background_writes=false"),
}
# Seconds that Azure's client is given to find credentials: it asks the network for some.
_FINDING: Final = 60.0
_LINE: Final = 400


def open_filesystem(address: ObjectAddress) -> Any:
    """pyarrow's filesystem for ``address``. Raises ``UsageError``."""
    try:
        if address.scheme == "s3":
            return _open_s3(address)
        return pafs.FileSystem.from_uri(uri_with_defaults(address))[0]
    except (*FAILURES, ValueError, NotImplementedError) as error:
        raise UsageError(
            f"cannot use {address}: {without_secrets(address, error)[:_LINE]}", "check --to and its options"
        ) from None


def uri_with_defaults(address: ObjectAddress) -> str:
    """As pyarrow is given it."""
    option = _DEFAULTS.get(address.scheme, "")
    if not option or option.partition("=")[0] in address.options:
        return address.uri
    return f"{address.uri}{'&' if '?' in address.uri else '?'}{option}"


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


def check_credentials(address: ObjectAddress) -> None:
    """See that the store's client finds credentials, where it may end its process if it does not: Azure's throws what
    pyarrow (26) does not catch. Raises ``ZkgroupError``."""
    if address.scheme not in AZURE or "sig" in address.options or "anonymous" in address.options.values():
        return
    # By the standard input: options may be secret, and arguments are seen by all.
    script = "import sys, pyarrow.fs as fs; fs.FileSystem.from_uri(sys.stdin.read())[0].get_file_info(sys.argv[1])"
    command = [sys.executable, "-c", script, address.container]
    try:
        done = subprocess.run(
            command, input=uri_with_defaults(address).encode(), capture_output=True, timeout=_FINDING, check=False
        )
    except subprocess.TimeoutExpired:
        raise store_failure(address, "cannot read", OSError("timed out")) from None
    if done.returncode < 0:
        text = re.search(r"what\(\): *(.*)", done.stderr.decode(errors="replace"))
        raise store_failure(address, "cannot read", OSError(f"{_NONE}: {text[1] if text else done.returncode}"))


def without_secrets(address: ObjectAddress, error: Exception) -> str:
    """What pyarrow says, on one line, without what may be secret."""
    text = " ".join(str(error).split())
    text = text.replace(uri_with_defaults(address), address.shown).replace(address.uri, address.shown)
    text = re.sub(r"(https?://[^\s?'\"]+)\?[^\s'\"]*", r"\1", text)  # Azure's signatures, written in any way
    for hidden in sorted({address.secret or "", address.key or "", *address.hidden} - {""}, key=len, reverse=True):
        text = text.replace(hidden, "***")
    return re.sub(r" ?\(Request ID: [^)]*\)", "", text) or type(error).__name__


# Of AWS's client, and of the libraries that Google's, Azure's and Hadoop's are made of.
_SILENT: Final = re.compile(
    r"NETWORK_CONNECTION|curlCode: (?:5|6|7|28|35|52|55|56)\b|REQUEST_TIMEOUT|[Cc]ould ?n[o']t (?:connect|resolve)|"
    r"[Cc]onnection refused|[Tt]imed out|Timeout was reached|UNAVAILABLE|DEADLINE_EXCEEDED|UnknownHostException|"
    r"ConnectException"
)
_NONE: Final = "Azure's client found none"
_DENIED: Final = re.compile(
    rf"{_NONE}|AuthenticationException|Failed to get token|OAuth2 access token|ACCESS_DENIED|INVALID_ACCESS_KEY_ID|"
    r"INVALID_CLIENT_TOKEN_ID|SIGNATURE_DOES_NOT_MATCH|UNRECOGNIZED_CLIENT|MISSING_AUTHENTICATION_TOKEN|EXPIRED_TOKEN|"
    r"ExpiredToken|HTTP status (?:401|403)|Azure Error: \[\w*\] 40[13]\b|PERMISSION_DENIED|UNAUTHENTICATED|"
    r"AuthenticationFailed|Authorization(?:Failure|PermissionMismatch)|AccessControlException"
)
# What to check: the store's address, and the credentials.
_REMEDIES: Final[Mapping[str, tuple[str, str]]] = {
    "s3": ("its endpoint (AWS_ENDPOINT_URL)", "the keys (AWS_ACCESS_KEY_ID, …)"),
    "gs": ("the network", "the credentials (GOOGLE_APPLICATION_CREDENTIALS)"),
    "abfs": ("the account's name and the network", "the credentials (AZURE_CLIENT_ID, …, or a SAS in --to)"),
    "hdfs": ("its name node", "this user's ticket"),
}


def store_failure(address: ObjectAddress, what: str, error: Exception, place: str = "") -> ZkgroupError:
    """The error for ``what`` pyarrow could not do at ``place`` (``address`` itself by default), in our words where the
    cause is plain, in the store's own elsewhere. Its words are logged."""
    text, what = without_secrets(address, error), f"{what} {place or address}"
    log.info("%s: %s", what, text)
    where, who = _REMEDIES.get("abfs" if address.scheme in AZURE else address.scheme, _REMEDIES["hdfs"])
    if _SILENT.search(text):
        return UnreachableError(f"{what}: the store does not answer", f"check {where}, then run it again")
    if _DENIED.search(text):
        return ZkgroupError(
            f"{what}: the store does not allow it to these credentials, or does not know them",
            f"check {who} and what they may do there, then run it again",
        )
    return ZkgroupError(f"{what}: {text[:_LINE]}", "see to the store, then run it again")
