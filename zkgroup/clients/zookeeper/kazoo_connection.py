"""A connection to ZooKeeper: its settings, kazoo's connection with fewer system calls, and why one failed."""

from __future__ import annotations

import errno
import select
import socket
import ssl
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from kazoo.exceptions import AuthFailedError, ConnectionDropped
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol import serialization as wire
from kazoo.protocol.connection import CLOSE_RESPONSE, ConnectionHandler

from zkgroup.clients.connection_security import (
    ConnectionFailure,
    Explanation,
    FailureCause,
    certificate_refused,
    client_refused,
    connect_tls,
    is_tls_server,
)
from zkgroup.config.connection_settings import KerberosSettings, TlsSettings
from zkgroup.config.settings_table import CONNECT_TIMEOUT, DEFAULTS
from zkgroup.protocol.broker_znodes import address
from zkgroup.protocol.operations import OPEN, Acl


@dataclass(frozen=True, slots=True)
class ZooKeeperSettings:
    """How to reach a ZooKeeper. ``hosts`` is a connect string with its chroot; times are seconds.

    ``auth``: schemes and credentials, as ``addauth`` takes them. ``tls``: used if given. ``sasl``: user and password
    for DIGEST-MD5, or Kerberos. ``acl``: the access list of created nodes. By default a member's nodes are open to
    everyone, as the Scala consumer's, and commands copy the list of the parent, or of the copied node.
    """

    hosts: str
    session_timeout: float = DEFAULTS["zookeeper_session_timeout_ms"] / 1000
    connect_timeout: float = CONNECT_TIMEOUT
    auth: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    tls: TlsSettings | None = None
    sasl: tuple[str, str] | KerberosSettings | None = field(default=None, repr=False)
    acl: tuple[Acl, ...] | None = None

    @property
    def chroot(self) -> str:
        """The chroot, ``/`` if there is none."""
        return "/" + self.hosts.partition("/")[2].strip("/")

    @property
    def servers(self) -> int:
        """The number of servers in the connect string."""
        return self.hosts.partition("/")[0].count(",") + 1

    @property
    def default_acl(self) -> tuple[Acl, ...]:
        """The access list of a node that is created without one."""
        return self.acl or OPEN


def login_failure(server: str, settings: ZooKeeperSettings, cause: BaseException | None = None) -> ConnectionFailure:
    """A server that refuses user and password, other credentials, or a client without any. ``cause``: a
    ``ConnectionFailure`` where the login fails before."""
    if isinstance(cause, ConnectionFailure):
        message = f"cannot log in to ZooKeeper at {server}: {cause.message}"
        return ConnectionFailure(cause.cause, message, cause.remedy or "", server=server, is_final=cause.is_final)
    reason = FailureCause.LOGIN_REFUSED
    if isinstance(settings.sasl, KerberosSettings):
        whom = "the login with Kerberos"
        remedy = "see the server's log: its keytab, its clock, and the section Server of its JAAS file"
    elif settings.sasl is not None:
        whom = f"the user {settings.sasl[0]}"
        remedy = "check name and password (--zookeeper-sasl-user, --zookeeper-sasl-password-file)"
    elif settings.auth:
        whom = "the credentials"
        remedy = "check --zookeeper-auth-file; the server may want a user (--zookeeper-sasl-user) instead"
    else:
        reason, whom = FailureCause.LOGIN_REQUIRED, "clients without a user"
        remedy = "name one with --zookeeper-sasl-user and --zookeeper-sasl-password-file"
    return ConnectionFailure(reason, f"ZooKeeper at {server} refuses {whom}", remedy, server=server)


def connection_failure(
    error: OSError | None, server: tuple[str, str, int], settings: ZooKeeperSettings
) -> ConnectionFailure | None:
    """The failure of a connection to ``server`` (name, address, port), as far as certificates and protocols explain it;
    None otherwise. ``error``: the socket's, None where the server ended the connection."""
    host, ip, port = server
    where = address(host, port)
    found = _explanation(error, f"ZooKeeper at {where}", (ip, port), settings.tls)
    # A server that ends a connection without an alert may just be stopping.
    is_final = settings.tls is None or error is not None
    return None if found is None else ConnectionFailure(*found, server=where, is_final=is_final)


def _explanation(
    error: OSError | None, what: str, place: tuple[str, int], tls: TlsSettings | None
) -> Explanation | None:
    if tls is None:
        if isinstance(error, ConnectionRefusedError | TimeoutError) or not is_tls_server(place):
            return None
        remedy = "give --zookeeper-tls and --zookeeper-ca-file, or another port"
        return FailureCause.TLS_REQUIRED, f"{what} speaks TLS at this port", remedy
    if isinstance(error, ssl.SSLCertVerificationError):
        return certificate_refused(error, what, "--zookeeper-ca-file", "--no-zookeeper-check-hostname")
    reason = getattr(error, "reason", None) or ""
    if error is None or "ALERT" in reason:
        # TLS 1.3: the server checks the client's certificate when the hand-shake is over for the client.
        return client_refused(what, tls, reason, "--zookeeper-certificate-file and --zookeeper-key-file")
    if isinstance(error, ssl.SSLEOFError) or error.errno == errno.ECONNRESET:
        remedy = "is this its port for TLS? if so, it may want a client certificate: --zookeeper-certificate-file"
        return FailureCause.HANDSHAKE_ENDED, f"{what} ends the connection at the TLS hand-shake", remedy
    if isinstance(error, ssl.SSLError):
        message = f"{what}: the TLS hand-shake failed ({reason or 'without a reason'})"
        return FailureCause.HANDSHAKE_FAILED, message, "check its TLS settings"
    return None


# Bytes that are written, or read, at once.
_CHUNK = 64 << 10
_FRAME = struct.Struct("!iii")  # of a request: length, xid, type
_LENGTH = struct.Struct("!i")
_MAX_REFUSALS = 3
_MAX_PROBES = 5


class Bell:
    """The end of a socket pair that wakes kazoo's connection. A full socket means that it is awake: ``send``
    does not wait for room, since the connection's thread might need a lock of the caller."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._end = end

    def send(self, data: bytes) -> int:
        try:
            return self._end.send(data)
        except BlockingIOError:
            return 0

    def close(self) -> None:
        self._end.close()


class Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """``hosts`` is the number of servers: they share the time that a connection may take, as in the Java client (3.9),
    so that one that drops packets does not use it up.

    kazoo's own handler builds an epoll set for each of some five waits a request, which takes half of the time. A plain
    select() serves for two descriptors, as long as their numbers are small enough."""

    def __init__(self, hosts: int, context: ssl.SSLContext | None = None) -> None:
        super().__init__()
        self._hosts = hosts
        self._context = context

    def create_connection(self, address: tuple[str, int], *, timeout: float, hostname: str, **options: Any) -> Any:
        timeout /= self._hosts
        if self._context is not None:
            return connect_tls(self._context, address, hostname, timeout)
        return super().create_connection(address=address, hostname=hostname, timeout=timeout, **options)

    def select(self, reading: Any, writing: Any, others: Any, *timeout: float) -> Any:
        # select() does not see bytes that TLS has decrypted already.
        decrypted = [one for one in reading if isinstance(one, ssl.SSLSocket) and one.pending()]
        if decrypted:
            timeout = (0.0,)
        try:
            ready = select.select(reading, writing, others, *timeout)
        except ValueError:  # a descriptor beyond FD_SETSIZE, or closed meanwhile
            ready = super().select(reading, writing, others, *timeout)
        return ([*ready[0], *(one for one in decrypted if one not in ready[0])], *ready[1:]) if decrypted else ready

    def dispatch_callback(self, callback: Any) -> None:
        """Watchers are called on the connection's thread, as answers are. On kazoo's worker thread an answer from after
        the change could overtake the event. A member that takes an owner node for its own, as no event came, relies on
        the order."""
        callback.func(*callback.args)

    def create_socket_pair(self) -> tuple[socket.socket, Bell]:
        ours, theirs = super().create_socket_pair()
        return ours, Bell(theirs)


class Connection(ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection (2.10, 2.11) spends nine system calls on a request, and does not report the time-out that the
    server grants, on which a member's lease depends. This one writes all queued requests at once, and reads all that
    has arrived."""

    def __init__(
        self,
        client: Any,
        settings: ZooKeeperSettings,
        established: Callable[[], None],
        failed: Callable[[ConnectionFailure], None],
    ) -> None:
        """``established`` is called when the connection can be used: kazoo itself reports that before it has logged in.
        ``failed`` gets the failure of a connection."""
        super().__init__(client, client._connection.retry_sleeper, client.logger, client._connection.sasl_options)
        self._settings = settings
        self.session_timeout = 0.0  # that the server has granted, in seconds
        self._established = established
        self._failed = failed
        self._probes = 0
        self._refusals = 0
        self._xid: int = 0
        self._received = b""
        self._last: tuple[str, str, int] | None = None
        self._at = 0  # bytes before it are read
        self._unanswered_since: float | None = None  # when the first request after the last answer was sent

    @property
    def server(self) -> str:
        """The address of the last server that it has tried to connect to."""
        return address(self._last[0], self._last[2]) if self._last is not None else ""

    def _expand_client_hosts(self) -> list[tuple[str, str, int]]:
        """The servers to try in turn: the lost one, which may hang, comes last."""
        return sorted(super()._expand_client_hosts(), key=lambda server: server == self._last)

    def _connect(self, host: str, hostip: str, port: int) -> Any:
        self._received, self._at = b"", 0
        self._unanswered_since = None
        self._last = host, hostip, port
        try:
            timeouts = super()._connect(host, hostip, port)
        except AuthFailedError as error:
            self._failed(login_failure(address(host, port), self._settings, error.__cause__))
            raise
        except ConnectionDropped as error:
            cause = error.__context__ if isinstance(error.__context__, OSError) else None
            if not (self.client.connected or self._refusals or self._probes == _MAX_PROBES):
                self._probes += 1  # a server is not probed at each attempt
                found = connection_failure(cause, (host, hostip, port), self._settings)
                if found is not None:
                    self._failed(found)
            raise
        self._established()
        return timeouts

    def _authenticate_with_sasl(self, host: str, timeout: float) -> None:
        """Log in; called by kazoo, whose own way (2.11) knows Kerberos only with packages that must be compiled.

        ZooKeeper refuses by ending the connection. A server that restarts ends it, too: only the third in a row
        counts."""
        from zkgroup.clients.zookeeper.sasl_login import log_in, next_token  # only where it is needed

        login = log_in(self._settings.sasl or ("", ""), host)
        try:
            answer = None
            for xid in count(1):
                answer = self._exchange(next_token(login, answer, self._settings.connect_timeout / 2), timeout, xid)
        except StopIteration:
            self._refusals = 0
        except ConnectionFailure as error:
            if not error.is_final:
                self._failed(login_failure(self.server, self._settings, error))
                raise ConnectionDropped(error.message) from None
            raise AuthFailedError(error.message) from error
        except ConnectionDropped as error:
            self._refusals += 1
            if self._refusals < _MAX_REFUSALS:
                raise ConnectionDropped("the connection ended while logging in") from None
            raise AuthFailedError("the connection ended while logging in") from error

    def _exchange(self, token: bytes, timeout: float, xid: int) -> bytes:
        """Send a token of the login; the server's answer."""
        self._submit(wire.SASL(token), timeout, xid)
        header, data, offset = self._read_header(timeout)
        if header.err:
            raise AuthFailedError(f"the server answers the login with error {header.err}")
        answer: bytes | None = wire.SASL.deserialize(data, offset)[0]
        return answer or b""

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        answer = super()._invoke(timeout, request, xid)
        if isinstance(request, wire.Connect):  # before the listeners get CONNECTED
            self.session_timeout = answer[0].time_out / 1000.0
        return answer

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        now = time.monotonic()
        if self._unanswered_since is not None and now - self._unanswered_since > read_timeout:
            # kazoo notices that only on an idle connection, and a member sends requests all the time.
            raise ConnectionDropped(f"no answer for {read_timeout:.1f} s")
        self._read_sock.recv(_CHUNK)  # before the queue is read: a later request rings again
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
            self._unanswered_since = self._unanswered_since or now
            self._write(frames, connect_timeout)

    def _read_socket(self, read_timeout: float) -> Any:
        """Called when the socket is readable. Handles each whole frame; an incomplete one waits for its rest."""
        with self._socket_error_handling():
            try:
                chunk = self._socket.recv(_CHUNK)
            except (BlockingIOError, ssl.SSLWantReadError):
                return None
        if not chunk:
            raise ConnectionDropped("socket connection broken")
        self._unanswered_since = None
        self._received = self._received[self._at :] + chunk
        self._at = 0
        response = None
        while response != CLOSE_RESPONSE and self._end_of_frame():
            response = super()._read_socket(read_timeout)
        return response

    def _end_of_frame(self) -> int:
        """The end of the next frame in the received bytes; 0 where it is incomplete."""
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
