"""Logins by SASL: DIGEST-MD5 (RFC 2831) and GSSAPI (RFC 4752), as ZooKeeper's servers speak them.

A login is a generator. It yields the client's tokens, is sent the server's answer to each, and ends when the server has
proved itself.
"""

from __future__ import annotations

import hmac
import re
import secrets
import threading
from collections.abc import Generator
from hashlib import md5
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

from zkgroup.clients.kerberos_errors import NO_KDC
from zkgroup.config.connection_settings import KerberosSettings
from zkgroup.errors import ZkgroupError

Login: TypeAlias = Generator[bytes, bytes, None]

_DIRECTIVE = re.compile(rb'([\w-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,]*))')
#: The service and host of each server, which ZooKeeper has in place of its own (``SecurityUtils``, 3.4 to 3.9).
_URI = b"zookeeper/zk-sasl-md5"
_NO_SASL = "the server has no SASL"
#: Of RFC 4752: no security layer, and so no size of buffers.
_NO_LAYER = b"\1\0\0\0"


class LoginError(ZkgroupError):
    """A login that fails before a server refuses it: here, at the KDC, or as the server does not prove itself.
    ``is_final``: trying again will not help."""

    def __init__(self, message: str, remedy: str, *, is_final: bool = True) -> None:
        super().__init__(message, remedy)
        self.is_final = is_final


def log_in(sasl: tuple[str, str] | KerberosSettings, host: str) -> Login:
    """The login of these credentials at ``host``, whose name matters to Kerberos."""
    return _kerberos_login(sasl, host) if isinstance(sasl, KerberosSettings) else _digest_login(*sasl)


def next_token(login: Login, answer: bytes | None, timeout: float) -> bytes:
    """The token after ``answer``, None at first. Raises ``StopIteration`` at the end, and ``LoginError``: also where
    the KDC, for which Kerberos waits as long as ``krb5.conf`` says, keeps it for longer than ``timeout`` seconds."""
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
        raise LoginError(*NO_KDC, is_final=False) from None
    if isinstance(found, Exception):
        raise found
    return found


def _digest_login(user: str, password: str) -> Login:
    asked = _directives((yield b""))
    if b"nonce" not in asked:
        raise LoginError(_NO_SASL, "leave the user out, or configure users at the server")
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
        raise LoginError("the server does not know the password itself", "check the address")


def _kerberos_login(settings: KerberosSettings, host: str) -> Login:
    from zkgroup.clients.zookeeper.gssapi_context import KerberosContext  # loads a library

    context = KerberosContext(settings, host)
    try:
        answer = b""
        while not context.is_complete:
            answer = yield context.step(answer)
            if not answer:
                raise LoginError(_NO_SASL, "leave the mechanism out, or configure Kerberos at the server")
        offered = context.unwrap(answer)
        if not offered[:1] or not offered[0] & _NO_LAYER[0]:
            raise LoginError("the server wants what it is sent encrypted by SASL", "correct its sasl.qop")
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
