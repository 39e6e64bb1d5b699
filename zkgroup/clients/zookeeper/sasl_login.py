"""Logins by SASL: DIGEST-MD5 (RFC 2831) and GSSAPI (RFC 4752), as ZooKeeper's servers speak them.

A login is a generator. It yields the client's tokens, is sent the server's answer to each, and ends when the server has
proved itself. GSSAPI goes through the library of MIT Kerberos (``libgssapi_krb5``, RFC 2744), which is loaded when it
is needed first; nothing is compiled: a machine that belongs to a realm has it.
"""

from __future__ import annotations

import ctypes
import hmac
import re
import secrets
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_int32, c_size_t, c_uint32, c_void_p
from functools import cache
from hashlib import md5
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeAlias

from zkgroup.clients.connection_security import (
    CLOCKS_DIFFER,
    NO_KDC,
    ConnectionFailure,
    FailureCause,
    no_ticket,
    unknown_service,
)
from zkgroup.config.connection_settings import KerberosSettings
from zkgroup.errors import UsageError

Login: TypeAlias = Generator[bytes, bytes, None]

_DIRECTIVE = re.compile(rb'([\w-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,]*))')
#: The service and host of each server, which ZooKeeper has in place of its own (``SecurityUtils``, 3.4 to 3.9).
_URI = b"zookeeper/zk-sasl-md5"
#: Of RFC 4752: no security layer, and so no size of buffers.
_NO_LAYER = b"\1\0\0\0"


def log_in(sasl: tuple[str, str] | KerberosSettings, host: str) -> Login:
    """The login of these credentials at ``host``, whose name matters to Kerberos."""
    return _kerberos_login(sasl, host) if isinstance(sasl, KerberosSettings) else _digest_login(*sasl)


def next_token(login: Login, answer: bytes | None, timeout: float) -> bytes:
    """The token after ``answer``, None at first. Raises ``StopIteration`` at the end, and ``ConnectionFailure``: also
    where the KDC, for which Kerberos waits as long as ``krb5.conf`` says, takes more than ``timeout`` seconds."""
    outcome = SimpleQueue[bytes | Exception]()

    def step() -> None:
        try:
            outcome.put(login.send(answer))  # type: ignore[arg-type]  # None begins
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            outcome.put(error)

    threading.Thread(target=step, name="zkgroup-login", daemon=True).start()
    try:
        found = outcome.get(timeout=timeout)
    except Empty:
        raise ConnectionFailure(*NO_KDC, is_final=False) from None
    if isinstance(found, Exception):
        raise found
    return found


def _digest_login(user: str, password: str) -> Login:
    asked = _directives((yield b""))
    if b"nonce" not in asked:
        raise _no_sasl("leave the user out, or configure users at the server")
    nonce, realm = asked[b"nonce"], asked.get(b"realm", b"")
    our_nonce = secrets.token_hex(16).encode()
    key = _hash(_octets(user) + b":" + realm + b":" + _octets(password)).digest()
    secret = _hash(b":".join((key, nonce, our_nonce))).hexdigest().encode()

    def proof(method: bytes) -> bytes:
        request = _hash(method + b":" + _URI).hexdigest().encode()
        text: str = _hash(b":".join((secret, nonce, b"00000001", our_nonce, b"auth", request))).hexdigest()
        return text.encode()

    texts = {
        b"username": user.encode(), b"realm": realm, b"nonce": nonce, b"cnonce": our_nonce, b"digest-uri": _URI
    }  # fmt: skip
    quoted = [b'%s="%s"' % (name, re.sub(rb'(["\\])', rb"\\\1", text)) for name, text in texts.items()]
    bare = [b"charset=utf-8", b"nc=00000001", b"qop=auth", b"response=" + proof(b"AUTHENTICATE")]
    answer = _directives((yield b",".join([*quoted, *bare])))
    if not hmac.compare_digest(answer.get(b"rspauth", b""), proof(b"")):
        message = "the server does not know the password itself"
        raise ConnectionFailure(FailureCause.SERVER_UNPROVEN, message, "check the address")


def _no_sasl(remedy: str) -> ConnectionFailure:
    return ConnectionFailure(FailureCause.NO_SASL, "the server has no SASL", remedy)


def _kerberos_login(settings: KerberosSettings, host: str) -> Login:
    context = KerberosContext(settings, host)
    try:
        answer = b""
        while not context.is_complete:
            answer = yield context.step(answer)
            if not answer:
                raise _no_sasl("leave the mechanism out, or configure Kerberos at the server")
        context.unwrap(answer)  # what layers it offers: one that wants encryption refuses what follows
        yield context.wrap(_NO_LAYER)
    finally:
        context.close()


def _hash(data: bytes) -> Any:
    return md5(data, usedforsecurity=False)


def _octets(text: str) -> bytes:
    """As Java hashes it: in ISO-8859-1 where it can be."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _directives(challenge: bytes) -> dict[bytes, bytes]:
    return {
        name: re.sub(rb"\\(.)", rb"\1", quoted) if quoted else bare
        for name, quoted, bare in _DIRECTIVE.findall(challenge)
    }


LIBRARY: Final = "libgssapi_krb5.so.2"

_CONTINUE_NEEDED: Final = 1
_ROUTINE_ERROR: Final = 0xFFFF << 16
_NO_CREDENTIALS, _CREDENTIALS_EXPIRED = 7 << 16, 11 << 16
_MUTUAL, _REPLAY, _SEQUENCE, _INTEGRITY = 2, 4, 8, 32
_INITIATE: Final = 1
_FOR_EVER: Final = 0xFFFFFFFF
_GSS_CODE, _MECHANISM_CODE = 1, 2
#: Kerberos' own codes (krb5_err.et): this number and an index.
_KRB5: Final = -1765328384
_SERVER_UNKNOWN, _TICKET_NOT_YET_VALID, _CLOCK_SKEW = _KRB5 + 7, _KRB5 + 33, _KRB5 + 37
_REALM_UNKNOWN, _KDC_UNREACHABLE = _KRB5 + 154, _KRB5 + 156
#: An unknown client, a key that is not the KDC's, an expired ticket, a keytab without the key.
_NO_TICKET: Final = (_KRB5 + 6, _KRB5 + 24, _KRB5 + 32, _KRB5 + 181)


class _Buffer(Structure):
    _fields_ = (("length", c_size_t), ("value", c_void_p))

    @classmethod
    def of(cls, data: bytes) -> _Buffer:
        """A buffer for input, which lives as long as ``data``."""
        return cls(len(data), ctypes.cast(c_char_p(data), c_void_p))


class _Entry(Structure):
    _fields_ = (("key", c_char_p), ("value", c_char_p))


class _Store(Structure):
    _fields_ = (("count", c_uint32), ("elements", POINTER(_Entry)))


@cache
def load_library() -> Any:
    """The GSS-API. Raises ``UsageError`` where it is not installed."""
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError:
        raise UsageError(
            f"Kerberos with ZooKeeper needs {LIBRARY}",
            "install it: apt-get install libgssapi-krb5-2 (Debian), or dnf install krb5-libs (Red Hat)",
        ) from None


class KerberosContext:
    """A security context between this process and the service ``SERVICE@HOST``.

    The credentials are those of ``settings``: a keytab, whose tickets stay in this process, else the default ticket
    cache, or the keytab that ``KRB5_CLIENT_KTNAME`` names. Calls wait for the KDC as long as ``krb5.conf`` says. They
    raise ``ConnectionFailure``.
    """

    def __init__(self, settings: KerberosSettings, host: str) -> None:
        self.is_complete = False
        self._settings = settings
        self._target = f"{settings.service}@{host}"
        self._gss = load_library()
        self._context = c_void_p()

    def step(self, token: bytes) -> bytes:
        """Take the server's token, empty at first; the token to send, which may be empty."""
        minor, returned = c_uint32(), _Buffer()
        flags = _MUTUAL | _REPLAY | _SEQUENCE | _INTEGRITY
        mechanism = c_void_p.in_dll(self._gss, "gss_mech_krb5")
        with self._name(self._target, "GSS_C_NT_HOSTBASED_SERVICE") as target, self._credentials() as credentials:
            major = self._gss.gss_init_sec_context(
                byref(minor), credentials, byref(self._context), target, mechanism, c_uint32(flags), c_uint32(0),
                None, byref(_Buffer.of(token)), None, byref(returned), None, None,
            )  # fmt: skip
        sent = self._copied(returned)
        self._check(major, minor)
        self.is_complete = not major & _CONTINUE_NEEDED
        return sent

    def unwrap(self, token: bytes) -> bytes:
        """What the server has wrapped."""
        minor, opened = c_uint32(), _Buffer()
        wrapped = byref(_Buffer.of(token))
        self._check(
            self._gss.gss_unwrap(byref(minor), self._context, wrapped, byref(opened), byref(c_int()), None), minor
        )
        return self._copied(opened)

    def wrap(self, data: bytes) -> bytes:
        """``data`` with its proof of integrity, not encrypted."""
        minor, wrapped = c_uint32(), _Buffer()
        plain = byref(_Buffer.of(data))
        self._check(
            self._gss.gss_wrap(byref(minor), self._context, c_int(0), c_uint32(0), plain, None, byref(wrapped)), minor
        )
        return self._copied(wrapped)

    def close(self) -> None:
        """Free the context."""
        self._gss.gss_delete_sec_context(byref(c_uint32()), byref(self._context), None)

    @contextmanager
    def _name(self, text: str, kind: str) -> Iterator[c_void_p]:
        minor, name, encoded = c_uint32(), c_void_p(), text.encode()
        of_kind = c_void_p.in_dll(self._gss, kind)
        self._check(self._gss.gss_import_name(byref(minor), byref(_Buffer.of(encoded)), of_kind, byref(name)), minor)
        try:
            yield name
        finally:
            self._gss.gss_release_name(byref(minor), byref(name))

    @contextmanager
    def _credentials(self) -> Iterator[c_void_p]:
        keytab, principal = self._settings.keytab, self._settings.principal
        minor, found, entries = c_uint32(), c_void_p(), []
        if keytab:
            # A cache of its own: the user's may be of another principal, and is not to be written to.
            entries = [("client_keytab", f"FILE:{keytab}"), ("ccache", f"MEMORY:{principal or ''}:{keytab}")]
        of_kerberos = c_void_p.in_dll(self._gss, "gss_mech_set_krb5")
        with self._name(principal, "GSS_KRB5_NT_PRINCIPAL_NAME") if principal else nullcontext() as name:
            major = self._gss.gss_acquire_cred_from(
                byref(minor), name, c_uint32(_FOR_EVER), of_kerberos, c_int(_INITIATE), _store(entries), byref(found),
                None, None,
            )  # fmt: skip
        self._check(major, minor)
        try:
            yield found
        finally:
            self._gss.gss_release_cred(byref(minor), byref(found))

    def _copied(self, buffer: _Buffer) -> bytes:
        data = ctypes.string_at(buffer.value, buffer.length) if buffer.value else b""
        self._gss.gss_release_buffer(byref(c_uint32()), byref(buffer))
        return data

    def _check(self, major: int, minor: c_uint32) -> None:
        if major & _ROUTINE_ERROR:
            raise self._error(major & _ROUTINE_ERROR, minor)

    def _error(self, routine: int, minor: c_uint32) -> ConnectionFailure:
        keytab, principal = self._settings.keytab, self._settings.principal
        code = c_int32(minor.value).value
        service, _, host = self._target.partition("@")
        if code in (_CLOCK_SKEW, _TICKET_NOT_YET_VALID):
            return ConnectionFailure(*CLOCKS_DIFFER)
        if code == _SERVER_UNKNOWN:
            return ConnectionFailure(*unknown_service(f"{service}/{host}", "--zookeeper-kerberos-service"))
        if code in (_KDC_UNREACHABLE, _REALM_UNKNOWN):
            return ConnectionFailure(*NO_KDC, is_final=False)
        if routine in (_NO_CREDENTIALS, _CREDENTIALS_EXPIRED) or code in _NO_TICKET:
            return ConnectionFailure(*no_ticket(keytab, principal, "--zookeeper-kerberos-keytab"))
        text = self._text(minor.value, _MECHANISM_CODE) if code else self._text(routine, _GSS_CODE)
        remedy = "check krb5.conf (KRB5_CONFIG) and the credentials"
        return ConnectionFailure(FailureCause.KERBEROS_FAILED, f"Kerberos failed: {text}", remedy)

    def _text(self, status: int, kind: int) -> str:
        text = _Buffer()
        mechanism = c_void_p.in_dll(self._gss, "gss_mech_krb5")
        self._gss.gss_display_status(
            byref(c_uint32()), c_uint32(status), c_int(kind), mechanism, byref(c_uint32()), byref(text)
        )
        return self._copied(text).decode("utf-8", "replace")


def _store(entries: Sequence[tuple[str, str]]) -> Any:
    """A credential store of keys and values; None without any."""
    if not entries:
        return None
    elements = (_Entry * len(entries))(*(_Entry(key.encode(), value.encode()) for key, value in entries))
    return byref(_Store(len(entries), elements))
