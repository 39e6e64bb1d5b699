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
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionClosedError,
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
from kazoo.protocol.serialization import Connect
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

log = logging.getLogger(__name__)
# What kazoo says: heard by who listens to "kazoo". Nobody set up logging: then Python would print its warnings.
KAZOO_LOG = logging.getLogger("kazoo.zkgroup")
KAZOO_LOG.addHandler(logging.NullHandler())

# Requests on the wire at once: enough to hide the round trip. The server throttles beyond (globalOutstandingLimit).
WINDOW = 1000
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
    return Stat(stat.czxid, stat.mzxid, stat.version, stat.ctime, stat.mtime, stat.ephemeralOwner, stat.numChildren)


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


class _Batch:
    """Operations under way in one session: at most ``WINDOW`` on the wire, answered in order."""

    def __init__(self, ops: Sequence[Op], done: Callable[[list[Result]], None]) -> None:
        self.ops = ops
        self.results: list[Result] = [None] * len(ops)
        self.todo = deque(range(len(ops)))
        self.open = len(ops)
        self.done = done
        self.lock = threading.Lock()

    def answer(self, index: int, result: Result) -> None:
        with self.lock:
            self.results[index] = result
            self.open -= 1
            finished = self.open == 0
        if finished:
            self.done(self.results)


class Session:
    """One ZooKeeper session.

    ``on_event`` is called on kazoo's threads: it must only hand the event on. Events: ``Connected`` at the start and
    after every reconnect, ``Disconnected``, ``Expired`` once and last, ``Changed`` for what is watched. Nothing is told
    once ``begin_close`` was called.
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
        self.requests = 0

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
        self._tap_negotiated_timeout(client._connection)
        client.add_listener(self._listen)
        self._client = client
        client.start_async()

    def _tap_negotiated_timeout(self, connection: Any) -> None:
        # kazoo keeps the negotiated time-out to itself, and a member's lease depends on it. The reply to Connect
        # is read by _invoke (kazoo 2.10, 2.11) before the listeners hear CONNECTED.
        invoke = connection._invoke

        def invoke_and_note(timeout: float, request: Any, xid: int | None = None) -> Any:
            answer = invoke(timeout, request, xid)
            if isinstance(request, Connect):
                self._negotiated = answer[0].time_out / 1000.0
            return answer

        connection._invoke = invoke_and_note

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
        """Send ``ops`` in their order, pipelined; ``done`` gets one result each, on kazoo's thread.

        Nothing is queued while the connection is down: it fails with ``CONNECTION_LOSS`` at once, and with
        ``SESSION_EXPIRED`` when the session is over. Later operations are sent even if earlier ones fail.
        """
        if not ops:
            done([])
            return
        batch = _Batch(ops, done)
        for _ in range(min(WINDOW, len(ops))):
            self._send_next(batch)

    def _send_next(self, batch: _Batch) -> None:
        try:
            index = batch.todo.popleft()
        except IndexError:
            return
        op = batch.ops[index]

        def answered(result: Any) -> None:
            try:
                converted = _convert(op, result.get_nowait())
            except KazooException as error:
                converted = _failure(error)
            self._send_next(batch)
            batch.answer(index, converted)

        with self._lock:
            if self._lost:
                refused: Failure | None = Failure(Code.SESSION_EXPIRED, "session is over")
            elif self._client is None or not self._client.connected:
                refused = Failure(Code.CONNECTION_LOSS, "not connected")
            else:
                refused = None
                self.requests += 1
                self._call(op).rawlink(answered)
        if refused is not None:
            # Not through _send_next: a long batch would recurse as deep as it is long.
            batch.answer(index, refused)
            while True:
                try:
                    index = batch.todo.popleft()
                except IndexError:
                    return
                batch.answer(index, refused)

    def _call(self, op: Op) -> Any:
        client = self._client
        match op:
            case Get(path, watch):
                return client.get_async(path, self._watch if watch else None)
            case Children(path, watch):
                return client.get_children_async(path, self._watch if watch else None)
            case Exists(path, watch):
                return client.exists_async(path, self._watch if watch else None)
            case GetAcl(path):
                return client.get_acls_async(path)
            case Create(path, data, ephemeral, acl):
                return client.create_async(path, data, acl=_kazoo_acl(acl), ephemeral=ephemeral)
            case Ensure(path):
                return client.ensure_path_async(path)
            case SetData(path, data, version):
                return client.set_async(path, data, version)
            case Delete(path, version):
                return client.delete_async(path, version)
            case Sync(path):
                return client.sync_async(path)
            case Transaction(ops):
                return _transaction(client, ops)

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


def _transaction(client: Any, ops: Sequence[Create | SetData | Delete | Check]) -> Any:
    transaction = client.transaction()
    for op in ops:
        match op:
            case Create(path, data, ephemeral, acl):
                transaction.create(path, data, acl=_kazoo_acl(acl), ephemeral=ephemeral)
            case SetData(path, data, version):
                transaction.set_data(path, data, version)
            case Delete(path, version):
                transaction.delete(path, version)
            case Check(path, version):
                transaction.check(path, version)
    return transaction.commit_async()


def _transaction_result(answers: Sequence[object]) -> Failure | None:
    for index, answer in enumerate(answers):
        # The culprit stands between those that were rolled back and those that were never tried.
        if isinstance(answer, Exception) and not isinstance(answer, RolledBackError | RuntimeInconsistency):
            failure = _failure(answer)
            return Failure(failure.code, failure.detail, index)
    return None
