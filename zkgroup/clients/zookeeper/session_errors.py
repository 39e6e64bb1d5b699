"""Why a connection to ZooKeeper failed, and what to do."""

from __future__ import annotations

import errno
import socket
import ssl
from dataclasses import dataclass
from functools import partial

from zkgroup.clients.tls import alert, certificate_names, certificate_refused, has_expired, is_no_tls, speaks_tls
from zkgroup.clients.zookeeper.sasl_login import LoginError
from zkgroup.clients.zookeeper.zookeeper_settings import ZooKeeperSettings
from zkgroup.config.connection_settings import KerberosSettings
from zkgroup.errors import UnreachableError
from zkgroup.protocol.broker_znodes import address as at


@dataclass(frozen=True, slots=True)
class ConnectionFailure:
    """A failed connection, and its remedy. ``hopeless``: trying again will not help."""

    message: str
    remedy: str
    hopeless: bool = True

    def error(self) -> UnreachableError:
        """The error that commands raise."""
        return UnreachableError(self.message, self.remedy)


def of_login(server: str, settings: ZooKeeperSettings, cause: BaseException | None = None) -> ConnectionFailure:
    """A server that refuses user and password, other credentials, or a client without any. ``cause``: a ``LoginError``
    where the login fails before."""
    if isinstance(cause, LoginError):
        remedy = cause.remedy.text if cause.remedy else ""
        return ConnectionFailure(f"cannot log in to ZooKeeper at {server}: {cause.message}", remedy, cause.is_final)
    if isinstance(settings.sasl, KerberosSettings):
        return ConnectionFailure(
            f"ZooKeeper at {server} refuses the login with Kerberos",
            "see the server's log: its keytab, its clock, and the section Server of its JAAS file",
        )
    if settings.sasl is not None:
        return ConnectionFailure(
            f"ZooKeeper at {server} refuses the user {settings.sasl[0]}",
            "check name and password (--zookeeper-sasl-user, --zookeeper-sasl-password-file)",
        )
    if settings.auth:
        return ConnectionFailure(
            f"ZooKeeper at {server} refuses the credentials",
            "check --zookeeper-auth-file; the server may want a user (--zookeeper-sasl-user) instead",
        )
    return ConnectionFailure(
        f"ZooKeeper at {server} refuses clients without a user",
        "name one with --zookeeper-sasl-user and --zookeeper-sasl-password-file",
    )


def of_connection(
    error: OSError | None, server: tuple[str, str, int], settings: ZooKeeperSettings
) -> ConnectionFailure | None:
    """The failure of a connection to ``server`` (name, address, port), as far as certificates and protocols explain it;
    None otherwise. ``error``: the socket's, None where the server ended the connection."""
    host, address, port = server
    what = f"ZooKeeper at {at(host, port)}"
    if settings.tls is None:
        if isinstance(error, ConnectionRefusedError | TimeoutError):
            return None
        if not speaks_tls((address, port)):
            return None
        return ConnectionFailure(
            f"{what} speaks TLS at this port", "give --zookeeper-tls and --zookeeper-ca-file, or another port"
        )
    if error is None:
        # TLS 1.3: the server checks the client's certificate when the hand-shake is over for the client.
        return refusal(what, "", settings)
    return of_handshake(error, what, server, settings)


def of_handshake(
    error: OSError, what: str, server: tuple[str, str, int], settings: ZooKeeperSettings
) -> ConnectionFailure | None:
    """As ``of_connection``, where TLS is spoken."""
    tls = settings.tls
    if isinstance(error, ssl.SSLCertVerificationError) and tls is not None:
        host, address, port = server
        names = partial(certificate_names, tls, "TLS with ZooKeeper", (address, port), host)
        return ConnectionFailure(
            *certificate_refused(error, what, "--zookeeper-ca-file", "--no-zookeeper-check-hostname", names)
        )
    reason = getattr(error, "reason", None) or ""
    if isinstance(error, ssl.SSLEOFError) or (tls is not None and error.errno == errno.ECONNRESET):
        return ConnectionFailure(
            f"{what} ends the connection at the TLS hand-shake",
            "is this its port for TLS? if so, it may want a client certificate: --zookeeper-certificate-file",
        )
    if is_no_tls(reason):
        return ConnectionFailure(f"{what} does not speak TLS", "name its port for TLS, or leave --zookeeper-tls out")
    if "ALERT" in reason:
        return refusal(what, reason, settings)
    if isinstance(error, ssl.SSLError):
        return ConnectionFailure(
            f"{what}: the TLS hand-shake failed ({reason or 'without a reason'})", "check its TLS settings"
        )
    if isinstance(error, socket.gaierror):
        return ConnectionFailure(f"{what}: the name is not known", "check the address", hopeless=False)
    return None


def refusal(what: str, reason: str, settings: ZooKeeperSettings) -> ConnectionFailure:
    """A server that refuses this client, by a TLS alert or without one: then it may just be stopping."""
    hopeless = reason != ""
    shown = settings.tls.certificate_file if settings.tls else None
    if shown is None:
        return ConnectionFailure(
            f"{what} wants a client certificate ({alert(reason)})",
            "name yours with --zookeeper-certificate-file and --zookeeper-key-file",
            hopeless,
        )
    if has_expired(shown):
        return ConnectionFailure(f"{what}: the client certificate {shown} has expired", "renew it")
    return ConnectionFailure(
        f"{what} refuses the client certificate {shown} ({alert(reason)})",
        "it may be of an authority that the server does not know",
        hopeless,
    )
