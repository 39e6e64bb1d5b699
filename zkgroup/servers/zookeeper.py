"""ZooKeeper, through kazoo. The only place that imports it.

``Session`` is one ZooKeeper session, asynchronous: what a member runs on. It takes the operations of
``zkgroup.protocol.ops``. For commands, ``zkgroup.servers.registry`` puts a synchronous face on it.

kazoo (2.11) reconnects under a *new* session after an expiry and sends what was queued meanwhile. A ``Session``
therefore accepts nothing once its session is lost: what was queued before is failed by kazoo itself, and the client is
stopped and never used again.
"""

from __future__ import annotations

import logging
import select
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionClosedError,
    ConnectionDropped,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol import serialization as wire
from kazoo.protocol.connection import CLOSE_RESPONSE, ConnectionHandler
from kazoo.protocol.states import KeeperState, WatchedEvent, ZnodeStat
from kazoo.retry import KazooRetry
from kazoo.security import ACL, Id

from zkgroup.protocol.ops import (
    Acl,
    Acls,
    Changed,
    Check,
    Children,
    Code,
    Connected,
    Create,
    Delete,
    Disconnected,
    Ensure,
    Exists,
    Expired,
    Failure,
    Get,
    GetAcl,
    Node,
    Op,
    Result,
    SessionEvent,
    SetData,
    Stat,
    Sync,
    Transaction,
)
from zkgroup.servers.pipeline import WINDOW, Batch, Bell

log = logging.getLogger(__name__)
# What kazoo says: heard by who listens to "kazoo". Nobody set up logging: then Python would print its warnings.
KAZOO_LOG = logging.getLogger("kazoo.zkgroup")
KAZOO_LOG.addHandler(logging.NullHandler())


def _hide_credentials(record: logging.LogRecord) -> bool:
    """kazoo logs each request as it is, passwords too."""
    if isinstance(record.args, tuple):
        record.args = tuple("Auth(…)" if isinstance(one, wire.Auth) else one for one in record.args)
    return True


KAZOO_LOG.addFilter(_hide_credentials)

# Bytes that are written, or read, at one go.
_CHUNK = 64 << 10
_FRAME = struct.Struct("!iii")  # of a request: length, xid, type
_LENGTH = struct.Struct("!i")
# kazoo waits at least 10 s for its connection thread; a caller that leaves does not.
CLOSE_TIMEOUT = 3.0

_CODES: tuple[tuple[type[BaseException], Code], ...] = (
    (NoNodeError, Code.NO_NODE),
    (NodeExistsError, Code.NODE_EXISTS),
    (BadVersionError, Code.BAD_VERSION),
    (NotEmptyError, Code.NOT_EMPTY),
    (NoAuthError, Code.NO_AUTH),
    (AuthFailedError, Code.NO_AUTH),
    (SessionExpiredError, Code.SESSION_EXPIRED),
    (ConnectionLoss, Code.CONNECTION_LOSS),
    (ConnectionClosedError, Code.CONNECTION_LOSS),
)


@dataclass(frozen=True, slots=True)
class ZooKeeperSettings:
    """How to reach a ZooKeeper. ``hosts`` is a connect string with its chroot; times are seconds."""

    hosts: str
    session_timeout: float = 6.0
    connect_timeout: float = 5.0
    auth: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def chroot(self) -> str:
        """The chroot, ``/`` if there is none."""
        return "/" + self.hosts.partition("/")[2].strip("/")


def _failure(error: BaseException) -> Failure:
    for kind, code in _CODES:
        if isinstance(error, kind):
            return Failure(code, type(error).__name__)
    return Failure(Code.OTHER, f"{type(error).__name__}: {error}".rstrip(": "))


def _stat(stat: ZnodeStat) -> Stat:
    return Stat(
        stat.czxid,
        stat.mzxid,
        stat.version,
        stat.ctime,
        stat.mtime,
        stat.ephemeralOwner,
        stat.numChildren,
        stat.pzxid,
    )


def _kazoo_acl(acl: Sequence[Acl]) -> list[Any]:
    return [ACL(entry.permissions, Id(entry.scheme, entry.id)) for entry in acl]


def _convert(op: Op, value: object) -> Result:
    match op:
        case Get():
            data, stat = cast("tuple[bytes | None, ZnodeStat]", value)
            return Node(data or b"", _stat(stat))
        case Children():
            return tuple(cast("list[str]", value))
        case GetAcl():
            entries, _ = cast("tuple[list[Any], ZnodeStat]", value)
            return Acls(tuple(Acl(entry.id.scheme, entry.id.id, entry.perms) for entry in entries))
        case Exists() | SetData():
            return None if value is None else _stat(cast("ZnodeStat", value))
        case Transaction():
            return _transaction_result(cast("list[object]", value))
        case _:
            return None


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's own builds an epoll set for each of some five waits a request, which takes half of the time; a plain
    select() does for the two descriptors there are, as long as their numbers are small enough for it."""

    def select(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return select.select(*args, **kwargs)
        except ValueError:  # a descriptor beyond FD_SETSIZE, or closed meanwhile
            return super().select(*args, **kwargs)

    def dispatch_callback(self, callback: Any) -> None:
        """Watchers are called on the connection's thread, as answers are taken there. On the worker thread of kazoo's
        an event could be overtaken by the answer to what was asked after the change; a member that takes an owner node
        for its own, since no change of it was told, must not hear of things in that order."""
        if callback.type == "watch":
            callback.func(*callback.args)
        else:
            super().dispatch_callback(callback)

    def create_socket_pair(self) -> tuple[socket.socket, Bell]:
        ours, theirs = super().create_socket_pair()
        return ours, Bell(theirs)


class _Connection(ConnectionHandler):  # type: ignore[misc]
    """kazoo's (2.10, 2.11) spends nine system calls on a request, and tells nobody the time-out that the server grants,
    on which a member's lease depends. This one writes all that is queued at once, and reads all that has come."""

    def __init__(self, client: Any, granted: Callable[[float], None]) -> None:
        super().__init__(client, client._connection.retry_sleeper, client.logger)
        self._granted = granted
        self._xid: int = 0
        self._received = b""
        self._at = 0  # what is before it was taken

    def _connect(self, host: str, hostip: str, port: int) -> Any:
        self._received, self._at = b"", 0
        return super()._connect(host, hostip, port)

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        answer = super()._invoke(timeout, request, xid)
        if isinstance(request, wire.Connect):  # before the listeners hear CONNECTED
            self._granted(answer[0].time_out / 1000.0)
        return answer

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        self._read_sock.recv(_CHUNK)  # before the queue is looked at: who adds to it after that rings again
        queue, pending = self.client._queue, self.client._pending
        frames = bytearray()
        while queue and len(frames) < _CHUNK:
            request, answer = queue[0]
            body = request.serialize()
            self._xid = self._xid % 0x7FFFFFFF + 1
            frames += _FRAME.pack(len(body) + 8, self._xid, request.type)
            frames += body
            pending.append((request, answer, self._xid))
            queue.popleft()
        if queue:
            self._write_sock.send(b"\0")
        if frames:
            self._write(frames, connect_timeout)

    def _read_socket(self, read_timeout: float) -> Any:
        """Called when there is something to read. Handles each whole frame; the rest waits for more."""
        with self._socket_error_handling():
            try:
                chunk = self._socket.recv(_CHUNK)
            except BlockingIOError:
                return None
        if not chunk:
            raise ConnectionDropped("socket connection broken")
        self._received = self._received[self._at :] + chunk
        self._at = 0
        response = None
        while response != CLOSE_RESPONSE and self._end_of_frame():
            response = super()._read_socket(read_timeout)
        return response

    def _end_of_frame(self) -> int:
        """Where the next frame ends in what was received; 0 where it is not there whole."""
        begin = self._at + _LENGTH.size
        if len(self._received) < begin:
            return 0
        end: int = begin + _LENGTH.unpack_from(self._received, self._at)[0]
        return end if end <= len(self._received) else 0

    def _read_header(self, timeout: float) -> Any:
        if not (end := self._end_of_frame()):
            return super()._read_header(timeout)  # a hand-shake, which waits for its answers
        frame = self._received[self._at + _LENGTH.size : end]
        self._at = end
        return wire.ReplyHeader(*wire.reply_header_struct.unpack_from(frame)), frame, wire.reply_header_struct.size


class _Answer:
    """What kazoo gives a request's outcome to, on the connection's thread; an ``AsyncResult`` of its own would pass it
    on to another thread, at a price."""

    __slots__ = ("_batch", "_index", "_session")

    def __init__(self, session: Session, batch: Batch, index: int) -> None:
        self._session = session
        self._batch = batch
        self._index = index

    def set(self, value: object) -> None:
        self._take(_convert(self._batch.ops[self._index], value))

    def set_exception(self, error: BaseException) -> None:
        self._take(_failure(error))

    def hear(self, outcome: Any) -> None:
        """The same from an ``AsyncResult``."""
        try:
            self.set(outcome.get_nowait())
        except KazooException as error:
            self.set_exception(error)

    def _take(self, result: Result) -> None:
        self._session.answers += 1
        if self._batch.answer(self._index, result):
            self._session._send(self._batch)


class Session:
    """One ZooKeeper session.

    ``on_event`` is called on kazoo's threads: it must only hand the event on. Events: ``Connected`` at the start and
    after every reconnect, ``Disconnected``, ``Expired`` once and last, ``Changed`` for what is watched: before any
    answer that the server gave after the change. Nothing is told once ``begin_close`` was called.
    """

    def __init__(self, settings: ZooKeeperSettings, on_event: Callable[[SessionEvent], None]) -> None:
        self.settings = settings
        self._on_event = on_event
        self._client: Any = None
        self._lock = threading.RLock()
        self._lost = False
        self._closer: threading.Thread | None = None
        self._closed = threading.Event()  # by the closer, which a join that a signal interrupts would take for ended
        self._negotiated = settings.session_timeout
        self.answers = 0  # grows as long as the server answers

    @property
    def session_id(self) -> int:
        """The server's id of this session; 0 before it is established."""
        client_id = self._client.client_id if self._client is not None else None
        return client_id[0] if client_id else 0

    def start(self) -> None:
        """Begin to connect, and return at once; ``Connected`` tells when it is done."""
        client = KazooClient(
            hosts=self.settings.hosts,
            handler=_Handler(),
            timeout=self.settings.session_timeout,
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_delay=1.0),
            auth_data=list(self.settings.auth) or None,
            logger=KAZOO_LOG,
        )
        client._connection = _Connection(client, self._note_granted)
        client.add_listener(self._listen)
        self._client = client
        client.start_async()

    def _note_granted(self, timeout: float) -> None:
        self._negotiated = timeout

    def _listen(self, state: str) -> None:
        if self._lost:
            return  # kazoo goes on under a new session, until it is stopped
        if state == KazooState.CONNECTED:
            self._on_event(Connected(self.session_id, self._negotiated))
        elif state == KazooState.SUSPENDED:
            self._on_event(Disconnected())
        else:
            self._lose()

    def _lose(self) -> None:
        with self._lock:
            if self._lost:
                return
            self._lost = True
        refused = self._client.client_state == KeeperState.AUTH_FAILED
        self._on_event(Expired("authentication failed" if refused else "expired"))

    def _watch(self, event: WatchedEvent) -> None:
        # kazoo also calls watchers, without a path, when the connection drops: Disconnected has told that already.
        if event.path is not None and not self._lost:
            self._on_event(Changed(event.path))

    def submit(self, ops: Sequence[Op], done: Callable[[list[Result]], None]) -> None:
        """Send ``ops`` in their order, pipelined; ``done`` gets one result each. It is called on a thread of kazoo's,
        or on the caller's where nothing can be sent, and must only hand them on.

        Nothing is queued while the connection is down: it fails with ``CONNECTION_LOSS`` at once, and with
        ``SESSION_EXPIRED`` when the session is over. Later operations are sent even if earlier ones fail.
        """
        if not ops:
            done([])
            return
        self._send(Batch(ops, done))

    def _send(self, batch: Batch) -> None:
        with self._lock:
            if self._lost:
                refused = Failure(Code.SESSION_EXPIRED, "session is over")
            elif self._client is None or not self._client.connected:
                refused = Failure(Code.CONNECTION_LOSS, "not connected")
            else:
                for index in batch.take(WINDOW):
                    self._call(batch.ops[index], _Answer(self, batch, index))
                self._client._connection._write_sock.send(b"\0")
                return
        batch.refuse(refused)

    def _call(self, op: Op, answer: _Answer) -> None:
        """Queue one operation. What is queued goes out once the connection is rung."""
        client = self._client
        if isinstance(op, Ensure):
            client.ensure_path_async(op.path).rawlink(answer.hear)
            return
        client._queue.append((self._request(op, client.chroot), answer))

    def _request(self, op: Op | Check, root: str) -> Any:
        """The operation as kazoo writes it."""
        if isinstance(op, Transaction):
            return wire.Transaction([self._request(one, root) for one in op.ops])
        path = root + op.path if op.path != "/" else root or "/"
        match op:
            case Get(_, watch):
                return wire.GetData(path, self._watch if watch else None)
            case Children(_, watch):
                return wire.GetChildren(path, self._watch if watch else None)
            case Exists(_, watch):
                return wire.Exists(path, self._watch if watch else None)
            case GetAcl():
                return wire.GetACL(path)
            case Create(_, data, ephemeral, acl):
                return wire.Create(path, data, _kazoo_acl(acl), int(ephemeral))
            case SetData(_, data, version):
                return wire.SetData(path, data, version)
            case Delete(_, version):
                return wire.Delete(path, version)
            case Check(_, version):
                return wire.CheckVersion(path, version)
            case Sync():
                return wire.Sync(path)

    def begin_close(self) -> None:
        """Begin to end the session; its ephemeral nodes go with it. Nothing more is sent under it."""
        client = self._client
        with self._lock:
            self._lost = True
        if client is None or self._closer is not None:
            return

        def stop() -> None:
            try:
                client.stop()
                client.close()
            except Exception as error:  # noqa: BLE001 - kazoo raises bare Exceptions when its thread is stuck
                log.debug("closing the ZooKeeper client: %s", error)
            finally:
                self._closed.set()

        self._closer = threading.Thread(target=stop, name="zkgroup-zk-close", daemon=True)
        self._closer.start()

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """End the session, and wait for that at most ``timeout`` seconds."""
        self.begin_close()
        if self._closer is not None:
            self._closed.wait(timeout)


def _transaction_result(answers: Sequence[object]) -> Failure | None:
    for index, answer in enumerate(answers):
        # The culprit stands between those that were rolled back and those that were never tried.
        if isinstance(answer, Exception) and not isinstance(answer, RolledBackError | RuntimeInconsistency):
            failure = _failure(answer)
            return Failure(failure.code, failure.detail, index)
    return None
