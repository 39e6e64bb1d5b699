"""One ZooKeeper session, with its pipelined requests.

kazoo (2.11) reconnects under a *new* session after an expiry and sends what was queued meanwhile. A ``Session``
therefore accepts nothing once its session is lost: what was queued before is failed by kazoo itself, and the client is
stopped and never used again.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import KazooException, SessionClosedRequireSaslError
from kazoo.protocol import serialization as wire
from kazoo.protocol.states import KeeperState, WatchedEvent
from kazoo.retry import KazooRetry

from zkgroup.clients.connection_security import ConnectionFailure, ssl_context
from zkgroup.clients.zookeeper.kazoo_connection import (
    Connection,
    Handler,
    ZooKeeperSettings,
    login_failure,
)
from zkgroup.clients.zookeeper.kazoo_operations import convert, failure_of, kazoo_acl, request_of
from zkgroup.config.connection_settings import KerberosSettings
from zkgroup.protocol.operations import (
    Changed,
    Code,
    Connected,
    Disconnected,
    Ensure,
    Expired,
    Failure,
    Op,
    Result,
    SessionEvent,
)

log = logging.getLogger(__name__)

# Without a handler Python would print its warnings.
KAZOO_LOG = logging.getLogger("kazoo.zkgroup")
KAZOO_LOG.addHandler(logging.NullHandler())


# In an access list: the digest of a password, against which guesses could be tried.
_DIGEST: Final = re.compile(r"""(Id\(scheme='digest', id=(['"]).*?):[A-Za-z0-9+/=]*\2\)""")


class _Shown(str):
    """An argument as it is logged, with any format."""

    __repr__ = str.__str__


def _hide_credentials(record: logging.LogRecord) -> bool:
    """kazoo logs each request and answer as it is, with passwords and their digests."""
    if isinstance(record.args, tuple):
        record.args = tuple(map(_shown, record.args))
    return True


def _shown(one: Any) -> Any:
    if isinstance(one, wire.Auth | wire.SASL):
        return f"{type(one).__name__}(…)"
    if isinstance(one, str | int | float | None):
        return one
    shown, hidden = _DIGEST.subn(r"\1:…\2)", repr(one))
    return _Shown(shown) if hidden else one


KAZOO_LOG.addFilter(_hide_credentials)

# Seconds to wait for the end of a session. kazoo itself waits at least 10 s for its connection thread.
CLOSE_TIMEOUT = 3.0


class _Answer:
    """Takes a request's outcome from kazoo, on the connection's thread: kazoo's ``AsyncResult`` needs another one."""

    __slots__ = ("_batch", "_index", "_session")

    def __init__(self, session: Session, batch: RequestBatch, index: int) -> None:
        self._session = session
        self._batch = batch
        self._index = index

    def set(self, value: object) -> None:
        self._settle(convert(self._batch.ops[self._index], value))

    def set_exception(self, error: BaseException) -> None:
        if isinstance(error, SessionClosedRequireSaslError):
            self._session._refuse()
        self._settle(failure_of(error))

    def from_result(self, outcome: Any) -> None:
        """The same from an ``AsyncResult``."""
        try:
            self.set(outcome.get_nowait())
        except KazooException as error:
            self.set_exception(error)

    def _settle(self, result: Result) -> None:
        self._session.answers += 1
        if self._batch.answer(self._index, result):
            self._session._send(self._batch)


class Session:
    """One ZooKeeper session.

    ``on_event`` is called on kazoo's threads and must not block. Events: ``Connected`` at the start and after every
    reconnect, ``Disconnected``, ``Expired`` once and last, ``Changed`` for watched nodes: before any answer that the
    server gave after the change. No event follows ``begin_close``. ``on_failure`` is called on the same threads for
    each connection that failed by its certificates, passwords or protocol.

    Raises UsageError for TLS files that cannot be used, and where the library of Kerberos is wanted and missing.
    """

    def __init__(
        self,
        settings: ZooKeeperSettings,
        on_event: Callable[[SessionEvent], None],
        on_failure: Callable[[ConnectionFailure], None] = lambda trouble: None,
    ) -> None:
        self.settings = settings
        self._on_event = on_event
        self._on_failure = on_failure
        self._context = ssl_context(settings.tls, "TLS with ZooKeeper") if settings.tls is not None else None
        if isinstance(settings.sasl, KerberosSettings):
            from zkgroup.clients.zookeeper.sasl_login import load_library  # only where it is needed

            load_library()
        self._client: Any = None
        self._lock = threading.RLock()
        self._lost = False
        self._connected = False  # as far as reported; set by kazoo's connection thread alone
        self._closer: threading.Thread | None = None
        self._closed = threading.Event()  # by the closer, which a join that a signal interrupts would take for ended
        self.answers = 0  # grows as long as the server answers

    @property
    def session_id(self) -> int:
        """The server's id of this session; 0 before it is established."""
        client_id = self._client.client_id if self._client is not None else None
        return client_id[0] if client_id else 0

    def start(self) -> None:
        """Begin to connect, and return at once; ``Connected`` follows."""
        client = KazooClient(
            hosts=self.settings.hosts,
            handler=Handler(self.settings.servers, self._context),
            timeout=self.settings.session_timeout,
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_delay=1.0),
            auth_data=list(self.settings.auth) or None,
            default_acl=kazoo_acl(self.settings.default_acl),
            sasl_options={} if self.settings.sasl else None,  # whether to log in: the connection knows how
            use_ssl=self._context is not None,  # for kazoo's log alone: the handler connects
            logger=KAZOO_LOG,
        )
        client._connection = Connection(client, self.settings, self._report_connected, self._on_failure)
        client.add_listener(self._listen)
        self._client = client
        client.start_async()

    def _report_connected(self) -> None:
        if not self._lost:
            self._connected = True
            connection = self._client._connection
            self._on_event(Connected(self.session_id, connection.session_timeout, connection.server))

    def _listen(self, state: str) -> None:
        if self._lost:
            return  # kazoo goes on under a new session, until it is stopped
        if state == KazooState.SUSPENDED and self._connected:
            self._connected = False
            self._on_event(Disconnected(self._client._connection.server))
        elif state == KazooState.LOST:
            self._lose()

    def _lose(self) -> None:
        with self._lock:
            if self._lost:
                return
            self._lost = True
        refused = self._client.client_state == KeeperState.AUTH_FAILED
        self._on_event(Expired("authentication failed" if refused else "expired", refused))

    def _refuse(self) -> None:
        """The server accepts the connection, and answers nothing without a user."""
        if not self._lost:
            self._on_failure(login_failure(self._client._connection.server, self.settings))
            self._lose()

    def _watch(self, event: WatchedEvent) -> None:
        # kazoo also calls watchers, without a path, when the connection drops: that is ``Disconnected`` already.
        if event.path is not None and not self._lost:
            self._on_event(Changed(event.path))

    def submit(self, ops: Sequence[Op], done: Callable[[list[Result]], None]) -> None:
        """Send ``ops`` in their order, pipelined; ``done`` gets one result each. It is called on a thread of kazoo's,
        or on the caller's where nothing can be sent, and must not block.

        Without a connection the operations fail with ``CONNECTION_LOSS`` at once, after the session's end with
        ``SESSION_EXPIRED``. Later operations are sent even if earlier ones fail.
        """
        if not ops:
            done([])
            return
        self._send(RequestBatch(ops, done))

    def _send(self, batch: RequestBatch) -> None:
        with self._lock:
            if self._lost:
                refused = Failure(Code.SESSION_EXPIRED, "session is over")
            elif self._client is None or not self._client.connected:
                refused = Failure(Code.CONNECTION_LOSS, "not connected")
            else:
                for index in batch.window(MAX_UNANSWERED):
                    self._call(batch.ops[index], _Answer(self, batch, index))
                self._client._connection._write_sock.send(b"\0")
                return
        batch.refuse(refused)

    def _call(self, op: Op, answer: _Answer) -> None:
        """Queue one operation. The queue is sent once the bell rings."""
        client = self._client
        if isinstance(op, Ensure):
            client.ensure_path_async(op.path).rawlink(answer.from_result)
            return
        client._queue.append((request_of(op, client.chroot, self._watch, self.settings.default_acl), answer))

    def begin_close(self) -> None:
        """Begin to end the session; ZooKeeper deletes its ephemeral nodes. Nothing more is sent under it."""
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


#: Requests on the wire at once: enough to hide the round trip. The server throttles beyond (globalOutstandingLimit).
MAX_UNANSWERED: Final = 1000


class RequestBatch:
    """Operations of one session: at most ``MAX_UNANSWERED`` on the wire, answered in order."""

    def __init__(self, ops: Sequence[Op], done: Callable[[list[Result]], None]) -> None:
        self.ops = ops
        self._results: list[Result] = [None] * len(ops)
        self._sent = 0
        self._answered = 0
        self._done = done
        self._lock = threading.Lock()

    def window(self, limit: int) -> range:
        """The operations to send next; from now on they count as sent."""
        with self._lock:
            first = self._sent
            self._sent = min(len(self.ops), max(first, self._answered + limit))
            return range(first, self._sent)

    def answer(self, index: int, result: Result) -> bool:
        """Take one answer. True once enough have come for more to be sent."""
        with self._lock:
            self._results[index] = result
            self._answered += 1
            finished = self._answered == len(self.ops)
            more = self._sent < len(self.ops) and self._sent - self._answered <= MAX_UNANSWERED // 2
        if finished:
            self._done(self._results)
        return more

    def refuse(self, why: Failure) -> None:
        """Answer all operations that were not sent: they never will be."""
        for index in self.window(len(self.ops)):
            self.answer(index, why)
