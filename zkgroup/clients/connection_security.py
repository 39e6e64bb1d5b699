"""TLS and Kerberos: contexts from PEM files, connections, and why a hand-shake or a login failed."""

from __future__ import annotations

import enum
import socket
import ssl
import time
from typing import Final, TypeAlias

from zkgroup.config.connection_settings import TlsSettings
from zkgroup.config.setting_files import is_encrypted
from zkgroup.errors import Remedy, UnreachableError, UsageError


class FailureCause(enum.Enum):
    """Why a connection to a server, or a login, fails."""

    # TLS
    TLS_REQUIRED = enum.auto()
    NO_TLS = enum.auto()
    HANDSHAKE_ENDED = enum.auto()
    HANDSHAKE_FAILED = enum.auto()
    # The server's certificate
    CERTIFICATE_EXPIRED = enum.auto()
    CERTIFICATE_OF_ANOTHER_HOST = enum.auto()
    UNKNOWN_AUTHORITY = enum.auto()
    BAD_CERTIFICATE = enum.auto()
    # The client's certificate
    CLIENT_CERTIFICATE_REQUIRED = enum.auto()
    CLIENT_CERTIFICATE_REFUSED = enum.auto()
    # Logins
    NO_SASL = enum.auto()
    UNKNOWN_MECHANISM = enum.auto()
    LOGIN_REQUIRED = enum.auto()
    LOGIN_REFUSED = enum.auto()
    NO_TOKEN = enum.auto()
    SERVER_UNPROVEN = enum.auto()
    # Kerberos
    CLOCKS_DIFFER = enum.auto()
    NO_KDC = enum.auto()
    UNKNOWN_SERVICE = enum.auto()
    NO_TICKET = enum.auto()
    NO_KEY = enum.auto()
    NO_PLUGIN = enum.auto()
    KERBEROS_FAILED = enum.auto()


#: Cause, message and remedy.
Explanation: TypeAlias = tuple[FailureCause, str, str]

_PROBE = 2.0  # seconds for a server to show that it speaks TLS, and its certificate
_AFTERWARDS = 0.3  # seconds for a server to refuse a certificate after the hand-shake


def ssl_context(tls: TlsSettings, what: str) -> ssl.SSLContext:
    """A context with the authorities to trust and the client's certificate. ``what``: the files' purpose, for messages.

    Unlike kazoo's own (2.11), it trusts the system's authorities only where none is named. Raises ``UsageError`` for
    files that cannot be read or used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context.check_hostname = tls.check_hostname
        if tls.ca_file is None:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if tls.ca_file is not None:
        try:
            context.load_verify_locations(tls.ca_file)
        except OSError as error:
            raise UsageError(
                f"{what}: {tls.ca_file} has no certificates ({_reason(error)})", "name a PEM file"
            ) from None
    if tls.certificate_file is not None:
        key = tls.key_file or tls.certificate_file
        try:
            # Without a password OpenSSL would ask for one on the terminal.
            context.load_cert_chain(tls.certificate_file, key, tls.key_password or "")
        except (OSError, ValueError) as error:
            why, remedy = _unusable(error, tls)
            raise UsageError(
                f"{what}: the key {key} and the certificate {tls.certificate_file}: {why}", remedy
            ) from None
    return context


def _unusable(error: Exception, tls: TlsSettings) -> tuple[str, str]:
    text = _reason(error)
    if "KEY_VALUES_MISMATCH" in text:
        return "do not belong together", "name the key of this very certificate"
    if isinstance(error, ssl.SSLError | ValueError) and is_encrypted(tls.key_file or tls.certificate_file or ""):
        return "the password of the key is wrong or missing", "correct it"
    return f"cannot be used ({text})", "name PEM files"


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or "not PEM"
    return getattr(error, "strerror", None) or type(error).__name__


def connect_tls(context: ssl.SSLContext, address: tuple[str, int], hostname: str, timeout: float) -> ssl.SSLSocket:
    """A connection after its hand-shake, all within ``timeout`` seconds. Raises OSError, ``ssl.SSLError`` included."""
    deadline = time.monotonic() + timeout
    plain = socket.create_connection(address, timeout)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.settimeout(max(0.001, deadline - time.monotonic()))
        return context.wrap_socket(plain, server_hostname=hostname.strip("[]"))
    except BaseException:
        plain.close()
        raise


def handshake_error(context: ssl.SSLContext, address: tuple[str, int], hostname: str) -> OSError | None:
    """The error of a hand-shake, else None. In TLS 1.3 the server checks the client's certificate after it."""
    try:
        with connect_tls(context, address, hostname, _PROBE) as connection:
            connection.settimeout(_AFTERWARDS)
            connection.recv(1)
    except TimeoutError:
        return None
    except OSError as error:
        return error
    return None


def is_tls_server(address: tuple[str, int]) -> bool:
    """Whether a server speaks TLS, even if it refuses the hand-shake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        connect_tls(context, address, address[0], _PROBE).close()
    except ssl.SSLError as error:
        return not (isinstance(error, ssl.SSLEOFError) or is_no_tls(error.reason or ""))
    except OSError:
        return False
    return True


def is_no_tls(reason: str) -> bool:
    """Whether the answer was not TLS. ``reason``: of an ``SSLError``."""
    return any(known in reason for known in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"))


def certificate_refused(error: ssl.SSLCertVerificationError, what: str, ca: str, no_check: str) -> Explanation:
    """The explanation of a server's certificate that is refused here. ``ca``, ``no_check``: the options to name."""
    # X509_V_ERR_* of OpenSSL, 1.0 to 3.
    match error.verify_code:
        case 10:
            return FailureCause.CERTIFICATE_EXPIRED, f"{what}: its certificate has expired", "renew it on the server"
        case 62 | 64:
            host = error.verify_message.partition("is not valid for ")[2].strip("'.")
            message = f"{what}: its certificate is for another host ({host} is not among its names)"
            remedy = f"name the server as its certificate does, or {no_check}"
            return FailureCause.CERTIFICATE_OF_ANOTHER_HOST, message, remedy
        case 2 | 18 | 19 | 20 | 21:
            message = f"{what}: its certificate is of an authority that is not known here"
            return FailureCause.UNKNOWN_AUTHORITY, message, f"name the authority with {ca}"
        case _:
            message = f"{what}: its certificate is not taken ({error.verify_message})"
            return FailureCause.BAD_CERTIFICATE, message, f"check it, and {ca}"


def client_refused(what: str, tls: TlsSettings, reason: str, options: str) -> Explanation:
    """The explanation of a server that refuses this client at the hand-shake, or after it. ``reason``: of an
    ``SSLError``, empty where there is none; ``options``: those of a certificate and its key."""
    if tls.certificate_file is None:
        remedy = f"name yours with {options}"
        return FailureCause.CLIENT_CERTIFICATE_REQUIRED, f"{what} wants a client certificate", remedy
    words = reason.replace("_", " ").lower()
    why = f"TLS alert: {words.partition('alert ')[2] or words}" if words else "it ends the connection without a word"
    return (
        FailureCause.CLIENT_CERTIFICATE_REFUSED,
        f"{what} refuses the client certificate {tls.certificate_file} ({why})",
        "check that it has not expired, and that the server knows its authority",
    )


CLOCKS_DIFFER: Final[Explanation] = (
    FailureCause.CLOCKS_DIFFER,
    "the clocks of this machine and of the KDC differ too much",
    "set them (NTP)",
)
NO_KDC: Final[Explanation] = (
    FailureCause.NO_KDC,
    "no KDC answers",
    "check krb5.conf (KRB5_CONFIG), and that the KDC runs",
)


def unknown_service(service: str, option: str) -> Explanation:
    """The KDC has no such principal. ``option`` names another service."""
    return (
        FailureCause.UNKNOWN_SERVICE,
        f"the KDC knows no service {service}",
        f"name the servers as their principals do, not by addresses, or give {option}",
    )


def no_ticket(keytab: str | None, principal: str | None, option: str) -> Explanation:
    """No ticket is there, or none was got by a keytab. ``option`` names a keytab."""
    whose = f" of {principal}" if principal else ""
    if keytab:
        message = f"the keytab {keytab} has no valid key{whose}"
        return FailureCause.NO_KEY, message, f"check it with 'klist -k {keytab}'"
    return (
        FailureCause.NO_TICKET,
        f"there is no valid Kerberos ticket{whose}",
        f"get one with 'kinit {principal or 'USER'}', or name a keytab with {option}",
    )


class ConnectionFailure(UnreachableError):
    """A connection, or a login, that failed for a known cause. ``server``: its address, "" where the login fails before
    it. ``is_final``: trying again will not help."""

    def __init__(
        self, cause: FailureCause, message: str, remedy: Remedy | str, *, server: str = "", is_final: bool = True
    ) -> None:
        super().__init__(message, remedy)
        self.cause = cause
        self.server = server
        self.is_final = is_final
